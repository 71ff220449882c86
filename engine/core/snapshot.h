/* Snapshots: how the parts of a job write their state into a checkpoint and restore it.
 *
 * Writing has two steps. At the barrier `snapshot` is called on the lane: it writes small state at once
 * (snapshot_put) and hands over a job for large state (snapshot_defer), which the checkpoint's writer
 * thread runs while the lane goes on; the part itself must make sure (copy on write) that the job sees
 * the state as of the barrier. Each record is tagged with a key group, or SNAPSHOT_GLOBAL, so that it
 * can be restored with another number of lanes. Integers are stored as they are in memory (leat runs
 * only on little-endian machines).
 *
 * Restoring: each instance gets the records of its part in the order of writing (base, then deltas): those of its
 * own key groups (operator_context.groups), and all that are SNAPSHOT_GLOBAL. */
#ifndef LEAT_CORE_SNAPSHOT_H
#define LEAT_CORE_SNAPSHOT_H

#include "core/diag.h"

enum { SNAPSHOT_GLOBAL = UINT32_MAX };

struct snapshot_writer;

/* Writes one record of at most 16 MiB. false: the disk failed and the checkpoint is abandoned; the
 * caller just returns. */
bool snapshot_put(struct snapshot_writer *writer, uint32_t key_group, const void *data, size_t bytes);

/* Runs write(argument, writer) on the writer thread, and done(argument, is_published), also there, once the
 * checkpoint is published or abandoned. Data that the two use must not be freed before `done`. */
typedef bool snapshot_job(void *argument, struct snapshot_writer *writer);
typedef void snapshot_done(void *argument, bool is_published);
void snapshot_defer(struct snapshot_writer *writer, snapshot_job *write, snapshot_done *done, void *argument);
/* For a job that returns false although the disk works: why, for the message; the text must be
 * valid until `done`. */
void snapshot_refuse(struct snapshot_writer *writer, const char *why);

/* The epoch that this checkpoint closes; it increases by one with each barrier. */
uint64_t snapshot_epoch(const struct snapshot_writer *writer);
/* true: write the whole state (a base); false: only the changes since the last published checkpoint (a
 * delta). */
bool snapshot_is_base(const struct snapshot_writer *writer);

struct snapshot_reader;

/* Reads the next record. false: no more records. `data` is valid until the next call. */
bool snapshot_get(struct snapshot_reader *reader, uint32_t *key_group, struct str *data);
/* Reports a record with invalid content, with file and offset. */
void snapshot_corrupt(struct snapshot_reader *reader, struct diag_list *diags, const char *what);

#endif
