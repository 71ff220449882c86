/* What fuzz_avro.c and fuzz_protobuf.c share: payloads through a decoder, alone and among others. */
#ifndef LEAT_TESTS_FUZZ_PAYLOAD_FUZZ_H
#define LEAT_TESTS_FUZZ_PAYLOAD_FUZZ_H

#include "core/buffer.h"
#include "formats/payload.h"

struct payload_fuzz {
    const struct format_kind *format;
    struct arena arena;
    struct diag_list diags;
    const struct schema *schema;
    struct payload *payload; /* NULL: the schema was refused, with reasons */
    struct batch_pool *pool;
};

void payload_fuzz_must(bool is_true, const char *what);
void payload_fuzz_open(struct payload_fuzz *fuzz, const struct format_kind *format, const char *name,
                       struct str schema_text, const char *message, const char *columns);
void payload_fuzz_close(struct payload_fuzz *fuzz);
/* Decodes the payload alone, and three times with others between; all must be the same. Its columns, or why
 * it is bad, as harness_exact writes it. */
void payload_fuzz_decode(struct payload_fuzz *fuzz, struct str payload, struct byte_buffer *out);

#endif
