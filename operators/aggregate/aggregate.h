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

struct aggregate_kind {
    const char *name;
    int argument;       /* the type_tag this row is for; AGGREGATE_ANY: any but lists; AGGREGATE_NONE: none */
    int result;         /* type_tag; AGGREGATE_ANY: the argument's; TYPE_LIST: a list of the argument's */
    uint32_t bytes;     /* of a fixed partial; 0: variable */
    bool has_parameter; /* a second argument: a constant int */
    bool is_feature_only; /* asks for the reader's time */
    bool is_additive;     /* a fixed partial is 64-bit integers, and merges by adding them one by one */

    /* Fixed. The row's argument is valid (or there is none). time: the row's event time. */
    void (*update)(char *partial, const struct column *argument, uint32_t row, int64_t time);
    void (*merge)(char *into, const char *from);
    /* Sets `row` of the result. time: of the row that reads. */
    void (*finish)(const char *partial, int64_t time, struct column_builder *out, uint32_t row);

    /* Variable. The buffer holds the partial and is changed in place. */
    void (*absorb)(const struct aggregate *aggregate, struct byte_buffer *partial,
                   const struct column *argument, uint32_t row, int64_t time);
    void (*combine)(const struct aggregate *aggregate, struct byte_buffer *into, struct str from);
    void (*finish_bytes)(const struct aggregate *aggregate, struct str partial, struct column_builder *out,
                         uint32_t row);
};

/* One entry of a body. */
struct aggregate {
    const struct aggregate_kind *kind;
    struct expr *argument; /* NULL: none */
    struct type argument_type;
    struct type result;
    int64_t parameter;
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
    bool is_additive;  /* all are */
};

/* Checks a body `{ name: aggregate, ... }` against the schema of the rows that it sees. */
bool aggregates_bind(struct operator_bind *bind, const struct assignments *body, const struct schema *schema,
                     bool is_feature, struct aggregates *aggregates);

/* The arguments' columns for a batch: columns[i] belongs to items[i]; data in `memory`. */
struct column *aggregates_evaluate(const struct aggregates *aggregates, const struct batch *batch,
                                   struct arena *scratch, struct expr_errors *errors);

/* Whether the row has something for this aggregate. */
static inline bool aggregate_has_value(const struct aggregate *aggregate, const struct column *argument,
                                       uint32_t row)
{
    if (aggregate->argument == NULL)
        return true;
    if (!column_is_valid(argument, row))
        return false;
    return argument->tag != TYPE_FLOAT || argument->floats[row] == argument->floats[row];
}

#define AGGREGATE_KIND(symbol) extern const struct aggregate_kind symbol;
#include "operators/aggregate/kinds.def"
#undef AGGREGATE_KIND

#endif
