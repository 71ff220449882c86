/* Peeks at a keyed table: they find what brackets find, in memory and in the database, and leave no trace. */
#include "state/state.h"
#include "state/table.h"

#include "unit/support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { KEYS = 3000, EXPIRED = 1000, BUDGET = 250000, BYTES = 100, BATCH = 100 };

struct fixture {
    char path[TEMPORARY_PATH_BYTES];
    struct arena arena;
    struct diag_list diags;
    struct state_store *store;
    struct keyed_table *table;
};

static struct key key_of(uint32_t i)
{
    return (struct key){(uint64_t)i * 77 + 1, (uint64_t)1 << 56};
}

/* Keys 0 to EXPIRED - 1 expire at 500, others never; every tenth has no value. */
static uint32_t bytes_of(uint32_t i)
{
    return i % 10 == 0 ? 0 : BYTES;
}

static void write_keys(struct fixture *f)
{
    for (uint32_t first = 0; first < KEYS; first += BATCH) {
        struct key keys[BATCH];
        uint64_t hashes[BATCH];
        struct keyed_slot *slots[BATCH];
        for (uint32_t i = 0; i < BATCH; i++) {
            keys[i] = key_of(first + i);
            hashes[i] = key_hash(keys[i]);
        }
        keyed_begin(f->table, keys, hashes, BATCH, slots);
        for (uint32_t i = 0; i < BATCH; i++) {
            char *value =
                keyed_write(f->table, slots[i], bytes_of(first + i), first + i < EXPIRED ? 500 : TIME_MAX);
            if (value != NULL)
                memset(value, (int)((first + i) % 251), BYTES);
        }
        keyed_end(f->table);
    }
}

static void setup(struct fixture *f, bool has_directory)
{
    char database[TEMPORARY_PATH_BYTES + 8];
    memset(f, 0, sizeof(*f));
    temporary_make(f->path);
    diag_list_init(&f->diags, &f->arena);
    snprintf(database, sizeof(database), "%s/db", f->path);
    f->store = state_store_open(has_directory ? database : NULL, 4 << 20, false, &f->diags);
    assert_non_null(f->store);
    f->table = keyed_table_new(&(struct keyed_options){f->store, 3, 'k', BUDGET, NULL});
    write_keys(f);
}

static void teardown(struct fixture *f)
{
    keyed_table_free(f->table);
    assert_null(state_store_error(f->store));
    state_store_close(f->store);
    arena_free(&f->arena);
    temporary_remove(f->path);
}

/* All of the table that a bracket could change: slots with their marks and addresses, figures, the clock's hand. */
struct trace {
    struct keyed_stats stats;
    struct byte_buffer slots;
    uint64_t rebuilds;
    uint32_t hand, filter_asked, filter_rejected, next_unknown, learn_in;
};

static struct trace trace_of(struct fixture *f)
{
    const struct keyed_table *table = f->table;
    struct trace trace = {.rebuilds = table->rebuilds,
                          .hand = table->hand,
                          .filter_asked = table->filter_asked,
                          .filter_rejected = table->filter_rejected,
                          .next_unknown = table->next_unknown,
                          .learn_in = table->learn_in};
    keyed_table_stats(f->table, &trace.stats);
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        if (table->groups[group].capacity > 0)
            buffer_append(&trace.slots, table->groups[group].slots,
                          group_bytes(table->groups[group].capacity));
    return trace;
}

static void assert_same(const struct trace *a, const struct trace *b)
{
    assert_memory_equal(&a->stats, &b->stats, sizeof(a->stats));
    assert_int_equal(a->slots.length, b->slots.length);
    assert_memory_equal(a->slots.data, b->slots.data, a->slots.length);
    assert_int_equal(a->rebuilds, b->rebuilds);
    assert_int_equal(a->hand, b->hand);
    assert_int_equal(a->filter_asked, b->filter_asked);
    assert_int_equal(a->filter_rejected, b->filter_rejected);
    assert_int_equal(a->next_unknown, b->next_unknown);
    assert_int_equal(a->learn_in, b->learn_in);
}

/* Whether the key has an entry, which must be as it was written. */
static bool is_there(struct fixture *f, uint32_t i)
{
    char expected[BYTES];
    uint32_t bytes;
    struct key key = key_of(i);
    const struct keyed_slot *slot = keyed_peek(f->table, key, key_hash(key));
    if (slot != NULL) {
        const char *value = keyed_read(slot, &bytes);
        assert_true(key_equal(slot->key, key));
        assert_true(slot->expire_us == (i < EXPIRED ? 500 : TIME_MAX));
        assert_int_equal(bytes, bytes_of(i));
        memset(expected, (int)(i % 251), BYTES);
        assert_memory_equal(value == NULL ? "" : value, expected, bytes);
        assert_true((uintptr_t)value % 8 == 0);
    }
    keyed_peek_end(f->table);
    return slot != NULL;
}

static void peek_at_all(struct fixture *f, uint32_t first)
{
    struct trace before = trace_of(f);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(is_there(f, i), i >= first);
    for (uint32_t i = KEYS; i < 2 * KEYS; i++)
        assert_false(is_there(f, i));
    struct trace after = trace_of(f);
    assert_same(&before, &after);
    buffer_free(&before.slots);
    buffer_free(&after.slots);
}

static void test_on_disk(void **state)
{
    (void)state;
    struct fixture f;
    struct keyed_stats stats;
    setup(&f, true);
    keyed_table_stats(f.table, &stats);
    assert_true(stats.evicted > KEYS / 2 && stats.resident > 100 && stats.resident < KEYS / 2);
    peek_at_all(&f, 0);
    keyed_set_watermark(f.table, 500);
    peek_at_all(&f, 0); /* an entry that expires at 500 is alive at 500 */
    keyed_set_watermark(f.table, 501);
    peek_at_all(&f, EXPIRED);
    teardown(&f);
}

static void test_in_memory(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, false);
    peek_at_all(&f, 0);
    keyed_set_watermark(f.table, 501);
    peek_at_all(&f, EXPIRED);
    teardown(&f);
}

/* An entry that a bracket has made and nobody has written is none. */
static void test_never_written(void **state)
{
    (void)state;
    struct fixture f;
    struct keyed_slot *slot;
    setup(&f, true);
    struct key key = key_of(KEYS + 5);
    uint64_t hash = key_hash(key);
    keyed_begin(f.table, &key, &hash, 1, &slot);
    keyed_end(f.table);
    assert_false(is_there(&f, KEYS + 5));
    peek_at_all(&f, 0);
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_on_disk),
        cmocka_unit_test(test_in_memory),
        cmocka_unit_test(test_never_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
