/*
 * What every learner that chooses items does with the queries of its events: it ranks the item that came among all
 * items, makes lists of the best, and emits both beside the rows of a batch. The figures are those of ranks.h, the
 * columns those of lists.h.
 *
 * One thread owns the state.
 */
#ifndef LEAT_LEARNERS_RETRIEVAL_CHOICES_H
#define LEAT_LEARNERS_RETRIEVAL_CHOICES_H

#include "learners/retrieval/lists.h"
#include "learners/retrieval/ranks.h"

enum { CHOICES_ANSWER_TOP = 10 }; /* items of an answer without the option `top` */

/* Items of a list. */
static inline uint32_t choices_list(const struct ranks_config *config)
{
    return config->top > 0 ? (uint32_t)config->top : CHOICES_ANSWER_TOP;
}

/* An event that is ranked, or a request that is answered. Pointers are the caller's. */
struct choice {
    const float *query; /* [dim]; NULL: there is none, so there is neither a rank nor a list */
    bool is_known;      /* the item was there before the event; false: a miss */
    uint32_t number;    /* of the item, if it is known */
    const uint32_t *seen;
    uint32_t seen_count; /* numbers of the items that `seen: dropped` leaves out, in any order */
    uint32_t always_out; /* of which the first so many are left out with `seen: kept`, too */
    uint32_t place;      /* number of the row among the batch's selected ones */
    int64_t time_us;
    bool is_ranked,
        is_listed; /* an event that is ranked has to be listed, too: its list counts for coverage */
};

struct choices {
    const struct ranks_config *config;
    struct ranks *ranks;
    struct items_search *search;
    uint32_t dim;
    size_t list;    /* items of a list */
    size_t at_most; /* the largest k of the figures */
    /* A search's queries and what it found. */
    float *queries;
    size_t queries_room;
    struct items_scored *found;
    size_t found_room;
    /* Lists of a call: [BATCH_ROWS][lists_width] and their lengths. */
    struct items_scored *lists;
    size_t lists_width;
    uint32_t counts[BATCH_ROWS];
    double ranks_of[BATCH_ROWS]; /* of a call's events */
    uint32_t *covered;           /* [at_most] */
    /* By selected row of the batch: for the outputs. row_lists: [BATCH_ROWS][list] */
    double row_ranks[BATCH_ROWS];
    struct items_scored *row_lists;
    uint32_t row_counts[BATCH_ROWS];
};

/* config: after ranks_bind; it must outlive the state. dim: floats of a query and of a row of the index.
 * choices_free takes zeros, too. */
void choices_init(struct choices *c, const struct ranks_config *config, uint32_t dim);
void choices_free(struct choices *c);

/* Whether all events get a list: one is asked for, and NAME.top is read. */
bool choices_makes_lists(const struct choices *c, const struct operator_context *context);

/* Before the choices of a batch with `rows` selected rows: none of them has a rank or a list yet. */
void choices_begin(struct choices *c, uint32_t rows);

/* Ranks and lists n events, at most BATCH_ROWS, and adds them to the figures in their order; rows of
 * LEARNER_METRICS that are due are emitted. The index has all items as they were before the events. */
void choices_judge(struct choices *c, struct operator_context *context, const struct batch *batch,
                   const struct items_index *index, const struct choice *events, uint32_t n);

/* Makes the lists of n requests, at most BATCH_ROWS, which change no figure. */
void choices_answer(struct choices *c, const struct items_index *index, const struct choice *requests,
                    uint32_t n);

/* Emits the batch's selected rows with their ranks and lists (lists_emit), and counts them as emitted. */
void choices_emit(struct choices *c, struct operator_context *context, uint32_t output,
                  const struct schema *schema, struct batch *batch, const struct items_numbers *numbers);

/* The value of an item's column, by learner_id; key 0: it is null. The text lies in the batch. Any thread. */
struct items_value choices_value(const struct column *column, uint32_t row);

#endif
