/*
 * The saved state of ranks: a head; each scope's sums; the values of metrics_by; then for each number the states of
 * coverage. Bytes come from a checkpoint and may be any: what cannot come from a run is refused.
 */
#define XXH_INLINE_ALL
#include "learners/retrieval/internal.h"

#include "core/utf8.h"
#include "learners/items/numbers.h"

#include <math.h>
#include <xxhash.h>

static const uint32_t SAVED_MAGIC = 0x314b4e52; /* "RNK1" */
#define COUNT_MAX (UINT64_C(1) << 53)

struct saved_head {
    uint32_t magic, values;
    uint64_t options; /* hash of the options that decide what is counted */
    uint64_t slice_events, emitted;
    int64_t last_us;
    uint32_t slice, kept_bytes; /* kept_bytes: of the values, with their texts */
};

struct saved_value {
    uint64_t hash;
    int64_t integer;
    uint32_t text_bytes, is_null;
};

static uint64_t hash_options(const struct ranks *r)
{
    const struct ints *at = &r->config.at;
    uint64_t hash = XXH3_64bits_withSeed(at->items, at->count * sizeof(*at->items), at->count);
    if (r->kept == NULL)
        return hash;
    return XXH3_64bits_withSeed(r->config.by.name.data, r->config.by.name.length,
                                hash + 1 + (uint64_t)r->config.by_type.tag);
}

/* --- Saving --- */

static void save_values(const struct ranks *r, struct byte_buffer *out)
{
    for (uint32_t i = 0; i < r->values; i++) {
        const struct ranks_kept *kept = &r->kept[i];
        struct saved_value saved = {r->hashes[i], kept->integer, kept->text_bytes, kept->is_null};
        buffer_append(out, &saved, sizeof(saved));
        buffer_append(out, kept->text, kept->text_bytes);
    }
}

void ranks_save(const struct ranks *r, struct byte_buffer *out)
{
    struct saved_head head = {.magic = SAVED_MAGIC,
                              .values = r->values,
                              .options = hash_options(r),
                              .slice_events = r->slice_events,
                              .emitted = r->emitted,
                              .last_us = r->last_us,
                              .slice = r->slice};
    for (uint32_t i = 0; i < r->values; i++)
        head.kept_bytes += (uint32_t)sizeof(struct saved_value) + r->kept[i].text_bytes;
    buffer_append(out, &head, sizeof(head));
    buffer_append(out, r->scopes, ranks_scopes(r) * sizeof(*r->scopes));
    save_values(r, out);
    if (r->covered_numbers > 0)
        buffer_append(out, r->covered, r->covered_numbers * r->config.at.count);
}

/* --- Loading --- */

/* Whether events can have these sums; most: as many events at most. */
static bool are_possible(const struct ranks *r, const struct ranks_sums *s, uint64_t most)
{
    if (s->count > most || s->misses > s->count || s->listed > s->count)
        return false;
    uint64_t before = 0;
    for (uint32_t k = 0; k < RANKS_AT_MAX; k++) {
        bool is_used = k < r->config.at.count;
        double hits = (double)s->hits[k] * (1.0 + 1e-9); /* sums are rounded */
        if (is_used ? s->hits[k] < before || s->hits[k] > s->count - s->misses : s->hits[k] != 0)
            return false;
        if (!(s->gain[k] >= 0.0 && s->gain[k] <= hits && s->reciprocal[k] >= 0.0 && s->reciprocal[k] <= hits))
            return false;
        before = s->hits[k];
    }
    return true;
}

static bool is_scope_possible(const struct ranks *r, uint32_t number, uint64_t slice_events)
{
    const struct ranks_scope *scope = &r->scopes[number];
    uint64_t all = scope->whole.count + scope->open.count;
    bool is_good = are_possible(r, &scope->whole, COUNT_MAX) && scope->whole.count % RANKS_BLOCK == 0 &&
                   are_possible(r, &scope->open, RANKS_BLOCK - 1);
    for (uint32_t i = 0; i < RANKS_SLICES && is_good; i++)
        is_good = are_possible(r, &scope->slices[i], MIN(slice_events, all));
    bool is_empty_one = number > r->values && (number != RANKS_OTHERS || r->values < RANKS_VALUES_MAX);
    return is_good && (number == 0 || !is_empty_one || all == 0) &&
           (number == 0 || is_empty_one || number == RANKS_OTHERS || all > 0);
}

/* Whether the values' events add up to all, in the run and in each slice. */
static bool do_add_up(const struct ranks *r)
{
    if (r->kept == NULL)
        return true;
    uint64_t all = ranks_examples(&r->scopes[0]), slices[RANKS_SLICES];
    for (uint32_t i = 0; i < RANKS_SLICES; i++)
        slices[i] = r->scopes[0].slices[i].count;
    bool is_good = true;
    for (uint32_t s = 1; s < RANKS_SCOPES; s++) {
        is_good = is_good && ranks_examples(&r->scopes[s]) <= all;
        all -= ranks_examples(&r->scopes[s]);
        for (uint32_t i = 0; i < RANKS_SLICES; i++) {
            is_good = is_good && r->scopes[s].slices[i].count <= slices[i];
            slices[i] -= r->scopes[s].slices[i].count;
        }
    }
    for (uint32_t i = 0; i < RANKS_SLICES; i++)
        is_good = is_good && slices[i] == 0;
    return is_good && all == 0;
}

static bool load_value(struct ranks *r, uint32_t i, const struct saved_value *saved, const char *text)
{
    bool is_text = r->config.by_type.tag == TYPE_TEXT;
    struct ranks_kept *kept = &r->kept[i];
    *kept = (struct ranks_kept){.integer = saved->integer, .is_null = saved->is_null != 0};
    kept->text_bytes = saved->text_bytes;
    memcpy(kept->text, text, saved->text_bytes);
    r->hashes[i] = saved->hash;
    for (uint32_t j = 0; j < i; j++)
        if (r->hashes[j] == saved->hash)
            return false;
    bool has_integer = saved->integer != 0, has_text = saved->text_bytes > 0;
    return saved->is_null <= 1 && !(has_text && !is_text) && !(has_integer && is_text) &&
           !(saved->is_null && (has_integer || has_text)) &&
           utf8_is_valid((struct str){kept->text, kept->text_bytes});
}

static bool load_values(struct ranks *r, uint32_t values, const char *at, size_t left)
{
    for (uint32_t i = 0; i < values; i++) {
        struct saved_value saved;
        if (left < sizeof(saved))
            return false;
        memcpy(&saved, at, sizeof(saved));
        at += sizeof(saved), left -= sizeof(saved);
        if (saved.text_bytes > RANKS_TEXT_MAX || saved.text_bytes > left || !load_value(r, i, &saved, at))
            return false;
        at += saved.text_bytes, left -= saved.text_bytes;
    }
    r->values = values;
    return left == 0;
}

static const char *load_covered(struct ranks *r, const char *at, size_t left)
{
    size_t each = r->config.at.count, numbers = left / each;
    if (left % each != 0 || numbers > (size_t)ITEMS_NUMBERS_MAX + 1)
        return "the items in lists are cut off, or are too many";
    ranks_cover_room(r, numbers);
    for (size_t i = 0; i < left; i++) {
        uint8_t state = (uint8_t)at[i];
        if (state >= RANKS_COVERED_STATES)
            return "an item in lists has a state that does not exist";
        r->covered[i] = state;
        r->covered_by[i % each][state] += state != RANKS_COVERED_NEVER;
    }
    return NULL;
}

static const char *load(struct ranks *r, const char *at, size_t left)
{
    struct saved_head head;
    size_t scopes_bytes = ranks_scopes(r) * sizeof(*r->scopes);
    if (left < sizeof(head))
        return "the figures of ranks are cut off";
    memcpy(&head, at, sizeof(head));
    at += sizeof(head), left -= sizeof(head);
    if (head.magic != SAVED_MAGIC)
        return "these are no figures of ranks";
    if (head.options != hash_options(r))
        return NULL; /* of other options */
    if (left < scopes_bytes || left - scopes_bytes < head.kept_bytes)
        return "the figures of ranks are cut off";
    if (head.slice >= RANKS_SLICES || head.values > (r->kept == NULL ? 0 : RANKS_VALUES_MAX))
        return "the figures of ranks have a window or values that cannot be";
    memcpy(r->scopes, at, scopes_bytes);
    at += scopes_bytes, left -= scopes_bytes;
    if (!load_values(r, head.values, at, head.kept_bytes))
        return "a value of `metrics_by` is none";
    at += head.kept_bytes, left -= head.kept_bytes;
    for (uint32_t s = 0; s < ranks_scopes(r); s++)
        if (!is_scope_possible(r, s, head.slice_events))
            return "the sums of ranks cannot come from events";
    if (!do_add_up(r) || head.emitted > ranks_examples(&r->scopes[0]))
        return "the figures of ranks do not add up";
    r->slice = head.slice;
    r->emitted = head.emitted;
    r->last_us = head.last_us;
    const char *reason = load_covered(r, at, left);
    if (reason == NULL && head.slice_events != r->slice_events)
        ranks_clear_window(r);
    return reason;
}

const char *ranks_load(struct ranks *r, const void *data, size_t bytes)
{
    ranks_clear(r);
    const char *reason = load(r, data, bytes);
    if (reason != NULL)
        ranks_clear(r);
    return reason;
}
