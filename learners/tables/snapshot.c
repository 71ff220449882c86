/* Snapshots of a table while its owner goes on: rows in chunks of 64, and the sketch's counts (chunks.h). */
#include "learners/tables/chunks.h"

#include "core/buffer.h"
#include "core/mem.h"
#include "learners/tables/inline.h"

#include <stdlib.h>

struct table_snapshot {
    const struct table *table;
    uint32_t since, closing;
    uint32_t rows_used; /* the table's rows_used at the barrier: rows from this number on came later */
    struct chunks *rows;
    struct table_keys removed; /* as of the barrier; the writer reads it */
    struct table_keys taken;   /* such keys of shards that were taken since */
    uint64_t given;            /* bit s: shard s was given away since, and with it its keys of `removed` */
};

/* Copies the chunk's rows that belong to the snapshot; returns how many. */
static size_t copy_rows(const void *owner, size_t chunk, unsigned char *out)
{
    const struct table_snapshot *s = owner;
    const struct table *t = s->table;
    uint32_t newest;
    memcpy(&newest, t->chunk_epochs.base + chunk * sizeof(newest), sizeof(newest));
    if (newest <= s->since)
        return 0;
    size_t count = 0, bytes = table_stored_bytes(t);
    uint32_t end = (uint32_t)MIN((chunk + 1) * TABLE_CHUNK_ROWS, (size_t)s->rows_used);
    for (uint32_t i = (uint32_t)(chunk * TABLE_CHUNK_ROWS); i < end; i++) {
        struct table_row *row = table_row_at(t, i);
        if (row->key == 0 || row->epoch <= s->since || row->epoch > s->closing)
            continue;
        table_store_row(t, row, out + count++ * bytes);
    }
    return count;
}

struct table_snapshot *table_snapshot_begin(struct table *t, uint32_t since, uint32_t closing,
                                            const struct table_keys **removed)
{
    leat_assert(t->snapshot == NULL && closing >= t->epoch && since <= closing);
    struct table_snapshot *s = mem_calloc(1, sizeof(*s));
    *s = (struct table_snapshot){.table = t, .since = since, .closing = closing, .rows_used = t->rows_used};
    size_t chunks = ((size_t)t->rows_used + TABLE_CHUNK_ROWS - 1) / TABLE_CHUNK_ROWS;
    s->rows = chunks_begin(chunks, TABLE_CHUNK_ROWS * table_stored_bytes(t), copy_rows, s);
    sketch_snapshot_begin(&t->sketch, since, closing);
    s->removed = t->removed;
    t->removed = (struct table_keys){0};
    t->lists_removed = true;
    t->epoch = closing + 1;
    t->snapshot = s;
    *removed = &s->removed;
    return s;
}

void table_snapshot_protect(struct table *t, uint32_t row)
{
    chunks_protect(t->snapshot->rows, row / TABLE_CHUNK_ROWS);
}

bool table_snapshot_write(struct table_snapshot *s, table_emit *emit, void *argument)
{
    return chunks_write(s->rows, emit, argument);
}

bool table_snapshot_write_counts(struct table_snapshot *s, table_emit *emit, void *argument)
{
    return sketch_snapshot_write(&s->table->sketch, emit, argument);
}

/* Whether the table still answers for a key of s->removed: its shard was not given away. */
static bool is_kept(const struct table_snapshot *s, uint64_t key)
{
    return s->given == 0 || !(s->given >> table_shard(s->table, key) & 1);
}

void table_snapshot_end(struct table *t, bool is_published)
{
    struct table_snapshot *s = t->snapshot;
    leat_assert(s);
    t->snapshot = NULL;
    sketch_snapshot_end(&t->sketch);
    chunks_end(s->rows);
    t->was_published = is_published;
    for (size_t i = 0; i < s->removed.count && !is_published; i++) /* the next snapshot must list them */
        if (is_kept(s, s->removed.items[i]))
            table_keys_add(&t->removed, s->removed.items[i]);
    for (size_t i = 0; i < s->taken.count && !is_published; i++)
        table_keys_add(&t->removed, s->taken.items[i]);
    free(s->removed.items);
    free(s->taken.items);
    free(s);
}

uint64_t table_keys_give(const struct table *t, struct table_keys *keys, uint32_t shard,
                         struct byte_buffer *out)
{
    size_t kept = 0, count = keys->count;
    for (size_t i = 0; i < count; i++) {
        if (table_shard(t, keys->items[i]) == shard)
            buffer_append(out, &keys->items[i], sizeof(*keys->items));
        else
            keys->items[kept++] = keys->items[i];
    }
    keys->count = kept;
    return count - kept;
}

uint64_t table_snapshot_give_removed(struct table *t, uint32_t shard, struct byte_buffer *out)
{
    struct table_snapshot *s = t->snapshot;
    if (s == NULL)
        return 0;
    uint64_t count = table_keys_give(t, &s->taken, shard, out);
    for (size_t i = 0; i < s->removed.count; i++)
        if (table_shard(t, s->removed.items[i]) == shard && is_kept(s, s->removed.items[i])) {
            buffer_append(out, &s->removed.items[i], sizeof(*s->removed.items));
            count++;
        }
    s->given |= UINT64_C(1) << shard;
    return count;
}

void table_snapshot_take_removed(struct table *t, uint64_t key)
{
    if (t->snapshot != NULL)
        table_keys_add(&t->snapshot->taken, key);
    else if (!t->was_published)
        table_keys_add(&t->removed, key);
}
