/* Figures of an operator's report that go on through checkpoints, summed over its lanes. The counters are
 * separate: they say what became of each row. */
#ifndef LEAT_OPERATORS_TALLY_H
#define LEAT_OPERATORS_TALLY_H

#include "core/operator.h"

enum { TALLY_VALUES = 6 };

struct tally {
    uint64_t epoch; /* of the checkpoint that the values were restored from */
    uint64_t values[TALLY_VALUES];
};

/* Writes a snapshot record whose first byte is `kind`. */
bool tally_snapshot(const struct tally *tally, char kind, struct snapshot_writer *writer);
/* Restores such a record; lane 0 gets the sum of the newest epoch's records. Returns false after diagnostics
 * if the record is not valid. */
bool tally_restore(struct tally *tally, const struct operator_context *context,
                   struct snapshot_reader *reader, struct str record);

#endif
