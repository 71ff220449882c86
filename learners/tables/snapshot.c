/* Snapshots of a table while its owner goes on: rows in chunks of 64, and the sketch's counts (chunks.h). */
#include "learners/tables/chunks.h"

#include "core/mem.h"
#include "learners/tables/inline.h"

#include <stdlib.h>

struct table_snapshot {
    const struct table *table;
    uint32_t since, closing;
    uint32_t rows_used; /* the table's rows_used at the barrier: rows from this number on came later */
    struct chunks *rows;
    struct table_keys removed;
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

void table_snapshot_end(struct table *t, bool is_published)
{
    struct table_snapshot *s = t->snapshot;
    leat_assert(s);
    t->snapshot = NULL;
    sketch_snapshot_end(&t->sketch);
    chunks_end(s->rows);
    if (!is_published && s->removed.count > 0) { /* the next snapshot must list them */
        size_t count = s->removed.count + t->removed.count;
        s->removed.items = mem_realloc(s->removed.items, count * sizeof(*s->removed.items));
        if (t->removed.count > 0)
            memcpy(s->removed.items + s->removed.count, t->removed.items,
                   t->removed.count * sizeof(*t->removed.items));
        free(t->removed.items);
        t->removed = (struct table_keys){.items = s->removed.items, .count = count, .capacity = count};
    } else {
        free(s->removed.items);
    }
    free(s);
}
