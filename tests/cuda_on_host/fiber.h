/* Fibers: stacks that the host's one thread changes between, without the kernel's help. */
#ifndef CUDA_ON_HOST_FIBER_H
#define CUDA_ON_HOST_FIBER_H

#include <stddef.h>
#include <stdint.h>

struct model_fiber {
    void *place; /* the stack pointer while it does not run */
    char *stack; /* NULL: the stack that the process gave us */
    size_t bytes;
    void *fake_stack; /* ASan's */
    void *tsan;       /* TSan's */
    void *work;       /* the user's */
    uint64_t serial;
    model_fiber *next;
};

/* A new fiber; what it does first is entry(), which never returns. */
model_fiber *fiber_new(void (*entry)(model_fiber *self));
/* The caller's own stack as a fiber, to be switched from and back to. */
void fiber_adopt(model_fiber *host);
/* From the fiber that runs to another; returns when somebody switches back. */
void fiber_switch(model_fiber *from, model_fiber *to);

#endif
