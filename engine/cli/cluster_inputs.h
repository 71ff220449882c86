/* What the workers of a round must have alike besides the job: the files of file sources, lookups, schemas and libraries, values of
 * env(...) and file(...) that are no secrets, and the directories that file sinks write to. The worker that leads describes what it has
 * when it begins a round; each of the others compares, before its run of the round begins. Secrets are in none of it (plan/inputs.c).
 *
 * Files of records are compared by size and digests of both ends (core/file_ends.h), the first CLUSTER_INPUTS_FILES_MAX of them; they may
 * be longer here than they were there, for they may grow. That a directory is the same one is shown by a file in it, whose name has a
 * number that nobody can guess. */
#ifndef LEAT_CLI_CLUSTER_INPUTS_H
#define LEAT_CLI_CLUSTER_INPUTS_H

#include "plan/plan.h"

enum { CLUSTER_INPUTS_FILES_MAX = 256, CLUSTER_INPUTS_BYTES_MAX = 128 << 10 };

/* The leader's: makes a file for this round in the directory of each file sink, and removes those of earlier rounds; describes what it
 * has. name: the cluster's. Malloc'd, at most CLUSTER_INPUTS_BYTES_MAX bytes, UTF-8. Reads lookups and libraries whole. Any thread. */
char *cluster_inputs_describe(const struct plan *plan, struct str name, uint64_t incarnation);
/* Whether this worker has what the text says. who: whose text it is: "worker 0 at 10.0.0.7:7400 on mill-3". False after E0715 that says
 * who differs in what, or E0714: the text is damaged. Any thread. */
LEAT_CHECKED bool cluster_inputs_compare(const struct plan *plan, struct str text, const char *who,
                                         struct diag_list *diags);
/* Removes the files that cluster_inputs_describe made for that text. Any thread. */
void cluster_inputs_forget(const struct plan *plan, struct str text);

#endif
