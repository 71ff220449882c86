#include "control/history_figures.h"

#include "control/ranked.h"

#include "core/learner.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A row stands for the seconds since the last one, up to this many; a longer silence of the control thread is a gap. */
enum { COVERS_MAX = 5 };

/* What figures are computed from. */
struct look {
    const struct run_stats *stats;
    const struct bottleneck_found *recent; /* NULL: not known */
    const struct run_node_stats *node;     /* NULL: the run */
};

struct figure {
    struct history_figure is;
    double (*get)(const struct look *look); /* NaN: not known */
    const char *report;                     /* get NULL: the value of that name in the node's report */
    bool is_rate;                           /* a count that grows: the figure is its growth in a second */
};

/* --- Values --- */

static double behind(const struct look *look, int64_t watermark)
{
    int64_t newest = look->stats->newest_event;
    if (watermark == TIME_MIN || watermark == TIME_MAX || newest == TIME_MIN || newest == TIME_MAX)
        return (double)NAN;
    return MAX((double)newest - (double)watermark, 0) / 1e6;
}

static double run_records(const struct look *look)
{
    return (double)look->stats->records_life;
}
static double run_behind(const struct look *look)
{
    return behind(look, look->stats->watermark);
}
static double run_checkpoint_age(const struct look *look)
{
    return look->stats->checkpoint_age_us < 0 ? (double)NAN : (double)look->stats->checkpoint_age_us / 1e6;
}
static double run_checkpoint_stop(const struct look *look)
{
    return look->stats->checkpoints == 0 ? (double)NAN : (double)look->stats->checkpoint_stop_us / 1e6;
}
static double lanes_share(const struct look *look, enum run_lane_time from, enum run_lane_time to)
{
    double sum = 0;
    if (look->recent == NULL)
        return (double)NAN;
    for (uint32_t t = from; t < to; t++)
        sum += look->recent->shares[t];
    return sum;
}
static double run_decode(const struct look *look)
{
    return lanes_share(look, RUN_LANE_DECODES, RUN_LANE_DECODES + 1);
}
static double run_process(const struct look *look)
{
    return lanes_share(look, RUN_LANE_PROCESSES, RUN_LANE_PROCESSES + 1);
}
static double run_wait_for_records(const struct look *look)
{
    return lanes_share(look, RUN_LANE_WAITS, RUN_LANE_WAITS + 1);
}
static double run_blocked(const struct look *look)
{
    return lanes_share(look, RUN_LANE_BEHIND_NODES, RUN_LANE_TIMES);
}

static double node_in(const struct look *look)
{
    return (double)look->node->counters.in;
}
static double node_out(const struct look *look)
{
    return (double)(look->node->counters.passed + look->node->counters.emitted);
}
static double node_absorbed(const struct look *look)
{
    return (double)look->node->counters.absorbed;
}
static double node_bad(const struct look *look)
{
    return (double)(look->node->counters.dead + look->node->counters.late);
}
static double node_share(const struct look *look)
{
    return look->recent == NULL ? (double)NAN : look->recent->node_shares[look->node->node->place];
}
static double node_behind(const struct look *look)
{
    return behind(look, look->node->time.watermark);
}
static double node_queue(const struct look *look)
{
    uint32_t stage = look->node->node->stage;
    return stage == 0 ? (double)NAN : look->stats->queue_fill[stage];
}
static double node_held(const struct look *look)
{
    return (double)look->node->counters.held;
}

/* The value of that name of the learner's last window of metrics; of several labels: the first one's. */
static double of_window(const struct look *look, const char *wanted)
{
    const struct report *report = &look->node->report;
    for (uint32_t i = 0; i < report->count; i++) {
        const char *dot = strrchr(report->items[i].name, '.');
        if (report->items[i].is_window && strcmp(dot != NULL ? dot + 1 : report->items[i].name, wanted) == 0)
            return report->items[i].value;
    }
    return (double)NAN;
}
static double learner_loss(const struct look *look)
{
    double logloss = of_window(look, "logloss");
    return isnan(logloss) ? of_window(look, "rmse") : logloss;
}
static double learner_auc(const struct look *look)
{
    return of_window(look, "auc");
}
static double learner_calibration(const struct look *look)
{
    return of_window(look, "calibration");
}

/* Of a learner that chooses items: the value for the longest list that it is measured by. */
static double ranked(const struct look *look, const char *figure)
{
    const struct report_item *item = ranked_largest(&look->node->report, figure, true);
    return item == NULL ? (double)NAN : item->value;
}
static double chooser_hr(const struct look *look)
{
    return ranked(look, "hr");
}
static double chooser_ndcg(const struct look *look)
{
    return ranked(look, "ndcg");
}
static double chooser_coverage(const struct look *look)
{
    return ranked(look, "coverage");
}

/* --- The tables --- */

#define RATE(name_, unit_, get_)                                                                             \
    {                                                                                                        \
        .is = {name_, unit_, HISTORY_MEAN}, .get = get_, .is_rate = true                                     \
    }
#define GAUGE(name_, unit_, roll_, get_)                                                                     \
    {                                                                                                        \
        .is = {name_, unit_, roll_}, .get = get_                                                             \
    }
#define REPORT(name_, unit_, roll_, report_)                                                                 \
    {                                                                                                        \
        .is = {name_, unit_, roll_}, .report = report_                                                       \
    }

#define NODE_SHARE  GAUGE("lane_share", "share of the fullest lane's time", HISTORY_MAX, node_share)
#define NODE_BEHIND GAUGE("watermark_behind", "seconds behind the newest event", HISTORY_MAX, node_behind)
#define NODE_QUEUE                                                                                           \
    GAUGE("queue", "share of the micro-batches that may wait for the stage", HISTORY_MAX, node_queue)

/* A chooser is a learner that chooses items. */
enum meaning { OF_SOURCE, OF_OPERATOR, OF_LEARNER, OF_SINK, OF_RUN, OF_CHOOSER, MEANINGS };

/* In the order of the columns' values: who changes this raises HISTORY_VERSION. */
static const struct figure figures[MEANINGS][HISTORY_FIGURES] = {
    [OF_SOURCE] = {RATE("rows_in", "rows/s", node_in),
                   RATE("rows_out", "rows/s", node_out),
                   RATE("rows_bad", "dead and late rows/s", node_bad),
                   NODE_SHARE,
                   NODE_BEHIND,
                   REPORT("lag_records", "records", HISTORY_MAX, "lag_records"),
                   REPORT("lag", "seconds", HISTORY_MAX, "lag_seconds"),
                   {.is = {"fetched", "bytes/s", HISTORY_MEAN}, .report = "fetched_bytes", .is_rate = true}},
    [OF_OPERATOR] = {RATE("rows_in", "rows/s", node_in), RATE("rows_out", "rows/s", node_out),
                     RATE("rows_bad", "dead and late rows/s", node_bad), NODE_SHARE, NODE_BEHIND, NODE_QUEUE,
                     GAUGE("rows_held", "rows", HISTORY_LAST, node_held),
                     REPORT("state_entries", "entries in memory", HISTORY_LAST, "state_entries")},
    [OF_LEARNER] = {RATE("rows_learned", "rows/s", node_absorbed),
                    RATE("rows_bad", "rejected and late rows/s", node_bad), NODE_SHARE, NODE_QUEUE,
                    REPORT("table_rows", "rows in memory and on disk", HISTORY_LAST, "rows"),
                    GAUGE("loss", "logloss, else rmse, of the last window of metrics", HISTORY_LAST,
                          learner_loss),
                    GAUGE("auc", "of the last window of metrics", HISTORY_LAST, learner_auc),
                    GAUGE("calibration", "predicted / observed, of the last window of metrics", HISTORY_LAST,
                          learner_calibration)},
    [OF_SINK] = {RATE("rows_in", "rows/s", node_in),
                 {.is = {"records_sent", "records/s", HISTORY_MEAN},
                  .report = "records_sent",
                  .is_rate = true},
                 RATE("rows_bad", "dead and late rows/s", node_bad),
                 NODE_SHARE,
                 NODE_BEHIND,
                 NODE_QUEUE,
                 REPORT("records_waiting", "records", HISTORY_MAX, "records_waiting"),
                 REPORT("outbox", "share of the outbox", HISTORY_MAX, "outbox_share")},
    [OF_RUN] = {RATE("records", "records/s", run_records),
                GAUGE("decode", "share of the lanes' time", HISTORY_MEAN, run_decode),
                GAUGE("process", "share of the lanes' time", HISTORY_MEAN, run_process),
                GAUGE("wait_for_records", "share of the lanes' time", HISTORY_MEAN, run_wait_for_records),
                GAUGE("blocked", "share of the lanes' time", HISTORY_MEAN, run_blocked),
                GAUGE("watermark_behind", "seconds behind the newest event", HISTORY_MAX, run_behind),
                GAUGE("checkpoint_age", "seconds", HISTORY_MAX, run_checkpoint_age),
                GAUGE("checkpoint_stop", "seconds that a lane stood still for the last checkpoint",
                      HISTORY_MAX, run_checkpoint_stop)},
    [OF_CHOOSER] = {RATE("rows_learned", "rows/s", node_absorbed),
                    RATE("rows_bad", "rejected and late rows/s", node_bad), NODE_SHARE, NODE_QUEUE,
                    REPORT("loss", "mean loss of the last step's targets", HISTORY_LAST, "step_loss"),
                    GAUGE("hr", "hits / ranked events of the last window, largest k of metrics_at",
                          HISTORY_LAST, chooser_hr),
                    GAUGE("ndcg", "of the last window, largest k of metrics_at", HISTORY_LAST, chooser_ndcg),
                    GAUGE("coverage",
                          "items in lists of the last window / all items, largest k of metrics_at",
                          HISTORY_LAST, chooser_coverage)},
};

const char *const history_roll_names[] = {
    [HISTORY_MEAN] = "mean", [HISTORY_LAST] = "last", [HISTORY_MAX] = "max"};

/* The first output of a learner that chooses items has lists, and is called so. */
static bool chooses_items(const struct plan_node *node)
{
    const char *output = node->output_names[LEARNER_PREDICTIONS];
    return node->tag == PLAN_LEARNER && output != NULL && strcmp(output, "top") == 0;
}

static enum meaning meaning_of(const struct plan_node *node)
{
    if (node == NULL)
        return OF_RUN;
    if (chooses_items(node))
        return OF_CHOOSER;
    return node->tag == PLAN_SOURCE    ? OF_SOURCE
           : node->tag == PLAN_LEARNER ? OF_LEARNER
           : node->tag == PLAN_SINK    ? OF_SINK
                                       : OF_OPERATOR;
}

const struct history_figure *history_figure(const struct plan_node *node, uint32_t index)
{
    leat_assert(index < HISTORY_FIGURES);
    return &figures[meaning_of(node)][index].is;
}

/* --- Each second --- */

struct history_watch {
    const struct plan *plan;
    struct history *rings;
    int64_t begun_us, looked_us; /* monotonic; looked_us: of the counts in `before` */
    uint64_t tick;               /* seconds since begun_us at the last look */
    bool has_before;
    double *before; /* of figures that are rates: the count at the last look */
    float *values;  /* of the row that is made */
};

/* Says each line. */
static void say(const struct byte_buffer *lines)
{
    for (size_t i = 0; i < lines->length;) {
        const char *end = memchr(lines->data + i, '\n', lines->length - i);
        size_t length = end == NULL ? lines->length - i : (size_t)(end - lines->data) - i;
        log_say(LOG_LEVEL_WARNING, "WARNING: %.*s", (int)length, lines->data + i);
        i += length + 1;
    }
}

struct history_watch *history_watch_new(const struct plan *plan, const char *folder)
{
    struct history_column columns[HISTORY_COLUMNS_MAX] = {0};
    struct byte_buffer said = {0};
    uint32_t count = plan->nodes_count + 1;
    leat_assert(count <= HISTORY_COLUMNS_MAX);
    for (uint32_t c = 0; c < count; c++) {
        const struct plan_node *node = c == 0 ? NULL : &plan->nodes[c - 1];
        columns[c] =
            (struct history_column){.name = node == NULL ? "" : node->part, .meaning = meaning_of(node)};
        for (uint32_t f = 0; f < HISTORY_FIGURES; f++)
            columns[c].rolls[f] = history_figure(node, f)->roll;
    }
    struct history *rings =
        history_open(folder[0] == '\0' ? NULL : folder, columns, count, os_wall_us(), &said);
    say(&said);
    buffer_free(&said);
    if (rings == NULL)
        return NULL;
    struct history_watch *watch = mem_calloc(1, sizeof(*watch));
    watch->plan = plan;
    watch->rings = rings;
    watch->begun_us = os_monotonic_us();
    watch->before = mem_calloc(count * HISTORY_FIGURES, sizeof(*watch->before));
    watch->values = mem_calloc(count * HISTORY_FIGURES, sizeof(*watch->values));
    return watch;
}

void history_watch_free(struct history_watch *watch)
{
    if (watch == NULL)
        return;
    history_close(watch->rings);
    free(watch->before);
    free(watch->values);
    free(watch);
}

static double value_of(const struct figure *figure, const struct look *look)
{
    if (figure->get != NULL)
        return figure->get(look);
    const struct report_item *item = report_find(&look->node->report, figure->report);
    return item == NULL || item->text != NULL ? (double)NAN : item->value;
}

/* seconds: since the last look. */
static void take(struct history_watch *watch, const struct look *look, uint32_t column, double seconds)
{
    const struct figure *table = figures[meaning_of(look->node == NULL ? NULL : look->node->node)];
    for (uint32_t f = 0; f < HISTORY_FIGURES; f++) {
        double value = value_of(&table[f], look), *before = &watch->before[column * HISTORY_FIGURES + f];
        double growth = value - *before;
        *before = value;
        if (table[f].is_rate)
            value = growth >= 0 ? growth / seconds : (double)NAN;
        watch->values[column * HISTORY_FIGURES + f] = isfinite(value) ? (float)value : NAN;
    }
}

void history_watch_look(struct history_watch *watch, const struct run_stats *stats,
                        const struct bottleneck_found *recent)
{
    int64_t now = os_monotonic_us();
    uint64_t tick = (uint64_t)(now - watch->begun_us) / US_PER_SECOND;
    if (watch->has_before && tick == watch->tick)
        return;
    double seconds = (double)MAX(now - watch->looked_us, 1) / 1e6;
    struct look look = {.stats = stats, .recent = recent};
    take(watch, &look, 0, seconds);
    for (uint32_t i = 0; i < stats->nodes_count; i++) {
        look.node = &stats->nodes[i];
        take(watch, &look, look.node->node->place + 1, seconds);
    }
    uint64_t covers = tick - watch->tick;
    if (watch->has_before && covers <= COVERS_MAX) {
        struct byte_buffer said = {0};
        history_add(watch->rings, tick, (uint32_t)covers, os_wall_us(), watch->values, &said);
        say(&said);
        buffer_free(&said);
    }
    watch->has_before = true;
    watch->tick = tick;
    watch->looked_us = now;
}

struct history *history_watch_rings(struct history_watch *watch)
{
    return watch->rings;
}
