/* Hot keys: keys of very many rows. All work for a key is done by one lane and grows with the key's rows, so
 * a hot key is named in the report. The figures are for people only; no row depends on them. They are part of
 * checkpoints, so that a resumed run reports the same as an uninterrupted one. */
#ifndef LEAT_OPERATORS_HOT_KEYS_H
#define LEAT_OPERATORS_HOT_KEYS_H

#include "operators/keys.h"

/* One per operator and lane. */
struct hot_keys;
struct hot_keys *hot_keys_new(void);
void hot_keys_free(struct hot_keys *hot); /* NULL is allowed */

/* Counts the selected rows of a batch. keys: their keys, made from these columns. */
void hot_keys_note(struct hot_keys *hot, const struct batch *batch, const int *columns,
                   uint32_t columns_count, const struct row_keys *keys);
/* Writes a record whose first byte is `kind`. */
bool hot_keys_snapshot(const struct hot_keys *hot, char kind, const struct operator_context *context,
                       struct snapshot_writer *writer);
/* Adds such a record: its figures for the keys and key groups of this lane. False after a diagnostic: the
 * record is malformed. */
bool hot_keys_restore(struct hot_keys *hot, const struct operator_context *context,
                      struct snapshot_reader *reader, struct str record);
/* Where a key is hot, adds `hot_key` (a line) and `hot_key_rows_max` (its rows, about). hot: may be NULL. */
void hot_keys_report(struct hot_keys *hot, struct report *report);

#endif
