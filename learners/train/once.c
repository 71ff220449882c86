/* An event goes forward once on a CPU: what its prediction left in the matrices serves its step (train.h). */
#include "learners/train/step.h"

#include "core/base.h"

void train_add(struct train *t, const struct train_events *events, uint32_t from, uint32_t to)
{
    uint32_t place = t->batch.n;
    train_input_add(&t->batch, events, from, to);
    if (t->is_forward)
        memset(t->is_forward + place, 0, t->batch.n - place);
}

/* What one event left behind on its way forward, to another's place. */
static void move_event(struct train *t, uint32_t from, uint32_t to)
{
    uint32_t stride = t->net.output ? t->net.output->stride : 1;
    net_move(&t->net, from, to);
    memcpy(t->slopes + (size_t)to * stride, t->slopes + (size_t)from * stride, stride * sizeof *t->slopes);
}

/* Where all of a call's events learn, they go forward in their places of the batch. */
bool train_learn(struct train *t, const struct train_events *events, uint32_t from, uint32_t to,
                 double *logits, struct gpu_error *error)
{
    uint32_t n = to - from, place = t->batch.n;
    bool serves = t->is_forward && !trial_runs(t);
    bool all_learn = memchr(events->learns + from, 0, n) == NULL;
    uint32_t first = serves && all_learn ? place : t->call_at;
    if (!train_predict_at(t, events, from, to, first, logits, error))
        return false;
    train_add(t, events, from, to);
    for (uint32_t i = 0; i < n && serves; i++) {
        if (!events->learns[from + i])
            continue;
        if (first + i != place)
            move_event(t, first + i, place);
        t->is_forward[place++] = !t->call.host.is_rejected[i]; /* rejected: the step judges it anew */
    }
    return true;
}

/* Events whose predictions did not see the rows that this step has. */
static void look_for_changes(struct train *t, const struct train_group *g)
{
    const uint32_t *event = t->batch.host.event + train_input_first(&t->batch, g->first);
    for (uint32_t u = 0; u < g->count[0]; u++) {
        for (uint32_t i = g->starts[u]; g->has_changed[u] && i < g->starts[u + 1]; i++)
            t->is_forward[event[g->order[i]]] = 0;
    }
}

/* Some of the batch's events go forward as a call. */
static bool forward_again(struct train *t, const uint32_t *events, uint32_t n, struct gpu_error *error)
{
    struct train_input *in = &t->batch, *some = &t->call;
    some->n = 0;
    for (uint32_t i = 0; i < n; i++)
        train_input_copy(some, in, events[i]);
    struct piece p;
    if (!train_look_up_call(t, t->call_at, &p, error))
        return false;
    train_forward(t, &p);
    for (uint32_t i = 0; i < n; i++) {
        move_event(t, t->call_at + i, events[i]);
        in->host.is_rejected[events[i]] = some->host.is_rejected[i];
    }
    return true;
}

bool train_forward_left(struct train *t, bool *is_forward, struct gpu_error *error)
{
    uint32_t n = t->batch.n, left = n, events[MODEL_ROWS_MAX], count = 0;
    *is_forward = false;
    if (!t->is_forward)
        return true;
    for (uint32_t i = 0; i < t->groups_count; i++)
        look_for_changes(t, &t->groups[i]);
    for (uint32_t e = 0; e < n; e++)
        left -= t->is_forward[e];
    if (left > n - n / 8) /* all at once is shorter */
        return true;
    for (uint32_t e = 0; e < n && left > 0; e++) {
        if (t->is_forward[e])
            continue;
        events[count++] = e;
        left--;
        if (count < MODEL_ROWS_MAX && left > 0)
            continue;
        if (!forward_again(t, events, count, error))
            return false;
        count = 0;
    }
    *is_forward = true;
    return true;
}
