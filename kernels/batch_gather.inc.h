/*
 * gather_pool of batch.h: rows lie at random addresses, so the next ones are prefetched. Rows are added to a
 * bag one at a time, four vectors of a row at once, in the order of the bag's places.
 */

enum { GATHER_AHEAD = 16, GATHER_VECTORS = 4, CACHE_LINE = 64 };

LANES_INLINE const unsigned char *gather_row(const struct batch_gather_pool *a, size_t place)
{
    if (a->indices == NULL)
        return a->rows[place];
    return a->indices[place] == BATCH_NONE ? NULL : a->rows[a->indices[place]];
}

/* Weights i up to i + n of a row as floats; n = 16 except at the row's end. */
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

/* Dims from i on of a bag: `vectors` whole vectors, or one vector of n dims. The sum over the bag's places,
 * in order, divided by `divisor` if given. NULL rows add nothing. */
LANES_INLINE void bag_vectors(float *out, const struct batch_gather_pool *a, size_t from, size_t to, size_t i,
                              int vectors, size_t n, const v16 *divisor, enum row_format format)
{
    v16 sums[GATHER_VECTORS];
    for (int v = 0; v < vectors; v++)
        sums[v] = v16_set1(0.0F);
    for (size_t place = from; place < to; place++) {
        const unsigned char *row = gather_row(a, place);
        for (int v = 0; row && v < vectors; v++)
            sums[v] = v16_add(sums[v], row_load(row, i + (size_t)v * 16, n, format));
    }
    for (int v = 0; v < vectors; v++)
        v16_store_n(out + i + v * 16, divisor != NULL ? v16_div(sums[v], *divisor) : sums[v], n);
}

LANES_INLINE void bag_sum(float *out, const struct batch_gather_pool *a, size_t from, size_t to,
                          const v16 *divisor, enum row_format format)
{
    size_t d = a->d, i = 0;
    for (; i + GATHER_VECTORS * 16 <= d; i += GATHER_VECTORS * 16)
        bag_vectors(out, a, from, to, i, GATHER_VECTORS, 16, divisor, format);
    for (; i + 16 <= d; i += 16)
        bag_vectors(out, a, from, to, i, 1, 16, divisor, format);
    if (i < d)
        bag_vectors(out, a, from, to, i, 1, d - i, divisor, format);
}

/* The output rows of the bags, one after another: with fields, bag (field, event) goes to columns of the
 * event's row. */
struct gather_out {
    float *first, *next; /* in the current field: output of its first event, output of the next event */
    size_t events, left; /* events of a field; of the current field, events left */
    size_t stride, d;
};

LANES_INLINE struct gather_out gather_begin(const struct batch_gather_pool *a)
{
    size_t d = a->d, events = a->fields > 0 ? a->bags / a->fields : a->bags;
    size_t stride = a->fields == 0 ? d : a->stride > 0 ? a->stride : a->fields * d;
    return (struct gather_out){a->out, a->out, events, events, stride, d};
}

LANES_INLINE float *gather_next(struct gather_out *to)
{
    if (to->left == 0) {
        to->first += to->d;
        to->next = to->first;
        to->left = to->events;
    }
    float *out = to->next;
    to->next += to->stride;
    to->left--;
    return out;
}

LANES_INLINE void gather_format(const struct batch_gather_pool *a, enum row_format format)
{
    size_t d = a->d, bytes = row_weight_bytes(format, d), ahead = 0;
    size_t places = a->offsets ? a->offsets[a->bags] : a->bags;
    struct gather_out to = gather_begin(a);
    for (size_t b = 0; b < a->bags; b++) {
        size_t from = a->offsets ? a->offsets[b] : b, end = a->offsets ? a->offsets[b + 1] : b + 1;
        for (; ahead < end + GATHER_AHEAD && ahead < places; ahead++) {
            const unsigned char *row = gather_row(a, ahead);
            for (size_t line = 0; row && line < bytes; line += CACHE_LINE)
                __builtin_prefetch(row + line);
        }
        for (size_t line = 0; to.left > GATHER_AHEAD && line < 4 * d; line += CACHE_LINE)
            __builtin_prefetch((const char *)(to.next + GATHER_AHEAD * to.stride) + line, 1);
        v16 count = v16_set1(end > from ? (float)(end - from) : 1.0F);
        bag_sum(gather_next(&to), a, from, end, a->is_mean ? &count : NULL, format);
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
