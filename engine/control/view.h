/* What a person sees while a job runs: on a terminal, a view that is redrawn in place; elsewhere a plain
 * line now and then (control/progress.h). Writes to stderr. Control thread. */
#ifndef LEAT_CONTROL_VIEW_H
#define LEAT_CONTROL_VIEW_H

#include "control/dead_watch.h"
#include "control/progress.h"

struct view;
/* is_quiet: only warnings are shown. watch: begun; belongs to the caller. */
struct view *view_new(const struct plan *plan, struct dead_watch *watch, bool is_quiet,
                      const struct progress *progress);
/* Draws and warns, if it is time to. */
void view_update(struct view *view, struct run *run);
/* Writes a line that stays on the screen. */
void view_message(struct view *view, const char *text);
/* Leaves the last picture on the screen. */
void view_free(struct view *view);

#endif
