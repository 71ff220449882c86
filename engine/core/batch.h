/* Batches: up to BATCH_ROWS rows in columns. Streams are passed on batch by batch.
 *
 * A batch is built by one thread and immutable afterwards; it is shared by counting references, so that a
 * lane can hand it to others without copying. A derived batch (batch_derive) shares its parent's columns by
 * pointer, adds or drops some, and has a selection of its own. Physical rows keep their index through filters
 * and added columns: row 17 of a derived batch is row 17 of its parent, whether or not it is selected.
 *
 * Selection: `selected` row indices in `sel`, rising; sel == NULL means every row, in order. Only selected
 * rows have defined values in derived columns; the columns a decoder wrote are defined (perhaps null) for all
 * rows.
 *
 * Null: bit i of `valid` is 0; valid == NULL means no nulls. The data under a null is zero where a decoder or
 * an expression wrote it, so that kernels may read it. */
#ifndef LEAT_CORE_BATCH_H
#define LEAT_CORE_BATCH_H

#include "core/schema.h"

enum { BATCH_ROWS = 1024, BATCH_VALID_WORDS = BATCH_ROWS / 64, BATCH_PARENTS_MAX = 2 };

struct text_ref {
    uint32_t offset, length; /* bytes from column.heap */
};

struct list_ref {
    uint32_t offset, length; /* range of rows in the children's columns */
};

struct column {
    enum type_tag tag;
    uint32_t children_count; /* TYPE_LIST: 1 for a list of values, else the record's fields */
    uint64_t *valid;         /* NULL: no nulls */
    union {
        uint8_t *bools; /* 0 or 1 */
        int64_t *ints;  /* TYPE_INT, TYPE_TIME */
        double *floats;
        struct text_ref *texts; /* TYPE_TEXT, TYPE_BYTES */
        struct list_ref *lists;
        void *data;
    };
    const char *heap;        /* TYPE_TEXT, TYPE_BYTES */
    struct column *children; /* TYPE_LIST: columns of child_rows rows, which may exceed BATCH_ROWS */
    uint32_t child_rows;
};

/* Where a row comes from. partition: index over all partitions of all sources of
 * the job (source_partition.id). */
struct row_origin {
    uint32_t partition;
    uint64_t record; /* record number within the partition, from 0 */
};

enum { PARTITION_NONE = UINT32_MAX };

/* `unnest` shifts row_order.sub by so many bits, and puts the element's index there. */
enum { ROW_ORDER_ELEMENT_BITS = 20 };

/* The place of a row in the order of its micro-batch's rows, the same whatever the number of lanes. Fields
 * are compared in this order: place, time, partition, tie, sub. Rows that a source read: place 0, time = the
 * row's order time, tie = record number. Rows that a timer made: place = 1 + the operator's place in the
 * plan, time = deadline or window end, tie = the key's hash. sub: index among rows made from one row, or by
 * timers of equal time and tie. depth: how many lists the row is an element of (`unnest`); compared last. No two rows of a
 * micro-batch are equal in all fields: an exchange may send them to different lanes, and the next exchange merges
 * them by this order. */
struct row_order {
    uint16_t place;
    uint16_t depth;
    uint32_t partition; /* compared after time */
    int64_t time;
    uint64_t tie;
    uint64_t sub;
};

int row_order_compare(const struct row_order *a, const struct row_order *b);
/* The order of rows of two inputs of one operator, where 0 stands for "that of the lower input first". Elements of a list
 * (`unnest`) have the place of the row that the list was in, for they became known with it: if the other input's row is
 * that row, or one of the same record, neither is before the other. Otherwise as row_order_compare. */
int row_order_compare_inputs(const struct row_order *a, const struct row_order *b);

/* The order of the next row that an operator's timers make. last: the caller's copy of the order of the row
 * before, which the call updates; the caller zeroes it when a micro-batch begins. Rows of equal time and tie
 * must be made one after the other. */
static inline struct row_order row_order_of_timer(struct row_order *last, uint32_t place, int64_t time,
                                                  uint64_t tie)
{
    bool is_equal = last->place == place && last->time == time && last->tie == tie;
    *last = (struct row_order){
        .place = (uint16_t)place, .time = time, .tie = tie, .sub = is_equal ? last->sub + 1 : 0};
    return *last;
}

struct batch {
    const struct schema *schema;
    uint32_t rows; /* physical, <= BATCH_ROWS */
    uint32_t selected;
    const uint16_t *sel;
    struct column *columns; /* schema->count of them */
    int64_t *event_time;    /* rows; microseconds */
    int64_t *arrival_time;  /* rows; NULL if the source has no arrival times */
    int64_t *order_time;    /* rows; the time the sequencer merges by; NULL in rows that were not read
                               from a source */
    uint32_t partition;     /* of the rows, where origins == NULL; PARTITION_NONE: none */
    uint64_t first_record;  /* record number of physical row 0, where origins == NULL */
    const struct row_origin *origins; /* rows; NULL: row i is record first_record + i of `partition` */
    const struct row_order *orders;   /* rows; NULL: by order_time, partition, record */

    struct arena arena; /* memory that belongs to this batch alone */
    /* Batches whose memory this batch uses; it holds a reference to each. NULL: none. */
    struct batch *parents[BATCH_PARENTS_MAX];
    struct batch_pool *pool;
    uint32_t references; /* number of references; atomic */
    struct batch *next;  /* link of a list, for the list's owner */
};

/* Recycles batches with their memory. Free batches keep memory up to the budget; memory beyond the budget
 * goes back to the system, so that a burst of batches does not occupy it for ever. Any thread. */
struct batch_pool;
struct batch_pool *batch_pool_new(void);
void batch_pool_free(struct batch_pool *pool);
/* Sets the bytes that free batches may keep, 32 MiB by default. Call before the first batch. */
void batch_pool_set_budget(struct batch_pool *pool, size_t bytes);
/* Bytes that free batches keep. */
size_t batch_pool_kept_bytes(const struct batch_pool *pool);
/* The number of batches that are still referenced. */
size_t batch_pool_alive(const struct batch_pool *pool);

/* A new batch of `rows` physical rows, all selected, with one reference. The columns' data (for texts and
 * lists only the refs) and event_time are allocated but NOT zeroed; `valid` is NULL. */
struct batch *batch_new(struct batch_pool *pool, const struct schema *schema, uint32_t rows);
/* A view of the parent's rows with another schema. `columns` is allocated for the schema; its first
 * MIN(schema->count, parent's count) entries are the parent's columns. The view holds a reference of its own
 * to the parent. */
struct batch *batch_derive(struct batch *parent, const struct schema *schema);
/* Adds a reference. */
void batch_hold(struct batch *batch);
/* Gives one reference back; NULL is allowed. */
void batch_release(struct batch *batch);

/* Bytes of memory that the batch and its parents hold, texts included; those that it shares with other batches, too. */
size_t batch_held_bytes(const struct batch *batch);

/* Allocates data for one column in the batch's arena (not zeroed) and sets `valid` to NULL. */
void batch_column_init(struct batch *batch, struct column *column, struct type type, uint32_t rows);
/* A bitmap with all `rows` bits set, in the batch's arena; clear bits for nulls. */
uint64_t *batch_valid_new(struct batch *batch, uint32_t rows);

/* Physical index of the i-th selected row. */
static inline uint32_t batch_row(const struct batch *batch, uint32_t i)
{
    return batch->sel == NULL ? i : batch->sel[i];
}

static inline bool column_is_valid(const struct column *column, uint32_t row)
{
    return column->valid == NULL || bit_get(column->valid, row);
}

static inline struct str column_text(const struct column *column, uint32_t row)
{
    return (struct str){column->heap + column->texts[row].offset, column->texts[row].length};
}

/* Marks a row null; allocates the bitmap on first use. */
void batch_set_null(struct batch *batch, struct column *column, uint32_t row);

/* Sets the record numbers of a batch whose rows are all of one partition: numbers[row], rising; numbers NULL:
 * first + row. */
void batch_number(struct batch *batch, uint64_t first, const int64_t *numbers);
struct row_origin batch_origin(const struct batch *batch, uint32_t row);
struct row_order batch_order(const struct batch *batch, uint32_t row);

/* Copies rows of several batches of one schema into a new dense batch: row i is physical row rows[i] of
 * sources[i]. count: at most BATCH_ROWS. Keeps event time, arrival time, origin and order. */
struct batch *batch_gather(struct batch_pool *pool, const struct schema *schema, struct batch *const *sources,
                           const uint16_t *rows, uint32_t count);

/* Like batch_gather, but the result may be a view: where all sources are views of one batch and `rows` rises
 * (rows that were split over lanes come together again), only the columns that lanes added are copied. */
struct batch *batch_merge(struct batch_pool *pool, const struct schema *schema, struct batch *const *sources,
                          const uint16_t *rows, uint32_t count);

/* Whether both batches are views of one batch, so that row i of either is the same row. */
bool batch_are_same_rows(const struct batch *a, const struct batch *b);
/* Unites views of the same rows into one view, whose rows rise. from[k]: index, among the selected rows of
 * views[k], of the first row to take. NULL: a row is in several views, there are more than 16 views, or the
 * views differ in a list column. */
struct batch *batch_unite(struct batch *const *views, const uint32_t *from, uint32_t count);

/* xxh3-128 over event times, values, lengths and nulls of the selected rows, column by column; for
 * tests, the `null` sink and benchmarks. Add batch after batch; where the rows are split into batches
 * does not matter. */
struct batch_digest;
struct batch_digest *batch_digest_new(void);
void batch_digest_add(struct batch_digest *digest, const struct batch *batch);
/* 32 hex digits and a terminator. */
void batch_digest_hex(const struct batch_digest *digest, char hex[33]);
/* For checkpoints. save: appends the digest's state to `out`. load: replaces the digest's state by a saved
 * one; false: the bytes are invalid. */
struct byte_buffer;
void batch_digest_save(const struct batch_digest *digest, struct byte_buffer *out);
bool batch_digest_load(struct batch_digest *digest, const char *data, size_t bytes);
void batch_digest_free(struct batch_digest *digest);

#endif
