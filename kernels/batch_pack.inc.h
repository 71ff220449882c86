/*
 * pack and mask_rows of batch_train.h. Columns become rows by tiles of sixteen events and sixteen or four
 * columns. Tiles of sixteen columns write whole cache lines: twice as fast as tiles of four if the
 * data lies in the second-level cache, and in 0.6 to 0.7 of their time if it lies in memory. A run of
 * PACK_RUN events reads a few lines of each column, columns one after another: all columns at once would be
 * more streams than the hardware prefetches, and columns a power of two apart would exceed a cache set. The
 * run's rows stay in a cache until all columns are written. The last tiles overlap the tiles before: they
 * write the same numbers again.
 */

enum { PACK_EVENTS = 16, PACK_COLUMNS = 4, PACK_WIDE = 16, PACK_RUN = 128 };

/* Floats from one row of a matrix to the next. */
LANES_INLINE size_t matrix_stride(uint32_t stride, size_t columns)
{
    return stride > 0 ? stride : columns;
}

LANES_INLINE void pack_tile(float *out, size_t out_stride, const float *columns, size_t columns_stride)
{
    v16 v[PACK_COLUMNS];
    for (size_t k = 0; k < PACK_COLUMNS; k++)
        v[k] = v16_load(columns + k * columns_stride);
    v16_transpose_groups(v); /* v[k]: four columns of the events k, k + 4, k + 8, k + 12 */
    for (size_t k = 0; k < PACK_COLUMNS; k++) {
        float *row = out + k * out_stride;
        v16_store4x4(row, row + 4 * out_stride, row + 8 * out_stride, row + 12 * out_stride, v[k]);
    }
}

/* Sixteen columns at once, so that whole vectors are written. */
LANES_INLINE void pack_wide_tile(float *out, size_t out_stride, const float *columns, size_t columns_stride)
{
    v16 v[4][4]; /* v[i]: columns 4 i to 4 i + 3 */
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; k++)
            v[i][k] = v16_load(columns + (4 * i + k) * columns_stride);
        v16_transpose_groups(v[i]);
    }
#pragma GCC unroll 4
    for (size_t k = 0; k < 4; k++) {
        v16 rows[4] = {v[0][k], v[1][k], v[2][k], v[3][k]}; /* of the events k, k + 4, k + 8, k + 12 */
        v16_transpose_vectors(rows);
#pragma GCC unroll 4
        for (size_t g = 0; g < 4; g++)
            v16_store(out + (4 * g + k) * out_stride, rows[g]);
    }
}

/* The next e from `e` on with is_marked[e], or n; skips eight at a time, as most events are not marked. */
LANES_INLINE size_t next_marked(const uint8_t *is_marked, size_t e, size_t n)
{
    uint64_t eight = 0;
    for (; e + sizeof(eight) <= n; e += sizeof(eight)) {
        memcpy(&eight, is_marked + e, sizeof(eight));
        if (eight != 0)
            break;
    }
    while (e < n && !is_marked[e])
        e++;
    return e;
}

static void clear_rows(float *x, size_t stride, size_t columns, const uint8_t *is_rejected, size_t from,
                       size_t to)
{
    for (size_t e = next_marked(is_rejected, from, to); e < to; e = next_marked(is_rejected, e + 1, to))
        memset(x + e * stride, 0, columns * sizeof(*x));
}

/* Packs events `from` up to `to`: sixteen columns, all events, then the next sixteen; the rest by four. */
static void pack_run(const struct batch_pack *a, size_t stride, size_t from, size_t to)
{
    size_t count = a->count;
    size_t wide = count / PACK_WIDE * PACK_WIDE;
    for (size_t c = 0; c < wide; c += PACK_WIDE) {
        for (size_t e = from; e < to; e += PACK_EVENTS) {
            size_t event = e + PACK_EVENTS <= a->n ? e : a->n - PACK_EVENTS;
            pack_wide_tile(a->out + event * stride + c, stride, a->columns + c * a->columns_stride + event,
                           a->columns_stride);
        }
    }
    for (size_t c = wide; c < count; c += PACK_COLUMNS) {
        size_t column = c + PACK_COLUMNS <= count ? c : count - PACK_COLUMNS;
        const float *columns = a->columns + column * a->columns_stride;
        for (size_t e = from; e < to; e += PACK_EVENTS) {
            size_t event = e + PACK_EVENTS <= a->n ? e : a->n - PACK_EVENTS;
            pack_tile(a->out + event * stride + column, stride, columns + event, a->columns_stride);
        }
    }
}

static void batch_pack(struct batch_pack *a, void *stream)
{
    (void)stream;
    size_t n = a->n, count = a->count, stride = matrix_stride(a->stride, count);
    bool has_tiles = n >= PACK_EVENTS && count >= PACK_COLUMNS;
    for (size_t e = 0; e < n && has_tiles; e += PACK_RUN)
        pack_run(a, stride, e, n - e < PACK_RUN ? n : e + PACK_RUN);
    for (size_t c = 0; c < count && !has_tiles; c++) {
        for (size_t e = 0; e < n; e++)
            a->out[e * stride + c] = a->columns[c * a->columns_stride + e];
    }
    if (a->is_rejected != NULL)
        clear_rows(a->out, stride, count, a->is_rejected, 0, n);
}

static void batch_mask_rows(struct batch_mask_rows *a, void *stream)
{
    (void)stream;
    clear_rows(a->x, matrix_stride(a->stride, a->columns), a->columns, a->is_rejected, 0, a->n);
}
