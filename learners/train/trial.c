#include "learners/train/trial.h"

#include "core/base.h"
#include "core/mem.h"
#include "learners/train/train.h"

#include <stdlib.h>

struct train_trial *trial_new(const struct train *t, const struct net_options *shape, uint32_t together)
{
    if (!t->options->is_tried)
        return NULL;
    struct train_trial *trial = mem_calloc(1, sizeof(*trial));
    struct net_options fp32 = *shape;
    fp32.precision = ROW_FP32;
    fp32.may_go_by_ids = false;
    net_shape(&trial->net, &fp32, &t->device, together, together);
    return trial;
}

static size_t logits_of(const struct train *t)
{
    return (size_t)MAX(t->options->labels, 1U) * t->events_max;
}

void trial_take(struct train *t, struct train_memory *memory)
{
    struct train_trial *trial = t->trial;
    if (trial == NULL)
        return;
    net_take(&trial->net, memory);
    trial->logits = train_take(memory, TRAIN_ACTIVATIONS, logits_of(t), sizeof(*trial->logits));
    trial->is_rejected = train_take(memory, TRAIN_ACTIVATIONS, t->events_max, 1);
}

bool trial_start(struct train *t, const struct kernels *kernels, struct gpu_error *error)
{
    if (t->trial == NULL)
        return true;
    t->trial->host_logits = train_host_new(&t->device, logits_of(t) * sizeof(float), error);
    return t->trial->host_logits && net_start(&t->trial->net, kernels, error);
}

void trial_free(struct train *t)
{
    if (t->trial != NULL)
        train_host_free(&t->device, t->trial->host_logits);
    free(t->trial);
}

bool trial_runs(const struct train *t)
{
    return t->trial && !t->trial->score.is_over;
}

static void take_fp32(struct train *t)
{
    struct net *to = &t->net;
    const struct net *from = &t->trial->net;
    for (uint32_t p = 0; p < to->params_count; p++) {
        size_t weights = to->params[p].floats * sizeof(float);
        size_t state = opt_state_floats(to->options.optimizer, to->params[p].floats) * sizeof(float);
        train_copy(&t->device, to->params[p].w, from->params[p].w, weights);
        train_copy(&t->device, to->params[p].state, from->params[p].state, state);
    }
}

void trial_decide(struct train *t)
{
    if (!trial_runs(t) || t->trial->score.examples < t->options->trial_examples)
        return;
    struct trial_score *s = &t->trial->score;
    s->is_over = true;
    s->keeps_bf16 = s->bf16 <= s->fp32 * (1.0 + TRIAL_COST);
    if (s->keeps_bf16)
        return;
    take_fp32(t);
    t->net.options.precision = ROW_FP32;
}

bool trial_set(struct train *t, struct trial_score score)
{
    if (!(score.bf16 >= 0.0 && score.fp32 >= 0.0))
        return false;
    t->trial->score = score;
    t->net.options.precision = score.is_over && !score.keeps_bf16 ? ROW_FP32 : ROW_BF16;
    return true;
}
