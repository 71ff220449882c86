#include "formats/formats.h"
#include "unit/formats/avro_reference.h"
#include "unit/formats/payload_cases.h"

#define RECORD(fields)    "{\"type\":\"record\",\"name\":\"R\",\"fields\":[" fields "]}"
#define FIELD(name, type) "{\"name\":\"" name "\",\"type\":" type "}"
#define NULLABLE(type)    "[\"null\"," type "]"
#define ARRAY(type)       "{\"type\":\"array\",\"items\":" type "}"
#define MAP(type)         "{\"type\":\"map\",\"values\":" type "}"
#define COLOURS           "{\"type\":\"enum\",\"name\":\"Colour\",\"symbols\":[\"RED\",\"GREEN\",\"BLUE\"]}"
#define PAIR                                                                                                 \
    "{\"type\":\"record\",\"name\":\"Pair\",\"fields\":[" FIELD("x", "\"int\"") "," FIELD("y",               \
                                                                                          "\"string\"") "]}"

static const struct payload_case cases[PAYLOAD_CASES] = {
    {RECORD(FIELD("a", "\"int\"") "," FIELD("b", "\"long\"") "," FIELD("c", "\"float\"") "," FIELD(
         "d",
         "\"double\"") "," FIELD("e",
                                 "\"boolean\"") "," FIELD("f",
                                                          "\"string\"") "," FIELD("g",
                                                                                  "\"bytes\"") "," FIELD("h",
                                                                                                         COLOURS)),
     "a int, b int, c float, d float, e bool, f text, g bytes, h text",
     {"a", "b", "c", "d", "e", "f", "g", "h"},
     false},
    {RECORD(FIELD("skip1", NULLABLE("\"string\"")) "," FIELD("a", NULLABLE("\"long\"")) "," FIELD(
         "b",
         "[\"st"
         "ring"
         "\","
         "\"nul"
         "l\"]") "," FIELD("skip2",
                           "\"double\"") "," FIELD("skip3",
                                                   "\"boolean\"") "," FIELD("c",
                                                                            NULLABLE(
                                                                                "{\"type\":\"fixed\","
                                                                                "\"name\":\"F\",\"size\":"
                                                                                "5}")) "," FIELD("d",
                                                                                                 NULLABLE(
                                                                                                     COLOURS)) "," FIELD("skip"
                                                                                                                         "4",
                                                                                                                         "\"Col"
                                                                                                                         "our"
                                                                                                                         "\"")),
     "d text, c bytes, b text, a int",
     {"d", "c", "b", "a"},
     false},
    {RECORD(FIELD("l", ARRAY("\"long\"")) "," FIELD("m", ARRAY(NULLABLE("\"string\""))) "," FIELD(
         "n", ARRAY(PAIR)) "," FIELD("o",
                                     NULLABLE(ARRAY("\"Pair\""))) "," FIELD("p",
                                                                            ARRAY(ARRAY("\"boolean\"")))),
     "l [int], m [text], n [{x int, y text}], o [{x int, y text}], p [[bool]]",
     {"l", "m", "n", "o", "p"},
     false},
    {RECORD(FIELD("skip1", MAP(ARRAY(PAIR))) "," FIELD("skip2", NULLABLE("\"R\"")) "," FIELD(
         "skip3",
         "{\"type\""
         ":\"fixed"
         "\","
         "\"name\":"
         "\"F\","
         "\"size\":"
         "3}") "," FIELD("skip4",
                         "\"Pair\"") "," FIELD("skip5",
                                               "[" COLOURS
                                               ",\"bytes\",\"Pair\",\"float\"]") "," FIELD("a", "\"int\"")),
     "a int",
     {"a"},
     false},
    {RECORD(FIELD("a", "\"int\"") "," FIELD("b", "\"long\"") "," FIELD(
         "c",
         "[\"int\",\"double\",\"null\"]") "," FIELD("d",
                                                    "\"string\"") "," FIELD("e",
                                                                            "\"bytes\"") "," FIELD("f",
                                                                                                   "\"long"
                                                                                                   "\"")),
     "a float, b float, c float, d bytes, e text, f us",
     {"+a", "+b", "+c", "d", "e", "f"},
     false},
};

static bool is_stricter(const char *bad)
{
    static const char *const reasons[] = {
        "not valid UTF-8",
        "a wrong length",
        "more than 64 bits",
        "neither true nor false",
        "too many values",
        "more than 200 deep",
        "symbol number of more than 32 bits", /* Avro C cuts it to 32 */
    };
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (strstr(bad, reasons[i]) != NULL)
            return true;
    /* Of what no column takes. */
    return strstr(bad, "a symbol that") != NULL && strchr(bad, '`') == NULL;
}

const struct payload_cases avro_cases = {
    .format = &format_avro,
    .schema_name = "s.avsc",
    .message = "",
    .cases = cases,
    .write = avro_reference_write,
    .read = avro_reference_read,
    .is_stricter = is_stricter,
};
