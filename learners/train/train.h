/*
 * A training step over a whole batch, on a CPU or a GPU: the same kernels in the same order
 * (kernels/batch.h), so that both learn the same except for sums that are rounded in another order: a GPU's
 * matrix products, and on a CPU the gradients that wide layers sum by ids (distinct.c). Events come by
 * train_learn; each is predicted with the existing rows and weights, and waits in the batch; a full batch
 * makes its step, train_step:
 *
 *   ids -> distinct ids -> their rows, found or made -> vectors into a matrix, one row an event
 *   -> linear weights, interaction, network -> loss -> back through the same
 *   -> gradients summed by row, in the order of places
 *   -> one optimizer step for each row and each dense weight
 *
 * A batch may be too large for the network's matrices: then it goes through the network in pieces of `micro`
 * events, whose gradients are added up before the one step. Logits equal those of a single piece, bit for bit
 * where the rows of a product do not depend on each other (on a CPU); sums over a dense layer's events, and
 * over an id's events (distinct.c), are rounded in another order.
 *
 * On a CPU, work that depends only on a distinct id is done once for each: looking rows up, reading their
 * linear weights, and on the way back the products of wide layers with the ids' vectors (distinct.c). Each
 * call assigns dense indices to its ids, continuing after the batch's earlier calls, and looks only new ids
 * up. On a GPU, and with lists, indices of calls are used only where a single call is the whole batch.
 *
 * Sums over events are made slice by slice of the step, and the slices' sums are added by a fixed tree
 * (kernels/slices.h), so that they do not depend on how many workers share the slices. model_options.slice is the
 * least size of a slice; learners have MODEL_SLICE, and with 0 a step is one slice.
 *
 * A row that the step makes counts as absent in the forward pass, and makes its optimizer step like any
 * other: a step learns from the predictions. So, on a CPU, the values that an event's prediction left in the
 * matrices serve its step, too (step.c): weights change in steps only, and a second forward pass would give
 * the same values. All events of a batch make the forward pass again where a row that a prediction used has
 * expired since, and after a restart. On a GPU they always do, because there a product's bits depend on how
 * many events go together; so do pieces of a batch, fp16, and a network on trial.
 *
 * struct train_rows says where rows lie: in tables of the CPU (rows_cpu.c) or of a GPU (rows_gpu.c). A GPU
 * has its work queued ahead: a step is queued behind the call that fills its batch before the host has read
 * that call's predictions, and the next events are copied and indexed beside it (feed.h). fp16, a network on
 * trial and a model that is compared wait for the results that they need. All memory is taken once, when the
 * model is made. One thread owns it.
 */
#ifndef LEAT_LEARNERS_TRAIN_TRAIN_H
#define LEAT_LEARNERS_TRAIN_TRAIN_H

#include "learners/train/clock.h"
#include "learners/train/feed.h"
#include "learners/train/graph.h"
#include "learners/train/input.h"
#include "learners/train/net.h"
#include "learners/train/scale.h"
#include "learners/train/share.h"
#include "learners/train/trial.h"

/* Fields whose rows are looked up together (input.h). */
struct train_group {
    uint32_t first, fields; /* fields of the model: first .. first + fields */
    bool has_vectors;
    uint32_t places_max;
    size_t places_before; /* most places of the groups before this one */
    /* number of distinct ids; this and the arrays below are dedupe's results, in the device's memory */
    uint32_t *count;
    uint32_t *indices;        /* [places_max] dense index of each place's id */
    uint64_t *unique_ids;     /* [places_max] */
    uint32_t *unique_tables;  /* [places_max] */
    uint32_t *order, *starts; /* [places_max], [places_max + 1] */
    void **rows;              /* [places_max] row of each index; NULL: none */
    /* [places_max] rows that existed before this step, used in the forward pass; NULL: none */
    void **known;
    /* On a CPU, where a call's indices continue those of the call before: */
    uint32_t at;     /* places of the batch before the call's own */
    uint32_t fresh;  /* the first index whose row the call looked up */
    uint32_t *slots; /* the hash map of ids that the batch's calls share, slots_bytes long */
    size_t slots_bytes;
    bool has_lost;  /* CPU: a row that predictions used since the last step has expired */
    float *weights; /* [places_max] linear weight of each index */
};

struct train;

/* The tables that hold the rows, and the layout of a row. A pointer in rows[] points at the row's vector,
 * which the optimizer's state follows; the linear weight is linear_at bytes from the vector. In rows without
 * a vector the pointer points at the linear weight. `of` is passed to all functions; bool results are false
 * on an error, unless said otherwise. */
struct train_rows {
    void *of;
    int32_t linear_at;
    enum row_format format;
    /* Takes memory, in both walks (memory.h). May be NULL. */
    void (*take)(void *of, struct train_memory *memory);
    /* Whether two threads may look two groups up at the same time. NULL: no. */
    bool (*are_apart)(void *of, const struct train *t);
    /* For a step: sets rows[u] and known[u] of each index, by the rule for batches (table.h,
     * table_resolve_batch); on a CPU has_lost, too. */
    bool (*resolve)(void *of, struct train *t, struct train_group *g, struct gpu_error *error);
    /* For a call: sets known[u] of each index, without an occurrence. */
    bool (*find)(void *of, struct train *t, struct train_group *g, const struct train_input *in,
                 struct gpu_error *error);
    /* Raises `seen` of existing rows of a call's events: no occurrences, but the rows do not
     * expire. GPU only. */
    bool (*refresh)(void *of, struct train *t, struct train_group *g, const struct train_input *in,
                    struct gpu_error *error);
};

/* One thread's memory for the way back by ids (distinct.c). */
struct train_distinct {
    /* Parts, the distinct ids of each slice of the step, numbered slice by slice: */
    uint32_t *part_of; /* [events] of an index the latest part, plus 1; 0: none yet */
    uint32_t *index;   /* [events] of a part its dense index */
    uint32_t *part;    /* [events] of a place */
    float *more;       /* [events][dim] of a part the gradient by the vector */
    /* [events], [events + 2] the places of one slice, sorted by part */
    uint32_t *order, *starts;
    /* Some parts at a time: */
    float *sums;    /* [ids] sums of gradients, each as long as the widest layer's outputs */
    float *vectors; /* [ids][dim] */
    uint8_t *is_finite;
    void *scratch;
    size_t scratch_bytes;
};

struct train {
    const struct model_options *options; /* the model's, whose rates may change between steps */
    struct train_device device;
    struct train_rows rows;
    struct train_memory memory;
    struct train_input batch, call;
    struct train_group sets[FEED_SETS][MODEL_FIELDS_MAX]; /* on a CPU only the first set */
    struct train_group *groups;                           /* the set in use */
    uint32_t groups_count;
    struct net net;
    uint32_t events_max;
    /* where a call's events begin in the matrices; not 0: behind the batch, so that
     * predictions serve the step */
    uint32_t call_at;
    bool is_forward;  /* predictions left the forward pass of the whole batch in the matrices */
    bool has_indices; /* the batch's calls left the indices of all its ids in the groups */
    /* calls leave their indices even if a batch has several calls; false: only if one call is the whole
     * batch */
    bool keeps_indices;
    uint64_t steps;
    uint32_t epoch; /* checkpoint epoch that changes now belong to */
    /* [(dense + 1) * capacity] event of each place of the dense features; place: column * capacity + event */
    uint32_t *dense_event;
    /* order, starts and count of a step's places, by column */
    uint32_t *dense_order, *dense_starts, *dense_count;
    /* host copies of order and starts, for dense_placed events; 0: not made yet */
    uint32_t *host_order, dense_placed;
    void **dense_rows;    /* [dense + 1] linear weights of the dense features, the bias last */
    float *dense_weights; /* [dense + 1] the weights read from them */
    float *dense_params;  /* [dense + 1][LINEAR_FLOATS] weights with state */
    float *logits;        /* [labels][events_max] */
    size_t logits_bytes;
    /* [events_max], stride of the network's output: gradients by the outputs, or by the logits
     * without a network */
    float *out_gradients;
    float *input_gradients; /* [events_max], stride of the network's input: gradients by the inputs */
    struct train_scale scale;
    struct train_trial *trial; /* NULL: no trial */
    float *host_logits;        /* a call's logits, copied back */
    uint8_t *host_rejected;
    uint8_t *host_finite; /* [net_gradient_rows] */
    struct train_distinct distinct[SHARE_THREADS];
    void *scratch[SHARE_THREADS];
    size_t scratch_bytes;
    struct train_feed feed;
    struct train_graphs graphs;
    struct train_clock clock;
};

/* rows: see struct train_rows. kernels: compute the initial weights, on the CPU. */
struct train_setup {
    const struct model_options *options;
    struct train_device device;
    struct train_rows rows;
    const struct kernels *kernels;
};

/* The memory that a step takes, in bytes, computed before it is made. parts: of the device (on a CPU
 * of the host). host: memory that events come into, pinned where there is a GPU. A plan for a GPU
 * needs its kernels. */
struct train_plan {
    size_t parts[TRAIN_PARTS];
    size_t host;
};
void train_plan(const struct train_setup *setup, struct train_plan *plan);

/* NULL: error. setup->options must outlive the struct train. train_free takes NULL, too. */
struct train *train_new(const struct train_setup *setup, struct gpu_error *error);
void train_free(struct train *t);

static inline uint32_t train_pending(const struct train *t)
{
    return t->batch.n;
}

/* Predicts events from..to of a call (at most MODEL_ROWS_MAX): logits without model_correction,
 * NaN if rejected. */
bool train_predict(struct train *t, const struct train_events *events, uint32_t from, uint32_t to,
                   double *logits, struct gpu_error *error);
/* GPU only: raises `seen` of the rows of those events from..to that learn. Waits for the device. */
bool train_refresh(struct train *t, const struct train_events *events, uint32_t from, uint32_t to,
                   struct gpu_error *error);
/* Adds the events from..to that learn to the batch, which must have room, without predicting them: the step
 * makes their forward pass. */
void train_add(struct train *t, const struct train_events *events, uint32_t from, uint32_t to);
/* Predicts the events and adds those that learn to the batch. On a GPU it waits for no prediction: the step
 * that these events fill may be queued at once. Before more events come, call train_read for the predictions,
 * as train_predict gives them; from: the call's first predicted event. */
bool train_learn(struct train *t, const struct train_events *events, uint32_t from, uint32_t to,
                 struct gpu_error *error);
bool train_read(struct train *t, uint32_t from, double *logits, struct gpu_error *error);
/* The batch's events, at least one, make their step; on a GPU it is queued. */
bool train_step(struct train *t, struct gpu_error *error);

/* Linear weights of the dense features, the bias last: [dense + 1][LINEAR_FLOATS], in host memory. Both
 * functions wait for the device. */
bool train_save_dense(struct train *t, float *floats, struct gpu_error *error);
bool train_load_dense(struct train *t, const float *floats, struct gpu_error *error);

#endif
