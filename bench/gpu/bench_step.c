/*
 * One training step's look-ups in several tables by one launch: forward (find the rows, gather their values)
 * and backward (dedupe the ids, find their rows, sum their gradients, update by Adam), and the parts of both.
 */
#include "tables.h"

#include <stdlib.h>

struct step {
    struct tables_bench *b;
    struct batch_dedupe ids;
    struct batch_update update;
    struct batch_gather_pool gather;
    const uint32_t *place_tables; /* by place: its table */
    float *out;
    uint8_t *found;
    void **rows; /* by index: its row */
    uint32_t distinct;
};

static void run_forward(struct place *place, void *state)
{
    struct step *s = state;
    s->b->api->find_values(s->b->set, place->stream, s->ids.ids, s->place_tables, NULL, s->ids.n, s->out,
                           s->found);
}

static void run_dedupe(struct place *place, void *state)
{
    struct step *s = state;
    place->kernels->dedupe(&s->ids, place->stream);
}

static void run_find(struct place *place, void *state)
{
    struct step *s = state;
    s->b->api->find(s->b->set, place->stream, s->ids.unique_ids, s->ids.unique_tables, s->ids.count, s->ids.n,
                    s->rows);
}

static void run_gather(struct place *place, void *state)
{
    struct step *s = state;
    place->kernels->gather_pool(&s->gather, place->stream);
}

static void run_update(struct place *place, void *state)
{
    struct step *s = state;
    place->kernels->update(&s->update, place->stream);
}

static void run_backward(struct place *place, void *state)
{
    run_dedupe(place, state);
    run_find(place, state);
    run_update(place, state);
}

static void make_ids(struct step *s, enum ids kind)
{
    struct tables_bench *b = s->b;
    struct place *place = b->place;
    uint32_t tables = b->sizes->step_tables, each = b->sizes->step_n / tables, n = each * tables;
    uint64_t *ids = host_room(n * sizeof(*ids));
    uint32_t *numbers = host_room(n * sizeof(*numbers)), offsets[BATCH_TABLES_MAX + 1] = {0};
    for (uint32_t t = 0; t < tables; t++) {
        ids_fill(ids + t * each, each, kind, 900 + t);
        offsets[t + 1] = (t + 1) * each;
        for (uint32_t i = t * each; i < (t + 1) * each; i++)
            numbers[i] = t;
    }
    s->place_tables = place_upload(place, numbers, n * sizeof(*numbers));
    s->ids = place_dedupe(place, ids, offsets, tables);
    free(ids), free(numbers);
}

/* Gives rows to the ids, in tables that are filled to nine tenths with other keys. */
static void make_rows(struct step *s)
{
    struct tables_bench *b = s->b;
    struct place *place = b->place;
    uint32_t tables = b->sizes->step_tables;
    uint64_t others = b->sizes->step_rows * 9 / 10 - 2 * (b->sizes->step_n / tables);
    tables_make(b, &(struct tables_shape){tables, b->sizes->step_rows, b->sizes->step_d, OPT_ADAM,
                                          b->sizes->step_n > b->sizes->n ? b->sizes->step_n : b->sizes->n});
    tables_fill(b, 0, tables, others, 1);
    run_dedupe(place, s);
    place_download(place, &s->distinct, s->ids.count, sizeof(s->distinct));
    struct gpu_batch batch = {.count = s->ids.count,
                              .keys = s->ids.unique_ids,
                              .tables = s->ids.unique_tables,
                              .starts = s->ids.starts,
                              .order = s->ids.order,
                              .n = s->ids.n,
                              .step = ++b->step,
                              .epoch = 1};
    b->api->resolve(b->set, place->stream, &batch, s->rows);
}

static void make_update(struct step *s)
{
    struct place *place = s->b->place;
    uint32_t n = s->ids.n, d = s->b->sizes->step_d;
    s->gather = (struct batch_gather_pool){
        .rows = (const void *const *)s->rows, .indices = s->ids.indices, .bags = n, .d = d, .out = s->out};
    s->update = (struct batch_update){.in = {.grads = place_floats(place, (size_t)n * d),
                                             .order = s->ids.order,
                                             .starts = s->ids.starts,
                                             .count = s->ids.count,
                                             .n = n,
                                             .d = d},
                                      .rows = s->rows,
                                      .keys = s->ids.unique_ids,
                                      .kind = OPT_ADAM,
                                      .params = place_params,
                                      .rejected = place_zeros(place, sizeof(uint32_t))};
    place->kernels->update(&s->update, place->stream);
    s->update.scratch = place_zeros(place, s->update.scratch_bytes + 1);
}

static void print(struct step *s, const char *figure, const char *what, void (*run)(struct place *, void *),
                  double bytes)
{
    line_print(&(struct line){.group = "tables",
                              .figure = figure,
                              .what = what,
                              .variant = s->b->place->name,
                              .ms = place_time_ms(s->b->place, run, NULL, s),
                              .bytes = bytes,
                              .items = s->ids.n,
                              .unit = "look-ups"});
}

static void step_with(struct tables_bench *b, enum ids kind)
{
    static const char *const names[IDS_KINDS][6] = {
        {"forward distinct", "backward distinct", "dedupe distinct", "find distinct", "gather distinct",
         "update distinct"},
        {"forward Zipf", "backward Zipf", "dedupe Zipf", "find Zipf", "gather Zipf", "update Zipf"}};
    struct step s = {.b = b};
    make_ids(&s, kind);
    s.rows = place_zeros(b->place, s.ids.n * sizeof(*s.rows));
    s.out = place_zeros(b->place, (size_t)s.ids.n * b->sizes->step_d * sizeof(float));
    s.found = place_zeros(b->place, s.ids.n);
    make_rows(&s);
    make_update(&s);
    double n = s.ids.n, u = s.distinct, row = 4.0 * b->sizes->step_d;
    double update = n * (12 + row) + 6.0 * u * row; /* gradients; weights and two moments, read and written */
    print(&s, names[kind][0], "find_values of all tables in one launch", run_forward,
          n * (8 + row) + u * (170 + row));
    print(&s, names[kind][1], "dedupe, find and update (Adam)", run_backward, 16 * n + 186 * u + update);
    print(&s, names[kind][2], "dedupe by sorting alone", run_dedupe, 16 * n + 16 * u);
    print(&s, names[kind][3], "find of the distinct ids alone", run_find, 178 * u);
    print(&s, names[kind][4], "gather_pool by the rows found, alone", run_gather, n * (12 + row) + u * row);
    print(&s, names[kind][5], "update (Adam) alone", run_update, update);
    tables_end(b);
}

void bench_step(struct tables_bench *b)
{
    for (int kind = 0; kind < IDS_KINDS; kind++)
        step_with(b, (enum ids)kind);
}
