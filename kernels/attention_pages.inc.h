/*
 * attention_softmax_pages and attention_silu_pages of attention_pages.h: one query at a time.
 *
 * In the tiles of attention_tile.inc.h lanes are queries, of which one alone would leave fifteen lanes idle. Here
 * lanes are keys while scores and weights are computed, for which a page's keys lie turned, and columns while values
 * are summed. Each number is the same chain of operations as there: a score is a chain of fma over d, an output a
 * chain over the keys, the sum of softmax a chain of additions over the keys, all scaled after each tile of
 * ATTENTION_KEYS keys.
 *
 * Ladder (AVX-512, one query): a block of attention_softmax_forward with that query alone; lanes as above, with keys
 * turned in the page; far memory fetched ahead, which gains most where pages are bf16. bench/kernels/README.md has the
 * times.
 */

enum { PAGES_OF_TILE = ATTENTION_KEYS / ATTENTION_PAGE };

/* A query of one head, and one tile of its keys. */
struct pages_tile {
    const struct attention_pages *a;
    size_t head, first, count; /* first: position of the tile's first key */
};

LANES_INLINE v16 pages_load(const void *page, size_t at, bool is_bf16)
{
    return is_bf16 ? v16_load_bf16((const uint16_t *)page + at, 16) : v16_load((const float *)page + at);
}

/*
 * Keys and values come from far memory, and each page is a stream of its own, of a few KiB: while the scores of a
 * tile are computed its values are fetched, and while values are summed the keys of the next tile.
 */
LANES_INLINE void pages_fetch(const void *page, size_t at, bool is_bf16)
{
    __builtin_prefetch((const char *)page + at * (is_bf16 ? sizeof(uint16_t) : sizeof(float)), 0, 3);
}

/* The scores of `pages` pages of keys, a constant; q[d]. */
LANES_INLINE void pages_scores_of(const struct pages_tile *t, size_t page, const float *q, float *scores,
                                  int pages, bool is_bf16)
{
    const void *const *of = t->a->pages + t->first / ATTENTION_PAGE + page;
    size_t d = t->a->d, at = t->a->from + t->head * d * ATTENTION_PAGE, column = 0;
    size_t width = t->a->heads * d, values = t->a->from + width * ATTENTION_PAGE + t->head * d;
    v16 sums[PAGES_OF_TILE];
#pragma GCC unroll 16
    for (int p = 0; p < pages; p++)
        sums[p] = v16_set1(0.0F);
    for (size_t i = 0; i < d; i++, at += ATTENTION_PAGE) {
        v16 one = v16_set1(q[i]);
#pragma GCC unroll 16
        for (int p = 0; p < pages; p++) {
            sums[p] = v16_fma(pages_load(of[p], at, is_bf16), one, sums[p]);
            pages_fetch(of[p], values + column, is_bf16);
        }
        column += 16;
        if (column == d)
            column = 0, values += width;
    }
#pragma GCC unroll 16
    for (int p = 0; p < pages; p++)
        v16_store(scores + (page + (size_t)p) * ATTENTION_PAGE, sums[p]);
}

LANES_INLINE void pages_scores_in(const struct pages_tile *t, const float *q, float *scores, bool is_bf16)
{
    size_t pages = (t->count + ATTENTION_PAGE - 1) / ATTENTION_PAGE, page = 0;
    if (pages == PAGES_OF_TILE) {
        pages_scores_of(t, 0, q, scores, PAGES_OF_TILE, is_bf16);
        return;
    }
    if (pages >= 2) {
        pages_scores_of(t, 0, q, scores, 2, is_bf16);
        page = 2;
    }
    if (page < pages)
        pages_scores_of(t, page, q, scores, 1, is_bf16);
}

/* scores[ATTENTION_KEYS]; those behind t->count, in whole pages, are meaningless. */
static void pages_scores(const struct pages_tile *t, const float *q, float *scores)
{
    if (t->a->is_bf16)
        pages_scores_in(t, q, scores, true);
    else
        pages_scores_in(t, q, scores, false);
}

/* sums[16 vectors] of columns from `column` on of the head: (begins ? 0 : sums) + the weights' sum of values. */
LANES_INLINE void pages_gather_of(const struct pages_tile *t, float *sums, size_t column,
                                  const float *weights, int vectors, bool is_bf16)
{
    const struct attention_pages *a = t->a;
    size_t width = (size_t)a->heads * a->d,
           values = a->from + width * ATTENTION_PAGE + t->head * a->d + column;
    size_t end = (size_t)a->first + a->queries;
    v16 all[4];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; v++)
        all[v] = t->first > 0 ? v16_load(sums + column + (size_t)v * 16) : v16_set1(0.0F);
    for (size_t from = 0; from < t->count; from += ATTENTION_PAGE) {
        size_t number = (t->first + from) / ATTENTION_PAGE, ahead = number + PAGES_OF_TILE;
        const void *page = a->pages[number], *next = a->pages[ahead * ATTENTION_PAGE < end ? ahead : number];
        size_t keys = a->from + (t->head * a->d + column / 16) * ATTENTION_PAGE;
        size_t rows = t->count - from < ATTENTION_PAGE ? t->count - from : ATTENTION_PAGE;
        for (size_t r = 0, at = values; r < rows; r++, at += width, keys += a->d) {
            v16 one = v16_set1(weights[from + r]);
#pragma GCC unroll 16
            for (int v = 0; v < vectors; v++) {
                all[v] = v16_fma(pages_load(page, at + (size_t)v * 16, is_bf16), one, all[v]);
                pages_fetch(next, keys + (size_t)v * ATTENTION_PAGE, is_bf16);
            }
        }
    }
#pragma GCC unroll 16
    for (int v = 0; v < vectors; v++)
        v16_store(sums + column + (size_t)v * 16, all[v]);
}

LANES_INLINE void pages_gather_in(const struct pages_tile *t, float *sums, const float *weights, bool is_bf16)
{
    size_t column = 0, d = t->a->d;
    for (; column + 64 <= d; column += 64)
        pages_gather_of(t, sums, column, weights, 4, is_bf16);
    if (column + 32 <= d) {
        pages_gather_of(t, sums, column, weights, 2, is_bf16);
        column += 32;
    }
    if (column < d)
        pages_gather_of(t, sums, column, weights, 1, is_bf16);
}

/* sums[d] of the head: set in the window's first tile, added to in the others. */
static void pages_gather(const struct pages_tile *t, float *sums, const float *weights)
{
    if (t->a->is_bf16)
        pages_gather_in(t, sums, weights, true);
    else
        pages_gather_in(t, sums, weights, false);
}

/* x *= by, as att_scale does. */
static void pages_scale(float *x, size_t d, float by)
{
    for (size_t i = 0; i < d; i += 16)
        v16_store(x + i, v16_fma(v16_load(x + i), v16_set1(by), v16_set1(0.0F)));
}

static float pages_exp2(float x)
{
    float some[16];
    v16_store(some, att_exp2(v16_set1(x)));
    return some[0];
}

/* The tile of the keys from `first` on that the query at position `at` sees; false: it sees none. */
static bool pages_next(struct pages_tile *t, size_t at)
{
    t->first += t->count;
    t->count = at + 1 - t->first < ATTENTION_KEYS ? at + 1 - t->first : ATTENTION_KEYS;
    return t->count > 0;
}

/* --- Softmax --- */

/* The largest of `most` and the scores of the tile; hides those that are meaningless. */
static float pages_most(const struct pages_tile *t, float *scores, float most)
{
    float some[16];
    v16 all = v16_set1(most);
    for (size_t j = t->count; j % ATTENTION_PAGE > 0; j++)
        scores[j] = ATT_HIDDEN;
    for (size_t j = 0; j < t->count; j += 16)
        all = v16_max(v16_load(scores + j), all);
    v16_store(some, all);
    for (size_t l = 0; l < 16; l++)
        most = some[l] > most ? some[l] : most;
    return most;
}

static void softmax_pages_head(const struct attention_pages *a, size_t head, size_t query)
{
    const float *q = a->q.at + query * a->q.stride + head * a->d;
    float *out = a->out.at + query * a->out.stride + head * a->d;
    float scaled[ATTENTION_DIM_MAX], scores[ATTENTION_KEYS], most = ATT_HIDDEN, sum = 0.0F;
    v16 scale = v16_set1(a->scale * 1.44269504F);
    for (size_t i = 0; i < a->d; i += 16)
        v16_store(scaled + i, v16_mul(v16_load(q + i), scale));
    for (struct pages_tile t = {.a = a, .head = head}; pages_next(&t, a->first + query);) {
        float before = most;
        pages_scores(&t, scaled, scores);
        most = pages_most(&t, scores, before);
        if (t.first > 0) {
            float by = pages_exp2(before - most);
            sum *= by;
            pages_scale(out, a->d, by);
        }
        for (size_t j = 0; j < t.count; j += 16)
            v16_store(scores + j, att_exp2(v16_sub(v16_load(scores + j), v16_set1(most))));
        for (size_t j = 0; j < t.count; j++)
            sum += scores[j];
        pages_gather(&t, out, scores);
    }
    pages_scale(out, a->d, 1.0F / sum);
}

static void attention_softmax_pages(const struct attention_pages *a)
{
    for (size_t query = 0; query < a->queries; query++)
        for (size_t head = 0; head < a->heads; head++)
            softmax_pages_head(a, head, query);
}

/* --- SiLU --- */

/* Adds the biases of the tile's keys, by whole vectors, to zeros. */
static void pages_bias(const struct pages_tile *t, size_t query, float *out)
{
    const struct attention_bias *bias = t->a->bias;
    size_t at = t->a->first + query;
    for (size_t j = 0; j < t->count; j += 16) {
        v16 sum = v16_set1(0.0F);
        uint32_t places[16];
        if (bias->positions != NULL) {
            for (size_t l = 0; l < 16; l++) {
                size_t distance = at - (t->first + j + l < at ? t->first + j + l : at);
                places[l] = (uint32_t)(distance < bias->positions_max ? distance : bias->positions_max);
            }
            sum = v16_gather(bias->positions + t->head * bias->positions_stride, places, 16);
        }
        if (bias->times != NULL) {
            uint32_t seconds[16], now = bias->query_seconds[query];
            size_t some = t->count - j < 16 ? t->count - j : 16;
            for (size_t l = 0; l < 16; l++)
                seconds[l] = now;
            memcpy(seconds, bias->key_seconds + t->first + j, some * sizeof(*seconds));
            for (size_t l = 0; l < 16; l++)
                places[l] = attention_time_bucket(now, seconds[l]);
            sum = v16_add(sum, v16_gather(bias->times + t->head * bias->times_stride, places, 16));
        }
        v16_store(out + j, sum);
    }
}

/* One tile of keys, for all heads. */
static void silu_pages_tile(struct pages_tile *t, size_t query)
{
    const struct attention_pages *a = t->a;
    const struct attention_bias *bias = a->bias;
    v16 scale = v16_set1(a->scale), weight = v16_set1(a->weight_scale);
    float weights[ATTENTION_KEYS], biases[ATTENTION_KEYS] = {0};
    bool is_shared = bias == NULL || (bias->positions_stride == 0 && bias->times_stride == 0);
    for (t->head = 0; t->head < a->heads; t->head++) {
        if (bias != NULL && (t->head == 0 || !is_shared))
            pages_bias(t, query, biases);
        pages_scores(t, a->q.at + query * a->q.stride + t->head * a->d, weights);
        for (size_t j = 0; j < t->count; j += 16) {
            v16 s = v16_fma(v16_load(weights + j), scale, v16_load(biases + j));
            v16_store(weights + j, v16_mul(v16_mul(s, weight), silu_gate(s)));
        }
        pages_gather(t, a->out.at + query * a->out.stride + t->head * a->d, weights);
    }
}

static void attention_silu_pages(const struct attention_pages *a)
{
    for (size_t query = 0; query < a->queries; query++) {
        for (struct pages_tile t = {.a = a}; pages_next(&t, a->first + query);)
            silu_pages_tile(&t, query);
        pages_scale(a->out.at + query * a->out.stride, (size_t)a->heads * a->d, 1.0F);
    }
}
