#include "formats/formats.h"
#include "unit/formats/payload_cases.h"
#include "unit/formats/protobuf_reference.h"

static const struct payload_case cases[PAYLOAD_CASES] = {
    {"syntax = \"proto3\"; message M { int32 a = 1; int64 b = 2; uint32 c = 3; uint64 d = 4; sint32 e = 5; "
     "sint64 f = 6; fixed32 g = 7; fixed64 h = 8; sfixed32 i = 9; sfixed64 j = 10; bool k = 11; float l = "
     "12; "
     "double m = 13; string n = 14; bytes o = 300; Colour p = 16; Colour q = 2000; } "
     "enum Colour { RED = 0; GREEN = 5; BLUE = -3; }",
     "p text, q int, a int, b int, c int, d int, e int, f int, g int, h int, i int, j int, k bool, l float, "
     "m "
     "float, n text, o bytes",
     {"p", "#q", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o"},
     false},
    {"syntax = \"proto2\"; message M { optional int32 a = 1; optional string b = 2 [default = \"x\"]; "
     "optional "
     "int64 c = 3 [default = -7]; optional double d = 4 [default = 2.5]; optional Colour e = 5; optional "
     "bool f "
     "= 6 [default = true]; optional Colour g = 7 [default = GREEN]; oneof o { int64 h = 8; string i = 9; "
     "Colour "
     "j = 10; } optional sint32 k = 11; } enum Colour { RED = 1; GREEN = 2; }",
     "a int, b text, c int, d float, e text, f bool, g text, h int, i text, j int, k float",
     {"a", "b", "c", "d", "e", "f", "g", "h", "i", "#j", "+k"},
     false},
    {"syntax = \"proto3\"; message M { repeated int64 a = 1; repeated string b = 2; repeated Pair c = 3; "
     "repeated "
     "double d = 4 [packed = false]; repeated bool e = 5; repeated Colour f = 6; map<string, int64> g = 7; "
     "repeated sfixed32 h = 8; } message Pair { sint64 x = 1; string y = 2; } enum Colour { RED = 0; GREEN = "
     "1; }",
     "a [int], b [text], c [{x int, y text}], d [float], e [bool], f [text], g [{key text, value int}], h "
     "[float]",
     {"a", "b", "c", "d", "e", "f", "g", "+h"},
     false},
    {"syntax = \"proto3\"; import \"google/protobuf/timestamp.proto\"; import "
     "\"google/protobuf/wrappers.proto\"; "
     "message M { google.protobuf.Timestamp a = 1; google.protobuf.Int64Value b = 2; "
     "google.protobuf.StringValue c = 3; google.protobuf.DoubleValue d = 4; google.protobuf.BoolValue e = 5; "
     "repeated google.protobuf.Timestamp f = 6; optional int32 g = 7; optional string h = 8; oneof o { "
     "google.protobuf.Timestamp i = 9; int32 j = 10; } google.protobuf.UInt32Value k = 11; }",
     "a us, b int, c text, d float, e bool, f [us], g int, h text, i us, j int, k float",
     {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "+k"},
     false},
    {"syntax = \"proto2\"; message M { optional Inner x = 1; optional group G = 2 { optional int32 z = 1; "
     "optional "
     "string s = 2; } repeated int64 y = 3; optional int32 a = 4; extensions 100 to 200; optional string b = "
     "5; } "
     "message Inner { optional Inner i = 1; optional bytes b = 2; }",
     "b text, a float",
     {"b", "+a"},
     true},
};

static bool is_stricter(const char *bad)
{
    static const char *const reasons[] = {
        "not valid UTF-8", "another type than in", "more than 64 bits", "more than 32 bits",
        "out of range",    "number that the enum", "groups are nested", "too many values in",
    };
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (strstr(bad, reasons[i]) != NULL)
            return true;
    return false;
}

const struct payload_cases protobuf_cases = {
    .format = &format_protobuf,
    .schema_name = "m.proto",
    .message = "M",
    .cases = cases,
    .write = protobuf_reference_write,
    .read = protobuf_reference_read,
    .is_stricter = is_stricter,
};
