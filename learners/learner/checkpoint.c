/*
 * A learner's checkpoints. Records, all global (of no key group):
 *   'F' the list of features (features.c), before all other records; `field` below: a place in this list
 *   'S' epoch (the learner's, which the checkpoint closes), evaluation, counts, then what model_save writes; at
 *       the barrier, because it is small; stored in pieces of kind 's'
 *   'D' field, shard, keys removed since the last published checkpoint
 *   'R' field, shard, rows in the form of table_stored_bytes
 *   'C' field, shard, blocks of the admission sketch that changed
 *   'T' field, all rows of the table, in memory and cold; only of a table that has or had cold rows (at the barrier)
 *   'W' the number of examples of weight 0; only if not 0 (at the barrier)
 *   'P' the number of rows of input 1 with a score; only if not 0 (at the barrier)
 *   'E' event time of the last example; only if there was one (at the barrier)
 *   'B' the sums of a bias that is the labels' mean; only of such a learner (at the barrier)
 *   'L' field, lists longer than list_max, and ids left out; only if not 0 (at the barrier)
 * 'D', 'R' and 'C' are written by the checkpoint's thread while the lane goes on (records.c, tables/snapshot.c;
 * on a GPU device/snapshot.c: there 'D' of all fields come first, and records of the fields alternate, as
 * pieces arrive). A restore applies records in order: base, then deltas; the last 'S' counts.
 */
#include "learners/device/table.h"
#include "learners/learner/internal.h"
#include "learners/learner/records.h"
#include "learners/tables/cold.h"

#include "core/buffer.h"
#include "core/mem.h"

#include <math.h>
#include <stdlib.h>

struct state_record {
    struct record_head head;
    uint32_t epoch, is_frozen;
    uint64_t seen, learned, sampled_out, frozen, rejected;
    uint64_t metrics_bytes;
};

static void snapshot_outcome(void *argument, bool is_published)
{
    struct learner_snapshot *s = argument;
    atomic_store_explicit(&s->outcome, is_published ? 1 : 2, memory_order_release);
}

/* Ends the snapshot if its outcome is known. When a learner closes, snapshot_outcome has been called for
 * certain (core/snapshot.h). */
void learner_snapshot_settle(struct learner_state *state, bool is_closing)
{
    struct learner_snapshot *s = state->snapshot;
    if (s == NULL)
        return;
    int outcome = atomic_load_explicit(&s->outcome, memory_order_acquire);
    if (outcome == 0 && !is_closing)
        return;
    for (uint32_t f = 0; f < s->fields && !state->device.api; f++)
        table_snapshot_end(model_table(state->model, f), outcome == 1);
    if (state->device.api != NULL)
        learner_device_settle(state, s->fields, outcome == 1);
    if (outcome == 1)
        state->published = s->epoch;
    state->snapshot = NULL;
    free(s);
}

bool learner_is_held(const struct operator_context *context)
{
    const struct learner_config *c = context->config;
    const struct learner_snapshot *s = c->state->snapshot;
    return s != NULL && c->state->device.api != NULL &&
           atomic_load_explicit(&s->outcome, memory_order_acquire) == 0 &&
           learner_device_is_held(c->state, s->fields);
}

static bool put_state(const struct learner_state *state, uint32_t labels, uint32_t epoch,
                      struct snapshot_writer *out)
{
    struct state_record record = {
        .head = {'S', STATE_VERSION, 0, 0, 0},
        .epoch = epoch,
        .seen = state->seen,
        .learned = state->learned,
        .sampled_out = state->sampled_out,
        .frozen = state->frozen,
        .is_frozen = state->is_frozen,
        .rejected = state->rejected,
        .metrics_bytes = labels * sizeof(*state->metrics),
    };
    struct byte_buffer buffer = {0};
    buffer_append(&buffer, &record, sizeof(record));
    buffer_append(&buffer, state->metrics, labels * sizeof(*state->metrics));
    model_save(state->model, &buffer);
    bool is_ok = true; /* in pieces, because dense layers may be large */
    for (size_t at = 0; at < buffer.length && is_ok; at += 8 << 20) {
        struct byte_buffer piece = {0};
        struct record_head head = {'s', STATE_VERSION, at + (8 << 20) >= buffer.length, 0, 0};
        buffer_append(&piece, &head, sizeof(head));
        buffer_append(&piece, buffer.data + at, MIN(buffer.length - at, (size_t)8 << 20));
        is_ok = snapshot_put(out, SNAPSHOT_GLOBAL, piece.data, piece.length);
        buffer_free(&piece);
    }
    buffer_free(&buffer);
    return is_ok;
}

static bool put_features(const struct learner_config *c, struct snapshot_writer *out)
{
    struct byte_buffer record = {0};
    struct record_head head = {'F', STATE_VERSION, 0, 0, 0};
    buffer_append(&record, &head, sizeof(head));
    learner_features_save(c, &record);
    bool is_ok = snapshot_put(out, SNAPSHOT_GLOBAL, record.data, record.length);
    buffer_free(&record);
    return is_ok;
}

static bool has_cold_rows(const struct learner_state *state, uint32_t field)
{
    const struct table *table = model_table(state->model, field);
    return state->device.api != NULL ? learner_device_has_cold(state, field)
                                     : table->cold != NULL && table->cold->rows > 0;
}

/* Once a table had cold rows its total is told also where all are back in memory: an earlier checkpoint of the chain says
 * more, and rows that were never in the store would be looked for there. */
static bool put_totals(struct learner_state *state, uint32_t fields, struct snapshot_writer *out)
{
    bool is_ok = true;
    for (uint32_t f = 0; f < fields && is_ok; f++) {
        state->had_cold[f] |= has_cold_rows(state, f);
        if (state->had_cold[f])
            is_ok = record_put_total(out, f,
                                     state->device.api != NULL ? learner_device_total(state, f)
                                                               : table_rows(model_table(state->model, f)));
    }
    return is_ok;
}

/* A record 'W', 'P' or 'E'. */
struct single_record {
    struct record_head head;
    uint64_t value;
};

static bool put_single(struct snapshot_writer *out, uint8_t kind, uint64_t value)
{
    struct single_record record = {{kind, STATE_VERSION, 0, 0, sizeof(value)}, value};
    return snapshot_put(out, SNAPSHOT_GLOBAL, &record, sizeof(record));
}

static bool put_singles(const struct learner_state *state, struct snapshot_writer *out)
{
    return (state->weightless == 0 || put_single(out, 'W', state->weightless)) &&
           (state->scored == 0 || put_single(out, 'P', state->scored)) &&
           (state->seen_last_us == TIME_MIN || put_single(out, 'E', (uint64_t)state->seen_last_us));
}

static bool restore_single(struct learner_state *state, struct str data)
{
    struct single_record record;
    if (data.length != sizeof(record))
        return false;
    memcpy(&record, data.data, sizeof(record));
    if (record.head.kind == 'W')
        state->weightless = record.value;
    else if (record.head.kind == 'P')
        state->scored = record.value;
    else
        state->seen_last_us = (int64_t)record.value;
    return record.head.item_bytes == sizeof(record.value);
}

struct mean_record {
    struct record_head head;
    struct model_mean mean;
};

static bool put_mean(const struct learner_config *c, struct snapshot_writer *out)
{
    struct mean_record record = {{'B', STATE_VERSION, 0, 0, sizeof(record.mean)},
                                 *model_mean(c->state->model)};
    return !c->model.is_centered || snapshot_put(out, SNAPSHOT_GLOBAL, &record, sizeof(record));
}

static bool restore_mean(const struct learner_config *c, struct str data)
{
    struct mean_record record;
    if (data.length != sizeof(record) || !c->model.is_centered)
        return false;
    memcpy(&record, data.data, sizeof(record));
    *model_mean(c->state->model) = record.mean;
    return record.head.item_bytes == sizeof(record.mean) && isfinite(record.mean.labels) &&
           record.mean.weights >= 0.0 && isfinite(record.mean.weights);
}

struct list_record {
    struct record_head head;
    uint64_t lists_cut, ids_cut;
};

static bool put_lists(const struct learner_state *state, uint32_t fields, struct snapshot_writer *out)
{
    bool is_ok = true;
    for (uint32_t f = 0; f < fields && is_ok; f++) {
        struct list_record record = {{'L', STATE_VERSION, (uint8_t)f, 0, 2 * sizeof(uint64_t)},
                                     state->lists_cut[f],
                                     state->ids_cut[f]};
        if (record.lists_cut > 0)
            is_ok = snapshot_put(out, SNAPSHOT_GLOBAL, &record, sizeof(record));
    }
    return is_ok;
}

bool learner_snapshot(struct operator_context *context, struct snapshot_writer *writer)
{
    struct learner_config *c = context->config;
    struct learner_state *state = c->state;
    learner_snapshot_settle(state, false);
    leat_assert(state->snapshot == NULL); /* one checkpoint at a time */
    uint32_t epoch = state->epoch;
    leat_assert(epoch < UINT32_MAX); /* it takes billions of cuts, which end before (cut.c) */
    if (!put_features(c, writer) || !put_state(state, c->inputs.labels_count, epoch, writer) ||
        !put_totals(state, c->inputs.sparse_count, writer) || !put_singles(state, writer) ||
        !put_mean(c, writer) || !put_lists(state, c->inputs.sparse_count, writer))
        return false;
    struct learner_snapshot *s = mem_calloc(1, sizeof(*s));
    s->state = state;
    s->fields = c->inputs.sparse_count;
    s->epoch = epoch;
    uint32_t since = snapshot_is_base(writer) ? 0 : state->published;
    if (state->device.api != NULL) {
        learner_device_begin(state, s->fields, since, epoch);
        if (!learner_check_device(context)) {
            free(s);
            return false;
        }
    }
    for (uint32_t f = 0; f < s->fields && !state->device.api; f++) {
        struct table *table = model_table(state->model, f);
        s->tables[f] = table_snapshot_begin(table, since, epoch, &s->removed[f]);
        if (table->cold != NULL)
            table_cold_barrier(table);
    }
    state->epoch = epoch + 1;
    state->snapshot = s;
    snapshot_defer(writer, learner_write_rows, snapshot_outcome, s);
    return true;
}

/* The model whose tables are on the CPU: the learner's, or its shadow; NULL: none. */
static struct model *cpu_model(const struct learner_state *state)
{
    return state->device.api ? model_shadow(state->model) : state->model;
}

/* Restores the items of a record; those of a field that the job no longer has are skipped. */
static bool restore_items(struct learner_state *state, const struct record_head *head,
                          const unsigned char *items, size_t bytes)
{
    if (head->field >= state->saved.fields)
        return false;
    int16_t field = state->saved.field_of[head->field];
    if (field < 0)
        return true;
    if (head->kind == 'L') {
        if (bytes != sizeof(struct list_record) - sizeof(*head))
            return false;
        memcpy(&state->lists_cut[field], items, sizeof(uint64_t));
        memcpy(&state->ids_cut[field], items + sizeof(uint64_t), sizeof(uint64_t));
        return true;
    }
    struct table *table = model_table(state->model, (uint32_t)field);
    if (head->kind == 'T') {
        bool has_store = state->device.api != NULL ? learner_device_store(state, (uint32_t)field) != NULL
                                                   : table->cold != NULL;
        state->had_cold[field] = true;
        return has_store && record_total(head, items, bytes, &state->totals[field]);
    }
    if (!record_fits(table, head, bytes))
        return false;
    bool is_older = head->version != STATE_VERSION;
    if (head->kind == 'C' && is_older && record_shards(table) > 1)
        return true; /* counted by other cells: begin_from_older has said so */
    if (!is_older && !record_is_of_shard(table, head, items, bytes))
        return false;
    bool is_ok = state->device.api == NULL ||
                 learner_device_restore(state, (uint32_t)field, head->kind, items, bytes / head->item_bytes);
    if (cpu_model(state) == NULL)
        return is_ok;
    return is_ok && record_restore(model_table(cpu_model(state), (uint32_t)field), head, items, bytes);
}

/* If the window's length differs, the window begins anew; the figures of the whole run go on. */
static void restore_metrics(struct metrics *metrics, const char *data)
{
    uint64_t slice_events = metrics->slice_events;
    memcpy(metrics, data, sizeof(*metrics));
    if (metrics->slice_events == slice_events)
        return;
    metrics->slice_events = slice_events;
    metrics->slice = 0;
    memset(metrics->slices, 0, sizeof(metrics->slices));
    memset(metrics->slice_bins, 0, sizeof(metrics->slice_bins));
}

static bool restore_state(struct learner_state *state, const struct learner_config *c,
                          const struct byte_buffer *buffer)
{
    struct state_record record;
    size_t metrics_bytes = c->inputs.labels_count * sizeof(*state->metrics);
    if (buffer->length < sizeof(record) + metrics_bytes)
        return false;
    memcpy(&record, buffer->data, sizeof(record));
    if (record.head.kind != 'S' || record.metrics_bytes != metrics_bytes || record.epoch == UINT32_MAX)
        return false;
    bool is_good = true;
    for (uint32_t l = 0; l < c->inputs.labels_count; l++) {
        restore_metrics(&state->metrics[l], buffer->data + sizeof(record) + l * sizeof(*state->metrics));
        is_good = is_good && state->metrics[l].slice < METRICS_SLICES;
    }
    state->seen = record.seen;
    state->learned = record.learned;
    state->sampled_out = record.sampled_out;
    state->frozen = record.frozen;
    state->is_frozen = record.is_frozen != 0;
    state->rejected = record.rejected;
    state->published = record.epoch;
    state->epoch = record.epoch + 1;
    if (state->device.api != NULL && !learner_device_restored(state, c->inputs.sparse_count, record.epoch))
        return false;
    struct model *cpu = cpu_model(state), *shadow = model_shadow(state->model);
    for (uint32_t f = 0; f < c->inputs.sparse_count && cpu; f++) {
        table_restored(model_table(cpu, f), record.epoch);
        if (state->totals[f] > 0)
            table_cold_restored(model_table(cpu, f), state->totals[f]);
    }
    size_t at = sizeof(record) + metrics_bytes, left = buffer->length - at;
    return is_good && model_load_saved(state->model, &state->saved, buffer->data + at, left) &&
           (shadow == NULL || model_load_saved(shadow, &state->saved, buffer->data + at, left));
}

/* Before the first row of a checkpoint whose tables had one shard each: moves cold rows to their shards, and
 * says what cannot be taken. False after E0801: a store failed. */
static bool begin_from_older(struct operator_context *context)
{
    const struct learner_config *c = context->config;
    bool has_counts = false, is_ok = true;
    for (uint32_t f = 0; f < c->inputs.sparse_count && is_ok; f++) {
        const struct table *table = model_table(c->state->model, f);
        struct cold_store *store = c->state->device.api != NULL ? learner_device_store(c->state, f)
                                   : table->cold != NULL        ? table->cold->store
                                                                : NULL;
        has_counts |= table->options.admit_after > 1 && record_shards(table) > 1;
        is_ok = store == NULL || store->reshard(store->self);
    }
    if (!is_ok)
        diag_hint(context->diags,
                  diag_error(context->diags, DIAG_STATE_FAILED, (struct span){0},
                             "the cold rows of an older checkpoint could not be moved to their shards"),
                  "the database beside the checkpoints refused a write: make room on its disk, or raise the "
                  "limit on the size of files, and start again");
    if (has_counts && !context->only_reads)
        diag_warning(context->diags, DIAG_OTHER_VERSION, (struct span){0},
                     "an older version of leat wrote this checkpoint, and counted the ids that wait for "
                     "`admit_after` in another way: their counts begin at 0");
    return is_ok;
}

bool learner_restore(struct operator_context *context, struct snapshot_reader *reader)
{
    struct learner_config *c = context->config;
    struct byte_buffer newest = {0};
    bool is_ok = true, is_whole = true, has_features = false, has_mean = false;
    bool has_failed = false; /* a store; the error has been told */
    uint32_t group;
    struct str data;
    while (is_ok && snapshot_get(reader, &group, &data)) {
        struct record_head head;
        is_ok = data.length >= sizeof(head);
        if (!is_ok)
            break;
        memcpy(&head, data.data, sizeof(head));
        is_ok = head.version <= STATE_VERSION && head.version >= STATE_VERSION_FROM;
        const unsigned char *items = (const unsigned char *)data.data + sizeof(head);
        size_t bytes = data.length - sizeof(head);
        if (head.kind == 's') {
            if (is_whole)
                buffer_clear(&newest);
            buffer_append(&newest, items, bytes);
            is_whole = head.field != 0;
        } else if (head.kind == 'F') { /* the same in all checkpoints of a chain */
            struct str list = {(const char *)items, bytes};
            is_ok = is_ok && (has_features || learner_features_load(context, list));
            if (is_ok && !has_features && head.version != STATE_VERSION)
                is_ok = !(has_failed = !begin_from_older(context));
            has_features = true;
        } else if (head.kind == 'B') {
            is_ok = has_mean = is_ok && restore_mean(c, data);
        } else if (head.kind == 'W' || head.kind == 'P' || head.kind == 'E') {
            is_ok = is_ok && restore_single(c->state, data);
        } else {
            is_ok = is_ok && has_features && restore_items(c->state, &head, items, bytes);
        }
    }
    is_ok = is_ok && is_whole && has_features && restore_state(c->state, c, &newest);
    bool is_other_bias = is_ok && c->model.is_centered && !has_mean;
    if (has_failed || learner_restore_failed(context))
        is_ok = false;
    else if (!is_ok || is_other_bias)
        snapshot_corrupt(reader, context->diags,
                         is_other_bias ? "the checkpoint's model has a learned bias: set `mean_bias: false` "
                                         "to go on from this checkpoint"
                                       : "a learner's rows or weights do not fit this job");
    is_ok = is_ok && !is_other_bias;
    buffer_free(&newest);
    return is_ok;
}
