#include "learners/device_export.h"

#include "core/base.h"

static bool piece_init(struct device_export *o, struct device_export_piece *p, struct gpu_error *error)
{
    size_t heads = o->room * sizeof *p->heads, payloads = o->room * o->floats * sizeof *p->payloads;
    return (p->heads = o->api->alloc_pinned(o->gpu, heads, error)) != NULL &&
           (p->payloads = o->api->alloc_pinned(o->gpu, payloads, error)) != NULL &&
           (p->device_heads = o->api->alloc(o->gpu, heads, error)) != NULL &&
           (p->device_payloads = o->api->alloc(o->gpu, payloads, error)) != NULL &&
           (p->device_count = o->api->alloc(o->gpu, sizeof *p->device_count, error)) != NULL &&
           (p->gathered = o->api->event(o->gpu, error)) != NULL &&
           (p->copied = o->api->event(o->gpu, error)) != NULL;
}

bool device_export_init(struct device_export *o, const struct gpu_api *api, struct gpu *gpu, size_t floats,
                        uint32_t room, struct gpu_error *error)
{
    *o = (struct device_export){.api = api, .gpu = gpu, .floats = floats, .room = room};
    o->copies = api->stream(gpu, error);
    return o->copies != NULL && piece_init(o, &o->pieces[0], error) && piece_init(o, &o->pieces[1], error);
}

void device_export_free(struct device_export *o)
{
    if (!o->api)
        return;
    o->api->stream_free(o->gpu, o->copies);
    for (size_t i = 0; i < ARRAY_COUNT(o->pieces); i++) {
        struct device_export_piece *p = &o->pieces[i];
        o->api->free_pinned(o->gpu, p->heads);
        o->api->free_pinned(o->gpu, p->payloads);
        o->api->free(o->gpu, p->device_heads);
        o->api->free(o->gpu, p->device_payloads);
        o->api->free(o->gpu, p->device_count);
        o->api->event_free(o->gpu, p->gathered);
        o->api->event_free(o->gpu, p->copied);
    }
    *o = (struct device_export){0};
}

/* Queues the gathering of the next piece, behind the copy that used its memory before, and its own copy. */
static void queue_piece(struct device_export *o, struct gpu_tables *tables, struct gpu_stream *stream,
                        struct device_export_piece *p, bool is_reused)
{
    if (is_reused)
        o->api->wait_event(stream, p->copied);
    o->api->tables->export_rows(tables, stream, p->rows, p->device_heads, p->device_payloads,
                                p->device_count);
    o->api->record(p->gathered, stream);
    o->api->wait_event(o->copies, p->gathered);
    o->api->copy(o->copies, p->heads, p->device_heads, p->rows * sizeof *p->heads);
    o->api->copy(o->copies, p->payloads, p->device_payloads, p->rows * o->floats * sizeof *p->payloads);
    o->api->record(p->copied, o->copies);
}

bool device_export_run(struct device_export *o, struct gpu_tables *tables, struct gpu_stream *stream,
                       uint32_t since, uint32_t closing, device_export_emit *emit, void *argument,
                       struct gpu_error *error)
{
    uint64_t left = 0;
    if (!o->api->tables->select(tables, stream, since, closing, &left, error))
        return false;
    bool goes_on = true;
    uint64_t pieces = (left + o->room - 1) / o->room;
    for (uint64_t i = 0; i <= pieces && goes_on; i++) {
        if (i < pieces) {
            struct device_export_piece *next = &o->pieces[i % 2];
            next->rows = (uint32_t)MIN(left, (uint64_t)o->room);
            left -= next->rows;
            queue_piece(o, tables, stream, next, i >= 2);
        }
        if (i == 0)
            continue;
        struct device_export_piece *p = &o->pieces[(i - 1) % 2];
        if (!o->api->wait_for(p->copied, error))
            return false;
        goes_on = emit(argument, p->heads, p->payloads, p->rows);
    }
    if (!goes_on)
        *error = (struct gpu_error){.failure = GPU_OK};
    return o->api->wait(stream, error) && o->api->wait(o->copies, error) && goes_on;
}
