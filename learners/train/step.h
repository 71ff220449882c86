/*
 * What step.c and once.c share: the way forward. Not for others.
 */
#ifndef LEARNERS_TRAIN_STEP_H
#define LEARNERS_TRAIN_STEP_H

#include "learners/train/train.h"

/* Events that go through the network together: from .. from + n of a batch or call, to the matrices' rows
 * from `first` on (a CPU; 0 on a GPU). by_number: places have the rows of their numbers; else each its own.
 */
struct piece {
    const struct train_input *in;
    uint32_t from, n, first;
    bool by_number;
};

/* Leaves values, slopes of the outputs and who is rejected behind. */
void train_forward(struct train *t, const struct piece *p);

/* Predicts as train_predict, by the matrices' rows from `first` on. */
bool train_predict_at(struct train *t, const struct train_events *events, uint32_t from, uint32_t to,
                      uint32_t first, double *logits, struct gpu_error *error);
/* No more events for the call: finds their rows. p: how they go forward. */
bool train_look_up_call(struct train *t, uint32_t first, struct piece *p, struct gpu_error *error);

/* When a step's rows are resolved: events go forward whom no prediction has served, where these are not
 * nearly all; is_forward: now the whole batch has. false: error. */
bool train_forward_left(struct train *t, bool *is_forward, struct gpu_error *error);

#endif
