/*
 * A training step over a whole batch, on a CPU or a GPU: the same kernels in the same order
 * (kernels/batch.h), so that what is learned is the same but for sums that are rounded elsewhere: a GPU's
 * products, and on a CPU what wide layers give back by ids (distinct.c). Events come by train_learn; each is
 * predicted by the rows and weights that are there, and waits in the batch; when that is full, train_step:
 *
 *   ids -> distinct ids -> their rows, found or made -> vectors into a matrix, a row an event -> linear
 *   weights, interaction, network -> loss -> back through them -> slopes summed by row in the order of places
 *   -> each row, each dense weight makes one step of its optimizer
 *
 * A batch may be too large for the network's matrices: it goes through the network in pieces of `micro`
 * events, whose gradients add up before the one step. Logits are those of one piece, bit for bit where a
 * product's rows do not depend on each other (a CPU); sums over a dense layer's events, and over an id's
 * (distinct.c), are rounded elsewhere.
 *
 * On a CPU, what a step has once for each distinct id is done so: rows are looked up, their linear weights
 * read, the products of wide layers with their vectors on the way back (distinct.c). Calls number ids for
 * their batch, each going on where the last one stopped, and look up what is new; on a GPU, and with lists,
 * one that is all of its batch does.
 *
 * A row that the step makes counts as absent on the way forward, and makes its optimizer step like any other:
 * a step learns from what was predicted. So, on a CPU, what an event's prediction left in the matrices serves
 * its step, too (once.c): weights move with steps alone, and the way forward would give the same again. All
 * go forward anew where a row that a prediction saw has expired since, and after a restart. On a GPU they
 * always do: there a product's bits depend on how many events go together. So do pieces of a batch, fp16, and
 * a network that is on trial.
 *
 * What decides where rows lie is struct train_rows: tables of the CPU (rows_cpu.c) or of a GPU.
 * A GPU has its work queued ahead: a step is behind the call that fills its batch before anybody has read
 * that call's predictions, and what comes next is copied and numbered beside it (feed.h). fp16, a network on
 * trial and a model that is compared wait for what they look at. All memory is taken once, when the model is
 * made. One thread owns it.
 */
#ifndef LEARNERS_TRAIN_TRAIN_H
#define LEARNERS_TRAIN_TRAIN_H

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
    uint32_t first, fields; /* of the model */
    bool has_vectors;
    uint32_t places_max;
    size_t places_before;     /* of the groups before it, at most */
    uint32_t *count;          /* as dedupe leaves them, in the device's memory */
    uint32_t *unique;         /* [places_max] */
    uint64_t *unique_ids;     /* [places_max] */
    uint32_t *unique_tables;  /* [places_max] */
    uint32_t *order, *starts; /* [places_max], [places_max + 1] */
    void **rows;              /* [places_max] of a number; NULL: none */
    void **known;             /* [places_max] likewise before this step, which is what goes forward */
    /* A CPU's calls number on where the call before has stopped: */
    uint32_t at;    /* places of the batch before the call's */
    uint32_t fresh; /* the first number whose row the call has looked up */
    uint32_t *slots;
    size_t slots_bytes;
    bool has_lost;  /* a CPU's: a row that predictions saw since the last step has expired */
    float *weights; /* [places_max] linear, of a number */
};

struct train;

/* Where rows lie, and how. Pointers in rows[] are to the vector, with its state behind it; the linear weight
 * is linear_at bytes from there; rows without a vector are the linear weight. */
struct train_rows {
    void *of;
    int32_t linear_at;
    enum row_format format;
    /* Memory that it takes; in both walks. May be NULL. */
    void (*take)(void *of, struct train_memory *memory);
    /* Whether two threads may do two groups at the same time. NULL: no. */
    bool (*are_apart)(void *of, const struct train *t);
    /* rows[u] of each number, by the rule of a batch (table.h, table_resolve_batch), and known[u]; on a CPU
     * has_lost, too. false: error. */
    bool (*resolve)(void *of, struct train *t, struct train_group *g, struct gpu_error *error);
    /* Without a sighting: known[u] of each number of a call. */
    bool (*find)(void *of, struct train *t, struct train_group *g, const struct train_input *in,
                 struct gpu_error *error);
    /* Rows that a call's events have were seen: no sightings, but they do not expire. Of a GPU. */
    bool (*refresh)(void *of, struct train *t, struct train_group *g, const struct train_input *in,
                    struct gpu_error *error);
};

/* One thread's memory for the way back by ids (distinct.c), of some of them at a time. */
struct train_distinct {
    float *sums;            /* of slopes, as many each as the widest layer has outputs */
    float *vectors, *grads; /* [dim] each */
    uint8_t *is_finite;
    void *scratch;
    size_t scratch_bytes;
};

struct train {
    const struct model_options *options; /* of the model, whose rates may change between steps */
    struct train_device device;
    struct train_rows rows;
    struct train_memory memory;
    struct train_input batch, call;
    struct train_group sets[FEED_SETS][MODEL_FIELDS_MAX]; /* the first alone on a CPU */
    struct train_group *groups;                           /* the set in work */
    uint32_t groups_count;
    struct net net;
    uint32_t events_max;
    uint32_t call_at; /* where in the matrices a call's events are; behind the batch: predictions serve it */
    bool is_forward;  /* the matrices have what predictions left there of all of the batch */
    bool is_numbered; /* groups have the numbers of all that is in the batch: its calls have left them */
    bool numbers_on;  /* several calls may; else one that is all of the batch */
    uint64_t steps;
    uint32_t epoch;         /* of the checkpoint being written to */
    uint32_t *number_event; /* of place column * capacity + event of the dense numbers */
    uint32_t *number_order, *number_starts, *number_count; /* of a step's places, by column */
    uint32_t *host_numbers, numbers_placed;                /* order and starts, for so many events; 0: none */
    void **number_rows;    /* [dense + 1] of the linear weights of numbers, the bias last */
    float *number_weights; /* [dense + 1] read of them */
    float *number_params;  /* [dense + 1][LINEAR_FLOATS] weights with state */
    float *logits;         /* [labels][events_max] */
    size_t logits_bytes;
    float *slopes;       /* [events_max] of one label; the network's output's */
    float *input_slopes; /* [events_max] the network's input's */
    struct train_scale scale;
    struct train_trial *trial; /* NULL: none */
    float *host_logits;        /* what comes back of a call's events */
    uint8_t *host_rejected;
    uint8_t *host_finite; /* [net_gradient_rows] */
    struct train_distinct distinct[SHARE_THREADS];
    void *scratch[SHARE_THREADS];
    size_t scratch_bytes;
    struct train_feed feed;
    struct train_graphs graphs;
    struct train_clock clock;
};

/* network: what follows from options. rows: see there. kernels: for first values. */
struct train_setup {
    const struct model_options *options;
    struct train_device device;
    struct train_rows rows;
    const struct kernels *kernels;
};

/* The memory that such a step takes, before it is made: `parts` of the device (of the host on a CPU), and of
 * the host, pinned where there is a GPU, what events come into. A GPU's figures need its kernels. */
struct train_plan {
    size_t parts[TRAIN_PARTS];
    size_t host;
};
void train_plan(const struct train_setup *setup, struct train_plan *plan);

/* NULL: error. `options` must stay. */
struct train *train_new(const struct train_setup *setup, struct gpu_error *error);
void train_free(struct train *t);

static inline uint32_t train_pending(const struct train *t)
{
    return t->batch.n;
}

/* Predicts events from .. to of a call (at most MODEL_ROWS_MAX): logits as learned, NaN where rejected. */
bool train_predict(struct train *t, const struct train_events *events, uint32_t from, uint32_t to,
                   double *logits, struct gpu_error *error);
/* On a GPU: the ids of those that would learn were seen, if they have rows. Waits. */
bool train_refresh(struct train *t, const struct train_events *events, uint32_t from, uint32_t to,
                   struct gpu_error *error);
/* Adds those that learn to the batch: they must fit. Their step predicts them again. */
void train_add(struct train *t, const struct train_events *events, uint32_t from, uint32_t to);
/* Both, but on a GPU nothing is waited for: the step that these events fill may be queued at once. Then,
 * before more come, train_read: what was predicted, as of train_predict, of events from .. of their call. */
bool train_learn(struct train *t, const struct train_events *events, uint32_t from, uint32_t to,
                 struct gpu_error *error);
bool train_read(struct train *t, uint32_t from, double *logits, struct gpu_error *error);
/* What was added, one event at least, makes its step; on a GPU it is queued. */
bool train_step(struct train *t, struct gpu_error *error);

/* Linear weights of the dense numbers, the bias last: [dense + 1][LINEAR_FLOATS], in host memory. They wait.
 */
bool train_save_numbers(struct train *t, float *floats, struct gpu_error *error);
bool train_load_numbers(struct train *t, const float *floats, struct gpu_error *error);

#endif
