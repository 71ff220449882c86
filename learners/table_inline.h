/*
 * The hot path of table_resolve, for loops that look up while they learn (linear_part.c): ask for a key's
 * slot, later find its row and ask for that, later write its header. Between table_begin and the next one,
 * pointers stay valid.
 */
#ifndef LEARNERS_TABLE_INLINE_H
#define LEARNERS_TABLE_INLINE_H

#include "core/base.h"
#include "kernels/num.h"
#include "learners/table.h"

/* Rows that went before this call may be used again. */
void table_begin(struct table *table);
void table_mark_changed(struct table *table, struct table_row *row);
struct table_row *table_sight_slow(struct table *table, uint64_t key, uint64_t hash, uint32_t step,
                                   bool learns, bool is_counted);

/* Headers decide who goes: they must be written before the next key is looked up. */
static inline bool table_is_eager(const struct table *t)
{
    return t->bucket_counts != NULL || t->options.expire_after_us > 0;
}

static inline uint64_t table_hash(const struct table *t, uint64_t key)
{
    return num_mix(key ^ t->options.seed);
}

static inline uint32_t table_page_of(const struct table *t, uint64_t hash)
{
    return t->directory[hash >> (64 - t->depth)];
}

static inline void table_prefetch(const struct table *t, uint64_t hash)
{
    prefetch_line(&table_page_at(t, table_page_of(t, hash))->slots[hash % TABLE_PAGE_SLOTS]);
}

static inline struct table_slot *table_slot_of(const struct table *t, uint64_t key, uint64_t hash)
{
    struct table_page *page = table_page_at(t, table_page_of(t, hash));
    for (size_t i = hash % TABLE_PAGE_SLOTS;; i = (i + 1) % TABLE_PAGE_SLOTS) {
        struct table_slot *slot = &page->slots[i];
        if (likely(slot->key == key))
            return slot;
        if (slot->key == 0)
            return NULL;
    }
}

/* The row of a sighted key (not 0), made if it is admitted; its header is not touched if it was there. */
static inline struct table_row *table_sight(struct table *t, uint64_t key, uint64_t hash, uint32_t step,
                                            bool learns, bool is_counted)
{
    const struct table_slot *slot = table_slot_of(t, key, hash);
    if (likely(slot != NULL)) {
        struct table_row *row = table_row_at(t, slot->row);
        if (likely(t->expired_before == 0) || !table_is_expired(t, row) || row->step == step)
            return row;
    }
    return table_sight_slow(t, key, hash, step, learns, is_counted);
}

static inline void table_touch(struct table *t, struct table_row *row, uint32_t seen, uint32_t step)
{
    if (unlikely(row->epoch != t->epoch))
        table_mark_changed(t, row);
    row->count += row->count != UINT32_MAX;
    row->seen = MAX(row->seen, seen);
    row->step = step;
}

#endif
