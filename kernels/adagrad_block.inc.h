/*
 * AdaGrad with one accumulator for four weights (in FFM, a slice of one field's vector): the mean of their
 * squared gradients.
 *
 * Two forms of the step (optimizer_step.inc.h): weight by weight as the other optimizers, if l1, l2 or a
 * step_max that can be reached is given ("limited"); else the short form ("free").
 */

/* Limited form of at most sixteen weights. */
LANES_INLINE void block_vector(float *w, const float *g, float *state, v16 scale, size_t lanes,
                               const struct opt_vectors *o)
{
    float few[4] = {0};
    size_t groups = lanes / 4;
    if (groups < 4)
        memcpy(few, state, groups * sizeof(*few));
    v16 sum = v16_spread4(groups < 4 ? few : state), old = v16_load_n(w, lanes);
    v16_store_n(w, block_step(old, opt_gradient(old, v16_load_n(g, lanes), scale, o), &sum, o), lanes);
    v16_store_groups(groups < 4 ? few : state, sum);
    if (groups < 4)
        memcpy(state, few, groups * sizeof(*few));
}

/*
 * Limited form of an even number of whole vectors, up to eight: sixteen accumulators share one square root,
 * and the two roots' chains of dependent instructions overlap. The same arithmetic as block_vector.
 */
LANES_INLINE void block_vectors(float *w, const float *g, float *state, v16 scale, int vectors,
                                const struct opt_vectors *o)
{
    v16 grad[8], squares[8], rates[2];
    for (int v = 0; v < 8; v++) {
        squares[v] = v16_set1(0.0F);
        if (v >= vectors)
            continue;
        grad[v] = opt_gradient(v16_load(w + v * 16), v16_load(g + v * 16), scale, o);
        squares[v] = v16_mul(grad[v], grad[v]);
    }
    for (int half = 0; half * 4 < vectors; half++) {
        const v16 *four = squares + half * 4;
        size_t lanes = vectors - half * 4 >= 4 ? 16 : 8;
        v16 mean = v16_mul(v16_group_sums(four[0], four[1], four[2], four[3]), v16_set1(0.25F));
        v16 sum = v16_fma(v16_load_n(state + half * 16, lanes), o->decay, mean);
        v16_store_n(state + half * 16, sum, lanes);
        rates[half] = adagrad_rate(sum, o);
    }
    for (int v = 0; v < vectors; v++) {
        v16 rate = v16_group_pick(rates[v / 4], v % 4);
        v16_store(w + v * 16, opt_move(v16_load(w + v * 16), v16_mul(rate, grad[v]), rate, o));
    }
}

/* A row for the free form. mean: factor of its gradients' squares; rate: factor of its steps. */
struct block_row {
    float *w, *state;
    const float *g;
    v16 mean, rate;
};

LANES_INLINE struct block_row block_row(const struct opt_row *row, const struct opt_params *p)
{
    return (struct block_row){row->w, row->state, row->g, block_mean(row->scale), block_rate(row->scale, p)};
}

/* Updates the vector of weights at w, whose rates are lanes 4 v to 4 v + 3 of `rates`. */
LANES_INLINE void block_move(float *w, const float *g, v16 rates, int v, size_t lanes)
{
    v16 moved = block_free_move(v16_load_n(w, lanes), v16_load_n(g, lanes), v16_group_pick(rates, v));
    v16_store_n(w, moved, lanes);
}

/* Free form of one, two or four vectors; lanes may be below sixteen only for a single vector. */
LANES_INLINE void block_free(const struct block_row *row, size_t i, int vectors, size_t lanes,
                             const struct opt_vectors *o)
{
    v16 g[4];
    float *w = row->w + i, *state = row->state + i / 4;
    size_t sums = (size_t)(vectors - 1) * 4 + lanes / 4;
    for (int v = 0; v < 4; v++)
        g[v] = v < vectors ? v16_load_n(row->g + i + v * 16, lanes) : v16_set1(0.0F);
    v16 sum = v16_load_n(state, sums);
    v16 rates = block_free_rates(&sum, v16_group_squares(g[0], g[1], g[2], g[3]), row->mean, row->rate, o);
    v16_store_n(state, sum, sums);
    for (int v = 0; v < vectors; v++)
        block_move(w + v * 16, row->g + i + v * 16, rates, v, lanes);
}

/* Free form of two vectors of each of two rows: their sixteen accumulators share a square root. */
LANES_INLINE void block_free_halves(const struct block_row *a, const struct block_row *b, size_t i,
                                    const struct opt_vectors *o)
{
    v16 squares = v16_group_squares(v16_load(a->g + i), v16_load(a->g + i + 16), v16_load(b->g + i),
                                    v16_load(b->g + i + 16));
    v16 sum = v16_load_halves(a->state + i / 4, b->state + i / 4);
    v16 rates =
        block_free_rates(&sum, squares, v16_head(a->mean, b->mean, 8), v16_head(a->rate, b->rate, 8), o);
    v16_store_halves(a->state + i / 4, b->state + i / 4, sum);
    block_move(a->w + i, a->g + i, rates, 0, 16);
    block_move(a->w + i + 16, a->g + i + 16, rates, 1, 16);
    block_move(b->w + i, b->g + i, rates, 2, 16);
    block_move(b->w + i + 16, b->g + i + 16, rates, 3, 16);
}

/* Free form of the weights from i on. */
LANES_INLINE void block_free_rest(const struct block_row *row, size_t i, size_t d,
                                  const struct opt_vectors *o)
{
    for (; i + 32 <= d; i += 32)
        block_free(row, i, 2, 16, o);
    for (; i + 16 <= d; i += 16)
        block_free(row, i, 1, 16, o);
    if (i < d)
        block_free(row, i, 1, d - i, o);
}

LANES_INLINE void block_free_row(const struct opt_row *row, size_t d, const struct opt_params *p,
                                 const struct opt_vectors *o)
{
    struct block_row a = block_row(row, p);
    size_t i = 0;
    for (; i + 64 <= d; i += 64)
        block_free(&a, i, 4, 16, o);
    block_free_rest(&a, i, d, o);
}

LANES_INLINE void block_free_pair(const struct opt_row *rows, size_t d, const struct opt_params *p,
                                  const struct opt_vectors *o)
{
    struct block_row a = block_row(rows, p), b = block_row(rows + 1, p);
    size_t i = 0;
    for (; i + 64 <= d; i += 64) {
        block_free(&a, i, 4, 16, o);
        block_free(&b, i, 4, 16, o);
    }
    if (i + 32 <= d) {
        block_free_halves(&a, &b, i, o);
        i += 32;
    }
    block_free_rest(&a, i, d, o);
    block_free_rest(&b, i, d, o);
}

LANES_INLINE void block_row_limited(const struct opt_row *row, size_t d, const struct opt_vectors *o)
{
    float *w = row->w, *state = row->state;
    const float *g = row->g;
    v16 scale = v16_set1(row->scale);
    size_t i = 0;
    for (; i + 128 <= d; i += 128)
        block_vectors(w + i, g + i, state + i / 4, scale, 8, o);
    if (i + 96 <= d) { /* such as an FFM row of twelve fields */
        block_vectors(w + i, g + i, state + i / 4, scale, 6, o);
        i += 96;
    }
    for (; i + 32 <= d; i += 32)
        block_vectors(w + i, g + i, state + i / 4, scale, 2, o);
    for (; i < d; i += 16)
        block_vector(w + i, g + i, state + i / 4, scale, d - i < 16 ? d - i : 16, o);
}

static void opt_adagrad_block(const struct opt_row *rows, size_t n, size_t d, const struct opt_params *p)
{
    struct opt_vectors o = opt_spread(p);
    for (size_t r = 0; r < n; r++) {
        bool is_free = block_is_free(rows[r].scale, p);
        if (is_free && r + 1 < n && block_is_free(rows[r + 1].scale, p))
            block_free_pair(&rows[r++], d, p, &o);
        else if (is_free)
            block_free_row(&rows[r], d, p, &o);
        else
            block_row_limited(&rows[r], d, &o);
    }
}
