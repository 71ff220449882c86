/* Answers of a request: columns that grow row by row, and become tensors at the end. */
#include "serve/infer_model.h"

#include <math.h>

enum row_status { ROW_ANSWERED, ROW_LATE, ROW_FILTERED, ROW_FAILED };
static const struct str status_words[] = {{"answered", 8}, {"late", 4}, {"filtered", 8}, {"failed", 6}};

/* Values that grow: those of a column's rows, or the elements of its lists. */
struct answer_values {
    enum type_tag tag;
    uint64_t count, capacity;
    union {
        uint8_t *bools;
        int64_t *ints;
        double *floats;
        struct str *texts;
        void *data;
    };
    uint64_t *nulls; /* `capacity` bits; NULL: none is null */
};

struct answer_column {
    const struct infer_field *field;
    uint32_t index, child; /* of the column of the answers; of the column of a list's elements */
    struct answer_values values;
    int64_t *lengths;     /* of a list: by row */
    uint64_t *null_lists; /* of a list: bit by row; NULL: none is null */
};

struct infer_answer {
    const struct infer_model *model;
    const struct infer_request *request;
    struct arena *arena;
    uint32_t rows, added;
    struct answer_column *columns; /* by field of the outputs; field NULL: nobody asked for it */
    uint8_t *status;               /* enum row_status of each row */
    struct infer_counts counts;
    const char *reason;
};

static size_t value_bytes(enum type_tag tag)
{
    return tag == TYPE_BOOL                        ? sizeof(uint8_t)
           : tag == TYPE_TEXT || tag == TYPE_BYTES ? sizeof(struct str)
                                                   : sizeof(int64_t);
}

static void take_column(struct infer_answer *answer, uint32_t index)
{
    const struct infer_field *field = &answer->model->outputs.fields[index];
    struct answer_column *column = &answer->columns[index];
    if (column->field != NULL)
        return;
    *column = (struct answer_column){
        .field = field, .index = field->column, .child = field->child, .values = {.tag = field->type->tag}};
    if (field->is_list) {
        column->lengths = arena_array(answer->arena, int64_t, answer->rows);
        return;
    }
    column->values.capacity = answer->rows;
    column->values.data = arena_alloc(answer->arena, answer->rows * value_bytes(column->values.tag));
}

struct infer_answer *infer_answer_new(const struct infer_model *model, const struct infer_request *request,
                                      uint32_t rows, struct arena *arena)
{
    const struct infer_side *side = &model->outputs;
    struct infer_answer *answer = arena_new(arena, struct infer_answer);
    *answer = (struct infer_answer){.model = model, .request = request, .arena = arena, .rows = rows};
    answer->columns = arena_array(arena, struct answer_column, side->fields_count);
    answer->status = arena_alloc(arena, rows);
    for (uint32_t i = 0; i < side->fields_count && request->wishes_count == 0; i++)
        if (!side->fields[i].is_hidden && !side->fields[i].is_nested)
            take_column(answer, i);
    for (uint32_t i = 0; i < request->wishes_count; i++) {
        const struct infer_name *name = infer_find(side, request->wishes[i].name, UINT32_MAX);
        if (name != NULL)
            take_column(answer, name->column);
    }
    return answer;
}

/* --- Adding --- */

static void reserve(struct infer_answer *answer, struct answer_values *values, uint64_t more)
{
    enum { FIRST = 64 };
    uint64_t needed = values->count + more;
    if (needed <= values->capacity)
        return;
    uint64_t capacity = MAX(MAX(needed, 2 * values->capacity), (uint64_t)FIRST);
    void *data = arena_alloc(answer->arena, capacity * value_bytes(values->tag));
    if (values->count > 0)
        memcpy(data, values->data, values->count * value_bytes(values->tag));
    if (values->nulls != NULL) {
        uint64_t *nulls = arena_array(answer->arena, uint64_t, BIT_WORDS(capacity));
        memcpy(nulls, values->nulls, BIT_WORDS(values->capacity) * sizeof(*nulls));
        values->nulls = nulls;
    }
    values->data = data;
    values->capacity = capacity;
}

static void add_null(struct infer_answer *answer, struct answer_values *values)
{
    uint64_t i = values->count++;
    if (values->nulls == NULL)
        values->nulls = arena_array(answer->arena, uint64_t, BIT_WORDS(values->capacity));
    bit_set(values->nulls, i);
    switch (values->tag) {
    case TYPE_BOOL: values->bools[i] = 0; break;
    case TYPE_FLOAT: values->floats[i] = NAN; break;
    case TYPE_TEXT:
    case TYPE_BYTES: values->texts[i] = STR(""); break;
    default: values->ints[i] = 0; break;
    }
}

/* heap: where the bytes of texts go; *heap is advanced. */
static void add_value(struct infer_answer *answer, struct answer_values *values, const struct column *from,
                      uint32_t row, char **heap)
{
    if (!column_is_valid(from, row)) {
        add_null(answer, values);
        return;
    }
    uint64_t i = values->count++;
    switch (values->tag) {
    case TYPE_BOOL: values->bools[i] = from->bools[row]; break;
    case TYPE_FLOAT: values->floats[i] = from->floats[row]; break;
    case TYPE_TEXT:
    case TYPE_BYTES: {
        struct str text = column_text(from, row);
        if (text.length > 0)
            memcpy(*heap, text.data, text.length);
        values->texts[i] = (struct str){*heap, text.length};
        *heap += text.length;
        break;
    }
    default: values->ints[i] = from->ints[row]; break;
    }
}

static bool is_text(enum type_tag tag)
{
    return tag == TYPE_TEXT || tag == TYPE_BYTES;
}

static size_t text_bytes(const struct column *column, uint32_t row)
{
    return is_text(column->tag) && column_is_valid(column, row) ? column->texts[row].length : 0;
}

static void add_list(struct infer_answer *answer, struct answer_column *column, const struct column *from,
                     uint32_t row, uint32_t to)
{
    if (!column_is_valid(from, row)) {
        if (column->null_lists == NULL)
            column->null_lists = arena_array(answer->arena, uint64_t, BIT_WORDS((size_t)answer->rows));
        bit_set(column->null_lists, to);
        return;
    }
    struct list_ref list = from->lists[row];
    const struct column *elements = &from->children[column->child];
    size_t bytes = 0;
    for (uint32_t i = 0; i < list.length && is_text(column->values.tag); i++)
        bytes += text_bytes(elements, list.offset + i);
    char *heap = arena_alloc(answer->arena, bytes);
    column->lengths[to] = list.length;
    reserve(answer, &column->values, list.length);
    for (uint32_t i = 0; i < list.length; i++)
        add_value(answer, &column->values, elements, list.offset + i, &heap);
}

static void add_column(struct infer_answer *answer, struct answer_column *column,
                       const struct way_result *results, uint32_t count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count && is_text(column->values.tag) && !column->field->is_list; i++)
        if (results[i].status == WAY_ANSWERED)
            bytes += text_bytes(&results[i].batch->columns[column->index], results[i].row);
    char *heap = arena_alloc(answer->arena, bytes);
    for (uint32_t i = 0; i < count; i++) {
        bool is_answered = results[i].status == WAY_ANSWERED;
        const struct column *from = is_answered ? &results[i].batch->columns[column->index] : NULL;
        if (is_answered && column->field->is_list)
            add_list(answer, column, from, results[i].row, answer->added + i);
        else if (is_answered)
            add_value(answer, &column->values, from, results[i].row, &heap);
        else if (!column->field->is_list)
            add_null(answer, &column->values);
        else
            add_list(answer, column, &(struct column){.valid = &(uint64_t){0}}, 0, answer->added + i);
    }
}

static enum row_status count_row(struct infer_answer *answer, const struct way_result *result, bool is_late)
{
    switch (result->status) {
    case WAY_ANSWERED:
        answer->counts.answered++;
        answer->counts.late += is_late;
        return is_late ? ROW_LATE : ROW_ANSWERED;
    case WAY_FILTERED: answer->counts.filtered++; return ROW_FILTERED;
    default:
        leat_assert(result->status == WAY_FAILED);
        answer->counts.failed++;
        if (answer->reason == NULL)
            answer->reason = arena_printf(answer->arena, "%s: %s", result->node->label, result->reason);
        return ROW_FAILED;
    }
}

void infer_answer_add(struct infer_answer *answer, const struct batch *requests,
                      const struct way_result *results, uint32_t at, uint32_t count, int64_t watermark)
{
    leat_assert(answer->added + count <= answer->rows);
    for (uint32_t i = 0; i < count; i++) {
        bool is_late = answer->model->source->has_time && requests->event_time[at + i] < watermark;
        answer->status[answer->added + i] = (uint8_t)count_row(answer, &results[at + i], is_late);
    }
    for (uint32_t i = 0; i < answer->model->outputs.fields_count; i++)
        if (answer->columns[i].field != NULL)
            add_column(answer, &answer->columns[i], results + at, count);
    answer->added += count;
}

struct infer_counts infer_answer_counts(const struct infer_answer *answer)
{
    return answer->counts;
}

const char *infer_answer_reason(const struct infer_answer *answer)
{
    return answer->reason;
}

/* --- Tensors --- */

static struct infer_tensor tensor_of(struct str name, enum infer_type type, uint64_t count)
{
    return (struct infer_tensor){
        .name = name, .type = type, .rank = 1, .shape = {(int64_t)count}, .count = count};
}

static struct infer_tensor values_tensor(const struct answer_column *column, struct str name)
{
    struct infer_tensor tensor = tensor_of(name, column->field->tensor, column->values.count);
    if (is_text(column->values.tag))
        tensor.texts = column->values.texts;
    else
        tensor.values = column->values.data;
    tensor.nulls = column->values.nulls;
    tensor.is_bytes = column->values.tag == TYPE_BYTES;
    return tensor;
}

static struct infer_tensor valid_tensor(struct infer_answer *answer, const struct answer_column *column,
                                        struct str name)
{
    const uint64_t *nulls = column->field->is_list ? column->null_lists : column->values.nulls;
    uint8_t *valid = arena_alloc(answer->arena, answer->rows);
    for (uint32_t row = 0; row < answer->rows; row++)
        valid[row] = nulls == NULL || !bit_get(nulls, row);
    struct infer_tensor tensor = tensor_of(name, INFER_BOOL, answer->rows);
    tensor.values = valid;
    return tensor;
}

static struct infer_tensor status_tensor(struct infer_answer *answer)
{
    struct str *texts = arena_array(answer->arena, struct str, answer->rows);
    for (uint32_t row = 0; row < answer->rows; row++)
        texts[row] = status_words[answer->status[row]];
    struct infer_tensor tensor = tensor_of(INFER_STATUS, INFER_BYTES, answer->rows);
    tensor.texts = texts;
    return tensor;
}

static struct infer_tensor named_tensor(struct infer_answer *answer, const struct infer_name *name)
{
    const struct answer_column *column = &answer->columns[name->column];
    if (name->part == INFER_VALUES)
        return values_tensor(column, name->name);
    if (name->part == INFER_VALID)
        return valid_tensor(answer, column, name->name);
    struct infer_tensor tensor = tensor_of(name->name, INFER_INT64, answer->rows);
    tensor.values = column->lengths;
    return tensor;
}

static bool is_told(const struct infer_answer *answer, const struct infer_name *name)
{
    const struct answer_column *column = &answer->columns[name->column];
    return column->field != NULL && (name->part != INFER_VALID || column->null_lists != NULL ||
                                     (!column->field->is_list && column->values.nulls != NULL));
}

/* The names of a column's parts, each column's behind the other. */
static uint32_t tell_all(struct infer_answer *answer, struct infer_tensor *tensors)
{
    static const enum infer_part order[] = {INFER_VALUES, INFER_LENGTHS, INFER_VALID};
    const struct infer_side *side = &answer->model->outputs;
    uint32_t count = 0;
    for (uint32_t i = 0; i < side->fields_count; i++)
        for (size_t k = 0; k < ARRAY_COUNT(order); k++) {
            const struct infer_name *name = side->fields[i].names[order[k]];
            if (name != NULL && is_told(answer, name))
                tensors[count++] = named_tensor(answer, name);
        }
    struct infer_counts counts = answer->counts;
    if (answer->model->has_status && counts.late + counts.filtered + counts.failed > 0)
        tensors[count++] = status_tensor(answer);
    return count;
}

uint32_t infer_answer_tensors(struct infer_answer *answer, const struct infer_tensor **tensors)
{
    const struct infer_request *request = answer->request;
    const struct infer_side *side = &answer->model->outputs;
    leat_assert(answer->added == answer->rows);
    struct infer_tensor *made =
        arena_array(answer->arena, struct infer_tensor,
                    request->wishes_count > 0 ? request->wishes_count : INFER_PARTS * side->fields_count + 1);
    *tensors = made;
    if (request->wishes_count == 0)
        return tell_all(answer, made);
    for (uint32_t i = 0; i < request->wishes_count; i++) {
        const struct infer_name *name = infer_find(side, request->wishes[i].name, UINT32_MAX);
        made[i] = name == NULL ? status_tensor(answer) : named_tensor(answer, name);
    }
    return request->wishes_count;
}
