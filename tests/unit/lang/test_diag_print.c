/* Diagnostics as text and as JSON, and "did you mean". */
#include "unit/lang/support.h"

#include <jansson.h>

/* What diag_print writes about the diagnostics, as a text in the arena. */
static const char *printed(struct fixture *f, struct str text, bool color)
{
    struct diag_source source = {"job.leat", text};
    char *memory = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&memory, &bytes);
    diag_print(out, &f->diags, &source, color);
    fclose(out);
    const char *copy = arena_strndup(&f->arena, memory, bytes);
    free(memory);
    return copy;
}

static json_t *printed_json(struct fixture *f, struct str text)
{
    struct diag_source source = {"job.leat", text};
    char *memory = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&memory, &bytes);
    diag_print_json(out, &f->diags, &source);
    fclose(out);
    json_error_t error;
    json_t *json = json_loadb(memory, bytes, JSON_REJECT_DUPLICATES, &error);
    if (json == NULL)
        print_error("%s\n%s\n", error.text, memory);
    free(memory);
    assert_non_null(json);
    return json;
}

static void test_everything(void **state)
{
    struct fixture *f = *state;
    struct str text = STR("let f(x) = y\nsink a = b\n");
    struct diag *d = diag_error(&f->diags, DIAG_BAD_LET, (struct span){11, 12}, "`%s` is not known", "y");
    diag_label(&f->diags, d, (struct span){4, 5}, "in this function");
    diag_hint(&f->diags, d, "did you mean `x`?");
    diag_cause(&f->diags, d, "it happened");
    diag_warning(&f->diags, DIAG_NAME_TAKEN, (struct span){18, 19}, "short name");
    assert_string_equal(printed(f, text, false), "job.leat:1:12: error[E0206]: `y` is not known\n"
                                                 "    1 | let f(x) = y\n"
                                                 "      |            ^\n"
                                                 "job.leat:1:5: note: in this function\n"
                                                 "    1 | let f(x) = y\n"
                                                 "      |     ^\n"
                                                 "      cause: it happened\n"
                                                 "      hint: did you mean `x`?\n"
                                                 "job.leat:2:6: warning[E0201]: short name\n"
                                                 "    2 | sink a = b\n"
                                                 "      |      ^\n");
    assert_null(strchr(printed(f, text, false), '\033'));
    assert_non_null(strstr(printed(f, text, true), "\033[1;31merror[E0206]: \033[0m"));
}

/* Diagnostics are printed in the order of their places in the file; others have no place, are about another
 * file, or about the end of the file. */
static void test_places(void **state)
{
    struct fixture *f = *state;
    struct str text = STR("one\ntwo\n");
    diag_error(&f->diags, DIAG_UNEXPECTED, (struct span){8, 8}, "at the end");
    diag_error(&f->diags, DIAG_UNEXPECTED, (struct span){4, 7}, "second");
    diag_error(&f->diags, DIAG_UNEXPECTED, (struct span){0, 3}, "first");
    diag_error(&f->diags, DIAG_NO_PARAMETER, (struct span){0, 0}, "nowhere");
    struct diag *d = diag_error(&f->diags, DIAG_FILE_DAMAGED, (struct span){0, 0}, "damaged");
    diag_at(&f->diags, d, "data/a.jsonl", 70, 3);
    d = diag_error(&f->diags, DIAG_FILE_UNREADABLE, (struct span){4, 7}, "unreadable");
    diag_at(&f->diags, d, "data/b.jsonl", -1, -1);
    assert_string_equal(printed(f, text, false), "job.leat:1:1: error[E0104]: first\n"
                                                 "    1 | one\n"
                                                 "      | ^~~\n"
                                                 "job.leat: error[E0205]: nowhere\n"
                                                 "data/a.jsonl:3: error[E0603]: damaged (at byte 70)\n"
                                                 "data/b.jsonl: error[E0601]: unreadable\n"
                                                 "job.leat:2:1: note: asked for here\n"
                                                 "    2 | two\n"
                                                 "      | ^~~\n"
                                                 "job.leat:2:1: error[E0104]: second\n"
                                                 "    2 | two\n"
                                                 "      | ^~~\n"
                                                 "job.leat:3:1: error[E0104]: at the end\n"
                                                 "    3 | \n"
                                                 "      | ^\n");
}

static void test_columns(void **state)
{
    struct fixture *f = *state;
    /* A tab, a wide character, a combining mark, then the place that is marked. */
    struct str text = STR("\ta\xE4\xB8\xAD"
                          "e\xCC\x81 x\r\n");
    diag_error(&f->diags, DIAG_UNEXPECTED, (struct span){9, 10}, "here");
    assert_string_equal(printed(f, text, false), "job.leat:1:7: error[E0104]: here\n"
                                                 "    1 |     a\xE4\xB8\xAD"
                                                 "e\xCC\x81 x\n"
                                                 "      |          ^\n");
    /* A span over several lines is marked to the end of its first line. */
    forget_diags(f);
    text = STR("a [1,\n2]\n");
    diag_error(&f->diags, DIAG_UNEXPECTED, (struct span){2, 8}, "here");
    assert_string_equal(printed(f, text, false), "job.leat:1:3: error[E0104]: here\n"
                                                 "    1 | a [1,\n"
                                                 "      |   ^~~\n");
}

/* Control characters in the source, a message or a path are printed escaped, so that they cannot
 * control a terminal. */
static void test_hostile_bytes(void **state)
{
    struct fixture *f = *state;
    struct str text = STR("x\033[2J\xFF\xE2\x80\xAEy z\n");
    struct diag *d =
        diag_error(&f->diags, DIAG_UNEXPECTED, (struct span){11, 12}, "bad \033]0;title\007 \xFE \xC2\x9B");
    diag_hint(&f->diags, d, "a\nb");
    diag_at(&f->diags, diag_error(&f->diags, DIAG_FILE_UNREADABLE, (struct span){0, 0}, "m"), "p\033q", -1,
            -1);
    const char *all = printed(f, text, false);
    assert_string_equal(all, "p\\x1Bq: error[E0601]: m\n"
                             "job.leat:1:10: error[E0104]: bad \\x1B]0;title\\x07 \\xFE \\x9B\n"
                             "    1 | x\\x1B[2J\\xFF\\u{202E}y z\n"
                             "      |                       ^\n"
                             "      hint: a\\x0Ab\n");
    json_t *json = printed_json(f, text);
    assert_string_equal(json_string_value(json_object_get(json_array_get(json, 1), "message")),
                        "bad \033]0;title\007 \xEF\xBF\xBD \xC2\x9B");
    json_decref(json);
}

static void test_long_line(void **state)
{
    struct fixture *f = *state;
    char text[5001];
    memset(text, 'a', sizeof(text));
    text[5000] = '\n';
    text[2500] = 'X';
    diag_error(&f->diags, DIAG_UNEXPECTED, (struct span){2500, 2501}, "far");
    diag_error(&f->diags, DIAG_UNEXPECTED, (struct span){5000, 5000}, "at its end");
    const char *all = printed(f, (struct str){text, sizeof(text)}, false);
    assert_true(strlen(all) < 700);
    for (const char *line = all; *line != '\0'; line = strchr(line, '\n') + 1)
        assert_true(strchr(line, '\n') - line < 130);
    /* The mark is under the X. */
    const char *source_line = strchr(all, '\n') + 1, *mark_line = strchr(source_line, '\n') + 1;
    assert_int_equal(strchr(source_line, 'X') - source_line, strchr(mark_line, '^') - mark_line);
    assert_memory_equal(source_line, "    1 | ...aaa", 14);
}

static void test_capped(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < DIAG_MAX + 5; i++)
        diag_hint(&f->diags, diag_error(&f->diags, DIAG_UNEXPECTED, (struct span){0, 1}, "number %d", i),
                  "hint");
    const char *all = printed(f, STR("x\n"), false);
    assert_non_null(strstr(all, "number 199\n"));
    assert_non_null(strstr(all, "... and 5 more\n"));
    json_t *json = printed_json(f, STR("x\n"));
    assert_int_equal(json_array_size(json), DIAG_MAX);
    json_decref(json);
}

static void test_json(void **state)
{
    struct fixture *f = *state;
    struct str text = STR("one\ntwo \"x\"\n");
    struct diag *d = diag_error(&f->diags, DIAG_UNEXPECTED, (struct span){8, 11}, "found \"x\" \\ \t");
    diag_label(&f->diags, d, (struct span){0, 3}, "label");
    diag_hint(&f->diags, d, "hint");
    diag_at(&f->diags, diag_error(&f->diags, DIAG_FILE_UNREADABLE, (struct span){0, 0}, "m"), "a/b", 12, -1);
    json_t *json = printed_json(f, text);
    json_t *first = json_array_get(json, 1), *second = json_array_get(json, 0);
    assert_string_equal(json_string_value(json_object_get(first, "severity")), "error");
    assert_string_equal(json_string_value(json_object_get(first, "code")), "E0104");
    assert_string_equal(json_string_value(json_object_get(first, "message")), "found \"x\" \\ \t");
    assert_string_equal(json_string_value(json_object_get(first, "file")), "job.leat");
    assert_int_equal(json_integer_value(json_object_get(first, "line")), 2);
    assert_int_equal(json_integer_value(json_object_get(first, "column")), 5);
    assert_int_equal(json_integer_value(json_object_get(first, "end_line")), 2);
    assert_int_equal(json_integer_value(json_object_get(first, "end_column")), 8);
    assert_string_equal(json_string_value(json_object_get(first, "hint")), "hint");
    assert_true(json_is_null(json_object_get(first, "cause")));
    assert_int_equal(
        json_integer_value(json_object_get(json_array_get(json_object_get(first, "labels"), 0), "line")), 1);
    assert_string_equal(json_string_value(json_object_get(second, "file")), "a/b");
    assert_int_equal(json_integer_value(json_object_get(second, "offset")), 12);
    assert_true(json_is_null(json_object_get(second, "line")));
    json_decref(json);
    /* Without diagnostics the JSON is an empty array. */
    forget_diags(f);
    json = printed_json(f, text);
    assert_int_equal(json_array_size(json), 0);
    json_decref(json);
}

static void test_nearest(void **state)
{
    static const char *const words[] = {"within", "by", "keep", "event_time", "max_delay", "path"};
    static const struct {
        const char *word, *nearest;
    } cases[] = {{"witin", "within"},
                 {"wihtin", "within"},
                 {"WITHIN", "within"},
                 {"kep", "keep"},
                 {"eventtime", "event_time"},
                 {"bye", "by"},
                 {"b", "by"},
                 {"x", NULL},
                 {"zz", NULL},
                 {"frobnicate", NULL},
                 {"", NULL},
                 {"paht", "path"}};
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        const char *nearest = diag_nearest(str_from(cases[i].word), words, ARRAY_COUNT(words));
        if (cases[i].nearest == NULL)
            assert_null(nearest);
        else
            assert_string_equal(nearest, cases[i].nearest);
    }
    char longer[200];
    memset(longer, 'a', sizeof(longer));
    assert_null(diag_nearest((struct str){longer, sizeof(longer)}, words, ARRAY_COUNT(words)));
    assert_null(diag_nearest(STR("by"), NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_case(test_everything),    test_case(test_places),    test_case(test_columns),
        test_case(test_hostile_bytes), test_case(test_long_line), test_case(test_capped),
        test_case(test_json),          test_case(test_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
