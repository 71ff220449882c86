/*
 * The hot path of table_resolve, for loops that look keys up while they learn (linear_plain.c): prefetch a
 * key's slot, later find and prefetch its row, later write the row's header. Pointers stay valid from one
 * table_begin to the next.
 */
#ifndef LEAT_LEARNERS_TABLES_INLINE_H
#define LEAT_LEARNERS_TABLES_INLINE_H

#include "core/base.h"
#include "kernels/num.h"
#include "learners/tables/table.h"

void table_mark_changed(struct table *table, struct table_row *row);
/* Splits pages until that of the hash has room; false: pages would be deeper than depth_max bits of hashes. */
bool table_make_slot(struct table *table, uint64_t hash, unsigned depth_max);
/* Adds a row for a key that has none, marked as changed, header zeroed, payload not set. */
struct table_row *table_add_row(struct table *table, uint64_t key, uint64_t hash);
struct table_row *table_find_or_admit_slow(struct table *table, uint64_t key, uint64_t hash, uint32_t step,
                                           bool learns);

/* Whether rows' headers decide which rows are removed: then they must be written before the next look-up. */
static inline bool table_is_eager(const struct table *t)
{
    return t->bucket_counts != NULL || t->options.expire_after_us > 0;
}

static inline uint64_t table_hash(const struct table *t, uint64_t key)
{
    return num_mix(key ^ t->options.seed);
}

static inline uint32_t table_shard(const struct table *t, uint64_t key)
{
    return shard_of(table_hash(t, key), t->options.shards, t->buckets);
}

static inline uint32_t table_page_of(const struct table *t, uint64_t hash)
{
    return t->directory[hash >> (64 - t->depth)];
}

/*
 * The slot where a key's probe sequence begins. Inline rows of 32 bytes share a line with one neighbour:
 * sequences begin at even slots, so that both slots of a line are probed before the next line.
 */
static inline size_t table_home(bool is_inline, uint64_t hash)
{
    return hash % TABLE_PAGE_SLOTS & ~(size_t)is_inline;
}

static inline unsigned char *table_page(const struct table *t, uint64_t hash, size_t slot_bytes)
{
    return t->slots + (size_t)table_page_of(t, hash) * (TABLE_PAGE_SLOTS * slot_bytes);
}

/* Copies of the table's members from which an inline table's home slots are computed. The compiler can keep
 * them in registers in a loop that stores to memory. */
struct table_place {
    const uint32_t *directory;
    const unsigned char *slots;
    unsigned shift;
};

static inline struct table_place table_place_of(const struct table *t)
{
    return (struct table_place){t->directory, t->slots, 64 - t->depth};
}

static inline const unsigned char *table_place_home(const struct table_place *place, uint64_t hash,
                                                    size_t slot_bytes)
{
    return place->slots +
           ((size_t)place->directory[hash >> place->shift] * TABLE_PAGE_SLOTS + table_home(true, hash)) *
               slot_bytes;
}

/* The slot of a key, or NULL. is_inline and slot_bytes must be the table's; callers that know them
 * pass constants. */
static inline uint64_t *table_probe(const struct table *t, uint64_t key, uint64_t hash, bool is_inline,
                                    size_t slot_bytes)
{
    unsigned char *page = table_page(t, hash, slot_bytes);
    for (size_t i = table_home(is_inline, hash);; i = (i + 1) % TABLE_PAGE_SLOTS) {
        uint64_t *slot = (uint64_t *)(void *)(page + i * slot_bytes);
        if (likely(*slot == key))
            return slot;
        if (*slot == 0)
            return NULL;
    }
}

static inline void table_prefetch(const struct table *t, uint64_t hash, bool is_inline, size_t slot_bytes)
{
    prefetch_line(table_page(t, hash, slot_bytes) + table_home(is_inline, hash) * slot_bytes);
}

static inline uint64_t *table_slot_of(const struct table *t, uint64_t key, uint64_t hash)
{
    return table_probe(t, key, hash, t->options.is_inline, t->slot_bytes);
}

/*
 * The row of a key (not 0) that occurs, made if the key is admitted; NULL if not. An existing row's header is
 * not written. is_inline and stride must be the table's; callers that know them pass constants.
 */
static inline struct table_row *table_find_or_admit(struct table *t, uint64_t key, uint64_t hash,
                                                    uint32_t step, bool learns, bool is_inline, size_t stride)
{
    const uint64_t *slot =
        table_probe(t, key, hash, is_inline, is_inline ? stride : sizeof(struct table_slot));
    if (likely(slot != NULL)) {
        struct table_row *row = is_inline
                                    ? (struct table_row *)(void *)slot
                                    : table_row_at(t, ((const struct table_slot *)(const void *)slot)->row);
        if (likely(t->expired_before == 0) || !table_is_expired(t, row) || row->step == step)
            return row;
    }
    return table_find_or_admit_slow(t, key, hash, step, learns);
}

/* Raises a row's `seen` without an occurrence, so that the row does not expire. */
static inline void table_refresh(struct table *t, struct table_row *row, uint32_t seen)
{
    if (seen <= row->seen)
        return;
    if (row->epoch != t->epoch)
        table_mark_changed(t, row);
    row->seen = seen;
}

/* `times` more occurrences, the latest at `seen`, of a row that has already changed in this epoch. */
static inline void table_touch_again(struct table_row *row, uint32_t seen, uint32_t step, uint32_t times)
{
    row->count += MIN(times, UINT32_MAX - row->count);
    row->seen = MAX(row->seen, seen);
    row->step = step;
}

/* `times` occurrences, the latest at `seen` (event time in seconds); marks the row as changed. */
static inline void table_touch(struct table *t, struct table_row *row, uint32_t seen, uint32_t step,
                               uint32_t times)
{
    if (unlikely(row->epoch != t->epoch))
        table_mark_changed(t, row);
    table_touch_again(row, seen, step, times);
}

#endif
