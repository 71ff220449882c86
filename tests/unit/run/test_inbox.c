/* The inbox of a worker's sequencer: messages come out as they came in, in their order, whether they waited in memory or in a file. */
#include "workers.h"

#include "core/mem.h"
#include "run/sequencer/peers_internal.h"
#include "unit/support/random.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORKERS = 3, ROOM = 1000, MESSAGES = 5000, LENGTH_MAX = 300 };

static const char job[] = "source a = sequence { count: 10, event_time: ts }\nsink a = null from a\n";

/* The bytes of message number n. */
static struct str bytes_of(uint64_t n)
{
    static char bytes[LENGTH_MAX];
    struct test_random random = {n};
    size_t length = random_below(&random, LENGTH_MAX);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (char)random_below(&random, 256);
    return (struct str){bytes, length};
}

static void take_next(struct run *run, uint64_t n)
{
    struct message *message = inbox_take(run, &run->sequencer->peers->inbox);
    struct str bytes = bytes_of(n);
    assert_non_null(message);
    assert_int_equal(message->from, n % WORKERS);
    assert_int_equal(message->length, bytes.length);
    assert_memory_equal(message->bytes, bytes.data, bytes.length);
    message_free(run, message);
}

static void put_and_take(struct run *run)
{
    struct inbox *inbox = &run->sequencer->peers->inbox;
    struct test_random random = {3};
    uint64_t put = 0, taken = 0, spilled_most = 0, times_in_memory = 0;
    run->waiting_budget = 8 * ROOM;
    while (taken < MESSAGES) {
        for (uint32_t i = (uint32_t)random_below(&random, 12); i > 0 && put < MESSAGES; i--, put++)
            inbox_put(run, inbox, (uint32_t)(put % WORKERS), bytes_of(put));
        spilled_most = MAX(spilled_most, inbox->spilled);
        times_in_memory += inbox->spilled == 0;
        assert_true(run->waiting_bytes <= ROOM);
        assert_int_equal(run->waiting_bytes, inbox->bytes);
        for (uint32_t i = (uint32_t)random_below(&random, 14); i > 0 && taken < put; i--)
            take_next(run, taken++);
    }
    assert_null(inbox_take(run, &run->sequencer->peers->inbox));
    assert_int_equal(run->waiting_bytes, 0);
    assert_true(spilled_most > 5 && times_in_memory > 5);
    assert_true(inbox->file.end < 100 * LENGTH_MAX); /* it is written from its beginning again and again */
    for (uint64_t n = 0; n < 20; n++)
        inbox_put(run, inbox, 0, bytes_of(n)); /* freed with the run */
}

static void damage(struct run *run)
{
    struct inbox *inbox = &run->sequencer->peers->inbox;
    run->waiting_budget = 0;
    inbox_put(run, inbox, 1, bytes_of(1));
    inbox_put(run, inbox, 1, bytes_of(2));
    assert_int_equal(ftruncate(inbox->file.fd, (off_t)inbox->file.end - 1), 0);
    struct message *message = inbox_take(run, &run->sequencer->peers->inbox);
    assert_non_null(message);
    message_free(run, message);
    assert_null(inbox_take(run, &run->sequencer->peers->inbox));
    assert_true(run_has_failed(run));
    assert_int_equal(run->diags->items[0].code, DIAG_FILE_DAMAGED);
    assert_null(inbox_take(run, &run->sequencer->peers->inbox));
}

enum { LONG_BYTES = 256 << 10, LONG_MESSAGES = 256, WAIT = 3 };

/* A file that is never empty has room on the disk for what waits, not for all that went through it. */
static void never_empty(struct run *run)
{
    struct inbox *inbox = &run->sequencer->peers->inbox;
    struct stat found;
    char *bytes = mem_calloc(1, LONG_BYTES);
    run->waiting_budget = 0;
    for (uint32_t n = 0; n < LONG_MESSAGES; n++) {
        bytes[LONG_BYTES - 1] = (char)n;
        inbox_put(run, inbox, 1, (struct str){bytes, LONG_BYTES});
        if (n < WAIT)
            continue;
        struct message *message = inbox_take(run, inbox);
        assert_int_equal(message->bytes[LONG_BYTES - 1], (char)(n - WAIT));
        message_free(run, message);
    }
    free(bytes);
    assert_int_equal(fstat(inbox->file.fd, &found), 0);
    assert_true(inbox->file.end > (uint64_t)LONG_MESSAGES * LONG_BYTES);
    assert_true(found.st_blocks * 512 < 12 << 20);
}

static void test_never_empty(void **state)
{
    FILE *file = tmpfile();
    (void)state;
    assert_true(file != NULL && ftruncate(fileno(file), 1 << 20) == 0);
    bool can_forget = fallocate(fileno(file), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20) == 0;
    fclose(file);
    if (!can_forget)
        skip(); /* the file system of temporary files cannot do that */
    workers_look(job, WORKERS, 0, &(struct way){0}, never_empty);
}

static void test_order(void **state)
{
    (void)state;
    workers_look(job, WORKERS, 0, &(struct way){0}, put_and_take);
}

static void test_damage(void **state)
{
    (void)state;
    workers_look(job, WORKERS, 0, &(struct way){0}, damage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_damage),
                                       cmocka_unit_test(test_never_empty)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
