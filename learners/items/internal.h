/* The layout of the exact index, for index.c, search.c and rank.c. */
#ifndef LEAT_LEARNERS_ITEMS_INTERNAL_H
#define LEAT_LEARNERS_ITEMS_INTERNAL_H

#include "learners/items/index.h"

enum { ITEMS_CHUNK_BLOCKS = ITEMS_CHUNK / INT8_BLOCK };

/* ITEMS_CHUNK items, in one piece of memory. */
struct items_chunk {
    _Alignas(64) float *scales; /* [ITEMS_CHUNK] of int8_quantize; NaN: the item is not there */
    float *rows;                /* [ITEMS_CHUNK][row_floats] */
    uint8_t *blocks;            /* [ITEMS_CHUNK_BLOCKS] of block_bytes */
    uint32_t live;
};

struct items_index {
    struct items_index_options options;
    size_t block_bytes, row_floats;
    struct items_chunk **chunks; /* [chunks_room]; NULL: no item of it came yet */
    size_t chunks_count, chunks_room, chunks_made, live;
};

static inline bool items_is_live(const struct items_chunk *chunk, size_t at)
{
    return chunk->scales[at] == chunk->scales[at]; /* not NaN */
}

/* Whether all of n floats are within ITEMS_VALUE_MAX. */
bool items_are_in_range(const float *x, size_t n);

/* The memory of a search; kept from one to the next. */
struct items_search {
    int8_t query_bytes[ITEMS_QUERIES_MAX][INT8_DIMS_MAX]; /* packed: [count][4 * int8_groups(dims)] */
    int32_t starts[ITEMS_QUERIES_MAX];
    int32_t *scores; /* of all queries, for one piece of a chunk */
    uint32_t found[ITEMS_CHUNK];
    /* Candidates of each query, [count][keys_each]: items_key of approximate scores. */
    uint64_t *keys;
    size_t keys_room, counts[ITEMS_QUERIES_MAX];
    float least[ITEMS_QUERIES_MAX]; /* approximate score that a candidate must exceed */
    /* Rows whose exact scores are computed, and the scores. */
    const float **rows;
    float *values;
    size_t rows_room;
    uint64_t *left_out; /* sorted */
    size_t left_out_room;
};

/* Sorts in place; libc's qsort allocates. */
void items_sort(uint64_t *keys, size_t n);

/* Room for the exact scores of n rows. */
void items_search_rows(struct items_search *search, size_t n);

#endif
