/* What the files of a training step share, mainly the forward pass. Not for other files. */
#ifndef LEAT_LEARNERS_TRAIN_STEP_H
#define LEAT_LEARNERS_TRAIN_STEP_H

#include "learners/train/train.h"

/* Events that go through the network together: from..from + n of a batch or call, in the matrices' rows from
 * `first` on (0 on a GPU). */
struct piece {
    const struct train_input *in;
    uint32_t from, n, first;
};

/* Whether the model has a linear part: the networks of DCN V2, DLRM and MMoE have none. */
static inline bool has_linear(const struct train *t)
{
    return !t->options->linear_is_off;
}

/* The linear weights of rows[]. at: byte offset of the linear weight from a pointer in rows[]. */
static inline struct batch_weights weights_of(const struct train *t, void *const *rows, int32_t at)
{
    return (struct batch_weights){.rows = rows,
                                  .at = at,
                                  .is_double = t->options->linear_is_double,
                                  .kind = t->options->linear.kind,
                                  .params = t->options->linear.params,
                                  .ftrl = t->options->ftrl};
}

static inline const uint32_t *offsets_of(const struct train_group *g, const struct train_input *in)
{
    return in->there.offsets != NULL ? in->there.offsets + train_input_offsets(in, g->first) : NULL;
}

static inline int32_t linear_at(const struct train *t, const struct train_group *g)
{
    return g->has_vectors ? t->rows.linear_at : 0;
}

static inline uint32_t places_of(const struct train_group *g, const struct train_input *in)
{
    return train_input_places(in, g->first, g->fields);
}

static inline struct batch_interaction interaction_of(const struct train *t, const struct piece *p)
{
    return (struct batch_interaction){.vectors = net_values(&t->net, t->net.input) + t->net.vectors_from,
                                      .bags = p->n,
                                      .fields = t->options->vectors,
                                      .d = t->options->dim,
                                      .stride = t->net.input->stride};
}

static inline void interact(struct train *t, struct batch_interaction *a)
{
    if (t->options->interaction != NULL)
        t->options->interaction->batch(t->device.kernels, a, t->device.stream);
}

/* A piece's gradients by the network's outputs, or by the logits where there is no network. */
static inline float *out_gradients_of(const struct train *t, const struct piece *p)
{
    return t->out_gradients + ((size_t)p->first + p->from) * (t->net.output ? t->net.output->stride : 1);
}

/* Whether another thread may help, and n events are enough for two. */
static inline bool train_shares(const struct train *t, uint32_t n)
{
    return t->net.team != NULL && n >= BATCH_CHUNK;
}

/* The backward pass by distinct ids (distinct.c), if a layer uses it. distinct_take: takes its memory, in
 * both walks (memory.h). distinct_update: computes these layers' gradients for a group's ids and updates the
 * ids' vectors; called on the owner's or the helper's thread, as `who` says (share.h). */
void distinct_take(struct train *t, struct train_memory *memory);
void distinct_update(struct train *t, const struct train_group *g, struct batch_update *update, unsigned who);

/* Computes values, gradients by the outputs, and is_rejected, of a piece. */
void train_forward(struct train *t, const struct piece *p);

#endif
