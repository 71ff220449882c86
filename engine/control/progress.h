/* Decides when a line of progress is due if stderr is no terminal, but a file or a service's log. The first
 * line comes after PROGRESS_FIRST_US, as a sign of life, then a regular line every every_us; and a line at
 * once when the state changes, because something goes wrong or is right again. After PROGRESS_CHANGES_MAX
 * such lines, later changes wait for the next regular line, so that a state that flickers does not fill the
 * log. One thread at a time. */
#ifndef LEAT_CONTROL_PROGRESS_H
#define LEAT_CONTROL_PROGRESS_H

#include "core/base.h"

#define PROGRESS_EVERY_TEXT "1m"
#define PROGRESS_EVERY_US   US_PER_MINUTE
#define PROGRESS_FIRST_US   (2 * US_PER_SECOND)
/* The help of an option --progress TIME. */
#define PROGRESS_HELP                                                                                        \
    "if stderr is not a terminal, write a progress line every TIME (default: " PROGRESS_EVERY_TEXT           \
    "), and at once when a problem appears or disappears"
#define PROGRESS_WANTS "--progress takes a duration like " PROGRESS_EVERY_TEXT ", at least 1s, not `%s`"
enum { PROGRESS_CHANGES_MAX = 5, PROGRESS_STATE_BYTES = 512 };

struct progress {
    int64_t every_us;                 /* 0: PROGRESS_EVERY_US */
    int64_t begun_us, shown_us;       /* time of the first call, and of the last line; 0: not yet */
    uint32_t changes;                 /* lines for changes of the state since the last regular line */
    char state[PROGRESS_STATE_BYTES]; /* the state at the last line, without digits */
};

/* Sets every_us from a duration of at least a second, like `1m`. false: the text is not such a duration. */
LEAT_CHECKED bool progress_parse(struct progress *progress, const char *text);
/* Whether to write a line now; if so, the caller writes it. now_us: monotonic clock. state: what is wrong, in
 * any words; "": nothing is wrong. Digits in `state` are ignored, because counts always change. */
bool progress_is_due(struct progress *progress, int64_t now_us, const char *state);

#endif
