/*
 * Stored tables of models on a device and on the CPU: the same batches to the tables of a model
 * (learners/model/model.c makes them) and to a device_table with the layout of their payloads give the same
 * stored rows, blocks of sketches and times, byte for byte; each side continues from what the other one
 * stored. A plain program that prints TAP lines; without a device it is skipped.
 */
#include "../open_device.h"

#include "core/base.h"
#include "kernels/num.h"
#include "learners/device/table.h"
#include "learners/model/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 300, KEYS = 900, FIELDS = 3, SET = 2, ROW_MOST = 4096 };

static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
    return num_mix(++random_state) % below;
}

/* --- A model, and a set of tables on the device for the first or the last of its fields --- */

struct layout {
    const char *name;
    uint32_t dim;
    enum opt_kind linear, embedding;
    bool is_double;
    bool is_linear_field; /* the set has the fields without vectors */
    uint64_t rows_max;
};

struct twins {
    struct model *model;
    struct model_options options;
    struct device_table *device;
    uint32_t first, fields; /* the model's fields that the set has */
    uint32_t d;
    size_t linear_bytes;
    uint64_t *keys;
    uint32_t *tables, *starts, *order, *seen, *count;
    void **rows;
    unsigned char *row; /* pinned */
    void **rows_here;   /* pinned */
    uint32_t step, epoch;
};

static void *memory(bool is_pinned, size_t bytes)
{
    struct gpu_error error;
    void *m = is_pinned ? api->alloc_pinned(gpu, bytes, &error) : api->alloc(gpu, bytes, &error);
    must(m != NULL, &error, "model_new");
    return m;
}

/* Makes the device's tables as a learner's model would. */
static void device_init(struct twins *t, const struct layout *l)
{
    struct gpu_table_options tables[FIELDS];
    struct device_table_options o = {.api = api, .gpu = gpu, .stream = stream, .ahead = 1};
    struct gpu_error error;
    const struct model *m = t->model;
    t->first = l->is_linear_field ? SET : 0;
    t->fields = l->is_linear_field ? FIELDS - SET : SET;
    t->d = l->is_linear_field ? 0 : m->vector_floats;
    t->linear_bytes = l->is_double ? LINEAR_BYTES : (1 + m->linear_states) * sizeof(float);
    o.tables = (struct gpu_tables_options){.tables = t->fields,
                                           .table = tables,
                                           .d = t->d,
                                           .optimizer = l->embedding,
                                           .accumulator = t->options.embedding.accumulator,
                                           .batch_max = PLACES,
                                           .memory_bytes = (uint64_t)1 << 28,
                                           .extra_floats = 4};
    memcpy(o.tables.extra, m->absent, t->linear_bytes);
    for (uint32_t i = 0; i < t->fields; i++) {
        const struct table_options *of = &m->tables[t->first + i].options;
        float own = t->options.field_init[t->first + i];
        tables[i] = (struct gpu_table_options){.admit_after = of->admit_after,
                                               .sketch_bytes = of->sketch_bytes,
                                               .rows_max = of->rows_max,
                                               .shards = of->shards,
                                               .seed = of->seed,
                                               .init_seed = num_mix(t->options.seed + t->first + i + 1),
                                               .init_bound = own > 0.0F ? own : t->options.init_bound};
    }
    o.expire_after_us = t->options.expire_after_us;
    o.stored = (struct device_stored){.payload_bytes = m->tables[t->first].options.payload_bytes,
                                      .linear_bytes = t->linear_bytes,
                                      .vector_at = l->is_linear_field ? 0 : m->vector_at,
                                      .state_at = l->is_linear_field ? 0 : m->state_at};
    t->device = device_table_new(&o, &error);
    must(t->device != NULL, &error, "device_table_new");
}

static void twins_init(struct twins *t, const struct layout *l)
{
    *t = (struct twins){.epoch = 1};
    t->options = (struct model_options){.interaction = &interaction_fm,
                                        .fields = FIELDS,
                                        .vectors = SET,
                                        .dim = l->dim,
                                        .init_bound = 0.125F,
                                        .field_init = {0, 0.5F},
                                        .linear = {.kind = l->linear, .accumulator = 0.25F},
                                        .linear_is_double = l->is_double,
                                        .embedding = {.kind = l->embedding, .accumulator = 0.75F},
                                        .batch = PLACES,
                                        .class_weights = {1, 1},
                                        .negatives_kept = 1,
                                        .seed = 1234,
                                        .admit_after = 2,
                                        .sketch_bytes = 1 << 21,
                                        .expire_after_us = 120 * US_PER_SECOND,
                                        .rows_max = l->rows_max};
    t->model = model_new(&t->options, kernels_variant(KERNELS_SCALAR));
    device_init(t, l);
    t->keys = memory(false, PLACES * sizeof(*t->keys));
    t->tables = memory(false, PLACES * 4);
    t->starts = memory(false, (PLACES + 1) * 4);
    t->order = memory(false, PLACES * 4);
    t->seen = memory(false, PLACES * 4);
    t->count = memory(false, 4);
    t->rows = memory(false, PLACES * sizeof(void *));
    t->rows_here = memory(true, PLACES * sizeof(void *));
    t->row = memory(true, ROW_MOST);
}

static void twins_free(struct twins *t)
{
    void *const device[] = {t->keys, t->tables, t->starts, t->order, t->seen, t->count, t->rows};
    model_free(t->model);
    device_table_free(t->device);
    for (size_t i = 0; i < ARRAY_COUNT(device); i++)
        api->free(gpu, device[i]);
    api->free_pinned(gpu, t->rows_here);
    api->free_pinned(gpu, t->row);
}

/* --- Batches --- */

struct places {
    uint64_t keys[PLACES]; /* of an occurrence */
    uint32_t of[PLACES];   /* its table */
    uint32_t seen[PLACES];
    uint64_t ids[PLACES]; /* of a dense index */
    uint32_t tables[PLACES];
    uint32_t starts[PLACES + 1], order[PLACES], count;
};

static void draw_places(struct places *p, uint32_t fields, uint32_t now)
{
    uint32_t number[PLACES], at = 0;
    p->count = 0;
    for (uint32_t i = 0; i < PLACES; i++) {
        uint32_t u = 0;
        p->of[i] = i * fields / PLACES;
        p->keys[i] = 1 + draw(1 + draw(KEYS));
        p->seen[i] = now - (uint32_t)draw(20);
        while (u < p->count && (p->ids[u] != p->keys[i] || p->tables[u] != p->of[i]))
            u++;
        p->count += u == p->count;
        p->ids[u] = p->keys[i];
        p->tables[u] = p->of[i];
        number[i] = u;
    }
    for (uint32_t u = 0; u < p->count; u++) {
        p->starts[u] = at;
        for (uint32_t i = 0; i < PLACES; i++)
            if (number[i] == u)
                p->order[at++] = i;
    }
    p->starts[p->count] = at;
}

/* A step of learning: changes the bits of `part`; the new ones follow from the old ones and the key. */
static void learn(void *part, size_t bytes, uint64_t key)
{
    for (size_t i = 0; i < bytes / 4; i++) {
        uint32_t bits;
        memcpy(&bits, (char *)part + 4 * i, 4);
        bits ^= (uint32_t)num_mix(key + bits + i) & 0x007fffff;
        memcpy((char *)part + 4 * i, &bits, 4);
    }
}

static void batch_here(struct twins *t, const struct places *p)
{
    struct table_row *found[PLACES];
    uint32_t counts[PLACES], seen[PLACES] = {0};
    uint8_t is_known[PLACES];
    const struct model *m = t->model;
    size_t state = t->d == 0 ? 0 : opt_state_floats(m->options.embedding.kind, t->d);
    for (uint32_t u = 0; u < p->count; u++) {
        counts[u] = p->starts[u + 1] - p->starts[u];
        for (uint32_t i = p->starts[u]; i < p->starts[u + 1]; i++)
            seen[u] = MAX(seen[u], p->seen[p->order[i]]);
    }
    for (uint32_t from = 0, to; from < p->count; from = to) {
        for (to = from; to < p->count && p->tables[to] == p->tables[from];)
            to++;
        struct table_occurrences in = {
            .keys = p->ids + from, .seen = seen + from, .counts = counts + from, .n = to - from};
        table_resolve_batch(&m->tables[t->first + p->tables[from]], &in, t->step, found + from, is_known);
    }
    for (uint32_t u = 0; u < p->count; u++) {
        struct table_row *row = found[u];
        if (row == NULL)
            continue;
        char *payload = (char *)table_payload(row);
        learn(payload, t->linear_bytes, row->key);
        if (t->d == 0)
            continue;
        learn(payload + m->vector_at, t->d * sizeof(float), row->key);
        learn(payload + m->state_at, state * sizeof(float), row->key);
    }
}

static void batch_there(struct twins *t, const struct places *p)
{
    struct gpu_error error;
    struct gpu_batch batch = {.count = t->count,
                              .keys = t->keys,
                              .tables = t->tables,
                              .starts = t->starts,
                              .order = t->order,
                              .seen = t->seen,
                              .n = PLACES,
                              .step = t->step,
                              .epoch = t->epoch};
    size_t vector = t->d * sizeof(float);
    size_t state = t->d == 0 ? 0 : opt_state_floats(t->model->options.embedding.kind, t->d) * sizeof(float);
    size_t extra_at = vector + (state + 15) / 16 * 16, bytes = extra_at + 16;
    leat_assert(bytes <= ROW_MOST);
    api->copy(stream, t->keys, p->ids, p->count * sizeof(*p->ids));
    api->copy(stream, t->tables, p->tables, p->count * 4);
    api->copy(stream, t->starts, p->starts, (p->count + 1) * 4);
    api->copy(stream, t->order, p->order, sizeof(p->order));
    api->copy(stream, t->seen, p->seen, sizeof(p->seen));
    api->copy(stream, t->count, &p->count, 4);
    must(device_table_step(t->device, &batch, t->rows, &error), &error, "device_table_step");
    api->copy(stream, t->rows_here, t->rows, p->count * sizeof(void *));
    must(api->wait(stream, &error), &error, "wait");
    for (uint32_t u = 0; u < p->count; u++) {
        if (t->rows_here[u] == NULL)
            continue;
        api->copy(stream, t->row, t->rows_here[u], bytes);
        must(api->wait(stream, &error), &error, "wait");
        learn(t->row + extra_at, t->linear_bytes, p->ids[u]);
        learn(t->row, vector, p->ids[u]);
        learn(t->row + vector, state, p->ids[u]);
        api->copy(stream, t->rows_here[u], t->row, bytes);
        must(api->wait(stream, &error), &error, "wait");
    }
}

static void batches(struct twins *t, int count, uint32_t *now)
{
    static struct places p;
    for (int i = 0; i < count; i++) {
        draw_places(&p, t->fields, *now);
        t->step++;
        batch_here(t, &p);
        batch_there(t, &p);
        *now += (uint32_t)draw(25);
        if (draw(2) == 0)
            continue;
        for (uint32_t f = 0; f < t->fields; f++)
            table_set_watermark(&t->model->tables[t->first + f], *now * US_PER_SECOND, TABLE_STEP_NONE);
        device_table_set_watermark(t->device, *now * US_PER_SECOND, t->epoch);
    }
}

/* --- What is stored --- */

/* Stored items of one table; each begins with a key or a block number. */
struct items {
    unsigned char *data;
    size_t bytes, count, room;
};
struct stored {
    struct items rows, blocks;
    struct table_keys removed;
    struct device_table_times times;
};

static void add_items(struct items *to, const void *items, size_t count)
{
    if (to->count + count > to->room) {
        to->room = 2 * (to->count + count);
        to->data = realloc(to->data, to->room * to->bytes);
    }
    memcpy(to->data + to->count * to->bytes, items, count * to->bytes);
    to->count += count;
}

static bool add_here(void *argument, const void *items, size_t count)
{
    add_items(argument, items, count);
    return true;
}

static bool add_rows(void *argument, uint32_t table, const void *items, size_t count)
{
    add_items(&((struct stored *)argument)[table].rows, items, count);
    return true;
}

static bool add_blocks(void *argument, uint32_t table, const void *items, size_t count)
{
    add_items(&((struct stored *)argument)[table].blocks, items, count);
    return true;
}

static int by_first(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, 8);
    memcpy(&y, b, 8);
    return (x > y) - (x < y);
}

/* Removes expired rows, which may or may not be stored, and sorts the others. */
static void sort_rows(struct stored *s)
{
    struct items *rows = &s->rows;
    size_t count = 0;
    for (size_t i = 0; i < rows->count; i++) {
        uint32_t seen;
        memcpy(&seen, rows->data + i * rows->bytes + 12, 4);
        if (seen >= s->times.expired_before)
            memmove(rows->data + count++ * rows->bytes, rows->data + i * rows->bytes, rows->bytes);
    }
    rows->count = count;
    if (count > 0)
        qsort(rows->data, count, rows->bytes, by_first);
}

static void copy_keys(struct table_keys *to, const struct table_keys *from)
{
    to->count = from->count;
    to->items = malloc((from->count + 1) * sizeof(*to->items));
    if (from->count > 0)
        memcpy(to->items, from->items, from->count * sizeof(*to->items));
}

static void store_here(struct twins *t, uint32_t since, struct stored *out)
{
    for (uint32_t f = 0; f < t->fields; f++) {
        struct table *table = &t->model->tables[t->first + f];
        const struct table_keys *removed;
        out[f] = (struct stored){.rows.bytes = table_stored_bytes(table),
                                 .blocks.bytes = sizeof(struct sketch_block)};
        out[f].times =
            (struct device_table_times){table->halved_at_us, table->watermark_us, table->expired_before};
        struct table_snapshot *s = table_snapshot_begin(table, since, t->epoch, &removed);
        leat_assert(table_snapshot_write(s, add_here, &out[f].rows));
        leat_assert(table_snapshot_write_counts(s, add_here, &out[f].blocks));
        copy_keys(&out[f].removed, removed);
        table_snapshot_end(table, true);
        sort_rows(&out[f]);
        if (out[f].blocks.count > 0)
            qsort(out[f].blocks.data, out[f].blocks.count, out[f].blocks.bytes, by_first);
    }
}

static void store_there(struct twins *t, uint32_t since, struct stored *out)
{
    struct gpu_error error;
    for (uint32_t f = 0; f < t->fields; f++) {
        out[f] = (struct stored){.rows.bytes = device_table_stored_bytes(t->device),
                                 .blocks.bytes = sizeof(struct sketch_block)};
        out[f].times = device_table_times(t->device, f);
    }
    must(device_table_snapshot_begin(t->device, since, t->epoch, &error), &error,
         "device_table_snapshot_begin");
    must(device_table_snapshot_write(t->device, add_rows, add_blocks, out, &error), &error,
         "device_table_snapshot_write");
    for (uint32_t f = 0; f < t->fields; f++) {
        copy_keys(&out[f].removed, device_table_removed(t->device, f));
        sort_rows(&out[f]);
    }
    device_table_snapshot_end(t->device, true);
}

static void stored_free(struct stored *s, uint32_t fields)
{
    for (uint32_t f = 0; f < fields; f++) {
        free(s[f].rows.data);
        free(s[f].blocks.data);
        free(s[f].removed.items);
    }
}

static bool is_same_items(const struct items *a, const struct items *b, const char *what)
{
    bool is_same = a->bytes == b->bytes && a->count == b->count &&
                   (a->count == 0 || memcmp(a->data, b->data, a->count * a->bytes) == 0);
    if (!is_same)
        printf("# %s: %zu of %zu bytes on the CPU, %zu of %zu on the device\n", what, a->count, a->bytes,
               b->count, b->bytes);
    for (size_t i = 0; !is_same && i < MIN(a->count, b->count) * MIN(a->bytes, b->bytes); i++)
        if (a->data[i] != b->data[i]) {
            printf("# item %zu, byte %zu\n", i / a->bytes, i % a->bytes);
            break;
        }
    return is_same;
}

/* Compares all but the removed keys: when expired rows are removed differs between the sides. */
static bool is_same_stored(const struct stored *a, const struct stored *b, uint32_t fields)
{
    bool is_same = true;
    for (uint32_t f = 0; f < fields; f++) {
        is_same = is_same && is_same_items(&a[f].rows, &b[f].rows, "rows") &&
                  is_same_items(&a[f].blocks, &b[f].blocks, "blocks") &&
                  a[f].times.halved_at_us == b[f].times.halved_at_us &&
                  a[f].times.watermark_us == b[f].times.watermark_us &&
                  a[f].times.expired_before == b[f].times.expired_before;
    }
    return is_same;
}

/* --- Restoring what the other side stored --- */

static void restore_here(struct twins *t, const struct stored *s)
{
    for (uint32_t f = 0; f < t->fields; f++) {
        struct table *table = &t->model->tables[t->first + f];
        for (size_t i = 0; i < s[f].removed.count; i++)
            table_restore_remove(table, s[f].removed.items[i]);
        for (size_t i = 0; i < s[f].rows.count; i++)
            table_restore_row(table, s[f].rows.data + i * s[f].rows.bytes);
        for (size_t i = 0; i < s[f].blocks.count; i++) {
            struct sketch_block block;
            memcpy(&block, s[f].blocks.data + i * sizeof(block), sizeof(block));
            leat_assert(sketch_restore(&table->sketch, &block));
        }
        table_restored(table, t->epoch);
        table->halved_at_us = s[f].times.halved_at_us;
        table->watermark_us = s[f].times.watermark_us;
        table->expired_before = s[f].times.expired_before;
    }
}

static void restore_there(struct twins *t, const struct stored *s)
{
    struct gpu_error error;
    for (uint32_t f = 0; f < t->fields; f++) {
        const struct sketch_block *blocks = (const void *)s[f].blocks.data;
        must(device_table_restore_remove(t->device, f, s[f].removed.items, s[f].removed.count, &error),
             &error, "device_table_restore_remove");
        must(device_table_restore(t->device, f, s[f].rows.data, s[f].rows.count, &error), &error,
             "device_table_restore");
        must(device_table_restore_counts(t->device, f, blocks, s[f].blocks.count, &error), &error,
             "device_table_restore_counts");
        device_table_set_times(t->device, f, &s[f].times);
    }
    must(device_table_restored(t->device, &error), &error, "device_table_restored");
}

/* --- Tests --- */

static void report_layout(bool is_good, const char *layout, const char *what)
{
    char text[256];
    snprintf(text, sizeof(text), "%s: %s", layout, what);
    report(is_good, text);
}

/* Each side stores a base and a change; both continue from the other's base and change. */
static void test_layout(const struct layout *l)
{
    struct stored here[2][FIELDS], there[2][FIELDS], last[2][FIELDS];
    struct twins t, back;
    uint32_t now = 1000;
    random_state = l->dim * 1000 + l->linear;
    twins_init(&t, l);
    leat_assert(device_table_stored_bytes(t.device) == table_stored_bytes(&t.model->tables[t.first]));
    for (uint32_t i = 0; i < 2; i++) {
        batches(&t, 5, &now);
        store_here(&t, i, here[i]);
        store_there(&t, i, there[i]);
        t.epoch++;
    }
    uint32_t n = t.fields;
    report_layout(here[1]->rows.count > 50 && here[0]->blocks.count > 256 &&
                      is_same_stored(here[0], there[0], n),
                  l->name, "a base has the same rows, sketches and times");
    report_layout(here[1]->blocks.count < here[0]->blocks.count * 2 && is_same_stored(here[1], there[1], n),
                  l->name, "so has what changed since");
    twins_init(&back, l);
    back.epoch = t.epoch - 1;
    for (int i = 0; i < 2; i++) { /* each side restores what the other stored */
        restore_here(&back, there[i]);
        restore_there(&back, here[i]);
    }
    back.epoch = t.epoch;
    back.step = t.step;
    uint64_t state = random_state;
    uint32_t then = now;
    batches(&t, 3, &now);
    random_state = state;
    batches(&back, 3, &then);
    store_here(&t, 0, last[0]);
    store_there(&back, 0, last[1]);
    report_layout(is_same_stored(last[0], last[1], n), l->name, "a device goes on from what the CPU stored");
    stored_free(last[0], n);
    stored_free(last[1], n);
    t.epoch++, back.epoch++;
    store_there(&t, 0, last[0]);
    store_here(&back, 0, last[1]);
    report_layout(is_same_stored(last[1], last[0], n), l->name, "the CPU goes on from what a device stored");
    struct sketch_block wrong = {.number = 1 << 20};
    struct gpu_error error = {.failure = GPU_OK};
    report_layout(!device_table_restore_counts(t.device, 0, &wrong, 1, &error) &&
                      error.failure == GPU_UNSUPPORTED,
                  l->name, "a block that there is not is refused");
    for (int i = 0; i < 2; i++) {
        stored_free(here[i], n);
        stored_free(there[i], n);
        stored_free(last[i], n);
    }
    twins_free(&t);
    twins_free(&back);
}

int main(int argc, char **argv)
{
    static const struct layout layouts[] = {
        {"vectors before their state, ftrl in double", 16, OPT_SGD, OPT_ADAM, true, false, 0},
        {"the state before the vector", 16, OPT_ADAGRAD, OPT_ADAGRAD_BLOCK, false, false, 0},
        {"rows_max, no state", 8, OPT_ADAM, OPT_SGD, false, false, 300},
        {"a field without vectors", 4, OPT_ADAGRAD, OPT_ADAGRAD, false, true, 0},
    };
    bool is_reduced = argc > 1 && strcmp(argv[1], "--reduced") == 0;
    if (!device_open())
        return 77;
    for (size_t i = 0; i < (is_reduced ? 2 : ARRAY_COUNT(layouts)); i++)
        test_layout(&layouts[i]);
    return device_close();
}
