/* Private to the operators of libraries: an instance, and the rows that it makes. */
#ifndef LEAT_OPERATORS_USER_MAKING_H
#define LEAT_OPERATORS_USER_MAKING_H

#include "operators/rows/codec.h"
#include "operators/user/user.h"

/* Rows made from one input row are ordered by their position among these, which is stored in the lowest
 * USER_SUB_SHIFT bits of row_order.sub. Input rows whose `sub` has no room for more bits are rejected. */
enum { USER_SUB_SHIFT = 16 };

/* A row that is being made. */
struct pending {
    bool is_open;
    bool is_set[USER_COLUMNS_MAX];
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct str text;
    } values[USER_COLUMNS_MAX];
};

/* A row made in on_watermark: row `row` of the batch timed[batch]. */
struct timer_row {
    int64_t time;
    uint64_t tie;
    uint32_t batch, row;
};

/* The state of an instance during a call. */
struct making {
    struct batch *input; /* dense rows; NULL in on_watermark */
    struct batch *values;
    struct column_builder builders[USER_COLUMNS_MAX];
    uint16_t rows[BATCH_ROWS]; /* for each row made: its input row */
    uint64_t subs[BATCH_ROWS]; /* for each row made: its position among those of its input row */
    uint64_t last_sub;
    uint32_t last_row;
    uint32_t count;
    struct pending pending;
    uint64_t seen[BATCH_VALID_WORDS], dead[BATCH_VALID_WORDS]; /* input rows: with a row made; rejected */
    struct batch **timed;                                      /* batches made in on_watermark; malloc'd */
    uint32_t timed_count;
    struct timer_row *timers;
    uint32_t timers_count;
};

struct user_head {
    const struct user_library *library;
    const struct leat_operator *op;
    struct operator_context *context; /* set during a call */
    struct leat_context api;
    struct making *making;
    bool keeps_input, is_open;
    uint64_t reads[BIT_WORDS(SCHEMA_FIELDS_MAX)]; /* input columns that the library is shown */
    int *keys;
    uint32_t keys_count;
    const struct schema *added; /* the columns that the library makes */
};

/* emit.c. user_fill_context sets the functions of leat_context. user_flush and user_emit_timers emit the rows
 * left when `process` or `on_watermark` has returned. */
void user_fill_context(struct leat_context *api);
void user_flush(struct user_head *head);
void user_emit_timers(struct user_head *head);

#endif
