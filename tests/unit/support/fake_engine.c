#include "fake_engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* A row that a lane emitted in this micro-batch. */
struct fake_emitted {
    struct row_order order;
    uint32_t sequence;
    size_t offset, length; /* of its text in `texts` */
};

static struct byte_buffer texts; /* of the rows in fake_engine.pending */

/* --- Rows that operators give on --- */

static void show_value(struct byte_buffer *out, const struct column *column, uint32_t row,
                       const struct type *type)
{
    if (!column_is_valid(column, row)) {
        buffer_printf(out, "null");
        return;
    }
    switch (type->tag) {
    case TYPE_BOOL: buffer_printf(out, "%d", column->bools[row]); break;
    case TYPE_FLOAT: buffer_printf(out, "%.17g", column->floats[row]); break;
    case TYPE_TEXT:
    case TYPE_BYTES: buffer_printf(out, "%.*s", STR_ARGS(column_text(column, row))); break;
    case TYPE_LIST:
        for (uint32_t i = 0; i < column->lists[row].length; i++) {
            buffer_printf(out, i == 0 ? "[" : " ");
            assert_true(column->lists[row].offset + i < column->child_rows);
            show_value(out, &column->children[0], column->lists[row].offset + i, type->element);
        }
        buffer_printf(out, column->lists[row].length == 0 ? "[]" : "]");
        break;
    default: buffer_printf(out, "%lld", (long long)column->ints[row]); break;
    }
}

static void show_row(struct byte_buffer *out, const struct batch *batch, uint32_t row)
{
    for (uint32_t c = 0; c < batch->schema->count; c++) {
        if (c > 0)
            buffer_append(out, "|", 1);
        show_value(out, &batch->columns[c], row, &batch->schema->fields[c].type);
    }
    buffer_append(out, "\n", 1);
}

/* A row of a side output. */
static void show_late(struct byte_buffer *out, uint32_t output, const struct batch *batch, uint32_t row)
{
    if (output > 1)
        buffer_printf(out, "%u> ", output);
    show_row(out, batch, row);
}

static void emit(struct fake_calls *calls, uint32_t output, struct batch *batch)
{
    struct fake_engine *engine = (struct fake_engine *)calls;
    assert_ptr_equal(batch->schema, engine->bind.outputs[output]);
    engine->batch_rows_max = MAX(engine->batch_rows_max, batch->rows);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        if (output >= 1) {
            show_late(&engine->late, output, batch, row);
            continue;
        }
        uint32_t count = (uint32_t)(engine->pending.length / sizeof(struct fake_emitted));
        struct fake_emitted emitted = {
            .order = batch_order(batch, row), .sequence = count, .offset = texts.length};
        if (i > 0) {
            struct row_order before = batch_order(batch, batch_row(batch, i - 1));
            engine->is_out_of_order |= row_order_compare(&before, &emitted.order) > 0;
        }
        show_row(&texts, batch, row);
        emitted.length = texts.length - emitted.offset;
        buffer_append(&engine->pending, &emitted, sizeof(emitted));
    }
}

static void reject(struct fake_calls *calls, uint32_t row LEAT_UNUSED, const char *reason)
{
    struct fake_engine *engine = (struct fake_engine *)calls;
    engine->rejects++;
    buffer_printf(&engine->dead, "%s\n", reason);
}

/* --- Rows to batches --- */

static struct schema *make_schema(struct arena *arena, uint32_t input)
{
    static const struct type int_type = {.tag = TYPE_INT};
    struct schema empty = {0};
    struct schema *schema = schema_copy(arena, &empty, 8);
    schema_add(schema, STR("id"), type_of(TYPE_INT));
    schema_add(schema, STR("k"), type_of(TYPE_INT));
    schema_add(schema, STR("x"), type_of(TYPE_INT));
    schema_add(schema, STR("v"), type_of(TYPE_FLOAT));
    schema_add(schema, STR("s"), type_of(TYPE_TEXT));
    schema_add(schema, STR("b"), type_of(TYPE_BOOL));
    schema_add(schema, STR("ts"), type_of(TYPE_TIME));
    schema_add(schema, STR("l"), (struct type){.tag = TYPE_LIST, .element = &int_type});
    for (uint32_t i = 0; i < schema->count; i++)
        bit_set(schema->fields[i].lineage.words, input * 16 + i);
    return schema;
}

static void fill_row(struct batch *batch, uint32_t at, const struct fake_row *row, uint32_t *used,
                     uint32_t *elements)
{
    struct column *c = batch->columns;
    c[0].ints[at] = row->id;
    c[1].ints[at] = row->has_k ? row->k : 0;
    c[2].ints[at] = row->has_x ? row->x : 0;
    c[3].floats[at] = row->has_v ? row->v : 0;
    c[5].bools[at] = row->b;
    c[6].ints[at] = batch->event_time[at] = row->ts;
    if (!row->has_k)
        batch_set_null(batch, &c[1], at);
    if (!row->has_x)
        batch_set_null(batch, &c[2], at);
    if (!row->has_v)
        batch_set_null(batch, &c[3], at);
    uint32_t length = row->s == NULL ? 0 : (uint32_t)strlen(row->s);
    if (length > 0)
        memcpy((char *)(uintptr_t)c[4].heap + *used, row->s, length);
    c[4].texts[at] = (struct text_ref){*used, length};
    *used += length;
    if (row->s == NULL)
        batch_set_null(batch, &c[4], at);
    uint32_t count = row->list == UINT32_MAX ? 0 : row->list;
    c[7].lists[at] = (struct list_ref){*elements, count};
    if (row->list == UINT32_MAX)
        batch_set_null(batch, &c[7], at);
    for (uint32_t i = 0; i < count; i++)
        c[7].children[0].ints[(*elements)++] = row->id + i;
}

/* A batch of rows[0..count), every second physical row not selected where has_holes. */
static struct batch *make_batch(struct fake_engine *engine, const struct fake_row *const *rows,
                                const uint64_t *sequence, uint32_t count, bool has_holes)
{
    uint32_t step = has_holes ? 2 : 1, text_bytes = 0, elements = 0, used = 0;
    for (uint32_t i = 0; i < count; i++) {
        text_bytes += rows[i]->s == NULL ? 0 : (uint32_t)strlen(rows[i]->s);
        elements += rows[i]->list == UINT32_MAX ? 0 : rows[i]->list;
    }
    struct batch *batch = batch_new(engine->pool, engine->schema[rows[0]->input], count * step);
    struct column *c = batch->columns;
    c[4].heap = arena_calloc(&batch->arena, step * text_bytes + 1, 1);
    c[7].child_rows = elements * step;
    batch_column_init(batch, &c[7].children[0], type_of(TYPE_INT), elements * step + 1);
    batch->order_time = arena_alloc(&batch->arena, count * step * sizeof(int64_t));
    batch->arrival_time = arena_alloc(&batch->arena, count * step * sizeof(int64_t));
    struct row_origin *origins = arena_alloc(&batch->arena, count * step * sizeof(*origins));
    struct row_order *orders = arena_alloc(&batch->arena, count * step * sizeof(*orders));
    uint16_t *sel = arena_alloc(&batch->arena, count * sizeof(*sel));
    elements = 0;
    for (uint32_t i = 0; i < count * step; i++) {
        uint64_t micro_batch = sequence[i / step];
        fill_row(batch, i, rows[i / step], &used, &elements);
        batch->order_time[i] = (int64_t)micro_batch;
        batch->arrival_time[i] = time_add(rows[i / step]->ts, FAKE_ARRIVAL_US);
        origins[i] = (struct row_origin){rows[i / step]->input, micro_batch};
        orders[i] = (struct row_order){.time = (int64_t)micro_batch};
        if (i % step == step - 1)
            sel[i / step] = (uint16_t)i;
    }
    batch->origins = origins;
    batch->orders = orders;
    batch->sel = has_holes ? sel : NULL;
    batch->selected = count;
    return batch;
}

/* The lane of a row, by a batch of this row alone, because key_encode takes batches. */
static uint32_t lane_of(struct fake_engine *engine, const struct fake_row *row)
{
    if (engine->lanes_count == 1)
        return 0;
    uint64_t sequence = 0;
    struct batch *batch = make_batch(engine, &row, &sequence, 1, false);
    const struct operator_input *input = &engine->bind.inputs[row->input];
    struct key key;
    bool has_null;
    key_encode(batch, input->key_columns, input->key_count, &key, &has_null);
    batch_release(batch);
    return placement_instance(&engine->placement, key_hash(key));
}

static void run_lane(struct fake_engine *engine, uint32_t lane, const struct fake_row *rows,
                     const uint32_t *lanes, uint32_t count)
{
    struct operator_context *context = &engine->lanes[lane];
    struct merge merge = {0};
    struct batch *last[FAKE_INPUTS] = {NULL};
    for (uint32_t input = 0; input < engine->bind.inputs_count; input++) {
        const struct fake_row *chosen[BATCH_ROWS / 2];
        uint64_t sequence[BATCH_ROWS / 2];
        for (uint32_t i = 0, filled = 0; i <= count; i++) {
            bool is_cut = i == count || filled == ARRAY_COUNT(chosen) || random_chance(&engine->random, 5);
            if (is_cut && filled > 0) {
                struct batch *batch =
                    make_batch(engine, chosen, sequence, filled, random_chance(&engine->random, 30));
                batch->next = NULL;
                *(last[input] == NULL ? &merge.first[input] : &last[input]->next) = batch;
                last[input] = batch;
                filled = 0;
            }
            if (i < count && rows[i].input == input && lanes[i] == lane) {
                chosen[filled] = &rows[i];
                sequence[filled++] = engine->rows_given + i;
            }
        }
        merge.at[input] = merge.first[input];
    }
    for (struct batch *batch = merge.first[0]; batch != NULL; batch = batch->next)
        context->counters.in += batch->selected;
    if (engine->bind.inputs_count > 1)
        engine->kind->process_merged(context, &merge);
    else
        for (struct batch *batch = merge.first[0]; batch != NULL; batch = batch->next) {
            engine->kind->process(context, 0, batch);
            arena_reset(context->scratch);
        }
    arena_reset(context->scratch);
    for (uint32_t input = 0; input < FAKE_INPUTS; input++)
        for (struct batch *batch = merge.first[input], *next; batch != NULL; batch = next) {
            next = batch->next;
            batch_release(batch);
        }
}

static int by_order(const void *a, const void *b)
{
    const struct fake_emitted *x = a, *y = b;
    int order = row_order_compare(&x->order, &y->order);
    return order != 0 ? order : x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

void fake_micro_batch(struct fake_engine *engine, const struct fake_row *rows, uint32_t count,
                      int64_t watermark)
{
    uint32_t *lanes = malloc(MAX(count, 1) * sizeof(*lanes));
    assert_non_null(lanes);
    for (uint32_t i = 0; i < count; i++)
        lanes[i] = lane_of(engine, &rows[i]);
    engine->micro_batch++;
    for (uint32_t lane = 0; lane < engine->lanes_count; lane++) {
        struct operator_context *context = &engine->lanes[lane];
        context->micro_batch = engine->micro_batch;
        run_lane(engine, lane, rows, lanes, count);
        operator_on_watermark(engine->kind, context, watermark);
        arena_reset(context->scratch);
        context->watermark = watermark;
    }
    engine->watermark = watermark;
    engine->rows_given += count;
    size_t emitted = engine->pending.length / sizeof(struct fake_emitted);
    struct fake_emitted *items = (struct fake_emitted *)(void *)engine->pending.data;
    if (emitted > 0)
        qsort(items, emitted, sizeof(*items), by_order);
    for (size_t i = 0; i < emitted; i++)
        buffer_append(&engine->output, texts.data + items[i].offset, items[i].length);
    buffer_clear(&engine->pending);
    buffer_clear(&texts);
    free(lanes);
    struct counters counters = fake_counters(engine);
    assert_true(counters_balance(&counters));
    for (unsigned i = 0; i < engine->diags.count; i++)
        fail_msg("%s: %s", diag_code_name(engine->diags.items[i].code), engine->diags.items[i].message);
}

/* --- Requests --- */

struct asking {
    struct operator_context context; /* first: the operator's calls are given it */
    struct fake_answers *answers;
};

static void take_answer(struct operator_context *context, uint32_t output, struct batch *batch)
{
    struct fake_answers *answers = ((struct asking *)(void *)context)->answers;
    for (uint32_t i = 0; i < batch->selected; i++)
        if (output == 0)
            show_row(&answers->output, batch, batch_row(batch, i));
        else
            show_late(&answers->late, output, batch, batch_row(batch, i));
    batch_release(batch);
}

static void take_reason(struct operator_context *context, const struct batch *batch LEAT_UNUSED,
                        uint32_t row LEAT_UNUSED, const char *reason)
{
    buffer_printf(&((struct asking *)(void *)context)->answers->dead, "%s\n", reason);
}

void fake_ask(struct fake_engine *engine, const struct fake_row *rows, uint32_t count,
              struct fake_answers *answers)
{
    static const struct operator_reader reader = {.emit = take_answer, .reject = take_reason};
    const struct fake_row *chosen[BATCH_ROWS / 2];
    uint64_t sequence[BATCH_ROWS / 2];
    struct arena scratch = {0};
    struct asking asking = {.context = engine->lanes[0], .answers = answers};
    asking.context.reader = &reader;
    asking.context.scratch = &scratch;
    asking.context.counters = (struct counters){0};
    assert_true(count > 0 && count <= ARRAY_COUNT(chosen));
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(rows[i].input, 0);
        chosen[i] = &rows[i];
        sequence[i] = engine->rows_given + i;
    }
    struct batch *batch = make_batch(engine, chosen, sequence, count, count % 2 == 0);
    engine->kind->read(&asking.context, 0, batch);
    batch_release(batch);
    arena_free(&scratch);
}

void fake_answers_free(struct fake_answers *answers)
{
    buffer_free(&answers->output);
    buffer_free(&answers->late);
    buffer_free(&answers->dead);
}

/* --- Life --- */

void fake_open(struct fake_engine *engine, const char *path, uint32_t inputs)
{
    *engine = (struct fake_engine){.calls = {.emit = emit, .reject = reject},
                                   .pool = batch_pool_new(),
                                   .path = path,
                                   .random = {1},
                                   .watermark = TIME_MIN};
    diag_list_init(&engine->diags, &engine->arena);
    for (uint32_t i = 0; i < inputs; i++)
        engine->schema[i] = make_schema(&engine->arena, i);
}

bool fake_bind(struct fake_engine *engine, const char *step, uint32_t inputs)
{
    engine->bind = (struct operator_bind){.arena = &engine->arena,
                                          .diags = &engine->diags,
                                          .registry = engine->registry,
                                          .inputs_count = inputs,
                                          .label_root = FAKE_LABEL_ROOT};
    for (uint32_t i = 0; i < inputs; i++)
        engine->bind.inputs[i] = (struct operator_input){.schema = engine->schema[i],
                                                         .stream = i == 0 ? STR("events") : STR("other")};
    engine->kind = fake_bind_step(&engine->bind, step);
    engine->master = engine->bind.config;
    return engine->kind != NULL;
}

enum { COUNTERS_AT = 3 * sizeof(uint64_t) /* in barrier_state */ };

/* Where the groups lie at this start, in the stays that the checkpoint has; NULL: there is none. */
static void place(struct fake_engine *engine, const struct checkpoint *found)
{
    struct placement *placement = &engine->placement;
    if (engine->starts % 2 == 0)
        placement_scatter(placement, engine->lanes_count, engine->starts);
    else
        placement_ranges(placement, engine->lanes_count);
    memset(placement->stays, 0, sizeof(placement->stays));
    if (found != NULL)
        memcpy(placement->stays, checkpoint_info(found)->sources.data + COUNTERS_AT + sizeof(struct counters),
               sizeof(placement->stays));
}

static void restore(struct fake_engine *engine, struct checkpoint *found)
{
    struct str state = checkpoint_info(found)->sources;
    struct counters counters;
    assert_int_equal(state.length, COUNTERS_AT + sizeof(counters) + sizeof(engine->placement.stays));
    memcpy(&engine->watermark, state.data, sizeof(engine->watermark));
    memcpy(&engine->micro_batch, state.data + 8, 8);
    memcpy(&engine->rows_given, state.data + 16, 8);
    memcpy(&counters, state.data + COUNTERS_AT, sizeof(counters));
    engine->lanes[0].counters = counters;
    for (uint32_t lane = 0; lane < engine->lanes_count; lane++) {
        engine->lanes[lane].watermark = engine->watermark;
        struct snapshot_reader *reader =
            checkpoint_reader(found, "op/7/", engine->lanes[lane].groups, &engine->diags);
        assert_true(operator_restore(engine->kind, &engine->lanes[lane], reader));
        assert_true(checkpoint_reader_close(reader));
    }
}

void fake_start(struct fake_engine *engine, uint32_t lanes, int64_t memory_bytes)
{
    struct checkpoint *found = NULL;
    bool is_restored = false;
    engine->lanes_count = lanes;
    engine->memory_bytes = memory_bytes;
    engine->starts++;
    if (engine->path != NULL) {
        struct checkpoint_dir_options options = {
            .path = engine->path, .fingerprint = STR("fake"), .profile = STR("cpu"), .keep = {.last = 1}};
        engine->dir = checkpoint_dir_open(&options, &engine->diags);
        assert_non_null(engine->dir);
        assert_int_not_equal(checkpoint_find(engine->dir, &found, &engine->diags), CHECKPOINT_REFUSED);
        assert_true(checkpoint_start_generation(engine->dir, found, &engine->diags));
        const char *database = checkpoint_database_path(engine->dir, 0, &engine->arena);
        if (found != NULL && checkpoint_info(found)->databases > 0)
            assert_true(checkpoint_restore_database(found, 0, database, &is_restored, &engine->diags));
        engine->store = state_store_open(database, 8 << 20, is_restored, &engine->diags);
    } else {
        engine->store = state_store_open(NULL, 8 << 20, false, &engine->diags);
    }
    assert_non_null(engine->store);
    place(engine, found);
    for (uint32_t lane = 0; lane < lanes; lane++) {
        placement_groups(&engine->placement, lane, &engine->groups[lane]);
        engine->lanes[lane] = (struct operator_context){
            .config = arena_copy(&engine->arena, engine->master, engine->kind->size),
            .engine = &engine->calls,
            .place = 7,
            .id = 7,
            .lane = lane,
            .lanes = lanes,
            .groups = &engine->groups[lane],
            .watermark = TIME_MIN,
            .memory_bytes = memory_bytes / lanes,
            .output = engine->bind.outputs[0],
            .pool = engine->pool,
            .scratch = &engine->scratch[lane],
            .diags = &engine->diags,
            .state_store = engine->store};
        assert_true(operator_open(engine->kind, &engine->lanes[lane]));
    }
    if (found != NULL)
        restore(engine, found);
    checkpoint_close(found);
}

void fake_stop(struct fake_engine *engine)
{
    if (engine->writer != NULL)
        fake_publish(engine, true);
    for (uint32_t lane = 0; lane < engine->lanes_count; lane++) {
        operator_close(engine->kind, &engine->lanes[lane]);
        arena_free(&engine->scratch[lane]);
    }
    engine->lanes_count = 0;
    engine->is_announced = false;
    if (engine->store != NULL)
        assert_null(state_store_error(engine->store));
    state_store_close(engine->store);
    checkpoint_dir_close(engine->dir);
    engine->store = NULL;
    engine->dir = NULL;
}

void fake_close(struct fake_engine *engine)
{
    fake_stop(engine);
    buffer_free(&engine->output);
    buffer_free(&engine->late);
    buffer_free(&engine->dead);
    buffer_free(&engine->pending);
    buffer_free(&texts);
    batch_pool_free(engine->pool);
    arena_free(&engine->arena);
}

void fake_barrier(struct fake_engine *engine)
{
    if (engine->writer != NULL)
        fake_publish(engine, false);
    engine->epoch = MAX(engine->epoch, engine->micro_batch) + 1;
    engine->writer =
        checkpoint_begin(engine->dir, engine->epoch, checkpoint_wants_base(engine->dir), &engine->diags);
    assert_non_null(engine->writer);
    for (uint32_t lane = 0; lane < engine->lanes_count; lane++) {
        char name[32];
        snprintf(name, sizeof(name), "op/7/%u", lane);
        assert_true(
            operator_snapshot(engine->kind, &engine->lanes[lane], checkpoint_part(engine->writer, name)));
    }
    /* What the sequencer would save at the barrier. */
    struct counters counters = fake_counters(engine);
    int64_t micro_batches[3] = {engine->watermark, (int64_t)engine->micro_batch, (int64_t)engine->rows_given};
    assert_true(snapshot_put(checkpoint_part(engine->writer, "numbers"), SNAPSHOT_GLOBAL, micro_batches,
                             sizeof(micro_batches)));
    size_t stays_at = COUNTERS_AT + sizeof(counters), stays_bytes = sizeof(engine->placement.stays);
    char *state = arena_alloc(&engine->arena, stays_at + stays_bytes);
    memcpy(state, micro_batches, sizeof(micro_batches));
    memcpy(state + COUNTERS_AT, &counters, sizeof(counters));
    memcpy(state + stays_at, engine->placement.stays, stays_bytes);
    engine->barrier_state = (struct str){state, stays_at + stays_bytes};
}

void fake_publish(struct fake_engine *engine, bool is_abandoned)
{
    bool has_database = false;
    char path[CHECKPOINT_PATH_BYTES];
    uint32_t removed;
    struct checkpoint_info info = {.sources = engine->barrier_state};
    if (is_abandoned) {
        state_store_release(engine->store);
        checkpoint_abandon(engine->writer);
    } else {
        checkpoint_writer_database(engine->writer, 0, path);
        assert_true(state_store_checkpoint(engine->store, path, &has_database, &engine->diags));
        assert_true(checkpoint_write(engine->writer, 1, &engine->diags));
        assert_true(checkpoint_publish(engine->writer, &info, &engine->diags));
        assert_true(checkpoint_prune(engine->dir, NULL, &removed, &engine->diags));
    }
    engine->writer = NULL;
}

void fake_saved(struct fake_engine *engine, struct byte_buffer *records)
{
    struct checkpoint *found = NULL;
    uint32_t group;
    struct str record;
    assert_int_equal(checkpoint_find(engine->dir, &found, &engine->diags), CHECKPOINT_FOUND);
    struct snapshot_reader *reader = checkpoint_reader(found, "op/7/", NULL, &engine->diags);
    while (snapshot_get(reader, &group, &record))
        buffer_append(records, record.data, record.length);
    assert_true(checkpoint_reader_close(reader));
    checkpoint_close(found);
}

struct counters fake_counters(const struct fake_engine *engine)
{
    struct counters sum = {0};
    for (uint32_t lane = 0; lane < engine->lanes_count; lane++)
        counters_add(&sum, &engine->lanes[lane].counters);
    return sum;
}

const struct diag *fake_diag(const struct fake_engine *engine, enum diag_code code)
{
    return fake_diag_of(&engine->diags, code);
}
