/* The log of a process: every line that it says on stderr, but for its live view. Lines are written at once, as text or as
 * JSON objects (core/log_line.h); the newest ones are kept, for the control API.
 *
 * A line that follows an identical one within LOG_REPEAT_US is only counted. When another line comes, or that time has
 * passed (log_look), it is said once more, with the number of times that it was said since it came first: "... (said 17
 * times)". So what is said over and over takes a line each ten seconds.
 *
 * Bytes that are no UTF-8 and control characters become \xNN in text, so that no line can control a terminal, and U+FFFD or
 * \uNNNN in JSON. A text is cut after LOG_TEXT_BYTES_MAX bytes, between characters.
 *
 * Any thread, but for log_set_form and log_set_job. Lines of several threads come one after another, never mixed; a
 * stderr that takes nothing makes those wait who say something, and nobody else. Nothing here is for hot paths. */
#ifndef LEAT_CORE_LOG_H
#define LEAT_CORE_LOG_H

#include "core/diag.h"
#include "core/log_line.h"

enum {
    LOG_LINES_MAX = 1000,         /* lines kept; the oldest give way */
    LOG_KEPT_BYTES_MAX = 1 << 20, /* of the texts of lines kept, in all */
    LOG_REPEAT_US = 10000000,     /* ten seconds, by the monotonic clock */
};

/* Says a line: "leat: TEXT". In JSON and where lines are kept it is without `leat: `, and without the `WARNING: ` of texts that
 * begin so. A newline in the text is a control character like others. */
void log_say(enum log_level level, const char *format, ...) LEAT_PRINTF(2, 3);
/* Says a text as it is, without `leat: ` before it and a newline behind it; its own newlines stay. It is one line of the log. */
void log_put(enum log_level level, struct str text);
/* Says each diagnostic as one line of the log, as diag_print prints it, all of it; color: only of text on stderr. */
void log_diags(const struct diag_list *list, const struct diag_source *source, bool color);
/* Writes a line of the live view where stderr is no terminal: it is neither kept nor compared with others. */
void log_progress(struct str text);
/* Says again what was said again and again and LOG_REPEAT_US have passed. Call it now and then. */
void log_look(void);
/* The same, whatever the time: call it at the end. */
void log_end(void);

struct log_line {
    uint64_t n;      /* from 1, rising */
    int64_t time_us; /* wall clock: when it was said */
    enum log_level level;
    uint64_t repeated; /* how often it was said since it came first; 1: it is the first */
    struct str text;   /* may have newlines, and any bytes but more than LOG_TEXT_BYTES_MAX of them */
};

/* Calls `take` for each line kept whose number is above `after`, oldest first. An `after` that no line has yet is of another
 * process: then for all of them. Returns the newest line's number, 0 if there is none, for the next call. The lines are valid
 * within `take`, which must say nothing here. */
uint64_t log_since(uint64_t after, void (*take)(void *user, const struct log_line *line), void *user);

#endif
