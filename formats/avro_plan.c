/* A writer's schema and the columns of the job -> a plan: what to do with each value of a payload. Columns
 * take their values from the writer's fields by name (or by an alias in the reader's schema), with the
 * promotions of the specification. A field that its column cannot hold is an error here, not while records
 * are decoded. */
#include "formats/avro.h"
#include "formats/text.h"

struct avro_compiler {
    struct payload_request *request;
    struct arena *arena;
    struct avro_plan *plan;
    uint64_t steps;
};

static const struct span no_span = {0, 0};

static bool compile(struct avro_compiler *compiler, struct str field, const struct avro_type *from,
                    const struct type *to, struct avro_step *step);
static bool compile_record(struct avro_compiler *compiler, const struct avro_type *from,
                           const struct avro_type *reader, const struct schema *to, struct avro_step *step);

/* Returns NULL after a diagnostic if the plan has too many steps: each use of a named type is compiled again,
 * so a small schema of records nested by name can make a very large plan. */
static struct avro_step *new_steps(struct avro_compiler *compiler, uint32_t count)
{
    compiler->steps += count;
    if (compiler->steps <= AVRO_STEPS_MAX)
        return arena_array(compiler->arena, struct avro_step, count);
    diag_error(compiler->request->diags, DIAG_BAD_PAYLOAD_SCHEMA, no_span,
               "%s has too many fields to be read as columns", compiler->request->name);
    return NULL;
}

/* --- constants --- */

static bool add_text(struct avro_compiler *compiler, const char *data, size_t bytes, struct text_ref *ref)
{
    return payload_constant(&compiler->plan->base, compiler->request, data, bytes, ref);
}

/* Decodes default bytes, which Avro writes as a text of the characters U+0000 to U+00FF. */
static bool bytes_of(const char *text, size_t length, char *out, size_t *bytes)
{
    *bytes = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x80) {
            if ((c & 0xfc) != 0xc0 || i + 1 == length)
                return false;
            c = (unsigned char)((c & 0x03) << 6 | (text[++i] & 0x3f));
        }
        out[(*bytes)++] = (char)c;
    }
    return true;
}

static const struct avro_type *without_null(const struct avro_type *type)
{
    for (uint32_t i = 0; type->tag == AVRO_UNION && i < type->count; i++)
        if (type->items[i]->tag != AVRO_NULL)
            return type->items[i];
    return type;
}

static bool constant_text(struct avro_compiler *compiler, const json_t *json, const struct avro_type *type,
                          struct avro_step *step)
{
    const char *text = json_string_value(json);
    size_t length = json_string_length(json);
    struct text_ref *ref = arena_new(compiler->arena, struct text_ref);
    if (type->tag == AVRO_BYTES || type->tag == AVRO_FIXED) {
        char *bytes = arena_alloc(compiler->arena, length + 1);
        if (!bytes_of(text, length, bytes, &length))
            return false;
        text = bytes;
    }
    step->op = AVRO_OP_CONSTANT_TEXT;
    step->texts = ref;
    return add_text(compiler, text, length, ref);
}

/* Makes a step for the reader's default. False where a column of type `to` cannot hold it. */
static bool constant(struct avro_compiler *compiler, const struct avro_field *field, const struct type *to,
                     struct avro_step *step)
{
    const json_t *json = field->default_value;
    const struct avro_type *type = without_null(field->type);
    double real;
    if (json_is_null(json)) {
        step->op = AVRO_OP_CONSTANT_NULL;
        return !step->is_required;
    }
    step->op = AVRO_OP_CONSTANT_INT;
    switch (to->tag) {
    case TYPE_BOOL:
        step->op = AVRO_OP_CONSTANT_BOOL;
        step->number = json_is_true(json);
        return json_is_boolean(json);
    case TYPE_INT: step->number = json_integer_value(json); return json_is_integer(json);
    case TYPE_FLOAT:
        real = json_number_value(json);
        memcpy(&step->number, &real, sizeof(real));
        return json_is_number(json);
    case TYPE_TIME: {
        int64_t unit_us = type->logical == AVRO_DATE           ? US_PER_DAY
                          : type->logical == AVRO_TIMESTAMP_MS ? 1000
                          : type->logical == AVRO_TIMESTAMP_US ? 1
                          : type->logical == AVRO_TIMESTAMP_NS ? TIME_NS
                                                               : text_unit_us(to->unit);
        return json_is_integer(json) && unit_us != 0 &&
               time_from_units((int64_t)json_integer_value(json), unit_us, &step->number);
    }
    case TYPE_TEXT:
    case TYPE_BYTES: return json_is_string(json) && constant_text(compiler, json, type, step);
    case TYPE_LIST:
        step->op = AVRO_OP_CONSTANT_LIST;
        return json_is_array(json) && json_array_size(json) == 0;
    default: return false;
    }
}

/* Makes the step for a column that the writer does not have. */
static bool compile_absent(struct avro_compiler *compiler, const struct avro_type *reader,
                           const struct field *column, const struct avro_type *from, struct avro_step *step)
{
    struct payload_request *request = compiler->request;
    int at = reader == NULL ? -1 : avro_field_find(reader, column->name);
    step->is_required = column->is_required;
    step->op = AVRO_OP_CONSTANT_NULL;
    if (at >= 0 && reader->fields[at].default_value != NULL) {
        if (constant(compiler, &reader->fields[at], &column->type, step))
            return true;
        diag_error(request->diags, DIAG_BAD_PAYLOAD_SCHEMA, no_span,
                   "the default of `%.*s` in the schema file is not a value of a column of type %s",
                   STR_ARGS(column->name), type_name(request->arena, &column->type));
        return false;
    }
    if (!request->is_file && !column->is_required)
        return true;
    struct diag *d = diag_error(request->diags, DIAG_BAD_PAYLOAD_SCHEMA, no_span, "%s has no field `%.*s`",
                                request->name, STR_ARGS(column->name));
    const char **names = arena_array(compiler->arena, const char *, from->count + 1);
    for (uint32_t i = 0; i < from->count; i++)
        names[i] = arena_strndup(compiler->arena, from->fields[i].name.data, from->fields[i].name.length);
    const char *near = diag_nearest(column->name, names, from->count);
    if (near != NULL)
        diag_hint(request->diags, d, "did you mean `%s`?", near);
    else if (column->is_required)
        diag_hint(request->diags, d, "the job requires the field: `%.*s: %s!`", STR_ARGS(column->name),
                  type_name(request->arena, &column->type));
    return false;
}

/* --- values --- */

/* Makes a step from a type that is no union, null, list or map to a column; false where it does not fit. */
static bool scalar(const struct avro_type *from, const struct type *to, struct avro_step *step)
{
    enum avro_tag tag = from->tag;
    bool is_whole = tag == AVRO_INT || tag == AVRO_LONG, is_text = tag == AVRO_STRING || tag == AVRO_BYTES;
    step->number = tag == AVRO_INT ? 32 : 64;
    switch (to->tag) {
    case TYPE_BOOL: step->op = AVRO_OP_BOOL; return tag == AVRO_BOOLEAN;
    case TYPE_INT: step->op = tag == AVRO_INT ? AVRO_OP_INT : AVRO_OP_LONG; return is_whole;
    case TYPE_FLOAT:
        step->op = tag == AVRO_FLOAT ? AVRO_OP_FLOAT : tag == AVRO_DOUBLE ? AVRO_OP_DOUBLE : AVRO_OP_WHOLE;
        return is_whole || tag == AVRO_FLOAT || tag == AVRO_DOUBLE;
    case TYPE_TEXT:
        step->op = tag == AVRO_ENUM ? AVRO_OP_ENUM : AVRO_OP_TEXT;
        return is_text || tag == AVRO_ENUM;
    case TYPE_BYTES:
        step->op = tag == AVRO_FIXED ? AVRO_OP_FIXED : AVRO_OP_BYTES;
        step->number = from->size;
        return is_text || tag == AVRO_FIXED;
    case TYPE_TIME:
        step->op = tag == AVRO_STRING           ? AVRO_OP_CIVIL
                   : from->logical == AVRO_DATE ? AVRO_OP_DATE
                                                : AVRO_OP_TIME;
        step->count = tag == AVRO_INT ? 32 : 64;
        step->number = from->logical == AVRO_TIMESTAMP_MS   ? 1000
                       : from->logical == AVRO_TIMESTAMP_US ? 1
                       : from->logical == AVRO_TIMESTAMP_NS ? TIME_NS
                                                            : text_unit_us(to->unit);
        if (tag == AVRO_STRING)
            return text_unit_us(to->unit) == 0;
        return is_whole && (step->number != 0 || from->logical == AVRO_DATE);
    default: return false;
    }
}

static bool does_not_fit(struct avro_compiler *compiler, struct str field, const struct avro_type *from,
                         const struct type *to)
{
    struct payload_request *request = compiler->request;
    struct diag *d =
        diag_error(request->diags, DIAG_BAD_PAYLOAD_SCHEMA, no_span,
                   "the field `%.*s` of %s is %s, which a column of type %s does not take", STR_ARGS(field),
                   request->name, avro_type_name(compiler->arena, from), type_name(request->arena, to));
    if (to->tag == TYPE_TIME && (from->tag == AVRO_LONG || from->tag == AVRO_INT))
        diag_hint(request->diags, d, "give the unit of the number: `time(ms)`, s, us or ns");
    else if (to->tag == TYPE_TIME && from->tag == AVRO_STRING)
        diag_hint(request->diags, d, "for a time written as text declare the column as `time(rfc3339)`");
    else if (from->tag == AVRO_RECORD)
        diag_hint(request->diags, d,
                  "a column takes a single value or a list; records are taken only in a list");
    else
        diag_hint(request->diags, d, "`leat help avro` shows which column takes which types");
    return false;
}

static bool compile_union(struct avro_compiler *compiler, struct str field, const struct avro_type *from,
                          const struct type *to, struct avro_step *step)
{
    step->op = AVRO_OP_UNION;
    step->count = from->count;
    step->steps = new_steps(compiler, from->count);
    for (uint32_t i = 0; i < from->count; i++) {
        if (step->steps == NULL)
            return false;
        struct avro_step *branch = &step->steps[i];
        branch->column = step->column;
        branch->is_required = step->is_required;
        if (!compile(compiler, field, from->items[i], to, branch))
            return false;
    }
    return true;
}

/* Compiles the elements of a list of records. A null element makes each of its columns null. */
static bool compile_element(struct avro_compiler *compiler, struct str field, const struct avro_type *from,
                            const struct type *to, struct avro_step *step)
{
    if (to->tag != TYPE_RECORD)
        return compile(compiler, field, from, to, step);
    if (from->tag == AVRO_RECORD)
        return compile_record(compiler, from, NULL, to->fields, step);
    if (from->tag == AVRO_NULL) {
        step->op = AVRO_OP_RECORD;
        step->count = to->fields->count;
        step->steps = new_steps(compiler, step->count);
        for (uint32_t i = 0; step->steps != NULL && i < step->count; i++)
            step->steps[i] = (struct avro_step){
                .op = AVRO_OP_CONSTANT_NULL, .column = i, .is_required = to->fields->fields[i].is_required};
        return step->steps != NULL;
    }
    if (from->tag != AVRO_UNION)
        return does_not_fit(compiler, field, from, to);
    step->op = AVRO_OP_UNION;
    step->count = from->count;
    step->steps = new_steps(compiler, from->count);
    for (uint32_t i = 0; i < from->count; i++)
        if (step->steps == NULL || !compile_element(compiler, field, from->items[i], to, &step->steps[i]))
            return false;
    return true;
}

/* Compiles a map as a list of records of `key` and `value`. */
static bool compile_map(struct avro_compiler *compiler, struct str field, const struct avro_type *from,
                        const struct type *to, struct avro_step *step)
{
    static const struct avro_type text = {.tag = AVRO_STRING};
    const struct schema *fields = to->element->fields;
    step->op = AVRO_OP_MAP;
    step->count = 2;
    step->steps = arena_array(compiler->arena, struct avro_step, 2);
    step->steps[0].op = AVRO_OP_SKIP_TEXT;
    step->steps[1] = (struct avro_step){.op = AVRO_OP_SKIP, .type = from->items[0]};
    if (to->element->tag != TYPE_RECORD)
        return does_not_fit(compiler, field, from, to);
    for (uint32_t i = 0; i < fields->count; i++) {
        const struct field *column = &fields->fields[i];
        bool is_key = str_is(column->name, "key");
        struct avro_step *at = &step->steps[!is_key];
        if (!is_key && !str_is(column->name, "value"))
            return does_not_fit(compiler, field, from, to);
        *at = (struct avro_step){.column = i, .is_required = column->is_required};
        if (!compile(compiler, column->name, is_key ? &text : from->items[0], &column->type, at))
            return false;
    }
    return true;
}

static bool compile(struct avro_compiler *compiler, struct str field, const struct avro_type *from,
                    const struct type *to, struct avro_step *step)
{
    if (from->tag == AVRO_UNION)
        return compile_union(compiler, field, from, to, step);
    if (from->tag == AVRO_NULL) {
        step->op = AVRO_OP_NULL;
        return true;
    }
    if (to->tag == TYPE_LIST && from->tag == AVRO_MAP)
        return compile_map(compiler, field, from, to, step);
    if (to->tag == TYPE_LIST && from->tag == AVRO_ARRAY) {
        step->op = AVRO_OP_LIST;
        step->count = 1;
        step->steps = arena_new(compiler->arena, struct avro_step);
        return compile_element(compiler, field, from->items[0], to->element, step->steps);
    }
    if (!scalar(from, to, step))
        return does_not_fit(compiler, field, from, to);
    if (step->op != AVRO_OP_ENUM)
        return true;
    struct text_ref *texts = arena_array(compiler->arena, struct text_ref, from->count);
    step->count = from->count;
    step->texts = texts;
    for (uint32_t i = 0; i < from->count; i++)
        if (!add_text(compiler, from->symbols[i].data, from->symbols[i].length, &texts[i]))
            return false;
    return true;
}

static struct avro_step skip(const struct avro_type *type)
{
    struct avro_step step = {.op = AVRO_OP_SKIP, .type = type};
    switch (type->tag) {
    case AVRO_NULL: step.op = AVRO_OP_SKIP_FIXED; break;
    case AVRO_LONG: step.op = AVRO_OP_SKIP_VARINT; break;
    case AVRO_BYTES:
    case AVRO_STRING: step.op = AVRO_OP_SKIP_TEXT; break;
    case AVRO_BOOLEAN:
    case AVRO_FLOAT:
    case AVRO_DOUBLE:
    case AVRO_FIXED:
        step.op = AVRO_OP_SKIP_FIXED;
        step.number = type->tag == AVRO_BOOLEAN  ? 1
                      : type->tag == AVRO_FLOAT  ? 4
                      : type->tag == AVRO_DOUBLE ? 8
                                                 : type->size;
        break;
    default: break;
    }
    return step;
}

/* The index of the writer's field that a column takes: by its name, else by an alias. -1: none. */
static int source_field(const struct avro_type *from, const struct avro_type *reader, struct str name)
{
    int at = avro_field_find(from, name);
    int of_reader = reader == NULL ? -1 : avro_field_find(reader, name);
    if (at >= 0 || of_reader < 0)
        return at;
    const json_t *aliases = reader->fields[of_reader].aliases;
    for (size_t i = 0; i < json_array_size(aliases) && at < 0; i++) {
        const json_t *alias = json_array_get(aliases, i);
        if (json_is_string(alias))
            at = avro_field_find(from, (struct str){json_string_value(alias), json_string_length(alias)});
    }
    return at;
}

/* Compiles the fields in the writer's order, with neighbouring fields that no column takes skipped in one
 * step; then the columns that the writer does not have. */
static bool compile_record(struct avro_compiler *compiler, const struct avro_type *from,
                           const struct avro_type *reader, const struct schema *to, struct avro_step *step)
{
    bool is_good = true;
    uint32_t *column_of = arena_array(compiler->arena, uint32_t, from->count);
    step->op = AVRO_OP_RECORD;
    step->steps = new_steps(compiler, from->count + to->count);
    if (step->steps == NULL)
        return false;
    bool *is_taken = arena_array(compiler->arena, bool, to->count);
    for (uint32_t i = 0; i < to->count; i++) {
        int at = source_field(from, reader, to->fields[i].name);
        if (at < 0 || column_of[at] != 0)
            continue;
        is_taken[i] = true;
        column_of[at] = i + 1;
    }
    for (uint32_t i = 0; i < from->count; i++) {
        struct avro_step *next = &step->steps[step->count];
        if (column_of[i] != 0) {
            const struct field *column = &to->fields[column_of[i] - 1];
            *next = (struct avro_step){.column = column_of[i] - 1, .is_required = column->is_required};
            is_good &= compile(compiler, from->fields[i].name, from->fields[i].type, &column->type, next);
        } else {
            *next = skip(from->fields[i].type);
            if (next->op == AVRO_OP_SKIP_FIXED && step->count > 0 && next[-1].op == AVRO_OP_SKIP_FIXED &&
                next[-1].number + next->number <= SOURCE_RECORD_BYTES_MAX) {
                next[-1].number += next->number;
                continue;
            }
        }
        step->count++;
    }
    for (uint32_t i = 0; i < to->count; i++) {
        struct avro_step *next = &step->steps[step->count];
        if (is_taken[i])
            continue;
        *next = (struct avro_step){.column = i};
        is_good &= compile_absent(compiler, reader, &to->fields[i], from, next);
        step->count++;
    }
    return is_good;
}

/* --- the whole plan --- */

static const struct avro_type *parse(struct avro_compiler *compiler, struct str text, const char *name,
                                     struct avro_names *names)
{
    struct payload_request *request = compiler->request;
    const char *why = NULL;
    const struct avro_type *type = avro_type_parse(compiler->arena, text, names, &why);
    if (type == NULL) {
        struct diag *d = diag_error(request->diags, DIAG_BAD_PAYLOAD_SCHEMA, no_span,
                                    "%s is not an Avro schema: %s", name, why);
        if (request->is_file)
            diag_at(request->diags, d, request->name, -1, -1);
    }
    return type;
}

const struct payload_plan *avro_plan_new(struct payload_request *request)
{
    struct avro_compiler compiler = {.request = request, .arena = request->arena};
    struct avro_names *names = arena_new(request->arena, struct avro_names);
    const struct avro_type *reader = NULL;
    compiler.plan = arena_new(request->arena, struct avro_plan);
    payload_plan_init(&compiler.plan->base, request);
    if (request->reader.length > 0) {
        reader = parse(&compiler, request->reader, "the schema file", names);
        if (reader == NULL)
            return NULL;
        names->count = 0;
    }
    for (uint32_t i = 0; i < request->writer->references_count; i++)
        if (parse(&compiler, request->writer->references[i].text, request->name, names) == NULL)
            return NULL;
    const struct avro_type *writer = parse(&compiler, request->writer->text, request->name, names);
    if (writer == NULL)
        return NULL;
    if (writer->tag != AVRO_RECORD || (reader != NULL && reader->tag != AVRO_RECORD)) {
        struct diag *d = diag_error(request->diags, DIAG_BAD_PAYLOAD_SCHEMA, no_span,
                                    "%s is %s, but columns take the fields of a record", request->name,
                                    avro_type_name(request->arena, writer));
        diag_hint(request->diags, d, "`format: raw` gives the payload as it is");
        return NULL;
    }
    if (!compile_record(&compiler, writer, reader, request->schema, &compiler.plan->record))
        return NULL;
    return &compiler.plan->base;
}
