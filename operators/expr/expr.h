/* Expressions: from a syntax tree to values, a column at a time.
 *
 * expr_compile checks a tree against a schema and makes a program: immutable, in the given arena, shared by
 * all lanes. expr_eval runs it over the selected rows of one batch; expr_filter makes a selection of a
 * condition.
 *
 * Rules (design, section 4): three-valued logic as in SQL; the only implicit conversion is int -> float;
 * integer overflow, integer division by zero and a failed cast mark the row with a reason, and the caller
 * sends it to dead letters; `try_...` functions give null instead; floats follow IEEE 754; text compares by
 * bytes. AND, OR, CASE and coalesce are read from left to right and evaluate a part only for the rows that
 * need it, so that `x != 0 and 1 / x > 2` marks nothing. A row's value and its reason depend on that row
 * alone: not on the batch, the selection or the machine (exp, log and pow are our own, see exact_math.h). */
#ifndef LEAT_OPERATORS_EXPR_EXPR_H
#define LEAT_OPERATORS_EXPR_EXPR_H

#include "core/ast.h"
#include "core/batch.h"
#include "core/registry.h"

struct expr;

enum {
    EXPR_DEPTH_MAX = 500,
    EXPR_NODES_MAX = 20000,
    EXPR_ARGS_MAX = 32,
    EXPR_LIST_ITEMS_MAX = 4096, /* of a list that is written in a job */
    EXPR_TEXT_BYTES_MAX = 1 << 20,
    EXPR_PATTERN_BYTES_MAX = 16 * 1024, /* a regular expression */
};

/* NULL after one or more diagnostics. The tree, the schema and the arena must outlive the program. */
struct expr *expr_compile(const struct ast *ast, const struct schema *schema, struct arena *arena,
                          struct diag_list *diags);
/* The same for a place that needs a bool: `what` ("where") is named in the message. */
struct expr *expr_compile_condition(const struct ast *ast, const char *what, const struct schema *schema,
                                    struct arena *arena, struct diag_list *diags);

/* Type of the values. Element types and fields point into the program's arena or the schema. */
struct type expr_type(const struct expr *expr);
/* Union over the columns that the expression reads. */
const struct lineage *expr_lineage(const struct expr *expr);
/* Whether the value is the same for all rows. */
bool expr_is_constant(const struct expr *expr);

/* Rows that failed. Zeroed before use; may be passed to several evaluations of one batch: a row keeps its
 * first reason. Reasons live in the program's arena (as long as the job). */
struct expr_errors {
    uint32_t count;
    uint64_t rows[BATCH_VALID_WORDS]; /* bit r: physical row r failed */
    const char **reasons;             /* BATCH_ROWS; in scratch, allocated with the first failure */
};

/* Evaluates over the selected rows of the batch. out: a column of batch->rows rows; only selected rows that
 * did not fail have defined values. Its data may be shared with the batch's columns or the program (so the
 * batch that gets the column must hold this one: batch_derive does); what is new lies in `memory`. scratch:
 * for what is dead afterwards. Any thread, with arenas of its own. */
void expr_eval(const struct expr *expr, const struct batch *batch, struct arena *scratch,
               struct arena *memory, struct column *out, struct expr_errors *errors);

/* The selected rows for which the condition is true (not false, not null, not failed), rising, into sel (room
 * for batch->selected); returns their number. */
uint32_t expr_filter(const struct expr *expr, const struct batch *batch, struct arena *scratch, uint16_t *sel,
                     struct expr_errors *errors);

/* The functions of the language, aggregates included; ends with name NULL. For registry.functions. */
extern const struct function_help expr_functions[];
/* For registry.conditions. */
extern const struct condition_kind expr_conditions;

/* Whether the node is the call of an aggregate (count, sum, ...): it may then stand in the body of `feature`
 * and `window`. expr_has_aggregate: whether there is one anywhere in the tree. Their list is in
 * functions.def; the names that are list functions too (sum, min ...) count as aggregates here. */
bool expr_is_aggregate(const struct ast *ast);
bool expr_has_aggregate(const struct ast *ast);

/* The expression as job text, at most about 60 bytes ("..." marks the cut): for reasons and messages. */
const char *expr_text(struct arena *arena, const struct ast *ast);

/* The 64-bit hash of a value that `hash`, `cross` and `sample` share: xxh3 of the value's bytes, seeded by
 * its type; -0.0 is 0.0 and all NaN are one. A null's is a constant. */
uint64_t expr_hash_value(const struct column *column, uint32_t row);
uint64_t expr_hash_combine(uint64_t hash, uint64_t next);

#endif
