#include "run/base/peer_figures.h"

#include "core/mem.h"
#include "core/os.h"
#include "run/base/peers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SAY_EVERY_US = 1000 * 1000 };

struct peer_figures {
    int64_t said_us; /* of the control thread: when this worker has sent its figures last */
    bool has_said, has_said_last;
    pthread_mutex_t mutex; /* guards what follows, but for `shown`, which is the control thread's */
    struct worker_figures {
        struct byte_buffer newest, shown; /* messages without their tag; empty: none has come */
        bool is_new;                      /* `newest` is not in `shown` yet */
        bool is_last;
    } of[RUN_WORKERS_MAX];
};

void peer_figures_init(struct run *run)
{
    run->peer_figures = mem_calloc(1, sizeof(*run->peer_figures));
    pthread_mutex_init(&run->peer_figures->mutex, NULL);
}

void peer_figures_free(struct run *run)
{
    struct peer_figures *figures = run->peer_figures;
    if (figures == NULL)
        return;
    for (uint32_t i = 0; i < RUN_WORKERS_MAX; i++) {
        buffer_free(&figures->of[i].newest);
        buffer_free(&figures->of[i].shown);
    }
    pthread_mutex_destroy(&figures->mutex);
    free(figures);
}

/* --- Sending --- */

static void put_real(struct byte_buffer *out, double value)
{
    uint64_t word;
    memcpy(&word, &value, sizeof(word));
    words_put(out, word);
}

/* A text with its NUL, so that the receiver may show it where it lies. */
static void put_text(struct byte_buffer *out, const char *text)
{
    size_t length = MIN(strlen(text), (size_t)FIGURES_TEXT_BYTES - 1);
    words_put(out, length + 1);
    buffer_append(out, text, length);
    buffer_append(out, "", 1);
}

static void put_report(const struct report *report, struct byte_buffer *out)
{
    uint64_t count = 0;
    put_text(out, report->error);
    size_t at = out->length;
    words_put(out, 0);
    for (uint32_t i = 0; i < report->count && out->length < FIGURES_ITEMS_BYTES; i++, count++) {
        const struct report_item *item = &report->items[i];
        put_text(out, item->name);
        words_put(out, item->is_window);
        put_real(out, item->value);
        words_put(out, item->text != NULL);
        if (item->text != NULL)
            put_text(out, item->text);
    }
    memcpy(out->data + at, &count, sizeof(count));
}

static void put_node(const struct run_node_stats *node, struct byte_buffer *out)
{
    const uint64_t *counters = (const uint64_t *)&node->counters;
    for (size_t k = 0; k < COUNTERS_COUNT; k++)
        words_put(out, counters[k]);
    words_put(out, node->begin_in);
    words_put(out, node->begin_dead);
    words_put(out, node->is_full);
    put_text(out, node->dead_reason);
    put_text(out, node->note);
    put_report(&node->report, out);
}

static void put_example(const struct run_dead_example *example, struct byte_buffer *out)
{
    words_put(out, example->order.place);
    words_put(out, example->order.depth);
    words_put(out, example->order.partition);
    words_put(out, (uint64_t)example->order.time);
    words_put(out, example->order.tie);
    words_put(out, example->order.sub);
    put_text(out, example->text);
}

void peer_figures_put(const struct run *run, const struct run_stats *stats, bool is_last,
                      struct byte_buffer *out)
{
    peers_begin(out, PEER_FIGURES);
    words_put(out, peers_self(run));
    words_put(out, is_last);
    words_put(out, stats->lanes);
    words_put(out, stats->records_life);
    words_put(out, stats->bytes_life);
    words_put(out, stats->checkpoint_bytes);
    words_put(out, (uint64_t)stats->checkpoint_stop_us);
    words_put(out, (uint64_t)stats->checkpoint_stop_max_us);
    words_put(out, stats->store_bytes);
    words_put(out, stats->store_retries);
    words_put(out, stats->moved_groups);
    words_put(out, stats->moved_operators);
    words_put(out, stats->moved_bytes);
    words_put(out, stats->moved_changes);
    words_put(out, (uint64_t)stats->move_stop_us);
    const struct run_worker_stats *own = &stats->per_worker[peers_self(run)];
    words_put(out, own->partitions);
    words_put(out, own->groups);
    put_real(out, own->busy_share);
    words_put(out, own->traffic.sent_bytes);
    words_put(out, own->traffic.sent_frames);
    words_put(out, own->traffic.received_bytes);
    words_put(out, (uint64_t)own->traffic.round_trip_us);
    words_put(out, own->waiting_bytes);
    words_put(out, own->spilled_bytes);
    for (uint32_t stage = 0; stage < run->plan->stages_count; stage++)
        words_put(out, (uint64_t)MIN(lround(stats->queue_fill[stage] * SLOTS), (long)SLOTS));
    words_put(out, stats->nodes_count);
    for (uint32_t i = 0; i < stats->nodes_count; i++)
        put_node(&stats->nodes[i], out);
    words_put(out, stats->dead_count);
    for (uint32_t i = 0; i < stats->dead_count; i++)
        put_example(&stats->dead[i], out);
    leat_assert(out->length <= FIGURES_BYTES_MAX);
}

void peer_figures_say(struct run *run, const struct run_stats *stats)
{
    struct peer_figures *figures = run->peer_figures;
    struct byte_buffer message = {0};
    bool is_last = run->is_joined;
    int64_t now = os_monotonic_us();
    bool is_due = is_last || !figures->has_said || now - figures->said_us >= SAY_EVERY_US;
    if (!is_due || figures->has_said_last || run_has_failed(run))
        return;
    figures->said_us = now;
    figures->has_said = true;
    figures->has_said_last = is_last;
    peer_figures_put(run, stats, is_last, &message);
    peers_send(run, run->options.peers->leader, &message);
    buffer_free(&message);
}

/* --- Adding --- */

/* Items of reports that are no sums over workers, and do not end in `_max`. Sources have figures at every worker, and so have
 * operators without a key; learners and sinks are at one. */
static const struct join {
    const char *name;
    enum { JOIN_LARGEST, JOIN_LEAST, JOIN_KNOWN } how;
} joins[] = {
    {"lag_seconds", JOIN_LARGEST},
    {"lag_worst_records", JOIN_LARGEST},
    {"lag_has_gaps", JOIN_LARGEST},
    {"open_transaction_seconds", JOIN_LARGEST},
    {"fetched_share", JOIN_LARGEST},
    {"round_trip_ms", JOIN_LARGEST},
    {"round_trip_p99_ms", JOIN_LARGEST},
    {"table_rows", JOIN_LARGEST}, /* of a lookup: each worker has all of the table */
    {"table_bytes", JOIN_LARGEST},
    {"table_null_keys", JOIN_LARGEST},
    {"table_duplicates", JOIN_LARGEST},
    {"table_changes", JOIN_LARGEST},
    {"table_refused", JOIN_LARGEST},
    {"began_us", JOIN_LEAST}, /* 0: not yet */
    {"bayes_logloss", JOIN_KNOWN},
    {"bayes_auc", JOIN_KNOWN},
    {"base_logloss", JOIN_KNOWN},
};

/* Of a value that is one worker's alone: where several know it, nobody knows the job's. */
static double known(double a, double b)
{
    return isnan(a) ? b : isnan(b) ? a : (double)NAN;
}

static void join_item(struct report *report, const struct report_item *item)
{
    const struct join *join = NULL;
    struct report_item *mine = NULL;
    for (size_t i = 0; i < ARRAY_COUNT(joins) && join == NULL; i++)
        join = strcmp(joins[i].name, item->name) == 0 ? &joins[i] : NULL;
    for (uint32_t i = 0; i < report->count && mine == NULL; i++)
        if (strcmp(report->items[i].name, item->name) == 0 && report->items[i].is_window == item->is_window)
            mine = &report->items[i];
    if (join == NULL || mine == NULL)
        report_merge(report, item);
    else if (join->how == JOIN_KNOWN)
        mine->value = known(mine->value, item->value);
    else if (join->how == JOIN_LARGEST)
        mine->value = fmax(mine->value, item->value);
    else if (item->value > 0)
        mine->value = mine->value > 0 ? fmin(mine->value, item->value) : item->value;
}

/* --- Reading. Where `stats` is NULL, the message is only checked. --- */

static bool take_flag(struct words *message, bool *flag)
{
    uint64_t word = words_take(message);
    *flag = word != 0;
    return word <= 1;
}

/* The text that put_text has put. */
static bool take_text(struct words *message, const char **text)
{
    struct str bytes = words_take_text(message);
    *text = bytes.data;
    return !message->is_short && bytes.length > 0 && bytes.length <= FIGURES_TEXT_BYTES &&
           memchr(bytes.data, '\0', bytes.length) == bytes.data + bytes.length - 1;
}

/* Copies a text where there was none. */
static void copy_first(char *to, size_t room, const char *text)
{
    if (to[0] == '\0')
        snprintf(to, room, "%s", text);
}

static double take_real(struct words *message)
{
    double value;
    uint64_t word = words_take(message);
    memcpy(&value, &word, sizeof(value));
    return value;
}

static bool take_item(struct words *message, struct report *report)
{
    struct report_item item = {0};
    bool has_text = false;
    if (!take_text(message, &item.name) || item.name[0] == '\0' || !take_flag(message, &item.is_window))
        return false;
    item.value = take_real(message);
    if (!take_flag(message, &has_text) || (has_text && !take_text(message, &item.text)))
        return false;
    if (report != NULL)
        join_item(report, &item);
    return !message->is_short;
}

static bool take_report(struct words *message, struct report *report)
{
    const char *error;
    if (!take_text(message, &error))
        return false;
    if (report != NULL)
        copy_first(report->error, sizeof(report->error), error);
    uint64_t count = words_take(message);
    bool is_good = count <= REPORT_ITEMS_MAX;
    for (uint64_t i = 0; i < count && is_good; i++)
        is_good = take_item(message, report);
    return is_good && !message->is_short;
}

static bool take_node(struct words *message, struct run_node_stats *node)
{
    uint64_t counters[COUNTERS_COUNT];
    const char *dead_reason, *note;
    bool is_full;
    for (size_t k = 0; k < COUNTERS_COUNT; k++)
        counters[k] = words_take(message);
    uint64_t begin_in = words_take(message), begin_dead = words_take(message);
    if (!take_flag(message, &is_full) || !take_text(message, &dead_reason) || !take_text(message, &note))
        return false;
    if (node != NULL) {
        counters_add(&node->counters, (const struct counters *)counters);
        node->begin_in += begin_in;
        node->begin_dead += begin_dead;
        node->is_full |= is_full;
        node->dead_reason = node->dead_reason[0] == '\0' ? dead_reason : node->dead_reason;
        copy_first(node->note, sizeof(node->note), note);
    }
    return take_report(message, node != NULL ? &node->report : NULL);
}

static bool take_example(struct words *message, struct run_stats *stats)
{
    uint64_t place = words_take(message), depth = words_take(message), partition = words_take(message);
    struct row_order order = {
        .place = (uint16_t)place, .depth = (uint16_t)depth, .partition = (uint32_t)partition};
    order.time = (int64_t)words_take(message);
    order.tie = words_take(message);
    order.sub = words_take(message);
    const char *text;
    if (!take_text(message, &text) || place > UINT16_MAX || depth > UINT16_MAX || partition > UINT32_MAX)
        return false;
    struct run_dead_example *example =
        stats == NULL ? NULL : dead_example_room(stats->dead, &stats->dead_count, &order);
    if (example != NULL)
        snprintf(example->text, sizeof(example->text), "%s", text);
    return true;
}

/* What moved at the sender. */
static void take_moved(struct words *message, struct run_stats *stats)
{
    uint64_t groups = words_take(message), operators = words_take(message), bytes = words_take(message),
             changes = words_take(message);
    int64_t stop_us = (int64_t)words_take(message);
    if (stats == NULL)
        return;
    stats->moved_groups += groups;
    stats->moved_operators += operators;
    stats->moved_bytes += bytes;
    stats->moved_changes += changes;
    stats->move_stop_us = MAX(stats->move_stop_us, stop_us);
}

/* What is told of the worker alone, and never added. False: it cannot be. */
static bool take_worker(struct words *message, struct run_worker_stats *of)
{
    uint64_t partitions = words_take(message), groups = words_take(message);
    double busy = take_real(message);
    struct run_traffic traffic = {.sent_bytes = words_take(message), .sent_frames = words_take(message)};
    traffic.received_bytes = words_take(message);
    traffic.round_trip_us = (int64_t)words_take(message);
    uint64_t waiting = words_take(message), spilled = words_take(message);
    if (of != NULL) {
        of->partitions = (uint32_t)partitions;
        of->groups = (uint32_t)groups;
        of->busy_share = busy;
        of->traffic = traffic;
        of->waiting_bytes = waiting;
        of->spilled_bytes = spilled;
    }
    return !message->is_short && partitions <= UINT32_MAX && groups <= KEY_GROUPS &&
           (isnan(busy) || (busy >= 0 && busy <= 1)) && traffic.round_trip_us >= -1;
}

/* What comes before the nodes. */
static bool take_head(const struct run *run, uint32_t worker, struct words *message, struct run_stats *stats,
                      bool *is_last)
{
    uint64_t from = words_take(message);
    bool is_good = from == worker && take_flag(message, is_last);
    uint64_t lanes = words_take(message), records = words_take(message), bytes = words_take(message),
             checkpoint = words_take(message);
    int64_t stop_us = (int64_t)words_take(message), stop_max_us = (int64_t)words_take(message);
    uint64_t store_bytes = words_take(message), store_retries = words_take(message);
    take_moved(message, stats);
    struct run_worker_stats *of = stats != NULL ? &stats->per_worker[worker] : NULL;
    is_good = take_worker(message, of) && is_good && lanes == run->lanes_count;
    for (uint32_t stage = 0; stage < run->plan->stages_count; stage++) {
        uint64_t fill = words_take(message);
        is_good = is_good && fill <= SLOTS;
        if (stats != NULL)
            stats->queue_fill[stage] = MAX(stats->queue_fill[stage], (double)fill / SLOTS);
    }
    if (stats == NULL)
        return is_good && !message->is_short;
    of->is_known = true;
    of->lanes = (uint32_t)lanes;
    of->records_life = records;
    stats->lanes += (uint32_t)lanes;
    stats->records += records;
    stats->records_life += records;
    stats->progress.bytes_done = (int64_t)((uint64_t)stats->progress.bytes_done + bytes);
    stats->bytes_life += bytes;
    stats->checkpoint_bytes += checkpoint;
    stats->checkpoint_stop_us = MAX(stats->checkpoint_stop_us, stop_us);
    stats->checkpoint_stop_max_us = MAX(stats->checkpoint_stop_max_us, stop_max_us);
    stats->store_bytes += store_bytes;
    stats->store_retries += store_retries;
    return is_good && !message->is_short;
}

static bool take_figures(const struct run *run, uint32_t worker, struct words message,
                         struct run_stats *stats, bool *is_last)
{
    bool is_good = take_head(run, worker, &message, stats, is_last);
    is_good = is_good && words_take(&message) == run->plan->nodes_count;
    for (uint32_t i = 0; i < run->plan->nodes_count && is_good; i++)
        is_good = take_node(&message, stats != NULL ? &stats->nodes[i] : NULL);
    uint64_t count = is_good ? words_take(&message) : 0;
    is_good = is_good && count <= RUN_DEAD_EXAMPLES;
    for (uint64_t i = 0; i < count && is_good; i++)
        is_good = take_example(&message, stats);
    return is_good && peers_is_whole(&message);
}

bool peer_figures_take(struct run *run, uint32_t worker, struct words *message)
{
    bool is_last = false;
    if (!peers_is_leader(run) || message->left.length > FIGURES_BYTES_MAX ||
        !take_figures(run, worker, *message, NULL, &is_last))
        return false;
    struct peer_figures *figures = run->peer_figures;
    struct worker_figures *of = &figures->of[worker];
    pthread_mutex_lock(&figures->mutex);
    bool is_good = !of->is_last;
    if (is_good) {
        buffer_clear(&of->newest);
        buffer_append(&of->newest, message->left.data, message->left.length);
        of->is_new = true;
        of->is_last = is_last;
    }
    pthread_mutex_unlock(&figures->mutex);
    return is_good;
}

void peer_figures_add(struct run *run, struct run_stats *stats)
{
    struct peer_figures *figures = run->peer_figures;
    for (uint32_t worker = 0; worker < peers_count(run); worker++) {
        struct worker_figures *of = &figures->of[worker];
        bool is_last;
        pthread_mutex_lock(&figures->mutex);
        if (of->is_new) {
            struct byte_buffer shown = of->newest;
            of->newest = of->shown;
            of->shown = shown;
        }
        of->is_new = false;
        pthread_mutex_unlock(&figures->mutex);
        if (of->shown.length > 0) {
            struct words message = {.left = {of->shown.data, of->shown.length}};
            bool is_good = take_figures(run, worker, message, stats, &is_last);
            leat_assert(is_good);
        }
    }
}

bool peer_figures_are_all(const struct run *run)
{
    struct peer_figures *figures = run->peer_figures;
    if (figures == NULL || !peers_is_leader(run))
        return true;
    bool are_all = true;
    pthread_mutex_lock(&figures->mutex);
    for (uint32_t worker = 0; worker < peers_count(run); worker++)
        are_all &= figures->of[worker].is_last || worker == peers_self(run);
    pthread_mutex_unlock(&figures->mutex);
    return are_all;
}
