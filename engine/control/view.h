/* What a person sees while a job runs: on a terminal a view that redraws in place, else one plain line every
 * few seconds. Writes to stderr. Control thread. */
#ifndef LEAT_CONTROL_VIEW_H
#define LEAT_CONTROL_VIEW_H

#include "run/run.h"

struct view;
struct view *view_new(const struct plan *plan, bool is_quiet);
/* Draws if it is time to. */
void view_update(struct view *view, struct run *run);
/* One line that stays. */
void view_message(struct view *view, const char *text);
/* Leaves the last picture standing. */
void view_free(struct view *view);

#endif
