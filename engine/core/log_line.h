/* One line of a process's log: as text for people, or as a JSON object for programs (`--log json`). What is here allocates
 * nothing and takes no lock. */
#ifndef LEAT_CORE_LOG_LINE_H
#define LEAT_CORE_LOG_LINE_H

#include "core/base.h"

enum log_level { LOG_LEVEL_INFO, LOG_LEVEL_WARNING, LOG_LEVEL_ERROR };
enum log_form { LOG_FORM_TEXT, LOG_FORM_JSON };

extern const char *const log_level_names[]; /* "info", "warning", "error" */

enum {
    LOG_TEXT_BYTES_MAX = 8192,  /* of a line's text; longer ones are cut */
    LOG_JSON_REST_BYTES = 2048, /* of a line as JSON without its text, at most */
};

/* The form of the process's lines, from now on; text before the first call. Call both before other threads start.
 * log_set_job: the member `job` of JSON lines, null before; copied, and cut after some hundred bytes. */
void log_set_form(enum log_form form);
void log_set_job(struct str name);
enum log_form log_form(void); /* any thread */

/* Writes the line as JSON, with a newline. time_us: wall clock. text: of LOG_TEXT_BYTES_MAX bytes at most. repeated: how
 * often it was said. Returns the bytes written; `out` has room for log_json_room(text.length). Any thread. */
size_t log_line_json(char *out, enum log_level level, int64_t time_us, struct str text, uint64_t repeated);
static inline size_t log_json_room(size_t text_bytes)
{
    return 6 * text_bytes + LOG_JSON_REST_BYTES; /* a byte becomes up to six */
}

/* Says the last words of a process, or those of a signal handler: async-signal-safe; the line is neither kept nor compared
 * with others. text: as people see it, with `leat: ` and newlines; cut after 1 KiB. */
void log_last(enum log_level level, struct str text);

#endif
