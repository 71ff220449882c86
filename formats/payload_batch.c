#include "formats/payload_batch.h"

#include "core/mem.h"

#include <stdlib.h>

bool payload_constant(struct payload_plan *plan, const struct payload_request *request, const char *data,
                      size_t bytes, struct text_ref *ref)
{
    *ref = (struct text_ref){(uint32_t)plan->constants.length, (uint32_t)bytes};
    if (bytes <= PAYLOAD_CONSTANTS_BYTES_MAX - plan->constants.length) {
        buffer_append(&plan->constants, data, bytes);
        return true;
    }
    diag_error(request->diags, DIAG_BAD_PAYLOAD_SCHEMA, (struct span){0, 0},
               "%s: its defaults and the symbols of its enums take more than 64 KiB", request->name);
    return false;
}

static void free_constants(void *plan)
{
    buffer_free(&((struct payload_plan *)plan)->constants);
}

void payload_plan_init(struct payload_plan *plan, const struct payload_request *request)
{
    arena_defer(request->arena, free_constants, plan);
}

/* Finds the plan of each record. Returns the bytes of the constants of all plans. */
static size_t find_plans(struct payload_batch *batch, const struct raw_batch *raw)
{
    size_t bytes = 0;
    uint32_t at = 0;
    batch->uses_count = 0;
    for (uint32_t row = 0; row < raw->count; row++) {
        size_t header;
        const struct payload_plan *plan =
            payload_plan(batch->payload, raw->data + raw->records[row].offset, raw->records[row].length,
                         &header, &batch->reason_of[row]);
        batch->header_of[row] = (uint8_t)header;
        batch->use_of[row] = UINT16_MAX;
        if (plan == NULL)
            continue;
        if (at >= batch->uses_count || batch->uses[at].plan != plan)
            for (at = 0; at < batch->uses_count && batch->uses[at].plan != plan;)
                at++;
        if (at == batch->uses_count) {
            batch->uses[batch->uses_count++] = (struct payload_use){.plan = plan};
            bytes += plan->constants.length;
        }
        batch->use_of[row] = (uint16_t)at;
    }
    return bytes;
}

void payload_batch_begin(struct payload_batch *batch, struct rows *rows, struct raw_batch *raw,
                         struct decode_output *output, size_t text_bytes)
{
    rows_begin(rows, raw, output, text_bytes + find_plans(batch, raw));
    for (uint32_t i = 0; i < batch->uses_count; i++) {
        const struct byte_buffer *constants = &batch->uses[i].plan->constants;
        batch->uses[i].base = (uint32_t)(rows->heap - rows->heap_begin);
        if (constants->length > 0)
            memcpy(rows->heap, constants->data, constants->length);
        rows->heap += constants->length;
    }
}

/* --- Decoders --- */

const char payload_ends_inside[] = "the payload ends inside a value";

void *payload_decoder_new(const struct schema *schema, const void *config)
{
    struct payload_decoder *decoder = mem_calloc(1, sizeof(*decoder));
    const struct format_config *format = config;
    leat_assert(format != NULL && format->payload != NULL);
    decoder->rows = rows_new(schema);
    decoder->batch.payload = format->payload;
    return decoder;
}

void payload_decoder_free(void *self)
{
    struct payload_decoder *decoder = self;
    if (decoder == NULL)
        return;
    rows_free(decoder->rows);
    free(decoder);
}

const char *payload_of_column(const struct payload_decoder *decoder, const struct row_column *column,
                              const char *what)
{
    if (column->name.length == 0)
        return what;
    return arena_printf(&decoder->rows->output->batch->arena, "`%.*s`: %s", (int)MIN(column->name.length, 64),
                        column->name.data, what);
}

const char *payload_bad_number(const char *at, const char *end)
{
    const char *byte = at;
    while (byte < end && (*byte & 0x80) != 0)
        byte++;
    return byte == end && end - at < 10 ? payload_ends_inside : "a number of more than 64 bits";
}
