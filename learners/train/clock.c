#include "learners/train/clock.h"

#include <math.h>

bool train_clock_init(struct train_clock *c, const struct train_device *d, struct gpu_error *error)
{
    for (int i = 0; i < TRAIN_SPANS && d->api; i++) {
        c->from[i] = d->api->event(d->gpu, error);
        c->to[i] = c->from[i] != NULL ? d->api->event(d->gpu, error) : NULL;
        if (c->to[i] == NULL)
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

void train_clock_begin(struct train_clock *c, const struct train_device *d)
{
    if (d->api == NULL || c->count == TRAIN_SPANS)
        return;
    d->api->record(c->from[(c->first + c->count) % TRAIN_SPANS], d->stream);
    c->count++;
}

void train_clock_end(struct train_clock *c, const struct train_device *d)
{
    if (d->api != NULL)
        d->api->record(c->to[(c->first + c->count - 1) % TRAIN_SPANS], d->stream);
}

void train_clock_count(struct train_clock *c, const struct train_device *d)
{
    for (; c->count > 0; c->count--, c->first = (c->first + 1) % TRAIN_SPANS) {
        float ms = d->api->elapsed_ms(c->from[c->first], c->to[c->first]);
        if (isnan(ms))
            return;
        c->busy_ms += (double)ms;
    }
}
