#include "cmocka_all.h"
#include "core/diag_copy.h"

#include <errno.h>

static void test_limits_have_a_way_out(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct diag *d = diag_error(&diags, DIAG_OUTPUT_FAILED, (struct span){0}, "cannot be written");
    diag_errno(&diags, d, EFBIG);
    assert_non_null(strstr(d->hint, "ulimit -f"));
    diag_hint(&diags, d, "another way"); /* replaces the hint of diag_errno, and is not replaced by it */
    assert_string_equal(d->hint, "another way");
    diag_errno(&diags, d, EMFILE);
    assert_string_equal(d->hint, "another way");
    d = diag_error(&diags, DIAG_FILE_UNREADABLE, (struct span){0}, "cannot be read");
    diag_errno(&diags, d, EIO);
    assert_null(d->hint);
    diag_errno(&diags, d, EMFILE);
    assert_non_null(strstr(d->hint, "ulimit -n"));
    arena_free(&arena);
}

static void test_cap(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    for (unsigned i = 0; i < DIAG_MAX + 50; i++) {
        struct diag *d = i % 2 == 0
                             ? diag_error(&diags, DIAG_NO_COLUMN, (struct span){i, i + 1}, "number %u", i)
                             : diag_warning(&diags, DIAG_NO_SINK, (struct span){i, i + 1}, "number %u", i);
        assert_non_null(d);
        /* What callers add to a diagnostic that was dropped is ignored. */
        diag_hint(&diags, d, "hint %u", i);
        for (int k = 0; k < DIAG_LABELS_MAX + 2; k++)
            diag_label(&diags, d, (struct span){0}, "label %d", k);
        diag_errno(&diags, d, ENOSPC);
        diag_at(&diags, d, "a/file", 7, 3);
    }
    assert_int_equal(diags.count, DIAG_MAX);
    assert_int_equal(diags.dropped, 50);
    assert_int_equal(diags.errors, (DIAG_MAX + 50) / 2);
    for (unsigned i = 0; i < DIAG_MAX; i++) {
        const struct diag *d = &diags.items[i];
        char text[32];
        snprintf(text, sizeof(text), "number %u", i);
        assert_string_equal(d->message, text);
        assert_int_equal(d->span.begin, i);
        assert_int_equal(d->severity, i % 2 == 0 ? DIAG_ERROR : DIAG_WARNING);
        assert_int_equal(d->labels_count, DIAG_LABELS_MAX);
        assert_string_equal(d->labels[2].message, "label 2");
        assert_string_equal(d->cause, "No space left on device");
        assert_string_equal(d->path, "a/file");
        assert_int_equal(d->offset, 7);
    }
    diag_make_room(&diags);
    diag_error(&diags, DIAG_TAKEN_OVER, (struct span){0}, "the last word");
    assert_true(diag_has_code(&diags, DIAG_TAKEN_OVER));
    assert_int_equal(diags.count, DIAG_MAX);
    assert_int_equal(diags.dropped, 51);
    diag_list_init(&diags, &arena);
    diag_error(&diags, DIAG_NO_COLUMN, (struct span){0}, "one");
    diag_make_room(&diags);
    assert_int_equal(diags.count, 1);
    arena_free(&arena);
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const words[] = {"user_id", "item_id", "position", "ts"};
    assert_string_equal(diag_nearest(STR("user_di"), words, ARRAY_COUNT(words)), "user_id");
    assert_string_equal(diag_nearest(STR("postion"), words, ARRAY_COUNT(words)), "position");
    assert_null(diag_nearest(STR("completely_other"), words, ARRAY_COUNT(words)));
    assert_null(diag_nearest(STR(""), words, ARRAY_COUNT(words)));
    assert_null(diag_nearest(STR("user_id"), words, 0));
}

static void test_codes(void **state)
{
    (void)state;
    for (int code = DIAG_NONE + 1; code < DIAG_CODE_COUNT; code++) {
        const char *name = diag_code_name((enum diag_code)code);
        assert_int_equal(strlen(name), 5);
        assert_int_equal(name[0], 'E');
        assert_true(strlen(diag_code_summary((enum diag_code)code)) > 10);
        if (code > DIAG_NONE + 1)
            assert_true(strcmp(diag_code_name((enum diag_code)(code - 1)), name) < 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cap),
        cmocka_unit_test(test_limits_have_a_way_out),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
