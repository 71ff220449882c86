/* Rows of another stream by key and event time, as the value of a keyed entry: `enrich` reads the newest of
 * them, `attribute` the first, the last or all within an interval.
 *
 *     head | version | version ...       rising by time; equal times in the order in which they came
 *
 * A version is a head of 16 bytes, the row's values (rows/codec.h) and up to 7 bytes to the next multiple
 * of 8. The head stores the length of the version before, so that readers can begin at the newest version:
 * most look for a recent one. The operator decides which versions a reader may see, and must not show a
 * version that could have been dropped already. */
#ifndef LEAT_OPERATORS_ROWS_VERSIONS_H
#define LEAT_OPERATORS_ROWS_VERSIONS_H

#include "core/operator.h"
#include "operators/expr/expr.h"
#include "operators/rows/codec.h"
#include "state/state.h"

/* VERSIONS_BYTES_MAX: bytes of an entry. VERSION_BYTES_MAX: a row with more bytes of values cannot be kept.
 * VERSION_COLUMNS_MAX: columns of a version. */
enum { VERSIONS_BYTES_MAX = 6 << 20, VERSION_BYTES_MAX = 2 << 20, VERSION_COLUMNS_MAX = 256 };

struct version {
    int64_t time;    /* event time of the row, microseconds */
    uint32_t bytes;  /* of the values */
    uint32_t before; /* bytes of the whole version before this one; 0: there is none */
    char data[];
};

/* The newest version, or NULL. slot: NULL or any entry of the table. Versions lie in the entry: pointers to
 * them are valid within a bracket (state/state.h), until the entry is changed. */
const struct version *versions_last(const struct keyed_slot *slot);
/* The version before this one, or NULL. */
const struct version *version_before(const struct version *version);
/* The version behind this one, which must not be the last. */
const struct version *version_after(const struct version *version);

/* A version to be added. */
struct version_new {
    int64_t time;        /* event time of the row, microseconds */
    struct str data;     /* the row's values, by version_encode */
    int64_t expire_us;   /* the entry expires at this time or later */
    bool replaces_equal; /* replaces a version of the same time */
    /* Versions before the newest one with time <= floor_us are not needed any more. */
    int64_t floor_us;
};
/* Adds a version behind those of the same time, inside a bracket. Returns how many versions that were still
 * needed had to be dropped, the oldest first, to keep the entry within VERSIONS_BYTES_MAX. */
uint32_t versions_add(struct keyed_table *table, struct keyed_slot *slot, const struct version_new *new);

/* Removes the versions first .. last from their entry, inside a bracket. */
void versions_remove(struct keyed_table *table, struct keyed_slot *slot, const struct version *first,
                     const struct version *last);
/* Whether a version with `bytes` bytes of values fits into an entry of at most `limit` bytes. */
bool versions_have_room(const struct keyed_slot *slot, size_t bytes, size_t limit);
/* The first version of an entry, or NULL. */
const struct version *versions_first(const struct keyed_slot *slot);

/* The columns that come from the other stream: expressions over its rows, stored as bytes in versions, and
 * output as columns behind those of the reader. */
struct version_columns {
    struct expr **exprs;
    struct type *types;
    struct str *names;
    struct span *spans;       /* of the names */
    struct lineage *lineages; /* of the values alone */
    uint32_t count;
};

/* Compiles the body against the other stream's schema. Returns false after diagnostics. */
bool version_columns_bind(struct operator_bind *bind, const struct assignments *body,
                          const struct schema *schema, struct version_columns *columns);
/* Adds the columns to `output`. chosen: lineage that each column gets beside its own; from: the other
 * stream's schema, whose rows_lineage each column gets as well. Returns false after diagnostics: a name is
 * taken, or there are too many columns. */
bool version_columns_add(struct operator_bind *bind, const struct version_columns *columns,
                         const struct lineage *chosen, const struct schema *from, struct schema *output);
/* Appends a line "=value NAME: EXPRESSION, TYPE" for each column, for `operator_kind.shape`. */
void version_columns_shape(struct operator_bind const *bind, const struct version_columns *columns,
                           const struct assignments *body, struct byte_buffer *out);

/* Computes the columns for the selected rows of a batch of the other stream. They lie in `scratch`, and may
 * share data with the batch. Rows for which an expression fails are added to `errors`. */
struct column *version_columns_evaluate(const struct version_columns *columns, const struct batch *batch,
                                        struct arena *scratch, struct expr_errors *errors);
/* Appends the encoded values of a row. values: result of version_columns_evaluate; row: physical. */
void version_encode(const struct version_columns *columns, const struct column *values, uint32_t row,
                    struct byte_buffer *out);

/* Builders for the columns in `batch`, the first of which is batch->columns[first]. They lie in `scratch`;
 * the caller calls builder_finish for each. */
struct column_builder *version_builders(const struct version_columns *columns, struct batch *batch,
                                        uint32_t first, struct arena *scratch);
/* Sets a row of the columns to the version's values; to nulls if `version` is NULL, and from the first value
 * on whose bytes are not valid. */
void version_read(const struct version_columns *columns, struct column_builder *builders, uint32_t row,
                  const struct version *version);

struct describe;
/* For `leat state get`: writes the versions as a list of times and values. */
void versions_describe(const struct version_columns *columns, const struct keyed_slot *slot, const char *name,
                       struct operator_context *context, struct describe *out);

#endif
