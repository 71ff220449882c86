/*
 * params_update of batch_train.h.
 *
 *   naive          one thread per weight                                            not measured
 *   sixteen bytes  a thread for four weights, their gradients and their state       not measured
 *
 * The limit is memory bandwidth: weights and state once in each direction, gradients once.
 */
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/parts.cuh"

#define KERNELS_LANES_CUDA
#include "kernels/lanes.h"

#include "kernels/optimizer_step.inc.h"

#include <assert.h>

enum { PARAMS_BLOCK = 256 };

template <enum opt_kind kind>
static __global__ void __launch_bounds__(PARAMS_BLOCK) params_kernel(batch_params_update a)
{
    uint64_t i = (uint64_t)cuda_thread() * 4;
    if (i >= a.n)
        return;
    opt_vectors o = opt_spread(&a.params);
    v16 one = v16_set1(1.0F), w = v16_load(a.w + i), s0 = one, s1 = one;
    v16 scale = v16_set1(a.scale ? a.scale[0] : 1.0F), g = opt_finite(v16_mul(scale, v16_load(a.g + i)));
    if (opt_states(kind) > 0)
        s0 = v16_load(a.state + i);
    if (opt_states(kind) > 1)
        s1 = v16_load(a.state + a.n + i);
    v16_store(a.w + i, opt_step(kind, w, g, one, one, &s0, &s1, &o));
    if (opt_states(kind) > 0)
        v16_store(a.state + i, s0);
    if (opt_states(kind) > 1)
        v16_store(a.state + a.n + i, s1);
}

void cuda_params_update(batch_params_update *a, void *stream)
{
    if (a->n == 0)
        return;
    cudaStream_t to = gpu_cuda_stream(stream);
    unsigned blocks = cuda_blocks(a->n, 4 * (size_t)PARAMS_BLOCK);
    switch (a->kind) {
#define PARAMS(kind)                                                                                         \
    case kind: LAUNCH(params_kernel<kind>, blocks, PARAMS_BLOCK, 0, to, *a); break;
        PARAMS(OPT_SGD)
        PARAMS(OPT_MOMENTUM)
        PARAMS(OPT_ADAGRAD)
        PARAMS(OPT_ADAM)
        PARAMS(OPT_FTRL)
#undef PARAMS
    case OPT_ADAGRAD_ROW:
    case OPT_ADAGRAD_BLOCK:
    case OPT_NEWTON:
    case OPT_KINDS: assert(false); break;
    }
    (void)gpu_launched(stream, "params_update");
}
