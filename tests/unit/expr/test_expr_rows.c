/* What a table of constants cannot test: selections, failed rows, conditions, the memory of results. */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct run {
    struct fixture f;
    struct batch *batch;
    struct arena scratch, memory;
    struct expr_errors errors;
    struct column out;
};

static void begin(struct run *r, uint32_t rows, bool has_nulls)
{
    uint64_t seed = 42;
    *r = (struct run){0};
    fixture_init(&r->f);
    r->batch = fixture_batch(&r->f, &seed, rows, has_nulls);
}

static void end(struct run *r)
{
    batch_release(r->batch);
    arena_free(&r->scratch);
    arena_free(&r->memory);
    fixture_free(&r->f);
}

static void eval(struct run *r, const char *text)
{
    struct expr *expr = fixture_compile(&r->f, text);
    if (expr == NULL)
        diag_print(stderr, &r->f.diags, NULL, false);
    assert_non_null(expr);
    r->errors = (struct expr_errors){0};
    expr_eval(expr, r->batch, &r->scratch, &r->memory, &r->out, &r->errors);
}

static uint32_t filter(struct run *r, const char *text, uint16_t *sel)
{
    struct expr *expr = fixture_compile(&r->f, text);
    assert_non_null(expr);
    r->errors = (struct expr_errors){0};
    return expr_filter(expr, r->batch, &r->scratch, sel, &r->errors);
}

static void test_empty(void **state)
{
    (void)state;
    struct run r;
    uint16_t sel[1];
    begin(&r, 0, false);
    eval(&r, "a + 1");
    eval(&r, "split(s, \",\")");
    assert_int_equal(filter(&r, "a > 0", sel), 0);
    end(&r);
    begin(&r, 100, false);
    static const uint16_t none[1];
    r.batch->sel = none;
    r.batch->selected = 0;
    eval(&r, "1 / a");
    assert_int_equal(r.errors.count, 0);
    assert_int_equal(filter(&r, "1 / a > 0", sel), 0);
    end(&r);
}

/* Only rows that fail are marked, with a reason that quotes the failing part of the expression. */
static void test_marks(void **state)
{
    (void)state;
    struct run r;
    begin(&r, 200, true);
    eval(&r, "100 / a");
    for (uint32_t row = 0; row < 200; row++) {
        bool is_valid = column_is_valid(&r.batch->columns[COLUMN_A], row);
        bool is_bad = is_valid && r.batch->columns[COLUMN_A].ints[row] == 0;
        assert_int_equal(bit_get(r.errors.rows, row), is_bad);
        if (is_bad)
            assert_string_equal(r.errors.reasons[row], "integer division by zero in `100 / a`");
        else
            assert_int_equal(column_is_valid(&r.out, row), is_valid);
    }
    eval(&r, "a / 3 + 1 / b + int(s)");
    uint32_t by_division = 0, by_cast = 0;
    for (uint32_t row = 0; row < 200; row++)
        if (bit_get(r.errors.rows, row)) {
            by_division += strcmp(r.errors.reasons[row], "integer division by zero in `1 / b`") == 0;
            by_cast += strcmp(r.errors.reasons[row], "a text that is no int in `int(s)`") == 0;
        }
    assert_true(by_division > 0 && by_cast > 0);
    assert_int_equal(by_division + by_cast, r.errors.count);
    end(&r);
}

/* A row that a condition excludes does not fail; without the condition it does. */
static void test_lazy(void **state)
{
    (void)state;
    static const char *const good[] = {
        "a is not null and a != 0 and 100 / a > 5",
        "a is null or a = 0 or 100 / a > 5",
        "case when a = 0 then 0 else 100 / a end",
        "case when a != 0 then 100 / a end",
        "coalesce(try_divide(100, a), case when a = 0 then 7 else 100 / a end)",
        "not (a = 0 or 100 / a > 5)",
        "case when a = 0 then false else 100 / a > 1 end and a > 0",
        "if_null(null_if(a, 0), 1) > 0 and 100 / if_null(null_if(a, 0), 1) > 0",
    };
    struct run r;
    begin(&r, 1024, true);
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        eval(&r, good[i]);
        if (r.errors.count != 0)
            fail_msg("%s marks %u rows", good[i], r.errors.count);
    }
    eval(&r, "100 / a > 5 and a != 0");
    assert_true(r.errors.count > 0);
    eval(&r, "coalesce(100 / a, 1)");
    assert_true(r.errors.count > 0);
    end(&r);
}

/* Unselected rows are not read: their text and list references may be invalid. */
static void test_unselected(void **state)
{
    (void)state;
    static const char *const texts[] = {"concat(s, \"x\")",
                                        "lower(s)",
                                        "s = t",
                                        "s in [\"a\"]",
                                        "length(s)",
                                        "regex_match(s, \"a\")",
                                        "s < t",
                                        "trim(s)",
                                        "len(split(s, \",\"))",
                                        "hash(s)",
                                        "cross(s, a)",
                                        "int(try_float(s))",
                                        "case when p then s else t end",
                                        "coalesce(s, t)",
                                        "get(lt, 0)",
                                        "join(lt, s)"};
    struct run r;
    begin(&r, 100, false);
    static const uint16_t some[] = {3, 40, 99};
    r.batch->sel = some;
    r.batch->selected = 3;
    for (uint32_t row = 0; row < 100; row++)
        if (row != 3 && row != 40 && row != 99) {
            r.batch->columns[COLUMN_S].texts[row] = (struct text_ref){0xfffffff0, 0xfffffff0};
            r.batch->columns[COLUMN_LT].lists[row] = (struct list_ref){0xfffffff0, 0xfffffff0};
            r.batch->columns[COLUMN_B].ints[row] = 0;
        }
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        eval(&r, texts[i]);
    eval(&r, "1 / b");
    for (uint32_t row = 0; row < 100; row++)
        if (row != 3 && row != 40 && row != 99)
            assert_false(bit_get(r.errors.rows, row));
    end(&r);
}

/* Results do not change when the scratch memory is overwritten. */
static void test_result_memory(void **state)
{
    (void)state;
    static const char *const texts[] = {"trim(concat(s, \" \"))",
                                        "substr(lower(s), 0, 2)",
                                        "null_if(upper(s), \"A\")",
                                        "get(split(s, \",\"), 0)",
                                        "coalesce(s, lower(t))",
                                        "split(concat(s, t), \",\")",
                                        "regex_extract(concat(s, t), \"[a-z]+\")",
                                        "[s, t, \"x\"]",
                                        "a + 1",
                                        "a > 1",
                                        "first(split(lower(s), \"b\"))",
                                        "case when p then s else lower(t) end",
                                        "\"abc\"",
                                        "s"};
    struct run r;
    begin(&r, 300, true);
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        struct expr *expr = fixture_compile(&r.f, texts[i]);
        struct type type = expr_type(expr);
        eval(&r, texts[i]);
        const char *before[300];
        for (uint32_t row = 0; row < 300; row++)
            before[row] = arena_strdup(&r.f.arena, fixture_show(&r.f, &r.out, row, &type));
        arena_reset(&r.scratch);
        for (int k = 0; k < 40; k++)
            memset(arena_alloc(&r.scratch, 8192), 0xa5, 8192);
        for (uint32_t row = 0; row < 300; row++)
            assert_string_equal(fixture_show(&r.f, &r.out, row, &type), before[row]);
        arena_reset(&r.scratch);
    }
    end(&r);
}

/* The value and the reason of a row do not depend on how the rows are cut into batches. */
static void test_split(void **state)
{
    (void)state;
    static const char *const texts[] = {"exp(x) + log1p(abs(y))",
                                        "pow(abs(x), y)",
                                        "a * b + 1",
                                        "concat(s, text(x))",
                                        "hash(s) % 1000",
                                        "sum(li) / a",
                                        "case when a > b then int(s) else b end"};
    struct run r;
    begin(&r, 257, true);
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        struct expr *expr = fixture_compile(&r.f, texts[i]);
        for (uint16_t row = 0; row < 257; row += 7) {
            const char *all = fixture_value(&r.f, expr, r.batch, row);
            r.batch->sel = &row;
            r.batch->selected = 1;
            assert_string_equal(fixture_value(&r.f, expr, r.batch, row), all);
            r.batch->sel = NULL;
            r.batch->selected = 257;
        }
    }
    end(&r);
}

/* expr_filter returns selected rows in rising order; where the condition is null or fails, the row
 * is left out. */
static void test_filter(void **state)
{
    (void)state;
    struct run r;
    uint16_t sel[BATCH_ROWS];
    begin(&r, 1000, true);
    uint64_t seed = 5;
    fixture_select(r.batch, &seed);
    uint32_t count = filter(&r, "a > 0 and 10 / b < 5", sel);
    assert_true(count > 0 && r.errors.count > 0);
    const struct column *a = &r.batch->columns[COLUMN_A], *b = &r.batch->columns[COLUMN_B];
    uint32_t at = 0;
    for (uint32_t i = 0; i < r.batch->selected; i++) {
        uint32_t row = r.batch->sel[i];
        bool is_kept = column_is_valid(a, row) && a->ints[row] > 0 && column_is_valid(b, row) &&
                       b->ints[row] != 0 && 10 / b->ints[row] < 5;
        if (is_kept)
            assert_int_equal(sel[at++], row);
    }
    assert_int_equal(at, count);
    assert_int_equal(filter(&r, "true", sel), r.batch->selected);
    assert_int_equal(filter(&r, "false", sel), 0);
    assert_int_equal(filter(&r, "bool(null)", sel), 0);
    end(&r);
}

/* A feature cross combines the hashes of its row's values in order, whichever code path goes
 * through the columns. */
static void test_cross(void **state)
{
    (void)state;
    static const int columns[] = {COLUMN_S, COLUMN_A, COLUMN_X, COLUMN_T};
    for (int has_nulls = 0; has_nulls < 2; has_nulls++) {
        struct run r;
        begin(&r, 700, has_nulls);
        eval(&r, "cross(s, a, x, t)");
        for (uint32_t row = 0; row < 700; row++) {
            uint64_t hash = 0;
            for (size_t k = 0; k < ARRAY_COUNT(columns); k++)
                hash = expr_hash_combine(hash, expr_hash_value(&r.batch->columns[columns[k]], row));
            assert_true((uint64_t)r.out.ints[row] == hash);
        }
        end(&r);
    }
}

/* A row fails if its text grows beyond 1 MiB; the other rows do not. */
static void test_long_text(void **state)
{
    (void)state;
    struct run r;
    begin(&r, 3, false);
    char *heap = arena_alloc(&r.batch->arena, 600000 + 1);
    memset(heap, 'a', 600001);
    r.batch->columns[COLUMN_S].heap = heap;
    for (uint32_t row = 0; row < 3; row++)
        r.batch->columns[COLUMN_S].texts[row] = (struct text_ref){0, row == 1 ? 600000 : 10};
    static const char *const texts[] = {"concat(s, s)", "replace(s, \"a\", \"bb\")",
                                        "regex_replace(s, \"a\", \"bb\")", "join([s, s], \"\")"};
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        eval(&r, texts[i]);
        assert_int_equal(r.errors.count, 1);
        assert_true(bit_get(r.errors.rows, 1));
        assert_non_null(strstr(r.errors.reasons[1], "longer than 1 MiB"));
        assert_int_equal(r.out.texts[0].length, 20);
        assert_int_equal(r.out.texts[2].length, 20);
    }
    end(&r);
}

static void test_bytes(void **state)
{
    (void)state;
    static const char *const bad[] = {"\xff",     "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "\xe2\x82", "a\x80"};
    struct run r;
    begin(&r, 8, false);
    r.batch->columns[COLUMN_Z].heap =
        arena_strdup(&r.batch->arena, "\xff\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80\xe2\x82"
                                      "a\x80\xe2\x82\xac\xf0\x9d\x84\x9e");
    uint32_t at = 0;
    for (uint32_t row = 0; row < 6; row++) {
        r.batch->columns[COLUMN_Z].texts[row] = (struct text_ref){at, (uint32_t)strlen(bad[row])};
        at += (uint32_t)strlen(bad[row]);
    }
    r.batch->columns[COLUMN_Z].texts[6] = (struct text_ref){at, 3};
    r.batch->columns[COLUMN_Z].texts[7] = (struct text_ref){at + 3, 4};
    eval(&r, "text(z)");
    assert_int_equal(r.errors.rows[0], 0x3f);
    eval(&r, "try_text(z)");
    assert_int_equal(r.errors.count, 0);
    assert_int_equal(r.out.valid[0] & 0xff, 0xc0);
    eval(&r, "length(text(z))");
    assert_int_equal(r.out.ints[6], 1);
    assert_int_equal(r.out.ints[7], 1);
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),         cmocka_unit_test(test_marks),
        cmocka_unit_test(test_lazy),          cmocka_unit_test(test_unselected),
        cmocka_unit_test(test_result_memory), cmocka_unit_test(test_split),
        cmocka_unit_test(test_filter),        cmocka_unit_test(test_cross),
        cmocka_unit_test(test_long_text),     cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
