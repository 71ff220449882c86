/* When a line of progress is due if nobody watches, because stderr is a file or a service's log. The first
 * line comes soon after the beginning, as a sign of life, then one each `every`; and one at once when the
 * state changes: when something goes wrong, or is right again. After a few such changes the next ones wait
 * for the next regular line, so that a state that flickers does not fill the log. One thread at a time. */
#ifndef LEAT_CONTROL_PROGRESS_H
#define LEAT_CONTROL_PROGRESS_H

#include "core/base.h"

#define PROGRESS_EVERY_TEXT "1m"
#define PROGRESS_EVERY_US   US_PER_MINUTE
#define PROGRESS_FIRST_US   (2 * US_PER_SECOND)
/* The help of an option --progress TIME. */
#define PROGRESS_HELP                                                                                        \
    "where stderr is no terminal, a line of progress each TIME (default: " PROGRESS_EVERY_TEXT               \
    "), and at once when something goes wrong, or no longer does"
#define PROGRESS_WANTS "--progress wants a duration like " PROGRESS_EVERY_TEXT ", of 1s at least, not `%s`"
enum { PROGRESS_CHANGES_MAX = 5, PROGRESS_STATE_BYTES = 512 };

struct progress {
    int64_t every_us;           /* 0: PROGRESS_EVERY_US */
    int64_t begun_us, shown_us; /* 0: not yet */
    uint32_t changes;           /* lines written at once since the last regular one */
    char state[PROGRESS_STATE_BYTES];
};

/* Parses a duration like `1m`, of a second at least; false: the text is none. */
LEAT_CHECKED bool progress_parse(struct progress *progress, const char *text);
/* Whether to write a line now. state: what is wrong, in any words; "": nothing is wrong. Its digits are
 * ignored, because counts always change. */
bool progress_is_due(struct progress *progress, int64_t now_us, const char *state);

#endif
