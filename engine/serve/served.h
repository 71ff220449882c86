/* The log of what was served: lines of JSON, in files PATH-000001.jsonl, PATH-000002.jsonl, ... (served_files.c), or where
 * another kind of log takes them (core/line_log.h). A thread writes; nobody waits for it. Each line is in the log at most
 * once: lines that find the buffer full, or that cannot be written, are lost and counted. */
#ifndef LEAT_SERVE_SERVED_H
#define LEAT_SERVE_SERVED_H

#include "core/buffer.h"
#include "core/line_log.h"

enum { SERVED_BUFFER_BYTES = 8 << 20, SERVED_WRITE_MS = 100 };

struct served_options {
    /* Files, where kind is NULL. */
    struct str path;      /* without the number */
    int64_t rotate_bytes; /* a file that is longer is followed by a new one */
    int64_t keep;         /* files that are kept; 0: all */
    /* Another kind of log, and its options, which it keeps. */
    const struct line_log_kind *kind;
    const void *config;
    struct str job, name; /* of the job and of its `serve`, which the kind keeps */
};

struct served_counts {
    uint64_t added; /* = lines + lost + waiting */
    uint64_t lines; /* written */
    uint64_t lost;  /* not written, or nobody said that they were */
    uint64_t waiting;
};

struct served;

/* Files: makes the path's directories and the first file, whose number is above all that are there; the path is copied.
 * Another kind: connects later. NULL after a diagnostic. */
struct served *served_open(const struct served_options *options, struct diag_list *diags);
/* Takes `count` lines, each with its newline; false: they are lost. One thread. */
bool served_add(struct served *served, struct str lines, uint32_t count);
struct served_counts served_counts(struct served *served);
/* Whether lines were lost since the last call; then copies why, where, and what to do. */
bool served_failure(struct served *served, char failure[LINE_LOG_FAILURE_BYTES]);
/* Nothing is added any more: the thread begins to write what waits. NULL is allowed. */
void served_end(struct served *served);
/* After served_end: returns when all lines are written or lost, within some seconds. NULL is allowed. */
void served_finish(struct served *served);
/* Does served_end and served_finish, unless they were done. NULL is allowed. */
void served_close(struct served *served);

/* Inside serve/. Its option struct is a struct served_options, whose text is copied. */
extern const struct line_log_kind served_files;

#endif
