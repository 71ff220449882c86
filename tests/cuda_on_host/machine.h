/* The inside of the model: a launch, its blocks and threads, and the order in which they run. One launch runs
 * at a time, on the host thread whose call made it run (runtime_lock of devices.cpp is held). */
#ifndef LEAT_TESTS_CUDA_ON_HOST_MACHINE_H
#define LEAT_TESTS_CUDA_ON_HOST_MACHINE_H

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
/* A random number below n, which must not be 0. */
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
    unsigned number;    /* its index in its block */
    model_fiber *fiber; /* NULL: the thread has not begun */
    model_block *in;
    /* where the thread waits, and its part in the collective */
    model_site site;
    int kind; /* model_barrier_kind, model_warp_kind */
    unsigned mask;
    uint64_t value;
    unsigned operand;
    int width;
    uint64_t result;
    /* for TSan. warp_sync: of this lane; whole_sync, whole_phase: in a warp's first lane, of the whole warp
     * and the number of its collectives */
    char warp_sync, whole_sync[2];
    unsigned whole_phase;
    /* in a warp's first lane, bits of lanes: that wait in a collective; that wait in the same one as the first of them;
     * that have returned */
    unsigned waiting, together, returned;
    /* asynchronous copies under way, and the number of committed groups */
    model_copy *copy;
    unsigned copies, copies_landed, copies_room, groups;
};

struct model_shared_piece {
    const void *site;
    void *memory;
    size_t bytes;
    uint64_t filled_for; /* serial number of the block for which it was last filled with poison */
    char sync;
    model_shared_piece *next;
};

/* A place for a block: when a block has ended, the next one takes its place. */
struct model_block : model_block_place {
    uint64_t serial; /* number of the block among all that ever ran */
    unsigned size, returned, arrived;
    model_thread *threads;
    const model_thread *first_arrived; /* at the barrier, if arrived > 0 */
    model_shared_piece *shared;
    int vote;
    unsigned phase; /* the number of barriers so far */
    char barrier_sync[2];
};

struct model_launch_now {
    const char *kernel;
    dim3 grid, block;
    size_t shared_bytes, shared_max; /* of the launch; together with the kernel's own declarations */
    const std::function<void()> *call;
    model_random random;
};

/* Runs a whole launch. */
void scheduler_run(model_launch_now *launch);

/* The running thread (model_now). */
static inline model_thread *scheduler_self(void)
{
    return static_cast<model_thread *>(model_now);
}
/* Makes a thread that waited ready to run; others may run first. */
void scheduler_ready(model_thread *thread);
/* Lets the next thread run; returns when this thread's turn comes. This thread is ready, or waits. */
void scheduler_give_way(void);

/* waits.cpp: ends the thread; reports threads that wait for it in vain. async_returned: reports copies that
 * were not waited for. waits_name: the name of the call in which the thread waits. */
void waits_returned(model_thread *thread);
void async_returned(model_thread *thread);
const char *waits_name(const model_thread *thread);

/* mma.cpp: multiplies for the 32 lanes that wait in model_mma. */
void mma_multiply(const model_thread *lanes);

/* Prints what went wrong, the thread and kernel, and the seed; ends the process. thread NULL: none. */
[[noreturn]] void model_report(const model_thread *thread, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* --- The settings of a run (testing.cpp) --- */
struct model_run {
    uint64_t seed;
    uint8_t poison;
    model_random random; /* each launch takes its own seed from it */
    /* planted failures: how many allocations or launches are left up to the one that fails; 0: none */
    int allocations_to_failure, launches_to_failure;
    cudaError_t launch_error;
    int products_to_wrong; /* as above */
    int devices, capability, driver;
    bool has_no_cublas;
    size_t memory_bytes;
    uint64_t turns; /* cuda_model_set_turns (testing.h) */
};
extern model_run run;
/* Reads the environment at the first call. */
void run_begin_if_needed(void);
/* devices.cpp: forgets errors; reports if work is queued. */
void runtime_reset(void);
const model_launch_now *scheduler_launch(void);
void *scheduler_launcher(void); /* TSan's fiber of the thread that launched */

/* shared.cpp */
void shared_free(model_block *block);
void model_poison(void *memory, size_t bytes);

#endif
