/*
 * segment_reduce of batch.h. A segment's chunks of BATCH_CHUNK places are summed in order, then the chunks'
 * sums: so that a long segment can be shared out, and the rule is the same for who does not.
 */

enum { SEGMENT_AHEAD = 12 };

/* Sixteen dims of one chunk: places order[from] up to order[to]. */
LANES_INLINE v16 chunk_sum(const struct batch_segments *in, size_t from, size_t to, size_t i, size_t n)
{
    v16 sum = v16_set1(0.0F);
    for (size_t at = from; at < to; at++) {
        size_t place = in->order[at], row = in->bag ? in->bag[place] : place;
        v16 grad = v16_load_n(in->grads + row * in->d + i, n);
        sum = in->scales ? v16_fma(v16_set1(in->scales[place]), grad, sum) : v16_add(sum, grad);
    }
    return sum;
}

/* Sixteen dims of the sum of number u. */
LANES_INLINE v16 segment_lanes(const struct batch_segments *in, size_t u, size_t i, size_t n)
{
    size_t from = in->starts[u], to = in->starts[u + 1];
    size_t end = to - from > BATCH_CHUNK ? from + BATCH_CHUNK : to;
    v16 sum = chunk_sum(in, from, end, i, n); /* nothing is added to it: -0 stays */
    for (from = end; from < to; from = end) {
        end = to - from > BATCH_CHUNK ? from + BATCH_CHUNK : to;
        sum = v16_add(sum, chunk_sum(in, from, end, i, n));
    }
    return sum;
}

/* The sum of number u, d floats. */
LANES_INLINE void segment_of(float *out, const struct batch_segments *in, size_t u)
{
    size_t d = in->d, i = 0;
    for (; i + 16 <= d; i += 16)
        v16_store(out + i, segment_lanes(in, u, i, 16));
    if (i < d)
        v16_store_n(out + i, segment_lanes(in, u, i, d - i), d - i);
}

/* Fetches the gradients of places that come soon: from *ahead on, up to SEGMENT_AHEAD behind number u. */
LANES_INLINE void segment_fetch(const struct batch_segments *in, size_t u, size_t *ahead)
{
    size_t end = in->starts[in->count[0]], until = in->starts[u + 1] + SEGMENT_AHEAD;
    for (; *ahead < until && *ahead < end; (*ahead)++) {
        size_t place = in->order[*ahead];
        const char *row = (const char *)(in->grads + (in->bag ? in->bag[place] : place) * in->d);
        for (size_t line = 0; line < in->d * sizeof(float); line += CACHE_LINE)
            __builtin_prefetch(row + line);
    }
}

static void batch_segment_reduce(struct batch_segment_reduce *a, void *stream)
{
    (void)stream;
    if (!a->scratch) {
        a->scratch_bytes = BATCH_SCRATCH_MIN;
        return;
    }
    size_t ahead = 0;
    for (size_t u = 0; u < a->in.count[0]; u++) {
        segment_fetch(&a->in, u, &ahead);
        segment_of(a->sums + u * a->in.d, &a->in, u);
    }
}
