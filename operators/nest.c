/* nest: one row of the rows that `unnest` made of one record: the way back from elements to a list.
 *
 * Rows of one record have equal orders but for the last ROW_ORDER_ELEMENT_BITS bits of `sub`, where `unnest` counts the elements.
 * The one instance gets all rows in order, so the rows of a record follow one another, within one micro-batch: nothing
 * is kept beyond its end, and no list waits for a later event. Of a group that is still open, at most `first` rows
 * are remembered, the best ones, with the batches that hold them. */
#include "operators/expr/compute.h"
#include "operators/rows/codec.h"
#include "operators/rows/ordering.h"

#include "core/mem.h"

#include <stdlib.h>

/* A row that becomes an element. key: in the scratch memory of the call, or in the state's keys. */
struct nested {
    struct batch *batch;
    uint32_t row;
    struct order_key key;
};

/* The lane's. A group is what one record became; `rows` are those of the open one, best first. Finished groups wait in the
 * arrays firsts (the first row of each), counts and elements until the call ends. */
struct nest_state {
    bool is_open, is_older; /* is_older: the open group began in an earlier batch */
    struct row_order order;
    struct batch *first_batch;
    uint32_t first_row;
    uint64_t seen; /* rows of the open group */
    struct nested *rows;
    uint32_t rows_count;
    struct byte_buffer keys[2], value; /* keys: of the open group's rows between two calls; they take turns */
    struct batch *firsts[BATCH_ROWS];
    uint16_t first_rows[BATCH_ROWS];
    uint32_t counts[BATCH_ROWS], groups;
    struct nested *elements;
    uint32_t elements_count;
    struct batch **held; /* earlier batches with rows of the open group */
    uint32_t held_count, held_room;
};

struct nest {
    struct columns columns;
    struct name_ref as;
    struct expressions order;
    int64_t first;
    /* Made by bind. */
    struct ordering ordering;
    const struct schema *input;
    int *kept; /* the input's columns that stay */
    uint32_t kept_count;
    struct nest_state *state;
};

static const struct option nest_options[] = {
    OPTION_COLUMNS(
        struct nest, columns, "columns", OPTION_REQUIRED | OPTION_POSITIONAL,
        "columns that become the list: of one column a list of its values, of several a list of records"),
    OPTION_NAME(struct nest, as, "as", OPTION_REQUIRED, "the new column: the list"),
    OPTION_EXPRESSIONS(
        struct nest, order, "order", 0,
        "the order of the elements: the smaller value comes first, in desc() the larger; if equal, the next "
        "expression decides, then the order of `unnest`, which holds without `order`, too. Null comes last"),
    OPTION_INT(struct nest, first, "first", 0, "10000", "1", "10000",
               "how many elements a list has at most, from its beginning"),
    OPTIONS_END,
};

/* --- Binding --- */

static bool is_nested(const struct nest *nest, int column)
{
    for (uint32_t i = 0; i < nest->columns.count; i++)
        if (nest->columns.items[i].index == column)
            return true;
    return false;
}

static bool check_columns(struct operator_bind *bind, const struct nest *nest)
{
    for (uint32_t i = 0; i < nest->columns.count; i++) {
        const struct column_ref *ref = &nest->columns.items[i];
        const struct field *field = &nest->input->fields[ref->index];
        if (field->type.tag != TYPE_LIST)
            continue;
        struct diag *d = diag_error(bind->diags, DIAG_TYPE_CLASH, ref->span,
                                    "elements of a list are single values, and `%.*s` is %s",
                                    STR_ARGS(field->name), type_name(bind->arena, &field->type));
        diag_hint(bind->diags, d, "leave the column out: a column that is not named stays as it is");
        return false;
    }
    return true;
}

/* The type of the list: of values, or of records with the columns as fields. */
static struct type list_type(struct operator_bind *bind, const struct nest *nest)
{
    static const struct schema empty;
    struct type *element = arena_new(bind->arena, struct type);
    struct schema *record = schema_copy(bind->arena, &empty, nest->columns.count);
    for (uint32_t i = 0; i < nest->columns.count; i++) {
        const struct field *field = &nest->input->fields[nest->columns.items[i].index];
        schema_add(record, field->name, field->type);
    }
    *element = nest->columns.count == 1 ? record->fields[0].type
                                        : (struct type){.tag = TYPE_RECORD, .fields = record};
    return (struct type){.tag = TYPE_LIST, .element = element, .length_max = (uint32_t)nest->first};
}

static bool nest_bind(struct operator_bind *bind)
{
    struct nest *nest = bind->config;
    nest->input = bind->inputs[0].schema;
    if (!columns_resolve(&nest->columns, nest->input, bind->arena, bind->diags) ||
        !check_columns(bind, nest) ||
        (nest->order.count > 0 && !ordering_bind(bind, 0, &nest->order, "order", &nest->ordering)))
        return false;
    struct schema *output = arena_new(bind->arena, struct schema);
    output->fields = arena_array(bind->arena, struct field, nest->input->count + 1);
    output->rows_lineage = nest->input->rows_lineage;
    output->repeats = nest->input->repeats;
    nest->kept = arena_array(bind->arena, int, nest->input->count);
    for (uint32_t i = 0; i < nest->input->count; i++)
        if (!is_nested(nest, (int)i)) {
            output->fields[output->count++] = nest->input->fields[i];
            nest->kept[nest->kept_count++] = (int)i;
        }
    struct field *list =
        operator_add_chosen(bind, output, nest->as.name, list_type(bind, nest), nest->as.span);
    if (list == NULL)
        return false;
    for (uint32_t i = 0; i < nest->columns.count; i++)
        field_merge(list, &nest->input->fields[nest->columns.items[i].index]);
    if (nest->order.count > 0)
        ordering_lineage(&nest->ordering, &list->lineage);
    bind->outputs[0] = output;
    return true;
}

static bool nest_open(struct operator_context *context)
{
    struct nest *nest = context->config;
    nest->state = mem_calloc(1, sizeof(*nest->state));
    nest->state->rows = mem_calloc((size_t)nest->first, sizeof(*nest->state->rows));
    nest->state->elements = mem_calloc((size_t)nest->first + BATCH_ROWS, sizeof(*nest->state->elements));
    return true;
}

/* The place that the row had before `unnest`; a row that is in no list has its own. */
static struct row_order order_of_group(struct row_order order)
{
    if (order.depth > 0) {
        order.sub >>= ROW_ORDER_ELEMENT_BITS;
        order.depth--;
    }
    return order;
}

/* --- Rows out --- */

static void put_element(struct nest_state *s, const struct nest *nest, struct column_builder *list,
                        const struct nested *element)
{
    for (uint32_t c = 0; c < nest->columns.count; c++) {
        int column = nest->columns.items[c].index;
        struct column_builder *child = &list->children[c];
        s->value.length = 0;
        row_encode_value(&s->value, &element->batch->columns[column], &nest->input->fields[column].type,
                         element->row);
        const char *at = s->value.data;
        bool is_whole = builder_decode(child, builder_append(child), &at, s->value.data + s->value.length);
        leat_assert(is_whole);
    }
}

/* Emits the finished groups, each with the place that its record had before `unnest`. */
static void emit_groups(struct operator_context *context)
{
    struct nest *nest = context->config;
    struct nest_state *s = nest->state;
    if (s->groups == 0)
        return;
    struct batch *firsts = batch_gather(context->pool, nest->input, s->firsts, s->first_rows, s->groups);
    struct batch *out = batch_derive(firsts, context->output);
    for (uint32_t i = 0; i < nest->kept_count; i++)
        out->columns[i] = firsts->columns[nest->kept[i]];
    struct type type = context->output->fields[nest->kept_count].type;
    struct column_builder list;
    batch_column_init(out, &out->columns[nest->kept_count], type, s->groups);
    builder_init(&list, out, &out->columns[nest->kept_count], type);
    struct row_order *orders = arena_alloc(&out->arena, s->groups * sizeof(*orders));
    for (uint32_t g = 0, at = 0; g < s->groups; g++) {
        orders[g] = batch_order(firsts, g);
        orders[g] = order_of_group(orders[g]);
        builder_list(&list, g, s->counts[g]);
        for (uint32_t k = 0; k < s->counts[g]; k++)
            put_element(s, nest, &list, &s->elements[at++]);
    }
    builder_finish(&list);
    out->orders = orders;
    context->counters.emitted += s->groups;
    s->groups = s->elements_count = 0;
    operator_emit(context, 0, out);
    batch_release(firsts);
}

static void finish_group(struct operator_context *context)
{
    struct nest *nest = context->config;
    struct nest_state *s = nest->state;
    if (!s->is_open)
        return;
    leat_assert(s->groups < BATCH_ROWS && s->rows_count > 0);
    s->firsts[s->groups] = s->first_batch;
    s->first_rows[s->groups] = (uint16_t)s->first_row;
    s->counts[s->groups++] = s->rows_count;
    memcpy(s->elements + s->elements_count, s->rows, s->rows_count * sizeof(*s->rows));
    s->elements_count += s->rows_count;
    context->counters.absorbed += s->rows_count;
    context->counters.filtered += s->seen - s->rows_count;
    s->is_open = false;
}

/* --- Rows in --- */

static bool is_of_group(const struct nest_state *s, const struct row_order *order)
{
    struct row_order mine = order_of_group(s->order), other = order_of_group(*order);
    return s->is_open && s->order.depth == order->depth && row_order_compare(&mine, &other) == 0;
}

/* Puts the row behind those that are better or equal; of more than `first` rows the last one is left out. */
static void add_row(const struct nest *nest, struct nest_state *s, const struct nested *row)
{
    uint32_t at = s->rows_count, low = 0;
    s->seen++;
    while (nest->order.count > 0 && low < at) {
        uint32_t middle = low + (at - low) / 2;
        if (ordering_compare(&nest->ordering, &row->key, &s->rows[middle].key) < 0)
            at = middle;
        else
            low = middle + 1;
    }
    if (at == (uint32_t)nest->first)
        return;
    s->rows_count -= s->rows_count == (uint32_t)nest->first;
    memmove(s->rows + at + 1, s->rows + at, (s->rows_count - at) * sizeof(*s->rows));
    s->rows[at] = *row;
    s->rows_count++;
}

static void release_held(struct nest_state *s)
{
    for (uint32_t i = 0; i < s->held_count; i++)
        batch_release(s->held[i]);
    s->held_count = 0;
}

/* Copies the keys of the open group's rows, which lie in scratch memory or in keys[0], to keys[1], and swaps the two. */
static void keep_keys(const struct nest *nest, struct nest_state *s)
{
    struct byte_buffer keys = s->keys[1];
    size_t bytes = 0;
    for (uint32_t i = 0; i < s->rows_count && nest->order.count > 0; i++)
        bytes += (ordering_key_bytes(&nest->ordering, &s->rows[i].key) + 7) & ~(size_t)7;
    keys.length = 0;
    char *at = buffer_reserve(&keys, bytes);
    for (uint32_t i = 0; i < s->rows_count && nest->order.count > 0; i++) {
        struct str put = {at, ordering_key_bytes(&nest->ordering, &s->rows[i].key)};
        ordering_put(&nest->ordering, &s->rows[i].key, at);
        bool is_key = ordering_get(&nest->ordering, put, &s->rows[i].key);
        leat_assert(is_key);
        at += (put.length + 7) & ~(size_t)7;
    }
    s->keys[1] = s->keys[0];
    s->keys[0] = keys;
}

/* The open group outlives the call: keeps its keys, and the batches that hold its rows. */
static void keep_group(const struct nest *nest, struct nest_state *s, struct batch *batch)
{
    if (!s->is_older)
        release_held(s);
    if (!s->is_open)
        return;
    s->is_older = true;
    if (s->held_count == s->held_room) {
        s->held_room = MAX(2 * s->held_room, 16);
        s->held = mem_realloc(s->held, s->held_room * sizeof(struct batch *));
    }
    s->held[s->held_count++] = batch;
    batch_hold(batch);
    keep_keys(nest, s);
}

static void nest_process(struct operator_context *context, uint32_t input LEAT_UNUSED, struct batch *batch)
{
    struct nest *nest = context->config;
    struct nest_state *s = nest->state;
    struct expr_errors errors = {0};
    struct ordered_rows ordered = {0};
    if (nest->order.count > 0)
        ordered = ordering_evaluate(&nest->ordering, batch, context->scratch, &errors);
    for (uint32_t i = 0; i < batch->selected; i++) {
        struct nested row = {.batch = batch, .row = batch_row(batch, i)};
        if (errors.count > 0 && bit_get(errors.rows, row.row))
            continue;
        struct row_order order = batch_order(batch, row.row);
        if (!is_of_group(s, &order)) {
            finish_group(context);
            s->is_open = true, s->is_older = false;
            s->order = order;
            s->first_batch = batch, s->first_row = row.row;
            s->rows_count = 0, s->seen = 0;
        }
        if (nest->order.count > 0)
            row.key = ordering_key(&ordered, i);
        add_row(nest, s, &row);
    }
    compute_reject(context, batch, &errors);
    emit_groups(context);
    keep_group(nest, s, batch);
    context->counters.held = s->is_open ? s->seen : 0;
}

static void end_rows(struct operator_context *context)
{
    struct nest *nest = context->config;
    finish_group(context);
    emit_groups(context);
    release_held(nest->state);
    context->counters.held = 0;
}

static void nest_on_watermark(struct operator_context *context, int64_t watermark LEAT_UNUSED)
{
    end_rows(context);
}

static void nest_close(struct operator_context *context)
{
    struct nest *nest = context->config;
    struct nest_state *s = nest->state;
    if (s == NULL)
        return;
    release_held(s);
    buffer_free(&s->keys[0]), buffer_free(&s->keys[1]), buffer_free(&s->value);
    free(s->rows), free(s->elements), free(s->held);
    free(s);
    nest->state = NULL;
}

const struct operator_kind operator_nest = {
    .name = "nest",
    .summary = "makes one row of the rows that `unnest` made of one record",
    .example = "events | unnest events | nest aid, kind as events order desc(aid) first 2",
    .details =
        "The named columns of the rows become a list; the other columns are those of the first row, in the order of "
        "`unnest`. The row comes at once, with the event time of the first row, and takes the place that the record had "
        "before `unnest`: two `nest` put together what two `unnest` took apart. Elements count as absorbed, those beyond "
        "`first` as filtered, the rows made as emitted. A record of which no row is left gets no row. Steps that "
        "hold rows back, like `attribute` or `sort`, come before `unnest` or behind `nest`: the rows that they let go "
        "are no longer those of one record.",
    .options = nest_options,
    .size = sizeof(struct nest),
    .determinism = DETERMINISM_BY_ALL_ROWS,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = nest_bind,
    .open = nest_open,
    .process = nest_process,
    .read = nest_process,
    .read_end = end_rows,
    .fan = OPERATOR_FAN_IN,
    .on_watermark = nest_on_watermark,
    .close = nest_close,
};
