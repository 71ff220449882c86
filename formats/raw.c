/* Raw payloads: each record's bytes, unchanged, in the one column of the schema. A column of type text takes
 * only UTF-8, a column of type bytes takes anything. */
#include "formats/formats.h"
#include "formats/text.h"

#include "core/mem.h"
#include "core/utf8.h"

#include <stdlib.h>

struct raw_decoder {
    bool is_text;
};

static bool is_continuation(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* Checks all records in one pass: where the whole data is well-formed UTF-8 and no record begins or ends
 * inside a character, every record is well-formed. */
static bool are_all_utf8(const struct raw_batch *raw)
{
    if (!text_is_utf8(raw->data, raw->data_bytes))
        return false;
    for (uint32_t row = 0; row < raw->count; row++) {
        size_t begin = raw->records[row].offset, end = begin + raw->records[row].length;
        if ((begin < raw->data_bytes && is_continuation(raw->data[begin])) ||
            (end < raw->data_bytes && is_continuation(raw->data[end])))
            return false;
    }
    return true;
}

static void raw_decode(void *self, struct raw_batch *raw, struct decode_output *output)
{
    const struct raw_decoder *decoder = self;
    struct batch *batch = output->batch;
    struct column *column = &batch->columns[0];
    leat_assert(batch->schema->count == 1 && batch->rows == raw->count);
    bool is_checked = !decoder->is_text || are_all_utf8(raw);
    output->bad_count = 0;
    column->heap = arena_copy(&batch->arena, raw->data, raw->data_bytes);
    for (uint32_t row = 0; row < raw->count; row++) {
        struct raw_record record = raw->records[row];
        column->texts[row] = (struct text_ref){record.offset, record.length};
        if (is_checked || text_is_utf8(raw->data + record.offset, record.length))
            continue;
        size_t at = utf8_error(raw->data + record.offset, record.length);
        output->bad[output->bad_count++] =
            (struct bad_record){.row = row, .column = (uint32_t)at, .reason = "not valid UTF-8"};
        batch_set_null(batch, column, row);
        column->texts[row] = (struct text_ref){0, 0};
    }
}

static void *raw_decoder_new(const struct schema *schema, const void *config LEAT_UNUSED)
{
    struct raw_decoder *decoder = mem_calloc(1, sizeof(*decoder));
    decoder->is_text = schema->fields[0].type.tag == TYPE_TEXT;
    return decoder;
}

static void raw_decoder_free(void *decoder)
{
    free(decoder);
}

/* Appends payloads without anything between them: a caller that encodes several rows keeps their lengths. */
static void raw_encode(void *encoder LEAT_UNUSED, const struct batch *batch, uint32_t first, uint32_t count,
                       struct byte_buffer *out)
{
    const struct column *column = &batch->columns[0];
    for (uint32_t i = first; i < first + count; i++) {
        uint32_t row = batch_row(batch, i);
        struct str payload = column_text(column, row);
        if (column_is_valid(column, row))
            buffer_append(out, payload.data, payload.length);
    }
}

const struct format_kind format_raw = {
    .name = "raw",
    .summary = "the bytes of each record, unchanged, in one column",
    .example = "source clicks = kafka { brokers: \"localhost:9092\", topic: \"clicks\", format: raw, "
               "schema: { payload: bytes } }",
    .is_payload = true,
    .decoder_new = raw_decoder_new,
    .decode = raw_decode,
    .decoder_free = raw_decoder_free,
    .encoder_new = raw_decoder_new,
    .encode = raw_encode,
    .encoder_free = raw_decoder_free,
};
