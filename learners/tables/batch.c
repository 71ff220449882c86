/*
 * All occurrences of one batch in a table at once; table.h states the rule.
 *
 * Occurrences of existing rows need no order and no counting of duplicates: each touches its row. Only keys
 * without a row are collected in a small hash table, counted and admitted; then rows are made in the order of
 * first records. By then all existing rows of the batch carry its step, so that none of them can be a victim.
 */
#include "learners/tables/cold.h"
#include "learners/tables/inline.h"

#include "core/base.h"
#include "core/mem.h"

#include <stdlib.h>

enum { LOOK_AHEAD = 24, TOUCH_BEHIND = 16, TILE = 512 };

/* Occurrences without a row, and their distinct keys in the order of first records. */
struct table_batch {
    size_t capacity, map_capacity;
    uint32_t *missing; /* [capacity] places in the batch (indices into its keys) */
    uint32_t *indices; /* [capacity] the missing keys' dense indices, for the arrays below */
    uint32_t *map;     /* [map_capacity] hash map of dense indices, plus 1; 0: empty */
    uint64_t *keys, *hashes;
    uint32_t *counts, *seen;
    uint8_t *after;
    struct table_row **rows;
};

static void *room(void *old, size_t count, size_t size)
{
    void *p = mem_realloc(old, count * size);
    return p;
}

static struct table_batch *need(struct table *t, size_t n)
{
    struct table_batch *b = t->batch;
    if (!b)
        b = t->batch = mem_calloc(1, sizeof(*b));
    if (likely(n <= b->capacity))
        return b;
    leat_assert(n < UINT32_MAX / 4);
    b->capacity = MAX(n, 2 * b->capacity);
    b->missing = room(b->missing, b->capacity, sizeof(*b->missing));
    b->indices = room(b->indices, b->capacity, sizeof(*b->indices));
    b->keys = room(b->keys, b->capacity, sizeof(*b->keys));
    b->hashes = room(b->hashes, b->capacity, sizeof(*b->hashes));
    b->counts = room(b->counts, b->capacity, sizeof(*b->counts));
    b->seen = room(b->seen, b->capacity, sizeof(*b->seen));
    b->after = room(b->after, b->capacity, sizeof(*b->after));
    b->rows = room(b->rows, b->capacity, sizeof(void *));
    b->map_capacity = 64;
    while (b->map_capacity < 2 * b->capacity)
        b->map_capacity *= 2;
    b->map = room(b->map, b->map_capacity, sizeof(*b->map));
    return b;
}

void table_batch_free(struct table *t)
{
    struct table_batch *b = t->batch;
    if (b == NULL)
        return;
    free(b->missing);
    free(b->indices);
    free(b->map);
    free(b->keys);
    free(b->hashes);
    free(b->counts);
    free(b->seen);
    free(b->after);
    free(b->rows);
    free(b);
    t->batch = NULL;
}

static struct table_row *find_row(const struct table *t, uint64_t key, uint64_t hash)
{
    const uint64_t *slot = key != 0 ? table_slot_of(t, key, hash) : NULL;
    return slot != NULL ? table_slot_row(t, slot) : NULL;
}

static uint32_t occurrences_of(const struct table_occurrences *in, size_t i)
{
    return in->counts ? in->counts[i] : 1;
}

/* An occurrence of a row that may have been removed since it was found, or may expire now. Returns the row,
 * or NULL if it is gone. */
static struct table_row *touch(struct table *t, struct table_row *row, uint64_t key, uint64_t hash,
                               uint32_t seen, uint32_t step, uint32_t times)
{
    if (row->key != key) /* an earlier occurrence of this key removed the expired row */
        return NULL;
    if (unlikely(table_is_expired(t, row)) && row->step != step) {
        table_remove(t, key, hash);
        t->stats.expired++;
        return NULL;
    }
    table_touch(t, row, seen, step, times);
    return row;
}

/*
 * Finds and touches existing rows, lists the places without one; returns how many it listed. Slots are
 * prefetched LOOK_AHEAD keys ahead (not if the caller passed the rows of its own recent look-up), and rows
 * that lie apart are touched TOUCH_BEHIND keys after their prefetch; inline rows at once, since they move
 * when another row is removed.
 */
static size_t look(struct table *t, const struct table_occurrences *in, uint32_t step, struct table_row **out)
{
    const uint64_t *keys = in->keys;
    size_t n = in->n;
    uint64_t hashes[TILE];
    bool is_inline = t->options.is_inline;
    size_t behind = is_inline ? 0 : TOUCH_BEHIND, missing = 0;
    for (size_t first = 0; first < n; first += TILE) {
        size_t count = MIN(n - first, (size_t)TILE);
        for (size_t i = 0; i < count; i++)
            hashes[i] = table_hash(t, keys[first + i]);
        for (size_t i = 0; i < MIN(count, (size_t)LOOK_AHEAD) && in->rows == NULL; i++)
            table_prefetch(t, hashes[i], is_inline, t->slot_bytes);
        for (size_t i = 0; i < count + behind; i++) {
            if (i + LOOK_AHEAD < count && in->rows == NULL)
                table_prefetch(t, hashes[i + LOOK_AHEAD], is_inline, t->slot_bytes);
            if (i < count) {
                struct table_row *row = in->rows != NULL ? in->rows[first + i] : NULL;
                if (row == NULL || row->key != keys[first + i])
                    row = find_row(t, keys[first + i], hashes[i]);
                out[first + i] = row;
                if (!is_inline)
                    prefetch_line(row);
            }
            if (i < behind)
                continue;
            size_t late = first + i - behind;
            uint64_t key = keys[late];
            if (likely(out[late] != NULL))
                out[late] = touch(t, out[late], key, hashes[i - behind], in->seen[late], step,
                                  occurrences_of(in, late));
            if (unlikely(out[late] == NULL) && key != 0)
                t->batch->missing[missing++] = (uint32_t)late;
        }
    }
    return missing;
}

/* Collects the distinct keys of the missing places, each with its count and its latest occurrence;
 * returns how many. */
static size_t collect(struct table *t, const struct table_occurrences *in, size_t missing)
{
    struct table_batch *b = t->batch;
    size_t size = 64, count = 0;
    while (size < 2 * missing)
        size *= 2;
    memset(b->map, 0, size * sizeof(*b->map));
    for (size_t i = 0; i < missing; i++) {
        uint32_t place = b->missing[i], index;
        uint64_t key = in->keys[place], hash = table_hash(t, key);
        size_t at = hash & (size - 1);
        while ((index = b->map[at]) != 0 && b->keys[index - 1] != key)
            at = (at + 1) & (size - 1);
        if (index == 0) {
            index = b->map[at] = (uint32_t)++count;
            b->keys[index - 1] = key;
            b->hashes[index - 1] = hash;
            b->counts[index - 1] = b->seen[index - 1] = 0;
        }
        b->indices[i] = --index;
        b->counts[index] += occurrences_of(in, place);
        b->seen[index] = MAX(b->seen[index], in->seen[place]);
    }
    return count;
}

/* Makes rows for the admitted ones of `count` new keys, in their order. */
static void admit(struct table *t, size_t count, uint32_t step)
{
    struct table_batch *b = t->batch;
    uint32_t wanted = MIN(t->options.admit_after, (uint32_t)SKETCH_COUNT_MAX);
    if (wanted > 1)
        sketch_add_batch(&t->sketch, b->hashes, b->counts, count, b->after);
    for (size_t i = 0; i < count; i++) {
        b->rows[i] = NULL;
        if (wanted > 1 && b->after[i] < wanted) {
            t->stats.waiting += b->counts[i];
        } else if (t->bucket_counts != NULL && !table_make_room(t, b->hashes[i], step)) {
            t->stats.refused += b->counts[i];
        } else {
            struct table_row *row = table_insert(t, b->keys[i], b->hashes[i]);
            row->count = b->counts[i];
            row->seen = b->seen[i];
            row->step = step;
            b->rows[i] = row;
        }
    }
}

void table_resolve_batch(struct table *t, const struct table_occurrences *in, uint32_t step,
                         struct table_row **out, uint8_t *is_known)
{
    size_t n = in->n;
    struct table_batch *b = need(t, n);
    uint64_t gone = t->stats.expired + t->stats.evicted, made = t->stats.inserted;
    table_warm(t, in->keys, n, step);
    table_begin(t);
    size_t missing = look(t, in, step, out);
    for (size_t i = 0; i < n && is_known; i++)
        is_known[i] = out[i] != NULL;
    if (missing > 0) {
        admit(t, collect(t, in, missing), step);
        for (size_t i = 0; i < missing; i++)
            out[b->missing[i]] = b->rows[b->indices[i]];
    }
    bool has_moved = t->stats.expired + t->stats.evicted != gone || t->stats.inserted != made;
    for (size_t i = 0; i < n && t->options.is_inline && has_moved; i++)
        out[i] = find_row(t, in->keys[i], table_hash(t, in->keys[i]));
}
