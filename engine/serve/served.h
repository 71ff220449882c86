/* The log of what was served: lines of JSON in files PATH-000001.jsonl, PATH-000002.jsonl, ... A thread writes; nobody
 * waits for it. Each line is in the log at most once: lines that find the buffer full, or that cannot be written, are
 * lost and counted. */
#ifndef LEAT_SERVE_SERVED_H
#define LEAT_SERVE_SERVED_H

#include "core/buffer.h"
#include "core/diag.h"

enum { SERVED_BUFFER_BYTES = 8 << 20, SERVED_WRITE_MS = 100 };

struct served_options {
    struct str path;      /* without the number */
    int64_t rotate_bytes; /* a file that is longer is followed by a new one */
    int64_t keep;         /* files that are kept; 0: all */
};

struct served_counts {
    uint64_t lines, lost; /* written; neither written nor waiting */
};

struct served;

/* Makes the path's directories and the first file, whose number is above all that are there. The options are copied,
 * with their text. NULL after a diagnostic. */
struct served *served_open(const struct served_options *options, struct diag_list *diags);
/* Takes `count` lines, each with its newline; false: they are lost. One thread. */
bool served_add(struct served *served, struct str lines, uint32_t count);
struct served_counts served_counts(struct served *served);
/* The errno of the last write or new file that failed since the last call; 0: none. */
int served_error(struct served *served);
/* Writes what waits. NULL is allowed. */
void served_close(struct served *served);

#endif
