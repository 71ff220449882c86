/* Shows a run on stderr while it goes on: on a terminal, a view that is redrawn in place; else lines of
 * progress (control/progress.h). Control thread. */
#ifndef LEAT_CONTROL_VIEW_H
#define LEAT_CONTROL_VIEW_H

#include "control/bottleneck.h"
#include "control/dead_watch.h"
#include "control/progress.h"
#include "control/summary.h"

/* Lines of something beside the run. */
struct view_more {
    /* Appends lines of at most `width` columns, each with its newline. Returns a warning that is to be said once; NULL:
     * none. NULL: there is nothing beside the run. */
    const char *(*show)(void *user, unsigned width, struct byte_buffer *out);
    /* What became of requests so far, for the control API. The caller owns it until the next call. Not NULL where `show` is
     * not. */
    const struct summary_served *(*totals)(void *user, uint32_t *count);
    void *user;
};

struct api;

/* What the pointers name is the caller's, used until view_free. */
struct view_options {
    const struct plan *plan;
    struct dead_watch *watch;      /* after dead_watch_begin */
    struct bottleneck *bottleneck; /* looks whenever the view does */
    struct api *api;               /* gets the figures whenever the view looks; NULL: there is none */
    bool is_quiet;                 /* only warnings are shown */
    struct progress progress;
    struct view_more more; /* shown below the run; all zeros: nothing */
};

struct view;
struct view *view_new(const struct view_options *options);
/* Draws the view, or writes a line of progress, if it is due; writes new warnings. Call often. */
void view_update(struct view *view, struct run *run);
/* Writes a line that stays on the screen; nothing if is_quiet. */
void view_message(struct view *view, const char *text);
/* Frees the view; the last picture stays on the screen. */
void view_free(struct view *view);

#endif
