/* Requests that are good: their rows are those that `leat score` makes of the same values as JSON lines,
 * however they are cut into batches. Answers: what became of the rows, as tensors. */
#include "cli/commands.h"
#include "cli/score_input.h"
#include "rig.h"
#include "unit/core/cmocka_all.h"
#include "unit/support/temporary.h"

#include <math.h>
#include <stdio.h>

static int set_up(void **state)
{
    *state = rig_new();
    return 0;
}

static int tear_down(void **state)
{
    rig_free(*state);
    return 0;
}

static int forget(void **state)
{
    arena_reset(&((struct rig *)*state)->call);
    return 0;
}

#define INPUT(name, type, shape, data)                                                                       \
    "{\"name\":\"" name "\",\"datatype\":\"" type "\",\"shape\":" shape ",\"data\":" data "}"
#define REQUEST(inputs) "{\"inputs\":[" inputs "]}"
#define F2              INPUT("f", "FP64", "[2]", "[1.5,-2]")

static const struct {
    const char *what, *inputs[15], *lines;
} same[] = {
    {"what is needed alone", {INPUT("f", "FP64", "[1]", "[0.1]")}, "{\"f\":0.1}\n"},
    {"ints of every width",
     {F2, INPUT("n", "INT8", "[2]", "[-128,127]"), INPUT("id", "UINT8", "[2]", "[255,0]"),
      INPUT("extra", "UINT64", "[2]", "[9223372036854775807,1]")},
     "{\"f\":1.5,\"n\":-128,\"id\":255,\"extra\":9223372036854775807}\n"
     "{\"f\":-2,\"n\":127,\"id\":0,\"extra\":1}\n"},
    {"more widths",
     {F2, INPUT("n", "INT16", "[2]", "[-32768,32767]"), INPUT("id", "UINT16", "[2]", "[65535,0]"),
      INPUT("extra", "UINT32", "[2]", "[4294967295,1]")},
     "{\"f\":1.5,\"n\":-32768,\"id\":65535,\"extra\":4294967295}\n"
     "{\"f\":-2,\"n\":32767,\"id\":0,\"extra\":1}\n"},
    {"the ends of INT64 and INT32",
     {F2, INPUT("n", "INT64", "[2]", "[-9223372036854775808,9223372036854775807]"),
      INPUT("id", "INT32", "[2]", "[-2147483648,2147483647]")},
     "{\"f\":1.5,\"n\":-9223372036854775808,\"id\":-2147483648}\n"
     "{\"f\":-2,\"n\":9223372036854775807,\"id\":2147483647}\n"},
    {"floats from whole numbers",
     {INPUT("f", "INT64", "[3]", "[9007199254740992,-9007199254740992,0]")},
     "{\"f\":9007199254740992}\n{\"f\":-9007199254740992}\n{\"f\":0}\n"},
    {"floats of FP32, which has them exactly",
     {INPUT("f", "FP32", "[2]", "[0.5,-1e10]")},
     "{\"f\":0.5}\n{\"f\":-1e10}\n"},
    {"floats with many digits, minus zero, and beyond 64 bits",
     {INPUT("f", "FP64", "[4]", "[0.30000000000000004,-0,123456789012345678901234567890,1e-400]")},
     "{\"f\":0.30000000000000004}\n{\"f\":-0}\n{\"f\":123456789012345678901234567890}\n{\"f\":1e-400}\n"},
    {"texts, bytes and bools",
     {F2, INPUT("s", "BYTES", "[2]", "[\"a\\u00e4\\n\",\"\"]"),
      INPUT("raw", "BYTES", "[2]", "[\"AP8=\",\"\"]"), INPUT("flag", "BOOL", "[2]", "[true,false]")},
     "{\"f\":1.5,\"s\":\"a\\u00e4\\n\",\"raw\":\"AP8=\",\"flag\":true}\n"
     "{\"f\":-2,\"s\":\"\",\"raw\":\"\",\"flag\":false}\n"},
    {"times of every unit",
     {F2, INPUT("ts", "INT64", "[2]", "[1500,-3]"), INPUT("sec", "INT32", "[2]", "[7,-7]"),
      INPUT("nano", "INT64", "[2]", "[1999,-1]"),
      INPUT("day", "BYTES", "[2]", "[\"2015-09-12T00:46:58.771Z\",\"1969-01-01\"]")},
     "{\"f\":1.5,\"ts\":1500,\"sec\":7,\"nano\":1999,\"day\":\"2015-09-12T00:46:58.771Z\"}\n"
     "{\"f\":-2,\"ts\":-3,\"sec\":-7,\"nano\":-1,\"day\":\"1969-01-01\"}\n"},
    {"a shape [n,1], with nested lists",
     {INPUT("f", "FP64", "[2,1]", "[[1.5],[-2]]"), INPUT("n", "INT64", "[2,1]", "[3,4]")},
     "{\"f\":1.5,\"n\":3}\n{\"f\":-2,\"n\":4}\n"},
    {"[1] for all rows",
     {F2, INPUT("n", "INT64", "[1]", "[9]"), INPUT("s", "BYTES", "[1,1]", "[\"user\"]"),
      INPUT("flag", "BOOL", "[1]", "[true]"), INPUT("raw", "BYTES", "[1]", "[null]")},
     "{\"f\":1.5,\"n\":9,\"s\":\"user\",\"flag\":true}\n{\"f\":-2,\"n\":9,\"s\":\"user\",\"flag\":true}\n"},
    {"nulls of JSON",
     {F2, INPUT("n", "INT64", "[2]", "[null,4]"), INPUT("s", "BYTES", "[2]", "[\"x\",null]"),
      INPUT("flag", "BOOL", "[2]", "[null,true]"), INPUT("ts", "INT64", "[2]", "[null,77]")},
     "{\"f\":1.5,\"s\":\"x\"}\n{\"f\":-2,\"n\":4,\"flag\":true,\"ts\":77}\n"},
    {"NAME.valid: what lies below is not looked at",
     {F2, INPUT("s", "BYTES", "[2]", "[\"x\",\"y\"]"), INPUT("s.valid", "BOOL", "[2]", "[false,true]"),
      INPUT("day", "BYTES", "[2]", "[\"no time\",\"2020-01-01\"]"),
      INPUT("day.valid", "BOOL", "[2]", "[false,true]"), INPUT("n", "INT64", "[1]", "[5]"),
      INPUT("n.valid", "BOOL", "[2]", "[true,false]")},
     "{\"f\":1.5,\"n\":5}\n{\"f\":-2,\"s\":\"y\",\"day\":\"2020-01-01\"}\n"},
    {"lists of every type",
     {F2, INPUT("li", "INT32", "[3]", "[1,2,3]"), INPUT("li.lengths", "INT64", "[2]", "[3,0]"),
      INPUT("lf", "FP64", "[1]", "[0.5]"), INPUT("lf.lengths", "INT64", "[2]", "[0,1]"),
      INPUT("lt", "BYTES", "[2]", "[\"a\",\"bc\"]"), INPUT("lt.lengths", "UINT8", "[2]", "[1,1]"),
      INPUT("lb", "BOOL", "[2]", "[true,false]"), INPUT("lb.lengths", "INT64", "[2]", "[1,1]"),
      INPUT("lr", "BYTES", "[2]", "[\"AP8=\",\"\"]"), INPUT("lr.lengths", "INT64", "[2,1]", "[[0],[2]]"),
      INPUT("ld", "INT64", "[1]", "[1234]"), INPUT("ld.lengths", "INT64", "[2]", "[1,0]")},
     "{\"f\":1.5,\"li\":[1,2,3],\"lf\":[],\"lt\":[\"a\"],\"lb\":[true],\"lr\":[],\"ld\":[1234]}\n"
     "{\"f\":-2,\"li\":[],\"lf\":[0.5],\"lt\":[\"bc\"],\"lb\":[false],\"lr\":[\"AP8=\",\"\"],\"ld\":[]}\n"},
    {"nulls in lists, and lists that are null",
     {F2, INPUT("li", "INT64", "[3]", "[1,null,3]"), INPUT("li.lengths", "INT64", "[2]", "[2,1]"),
      INPUT("li.valid", "BOOL", "[2]", "[true,false]"), INPUT("lt", "BYTES", "[2]", "[null,\"x\"]"),
      INPUT("lt.lengths", "INT64", "[2]", "[1,1]"), INPUT("lf", "FP64", "[0]", "[]"),
      INPUT("lf.lengths", "INT64", "[1]", "[0]")},
     "{\"f\":1.5,\"li\":[1,null],\"lt\":[null],\"lf\":[]}\n{\"f\":-2,\"lt\":[\"x\"],\"lf\":[]}\n"},
    {"a list for all rows",
     {F2, INPUT("lt", "BYTES", "[2]", "[\"a\",\"b\"]"), INPUT("lt.lengths", "INT64", "[1]", "[2]"),
      INPUT("li", "INT64", "[3]", "[4,5,6]"), INPUT("li.lengths", "INT64", "[1]", "[3]")},
     "{\"f\":1.5,\"li\":[4,5,6],\"lt\":[\"a\",\"b\"]}\n{\"f\":-2,\"li\":[4,5,6],\"lt\":[\"a\",\"b\"]}\n"},
    {"an event time at the limit of max_jump",
     {INPUT("f", "FP64", "[1]", "[1]"), INPUT("ts", "INT64", "[1]", "[3601000]")},
     "{\"f\":1,\"ts\":3601000}\n"},
};

/* A request with these inputs, of which NULL ends the list. */
static const char *join(const char *const *inputs, struct arena *arena)
{
    const char *all = *inputs;
    for (inputs++; *inputs != NULL; inputs++)
        all = arena_printf(arena, "%s,%s", all, *inputs);
    return arena_printf(arena, REQUEST("%s"), all);
}

/* The first batch of `leat score`'s requests in a file of these lines. */
static struct batch *score(struct rig *rig, const struct plan_serve *serve, const char *path,
                           const char *lines)
{
    struct diag_list diags;
    diag_list_init(&diags, &rig->call);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(lines, 1, strlen(lines), file), strlen(lines));
    assert_int_equal(fclose(file), 0);
    struct score_input *input =
        score_input_open(rig->plan, serve, &builtin_registry, path, RIG_NOW_US, 0, rig->pool, &diags);
    assert_non_null(input);
    struct score_requests requests;
    assert_int_equal(score_input_next(input, &requests), INPUT_REQUESTS);
    for (uint32_t row = 0; row < requests.rows->rows; row++)
        if (requests.reasons[row] != NULL)
            fail_msg("%s, row %u: %s", lines, row, requests.reasons[row]);
    score_input_close(input);
    return requests.rows;
}

static void assert_same(const struct batch *a, const struct batch *b, const char *what)
{
    char first[33], second[33];
    assert_ptr_equal(a->schema, b->schema);
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->selected, b->selected);
    assert_int_equal(a->partition, b->partition);
    assert_int_equal(a->first_record, b->first_record);
    assert_null(a->origins);
    assert_int_equal(a->arrival_time == NULL, b->arrival_time == NULL);
    for (uint32_t row = 0; row < a->rows; row++) {
        assert_int_equal(a->event_time[row], b->event_time[row]);
        assert_int_equal(a->order_time[row], b->order_time[row]);
        assert_int_equal(batch_row(a, row), batch_row(b, row));
    }
    /* The data below a null is zero. */
    for (uint32_t i = 0; i < a->schema->count; i++)
        for (uint32_t row = 0; row < a->rows; row++)
            if (!column_is_valid(&a->columns[i], row))
                assert_true(a->columns[i].tag == TYPE_BOOL ? a->columns[i].bools[row] == 0
                                                           : a->columns[i].ints[row] == 0);
    rig_digest(a, first);
    rig_digest(b, second);
    if (strcmp(first, second) != 0)
        fail_msg("%s: other rows than `leat score` makes", what);
}

static void test_same_rows(void **state)
{
    struct rig *rig = *state;
    char directory[TEMPORARY_PATH_BYTES], path[TEMPORARY_PATH_BYTES + 16];
    temporary_make(directory);
    for (size_t i = 0; i < ARRAY_COUNT(same); i++) {
        struct infer_request request;
        struct infer_problem problem;
        uint32_t rows;
        snprintf(path, sizeof(path), "%s/%zu.jsonl", directory, i);
        if (!rig_read(rig, rig->model, join(same[i].inputs, &rig->call), &request, &rows, &problem))
            fail_msg("%s: %s", same[i].what, problem.text);
        assert_int_equal(problem.fault, INFER_GOOD);
        struct batch *scored = score(rig, rig_serve(rig, "all"), path, same[i].lines);
        for (uint32_t step = 1; step <= rows; step++) {
            struct batch *batch = rig_fill(rig, rig->model, &request, rows, step);
            assert_same(batch, scored, same[i].what);
            batch_release(batch);
        }
        batch_release(scored);
        arena_reset(&rig->call);
    }
    temporary_remove(directory);
}

/* A source without event time; both of its columns are needed. */
static void test_without_time(void **state)
{
    struct rig *rig = *state;
    char directory[TEMPORARY_PATH_BYTES], path[TEMPORARY_PATH_BYTES + 16];
    struct infer_model *model = infer_model_new(rig->plan, rig_serve(rig, "timeless"));
    struct infer_request request;
    struct infer_problem problem;
    uint32_t rows;
    temporary_make(directory);
    snprintf(path, sizeof(path), "%s/x.jsonl", directory);
    assert_true(
        rig_read(rig, model,
                 REQUEST(INPUT("b", "BYTES", "[2]", "[\"x\",\"y\"]") "," INPUT("a", "INT64", "[1]", "[1]")),
                 &request, &rows, &problem));
    assert_int_equal(rows, 2);
    struct batch *batch = rig_fill(rig, model, &request, rows, 2);
    struct batch *scored =
        score(rig, rig_serve(rig, "timeless"), path, "{\"a\":1,\"b\":\"x\"}\n{\"a\":1,\"b\":\"y\"}\n");
    assert_int_equal(batch->event_time[1], 0);
    assert_same(batch, scored, "without time");
    batch_release(batch);
    batch_release(scored);
    infer_model_free(model);
    temporary_remove(directory);
}

/* A source whose rows have arrival times: the event time stands for it, and a day is the usual max_jump. */
static void test_with_arrival(void **state)
{
    struct rig *rig = *state;
    struct plan_node *source = &rig->plan->nodes[rig_serve(rig, "all")->request];
    struct infer_request request;
    struct infer_problem problem;
    uint32_t rows;
    int64_t jump_us = source->common->max_jump_us;
    source->common->max_jump_us = 0;
    for (int is_late = 0; is_late < 2; is_late++) {
        const char *json = arena_printf(
            &rig->call, REQUEST(INPUT("f", "FP64", "[1]", "[1]") "," INPUT("ts", "INT64", "[1]", "[%d]")),
            86400000 + RIG_NOW_MS + is_late);
        source->has_arrival = false;
        assert_true(rig_read(rig, rig->model, json, &request, &rows, &problem));
        source->has_arrival = true;
        assert_int_equal(rig_read(rig, rig->model, json, &request, &rows, &problem), !is_late);
    }
    struct batch *batch = rig_fill(rig, rig->model, &request, 1, 1);
    assert_non_null(batch->arrival_time);
    assert_int_equal(batch->arrival_time[0], batch->event_time[0]);
    batch_release(batch);
    source->has_arrival = false;
    source->common->max_jump_us = jump_us;
}

/* Request i of those that go into one batch: its texts are longer than those of the one before. */
static const char *many_request(struct rig *rig, uint32_t i)
{
    char word[401];
    memset(word, 'a' + (int)(i % 26), sizeof(word));
    word[i % sizeof(word)] = '\0';
    const char *texts = arena_printf(&rig->call, "[\"%s\",null,\"b\",\"\",\"%u\"]", word, i);
    const char *inputs[] = {
        arena_printf(&rig->call, INPUT("f", "INT64", "[5]", "[1,2,3,4,%u]"), i),
        arena_printf(&rig->call, INPUT("s", "BYTES", "[5]", "%s"), texts),
        arena_printf(&rig->call, INPUT("li", "INT64", "[6]", "[1,2,%u,null,5,6]"), i),
        INPUT("li.lengths", "INT64", "[5]", "[1,0,2,3,0]"),
        arena_printf(&rig->call, INPUT("lt", "BYTES", "[1]", "[\"%s\"]"), word),
        INPUT("lt.lengths", "INT64", "[1]", "[1]"),
        INPUT("flag", "BOOL", "[1]", "[true]"),
        NULL,
    };
    return join(inputs, &rig->call);
}

/* Several requests in one batch, enough of them that texts and lists have to be moved; then each row is as
 * it is alone. */
static void test_many_requests(void **state)
{
    struct rig *rig = *state;
    enum { REQUESTS = 200, ROWS = 5 };
    struct batch *batch = infer_batch(rig->model, rig->pool, REQUESTS * ROWS);
    struct infer_request request;
    struct infer_problem problem;
    char alone[33], among[33];
    uint32_t rows;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        if (!rig_read(rig, rig->model, many_request(rig, i), &request, &rows, &problem))
            fail_msg("%s", problem.text);
        assert_int_equal(rows, ROWS);
        infer_fill(rig->model, &request, RIG_NOW_US, 0, ROWS, batch, i * ROWS);
        /* The batch keeps nothing of a request. */
        arena_free(&rig->call);
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        uint16_t sel[ROWS];
        assert_true(rig_read(rig, rig->model, many_request(rig, i), &request, &rows, &problem));
        struct batch *one = rig_fill(rig, rig->model, &request, rows, rows);
        for (uint32_t row = 0; row < ROWS; row++)
            sel[row] = (uint16_t)(i * ROWS + row);
        struct batch view = *batch;
        view.sel = sel;
        view.selected = ROWS;
        rig_digest(one, alone);
        rig_digest(&view, among);
        assert_string_equal(alone, among);
        batch_release(one);
        arena_reset(&rig->call);
    }
    batch_release(batch);
}

/* Values that a program sends and JSON cannot: NaN, raw bytes, values that are not aligned. */
static void test_binary_values(void **state)
{
    struct rig *rig = *state;
    static const char bytes[] = "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    char values[17];
    memcpy(values, bytes, sizeof(values));
    double numbers[] = {NAN, -INFINITY};
    memcpy(values + 1, numbers, sizeof(numbers));
    struct str texts[] = {{"\xff\0", 2}, {"AP8=", 4}};
    struct infer_tensor inputs[] = {
        {.name = STR("f"), .type = INFER_FP64, .rank = 1, .shape = {2}, .count = 2, .values = values + 1},
        {.name = STR("raw"), .type = INFER_BYTES, .rank = 1, .shape = {2}, .count = 2, .texts = texts},
    };
    struct infer_request request = {.inputs = inputs, .inputs_count = 2};
    struct infer_problem problem;
    uint32_t rows;
    if (!infer_check(rig->model, &request, RIG_NOW_US, 0, &rows, &rig->call, &problem))
        fail_msg("%s", problem.text);
    struct batch *batch = rig_fill(rig, rig->model, &request, rows, 1);
    const struct column *f = &batch->columns[schema_find(batch->schema, STR("f"))];
    const struct column *raw = &batch->columns[schema_find(batch->schema, STR("raw"))];
    assert_true(column_is_valid(f, 0) && isnan(f->floats[0]) && f->floats[1] == -INFINITY);
    assert_true(str_equal(column_text(raw, 0), texts[0]) && str_equal(column_text(raw, 1), texts[1]));
    assert_int_equal(batch->event_time[1], RIG_NOW_US);
    batch_release(batch);
}

static void test_metadata(void **state)
{
    struct rig *rig = *state;
    static const struct infer_column inputs[] = {
        {{"id", 2}, INFER_INT64, true, false},    {{"ts", 2}, INFER_INT64, true, false},
        {{"flag", 4}, INFER_BOOL, true, false},   {{"n", 1}, INFER_INT64, true, false},
        {{"f", 1}, INFER_FP64, false, false},     {{"s", 1}, INFER_BYTES, true, false},
        {{"raw", 3}, INFER_BYTES, true, false},   {{"day", 3}, INFER_BYTES, true, false},
        {{"sec", 3}, INFER_INT64, true, false},   {{"nano", 4}, INFER_INT64, true, false},
        {{"li", 2}, INFER_INT64, true, true},     {{"lf", 2}, INFER_FP64, true, true},
        {{"lt", 2}, INFER_BYTES, true, true},     {{"lb", 2}, INFER_BOOL, true, true},
        {{"lr", 2}, INFER_BYTES, true, true},     {{"ld", 2}, INFER_INT64, true, true},
        {{"extra", 5}, INFER_INT64, true, false},
    };
    const struct infer_column *columns;
    assert_int_equal(infer_inputs(rig->model, &columns), ARRAY_COUNT(inputs));
    for (size_t i = 0; i < ARRAY_COUNT(inputs); i++) {
        assert_true(str_equal(columns[i].name, inputs[i].name));
        assert_int_equal(columns[i].type, inputs[i].type);
        assert_int_equal(columns[i].is_optional, inputs[i].is_optional);
        assert_int_equal(columns[i].is_list, inputs[i].is_list);
    }
    uint32_t count = infer_outputs(rig->model, &columns);
    assert_int_equal(count, 21); /* 16 of the source's columns, two fields of `recs`, twice, big, _status */
    assert_true(str_is(columns[7].name, "day") && columns[7].type == INFER_INT64);
    assert_true(str_is(columns[16].name, "recs.a") && columns[16].type == INFER_INT64 && columns[16].is_list);
    assert_true(str_is(columns[17].name, "recs.b") && columns[17].type == INFER_BYTES && columns[17].is_list);
    assert_true(str_is(columns[18].name, "twice") && columns[18].type == INFER_FP64);
    assert_true(str_is(columns[20].name, "_status") && columns[20].type == INFER_BYTES);
    for (enum infer_type type = 0; type < INFER_TYPES; type++)
        assert_int_equal(infer_type_of(str_from(infer_type_name(type))), type);
    assert_int_equal(infer_type_of(STR("FP16")), INFER_NO_TYPE);
}

/* A column that derives from the label has no value, and a column named _status is just a column. */
static void test_other_outputs(void **state)
{
    struct rig *rig = *state;
    const struct plan_serve *serve = rig_serve(rig, "all");
    const struct infer_column *columns;
    struct infer_request request;
    struct infer_problem problem;
    const struct infer_tensor *tensors;
    uint32_t rows, twice = (uint32_t)schema_find(plan_answer_schema(rig->plan, serve), STR("twice"));
    serve->is_hidden[twice] = true;
    struct infer_model *model = infer_model_new(rig->plan, serve);
    assert_int_equal(infer_outputs(model, &columns), 20);
    assert_true(str_is(columns[18].name, "big"));
    struct infer_wish wish = {STR("twice.valid"), false};
    assert_true(rig_read(rig, model, REQUEST(INPUT("f", "FP64", "[1]", "[1]")), &request, &rows, &problem));
    struct infer_answer *answer = infer_answer_new(model, &request, 1, &rig->call);
    struct batch *batch = rig_fill(rig, model, &request, 1, 1);
    struct way_result result = {.status = WAY_FILTERED};
    infer_answer_add(answer, batch, &result, 0, 1, TIME_MIN);
    uint32_t count = infer_answer_tensors(answer, &tensors);
    for (uint32_t i = 0; i < count; i++)
        assert_false(str_is(tensors[i].name, "twice") || str_is(tensors[i].name, "twice.valid"));
    batch_release(batch);
    request.wishes = &wish;
    request.wishes_count = 1;
    assert_false(infer_check(model, &request, RIG_NOW_US, 0, &rows, &rig->call, &problem));
    assert_string_equal(problem.text,
                        "the output `twice.valid` derives from the label, which no request has");
    serve->is_hidden[twice] = false;
    infer_model_free(model);
    model = infer_model_new(rig->plan, rig_serve(rig, "timeless"));
    assert_int_equal(infer_outputs(model, &columns), 5);
    assert_true(str_is(columns[4].name, "_status") && columns[4].type == INFER_INT64);
    infer_model_free(model);
}

/* --- Answers --- */

static const char four_rows[] =
    "{\"inputs\":["
    "{\"name\":\"f\",\"datatype\":\"FP64\",\"shape\":[4],\"data\":[1,2,3,4]},"
    "{\"name\":\"n\",\"datatype\":\"INT64\",\"shape\":[4],\"data\":[10,null,30,40]},"
    "{\"name\":\"s\",\"datatype\":\"BYTES\",\"shape\":[4],\"data\":[\"a\",\"bb\",\"\",\"d\"]},"
    "{\"name\":\"lt\",\"datatype\":\"BYTES\",\"shape\":[3],\"data\":[\"x\",null,\"zz\"]},"
    "{\"name\":\"lt.lengths\",\"datatype\":\"INT64\",\"shape\":[4],\"data\":[2,0,1,0]},"
    "{\"name\":\"ts\",\"datatype\":\"INT64\",\"shape\":[4],\"data\":[10,50,30,40]}]}";

/* Row 0 is answered, row 1 filtered, row 2 late (its time is before 35 ms), row 3 failed; row 0 comes in a
 * batch of its own. */
static struct infer_answer *answer_four(struct rig *rig, const struct infer_request *request,
                                        bool are_all_good)
{
    static const struct plan_node node = {.label = "features: with"};
    struct batch *batch = rig_fill(rig, rig->model, request, 4, 4), *answers = rig_answers(rig, batch);
    struct infer_answer *answer = infer_answer_new(rig->model, request, 4, &rig->call);
    struct way_result results[4];
    for (uint32_t i = 0; i < 4; i++)
        results[i] = (struct way_result){.status = WAY_ANSWERED, .batch = answers, .row = i};
    if (!are_all_good) {
        results[1] = (struct way_result){.status = WAY_FILTERED, .node = &node};
        results[3] = (struct way_result){.status = WAY_FAILED, .node = &node, .reason = "why not"};
    }
    infer_answer_add(answer, batch, results, 0, 1, are_all_good ? TIME_MIN : 10000);
    infer_answer_add(answer, batch, results, 1, 3, are_all_good ? TIME_MIN : 35000);
    batch_release(answers);
    batch_release(batch);
    return answer;
}

static const struct infer_tensor *named(const struct infer_tensor *tensors, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (str_is(tensors[i].name, name))
            return &tensors[i];
    return NULL;
}

static void test_answers(void **state)
{
    struct rig *rig = *state;
    struct infer_request request;
    struct infer_problem problem;
    uint32_t rows;
    const struct infer_tensor *tensors, *t;
    assert_true(rig_read(rig, rig->model, four_rows, &request, &rows, &problem));
    struct infer_answer *answer = answer_four(rig, &request, false);
    struct infer_counts counts = infer_answer_counts(answer);
    assert_int_equal(counts.answered, 2);
    assert_int_equal(counts.late, 1);
    assert_int_equal(counts.filtered, 1);
    assert_int_equal(counts.failed, 1);
    assert_string_equal(infer_answer_reason(answer), "features: with: why not");
    uint32_t count = infer_answer_tensors(answer, &tensors);
    t = named(tensors, count, "twice");
    const double *twice = t->values;
    assert_true(twice[0] == 2 && isnan(twice[1]) && twice[2] == 6 && isnan(twice[3]));
    assert_true(t->rank == 1 && t->shape[0] == 4 && t->count == 4 && t->nulls[0] == 10);
    assert_true(str_is(t[1].name, "twice.valid") && memcmp(t[1].values, "\1\0\1\0", 4) == 0);
    t = named(tensors, count, "s");
    assert_true(str_is(t->texts[0], "a") && t->texts[1].length == 0 && t->texts[2].length == 0 &&
                !t->is_bytes);
    assert_int_equal(t->nulls[0], 10);
    t = named(tensors, count, "lt");
    assert_int_equal(t->count, 3);
    assert_true(str_is(t->texts[0], "x") && t->texts[1].length == 0 && str_is(t->texts[2], "zz"));
    assert_int_equal(t->nulls[0], 2);
    assert_true(str_is(t[1].name, "lt.lengths") && t[1].type == INFER_INT64);
    const int64_t *lengths = t[1].values;
    assert_true(lengths[0] == 2 && lengths[1] == 0 && lengths[2] == 1 && lengths[3] == 0);
    assert_true(str_is(t[2].name, "lt.valid") && memcmp(t[2].values, "\1\0\1\0", 4) == 0);
    t = named(tensors, count, "raw");
    assert_true(t->is_bytes && t->nulls[0] == 15);
    t = &tensors[count - 1];
    assert_true(str_is(t->name, "_status") && str_is(t->texts[0], "answered") &&
                str_is(t->texts[1], "filtered") && str_is(t->texts[2], "late") &&
                str_is(t->texts[3], "failed"));
    assert_null(named(tensors, count, "extra"));
    assert_null(named(tensors, count, "recs"));
}

static void test_plain_answers(void **state)
{
    struct rig *rig = *state;
    struct infer_request request;
    struct infer_problem problem;
    uint32_t rows;
    const struct infer_tensor *tensors;
    assert_true(rig_read(rig, rig->model, four_rows, &request, &rows, &problem));
    struct infer_answer *answer = answer_four(rig, &request, true);
    assert_null(infer_answer_reason(answer));
    assert_int_equal(infer_answer_counts(answer).answered, 4);
    uint32_t count = infer_answer_tensors(answer, &tensors);
    assert_null(named(tensors, count, "_status"));
    assert_null(named(tensors, count, "twice.valid"));
    assert_null(named(tensors, count, "ts.valid"));
    assert_null(named(tensors, count, "lt.valid"));
    const struct infer_tensor *big = named(tensors, count, "big");
    assert_true(str_is(big[1].name, "big.valid") && memcmp(big[1].values, "\1\0\1\1", 4) == 0);
    assert_int_equal(((const int64_t *)big->values)[3], 41);
    assert_int_equal(((const int64_t *)named(tensors, count, "ts")->values)[3], 40000);
}

static void test_wishes(void **state)
{
    struct rig *rig = *state;
    struct infer_request request;
    struct infer_problem problem;
    uint32_t rows;
    const struct infer_tensor *tensors;
    struct infer_wish wishes[] = {{STR("_status"), false},
                                  {STR("lt.lengths"), false},
                                  {STR("twice"), true},
                                  {STR("s.valid"), false},
                                  {STR("lt"), false}};
    assert_true(rig_read(rig, rig->model, four_rows, &request, &rows, &problem));
    request.wishes = wishes;
    request.wishes_count = ARRAY_COUNT(wishes);
    assert_true(infer_check(rig->model, &request, RIG_NOW_US, 0, &rows, &rig->call, &problem));
    struct infer_answer *answer = answer_four(rig, &request, true);
    assert_int_equal(infer_answer_tensors(answer, &tensors), ARRAY_COUNT(wishes));
    for (size_t i = 0; i < ARRAY_COUNT(wishes); i++)
        assert_true(str_equal(tensors[i].name, wishes[i].name));
    assert_true(str_is(tensors[0].texts[3], "answered"));
    assert_int_equal(((const int64_t *)tensors[1].values)[0], 2);
    assert_true(((const double *)tensors[2].values)[3] == 8);
    assert_memory_equal(tensors[3].values, "\1\1\1\1", 4);
    assert_int_equal(tensors[4].count, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_same_rows, forget),
        cmocka_unit_test_teardown(test_without_time, forget),
        cmocka_unit_test_teardown(test_with_arrival, forget),
        cmocka_unit_test_teardown(test_many_requests, forget),
        cmocka_unit_test_teardown(test_binary_values, forget),
        cmocka_unit_test_teardown(test_metadata, forget),
        cmocka_unit_test_teardown(test_other_outputs, forget),
        cmocka_unit_test_teardown(test_answers, forget),
        cmocka_unit_test_teardown(test_plain_answers, forget),
        cmocka_unit_test_teardown(test_wishes, forget),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
