/* What the learner's files of this folder share (learner.c, state.c). The lane that owns the learner makes all calls. */
#ifndef LEAT_LEARNERS_TOWERS_INTERNAL_LEARNER_H
#define LEAT_LEARNERS_TOWERS_INTERNAL_LEARNER_H

#include "learners/retrieval/choices.h"
#include "learners/stored/stored.h"
#include "learners/towers/learner.h"

/* A batch's events as they were read: their ids lie in `ids`, those of the query of event i from query_at[i] on. */
struct towers_read_events {
    struct towers_event events[BATCH_ROWS];
    uint32_t places[BATCH_ROWS]; /* numbers among the batch's selected rows */
    size_t query_at[BATCH_ROWS], features_at[BATCH_ROWS];
    uint16_t query_counts[BATCH_ROWS][TOWERS_QUERY_MAX], features_counts[BATCH_ROWS][TOWERS_FEATURES_MAX];
    uint64_t *ids;
    size_t ids_count, ids_room;
};

struct towers_state {
    struct towers *model;
    struct choices choices;
    struct stored stored;
    struct kernels_calls calls;
    struct towers_read_events read;
    bool has_users; /* `history` */
    /* By event of a piece. */
    uint8_t is_ranked[TOWERS_CALL_MAX], is_listed[TOWERS_CALL_MAX];
    struct towers_seen seen[TOWERS_CALL_MAX];
    struct choice piece_choices[TOWERS_CALL_MAX];
    uint32_t *left_out; /* numbers of the items that the piece's events leave out */
    size_t left_out_count, left_out_room;
    size_t left_out_at[TOWERS_CALL_MAX];
    /* Rows; unlisted: of them the events whose item is not in the catalogue of `items`. */
    uint64_t learned, predicted, rejected, scored, catalogued, removed, unlisted, ids_cut;
};
_Static_assert(TOWERS_CALL_MAX == (int)BATCH_ROWS, "a batch is at most a call");

/* state.c. towers_stored_init: once, when model and ranks are made. */
void towers_stored_init(struct towers_state *s);
void towers_report_memory(const struct towers_state *s, struct report *report);

#endif
