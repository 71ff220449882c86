/* Expressions: from a syntax tree to values, a column at a time.
 *
 * expr_compile checks a tree against a schema and makes a program (struct expr): immutable, in the given
 * arena, shared by all lanes. expr_eval runs the program over the selected rows of one batch; expr_filter
 * runs a condition and returns the rows for which it is true.
 *
 * Rules (docs/design.md, section 4): three-valued logic as in SQL; the only implicit conversion is int ->
 * float; integer overflow, integer division by zero and a failed cast mark the row with a reason, and the
 * caller sends it to dead letters; `try_...` functions give null instead; floats follow IEEE 754; text
 * compares by bytes. AND, OR, CASE and coalesce are read from left to right and evaluate a part only for the
 * rows that need it, so that `x != 0 and 1 / x > 2` marks no row. A row's value and its reason depend on
 * that row alone: not on the batch, the selection or the machine (exp, log and pow are our own, see
 * exact_math.h). */
#ifndef LEAT_OPERATORS_EXPR_EXPR_H
#define LEAT_OPERATORS_EXPR_EXPR_H

#include "core/ast.h"
#include "core/batch.h"
#include "core/registry.h"

struct expr;

enum {
    EXPR_DEPTH_MAX = 500,               /* height of a tree, in nodes */
    EXPR_NODES_MAX = 20000,             /* nodes of a tree */
    EXPR_ARGS_MAX = 32,                 /* arguments of a function */
    EXPR_LIST_ITEMS_MAX = 4096,         /* items of a list literal in a job */
    EXPR_TEXT_BYTES_MAX = 1 << 20,      /* of a text that an expression makes */
    EXPR_PATTERN_BYTES_MAX = 16 * 1024, /* of a regular expression */
};

/* Compiles the tree. NULL after diagnostics. The tree, the schema and the arena must outlive the program. */
struct expr *expr_compile(const struct ast *ast, const struct schema *schema, struct arena *arena,
                          struct diag_list *diags);
/* The same for a condition, which must be a bool. what: the place in the job that needs the condition
 * ("where"), for messages. */
struct expr *expr_compile_condition(const struct ast *ast, const char *what, const struct schema *schema,
                                    struct arena *arena, struct diag_list *diags);

/* The type of the values. Element types and fields point into the program's arena or the schema. */
struct type expr_type(const struct expr *expr);
/* The union of the lineages of the columns that the expression reads. */
const struct lineage *expr_lineage(const struct expr *expr);
/* Sets columns[i] of the columns of the schema that the expression reads. */
void expr_mark_columns(const struct expr *expr, bool *columns);
/* Whether the value is the same for all rows. */
bool expr_is_constant(const struct expr *expr);

/* Rows that failed. Zero the struct before use. It may be passed to several evaluations of one batch: a row
 * keeps its first reason. A reason lives as long as the program's arena (as long as the job); a reason of a
 * library's function lies in `memory`, of expr_filter in `scratch`. */
struct expr_errors {
    uint32_t count;
    uint64_t rows[BATCH_VALID_WORDS]; /* bit r: physical row r failed */
    const char **reasons;             /* BATCH_ROWS, by physical row; in scratch; NULL: no row has failed */
};

/* Evaluates the expression over the selected rows of the batch. out: a column of batch->rows rows; only
 * selected rows that did not fail have defined values. The column may share data with the batch's columns or
 * the program, so the batch that gets the column must hold this batch, as batch_derive does; new data lies in
 * `memory`. scratch: for data that is not needed after the call. Any thread, with arenas of its own. */
void expr_eval(const struct expr *expr, const struct batch *batch, struct arena *scratch,
               struct arena *memory, struct column *out, struct expr_errors *errors);

/* Writes the selected rows for which the condition is true (not false, null or failed), rising, to `sel`,
 * which has room for batch->selected rows; returns their number. */
uint32_t expr_filter(const struct expr *expr, const struct batch *batch, struct arena *scratch, uint16_t *sel,
                     struct expr_errors *errors);

/* The functions of the language, aggregates included, for registry.functions; ends with name NULL. */
extern const struct function_help expr_functions[];
/* The descriptor of conditions, for registry.conditions. */
extern const struct condition_kind expr_conditions;

/* expr_is_aggregate: whether the node is a call of an aggregate (count, sum, ...), which may stand in the
 * body of `feature` and `window`. expr_has_aggregate: whether the tree contains one. functions.def lists the
 * aggregates; names that are list functions, too (sum, min ...) count as aggregates here. */
bool expr_is_aggregate(const struct ast *ast);
bool expr_has_aggregate(const struct ast *ast);

/* The expression as job text, at most about 60 bytes ("..." marks a cut), for reasons and messages. */
const char *expr_text(struct arena *arena, const struct ast *ast);

/* The 64-bit hash of a value that `hash`, `cross` and `sample` share: xxh3 of the value's bytes, seeded by
 * its type. 0.0 and -0.0 have the same hash, and so have all NaN. Null has a constant hash. */
uint64_t expr_hash_value(const struct column *column, uint32_t row);
uint64_t expr_hash_combine(uint64_t hash, uint64_t next);

#endif
