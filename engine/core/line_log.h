/* Logs of lines: where the log of what was served goes (serve/served.h). A connector that can take such lines ends a
 * file with a descriptor, as sources and sinks do (core/connector.h), and the registry names it; files are written by
 * serve itself.
 *
 * A log is no sink: it is no part of a plan, of checkpoints or of the fingerprint. Each line is in it at most once, and
 * nothing waits for it: a line that cannot be written in time is lost, and counted.
 *
 * All callbacks of one log are called by one thread at a time: open and close by the server's, write and finish by a
 * thread that the log has for itself. */
#ifndef LEAT_CORE_LINE_LOG_H
#define LEAT_CORE_LINE_LOG_H

#include "core/diag.h"
#include "core/option.h"

#include <stdatomic.h>

enum {
    LINE_LOG_CONFIG_BYTES = 512,  /* of an option struct at most */
    LINE_LOG_FAILURE_BYTES = 640, /* of a failure's text at most, with its end */
};

/* What became of lines since the last call. */
struct line_log_settled {
    uint64_t written, lost;
    /* Why lines were lost, where, and what to do, for the user; empty: none was, or the reason is known already. */
    char failure[LINE_LOG_FAILURE_BYTES];
};

struct line_log_open {
    const void *config;   /* the option struct, bound and checked; outlives the log */
    struct str job, name; /* of the job and of its `serve`; outlive the log */
    struct diag_list *diags;
};

struct line_log_kind {
    const char *name; /* in messages: "a topic of Kafka" */
    /* What a job says in `log: { ... }` to choose this kind, and its size, at most LINE_LOG_CONFIG_BYTES. No row is
     * required, since a job may choose another kind. NULL, 0: the kind is not chosen by options. */
    const struct option *options;
    size_t size;
    const char *choice; /* the option that chooses this kind, by a text that is not empty */
    /* Whether the options go together; span: for messages. Connects to nothing. false after a diagnostic. */
    bool (*check)(const void *config, struct span span, struct diag_list *diags);
    /* Does not wait for anybody else: a broker may be away. NULL after a diagnostic. */
    void *(*open)(const struct line_log_open *open);
    /* Takes `count` lines, each with its newline; 0: only asks what became of earlier ones. Adds to *settled, which is
     * zeroed. What is taken and not settled waits within the log, in bounded memory. is_ending: becomes true when
     * `finish` is to follow within some seconds. */
    void (*write)(void *log, struct str lines, uint32_t count, const atomic_bool *is_ending,
                  struct line_log_settled *settled);
    /* Settles all that waits, within some seconds: what is not written then is lost. */
    void (*finish)(void *log, struct line_log_settled *settled);
    void (*close)(void *log);
};

#endif
