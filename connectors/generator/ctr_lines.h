/* One output file of `leat generate`: JSON lines, among which duplicates, late and malformed ones are planted
 * and counted. The file has a name of its own (`.part`) until it is whole. One thread. */
#ifndef LEAT_CONNECTORS_GENERATOR_CTR_LINES_H
#define LEAT_CONNECTORS_GENERATOR_CTR_LINES_H

#include "core/buffer.h"
#include "core/diag.h"
#include "core/replacement.h"

/* Which share of the rows ... */
struct ctr_plants {
    double duplicates; /* is written twice, the second time 1 to 4 rows later */
    double late;       /* comes late_ms after its time, at its old time */
    double malformed;  /* has a broken line before it, which stands for no row */
    int64_t late_ms;
    int64_t late_before_ms; /* rows of this time or later are never late: the file could end too soon */
};

struct ctr_line_counts {
    uint64_t lines, rows, duplicates, late, malformed;
};

struct held_line {
    struct held_line *next;
    int64_t ts_ms;
    uint64_t due; /* duplicates: goes out before that row */
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
    uint64_t seed, purpose; /* of the planted rows' random numbers */
    struct ctr_line_counts counts;
    int64_t greatest_ms;
    struct held_lines late, again[CTR_DUPLICATE_DISTANCE_MAX]; /* again[k]: written k + 1 rows later */
    struct byte_buffer out;
    struct replacement file;
    char *path; /* malloc'd */
    struct diag_list *diags;
    bool has_failed; /* a diagnostic was added; writing goes nowhere */
};

/* Begins DIRECTORY/NAME, which has that name when it is finished; plants, seed and purpose are set before,
 * the rest is zero. false + diagnostic. is_forced: an existing file will be replaced. */
bool ctr_lines_open(struct ctr_lines *lines, const char *directory, const char *name, bool is_forced,
                    struct diag_list *diags);
/* Room for one line: write it there (at most CTR_LINE_BYTES_MAX, newline included) and give its length to
 * ctr_lines_add. */
char *ctr_lines_room(struct ctr_lines *lines);
/* broken_at: offset in the line of the number after `"ts":`, for those who plant broken ones. */
void ctr_lines_add(struct ctr_lines *lines, size_t length, int64_t ts_ms, size_t broken_at);
/* Writes what is held back and gives the file its name. false + diagnostic. */
bool ctr_lines_finish(struct ctr_lines *lines);
/* Always called, also without an open; removes a file that was not finished. */
void ctr_lines_close(struct ctr_lines *lines);

#endif
