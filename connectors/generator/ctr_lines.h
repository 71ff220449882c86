/* One output file of `leat generate`: JSON lines, with planted and counted duplicates, late lines and
 * malformed lines. The file gets its name when it is complete (core/replacement.h). One thread. */
#ifndef LEAT_CONNECTORS_GENERATOR_CTR_LINES_H
#define LEAT_CONNECTORS_GENERATOR_CTR_LINES_H

#include "core/buffer.h"
#include "core/diag.h"
#include "core/replacement.h"

/* The share of the rows that ... */
struct ctr_plants {
    double duplicates; /* are written twice, the second time 1 to 4 rows later */
    double late;       /* are written late_ms of event time too late, with their own time */
    double malformed;  /* have a malformed line before them, which is not counted as a row */
    int64_t late_ms;
    int64_t late_before_ms; /* rows from this time on are never late: the file may end before their turn */
};

struct ctr_line_counts {
    uint64_t lines, rows, duplicates, late, malformed;
};

struct held_line {
    struct held_line *next;
    int64_t ts_ms;
    uint64_t due; /* duplicates: row number before which the line is written */
    size_t length;
    char text[];
};

struct held_lines {
    struct held_line *first, **end;
    size_t count;
};

enum { CTR_LINE_BYTES_MAX = 512, CTR_HELD_MAX = 1 << 20, CTR_DUPLICATE_DISTANCE_MAX = 4 };

struct ctr_lines {
    const struct ctr_plants *plants;
    uint64_t seed, purpose; /* for the random numbers of planted lines */
    struct ctr_line_counts counts;
    int64_t greatest_ms; /* greatest event time of the lines written so far */
    struct held_lines late, again[CTR_DUPLICATE_DISTANCE_MAX]; /* again[k]: duplicates, k + 1 rows later */
    struct byte_buffer out;
    struct replacement file;
    char *path; /* malloc'd */
    struct diag_list *diags;
    bool has_failed; /* a diagnostic was added; nothing more is written */
};

/* Begins the file DIRECTORY/NAME, which gets that name when it is finished. plants, seed and purpose are set
 * before, all other members are zero. is_forced: an existing file will be replaced. Returns false after a
 * diagnostic. */
bool ctr_lines_open(struct ctr_lines *lines, const char *directory, const char *name, bool is_forced,
                    struct diag_list *diags);
/* Room for one line of at most CTR_LINE_BYTES_MAX bytes: write it there, newline included, and pass its
 * length to ctr_lines_add. */
char *ctr_lines_room(struct ctr_lines *lines);
/* Adds the line. ts_ms: its event time. broken_at: offset of the number after `"ts":`, which a malformed line
 * made from this line may replace. */
void ctr_lines_add(struct ctr_lines *lines, size_t length, int64_t ts_ms, size_t broken_at);
/* Writes held lines and gives the file its name. Returns false after a diagnostic. */
bool ctr_lines_finish(struct ctr_lines *lines);
/* Call it always, even without ctr_lines_open; removes an unfinished file. */
void ctr_lines_close(struct ctr_lines *lines);

#endif
