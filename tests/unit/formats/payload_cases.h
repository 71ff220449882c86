/* Payload schemas for tests and fuzzing, and the library of each format (Avro C, libprotobuf)
 * to compare with. */
#ifndef LEAT_TESTS_UNIT_FORMATS_PAYLOAD_CASES_H
#define LEAT_TESTS_UNIT_FORMATS_PAYLOAD_CASES_H

#include "core/connector.h"

enum { PAYLOAD_CASES = 5, PAYLOAD_CASE_COLUMNS_MAX = 20 };

struct payload_case {
    const char *schema, *columns;
    /* The names of the columns, NULL at the end. Before a name: `+`: the column is a float; `#`: it holds the
     * number of an enum. */
    const char *names[PAYLOAD_CASE_COLUMNS_MAX];
    bool has_unread; /* the schema has fields that no column takes, which only the library checks inside */
};

struct payload_cases {
    const struct format_kind *format;
    const char *schema_name, *message;
    const struct payload_case *cases; /* PAYLOAD_CASES */
    /* See avro_reference.h and protobuf_reference.h. */
    size_t (*write)(const char *schema, uint64_t (*draw)(void *argument), void *argument, char *out,
                    size_t room);
    bool (*read)(const char *schema, const char *data, size_t bytes, const char *const *names, char *out,
                 size_t room);
    /* Whether the library accepts a payload that leat finds bad. bad: the row as harness_exact writes it. */
    bool (*is_stricter)(const char *bad);
};
extern const struct payload_cases avro_cases, protobuf_cases;

#endif
