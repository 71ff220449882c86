/* Cuts of a table: a copy that starts empty has, after each cut, what the table has, in memory and cold; snapshots
 * that begin and end between cuts show the table as at their barriers. */
#include "fake_cold.h"
#include "learners/tables/cold.h"
#include "learners/tables/cut.h"
#include "learners/tables/inline.h"

#include "core/mem.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { KEYS = 3000, ROUNDS = 400, MOST = 200, PAYLOAD = 32, EXPIRE_S = 900 };

static uint64_t seed = 7;
static uint64_t draw(uint64_t below)
{
    return num_mix(++seed) % below;
}

static void init_row(void *argument, uint64_t key, void *payload)
{
    (void)argument;
    uint64_t first[PAYLOAD / 8] = {num_mix(key), 0};
    memcpy(payload, first, sizeof(first));
}

/* Predictions read the first and the third word of a payload, learning changes the third and the fourth. */
enum { READ_FIRST = 8, READ_AT = 16, READ_BYTES = 8 };

/* --- What a table has: live rows without epochs, by rising key --- */

struct dump {
    const struct table *table;
    bool is_read; /* of payloads only what predictions read */
    struct byte_buffer rows;
};

static bool dump_row(void *argument, struct table_row *row)
{
    struct dump *d = argument;
    uint64_t head[3] = {row->key, row->count, row->seen};
    buffer_append(&d->rows, head, sizeof(head));
    const char *payload = (const char *)table_payload(row);
    bool has_state = d->is_read && d->table->options.read_bytes > 0;
    buffer_append(&d->rows, payload, has_state ? (size_t)READ_FIRST : d->table->options.payload_bytes);
    if (has_state)
        buffer_append(&d->rows, payload + READ_AT, READ_BYTES);
    return true;
}

static struct byte_buffer dump(const struct table *t, bool is_read)
{
    struct dump d = {.table = t, .is_read = is_read};
    assert_true(table_visit(t, dump_row, &d));
    return d.rows;
}

static void assert_dumps_equal(struct byte_buffer a, struct byte_buffer b)
{
    assert_int_equal(a.length, b.length);
    if (a.length > 0)
        assert_memory_equal(a.data, b.data, a.length);
    buffer_free(&a);
    buffer_free(&b);
}

static void set_times(struct table *to, const struct table *from)
{
    to->watermark_us = from->watermark_us;
    to->halved_at_us = from->halved_at_us;
    to->expired_before = from->expired_before;
}

/* --- A table that goes on --- */

struct world {
    struct table table, follower, restored;
    struct table_snapshot *snapshot;
    const struct table_keys *removed;
    struct byte_buffer expected; /* the table at the snapshot's barrier */
    uint32_t epoch, published;   /* epoch: in progress */
    uint32_t step, now;
};

/* Occurrences of random keys, which change the rows' payloads; some only look up. */
static void learn(struct world *w)
{
    struct table_row *rows[MOST];
    uint64_t keys[MOST];
    uint32_t seen[MOST], steps[MOST];
    uint8_t learns[MOST];
    size_t n = 1 + draw(MOST);
    for (size_t i = 0; i < n; i++) {
        uint64_t a = draw(KEYS), b = draw(KEYS);
        keys[i] = 1 + a * b / KEYS;
        seen[i] = w->now += draw(4) == 0;
        steps[i] = ++w->step;
        learns[i] = draw(8) > 0;
    }
    bool is_inline = w->table.options.is_inline;
    for (size_t at = 0, count = is_inline ? 1 : n; at < n; at += count) { /* inline rows move */
        table_resolve(&w->table, keys + at, seen + at, steps + at, learns + at, count, rows + at);
        for (size_t i = at; i < at + count; i++) {
            uint64_t value;
            if (rows[i] == NULL || !learns[i] || rows[i]->key != keys[i])
                continue;
            memcpy(&value, (char *)table_payload(rows[i]) + READ_AT, sizeof(value));
            value += num_mix(w->step + i);
            memcpy((char *)table_payload(rows[i]) + READ_AT, &value, sizeof(value));
            memcpy((char *)table_payload(rows[i]) + READ_AT + READ_BYTES, &value, sizeof(value));
        }
    }
    if (draw(3) == 0)
        table_set_watermark(&w->table, (int64_t)w->now * US_PER_SECOND, TABLE_STEP_NONE);
    if (w->table.cold != NULL && w->snapshot == NULL && draw(3) == 0)
        assert_true(table_evict(&w->table, 1 + draw(80), w->step, false));
}

static void begin_snapshot(struct world *w)
{
    w->expected = dump(&w->table, false);
    w->snapshot = table_snapshot_begin(&w->table, w->published, w->epoch, &w->removed);
    set_times(&w->restored, &w->table);
    w->published = w->epoch++;
}

static bool restore_rows(void *argument, const void *items, size_t count)
{
    return table_restore_items(argument, TABLE_ITEM_ROW, items, count);
}

static void end_snapshot(struct world *w)
{
    table_begin(&w->restored);
    assert_true(table_restore_items(&w->restored, TABLE_ITEM_REMOVED, w->removed->items, w->removed->count));
    assert_true(table_snapshot_write(w->snapshot, restore_rows, &w->restored));
    assert_dumps_equal(dump(&w->restored, false), w->expected);
    w->expected = (struct byte_buffer){0};
    table_snapshot_end(&w->table, true);
    w->snapshot = NULL;
}

static size_t most_bytes;

static void cut(struct world *w)
{
    struct byte_buffer bytes = {0};
    size_t expected = table_cut_bytes(&w->table);
    table_cut(&w->table, w->epoch++, &bytes);
    assert_true(bytes.length <= expected);
    assert_int_equal(w->table.epoch, w->epoch);
    for (uint64_t times = draw(6) == 0 ? 2 : 1; times > 0; times--)
        assert_true(table_take_cut(&w->follower, bytes.data, bytes.length, TABLE_STEP_NONE));
    set_times(&w->follower, &w->table);
    assert_dumps_equal(dump(&w->table, true), dump(&w->follower, true));
    const struct sketch *a = &w->table.sketch, *b = &w->follower.sketch;
    if (a->counts != NULL)
        assert_memory_equal(a->counts, b->counts, sketch_blocks(a) * SKETCH_BLOCK);
    for (uint64_t i = 0; i < w->table.buckets; i++)
        assert_int_equal(w->table.bucket_counts[i], w->follower.bucket_counts[i]);
    if (w->table.options.rows_max > 0) /* expired rows, too, count in a bucket */
        assert_int_equal(w->table.stats.rows, w->follower.stats.rows);
    most_bytes = MAX(most_bytes, bytes.length);
    buffer_free(&bytes);
}

static void check(const struct table_options *o, bool is_cold)
{
    static struct world w;
    w = (struct world){.epoch = 1, .now = 100000};
    table_init(&w.table, o);
    table_init(&w.follower, o);
    table_init(&w.restored, o);
    if (is_cold)
        table_cold_init(&w.table, &fake_new(table_stored_bytes(&w.table))->store);
    if (!is_cold) /* the follower has no store */
        learn(&w);
    table_cut_note(&w.table, true, w.epoch++);
    /* The follower starts with the rows there are. */
    begin_snapshot(&w);
    assert_true(table_snapshot_write(w.snapshot, restore_rows, &w.follower));
    table_snapshot_end(&w.table, false);
    buffer_free(&w.expected);
    w.snapshot = NULL, w.published = 0;
    table_restored(&w.follower, 2);
    for (size_t i = 0; i < sketch_blocks(&w.table.sketch) && w.table.sketch.counts != NULL; i++)
        w.table.sketch.block_epochs[i] = w.epoch; /* the first cut has the sketch */
    w.table.sketch.cells_count = w.table.sketch.cells_max;
    for (int round = 0; round < ROUNDS; round++) {
        learn(&w);
        if (!is_cold && draw(3) == 0)
            w.snapshot == NULL ? begin_snapshot(&w) : end_snapshot(&w);
        if (draw(2) == 0)
            cut(&w);
    }
    if (w.snapshot != NULL)
        end_snapshot(&w);
    cut(&w);
    assert_int_equal(w.follower.removed.count, 0);
    table_free(&w.table);
    table_free(&w.follower);
    table_free(&w.restored);
}

static struct table_options options(bool is_inline)
{
    return (struct table_options){
        .payload_bytes = PAYLOAD, .align = 8, .is_inline = is_inline, .seed = 3, .init = init_row};
}

static void test_cuts(void **state)
{
    (void)state;
    for (int kind = 0; kind < 32; kind++) {
        struct table_options o = options(kind & 1);
        if (kind & 2)
            o.admit_after = 3, o.sketch_bytes = 1 << 16;
        if (kind & 4)
            o.expire_after_us = EXPIRE_S * US_PER_SECOND;
        if (kind & 8)
            o.rows_max = 700;
        if (kind & 16)
            o.read_first = READ_FIRST, o.read_at = READ_AT, o.read_bytes = READ_BYTES;
        check(&o, false);
    }
    assert_true(most_bytes > 1 << 14);
}

static void test_cold(void **state)
{
    (void)state;
    for (int kind = 0; kind < 16; kind++) {
        struct table_options o = options(kind & 1);
        if (kind & 2)
            o.admit_after = 2, o.sketch_bytes = 1 << 14;
        if (kind & 4)
            o.expire_after_us = EXPIRE_S * US_PER_SECOND;
        if (kind & 8)
            o.read_first = READ_FIRST, o.read_at = READ_AT, o.read_bytes = READ_BYTES;
        check(&o, true);
    }
}

/* Rows that expire in the cold store leave a follower that has them in memory. */
static void test_sweep(void **state)
{
    struct table t, follower;
    struct table_options o = options(false);
    struct byte_buffer bytes = {0};
    struct table_row *row;
    (void)state;
    o.expire_after_us = EXPIRE_S * US_PER_SECOND;
    table_init(&t, &o);
    table_init(&follower, &o);
    table_cold_init(&t, &fake_new(table_stored_bytes(&t))->store);
    table_cut_note(&t, true, 1);
    for (uint64_t key = 1; key <= 50; key++)
        table_resolve(&t, &key, &(uint32_t){1000}, &(uint32_t){(uint32_t)key}, NULL, 1, &row);
    assert_true(table_evict(&t, 50, 99, false) && t.stats.rows == 0);
    table_cut(&t, 2, &bytes);
    assert_true(table_take_cut(&follower, bytes.data, bytes.length, TABLE_STEP_NONE));
    assert_int_equal(follower.stats.rows, 50);
    table_set_watermark(&t, INT64_C(5000) * US_PER_SECOND, TABLE_STEP_NONE);
    set_times(&follower, &t);
    table_slot_row(&follower, table_slot_of(&follower, 7, table_hash(&follower, 7)))->step = 100;
    buffer_clear(&bytes);
    table_cut(&t, 3, &bytes);
    assert_true(table_take_cut(&follower, bytes.data, bytes.length, 100));
    assert_int_equal(follower.stats.rows, 1); /* the row of the step in progress stays */
    assert_true(table_take_cut(&follower, bytes.data, bytes.length, TABLE_STEP_NONE));
    assert_int_equal(follower.stats.rows, 0);
    buffer_free(&bytes);
    table_free(&t);
    table_free(&follower);
}

/* Keys that come once push each other out of a table of rows_max: a cut has each row once, however many came. */
static void test_churn(void **state)
{
    enum { ROWS = 700, CAME = 20 * ROWS };
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct table t, follower;
        struct table_options o = options(kind == 1);
        struct byte_buffer bytes = {0};
        struct table_row *row;
        o.rows_max = ROWS;
        table_init(&t, &o);
        table_init(&follower, &o);
        table_cut_note(&t, true, 1);
        for (uint64_t key = 1; key <= CAME; key++)
            table_resolve(&t, &(uint64_t){1 + key % (CAME / 2)}, &(uint32_t){(uint32_t)key},
                          &(uint32_t){(uint32_t)key}, NULL, 1, &row);
        assert_in_range(t.cut->removed.count, CAME / 2, CAME);
        size_t expected = table_cut_bytes(&t),
               most = 100 + t.cut->removed.count * sizeof(uint64_t) + t.stats.rows * (16 + PAYLOAD);
        assert_in_range(expected, 1, most);
        table_cut(&t, 2, &bytes);
        assert_in_range(bytes.length, 1, expected);
        assert_true(table_take_cut(&follower, bytes.data, bytes.length, TABLE_STEP_NONE));
        assert_dumps_equal(dump(&t, true), dump(&follower, true));
        buffer_free(&bytes);
        table_free(&t);
        table_free(&follower);
    }
}

/* --- Hostile bytes --- */

enum { HEAD_WORDS = 7 }; /* magic, bytes of a row, rows, then the counts of keys, rows, blocks and cells */

static struct byte_buffer cut_of(struct table *t, uint32_t *epoch, const uint64_t counts[4])
{
    struct byte_buffer bytes = {0};
    table_cut_note(t, true, (*epoch)++);
    table_cut(t, (*epoch)++, &bytes);
    table_cut_note(t, false, 0);
    assert_int_equal(bytes.length, HEAD_WORDS * sizeof(uint64_t));
    memcpy(bytes.data + 24, counts, 32);
    return bytes;
}

static void append_row(struct byte_buffer *out, uint64_t key)
{
    unsigned char row[16 + PAYLOAD] = {0};
    memcpy(row, &key, sizeof(key));
    buffer_append(out, row, sizeof(row));
}

static void refused(struct table *t, struct byte_buffer *bytes)
{
    assert_false(table_take_cut(t, bytes->data, bytes->length, TABLE_STEP_NONE));
    buffer_free(bytes);
}

static void test_refused(void **state)
{
    struct table t;
    struct table_options o = options(false);
    uint32_t epoch = 1;
    struct sketch_block block = {.number = 0};
    (void)state;
    o.admit_after = 2, o.sketch_bytes = 1 << 14;
    table_init(&t, &o);
    block.number = sketch_blocks(&t.sketch);
    struct byte_buffer b = cut_of(&t, &epoch, (uint64_t[4]){0, 0, 1});
    buffer_append(&b, &block, sizeof(block));
    refused(&t, &b); /* no block of that number */
    b = cut_of(&t, &epoch, (uint64_t[4]){0, 0, 0, 1});
    buffer_append(&b, &(uint64_t){block.number * SKETCH_BLOCK << 8}, sizeof(uint64_t));
    refused(&t, &b); /* no such cell */
    b = cut_of(&t, &epoch, (uint64_t[4]){0, 1, 0});
    append_row(&b, 0);
    refused(&t, &b); /* no key */
    b = cut_of(&t, &epoch, (uint64_t[4]){1, 0, 0});
    buffer_append(&b, &(uint64_t){0}, sizeof(uint64_t));
    refused(&t, &b);
    b = cut_of(&t, &epoch, (uint64_t[4]){UINT64_MAX / 4, 0, 0});
    refused(&t, &b);
    b = cut_of(&t, &epoch, (uint64_t[4]){0, 2, 0});
    append_row(&b, 5);
    refused(&t, &b); /* fewer rows than it says */
    b = cut_of(&t, &epoch, (uint64_t[4]){0, 0, 0});
    append_row(&b, 5);
    refused(&t, &b); /* bytes behind its end */
    b = cut_of(&t, &epoch, (uint64_t[4]){0, 0, 0});
    memset(b.data + 8, 1, 1);
    refused(&t, &b); /* rows of other tables */
    b = cut_of(&t, &epoch, (uint64_t[4]){0, 0, 0});
    b.length--;
    refused(&t, &b);
    table_free(&t);
}

/* Keys chosen by their hashes, which would double the directory for each page: memory stays bounded. */
static void test_chosen_keys(void **state)
{
    enum { COUNT = 150, BITS = 20 };
    struct table t;
    struct table_options o = options(false);
    uint32_t epoch = 1;
    (void)state;
    table_init(&t, &o);
    struct byte_buffer b = cut_of(&t, &epoch, (uint64_t[4]){0, COUNT, 0});
    for (uint64_t key = 1, found = 0; found < COUNT; key++)
        if (table_hash(&t, key) >> (64 - BITS) == 5) {
            append_row(&b, key);
            found++;
        }
    refused(&t, &b);
    assert_true(t.depth <= 13);
    table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),  cmocka_unit_test(test_cold),    cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_churn), cmocka_unit_test(test_refused), cmocka_unit_test(test_chosen_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
