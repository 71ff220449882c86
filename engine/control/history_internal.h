/* What history.c, which keeps the rings, and history_file.c, which keeps their file, share. */
#ifndef LEAT_CONTROL_HISTORY_INTERNAL_H
#define LEAT_CONTROL_HISTORY_INTERNAL_H

#include "control/history.h"

enum { HISTORY_NO_SLOT = -1 };

struct row {
    uint64_t digest; /* of the rest of the row, with its place as the seed */
    uint64_t tick;
    int64_t wall_us;
    uint32_t covers;  /* ticks, of which `tick` is the last */
    uint32_t seconds; /* that were seen: the weight of the row's means; 0: there is no row here */
    float values[];
};

/* What the next row of a ring is made of. */
struct roll_up {
    uint64_t tick; /* of the row to be */
    int64_t wall_us;
    uint32_t seconds;    /* 0: nothing yet */
    double *sums;        /* of each value; HISTORY_LAST, HISTORY_MAX: the value to be */
    uint32_t *known_for; /* seconds for which each value is known */
};

struct ring {
    char *rows;
    uint64_t count; /* of rows so far; the row i is at i modulo the ring's size */
    int dirty;      /* slot of a row that is not on disk yet; HISTORY_NO_SLOT: none */
};

struct history {
    pthread_mutex_t mutex; /* guards the rings, now_tick and is_on_disk */
    struct history_column *columns;
    uint32_t columns_count;
    size_t row_bytes, bytes;
    char *memory;
    struct ring rings[HISTORY_RINGS];
    struct roll_up ups[HISTORY_RINGS]; /* ups[i] gathers rows of ring i - 1; ups[0] is not used */
    uint64_t base, now_tick;           /* ticks by the time it was opened, and by now */
    bool is_on_disk;
    int fd; /* -1: none */
    size_t head_bytes;
    char *path; /* NULL: in memory alone */
};

/* history.c. Rows have indexes, from 0, that rise as the ring goes round. */
struct row *history_row(const struct history *history, uint32_t ring, uint64_t index);
uint64_t history_oldest(const struct history *history, uint32_t ring);
/* Bytes of the rows of all rings below `ring`, and of `slot` rows of it. */
uint64_t history_rows_bytes(size_t row_bytes, uint32_t ring, uint64_t slot);
uint64_t history_row_digest(const struct row *row, size_t row_bytes, uint32_t ring, uint64_t slot);
/* A place for a row behind the newest; the caller fills it and calls history_row_end. */
struct row *history_row_begin(struct history *history, uint32_t ring);
void history_row_end(struct history *history, uint32_t ring, struct row *row);

/* history_file.c. Control thread. Takes over the rows that an earlier life left. */
void history_file_load(struct history *history, struct byte_buffer *said);
/* Writes all rows to a new file, which replaces the old one. */
void history_file_begin(struct history *history, struct byte_buffer *said);
/* Writes the rows that are not on disk yet, if there is a file. */
void history_file_write(struct history *history, struct byte_buffer *said);

#endif
