/* Protocol Buffers, by tables: every type in every column that can hold it; schemas that are refused when
 * they are read; payloads that are cut, have wrong lengths, or are nested too deep. */
#include "unit/formats/harness.h"
#include "unit/formats/payloads.h"
#include "unit/formats/protobuf_reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define P3(body)  "syntax = \"proto3\"; message M { " body " }"
#define P2(body)  "syntax = \"proto2\"; message M { " body " }"
#define TIMESTAMP "google.protobuf.Timestamp"
#define IMPORTS   "import \"google/protobuf/timestamp.proto\"; import \"google/protobuf/wrappers.proto\"; "

static const struct {
    const char *proto, *columns, *hex, *expected;
} cases[] = {
    {P3("int32 a = 1; string b = 2;"), "a int, b text", "0801 120178 | 120178 0801 | ",
     "{\"a\":1,\"b\":\"x\"}\n{\"a\":1,\"b\":\"x\"}\n{\"a\":0,\"b\":\"\"}\n"},
    /* Of several values of a field the last counts. */
    {P3("int32 a = 1; string b = 2;"), "a int, b text", "0801 0802 120178 120179", "{\"a\":2,\"b\":\"y\"}\n"},
    {P3("int32 a = 1; int64 b = 2; uint32 c = 3; sint32 d = 4; sint64 e = 5;"),
     "a int, b int, c int, d int, e int",
     "08ffffffffffffffffff01 10ffffffffffffffffff01 18ffffffff0f 2003 2803",
     "{\"a\":-1,\"b\":-1,\"c\":4294967295,\"d\":-2,\"e\":-2}\n"},
    {P3("uint64 a = 1; fixed64 b = 2;"), "a int, b float",
     "08ffffffffffffffff7f 11ffffffffffffffff | 08ffffffffffffffffff01 | 08ffffffffffffffffff02 | 08ff",
     "{\"a\":9223372036854775807,\"b\":1.8446744073709552e+19}\n!1 `a`: a number out of range\n!1 a number "
     "of "
     "more "
     "than 64 bits\n!1 the payload ends inside a value\n"},
    {P3("bool a = 1; float b = 2; double c = 3; sfixed32 d = 4;"), "a bool, b float, c float, d float",
     "0801 150000c03f 19000000000000f83f 25ffffffff | 150000c0 | 19",
     "{\"a\":true,\"b\":1.5,\"c\":1.5,\"d\":-1}\n!1 the payload ends inside a value\n!1 the payload ends "
     "inside a "
     "value\n"},
    {P3("string a = 1; bytes b = 2; bytes c = 3; string d = 4;"), "a text, b bytes, c text, d bytes",
     "0a02c3a9 1201ff 1a0178 2201ff | 0a01ff | 1a01ff | 0a05 61",
     "{\"a\":\"é\",\"b\":\"/w==\",\"c\":\"x\",\"d\":\"/w==\"}\n!2 `a`: not valid UTF-8\n!2 `c`: not valid "
     "UTF-8\n!1 "
     "the payload ends inside a value\n"},
    {P3("Colour a = 1; Colour b = 2; enum Colour { RED = 0; GREEN = 7; }"), "a text, b int",
     "0807 1007 |  | 0808 | 1008",
     "{\"a\":\"GREEN\",\"b\":7}\n{\"a\":\"RED\",\"b\":0}\n!1 `a`: a number that the enum does not "
     "have\n{\"a\":\"RED\",\"b\":8}\n"},
    /* proto2: a number that the enum does not have is ignored. */
    {P2("optional Colour a = 1; repeated Colour b = 2; enum Colour { RED = 1; GREEN = 7; }"),
     "a text, b [text]", "0808 1001 1008 1007 | 0807 0808",
     "{\"a\":null,\"b\":[\"RED\",\"GREEN\"]}\n{\"a\":\"GREEN\",\"b\":[]}\n"},
    {P3("optional int32 a = 1; oneof o { string b = 2; int32 c = 3; }"), "a int, b text, c int",
     " | 0800 1803 | 1803 120178 | 120178 1803",
     "{\"a\":null,\"b\":null,\"c\":null}\n{\"a\":0,\"b\":null,\"c\":3}\n{\"a\":null,\"b\":\"x\",\"c\":null}"
     "\n{\"a\":"
     "null,\"b\":null,\"c\":3}\n"},
    {P2("optional int32 a = 1 [default = -5]; optional string b = 2 [default = \"x\"]; required int32 c = 3; "
        "optional "
        "Colour d = 4 [default = RED]; optional bool e = 5; optional float f = 6 [default = 2.5]; enum "
        "Colour { GREEN "
        "= 0; RED = 1; }"),
     "a int, b text, c int, d text, e bool, f float", "1801 | 0801",
     "{\"a\":-5,\"b\":\"x\",\"c\":1,\"d\":\"RED\",\"e\":null,\"f\":2.5}\n!2 `c`: missing, but its message "
     "requires "
     "it\n"},
    {P2("optional int32 a = 1;"), "a int!", "0805 | ",
     "{\"a\":5}\n!0 `a`: missing, but the schema requires it\n"},
    /* Times. */
    {"syntax = \"proto3\"; " IMPORTS "message M { " TIMESTAMP " t = 1; int64 u = 2; string v = 3; }",
     "t us, u ms, v rfc3339",
     "0a0c 08ccd9d3aa06 10c09fddd401 1002 1a14 323031352d30392d31325430303a34363a35385a | 0a00 | 1a0178 | "
     "0a021001 "
     "0a020801 | 0a0b1080ffffffffffffffff01 | 10ffffffffffffffff7f",
     "{\"t\":\"2023-11-15T16:07:40.446123Z\",\"u\":\"1970-01-01T00:00:00.002Z\",\"v\":\"2015-09-12T00:46:"
     "58Z\"}\n"
     "{\"t\":\"1970-01-01T00:00:00Z\",\"u\":\"1970-01-01T00:00:00Z\",\"v\":null}\n"
     "!2 `v`: not a time like 2015-09-12T00:46:58Z\n"
     "{\"t\":\"1970-01-01T00:00:01Z\",\"u\":\"1970-01-01T00:00:00Z\",\"v\":null}\n"
     "!2 `t`: a time out of range\n!1 `u`: a time out of range\n"},
    {"syntax = \"proto3\"; " IMPORTS
     "message M { google.protobuf.Int64Value a = 1; google.protobuf.StringValue b = 2; }",
     "a int, b text", " | 0a00 1200 | 0a020805 12030a0178 | 0a020805 0a00 | 0a03080500",
     "{\"a\":null,\"b\":null}\n{\"a\":0,\"b\":\"\"}\n{\"a\":5,\"b\":\"x\"}\n{\"a\":5,\"b\":null}\n!4 an "
     "impossible field number or wire type\n"},
    /* Lists: element by element, packed, both; records; maps. */
    {P3("repeated int32 a = 1; repeated string b = 2;"), "a [int], b [text]",
     "0801 0a020203 120178 0804 1200 | | 0a01ff | 0a0201",
     "{\"a\":[1,2,3,4],\"b\":[\"x\",\"\"]}\n{\"a\":[],\"b\":[]}\n"
     "!2 the payload ends inside a value\n!1 the payload ends "
     "inside a value\n"},
    {P3("repeated N n = 1; message N { int32 x = 1; repeated int32 y = 2; }"), "n [{x int, y [int]}]",
     "0a04 0801 1005 0a00 0a06 1202 0607 1008",
     "{\"n\":[{\"x\":1,\"y\":[5]},{\"x\":0,\"y\":[]},{\"x\":0,\"y\":[6,7,8]}]}\n"},
    {P3("map<string, int32> m = 1;"), "m [{key text, value int}]", "0a05 0a0161 1001 0a02 1002",
     "{\"m\":[{\"key\":\"a\",\"value\":1},{\"key\":\"\",\"value\":2}]}\n"},
    /* Fields that no column takes, and wire types that do not fit the schema. */
    {P3("int32 a = 1;"), "a int",
     "3201ff 0805 | 3500000000 0805 | 3900000000000000000805 | 33 0807 34 0805 | 33 34 | 33 44 | 34 | 0805 "
     "00 | 37 | "
     "3202ff | 8080808080100805",
     "{\"a\":5}\n{\"a\":5}\n{\"a\":5}\n{\"a\":5}\n{\"a\":0}\n!2 the end of another group\n!1 the end of a "
     "group that was not begun\n!2 an impossible field number or wire type\n!0 an impossible field number or "
     "wire type\n!1 the payload ends inside a value\n!0 a field number of more than 32 bits\n"},
    {P3("int32 a = 1;"), "a int", "0a0105 | 0d00000000 | 33",
     "!1 `a`: the field has another type than in the schema\n!1 `a`: the field has another type than in the "
     "schema\n!1 the payload ends inside a value\n"},
};

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        payloads_check(&format_protobuf, "s.proto", cases[i].proto, "M", cases[i].columns, cases[i].hex,
                       cases[i].expected);
}

static const struct {
    const char *proto, *message, *columns, *expected;
} refused[] = {
    {"message M {", "M", "a int",
     "no message of s.proto can be read: s.proto:1:12: Reached end of input in message definition (missing "
     "'}')."},
    {P3("Foo a = 1;"), "M", "a int",
     "no message of s.proto can be read: s.proto: M.a: \"Foo\" is not defined."},
    {"import \"x/y.proto\"; message M { optional int32 a = 1; }", "M", "a int",
     "no message of s.proto can be read: the imported file `x/y.proto` cannot be read"},
    {"import \"s.proto\"; message M { optional int32 a = 1; }", "M", "a int",
     "no message of s.proto can be read: `s.proto` is imported in a circle, or more than 64 files are "
     "imported"},
    {P3(""), "N", "a int", "no message of s.proto can be read: the schema has no message `N`; there are M"},
    {"package p; message M { optional int32 a = 1; } message N {}", NULL, "a int",
     "no message of s.proto can be read: the schema does not have exactly one message, and `message:` is not "
     "given; there are p.M, p.N"},
    {P3("int32 user = 1;"), NULL, "usr int, b int",
     "the message M of s.proto has no field `usr` [did you mean `user`?]\nthe message M of s.proto has no "
     "field `b`"},
    {P3("string a = 1; int32 b = 2; repeated int32 c = 3; M d = 4;"), NULL, "a int, b [int], c int, d text",
     "the field `a` of s.proto is string, which a column of type int does not take\nthe field `b` of s.proto "
     "is int32, which a column of type list(int) does not take [declare the column without `list(...)`: the "
     "field is not repeated]\nthe field `c` of s.proto is repeated int32, which a column of type int does "
     "not take [for a repeated field declare the column as `list(...)`]\nthe field `d` of s.proto is M, "
     "which a column of type text does not take [a column takes a single value or a list; messages are taken "
     "only if they are repeated]"},
    {P3("int64 t = 1; string u = 2;"), NULL, "t rfc3339, u s",
     "the field `t` of s.proto is int64, which a column of type time does not take [give the unit of the "
     "number: `time(ms)`, s, us or ns]\nthe field `u` of s.proto is string, which a column of type time does "
     "not take [for a time written as text declare the column as `time(rfc3339)`]"},
    {P2("optional uint64 a = 1 [default = 18446744073709551615];"), NULL, "a int",
     "the default of `a` in s.proto is out of range"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(refused); i++)
        payloads_check_refused(&format_protobuf, "s.proto", refused[i].proto, refused[i].message,
                               refused[i].columns, refused[i].expected);
}

/* Groups that are nested in a field that no column takes. */
static void test_deep(void **state)
{
    (void)state;
    struct payloads payloads;
    char hex[2048] = "";
    static const char proto[] = P3("int32 a = 1;");
    payloads_open(&payloads, &format_protobuf, "s.proto", proto, strlen(proto), NULL, NULL, "a int");
    for (int i = 0; i < 200; i++)
        strcat(hex, "33");
    for (int i = 0; i < 200; i++)
        strcat(hex, "34");
    char *text = payloads_decode(&payloads, &format_protobuf, hex);
    assert_string_equal(text, "!102 groups are nested more than 100 deep\n");
    free(text);
    text = payloads_decode(&payloads, &format_protobuf, "33 33 33 34 34 34 0805");
    assert_string_equal(text, "{\"a\":5}\n");
    free(text);
    payloads_close(&payloads);
}

static void write_file(const char *directory, const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Schemas in a FileDescriptorSet, and imports from the directory of the schema file. */
static void test_sets_and_imports(void **state)
{
    (void)state;
    struct payloads payloads;
    static const char proto[] = "syntax = \"proto3\"; " IMPORTS
                                "message A { } message M { message N { int32 a = 1; } " TIMESTAMP " t = 1; }";
    char set[8192];
    size_t bytes = protobuf_reference_set(proto, set, sizeof(set));
    payloads_open(&payloads, &format_protobuf, "s.desc", set, bytes, "M", NULL, "t us");
    assert_non_null(payloads.payload);
    char *text = payloads_decode(&payloads, &format_protobuf, "0a020805");
    assert_string_equal(text, "{\"t\":\"1970-01-01T00:00:05Z\"}\n");
    free(text);
    payloads_close(&payloads);
    payloads_open(&payloads, &format_protobuf, "s.desc", set, bytes, "M.N", NULL, "a int");
    assert_non_null(payloads.payload);
    payloads_close(&payloads);
    payloads_open(&payloads, &format_protobuf, "s.desc", set, bytes / 2, "M", NULL, "t us");
    char *errors = payloads_errors(&payloads);
    assert_string_equal(
        errors, "no message of s.desc can be read: the file is not a FileDescriptorSet of 1 to 64 files\n");
    free(errors);
    payloads_close(&payloads);

    static const char importing[] =
        "syntax = \"proto3\"; import \"part.proto\"; message M { repeated part.P p = 1; }";
    payloads_open(&payloads, &format_protobuf, "s.proto", importing, strlen(importing), NULL, NULL,
                  "p [{x int}]");
    assert_null(payloads.payload);
    write_file(payloads.directory, "part.proto",
               "syntax = \"proto3\"; package part; message P { int32 x = 1; }");
    payloads.diags.count = payloads.diags.errors = 0;
    assert_true(payload_open(&format_protobuf, &payloads.options, payloads.schema, NULL, NULL,
                             &payloads.diags, &payloads.payload));
    text = payloads_decode(&payloads, &format_protobuf, "0a020805");
    assert_string_equal(text, "{\"p\":[{\"x\":5}]}\n");
    free(text);
    payloads_close(&payloads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_sets_and_imports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
