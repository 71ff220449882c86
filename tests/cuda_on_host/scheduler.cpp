/* The order of threads. A few blocks of a grid are in place at a time. Their ready threads stand in a ring,
 * and the seed decides from where the next one is taken. A thread that has not begun has no stack: it begins
 * on the stack of the thread before it if that has ended, so that a kernel without waits costs one function
 * call for each thread. */
#include "tests/cuda_on_host/machine.h"

#include <stdarg.h>
#include <stdlib.h>

#include "tests/cuda_on_host/sanitizers.h"
#include "tests/cuda_on_host/testing.h"

/* TSan's clocks have an entry for each fiber, so each further thread slows all of them down; and TSan sees no
 * order between blocks even if they are never in place together. */
#ifdef MODEL_TSAN
enum { BLOCKS_AT_ONCE = 2 };
#else
enum { BLOCKS_AT_ONCE = 4 };
#endif
enum {
    THREADS_AT_ONCE = 4096,
    RING = THREADS_AT_ONCE,
    FIBERS_UNDER_TSAN = 97, /* at least */
};

/* From where the next thread is taken: each order makes some bugs more likely than the others. */
enum order { ORDER_RANDOM, ORDER_OLDEST, ORDER_NEWEST, ORDERS };

static struct {
    model_launch_now *launch;
    model_thread *ring[RING]; /* the ready threads */
    uint32_t head, count;
    order take;
    bool is_backward;
    uint32_t yield_one_in;
    uint64_t blocks, blocks_begun, block_step, block_first, live;
    uint64_t steps_in_vain, serial, launches;
    model_block *places[BLOCKS_AT_ONCE];
    model_fiber host, *now, *used_fibers, *free_fibers[THREADS_AT_ONCE + 1];
    uint32_t fibers, fibers_free;
    char begin_sync, end_sync;
} machine;

model_thread_place *model_now;

const model_launch_now *scheduler_launch(void)
{
    return machine.launch;
}

void *scheduler_launcher(void)
{
    return machine.host.tsan;
}

/* --- The ring --- */
static model_thread **ring_at(uint32_t i)
{
    return &machine.ring[(machine.head + i) % RING];
}

static model_thread *ring_take(void)
{
    uint32_t i = 0;
    switch (machine.take) {
    case ORDER_OLDEST: break;
    case ORDER_NEWEST: i = machine.count - 1; break;
    default: i = random_below(&machine.launch->random, machine.count); break;
    }
    model_thread *thread = *ring_at(i);
    if (machine.take == ORDER_NEWEST) {
        machine.count--;
        return thread;
    }
    *ring_at(i) = *ring_at(0);
    machine.head = (machine.head + 1) % RING;
    machine.count--;
    return thread;
}

void scheduler_ready(model_thread *thread)
{
    thread->state = MODEL_READY;
    *ring_at(machine.count++) = thread;
}

/* Makes the thread ready, but at the other end of the ring: a thread that only lets others run first must not
 * be next. */
static void ring_put_last(model_thread *thread)
{
    if (machine.take != ORDER_NEWEST) {
        scheduler_ready(thread);
        return;
    }
    thread->state = MODEL_READY;
    machine.head = (machine.head + RING - 1) % RING;
    machine.count++;
    *ring_at(0) = thread;
}

/* --- Blocks --- */
static void place_block(model_block *block)
{
    const model_launch_now *launch = machine.launch;
    const uint64_t i = (machine.block_first + machine.blocks_begun++ * machine.block_step) % machine.blocks;
    const dim3 grid = launch->grid, size = launch->block;
    block->index = {(unsigned)(i % grid.x), (unsigned)(i / grid.x % grid.y), (unsigned)(i / grid.x / grid.y)};
    block->serial = ++machine.serial;
    block->returned = block->arrived = 0;
    for (unsigned n = 0; n < block->size; n++) {
        const unsigned number = machine.is_backward ? block->size - 1 - n : n;
        model_thread *thread = &block->threads[number];
        thread->index = {number % size.x, number / size.x % size.y, number / size.x / size.y};
        thread->fiber = NULL;
        thread->waiting = thread->together = thread->returned = 0;
        scheduler_ready(thread);
    }
}

static model_block *make_block(void)
{
    const model_launch_now *launch = machine.launch;
    model_block *block = (model_block *)calloc(1, sizeof(*block));
    block->block_dim = launch->block;
    block->grid_dim = launch->grid;
    block->size = launch->block.x * launch->block.y * launch->block.z;
    block->threads = (model_thread *)calloc(block->size, sizeof(*block->threads));
    for (unsigned n = 0; n < block->size; n++) {
        block->threads[n].block = block;
        block->threads[n].in = block;
        block->threads[n].number = n;
    }
    return block;
}

static void free_block(model_block *block)
{
    shared_free(block);
    for (unsigned n = 0; n < block->size; n++) {
        free(block->threads[n].copy);
    }
    free(block->threads);
    free(block);
}

/* --- Turns --- */
static void fiber_main(model_fiber *self);

static void switch_to(model_fiber *fiber)
{
    model_fiber *from = machine.now;
    if (fiber != from) {
        machine.now = fiber;
        fiber_switch(from, fiber);
    }
}

/* A fiber for a thread to begin on. TSan takes all that one fiber does as ordered: to let it see races
 * between threads, these begin on random ones of many fibers. */
static model_fiber *take_fiber(void)
{
#ifdef MODEL_TSAN
    if (machine.fibers_free > 0 && machine.fibers >= FIBERS_UNDER_TSAN) {
        const uint32_t i = random_below(&machine.launch->random, machine.fibers_free);
        model_fiber *chosen = machine.free_fibers[i];
        machine.free_fibers[i] = machine.free_fibers[--machine.fibers_free];
        return chosen;
    }
#else
    if (machine.fibers_free > 0) {
        return machine.free_fibers[--machine.fibers_free];
    }
#endif
    machine.fibers++;
    const tsan_as launcher(machine.host.tsan);
    return fiber_new(fiber_main);
}

/* Lets a thread continue, or begin on a fiber of its own. */
static void run_thread(model_thread *thread)
{
    if (thread->fiber == NULL) {
        thread->fiber = take_fiber();
        thread->fiber->work = thread;
    }
    model_now = thread;
    switch_to(thread->fiber);
}

[[noreturn]] static void report_deadlock(void)
{
    for (unsigned b = 0; b < BLOCKS_AT_ONCE; b++) {
        const model_block *block = machine.places[b];
        for (unsigned n = 0; block != NULL && n < block->size; n++) {
            const model_thread *thread = &block->threads[n];
            if (thread->state == MODEL_AT_BARRIER || thread->state == MODEL_AT_WARP) {
                model_report(thread, "deadlock: all threads wait; this one in %s at %s:%d",
                             waits_name(thread), thread->site.file, thread->site.line);
            }
        }
    }
    abort();
}

static model_thread *next_thread(void)
{
    if (machine.count == 0) {
        if (machine.live > 0) {
            report_deadlock();
        }
        return NULL;
    }
    return ring_take();
}

void scheduler_give_way(void)
{
    model_thread *self = scheduler_self(), *next = next_thread();
    if (++machine.steps_in_vain > run.turns) {
        model_report(self, "%llu turns, and no thread has ended: a loop waits in vain",
                     (unsigned long long)run.turns);
    }
    if (next != self) {
        run_thread(next);
    }
    model_now = self;
}

void model_may_yield(void)
{
    if (random_below(&machine.launch->random, machine.yield_one_in) == 0) {
        ring_put_last(scheduler_self());
        scheduler_give_way();
    }
}

/* Ends a thread; if its block ends, the next block may begin. */
static void end_thread(model_thread *thread)
{
    model_block *block = thread->in;
    waits_returned(thread);
    async_returned(thread);
    machine.steps_in_vain = 0;
    machine.live--;
    if (++block->returned == block->size && machine.blocks_begun < machine.blocks) {
        machine.live += block->size;
        place_block(block);
    }
}

/* For TSan: what the host did before the launch precedes all threads, and what threads do precedes what
 * follows the launch. Done once for each fiber, because TSan's clocks are as long as there are fibers. */
static void tsan_begin(model_fiber *self)
{
#ifdef MODEL_TSAN
    if (self->serial != machine.launches) {
        self->serial = machine.launches;
        self->next = machine.used_fibers;
        machine.used_fibers = self;
        tsan_acquire(&machine.begin_sync);
    }
#else
    (void)self;
#endif
}

static void tsan_end(void)
{
    for (model_fiber *fiber = machine.used_fibers; fiber != NULL; fiber = fiber->next) {
        const tsan_as thread(fiber->tsan);
        tsan_release(&machine.end_sync);
    }
    machine.used_fibers = NULL;
    tsan_acquire(&machine.end_sync);
}

/* Runs threads on this fiber from their begin to their end, one after another. */
static void fiber_main(model_fiber *self)
{
    for (;;) {
        model_thread *thread = (model_thread *)self->work;
        tsan_begin(self);
        (*machine.launch->call)();
        end_thread(thread);
        model_thread *next = next_thread();
#ifndef MODEL_TSAN
        if (next != NULL && next->fiber == NULL) {
            next->fiber = self;
            self->work = next;
            model_now = next;
            continue;
        }
#endif
        machine.free_fibers[machine.fibers_free++] = self;
        if (next == NULL) {
            switch_to(&machine.host);
        } else {
            run_thread(next);
        }
    }
}

static void choose_order(void)
{
    model_random *random = &machine.launch->random;
    static const uint32_t one_in[] = {1, 1, 4, 16};
    static const order takes[] = {ORDER_RANDOM, ORDER_RANDOM, ORDER_OLDEST, ORDER_NEWEST};
    machine.take = takes[random_below(random, 4)];
    machine.is_backward = random_below(random, 2);
    machine.yield_one_in = one_in[random_below(random, 4)];
    machine.block_first = random_next(random) % machine.blocks;
    switch (random_below(random, 3)) {
    case 0:
        machine.block_first = 0;
        machine.block_step = 1;
        break;
    case 1: machine.block_step = machine.blocks - 1; break;
    default: /* a prime that does not divide the number of blocks: each block comes once */
        machine.block_step = machine.blocks % 1000003 == 0 ? 1 : 1000003;
    }
    if (machine.block_step == 0) {
        machine.block_step = 1;
    }
}

void scheduler_run(model_launch_now *launch)
{
    machine.launch = launch;
    machine.launches++;
    machine.blocks = (uint64_t)launch->grid.x * launch->grid.y * launch->grid.z;
    machine.blocks_begun = 0;
    machine.head = machine.count = 0;
    machine.steps_in_vain = 0;
    choose_order();
    fiber_adopt(&machine.host);
    machine.now = &machine.host;
    const unsigned size = launch->block.x * launch->block.y * launch->block.z;
    for (unsigned b = 0; b < BLOCKS_AT_ONCE && b < machine.blocks && (b + 1) * size <= THREADS_AT_ONCE; b++) {
        machine.places[b] = make_block();
        machine.live += size;
        place_block(machine.places[b]);
    }
    tsan_release(&machine.begin_sync);
    run_thread(next_thread());
    tsan_end();
    for (unsigned b = 0; b < BLOCKS_AT_ONCE; b++) {
        if (machine.places[b] != NULL) {
            free_block(machine.places[b]);
            machine.places[b] = NULL;
        }
    }
    machine.launch = NULL;
    model_now = NULL;
}

/* --- Reports --- */
void model_report(const model_thread *thread, const char *format, ...)
{
    va_list arguments;
    fflush(stdout);
    fprintf(stderr, "cuda_on_host: ");
    if (machine.launch != NULL) {
        fprintf(stderr, "kernel %s: ", machine.launch->kernel);
    }
    if (thread != NULL) {
        const uint3 block = thread->in->index, index = thread->index;
        fprintf(stderr, "block (%u,%u,%u) thread (%u,%u,%u): ", block.x, block.y, block.z, index.x, index.y,
                index.z);
    }
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\ncuda_on_host: again: LEAT_CUDA_SEED=%llu\n", (unsigned long long)run.seed);
    abort();
}

void model_trap(model_site site)
{
    model_report(scheduler_self(), "__trap() at %s:%d", site.file, site.line);
}
