/*
 * Dense layers over a block of sixteen events. Forward and backward put an event in each lane: a weight is
 * broadcast and every sum runs over its inputs in order, so there is no horizontal reduction. The weights'
 * gradient puts sixteen inputs in the lanes and runs over the events in order.
 *
 * Ladder (128 x 196, AVX-512): one output at a time, two loads per fma; eight outputs at a time share the
 * input's load. With sixteen registers of half the width eight outputs do not fit: six do.
 */
enum { DENSE_OUTPUTS = LANES_REGISTERS < 16 ? 6 : 8 };

/* The caller passes a constant for `outputs`, so that the sums stay in registers. */
LANES_INLINE void dense_forward_some(float *out, const float *in, const float *w, const float *bias, size_t d,
                                     size_t outputs)
{
    v16 sums[DENSE_OUTPUTS];
    for (size_t o = 0; o < outputs; o++)
        sums[o] = v16_set1(bias[o]);
    for (size_t i = 0; i < d; i++) {
        v16 x = v16_load(in + i * 16);
        for (size_t o = 0; o < outputs; o++)
            sums[o] = v16_fma(v16_set1(w[o * d + i]), x, sums[o]);
    }
    for (size_t o = 0; o < outputs; o++)
        v16_store(out + o * 16, sums[o]);
}

static void dense_forward(float *out, const float *in, const float *w, const float *bias, size_t n, size_t d)
{
    size_t o = 0;
    for (; o + DENSE_OUTPUTS <= n; o += DENSE_OUTPUTS)
        dense_forward_some(out + o * 16, in, w + o * d, bias + o, d, DENSE_OUTPUTS);
    for (; o + 2 <= n; o += 2)
        dense_forward_some(out + o * 16, in, w + o * d, bias + o, d, 2);
    if (o < n)
        dense_forward_some(out + o * 16, in, w + o * d, bias + o, d, 1);
}

LANES_INLINE void dense_backward_some(float *din, const float *dout, const float *w, size_t n, size_t d,
                                      size_t inputs)
{
    v16 sums[DENSE_OUTPUTS];
    for (size_t i = 0; i < inputs; i++)
        sums[i] = v16_set1(0.0F);
    for (size_t o = 0; o < n; o++) {
        v16 dy = v16_load(dout + o * 16);
        for (size_t i = 0; i < inputs; i++)
            sums[i] = v16_fma(v16_set1(w[o * d + i]), dy, sums[i]);
    }
    for (size_t i = 0; i < inputs; i++)
        v16_store(din + i * 16, sums[i]);
}

static void dense_backward(float *din, const float *dout, const float *w, size_t n, size_t d)
{
    size_t i = 0;
    for (; i + DENSE_OUTPUTS <= d; i += DENSE_OUTPUTS)
        dense_backward_some(din + i * 16, dout, w + i, n, d, DENSE_OUTPUTS);
    for (; i + 2 <= d; i += 2)
        dense_backward_some(din + i * 16, dout, w + i, n, d, 2);
    if (i < d)
        dense_backward_some(din + i * 16, dout, w + i, n, d, 1);
}

/* `outputs` outputs by at most sixteen inputs: each load of inputs serves one fma per output. */
LANES_INLINE void dense_gradient_block(float *dw, const float *dout, const float *in_rows, size_t d,
                                       size_t outputs, size_t lanes)
{
    v16 sums[DENSE_OUTPUTS];
    for (size_t o = 0; o < outputs; o++)
        sums[o] = v16_set1(0.0F);
    for (size_t e = 0; e < 16; e++) {
        v16 x = v16_load_n(in_rows + e * d, lanes);
        for (size_t o = 0; o < outputs; o++)
            sums[o] = v16_fma(v16_set1(dout[o * 16 + e]), x, sums[o]);
    }
    for (size_t o = 0; o < outputs; o++)
        v16_store_n(dw + o * d, sums[o], lanes);
}

LANES_INLINE void dense_gradient_some(float *dw, const float *dout, const float *in_rows, size_t d,
                                      size_t outputs)
{
    size_t i = 0;
    for (; i + 16 <= d; i += 16)
        dense_gradient_block(dw + i, dout, in_rows + i, d, outputs, 16);
    if (i < d)
        dense_gradient_block(dw + i, dout, in_rows + i, d, outputs, d - i);
}

static void dense_gradient(float *dw, float *dbias, const float *dout, const float *in_rows, size_t n,
                           size_t d)
{
    size_t o = 0;
    for (; o + DENSE_OUTPUTS <= n; o += DENSE_OUTPUTS)
        dense_gradient_some(dw + o * d, dout + o * 16, in_rows, d, DENSE_OUTPUTS);
    for (; o + 2 <= n; o += 2)
        dense_gradient_some(dw + o * d, dout + o * 16, in_rows, d, 2);
    if (o < n)
        dense_gradient_some(dw + o * d, dout + o * 16, in_rows, d, 1);
    for (o = 0; o < n; o++)
        dbias[o] = v16_sum(v16_load(dout + o * 16));
}

/* Transposes sixteen rows of four floats into four vectors of sixteen: vector k takes float k of each row. */
LANES_INLINE void turn_16x4(float *out, size_t out_stride, const float *in, size_t in_stride)
{
    v16 v[4];
    for (int k = 0; k < 4; k++) {
        const float *first = in + (size_t)k * in_stride;
        v[k] = v16_load4x4(first, first + 4 * in_stride, first + 8 * in_stride, first + 12 * in_stride);
    }
    v16_transpose_groups(v);
    for (int k = 0; k < 4; k++)
        v16_store(out + (size_t)k * out_stride, v[k]);
}

static void dense_rows_to_lanes(float *lanes, const float *rows, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        turn_16x4(lanes + i * 16, 16, rows + i, n);
    for (; i < n; i++) {
        for (size_t e = 0; e < 16; e++)
            lanes[i * 16 + e] = rows[e * n + i];
    }
}

static void dense_lanes_to_rows(float *rows, const float *lanes, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (size_t e = 0; e < 16; e += 4)
            turn_16x4(rows + e * n + i, n, lanes + i * 16 + e, 16);
    }
    for (; i < n; i++) {
        for (size_t e = 0; e < 16; e++)
            rows[e * n + i] = lanes[i * 16 + e];
    }
}

/* Element by element: whole vectors first, with a constant 16 for whole loads and stores, then the rest. */
LANES_INLINE void blend_vector(float *x, const float *y, v16 scale, size_t lanes)
{
    v16_store_n(x, v16_fma(v16_load_n(x, lanes), scale, v16_load_n(y, lanes)), lanes);
}

static void blend(float *x, const float *y, float scale, size_t n)
{
    v16 s = v16_set1(scale);
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        blend_vector(x + i, y + i, s, 16);
    if (i < n)
        blend_vector(x + i, y + i, s, n - i);
}

/* dx = x > 0 ? dx : 0 */
LANES_INLINE void relu_vector(float *dx, const float *x, size_t lanes)
{
    v16 kept = v16_keep_gt(v16_load_n(dx, lanes), v16_load_n(x, lanes), v16_set1(0.0F));
    v16_store_n(dx, kept, lanes);
}

static void relu_backward(float *dx, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        relu_vector(dx + i, x + i, 16);
    if (i < n)
        relu_vector(dx + i, x + i, n - i);
}

static void relu_forward(float *x, size_t n)
{
    relu_backward(x, x, n);
}

/* The finalizer of splitmix64, then an exact conversion to float: plain C gives the same bits everywhere. */
static void init_uniform(float *out, uint64_t seed, float bound, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t x = seed + (uint64_t)(i + 1) * 0x9e3779b97f4a7c15U;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
        x ^= x >> 31;
        out[i] = ((float)(int32_t)(x >> 40) * 0x1p-23F - 1.0F) * bound;
    }
}
