/* Shared by the keyed operators: keys of a batch's rows. */
#ifndef LEAT_OPERATORS_KEYS_H
#define LEAT_OPERATORS_KEYS_H

#include "core/describe.h"
#include "state/members.h"

/* One element per selected row, in order; allocated in the arena of keys_of. */
struct row_keys {
    struct key *keys;
    uint64_t *hashes;
    bool *has_null;
};

struct row_keys keys_of(const struct batch *batch, const int *columns, uint32_t columns_count,
                        struct arena *arena);

/* Resolves the columns of `by` against an input; false after diagnostics. A list cannot be a key. *indices:
 * column indices, in the arena; they also become the input's key_columns. */
bool keys_bind(struct operator_bind *bind, uint32_t input, struct columns *by, int **indices);

/* As keys_bind, against inputs 0 (*left) and 1 (*right), which both must have the columns, with equal
 * types. */
bool keys_bind_both(struct operator_bind *bind, struct columns *by, int **left, int **right);

/* Adds the lineage of an input's key columns: what a group's value tells about the row that reads it. */
void keys_lineage(const struct operator_bind *bind, uint32_t input, struct lineage *lineage);

/* For `describe`: peeks at the entry of the query's key (keyed_peek), and sets query->looked_for. Returns the entry, or
 * NULL. The caller must call keyed_peek_end. */
const struct keyed_slot *keys_peek(struct operator_context *context, struct state_query *query,
                                   struct keyed_table *table, const int *columns, uint32_t columns_count);

#endif
