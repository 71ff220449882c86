/* A second, simple implementation of expressions: one row at a time, directly over the syntax tree. It shares
 * no code with operators/expr, so that the property test compares two independent results. */
#ifndef LEAT_TESTS_UNIT_EXPR_NAIVE_H
#define LEAT_TESTS_UNIT_EXPR_NAIVE_H

#include "fixture.h"

enum naive_tag {
    NAIVE_NULL,
    NAIVE_FAILED,
    NAIVE_BOOL,
    NAIVE_INT,
    NAIVE_FLOAT,
    NAIVE_TEXT,
    NAIVE_TIME,
    NAIVE_LIST
};

struct naive {
    enum naive_tag tag;
    int64_t integer; /* NAIVE_BOOL, NAIVE_INT, NAIVE_TIME */
    double real;
    struct str text;
    struct naive *items;
    uint32_t count;
};

struct naive naive_eval(struct fixture *f, const struct ast *ast, const struct batch *batch, uint32_t row);
/* The value as fixture_show prints it; "error" if the evaluation failed. */
const char *naive_show(struct fixture *f, const struct naive *value);

#endif
