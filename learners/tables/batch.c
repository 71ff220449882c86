/*
 * All occurrences of one batch in a table at once; table.h states the rule.
 *
 * First each existing row is touched. Only then are the other keys counted and admitted, and rows made in their
 * order: by then all existing rows of the batch carry its step, so that none of them can be a victim.
 */
#include "learners/tables/cold.h"
#include "learners/tables/inline.h"

#include "core/base.h"
#include "core/mem.h"

#include <stdlib.h>

enum { LOOK_AHEAD = 24, TOUCH_BEHIND = 16, TILE = 512 };

/* Scratch for the keys without a row, [capacity] each. */
struct table_batch {
    size_t capacity;
    uint32_t *missing; /* the keys' places in the batch */
    uint64_t *hashes;
    uint32_t *counts; /* occurrences */
    uint8_t *after;   /* estimates of the sketch */
};

static void need(struct table *t, size_t n)
{
    struct table_batch *b = t->batch;
    if (!b)
        b = t->batch = mem_calloc(1, sizeof(*b));
    if (likely(n <= b->capacity))
        return;
    leat_assert(n < UINT32_MAX / 4);
    b->capacity = MAX(n, 2 * b->capacity);
    b->missing = mem_realloc(b->missing, b->capacity * sizeof(*b->missing));
    b->hashes = mem_realloc(b->hashes, b->capacity * sizeof(*b->hashes));
    b->counts = mem_realloc(b->counts, b->capacity * sizeof(*b->counts));
    b->after = mem_realloc(b->after, b->capacity * sizeof(*b->after));
}

void table_batch_free(struct table *t)
{
    struct table_batch *b = t->batch;
    if (b == NULL)
        return;
    free(b->missing);
    free(b->hashes);
    free(b->counts);
    free(b->after);
    free(b);
    t->batch = NULL;
}

static struct table_row *find_row(const struct table *t, uint64_t key, uint64_t hash)
{
    const uint64_t *slot = table_slot_of(t, key, hash);
    return slot != NULL ? table_slot_row(t, slot) : NULL;
}

/* Occurrences of a row that may expire now. Returns the row, or NULL if it is gone. */
static struct table_row *touch(struct table *t, struct table_row *row, uint64_t key, uint64_t hash,
                               uint32_t seen, uint32_t step, uint32_t times)
{
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
                out[late] =
                    touch(t, out[late], key, hashes[i - behind], in->seen[late], step, in->counts[late]);
            if (unlikely(out[late] == NULL))
                t->batch->missing[missing++] = (uint32_t)late;
        }
    }
    return missing;
}

/* Makes rows for the admitted ones of the keys without a row, in their order. */
static void admit(struct table *t, const struct table_occurrences *in, size_t missing, uint32_t step,
                  struct table_row **out)
{
    struct table_batch *b = t->batch;
    uint32_t wanted = MIN(t->options.admit_after, (uint32_t)SKETCH_COUNT_MAX);
    for (size_t i = 0; i < missing; i++) {
        b->hashes[i] = table_hash(t, in->keys[b->missing[i]]);
        b->counts[i] = in->counts[b->missing[i]];
    }
    if (wanted > 1)
        sketch_add_batch(&t->sketch, b->hashes, b->counts, missing, b->after);
    for (size_t i = 0; i < missing; i++) {
        uint32_t place = b->missing[i];
        if (wanted > 1 && b->after[i] < wanted) {
            t->stats.waiting += b->counts[i];
        } else if (t->bucket_counts != NULL && !table_make_room(t, b->hashes[i], step)) {
            t->stats.refused += b->counts[i];
        } else {
            struct table_row *row = table_insert(t, in->keys[place], b->hashes[i]);
            row->count = b->counts[i];
            row->seen = in->seen[place];
            row->step = step;
            out[place] = row;
        }
    }
}

void table_resolve_batch(struct table *t, const struct table_occurrences *in, uint32_t step,
                         struct table_row **out, uint8_t *is_known)
{
    size_t n = in->n;
    uint64_t gone = t->stats.expired + t->stats.evicted, made = t->stats.inserted;
    need(t, n);
    table_warm(t, in->keys, n, step);
    table_begin(t);
    size_t missing = look(t, in, step, out);
    for (size_t i = 0; i < n; i++)
        is_known[i] = out[i] != NULL;
    if (missing > 0)
        admit(t, in, missing, step, out);
    bool has_moved = t->stats.expired + t->stats.evicted != gone || t->stats.inserted != made;
    for (size_t i = 0; i < n && t->options.is_inline && has_moved; i++)
        out[i] = find_row(t, in->keys[i], table_hash(t, in->keys[i]));
}
