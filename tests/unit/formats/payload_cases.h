/* Payloads for tests and fuzzing against the libraries of their formats: Avro C, libprotobuf. */
#ifndef LEAT_TESTS_FORMATS_PAYLOAD_CASES_H
#define LEAT_TESTS_FORMATS_PAYLOAD_CASES_H

#include "core/connector.h"

enum { PAYLOAD_CASES = 5, PAYLOAD_CASE_COLUMNS_MAX = 20 };

struct payload_case {
    const char *schema, *columns;
    /* Of the columns, NULL at the end: their names; `+` before it: as a float; `#`: an enum as its number. */
    const char *names[PAYLOAD_CASE_COLUMNS_MAX];
    bool has_unread; /* fields that only the library looks into */
};

struct payload_cases {
    const struct format_kind *format;
    const char *schema_name, *message;
    const struct payload_case *cases; /* PAYLOAD_CASES */
    /* As avro_reference.h and protobuf_reference.h say. */
    size_t (*write)(const char *schema, uint64_t (*draw)(void *argument), void *argument, char *out,
                    size_t room);
    bool (*read)(const char *schema, const char *data, size_t bytes, const char *const *names, char *out,
                 size_t room);
    /* Whether the library lets a payload pass that is bad for this reason: as harness_exact shows it. */
    bool (*is_stricter)(const char *bad);
};
extern const struct payload_cases avro_cases, protobuf_cases;

#endif
