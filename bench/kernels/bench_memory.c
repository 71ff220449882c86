/*
 * The batch kernels over memory, on one core and on all, compared with the limits of the same cores in the
 * same run:
 *   bench_memory [--rows] [NAME-PREFIX]
 * The limits are plain loops of vectors that go through memory in order (read; write; copy: read and written,
 * with plain stores, since a step's next kernel reads what a kernel wrote), and loops over rows of 512 bytes
 * at random places of 512 MiB a core, prefetched (read: the whole row, or its first half; changed: read and
 * written). Before each loop, and before each kernel, one array is copied to another, so that the caches'
 * contents are the same for all. Each thread has its own memory; all threads run the same loop at the same
 * time. A kernel's share is the least time for its bytes, or for its arithmetic if that takes longer
 * (units.h), over the measured time. Times are CPU time of each thread, measured in turns, and the best turn
 * of both the loop and the kernel counts: so a neighbour's use of caches or memory bandwidth affects neither.
 * --rows: `kernel variant cores share limit` alone, for programs.
 */
#include "bench/kernels/units.h"

#include "kernels/batch.h"
#include "kernels/num.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    SCRATCH_BYTES = 64 << 20,
    D = 64,
    ROW_FLOATS = 2 * D, /* weights and AdaGrad's sums: 512 bytes */
    ROWS = 1 << 20,
    PLACES = 1 << 15,
    FLOATS = PLACES * D, /* 8 MiB: more than L2 */
    FIELDS = 16,
    EXPERTS = 8,
    AHEAD = 8,
    TURNS = 15,
    CORES = 2,
};

/* The data of one thread. */
struct own {
    const struct kernels *k;
    const struct batch_kernels *batch;
    float *table, *x, *y; /* arrays of FLOATS; sixteen-bit numbers use half of one */
    float *small;         /* logits, their gradients, squares */
    void **rows;
    uint32_t *order, *starts, count;
    uint8_t *marks; /* of events; none is rejected */
    void *scratch;
    uint64_t random;
};

static void *room(size_t bytes)
{
    size_t huge = (size_t)2 << 20;
    void *p = aligned_alloc(huge, (bytes + huge - 1) / huge * huge);
    if (p == NULL)
        abort();
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return p;
}

/* Draws other rows each time, so that none is left in a cache; each index has one place. */
static void draw_rows(struct own *o)
{
    for (uint32_t i = 0; i < PLACES; i++)
        o->rows[i] = o->table + num_mix(++o->random) % ROWS * ROW_FLOATS;
}

/* --- Limits --- */

static volatile float sink;

static void run_read(struct own *o)
{
    sink = o->k->sum_squares(o->x, FLOATS / 2) + o->k->sum_squares(o->x + FLOATS / 2, FLOATS / 2);
}

static void run_copy(struct own *o)
{
    for (size_t i = 0; i < FLOATS; i += 16)
        __builtin_memcpy(o->y + i, o->x + i, 64);
}

static void run_write(struct own *o)
{
    for (size_t i = 0; i < FLOATS; i += 16)
        __builtin_memcpy(o->y + i, o->x, 64); /* not memset, which uses another kind of store */
}

static void ask_for(const struct own *o, uint32_t i, size_t floats, bool changes)
{
    const char *row = i < PLACES ? o->rows[i] : o->rows[0];
    for (size_t line = 0; line < floats * sizeof(float); line += 64) {
        if (changes)
            __builtin_prefetch(row + line, 1);
        else
            __builtin_prefetch(row + line);
    }
}

static void read_rows(struct own *o, size_t floats)
{
    float sum = 0.0F;
    for (uint32_t i = 0; i < PLACES; i++) {
        ask_for(o, i + AHEAD, floats, false);
        sum += o->k->sum_squares(o->rows[i], floats);
    }
    sink = sum;
}

static void run_rows_read(struct own *o)
{
    read_rows(o, ROW_FLOATS);
}

static void run_halves_read(struct own *o)
{
    read_rows(o, D);
}

static void run_rows_change(struct own *o)
{
    for (uint32_t i = 0; i < PLACES; i++) {
        ask_for(o, i + AHEAD, ROW_FLOATS, true);
        o->k->blend(o->rows[i], o->x, 1.0F, ROW_FLOATS);
    }
}

/* The loops: bytes in order, read or written; copied, where a byte read and written counts twice; rows at
 * random places. */
enum limit { READ, WRITE, COPY, ROWS_READ, HALVES_READ, ROWS_CHANGE, LIMITS };
static const struct {
    const char *name;
    void (*run)(struct own *);
    double bytes;
} limits[LIMITS] = {
    [READ] = {"read", run_read, 4.0 * FLOATS},
    [WRITE] = {"write", run_write, 4.0 * FLOATS},
    [COPY] = {"copy", run_copy, 8.0 * FLOATS},
    [ROWS_READ] = {"random rows read", run_rows_read, 512.0 * PLACES},
    [HALVES_READ] = {"random half rows read", run_halves_read, 256.0 * PLACES},
    [ROWS_CHANGE] = {"random rows changed", run_rows_change, 1024.0 * PLACES},
};

/* --- Kernels --- */

static void run_gather_pool(struct own *o)
{
    struct batch_gather_pool a = {.rows = (const void *const *)o->rows, .bags = PLACES, .d = D, .out = o->y};
    o->batch->gather_pool(&a, NULL);
}

static struct batch_segments segments(struct own *o)
{
    return (struct batch_segments){
        .grads = o->x, .order = o->order, .starts = o->starts, .count = &o->count, .n = PLACES, .d = D};
}

static void run_segment_reduce(struct own *o)
{
    struct batch_segment_reduce a = {.in = segments(o), .sums = o->y, .scratch = o->scratch};
    o->batch->segment_reduce(&a, NULL);
}

static void run_update(struct own *o)
{
    struct batch_update a = {.in = segments(o),
                             .rows = o->rows,
                             .format = ROW_FP32,
                             .kind = OPT_ADAGRAD,
                             .params = {.rate = 1e-6F, .decay = 1.0F, .step_max = 1.0F},
                             .scratch = o->scratch};
    o->batch->update(&a, NULL);
}

static void run_fm(struct own *o)
{
    struct batch_interaction a = {.vectors = o->x,
                                  .bags = PLACES / FIELDS,
                                  .fields = FIELDS,
                                  .d = D,
                                  .logits = o->small,
                                  .logit_gradients = o->small + PLACES,
                                  .grads = o->y};
    o->batch->fm(&a, NULL);
}

static void run_ffm(struct own *o)
{
    struct batch_interaction a = {.vectors = o->x,
                                  .bags = FLOATS / (FIELDS * FIELDS * 4),
                                  .fields = FIELDS,
                                  .d = 4,
                                  .logits = o->small,
                                  .logit_gradients = o->small + PLACES,
                                  .grads = o->y};
    o->batch->ffm(&a, NULL);
}

static void run_round(struct own *o)
{
    struct batch_round a = {.x = o->x, .n = FLOATS, .format = ROW_BF16, .out = (uint16_t *)o->y};
    o->batch->round(&a, NULL);
}

static void run_widen(struct own *o)
{
    struct batch_widen a = {.x = (const uint16_t *)o->x, .n = FLOATS, .format = ROW_BF16, .out = o->y};
    o->batch->widen(&a, NULL);
}

static void run_quantize(struct own *o)
{
    struct batch_quantize a = {.x = o->x, .rows = PLACES, .d = D, .out = o->y};
    o->batch->quantize(&a, NULL);
}

static void run_check(struct own *o)
{
    struct batch_check a = {.x = o->x, .rows = PLACES, .d = D, .squares = o->small, .scratch = o->scratch};
    o->batch->check(&a, NULL);
}

/* Used for a layer's product, for the gradient of its weights, and for a last layer of one output. */
static void run_matmul_of(struct own *o, uint32_t m, uint32_t n, uint32_t k, bool a_is_transposed)
{
    struct batch_matmul a = {.a = o->x,
                             .b = o->x + (size_t)m * k,
                             .c = o->y,
                             .m = m,
                             .n = n,
                             .k = k,
                             .a_is_transposed = a_is_transposed};
    o->batch->matmul(&a, NULL);
    if (a.scratch_bytes > SCRATCH_BYTES)
        abort();
    a.scratch = o->scratch;
    o->batch->matmul(&a, NULL);
}

static void run_matmul(struct own *o)
{
    run_matmul_of(o, 512, 512, 512, false);
}

static void run_matmul_gradient(struct own *o)
{
    run_matmul_of(o, 128, 120, 8192, true);
}

static void run_matmul_logit(struct own *o)
{
    run_matmul_of(o, PLACES - 1, 1, D, false);
}

static void run_params_update(struct own *o)
{
    struct batch_params_update a = {.w = o->table,
                                    .state = o->table + FLOATS / 2,
                                    .g = o->x,
                                    .n = FLOATS / 2,
                                    .kind = OPT_ADAGRAD,
                                    .params = {.rate = 1e-6F, .decay = 1.0F, .step_max = 1.0F}};
    o->batch->params_update(&a, NULL);
}

static void run_pack(struct own *o)
{
    struct batch_pack a = {.columns = o->x,
                           .columns_stride = PLACES,
                           .count = D,
                           .n = PLACES,
                           .out = o->y,
                           .is_rejected = o->marks};
    o->batch->pack(&a, NULL);
}

static void run_cross(struct own *o)
{
    struct batch_cross a = {.x0 = o->x,
                            .x = o->x + FLOATS / 4,
                            .z = o->x + FLOATS / 2,
                            .n = PLACES / 4,
                            .columns = D,
                            .out = o->y};
    o->batch->cross(&a, NULL);
}

static void run_mixture(struct own *o)
{
    struct batch_mixture a = {.inputs = o->x,
                              .gate_logits = o->small + PLACES,
                              .n = PLACES / EXPERTS,
                              .experts = EXPERTS,
                              .columns = D,
                              .out = o->y,
                              .gates = o->small};
    o->batch->mixture(&a, NULL);
}

/* The bytes that each kernel moves at the least, by the limit that applies to them. */
static const struct kernel {
    const char *name;
    void (*run)(struct own *);
    double bytes[LIMITS];
    double quotients, fmas; /* vectors of sixteen */
} kernels[] = {
    {"gather_pool", run_gather_pool, {[HALVES_READ] = 256.0 * PLACES, [WRITE] = 256.0 * PLACES}, 0.0, 0.0},
    {"segment_reduce", run_segment_reduce, {[COPY] = 8.0 * FLOATS}, 0.0, 0.0},
    {"update", run_update, {[ROWS_CHANGE] = 1024.0 * PLACES, [READ] = 4.0 * FLOATS}, 0.0, 0.0},
    {"fm", run_fm, {[COPY] = 8.0 * FLOATS}, 0.0, 0.0},
    {"ffm", run_ffm, {[COPY] = 8.0 * FLOATS}, 0.0, 0.0},
    {"round", run_round, {[COPY] = 6.0 * FLOATS}, 0.0, 0.0},
    {"widen", run_widen, {[COPY] = 6.0 * FLOATS}, 0.0, 0.0},
    {"quantize", run_quantize, {[COPY] = 5.0 * FLOATS}, FLOATS / 16.0, 0.0},
    {"check", run_check, {[READ] = 4.0 * FLOATS}, 0.0, 0.0},
    {"matmul", run_matmul, {0.0}, 0.0, 512.0 * 512.0 * 32.0},
    {"matmul_gradient", run_matmul_gradient, {0.0}, 0.0, 128.0 * 120.0 * 512.0},
    {"matmul_logit", run_matmul_logit, {[READ] = 4.0 * FLOATS}, 0.0, 0.0},
    {"params_update", run_params_update, {[COPY] = 8.0 * FLOATS, [READ] = 2.0 * FLOATS}, 0.0, 0.0},
    {"pack", run_pack, {[COPY] = 8.0 * FLOATS}, 0.0, 0.0},
    {"cross", run_cross, {[COPY] = 2.0 * FLOATS, [READ] = 2.0 * FLOATS}, 0.0, 0.0},
    {"mixture",
     run_mixture,
     {[READ] = 4.0 * FLOATS - 4.0 * FLOATS / EXPERTS, [COPY] = 8.0 * FLOATS / EXPERTS},
     0.0,
     0.0},
};
enum { KERNELS = sizeof(kernels) / sizeof(*kernels) };

/* --- Measuring --- */

static void own_init(struct own *o, const struct kernels *k, const struct batch_kernels *batch, uint64_t seed)
{
    *o = (struct own){.k = k, .batch = batch, .random = seed << 40, .count = PLACES};
    o->table = room((size_t)ROWS * ROW_FLOATS * sizeof(float));
    o->x = room(FLOATS * sizeof(float)), o->y = room((FLOATS + 256) * sizeof(float));
    o->y += 256; /* not with the same offset in a page as x */
    o->small = room(2 * PLACES * sizeof(float));
    o->rows = room(PLACES * sizeof(*o->rows));
    o->marks = room(PLACES);
    o->order = room(PLACES * 4), o->starts = room((PLACES + 1) * 4);
    for (size_t i = 0; i < (size_t)ROWS * ROW_FLOATS; i++)
        o->table[i] = 1.0F;
    for (size_t i = 0; i < FLOATS; i++)
        o->x[i] = (float)(i % 97) / 97.0F;
    for (uint32_t i = 0; i < PLACES; i++) {
        o->order[i] = i, o->starts[i] = i;
        o->small[PLACES + i] = 0.5F;
    }
    o->starts[PLACES] = PLACES;
    o->scratch = room(SCRATCH_BYTES);
}

struct team {
    pthread_barrier_t barrier;
    unsigned threads;
    struct own *owns;
    const char *prefix;
    void (*measure_units)(struct units *); /* NULL: scalar */
    struct units units[CORES];             /* here and below: seconds of the best turn */
    double limits[CORES][LIMITS], took[CORES][KERNELS];
};
struct member {
    struct team *team;
    unsigned number;
};

static double time_run(struct team *team, struct own *o, void (*run)(struct own *))
{
    draw_rows(o);
    run_copy(o);
    pthread_barrier_wait(&team->barrier);
    double begin = units_now();
    run(o);
    return units_now() - begin;
}

static void keep_best(double *best, double seconds)
{
    *best = *best == 0.0 || seconds < *best ? seconds : *best;
}

static void *work(void *argument)
{
    struct member *m = argument;
    struct team *t = m->team;
    struct own *o = &t->owns[m->number];
    for (int turn = 0; turn < TURNS; turn++) {
        struct units units = {0};
        for (int l = 0; l < LIMITS; l++)
            keep_best(&t->limits[m->number][l], time_run(t, o, limits[l].run));
        if (t->measure_units)
            t->measure_units(&units);
        keep_best(&t->units[m->number].div, units.div);
        keep_best(&t->units[m->number].fma, units.fma);
        for (int k = 0; k < KERNELS; k++) {
            if (strncmp(kernels[k].name, t->prefix, strlen(t->prefix)) == 0)
                keep_best(&t->took[m->number][k], time_run(t, o, kernels[k].run));
        }
    }
    return NULL;
}

/* Seconds that a kernel's arithmetic takes at the least. */
static double arithmetic_of(const struct units *units, const struct kernel *kernel)
{
    double quotients = kernel->quotients * units->div, fmas = kernel->fmas * units->fma;
    return quotients > fmas ? quotients : fmas;
}

/* Seconds that a kernel takes at the least on one core. */
static double least_of(const struct team *t, unsigned core, int k)
{
    double least = 0.0, arithmetic = arithmetic_of(&t->units[core], &kernels[k]);
    for (int l = 0; l < LIMITS; l++)
        least += kernels[k].bytes[l] * t->limits[core][l] / limits[l].bytes;
    return least < arithmetic ? arithmetic : least;
}

static void print_kernel(struct team *t, int k, bool rows_only)
{
    double share = 0.0, took = 0.0, bytes = 0.0;
    char parts[128] = "";
    for (unsigned i = 0; i < t->threads && t->took[i][k] > 0.0; i++) {
        share += least_of(t, i, k) / t->took[i][k] / t->threads;
        took += t->took[i][k] / t->threads;
    }
    for (int l = 0; l < LIMITS; l++) {
        bytes += kernels[k].bytes[l];
        if (kernels[k].bytes[l] > 0.0)
            snprintf(parts + strlen(parts), sizeof(parts) - strlen(parts), "%s%s", *parts ? " + " : "",
                     limits[l].name);
    }
    if (took == 0.0)
        return;
    if (kernels[k].quotients > 0.0)
        snprintf(parts + strlen(parts), sizeof(parts) - strlen(parts), " or divider");
    if (kernels[k].fmas > 0.0)
        snprintf(parts + strlen(parts), sizeof(parts) - strlen(parts), "fma");
    if (rows_only)
        printf("%s %s %u %.3f %s\n", kernels[k].name, t->owns[0].k->name, t->threads, share, parts);
    else
        printf("  %-16s %u %8.2f ms %7.1f GB/s  %4.0f %%  of %s\n", kernels[k].name, t->threads, took * 1e3,
               bytes * t->threads / took / 1e9, 100.0 * share, parts);
}

static void measure(unsigned threads, struct own *owns, const char *prefix, bool rows_only)
{
    static struct team t;
    struct member members[CORES];
    pthread_t ids[CORES];
    t = (struct team){.threads = threads, .owns = owns, .prefix = prefix};
    t.measure_units = strcmp(owns[0].k->name, "avx512") == 0 ? units_measure_avx512
                      : strcmp(owns[0].k->name, "avx2") == 0 ? units_measure_avx2
                                                             : NULL;
    pthread_barrier_init(&t.barrier, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        members[i] = (struct member){&t, i};
        if (pthread_create(&ids[i], NULL, work, &members[i]) != 0)
            abort();
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    pthread_barrier_destroy(&t.barrier);
    for (int l = 0; l < LIMITS && !rows_only; l++) {
        double rate = 0.0;
        for (unsigned i = 0; i < threads; i++)
            rate += limits[l].bytes / t.limits[i][l];
        printf("%s%s %.1f GB/s", l == 0 ? threads == 1 ? "one core: " : "all cores: " : ", ", limits[l].name,
               rate / 1e9);
    }
    printf(rows_only ? "" : "\n");
    for (int k = 0; k < KERNELS; k++)
        print_kernel(&t, k, rows_only);
}

int main(int argc, char **argv)
{
    bool rows_only = argc > 1 && strcmp(argv[1], "--rows") == 0;
    const char *prefix = argc > 1 + rows_only ? argv[1 + rows_only] : "", *reason;
    const struct kernels *k = kernels_pick_env(&reason);
    if (k == NULL) {
        fprintf(stderr, "LEAT_KERNELS: %s\n", reason);
        return 2;
    }
    int v = 0;
    while (kernels_variant((enum kernels_variant)v) != k)
        v++;
    struct own owns[CORES];
    for (unsigned i = 0; i < CORES; i++)
        own_init(&owns[i], k, batch_variant((enum kernels_variant)v), i + 1);
    if (!rows_only)
        printf("[%s]\n", k->name);
    measure(1, owns, prefix, rows_only);
    measure(CORES, owns, prefix, rows_only);
    return 0;
}
