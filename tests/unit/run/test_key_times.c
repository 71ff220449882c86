/* The newest event time of each key of a partition: the oldest of these times is compared with that of a
 * plain list; if there are too many keys, the right ones are forgotten; what a checkpoint restores goes on in
 * the same way. */
#include "run/sequencer/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { KEYS = 500, STEPS = 20000, LIMIT = 64 };

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void test_oldest(void **state)
{
    (void)state;
    struct key_times keys = {0};
    int64_t times[KEYS];
    bool is_there[KEYS] = {false};
    uint64_t random = 1;
    assert_true(key_times_oldest(&keys, TIME_MIN) == TIME_MAX);
    for (int step = 0; step < STEPS; step++) {
        uint32_t key = (uint32_t)(next(&random) % KEYS);
        int64_t time = step + (int64_t)(next(&random) % 100) - 50;
        times[key] = is_there[key] ? MAX(times[key], time) : time;
        is_there[key] = true;
        key_times_see(&keys, KEY_TIMES_MAX, key + 1, time);
        if (step % 97 != 0)
            continue;
        int64_t from = step - 700, oldest = TIME_MAX;
        for (int i = 0; i < KEYS; i++)
            if (is_there[i] && times[i] >= from)
                oldest = MIN(oldest, times[i]);
        assert_true(key_times_oldest(&keys, from) == oldest);
    }
    assert_int_equal(keys.count, KEYS);
    assert_int_equal(keys.forgotten, 0);
    key_times_free(&keys);
}

/* A table that is restored from a checkpoint forgets the same keys, wherever they are in memory. */
static void test_bounded(void **state)
{
    (void)state;
    struct key_times keys = {0}, again = {0};
    struct byte_buffer saved = {0}, both[2] = {{0}, {0}};
    uint64_t random = 7;
    for (int step = 0; step < STEPS; step++) {
        uint64_t hash = next(&random) * 0x9E3779B97F4A7C15u | 1;
        key_times_see(&keys, LIMIT, hash, step);
        assert_true(keys.count <= LIMIT);
        assert_true(key_times_oldest(&keys, TIME_MIN) >= step - LIMIT); /* the oldest went first */
        if (step == STEPS / 2) {
            key_times_save(&keys, &saved);
            assert_true(key_times_load(&again, (struct str){saved.data, saved.length}));
        }
        if (step > STEPS / 2)
            key_times_see(&again, LIMIT, hash, step);
    }
    assert_true(keys.forgotten > 0);
    key_times_save(&keys, &both[0]);
    key_times_save(&again, &both[1]);
    assert_int_equal(both[0].length, both[1].length);
    assert_memory_equal(both[0].data, both[1].data, both[0].length);
    saved.data[8] ^= 1;
    assert_false(key_times_load(&again, (struct str){saved.data, saved.length - 1}));
    memcpy(saved.data + 16, saved.data, 16);
    assert_false(key_times_load(&again, (struct str){saved.data, saved.length})); /* a key twice */
    key_times_free(&keys);
    key_times_free(&again);
    buffer_free(&saved);
    buffer_free(&both[0]);
    buffer_free(&both[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_oldest), cmocka_unit_test(test_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
