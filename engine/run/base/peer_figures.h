/* Figures of a job on several workers: each worker that does not lead sends those of its part, and the leader adds them to its own.
 *
 * What is added: counters, records, lanes, bytes of the last checkpoint, bytes read and sent to the store, items of reports. What is a maximum: the longest
 * stops of lanes, the fullest queue of a stage, and the items of reports that `joins` (peer_figures.c) names. Notes of sinks and
 * errors are of the first worker that has one. What is told of each worker, and not added: run_stats.per_worker. All else - watermarks,
 * micro-batches, the time - the leader knows for the job.
 *
 * A message has at most FIGURES_BYTES_MAX bytes; items of reports that would exceed FIGURES_ITEMS_BYTES are left out. The leader keeps
 * two messages of each worker. */
#ifndef LEAT_RUN_BASE_PEER_FIGURES_H
#define LEAT_RUN_BASE_PEER_FIGURES_H

#include "run/base/base.h"
#include "run/base/words.h"

enum {
    FIGURES_BYTES_MAX = 1 << 20,
    FIGURES_ITEMS_BYTES = 1 << 19,
    FIGURES_TEXT_BYTES = 512, /* of a text, with the NUL behind it; longer ones are cut */
};

/* Control thread, while the run is built, or when it is freed; nothing to free is allowed. */
void peer_figures_init(struct run *run);
void peer_figures_free(struct run *run);

/* Appends the message of a worker's figures to `out`, which is empty. Any thread. */
void peer_figures_put(const struct run *run, const struct run_stats *stats, bool is_last,
                      struct byte_buffer *out);
/* Of a worker that does not lead: sends its figures, if a second has passed since it did so last, or if they are the last ones: the run
 * is joined, and has not failed. The last ones are sent once. Control thread. */
void peer_figures_say(struct run *run, const struct run_stats *stats);

/* Takes what follows the tag of PEER_FIGURES. False: the job cannot have it, or the worker has sent its last figures before. Any
 * thread; those of one worker one after the other. */
LEAT_CHECKED bool peer_figures_take(struct run *run, uint32_t worker, struct words *message);
/* Of the leader: adds the newest figures of all other workers. Texts of reports lie in messages, which stay until the next call.
 * Control thread. */
void peer_figures_add(struct run *run, struct run_stats *stats);
/* Implements run_has_all_figures. */
bool peer_figures_are_all(const struct run *run);

#endif
