/* What the learner's files of this folder share (bind.c, learner.c, state.c). The lane that owns the learner makes all
 * calls. */
#ifndef LEAT_LEARNERS_SEQUENTIAL_INTERNAL_LEARNER_H
#define LEAT_LEARNERS_SEQUENTIAL_INTERNAL_LEARNER_H

#include "learners/retrieval/lists.h"
#include "learners/sequential/learner.h"
#include "learners/stored/stored.h"

/* What a piece of a batch's events needs, by event of the piece. */
struct sequential_piece_work {
    struct batch *batch;
    uint32_t at, n; /* of struct sequential_state's events */
    uint8_t is_ranked[SEQUENTIAL_CALL_MAX], is_listed[SEQUENTIAL_CALL_MAX];
    struct sequential_seen seen[SEQUENTIAL_CALL_MAX];
};

/* held.c: rows that wait for the passes. */
struct sequential_held {
    struct sequential_held_batch {
        struct batch *batch;
        uint32_t epoch; /* in which it came */
    } * batches;
    size_t count, room;
    uint64_t first; /* number over the whole run of batches[0] */
    uint64_t taken; /* batches of a lower number have been predicted */
    uint32_t epoch;
    struct batch_pool *pool;
    const struct schema *schema;
};

struct sequential_state {
    struct sequential_held held;
    struct sequential *model;
    struct ranks *ranks;
    struct items_search *search;
    struct stored stored;
    bool has_cache; /* it has answered a request */
    size_t list;    /* items of a list */
    size_t at_most; /* the largest k of the figures */
    /* The batch's events, and their numbers among its selected rows. */
    struct sequential_event events[BATCH_ROWS];
    uint32_t places[BATCH_ROWS];
    struct sequential_piece_work piece;
    /* A search's queries and what it found. */
    float *queries;
    size_t queries_room;
    struct items_scored *found;
    size_t found_room;
    /* Lists of a piece: [BATCH_ROWS][lists_width] and their lengths. */
    struct items_scored *lists;
    size_t lists_width;
    uint32_t counts[BATCH_ROWS];
    uint32_t *covered; /* [at_most] */
    /* By selected row of the batch: for the outputs. row_lists: [BATCH_ROWS][list] */
    double row_ranks[BATCH_ROWS];
    struct items_scored *row_lists;
    uint32_t row_counts[BATCH_ROWS];
    struct kernels_calls calls;
    uint64_t learned, predicted, rejected, scored, without_history;
};
_Static_assert(SEQUENTIAL_CALL_MAX == (int)BATCH_ROWS, "a batch is at most a call");

/* held.c. sequential_hold: copies physical rows rows[count] of a batch of input 0. sequential_take_held: the next batch,
 * whose reference the caller gets. */
void sequential_hold(struct operator_context *context, struct sequential_config *c, struct batch *batch,
                     const uint16_t *rows, uint32_t count);
bool sequential_has_held(const struct sequential_held *h);
struct batch *sequential_take_held(struct operator_context *context, struct sequential_held *h);
void sequential_held_free(struct sequential_held *h);
struct stored_part sequential_held_part(struct sequential_state *s);

/* state.c. sequential_stored_init: once, when model and ranks are made. */
void sequential_stored_init(struct sequential_state *s);
void sequential_report_memory(const struct sequential_state *s, struct report *report);

#endif
