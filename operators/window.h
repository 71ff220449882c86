/* Inside `window`: what its files share. window.c tells the story. */
#ifndef LEAT_OPERATORS_WINDOW_H
#define LEAT_OPERATORS_WINDOW_H

#include "core/change.h"
#include "operators/expr/compute.h"
#include "operators/keys.h"
#include "operators/panes.h"
#include "operators/window_keys.h"
#include "operators/windows.h"

enum { WINDOW_TABLE = 'k', WINDOW_OPEN = 'e', WINDOW_TIMERS = 't', WINDOW_SHOWN = 's' };

enum window_time { WINDOW_BY_EVENT, WINDOW_BY_ARRIVAL };

enum window_emit {
    EMIT_ON_CLOSE, /* one row when the watermark has reached end + lateness */
    EMIT_FINAL,    /* one row when the input has ended */
    EMIT_ON_END,   /* a row when the watermark has reached the end, then corrections */
    EMIT_EVERY,    /* that, and before it what changed, as event time goes on */
    EMIT_ON_CHANGE /* what changed, after each number */
};

/* What some windows must know of their rows beside the aggregates: kept as one aggregate more, which the job
 * does not see. A tick is a number as this operator counts them. */
struct window_facts {
    int64_t rows;
    int64_t first_time, last_time;
    int64_t first_tick, last_tick; /* 1 and on */
    int64_t armed;                 /* session: when its timer comes */
};

/* The pane of the last row: rows of one time follow each other. */
struct window_pane {
    bool is_known, is_noted; /* noted: it is in `open` */
    int64_t start, end;
    int64_t pane;
    struct windows_range windows;
    int64_t closed_at; /* of its last window */
};

/* A key and pane that a row of this number came to. */
struct window_touch {
    struct window_key key;
    int64_t pane;
};

/* A copy of an entry's value, as keyed_read wants it, in window->copies. */
struct window_copy {
    struct window_key key;
    size_t offset;
};

/* Keys that are looked up together. */
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
    bool has_changes, has_bounds; /* the columns `_op`; window_start and window_end */
    int *keys;
    struct aggregates aggregates; /* with the facts behind, where has_facts */
    bool has_facts;
    uint32_t facts_offset;
    /* The lane's. */
    struct keyed_table *table;
    struct panes panes;
    struct panes_sum sum;
    struct window_pane last_pane;
    int64_t *open; /* panes that may have rows, rising */
    uint32_t open_count, open_capacity;
    struct window_keys listed;    /* which keys a window has, as far as that is known */
    struct window_touch *touches; /* with changes */
    uint32_t touches_count, touches_capacity;
    int64_t tick;              /* numbers so far, this one included */
    int64_t fired_tick;        /* at the last firing of `every` */
    struct time_queue *timers; /* sessions */
    size_t timers_bytes;       /* their budget */
    struct keyed_table *shown; /* sessions that change: what was given (window_shown.c) */
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

/* When the window is closed: the watermark is not below this. */
static inline int64_t window_closed_at(const struct window *window, int64_t index)
{
    return window->mode == EMIT_FINAL ? TIME_MAX
                                      : time_add(windows_end(&window->shape, index), window->lateness_us);
}

/* The first window that the watermark has not closed. */
static inline int64_t window_first_open(const struct window *window, int64_t watermark)
{
    if (window->mode == EMIT_FINAL || watermark == TIME_MIN)
        return INT64_MIN;
    return windows_first(&window->shape, time_add(watermark, -window->lateness_us));
}

/* Whether a window gives all its rows when it ends, and corrections until it is closed. */
static inline bool window_gives_at_end(const struct window *window)
{
    return window->mode == EMIT_ON_END || window->mode == EMIT_EVERY;
}

/* The first window that has not given its rows. */
static inline int64_t window_first_due(const struct window *window, int64_t watermark)
{
    if (!window_gives_at_end(window))
        return window_first_open(window, watermark);
    return watermark == TIME_MIN ? INT64_MIN : windows_first(&window->shape, watermark);
}

/* The facts become the last aggregate. window_facts.c. */
void window_add_facts(struct operator_bind *bind, struct window *window);

/* --- What is open: window_open.c --- */

/* Grows an array of so many items by one. */
void *window_grow(void *items, uint32_t count, uint32_t *capacity, size_t size);
/* From now on, scans: until the windows of all rows so far have given theirs. */
void window_forget_lists(struct window *window);
/* The entry has a new pane, that of last_pane: its key goes into the list of the first window due, unless it
 * is there already for another pane. */
void window_list_key(const struct operator_context *context, struct window *window,
                     const struct keyed_slot *slot, uint64_t hash);
void window_touch(struct window *window, const struct window_key *key, int64_t pane);
void window_note_open(struct window *window, int64_t pane);

/* --- Rows out: window_out.c --- */

/* A batch that is being filled, and those that are full. */
struct window_out {
    struct batch *batch; /* NULL: no row yet */
    struct batch *full, *last_full;
    struct column_builder *builders;
    struct column_builder *aggregates[AGGREGATES_MAX + 1];
    struct row_order *orders;
    uint32_t rows;
};

/* A row of the output. */
struct window_row {
    struct str prefix; /* the values of the keys */
    int64_t start, end;
    int64_t time; /* of the event */
    struct row_order order;
    enum change change;
    struct str values;        /* of the aggregates, as they were kept; length 0: those of window->sum */
    struct byte_buffer *keep; /* appends the values; NULL: not wanted */
};

void window_out_add(struct operator_context *context, struct window *window, struct window_out *out,
                    const struct window_row *row);
/* Gives the batches on; outside of brackets. */
void window_out_end(struct operator_context *context, struct window_out *out);

/* --- The watermark: window_close.c --- */

void window_advance(struct operator_context *context, struct window *window, int64_t watermark);
/* Whether `every` fires between these watermarks. */
bool window_fires(const struct window *window, int64_t before, int64_t watermark);
/* This number's touches: by key, then pane. */
void window_sort_touches(struct window *window);
/* Entries of a key group as copies: visit calls window_copy_entry for those that it wants; then they lie in
 * window->copy_list, in the order (hash, key). */
void window_copy_group(struct window *window, uint32_t group, keyed_visit *visit, void *argument);
void window_copy_entry(struct window *window, const struct keyed_slot *slot);
/* A copy as an entry that can be read. */
struct keyed_slot window_copy_slot(const struct window *window, const struct window_copy *copy);

/* --- Sessions: window_sessions.c --- */

enum window_taken { WINDOW_TAKEN, WINDOW_LATE, WINDOW_FULL };

/* Takes a row in; within a bracket. The update's pane and expiry are set here. */
enum window_taken window_sessions_add(struct operator_context *context, struct window *window,
                                      struct keyed_slot *slot, uint64_t hash, struct panes_row *update);
void window_sessions_advance(struct operator_context *context, struct window *window, int64_t watermark);
/* How many sessions of the entry that watermark has closed: the first ones. */
uint32_t window_sessions_closed(const struct window *window, const struct keyed_slot *slot,
                                int64_t watermark);
/* Adds the row of session i, which closes. */
void window_session_give(struct operator_context *context, struct window *window, struct window_out *out,
                         const struct keyed_slot *slot, uint32_t i);
/* Sessions that stay open get a timer that is not below the watermark. Within a bracket. */
void window_sessions_arm(struct window *window, struct keyed_slot *slot, int64_t watermark);
/* When a session with these facts ends, and when it is closed: the watermark is above. */
static inline int64_t window_session_end(const struct window *window, const struct window_facts *facts)
{
    return time_add(facts->last_time, window->shape.size_us);
}

static inline int64_t window_session_closed_at(const struct window *window, const struct window_facts *facts)
{
    int64_t at = time_add(window_session_end(window, facts), window->lateness_us);
    return window->mode == EMIT_FINAL ? TIME_MAX - 1 : MIN(at, TIME_MAX - 1);
}

/* --- Many sessions that close at once: window_closing.c --- */

/* Whether so many close that going through the table costs less than asking it for each. */
bool window_closing_is_worth(const struct window *window, int64_t watermark);
void window_closing_give(struct operator_context *context, struct window *window, int64_t watermark);

/* --- What was given of sessions that change: window_shown.c --- */

/* Compares the sessions of a key (a copy or an entry) with what was given of it, and adds the differences to
 * `out`. Changes of sessions count that end before ended_before; what is not there any more is deleted.
 * shown: the key's entry in window->shown, in a bracket. time: of the rows' order. */
void window_shown_compare(struct operator_context *context, struct window *window, struct window_out *out,
                          const struct keyed_slot *sessions, struct keyed_slot *shown, int64_t ended_before,
                          int64_t time);
/* Forgets what was given of sessions that are gone because they are closed. */
void window_shown_forget(struct window *window, const struct keyed_slot *sessions, struct keyed_slot *shown);

/* --- Windows of rows: window_count.c --- */

/* A row of that time keeps its group until the watermark is beyond this. */
static inline int64_t window_kept_until(const struct window *window, int64_t time)
{
    return window->expire_after_us == INT64_MAX ? TIME_MAX : time_add(time, window->expire_after_us);
}

/* Takes a row in; within a bracket. The row that fills a window adds its row to `out`. */
enum window_taken window_count_add(struct operator_context *context, struct window *window,
                                   struct window_out *out, struct keyed_slot *slot, const struct batch *batch,
                                   struct panes_row *update);

#endif
