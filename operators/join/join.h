/* Inside the join: shared by its files. join.c says how the join works. */
#ifndef LEAT_OPERATORS_JOIN_JOIN_H
#define LEAT_OPERATORS_JOIN_JOIN_H

#include "operators/hot_keys.h"
#include "operators/join/joined.h"
#include "operators/keys.h"
#include "operators/rows/ordering.h"
#include "operators/window/windows.h"

enum join_kind { JOIN_INNER, JOIN_LEFT, JOIN_ANTI, JOIN_SEMI };
enum join_take { JOIN_ALL, JOIN_FIRST, JOIN_LAST, JOIN_BEST };
enum join_unique { JOIN_UNIQUE_RIGHT = 1, JOIN_UNIQUE_LEFT = 2 };

struct join_block;

struct join {
    struct name_ref stream;
    struct expressions on;
    struct expression within, over;
    int64_t offset_us;
    struct str zone;
    int kind, take;
    struct expressions order;
    int unique;
    struct str prefix;
    /* Made by bind. [0]: left, [1]: right. */
    const struct schema *inputs[2], *late;
    struct columns on_columns[2];
    int *keys[2];
    int *columns[2];      /* for each input column: the output column, or -1 */
    int *late_columns[2]; /* the same for late rows */
    int window_column;    /* output column window_start; window_end follows; -1: none */
    bool is_forever, is_window;
    bool is_single;          /* a left row is in one window at most: counters count the row itself */
    int64_t low_us, high_us; /* bounds of (right event time - left event time) */
    struct expr *high;       /* upper bound as an expression of the left row; NULL: high_us */
    struct windows windows;
    struct ordering ordering;
    bool has_deadline;    /* left rows are settled when the watermark is past their deadline */
    bool is_time_of_left; /* event time of a row emitted at a deadline: the left row's, else the deadline */
    /* Of the lane. */
    struct key_rows rows;
    struct held_layouts *layouts[2];
    struct time_queue *queue; /* deadlines of left rows; a record is the row's id; with has_deadline */
    struct joined *joined;
    struct join_block *block;
    struct byte_buffer packed, order_key, ids, best, left;
    struct hot_keys *hot;
};

/* --- join_bind.c --- */
bool join_bind(struct operator_bind *bind);
void join_shape(const struct operator_bind *bind, struct byte_buffer *out);

/* row_order.sub of an output row: the input row's sub, a bit for the input that the row came by (a record may
 * come by both inputs), and the index of the output row among the output rows that the input row makes. */
enum { JOIN_SUB_SHIFT = 21, JOIN_SUB_RIGHT = 1 << 20 };

/* from, to: the first and the last right event time that a left row matches. until: the left row's deadline.
 * All in microseconds. */
struct join_reach {
    int64_t from, to, until;
};
/* The reach of a left row of event time `time`. high_us: the row's upper bound. window: number of a window
 * that holds `time`, in a window join. */
struct join_reach join_left_reach(const struct join *join, int64_t time, int64_t high_us, int64_t window);
/* The deadline of a right row of event time `time`. */
int64_t join_right_until(const struct join *join, int64_t time);

/* What becomes of a row. JOIN_TAKEN: it takes part in the join. JOIN_FAILED: an expression failed. */
enum join_fate { JOIN_TAKEN, JOIN_LATE, JOIN_FAILED, JOIN_ALONE /* null key or bound: no match */ };
struct join_prepared {
    struct batch *batch;
    int side;
    struct row_keys keys;
    struct column high;        /* upper bound of each left row, with join.high */
    struct ordered_rows order; /* order keys of right rows, with `take` */
    uint8_t fates[BATCH_ROWS]; /* enum join_fate by selected index */
};

/* An input row while it looks for the kept rows that it matches. If many rows match, the input row pauses
 * until the output rows made so far have been emitted, and goes on in the next bracket. */
struct join_meeting {
    struct operator_context *context;
    struct join *join;
    struct join_prepared *prepared;
    uint32_t index, row;
    struct key key;
    struct joined_row made;  /* the next output row, with this row's side and order set */
    struct join_reach reach; /* left: of the current window; right: from = to = its time */
    int64_t window, last_window;
    struct key_rows_query query;
    uint64_t count; /* output rows made so far */
    bool has_begun, is_paused;
    bool has_met;     /* matched a row (left: in the current window) */
    bool has_partner; /* unique: the key has a row of the other side, matching or not */
    const char *failed;
};

/* --- join_block.c --- */
struct join_block *join_block_new(void);
void join_process_merged(struct operator_context *context, struct merge *merge);
/* Emits the finished batches; with is_last also the rows of the unfinished one. */
void join_emit(struct operator_context *context, const struct join *join, bool is_last);
/* The upper bound of a left row. row: physical. */
int64_t join_high_of(const struct join *join, const struct join_prepared *prepared, uint32_t row);

/* --- join_match.c --- */
/* Matches a row with the kept rows of the other side, then keeps the row if later rows may match it. slot:
 * the entry of the row's key in join->rows.heads, inside a bracket. Returns false if the row pauses: end the
 * bracket, emit the output rows, and call again with the same `m` in a new bracket. Sets m->failed to the
 * reason if the row must go to dead letters. */
bool join_take_left(struct join_meeting *m, struct keyed_slot *slot);
bool join_take_right(struct join_meeting *m, struct keyed_slot *slot);

/* --- join_deadline.c --- */
void join_on_watermark(struct operator_context *context, int64_t watermark);

#endif
