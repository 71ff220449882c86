/* The time queue against a sorted list: spilling, checkpoints with kills, other numbers of lanes, many
 * records with one time. And cold rows. */
#include "state/stores.h"

#include "unit/support/random.h"
#include "unit/support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "unit/state/moves.h"

enum {
    ITEMS_MAX = 20000,
    LANES_MAX = 3,
    QUEUE_ID = 4,
    QUEUE_KIND = 'q',
    QUEUE_BUDGET = 30000,
    BUCKET = 1000,      /* microseconds */
    BURST_ITEMS = 4500, /* several budgets for each lane */
    BURST_BYTES = 5 * QUEUE_BUDGET,
    COLD_ID = 9,
    COLD_KEYS = 500
};

struct item {
    int64_t time_us;
    uint64_t hash, id;
    uint32_t bytes;
    bool is_gone;
};

struct cold_model {
    uint64_t values[COLD_KEYS]; /* 0: none */
};

struct model {
    struct item items[ITEMS_MAX];
    uint32_t count;
    int64_t before;
    struct cold_model cold;
};

struct fixture {
    char path[TEMPORARY_PATH_BYTES];
    struct arena arena;
    struct diag_list diags;
    struct checkpoint_dir *dir;
    struct checkpoint_writer *writer;
    struct state_stores stores; /* one for each lane, and now and then one for all */
    struct time_queue *queues[LANES_MAX];
    struct cold_store *cold;
    uint32_t lanes, starts;
    struct placement placement, placement_pending, placement_published;
    struct group_set groups[LANES_MAX];
    struct moves moves;
    uint64_t epoch;
    bool has_published;
    struct test_random random;
    struct model model, pending, published;
};

static struct key key_of(uint64_t id)
{
    return (struct key){id * 3, UINT64_C(2) << 56};
}

/* That many lanes, with ranges of key groups, and every second time with groups here and there. */
static void set_lanes(struct fixture *f, uint32_t lanes)
{
    f->placement = f->placement_published;
    f->lanes = lanes;
    if (++f->starts % 2 == 0)
        placement_scatter(&f->placement, lanes, f->starts);
    else
        placement_ranges(&f->placement, lanes);
    for (uint32_t lane = 0; lane < lanes; lane++)
        placement_groups(&f->placement, lane, &f->groups[lane]);
}

static bool give_base(void *queue, const struct group_set *leaving, uint32_t round, int64_t *next,
                      struct byte_buffer *out)
{
    return time_queue_give_base(queue, leaving, round, next, out);
}

static bool take_base(void *queue, const struct group_set *coming, struct str record)
{
    return time_queue_take_base(queue, coming, record);
}

static bool give(void *queue, const struct group_set *leaving, struct byte_buffer *out)
{
    return time_queue_give(queue, leaving, out);
}

static void regroup(void *queue)
{
    time_queue_regroup(queue);
}

static bool take(void *queue, struct str record)
{
    return time_queue_take(queue, record);
}

static void between(void *test);
static const struct move_calls move_calls = {give_base, take_base, give, regroup, take, between};

/* At a start: nothing is announced. */
static void begin_moves(struct fixture *f)
{
    f->moves = (struct moves){.calls = &move_calls,
                              .test = f,
                              .lanes = f->lanes,
                              .placement = &f->placement,
                              .groups = f->groups,
                              .bases = f->moves.bases,
                              .changes = f->moves.changes};
    for (uint32_t lane = 0; lane < f->lanes; lane++)
        f->moves.objects[lane] = f->queues[lane];
}

static void start(struct fixture *f)
{
    struct checkpoint *found;
    f->dir = checkpoint_dir_open(&(struct checkpoint_dir_options){.path = f->path, .keep = {.last = 1}},
                                 &f->diags);
    assert_non_null(f->dir);
    assert_int_not_equal(checkpoint_find(f->dir, &found, &f->diags), CHECKPOINT_REFUSED);
    assert_int_equal(found != NULL, f->has_published);
    assert_true(checkpoint_start_generation(f->dir, found, &f->diags));
    struct state_stores_options stores = {.path = checkpoint_database_path(f->dir, 0, &f->arena),
                                          .count = f->starts % 3 == 0 ? 1 : f->lanes,
                                          .memory_bytes = 12 << 20,
                                          .from = found};
    stores.are_shared = stores.count == 1;
    assert_true(state_stores_open(&f->stores, &stores, &f->diags));
    f->cold = cold_store_new(f->stores.items[0], COLD_ID, 1, sizeof(uint64_t));
    for (uint32_t lane = 0; lane < f->lanes; lane++) {
        struct time_queue_options options = {
            state_stores_of(&f->stores, lane), QUEUE_ID, QUEUE_KIND, QUEUE_BUDGET, BUCKET, &f->groups[lane]};
        struct time_queue *queue = f->queues[lane] = time_queue_new(&options);
        for (uint32_t i = 0; i < f->stores.foreign_count; i++)
            assert_true(time_queue_import(queue, f->stores.foreign[i]));
        struct snapshot_reader *reader =
            found == NULL ? NULL : checkpoint_reader(found, "op/4/", &f->groups[lane], &f->diags);
        uint32_t group;
        struct str record;
        while (reader != NULL && snapshot_get(reader, &group, &record))
            assert_true(time_queue_restore(queue, reader, record, f->model.before, &f->diags));
        assert_true(reader == NULL || checkpoint_reader_close(reader));
        assert_true(time_queue_restored(queue, found == NULL ? TIME_MIN : f->model.before));
    }
    state_stores_import_cold(&f->stores);
    state_stores_imported(&f->stores);
    begin_moves(f);
    checkpoint_close(found);
}

static void abandon(struct fixture *f)
{
    state_stores_release(&f->stores);
    checkpoint_abandon(f->writer);
    f->writer = NULL;
}

static void stop(struct fixture *f)
{
    if (f->writer != NULL)
        abandon(f);
    for (uint32_t lane = 0; lane < f->lanes; lane++)
        time_queue_free(f->queues[lane]);
    f->cold->free(f->cold->self);
    assert_null(state_stores_error(&f->stores));
    state_stores_close(&f->stores);
    checkpoint_dir_close(f->dir);
}

static void push_item(struct fixture *f, int64_t time_us)
{
    struct model *m = &f->model;
    assert_true(m->count < ITEMS_MAX);
    struct item *item = &m->items[m->count];
    *item = (struct item){.id = m->count, .bytes = random_below(&f->random, 60), .time_us = time_us};
    item->hash = key_hash(key_of(item->id % 50));
    char data[80];
    memset(data, (int)item->id, sizeof(data));
    uint32_t lane = placement_instance(&f->placement, item->hash);
    time_queue_push(f->queues[lane], item->time_us, key_of(item->id % 50), item->hash,
                    (struct str){data, item->bytes});
    m->count++;
}

static void push(struct fixture *f)
{
    for (uint32_t i = random_below(&f->random, 60); i > 0 && f->model.count < ITEMS_MAX; i--) {
        int64_t ahead = random_chance(&f->random, 5) ? 200000 : random_chance(&f->random, 30) ? 500 : 20000;
        push_item(f, f->model.before + random_below(&f->random, (uint32_t)ahead) / 20 * 20);
    }
}

/* The item of the lane that must be popped next, or NULL: the first by time, hash and order of pushing. */
static struct item *next_item(struct fixture *f, uint32_t lane, int64_t before)
{
    struct item *best = NULL;
    for (uint32_t i = 0; i < f->model.count; i++) {
        struct item *item = &f->model.items[i];
        if (item->is_gone || item->time_us >= before || placement_instance(&f->placement, item->hash) != lane)
            continue;
        if (best == NULL || item->time_us < best->time_us ||
            (item->time_us == best->time_us && item->hash < best->hash))
            best = item;
    }
    return best;
}

static void pop_until(struct fixture *f, int64_t before, size_t bytes_max)
{
    for (uint32_t lane = 0; lane < f->lanes; lane++) {
        struct time_record record;
        struct item *item;
        while ((item = next_item(f, lane, before)) != NULL) {
            assert_true(time_queue_pop(f->queues[lane], before, &record));
            assert_true(record.time_us == item->time_us && record.hash == item->hash);
            assert_true(key_equal(record.key, key_of(item->id % 50)));
            assert_int_equal(record.data.length, item->bytes);
            for (uint32_t i = 0; i < item->bytes; i++)
                assert_int_equal((unsigned char)record.data.data[i], (unsigned char)item->id);
            item->is_gone = true;
            assert_true(time_queue_bytes(f->queues[lane]) < bytes_max);
        }
        assert_false(time_queue_pop(f->queues[lane], before, &record));
        assert_true(time_queue_bytes(f->queues[lane]) < bytes_max);
    }
    f->model.before = before;
}

static void discard_until(struct fixture *f, int64_t before)
{
    for (uint32_t lane = 0; lane < f->lanes; lane++)
        time_queue_discard(f->queues[lane], before);
    for (uint32_t i = 0; i < f->model.count; i++)
        f->model.items[i].is_gone |= f->model.items[i].time_us < before;
    f->model.before = before;
}

static void pop(struct fixture *f)
{
    int64_t ahead = random_chance(&f->random, 5) ? 30000 : random_below(&f->random, 800);
    if (random_chance(&f->random, 15))
        discard_until(f, f->model.before + ahead);
    else
        pop_until(f, f->model.before + ahead, 20 * QUEUE_BUDGET);
}

static void between(void *test)
{
    struct fixture *f = test;
    if (!random_chance(&f->random, 20))
        return;
    push(f);
    pop(f);
}

static void use_cold(struct fixture *f)
{
    uint64_t keys[40], rows[40], count = random_below(&f->random, 40);
    bool found[40];
    for (uint64_t i = 0; i < count; i++) {
        keys[i] = random_below(&f->random, COLD_KEYS);
        rows[i] = random_next(&f->random) | 1;
    }
    uint32_t what = random_below(&f->random, 4);
    if (what < 2) {
        assert_true(f->cold->put(f->cold->self, keys, NULL, rows, sizeof(rows[0]), count));
        for (uint64_t i = 0; i < count; i++)
            f->model.cold.values[keys[i]] = rows[i];
    } else if (what == 2) {
        assert_true(f->cold->remove(f->cold->self, keys, count));
        for (uint64_t i = 0; i < count; i++)
            f->model.cold.values[keys[i]] = 0;
    }
    assert_true(f->cold->get(f->cold->self, keys, rows, sizeof(rows[0]), count, found));
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(found[i], f->model.cold.values[keys[i]] != 0);
        assert_true(!found[i] || rows[i] == f->model.cold.values[keys[i]]);
    }
}

static uint64_t scan_next;
static void check_row(void *argument, uint64_t key, const void *row)
{
    const struct cold_model *model = argument;
    for (; scan_next < key; scan_next++)
        assert_true(model->values[scan_next] == 0);
    assert_memory_equal(row, &model->values[key], sizeof(uint64_t));
    scan_next = key + 1;
}

static void barrier(struct fixture *f)
{
    f->writer = checkpoint_begin(f->dir, ++f->epoch, checkpoint_wants_base(f->dir), &f->diags);
    assert_non_null(f->writer);
    for (uint32_t lane = 0; lane < f->lanes; lane++) {
        char name[32];
        snprintf(name, sizeof(name), "op/4/%u", lane);
        assert_true(time_queue_snapshot(f->queues[lane], checkpoint_part(f->writer, name)));
    }
    f->cold->barrier(f->cold->self, TIME_MIN);
    f->pending = f->model;
    f->placement_pending = f->placement;
}

static void publish(struct fixture *f)
{
    struct checkpoint_info info = {0};
    assert_true(state_stores_checkpoint(&f->stores, f->writer, &f->diags));
    push(f);
    pop(f);
    if (random_chance(&f->random, 25))
        use_cold(f);
    assert_true(checkpoint_write(f->writer, f->stores.count, &f->diags));
    assert_true(checkpoint_publish(f->writer, &info, &f->diags));
    f->writer = NULL;
    f->published = f->pending;
    f->placement_published = f->placement_pending;
    f->has_published = true;
}

static void test_random_life(void **state)
{
    (void)state;
    static struct fixture f;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        memset(&f, 0, sizeof(f));
        temporary_make(f.path);
        diag_list_init(&f.diags, &f.arena);
        f.random.state = seed;
        set_lanes(&f, 1 + random_below(&f.random, LANES_MAX));
        start(&f);
        for (int step = 0; step < 250; step++) {
            push(&f);
            pop(&f);
            if (f.moves.is_announced && random_chance(&f.random, 20))
                moves_bases(&f.moves);
            if (random_chance(&f.random, 25))
                use_cold(&f);
            uint32_t what = random_below(&f.random, 100);
            if (f.writer == NULL && what < 25) {
                barrier(&f);
                moves_at_barrier(&f.moves, &f.random);
            } else if (f.writer != NULL && what < 40) {
                publish(&f);
            } else if (what > 95) {
                stop(&f);
                set_lanes(&f, 1 + random_below(&f.random, LANES_MAX));
                f.model = f.published;
                start(&f);
            }
        }
        scan_next = 0;
        assert_true(f.cold->scan(f.cold->self, COLD_ALL_SHARDS, check_row, &f.model.cold));
        f.model.before += 1000000;
        pop(&f);
        for (uint32_t i = 0; i < f.model.count; i++)
            assert_true(f.model.items[i].is_gone);
        stop(&f);
        arena_free(&f.arena);
        temporary_remove(f.path);
    }
}

/* Pushes BURST_ITEMS records with one time; while no checkpoint holds the database, memory stays
 * within BURST_BYTES. */
static void push_burst(struct fixture *f, int64_t time_us)
{
    for (int i = 0; i < BURST_ITEMS; i++) {
        push_item(f, time_us);
        for (uint32_t lane = 0; lane < f->lanes && f->writer == NULL; lane++)
            assert_true(time_queue_bytes(f->queues[lane]) < BURST_BYTES);
    }
}

/* A bucket with two times, each with many records: a checkpoint while the bucket fills; another when the
 * records of the first time are gone and more came late; then a kill after those of the second time are gone,
 * and a restore at another number of lanes. */
static void test_one_time(void **state)
{
    (void)state;
    static struct fixture f;
    enum { FIRST = 5000, SECOND = FIRST + 500 };
    for (uint32_t lanes = 1; lanes <= LANES_MAX; lanes++) {
        memset(&f, 0, sizeof(f));
        temporary_make(f.path);
        diag_list_init(&f.diags, &f.arena);
        f.random.state = lanes;
        set_lanes(&f, lanes);
        start(&f);
        push_burst(&f, SECOND);
        barrier(&f);
        push_burst(&f, FIRST);
        publish(&f);
        assert_true(f.model.before < FIRST);
        pop_until(&f, FIRST + 1, 20 * QUEUE_BUDGET); /* the barrier kept all of FIRST in memory */
        push_burst(&f, SECOND);                      /* into the open bucket */
        barrier(&f);
        publish(&f);
        pop_until(&f, SECOND + 1, BURST_BYTES);
        stop(&f);
        set_lanes(&f, lanes % LANES_MAX + 1);
        f.model = f.published;
        assert_int_equal(f.model.before, FIRST + 1);
        start(&f);
        push_burst(&f, SECOND);
        pop_until(&f, SECOND, BURST_BYTES);
        pop_until(&f, SECOND + 1, BURST_BYTES);
        pop_until(&f, 1000000, BURST_BYTES);
        for (uint32_t i = 0; i < f.model.count; i++)
            assert_true(f.model.items[i].is_gone);
        stop(&f);
        arena_free(&f.arena);
        temporary_remove(f.path);
    }
}

/* time_queue_count gives the numbers of records, wherever these are; exact ones, or after a
 * restore about right. */
static void check_counts(struct fixture *f, bool is_exact)
{
    for (int64_t before = 10000; before <= 30000; before += 10000) {
        uint64_t count = 0, all = 0, due = 0, left = 0;
        for (uint32_t lane = 0; lane < f->lanes; lane++) {
            uint64_t of_lane;
            count += time_queue_count(f->queues[lane], before - 1, &of_lane);
            all += of_lane;
        }
        for (uint32_t i = 0; i < f->model.count; i++) {
            due += !f->model.items[i].is_gone && f->model.items[i].time_us < before;
            left += !f->model.items[i].is_gone;
        }
        if (is_exact && (count != due || all != left))
            fail_msg("before %lld: %llu of %llu, not %llu of %llu", (long long)before,
                     (unsigned long long)count, (unsigned long long)all, (unsigned long long)due,
                     (unsigned long long)left);
        if (!is_exact)
            assert_true(count <= 2 * due + 100 && all <= 2 * left + 100 && 3 * all + 100 >= left);
    }
}

static void test_counts(void **state)
{
    (void)state;
    static struct fixture f;
    memset(&f, 0, sizeof(f));
    temporary_make(f.path);
    diag_list_init(&f.diags, &f.arena);
    f.random.state = 3;
    set_lanes(&f, 2);
    start(&f);
    for (int i = 0; i < 6000; i++)
        push_item(&f, random_below(&f.random, 30000));
    check_counts(&f, true);
    pop_until(&f, 4500, 20 * QUEUE_BUDGET);
    check_counts(&f, true);
    discard_until(&f, 11300); /* the open bucket, whole buckets, a part of one */
    check_counts(&f, true);
    barrier(&f);
    publish(&f);
    f.model = f.published;
    stop(&f);
    start(&f);
    check_counts(&f, false);
    pop_until(&f, 15000, 20 * QUEUE_BUDGET);
    discard_until(&f, TIME_MAX);
    check_counts(&f, true);
    pop_until(&f, TIME_MAX, 20 * QUEUE_BUDGET);
    stop(&f);
    arena_free(&f.arena);
    temporary_remove(f.path);
}

/* All groups of lane 0 go to lane 1, which has no records. While the base goes, records leave and a bucket opens whose turn has not
 * come: what left stays away, and what is left of that bucket goes along. */
static void test_base_beside_pops(void **state)
{
    (void)state;
    static struct fixture f;
    enum { FIRST = 3 * BUCKET, UNTIL = 5 * BUCKET + BUCKET / 2, LAST = 9 * BUCKET };
    memset(&f, 0, sizeof(f));
    temporary_make(f.path);
    diag_list_init(&f.diags, &f.arena);
    set_lanes(&f, 2);
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        f.placement.instance[group] = 0;
    for (uint32_t lane = 0; lane < 2; lane++)
        placement_groups(&f.placement, lane, &f.groups[lane]);
    start(&f);
    for (int64_t time_us = FIRST; time_us < LAST; time_us += 50)
        push_item(&f, time_us);
    barrier(&f);
    f.moves.next = f.placement;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        placement_move(&f.moves.next, group, 1);
    abandon(&f);
    struct byte_buffer bytes = {0};
    struct group_set coming;
    placement_groups(&f.moves.next, 1, &coming);
    int64_t next = INT64_MIN;
    for (int call = 0; next != INT64_MAX; call++) {
        assert_true(time_queue_give_base(f.queues[0], &coming, 1, &next, &bytes));
        if (call == 1)
            pop_until(&f, UNTIL, 20 * QUEUE_BUDGET);
    }
    moves_take(&f.moves, 1, &bytes, &coming);
    barrier(&f);
    moves_finish(&f.moves);
    abandon(&f);
    pop_until(&f, LAST, 20 * QUEUE_BUDGET);
    for (uint32_t i = 0; i < f.model.count; i++)
        assert_true(f.model.items[i].is_gone);
    stop(&f);
    arena_free(&f.arena);
    temporary_remove(f.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_life), cmocka_unit_test(test_one_time),
                                       cmocka_unit_test(test_counts),
                                       cmocka_unit_test(test_base_beside_pops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
