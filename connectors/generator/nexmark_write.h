/* `leat generate nexmark`: writes events as JSON lines, one flat record per line. One thread. */
#ifndef LEAT_CONNECTORS_GENERATOR_NEXMARK_WRITE_H
#define LEAT_CONNECTORS_GENERATOR_NEXMARK_WRITE_H

#include "connectors/generator/nexmark_event.h"
#include "core/diag.h"

/* Upper bound of an event's line. */
enum { NEXMARK_LINE_BYTES = 2 * NEXMARK_TEXT_BYTES };

struct nexmark_write_options {
    struct nexmark_options events;
    int64_t count; /* events of the whole stream, of all parts */
    /* Write only the groups of 50 events whose number modulo `parts` is `part`, for topics with several
     * partitions. The lines are the same as in the whole file. */
    int64_t part, parts;
    const char *path; /* "-": standard output */
    bool is_forced;   /* replace an existing file */
    /* Called regularly; may be NULL. */
    void (*on_progress)(uint64_t done, uint64_t total);
};

/* Writes the event's line, newline included, at `at` (room: NEXMARK_LINE_BYTES). Returns its end. */
char *nexmark_line(const struct nexmark_event *event, char *at);

/* Returns false after diagnostics; a file has its final name only if it is complete. */
bool nexmark_write(const struct nexmark_write_options *options, struct diag_list *diags);

#endif
