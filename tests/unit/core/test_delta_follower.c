/* Followers of the delta log: who lives, who has died, who asks for a checkpoint; directories that cannot be
 * used. */
#include "cmocka_all.h"
#include "core/delta_log.h"
#include "core/os.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[] = "/tmp/leat-follower-XXXXXX", directory[64];
static struct arena arena;
static struct diag_list diags;

static int set_up(void **state)
{
    (void)state;
    snprintf(directory, sizeof(directory), "%s/log", root);
    assert_int_equal(os_remove_tree(directory), 0);
    diag_list_init(&diags, &arena);
    return 0;
}

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) == NULL;
}

static int remove_root(void **state)
{
    (void)state;
    arena_free(&arena);
    return os_remove_tree(root);
}

static uint32_t files_in(const char *path, const char *prefix)
{
    uint32_t count = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *one = readdir(dir); one != NULL; one = readdir(dir))
        count += strncmp(one->d_name, prefix, strlen(prefix)) == 0;
    closedir(dir);
    return count;
}

static void write_file(const char *path, const char *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(os_write_all(fd, data, bytes, NULL), 0);
    close(fd);
}

static void test_followers(void **state)
{
    (void)state;
    bool wanted = true;
    char folder[80];
    snprintf(folder, sizeof(folder), "%s/followers", directory);
    assert_int_equal(delta_followers_look(directory, &wanted), 0);
    assert_false(wanted);
    struct delta_follower *a = delta_follower_enter(directory, &diags),
                          *b = delta_follower_enter(directory, &diags);
    assert_true(a != NULL && b != NULL);
    assert_int_equal(delta_followers_look(directory, &wanted), 2);
    assert_false(wanted);
    assert_int_equal(delta_follower_ask(b), 0);
    assert_int_equal(delta_follower_ask(b), 0);
    assert_int_equal(delta_follower_ask(a), 0);
    assert_int_equal(delta_followers_look(directory, &wanted), 2);
    assert_true(wanted);
    assert_int_equal(delta_followers_look(directory, &wanted), 2);
    assert_false(wanted);
    assert_int_equal(delta_follower_ask(b), 0);
    assert_int_equal(delta_followers_look(directory, &wanted), 2);
    assert_true(wanted);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        bool is_good = delta_follower_enter(directory, &diags) != NULL;
        (void)!write(ready[1], "x", is_good);
        pause();
        _exit(0);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(delta_followers_look(directory, &wanted), 3);
    delta_follower_leave(a);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(files_in(folder, "follower-"), 2);
    assert_int_equal(delta_followers_look(directory, &wanted), 1);
    assert_int_equal(files_in(folder, "follower-"), 1);
    char other[128];
    snprintf(other, sizeof(other), "%s/notes", folder);
    write_file(other, "x", 1);
    snprintf(other, sizeof(other), "%s/follower-pipe", folder);
    assert_int_equal(mkfifo(other, 0666), 0);
    assert_int_equal(delta_followers_look(directory, &wanted), 1);
    assert_false(wanted);
    assert_int_equal(files_in(folder, "notes"), 1);
    delta_follower_leave(b);
    delta_follower_leave(NULL);
    assert_int_equal(delta_followers_look(directory, &wanted), 0);
}

/* Followers come and go while the trainer looks: a follower that has entered is there at each look. */
static void test_followers_at_once(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 1000; i++) {
            struct delta_follower *follower = delta_follower_enter(directory, &diags);
            bool wanted;
            if (follower == NULL || delta_followers_look(directory, &wanted) == 0)
                _exit(1);
            delta_follower_leave(follower);
        }
        _exit(0);
    }
    int status = 0;
    bool wanted;
    while (waitpid(child, &status, WNOHANG) == 0)
        (void)delta_followers_look(directory, &wanted);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_no_directory(void **state)
{
    (void)state;
    struct delta_log_options options = {"/proc/leat/log", 1, STR(""), 1 << 20, 1 << 14};
    assert_null(delta_log_open(&options, &diags));
    assert_int_equal(diags.count, 1);
    write_file(directory, "", 0); /* a file where the directory should be */
    assert_null(delta_tail_open(directory, 1, &diags));
    assert_int_equal(diags.count, 2);
    assert_null(delta_follower_enter(directory, &diags));
    assert_int_equal(diags.count, 3);
    bool wanted;
    assert_int_equal(delta_followers_look(directory, &wanted), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_followers, set_up),
        cmocka_unit_test_setup(test_followers_at_once, set_up),
        cmocka_unit_test_setup(test_no_directory, set_up),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
