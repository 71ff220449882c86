#include "control/picture.h"

#include "control/ranked.h"
#include "control/summary.h"
#include "control/workers.h"
#include "core/civil.h"
#include "core/os.h"
#include "core/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <sys/ioctl.h>

enum { BAR_WIDTH = 24, NAME_WIDTH = 28 };

/* --- Pace --- */

void pace_begin(struct pace *pace, uint64_t records, int64_t now_us)
{
    *pace = (struct pace){.last_us = now_us,
                          .last_records = records,
                          .moved_us = now_us,
                          .moved_records = records,
                          .watermark = TIME_MIN};
}

void pace_look_at_rate(struct pace *pace, const struct run_stats *stats, int64_t now_us)
{
    uint64_t records = stats->records_life; /* without the records of earlier lives */
    double rate = (double)(records - pace->last_records) / ((double)MAX(now_us - pace->last_us, 1) / 1e6);
    pace->rate = pace->last_records == 0 || !pace->has_rate ? rate : pace->rate * 0.7 + rate * 0.3;
    pace->has_rate = true;
    pace->last_records = records;
    pace->last_us = now_us;
}

void pace_look_at_watermark(struct pace *pace, const struct run_stats *stats, int64_t after_us,
                            int64_t now_us)
{
    if (stats->watermark != pace->watermark || stats->watermark == TIME_MAX) {
        pace->watermark = stats->watermark;
        pace->moved_us = now_us;
        pace->moved_records = stats->records_life;
    }
    int64_t stood_us = now_us - pace->moved_us;
    pace->still_us = stood_us >= after_us && stats->records_life > pace->moved_records ? stood_us : 0;
}

/* --- Pieces --- */

static void add_bar(struct byte_buffer *out, double share)
{
    int full = (int)(share * BAR_WIDTH + 0.5);
    for (int i = 0; i < BAR_WIDTH; i++)
        buffer_printf(out, "%s", i < full ? "█" : "░");
}

static void add_head(const struct picture *p, bool has_bar, struct byte_buffer *out)
{
    const struct run_stats *s = p->stats;
    char rate[32], elapsed[32], left[32];
    buffer_printf(out, "%.*s  %s  %" PRIu64 " events  %s", STR_ARGS(p->job),
                  format_duration(s->elapsed_us, elapsed), s->records, format_rate(p->pace->rate, rate));
    bool is_behind_end = s->has_input_ended && !s->is_finished;
    double share = is_behind_end ? s->end_share_done : summary_share_done(s);
    if (is_behind_end)
        buffer_printf(out, "  the input has ended, operators go on");
    if (s->is_part) { /* of the job's input nobody knows here how much is done */
        buffer_printf(out, "  figures of worker %u of %u alone", s->worker, s->workers);
        return;
    }
    if (!(share >= 0))
        return;
    buffer_printf(out, "  ");
    if (has_bar)
        add_bar(out, MIN(share, 1));
    buffer_printf(out, " %3.0f %%", MIN(share, 1) * 100);
    if (is_behind_end)
        return;
    /* The share done by this life. */
    double own = share * (double)s->records_life / (double)MAX(s->records, 1);
    if (own > 0.01 && share < 1)
        buffer_printf(out, "  %s left",
                      format_duration((int64_t)((double)s->elapsed_us * (1 - share) / own), left));
}

static void add_totals(const struct picture *p, struct counters *sum, uint64_t *written)
{
    *sum = (struct counters){0};
    *written = 0;
    for (uint32_t i = 0; i < p->stats->nodes_count; i++) {
        const struct run_node_stats *node = &p->stats->nodes[i];
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

static void add_time(const struct picture *p, struct byte_buffer *out)
{
    const struct run_stats *s = p->stats;
    char text[32], age[32], duration[32], bytes[32];
    if (s->watermark == TIME_MIN || s->watermark == TIME_MAX)
        buffer_printf(out, "watermark %s", s->watermark == TIME_MIN ? "none yet" : "end");
    else
        buffer_printf(out, "watermark %.*s", (int)civil_format(s->watermark, text), text);
    if (s->watermark != TIME_MIN && s->watermark != TIME_MAX)
        add_holder(out, s);
    if (p->pace->still_us > 0)
        buffer_printf(out, ", has not moved for %s", format_duration(p->pace->still_us, duration));
    if (s->checkpoints > 0)
        buffer_printf(out, "   checkpoint %" PRIu64 ": %s ago, took %s, %s", s->checkpoint_epoch,
                      format_duration(s->checkpoint_age_us, age), format_duration(s->checkpoint_us, duration),
                      format_bytes((double)s->checkpoint_bytes, bytes));
    if (s->has_store && s->store_behind > 0)
        buffer_printf(out, ", the store is %" PRIu64 " behind (%s)%s", s->store_behind,
                      format_duration(s->store_behind_us, duration),
                      s->sinks_await_store ? ", and sinks wait for it" : "");
}

/* What the lanes did lately, and what keeps them from more; false: it is not known yet. */
static bool add_lanes(const struct picture *p, struct byte_buffer *out)
{
    if (p->recent == NULL)
        return false;
    bottleneck_describe(p->recent, out);
    return true;
}

static void add_node_line(const struct picture *p, const struct run_node_stats *node, struct byte_buffer *out)
{
    const struct counters *c = &node->counters;
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
    double fill = p->stats->queue_fill[node->node->stage];
    if (fill >= 0.5)
        buffer_printf(out, "  queue %.0f %%", fill * 100);
}

/* Of a learner that chooses items: what is shown, for the longest list that it is measured by. */
static bool is_shown_ranked(const struct report *report, const struct report_item *item)
{
    static const char *const shown[] = {"hr", "ndcg", "mrr", "coverage"};
    for (size_t k = 0; k < ARRAY_COUNT(shown); k++)
        if (item == ranked_largest(report, shown[k], item->is_window))
            return true;
    return false;
}

/* The figures that tell how good a learner is, over the whole run or the last window; false: there are
 * none. */
static bool add_report(const struct report *report, bool is_window, struct byte_buffer *out)
{
    static const char *const shown[] = {"logloss", "auc",       "calibration", "rmse",
                                        "mae",     "step_loss", "device_busy"};
    bool is_first = true;
    for (uint32_t i = 0; i < report->count; i++) {
        const struct report_item *item = &report->items[i];
        if (item->is_window != is_window)
            continue;
        bool is_shown = is_shown_ranked(report, item);
        for (size_t k = 0; k < ARRAY_COUNT(shown); k++)
            is_shown |= strcmp(item->name, shown[k]) == 0;
        if (!is_shown)
            continue;
        buffer_printf(out, "%s  %s %.5f",
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

static const char *text_of(const struct report *report, const char *name)
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
                      records, text_of(report, "open_transaction_partition"),
                      format_duration((int64_t)(MIN(seconds, 1e9) * 1e6), time));
}

/* How far a live source is behind, and what it has fetched ahead; false: not known. */
static bool add_lag(struct byte_buffer *out, const struct report *report)
{
    double records = figure(report, "lag_records"), seconds = figure(report, "lag_seconds");
    const char *worst = text_of(report, "lag_worst_partition");
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
        buffer_printf(out, "    transaction %s  epochs not out %.0f,", text_of(report, "transaction"),
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
    const char *line = text_of(report, "hot_key");
    if (line[0] == '\0')
        return false;
    buffer_printf(out, "    hot key: %s", line);
    return true;
}

/* The warning that nearly all rows that came to the node are dead letters; false: they are not. */
static bool add_dead(const struct picture *p, uint32_t node, struct byte_buffer *out)
{
    if (!p->watch->nodes[node].is_bad)
        return false;
    buffer_printf(out, "    WARNING: %s", p->watch->nodes[node].text);
    return true;
}

static bool (*const live_lines[])(struct byte_buffer *out, const struct report *report) = {
    add_lag, add_waiting, add_hot_key, add_error};

/* --- Whole --- */

static bool acts_on_terminals(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c ||
           (code >= 0x200e && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

void picture_clean(struct byte_buffer *out, size_t from)
{
    size_t to = from;
    for (size_t at = from; at < out->length;) {
        uint32_t code = 0;
        size_t bytes = utf8_decode(out->data + at, out->length - at, &code);
        if (bytes == 0 || acts_on_terminals(code)) {
            out->data[to++] = code == '\n' || code == '\t' ? ' ' : '?';
            at += MAX(bytes, (size_t)1);
            continue;
        }
        memmove(out->data + to, out->data + at, bytes);
        to += bytes;
        at += bytes;
    }
    out->length = to;
}

struct drawing {
    struct byte_buffer *out;
    uint32_t width, lines;
    const char *end;
    size_t begin; /* of the line */
};

/* Ends a line. Cuts it, so that each line takes one row of the terminal. */
static void end_line(struct drawing *d)
{
    struct byte_buffer *out = d->out;
    picture_clean(out, d->begin);
    size_t at = d->begin;
    for (uint32_t length = 0; d->width > 0 && at < out->length && length < d->width - 1; length++) {
        at++;
        while (at < out->length && ((unsigned char)out->data[at] & 0xc0) == 0x80)
            at++;
    }
    if (d->width > 0)
        out->length = at;
    buffer_printf(out, "%s", d->end);
    d->begin = out->length;
    d->lines++;
}

static void draw_node(const struct picture *p, uint32_t place, struct drawing *d)
{
    const struct run_node_stats *node = &p->stats->nodes[place];
    add_node_line(p, node, d->out);
    end_line(d);
    if (add_dead(p, place, d->out))
        end_line(d);
    for (int is_window = 0; is_window < 2; is_window++)
        if (add_report(&node->report, is_window == 1, d->out))
            end_line(d);
    for (size_t k = 0; k < ARRAY_COUNT(live_lines); k++)
        if (live_lines[k](d->out, &node->report))
            end_line(d);
}

uint32_t picture_draw(const struct picture *p, uint32_t width, const char *end, struct byte_buffer *out)
{
    struct drawing d = {.out = out, .width = width, .end = end, .begin = out->length};
    add_head(p, true, out);
    end_line(&d);
    add_time(p, out);
    end_line(&d);
    if (add_lanes(p, out))
        end_line(&d);
    for (uint32_t i = 0; i < workers_lines(p->stats); i++) {
        buffer_printf(out, "  ");
        workers_line(p->stats, i, out);
        end_line(&d);
    }
    for (uint32_t i = 0; i < p->stats->nodes_count; i++)
        draw_node(p, i, &d);
    struct str left = p->beside;
    for (const char *newline; left.length > 0 && (newline = memchr(left.data, '\n', left.length)) != NULL;) {
        size_t length = (size_t)(newline - left.data);
        buffer_printf(out, "  %.*s", (int)length, left.data);
        end_line(&d);
        left = (struct str){newline + 1, left.length - length - 1};
    }
    return d.lines;
}

struct picture_size picture_terminal(int fd)
{
    struct winsize size = {0};
    if (ioctl(fd, TIOCGWINSZ, &size) != 0)
        size = (struct winsize){0};
    return (struct picture_size){.columns = size.ws_col > 0 ? size.ws_col : 80,
                                 .rows = size.ws_row > 0 ? size.ws_row : 24};
}

/* Where line `count` ends behind byte `at`. */
static size_t end_of_lines(const struct byte_buffer *out, size_t at, uint32_t count)
{
    for (; count > 0; count--)
        at = (size_t)((const char *)memchr(out->data + at, '\n', out->length - at) - out->data) + 1;
    return at;
}

/* "\x1b[?7l" and "\x1b[?7h": without and with lines that wrap. Lines are cut by their characters, of which some take two
 * columns. */
uint32_t picture_fit(const struct picture *picture, struct picture_size size, uint32_t lines,
                     const char *advice, struct byte_buffer *out)
{
    static const char end[] = "\x1b[K\n";
    buffer_printf(out, "\x1b[?7l");
    size_t begin = out->length;
    uint32_t count = picture_draw(picture, size.columns, end, out);
    if (count > lines) {
        out->length = end_of_lines(out, begin, lines - 1);
        struct drawing last = {.out = out, .width = size.columns, .end = end, .begin = out->length};
        buffer_printf(out, "%u more lines: %s", count - lines + 1, advice);
        end_line(&last);
    }
    buffer_printf(out, "\x1b[?7h");
    return MIN(count, lines);
}

void picture_line(const struct picture *p, struct byte_buffer *out)
{
    struct counters sum;
    uint64_t written;
    size_t begin = out->length;
    add_head(p, false, out);
    add_totals(p, &sum, &written);
    buffer_printf(out,
                  "  out %" PRIu64 "  filtered %" PRIu64 "  duplicate %" PRIu64 "  late %" PRIu64
                  "  dead %" PRIu64 "  ",
                  written, sum.filtered, sum.duplicate, sum.late, sum.dead);
    add_time(p, out);
    buffer_printf(out, "  ");
    add_lanes(p, out);
    for (uint32_t i = 0; i < p->stats->nodes_count; i++) {
        const struct report *report = &p->stats->nodes[i].report;
        add_dead(p, i, out);
        add_report(report, false, out);
        add_report(report, true, out);
        for (size_t k = 0; k < ARRAY_COUNT(live_lines); k++)
            live_lines[k](out, report);
    }
    struct str left = p->beside;
    for (const char *newline; left.length > 0 && (newline = memchr(left.data, '\n', left.length)) != NULL;) {
        size_t length = (size_t)(newline - left.data);
        buffer_printf(out, "    %.*s", (int)length, left.data);
        left = (struct str){newline + 1, left.length - length - 1};
    }
    picture_clean(out, begin);
    buffer_append(out, "\n", 1);
}
