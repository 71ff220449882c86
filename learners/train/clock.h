/*
 * How long a GPU was busy with a learner's work, measured by GPU events before and after the work that a step
 * or a call queues. On a CPU nothing is measured. One thread, the learner's.
 */
#ifndef LEAT_LEARNERS_TRAIN_CLOCK_H
#define LEAT_LEARNERS_TRAIN_CLOCK_H

#include "learners/train/memory.h"

enum { TRAIN_SPANS = 8 };

/* Spans that are queued and not counted yet; the oldest is at `first`. */
struct train_clock {
    struct gpu_event *from[TRAIN_SPANS], *to[TRAIN_SPANS];
    uint32_t first, count;
    double busy_ms;
};

bool train_clock_init(struct train_clock *clock, const struct train_device *device, struct gpu_error *error);
void train_clock_free(struct train_clock *clock, const struct train_device *device);
/* train_clock_begin and _end enclose queued work. If no span is free, the last one is extended. */
void train_clock_begin(struct train_clock *clock, const struct train_device *device);
void train_clock_end(struct train_clock *clock, const struct train_device *device);
/* Counts the spans that are finished. Does not wait. */
void train_clock_count(struct train_clock *clock, const struct train_device *device);

#endif
