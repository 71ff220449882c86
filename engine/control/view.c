#include "control/view.h"

#include "control/api.h"
#include "control/progress.h"
#include "control/summary.h"
#include "core/civil.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    VIEW_REDRAW_US = 250 * 1000,
    VIEW_LOOK_US = 500 * 1000,
    BAR_WIDTH = 24,
    NAME_WIDTH = 28,
    BESIDE_WIDTH = 200
};

struct view {
    const struct plan *plan;
    struct dead_watch *watch;
    struct bottleneck *bottleneck;
    struct api *api;
    bool is_quiet, is_terminal;
    struct progress progress; /* used where stderr is no terminal */
    int64_t looked_us;        /* when run_stats was called last */
    int64_t last_us;          /* when the rate was computed last */
    uint64_t last_records;    /* records of this life by then */
    double rate;              /* records per second, smoothed over redraws */
    /* When the watermark moved last, and how many records had come by then. */
    int64_t watermark, moved_us;
    uint64_t moved_records;
    int64_t still_us; /* for how long the watermark has not moved although records come; 0: it moves */
    unsigned lines;   /* number of lines of the last picture, over which the next one is drawn */
    struct run_stats stats;
    struct byte_buffer out;
    struct view_more more;
    struct byte_buffer beside; /* its lines, of the last look */
};

struct view *view_new(const struct view_options *options)
{
    struct view *view = mem_calloc(1, sizeof(*view));
    view->plan = options->plan;
    view->watch = options->watch;
    view->bottleneck = options->bottleneck;
    view->api = options->api;
    view->is_quiet = options->is_quiet;
    view->progress = options->progress;
    view->is_terminal = isatty(STDERR_FILENO) != 0 && log_form() == LOG_FORM_TEXT;
    view->more = options->more;
    view->looked_us = view->last_us = view->moved_us = os_monotonic_us();
    view->watermark = TIME_MIN;
    return view;
}

static unsigned terminal_width(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40)
        return size.ws_col;
    return 100;
}

/* Ends a line of the view. Cuts it at the terminal's width, so that the next picture begins the right
 * number of lines above. */
static void end_line(struct view *view, size_t begin, unsigned width)
{
    size_t length = 0, at = begin;
    while (at < view->out.length && length < width - 1) {
        at++;
        while (at < view->out.length && ((unsigned char)view->out.data[at] & 0xc0) == 0x80)
            at++;
        length++;
    }
    view->out.length = at;
    buffer_printf(&view->out, "\x1b[K\n");
    view->lines++;
}

static double share_done(const struct run_stats *stats)
{
    if (stats->progress.bytes_total > 0)
        return (double)stats->progress.bytes_done / (double)stats->progress.bytes_total;
    if (stats->progress.records_total > 0)
        return (double)stats->records / (double)stats->progress.records_total;
    return -1;
}

static void add_bar(struct byte_buffer *out, double share)
{
    int full = (int)(share * BAR_WIDTH + 0.5);
    for (int i = 0; i < BAR_WIDTH; i++)
        buffer_printf(out, "%s", i < full ? "█" : "░");
}

static void add_head(struct view *view)
{
    const struct run_stats *s = &view->stats;
    char rate[32], elapsed[32], left[32];
    buffer_printf(&view->out, "%.*s  %s  %" PRIu64 " events  %s", STR_ARGS(view->plan->name),
                  format_duration(s->elapsed_us, elapsed), s->records, format_rate(view->rate, rate));
    double share = share_done(s);
    if (share < 0)
        return;
    buffer_printf(&view->out, "  ");
    if (view->is_terminal)
        add_bar(&view->out, MIN(share, 1));
    buffer_printf(&view->out, " %3.0f %%", MIN(share, 1) * 100);
    /* The share done by this life. */
    double own = share * (double)s->records_life / (double)MAX(s->records, 1);
    if (own > 0.01 && share < 1)
        buffer_printf(&view->out, "  %s left",
                      format_duration((int64_t)((double)s->elapsed_us * (1 - share) / own), left));
}

static void add_totals(struct view *view, struct counters *sum, uint64_t *written)
{
    *sum = (struct counters){0};
    *written = 0;
    for (uint32_t i = 0; i < view->stats.nodes_count; i++) {
        const struct run_node_stats *node = &view->stats.nodes[i];
        counters_add(sum, &node->counters);
        if (node->node->tag == PLAN_SINK)
            *written += node->counters.in;
    }
}

/* Adds the source that holds the watermark back, and how far the watermark is behind. */
static void add_holder(struct byte_buffer *out, const struct run_stats *stats)
{
    char behind[32];
    if (stats->held_by == NULL || stats->newest_event == TIME_MIN || stats->watermark > stats->newest_event)
        return;
    buffer_printf(out, ", %s behind the newest event (%.*s%s%s)",
                  format_duration(stats->newest_event - stats->watermark, behind),
                  STR_ARGS(stats->held_by->node->name), stats->held_by->time.held_by[0] == '\0' ? "" : ": ",
                  stats->held_by->time.held_by);
}

static void add_time(struct view *view)
{
    const struct run_stats *s = &view->stats;
    char text[32], age[32], duration[32], bytes[32];
    if (s->watermark == TIME_MIN || s->watermark == TIME_MAX)
        buffer_printf(&view->out, "watermark %s", s->watermark == TIME_MIN ? "none yet" : "end");
    else
        buffer_printf(&view->out, "watermark %.*s", (int)civil_format(s->watermark, text), text);
    if (s->watermark != TIME_MIN && s->watermark != TIME_MAX)
        add_holder(&view->out, s);
    if (view->still_us > 0)
        buffer_printf(&view->out, ", has not moved for %s", format_duration(view->still_us, duration));
    if (s->checkpoints > 0)
        buffer_printf(&view->out, "   checkpoint %" PRIu64 ": %s ago, took %s, %s", s->checkpoint_epoch,
                      format_duration(s->checkpoint_age_us, age), format_duration(s->checkpoint_us, duration),
                      format_bytes((double)s->checkpoint_bytes, bytes));
}

/* What the lanes did lately, and what keeps them from more; false: it is not known yet. */
static bool add_lanes(struct view *view)
{
    struct bottleneck_found found;
    if (!bottleneck_recent(view->bottleneck, &found))
        return false;
    bottleneck_describe(&found, &view->out);
    return true;
}

static void add_node_line(struct view *view, const struct run_node_stats *node)
{
    const struct counters *c = &node->counters;
    struct byte_buffer *out = &view->out;
    buffer_printf(out, "  %-*.*s %12" PRIu64 " in", NAME_WIDTH, NAME_WIDTH, node->node->label, c->in);
    if (c->passed + c->emitted > 0)
        buffer_printf(out, " %12" PRIu64 " out", c->passed + c->emitted);
    const struct {
        const char *name;
        uint64_t value;
    } rest[] = {{"filtered", c->filtered},
                {"duplicate", c->duplicate},
                {"late", c->late},
                {"dead", c->dead},
                {"held", c->held}};
    for (size_t i = 0; i < ARRAY_COUNT(rest); i++)
        if (rest[i].value > 0)
            buffer_printf(out, "  %s %" PRIu64, rest[i].name, rest[i].value);
    double fill = view->stats.queue_fill[node->node->stage];
    if (fill >= 0.5)
        buffer_printf(out, "  queue %.0f %%", fill * 100);
}

/* The figures that tell how good a learner is, over the whole run or the last window; false: there are
 * none. */
static bool add_report(struct view *view, const struct report *report, bool is_window)
{
    static const char *const shown[] = {"logloss", "auc", "calibration", "rmse", "mae", "device_busy"};
    bool is_first = true;
    for (uint32_t i = 0; i < report->count; i++) {
        const struct report_item *item = &report->items[i];
        bool is_shown = false;
        for (size_t k = 0; k < ARRAY_COUNT(shown); k++)
            is_shown |= strcmp(item->name, shown[k]) == 0;
        if (!is_shown || item->is_window != is_window)
            continue;
        buffer_printf(&view->out, "%s  %s %.5f",
                      is_first ? (is_window ? "    last window:" : "    run:        ") : "", item->name,
                      item->value);
        is_first = false;
    }
    return !is_first;
}

static double figure(const struct report *report, const char *name)
{
    const struct report_item *item = report_find(report, name);
    return item == NULL ? (double)NAN : item->value;
}

static const char *words(const struct report *report, const char *name)
{
    const struct report_item *item = report_find(report, name);
    return item == NULL || item->text == NULL ? "" : item->text;
}

/* "  round trip 1.2 ms, p99 3.4": how long brokers take to answer. */
static void add_round_trip(struct byte_buffer *out, const struct report *report)
{
    double average = figure(report, "round_trip_ms"), p99 = figure(report, "round_trip_p99_ms");
    if (!isnan(average))
        buffer_printf(out, "  round trip %.1f ms, p99 %.1f", average, p99);
}

/* Records that nobody may read yet, because a transaction has been open for OPEN_SECONDS or more; they do
 * not count as lag. */
enum { OPEN_SECONDS = 2 };
static void add_open(struct byte_buffer *out, const struct report *report)
{
    double records = figure(report, "open_transaction_records"),
           seconds = figure(report, "open_transaction_seconds");
    char time[32];
    if (records > 0 && seconds >= OPEN_SECONDS)
        buffer_printf(out, ", and %.0f more wait behind an open transaction of another producer (%s, for %s)",
                      records, words(report, "open_transaction_partition"),
                      format_duration((int64_t)(seconds * 1e6), time));
}

/* How far a live source is behind, and what it has fetched ahead; false: not known. */
static bool add_lag(struct byte_buffer *out, const struct report *report)
{
    double records = figure(report, "lag_records"), seconds = figure(report, "lag_seconds");
    const char *worst = words(report, "lag_worst_partition");
    char bytes[32], time[32] = "?";
    if (isnan(records))
        return false;
    if (!isnan(seconds))
        snprintf(time, sizeof(time), "%.1f s", seconds);
    buffer_printf(out, "    behind %s%.0f records, %s",
                  records > 0 && figure(report, "lag_has_gaps") > 0 ? "at most " : "", records,
                  records == 0 ? "0 s" : time);
    if (worst[0] != '\0')
        buffer_printf(out, " (%s: %.0f)", worst, figure(report, "lag_worst_records"));
    add_open(out, report);
    buffer_printf(out, "  fetched ahead %s, %.0f %%", format_bytes(figure(report, "fetched_bytes"), bytes),
                  figure(report, "fetched_share") * 100);
    add_round_trip(out, report);
    return true;
}

/* What a sink has not sent yet; false: the sink sends at once, or gives no such figures. */
static bool add_waiting(struct byte_buffer *out, const struct report *report)
{
    const struct report_item *epochs = report_find(report, "epochs_waiting");
    double bytes = figure(report, "bytes_waiting");
    char text[32];
    if (isnan(bytes))
        return false;
    if (epochs != NULL)
        buffer_printf(out, "    transaction %s  epochs not out %.0f,", words(report, "transaction"),
                      epochs->value);
    else
        buffer_printf(out, "    records not acknowledged %.0f,", figure(report, "records_waiting"));
    buffer_printf(out, " %s, %.0f %% of the outbox", format_bytes(bytes, text),
                  figure(report, "outbox_share") * 100);
    add_round_trip(out, report);
    return true;
}

static bool add_error(struct byte_buffer *out, const struct report *report)
{
    if (report->error[0] == '\0')
        return false;
    buffer_printf(out, "    trouble: %s", report->error);
    return true;
}

/* A key that has more rows than a lane's share; false: there is none. */
static bool add_hot_key(struct byte_buffer *out, const struct report *report)
{
    const char *line = words(report, "hot_key");
    if (line[0] == '\0')
        return false;
    buffer_printf(out, "    hot key: %s", line);
    return true;
}

/* The warning that nearly all rows that came to the node are dead letters; false: they are not. */
static bool add_dead(struct view *view, uint32_t node)
{
    if (!view->watch->nodes[node].is_bad)
        return false;
    buffer_printf(&view->out, "    WARNING: %s", view->watch->nodes[node].text);
    return true;
}

static bool (*const live_lines[])(struct byte_buffer *out, const struct report *report) = {
    add_lag, add_waiting, add_hot_key, add_error};

static void draw_screen(struct view *view)
{
    unsigned width = terminal_width();
    buffer_clear(&view->out);
    if (view->lines > 0)
        buffer_printf(&view->out, "\x1b[%uA\r", view->lines);
    view->lines = 0;
    size_t begin = view->out.length;
    add_head(view);
    end_line(view, begin, width);
    begin = view->out.length;
    add_time(view);
    end_line(view, begin, width);
    begin = view->out.length;
    if (add_lanes(view))
        end_line(view, begin, width);
    for (uint32_t i = 0; i < view->stats.nodes_count; i++) {
        begin = view->out.length;
        add_node_line(view, &view->stats.nodes[i]);
        end_line(view, begin, width);
        begin = view->out.length;
        if (add_dead(view, i))
            end_line(view, begin, width);
        for (int is_window = 0; is_window < 2; is_window++) {
            begin = view->out.length;
            if (add_report(view, &view->stats.nodes[i].report, is_window == 1))
                end_line(view, begin, width);
        }
        for (size_t k = 0; k < ARRAY_COUNT(live_lines); k++) {
            begin = view->out.length;
            if (live_lines[k](&view->out, &view->stats.nodes[i].report))
                end_line(view, begin, width);
        }
    }
    for (const char *line = view->beside.data, *end; view->beside.length > 0 && *line != '\0';
         line = end + 1) {
        end = strchr(line, '\n');
        begin = view->out.length;
        buffer_printf(&view->out, "  %.*s", (int)(end - line), line);
        end_line(view, begin, width);
    }
    buffer_printf(&view->out, "\x1b[J");
    fwrite(view->out.data, 1, view->out.length, stderr);
}

static void print_line(struct view *view)
{
    struct counters sum;
    uint64_t written;
    buffer_clear(&view->out);
    add_head(view);
    add_totals(view, &sum, &written);
    buffer_printf(&view->out,
                  "  out %" PRIu64 "  filtered %" PRIu64 "  duplicate %" PRIu64 "  late %" PRIu64
                  "  dead %" PRIu64 "  ",
                  written, sum.filtered, sum.duplicate, sum.late, sum.dead);
    add_time(view);
    buffer_printf(&view->out, "  ");
    add_lanes(view);
    for (uint32_t i = 0; i < view->stats.nodes_count; i++) {
        add_dead(view, i);
        add_report(view, &view->stats.nodes[i].report, false);
        add_report(view, &view->stats.nodes[i].report, true);
        for (size_t k = 0; k < ARRAY_COUNT(live_lines); k++)
            live_lines[k](&view->out, &view->stats.nodes[i].report);
    }
    for (size_t i = 0; i < view->beside.length; i++)
        if (i == 0 || view->beside.data[i - 1] == '\n')
            buffer_printf(&view->out, "    %.*s", (int)strcspn(view->beside.data + i, "\n"),
                          view->beside.data + i);
    log_progress((struct str){view->out.data, view->out.length});
}

/* A watermark that does not move although records come holds rows back. Reports this after half the time
 * between two lines of progress. */
static void look_at_watermark(struct view *view, int64_t now)
{
    const struct run_stats *s = &view->stats;
    int64_t every_us = view->progress.every_us == 0 ? PROGRESS_EVERY_US : view->progress.every_us;
    if (s->watermark != view->watermark || s->watermark == TIME_MAX) {
        view->watermark = s->watermark;
        view->moved_us = now;
        view->moved_records = s->records_life;
    }
    int64_t stood_us = now - view->moved_us;
    view->still_us = stood_us >= every_us / 2 && s->records_life > view->moved_records ? stood_us : 0;
}

/* The state of which each change is reported at once (control/progress.h). */
static const char *state_of(struct view *view, struct byte_buffer *out)
{
    buffer_clear(out);
    for (uint32_t i = 0; i < view->stats.nodes_count; i++) {
        const struct run_node_stats *node = &view->stats.nodes[i];
        if (node->counters.dead > 0)
            buffer_printf(out, "%.*s: dead; ", STR_ARGS(node->node->name));
        if (node->report.error[0] != '\0')
            buffer_printf(out, "%.*s: %s; ", STR_ARGS(node->node->name), node->report.error);
        if (words(&node->report, "hot_key")[0] != '\0')
            buffer_printf(out, "%.*s: hot key; ", STR_ARGS(node->node->name));
    }
    if (view->still_us > 0)
        buffer_printf(out, "still; ");
    buffer_append(out, "", 1);
    return out->data;
}

/* Writes new warnings, as lines that stay, even where no progress is shown. */
static void warn(struct view *view)
{
    bool is_new[PLAN_NODES_MAX];
    if (!dead_watch_look(view->watch, &view->stats, is_new))
        return;
    for (uint32_t i = 0; i < view->stats.nodes_count; i++)
        if (is_new[i])
            log_say(LOG_LEVEL_WARNING, "WARNING: %s", view->watch->nodes[i].text);
    view->lines = 0;
}

/* Looks at what is beside the run; writes its warning, as a line that stays. */
static void look_beside(struct view *view)
{
    buffer_clear(&view->beside);
    if (view->more.show == NULL)
        return;
    unsigned width = view->is_terminal ? terminal_width() - 3 : BESIDE_WIDTH;
    const char *warning = view->more.show(view->more.user, width, &view->beside);
    buffer_append(&view->beside, "", 1); /* a NUL behind the lines */
    view->beside.length--;
    if (warning == NULL)
        return;
    log_say(LOG_LEVEL_WARNING, "WARNING: %s", warning);
    view->lines = 0;
}

static void look_at_rate(struct view *view, int64_t now)
{
    uint64_t records = view->stats.records_life; /* without the records of earlier lives */
    double rate = (double)(records - view->last_records) / ((double)MAX(now - view->last_us, 1) / 1e6);
    view->rate = view->last_records == 0 ? rate : view->rate * 0.7 + rate * 0.3;
    view->last_records = records;
    view->last_us = now;
}

static void publish(struct view *view, const struct run *run)
{
    struct bottleneck_found recent;
    bool is_known = bottleneck_recent(view->bottleneck, &recent);
    api_publish(view->api, run, &view->stats, view->watch, is_known ? &recent : NULL);
}

void view_update(struct view *view, struct run *run)
{
    int64_t now = os_monotonic_us();
    bool is_drawn = view->is_terminal && !view->is_quiet;
    if (now - view->looked_us < (is_drawn ? VIEW_REDRAW_US : VIEW_LOOK_US))
        return;
    view->looked_us = now;
    log_look();
    run_stats(run, &view->stats);
    bottleneck_look(view->bottleneck, &view->stats);
    warn(view);
    look_beside(view);
    if (view->api != NULL)
        publish(view, run);
    if (view->is_quiet)
        return;
    look_at_watermark(view, now);
    if (!view->is_terminal && !progress_is_due(&view->progress, now, state_of(view, &view->out)))
        return;
    look_at_rate(view, now);
    if (view->is_terminal)
        draw_screen(view);
    else
        print_line(view);
}

void view_message(struct view *view, const char *text)
{
    if (!view->is_quiet && log_form() == LOG_FORM_TEXT)
        fprintf(stderr, "\n"); /* behind the view, or what the terminal shows of Ctrl-C */
    if (!view->is_quiet)
        log_say(LOG_LEVEL_INFO, "%s", text);
    view->lines = 0;
}

void view_free(struct view *view)
{
    buffer_free(&view->out);
    buffer_free(&view->beside);
    free(view);
}
