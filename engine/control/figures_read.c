#include "control/figures_read.h"
#include "control/workers.h"

#include "core/civil.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

/* --- Members; what is missing, null or of another type counts as not known --- */

static double number(const json_t *object, const char *name, double other)
{
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : other;
}

static uint64_t count(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_integer(value) && json_integer_value(value) > 0 ? (uint64_t)json_integer_value(value) : 0;
}

static const char *text(struct figures_read *f, const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_string(value) ? arena_printf(&f->arena, "%s", json_string_value(value)) : "";
}

static void copy(const json_t *object, const char *name, char *out, size_t bytes)
{
    const json_t *value = json_object_get(object, name);
    snprintf(out, bytes, "%s", json_is_string(value) ? json_string_value(value) : "");
}

/* A time in microseconds from a number of `unit` microseconds; `other`: it is not known. */
static int64_t duration(const json_t *object, const char *name, double unit, int64_t other)
{
    double value = number(object, name, (double)NAN) * unit;
    return isnan(value) || fabs(value) > 9e15 ? other : (int64_t)value;
}

/* --- Parts --- */

static void read_report(struct figures_read *f, const json_t *items, bool is_window, struct report *report)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)items, name, value)
    {
        if (report->count == REPORT_ITEMS_MAX)
            return;
        if (json_is_string(value))
            report->items[report->count++] = (struct report_item){
                .name = arena_printf(&f->arena, "%s", name),
                .text = arena_printf(&f->arena, "%s", json_string_value(value)),
                .is_window = is_window,
            };
        else
            report->items[report->count++] = (struct report_item){
                .name = arena_printf(&f->arena, "%s", name),
                .value = json_is_number(value) ? json_number_value(value) : (double)NAN,
                .is_window = is_window,
            };
    }
}

static struct counters read_counters(const json_t *counts)
{
    return (struct counters){.in = count(counts, "in"),
                             .passed = count(counts, "passed"),
                             .filtered = count(counts, "filtered"),
                             .late = count(counts, "late"),
                             .duplicate = count(counts, "duplicate"),
                             .dead = count(counts, "dead"),
                             .absorbed = count(counts, "absorbed"),
                             .held = count(counts, "held"),
                             .emitted = count(counts, "emitted")};
}

static enum plan_node_tag read_tag(const char *name)
{
    return strcmp(name, "source") == 0    ? PLAN_SOURCE
           : strcmp(name, "learner") == 0 ? PLAN_LEARNER
           : strcmp(name, "sink") == 0    ? PLAN_SINK
                                          : PLAN_OPERATOR;
}

static void read_node(struct figures_read *f, const json_t *json, uint32_t place)
{
    struct run_node_stats *stats = &f->stats.nodes[place];
    struct plan_node *node = &f->nodes[place];
    struct dead_watch_node *watch = &f->watch.nodes[place];
    const json_t *report = json_object_get(json, "report");
    *node = (struct plan_node){.tag = read_tag(text(f, json, "tag")),
                               .place = place,
                               .name = str_from(text(f, json, "name")),
                               .part = text(f, json, "part"),
                               .label = text(f, json, "label"),
                               .stage = (uint32_t)MIN(count(json, "stage"), (uint64_t)PLAN_STAGES_MAX - 1)};
    *stats =
        (struct run_node_stats){.node = node, .counters = read_counters(json_object_get(json, "counts"))};
    read_report(f, json_object_get(report, "run"), false, &stats->report);
    read_report(f, json_object_get(report, "window"), true, &stats->report);
    copy(json, "error", stats->report.error, sizeof(stats->report.error));
    copy(json_object_get(json, "time"), "held_by", stats->time.held_by, sizeof(stats->time.held_by));
    copy(json, "warning", watch->text, sizeof(watch->text));
    watch->is_bad = watch->text[0] != '\0';
    f->stats.queue_fill[node->stage] = number(json, "queue", 0);
    f->recent.node_shares[place] = number(json, "lane_share", 0);
}

static void read_watermark(struct figures_read *f, const json_t *json)
{
    struct run_stats *stats = &f->stats;
    const json_t *watermark = json_object_get(json, "watermark");
    const char *source = text(f, watermark, "source");
    bool has_ended = json_is_true(json_object_get(json, "input_ended"));
    stats->watermark = stats->newest_event = has_ended ? TIME_MAX : TIME_MIN;
    if (has_ended || !civil_parse(str_from(text(f, watermark, "time")), &stats->watermark))
        return;
    int64_t behind_us = duration(watermark, "behind_ms", 1e3, INT64_MIN);
    if (behind_us == INT64_MIN)
        return;
    stats->newest_event = time_add(stats->watermark, behind_us);
    for (uint32_t i = 0; i < stats->nodes_count && stats->held_by == NULL; i++)
        if (f->nodes[i].tag == PLAN_SOURCE && str_is(f->nodes[i].name, source))
            stats->held_by = &stats->nodes[i];
}

static void read_lanes(struct figures_read *f, const json_t *json)
{
    double sum = 0;
    const json_t *shares = json_object_get(json, "lane_time");
    for (uint32_t t = 0; t < RUN_LANE_TIMES; t++)
        sum += f->recent.shares[t] = number(shares, run_lane_time_names[t], 0);
    copy(json, "bottleneck", f->recent.text, sizeof(f->recent.text));
    f->is_recent_known = sum > 0;
}

static void read_run(struct figures_read *f, const json_t *json)
{
    const double whole = 0x1p40; /* any that the share is of */
    struct run_stats *stats = &f->stats;
    double done = number(json, "share_done", -1);
    f->job = str_from(text(f, json, "job"));
    stats->has_input_ended = json_is_true(json_object_get(json, "input_ended"));
    stats->is_finished = json_is_true(json_object_get(json, "finished"));
    stats->end_share_done = number(json, "end_share_done", (double)NAN);
    stats->records = count(json, "records");
    stats->records_life = count(json, "records_life");
    stats->elapsed_us = duration(json, "seconds", 1e6, 0);
    stats->lanes = (uint32_t)MIN(count(json, "lanes"), (uint64_t)UINT32_MAX);
    stats->checkpoints = count(json, "checkpoints");
    stats->checkpoint_epoch = count(json, "checkpoint_epoch");
    stats->checkpoint_bytes = count(json, "checkpoint_bytes");
    stats->checkpoint_age_us = duration(json, "checkpoint_age_ms", 1e3, -1);
    stats->checkpoint_us = duration(json, "checkpoint_duration_ms", 1e3, -1);
    workers_read(json_object_get(json, "cluster"), stats, &f->arena);
    const json_t *store = json_object_get(json, "store");
    stats->has_store = json_is_object(store);
    stats->sinks_await_store = json_is_true(json_object_get(store, "sinks_wait"));
    stats->store_behind = count(store, "checkpoints_behind");
    stats->store_behind_us = duration(store, "behind_ms", 1e3, 0);
    stats->progress = (struct source_progress){.bytes_total = -1, .records_total = -1};
    if (done >= 0) {
        stats->progress.bytes_total = (int64_t)whole;
        stats->progress.bytes_done = (int64_t)(MIN(done, 1) * whole);
    }
}

/* --- Whole --- */

static const char *read_all(struct figures_read *f, const json_t *json)
{
    const json_t *nodes = json_object_get(json, "nodes");
    if (!json_is_string(json_object_get(json, "job")) || !json_is_integer(json_object_get(json, "records")) ||
        !json_is_array(nodes))
        return "an object with `job`, `records` and `nodes` is expected";
    if (json_array_size(nodes) > PLAN_NODES_MAX)
        return "it has more nodes than a job of this leat can have";
    for (size_t i = 0; i < json_array_size(nodes); i++)
        if (!json_is_object(json_array_get(nodes, i)))
            return "each of its `nodes` must be an object";
    f->stats.nodes_count = (uint32_t)json_array_size(nodes);
    for (uint32_t i = 0; i < f->stats.nodes_count; i++)
        read_node(f, json_array_get(nodes, i), i);
    read_run(f, json);
    read_watermark(f, json);
    read_lanes(f, json);
    return NULL;
}

const char *figures_read(struct figures_read *f, struct str bytes)
{
    arena_reset(&f->arena);
    memset(f->stats.queue_fill, 0, sizeof(f->stats.queue_fill));
    f->stats.nodes_count = 0;
    f->stats.held_by = NULL;
    f->recent = (struct bottleneck_found){.node = -1};
    f->is_recent_known = false;
    json_t *json = json_loadb(bytes.data, bytes.length, 0, NULL);
    const char *why = json == NULL ? "it is no JSON" : read_all(f, json);
    json_decref(json);
    return why;
}

void figures_read_free(struct figures_read *f)
{
    if (f == NULL)
        return;
    arena_free(&f->arena);
    free(f);
}
