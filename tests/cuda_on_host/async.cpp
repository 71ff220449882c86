/* Asynchronous copies of kernels/cuda/async.cuh: a copy is performed when its thread waits for it. */
#include <stdlib.h>

#include "tests/cuda_on_host/machine.h"
#include "tests/cuda_on_host/sanitizers.h"

struct model_copy {
    uint4 *to;
    const uint4 *from;
    unsigned group;
};

void model_async_copy(uint4 *to, const uint4 *from)
{
    model_thread *self = scheduler_self();
    if (self->copies == self->copies_room) {
        const tsan_as launcher(scheduler_launcher()); /* TSan takes an allocation for a write of its thread */
        self->copies_room = self->copies_room == 0 ? 8 : 2 * self->copies_room;
        self->copy = (model_copy *)realloc(self->copy, self->copies_room * sizeof(*self->copy));
    }
    self->copy[self->copies++] = {to, from, self->groups};
}

void model_async_commit(void)
{
    scheduler_self()->groups++;
}

bool model_async_landed(unsigned groups, uint4 **to, const uint4 **from)
{
    model_thread *self = scheduler_self();
    if (self->copies_landed == self->copies ||
        self->copy[self->copies_landed].group + groups >= self->groups) {
        if (self->copies_landed > 0) {
            memmove(self->copy, self->copy + self->copies_landed,
                    (self->copies - self->copies_landed) * sizeof(*self->copy));
        }
        self->copies -= self->copies_landed;
        self->copies_landed = 0;
        return false;
    }
    *to = self->copy[self->copies_landed].to;
    *from = self->copy[self->copies_landed].from;
    self->copies_landed++;
    return true;
}

void async_returned(model_thread *thread)
{
    if (thread->copies > 0) {
        model_report(thread, "has returned, and %u of its asynchronous copies were not waited for",
                     thread->copies);
    }
    thread->groups = 0;
}
