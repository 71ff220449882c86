/*
 * The figures of embedding tables in a GPU's memory (kernels/gpu_table.h) that have a target:
 *   bench_tables [--tiny | --small] FIGURE...          find, resolve, step, tiers, export
 * Prints one line of JSON a figure (place.h). --tiny: small sizes, each call made once, nothing timed.
 * --small: the same in the proportions of the GPU's sizes, so that tables run out of room as they would there
 * (seconds a figure with the host's model). Bytes are those that have to move at the least: 178 B a key (the
 * key, a line of digests, a sector of keys, the flag or pointer), and its rows.
 */
#include "tables.h"

#include <stdlib.h>
#include <string.h>

static const struct tables_sizes all_sizes[SIZES] = {
    [SIZE_TINY] = {.rows = 2048,
                   .n = 300,
                   .d = 64,
                   .step_tables = 4,
                   .step_rows = 1024,
                   .step_n = 400,
                   .step_d = 16,
                   .export_rows = 2048,
                   .export_d = 16,
                   .export_room = 64},
    [SIZE_GPU] = {.rows = 1 << 24,
                  .n = 1 << 20,
                  .d = 64,
                  .step_tables = 10,
                  .step_rows = 1 << 20,
                  .step_n = 1048570,
                  .step_d = 128,
                  .export_rows = 13000000,
                  .export_d = 128,
                  .export_room = 1 << 17},
};

/* In the proportions of the GPU's sizes: keys and places to rows, and a tenth of a table's slots (seven
 * buckets here) to a step's places. */
static const struct tables_sizes small_sizes = {.rows = 1 << 15,
                                                .n = 1 << 11,
                                                .d = 64,
                                                .step_tables = 10,
                                                .step_rows = 1 << 13,
                                                .step_n = 8190,
                                                .step_d = 128,
                                                .export_rows = 25000,
                                                .export_d = 128,
                                                .export_room = 1 << 8};

/* --- find --- */

struct find {
    struct tables_bench *b;
    const uint64_t *keys;
    uint32_t n;
    float *out;
    uint8_t *found;
    void **rows;
};

static void run_find_values(struct place *place, void *state)
{
    struct find *f = state;
    f->b->api->find_values(f->b->set, place->stream, f->keys, NULL, NULL, f->n, f->out, f->found);
}

static void run_find(struct place *place, void *state)
{
    struct find *f = state;
    f->b->api->find(f->b->set, place->stream, f->keys, NULL, NULL, f->n, f->rows);
}

static void find_at(struct tables_bench *b, const char *figure, uint64_t inserted)
{
    const struct tables_sizes *s = b->sizes;
    tables_make(b, &(struct tables_shape){1, s->rows, s->d, OPT_SGD, s->n});
    tables_fill(b, 0, 1, inserted, 1);
    struct find f = {.b = b, .n = s->n, .keys = tables_present(b, inserted, s->n)};
    f.out = place_zeros(b->place, (size_t)s->n * s->d * sizeof(float));
    f.found = place_zeros(b->place, s->n);
    f.rows = place_zeros(b->place, s->n * sizeof(void *));
    struct line line = {.group = "tables",
                        .figure = figure,
                        .what = "find_values, every key is there",
                        .variant = b->place->name,
                        .ms = place_time_ms(b->place, run_find_values, NULL, &f),
                        .bytes = s->n * (178 + 8.0 * s->d),
                        .items = s->n,
                        .unit = "keys"};
    line_print(&line);
    char name[64];
    snprintf(name, sizeof(name), "%s, pointers", figure);
    line.figure = name;
    line.what = "find, pointers to rows alone";
    line.ms = place_time_ms(b->place, run_find, NULL, &f);
    line.bytes = s->n * 178.0;
    line_print(&line);
    tables_end(b);
}

static void bench_find(struct tables_bench *b)
{
    find_at(b, "find 0.5", b->sizes->rows / 2);
    find_at(b, "find 1.0", b->sizes->rows * 5 / 2); /* so many that every bucket is full */
}

/* --- find-or-insert --- */

enum { RESOLVE_BATCHES = 10 };

/* The data of one resolve: half of the keys have rows, half are new. */
struct resolve {
    struct tables_bench *b;
    uint64_t *keys[RESOLVE_BATCHES];
    struct gpu_batch batch;
    void **rows;
    struct gpu_row_head *removed;
    uint32_t turn;
    bool is_full; /* load 1.0: new keys evict others; else they are removed again */
};

static void before_resolve(struct place *place, void *state)
{
    struct resolve *r = state;
    const struct gpu_table_api *api = r->b->api;
    struct gpu_error error = {0};
    uint64_t count = 0;
    uint32_t half = r->batch.n / 2;
    if (r->is_full)
        tables_check(api->take_removed(r->b->set, place->stream, r->removed, r->batch.n, &count, &error),
                     &error);
    if (!r->is_full && r->turn > 0)
        api->remove(r->b->set, place->stream, r->batch.keys + (r->batch.n - half), r->batch.tables, half);
    r->batch.keys = r->keys[r->is_full ? r->turn % RESOLVE_BATCHES : 0];
    r->batch.step = ++r->b->step;
    r->turn++;
}

static void run_resolve(struct place *place, void *state)
{
    struct resolve *r = state;
    r->b->api->resolve(r->b->set, place->stream, &r->batch, r->rows);
}

static void resolve_at(struct tables_bench *b, const char *figure, uint64_t inserted, bool is_full)
{
    const struct tables_sizes *s = b->sizes;
    tables_make(b, &(struct tables_shape){1, s->rows, s->d, OPT_SGD, s->n});
    tables_fill(b, 0, 1, inserted, 1);
    struct resolve r = {.b = b, .is_full = is_full, .batch = tables_batch(b, s->n, 1)};
    uint64_t *present = tables_present(b, inserted, s->n), *host = host_room(s->n * sizeof(*host));
    for (uint32_t i = 0; i < (is_full ? RESOLVE_BATCHES : 1); i++) {
        place_download(b->place, host, present, s->n * sizeof(*host));
        for (uint32_t k = s->n - s->n / 2; k < s->n; k++)
            host[k] = tables_key(0, inserted + (uint64_t)i * s->n + k);
        r.keys[i] = place_upload(b->place, host, s->n * sizeof(*host));
    }
    free(host);
    r.rows = place_zeros(b->place, s->n * sizeof(void *));
    r.removed = place_pinned(b->place, s->n * sizeof(*r.removed));
    line_print(
        &(struct line){.group = "tables",
                       .figure = figure,
                       .what = "resolve, half of the keys are new",
                       .variant = b->place->name,
                       .ms = place_time_ms(b->place, run_resolve, before_resolve, &r),
                       .bytes = s->n * (178.0 + 2.0 * sizeof(struct gpu_row_head)) + s->n / 2.0 * 4.0 * s->d,
                       .items = s->n,
                       .unit = "keys"});
    place_wait(b->place);
    b->place->api->free_pinned(b->place->gpu, r.removed);
    tables_end(b);
}

static void bench_resolve(struct tables_bench *b)
{
    resolve_at(b, "resolve 0.5", b->sizes->rows / 2, false);
    resolve_at(b, "resolve 1.0", b->sizes->rows * 5 / 2, true);
}

/* --- export --- */

struct export
{
    struct tables_bench *b;
    struct gpu_row_head *heads;
    float *payloads;
    uint32_t *count;
    uint64_t rows;
};

static void run_export(struct place *place, void *state)
{
    struct export *e = state;
    struct gpu_error error = {0};
    uint32_t room = e->b->sizes->export_room;
    tables_check(e->b->api->select(e->b->set, place->stream, 1, 2, &e->rows, &error), &error);
    for (uint64_t done = 0; done < e->rows; done += room)
        e->b->api->export_rows(e->b->set, place->stream, room, e->heads, e->payloads, e->count);
}

static void bench_export(struct tables_bench *b)
{
    const struct tables_sizes *s = b->sizes;
    size_t floats = s->export_d + opt_state_floats(OPT_ADAM, s->export_d);
    tables_make(b, &(struct tables_shape){1, s->export_rows, s->export_d, OPT_ADAM, s->n});
    tables_fill(b, 0, 1, s->export_rows / 10 * 9, 1);
    tables_fill(b, 0, 1, s->export_rows / 10, 2); /* once more, in the next epoch: these are dirty */
    struct export e = {.b = b};
    e.heads = place_pinned(b->place, s->export_room * sizeof(*e.heads));
    e.payloads = place_pinned(b->place, s->export_room * floats * sizeof(float));
    e.count = place_pinned(b->place, sizeof(*e.count));
    double ms = place_time_ms(b->place, run_export, NULL, &e);
    line_print(&(struct line){.group = "tables",
                              .figure = "export",
                              .what = "select and export_rows into pinned memory",
                              .variant = b->place->name,
                              .ms = ms,
                              .bytes = (double)e.rows * (double)(sizeof(*e.heads) + floats * sizeof(float)),
                              .items = (double)e.rows,
                              .unit = "rows"});
    place_wait(b->place);
    b->place->api->free_pinned(b->place->gpu, e.heads);
    b->place->api->free_pinned(b->place->gpu, e.payloads);
    b->place->api->free_pinned(b->place->gpu, e.count);
    tables_end(b);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(struct tables_bench *);
    } figures[] = {{"find", bench_find},
                   {"resolve", bench_resolve},
                   {"step", bench_step},
                   {"tiers", bench_tiers},
                   {"export", bench_export}};
    struct place place;
    bool is_tiny = argc > 1 && strcmp(argv[1], "--tiny") == 0;
    bool is_small = argc > 1 && strcmp(argv[1], "--small") == 0;
    if (!place_open_device(&place, is_tiny || is_small))
        return 0;
    struct tables_bench b = {
        .place = &place, .api = place.api->tables, .sizes = is_small ? &small_sizes : &all_sizes[place.size]};
    for (size_t i = 0; i < sizeof(figures) / sizeof(*figures); i++)
        for (int a = 1; a < argc; a++)
            if (strcmp(argv[a], figures[i].name) == 0)
                figures[i].run(&b);
    place_close(&place);
    return 0;
}
