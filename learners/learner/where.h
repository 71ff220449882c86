/*
 * Where a learner runs: the option `device`, and the GPU that it opens. For all kinds that can learn on a GPU. The
 * thread that binds or owns the learner makes all calls.
 */
#ifndef LEAT_LEARNERS_LEARNER_WHERE_H
#define LEAT_LEARNERS_LEARNER_WHERE_H

#include "core/memory_plan.h"
#include "core/operator.h"
#include "kernels/gpu.h"

/* The option, and what it says; number: the GPU's. */
struct learner_where {
    struct expression option;
    enum { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA } kind;
    int number;
};

/* The row of an option table, for a member of this type. text: what `auto` does. */
#define LEARNER_WHERE_OPTION(structure, member, text)                                                        \
    OPTION_EXPRESSION(structure, member.option, "device", OPTION_RUNTIME,                                    \
                      "where the learner runs: `cpu`; `cuda(0)`: a GPU by its number; `auto`: " text)

/* A GPU that is open; api NULL: none is. */
struct learner_gpu {
    const struct gpu_api *api;
    struct gpu *gpu;
    struct gpu_stream *stream;
};

/* Reads the option; false after a diagnostic. */
bool learner_where_bind(struct operator_bind *bind, struct learner_where *where);
/* Where the option stands in the job; the job's beginning if it is not given. */
struct span learner_where_span(const struct learner_where *where);

/* Opens device `number`; false with `error` set, and nothing to close. learner_gpu_close: nothing may be open. */
bool learner_gpu_open(struct learner_gpu *gpu, int number, struct gpu_error *error);
void learner_gpu_close(struct learner_gpu *gpu);

/* At open: the diagnostic of a GPU that cannot be used. Returns false. */
bool learner_where_refuse(struct operator_context *context, const struct learner_where *where,
                          const struct gpu_error *error);
/* In process and snapshot: the device has failed, which ends the run with E0902. change: the options that may be
 * changed where it has too little memory, as "`a`, `b` or another option that the message names". */
void learner_where_failed(struct operator_context *context, const struct learner_where *where,
                          const struct gpu_error *error, const char *change);
/* In restore: adds the diagnostic of a device that has failed meanwhile. */
void learner_where_unrestored(struct operator_context *context, const struct learner_where *where,
                              const struct gpu_error *error, const char *change);
/* For `leat explain`: plan->where. is_open: on the GPU. error: why it is not, where `device` demands it; NULL: the
 * learner runs on the CPU. */
void learner_where_plan(struct memory_plan *plan, const struct learner_where *where, bool is_open,
                        const struct gpu_error *error);

#endif
