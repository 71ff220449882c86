/* Ranks by exact scores: all rows are read, in floats. A chunk of rows is compared with all queries of a call while it
 * lies in the cache. */
#include "core/mem.h"
#include "learners/items/internal.h"

/* A query of a call, and its counts. */
struct asked {
    const float *query;
    float score;
    struct items_above *above;
};

/* Adds an item of this score to the counts, or with -1 takes it away. */
static void count(struct items_above *above, float of, float score, uint32_t by)
{
    above->higher += of > score ? by : 0;
    above->ties += of == score ? by : 0;
}

static float score_of(const struct items_index *index, const float *query, const float *row)
{
    return index->options.kernels->dot(query, row, index->options.dims);
}

/* Takes the items of the list, each once, out of the counts. */
static void leave_out(const struct items_index *index, struct items_search *search, const struct asked *a,
                      const uint32_t *left_out, size_t n)
{
    if (n > search->left_out_room) {
        search->left_out_room = n;
        search->left_out = mem_realloc(search->left_out, n * sizeof(*search->left_out));
    }
    for (size_t i = 0; i < n; i++)
        search->left_out[i] = left_out[i];
    items_sort(search->left_out, n);
    for (size_t i = 0; i < n; i++) {
        const float *row = items_index_row(index, (uint32_t)search->left_out[i]);
        if (row != NULL && (i == 0 || search->left_out[i] != search->left_out[i - 1]))
            count(a->above, score_of(index, a->query, row), a->score, UINT32_MAX);
    }
}

/* Counts all items, for each query. */
static void count_all(const struct items_index *index, struct items_search *search, const struct asked *asked,
                      size_t queries)
{
    const struct kernels *k = index->options.kernels;
    items_search_rows(search, ITEMS_CHUNK);
    for (size_t c = 0; c < index->chunks_count; c++) {
        const struct items_chunk *chunk = index->chunks[c];
        size_t rows = 0;
        for (size_t i = 0; chunk != NULL && i < ITEMS_CHUNK; i++)
            if (items_is_live(chunk, i))
                search->rows[rows++] = chunk->rows + i * index->row_floats;
        for (size_t q = 0; q < queries; q++) {
            k->dots(search->values, asked[q].query, search->rows, rows, index->options.dims);
            for (size_t i = 0; i < rows; i++)
                count(asked[q].above, search->values[i], asked[q].score, 1);
        }
    }
}

bool items_index_count_above(const struct items_index *index, struct items_search *search, const float *query,
                             float score, const uint32_t *left_out, size_t n, struct items_above *above)
{
    struct asked asked = {query, score, above};
    if (!items_are_in_range(query, index->options.dims))
        return false;
    *above = (struct items_above){0};
    count_all(index, search, &asked, 1);
    leave_out(index, search, &asked, left_out, n);
    return true;
}

void items_index_ranks(const struct items_index *index, struct items_search *search,
                       struct items_ranked *ranked, size_t queries)
{
    struct asked asked[ITEMS_QUERIES_MAX] = {{0}};
    struct items_above above[ITEMS_QUERIES_MAX] = {{0}};
    size_t n = 0;
    leat_assert(queries <= ITEMS_QUERIES_MAX);
    for (size_t q = 0; q < queries; q++) {
        struct items_ranked *r = &ranked[q];
        const float *row = items_index_row(index, r->number);
        r->has_rank = row != NULL && items_are_in_range(r->query, index->options.dims);
        if (r->has_rank)
            asked[n] = (struct asked){r->query, score_of(index, r->query, row), &above[n]}, n++;
    }
    count_all(index, search, asked, n);
    for (size_t q = 0, at = 0; q < queries; q++) {
        struct items_ranked *r = &ranked[q];
        if (!r->has_rank)
            continue;
        bool is_left_out = false;
        leave_out(index, search, &asked[at], r->left_out, r->left_out_count);
        for (size_t i = 0; i < r->left_out_count; i++)
            is_left_out |= r->left_out[i] == r->number;
        above[at].ties -= !is_left_out;
        r->rank = 1.0 + (double)above[at].higher + (double)above[at].ties / 2.0;
        at++;
    }
}

bool items_index_rank(const struct items_index *index, struct items_search *search, const float *query,
                      uint32_t number, const uint32_t *left_out, size_t n, double *rank)
{
    struct items_ranked r = {.query = query, .number = number, .left_out = left_out, .left_out_count = n};
    items_index_ranks(index, search, &r, 1);
    if (r.has_rank)
        *rank = r.rank;
    return r.has_rank;
}
