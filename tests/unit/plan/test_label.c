/* Promise 3 of the design: no input of a learner may derive from its label in any way, except from labels
 * that had arrived before. */
#include "cli/commands.h"
#include "core/os.h"
#include "toys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* Ratings have their label in the source; shows and answers get theirs by a join. */
#define SOURCES                                                                                              \
    "let plus(x, y) = x + y\n"                                                                               \
    "source ratings = file { path: \"r\", schema: { user: int, item: int, rating: float, stars: int, "       \
    "word: text, seen: list(int), ts: time(ms) }, event_time: ts }\n"                                        \
    "source shows = file { path: \"s\", schema: { id: int, user: int, item: int, position: int, ts: "        \
    "time(ms) }, "                                                                                           \
    "event_time: ts }\n"                                                                                     \
    "source answers = file { path: \"a\", schema: { id: int, item: int, ts: time(ms) }, event_time: ts }\n"  \
    "stream shown = shows | feature by item over 1h { n: count() }\n"                                        \
    "stream labelled = shown | attribute answers on id within 30m as clicked\n"

struct label_case {
    const char *what;
    const char *stream; /* `labelled` or `ratings`, and steps */
    const char *inputs; /* of the learner */
};

/* --- Joined labels: `clicked` --- */

static const struct label_case joined_bad[] = {
    {"the label itself", "labelled", "clicked"},
    {"an expression of it", "labelled", "user, clicked * 2"},
    {"a function of it", "labelled", "cross(user, clicked)"},
    {"with", "labelled | with x = clicked + 1", "x"},
    {"with, twice", "labelled | with x = clicked + 1 | with y = x * 2, z = y", "z"},
    {"with that takes a column's place",
     "labelled | drop position | with position = case when clicked = 1 then 1 else 0 end", "position"},
    {"a condition of case", "labelled | with x = case when clicked = 1 then 5 else 6 end", "x"},
    {"is null", "labelled | with x = clicked is null", "x"},
    {"in", "labelled | with x = clicked in [1, 2]", "x"},
    {"coalesce", "labelled | with x = coalesce(position, clicked)", "x"},
    {"let", "labelled | with x = plus(position, clicked)", "x"},
    {"let in the learner", "labelled", "plus(position, clicked)"},
    {"rename", "labelled | with y = clicked | rename x = y", "x"},
    {"select", "labelled | select user, y = clicked, clicked", "y"},
    {"cast", "labelled | with x = clicked | cast x = text", "x"},
    {"clean", "labelled | with x = clicked | clean { x: clamp(0, 1) }", "x"},
    {"bucketize", "labelled | bucketize clicked at [1] as x", "x"},
    {"hash", "labelled | hash clicked as x", "x"},
    {"cross", "labelled | cross user, clicked as x", "x"},
    {"feature, including self", "labelled | feature by item over 1h including self { c: sum(clicked) }", "c"},
    {"feature by the label", "labelled | feature by clicked over 1h { c: count() }", "c"},
    {"feature, including self, of what a condition on the label left",
     "labelled | where clicked = 1 | feature by item over 1h including self { c: count() }", "c"},
    {"window", "labelled | window by item over tumbling(1h) { clicked: max(clicked), c: sum(clicked) }", "c"},
    {"window of what a condition on the label left",
     "labelled | where clicked = 1 | window by item over tumbling(1h) { clicked: max(clicked), c: count() }",
     "c"},
    {"unnest", "labelled | with l = split(text(clicked), \",\") | unnest l", "l"},
    {"unnest: how many rows there are",
     "labelled | with l = split(text(clicked), \",\") | unnest l "
     "| feature by item over 1h including self { c: count() }",
     "c"},
    {"where and union: which rows are there tells the label",
     "labelled | where clicked = 1 | with x = 1 | union others", "x"},
    {"union", "labelled | with x = clicked | union others", "x"},
    {"dedup by the label, then a union",
     "labelled | dedup by clicked, id within 1h | with x = 1 | union others", "x"},
};

static const struct label_case joined_good[] = {
    {"what was there before the join", "labelled", "user, item, cross(user, item), log1p(n), position"},
    {"the columns that the join is on", "labelled", "id"},
    {"features of what had arrived", "labelled | feature by item over [1h, 24h] { c: sum(clicked) }",
     "c_1h, c_24h"},
    {"the same, computed with",
     "labelled | feature by item over 1h { c: sum(clicked) } | with r = c / (n + 1)", "r"},
    {"a condition on the label alone", "labelled | where clicked = 1 or position < 3", "item"},
    {"a column that takes the place of the label's name",
     "labelled | rename was = clicked | with clicked = was, other = position", "other"},
    {"conditions on columns of all, then a union",
     "labelled | where position < 3 | with x = position | union others", "position"},
    {"a window's key beside its sum of labels",
     "labelled | window by item over tumbling(1h) { clicked: sum(clicked), c: count() }", "item, c"},
    {"a window of what a condition left",
     "labelled | where position < 3 | window by item over tumbling(1h) { clicked: sum(clicked), c: "
     "max(position) }",
     "item, c"},
};

/* --- Labels that a source has: `rating` --- */

static const struct label_case source_bad[] = {
    {"the label itself", "ratings", "rating"},
    {"with", "ratings | with x = rating > 3.0", "x"},
    {"rename", "ratings | with y = rating | rename x = y", "x"},
    {"clean", "ratings | clean { rating: fill(3.0) } | with x = rating", "x"},
    {"feature, including self", "ratings | feature by user over 1d including self { m: mean(rating) }", "m"},
    {"feature of rows that came before themselves",
     "ratings | union ratings | feature by user over 1d { m: last(rating) }", "m"},
    {"feature by what derives from it",
     "ratings | with high = rating > 3.0 | feature by high over 1d { m: count() }", "m"},
    {"sample by it, then a union", "ratings | sample 0.5 by rating | union more", "item"},
};

static const struct label_case source_good[] = {
    {"other columns", "ratings", "user, item, stars, word, seen"},
    {"features of what had arrived",
     "ratings | feature by user over 1d { m: mean(rating), last: last(rating) }", "m, last"},
    {"a condition", "ratings | where rating is not null", "user, item"},
};

static char *make_job(const struct label_case *c, const char *label, const char *others)
{
    struct byte_buffer job = {0};
    buffer_printf(
        &job,
        SOURCES "%sstream s = %s\n"
                "learner m = linear from s { label: %s, sparse: [%s] }\nsink out = null from m.predictions\n",
        others, c->stream, label, c->inputs);
    buffer_append(&job, "", 1);
    return job.data;
}

static void check(const struct label_case *c, const char *label, const char *others, bool is_refused)
{
    char *job = make_job(c, label, others);
    struct toy_job toy;
    toy_plan(&toy, &builtin_registry, job);
    const char *expected = is_refused ? "E0502 " : "";
    if (strcmp(toy_codes(&toy), expected) != 0) {
        diag_print(stderr, &toy.diags, &(struct diag_source){"job", str_from(job)}, false);
        fail_msg("%s: %s from `%s` was %s", c->what, c->inputs, c->stream,
                 is_refused ? "not refused as derived from the label" : "refused");
    }
    for (unsigned i = 0; is_refused && i < toy.diags.count; i++) {
        const struct diag *d = &toy.diags.items[i];
        if (d->severity != DIAG_ERROR)
            continue;
        /* The diagnostic points at the input and at the label. */
        assert_true(d->span.begin > (uint32_t)(strstr(job, "sparse:") - job));
        assert_true(d->labels_count >= 1 &&
                    str_is((struct str){job + d->labels[0].span.begin, strlen(label)}, label));
    }
    toy_free(&toy);
    free(job);
}

/* `others` has the columns of the stream before its `union`: a second labelled stream, with x. */
static const char joined_others[] = "stream others = shown | attribute answers on id within 30m as clicked "
                                    "| with x = position\n";
static const char source_others[] = "stream more = ratings\n";

static void test_joined(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(joined_bad); i++)
        check(&joined_bad[i], "clicked", joined_others, true);
    for (size_t i = 0; i < ARRAY_COUNT(joined_good); i++)
        check(&joined_good[i], "clicked", joined_others, false);
}

static void test_from_a_source(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(source_bad); i++)
        check(&source_bad[i], "rating", source_others, true);
    for (size_t i = 0; i < ARRAY_COUNT(source_good); i++)
        check(&source_good[i], "rating", source_others, false);
}

/* A label that is computed from several columns taints all of them, except those that are
 * known when serving. */
static void test_known_early(void **state)
{
    (void)state;
    static const struct {
        const char *label, *known, *inputs, *codes;
    } cases[] = {
        {"rating - float(stars)", "", "stars", "E0502 "},
        {"rating - float(stars)", "known_early: stars,", "stars", ""},
        {"rating - float(stars)", "known_early: stars,", "stars, rating", "E0502 "},
        {"rating - float(stars)", "known_early: [user],", "stars", "E0502 "},
        {"rating - float(stars)", "known_early: strs,", "user", "E0302 "},
        {"rating > 3.0", "", "user, rating", "E0502 "},
        {"rating > 3.0", "", "user, rating, int(rating)", "E0502 E0502 "},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char job[2048];
        snprintf(job, sizeof(job), SOURCES "learner m = linear from ratings { label: %s, %s sparse: [%s] }\n",
                 cases[i].label, cases[i].known, cases[i].inputs);
        struct toy_job toy;
        toy_plan(&toy, &builtin_registry, job);
        if (strcmp(toy_codes(&toy), cases[i].codes) != 0)
            fail_msg("label %s, %s inputs %s: said %s", cases[i].label, cases[i].known, cases[i].inputs,
                     toy_codes(&toy));
        toy_free(&toy);
    }
}

/* Dense features, and the features of every kind of learner, are checked as well. */
static void test_every_learner(void **state)
{
    (void)state;
    static const char *const learners[] = {
        "linear from ratings { label: rating, sparse: [user], dense: [rating] }",
        "fm from ratings { label: rating, sparse: [user], dense: [float(stars), rating * 2.0] }",
        "ffm from ratings { label: rating, sparse: [user, int(rating)] }",
        "deepfm from ratings { label: rating, sparse: [user], wide: [cross(user, rating)] }",
        "mf from ratings { label: rating, user: user, item: int(rating) }",
    };
    for (size_t i = 0; i < ARRAY_COUNT(learners); i++) {
        char job[2048];
        snprintf(job, sizeof(job), SOURCES "learner m = %s\n", learners[i]);
        struct toy_job toy;
        toy_plan(&toy, &builtin_registry, job);
        if (strcmp(toy_codes(&toy), "E0502 ") != 0)
            fail_msg("%s: said %s", learners[i], toy_codes(&toy));
        toy_free(&toy);
    }
}

static void test_shipped_jobs(void **state)
{
    (void)state;
    static const char *const names[] = {"ctr", "movielens"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        char path[512], *text;
        size_t bytes;
        snprintf(path, sizeof(path), "%s/jobs/%s.leat", LEAT_SOURCE_DIR, names[i]);
        assert_int_equal(os_read_file(path, LANG_SOURCE_BYTES_MAX, &text, &bytes), 0);
        struct toy_job toy;
        toy_plan(&toy, &builtin_registry, text);
        if (toy.plan == NULL)
            fail_msg("%s is refused: %s", path, toy_codes(&toy));
        toy_free(&toy);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joined),       cmocka_unit_test(test_from_a_source),
        cmocka_unit_test(test_known_early),  cmocka_unit_test(test_every_learner),
        cmocka_unit_test(test_shipped_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
