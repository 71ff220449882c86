/* What attention_silu.cu and attention_silu_bf16.cu share: biases, weights and slopes, four pairs at a time. */
#ifndef LEAT_KERNELS_CUDA_ATTENTION_SILU_CUH
#define LEAT_KERNELS_CUDA_ATTENTION_SILU_CUH

#include "kernels/cuda/attention.cuh"

/* --- Biases, weights --- */

/* The tables of one head, and the times of one window's rows; NULL: nothing is added. */
struct silu_tables {
    const float *positions, *times;
    int64_t most, least; /* distances beyond them take theirs */
    const uint32_t *query_seconds, *key_seconds;
};

static inline __device__ silu_tables silu_of(const attention &a, const attention_bias &bias,
                                             const flash_block &b, uint32_t query_row)
{
    silu_tables t = {};
    t.most = (int64_t)bias.positions_max, t.least = a.is_causal ? 0 : -t.most;
    if (bias.positions != nullptr)
        t.positions = bias.positions + b.head * bias.positions_stride;
    if (bias.times != nullptr) {
        t.times = bias.times + b.head * bias.times_stride;
        t.query_seconds = bias.query_seconds + query_row, t.key_seconds = bias.key_seconds + b.key_row;
    }
    return t;
}

/* The entry of the table of positions for query position i and key position j. */
static __device__ __forceinline__ int64_t silu_distance(const silu_tables &t, uint32_t i, uint32_t j)
{
    const int64_t distance = (int64_t)i - (int64_t)j;
    return distance < t.least ? t.least : distance > t.most ? t.most : distance;
}

/* The bias of a pair. query: the query's place in query_seconds; rows that are not there have no bias. */
static __device__ __forceinline__ float silu_bias(const silu_tables &t, uint32_t i, uint32_t query,
                                                  uint32_t j, bool is_there)
{
    float sum = 0.0F;
    if (!is_there)
        return sum;
    if (t.positions != nullptr)
        sum = __ldg(t.positions + silu_distance(t, i, j));
    if (t.times != nullptr)
        sum +=
            __ldg(t.times + attention_time_bucket(__ldg(t.query_seconds + query), __ldg(t.key_seconds + j)));
    return sum;
}

/* A product q k, with its bias, becomes the weight before dropout. */
static __device__ __forceinline__ v16 silu_weight(const attention &a, v16 product, v16 bias, v16 *s,
                                                  v16 *gate)
{
    *s = v16_fma(product, v16_set1(a.scale), bias);
    *gate = silu_gate(*s);
    return v16_mul(v16_mul(*s, v16_set1(a.weight_scale)), *gate);
}

/* Of four pairs: the product q k becomes the weight, and the gradient by the weight that by the score, both 0 for pairs
 * that are not visible. factors: dropout's, read if `drops`. */
static __device__ __forceinline__ void silu_slopes(const attention &a, bool drops, v16 factors, v16 bias,
                                                   const bool (&visible)[4], v16 *weight, v16 *slope)
{
    v16 s, gate, x = silu_weight(a, *weight, bias, &s, &gate), dx = v16_mul(*slope, v16_set1(a.weight_scale));
    if (drops) {
        x = v16_mul(x, factors);
        dx = v16_mul(dx, factors);
    }
    const v16 one = v16_set1(1.0F);
    v16 ds = v16_mul(v16_mul(dx, gate), v16_fma(s, v16_sub(one, gate), one));
#pragma unroll
    for (int o = 0; o < 4; o++) {
        weight->f[o] = visible[o] ? x.f[o] : 0.0F;
        slope->f[o] = visible[o] ? ds.f[o] : 0.0F;
    }
}

/* attention_silu in bf16, once scratch memory and sizes have been looked at: all but the gradients by the biases. */
void attention_silu_bf16(const batch_attention *a, const attention_bias &bias, void *stream,
                         const char *name);

#endif
