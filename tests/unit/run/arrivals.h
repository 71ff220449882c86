/* A source for tests whose records have arrival times and come to an end, so that what `align:` does follows from the records alone:
 * `arrivals` has the columns id, key and ts; a record of its partition p happened p + 1 times `delay`, and up to `late`, before it
 * arrived. Some records are bad. Batches end after `batch` records, and one may be read slowly, or never. `growing` is the same source, whose last partition is found when
 * the job runs. */
#ifndef LEAT_TESTS_UNIT_RUN_ARRIVALS_H
#define LEAT_TESTS_UNIT_RUN_ARRIVALS_H

#include "core/connector.h"
#include "plan/plan.h"

extern const struct source_kind source_arrivals, source_growing;
/* The registry's kinds, and these; of a process, each call with the same registry. */
const struct registry *registry_with_arrivals(const struct registry *registry);

#endif
