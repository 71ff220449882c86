/* What the tests of lang share: a job parsed from text, and the codes of its diagnostics. */
#ifndef LEAT_TESTS_UNIT_LANG_SUPPORT_H
#define LEAT_TESTS_UNIT_LANG_SUPPORT_H

#include "lang/lang.h"
#include "unit/lang/kinds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

struct fixture {
    struct arena arena;
    struct diag_list diags;
};

static inline int fixture_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    assert_non_null(fixture);
    diag_list_init(&fixture->diags, &fixture->arena);
    *state = fixture;
    return 0;
}

static inline int fixture_teardown(void **state)
{
    struct fixture *fixture = *state;
    arena_free(&fixture->arena);
    free(fixture);
    return 0;
}

static inline void forget_diags(struct fixture *fixture)
{
    diag_list_init(&fixture->diags, &fixture->arena);
}

static inline struct job_file *parse_job(struct fixture *fixture, const char *text)
{
    return lang_parse(&fixture->arena, &fixture->diags, &lang_test_registry, str_from(text));
}

/* The codes of the diagnostics in the order in which they were reported: "E0104 E0203". */
static inline const char *codes(struct fixture *fixture)
{
    const char *all = "";
    for (unsigned i = 0; i < fixture->diags.count; i++)
        all = arena_printf(&fixture->arena, "%s%s%s", all, i > 0 ? " " : "",
                           diag_code_name(fixture->diags.items[i].code));
    return all;
}

/* The value of the first entry with that name as canonical text, or NULL if there is none. */
static inline const char *entry_text(struct fixture *fixture, const struct ast_entry *entries, uint32_t count,
                                     const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (str_is(entries[i].name, name))
            return ast_text(&fixture->arena, entries[i].value);
    return NULL;
}

#define assert_entry(fixture, owner, name, expected)                                                         \
    assert_string_equal(entry_text(fixture, (owner)->entries, (owner)->count, name), expected)
#define test_case(test_function)                                                                             \
    cmocka_unit_test_setup_teardown(test_function, fixture_setup, fixture_teardown)

#endif
