/* Columns -> CSV. Null, NaN and the infinities are empty; an empty text is "". Lists have no place (checked
 * at bind). */
#include "formats/csv.h"
#include "formats/text.h"
#include "formats/text_write.h"

#include <math.h>
#include <stdlib.h>

struct csv_encoder {
    const struct schema *schema;
    char delimiter;
    bool has_header;
    enum time_unit times;
};

static void write_text(const struct csv_encoder *encoder, struct str text, struct byte_buffer *out)
{
    bool is_plain = text.length > 0;
    for (size_t i = 0; i < text.length && is_plain; i++) {
        char c = text.data[i];
        is_plain = c != encoder->delimiter && c != '"' && c != '\n' && c != '\r';
    }
    if (is_plain) {
        buffer_append(out, text.data, text.length);
        return;
    }
    char *to = buffer_reserve(out, 2 * text.length + 2);
    *to++ = '"';
    for (size_t i = 0; i < text.length; i++) {
        *to++ = text.data[i];
        if (text.data[i] == '"')
            *to++ = '"';
    }
    *to++ = '"';
    out->length = (size_t)(to - out->data);
}

static void write_value(const struct csv_encoder *encoder, const struct column *column, uint32_t row,
                        struct byte_buffer *out)
{
    char *to = buffer_reserve(out, TEXT_WRITE_MAX);
    if (!column_is_valid(column, row) || (column->tag == TYPE_FLOAT && !isfinite(column->floats[row])))
        return;
    switch (column->tag) {
    case TYPE_BOOL:
        buffer_append(out, column->bools[row] ? "true" : "false", column->bools[row] ? 4 : 5);
        break;
    case TYPE_INT: out->length += (size_t)(text_write_int(to, column->ints[row]) - to); break;
    case TYPE_FLOAT: out->length += (size_t)(text_write_float(to, column->floats[row]) - to); break;
    case TYPE_TIME:
        out->length += (size_t)(text_write_time(to, column->ints[row], encoder->times) - to);
        break;
    case TYPE_TEXT: write_text(encoder, column_text(column, row), out); break;
    case TYPE_BYTES: {
        struct str bytes = column_text(column, row);
        if (bytes.length == 0)
            buffer_append(out, "\"\"", 2);
        text_to_base64(bytes.data, bytes.length, out);
        break;
    }
    default: leat_assert(column->tag != TYPE_LIST); /* refused when bound */
    }
}

void *csv_encoder_new(const struct schema *schema, const void *config)
{
    struct csv_encoder *encoder = calloc(1, sizeof(*encoder));
    leat_assert(encoder != NULL);
    encoder->schema = schema;
    encoder->delimiter = csv_delimiter(config);
    encoder->has_header = csv_has_header(config);
    encoder->times = config == NULL ? TIME_UNIT_RFC3339 : ((const struct format_config *)config)->times;
    return encoder;
}

void csv_encoder_free(void *self)
{
    free(self);
}

void csv_encode_header(void *self, struct byte_buffer *out)
{
    const struct csv_encoder *encoder = self;
    if (!encoder->has_header)
        return;
    for (uint32_t i = 0; i < encoder->schema->count; i++) {
        buffer_append(out, &encoder->delimiter, i > 0);
        write_text(encoder, encoder->schema->fields[i].name, out);
    }
    buffer_append(out, "\n", 1);
}

void csv_encode(void *self, const struct batch *batch, uint32_t first, uint32_t count,
                struct byte_buffer *out)
{
    const struct csv_encoder *encoder = self;
    for (uint32_t i = first; i < first + count; i++) {
        size_t before = out->length;
        for (uint32_t j = 0; j < encoder->schema->count; j++) {
            buffer_append(out, &encoder->delimiter, j > 0);
            write_value(encoder, &batch->columns[j], batch_row(batch, i), out);
        }
        /* An empty line would hold no record. */
        if (out->length == before)
            buffer_append(out, "\"\"", 2);
        buffer_append(out, "\n", 1);
    }
}
