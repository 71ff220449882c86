/* An operator for tests that has work left when its input has ended (operator_kind.wants_more): `later N` keeps the
 * rows, whose columns have 64 bits, and emits them in N micro-batches when the input has ended; with `later 0` they
 * pass. */
#ifndef LEAT_TESTS_UNIT_RUN_LATER_H
#define LEAT_TESTS_UNIT_RUN_LATER_H

#include "core/operator.h"
#include "plan/plan.h"

#include <stdatomic.h>

extern const struct operator_kind operator_later;
/* All built-in kinds, and one more; of a process, each call with the same one. */
const struct registry *registry_with(const struct operator_kind *kind);
/* All built-in kinds, and this one. */
const struct registry *registry_with_later(void);
/* How long each part takes, and each batch that is kept, in microseconds, so that a test finds the run there. */
extern atomic_uint later_pause_us;
/* Whether rows that come when it cannot have any are let pass, in place of an assertion: for messages that a fuzzer has made. */
extern atomic_bool later_lets_pass;
/* Of this process: restores with some, but not all parts done; parts done. */
extern atomic_uint later_restored_within, later_parts_run;
/* The next part waits while `later_parts_run` is not below this one: a run stands there, however slow its test is. */
extern atomic_uint later_parts_max;

#endif
