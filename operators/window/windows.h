/* Shapes of windows, as in `over tumbling(1h)` of `window`, `join` and `top_n`. */
#ifndef LEAT_OPERATORS_WINDOW_WINDOWS_H
#define LEAT_OPERATORS_WINDOW_WINDOWS_H

#include "core/operator.h"
#include "core/zone.h"

enum windows_tag {
    WINDOWS_TUMBLING,
    WINDOWS_SLIDING,
    WINDOWS_CUMULATING,
    WINDOWS_SESSION,
    WINDOWS_COUNT,
    WINDOWS_FOREVER,
    WINDOWS_TAGS
};

/* Shapes that an operator takes, for windows_bind. WINDOWS_OF_TIME: shapes whose windows are numbered. */
#define WINDOWS_BIT(tag) (1U << (tag))
#define WINDOWS_OF_TIME                                                                                      \
    (WINDOWS_BIT(WINDOWS_TUMBLING) | WINDOWS_BIT(WINDOWS_SLIDING) | WINDOWS_BIT(WINDOWS_CUMULATING) |        \
     WINDOWS_BIT(WINDOWS_FOREVER))
#define WINDOWS_ALL (WINDOWS_OF_TIME | WINDOWS_BIT(WINDOWS_SESSION) | WINDOWS_BIT(WINDOWS_COUNT))

enum { WINDOWS_PANES_MAX = 1 << 20 }; /* of one window */

struct windows {
    enum windows_tag tag;
    int64_t size_us;  /* of a window; cumulating: of the longest; session: the gap */
    int64_t slide_us; /* from one window's start to the next; tumbling: the size; cumulating: the step */
    int64_t offset_us;
    int64_t pane_us; /* tumbling: the size; sliding: gcd of size and slide; cumulating: the step */
    int64_t steps;   /* cumulating: numbers reserved for a period's windows; some may be unused */
    int64_t size_rows, slide_rows, pane_rows; /* of count windows */
    const struct zone *zone;                  /* NULL: UTC */
};

/* Sets *windows to the shape that `over` says, with its offset in microseconds (0: none) and zone (length 0:
 * UTC). allowed: WINDOWS_BITs of the shapes that the operator takes. Returns false after diagnostics. */
bool windows_bind(struct operator_bind *bind, const struct ast *over, unsigned allowed, int64_t offset_us,
                  struct str zone, struct windows *windows);

/* The windows that hold a time: windows_first .. windows_last, at least one. TIME_MIN is before every window,
 * TIME_MAX behind. All times are microseconds. These functions and those below, except windows_panes_count,
 * are for the shapes WINDOWS_OF_TIME only. */
int64_t windows_first(const struct windows *windows, int64_t time);
int64_t windows_last(const struct windows *windows, int64_t time);
/* A window is [start, end), clamped to TIME_MIN and TIME_MAX. */
int64_t windows_start(const struct windows *windows, int64_t window);
int64_t windows_end(const struct windows *windows, int64_t window);
/* The number of the next window. Unused numbers are skipped: by a zone's clock, a day has 23 to 25 steps of
 * an hour, and numbers are reserved for the longest day. */
int64_t windows_next(const struct windows *windows, int64_t window);

/* The pane that holds a time. */
int64_t windows_pane(const struct windows *windows, int64_t time);
int64_t windows_pane_start(const struct windows *windows, int64_t pane);
int64_t windows_pane_end(const struct windows *windows, int64_t pane);
/* The panes of a window, and the windows of a pane: first..last. */
struct windows_range {
    int64_t first, last;
};
struct windows_range windows_panes(const struct windows *windows, int64_t window);
struct windows_range windows_of_pane(const struct windows *windows, int64_t pane);
/* The largest number of panes of a window. */
uint64_t windows_panes_count(const struct windows *windows);

/* Numbers of the windows, or of the panes, that may have rows, rising. */
struct open_windows {
    int64_t *items;
    uint32_t count, capacity;
};
/* Adds `index`, unless it is there. */
void open_windows_add(struct open_windows *open, int64_t index);
/* Drops the first `count` numbers. */
void open_windows_drop(struct open_windows *open, uint32_t count);
void open_windows_free(struct open_windows *open);

#endif
