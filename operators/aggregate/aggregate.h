/* Aggregates: what `feature` and `window` compute over the rows of a group.
 *
 * An aggregate keeps a partial for each group and pane; partials of neighbouring panes merge. A fixed partial
 * has `bytes` bytes (a multiple of 8, aligned to 8), all zero when no row has come; a variable one is a
 * string of bytes, empty when no row has come. A partial's bytes depend on the rows of its pane and their
 * order alone, and a merged one on the partials and their order alone. Null arguments, and NaN, are left out.
 */
#ifndef LEAT_OPERATORS_AGGREGATE_AGGREGATE_H
#define LEAT_OPERATORS_AGGREGATE_AGGREGATE_H

#include "core/operator.h"
#include "operators/aggregate/rows.h"
#include "operators/expr/expr.h"

enum { AGGREGATES_MAX = 64, AGGREGATE_ANY = -1, AGGREGATE_NONE = -2 };

struct aggregate;

/* A constant that follows the argument. */
enum aggregate_parameter {
    PARAMETER_NONE,
    PARAMETER_COUNT, /* an int, from 1 to parameter_max */
    PARAMETER_SHARE, /* a number from 0 to 1 */
};

/* What a variable partial takes of one row. argument and by are valid there. */
struct aggregate_row {
    const struct column *argument, *by; /* by: NULL where the kind has none */
    uint32_t row;
    int64_t time; /* its event time */
};

/* What absorb_here returns where the partial has no room. */
enum { ABSORB_ELSEWHERE = UINT32_MAX };

struct aggregate_kind {
    const char *name;
    int argument;   /* the type_tag this row is for; AGGREGATE_ANY: any but lists; AGGREGATE_NONE: none */
    int result;     /* type_tag; AGGREGATE_ANY: the argument's; TYPE_LIST: a list of the argument's */
    uint32_t bytes; /* of a fixed partial; 0: variable */
    enum aggregate_parameter parameter;
    uint32_t parameter_max;
    bool has_by;          /* a last argument, int, float or time, by which values rank */
    bool is_feature_only; /* asks for the reader's time */
    bool is_set;          /* variable: a merged partial may be as long as its parts together */
    bool is_additive;     /* a fixed partial is 64-bit integers, and merges by adding them one by one */

    /* Fixed. The row's argument is valid (or there is none). time: the row's event time. */
    void (*update)(char *partial, const struct column *argument, uint32_t row, int64_t time);
    void (*merge)(char *into, const char *from);
    /* Sets `row` of the result. time: of the row that reads. */
    void (*finish)(const char *partial, int64_t time, struct column_builder *out, uint32_t row);

    /* Variable. The buffer holds the partial and is changed in place. */
    void (*absorb)(const struct aggregate *aggregate, struct byte_buffer *partial,
                   const struct aggregate_row *row);
    /* The same where the partial lies, without copying it: its new length, at most capacity, or
     * ABSORB_ELSEWHERE: it has no room for the row and is as before. NULL: always elsewhere. */
    uint32_t (*absorb_here)(const struct aggregate *aggregate, char *partial, uint32_t length,
                            uint32_t capacity, const struct aggregate_row *row);
    /* By how much absorb can make the partial longer at most. NULL: by few KiB and twice a text. */
    uint32_t (*growth)(const struct aggregate *aggregate, struct str partial,
                       const struct aggregate_row *row);
    void (*combine)(const struct aggregate *aggregate, struct byte_buffer *into, struct str from);
    void (*finish_bytes)(const struct aggregate *aggregate, struct str partial, struct column_builder *out,
                         uint32_t row);
};

/* One entry of a body. */
struct aggregate {
    const struct aggregate_kind *kind;
    struct expr *argument; /* NULL: none */
    struct type argument_type;
    struct expr *by; /* NULL: none; its column is column[by_column] */
    uint32_t by_column;
    struct type result;
    int64_t parameter;
    double share;
    struct str name;
    struct span span;
    uint32_t offset; /* of the fixed partial, or of the reference to the variable one, in a pane */
    struct lineage lineage;
};

struct aggregates {
    struct aggregate *items;
    uint32_t count;
    uint32_t bytes;    /* of all fixed partials and references in a pane */
    uint32_t variable; /* how many are */
    uint32_t columns;  /* of arguments: one for each item, then those of `by` */
    bool is_additive;  /* all are */
};

/* Checks a body `{ name: aggregate, ... }` against the schema of the rows that it sees. */
bool aggregates_bind(struct operator_bind *bind, const struct assignments *body, const struct schema *schema,
                     bool is_feature, struct aggregates *aggregates);

/* The arguments' columns for a batch: columns[i] belongs to items[i], the others to `by`; in `scratch`. */
struct column *aggregates_evaluate(const struct aggregates *aggregates, const struct batch *batch,
                                   struct arena *scratch, struct expr_errors *errors);

static inline bool aggregate_column_has(const struct column *column, uint32_t row)
{
    if (!column_is_valid(column, row))
        return false;
    return column->tag != TYPE_FLOAT || column->floats[row] == column->floats[row];
}

/* Whether the row has something for items[i]. columns: of aggregates_evaluate. */
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
