/* The forward pass: rows of ids, the linear part, the interaction, the network, the loss (step.h). */
#include "learners/train/step.h"

#include "core/base.h"

/* Fields of a group whose places lie together: all fields for a whole batch, one field for a part of it. */
struct some_fields {
    uint32_t first, count; /* fields of the group: first .. first + count */
    const uint32_t *indices, *offsets;
};

/* Sets *fields to the fields of the group that follow; zeros before the first call. Returns false behind the
 * last field. indices: dense index of each place, from the first place of these fields on; offsets NULL: a
 * bag is one place. */
static bool next_fields(const struct train_group *g, const struct piece *p, struct some_fields *fields)
{
    const uint32_t *offsets = offsets_of(g, p->in);
    uint32_t first = fields->first + fields->count;
    size_t bag = (size_t)first * p->in->n + p->from;
    *fields = (struct some_fields){.first = first,
                                   .count = p->n == p->in->n ? g->fields : 1,
                                   .indices = offsets != NULL ? g->indices : g->indices + g->at + bag,
                                   .offsets = offsets != NULL ? offsets + bag : NULL};
    return first < g->fields;
}

static void gather_fields(struct train *t, const struct train_group *g, const struct piece *p,
                          const struct some_fields *fields)
{
    struct batch_gather_pool a = {.rows = (const void *const *)g->known,
                                  .indices = fields->indices,
                                  .offsets = fields->offsets,
                                  .bags = fields->count * p->n,
                                  .d = t->net.options.dim,
                                  .fields = fields->count,
                                  .stride = t->net.input->stride,
                                  .format = t->rows.format,
                                  .is_mean = p->in->has_lists,
                                  .out = net_values(&t->net, t->net.input) + t->net.vectors_from +
                                         ((size_t)g->first + fields->first) * t->net.options.dim};
    t->device.kernels->gather_pool(&a, t->device.stream);
}

static void read_weights(struct train *t, const struct train_group *g, const struct piece *p)
{
    uint32_t count; /* CPU: indices that this call added */
    struct batch_weights_read a = {.of = weights_of(t, g->known + g->fresh, linear_at(t, g)),
                                   .count = g->count,
                                   .n = places_of(g, p->in),
                                   .out = g->weights + g->fresh};
    if (g->fresh > 0)
        count = g->count[0] - g->fresh, a.count = &count;
    t->device.kernels->weights_read(&a, t->device.stream);
}

struct gathered {
    struct train *t;
    const struct piece *p;
};

/* Copies vectors into the matrix, and reads the linear weights of all indices. */
static void gather_group(void *of, uint32_t group, unsigned who)
{
    (void)who;
    const struct gathered *w = of;
    const struct train_group *g = &w->t->groups[group];
    for (struct some_fields fields = {0}; g->has_vectors && next_fields(g, w->p, &fields);)
        gather_fields(w->t, g, w->p, &fields);
    if (has_linear(w->t) && w->p->from == 0)
        read_weights(w->t, g, w->p);
}

static void read_dense_weights(struct train *t)
{
    uint32_t n = t->options->dense + 1;
    struct batch_weights_read a = {
        .of = weights_of(t, t->dense_rows, 0), .count = t->dense_count, .n = n, .out = t->dense_weights};
    t->device.kernels->weights_read(&a, t->device.stream);
}

/* Adds the linear part of some fields to the logits; with the first fields also the bias and the
 * dense features. */
static void add_linear(struct train *t, const struct train_group *g, const struct piece *p,
                       const struct some_fields *fields, bool is_first)
{
    float *logits = t->logits + p->first;
    struct batch_weights_forward a = {.start = is_first ? NULL : logits,
                                      .base = t->options->bias,
                                      .bias = is_first ? t->dense_weights + t->options->dense : NULL,
                                      .dense = p->in->there.dense + p->from,
                                      .dense_weights = t->dense_weights,
                                      .dense_stride = p->in->capacity,
                                      .dense_count = is_first ? t->options->dense : 0,
                                      .is_rejected = p->in->there.is_rejected + p->from,
                                      .weights = g != NULL ? g->weights : NULL,
                                      .indices = fields->indices,
                                      .offsets = fields->offsets,
                                      .fields = fields->count,
                                      .n = p->n,
                                      .logits = logits};
    t->device.kernels->weights_forward(&a, t->device.stream);
}

static void forward_linear(struct train *t, const struct piece *p)
{
    bool is_first = true;
    read_dense_weights(t);
    for (uint32_t i = 0; i < t->groups_count; i++) {
        const struct train_group *g = &t->groups[i];
        for (struct some_fields fields = {0}; next_fields(g, p, &fields); is_first = false)
            add_linear(t, g, p, &fields, is_first);
    }
    if (is_first)
        add_linear(t, NULL, p, &(struct some_fields){0}, true);
}

static void pack_dense(struct train *t, const struct piece *p)
{
    const struct model_options *o = t->options;
    struct batch_pack a = {.columns = p->in->there.dense + p->from,
                           .columns_stride = p->in->capacity,
                           .count = o->dense,
                           .n = p->n,
                           .is_rejected = p->in->there.is_rejected + p->from,
                           .out = net_values(&t->net, t->net.input) + t->net.vectors_from +
                                  (size_t)o->vectors * t->net.options.dim,
                           .stride = t->net.input->stride};
    if (o->dense > 0 && o->network != NULL)
        t->device.kernels->pack(&a, t->device.stream);
}

/* Predictions of a piece by a network, together with the linear part and the interaction. */
struct judged {
    const struct net *net;
    float *logits;    /* [labels][events_max] */
    float *gradients; /* [n], with the stride of the network's output */
    uint8_t *is_rejected;
};

/* Computes logits and is_rejected (events without a finite logit), and the gradients by the
 * network's outputs. */
static void judge(struct train *t, const struct piece *p, const struct judged *by)
{
    const struct model_options *o = t->options;
    const struct train_columns *there = &p->in->there;
    const struct net_matrix *out = by->net->output; /* NULL: there is no network */
    for (uint32_t l = 0; l < MAX(o->labels, 1U); l++) {
        struct batch_loss a = {.logits = t->logits + (size_t)l * t->events_max + p->first,
                               .more = out != NULL ? net_values(by->net, out) + l : NULL,
                               .more_stride = out != NULL ? out->stride : 0,
                               .labels = there->labels + (size_t)l * p->in->capacity + p->from,
                               .weights = there->weights + p->from,
                               .class_weights = {1.0F, 1.0F},
                               .is_squared = o->loss == LOSS_SQUARED,
                               .has_fake_negatives = o->has_fake_negatives,
                               .scale = 1.0F,
                               .n = p->n,
                               .sums = by->logits + (size_t)l * t->events_max,
                               .gradients = by->gradients + l,
                               .gradients_stride = out != NULL ? out->stride : 1,
                               .is_rejected = by->is_rejected};
        t->device.kernels->loss(&a, t->device.stream);
    }
}

/* Call before judge() overwrites the partial sums in t->logits with the final logits. */
static void judge_trial(struct train *t, const struct piece *p)
{
    struct train_trial *trial = t->trial;
    /* the trial's copy of the input matrix: its layers may write to it, and its rejected events are masked */
    struct net_matrix *in = trial->net.input;
    train_copy(&t->device, in->values, net_values(&t->net, t->net.input),
               (size_t)p->n * in->stride * sizeof(*in->values));
    net_forward(&trial->net, p->n);
    train_copy(&t->device, trial->is_rejected, p->in->there.is_rejected + p->from, p->n);
    judge(t, p,
          &(struct judged){&trial->net, trial->logits, trial->net.output->gradients, trial->is_rejected});
}

void train_forward(struct train *t, const struct piece *p)
{
    t->net.first = p->first;
    share_apart(train_shares(t, p->n) ? t->net.team : NULL, t->groups_count, gather_group,
                &(struct gathered){t, p});
    if (has_linear(t))
        forward_linear(t, p);
    else
        train_fill(&t->device, t->logits, 0, t->logits_bytes);
    pack_dense(t, p);
    struct batch_interaction a = interaction_of(t, p);
    a.logits = t->logits + p->first, a.adds = true;
    interact(t, &a);
    net_forward(&t->net, p->n);
    if (trial_runs(t))
        judge_trial(t, p);
    judge(t, p,
          &(struct judged){&t->net, t->logits + p->first, out_gradients_of(t, p),
                           p->in->there.is_rejected + p->from});
    t->net.first = 0;
}
