/* Aggregates: what `feature` and `window` compute over the rows of a group.
 *
 * An aggregate keeps a partial for each group and pane; partials of neighbouring panes merge. A fixed partial
 * has `bytes` bytes (a multiple of 8, aligned to 8), all zero before the first row; a variable partial is a
 * string of bytes, empty before the first row. A partial depends on the rows of its pane and their order
 * alone, and a merged partial on the merged partials and their order alone. Rows whose argument (or `by`) is
 * null or NaN are left out. Callbacks run on the threads of several lanes at once, for one partial on one
 * thread at a time. */
#ifndef LEAT_OPERATORS_AGGREGATE_AGGREGATE_H
#define LEAT_OPERATORS_AGGREGATE_AGGREGATE_H

#include "core/operator.h"
#include "operators/expr/expr.h"
#include "operators/rows/codec.h"

enum { AGGREGATES_MAX = 64, AGGREGATE_ANY = -1, AGGREGATE_NONE = -2 };

struct aggregate;

/* A constant argument that follows the first one. */
enum aggregate_parameter {
    PARAMETER_NONE,
    PARAMETER_COUNT, /* an int, from 1 to parameter_max */
    PARAMETER_SHARE, /* a number from 0 to 1 */
};

/* What absorb gets of one row. argument and by are not null in this row. */
struct aggregate_row {
    const struct column *argument, *by; /* by: NULL where the kind has none */
    uint32_t row;
    int64_t time; /* event time of the row, in microseconds */
};

/* A result of absorb_here: the partial has no room for the row. */
enum { ABSORB_ELSEWHERE = UINT32_MAX };

struct aggregate_kind {
    const char *name;
    int argument;   /* type_tag of the argument; AGGREGATE_ANY: any but lists; AGGREGATE_NONE: no argument */
    int result;     /* type_tag; AGGREGATE_ANY: the argument's; TYPE_LIST: a list of the argument's */
    uint32_t bytes; /* of a fixed partial; 0: partials are variable */
    enum aggregate_parameter parameter;
    uint32_t parameter_max;
    bool has_by;          /* the last argument (int, float or time) ranks the rows */
    bool is_feature_only; /* the result depends on the event time of the row that reads it: not for windows */
    bool is_set;          /* variable: a merged partial may be as long as both parts together */
    bool is_additive;     /* fixed: a partial consists of 64-bit integers, and merging adds them */

    /* Fixed partials. update: adds a row, whose argument is not null (or the kind takes none); time: the
     * row's event time, in microseconds. merge: adds the partial of a later pane. */
    void (*update)(char *partial, const struct column *argument, uint32_t row, int64_t time);
    void (*merge)(char *into, const char *from);
    /* Sets `row` of the result. time: event time of the row that reads the result, in microseconds. */
    void (*finish)(const char *partial, int64_t time, struct column_builder *out, uint32_t row);

    /* Variable partials. absorb: adds the row to the partial, in place. */
    void (*absorb)(const struct aggregate *aggregate, struct byte_buffer *partial,
                   const struct aggregate_row *row);
    /* Like absorb, but on the partial's bytes where the pane keeps them. length, capacity: bytes used and
     * bytes of room there. Returns the new length, at most capacity; or ABSORB_ELSEWHERE: there is no room
     * for the row, and nothing changed. NULL: the kind cannot do this. */
    uint32_t (*absorb_here)(const struct aggregate *aggregate, char *partial, uint32_t length,
                            uint32_t capacity, const struct aggregate_row *row);
    /* The most bytes by which absorbing the row can lengthen the partial. NULL: the caller reckons with a few
     * KiB, and twice the length of a text. */
    uint32_t (*growth)(const struct aggregate *aggregate, struct str partial,
                       const struct aggregate_row *row);
    /* Adds the partial `from` of a later pane to `into`. */
    void (*combine)(const struct aggregate *aggregate, struct byte_buffer *into, struct str from);
    /* Sets `row` of the result. */
    void (*finish_bytes)(const struct aggregate *aggregate, struct str partial, struct column_builder *out,
                         uint32_t row);
};

/* One entry of a body: `name: aggregate(argument)`. */
struct aggregate {
    const struct aggregate_kind *kind;
    struct expr *argument; /* NULL: the kind takes none */
    struct type argument_type;
    struct expr *by; /* NULL: none; its values are in columns[by_column] */
    uint32_t by_column;
    struct type result;
    int64_t parameter;
    double share;
    struct str name;
    struct span span;
    uint32_t offset; /* in a pane, in bytes: of the fixed partial, or of the reference to the variable one */
    struct lineage lineage;
};

struct aggregates {
    struct aggregate *items;
    uint32_t count;
    uint32_t bytes;    /* of all fixed partials and references in a pane */
    uint32_t variable; /* number of aggregates with variable partials */
    uint32_t columns;  /* number of columns that are evaluated: an argument per item, then those of `by` */
    bool is_additive;  /* the kinds of all aggregates are additive */
};

/* Binds a body `{ name: aggregate, ... }` against the schema of the rows to aggregate. is_feature: for
 * `feature`, not `window`. False after diagnostics. */
bool aggregates_bind(struct operator_bind *bind, const struct assignments *body, const struct schema *schema,
                     bool is_feature, struct aggregates *aggregates);

/* Sets columns[i] of the columns that the arguments read. */
void aggregates_mark_columns(const struct aggregates *aggregates, bool *columns);
/* Evaluates the arguments for a batch. Returns an array of columns in `scratch`: column i belongs to
 * items[i]; the columns of `by` follow. Adds the rows that failed to `errors`. */
struct column *aggregates_evaluate(const struct aggregates *aggregates, const struct batch *batch,
                                   struct arena *scratch, struct expr_errors *errors);

/* Whether the column has a value in this row that is not NaN. */
static inline bool aggregate_column_has(const struct column *column, uint32_t row)
{
    if (!column_is_valid(column, row))
        return false;
    return column->tag != TYPE_FLOAT || column->floats[row] == column->floats[row];
}

/* Whether the row counts for items[i]: argument and `by` are neither null nor NaN. columns: the result of
 * aggregates_evaluate. */
static inline bool aggregate_has_value(const struct aggregates *aggregates, uint32_t i,
                                       const struct column *columns, uint32_t row)
{
    const struct aggregate *aggregate = &aggregates->items[i];
    if (aggregate->argument == NULL)
        return true;
    return aggregate_column_has(&columns[i], row) &&
           (aggregate->by == NULL || aggregate_column_has(&columns[aggregate->by_column], row));
}

#define AGGREGATE_KIND(symbol) extern const struct aggregate_kind symbol;
#include "operators/aggregate/kinds.def"
#undef AGGREGATE_KIND

#endif
