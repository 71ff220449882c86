#include "tests/cuda_on_host/fiber.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda_on_host/sanitizers.h"

enum {
    STACK_BYTES = 128 << 10, /* pages are used only as far as touched; ASan's frames are large */
    /* Stacks begin at different places of their pages: at the same one, few of them would be in the CPU's cache. */
    STACK_TOPS = 32,
    STACK_TOP_BYTES = 128,
};

static void (*fiber_entry)(model_fiber *self);
static model_fiber *fiber_from, *fiber_to; /* of the switch in progress */

/* Saves the callee-saved registers, and the stack pointer in *from; restores those that `to` saved. */
extern "C" void model_switch_stack(void **from, void *to);

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl model_switch_stack\n"
        ".hidden model_switch_stack\n"
        ".type model_switch_stack, @function\n"
        "model_switch_stack:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size model_switch_stack, .-model_switch_stack\n");
enum { SAVED_WORDS = 6, RETURN_WORD = 6, FRAME_WORDS = 8 };
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl model_switch_stack\n"
        ".hidden model_switch_stack\n"
        ".type model_switch_stack, %function\n"
        "model_switch_stack:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size model_switch_stack, .-model_switch_stack\n");
enum { RETURN_WORD = 11, FRAME_WORDS = 20 };
#else
#error "fiber.cpp knows the calling conventions of x86-64 and aarch64"
#endif

/* After a switch, on the new stack: ASan tells where the old stack is, which is unknown for the
 * host's own stack. */
static void fiber_arrived(void *fake_stack)
{
#ifdef MODEL_ASAN
    const void *stack;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fake_stack, &stack, &bytes);
    fiber_from->stack = (char *)(uintptr_t)stack;
    fiber_from->bytes = bytes;
#else
    (void)fake_stack;
#endif
}

/* The begin of a fiber: its first switch returns to here. */
static void fiber_begin(void)
{
    fiber_arrived(NULL);
    fiber_entry(fiber_to);
    abort();
}

model_fiber *fiber_new(void (*entry)(model_fiber *self))
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    model_fiber *fiber = (model_fiber *)calloc(1, sizeof(*fiber));
    char *memory = (char *)mmap(NULL, STACK_BYTES + page, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fiber == NULL || memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) {
        fprintf(stderr, "cuda_on_host: no memory for the stack of one more thread\n");
        abort();
    }
    fiber_entry = entry;
    fiber->stack = memory + page;
    fiber->bytes = STACK_BYTES;
    static unsigned fibers;
    void **top = (void **)(void *)(fiber->stack + STACK_BYTES - fibers++ % STACK_TOPS * STACK_TOP_BYTES);
    top[RETURN_WORD - FRAME_WORDS] = (void *)fiber_begin;
    fiber->place = top - FRAME_WORDS;
#ifdef MODEL_TSAN
    fiber->tsan = __tsan_create_fiber(0);
#endif
    return fiber;
}

void fiber_adopt(model_fiber *host)
{
    *host = model_fiber{};
#ifdef MODEL_TSAN
    host->tsan = __tsan_get_current_fiber();
#endif
}

void fiber_switch(model_fiber *from, model_fiber *to)
{
    fiber_from = from;
    fiber_to = to;
#ifdef MODEL_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->bytes);
#endif
#ifdef MODEL_TSAN
    __tsan_switch_to_fiber(to->tsan, __tsan_switch_to_fiber_no_sync);
#endif
    model_switch_stack(&from->place, to->place);
    fiber_arrived(from->fake_stack);
}
