/* Scans of short ranges read the blocks that have them, and hardly more: a database of state is read in very many of them, a key group
 * each. */
#include "state/state.h"
#include "state/store.h"
#include "unit/support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* FEW_BYTES: a scan may read of each file: a block of data, one of an index, and, once, what is read to open the file. */
enum {
    FILES = 3, /* of the database */
    KEYS = 20000,
    VALUE_BYTES = 200,
    SCANS = 100,
    FEW_BYTES = 32 << 10
};

static struct str key_of(char *text, size_t bytes, int number)
{
    return (struct str){text, (size_t)snprintf(text, bytes, "%06d", number)};
}

/* Each file has keys from the first one to the last. */
static void fill(struct state_store *store)
{
    static char value[VALUE_BYTES];
    rocksdb_writebatch_t *batch = store_batch_new();
    for (int file = 0; file < FILES; file++) {
        for (int number = file; number < KEYS; number += FILES) {
            char text[16];
            struct str key = key_of(text, sizeof(text), number);
            for (size_t i = 0; i < sizeof(value); i++)
                value[i] = (char)rand(); /* NOLINT: the same ones in each run */
            rocksdb_writebatch_put(batch, key.data, key.length, value, sizeof(value));
        }
        assert_true(store_commit(store, batch) && store_flush(store));
    }
    rocksdb_writebatch_destroy(batch);
}

/* Bytes that the process has read, from files in memory, too. */
static long long bytes_read(void)
{
    long long bytes = -1;
    FILE *file = fopen("/proc/self/io", "r");
    if (file != NULL && fscanf(file, "rchar: %lld", &bytes) != 1)
        bytes = -1;
    if (file != NULL)
        (void)fclose(file);
    return bytes;
}

static bool count_pair(void *argument, struct str key, struct str value)
{
    (void)key;
    *(int *)argument += value.length == VALUE_BYTES;
    return true;
}

static int scan(struct state_store *store, int first, int limit)
{
    char from[16], to[16];
    int pairs = 0;
    assert_true(store_scan(store, key_of(from, sizeof(from), first), key_of(to, sizeof(to), limit),
                           count_pair, &pairs));
    return pairs;
}

static void test_short_ranges(void **state)
{
    struct arena arena = {0};
    struct diag_list diags;
    char path[TEMPORARY_PATH_BYTES], database[TEMPORARY_PATH_BYTES + 16];
    (void)state;
    if (bytes_read() < 0)
        skip(); /* the system does not count them */
    diag_list_init(&diags, &arena);
    temporary_make(path);
    snprintf(database, sizeof(database), "%s/db", path);
    struct state_store *store = state_store_open(database, 8 << 20, false, &diags);
    assert_non_null(store);
    fill(store);
    assert_int_equal(scan(store, 0, KEYS), KEYS);
    long long before = bytes_read();
    for (int i = 0; i < SCANS; i++)
        assert_int_equal(scan(store, i * (KEYS / SCANS), i * (KEYS / SCANS) + 3), 3);
    assert_true(bytes_read() - before < (long long)SCANS * FILES * FEW_BYTES);
    state_store_close(store);
    temporary_remove(path);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_short_ranges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
