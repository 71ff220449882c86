/* Private to `expr`: nodes, the values that flow between them, and what kernels may call.
 *
 * A program is a tree of nodes. A strict node evaluates its arguments for the rows it is asked for, then
 * calls one kernel, which loops over those rows: densely if every row is wanted (gcc vectorizes that loop),
 * else over the selection. Lazy nodes (and, or, case, coalesce) evaluate their parts for fewer and fewer
 * rows.
 *
 * A constant is a vector of one row that every row reads: its mask is 0, so that `data[row & mask]` serves
 * both. Numbers under a null, in a failed row or in an unselected row may have any value; references of texts
 * and lists are {0, 0} there, but may be anything in unselected rows. */
#ifndef LEAT_OPERATORS_EXPR_NODE_H
#define LEAT_OPERATORS_EXPR_NODE_H

#include "operators/expr/expr.h"

/* The type of a bare `null` whose type is not known yet. */
enum { TYPE_UNKNOWN = 255 };

struct expr_rows {
    const uint16_t *sel; /* NULL: rows 0 .. count - 1 */
    uint32_t count;
};

struct expr_vec {
    struct column column;
    uint32_t mask;       /* row r lies at index r & mask: mask is UINT32_MAX, or 0 for a constant */
    bool is_owned;       /* column.data is a frame buffer; vec_release gives it back */
    bool is_valid_owned; /* column.valid may be written */
};

struct expr_frame {
    const struct batch *batch; /* NULL while constants are folded */
    uint32_t extent;           /* number of the batch's physical rows */
    struct arena *scratch;     /* for data that is not needed after the evaluation */
    struct arena *memory;      /* for the result */
    struct expr_errors *errors;
    void *buffers[64]; /* free buffers of EXPR_BUFFER_BYTES */
    uint32_t buffers_count;
};

enum { EXPR_BUFFER_BYTES = BATCH_ROWS * 8 };

struct expr_node;

struct expr_call {
    const struct expr_node *node;
    struct expr_frame *frame;
    struct expr_rows rows; /* count > 0 */
    struct expr_vec *args;
    struct expr_vec *out; /* data is allocated; valid is the intersection of the arguments' */
    const uint16_t *live; /* rows whose arguments are all valid; only for EXPR_LIVE kernels */
    uint32_t live_count;
    struct arena *heap; /* for the bytes of texts and the children of lists */
};

typedef void expr_kernel(struct expr_call *call);
/* Evaluates a node for rows.count > 0 rows into a zeroed *out. */
typedef void expr_evaluate(const struct expr_node *node, struct expr_frame *frame, struct expr_rows rows,
                           struct expr_vec *out);

enum expr_flags {
    EXPR_FAILS = 1,     /* may fail rows */
    EXPR_HEAVY = 2,     /* expensive: worth a narrower selection */
    EXPR_LIVE = 4,      /* the kernel loops over call->live; references of other rows are zeroed before */
    EXPR_OWN_NULLS = 8, /* the kernel sees nulls and makes out->valid itself */
    EXPR_SHARES = 16,   /* the result shares the heap or children of an argument */
    EXPR_TRY = 32,      /* rows that would fail become null */
};

struct expr_node {
    expr_evaluate *evaluate;
    expr_kernel *kernel; /* strict nodes */
    unsigned flags;      /* EXPR_FAILS and EXPR_HEAVY: of the whole subtree; others: of this node */
    struct type type;
    struct expr_node **args;
    uint32_t args_count;
    bool is_result;                  /* its heap must live as long as the result */
    int column;                      /* of nodes that read a column; else -1 */
    uint32_t field;                  /* of nodes such as `events.aid`: index of the field in the records */
    const struct expr_vec *constant; /* of constant nodes */
    const char *reason;              /* why a row fails at this node; NULL: no row can */
    const void *aux;                 /* made by `prepare`: sets, bounds, patterns, units */
    const struct ast *ast;
};

struct expr {
    struct expr_node *root;
    struct lineage lineage;
    uint64_t columns[SCHEMA_FIELDS_MAX / 64]; /* bit i: reads column i of the schema */
    const struct schema *schema;
};

/* --- compile.c: shared by the checks --- */

struct expr_compiler {
    const struct schema *schema;
    struct arena *arena;
    struct diag_list *diags;
    struct lineage lineage;
    uint64_t columns[SCHEMA_FIELDS_MAX / 64]; /* of struct expr */
    const struct ast *root;                   /* of the whole expression */
    unsigned depth, nodes;
};

/* Builds the node of a tree. NULL after a diagnostic. */
struct expr_node *expr_build(struct expr_compiler *c, const struct ast *ast);
/* Makes a node; the caller sets `evaluate`, or passes the node to expr_strict. */
struct expr_node *expr_node_new(struct expr_compiler *c, const struct ast *ast, struct type type,
                                struct expr_node **args, uint32_t count);
/* Makes the node strict, or a constant if all its arguments are constants. fails: why a row can fail at this
 * node ("integer overflow"); NULL if none can. flags: of this node. */
struct expr_node *expr_strict(struct expr_compiler *c, struct expr_node *node, expr_kernel *kernel,
                              unsigned flags, const char *fails);
struct expr_node *expr_strict1(struct expr_compiler *c, const struct ast *ast, struct type type,
                               expr_kernel *kernel, unsigned flags, struct expr_node *a);
struct expr_node *expr_strict2(struct expr_compiler *c, const struct ast *ast, struct type type,
                               expr_kernel *kernel, unsigned flags, struct expr_node *a, struct expr_node *b);
struct expr_node *expr_lazy(struct expr_compiler *c, const struct ast *ast, expr_evaluate *evaluate,
                            struct type type, struct expr_node **args, uint32_t count);
/* The text "REASON in `text of the node`". */
const char *expr_reason(struct expr_compiler *c, const struct ast *ast, const char *reason);
/* Converts a node that is a bare null, an int where a float is wanted, or of `type` already. Otherwise
 * returns NULL, without a diagnostic. */
struct expr_node *expr_convert(struct expr_compiler *c, struct expr_node *node, struct type type);
/* Converts all nodes to their common type; false after a diagnostic. what: "the values of `case`", for
 * messages. */
bool expr_unify(struct expr_compiler *c, const struct ast *ast, const char *what, struct expr_node **nodes,
                uint32_t count, struct type *common);
struct expr_node *expr_null(struct expr_compiler *c, const struct ast *ast, struct type type);
struct type expr_list_of(struct expr_compiler *c, struct type element);
const char *expr_type_name(struct expr_compiler *c, const struct type *type);

/* Operators, `case` and `in`: check_operators.c. */
struct expr_node *expr_build_unary(struct expr_compiler *c, const struct ast *ast);
struct expr_node *expr_build_binary(struct expr_compiler *c, const struct ast *ast);
struct expr_node *expr_build_case(struct expr_compiler *c, const struct ast *ast);
/* a OP b, for two built nodes. */
struct expr_node *expr_compare(struct expr_compiler *c, const struct ast *ast, enum ast_operator op,
                               struct expr_node *a, struct expr_node *b);
/* Calls: functions.c. expr_call_named calls a function by name, with built arguments. */
struct expr_node *expr_build_call(struct expr_compiler *c, const struct ast *ast);
struct expr_node *expr_call_named(struct expr_compiler *c, const struct ast *ast, const char *name,
                                  struct expr_node **args, uint32_t count);
/* Sets of constants, for `in`: set.c. nodes: constants of `type`, which the set copies. */
struct expr_set;
struct expr_set *expr_set_new(struct arena *arena, struct type type, struct expr_node *const *nodes,
                              uint32_t count);

/* --- eval.c: values --- */

expr_evaluate expr_evaluate_strict, expr_evaluate_constant, expr_evaluate_column, expr_evaluate_field,
    expr_evaluate_failure;
/* Lazy nodes, in eval_lazy.c. Arguments of case: conditions, values, `else`; of coalesce: values. */
expr_evaluate expr_evaluate_and, expr_evaluate_or, expr_evaluate_case, expr_evaluate_coalesce;
/* Kernels of operators, and others that functions.def does not name. */
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

/* A free buffer of EXPR_BUFFER_BYTES, or a new one. */
void *frame_buffer(struct expr_frame *frame);
/* Gives the vector's data back, if it is a frame buffer. */
void vec_release(struct expr_frame *frame, struct expr_vec *vec);
/* Allocates a frame buffer for values of `type`. */
void vec_allocate(struct expr_frame *frame, struct expr_vec *vec, struct type type);
/* Makes the validity bitmap writable: copies it, or makes one with all rows valid. */
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
/* The i-th row. */
static inline uint32_t rows_at(const struct expr_rows *rows, uint32_t i)
{
    return rows->sel == NULL ? i : rows->sel[i];
}

/* Marks the row as failed. call_fail: with the node's reason. */
void call_fail(struct expr_call *call, uint32_t row);
void call_fail_reason(struct expr_call *call, uint32_t row, const char *reason);
/* Makes the row's result null. */
void call_null(struct expr_call *call, uint32_t row);
/* The value of the node's constant argument `i`. */
static inline const struct column *expr_constant_arg(const struct expr_node *node, uint32_t i)
{
    leat_assert(i < node->args_count && node->args[i]->constant != NULL);
    return &node->args[i]->constant->column;
}

/* A writer of texts: appends bytes to a growing heap. */
struct expr_writer {
    struct expr_call *call;
    char *data;
    size_t length, capacity;
    size_t begin; /* where the text being written begins */
};
void writer_init(struct expr_writer *writer, struct expr_call *call, size_t expected_bytes);
char *writer_reserve(struct expr_writer *writer, size_t bytes);
void writer_append(struct expr_writer *writer, const char *data, size_t bytes);
/* Ends the text of `row`; fails the row if the text is longer than EXPR_TEXT_BYTES_MAX. */
void writer_end(struct expr_writer *writer, uint32_t row);
/* Makes the bytes the heap of the call's result. */
void writer_finish(struct expr_writer *writer);

/* --- The function table: functions.def --- */

/* Checks and prepares a call, after its types were checked; may set node->aux and node->type. Returns false
 * after a diagnostic. */
typedef bool expr_prepare(struct expr_compiler *c, struct expr_node *node);
expr_prepare prepare_places, prepare_time_unit, prepare_date_trunc, prepare_time_format, prepare_regex,
    prepare_hash_mod, prepare_bounds, prepare_log_bucket, prepare_element, prepare_last, prepare_contains;

/* Builds a call that is not a strict function, from built arguments. NULL after a diagnostic. */
typedef struct expr_node *expr_special(struct expr_compiler *c, const struct ast *ast,
                                       struct expr_node **args, uint32_t count);

/* A function of a library that the job uses. It has one overload; args and result as in functions.def. */
struct expr_extra {
    struct function_help help;
    const char *args;
    char result;
    unsigned flags;
    expr_kernel *kernel;
    const void *aux; /* the nodes' aux */
};
/* Returns the library function of that name, or NULL. The pointer itself is NULL until a library is
 * loaded, which happens before expressions that use it are compiled. */
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
