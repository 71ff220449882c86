/* Every function, by a table of cases: extremes, nulls, errors. Each expression is evaluated as it stands
 * (constants are folded when it is compiled), and with its literals moved into columns, so that the kernels
 * run over rows. */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>

static const struct {
    const char *text, *expected;
} cases[] = {
#include "cases.def"
};

/* --- Literals become columns --- */

enum { LITERALS_MAX = 24, TEST_ROWS = 70 };

struct literals {
    struct fixture *f;
    struct schema *schema;
    struct ast *items[LITERALS_MAX]; /* copies of the literals; the tree has column names in their place */
    uint32_t count;
};

static bool is_literal(const struct ast *ast)
{
    return ast->tag == AST_INT || ast->tag == AST_FLOAT || ast->tag == AST_TEXT || ast->tag == AST_BOOL ||
           ast->tag == AST_DURATION;
}

static struct type literal_type(const struct ast *ast)
{
    return type_of(ast->tag == AST_FLOAT  ? TYPE_FLOAT
                   : ast->tag == AST_TEXT ? TYPE_TEXT
                   : ast->tag == AST_BOOL ? TYPE_BOOL
                                          : TYPE_INT);
}

static bool compiles(struct literals *l, struct ast *root)
{
    struct diag_list diags;
    diag_list_init(&diags, &l->f->arena);
    return expr_compile(root, l->schema, &l->f->arena, &diags) != NULL;
}

/* Replaces literals with columns wherever the expression still compiles (some arguments
 * must be constants). */
static void replace(struct literals *l, struct ast *root, struct ast *ast)
{
    for (uint32_t i = 0; i < ast->count; i++)
        replace(l, root, ast->children[i]);
    if (!is_literal(ast) || l->count == LITERALS_MAX)
        return;
    struct ast old = *ast;
    struct str name = str_from(arena_printf(&l->f->arena, "literal%u", l->count));
    schema_add(l->schema, name, literal_type(ast));
    *ast = (struct ast){.tag = AST_NAME, .span = old.span, .text = name, .height = 1};
    if (compiles(l, root)) {
        l->items[l->count] = arena_copy(&l->f->arena, &old, sizeof(old));
        l->count++;
    } else {
        *ast = old;
        l->schema->count--;
    }
}

static struct batch *literal_batch(struct literals *l)
{
    uint64_t seed = 1;
    struct batch *plain = fixture_batch(l->f, &seed, TEST_ROWS, true);
    struct batch *batch = batch_derive(plain, l->schema);
    batch_release(plain);
    for (uint32_t i = 0; i < l->count; i++) {
        struct column *column = &batch->columns[l->f->schema->count + i];
        const struct ast *ast = l->items[i];
        batch_column_init(batch, column, literal_type(ast), TEST_ROWS);
        column->heap = ast->text.data == NULL ? "" : ast->text.data;
        for (uint32_t row = 0; row < TEST_ROWS; row++)
            switch (column->tag) {
            case TYPE_BOOL: column->bools[row] = ast->boolean; break;
            case TYPE_FLOAT: column->floats[row] = ast->real; break;
            case TYPE_TEXT: column->texts[row] = (struct text_ref){0, (uint32_t)ast->text.length}; break;
            default: column->ints[row] = ast->integer; break;
            }
    }
    return batch;
}

static int failures; /* all wrong rows are shown before the test fails */

/* expected: the value; one that begins with "error" need only be the beginning of the value. */
static void check(const char *text, const char *how, const char *value, const char *expected)
{
    bool is_prefix = strncmp(expected, "error", 5) == 0;
    bool is_wrong =
        is_prefix ? strncmp(value, expected, strlen(expected)) != 0 : strcmp(value, expected) != 0;
    if (is_wrong)
        print_error("%s (%s): %s, expected %s\n", text, how, value, expected);
    failures += is_wrong;
}

static void check_case(const char *text, const char *expected)
{
    struct fixture f;
    fixture_init(&f);
    uint64_t seed = 1;
    struct expr *expr = fixture_compile(&f, text);
    if (expr == NULL) {
        diag_print(stderr, &f.diags, NULL, false);
        fail_msg("%s does not compile", text);
        return;
    }
    struct batch *batch = fixture_batch(&f, &seed, TEST_ROWS, true);
    check(text, "constant", fixture_value(&f, expr, batch, 3), expected);
    batch_release(batch);
    struct literals l = {.f = &f, .schema = schema_copy(&f.arena, f.schema, LITERALS_MAX)};
    struct ast *root = fixture_parse(&f, text);
    replace(&l, root, root);
    expr = expr_compile(root, l.schema, &f.arena, &f.diags);
    assert_non_null(expr);
    batch = literal_batch(&l);
    check(text, "columns", fixture_value(&f, expr, batch, 0), expected);
    check(text, "columns", fixture_value(&f, expr, batch, TEST_ROWS - 1), expected);
    static const uint16_t some[] = {5, 64, 69};
    batch->sel = some;
    batch->selected = 3;
    check(text, "selection", fixture_value(&f, expr, batch, 64), expected);
    batch_release(batch);
    fixture_free(&f);
}

static void test_cases(void **state)
{
    (void)state;
    failures = 0;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        check_case(cases[i].text, cases[i].expected);
    print_message("%zu expressions\n", ARRAY_COUNT(cases));
    assert_int_equal(failures, 0);
}

/* The example in the help of each function is a condition, and is true. */
static void test_examples(void **state)
{
    (void)state;
    size_t count = 0;
    failures = 0;
    for (const struct function_help *help = expr_functions; help->name != NULL; help++) {
        assert_true(strlen(help->summary) > 5 &&
                    strncmp(help->signature, help->name, strlen(help->name)) == 0);
        if (help->is_aggregate)
            continue;
        check_case(help->example, "true");
        count++;
    }
    assert_true(count > 60);
    assert_int_equal(failures, 0);
}

/* Each function is used in at least one row of the table. */
static void test_all_functions_are_covered(void **state)
{
    (void)state;
    for (const struct function_help *help = expr_functions; help->name != NULL; help++) {
        bool is_covered = help->is_aggregate;
        char call[64];
        snprintf(call, sizeof(call), "%s(", help->name);
        for (size_t i = 0; i < ARRAY_COUNT(cases) && !is_covered; i++)
            is_covered = strstr(cases[i].text, call) != NULL;
        if (!is_covered)
            fail_msg("%s is in no row of cases.def", help->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_all_functions_are_covered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
