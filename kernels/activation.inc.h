/* The smooth activations of gates.inc.h over arrays, and dropout, whose mask is a hash. */

LANES_INLINE void gates_forward(float *out, const float *x, size_t n, bool is_gelu)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(out + i, gate_forward(v16_load(x + i), is_gelu));
    if (i < n)
        v16_store_n(out + i, gate_forward(v16_load_n(x + i, n - i), is_gelu), n - i);
}

LANES_INLINE void gates_backward(float *dx, const float *dout, const float *x, size_t n, bool is_gelu)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(dx + i, gate_backward(v16_load(dout + i), v16_load(x + i), is_gelu));
    if (i < n)
        v16_store_n(dx + i, gate_backward(v16_load_n(dout + i, n - i), v16_load_n(x + i, n - i), is_gelu),
                    n - i);
}

static void silu_forward(float *out, const float *x, size_t n)
{
    gates_forward(out, x, n, false);
}

static void silu_backward(float *dx, const float *dout, const float *x, size_t n)
{
    gates_backward(dx, dout, x, n, false);
}

static void gelu_forward(float *out, const float *x, size_t n)
{
    gates_forward(out, x, n, true);
}

static void gelu_backward(float *dx, const float *dout, const float *x, size_t n)
{
    gates_backward(dx, dout, x, n, true);
}

enum { DROPOUT_BLOCK = 64 };

/* The draws of a block of elements as numbers 0 .. 65535: each hash gives four. The loops have a constant length, so
 * that the compiler can vectorize them. */
LANES_INLINE void dropout_draws(float draws[DROPOUT_BLOCK], uint64_t counter)
{
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
                  "bits 16 (i % 4) of a word are its i-th quarter");
    uint64_t hashes[DROPOUT_BLOCK / 4];
    for (uint64_t q = 0; q < DROPOUT_BLOCK / 4; q++) {
        uint64_t x = counter + (q + 1) * 0x9e3779b97f4a7c15U;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
        hashes[q] = x ^ (x >> 31);
    }
    uint16_t quarters[DROPOUT_BLOCK];
    memcpy(quarters, hashes, sizeof(quarters));
    for (size_t i = 0; i < DROPOUT_BLOCK; i++)
        draws[i] = (float)quarters[i];
}

static void dropout(float *x, const uint64_t *keys, float rate, size_t n, size_t d)
{
    float dropped = floorf(rate * 65536.0F + 0.5F), draws[DROPOUT_BLOCK];
    dropped = dropped > 65535.0F ? 65535.0F : dropped;
    v16 scale = v16_set1(65536.0F / (65536.0F - dropped)), least = v16_set1(dropped - 0.5F);
    for (size_t r = 0; r < n; r++) {
        float *row = x + r * d;
        for (size_t i = 0; i < d; i += 16) {
            size_t at = i % DROPOUT_BLOCK;
            if (at == 0)
                dropout_draws(draws, keys[r] + i / 4 * 0x9e3779b97f4a7c15U);
            if (i + 16 <= d) {
                v16 values = v16_mul(v16_load(row + i), scale);
                v16_store(row + i, v16_keep_gt(values, v16_load(draws + at), least));
            } else {
                v16 values = v16_mul(v16_load_n(row + i, d - i), scale);
                v16_store_n(row + i, v16_keep_gt(values, v16_load(draws + at), least), d - i);
            }
        }
    }
}
