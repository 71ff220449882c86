/* The operator of later.h. */
#include "later.h"

#include "cli/commands.h"

#include "core/snapshot.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROWS_MAX = 4096, WORDS_MAX = 8 };

struct later_row {
    int64_t time, words[WORDS_MAX]; /* columns of 64 bits, as they are */
};

struct later_state {
    uint64_t done, count, emitted; /* parts done; rows kept; of these, rows emitted */
    struct later_row rows[ROWS_MAX];
};

struct later {
    int64_t parts;
    struct later_state *state;
    struct row_order last;
};

atomic_uint later_pause_us, later_restored_within, later_parts_run, later_parts_max = UINT_MAX;
atomic_bool later_lets_pass;

static const struct option later_options[] = {
    OPTION_INT(struct later, parts, "parts", OPTION_REQUIRED | OPTION_POSITIONAL, NULL, "0", "1000",
               "how many"),
    OPTIONS_END,
};

static bool later_bind(struct operator_bind *bind)
{
    struct later *later = bind->config;
    bind->outputs[0] = bind->inputs[0].schema;
    bind->needs_end = later->parts > 0;
    bind->hold_us = later->parts > 0 ? INT64_MAX : 0;
    bind->is_timer_kind = true;
    return bind->inputs[0].schema->count <= WORDS_MAX;
}

static bool later_open(struct operator_context *context)
{
    struct later *later = context->config;
    later->state = calloc(1, sizeof(*later->state));
    return later->state != NULL;
}

static void later_process(struct operator_context *context, uint32_t input LEAT_UNUSED, struct batch *batch)
{
    struct later *later = context->config;
    bool is_in_time = context->watermark != TIME_MAX && later->state->done == 0;
    leat_assert(is_in_time || later_lets_pass);
    if (later->parts == 0 || !is_in_time) {
        context->counters.passed += batch->selected;
        batch_hold(batch);
        operator_emit(context, 0, batch);
        return;
    }
    usleep(atomic_load(&later_pause_us)); /* so that there are checkpoints before the end, too */
    context->counters.held += batch->selected;
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        leat_assert(later->state->count < ROWS_MAX);
        struct later_row *kept = &later->state->rows[later->state->count++];
        kept->time = batch->event_time[row];
        for (uint32_t c = 0; c < batch->schema->count; c++)
            kept->words[c] = batch->columns[c].ints[row];
    }
}

static void emit_rows(struct operator_context *context, struct later *later, uint64_t end)
{
    struct later_state *state = later->state;
    uint32_t rows = (uint32_t)(end - state->emitted);
    leat_assert(rows <= BATCH_ROWS);
    struct batch *batch = batch_new(context->pool, context->output, rows);
    struct row_order *orders = arena_alloc(&batch->arena, MAX(rows, 1) * sizeof(*orders));
    for (uint32_t i = 0; i < rows; i++) {
        const struct later_row *kept = &state->rows[state->emitted + i];
        batch->event_time[i] = kept->time;
        orders[i] = row_order_of_timer(&later->last, context->place, kept->time, 0);
        for (uint32_t c = 0; c < batch->schema->count; c++)
            batch->columns[c].ints[i] = kept->words[c];
    }
    batch->orders = orders;
    state->emitted = end;
    context->counters.held -= rows;
    context->counters.passed += rows;
    operator_emit(context, 0, batch);
}

/* One part for each call, from the first on in which the input has ended. */
static void later_on_watermark(struct operator_context *context, int64_t watermark)
{
    struct later *later = context->config;
    struct later_state *state = later->state;
    later->last = (struct row_order){0};
    if (watermark != TIME_MAX || state->done == (uint64_t)later->parts)
        return;
    while (atomic_load(&later_parts_run) >= atomic_load(&later_parts_max))
        usleep(1000);
    state->done++;
    atomic_fetch_add(&later_parts_run, 1);
    usleep(atomic_load(&later_pause_us));
    emit_rows(context, later, state->count * state->done / (uint64_t)later->parts);
}

static bool later_wants_more(const struct operator_context *context)
{
    const struct later *later = context->config;
    return later->state->done < (uint64_t)later->parts;
}

static bool later_snapshot(struct operator_context *context, struct snapshot_writer *writer)
{
    const struct later *later = context->config;
    return snapshot_put(writer, SNAPSHOT_GLOBAL, later->state, sizeof(*later->state));
}

static bool later_restore(struct operator_context *context, struct snapshot_reader *reader)
{
    struct later *later = context->config;
    uint32_t group;
    struct str data;
    while (snapshot_get(reader, &group, &data)) {
        leat_assert(data.length == sizeof(*later->state));
        memcpy(later->state, data.data, data.length);
    }
    atomic_fetch_add(&later_restored_within, later->state->done > 0 && later_wants_more(context));
    return true;
}

static void later_report(struct operator_context *context, struct report *report)
{
    const struct later *later = context->config;
    if (later->parts > 0)
        report_add(report, "end_share_done", (double)later->state->done / (double)later->parts, false);
}

static void later_close(struct operator_context *context)
{
    struct later *later = context->config;
    if (later != NULL)
        free(later->state);
}

const struct operator_kind operator_later = {.name = "later",
                                             .options = later_options,
                                             .size = sizeof(struct later),
                                             .determinism = DETERMINISM_BY_ALL_ROWS,
                                             .keeps_columns = true,
                                             .uses_time = true,
                                             .inputs_min = 1,
                                             .inputs_max = 1,
                                             .bind = later_bind,
                                             .open = later_open,
                                             .process = later_process,
                                             .on_watermark = later_on_watermark,
                                             .wants_more = later_wants_more,
                                             .snapshot = later_snapshot,
                                             .restore = later_restore,
                                             .report = later_report,
                                             .close = later_close};

const struct registry *registry_with(const struct operator_kind *kind)
{
    enum { OPERATORS_MAX = 128 };
    static struct registry registry;
    static const struct operator_kind *list[OPERATORS_MAX];
    uint32_t count = 0;
    registry = builtin_registry;
    for (; builtin_registry.operators[count] != NULL; count++) {
        leat_assert(count < OPERATORS_MAX - 2);
        list[count] = builtin_registry.operators[count];
    }
    list[count] = kind;
    registry.operators = list;
    return &registry;
}

const struct registry *registry_with_later(void)
{
    return registry_with(&operator_later);
}
