/*
 * Steps over tables of which a tenth lies in the GPU's memory and the rest in pinned memory
 * (learners/device_table.h): each announces the next batch, brings what its own lacks, gathers, and updates
 * by Adam. Ids by Zipf's law of exponent 1.05. Beside it: what the rows that came would take at the rate of
 * copies from pinned memory.
 */
#include "learners/device_table.h"
#include "tables.h"

#include <math.h>
#include <stdlib.h>

enum { TIER_BATCHES = 12 };

struct tiers {
    struct tables_bench *b;
    struct device_table *table;
    struct batch_dedupe ids[TIER_BATCHES];
    uint32_t turn;
    void **rows;
    float *out, *grads;
    uint32_t *rejected;
    void *scratch; /* of update */
    size_t row_bytes;
};

/* A rank below `ranks` by the inverse of the distribution of x^-1.05 on [1, ranks + 1]. */
static uint64_t zipf_rank(uint64_t random, uint64_t ranks)
{
    const double power = -0.05, share = (double)(random >> 11) * 0x1p-53;
    uint64_t x = (uint64_t)pow(1.0 + share * (pow((double)ranks + 1.0, power) - 1.0), 1.0 / power);
    return x < 1 ? 0 : x > ranks ? ranks - 1 : x - 1;
}

static uint32_t places(const struct tables_sizes *s)
{
    return s->step_n / s->step_tables * s->step_tables;
}

/* Room for a batch; then, batch by batch, its ids. */
static struct batch_dedupe make_batch(struct tables_bench *b)
{
    struct place *place = b->place;
    uint32_t tables = b->sizes->step_tables, n = places(b->sizes), offsets[BATCH_TABLES_MAX + 1] = {0};
    for (uint32_t t = 0; t < tables; t++)
        offsets[t + 1] = (t + 1) * (n / tables);
    return place_dedupe(place, NULL, offsets, tables);
}

/* first >= 0: ranks first .. of each table; else by Zipf's law, with a seed. */
static void put_ids(struct tiers *t, struct batch_dedupe *a, int64_t first, uint64_t seed)
{
    uint32_t tables = a->tables_count, each = a->n / tables;
    uint64_t *host = host_room(a->n * sizeof *host);
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t rank = first >= 0 ? (uint64_t)first + i % each
                                   : zipf_rank(num_mix(seed ^ num_mix(i)), t->b->sizes->step_rows);
        host[i] = tables_key(i / each, rank);
    }
    place_download(t->b->place, (void *)(uintptr_t)a->ids, host, a->n * sizeof *host);
    free(host);
    t->b->place->kernels->dedupe(a, t->b->place->stream);
    place_wait(t->b->place);
}

static struct gpu_batch batch_of(const struct batch_dedupe *a, uint32_t step)
{
    return (struct gpu_batch){.count = a->count,
                              .keys = a->unique_ids,
                              .tables = a->unique_tables,
                              .starts = a->starts,
                              .order = a->order,
                              .n = a->n,
                              .step = step,
                              .epoch = 1};
}

static void run_step(struct place *place, void *state)
{
    struct tiers *t = state;
    struct gpu_error error = {0};
    struct batch_dedupe *ids = &t->ids[t->turn % TIER_BATCHES];
    struct gpu_batch now = batch_of(ids, t->b->step);
    struct gpu_batch next = batch_of(&t->ids[(t->turn + 1) % TIER_BATCHES], ++t->b->step);
    t->turn++;
    tables_check(device_table_ahead(t->table, &next, &error), &error);
    tables_check(device_table_step(t->table, &now, t->rows, &error), &error);
    struct batch_gather_pool gather = {.rows = (const void *const *)t->rows,
                                       .unique = ids->unique,
                                       .bags = ids->n,
                                       .d = t->b->sizes->step_d,
                                       .out = t->out};
    struct batch_update update = {.in = {.grads = t->grads,
                                         .order = ids->order,
                                         .starts = ids->starts,
                                         .count = ids->count,
                                         .n = ids->n,
                                         .d = t->b->sizes->step_d},
                                  .rows = t->rows,
                                  .keys = ids->unique_ids,
                                  .kind = OPT_ADAM,
                                  .params = place_params,
                                  .rejected = t->rejected};
    place->kernels->gather_pool(&gather, place->stream);
    place->kernels->update(&update, place->stream); /* how much scratch memory it needs */
    if (t->scratch == NULL)
        t->scratch = place_zeros(place, update.scratch_bytes + 1);
    update.scratch = t->scratch;
    place->kernels->update(&update, place->stream);
}

static void make_tables(struct tiers *t)
{
    const struct tables_sizes *s = t->b->sizes;
    struct gpu_error error = {0};
    struct gpu_table_options each[BATCH_TABLES_MAX];
    t->row_bytes = row_bytes(ROW_FP32, s->step_d, opt_state_floats(OPT_ADAM, s->step_d));
    for (uint32_t i = 0; i < s->step_tables; i++)
        each[i] = (struct gpu_table_options){.seed = 11 + i, .init_seed = 5, .init_bound = 0.01F};
    uint64_t slot = t->row_bytes + sizeof(struct gpu_row_head) + 8, rows = s->step_rows * s->step_tables;
    struct gpu_tables_options set = {.tables = s->step_tables,
                                     .table = each,
                                     .d = s->step_d,
                                     .format = ROW_FP32,
                                     .optimizer = OPT_ADAM,
                                     .batch_max = places(s),
                                     .memory_bytes = UINT64_MAX / 2};
    struct gpu_tables_plan plan;
    tables_check(t->b->api->plan(&set, UINT64_MAX / 2, &plan, &error), &error);
    set.memory_bytes = plan.bytes_least + rows / 10 * slot;
    struct device_table_options options = {.api = t->b->place->api,
                                           .gpu = t->b->place->gpu,
                                           .stream = t->b->place->stream,
                                           .tables = set,
                                           .pinned_bytes = rows * (slot + 64),
                                           .ahead = 2};
    t->table = device_table_new(&options, &error);
    tables_check(t->table != NULL, &error);
}

/* Every row is made, the most frequent last. */
static void fill_tables(struct tiers *t)
{
    struct gpu_error error = {0};
    uint32_t each = t->ids[0].n / t->ids[0].tables_count;
    for (int64_t first = (int64_t)(t->b->sizes->step_rows - each); first >= 0; first -= each) {
        put_ids(t, &t->ids[0], first, 0);
        struct gpu_batch batch = batch_of(&t->ids[0], ++t->b->step);
        tables_check(device_table_step(t->table, &batch, t->rows, &error), &error);
        place_wait(t->b->place);
    }
}

void bench_tiers(struct tables_bench *b)
{
    struct tiers t = {.b = b};
    uint32_t n = places(b->sizes), d = b->sizes->step_d;
    b->step = 0;
    t.rows = place_zeros(b->place, n * sizeof *t.rows);
    t.out = place_zeros(b->place, (size_t)n * d * sizeof(float));
    t.grads = place_floats(b->place, (size_t)n * d);
    t.rejected = place_zeros(b->place, sizeof(uint32_t));
    for (int i = 0; i < TIER_BATCHES; i++)
        t.ids[i] = make_batch(b);
    make_tables(&t);
    fill_tables(&t);
    for (int i = 0; i < TIER_BATCHES; i++)
        put_ids(&t, &t.ids[i], -1, 1000 + (uint64_t)i);
    t.scratch = NULL;
    b->step++;
    uint64_t before = device_table_stats(t.table).fetched;
    double ms = place_time_ms(b->place, run_step, NULL, &t);
    double fetched = (double)(device_table_stats(t.table).fetched - before) / t.turn;
    line_print(
        &(struct line){.group = "tables",
                       .figure = "tiers",
                       .what = "a whole step: rows from below, gather, update (Adam); bytes: rows that came",
                       .variant = b->place->name,
                       .ms = ms,
                       .bytes = fetched * (double)(t.row_bytes + sizeof(struct gpu_row_head)),
                       .items = n,
                       .unit = "look-ups"});
    place_wait(b->place);
    device_table_free(t.table);
    place_release(b->place);
}
