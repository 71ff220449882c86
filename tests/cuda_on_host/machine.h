/*
 * The model's inside: a launch, its blocks and threads, and who goes on. One launch runs at a time, on the
 * host thread that happened to make it run (runtime.cpp holds the lock).
 */
#ifndef CUDA_ON_HOST_MACHINE_H
#define CUDA_ON_HOST_MACHINE_H

#include "tests/cuda_on_host/fiber.h"
#include "tests/cuda_on_host/model.h"

enum {
    LANES = 32,
    WARPS_MAX = 32,
    THREADS_MAX = 1024,
    SHARED_BYTES_MAX = 48 << 10,
    SHARED_BYTES_OPTIN = 227 << 10
};

/* --- Random numbers (SplitMix64, Steele et al. 2014) --- */
struct model_random {
    uint64_t state;
};
static inline uint64_t random_next(model_random *random)
{
    uint64_t x = random->state += 0x9e3779b97f4a7c15U;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
    x = (x ^ x >> 27) * 0x94d049bb133111ebU;
    return x ^ x >> 31;
}
/* Below n, which is not 0. */
static inline uint32_t random_below(model_random *random, uint32_t n)
{
    return (uint32_t)((random_next(random) >> 32) * n >> 32);
}

/* --- A launch --- */
enum model_state { MODEL_READY, MODEL_AT_BARRIER, MODEL_AT_WARP, MODEL_RETURNED };

struct model_block;
struct model_copy;

struct model_thread : model_thread_place {
    model_state state;
    unsigned number;    /* in its block */
    model_fiber *fiber; /* NULL: has not begun */
    model_block *in;
    /* what it waits at */
    model_site site;
    int kind; /* model_barrier_kind, model_warp_kind */
    unsigned mask;
    uint64_t value;
    unsigned operand;
    int width;
    uint64_t result;
    /* for TSan: of this lane; of a warp's first lane: of the whole warp, and how often it met */
    char warp_sync, whole_sync[2];
    unsigned whole_phase;
    /* asynchronous copies under way, and how many groups of them were committed */
    model_copy *copy;
    unsigned copies, copies_landed, copies_room, groups;
};

struct model_shared_piece {
    const void *site;
    void *memory;
    size_t bytes;
    uint64_t filled_for; /* the block that it was last filled with poison for */
    char sync;
    model_shared_piece *next;
};

/* A place for a block: when one has ended, the next takes its place. */
struct model_block : model_block_place {
    uint64_t serial; /* of all blocks that ever ran */
    unsigned size, returned, arrived;
    model_thread *threads;
    model_shared_piece *shared;
    int vote;
    unsigned phase; /* barriers so far */
    char barrier_sync[2];
};

struct model_launch_now {
    const char *kernel;
    dim3 grid, block;
    size_t shared_bytes, shared_max; /* of the launch; with what the kernel declares */
    const std::function<void()> *call;
    model_random random;
};

/* Runs a whole launch. */
void scheduler_run(model_launch_now *launch);

/* Of the thread that runs (model_now). */
static inline model_thread *scheduler_self(void)
{
    return static_cast<model_thread *>(model_now);
}
/* The thread may go on (after a wait); others may go first. */
void scheduler_ready(model_thread *thread);
/* Gives way to whoever is next; returns when this thread's turn comes. It is ready, or waits. */
void scheduler_give_way(void);

/* waits.cpp: this thread ends; tells if others wait for it in vain. */
void waits_returned(model_thread *thread);
void async_returned(model_thread *thread);
const char *waits_name(const model_thread *thread);

/* What has gone wrong, at which thread of which kernel, and the seed; ends the process. thread NULL: none. */
[[noreturn]] void model_report(const model_thread *thread, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* --- What a run was begun with (testing.cpp) --- */
struct model_run {
    uint64_t seed;
    uint8_t poison;
    model_random random; /* a launch takes its own seed from it */
    /* planted; 0: none, else how many more there are up to the one that fails */
    int allocations_to_failure, launches_to_failure;
    cudaError_t launch_error;
    int products_to_wrong; /* likewise */
    int devices, capability, driver;
    bool has_no_cublas;
    size_t memory_bytes;
    uint64_t turns; /* see cuda_model_set_turns */
};
extern model_run run;
/* Reads the environment, the first time. */
void run_begin_if_needed(void);
/* runtime.cpp: forgets errors; says if work is queued. */
void runtime_reset(void);
const model_launch_now *scheduler_launch(void);
void *scheduler_launcher(void); /* TSan's fiber of whoever launched */

/* shared.cpp */
void shared_free(model_block *block);
void model_poison(void *memory, size_t bytes);

#endif
