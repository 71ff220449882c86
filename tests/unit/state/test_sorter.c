/* The sorter against qsort: in memory, in runs, in merged runs, with records larger than the buffer of a run;
 * and on a full disk. */
#include "core/os.h"
#include "state/sorter.h"

#include "unit/support/random.h"
#include "unit/support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* HEAD_MOST: bytes that a record takes beside its data, at most. WRITTEN_MOST: how often a record is written,
 * at most, with a budget for eight runs. */
enum { RECORDS_MAX = 60000, BUDGET = 64 << 10, LARGE = 200 << 10, HEAD_MOST = 64, WRITTEN_MOST = 5 };

struct item {
    int64_t time_us;
    uint64_t hash;
    struct key key;
    uint32_t bytes, number;
};

static struct item items[RECORDS_MAX];
static char data[LARGE + 64];

static int compare(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->time_us != y->time_us)
        return x->time_us < y->time_us ? -1 : 1;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    int order = memcmp(&x->key, &y->key, sizeof(x->key));
    return order != 0 ? order : x->number < y->number ? -1 : 1;
}

/* A random record; many share its time and its hash. One in `rarity` is large (0: none). */
static struct item make(struct test_random *random, uint32_t number, uint32_t rarity)
{
    struct item item = {.time_us = (int64_t)random_below(random, 300) - 100,
                        .hash = random_below(random, 3) * UINT64_C(0x7fffffffffffffff),
                        .number = number};
    item.key.low = random_below(random, 4);
    item.bytes = random_chance(random, 10) ? 0 : random_below(random, 90);
    if (rarity > 0 && random_below(random, rarity) == 0)
        item.bytes = LARGE - random_below(random, 100);
    return item;
}

static void fill(const struct item *item)
{
    for (uint32_t i = 0; i < item->bytes; i++)
        data[i] = (char)(item->number * 31 + i);
}

static void sort(struct state_store *store, uint64_t seed, uint32_t count, uint32_t rarity, bool is_bounded)
{
    struct test_random random = {seed};
    struct sorter *sorter = sorter_new(store, BUDGET);
    struct sorted_record record;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        items[i] = make(&random, i, rarity);
        fill(&items[i]);
        bytes += HEAD_MOST + items[i].bytes;
        sorter_add(sorter, &(struct sorted_record){
                               items[i].time_us, items[i].hash, items[i].key, {data, items[i].bytes}});
        assert_true(!is_bounded || sorter_memory(sorter) <= 4 * BUDGET + (rarity > 0 ? 4 * LARGE : 0));
    }
    qsort(items, count, sizeof(*items), compare);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(sorter_next(sorter, &record));
        assert_true(record.time_us == items[i].time_us && record.hash == items[i].hash &&
                    key_equal(record.key, items[i].key) && record.data.length == items[i].bytes);
        assert_true((uintptr_t)record.data.data % 8 == 0);
        fill(&items[i]);
        assert_memory_equal(record.data.data, data, items[i].bytes);
        assert_true(!is_bounded || sorter_memory(sorter) <= 4 * BUDGET + (rarity > 0 ? 4 * LARGE : 0));
    }
    assert_false(sorter_next(sorter, &record));
    assert_false(sorter_next(sorter, &record));
    assert_true(sorter_file_bytes(sorter) <= (is_bounded ? WRITTEN_MOST * bytes : 0));
    sorter_free(sorter);
}

static void test_sorted(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct diag_list diags;
    char path[TEMPORARY_PATH_BYTES], directory[TEMPORARY_PATH_BYTES + 8];
    diag_list_init(&diags, &arena);
    temporary_make(path);
    snprintf(directory, sizeof(directory), "%s/db", path);
    struct state_store *store = state_store_open(directory, 4 << 20, false, &diags);
    for (uint64_t seed = 1; seed <= 6; seed++) {
        sort(store, seed, 0, 0, true);
        sort(store, seed, 1, 0, true);
        sort(store, seed, 300, 0, true);
        sort(store, seed, 2000, 0, true);
        sort(store, seed, 3000, 300, true);
    }
    sort(store, 7, RECORDS_MAX, 0, true); /* hundreds of runs, which are merged several times */
    if (state_store_error(store) != NULL)
        fail_msg("%s", state_store_error(store));
    state_store_close(store);
    store = state_store_open(NULL, 4 << 20, false, &diags);
    sort(store, 8, 20000, 0, false);
    state_store_close(store);
    temporary_remove(path);
    arena_free(&arena);
}

/* After a failed write the sorter gives no records, and the store has the error: it is no end
 * of the records. */
static void test_full_disk(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct diag_list diags;
    char path[TEMPORARY_PATH_BYTES], directory[TEMPORARY_PATH_BYTES + 8];
    diag_list_init(&diags, &arena);
    setenv("LEAT_FAILPOINTS", "spill.write=error:ENOSPC@3", 1);
    assert_true(failpoints_init(&diags));
    temporary_make(path);
    snprintf(directory, sizeof(directory), "%s/db", path);
    struct state_store *store = state_store_open(directory, 4 << 20, false, &diags);
    struct sorter *sorter = sorter_new(store, BUDGET);
    struct test_random random = {5};
    struct sorted_record record;
    for (uint32_t i = 0; i < 10000; i++) {
        struct item item = make(&random, i, 0);
        sorter_add(sorter, &(struct sorted_record){item.time_us, item.hash, item.key, {data, item.bytes}});
    }
    assert_false(sorter_next(sorter, &record));
    assert_non_null(state_store_error(store));
    assert_non_null(strstr(state_store_error(store), "sorting state: No space left"));
    sorter_free(sorter);
    state_store_close(store);
    temporary_remove(path);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sorted), cmocka_unit_test(test_full_disk)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
