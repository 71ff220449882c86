/* Shared by operators that compute columns: `with`, `select`, `cast`, `clean`, `hash` ... */
#ifndef LEAT_OPERATORS_EXPR_COMPUTE_H
#define LEAT_OPERATORS_EXPR_COMPUTE_H

#include "core/operator.h"
#include "operators/expr/expr.h"

struct compute_column {
    struct expr *expr; /* NULL: column `source` of the input, unchanged */
    int source;
};

/* How the columns of an output are made: columns[i] for field i of the schema. */
struct compute {
    const struct schema *schema;
    struct compute_column *columns;
    uint32_t count;
    bool sees_own; /* expressions were compiled against the output and may read its earlier columns */
};

/* Makes an output without columns yet, with room for `count` columns; keeps the rows' lineage of input 0.
 * NULL after E0503 if `count` is above SCHEMA_FIELDS_MAX. */
struct schema *compute_schema(struct operator_bind *bind, struct compute *compute, uint32_t count);
/* Adds column `source` of the input under a name. Returns false after E0306 if the name is taken. */
bool compute_keep(struct operator_bind *bind, struct compute *compute, int source, struct str name,
                  struct span span);
/* Adds a column with the expression's type and lineage; compiles the expression against `schema`. Returns
 * false after diagnostics. */
bool compute_add(struct operator_bind *bind, struct compute *compute, const struct ast *ast,
                 const struct schema *schema, struct str name, struct span span);
/* Makes an output with all columns of the input, and room for `extra` more. Returns false after
 * diagnostics. */
bool compute_extend(struct operator_bind *bind, struct compute *compute, uint32_t extra);
/* Ends the bind: sets bind->outputs[0]. Returns false after E0407 if there is no column. */
bool compute_done(struct operator_bind *bind, struct compute *compute);

/* Makes a batch with the output's columns; the caller gets a reference to it. Adds the rows that failed to
 * `errors`. */
struct batch *compute_batch(struct operator_context *context, const struct compute *compute,
                            struct batch *batch, struct expr_errors *errors);
/* Sends the failed rows of `input` to dead letters, takes them out of `out`, whose columns may have no values there, and
 * calls compute_pass for `out`. input: the batch that `out` was derived from. */
void compute_emit(struct operator_context *context, const struct batch *input, struct batch *out,
                  struct expr_errors *errors);
/* Emits the batch, whose reference it takes over; counts its rows as passed. */
void compute_pass(struct operator_context *context, struct batch *batch);
/* compute_batch, then compute_emit: all of `process` for most of these operators. */
void compute_process(struct operator_context *context, const struct compute *compute, struct batch *batch);
/* Sends the failed rows to dead letters, in the order of their physical rows. The batch stays as it is. */
void compute_reject(struct operator_context *context, const struct batch *batch,
                    const struct expr_errors *errors);

/* Syntax trees of a name and of a call, for rules that are computed as expressions. */
struct ast *compute_name(struct arena *arena, struct str name, struct span span);
struct ast *compute_call(struct arena *arena, const char *function, struct span span,
                         const struct ast *const *args, uint32_t count);

#endif
