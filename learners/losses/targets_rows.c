/*
 * The gradients of a step's rows. A place is a vector (a target's query, a token's gradient, softmax's gradient of an
 * item) times a factor. Places are sorted by item, those of an item by window, by counting: the vectors' numbers and the
 * factors are written in that order, so that the kernels read them in sequence. The team takes ranges of items.
 *
 * Softmax makes the gradients of a tile of items at a time, into memory of the thread's own behind the tokens'
 * vectors; the tile's rows make their step before the next tile is begun, so that the gradients of all items need no
 * memory.
 */
#include "core/mem.h"
#include "learners/losses/internal.h"

enum { ROWS_ITEMS = 64 }; /* of a piece */

/* Places by item. */
struct places {
    struct targets *t;
    const struct targets_tokens *tokens; /* not NULL */
    uint32_t *starts, *bag;
    float *factors;
    bool has_tiles; /* each item's first place is its vector in a tile */
    float *out;     /* item_gradients; NULL: an update */
    enum opt_kind kind;
    const struct opt_params *params;
};

static const uint32_t *indices_of(const struct targets *t, uint32_t target)
{
    return (const uint32_t *)t->arrays[TARGETS_INDICES].at + (size_t)target * (1 + t->draws);
}

/* The index of the item of a target in place k behind the draws. */
static uint32_t other_of(const struct targets *t, uint32_t target, uint32_t k)
{
    return indices_of(t, k < target ? k : k + 1)[0];
}

static const float *scales_of(const struct targets *t, uint32_t target)
{
    return (const float *)t->arrays[TARGETS_SCALES].at + target * targets_stride(t);
}

static uint32_t token_index(const struct targets *t, uint32_t number)
{
    const uint32_t *index_of = t->arrays[TARGETS_INDEX_OF].at;
    leat_assert(number < t->numbers && index_of[number] != BATCH_NONE);
    return index_of[number];
}

/* Adds the places of each item to counts[u]. */
static void count_places(const struct places *p, uint32_t *counts)
{
    const struct targets *t = p->t;
    for (uint32_t i = 0; i < t->count && !t->o.loss->takes_all_items; i++) {
        const uint32_t *indices = indices_of(t, i);
        const float *scales = scales_of(t, i), *others = scales + 1 + t->draws;
        for (uint32_t k = 0; k <= t->draws; k++)
            counts[indices[k]] += scales[k] != 0.0F;
        for (uint32_t k = 0; k < t->others; k++)
            counts[other_of(t, i, k)] += others[k] != 0.0F;
    }
    for (uint32_t u = 0; u < t->items && p->has_tiles; u++)
        counts[u]++;
    for (uint32_t i = 0; i < p->tokens->n; i++)
        if (p->tokens->numbers[i] != BATCH_NONE)
            counts[token_index(t, p->tokens->numbers[i])]++;
}

/* Writes a place behind the others of its item; ends[u] is where. */
static inline void put(const struct places *p, uint32_t *ends, uint32_t u, uint32_t vector, float factor)
{
    uint32_t at = ends[u]++;
    p->bag[at] = vector, p->factors[at] = factor;
}

static inline void put_token(const struct places *p, uint32_t *ends, uint32_t token)
{
    uint32_t number = p->tokens->numbers[token];
    if (number != BATCH_NONE)
        put(p, ends, token_index(p->t, number), p->t->count + token, p->tokens->scale);
}

static void put_target(const struct places *p, uint32_t *ends, uint32_t i)
{
    const struct targets *t = p->t;
    const uint32_t *indices = indices_of(t, i);
    const float *scales = scales_of(t, i), *others = scales + 1 + t->draws;
    for (uint32_t k = 0; k <= t->draws; k++)
        if (scales[k] != 0.0F)
            put(p, ends, indices[k], i, scales[k]);
    for (uint32_t k = 0; k < t->others; k++)
        if (others[k] != 0.0F)
            put(p, ends, other_of(t, i, k), i, others[k]);
}

/* Writes the places of all items: of a window those of the targets, then those of the tokens. */
static void put_places(const struct places *p, uint32_t *ends, const struct targets_step *s)
{
    const struct targets *t = p->t;
    const struct targets_tokens *tokens = p->tokens;
    uint32_t token = 0;
    for (uint32_t u = 0; u < t->items && p->has_tiles; u++)
        put(p, ends, u, BATCH_NONE, 1.0F); /* the thread that makes the tile says where */
    for (uint32_t i = 0; i < t->count && !t->o.loss->takes_all_items; i++) {
        for (; token < tokens->n && tokens->windows[token] < s->windows[i]; token++)
            put_token(p, ends, token);
        put_target(p, ends, i);
    }
    for (; token < tokens->n; token++)
        put_token(p, ends, token);
}

/* 0, 1, 2 ..: places lie in order. */
static const uint32_t *order_of(struct targets *t, size_t places)
{
    uint32_t *order = targets_grow(t, TARGETS_ORDER, places, sizeof(*order));
    for (; t->order_count < places; t->order_count++)
        order[t->order_count] = (uint32_t)t->order_count;
    return order;
}

/* Sorts the places by item, and lays the tokens' vectors and room for two tiles behind the queries. */
static void sort_places(struct places *p, const struct targets_step *s)
{
    struct targets *t = p->t;
    const struct targets_tokens *tokens = p->tokens;
    size_t items = t->items, dim = t->o.dim, tiles = 0, places;
    leat_assert(t->judged == t->count);
    if (t->o.loss->takes_all_items) {
        tiles = (size_t)SHARE_THREADS * SOFTMAX_TILE;
        for (uint32_t i = 0; i < t->count; i++)
            p->has_tiles |= !s->is_rejected[i];
    }
    float *vectors = targets_grow(t, TARGETS_VECTORS, (t->count + tokens->n + tiles) * dim, sizeof(*vectors));
    if (tokens->n > 0)
        memcpy(vectors + t->count * dim, tokens->gradients, tokens->n * dim * sizeof(*vectors));
    t->softmax.queries = vectors;
    p->starts = targets_grow(t, TARGETS_STARTS, items + 2, sizeof(*p->starts));
    memset(p->starts, 0, (items + 2) * sizeof(*p->starts));
    count_places(p, p->starts + 2);
    for (size_t u = 2; u < items + 2; u++)
        p->starts[u] += p->starts[u - 1];
    places = p->starts[items + 1];
    p->bag = targets_grow(t, TARGETS_BAG, places, sizeof(*p->bag));
    p->factors = targets_grow(t, TARGETS_FACTORS, places, sizeof(*p->factors));
    order_of(t, places);
    put_places(p, p->starts + 1, s); /* starts[u + 1] goes from the start of u to its end */
}

/* The places of `count` items from `first` on. */
static struct batch_segments segments_of(const struct places *p, uint32_t first, const uint32_t *count)
{
    const struct targets *t = p->t;
    return (struct batch_segments){.grads = t->arrays[TARGETS_VECTORS].at,
                                   .bag = p->bag,
                                   .scales = p->factors,
                                   .order = t->arrays[TARGETS_ORDER].at,
                                   .starts = p->starts + first,
                                   .count = count,
                                   .n = MAX(p->starts[first + *count] - p->starts[first], *count),
                                   .d = t->o.dim};
}

/* The optimizer's step of the rows of items first .. end - 1, or their gradients. */
static void finish_items(const struct places *p, uint32_t first, uint32_t end, unsigned who)
{
    struct targets *t = p->t;
    struct targets_thread *thread = &t->threads[who];
    uint32_t count = end - first;
    if (p->out != NULL) {
        struct batch_segment_reduce reduce = {.in = segments_of(p, first, &count),
                                              .sums = p->out + (size_t)first * t->o.dim,
                                              .scratch = thread->scratch,
                                              .scratch_bytes = t->scratch_bytes};
        t->o.batch->segment_reduce(&reduce, NULL);
        return;
    }
    struct batch_update update = {.in = segments_of(p, first, &count),
                                  .rows = (void *const *)t->arrays[TARGETS_TAUGHT].at + first,
                                  .format = ROW_FP32,
                                  .kind = p->kind,
                                  .params = *p->params,
                                  .rejected = &thread->rejected,
                                  .scratch = thread->scratch,
                                  .scratch_bytes = t->scratch_bytes};
    t->o.batch->update(&update, NULL);
}

static void items_piece(void *of, uint32_t number, unsigned who)
{
    const struct places *p = of;
    uint32_t first = number * ROWS_ITEMS;
    finish_items(p, first, MIN(first + ROWS_ITEMS, p->t->items), who);
}

/* The index of the first item whose number is not below `number`, of items that rise. */
static uint32_t first_from(const struct targets *t, uint32_t number)
{
    const uint32_t *items = t->arrays[TARGETS_ITEMS].at;
    uint32_t low = 0, high = t->items;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (items[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void tile_piece(void *of, uint32_t tile, unsigned who)
{
    const struct places *p = of;
    struct targets *t = p->t;
    const uint32_t *items = t->arrays[TARGETS_ITEMS].at;
    uint32_t first = first_from(t, tile * SOFTMAX_TILE), end = first;
    uint32_t from = t->count + p->tokens->n + who * SOFTMAX_TILE; /* the tile's vectors */
    while (end < t->items && items[end] / SOFTMAX_TILE == tile)
        p->bag[p->starts[end]] = from + items[end] % SOFTMAX_TILE, end++;
    if (first == end)
        return;
    losses_softmax_items(&t->softmax, tile, tile + 1,
                         (float *)t->arrays[TARGETS_VECTORS].at + (size_t)from * t->o.dim,
                         t->threads[who].scratch);
    finish_items(p, first, end, who);
}

/* Does the work of all items. */
static void run(struct places *p)
{
    struct targets *t = p->t;
    for (unsigned who = 0; who < SHARE_THREADS; who++)
        t->threads[who].rejected = 0;
    if (p->has_tiles)
        share_run(t->o.team, losses_softmax_tiles(t->softmax.items), tile_piece, p);
    else
        share_run(t->o.team, (t->items + ROWS_ITEMS - 1) / ROWS_ITEMS, items_piece, p);
}

static const struct targets_tokens no_tokens = {.n = 0};

uint32_t targets_update(struct targets *t, const struct targets_step *s, const struct targets_tokens *tokens,
                        void *const *rows_of, enum opt_kind kind, const struct opt_params *params)
{
    struct places p = {
        .t = t, .tokens = tokens != NULL ? tokens : &no_tokens, .kind = kind, .params = params};
    sort_places(&p, s);
    void **taught = targets_grow(t, TARGETS_TAUGHT, t->items, sizeof(*taught));
    for (uint32_t u = 0; u < t->items; u++)
        taught[u] = p.starts[u + 1] > p.starts[u] ? rows_of[u] : NULL;
    run(&p);
    uint32_t rejected = 0;
    for (unsigned who = 0; who < SHARE_THREADS; who++)
        rejected += t->threads[who].rejected;
    return rejected;
}

void targets_item_gradients(struct targets *t, const struct targets_step *s, float *out)
{
    struct places p = {.t = t, .tokens = &no_tokens, .out = out};
    sort_places(&p, s);
    run(&p);
}
