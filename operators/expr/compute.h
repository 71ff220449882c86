/* What operators that compute columns share: `with`, `select`, `cast`, `clean`, `hash` ... */
#ifndef LEAT_OPERATORS_EXPR_COMPUTE_H
#define LEAT_OPERATORS_EXPR_COMPUTE_H

#include "core/operator.h"
#include "operators/expr/expr.h"

struct compute_column {
    struct expr *expr; /* NULL: the input's column `source` as it is */
    int source;
};

/* One entry for each column of the output. */
struct compute {
    const struct schema *schema;
    struct compute_column *columns;
    uint32_t count;
    bool sees_own; /* expressions were compiled against the output: a later one reads columns of earlier ones
                    */
};

/* An output without columns yet, with room for `count`; keeps the rows' lineage of input 0. NULL and E0503:
 * too many. */
struct schema *compute_schema(struct operator_bind *bind, struct compute *compute, uint32_t count);
/* Adds the input's column under a name; false + E0306: the name is taken. */
bool compute_keep(struct operator_bind *bind, struct compute *compute, int source, struct str name,
                  struct span span);
/* Adds a column with the expression's type and lineage; the expression is compiled against `schema`. */
bool compute_add(struct operator_bind *bind, struct compute *compute, const struct ast *ast,
                 const struct schema *schema, struct str name, struct span span);
/* All columns of the input, then the caller's. */
bool compute_extend(struct operator_bind *bind, struct compute *compute, uint32_t extra);
/* The bind is done: sets bind->outputs[0]. */
bool compute_done(struct operator_bind *bind, struct compute *compute);

/* A batch with the output's columns. Rows that failed are in `errors`. The caller owns the batch. */
struct batch *compute_batch(struct operator_context *context, const struct compute *compute,
                            struct batch *batch, struct expr_errors *errors);
/* Sends the failed rows to dead letters and takes them out of the (derived) batch; the others count as
 * passed. */
void compute_emit(struct operator_context *context, struct batch *batch, struct expr_errors *errors);
/* Both: the whole `process` of most. */
void compute_process(struct operator_context *context, const struct compute *compute, struct batch *batch);
/* Sends the failed rows to dead letters, in order. */
void compute_reject(struct operator_context *context, const struct batch *batch,
                    const struct expr_errors *errors);

/* Trees for rules that are expressions in disguise. */
struct ast *compute_name(struct arena *arena, struct str name, struct span span);
struct ast *compute_call(struct arena *arena, const char *function, struct span span,
                         const struct ast *const *args, uint32_t count);

#endif
