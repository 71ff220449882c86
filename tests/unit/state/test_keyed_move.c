/* Key groups that go from one table to another, each with a database of its own, and back: the rows that they leave behind are
 * deleted with the next barrier, and a checkpoint that was taken before keeps them; what came ahead of the barrier is in the new
 * instance's next checkpoint, and takes no work at the barrier. */
#include "state/checkpoint.h"
#include "state/table.h"
#include "unit/support/temporary.h"

#include "core/moved.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
    ID = 7,
    KIND = 'k',
    KEYS = 4000,
    MANY = 100 * KEY_GROUPS,
    BUDGET = 64 << 10,
    ROOMY = 64 << 20,
    VALUE_BYTES = 64,
    MEMORY = 4 << 20
};

/* A table with its store, in one of the folder's directories. */
struct home {
    const char *folder;
    unsigned number;
    uint64_t keys; /* how many are written and checked */
    struct group_set groups;
    struct state_store *store;
    struct keyed_table *table;
};

struct world {
    struct arena arena;
    struct diag_list diags;
    char path[TEMPORARY_PATH_BYTES];
    struct home homes[2];
    struct placement placement;
    uint64_t epoch;
    size_t budget_bytes;
    uint64_t keys;
    uint32_t saved[2]; /* entries that the last checkpoint has of each home */
};

static void open_home(struct world *world, unsigned number)
{
    struct home *home = &world->homes[number];
    char path[TEMPORARY_PATH_BYTES + 16];
    *home = (struct home){.folder = world->path, .number = number, .keys = world->keys};
    snprintf(path, sizeof(path), "%s/db-%u", world->path, number);
    placement_groups(&world->placement, number, &home->groups);
    home->store = state_store_open(path, MEMORY, false, &world->diags);
    assert_non_null(home->store);
    store_set_shared(home->store, false);
    home->table = keyed_table_new(&(struct keyed_options){.store = home->store,
                                                          .id = ID,
                                                          .kind = KIND,
                                                          .budget_bytes = world->budget_bytes,
                                                          .groups = &home->groups});
}

static struct world *open_world(size_t budget_bytes, uint64_t keys)
{
    struct world *world = calloc(1, sizeof(*world));
    world->budget_bytes = budget_bytes;
    world->keys = keys;
    diag_list_init(&world->diags, &world->arena);
    temporary_make(world->path);
    world->placement.instances = 2; /* all groups are at home 0 */
    open_home(world, 0);
    open_home(world, 1);
    return world;
}

static void close_world(struct world *world)
{
    for (unsigned i = 0; i < 2; i++) {
        keyed_table_free(world->homes[i].table);
        state_store_close(world->homes[i].store);
    }
    temporary_remove(world->path);
    arena_free(&world->arena);
    free(world);
}

static struct key key_of(uint64_t number)
{
    return (struct key){number, 1};
}

/* Writes `round` into the first keys, in brackets of one, so that the table evicts. */
static void write_first(struct home *home, uint64_t keys, uint64_t round)
{
    for (uint64_t i = 0; i < keys; i++) {
        struct keyed_slot *slot;
        struct key key = key_of(i);
        uint64_t hash = key_hash(key), value[VALUE_BYTES / sizeof(uint64_t)] = {i, round};
        keyed_begin(home->table, &key, &hash, 1, &slot);
        memcpy(keyed_write(home->table, slot, VALUE_BYTES, TIME_MAX), value, sizeof(value));
        keyed_end(home->table);
    }
}

static void write_all(struct home *home, uint64_t round)
{
    write_first(home, home->keys, round);
}

/* All keys have the value of that round. */
static void check_all(struct home *home, uint64_t round)
{
    for (uint64_t i = 0; i < home->keys; i++) {
        struct key key = key_of(i);
        uint32_t bytes;
        const struct keyed_slot *slot = keyed_peek(home->table, key, key_hash(key));
        assert_non_null(slot);
        const uint64_t *value = keyed_read(slot, &bytes);
        assert_true(bytes == VALUE_BYTES && value[0] == i && value[1] == round);
        keyed_peek_end(home->table);
    }
}

static uint32_t entries_of(const struct byte_buffer *records)
{
    struct str rest = {records->data, records->length}, record;
    struct record_entry entry;
    uint32_t count = 0;
    for (uint32_t group; moved_next(&rest, &group, &record);)
        for (size_t at = sizeof(struct record_head); keyed_next_entry(record, &at, &entry);)
            count++;
    return count;
}

/* At a barrier: both tables write what has changed since the one before, and the databases are copied. */
static void take_checkpoint(struct world *world)
{
    char path[TEMPORARY_PATH_BYTES + 32];
    struct snapshot_writer *writers[2];
    world->epoch++;
    for (unsigned i = 0; i < 2; i++) {
        writers[i] = snapshot_memory_begin(world->epoch);
        assert_true(keyed_table_snapshot(world->homes[i].table, writers[i]));
        world->homes[i].table->snapshot.is_base = false;
    }
    for (unsigned i = 0; i < 2; i++) {
        struct byte_buffer records;
        bool has_database;
        snprintf(path, sizeof(path), "%s/copy-%u-%u", world->path, i, (unsigned)world->epoch);
        assert_true(state_store_checkpoint(world->homes[i].store, path, &has_database, &world->diags));
        assert_true(snapshot_memory_end(writers[i], &records));
        world->homes[i].table->previous_is_dirty = false; /* as if it were published */
        world->saved[i] = entries_of(&records);
        buffer_free(&records);
    }
}

/* Between two barriers, ahead of move_all: a round of the base. Returns the bytes. */
static size_t move_base(struct world *world, unsigned from, unsigned to)
{
    struct byte_buffer base = {0};
    struct home *giver = &world->homes[from], *taker = &world->homes[to];
    for (uint32_t group = group_set_next(&giver->groups, 0); group < KEY_GROUPS;
         group = group_set_next(&giver->groups, group + 1))
        assert_true(keyed_table_give_base(giver->table, group, &base));
    struct str rest = {base.data, base.length}, record;
    for (uint32_t group; moved_next(&rest, &group, &record);)
        assert_true(keyed_table_take_base(taker->table, &giver->groups, record));
    size_t bytes = base.length;
    buffer_free(&base);
    return bytes;
}

/* At a barrier, behind take_checkpoint: all groups go. Returns the bytes. */
static size_t move_all(struct world *world, unsigned from, unsigned to)
{
    struct byte_buffer given = {0};
    struct home *giver = &world->homes[from], *taker = &world->homes[to];
    struct group_set leaving = giver->groups;
    assert_true(keyed_table_give(giver->table, &leaving, &given));
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        placement_move(&world->placement, group, to);
    for (unsigned i = 0; i < 2; i++) {
        placement_groups(&world->placement, i, &world->homes[i].groups);
        keyed_table_regroup(world->homes[i].table);
    }
    struct str rest = {given.data, given.length}, record;
    for (uint32_t group; moved_next(&rest, &group, &record);)
        assert_true(keyed_table_take(taker->table, record));
    size_t bytes = given.length;
    buffer_free(&given);
    return bytes;
}

static bool count_row(void *argument, struct str key, struct str value)
{
    (void)key, (void)value;
    ++*(uint64_t *)argument;
    return true;
}

/* How many rows of the table a store has, of whatever stay. */
static uint64_t rows_of(struct state_store *store)
{
    char first[STORE_PREFIX_BYTES], limit[STORE_PREFIX_BYTES];
    uint64_t rows = 0;
    store_prefix(first, ID, KIND, 0);
    store_prefix(limit, ID, KIND + 1, 0);
    assert_true(store_scan(store, (struct str){first, sizeof(first)}, (struct str){limit, sizeof(limit)},
                           count_row, &rows));
    return rows;
}

static uint64_t rows_of_copy(struct world *world, unsigned number, unsigned epoch)
{
    char path[TEMPORARY_PATH_BYTES + 32];
    snprintf(path, sizeof(path), "%s/copy-%u-%u", world->path, number, epoch);
    struct state_store *store = state_store_open(path, MEMORY, true, &world->diags);
    assert_non_null(store);
    uint64_t rows = rows_of(store);
    state_store_close(store);
    return rows;
}

static void test_void_rows(void **state)
{
    (void)state;
    struct world *world = open_world(BUDGET, KEYS);
    struct home *one = &world->homes[0], *two = &world->homes[1];
    write_all(one, 1);
    assert_true(rows_of(one->store) > KEYS / 2);
    take_checkpoint(world); /* 1 */
    move_all(world, 0, 1);
    write_all(two, 2);
    assert_true(rows_of(one->store) > KEYS / 2); /* its checkpoint may be abandoned, or be written still */
    take_checkpoint(world);                      /* 2 */
    assert_int_equal(rows_of(one->store), 0);
    assert_true(rows_of(two->store) > KEYS / 2);
    move_all(world, 1, 0);
    check_all(one, 2);
    write_all(one, 3);
    take_checkpoint(world); /* 3 */
    assert_int_equal(rows_of(two->store), 0);
    assert_in_range(rows_of(one->store), KEYS / 2,
                    KEYS); /* none of the first stay beside those of the third */
    check_all(one, 3);
    assert_true(rows_of_copy(world, 0, 1) > KEYS / 2);
    assert_int_equal(rows_of_copy(world, 0, 2), 0);
    assert_true(rows_of_copy(world, 1, 2) > KEYS / 2);
    assert_int_equal(rows_of_copy(world, 1, 3), 0);
    close_world(world);
}

/* An operator leaves a store as a whole. */
static void test_drop(void **state)
{
    (void)state;
    struct world *world = open_world(BUDGET, KEYS);
    struct home *one = &world->homes[0];
    write_all(one, 1);
    take_checkpoint(world);
    keyed_table_free(one->table);
    one->table = NULL;
    state_store_drop(one->store, ID + 1);
    assert_true(rows_of(one->store) > KEYS / 2);
    state_store_drop(one->store, ID);
    assert_int_equal(rows_of(one->store), 0);
    assert_true(rows_of_copy(world, 0, 1) > KEYS / 2);
    assert_null(state_store_error(one->store));
    close_world(world);
}

/* The checkpoint of the barrier is written before the groups come over: the next one has all that came. */
static void test_base_is_saved(void **state)
{
    (void)state;
    struct world *world = open_world(ROOMY, KEYS);
    write_all(&world->homes[0], 1);
    take_checkpoint(world); /* 1 */
    move_base(world, 0, 1);
    take_checkpoint(world); /* 2 */
    assert_int_equal(world->saved[1], 0);
    assert_int_equal(move_all(world, 0, 1), 0);
    take_checkpoint(world); /* 3 */
    assert_int_equal(world->saved[1], KEYS);
    check_all(&world->homes[1], 1);
    take_checkpoint(world); /* 4 */
    assert_int_equal(world->saved[1], 0);
    close_world(world);
}

/* Each round has what changed since the one before, and so has what is left for the barrier. */
static void test_rounds(void **state)
{
    (void)state;
    struct world *world = open_world(ROOMY, KEYS);
    struct home *one = &world->homes[0];
    write_all(one, 1);
    take_checkpoint(world);
    write_first(one, KEYS / 2, 2); /* goes with the base */
    assert_true(move_base(world, 0, 1) > KEYS * VALUE_BYTES);
    assert_int_equal(move_base(world, 0, 1), 0);
    write_first(one, 3, 3);
    assert_in_range(move_base(world, 0, 1), 3 * VALUE_BYTES, 6 * VALUE_BYTES);
    write_first(one, KEYS, 4);
    assert_true(move_base(world, 0, 1) > KEYS * VALUE_BYTES);
    write_first(one, 2, 4);
    take_checkpoint(world);
    assert_in_range(move_all(world, 0, 1), 2 * VALUE_BYTES, 4 * VALUE_BYTES);
    check_all(&world->homes[1], 4);
    take_checkpoint(world);
    assert_int_equal(world->saved[1], KEYS);
    close_world(world);
}

/* The changes of entries that came ahead of the barrier need no room at the barrier. */
static void test_changes_need_no_room(void **state)
{
    (void)state;
    struct world *world = open_world(ROOMY, MANY);
    write_all(&world->homes[0], 1);
    take_checkpoint(world);
    move_base(world, 0, 1);
    write_all(&world->homes[0], 2);
    take_checkpoint(world);
    uint64_t rebuilds = world->homes[1].table->rebuilds;
    assert_true(move_all(world, 0, 1) > MANY * VALUE_BYTES);
    assert_int_equal(world->homes[1].table->rebuilds, rebuilds);
    check_all(&world->homes[1], 2);
    close_world(world);
}

/* What a group weighs is what giving it away gives, about: in memory and in the database. */
static void check_weight(struct home *home)
{
    uint64_t weights[KEY_GROUPS] = {0}, all = 0, given = 0;
    keyed_table_weigh(home->table, weights);
    for (uint32_t group = 0; group < KEY_GROUPS; group++) {
        struct byte_buffer out = {0};
        assert_true(keyed_table_give_base(home->table, group, &out));
        assert_true(out.length == 0 || (weights[group] > out.length / 4 && weights[group] < 4 * out.length));
        all += weights[group];
        given += out.length;
        buffer_free(&out);
    }
    assert_true(all > given / 2 && all < 2 * given);
}

static void test_weigh(void **state)
{
    (void)state;
    const size_t budgets[] = {ROOMY, BUDGET};
    for (size_t i = 0; i < ARRAY_COUNT(budgets); i++) {
        struct world *world = open_world(budgets[i], 25 * KEYS);
        struct home *home = &world->homes[0];
        uint64_t weights[KEY_GROUPS] = {0};
        keyed_table_weigh(home->table, weights);
        for (uint32_t group = 0; group < KEY_GROUPS; group++)
            assert_int_equal(weights[group], 0);
        write_all(home, 1);
        assert_true(store_flush(home->store));
        check_weight(home);
        close_world(world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weigh),  cmocka_unit_test(test_void_rows),
        cmocka_unit_test(test_drop),   cmocka_unit_test(test_base_is_saved),
        cmocka_unit_test(test_rounds), cmocka_unit_test(test_changes_need_no_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
