/* Requests that are refused, each with its fault and a text that names the place. */
#include "rig.h"
#include "unit/core/cmocka_all.h"

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

#define INPUT(name, type, shape, data)                                                                       \
    "{\"name\":\"" name "\",\"datatype\":\"" type "\",\"shape\":" shape ",\"data\":" data "}"
#define F            INPUT("f", "FP64", "[2]", "[1,2]")
#define WITH(inputs) "{\"inputs\":[" F "," inputs "]}"
#define ONLY(inputs) "{\"inputs\":[" inputs "]}"
#define LONG_NAME                                                                                            \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

struct bad {
    const char *request;
    enum infer_fault fault;
    const char *text; /* a part of what is said */
};

/* --- As JSON --- */

static const struct bad bad[] = {
    /* names */
    {WITH(INPUT("flagg", "BOOL", "[2]", "[true,true]")), INFER_BAD_REQUEST,
     "the model `all` has no input `flagg`; did you mean `flag`?"},
    {WITH(INPUT("zzzzzzzz", "BOOL", "[2]", "[true,true]")), INFER_BAD_REQUEST, "no input `zzzzzzzz`"},
    {WITH(INPUT("", "BOOL", "[2]", "[true,true]")), INFER_BAD_REQUEST, "no input ``"},
    {WITH(INPUT("n.lengths", "INT64", "[2]", "[1,1]")), INFER_BAD_REQUEST, "no input `n.lengths`"},
    {WITH(INPUT("n.Valid", "INT64", "[2]", "[1,1]")), INFER_BAD_REQUEST, "no input `n.Valid`"},
    {WITH(INPUT(LONG_NAME, "BOOL", "[2]", "[true,true]")), INFER_BAD_REQUEST, "aaaa...`"},
    {WITH(F), INFER_BAD_REQUEST, "the input `f` is given twice"},
    {WITH(INPUT("li.lengths", "INT64", "[2]", "[0,0]") "," INPUT("li.lengths", "INT64", "[2]", "[0,0]")),
     INFER_BAD_REQUEST, "the input `li.lengths` is given twice"},
    {ONLY(""), INFER_BAD_REQUEST, "no input that says how many rows there are"},
    {ONLY(INPUT("li", "INT64", "[2]", "[1,2]")), INFER_BAD_REQUEST,
     "no input that says how many rows there are"},
    /* what is missing */
    {ONLY(INPUT("n", "INT64", "[1]", "[1]")), INFER_BAD_REQUEST,
     "the input `f` is missing, and the model needs it"},
    {WITH(INPUT("n.valid", "BOOL", "[2]", "[true,true]")), INFER_BAD_REQUEST,
     "the input `n.valid` is given, but not `n`"},
    {WITH(INPUT("li.lengths", "INT64", "[2]", "[0,0]")), INFER_BAD_REQUEST,
     "the input `li.lengths` is given, but not `li`"},
    {WITH(INPUT("li", "INT64", "[2]", "[1,2]")), INFER_BAD_REQUEST, "send `li.lengths`"},
    /* nulls */
    {ONLY(INPUT("f", "FP64", "[3]", "[1,null,2]")), INFER_BAD_REQUEST,
     "the input `f`, row 1: null, and the model needs a value"},
    {WITH(INPUT("f.valid", "BOOL", "[2]", "[true,false]")), INFER_BAD_REQUEST, "the input `f`, row 1: null"},
    {WITH(INPUT("f.valid", "BOOL", "[1]", "[false]")), INFER_BAD_REQUEST, "the input `f`, row 0: null"},
    {WITH(INPUT("n", "INT64", "[2]", "[1,2]") "," INPUT("n.valid", "BOOL", "[2]", "[true,null]")),
     INFER_BAD_REQUEST, "the input `n.valid`, row 1: null, where true or false was expected"},
    {WITH(INPUT("li", "INT64", "[2]", "[1,2]") "," INPUT("li.lengths", "INT64", "[2]", "[null,2]")),
     INFER_BAD_REQUEST, "the input `li.lengths`, row 0: null, where a length was expected"},
    /* types */
    {WITH(INPUT("n", "FP64", "[2]", "[1,2]")), INFER_BAD_REQUEST,
     "the input `n` is FP64, but the column is an int: send INT64"},
    {WITH(INPUT("n", "BOOL", "[2]", "[true,true]")), INFER_BAD_REQUEST, "is BOOL, but the column is an int"},
    {WITH(INPUT("n", "BYTES", "[2]", "[\"1\",\"2\"]")), INFER_BAD_REQUEST,
     "is BYTES, but the column is an int"},
    {WITH(INPUT("flag", "INT8", "[2]", "[1,0]")), INFER_BAD_REQUEST,
     "is INT8, but the column is a bool: send BOOL"},
    {ONLY(INPUT("f", "BYTES", "[1]", "[\"1\"]")), INFER_BAD_REQUEST,
     "but the column is a float: send FP64 or FP32"},
    {ONLY(INPUT("f", "BOOL", "[1]", "[true]")), INFER_BAD_REQUEST, "is BOOL, but the column is a float"},
    {WITH(INPUT("s", "INT64", "[2]", "[1,2]")), INFER_BAD_REQUEST, "but the column is a text: send BYTES"},
    {WITH(INPUT("raw", "UINT8", "[2]", "[1,2]")), INFER_BAD_REQUEST, "but the column is bytes: send BYTES"},
    {WITH(INPUT("ts", "BYTES", "[2]", "[\"1\",\"2\"]")), INFER_BAD_REQUEST,
     "a time, written as a number: send INT64"},
    {WITH(INPUT("ts", "FP64", "[2]", "[1,2]")), INFER_BAD_REQUEST, "a time, written as a number: send INT64"},
    {WITH(INPUT("day", "INT64", "[2]", "[1,2]")), INFER_BAD_REQUEST, "a time, written as text like"},
    {WITH(INPUT("li", "FP64", "[2]", "[1,2]") "," INPUT("li.lengths", "INT64", "[2]", "[1,1]")),
     INFER_BAD_REQUEST, "but the column is a list of ints"},
    {WITH(INPUT("ld", "BYTES", "[2]", "[\"1\",\"2\"]") "," INPUT("ld.lengths", "INT64", "[2]", "[1,1]")),
     INFER_BAD_REQUEST, "a list of times, written as numbers"},
    {WITH(INPUT("n", "INT64", "[2]", "[1,2]") "," INPUT("n.valid", "UINT8", "[2]", "[1,1]")),
     INFER_BAD_REQUEST, "the input `n.valid` is UINT8; it says which values are there: send BOOL"},
    {WITH(INPUT("li", "INT64", "[2]", "[1,2]") "," INPUT("li.lengths", "FP32", "[2]", "[1,1]")),
     INFER_BAD_REQUEST, "the input `li.lengths` is FP32; it has the lengths of lists"},
    {WITH(INPUT("recs", "INT64", "[2]", "[1,2]")), INFER_NOT_SUPPORTED,
     "a list of records, which no tensor holds"},
    {WITH(INPUT("deep", "INT64", "[2]", "[1,2]")), INFER_NOT_SUPPORTED,
     "a list of lists, which no tensor holds"},
    /* shapes */
    {WITH(INPUT("n", "INT64", "[3]", "[1,2,3]")), INFER_BAD_REQUEST,
     "the input `n` has 3 rows, but `f` has 2"},
    {WITH(INPUT("n", "INT64", "[2]", "[1,2]") "," INPUT("n.valid", "BOOL", "[3]", "[true,true,true]")),
     INFER_BAD_REQUEST, "the input `n.valid` has 3 rows, but `f` has 2"},
    {WITH(INPUT("li", "INT64", "[3]", "[1,2,3]") "," INPUT("li.lengths", "INT64", "[3]", "[1,1,1]")),
     INFER_BAD_REQUEST, "the input `li.lengths` has 3 rows, but `f` has 2"},
    {WITH(INPUT("n", "INT64", "[0]", "[]")), INFER_BAD_REQUEST,
     "the input `n` has no rows: its shape is [0]"},
    {WITH(INPUT("n", "INT64", "[]", "[1]")), INFER_BAD_REQUEST, "the shape []; a column takes [n]"},
    {WITH(INPUT("n", "INT64", "[1,2]", "[1,2]")), INFER_BAD_REQUEST,
     "the shape [1,2]; a column takes [n], [n,1]"},
    {WITH(INPUT("n", "INT64", "[2,1,1]", "[1,2]")), INFER_BAD_REQUEST, "the shape [2,1,1]; a column takes"},
    /* values */
    {WITH(INPUT("n", "UINT64", "[2]", "[1,9223372036854775808]")), INFER_BAD_REQUEST,
     "the input `n`, row 1: 9223372036854775808 is out of range: the largest int is 9223372036854775807"},
    {WITH(INPUT("ts", "UINT64", "[2]", "[1,18446744073709551615]")), INFER_BAD_REQUEST,
     "the input `ts`, row 1: 18446744073709551615 is out of range"},
    {ONLY(INPUT("f", "INT64", "[1]", "[9007199254740993]")), INFER_BAD_REQUEST,
     "the input `f`, row 0: 9007199254740993 is out of range: whole numbers beyond 2^53"},
    {ONLY(INPUT("f", "INT64", "[1]", "[-9007199254740993]")), INFER_BAD_REQUEST, "beyond 2^53"},
    {ONLY(INPUT("f", "UINT64", "[1]", "[18446744073709551615]")), INFER_BAD_REQUEST, "is out of range"},
    {WITH(INPUT("sec", "INT64", "[2]", "[1,9223372036854775807]")), INFER_BAD_REQUEST,
     "the input `sec`, row 1: 9223372036854775807 is out of range for a time"},
    {WITH(INPUT("day", "BYTES", "[2]", "[\"2020-01-01\",\"2020-13-01\"]")), INFER_BAD_REQUEST,
     "the input `day`, row 1: `2020-13-01` is not a time like"},
    {WITH(INPUT("raw", "BYTES", "[2]", "[\"AP8=\",\"A\"]")), INFER_BAD_REQUEST,
     "the input `raw`, row 1: the bytes are not base64"},
    {WITH(INPUT("raw", "BYTES", "[1]", "[\"A\"]")), INFER_BAD_REQUEST,
     "the input `raw`: the bytes are not base64"},
    {WITH(INPUT("ts", "INT64", "[2]", "[0,3601001]")), INFER_BAD_REQUEST,
     "the input `ts`, row 1: the event time lies further in the future than the source's `max_jump` allows"},
    {WITH(INPUT("ts", "INT64", "[1]", "[3601001]")), INFER_BAD_REQUEST,
     "the input `ts`: the event time lies further"},
    /* lists */
    {WITH(INPUT("li", "INT64", "[3]", "[1,2,3]") "," INPUT("li.lengths", "INT64", "[2]", "[1,1]")),
     INFER_BAD_REQUEST, "the input `li` has 3 elements, but `li.lengths` adds up to 2"},
    {WITH(INPUT("li", "INT64", "[3]", "[1,2,3]") "," INPUT("li.lengths", "INT64", "[2]", "[2,2]")),
     INFER_BAD_REQUEST, "the input `li.lengths`, row 1: the lengths exceed the 3 elements of `li`"},
    {WITH(INPUT("li", "INT64", "[3]", "[1,2,3]") "," INPUT("li.lengths", "INT64", "[2]", "[4,-1]")),
     INFER_BAD_REQUEST, "the lengths exceed"},
    {WITH(INPUT("li", "INT64", "[3]", "[1,2,3]") "," INPUT("li.lengths", "INT64", "[2]", "[-1,4]")),
     INFER_BAD_REQUEST, "the input `li.lengths`, row 0: the length is not from 0 to 16384"},
    {WITH(INPUT("li", "INT64", "[1]", "[1]") "," INPUT("li.lengths", "UINT64", "[2]",
                                                       "[1,18446744073709551615]")),
     INFER_BAD_REQUEST, "the input `li.lengths`, row 1: the length is not from 0 to 16384"},
    {WITH(INPUT("lr", "BYTES", "[2]", "[\"\",\"?\"]") "," INPUT("lr.lengths", "INT64", "[2]", "[0,2]")),
     INFER_BAD_REQUEST, "the input `lr`, row 1, element 1: the bytes are not base64"},
    {WITH(INPUT("li", "UINT64", "[2]", "[1,9223372036854775808]") "," INPUT("li.lengths", "INT64", "[2]",
                                                                            "[1,1]")),
     INFER_BAD_REQUEST, "the input `li`, row 1, element 0: 9223372036854775808 is out of range"},
    /* outputs */
    {"{\"inputs\":[" F "],\"outputs\":[{\"name\":\"twize\"}]}", INFER_BAD_REQUEST,
     "the model `all` has no output `twize`; did you mean `twice`?"},
    {"{\"inputs\":[" F "],\"outputs\":[{\"name\":\"extra\"}]}", INFER_BAD_REQUEST, "no output `extra`"},
    {"{\"inputs\":[" F "],\"outputs\":[{\"name\":\"_status\"},{\"name\":\"_status\"}]}", INFER_BAD_REQUEST,
     "the output `_status` is asked for twice"},
    {"{\"inputs\":[" F "],\"outputs\":[{\"name\":\"n\"},{\"name\":\"n\"}]}", INFER_BAD_REQUEST,
     "the output `n` is asked for twice"},
    {"{\"inputs\":[" F "],\"outputs\":[{\"name\":\"n.lengths\"}]}", INFER_BAD_REQUEST,
     "no output `n.lengths`"},
    {"{\"inputs\":[" F "],\"outputs\":[{\"name\":\"recs\"}]}", INFER_NOT_SUPPORTED,
     "the output `recs` is a list of records, which no tensor holds: ask for its fields, such as `recs.a`"},
};

static void assert_refused(struct rig *rig, const struct infer_model *model, const struct bad *bad_case)
{
    struct infer_request request;
    struct infer_problem problem;
    uint32_t rows;
    if (rig_read(rig, model, bad_case->request, &request, &rows, &problem))
        fail_msg("accepted: %s", bad_case->request);
    if (problem.fault != bad_case->fault || strstr(problem.text, bad_case->text) == NULL)
        fail_msg("%s\n  expected: %s\n  said: %d, %s", bad_case->request, bad_case->text, problem.fault,
                 problem.text);
    arena_reset(&rig->call);
}

static void test_bad_requests(void **state)
{
    struct rig *rig = *state;
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        assert_refused(rig, rig->model, &bad[i]);
}

static void test_other_models(void **state)
{
    struct rig *rig = *state;
    struct infer_model *nested = infer_model_new(rig->plan, rig_serve(rig, "nested"));
    assert_refused(
        rig, nested,
        &(struct bad){ONLY(INPUT("n", "INT64", "[1]", "[1]")), INFER_NOT_SUPPORTED,
                      "the model needs the column `recs`, a list of records, which no tensor holds"});
    infer_model_free(nested);
    struct infer_model *timeless = infer_model_new(rig->plan, rig_serve(rig, "timeless"));
    assert_refused(rig, timeless,
                   &(struct bad){ONLY(INPUT("a", "INT64", "[1]", "[1]")), INFER_BAD_REQUEST,
                                 "the input `b` is missing, and the model needs it"});
    infer_model_free(timeless);
}

/* --- As tensors: what no JSON says --- */

static const double numbers[4] = {1, 2, 3, 4};
static const int64_t wholes[4] = {1, 2, 3, 4};
static const struct str bad_utf8[2] = {{"good", 4}, {"\xc3(", 2}};
static const uint8_t two[2] = {1, 2};

#define TENSOR(n, t, ...)                                                                                    \
    {                                                                                                        \
        .name = {n, sizeof(n) - 1}, .type = t, __VA_ARGS__                                                   \
    }

static const struct {
    struct infer_tensor tensor;
    enum infer_fault fault;
    const char *text;
} bad_tensors[] = {
    {TENSOR("n", INFER_INT64, .rank = 2, .shape = {0, -1}, .count = 0, .values = wholes), INFER_BAD_REQUEST,
     "the shape [0,-1]: at most 4 sizes, from 0 on"},
    {TENSOR("n", INFER_INT64, .rank = 1, .shape = {-2}, .count = 2, .values = wholes), INFER_BAD_REQUEST,
     "the input `n` has the shape [-2]: at most 4 sizes, from 0 on"},
    {TENSOR("n", INFER_INT64, .rank = 2, .shape = {-2, -1}, .count = 2, .values = wholes), INFER_BAD_REQUEST,
     "the input `n` has the shape [-2,-1]"},
    {TENSOR("n", INFER_INT64, .rank = 4, .shape = {1L << 32, 1L << 32, 1L << 32, 4}, .count = 0,
            .values = wholes),
     INFER_BAD_REQUEST, "whose product fits 63 bits"},
    {TENSOR("n", INFER_INT64, .rank = 2, .shape = {1L << 62, 2}, .count = 1UL << 63, .values = wholes),
     INFER_BAD_REQUEST, "whose product fits 63 bits"},
    {TENSOR("n", INFER_INT64, .rank = 5, .shape = {2, 1, 1, 1}, .count = 2, .values = wholes),
     INFER_BAD_REQUEST, "the shape [2,1,1,1,...]: at most 4 sizes"},
    {TENSOR("n", INFER_INT64, .rank = 1, .shape = {3}, .count = 2, .values = wholes), INFER_BAD_REQUEST,
     "the shape [3], which has 3 elements, but 2 are there"},
    {TENSOR("n", INFER_INT64, .rank = 0, .count = 1, .values = wholes), INFER_BAD_REQUEST, "the shape []"},
    {TENSOR("n", INFER_NO_TYPE, .rank = 1, .shape = {2}, .count = 2, .values = wholes), INFER_NOT_SUPPORTED,
     "the input `n` has a data type that leat does not take"},
    {TENSOR("s", INFER_BYTES, .rank = 1, .shape = {2}, .count = 2, .texts = bad_utf8), INFER_BAD_REQUEST,
     "the input `s`, row 1: the text is not valid UTF-8"},
    {TENSOR("flag", INFER_BOOL, .rank = 1, .shape = {2}, .count = 2, .values = two), INFER_BAD_REQUEST,
     "the input `flag`, row 1: a BOOL is one byte, 0 or 1"},
    {TENSOR("f.valid", INFER_BOOL, .rank = 1, .shape = {2}, .count = 2, .values = two), INFER_BAD_REQUEST,
     "the input `f.valid`, row 1: a BOOL is one byte, 0 or 1"},
    {TENSOR("\xff\n", INFER_BOOL, .rank = 1, .shape = {2}, .count = 2, .values = two), INFER_BAD_REQUEST,
     "no input `??`"},
};

static bool check(struct rig *rig, const struct infer_tensor *inputs, uint32_t count,
                  struct infer_problem *problem)
{
    uint32_t rows;
    struct infer_tensor copy[3];
    memcpy(copy, inputs, count * sizeof(*copy));
    struct infer_request request = {.inputs = copy, .inputs_count = count};
    return infer_check(rig->model, &request, RIG_NOW_US, 0, &rows, &rig->call, problem);
}

static void test_bad_tensors(void **state)
{
    struct rig *rig = *state;
    struct infer_problem problem;
    struct infer_tensor inputs[2] = {
        TENSOR("f", INFER_FP64, .rank = 1, .shape = {2}, .count = 2, .values = numbers)};
    assert_true(check(rig, inputs, 1, &problem));
    for (size_t i = 0; i < ARRAY_COUNT(bad_tensors); i++) {
        inputs[1] = bad_tensors[i].tensor;
        if (check(rig, inputs, 2, &problem))
            fail_msg("accepted: %s", bad_tensors[i].text);
        if (problem.fault != bad_tensors[i].fault || strstr(problem.text, bad_tensors[i].text) == NULL)
            fail_msg("expected: %s\n  said: %d, %s", bad_tensors[i].text, problem.fault, problem.text);
        arena_reset(&rig->call);
    }
}

/* What is too large, at the limit and beyond it. */
static void test_sizes(void **state)
{
    struct rig *rig = *state;
    struct infer_problem problem;
    enum { TEXT = SOURCE_RECORD_BYTES_MAX };
    char *text = arena_calloc(&rig->arena, TEXT + 1, 1);
    double *many = arena_array(&rig->arena, double, 1000000);
    struct str *texts = arena_array(&rig->arena, struct str, 1000);
    memset(text, 'x', TEXT + 1);
    struct infer_tensor inputs[3] = {
        TENSOR("f", INFER_FP64, .rank = 1, .shape = {INFER_ROWS_MAX}, .count = INFER_ROWS_MAX,
               .values = many),
        TENSOR("s", INFER_BYTES, .rank = 1, .shape = {1}, .count = 1, .texts = texts),
    };
    assert_true(check(rig, inputs, 1, &problem));
    inputs[0].shape[0] = 1000000;
    inputs[0].count = 1000000;
    assert_false(check(rig, inputs, 1, &problem));
    assert_int_equal(problem.fault, INFER_TOO_LARGE);
    assert_string_equal(problem.text, "the input `f` has 1000000 rows; a request has at most 65536");
    /* A text that goes with every row counts for every row. */
    enum { MOST = INFER_SPREAD_BYTES_MAX / TEXT };
    inputs[0].shape[0] = MOST;
    inputs[0].count = MOST;
    texts[0] = (struct str){text, TEXT};
    assert_true(check(rig, inputs, 2, &problem));
    inputs[0].shape[0] = MOST + 1;
    inputs[0].count = MOST + 1;
    assert_false(check(rig, inputs, 2, &problem));
    assert_int_equal(problem.fault, INFER_TOO_LARGE);
    texts[0] = (struct str){text, TEXT + 1};
    inputs[0].shape[0] = 1;
    inputs[0].count = 1;
    assert_false(check(rig, inputs, 2, &problem));
    assert_non_null(strstr(problem.text, "the input `s`, row 0: 1048577 bytes; a value has at most 1048576"));
    /* A list of texts, of which each is good, in one row. */
    for (int i = 0; i < 3; i++)
        texts[i] = (struct str){text, TEXT / 2};
    inputs[1] =
        (struct infer_tensor)TENSOR("lt", INFER_BYTES, .rank = 1, .shape = {2}, .count = 2, .texts = texts);
    int64_t length = 2;
    inputs[2] = (struct infer_tensor)TENSOR("lt.lengths", INFER_INT64, .rank = 1, .shape = {1}, .count = 1,
                                            .values = &length);
    assert_true(check(rig, inputs, 3, &problem));
    inputs[1].shape[0] = length = 3;
    inputs[1].count = 3;
    assert_false(check(rig, inputs, 3, &problem));
    assert_int_equal(problem.fault, INFER_TOO_LARGE);
    assert_non_null(strstr(problem.text, "the input `lt`, row 0: the list has more than 1048576 bytes"));
    /* A list for every row. */
    inputs[0].shape[0] = 65;
    inputs[0].count = 65;
    inputs[1] = (struct infer_tensor)TENSOR("lf", INFER_FP64, .rank = 1, .shape = {16384}, .count = 16384,
                                            .values = many);
    inputs[2].name = STR("lf.lengths");
    length = 16384;
    assert_false(check(rig, inputs, 3, &problem));
    assert_int_equal(problem.fault, INFER_TOO_LARGE);
    inputs[0].shape[0] = 64;
    inputs[0].count = 64;
    assert_true(check(rig, inputs, 3, &problem));
    inputs[1].shape[0] = length = 16385;
    inputs[1].count = 16385;
    assert_false(check(rig, inputs, 3, &problem));
}

static void test_too_many_tensors(void **state)
{
    struct rig *rig = *state;
    struct infer_problem problem;
    uint32_t rows;
    struct infer_request request = {.inputs = arena_array(&rig->call, struct infer_tensor, 2000),
                                    .inputs_count = INFER_TENSORS_MAX + 1};
    assert_false(infer_check(rig->model, &request, RIG_NOW_US, 0, &rows, &rig->call, &problem));
    assert_int_equal(problem.fault, INFER_TOO_LARGE);
    request.inputs[0] =
        (struct infer_tensor)TENSOR("f", INFER_FP64, .rank = 1, .shape = {1}, .count = 1, .values = numbers);
    request.inputs_count = 1;
    request.wishes = arena_array(&rig->call, struct infer_wish, 2000);
    request.wishes_count = INFER_TENSORS_MAX + 1;
    assert_false(infer_check(rig->model, &request, RIG_NOW_US, 0, &rows, &rig->call, &problem));
    assert_int_equal(problem.fault, INFER_TOO_LARGE);
}

/* The newest event time known allows what the clock alone would not. */
static void test_newest(void **state)
{
    struct rig *rig = *state;
    struct infer_problem problem;
    uint32_t rows;
    int64_t far = 7200000;
    struct infer_tensor inputs[] = {
        TENSOR("f", INFER_FP64, .rank = 1, .shape = {1}, .count = 1, .values = numbers),
        TENSOR("ts", INFER_INT64, .rank = 1, .shape = {1}, .count = 1, .values = &far),
    };
    struct infer_request request = {.inputs = inputs, .inputs_count = 2};
    assert_false(infer_check(rig->model, &request, RIG_NOW_US, 0, &rows, &rig->call, &problem));
    assert_false(
        infer_check(rig->model, &request, RIG_NOW_US, INT64_C(3599999999), &rows, &rig->call, &problem));
    assert_true(
        infer_check(rig->model, &request, RIG_NOW_US, INT64_C(3600000000), &rows, &rig->call, &problem));
    assert_true(infer_check(rig->model, &request, TIME_MAX, 0, &rows, &rig->call, &problem));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_requests),     cmocka_unit_test(test_other_models),
        cmocka_unit_test(test_bad_tensors),      cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_too_many_tensors), cmocka_unit_test(test_newest),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
