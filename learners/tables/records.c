#include "learners/tables/records.h"

#include "learners/tables/inline.h"

enum { RECORD_BYTES = 1 << 20 }; /* of the records of all shards that are being filled, together */

uint32_t record_shards(const struct table *table)
{
    return MAX(table->options.shards, 1U);
}

/* The shard of an item: a row or key by its key, a block of counts by its number. */
static uint32_t shard_of_item(const struct table *table, uint8_t kind, const unsigned char *item)
{
    uint64_t number;
    memcpy(&number, item, sizeof(number));
    size_t blocks = sketch_blocks(&table->sketch) / record_shards(table); /* 0: no sketch */
    return kind == 'C' ? (uint32_t)(number / MAX(blocks, 1)) : table_shard(table, number);
}

/* --- Writing --- */

static bool flush_shard(struct rows_writer *w, uint32_t shard)
{
    struct byte_buffer *record = &w->shards[shard];
    bool is_ok = record->length == 0 || snapshot_put(w->out, SNAPSHOT_GLOBAL, record->data, record->length);
    buffer_clear(record);
    return is_ok;
}

bool rows_writer_flush(struct rows_writer *w)
{
    bool is_ok = true;
    for (uint32_t shard = 0; shard < TABLE_SHARDS_MAX; shard++)
        is_ok = flush_shard(w, shard) && is_ok;
    return is_ok;
}

bool rows_writer_put(void *argument, const void *items, size_t count)
{
    struct rows_writer *w = argument;
    const unsigned char *item = items;
    uint32_t shards = record_shards(w->table);
    size_t limit = (size_t)RECORD_BYTES / shards;
    bool is_ok = true;
    for (size_t i = 0; i < count && is_ok; i++, item += w->head.item_bytes) {
        w->head.shard = (uint8_t)(shards > 1 ? shard_of_item(w->table, w->head.kind, item) : 0);
        struct byte_buffer *record = &w->shards[w->head.shard];
        if (record->length + w->head.item_bytes > limit)
            is_ok = flush_shard(w, w->head.shard);
        if (record->length == 0)
            buffer_append(record, &w->head, sizeof(w->head));
        buffer_append(record, item, w->head.item_bytes);
    }
    return is_ok;
}

void rows_writer_begin(struct rows_writer *w, const struct table *table, uint32_t field, uint8_t kind,
                       size_t item_bytes)
{
    w->table = table;
    w->head = (struct record_head){kind, STATE_VERSION, (uint8_t)field, 0, (uint32_t)item_bytes};
}

void rows_writer_free(struct rows_writer *w)
{
    for (uint32_t shard = 0; shard < TABLE_SHARDS_MAX; shard++)
        buffer_free(&w->shards[shard]);
}

bool rows_writer_put_removed(struct rows_writer *w, const struct table *table, uint32_t field,
                             const struct table_keys *removed)
{
    rows_writer_begin(w, table, field, 'D', sizeof(uint64_t));
    return rows_writer_put(w, removed->items, removed->count) && rows_writer_flush(w);
}

bool rows_write_table(struct snapshot_writer *out, const struct table *table, uint32_t field,
                      struct table_snapshot *snapshot, const struct table_keys *removed)
{
    struct rows_writer w = {.out = out};
    bool is_ok = rows_writer_put_removed(&w, table, field, removed);
    rows_writer_begin(&w, table, field, 'R', table_stored_bytes(table));
    is_ok = is_ok && table_snapshot_write(snapshot, rows_writer_put, &w) && rows_writer_flush(&w);
    rows_writer_begin(&w, table, field, 'C', sizeof(struct sketch_block));
    is_ok = is_ok && table_snapshot_write_counts(snapshot, rows_writer_put, &w) && rows_writer_flush(&w);
    rows_writer_free(&w);
    return is_ok;
}

/* --- Totals --- */

bool record_put_total(struct snapshot_writer *out, uint32_t field, uint64_t rows)
{
    struct {
        struct record_head head;
        uint64_t rows;
    } record = {{'T', STATE_VERSION, (uint8_t)field, 0, sizeof(rows)}, rows};
    return snapshot_put(out, SNAPSHOT_GLOBAL, &record, sizeof(record));
}

bool record_total(const struct record_head *head, const void *items, size_t bytes, uint64_t *rows)
{
    if (head->kind != 'T' || head->item_bytes != sizeof(*rows) || bytes != sizeof(*rows))
        return false;
    memcpy(rows, items, sizeof(*rows));
    return true;
}

/* --- Reading --- */

static enum table_item item_of(uint8_t kind)
{
    return kind == 'R' ? TABLE_ITEM_ROW : kind == 'C' ? TABLE_ITEM_BLOCK : TABLE_ITEM_REMOVED;
}

bool record_fits(const struct table *table, const struct record_head *head, size_t bytes)
{
    size_t item_bytes = table_item_bytes(table, item_of(head->kind));
    return (head->kind == 'R' || head->kind == 'C' || head->kind == 'D') && head->item_bytes == item_bytes &&
           bytes % item_bytes == 0;
}

bool record_is_of_shard(const struct table *table, const struct record_head *head, const void *items,
                        size_t bytes)
{
    for (size_t at = 0; at < bytes; at += head->item_bytes)
        if (shard_of_item(table, head->kind, (const unsigned char *)items + at) != head->shard)
            return false;
    return true;
}

bool record_restore(struct table *table, const struct record_head *head, const void *items, size_t bytes)
{
    table_begin(table); /* memory of rows removed by a 'D' may be used again */
    return table_restore_items(table, item_of(head->kind), items, bytes / head->item_bytes);
}
