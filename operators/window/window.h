/* Shared by the files of `window`; window.c describes how it works. */
#ifndef LEAT_OPERATORS_WINDOW_WINDOW_H
#define LEAT_OPERATORS_WINDOW_WINDOW_H

#include "core/change.h"
#include "operators/expr/compute.h"
#include "operators/keys.h"
#include "operators/ready.h"
#include "operators/window/panes.h"
#include "operators/window/window_keys.h"
#include "operators/window/windows.h"

enum window_time { WINDOW_BY_EVENT, WINDOW_BY_ARRIVAL };

enum window_emit {
    EMIT_ON_CLOSE, /* one row when the watermark has reached end + lateness */
    EMIT_FINAL,    /* one row when the input has ended */
    EMIT_ON_END,   /* a row when the watermark has reached the end, then corrections */
    EMIT_EVERY,    /* like EMIT_ON_END; before the end also changes, after each every_us of event time */
    EMIT_ON_CHANGE /* changes, after each micro-batch */
};

/* Facts about a window's rows that some windows need beside the aggregates. They are stored as one more
 * aggregate, which is no output column. A tick is the operator's own count of micro-batches. */
struct window_facts {
    int64_t rows;
    int64_t first_time, last_time;
    int64_t first_tick, last_tick; /* from 1 on */
    int64_t armed;                 /* sessions: event time of the session's timer, microseconds */
};

/* The pane of the last row, kept because the next row is often in the same pane. */
struct window_pane {
    bool is_known, is_noted; /* is_noted: the pane is in window.open */
    int64_t start, end;
    int64_t pane;
    struct windows_range windows;
    int64_t closed_at; /* the watermark from which on all its windows are closed */
};

/* A key and pane that got a row in this micro-batch. */
struct window_touch {
    struct window_key key;
    int64_t pane;
};

/* A copy of an entry's value in window->copies, at `offset`, in the form that keyed_read wants. */
struct window_copy {
    struct window_key key;
    size_t offset;
};

/* Keys that are looked up together, and their entries in window.table and window.shown. */
struct window_look {
    struct key keys[BATCH_ROWS];
    uint64_t hashes[BATCH_ROWS];
    struct keyed_slot *slots[BATCH_ROWS], *shown[BATCH_ROWS];
};

struct window {
    struct columns by;
    struct expression over;
    int64_t offset_us;
    struct str zone;
    int time;
    int64_t lateness_us;
    int64_t expire_after_us; /* windows of rows; INT64_MAX: forever */
    struct expression emit;
    struct assignments values;
    /* Made by bind. */
    struct windows shape;
    enum window_emit mode;
    int64_t every_us;
    bool has_changes, has_bounds; /* columns `_op`; window_start and window_end */
    int *keys;
    struct aggregates aggregates; /* followed by the facts, if has_facts */
    bool has_facts;
    uint32_t facts_offset;
    /* Owned by the lane. */
    struct keyed_table *table;
    struct panes panes;
    struct panes_sum sum;
    struct window_pane last_pane;
    struct open_windows open;     /* panes */
    struct window_keys listed;    /* lists of keys by window (window_keys.h); cover only some windows */
    struct window_touch *touches; /* if has_changes */
    uint32_t touches_count, touches_capacity;
    int64_t tick;              /* micro-batches so far, this one included */
    int64_t fired_tick;        /* tick of the last firing of `every` */
    struct time_queue *timers; /* of sessions */
    size_t timers_bytes;       /* memory budget of `timers` */
    struct keyed_table *shown; /* sessions that change: the rows given (window_shown.c) */
    struct window_look *look;
    struct byte_buffer prefix, copies, given;
    struct window_copy *copy_list;
    uint32_t copies_count, copies_capacity;
};

static inline bool window_is_of_time(const struct window *window)
{
    return (WINDOWS_BIT(window->shape.tag) & WINDOWS_OF_TIME) != 0;
}

static inline struct window_facts *window_facts_of(const struct window *window, char *partials)
{
    return (struct window_facts *)(void *)(partials + window->facts_offset);
}

/* The watermark from which on window `index` is closed. */
static inline int64_t window_closed_at(const struct window *window, int64_t index)
{
    return window->mode == EMIT_FINAL ? TIME_MAX
                                      : time_add(windows_end(&window->shape, index), window->lateness_us);
}

/* The first window that is not closed at the watermark. */
static inline int64_t window_first_open(const struct window *window, int64_t watermark)
{
    if (window->mode == EMIT_FINAL || watermark == TIME_MIN)
        return INT64_MIN;
    return windows_first(&window->shape, time_add(watermark, -window->lateness_us));
}

/* Whether a window gives all its rows at its end, and corrections until it is closed. */
static inline bool window_gives_at_end(const struct window *window)
{
    return window->mode == EMIT_ON_END || window->mode == EMIT_EVERY;
}

/* The first window that has not given its rows at the watermark. */
static inline int64_t window_first_due(const struct window *window, int64_t watermark)
{
    if (!window_gives_at_end(window))
        return window_first_open(window, watermark);
    return watermark == TIME_MIN ? INT64_MIN : windows_first(&window->shape, watermark);
}

/* Makes the facts the last aggregate (window_out.c). */
void window_add_facts(struct operator_bind *bind, struct window *window);

/* --- Open windows of time: window_close.c --- */

/* Returns the array with room for one more than `count` items of `size` bytes. */
void *window_grow(void *items, uint32_t count, uint32_t *capacity, size_t size);
/* Gives up the key lists: scans find the keys until all windows of the rows so far have given their rows. */
void window_forget_lists(struct window *window);
/* Call when the entry got the pane of last_pane: adds its key to the list of the pane's first window that is
 * not due yet, unless another pane has put the key into that list or an earlier one. */
void window_list_key(const struct operator_context *context, struct window *window,
                     const struct keyed_slot *slot, uint64_t hash);
/* Notes that the key's pane got a row in this micro-batch. */
void window_touch(struct window *window, const struct window_key *key, int64_t pane);

/* --- Rows out: window_out.c --- */

/* A batch being filled, and those that are full. */
struct window_out {
    struct batch *batch; /* NULL: no row yet */
    struct ready_batches full;
    struct column_builder *builders;
    struct column_builder *aggregates[AGGREGATES_MAX + 1];
    struct row_order *orders;
    uint32_t rows;
};

/* A row of the output. */
struct window_row {
    struct str prefix; /* the encoded values of the key columns */
    int64_t start, end;
    int64_t time; /* the row's event time */
    struct row_order order;
    enum change change;
    struct str values;        /* encoded values of the aggregates; length 0: those of window->sum */
    struct byte_buffer *keep; /* the encoded values are appended to it; NULL: not wanted */
};

/* Adds a row to the batch being filled. */
void window_out_add(struct operator_context *context, struct window *window, struct window_out *out,
                    const struct window_row *row);
/* Emits all batches of `out`, the unfinished one, too. Not between keyed_begin and keyed_end. */
void window_out_end(struct operator_context *context, struct window_out *out);

/* --- The watermark: window_close.c --- */

/* Emits the rows that are due because the watermark goes on to `watermark`. */
void window_advance(struct operator_context *context, struct window *window, int64_t watermark);
/* Whether `every` fires when the watermark goes from `before` to `watermark`. */
bool window_fires(const struct window *window, int64_t before, int64_t watermark);
/* Sorts this micro-batch's touches by key, then pane. */
void window_sort_touches(struct window *window);
/* Copies entries of a key group to window->copy_list, in the order (hash, key). Calls `visit` for each entry
 * of the group; `visit` calls window_copy_entry for each entry to copy. */
void window_copy_group(struct window *window, uint32_t group, keyed_visit *visit, void *argument);
void window_copy_entry(struct window *window, const struct keyed_slot *slot);
/* Returns a slot by which the copy can be read like an entry. */
struct keyed_slot window_copy_slot(const struct window *window, const struct window_copy *copy);

/* --- Sessions: window_sessions.c --- */

enum window_taken { WINDOW_TAKEN, WINDOW_LATE, WINDOW_FULL };

/* Adds a row to its session, inside a bracket. hash: of the slot's key. Sets update->pane and
 * update->expire_us. */
enum window_taken window_sessions_add(struct operator_context *context, struct window *window,
                                      struct keyed_slot *slot, uint64_t hash, struct panes_row *update);
void window_sessions_advance(struct operator_context *context, struct window *window, int64_t watermark);
/* How many sessions of the entry are closed at the watermark; closed sessions are the first ones. */
uint32_t window_sessions_closed(const struct window *window, const struct keyed_slot *slot,
                                int64_t watermark);
/* window_session_end: the end of the session with these facts. window_session_closed_at: the session is
 * closed once the watermark is above the result. Both in microseconds of event time. */
static inline int64_t window_session_end(const struct window *window, const struct window_facts *facts)
{
    return time_add(facts->last_time, window->shape.size_us);
}

static inline int64_t window_session_closed_at(const struct window *window, const struct window_facts *facts)
{
    int64_t at = time_add(window_session_end(window, facts), window->lateness_us);
    return window->mode == EMIT_FINAL ? TIME_MAX - 1 : MIN(at, TIME_MAX - 1);
}

/* --- Rows given of sessions that change: window_shown.c --- */

/* Compares a key's sessions with the rows emitted for them before, and adds inserts, updates and deletes
 * to `out`. sessions: the key's entry in window->table, or a copy. Only sessions that end before
 * `ended_before` give inserts and updates; a row whose session is gone is deleted. shown: the key's entry
 * in window->shown, in a bracket. time: order time of the output rows. */
void window_shown_compare(struct operator_context *context, struct window *window, struct window_out *out,
                          const struct keyed_slot *sessions, struct keyed_slot *shown, int64_t ended_before,
                          int64_t time);
/* Removes from the entry `shown` the rows of sessions that are gone because they were closed; emits
 * nothing. */
void window_shown_forget(struct window *window, const struct keyed_slot *sessions, struct keyed_slot *shown);

#endif
