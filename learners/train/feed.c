#include "learners/train/feed.h"

bool feed_init(struct train_feed *f, const struct train_device *work, struct gpu_error *error)
{
    f->device = *work;
    if (work->api == NULL)
        return true;
    f->device.stream = work->api->stream(work->gpu, error);
    for (int i = 0; i < FEED_EVENTS && f->device.stream; i++)
        if (!(f->events[i] = work->api->event(work->gpu, error)))
            return false;
    return f->device.stream != NULL;
}

void feed_free(struct train_feed *f)
{
    const struct gpu_api *api = f->device.api;
    if (api == NULL || f->device.stream == NULL)
        return;
    api->stream_free(f->device.gpu, f->device.stream);
    for (int i = 0; i < FEED_EVENTS; i++)
        api->event_free(f->device.gpu, f->events[i]);
}

void feed_reached(const struct train_feed *f, const struct train_device *stream, enum feed_event event)
{
    if (stream->api != NULL)
        stream->api->record(f->events[event], stream->stream);
}

void feed_await(const struct train_feed *f, const struct train_device *stream, enum feed_event event)
{
    if (stream->api != NULL)
        stream->api->wait_event(stream->stream, f->events[event]);
}

bool feed_wait(const struct train_feed *f, enum feed_event event, struct gpu_error *error)
{
    return !f->device.api || f->device.api->wait_for(f->events[event], error);
}
