/* The parts of the json format; private to json*.c. */
#ifndef LEAT_FORMATS_JSON_H
#define LEAT_FORMATS_JSON_H

#include "core/connector.h"

/* Members of format_json (struct format_kind, core/connector.h). */
void *json_decoder_new(const struct schema *schema, const void *config);
void json_decode(void *decoder, struct raw_batch *raw, struct decode_output *output);
void json_decoder_free(void *decoder);

void *json_encoder_new(const struct schema *schema, const void *config);
void json_encode(void *encoder, const struct batch *batch, uint32_t first, uint32_t count,
                 struct byte_buffer *out);
void json_encoder_free(void *encoder);

#endif
