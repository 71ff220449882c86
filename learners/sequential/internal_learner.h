/* What the learner's files of this folder share (bind.c, learner.c, state.c). The lane that owns the learner makes all
 * calls. */
#ifndef LEAT_LEARNERS_SEQUENTIAL_INTERNAL_LEARNER_H
#define LEAT_LEARNERS_SEQUENTIAL_INTERNAL_LEARNER_H

#include "learners/retrieval/choices.h"
#include "learners/sequential/learner.h"
#include "learners/stored/stored.h"
#include "learners/train/memory.h"

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
    struct learner_gpu gpu; /* api NULL: the network is on the CPU */
    struct train_device device;
    int64_t opened_us; /* monotonic time */
    bool has_failed;   /* the device has failed, and the diagnostic was emitted */
    struct sequential_held held;
    struct sequential *model;
    struct choices choices;
    struct stored stored;
    bool has_cache; /* it has answered a request */
    /* The batch's events, and their numbers among its selected rows. */
    struct sequential_event events[BATCH_ROWS];
    uint32_t places[BATCH_ROWS];
    struct sequential_piece_work piece;
    struct choice piece_choices[SEQUENTIAL_CALL_MAX];
    struct kernels_calls calls;
    uint64_t learned, predicted, rejected, scored, without_history, unlabelled;
    bool takes_unlabelled; /* there is a stream of rows without a label */
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

/* held_older.c. sequential_held_is_older: whether the bytes of a batch that waits are those of format 9.
 * sequential_read_held_older: a batch of these, with one reference; NULL: the bytes are damaged, or of another schema. */
bool sequential_held_is_older(struct str bytes);
struct batch *sequential_read_held_older(struct batch_pool *pool, const struct schema *schema,
                                         struct str bytes);

/* device.c. sequential_pick_device: at open, opens the GPU on which this start runs, if any, and sets c->model.device;
 * false after a diagnostic. sequential_refuse_device: the diagnostic of a model that could not be made there; returns
 * false. sequential_check_device: false if the device has failed; the first such call emits the diagnostic, which ends
 * the run. sequential_check_restored: likewise in a restore. */
bool sequential_pick_device(struct operator_context *context);
bool sequential_refuse_device(struct operator_context *context);
bool sequential_check_device(struct operator_context *context);
bool sequential_check_restored(struct operator_context *context);

/* state.c. sequential_stored_init: once, when model and ranks are made. */
void sequential_stored_init(struct sequential_state *s);
void sequential_report_memory(const struct sequential_state *s, struct report *report);

#endif
