/* The layout of struct ranks, for ranks*.c. */
#ifndef LEAT_LEARNERS_RETRIEVAL_INTERNAL_H
#define LEAT_LEARNERS_RETRIEVAL_INTERNAL_H

#include "learners/retrieval/ranks.h"

/* Sums over ranked events; [k]: by the places of metrics_at, 0 from the last one on. No padding: it is saved
 * as it is. */
struct ranks_sums {
    uint64_t count, misses;
    uint64_t listed; /* events that had a list */
    uint64_t hits[RANKS_AT_MAX];
    double gain[RANKS_AT_MAX], reciprocal[RANKS_AT_MAX]; /* of ndcg, mrr */
};

/* The sums of all events, or of those with one value of metrics_by, or of the others. */
struct ranks_scope {
    struct ranks_sums whole; /* of the full blocks */
    struct ranks_sums open;  /* of the block that is being filled */
    /* By slice of all events: each scope turns to its next slice when all events do. */
    struct ranks_sums slices[RANKS_SLICES];
};

/* A value with figures of its own. */
struct ranks_kept {
    int64_t integer;
    uint32_t text_bytes;
    bool is_null;
    char text[RANKS_TEXT_MAX];
};

/* scopes[0]: all; scopes[1 + i]: value i; scopes[RANKS_OTHERS]: the others. */
enum { RANKS_OTHERS = 1 + RANKS_VALUES_MAX, RANKS_SCOPES };

/* Of an item, for each k: when it was last among the first k of a list. From RANKS_COVERED_SLICE on: in that
 * slice of the window. */
enum ranks_covered {
    RANKS_COVERED_NEVER,
    RANKS_COVERED_BEFORE, /* before the window */
    RANKS_COVERED_SLICE,
    RANKS_COVERED_STATES = RANKS_COVERED_SLICE + RANKS_SLICES,
};

struct ranks {
    struct ranks_config config;
    uint64_t slice_events; /* window / RANKS_SLICES */
    uint64_t emitted;      /* events when rows were emitted last */
    int64_t last_us;       /* event time of the last event; TIME_MIN: there was none */
    uint32_t slice;        /* the slice that is being filled */
    uint32_t values;       /* values with figures of their own */
    uint64_t hashes[RANKS_VALUES_MAX];
    struct ranks_kept *kept;    /* [RANKS_VALUES_MAX]; NULL without metrics_by */
    struct ranks_scope *scopes; /* [RANKS_SCOPES], or one without metrics_by */
    uint8_t *covered;           /* [covered_numbers][metrics_at.count] enum ranks_covered */
    size_t covered_numbers, covered_room;
    uint64_t covered_by[RANKS_AT_MAX][RANKS_COVERED_STATES]; /* numbers in each state, without NEVER */
};

/* Names of figures, by window, k and figure. */
enum { RANKS_FIGURES = 4 }; /* hr, ndcg, mrr, coverage */
struct ranks_names {
    const char *of[2][RANKS_AT_MAX][RANKS_FIGURES]; /* [1]: with `_window`, for columns */
};

static inline uint32_t ranks_scopes(const struct ranks *r)
{
    return r->kept == NULL ? 1 : RANKS_SCOPES;
}

static inline uint64_t ranks_examples(const struct ranks_scope *scope)
{
    return scope->whole.count + scope->open.count;
}

/* ranks.c. The state becomes as new. */
void ranks_clear(struct ranks *ranks);
/* Forgets the window, but not the run. */
void ranks_clear_window(struct ranks *ranks);
/* Makes room for numbers below `numbers`. */
void ranks_cover_room(struct ranks *ranks, size_t numbers);
struct ranks_figures ranks_figures_of(const struct ranks *ranks, uint32_t scope, bool is_window,
                                      size_t items);

#endif
