/* The rows of values that stand beside items, in a step: places of numbers, and one optimizer step for each
 * distinct one. */
#ifndef LEAT_LEARNERS_SEQUENTIAL_VALUES_H
#define LEAT_LEARNERS_SEQUENTIAL_VALUES_H

#include "learners/items/catalogue.h"
#include "learners/options.h"

struct values;

/* dim: floats of a row. The caller frees the result with values_free, which takes NULL. */
struct values *values_new(const struct batch_kernels *kernels, uint32_t dim);
void values_free(struct values *v);

/* A step's places, at most `most`: each is a number plus 1 (0: absent, no place) of a catalogue, and the row of the
 * gradients that belongs to it. */
void values_begin(struct values *v, size_t most);
void values_add(struct values *v, uint32_t number, uint32_t gradient);
/* One step of each distinct number's row, of the sum of its gradients [..][dim], in the order of the places. Returns how
 * many rows stayed as they were because their gradient is not finite. */
uint32_t values_update(struct values *v, struct catalogue *catalogue, const float *gradients,
                       const struct optimizer_options *optimizer);
/* The same where all places are of one row: its step, of `scale` times the sum. row: in fp32, the optimizer's state behind
 * it (batch_update of batch.h). */
uint32_t values_update_row(struct values *v, float *row, const float *gradients, float scale,
                           const struct optimizer_options *optimizer);

#endif
