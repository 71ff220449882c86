/* Snapshots: how the parts of a job put their state into a checkpoint and take it back.
 *
 * Writing happens in two steps. At the barrier, on the lane, `snapshot` is called: it writes what is small at
 * once (snapshot_put) and hands over a job for what is large (snapshot_defer), which the checkpoint's writer
 * thread runs while the lane goes on; the part must make sure by itself (copy on write) that the job sees the
 * state of the barrier. Everything is tagged with a key group, or SNAPSHOT_GLOBAL, so that it can be restored
 * at another number of lanes. Integers are stored little-endian as they are (leat runs on little-endian
 * machines only).
 *
 * Restoring: each instance gets every section of its part, in the order of writing (base, then deltas), and
 * takes the groups that it owns. */
#ifndef LEAT_CORE_SNAPSHOT_H
#define LEAT_CORE_SNAPSHOT_H

#include "core/diag.h"

enum { SNAPSHOT_GLOBAL = UINT32_MAX };

struct snapshot_writer;

/* One record of at most 16 MiB. false: the disk refused; the checkpoint is abandoned, the caller just
 * returns. */
bool snapshot_put(struct snapshot_writer *writer, uint32_t key_group, const void *data, size_t bytes);

/* Runs write(argument, writer) on the writer thread, then done(argument, published) once the checkpoint is
 * published or abandoned (also on the writer thread). The owner must not free what they use before `done`. */
typedef bool snapshot_job(void *argument, struct snapshot_writer *writer);
typedef void snapshot_done(void *argument, bool is_published);
void snapshot_defer(struct snapshot_writer *writer, snapshot_job *write, snapshot_done *done, void *argument);
/* For a job that returns false although the disk does its work: why, for the message; valid until `done`. */
void snapshot_refuse(struct snapshot_writer *writer, const char *why);

/* The epoch that this checkpoint closes; rises by one with each barrier. */
uint64_t snapshot_epoch(const struct snapshot_writer *writer);
/* Whether to write everything (a base) or what changed since the last published checkpoint. */
bool snapshot_is_base(const struct snapshot_writer *writer);

struct snapshot_reader;

/* The next record; false at the end. The data is valid until the next call. */
bool snapshot_get(struct snapshot_reader *reader, uint32_t *key_group, struct str *data);
/* For a record whose content is impossible: reports it with file and offset. */
void snapshot_corrupt(struct snapshot_reader *reader, struct diag_list *diags, const char *what);
/* The lanes and the lane this instance is: it owns the groups with key_lane(group, lanes) == lane. */
uint32_t snapshot_lane(const struct snapshot_reader *reader);
uint32_t snapshot_lanes(const struct snapshot_reader *reader);

#endif
