/* What the tests of expressions share: a schema with columns of each type, batches of it, values as text. */
#ifndef LEAT_TESTS_UNIT_EXPR_FIXTURE_H
#define LEAT_TESTS_UNIT_EXPR_FIXTURE_H

#include "lang/lang.h"
#include "operators/expr/expr.h"

struct fixture {
    struct arena arena, scratch;
    struct diag_list diags;
    struct batch_pool *pool;
    struct schema *schema;
};

void fixture_init(struct fixture *f);
void fixture_free(struct fixture *f);

/* The columns of the fixture's schema, in this order; the lineage of column i is bit i. */
enum {
    COLUMN_A, /* int a, b */
    COLUMN_B,
    COLUMN_X, /* float x, y */
    COLUMN_Y,
    COLUMN_S, /* text s, t */
    COLUMN_T,
    COLUMN_P, /* bool p, q */
    COLUMN_Q,
    COLUMN_M, /* time m, n */
    COLUMN_N,
    COLUMN_LI, /* list(int) li, list(float) lf, list(text) lt, list(record { aid: int, tag: text }) lr */
    COLUMN_LF,
    COLUMN_LT,
    COLUMN_LR,
    COLUMN_Z, /* bytes z */
    COLUMNS
};

/* A seeded batch of the fixture's schema: small and extreme values, nulls in every column where has_nulls. */
struct batch *fixture_batch(struct fixture *f, uint64_t *seed, uint32_t rows, bool has_nulls);
/* Selects about half of the rows. */
void fixture_select(struct batch *batch, uint64_t *seed);
uint64_t fixture_random(uint64_t *seed);

/* Parses and compiles `text`; NULL if either fails, with diagnostics in f->diags. */
struct expr *fixture_compile(struct fixture *f, const char *text);
struct ast *fixture_parse(struct fixture *f, const char *text);
/* A column's value as text, in f->scratch: "null", "1", "2.5", "abc", "true", "[1, null]",
 * times in microseconds. */
const char *fixture_show(struct fixture *f, const struct column *column, uint32_t row,
                         const struct type *type);
/* The value of an expression in one row, as fixture_show gives it; "error: REASON" if the row failed. */
const char *fixture_value(struct fixture *f, const struct expr *expr, const struct batch *batch,
                          uint32_t row);

#endif
