/* `leat generate ctr`: the same options give the same bytes, bad rows that were planted are counted exactly,
 * and no half file is left. */
#include "connectors/generator/ctr_world.h"
#include "connectors/generator/ctr_write.h"
#include "core/os.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

/* xxh3-64 of the files for seed 7: leat promises these bytes on every machine and with every compiler. */
#define IMPRESSIONS_HASH UINT64_C(0x9d348112d35c093f)
#define CLICKS_HASH      UINT64_C(0xd04830ba5a7e8dc2)

enum { FILE_BYTES_MAX = 64 << 20 };

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/leat-ctr-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return os_remove_tree(folder);
}

static struct ctr_write_options options_of(uint64_t events)
{
    return (struct ctr_write_options){.events = events,
                                      .seed = 7,
                                      .rate = 1.6534,
                                      .late_ms = 600000,
                                      .directory = folder,
                                      .is_forced = true};
}

static bool write_with(const struct ctr_write_options *options, enum diag_code *code)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    bool is_written = ctr_write(options, &diags);
    assert_int_equal(diags.errors, is_written ? 0 : 1);
    if (code != NULL)
        *code = is_written ? DIAG_NONE : diags.items[0].code;
    arena_free(&arena);
    return is_written;
}

static char *read_whole(const char *name, size_t *bytes)
{
    char path[128], *data = NULL;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(os_read_file(path, FILE_BYTES_MAX, &data, bytes), 0);
    return data;
}

static uint64_t hash_of(const char *name)
{
    size_t bytes;
    char *data = read_whole(name, &bytes);
    uint64_t hash = XXH3_64bits(data, bytes);
    free(data);
    return hash;
}

static bool is_there(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* The number after `"key": ` in truth.json; only what follows the text `section` is searched if it
 * is not NULL. */
static double truth_of(const char *section, const char *key)
{
    size_t bytes;
    char *data = read_whole("truth.json", &bytes), word[64];
    const char *from = section == NULL ? data : strstr(data, section);
    assert_non_null(from);
    snprintf(word, sizeof(word), "\"%s\": ", key);
    const char *at = strstr(from, word);
    assert_non_null(at);
    double value = strtod(at + strlen(word), NULL);
    free(data);
    return value;
}

static void test_same_options_give_the_same_bytes(void **state)
{
    (void)state;
    struct ctr_write_options options = options_of(3000);
    options.duplicates = 0.02;
    options.late = 0.02;
    options.malformed = 0.01;
    for (int run = 0; run < 2; run++) {
        assert_true(write_with(&options, NULL));
        assert_int_equal(hash_of("impressions.jsonl"), IMPRESSIONS_HASH);
        assert_int_equal(hash_of("clicks.jsonl"), CLICKS_HASH);
    }
    options.seed = 8;
    assert_true(write_with(&options, NULL));
    assert_int_not_equal(hash_of("impressions.jsonl"), IMPRESSIONS_HASH);
}

static void test_more_events_only_add(void **state)
{
    (void)state;
    struct ctr_write_options options = options_of(2000);
    options.is_labelled = true;
    assert_true(write_with(&options, NULL));
    size_t bytes, more_bytes;
    char *data = read_whole("ctr.jsonl", &bytes);
    options.events = 3000;
    assert_true(write_with(&options, NULL));
    char *more = read_whole("ctr.jsonl", &more_bytes);
    assert_true(more_bytes > bytes);
    assert_memory_equal(data, more, bytes);
    free(data);
    free(more);
}

struct tally {
    uint64_t lines, rows, duplicates, late, broken;
};

/* The number after `key` in a line, or -1 if the line is malformed there. The digits are copied first,
 * because a sanitizer's strtoll may check the text up to its end, here that of the file. */
static int64_t number_after(const char *line, size_t length, const char *key)
{
    const char *at = memmem(line, length, key, strlen(key));
    if (at == NULL)
        return -1;
    char digits[18];
    at += strlen(key);
    snprintf(digits, sizeof(digits), "%.*s", (int)MIN(sizeof(digits) - 1, (size_t)(line + length - at)), at);
    char *end;
    long long value = strtoll(digits, &end, 10);
    bool is_number = end > digits && end - digits <= 15;
    return is_number && (*end == ',' || *end == '}') ? value : -1;
}

static struct tally tally_of(const char *name, uint64_t ids_max, int64_t late_ms)
{
    size_t bytes;
    char *data = read_whole(name, &bytes), *seen = calloc(ids_max, 1);
    struct tally tally = {0};
    int64_t greatest_ms = 0;
    for (const char *line = data, *end; line < data + bytes; line = end + 1) {
        end = memchr(line, '\n', (size_t)(data + bytes - line));
        assert_non_null(end);
        size_t length = (size_t)(end - line);
        int64_t id = number_after(line, length, "{\"imp_id\":"),
                ts_ms = number_after(line, length, "\"ts\":");
        bool is_click = strcmp(name, "clicks.jsonl") == 0;
        bool is_whole =
            length > 10 && end[-1] == '}' && (is_click || memmem(line, length, "\"score\":", 8) != NULL);
        tally.lines++;
        if (id < 0 || ts_ms < 0 || !is_whole) {
            tally.broken++;
            continue;
        }
        assert_true((uint64_t)id < ids_max);
        if (seen[id]) {
            tally.duplicates++;
            continue;
        }
        seen[id] = 1;
        tally.rows++;
        tally.late += greatest_ms - ts_ms >= late_ms;
        greatest_ms = MAX(greatest_ms, ts_ms);
    }
    free(seen);
    free(data);
    return tally;
}

static void test_planted_rows_are_counted_exactly(void **state)
{
    (void)state;
    struct ctr_write_options options = options_of(40000);
    options.duplicates = 0.01;
    options.late = 0.004;
    options.malformed = 0.003;
    assert_true(write_with(&options, NULL));
    const char *const names[] = {"impressions.jsonl", "clicks.jsonl"};
    for (size_t i = 0; i < 2; i++) {
        struct tally tally = tally_of(names[i], options.events, options.late_ms);
        assert_true(tally.lines == truth_of(names[i], "lines"));
        assert_true(tally.rows == truth_of(names[i], "rows"));
        assert_true(tally.duplicates == truth_of(names[i], "duplicates"));
        assert_true(tally.late == truth_of(names[i], "late"));
        assert_true(tally.broken == truth_of(names[i], "malformed"));
        assert_int_equal(tally.lines, tally.rows + tally.duplicates + tally.broken);
        /* The shares that were asked for, within five standard errors; the last rows cannot be late. */
        double rows = (double)tally.rows;
        assert_true((double)tally.duplicates > 0.007 * rows && (double)tally.duplicates < 0.0135 * rows);
        assert_true((double)tally.late > 0.0015 * rows && (double)tally.late < 0.006 * rows);
        assert_true((double)tally.broken > 0.001 * rows && (double)tally.broken < 0.006 * rows);
    }
    assert_true(tally_of("impressions.jsonl", options.events, 1).rows == options.events);
    assert_true(truth_of("clicks.jsonl", "rows") == truth_of(NULL, "clicks"));
    assert_true(truth_of(NULL, "clicks_within_30m") > 0.96 * truth_of(NULL, "clicks"));
    assert_true(truth_of(NULL, "bayes_logloss") < truth_of(NULL, "base_rate_logloss"));
}

/* Rows that are about a quarter of an hour apart: one that is held back until the end of the file counts as
 * late only if later rows came before it. */
static void test_rows_held_to_the_end_count_as_what_they_are(void **state)
{
    (void)state;
    struct ctr_write_options options = options_of(200);
    options.rate = 0.001;
    options.late = 0.5;
    options.late_ms = 1000;
    uint64_t late = 0;
    for (options.seed = 0; options.seed < 4; options.seed++) {
        assert_true(write_with(&options, NULL));
        struct tally tally = tally_of("impressions.jsonl", options.events, options.late_ms);
        assert_int_equal(tally.rows, options.events);
        assert_true(tally.late == truth_of("impressions.jsonl", "late"));
        late += tally.late;
    }
    assert_true(late > 200 && late < 600);
}

static void test_the_truth_is_what_the_world_says(void **state)
{
    (void)state;
    struct ctr_write_options options = options_of(10001);
    assert_true(write_with(&options, NULL));
    struct ctr_world *world = ctr_world_new(7, ctr_gap_us(options.rate));
    struct ctr_maker *maker = ctr_maker_new(world);
    struct ctr_truth *truths = calloc(2, sizeof(*truths));
    struct ctr_event event;
    for (uint64_t i = 0; i < options.events; i++) {
        ctr_make(maker, i, &event, &truths[0]);
        if (i >= 8001)
            ctr_make(maker, i, &event, &truths[1]);
    }
    struct ctr_scores all = ctr_truth_scores(&truths[0]), end = ctr_truth_scores(&truths[1]);
    assert_true(fabs(truth_of(NULL, "bayes_logloss") - all.logloss) < 1e-6);
    assert_true(fabs(truth_of(NULL, "bayes_auc") - all.auc) < 1e-5);
    assert_true(fabs(truth_of(NULL, "base_rate_logloss") - all.base_logloss) < 1e-6);
    assert_true(fabs(truth_of("last_fifth", "bayes_logloss") - end.logloss) < 1e-6);
    assert_true(fabs(truth_of("last_fifth", "ctr") - end.ctr) < 1e-6);
    free(truths);
    ctr_maker_free(maker);
    ctr_world_free(world);
}

static void test_nothing_planted_is_nothing_counted(void **state)
{
    (void)state;
    struct ctr_write_options options = options_of(5000);
    assert_true(write_with(&options, NULL));
    struct tally tally = tally_of("impressions.jsonl", options.events, 1000);
    assert_int_equal(tally.lines, 5000);
    assert_int_equal(tally.rows, 5000);
    assert_int_equal(tally.late, 0);
}

static void test_files_are_not_overwritten_unasked(void **state)
{
    (void)state;
    struct ctr_write_options options = options_of(1000);
    assert_true(write_with(&options, NULL));
    uint64_t before = hash_of("truth.json");
    enum diag_code code;
    options.is_forced = false;
    options.events = 999;
    assert_false(write_with(&options, &code));
    assert_int_equal(code, DIAG_OUTPUT_EXISTS);
    options.is_labelled = true; /* another data file, but the first one's truth.json would be lost */
    assert_false(write_with(&options, &code));
    assert_int_equal(code, DIAG_OUTPUT_EXISTS);
    assert_int_equal(hash_of("truth.json"), before);
    assert_false(is_there("impressions.jsonl.part"));
}

static void test_impossible_orders_are_refused(void **state)
{
    (void)state;
    enum diag_code code;
    struct ctr_write_options options = options_of(100);
    options.late = 0.1;
    assert_false(write_with(&options, &code));
    assert_int_equal(code, DIAG_OPTIONS_CLASH);
    options = options_of(100);
    options.directory = "/proc/no/such";
    assert_false(write_with(&options, &code));
    assert_int_equal(code, DIAG_OUTPUT_FAILED);
}

/* A child process whose files may not grow beyond 1 MiB meets a full disk. */
static void test_a_full_disk_leaves_no_half_file(void **state)
{
    (void)state;
    assert_int_equal(os_remove_tree(folder), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, 1 << 20});
        struct ctr_write_options options = options_of(200000);
        struct arena arena = {0};
        struct diag_list diags;
        diag_list_init(&diags, &arena);
        bool is_written = ctr_write(&options, &diags);
        bool is_told =
            diags.errors == 1 && diags.items[0].code == DIAG_OUTPUT_FAILED && diags.items[0].cause != NULL;
        arena_free(&arena);
        _exit(!is_written && is_told ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    const char *const names[] = {"impressions.jsonl", "impressions.jsonl.part",
                                 "clicks.jsonl",      "clicks.jsonl.part",
                                 "truth.json",        "truth.json.part"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        assert_false(is_there(names[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_options_give_the_same_bytes),
        cmocka_unit_test(test_more_events_only_add),
        cmocka_unit_test(test_planted_rows_are_counted_exactly),
        cmocka_unit_test(test_nothing_planted_is_nothing_counted),
        cmocka_unit_test(test_files_are_not_overwritten_unasked),
        cmocka_unit_test(test_impossible_orders_are_refused),
        cmocka_unit_test(test_rows_held_to_the_end_count_as_what_they_are),
        cmocka_unit_test(test_the_truth_is_what_the_world_says),
        cmocka_unit_test(test_a_full_disk_leaves_no_half_file),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
