/*
 * Progressive evaluation of learners that choose items: an event is predicted before it is learned, and counts by
 * the rank of the item that came among all items (items_index_rank of learners/items/index.h). Ranks among a
 * sample of the items may order models otherwise than ranks among all (Krichene & Rendle 2020, "On Sampled
 * Metrics for Item Recommendation"), so there are none: `rank_share` samples events, not items.
 *
 * Figures of an event with rank r, for each k of `metrics_at`, and 0 where r > k or the item is unknown (a miss):
 *   hr@k    1
 *   ndcg@k  1 / log2(r + 1): one item is relevant, so the best possible sum is 1
 *   mrr@k   1 / r
 * A tie counts half in r (the middle of the tied places), and the formulas are taken at that r, which may end in .5:
 * an item that ties with one other for the first place has r = 1.5, so hr@1 = 0. A model that gives all n items the
 * same score gets (n + 1) / 2 for each event, not 1. The expected value under a random order of ties would need the
 * number of ties beside the rank.
 *
 * The figures of a period are means over its ranked events. coverage@k is the share of the catalogue's items
 * that were among the first k of a list in the period: distinct items / items. An item that leaves the
 * catalogue leaves both (ranks_removed).
 *
 * Periods are the whole run, and a window of the last `window` ranked events, which moves in steps of a
 * sixteenth of its length (as learners/learner/metrics.h). With `metrics_by`, each value of that column has
 * hit rate, NDCG and MRR of its own, over its events of the same periods. The first RANKS_VALUES_MAX values
 * that come, null being one of them, are kept apart; later ones count together, as `others`. So the values'
 * examples add up to all.
 *
 * Sums are kept per RANKS_BLOCK events and added up in order: figures depend on the events and their order alone.
 *
 * Memory: 4 KB; with metrics_by 160 KB; and for each k a byte, two at most, for each number up to the largest that
 * was in a list. With 1,000,000 items and one k that is 1 to 2 MB, of which 1 MB is saved.
 *
 * Names: figures of the report and columns of `NAME.metrics` are hr_10, ndcg_10, mrr_10, coverage_10 for k =
 * 10, since `hr@10` is no name in an expression; columns of the window end in `_window`, as those of other
 * learners.
 *
 * One thread owns the state.
 */
#ifndef LEAT_LEARNERS_RETRIEVAL_RANKS_H
#define LEAT_LEARNERS_RETRIEVAL_RANKS_H

#include "core/operator.h"

enum {
    RANKS_AT_MAX = 4,         /* most values of k */
    RANKS_VALUES_MAX = 64,    /* values of metrics_by that have figures of their own */
    RANKS_TEXT_MAX = 256,     /* bytes of such a value that are kept and shown */
    RANKS_ALL_ITEMS = 100000, /* every event is ranked, up to so many items */
    RANKS_SHARE_PERCENT = 1,  /* of the events, where there are more items */
    RANKS_SLICES = 16,        /* of a window */
    RANKS_BLOCK = 1024,       /* events of a sum */
};

enum ranks_seen { RANKS_SEEN_KEPT, RANKS_SEEN_DROPPED };

/* The options. Whoever ranks and makes lists reads `seen` and `top`. */
struct ranks_config {
    struct ints at;
    double share;
    struct column_ref by;
    int64_t window, metrics_every; /* ranked events */
    int seen;                      /* enum ranks_seen */
    int64_t top;                   /* items of a list in `NAME.top`; 0: no lists */
    /* The following members are set by ranks_bind. */
    struct type by_type; /* of the column `by`, where one is given */
    const struct ranks_names *names;
    const struct schema *schema; /* of the output `NAME.metrics` */
};
extern const struct option ranks_options[];

/* Checks the options, finds the column of metrics_by in input 0, and makes the schema of `NAME.metrics`: time,
 * examples, misses; with metrics_by `scope` and that column; for each k the figures of the run; then those of the
 * window. All that it makes is in bind->arena, where names in reports point to. Returns false after a diagnostic. */
LEAT_CHECKED bool ranks_bind(struct operator_bind *bind, struct ranks_config *config);

static inline bool ranks_has_by(const struct ranks_config *config)
{
    return config->by.name.length > 0;
}

struct ranks;

/* config: after ranks_bind; it is copied, and what it points to is kept. The caller frees the result with
 * ranks_free, which takes NULL. */
struct ranks *ranks_create(const struct ranks_config *config);
void ranks_free(struct ranks *ranks);

/* Whether an event is among those that are ranked: by the hash `identity` of its record and the number of items now,
 * so a replay ranks the same events. Of a larger share, events of a smaller one are a part. */
bool ranks_is_ranked(const struct ranks *ranks, uint64_t identity, size_t items);

/* A value of metrics_by. The text is only read during a call. */
struct ranks_value {
    uint64_t hash; /* equal values have equal ones; of null, too */
    bool is_null;
    int64_t integer; /* of int, time and bool; else 0 */
    struct str text; /* of a text; else empty */
};

/* The value of a row of the column metrics_by; column: of type bool, int, time or text. */
struct ranks_value ranks_value_of(const struct column *column, uint32_t row);

/* An event that was ranked. */
struct ranks_event {
    int64_t time_us;                 /* event time */
    double rank;                     /* 1 or more; INFINITY: a miss, the item is not in the catalogue */
    const struct ranks_value *value; /* of metrics_by; NULL without the option */
    /* Numbers of the first items of its list, best first, at most ITEMS_NUMBERS_MAX, each once; as many as the
     * largest k or all that there are. NULL: no list was computed. */
    const uint32_t *top;
    size_t top_count;
};

/* Adds an event. Returns whether rows are due after it: call ranks_emit before the next event then. The caller adds
 * only events that ranks_is_ranked chose. */
LEAT_CHECKED bool ranks_add(struct ranks *ranks, const struct ranks_event *event);

/* The item with that number has left the catalogue: the number may go to another one. */
void ranks_removed(struct ranks *ranks, uint32_t number);

/* Emits rows of `NAME.metrics` to an output of the operator: one of all events, then with metrics_by one for
 * each value by the order in which values came, then one of the others, if there are any. items: of the
 * catalogue now. In the order of its micro-batch they come after all rows that sources read. */
void ranks_emit(struct ranks *ranks, struct operator_context *context, uint32_t output, size_t items);
/* After the last event of an ended input: likewise, if events came since the last rows. */
void ranks_end(struct ranks *ranks, struct operator_context *context, uint32_t output, size_t items);

/* Figures of a period; NaN: there is none. */
struct ranks_figures {
    uint64_t examples; /* ranked events */
    uint64_t misses;   /* those of unknown items; they are examples, too */
    double hr[RANKS_AT_MAX], ndcg[RANKS_AT_MAX], mrr[RANKS_AT_MAX]; /* by the places of metrics_at */
    double coverage[RANKS_AT_MAX]; /* NaN if no event of the period had a list, and without items */
};
struct ranks_figures ranks_figures(const struct ranks *ranks, bool is_window, size_t items);

/* Adds examples, misses and the figures of all events, of run and window, as far as there are any: at most
 * 2 * (2 + 4 * RANKS_AT_MAX) items. */
void ranks_report(const struct ranks *ranks, struct report *report, size_t items);

/* Appends all of the state. */
void ranks_save(const struct ranks *ranks, struct byte_buffer *out);

/*
 * Replaces the state by a saved one. Where the options have changed: with another `window` the window begins
 * anew, with another `metrics_at` or `metrics_by` all figures do; rows then come by the new options. Returns
 * NULL, or why the bytes are refused, as static text; then the state is as new. Bytes may be any.
 */
LEAT_CHECKED const char *ranks_load(struct ranks *ranks, const void *data, size_t bytes);

#endif
