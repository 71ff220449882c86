/*
 * On a GPU, events come on a stream of their own: their columns are copied and their ids get dense indices
 * while the step before them is still at work. On a CPU, where all is done at once, nothing is waited for.
 *
 *   the feed:   columns of a call -> indices | columns of a batch -> indices | columns of a call ...
 *   the work:                  the step before | rows, forward | rows, forward, backward, update ...
 *   the host:   ... reads the predictions before | queues the call, then its batch's step | reads ...
 *
 * Waiting: the work waits for the columns and indices that it uses; the feed, before it sends a batch, for
 * the step that has read the last one; the host for a call's predictions, and before it adds to a batch,
 * until the last batch has been sent. Indices go into two sets of groups (train.h) by turns. The feed need
 * not wait for the last user of a set: that is either a step before the one that the feed waits for, or was
 * queued before a call whose predictions have been read. One thread, the learner's.
 */
#ifndef LEAT_LEARNERS_TRAIN_FEED_H
#define LEAT_LEARNERS_TRAIN_FEED_H

#include "learners/train/memory.h"

enum { FEED_SETS = 2 };

enum feed_event {
    FEED_FED,       /* columns and indices are on the device */
    FEED_SENT,      /* a batch's columns have been copied from the host */
    FEED_STEPPED,   /* the last step is done */
    FEED_PREDICTED, /* a call's predictions have come to the host */
    FEED_EVENTS
};

struct train_feed {
    struct train_device device; /* its stream is the feed's */
    struct gpu_event *events[FEED_EVENTS];
    unsigned set; /* the set that was filled last; 0 on a CPU */
    void *scratch;
    size_t scratch_bytes;
};

bool feed_init(struct train_feed *feed, const struct train_device *work, struct gpu_error *error);
/* Waits for the feed's stream. */
void feed_free(struct train_feed *feed);

/* Records the event on a stream (of the work or the feed): reached when the work queued there
 * so far is done. */
void feed_reached(const struct train_feed *feed, const struct train_device *stream, enum feed_event event);
/* Work queued on the stream from now on waits until the event was reached; not if it never was recorded. */
void feed_await(const struct train_feed *feed, const struct train_device *stream, enum feed_event event);
/* The host waits for the event. False: the device has failed. */
bool feed_wait(const struct train_feed *feed, enum feed_event event, struct gpu_error *error);

#endif
