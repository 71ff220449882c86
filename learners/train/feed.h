/*
 * On a GPU, events come on a stream of their own: their columns are copied and their ids numbered while the
 * step before them is still at work. On a CPU, where all is done at once, nothing is waited for.
 *
 *   the feed:       columns of a call -> numbers | columns of a batch -> numbers     columns of a call ...
 *   the work:                      the step before | rows, forward | rows, forward, back, update ...
 *   the host:       ... reads the predictions before | queues the call, then its batch's step | reads ...
 *
 * Who waits for whom: the work for what it is fed with; the feed, before it sends a batch, for the step that
 * has read the last one; the host for a call's predictions, and before it adds to a batch, until the last one
 * has been sent. Numbers go into two sets by turns: who used a set last is either a step before the one that
 * the feed waits for, or stood before a call whose predictions have been read.
 * One thread, the learner's.
 */
#ifndef LEARNERS_TRAIN_FEED_H
#define LEARNERS_TRAIN_FEED_H

#include "learners/train/memory.h"

enum { FEED_SETS = 2 };

enum feed_event {
    FEED_FED,       /* columns and numbers are there */
    FEED_SENT,      /* a batch's columns have left the host */
    FEED_STEPPED,   /* the last step is done */
    FEED_PREDICTED, /* a call's predictions have come to the host */
    FEED_EVENTS
};

struct train_feed {
    struct train_device device; /* whose stream is the feed's */
    struct gpu_event *events[FEED_EVENTS];
    unsigned set; /* that was numbered last; 0 on a CPU */
    void *scratch;
    size_t scratch_bytes;
};

bool feed_init(struct train_feed *feed, const struct train_device *work, struct gpu_error *error);
/* Waits for it. */
void feed_free(struct train_feed *feed);

/* The work, the feed: has come so far. */
void feed_reached(const struct train_feed *feed, const struct train_device *stream, enum feed_event event);
/* What is queued on it from now on waits until that was reached; at once if it never was. */
void feed_await(const struct train_feed *feed, const struct train_device *stream, enum feed_event event);
/* The host waits. false: the device has failed. */
bool feed_wait(const struct train_feed *feed, enum feed_event event, struct gpu_error *error);

#endif
