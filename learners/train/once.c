/* On a CPU the forward pass of an event is made once: the values its prediction left in the matrices serve
 * its step (train.h). */
#include "learners/train/step.h"

#include "core/base.h"

void train_add(struct train *t, const struct train_events *events, uint32_t from, uint32_t to)
{
    struct gpu_error sticky; /* the device's error is sticky, and the next step reports it */
    (void)feed_wait(&t->feed, FEED_SENT, &sticky);
    train_input_add(&t->batch, events, from, to);
    t->is_forward = t->is_numbered = false;
}

/* Copies the forward pass's results of one event to another place. */
static void move_event(struct train *t, uint32_t from, uint32_t to)
{
    uint32_t stride = t->net.output ? t->net.output->stride : 1;
    net_move(&t->net, from, to);
    memcpy(t->slopes + (size_t)to * stride, t->slopes + (size_t)from * stride, stride * sizeof(*t->slopes));
}

/* If all events of a call learn, their forward pass is made in their places of the batch. */
bool train_learn(struct train *t, const struct train_events *events, uint32_t from, uint32_t to,
                 struct gpu_error *error)
{
    uint32_t n = to - from, place = t->batch.n;
    t->is_forward = t->call_at > 0 && !trial_runs(t) && (t->is_forward || place == 0);
    bool all_learn = memchr(events->learns + from, 0, n) == NULL;
    uint32_t first = t->is_forward && all_learn ? place : t->call_at;
    t->is_numbered = all_learn && (place == 0 || (t->numbers_on && t->is_numbered));
    if (!train_predict_at(t, events, from, to, first, error) || !feed_wait(&t->feed, FEED_SENT, error))
        return false;
    train_input_add(&t->batch, events, from, to);
    for (uint32_t i = 0; i < n && t->is_forward; i++) {
        if (!events->learns[from + i])
            continue;
        if (first + i != place)
            move_event(t, first + i, place);
        t->batch.host.is_rejected[place++] = t->call.host.is_rejected[i];
    }
    return true;
}
