/* Writing the rows of a learner's tables, with removed keys and counts of admission, in records by shard
 * (tables/records.h): on the checkpoint's thread, while the lane goes on. */
#include "learners/learner/records.h"
#include "learners/device/table.h"

/* Writes the rows of a set of tables on a device, which arrive in pieces. */
struct set_writer {
    struct rows_writer w;
    struct model *model;
    uint32_t first; /* field of the set's first table */
    size_t row_bytes;
};

static bool put_of(struct set_writer *s, uint8_t kind, uint32_t table, const void *items, size_t item_bytes,
                   size_t count)
{
    uint32_t field = s->first + table;
    if (s->w.head.kind != kind || s->w.head.field != field) {
        if (!rows_writer_flush(&s->w))
            return false;
        rows_writer_begin(&s->w, model_table(s->model, field), field, kind, item_bytes);
    }
    return rows_writer_put(&s->w, items, count);
}

static bool put_set_rows(void *argument, uint32_t table, const void *rows, size_t count)
{
    struct set_writer *s = argument;
    return put_of(s, 'R', table, rows, s->row_bytes, count);
}

static bool put_set_counts(void *argument, uint32_t table, const void *blocks, size_t count)
{
    return put_of(argument, 'C', table, blocks, sizeof(struct sketch_block), count);
}

static bool write_device(struct learner_snapshot *s, struct snapshot_writer *out)
{
    struct set_writer set = {.w = {.out = out}, .model = s->state->model};
    uint32_t table;
    bool is_ok = true;
    for (uint32_t f = 0; f < s->fields && is_ok; f++) {
        const struct device_table *t = model_device_table(s->state->model, f, &table);
        is_ok = rows_writer_put_removed(&set.w, model_table(set.model, f), f, device_table_removed(t, table));
    }
    for (uint32_t f = 0; f < s->fields && is_ok; f++) {
        struct device_table *t = model_device_table(s->state->model, f, &table);
        struct gpu_error error; /* the lane sees the same error, which is sticky */
        if (table != 0)
            continue;
        set.first = f;
        set.row_bytes = device_table_stored_bytes(t);
        is_ok = device_table_snapshot_write(t, put_set_rows, put_set_counts, &set, &error);
    }
    is_ok = is_ok && rows_writer_flush(&set.w);
    rows_writer_free(&set.w);
    return is_ok;
}

bool learner_write_rows(void *argument, struct snapshot_writer *out)
{
    struct learner_snapshot *s = argument;
    bool is_ok = true;
    if (s->state->device.api)
        return write_device(s, out);
    for (uint32_t f = 0; f < s->fields && is_ok; f++)
        is_ok = rows_write_table(out, model_table(s->state->model, f), f, s->tables[f], s->removed[f]);
    return is_ok;
}
