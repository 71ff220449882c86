#include "control/workers.h"

#include "control/json_text.h"
#include "control/summary.h"

#include <inttypes.h>
#include <math.h>

/* --- JSON --- */

static json_t *ms_of(int64_t us)
{
    return us < 0 ? json_null() : json_real((double)us / 1e3);
}

static json_t *worker_json(const struct run_stats *stats, uint32_t number)
{
    const struct run_worker_stats *of = &stats->per_worker[number];
    const struct run_traffic *traffic = &of->traffic;
    json_t *json = json_pack(
        "{s:i, s:b, s:b, s:o, s:i, s:i, s:i, s:o, s:I, s:I, s:I, s:I, s:o, s:I, s:I}", "worker", (int)number,
        "known", of->is_known, "leads", number == stats->leader, "address",
        json_any_text(str_from(of->address)), "lanes", (int)of->lanes, "partitions", (int)of->partitions,
        "groups", (int)of->groups, "busy", isnan(of->busy_share) ? json_null() : json_real(of->busy_share),
        "records_life", (json_int_t)of->records_life, "sent_bytes", (json_int_t)traffic->sent_bytes,
        "sent_frames", (json_int_t)traffic->sent_frames, "received_bytes",
        (json_int_t)traffic->received_bytes, "round_trip_ms", ms_of(traffic->round_trip_us), "waiting_bytes",
        (json_int_t)of->waiting_bytes, "spilled_bytes", (json_int_t)of->spilled_bytes);
    leat_assert(json != NULL);
    return json;
}

json_t *workers_json(const struct run_stats *stats)
{
    if (stats->incarnation == 0)
        return NULL;
    json_t *workers = json_array();
    for (uint32_t i = 0; i < stats->workers; i++)
        if (!stats->is_part || i == stats->worker)
            json_array_append_new(workers, worker_json(stats, i));
    json_t *head = json_null();
    if (stats->checkpoint_epoch > 0)
        head = json_pack("{s:I, s:o}", "epoch", (json_int_t)stats->checkpoint_epoch, "age_ms",
                         ms_of(stats->checkpoint_age_us));
    json_t *json = json_pack("{s:i, s:i, s:i, s:i, s:b, s:o, s:o}", "incarnation", (int)stats->incarnation,
                             "count", (int)stats->workers, "worker", (int)stats->worker, "leader",
                             (int)stats->leader, "is_part", stats->is_part, "head", head, "workers", workers);
    leat_assert(json != NULL);
    return json;
}

/* A whole number from 0 on; 0: there is none. */
static uint64_t whole(const json_t *json, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(json, name));
    return value > 0 ? (uint64_t)value : 0;
}

static uint32_t small(const json_t *json, const char *name)
{
    return (uint32_t)MIN(whole(json, name), (uint64_t)UINT32_MAX);
}

/* A number; NaN: there is none. */
static double real(const json_t *json, const char *name)
{
    const json_t *member = json_object_get(json, name);
    return json_is_number(member) ? json_number_value(member) : (double)NAN;
}

static void read_worker(const json_t *json, struct run_worker_stats *of, struct arena *arena)
{
    const char *address = json_string_value(json_object_get(json, "address"));
    double busy = real(json, "busy"), trip_ms = real(json, "round_trip_ms");
    *of = (struct run_worker_stats){
        .is_known = json_is_true(json_object_get(json, "known")),
        .address = arena_strdup(arena, address != NULL ? address : ""),
        .lanes = small(json, "lanes"),
        .partitions = small(json, "partitions"),
        .groups = small(json, "groups"),
        .records_life = whole(json, "records_life"),
        .busy_share = busy >= 0 && busy <= 1 ? busy : (double)NAN,
        .traffic = {.sent_bytes = whole(json, "sent_bytes"),
                    .sent_frames = whole(json, "sent_frames"),
                    .received_bytes = whole(json, "received_bytes"),
                    .round_trip_us = trip_ms >= 0 && trip_ms < 1e9 ? (int64_t)(trip_ms * 1e3) : -1},
        .waiting_bytes = whole(json, "waiting_bytes"),
        .spilled_bytes = whole(json, "spilled_bytes")};
}

void workers_read(const json_t *cluster, struct run_stats *stats, struct arena *arena)
{
    const json_t *workers = json_object_get(cluster, "workers");
    stats->incarnation = small(cluster, "incarnation");
    stats->workers = MIN(small(cluster, "count"), (uint32_t)RUN_WORKERS_MAX);
    stats->worker = small(cluster, "worker");
    stats->leader = small(cluster, "leader");
    stats->is_part = json_is_true(json_object_get(cluster, "is_part"));
    for (uint32_t i = 0; i < RUN_WORKERS_MAX; i++)
        stats->per_worker[i].is_known = false;
    for (size_t i = 0; i < json_array_size(workers); i++) {
        const json_t *json = json_array_get(workers, i);
        uint32_t number = small(json, "worker");
        if (number < stats->workers)
            read_worker(json, &stats->per_worker[number], arena);
    }
}

/* --- Text --- */

uint32_t workers_lines(const struct run_stats *stats)
{
    uint32_t lines = stats->incarnation > 0;
    for (uint32_t i = 0; i < stats->workers && stats->incarnation > 0; i++)
        lines += stats->per_worker[i].is_known;
    return lines;
}

static void put_head(const struct run_stats *stats, struct byte_buffer *out)
{
    char age[32];
    buffer_printf(out, "%u workers, incarnation %u, ", stats->workers, stats->incarnation);
    if (stats->checkpoint_epoch == 0)
        buffer_printf(out, "no head yet");
    else if (stats->checkpoint_age_us < 0)
        buffer_printf(out, "head %" PRIu64, stats->checkpoint_epoch);
    else
        buffer_printf(out, "head %" PRIu64 " since %s", stats->checkpoint_epoch,
                      format_duration(stats->checkpoint_age_us, age));
}

void workers_line(const struct run_stats *stats, uint32_t line, struct byte_buffer *out)
{
    uint32_t number = 0;
    char sent[32], waiting[32], spilled[32];
    if (line == 0) {
        put_head(stats, out);
        return;
    }
    while (number + 1 < stats->workers && (!stats->per_worker[number].is_known || --line > 0))
        number++;
    const struct run_worker_stats *of = &stats->per_worker[number];
    buffer_printf(out, "worker %u%s %s  %u lanes", number, number == stats->leader ? " leads" : "",
                  of->address, of->lanes);
    if (!isnan(of->busy_share))
        buffer_printf(out, " %.0f %% busy", of->busy_share * 100);
    buffer_printf(out, "  %u partitions, %u key groups  %s sent", of->partitions, of->groups,
                  format_bytes((double)of->traffic.sent_bytes, sent));
    if (of->traffic.round_trip_us >= 0)
        buffer_printf(out, "  round trip %.1f ms", (double)of->traffic.round_trip_us / 1e3);
    if (of->waiting_bytes > 0 || of->spilled_bytes > 0)
        buffer_printf(out, "  %s waiting, %s spilled", format_bytes((double)of->waiting_bytes, waiting),
                      format_bytes((double)of->spilled_bytes, spilled));
}
