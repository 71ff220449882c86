/*
 * Steps over tables of which a tenth lies in the GPU's memory and the rest in pinned memory
 * (learners/device/table.h): each step announces the next batch, fetches the rows that its own batch lacks,
 * gathers, and updates by Adam. Ids by Zipf's law of exponent 1.05. For comparison: the time of the fetched
 * rows at the rate of copies from pinned memory.
 *
 * A tenth corresponds to TBE's cache_load_factor of 0.1: slots for a tenth of the rows. Room for the rows of
 * a step is made before it (kernels/cuda/table_room.cuh), so there are fewer rows than slots: the printed
 * line has the share of all rows that are in the GPU's memory. Each table has all its slots from the start:
 * otherwise the first table to grow would take all of the memory, and the others would have no rows to
 * exchange. A step's distinct ids are a third of its look-ups and find room; as many new ids as look-ups
 * would not, so smaller batches fill the tables.
 */
#include "learners/device/table.h"
#include "tables.h"

#include <math.h>
#include <stdlib.h>

/* Enough batches that no step, timed or not, learns one twice (place.c: 10 calls, and the batch ahead). */
enum { TIER_BATCHES = 16, WARM_UP = 4, FILLS_A_STEP = 16 };

/* A batch with the same number of places in each table. */
struct tier_ids {
    struct batch_dedupe in;
    uint32_t places[BATCH_TABLES_MAX];
};

struct tiers {
    struct tables_bench *b;
    struct device_table *table;
    struct tier_ids ids[TIER_BATCHES];
    uint32_t turn;
    void **rows;
    float *out, *grads;
    uint32_t *rejected;
    void *scratch; /* of update */
    size_t row_bytes;
};

/* A rank below `ranks`, by the inverse of the distribution of x^-1.05 on [1, ranks + 1]. */
static uint64_t zipf_rank(uint64_t random, uint64_t ranks)
{
    const double power = -0.05, share = (double)(random >> 11) * 0x1p-53;
    uint64_t x = (uint64_t)pow(1.0 + share * (pow((double)ranks + 1.0, power) - 1.0), 1.0 / power);
    return x < 1 ? 0 : x > ranks ? ranks - 1 : x - 1;
}

/* Allocates a batch; put_ids fills it. */
static struct tier_ids make_ids(struct tables_bench *b, uint32_t each)
{
    uint32_t tables = b->sizes->step_tables, offsets[BATCH_TABLES_MAX + 1] = {0};
    struct tier_ids ids = {0};
    for (uint32_t t = 0; t < tables; t++) {
        ids.places[t] = each;
        offsets[t + 1] = (t + 1) * each;
    }
    ids.in = place_dedupe(b->place, NULL, offsets, tables);
    return ids;
}

/* first >= 0: the ids of ranks first, first + 1 ... of each table; else ids by Zipf's law with the seed. */
static void put_ids(struct tiers *t, struct tier_ids *ids, int64_t first, uint64_t seed)
{
    struct batch_dedupe *a = &ids->in;
    uint32_t tables = a->tables_count, each = a->n / tables;
    uint64_t *host = host_room(a->n * sizeof(*host));
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t rank = first >= 0 ? (uint64_t)first + i % each
                                   : zipf_rank(num_mix(seed ^ num_mix(i)), t->b->sizes->step_rows);
        host[i] = tables_key(i / each, rank);
    }
    place_download(t->b->place, (void *)(uintptr_t)a->ids, host, a->n * sizeof(*host));
    free(host);
    t->b->place->kernels->dedupe(a, t->b->place->stream);
    place_wait(t->b->place);
}

static struct gpu_batch batch_of(const struct tier_ids *ids, uint32_t step)
{
    const struct batch_dedupe *a = &ids->in;
    return (struct gpu_batch){.count = a->count,
                              .keys = a->unique_ids,
                              .tables = a->unique_tables,
                              .starts = a->starts,
                              .order = a->order,
                              .n = a->n,
                              .step = step,
                              .epoch = 1,
                              .places = ids->places};
}

static void run_step(struct place *place, void *state)
{
    struct tiers *t = state;
    struct gpu_error error = {0};
    const struct tier_ids *due = &t->ids[t->turn % TIER_BATCHES];
    const struct batch_dedupe *ids = &due->in;
    struct gpu_batch now = batch_of(due, t->b->step);
    struct gpu_batch next = batch_of(&t->ids[(t->turn + 1) % TIER_BATCHES], ++t->b->step);
    t->turn++;
    tables_check(device_table_ahead(t->table, &next, &error), &error);
    tables_check(device_table_step(t->table, &now, t->rows, &error), &error);
    struct batch_gather_pool gather = {.rows = (const void *const *)t->rows,
                                       .indices = ids->indices,
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
    place->kernels->update(&update, place->stream); /* sets scratch_bytes */
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
    /* As many rows as the slots for a tenth hold at the load of 0.95 that tables start with. */
    for (uint32_t i = 0; i < s->step_tables; i++)
        each[i] = (struct gpu_table_options){
            .rows_start = s->step_rows / 10 * 19 / 20, .seed = 11 + i, .init_seed = 5, .init_bound = 0.01F};
    uint64_t slot = t->row_bytes + sizeof(struct gpu_row_head) + 8, rows = s->step_rows * s->step_tables;
    struct gpu_tables_options set = {.tables = s->step_tables,
                                     .table = each,
                                     .d = s->step_d,
                                     .format = ROW_FP32,
                                     .optimizer = OPT_ADAM,
                                     .batch_max = t->ids[0].in.n,
                                     .memory_bytes = UINT64_MAX / 2};
    struct gpu_tables_plan plan;
    tables_check(t->b->api->plan(&set, UINT64_MAX / 2, &plan, &error), &error);
    set.memory_bytes = plan.bytes_least;
    struct device_table_options options = {.api = t->b->place->api,
                                           .gpu = t->b->place->gpu,
                                           .stream = t->b->place->stream,
                                           .tables = set,
                                           .pinned_bytes = rows * (slot + 64),
                                           .ahead = 2};
    t->table = device_table_new(&options, &error);
    tables_check(t->table != NULL, &error);
}

/* Makes every row, the most frequent ones last. */
static void fill_tables(struct tiers *t)
{
    struct gpu_error error = {0};
    uint32_t each = t->ids[0].places[0] / FILLS_A_STEP;
    struct tier_ids ids = make_ids(t->b, each);
    for (int64_t first = (int64_t)t->b->sizes->step_rows; first > 0;) {
        first = first > each ? first - each : 0;
        put_ids(t, &ids, first, 0);
        struct gpu_batch batch = batch_of(&ids, ++t->b->step);
        tables_check(device_table_step(t->table, &batch, t->rows, &error), &error);
        place_wait(t->b->place);
    }
}

/* The share of all rows that lies in the GPU's memory, in percent. */
static double percent_there(struct tiers *t)
{
    const struct tables_sizes *s = t->b->sizes;
    struct gpu_table_stats stats;
    struct gpu_error error = {0};
    uint64_t rows = 0;
    for (uint32_t i = 0; i < s->step_tables; i++) {
        tables_check(t->b->api->stats(device_table_tables(t->table), t->b->place->stream, i, &stats, &error),
                     &error);
        rows += stats.rows;
    }
    return 100.0 * (double)rows / (double)(s->step_rows * s->step_tables);
}

void bench_tiers(struct tables_bench *b)
{
    struct tiers t = {.b = b};
    uint32_t d = b->sizes->step_d;
    for (int i = 0; i < TIER_BATCHES; i++)
        t.ids[i] = make_ids(b, b->sizes->step_n / b->sizes->step_tables);
    uint32_t n = t.ids[0].in.n;
    b->step = 0;
    t.rows = place_zeros(b->place, n * sizeof(*t.rows));
    t.out = place_zeros(b->place, (size_t)n * d * sizeof(float));
    t.grads = place_floats(b->place, (size_t)n * d);
    t.rejected = place_zeros(b->place, sizeof(uint32_t));
    make_tables(&t);
    fill_tables(&t);
    for (int i = 0; i < TIER_BATCHES; i++)
        put_ids(&t, &t.ids[i], -1, 1000 + (uint64_t)i);
    b->step++;
    for (int i = 0; i < WARM_UP; i++)
        run_step(b->place, &t);
    uint64_t before = device_table_stats(t.table).fetched;
    double ms = place_time_ms(b->place, run_step, NULL, &t);
    double fetched = (double)(device_table_stats(t.table).fetched - before) / (t.turn - WARM_UP);
    char what[160];
    (void)snprintf(what, sizeof(what),
                   "a whole step: rows from below, gather, update (Adam); bytes: rows that came; %.3g %% of "
                   "the rows in the GPU's memory",
                   percent_there(&t));
    line_print(&(struct line){.group = "tables",
                              .figure = "tiers",
                              .what = what,
                              .variant = b->place->name,
                              .ms = ms,
                              .bytes = fetched * (double)(t.row_bytes + sizeof(struct gpu_row_head)),
                              .items = n,
                              .unit = "look-ups"});
    place_wait(b->place);
    device_table_free(t.table);
    place_release(b->place);
}
