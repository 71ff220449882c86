/*
 * A product of small matrices on tensor cores by the 32 lanes of a warp: mma.sync.m16n8k16 of PTX, c[16][8] += a[16][16]
 * b[16][8], bf16 operands, fp32 sums. Each lane holds a part of each matrix, two bf16 in a word, the lower half first; with
 * g = lane / 4 and t = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
 *
 *   a: word 0  a[g][2t, 2t + 1]   1  a[g + 8][2t, 2t + 1]   2  a[g][2t + 8, 2t + 9]   3  a[g + 8][2t + 8, 2t + 9]
 *   b: word 0  b[2t, 2t + 1][g]   1  b[2t + 8, 2t + 9][g]
 *   c: float 0 c[g][2t]   1  c[g][2t + 1]   2  c[g + 8][2t]   3  c[g + 8][2t + 1]
 *
 * So two c side by side, rounded, are an a of the next product (mma_of). All lanes of the warp make the call together; it
 * orders no memory. A device adds the sixteen products and c in an order of its own, and truncates (kernels.def); the host's
 * model adds them by fmaf, from index 0 on.
 */
#ifndef LEAT_KERNELS_CUDA_MMA_CUH
#define LEAT_KERNELS_CUDA_MMA_CUH

#define KERNELS_LANES_CUDA
#include "kernels/cuda/cuda.cuh"
#include "kernels/lanes.h"

struct mma_a {
    uint32_t words[4];
};
struct mma_b {
    uint32_t words[2];
};

#ifdef CUDA_ON_HOST

static inline void mma_bf16(v16 &c, const mma_a &a, const mma_b &b, MODEL_HERE)
{
    model_mma(c.f, a.words, b.words, here);
}

#else

static __device__ __forceinline__ void mma_bf16(v16 &c, const mma_a &a, const mma_b &b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c.f[0]), "+f"(c.f[1]), "+f"(c.f[2]), "+f"(c.f[3])
                 : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]),
                   "r"(b.words[1]));
}

#endif

/* Two bf16, rounded to nearest even by one instruction, which makes numbers beyond the range infinite. */
static __device__ __forceinline__ uint32_t mma_pair(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof(bits));
    return bits;
}

/* Columns 0 to 7 and 8 to 15 of sums as the operand of a product. */
static __device__ __forceinline__ mma_a mma_of(const v16 &left, const v16 &right)
{
    return {{mma_pair(left.f[0], left.f[1]), mma_pair(left.f[2], left.f[3]), mma_pair(right.f[0], right.f[1]),
             mma_pair(right.f[2], right.f[3])}};
}

#endif
