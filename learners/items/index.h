/*
 * The exact index: the k items whose rows have the largest products with a query, out of all items; and ranks.
 * An item is its dense number (numbers.h).
 *
 * A search scans all live items in signed bytes (kernels/int8_scan.h), which is a quarter of the floats'
 * memory, keeps the best overfetch * k + ITEMS_SPARE of them by (approximate score, then lower number), and
 * computes these scores again in floats, in one fixed order of sums (the kernel dot). The answer is ordered by
 * score, larger first, then by number. It misses an item only where the bytes' error moved that item below all
 * of these candidates; every score in it is exact. The error is largest where one value of a row is far above
 * its others; a row or query whose values are all below 1e-36 counts as zeros in the scan. Equal bits by every
 * variant of the kernels.
 *
 * Rows lie in chunks of ITEMS_CHUNK numbers that never move; a chunk is made when its first row comes, and
 * holds 5 d + 4 bytes a number (d: dims, rounded up to four).
 *
 * One thread owns an index, and changes it (put, remove). Between changes any number of threads may search,
 * each with an items_search of its own. Nothing is allocated in a search, but the first time that it needs
 * more room.
 */
#ifndef LEAT_LEARNERS_ITEMS_INDEX_H
#define LEAT_LEARNERS_ITEMS_INDEX_H

#include "core/base.h"
#include "kernels/kernels.h"

enum {
    ITEMS_CHUNK = 1024,
    ITEMS_TOP_MAX = 4096, /* largest k */
    ITEMS_OVERFETCH_MAX = 16,
    ITEMS_SPARE = 32,       /* candidates beyond overfetch * k, for a small k */
    ITEMS_QUERIES_MAX = 64, /* queries of one search */
};
/* Largest |x| of a row or a query: the sum of 256 products is still finite. */
#define ITEMS_VALUE_MAX 1e18F

struct items_index_options {
    const struct kernels *kernels;
    uint32_t dims;        /* 1..INT8_DIMS_MAX */
    uint32_t numbers_max; /* numbers are below it; 1..ITEMS_NUMBERS_MAX */
    uint32_t overfetch;   /* 1..ITEMS_OVERFETCH_MAX; 0: as 2 */
};

struct items_index;
struct items_search;

/* An item of an answer. */
struct items_scored {
    uint32_t number;
    float score;
};

/* The caller frees the results; the free functions take NULL. A search belongs to one thread at a time, and to
 * no index. */
struct items_index *items_index_create(const struct items_index_options *options);
void items_index_free(struct items_index *index);
struct items_search *items_search_create(void);
void items_search_free(struct items_search *search);

/* Adds an item, or replaces its row; `row` has `dims` floats, which are copied. Returns false, and changes
 * nothing, if one of them is not within ITEMS_VALUE_MAX: NaN, infinite or too large. */
bool items_index_put(struct items_index *index, uint32_t number, const float *row) LEAT_CHECKED;

/* Removes an item: from here on no search returns it. Returns false if it was not there. */
bool items_index_remove(struct items_index *index, uint32_t number);

/* The item's row; NULL if it is not there. Valid until the item is put again or removed. */
const float *items_index_row(const struct items_index *index, uint32_t number);

/* Items in the index; bytes of memory, without those of searches. */
size_t items_index_live(const struct items_index *index);
size_t items_index_bytes(const struct items_index *index);

/*
 * The best k items for each of `count` queries. queries: [count][dims]; count in 0..ITEMS_QUERIES_MAX, k in
 * 1..ITEMS_TOP_MAX. top: [count][k], best first. Returns how many each query got: k, or all live items if
 * they are fewer; the rest of its part of `top` is not written. A query does not depend on its neighbours.
 * Returns SIZE_MAX, and writes nothing, if a query has a value that is not within ITEMS_VALUE_MAX.
 */
size_t items_index_top(const struct items_index *index, struct items_search *search, const float *queries,
                       size_t count, size_t k, struct items_scored *top) LEAT_CHECKED;

/* Items that score more than a given score, and as much as it. */
struct items_above {
    uint32_t higher, ties;
};

/*
 * Counts all items but those in `left_out`, by exact scores: it reads the floats of all rows. left_out: any n
 * numbers in any order; repeated ones and items that are not there count once and not at all. Returns false,
 * and counts nothing, if the query has a value that is not within ITEMS_VALUE_MAX.
 */
bool items_index_count_above(const struct items_index *index, struct items_search *search, const float *query,
                             float score, const uint32_t *left_out, size_t n,
                             struct items_above *above) LEAT_CHECKED;

/*
 * The rank of an item among all items but those in `left_out`: 1 + items that score higher + half of the ties.
 * The item itself is no tie, and counts as there even if it is in `left_out`. Returns false, and no rank, if
 * the item is not in the index (a miss) or the query has a value that is not within ITEMS_VALUE_MAX.
 */
bool items_index_rank(const struct items_index *index, struct items_search *search, const float *query,
                      uint32_t number, const uint32_t *left_out, size_t n, double *rank) LEAT_CHECKED;

/* Likewise for `count` queries, at most ITEMS_QUERIES_MAX, in less time than one after the other: rows are read once for
 * all. has_rank, rank: results. */
struct items_ranked {
    const float *query;
    uint32_t number;
    const uint32_t *left_out; /* [left_out_count] */
    size_t left_out_count;
    bool has_rank;
    double rank;
};
void items_index_ranks(const struct items_index *index, struct items_search *search,
                       struct items_ranked *ranked, size_t count);

#endif
