#include "connectors/kafka/remake.h"

#include "core/mem.h"

#include <stdlib.h>

uint64_t remake_next(const struct remake *remake)
{
    return remake->count == 0 ? 0 : remake->parts[remake->count - 1].next;
}

static bool is_before(const struct progress_part *part, uint64_t first, uint64_t from)
{
    return part->first < first || (part->first == first && part->from < from);
}

const char *remake_begin(struct remake *remake, const struct progress *progress, uint64_t next,
                         const struct remake_saved *saved)
{
    bool has_saved = saved != NULL && saved->first != UINT64_MAX;
    uint64_t first = has_saved ? saved->first : next, from = has_saved ? saved->from : 0;
    uint32_t begin = 0;
    remake_free(remake);
    while (begin < progress->count && is_before(progress_at(progress, begin), first, from))
        begin++;
    if (has_saved && begin == progress->count)
        return "the notes of the rows being compared are missing";
    const struct progress_part *before = begin == 0 ? NULL : progress_at(progress, begin - 1);
    if (!has_saved && before != NULL && before->next > next && before->to == before->total)
        return "a note of sent rows begins before the checkpoint and ends behind it";
    remake->count = progress->count - begin;
    if (remake->count == 0)
        return NULL;
    remake->parts = mem_alloc(remake->count * sizeof(*remake->parts));
    memcpy(remake->parts, progress_at(progress, begin), remake->count * sizeof(*remake->parts));
    remake->is_on = true;
    XXH3_128bits_reset(&remake->state);
    if (!has_saved || remake->parts[0].first != first)
        return NULL; /* no part was saved, or it got a tombstone meanwhile */
    remake->seen = saved->seen;
    if (remake->parts[0].from == from)
        remake->state = saved->state;
    return remake->seen <= remake->parts[0].to ? NULL : "its notes do not fit the checkpoint";
}

/* The part parts[at] is complete; moves to the next one. micro_batch, index: micro-batch and index of the next
 * record. Returns false if the part differs from what was sent. */
static bool end_part(struct remake *remake, uint64_t micro_batch, uint64_t index)
{
    uint8_t digest[16];
    const struct progress_part *part = &remake->parts[remake->at++];
    record_digest_end(&remake->state, digest);
    XXH3_128bits_reset(&remake->state);
    if (remake->at < remake->count && remake->parts[remake->at].first != part->first)
        remake->seen = remake->parts[remake->at].first == micro_batch ? index : 0;
    return memcmp(digest, part->digest, sizeof(digest)) == 0;
}

static bool is_complete(const struct remake *remake)
{
    return remake->at < remake->count && remake->seen == remake->parts[remake->at].to;
}

enum remake_verdict remake_record(struct remake *remake, uint64_t micro_batch, uint64_t index,
                                  const struct kafka_record *record)
{
    if (is_complete(remake) && !end_part(remake, micro_batch, index))
        return REMAKE_DIFFERS;
    if (remake->at == remake->count) {
        const struct progress_part *last = &remake->parts[remake->count - 1];
        remake->is_on = false;
        return last->to < last->total || micro_batch >= last->next ? REMAKE_NEW : REMAKE_DIFFERS;
    }
    const struct progress_part *part = &remake->parts[remake->at];
    bool is_first = remake->at == 0 && remake->seen <= part->from;
    if (micro_batch < part->first && is_first) {
        remake->passed++; /* its part is so old that it got a tombstone */
        return REMAKE_OUT;
    }
    if (micro_batch < part->first || micro_batch >= part->next || (remake->seen < part->from && !is_first))
        return REMAKE_DIFFERS;
    if (remake->seen++ < part->from)
        remake->passed++;
    else
        record_digest(&remake->state, record);
    return REMAKE_OUT;
}

bool remake_barrier(struct remake *remake, uint64_t next)
{
    while (remake->at < remake->count && remake->parts[remake->at].next <= next) {
        const struct progress_part *part = &remake->parts[remake->at];
        bool has_rest = remake->at + 1 == remake->count && part->to < part->total;
        if (!is_complete(remake) || !end_part(remake, next, 0) || has_rest)
            return false;
    }
    remake->is_on = remake->at < remake->count;
    return true;
}

void remake_save(const struct remake *remake, struct remake_saved *saved)
{
    *saved = (struct remake_saved){.first = UINT64_MAX};
    if (remake->at == remake->count || (remake->at == 0 && remake->seen == 0))
        return;
    *saved = (struct remake_saved){.first = remake->parts[remake->at].first,
                                   .from = remake->parts[remake->at].from,
                                   .seen = remake->seen,
                                   .state = remake->state};
}

bool remake_load(struct remake_saved *saved, struct str data)
{
    if (data.length != sizeof(*saved))
        return false;
    memcpy(saved, data.data, sizeof(*saved));
    /* The saved pointer to the library's secret is from another process; replace it by this one's. */
    XXH3_state_t fresh;
    XXH3_128bits_reset(&fresh);
    saved->state.extSecret = fresh.extSecret;
    return saved->first == UINT64_MAX ||
           (saved->state.bufferedSize <= sizeof(saved->state.buffer) &&
            saved->state.secretLimit == fresh.secretLimit &&
            saved->state.nbStripesPerBlock == fresh.nbStripesPerBlock &&
            saved->state.nbStripesSoFar <= saved->state.nbStripesPerBlock && saved->state.seed == fresh.seed);
}

uint64_t remake_floor(const struct remake *remake)
{
    if (remake->count == 0)
        return 0;
    const struct progress_part *last = &remake->parts[remake->count - 1];
    return last->to < last->total ? last->first : last->next;
}

void remake_free(struct remake *remake)
{
    free(remake->parts);
    *remake = (struct remake){0};
}
