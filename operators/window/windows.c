#include "operators/window/windows.h"

#include "core/mem.h"

#include <stdlib.h>

enum { TIME_MIN_US = 1000, ROWS_MAX = 1 << 20 };

#define SIZE_MAX_US (3650 * US_PER_DAY)

/* Years 385 to 8307: times further away do not follow the zone's clock, and have UTC days. */
#define CLOCK_MIN_US INT64_C(-50000000000000000)
#define CLOCK_MAX_US INT64_C(200000000000000000)

/* --- Numbers --- */

static int64_t floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static bool has_clock(int64_t time)
{
    return time > CLOCK_MIN_US && time < CLOCK_MAX_US;
}

/* The instant at which the zone's wall clock shows index * width + offset_us + more, clamped. Without a zone
 * the clock is UTC. */
static int64_t edge(const struct windows *windows, int64_t width, int64_t more, int64_t index)
{
    __int128 wall = (__int128)index * width + windows->offset_us + more;
    if (wall <= TIME_MIN || wall >= TIME_MAX)
        return wall < 0 ? TIME_MIN : TIME_MAX;
    return windows->zone == NULL || !has_clock((int64_t)wall) ? (int64_t)wall
                                                              : zone_instant(windows->zone, (int64_t)wall);
}

/* The largest index whose edge() is not after `time`. */
static int64_t edge_index(const struct windows *windows, int64_t width, int64_t more, int64_t time)
{
    int64_t begin = windows->offset_us + more, past;
    if (windows->zone == NULL || !has_clock(time)) {
        if (likely(!__builtin_sub_overflow(time, begin, &past)))
            return floor_divide(past, width);
        __int128 far = (__int128)time - begin;
        return (int64_t)(far / width - (far % width < 0));
    }
    int64_t wall = zone_wall(windows->zone, time) - begin;
    int64_t index = floor_divide(wall, width);
    while (edge(windows, width, more, index) > time)
        index--;
    while (edge(windows, width, more, index + 1) <= time)
        index++;
    return index;
}

/* Cumulating: the number of windows in a period. A change of the zone's clock makes the period longer or
 * shorter. */
static int64_t steps_of(const struct windows *windows, int64_t period)
{
    int64_t begin = edge(windows, windows->size_us, 0, period);
    if (windows->zone == NULL || !has_clock(begin))
        return windows->size_us / windows->slide_us;
    int64_t steps = (edge(windows, windows->size_us, 0, period + 1) - begin - 1) / windows->slide_us + 1;
    return MIN(MAX(steps, 1), windows->steps);
}

/* Whether each period at that time has the same number of steps: so it is where no zone's clock is
 * followed. */
static bool has_even_steps(const struct windows *windows, int64_t time)
{
    return windows->zone == NULL || !has_clock(time);
}

static int64_t step_at(const struct windows *windows, int64_t time)
{
    int64_t period, step;
    if (has_even_steps(windows, time)) {
        int64_t even = windows->size_us / windows->slide_us,
                index = edge_index(windows, windows->slide_us, 0, time);
        period = floor_divide(index, even);
        step = index - period * even;
    } else {
        period = edge_index(windows, windows->size_us, 0, time);
        step =
            MIN((time - edge(windows, windows->size_us, 0, period)) / windows->slide_us, windows->steps - 1);
    }
    return period * windows->steps + step;
}

static int64_t step_end(const struct windows *windows, int64_t window)
{
    int64_t period = floor_divide(window, windows->steps), step = window - period * windows->steps;
    int64_t begin = edge(windows, windows->size_us, 0, period);
    if (step + 1 == steps_of(windows, period))
        return edge(windows, windows->size_us, 0, period + 1);
    return has_even_steps(windows, begin)
               ? edge(windows, windows->size_us, (step + 1) * windows->slide_us, period)
               : begin + (step + 1) * windows->slide_us;
}

static int64_t period_first(const struct windows *windows, int64_t window)
{
    return floor_divide(window, windows->steps) * windows->steps;
}

static int64_t period_last(const struct windows *windows, int64_t window)
{
    int64_t period = floor_divide(window, windows->steps);
    return period * windows->steps + steps_of(windows, period) - 1;
}

int64_t windows_first(const struct windows *windows, int64_t time)
{
    switch (windows->tag) {
    case WINDOWS_TUMBLING: return edge_index(windows, windows->size_us, 0, time);
    case WINDOWS_SLIDING: return edge_index(windows, windows->slide_us, windows->size_us, time) + 1;
    case WINDOWS_CUMULATING: return step_at(windows, time);
    default: leat_assert(windows->tag == WINDOWS_FOREVER); return 0;
    }
}

int64_t windows_last(const struct windows *windows, int64_t time)
{
    switch (windows->tag) {
    case WINDOWS_TUMBLING:
    case WINDOWS_SLIDING: return edge_index(windows, windows->slide_us, 0, time);
    case WINDOWS_CUMULATING: return period_last(windows, step_at(windows, time));
    default: leat_assert(windows->tag == WINDOWS_FOREVER); return 0;
    }
}

int64_t windows_start(const struct windows *windows, int64_t window)
{
    switch (windows->tag) {
    case WINDOWS_TUMBLING:
    case WINDOWS_SLIDING: return edge(windows, windows->slide_us, 0, window);
    case WINDOWS_CUMULATING: return edge(windows, windows->size_us, 0, floor_divide(window, windows->steps));
    default: leat_assert(windows->tag == WINDOWS_FOREVER); return TIME_MIN;
    }
}

int64_t windows_end(const struct windows *windows, int64_t window)
{
    switch (windows->tag) {
    case WINDOWS_TUMBLING:
    case WINDOWS_SLIDING: return edge(windows, windows->slide_us, windows->size_us, window);
    case WINDOWS_CUMULATING: return step_end(windows, window);
    default: leat_assert(windows->tag == WINDOWS_FOREVER); return TIME_MAX;
    }
}

int64_t windows_next(const struct windows *windows, int64_t window)
{
    if (windows->tag == WINDOWS_CUMULATING && window == period_last(windows, window))
        return period_first(windows, window) + windows->steps;
    return window + 1;
}

/* --- Panes --- */

int64_t windows_pane(const struct windows *windows, int64_t time)
{
    return windows->tag == WINDOWS_SLIDING ? edge_index(windows, windows->pane_us, 0, time)
                                           : windows_first(windows, time);
}

int64_t windows_pane_start(const struct windows *windows, int64_t pane)
{
    if (windows->tag == WINDOWS_SLIDING)
        return edge(windows, windows->pane_us, 0, pane);
    if (windows->tag == WINDOWS_CUMULATING && pane != period_first(windows, pane))
        return step_end(windows, pane - 1);
    return windows_start(windows, pane);
}

int64_t windows_pane_end(const struct windows *windows, int64_t pane)
{
    return windows->tag == WINDOWS_SLIDING ? edge(windows, windows->pane_us, 0, pane + 1)
                                           : windows_end(windows, pane);
}

struct windows_range windows_panes(const struct windows *windows, int64_t window)
{
    if (windows->tag == WINDOWS_CUMULATING)
        return (struct windows_range){period_first(windows, window), window};
    if (windows->tag != WINDOWS_SLIDING)
        return (struct windows_range){window, window};
    int64_t first = window * (windows->slide_us / windows->pane_us);
    return (struct windows_range){first, first + windows->size_us / windows->pane_us - 1};
}

struct windows_range windows_of_pane(const struct windows *windows, int64_t pane)
{
    if (windows->tag == WINDOWS_CUMULATING)
        return (struct windows_range){pane, period_last(windows, pane)};
    if (windows->tag != WINDOWS_SLIDING)
        return (struct windows_range){pane, pane};
    int64_t slide = windows->slide_us / windows->pane_us, size = windows->size_us / windows->pane_us;
    return (struct windows_range){floor_divide(time_add(pane, -size), slide) + 1, floor_divide(pane, slide)};
}

uint64_t windows_panes_count(const struct windows *windows)
{
    switch (windows->tag) {
    case WINDOWS_SLIDING: return (uint64_t)(windows->size_us / windows->pane_us);
    case WINDOWS_CUMULATING: return (uint64_t)windows->steps;
    case WINDOWS_COUNT: return (uint64_t)(windows->size_rows / windows->pane_rows);
    default: return 1;
    }
}

/* --- Binding --- */

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The form of a shape's call in the job. */
struct shape {
    const char *name, *example, *wants;
    uint32_t arguments_min, arguments_max;
    enum ast_tag argument;
    bool (*bind)(struct operator_bind *bind, const struct ast *call, struct windows *windows);
};

static bool refuse(struct operator_bind *bind, const struct ast *at, const char *what, const char *hint)
{
    struct diag *diag = diag_error(bind->diags, DIAG_OUT_OF_RANGE, at->span, "%s", what);
    if (hint != NULL)
        diag_hint(bind->diags, diag, "%s", hint);
    return false;
}

static bool bind_tumbling(struct operator_bind *bind, const struct ast *call, struct windows *windows)
{
    (void)bind, (void)call;
    windows->slide_us = windows->pane_us = windows->size_us;
    return true;
}

static bool bind_sliding(struct operator_bind *bind, const struct ast *call, struct windows *windows)
{
    windows->pane_us = common_divisor(windows->size_us, windows->slide_us);
    if (windows->slide_us > windows->size_us)
        return refuse(bind, call->children[1],
                      "the second value is larger than the first: rows between two windows would be in "
                      "no window",
                      "the first duration is how long a window is, the second how often one begins: "
                      "sliding(10s, 2s)");
    if (windows->size_us / windows->pane_us > WINDOWS_PANES_MAX)
        return refuse(bind, call,
                      "a window has more than 1048576 panes (a pane's width is the greatest common divisor "
                      "of both durations)",
                      "choose durations with a larger common divisor: sliding(1d, 1m)");
    return true;
}

static bool bind_cumulating(struct operator_bind *bind, const struct ast *call, struct windows *windows)
{
    windows->pane_us = windows->slide_us;
    windows->steps = windows->size_us / windows->slide_us;
    if (windows->size_us % windows->slide_us != 0)
        return refuse(bind, call->children[1], "the first duration is not a multiple of the second, the step",
                      "the longest window comes first, then the step: cumulating(1d, 1h)");
    if (windows->steps > WINDOWS_PANES_MAX)
        return refuse(bind, call, "a window has more than 1048576 steps", NULL);
    return true;
}

static bool bind_session(struct operator_bind *bind, const struct ast *call, struct windows *windows)
{
    (void)bind, (void)call, (void)windows;
    return true;
}

static bool bind_count(struct operator_bind *bind, const struct ast *call, struct windows *windows)
{
    windows->pane_rows = common_divisor(windows->size_rows, windows->slide_rows);
    if (windows->slide_rows > windows->size_rows)
        return refuse(bind, call->children[1],
                      "the second value is larger than the first: rows between two windows would be in "
                      "no window",
                      "the first number is how many rows a window has, the second after how many rows one "
                      "begins: count(100, 10)");
    return true;
}

static const struct shape shapes[WINDOWS_TAGS] = {
    [WINDOWS_TUMBLING] = {"tumbling", "tumbling(1h)", "one duration", 1, 1, AST_DURATION, bind_tumbling},
    [WINDOWS_SLIDING] = {"sliding", "sliding(10s, 2s)", "two durations, how long and how often", 2, 2,
                         AST_DURATION, bind_sliding},
    [WINDOWS_CUMULATING] = {"cumulating", "cumulating(1d, 1h)", "two durations, the longest and the step", 2,
                            2, AST_DURATION, bind_cumulating},
    [WINDOWS_SESSION] = {"session", "session(30m)", "one duration", 1, 1, AST_DURATION, bind_session},
    [WINDOWS_COUNT] = {"count", "count(100)", "one or two numbers of rows", 1, 2, AST_INT, bind_count},
    [WINDOWS_FOREVER] = {"forever", "forever", "nothing", 0, 0, AST_NULL, NULL},
};

static bool is_name(const struct ast *over, const struct shape *shape)
{
    return (over->tag == AST_CALL || over->tag == AST_NAME) && str_is(over->text, shape->name);
}

static bool unknown_shape(struct operator_bind *bind, const struct ast *over, unsigned allowed)
{
    const char *names[WINDOWS_TAGS], *all = NULL;
    size_t count = 0;
    for (uint32_t i = 0; i < WINDOWS_TAGS; i++) {
        if ((allowed & WINDOWS_BIT(i)) == 0)
            continue;
        names[count++] = shapes[i].name;
        all = all == NULL ? shapes[i].example : arena_printf(bind->arena, "%s, %s", all, shapes[i].example);
    }
    struct diag *diag =
        diag_error(bind->diags, DIAG_NOT_A_CHOICE, over->span, "there is no such kind of window");
    bool is_word = over->tag == AST_CALL || over->tag == AST_NAME;
    const char *near = is_word ? diag_nearest(over->text, names, count) : NULL;
    if (near != NULL)
        diag_hint(bind->diags, diag, "did you mean `%s`?", near);
    else
        diag_hint(bind->diags, diag, "the kinds of windows are %s", all);
    return false;
}

static bool check_arguments(struct operator_bind *bind, const struct ast *over, const struct shape *shape)
{
    uint32_t count = over->tag == AST_CALL ? over->count : 0;
    bool is_duration = shape->argument == AST_DURATION, is_good = true;
    if (count < shape->arguments_min || count > shape->arguments_max ||
        (shape->bind == NULL && over->tag == AST_CALL)) {
        diag_error(bind->diags, DIAG_OUT_OF_RANGE, over->span, "`%s` takes %s: %s", shape->name, shape->wants,
                   shape->example);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct ast *argument = over->children[i];
        int64_t most = is_duration ? SIZE_MAX_US : ROWS_MAX, least = is_duration ? TIME_MIN_US : 1;
        if (argument->tag == shape->argument && argument->integer >= least && argument->integer <= most)
            continue;
        struct diag *diag = diag_error(bind->diags, DIAG_OUT_OF_RANGE, argument->span, "`%s` takes %s: %s",
                                       shape->name, shape->wants, shape->example);
        diag_hint(bind->diags, diag,
                  is_duration ? "a duration must be from 1ms to 3650d"
                              : "a number of rows must be from 1 to 1048576");
        is_good = false;
    }
    return is_good;
}

/* Loads the zone. Only windows of whole days may have one; shorter windows begin by UTC, plus the offset. */
static bool bind_zone(struct operator_bind *bind, const struct ast *over, struct str name,
                      struct windows *windows)
{
    if (windows->size_us % US_PER_DAY != 0 ||
        (windows->tag == WINDOWS_SLIDING && windows->slide_us % US_PER_DAY != 0)) {
        struct diag *diag = diag_error(bind->diags, DIAG_OPTIONS_CLASH, over->span,
                                       "`zone` is for windows of whole days only, which begin at midnight in "
                                       "that zone");
        diag_hint(bind->diags, diag,
                  "leave `zone` out; where clocks differ from UTC by half an hour, use `offset 30m`");
        return false;
    }
    enum zone_status status = zone_load(bind->arena, name, &windows->zone);
    if (status == ZONE_GOOD) {
        /* A period that contains a clock change may have more steps. */
        if (windows->tag == WINDOWS_CUMULATING)
            windows->steps = (windows->size_us + US_PER_DAY) / windows->slide_us + 1;
        return true;
    }
    struct diag *diag = diag_error(bind->diags, DIAG_NOT_A_CHOICE, bind->span,
                                   status == ZONE_DAMAGED ? "the system's data of time zone `%.*s` is damaged"
                                                          : "there is no time zone `%.*s`",
                                   STR_ARGS(name));
    const char *near = status == ZONE_UNKNOWN ? zone_nearest(bind->arena, name) : NULL;
    if (near != NULL)
        diag_hint(bind->diags, diag, "did you mean \"%s\"?", near);
    else if (status == ZONE_UNKNOWN)
        diag_hint(bind->diags, diag, "zones have names such as \"Europe/Berlin\", see " ZONE_DIRECTORY);
    else
        diag_hint(bind->diags, diag, "install the package tzdata: zones are read from " ZONE_DIRECTORY);
    return false;
}

static bool bind_place(struct operator_bind *bind, const struct ast *over, int64_t offset_us, struct str zone,
                       struct windows *windows)
{
    bool is_periodic = (WINDOWS_BIT(windows->tag) & WINDOWS_OF_TIME) != 0 && windows->tag != WINDOWS_FOREVER;
    bool is_good = true;
    windows->offset_us = offset_us;
    if (!is_periodic && (offset_us != 0 || zone.length > 0)) {
        diag_error(bind->diags, DIAG_OPTIONS_CLASH, over->span, "`%s` has no meaning with a window `%s`",
                   offset_us != 0 ? "offset" : "zone", shapes[windows->tag].name);
        return false;
    }
    int64_t period = windows->tag == WINDOWS_CUMULATING ? windows->size_us : windows->slide_us;
    if (is_periodic && offset_us >= period) {
        struct diag *diag = diag_error(bind->diags, DIAG_OPTIONS_CLASH, over->span,
                                       "the `offset` must be shorter than the step from window to window");
        diag_hint(bind->diags, diag, "windows that are moved by one whole step are the same windows");
        is_good = false;
    }
    if (zone.length > 0)
        is_good &= bind_zone(bind, over, zone, windows);
    return is_good;
}

bool windows_bind(struct operator_bind *bind, const struct ast *over, unsigned allowed, int64_t offset_us,
                  struct str zone, struct windows *windows)
{
    *windows = (struct windows){0};
    uint32_t tag = 0;
    while (tag < WINDOWS_TAGS && ((allowed & WINDOWS_BIT(tag)) == 0 || !is_name(over, &shapes[tag])))
        tag++;
    if (tag == WINDOWS_TAGS)
        return unknown_shape(bind, over, allowed);
    const struct shape *shape = &shapes[tag];
    windows->tag = (enum windows_tag)tag;
    if (!check_arguments(bind, over, shape))
        return false;
    if (over->tag == AST_CALL) {
        int64_t first = over->children[0]->integer, second = over->children[over->count - 1]->integer;
        if (shape->argument == AST_DURATION) {
            windows->size_us = first;
            windows->slide_us = second;
        } else {
            windows->size_rows = first;
            windows->slide_rows = second;
        }
        if (!shape->bind(bind, over, windows))
            return false;
    }
    return bind_place(bind, over, offset_us, zone, windows);
}

/* --- Open windows --- */

void open_windows_add(struct open_windows *open, int64_t index)
{
    uint32_t at = open->count;
    while (at > 0 && open->items[at - 1] > index)
        at--;
    if (at > 0 && open->items[at - 1] == index)
        return;
    if (open->count == open->capacity) {
        open->capacity = MAX(open->capacity * 2, 16);
        open->items = mem_realloc(open->items, open->capacity * sizeof(*open->items));
    }
    memmove(&open->items[at + 1], &open->items[at], (open->count - at) * sizeof(*open->items));
    open->items[at] = index;
    open->count++;
}

void open_windows_drop(struct open_windows *open, uint32_t count)
{
    open->count -= count;
    if (count > 0)
        memmove(open->items, open->items + count, open->count * sizeof(*open->items));
}

void open_windows_free(struct open_windows *open)
{
    free(open->items);
    *open = (struct open_windows){0};
}
