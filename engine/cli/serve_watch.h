/* What the server beside a run does, for the run's live view and summary: from the file that it writes each second
 * (cli/serve_figures.h), also where an earlier run started it. */
#ifndef LEAT_CLI_SERVE_WATCH_H
#define LEAT_CLI_SERVE_WATCH_H

#include "cli/job.h"
#include "control/summary.h"
#include "control/view.h"

struct serve_watch;

/* load: of the run, after serve_beside_start; used until serve_watch_free. Control thread, as all that follows. */
struct serve_watch *serve_watch_new(const struct job_load *load);
void serve_watch_free(struct serve_watch *watch); /* NULL is allowed */
/* For view_new: a line for each `serve`, or what is wrong with the server; and a warning once the server has ended. */
struct view_more serve_watch_more(struct serve_watch *watch);
/* What the server's figures say of each `serve` since the server began, as the newest file has it; *count is 0 where there is
 * no file. The watch owns the result, until the next call. */
const struct summary_served *serve_watch_totals(struct serve_watch *watch, uint32_t *count);

#endif
