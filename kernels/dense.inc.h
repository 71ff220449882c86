/*
 * Dense layers over a block of sixteen events. Forward and backward put an event in each lane: a weight is
 * broadcast and every sum runs over its inputs in order, so no horizontal reduction exists. The weights'
 * gradient puts sixteen inputs in the lanes and runs over the events in order.
 *
 * Ladder (128 x 196, AVX-512): one output at a time, two loads a fma; eight outputs at a time share the
 * input's load.
 */

/* Eight outputs. Named sums, not an array: they must stay in registers. */
LANES_INLINE void dense_forward8(float *out, const float *in, const float *w, const float *bias, size_t d)
{
    v16 s0 = v16_set1(bias[0]), s1 = v16_set1(bias[1]), s2 = v16_set1(bias[2]), s3 = v16_set1(bias[3]);
    v16 s4 = v16_set1(bias[4]), s5 = v16_set1(bias[5]), s6 = v16_set1(bias[6]), s7 = v16_set1(bias[7]);
    for (size_t i = 0; i < d; i++) {
        v16 x = v16_load(in + i * 16);
        s0 = v16_fma(v16_set1(w[i]), x, s0);
        s1 = v16_fma(v16_set1(w[d + i]), x, s1);
        s2 = v16_fma(v16_set1(w[2 * d + i]), x, s2);
        s3 = v16_fma(v16_set1(w[3 * d + i]), x, s3);
        s4 = v16_fma(v16_set1(w[4 * d + i]), x, s4);
        s5 = v16_fma(v16_set1(w[5 * d + i]), x, s5);
        s6 = v16_fma(v16_set1(w[6 * d + i]), x, s6);
        s7 = v16_fma(v16_set1(w[7 * d + i]), x, s7);
    }
    v16_store(out, s0), v16_store(out + 16, s1), v16_store(out + 32, s2), v16_store(out + 48, s3);
    v16_store(out + 64, s4), v16_store(out + 80, s5), v16_store(out + 96, s6), v16_store(out + 112, s7);
}

static void dense_forward(float *out, const float *in, const float *w, const float *bias, size_t n, size_t d)
{
    size_t o = 0;
    for (; o + 8 <= n; o += 8)
        dense_forward8(out + o * 16, in, w + o * d, bias + o, d);
    for (; o < n; o++) {
        v16 sum = v16_set1(bias[o]);
        for (size_t i = 0; i < d; i++)
            sum = v16_fma(v16_set1(w[o * d + i]), v16_load(in + i * 16), sum);
        v16_store(out + o * 16, sum);
    }
}

LANES_INLINE void dense_backward8(float *din, const float *dout, const float *w, size_t n, size_t d)
{
    v16 z = v16_set1(0.0F);
    v16 s0 = z, s1 = z, s2 = z, s3 = z, s4 = z, s5 = z, s6 = z, s7 = z;
    for (size_t o = 0; o < n; o++) {
        v16 dy = v16_load(dout + o * 16);
        const float *row = w + o * d;
        s0 = v16_fma(v16_set1(row[0]), dy, s0);
        s1 = v16_fma(v16_set1(row[1]), dy, s1);
        s2 = v16_fma(v16_set1(row[2]), dy, s2);
        s3 = v16_fma(v16_set1(row[3]), dy, s3);
        s4 = v16_fma(v16_set1(row[4]), dy, s4);
        s5 = v16_fma(v16_set1(row[5]), dy, s5);
        s6 = v16_fma(v16_set1(row[6]), dy, s6);
        s7 = v16_fma(v16_set1(row[7]), dy, s7);
    }
    v16_store(din, s0), v16_store(din + 16, s1), v16_store(din + 32, s2), v16_store(din + 48, s3);
    v16_store(din + 64, s4), v16_store(din + 80, s5), v16_store(din + 96, s6), v16_store(din + 112, s7);
}

static void dense_backward(float *din, const float *dout, const float *w, size_t n, size_t d)
{
    size_t i = 0;
    for (; i + 8 <= d; i += 8)
        dense_backward8(din + i * 16, dout, w + i, n, d);
    for (; i < d; i++) {
        v16 sum = v16_set1(0.0F);
        for (size_t o = 0; o < n; o++)
            sum = v16_fma(v16_set1(w[o * d + i]), v16_load(dout + o * 16), sum);
        v16_store(din + i * 16, sum);
    }
}

/* Four outputs by sixteen inputs: one load of the inputs serves four fmas. */
LANES_INLINE void dense_gradient4(float *dw, const float *dout, const float *in_rows, size_t d, size_t lanes)
{
    v16 z = v16_set1(0.0F);
    v16 s0 = z, s1 = z, s2 = z, s3 = z;
    for (size_t e = 0; e < 16; e++) {
        v16 x = v16_load_n(in_rows + e * d, lanes);
        s0 = v16_fma(v16_set1(dout[e]), x, s0);
        s1 = v16_fma(v16_set1(dout[16 + e]), x, s1);
        s2 = v16_fma(v16_set1(dout[32 + e]), x, s2);
        s3 = v16_fma(v16_set1(dout[48 + e]), x, s3);
    }
    v16_store_n(dw, s0, lanes), v16_store_n(dw + d, s1, lanes);
    v16_store_n(dw + 2 * d, s2, lanes), v16_store_n(dw + 3 * d, s3, lanes);
}

static void dense_gradient(float *dw, float *dbias, const float *dout, const float *in_rows, size_t n,
                           size_t d)
{
    size_t o = 0;
    for (; o + 4 <= n; o += 4) {
        size_t i = 0;
        for (; i + 16 <= d; i += 16)
            dense_gradient4(dw + o * d + i, dout + o * 16, in_rows + i, d, 16);
        if (i < d)
            dense_gradient4(dw + o * d + i, dout + o * 16, in_rows + i, d, d - i);
    }
    for (; o < n; o++) {
        for (size_t i = 0; i < d; i += 16) {
            size_t lanes = d - i < 16 ? d - i : 16;
            v16 sum = v16_set1(0.0F);
            for (size_t e = 0; e < 16; e++) {
                sum = v16_fma(v16_set1(dout[o * 16 + e]), v16_load_n(in_rows + e * d + i, lanes), sum);
            }
            v16_store_n(dw + o * d + i, sum, lanes);
        }
    }
    for (o = 0; o < n; o++)
        dbias[o] = v16_sum(v16_load(dout + o * 16));
}

/* Four vectors of sixteen, of what lies four by four, sixteen times: vector k takes the k-th of each. */
LANES_INLINE void turn_16x4(float *out, size_t out_stride, const float *in, size_t in_stride)
{
    v16 v[4];
    for (int k = 0; k < 4; k++) {
        const float *first = in + (size_t)k * in_stride;
        v[k] = v16_load4x4(first, first + 4 * in_stride, first + 8 * in_stride, first + 12 * in_stride);
    }
    v16_turn_groups(v);
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

/* Element by element: whole vectors, for which the constant 16 makes loads and stores whole, then the rest.
 */
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

/* exp(x) for |x| <= 87 in fma: Cody-Waite reduction, degree 6 (Cephes expf); relative error < 2e-7. */
LANES_INLINE v16 v16_exp(v16 x)
{
    v16 round = v16_set1(12582912.0F); /* 1.5 * 2^23: adding and taking it away rounds to an integer */
    v16 k = v16_sub(v16_fma(x, v16_set1(1.44269504F), round), round);
    v16 r = v16_fnma(k, v16_set1(0.693359375F), x);
    r = v16_fnma(k, v16_set1(-2.12194440e-4F), r);
    v16 p = v16_set1(1.9875691500e-4F);
    p = v16_fma(p, r, v16_set1(1.3981999507e-3F));
    p = v16_fma(p, r, v16_set1(8.3334519073e-3F));
    p = v16_fma(p, r, v16_set1(4.1665795894e-2F));
    p = v16_fma(p, r, v16_set1(1.6666665459e-1F));
    p = v16_fma(p, r, v16_set1(5.0000001201e-1F));
    p = v16_fma(v16_mul(r, r), p, v16_add(r, v16_set1(1.0F)));
    return v16_ldexp(p, k);
}

/* Limited to |x| <= 87 first: beyond it the float result is 0 or 1 anyway. A NaN counts as -87. */
LANES_INLINE v16 v16_sigmoid(v16 x)
{
    v16 e = v16_exp(v16_sub(v16_set1(0.0F), v16_clamp(x, v16_set1(87.0F))));
    return v16_div(v16_set1(1.0F), v16_add(v16_set1(1.0F), e));
}

static void sigmoid(float *out, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(out + i, v16_sigmoid(v16_load(x + i)));
    if (i < n)
        v16_store_n(out + i, v16_sigmoid(v16_load_n(x + i, n - i)), n - i);
}

LANES_INLINE v16 logloss_slope(const float *logits, const float *labels, size_t lanes)
{
    return v16_sub(v16_sigmoid(v16_load_n(logits, lanes)), v16_load_n(labels, lanes));
}

static void logloss_gradient(float *out, const float *logits, const float *labels, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(out + i, logloss_slope(logits + i, labels + i, 16));
    if (i < n)
        v16_store_n(out + i, logloss_slope(logits + i, labels + i, n - i), n - i);
}

/* Integer mixing (splitmix64's finish), then an exact conversion: plain C is the same everywhere. */
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
