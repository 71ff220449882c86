/*
 * attention_softmax_forward and attention_softmax_backward of attention.h: FlashAttention (Dao 2022) on the
 * tiles of attention_tile.inc.h. Scores are kept in base 2: q is scaled by scale * log2(e) while it is
 * turned, so a weight is 2^(s - max), without a product.
 *
 * Backward, by query i and key j, with delta_i = sum over d of dout_i out_i (algorithm 4, line 19):
 *   p = 2^(s - lse_i),  dp = mask * <dout_i, v_j>,  ds = p (dp - delta_i) scale
 *   dv_j += mask * p dout_i,  dq_i += ds k_j,  dk_j += ds q_i
 */

/* Turns the block's q, scaled for scores in base 2; in bf16, in which q alone is rounded, the scores are scaled. */
static void softmax_turn_q(const struct att_block *b, struct attention_in q)
{
    v16 scale = v16_set1(b->a->scale * ATT_LOG2E);
    att_turn(b, b->turned_q, q.at, q.stride);
    for (size_t i = 0; !b->is_bf16 && i < b->d * ATTENTION_QUERIES; i += 16) {
        if (i % ATTENTION_QUERIES < b->lanes)
            v16_store(b->turned_q + i, v16_mul(v16_load(b->turned_q + i), scale));
    }
}

static void softmax_scores(const struct att_block *b, const struct att_tile *t, struct attention_in k)
{
    v16 scale = v16_set1(b->a->scale * ATT_LOG2E);
    att_scores(b, t, b->weights, k, b->turned_q);
    for (size_t v = 0; b->is_bf16 && v * 16 < b->lanes; v++) {
        for (size_t j = 0; j < att_seen(t, v); j++) {
            float *s = b->weights + j * ATTENTION_QUERIES + v * 16;
            v16_store(s, v16_mul(v16_load(s), scale));
        }
    }
}

/* The score of key j of the tile for vector v, hidden where the key's position is behind the query's. */
LANES_INLINE v16 softmax_score(const struct att_block *b, const struct att_tile *t, size_t v, size_t j,
                               bool is_open, v16 at)
{
    v16 s = v16_load(b->weights + j * ATTENTION_QUERIES + v * 16);
    if (is_open)
        return s;
    return v16_add(s, v16_keep_gt(v16_set1(ATT_HIDDEN), v16_set1((float)(t->first + j)), at));
}

/* Running maximum and sum of a vector of queries; the sum's parts in bf16 (attention.h), else the first alone. */
enum { SOFTMAX_SUMS = 4 };
struct softmax_state {
    v16 most, sums[SOFTMAX_SUMS];
};

/* Scores of keys from..to become weights 2^(s - max), added to the sums, dropped and stored. splits: into four sums. */
LANES_INLINE void softmax_weigh(const struct att_block *b, const struct att_tile *t, size_t v, size_t from,
                                size_t to, v16 most, v16 *sums, bool is_open, bool drops, bool splits)
{
    v16 at = att_positions(b, v), behind = v16_add(at, v16_set1(1.0F));
    for (size_t j = from; j < to; j++) {
        v16 p = att_exp2(v16_sub(softmax_score(b, t, v, j, is_open, at), most));
        if (!is_open)
            p = v16_keep_gt(p, behind, v16_set1((float)(t->first + j)));
        size_t part = splits ? j / 2 % SOFTMAX_SUMS : 0;
        sums[part] = v16_add(sums[part], p);
        if (drops)
            p = v16_mul(p, att_drops(b, v, t->first + j));
        v16_store(b->weights + j * ATTENTION_QUERIES + v * 16, p);
    }
}

/* One vector's part of a tile: the new maximum, the weights, and the old sums scaled to the new maximum. */
LANES_INLINE void softmax_vector(const struct att_block *b, const struct att_tile *t, size_t v,
                                 struct softmax_state *state, bool drops, bool splits)
{
    size_t seen = att_seen(t, v), open = att_open(b, t, v);
    v16 at = att_positions(b, v), most = state->most;
    for (size_t j = 0; j < open; j++)
        most = v16_max(softmax_score(b, t, v, j, true, at), most);
    for (size_t j = open; j < seen; j++)
        most = v16_max(softmax_score(b, t, v, j, false, at), most);
    v16 sums[SOFTMAX_SUMS];
    size_t parts = splits ? SOFTMAX_SUMS : 1;
    for (size_t i = 0; i < parts; i++)
        sums[i] = state->sums[i];
    if (t->first > 0) {
        v16 by = att_exp2(v16_sub(state->most, most));
        for (size_t i = 0; i < parts; i++)
            sums[i] = v16_mul(sums[i], by);
        att_scale(b, b->sums, v, by);
    }
    softmax_weigh(b, t, v, 0, open, most, sums, true, drops, splits);
    softmax_weigh(b, t, v, open, seen, most, sums, false, drops, splits);
    for (size_t i = 0; i < parts; i++)
        state->sums[i] = sums[i];
    state->most = most;
}

/* A tile's weights, of all vectors. */
static void softmax_tile(const struct att_block *b, const struct att_tile *t, struct softmax_state states[2])
{
    for (size_t v = 0; v * 16 < b->lanes; v++) {
        if (b->is_bf16)
            softmax_vector(b, t, v, &states[v], b->limit > 0, true);
        else if (b->limit > 0)
            softmax_vector(b, t, v, &states[v], true, false);
        else
            softmax_vector(b, t, v, &states[v], false, false);
    }
    att_round_weights(b, t, b->weights);
}

static v16 softmax_sum(const struct att_block *b, const struct softmax_state *s)
{
    return b->is_bf16 ? v16_add(v16_add(s->sums[0], s->sums[1]), v16_add(s->sums[2], s->sums[3]))
                      : s->sums[0];
}

static void softmax_forward_block(struct att_block *b)
{
    const struct attention *a = b->a;
    struct softmax_state states[2];
    for (size_t v = 0; v < 2; v++) {
        states[v].most = v16_set1(ATT_HIDDEN);
        for (size_t i = 0; i < SOFTMAX_SUMS; i++)
            states[v].sums[i] = v16_set1(0.0F);
    }
    softmax_turn_q(b, att_operand(b, b->q, a->q.stride, b->queries, b->rounded_q));
    for (struct att_tile t = {0}; att_next(b, &t);) {
        softmax_scores(b, &t, att_keys(b, &t, b->k, a->k.stride, b->rounded_k));
        softmax_tile(b, &t, states);
        att_gather(b, &t, b->sums, att_keys(b, &t, b->v, a->v.stride, b->rounded_v), b->weights);
    }
    size_t rows = a->query_offsets != NULL ? a->query_offsets[a->events] : a->offsets[a->events];
    for (size_t v = 0; v * 16 < b->lanes; v++) {
        v16 sum = softmax_sum(b, &states[v]);
        att_scale(b, b->sums, v, v16_div(v16_set1(1.0F), sum));
        size_t some = b->queries - v * 16 < 16 ? b->queries - v * 16 : 16;
        if (a->lse != NULL)
            v16_store_n(a->lse + b->head * rows + b->row + v * 16, v16_add(states[v].most, softmax_log2(sum)),
                        some);
    }
    att_turn_back(b, a->out.at + b->row * a->out.stride + b->head * b->d, a->out.stride, b->sums);
}

static void attention_softmax_forward(const struct attention *a)
{
    struct att_block b;
    att_begin(&b, a);
    att_each(&b, 0, a->heads, true, softmax_forward_block);
}

/* The sum over d of dout * out, by query. */
static v16 softmax_delta(const struct att_block *b, size_t v)
{
    v16 sum = v16_set1(0.0F);
    for (size_t i = 0; i < b->d; i++) {
        size_t at = i * ATTENTION_QUERIES + v * 16;
        sum = v16_fma(v16_load(b->turned_dout + at), v16_load(b->turned_out + at), sum);
    }
    return sum;
}

/* Scores become weights, and the gradients by the weights, in slopes, become those by q k. */
LANES_INLINE void softmax_slopes(const struct att_block *b, const struct att_tile *t, size_t v, size_t from,
                                 size_t to, v16 lse, v16 delta, bool is_open, bool drops)
{
    v16 at = att_positions(b, v), behind = v16_add(at, v16_set1(1.0F)), scale = v16_set1(b->a->scale);
    for (size_t j = from; j < to; j++) {
        float *w = b->weights + j * ATTENTION_QUERIES + v * 16;
        float *slope = b->slopes + j * ATTENTION_QUERIES + v * 16;
        v16 p = att_exp2(v16_sub(softmax_score(b, t, v, j, is_open, at), lse)), dp = v16_load(slope);
        if (!is_open)
            p = v16_keep_gt(p, behind, v16_set1((float)(t->first + j)));
        v16 dropped = p;
        if (drops) {
            v16 factors = att_drops(b, v, t->first + j);
            dropped = v16_mul(p, factors);
            dp = v16_mul(dp, factors);
        }
        v16_store(w, dropped);
        v16_store(slope, v16_mul(v16_mul(p, scale), v16_sub(dp, delta)));
    }
}

LANES_INLINE void softmax_slopes_vector(const struct att_block *b, const struct att_tile *t, size_t v,
                                        v16 lse, v16 delta, bool drops)
{
    size_t seen = att_seen(t, v), open = att_open(b, t, v);
    softmax_slopes(b, t, v, 0, open, lse, delta, true, drops);
    softmax_slopes(b, t, v, open, seen, lse, delta, false, drops);
}

static void softmax_backward_block(struct att_block *b)
{
    const struct attention *a = b->a;
    size_t column = b->head * b->d, rows = a->offsets[a->events];
    struct attention_in q = att_operand(b, b->q, a->q.stride, b->queries, b->rounded_q);
    struct attention_in dout = att_operand(b, a->dout.at + b->row * a->dout.stride + column, a->dout.stride,
                                           b->queries, b->rounded_dout);
    float *dk = a->dk.at + b->key_row * a->dk.stride + column;
    float *dv = a->dv.at + b->key_row * a->dv.stride + column;
    v16 lse[2], delta[2];
    att_prepare_backward(b);
    softmax_turn_q(b, q);
    att_turn(b, b->turned_dout, dout.at, dout.stride);
    att_turn(b, b->turned_out, a->out.at + b->row * a->out.stride + column, a->out.stride);
    for (size_t v = 0; v * 16 < b->lanes; v++) {
        const float *from = a->lse + b->head * rows + b->row;
        float some[16];
        for (size_t l = 0; l < 16; l++)
            some[l] = from[v * 16 + l < b->queries ? v * 16 + l : b->queries - 1];
        lse[v] = v16_load(some);
        delta[v] = softmax_delta(b, v);
    }
    for (struct att_tile t = {0}; att_next(b, &t);) {
        struct attention_in k = att_keys(b, &t, b->k, a->k.stride, b->rounded_k);
        softmax_scores(b, &t, k);
        att_scores(b, &t, b->slopes, att_keys(b, &t, b->v, a->v.stride, b->rounded_v), b->turned_dout);
        for (size_t v = 0; v * 16 < b->lanes; v++) {
            if (b->limit > 0)
                softmax_slopes_vector(b, &t, v, lse[v], delta[v], true);
            else
                softmax_slopes_vector(b, &t, v, lse[v], delta[v], false);
        }
        att_round_weights(b, &t, b->weights);
        att_round_weights(b, &t, b->slopes);
        att_gather(b, &t, b->sums, k, b->slopes);
        att_spread(b, &t, dv, a->dv.stride, b->weights, dout);
        att_spread(b, &t, dk, a->dk.stride, b->slopes, q);
    }
    att_turn_back(b, a->dq.at + b->row * a->dq.stride + column, a->dq.stride, b->sums);
}

static void attention_softmax_backward(const struct attention *a)
{
    struct att_block b;
    att_begin(&b, a);
    att_each(&b, 0, a->heads, true, softmax_backward_block);
}
