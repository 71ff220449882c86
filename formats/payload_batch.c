#include "formats/payload_batch.h"

bool payload_constant(struct payload_plan *plan, const struct payload_request *request, const char *data,
                      size_t bytes, struct text_ref *ref)
{
    *ref = (struct text_ref){(uint32_t)plan->constants.length, (uint32_t)bytes};
    if (bytes <= PAYLOAD_CONSTANTS_BYTES_MAX - plan->constants.length) {
        buffer_append(&plan->constants, data, bytes);
        return true;
    }
    diag_error(request->diags, DIAG_E0614, (struct span){0, 0},
               "%s: the symbols of its enums and its defaults are longer than 64 KiB", request->name);
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

/* Returns the bytes of the constants of all plans. */
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
