/* Checks a request from the outside in: the inputs' names, their types, their shapes, the number of rows,
 * what is missing, each value, the wished outputs. */
#include "core/diag.h"
#include "serve/infer_model.h"

#include <inttypes.h>

struct check {
    const struct infer_model *model;
    const struct infer_request *request;
    struct arena *arena;
    struct infer_problem *problem;
    struct infer_given *given; /* by column of the source */
    uint64_t rows;
    int64_t latest_us; /* of an event time */
    uint64_t spread;   /* bytes, as INFER_SPREAD_BYTES_MAX counts them */
};

#define REFUSE(c, fault, ...) infer_refuse((c)->problem, (c)->arena, fault, __VA_ARGS__)
#define BAD(c, ...)           REFUSE(c, INFER_BAD_REQUEST, __VA_ARGS__)
#define SHOWN(c, name)        infer_shown(name, (c)->arena)

void infer_bind(const struct infer_model *model, const struct infer_request *request,
                struct infer_given *given)
{
    uint32_t guess = 0;
    for (uint32_t i = 0; i < request->inputs_count; i++) {
        const struct infer_name *name = infer_find(&model->inputs, request->inputs[i].name, guess);
        leat_assert(name != NULL);
        guess = (uint32_t)(name - model->inputs.names) + 1;
        given[name->column].parts[name->part] = &request->inputs[i];
    }
}

/* --- Names, types, shapes --- */

static const char *near_of(struct check *c, const struct infer_side *side, struct str name)
{
    struct str clipped = {name.data, MIN(name.length, (size_t)64)};
    const char *near = diag_nearest(clipped, side->near, side->near_count);
    return near == NULL ? "" : arena_printf(c->arena, "; did you mean `%s`?", near);
}

static const char *type_word(const struct infer_field *field)
{
    static const char *const words[] = {
        [TYPE_BOOL] = "a bool: send BOOL",
        [TYPE_INT] = "an int: send INT64, or another INT or UINT",
        [TYPE_FLOAT] = "a float: send FP64 or FP32",
        [TYPE_TEXT] = "a text: send BYTES",
        [TYPE_BYTES] = "bytes: send BYTES",
    };
    static const char *const elements[] = {
        [TYPE_BOOL] = "a list of bools: send BOOL",
        [TYPE_INT] = "a list of ints: send INT64, or another INT or UINT",
        [TYPE_FLOAT] = "a list of floats: send FP64 or FP32",
        [TYPE_TEXT] = "a list of texts: send BYTES",
        [TYPE_BYTES] = "a list of bytes: send BYTES",
    };
    bool is_text = field->tensor == INFER_BYTES;
    if (field->type->tag == TYPE_TIME)
        return field->is_list ? is_text ? "a list of times, written as text: send BYTES"
                                        : "a list of times, written as numbers: send INT64"
               : is_text      ? "a time, written as text like 2015-09-12T00:46:58Z: send BYTES"
                              : "a time, written as a number: send INT64";
    return (field->is_list ? elements : words)[field->type->tag];
}

static bool check_type(struct check *c, const struct infer_tensor *tensor, const struct infer_name *name)
{
    const struct infer_field *field = &c->model->inputs.fields[name->column];
    const char *type = infer_type_name(tensor->type);
    if (tensor->type >= INFER_TYPES)
        return REFUSE(c, INFER_NOT_SUPPORTED, "the input `%s` has a data type that leat does not take",
                      SHOWN(c, tensor->name));
    if (field->is_nested)
        return REFUSE(c, INFER_NOT_SUPPORTED,
                      "the input `%s` is a list of %s, which no tensor holds: leave it out",
                      SHOWN(c, tensor->name), field->type->tag == TYPE_LIST ? "lists" : "records");
    if (name->part == INFER_VALID && tensor->type != INFER_BOOL)
        return BAD(c, "the input `%s` is %s; it says which values are there: send BOOL",
                   SHOWN(c, tensor->name), type);
    if (name->part == INFER_LENGTHS && (tensor->type < INFER_UINT8 || tensor->type > INFER_INT64))
        return BAD(c, "the input `%s` is %s; it has the lengths of lists: send INT64", SHOWN(c, tensor->name),
                   type);
    if (name->part == INFER_VALUES && !infer_type_fits(tensor->type, field->type))
        return BAD(c, "the input `%s` is %s, but the column is %s", SHOWN(c, tensor->name), type,
                   type_word(field));
    return true;
}

static const char *shape_text(struct check *c, const struct infer_tensor *tensor)
{
    const char *text = "";
    for (uint32_t i = 0; i < MIN(tensor->rank, (uint32_t)INFER_RANK_MAX); i++)
        text = arena_printf(c->arena, "%s%s%" PRId64, text, i > 0 ? "," : "", tensor->shape[i]);
    return arena_printf(c->arena, "[%s%s]", text, tensor->rank > INFER_RANK_MAX ? ",..." : "");
}

static bool check_shape(struct check *c, const struct infer_tensor *tensor)
{
    uint64_t count;
    if (!infer_elements(tensor, &count))
        return BAD(c,
                   "the input `%s` has the shape %s: at most %d sizes, from 0 on, whose product fits 63 bits",
                   SHOWN(c, tensor->name), shape_text(c, tensor), INFER_RANK_MAX);
    if (count != tensor->count)
        return BAD(
            c, "the input `%s` has the shape %s, which has %" PRIu64 " elements, but %" PRIu64 " are there",
            SHOWN(c, tensor->name), shape_text(c, tensor), count, tensor->count);
    if (tensor->rank == 0 || tensor->rank > 2 || (tensor->rank == 2 && tensor->shape[1] != 1))
        return BAD(c, "the input `%s` has the shape %s; a column takes [n], [n,1], or [1] for all rows",
                   SHOWN(c, tensor->name), shape_text(c, tensor));
    return true;
}

/* Whether a tensor has one element a row, or one for all. */
static bool is_by_row(const struct infer_field *field, enum infer_part part)
{
    return part != INFER_VALUES || !field->is_list;
}

/* Takes the tensor's element count as the number of rows. */
static bool count_rows(struct check *c, const struct infer_tensor *tensor, const struct infer_tensor **first)
{
    if (tensor->count == 0)
        return BAD(c, "the input `%s` has no rows: its shape is %s", SHOWN(c, tensor->name),
                   shape_text(c, tensor));
    if (tensor->count > INFER_ROWS_MAX)
        return REFUSE(c, INFER_TOO_LARGE, "the input `%s` has %" PRIu64 " rows; a request has at most %d",
                      SHOWN(c, tensor->name), tensor->count, INFER_ROWS_MAX);
    if (c->rows > 1 && tensor->count > 1 && tensor->count != c->rows)
        return BAD(c, "the input `%s` has %" PRIu64 " rows, but `%s` has %" PRIu64, SHOWN(c, tensor->name),
                   tensor->count, SHOWN(c, (*first)->name), c->rows);
    if (*first == NULL || tensor->count > c->rows) {
        *first = tensor;
        c->rows = tensor->count;
    }
    return true;
}

static bool check_inputs(struct check *c)
{
    const struct infer_side *side = &c->model->inputs;
    const struct infer_tensor *first = NULL;
    uint32_t guess = 0;
    for (uint32_t i = 0; i < c->request->inputs_count; i++) {
        const struct infer_tensor *tensor = &c->request->inputs[i];
        const struct infer_name *name = infer_find(side, tensor->name, guess);
        if (name == NULL)
            return BAD(c, "the model `%s` has no input `%s`%s", SHOWN(c, c->model->serve->name),
                       SHOWN(c, tensor->name), near_of(c, side, tensor->name));
        guess = (uint32_t)(name - side->names) + 1;
        const struct infer_tensor **place = &c->given[name->column].parts[name->part];
        if (*place != NULL)
            return BAD(c, "the input `%s` is given twice", SHOWN(c, tensor->name));
        *place = tensor;
        if (!check_type(c, tensor, name) || !check_shape(c, tensor))
            return false;
        if (is_by_row(&side->fields[name->column], name->part) && !count_rows(c, tensor, &first))
            return false;
    }
    return first != NULL || BAD(c, "the request has no input that says how many rows there are");
}

/* --- What is missing --- */

static bool check_given(struct check *c, const struct infer_field *field, const struct infer_given *given)
{
    struct str name = field->field->name;
    if (field->is_nested && field->is_needed)
        return REFUSE(c, INFER_NOT_SUPPORTED,
                      "the model needs the column `%s`, a list of %s, which no tensor holds: ask it with "
                      "`leat score`",
                      SHOWN(c, name), field->type->tag == TYPE_LIST ? "lists" : "records");
    for (int part = INFER_VALID; part < INFER_PARTS && given->parts[INFER_VALUES] == NULL; part++)
        if (given->parts[part] != NULL)
            return BAD(c, "the input `%s` is given, but not `%s`", SHOWN(c, given->parts[part]->name),
                       SHOWN(c, name));
    if (field->is_required && given->parts[INFER_VALUES] == NULL)
        return BAD(c, "the input `%s` is missing, and the model needs it", SHOWN(c, name));
    if (field->is_list && given->parts[INFER_VALUES] != NULL && given->parts[INFER_LENGTHS] == NULL)
        return BAD(c, "the input `%s` is a list: send `%s.lengths`, the number of elements of each row",
                   SHOWN(c, name), SHOWN(c, name));
    return true;
}

/* --- Values --- */

static bool bad_value(struct check *c, const struct infer_tensor *tensor, uint64_t i, const char *why)
{
    if (tensor->count == 1 && c->rows > 1)
        return BAD(c, "the input `%s`: %s", SHOWN(c, tensor->name), why);
    return BAD(c, "the input `%s`, row %" PRIu64 ": %s", SHOWN(c, tensor->name), i, why);
}

static bool check_valid(struct check *c, const struct infer_tensor *valid)
{
    for (uint64_t i = 0; i < valid->count; i++) {
        union infer_value value;
        const char *why =
            infer_is_null(valid, i)
                ? "null, where true or false was expected"
                : infer_value_read(valid, i, &(struct type){.tag = TYPE_BOOL}, &value, c->arena);
        if (why != NULL)
            return bad_value(c, valid, i, why);
    }
    return true;
}

static bool check_nulls(struct check *c, const struct infer_field *field, const struct infer_given *given)
{
    if (!field->is_required ||
        (given->parts[INFER_VALID] == NULL && given->parts[INFER_VALUES]->nulls == NULL))
        return true;
    for (uint64_t row = 0; row < c->rows; row++)
        if (!infer_has_value(given, field->is_list, row))
            return BAD(c, "the input `%s`, row %" PRIu64 ": null, and the model needs a value",
                       SHOWN(c, field->field->name), row);
    return true;
}

static bool add_spread(struct check *c, uint64_t bytes)
{
    c->spread += bytes;
    if (c->spread <= INFER_SPREAD_BYTES_MAX)
        return true;
    return REFUSE(c, INFER_TOO_LARGE,
                  "the texts and lists of all rows have more than %d MiB: send fewer rows",
                  INFER_SPREAD_BYTES_MAX >> 20);
}

/* Values of a column that is no list. An element that goes with all rows is looked at once. */
static bool check_values(struct check *c, const struct infer_field *field, const struct infer_given *given)
{
    const struct infer_tensor *values = given->parts[INFER_VALUES];
    bool is_text = values->type == INFER_BYTES;
    if (!field->is_time && infer_is_sure(values->type, field->type))
        return true;
    for (uint64_t row = 0; row < c->rows; row++) {
        union infer_value value;
        uint64_t i = infer_at(values, row);
        if (!infer_has_value(given, false, row))
            continue;
        const char *why = infer_value_read(values, i, field->type, &value, c->arena);
        if (why == NULL && field->is_time && value.integer > c->latest_us)
            why = request_too_far;
        if (why != NULL)
            return bad_value(c, values, i, why);
        uint64_t times = values->count == 1 ? c->rows : 1;
        if (is_text && !add_spread(c, values->texts[i].length * times))
            return false;
        if (values->count == 1)
            break;
    }
    return true;
}

/* The elements of a row's list. times: number of rows that have it. */
static bool check_elements(struct check *c, const struct infer_field *field,
                           const struct infer_tensor *values, uint64_t row, uint64_t first, uint64_t length,
                           uint64_t times)
{
    size_t bytes = 0;
    for (uint64_t i = first; i < first + length; i++) {
        union infer_value value;
        if (infer_is_null(values, i))
            continue;
        const char *why = infer_value_read(values, i, field->type, &value, c->arena);
        if (why != NULL)
            return BAD(c, "the input `%s`, row %" PRIu64 ", element %" PRIu64 ": %s", SHOWN(c, values->name),
                       row, i - first, why);
        if (values->type == INFER_BYTES)
            bytes += value.text.length;
        if (bytes > SOURCE_RECORD_BYTES_MAX)
            return REFUSE(c, INFER_TOO_LARGE,
                          "the input `%s`, row %" PRIu64 ": the list has more than %d bytes",
                          SHOWN(c, values->name), row, SOURCE_RECORD_BYTES_MAX);
    }
    return add_spread(c, (bytes + length * sizeof(int64_t)) * times);
}

static bool check_lists(struct check *c, const struct infer_field *field, const struct infer_given *given)
{
    const struct infer_tensor *values = given->parts[INFER_VALUES], *lengths = given->parts[INFER_LENGTHS];
    uint64_t used = 0;
    for (uint64_t row = 0; row < lengths->count; row++) {
        int64_t length;
        if (infer_is_null(lengths, row))
            return bad_value(c, lengths, row, "null, where a length was expected");
        if (!infer_value_int(lengths, row, &length) || length < 0 || length > INFER_LIST_MAX)
            return BAD(c, "the input `%s`, row %" PRIu64 ": the length is not from 0 to %d",
                       SHOWN(c, lengths->name), row, INFER_LIST_MAX);
        if ((uint64_t)length > values->count - used)
            return BAD(c,
                       "the input `%s`, row %" PRIu64 ": the lengths exceed the %" PRIu64 " elements of `%s`",
                       SHOWN(c, lengths->name), row, values->count, SHOWN(c, values->name));
        if (!check_elements(c, field, values, row, used, (uint64_t)length, lengths->count == 1 ? c->rows : 1))
            return false;
        used += (uint64_t)length;
    }
    if (used != values->count)
        return BAD(c, "the input `%s` has %" PRIu64 " elements, but `%s` adds up to %" PRIu64,
                   SHOWN(c, values->name), values->count, SHOWN(c, lengths->name), used);
    return true;
}

static bool check_columns(struct check *c)
{
    for (uint32_t i = 0; i < c->model->inputs.fields_count; i++) {
        const struct infer_field *field = &c->model->inputs.fields[i];
        const struct infer_given *given = &c->given[i];
        const struct infer_tensor *valid = given->parts[INFER_VALID];
        if (!check_given(c, field, given) || (valid != NULL && !check_valid(c, valid)))
            return false;
        if (given->parts[INFER_VALUES] == NULL)
            continue;
        if (!check_nulls(c, field, given) || !(field->is_list ? check_lists : check_values)(c, field, given))
            return false;
    }
    return true;
}

/* --- Wishes --- */

static bool check_wishes(struct check *c)
{
    const struct infer_side *side = &c->model->outputs;
    uint64_t *seen = arena_array(c->arena, uint64_t, BIT_WORDS((size_t)side->names_count + 1));
    if (c->request->wishes_count > INFER_TENSORS_MAX)
        return REFUSE(c, INFER_TOO_LARGE, "the request asks for %u outputs; at most %d are allowed",
                      c->request->wishes_count, INFER_TENSORS_MAX);
    for (uint32_t i = 0; i < c->request->wishes_count; i++) {
        struct str wish = c->request->wishes[i].name;
        const struct infer_name *name = infer_find(side, wish, UINT32_MAX);
        if (name == NULL && !(c->model->has_status && str_equal(wish, INFER_STATUS)))
            return BAD(c, "the model `%s` has no output `%s`%s", SHOWN(c, c->model->serve->name),
                       SHOWN(c, wish), near_of(c, side, wish));
        const struct infer_field *field = name == NULL ? NULL : &side->fields[name->column];
        if (field != NULL && field->is_hidden)
            return BAD(c, "the output `%s` derives from the label, which no request has", SHOWN(c, wish));
        if (field != NULL && field->is_nested && field->type->tag == TYPE_RECORD)
            return REFUSE(
                c, INFER_NOT_SUPPORTED,
                "the output `%s` is a list of records, which no tensor holds: ask for its fields, such as "
                "`%s.%s`",
                SHOWN(c, wish), SHOWN(c, field->field->name), SHOWN(c, field->type->fields->fields[0].name));
        if (field != NULL && field->is_nested)
            return REFUSE(c, INFER_NOT_SUPPORTED, "the output `%s` is a list of lists, which no tensor holds",
                          SHOWN(c, wish));
        size_t bit = name == NULL ? side->names_count : (size_t)(name - side->names);
        if (bit_get(seen, bit))
            return BAD(c, "the output `%s` is asked for twice", SHOWN(c, wish));
        bit_set(seen, bit);
    }
    return true;
}

bool infer_check(const struct infer_model *model, const struct infer_request *request, int64_t now_us,
                 int64_t newest_us, uint32_t *rows, struct arena *arena, struct infer_problem *problem)
{
    struct check c = {.model = model,
                      .request = request,
                      .arena = arena,
                      .problem = problem,
                      .given = arena_array(arena, struct infer_given, model->inputs.fields_count),
                      .latest_us = request_latest_us(model->source, now_us, newest_us)};
    *problem = (struct infer_problem){INFER_GOOD, NULL};
    if (request->inputs_count > INFER_TENSORS_MAX)
        return REFUSE(&c, INFER_TOO_LARGE, "the request has %u inputs; at most %d are allowed",
                      request->inputs_count, INFER_TENSORS_MAX);
    if (!check_inputs(&c) || !check_columns(&c) || !check_wishes(&c))
        return false;
    *rows = (uint32_t)c.rows;
    return true;
}
