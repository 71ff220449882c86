#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* --- Rows that operators give on, or refuse --- */

static void show(struct harness *h, const struct column *column, uint32_t row, const struct type *type)
{
    struct byte_buffer *out = &h->output;
    if (!column_is_valid(column, row)) {
        buffer_printf(out, "null");
        return;
    }
    switch (type->tag) {
    case TYPE_BOOL: buffer_printf(out, "%s", column->bools[row] != 0 ? "true" : "false"); break;
    case TYPE_FLOAT: buffer_printf(out, "%.17g", column->floats[row]); break;
    case TYPE_TEXT:
    case TYPE_BYTES: buffer_printf(out, "%.*s", STR_ARGS(column_text(column, row))); break;
    case TYPE_LIST: buffer_printf(out, "[%u]", column->lists[row].length); break;
    default: buffer_printf(out, "%lld", (long long)column->ints[row]); break;
    }
}

static void emit(struct fake_calls *calls, uint32_t output, struct batch *batch)
{
    struct harness *h = (struct harness *)calls;
    assert_int_equal(output, 0);
    h->rows += batch->selected;
    h->batches += batch->selected > 0;
    h->batch_rows_max = MAX(h->batch_rows_max, batch->rows);
    for (uint32_t i = 0; h->keeps_text && i < batch->selected; i++) {
        for (uint32_t c = 0; c < batch->schema->count; c++) {
            if (c > 0)
                buffer_append(&h->output, "|", 1);
            show(h, &batch->columns[c], batch_row(batch, i), &batch->schema->fields[c].type);
        }
        buffer_append(&h->output, "\n", 1);
    }
    if (h->digest != NULL)
        batch_digest_add(h->digest, batch);
    if (h->check != NULL)
        h->check(h, batch);
}

static void reject(struct fake_calls *calls, uint32_t row, const char *reason)
{
    struct harness *h = (struct harness *)calls;
    assert_true(h->rejects < HARNESS_REJECTS_MAX);
    h->rejected_rows[h->rejects] = row;
    h->reasons[h->rejects++] = arena_strdup(&h->arena, reason);
}

/* --- Snapshots in memory --- */

bool snapshot_put(struct snapshot_writer *writer, uint32_t key_group, const void *data, size_t bytes)
{
    uint32_t header[] = {key_group, (uint32_t)bytes};
    buffer_append(&writer->records, header, sizeof(header));
    buffer_append(&writer->records, data, bytes);
    return true;
}

uint64_t snapshot_epoch(const struct snapshot_writer *writer)
{
    (void)writer;
    return 1;
}

bool snapshot_get(struct snapshot_reader *reader, uint32_t *key_group, struct str *data)
{
    while (reader->part < reader->count && reader->at == reader->parts[reader->part].length) {
        reader->part++;
        reader->at = 0;
    }
    if (reader->part == reader->count)
        return false;
    const char *from = reader->parts[reader->part].data + reader->at;
    uint32_t header[2];
    memcpy(header, from, sizeof(header));
    *key_group = header[0];
    *data = (struct str){from + sizeof(header), header[1]};
    reader->at += sizeof(header) + header[1];
    return true;
}

/* Keyed operators are linked but not run here (unit/support/fake_engine.h runs them). */
void snapshot_defer(struct snapshot_writer *writer, snapshot_job *write, snapshot_done *done, void *argument)
{
    bool is_good = write(argument, writer);
    done(argument, is_good);
}

bool snapshot_is_base(const struct snapshot_writer *writer)
{
    (void)writer;
    return true;
}

void snapshot_corrupt(struct snapshot_reader *reader, struct diag_list *diags, const char *what)
{
    reader->is_corrupt = true;
    diag_error(diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0}, "%s", what);
}

/* --- Sample data --- */

struct schema *harness_schema(struct arena *arena)
{
    static const struct type text_type = {.tag = TYPE_TEXT};
    struct schema empty = {0};
    struct schema *record = schema_copy(arena, &empty, 2);
    schema_add(record, STR("aid"), type_of(TYPE_INT));
    schema_add(record, STR("kind"), type_of(TYPE_TEXT));
    struct type *element = arena_new(arena, struct type);
    *element = (struct type){.tag = TYPE_RECORD, .fields = record};
    struct schema *schema = schema_copy(arena, &empty, 9);
    schema_add(schema, STR("user_id"), type_of(TYPE_INT));
    schema_add(schema, STR("item_id"), type_of(TYPE_INT));
    schema_add(schema, STR("device"), type_of(TYPE_TEXT));
    schema_add(schema, STR("price"), type_of(TYPE_FLOAT));
    schema_add(schema, STR("position"), type_of(TYPE_INT));
    schema_add(schema, STR("clicked"), type_of(TYPE_BOOL));
    schema_add(schema, STR("ts"), type_of(TYPE_TIME));
    schema_add(schema, STR("tags"), (struct type){.tag = TYPE_LIST, .element = &text_type});
    schema_add(schema, STR("events"), (struct type){.tag = TYPE_LIST, .element = element});
    for (uint32_t i = 0; i < schema->count; i++)
        bit_set(schema->fields[i].lineage.words, i);
    return schema;
}

static const struct {
    int64_t user_id, item_id, position;
    double price;
    const char *device; /* NULL: null */
    uint32_t tags, events;
    bool has_user, has_price, clicked;
} samples[] = {
    {1, 10, 1, 5.0, "mobile", 2, 3, true, true, true},
    {2, 20, 0, -3.5, " Desktop ", 0, 0, true, true, false},
    {0, 30, 50, 0, NULL, 1, 2, true, false, false},
    {4, 40, 101, 2000, "TV", 0, 1, true, true, true},
    {0, 50, 7, 1.25, "tablet", 3, 0, false, true, false},
    {-6, 60, 100, 1e300, "", 1, 4, true, true, true},
    {7, 70, 3, 12.5, "12.5", 0, 1, true, true, false},
    {8, INT64_MAX, 9, 0.1, "mobile", 1, 1, true, true, true},
};

static void put_text(struct batch *batch, struct column *column, uint32_t at, uint32_t *used,
                     const char *text)
{
    uint32_t length = (uint32_t)strlen(text);
    (void)batch;
    memcpy((char *)column->heap + *used, text, length);
    column->texts[at] = (struct text_ref){*used, length};
    *used += length;
}

static void child_init(struct batch *batch, struct column *child, uint32_t rows)
{
    child->data = arena_calloc(&batch->arena, rows + 1, 8);
    child->heap = arena_alloc(&batch->arena, (size_t)rows * 8 + 8);
    child->child_rows = rows;
}

struct batch *harness_batch(struct harness *h, uint32_t rows)
{
    struct batch *batch = batch_new(h->pool, h->inputs[0], rows);
    struct column *c = batch->columns;
    uint32_t used = 0, tags = 0, events = 0, tags_used = 0, kinds_used = 0;
    c[2].heap = arena_alloc(&batch->arena, (size_t)rows * 16 + 16);
    child_init(batch, &c[7].children[0], rows * 3);
    child_init(batch, &c[8].children[0], rows * 4);
    child_init(batch, &c[8].children[1], rows * 4);
    batch->partition = 3;
    batch->first_record = 1000;
    batch->order_time = arena_alloc(&batch->arena, (rows + 1) * sizeof(int64_t));
    for (uint32_t i = 0; i < rows; i++) {
        size_t k = i % ARRAY_COUNT(samples);
        c[0].ints[i] = samples[k].user_id;
        c[1].ints[i] = samples[k].item_id;
        c[3].floats[i] = samples[k].price;
        c[4].ints[i] = samples[k].position;
        c[5].bools[i] = samples[k].clicked;
        c[6].ints[i] = batch->event_time[i] = batch->order_time[i] = (int64_t)i * US_PER_SECOND;
        put_text(batch, &c[2], i, &used, samples[k].device == NULL ? "" : samples[k].device);
        if (!samples[k].has_user)
            batch_set_null(batch, &c[0], i);
        if (!samples[k].has_price)
            batch_set_null(batch, &c[3], i);
        if (samples[k].device == NULL)
            batch_set_null(batch, &c[2], i);
        c[7].lists[i] = (struct list_ref){tags, samples[k].tags};
        for (uint32_t t = 0; t < samples[k].tags; t++)
            put_text(batch, &c[7].children[0], tags++, &tags_used, t == 0 ? "new" : "hot");
        c[8].lists[i] = (struct list_ref){events, samples[k].events};
        for (uint32_t e = 0; e < samples[k].events; e++, events++) {
            c[8].children[0].ints[events] = samples[k].item_id + e;
            put_text(batch, &c[8].children[1], events, &kinds_used, e % 2 == 0 ? "view" : "cart");
        }
    }
    c[7].child_rows = tags;
    c[8].child_rows = events;
    return batch;
}

/* --- Running one operator --- */

void harness_init(struct harness *h)
{
    *h = (struct harness){.calls = {.emit = emit, .reject = reject},
                          .pool = batch_pool_new(),
                          .inputs_count = 1,
                          .keeps_text = true};
    diag_list_init(&h->diags, &h->arena);
    h->inputs[0] = harness_schema(&h->arena);
}

static void close_instance(struct harness *h)
{
    if (h->kind != NULL && h->context.config != NULL)
        operator_close(h->kind, &h->context);
    h->kind = NULL;
}

void harness_free(struct harness *h)
{
    close_instance(h);
    buffer_free(&h->output);
    batch_pool_free(h->pool); /* asserts that no batch is left */
    arena_free(&h->scratch);
    arena_free(&h->arena);
}

bool harness_bind(struct harness *h, const char *step)
{
    close_instance(h);
    h->bind = (struct operator_bind){
        .arena = &h->arena, .diags = &h->diags, .registry = h->registry, .inputs_count = h->inputs_count};
    for (uint32_t i = 0; i < h->inputs_count; i++)
        h->bind.inputs[i] = (struct operator_input){
            .schema = h->inputs[i], .stream = str_from(arena_printf(&h->arena, "input%u", i))};
    const struct operator_kind *kind = fake_bind_step(&h->bind, step);
    if (kind == NULL)
        return false;
    h->kind = kind;
    h->master = h->bind.config;
    h->context = (struct operator_context){.config = arena_copy(&h->arena, h->master, h->kind->size),
                                           .engine = &h->calls,
                                           .lanes = 1,
                                           .watermark = TIME_MIN,
                                           .memory_bytes = h->memory_bytes,
                                           .output = h->bind.outputs[0],
                                           .pool = h->pool,
                                           .scratch = &h->scratch,
                                           .diags = &h->diags};
    return operator_open(h->kind, &h->context);
}

void harness_push(struct harness *h, uint32_t input, struct batch *batch)
{
    h->context.counters.in += batch->selected;
    h->kind->process(&h->context, input, batch);
    arena_reset(&h->scratch);
    batch_release(batch);
    assert_true(counters_balance(&h->context.counters));
}

const char *harness_text(struct harness *h)
{
    return fake_text(&h->output);
}

void harness_forget(struct harness *h)
{
    buffer_clear(&h->output);
    h->context.counters = (struct counters){0};
    h->rows = h->batches = 0;
    h->rejects = h->batch_rows_max = 0;
}

const struct diag *harness_diag(const struct harness *h, enum diag_code code)
{
    return fake_diag_of(&h->diags, code);
}
