/* What a run did over time: eight figures of the run and of each of its nodes, in rings of three resolutions.
 *
 *   ring   a row for each   rows
 *   1h     second           3600
 *   12h    10 seconds       4320
 *   30d    10 minutes       4320
 *
 * A row has a head of 32 bytes, and 32 bytes for each column: eight floats. Column 0 is the run's, the others are the
 * nodes'. 12,240 rows of 257 columns are 96.4 MiB (256 nodes); a run of ten nodes has 4.5 MiB. The memory is mapped when
 * the history is opened, counts not to the job's `memory`, and is taken up as rows are written.
 *
 * Rows are ordered by their tick, which counts seconds (tens of seconds, ten minutes) by the monotonic clock and never
 * falls; a row carries the wall clock's time, but nothing is ordered by it. Ticks without a row are a gap. Between two
 * lives of a job, ticks go on by what the wall clock says has passed, or by two if it was set back.
 *
 * Ten rows become one of the ring above, sixty of those one of the highest: HISTORY_MEAN is the mean over the seconds for
 * which the figure is known, HISTORY_LAST the last known value, HISTORY_MAX the highest. What is not known is NaN.
 *
 * On disk, with checkpoints: DIR/history, beside them and no part of any.
 *
 *     struct history_head, names of the columns, padded to 32 bytes; then the rings, each row at its place
 *
 * Each row is written as it is made, with a digest of its bytes and its place; the head has a digest, too. Opening reads
 * the file, and writes the rows that are whole to a new one, which replaces it: so a process that was replaced
 * (--take-over) and still writes harms nothing. Columns are taken over by name and meaning: a node that a changed job no
 * longer has is dropped, one that is new is not known in older rows. A row whose digest is wrong is left out, and becomes a
 * gap; a row that a kill has torn is the one behind the newest, and is not worth a word. A file whose head is wrong, or is
 * of another version or size, is begun anew. If the file cannot be written, the history goes on in memory alone. */
#ifndef LEAT_CONTROL_HISTORY_H
#define LEAT_CONTROL_HISTORY_H

#include "core/buffer.h"

#include <pthread.h>

enum {
    HISTORY_FIGURES = 8,
    HISTORY_RINGS = 3,
    HISTORY_ROWS_MAX = 4320, /* of a ring */
    HISTORY_COLUMNS_MAX = 257,
    HISTORY_VERSION = 1
};

struct history_ring {
    const char *span; /* "1h" */
    uint32_t seconds; /* of a tick */
    uint32_t rows;
};
extern const struct history_ring history_rings[HISTORY_RINGS];

enum history_roll { HISTORY_MEAN, HISTORY_LAST, HISTORY_MAX };

struct history_column {
    const char *name; /* of a node: plan_node.part; of the run: "" */
    uint32_t meaning; /* which figures the column has: a column of another meaning is another one */
    enum history_roll rolls[HISTORY_FIGURES];
};

struct history;

/* Any thread, but for opening and closing. columns: copied, but for the names, which must outlive the history. directory:
 * of the checkpoints, NULL: in memory alone. wall_us: of now. Appends to `said` what the user must know, lines without a
 * prefix. NULL: there is no memory; `said` says so. */
struct history *history_open(const char *directory, const struct history_column *columns, uint32_t count,
                             int64_t wall_us, struct byte_buffer *said);
void history_close(struct history *history); /* NULL is allowed */

/* Adds a row of the first ring. tick: seconds since the history was opened, from 1; ticks rise. covers: ticks for which the
 * row stands, of which `tick` is the last, 1 or more. values: HISTORY_FIGURES for each column. */
void history_add(struct history *history, uint64_t tick, uint32_t covers, int64_t wall_us,
                 const float *values, struct byte_buffer *said);

struct history_ask {
    uint32_t ring, column;
    /* Without both, rows of the ring's last span are given; with one of them, all rows of the ring with wall times of
     * from_us and later, before to_us. */
    bool has_from, has_to;
    int64_t from_us, to_us;
};

struct history_point {
    uint64_t tick;
    int64_t wall_us;
    bool
        is_gap; /* stands for ticks without a row, from this one on; its values are NaN, its time is computed */
    float values[HISTORY_FIGURES];
};
enum { HISTORY_POINTS_MAX = 2 * HISTORY_ROWS_MAX };

/* Fills points (room for HISTORY_POINTS_MAX), in the order of ticks; returns how many. */
uint32_t history_read(struct history *history, const struct history_ask *ask, struct history_point *points);
/* Whether rows go to the disk. */
bool history_is_on_disk(struct history *history);

#endif
