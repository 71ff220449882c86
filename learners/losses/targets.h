/*
 * The targets of a training step of a model that chooses items: a query vector each, which the model has encoded,
 * and the item that came next. A step goes in four calls:
 *
 *   targets_draw        draws negatives; targets_items then lists the distinct items that take part. The caller
 *                       finds a row of dim floats for each: a table's row, or the output of an item tower.
 *   targets_add_items   only where windows of items are encoded by the same rows: the items of the windows
 *   targets_gradients   losses, and their gradients by the queries
 *   targets_update      one optimizer step for each distinct row, from targets and windows (tokens) together;
 *                       or targets_item_gradients: the gradients by the items' vectors, for a tower
 *
 * Negatives are drawn by a hash (negatives.h); with `in_batch` the items of the step's other targets are negatives,
 * too. A loss that takes all items (softmax.h) has all live items take part, and each of them makes a step.
 *
 * Order: a row's gradient is one sum over its places, by window; of a window the targets come first, in order, then
 * the tokens, in order (chunks of BATCH_CHUNK places, as segment_reduce of batch.h). A step is one slice
 * (kernels/slices.h). Work is shared with a team; results do not depend on which thread does what, nor on the
 * kernels' variant.
 *
 * Taught is what has a gradient: a place whose derivative is exactly 0 (an accidental hit, a draw that warp did not
 * look at, a target of weight 0 or one that is rejected) is no place, and a row without places makes no step.
 *
 * Threads: all calls come from the thread that owns the targets. Memory grows to what the largest step needs;
 * steps that are no larger take none. Pointers of a step are the caller's, and stay as they are from targets_draw
 * to the end of the step.
 */
#ifndef LEAT_LEARNERS_LOSSES_TARGETS_H
#define LEAT_LEARNERS_LOSSES_TARGETS_H

#include "core/buffer.h"
#include "kernels/batch.h"
#include "learners/losses/losses.h"
#include "learners/losses/negatives.h"

struct team;
struct popularity;

/* Most places of a step: pairs of a target and an item that it is compared with, its own included. Each takes up to
 * 28 bytes of memory, and half as much more where steps grew. */
enum { TARGETS_PLACES_MAX = 1 << 25 };

struct targets_options {
    const struct kernels *kernels;
    const struct batch_kernels *batch; /* of a CPU; of the variant of `kernels` */
    const struct losses_kind *loss;
    struct losses_options losses;
    uint32_t dim;         /* of rows and queries: a multiple of 4 up to BATCH_DIM_MAX */
    uint32_t targets_max; /* of a step */
    enum negatives_draw draw;
    /* Draws items by how often they occur (popular.h) instead, while any has: live ones alone have, and the loss does not
     * correct by log_q. NULL: by `draw`. */
    const struct popularity *popular;
    uint64_t seed;
    double rate, initial; /* as frequencies_init takes them; read with `in_batch` alone */
    struct team *team;    /* NULL: nobody helps */
};

struct targets_step {
    const float *queries;       /* row i, of dim floats, begins at queries[i * query_stride] */
    uint32_t query_stride;      /* of queries and query_gradients; 0: dim */
    const uint32_t *positives;  /* [count] dense numbers */
    const float *weights;       /* [count] factors of the losses; NULL: 1 */
    const uint64_t *identities; /* [count] distinct; draws are a function of them */
    const uint32_t
        *windows; /* [count] rising: the number in the step of the target's window; read with tokens alone */
    uint32_t count;       /* up to targets_max */
    const uint32_t *live; /* [live_count] dense numbers of all items, rising; NULL: 0 .. live_count - 1 */
    uint32_t live_count;  /* at least 1 if there are targets */
    uint64_t time;        /* targets of all steps before, for frequencies */
    /* Results. A target whose scores, loss or gradient is not finite is rejected: it has a loss and a gradient of 0,
     * and teaches nothing. */
    float *query_gradients; /* written, by query_stride */
    double *losses;         /* [count], times weight */
    uint8_t *is_rejected;   /* [count] 0 or 1 */
};

/* Places of windows of items: the token i is the item numbers[i], whose row got the gradient scale * gradients[i] as part
 * of the encoding of window windows[i]. */
struct targets_tokens {
    const uint32_t *numbers; /* [n]; BATCH_NONE: the token's item is gone, nothing is taught */
    const float *gradients;  /* [n][dim] */
    const uint32_t *windows; /* [n] rising; numbers in the step, as those of the targets */
    uint32_t n;
    float scale;
};

struct targets;

/* Whether a step of targets_max targets stays within TARGETS_PLACES_MAX; false: `reason` has a text for a
 * diagnostic. Any thread. */
LEAT_CHECKED bool targets_check(const struct targets_options *options, char reason[LOSSES_REASON]);

/* Options that targets_check and losses_check let pass. The caller frees the result with targets_free, which takes
 * NULL. */
struct targets *targets_create(const struct targets_options *options);
void targets_free(struct targets *t);
/* About how many bytes the largest step may take: of its places. Any thread. */
size_t targets_plan(const struct targets_options *options);
/* Bytes of memory now, apart from frequencies: 16 for each number up to the largest that has occurred in a batch. */
size_t targets_bytes(const struct targets *t);

/* Begins a step: draws, and decides how often items are expected, by what occurred before the step; then the step's
 * items count as occurrences. Reads neither queries nor windows nor results. */
void targets_draw(struct targets *t, const struct targets_step *step);
/* Behind targets_draw: these items (BATCH_NONE: none) take part, too. A loss that takes all items has them already:
 * they must be live. */
void targets_add_items(struct targets *t, const uint32_t *numbers, uint32_t n);
/* The distinct items of the step, in the order of their first places: target by target the positive, then its draws;
 * then the added ones. With a loss that takes all items: the live ones, rising. Valid until the next call of
 * targets_draw or targets_add_items. */
const uint32_t *targets_items(const struct targets *t, uint32_t *count);

/* Writes the step's results. rows[u]: the row of items[u] of targets_items, read here and in targets_item_gradients
 * and targets_update until they write it; items that were added alone may have NULL. The pointers are the caller's. */
void targets_gradients(struct targets *t, const struct targets_step *step, const float *const *rows);
/* The same for targets from .. to - 1 alone, for a model that encodes a step in parts: part after part, from target 0 on,
 * until all have gradients. The result is that of one call. */
void targets_gradients_of(struct targets *t, const struct targets_step *step, const float *const *rows,
                          uint32_t from, uint32_t to);

/* Who helps from now on; NULL: nobody. */
void targets_set_team(struct targets *t, struct team *team);

/* The optimizer's step of all rows that have a gradient. tokens may be NULL; their items are among targets_items.
 * rows_of[u]: the row in fp32 of items[u], its optimizer state behind it (batch_update of batch.h); NULL: it has none,
 * and its gradient is dropped. Returns how many rows stayed as they were because their gradient is not finite. */
uint32_t targets_update(struct targets *t, const struct targets_step *step,
                        const struct targets_tokens *tokens, void *const *rows_of, enum opt_kind kind,
                        const struct opt_params *params);
/* The gradients by all items of targets_items: out[items][dim], 0 for an item without a gradient. */
void targets_item_gradients(struct targets *t, const struct targets_step *step, float *out);

/* With in_batch: the item of this number is gone, the number may come again as another item. */
void targets_forget(struct targets *t, uint32_t number);
/* The state between steps, as frequencies_save and frequencies_restore: 0 bytes without in_batch. */
void targets_save(const struct targets *t, struct byte_buffer *out);
LEAT_CHECKED bool targets_restore(struct targets *t, const void *bytes, size_t length, uint32_t numbers_max,
                                  uint64_t time, char reason[FREQUENCIES_REASON]);

#endif
