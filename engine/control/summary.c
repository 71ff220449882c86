#include "control/summary.h"

#include "control/json_text.h"
#include "control/workers.h"
#include "core/buffer.h"
#include "core/civil.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>

enum { SHORT_US = 1000 * 1000 };

/* --- Text --- */

static void print_count(FILE *out, const char *name, uint64_t value, bool *is_first)
{
    if (value == 0)
        return;
    fprintf(out, "%s%s %" PRIu64, *is_first ? "" : ", ", name, value);
    *is_first = false;
}

/* is_good: the run did not fail, so the node's counters must balance. A run that failed may have stopped in
 * the middle of a batch. */
static void print_node(FILE *out, const struct run_node_stats *node, bool is_good)
{
    const struct counters *c = &node->counters;
    bool is_learner = node->node->tag == PLAN_LEARNER, is_first = true;
    fprintf(out, "  %-28s ", node->node->label);
    print_count(out, "in", c->in, &is_first);
    if (node->node->tag != PLAN_SINK) {
        print_count(out, "passed", c->passed, &is_first);
        print_count(out, is_learner ? "not learned" : "filtered", c->filtered, &is_first);
        print_count(out, "duplicate", c->duplicate, &is_first);
        print_count(out, "late", c->late, &is_first);
        print_count(out, is_learner ? "rejected" : "dead", c->dead, &is_first);
        print_count(out, is_learner ? "learned" : "absorbed", c->absorbed, &is_first);
        print_count(out, "held", c->held, &is_first);
        print_count(out, "emitted", c->emitted, &is_first);
        print_count(out, "late updates", c->late_updates, &is_first);
        print_count(out, "null keys", c->null_keys, &is_first);
    }
    fprintf(out, "%s%s%s\n", is_first ? "no rows" : "", node->note[0] != '\0' ? ": " : "", node->note);
    for (uint32_t i = 0; i < node->report.count; i++) {
        const struct report_item *item = &node->report.items[i];
        if (item->text != NULL || isnan(item->value)) {
            fprintf(out, "    %-26s %s\n", item->name, item->text != NULL ? item->text : "unknown");
            continue;
        }
        bool is_whole = item->value == floor(item->value) && fabs(item->value) < 1e15;
        fprintf(out, is_whole ? "    %s%-26s %.0f\n" : "    %s%-26s %.6g\n",
                item->is_window ? "last window: " : "", item->name, item->value);
    }
    if (node->report.error[0] != '\0')
        fprintf(out, "    %-26s %s\n", "error", node->report.error);
    if (is_good && !counters_balance(c))
        fprintf(out, "    THE COUNTS DO NOT ADD UP: this is a bug in leat\n");
}

static void print_served(FILE *out, const struct summary_served *served)
{
    bool is_first = true;
    fprintf(out, "serve %s: %" PRIu64 " requests since its server began%s", served->name, served->requests,
            served->requests == 0 ? "" : ": ");
    for (uint32_t i = 0; i < served->kinds; i++)
        print_count(out, served->kind_names[i], served->counts[i], &is_first);
    fprintf(out, "\n");
}

/* What the lanes did, and the bottleneck, which nobody asks of a short run. */
static void print_lanes(const struct summary *summary, FILE *out)
{
    struct byte_buffer text = {0};
    if (summary->stats->elapsed_us < SHORT_US)
        return;
    bottleneck_describe(summary->bottleneck, &text);
    if (summary->stats->workers > 1)
        fprintf(out, "worker %u: ", summary->stats->worker);
    fprintf(out, "%.*s\n", (int)text.length, text.data);
    buffer_free(&text);
}

static const char *end_of(const struct summary *summary)
{
    return !summary->is_good ? "FAILED" : summary->stats->is_finished ? "finished" : "stopped";
}

void summary_part_text(const struct summary *summary, uint32_t leader, struct str address, FILE *out)
{
    const struct run_stats *stats = summary->stats;
    char duration[32];
    fprintf(out,
            "%.*s: %s after %s: worker %u of %u read %" PRIu64
            " records; the job's summary is that of worker %u at %.*s\n",
            STR_ARGS(summary->plan->name), end_of(summary), format_duration(stats->elapsed_us, duration),
            stats->worker, stats->workers, stats->records_life, leader, STR_ARGS(address));
}

void summary_text(const struct summary *summary, FILE *out)
{
    const struct plan *plan = summary->plan;
    const struct run_stats *stats = summary->stats;
    bool is_good = summary->is_good;
    char rate[32], duration[32], bytes[32];
    if (stats->was_finished) {
        fprintf(out, "%.*s: this run has finished already; --fresh begins a new run\n", STR_ARGS(plan->name));
        return;
    }
    if (stats->was_at_until) {
        fprintf(out, "%.*s: all rows before --until were read already; a later --until, or none, goes on\n",
                STR_ARGS(plan->name));
        return;
    }
    double seconds = MAX((double)stats->elapsed_us / 1e6, 1e-9);
    fprintf(out, "%.*s: %s after %s: %" PRIu64 " records, %s, %u lane%s", STR_ARGS(plan->name),
            end_of(summary), format_duration(stats->elapsed_us, duration), stats->records_life,
            format_rate((double)stats->records_life / seconds, rate), stats->lanes,
            stats->lanes == 1 ? "" : "s");
    if (stats->workers > 1)
        fprintf(out, " of %u workers", stats->workers);
    fprintf(out, "\n");
    if (is_good && stats->has_input_ended && !stats->is_finished)
        fprintf(out, "all sources have ended, and operators have work left\n");
    if (stats->is_resumed)
        fprintf(out, "resumed; %" PRIu64 " records over all lives\n", stats->records);
    for (uint32_t i = 0; i < stats->nodes_count; i++)
        print_node(out, &stats->nodes[i], is_good);
    print_lanes(summary, out);
    if (stats->checkpoints > 0)
        fprintf(out,
                "%" PRIu64
                " checkpoint%s, the last of %s written in %s; a lane stopped for %.3f ms at most\n",
                stats->checkpoints, stats->checkpoints == 1 ? "" : "s",
                format_bytes((double)stats->checkpoint_bytes, bytes),
                format_duration(stats->checkpoint_us, duration), (double)stats->checkpoint_stop_max_us / 1e3);
    for (uint32_t i = 0; i < summary->served_count; i++)
        print_served(out, &summary->served[i]);
    if (stats->dead_count > 0)
        fprintf(out, "dead letters, for example:\n");
    for (uint32_t i = 0; i < stats->dead_count; i++)
        fprintf(out, "  %s\n", stats->dead[i].text);
    for (uint32_t i = 0; i < stats->nodes_count; i++)
        if (summary->watch->nodes[i].is_bad)
            fprintf(out, "WARNING: %s\n", summary->watch->nodes[i].text);
}

/* --- JSON --- */

static json_t *counters_json(const struct counters *c)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "in", (json_int_t)c->in,
                     "passed", (json_int_t)c->passed, "filtered", (json_int_t)c->filtered, "late",
                     (json_int_t)c->late, "duplicate", (json_int_t)c->duplicate, "dead", (json_int_t)c->dead,
                     "absorbed", (json_int_t)c->absorbed, "held", (json_int_t)c->held, "emitted",
                     (json_int_t)c->emitted, "late_updates", (json_int_t)c->late_updates, "null_keys",
                     (json_int_t)c->null_keys, "balanced", counters_balance(c));
}

static json_t *report_json(const struct report *report)
{
    json_t *whole = json_object(), *window = json_object();
    for (uint32_t i = 0; i < report->count; i++) {
        const struct report_item *item = &report->items[i];
        /* JSON has no NaN and no infinity. */
        json_t *value = item->text != NULL                ? json_any_text(str_from(item->text))
                        : __builtin_isfinite(item->value) ? json_real(item->value)
                                                          : json_null();
        json_object_set_new(item->is_window ? window : whole, item->name, value);
    }
    return json_pack("{s:o, s:o}", "run", whole, "window", window);
}

static json_t *moment_json(int64_t time)
{
    char text[32];
    return time == TIME_MIN || time == TIME_MAX ? json_null() : json_stringn(text, civil_format(time, text));
}

/* Milliseconds from the watermark to the newest event time of all sources; null if there is no watermark or
 * no event yet, or if the sources have ended. */
static json_t *behind_json(const struct run_stats *stats, int64_t watermark)
{
    bool is_known = watermark != TIME_MIN && watermark != TIME_MAX && stats->newest_event != TIME_MIN;
    return is_known ? json_real((double)(stats->newest_event - watermark) / 1e3) : json_null();
}

static json_t *time_json(const struct run_stats *stats, const struct run_node_stats *node)
{
    const struct run_time *time = &node->time;
    json_t *json = json_pack("{s:o, s:o}", "watermark", moment_json(time->watermark), "behind_ms",
                             behind_json(stats, time->watermark));
    if (node->node->tag != PLAN_SOURCE)
        return json;
    json_object_set_new(json, "newest", moment_json(time->newest));
    json_object_set_new(json, "held_by",
                        time->held_by[0] == '\0' ? json_null() : json_any_text(str_from(time->held_by)));
    return json;
}

/* The run's watermark, which is the lowest of all sources, and the source and partition that hold it back. */
static json_t *holder_json(const struct run_stats *stats)
{
    const struct run_node_stats *node = stats->held_by;
    if (node == NULL)
        return json_null();
    return json_pack("{s:o, s:o, s:s%, s:o}", "time", moment_json(stats->watermark), "behind_ms",
                     behind_json(stats, stats->watermark), "source", node->node->name.data,
                     node->node->name.length, "partition",
                     node->time.held_by[0] == '\0' ? json_null()
                                                   : json_any_text(str_from(node->time.held_by)));
}

static json_t *lanes_json(const struct bottleneck_found *found)
{
    json_t *json = json_object();
    for (uint32_t t = 0; t < RUN_LANE_TIMES; t++)
        json_object_set_new(json, run_lane_time_names[t], json_real(found->shares[t]));
    return json;
}

static json_t *node_json(const struct summary *summary, uint32_t place)
{
    const struct run_stats *stats = summary->stats;
    const struct run_node_stats *node = &stats->nodes[place];
    static const char *const tags[] = {"source", "operator", "learner", "sink"};
    const struct plan_node *n = node->node;
    const char *kind = n->tag == PLAN_SOURCE ? n->source_kind->name
                       : n->tag == PLAN_SINK ? n->sink_kind->name
                                             : n->operator_kind->name;
    const struct dead_watch_node *watch = &summary->watch->nodes[place];
    json_t *error = node->report.error[0] == '\0' ? json_null() : json_any_text(str_from(node->report.error));
    json_t *warning = watch->is_bad ? json_any_text(str_from(watch->text)) : json_null();
    return json_pack("{s:s%, s:s, s:s, s:s, s:o, s:o, s:i, s:f, s:o, s:o, s:o, s:f, s:o, s:o}", "name",
                     n->name.data, n->name.length, "part", n->part, "tag", tags[n->tag], "kind", kind,
                     "label", json_any_text(str_from(n->label)), "note", json_any_text(str_from(node->note)),
                     "stage", (int)n->stage, "queue", stats->queue_fill[n->stage], "counts",
                     counters_json(&node->counters), "report", report_json(&node->report), "time",
                     time_json(stats, node), "lane_share", summary->bottleneck->node_shares[place], "error",
                     error, "warning", warning);
}

/* The part of the node that is the cause of the sentence. */
static json_t *cause_json(const struct summary *summary)
{
    int32_t place = summary->bottleneck->node;
    return place < 0 ? json_null() : json_string(summary->plan->nodes[place].part);
}

static const char *state_of(const struct summary *summary)
{
    return summary->is_going_on          ? "running"
           : !summary->is_good           ? "failed"
           : summary->stats->is_finished ? "finished"
                                         : "stopped";
}

static json_t *ms_json(int64_t us)
{
    return us < 0 ? json_null() : json_real((double)us / 1e3);
}

static json_t *done_json(const struct run_stats *stats)
{
    double share = summary_share_done(stats);
    return share < 0 || stats->is_part ? json_null()
                                       : json_real(share); /* of the input a worker knows its part */
}

/* Of the work that operators have left when all sources have ended; null: they have none, or do not say. */
static json_t *end_done_json(const struct run_stats *stats)
{
    return stats->has_input_ended && stats->end_share_done >= 0 ? json_real(stats->end_share_done)
                                                                : json_null();
}

static json_t *served_json(const struct summary_served *served)
{
    json_t *json = json_pack("{s:s, s:I}", "name", served->name, "requests", (json_int_t)served->requests);
    for (uint32_t i = 0; i < served->kinds; i++)
        json_object_set_new(json, served->kind_names[i], json_integer((json_int_t)served->counts[i]));
    return json;
}

static int append(const char *bytes, size_t count, void *out)
{
    buffer_append(out, bytes, count);
    return 0;
}

/* How far the object store is behind. */
static json_t *store_json(const struct run_stats *stats)
{
    json_t *store =
        json_pack("{s:I, s:f, s:I, s:I, s:b}", "checkpoints_behind", (json_int_t)stats->store_behind,
                  "behind_ms", (double)stats->store_behind_us / 1e3, "bytes", (json_int_t)stats->store_bytes,
                  "retries", (json_int_t)stats->store_retries, "sinks_wait", stats->sinks_await_store);
    leat_assert(store != NULL);
    return store;
}

static json_t *summary_json(const struct summary *summary)
{
    const struct plan *plan = summary->plan;
    const struct run_stats *stats = summary->stats;
    const struct dead_watch *watch = summary->watch;
    json_t *nodes = json_array(), *dead = json_array(), *warnings = json_array(), *serves = json_array();
    for (uint32_t i = 0; i < summary->served_count; i++)
        json_array_append_new(serves, served_json(&summary->served[i]));
    for (uint32_t i = 0; i < stats->nodes_count; i++) {
        json_array_append_new(nodes, node_json(summary, i));
        if (watch->nodes[i].is_bad)
            json_array_append_new(warnings, json_any_text(str_from(watch->nodes[i].text)));
    }
    for (uint32_t i = 0; i < stats->dead_count; i++)
        json_array_append_new(dead, json_any_text(str_from(stats->dead[i].text)));
    json_t *root = json_pack(
        "{s:s%, s:s, s:s, s:b, s:b, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "job", plan->name.data, plan->name.length, "fingerprint", plan->fingerprint, "state",
        state_of(summary), "good", summary->is_good, "finished", stats->is_finished, "records",
        (json_int_t)stats->records, "records_life", (json_int_t)stats->records_life, "seconds",
        (double)stats->elapsed_us / 1e6, "lanes", (json_int_t)stats->lanes, "micro_batches",
        (json_int_t)stats->micro_batches, "checkpoints", (json_int_t)stats->checkpoints, "checkpoint_epoch",
        (json_int_t)stats->checkpoint_epoch, "checkpoint_bytes", (json_int_t)stats->checkpoint_bytes,
        "checkpoint_stop_ms", (double)stats->checkpoint_stop_us / 1e3, "checkpoint_stop_max_ms",
        (double)stats->checkpoint_stop_max_us / 1e3, "checkpoint_age_ms", ms_json(stats->checkpoint_age_us),
        "checkpoint_duration_ms", ms_json(stats->checkpoint_us), "share_done", done_json(stats),
        "end_share_done", end_done_json(stats), "input_ended",
        stats->has_input_ended || stats->watermark == TIME_MAX, "lane_time", lanes_json(summary->bottleneck),
        "bottleneck",
        summary->bottleneck->text[0] == '\0' ? json_null()
                                             : json_any_text(str_from(summary->bottleneck->text)),
        "bottleneck_node", cause_json(summary), "watermark", holder_json(stats), "nodes", nodes,
        "dead_examples", dead, "warnings", warnings, "serves", serves);
    leat_assert(root != NULL);
    if (stats->moved_groups + stats->moved_operators > 0) {
        json_object_set_new(root, "moved_groups", json_integer((json_int_t)stats->moved_groups));
        json_object_set_new(root, "moved_operators", json_integer((json_int_t)stats->moved_operators));
        json_object_set_new(root, "moved_bytes", json_integer((json_int_t)stats->moved_bytes));
        json_object_set_new(root, "moved_changes", json_integer((json_int_t)stats->moved_changes));
        json_object_set_new(root, "move_stop_ms", json_real((double)stats->move_stop_us / 1e3));
    }
    if (stats->imbalance > 0) {
        json_object_set_new(root, "imbalance", json_real(stats->imbalance));
        json_object_set_new(root, "hot_groups", json_integer((json_int_t)stats->hot_groups));
    }
    if (stats->has_store)
        json_object_set_new(root, "store", store_json(stats));
    if (stats->workers > 1)
        json_object_set_new(root, "workers", json_integer((json_int_t)stats->workers));
    json_t *cluster = workers_json(stats);
    if (cluster != NULL)
        json_object_set_new(root, "cluster", cluster);
    return root;
}

static void put_json(json_t *root, size_t flags, struct byte_buffer *out)
{
    (void)json_dump_callback(root, append, out, flags | JSON_REAL_PRECISION(17));
    buffer_append(out, "\n", 1);
    json_decref(root);
}

void summary_put_json(const struct summary *summary, struct byte_buffer *out)
{
    put_json(summary_json(summary), JSON_INDENT(2), out);
}

void summary_put_line(const struct summary *summary, int64_t now_ms, struct byte_buffer *out)
{
    json_t *root = summary_json(summary);
    json_object_set_new(root, "now", json_integer((json_int_t)now_ms));
    put_json(root, JSON_COMPACT, out);
}

void summary_put_part_json(const struct summary *summary, uint32_t leader, struct str address,
                           struct byte_buffer *out)
{
    const struct plan *plan = summary->plan;
    const struct run_stats *stats = summary->stats;
    json_t *root =
        json_pack("{s:s%, s:s, s:s, s:b, s:b, s:i, s:i, s:i, s:s%, s:I, s:f, s:i}", "job", plan->name.data,
                  plan->name.length, "fingerprint", plan->fingerprint, "state", state_of(summary), "good",
                  summary->is_good, "is_part", true, "worker", (int)stats->worker, "workers",
                  (int)stats->workers, "leader", (int)leader, "leader_address", address.data, address.length,
                  "records_life", (json_int_t)stats->records_life, "seconds", (double)stats->elapsed_us / 1e6,
                  "lanes", (int)stats->lanes);
    leat_assert(root != NULL);
    put_json(root, JSON_INDENT(2), out);
}
