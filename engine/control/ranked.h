/* Figures of learners that choose items, in a report: each has the length k of a list in its name, `hr_10` for hr@10
 * (learners/retrieval/ranks.h). */
#ifndef LEAT_CONTROL_RANKED_H
#define LEAT_CONTROL_RANKED_H

#include "core/operator.h"

/* The digits of k in `name`, which point into it, if it is `figure` ("hr") for some k; else NULL. Any thread. */
const char *ranked_k(const char *name, const char *figure);
/* The item of `figure` for the largest k, of the run or of the last window; NULL: the report has none. Any thread. */
const struct report_item *ranked_largest(const struct report *report, const char *figure, bool is_window);

#endif
