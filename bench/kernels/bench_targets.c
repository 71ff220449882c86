/*
 * A training step's targets (learners/losses/targets.h) on one thread, by CPU time:
 *   bench_targets TARGETS ITEMS NEGATIVES
 * Adagrad, dim 64, sampled_softmax with that many uniform draws; 0: softmax over all items. Positives are skewed towards
 * low numbers, each window has as many tokens as targets. Prints one JSON line, milliseconds a step, the least of
 * the rounds: draw, gradients, update. Then what the products alone take: gradients_products, of as many rows of the same
 * table, update_products, sums of as many queries; with softmax products of matrices of the same sizes. near:
 * gradients_products of rows that lie in the first-level cache.
 */
#include "bench/kernels/units.h"

#include "core/mem.h"
#include "kernels/num.h"
#include "learners/losses/softmax.h"
#include "learners/losses/targets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 64, ROUNDS = 15, NEAR = 64, ROW = 2 * DIM };

struct bench {
    const struct kernels *kernels;
    const struct batch_kernels *batch;
    uint32_t targets, items, negatives;
    float *rows; /* [items][ROW] weights and sums of squares */
    float *queries, *query_gradients, *token_gradients;
    uint32_t *positives, *windows, *tokens, *drawn;
    uint64_t *identities;
    double *losses;
    uint8_t *is_rejected;
    const float **gathered; /* [items] */
    void **written;
    struct targets_step step;
};

static void fill(float *x, size_t n, uint64_t from)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(num_mix(from + i) >> 40) * 0x1p-26F - 0.125F;
}

static void make(struct bench *b)
{
    b->rows = mem_aligned(64, (size_t)b->items * ROW * sizeof(float));
    for (size_t i = 0; i < b->items; i++) {
        fill(b->rows + i * ROW, DIM, i * DIM);
        for (size_t j = DIM; j < ROW; j++)
            b->rows[i * ROW + j] = 1.0F;
    }
    size_t n = b->targets;
    b->queries = mem_aligned(64, n * DIM * sizeof(float));
    b->query_gradients = mem_aligned(64, n * DIM * sizeof(float));
    b->token_gradients = mem_aligned(64, n * DIM * sizeof(float));
    b->positives = mem_calloc(n, sizeof(uint32_t)), b->windows = mem_calloc(n, sizeof(uint32_t));
    b->tokens = mem_calloc(n, sizeof(uint32_t)), b->identities = mem_calloc(n, sizeof(uint64_t));
    b->drawn = mem_calloc(n * (b->negatives + 1), sizeof(uint32_t));
    b->losses = mem_calloc(n, sizeof(double)), b->is_rejected = mem_calloc(n, 1);
    b->gathered = mem_calloc(b->items, sizeof(*b->gathered));
    b->written = mem_calloc(b->items, sizeof(*b->written));
    fill(b->queries, n * DIM, 5), fill(b->token_gradients, n * DIM, 7);
    for (uint32_t i = 0; i < b->targets; i++) {
        double u = (double)(num_mix(i) >> 11) * 0x1p-53;
        b->positives[i] = (uint32_t)(u * u * b->items), b->windows[i] = i / 10;
        b->tokens[i] = (uint32_t)((num_mix(i + 99) >> 32) * b->items >> 32);
    }
    b->step = (struct targets_step){.queries = b->queries,
                                    .positives = b->positives,
                                    .identities = b->identities,
                                    .windows = b->windows,
                                    .count = b->targets,
                                    .live_count = b->items,
                                    .query_gradients = b->query_gradients,
                                    .losses = b->losses,
                                    .is_rejected = b->is_rejected};
}

/* Milliseconds of draw, gradients and update, of a step with draws of its own. */
static void step_once(struct bench *b, struct targets *t, uint64_t number, double ms[3])
{
    const struct targets_tokens tokens = {b->tokens, b->token_gradients, b->windows, b->targets, 1.0F};
    const struct opt_params params = {.rate = 0.01F, .decay = 1.0F, .step_max = 1.0F};
    uint32_t count;
    for (uint32_t i = 0; i < b->targets; i++)
        b->identities[i] = number * b->targets + i;
    double begin = units_now();
    targets_draw(t, &b->step);
    targets_add_items(t, b->tokens, b->targets);
    ms[0] = units_now() - begin;
    const uint32_t *items = targets_items(t, &count);
    for (uint32_t u = 0; u < count; u++) {
        b->gathered[u] = b->rows + (size_t)items[u] * ROW;
        b->written[u] = b->rows + (size_t)items[u] * ROW;
    }
    begin = units_now();
    targets_gradients(t, &b->step, b->gathered);
    ms[1] = units_now() - begin;
    begin = units_now();
    if (targets_update(t, &b->step, &tokens, b->written, OPT_ADAGRAD, &params) > 0)
        abort();
    ms[2] = units_now() - begin;
}

/* Seconds of the products of queries with their rows, and of the sums of rows; is_near: rows of the cache. */
static double products_once(struct bench *b, bool is_near)
{
    uint32_t n = b->negatives;
    const float **rows = mem_calloc(n, sizeof(*rows));
    float *scores = mem_calloc(n, sizeof(*scores)), *out = mem_calloc(DIM, sizeof(*out));
    struct negatives drawing = {.seed = num_mix((uint64_t)(units_now() * 1e9)), .count = b->items};
    double seconds = 0.0;
    for (uint32_t i = 0; i < b->targets; i++) {
        negatives_draw(&drawing, i, n, b->drawn, NULL);
        for (uint32_t k = 0; k < n; k++)
            rows[k] = b->rows + (size_t)(is_near ? b->drawn[k] % NEAR : b->drawn[k]) * ROW;
        double begin = units_now();
        b->kernels->dots(scores, b->queries + (size_t)i * DIM, rows, n, DIM);
        b->kernels->add_weighted(out, rows, scores, n, DIM);
        seconds += units_now() - begin;
    }
    free(rows), free(scores), free(out);
    return seconds;
}

/* Seconds of softmax's products of matrices: of the queries' gradients (scores twice), and of the rows'. */
static void matrices_once(struct bench *b, double seconds[2])
{
    size_t most = 0;
    void *scratch = NULL;
    seconds[0] = seconds[1] = 0.0;
    float *scores = mem_calloc((size_t)SOFTMAX_TARGETS * SOFTMAX_TILE, sizeof(float));
    float *tile = mem_calloc((size_t)SOFTMAX_TILE * DIM, sizeof(float));
    for (int turn = 0; turn < 2; turn++) { /* the first turn asks for scratch memory */
        for (uint32_t at = 0; at < b->items; at += turn == 0 ? b->items : SOFTMAX_TILE) {
            for (uint32_t i = 0; i < b->targets; i += SOFTMAX_TARGETS) {
                uint32_t m = b->targets - i < SOFTMAX_TARGETS ? b->targets - i : SOFTMAX_TARGETS,
                         n = SOFTMAX_TILE;
                struct batch_matmul score = {.a = b->queries,
                                             .b = tile,
                                             .c = scores,
                                             .m = m,
                                             .n = n,
                                             .k = DIM,
                                             .b_is_transposed = true};
                struct batch_matmul query = {
                    .a = scores, .b = tile, .c = b->query_gradients, .m = m, .n = DIM, .k = n, .adds = true};
                struct batch_matmul row = {.a = scores,
                                           .b = b->queries,
                                           .c = tile,
                                           .m = n,
                                           .n = DIM,
                                           .k = m,
                                           .a_is_transposed = true};
                struct batch_matmul *all[] = {&score, &score, &query, &score, &row};
                for (size_t k = 0; k < 5; k++) {
                    all[k]->scratch = scratch, all[k]->scratch_bytes = most;
                    double begin = units_now();
                    b->batch->matmul(all[k], NULL);
                    seconds[k / 3] += turn == 0 ? 0.0 : units_now() - begin;
                    most = all[k]->scratch_bytes > most ? all[k]->scratch_bytes : most;
                }
            }
        }
        scratch = scratch == NULL ? mem_aligned(64, (most + 63) / 64 * 64) : scratch;
    }
    free(scores), free(tile), free(scratch);
}

/* Seconds that the rows' sums take by themselves: one vector of a query for each place. */
static double sums_once(struct bench *b)
{
    uint32_t n = b->negatives, count = b->items;
    size_t places = (size_t)b->targets * n;
    uint32_t *order = mem_calloc(places, sizeof(*order)),
             *starts = mem_calloc((size_t)count + 1, sizeof(*starts));
    uint32_t *bag = mem_calloc(places, sizeof(*bag));
    float *scales = mem_calloc(places, sizeof(*scales)),
          *sums = mem_aligned(64, (size_t)count * DIM * sizeof(*sums));
    for (uint32_t u = 0; u <= count; u++)
        starts[u] = (uint32_t)((uint64_t)u * places / count);
    for (uint32_t p = 0; p < places; p++)
        order[p] = p, bag[p] = (uint32_t)((num_mix(p) >> 32) * b->targets >> 32), scales[p] = 0.5F;
    memset(sums, 0, (size_t)count * DIM * sizeof(*sums));
    struct batch_segment_reduce r = {
        .in = {b->queries, bag, scales, order, starts, &count, (uint32_t)places, DIM}, .sums = sums};
    b->batch->segment_reduce(&r, NULL);
    r.scratch = mem_aligned(64, r.scratch_bytes);
    double begin = units_now();
    b->batch->segment_reduce(&r, NULL);
    double seconds = units_now() - begin;
    free(order), free(starts), free(bag), free(scales), free(sums), free(r.scratch);
    return seconds;
}

int main(int argc, char **argv)
{
    const char *reason;
    struct bench b = {.kernels = kernels_pick_env(&reason)};
    long sizes[3] = {0};
    for (int i = 1; i < argc && i <= 3; i++)
        sizes[i - 1] = strtol(argv[i], NULL, 10);
    if (argc != 4 || b.kernels == NULL || sizes[0] < 1 || sizes[0] > 100000 || sizes[1] < 2 ||
        sizes[1] > 10000000 || sizes[2] < 0 || sizes[2] > LOSSES_NEGATIVES_MAX) {
        fprintf(
            stderr,
            "bench_targets: expected TARGETS (1 to 100000), ITEMS (2 to 10000000), NEGATIVES (0 to 4096)\n");
        return 2;
    }
    b.batch = batch_beside(b.kernels);
    b.targets = (uint32_t)sizes[0], b.items = (uint32_t)sizes[1], b.negatives = (uint32_t)sizes[2];
    make(&b);
    struct targets_options options = {
        .kernels = b.kernels,
        .batch = b.batch,
        .loss = losses_find(str_from(b.negatives > 0 ? "sampled_softmax" : "softmax")),
        .losses = {.temperature = 1.0, .negatives = sizes[2], .correct = true},
        .dim = DIM,
        .targets_max = b.targets};
    struct targets *t = targets_create(&options);
    double least[6] = {INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, INFINITY};
    for (uint64_t round = 0; round < ROUNDS; round++) {
        double s[6] = {0.0};
        step_once(&b, t, round, s);
        if (b.negatives > 0)
            s[3] = products_once(&b, false), s[4] = sums_once(&b), s[5] = products_once(&b, true);
        else
            matrices_once(&b, s + 3);
        for (size_t k = 0; k < 6 && round > 0; k++) /* the first round takes memory */
            least[k] = fmin(least[k], s[k] * 1e3);
    }
    printf("{\"kernels\": \"%s\", \"targets\": %u, \"items\": %u, \"negatives\": %u, \"draw_ms\": %.3f, "
           "\"gradients_ms\": %.3f, \"update_ms\": %.3f, \"gradients_products_ms\": %.3f, "
           "\"update_products_ms\": %.3f, \"near_ms\": %.3f, \"megabytes\": %.1f}\n",
           b.kernels->name, b.targets, b.items, b.negatives, least[0], least[1], least[2], least[3], least[4],
           least[5], (double)targets_bytes(t) / 1e6);
    targets_free(t);
    return 0;
}
