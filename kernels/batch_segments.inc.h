/*
 * segment_reduce of batch.h. Each chunk of BATCH_CHUNK places is summed in order, then the chunks' sums are
 * added in order: so that several warps of a GPU can share a long segment and give the same bits. With slices
 * an index has parts, which are summed so, and are added by the tree of slices.h.
 */

enum {
    SEGMENT_AHEAD = 12,
    SEGMENT_VECTORS = 4, /* vectors at a time: hides fma's latency */
    SEGMENT_PLACES = 8,  /* of an index for each slice, for slot_sums */
};
_Static_assert(SEGMENT_PLACES *BATCH_SLICES_MAX <= BATCH_CHUNK, "slot_sums has one chunk");

/* Floats between the gradients of two bags. */
LANES_INLINE size_t segment_unit(const struct batch_segments *in)
{
    return in->unit > 0 ? in->unit : in->d;
}

/* The event of a place, by which slices are made. */
LANES_INLINE uint32_t segment_event(const struct batch_segments *in, size_t place)
{
    return in->event != NULL ? in->event[place] : (uint32_t)place;
}

/* The end of the positions from..to whose events are before `border`, the first one being so. Chunks
 * whose last event is before the border are skipped; of the next chunk, all events are compared with the border.
 * Halving would be slower: each comparison waits for the one before. */
LANES_INLINE size_t slice_end(const struct batch_segments *in, size_t from, size_t to, uint32_t border)
{
    size_t before = 0;
    for (; to - from > BATCH_CHUNK; from += BATCH_CHUNK)
        if (segment_event(in, in->order[from + BATCH_CHUNK - 1]) >= border) {
            to = from + BATCH_CHUNK;
            break;
        }
    for (size_t at = from; at < to; at++)
        before += segment_event(in, in->order[at]) < border;
    return from + before;
}

/* One chunk, places order[from] up to order[to]: `vectors` whole vectors of dims from i on, or one vector of
 * n dims. */
LANES_INLINE void chunk_sums(v16 *sums, const struct batch_segments *in, size_t from, size_t to, size_t i,
                             int vectors, size_t n)
{
    for (int v = 0; v < vectors; v++)
        sums[v] = v16_set1(0.0F);
    for (size_t at = from; at < to; at++) {
        size_t place = in->order[at], row = in->bag ? in->bag[place] : place;
        const float *grad = in->grads + row * segment_unit(in) + i;
        v16 scale = v16_set1(in->scales ? in->scales[place] : 1.0F);
        for (int v = 0; v < vectors; v++)
            sums[v] = v16_fma(scale, v16_load_n(grad + v * 16, n), sums[v]);
    }
}

LANES_INLINE void add_vectors(v16 *sums, const v16 *more, int vectors)
{
    for (int v = 0; v < vectors; v++)
        sums[v] = v16_add(sums[v], more[v]);
}

/* The same dims of the sum of a part: the places order[from] up to order[to], all of one slice. */
LANES_INLINE void part_sums(v16 *sums, const struct batch_segments *in, size_t from, size_t to, size_t i,
                            int vectors, size_t n)
{
    size_t first = from, end = to - from > BATCH_CHUNK ? from + BATCH_CHUNK : to;
    v16 chunk[SEGMENT_VECTORS];
    chunk_sums(sums, in, from, end, i, vectors, n); /* not added to zeros: -0 stays -0 */
    for (from = end; from < to; from = end) {
        end = to - from > BATCH_CHUNK ? from + BATCH_CHUNK : to;
        chunk_sums(chunk, in, from, end, i, vectors, n);
        add_vectors(sums, chunk, vectors);
    }
    if (in->more != NULL) {
        const float *more = in->more + (size_t)in->more_at[in->order[first]] * in->d + i;
        for (int v = 0; v < vectors; v++)
            sums[v] = v16_add(sums[v], v16_load_n(more + v * 16, n));
    }
}

/* Whether slices can change an index's sum. Two places without scales have the same sum in one slice and in
 * two. */
LANES_INLINE bool segment_has_tree(const struct batch_segments *in, size_t places)
{
    return in->slices.count > 1 && (places > 2 || in->scales != NULL || in->more != NULL);
}

/* The same dims of the sum of several parts, by the tree of slices.h. */
LANES_INLINE void tree_sums(v16 *sums, const struct batch_segments *in, size_t from, size_t to, size_t i,
                            int vectors, size_t n)
{
    v16 waiting[BATCH_SLICE_LEVELS][SEGMENT_VECTORS];
    uint32_t slices[BATCH_SLICE_LEVELS];
    size_t count = 0; /* sums that wait */
    for (size_t end; from < to; from = end) {
        uint32_t slice = batch_slice_of(&in->slices, segment_event(in, in->order[from]));
        for (; count > 1 && batch_slices_join(slices[count - 2], slices[count - 1], slice); count--)
            add_vectors(waiting[count - 2], waiting[count - 1], vectors);
        end = slice_end(in, from, to, in->slices.borders[slice + 1]);
        slices[count] = slice;
        part_sums(waiting[count++], in, from, end, i, vectors, n);
    }
    for (; count > 1; count--)
        add_vectors(waiting[count - 2], waiting[count - 1], vectors);
    memcpy(sums, waiting[0], (size_t)vectors * sizeof(*sums));
}

/* Whether slot_sums serves an index: parts of one chunk, and few places for each slice. */
LANES_INLINE bool segment_has_slots(const struct batch_segments *in, size_t places)
{
    return places <= SEGMENT_PLACES * in->slices.count && in->scales == NULL;
}

/* The same as tree_sums, of one vector, without branches that depend on the index: each slice has its sum, 0
 * without a place. Adding 0 is skipping: sums that began at 0, without scales, are never -0. */
LANES_INLINE v16 slot_sums(const struct batch_segments *in, size_t from, size_t to, size_t i, size_t n)
{
    static const float zeros[16];
    v16 sums[BATCH_SLICES_MAX], one = v16_set1(1.0F);
    const float *more[BATCH_SLICES_MAX];
    uint32_t count = in->slices.count;
    for (uint32_t s = 0; s < count; s++)
        sums[s] = v16_set1(0.0F), more[s] = zeros;
    for (size_t at = from; at < to; at++) {
        size_t place = in->order[at], row = in->bag ? in->bag[place] : place;
        uint32_t s = batch_slice_of(&in->slices, segment_event(in, place));
        sums[s] = v16_fma(one, v16_load_n(in->grads + row * segment_unit(in) + i, n), sums[s]);
        if (in->more != NULL)
            more[s] = more[s] == zeros ? in->more + (size_t)in->more_at[place] * in->d + i : more[s];
    }
    for (uint32_t s = 0; in->more != NULL && s < count; s++)
        sums[s] = v16_add(sums[s], v16_load_n(more[s], n));
    for (uint32_t step = 1; step < count; step *= 2)
        for (uint32_t s = 0; s < count; s += 2 * step)
            sums[s] = v16_add(sums[s], sums[s + step]);
    return sums[0];
}

/* Writes the same dims of the whole sum of index u to `out`. */
LANES_INLINE void segment_vectors(float *out, const struct batch_segments *in, size_t u, size_t i,
                                  int vectors, size_t n)
{
    size_t from = in->starts[u], to = in->starts[u + 1];
    v16 sums[SEGMENT_VECTORS];
    if (segment_has_tree(in, to - from) && vectors == 1 && segment_has_slots(in, to - from))
        sums[0] = slot_sums(in, from, to, i, n);
    else if (segment_has_tree(in, to - from))
        tree_sums(sums, in, from, to, i, vectors, n);
    else
        part_sums(sums, in, from, to, i, vectors, n);
    for (int v = 0; v < vectors; v++)
        v16_store_n(out + i + v * 16, sums[v], n);
}

/* The sum of an index with one place, as most have: 0 + scale * grad. `at`: the place is order[at]. */
LANES_INLINE void segment_one(float *out, const struct batch_segments *in, size_t at)
{
    size_t d = in->d, place = in->order[at], i = 0;
    const float *grad = in->grads + (in->bag ? in->bag[place] : place) * segment_unit(in);
    v16 zero = v16_set1(0.0F), scale = v16_set1(in->scales ? in->scales[place] : 1.0F);
    for (; i + 16 <= d; i += 16)
        v16_store(out + i, v16_fma(scale, v16_load(grad + i), zero));
    if (i < d)
        v16_store_n(out + i, v16_fma(scale, v16_load_n(grad + i, d - i), zero), d - i);
    for (i = 0; in->more != NULL && i < d; i++)
        out[i] += in->more[in->more_at[place] * d + i];
}

/* The sum of index u, d floats. */
LANES_INLINE void segment_of(float *out, const struct batch_segments *in, size_t u)
{
    size_t d = in->d, i = 0;
    if (in->starts[u + 1] - in->starts[u] == 1) {
        segment_one(out, in, in->starts[u]);
        return;
    }
    for (; i + SEGMENT_VECTORS * 16 <= d; i += SEGMENT_VECTORS * 16)
        segment_vectors(out, in, u, i, SEGMENT_VECTORS, 16);
    for (; i + 16 <= d; i += 16)
        segment_vectors(out, in, u, i, 1, 16);
    if (i < d)
        segment_vectors(out, in, u, i, 1, d - i);
}

/* Prefetches the next places' gradients: from *ahead on, up to SEGMENT_AHEAD behind the places of u. */
LANES_INLINE void segment_fetch(const struct batch_segments *in, size_t u, size_t *ahead)
{
    size_t end = in->starts[in->count[0]], until = in->starts[u + 1] + SEGMENT_AHEAD;
    for (; *ahead < until && *ahead < end; (*ahead)++) {
        size_t place = in->order[*ahead];
        const char *row = (const char *)(in->grads + (in->bag ? in->bag[place] : place) * segment_unit(in));
        const char *more = row; /* with slices a place's part can be anywhere */
        if (in->more != NULL && in->slices.count > 1)
            more = (const char *)(in->more + (size_t)in->more_at[place] * in->d);
        for (size_t line = 0; line < in->d * sizeof(float); line += CACHE_LINE) {
            __builtin_prefetch(row + line);
            __builtin_prefetch(more + line);
        }
    }
}

static void batch_segment_reduce(struct batch_segment_reduce *a, void *stream)
{
    (void)stream;
    if (a->scratch == NULL) {
        a->scratch_bytes = BATCH_SCRATCH_MIN;
        return;
    }
    size_t ahead = a->in.starts[0];
    for (size_t u = 0; u < a->in.count[0]; u++) {
        segment_fetch(&a->in, u, &ahead);
        segment_of(a->sums + u * a->in.d, &a->in, u);
    }
}
