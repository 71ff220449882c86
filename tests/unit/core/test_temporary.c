/* Temporary files and directories: they disappear after their process has ended in whatever way; those
 * of others stay. */
#include "cmocka_all.h"
#include "core/os.h"
#include "core/temporary.h"
#include "unit/support/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[TEMPORARY_PATH_BYTES];

static int begin(void **state)
{
    (void)state;
    unsetenv("TMPDIR");
    temporary_make(root);
    setenv("TMPDIR", root, 1);
    return 0;
}

static int end(void **state)
{
    (void)state;
    unsetenv("TMPDIR");
    temporary_remove(root);
    return 0;
}

static size_t count(void)
{
    char pattern[512];
    glob_t found = {0};
    snprintf(pattern, sizeof(pattern), "%s/*", root);
    size_t paths = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return paths;
}

static char *put(const char *name, const char *file)
{
    static char path[512], below[600];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    assert_int_equal(os_mkdirs(path), 0);
    if (file != NULL) {
        snprintf(below, sizeof(below), "%s/%s", path, file);
        int fd = open(below, O_WRONLY | O_CREAT, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
    return path;
}

/* Forks a process that owns a temporary directory with content and sleeps until it is killed; returns when
 * the directory exists. told: the pipe over which the process says so; end_owner closes it. */
static pid_t owner(int told[2])
{
    assert_int_equal(pipe(told), 0);
    pid_t pid = fork();
    if (pid != 0) {
        char byte;
        close(told[1]);
        assert_int_equal(read(told[0], &byte, 1), 1);
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct temporary_directory directory;
    char below[600];
    leat_assert(temporary_directory_make(&directory));
    snprintf(below, sizeof(below), "%s/db/deep", directory.path);
    leat_assert(os_mkdirs(below) == 0 && write(told[1], "!", 1) == 1);
    for (;;)
        pause();
}

static void end_owner(pid_t pid, int told[2])
{
    int status;
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(told[0]);
}

static void test_a_killed_process_leaves_nothing(void **state)
{
    (void)state;
    struct temporary_directory directory;
    int first[2], second[2];
    pid_t killed = owner(first), living = owner(second);
    assert_int_equal(count(), 2);
    end_owner(killed, first);
    assert_int_equal(count(), 2);
    assert_true(temporary_directory_make(&directory));
    assert_int_equal(count(), 2); /* that of the living process, and this one */
    end_owner(living, second);
    temporary_directory_remove(&directory);
    assert_int_equal(count(), 0);
    temporary_directory_remove(&directory);
}

static void test_what_others_own_stays(void **state)
{
    (void)state;
    struct temporary_directory directory;
    char link[512];
    put("leat-state-nolock", "CURRENT"); /* no lock file: the owner is unknown */
    put("leat-other-123456", "lock");
    put("elsewhere", "lock");
    snprintf(link, sizeof(link), "%s/leat-state-linked", root);
    assert_int_equal(symlink("elsewhere", link), 0);
    snprintf(link, sizeof(link), "%s/leat-state-a-file", root);
    int fd = open(link, O_WRONLY | O_CREAT, 0600);
    close(fd);
    bool is_root = geteuid() == 0;
    if (is_root) {
        char *path = put("leat-state-theirs", "lock");
        assert_int_equal(chown(path, 12345, 12345), 0);
    }
    put("leat-state-empty1", NULL); /* its process was killed before it made the lock file */
    put("leat-state-locked", "lock");
    assert_true(temporary_directory_make(&directory));
    temporary_directory_remove(&directory);
    assert_int_equal(count(), 5 + is_root);
}

/* Processes that begin, end and are killed at the same time never remove each other's directories. */
static void test_all_at_once(void **state)
{
    (void)state;
    enum { PROCESSES = 6, ROUNDS = 150 };
    pid_t pids[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        for (int round = 0; pids[i] == 0 && round < ROUNDS; round++) {
            struct temporary_directory directory;
            struct stat info;
            char below[600];
            leat_assert(temporary_directory_make(&directory));
            snprintf(below, sizeof(below), "%s/db", directory.path);
            leat_assert(mkdir(below, 0700) == 0);
            sched_yield();
            leat_assert(stat(below, &info) == 0);
            if (round % 10 != i)
                temporary_directory_remove(&directory);
            else
                close(directory.lock_fd); /* as if the process had been killed */
        }
        if (pids[i] == 0)
            _exit(0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    struct temporary_directory directory;
    assert_true(temporary_directory_make(&directory));
    temporary_directory_remove(&directory);
    assert_int_equal(count(), 0);
}

static void test_files_have_no_name(void **state)
{
    (void)state;
    char text[4];
    size_t got;
    int fd = temporary_file(root);
    assert_true(fd > STDERR_FILENO);
    assert_int_equal(count(), 0);
    assert_int_equal(os_write_all(fd, "abc", 3, NULL), 0);
    assert_int_equal(os_pread_all(fd, text, 3, 0, &got), 0);
    assert_memory_equal(text, "abc", 3);
    close(fd);
    assert_int_equal(temporary_file("/nowhere/at/all"), -1);
    assert_int_equal(errno, ENOENT);
    /* Where standard input is closed, a temporary file does not take its descriptor. */
    int before = dup(STDIN_FILENO);
    close(STDIN_FILENO);
    fd = temporary_file(root);
    assert_true(fd > STDERR_FILENO);
    close(fd);
    if (before >= 0) {
        dup2(before, STDIN_FILENO);
        close(before);
    }
}

static void test_where_nothing_can_be_made(void **state)
{
    (void)state;
    struct temporary_directory directory;
    setenv("TMPDIR", "/nowhere/at/all", 1);
    assert_false(temporary_directory_make(&directory));
    assert_int_equal(errno, ENOENT);
    assert_null(directory.path);
    temporary_directory_remove(&directory);
    setenv("TMPDIR", "", 1);
    assert_string_equal(temporary_root(), "/tmp");
    setenv("TMPDIR", root, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_killed_process_leaves_nothing),
        cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_files_have_no_name),
        cmocka_unit_test(test_where_nothing_can_be_made),
        cmocka_unit_test(test_what_others_own_stays),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
