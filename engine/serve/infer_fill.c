/* Rows of requests into a batch. Several calls, of several requests, write one batch, and nobody knows
 * beforehand how many bytes of text and how many elements of lists come together: so behind the batch's
 * columns lies, for each, what is in use. A text or a list that goes with all rows is written once for a
 * call, and the rows share it. */
#include "core/base64.h"
#include "formats/text.h"
#include "serve/infer_model.h"

/* Of a column with texts or lists. Texts of a list are in the heap of its only child. */
struct fill_space {
    size_t heap_used, heap_capacity;
    uint32_t elements_capacity;
};

struct fill {
    struct batch *batch;
    struct column *column;
    struct fill_space *space;
    const struct infer_field *field;
    const struct infer_given *given;
    uint32_t first, count, at; /* as infer_fill has them */
};

enum { FIRST_BYTES = 256, FIRST_ELEMENTS = 64 };

static struct fill_space *space_of(const struct batch *batch, uint32_t column)
{
    return (struct fill_space *)(void *)(batch->columns + batch->schema->count) + column;
}

/* Columns of elements, with none in them; those of lists of lists as well, which stay null. */
static void init_children(struct batch *batch, struct column *column, const struct type *type)
{
    bool is_record = type->element->tag == TYPE_RECORD;
    column->children_count = is_record ? type->element->fields->count : 1;
    column->children = arena_array(&batch->arena, struct column, column->children_count);
    for (uint32_t i = 0; i < column->children_count; i++) {
        const struct type *child = is_record ? &type->element->fields->fields[i].type : type->element;
        column->children[i] =
            (struct column){.tag = child->tag, .heap = "", .data = arena_alloc(&batch->arena, 0)};
        if (child->tag == TYPE_LIST)
            init_children(batch, &column->children[i], child);
    }
}

struct batch *infer_batch(const struct infer_model *model, struct batch_pool *pool, uint32_t rows)
{
    leat_assert(rows > 0 && rows <= BATCH_ROWS);
    const struct schema *schema = model->source->outputs[0];
    struct batch *batch = batch_new(pool, schema, rows);
    struct column *columns =
        arena_calloc(&batch->arena, 1, schema->count * (sizeof(*columns) + sizeof(struct fill_space)));
    memcpy(columns, batch->columns, schema->count * sizeof(*columns));
    batch->columns = columns;
    for (uint32_t i = 0; i < schema->count; i++) {
        columns[i].heap = "";
        if (columns[i].tag == TYPE_LIST)
            init_children(batch, &columns[i], &schema->fields[i].type);
    }
    batch->partition = 0;
    batch_number(batch, 0, NULL);
    request_set_source(model->source, batch);
    return batch;
}

/* --- Space --- */

/* Makes room for `bytes` more, and returns where they go. */
static char *reserve_text(struct fill *f, struct column *texts, size_t bytes)
{
    size_t needed = f->space->heap_used + bytes;
    leat_assert(needed <= UINT32_MAX);
    if (needed > f->space->heap_capacity) {
        f->space->heap_capacity = MAX(MAX(needed, 2 * f->space->heap_capacity), (size_t)FIRST_BYTES);
        char *heap = arena_alloc(&f->batch->arena, f->space->heap_capacity);
        memcpy(heap, texts->heap, f->space->heap_used);
        texts->heap = heap;
    }
    return (char *)(uintptr_t)texts->heap + f->space->heap_used;
}

static struct text_ref put_text(struct fill *f, struct column *texts, struct str text, bool is_base64)
{
    char *to = reserve_text(f, texts, text.length);
    size_t length = text.length;
    if (is_base64)
        length = base64_decode(text.data, text.length, to);
    else if (length > 0)
        memcpy(to, text.data, length);
    leat_assert(length != SIZE_MAX);
    struct text_ref ref = {(uint32_t)f->space->heap_used, (uint32_t)length};
    f->space->heap_used += length;
    return ref;
}

static void reserve_elements(struct fill *f, uint64_t count)
{
    struct column *column = f->column, *child = column->children;
    uint64_t needed = column->child_rows + count;
    if (needed <= f->space->elements_capacity)
        return;
    uint64_t capacity = MAX(MAX(needed, 2 * (uint64_t)f->space->elements_capacity), (uint64_t)FIRST_ELEMENTS);
    leat_assert(needed <= UINT32_MAX / 2);
    size_t bytes = child->tag == TYPE_BOOL ? sizeof(uint8_t) : sizeof(int64_t);
    void *data = arena_alloc(&f->batch->arena, capacity * bytes);
    memcpy(data, child->data, column->child_rows * bytes);
    child->data = data;
    if (child->valid != NULL) {
        uint64_t *valid = batch_valid_new(f->batch, (uint32_t)capacity);
        memcpy(valid, child->valid, BIT_WORDS((size_t)f->space->elements_capacity) * sizeof(*valid));
        child->valid = valid;
    }
    f->space->elements_capacity = (uint32_t)capacity;
}

/* --- Values --- */

static void put_null(struct column *column, uint32_t row)
{
    if (column->tag == TYPE_BOOL)
        column->bools[row] = 0;
    else
        column->ints[row] = 0;
}

/* Writes element i of the tensor to a row of `column`, the batch's or the elements' of a list. */
static void put_value(struct fill *f, struct column *column, uint32_t row, const struct infer_tensor *values,
                      uint64_t i)
{
    union infer_value value = {0};
    if (values->type == INFER_BYTES && column->tag != TYPE_TIME) {
        column->texts[row] =
            put_text(f, column, values->texts[i], values->is_json && column->tag == TYPE_BYTES);
        return;
    }
    const char *why = infer_value_read(values, i, f->field->type, &value, &f->batch->arena);
    leat_assert(why == NULL);
    if (column->tag == TYPE_BOOL)
        column->bools[row] = value.boolean;
    else if (column->tag == TYPE_FLOAT)
        column->floats[row] = value.real;
    else
        column->ints[row] = value.integer;
}

static void set_null(struct fill *f, uint32_t row)
{
    put_null(f->column, row);
    batch_set_null(f->batch, f->column, row);
}

static void fill_nulls(struct fill *f)
{
    for (uint32_t row = f->at; row < f->at + f->count; row++)
        set_null(f, row);
}

/* The one value that goes with all rows. */
static void fill_all(struct fill *f, const struct infer_tensor *values)
{
    struct column *column = f->column;
    if (infer_is_null(values, 0)) {
        fill_nulls(f);
        return;
    }
    put_value(f, column, f->at, values, 0);
    if (column->tag == TYPE_BOOL)
        memset(column->bools + f->at, column->bools[f->at], f->count);
    else
        for (uint32_t row = f->at + 1; row < f->at + f->count; row++)
            column->ints[row] = column->ints[f->at];
}

/* Whether the tensor has the column's values just as the column has them, a null nowhere. */
static bool is_plain(const struct fill *f)
{
    const struct infer_tensor *values = f->given->parts[INFER_VALUES];
    return values->count > 1 && values->nulls == NULL && f->given->parts[INFER_VALID] == NULL &&
           ((values->type == INFER_INT64 && f->column->tag == TYPE_INT) ||
            (values->type == INFER_FP64 && f->column->tag == TYPE_FLOAT));
}

static void fill_values(struct fill *f)
{
    const struct infer_tensor *values = f->given->parts[INFER_VALUES];
    if (is_plain(f)) {
        memcpy(f->column->ints + f->at, (const char *)values->values + f->first * sizeof(int64_t),
               f->count * sizeof(int64_t));
        return;
    }
    if (values->count == 1 && f->given->parts[INFER_VALID] == NULL) {
        fill_all(f, values);
        return;
    }
    for (uint32_t i = 0; i < f->count; i++) {
        uint32_t row = f->at + i;
        if (infer_has_value(f->given, false, f->first + i))
            put_value(f, f->column, row, values, infer_at(values, f->first + i));
        else
            set_null(f, row);
    }
}

/* --- Lists --- */

static uint64_t length_at(const struct fill *f, uint64_t row)
{
    const struct infer_tensor *lengths = f->given->parts[INFER_LENGTHS];
    int64_t length;
    bool is_good = infer_value_int(lengths, infer_at(lengths, row), &length);
    leat_assert(is_good && length >= 0);
    return (uint64_t)length;
}

static struct list_ref put_list(struct fill *f, uint64_t begin, uint64_t length)
{
    const struct infer_tensor *values = f->given->parts[INFER_VALUES];
    struct column *child = f->column->children;
    reserve_elements(f, length);
    struct list_ref list = {f->column->child_rows, (uint32_t)length};
    for (uint64_t i = begin; i < begin + length; i++) {
        uint32_t row = f->column->child_rows++;
        if (!infer_is_null(values, i)) {
            put_value(f, child, row, values, i);
            continue;
        }
        put_null(child, row);
        if (child->valid == NULL)
            child->valid = batch_valid_new(f->batch, f->space->elements_capacity);
        bit_clear(child->valid, row);
    }
    return list;
}

static void fill_lists(struct fill *f)
{
    bool is_shared = f->given->parts[INFER_LENGTHS]->count == 1;
    uint32_t shared = UINT32_MAX;
    uint64_t begin = 0;
    for (uint64_t row = 0; row < f->first && !is_shared; row++)
        begin += length_at(f, row);
    for (uint32_t i = 0; i < f->count; i++) {
        uint32_t row = f->at + i;
        uint64_t length = length_at(f, f->first + i);
        if (!infer_has_value(f->given, true, f->first + i)) {
            set_null(f, row);
        } else if (shared != UINT32_MAX) {
            f->column->lists[row] = f->column->lists[shared];
        } else {
            f->column->lists[row] = put_list(f, begin, length);
            shared = is_shared ? row : UINT32_MAX;
        }
        begin += is_shared ? 0 : length;
    }
}

void infer_fill(const struct infer_model *model, const struct infer_request *request, int64_t now_us,
                uint32_t first, uint32_t count, struct batch *batch, uint32_t at)
{
    const struct infer_side *side = &model->inputs;
    leat_assert(at + count <= batch->rows);
    struct infer_given *given = arena_array(&batch->arena, struct infer_given, side->fields_count);
    infer_bind(model, request, given);
    for (uint32_t i = 0; i < side->fields_count; i++) {
        struct fill fill = {.batch = batch,
                            .column = &batch->columns[i],
                            .space = space_of(batch, i),
                            .field = &side->fields[i],
                            .given = &given[i],
                            .first = first,
                            .count = count,
                            .at = at};
        if (given[i].parts[INFER_VALUES] == NULL)
            fill_nulls(&fill);
        else if (fill.field->is_list)
            fill_lists(&fill);
        else
            fill_values(&fill);
    }
    for (uint32_t row = at; row < at + count; row++)
        request_set_time(model->source, batch, row, now_us);
}
