/* Barriers and warp collectives that are missing, or that not all threads reach. */
#include "tests/cuda_on_host/planted/planted.h"

static __global__ void reverse_block(uint32_t *out, bool has_bug)
{
    SHARED(uint32_t[128], tile);
    const unsigned t = threadIdx.x;
    tile[t] = t * t;
    if (!has_bug)
        __syncthreads();
    out[t] = tile[127 - t];
}

static void missing_barrier(planted_run *run)
{
    LAUNCH(reverse_block, 1, 128, 0, run->stream, run->device, run->has_bug);
}

static __global__ void reverse_warp(uint32_t *out, bool has_bug)
{
    SHARED(uint32_t[128], tile);
    const unsigned t = threadIdx.x;
    tile[t] = t * t;
    if (!has_bug)
        __syncwarp();
    out[t] = tile[t ^ 31];
}

static void missing_syncwarp(planted_run *run)
{
    LAUNCH(reverse_warp, 1, 128, 0, run->stream, run->device, run->has_bug);
}

static __global__ void early_return(uint32_t *out, bool has_bug)
{
    const unsigned t = threadIdx.x;
    if (has_bug && t == 5)
        return;
    __syncthreads();
    out[cuda_thread()] = t;
}

static void barrier_after_return(planted_run *run)
{
    LAUNCH(early_return, 2, 64, 0, run->stream, run->device, run->has_bug);
}

static __global__ void two_barriers(uint32_t *out, bool has_bug)
{
    const unsigned t = threadIdx.x;
    if (has_bug && t >= 32)
        __syncthreads();
    else
        __syncthreads();
    out[t] = t;
}

/* With the bug, half of the threads wait at another __syncthreads than the others. */
static void barrier_in_two_branches(planted_run *run)
{
    LAUNCH(two_barriers, 1, 64, 0, run->stream, run->device, run->has_bug);
}

static __global__ void barrier_or_warp(uint32_t *out, bool has_bug)
{
    const unsigned t = threadIdx.x;
    if (has_bug && t < 16)
        __syncwarp();
    __syncthreads();
    out[t] = t;
}

static void barrier_and_collective(planted_run *run)
{
    LAUNCH(barrier_or_warp, 1, 32, 0, run->stream, run->device, run->has_bug);
}

static __global__ void half_a_warp(uint32_t *out, bool has_bug)
{
    const unsigned t = threadIdx.x;
    uint32_t value = t;
    if (t % 32 < 16)
        value += __shfl_xor_sync(has_bug ? WARP_ALL : 0xffffU, value, 1);
    out[t] = value;
}

static void mask_of_absent_lanes(planted_run *run)
{
    LAUNCH(half_a_warp, 1, 64, 0, run->stream, run->device, run->has_bug);
}

static __global__ void two_masks(uint32_t *out, bool has_bug)
{
    const unsigned t = threadIdx.x, mask = has_bug && t == 3 ? 0xffU : WARP_ALL;
    out[t] = __ballot_sync(mask, t & 1);
}

static void masks_that_differ(planted_run *run)
{
    LAUNCH(two_masks, 1, 32, 0, run->stream, run->device, run->has_bug);
}

static __global__ void two_ballots(uint32_t *out, bool has_bug)
{
    const unsigned t = threadIdx.x;
    if (has_bug && t == 3)
        out[t] = __ballot_sync(WARP_ALL, t & 1);
    else
        out[t] = __ballot_sync(WARP_ALL, t & 1);
}

static void collective_in_two_branches(planted_run *run)
{
    LAUNCH(two_ballots, 1, 32, 0, run->stream, run->device, run->has_bug);
}

static __global__ void from_outside(uint32_t *out, bool has_bug)
{
    const unsigned t = threadIdx.x, mask = t < 16 ? 0xffffU : 0xffff0000U;
    out[t] = __shfl_sync(mask, t, has_bug ? 20 : (int)(t & 16));
}

static void shuffle_from_outside_the_mask(planted_run *run)
{
    LAUNCH(from_outside, 1, 32, 0, run->stream, run->device, run->has_bug);
}

static __global__ void wait_for_flag(uint32_t *flag, bool has_bug)
{
    if (blockIdx.x == 0) {
        while (atomicOr(flag, 0U) == 0) {
        }
    } else if (!has_bug) {
        atomicExch(flag, 1U);
    }
}

static void loop_in_vain(planted_run *run)
{
    cuda_model_set_turns(100000);
    cudaMemsetAsync(run->device, 0, 4, run->stream);
    LAUNCH(wait_for_flag, 2, 32, 0, run->stream, run->device, run->has_bug);
}

const planted planted_waits[] = {
    {"missing barrier", missing_barrier, PLANTED_DIFFERS, PLANTED_RACE},
    {"missing __syncwarp", missing_syncwarp, PLANTED_DIFFERS, PLANTED_RACE},
    {"barrier, but a thread has returned", barrier_after_return, "barrier not reached by all",
     "barrier not reached by all"},
    {"barriers in two branches", barrier_in_two_branches, "barrier not reached by all",
     "barrier not reached by all"},
    {"barrier here, warp collective there", barrier_and_collective, "deadlock|not reached by all",
     "deadlock|not reached by all"},
    {"mask of lanes that do not come", mask_of_absent_lanes, "warp collective not reached by all",
     "warp collective not reached by all"},
    {"masks that differ", masks_that_differ, "warp collective not reached by all",
     "warp collective not reached by all"},
    {"warp collective in two branches", collective_in_two_branches, "warp collective not reached by all",
     "warp collective not reached by all"},
    {"shuffle from outside its mask", shuffle_from_outside_the_mask, "which is not in the mask",
     "which is not in the mask"},
    {"loop that waits in vain", loop_in_vain, "a loop waits in vain", "a loop waits in vain"},
    {NULL, NULL, NULL, NULL},
};
