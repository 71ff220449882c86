/*
 * Snapshots of a table while its owner goes on. Each chunk of 64 rows is claimed once: by the writer, which
 * copies its changed rows and gives them out; or by the owner before it first changes a row of it, which puts
 * the copy into a list that the writer gives out at its end. So the owner touches a chunk only after it was
 * copied, the writer only one that the owner has not touched: every row is seen as it was at the barrier.
 */
#include "learners/table_inline.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum { CHUNK_OPEN, CHUNK_CLAIMED, CHUNK_COPIED };

struct copied {
    struct copied *next;
    size_t count;
    unsigned char rows[];
};

struct table_snapshot {
    const struct table *table;
    uint32_t since, closing;
    uint32_t rows_used; /* rows that exist at the barrier */
    _Atomic uint8_t *chunks;
    size_t chunks_count;
    pthread_mutex_t mutex; /* guards `first` */
    struct copied *first;
    struct table_keys removed;
};

struct table_snapshot *table_snapshot_begin(struct table *t, uint32_t since, uint32_t closing,
                                            const struct table_keys **removed)
{
    leat_assert(!t->snapshot && closing >= t->epoch && since <= closing);
    struct table_snapshot *s = calloc(1, sizeof *s);
    leat_assert(s);
    *s = (struct table_snapshot){.table = t, .since = since, .closing = closing, .rows_used = t->rows_used};
    pthread_mutex_init(&s->mutex, NULL);
    s->chunks_count = ((size_t)t->rows_used + TABLE_CHUNK_ROWS - 1) / TABLE_CHUNK_ROWS;
    s->chunks = calloc(MAX(s->chunks_count, 1), 1);
    leat_assert(s->chunks);
    s->removed = t->removed;
    t->removed = (struct table_keys){0};
    t->epoch = closing + 1;
    t->snapshot = s;
    *removed = &s->removed;
    return s;
}

/* Copies the chunk's rows that belong to the snapshot; returns how many. */
static size_t copy_chunk(const struct table_snapshot *s, size_t chunk, unsigned char *out)
{
    const struct table *t = s->table;
    uint32_t newest;
    memcpy(&newest, t->chunk_epochs.base + chunk * sizeof newest, sizeof newest);
    if (newest <= s->since)
        return 0;
    size_t count = 0, bytes = table_stored_bytes(t), head = offsetof(struct table_row, step);
    uint32_t end = (uint32_t)MIN((chunk + 1) * TABLE_CHUNK_ROWS, (size_t)s->rows_used);
    for (uint32_t i = (uint32_t)(chunk * TABLE_CHUNK_ROWS); i < end; i++) {
        struct table_row *row = table_row_at(t, i);
        if (row->key == 0 || row->epoch <= s->since || row->epoch > s->closing)
            continue;
        memcpy(out + count * bytes, row, head);
        memcpy(out + count * bytes + head, table_payload(row), t->options.payload_bytes);
        count++;
    }
    return count;
}

static bool claim(struct table_snapshot *s, size_t chunk)
{
    uint8_t open = CHUNK_OPEN;
    return atomic_compare_exchange_strong_explicit(&s->chunks[chunk], &open, CHUNK_CLAIMED,
                                                   memory_order_acquire, memory_order_acquire);
}

void table_snapshot_protect(struct table *t, uint32_t row)
{
    struct table_snapshot *s = t->snapshot;
    size_t chunk = row / TABLE_CHUNK_ROWS;
    if (chunk >= s->chunks_count ||
        atomic_load_explicit(&s->chunks[chunk], memory_order_acquire) == CHUNK_COPIED)
        return;
    if (!claim(s, chunk)) {
        while (atomic_load_explicit(&s->chunks[chunk], memory_order_acquire) != CHUNK_COPIED)
            sched_yield(); /* the writer copies at most 64 rows */
        return;
    }
    struct copied *copy = malloc(sizeof *copy + TABLE_CHUNK_ROWS * table_stored_bytes(t));
    leat_assert(copy);
    copy->count = copy_chunk(s, chunk, copy->rows);
    pthread_mutex_lock(&s->mutex);
    copy->next = s->first;
    s->first = copy;
    pthread_mutex_unlock(&s->mutex);
    atomic_store_explicit(&s->chunks[chunk], CHUNK_COPIED, memory_order_release);
}

static struct copied *take_copies(struct table_snapshot *s)
{
    pthread_mutex_lock(&s->mutex);
    struct copied *first = s->first;
    s->first = NULL;
    pthread_mutex_unlock(&s->mutex);
    return first;
}

static bool emit_copies(struct table_snapshot *s, table_emit *emit, void *argument)
{
    bool is_ok = true;
    for (struct copied *copy = take_copies(s), *next; copy; copy = next) {
        next = copy->next;
        if (is_ok && copy->count > 0)
            is_ok = emit(argument, copy->rows, copy->count);
        free(copy);
    }
    return is_ok;
}

bool table_snapshot_write(struct table_snapshot *s, table_emit *emit, void *argument)
{
    unsigned char *rows = malloc(TABLE_CHUNK_ROWS * table_stored_bytes(s->table));
    leat_assert(rows);
    bool is_ok = true;
    for (size_t chunk = 0; chunk < s->chunks_count && is_ok; chunk++) {
        if (!claim(s, chunk))
            continue;
        size_t count = copy_chunk(s, chunk, rows);
        atomic_store_explicit(&s->chunks[chunk], CHUNK_COPIED, memory_order_release);
        if (count > 0)
            is_ok = emit(argument, rows, count);
        if (is_ok && chunk % 64 == 0)
            is_ok = emit_copies(s, emit, argument);
    }
    for (size_t chunk = 0; chunk < s->chunks_count && is_ok;
         chunk++) { /* the owner may still be copying one */
        while (atomic_load_explicit(&s->chunks[chunk], memory_order_acquire) != CHUNK_COPIED)
            sched_yield();
    }
    is_ok = is_ok && emit_copies(s, emit, argument);
    free(rows);
    return is_ok;
}

void table_snapshot_end(struct table *t, bool is_published)
{
    struct table_snapshot *s = t->snapshot;
    leat_assert(s);
    t->snapshot = NULL;
    for (struct copied *copy = s->first, *next; copy; copy = next) {
        next = copy->next;
        free(copy);
    }
    if (!is_published && s->removed.count > 0) { /* they belong to the next snapshot */
        size_t count = s->removed.count + t->removed.count;
        s->removed.items = realloc(s->removed.items, count * sizeof *s->removed.items);
        leat_assert(s->removed.items);
        if (t->removed.count > 0)
            memcpy(s->removed.items + s->removed.count, t->removed.items,
                   t->removed.count * sizeof *t->removed.items);
        free(t->removed.items);
        t->removed = (struct table_keys){.items = s->removed.items, .count = count, .capacity = count};
    } else {
        free(s->removed.items);
    }
    pthread_mutex_destroy(&s->mutex);
    free((void *)s->chunks);
    free(s);
}
