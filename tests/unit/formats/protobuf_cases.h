/* Messages and columns for tests and fuzzing against libprotobuf. */
#ifndef LEAT_TESTS_FORMATS_PROTOBUF_CASES_H
#define LEAT_TESTS_FORMATS_PROTOBUF_CASES_H

#include <stdbool.h>

enum { PROTOBUF_CASES = 5, PROTOBUF_CASE_COLUMNS_MAX = 20 };

struct protobuf_case {
    const char *proto, *columns;
    /* Of the columns, NULL at the end: their names; `+` before it: as a float; `#`: an enum as its number. */
    const char *names[PROTOBUF_CASE_COLUMNS_MAX];
    bool has_unread; /* fields that only libprotobuf looks into */
};

#ifdef __cplusplus
extern "C" {
#endif

extern const struct protobuf_case protobuf_cases[PROTOBUF_CASES];

/* Whether libprotobuf lets a message pass that is bad for this reason: as harness_exact shows it. */
bool protobuf_case_is_stricter(const char *bad);

#ifdef __cplusplus
}
#endif

#endif
