/* The option tables of every kind that is built in: defaults and bounds pass their own rows, all texts that
 * help needs are there, and every example is a job that passes `leat check`. (That each descriptor has its
 * line in a registry.def is checked by tests/tidy.) */
#include "cli/commands.h"
#include "toys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { CONFIG_BYTES = 1 << 20, ROWS_MAX = 128 };

/* --- Tables --- */

static uint32_t rows_checked;

static bool is_word(const char *name)
{
    return name[0] != '\0' && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(name);
}

static void check_sentence(const char *where, const char *what, const char *text)
{
    if (text == NULL || strlen(text) < 4)
        fail_msg("%s: no %s", where, what);
    if (text[strlen(text) - 1] == '.' && strcmp(what, "summary") == 0)
        fail_msg("%s: the summary ends with a full stop", where);
}

static double bound_value(const struct option_row *o, const char *text, const char *where)
{
    int64_t whole = 0;
    double real = 0;
    struct str s = str_from(text);
    bool is_good = o->type == OPTION_DURATION_T || o->type == OPTION_DURATIONS_T ? literal_duration(s, &whole)
                   : o->type == OPTION_BYTES_T                                   ? literal_bytes(s, &whole)
                   : o->type == OPTION_INT_T || o->type == OPTION_INTS_T         ? literal_int(s, &whole)
                                                                                 : literal_float(s, &real);
    if (!is_good)
        fail_msg("%s: the bound `%s` is no literal of its type", where, text);
    return o->type == OPTION_FLOAT_T ? real : (double)whole;
}

/* The size of the member that a row is bound into; of a block, whose struct the row does not tell, 1. */
static size_t member_bytes(const struct option_row *o)
{
    static const size_t bytes[] = {
        [OPTION_BOOL_T] = sizeof(bool),
        [OPTION_INT_T] = sizeof(int64_t),
        [OPTION_FLOAT_T] = sizeof(double),
        [OPTION_TEXT_T] = sizeof(struct str),
        [OPTION_TEXTS_T] = sizeof(struct texts),
        [OPTION_DURATION_T] = sizeof(int64_t),
        [OPTION_DURATIONS_T] = sizeof(struct durations),
        [OPTION_BYTES_T] = sizeof(int64_t),
        [OPTION_ENUM_T] = sizeof(int),
        [OPTION_INTS_T] = sizeof(struct ints),
        [OPTION_COLUMN_T] = sizeof(struct column_ref),
        [OPTION_COLUMNS_T] = sizeof(struct columns),
        [OPTION_EXPRESSION_T] = sizeof(struct expression),
        [OPTION_EXPRESSIONS_T] = sizeof(struct expressions),
        [OPTION_ASSIGNMENTS_T] = sizeof(struct assignments),
        [OPTION_NAME_T] = sizeof(struct name_ref),
        [OPTION_STREAM_T] = sizeof(struct name_ref),
        [OPTION_STREAMS_T] = sizeof(struct columns),
        [OPTION_SCHEMA_T] = sizeof(struct schema *),
        [OPTION_BLOCK_T] = 1,
        [OPTION_KIND_T] = sizeof(struct kind_ref),
    };
    return bytes[o->type];
}

/* The row's name and member are its own, and the member lies in the struct of `size` bytes: an include with
 * the wrong member or table would put rows elsewhere. */
static void check_place(const struct option *table, size_t size, const struct option_walk *at,
                        const char *path)
{
    const struct option_row *o = &at->row;
    if (o->offset + member_bytes(o) > size)
        fail_msg("%s: its member lies outside of the struct", path);
    for (struct option_walk w = option_walk(table); option_next(&w) && w.count < at->count;) {
        if (strcmp(w.row.name, o->name) == 0)
            fail_msg("%s: twice in its table", path);
        if (w.row.offset < o->offset + member_bytes(o) && o->offset < w.row.offset + member_bytes(&w.row))
            fail_msg("%s: its member is that of %s", path, w.row.name);
    }
}

static void check_table(const struct option *table, size_t size, const char *where);

static void check_row(const struct option_row *o, const char *path)
{
    rows_checked++;
    check_sentence(path, "help", o->help);
    if (!is_word(o->name))
        fail_msg("%s: not a plain name", path);
    bool is_number = o->type == OPTION_INT_T || o->type == OPTION_FLOAT_T || o->type == OPTION_DURATION_T ||
                     o->type == OPTION_DURATIONS_T || o->type == OPTION_BYTES_T || o->type == OPTION_INTS_T;
    if (!is_number && (o->min_text != NULL || o->max_text != NULL))
        fail_msg("%s: bounds of what is no number", path);
    double low = o->min_text != NULL ? bound_value(o, o->min_text, path) : 0;
    double high = o->max_text != NULL ? bound_value(o, o->max_text, path) : 0;
    if (o->min_text != NULL && o->max_text != NULL && low > high)
        fail_msg("%s: %s is above %s", path, o->min_text, o->max_text);
    if ((o->flags & OPTION_REQUIRED) != 0 && o->default_text != NULL)
        fail_msg("%s: required, with a default", path);
    if (o->type == OPTION_ENUM_T && (o->choices == NULL || o->choices[0] == '\0'))
        fail_msg("%s: no choices", path);
    if (o->type == OPTION_BLOCK_T)
        check_table(o->block, SIZE_MAX, path);
    for (const struct kind_choice *k = o->kinds; o->type == OPTION_KIND_T && k->name != NULL; k++) {
        char kind[512];
        snprintf(kind, sizeof(kind), "%s.%s", path, k->name);
        check_sentence(kind, "summary", k->summary);
        check_table(k->options, k->size, kind);
    }
}

/* Binds no entries to the table without its required rows: every default must pass its own row. */
static void check_defaults(const struct option *table, const char *where)
{
    struct option rows[ROWS_MAX + 1];
    uint32_t count = 0;
    for (struct option_walk w = option_walk(table); option_next(&w);)
        if ((w.row.flags & OPTION_REQUIRED) == 0)
            rows[count++] = (struct option){.written = w.row};
    assert_true(count <= ROWS_MAX);
    rows[count] = (struct option){0};
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct option_env env = {&arena, &diags, lang_parse_value};
    void *target = arena_calloc(&arena, 1, CONFIG_BYTES);
    if (!option_bind(rows, where, (struct span){0}, NULL, 0, target, &env))
        fail_msg("%s: %s", where, diags.items[0].message);
    assert_int_equal(diags.count, 0);
    arena_free(&arena);
}

/* The value that a hint shows as an example is one that the option takes, and is not zero. */
static void check_example(const struct option_row *o, const char *where)
{
    const char *example = option_example(o);
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct option row[2] = {{.written = *o}, OPTIONS_END};
    struct option_env env = {&arena, &diags, lang_parse_value};
    bool is_number = o->type == OPTION_INT_T || o->type == OPTION_FLOAT_T || o->type == OPTION_DURATION_T ||
                     o->type == OPTION_BYTES_T;
    if (is_number && o->default_text != NULL && example == NULL)
        fail_msg("%s.%s: no example", where, o->name);
    if (example != NULL && is_number) {
        double zero = 1;
        bool is_zero = strcmp(example, "0B") == 0 || strcmp(example, "0s") == 0 ||
                       (literal_float(str_from(example), &zero) && zero == 0);
        row->written.default_text = example;
        row->written.flags &= ~(unsigned)OPTION_REQUIRED;
        void *target = arena_calloc(&arena, 1, CONFIG_BYTES);
        if (is_zero || !option_bind(row, where, (struct span){0}, NULL, 0, target, &env))
            fail_msg("%s.%s: `%s` is no example of it", where, o->name, example);
    }
    arena_free(&arena);
}

static void check_table(const struct option *table, size_t size, const char *where)
{
    char path[256];
    for (struct option_walk w = option_walk(table); option_next(&w);) {
        snprintf(path, sizeof(path), "%s.%s", where, w.row.name);
        check_place(table, size, &w, path);
        check_row(&w.row, path);
        check_example(&w.row, where);
    }
    if (table != NULL)
        check_defaults(table, where);
}

static void check_kind(const char *group, const char *name, const char *summary, const char *example,
                       const struct option *options, size_t size)
{
    char where[128];
    snprintf(where, sizeof(where), "%s %s", group, name);
    if (!is_word(name))
        fail_msg("%s: not a plain name", where);
    check_sentence(where, "summary", summary);
    check_sentence(where, "example", example);
    check_table(options, size, where);
}

static void test_tables(void **state)
{
    (void)state;
    const struct registry *r = &builtin_registry;
    for (uint32_t i = 0; r->sources[i] != NULL; i++) {
        const struct source_kind *k = r->sources[i];
        check_kind("source", k->name, k->summary, k->example, k->options, k->size);
        assert_true(registry_source(r, str_from(k->name)) == k);
        /* A kind must not use the names of the options that every source has. */
        for (struct option_walk w = option_walk(source_options); option_next(&w);)
            if (option_find(k->options, str_from(w.row.name)).name != NULL)
                fail_msg("source %s: %s is an option of every source", k->name, w.row.name);
    }
    for (uint32_t i = 0; r->sinks[i] != NULL; i++) {
        const struct sink_kind *k = r->sinks[i];
        check_kind("sink", k->name, k->summary, k->example, k->options, k->size);
        assert_true(registry_sink(r, str_from(k->name)) == k);
    }
    for (uint32_t i = 0; r->operators[i] != NULL; i++) {
        const struct operator_kind *k = r->operators[i];
        check_kind("operator", k->name, k->summary, k->example, k->options, k->size);
        assert_true(registry_operator(r, str_from(k->name)) == k);
        assert_true(k->bind != NULL && (k->process != NULL || k->process_merged != NULL));
        assert_true(k->inputs_min >= 1 && k->inputs_min <= k->inputs_max &&
                    k->inputs_max <= OPERATOR_INPUTS_MAX);
    }
    for (uint32_t i = 0; r->learners[i] != NULL; i++) {
        const struct operator_kind *k = r->learners[i];
        check_kind("learner", k->name, k->summary, k->example, k->options, k->size);
        assert_true(registry_learner(r, str_from(k->name)) == k);
        assert_int_equal(k->determinism, DETERMINISM_BY_ALL_ROWS);
    }
    for (uint32_t i = 0; r->formats[i] != NULL; i++) {
        check_sentence(r->formats[i]->name, "summary", r->formats[i]->summary);
        assert_int_equal(r->formats[i]->suffix == NULL, r->formats[i]->is_payload);
        assert_true(r->formats[i]->is_payload || r->formats[i]->suffix[0] == '.');
        assert_true(registry_format(r, str_from(r->formats[i]->name)) == r->formats[i]);
    }
    check_table(job_options, sizeof(struct job_config), "job");
    check_table(source_options, sizeof(struct source_common), "every source");
    assert_true(rows_checked > 60);
}

static void test_functions(void **state)
{
    (void)state;
    uint32_t count = 0;
    for (const struct function_help *f = builtin_registry.functions; f->name != NULL; f++, count++) {
        check_sentence(f->name, "summary", f->summary);
        check_sentence(f->name, "signature", f->signature);
        check_sentence(f->name, "example", f->example);
        assert_memory_equal(f->signature, f->name, strlen(f->name));
    }
    assert_true(count > 60);
}

/* --- Examples --- */

/* Appends the sources that examples read, with the sample columns, except the source `but`. */
static void add_sources(struct byte_buffer *job, const char *but)
{
    static const char *const names[] = {"events", "more_events", "sessions", "ratings", "features",
                                        "clicks", "impressions", "imps",     "examples"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (strcmp(names[i], but) != 0)
            buffer_printf(
                job,
                "source %s = file { path: \"x.jsonl\", schema: { event_id: text, imp_id: text, user_id: int, "
                "item_id: int, device: text, price: float, position: int, clicked: bool, rating: float, "
                "ts: time(ms), tags: list(text), events: list({ aid: int, kind: text }) }, event_time: ts "
                "}\n",
                names[i]);
}

static void check_job(struct byte_buffer *job, const char *what)
{
    buffer_append(job, "", 1);
    struct toy_job toy;
    toy_plan(&toy, &builtin_registry, job->data);
    if (toy.plan == NULL) {
        diag_print(stderr, &toy.diags, &(struct diag_source){what, str_from(job->data)}, false);
        fail_msg("the example of %s is refused", what);
    }
    toy_free(&toy);
    buffer_free(job);
}

/* The second word of a declaration: `source NAME = ...`. */
static void declared_name(const char *example, char name[64])
{
    assert_int_equal(sscanf(example, "%*s %63s", name), 1);
}

static void test_examples(void **state)
{
    (void)state;
    const struct registry *r = &builtin_registry;
    char name[64];
    for (uint32_t i = 0; r->sources[i] != NULL; i++) {
        struct byte_buffer job = {0};
        declared_name(r->sources[i]->example, name);
        buffer_printf(&job, "%s\nsink out = null from %s", r->sources[i]->example, name);
        check_job(&job, r->sources[i]->name);
    }
    for (uint32_t i = 0; r->formats[i] != NULL; i++) {
        struct byte_buffer job = {0};
        if (r->formats[i]->example == NULL)
            continue;
        declared_name(r->formats[i]->example, name);
        buffer_printf(&job, "%s\nsink out = null from %s", r->formats[i]->example, name);
        check_job(&job, r->formats[i]->name);
    }
    for (uint32_t i = 0; r->sinks[i] != NULL; i++) {
        struct byte_buffer job = {0};
        add_sources(&job, "");
        buffer_printf(&job, "%s", r->sinks[i]->example);
        check_job(&job, r->sinks[i]->name);
    }
    for (uint32_t i = 0; r->operators[i] != NULL; i++) {
        struct byte_buffer job = {0};
        add_sources(&job, "");
        buffer_printf(&job, "stream s = %s\nsink out = null from s", r->operators[i]->example);
        check_job(&job, r->operators[i]->name);
    }
    for (uint32_t i = 0; r->learners[i] != NULL; i++) {
        struct byte_buffer job = {0};
        add_sources(&job, "");
        declared_name(r->learners[i]->example, name);
        buffer_printf(&job, "%s\nsink out = null from %s.metrics", r->learners[i]->example, name);
        check_job(&job, r->learners[i]->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_examples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
