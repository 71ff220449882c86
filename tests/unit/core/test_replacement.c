/* A new file replaces an old one as a whole or not at all; links stay, and pipes and devices are written to
 * instead of replaced. */
#include "cmocka_all.h"
#include "core/os.h"
#include "core/replacement.h"
#include "unit/support/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void write_whole(const char *path, const char *text)
{
    struct replacement file;
    assert_int_equal(replacement_begin(&file, path), 0);
    assert_int_equal(os_write_all(file.fd, text, strlen(text), NULL), 0);
    assert_int_equal(replacement_commit(&file), 0);
    replacement_abandon(&file);
}

static void check(const char *path, const char *text)
{
    char *data;
    size_t bytes;
    assert_int_equal(os_read_file(path, 1 << 20, &data, &bytes), 0);
    assert_string_equal(data, text);
    free(data);
}

static unsigned count(void)
{
    unsigned entries = 0;
    char command[] = "ls -A | wc -l";
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%u", &entries), 1);
    pclose(pipe);
    return entries;
}

static void test_replaces(void **state)
{
    (void)state;
    struct stat info;
    write_whole("a", "one");
    check("a", "one");
    assert_int_equal(chmod("a", 0640), 0);
    write_whole("a", "two");
    check("a", "two");
    assert_int_equal(stat("a", &info), 0);
    assert_int_equal(info.st_mode & 07777, 0640);
    assert_int_equal(count(), 1);
}

static void test_abandoned_and_killed(void **state)
{
    (void)state;
    struct replacement file;
    write_whole("a", "old");
    assert_int_equal(replacement_begin(&file, "a"), 0);
    assert_int_equal(os_write_all(file.fd, "new", 3, NULL), 0);
    replacement_abandon(&file);
    replacement_abandon(&file);
    check("a", "old");
    pid_t pid = fork();
    if (pid == 0) {
        leat_assert(replacement_begin(&file, "a") == 0 && os_write_all(file.fd, "new", 3, NULL) == 0);
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    check("a", "old");
    assert_int_equal(count(), 1);
}

static void test_links_and_others(void **state)
{
    (void)state;
    struct replacement file;
    struct stat info;
    char text[4] = "";
    write_whole("real", "old");
    assert_int_equal(symlink("real", "link"), 0);
    write_whole("link", "new");
    check("real", "new");
    assert_int_equal(lstat("link", &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(replacement_begin(&file, "."), EISDIR);
    assert_int_equal(replacement_begin(&file, "none/a"), ENOENT);
    replacement_abandon(&file);
    assert_int_equal(mkfifo("pipe", 0600), 0);
    int reader = open("pipe", O_RDONLY | O_NONBLOCK);
    write_whole("pipe", "abc");
    assert_int_equal(read(reader, text, 3), 3);
    assert_string_equal(text, "abc");
    close(reader);
    assert_int_equal(lstat("pipe", &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    write_whole("/dev/null", "abc");
    assert_int_equal(lstat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    assert_int_equal(unlink("pipe") | unlink("link") | unlink("real"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_replaces),
                                       cmocka_unit_test(test_abandoned_and_killed),
                                       cmocka_unit_test(test_links_and_others)};
    return cmocka_run_group_tests(tests, temporary_enter, temporary_leave);
}
