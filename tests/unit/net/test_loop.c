/* What a process does with a loop: wake, stop, addresses. Requests are tested by tests/net. */
#include "net/net.h"
#include "unit/core/cmocka_all.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static struct {
    struct net_loop *loop;
    int turns, ticks;
} test;

static void turn(void *user)
{
    assert_ptr_equal(user, &test);
    test.turns++;
}

static void serve(void *user, struct net_exchange *exchange)
{
    (void)user;
    net_respond_text(exchange, 200, "served");
}

static const struct net_service service = {.serve = serve};

static void tick(void *user)
{
    (void)user;
    if (++test.ticks == 3)
        net_loop_stop(test.loop);
}

static void test_every(void **state)
{
    (void)state;
    test.ticks = test.turns = 0;
    test.loop = net_loop_new(1 << 20, turn, &test);
    net_loop_every(test.loop, 5, tick, NULL);
    net_loop_run(test.loop, 1000);
    assert_int_equal(test.ticks, 3);
    assert_int_equal(test.turns, 0);
    net_loop_free(test.loop);
}

static void *wake_and_stop(void *unused)
{
    (void)unused;
    for (int i = 1; i <= 3; i++) {
        net_loop_wake(test.loop);
        while (__atomic_load_n(&test.turns, __ATOMIC_ACQUIRE) < i)
            usleep(100);
    }
    net_loop_stop(test.loop);
    return NULL;
}

static void counted_turn(void *user)
{
    (void)user;
    __atomic_add_fetch(&test.turns, 1, __ATOMIC_RELEASE);
}

static void test_other_thread(void **state)
{
    (void)state;
    test.turns = 0;
    test.loop = net_loop_new(1 << 20, counted_turn, NULL);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wake_and_stop, NULL), 0);
    net_loop_run(test.loop, 1000);
    pthread_join(thread, NULL);
    assert_int_equal(test.turns, 3);
    net_loop_free(test.loop);
}

static void on_signal(int number)
{
    (void)number;
    net_loop_stop(test.loop);
}

static void raise_signal(void *unused)
{
    (void)unused;
    raise(SIGUSR1);
}

static void test_signal(void **state)
{
    (void)state;
    test.loop = net_loop_new(1 << 20, NULL, NULL);
    signal(SIGUSR1, on_signal);
    net_loop_every(test.loop, 1, raise_signal, NULL);
    net_loop_run(test.loop, 1000);
    signal(SIGUSR1, SIG_DFL);
    net_loop_free(test.loop);
}

static void test_stop_before_run(void **state)
{
    (void)state;
    test.loop = net_loop_new(1 << 20, NULL, NULL);
    net_loop_stop(test.loop);
    net_loop_run(test.loop, 1000);
    net_loop_free(test.loop);
    net_loop_free(NULL);
}

static void test_addresses(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    static const char *const good[] = {"127.0.0.1:0", "localhost:0", "[::1]:0",
                                       "0.0.0.0:80",  "[::]:80",     "10.1.2.3:65535"};
    for (size_t i = 0; i < ARRAY_COUNT(good); i++)
        assert_true(net_address_check(str_from(good[i]), (struct span){0, 0}, &diags));
    assert_int_equal(diags.count, 0);
    static const char *const bad[] = {"",         "127.0.0.1",       "host:80", "[127.0.0.1]:80",
                                      "1.2.3:80", "127.0.0.1:65536", "[::1]"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        assert_false(net_address_check(str_from(bad[i]), (struct span){3, 9}, &diags));
        assert_int_equal(diags.count, i + 1);
        assert_int_equal(diags.items[i].code, DIAG_LISTEN_FAILED);
        assert_int_equal(diags.items[i].span.begin, 3);
    }
    arena_free(&arena);
}

/* A loop may have several listeners, and is freed without having run. */
static void test_listeners(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct net_loop *loop = net_loop_new(1 << 20, NULL, NULL);
    char text[] = "127.0.0.1:0";
    struct net_listen listen = net_listen_defaults(str_from(text));
    uint16_t first = net_loop_listen(loop, &listen, &service, NULL, &diags);
    memset(text, 'x', sizeof(text)); /* it was copied */
    listen = net_listen_defaults(STR("localhost:0"));
    uint16_t second = net_loop_listen(loop, &listen, &service, NULL, &diags);
    assert_true(first != 0 && second != 0 && first != second);
    assert_int_equal(diags.count, 0);
    net_loop_free(loop);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every),           cmocka_unit_test(test_other_thread),
        cmocka_unit_test(test_signal),          cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_stop_before_run), cmocka_unit_test(test_listeners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
