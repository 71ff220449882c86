/* GET /api/v1/columns: what the columns of sources, and those that learners and sinks read, hold, as JSON: by samples of
 * the rows (run_columns of run/run.h). README.md tells the members. */
#include "control/api_internal.h"
#include "control/json_text.h"

#include "core/civil.h"
#include "core/mem.h"
#include "core/utf8.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static json_t *number_json(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *share_json(uint64_t part, uint64_t whole)
{
    return whole == 0 ? json_null() : json_real((double)part / (double)whole);
}

/* Drops a code point of which only the first bytes were kept. */
static struct str whole_points(struct str text)
{
    for (size_t back = 1; back < UTF8_BYTES_MAX && back <= text.length; back++) {
        unsigned char byte = (unsigned char)text.data[text.length - back];
        if ((byte & 0xc0) == 0x80)
            continue;
        size_t wants = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
        if (wants > back)
            text.length -= back;
        break;
    }
    return text;
}

/* A value as it is shown: of a cut one the first bytes, and an ellipsis. */
static json_t *value_json(enum type_tag tag, const struct run_column *column, uint32_t index)
{
    const char *bytes = column->frequent[index].bytes;
    char text[SKETCH_TEXT_BYTES + 4];
    struct str shown = {text, 0};
    int64_t whole;
    double real;
    memcpy(&whole, bytes, sizeof(whole));
    memcpy(&real, bytes, sizeof(real));
    switch (tag) {
    case TYPE_BOOL: return json_string(bytes[0] != 0 ? "true" : "false");
    case TYPE_INT: shown.length = (size_t)snprintf(text, sizeof(text), "%lld", (long long)whole); break;
    case TYPE_FLOAT: shown.length = (size_t)snprintf(text, sizeof(text), "%.15g", real); break;
    case TYPE_TIME: shown.length = civil_format(whole, text); break;
    case TYPE_TEXT:
    case TYPE_BYTES:
        shown = (struct str){bytes, column->frequent[index].length};
        if (!column->frequent[index].is_cut)
            break;
        shown = whole_points(shown);
        memcpy(text, bytes, shown.length);
        memcpy(text + shown.length, "\xe2\x80\xa6", 3);
        shown = (struct str){text, shown.length + 3};
        break;
    case TYPE_LIST:
    case TYPE_RECORD: break;
    }
    return json_any_text(shown);
}

static json_t *top_json(const struct run_column *column)
{
    json_t *top = json_array();
    const struct type *type = &column->field->type;
    enum type_tag tag = type->tag == TYPE_LIST ? type->element->tag : type->tag;
    for (uint32_t i = 0; i < column->frequent_count; i++)
        if (column->frequent[i].at_least > 1 || column->frequent_count == column->values)
            json_array_append_new(top, json_pack("{s:o, s:o}", "value", value_json(tag, column, i), "share",
                                                 share_json(column->frequent[i].at_least, column->values)));
    return top;
}

/* Whole numbers are in buckets between whole numbers. The outermost buckets end where the values do. */
static json_t *bucket_json(const struct sketch_numbers *numbers, uint32_t index, bool is_whole, double unit)
{
    double from, to;
    sketch_histogram_range(&numbers->histogram, index, &from, &to);
    from = MAX(is_whole ? ceil(from) : from, numbers->min);
    to = is_whole ? MIN(ceil(to), numbers->max + 1) : MIN(to, numbers->max);
    return json_pack("{s:o, s:o, s:I}", "from", number_json(from / unit), "to", number_json(to / unit),
                     "count", (json_int_t)numbers->histogram.counts[index]);
}

static json_t *mean_json(const struct run_column_span *span, double unit)
{
    uint64_t values = span->rows - span->nulls - span->not_finite;
    return values == 0 ? json_null() : number_json(span->sum / (double)values / unit);
}

static void put_sketches(json_t *json, const struct run_column *column)
{
    enum type_tag tag = column->field->type.tag;
    const struct sketch_numbers *numbers = &column->numbers;
    bool is_value = tag == TYPE_INT || tag == TYPE_FLOAT || tag == TYPE_TIME || tag == TYPE_BOOL;
    double unit = tag == TYPE_TIME ? 1000 : 1; /* microseconds in a millisecond */
    bool has_any = numbers->count > 0;
    bool has_values = tag != TYPE_LIST || column->field->type.element->tag != TYPE_RECORD;
    json_object_set_new(json, "distinct", has_values ? json_real(column->distinct) : json_null());
    json_object_set_new(json, "measure", json_string(is_value ? "value" : "length"));
    json_object_set_new(json, "min", has_any ? number_json(numbers->min / unit) : json_null());
    json_object_set_new(json, "max", has_any ? number_json(numbers->max / unit) : json_null());
    json_object_set_new(json, "mean", has_any ? number_json(numbers->mean / unit) : json_null());
    json_object_set_new(json, "mean_recent", mean_json(&column->recent, unit));
    json_object_set_new(json, "mean_before", mean_json(&column->before, unit));
    json_object_set_new(json, "not_finite", json_integer((json_int_t)numbers->not_finite));
    json_object_set_new(json, "histogram", json_array());
    for (uint32_t i = 0; i < numbers->histogram.count && tag != TYPE_BOOL; i++)
        json_array_append_new(json_object_get(json, "histogram"),
                              bucket_json(numbers, i, tag != TYPE_FLOAT, unit));
    json_object_set_new(json, "top", top_json(column));
}

/* A column of which only nulls are counted has the same members. */
static void put_no_sketches(json_t *json)
{
    static const char *const none[] = {"distinct", "measure",     "min",         "max",
                                       "mean",     "mean_recent", "mean_before", "not_finite"};
    for (size_t i = 0; i < ARRAY_COUNT(none); i++)
        json_object_set_new(json, none[i], json_null());
    json_object_set_new(json, "histogram", json_array());
    json_object_set_new(json, "top", json_array());
}

static json_t *column_json(const struct run_column *column)
{
    struct arena arena = {0};
    json_t *json = json_pack(
        "{s:o, s:o, s:I, s:I, s:o, s:o, s:b}", "name", json_any_text(column->field->name), "type",
        json_any_text(str_from(type_name(&arena, &column->field->type))), "rows", (json_int_t)column->rows,
        "nulls", (json_int_t)column->nulls, "null_share_recent",
        share_json(column->recent.nulls, column->recent.rows), "null_share_before",
        share_json(column->before.nulls, column->before.rows), "is_sketched", (int)column->is_sketched);
    if (column->is_sketched)
        put_sketches(json, column);
    else
        put_no_sketches(json);
    arena_free(&arena);
    return json;
}

static json_t *node_json(const struct run *run, uint32_t index, struct run_column *column)
{
    struct run_columns node;
    run_columns(run, index, &node);
    json_t *columns = json_array();
    for (uint32_t c = 0; c < node.schema->count; c++) {
        run_column_read(run, index, c, column);
        json_array_append_new(columns, column_json(column));
    }
    return json_pack("{s:o, s:I, s:o}", "part", json_any_text(str_from(node.node->part)), "rows",
                     (json_int_t)node.rows, "columns", columns);
}

void api_columns_serve(struct api *api, struct net_exchange *exchange)
{
    const struct run *run = atomic_load(&api->run);
    if (run == NULL) {
        net_respond_text(exchange, 503, "the run is being restored: ask again\n");
        return;
    }
    struct run_column *column = mem_alloc(sizeof(*column));
    json_t *nodes = json_array();
    for (uint32_t i = 0; i < run_columns_count(run); i++)
        json_array_append_new(nodes, node_json(run, i, column));
    json_t *answer = json_pack("{s:o}", "nodes", nodes);
    char *text = json_dumps(answer, JSON_COMPACT | JSON_REAL_PRECISION(15));
    struct byte_buffer body = {.data = text, .length = text == NULL ? 0 : strlen(text)};
    if (text == NULL)
        net_respond_text(exchange, 503, "there is no memory for the answer: ask again\n");
    else
        api_answer(exchange, 200, STR("application/json"), &body);
    free(text);
    json_decref(answer);
    free(column);
}
