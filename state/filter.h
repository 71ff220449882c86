/* Inside state/: a filter of those keys of a table that may be in the database, so that the database is not
 * searched for most keys that it never had. Not safe for threads.
 *
 * Blocked Bloom filters (Putze, Sanders, Singler 2007): a key's bits lie in one cache line. Segments of
 * doubling size take keys until they are full; each knows the latest expiry of its keys, and is freed when
 * the watermark has passed that. In each segment about one key in 500 passes although it was not added. */
#ifndef LEAT_STATE_FILTER_H
#define LEAT_STATE_FILTER_H

#include "core/base.h"

enum { FILTER_SEGMENTS_MAX = 24, FILTER_LINE_WORDS = 8 };

struct filter_segment {
    uint64_t *words;
    uint32_t lines;
    uint64_t keys, keys_max;
    int64_t expire_us; /* latest expiry of its keys */
};

struct key_filter {
    struct filter_segment segments[FILTER_SEGMENTS_MAX];
    uint32_t count;
    uint64_t keys_first; /* room of the first segment */
    bool is_full;        /* there are no more segments: every key passes */
    size_t bytes;
};

/* budget_bytes: of the table; it sets the size of the first segment. */
void filter_init(struct key_filter *filter, size_t budget_bytes);
void filter_free(struct key_filter *filter);
/* Frees the filter's memory, for entries to use: from now on every key passes. */
void filter_give_up(struct key_filter *filter);
void filter_add(struct key_filter *filter, uint64_t hash, int64_t expire_us);
/* Frees segments whose keys are all dead. */
void filter_expire(struct key_filter *filter, int64_t watermark);

/* The line of a key. The upper bits of the hash are spread first: they are the key group, and a lane has a
 * range of key groups. */
static inline uint64_t *filter_line(const struct filter_segment *segment, uint64_t hash)
{
    uint64_t spread = (hash * UINT64_C(0xff51afd7ed558ccd)) >> 32;
    return segment->words + ((spread * segment->lines) >> 32) * FILTER_LINE_WORDS;
}

/* Whether the line has the key's bits, one in each word. */
static inline bool filter_line_has(const uint64_t *line, uint64_t hash)
{
    uint64_t bits = hash * UINT64_C(0x9e3779b97f4a7c15), all = 1;
    for (int i = 0; i < FILTER_LINE_WORDS; i++)
        all &= line[i] >> (bits >> (6 * i) & 63);
    return (all & 1) != 0;
}

static inline bool filter_has(const struct key_filter *filter, uint64_t hash)
{
    for (uint32_t i = 0; i < filter->count; i++)
        if (filter_line_has(filter_line(&filter->segments[i], hash), hash))
            return true;
    return filter->is_full;
}

static inline void filter_prefetch(const struct key_filter *filter, uint64_t hash)
{
    for (uint32_t i = 0; i < filter->count; i++)
        prefetch_line(filter_line(&filter->segments[i], hash));
}

#endif
