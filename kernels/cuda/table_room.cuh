/*
 * How full a free table may be, as plain arithmetic: make_room does what is said here, and a test plays it
 * with many tables (tests/unit/kernels/tables/test_stash.cpp) to see how much goes to the stash: 16 rows at
 * most up to 4096 buckets, 75 of 11585. Played once: 357 of 36864 buckets, whose batches bring a million.
 */
#ifndef KERNELS_CUDA_TABLE_ROOM_CUH
#define KERNELS_CUDA_TABLE_ROOM_CUH

#include "kernels/cuda/table.cuh"

#include <math.h>

enum {
    ROOM_SPLITS_AHEAD = 16, /* a call of make_room, beyond what must be */
    ROOM_OFFERS = 1 << 14,  /* rows that it moves to their other bucket in one round, at most ... */
    ROOM_ROUNDS = 4,        /* ... and how often; rounds that had more to offer do not count */
    ROOM_AHEAD = 8,         /* times the rows that are to come that it sees ahead, at most */
};
static const double ROOM_LOAD_MOST = 0.95, ROOM_LOAD_AHEAD = 0.80, ROOM_NEW_ROWS_MORE = 1.25;

/* How many times a bucket that is not split yet gets what one of the average gets. */
static inline double room_preference(uint64_t buckets)
{
    return (double)buckets / (double)table_level(buckets);
}

/* Rows that `buckets` have no room for if `more` come; negative: room that is left. */
static inline double room_rows_over(uint64_t rows, uint64_t more, uint64_t buckets)
{
    return (double)rows + (double)more * room_preference(buckets) * ROOM_NEW_ROWS_MORE -
           ROOM_LOAD_MOST * GPU_BUCKET_SLOTS * (double)buckets;
}

/* How many more rows there is room for. */
static inline uint64_t room_rows_left(uint64_t rows, uint64_t buckets)
{
    const double left = -room_rows_over(rows, 0, buckets) / (room_preference(buckets) * ROOM_NEW_ROWS_MORE);
    return left > 0 ? (uint64_t)left : 0;
}

/* How many buckets a table that has `buckets` should have. */
static inline uint64_t room_buckets(uint64_t rows, uint64_t more, uint64_t buckets)
{
    uint64_t wanted = buckets;
    while (room_rows_over(rows, more, wanted) > 0)
        wanted++;
    for (int i = 0; i < ROOM_SPLITS_AHEAD; i++)
        if ((double)(rows + more) > ROOM_LOAD_AHEAD * GPU_BUCKET_SLOTS * (double)wanted)
            wanted++;
    return wanted;
}

/* Whether full buckets have to be looked for: by first choices alone, hardly any bucket gets full. */
static inline bool room_is_tight(uint64_t rows, uint64_t more, uint64_t buckets)
{
    const double busiest = (double)(rows + more) / (double)table_level(buckets);
    return busiest + 6 * sqrt(busiest) > GPU_BUCKET_SLOTS;
}

/* As many as a table may get before it is tight. */
static inline uint64_t room_rows_loose(uint64_t rows, uint64_t buckets)
{
    const double root = sqrt(9.0 + GPU_BUCKET_SLOTS) - 3; /* of busiest + 6 sqrt(busiest) = 128 */
    const double left = floor(root * root * (double)table_level(buckets)) - (double)rows - 1;
    return left > 0 ? (uint64_t)left : 0;
}

/* The two that room_rows_before is the higher one of: what the arrivals at the busiest buckets leave, and
 * what all have. */
static inline double room_rows_spare(uint64_t more, uint64_t buckets)
{
    const double arrivals = (double)more / (double)table_level(buckets);
    return GPU_BUCKET_SLOTS - ceil(arrivals + 4 * sqrt(arrivals) + 4);
}

static inline double room_rows_average(uint64_t rows, uint64_t buckets)
{
    return ceil((double)rows / (double)buckets) + 2;
}

/* For how many rows a tight table is evened out when `more` come: more of them, as long as that does not ask
 * for evener buckets than the rows there allow. */
static inline uint64_t room_rows_ahead(uint64_t rows, uint64_t more, uint64_t buckets)
{
    const uint64_t left = room_rows_left(rows, buckets);
    uint64_t ahead = more;
    while (2 * ahead <= ROOM_AHEAD * more && 2 * ahead <= left && more > 0 &&
           room_rows_spare(2 * ahead, buckets) >= room_rows_average(rows, buckets))
        ahead *= 2;
    return ahead;
}

/* Once there is room for `more`: how many may come, these among them, before somebody has to look again. */
static inline uint64_t room_rows_promised(uint64_t rows, uint64_t more, uint64_t buckets)
{
    const uint64_t left = room_rows_left(rows, buckets), loose = room_rows_loose(rows, buckets);
    if (room_rows_over(rows, more, buckets) > 0)
        return 0;
    if (room_is_tight(rows, more, buckets))
        return room_rows_ahead(rows, more, buckets);
    return left < loose ? left : loose;
}

/* What a bucket may have before `more` rows come: the arrivals at the busiest ones have to fit on top. */
static inline uint32_t room_rows_before(uint64_t rows, uint64_t more, uint64_t buckets)
{
    const double most = room_rows_spare(more, buckets), average = room_rows_average(rows, buckets);
    const double chosen = most > average ? most : average;
    return chosen < GPU_BUCKET_SLOTS - 2 ? (uint32_t)chosen : GPU_BUCKET_SLOTS - 2;
}

#endif
