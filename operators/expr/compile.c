/* From a syntax tree to a program: names, literals, conversions, constants. Operators are checked in
 * check_operators.c, calls in functions.c. */
#include "operators/expr/node.h"

#include "core/buffer.h"

static const struct type scalar_types[] = {{.tag = TYPE_BOOL}, {.tag = TYPE_INT},   {.tag = TYPE_FLOAT},
                                           {.tag = TYPE_TEXT}, {.tag = TYPE_BYTES}, {.tag = TYPE_TIME}};

struct type expr_list_of(struct expr_compiler *c, struct type element)
{
    if (element.tag < ARRAY_COUNT(scalar_types))
        return (struct type){.tag = TYPE_LIST, .element = &scalar_types[element.tag]};
    return (struct type){.tag = TYPE_LIST, .element = arena_copy(c->arena, &element, sizeof(element))};
}

const char *expr_type_name(struct expr_compiler *c, const struct type *type)
{
    if ((int)type->tag == TYPE_UNKNOWN)
        return "null";
    if (type->tag == TYPE_LIST && (int)type->element->tag == TYPE_UNKNOWN)
        return "an empty list";
    return type_name(c->arena, type);
}

struct expr_node *expr_node_new(struct expr_compiler *c, const struct ast *ast, struct type type,
                                struct expr_node **args, uint32_t count)
{
    struct expr_node *node = arena_new(c->arena, struct expr_node);
    node->type = type;
    node->args = arena_copy(c->arena, args, count * sizeof(*args));
    node->args_count = count;
    node->column = -1;
    node->ast = ast;
    for (uint32_t i = 0; i < count; i++)
        node->flags |= args[i]->flags & (EXPR_FAILS | EXPR_HEAVY);
    c->nodes++;
    return node;
}

const char *expr_text(struct arena *arena, const struct ast *ast)
{
    enum { SHOWN_BYTES = 60 };
    char *text = arena_strdup(arena, ast_text(arena, ast));
    size_t length = strlen(text);
    if (length <= SHOWN_BYTES)
        return text;
    size_t cut = SHOWN_BYTES - 3;
    while (cut > 0 && ((unsigned char)text[cut] & 0xc0) == 0x80)
        cut--;
    memcpy(text + cut, "...", 4);
    return text;
}

const char *expr_reason(struct expr_compiler *c, const struct ast *ast, const char *reason)
{
    return arena_printf(c->arena, "%s in `%s`", reason, expr_text(c->arena, ast));
}

/* Makes the node a constant, whose value is in row 0 of the vector. */
static void make_constant(struct expr_compiler *c, struct expr_node *node, const struct expr_vec *value)
{
    struct expr_vec *constant = arena_copy(c->arena, value, sizeof(*value));
    constant->column.data = arena_copy(c->arena, value->column.data, node->type.tag == TYPE_BOOL ? 1 : 8);
    if (value->column.valid != NULL)
        constant->column.valid = bit_get(value->column.valid, 0) ? NULL : arena_array(c->arena, uint64_t, 1);
    constant->mask = 0;
    constant->is_owned = constant->is_valid_owned = false;
    node->constant = constant;
    node->evaluate = expr_evaluate_constant;
    node->flags = 0;
    node->args_count = 0;
}

/* Evaluates a node whose arguments are all constants. If it fails, it becomes a node that fails every row. */
static void fold(struct expr_compiler *c, struct expr_node *node)
{
    for (uint32_t i = 0; i < node->args_count; i++)
        if (node->args[i]->constant == NULL)
            return;
    struct arena scratch = {0};
    struct expr_errors errors = {0};
    struct expr_frame frame = {.extent = 1, .scratch = &scratch, .memory = c->arena, .errors = &errors};
    struct expr_vec value;
    node->is_result = true; /* so that its heap lies in c->arena */
    expr_run(node, &frame, (struct expr_rows){.count = 1}, &value);
    node->is_result = false;
    if (errors.count == 0) {
        make_constant(c, node, &value);
    } else {
        node->reason = errors.reasons[0];
        node->args_count = 0;
        node->evaluate = expr_evaluate_failure;
        diag_warning(c->diags, DIAG_BAD_ARGUMENTS, node->ast->span, "this expression fails for every row: %s",
                     node->reason);
    }
    arena_free(&scratch);
}

struct expr_node *expr_strict(struct expr_compiler *c, struct expr_node *node, expr_kernel *kernel,
                              unsigned flags, const char *fails)
{
    node->evaluate = expr_evaluate_strict;
    node->kernel = kernel;
    node->flags |= flags;
    if (fails != NULL && (flags & EXPR_TRY) == 0) {
        node->flags |= EXPR_FAILS;
        node->reason = expr_reason(c, node->ast, fails);
    }
    fold(c, node);
    return node;
}

struct expr_node *expr_strict1(struct expr_compiler *c, const struct ast *ast, struct type type,
                               expr_kernel *kernel, unsigned flags, struct expr_node *a)
{
    return expr_strict(c, expr_node_new(c, ast, type, &a, 1), kernel, flags, NULL);
}

struct expr_node *expr_strict2(struct expr_compiler *c, const struct ast *ast, struct type type,
                               expr_kernel *kernel, unsigned flags, struct expr_node *a, struct expr_node *b)
{
    struct expr_node *args[] = {a, b};
    return expr_strict(c, expr_node_new(c, ast, type, args, 2), kernel, flags, NULL);
}

struct expr_node *expr_lazy(struct expr_compiler *c, const struct ast *ast, expr_evaluate *evaluate,
                            struct type type, struct expr_node **args, uint32_t count)
{
    struct expr_node *node = expr_node_new(c, ast, type, args, count);
    node->evaluate = evaluate;
    fold(c, node);
    return node;
}

static struct expr_node *constant_node(struct expr_compiler *c, const struct ast *ast, struct type type,
                                       void *data, const char *heap)
{
    struct expr_node *node = expr_node_new(c, ast, type, NULL, 0);
    struct expr_vec value = {.column = {.tag = type.tag, .data = data, .heap = heap}};
    make_constant(c, node, &value);
    return node;
}

struct expr_node *expr_null(struct expr_compiler *c, const struct ast *ast, struct type type)
{
    uint64_t zero = 0, valid = 0;
    struct expr_node *node = expr_node_new(c, ast, type, NULL, 0);
    struct expr_vec value = {.column = {.tag = type.tag, .data = &zero, .heap = "", .valid = &valid}};
    if (type.tag == TYPE_LIST && type.element->tag < ARRAY_COUNT(scalar_types)) {
        value.column.children_count = 1;
        value.column.children = arena_new(c->arena, struct column);
        value.column.children->tag = type.element->tag;
    }
    make_constant(c, node, &value);
    return node;
}

struct expr_node *expr_convert(struct expr_compiler *c, struct expr_node *node, struct type type)
{
    if (node->type.tag == type.tag && type_equal(&node->type, &type))
        return node;
    if ((int)node->type.tag == TYPE_UNKNOWN)
        return expr_null(c, node->ast, type);
    if (node->type.tag == TYPE_INT && type.tag == TYPE_FLOAT)
        return expr_strict1(c, node->ast, type, kernel_int_to_float, 0, node);
    return NULL;
}

/* The type that both can be converted to; false if there is none. */
static bool common_type(const struct type *a, const struct type *b, struct type *common)
{
    bool is_a_unknown = (int)a->tag == TYPE_UNKNOWN, is_b_unknown = (int)b->tag == TYPE_UNKNOWN;
    if (is_a_unknown || is_b_unknown) {
        *common = is_a_unknown ? *b : *a;
        return true;
    }
    if (type_is_number(*a) && type_is_number(*b)) {
        *common = type_of(a->tag == b->tag ? a->tag : TYPE_FLOAT);
        return true;
    }
    *common = *a;
    return type_equal(a, b);
}

bool expr_unify(struct expr_compiler *c, const struct ast *ast, const char *what, struct expr_node **nodes,
                uint32_t count, struct type *common)
{
    *common = (struct type){.tag = (enum type_tag)TYPE_UNKNOWN};
    for (uint32_t i = 0; i < count; i++) {
        struct type wider;
        if (!common_type(common, &nodes[i]->type, &wider)) {
            struct diag *d = diag_error(c->diags, DIAG_TYPE_CLASH, nodes[i]->ast->span,
                                        "%s have different types: this value is %s, but those before it "
                                        "are %s",
                                        what, expr_type_name(c, &nodes[i]->type), expr_type_name(c, common));
            diag_hint(c->diags, d, "convert one of them with a cast, for example %s(...)",
                      common->tag < TYPE_LIST ? expr_type_name(c, common) : "text");
            return false;
        }
        *common = wider;
    }
    if ((int)common->tag == TYPE_UNKNOWN) {
        struct diag *d = diag_error(c->diags, DIAG_TYPE_CLASH, ast->span, "a bare `null` has no type here");
        diag_hint(c->diags, d, "write the type: int(null), text(null) ...");
        return false;
    }
    for (uint32_t i = 0; i < count; i++)
        nodes[i] = expr_convert(c, nodes[i], *common);
    return true;
}

static struct expr_node *build_column(struct expr_compiler *c, const struct ast *ast)
{
    struct column_ref ref = {ast->text, ast->span, -1};
    if (!column_resolve(&ref, c->schema, c->arena, c->diags))
        return NULL;
    const struct field *field = &c->schema->fields[ref.index];
    lineage_merge(&c->lineage, &field->lineage);
    bit_set(c->columns, (uint32_t)ref.index);
    struct expr_node *node = expr_node_new(c, ast, field->type, NULL, 0);
    node->column = ref.index;
    node->evaluate = expr_evaluate_column;
    return node;
}

/* events.aid: makes a list of one field's values from a list of records. */
static struct expr_node *build_field(struct expr_compiler *c, const struct ast *ast)
{
    struct expr_node *list = expr_build(c, ast->children[0]);
    if (list == NULL)
        return NULL;
    if (list->type.tag != TYPE_LIST || list->type.element->tag != TYPE_RECORD) {
        struct diag *d = diag_error(c->diags, DIAG_TYPE_CLASH, ast->children[0]->span, "%s has no fields",
                                    expr_type_name(c, &list->type));
        diag_hint(c->diags, d,
                  "`.` takes a field of a list of records, and gives the list of that field's values");
        return NULL;
    }
    const struct schema *record = list->type.element->fields;
    struct column_ref ref = {ast->text, ast->text_span, -1};
    if (!column_resolve(&ref, record, c->arena, c->diags))
        return NULL;
    const struct field *field = &record->fields[ref.index];
    if (field->type.tag >= TYPE_LIST) {
        diag_error(c->diags, DIAG_TYPE_CLASH, ast->text_span,
                   "`%.*s` is itself a list: lists of lists are not supported", STR_ARGS(ast->text));
        return NULL;
    }
    struct type values = expr_list_of(c, field->type);
    values.length_max = list->type.length_max;
    struct expr_node *node = expr_node_new(c, ast, values, &list, 1);
    node->evaluate = expr_evaluate_field;
    node->field = (uint32_t)ref.index;
    node->flags |= EXPR_SHARES;
    return node;
}

static struct type literal_type(struct expr_compiler *c, const struct ast *ast, struct type element)
{
    struct type type = expr_list_of(c, element);
    type.length_max = ast->count;
    return type;
}

/* A list of constants, of any length. */
static struct expr_node *constant_list(struct expr_compiler *c, const struct ast *ast, struct type element,
                                       struct expr_node *const *items)
{
    struct expr_node *node = expr_node_new(c, ast, literal_type(c, ast, element), NULL, 0);
    struct expr_vec *vec = arena_new(c->arena, struct expr_vec);
    struct column *list = &vec->column, *values = arena_new(c->arena, struct column);
    struct byte_buffer heap = {0};
    *values = (struct column){.tag = element.tag, .child_rows = ast->count};
    values->data = arena_calloc(c->arena, ast->count, 8);
    for (uint32_t i = 0; i < ast->count; i++) {
        const struct column *value = &items[i]->constant->column;
        if (!column_is_valid(value, 0)) {
            if (values->valid == NULL) {
                values->valid = arena_array(c->arena, uint64_t, BIT_WORDS((size_t)ast->count));
                memset(values->valid, 0xff, BIT_WORDS((size_t)ast->count) * sizeof(uint64_t));
            }
            bit_clear(values->valid, i);
        } else if (element.tag == TYPE_TEXT || element.tag == TYPE_BYTES) {
            values->texts[i] = (struct text_ref){(uint32_t)heap.length, value->texts[0].length};
            buffer_append(&heap, value->heap + value->texts[0].offset, value->texts[0].length);
        } else if (element.tag == TYPE_BOOL) {
            values->bools[i] = value->bools[0];
        } else {
            values->ints[i] = value->ints[0];
        }
    }
    values->heap = arena_copy(c->arena, heap.data, heap.length);
    buffer_free(&heap);
    *list =
        (struct column){.tag = TYPE_LIST, .children = values, .children_count = 1, .child_rows = ast->count};
    list->lists = arena_new(c->arena, struct list_ref);
    list->lists->length = ast->count;
    node->constant = vec;
    node->evaluate = expr_evaluate_constant;
    return node;
}

static struct expr_node *build_list(struct expr_compiler *c, const struct ast *ast)
{
    if (ast->count == 0 || ast->count > EXPR_LIST_ITEMS_MAX) {
        diag_error(c->diags, DIAG_TYPE_CLASH, ast->span, "a list that is used as a value has 1 to %d items",
                   EXPR_LIST_ITEMS_MAX);
        return NULL;
    }
    struct expr_node **items = arena_array(c->arena, struct expr_node *, ast->count);
    bool is_good = true, is_constant = true;
    for (uint32_t i = 0; i < ast->count; i++)
        is_good &= (items[i] = expr_build(c, ast->children[i])) != NULL;
    struct type element;
    if (!is_good || !expr_unify(c, ast, "the items of the list", items, ast->count, &element))
        return NULL;
    if (element.tag >= TYPE_LIST) {
        diag_error(c->diags, DIAG_TYPE_CLASH, ast->span, "lists of lists are not supported");
        return NULL;
    }
    for (uint32_t i = 0; i < ast->count; i++)
        is_constant &= items[i]->constant != NULL;
    if (is_constant)
        return constant_list(c, ast, element, items);
    if (ast->count > EXPR_ARGS_MAX) {
        diag_error(c->diags, DIAG_TYPE_CLASH, ast->span, "a list with columns in it has at most %d items",
                   EXPR_ARGS_MAX);
        return NULL;
    }
    struct expr_node *node = expr_node_new(c, ast, literal_type(c, ast, element), items, ast->count);
    return expr_strict(c, node, kernel_list_make, EXPR_OWN_NULLS, NULL);
}

static struct expr_node *build_literal(struct expr_compiler *c, const struct ast *ast)
{
    int64_t integer = ast->integer;
    double real = ast->real;
    struct text_ref text = {0, (uint32_t)ast->text.length};
    switch (ast->tag) {
    case AST_NULL: return expr_null(c, ast, (struct type){.tag = (enum type_tag)TYPE_UNKNOWN});
    case AST_BOOL: {
        uint8_t boolean = ast->boolean;
        return constant_node(c, ast, type_of(TYPE_BOOL), &boolean, NULL);
    }
    case AST_FLOAT: return constant_node(c, ast, type_of(TYPE_FLOAT), &real, NULL);
    case AST_TEXT:
        if (ast->text.length > EXPR_TEXT_BYTES_MAX) {
            diag_error(c->diags, DIAG_TOO_DEEP, ast->span, "a text has at most %d bytes",
                       EXPR_TEXT_BYTES_MAX);
            return NULL;
        }
        return constant_node(c, ast, type_of(TYPE_TEXT), &text, ast->text.data == NULL ? "" : ast->text.data);
    default: return constant_node(c, ast, type_of(TYPE_INT), &integer, NULL);
    }
}

static struct expr_node *build_any(struct expr_compiler *c, const struct ast *ast)
{
    switch (ast->tag) {
    case AST_NULL:
    case AST_BOOL:
    case AST_INT:
    case AST_FLOAT:
    case AST_TEXT:
    case AST_DURATION:
    case AST_SIZE: return build_literal(c, ast);
    case AST_NAME: return build_column(c, ast);
    case AST_FIELD: return build_field(c, ast);
    case AST_CALL: return expr_build_call(c, ast);
    case AST_UNARY: return expr_build_unary(c, ast);
    case AST_BINARY: return expr_build_binary(c, ast);
    case AST_CASE: return expr_build_case(c, ast);
    case AST_LIST: return build_list(c, ast);
    case AST_ASSIGN:
    case AST_BLOCK:
    case AST_KIND: break;
    }
    diag_error(c->diags, DIAG_TYPE_CLASH, ast->span, "a value was expected here");
    return NULL;
}

struct expr_node *expr_build(struct expr_compiler *c, const struct ast *ast)
{
    if (c->depth >= EXPR_DEPTH_MAX || c->nodes >= EXPR_NODES_MAX) {
        if (c->nodes <= EXPR_NODES_MAX)
            diag_error(c->diags, DIAG_TOO_DEEP, ast->span,
                       "this expression is nested too deeply or too long");
        c->nodes = EXPR_NODES_MAX + 1;
        return NULL;
    }
    c->depth++;
    struct expr_node *node = build_any(c, ast);
    c->depth--;
    return node;
}

/* Marks the nodes whose heap must lie in frame->memory: the result, and arguments whose heap it shares. */
static void mark_result(struct expr_node *node)
{
    node->is_result = true;
    if ((node->flags & EXPR_SHARES) != 0)
        for (uint32_t i = 0; i < node->args_count; i++)
            mark_result(node->args[i]);
}

static struct expr *compile(const struct ast *ast, const char *condition, const struct schema *schema,
                            struct arena *arena, struct diag_list *diags)
{
    struct expr_compiler c = {.schema = schema, .arena = arena, .diags = diags, .root = ast};
    struct expr_node *root = expr_build(&c, ast);
    if (root == NULL)
        return NULL;
    struct expr_node *as_bool = condition == NULL ? root : expr_convert(&c, root, type_of(TYPE_BOOL));
    if (as_bool == NULL) {
        struct diag *d =
            diag_error(diags, DIAG_TYPE_CLASH, ast->span, "`%s` needs a condition (bool), but this is %s",
                       condition, expr_type_name(&c, &root->type));
        diag_hint(diags, d, "compare the value with another, for example `... > 0` or `... is not null`");
        return NULL;
    }
    struct type type;
    if (!expr_unify(&c, ast, "", &as_bool, 1, &type))
        return NULL;
    mark_result(as_bool);
    struct expr *expr = arena_new(arena, struct expr);
    *expr = (struct expr){.root = as_bool, .lineage = c.lineage, .schema = schema};
    memcpy(expr->columns, c.columns, sizeof(expr->columns));
    return expr;
}

struct expr *expr_compile(const struct ast *ast, const struct schema *schema, struct arena *arena,
                          struct diag_list *diags)
{
    return compile(ast, NULL, schema, arena, diags);
}

struct expr *expr_compile_condition(const struct ast *ast, const char *what, const struct schema *schema,
                                    struct arena *arena, struct diag_list *diags)
{
    return compile(ast, what, schema, arena, diags);
}

struct type expr_type(const struct expr *expr)
{
    return expr->root->type;
}

void expr_mark_columns(const struct expr *expr, bool *columns)
{
    for (uint32_t i = 0; i < expr->schema->count; i++)
        columns[i] |= bit_get(expr->columns, i);
}

const struct lineage *expr_lineage(const struct expr *expr)
{
    return &expr->lineage;
}

bool expr_is_constant(const struct expr *expr)
{
    return expr->root->constant != NULL;
}
