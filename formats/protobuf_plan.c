/* A message and the columns of the job -> a plan: what to do with each field of a payload. Columns take their
 * values from fields by name; a field that its column cannot hold is an error here, not while decoding. */
#include "formats/protobuf.h"
#include "formats/text.h"

#include <stdlib.h>

enum { INDEXES_MAX = 16, WHY_BYTES = 512 };

struct protobuf_compiler {
    struct payload_request *request;
    struct arena *arena;
    const struct protobuf_schema *schema;
    struct protobuf_plan *plan;
    uint32_t steps;
};

static const struct span no_span = {0, 0};

static bool compile_record(struct protobuf_compiler *compiler, const struct protobuf_message *message,
                           const struct schema *columns, struct protobuf_record *record);

/* --- constants --- */

static bool add_text(struct protobuf_compiler *compiler, const char *data, size_t bytes, struct text_ref *ref)
{
    return payload_constant(&compiler->plan->base, compiler->request, data, bytes, ref);
}

static bool add_names(struct protobuf_compiler *compiler, struct protobuf_step *step)
{
    struct text_ref *names = arena_array(compiler->arena, struct text_ref, step->enumeration->count);
    step->names = names;
    for (uint32_t i = 0; i < step->enumeration->count; i++) {
        const char *name = step->enumeration->values[i].name;
        if (!add_text(compiler, name, strlen(name), &names[i]))
            return false;
    }
    return true;
}

static bool bad_default(struct protobuf_compiler *compiler, const struct protobuf_field *field)
{
    diag_error(compiler->request->diags, DIAG_BAD_PAYLOAD_SCHEMA, no_span,
               "the default of `%s` in %s is out of range", field->name, compiler->request->name);
    return false;
}

/* Sets the value that the column gets where the message lacks the field. */
static bool set_absent(struct protobuf_compiler *compiler, const struct protobuf_field *field,
                       struct protobuf_step *step)
{
    double real = field->default_float;
    step->absent = PROTOBUF_ABSENT_VALUE;
    if (step->is_list) {
        step->absent = PROTOBUF_ABSENT_LIST;
        return true;
    }
    if (field->has_presence && !field->has_default) {
        step->absent = PROTOBUF_ABSENT_NULL;
        return true;
    }
    switch (step->target) {
    case PROTOBUF_TO_TEXT:
    case PROTOBUF_TO_BYTES:
        step->absent = PROTOBUF_ABSENT_TEXT;
        return add_text(compiler, field->default_text, field->default_bytes, &step->text);
    case PROTOBUF_TO_NAME:
        step->absent = PROTOBUF_ABSENT_TEXT;
        for (uint32_t i = 0; i < step->enumeration->count; i++)
            if (step->enumeration->values[i].number == field->default_int)
                step->text = step->names[i];
        return true;
    case PROTOBUF_TO_FLOAT:
        if (field->type != PROTOBUF_DOUBLE && field->type != PROTOBUF_FLOAT)
            real = field->type == PROTOBUF_UINT64 || field->type == PROTOBUF_FIXED64
                       ? (double)(uint64_t)field->default_int
                       : (double)field->default_int;
        memcpy(&step->value, &real, sizeof(real));
        return true;
    case PROTOBUF_TO_TIME:
        return time_from_units(field->default_int, step->unit_us, &step->value) ||
               bad_default(compiler, field);
    case PROTOBUF_TO_INT:
        step->value = field->default_int;
        return field->default_int >= 0 ||
               (field->type != PROTOBUF_UINT64 && field->type != PROTOBUF_FIXED64) ||
               bad_default(compiler, field);
    case PROTOBUF_TO_CIVIL: step->absent = PROTOBUF_ABSENT_NULL; return true;
    default: step->value = field->default_int; return true;
    }
}

/* --- one value --- */

static bool is_whole(enum protobuf_type type)
{
    static const bool whole[] = {
        [PROTOBUF_INT64] = true,    [PROTOBUF_UINT64] = true,   [PROTOBUF_INT32] = true,
        [PROTOBUF_FIXED64] = true,  [PROTOBUF_FIXED32] = true,  [PROTOBUF_UINT32] = true,
        [PROTOBUF_SFIXED32] = true, [PROTOBUF_SFIXED64] = true, [PROTOBUF_SINT32] = true,
        [PROTOBUF_SINT64] = true,
    };
    return whole[type];
}

static const struct protobuf_message *message_of(const struct protobuf_compiler *compiler,
                                                 const struct protobuf_field *field)
{
    return field->type == PROTOBUF_MESSAGE ? &compiler->schema->messages[field->message] : NULL;
}

/* google.protobuf.Int64Value and the other wrappers: messages with the one field `value`. */
static bool is_wrapper(const struct protobuf_message *message)
{
    static const char *const names[] = {"DoubleValue", "FloatValue",  "Int64Value",
                                        "UInt64Value", "Int32Value",  "UInt32Value",
                                        "BoolValue",   "StringValue", "BytesValue"};
    static const char package[] = "google.protobuf.";
    if (strncmp(message->name, package, strlen(package)) != 0 || message->count != 1)
        return false;
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (strcmp(message->name + strlen(package), names[i]) == 0)
            return true;
    return false;
}

/* Makes a step from a field that is no message to a column; false where the column cannot hold it. */
static bool scalar(const struct protobuf_field *field, const struct type *to, struct protobuf_step *step)
{
    enum protobuf_type type = field->type;
    bool is_text = type == PROTOBUF_STRING || type == PROTOBUF_BYTES;
    switch (to->tag) {
    case TYPE_BOOL: step->target = PROTOBUF_TO_BOOL; return type == PROTOBUF_BOOL;
    case TYPE_INT: step->target = PROTOBUF_TO_INT; return is_whole(type) || type == PROTOBUF_ENUM;
    case TYPE_FLOAT:
        step->target = PROTOBUF_TO_FLOAT;
        return is_whole(type) || type == PROTOBUF_FLOAT || type == PROTOBUF_DOUBLE;
    case TYPE_TEXT:
        step->target = type == PROTOBUF_ENUM ? PROTOBUF_TO_NAME : PROTOBUF_TO_TEXT;
        return is_text || type == PROTOBUF_ENUM;
    case TYPE_BYTES: step->target = PROTOBUF_TO_BYTES; return is_text;
    case TYPE_TIME:
        step->unit_us = text_unit_us(to->unit);
        step->target = type == PROTOBUF_STRING ? PROTOBUF_TO_CIVIL : PROTOBUF_TO_TIME;
        return step->unit_us == 0 ? type == PROTOBUF_STRING : is_whole(type);
    default: return false;
    }
}

static bool value_of(struct protobuf_compiler *compiler, const struct protobuf_field *field,
                     const struct type *to, struct protobuf_step *step)
{
    const struct protobuf_message *message = message_of(compiler, field);
    if (message == NULL)
        return scalar(field, to, step);
    if (to->tag == TYPE_TIME && strcmp(message->name, "google.protobuf.Timestamp") == 0) {
        step->target = PROTOBUF_TO_TIMESTAMP;
        return true;
    }
    if (!is_wrapper(message))
        return false;
    step->target = PROTOBUF_TO_WRAPPED;
    step->record = arena_new(compiler->arena, struct protobuf_record);
    step->record->steps = arena_new(compiler->arena, struct protobuf_step);
    step->record->count = 1;
    step->record->steps[0] = (struct protobuf_step){.number = message->fields[0].number,
                                                    .type = message->fields[0].type,
                                                    .column = step->column,
                                                    .oneof = -1};
    return scalar(&message->fields[0], to, &step->record->steps[0]) &&
           set_absent(compiler, &message->fields[0], &step->record->steps[0]);
}

static const char *type_text(const struct protobuf_compiler *compiler, const struct protobuf_field *field)
{
    static const char *const names[] = {
        "",      "double", "float", "int64",  "uint64", "int32",    "fixed64",  "fixed32", "bool",  "string",
        "group", "",       "bytes", "uint32", "enum",   "sfixed32", "sfixed64", "sint32",  "sint64"};
    const struct protobuf_message *message = message_of(compiler, field);
    return arena_printf(compiler->arena, "%s%s", field->is_repeated ? "repeated " : "",
                        message == NULL ? names[field->type] : message->name);
}

static bool does_not_fit(struct protobuf_compiler *compiler, const struct protobuf_field *field,
                         const struct type *to)
{
    struct payload_request *request = compiler->request;
    struct diag *d =
        diag_error(request->diags, DIAG_BAD_PAYLOAD_SCHEMA, no_span,
                   "the field `%s` of %s is %s, which a column of type %s does not take", field->name,
                   request->name, type_text(compiler, field), type_name(request->arena, to));
    if (to->tag == TYPE_TIME && is_whole(field->type))
        diag_hint(request->diags, d, "give the unit of the number: `time(ms)`, s, us or ns");
    else if (to->tag == TYPE_TIME && field->type == PROTOBUF_STRING)
        diag_hint(request->diags, d, "for a time written as text declare the column as `time(rfc3339)`");
    else if (field->is_repeated != (to->tag == TYPE_LIST))
        diag_hint(request->diags, d,
                  field->is_repeated ? "for a repeated field declare the column as `list(...)`"
                                     : "declare the column without `list(...)`: the field is not repeated");
    else if (field->type == PROTOBUF_MESSAGE || field->type == PROTOBUF_GROUP)
        diag_hint(request->diags, d,
                  "a column takes a single value or a list; messages are taken only if they are repeated");
    return false;
}

static bool compile_field(struct protobuf_compiler *compiler, const struct protobuf_field *field,
                          const struct field *column, struct protobuf_step *step)
{
    const struct type *to = &column->type;
    const struct protobuf_message *message = message_of(compiler, field);
    step->number = field->number;
    step->type = field->type;
    step->oneof = field->oneof;
    step->is_message_required = field->is_required;
    step->is_list = field->is_repeated;
    if (field->type == PROTOBUF_GROUP || field->is_repeated != (to->tag == TYPE_LIST))
        return does_not_fit(compiler, field, to);
    if (field->is_repeated)
        to = to->element;
    if (to->tag == TYPE_RECORD && message != NULL) {
        step->target = PROTOBUF_TO_RECORD;
        step->record = arena_new(compiler->arena, struct protobuf_record);
        return compile_record(compiler, message, to->fields, step->record) &&
               set_absent(compiler, field, step);
    }
    if (field->type == PROTOBUF_ENUM)
        step->enumeration = &compiler->schema->enums[field->enumeration];
    uint32_t element_column = step->column;
    if (step->is_list)
        step->column = 0; /* a wrapper writes to the element, which is column 0 of the list */
    bool fits = value_of(compiler, field, to, step);
    step->column = element_column;
    if (!fits)
        return does_not_fit(compiler, field, &column->type);
    if (step->target == PROTOBUF_TO_NAME && !add_names(compiler, step))
        return false;
    return set_absent(compiler, field, step);
}

static bool no_field(struct protobuf_compiler *compiler, const struct protobuf_message *message,
                     const struct field *column)
{
    struct payload_request *request = compiler->request;
    if (!request->is_file && !column->is_required)
        return true;
    struct diag *d = diag_error(request->diags, DIAG_BAD_PAYLOAD_SCHEMA, no_span,
                                "the message %s of %s has no field `%.*s`", message->name, request->name,
                                STR_ARGS(column->name));
    const char **names = arena_array(compiler->arena, const char *, message->count + 1);
    for (uint32_t i = 0; i < message->count; i++)
        names[i] = message->fields[i].name;
    const char *near = diag_nearest(column->name, names, message->count);
    if (near != NULL)
        diag_hint(request->diags, d, "did you mean `%s`?", near);
    return false;
}

static int by_number(const void *a, const void *b)
{
    const struct protobuf_step *first = a, *second = b;
    uint32_t x = first->number - 1, y = second->number - 1; /* number 0, no field, becomes the largest */
    return x != y ? (x > y) - (x < y) : (first->column > second->column) - (first->column < second->column);
}

static bool compile_record(struct protobuf_compiler *compiler, const struct protobuf_message *message,
                           const struct schema *columns, struct protobuf_record *record)
{
    bool is_good = true;
    record->count = columns->count;
    compiler->steps += columns->count;
    if (compiler->steps > PROTOBUF_STEPS_MAX) {
        diag_error(compiler->request->diags, DIAG_BAD_PAYLOAD_SCHEMA, no_span,
                   "%s has too many fields to be read as columns", compiler->request->name);
        return false;
    }
    record->steps = arena_array(compiler->arena, struct protobuf_step, columns->count);
    for (uint32_t i = 0; i < columns->count; i++) {
        const struct field *column = &columns->fields[i];
        const struct protobuf_field *field = NULL;
        struct protobuf_step *step = &record->steps[i];
        *step = (struct protobuf_step){.column = i, .is_required = column->is_required, .oneof = -1};
        for (uint32_t j = 0; j < message->count && field == NULL; j++)
            if (str_is(column->name, message->fields[j].name))
                field = &message->fields[j];
        is_good &= field == NULL ? no_field(compiler, message, column)
                                 : compile_field(compiler, field, column, step);
    }
    qsort(record->steps, record->count, sizeof(*record->steps), by_number);
    for (uint32_t i = 0; i < record->count; i++)
        if (record->steps[i].number > 0 && record->steps[i].number < PROTOBUF_DIRECT_MAX)
            record->direct[record->steps[i].number] = (uint16_t)(i + 1);
    return is_good;
}

/* --- the whole plan --- */

/* Reads the message indexes of request->path, zigzag varints that payload.c has checked: their count, then
 * each index. A count of 0 means the first message. Returns the number of items in `indexes`. */
static uint32_t read_indexes(const struct payload_request *request, int32_t *indexes)
{
    const char *at = (const char *)request->path, *end = at + request->path_bytes;
    uint32_t count = 0;
    uint64_t bits;
    at = varint_take(at, end, &bits);
    while (at != NULL && count < INDEXES_MAX && (at = varint_take(at, end, &bits)) != NULL)
        indexes[count++] = (int32_t)(bits / 2);
    if (count == 0)
        indexes[count++] = 0;
    return count;
}

static const char *terminated(struct arena *arena, struct str text)
{
    return text.length == 0 ? NULL : arena_strndup(arena, text.data, text.length);
}

static const char *folder_of(struct arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? "." : slash == path ? "/" : arena_strndup(arena, path, (size_t)(slash - path));
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static struct protobuf_schema *load(struct payload_request *request)
{
    const struct registry_schema *writer = request->writer;
    struct protobuf_file imports[REGISTRY_REFERENCES_MAX];
    int32_t indexes[INDEXES_MAX];
    char why[WHY_BYTES];
    bool is_bad_index;
    const char *slash = request->is_file ? strrchr(request->name, '/') : NULL;
    struct protobuf_request ask = {
        .file = {slash == NULL ? request->name : slash + 1, writer->text.data, writer->text.length},
        .is_set = request->is_file && !ends_with(request->name, ".proto"),
        .imports_folder = request->is_file ? folder_of(request->arena, request->name) : NULL,
        .imports = imports,
        .imports_count = writer->references_count,
        .message = terminated(request->arena, request->message),
    };
    for (uint32_t i = 0; i < writer->references_count; i++)
        imports[i] =
            (struct protobuf_file){terminated(request->arena, writer->references[i].name),
                                   writer->references[i].text.data, writer->references[i].text.length};
    if (request->path != NULL) {
        ask.indexes = indexes;
        ask.indexes_count = read_indexes(request, indexes);
    }
    struct protobuf_schema *schema = protobuf_schema_new(&ask, &is_bad_index, why, sizeof(why));
    if (schema != NULL) {
        arena_defer(request->arena, protobuf_schema_free, schema);
        return schema;
    }
    if (is_bad_index) {
        request->bad = "the payload's schema has no message of this index";
        return NULL;
    }
    struct diag *d = diag_error(request->diags, DIAG_BAD_PAYLOAD_SCHEMA, no_span,
                                "no message of %s can be read: %s", request->name, why);
    if (request->is_file && !ask.is_set)
        diag_hint(request->diags, d,
                  "imports are looked for in the folder of the schema file; a file made by `protoc "
                  "--include_imports -o` contains all imports");
    return NULL;
}

/* Whether `name` is the full name or its last parts: `message: Click` also names click.Click. */
static bool is_named(const char *full_name, struct str name)
{
    struct str full = str_from(full_name);
    return name.length == 0 || str_equal(full, name) ||
           (full.length > name.length && full.data[full.length - name.length - 1] == '.' &&
            memcmp(full.data + full.length - name.length, name.data, name.length) == 0);
}

const struct payload_plan *protobuf_plan_new(struct payload_request *request)
{
    struct protobuf_compiler compiler = {.request = request, .arena = request->arena};
    compiler.schema = load(request);
    if (compiler.schema == NULL)
        return NULL;
    if (!is_named(compiler.schema->messages[0].name, request->message)) {
        request->bad = "the payload has another message than `message:` names";
        return NULL;
    }
    compiler.plan = arena_new(request->arena, struct protobuf_plan);
    payload_plan_init(&compiler.plan->base, request);
    if (!compile_record(&compiler, &compiler.schema->messages[0], request->schema, &compiler.plan->record))
        return NULL;
    return &compiler.plan->base;
}
