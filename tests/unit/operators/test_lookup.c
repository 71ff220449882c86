/* lookup: a table in a file, by key; errors in the table; its digest in checkpoints. */
#include "harness.h"

#include "core/connector.h"
#include "core/registry.h"
#include "unit/support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

extern const struct source_kind source_file;
static const struct source_kind *const sources[] = {&source_file, NULL};
static const struct registry registry = {.sources = sources};

static char directory[TEMPORARY_PATH_BYTES];

static int make_directory(void **state)
{
    (void)state;
    temporary_make(directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    temporary_remove(directory);
    return 0;
}

static void write_table(const char *name, const char *text)
{
    char path[TEMPORARY_PATH_BYTES + 64];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* What the operators of the test are given. */
static struct operator_history history;

/* step: its text from the file's name on. */
static bool bind(struct harness *h, const char *step)
{
    harness_init(h);
    h->calls.history = history;
    h->registry = &registry;
    h->memory_bytes = 1 << 20;
    const char *text = arena_printf(&h->arena, "lookup \"%s/%s", directory, step);
    return harness_bind(h, text);
}

static void check_rows(const char *step, const char *expected)
{
    struct harness h;
    if (!bind(&h, step)) {
        diag_print(stderr, &h.diags, NULL, false);
        fail_msg("%s", step);
    }
    harness_push(&h, 0, harness_batch(&h, 4)); /* items 10, 20, 30 and 40 */
    const char *text = harness_text(&h);
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        size_t length = strcspn(line, "\n"), from = 0;
        for (int bars = 0; from < length && bars < 9; from++)
            bars += line[from] == '|';
        if (strncmp(line + from, expected, length - from + 1) != 0)
            fail_msg("%s: %.*s\nexpected %s", step, (int)(length - from), line + from, expected);
        expected += length - from + 1;
    }
    assert_int_equal(*expected, '\0');
    assert_int_equal(h.context.counters.in, 4);
    assert_int_equal(h.context.counters.passed, 4);
    harness_free(&h);
}

static void test_rows(void **state)
{
    (void)state;
    write_table("items.csv",
                "id,name,score,ok,at\n10,ten,1.5,true,2024-01-01T00:00:00Z\n30,,,,\n77,\"\",0,false,\n");
    write_table(
        "items.jsonl",
        "{\"item_id\": 40, \"labels\": [1, 2], \"name\": \"forty\"}\n{\"item_id\": 10, \"labels\": null}\n"
        "{\"item_id\": null, \"name\": \"nobody\"}\n"
        "{\"item_id\": 30, \"labels\": [], \"name\": \"a longer name\"}\n");
    check_rows(
        "items.csv\" on item_id = id { name: text, score: float, ok: bool, at: time(rfc3339) }",
        "ten|1.5|true|1704067200000000\nnull|null|null|null\nnull|null|null|null\nnull|null|null|null\n");
    check_rows("items.jsonl\" on item_id { labels: list(int), name: text }",
               "null|null\nnull|null\n[0]|a longer name\n[2]|forty\n");
    check_rows("items.jsonl\" on item_id { none: text }", "null\nnull\nnull\nnull\n");
}

/* Keys of two columns; several rows of a key (`duplicates`). */
static void test_keys(void **state)
{
    (void)state;
    write_table("pairs.csv", "device,item,note\nmobile,10,first\nmobile,10,second\ntv,10,other\nTV,40,tv\n");
    check_rows("pairs.csv\" on device, item_id = item duplicates first { note: text }",
               "first\nnull\nnull\ntv\n");
    check_rows("pairs.csv\" on device, item_id = item duplicates last { note: text }",
               "second\nnull\nnull\ntv\n");
}

/* Rows without a match are filtered, which the key's lineage must show. */
static void test_inner(void **state)
{
    (void)state;
    struct harness h;
    write_table("few.csv", "id,name\n40,forty\n10,ten\n");
    assert_true(bind(&h, "few.csv\" on item_id = id kind inner { name: text }"));
    assert_true(bit_get(h.context.output->rows_lineage.words, 1));
    assert_true(bit_get(h.context.output->fields[9].lineage.words, 1));
    harness_push(&h, 0, harness_batch(&h, 16));
    const char *text = harness_text(&h);
    assert_non_null(strstr(text, "|ten\n"));
    assert_non_null(strstr(text, "|forty\n"));
    assert_int_equal(h.rows, 4);
    assert_int_equal(h.context.counters.passed, 4);
    assert_int_equal(h.context.counters.filtered, 12);
    harness_free(&h);
}

static void test_refused(void **state)
{
    (void)state;
    write_table("twice.csv", "id,name\n1,a\n2,b\n1,c\n");
    write_table("bad.csv", "id,name\n1,a\ntwo,b\n3,c\nfour,d\n");
    write_table("other.csv", "key,name\n1,a\n");
    write_table("table.txt", "id,name\n1,a\n");
    struct byte_buffer big = {0};
    buffer_printf(&big, "id,name\n");
    for (int i = 0; i < 40000; i++)
        buffer_printf(&big, "%d,the name of item %d\n", i, i);
    buffer_append(&big, "", 1);
    write_table("big.csv", big.data);
    buffer_free(&big);
    static const struct {
        const char *step;
        enum diag_code code;
        const char *says;
    } cases[] = {
        {"twice.csv\" on item_id = id { name: text }", DIAG_FILE_COLUMNS,
         "line 4: an earlier record has the same key"},
        {"bad.csv\" on item_id = id { name: text }", DIAG_FILE_COLUMNS, "line 3: "},
        {"other.csv\" on item_id = id { name: text }", DIAG_FILE_COLUMNS, NULL},
        {"none.csv\" on item_id = id { name: text }", DIAG_NO_FILE, NULL},
        {"table.txt\" on item_id = id { name: text }", DIAG_OPTION_MISSING, NULL},
        {"big.csv\" on item_id = id { name: text }", DIAG_MEMORY_BUDGET, "does not fit"},
        {"twice.csv\" on item_id = id { id: int }", DIAG_COLUMN_TAKEN, NULL},
        {"twice.csv\" on item_id = id { price: float }", DIAG_COLUMN_TAKEN, NULL},
        {"twice.csv\" on nobody = id { name: text }", DIAG_NO_COLUMN, NULL},
        {"twice.csv\" on tags { name: text }", DIAG_TYPE_CLASH, NULL},
        {"twice.csv\" on item_id = id + 1 { name: text }", DIAG_OPTION_TYPE, NULL},
        {"twice.csv\" on item_id = id { name: texts }", DIAG_OPTION_TYPE, NULL},
        {"twice.csv\" on item_id = id", DIAG_OPTION_MISSING, NULL},
        {"twice.csv\" { name: text }", DIAG_OPTION_MISSING, NULL},
        {"t*.csv\" on item_id = id refresh 1m { name: text }", DIAG_OPTIONS_CLASH, "several"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct harness h;
        assert_false(bind(&h, cases[i].step));
        const struct diag *d = harness_diag(&h, cases[i].code);
        if (d == NULL || (cases[i].says != NULL && strstr(d->message, cases[i].says) == NULL)) {
            diag_print(stderr, &h.diags, NULL, false);
            fail_msg("%s", cases[i].step);
        }
        harness_free(&h);
    }
}

/* A resumed run must find the table that it began with; a run that begins with --from need not. */
static void test_checkpoints(void **state)
{
    (void)state;
    static const char step[] = "moving.csv\" on item_id = id { name: text }";
    struct snapshot_writer writer = {0};
    for (int turn = 0; turn < 4; turn++) {
        write_table("moving.csv", turn < 2 ? "id,name\n10,a\n" : "id,name\n10,b\n");
        struct harness h;
        assert_true(bind(&h, step));
        h.context.is_from = turn == 3;
        struct snapshot_reader reader = {.parts = &writer.records, .count = 1};
        assert_int_equal(operator_restore(h.kind, &h.context, &reader), turn != 2);
        const struct diag *d = harness_diag(&h, DIAG_FILE_CHANGED);
        assert_int_equal(d != NULL, turn == 2);
        assert_true(d == NULL || strstr(d->hint, "--from") != NULL);
        harness_push(&h, 0, harness_batch(&h, 8));
        struct report report = {0};
        operator_report(h.kind, &h.context, &report);
        /* One of eight rows has item 10; a restored count goes on. */
        double unmatched = report_find(&report, "unmatched")->value;
        assert_true(report_find(&report, "table_rows")->value == 1.0);
        assert_true(unmatched == (turn == 0 ? 7.0 : turn == 2 ? 7.0 : 14.0));
        if (turn == 0)
            assert_true(operator_snapshot(h.kind, &h.context, &writer));
        harness_free(&h);
    }
    struct byte_buffer torn = {0};
    uint32_t header[] = {SNAPSHOT_GLOBAL, 3};
    buffer_append(&torn, header, sizeof(header));
    buffer_append(&torn, "t..", 3);
    struct harness h;
    assert_true(bind(&h, step));
    struct snapshot_reader reader = {.parts = &torn, .count = 1};
    assert_false(operator_restore(h.kind, &h.context, &reader));
    assert_true(reader.is_corrupt);
    harness_free(&h);
    buffer_free(&torn);
    buffer_free(&writer.records);
}

/* --- Refresh --- */

static const char refreshed[] = "versions.csv\" on item_id = id refresh 1h { name: text }";

static void version(const char *name)
{
    char text[64];
    snprintf(text, sizeof(text), "id,name\n10,%s\n", name);
    write_table("versions.csv", text);
}

static const char *name_at(struct harness *h, uint64_t number)
{
    static const char *const names[] = {"one", "two"};
    harness_forget(h);
    h->context.micro_batch = number;
    harness_push(h, 0, harness_batch(h, 8));
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (strstr(harness_text(h), names[i]) != NULL)
            return names[i];
    return "";
}

static void read_log(char text[256])
{
    char path[TEMPORARY_PATH_BYTES + 64];
    snprintf(path, sizeof(path), "%s/kept/LOG", directory);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, 255, file)] = '\0';
    fclose(file);
}

/* Begins a live run, which keeps a copy of the file. log: gets the log's line, which has
 * the file's digest. */
static void begin_live(const char *name, char log[256])
{
    struct harness h;
    version(name);
    assert_true(bind(&h, refreshed));
    assert_string_equal(name_at(&h, 0), name);
    harness_free(&h);
    read_log(log);
    assert_int_equal(strlen(log), 54);
}

static void change_log(const char *one, const char *two)
{
    char text[256];
    snprintf(text, sizeof(text), "%.54s%020d %.33s", one, 10, two + 21);
    write_table("kept/LOG", text);
}

static void remove_kept(const char *line)
{
    char path[TEMPORARY_PATH_BYTES + 96];
    snprintf(path, sizeof(path), "%s/kept/%.32s/versions.csv", directory, line + 21);
    assert_int_equal(remove(path), 0);
}

static struct batch *held;

static void hold(struct harness *h, const struct batch *batch)
{
    (void)h;
    batch_release(held);
    held = (struct batch *)(uintptr_t)batch;
    batch_hold(held);
}

/* Replay: micro-batches of the log use the log's versions of the table, whatever the file holds; a missing
 * version is named. */
static void test_replayed(void **state)
{
    (void)state;
    char one[256], two[256], kept[TEMPORARY_PATH_BYTES + 64];
    struct harness h;
    snprintf(kept, sizeof(kept), "%s/kept", directory);
    history = (struct operator_history){.directory = kept, .is_live = true};
    begin_live("one", one);
    begin_live("two", two); /* a new run: the log is begun anew */
    change_log(one, two);
    history = (struct operator_history){.replayed = kept, .until = UINT64_MAX, .ahead = 3};
    assert_true(bind(&h, refreshed));
    h.check = hold;
    assert_string_equal(name_at(&h, 0), "one");
    assert_string_equal(name_at(&h, 6), "one");
    h.check = NULL;
    /* Version "one" is freed, but not the values looked up in it. */
    assert_string_equal(name_at(&h, 7), "two");
    assert_true(str_is(column_text(&held->columns[held->schema->count - 1], 0), "one"));
    batch_release(held);
    assert_string_equal(name_at(&h, 100), "two");
    harness_free(&h);
    remove_kept(two);
    assert_true(bind(&h, refreshed));
    assert_string_equal(name_at(&h, 6), "one");
    assert_string_equal(name_at(&h, 7), "");
    const struct diag *d = harness_diag(&h, DIAG_FILE_CHANGED);
    assert_true(d != NULL && strstr(d->message, "micro-batch 10 ") != NULL);
    assert_non_null(strstr(d->message, kept));
    harness_free(&h);
    write_table("kept/LOG", "0 damaged\n");
    assert_false(bind(&h, refreshed));
    assert_non_null(harness_diag(&h, DIAG_FILE_DAMAGED));
    harness_free(&h);
    history = (struct operator_history){.replayed = "nowhere"};
    assert_false(bind(&h, refreshed));
    assert_non_null(strstr(harness_diag(&h, DIAG_FILE_CHANGED)->hint, "--order"));
    harness_free(&h);
    history = (struct operator_history){0};
    assert_true(bind(&h, refreshed)); /* uses the current file */
    assert_string_equal(name_at(&h, 0), "two");
    harness_free(&h);
}

enum { KEPT_BYTES = TEMPORARY_PATH_BYTES + 64, DIGEST_TEXT_BYTES = 256 };

/* A checkpoint of a live job whose file is version "one"; "two" is kept, too. Then the file is "neither". kept,
 * one, two: get the job's directory, and the versions' digests. */
static void take_checkpoint(char kept[KEPT_BYTES], char one[DIGEST_TEXT_BYTES], char two[DIGEST_TEXT_BYTES],
                            struct snapshot_writer *writer)
{
    struct harness h;
    snprintf(kept, KEPT_BYTES, "%s/kept", directory);
    history = (struct operator_history){.directory = kept, .is_live = true};
    begin_live("two", two);
    begin_live("one", one);
    assert_true(bind(&h, refreshed));
    assert_true(operator_snapshot(h.kind, &h.context, writer));
    harness_free(&h);
    version("neither");
}

/* A resume: uses the checkpoint's version, and the versions of the micro-batches that are executed again; the
 * rest of the log was in no checkpoint. */
static void test_resumed(void **state)
{
    (void)state;
    char one[DIGEST_TEXT_BYTES], two[DIGEST_TEXT_BYTES], log[256], kept[KEPT_BYTES];
    struct snapshot_writer writer = {0};
    struct harness h;
    take_checkpoint(kept, one, two, &writer);
    for (int turn = 0; turn < 4; turn++) {
        static const uint64_t untils[] = {12, 0, 0, 0};
        change_log(one, two);
        history = (struct operator_history){
            .directory = kept, .is_live = true, .will_restore = true, .first = 5, .until = untils[turn]};
        assert_true(bind(&h, refreshed));
        if (turn == 2)
            remove_kept(one);
        if (turn == 3)
            version("one"); /* version "one" is put back */
        struct snapshot_reader reader = {.parts = &writer.records, .count = 1};
        assert_int_equal(operator_restore(h.kind, &h.context, &reader), turn != 2);
        if (turn == 2) {
            assert_non_null(strstr(harness_diag(&h, DIAG_FILE_CHANGED)->hint, "--from"));
            harness_free(&h);
            continue;
        }
        assert_string_equal(name_at(&h, 5), "one");
        assert_string_equal(name_at(&h, 10), turn == 0 ? "two" : "one");
        harness_free(&h);
        read_log(log);
        assert_int_equal(strlen(log), turn == 0 ? 108 : 54);
    }
    buffer_free(&writer.records);
    history = (struct operator_history){0};
}

/* Requests to a checkpoint: they read the version of the micro-batch that comes next, whatever the file holds;
 * no row counts as unmatched, and nothing is written. */
static void test_asked(void **state)
{
    (void)state;
    static const uint64_t nexts[] = {5, 10};
    char one[DIGEST_TEXT_BYTES], two[DIGEST_TEXT_BYTES], before[256], after[256], kept[KEPT_BYTES];
    struct snapshot_writer writer = {0};
    struct harness h;
    take_checkpoint(kept, one, two, &writer);
    change_log(one, two);
    read_log(before);
    for (size_t i = 0; i < ARRAY_COUNT(nexts); i++) {
        struct snapshot_reader reader = {.parts = &writer.records, .count = 1};
        struct report report = {0};
        history = (struct operator_history){.directory = kept,
                                            .is_live = true,
                                            .is_traced = true,
                                            .will_restore = true,
                                            .first = nexts[i],
                                            .until = UINT64_MAX};
        assert_true(bind(&h, refreshed));
        assert_true(operator_restore(h.kind, &h.context, &reader));
        struct batch *batch = harness_batch(&h, 8);
        h.kind->read(&h.context, 0, batch);
        arena_reset(&h.scratch);
        batch_release(batch);
        assert_non_null(strstr(harness_text(&h), i == 0 ? "|one\n" : "|two\n"));
        operator_report(h.kind, &h.context, &report);
        assert_true(report_find(&report, "unmatched")->value == 0.0);
        harness_free(&h);
        read_log(after);
        assert_string_equal(after, before);
    }
    buffer_free(&writer.records);
    history = (struct operator_history){0};
}

/* Changes the table while the log cannot be made durable; runs in its own process because of the failpoints.
 * Micro-batches behind the barrier must use the version that the log on disk names, or the run must end. */
static void change_with(const char *failpoints, bool changes, bool fails)
{
    static const char quick[] = "versions.csv\" on item_id = id refresh 1s { name: text }";
    struct arena arena = {0};
    struct diag_list diags;
    struct snapshot_writer writer = {0};
    struct harness h;
    char log[256];
    diag_list_init(&diags, &arena);
    setenv("LEAT_FAILPOINTS", failpoints, 1);
    leat_assert(failpoints_init(&diags));
    version("one");
    leat_assert(bind(&h, quick));
    leat_assert(strcmp(name_at(&h, 0), "one") == 0);
    version("two");
    nanosleep(&(struct timespec){3, 500000000}, NULL); /* longer than two looks at the file, a second apart */
    h.context.micro_batch = 4;
    leat_assert(operator_snapshot(h.kind, &h.context, &writer));
    leat_assert((harness_diag(&h, DIAG_OUTPUT_FAILED) != NULL) == fails);
    if (!fails) {
        leat_assert(strcmp(name_at(&h, 5), changes ? "two" : "one") == 0);
        read_log(log);
        leat_assert(strlen(log) == (changes ? 108 : 54));
        h.context.micro_batch = 5; /* at the next barrier */
        leat_assert(operator_snapshot(h.kind, &h.context, &writer));
        leat_assert(strcmp(name_at(&h, 6), "two") == 0);
        read_log(log);
        leat_assert(strlen(log) == 108);
    }
    harness_free(&h);
    buffer_free(&writer.records);
    arena_free(&arena);
}

static void test_torn_logs(void **state)
{
    (void)state;
    /* Passages of the failpoints: copy, its rename, log (file, rename, directory), at the begin and
     * at the change. */
    static const struct {
        const char *failpoints;
        bool changes, fails;
    } cases[] = {
        {"spill.write=sleep:1", true, false},
        {"sink.fsync=error:EIO@5", false, false},  /* writing the log's bytes fails */
        {"sink.rename=error:EIO@4", false, false}, /* renaming the log fails */
        {"sink.fsync=error:EIO@6", false, false},  /* the log is renamed, but not durable */
        {"sink.fsync=error:EIO@6,sink.rename=error:EIO@5", false, true},
    };
    char kept[TEMPORARY_PATH_BYTES + 64];
    pid_t pids[ARRAY_COUNT(cases)];
    snprintf(kept, sizeof(kept), "%s/kept", directory);
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        pids[i] = fork();
        if (pids[i] != 0)
            continue;
        temporary_make(directory); /* each process has its own */
        snprintf(kept, sizeof(kept), "%s/kept", directory);
        history = (struct operator_history){.directory = kept, .is_live = true};
        change_with(cases[i].failpoints, cases[i].changes, cases[i].fails);
        temporary_remove(directory);
        _exit(0);
    }
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        if (status != 0)
            fail_msg("%s: %d", cases[i].failpoints, status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),    cmocka_unit_test(test_keys),        cmocka_unit_test(test_inner),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_checkpoints), cmocka_unit_test(test_replayed),
        cmocka_unit_test(test_resumed), cmocka_unit_test(test_asked),       cmocka_unit_test(test_torn_logs)};
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
