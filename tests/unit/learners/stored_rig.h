/* A learner's state for tests of learners/stored: tables of each layout, histories, numbers of items, dense parts; what
 * changes it at random; and what it has, as bytes. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_STORED_RIG_H
#define LEAT_TESTS_UNIT_LEARNERS_STORED_RIG_H

#include "fake_cold.h"
#include "items_rig.h"
#include "learners/histories/histories.h"
#include "learners/stored/stored.h"
#include "learners/tables/cold.h"
#include "learners/tables/inline.h"
#include "memory_checkpoint.h"

#ifdef __SANITIZE_THREAD__
enum { TABLES = 2, HAS_HISTORIES = 0 }; /* each table reserves addresses, which are scarce */
#else
enum { TABLES = 4, HAS_HISTORIES = 1 };
#endif
enum { ROW_KEYS = 3000, MOST = 100, PAYLOAD = 32, EXPIRE_S = 900, CELLS = 64 };
/* Of the first table predictions read the first and the third word of a payload, learning changes the third and
 * the fourth. */
enum { READ_FIRST = 8, READ_AT = 16, READ_BYTES = 8 };

/* A part that is saved whole, of which readers get the first `read` bytes. */
struct blob {
    unsigned char *data;
    size_t bytes, read;
};

/* A part that is a journal: numbers with the epoch of their last change. */
struct cells {
    uint32_t epoch, epochs[CELLS], values[CELLS];
};

struct world {
    struct table tables[TABLES];
    struct fake_cold *colds[TABLES]; /* NULL: no store */
    struct histories *histories;     /* NULL: none */
    struct items_numbers *numbers;
    struct blob dense, evaluation, nothing;
    struct cells cells;
    struct table *list[STORED_TABLES_MAX];
    uint32_t count; /* of the list */
    struct stored stored;
    uint64_t random;
    uint32_t now, step;
};

static inline void init_row(void *argument, uint64_t key, void *payload)
{
    (void)argument;
    uint64_t words[PAYLOAD / 8] = {num_mix(key)};
    memcpy(payload, words, sizeof(words));
}

/* --- Parts --- */

static inline void blob_save(void *of, uint32_t since, struct byte_buffer *out)
{
    const struct blob *b = of;
    (void)since;
    buffer_append(out, b->data, b->bytes);
}

static inline const char *blob_load(void *of, const void *data, size_t bytes)
{
    struct blob *b = of;
    if (bytes != b->bytes)
        return "another number of bytes";
    if (bytes > 0)
        memcpy(b->data, data, bytes);
    return NULL;
}

static inline void blob_save_reader(void *of, uint32_t since, struct byte_buffer *out)
{
    const struct blob *b = of;
    (void)since;
    buffer_append(out, b->data, b->read);
}

static inline const char *blob_load_reader(void *of, const void *data, size_t bytes)
{
    struct blob *b = of;
    if (bytes != b->read)
        return "another number of bytes";
    memcpy(b->data, data, bytes);
    return NULL;
}

static inline void cells_save(void *of, uint32_t since, struct byte_buffer *out)
{
    const struct cells *c = of;
    for (uint32_t i = 0; i < CELLS; i++)
        if (since == 0 || c->epochs[i] > since)
            buffer_append(out, (uint32_t[2]){i, c->values[i]}, 2 * sizeof(uint32_t));
}

static inline const char *cells_load(void *of, const void *data, size_t bytes)
{
    struct cells *c = of;
    uint32_t pair[2];
    for (size_t at = 0; at < bytes; at += sizeof(pair)) {
        if (bytes - at < sizeof(pair))
            return "half a cell";
        memcpy(pair, (const char *)data + at, sizeof(pair));
        if (pair[0] >= CELLS)
            return "no such cell";
        c->values[pair[0]] = pair[1];
    }
    return NULL;
}

static inline void cells_set_epoch(void *of, uint32_t epoch)
{
    struct cells *c = of;
    assert_true(epoch > c->epoch || epoch == 1);
    c->epoch = epoch;
}

/* --- The world --- */

static inline struct blob blob_new(size_t bytes, size_t read)
{
    struct blob b = {calloc(1, bytes + 1), bytes, read};
    assert_non_null(b.data);
    return b;
}

static inline void open_tables(struct world *w, bool is_cold)
{
    struct table_options o = {.payload_bytes = PAYLOAD, .align = 8, .seed = 3, .init = init_row};
    for (int t = 0; t < TABLES; t++) {
        struct table_options own = o;
        if (t == 0) {
            own.admit_after = 2, own.sketch_bytes = 1 << 15, own.shards = 4;
            own.read_first = READ_FIRST, own.read_at = READ_AT, own.read_bytes = READ_BYTES;
        }
        own.is_inline = t == 1;
        own.expire_after_us = t % 2 == 1 ? EXPIRE_S * US_PER_SECOND : 0;
        own.rows_max = t == 2 ? 700 : 0;
        own.shards = t == 3 ? 2 : own.shards;
        table_init(&w->tables[t], &own);
        w->list[w->count++] = &w->tables[t];
        if (!is_cold || t % 2 == 0)
            continue;
        w->colds[t] = fake_new(table_stored_bytes(&w->tables[t]));
        table_cold_init(&w->tables[t], &w->colds[t]->store);
    }
}

/* dense_bytes: of the part `dense`. */
static inline struct world *world_new(bool is_cold, size_t dense_bytes)
{
    struct world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    *w = (struct world){.random = 88172645463325252U, .now = 100000};
    open_tables(w, is_cold);
    struct histories_options h = {
        .history = 20, .sides = 1, .expire_after_us = 2 * EXPIRE_S * US_PER_SECOND, .seed = 5};
    if (HAS_HISTORIES)
        w->histories = histories_create(&h);
    for (size_t t = 0; w->histories != NULL && t < histories_tables(w->histories); t++)
        w->list[w->count++] = histories_table(w->histories, t);
    w->numbers = items_numbers_create(NUMBERS);
    w->dense = blob_new(dense_bytes, dense_bytes / 2);
    w->evaluation = blob_new(100, 0);
    w->nothing = blob_new(0, 0);
    const struct stored_part parts[] = {
        {.name = "evaluation", .of = &w->evaluation, .save = blob_save, .load = blob_load},
        stored_numbers("numbers", w->numbers),
        {.name = "nothing", .of = &w->nothing, .save = blob_save, .load = blob_load, .is_for_readers = true},
        {.name = "dense",
         .of = &w->dense,
         .save = blob_save,
         .load = blob_load,
         .is_for_readers = true,
         .save_reader = blob_save_reader,
         .load_reader = blob_load_reader},
        {.name = "cells_of_15_byt",
         .of = &w->cells,
         .save = cells_save,
         .load = cells_load,
         .is_journal = true,
         .is_for_readers = true,
         .set_epoch = cells_set_epoch},
    };
    stored_init(&w->stored, w->list, w->count, parts, ARRAY_COUNT(parts));
    return w;
}

static inline bool has_good_histories(const struct world *w)
{
    return w->histories == NULL || histories_check(w->histories) == NULL;
}

static inline void world_free(struct world *w)
{
    stored_settle(&w->stored, true);
    for (int t = 0; t < TABLES; t++)
        table_free(&w->tables[t]);
    histories_free(w->histories);
    items_numbers_free(w->numbers);
    free(w->dense.data);
    free(w->evaluation.data);
    free(w->nothing.data);
    free(w);
}

static inline uint64_t draw(struct world *w, uint64_t below)
{
    return (random_next(&w->random) >> 8) % below;
}

/* Occurrences of random keys, which change the rows' payloads. */
static inline void live_table(struct world *w, struct table *t)
{
    struct table_row *rows[MOST];
    uint64_t keys[MOST];
    uint32_t seen[MOST], steps[MOST];
    size_t n = 1 + draw(w, MOST);
    for (size_t i = 0; i < n; i++) {
        keys[i] = 1 + draw(w, ROW_KEYS) * draw(w, ROW_KEYS) / ROW_KEYS;
        seen[i] = w->now += draw(w, 8) == 0;
        steps[i] = ++w->step;
    }
    table_warm(t, keys, n, steps[0]);
    for (size_t at = 0, count = t->options.is_inline ? 1 : n; at < n; at += count) { /* inline rows move */
        table_resolve(t, keys + at, seen + at, steps + at, NULL, count, rows + at);
        for (size_t i = at; i < at + count; i++) {
            uint64_t value;
            if (rows[i] == NULL || rows[i]->key != keys[i])
                continue;
            char *payload = (char *)table_payload(rows[i]);
            memcpy(&value, payload + READ_AT, sizeof(value));
            value += num_mix(w->step + i);
            memcpy(payload + READ_AT, &value, sizeof(value));
            memcpy(payload + READ_AT + READ_BYTES, &value, sizeof(value));
        }
    }
}

static inline void live_items(struct world *w)
{
    for (uint64_t i = draw(w, 40); i > 0; i--) {
        uint64_t key = 1 + draw(w, KEYS);
        struct items_ref ref;
        if (draw(w, 2) == 0)
            assert_true(add(w->numbers, key, &ref) != ITEMS_TEXT_LONG);
        else
            (void)items_numbers_remove(w->numbers, key, &ref);
    }
}

static inline void live_histories(struct world *w)
{
    for (uint64_t i = draw(w, 60); i > 0 && w->histories != NULL; i--) {
        uint64_t key = 1 + draw(w, 300);
        struct history_entry entry = {
            .item = {(uint32_t)draw(w, NUMBERS), 0}, .seconds = w->now, .sides = {(uint32_t)draw(w, 500)}};
        w->step++;
        histories_append(w->histories, &key, &w->step, &entry, 1, NULL);
    }
}

/* Something changes in each table and part. */
static inline void live(struct world *w)
{
    for (int t = 0; t < TABLES; t++)
        live_table(w, &w->tables[t]);
    live_items(w);
    live_histories(w);
    for (int i = 0; i < 20; i++)
        w->dense.data[draw(w, w->dense.bytes)]++;
    w->evaluation.data[draw(w, w->evaluation.bytes)]++;
    uint64_t cell = draw(w, CELLS);
    w->cells.values[cell]++;
    w->cells.epochs[cell] = w->cells.epoch;
    int64_t time = (int64_t)w->now * US_PER_SECOND;
    for (int t = 0; t < TABLES && draw(w, 3) > 0; t++)
        table_set_watermark(&w->tables[t], time, TABLE_STEP_NONE);
    if (w->histories != NULL && draw(w, 3) == 0)
        histories_set_watermark(w->histories, time, TABLE_STEP_NONE);
    for (int t = 0; t < TABLES; t++)
        if (w->colds[t] != NULL && draw(w, 2) == 0)
            assert_true(table_evict(&w->tables[t], 1 + draw(w, 120), w->step, false));
}

/* --- What a world has --- */

struct dump {
    const struct table *table;
    bool is_read; /* of payloads and parts only what predictions read */
    struct byte_buffer *out;
};

static inline bool dump_row(void *argument, struct table_row *row)
{
    struct dump *d = argument;
    uint64_t head[3] = {row->key, row->count, row->seen};
    const char *payload = (const char *)table_payload(row);
    bool is_part = d->is_read && d->table->options.read_bytes > 0;
    buffer_append(d->out, head, sizeof(head));
    buffer_append(d->out, payload, is_part ? (size_t)READ_FIRST : d->table->options.payload_bytes);
    if (is_part)
        buffer_append(d->out, payload + READ_AT, READ_BYTES);
    return true;
}

/* Rows in memory and cold, counts, parts. */
static inline struct byte_buffer dump(struct world *w, bool is_read)
{
    struct byte_buffer out = {0};
    for (uint32_t t = 0; t < w->count; t++) {
        struct dump d = {w->list[t], is_read, &out};
        assert_true(table_visit(w->list[t], dump_row, &d));
        const struct sketch *sketch = &w->list[t]->sketch;
        if (sketch->counts != NULL)
            buffer_append(&out, sketch->counts, sketch_blocks(sketch) * SKETCH_BLOCK);
    }
    items_numbers_save(w->numbers, 0, &out);
    buffer_append(&out, w->dense.data, is_read ? w->dense.read : w->dense.bytes);
    buffer_append(&out, w->evaluation.data, is_read ? 0 : w->evaluation.bytes);
    buffer_append(&out, w->cells.values, sizeof(w->cells.values));
    return out;
}

static inline void assert_dumps_equal(struct byte_buffer a, struct byte_buffer b)
{
    assert_int_equal(a.length, b.length);
    assert_memory_equal(a.data, b.data, a.length);
    buffer_free(&a);
    buffer_free(&b);
}

/* The times of tables, which are in no record: the engine sets them by the watermark. */
struct times {
    int64_t watermark_us[STORED_TABLES_MAX], halved_at_us[STORED_TABLES_MAX];
    uint32_t expired_before[STORED_TABLES_MAX];
};

static inline struct times times_of(const struct world *w)
{
    struct times times = {0};
    for (uint32_t t = 0; t < w->count; t++) {
        times.watermark_us[t] = w->list[t]->watermark_us;
        times.halved_at_us[t] = w->list[t]->halved_at_us;
        times.expired_before[t] = w->list[t]->expired_before;
    }
    return times;
}

static inline void set_times(struct world *w, const struct times *times)
{
    for (uint32_t t = 0; t < w->count; t++) {
        w->list[t]->watermark_us = times->watermark_us[t];
        w->list[t]->halved_at_us = times->halved_at_us[t];
        w->list[t]->expired_before = times->expired_before[t];
    }
}

/* --- Checkpoints in memory --- */

static inline void writer_free(struct snapshot_writer *w)
{
    for (uint32_t i = 0; i < w->count; i++)
        buffer_free(&w->records[i]);
    free(w->records);
    *w = (struct snapshot_writer){0};
}

/* Restores a chain: a base, and deltas. */
static inline bool restore(struct world *w, const struct snapshot_writer *chain, uint32_t count)
{
    struct operator_context context = {0};
    struct snapshot_reader reader = {0};
    for (uint32_t i = 0; i < count; i++)
        reader.parts[i] = &chain[i];
    bool is_ok = stored_restore(&w->stored, &context, &reader);
    assert_int_equal(is_ok, !reader.was_corrupt);
    return is_ok;
}

#endif
