/* The rows that a library's operator makes: from input rows, in their order, or in on_watermark, in the order
 * of their times. A library that breaks its contract is stopped by an assertion, which names it (crash.c). */
#include "core/key.h"
#include "core/mem.h"
#include "core/operator.h"
#include "operators/user/making.h"

#include <stdlib.h>

static struct user_head *head_of(struct leat_context *api)
{
    return api->engine;
}

static void begin_values(struct user_head *head)
{
    struct making *m = head->making;
    if (m->values != NULL)
        return;
    m->values = batch_new(head->context->pool, head->added, BATCH_ROWS);
    for (uint32_t i = 0; i < head->added->count; i++)
        builder_init(&m->builders[i], m->values, &m->values->columns[i], head->added->fields[i].type);
    m->count = 0;
}

/* Ends the row that was begun last: writes its values to the columns. */
static void end_row(struct user_head *head)
{
    struct making *m = head->making;
    if (!m->pending.is_open)
        return;
    m->pending.is_open = false;
    uint32_t row = m->count++;
    for (uint32_t i = 0; i < head->added->count; i++) {
        struct column *column = &m->values->columns[i];
        if (!m->pending.is_set[i])
            builder_null(&m->builders[i], row);
        else if (column->tag == TYPE_TEXT || column->tag == TYPE_BYTES)
            builder_text(&m->builders[i], row, m->pending.values[i].text);
        else if (column->tag == TYPE_BOOL)
            column->bools[row] = m->pending.values[i].boolean;
        else
            column->ints[row] = m->pending.values[i].integer;
        m->pending.is_set[i] = false;
    }
}

static struct batch *end_values(struct user_head *head)
{
    struct making *m = head->making;
    struct batch *values = m->values;
    end_row(head);
    for (uint32_t i = 0; values != NULL && i < head->added->count; i++)
        builder_finish(&m->builders[i]);
    if (values != NULL)
        values->rows = values->selected = m->count;
    m->values = NULL;
    return values;
}

/* Emits the rows made from the input so far, with the input's columns if they are kept. */
void user_flush(struct user_head *head)
{
    struct making *m = head->making;
    struct operator_context *context = head->context;
    struct batch *values = end_values(head);
    if (values == NULL || m->count == 0) {
        batch_release(values);
        return;
    }
    struct batch *sources[BATCH_ROWS];
    for (uint32_t i = 0; i < m->count; i++)
        sources[i] = m->input;
    struct batch *rows = batch_gather(context->pool, m->input->schema, sources, m->rows, m->count);
    struct batch *out = batch_derive(rows, context->output);
    batch_release(rows);
    uint32_t first = head->keeps_input ? m->input->schema->count : 0;
    for (uint32_t i = 0; i < head->added->count; i++)
        out->columns[first + i] = values->columns[i];
    out->parents[1] = values;
    struct row_order *orders = arena_alloc(&out->arena, m->count * sizeof(*orders));
    for (uint32_t i = 0; i < m->count; i++) {
        orders[i] = batch_order(rows, i);
        orders[i].sub = (orders[i].sub << USER_SUB_SHIFT) + m->subs[i];
    }
    out->orders = orders;
    m->count = 0;
    operator_emit(context, 0, out);
}

/* leat_context.emit: begins a row made from input row `row`. A failed assertion is the library's fault. */
static void emit(struct leat_context *api, uint32_t row)
{
    struct user_head *head = head_of(api);
    struct making *m = head->making;
    leat_assert(m != NULL && m->input != NULL && row < m->input->rows);
    end_row(head);
    if (m->values != NULL && m->count == BATCH_ROWS)
        user_flush(head);
    begin_values(head);
    bool is_first = !bit_get(m->seen, row);
    leat_assert(is_first || row == m->last_row); /* rows made from one row must follow each other */
    m->last_row = row;
    m->last_sub = is_first ? 0 : m->last_sub + 1;
    leat_assert(m->last_sub >> USER_SUB_SHIFT == 0);
    bit_set(m->seen, row);
    m->rows[m->count] = (uint16_t)row;
    m->subs[m->count] = m->last_sub;
    m->pending.is_open = true;
    if (is_first)
        head->context->counters.passed++;
    else
        head->context->counters.emitted++;
}

/* Ends the batch of values that on_watermark is filling. */
static void add_timed(struct user_head *head)
{
    struct making *m = head->making;
    struct batch *values = end_values(head);
    if (values == NULL)
        return;
    m->timed = mem_realloc(m->timed, (m->timed_count + 1) * sizeof(struct batch *));
    m->timed[m->timed_count++] = values;
}

/* leat_context.emit_at: begins a row with an event time of its own; only in on_watermark. */
static void emit_at(struct leat_context *api, int64_t event_time, struct leat_key key)
{
    struct user_head *head = head_of(api);
    struct making *m = head->making;
    leat_assert(m != NULL && m->input == NULL && !head->keeps_input);
    end_row(head);
    if (m->values != NULL && m->count == BATCH_ROWS)
        add_timed(head);
    begin_values(head);
    if ((m->timers_count & (m->timers_count - 1)) == 0) { /* the array's size doubles at powers of two */
        m->timers = mem_realloc(m->timers, MAX(m->timers_count * 2, 1) * sizeof(*m->timers));
    }
    uint64_t tie = key_hash((struct key){key.low, key.high});
    m->timers[m->timers_count++] = (struct timer_row){event_time, tie, m->timed_count, m->count};
    m->pending.is_open = true;
    head->context->counters.emitted++;
}

static int compare_timers(const void *left, const void *right)
{
    const struct timer_row *a = left, *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->tie != b->tie)
        return a->tie < b->tie ? -1 : 1;
    if (a->batch != b->batch)
        return a->batch < b->batch ? -1 : 1;
    return a->row < b->row ? -1 : a->row > b->row;
}

void user_emit_timers(struct user_head *head)
{
    struct making *m = head->making;
    struct operator_context *context = head->context;
    add_timed(head);
    if (m->timers_count > 0)
        qsort(m->timers, m->timers_count, sizeof(*m->timers), compare_timers);
    struct row_order last = {0};
    for (uint32_t first = 0; first < m->timers_count; first += BATCH_ROWS) {
        uint32_t count = MIN(m->timers_count - first, BATCH_ROWS);
        struct batch *sources[BATCH_ROWS];
        uint16_t rows[BATCH_ROWS];
        for (uint32_t i = 0; i < count; i++) {
            sources[i] = m->timed[m->timers[first + i].batch];
            rows[i] = (uint16_t)m->timers[first + i].row;
        }
        struct batch *out = batch_gather(context->pool, context->output, sources, rows, count);
        struct row_order *orders = arena_alloc(&out->arena, count * sizeof(*orders));
        for (uint32_t i = 0; i < count; i++) {
            const struct timer_row *timer = &m->timers[first + i];
            out->event_time[i] = timer->time;
            orders[i] = row_order_of_timer(&last, 1 + context->place, timer->time, timer->tie);
        }
        out->orders = orders;
        operator_emit(context, 0, out);
    }
    for (uint32_t i = 0; i < m->timed_count; i++)
        batch_release(m->timed[i]);
    m->timed_count = m->timers_count = 0;
}

/* The row being made, in which a value of `column` is about to be set. */
static struct pending *pending_of(struct leat_context *api, uint32_t column)
{
    struct user_head *head = head_of(api);
    leat_assert(head->making != NULL && head->making->pending.is_open && column < head->added->count);
    head->making->pending.is_set[column] = true;
    return &head->making->pending;
}

static void set_bool(struct leat_context *api, uint32_t column, bool value)
{
    pending_of(api, column)->values[column].boolean = value;
}

static void set_int(struct leat_context *api, uint32_t column, int64_t value)
{
    pending_of(api, column)->values[column].integer = value;
}

static void set_float(struct leat_context *api, uint32_t column, double value)
{
    pending_of(api, column)->values[column].real = value;
}

static void set_text(struct leat_context *api, uint32_t column, const char *data, size_t length)
{
    struct user_head *head = head_of(api);
    pending_of(api, column)->values[column].text =
        (struct str){arena_copy(head->context->scratch, data, length), length};
}

static void reject(struct leat_context *api, uint32_t row, const char *reason)
{
    struct user_head *head = head_of(api);
    struct making *m = head->making;
    leat_assert(m != NULL && m->input != NULL && row < m->input->rows);
    if (bit_get(m->seen, row) || bit_get(m->dead, row))
        return;
    bit_set(m->dead, row);
    operator_reject(head->context, m->input, row, reason == NULL ? "refused" : reason);
}

void user_fill_context(struct leat_context *api)
{
    *api = (struct leat_context){.emit = emit,
                                 .emit_at = emit_at,
                                 .set_bool = set_bool,
                                 .set_int = set_int,
                                 .set_float = set_float,
                                 .set_text = set_text,
                                 .reject = reject};
}
