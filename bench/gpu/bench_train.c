/*
 * Training on a GPU: the figures that have a target (docs/gpu.md).
 *   bench_train [--tiny] FIGURE...          dlrm, deepfm, dcnv2, checkpoints-10, checkpoints-100
 * Prints one line of JSON a figure (place.h). Events are decoded columns in host memory, with ids by Zipf's
 * law: a figure of steps alone, and a figure `learning`, where each event is predicted first; dlrm in bf16
 * and in fp32. The checkpoints are in bench_checkpoint.c. --tiny: small models, each call made once, nothing
 * timed.
 */
#include "training.h"

#include "core/base.h"
#include "learners/model/internal.h"

#include <string.h>

/* dlrm: Criteo's shape, "DLRM small" of NVIDIA's examples. deepfm, dcnv2: the shapes of jobs/ctr_*.leat. */
static const struct training_shape shapes[] = {
    {"dlrm",
     "",
     "26 tables, dim 128, bottom 512-256-128, top 1024-1024-512-256-1, SGD, products of bf16",
     NULL,
     &network_dot,
     OPT_SGD,
     26,
     13,
     128,
     {1024, 1024, 512, 256},
     &(const struct dot_network){{512, 256}},
     &(const struct dot_network){{8}},
     {65536},
     ROW_BF16},
    {"deepfm",
     "",
     "12 fields, dim 16, 128-64, AdaGrad",
     &interaction_fm,
     &network_deep,
     OPT_ADAGRAD,
     12,
     4,
     16,
     {128, 64},
     NULL,
     NULL,
     {512, 4096, 65536},
     ROW_FP32},
    {"dcnv2",
     "",
     "12 fields, dim 16, 3 cross layers, 128-64, AdaGrad",
     NULL,
     &network_cross,
     OPT_ADAGRAD,
     12,
     4,
     16,
     {128, 64},
     &(const struct cross_network){3},
     &(const struct cross_network){3},
     {512, 4096, 65536},
     ROW_FP32},
};

static void run_learning(struct place *place, void *state)
{
    (void)place;
    static double logits[MODEL_ROWS_MAX];
    static uint8_t verdicts[MODEL_ROWS_MAX];
    struct training *t = state;
    const uint64_t *ids[TRAINING_FIELDS_MAX];
    const float *dense[TRAINING_DENSE_MAX];
    struct model_output out = {.logits = logits, .verdicts = verdicts};
    for (uint32_t at = 0; at < t->batch; at += MODEL_ROWS_MAX) {
        struct model_input in =
            training_input(t, ids, dense, at, MIN(t->batch - at, (uint32_t)MODEL_ROWS_MAX));
        model_learn(t->model, &in, &out);
        if (model_error(t->model) != NULL)
            training_check(false, model_error(t->model));
    }
    t->turn++;
}

static void bench(struct place *place, const struct training_shape *shape)
{
    static const uint32_t warm_up = 8; /* steps that make rows and record graphs */
    struct training t;
    struct training_shape s = training_sized(place, shape);
    bool is_tiny = place->size == SIZE_TINY;
    for (size_t b = 0; b < ARRAY_COUNT(s.batches) && s.batches[b] > 0; b++) {
        char figure[64];
        training_make(&t, place, &s, s.batches[b], training_memory(place));
        training_zipf(&t);
        for (uint32_t i = 0; i < warm_up && !is_tiny; i++)
            training_step(place, &t);
        (void)snprintf(figure, sizeof(figure), "%s %u%s", shape->name, shape->batches[b], shape->suffix);
        struct line line = {.group = "training",
                            .figure = figure,
                            .what = shape->what,
                            .variant = place->name,
                            .ms = place_time_ms(place, training_step, NULL, &t),
                            .items = t.batch,
                            .unit = "samples"};
        line_print(&line);
        (void)snprintf(figure, sizeof(figure), "%s %u%s, learning", shape->name, shape->batches[b],
                       shape->suffix);
        line.what = "the same, each event predicted before";
        line.ms = place_time_ms(place, run_learning, NULL, &t);
        line_print(&line);
        training_free(&t);
    }
}

/* A shape with sixteen-bit products is also measured in IEEE fp32. */
static void bench_precisions(struct place *place, const struct training_shape *shape)
{
    struct training_shape fp32 = *shape;
    bench(place, shape);
    if (shape->precision == ROW_FP32)
        return;
    fp32.suffix = ", fp32", fp32.what = "the same in IEEE fp32", fp32.precision = ROW_FP32;
    bench(place, &fp32);
}

int main(int argc, char **argv)
{
    struct place place;
    bool is_tiny = argc > 1 && strcmp(argv[1], "--tiny") == 0;
    if (!place_open_device(&place, is_tiny))
        return 0;
    for (int a = 1; a < argc; a++) {
        for (size_t i = 0; i < ARRAY_COUNT(shapes); i++)
            if (strcmp(argv[a], shapes[i].name) == 0)
                bench_precisions(&place, &shapes[i]);
        if (strcmp(argv[a], "checkpoints-10") == 0)
            bench_checkpoints(&place, &shapes[0], 10);
        if (strcmp(argv[a], "checkpoints-100") == 0)
            bench_checkpoints(&place, &shapes[0], 100);
    }
    place_close(&place);
    return 0;
}
