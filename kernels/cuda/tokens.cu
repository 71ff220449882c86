/*
 * silu, gate, dropout, add_positions and positions_gradient of batch_sequence.h: numbers that do not meet across columns.
 * The limit is memory bandwidth.
 *
 *   naive           one thread per number                                                     not measured
 *   fours           one thread per four columns, 16 bytes per access; dropout draws four       not measured
 *                   numbers from one hash, as on a CPU
 *   positions       each thread looks up its row's window (windows.cuh): the few offsets are   not measured
 *                   in the first-level cache; nothing besides is written
 *   their gradient  one thread per four columns of a position, which owns their sums: it goes  not measured
 *                   through the windows in order, and neighbouring threads read neighbouring
 *                   columns, then neighbouring rows
 */
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/matrix.cuh"
#include "kernels/cuda/parts.cuh"
#include "kernels/cuda/windows.cuh"

#include "kernels/gates.inc.h"

enum { BLOCK = 256 };

static __global__ void __launch_bounds__(BLOCK) silu_kernel(batch_silu a)
{
    const uint64_t i = cuda_thread() * 4;
    if (i >= a.n)
        return;
    const uint32_t some = (uint32_t)min(a.n - i, (uint64_t)4);
    const v16 x = matrix_load(a.x + i, 0, some, true);
    if (a.out_gradients != nullptr)
        matrix_store(a.grads + i, 0, some, true,
                     gate_backward(matrix_load(a.out_gradients + i, 0, some, true), x, false));
    if (a.out != nullptr)
        matrix_store(a.out + i, 0, some, true, gate_forward(x, false));
}

void cuda_silu(batch_silu *a, void *stream)
{
    if (a->n == 0 || (a->out == nullptr && a->out_gradients == nullptr))
        return;
    LAUNCH(silu_kernel, cuda_blocks((a->n + 3) / 4, BLOCK), BLOCK, 0, gpu_cuda_stream(stream), *a);
    (void)gpu_launched(stream, "silu");
}

/* The stride of `a` is not 0. */
static __global__ void __launch_bounds__(BLOCK) gate_kernel(batch_gate a)
{
    const uint32_t fours = a.d / 4;
    const size_t i = cuda_thread(), row = i / fours, column = (i - row * fours) * 4;
    if (row >= a.n)
        return;
    const size_t at = row * a.d + column, wide = row * a.a_stride + column;
    const v16 gate = v16_load(a.a + wide), b = v16_load(a.b + at);
    if (a.out != nullptr)
        v16_store(a.out + at, v16_mul(gate, b));
    if (a.out_gradients == nullptr)
        return;
    const v16 gradients = v16_load(a.out_gradients + at);
    v16_store(a.a_grads + wide, v16_mul(gradients, b));
    v16_store(a.b_grads + at, v16_mul(gradients, gate));
}

void cuda_gate(batch_gate *a, void *stream)
{
    batch_gate of = *a;
    of.a_stride = matrix_stride(a->a_stride, a->d);
    if (a->n == 0 || a->d == 0)
        return;
    LAUNCH(gate_kernel, cuda_blocks((size_t)a->n * (a->d / 4), BLOCK), BLOCK, 0, gpu_cuda_stream(stream), of);
    (void)gpu_launched(stream, "gate");
}

/* dropped: the share that is dropped, in 2^-16. */
static __global__ void __launch_bounds__(BLOCK) dropout_kernel(batch_dropout a, float dropped)
{
    const uint32_t fours = a.d / 4;
    const size_t i = cuda_thread(), row = i / fours, four = i - row * fours;
    if (row >= a.n)
        return;
    uint64_t key;
    if (a.keys != nullptr) {
        key = a.keys[row];
    } else {
        const uint32_t window = window_of(a.offsets, a.windows, (uint32_t)row);
        key = num_chance(a.seed, a.identities[window], a.part + ((uint32_t)row - a.offsets[window]));
    }
    const uint64_t hash = num_mix(key + (four + 1) * 0x9e3779b97f4a7c15U);
    v16 draws;
    for (int k = 0; k < 4; k++)
        draws.f[k] = (float)(uint16_t)(hash >> (16 * k));
    float *x = a.x + row * a.d + four * 4;
    const v16 values = v16_mul(v16_load(x), v16_set1(65536.0F / (65536.0F - dropped)));
    v16_store(x, v16_keep_gt(values, draws, v16_set1(dropped - 0.5F)));
}

void cuda_dropout(batch_dropout *a, void *stream)
{
    float dropped = floorf(a->rate * 65536.0F + 0.5F);
    dropped = dropped > 65535.0F ? 65535.0F : dropped;
    if (a->n == 0 || a->d == 0)
        return;
    LAUNCH(dropout_kernel, cuda_blocks((size_t)a->n * (a->d / 4), BLOCK), BLOCK, 0, gpu_cuda_stream(stream),
           *a, dropped);
    (void)gpu_launched(stream, "dropout");
}

/* The strides of `a` are not 0, here and below. */
static __global__ void __launch_bounds__(BLOCK) add_positions_kernel(batch_add_positions a)
{
    const uint32_t fours = a.d / 4;
    const size_t i = cuda_thread(), row = i / fours, column = (i - row * fours) * 4;
    if (row >= a.n)
        return;
    const uint32_t position = (uint32_t)row - a.offsets[window_of(a.offsets, a.windows, (uint32_t)row)];
    float *x = a.x + row * a.d + column;
    v16_store(x, v16_add(v16_load(x), v16_load(a.table + (size_t)position * a.stride + column)));
}

void cuda_add_positions(batch_add_positions *a, void *stream)
{
    batch_add_positions of = *a;
    of.stride = matrix_stride(a->stride, a->d);
    if (a->n == 0 || a->d == 0)
        return;
    LAUNCH(add_positions_kernel, cuda_blocks((size_t)a->n * (a->d / 4), BLOCK), BLOCK, 0,
           gpu_cuda_stream(stream), of);
    (void)gpu_launched(stream, "add_positions");
}

static __global__ void __launch_bounds__(BLOCK) positions_gradient_kernel(batch_positions_gradient a)
{
    const uint32_t fours = a.d / 4;
    const size_t i = cuda_thread(), position = i / fours, column = (i - position * fours) * 4;
    const uint32_t parts = a.parts != nullptr ? a.parts_count : 1;
    if (position >= a.positions)
        return;
    v16 sum = v16_set1(0.0F);
    for (uint32_t p = 0; p < parts; p++) {
        const uint32_t from = a.parts != nullptr ? a.parts[p] : 0;
        const uint32_t end = a.parts != nullptr ? a.parts[p + 1] : a.windows;
        v16 own = v16_set1(0.0F);
#pragma unroll 4
        for (uint32_t w = from; w < end; w++) {
            const uint32_t first = __ldg(a.offsets + w), rows = __ldg(a.offsets + w + 1) - first;
            if (position < rows)
                own = v16_add(own, v16_load(a.out_gradients + (first + position) * a.d + column));
        }
        sum = p == 0 ? own : v16_add(sum, own);
    }
    v16_store(a.table + position * a.stride + column, sum);
}

void cuda_positions_gradient(batch_positions_gradient *a, void *stream)
{
    batch_positions_gradient of = *a;
    of.stride = matrix_stride(a->stride, a->d);
    if (a->positions == 0 || a->d == 0)
        return;
    LAUNCH(positions_gradient_kernel, cuda_blocks((size_t)a->positions * (a->d / 4), BLOCK), BLOCK, 0,
           gpu_cuda_stream(stream), of);
    (void)gpu_launched(stream, "positions_gradient");
}
