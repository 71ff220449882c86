/* Hot keys: keys of very many rows. All work for a key is done by one lane and grows with the key's rows, so
 * a hot key is named in the report. The figures are for people only; no row depends on them. They are part of
 * checkpoints, so that a resumed run reports the same as an uninterrupted one. */
#ifndef LEAT_OPERATORS_HOT_KEYS_H
#define LEAT_OPERATORS_HOT_KEYS_H

#include "operators/keys.h"

/* One per operator and lane. */
struct hot_keys;
/* A struct hot_keys * as a member of an operator's state. If a key is hot, the report has `hot_key` (a line)
 * and `hot_key_rows_max` (about how many rows the key has). */
extern const struct state_kind state_hot_keys;
#define STATE_HOT_KEYS(structure, member, tag_)                                                              \
    {                                                                                                        \
        .kind = &state_hot_keys, .offset = OFFSET_OF(structure, member, struct hot_keys *), .tag = tag_      \
    }

/* Counts the selected rows of a batch. keys: their keys, made from these columns. */
void hot_keys_note(struct hot_keys *hot, const struct batch *batch, const int *columns,
                   uint32_t columns_count, const struct row_keys *keys);

#endif
