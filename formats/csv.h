/* The parts of the csv format; private to csv*.c. */
#ifndef LEAT_FORMATS_CSV_H
#define LEAT_FORMATS_CSV_H

#include "formats/formats.h"

enum { CSV_FIELDS_MAX = 4096 };

static inline char csv_delimiter(const void *config)
{
    const struct format_config *csv = config;
    return csv == NULL || csv->delimiter == '\0' ? ',' : csv->delimiter;
}

static inline bool csv_has_header(const void *config)
{
    const struct format_config *csv = config;
    return csv == NULL || !csv->has_no_header;
}

static inline bool csv_may_lack(const void *config)
{
    const struct format_config *csv = config;
    return csv != NULL && csv->may_lack;
}

static inline bool csv_trims(const void *config)
{
    const struct format_config *csv = config;
    return csv != NULL && csv->trims;
}

/* One field of a record. */
struct csv_field {
    const char *begin, *end; /* without the quotes */
    bool is_quoted;
    bool has_escape; /* the field has "" inside */
};

/* Reads the field at `at`. Returns the byte behind the field (its delimiter, or `end`). NULL: the field's
 * quotes are wrong at *wrong. */
const char *csv_field(const char *at, const char *end, char delimiter, struct csv_field *field,
                      const char **wrong);
/* The same, without the spaces and tabs around the field, outside of its quotes. */
const char *csv_field_trimmed(const char *at, const char *end, char delimiter, struct csv_field *field,
                              const char **wrong);

/* Members of format_csv (struct format_kind, core/connector.h). */
bool csv_header_check(const struct schema *schema, const void *config, struct str header,
                      struct diag_list *diags);
void *csv_decoder_new(const struct schema *schema, const void *config);
void csv_decode(void *decoder, struct raw_batch *raw, struct decode_output *output);
void csv_decoder_free(void *decoder);

void *csv_encoder_new(const struct schema *schema, const void *config);
void csv_encode_header(void *encoder, struct byte_buffer *out);
void csv_encode(void *encoder, const struct batch *batch, uint32_t first, uint32_t count,
                struct byte_buffer *out);
void csv_encoder_free(void *encoder);

#endif
