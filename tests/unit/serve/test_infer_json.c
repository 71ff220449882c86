/* The wire form of requests and answers over HTTP: what is read, what is refused, and that what is written
 * is read again. */
#include "rig.h"
#include "unit/core/cmocka_all.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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

/* Reads a body in memory of exactly its size. json_bytes: SIZE_MAX: the whole body. */
static bool read_body(struct rig *rig, struct str body, size_t json_bytes, struct infer_request *request,
                      struct infer_problem *problem)
{
    char *copy = arena_alloc(&rig->call, body.length);
    if (body.length > 0)
        memcpy(copy, body.data, body.length);
    return infer_json_read((struct str){copy, body.length}, json_bytes == SIZE_MAX ? body.length : json_bytes,
                           request, &rig->call, problem);
}

static bool read_text(struct rig *rig, const char *json, struct infer_request *request,
                      struct infer_problem *problem)
{
    return read_body(rig, str_from(json), SIZE_MAX, request, problem);
}

/* --- What is read --- */

static const char whole[] =
    " {\"id\" : \"q\\u00e41\", \"unknown\":{\"a\":[1,{\"b\":null}]},\n"
    "\"inputs\":[{\"data\":[[1,2],[3,18446744073709551615]],\"name\":\"a\",\"extra\":[[]],\"shape\":[2,2],"
    "\"datatype\":\"UINT64\"},"
    "{\"name\":\"b\\\"c\",\"shape\":[3],\"datatype\":\"BYTES\",\"data\":[\"x\",\"\\ud83d\\ude00\",null],"
    "\"parameters\":{\"content_type\":\"str\"}},"
    "{\"name\":\"e\",\"shape\":[0],\"datatype\":\"FP32\",\"data\":[]},"
    "{\"name\":\"t\",\"shape\":[2],\"datatype\":\"BOOL\",\"data\":[false,true]}],"
    "\"outputs\":[{\"name\":\"o\",\"parameters\":{\"binary_data\":true,\"x\":1}},{\"name\":\"p\"},"
    "{\"name\":\"q\",\"parameters\":{\"binary_data\":false}}],"
    "\"parameters\":{\"binary_data_output\":true,\"timeout\":\"2500\",\"priority\":0}} \r\n\t";

static void test_whole_request(void **state)
{
    struct rig *rig = *state;
    struct infer_request r;
    struct infer_problem problem;
    if (!read_text(rig, whole, &r, &problem))
        fail_msg("%s", problem.text);
    assert_int_equal(problem.fault, INFER_GOOD);
    assert_true(str_is(r.id, "q\xc3\xa4"
                             "1"));
    assert_true(r.model.length == 0 && r.version.length == 0);
    assert_int_equal(r.timeout_us, 2500);
    assert_true(r.all_binary);
    assert_int_equal(r.inputs_count, 4);
    const struct infer_tensor *a = &r.inputs[0], *b = &r.inputs[1];
    assert_true(str_is(a->name, "a") && a->type == INFER_UINT64 && a->rank == 2 && a->shape[1] == 2 &&
                a->count == 4);
    uint64_t last;
    memcpy(&last, (const char *)a->values + 24, sizeof(last));
    assert_true(last == UINT64_MAX && a->nulls == NULL && a->is_json);
    assert_true(str_is(b->name, "b\"c") && b->count == 3 && str_is(b->texts[0], "x"));
    assert_true(str_is(b->texts[1], "\xf0\x9f\x98\x80") && b->nulls[0] == 4);
    assert_int_equal(r.inputs[2].count, 0);
    assert_memory_equal(r.inputs[3].values, "\0\1", 2);
    assert_int_equal(r.wishes_count, 3);
    assert_true(str_is(r.wishes[0].name, "o") && r.wishes[0].is_binary);
    assert_true(str_is(r.wishes[1].name, "p") && r.wishes[1].is_binary);
    assert_true(str_is(r.wishes[2].name, "q") && !r.wishes[2].is_binary);
}

#define INPUT(rest)        "{\"inputs\":[{\"name\":\"x\"," rest "}]}"
#define ONE(type, element) INPUT("\"datatype\":\"" type "\",\"shape\":[1],\"data\":[" element "]")

static const struct {
    const char *type, *element;
    const void *value;
    size_t bytes;
} values[] = {
    {"INT8", "-128", "\x80", 1},
    {"INT8", "127", "\x7f", 1},
    {"INT16", "-32768", "\0\x80", 2},
    {"INT32", "-2147483648", "\0\0\0\x80", 4},
    {"INT64", "-9223372036854775808", "\0\0\0\0\0\0\0\x80", 8},
    {"INT64", "9007199254740993", "\1\0\0\0\0\0\x20\0", 8},
    {"UINT8", "255", "\xff", 1},
    {"UINT16", "65535", "\xff\xff", 2},
    {"UINT32", "4294967295", "\xff\xff\xff\xff", 4},
    {"UINT64", "18446744073709551615", "\xff\xff\xff\xff\xff\xff\xff\xff", 8},
    {"UINT64", "-0", "\0\0\0\0\0\0\0\0", 8},
    {"FP32", "0.1", "\xcd\xcc\xcc\x3d", 4},
    {"FP64", "0.1", "\x9a\x99\x99\x99\x99\x99\xb9\x3f", 8},
    {"FP64", "-0", "\0\0\0\0\0\0\0\x80", 8},
    {"FP64", "1e0", "\0\0\0\0\0\0\xf0\x3f", 8},
    {"BOOL", "true", "\1", 1},
};

static void test_values(void **state)
{
    struct rig *rig = *state;
    for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
        struct infer_request request;
        struct infer_problem problem;
        char text[256];
        snprintf(text, sizeof(text), ONE("%s", "%s"), values[i].type, values[i].element);
        if (!read_text(rig, text, &request, &problem))
            fail_msg("%s: %s", text, problem.text);
        assert_memory_equal(request.inputs[0].values, values[i].value, values[i].bytes);
    }
}

static void test_good_forms(void **state)
{
    struct rig *rig = *state;
    static const char *const good[] = {
        "{\"inputs\":[]}",
        "{\"id\":null,\"outputs\":null,\"parameters\":null,\"inputs\":[]}",
        INPUT("\"datatype\":\"INT8\",\"shape\":[2,1],\"data\":[1,2]"),
        INPUT("\"datatype\":\"INT8\",\"shape\":[2,1],\"data\":[[1],[2]]"),
        INPUT("\"datatype\":\"INT8\",\"shape\":[2,1,2],\"data\":[[[1,2]],[[3,4]]]"),
        INPUT("\"datatype\":\"INT8\",\"shape\":[],\"data\":[1]"),
        INPUT("\"datatype\":\"INT8\",\"shape\":[1,0],\"data\":[[]]"),
        INPUT("\"datatype\":\"INT8\",\"shape\":[1],\"data\":[1],\"parameters\":null"),
        "{\"inputs\":[],\"parameters\":{\"timeout\":5}}",
        "{\"inputs\":[],\"parameters\":{\"timeout\":null,\"binary_data_output\":false}}",
    };
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        struct infer_request request;
        struct infer_problem problem;
        if (!read_text(rig, good[i], &request, &problem))
            fail_msg("%s: %s", good[i], problem.text);
    }
}

/* --- What is refused --- */

static const struct {
    const char *json, *text;
    enum infer_fault fault; /* 0: INFER_BAD_REQUEST */
} bad[] = {
    {"", "not valid JSON at byte 0: a request is an object: `{` was expected", 0},
    {"[]", "a request is an object", 0},
    {"{}", "the request has no `inputs`", 0},
    {"{\"inputs\":null}", "a list of inputs was expected", 0},
    {"{\"inputs\":{}}", "a list of inputs was expected", 0},
    {"{\"inputs\":[]}x", "at byte 13: something follows the request", 0},
    {"{\"inputs\":[],}", "a name in quotes was expected", 0},
    {"{\"inputs\":[] \"id\":\"\"}", "`,` or `}` was expected", 0},
    {"{\"inputs\":[,]}", "an input, an object, was expected", 0},
    {"{\"inputs\":[1]}", "an input, an object, was expected", 0},
    {"{\"inputs\" []}", "`:` was expected", 0},
    {"{\"inputs\":[],\"inputs\":[]}", "the member `inputs` is given twice in one object, at byte 13", 0},
    {"{\"in\\u0070uts\":[],\"inputs\":[]}", "the member `inputs` is given twice", 0},
    {"{\"inputs\":[],\"id\":1}", "a text was expected", 0},
    {"{\"inputs\":[],\"id\":\"\xff\"}", "not valid UTF-8", 0},
    {"{\"inputs\":[],\"id\":\"\\ud800\"}", "a high surrogate without a low one", 0},
    {"{\"inputs\":[],\"x\":tru}", "something that is not a JSON value", 0},
    {"{\"inputs\":[],\"x\":[1 2]}", "`,` or `]` was expected", 0},
    {"{\"inputs\":[],\"x\":\"a\nb\"}", "a control character in a text", 0},
    {"{\"inputs\":[],\"parameters\":{\"timeout\":1.5}}", "`timeout`, in microseconds, is not a whole number",
     0},
    {"{\"inputs\":[],\"parameters\":{\"timeout\":\"x\"}}",
     "`timeout`, in microseconds, is not a whole number", 0},
    {"{\"inputs\":[],\"parameters\":{\"timeout\":\"5 \"}}",
     "`timeout`, in microseconds, is not a whole number", 0},
    {"{\"inputs\":[],\"parameters\":{\"timeout\":-1}}", "`timeout`, in microseconds, is negative", 0},
    {"{\"inputs\":[],\"parameters\":{\"timeout\":1,\"timeout\":1}}", "the member `timeout` is given twice",
     0},
    {"{\"inputs\":[],\"parameters\":{\"binary_data_output\":1}}", "true or false was expected", 0},
    {"{\"inputs\":[],\"parameters\":[]}", "an object of parameters was expected", 0},
    {"{\"inputs\":[],\"outputs\":[{}]}", "output 0 has no `name`", 0},
    {"{\"inputs\":[],\"outputs\":[{\"name\":\"a\",\"name\":\"b\"}]}", "the member `name` is given twice", 0},
    {"{\"inputs\":[],\"outputs\":[{\"name\":\"a\",\"parameters\":{\"classification\":3}}]}",
     "the parameter `classification`, which leat does not have", INFER_NOT_SUPPORTED},
    {INPUT("\"shape\":[1],\"data\":[1]"), "the input `x` has no `datatype`", 0},
    {INPUT("\"datatype\":\"INT8\",\"data\":[1]"), "the input `x` has no `shape`", 0},
    {"{\"inputs\":[{\"datatype\":\"INT8\",\"shape\":[1],\"data\":[1]}]}", "input 0 has no `name`", 0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[1]"), "has neither `data` nor the parameter `binary_data_size`",
     0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[1],\"data\":[1],\"data\":[1]"),
     "the member `data` is given twice", 0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[1],\"shape\":[1],\"data\":[1]"),
     "the member `shape` is given twice", 0},
    {INPUT("\"name\":\"y\""), "the member `name` is given twice", 0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[1],\"data\":[1],\"parameters\":{\"binary_data_size\":1}"),
     "the input `x` has `data`, and `binary_data_size` as well", 0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[1],\"parameters\":{\"binary_data_size\":-1}"),
     "`binary_data_size` is negative", 0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[1],\"parameters\":{\"shared_memory_region\":\"r\"}"),
     "leat reads no shared memory", INFER_NOT_SUPPORTED},
    {ONE("FP16", "1"), "the input `x`: the datatype `FP16` is not one that leat takes", INFER_NOT_SUPPORTED},
    {ONE("int8", "1"), "the datatype `int8` is not one that leat takes", 0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[-1],\"data\":[1]"), "the sizes in `shape` are negative", 0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[4294967296,4294967296],\"data\":[1]"), "does not fit 63 bits",
     0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[1,1,1,1,1],\"data\":[1]"), "`shape` has more than 4 sizes", 0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[1.0],\"data\":[1]"), "a size in `shape` is not a whole number",
     0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[99999999999999999999],\"data\":[1]"), "a size in `shape` is not",
     0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":1,\"data\":[1]"), "a list of sizes was expected", 0},
    {INPUT("\"datatype\":\"BYTES\",\"shape\":[1000000000000],\"data\":[]"),
     "`shape` has 1000000000000 elements, more than the whole request could hold", 0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[2],\"data\":[1]"), "`data` has 1 elements, but `shape` has 2",
     0},
    {INPUT("\"data\":[1],\"datatype\":\"INT8\",\"shape\":[2]"), "`data` has 1 elements, but `shape` has 2",
     0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[1],\"data\":[1,2]"),
     "`data` has more elements than the 1 of `shape`", 0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[1],\"data\":1"), "a list was expected", 0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[2],\"data\":[[1,2]]"), "nested deeper than `shape` says", 0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[2,2],\"data\":[[1,2],3,4]"), "`data` are nested unevenly", 0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[2,2],\"data\":[[1],[2,3,4]]"), "not nested as `shape` says", 0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[1,1],\"data\":[[],1]"), "not nested as `shape` says", 0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[1,1],\"data\":[1,[]]"), "not nested as `shape` says", 0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[2,2],\"data\":[[1,2,3,4]]"), "not nested as `shape` says", 0},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[2,2,1],\"data\":[[1,2],[3,4]]"), "not nested as `shape` says",
     0},
    {ONE("INT8", "128"), "the input `x`, element 0: the number is out of range for INT8", 0},
    {ONE("INT8", "-129"), "out of range for INT8", 0},
    {ONE("UINT8", "-1"), "out of range for UINT8", 0},
    {ONE("UINT8", "256"), "out of range for UINT8", 0},
    {ONE("INT64", "9223372036854775808"), "out of range for INT64", 0},
    {ONE("INT64", "-9223372036854775809"), "out of range for INT64", 0},
    {ONE("UINT64", "18446744073709551616"), "out of range for UINT64", 0},
    {ONE("INT64", "1.0"), "element 0: not a whole number: write 1, not 1.0", 0},
    {ONE("INT64", "1e3"), "not a whole number", 0},
    {ONE("INT64", "\\\"1\\\""), "a number was expected", 0},
    {ONE("INT64", "true"), "a number was expected", 0},
    {ONE("INT64", "01"), "a number was expected", 0},
    {ONE("FP64", "NaN"), "a number was expected", 0},
    {ONE("FP64", "1e999"), "the number is out of range", 0},
    {ONE("FP32", "1e39"), "the number is out of range", 0},
    {ONE("FP64", "\"1\""), "element 0: a number was expected", 0},
    {ONE("BOOL", "1"), "element 0: true or false was expected", 0},
    {ONE("BYTES", "1"), "element 0: a text was expected", 0},
    {ONE("BYTES", "\"\\x\""), "an unknown escape", 0},
    {ONE("INT8", "nul"), "a number was expected", 0},
};

static void test_bad_json(void **state)
{
    struct rig *rig = *state;
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct infer_request request;
        struct infer_problem problem;
        if (read_text(rig, bad[i].json, &request, &problem))
            fail_msg("accepted: %s", bad[i].json);
        enum infer_fault fault = bad[i].fault == 0 ? INFER_BAD_REQUEST : bad[i].fault;
        if (problem.fault != fault || strstr(problem.text, bad[i].text) == NULL)
            fail_msg("%s\n  expected: %s\n  said: %d, %s", bad[i].json, bad[i].text, problem.fault,
                     problem.text);
        arena_reset(&rig->call);
    }
}

static void test_depth_and_counts(void **state)
{
    struct rig *rig = *state;
    struct infer_request request;
    struct infer_problem problem;
    struct byte_buffer text = {0};
    for (int depth = 1000; depth <= 1001; depth++) {
        buffer_clear(&text);
        buffer_printf(&text, "{\"inputs\":[],\"x\":");
        for (int i = 0; i < depth; i++)
            buffer_append(&text, "[", 1);
        for (int i = 0; i < depth; i++)
            buffer_append(&text, "]", 1);
        buffer_append(&text, "}", 1);
        bool is_good = read_body(rig, (struct str){text.data, text.length}, SIZE_MAX, &request, &problem);
        assert_int_equal(is_good, depth == 1000);
    }
    for (int what = 0; what < 2; what++)
        for (int count = INFER_TENSORS_MAX; count <= INFER_TENSORS_MAX + 1; count++) {
            buffer_clear(&text);
            buffer_printf(&text, what == 0 ? "{\"inputs\":[" : "{\"inputs\":[],\"outputs\":[");
            for (int i = 0; i < count; i++)
                buffer_printf(&text, "%s{\"name\":\"n%d\",\"datatype\":\"INT8\",\"shape\":[1],\"data\":[%d]}",
                              i > 0 ? "," : "", i, i % 100);
            buffer_printf(&text, "]}");
            bool is_good = read_body(rig, (struct str){text.data, text.length}, SIZE_MAX, &request, &problem);
            assert_int_equal(is_good, count == INFER_TENSORS_MAX);
            if (!is_good)
                assert_int_equal(problem.fault, INFER_TOO_LARGE);
            else if (what == 0)
                assert_true(str_is(request.inputs[1023].name, "n1023") &&
                            *(const int8_t *)request.inputs[1023].values == 23);
            else
                assert_true(str_is(request.wishes[1023].name, "n1023"));
        }
    buffer_free(&text);
}

/* A request that is cut off is never accepted, wherever it is cut. */
static void test_truncated(void **state)
{
    struct rig *rig = *state;
    size_t end = strlen(whole);
    while (whole[end - 1] != '}')
        end--;
    for (size_t length = 0; length < end; length++) {
        struct infer_request request;
        struct infer_problem problem;
        if (read_body(rig, (struct str){whole, length}, SIZE_MAX, &request, &problem))
            fail_msg("accepted: %.*s", (int)length, whole);
        assert_int_equal(problem.fault, INFER_BAD_REQUEST);
        arena_reset(&rig->call);
    }
}

/* --- Binary data --- */

#define BINARY(type, shape, size)                                                                            \
    INPUT("\"datatype\":\"" type "\",\"shape\":" shape ",\"parameters\":{\"binary_data_size\":" size "}")
#define TWO                                                                                                  \
    "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"INT16\",\"shape\":[2],"                                     \
    "\"parameters\":{\"binary_data_size\":4}},"                                                              \
    "{\"name\":\"y\",\"datatype\":\"BYTES\",\"shape\":[2],"                                                  \
    "\"parameters\":{\"binary_data_size\":11}}]}"

static void test_binary(void **state)
{
    struct rig *rig = *state;
    struct infer_request request;
    struct infer_problem problem;
    static const char body[] = TWO "\1\0\xff\xff\3\0\0\0\0\xff"
                                   "a\0\0\0\0";
    if (!read_body(rig, (struct str){body, sizeof(body) - 1}, strlen(TWO), &request, &problem))
        fail_msg("%s", problem.text);
    const struct infer_tensor *x = &request.inputs[0], *y = &request.inputs[1];
    assert_memory_equal(x->values, "\1\0\xff\xff", 4);
    assert_true(!x->is_json && !y->is_json && y->texts[0].length == 3 && y->texts[1].length == 0);
    assert_memory_equal(y->texts[0].data,
                        "\0\xff"
                        "a",
                        3);
    /* Cut off at any byte, it is refused. */
    for (size_t length = 0; length < sizeof(body) - 1; length++) {
        size_t json_bytes = MIN(length, strlen(TWO));
        assert_false(read_body(rig, (struct str){body, length}, json_bytes, &request, &problem));
    }
}

static const struct {
    const char *json, *data;
    size_t bytes;
    const char *text;
} bad_binary[] = {
    {BINARY("INT32", "[2]", "8"), "1234567", 7,
     "`binary_data_size` is 8, but 7 bytes of binary data are left"},
    {BINARY("INT32", "[2]", "7"), "1234567", 7,
     "`binary_data_size` is 7, but `shape` has 2 elements of 4 bytes"},
    {BINARY("INT32", "[1]", "7"), "1234567", 7,
     "`binary_data_size` is 7, but `shape` has 1 elements of 4 bytes"},
    {BINARY("INT32", "[2]", "4"), "1234", 4, "`shape` has 2 elements of 4 bytes"},
    {BINARY("INT32", "[2]", "12"), "123456789012", 12, "`shape` has 2 elements of 4 bytes"},
    {BINARY("INT32", "[2]", "8"), "123456789", 9, "1 bytes of binary data belong to no input"},
    {"{\"inputs\":[]}", "1", 1, "1 bytes of binary data belong to no input"},
    {BINARY("FP64", "[4611686018427387904]", "0"), "", 0,
     "`shape` has 4611686018427387904 elements of 8 bytes"},
    {BINARY("BYTES", "[4611686018427387904]", "4"), "\0\0\0", 4, "cannot hold 4611686018427387904 elements"},
    {BINARY("BYTES", "[1]", "3"), "\0\0", 3, "cannot hold 1 elements"},
    {BINARY("BYTES", "[1]", "5"), "\2\0\0\0a", 5,
     "element 0: its length is 2, but 1 bytes of binary data are left"},
    {BINARY("BYTES", "[1]", "5"),
     "\xff\xff\xff\xff"
     "a",
     5, "its length is 4294967295, but 1 bytes"},
    {BINARY("BYTES", "[1]", "6"), "\1\0\0\0ab", 6, "1 bytes of binary data are left behind the last element"},
    {BINARY("BYTES", "[2]", "8"), "\1\0\0\0abcd", 8, "element 1: the binary data end before it"},
    {BINARY("INT8", "[1]", "9223372036854775807"), "a", 1, "but 1 bytes of binary data are left"},
    {BINARY("INT8", "[1]", "1.5"), "a", 1, "`binary_data_size` is not a whole number"},
};

static void test_bad_binary(void **state)
{
    struct rig *rig = *state;
    struct infer_request request;
    struct infer_problem problem;
    for (size_t i = 0; i < ARRAY_COUNT(bad_binary); i++) {
        struct byte_buffer body = {0};
        buffer_printf(&body, "%s", bad_binary[i].json);
        buffer_append(&body, bad_binary[i].data, bad_binary[i].bytes);
        if (read_body(rig, (struct str){body.data, body.length}, strlen(bad_binary[i].json), &request,
                      &problem))
            fail_msg("accepted: %s", bad_binary[i].json);
        if (problem.fault != INFER_BAD_REQUEST || strstr(problem.text, bad_binary[i].text) == NULL)
            fail_msg("expected: %s\n  said: %d, %s", bad_binary[i].text, problem.fault, problem.text);
        buffer_free(&body);
    }
    assert_false(read_body(rig, STR("{\"inputs\":[]}"), 14, &request, &problem));
    assert_string_equal(problem.text, "the JSON has 14 bytes by the header, but the body has 13");
}

/* --- Answers --- */

static const struct infer_facts no_facts = {.staleness_ms = -1};

static void test_written(void **state)
{
    struct rig *rig = *state;
    struct byte_buffer out = {0};
    const double floats[] = {0.1, NAN, -INFINITY, 1e300};
    const uint64_t unsigned_values[] = {UINT64_MAX}, nulls = 2;
    const float singles[] = {0.5f};
    const struct str texts[] = {STR("a\"b\n"), STR("")}, raw[] = {{"\0\xff", 2}};
    const struct infer_tensor tensors[] = {
        {.name = STR("f"), .type = INFER_FP64, .rank = 1, .shape = {4}, .count = 4, .values = floats},
        {.name = STR("u"),
         .type = INFER_UINT64,
         .rank = 2,
         .shape = {1, 1},
         .count = 1,
         .values = unsigned_values},
        {.name = STR("s"),
         .type = INFER_BYTES,
         .rank = 1,
         .shape = {2},
         .count = 2,
         .texts = texts,
         .nulls = &nulls},
        {.name = STR("r"),
         .type = INFER_BYTES,
         .rank = 1,
         .shape = {1},
         .count = 1,
         .texts = raw,
         .is_bytes = true},
        {.name = STR("g"), .type = INFER_FP32, .rank = 1, .shape = {1}, .count = 1, .values = singles},
        {.name = STR("b"), .type = INFER_BOOL, .rank = 1, .shape = {2}, .count = 2, .values = "\1"},
    };
    struct infer_request request = {.id = STR("i\"d"), .version = STR("7")};
    struct infer_facts facts = {.cut = "3-17",
                                .features = 70,
                                .staleness_ms = 1500,
                                .counts = {.answered = 9, .late = 1, .filtered = 2, .failed = 3}};
    size_t json_bytes = infer_json_write(rig->model, &request, tensors, 6, &facts, &out);
    assert_int_equal(json_bytes, out.length);
    buffer_append(&out, "", 1);
    assert_string_equal(
        out.data,
        "{\"model_name\":\"all\",\"model_version\":\"7\",\"id\":\"i\\\"d\",\"parameters\":{\"cut\":\"3-17\","
        "\"features\":70,\"staleness_ms\":1500,\"filtered\":2,\"late\":1,\"failed\":3},\"outputs\":["
        "{\"name\":\"f\",\"datatype\":\"FP64\",\"shape\":[4],\"data\":[0.1,null,null,1e+300]},"
        "{\"name\":\"u\",\"datatype\":\"UINT64\",\"shape\":[1,1],\"data\":[18446744073709551615]},"
        "{\"name\":\"s\",\"datatype\":\"BYTES\",\"shape\":[2],\"data\":[\"a\\\"b\\n\",null]},"
        "{\"name\":\"r\",\"datatype\":\"BYTES\",\"shape\":[1],\"data\":[\"AP8=\"]},"
        "{\"name\":\"g\",\"datatype\":\"FP32\",\"shape\":[1],\"data\":[0.5]},"
        "{\"name\":\"b\",\"datatype\":\"BOOL\",\"shape\":[2],\"data\":[true,false]}]}");
    buffer_free(&out);
}

/* With binary data; what stood in the buffer before stays. */
static void test_written_binary(void **state)
{
    struct rig *rig = *state;
    struct byte_buffer out = {0};
    const double floats[] = {0.1, NAN, -INFINITY, 1e300};
    const uint64_t unsigned_values[] = {UINT64_MAX}, nulls = 2;
    const struct str texts[] = {STR("a\"b\n"), STR("")};
    const struct infer_tensor tensors[] = {
        {.name = STR("f"), .type = INFER_FP64, .rank = 1, .shape = {4}, .count = 4, .values = floats},
        {STR("u"), INFER_UINT64, 2, {1, 1}, 1, unsigned_values, NULL, NULL, false, false},
        {STR("s"), INFER_BYTES, 1, {2}, 2, NULL, texts, &nulls, false, false},
    };
    struct infer_request request;
    buffer_append(&out, "before", 6);
    struct infer_wish wishes[] = {{STR("f"), true}, {STR("u"), false}, {STR("s"), true}};
    request = (struct infer_request){.wishes = wishes, .wishes_count = 3};
    size_t json_bytes = infer_json_write(rig->model, &request, tensors, 3, &no_facts, &out);
    static const char json[] =
        "{\"model_name\":\"all\",\"model_version\":\"1\",\"outputs\":["
        "{\"name\":\"f\",\"datatype\":\"FP64\",\"shape\":[4],\"parameters\":{\"binary_data_size\":32}},"
        "{\"name\":\"u\",\"datatype\":\"UINT64\",\"shape\":[1,1],\"data\":[18446744073709551615]},"
        "{\"name\":\"s\",\"datatype\":\"BYTES\",\"shape\":[2],\"parameters\":{\"binary_data_size\":12}}]}";
    assert_int_equal(json_bytes, sizeof(json) - 1);
    assert_int_equal(out.length, 6 + json_bytes + 32 + 12);
    assert_memory_equal(out.data, "before", 6);
    assert_memory_equal(out.data + 6, json, json_bytes);
    assert_memory_equal(out.data + 6 + json_bytes, floats, 32);
    assert_memory_equal(out.data + 6 + json_bytes + 32, "\4\0\0\0a\"b\n\0\0\0\0", 12);
    buffer_clear(&out);
    infer_json_error("no \"such\" thing", &out);
    assert_int_equal(out.length, strlen("{\"error\":\"no \\\"such\\\" thing\"}"));
    assert_memory_equal(out.data, "{\"error\":\"no \\\"such\\\" thing\"}", out.length);
    buffer_free(&out);
}

/* Answers of all types, written, and read as a request's inputs. One element of a list is left open: a null
 * there has no binary form. */
static const char all_types[] =
    "{\"inputs\":["
    "{\"name\":\"f\",\"datatype\":\"FP64\",\"shape\":[3],\"data\":[0.1,-1e-300,12345678.25]},"
    "{\"name\":\"id\",\"datatype\":\"INT64\",\"shape\":[3],"
    "\"data\":[-9223372036854775808,null,9223372036854775807]},"
    "{\"name\":\"flag\",\"datatype\":\"BOOL\",\"shape\":[3],\"data\":[true,false,null]},"
    "{\"name\":\"s\",\"datatype\":\"BYTES\",\"shape\":[3],\"data\":[\"\",\"\\u0000\\\"\\u00e4\",null]},"
    "{\"name\":\"raw\",\"datatype\":\"BYTES\",\"shape\":[3],\"data\":[\"AP8=\",\"\",\"////\"]},"
    "{\"name\":\"lt\",\"datatype\":\"BYTES\",\"shape\":[3],\"data\":[\"a\",%s,\"b\"]},"
    "{\"name\":\"lt.lengths\",\"datatype\":\"INT64\",\"shape\":[3],\"data\":[1,0,2]},"
    "{\"name\":\"lf\",\"datatype\":\"FP64\",\"shape\":[2],\"data\":[0.5,1e20]},"
    "{\"name\":\"lf.lengths\",\"datatype\":\"INT64\",\"shape\":[3],\"data\":[0,2,0]},"
    "{\"name\":\"lf.valid\",\"datatype\":\"BOOL\",\"shape\":[3],\"data\":[true,true,false]},"
    "{\"name\":\"lr\",\"datatype\":\"BYTES\",\"shape\":[1],\"data\":[\"AP8=\"]},"
    "{\"name\":\"lr.lengths\",\"datatype\":\"INT64\",\"shape\":[3],\"data\":[1,0,0]}],"
    "\"outputs\":[{\"name\":\"f\"},{\"name\":\"id\"},{\"name\":\"id.valid\"},{\"name\":\"flag\"},"
    "{\"name\":\"flag.valid\"},{\"name\":\"s\"},{\"name\":\"s.valid\"},{\"name\":\"raw\"},{\"name\":\"lt\"},"
    "{\"name\":\"lt.lengths\"},{\"name\":\"lf\"},{\"name\":\"lf.lengths\"},{\"name\":\"lf.valid\"},"
    "{\"name\":\"lr\"},"
    "{\"name\":\"lr.lengths\"}]";

static void round_trip(struct rig *rig, const char *element, const char *parameters)
{
    struct infer_request request, again;
    struct infer_problem problem;
    struct byte_buffer text = {0}, out = {0};
    uint32_t rows, count;
    const struct infer_tensor *tensors;
    char first[33], hex[33];
    buffer_printf(&text, all_types, element);
    buffer_printf(&text, "%s", parameters);
    buffer_append(&text, "", 1);
    if (!rig_read(rig, rig->model, text.data, &request, &rows, &problem))
        fail_msg("%s", problem.text);
    struct batch *batch = rig_fill(rig, rig->model, &request, rows, rows), *answers = rig_answers(rig, batch);
    struct way_result results[3];
    for (uint32_t i = 0; i < rows; i++)
        results[i] = (struct way_result){.status = WAY_ANSWERED, .batch = answers, .row = i};
    struct infer_answer *answer = infer_answer_new(rig->model, &request, rows, &rig->call);
    infer_answer_add(answer, batch, results, 0, rows, TIME_MIN);
    count = infer_answer_tensors(answer, &tensors);
    size_t json_bytes = infer_json_write(rig->model, &request, tensors, count, &no_facts, &out);
    /* The answer as a request: its `outputs` are inputs. */
    char *name = memmem(out.data, json_bytes, "\"outputs\":", 10);
    assert_non_null(name);
    memcpy(name, "\"inputs\": ", 10);
    if (!read_body(rig, (struct str){out.data, out.length}, json_bytes, &again, &problem) ||
        !infer_check(rig->model, &again, RIG_NOW_US, 0, &rows, &rig->call, &problem))
        fail_msg("%.*s: %s", (int)json_bytes, out.data, problem.text);
    struct batch *second = rig_fill(rig, rig->model, &again, rows, 1);
    rig_digest(batch, first);
    rig_digest(second, hex);
    assert_string_equal(first, hex);
    batch_release(second);
    batch_release(answers);
    batch_release(batch);
    buffer_free(&text);
    buffer_free(&out);
}

static void test_round_trip(void **state)
{
    round_trip(*state, "null", "}");
    round_trip(*state, "\"x\"", ",\"parameters\":{\"binary_data_output\":true}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_whole_request, forget),
        cmocka_unit_test_teardown(test_values, forget),
        cmocka_unit_test_teardown(test_good_forms, forget),
        cmocka_unit_test_teardown(test_bad_json, forget),
        cmocka_unit_test_teardown(test_depth_and_counts, forget),
        cmocka_unit_test_teardown(test_truncated, forget),
        cmocka_unit_test_teardown(test_binary, forget),
        cmocka_unit_test_teardown(test_bad_binary, forget),
        cmocka_unit_test_teardown(test_written, forget),
        cmocka_unit_test_teardown(test_written_binary, forget),
        cmocka_unit_test_teardown(test_round_trip, forget),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
