/*
 * attention_silu_forward and attention_silu_backward of attention.h: HSTU's pointwise attention (Zhai 2024, eq.
 * 2) on the tiles of attention_tile.inc.h. Without a maximum and a sum over keys a tile's weights are final.
 *
 * Backward, by query i and key j, with s = scale q k + bias and g = 1 / (1 + e^-s):
 *   a = s g weight_scale,  da = mask * <dout_i, v_j>,  ds = da weight_scale g (1 + s (1 - g))
 *   dv_j += mask * a dout_i,  dq_i += ds scale k_j,  dk_j += ds scale q_i,  dbias += ds
 *
 * A vector of queries and one key need sixteen neighbours of the table of positions, which are loaded and
 * added to as they lie; and sixteen buckets of time, whose gradients go to sums by bucket and lane, so that
 * lanes never meet, and are added up when the head is done.
 */

/* Seconds of a block's queries; lanes behind the last query repeat it. */
static void silu_seconds(const struct att_block *b, uint32_t seconds[ATTENTION_QUERIES])
{
    const struct attention_bias *bias = b->a->bias;
    for (size_t l = 0; l < b->lanes && bias->times != NULL; l++)
        seconds[l] = bias->query_seconds[b->row + (l < b->queries ? l : b->queries - 1)];
}

/* Offset in the table of positions of the bias of query position i and key position j. */
static ptrdiff_t silu_distance(const struct attention *a, size_t i, size_t j)
{
    ptrdiff_t most = (ptrdiff_t)a->bias->positions_max, distance = (ptrdiff_t)i - (ptrdiff_t)j;
    ptrdiff_t least = a->is_causal ? 0 : -most;
    return distance < least ? least : distance > most ? most : distance;
}

/* Whether the distances of sixteen queries, the first at position i, to the key at j are entries in a row. */
static bool silu_is_run(const struct attention *a, size_t i, size_t j)
{
    return silu_distance(a, i, j) + 15 == silu_distance(a, i + 15, j) &&
           silu_distance(a, i, j) == (ptrdiff_t)i - (ptrdiff_t)j;
}

static v16 silu_bias(const struct att_block *b, size_t v, size_t j, const uint32_t *seconds)
{
    const struct attention *a = b->a;
    const struct attention_bias *bias = a->bias;
    v16 sum = v16_set1(0.0F);
    if (bias->positions != NULL) {
        const float *table = bias->positions + b->head * bias->positions_stride;
        size_t i = b->at + v * 16;
        float some[16];
        if (silu_is_run(a, i, j)) {
            sum = v16_load(table + silu_distance(a, i, j));
        } else {
            for (size_t l = 0; l < 16; l++)
                some[l] = table[silu_distance(a, i + l, j)];
            sum = v16_load(some);
        }
    }
    if (bias->times != NULL) {
        uint32_t buckets[16], key = bias->key_seconds[b->key_row + j];
        for (size_t l = 0; l < 16; l++)
            buckets[l] = attention_time_bucket(seconds[v * 16 + l], key);
        sum = v16_add(sum, v16_gather(bias->times + b->head * bias->times_stride, buckets, 16));
    }
    return sum;
}

/* Lanes that are queries and see the key at position j: x, else 0. */
LANES_INLINE v16 silu_visible(const struct att_block *b, size_t j, v16 at, v16 x)
{
    v16 end = v16_set1((float)(b->at + b->queries));
    x = v16_keep_gt(x, end, at);
    return b->a->is_causal ? v16_keep_gt(x, v16_add(at, v16_set1(1.0F)), v16_set1((float)j)) : x;
}

/* Products q k of vector v become weights. */
static void silu_weigh(const struct att_block *b, const struct att_tile *t, size_t v, const uint32_t *seconds)
{
    const struct attention *a = b->a;
    v16 at = att_positions(b, v), scale = v16_set1(a->scale), weight = v16_set1(a->weight_scale);
    for (size_t j = 0; j < att_seen(t, v); j++) {
        float *w = b->weights + j * ATTENTION_QUERIES + v * 16;
        v16 zero = v16_set1(0.0F), bias = a->bias != NULL ? silu_bias(b, v, t->first + j, seconds) : zero;
        v16 s = v16_fma(v16_load(w), scale, bias);
        v16 x = v16_mul(v16_mul(s, weight), silu_gate(s));
        if (b->limit > 0)
            x = v16_mul(x, att_drops(b, v, t->first + j));
        v16_store(w, silu_visible(b, t->first + j, at, x));
    }
}

static void silu_forward_block(struct att_block *b)
{
    const struct attention *a = b->a;
    uint32_t seconds[ATTENTION_QUERIES];
    if (a->bias != NULL)
        silu_seconds(b, seconds);
    struct attention_in q = att_operand(b, b->q, a->q.stride, b->queries, b->rounded_q);
    att_turn(b, b->turned_q, q.at, q.stride);
    for (struct att_tile t = {0}; att_next(b, &t);) {
        att_scores(b, &t, b->weights, att_keys(b, &t, b->k, a->k.stride, b->rounded_k), b->turned_q);
        for (size_t v = 0; v * 16 < b->lanes; v++)
            silu_weigh(b, &t, v, seconds);
        att_round_weights(b, &t, b->weights);
        att_gather(b, &t, b->sums, att_keys(b, &t, b->v, a->v.stride, b->rounded_v), b->weights);
    }
    for (size_t v = 0; v * 16 < b->lanes; v++)
        att_scale(b, b->sums, v, v16_set1(1.0F));
    att_turn_back(b, a->out.at + b->row * a->out.stride + b->head * b->d, a->out.stride, b->sums);
}

static void attention_silu_forward(const struct attention *a)
{
    struct att_block b;
    att_begin(&b, a);
    att_each(&b, 0, a->heads, true, silu_forward_block);
}

/* Adds a vector's gradients by the bias. Those of lanes that are no queries, or do not see the key, are 0. */
static void silu_bias_slopes(const struct att_block *b, size_t v, size_t j, const uint32_t *seconds, v16 ds)
{
    const struct attention *a = b->a;
    const struct attention_bias *bias = a->bias;
    float some[16];
    v16_store(some, ds);
    if (bias->positions != NULL) {
        float *table = bias->dpositions + b->head * bias->positions_stride;
        size_t i = b->at + v * 16;
        if (silu_is_run(a, i, j)) {
            float *run = table + silu_distance(a, i, j);
            v16_store(run, v16_add(v16_load(run), ds));
        } else {
            for (size_t l = 0; l < 16; l++)
                table[silu_distance(a, i + l, j)] += some[l];
        }
    }
    if (bias->times != NULL) {
        uint32_t key = bias->key_seconds[b->key_row + j];
        for (size_t l = 0; l < 16; l++)
            b->time_sums[attention_time_bucket(seconds[v * 16 + l], key) * 16 + l] += some[l];
    }
}

/* Products q k become weights, and the gradients by the weights, in slopes, become those by q k. */
static void silu_slopes(const struct att_block *b, const struct att_tile *t, size_t v,
                        const uint32_t *seconds)
{
    const struct attention *a = b->a;
    v16 at = att_positions(b, v), scale = v16_set1(a->scale), weight = v16_set1(a->weight_scale);
    v16 one = v16_set1(1.0F);
    for (size_t j = 0; j < att_seen(t, v); j++) {
        size_t position = t->first + j;
        float *w = b->weights + j * ATTENTION_QUERIES + v * 16;
        float *slope = b->slopes + j * ATTENTION_QUERIES + v * 16;
        v16 bias = a->bias != NULL ? silu_bias(b, v, position, seconds) : v16_set1(0.0F);
        v16 s = v16_fma(v16_load(w), scale, bias), gate = silu_gate(s);
        v16 x = v16_mul(v16_mul(s, weight), gate), dx = v16_mul(v16_load(slope), weight);
        if (b->limit > 0) {
            v16 factors = att_drops(b, v, position);
            x = v16_mul(x, factors);
            dx = v16_mul(dx, factors);
        }
        v16 ds = v16_mul(v16_mul(dx, gate), v16_fma(s, v16_sub(one, gate), one));
        ds = silu_visible(b, position, at, ds);
        v16_store(w, silu_visible(b, position, at, x));
        v16_store(slope, v16_mul(ds, scale));
        if (a->bias != NULL)
            silu_bias_slopes(b, v, position, seconds, ds);
    }
}

static void silu_backward_block(struct att_block *b)
{
    const struct attention *a = b->a;
    size_t column = b->head * b->d;
    struct attention_in q = att_operand(b, b->q, a->q.stride, b->queries, b->rounded_q);
    struct attention_in dout = att_operand(b, a->dout.at + b->row * a->dout.stride + column, a->dout.stride,
                                           b->queries, b->rounded_dout);
    float *dk = a->dk.at + b->key_row * a->dk.stride + column;
    float *dv = a->dv.at + b->key_row * a->dv.stride + column;
    uint32_t seconds[ATTENTION_QUERIES];
    if (a->bias != NULL)
        silu_seconds(b, seconds);
    att_prepare_backward(b);
    att_turn(b, b->turned_q, q.at, q.stride);
    att_turn(b, b->turned_dout, dout.at, dout.stride);
    for (struct att_tile t = {0}; att_next(b, &t);) {
        struct attention_in k = att_keys(b, &t, b->k, a->k.stride, b->rounded_k);
        att_scores(b, &t, b->weights, k, b->turned_q);
        att_scores(b, &t, b->slopes, att_keys(b, &t, b->v, a->v.stride, b->rounded_v), b->turned_dout);
        for (size_t v = 0; v * 16 < b->lanes; v++)
            silu_slopes(b, &t, v, seconds);
        att_round_weights(b, &t, b->weights);
        att_round_weights(b, &t, b->slopes);
        att_gather(b, &t, b->sums, k, b->slopes);
        att_spread(b, &t, dv, a->dv.stride, b->weights, dout);
        att_spread(b, &t, dk, a->dk.stride, b->slopes, q);
    }
    att_turn_back(b, a->dq.at + b->row * a->dq.stride + column, a->dq.stride, b->sums);
}

static void attention_silu_backward(const struct attention *a)
{
    struct att_block b;
    const struct attention_bias *bias = a->bias;
    bool has_times = bias != NULL && bias->times != NULL;
    size_t floats = (size_t)ATTENTION_TIME_BUCKETS * 16;
    for (size_t head = 0; head < a->heads; head++) {
        att_begin(&b, a);
        memset(b.time_sums, 0, floats * sizeof(float));
        att_each(&b, head, head + 1, false, silu_backward_block);
        for (size_t i = 0; has_times && i < ATTENTION_TIME_BUCKETS; i++)
            bias->dtimes[head * bias->times_stride + i] += v16_sum(v16_load(b.time_sums + i * 16));
    }
}
