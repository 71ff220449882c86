#include "control/metrics.h"

#include "control/ranked.h"

#include <inttypes.h>
#include <math.h>

enum metric_of {
    OF_PLAN,      /* one series, of the plan */
    OF_RUN,       /* one series */
    OF_NODE,      /* a series for each node that has the value */
    OF_ROWS,      /* for each node, by what became of its rows */
    OF_HELD,      /* for each node: rows that wait in it */
    OF_LANE,      /* for each lane, by what its time goes to */
    OF_OWN,       /* for each node and lane: the node's own time */
    OF_WORKER,    /* for each worker of a cluster whose figures are there, by its number */
    OF_PARTITION, /* for each partition that has a series (partition_series.h) */
    OF_LEFT_OUT,  /* one series: how many were left out */
    OF_FIGURE, /* for each node whose report has the figure, over the run and over the last window of metrics */
    OF_RANKED, /* likewise, for each length k of a list (ranked.h) */
};

/* Nodes stand in most samples: what is written of each is made once for an answer. */
struct answer {
    const struct metrics_source *source;
    struct metrics_text *text;
    struct byte_buffer node_labels; /* of all nodes, in the order of the plan */
    size_t ends[PLAN_NODES_MAX];    /* where those of each node end */
};

struct metric {
    struct metric_meaning meaning;
    enum metric_of of;
    double (*plan)(const struct plan *plan);      /* OF_PLAN; NaN: not known */
    double (*run)(const struct run_stats *stats); /* OF_RUN; NaN: not known */
    double (*node)(const struct run_stats *stats,
                   const struct run_node_stats *node);       /* OF_NODE; NaN: not known */
    double (*worker)(const struct run_worker_stats *worker); /* OF_WORKER; NaN: not known */
    const char *figure; /* OF_FIGURE: name in the report; OF_RANKED: that before `_k` */
    double unit;        /* OF_FIGURE: what the figure is multiplied by; 0: as it is */
};

/* --- Values --- */

static double seconds_of(int64_t us)
{
    return us < 0 ? (double)NAN : (double)us / 1e6;
}

/* An event time; NaN while there is none, or at the end of the input. */
static double moment(int64_t us)
{
    return us == TIME_MIN || us == TIME_MAX ? (double)NAN : (double)us / 1e6;
}

static double run_records(const struct run_stats *s)
{
    return (double)s->records_life;
}
static double run_elapsed(const struct run_stats *s)
{
    return seconds_of(s->elapsed_us);
}
static double run_micro_batches(const struct run_stats *s)
{
    return (double)s->micro_batches;
}
static double run_watermark(const struct run_stats *s)
{
    return moment(s->watermark);
}
static double run_newest(const struct run_stats *s)
{
    return moment(s->newest_event);
}
static double run_checkpoints(const struct run_stats *s)
{
    return (double)s->checkpoints;
}
static double plan_checkpoint_interval(const struct plan *plan)
{
    const struct job_checkpoint *checkpoint = &plan->config.checkpoint;
    return checkpoint->directory.length == 0 ? (double)NAN : seconds_of(checkpoint->every_us);
}
static double run_checkpoint_age(const struct run_stats *s)
{
    return seconds_of(s->checkpoint_age_us);
}
static double run_checkpoint_time(const struct run_stats *s)
{
    return seconds_of(s->checkpoint_us);
}
static double run_checkpoint_bytes(const struct run_stats *s)
{
    return s->checkpoints > 0 ? (double)s->checkpoint_bytes : (double)NAN;
}
static double run_checkpoint_stop(const struct run_stats *s)
{
    return s->checkpoints > 0 ? seconds_of(s->checkpoint_stop_us) : (double)NAN;
}
static double run_imbalance(const struct run_stats *s)
{
    return s->imbalance > 0 ? s->imbalance : (double)NAN;
}
static double run_hot_groups(const struct run_stats *s)
{
    return s->imbalance > 0 ? s->hot_groups : (double)NAN;
}
static double run_moved_groups(const struct run_stats *s)
{
    return s->imbalance > 0 ? (double)s->moved_groups : (double)NAN;
}
static double run_move_stop(const struct run_stats *s)
{
    return s->imbalance > 0 ? seconds_of(s->move_stop_us) : (double)NAN;
}

static double run_store_behind(const struct run_stats *s)
{
    return s->has_store ? (double)s->store_behind : (double)NAN;
}
static double run_store_behind_time(const struct run_stats *s)
{
    return s->has_store ? seconds_of(s->store_behind_us) : (double)NAN;
}
static double run_store_bytes(const struct run_stats *s)
{
    return s->has_store ? (double)s->store_bytes : (double)NAN;
}
static double run_store_retries(const struct run_stats *s)
{
    return s->has_store ? (double)s->store_retries : (double)NAN;
}

static double node_watermark(const struct run_stats *s LEAT_UNUSED, const struct run_node_stats *node)
{
    return moment(node->time.watermark);
}
static double node_queue(const struct run_stats *s, const struct run_node_stats *node)
{
    return node->node->stage == 0 ? (double)NAN : s->queue_fill[node->node->stage];
}
static double node_full(const struct run_stats *s LEAT_UNUSED, const struct run_node_stats *node)
{
    return node->node->tag == PLAN_SINK ? node->is_full : (double)NAN;
}
static double node_trouble(const struct run_stats *s LEAT_UNUSED, const struct run_node_stats *node)
{
    return node->report.error[0] != '\0';
}

static double run_incarnation(const struct run_stats *s)
{
    return s->incarnation > 0 ? (double)s->incarnation : (double)NAN;
}
static double run_leads(const struct run_stats *s)
{
    return s->incarnation > 0 ? !s->is_part : (double)NAN;
}
static double run_workers(const struct run_stats *s)
{
    return s->incarnation > 0 ? (double)s->workers : (double)NAN;
}
static double worker_lanes(const struct run_worker_stats *w)
{
    return (double)w->lanes;
}
static double worker_partitions(const struct run_worker_stats *w)
{
    return (double)w->partitions;
}
static double worker_groups(const struct run_worker_stats *w)
{
    return (double)w->groups;
}
static double worker_busy(const struct run_worker_stats *w)
{
    return w->busy_share;
}
static double worker_records(const struct run_worker_stats *w)
{
    return (double)w->records_life;
}
static double worker_sent_bytes(const struct run_worker_stats *w)
{
    return (double)w->traffic.sent_bytes;
}
static double worker_sent_frames(const struct run_worker_stats *w)
{
    return (double)w->traffic.sent_frames;
}
static double worker_received_bytes(const struct run_worker_stats *w)
{
    return (double)w->traffic.received_bytes;
}
static double worker_round_trip(const struct run_worker_stats *w)
{
    return seconds_of(w->traffic.round_trip_us);
}
static double worker_waiting_bytes(const struct run_worker_stats *w)
{
    return (double)w->waiting_bytes;
}
static double worker_spilled_bytes(const struct run_worker_stats *w)
{
    return (double)w->spilled_bytes;
}

/* --- The table --- */

#define RUN(name_, type_, get, help_)                                                                        \
    {                                                                                                        \
        .meaning = {name_, type_, "", help_}, .of = OF_RUN, .run = get                                       \
    }
#define NODE(name_, type_, get, help_)                                                                       \
    {                                                                                                        \
        .meaning = {name_, type_, "node, kind", help_}, .of = OF_NODE, .node = get                           \
    }
#define FIGURE(name_, type_, figure_, unit_, help_)                                                          \
    {                                                                                                        \
        .meaning = {name_, type_, "node, kind", help_}, .of = OF_FIGURE, .figure = figure_, .unit = unit_    \
    }
#define LEARNER(name_, type_, figure_, help_)                                                                \
    {                                                                                                        \
        .meaning = {name_, type_, "node, kind, over", help_}, .of = OF_FIGURE, .figure = figure_             \
    }
#define RANKED(name_, figure_, help_)                                                                        \
    {                                                                                                        \
        .meaning = {name_, "gauge", "node, kind, over, k", help_}, .of = OF_RANKED, .figure = figure_        \
    }

#define WORKER(name_, type_, get, help_)                                                                     \
    {                                                                                                        \
        .meaning = {name_, type_, "worker", help_}, .of = OF_WORKER, .worker = get                           \
    }

static const struct metric table[] = {
    RUN("leat_run_records_total", "counter", run_records, "Records read by this process."),
    RUN("leat_run_seconds", "gauge", run_elapsed, "Time since this process began the run."),
    RUN("leat_run_micro_batches_total", "counter", run_micro_batches,
        "Micro-batches formed, over all lives of the run."),
    RUN("leat_run_watermark_timestamp_seconds", "gauge", run_watermark, "Lowest watermark of the sources."),
    RUN("leat_run_newest_event_timestamp_seconds", "gauge", run_newest, "Newest event time of all sources."),
    RUN("leat_checkpoints_total", "counter", run_checkpoints, "Checkpoints published by this process."),
    {.meaning = {"leat_checkpoint_interval_seconds", "gauge", "",
                 "Time between checkpoints that the job asks for; of a job with checkpoints."},
     .of = OF_PLAN,
     .plan = plan_checkpoint_interval},
    RUN("leat_checkpoint_age_seconds", "gauge", run_checkpoint_age,
        "Time since the last checkpoint was published."),
    RUN("leat_checkpoint_duration_seconds", "gauge", run_checkpoint_time,
        "The last checkpoint: from its barrier until it was published."),
    RUN("leat_checkpoint_bytes", "gauge", run_checkpoint_bytes, "The last checkpoint: bytes written."),
    RUN("leat_checkpoint_stop_seconds", "gauge", run_checkpoint_stop,
        "The last checkpoint: longest time that a lane stood still."),
    RUN("leat_balance_busiest_ratio", "gauge", run_imbalance,
        "Work by key of the busiest instance, by the mean of all, as measured last; where keys move by load."),
    RUN("leat_balance_hot_groups", "gauge", run_hot_groups,
        "Key groups with more work than the mean of all instances: no placement mends that."),
    RUN("leat_balance_moved_groups_total", "counter", run_moved_groups,
        "Key groups that moved to another lane or worker."),
    RUN("leat_balance_move_stop_seconds", "gauge", run_move_stop,
        "Longest time that a lane gave or took of what moves, without a micro-batch between."),
    RUN("leat_store_checkpoints_behind", "gauge", run_store_behind,
        "Checkpoints of this process that are newer than the object store's newest; of a job with a `store`."),
    RUN("leat_store_behind_seconds", "gauge", run_store_behind_time,
        "Time since the oldest of them was published; 0: the store has them all."),
    RUN("leat_store_sent_bytes_total", "counter", run_store_bytes, "Bytes sent to the object store."),
    RUN("leat_store_retries_total", "counter", run_store_retries,
        "Requests to the object store that were sent again."),
    RUN("leat_cluster_workers", "gauge", run_workers,
        "Workers of the job; of a job on several machines. The leader's series are the job's; those of another worker have its label "
        "`worker`, and are of its part."),
    RUN("leat_cluster_incarnation", "gauge", run_incarnation,
        "Incarnation: rises each time that the workers begin again."),
    RUN("leat_cluster_leads", "gauge", run_leads, "1: this worker leads."),
    WORKER("leat_worker_lanes", "gauge", worker_lanes, "Lanes of each worker."),
    WORKER("leat_worker_partitions", "gauge", worker_partitions,
           "Partitions of sources that the worker reads."),
    WORKER("leat_worker_key_groups", "gauge", worker_groups, "Key groups whose state the worker has."),
    WORKER("leat_worker_busy_ratio", "gauge", worker_busy,
           "Share of its lanes' time in the last second that they decoded and processed."),
    WORKER("leat_worker_records_total", "counter", worker_records,
           "Records that the worker's process has read."),
    WORKER("leat_worker_sent_bytes_total", "counter", worker_sent_bytes,
           "Bytes sent to other workers in this incarnation."),
    WORKER("leat_worker_sent_frames_total", "counter", worker_sent_frames,
           "Frames sent to other workers in this incarnation."),
    WORKER("leat_worker_received_bytes_total", "counter", worker_received_bytes,
           "Bytes that came from other workers in this incarnation."),
    WORKER("leat_worker_round_trip_seconds", "gauge", worker_round_trip,
           "The longest of the last round trips to the other workers."),
    WORKER("leat_worker_waiting_bytes", "gauge", worker_waiting_bytes,
           "Memory of rows and messages that wait between lanes and workers, those under way included."),
    WORKER("leat_worker_spilled_bytes_total", "counter", worker_spilled_bytes,
           "Bytes of such rows and messages that were written to spill files, for want of memory."),
    {.meaning = {"leat_lane_seconds_total", "counter", "lane, on",
                 "Time of each lane, by what it went to: `decode`, `process`, `wait_for_records`, or blocked "
                 "`behind_...`."},
     .of = OF_LANE},
    {.meaning =
         {"leat_node_rows_total", "counter", "node, kind, rows",
          "Rows of each node, by what became of them. in = passed + filtered + late + duplicate + dead + "
          "absorbed + leat_node_held_rows. `absorbed` by a learner: learned."},
     .of = OF_ROWS},
    {.meaning = {"leat_node_held_rows", "gauge", "node, kind", "Rows that wait in the node."}, .of = OF_HELD},
    NODE("leat_node_watermark_timestamp_seconds", "gauge", node_watermark, "Watermark of the node's output."),
    NODE("leat_node_queue_ratio", "gauge", node_queue,
         "Micro-batches that wait for the node's stage, as a share of those allowed."),
    NODE("leat_sink_full", "gauge", node_full, "1: the sink takes no more rows now."),
    NODE("leat_node_trouble", "gauge", node_trouble, "1: the node reports an error that may persist."),
    FIGURE("leat_source_lag_records", "gauge", "lag_records", 0,
           "Records of the brokers that the source has not read."),
    FIGURE("leat_source_lag_seconds", "gauge", "lag_seconds", 0,
           "How far the source's worst partition is behind."),
    FIGURE("leat_broker_round_trip_p99_seconds", "gauge", "round_trip_p99_ms", 1e-3,
           "How long brokers take to answer."),
    FIGURE("leat_sink_waiting_records", "gauge", "records_waiting", 0,
           "Records that the sink has not sent, or that are not acknowledged."),
    FIGURE("leat_sink_outbox_ratio", "gauge", "outbox_share", 0, "Share of the sink's outbox that is taken."),
    FIGURE("leat_state_entries", "gauge", "state_entries", 0, "Entries of keyed state in memory."),
    FIGURE("leat_state_bytes", "gauge", "state_bytes", 0, "Bytes of keyed state in memory."),
    FIGURE("leat_state_lookups_total", "counter", "state_lookups", 0, "Look-ups in keyed state."),
    FIGURE("leat_state_loaded_total", "counter", "state_loaded", 0,
           "Entries of keyed state that were loaded from disk."),
    LEARNER("leat_learner_examples", "gauge", "examples", "Examples that the learner's figures are of."),
    LEARNER("leat_learner_logloss", "gauge", "logloss",
            "Progressive logloss: each example is predicted before it is learned."),
    LEARNER("leat_learner_auc", "gauge", "auc", "Area under the ROC curve, progressive."),
    LEARNER("leat_learner_calibration", "gauge", "calibration", "Mean prediction divided by mean label."),
    LEARNER("leat_learner_rmse", "gauge", "rmse", "Root mean square error, progressive."),
    RANKED("leat_learner_hr", "hr",
           "Of learners that choose items: share of the ranked events whose item was among the best k."),
    RANKED("leat_learner_ndcg", "ndcg", "Likewise, where a hit counts 1 / log2(rank + 1)."),
    RANKED("leat_learner_mrr", "mrr", "Likewise, where a hit counts 1 / rank."),
    RANKED("leat_learner_coverage", "coverage",
           "Of learners that choose items: share of all items that were among the best k for some event."),
    LEARNER("leat_learner_misses", "gauge", "misses",
            "Ranked events of an item that the learner did not know; they are examples, too."),
    LEARNER("leat_learner_step_loss", "gauge", "step_loss",
            "Of learners that choose items: mean loss of the targets of the last step."),
    LEARNER("leat_learner_items", "gauge", "items", "Items that the learner chooses from."),
    LEARNER("leat_learner_rows", "gauge", "rows", "Rows of the learner's tables, in memory and on disk."),
    LEARNER("leat_learner_rows_cold", "gauge", "rows_cold",
            "Rows of the learner's tables that are on disk alone."),
    LEARNER("leat_learner_rows_expired_total", "counter", "rows_expired",
            "Rows of the learner's tables that expired."),
    LEARNER(
        "leat_learner_rejected_total", "counter", "rejected",
        "Examples that became dead letters: a value, the prediction or the gradient is not finite, or the label is out of range."),
    LEARNER("leat_learner_frozen", "gauge", "is_frozen", "1: the learner has stopped learning (`freeze`)."),
    /* Last, because there may be very many of them. */
    {.meaning = {"leat_node_seconds_total", "counter", "node, kind, lane", "A node's own time on each lane."},
     .of = OF_OWN},
    {.meaning =
         {"leat_source_partition_records_total", "counter", "node, kind, partition",
          "Records read of each partition, over all lives of the run. Of more than 200 partitions of a source, "
          "the others are summed as `other`."},
     .of = OF_PARTITION},
    {.meaning =
         {"leat_metrics_series_left_out", "gauge", "",
          "Series that are not in this answer, because it has 10,000 others; those of the last metrics are left "
          "out."},
     .of = OF_LEFT_OUT},
};

/* --- Text --- */

static void put_number(struct metrics_text *text, const char *label, uint32_t number)
{
    char digits[16];
    int length = snprintf(digits, sizeof(digits), "%" PRIu32, number);
    metrics_label(text, label, (struct str){digits, (size_t)length});
}

/* The label of what is of this worker alone: of a worker that does not lead, all; of the leader, where `is_own`. */
static void label_worker(struct answer *answer, bool is_own)
{
    const struct run_stats *stats = answer->source->stats;
    if (stats->incarnation > 0 && (stats->is_part || is_own))
        put_number(answer->text, "worker", stats->worker);
}

static void make_node_labels(struct answer *answer)
{
    struct byte_buffer one = {0};
    for (uint32_t i = 0; i < answer->source->plan->nodes_count; i++) {
        const struct plan_node *node = &answer->source->plan->nodes[i];
        const char *kind = node->tag == PLAN_SOURCE ? node->source_kind->name
                           : node->tag == PLAN_SINK ? node->sink_kind->name
                                                    : node->operator_kind->name;
        buffer_clear(&one);
        metrics_label_text(&one, "node", str_from(node->part));
        metrics_label_text(&one, "kind", str_from(kind));
        buffer_append(&answer->node_labels, one.data, one.length);
        answer->ends[i] = answer->node_labels.length;
    }
    buffer_free(&one);
}

static void begin_node_of(struct answer *answer, const struct metric *metric, uint32_t place, bool is_own)
{
    size_t begin = place == 0 ? 0 : answer->ends[place - 1];
    metrics_begin(answer->text, metric->meaning.name);
    metrics_labels(answer->text, (struct str){answer->node_labels.data + begin, answer->ends[place] - begin});
    label_worker(answer, is_own);
}

static void begin_node(struct answer *answer, const struct metric *metric, uint32_t place)
{
    begin_node_of(answer, metric, place, false);
}

static void label_lane(struct metrics_text *text, uint32_t lane)
{
    put_number(text, "lane", lane + 1);
}

static void put_lanes(struct answer *answer, const struct metric *metric)
{
    for (uint32_t lane = 0; lane < answer->source->times->lanes_count; lane++)
        for (uint32_t t = 0; t < RUN_LANE_TIMES; t++) {
            metrics_begin(answer->text, metric->meaning.name);
            label_worker(answer, true);
            label_lane(answer->text, lane);
            metrics_label(answer->text, "on", str_from(run_lane_time_names[t]));
            metrics_time(answer->text, answer->source->times->lanes[lane].ns[t]);
        }
}

static void put_own(struct answer *answer, const struct metric *metric)
{
    for (uint32_t i = 0; i < answer->source->times->instances_count; i++) {
        const struct run_instance_time *instance = &answer->source->times->instances[i];
        begin_node_of(answer, metric, instance->node, true);
        label_lane(answer->text, instance->lane);
        metrics_time(answer->text, instance->ns);
    }
}

static void put_partitions(struct answer *answer, const struct metric *metric)
{
    uint32_t count;
    const struct partition_series *series = partition_watch_series(answer->source->partitions, &count);
    for (uint32_t i = 0; i < count; i++) {
        begin_node_of(answer, metric, series[i].node, true);
        metrics_label(answer->text, "partition", str_from(series[i].name));
        metrics_count(answer->text, series[i].records);
    }
}

/* Itself it is never left out. */
static void put_left_out(const struct metric *metric, struct metrics_text *text)
{
    uint64_t left_out = text->left_out;
    text->series_max = 0;
    metrics_begin(text, metric->meaning.name);
    metrics_count(text, left_out);
}

static void put_rows(struct answer *answer, const struct metric *metric)
{
    for (uint32_t i = 0; i < answer->source->stats->nodes_count; i++) {
        const struct counters *c = &answer->source->stats->nodes[i].counters;
        const struct {
            const char *name;
            uint64_t value;
        } rows[] = {{"in", c->in},
                    {"passed", c->passed},
                    {"filtered", c->filtered},
                    {"late", c->late},
                    {"duplicate", c->duplicate},
                    {"dead", c->dead},
                    {"absorbed", c->absorbed},
                    {"emitted", c->emitted}};
        for (size_t k = 0; k < ARRAY_COUNT(rows); k++) {
            begin_node(answer, metric, answer->source->stats->nodes[i].node->place);
            metrics_label(answer->text, "rows", str_from(rows[k].name));
            metrics_count(answer->text, rows[k].value);
        }
    }
}

static void put_held(struct answer *answer, const struct metric *metric)
{
    for (uint32_t i = 0; i < answer->source->stats->nodes_count; i++) {
        begin_node(answer, metric, answer->source->stats->nodes[i].node->place);
        metrics_count(answer->text, answer->source->stats->nodes[i].counters.held);
    }
}

static void put_nodes(struct answer *answer, const struct metric *metric)
{
    for (uint32_t i = 0; i < answer->source->stats->nodes_count; i++) {
        double value = metric->node(answer->source->stats, &answer->source->stats->nodes[i]);
        if (isnan(value))
            continue;
        begin_node(answer, metric, answer->source->stats->nodes[i].node->place);
        metrics_value(answer->text, value);
    }
}

static void put_over(struct answer *answer, const struct report_item *item)
{
    metrics_label(answer->text, "over", item->is_window ? STR("window") : STR("run"));
}

/* Figures of learners are of the run, and of the last window of metrics; those of others of the run alone. */
static void put_figures(struct answer *answer, const struct metric *metric)
{
    for (uint32_t i = 0; i < answer->source->stats->nodes_count; i++) {
        const struct run_node_stats *node = &answer->source->stats->nodes[i];
        for (uint32_t r = 0; r < node->report.count; r++) {
            const struct report_item *item = &node->report.items[r];
            if (item->text != NULL || isnan(item->value) || strcmp(item->name, metric->figure) != 0)
                continue;
            begin_node(answer, metric, node->node->place);
            if (node->node->tag == PLAN_LEARNER)
                put_over(answer, item);
            metrics_value(answer->text, metric->unit == 0 ? item->value : item->value * metric->unit);
        }
    }
}

static void put_ranked(struct answer *answer, const struct metric *metric)
{
    for (uint32_t i = 0; i < answer->source->stats->nodes_count; i++) {
        const struct run_node_stats *node = &answer->source->stats->nodes[i];
        for (uint32_t r = 0; node->node->tag == PLAN_LEARNER && r < node->report.count; r++) {
            const struct report_item *item = &node->report.items[r];
            const char *k = ranked_k(item->name, metric->figure);
            if (k == NULL || item->text != NULL || isnan(item->value))
                continue;
            begin_node(answer, metric, node->node->place);
            put_over(answer, item);
            metrics_label(answer->text, "k", str_from(k));
            metrics_value(answer->text, item->value);
        }
    }
}

static void put_run(struct answer *answer, const struct metric *metric)
{
    double value =
        metric->of == OF_PLAN ? metric->plan(answer->source->plan) : metric->run(answer->source->stats);
    if (isnan(value))
        return;
    metrics_begin(answer->text, metric->meaning.name);
    label_worker(answer, false);
    metrics_value(answer->text, value);
}

static void put_workers(struct answer *answer, const struct metric *metric)
{
    const struct run_stats *stats = answer->source->stats;
    for (uint32_t i = 0; i < stats->workers && stats->incarnation > 0; i++) {
        double value = metric->worker(&stats->per_worker[i]);
        if (!stats->per_worker[i].is_known || isnan(value))
            continue;
        metrics_begin(answer->text, metric->meaning.name);
        put_number(answer->text, "worker", i);
        metrics_value(answer->text, value);
    }
}

void metrics_write(const struct metrics_source *source, struct metrics_text *text)
{
    struct answer answer = {.source = source, .text = text};
    make_node_labels(&answer);
    text->series_max = METRICS_SERIES_MAX;
    text->series = text->left_out = 0;
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        const struct metric *metric = &table[i];
        metrics_head(text, &metric->meaning);
        switch (metric->of) {
        case OF_PLAN:
        case OF_RUN: put_run(&answer, metric); break;
        case OF_NODE: put_nodes(&answer, metric); break;
        case OF_ROWS: put_rows(&answer, metric); break;
        case OF_HELD: put_held(&answer, metric); break;
        case OF_LANE: put_lanes(&answer, metric); break;
        case OF_OWN: put_own(&answer, metric); break;
        case OF_WORKER: put_workers(&answer, metric); break;
        case OF_PARTITION: put_partitions(&answer, metric); break;
        case OF_LEFT_OUT: put_left_out(metric, text); break;
        case OF_FIGURE: put_figures(&answer, metric); break;
        case OF_RANKED: put_ranked(&answer, metric); break;
        }
    }
    buffer_free(&answer.node_labels);
}

const struct metric_meaning *metrics_meaning(uint32_t index)
{
    return index < ARRAY_COUNT(table) ? &table[index].meaning : NULL;
}
