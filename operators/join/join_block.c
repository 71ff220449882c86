/* The join's rows, batch by batch: finds the rows that are late or can match nothing, and passes the other
 * rows on in the order of both inputs, in blocks of at most BATCH_ROWS rows. A block has one bracket of the
 * table, or more if output batches must be emitted in between. */
#include "operators/expr/compute.h"

#include "core/mem.h"
#include "operators/join/join.h"

#include <stdlib.h>

static const uint64_t sub_max = UINT64_C(1) << (64 - JOIN_SUB_SHIFT);

struct reject {
    const struct batch *batch;
    uint32_t row;
    const char *reason;
};

/* A block: rows of both inputs in order. rejects: rows for dead letters, sent there outside brackets. */
struct join_block {
    uint32_t count;
    struct key keys[BATCH_ROWS];
    uint64_t hashes[BATCH_ROWS];
    struct join_prepared *prepared[BATCH_ROWS];
    uint16_t indices[BATCH_ROWS]; /* selected index in its batch */
    struct reject rejects[BATCH_ROWS];
    uint32_t rejects_count;
};

struct join_block *join_block_new(void)
{
    struct join_block *block = mem_alloc(sizeof(*block));
    return block;
}

/* --- Preparing a batch --- */

int64_t join_high_of(const struct join *join, const struct join_prepared *prepared, uint32_t row)
{
    return join->high == NULL ? join->high_us : prepared->high.ints[row];
}

/* The row's deadline: the last watermark at which it is not late. */
static int64_t until_of(const struct join *join, const struct join_prepared *prepared, uint32_t row)
{
    int64_t time = prepared->batch->event_time[row];
    if (prepared->side == 1)
        return join_right_until(join, time);
    int64_t window = join->is_window ? windows_last(&join->windows, time) : 0;
    return join_left_reach(join, time, join_high_of(join, prepared, row), window).until;
}

static enum join_fate fate_of(const struct operator_context *context, const struct join *join,
                              const struct join_prepared *prepared, uint32_t index,
                              const struct expr_errors *errors)
{
    uint32_t row = batch_row(prepared->batch, index);
    if (errors->count > 0 && bit_get(errors->rows, row))
        return JOIN_FAILED;
    bool has_bound = prepared->side == 1 || join->high == NULL || column_is_valid(&prepared->high, row);
    int64_t until = has_bound ? until_of(join, prepared, row) : prepared->batch->event_time[row];
    if (until < context->watermark)
        return JOIN_LATE;
    return prepared->keys.has_null[index] || !has_bound ? JOIN_ALONE : JOIN_TAKEN;
}

/* Emits the late rows of one side, in the columns of both. */
static void emit_late(struct operator_context *context, const struct join *join,
                      const struct join_prepared *prepared)
{
    struct batch *batch = prepared->batch;
    struct batch *late = batch_derive(batch, join->late);
    uint16_t *sel = arena_alloc(&late->arena, batch->selected * sizeof(*sel));
    struct row_order *orders = arena_alloc(&late->arena, MAX(batch->rows, 1) * sizeof(*orders));
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        if (prepared->fates[i] != JOIN_LATE)
            continue;
        sel[count++] = (uint16_t)row;
        orders[row] = batch_order(batch, row);
        orders[row].sub = orders[row].sub << JOIN_SUB_SHIFT | (prepared->side == 1 ? JOIN_SUB_RIGHT : 0);
    }
    void *nothing = arena_calloc(&late->arena, MAX(batch->rows, 1), sizeof(int64_t));
    uint64_t *nulls = arena_calloc(&late->arena, BATCH_VALID_WORDS, sizeof(*nulls));
    for (uint32_t c = 0; c < join->late->count; c++) {
        struct column *column = &late->columns[c];
        batch_column_init(late, column, join->late->fields[c].type, 1);
        column->data = nothing;
        column->valid = nulls;
    }
    for (uint32_t c = 0; c < batch->schema->count; c++)
        late->columns[join->late_columns[prepared->side][c]] = batch->columns[c];
    late->sel = sel;
    late->selected = count;
    late->orders = orders;
    operator_emit(context, 1, late);
}

static void count_fates(struct operator_context *context, const struct join *join,
                        struct join_prepared *prepared, const struct expr_errors *errors)
{
    struct batch *batch = prepared->batch;
    uint64_t late = 0, alone = 0;
    for (uint32_t i = 0; i < batch->selected; i++) {
        enum join_fate fate = fate_of(context, join, prepared, i, errors);
        prepared->fates[i] = (uint8_t)fate;
        late += fate == JOIN_LATE;
        alone += fate == JOIN_ALONE;
        context->counters.null_keys += prepared->keys.has_null[i];
    }
    if (prepared->side == 1)
        context->counters.in += batch->selected; /* the engine counts the rows of input 0 */
    context->counters.late += late;
    /* Left rows that can match nothing but are emitted (left, anti) are counted when they are emitted. */
    if (prepared->side == 1 || (join->kind != JOIN_LEFT && join->kind != JOIN_ANTI))
        context->counters.filtered += alone;
    compute_reject(context, batch, errors);
    if (late > 0)
        emit_late(context, join, prepared);
}

static struct join_prepared *prepare(struct operator_context *context, struct join *join, struct batch *batch,
                                     int side)
{
    struct join_prepared *prepared = arena_alloc(context->scratch, sizeof(*prepared));
    prepared->batch = batch;
    prepared->side = side;
    prepared->keys = keys_of(batch, join->keys[side], join->on.count, context->scratch);
    struct expr_errors errors = {0};
    if (side == 0 && join->high != NULL)
        expr_eval(join->high, batch, context->scratch, context->scratch, &prepared->high, &errors);
    if (side == 1 && join->take != JOIN_ALL)
        prepared->order = ordering_evaluate(&join->ordering, batch, context->scratch, &errors);
    count_fates(context, join, prepared, &errors);
    hot_keys_note(join->hot, batch, join->keys[side], join->on.count, &prepared->keys);
    return prepared;
}

/* --- Blocks of rows --- */

void join_emit(struct operator_context *context, const struct join *join, bool is_last)
{
    struct batch *batch;
    while ((batch = joined_take(join->joined, is_last)) != NULL)
        operator_emit(context, 0, batch);
}

static void begin_meeting(struct operator_context *context, struct join *join, struct join_meeting *m,
                          uint32_t at)
{
    struct join_block *block = join->block;
    struct join_prepared *prepared = block->prepared[at];
    *m = (struct join_meeting){.context = context,
                               .join = join,
                               .prepared = prepared,
                               .index = block->indices[at],
                               .key = block->keys[at]};
    m->row = batch_row(prepared->batch, m->index);
    m->made.order = batch_order(prepared->batch, m->row);
    if (m->made.order.sub >= sub_max)
        m->failed = "too many earlier steps have each made several rows out of one";
    m->made.order.sub = m->made.order.sub << JOIN_SUB_SHIFT | (prepared->side == 1 ? JOIN_SUB_RIGHT : 0);
    m->made.sides[prepared->side] = (struct joined_from){.batch = prepared->batch, .row = m->row};
}

static void process_block(struct operator_context *context, struct join *join)
{
    struct join_block *block = join->block;
    struct keyed_slot *slots[BATCH_ROWS];
    struct join_meeting m;
    bool has_row = false;
    block->rejects_count = 0;
    for (uint32_t at = 0; at < block->count;) {
        uint32_t first = at;
        keyed_begin(join->rows.heads, block->keys + at, block->hashes + at, block->count - at, slots);
        for (; at < block->count && !joined_is_full(join->joined); at++) {
            if (!has_row)
                begin_meeting(context, join, &m, at);
            has_row = m.failed == NULL && !(m.prepared->side == 0 ? join_take_left(&m, slots[at - first])
                                                                  : join_take_right(&m, slots[at - first]));
            if (has_row)
                break;
            if (m.failed != NULL)
                block->rejects[block->rejects_count++] = (struct reject){m.prepared->batch, m.row, m.failed};
        }
        keyed_end(join->rows.heads);
        join_emit(context, join, false);
    }
    for (uint32_t i = 0; i < block->rejects_count; i++)
        operator_reject(context, block->rejects[i].batch, block->rejects[i].row, block->rejects[i].reason);
    block->count = 0;
}

/* Whether the row must be processed: it may match, or it is a left row that is emitted without a match. Late
 * and failed rows are done already. */
static bool is_wanted(const struct join *join, const struct join_prepared *prepared, uint32_t index)
{
    bool goes_alone = prepared->side == 0 && (join->kind == JOIN_LEFT || join->kind == JOIN_ANTI);
    return prepared->fates[index] == JOIN_TAKEN || (prepared->fates[index] == JOIN_ALONE && goes_alone);
}

void join_process_merged(struct operator_context *context, struct merge *merge)
{
    struct join *join = context->config;
    struct join_block *block = join->block;
    struct join_prepared *current[2] = {NULL, NULL};
    struct merge_row row;
    block->count = 0;
    while (merge_next(merge, &row)) {
        struct join_prepared **prepared = &current[row.input];
        if (*prepared == NULL || (*prepared)->batch != row.batch)
            *prepared = prepare(context, join, row.batch, (int)row.input);
        if (!is_wanted(join, *prepared, row.index))
            continue;
        block->prepared[block->count] = *prepared;
        block->indices[block->count] = (uint16_t)row.index;
        block->keys[block->count] = (*prepared)->keys.keys[row.index];
        block->hashes[block->count] = (*prepared)->keys.hashes[row.index];
        if (++block->count == BATCH_ROWS)
            process_block(context, join);
    }
    if (block->count > 0)
        process_block(context, join);
    join_emit(context, join, true);
}
