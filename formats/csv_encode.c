/* Columns -> CSV. Null, NaN and the infinities are empty fields. An empty text is "", or with has_bare_empty
 * an empty field. There are no lists: a job with lists in csv is refused at bind. */
#include "formats/csv.h"
#include "formats/text.h"
#include "formats/text_write.h"

#include "core/base64.h"
#include "core/mem.h"

#include <emmintrin.h>
#include <math.h>
#include <stdlib.h>

struct csv_encoder {
    const struct schema *schema;
    char delimiter;
    bool has_header, has_bare_empty;
    enum time_unit times;
};

/* Whether one of the 16 bytes makes quotes necessary. */
static inline bool needs_quotes16(const char *at, char delimiter)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
    __m128i found = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(delimiter)),
                                 _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')));
    found = _mm_or_si128(found, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\n')));
    found = _mm_or_si128(found, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\r')));
    return _mm_movemask_epi8(found) != 0;
}

static bool needs_quotes(struct str text, char delimiter)
{
    if (text.length < 16) {
        for (size_t i = 0; i < text.length; i++) {
            char c = text.data[i];
            if (c == delimiter || c == '"' || c == '\n' || c == '\r')
                return true;
        }
        return text.length == 0;
    }
    size_t last = text.length - 16; /* the last step may overlap the one before */
    for (size_t i = 0; i < last; i += 16)
        if (needs_quotes16(text.data + i, delimiter))
            return true;
    return needs_quotes16(text.data + last, delimiter);
}

static void write_text(const struct csv_encoder *encoder, struct str text, struct byte_buffer *out)
{
    if (text.length == 0 && encoder->has_bare_empty)
        return;
    if (!needs_quotes(text, encoder->delimiter)) {
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
        base64_encode(bytes.data, bytes.length, out);
        break;
    }
    default: leat_assert(column->tag != TYPE_LIST); /* refused at bind */
    }
}

void *csv_encoder_new(const struct schema *schema, const void *config)
{
    struct csv_encoder *encoder = mem_calloc(1, sizeof(*encoder));
    encoder->schema = schema;
    encoder->delimiter = csv_delimiter(config);
    encoder->has_header = csv_has_header(config);
    encoder->has_bare_empty = config != NULL && ((const struct format_config *)config)->has_bare_empty;
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
        /* A decoder takes an empty line for no record. */
        if (out->length == before)
            buffer_append(out, "\"\"", 2);
        buffer_append(out, "\n", 1);
    }
}
