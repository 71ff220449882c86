/* Schemas and columns for tests and fuzzing against Avro C. */
#ifndef LEAT_TESTS_FORMATS_AVRO_CASES_H
#define LEAT_TESTS_FORMATS_AVRO_CASES_H

#include <stdbool.h>

enum { AVRO_CASES = 5, AVRO_CASE_COLUMNS_MAX = 10 };

struct avro_case {
    const char *schema, *columns;
    const char *names[AVRO_CASE_COLUMNS_MAX]; /* of the columns; NULL at the end */
    bool is_float[AVRO_CASE_COLUMNS_MAX];
};
extern const struct avro_case avro_cases[AVRO_CASES];

/* Whether Avro C lets a record pass that is bad for this reason: as harness_exact shows it. */
bool avro_case_is_stricter(const char *bad);

#endif
