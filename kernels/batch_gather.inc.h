/*
 * gather_pool of batch.h: rows at random places, so the next ones are fetched ahead of their use. One row is
 * added to a bag at a time, sixteen dims of it, in the order of its places.
 */

enum { GATHER_AHEAD = 8, CACHE_LINE = 64 };

LANES_INLINE const unsigned char *gather_row(const struct batch_gather_pool *a, size_t place)
{
    if (!a->unique)
        return a->rows[place];
    return a->unique[place] == BATCH_NONE ? NULL : a->rows[a->unique[place]];
}

/* Weights i up to i + n of a row; n = 16 but at its end. */
LANES_INLINE v16 row_load(const unsigned char *row, size_t i, size_t n, enum row_format format)
{
    const void *weights = row;
    switch (format) {
    case ROW_BF16: return v16_load_bf16((const uint16_t *)weights + i, n);
    case ROW_FP16: return v16_load_fp16((const uint16_t *)weights + i, n);
    case ROW_INT8: {
        v16 bytes = v16_load_int8((const int8_t *)weights + sizeof(float) + i, n);
        return v16_mul(v16_set1(*(const float *)weights), bytes);
    }
    case ROW_FP32:
    case ROW_FORMATS: break;
    }
    return v16_load_n((const float *)weights + i, n);
}

/* Sixteen dims of a bag: the sum over its places, in order; NULL rows add nothing. */
LANES_INLINE v16 bag_sum(const struct batch_gather_pool *a, size_t from, size_t to, size_t i, size_t n,
                         enum row_format format)
{
    v16 sum = v16_set1(0.0F);
    for (size_t place = from; place < to; place++) {
        const unsigned char *row = gather_row(a, place);
        if (row)
            sum = v16_add(sum, row_load(row, i, n, format));
    }
    return sum;
}

LANES_INLINE void gather_format(const struct batch_gather_pool *a, enum row_format format)
{
    size_t d = a->d, bytes = row_weight_bytes(format, d), ahead = 0;
    size_t places = a->offsets ? a->offsets[a->bags] : a->bags;
    for (size_t b = 0; b < a->bags; b++) {
        size_t from = a->offsets ? a->offsets[b] : b, to = a->offsets ? a->offsets[b + 1] : b + 1;
        for (; ahead < to + GATHER_AHEAD && ahead < places; ahead++) {
            const unsigned char *row = gather_row(a, ahead);
            for (size_t line = 0; row && line < bytes; line += CACHE_LINE)
                __builtin_prefetch(row + line);
        }
        v16 count = v16_set1(a->is_mean && to > from ? (float)(to - from) : 1.0F);
        float *out = a->out + b * d;
        size_t i = 0;
        for (; i + 16 <= d; i += 16)
            v16_store(out + i, v16_div(bag_sum(a, from, to, i, 16, format), count));
        if (i < d)
            v16_store_n(out + i, v16_div(bag_sum(a, from, to, i, d - i, format), count), d - i);
    }
}

static void batch_gather_pool(struct batch_gather_pool *a, void *stream)
{
    (void)stream;
    switch (a->format) {
    case ROW_FP32: gather_format(a, ROW_FP32); break;
    case ROW_BF16: gather_format(a, ROW_BF16); break;
    case ROW_FP16: gather_format(a, ROW_FP16); break;
    case ROW_INT8: gather_format(a, ROW_INT8); break;
    case ROW_FORMATS: break;
    }
}
