/* A run as a user sees it, from its begin to its end: what shows it while it goes on, and what tells its end. `leat run` has one of
 * them, a worker of a cluster one after the other (run_cluster.h). Control thread. */
#ifndef LEAT_CLI_RUN_LIFE_H
#define LEAT_CLI_RUN_LIFE_H

#include "cli/job.h"
#include "control/api.h"
#include "control/progress.h"
#include "run/run.h"

/* What the pointers name is the caller's, and lives as long. */
struct run_life_options {
    struct job_load *load;
    struct api *api; /* NULL: none; it ends with run_life_wait */
    bool is_served;  /* a process beside the run answers requests */
    bool is_quiet;
    struct progress progress;
};

struct run_life;
/* Says how the run has begun, prints its warnings, and begins to show it. */
struct run_life *run_life_begin(const struct run_life_options *options, struct run *run);
/* Shows the run as it is now, if that is due. Call often. */
void run_life_look(struct run_life *life);
/* Writes a line that stays on the screen; nothing where the life is quiet. Once it is no longer shown, a line of the log. */
void run_life_say(struct run_life *life, const char *text);
/* Ends showing it; run_life_wait does that, too. Before another thread may call run_life_say. */
void run_life_hide(struct run_life *life);
/* Waits for the run's end. is_started: what run_start returned. False: the run failed, or was abandoned. */
bool run_life_wait(struct run_life *life, bool is_started);
/* After run_life_wait. */
const struct run_stats *run_life_stats(const struct run_life *life);
/* Prints the summary, after run_life_wait. With a process that answers requests, that of a run that is good ends first, so that all
 * requests are counted. */
void run_life_summarize(struct run_life *life, bool is_good);
/* Of a cluster's leader, when the last figures of the other workers have come: takes the figures again, for the summary. After
 * run_life_wait. */
void run_life_count_all(struct run_life *life);
/* In place of the summary, of a worker that does not lead, after run_life_wait of a run that is good: says which worker has it. */
void run_life_tell_part(const struct run_life *life, uint32_t leader, struct str address);
/* Not the run. */
void run_life_free(struct run_life *life);

#endif
