#include "state/filter.h"

#include <stdlib.h>

enum { BITS_PER_KEY = 14, BUDGET_SHARE = 128, LINE_BITS = FILTER_LINE_WORDS * 64 };

static const uint64_t keys_least = 128, keys_most = 8 << 20;

void filter_init(struct key_filter *filter, size_t budget_bytes)
{
    *filter = (struct key_filter){0};
    filter->keys_first = MIN(MAX(budget_bytes / BUDGET_SHARE * 8 / BITS_PER_KEY, keys_least), keys_most);
}

void filter_give_up(struct key_filter *filter)
{
    filter_free(filter);
    filter->is_full = true;
}

void filter_free(struct key_filter *filter)
{
    for (uint32_t i = 0; i < filter->count; i++)
        free(filter->segments[i].words);
    *filter = (struct key_filter){0};
}

static struct filter_segment *add_segment(struct key_filter *filter)
{
    if (filter->count == FILTER_SEGMENTS_MAX) {
        filter->is_full = true;
        return NULL;
    }
    uint64_t keys =
        filter->count == 0 ? filter->keys_first : filter->segments[filter->count - 1].keys_max * 2;
    keys = MIN(keys, keys_most);
    struct filter_segment *segment = &filter->segments[filter->count++];
    *segment = (struct filter_segment){.keys_max = keys, .expire_us = TIME_MIN};
    segment->lines = (uint32_t)((keys * BITS_PER_KEY + LINE_BITS - 1) / LINE_BITS);
    size_t bytes = (size_t)segment->lines * FILTER_LINE_WORDS * sizeof(uint64_t);
    void *words = NULL;
    leat_assert(posix_memalign(&words, FILTER_LINE_WORDS * sizeof(uint64_t), bytes) == 0);
    memset(words, 0, bytes);
    segment->words = words;
    filter->bytes += bytes;
    return segment;
}

void filter_add(struct key_filter *filter, uint64_t hash, int64_t expire_us)
{
    if (filter->is_full)
        return;
    for (uint32_t i = 0; i < filter->count; i++) {
        struct filter_segment *segment = &filter->segments[i];
        if (filter_line_has(filter_line(segment, hash), hash)) {
            segment->expire_us = MAX(segment->expire_us, expire_us);
            return;
        }
    }
    struct filter_segment *segment = filter->count == 0 ? NULL : &filter->segments[filter->count - 1];
    if (segment == NULL || segment->keys == segment->keys_max)
        segment = add_segment(filter);
    if (segment == NULL)
        return;
    uint64_t *line = filter_line(segment, hash), bits = hash * UINT64_C(0x9e3779b97f4a7c15);
    for (int i = 0; i < FILTER_LINE_WORDS; i++)
        line[i] |= UINT64_C(1) << (bits >> (6 * i) & 63);
    segment->keys++;
    segment->expire_us = MAX(segment->expire_us, expire_us);
}

void filter_expire(struct key_filter *filter, int64_t watermark)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < filter->count; i++) {
        struct filter_segment *segment = &filter->segments[i];
        if (segment->expire_us >= watermark) {
            filter->segments[kept++] = *segment;
            continue;
        }
        filter->bytes -= (size_t)segment->lines * FILTER_LINE_WORDS * sizeof(uint64_t);
        free(segment->words);
    }
    filter->count = kept;
}
