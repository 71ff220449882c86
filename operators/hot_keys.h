/* Keys that many rows have: work under a key grows with its rows, and all of it is one lane's. Such a key is
 * named in the report, never dealt with in silence. For people only: no row depends on it. Checkpoints have
 * it, so that a run that is resumed says what one that never ended would. */
#ifndef LEAT_OPERATORS_HOT_KEYS_H
#define LEAT_OPERATORS_HOT_KEYS_H

#include "operators/keys.h"

/* One for a lane. */
struct hot_keys;
struct hot_keys *hot_keys_new(void);
void hot_keys_free(struct hot_keys *hot); /* NULL is allowed */

/* keys: of the batch's selected rows, by these columns. */
void hot_keys_note(struct hot_keys *hot, const struct batch *batch, const int *columns,
                   uint32_t columns_count, const struct row_keys *keys);
/* Writes a record whose first byte is `kind`. */
bool hot_keys_snapshot(const struct hot_keys *hot, char kind, const struct operator_context *context,
                       struct snapshot_writer *writer);
/* Takes in such a record: what it says of the keys and key groups of this lane. false + diagnostics: it is
 * none. */
bool hot_keys_restore(struct hot_keys *hot, const struct operator_context *context,
                      struct snapshot_reader *reader, struct str record);
/* Adds `hot_key`, and about how many rows it has, where one stands out. hot: NULL is allowed. */
void hot_keys_report(struct hot_keys *hot, struct report *report);

#endif
