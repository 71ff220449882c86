/* Keyed tables and time queues as members of an operator's state (core/operator_state.h). The member is a
 * struct keyed_table * or a struct time_queue *; the row's tag becomes the kind of its records. */
#ifndef LEAT_STATE_MEMBERS_H
#define LEAT_STATE_MEMBERS_H

#include "core/operator_state.h"
#include "state/state.h"

extern const struct state_kind state_table, state_queue;

/* plan: how much memory the table gets, or that it is absent; NULL: all of the operator's memory. The sizes
 * of all tables of an operator are summed in its report, as state_bytes, state_entries and so on. */
#define STATE_TABLE(structure, member, tag_, plan_)                                                          \
    {                                                                                                        \
        .kind = &state_table, .offset = OFFSET_OF(structure, member, struct keyed_table *), .tag = tag_,     \
        .plan = plan_                                                                                        \
    }
/* A table whose bytes are reported apart from those of the other tables, as `figure`. */
#define STATE_TABLE_APART(structure, member, tag_, plan_, figure_)                                           \
    {                                                                                                        \
        .kind = &state_table, .offset = OFFSET_OF(structure, member, struct keyed_table *), .tag = tag_,     \
        .plan = plan_, .figure = figure_                                                                     \
    }
/* plan: like a table's, and sets bucket_us. figure: name of the queue's bytes in the report. */
#define STATE_QUEUE(structure, member, tag_, plan_, figure_)                                                 \
    {                                                                                                        \
        .kind = &state_queue, .offset = OFFSET_OF(structure, member, struct time_queue *), .tag = tag_,      \
        .plan = plan_, .figure = figure_                                                                     \
    }

#endif
