/* Files and failpoints. The table of failpoints is set once per process, so each case runs in
 * a child process. */
#include "cmocka_all.h"
#include "core/os.h"
#include "unit/support/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[TEMPORARY_PATH_BYTES];

static int setup(void **state)
{
    (void)state;
    temporary_make(directory);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    temporary_remove(directory);
    return 0;
}

/* A path in the test's directory, valid until the second call after this one. */
static const char *path_of(const char *name)
{
    static char paths[2][512];
    static int turn;
    turn = !turn;
    snprintf(paths[turn], sizeof(paths[turn]), "%s/%s", directory, name);
    return paths[turn];
}

static void write_file(const char *name, const char *data, size_t bytes)
{
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(os_write_all(fd, data, bytes, NULL), 0);
    close(fd);
}

static void test_read_file(void **state)
{
    (void)state;
    char *data, block[10000];
    size_t bytes;
    memset(block, 'x', sizeof(block));
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 8192, 10000};
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        write_file("file", block, sizes[i]);
        assert_int_equal(os_read_file(path_of("file"), sizes[i], &data, &bytes), 0);
        assert_int_equal(bytes, sizes[i]);
        assert_int_equal(data[bytes], 0);
        assert_memory_equal(data, block, bytes);
        free(data);
        if (sizes[i] > 0)
            assert_int_equal(os_read_file(path_of("file"), sizes[i] - 1, &data, &bytes), EFBIG);
        assert_int_equal(os_file_bytes(path_of("file")), sizes[i]);
    }
    assert_int_equal(os_read_file(path_of("missing"), 10, &data, &bytes), ENOENT);
    assert_int_equal(os_read_file(directory, 10, &data, &bytes), EISDIR);
    assert_int_equal(os_file_bytes(path_of("missing")), -1);
    /* A file without an end must not fill the memory. */
    assert_int_equal(os_read_file("/dev/zero", 1 << 20, &data, &bytes), EFBIG);
}

static void test_pread_and_pwrite(void **state)
{
    (void)state;
    int fd = open(path_of("rw"), O_RDWR | O_CREAT, 0600);
    char back[8] = {0};
    size_t got;
    assert_int_equal(os_pwrite_all(fd, "abcd", 4, 2, NULL), 0);
    assert_int_equal(os_pread_all(fd, back, 8, 1, &got), 0);
    assert_int_equal(got, 5);
    assert_memory_equal(back, "\0abcd", 5);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    assert_int_equal(os_read_all(fd, back, 3, &got), 0);
    assert_int_equal(got, 3);
    assert_int_equal(os_fsync(fd, NULL), 0);
    close(fd);
    assert_int_equal(os_write_all(fd, "x", 1, NULL), EBADF);
    assert_int_equal(os_fsync_directory(directory, NULL), 0);
    assert_int_equal(os_fsync_directory(path_of("missing"), NULL), ENOENT);
}

static void test_directories(void **state)
{
    (void)state;
    assert_int_equal(os_mkdirs(path_of("a/b/c")), 0);
    assert_int_equal(os_mkdirs(path_of("a/b/c/")), 0);
    assert_int_equal(os_mkdirs(path_of("a/b")), 0);
    write_file("a/file", "x", 1);
    assert_int_equal(os_mkdirs(path_of("a/file")), ENOTDIR);
    assert_int_equal(os_mkdirs(path_of("a/file/below")), ENOTDIR);
    assert_int_equal(os_rename(path_of("a/file"), path_of("a/b/file"), NULL), 0);
    assert_int_equal(os_file_bytes(path_of("a/b/file")), 1);
    assert_int_equal(os_rename(path_of("missing"), path_of("x"), NULL), ENOENT);
    assert_true(os_free_bytes(directory) > 0);
    assert_int_equal(os_free_bytes(path_of("missing")), -1);
}

/* os_remove_tree removes links; the files and directories that they point to stay. */
static void test_remove_tree(void **state)
{
    (void)state;
    assert_int_equal(os_mkdirs(path_of("keep/inner")), 0);
    write_file("keep/precious", "x", 1);
    assert_int_equal(os_mkdirs(path_of("tree/x/y")), 0);
    write_file("tree/x/y/file", "x", 1);
    write_file("tree/.hidden", "x", 1);
    assert_int_equal(symlink(path_of("keep"), path_of("tree/x/link")), 0);
    assert_int_equal(symlink("/nowhere/at/all", path_of("tree/dangling")), 0);
    assert_int_equal(os_remove_tree(path_of("tree")), 0);
    assert_int_equal(access(path_of("tree"), F_OK), -1);
    assert_int_equal(os_file_bytes(path_of("keep/precious")), 1);
    assert_int_equal(symlink(path_of("keep"), path_of("link")), 0);
    assert_int_equal(os_remove_tree(path_of("link")), 0);
    assert_int_equal(os_file_bytes(path_of("keep/precious")), 1);
    assert_int_equal(access(path_of("link"), F_OK), -1);
    assert_int_equal(os_remove_tree(path_of("keep/precious")), 0);
    assert_int_equal(os_file_bytes(path_of("keep/precious")), -1);
    assert_int_equal(os_remove_tree(path_of("missing")), 0);
}

/* --- Failpoints --- */

/* Runs `body` in a child process with LEAT_FAILPOINTS set; returns the wait status, with exit status 99 if
 * the failpoints are malformed. */
static int run_child(const char *failpoints, int (*body)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("LEAT_FAILPOINTS", failpoints, 1);
        struct arena arena = {0};
        struct diag_list diags;
        diag_list_init(&diags, &arena);
        int status = failpoints_init(&diags) ? body() : 99;
        arena_free(&arena);
        _exit(status);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static int first_error_at(void)
{
    for (int i = 1; i <= 5; i++)
        if (failpoint("sink.write") != 0)
            return i;
    return 0;
}

static int count_errors(void)
{
    int errors = 0;
    for (int i = 1; i <= 5; i++)
        errors += failpoint("sink.write") != 0;
    return errors;
}

static int returns_enospc(void)
{
    return failpoint("ckpt.rename") == ENOSPC && failpoint("ckpt.write") == 0 ? 0 : 1;
}

static int write_is_torn(void)
{
    int fd = open(path_of("torn"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int error = os_write_all(fd, "0123456789", 10, "sink.write");
    return error == EIO && os_file_bytes(path_of("torn")) == 5 ? 0 : 1;
}

static int steps_fail(void)
{
    int fd = open(path_of("steps"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    bool is_good = os_fsync(fd, "sink.fsync") == EIO &&
                   os_pwrite_all(fd, "x", 1, 0, "spill.write") == EACCES &&
                   os_rename(path_of("steps"), path_of("renamed"), "sink.rename") == EROFS &&
                   access(path_of("renamed"), F_OK) != 0;
    return is_good ? 0 : 1;
}

static int sleeps(void)
{
    int64_t begin = os_monotonic_us();
    int error = failpoint("restore.begin");
    return error == 0 && os_monotonic_us() - begin >= 30000 ? 0 : 1;
}

static int knobs_are_set(void)
{
    return test_cut(1024) == 7 && test_cut(5) == 5 && test_state(1 << 30) == 300 && test_state(5) == 5 ? 0
                                                                                                       : 1;
}

static int knobs_are_not_set(void)
{
    return test_cut(1024) == 1024 && test_state(1 << 30) == 1 << 30 ? 0 : 1;
}

static void test_knobs(void **state)
{
    (void)state;
    assert_int_equal(run_child("", knobs_are_not_set), 0);
    setenv("LEAT_TEST_CUT", "7", 1);
    setenv("LEAT_TEST_STATE", "300", 1);
    assert_int_equal(run_child("", knobs_are_set), 0);
    static const char *const bad[] = {"0", "-1", "2000000000", "seven", "300 "};
    static const char *const names[] = {"LEAT_TEST_CUT", "LEAT_TEST_STATE"};
    for (size_t k = 0; k < ARRAY_COUNT(names); k++) {
        for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
            setenv(names[k], bad[i], 1);
            assert_int_equal(WEXITSTATUS(run_child("", knobs_are_not_set)), 99);
        }
        unsetenv(names[k]);
    }
}

static void test_failpoints(void **state)
{
    (void)state;
    assert_int_equal(WEXITSTATUS(run_child("", first_error_at)), 0);
    assert_int_equal(WEXITSTATUS(run_child("sink.write=error:EIO", first_error_at)), 1);
    assert_int_equal(WEXITSTATUS(run_child("sink.write=error:EIO@3", first_error_at)), 3);
    assert_int_equal(WEXITSTATUS(run_child("sink.write=error:EIO@3", count_errors)), 1);
    assert_int_equal(WEXITSTATUS(run_child("sink.write=error:EIO", count_errors)), 5);
    assert_int_equal(WEXITSTATUS(run_child("ckpt.rename=error:ENOSPC,sink.write=kill", returns_enospc)), 0);
    int status = run_child("sink.write=kill@2", first_error_at);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(WEXITSTATUS(run_child("sink.write=exit", first_error_at)), 70);
    assert_int_equal(WEXITSTATUS(run_child("sink.write=error:EIO", write_is_torn)), 0);
    assert_int_equal(
        WEXITSTATUS(
            run_child("sink.fsync=error:EIO,spill.write=error:EACCES,sink.rename=error:EROFS", steps_fail)),
        0);
    assert_int_equal(WEXITSTATUS(run_child("restore.begin=sleep:30", sleeps)), 0);
}

static void test_malformed_failpoints(void **state)
{
    (void)state;
    static const char *const bad[] = {"nothing=kill",
                                      "sink.write",
                                      "sink.write=",
                                      "sink.write=die",
                                      "sink.write=error:E",
                                      "sink.write=kill@",
                                      "=kill",
                                      "sink.write=kill@-1",
                                      "sink.write=kill@x",
                                      ",",
                                      "sink.write=sleep:",
                                      "sink.write=sleep:9999999999",
                                      "sink.write=kill,bad=kill",
                                      "sink.write=error:"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        if (WEXITSTATUS(run_child(bad[i], first_error_at)) != 99)
            fail_msg("LEAT_FAILPOINTS=%s was taken", bad[i]);
}

static void test_failpoint_names(void **state)
{
    (void)state;
    size_t count;
    const char *const *names = failpoint_names(&count);
    assert_true(count >= 20);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(names[i], names[k]);
}

static void test_clocks(void **state)
{
    (void)state;
    int64_t begin = os_monotonic_us();
    assert_true(os_monotonic_us() >= begin);
    assert_true(os_wall_us() > INT64_C(1700000000) * US_PER_SECOND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_file),
        cmocka_unit_test(test_pread_and_pwrite),
        cmocka_unit_test(test_directories),
        cmocka_unit_test(test_remove_tree),
        cmocka_unit_test(test_knobs),
        cmocka_unit_test(test_failpoints),
        cmocka_unit_test(test_malformed_failpoints),
        cmocka_unit_test(test_failpoint_names),
        cmocka_unit_test(test_clocks),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
