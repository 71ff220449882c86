#include "serve/infer_model.h"

#include "core/mem.h"
#include "core/utf8.h"
#include "formats/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Of SCHEMA_FIELDS_MAX columns with so many fields each, all names have numbers of 16 bits. */
enum { RECORD_FIELDS_MAX = 32 };
_Static_assert(SCHEMA_FIELDS_MAX *(RECORD_FIELDS_MAX + 1) * INFER_PARTS < UINT16_MAX, "numbers of names");

static const struct {
    struct str name;
    uint32_t bytes;
} types[INFER_TYPES] = {
    [INFER_BOOL] = {{"BOOL", 4}, 1},     [INFER_UINT8] = {{"UINT8", 5}, 1},
    [INFER_UINT16] = {{"UINT16", 6}, 2}, [INFER_UINT32] = {{"UINT32", 6}, 4},
    [INFER_UINT64] = {{"UINT64", 6}, 8}, [INFER_INT8] = {{"INT8", 4}, 1},
    [INFER_INT16] = {{"INT16", 5}, 2},   [INFER_INT32] = {{"INT32", 5}, 4},
    [INFER_INT64] = {{"INT64", 5}, 8},   [INFER_FP32] = {{"FP32", 4}, 4},
    [INFER_FP64] = {{"FP64", 4}, 8},     [INFER_BYTES] = {{"BYTES", 5}, 0},
};

const char *infer_type_name(enum infer_type type)
{
    return type < INFER_TYPES ? types[type].name.data : "a type that leat does not know";
}

enum infer_type infer_type_of(struct str name)
{
    enum infer_type type = 0;
    while (type < INFER_TYPES && !str_equal(name, types[type].name))
        type++;
    return type;
}

uint32_t infer_type_bytes(enum infer_type type)
{
    leat_assert(type < INFER_TYPES);
    return types[type].bytes;
}

bool infer_elements(const struct infer_tensor *tensor, uint64_t *count)
{
    uint64_t product = 1;
    bool is_good = tensor->rank <= INFER_RANK_MAX;
    for (uint32_t i = 0; is_good && i < tensor->rank; i++)
        is_good = tensor->shape[i] >= 0 &&
                  !__builtin_mul_overflow(product, (uint64_t)tensor->shape[i], &product) &&
                  product <= INT64_MAX;
    *count = product;
    return is_good;
}

/* --- Names --- */

static uint32_t hash_of(struct str name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < name.length; i++)
        hash = (hash ^ (unsigned char)name.data[i]) * UINT64_C(0x100000001b3);
    return (uint32_t)(hash >> 32 ^ hash);
}

const struct infer_name *infer_find(const struct infer_side *side, struct str name, uint32_t guess)
{
    if (guess < side->names_count && str_equal(side->names[guess].name, name))
        return &side->names[guess];
    if (name.length > UINT16_MAX)
        return NULL;
    for (uint32_t at = hash_of(name) & side->table_mask; side->table[at] != 0;
         at = (at + 1) & side->table_mask)
        if (str_equal(side->names[side->table[at] - 1].name, name))
            return &side->names[side->table[at] - 1];
    return NULL;
}

/* A name that is there already, because a column is named so, keeps its meaning. */
static void add_name(struct infer_side *side, struct str name, uint32_t column, enum infer_part part)
{
    if (infer_find(side, name, UINT32_MAX) != NULL)
        return;
    side->names[side->names_count++] = (struct infer_name){name, column, part};
    uint32_t at = hash_of(name) & side->table_mask;
    while (side->table[at] != 0)
        at = (at + 1) & side->table_mask;
    side->table[at] = (uint16_t)side->names_count;
    side->fields[column].names[part] = &side->names[side->names_count - 1];
}

static struct str with(struct arena *arena, struct str name, const char *suffix)
{
    return str_from(arena_printf(arena, "%.*s%s", STR_ARGS(name), suffix));
}

/* Columns come first, in their order, so that a client that keeps the order is found by guessing. */
static void add_names(struct infer_side *side, struct arena *arena)
{
    uint32_t room = INFER_PARTS * side->fields_count + 1, size = 4;
    while (size < 2 * room)
        size *= 2;
    side->names = arena_array(arena, struct infer_name, room);
    side->table = arena_array(arena, uint16_t, size);
    side->table_mask = size - 1;
    side->near = arena_array(arena, const char *, room);
    for (uint32_t i = 0; i < side->fields_count; i++) {
        struct str name = side->fields[i].field->name;
        add_name(side, name, i, INFER_VALUES);
        if (!side->fields[i].is_nested && !side->fields[i].is_hidden)
            side->near[side->near_count++] = arena_strndup(arena, name.data, name.length);
    }
    for (uint32_t i = 0; i < side->fields_count; i++) {
        struct str name = side->fields[i].field->name;
        add_name(side, with(arena, name, ".valid"), i, INFER_VALID);
        if (side->fields[i].is_list)
            add_name(side, with(arena, name, ".lengths"), i, INFER_LENGTHS);
    }
}

/* --- Columns --- */

static enum infer_type tensor_of(const struct type *type, bool is_answer)
{
    switch (type->tag) {
    case TYPE_BOOL: return INFER_BOOL;
    case TYPE_INT: return INFER_INT64;
    case TYPE_FLOAT: return INFER_FP64;
    case TYPE_TIME: return is_answer || text_unit_us(type->unit) != 0 ? INFER_INT64 : INFER_BYTES;
    default: return INFER_BYTES;
    }
}

static void add_field(struct infer_side *side, const struct field *field, uint32_t column, bool is_answer)
{
    const struct type *type = &field->type;
    struct infer_field *to = &side->fields[side->fields_count++];
    to->field = field;
    to->column = column;
    to->is_list = type->tag == TYPE_LIST;
    to->type = to->is_list ? type->element : type;
    to->is_nested = to->type->tag == TYPE_LIST || to->type->tag == TYPE_RECORD;
    to->tensor = tensor_of(to->type, is_answer);
    to->is_required = field->is_required;
}

/* How many outputs a list of records is: one for each field, if they have room. */
static uint32_t parts_of(const struct type *type, bool is_answer)
{
    bool is_records = type->tag == TYPE_LIST && type->element->tag == TYPE_RECORD;
    return is_answer && is_records && type->element->fields->count <= RECORD_FIELDS_MAX
               ? type->element->fields->count
               : 0;
}

/* A list of records: each of its fields is a list, NAME.FIELD. */
static void add_parts(struct infer_side *side, const struct field *list, uint32_t column, struct arena *arena)
{
    const struct schema *record = list->type.element->fields;
    for (uint32_t k = 0; k < record->count; k++) {
        struct field *field = arena_new(arena, struct field);
        *field = *list;
        field->name = str_from(
            arena_printf(arena, "%.*s.%.*s", STR_ARGS(list->name), STR_ARGS(record->fields[k].name)));
        field->type.element = &record->fields[k].type;
        add_field(side, field, column, true);
        side->fields[side->fields_count - 1].child = k;
    }
}

static void add_fields(struct infer_side *side, const struct schema *schema, struct arena *arena,
                       bool is_answer)
{
    uint32_t room = 0;
    for (uint32_t i = 0; i < schema->count; i++)
        room += 1 + parts_of(&schema->fields[i].type, is_answer);
    side->fields = arena_array(arena, struct infer_field, room);
    for (uint32_t i = 0; i < schema->count; i++) {
        add_field(side, &schema->fields[i], i, is_answer); /* of records: so that messages know the name */
        if (parts_of(&schema->fields[i].type, is_answer) > 0)
            add_parts(side, &schema->fields[i], i, arena);
    }
}

static void add_columns(struct infer_side *side, struct arena *arena)
{
    side->columns = arena_array(arena, struct infer_column, side->fields_count + 1);
    for (uint32_t i = 0; i < side->fields_count; i++) {
        const struct infer_field *from = &side->fields[i];
        if (from->is_nested || from->is_hidden)
            continue;
        side->columns[side->columns_count++] =
            (struct infer_column){from->field->name, from->tensor, !from->is_required, from->is_list};
    }
}

struct infer_model *infer_model_new(const struct plan *plan, const struct plan_serve *serve)
{
    struct infer_model *model = mem_calloc(1, sizeof(*model));
    struct infer_side *inputs = &model->inputs, *outputs = &model->outputs;
    model->plan = plan;
    model->serve = serve;
    model->source = &plan->nodes[serve->request];
    add_fields(inputs, request_schema(model->source, serve, &model->arena), &model->arena, false);
    for (uint32_t i = 0; i < inputs->fields_count; i++) {
        inputs->fields[i].is_needed = serve->is_needed[i];
        inputs->fields[i].is_time =
            str_equal(inputs->fields[i].field->name, model->source->common->event_time.name);
    }
    add_fields(outputs, plan_answer_schema(plan, serve), &model->arena, true);
    for (uint32_t i = 0; i < outputs->fields_count; i++) {
        outputs->fields[i].is_hidden = serve->is_hidden[outputs->fields[i].column];
        outputs->fields[i].is_required = false;
    }
    add_names(inputs, &model->arena);
    add_names(outputs, &model->arena);
    add_columns(inputs, &model->arena);
    add_columns(outputs, &model->arena);
    model->has_status = infer_find(outputs, INFER_STATUS, UINT32_MAX) == NULL;
    if (model->has_status) {
        outputs->columns[outputs->columns_count++] =
            (struct infer_column){INFER_STATUS, INFER_BYTES, true, false};
        outputs->near[outputs->near_count++] = INFER_STATUS.data;
    }
    return model;
}

void infer_model_free(struct infer_model *model)
{
    if (model == NULL)
        return;
    arena_free(&model->arena);
    free(model);
}

uint32_t infer_inputs(const struct infer_model *model, const struct infer_column **columns)
{
    *columns = model->inputs.columns;
    return model->inputs.columns_count;
}

uint32_t infer_outputs(const struct infer_model *model, const struct infer_column **columns)
{
    *columns = model->outputs.columns;
    return model->outputs.columns_count;
}

/* --- Messages --- */

const char *infer_shown(struct str text, struct arena *arena)
{
    enum { SHOWN_BYTES = 64 };
    size_t length = MIN(text.length, (size_t)SHOWN_BYTES);
    while (length < text.length && length > 0 && ((unsigned char)text.data[length] & 0xc0) == 0x80)
        length--;
    char *shown = arena_strndup(arena, text.data, length);
    for (size_t i = utf8_error(shown, length); i < length; i += 1 + utf8_error(shown + i + 1, length - i - 1))
        shown[i] = '?';
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)shown[i] < 0x20)
            shown[i] = '?';
    return length < text.length ? arena_printf(arena, "%s...", shown) : shown;
}

bool infer_refuse(struct infer_problem *problem, struct arena *arena, enum infer_fault fault,
                  const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    text[utf8_error(text, strlen(text))] = '\0'; /* where it was cut, in the middle of a character */
    *problem = (struct infer_problem){fault, arena_strdup(arena, text)};
    return false;
}
