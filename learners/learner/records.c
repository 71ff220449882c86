/* Writing the rows of a learner's tables, with removed keys and counts of admission, in records by shard: on
 * the checkpoint's thread, while the lane goes on. */
#include "learners/learner/records.h"
#include "learners/device/table.h"

#include "core/buffer.h"

enum { RECORD_BYTES = 1 << 20 }; /* of the records of all shards that are being filled, together */

/* Writes items of a table, in records by shard. */
struct rows_writer {
    struct snapshot_writer *out;
    const struct table *table;
    struct record_head head;
    struct byte_buffer shards[TABLE_SHARDS_MAX]; /* a record of each shard; empty: no item yet */
};

static bool flush_shard(struct rows_writer *w, uint32_t shard)
{
    struct byte_buffer *record = &w->shards[shard];
    bool is_ok = record->length == 0 || snapshot_put(w->out, SNAPSHOT_GLOBAL, record->data, record->length);
    buffer_clear(record);
    return is_ok;
}

static bool flush_rows(struct rows_writer *w)
{
    bool is_ok = true;
    for (uint32_t shard = 0; shard < TABLE_SHARDS_MAX; shard++)
        is_ok = flush_shard(w, shard) && is_ok;
    return is_ok;
}

static bool put_rows(void *argument, const void *rows, size_t count)
{
    struct rows_writer *w = argument;
    const unsigned char *item = rows;
    uint32_t shards = record_shards(w->table);
    size_t limit = (size_t)RECORD_BYTES / shards;
    bool is_ok = true;
    for (size_t i = 0; i < count && is_ok; i++, item += w->head.item_bytes) {
        w->head.shard = (uint8_t)(shards > 1 ? record_shard(w->table, w->head.kind, item) : 0);
        struct byte_buffer *record = &w->shards[w->head.shard];
        if (record->length + w->head.item_bytes > limit)
            is_ok = flush_shard(w, w->head.shard);
        if (record->length == 0)
            buffer_append(record, &w->head, sizeof(w->head));
        buffer_append(record, item, w->head.item_bytes);
    }
    return is_ok;
}

static void begin_items(struct rows_writer *w, const struct table *table, uint32_t field, uint8_t kind,
                        size_t item_bytes)
{
    w->table = table;
    w->head = (struct record_head){kind, STATE_VERSION, (uint8_t)field, 0, (uint32_t)item_bytes};
}

static void free_rows(struct rows_writer *w)
{
    for (uint32_t shard = 0; shard < TABLE_SHARDS_MAX; shard++)
        buffer_free(&w->shards[shard]);
}

static bool write_removed(struct rows_writer *w, const struct table *table, uint32_t field,
                          const struct table_keys *removed)
{
    begin_items(w, table, field, 'D', sizeof(uint64_t));
    return put_rows(w, removed->items, removed->count) && flush_rows(w);
}

static bool write_table(struct learner_snapshot *s, uint32_t field, struct snapshot_writer *out)
{
    const struct table *table = model_table(s->state->model, field);
    struct rows_writer w = {.out = out};
    bool is_ok = write_removed(&w, table, field, s->removed[field]);
    begin_items(&w, table, field, 'R', table_stored_bytes(table));
    is_ok = is_ok && table_snapshot_write(s->tables[field], put_rows, &w) && flush_rows(&w);
    begin_items(&w, table, field, 'C', sizeof(struct sketch_block));
    is_ok = is_ok && table_snapshot_write_counts(s->tables[field], put_rows, &w) && flush_rows(&w);
    free_rows(&w);
    return is_ok;
}

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
        if (!flush_rows(&s->w))
            return false;
        begin_items(&s->w, model_table(s->model, field), field, kind, item_bytes);
    }
    return put_rows(&s->w, items, count);
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
        is_ok = write_removed(&set.w, model_table(set.model, f), f, device_table_removed(t, table));
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
    is_ok = is_ok && flush_rows(&set.w);
    free_rows(&set.w);
    return is_ok;
}

bool learner_write_rows(void *argument, struct snapshot_writer *out)
{
    struct learner_snapshot *s = argument;
    bool is_ok = true;
    if (s->state->gpu_api)
        return write_device(s, out);
    for (uint32_t f = 0; f < s->fields && is_ok; f++)
        is_ok = write_table(s, f, out);
    return is_ok;
}
