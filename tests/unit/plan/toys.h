/* A small registry with one kind of each sort that matters to a plan, so that its tests need no real kind.
 *
 * Sources: rows (bounded, can be read twice), live (cannot). Sinks: out, file, null. Learner: guess.
 * Operators, all on `by` columns of input 0 (and of `from`, where given):
 *   pass        depends on a row alone, keeps columns
 *   rewrite     likewise, but may change columns
 *   with        adds int columns
 *   keyed       by record order, keeps columns, keeps state
 *   aggregate   keyed, makes other columns, has late rows
 *   merge       streams side by side, order does not matter
 *   number_all  sees all rows in order
 * `hold 5m` holds rows back, `note "x"` reaches no state, `from S` is a second input. */
#ifndef LEAT_TESTS_UNIT_PLAN_TOYS_H
#define LEAT_TESTS_UNIT_PLAN_TOYS_H

#include "plan/plan.h"
#include "unit/support/random.h"

extern const struct registry toy_registry;

/* A job text that went through parser, expansion and plan. plan: NULL if one of them failed,
 * with diagnostics. */
struct toy_job {
    struct arena arena;
    struct diag_list diags;
    struct job_file *job;
    struct plan *plan;
};

void toy_plan(struct toy_job *toy, const struct registry *registry, const char *text);
void toy_plan_with(struct toy_job *toy, const char *text, struct plan_options options);
void toy_free(struct toy_job *toy);
/* Appends a valid job of random shape, and a terminator: up to six streams over two sources, with
 * a sink each. */
void toy_random_job(struct test_random *random, struct byte_buffer *job);
/* The codes of all errors, in order: "E0202 E0402 ". */
const char *toy_codes(struct toy_job *toy);
/* The plan as text: a line for each stage, "0 sources: clicks.rows imps.pass\n1 keyed: ...", then one for
 * each exchange, "0 -> 1 imps/0 hash user\n". Without a plan: toy_codes. */
const char *toy_shape(struct toy_job *toy);

#endif
