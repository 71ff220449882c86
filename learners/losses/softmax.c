/*
 * softmax: the item against all others, by cross entropy (Goodfellow et al. 2016, Deep Learning, section
 * 6.2.2.3):
 *
 *   loss = -log(e^s+ / sum over all items of e^s)
 *
 * It moves every item's row in every step. For many targets the scores would not fit into memory, so they are
 * made in tiles of SOFTMAX_TILE items and forgotten. A target's largest score and its sum of powers are kept
 * from tile to tile (Milakov and Gimelshein 2018, arXiv:1805.02867, algorithm 3); for the gradients the scores
 * are made again.
 *
 *   1. targets, in blocks: tiles in order give the sum, then the loss; tiles in order, again, give the gradients
 *      by the queries.
 *   2. tiles: blocks of targets in order give the gradients by the items' rows.
 *
 * Each product of matrices is one chain of fma an element, whatever its other sizes (matmul of batch_train.h),
 * and tiles begin at multiples of SOFTMAX_TILE: so the bits depend neither on blocks nor on threads.
 *
 * The positive is left out of the sum, as in losses_cross_entropy: with z = s+ - log(sum of the others' powers)
 * the loss is log(1 + e^-z), exact also where the others are tiny beside it.
 */
#include "learners/losses/softmax.h"

#include "kernels/num.h"
#include "learners/losses/losses.h"

#include <math.h>

const struct option losses_softmax_options[] = {
    OPTION_INCLUDE_ROWS(losses_shared_options),
    OPTIONS_END,
};

/* One target whose negatives are all other items. */
static double softmax_at(struct losses_call *call)
{
    return losses_cross_entropy(call, false);
}

const struct losses_kind losses_softmax = {
    .name = "softmax",
    .options = losses_softmax_options,
    .at = softmax_at,
    .takes_all_items = true,
};

/* A thread's scratch memory. */
struct softmax_room {
    float *tile;    /* [SOFTMAX_TILE][d] rows */
    float *queries; /* [SOFTMAX_TARGETS][d] */
    float *scores;  /* [SOFTMAX_TARGETS][SOFTMAX_TILE] */
    void *products; /* scratch memory of matmul */
    size_t products_bytes;
};

/* scores[m][n] = queries * tile^T; then the gradients by queries (scores * tile) and by rows (scores^T *
 * queries), both added. */
static struct batch_matmul scores_of(uint32_t m, uint32_t n, uint32_t d)
{
    return (struct batch_matmul){.m = m, .n = n, .k = d, .c_stride = SOFTMAX_TILE, .b_is_transposed = true};
}
static struct batch_matmul by_queries_of(uint32_t m, uint32_t n, uint32_t d)
{
    return (struct batch_matmul){.m = m, .n = d, .k = n, .a_stride = SOFTMAX_TILE, .adds = true};
}
static struct batch_matmul by_rows_of(uint32_t m, uint32_t n, uint32_t d)
{
    return (struct batch_matmul){
        .m = n, .n = d, .k = m, .a_stride = SOFTMAX_TILE, .a_is_transposed = true, .adds = true};
}

static size_t products_bytes(const struct batch_kernels *batch, uint32_t d)
{
    struct batch_matmul all[] = {scores_of(SOFTMAX_TARGETS, SOFTMAX_TILE, d),
                                 by_queries_of(SOFTMAX_TARGETS, SOFTMAX_TILE, d),
                                 by_rows_of(SOFTMAX_TARGETS, SOFTMAX_TILE, d)};
    size_t most = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        batch->matmul(&all[i], NULL);
        most = all[i].scratch_bytes > most ? all[i].scratch_bytes : most;
    }
    return (most + 63) / 64 * 64;
}

/* The bytes of a matrix of `rows` rows of d floats, rounded up to whole cache lines. */
static size_t matrix_bytes(size_t rows, size_t d)
{
    return (rows * d * sizeof(float) + 63) / 64 * 64;
}

size_t losses_softmax_scratch(const struct batch_kernels *batch, uint32_t d)
{
    return matrix_bytes(SOFTMAX_TILE, d) + matrix_bytes(SOFTMAX_TARGETS, d) +
           matrix_bytes(SOFTMAX_TARGETS, SOFTMAX_TILE) + products_bytes(batch, d);
}

static struct softmax_room room_of(const struct softmax_step *s, void *scratch)
{
    char *at = scratch;
    struct softmax_room room = {.products_bytes = products_bytes(s->batch, s->d)};
    room.tile = (float *)(void *)at, at += matrix_bytes(SOFTMAX_TILE, s->d);
    room.queries = (float *)(void *)at, at += matrix_bytes(SOFTMAX_TARGETS, s->d);
    room.scores = (float *)(void *)at, at += matrix_bytes(SOFTMAX_TARGETS, SOFTMAX_TILE);
    room.products = at;
    return room;
}

static void multiply(const struct softmax_step *s, const struct softmax_room *room, struct batch_matmul a,
                     const float *x, const float *y, float *out)
{
    a.a = x, a.b = y, a.c = out;
    a.scratch = room->products, a.scratch_bytes = room->products_bytes;
    s->batch->matmul(&a, NULL);
}

static uint32_t tile_items(const struct softmax_step *s, uint32_t tile)
{
    uint32_t left = s->items - tile * SOFTMAX_TILE;
    return left < SOFTMAX_TILE ? left : SOFTMAX_TILE;
}

/* Copies the rows of a tile; a number without an item has zeros. */
static void load_tile(const struct softmax_step *s, struct softmax_room *room, uint32_t tile)
{
    const float *const *rows = s->rows + (size_t)tile * SOFTMAX_TILE;
    for (uint32_t i = 0; i < tile_items(s, tile); i++) {
        float *to = room->tile + (size_t)i * s->d;
        if (rows[i] != NULL)
            memcpy(to, rows[i], s->d * sizeof(*to));
        else
            memset(to, 0, s->d * sizeof(*to));
    }
}

/* Copies the queries of a block of m targets; a rejected target has zeros. */
static void load_queries(const struct softmax_step *s, struct softmax_room *room, uint32_t first, uint32_t m)
{
    for (uint32_t t = 0; t < m; t++) {
        float *to = room->queries + (size_t)t * s->d;
        if (s->is_rejected[first + t])
            memset(to, 0, s->d * sizeof(*to));
        else
            memcpy(to, s->queries + (size_t)(first + t) * s->d, s->d * sizeof(*to));
    }
}

/* The scores of m targets from `first` on with a tile, undivided by the temperature. Numbers without an item
 * get -infinity. */
static void score_tile(const struct softmax_step *s, struct softmax_room *room, uint32_t tile, uint32_t m)
{
    uint32_t n = tile_items(s, tile);
    const float *const *rows = s->rows + (size_t)tile * SOFTMAX_TILE;
    multiply(s, room, scores_of(m, n, s->d), room->queries, room->tile, room->scores);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t t = 0; rows[i] == NULL && t < m; t++)
            room->scores[(size_t)t * SOFTMAX_TILE + i] = -INFINITY;
    }
}

/* The place of a target's positive in a tile's scores; NULL: it is in another tile. */
static float *positive_in(const struct softmax_step *s, float *scores, uint32_t tile, uint32_t target)
{
    uint32_t number = s->positives[target];
    return number / SOFTMAX_TILE == tile ? &scores[number % SOFTMAX_TILE] : NULL;
}

/* The powers of a target's negatives so far: their sum is `sum` times e^(top / temperature). */
struct softmax_sum {
    float top, positive; /* scores; positive: of the target's item */
    double sum;
};

/* Takes the scores of n more items in. */
static void sum_scores(const struct softmax_step *s, struct softmax_sum *of, const float *scores, uint32_t n,
                       float scale)
{
    float top = s->kernels->scores_max(scores, n);
    if (top > of->top) {
        of->sum *= of->top > -INFINITY ? num_exp(((double)of->top - (double)top) * (double)scale) : 0.0;
        of->top = top;
    }
    if (of->top > -INFINITY) {
        of->sum += (double)s->kernels->scores_exp_sum(scores, of->top, scale, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++) /* scores_max passes over NaN */
        of->sum += isnan(scores[i]) ? (double)NAN : 0.0;
}

/* Writes a target's loss and point from the finished sum; false: they are not finite. */
static bool finish_target(const struct softmax_step *s, uint32_t target, const struct softmax_sum *sum,
                          float scale)
{
    double weight = s->weights != NULL ? (double)s->weights[target] : 1.0;
    s->losses[target] = 0.0;
    s->points[target] = (struct softmax_point){0};
    if (!isfinite(sum->positive) || !isfinite(sum->sum) || !isfinite(weight))
        return false;
    if (!(sum->top > -INFINITY))
        return true; /* no other item: nothing to learn */
    double rest = num_log(sum->sum), z = ((double)sum->positive - (double)sum->top) * (double)scale - rest;
    double share = num_sigmoid(-z) * weight * (double)scale;
    if (!isfinite(z) || !isfinite((float)share))
        return false;
    s->losses[target] = num_logloss(-z, 0.0) * weight;
    s->points[target] = (struct softmax_point){
        .top = sum->top, .rest = (float)rest, .factor = (float)share, .positive = (float)-share};
    return true;
}

/* Part 1: the losses of a block of m targets. */
static void block_losses(const struct softmax_step *s, struct softmax_room *room, uint32_t first, uint32_t m)
{
    struct softmax_sum sums[SOFTMAX_TARGETS];
    float scale = (float)(1.0 / s->temperature);
    for (uint32_t t = 0; t < m; t++) {
        s->is_rejected[first + t] = 0;
        sums[t] = (struct softmax_sum){.top = -INFINITY};
    }
    load_queries(s, room, first, m);
    for (uint32_t tile = 0; tile < losses_softmax_tiles(s->items); tile++) {
        load_tile(s, room, tile);
        score_tile(s, room, tile, m);
        for (uint32_t t = 0; t < m; t++) {
            float *scores = room->scores + (size_t)t * SOFTMAX_TILE;
            float *positive = positive_in(s, scores, tile, first + t);
            if (positive != NULL)
                sums[t].positive = *positive, *positive = -INFINITY;
            sum_scores(s, &sums[t], scores, tile_items(s, tile), scale);
        }
    }
    for (uint32_t t = 0; t < m; t++)
        s->is_rejected[first + t] |= !finish_target(s, first + t, &sums[t], scale);
}

/* Turns a tile's scores into the derivatives by them. */
static void weigh_tile(const struct softmax_step *s, struct softmax_room *room, uint32_t tile, uint32_t first,
                       uint32_t m)
{
    float scale = (float)(1.0 / s->temperature);
    for (uint32_t t = 0; t < m; t++) {
        float *scores = room->scores + (size_t)t * SOFTMAX_TILE;
        float *positive = positive_in(s, scores, tile, first + t);
        const struct softmax_point *p = &s->points[first + t];
        if (p->factor > 0.0F || p->factor < 0.0F)
            s->kernels->scores_weights(scores, p->top, scale, p->rest, p->factor, tile_items(s, tile));
        else
            memset(scores, 0, tile_items(s, tile) * sizeof(*scores));
        if (positive != NULL)
            *positive = p->positive;
    }
}

/* A target whose gradient is not finite is rejected. */
static void check_block(const struct softmax_step *s, uint32_t first, uint32_t m)
{
    for (uint32_t t = first; t < first + m; t++) {
        float *gradient = s->query_gradients + (size_t)t * s->d;
        bool is_finite = true;
        for (uint32_t i = 0; i < s->d; i++)
            is_finite &= isfinite(gradient[i]) != 0;
        s->is_rejected[t] |= !is_finite;
        if (!s->is_rejected[t])
            continue;
        memset(gradient, 0, s->d * sizeof(*gradient));
        s->losses[t] = 0.0; /* in part 2 its query is taken as 0 */
    }
}

void losses_softmax_targets(const struct softmax_step *s, uint32_t begin, uint32_t end, void *scratch)
{
    struct softmax_room room = room_of(s, scratch);
    leat_assert(begin <= end && end <= s->targets && s->temperature > 0.0);
    for (uint32_t t = begin; t < end; t++)
        leat_assert(s->positives[t] < s->items && s->rows[s->positives[t]] != NULL);
    for (uint32_t first = begin; first < end; first += SOFTMAX_TARGETS) {
        uint32_t m = end - first < SOFTMAX_TARGETS ? end - first : SOFTMAX_TARGETS;
        block_losses(s, &room, first, m);
        float *gradients = s->query_gradients + (size_t)first * s->d;
        memset(gradients, 0, (size_t)m * s->d * sizeof(*gradients));
        load_queries(s, &room, first, m);
        for (uint32_t tile = 0; tile < losses_softmax_tiles(s->items); tile++) {
            load_tile(s, &room, tile);
            score_tile(s, &room, tile, m);
            weigh_tile(s, &room, tile, first, m);
            multiply(s, &room, by_queries_of(m, tile_items(s, tile), s->d), room.scores, room.tile,
                     gradients);
        }
        check_block(s, first, m);
    }
}

void losses_softmax_items(const struct softmax_step *s, uint32_t begin, uint32_t end, float *gradients,
                          void *scratch)
{
    struct softmax_room room = room_of(s, scratch);
    leat_assert(begin <= end && end <= losses_softmax_tiles(s->items));
    for (uint32_t tile = begin; tile < end; tile++) {
        uint32_t n = tile_items(s, tile);
        float *out = gradients + (size_t)(tile - begin) * SOFTMAX_TILE * s->d;
        memset(out, 0, (size_t)n * s->d * sizeof(*out));
        load_tile(s, &room, tile);
        for (uint32_t first = 0; first < s->targets; first += SOFTMAX_TARGETS) {
            uint32_t m = s->targets - first < SOFTMAX_TARGETS ? s->targets - first : SOFTMAX_TARGETS;
            load_queries(s, &room, first, m);
            score_tile(s, &room, tile, m);
            weigh_tile(s, &room, tile, first, m);
            multiply(s, &room, by_rows_of(m, n, s->d), room.scores, room.queries, out);
        }
    }
}
