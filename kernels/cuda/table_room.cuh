/*
 * How full a free table may be: plain arithmetic, used by make_room and by a test that simulates many tables
 * (tests/unit/kernels/tables/test_stash.cpp) and checks how many rows go to the stash: at most 16 rows with
 * up to 4096 buckets, 75 with 11585. A simulation of 36864 buckets with batches of a million rows gave 357.
 */
#ifndef LEAT_KERNELS_CUDA_TABLE_ROOM_CUH
#define LEAT_KERNELS_CUDA_TABLE_ROOM_CUH

#include "kernels/cuda/table.cuh"

#include <math.h>

enum {
    ROOM_SPLITS_AHEAD = 16, /* buckets split in a call of make_room beyond the necessary ones */
    ROOM_OFFERS = 1 << 14,  /* most rows that a round moves to their other bucket */
    ROOM_ROUNDS = 4,        /* most rounds per call, not counting those with more than ROOM_OFFERS rows */
    ROOM_AHEAD = 8,         /* largest factor of `more` that a tight table is evened out for */
};
static const double ROOM_LOAD_MOST = 0.95, ROOM_LOAD_AHEAD = 0.80, ROOM_NEW_ROWS_MORE = 1.25;

/* The factor by which an unsplit bucket gets more new rows than an average bucket. */
static inline double room_preference(uint64_t buckets)
{
    return (double)buckets / (double)table_level(buckets);
}

/* Estimates how many rows do not fit if `more` rows are added to a table of `rows` rows and `buckets`
 * buckets; negative: how many slots are left. */
static inline double room_rows_over(uint64_t rows, uint64_t more, uint64_t buckets)
{
    return (double)rows + (double)more * room_preference(buckets) * ROOM_NEW_ROWS_MORE -
           ROOM_LOAD_MOST * GPU_BUCKET_SLOTS * (double)buckets;
}

/* How many more rows fit. */
static inline uint64_t room_rows_left(uint64_t rows, uint64_t buckets)
{
    const double left = -room_rows_over(rows, 0, buckets) / (room_preference(buckets) * ROOM_NEW_ROWS_MORE);
    return left > 0 ? (uint64_t)left : 0;
}

/* The number of buckets that a table with `buckets` buckets should have. */
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

/* Whether make_room has to look for full buckets. If not, hardly any bucket gets full, even if each row goes
 * to its first bucket. */
static inline bool room_is_tight(uint64_t rows, uint64_t more, uint64_t buckets)
{
    const double busiest = (double)(rows + more) / (double)table_level(buckets);
    return busiest + 6 * sqrt(busiest) > GPU_BUCKET_SLOTS;
}

/* The number of rows that may be added before the table gets tight. */
static inline uint64_t room_rows_loose(uint64_t rows, uint64_t buckets)
{
    const double root = sqrt(9.0 + GPU_BUCKET_SLOTS) - 3; /* solves busiest + 6 sqrt(busiest) = 128 */
    const double left = floor(root * root * (double)table_level(buckets)) - (double)rows - 1;
    return left > 0 ? (uint64_t)left : 0;
}

/* room_rows_before is the higher of two numbers: room_rows_spare, the slots that the arrivals at the busiest
 * buckets leave, and room_rows_average, the rows of an average bucket and 2 more. */
static inline double room_rows_spare(uint64_t more, uint64_t buckets)
{
    const double arrivals = (double)more / (double)table_level(buckets);
    return GPU_BUCKET_SLOTS - ceil(arrivals + 4 * sqrt(arrivals) + 4);
}

static inline double room_rows_average(uint64_t rows, uint64_t buckets)
{
    return ceil((double)rows / (double)buckets) + 2;
}

/* The number of rows to make room for when `more` rows are added to a tight table: `more`, doubled while
 * twice the number still fits, does not require evener buckets than the present rows allow, and is at most
 * ROOM_AHEAD * more. */
static inline uint64_t room_rows_ahead(uint64_t rows, uint64_t more, uint64_t buckets)
{
    const uint64_t left = room_rows_left(rows, buckets);
    uint64_t ahead = more;
    while (2 * ahead <= ROOM_AHEAD * more && 2 * ahead <= left && more > 0 &&
           room_rows_spare(2 * ahead, buckets) >= room_rows_average(rows, buckets))
        ahead *= 2;
    return ahead;
}

/* The number of rows, `more` included, that may be added after make_room has made room for `more` rows,
 * before it must be called again. */
static inline uint64_t room_rows_promised(uint64_t rows, uint64_t more, uint64_t buckets)
{
    const uint64_t left = room_rows_left(rows, buckets), loose = room_rows_loose(rows, buckets);
    if (room_rows_over(rows, more, buckets) > 0)
        return 0;
    if (room_is_tight(rows, more, buckets))
        return room_rows_ahead(rows, more, buckets);
    return left < loose ? left : loose;
}

/* The most rows that make_room leaves in a bucket before `more` rows are added, so that the new rows of
 * the busiest buckets fit, too. */
static inline uint32_t room_rows_before(uint64_t rows, uint64_t more, uint64_t buckets)
{
    const double most = room_rows_spare(more, buckets), average = room_rows_average(rows, buckets);
    const double chosen = most > average ? most : average;
    return chosen < GPU_BUCKET_SLOTS - 2 ? (uint32_t)chosen : GPU_BUCKET_SLOTS - 2;
}

#endif
