/*
 * weights_read, weights_forward and weights_update of batch_train.h: one weight a row, at random addresses,
 * which are prefetched.
 *
 * An index has few places, and the CPU can hardly predict their number: in a loop over the places that also
 * waits for order, bag and gradient, each mispredicted branch discards the loads in flight. So the gradients
 * of a window of places are first gathered by a loop without branches, and the sums are computed from the
 * window. Sixteen rows are gathered into a vector for the step.
 */

enum {
    WEIGHTS_AHEAD = 48,
    WINDOW_CHUNKS = 4,
    WEIGHTS_WINDOW = WINDOW_CHUNKS * BATCH_CHUNK,
    WEIGHTS_TILE = 8
};

/* Where the weight of index u lies; NULL: u has no row. */
LANES_INLINE void *weight_place(const struct batch_weights *of, size_t u)
{
    unsigned char *row = of->rows[u];
    return row != NULL ? row + of->at : NULL;
}

LANES_INLINE void weights_fetch(const struct batch_weights *of, size_t from, size_t to, size_t count,
                                bool changes)
{
    for (size_t u = from; u < to && u < count; u++) {
        const void *place = weight_place(of, u);
        if (place != NULL && changes)
            __builtin_prefetch(place, 1);
        else if (place != NULL)
            __builtin_prefetch(place);
    }
}

/* The weights of n <= 16 indices from u on, stored as FTRL's z and sums. */
static void weights_derive(const struct batch_weights *of, size_t u, size_t n, float *out)
{
    double z[16] = {0}, sums[16] = {0}, w[16];
    for (size_t k = 0; k < n; k++) {
        const double *place = weight_place(of, u + k);
        if (place != NULL)
            z[k] = place[0], sums[k] = place[1];
    }
    ftrl64_weights(w, z, sums, 16, &of->ftrl);
    for (size_t k = 0; k < n; k++)
        out[k] = of->rows[u + k] != NULL ? (float)w[k] : 0.0F;
}

static void batch_weights_read(struct batch_weights_read *a, void *stream)
{
    (void)stream;
    size_t count = a->count[0];
    weights_fetch(&a->of, 0, WEIGHTS_AHEAD, count, false);
    for (size_t u = 0; u < count; u += 16) {
        size_t n = count - u < 16 ? count - u : 16;
        weights_fetch(&a->of, u + WEIGHTS_AHEAD, u + WEIGHTS_AHEAD + 16, count, false);
        if (a->of.is_double) {
            weights_derive(&a->of, u, n, a->out + u);
            continue;
        }
        for (size_t k = u; k < u + n; k++) {
            const float *place = weight_place(&a->of, k);
            a->out[k] = place ? *place : 0.0F;
        }
    }
}

/* --- Forward --- */

/* The n events from e on that are summed together; lanes beyond n are unused. */
struct forward_tile {
    size_t e, n;
    float sums[WEIGHTS_TILE * 16];
};

/* Lanes in use of the vector that begins at event i of the tile. */
LANES_INLINE size_t forward_lanes(const struct forward_tile *t, size_t i)
{
    return t->n - i < 16 ? t->n - i : 16;
}

static void forward_dense(struct forward_tile *t, const struct batch_weights_forward *a)
{
    v16 rejected[WEIGHTS_TILE], one = v16_set1(1.0F);
    for (size_t i = 0; i < t->n; i += 16) {
        size_t lanes = forward_lanes(t, i);
        v16 sum = a->start ? v16_load_n(a->start + t->e + i, lanes) : v16_set1(a->base);
        v16_store(t->sums + i, a->bias != NULL ? v16_add(sum, v16_set1(*a->bias)) : sum);
        if (a->is_rejected != NULL)
            rejected[i / 16] = v16_abs(v16_load_int8((const int8_t *)a->is_rejected + t->e + i, lanes));
    }
    size_t stride = a->dense_stride > 0 ? a->dense_stride : a->n;
    for (size_t c = 0; c < a->dense_count; c++) {
        v16 weight = v16_set1(a->dense_weights[c]);
        for (size_t i = 0; i < t->n; i += 16) {
            v16 x = v16_load_n(a->dense + c * stride + t->e + i, forward_lanes(t, i));
            if (a->is_rejected != NULL)
                x = v16_keep_gt(x, one, rejected[i / 16]);
            v16_store(t->sums + i, v16_fma(x, weight, v16_load(t->sums + i)));
        }
    }
}

/* Adds the weights of a vector's bags of one place each, the places from `first` on. */
LANES_INLINE void forward_places(float *sums, const struct batch_weights_forward *a, size_t first,
                                 size_t lanes)
{
    v16_store(sums, v16_add(v16_load(sums), v16_gather(a->weights, a->indices + first, lanes)));
}

/* Adds the weights of a vector's bags of any length, with offsets[0 .. lanes]. */
LANES_INLINE void forward_lists(float *sums, const struct batch_weights_forward *a, const uint32_t *offsets,
                                size_t lanes)
{
    uint32_t others = 0;
    for (size_t k = 0; k < lanes; k++)
        others |= (offsets[k + 1] - offsets[k]) ^ 1U;
    if (others == 0) {
        forward_places(sums, a, offsets[0], lanes);
        return;
    }
    for (size_t k = 0; k < lanes; k++) {
        size_t from = offsets[k], to = offsets[k + 1];
        float scale = 1.0F / (float)(to - from), sum = sums[k];
        for (size_t place = from; place < to; place++) {
            uint32_t u = a->indices[place];
            if (u != BATCH_NONE)
                sum = fmaf(scale, a->weights[u], sum);
        }
        sums[k] = sum;
    }
}

static void batch_weights_forward(struct batch_weights_forward *a, void *stream)
{
    (void)stream;
    for (size_t e = 0; e < a->n; e += WEIGHTS_TILE * 16) {
        struct forward_tile t = {.e = e, .n = a->n - e < WEIGHTS_TILE * 16 ? a->n - e : WEIGHTS_TILE * 16};
        forward_dense(&t, a);
        for (size_t f = 0; f < a->fields; f++) {
            size_t bag = f * a->n + e, i = 0;
            for (; a->offsets == NULL && i + 16 <= t.n; i += 16)
                forward_places(t.sums + i, a, bag + i, 16);
            if (a->offsets == NULL && i < t.n)
                forward_places(t.sums + i, a, bag + i, t.n - i);
            for (i = 0; a->offsets != NULL && i < t.n; i += 16)
                forward_lists(t.sums + i, a, a->offsets + bag + i, forward_lanes(&t, i));
        }
        memcpy(a->logits + e, t.sums, t.n * sizeof(*t.sums));
    }
}

/* --- Update --- */

/* Gradients and scales of places order[from] up to order[to]. */
struct weights_window {
    const struct batch_segments *in;
    size_t from, to, end; /* end: end of all places */
    float grads[WEIGHTS_WINDOW], scales[WEIGHTS_WINDOW];
};

static void window_fill(struct weights_window *w, size_t from)
{
    const struct batch_segments *in = w->in;
    size_t n = w->end - from < WEIGHTS_WINDOW ? w->end - from : WEIGHTS_WINDOW;
    size_t unit = in->unit > 0 ? in->unit : 1;
    const uint32_t *order = in->order + from;
    w->from = from, w->to = from + n;
    for (size_t i = 0; i < n; i++) {
        size_t row = in->bag ? in->bag[order[i]] : order[i];
        w->grads[i] = in->grads[row * unit];
    }
    for (size_t i = 0; in->scales && i < n; i++)
        w->scales[i] = in->scales[order[i]];
}

/* The sums of `chunks` chunks from order[from] on, n places each; chunks is a constant. Several chunks side by
 * side hide an addition's latency; they are whole (n = BATCH_CHUNK). */
LANES_INLINE void window_chunks(float *sums, struct weights_window *w, size_t from, size_t n, size_t chunks)
{
    if (from + (chunks - 1) * BATCH_CHUNK + n > w->to)
        window_fill(w, from);
    const float *grads = w->grads + (from - w->from), *scales = w->scales + (from - w->from);
    for (size_t k = 0; k < chunks; k++)
        sums[k] = 0.0F;
    if (w->in->scales != NULL) {
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < chunks; k++)
                sums[k] = fmaf(scales[k * BATCH_CHUNK + i], grads[k * BATCH_CHUNK + i], sums[k]);
    } else {
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < chunks; k++)
                sums[k] += grads[k * BATCH_CHUNK + i];
    }
}

/* The sum of a part: order[from] up to order[to], all of one slice. */
LANES_INLINE float window_part(struct weights_window *w, size_t from, size_t to)
{
    float sum, sums[WINDOW_CHUNKS];
    size_t n = to - from < BATCH_CHUNK ? to - from : BATCH_CHUNK;
    window_chunks(&sum, w, from, n, 1);
    for (from += n; to - from >= WEIGHTS_WINDOW; from += WEIGHTS_WINDOW) {
        window_chunks(sums, w, from, BATCH_CHUNK, WINDOW_CHUNKS);
        for (size_t k = 0; k < WINDOW_CHUNKS; k++)
            sum += sums[k];
    }
    for (; from < to; from += n) {
        n = to - from < BATCH_CHUNK ? to - from : BATCH_CHUNK;
        window_chunks(sums, w, from, n, 1);
        sum += sums[0];
    }
    return sum;
}

/* The sum of several parts, by the tree of slices.h. */
static float window_tree(struct weights_window *w, size_t from, size_t to)
{
    float waiting[BATCH_SLICE_LEVELS];
    uint32_t slices[BATCH_SLICE_LEVELS];
    size_t count = 0;
    for (size_t end; from < to; from = end) {
        uint32_t slice = batch_slice_of(&w->in->slices, segment_event(w->in, w->in->order[from]));
        for (; count > 1 && batch_slices_join(slices[count - 2], slices[count - 1], slice); count--)
            waiting[count - 2] += waiting[count - 1];
        end = slice_end(w->in, from, to, w->in->slices.borders[slice + 1]);
        slices[count] = slice;
        waiting[count++] = window_part(w, from, end);
    }
    for (; count > 1; count--)
        waiting[count - 2] += waiting[count - 1];
    return waiting[0];
}

/* one_hots[s]: 1 in the lane of slice s, which has the bits of s in reverse order: so v16_sum, which adds lanes 8
 * apart first, adds neighbours first, as the tree does. */
#define ONE_HOT(s, lane) [s] = {[lane] = 1.0F}
static const float one_hots[BATCH_SLICES_MAX][16] = {
    ONE_HOT(0, 0),  ONE_HOT(1, 8),   ONE_HOT(2, 4),  ONE_HOT(3, 12), ONE_HOT(4, 2),  ONE_HOT(5, 10),
    ONE_HOT(6, 6),  ONE_HOT(7, 14),  ONE_HOT(8, 1),  ONE_HOT(9, 9),  ONE_HOT(10, 5), ONE_HOT(11, 13),
    ONE_HOT(12, 3), ONE_HOT(13, 11), ONE_HOT(14, 7), ONE_HOT(15, 15)};
#undef ONE_HOT

/* The same of few places: like slot_sums, with a lane for each slice. A gradient that is not finite makes the sum
 * NaN, which is rejected as well. */
static float window_slots(struct weights_window *w, size_t from, size_t to)
{
    v16 sums = v16_set1(0.0F);
    if (to > w->to)
        window_fill(w, from);
    for (size_t at = from; at < to; at++) {
        uint32_t slice = batch_slice_of(&w->in->slices, segment_event(w->in, w->in->order[at]));
        sums = v16_fma(v16_set1(w->grads[at - w->from]), v16_load(one_hots[slice]), sums);
    }
    return v16_sum(sums);
}

/* The sum of index u, with the bits of segment_of. */
LANES_INLINE float window_sum(struct weights_window *w, size_t u)
{
    size_t from = w->in->starts[u], to = w->in->starts[u + 1];
    if (to - from < 2 || !segment_has_tree(w->in, to - from))
        return window_part(w, from, to);
    return segment_has_slots(w->in, to - from) ? window_slots(w, from, to) : window_tree(w, from, to);
}

/* The weights of up to sixteen indices that make a step. */
struct weights_block {
    size_t n;
    void *places[16];
    float grads[16];
};

/* Fills the block with the indices u up to u + n, n <= 16, that have a row and a finite sum; returns how many
 * sums of rows are not finite. */
static uint32_t weights_gather(struct weights_block *b, struct weights_window *w,
                               const struct batch_weights *of, size_t u, size_t n)
{
    uint32_t rejected = 0;
    bool is_whole = true; /* all have a row and a finite sum, as usual */
    for (size_t k = 0; k < n; k++) {
        b->places[k] = weight_place(of, u + k);
        b->grads[k] = window_sum(w, u + k);
        is_whole &= (b->places[k] != NULL) & float_is_finite(b->grads[k]);
    }
    b->n = n;
    if (is_whole)
        return 0;
    b->n = 0;
    for (size_t k = 0; k < n; k++) {
        bool has_row = b->places[k] != NULL, is_finite = float_is_finite(b->grads[k]);
        rejected += has_row && !is_finite;
        b->places[b->n] = b->places[k];
        b->grads[b->n] = b->grads[k];
        b->n += has_row && is_finite;
    }
    return rejected;
}

/* One step of a block with n > 0. */
LANES_INLINE void weights_step(const struct weights_block *b, enum opt_kind kind, const struct opt_vectors *o)
{
    float *places[16], lanes[16] = {0};
    size_t n = b->n;
    memcpy(places, b->places, sizeof(places));
    v16 one = v16_set1(1.0F), s0 = one, s1 = one, w;
    if (opt_states(kind) == 0) {
        for (size_t k = 0; k < n; k++)
            lanes[k] = *places[k];
        w = v16_load(lanes);
    } else {
        w = v16_load_pairs(places, n, &s0);
    }
    if (opt_states(kind) > 1) {
        for (size_t k = 0; k < n; k++)
            lanes[k] = places[k][2];
        s1 = v16_load(lanes);
    }
    w = opt_step(kind, w, v16_load_n(b->grads, n), one, one, &s0, &s1, o);
    if (opt_states(kind) == 0) {
        v16_store(lanes, w);
        for (size_t k = 0; k < n; k++)
            *places[k] = lanes[k];
    } else {
        v16_store_pairs(places, n, w, s0);
    }
    if (opt_states(kind) > 1) {
        v16_store(lanes, s1);
        for (size_t k = 0; k < n; k++)
            places[k][2] = lanes[k];
    }
}

static void weights_step64(const struct weights_block *b, const struct ftrl64_params *p)
{
    double z[16] = {0}, sums[16] = {0}, w[16], g[16] = {0};
    for (size_t k = 0; k < b->n; k++) {
        const double *place = b->places[k];
        z[k] = place[0], sums[k] = place[1], g[k] = (double)b->grads[k];
    }
    ftrl64_weights(w, z, sums, b->n, p);
    ftrl64_update(z, sums, w, g, b->n, p);
    for (size_t k = 0; k < b->n; k++) {
        double *place = b->places[k];
        place[0] = z[k], place[1] = sums[k];
    }
}

static void weights_step_kind(const struct weights_block *b, const struct batch_weights *of,
                              const struct opt_vectors *o)
{
    if (of->is_double) {
        weights_step64(b, &of->ftrl);
        return;
    }
    switch (of->kind) {
    case OPT_SGD: weights_step(b, OPT_SGD, o); break;
    case OPT_MOMENTUM: weights_step(b, OPT_MOMENTUM, o); break;
    case OPT_ADAGRAD:
    case OPT_ADAGRAD_ROW:
    case OPT_ADAGRAD_BLOCK: weights_step(b, OPT_ADAGRAD, o); break;
    case OPT_ADAM: weights_step(b, OPT_ADAM, o); break;
    case OPT_FTRL: weights_step(b, OPT_FTRL, o); break;
    case OPT_NEWTON:
    case OPT_KINDS: assert(false); break;
    }
}

static void batch_weights_update(struct batch_weights_update *a, void *stream)
{
    (void)stream;
    if (!a->scratch) {
        a->scratch_bytes = BATCH_SCRATCH_MIN;
        return;
    }
    size_t count = a->in.count[0];
    uint32_t rejected = 0;
    struct opt_vectors o = opt_spread(&a->of.params);
    struct weights_block block;
    struct weights_window window;
    window.in = &a->in;
    window.to = 0;
    window.end = a->in.starts[count];
    weights_fetch(&a->of, 0, WEIGHTS_AHEAD, count, true);
    for (size_t u = 0; u < count; u += 16) {
        weights_fetch(&a->of, u + WEIGHTS_AHEAD, u + WEIGHTS_AHEAD + 16, count, true);
        rejected += weights_gather(&block, &window, &a->of, u, count - u < 16 ? count - u : 16);
        if (block.n > 0)
            weights_step_kind(&block, &a->of, &o);
    }
    if (a->rejected != NULL)
        a->rejected[0] += rejected;
}
