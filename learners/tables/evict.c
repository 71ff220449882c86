/* Which rows are removed: expired ones by the watermark, and the victim of a full logical bucket. */
#include "learners/tables/inline.h"

/* rows examined per watermark, so that expired rows do not hold memory for long */
enum { SWEEP_ROWS = 4096 };

void table_sweep(struct table *t, uint32_t rows, uint32_t step_in_progress)
{
    for (uint32_t i = 0; i < rows && t->rows_used > 0; i++) {
        if (t->sweep_at >= t->rows_used)
            t->sweep_at = 0;
        const struct table_row *row = table_row_at(t, t->sweep_at);
        if (row->key != 0 && table_is_expired(t, row) &&
            (step_in_progress == TABLE_STEP_NONE || row->step != step_in_progress)) {
            table_remove(t, row->key, table_hash(t, row->key));
            t->stats.expired++;
            if (row->key != 0) /* another inline row moved to this place */
                continue;
        }
        t->sweep_at++;
    }
}

uint32_t table_expiry(int64_t watermark_us, int64_t expire_after_us)
{
    int64_t seconds = time_add(watermark_us, -expire_after_us) / US_PER_SECOND;
    return seconds < 0 || watermark_us == TIME_MAX ? 0 : (uint32_t)MIN(seconds + 1, (int64_t)UINT32_MAX);
}

unsigned table_halvings(int64_t *halved_at_us, int64_t watermark_us, int64_t expire_after_us)
{
    enum { COUNT_BITS = 8 };
    unsigned count = 0;
    if (watermark_us == TIME_MAX)
        return 0;
    if (*halved_at_us == INT64_MIN)
        *halved_at_us = watermark_us;
    for (; count < COUNT_BITS && time_add(*halved_at_us, expire_after_us) <= watermark_us; count++)
        *halved_at_us = time_add(*halved_at_us, expire_after_us);
    if (time_add(*halved_at_us, expire_after_us) <= watermark_us) /* all counts are 0: no more halvings */
        *halved_at_us += (watermark_us - *halved_at_us) / expire_after_us * expire_after_us;
    return count;
}

void table_set_watermark(struct table *t, int64_t watermark_us, uint32_t step_in_progress)
{
    int64_t after = t->options.expire_after_us;
    if (watermark_us <= t->watermark_us || after <= 0)
        return;
    t->watermark_us = watermark_us;
    uint32_t expired_before = table_expiry(watermark_us, after);
    if (expired_before > 0)
        t->expired_before = expired_before;
    if (t->options.admit_after > 1)
        for (unsigned n = table_halvings(&t->halved_at_us, watermark_us, after); n > 0; n--)
            sketch_halve(&t->sketch);
    if (t->expired_before > 0)
        table_sweep(t, SWEEP_ROWS, step_in_progress);
}

/* Whether row a is a victim before row b. */
static bool goes_before(const struct table_row *a, const struct table_row *b)
{
    if (a->count != b->count)
        return a->count < b->count;
    if (a->seen != b->seen)
        return a->seen < b->seen;
    return a->key < b->key;
}

/* What a step may remove from a bucket: the keys of its expired rows, as many as there is room for, and its
 * victim (NULL: none). */
struct removable {
    struct table_removable counts;
    uint64_t expired[TABLE_BUCKET_ROWS];
    const struct table_row *victim;
};

/* A logical bucket is the range of hashes [b * 2^64 / buckets, (b + 1) * 2^64 / buckets): the pages of that
 * range of the directory. */
static void find_removable(const struct table *t, uint64_t bucket, uint32_t step, struct removable *found)
{
    uint64_t first = (uint64_t)((((__uint128_t)bucket << 64) + t->buckets - 1) / t->buckets);
    uint64_t last = (uint64_t)((((__uint128_t)(bucket + 1) << 64) - 1) / t->buckets);
    size_t begin = (size_t)(first >> (64 - t->depth));
    size_t end = (size_t)(last >> (64 - t->depth));
    found->counts = (struct table_removable){0};
    found->victim = NULL;
    for (size_t d = begin; d <= end; d++) {
        if (d > begin && t->directory[d] == t->directory[d - 1])
            continue;
        for (size_t i = 0; i < TABLE_PAGE_SLOTS; i++) {
            const uint64_t *slot = table_slot_at(t, t->directory[d], i);
            if (*slot == 0 || table_bucket(t, table_hash(t, *slot)) != bucket)
                continue;
            const struct table_row *row = table_slot_row(t, slot);
            if (row->step == step)
                continue;
            if (table_is_expired(t, row)) {
                if (found->counts.expired < ARRAY_COUNT(found->expired))
                    found->expired[found->counts.expired] = *slot;
                found->counts.expired++;
                continue;
            }
            found->counts.others++;
            if (found->victim == NULL || goes_before(row, found->victim))
                found->victim = row;
        }
    }
}

struct table_removable table_removable(const struct table *t, uint64_t bucket, uint32_t step)
{
    struct removable found;
    find_removable(t, bucket, step, &found);
    return found.counts;
}

/* Expired rows are removed first, so that the result does not depend on when the sweep came by. Returns false
 * if the bucket is full and all its rows are spared. */
bool table_make_room(struct table *t, uint64_t hash, uint32_t step)
{
    uint64_t bucket = table_bucket(t, hash);
    if (t->bucket_counts[bucket] < table_bucket_rows(t, bucket))
        return true;
    struct removable found;
    uint32_t left;
    bool has_expired = false;
    do {
        find_removable(t, bucket, step, &found);
        left = found.counts.expired;
        for (uint32_t i = 0; i < found.counts.expired && i < ARRAY_COUNT(found.expired); i++, left--)
            table_remove(t, found.expired[i], table_hash(t, found.expired[i]));
        t->stats.expired += found.counts.expired - left;
        has_expired |= found.counts.expired > 0;
    } while (left > 0);
    if (has_expired)
        return true;
    if (found.victim == NULL)
        return false;
    table_remove(t, found.victim->key, table_hash(t, found.victim->key));
    t->stats.evicted++;
    return true;
}
