/* `leat checkpoint` and `leat state` on the file of a head: they show of several workers what they show of a run that was alone. */
#include "watched.h"
#include "workers.h"

#include "core/os.h"
#include "run/head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORKERS = 3, INCARNATION = 7, UNTIL_S = 20000, KEYS = 4 };

/* So much for each of the four keys that it does not fit into memory; two of them have rows in the first half alone. The worker that
 * leads has none of them, and no database. */
static const char job[] =
    "job j { checkpoint: { dir: \"alone\", every: 10ms } }\n"
    "source a = sequence { count: 60000, keys: 4, rate: 1, event_time: ts }\n"
    "stream w = a | where (key < 2 and id < 10000) or (key >= 2 and id >= 10000) | feature by key over 10h { n: count(), last: last(value) }\n"
    "sink w = null from w\n";

static char head_path[64];

/* Runs `leat` with these arguments. Returns what it prints, which the caller frees; *is_good: whether it ended well. */
static char *leat(bool *is_good, const char *arguments)
{
    char command[512], *text = NULL;
    size_t bytes;
    snprintf(command, sizeof(command), LEAT_PROGRAM " %s >out 2>&1", arguments);
    *is_good = system(command) == 0;
    assert_int_equal(os_read_file("out", 1 << 20, &text, &bytes), 0);
    return text;
}

static void says(bool is_good, const char *arguments, const char *expected)
{
    bool was_good;
    char *text = leat(&was_good, arguments);
    if (was_good != is_good || strstr(text, expected) == NULL)
        fail_msg("leat %s: %s", arguments, text);
    free(text);
}

static void on_head(bool is_good, const char *before, const char *after, const char *expected)
{
    char arguments[256];
    snprintf(arguments, sizeof(arguments), "%s %s %s", before, head_path, after);
    says(is_good, arguments, expected);
}

/* What is stored for a key, without the lines that name the checkpoint. */
static char *state_of(const char *place, unsigned key)
{
    char arguments[256], *text, *kept;
    bool is_good;
    size_t length = 0;
    snprintf(arguments, sizeof(arguments), "state get %s w/feature %u", place, key);
    text = leat(&is_good, arguments);
    if (!is_good)
        fail_msg("leat %s: %s", arguments, text);
    kept = calloc(1, strlen(text) + 1);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
        if (strstr(line, "checkpoint") == NULL && strstr(line, "taken") == NULL)
            length += (size_t)sprintf(kept + length, "%s\n", line);
    free(text);
    return kept;
}

static void test_keys(void **state)
{
    (void)state;
    for (unsigned key = 0; key < KEYS; key++) {
        char *alone = state_of("alone", key), *many = state_of(head_path, key);
        assert_string_equal(alone, many);
        free(alone);
        free(many);
    }
    on_head(true, "state list", "", "feature");
    on_head(false, "state get", "w/feature 99999", "nothing is stored");
    on_head(false, "state get", "w/feature 1 --checkpoint 7-1", "expected no name of a checkpoint");
}

static void test_checkpoint(void **state)
{
    char part[64];
    (void)state;
    on_head(true, "checkpoint list", "", "a head of 3 workers");
    on_head(true, "checkpoint list", "", "many/2");
    on_head(true, "checkpoint show", "", "micro-batch");
    on_head(true, "checkpoint show", "", "worker 2:\ngeneration 7");
    on_head(true, "checkpoint verify", "", "worker 2: every byte is as written");
    on_head(false, "checkpoint prune", "", "does not take the file of a head");
    on_head(false, "checkpoint show", "7-1", "expected no name of a checkpoint");
    says(false, "checkpoint verify heads/other", "is not the one that its manifest names");
    says(false, "checkpoint show heads/other", "is not the one that its manifest names");
    snprintf(part, sizeof(part), "many/2/gen-%06d", INCARNATION);
    assert_int_equal(rename(part, "elsewhere"), 0);
    on_head(false, "checkpoint verify", "", "E0702");
    on_head(false, "state get", "w/feature 1", "E0702");
    assert_int_equal(rename("elsewhere", part), 0);
    assert_int_equal(truncate(head_path, 100), 0);
    on_head(false, "checkpoint list", "", "E0702");
}

/* Runs the job alone and on several workers, up to the same time; these begin again halfway, so that rows that do not change any more are
 * in databases alone. */
static int prepare(void **state)
{
    struct heads heads = {0};
    struct byte_buffer halfway = {0}, other = {0};
    struct outcome outcome;
    struct run_head head;
    const char *why;
    struct arena arena = {0};
    struct diag_list diags;
    (void)state;
    diag_list_init(&diags, &arena);
    struct way way = {.folder = "alone", .until_us = UNTIL_S * US_PER_SECOND};
    workers_run(job, 0, 2, &way, &outcome);
    assert_false(outcome.is_finished);
    way = (struct way){.folder = "many", .incarnation = INCARNATION - 1, .heads = &heads};
    way.until_us = UNTIL_S * US_PER_SECOND / 2;
    workers_run(job, WORKERS, 1, &way, &outcome);
    buffer_append(&halfway, heads.last.data, heads.last.length);
    way.incarnation = INCARNATION;
    way.until_us = UNTIL_S * US_PER_SECOND;
    way.head = (struct str){halfway.data, halfway.length};
    workers_run(job, WORKERS, 1, &way, &outcome);
    struct str manifest = {heads.last.data, heads.last.length};
    assert_true(run_head_decode(manifest, &head, &why));
    assert_true(run_head_write("heads", INCARNATION, head.epoch, manifest, &diags));
    assert_int_equal(head.leader, 1);
    assert_int_equal(count_files("many/1/gen-000007/ckpt-*/db"), 0);
    assert_true(count_files("many/*/gen-000007/ckpt-*/db") > 0);
    strcpy(head_path, "heads/");
    run_head_name(INCARNATION, head.epoch, head_path + strlen(head_path));
    head.parts[2].digest[0] ^= 1;
    run_head_encode(&head, &other);
    assert_int_equal(os_write_file("heads/other", other.data, other.length, NULL, NULL), 0);
    buffer_free(&other);
    buffer_free(&halfway);
    buffer_free(&heads.last);
    arena_free(&arena);
    return 0;
}

static int clean(void **state)
{
    static const char *const paths[] = {"alone", "many", "heads", "out"};
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(paths); i++)
        if (os_remove_tree(paths[i]) != 0)
            return -1;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys), cmocka_unit_test(test_checkpoint)};
    char folder[] = "head-commands-XXXXXX";
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    if (mkdtemp(folder) == NULL || chdir(folder) != 0 || setenv("LEAT_TEST_STATE", "4096", 1) != 0 ||
        !failpoints_init(&diags))
        return 2;
    int failed = cmocka_run_group_tests(tests, prepare, clean);
    arena_free(&arena);
    return chdir("..") != 0 || rmdir(folder) != 0 ? 2 : failed;
}
