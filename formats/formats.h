/* The formats that leat knows, and their configuration. registry.def lists them. */
#ifndef LEAT_FORMATS_FORMATS_H
#define LEAT_FORMATS_FORMATS_H

#include "core/connector.h"

#define FORMAT(name) extern const struct format_kind format_##name;
#include "formats/registry.def"
#undef FORMAT

/* All formats; ends with NULL. */
extern const struct format_kind *const formats_all[];

/* The format of that name, or NULL. */
const struct format_kind *format_find(struct str name);
/* The format whose suffix the file's name has, or NULL. `.part` and the suffix of a compression (.gz .zst
 * .lz4) may follow the format's suffix. */
const struct format_kind *format_by_suffix(struct str path);

/* The `config` of the decoders and encoders of every format. A NULL config: all zero, times as RFC 3339. */
struct format_config {
    char delimiter;          /* csv; 0: , */
    bool has_no_header;      /* csv: no header line, the columns are those of the schema in its order */
    bool may_lack;           /* csv decoder: columns that are not required may be missing, and are null */
    bool trims;              /* csv decoder: ignores spaces and tabs around fields, and a number's `+` */
    bool has_bare_empty;     /* csv encoder: writes an empty text as an empty field, like null, not as "" */
    enum time_unit times;    /* encoders: how times are written (batches keeps microseconds) */
    struct payload *payload; /* avro, protobuf: what payload_open made (formats/payload.h) */
};

/* Checks a delimiter for csv; false after E0404. */
LEAT_CHECKED bool format_delimiter_check(struct str delimiter, struct diag_list *diags, struct span span);
/* Checks that the format can hold the schema's columns; false after E0303. */
LEAT_CHECKED bool format_schema_check(const struct format_kind *format, const struct schema *schema,
                                      struct diag_list *diags, struct span span);

/* Appends one value as JSON, for people to read. */
void format_json_value(const struct column *column, const struct type *type, uint32_t row,
                       struct byte_buffer *out);

/* A decoder together with its format: what sources give to the engine. One thread at a time. */
void *format_decoder_new(const struct format_kind *format, const struct schema *schema, const void *config);
void format_decode(void *decoder, struct raw_batch *raw, struct decode_output *output);
/* NULL is allowed. */
void format_decoder_free(void *decoder);

#endif
