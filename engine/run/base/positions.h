/* Reads the source positions that a checkpoint holds (checkpoint_info.sources), for all but the sequencer,
 * which saves and restores them (sequencer/partitions.c). They are encoded in words (words.h). The bytes
 * come from outside and may be damaged. Any thread. */
#ifndef LEAT_RUN_BASE_POSITIONS_H
#define LEAT_RUN_BASE_POSITIONS_H

#include "core/connector.h"
#include "plan/plan.h"
#include "run/base/words.h"

struct trace;

/* Version 7: sources with offsets have the next offset to read. Up to 6: the offset of a batch, and a count
 * of its records. */
enum { POSITIONS_VERSION = 7 };

/* The first word of the positions. With POSITIONS_ENDED, the words behind the partitions are the ids of the nodes that
 * were done by then (plan_node.goes_on), and before them how many they are. With POSITIONS_GO_ON there may be one word there:
 * positions_until. */
enum positions_state {
    POSITIONS_GO_ON,
    POSITIONS_FINAL, /* all sources have ended, and no operator has work left: the run has finished */
    POSITIONS_ENDED, /* all sources have ended, and operators may have work left */
};

/* The members of struct partition (sequencer/internal.h) that a checkpoint has. The texts point into the
 * saved bytes. mark: of source_kind.mark. keys: of key_times_save. */
struct saved_partition {
    uint64_t source;
    struct str name, mark, keys;
    bool has_offsets;
    int64_t marked;
    struct source_position resume;
    uint32_t resume_rows, since_cut;
    int64_t order_max, event_max;
    bool has_event, has_own_order, is_idle;
    uint64_t records;
};

/* Reads the next partition. If the bytes end too early, the result is zeroed and saved->is_short is set. */
struct saved_partition saved_take_partition(struct words *saved);

/* Writes the saved watermark of each source of the plan, in microseconds, to sources[0 ..], and the
 * arrival clock to sources[sources_count]. TIME_MIN for sources that `positions` do not have. */
void positions_watermarks(struct str positions, const struct plan *plan, int64_t *sources);
/* Number of the first micro-batch after these positions; UINT64_MAX: they are of another format version. */
uint64_t positions_micro_batch(struct str positions);
/* Whether the record that `trace` follows comes behind these positions: no micro-batch had it yet. */
bool positions_are_before(struct str positions, const struct plan *plan, const struct trace *trace);
/* Whether the run had finished at these positions, or all sources had ended at least. */
enum positions_state positions_state(struct str positions);
/* The --until at which a run has ended with these positions: its sources had no more rows below that time. TIME_MIN: it has not, or has
 * sources that gain rows while they are read. */
int64_t positions_until(struct str positions);

#endif
