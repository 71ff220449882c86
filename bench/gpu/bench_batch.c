/*
 * The batch kernels of kernels.def (BATCH), each in each variant, compared with copying in the same run:
 *   bench_batch [--tiny] [VARIANT...]        scalar, avx2, avx512, cuda; without any: all
 * Prints one line of JSON a figure (place.h). --tiny: small sizes, each call made once, nothing timed. A
 * kernel without a bench_NAME, here or in bench_sequence.c, does not link.
 */
#include "bench_batch.h"

/* Sizes of the benchmarks, by where they run. */
static const struct sizes all_sizes[SIZES] = {
    [SIZE_TINY] = {600, 10, 700, 16, 5, 6, 8, 3, 5, 4, 1001, 33, 12, 33, 12, 20, 3},
    [SIZE_CPU] = {104857, 10, 150000, 128, 4096, 26, 16, 2048, 12, 8, 1 << 23, 1 << 16, 64, 1 << 12, 512, 256,
                  64},
    [SIZE_GPU] = {1048570, 10, 2000000, 128, 1 << 17, 26, 16, 1 << 16, 12, 8, 1 << 27, 1 << 21, 64, 1 << 16,
                  1024, 1024, 4096},
};

static void run_call(struct place *place, void *state)
{
    struct call *c = state;
    c->run(place->kernels, c->args, place->stream);
}

void bench_measure(struct bench *b, const char *kernel, const char *what, struct call call, double bytes,
                   double flops)
{
    line_print(&(struct line){.group = "kernels",
                              .figure = kernel,
                              .what = what,
                              .variant = b->place->name,
                              .ms = place_time_ms(b->place, run_call, NULL, &call),
                              .bytes = bytes,
                              .items = flops,
                              .unit = "flop"});
}

/* --- dedupe, and kernels that use its results --- */

static struct batch_dedupe make_dedupe(struct bench *b, enum ids kind, enum dedupe_method method)
{
    uint32_t n = b->sizes->places, tables = b->sizes->tables, each = n / tables;
    uint64_t *ids = host_room(n * sizeof(*ids));
    uint32_t offsets[BATCH_TABLES_MAX + 1] = {0};
    for (uint32_t t = 0; t < tables; t++) {
        ids_fill(ids + t * each, each, kind, 77 + t);
        offsets[t + 1] = (t + 1) * each;
    }
    n = each * tables;
    struct batch_dedupe a = place_dedupe(b->place, ids, offsets, tables);
    a.method = method;
    free(ids);
    return a;
}

static uint32_t distinct(struct bench *b, struct batch_dedupe *a)
{
    uint32_t count = 0;
    b->place->kernels->dedupe(a, b->place->stream);
    place_download(b->place, &count, a->count, sizeof(count));
    return count;
}

void bench_dedupe(struct bench *b)
{
    static const char *const texts[IDS_KINDS][DEDUPE_METHODS] = {
        {"by sorting, ids all distinct", "by hashing, ids all distinct"},
        {"by sorting, Zipf, half of the ids distinct", "by hashing, Zipf, half of the ids distinct"}};
    for (int kind = 0; kind < IDS_KINDS; kind++)
        for (int method = 0; method < DEDUPE_METHODS; method++) {
            struct batch_dedupe a = make_dedupe(b, (enum ids)kind, (enum dedupe_method)method);
            uint32_t count = distinct(b, &a);
            MEASURE(b, dedupe, &a, count, texts[kind][method]);
            place_release(b->place);
        }
}

/* Pointers to n distinct rows of `rows`, unordered; in the place's memory. */
static void **make_rows(struct bench *b, uint32_t n, uint32_t rows, size_t stride)
{
    unsigned char *base = (unsigned char *)place_rows(b->place, rows * stride / sizeof(float));
    void **host = host_room(n * sizeof(*host));
    const uint64_t prime = 2654435761U; /* a stride that visits each row once */
    for (uint32_t i = 0; i < n; i++)
        host[i] = base + (i * prime % rows) * stride;
    void **there = place_upload(b->place, host, n * sizeof(*host));
    free(host);
    return there;
}

void bench_gather_pool(struct bench *b)
{
    static const char *const texts[ROW_FORMATS] = {"one row a bag, fp32", "one row a bag, bf16",
                                                   "one row a bag, fp16", "one row a bag, int8"};
    uint32_t n = b->sizes->places, d = b->sizes->d, rows = b->sizes->rows;
    for (int format = 0; format < ROW_FORMATS; format++) {
        struct batch_gather_pool a = {.bags = n, .d = d, .format = (enum row_format)format};
        a.rows = (const void *const *)make_rows(b, n, rows, row_bytes(a.format, d, 0));
        a.out = place_zeros(b->place, (size_t)n * d * sizeof(float));
        MEASURE(b, gather_pool, &a, n, texts[format]);
        place_release(b->place);
    }
}

static struct batch_segments make_segments(struct bench *b, struct batch_dedupe *a)
{
    return (struct batch_segments){.grads = place_floats(b->place, (size_t)a->n * b->sizes->d),
                                   .order = a->order,
                                   .starts = a->starts,
                                   .count = a->count,
                                   .n = a->n,
                                   .d = b->sizes->d};
}

void bench_segment_reduce(struct bench *b)
{
    for (int kind = 0; kind < IDS_KINDS; kind++) {
        struct batch_dedupe ids = make_dedupe(b, (enum ids)kind, DEDUPE_SORT);
        uint32_t count = distinct(b, &ids);
        struct batch_segment_reduce a = {.in = make_segments(b, &ids)};
        a.sums = place_zeros(b->place, (size_t)ids.n * b->sizes->d * sizeof(float));
        ROOM_FOR(b, segment_reduce, &a);
        MEASURE(b, segment_reduce, &a, count, ids_names[kind]);
        place_release(b->place);
    }
}

void bench_update(struct bench *b)
{
    static const struct {
        enum opt_kind kind;
        enum row_format format;
        enum ids ids;
        const char *text;
    } cases[] = {
        {OPT_SGD, ROW_FP32, IDS_DISTINCT, "SGD, all distinct"},
        {OPT_ADAGRAD_ROW, ROW_FP32, IDS_DISTINCT, "row-wise AdaGrad, all distinct"},
        {OPT_ADAGRAD, ROW_FP32, IDS_DISTINCT, "AdaGrad, all distinct"},
        {OPT_FTRL, ROW_FP32, IDS_DISTINCT, "FTRL, all distinct"},
        {OPT_ADAM, ROW_FP32, IDS_DISTINCT, "Adam, all distinct"},
        {OPT_ADAM, ROW_BF16, IDS_DISTINCT, "Adam, bf16, all distinct"},
        {OPT_ADAM, ROW_FP32, IDS_ZIPF, "Adam, Zipf, half distinct"},
    };
    uint32_t d = b->sizes->d, rows = b->sizes->rows;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct batch_dedupe ids = make_dedupe(b, cases[i].ids, DEDUPE_SORT);
        uint32_t count = distinct(b, &ids);
        struct batch_update a = {.in = make_segments(b, &ids),
                                 .keys = ids.unique_ids,
                                 .format = cases[i].format,
                                 .kind = cases[i].kind,
                                 .params = place_params,
                                 .seed = 3,
                                 .rejected = place_zeros(b->place, sizeof(uint32_t))};
        a.rows = make_rows(b, ids.n, rows, row_bytes(a.format, d, opt_state_floats(a.kind, d)));
        ROOM_FOR(b, update, &a);
        MEASURE(b, update, &a, count, cases[i].text);
        place_release(b->place);
    }
}

/* --- Linear weights, and the loss --- */

/* Rows of 32 bytes for n indices, unordered; they hold FTRL's two doubles, or an optimizer's floats. */
static struct batch_weights make_weights(struct bench *b, uint32_t n, enum opt_kind kind, bool is_double)
{
    return (struct batch_weights){.rows = make_rows(b, n, b->sizes->rows, 32),
                                  .is_double = is_double,
                                  .kind = kind,
                                  .params = place_params,
                                  .ftrl = {.alpha = 1e-4, .beta = 1.0, .l1 = 0.1, .l2 = 0.1}};
}

void bench_weights_read(struct bench *b)
{
    uint32_t n = b->sizes->places;
    for (int is_double = 0; is_double < 2; is_double++) {
        struct batch_weights_read a = {.of = make_weights(b, n, OPT_FTRL, is_double != 0),
                                       .count = place_upload(b->place, &n, sizeof(n)),
                                       .n = n,
                                       .out = place_zeros(b->place, n * sizeof(float))};
        MEASURE(b, weights_read, &a, n, is_double ? "of FTRL in double" : "floats");
        place_release(b->place);
    }
}

void bench_weights_forward(struct bench *b)
{
    for (int kind = 0; kind < IDS_KINDS; kind++) {
        struct batch_dedupe ids = make_dedupe(b, (enum ids)kind, DEDUPE_SORT);
        uint32_t count = distinct(b, &ids), events = ids.n / ids.tables_count;
        struct batch_weights_forward a = {.weights = place_floats(b->place, count),
                                          .indices = ids.indices,
                                          .fields = ids.tables_count,
                                          .n = events,
                                          .logits = place_zeros(b->place, events * sizeof(float))};
        MEASURE(b, weights_forward, &a, count, ids_names[kind]);
        place_release(b->place);
    }
}

void bench_weights_update(struct bench *b)
{
    static const struct {
        enum opt_kind kind;
        bool is_double;
        enum ids ids;
        const char *text;
    } cases[] = {
        {OPT_ADAGRAD, false, IDS_DISTINCT, "AdaGrad, all distinct"},
        {OPT_ADAGRAD, false, IDS_ZIPF, "AdaGrad, Zipf, half distinct"},
        {OPT_FTRL, false, IDS_ZIPF, "FTRL, Zipf, half distinct"},
        {OPT_FTRL, true, IDS_ZIPF, "FTRL in double, Zipf, half distinct"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct batch_dedupe ids = make_dedupe(b, cases[i].ids, DEDUPE_SORT);
        uint32_t count = distinct(b, &ids), events = ids.n / ids.tables_count;
        uint32_t *bag = host_room(ids.n * sizeof(*bag));
        for (uint32_t p = 0; p < ids.n; p++)
            bag[p] = p % events;
        struct batch_weights_update a = {.of = make_weights(b, ids.n, cases[i].kind, cases[i].is_double),
                                         .in = {.grads = place_floats(b->place, events),
                                                .bag = place_upload(b->place, bag, ids.n * sizeof(*bag)),
                                                .order = ids.order,
                                                .starts = ids.starts,
                                                .count = ids.count,
                                                .n = ids.n,
                                                .d = 1}};
        free(bag);
        ROOM_FOR(b, weights_update, &a);
        MEASURE(b, weights_update, &a, count, cases[i].text);
        place_release(b->place);
    }
}

void bench_loss(struct bench *b)
{
    uint32_t n = b->sizes->matrix_rows;
    struct batch_loss a = {.logits = place_floats(b->place, n),
                           .labels = place_floats(b->place, n),
                           .class_weights = {1.0F, 1.0F},
                           .scale = 1.0F,
                           .n = n,
                           .gradients = place_zeros(b->place, n * sizeof(float)),
                           .is_rejected = place_zeros(b->place, n)};
    MEASURE(b, loss, &a, 0, "logistic");
    a.is_squared = true;
    MEASURE(b, loss, &a, 0, "squared");
    place_release(b->place);
}

/* --- Interactions --- */

static struct batch_interaction make_interaction(struct bench *b, uint32_t bags, uint32_t fields, uint32_t d,
                                                 size_t row_floats)
{
    size_t floats = (size_t)bags * fields * row_floats;
    return (struct batch_interaction){.vectors = place_floats(b->place, floats),
                                      .bags = bags,
                                      .fields = fields,
                                      .d = d,
                                      .logits = place_zeros(b->place, bags * sizeof(float)),
                                      .logit_gradients = place_floats(b->place, bags),
                                      .grads = place_zeros(b->place, floats * sizeof(float))};
}

void bench_fm(struct bench *b)
{
    const struct sizes *s = b->sizes;
    struct batch_interaction a = make_interaction(b, s->fm_bags, s->fm_fields, s->fm_d, s->fm_d);
    MEASURE(b, fm, &a, 0, "forward and backward");
    a.grads = NULL;
    MEASURE(b, fm, &a, 0, "forward");
    place_release(b->place);
}

void bench_ffm(struct bench *b)
{
    const struct sizes *s = b->sizes;
    struct batch_interaction a = make_interaction(b, s->ffm_bags, s->ffm_fields, s->ffm_d,
                                                  (size_t)s->ffm_d * FFM_ROUND(s->ffm_fields));
    MEASURE(b, ffm, &a, 0, "forward and backward");
    a.grads = NULL;
    MEASURE(b, ffm, &a, 0, "forward");
    place_release(b->place);
}

/* --- Numbers --- */

void bench_round(struct bench *b)
{
    static const char *const texts[2][2] = {{"to nearest, bf16", "to nearest, fp16"},
                                            {"stochastic, bf16", "stochastic, fp16"}};
    uint64_t n = b->sizes->numbers;
    struct batch_round a = {.x = place_floats(b->place, n), .n = n, .out = place_zeros(b->place, n * 2)};
    for (unsigned seed = 0; seed < 2; seed++)
        for (int format = ROW_BF16; format <= ROW_FP16; format++) {
            a.seed = seed;
            a.format = (enum row_format)format;
            MEASURE(b, round, &a, 0, texts[seed][format - ROW_BF16]);
        }
    place_release(b->place);
}

void bench_widen(struct bench *b)
{
    uint64_t n = b->sizes->numbers;
    struct batch_widen a = {.x = (const uint16_t *)place_floats(b->place, n / 2 + 1),
                            .n = n,
                            .out = place_zeros(b->place, n * sizeof(float))};
    a.format = ROW_BF16;
    MEASURE(b, widen, &a, 0, "bf16");
    a.format = ROW_FP16;
    MEASURE(b, widen, &a, 0, "fp16");
    place_release(b->place);
}

void bench_quantize(struct bench *b)
{
    uint32_t rows = b->sizes->matrix_rows, d = b->sizes->matrix_d;
    struct batch_quantize a = {.x = place_floats(b->place, (size_t)rows * d), .rows = rows, .d = d};
    a.out = place_zeros(b->place, rows * row_bytes(ROW_INT8, d, 0));
    MEASURE(b, quantize, &a, 0, "rows of fp32 to int8 with a scale");
    place_release(b->place);
}

void bench_check(struct bench *b)
{
    uint32_t rows = b->sizes->matrix_rows, d = b->sizes->matrix_d;
    struct batch_check a = {.x = place_floats(b->place, (size_t)rows * d),
                            .rows = rows,
                            .d = d,
                            .is_finite = place_zeros(b->place, rows),
                            .squares = place_zeros(b->place, rows * sizeof(float)),
                            .total = place_zeros(b->place, sizeof(double))};
    ROOM_FOR(b, check, &a);
    MEASURE(b, check, &a, 0, "finite, squares of rows, and their total");
    place_release(b->place);
}

/* --- Dense layers --- */

/* A layer's three products: events forward, the gradient by its input, the gradient of its weights. */
void bench_matmul(struct bench *b)
{
    static const char *const texts[3][3] = {
        {"layer forward, bias and relu, fp32", "layer forward, bias and relu, bf16",
         "layer forward, bias and relu, fp16"},
        {"gradient by the input, through a relu, fp32", "gradient by the input, through a relu, bf16",
         "gradient by the input, through a relu, fp16"},
        {"gradient of weights and bias, fp32", "gradient of weights and bias, bf16",
         "gradient of weights and bias, fp16"}};
    uint32_t events = b->sizes->events, in = b->sizes->inputs, out = b->sizes->outputs;
    float *x = place_floats(b->place, (size_t)events * in), *w = place_floats(b->place, (size_t)in * out);
    float *y = place_floats(b->place, (size_t)events * out), *bias = place_floats(b->place, out);
    float *to = place_zeros(b->place, (size_t)(events > out ? events : out) * (in > out ? in : out) * 4);
    struct batch_matmul calls[3] = {
        {.a = x, .b = w, .c = to, .m = events, .n = out, .k = in, .epilogue = MATMUL_BIAS_RELU, .bias = bias},
        {.a = y, .b = w, .c = to, .m = events, .n = in, .k = out, .epilogue = MATMUL_MASK, .mask = x},
        {.a = y, .b = x, .c = to, .m = out, .n = in, .k = events, .epilogue = MATMUL_SUMS, .sums = bias},
    };
    calls[0].b_is_transposed = calls[2].a_is_transposed = true; /* w[out][in] */
    for (int i = 0; i < 3; i++)
        for (int precision = ROW_FP32; precision <= ROW_FP16; precision++) {
            calls[i].precision = (enum row_format)precision;
            ROOM_FOR(b, matmul, &calls[i]);
            MEASURE(b, matmul, &calls[i], 0, texts[i][precision]);
        }
    place_release(b->place);
}

void bench_params_update(struct bench *b)
{
    uint64_t n = (uint64_t)b->sizes->matrix_rows / 4 * 4 * b->sizes->matrix_d;
    float *w = place_floats(b->place, n), *state = place_rows(b->place, 2 * n),
          *g = place_floats(b->place, n);
    struct batch_params_update a = {w, state, g, n, OPT_ADAGRAD, place_params, NULL};
    MEASURE(b, params_update, &a, 0, "AdaGrad");
    a.kind = OPT_ADAM;
    MEASURE(b, params_update, &a, 0, "Adam");
    place_release(b->place);
}

/* --- Around the rows of a step --- */

enum { PACK_COLUMNS = 13, STEP_COLUMNS = 256 };

/* Marks one event in 64 as rejected; returns the number of rejected events. */
static uint32_t make_rejected(struct bench *b, uint32_t n, const uint8_t **marks)
{
    uint8_t *host = host_room(n);
    uint32_t count = 0;
    for (uint32_t e = 0; e < n; e++) {
        host[e] = e % 64 == 7;
        count += host[e];
    }
    *marks = place_upload(b->place, host, n);
    free(host);
    return count;
}

void bench_pack(struct bench *b)
{
    uint32_t n = b->sizes->events;
    static const char *const texts[] = {"13 columns into rows of 16", "256 columns into rows"};
    for (size_t i = 0; i < 2; i++) {
        uint32_t columns = i == 0 ? PACK_COLUMNS : STEP_COLUMNS, stride = (columns + 3) / 4 * 4;
        struct batch_pack a = {.columns = place_floats(b->place, (size_t)n * columns),
                               .columns_stride = n,
                               .count = columns,
                               .n = n,
                               .out = place_zeros(b->place, (size_t)n * stride * sizeof(float)),
                               .stride = stride};
        (void)make_rejected(b, n, &a.is_rejected);
        MEASURE(b, pack, &a, 0, texts[i]);
        place_release(b->place);
    }
}

void bench_mask_rows(struct bench *b)
{
    uint32_t n = b->sizes->events;
    struct batch_mask_rows a = {
        .x = place_floats(b->place, (size_t)n * STEP_COLUMNS), .n = n, .columns = STEP_COLUMNS};
    uint32_t rejected = make_rejected(b, n, &a.is_rejected);
    MEASURE(b, mask_rows, &a, rejected, "one row of 256 floats in 64");
    place_release(b->place);
}

void bench_add_rows(struct bench *b)
{
    size_t floats = (size_t)b->sizes->events * STEP_COLUMNS;
    struct batch_add_rows a = {.x = place_floats(b->place, floats), .y = place_floats(b->place, floats)};
    a.n = b->sizes->events, a.columns = STEP_COLUMNS;
    MEASURE(b, add_rows, &a, 0, "rows of 256 floats");
    place_release(b->place);
}

void bench_relu_mask(struct bench *b)
{
    size_t floats = (size_t)b->sizes->events * STEP_COLUMNS;
    struct batch_relu_mask a = {.x = place_floats(b->place, floats), .y = place_floats(b->place, floats)};
    a.n = b->sizes->events, a.columns = STEP_COLUMNS;
    MEASURE(b, relu_mask, &a, 0, "rows of 256 floats");
    place_release(b->place);
}

void bench_clip(struct bench *b)
{
    double *squares = place_zeros(b->place, 16 * sizeof(*squares));
    struct batch_clip a = {squares, 16, 1.0F, place_zeros(b->place, sizeof(float))};
    MEASURE(b, clip, &a, 0, "16 layers");
    place_release(b->place);
}

void bench_dot_interaction(struct bench *b)
{
    enum { FIELDS = 27, DIMS = 64, WIDTH = DIMS + (FIELDS * (FIELDS - 1) / 2 + 3) / 4 * 4 };
    size_t n = b->sizes->events, floats = n * FIELDS * DIMS;
    struct batch_dot_interaction a = {.n = (uint32_t)n, .fields = FIELDS, .d = DIMS, .copies_first = true};
    a.vectors = place_floats(b->place, floats);
    a.out = place_zeros(b->place, n * WIDTH * sizeof(float)), a.out_stride = WIDTH;
    MEASURE(b, dot_interaction, &a, 0, "27 vectors of 64, forward");
    a.out = NULL, a.out_gradients = place_floats(b->place, n * WIDTH), a.out_gradients_stride = WIDTH;
    a.grads = place_zeros(b->place, floats * sizeof(float));
    MEASURE(b, dot_interaction, &a, 0, "27 vectors of 64, backward");
    place_release(b->place);
}

void bench_products(struct bench *b)
{
    enum { FIELDS = 12, DIMS = 16, WIDTH = FIELDS * (FIELDS - 1) / 2 * DIMS };
    size_t n = b->sizes->events, floats = n * FIELDS * DIMS;
    struct batch_products a = {.n = (uint32_t)n, .fields = FIELDS, .d = DIMS};
    a.vectors = place_floats(b->place, floats), a.out = place_zeros(b->place, n * WIDTH * sizeof(float));
    MEASURE(b, products, &a, 0, "12 vectors of 16, forward");
    a.out = NULL, a.out_gradients = place_floats(b->place, n * WIDTH);
    a.grads = place_zeros(b->place, floats * sizeof(float));
    MEASURE(b, products, &a, 0, "12 vectors of 16, backward");
    place_release(b->place);
}

void bench_cross(struct bench *b)
{
    size_t floats = (size_t)b->sizes->events * STEP_COLUMNS;
    struct batch_cross a = {.n = b->sizes->events, .columns = STEP_COLUMNS};
    a.x0 = place_floats(b->place, floats), a.x = place_floats(b->place, floats);
    a.z = place_floats(b->place, floats), a.out = place_zeros(b->place, floats * sizeof(float));
    MEASURE(b, cross, &a, 0, "256 columns, forward");
    a.out = NULL, a.out_gradients = place_floats(b->place, floats);
    a.x0_gradients = place_zeros(b->place, floats * sizeof(float));
    a.x_gradients = place_zeros(b->place, floats * sizeof(float));
    a.z_gradients = place_zeros(b->place, floats * sizeof(float));
    MEASURE(b, cross, &a, 0, "256 columns, backward");
    place_release(b->place);
}

void bench_mixture(struct bench *b)
{
    enum { EXPERTS = 8, COLUMNS = 64 };
    size_t n = b->sizes->events, floats = n * EXPERTS * COLUMNS;
    struct batch_mixture a = {.n = (uint32_t)n, .experts = EXPERTS, .columns = COLUMNS};
    a.inputs = place_floats(b->place, floats), a.gate_logits = place_floats(b->place, n * EXPERTS);
    a.out = place_zeros(b->place, n * COLUMNS * sizeof(float));
    a.gates = place_zeros(b->place, n * EXPERTS * sizeof(float));
    MEASURE(b, mixture, &a, 0, "8 experts of 64 columns, forward");
    a.out = NULL;
    a.out_gradients = place_floats(b->place, n * COLUMNS);
    a.input_gradients = place_zeros(b->place, floats * sizeof(float));
    a.gate_gradients = place_zeros(b->place, n * EXPERTS * sizeof(float));
    MEASURE(b, mixture, &a, 0, "8 experts of 64 columns, backward");
    place_release(b->place);
}

/* --- main --- */

static void bench_place(struct place *place)
{
    struct bench b = {place, &all_sizes[place->size]};
    place_limits(place);
#define BATCH(name, args, tolerance, bytes, flops) bench_##name(&b);
#include "kernels/kernels.def"
    place_close(place);
}

static bool is_wanted(int argc, char **argv, const char *variant)
{
    bool is_any = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], variant) == 0)
            return true;
        is_any |= argv[i][0] != '-';
    }
    return !is_any;
}

int main(int argc, char **argv)
{
    struct place place;
    bool is_tiny = argc > 1 && strcmp(argv[1], "--tiny") == 0;
    for (int v = 0; v < KERNELS_VARIANTS; v++) {
        const char *name = kernels_variant_name((enum kernels_variant)v);
        if (!is_wanted(argc, argv, name))
            continue;
        if (place_open_cpu(&place, (enum kernels_variant)v, is_tiny))
            bench_place(&place);
        else
            line_missing("kernels", "all", name, "this CPU does not support it");
    }
    if (is_wanted(argc, argv, "cuda") && place_open_device(&place, is_tiny))
        bench_place(&place);
    return 0;
}
