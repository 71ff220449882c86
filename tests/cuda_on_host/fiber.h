/* Fibers: stacks between which a thread of the host switches without the kernel's help. */
#ifndef LEAT_TESTS_CUDA_ON_HOST_FIBER_H
#define LEAT_TESTS_CUDA_ON_HOST_FIBER_H

#include <stddef.h>
#include <stdint.h>

struct model_fiber {
    void *place; /* the stack pointer while the fiber does not run */
    char *stack; /* NULL: the thread's own stack, from the process */
    size_t bytes;
    void *fake_stack; /* ASan's */
    void *tsan;       /* TSan's */
    void *work;       /* for the user of the fiber */
    uint64_t serial;
    model_fiber *next;
};

/* Makes a fiber that begins with entry(), which must never return. */
model_fiber *fiber_new(void (*entry)(model_fiber *self));
/* Makes the caller's own stack a fiber, to be switched from and back to. */
void fiber_adopt(model_fiber *host);
/* Switches from the running fiber to another; returns when a fiber switches back. */
void fiber_switch(model_fiber *from, model_fiber *to);

#endif
