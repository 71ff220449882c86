/* Ranks by exact scores: all rows are read, in floats. */
#include "core/mem.h"
#include "learners/items/internal.h"

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
static void leave_out(const struct items_index *index, struct items_search *search, const float *query,
                      float score, const uint32_t *left_out, size_t n, struct items_above *above)
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
            count(above, score_of(index, query, row), score, UINT32_MAX);
    }
}

bool items_index_count_above(const struct items_index *index, struct items_search *search, const float *query,
                             float score, const uint32_t *left_out, size_t n, struct items_above *above)
{
    if (!items_are_in_range(query, index->options.dims))
        return false;
    *above = (struct items_above){0};
    items_search_rows(search, ITEMS_CHUNK);
    for (size_t c = 0; c < index->chunks_count; c++) {
        const struct items_chunk *chunk = index->chunks[c];
        size_t rows = 0;
        for (size_t i = 0; chunk != NULL && i < ITEMS_CHUNK; i++)
            if (items_is_live(chunk, i))
                search->rows[rows++] = chunk->rows + i * index->row_floats;
        index->options.kernels->dots(search->values, query, search->rows, rows, index->options.dims);
        for (size_t i = 0; i < rows; i++)
            count(above, search->values[i], score, 1);
    }
    leave_out(index, search, query, score, left_out, n, above);
    return true;
}

bool items_index_rank(const struct items_index *index, struct items_search *search, const float *query,
                      uint32_t number, const uint32_t *left_out, size_t n, double *rank)
{
    const float *row = items_index_row(index, number);
    if (row == NULL || !items_are_in_range(query, index->options.dims))
        return false;
    struct items_above above;
    float score = score_of(index, query, row);
    if (!items_index_count_above(index, search, query, score, left_out, n, &above))
        return false;
    bool is_left_out = false;
    for (size_t i = 0; i < n; i++)
        is_left_out |= left_out[i] == number;
    above.ties -= !is_left_out;
    *rank = 1.0 + (double)above.higher + (double)above.ties / 2.0;
    return true;
}
