/* The cases of test_kernels.c for the kernels of sequence models and of items: attention, layer norm, activations,
 * dropout, losses, the int8 scan. */

/* One window of up to 150 tokens and a second of one token, causal, with dropout for odd n. */
static struct attention attention(struct slab *s, size_t n, size_t d)
{
    static _Alignas(64) char scratch[1 << 18];
    d = d > 64 ? 64 : d < 16 ? 16 : d / 16 * 16;
    n = n > 150 ? 150 : n;
    uint32_t *offsets = take(s, 3 * sizeof(*offsets));
    offsets[0] = 0, offsets[1] = (uint32_t)n, offsets[2] = (uint32_t)n + 1;
    float *qkv = floats(s, (n + 1) * 3 * d, ANY), *grads = floats(s, (n + 1) * 3 * d, ANY);
    assert_true(attention_scratch_bytes(d) <= sizeof(scratch));
    memset(scratch, 0, sizeof(scratch));
    return (struct attention){.offsets = offsets,
                              .events = 2,
                              .heads = 1,
                              .d = (uint32_t)d,
                              .is_causal = n % 3 > 0,
                              .scale = 0.25F,
                              .q = {qkv, 3 * d},
                              .k = {qkv + d, 3 * d},
                              .v = {qkv + 2 * d, 3 * d},
                              .out = {floats(s, (n + 1) * d, ANY), d},
                              .lse = floats(s, n + 1, ANY),
                              .weight_scale = 0.1F,
                              .dropout = n % 2 ? 0.25F : 0.0F,
                              .seed = n,
                              .dout = {floats(s, (n + 1) * d, ANY), d},
                              .dq = {grads, 3 * d},
                              .dk = {grads + d, 3 * d},
                              .dv = {grads + 2 * d, 3 * d},
                              .scratch = scratch};
}
static const struct attention_bias *attention_bias(struct slab *s, size_t rows)
{
    static struct attention_bias bias;
    enum { MOST = 40 };
    uint32_t *seconds = take(s, (rows + 1) * sizeof(*seconds));
    for (size_t i = 0; i < rows; i++)
        seconds[i] = (uint32_t)(next_random(s) >> (32 + i % 32));
    bias = (struct attention_bias){.positions = floats(s, 2 * MOST + 1, ANY) + MOST,
                                   .times = floats(s, ATTENTION_TIME_BUCKETS, ANY),
                                   .positions_max = MOST,
                                   .query_seconds = seconds,
                                   .key_seconds = seconds,
                                   .dpositions = floats(s, 2 * MOST + 1, ANY) + MOST,
                                   .dtimes = floats(s, ATTENTION_TIME_BUCKETS, ANY)};
    return &bias;
}
/* A query that is not a number, whatever the sign of its NaN, has no finite logarithm. */
CASE(attention_softmax_forward)
{
    struct attention a = attention(s, n, d);
    k->attention_softmax_forward(&a);
    for (size_t r = 0; r < a.offsets[a.events]; r++)
        for (size_t i = 0; i < a.d; i++)
            assert_true(!isnan(a.q.at[r * a.q.stride + i]) || isnan(a.lse[r]));
}
CASE(attention_softmax_backward)
{
    struct attention a = attention(s, n, d);
    k->attention_softmax_forward(&a);
    k->attention_softmax_backward(&a);
}
CASE(attention_silu_forward)
{
    struct attention a = attention(s, n, d);
    a.bias = attention_bias(s, a.offsets[2]);
    k->attention_silu_forward(&a);
}
CASE(attention_silu_backward)
{
    struct attention a = attention(s, n, d);
    a.bias = attention_bias(s, a.offsets[2]);
    k->attention_silu_backward(&a);
}
/* A window of up to 150 tokens in pages, with the last two as queries. */
static struct attention_pages attention_pages(struct slab *s, size_t n, size_t d)
{
    enum { MOST = 150 };
    static const void *pages[MOST / ATTENTION_PAGE + 1];
    d = d > 64 ? 64 : d < 16 ? 16 : d / 16 * 16;
    n = n > MOST ? MOST : n < 2 ? 2 : n;
    for (size_t p = 0; p * ATTENTION_PAGE < n; p++)
        pages[p] = floats(s, attention_page_elements(2 * d), ANY);
    return (struct attention_pages){.pages = pages,
                                    .is_bf16 = n % 2,
                                    .first = (uint32_t)n - 2,
                                    .queries = 2,
                                    .heads = 2,
                                    .d = (uint32_t)d,
                                    .scale = 0.25F,
                                    .q = {floats(s, 4 * d, ANY), 2 * d},
                                    .out = {floats(s, 4 * d, ANY), 2 * d},
                                    .weight_scale = 0.1F};
}
CASE(attention_softmax_pages)
{
    struct attention_pages a = attention_pages(s, n, d);
    k->attention_softmax_pages(&a);
}
CASE(attention_silu_pages)
{
    struct attention_pages a = attention_pages(s, n, d);
    struct attention_bias bias = *attention_bias(s, a.first + a.queries);
    bias.query_seconds += a.first;
    a.bias = &bias;
    k->attention_silu_pages(&a);
}
CASE(int8_quantize)
{
    d = d < INT8_DIMS_MAX ? d : INT8_DIMS_MAX;
    int8_t *out = take(s, 4 * int8_groups(d));
    s->is_special = false; /* rows are finite */
    float *x = floats(s, d, ANY);
    if (n % 2 == 0)
        memset(x, 0, d * sizeof(*x));
    float scale = k->int8_quantize(out, x, d);
    int largest = 0;
    for (size_t i = 0; i < d; i++) {
        largest = abs(out[i]) > largest ? abs(out[i]) : largest;
        assert_true(fabsf(x[i] - scale * (float)out[i]) <= scale * 0.5001F);
    }
    assert_int_equal(largest, d > 0 && n % 2 == 1 ? 127 : 0);
    result(s, scale);
}
/* Bytes of -127..127, some of them at the limits. */
static int8_t byte(struct slab *s)
{
    uint64_t r = next_random(s) >> 8;
    return (int8_t)(r % 4 == 0 ? 127 : r % 4 == 1 ? -127 : (int)(r / 4 % 255) - 127);
}
/* Also compares with plain sums, and with the code for CPUs without VNNI. */
CASE(int8_scores)
{
    static const size_t counts[] = {1, 64, 0, 3, 8, 13};
    static int32_t expected[INT8_QUERIES_MAX * 64 * INT8_BLOCK];
    size_t count = counts[(n + d) % 6], row = 4 * int8_groups(d), blocks = n < 64 ? n : 64, at = 0;
    int8_t *queries = take(s, count * row), *items = take(s, blocks * INT8_BLOCK * row);
    int32_t *starts = take(s, count * sizeof(*starts));
    for (size_t i = 0; i < count * row; i++)
        queries[i] = (int8_t)(i % row < d ? byte(s) : 0);
    for (size_t q = 0; q < count; q++)
        starts[q] = int8_start(queries + q * row, d);
    uint8_t *block = take(s, blocks * int8_block_bytes(d));
    for (size_t i = 0; i < blocks * INT8_BLOCK; i++) {
        for (size_t j = 0; j < d; j++)
            items[i * row + j] = byte(s);
        int8_block_put(block + i / INT8_BLOCK * int8_block_bytes(d), i % INT8_BLOCK, items + i * row, d);
    }
    size_t scores = count * blocks * INT8_BLOCK;
    int32_t *out = take(s, scores * sizeof(*out));
    for (size_t q = 0; q < count; q++)
        for (size_t i = 0; i < blocks * INT8_BLOCK; i++, at++) {
            expected[at] = 0;
            for (size_t j = 0; j < d; j++)
                expected[at] += queries[q * row + j] * items[i * row + j];
        }
    struct int8_queries list = {.bytes = queries, .starts = starts, .count = count, .is_plain = true};
    k->int8_scores(out, block, &list, blocks, d);
    assert_memory_equal(out, expected, scores * sizeof(*out));
    memset(out, 0xa5, scores * sizeof(*out));
    list.is_plain = false;
    k->int8_scores(out, block, &list, blocks, d);
    assert_memory_equal(out, expected, scores * sizeof(*out));
}
CASE(int8_above)
{
    n = n < 64 ? n : 64;
    int32_t *scores = take(s, n * INT8_BLOCK * sizeof(*scores));
    for (size_t i = 0; i < n * INT8_BLOCK; i++)
        scores[i] = (int32_t)(next_random(s) % 8000000) - 4000000;
    float *scales = floats(s, n * INT8_BLOCK, ANY), least = d % 2 ? -INFINITY : 1e6F;
    uint32_t *found = take(s, n * INT8_BLOCK * sizeof(*found));
    size_t count = k->int8_above(found, scores, scales, least, n), at = 0;
    for (uint32_t i = 0; i < n * INT8_BLOCK; i++)
        if ((float)scores[i] * scales[i] > least)
            assert_true(at < count && found[at++] == i);
    assert_int_equal(at, count);
}

CASE(layer_norm_forward)
{
    float *out = floats(s, n * d, ANY), *stats = floats(s, 2 * n, ANY), *x = floats(s, n * d, ANY);
    float *gain = floats(s, d, ANY);
    k->layer_norm_forward(out, stats, x, gain, floats(s, d, ANY), 1e-8F, n, d);
    k->layer_norm_forward(x, stats, x, gain, gain, 1e-8F, n, d);
}
CASE(layer_norm_backward)
{
    float *dx = floats(s, n * d, ANY), *dout = floats(s, n * d, ANY), *x = floats(s, n * d, ANY);
    float *stats = floats(s, 2 * n, ANY), *gain = floats(s, d, ANY);
    k->layer_norm_backward(dx, dout, x, stats, gain, n, d);
    k->layer_norm_backward(dout, dout, x, stats, gain, n, d);
}
CASE(layer_norm_gradient)
{
    float *dgain = floats(s, d, ANY), *dbias = floats(s, d, ANY), *dout = floats(s, n * d, ANY);
    float *x = floats(s, n * d, ANY);
    k->layer_norm_gradient(dgain, dbias, dout, x, floats(s, 2 * n, ANY), n, d);
}
/* Numbers in +-2, and for every third a hundred times as large. */
static float *wide(struct slab *s, size_t n)
{
    float *x = floats(s, n, ANY);
    for (size_t i = 0; i < n; i += 3)
        x[i] *= 100.0F;
    return x;
}
CASE(silu_forward)
{
    float *x = wide(s, n * d);
    k->silu_forward(floats(s, n * d, ANY), x, n * d);
    k->silu_forward(x, x, n * d);
}
CASE(silu_backward)
{
    float *dx = floats(s, n * d, ANY), *dout = floats(s, n * d, ANY), *x = wide(s, n * d);
    k->silu_backward(dx, dout, x, n * d);
    k->silu_backward(dout, dout, x, n * d);
}
CASE(gelu_forward)
{
    float *x = wide(s, n * d);
    k->gelu_forward(floats(s, n * d, ANY), x, n * d);
    k->gelu_forward(x, x, n * d);
}
CASE(gelu_backward)
{
    float *dx = floats(s, n * d, ANY), *dout = floats(s, n * d, ANY), *x = wide(s, n * d);
    k->gelu_backward(dx, dout, x, n * d);
    k->gelu_backward(dout, dout, x, n * d);
}
CASE(dropout)
{
    static const float rates[] = {0.0F, 0.1F, 0.5F, 0.9999F, 0.99999F};
    float *x = floats(s, n * d, ANY);
    k->dropout(x, (uint64_t *)(void *)doubles(s, n, ANY), rates[(n + d) % 5], n, d);
}
CASE(dots)
{
    float *out = floats(s, n, ANY), *query = floats(s, d, ANY);
    const float *const *list = rows(s, n, d);
    k->dots(out, query, list, n, d);
    for (size_t i = 0; i < n; i++) {
        float one = k->dot(query, list[i], d);
        assert_true(memcmp(&one, &out[i], sizeof(one)) == 0 || (isnan(one) && isnan(out[i])));
    }
}
CASE(add_weighted)
{
    float *out = floats(s, d, ANY), *weights = floats(s, n, ANY);
    const float *const *list = rows(s, n, d);
    for (size_t i = 0; i < n; i += 3)
        weights[i] = 0.0F;
    k->add_weighted(out, list, weights, n, d);
}
CASE(exp64)
{
    double *out = doubles(s, n * d, ANY), *x = doubles(s, n * d, ANY);
    for (size_t i = 0; i < n * d; i++)
        x[i] *= i % 3 == 0 ? 400.0 : 3.0;
    k->exp64(out, x, n * d);
}
CASE(scores_max)
{
    result(s, k->scores_max(wide(s, n * d), n * d));
}
CASE(scores_exp_sum)
{
    float *scores = wide(s, n * d);
    result(s, k->scores_exp_sum(scores, k->scores_max(scores, n * d), 0.5F + (float)d / 16.0F, n * d));
}
CASE(scores_weights)
{
    float *scores = wide(s, n * d);
    k->scores_weights(scores, k->scores_max(scores, n * d), 0.5F + (float)d / 16.0F, 1.5F, -0.7F, n * d);
}
