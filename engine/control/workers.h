/* The workers of a cluster in the figures of a run: as JSON, as text, and read again. */
#ifndef LEAT_CONTROL_WORKERS_H
#define LEAT_CONTROL_WORKERS_H

#include "run/run.h"

#include <jansson.h>

/* The member `cluster` of the figures; NULL: the run is alone. The caller owns it. */
json_t *workers_json(const struct run_stats *stats);
/* The same, read from outside: sets what stats has of workers; texts lie in the arena. NULL: there are none. */
void workers_read(const json_t *cluster, struct run_stats *stats, struct arena *arena);

/* How many lines workers_line has; 0: the run is alone. */
uint32_t workers_lines(const struct run_stats *stats);
/* Appends a line without its newline: of the job's head, then of each worker whose figures are there. */
void workers_line(const struct run_stats *stats, uint32_t line, struct byte_buffer *out);

#endif
