/* Figures of an operator's report that go on through checkpoints, summed over its lanes. The counters are
 * separate: they say what became of each row. */
#ifndef LEAT_OPERATORS_TALLY_H
#define LEAT_OPERATORS_TALLY_H

#include "core/operator_state.h"

enum { TALLY_VALUES = 6 };

struct tally {
    uint64_t epoch; /* of the checkpoint that the values were restored from */
    uint64_t values[TALLY_VALUES];
};

/* What the report says of one value. A value without a name is not used. */
struct tally_figure {
    const char *name;
    bool is_rare; /* reported only where it is not 0 */
};

/* A struct tally as a member of an operator's state. Lane 0 gets the sum of the lanes' values at a restore.
 * figures: an array of TALLY_VALUES struct tally_figure, one for each value. */
extern const struct state_kind state_tally;
#define STATE_TALLY(structure, member, tag_, figures)                                                        \
    {                                                                                                        \
        .kind = &state_tally, .offset = OFFSET_OF(structure, member, struct tally), .tag = tag_,             \
        .argument = figures                                                                                  \
    }

#endif
