/* mem.h: results that need no check, and a process that ends where the system refuses memory. */
#include "core/mem.h"
#include "core/refused.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void test_nothing_is_not_null(void **state)
{
    (void)state;
    void *all[] = {mem_alloc(0),
                   mem_calloc(0, 8),
                   mem_calloc(8, 0),
                   mem_realloc(NULL, 0),
                   mem_realloc(mem_alloc(8), 0),
                   mem_aligned(1, 0)};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
        assert_non_null(all[i]);
        free(all[i]);
    }
}

static void test_memory_is_there(void **state)
{
    (void)state;
    char *memory = mem_alloc(100);
    memset(memory, 7, 100);
    memory = mem_realloc(memory, 100000);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(memory[i], 7);
    free(memory);
    memory = mem_calloc(100, 30);
    for (size_t i = 0; i < 3000; i++)
        assert_int_equal(memory[i], 0);
    free(memory);
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
        memory = mem_aligned(alignment, 100);
        assert_int_equal((uintptr_t)memory % alignment, 0);
        memset(memory, 7, 100);
        free(memory);
    }
}

static void test_texts(void **state)
{
    (void)state;
    char *text = mem_str((struct str){"a\0bc", 3});
    assert_memory_equal(text, "a\0b", 4);
    free(text);
    text = mem_str((struct str){NULL, 0});
    assert_string_equal(text, "");
    free(text);
    text = mem_strdup("river");
    assert_string_equal(text, "river");
    free(text);
    text = mem_printf("%s/%d", "topic", 3);
    assert_string_equal(text, "topic/3");
    free(text);
}

#if !defined(__SANITIZE_ADDRESS__) &&                                                                        \
    !defined(__SANITIZE_THREAD__) /* whose allocators end it their own way */

static volatile size_t too_much = (size_t)PTRDIFF_MAX - 4096;

static void ask_alloc(void)
{
    mem_alloc(too_much);
}

static void ask_calloc(void)
{
    mem_calloc(too_much, 2); /* more than a size_t holds, too */
}

static void ask_realloc(void)
{
    mem_realloc(mem_alloc(8), too_much);
}

static void ask_aligned(void)
{
    mem_aligned(64, too_much);
}

/* What the process says that asks, and that its status is EXIT_REFUSED. */
static void check_end(void (*ask)(void), const char *words)
{
    int ends[2], status;
    char said[1024] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        ask();
        _exit(0);
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t got; (got = read(ends[0], said + length, sizeof(said) - 1 - length)) > 0;)
        length += (size_t)got;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EXIT_REFUSED);
    assert_non_null(strstr(said, "E0803"));
    assert_non_null(strstr(said, words));
}

static void test_the_process_ends(void **state)
{
    (void)state;
    check_end(ask_alloc, "8192 PiB of memory");
    check_end(ask_calloc, "16 EiB of memory");
    check_end(ask_realloc, "8192 PiB of memory");
    check_end(ask_aligned, "8192 PiB of memory");
}

#else

static void test_the_process_ends(void **state)
{
    (void)state;
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_not_null),
        cmocka_unit_test(test_memory_is_there),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_the_process_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
