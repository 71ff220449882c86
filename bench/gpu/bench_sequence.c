/* The kernels of sequence models (kernels/batch_sequence.h), over windows of one length: tokens of 64 columns, which is
 * the width of a small SASRec, and attention with two heads of 32 or one of 64. */
#include "bench_batch.h"

#include <math.h>

enum { DIMS = 64, LENGTH = 200, LENGTH_LONG = 2048, LENGTH_TINY = 70 };

struct windows {
    uint32_t count, length, rows;
    uint32_t *offsets; /* in the place's memory */
    uint64_t *identities;
};

static struct windows make_windows(struct bench *b, uint32_t count, uint32_t length)
{
    bool is_tiny = b->place->size == SIZE_TINY;
    struct windows w = {.count = count > 0 ? count : 1, .length = is_tiny ? (uint32_t)LENGTH_TINY : length};
    uint32_t *offsets = host_room((w.count + 1) * sizeof(*offsets));
    for (uint32_t i = 0; i < w.count; i++)
        offsets[i + 1] = offsets[i] + w.length;
    w.rows = offsets[w.count];
    w.offsets = place_upload(b->place, offsets, (w.count + 1) * sizeof(*offsets));
    w.identities = place_zeros(b->place, w.count * sizeof(*w.identities));
    free(offsets);
    return w;
}

void bench_layer_norm(struct bench *b)
{
    struct windows w = make_windows(b, b->sizes->windows, LENGTH);
    size_t floats = (size_t)w.rows * DIMS, bytes = floats * sizeof(float);
    struct batch_layer_norm a = {.x = place_floats(b->place, floats), .n = w.rows, .d = DIMS};
    a.gain = place_floats(b->place, DIMS), a.bias = place_floats(b->place, DIMS);
    a.epsilon = 1e-6F;
    a.stats = place_zeros(b->place, (size_t)w.rows * 2 * sizeof(float));
    a.out = place_zeros(b->place, bytes);
    MEASURE(b, layer_norm, &a, 0, "rows of 64, forward");
    a.out = NULL;
    a.out_gradients = place_floats(b->place, floats), a.grads = place_zeros(b->place, bytes);
    MEASURE(b, layer_norm, &a, 0, "rows of 64, backward");
    place_release(b->place);
}

void bench_layer_norm_gradient(struct bench *b)
{
    struct windows w = make_windows(b, b->sizes->windows, LENGTH);
    size_t floats = (size_t)w.rows * DIMS, chunks = (w.rows + (size_t)BATCH_CHUNK - 1) / BATCH_CHUNK;
    struct batch_layer_norm_gradient a = {.n = w.rows, .d = DIMS};
    a.x = place_floats(b->place, floats), a.out_gradients = place_floats(b->place, floats);
    a.stats = place_floats(b->place, (size_t)w.rows * 2);
    a.sums = place_zeros(b->place, chunks * 2 * DIMS * sizeof(float));
    a.total = place_zeros(b->place, (size_t)2 * DIMS * sizeof(float));
    MEASURE(b, layer_norm_gradient, &a, 0, "rows of 64, by gain and bias");
    place_release(b->place);
}

void bench_silu(struct bench *b)
{
    uint64_t n = (uint64_t)b->sizes->windows * LENGTH * DIMS;
    struct batch_silu a = {.x = place_floats(b->place, n), .n = n};
    a.out = place_zeros(b->place, n * sizeof(float));
    MEASURE(b, silu, &a, 0, "forward");
    a.out = NULL;
    a.out_gradients = place_floats(b->place, n), a.grads = place_zeros(b->place, n * sizeof(float));
    MEASURE(b, silu, &a, 0, "backward");
    place_release(b->place);
}

void bench_gate(struct bench *b)
{
    uint32_t n = b->sizes->windows * LENGTH;
    size_t floats = (size_t)n * DIMS, bytes = floats * sizeof(float);
    struct batch_gate a = {.a = place_floats(b->place, 4 * floats), .n = n, .d = DIMS, .a_stride = 4 * DIMS};
    a.b = place_floats(b->place, floats), a.out = place_zeros(b->place, bytes);
    MEASURE(b, gate, &a, 0, "rows of 64, one of four parts, forward");
    a.out = NULL;
    a.out_gradients = place_floats(b->place, floats);
    a.a_grads = place_zeros(b->place, 4 * bytes), a.b_grads = place_zeros(b->place, bytes);
    MEASURE(b, gate, &a, 0, "rows of 64, one of four parts, backward");
    place_release(b->place);
}

void bench_dropout(struct bench *b)
{
    struct windows w = make_windows(b, b->sizes->windows, LENGTH);
    struct batch_dropout a = {.x = place_floats(b->place, (size_t)w.rows * DIMS),
                              .n = w.rows,
                              .d = DIMS,
                              .rate = 0.2F,
                              .offsets = w.offsets,
                              .windows = w.count,
                              .identities = w.identities};
    MEASURE(b, dropout, &a, 0, "rows of 64, keys by window and position");
    place_release(b->place);
}

void bench_add_positions(struct bench *b)
{
    struct windows w = make_windows(b, b->sizes->windows, LENGTH);
    struct batch_add_positions a = {.x = place_floats(b->place, (size_t)w.rows * DIMS),
                                    .table = place_floats(b->place, (size_t)w.length * DIMS),
                                    .n = w.rows,
                                    .d = DIMS,
                                    .offsets = w.offsets,
                                    .windows = w.count};
    MEASURE(b, add_positions, &a, 0, "rows of 64, windows of 200");
    place_release(b->place);
}

void bench_positions_gradient(struct bench *b)
{
    struct windows w = make_windows(b, b->sizes->windows, LENGTH);
    struct batch_positions_gradient a = {.out_gradients = place_floats(b->place, (size_t)w.rows * DIMS),
                                         .d = DIMS,
                                         .positions = w.length,
                                         .offsets = w.offsets,
                                         .windows = w.count,
                                         .table =
                                             place_zeros(b->place, (size_t)w.length * DIMS * sizeof(float))};
    MEASURE(b, positions_gradient, &a, w.rows, "rows of 64, windows of 200");
    place_release(b->place);
}

/* A batch of causal attention, the most common kind, forward; and its gradients, for the backward pass. */
static struct batch_attention make_attention(struct bench *b, const struct windows *w, uint32_t heads)
{
    size_t floats = (size_t)w->rows * DIMS, stride = (size_t)3 * DIMS;
    float *qkv = place_floats(b->place, 3 * floats);
    struct batch_attention a = {.queries = w->rows};
    a.of.offsets = w->offsets, a.of.events = w->count, a.of.heads = heads, a.of.d = DIMS / heads;
    a.of.is_causal = true, a.of.scale = 1.0F / sqrtf((float)a.of.d),
    a.of.weight_scale = 1.0F / (float)w->length;
    a.of.q = (struct attention_in){qkv, stride}, a.of.k = (struct attention_in){qkv + DIMS, stride};
    a.of.v = (struct attention_in){qkv + (size_t)2 * DIMS, stride};
    a.of.out = (struct attention_out){place_zeros(b->place, floats * sizeof(float)), DIMS};
    a.of.lse = place_zeros(b->place, (size_t)w->rows * heads * sizeof(float));
    return a;
}

static void add_gradients(struct bench *b, struct batch_attention *a)
{
    size_t floats = (size_t)a->queries * DIMS, stride = (size_t)3 * DIMS;
    float *grads = place_zeros(b->place, 3 * floats * sizeof(float));
    a->of.dout = (struct attention_in){place_floats(b->place, floats), DIMS};
    a->of.dq = (struct attention_out){grads, stride}, a->of.dk = (struct attention_out){grads + DIMS, stride};
    a->of.dv = (struct attention_out){grads + (size_t)2 * DIMS, stride};
}

static double pairs_of(const struct windows *w)
{
    return w->count * (double)w->length * (w->length + 1) / 2;
}

static void attend(struct bench *b, uint32_t heads, uint32_t count, uint32_t length,
                   enum row_format precision, const char *const texts[2])
{
    struct windows w = make_windows(b, count, length);
    struct batch_attention a = make_attention(b, &w, heads);
    a.of.precision = precision;
    ROOM_FOR(b, attention_softmax, &a);
    MEASURE(b, attention_softmax, &a, pairs_of(&w), texts[0]);
    add_gradients(b, &a);
    ROOM_FOR(b, attention_softmax, &a);
    MEASURE(b, attention_softmax, &a, pairs_of(&w), texts[1]);
    place_release(b->place);
}

/* A CPU's kernels in bf16 are there for the bits, not for speed (attention_tile.inc.h). */
static bool has_bf16(const struct bench *b)
{
    return b->place->api != NULL;
}

/* All shapes in fp32, then all in bf16. */
void bench_attention_softmax(struct bench *b)
{
    static const char *const texts[3][2][2] = {
        {{"windows of 200, two heads of 32, forward", "windows of 200, two heads of 32, backward"},
         {"windows of 200, two heads of 32, bf16, forward",
          "windows of 200, two heads of 32, bf16, backward"}},
        {{"windows of 200, one head of 64, forward", "windows of 200, one head of 64, backward"},
         {"windows of 200, one head of 64, bf16, forward", "windows of 200, one head of 64, bf16, backward"}},
        {{"windows of 2048, one head of 64, forward", "windows of 2048, one head of 64, backward"},
         {"windows of 2048, one head of 64, bf16, forward",
          "windows of 2048, one head of 64, bf16, backward"}}};
    for (int i = 0; i < (has_bf16(b) ? 2 : 1); i++) {
        enum row_format precision = i == 0 ? ROW_FP32 : ROW_BF16;
        attend(b, 2, b->sizes->windows, LENGTH, precision, texts[0][i]);
        attend(b, 1, b->sizes->windows, LENGTH, precision, texts[1][i]);
        attend(b, 1, b->sizes->windows / 10, LENGTH_LONG, precision, texts[2][i]);
    }
}

/* With biases of position and time, whose gradients go by parts of WINDOWS_EACH windows. */
static void attend_biased(struct bench *b, enum row_format precision, const char *const texts[2])
{
    enum { WINDOWS_EACH = 16 };
    struct windows w = make_windows(b, b->sizes->windows, LENGTH);
    struct batch_attention a = make_attention(b, &w, 2);
    a.of.precision = precision;
    size_t table = (size_t)w.length + ATTENTION_TIME_BUCKETS;
    uint32_t parts_count = (w.count + WINDOWS_EACH - 1) / WINDOWS_EACH;
    uint32_t *parts = host_room((parts_count + 1) * sizeof(*parts)),
             *seconds = host_room(w.rows * sizeof(*seconds));
    for (uint32_t p = 0; p <= parts_count; p++)
        parts[p] = p < parts_count ? p * WINDOWS_EACH : w.count;
    for (uint32_t r = 0; r < w.rows; r++)
        seconds[r] = 1000 * r;
    struct attention_bias bias = {.positions = place_floats(b->place, table), .positions_max = w.length - 1};
    bias.times = bias.positions + w.length;
    bias.query_seconds = bias.key_seconds = place_upload(b->place, seconds, w.rows * sizeof(*seconds));
    bias.dpositions = place_zeros(b->place, parts_count * table * sizeof(float));
    bias.dtimes = bias.dpositions + w.length;
    a.of.bias = &bias, a.of.identities = w.identities;
    a.parts = place_upload(b->place, parts, (parts_count + 1) * sizeof(*parts));
    a.parts_count = parts_count, a.part_stride = table;
    ROOM_FOR(b, attention_silu, &a);
    MEASURE(b, attention_silu, &a, pairs_of(&w), texts[0]);
    add_gradients(b, &a);
    MEASURE(b, attention_silu, &a, pairs_of(&w), texts[1]);
    place_release(b->place);
    free(parts);
    free(seconds);
}

void bench_attention_silu(struct bench *b)
{
    static const char *const texts[2][2] = {{"windows of 200, two heads of 32, biases, forward",
                                             "windows of 200, two heads of 32, biases, backward"},
                                            {"windows of 200, two heads of 32, biases, bf16, forward",
                                             "windows of 200, two heads of 32, biases, bf16, backward"}};
    attend_biased(b, ROW_FP32, texts[0]);
    if (has_bf16(b))
        attend_biased(b, ROW_BF16, texts[1]);
}
