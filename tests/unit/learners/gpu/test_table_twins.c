/*
 * The same batches to embedding tables on the CPU (learners/tables/table.h) and on a device (gpu_table.h):
 * the same rows come out, bit for bit, with admission, expiry and eviction. Ids take the whole path on both
 * sides: dedupe, resolve, update. A plain program that prints TAP lines; without a device it is skipped.
 *
 *   test_table_twins [--reduced]
 */
#include "../open_device.h"

#include "core/base.h"
#include "kernels/gpu_table.h"
#include "kernels/num.h"
#include "learners/tables/inline.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D = 8, TABLES = 3, PLACES = 400, KEYS = 1500, ROW_FLOATS = 2 * D };

static uint64_t random_state;
static char failure[256];

static uint64_t draw(uint64_t below)
{
    return num_mix(++random_state) % below;
}

__attribute__((format(printf, 1, 2))) static bool fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (failure[0] == '\0')
        vsnprintf(failure, sizeof(failure), format, arguments);
    va_end(arguments);
    return false;
}

/* --- One side of a batch: its arrays, in the memory of the CPU or of the device --- */

struct side {
    uint64_t *ids, *unique_ids;
    uint32_t *tables, *seen, *count, *indices, *unique_tables, *order, *starts;
    float *grads;
    void **rows;
    void *dedupe_scratch, *update_scratch;
};

static const struct opt_params params = {.rate = 0.05F, .decay = 1.0F, .step_max = 1.0F, .l2 = 1e-3F};

static void *room(bool is_device, size_t bytes)
{
    struct gpu_error error = {0};
    void *p = is_device ? api->alloc(gpu, bytes, &error) : aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (p == NULL) {
        printf("Bail out! %s\n", error.text);
        exit(1);
    }
    if (!is_device)
        memset(p, 0, bytes);
    return p;
}

static struct batch_dedupe dedupe_of(const struct side *s, uint32_t n)
{
    return (struct batch_dedupe){.ids = s->ids,
                                 .tables = s->tables,
                                 .tables_count = TABLES,
                                 .n = n,
                                 .method = n % 2 ? DEDUPE_SORT : DEDUPE_HASH,
                                 .count = s->count,
                                 .indices = s->indices,
                                 .unique_ids = s->unique_ids,
                                 .unique_tables = s->unique_tables,
                                 .order = s->order,
                                 .starts = s->starts,
                                 .scratch = s->dedupe_scratch};
}

static struct batch_update update_of(const struct side *s, uint32_t n)
{
    return (struct batch_update){
        .in = {.grads = s->grads, .order = s->order, .starts = s->starts, .count = s->count, .n = n, .d = D},
        .rows = s->rows,
        .keys = s->unique_ids,
        .format = ROW_FP32,
        .kind = OPT_ADAGRAD,
        .params = params,
        .scratch = s->update_scratch};
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

static struct side side_new(const struct batch_kernels *k, bool is_device)
{
    struct side s = {.ids = room(is_device, PLACES * 8),
                     .unique_ids = room(is_device, PLACES * 8),
                     .tables = room(is_device, (TABLES + 1) * 4),
                     .seen = room(is_device, PLACES * 4),
                     .count = room(is_device, 4),
                     .indices = room(is_device, PLACES * 4),
                     .unique_tables = room(is_device, PLACES * 4),
                     .order = room(is_device, PLACES * 4),
                     .starts = room(is_device, (PLACES + 1) * 4),
                     .grads = room(is_device, PLACES * D * sizeof(float)),
                     .rows = room(is_device, PLACES * sizeof(void *))};
    size_t bytes = 64;
    for (uint32_t n = PLACES - 1; n <= PLACES; n++) { /* scratch for both methods */
        struct batch_dedupe dedupe = dedupe_of(&s, n);
        k->dedupe(&dedupe, is_device ? stream : NULL);
        bytes = most(bytes, dedupe.scratch_bytes);
    }
    s.dedupe_scratch = room(is_device, bytes);
    struct batch_update update = update_of(&s, PLACES);
    k->update(&update, is_device ? stream : NULL);
    s.update_scratch = room(is_device, most(update.scratch_bytes, 64));
    return s;
}

static void side_free(struct side *s, bool is_device)
{
    void *all[] = {s->ids,     s->unique_ids,     s->tables,        s->seen,   s->count,
                   s->indices, s->unique_tables,  s->order,         s->starts, s->grads,
                   s->rows,    s->dedupe_scratch, s->update_scratch};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
        if (is_device)
            api->free(gpu, all[i]);
        else
            free(all[i]);
    }
}

/* --- The twins --- */

struct twins {
    struct table cpu[TABLES];
    struct gpu_table_options options[TABLES];
    struct gpu_tables *on_device;
    struct side here, there;
    const struct batch_kernels *k;
    uint32_t step, epoch;
};

static void init_row(void *argument, uint64_t key, void *payload)
{
    const struct gpu_table_options *o = argument;
    float *w = payload;
    kernels_variant(KERNELS_SCALAR)->init_uniform(w, num_mix(key ^ o->init_seed), o->init_bound, D);
    for (int i = D; i < ROW_FLOATS; i++)
        w[i] = 0.5F;
}

static bool twins_init(struct twins *t)
{
    static const uint32_t admissions[] = {0, 1, 2, 3, 9, 300};
    struct gpu_error error = {0};
    *t = (struct twins){.epoch = 1};
    for (int v = 0; v < KERNELS_VARIANTS; v++)
        t->k = batch_variant((enum kernels_variant)v) != NULL ? batch_variant((enum kernels_variant)v) : t->k;
    for (uint32_t f = 0; f < TABLES; f++) {
        struct gpu_table_options *o = &t->options[f];
        *o = (struct gpu_table_options){.admit_after = admissions[draw(ARRAY_COUNT(admissions))],
                                        .sketch_bytes = draw(2) ? 4096 : 1 << 15,
                                        .rows_max = f == 0 ? 0 : 1 + draw(700),
                                        .rows_start = api->tables->make_room ? 128 : 2 * KEYS,
                                        .seed = draw(1000),
                                        .init_seed = draw(1000),
                                        .init_bound = 0.25F};
        struct table_options options = {.payload_bytes = ROW_FLOATS * sizeof(float),
                                        .align = 64,
                                        .admit_after = o->admit_after,
                                        .sketch_bytes = o->sketch_bytes,
                                        .expire_after_us = draw(2) ? 150 * US_PER_SECOND : 0,
                                        .rows_max = o->rows_max,
                                        .seed = o->seed,
                                        .init = init_row,
                                        .init_argument = o};
        table_init(&t->cpu[f], &options);
    }
    struct gpu_tables_options set = {.tables = TABLES,
                                     .table = t->options,
                                     .d = D,
                                     .format = ROW_FP32,
                                     .optimizer = OPT_ADAGRAD,
                                     .accumulator = 0.5F,
                                     .batch_max = PLACES,
                                     .memory_bytes = (uint64_t)1 << 26};
    t->on_device = api->tables->create(gpu, &set, &error);
    t->here = side_new(t->k, false);
    t->there = side_new(api->kernels, true);
    return t->on_device != NULL || fail("create: %s", error.text);
}

static void twins_free(struct twins *t)
{
    for (uint32_t f = 0; f < TABLES; f++)
        table_free(&t->cpu[f]);
    api->tables->destroy(t->on_device);
    side_free(&t->here, false);
    side_free(&t->there, true);
}

static bool wait(const char *what)
{
    struct gpu_error error = {0};
    return api->wait(stream, &error) || fail("%s: %s", what, error.text);
}

/* Draws occurrences for all tables, some ids skewed, some absent. Returns how many. */
static uint32_t draw_places(struct twins *t, uint32_t now)
{
    struct side *s = &t->here;
    uint32_t n = 0;
    for (uint32_t f = 0; f < TABLES; f++) {
        uint64_t narrow = 1 + draw(KEYS);
        for (uint64_t left = draw(PLACES / TABLES); left > 0; left--, n++) {
            s->ids[n] = draw(16) == 0 ? 0 : 1 + draw(draw(2) ? narrow : KEYS) * draw(KEYS) / KEYS;
            s->seen[n] = now - (uint32_t)draw(30);
            for (int i = 0; i < D; i++)
                s->grads[n * D + (uint32_t)i] = (float)draw(2001) / 1000.0F - 1.0F;
        }
        s->tables[f + 1] = n;
    }
    return n;
}

static void batch_here(struct twins *t, uint32_t n)
{
    struct table_row *found[PLACES];
    uint32_t counts[PLACES], seen[PLACES] = {0}, at = 0;
    uint8_t is_known[PLACES];
    struct side *s = &t->here;
    struct batch_dedupe dedupe = dedupe_of(s, n);
    struct batch_update update = update_of(s, n);
    t->k->dedupe(&dedupe, NULL);
    for (uint32_t u = 0; u < *s->count; u++) {
        counts[u] = s->starts[u + 1] - s->starts[u];
        for (uint32_t i = s->starts[u]; i < s->starts[u + 1]; i++)
            seen[u] = MAX(seen[u], s->seen[s->order[i]]);
    }
    for (uint32_t f = 0, first = 0; f < TABLES; f++, first = at) {
        while (at < *s->count && s->unique_tables[at] == f)
            at++;
        struct table_occurrences in = {
            .keys = s->unique_ids + first, .seen = seen + first, .counts = counts + first, .n = at - first};
        table_resolve_batch(&t->cpu[f], &in, t->step, found + first, is_known);
    }
    for (uint32_t u = 0; u < *s->count; u++)
        s->rows[u] = found[u] != NULL ? table_payload(found[u]) : NULL;
    t->k->update(&update, NULL);
}

/* Refreshes the rows that exist and makes no others. */
static void refresh_here(struct twins *t)
{
    const struct side *s = &t->here;
    for (uint32_t f = 0; f < TABLES; f++) {
        for (uint32_t i = s->tables[f]; i < s->tables[f + 1]; i++) {
            struct table_row *row = table_find(&t->cpu[f], s->ids[i]);
            if (row != NULL)
                table_refresh(&t->cpu[f], row, s->seen[i]);
        }
    }
}

/* Begins the next checkpoint's epoch. */
static void next_epoch(struct twins *t)
{
    t->epoch++;
    for (uint32_t f = 0; f < TABLES; f++)
        t->cpu[f].epoch = t->cpu[f].sketch.epoch = t->epoch;
}

static bool batch_there(struct twins *t, uint32_t n, bool is_refresh)
{
    struct side *h = &t->here, *s = &t->there;
    struct batch_dedupe dedupe = dedupe_of(s, n);
    struct batch_update update = update_of(s, n);
    struct gpu_batch batch = {.count = s->count,
                              .keys = s->unique_ids,
                              .tables = s->unique_tables,
                              .starts = s->starts,
                              .order = s->order,
                              .seen = s->seen,
                              .n = n,
                              .step = t->step,
                              .epoch = t->epoch};
    uint32_t rows_new[TABLES] = {n};
    uint64_t rows_cold[TABLES] = {0};
    struct gpu_error error = {0};
    if (!is_refresh && api->tables->make_room &&
        !api->tables->make_room(t->on_device, stream, rows_new, rows_cold, &error))
        return fail("make_room: %s", error.text);
    api->copy(stream, s->ids, h->ids, n * sizeof(*s->ids));
    api->copy(stream, s->seen, h->seen, n * sizeof(*s->seen));
    api->copy(stream, s->grads, h->grads, n * D * sizeof(*s->grads));
    api->copy(stream, s->tables, h->tables, (TABLES + 1) * sizeof(*s->tables));
    api->kernels->dedupe(&dedupe, stream);
    if (is_refresh) {
        api->tables->refresh(t->on_device, stream, &batch);
        return wait("refresh");
    }
    api->tables->resolve(t->on_device, stream, &batch, s->rows);
    api->kernels->update(&update, stream);
    return wait("a batch");
}

/* --- Comparing --- */

static bool compare_stats(struct twins *t, uint32_t f)
{
    struct gpu_table_stats stats = {0};
    struct gpu_error error = {0};
    const struct table_stats *s = &t->cpu[f].stats;
    if (!api->tables->stats(t->on_device, stream, f, &stats, &error))
        return fail("stats: %s", error.text);
    if (stats.inserted == s->inserted && stats.evicted == s->evicted && stats.refused == s->refused &&
        stats.waiting == s->waiting)
        return true;
    return fail(
        "step %u, table %u: inserted %llu, evicted %llu, refused %llu, waiting %llu; expected %llu, %llu, "
        "%llu, %llu",
        t->step, f, (unsigned long long)stats.inserted, (unsigned long long)stats.evicted,
        (unsigned long long)stats.refused, (unsigned long long)stats.waiting, (unsigned long long)s->inserted,
        (unsigned long long)s->evicted, (unsigned long long)s->refused, (unsigned long long)s->waiting);
}

/* Compares all possible keys: which have rows, and the rows' weights and state. */
static bool compare_rows(struct twins *t, uint32_t f)
{
    static uint64_t keys[KEYS];
    static void *rows[KEYS];
    static float payloads[KEYS][ROW_FLOATS];
    uint64_t *on_device = room(true, sizeof(keys));
    uint32_t *tables = room(true, KEYS * 4), fields[KEYS];
    void **found = room(true, sizeof(rows));
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i + 1, fields[i] = f;
    api->copy(stream, on_device, keys, sizeof(keys));
    api->copy(stream, tables, fields, sizeof(fields));
    api->tables->find(t->on_device, stream, on_device, tables, NULL, KEYS, found);
    api->copy(stream, rows, found, sizeof(rows));
    bool is_good = wait("find");
    for (uint32_t i = 0; i < KEYS && is_good; i++)
        if (rows[i] != NULL)
            api->copy(stream, payloads[i], rows[i], sizeof(payloads[i]));
    is_good = is_good && wait("reading rows");
    for (uint32_t i = 0; i < KEYS && is_good; i++) {
        struct table_row *row = table_find(&t->cpu[f], keys[i]);
        if ((row != NULL) != (rows[i] != NULL))
            is_good = fail("step %u, table %u: key %llu has a row on the %s alone", t->step, f,
                           (unsigned long long)keys[i], row != NULL ? "CPU" : "device");
        else if (row != NULL && memcmp(table_payload(row), payloads[i], sizeof(payloads[i])) != 0)
            is_good =
                fail("step %u, table %u: key %llu: a weight is %g on the CPU, %g on the device", t->step, f,
                     (unsigned long long)keys[i], (double)*table_payload(row), (double)payloads[i][0]);
    }
    api->free(gpu, on_device);
    api->free(gpu, tables);
    api->free(gpu, found);
    return is_good;
}

/* Compares the headers of exported rows. */
static bool compare_heads(struct twins *t)
{
    enum { ROOM = TABLES * KEYS };
    struct gpu_error error = {0};
    uint64_t all = 0, live = 0, expected = 0;
    if (api->tables->select == NULL || api->tables->export_rows == NULL)
        return true;
    if (!api->tables->select(t->on_device, stream, 0, UINT32_MAX, &all, &error))
        return fail("select: %s", error.text);
    struct gpu_row_head *heads = api->alloc_pinned(gpu, ROOM * sizeof(*heads), &error);
    float *payloads = api->alloc_pinned(gpu, (size_t)ROOM * ROW_FLOATS * sizeof(*payloads), &error);
    uint32_t *count = api->alloc_pinned(gpu, sizeof(*count), &error);
    bool is_good = (heads != NULL && payloads != NULL && count != NULL) || fail("%s", error.text);
    if (is_good)
        api->tables->export_rows(t->on_device, stream, ROOM, heads, payloads, count);
    is_good = is_good && wait("export_rows") &&
              (*count == all || fail("%u rows of %llu", *count, (unsigned long long)all));
    for (uint32_t i = 0; is_good && i < *count; i++) {
        const struct table_row *row = table_find(&t->cpu[heads[i].table], heads[i].key);
        if (row == NULL && heads[i].seen < t->cpu[heads[i].table].expired_before)
            continue; /* removed on the CPU, and not yet on the device */
        live++;
        if (row == NULL || row->count != heads[i].count || row->seen != heads[i].seen ||
            row->epoch != heads[i].epoch)
            is_good = fail("step %u, table %u: key %llu has another header", t->step, heads[i].table,
                           (unsigned long long)heads[i].key);
    }
    for (uint32_t f = 0; f < TABLES; f++)
        for (uint64_t k = 1; k <= KEYS; k++)
            expected += table_find(&t->cpu[f], k) != NULL;
    api->free_pinned(gpu, heads);
    api->free_pinned(gpu, payloads);
    api->free_pinned(gpu, count);
    return is_good && (live == expected || fail("step %u: %llu live rows, expected %llu", t->step,
                                                (unsigned long long)live, (unsigned long long)expected));
}

/* Moves the CPU's watermark, and makes the expiry and halvings that follow happen on the device. */
static void advance(struct twins *t, uint32_t now)
{
    for (uint32_t f = 0; f < TABLES; f++) {
        struct table *cpu = &t->cpu[f];
        int64_t halved_at = cpu->halved_at_us, after = cpu->options.expire_after_us;
        if (after > 0 && draw(2)) /* without a sweep: batches meet expired rows */
            cpu->expired_before = (uint32_t)(now - after / US_PER_SECOND + 1);
        else
            table_set_watermark(cpu, now * US_PER_SECOND, TABLE_STEP_NONE);
        if (after > 0)
            api->tables->expire(t->on_device, stream, f, cpu->expired_before);
        for (; halved_at != INT64_MIN && halved_at < cpu->halved_at_us; halved_at += after)
            api->tables->halve_sketch(t->on_device, stream, f, t->epoch);
    }
}

static bool run(int batches)
{
    struct twins t;
    uint32_t now = 1000;
    bool is_good = twins_init(&t);
    for (int i = 0; i < batches && is_good; i++) {
        uint32_t n = draw_places(&t, now);
        bool is_refresh = draw(4) == 0;
        t.step += !is_refresh;
        if (draw(5) == 0)
            next_epoch(&t);
        if (is_refresh)
            refresh_here(&t);
        else
            batch_here(&t, n);
        is_good = batch_there(&t, n, is_refresh);
        now += (uint32_t)draw(30);
        if (draw(3) == 0)
            advance(&t, now);
        for (uint32_t f = 0; f < TABLES && is_good && (i % 4 == 3 || i + 1 == batches); f++)
            is_good = compare_rows(&t, f) && compare_stats(&t, f);
    }
    is_good = is_good && compare_heads(&t);
    twins_free(&t);
    return is_good;
}

int main(int argc, char **argv)
{
    bool is_reduced = argc > 1 && strcmp(argv[1], "--reduced") == 0;
    if (!device_open())
        return 77;
    for (uint64_t seed = 1; seed <= (is_reduced ? 3 : 8); seed++) {
        char text[96];
        random_state = seed << 32;
        failure[0] = '\0';
        snprintf(text, sizeof(text), "the same rows on the CPU and on the device, seed %llu",
                 (unsigned long long)seed);
        report(run(is_reduced ? 8 : 20), text);
        if (failure[0] != '\0')
            printf("# %s\n", failure);
    }
    return device_close();
}
