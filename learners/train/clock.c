#include "learners/train/clock.h"

#include <math.h>

bool train_clock_init(struct train_clock *c, const struct train_device *d, struct gpu_error *error)
{
    for (int i = 0; i < TRAIN_SPANS && d->api; i++) {
        c->from[i] = d->api->event(d->gpu, error);
        c->to[i] = c->from[i] ? d->api->event(d->gpu, error) : NULL;
        if (!c->to[i])
            return false;
    }
    return true;
}

void train_clock_free(struct train_clock *c, const struct train_device *d)
{
    for (int i = 0; i < TRAIN_SPANS && d->api; i++) {
        d->api->event_free(d->gpu, c->from[i]);
        d->api->event_free(d->gpu, c->to[i]);
    }
}

void train_clock_begin(struct train_clock *c, const struct train_device *d, enum train_span span)
{
    if (d->api && !c->is_open[span]) /* of several steps between two waits, all */
        d->api->record(c->from[span], d->stream);
}

void train_clock_end(struct train_clock *c, const struct train_device *d, enum train_span span)
{
    if (d->api)
        d->api->record(c->to[span], d->stream);
    c->is_open[span] = d->api != NULL;
}

void train_clock_count(struct train_clock *c, const struct train_device *d)
{
    for (int i = 0; i < TRAIN_SPANS; i++) {
        if (!c->is_open[i])
            continue;
        float ms = d->api->elapsed_ms(c->from[i], c->to[i]);
        c->busy_ms += isnan(ms) ? 0.0 : (double)ms;
        c->is_open[i] = false;
    }
}
