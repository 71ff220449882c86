/* Parsing declarations and steps: the tree of a job, and how parsing goes on after errors. */
#include "core/os.h"
#include "unit/lang/support.h"

static void test_sample_job(void **state)
{
    struct fixture *f = *state;
    char *text = NULL;
    size_t bytes = 0;
    assert_int_equal(os_read_file(LEAT_SOURCE_DIR "/tests/unit/lang/sample.leat", 1 << 20, &text, &bytes), 0);
    struct job_file *job = lang_parse(&f->arena, &f->diags, &lang_test_registry, (struct str){text, bytes});
    assert_string_equal(codes(f), "");
    assert_true(str_is(job->name.text, "ctr"));
    assert_string_equal(entry_text(f, job->job_entries, job->job_entries_count, "checkpoint"),
                        "{ every: 10s, dir: \"state/ctr\", keep: { last: 3, hourly: 24, daily: 7 } }");
    assert_int_equal(job->params_count, 1);
    assert_int_equal(job->params[0].type, PARAM_INT);
    assert_int_equal(job->lets_count, 1);
    assert_int_equal(job->lets[0].count, 2);
    assert_int_equal(job->sources_count, 2);
    assert_ptr_equal(job->sources[0].descriptor, registry_source(&lang_test_registry, STR("kafka")));
    assert_entry(f, &job->sources[0], "schema",
                 "{ imp_id: text, user_id: int, item_id: int, device: text, position: int, ts: time(ms) }");
    assert_int_equal(job->streams_count, 2);
    assert_true(str_is(job->streams[0].input.name, "impressions"));
    assert_int_equal(job->streams[0].steps_count, 5);
    const struct step_decl *step = job->streams[0].steps;
    assert_entry(f, &step[0], "", "user_id > 0 and position <= 100");
    assert_entry(f, &step[1], "by", "imp_id");
    assert_entry(f, &step[1], "within", "1h");
    assert_entry(f, &step[3], "from", "clicks");
    assert_entry(f, &step[3], "over", "[1h, 24h]");
    assert_entry(f, &step[3], "{}", "{ clicks: count() }");
    assert_entry(f, &step[4], "", "[ctr = smooth(clicks_1h, imps_1h), hour = hour_of_day(ts)]");
    assert_entry(f, &job->streams[1].steps[0], "", "clicks");
    assert_entry(f, &job->streams[1].steps[0], "as", "clicked");
    assert_int_equal(job->learners_count, 1);
    assert_true(str_is(job->learners[0].input.name, "examples"));
    assert_entry(f, &job->learners[0], "embedding",
                 "{ dim: 16, optimizer: adagrad { rate: 0.05 }, admit_after: 2, expire_after: 30d }");
    assert_int_equal(job->sinks_count, 2);
    assert_true(str_is(job->sinks[0].input.name, "ctr"));
    assert_true(str_is(job->sinks[0].input.output, "predictions"));
    assert_true(str_is(job->sinks[1].input.name, "dead_letters"));
    assert_int_equal(job->sinks[1].input.output.length, 0);
    free(text);
}

static const struct {
    const char *step, *name, *printed;
} steps[] = {
    {"select a, b", "", "[a, b]"},
    {"select a", "", "[a]"},
    {"rename new = old", "", "[new = old]"},
    {"with a = b = c, d = 1", "", "[a = b = c, d = 1]"},
    {"drop a, b", "", "[a, b]"},
    {"drop a", "", "a"},
    {"where a = 1", "", "a = 1"},
    {"where by in [1]", "", "by in [1]"},
    {"dedup by by, within within 1h", "by", "[by, within]"},
    {"dedup within 2 * 30m by a", "within", "2 * 30m"},
    {"dedup by a\n within 1h\n keep last", "keep", "last"},
    {"feature by a over [1h] including self { n: count(), }", "including", "self"},
    {"feature by a over [1h] every 1m\n { n: count()\n m: sum(x) }", "{}", "{ n: count(), m: sum(x) }"},
    {"feature from hourly.late by a over 1h { n: count() }", "from", "hourly.late"},
    {"window by c over tumbling(1h) { n: count(), added: sum(added) }", "over", "tumbling(1h)"},
    {"window over x { n: count() }", "over", "x"},
    {"window over case when a then b end { n: count() }", "over", "case when a then b end"},
    {"union b, c.late", "", "[b, c.late]"},
    {"clean { trim: true }", "{}", "{ trim: true }"},
    {"clean a, b { trim: true }", "", "[a, b]"},
    {"encode a using adagrad { rate: 0.05 }", "using", "adagrad { rate: 0.05 }"},
    {"limit", "rows", NULL},
    {"limit 5", "", "5"},
};

static void test_steps(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < ARRAY_COUNT(steps); i++) {
        const char *text =
            arena_printf(&f->arena, "stream s = a | %s | where z\nsink n = null from s\n", steps[i].step);
        struct job_file *job = lang_parse(&f->arena, &f->diags, &lang_test_registry, str_from(text));
        if (f->diags.count > 0)
            print_error("%s: %s\n", steps[i].step, f->diags.items[0].message);
        assert_int_equal(f->diags.count, 0);
        assert_int_equal(job->streams[0].steps_count, 2);
        assert_int_equal(job->sinks_count, 1);
        const struct step_decl *step = &job->streams[0].steps[0];
        assert_false(step->is_broken);
        const char *printed = entry_text(f, step->entries, step->count, steps[i].name);
        if (steps[i].printed == NULL)
            assert_null(printed);
        else
            assert_string_equal(printed, steps[i].printed);
    }
}

static const struct {
    const char *text, *codes;
    unsigned broken; /* bit i: step i of the first stream is broken */
} errors[] = {
    {"stream s = a | where | where x > | where z", "E0104 E0104", 3},
    {"stream s = a | dedup by x witin 1h keep first | where z", "E0401", 1},
    {"stream s = a | frob x, [1, { | where z", "E0203", 1},
    {"stream s = a | where f(x, [1 | where z", "E0104", 1},
    {"stream s = a | | where z", "E0104", 1},
    {"stream s = a | where x { n: 1 } | where z", "E0104", 1},
    {"stream s = a | window over x { n count(), m: } | where z", "E0104 E0104", 1},
    {"stream s = a | where x extra stuff here | where z", "E0401", 1},
    {"stream s = a | with = 1 | where z", "E0104", 1},
    {"stream s = a | with end = 1 | where z", "E0104", 1},
    {"stream s = a | where x = 1x | where y + | where z", "E0103 E0104", 3},
    {"stream s = a | where x\nlearner broken deepfm from y { a: [ }\nstream t = b", "E0104", 0},
    {"stream s = a | where x\nsource q = file { a: (1, b: 2\n c: [3 }\nstream t = b", "E0104 E0104", 0},
    {"stream s = a | where x\nsource q = file { a: 1\nstream t = b", "E0104", 0},
    {"stream s = a | where x\nsource q = file { a: 1 }}\nstream t = b", "E0104", 0},
    {"stream s = a | where x sink n = null from s\nstream t = b", "E0104", 0},
    {"stream s = a | where x\nstream = a\nstream `q` = a\nstream end = a\nstream t = b", "E0104 E0104 E0104",
     0},
    {"stream s = a | where x\nlet f x = 1\nlet g(x,,) = 1\nlet h(x) x\nstream t = b", "E0104 E0104 E0104", 0},
    {"stream s = a | where x\nparam p int = 1\nparam q: intt = 1\nparam r: int = \nstream t = b",
     "E0104 E0104 E0104", 0},
    {"stream s = a | where x\njob { }\njob j\nstream t = b", "E0104 E0104", 0},
    {"stream s = a | where x\nsink n = null to s\nsink m = from s\nsink o = null from s.\nstream t = b",
     "E0104 E0104 E0104", 0},
    {"stream s = a | where x\nstreem q = a | where y\n  | with z = 1\nstream t = b", "E0104", 0},
    {"stream s = a | where x\n42\nstream t = b", "E0104", 0},
};

/* Each mistake gives one diagnostic, and what follows it is still parsed. */
static void test_recovery(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < ARRAY_COUNT(errors); i++) {
        forget_diags(f);
        const char *text =
            arena_printf(&f->arena, "%s\nsource last = file { path: \"x\" }\n", errors[i].text);
        struct job_file *job = lang_parse(&f->arena, &f->diags, &lang_test_registry, str_from(text));
        if (strcmp(codes(f), errors[i].codes) != 0)
            for (unsigned j = 0; j < f->diags.count; j++)
                print_error("%s\n    %s\n", errors[i].text, f->diags.items[j].message);
        assert_string_equal(codes(f), errors[i].codes);
        const struct stream_decl *stream = &job->streams[0];
        assert_int_equal(stream->is_broken, errors[i].broken != 0);
        for (uint32_t j = 0; j < stream->steps_count; j++)
            assert_int_equal(stream->steps[j].is_broken, errors[i].broken >> j & 1);
        if (strstr(errors[i].text, "stream t") != NULL)
            assert_true(str_is(job->streams[job->streams_count - 1].name.text, "t"));
        assert_true(str_is(job->sources[job->sources_count - 1].name.text, "last"));
        assert_false(job->sources[job->sources_count - 1].is_broken);
    }
}

/* Without a registry all kinds are unknown, but nothing else is an error. */
static void test_without_registry(void **state)
{
    struct fixture *f = *state;
    struct job_file *job =
        lang_parse(&f->arena, &f->diags, NULL,
                   STR("source a = file { path: \"x\" }\nstream s = a | where x > 0 | dedup by y\n"
                       "learner m = fm from s { label: y }\nsink n = null from m.metrics\n"));
    assert_string_equal(codes(f), "E0203 E0203 E0203 E0203 E0203");
    assert_int_equal(job->streams[0].steps_count, 2);
    assert_null(job->streams[0].steps[0].descriptor);
    assert_entry(f, &job->sources[0], "path", "\"x\"");
    assert_true(str_is(job->sinks[0].input.output, "metrics"));
}

static void test_did_you_mean(void **state)
{
    struct fixture *f = *state;
    parse_job(f, "sorce a = kafak\nstream s = a | were x | dedup bye y\n");
    assert_string_equal(f->diags.items[0].hint, "did you mean `source`?");
    assert_string_equal(f->diags.items[1].hint, "did you mean `where`?");
    assert_string_equal(f->diags.items[2].hint, "did you mean `by`?");
}

static void test_limits(void **state)
{
    struct fixture *f = *state;
    char *text = arena_alloc(&f->arena, LANG_SOURCE_BYTES_MAX + 1);
    memset(text, '\n', LANG_SOURCE_BYTES_MAX + 1);
    struct job_file *job = lang_parse(&f->arena, &f->diags, NULL, (struct str){text, LANG_SOURCE_BYTES_MAX});
    assert_int_equal(f->diags.count, 0);
    lang_parse(&f->arena, &f->diags, NULL, (struct str){text, LANG_SOURCE_BYTES_MAX + 1});
    assert_string_equal(codes(f), "E0105");
    job = lang_parse(&f->arena, &f->diags, NULL, (struct str){NULL, 0});
    assert_int_equal(job->streams_count + job->sources_count, 0);
    /* A name of the longest length, and one byte more. */
    forget_diags(f);
    char name[LANG_NAME_BYTES_MAX + 2];
    memset(name, 'a', sizeof(name));
    name[LANG_NAME_BYTES_MAX] = '\0';
    parse_job(f, arena_printf(&f->arena, "stream %s = b", name));
    assert_int_equal(f->diags.count, 0);
    name[LANG_NAME_BYTES_MAX] = 'a';
    name[LANG_NAME_BYTES_MAX + 1] = '\0';
    parse_job(f, arena_printf(&f->arena, "stream %s = b", name));
    assert_string_equal(codes(f), "E0105");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_case(test_sample_job),       test_case(test_steps),        test_case(test_recovery),
        test_case(test_without_registry), test_case(test_did_you_mean), test_case(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
