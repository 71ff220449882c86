/* The log of what was served: whole lines, numbers that rise, files that rotate and are pruned, failures that are
 * counted. */
#include "../core/cmocka_all.h"
#include "../support/temporary.h"
#include "core/arena.h"
#include "core/os.h"
#include "serve/served.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct served *open_log(const char *folder, int64_t rotate, int64_t keep, struct diag_list *diags)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/deep/er/served", folder);
    struct served_options options = {.path = str_from(path), .rotate_bytes = rotate, .keep = keep};
    return served_open(&options, diags);
}

static void close_log(struct served *served)
{
    served_end(served);
    served_finish(served);
    served_close(served);
}

/* Names of the log's files, sorted, joined. */
static void names_in(const char *folder, char *names, size_t bytes)
{
    char path[512];
    struct dirent **entries;
    snprintf(path, sizeof(path), "%s/deep/er", folder);
    int count = scandir(path, &entries, NULL, alphasort);
    names[0] = '\0';
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.')
            snprintf(names + strlen(names), bytes - strlen(names), "%s ", entries[i]->d_name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

static void wait_lines(struct served *served, uint64_t lines)
{
    while (served_counts(served).lines + served_counts(served).lost < lines)
        usleep(1000);
}

static void test_files(void **state)
{
    (void)state;
    char folder[256], names[1024], text[64], path[512], failure[LINE_LOG_FAILURE_BYTES];
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    temporary_make(folder);
    struct served *served = open_log(folder, 4096, 3, &diags);
    assert_non_null(served);
    for (uint32_t i = 0; i < 6; i++) {
        struct byte_buffer lines = {0};
        for (uint32_t k = 0; k < 100; k++)
            buffer_printf(&lines, "{\"number\":%u,\"padding\":\"%040u\"}\n", i * 100 + k, k);
        assert_true(served_add(served, (struct str){lines.data, lines.length}, 100));
        wait_lines(served, (i + 1) * 100);
        buffer_free(&lines);
    }
    assert_int_equal(served_counts(served).lines, 600);
    assert_false(served_failure(served, failure));
    close_log(served);
    names_in(folder, names, sizeof(names));
    assert_string_equal(names, "served-000004.jsonl served-000005.jsonl served-000006.jsonl ");
    char *data;
    size_t bytes;
    snprintf(path, sizeof(path), "%s/deep/er/served-000005.jsonl", folder);
    assert_int_equal(os_read_file(path, 1 << 20, &data, &bytes), 0);
    snprintf(text, sizeof(text), "{\"number\":400,");
    assert_memory_equal(data, text, strlen(text));
    assert_int_equal(data[bytes - 1], '\n');
    free(data);
    /* The next process goes on behind the highest number, and writes what waits when it closes. */
    served = open_log(folder, 1 << 20, 0, &diags);
    assert_true(served_add(served, STR("{}\n"), 1));
    close_log(served);
    names_in(folder, names, sizeof(names));
    assert_string_equal(names,
                        "served-000004.jsonl served-000005.jsonl served-000006.jsonl served-000007.jsonl ");
    snprintf(path, sizeof(path), "%s/deep/er/served-000007.jsonl", folder);
    assert_int_equal(os_file_bytes(path), 3);
    temporary_remove(folder);
    arena_free(&arena);
}

/* A full disk: half a line is cut off again, its lines are lost, and later ones are written. */
static void test_failures(void **state)
{
    (void)state;
    char folder[256], path[512], failure[LINE_LOG_FAILURE_BYTES];
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    setenv("LEAT_FAILPOINTS", "served.write=error:ENOSPC@2", 1);
    assert_true(failpoints_init(&diags));
    temporary_make(folder);
    struct served *served = open_log(folder, 1 << 20, 4, &diags);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(served_add(served, STR("{\"a\":1}\n{\"b\":2}\n"), 2));
        wait_lines(served, (i + 1) * 2);
    }
    assert_int_equal(served_counts(served).lines, 4);
    assert_int_equal(served_counts(served).lost, 2);
    assert_true(served_failure(served, failure));
    snprintf(path, sizeof(path), "`%s/deep/er/served-....jsonl` cannot be written: No space left on device",
             folder);
    assert_string_equal(failure, path);
    assert_false(served_failure(served, failure));
    close_log(served);
    snprintf(path, sizeof(path), "%s/deep/er/served-000001.jsonl", folder);
    assert_int_equal(os_file_bytes(path), 32);
    unsetenv("LEAT_FAILPOINTS");
    assert_true(failpoints_init(&diags));
    temporary_remove(folder);
    arena_free(&arena);
}

/* What does not fit into the buffer is lost at once, and counted. */
static void test_full(void **state)
{
    (void)state;
    char folder[256], failure[LINE_LOG_FAILURE_BYTES];
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    temporary_make(folder);
    struct served *served = open_log(folder, 1 << 30, 4, &diags);
    static char lines[SERVED_BUFFER_BYTES / 2 + 1];
    memset(lines, 'x', sizeof(lines));
    lines[sizeof(lines) - 1] = '\n';
    uint32_t taken = 0;
    for (uint32_t i = 0; i < 3; i++)
        taken += served_add(served, (struct str){lines, sizeof(lines)}, 1);
    assert_true(taken < 3);
    assert_int_equal(served_counts(served).lost, 3 - taken);
    assert_int_equal(served_counts(served).added, 3);
    assert_true(served_failure(served, failure));
    assert_non_null(strstr(failure, "buffer of 8 MiB is full"));
    wait_lines(served, 3);
    assert_int_equal(served_counts(served).lines, taken);
    served_close(served); /* which ends the thread */
    temporary_remove(folder);
    arena_free(&arena);
}

static void test_refused(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    assert_null(open_log("/proc/none", 4096, 1, &diags));
    assert_int_equal(diags.errors, 1);
    assert_int_equal(diags.items[0].code, DIAG_OUTPUT_FAILED);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
