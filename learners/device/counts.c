/* Event time and sketches of sightings in a device_table; table.h explains the rules. */
#include "learners/device/internal.h"

#include <stdio.h>

_Static_assert(sizeof(struct gpu_sketch_block) == sizeof(struct sketch_block) &&
                   offsetof(struct gpu_sketch_block, counts) == offsetof(struct sketch_block, counts) &&
                   (int)GPU_SKETCH_BLOCK == (int)SKETCH_BLOCK && (int)GPU_SKETCH_DEPTH == (int)SKETCH_DEPTH,
               "a GPU's blocks are those of checkpoints");

bool device_counts_init(struct device_table *t, struct gpu_error *error)
{
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < t->options.tables; i++)
        blocks += gpu_sketch_blocks(&t->options.table[i]);
    if (blocks == 0)
        return true;
    t->blocks = t->api->alloc_pinned(t->gpu, DEVICE_SKETCH_PIECE * sizeof(*t->blocks), error);
    t->blocks_count =
        t->blocks != NULL ? t->api->alloc_pinned(t->gpu, sizeof(*t->blocks_count), error) : NULL;
    return t->blocks_count != NULL;
}

/* --- Event time --- */

void device_table_expire(struct device_table *t, uint32_t table, uint32_t expired_before)
{
    t->expired_before[table] = MAX(t->expired_before[table], expired_before);
    t->api->tables->expire(t->tables, t->stream, table, expired_before);
}

/* The same arithmetic as in table_set_watermark. */
static void halve_until(struct device_table *t, uint32_t table, uint32_t epoch)
{
    int64_t after = t->expire_after_us, watermark_us = t->watermark_us, *at = &t->halved_at_us[table];
    if (*at == INT64_MIN)
        *at = watermark_us;
    for (int i = 0; i < 8 && time_add(*at, after) <= watermark_us; i++) {
        t->api->tables->halve_sketch(t->tables, t->stream, table, epoch);
        *at = time_add(*at, after);
    }
    /* counts have at most eight bits, so all are 0 now: skip the other halvings */
    if (time_add(*at, after) <= watermark_us)
        *at += (watermark_us - *at) / after * after;
}

void device_table_set_watermark(struct device_table *t, int64_t watermark_us, uint32_t epoch)
{
    int64_t after = t->expire_after_us;
    if (watermark_us <= t->watermark_us || after <= 0)
        return;
    t->watermark_us = watermark_us;
    if (watermark_us == TIME_MAX) /* the end of input expires nothing */
        return;
    int64_t seconds = time_add(watermark_us, -after) / US_PER_SECOND;
    for (uint32_t i = 0; i < t->options.tables; i++) {
        if (t->options.table[i].admit_after > 1)
            halve_until(t, i, epoch);
        if (seconds >= 0) /* rows with seen <= seconds have expired */
            device_table_expire(t, i, (uint32_t)MIN(seconds + 1, (int64_t)UINT32_MAX));
    }
}

struct device_table_times device_table_times(const struct device_table *t, uint32_t table)
{
    return (struct device_table_times){t->halved_at_us[table], t->watermark_us, t->expired_before[table]};
}

void device_table_set_times(struct device_table *t, uint32_t table, const struct device_table_times *times)
{
    t->halved_at_us[table] = times->halved_at_us;
    t->watermark_us = times->watermark_us;
    device_table_expire(t, table, times->expired_before);
}

/* --- Sketches --- */

bool device_table_restore_counts(struct device_table *t, uint32_t table, const struct sketch_block *blocks,
                                 size_t count, struct gpu_error *error)
{
    uint64_t all = gpu_sketch_blocks(&t->options.table[table]);
    for (size_t i = 0; i < count; i++) {
        if (blocks[i].number < all)
            continue;
        *error = (struct gpu_error){.failure = GPU_UNSUPPORTED};
        (void)snprintf(
            error->text, sizeof(error->text),
            "A checkpoint has block %llu of the sightings of table %u; its sketch has %llu blocks.",
            (unsigned long long)blocks[i].number, table, (unsigned long long)all);
        return false;
    }
    for (size_t from = 0; from < count; from += DEVICE_SKETCH_PIECE) {
        uint32_t n = (uint32_t)MIN(count - from, (size_t)DEVICE_SKETCH_PIECE);
        memcpy(t->blocks, blocks + from, n * sizeof(*t->blocks));
        t->api->tables->import_sketch(t->tables, t->stream, table, t->blocks, n);
        if (!t->api->wait(t->stream, error))
            return false;
    }
    return true;
}
