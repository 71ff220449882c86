/*
 * The best items of one query or of several.
 *
 * A candidate is a 64-bit key whose order is the order of answers: score, larger first, then number. The scan
 * goes through items by number, a piece of a chunk at a time: scores of all queries as integers, then for each
 * query the items above its threshold. When a query has more keys than CANDIDATES_FULL times what it needs, the
 * least keys are selected, and the last of them is the new threshold. A later item with just that score would
 * have a higher number than all keys kept, so `above` is the right test. A chunk of items in random order gives
 * ever fewer keys: of n items, some needed * log(n / needed).
 */
#include "core/mem.h"
#include "learners/items/internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum {
    PIECE_BLOCKS = 32, /* blocks of a piece: scores of 64 queries take 128 KiB */
    PIECE = PIECE_BLOCKS * INT8_BLOCK,
    CANDIDATES_FULL = 3,
};
static_assert(ITEMS_CHUNK_BLOCKS % PIECE_BLOCKS == 0, "a chunk is whole pieces");
static_assert((int)ITEMS_QUERIES_MAX == (int)INT8_QUERIES_MAX,
              "a search is one call of the kernel for each piece");

struct items_search *items_search_create(void)
{
    struct items_search *search = mem_calloc(1, sizeof(*search));
    search->scores = mem_aligned(64, (size_t)ITEMS_QUERIES_MAX * PIECE * sizeof(*search->scores));
    return search;
}

void items_search_free(struct items_search *search)
{
    if (search == NULL)
        return;
    free(search->scores);
    free(search->keys);
    free(search->rows);
    free(search->values);
    free(search->left_out);
    free(search);
}

void items_search_rows(struct items_search *search, size_t n)
{
    if (n <= search->rows_room)
        return;
    search->rows_room = n;
    search->rows = mem_realloc(search->rows, n * sizeof(const float *));
    search->values = mem_realloc(search->values, n * sizeof(*search->values));
}

/* --- Keys --- */

/* Keys are ordered as (score, larger first; number). -0 and 0 are the same score. */
static uint64_t key_of(float score, uint32_t number)
{
    float without_sign = score + 0.0F; /* -0 + 0 = 0 */
    uint32_t bits;
    memcpy(&bits, &without_sign, sizeof(bits));
    uint32_t rising = bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
    return (uint64_t)~rising << 32 | number;
}

static float score_of(uint64_t key)
{
    uint32_t rising = ~(uint32_t)(key >> 32);
    uint32_t bits = rising >> 31 != 0 ? rising & 0x7fffffffU : ~rising;
    float score;
    memcpy(&score, &bits, sizeof(score));
    return score;
}

/* The bit from which a byte of the keys tells them apart: the bits above that byte are the same in all. */
static unsigned digit_of(const uint64_t *keys, size_t n)
{
    uint64_t differ = 1;
    for (size_t i = 1; i < n; i++)
        differ |= keys[i] ^ keys[0];
    unsigned top = 63U - (unsigned)__builtin_clzll(differ);
    return top > 7 ? top - 7 : 0;
}

/* Moves the `needed` least of n distinct keys to the front, in any order: by the byte that tells most, what is
 * below the byte of the last one stays, what is above goes, what is equal is looked at again. */
static void keep_least(uint64_t *keys, size_t n, size_t needed)
{
    while (n > needed && needed > 0) {
        uint32_t counts[256] = {0};
        unsigned digit = digit_of(keys, n), last = 0;
        for (size_t i = 0; i < n; i++)
            counts[keys[i] >> digit & 255]++;
        size_t below = 0;
        for (; below + counts[last] < needed; last++)
            below += counts[last];
        size_t front = 0, equal = 0; /* equal keys gather behind the front */
        for (size_t i = 0; i < n; i++) {
            unsigned byte = keys[i] >> digit & 255;
            if (byte > last)
                continue;
            uint64_t key = keys[i];
            if (byte == last) {
                keys[front + equal++] = key;
            } else {
                keys[front + equal] = keys[front];
                keys[front++] = key;
            }
        }
        keys += front, needed -= front, n = equal;
    }
}

/* Moves keys[at] down to its place in a heap of n keys, whose root is the greatest. */
static void sift(uint64_t *keys, size_t n, size_t at)
{
    uint64_t key = keys[at];
    for (size_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        child += child + 1 < n && keys[child + 1] > keys[child];
        if (keys[child] <= key)
            break;
        keys[at] = keys[child];
        at = child;
    }
    keys[at] = key;
}

void items_sort(uint64_t *keys, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift(keys, n, i);
    for (size_t last = n; last-- > 1;) {
        uint64_t greatest = keys[0];
        keys[0] = keys[last];
        keys[last] = greatest;
        sift(keys, last, 0);
    }
}

/* --- The scan --- */

struct scan {
    const struct items_index *index;
    struct items_search *search;
    struct int8_queries queries;
    size_t needed;    /* candidates of a query */
    size_t keys_each; /* room for keys of a query */
};

/* Keeps the best keys of a query; the last of them is its threshold. */
static void narrow(struct scan *s, size_t query)
{
    uint64_t *keys = s->search->keys + query * s->keys_each, worst = 0;
    if (s->search->counts[query] <= s->needed)
        return;
    keep_least(keys, s->search->counts[query], s->needed);
    s->search->counts[query] = s->needed;
    for (size_t i = 0; i < s->needed; i++)
        worst = keys[i] > worst ? keys[i] : worst;
    s->search->least[query] = score_of(worst);
}

/* Adds the items of a piece that are above the query's threshold to its keys. */
static void gather(struct scan *s, size_t query, const float *scales, uint32_t number)
{
    struct items_search *search = s->search;
    const int32_t *scores = search->scores + query * PIECE;
    size_t found = s->index->options.kernels->int8_above(search->found, scores, scales, search->least[query],
                                                         PIECE_BLOCKS);
    uint64_t *keys = search->keys + query * s->keys_each + search->counts[query];
    for (size_t i = 0; i < found; i++) {
        uint32_t at = search->found[i];
        keys[i] = key_of((float)scores[at] * scales[at], number + at);
    }
    search->counts[query] += found;
    if (search->counts[query] > CANDIDATES_FULL * s->needed)
        narrow(s, query);
}

static void scan_all(struct scan *s)
{
    const struct items_index *index = s->index;
    for (size_t c = 0; c < index->chunks_count; c++) {
        const struct items_chunk *chunk = index->chunks[c];
        if (chunk == NULL || chunk->live == 0)
            continue;
        for (size_t at = 0; at < ITEMS_CHUNK; at += PIECE) {
            index->options.kernels->int8_scores(s->search->scores,
                                                chunk->blocks + at / INT8_BLOCK * index->block_bytes,
                                                &s->queries, PIECE_BLOCKS, index->options.dims);
            for (size_t q = 0; q < s->queries.count; q++)
                gather(s, q, chunk->scales + at, (uint32_t)(c * ITEMS_CHUNK + at));
        }
    }
}

/* Prepares the queries' bytes. A query's scale is left out: it changes no order. */
static void begin(struct scan *s, const float *queries, size_t count)
{
    struct items_search *search = s->search;
    size_t dims = s->index->options.dims, bytes = 4 * int8_groups(dims);
    int8_t *out = search->query_bytes[0];
    for (size_t q = 0; q < count; q++, out += bytes, queries += dims) {
        s->index->options.kernels->int8_quantize(out, queries, dims);
        search->starts[q] = int8_start(out, dims);
        search->counts[q] = 0;
        search->least[q] = -INFINITY;
    }
    s->queries = (struct int8_queries){search->query_bytes[0], search->starts, count, false};
    s->keys_each = CANDIDATES_FULL * s->needed + PIECE;
    if (search->keys_room < count * s->keys_each) {
        search->keys_room = count * s->keys_each;
        search->keys = mem_realloc(search->keys, search->keys_room * sizeof(*search->keys));
    }
    items_search_rows(search, s->needed);
}

/* The exact scores of a query's candidates, and the best k of them. */
static void finish(struct scan *s, size_t query, const float *floats, size_t k, struct items_scored *top)
{
    struct items_search *search = s->search;
    narrow(s, query);
    uint64_t *keys = search->keys + query * s->keys_each;
    size_t count = search->counts[query];
    for (size_t i = 0; i < count; i++)
        search->rows[i] = items_index_row(s->index, (uint32_t)keys[i]);
    s->index->options.kernels->dots(search->values, floats, search->rows, count, s->index->options.dims);
    for (size_t i = 0; i < count; i++)
        keys[i] = key_of(search->values[i], (uint32_t)keys[i]);
    keep_least(keys, count, k);
    items_sort(keys, k);
    for (size_t i = 0; i < k; i++)
        top[i] = (struct items_scored){(uint32_t)keys[i], score_of(keys[i])};
}

size_t items_index_top(const struct items_index *index, struct items_search *search, const float *queries,
                       size_t count, size_t k, struct items_scored *top)
{
    leat_assert(count <= ITEMS_QUERIES_MAX && k > 0 && k <= ITEMS_TOP_MAX);
    size_t dims = index->options.dims;
    if (!items_are_in_range(queries, count * dims))
        return SIZE_MAX;
    struct scan s = {.index = index, .search = search, .needed = index->options.overfetch * k + ITEMS_SPARE};
    size_t found = MIN(k, index->live);
    begin(&s, queries, count);
    scan_all(&s);
    for (size_t q = 0; q < count; q++)
        finish(&s, q, queries + q * dims, found, top + q * k);
    return found;
}
