/* ModelInferRequest and ModelInferResponse. Requests are put together from fields of the wire, so that
 * wrong ones can be, too; they are read from memory of exact size, cut at every byte, and answers are read
 * by protobuf-c. */
#include "core/varint.h"
#include "serve/infer_grpc.h"
#include "serve/infer_model.h"
#include "unit/core/cmocka_all.h"

#include <inference.pb-c.h>
#include <stdlib.h>

static struct arena made; /* messages */
static struct arena call; /* of a call that is tested */

static int tear_down(void **state)
{
    (void)state;
    arena_free(&made);
    arena_free(&call);
    return 0;
}

/* --- Messages from fields --- */

static struct str join(const struct str *parts, size_t count)
{
    struct byte_buffer all = {0};
    for (size_t i = 0; i < count; i++)
        buffer_append(&all, parts[i].data, parts[i].length);
    struct str copy = {arena_copy(&made, all.data, all.length), all.length};
    buffer_free(&all);
    return copy;
}

/* A field with bytes. */
static struct str field(uint32_t number, struct str bytes)
{
    char head[1 + VARINT_BYTES_MAX];
    head[0] = (char)(number << 3 | 2);
    size_t length = (size_t)(varint_put(head + 1, bytes.length) - head);
    return join((struct str[]){{head, length}, bytes}, 2);
}

static struct str times(struct str part, size_t count)
{
    char *all = arena_alloc(&made, part.length * count);
    for (size_t i = 0; i < count; i++)
        memcpy(all + i * part.length, part.data, part.length);
    return (struct str){all, part.length * count};
}

#define ALL(...)                         join((struct str[]){__VA_ARGS__}, ARRAY_COUNT(((struct str[]){__VA_ARGS__})))
#define TEXT(number, literal)            field(number, STR(literal))
#define MODEL                            TEXT(1, "m")
#define INPUT(...)                       field(5, ALL(__VA_ARGS__))
#define X(type, shape)                   TEXT(1, "x"), TEXT(2, type), TEXT(3, shape)
#define CONTENTS(kind, literal)          field(5, TEXT(kind, literal))
#define RAW(literal)                     TEXT(7, literal)
#define TYPED(type, shape, kind, values) ALL(MODEL, INPUT(X(type, shape), CONTENTS(kind, values)))
#define SENT(type, shape, bytes)         ALL(MODEL, INPUT(X(type, shape)), RAW(bytes))
#define PARAMETER(number, key, value)    field(number, ALL(TEXT(1, key), TEXT(2, value)))

enum { BOOL = 1, INT, INT64, UINT, UINT64, FP32, FP64, BYTES };
#define MINUS_1 "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
#define MOST    "\xff\xff\xff\xff\xff\xff\xff\xff\x7f"

/* --- Reading --- */

static bool read_exactly(struct str message, struct infer_request *request, struct infer_problem *problem)
{
    arena_reset(&call);
    char *copy = malloc(MAX(message.length, 1));
    assert_non_null(copy);
    memcpy(copy, message.data, message.length);
    bool is_good = infer_grpc_read((struct str){copy, message.length}, request, &call, problem);
    free(copy); /* the request has no pointer into it */
    assert_int_equal(is_good, problem->fault == INFER_GOOD);
    if (!is_good)
        assert_non_null(problem->text);
    return is_good;
}

static const struct infer_tensor *read_one(struct str message)
{
    static struct infer_request request;
    struct infer_problem problem;
    if (!read_exactly(message, &request, &problem))
        fail_msg("%s", problem.text);
    assert_true(str_is(request.model, "m"));
    assert_int_equal(request.inputs_count, 1);
    assert_true(str_is(request.inputs[0].name, "x"));
    return &request.inputs[0];
}

static void check_value(struct str message, enum infer_type type, struct str bytes)
{
    const struct infer_tensor *tensor = read_one(message);
    assert_int_equal(tensor->type, type);
    assert_int_equal(tensor->rank, 1);
    assert_int_equal(tensor->shape[0], tensor->count);
    assert_int_equal(tensor->count * infer_type_bytes(type), bytes.length);
    assert_memory_equal(tensor->values, bytes.data, bytes.length);
    assert_null(tensor->nulls);
}

static void test_typed(void **state)
{
    (void)state;
    const struct {
        struct str message;
        enum infer_type type;
        struct str bytes;
    } cases[] = {
        {TYPED("BOOL", "\3", BOOL, "\1\0\5"), INFER_BOOL, STR("\1\0\1")},
        {TYPED("UINT8", "\2", UINT, "\7\xff\1"), INFER_UINT8, STR("\7\xff")},
        {TYPED("UINT16", "\2", UINT, "\7\xff\xff\3"), INFER_UINT16, STR("\7\0\xff\xff")},
        {TYPED("UINT32", "\1", UINT, "\xff\xff\xff\xff\x0f"), INFER_UINT32, STR("\xff\xff\xff\xff")},
        {TYPED("UINT64", "\1", UINT64, MINUS_1), INFER_UINT64, STR("\xff\xff\xff\xff\xff\xff\xff\xff")},
        {TYPED("INT8", "\3", INT, MINUS_1 "\x7f\x80\xff\xff\xff\xff\xff\xff\xff\xff\1"), INFER_INT8,
         STR("\xff\x7f\x80")},
        {TYPED("INT16", "\2", INT, MINUS_1 "\xff\xff\1"), INFER_INT16, STR("\xff\xff\xff\x7f")},
        {TYPED("INT32", "\2", INT, MINUS_1 "\5"), INFER_INT32, STR("\xff\xff\xff\xff\5\0\0\0")},
        {TYPED("INT64", "\2", INT64, MINUS_1 "\5"), INFER_INT64,
         STR("\xff\xff\xff\xff\xff\xff\xff\xff\5\0\0\0\0\0\0\0")},
        {TYPED("FP32", "\1", FP32, "\0\0\x80\x3f"), INFER_FP32, STR("\0\0\x80\x3f")},
        {TYPED("FP64", "\1", FP64, "\0\0\0\0\0\0\xf0\x3f"), INFER_FP64, STR("\0\0\0\0\0\0\xf0\x3f")},
        /* Not packed; in two parts, which are joined. */
        {ALL(MODEL, INPUT(X("INT64", "\2"), field(5, STR("\x18\4\x18\6")))), INFER_INT64,
         STR("\4\0\0\0\0\0\0\0\6\0\0\0\0\0\0\0")},
        {ALL(MODEL, INPUT(X("INT8", "\2"), CONTENTS(INT, "\4"), CONTENTS(INT, "\6"))), INFER_INT8,
         STR("\4\6")},
        {ALL(MODEL, INPUT(TEXT(1, "x"), TEXT(2, "INT8"), STR("\x18\1"), CONTENTS(INT, "\4"))), INFER_INT8,
         STR("\4")},
        /* Empty, with and without contents. */
        {TYPED("INT8", "\0", INT, ""), INFER_INT8, STR("")},
        {ALL(MODEL, INPUT(X("FP64", "\0"))), INFER_FP64, STR("")},
        /* Unknown fields are passed over. */
        {ALL(TEXT(15, "future"), MODEL, INPUT(X("INT8", "\1"), TEXT(15, "?"), CONTENTS(INT, "\4"))),
         INFER_INT8, STR("\4")},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        check_value(cases[i].message, cases[i].type, cases[i].bytes);
}

static void test_raw(void **state)
{
    (void)state;
    check_value(SENT("BOOL", "\2", "\1\0"), INFER_BOOL, STR("\1\0"));
    check_value(SENT("INT16", "\2", "\1\0\xff\xff"), INFER_INT16, STR("\1\0\xff\xff"));
    check_value(SENT("UINT64", "\1", "12345678"), INFER_UINT64, STR("12345678"));
    check_value(SENT("FP32", "\1", "\0\0\x80\x3f"), INFER_FP32, STR("\0\0\x80\x3f"));
    check_value(SENT("INT64", "\0", ""), INFER_INT64, STR(""));
    const struct infer_tensor *tensor = read_one(SENT("FP64", "\2\1", "1234567887654321"));
    assert_int_equal(tensor->rank, 2);
    assert_int_equal(tensor->shape[0], 2);
    assert_int_equal(tensor->shape[1], 1);
    assert_int_equal(tensor->count, 2);
}

static void test_texts(void **state)
{
    (void)state;
    const struct str messages[] = {
        SENT("BYTES", "\3", "\2\0\0\0ab\0\0\0\0\3\0\0\0\0c\xff"),
        ALL(MODEL, INPUT(X("BYTES", "\3"), field(5, ALL(TEXT(8, "ab"), TEXT(8, ""), TEXT(8, "\0c\xff"))))),
    };
    for (size_t i = 0; i < ARRAY_COUNT(messages); i++) {
        const struct infer_tensor *tensor = read_one(messages[i]);
        assert_int_equal(tensor->type, INFER_BYTES);
        assert_int_equal(tensor->count, 3);
        assert_true(str_is(tensor->texts[0], "ab"));
        assert_int_equal(tensor->texts[1].length, 0);
        assert_non_null(tensor->texts[1].data);
        assert_true(str_equal(tensor->texts[2], STR("\0c\xff")));
    }
}

static void test_request(void **state)
{
    (void)state;
    struct infer_request request;
    struct infer_problem problem;
    struct str message =
        ALL(MODEL, TEXT(2, "7"), TEXT(3, "a\0b"), PARAMETER(4, "timeout", "\x10\x85\1"),
            PARAMETER(4, "priority", "\x28\1"), field(4, TEXT(1, "empty")), INPUT(X("INT8", "\1")),
            INPUT(TEXT(1, "y"), TEXT(2, "BYTES"), TEXT(3, "\1"), PARAMETER(4, "binary_data_size", "\x10\5")),
            field(6, TEXT(1, "u")), field(6, ALL(TEXT(1, "v"), PARAMETER(2, "binary_data", "\x08\0"))),
            RAW("\1"), RAW("\1\0\0\0z"));
    assert_true(read_exactly(message, &request, &problem));
    assert_true(str_is(request.model, "m") && str_is(request.version, "7"));
    assert_true(str_equal(request.id, STR("a\0b")));
    assert_int_equal(request.timeout_us, 133);
    assert_int_equal(request.inputs_count, 2);
    assert_true(str_is(request.inputs[1].name, "y") && str_is(request.inputs[1].texts[0], "z"));
    assert_int_equal(request.wishes_count, 2);
    assert_true(str_is(request.wishes[0].name, "u") && str_is(request.wishes[1].name, "v"));
    assert_true(read_exactly(ALL(MODEL, PARAMETER(4, "timeout",
                                                  "\x1a\3"
                                                  "250")),
                             &request, &problem));
    assert_int_equal(request.timeout_us, 250);
    assert_int_equal(request.wishes_count, 0);
    assert_true(read_exactly(ALL(MODEL, PARAMETER(4, "timeout", "\x28\5")), &request, &problem));
    assert_int_equal(request.timeout_us, 5);
    assert_true(read_exactly(STR(""), &request, &problem));
    assert_int_equal(request.model.length + request.id.length + request.inputs_count, 0);
}

/* --- Refusals --- */

struct bad_case {
    struct str message;
    enum infer_fault fault;
    const char *says;
};

static void check_bad(const struct bad_case *cases, size_t count)
{
    struct infer_request request;
    struct infer_problem problem;
    for (size_t i = 0; i < count; i++) {
        if (read_exactly(cases[i].message, &request, &problem))
            fail_msg("case %zu is accepted; it should say: %s", i, cases[i].says);
        if (problem.fault != cases[i].fault || strstr(problem.text, cases[i].says) == NULL)
            fail_msg("case %zu (%s): %d %s", i, cases[i].says, problem.fault, problem.text);
    }
}

#define BAD INFER_BAD_REQUEST

static void test_bad_values(void **state)
{
    (void)state;
    const struct bad_case cases[] = {
        {TYPED("INT8", "\1", INT, "\x80\1"), BAD, "input `x`, element 0: 128 is out of the range of INT8"},
        {TYPED("INT8", "\2", INT, "\1\xff\xfe\xff\xff\xff\xff\xff\xff\xff\1"), BAD, "element 1: -129 is out"},
        {TYPED("INT16", "\1", INT, "\x80\x80\2"), BAD, "32768 is out of the range of INT16"},
        {TYPED("UINT8", "\1", UINT, "\x80\2"), BAD, "256 is out of the range of UINT8"},
        {TYPED("UINT16", "\1", UINT, "\x80\x80\4"), BAD, "65536 is out of the range of UINT16"},
        {TYPED("INT64", "\1", INT, "\1"), BAD, "has values in int_contents; they belong in int64_contents"},
        {TYPED("INT32", "\1", INT64, "\1"), BAD, "they belong in int_contents"},
        {TYPED("UINT8", "\1", INT, "\1"), BAD, "they belong in uint_contents"},
        {TYPED("INT8", "\1", UINT, "\1"), BAD, "they belong in int_contents"},
        {TYPED("BOOL", "\1", INT, "\1"), BAD, "they belong in bool_contents"},
        {TYPED("FP64", "\1", FP32, "1234"), BAD, "they belong in fp64_contents"},
        {TYPED("FP32", "\1", FP64, "12345678"), BAD, "they belong in fp32_contents"},
        {TYPED("BYTES", "\1", INT, "\1"), BAD, "they belong in bytes_contents"},
        {TYPED("INT8", "\1", BYTES, "a"), BAD, "has values in bytes_contents"},
        {TYPED("UINT64", "\1", UINT, "a"), BAD, "has values in uint_contents"},
        {ALL(MODEL, INPUT(X("INT8", "\1"), field(5, ALL(TEXT(INT, "\1"), TEXT(BOOL, "\1"))))), BAD,
         "has values in bool_contents"},
        {TYPED("INT8", "\2", INT, "\1"), BAD, "has 1 values in int_contents; its shape has 2 elements"},
        {TYPED("BOOL", "\1", BOOL, "\1\1"), BAD, "has 2 values in bool_contents"},
        {TYPED("BYTES", "\2", BYTES, "a"), BAD, "has 1 values in bytes_contents"},
        {TYPED("INT64", "\0", INT64, "\1"), BAD, "its shape has 0 elements"},
        {ALL(MODEL, INPUT(X("INT8", "\1"))), BAD, "has 0 values in int_contents"},
        {ALL(MODEL, INPUT(X("FP64", MOST))), BAD, "its shape has 9223372036854775807 elements"},
        {TYPED("FP16", "\1", FP32, "1234"), INFER_NOT_SUPPORTED, "input `x` has the type FP16"},
        {SENT("BF16", "\1", "12"), INFER_NOT_SUPPORTED, "input `x` has the type BF16"},
        {SENT("FP16", "\1", "12"), INFER_NOT_SUPPORTED, "send FP32"},
        {SENT("int64", "\1", "12345678"), BAD, "the type `int64`; the types are BOOL"},
        {SENT("INT64\0", "\1", "12345678"), BAD, "the types are BOOL"},
        {SENT("", "\1", "12345678"), BAD, "the type ``"},
    };
    check_bad(cases, ARRAY_COUNT(cases));
}

static void test_bad_shapes(void **state)
{
    (void)state;
    const struct bad_case cases[] = {
        {SENT("INT64", "\1", "1234567"), BAD, "input `x` has 7 bytes; 1 elements of INT64 have 8 bytes each"},
        {SENT("INT64", "\1", "123456789"), BAD, "has 9 bytes"},
        {SENT("BOOL", "\2", "\1"), BAD, "has 1 bytes; 2 elements of BOOL"},
        {SENT("INT8", "\0", "\1"), BAD, "has 1 bytes; 0 elements"},
        {SENT("INT64", MOST, "12345678"), BAD, "has 8 bytes; 9223372036854775807 elements"},
        /* 2^61 elements of 8 bytes would be 2^64 bytes. */
        {SENT("INT64", "\x80\x80\x80\x80\x80\x80\x80\x80\x20", ""), BAD,
         "has 0 bytes; 2305843009213693952 elements"},
        {SENT("BYTES", MOST, "\0\0\0\0"), BAD, "9223372036854775807 texts cannot be"},
        {SENT("BYTES", "\2", "\0\0\0\0"), BAD, "has 4 bytes, in which its shape's 2 texts cannot be"},
        {SENT("BYTES", "\1", "\2\0\0\0a"), BAD, "element 0: the bytes end inside of it"},
        {SENT("BYTES", "\1",
              "\xff\xff\xff\xff"
              "a"),
         BAD, "element 0: the bytes end inside of it"},
        {SENT("BYTES", "\2", "\1\0\0\0a\0\0\0"), BAD, "element 1: the bytes end inside of it"},
        {SENT("BYTES", "\1", "\1\0\0\0ab"), BAD, "has 1 bytes behind its 1 texts"},
        {SENT("BYTES", "\0", "\0"), BAD, "has 1 bytes behind its 0 texts"},
        {SENT("INT8", MINUS_1, ""), BAD, "a size of its shape is negative"},
        {SENT("INT8", MINUS_1 MINUS_1, "\1"), BAD, "a size of its shape is negative"},
        {SENT("INT8", MOST "\2", ""), BAD, "their product is too large"},
        {SENT("INT8", MOST MOST "\0", ""), BAD, "their product is too large"},
        {SENT("INT8", "\1\1\1\1\1", "\1"), BAD, "a shape of 5 sizes; 1 to 4 are read"},
        {ALL(MODEL, INPUT(TEXT(1, "x"), TEXT(2, "INT8")), RAW("\1")), BAD, "a shape of 0 sizes"},
        {ALL(MODEL, INPUT(X("INT8", "\1"), CONTENTS(INT, "\1")), RAW("\1")), BAD,
         "input `x` has `contents`, and the request has raw_input_contents"},
        {ALL(MODEL, INPUT(X("INT8", "\1"), TEXT(5, "")), RAW("\1")), BAD, "only one of these"},
        {ALL(MODEL, INPUT(X("INT8", "\1")), RAW("\1"), RAW("\1")), BAD, "1 inputs, but 2 raw_input_contents"},
        {ALL(MODEL, INPUT(X("INT8", "\1")), INPUT(X("INT8", "\1")), RAW("\1")), BAD,
         "2 inputs, but 1 raw_input_contents"},
        {ALL(MODEL, RAW("\1")), BAD, "0 inputs, but 1 raw_input_contents"},
    };
    check_bad(cases, ARRAY_COUNT(cases));
}

static void test_bad_requests(void **state)
{
    (void)state;
    const char *other = "the parameter `timeout` is not a number of microseconds";
    const struct bad_case cases[] = {
        {STR("hello"), BAD, "not a ModelInferRequest"},
        {STR("\x0a"), BAD, "not a ModelInferRequest"},
        {STR("\x0a\x05"
             "abc"),
         BAD, "not a ModelInferRequest"},
        {STR("\x0a\xff\xff\xff\xff\x0f"), BAD, "not a ModelInferRequest"},
        {STR("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), BAD, "not a ModelInferRequest"},
        {STR("\x0b\x0c"), BAD, "not a ModelInferRequest"},
        {ALL(MODEL, STR("\x08\1"), INPUT(X("INT8", "\1")), RAW("\1"), STR("\x2d")), BAD,
         "not a ModelInferRequest"},
        {ALL(MODEL, TEXT(5, "\x0a\x09x")), BAD, "not a ModelInferRequest"},
        {ALL(MODEL, INPUT(X("INT8", "\1"), CONTENTS(INT, "\x80"))), BAD, "not a ModelInferRequest"},
        {ALL(MODEL, INPUT(X("FP32", "\1"), CONTENTS(FP32, "123"))), BAD, "not a ModelInferRequest"},
        {TEXT(1, "\xff"), BAD, "is not UTF-8"},
        {TEXT(2, "\xc0\x80"), BAD, "is not UTF-8"},
        {TEXT(3, "\xed\xa0\x80"), BAD, "is not UTF-8"},
        {ALL(MODEL, INPUT(TEXT(1, "a\xff"))), BAD, "the name of an input is not UTF-8"},
        {ALL(MODEL, field(6, TEXT(1, "\x80"))), BAD, "the name of an output is not UTF-8"},
        {ALL(MODEL, PARAMETER(4, "timeout",
                              "\x1a\2"
                              "5s")),
         BAD, other},
        {ALL(MODEL, PARAMETER(4, "timeout", "\x1a\0")), BAD, other},
        {ALL(MODEL, PARAMETER(4, "timeout",
                              "\x1a\x14"
                              "99999999999999999999")),
         BAD, other},
        {ALL(MODEL, PARAMETER(4, "timeout", "\x10" MINUS_1)), BAD, other},
        {ALL(MODEL, PARAMETER(4, "timeout", "\x28" MINUS_1)), BAD, other},
        {ALL(MODEL, PARAMETER(4, "timeout", "\x08\1")), BAD, other},
        {ALL(MODEL, field(4, TEXT(1, "timeout"))), BAD, other},
        {ALL(MODEL, INPUT(X("INT8", "\1"), PARAMETER(4, "shared_memory_region", "\x1a\1r"))),
         INFER_NOT_SUPPORTED, "input `x` has the parameter `shared_memory_region`"},
        {ALL(MODEL, field(6, ALL(TEXT(1, "y"), PARAMETER(2, "shared_memory_region", "\x1a\1r")))),
         INFER_NOT_SUPPORTED, "output `y` has the parameter `shared_memory_region`"},
        {ALL(MODEL, field(6, ALL(TEXT(1, "y"), PARAMETER(2, "classification", "\x10\3")))),
         INFER_NOT_SUPPORTED, "output `y` has the parameter `classification`"},
        {ALL(MODEL, times(INPUT(X("INT8", "\0")), INFER_TENSORS_MAX + 1)), INFER_TOO_LARGE, "1025 inputs"},
        {ALL(MODEL, times(field(6, TEXT(1, "abcdefgh")), INFER_TENSORS_MAX + 1)), INFER_TOO_LARGE,
         "asks for 1025 outputs"},
    };
    check_bad(cases, ARRAY_COUNT(cases));
}

/* --- Cuts and bombs --- */

/* Whether a cut is between two fields of the message: then what is left is a message, too. */
static bool is_between(struct str message, size_t cut)
{
    size_t at = 0;
    while (at < cut) {
        size_t length = 0, shift = 0;
        for (at++; (unsigned char)message.data[at] >= 0x80; at++, shift += 7)
            length |= (size_t)(message.data[at] & 0x7f) << shift;
        length |= (size_t)message.data[at] << shift;
        at += 1 + length;
    }
    return at == cut;
}

static void test_cuts(void **state)
{
    (void)state;
    const struct str messages[] = {
        SENT("BYTES", "\2", "\2\0\0\0ab\1\0\0\0c"),
        ALL(MODEL, TEXT(3, "id"), PARAMETER(4, "timeout", "\x10\5"),
            INPUT(X("INT64", "\2"), CONTENTS(INT64, "\1\2")), INPUT(X("INT8", "\2"), CONTENTS(INT, "\1\2")),
            field(6, TEXT(1, "y"))),
        ALL(INPUT(X("FP64", "\1")), INPUT(X("INT8", "\1")), RAW("12345678"), RAW("\1")),
    };
    for (size_t i = 0; i < ARRAY_COUNT(messages); i++)
        for (size_t cut = 1; cut < messages[i].length; cut++) {
            struct infer_request request;
            struct infer_problem problem;
            bool is_good = read_exactly((struct str){messages[i].data, cut}, &request, &problem);
            assert_true(!is_good || is_between(messages[i], cut));
            assert_true(!is_good || i == 1 || request.inputs_count == 0); /* raw contents are missing */
            assert_true(is_good || i != 1 || !is_between(messages[i], cut));
        }
}

/* Messages whose unpacked form is many times larger. */
static void test_bombs(void **state)
{
    (void)state;
    enum { PARTS = 200 << 10 };
    struct infer_request request;
    struct infer_problem problem;
    struct str one = ALL(MODEL, INPUT(X("BOOL", "\1"), CONTENTS(BOOL, "\1")));
    const struct {
        struct str message;
        enum infer_fault fault;
    } cases[] = {
        {ALL(one, times(STR("\x2a\0"), PARTS)), INFER_TOO_LARGE},   /* inputs */
        {ALL(one, times(STR("\x32\0"), PARTS)), INFER_TOO_LARGE},   /* outputs */
        {ALL(one, times(STR("\x22\0"), PARTS)), INFER_TOO_LARGE},   /* parameters */
        {ALL(one, times(STR("\x3a\0"), PARTS)), INFER_BAD_REQUEST}, /* raw contents */
        {ALL(one, times(STR("\x78\0"), PARTS)), INFER_GOOD},        /* unknown fields */
        {INPUT(X("INT8", "\1"), field(5, times(STR("\x42\0"), PARTS))), INFER_BAD_REQUEST},
        {INPUT(X("INT64", "\1"), field(5, field(INT64, times(STR("\1"), 2 * PARTS)))), INFER_BAD_REQUEST},
        {INPUT(X("INT64", "\x80\x80\x19"), field(5, field(INT64, times(STR("\1"), 2 * PARTS)))), INFER_GOOD},
        {INPUT(X("BYTES", "\x80\xc0\x0c"), field(5, times(STR("\x42\1a"), PARTS))), INFER_GOOD},
        {times(ALL(INPUT(STR("\x22\0\x22\0\x22\0")), STR("\x3a\0")), PARTS / 8), INFER_TOO_LARGE},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        arena_free(&call);
        bool is_good = read_exactly(cases[i].message, &request, &problem);
        if (problem.fault != cases[i].fault)
            fail_msg("bomb %zu: %s", i, is_good ? "accepted" : problem.text);
        if (ARENA_GAP == 0 && arena_kept_bytes(&call) > 60 * cases[i].message.length + (4 << 20))
            fail_msg("bomb %zu: %zu bytes for %zu", i, arena_kept_bytes(&call), cases[i].message.length);
    }
    assert_true(read_exactly(one, &request, &problem));
}

/* Large messages may take fewer times their length. */
static void test_large_bomb(void **state)
{
    (void)state;
    struct infer_request request;
    struct infer_problem problem;
    struct str message = times(STR("\x2a\0"), 2 << 20);
    arena_free(&call);
    assert_false(read_exactly(message, &request, &problem));
    assert_int_equal(problem.fault, INFER_TOO_LARGE);
    assert_non_null(strstr(problem.text, "the request of 4194304 bytes has too many small parts"));
    assert_true(call.used_bytes <= (64 << 20) + 4 * message.length + (1 << 20));
}

/* --- Answers --- */

static const struct plan_serve serve = {.name = {"m", 1}};
static const struct infer_facts no_facts = {.staleness_ms = -1};

static Inference__ModelInferResponse *written(const struct infer_model *model,
                                              const struct infer_request *request,
                                              const struct infer_tensor *tensors, uint32_t count,
                                              const struct infer_facts *facts)
{
    struct byte_buffer out = {0};
    buffer_append(&out, "ab", 2);
    infer_grpc_write(model, request, tensors, count, facts, &out);
    assert_memory_equal(out.data, "ab", 2);
    Inference__ModelInferResponse *answer =
        inference__model_infer_response__unpack(NULL, out.length - 2, (const uint8_t *)out.data + 2);
    assert_non_null(answer);
    assert_int_equal(answer->base.n_unknown_fields, 0);
    assert_int_equal(inference__model_infer_response__get_packed_size(answer), out.length - 2);
    buffer_free(&out);
    return answer;
}

static void check_parameter(const Inference__ModelInferResponse *answer, size_t at, const char *key,
                            int64_t number)
{
    assert_string_equal(answer->parameters[at]->key, key);
    assert_int_equal(answer->parameters[at]->value->parameter_choice_case,
                     INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM);
    assert_int_equal(answer->parameters[at]->value->int64_param, number);
}

static void test_write(void **state)
{
    (void)state;
    const struct infer_model model = {.serve = &serve};
    const struct str texts[] = {STR("ab"), STR(""), STR("c\0d")};
    char long_text[300];
    memset(long_text, 'l', sizeof(long_text));
    const struct infer_tensor tensors[] = {
        {.name = STR("s"), .type = INFER_BYTES, .rank = 1, .shape = {3}, .count = 3, .texts = texts},
        {.name = {long_text, 300},
         .type = INFER_FP64,
         .rank = 2,
         .shape = {300, 1},
         .count = 300,
         .values = arena_calloc(&made, 300, 8)},
        {.name = STR("b"), .type = INFER_BOOL, .rank = 1, .shape = {2}, .count = 2, .values = "\1\0"},
        {.name = STR("e"), .type = INFER_INT16, .rank = 1, .shape = {0}},
    };
    const struct infer_request request = {.id = STR("i"), .version = STR("3")};
    const struct infer_facts facts = {
        "cut-7", 4096, 1500, {.answered = 9, .late = 2, .filtered = 300, .failed = 1}};
    Inference__ModelInferResponse *answer = written(&model, &request, tensors, ARRAY_COUNT(tensors), &facts);
    assert_string_equal(answer->model_name, "m");
    assert_string_equal(answer->model_version, "3");
    assert_string_equal(answer->id, "i");
    assert_int_equal(answer->n_parameters, 6);
    assert_string_equal(answer->parameters[0]->key, "cut");
    assert_string_equal(answer->parameters[0]->value->string_param, "cut-7");
    check_parameter(answer, 1, "features", 4096);
    check_parameter(answer, 2, "staleness_ms", 1500);
    check_parameter(answer, 3, "filtered", 300);
    check_parameter(answer, 4, "late", 2);
    check_parameter(answer, 5, "failed", 1);
    assert_int_equal(answer->n_outputs, 4);
    assert_int_equal(answer->n_raw_output_contents, 4);
    const char *const types[] = {"BYTES", "FP64", "BOOL", "INT16"};
    const struct str raw[] = {
        STR("\2\0\0\0ab\0\0\0\0\3\0\0\0c\0d"), {tensors[1].values, 2400}, STR("\1\0"), STR("")};
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(answer->outputs[i]->name,
                            i == 1 ? arena_strndup(&made, long_text, 300) : tensors[i].name.data);
        assert_string_equal(answer->outputs[i]->datatype, types[i]);
        assert_int_equal(answer->outputs[i]->n_shape, tensors[i].rank);
        assert_memory_equal(answer->outputs[i]->shape, tensors[i].shape, tensors[i].rank * sizeof(int64_t));
        assert_int_equal(answer->raw_output_contents[i].len, raw[i].length);
        if (raw[i].length > 0)
            assert_memory_equal(answer->raw_output_contents[i].data, raw[i].data, raw[i].length);
    }
    inference__model_infer_response__free_unpacked(answer, NULL);
}

static void test_write_little(void **state)
{
    (void)state;
    const struct infer_model model = {.serve = &serve};
    const struct infer_request request = {0};
    Inference__ModelInferResponse *answer = written(&model, &request, NULL, 0, &no_facts);
    assert_string_equal(answer->model_version, INFER_VERSION);
    assert_string_equal(answer->id, "");
    assert_int_equal(answer->n_parameters + answer->n_outputs + answer->n_raw_output_contents, 0);
    inference__model_infer_response__free_unpacked(answer, NULL);
    const struct infer_facts fresh = {.staleness_ms = 0};
    answer = written(&model, &request, NULL, 0, &fresh);
    assert_int_equal(answer->n_parameters, 1);
    check_parameter(answer, 0, "staleness_ms", 0);
    inference__model_infer_response__free_unpacked(answer, NULL);
}

#define TEST(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_typed),      TEST(test_raw),        TEST(test_texts),        TEST(test_request),
        TEST(test_bad_values), TEST(test_bad_shapes), TEST(test_bad_requests), TEST(test_cuts),
        TEST(test_bombs),      TEST(test_large_bomb), TEST(test_write),        TEST(test_write_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
