/* Inside of `expr`: nodes, the values that flow between them, and what kernels may call. Not for other
 * folders.
 *
 * A program is a tree of nodes. A strict node evaluates its arguments for the rows it is asked for, then
 * calls one kernel, which loops over those rows: dense where every row is wanted (gcc makes vectors of that),
 * else over the selection. Lazy nodes (and, or, case, coalesce) evaluate their parts for fewer and fewer
 * rows.
 *
 * A constant is a vector of one row that every row reads: its mask is 0, so that `data[row & mask]` serves
 * both. What lies under a null, in a failed row or in a row outside of the selection may be anything for
 * numbers; the references of texts and lists are {0, 0} there, except outside of the selection. */
#ifndef LEAT_OPERATORS_EXPR_NODE_H
#define LEAT_OPERATORS_EXPR_NODE_H

#include "operators/expr/expr.h"

/* The type of a bare `null` until something gives it one. */
enum { TYPE_UNKNOWN = 255 };

struct expr_rows {
    const uint16_t *sel; /* NULL: rows 0 .. count - 1 */
    uint32_t count;
};

struct expr_vec {
    struct column column;
    uint32_t mask;       /* row & mask is the place: UINT32_MAX, or 0 for a constant */
    bool is_owned;       /* column.data is a frame buffer: goes back with vec_release */
    bool is_valid_owned; /* column.valid may be written */
};

struct expr_frame {
    const struct batch *batch; /* NULL while constants are folded */
    uint32_t extent;           /* physical rows */
    struct arena *scratch;
    struct arena *memory; /* of the result */
    struct expr_errors *errors;
    void *buffers[64]; /* free ones of EXPR_BUFFER_BYTES */
    uint32_t buffers_count;
};

enum { EXPR_BUFFER_BYTES = BATCH_ROWS * 8 };

struct expr_node;

struct expr_call {
    const struct expr_node *node;
    struct expr_frame *frame;
    struct expr_rows rows; /* count > 0 */
    struct expr_vec *args;
    struct expr_vec *out; /* data allocated, valid = intersection of the arguments' */
    const uint16_t *live; /* rows whose arguments are all valid; filled for EXPR_LIVE kernels only */
    uint32_t live_count;
    struct arena *heap; /* where the bytes of texts and the children of lists go */
};

typedef void expr_kernel(struct expr_call *call);
/* Evaluates a node for rows.count > 0 rows into a zeroed *out. */
typedef void expr_evaluate(const struct expr_node *node, struct expr_frame *frame, struct expr_rows rows,
                           struct expr_vec *out);

enum expr_flags {
    EXPR_FAILS = 1, /* may mark rows */
    EXPR_HEAVY = 2, /* worth a narrower selection */
    EXPR_LIVE = 4,  /* the kernel walks call->live; texts' and lists' other references are zeroed before */
    EXPR_OWN_NULLS = 8, /* the kernel sees nulls and makes out->valid itself */
    EXPR_SHARES = 16,   /* the result's heap or children are those of an argument */
    EXPR_TRY = 32,      /* what would fail a row makes it null */
};

struct expr_node {
    expr_evaluate *evaluate;
    expr_kernel *kernel; /* strict nodes */
    unsigned flags;      /* of the whole subtree, EXPR_FAILS and EXPR_HEAVY; the others of this node */
    struct type type;
    struct expr_node **args;
    uint32_t args_count;
    bool is_result;                  /* its heap must live as long as the result */
    int column;                      /* nodes that read a column, else -1 */
    uint32_t field;                  /* of the list's records, for `events.aid` */
    const struct expr_vec *constant; /* constants */
    const char *reason;              /* why a row fails here */
    const void *aux;                 /* what `prepare` made: sets, bounds, patterns, units */
    const struct ast *ast;
};

struct expr {
    struct expr_node *root;
    struct lineage lineage;
    const struct schema *schema;
};

/* --- compile.c: what the checks share ------------------------------------------------------------------ */

struct expr_compiler {
    const struct schema *schema;
    struct arena *arena;
    struct diag_list *diags;
    struct lineage lineage;
    const struct ast *root; /* of the expression */
    unsigned depth, nodes;
};

/* NULL after a diagnostic. */
struct expr_node *expr_build(struct expr_compiler *c, const struct ast *ast);
/* A node whose `evaluate` the caller sets, or that goes through expr_strict. */
struct expr_node *expr_node_new(struct expr_compiler *c, const struct ast *ast, struct type type,
                                struct expr_node **args, uint32_t count);
/* Makes a strict node of it, and a constant where all arguments are constants. fails: why a row can fail here
 * ("integer overflow"), NULL: it cannot. flags: of this node. */
struct expr_node *expr_strict(struct expr_compiler *c, struct expr_node *node, expr_kernel *kernel,
                              unsigned flags, const char *fails);
struct expr_node *expr_strict1(struct expr_compiler *c, const struct ast *ast, struct type type,
                               expr_kernel *kernel, unsigned flags, struct expr_node *a);
struct expr_node *expr_strict2(struct expr_compiler *c, const struct ast *ast, struct type type,
                               expr_kernel *kernel, unsigned flags, struct expr_node *a, struct expr_node *b);
struct expr_node *expr_lazy(struct expr_compiler *c, const struct ast *ast, expr_evaluate *evaluate,
                            struct type type, struct expr_node **args, uint32_t count);
/* "REASON in `text of the node`". */
const char *expr_reason(struct expr_compiler *c, const struct ast *ast, const char *reason);
/* A node of `type` from one that is a bare null, an int where a float is wanted, or that type already; else
 * NULL, without a diagnostic. */
struct expr_node *expr_convert(struct expr_compiler *c, struct expr_node *node, struct type type);
/* Converts all to the type they have in common; false after a diagnostic. `what`: "the values of `case`". */
bool expr_unify(struct expr_compiler *c, const struct ast *ast, const char *what, struct expr_node **nodes,
                uint32_t count, struct type *common);
struct expr_node *expr_null(struct expr_compiler *c, const struct ast *ast, struct type type);
struct type expr_list_of(struct expr_compiler *c, struct type element);
const char *expr_type_name(struct expr_compiler *c, const struct type *type);

/* Operators, `case` and `in`: check_operators.c. */
struct expr_node *expr_build_unary(struct expr_compiler *c, const struct ast *ast);
struct expr_node *expr_build_binary(struct expr_compiler *c, const struct ast *ast);
struct expr_node *expr_build_case(struct expr_compiler *c, const struct ast *ast);
/* a OP b for two checked nodes. */
struct expr_node *expr_compare(struct expr_compiler *c, const struct ast *ast, enum ast_operator op,
                               struct expr_node *a, struct expr_node *b);
/* Calls: functions.c. expr_call_named: of a function by name, with arguments that are checked. */
struct expr_node *expr_build_call(struct expr_compiler *c, const struct ast *ast);
struct expr_node *expr_call_named(struct expr_compiler *c, const struct ast *ast, const char *name,
                                  struct expr_node **args, uint32_t count);
/* Sets of constants, for `in`: set.c. Nodes are constants of `type`. */
struct expr_set;
struct expr_set *expr_set_new(struct arena *arena, struct type type, struct expr_node *const *nodes,
                              uint32_t count);

/* --- eval.c: values ----------------------------------------------------------------------------------- */

expr_evaluate expr_evaluate_strict, expr_evaluate_constant, expr_evaluate_column, expr_evaluate_field,
    expr_evaluate_failure;
/* Lazy ones, in eval_lazy.c. case: conditions, values, else. coalesce: values. */
expr_evaluate expr_evaluate_and, expr_evaluate_or, expr_evaluate_case, expr_evaluate_coalesce;
/* Kernels of operators, and others that no function's name stands for. */
expr_kernel kernel_int_to_float, kernel_list_make, kernel_in_set, kernel_not, kernel_is_null,
    kernel_is_not_null;
expr_kernel kernel_add_int, kernel_subtract_int, kernel_multiply_int, kernel_divide_int, kernel_modulo_int,
    kernel_negate_int;
expr_kernel kernel_add_float, kernel_subtract_float, kernel_multiply_float, kernel_divide_float,
    kernel_modulo_float, kernel_negate_float;
expr_kernel kernel_equal_int, kernel_not_equal_int, kernel_less_int, kernel_less_equal_int;
expr_kernel kernel_equal_float, kernel_not_equal_float, kernel_less_float, kernel_less_equal_float;
expr_kernel kernel_equal_bool, kernel_not_equal_bool, kernel_less_bool, kernel_less_equal_bool;
expr_kernel kernel_equal_text, kernel_not_equal_text, kernel_less_text, kernel_less_equal_text;

static inline void expr_run(const struct expr_node *node, struct expr_frame *frame, struct expr_rows rows,
                            struct expr_vec *out)
{
    *out = (struct expr_vec){.mask = UINT32_MAX};
    node->evaluate(node, frame, rows, out);
}

void *frame_buffer(struct expr_frame *frame);
/* Gives the data back, where it is a frame buffer. */
void vec_release(struct expr_frame *frame, struct expr_vec *vec);
/* Allocates data for a value of `type` (one frame buffer). */
void vec_allocate(struct expr_frame *frame, struct expr_vec *vec, struct type type);
/* A bitmap that may be written: a copy of the present one, or all valid. */
uint64_t *vec_own_valid(struct expr_frame *frame, struct expr_vec *vec);
/* Whether row `row` has a value. */
static inline bool vec_is_valid(const struct expr_vec *vec, uint32_t row)
{
    return vec->column.valid == NULL || bit_get(vec->column.valid, row & vec->mask);
}
static inline bool vec_is_null_constant(const struct expr_vec *vec)
{
    return vec->mask == 0 && vec->column.valid != NULL && !bit_get(vec->column.valid, 0);
}
static inline struct str vec_text(const struct expr_vec *vec, uint32_t row)
{
    struct text_ref ref = vec->column.texts[row & vec->mask];
    return (struct str){vec->column.heap + ref.offset, ref.length};
}
/* The i-th of the rows. */
static inline uint32_t rows_at(const struct expr_rows *rows, uint32_t i)
{
    return rows->sel == NULL ? i : rows->sel[i];
}

/* Marks the row as failed for the node's reason. */
void call_fail(struct expr_call *call, uint32_t row);
void call_fail_reason(struct expr_call *call, uint32_t row, const char *reason);
/* Makes the row null. */
void call_null(struct expr_call *call, uint32_t row);
/* The value of constant argument `i` of a node. */
static inline const struct column *expr_constant_arg(const struct expr_node *node, uint32_t i)
{
    leat_assert(i < node->args_count && node->args[i]->constant != NULL);
    return &node->args[i]->constant->column;
}

/* Texts under construction: bytes appended to a growing heap. */
struct expr_writer {
    struct expr_call *call;
    char *data;
    size_t length, capacity;
    size_t begin; /* of the text being written */
};
void writer_init(struct expr_writer *writer, struct expr_call *call, size_t expected_bytes);
char *writer_reserve(struct expr_writer *writer, size_t bytes);
void writer_append(struct expr_writer *writer, const char *data, size_t bytes);
/* Ends the text of `row`; a longer one than EXPR_TEXT_BYTES_MAX fails the row. */
void writer_end(struct expr_writer *writer, uint32_t row);
/* Publishes the heap. */
void writer_finish(struct expr_writer *writer);

/* --- the function table: functions.def ------------------------------------------------------------------ */

/* Checks and prepares a call beyond its types; may set node->aux and node->type. False after a diagnostic. */
typedef bool expr_prepare(struct expr_compiler *c, struct expr_node *node);
expr_prepare prepare_places, prepare_time_unit, prepare_date_trunc, prepare_time_format, prepare_regex,
    prepare_hash_mod, prepare_bounds, prepare_log_bucket, prepare_element, prepare_last, prepare_contains;

/* Checks a call that is no strict function; args are built. NULL after a diagnostic. */
typedef struct expr_node *expr_special(struct expr_compiler *c, const struct ast *ast,
                                       struct expr_node **args, uint32_t count);

/* A function that is not built in: of a library that the job uses. One overload; args and result as in
 * functions.def. */
struct expr_extra {
    struct function_help help;
    const char *args;
    char result;
    unsigned flags;
    expr_kernel *kernel;
    const void *aux; /* of the nodes */
};
/* NULL where there are none; set before anything is compiled. */
extern const struct expr_extra *(*expr_find_extra)(struct str name);

#define FUNCTION(name, signature, summary, example)
#define AGGREGATE(name, signature, summary, example)
#define OVERLOAD(name, args, result, kernel, prepare, flags, fails) extern expr_kernel kernel;
#define SPECIAL(name, build)                                        extern expr_special build;
#include "operators/expr/functions.def"
#undef FUNCTION
#undef AGGREGATE
#undef OVERLOAD
#undef SPECIAL

#endif
