/*
 * Training on a GPU: the figures that have a target (docs/gpu.md).
 *   bench_train [--tiny] FIGURE...          dlrm, deepfm, dcnv2
 * One line of JSON a figure (place.h). From decoded columns in host memory, ids by Zipf's law: `steps` alone,
 * and `learning`, where each event is predicted first. --tiny: small models, each call made once, nothing
 * timed.
 */
#include "place.h"

#include "core/base.h"
#include "learners/model_internal.h"
#include "learners/train/train.h"

#include <stdlib.h>
#include <string.h>

_Noreturn void leat_assert_failed(const char *condition, const char *file, int line, const char *function)
{
    fprintf(stderr, "%s:%d: %s: `%s`\n", file, line, function, condition);
    abort();
}

enum { TURNS = 4, FIELDS_MAX = 26, DENSE_MAX = 13 };

struct shape {
    const char *name, *what;
    enum interaction_kind interaction;
    enum network_kind network;
    enum opt_kind optimizer;
    uint32_t fields, dense, dim, hidden[MODEL_LAYERS_MAX], bottom[MODEL_LAYERS_MAX], batches[3];
};

/* dlrm: Criteo's shape, "DLRM small" of NVIDIA's examples. deepfm, dcnv2: those of jobs/ctr_*.leat. */
static const struct shape shapes[] = {
    {"dlrm",
     "26 tables, dim 128, bottom 512-256-128, top 1024-1024-512-256-1, SGD",
     INTERACTION_NONE,
     NETWORK_DOT,
     OPT_SGD,
     26,
     13,
     128,
     {1024, 1024, 512, 256},
     {512, 256},
     {65536}},
    {"deepfm",
     "12 fields, dim 16, 128-64, AdaGrad",
     INTERACTION_FM,
     NETWORK_HIDDEN,
     OPT_ADAGRAD,
     12,
     4,
     16,
     {128, 64},
     {0},
     {512, 4096, 65536}},
    {"dcnv2",
     "12 fields, dim 16, 3 cross layers, 128-64, AdaGrad",
     INTERACTION_NONE,
     NETWORK_CROSS,
     OPT_ADAGRAD,
     12,
     4,
     16,
     {128, 64},
     {0},
     {512, 4096, 65536}},
};

struct training {
    struct place *place;
    struct model *model;
    uint32_t batch, fields, dense, turn;
    uint64_t *ids[TURNS][FIELDS_MAX];
    float *dense_columns[DENSE_MAX], *labels;
};

static void check(bool is_good, const struct gpu_error *error)
{
    if (is_good)
        return;
    fprintf(stderr, "%s\n", error->text);
    exit(1);
}

static struct model_options options_of(const struct shape *s, uint32_t batch)
{
    struct optimizer_options optimizer = {.kind = s->optimizer,
                                          .params = {.rate = 0.01F, .decay = 1.0F, .step_max = 1.0F},
                                          .accumulator = 0.1F};
    struct model_options o = {.interaction = s->interaction,
                              .network = s->network,
                              .linear_is_off = s->network > NETWORK_HIDDEN,
                              .fields = s->fields,
                              .vectors = s->fields,
                              .dense = s->dense,
                              .dim = s->dim,
                              .init_bound = 0.05F,
                              .linear = optimizer,
                              .embedding = optimizer,
                              .head = optimizer,
                              .cross_layers = 3,
                              .block = 1,
                              .batch = batch,
                              .admit_after = 1,
                              .class_weights = {1.0F, 1.0F},
                              .negatives_kept = 1.0,
                              .seed = 1,
                              .is_on_device = true};
    memcpy(o.hidden, s->hidden, sizeof o.hidden);
    memcpy(o.bottom, s->bottom, sizeof o.bottom);
    return o;
}

static void make(struct training *t, struct place *place, const struct shape *s, uint32_t batch)
{
    const char *reason;
    struct gpu_error error = {0};
    struct gpu_device devices[GPU_DEVICES_MAX];
    *t = (struct training){.place = place, .batch = batch, .fields = s->fields, .dense = s->dense};
    for (uint32_t turn = 0; turn < TURNS; turn++)
        for (uint32_t f = 0; f < s->fields; f++) {
            t->ids[turn][f] = host_room(batch * sizeof(uint64_t));
            ids_fill(t->ids[turn][f], batch, IDS_ZIPF, f); /* few of them are the same in each turn */
            for (uint32_t i = 0; i < batch; i++)
                t->ids[turn][f][i] += i % 2 == 0 ? 0 : turn;
        }
    for (uint32_t d = 0; d < s->dense; d++)
        t->dense_columns[d] = host_room(batch * sizeof(float));
    t->labels = host_room(batch * sizeof(float));
    for (uint32_t i = 0; i < batch; i++) {
        t->labels[i] = i % 5 == 0 ? 1.0F : 0.0F;
        for (uint32_t d = 0; d < s->dense; d++)
            t->dense_columns[d][i] = (float)((i * 7 + d) % 64) / 64.0F;
    }
    struct model_options o = options_of(s, batch);
    check(place->api->devices(devices, &error) > 0, &error);
    struct model_device d = {.api = place->api,
                             .gpu = place->gpu,
                             .stream = place->stream,
                             .memory_bytes = place->size == SIZE_TINY ? 64 << 20 : devices[0].memory_free / 2,
                             .pinned_bytes = 64 << 20};
    t->model = model_new(&o, kernels_pick(NULL, &reason));
    check(model_attach(t->model, &d, &error), &error);
}

/* The events of the turn from `from` on, as a learner gets them. */
static struct model_input input(const struct training *t, const uint64_t **ids, const float **dense,
                                uint32_t from, uint32_t rows)
{
    for (uint32_t f = 0; f < t->fields; f++)
        ids[f] = t->ids[t->turn % TURNS][f] + from;
    for (uint32_t d = 0; d < t->dense; d++)
        dense[d] = t->dense_columns[d] + from;
    return (struct model_input){.rows = rows, .ids = ids, .dense = dense, .labels = t->labels + from};
}

static void run_steps(struct place *place, void *state)
{
    (void)place;
    static uint32_t seen[1 << 16];
    struct training *t = state;
    struct gpu_error error = {0};
    const uint64_t *ids[FIELDS_MAX];
    const float *dense[DENSE_MAX];
    struct model_input in = input(t, ids, dense, 0, t->batch);
    struct train_events events = {.in = &in, .seen = seen};
    check(train_wait(&t->model->train->device, &error), &error); /* columns of the last step were read */
    train_add(t->model->train, &events, 0, t->batch);
    check(train_step(t->model->train, &error), &error);
    t->turn++;
}

static void run_learning(struct place *place, void *state)
{
    (void)place;
    static double logits[MODEL_ROWS_MAX];
    static uint8_t verdicts[MODEL_ROWS_MAX];
    struct training *t = state;
    const uint64_t *ids[FIELDS_MAX];
    const float *dense[DENSE_MAX];
    struct model_output out = {.logits = logits, .verdicts = verdicts};
    for (uint32_t at = 0; at < t->batch; at += MODEL_ROWS_MAX) {
        struct model_input in = input(t, ids, dense, at, MIN(t->batch - at, (uint32_t)MODEL_ROWS_MAX));
        model_learn(t->model, &in, &out);
        if (model_error(t->model))
            check(false, model_error(t->model));
    }
    t->turn++;
}

static void bench(struct place *place, const struct shape *shape)
{
    static const uint32_t warm_up = 8; /* rows are made, graphs recorded */
    struct training t;
    struct shape s = *shape;
    bool is_tiny = place->size == SIZE_TINY;
    if (is_tiny) {
        s.batches[0] = 48, s.batches[1] = 0;
        s.dim = 4, s.hidden[0] = 8, s.hidden[1] = 0, s.bottom[0] = s.bottom[0] > 0 ? 8 : 0, s.bottom[1] = 0;
    }
    for (size_t b = 0; b < ARRAY_COUNT(s.batches) && s.batches[b] > 0; b++) {
        char figure[64];
        make(&t, place, &s, s.batches[b]);
        for (uint32_t i = 0; i < warm_up && !is_tiny; i++)
            run_steps(place, &t);
        (void)snprintf(figure, sizeof figure, "%s %u", s.name, shape->batches[b]);
        struct line line = {.group = "training",
                            .figure = figure,
                            .what = s.what,
                            .variant = place->name,
                            .ms = place_time_ms(place, run_steps, NULL, &t),
                            .items = t.batch,
                            .unit = "samples"};
        line_print(&line);
        (void)snprintf(figure, sizeof figure, "%s %u, learning", s.name, shape->batches[b]);
        line.what = "the same, each event predicted before";
        line.ms = place_time_ms(place, run_learning, NULL, &t);
        line_print(&line);
        model_free(t.model);
    }
}

int main(int argc, char **argv)
{
    struct place place;
    bool is_tiny = argc > 1 && strcmp(argv[1], "--tiny") == 0;
    if (!place_open_device(&place, is_tiny))
        return 0;
    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++)
        for (int a = 1; a < argc; a++)
            if (strcmp(argv[a], shapes[i].name) == 0)
                bench(&place, &shapes[i]);
    place_close(&place);
    return 0;
}
