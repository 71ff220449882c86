/*
 * matmul of batch_train.h, where p is the index over which the products are summed. A tile of c is kept in
 * registers while p rises. One operand, `rows` (x), gives single numbers, each broadcast to all lanes; the
 * other, `lanes` (y), gives whole vectors. Lanes are packed first, so that a tile reads them in order, except for
 * those of a single vector and those of a single tile of rows, which are read in place. Rows are read in place,
 * too, except for three kinds, which are packed: the last few of a block, rows that are rounded
 * first, and rows so far apart that they share sets of the first-level cache. A block of each operand stays
 * in the second-level cache. Sums that continue in the next block of p are kept in scratch memory as floats,
 * so each element of c is one chain of fma, whatever the block sizes.
 *
 * a gives the rows and b the lanes, unless c has few columns (the last layer has one): then b gives the rows,
 * for a product of two floats does not depend on their order. With one or two columns a is read in place:
 * packing it would cost more than the products; and so is a transposed b with one or two rows (one event's layer).
 *
 * Ladder (512 x 512 x 512, AVX-512): eight outputs of sixteen events (dense_forward); both operands packed,
 * and a tile of twelve rows by two vectors: a tile alone reaches the limit of fma, the whole product about 80
 * % of it (bench_memory) on a shared machine.
 */

#if defined(KERNELS_LANES_AVX512)
enum { TILE_ROWS = 12, TILE_VECTORS = 2 };
#elif defined(KERNELS_LANES_AVX2)
enum { TILE_ROWS = 6, TILE_VECTORS = 1 };
#else
enum { TILE_ROWS = 4, TILE_VECTORS = 1 };
#endif

enum {
    TILE_LANES = 16 * TILE_VECTORS,
    TILE_PANELS = 4,   /* at most, for tiles of one row: enough independent sums to hide an fma's latency */
    BLOCK_DEPTH = 256, /* largest block of p */
    BLOCK_ROWS = 192,  /* a multiple of all TILE_ROWS */
    BLOCK_LANES = 256, /* a multiple of TILE_PANELS * TILE_LANES */
    KEPT_DEPTH = 1024, /* up to this k, packed lanes are kept for all blocks of rows */
    FAR_FLOATS = 1024, /* rows whose stride is a multiple of this share cache sets */
    PACK_SLACK = 16,   /* floats that packing may write behind a panel */
    THIN_COLUMNS = 2,  /* if c has at most this many columns, or rows, the other operand is not packed */
    SUM_VECTORS = 4,   /* vectors of a's rows that are summed at a time */
};

#include "kernels/matmul_pack.inc.h"
#include "kernels/matmul_pairs.inc.h"

struct matmul_job {
    const struct batch_matmul *a;
    struct matmul_side x, y; /* x: rows, y: lanes */
    size_t rows, lanes, depth;
    size_t c_stride, mask_stride;
    bool is_turned;   /* c is computed transposed: rows are columns of c */
    bool begins_at_c; /* each sum begins at the old value of c, not at 0 */
    bool has_rows_in_place;
    bool in_pairs; /* both operands are packed as pairs of bf16 */
    float *packed_rows, *packed_lanes, *sums;
};

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* --- Tiles --- */

/*
 * The input of a tile, distances in floats. x: `across` from a row to the next, `step` from p to p + 1. y:
 * `deep` from p to p + 1, `apart` from a panel of lanes to the next.
 */
struct matmul_tile {
    const float *x, *y;
    size_t across, step;
    size_t deep, apart, depth;
    float *sums;   /* [panel][TILE_ROWS][TILE_LANES] */
    bool begins;   /* the sums begin at 0, not at the contents of `sums` */
    bool in_pairs; /* x and y are pairs of bf16, one for two p; depth counts pairs */
};

/* rows, vectors and panels are constants, so that the sums are registers. One pointer serves three rows: x86
 * can address all three from it. */
LANES_INLINE void tile_run(const struct matmul_tile *t, int rows, int vectors, int panels, bool in_pairs)
{
    v16 sums[TILE_ROWS][TILE_PANELS * TILE_VECTORS];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 16
        for (int v = 0; v < panels * vectors; v++) {
            const float *from = t->sums + v / vectors * (TILE_ROWS * TILE_LANES) + r * TILE_LANES;
            sums[r][v] = t->begins ? v16_set1(0.0F) : v16_load(from + v % vectors * 16);
        }
    }
    const float *x[TILE_ROWS / 3 + 1], *y = t->y;
    size_t apart = t->apart, deep = t->deep, step = t->step, across = t->across;
#pragma GCC unroll 16
    for (int r = 0; r < rows; r += 3)
        x[r / 3] = t->x + (size_t)r * across;
    for (size_t p = 0; p < t->depth; p++) {
        v16 b[TILE_PANELS * TILE_VECTORS];
#pragma GCC unroll 16
        for (int v = 0; v < panels * vectors; v++)
            b[v] = v16_load(y + (size_t)(v / vectors) * apart + (size_t)(v % vectors * 16));
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            v16 one = v16_set1(x[r / 3][(size_t)(r % 3) * across]);
#pragma GCC unroll 16
            for (int v = 0; v < panels * vectors; v++)
                sums[r][v] = multiply_add(one, b[v], sums[r][v], in_pairs);
        }
#pragma GCC unroll 16
        for (int r = 0; r < rows; r += 3)
            x[r / 3] += step;
        y += deep;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 16
        for (int v = 0; v < panels * vectors; v++) {
            float *to = t->sums + v / vectors * (TILE_ROWS * TILE_LANES) + r * TILE_LANES;
            v16_store(to + v % vectors * 16, sums[r][v]);
        }
    }
}

/* Picks the smallest kind of tile for `rows` and `lanes`; a tile may compute rows and lanes beyond them. */
LANES_INLINE void tile_of(const struct matmul_tile *t, size_t rows, size_t lanes, size_t panels,
                          bool in_pairs)
{
    bool is_half = panels == 1 && lanes <= 16 && TILE_VECTORS > 1;
    if (rows > 8 && TILE_ROWS > 8)
        is_half ? tile_run(t, TILE_ROWS, 1, 1, in_pairs) : tile_run(t, TILE_ROWS, TILE_VECTORS, 1, in_pairs);
    else if (rows > 6 && TILE_ROWS > 6)
        is_half ? tile_run(t, TILE_ROWS < 8 ? TILE_ROWS : 8, 1, 1, in_pairs)
                : tile_run(t, TILE_ROWS < 8 ? TILE_ROWS : 8, TILE_VECTORS, 1, in_pairs);
    else if (rows > 4 && TILE_ROWS > 4)
        is_half ? tile_run(t, TILE_ROWS < 6 ? TILE_ROWS : 6, 1, 1, in_pairs)
                : tile_run(t, TILE_ROWS < 6 ? TILE_ROWS : 6, TILE_VECTORS, 1, in_pairs);
    else if (rows > 2)
        is_half ? tile_run(t, 4, 1, 1, in_pairs) : tile_run(t, 4, TILE_VECTORS, 1, in_pairs);
    else if (rows == 2)
        is_half       ? tile_run(t, 2, 1, 1, in_pairs)
        : panels == 2 ? tile_run(t, 2, TILE_VECTORS, 2, in_pairs)
                      : tile_run(t, 2, TILE_VECTORS, 1, in_pairs);
    else
        is_half       ? tile_run(t, 1, 1, 1, in_pairs)
        : panels == 4 ? tile_run(t, 1, TILE_VECTORS, 4, in_pairs)
                      : tile_run(t, 1, TILE_VECTORS, 1, in_pairs);
}

static void tile(const struct matmul_tile *t, size_t rows, size_t lanes, size_t panels)
{
    if (HAS_PAIRS && t->in_pairs)
        tile_of(t, rows, lanes, panels, true);
    else
        tile_of(t, rows, lanes, panels, false);
}

/* Panels that a tile of `rows` rows takes at a time, if `lanes`, the lanes left, fill them all; else 1. */
static size_t tile_panels(size_t rows, size_t lanes)
{
    size_t panels = rows == 1 ? TILE_PANELS : rows == 2 ? 2 : 1;
    return lanes >= panels * TILE_LANES ? panels : 1;
}

/* --- Results in c --- */

/* Finishes and stores at most sixteen sums of a row of c, from c[i][j] on. */
LANES_INLINE void finish_vector(const struct matmul_job *job, v16 x, size_t i, size_t j, size_t lanes)
{
    const struct batch_matmul *a = job->a;
    v16 zero = v16_set1(0.0F);
    float *c = a->c + i * job->c_stride + j;
    if (a->epilogue == MATMUL_BIAS || a->epilogue == MATMUL_BIAS_RELU)
        x = v16_add(x, v16_load_n(a->bias + j, lanes));
    if (a->epilogue == MATMUL_BIAS_RELU)
        x = v16_max(zero, x);
    if (a->epilogue == MATMUL_MASK)
        x = v16_keep_gt(x, v16_load_n(a->mask + i * job->mask_stride + j, lanes), zero);
    if (a->adds && !job->begins_at_c)
        x = v16_add(v16_load_n(c, lanes), x);
    v16_store_n(c, x, lanes);
}

/* Loads `lanes` floats that are `apart` floats apart. */
LANES_INLINE v16 load_apart(const float *p, size_t apart, size_t lanes)
{
    float some[16] = {0};
    if (apart == 1)
        return v16_load_n(p, lanes);
    for (size_t l = 0; l < lanes; l++)
        some[l] = p[l * apart];
    return v16_load(some);
}

LANES_INLINE void store_apart(float *p, size_t apart, v16 x, size_t lanes)
{
    float some[16];
    if (apart == 1) {
        v16_store_n(p, x, lanes);
        return;
    }
    v16_store(some, x);
    for (size_t l = 0; l < lanes; l++)
        p[l * apart] = some[l];
}

/* Finishes and stores at most sixteen sums of a column of c, from c[i][j] on. */
LANES_INLINE void finish_column(const struct matmul_job *job, v16 x, size_t i, size_t j, size_t lanes)
{
    const struct batch_matmul *a = job->a;
    v16 zero = v16_set1(0.0F);
    float *c = a->c + i * job->c_stride + j;
    if (a->epilogue == MATMUL_BIAS || a->epilogue == MATMUL_BIAS_RELU)
        x = v16_add(x, v16_set1(a->bias[j]));
    if (a->epilogue == MATMUL_BIAS_RELU)
        x = v16_max(zero, x);
    if (a->epilogue == MATMUL_MASK)
        x = v16_keep_gt(x, load_apart(a->mask + i * job->mask_stride + j, job->mask_stride, lanes), zero);
    if (a->adds && !job->begins_at_c)
        x = v16_add(load_apart(c, job->c_stride, lanes), x);
    store_apart(c, job->c_stride, x, lanes);
}

/* Finishes a tile's panel of `rows` by `lanes` sums, the first at `row` and `lane`. */
static void finish(const struct matmul_job *job, const float *sums, size_t row, size_t rows, size_t lane,
                   size_t lanes)
{
    for (size_t r = 0; r < rows; r++, sums += TILE_LANES) {
        size_t l = 0;
        for (; l + 16 <= lanes && !job->is_turned; l += 16)
            finish_vector(job, v16_load(sums + l), row + r, lane + l, 16);
        if (l < lanes && !job->is_turned)
            finish_vector(job, v16_load(sums + l), row + r, lane + l, lanes - l);
        for (l = 0; l < lanes && job->is_turned; l += 16)
            finish_column(job, v16_load(sums + l), lane + l, row + r, lanes - l < 16 ? lanes - l : 16);
    }
}

/* Loads c into a tile's sums, panel by panel. */
static void begin_at_c(const struct matmul_job *job, float *sums, size_t row, size_t rows, size_t lane,
                       size_t lanes)
{
    size_t stride = job->c_stride, across = job->is_turned ? 1 : stride, apart = job->is_turned ? stride : 1;
    for (size_t r = 0; r < rows; r++) {
        const float *c = job->a->c + (row + r) * across + lane * apart;
        float *to = sums + r * TILE_LANES;
        for (size_t l = 0; l < lanes; l += 16) {
            if (l % TILE_LANES == 0 && l > 0)
                to += TILE_ROWS * TILE_LANES;
            v16_store(to + l % TILE_LANES, load_apart(c + l * apart, apart, least_of(lanes - l, 16)));
        }
    }
}

/* --- Few columns, or few rows --- */

LANES_INLINE void thin_add(v16 sums[THIN_COLUMNS], const float *x, size_t across, v16 v, int columns)
{
    for (size_t j = 0; j < (size_t)columns; j++)
        sums[j] = v16_fma(v16_set1(x[j * across]), v, sums[j]);
}

/*
 * Sixteen rows of a from `lane` on times all columns of b, which are few; or sixteen columns of a transposed b
 * times all rows of a. Each number of the sixteen is used once, so they are not packed but transposed in registers,
 * four p at a time. The last sixteen may begin earlier than `lane`, so that they are whole; sums that are finished
 * already are dropped.
 */
LANES_INLINE void thin_rows(const struct matmul_job *job, size_t lane, int columns)
{
    size_t whole = lane + 16 <= job->lanes ? lane : job->lanes - 16, across = job->y.across, p = 0;
    const float *from = job->y.at + whole * across, *x = job->x.at;
    size_t apart = job->is_turned ? job->c_stride : 1, next = job->is_turned ? 1 : job->c_stride;
    v16 sums[THIN_COLUMNS], v[4];
    for (int j = 0; j < columns; j++)
        sums[j] = job->begins_at_c ? load_apart(job->a->c + whole * apart + (size_t)j * next, apart, 16)
                                   : v16_set1(0.0F);
    for (; p + 4 <= job->depth; p += 4) {
        for (size_t k = 0; k < 4; k++) {
            const float *four = from + k * across + p;
            v[k] = v16_load4x4(four, four + 4 * across, four + 8 * across, four + 12 * across);
        }
        v16_transpose_groups(v);
        for (int k = 0; k < 4; k++, x += job->x.deep)
            thin_add(sums, x, job->x.across, v[k], columns);
    }
    for (; p < job->depth; p++, x += job->x.deep)
        thin_add(sums, x, job->x.across, load_apart(from + p, across, 16), columns);
    for (int j = 0; j < columns; j++) {
        float finished[32] = {0};
        v16_store(finished, sums[j]);
        v16 rest = v16_load(finished + (lane - whole));
        size_t lanes = 16 - (lane - whole);
        if (job->is_turned)
            finish_column(job, rest, lane, (size_t)j, lanes);
        else
            finish_vector(job, rest, (size_t)j, lane, lanes);
    }
}

/* Whether run_thin can compute the product. */
static bool is_thin(const struct matmul_job *job)
{
    return job->rows <= THIN_COLUMNS && job->lanes >= 16 && job->y.deep == 1 && job->a->precision == ROW_FP32;
}

static void run_thin(const struct matmul_job *job)
{
    for (size_t lane = 0; lane < job->lanes; lane += 16) {
        switch (job->rows) {
        case 1: thin_rows(job, lane, 1); break;
        case 2: thin_rows(job, lane, 2); break;
        }
    }
}

/* --- Blocks --- */

/* A block of rows, lanes and p. */
struct matmul_block {
    size_t row, rows, lane, lanes, p, depth;
    size_t steps;        /* loop steps of a tile: depth, or half of it for pairs */
    const float *packed; /* the packed lanes */
    size_t direct;       /* lanes read in place; the lanes behind (of the last panel, or all) are packed */
    size_t whole;        /* rows read in place; the rows behind (of the last tile, or all) are packed */
    bool is_direct;      /* lanes are read in place, if they are whole vectors */
};

static size_t rounded_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* The block size of p, such that all blocks are about equal. */
static size_t block_depth(size_t depth)
{
    size_t blocks = depth / BLOCK_DEPTH + (depth % BLOCK_DEPTH > 0);
    return blocks > 0 ? (depth + blocks - 1) / blocks : 0;
}

/* Whether rows are read in place: not if they are rounded first, and not if their distance makes them evict
 * each other from the first-level cache. */
static bool reads_in_place(const struct matmul_side *x, enum row_format precision)
{
    return precision == ROW_FP32 && (x->across == 1 || x->across % FAR_FLOATS != 0);
}

/* Sets where the tile reads the lanes from l on of a block. */
LANES_INLINE void tile_lanes(struct matmul_tile *t, const struct matmul_job *job,
                             const struct matmul_block *b, size_t l)
{
    t->y = b->packed + l * b->steps;
    t->deep = TILE_LANES;
    t->apart = TILE_LANES * b->steps;
    if (!b->is_direct)
        return;
    if (l >= b->direct) {
        t->y = b->packed;
        return;
    }
    t->y = job->y.at + b->p * job->y.deep + b->lane + l;
    t->deep = job->y.deep;
    t->apart = TILE_LANES;
}

/* Sets where the tile reads the rows from r on of a block. */
LANES_INLINE void tile_rows(struct matmul_tile *t, const struct matmul_job *job, const struct matmul_block *b,
                            size_t r)
{
    if (r < b->whole) {
        t->x = job->x.at + (b->row + r) * job->x.across + b->p * job->x.deep;
        t->across = job->x.across;
        t->step = job->x.deep;
        return;
    }
    t->x = job->packed_rows + (r - b->whole) * b->steps;
    t->across = 1;
    t->step = TILE_ROWS;
}

/* Computes all tiles of a block; the last block of p writes c. */
static void run_tiles(const struct matmul_job *job, const struct matmul_block *b)
{
    bool is_only = job->depth <= BLOCK_DEPTH, is_last = b->p + b->depth == job->depth;
    float *sums = job->sums;
    for (size_t r = 0; r < b->rows; r += TILE_ROWS) {
        size_t rows = least_of(b->rows - r, TILE_ROWS), panels = 0;
        for (size_t l = 0; l < b->lanes; l += panels * TILE_LANES) {
            struct matmul_tile t = {.depth = b->steps, .sums = sums, .in_pairs = job->in_pairs};
            t.begins = b->p == 0 && !job->begins_at_c;
            tile_rows(&t, job, b, r);
            size_t left = b->lanes - l;
            panels = tile_panels(rows, left);
            tile_lanes(&t, job, b, l);
            if (b->p == 0 && job->begins_at_c)
                begin_at_c(job, sums, b->row + r, rows, b->lane + l, least_of(left, panels * TILE_LANES));
            tile(&t, rows, left, panels);
            for (size_t k = 0; k < panels && is_last; k++)
                finish(job, sums + k * TILE_ROWS * TILE_LANES, b->row + r, rows, b->lane + l + k * TILE_LANES,
                       least_of(left - k * TILE_LANES, TILE_LANES));
            if (!is_only)
                sums += panels * TILE_ROWS * TILE_LANES;
        }
    }
}

/* A block of c: all blocks of p in order. */
static void run_depth(const struct matmul_job *job, struct matmul_block *b)
{
    enum row_format precision = job->in_pairs ? ROW_FP32 : job->a->precision; /* pairs are rounded later */
    bool keeps = job->depth <= KEPT_DEPTH;
    size_t most = block_depth(job->depth);
    b->p = 0;
    do {
        b->depth = least_of(job->depth - b->p, most);
        b->steps = job->in_pairs ? (b->depth + 1) / 2 : b->depth;
        float *packed = job->packed_lanes + (keeps ? rounded_up(b->lanes, TILE_LANES) * b->p : 0);
        if (!keeps || b->row == 0) {
            pack_lanes(packed, &job->y, b->lane + b->direct, b->lanes - b->direct, b->p, b->depth, precision);
            if (job->in_pairs)
                pair_lanes(packed, b->lanes, b->depth);
        }
        b->whole = job->has_rows_in_place ? b->rows / TILE_ROWS * TILE_ROWS : 0;
        pack_rows(job->packed_rows, &job->x, b->row + b->whole, b->rows - b->whole, b->p, b->depth,
                  precision);
        if (job->in_pairs)
            pair_rows(job->packed_rows, b->rows, b->depth);
        b->packed = packed;
        run_tiles(job, b);
        b->p += b->depth;
    } while (b->p < job->depth);
}

static void run_blocks(const struct matmul_job *job)
{
    struct matmul_block b = {0};
    /* one vector of lanes: each is read once for a tile, as from a panel, and packing costs more */
    bool is_near = job->lanes == 16 && job->y.deep % FAR_FLOATS != 0;
    b.is_direct = (job->rows <= TILE_ROWS || is_near) && job->y.across == 1 && job->a->precision == ROW_FP32;
    for (b.lane = 0; b.lane < job->lanes; b.lane += BLOCK_LANES) {
        b.lanes = least_of(job->lanes - b.lane, BLOCK_LANES);
        size_t partial = b.lanes % TILE_LANES;
        b.direct = b.is_direct ? b.lanes - (partial == 16 ? 0 : partial) : 0;
        for (b.row = 0; b.row < job->rows; b.row += BLOCK_ROWS) {
            b.rows = least_of(job->rows - b.row, BLOCK_ROWS);
            run_depth(job, &b);
        }
    }
}

/* --- Sums of a's rows --- */

/* The sums of rows of a transposed operand: `vectors` vectors of rows, or one vector of up to sixteen.
 * Several vectors at a time, as each is a chain of dependent additions. */
LANES_INLINE void sum_columns(float *sums, const float *from, size_t stride, size_t depth, int vectors,
                              size_t lanes, bool adds)
{
    v16 totals[SUM_VECTORS], chunk[SUM_VECTORS];
    for (int v = 0; v < vectors; v++)
        totals[v] = adds ? v16_load_n(sums + v * 16, lanes) : v16_set1(0.0F);
    for (size_t p = 0; p < depth; p += BATCH_CHUNK) {
        for (int v = 0; v < vectors; v++)
            chunk[v] = v16_set1(0.0F);
        for (size_t q = p; q < depth && q < p + BATCH_CHUNK; q++) {
            for (int v = 0; v < vectors; v++)
                chunk[v] = v16_add(chunk[v], v16_load_n(from + q * stride + v * 16, lanes));
        }
        for (int v = 0; v < vectors; v++)
            totals[v] = v16_add(totals[v], chunk[v]);
    }
    for (int v = 0; v < vectors; v++)
        v16_store_n(sums + v * 16, totals[v], lanes);
}

static float sum_row(float total, const float *from, size_t depth)
{
    for (size_t p = 0; p < depth; p += BATCH_CHUNK) {
        float chunk = 0.0F;
        for (size_t q = p; q < depth && q < p + BATCH_CHUNK; q++)
            chunk += from[q];
        total += chunk;
    }
    return total;
}

static void sum_rows(const struct batch_matmul *a)
{
    size_t i = 0, stride = a->a_stride ? a->a_stride : a->a_is_transposed ? a->m : a->k;
    for (; i < a->m && !a->a_is_transposed; i++)
        a->sums[i] = sum_row(a->adds ? a->sums[i] : 0.0F, a->a + i * stride, a->k);
    for (; i + 16 * SUM_VECTORS <= a->m; i += 16 * SUM_VECTORS)
        sum_columns(a->sums + i, a->a + i, stride, a->k, SUM_VECTORS, 16, a->adds);
    for (; i + 16 <= a->m; i += 16)
        sum_columns(a->sums + i, a->a + i, stride, a->k, 1, 16, a->adds);
    if (i < a->m)
        sum_columns(a->sums + i, a->a + i, stride, a->k, 1, a->m - i, a->adds);
}

/* --- The kernel --- */

static size_t floats_of_scratch(const struct batch_matmul *a, size_t floats[3])
{
    size_t most = a->m > a->n ? a->m : a->n;
    size_t rows = least_of(rounded_up(most, TILE_ROWS), BLOCK_ROWS);
    size_t lanes = least_of(rounded_up(most, TILE_LANES), BLOCK_LANES);
    floats[0] = rounded_up(rows * least_of(a->k, BLOCK_DEPTH) + PACK_SLACK, 16);
    floats[1] = rounded_up(lanes * least_of(a->k, KEPT_DEPTH) + PACK_SLACK, 16);
    floats[2] = a->k > BLOCK_DEPTH ? rows * lanes : (size_t)TILE_PANELS * TILE_ROWS * TILE_LANES;
    return floats[0] + floats[1] + floats[2];
}

static void batch_matmul(struct batch_matmul *a, void *stream)
{
    (void)stream;
    size_t floats[3], bytes = floats_of_scratch(a, floats) * sizeof(float);
    if (a->scratch == NULL) {
        a->scratch_bytes = bytes > BATCH_SCRATCH_MIN ? bytes : BATCH_SCRATCH_MIN;
        return;
    }
    assert(a->scratch_bytes >= bytes);
    size_t a_stride = a->a_stride ? a->a_stride : a->a_is_transposed ? a->m : a->k;
    size_t b_stride = a->b_stride ? a->b_stride : a->b_is_transposed ? a->k : a->n;
    float scale = a->scale > 0.0F ? a->scale : 1.0F;
    struct matmul_side of_a = {a->a, a_stride, 1, scale}, of_b = {a->b, 1, b_stride, 1.0F};
    if (a->a_is_transposed)
        of_a.across = 1, of_a.deep = a_stride;
    if (a->b_is_transposed)
        of_b.across = b_stride, of_b.deep = 1;
    struct matmul_job job = {.a = a,
                             .x = of_a,
                             .y = of_b,
                             .rows = a->m,
                             .lanes = a->n,
                             .depth = a->k,
                             .c_stride = a->c_stride ? a->c_stride : a->n,
                             .mask_stride = a->mask_stride ? a->mask_stride : a->n,
                             .is_turned = a->n < 16 && a->n < a->m,
                             .begins_at_c = a->adds && a->epilogue != MATMUL_MASK,
                             .packed_rows = a->scratch};
    job.packed_lanes = job.packed_rows + floats[0];
    job.sums = job.packed_lanes + floats[1];
    if (job.is_turned) {
        job.x = of_b, job.y = of_a;
        job.rows = a->n, job.lanes = a->m;
    }
    job.has_rows_in_place = reads_in_place(&job.x, a->precision);
    job.in_pairs = takes_pairs(a, a_stride, b_stride, job.c_stride);
    if (is_thin(&job))
        run_thin(&job);
    else
        run_blocks(&job);
    if (a->epilogue == MATMUL_SUMS)
        sum_rows(a);
}
