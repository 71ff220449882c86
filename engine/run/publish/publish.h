/* Publishes what changes the answers of a job's `serve`s while it runs, for followers (`leat serve`) that read along: an
 * entry of the delta log (core/delta_log.h) for each micro-batch and instance of a stage that has nodes on the way of a
 * request. Nothing is published unless somebody follows.
 *
 * An entry of kind PUBLISH_BATCH has a struct publish_head, then records, each a struct publish_record and its bytes,
 * padded to a multiple of 8. Its `part` is the stage, its number the micro-batch. In the order of the plan:
 *   PUBLISH_SOURCES  watermarks of all sources behind the micro-batch, then the arrival clock (int64, microseconds)
 *   PUBLISH_ROWS     a batch of rows that the node got at `input` (core/batch_codec.h), for FOLLOWING_ROWS: of the
 *                    inputs whose rows become part of the state, the columns that this takes (publish_columns_of)
 *   PUBLISH_END      the node has no more rows in this micro-batch; the watermark of its input (int64)
 *   PUBLISH_CUT      what a learner changed since its cut before (operator_kind.cut)
 * An entry of kind PUBLISH_REST has a cut that was taken while the learner had nothing to do; its number is the last
 * micro-batch that the learner's stage ran. PUBLISH_BEAT says that all before it is there. After PUBLISH_ENDED this life
 * publishes nothing more. */
#ifndef LEAT_RUN_PUBLISH_PUBLISH_H
#define LEAT_RUN_PUBLISH_PUBLISH_H

#include "run/base/base.h"

#include "core/buffer.h"

enum { PUBLISH_VERSION = 1 };
enum publish_entry { PUBLISH_BATCH = 1, PUBLISH_REST = 2, PUBLISH_BEAT = 3, PUBLISH_ENDED = 4 };
enum publish_kind { PUBLISH_SOURCES = 1, PUBLISH_ROWS = 2, PUBLISH_END = 3, PUBLISH_CUT = 4 };

struct publish_head {
    uint32_t version, stage;
    uint32_t instance, instances;
};

struct publish_record {
    uint32_t node;
    uint16_t kind, input;
    uint64_t bytes; /* without the padding */
};

/* Which columns of a node's input are published, in the arena; NULL: none of it. For nodes of FOLLOWING_ROWS. */
const bool *publish_columns_of(const struct plan_node *node, uint32_t input, struct arena *arena);

/* Makes run->publisher if the job can be followed; else it stays NULL. Call when the checkpoint directory is open. */
void publish_init(struct run *run);
/* Starts the thread that looks for followers. False, without a diagnostic: the system refuses it. */
bool publish_start(struct run *run);
/* Ends the thread and the log; call when the lanes have ended. */
void publish_end(struct run *run);
void publish_free(struct run *run);

/* --- Any thread, where run->publisher is not NULL --- */

/* Whether the micro-batch that is formed now is to be published. */
bool publish_is_on(const struct run *run);
enum operator_following publish_following(const struct run *run, uint32_t node);
const bool *publish_columns(const struct run *run, uint32_t node, uint32_t input);
/* How often a learner is to be cut, at most, microseconds. */
int64_t publish_every_us(const struct run *run);
/* Appends an entry to the log. */
void publish_append(struct run *run, enum publish_entry kind, uint32_t stage, uint64_t micro_batch,
                    struct str bytes);
/* Ends publishing for this life: a node cannot be followed after all. */
void publish_refuse(struct run *run);

/* Appends a record to an entry's bytes. */
void publish_put(struct byte_buffer *entry, const struct publish_record *record, const void *bytes);
/* Begins a record whose bytes the caller appends; returns its place in the entry. publish_finish ends it. */
size_t publish_begin(struct byte_buffer *entry, const struct publish_record *record);
void publish_finish(struct byte_buffer *entry, size_t place);

#endif
