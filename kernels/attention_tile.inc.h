/*
 * What both kinds of attention (attention.h) share: the walk over heads, windows, blocks of queries and tiles
 * of keys; the three products of a tile; transposed blocks; dropout.
 *
 * Lanes are queries. A tile of weights is stored turned, [key][ATTENTION_QUERIES], so the maximum, the sum
 * and the scaling of softmax go lane by lane, without a reduction across lanes, and every product reads k, v,
 * dout and q in place: only a block's q (and dout and out, backward) is turned, once for all its keys.
 *
 *   scores: w[key][query]  = sum over d of x[key][i] turned[i][query]        (x: k, v)
 *   gather: sums[i][query] += sum over keys of x[key][i] w[key][query]       (x: v, k)
 *   spread: c[key][i]      += sum over queries of w[key][query] y[query][i]  (c: dv, dk; y: dout, q)
 *
 * Each number is one chain of fma over its index in order, whatever the sizes of the register tiles, so the
 * sizes may differ between variants. With is_causal no product touches a key that no query of the vector
 * sees: keys behind the last query of the lower vector take the upper vector alone. Keys that only some lanes
 * of a vector see are computed, then masked: their weights are 0, and a weight of 0 changes no sum but the
 * sign of a 0, which the last step of `out` takes away.
 *
 * In bf16 (attention.h) the rows that a product takes are rounded into scratch memory, block by block and tile by tile,
 * and weights where they lie. It is for the bits that a GPU's tensor cores give, up to their order, not for speed.
 *
 * Ladder: bench/kernels/README.md.
 */
#include "kernels/rounding.h"

#if defined(KERNELS_LANES_AVX512)
enum { ATT_ROWS = 8, ATT_ROWS_THIN = 16, ATT_VECTORS = 2 };
#else
enum { ATT_ROWS = 4, ATT_ROWS_THIN = 4, ATT_VECTORS = 1 };
#endif

/* --- Products --- */

/* c[r][l] = (begins ? 0 : c[r][l]) + sum over s < depth of x[r * across + s * step] * y[s * deep + l]. */
struct att_product {
    float *c;
    size_t c_stride;
    const float *x;
    size_t across, step;
    const float *y;
    size_t deep, depth, rows, lanes; /* lanes: a multiple of 16 */
    bool begins;
};

/* rows and vectors are constants, so that the sums are registers. One pointer serves three rows: x86 can
 * address all three from it. */
LANES_INLINE void att_run(const struct att_product *t, size_t row, size_t lane, int rows, int vectors)
{
    v16 sums[16][2];
    float *c = t->c + row * t->c_stride + lane;
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++)
            sums[r][v] = t->begins ? v16_set1(0.0F) : v16_load(c + (size_t)r * t->c_stride + (size_t)v * 16);
    }
    const float *x[6], *y = t->y + lane;
    size_t across = t->across, step = t->step, deep = t->deep;
#pragma GCC unroll 16
    for (int r = 0; r < rows; r += 3)
        x[r / 3] = t->x + (row + (size_t)r) * across;
    for (size_t s = 0; s < t->depth; s++) {
        v16 b[2];
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++)
            b[v] = v16_load(y + (size_t)v * 16);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            v16 one = v16_set1(x[r / 3][(size_t)(r % 3) * across]);
#pragma GCC unroll 16
            for (int v = 0; v < vectors; v++)
                sums[r][v] = v16_fma(one, b[v], sums[r][v]);
        }
#pragma GCC unroll 16
        for (int r = 0; r < rows; r += 3)
            x[r / 3] += step;
        y += deep;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++)
            v16_store(c + (size_t)r * t->c_stride + (size_t)v * 16, sums[r][v]);
    }
}

/* All rows of one or ATT_VECTORS vectors of lanes. */
LANES_INLINE void att_rows(const struct att_product *t, size_t lane, int most, int vectors)
{
    size_t row = 0;
    for (; row + (size_t)most <= t->rows; row += (size_t)most)
        att_run(t, row, lane, most, vectors);
    if (most > 8 && row + 8 <= t->rows) {
        att_run(t, row, lane, 8, vectors);
        row += 8;
    }
    if (most > 4 && row + 4 <= t->rows) {
        att_run(t, row, lane, 4, vectors);
        row += 4;
    }
    if (row + 2 <= t->rows) {
        att_run(t, row, lane, 2, vectors);
        row += 2;
    }
    if (row < t->rows)
        att_run(t, row, lane, 1, vectors);
}

static void att_multiply(const struct att_product *t)
{
    size_t lane = 0;
    if (t->rows == 0)
        return;
    for (; ATT_VECTORS > 1 && lane + 32 <= t->lanes; lane += 32)
        att_rows(t, lane, ATT_ROWS, ATT_VECTORS);
    for (; lane < t->lanes; lane += 16)
        att_rows(t, lane, ATT_ROWS_THIN, 1);
}

/* --- Blocks of queries, tiles of keys --- */

/* A block of queries of one head of one window. Matrices at its head's columns: keys from the window's first
 * row, queries from the block's first. */
struct att_block {
    const struct attention *a;
    size_t head, d;
    size_t keys;    /* rows of the window */
    size_t at;      /* position of the first query */
    size_t row;     /* its row in q and out */
    size_t key_row; /* the window's first row in k and v */
    size_t queries, lanes;
    const float *k, *v, *q;
    float *turned_q, *sums, *turned_out, *turned_dout; /* [d][ATTENTION_QUERIES] */
    float *weights, *slopes;                           /* [ATTENTION_KEYS][ATTENTION_QUERIES] */
    float *time_sums;                                  /* [ATTENTION_TIME_BUCKETS][16] */
    uint64_t key;                                      /* of dropout */
    uint32_t drop_rows[ATTENTION_QUERIES];
    uint32_t limit; /* dropout's; 0: no dropout */
    float kept;     /* factor of what dropout keeps */
    bool is_bf16;
    float *rounded_q, *rounded_dout, *rounded_k, *rounded_v; /* bf16: [rows of a block or tile][d] */
};

/* A tile of keys of a block: `count` keys from `first` on. The first `both` of them are seen by a query of
 * the lower vector, the others by queries of the upper vector alone. */
struct att_tile {
    size_t first, count, both;
};

static bool att_next(const struct att_block *b, struct att_tile *t)
{
    size_t end = b->a->is_causal ? b->at + b->queries : b->keys;
    t->first += t->count;
    if (t->first >= end)
        return false;
    t->count = end - t->first < ATTENTION_KEYS ? end - t->first : ATTENTION_KEYS;
    t->both = t->count;
    if (b->a->is_causal && b->lanes > 16)
        t->both = b->at + 16 <= t->first             ? 0
                  : b->at + 16 - t->first < t->count ? b->at + 16 - t->first
                                                     : t->count;
    return true;
}

/* Keys of the tile that vector v of queries sees, and, of these, those that all of its lanes see. */
static size_t att_seen(const struct att_tile *t, size_t v)
{
    return v == 0 ? t->both : t->count;
}
static size_t att_open(const struct att_block *b, const struct att_tile *t, size_t v)
{
    size_t seen = att_seen(t, v), open = b->at + v * 16 + 1;
    if (!b->a->is_causal)
        return seen;
    return open <= t->first ? 0 : open - t->first < seen ? open - t->first : seen;
}

/* x: the tile's rows of k or v. */
static void att_scores(const struct att_block *b, const struct att_tile *t, float *w, struct attention_in x,
                       const float *turned)
{
    struct att_product p = {.c = w, .c_stride = ATTENTION_QUERIES};
    p.x = x.at, p.across = x.stride, p.step = 1;
    p.y = turned, p.deep = ATTENTION_QUERIES;
    p.depth = b->d, p.rows = t->both, p.lanes = b->lanes, p.begins = true;
    att_multiply(&p);
    p.c += t->both * ATTENTION_QUERIES + 16;
    p.x += t->both * x.stride;
    p.y += 16;
    p.rows = t->count - t->both;
    p.lanes = 16;
    att_multiply(&p);
}

/* x: the tile's rows of v or k. */
static void att_gather(const struct att_block *b, const struct att_tile *t, float *sums,
                       struct attention_in x, const float *w)
{
    struct att_product p = {.c = sums, .c_stride = ATTENTION_QUERIES};
    p.x = x.at, p.across = 1, p.step = x.stride;
    p.y = w, p.deep = ATTENTION_QUERIES;
    p.depth = t->both, p.rows = b->d, p.lanes = b->lanes, p.begins = t->first == 0;
    att_multiply(&p);
    if (t->both == t->count)
        return;
    p.c += 16;
    p.x += t->both * x.stride;
    p.y += t->both * ATTENTION_QUERIES + 16;
    p.depth = t->count - t->both;
    p.lanes = 16;
    p.begins = false;
    att_multiply(&p);
}

/* y: the block's rows of dout or q. */
static void att_spread(const struct att_block *b, const struct att_tile *t, float *c, size_t c_stride,
                       const float *w, struct attention_in y)
{
    struct att_product p = {.c = c + t->first * c_stride, .c_stride = c_stride};
    p.x = w, p.across = ATTENTION_QUERIES, p.step = 1;
    p.y = y.at, p.deep = y.stride;
    p.depth = b->queries, p.rows = t->both, p.lanes = b->d;
    att_multiply(&p);
    if (t->both == t->count)
        return;
    p.c += t->both * c_stride;
    p.x += t->both * ATTENTION_QUERIES + 16;
    p.y += 16 * y.stride;
    p.depth = b->queries - 16;
    p.rows = t->count - t->both;
    att_multiply(&p);
}

/* --- Operands of products --- */

LANES_INLINE void att_round(float *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = float_of_bf16(bf16_of(float_bits(from[i]), 0, true));
}

/* `count` rows as a product takes them: where they lie, or rounded, in `room`. */
static struct attention_in att_operand(const struct att_block *b, const float *rows, size_t stride,
                                       size_t count, float *room)
{
    if (!b->is_bf16)
        return (struct attention_in){rows, stride};
    for (size_t r = 0; r < count; r++)
        att_round(room + r * b->d, rows + r * stride, b->d);
    return (struct attention_in){room, b->d};
}

/* The rows of a tile's keys; x: of the window's first. */
static struct attention_in att_keys(const struct att_block *b, const struct att_tile *t, const float *x,
                                    size_t stride, float *room)
{
    return att_operand(b, x + t->first * stride, stride, t->count, room);
}

/* The tile's weights or slopes become those that products take. */
static void att_round_weights(const struct att_block *b, const struct att_tile *t, float *w)
{
    for (size_t v = 0; b->is_bf16 && v * 16 < b->lanes; v++) {
        for (size_t j = 0; j < att_seen(t, v); j++)
            att_round(w + j * ATTENTION_QUERIES + v * 16, w + j * ATTENTION_QUERIES + v * 16, 16);
    }
}

/* --- Turned blocks --- */

/* turned[i][query] = rows[query][i]; lanes behind the last query repeat it. */
static void att_turn(const struct att_block *b, float *turned, const float *rows, size_t stride)
{
    for (size_t i = 0; i < b->d; i += 4) {
        for (size_t lane = 0; lane < b->lanes; lane += 16) {
            v16 v[4];
            const float *from[16];
            for (size_t l = 0; l < 16; l++)
                from[l] = rows + (lane + l < b->queries ? lane + l : b->queries - 1) * stride + i;
            for (size_t k = 0; k < 4; k++)
                v[k] = v16_load4x4(from[k], from[k + 4], from[k + 8], from[k + 12]);
            v16_transpose_groups(v);
            for (size_t k = 0; k < 4; k++)
                v16_store(turned + (i + k) * ATTENTION_QUERIES + lane, v[k]);
        }
    }
}

/* rows[query][i] = turned[i][query]. */
static void att_turn_back(const struct att_block *b, float *rows, size_t stride, const float *turned)
{
    for (size_t i = 0; i < b->d; i += 16) {
        for (size_t lane = 0; lane < b->queries; lane += 4) {
            v16 v[4];
            for (size_t k = 0; k < 4; k++) {
                const float *from = turned + (i + k) * ATTENTION_QUERIES + lane;
                v[k] =
                    v16_load4x4(from, from + (size_t)4 * ATTENTION_QUERIES,
                                from + (size_t)8 * ATTENTION_QUERIES, from + (size_t)12 * ATTENTION_QUERIES);
            }
            v16_transpose_groups(v);
            for (size_t k = 0; k < 4 && lane + k < b->queries; k++)
                v16_store(rows + (lane + k) * stride + i, v[k]);
        }
    }
}

/* x *= by, lane by lane, for the d rows of one vector of a turned block. */
LANES_INLINE void att_scale(const struct att_block *b, float *turned, size_t v, v16 by)
{
    for (size_t i = 0; i < b->d; i++) {
        float *x = turned + i * ATTENTION_QUERIES + v * 16;
        v16_store(x, v16_fma(v16_load(x), by, v16_set1(0.0F))); /* -0 becomes 0 */
    }
}

/* --- Arithmetic of one vector --- */

/* Positions of vector v's queries. */
LANES_INLINE v16 att_positions(const struct att_block *b, size_t v)
{
    float at[16];
    for (size_t l = 0; l < 16; l++)
        at[l] = (float)(b->at + v * 16 + l);
    return v16_load(at);
}

/* Factors of a key's weights by dropout: b->kept or 0. */
LANES_INLINE v16 att_drops(const struct att_block *b, size_t v, size_t position)
{
    float factors[16];
    uint32_t column = dropout_column(b->key, position);
    for (size_t l = 0; l < 16; l++)
        factors[l] = dropout_bits(b->drop_rows[v * 16 + l], column) >= b->limit ? b->kept : 0.0F;
    return v16_load(factors);
}

/* The batch's rows follow one another, whatever their windows: fetches those of the next block of queries. */
LANES_INLINE void att_prefetch(const struct att_block *b, const float *at, size_t stride, size_t row)
{
    size_t end = b->a->offsets[b->a->events], from = row + b->queries;
    for (size_t r = from; r < from + ATTENTION_QUERIES && r < end; r++) {
        for (size_t i = 0; i < b->d; i += 16)
            __builtin_prefetch(at + r * stride + b->head * b->d + i, 0, 2);
    }
}

/* Before a block of the backward kernels: clears the rows of dk and dv, to which blocks add, when the window
 * begins, and fetches what the next block reads besides q, k and v. */
static void att_prepare_backward(const struct att_block *b)
{
    const struct attention *a = b->a;
    size_t column = b->head * b->d;
    for (size_t r = b->key_row; b->at == 0 && r < b->key_row + b->keys; r++) {
        memset(a->dk.at + r * a->dk.stride + column, 0, b->d * sizeof(float));
        memset(a->dv.at + r * a->dv.stride + column, 0, b->d * sizeof(float));
    }
    att_prefetch(b, a->dout.at, a->dout.stride, b->row);
    if (a->out.at != NULL)
        att_prefetch(b, a->out.at, a->out.stride, b->row);
    att_prefetch(b, a->dk.at, a->dk.stride, b->row);
    att_prefetch(b, a->dv.at, a->dv.stride, b->row);
}

/* --- The walk --- */

static void att_begin(struct att_block *b, const struct attention *a)
{
    size_t turned = (size_t)a->d * ATTENTION_QUERIES;
    float *scratch = a->scratch;
    *b = (struct att_block){.a = a, .d = a->d};
    b->turned_q = scratch;
    b->sums = scratch + turned;
    b->turned_out = scratch + 2 * turned;
    b->turned_dout = scratch + 3 * turned;
    b->weights = scratch + 4 * turned;
    b->slopes = b->weights + (size_t)ATTENTION_KEYS * ATTENTION_QUERIES;
    b->time_sums = b->slopes + (size_t)ATTENTION_KEYS * ATTENTION_QUERIES;
    b->is_bf16 = a->precision == ROW_BF16;
    if (b->is_bf16) {
        b->rounded_q = b->time_sums + (size_t)ATTENTION_TIME_BUCKETS * 16;
        b->rounded_dout = b->rounded_q + turned;
        b->rounded_k = b->rounded_dout + turned;
        b->rounded_v = b->rounded_k + (size_t)a->d * ATTENTION_KEYS;
    }
    b->limit = dropout_limit(a->dropout);
    b->kept = 1.0F / (1.0F - a->dropout);
}

static void att_enter(struct att_block *b, size_t event, size_t head)
{
    const struct attention *a = b->a;
    b->head = head;
    b->key_row = a->offsets[event];
    b->keys = a->offsets[event + 1] - a->offsets[event];
    b->k = a->k.at + b->key_row * a->k.stride + head * b->d;
    b->v = a->v.at + b->key_row * a->v.stride + head * b->d;
    b->key = num_chance(a->seed, a->identities != NULL ? a->identities[event] : event, a->part + head);
}

static void att_place(struct att_block *b, size_t at, size_t row, size_t queries)
{
    const struct attention *a = b->a;
    b->at = at;
    b->row = row;
    b->queries = queries;
    b->lanes = queries > 16 ? 32 : 16;
    b->q = a->q.at + row * a->q.stride + b->head * b->d;
    for (size_t l = 0; b->limit > 0 && l < b->lanes; l++)
        b->drop_rows[l] = dropout_row(b->key, at + l);
}

/* Queries of the next block of a window, of which `left` are left. short_first: of a causal window the first blocks,
 * whose queries see the fewest keys, are the ones that are not full, instead of the last. */
LANES_INLINE size_t att_block_queries(const struct att_block *b, size_t left, bool short_first)
{
    if (short_first && b->a->is_causal && left % ATTENTION_QUERIES != 0)
        return left % 16 != 0 ? left % 16 : 16;
    return left < ATTENTION_QUERIES ? left : ATTENTION_QUERIES;
}

/* Calls `run` for each block of queries of the heads from `head` to `end`, window by window. short_first changes the
 * order of sums that go over queries by lane, and of no other. */
LANES_INLINE void att_each(struct att_block *b, size_t head, size_t end, bool short_first,
                           void (*run)(struct att_block *))
{
    const struct attention *a = b->a;
    const uint32_t *from = a->query_offsets != NULL ? a->query_offsets : a->offsets;
    for (size_t e = 0; e < a->events; e++) {
        size_t all = from[e + 1] - from[e];
        for (size_t h = head; h < end; h++) {
            att_enter(b, e, h);
            for (size_t i = 0, some; i < all; i += some) {
                some = att_block_queries(b, all - i, short_first);
                att_place(b, b->keys - all + i, from[e] + i, some);
                att_prefetch(b, a->k.at, a->k.stride, b->key_row + b->at);
                att_prefetch(b, a->v.at, a->v.stride, b->key_row + b->at);
                att_prefetch(b, a->q.at, a->q.stride, b->row);
                run(b);
            }
        }
    }
}
