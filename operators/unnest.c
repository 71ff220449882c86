/* unnest: one row for each element of a list.
 *
 * Columns are gathered by index, 8 bytes a value; the bytes of texts stay in the input batch, which the
 * output batches hold. So a fan-out of thousands costs little memory, and output goes on in batches of
 * BATCH_ROWS while the next is made. */
#include "core/operator.h"

/* A record is at most 1 MiB, so a list has fewer elements than 2^ROW_ORDER_ELEMENT_BITS. */
static const uint64_t sub_max = UINT64_C(1) << (64 - ROW_ORDER_ELEMENT_BITS);

struct unnest {
    struct column_ref list;
    struct str prefix;
    struct column_ref time;
    uint32_t fields; /* number of columns that the list becomes */
};

static const struct option unnest_options[] = {
    OPTION_COLUMN(struct unnest, list, "list", OPTION_REQUIRED | OPTION_POSITIONAL,
                  "the list: the fields of its records become columns, or its values one column of the "
                  "same name"),
    OPTION_TEXT(struct unnest, prefix, "prefix", 0, NULL, "a prefix for the names of the records' fields"),
    OPTION_COLUMN(struct unnest, time, "time", 0,
                  "the column, of type time, that becomes the rows' event time; where it is null, the event "
                  "time stays"),
    OPTIONS_END,
};

static bool add_field(struct operator_bind *bind, struct schema *schema, struct str name, struct type type,
                      const struct lineage *lineage)
{
    const struct unnest *unnest = bind->config;
    if (schema_find(schema, name) >= 0) {
        struct diag *d = diag_error(bind->diags, DIAG_COLUMN_TAKEN, unnest->list.span,
                                    "there would be two columns `%.*s`", STR_ARGS(name));
        diag_hint(bind->diags, d, "`prefix \"...\"` gives the fields of `%.*s` other names",
                  STR_ARGS(unnest->list.name));
        return false;
    }
    schema_add(schema, name, type)->lineage = *lineage;
    return true;
}

static bool add_list(struct operator_bind *bind, struct schema *schema, const struct field *list)
{
    struct unnest *unnest = bind->config;
    const struct type *element = list->type.element;
    unnest->fields = 1;
    if (element->tag != TYPE_RECORD)
        return add_field(bind, schema, list->name, *element, &list->lineage);
    bool is_good = true;
    unnest->fields = element->fields->count;
    for (uint32_t i = 0; i < element->fields->count; i++) {
        const struct field *field = &element->fields->fields[i];
        const char *name =
            arena_printf(bind->arena, "%.*s%.*s", STR_ARGS(unnest->prefix), STR_ARGS(field->name));
        is_good &= add_field(bind, schema, str_from(name), field->type, &list->lineage);
    }
    return is_good;
}

static bool bind_time(struct operator_bind *bind, const struct schema *schema)
{
    struct unnest *unnest = bind->config;
    if (unnest->time.name.length == 0)
        return true;
    if (!column_resolve(&unnest->time, schema, bind->arena, bind->diags))
        return false;
    const struct type *type = &schema->fields[unnest->time.index].type;
    bind->sets_time = type->tag == TYPE_TIME;
    if (!bind->sets_time)
        diag_error(bind->diags, DIAG_TYPE_CLASH, unnest->time.span, "`%.*s` is %s, not a time",
                   STR_ARGS(unnest->time.name), type_name(bind->arena, type));
    return bind->sets_time;
}

static bool unnest_bind(struct operator_bind *bind)
{
    struct unnest *unnest = bind->config;
    const struct schema *input = bind->inputs[0].schema;
    if (!column_resolve(&unnest->list, input, bind->arena, bind->diags))
        return false;
    const struct field *list = &input->fields[unnest->list.index];
    if (list->type.tag != TYPE_LIST) {
        diag_error(bind->diags, DIAG_TYPE_CLASH, unnest->list.span, "`%.*s` is not a list but %s",
                   STR_ARGS(list->name), type_name(bind->arena, &list->type));
        return false;
    }
    uint32_t fields = list->type.element->tag == TYPE_RECORD ? list->type.element->fields->count : 1;
    struct schema *schema = arena_new(bind->arena, struct schema);
    if (input->count + fields > SCHEMA_FIELDS_MAX) {
        diag_error(bind->diags, DIAG_TOO_MANY, bind->span, "a stream has at most %d columns",
                   SCHEMA_FIELDS_MAX);
        return false;
    }
    schema->fields = arena_array(bind->arena, struct field, input->count + fields);
    schema->rows_lineage = input->rows_lineage;
    schema->repeats = true;                               /* other columns: in each element's row */
    lineage_merge(&schema->rows_lineage, &list->lineage); /* the list decides how many rows there are */
    bool is_good = true;
    for (uint32_t i = 0; i < input->count; i++) {
        const struct field *field = &input->fields[i];
        is_good &= field == list ? add_list(bind, schema, list)
                                 : add_field(bind, schema, field->name, field->type, &field->lineage);
    }
    bind->outputs[0] = schema;
    return is_good && bind_time(bind, schema);
}

/* Elements that become one output batch. */
struct chunk {
    struct batch *batch; /* the input batch that the elements are from */
    uint32_t count;
    uint32_t rows[BATCH_ROWS];     /* rows of that batch */
    uint32_t elements[BATCH_ROWS]; /* rows of the list's children */
    uint32_t indices[BATCH_ROWS];  /* positions in the row's list */
};

/* Copies the values of `rows` to the column `to`, which is allocated for `count` rows. */
static void gather(struct batch *batch, struct column *to, const struct column *from, const uint32_t *rows,
                   uint32_t count)
{
    void *data = to->data;
    *to = *from;
    to->data = data;
    to->valid = NULL;
    if (from->tag == TYPE_BOOL)
        for (uint32_t i = 0; i < count; i++)
            to->bools[i] = from->bools[rows[i]];
    else
        for (uint32_t i = 0; i < count; i++)
            to->ints[i] = from->ints[rows[i]];
    if (from->valid == NULL)
        return;
    to->valid = batch_valid_new(batch, count);
    for (uint32_t i = 0; i < count; i++)
        if (!bit_get(from->valid, rows[i]))
            bit_clear(to->valid, i);
}

static int64_t *gather_times(struct batch *out, const int64_t *from, const struct chunk *chunk)
{
    if (from == NULL)
        return NULL;
    int64_t *times = arena_alloc(&out->arena, chunk->count * sizeof(*times));
    for (uint32_t i = 0; i < chunk->count; i++)
        times[i] = from[chunk->rows[i]];
    return times;
}

/* Gives each output row its input row's origin, and an order that follows the list. */
static void place_rows(struct batch *out, const struct chunk *chunk)
{
    struct row_origin *origins = arena_alloc(&out->arena, chunk->count * sizeof(*origins));
    struct row_order *orders = arena_alloc(&out->arena, chunk->count * sizeof(*orders));
    for (uint32_t i = 0; i < chunk->count; i++) {
        origins[i] = batch_origin(chunk->batch, chunk->rows[i]);
        orders[i] = batch_order(chunk->batch, chunk->rows[i]);
        orders[i].sub = (orders[i].sub << ROW_ORDER_ELEMENT_BITS) + chunk->indices[i];
        orders[i].depth++;
    }
    out->origins = origins;
    out->orders = orders;
}

static void emit_chunk(struct operator_context *context, struct chunk *chunk)
{
    const struct unnest *unnest = context->config;
    struct batch *from = chunk->batch;
    if (chunk->count == 0)
        return;
    struct batch *out = batch_new(context->pool, context->output, chunk->count);
    struct column *to = out->columns;
    for (uint32_t i = 0; i < from->schema->count; i++) {
        const struct column *column = &from->columns[i];
        if ((int)i != unnest->list.index) {
            gather(out, to++, column, chunk->rows, chunk->count);
            continue;
        }
        for (uint32_t k = 0; k < unnest->fields; k++)
            gather(out, to++, &column->children[k], chunk->elements, chunk->count);
    }
    const struct column *time = unnest->time.name.length > 0 ? &out->columns[unnest->time.index] : NULL;
    for (uint32_t i = 0; i < chunk->count; i++)
        out->event_time[i] =
            time != NULL && column_is_valid(time, i) ? time->ints[i] : from->event_time[chunk->rows[i]];
    out->arrival_time = gather_times(out, from->arrival_time, chunk);
    out->order_time = gather_times(out, from->order_time, chunk);
    place_rows(out, chunk);
    out->parents[0] = from; /* holds the bytes of texts and the elements of other lists */
    batch_hold(from);
    context->counters.emitted += chunk->count;
    operator_emit(context, 0, out);
    chunk->count = 0;
}

static void unnest_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    const struct unnest *unnest = context->config;
    const struct column *lists = &batch->columns[unnest->list.index];
    struct chunk chunk = {.batch = batch};
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        if (!column_is_valid(lists, row) || lists->lists[row].length == 0) {
            context->counters.filtered++;
            continue;
        }
        struct list_ref ref = lists->lists[row];
        if (ref.length > 1U << ROW_ORDER_ELEMENT_BITS || batch_order(batch, row).sub >= sub_max) {
            operator_reject(context, batch, row,
                            "too many earlier steps have each made several rows out of one, or the list has "
                            "too many elements");
            continue;
        }
        context->counters.absorbed++;
        for (uint32_t k = 0; k < ref.length; k++) {
            chunk.rows[chunk.count] = row;
            chunk.elements[chunk.count] = ref.offset + k;
            chunk.indices[chunk.count] = k;
            if (++chunk.count == BATCH_ROWS)
                emit_chunk(context, &chunk);
        }
    }
    emit_chunk(context, &chunk);
}

const struct operator_kind operator_unnest = {
    .name = "unnest",
    .summary = "makes a row of each element of a list",
    .example = "sessions | unnest events",
    .details = "The other columns are repeated in each row. A row whose list is null or empty makes no rows "
               "and counts as filtered; other rows count as absorbed, and the rows made of them as emitted. "
               "The new rows have the event time of the row that they were made of, or that in the column "
               "that `time` names. `nest` makes one row of them again.",
    .options = unnest_options,
    .size = sizeof(struct unnest),
    .determinism = DETERMINISM_BY_ROW,
    .keeps_columns = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = unnest_bind,
    .process = unnest_process,
    .read = unnest_process,
    .fan = OPERATOR_FAN_OUT,
};
