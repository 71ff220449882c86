/*
 * The same models learn a million events on a device and on the CPU: their progressive loglosses differ by
 * no more than the order of sums explains (docs/design.md, section 9): 1e-6 linear, 1e-5 with factors,
 * 1e-4 with dense layers. On the host's model of a device, where only layers whose gradients the CPU
 * computes by distinct ids (learners/train/distinct.c) differ, a few thousand events are learned;
 * `--whole` learns the million there too, in an hour.
 *
 *   test_learns_alike [--reduced | --whole]
 */
#include "../open_device.h"

#include "core/base.h"
#include "kernels/num.h"
#include "learners/learner/metrics.h"
#include "learners/model/internal.h"
#include "learners/networks/networks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
enum { EVENTS_REDUCED = 1000 };
#else
enum { EVENTS_REDUCED = 2000 };
#endif
enum { EVENTS = 1000000, CALL = 1000, FIELDS = 4, DENSE = 2 };

static const struct cross_network cross = {.layers = 2};
static const struct dot_network dot = {.bottom = {32}};
static const struct experts_network experts = {.experts = 3};
static const struct attention_network attention = {.width = 16};
static const struct {
    const char *name;
    const struct interaction *interaction;
    const struct network *network;
    const void *own;
    uint32_t fields;
    double tolerance;
} kinds[] = {
    {"linear", NULL, NULL, NULL, FIELDS, 1e-6},
    {"fm", &interaction_fm, NULL, NULL, FIELDS, 1e-5},
    {"ffm", &interaction_ffm, NULL, NULL, FIELDS, 1e-5},
    {"mf", &interaction_fm, NULL, NULL, 2, 1e-5},
    {"deepfm", &interaction_fm, &network_deep, NULL, FIELDS, 1e-4},
    {"dcnv2", NULL, &network_cross, &cross, FIELDS, 1e-4},
    {"dlrm", NULL, &network_dot, &dot, FIELDS, 1e-4},
    {"mmoe", NULL, &network_experts, &experts, FIELDS, 1e-4},
    {"afm", NULL, &network_attention, &attention, FIELDS, 1e-4},
};

static struct model_options options_of(size_t k)
{
    struct optimizer_options adagrad = {
        .kind = OPT_ADAGRAD, .params = {.rate = 0.05F, .decay = 1.0F, .step_max = 1.0F}, .accumulator = 0.3F};
    bool has_vectors = kinds[k].interaction != NULL || kinds[k].network != NULL;
    bool has_layers = kinds[k].network != NULL;
    return (struct model_options){.interaction = kinds[k].interaction,
                                  .network = kinds[k].network,
                                  .linear_is_off = network_needs_batches(kinds[k].network) &&
                                                   kinds[k].network != &network_attention,
                                  .fields = kinds[k].fields,
                                  .vectors = has_vectors ? kinds[k].fields : 0,
                                  .dense = DENSE,
                                  .dim = 16,
                                  .init_bound = 0.05F,
                                  .linear = adagrad,
                                  .embedding = adagrad,
                                  .head = adagrad,
                                  .hidden = {has_layers ? 64 : 0},
                                  .network_own = kinds[k].own,
                                  .labels = kinds[k].network == &network_experts ? 1 : 0,
                                  .block = 1,
                                  .batch = 512,
                                  .slice = 128,
                                  .admit_after = 2,
                                  .sketch_bytes = 1 << 16,
                                  .class_weights = {1.0F, 1.0F},
                                  .negatives_kept = 1.0,
                                  .seed = 11};
}

/* --- Events, each from its number alone --- */

struct events {
    uint64_t ids[FIELDS][CALL];
    float dense[DENSE][CALL], labels[CALL];
    int64_t times[CALL];
};

static double uniform(uint64_t of)
{
    return (double)(num_mix(of) >> 11) * 0x1p-53;
}

/* A few ids make up most occurrences, and each moves the label a little. */
static void make(struct events *e, uint64_t first)
{
    static const double ids_of[FIELDS] = {100000, 20000, 300, 24};
    for (uint64_t i = 0; i < CALL; i++) {
        uint64_t at = (first + i) * 16;
        double logit = -1.5;
        for (uint64_t f = 0; f < FIELDS; f++) {
            double u = uniform(at + f);
            e->ids[f][i] = 1 + (uint64_t)(ids_of[f] * u * u * u);
            logit += 1.5 * uniform(e->ids[f][i] * 8 + f) - 0.75;
        }
        for (uint64_t d = 0; d < DENSE; d++) {
            e->dense[d][i] = (float)uniform(at + 8 + d) - 0.5F;
            logit += (double)e->dense[d][i];
        }
        e->labels[i] = uniform(at + 15) < 1.0 / (1.0 + exp(-logit)) ? 1.0F : 0.0F;
        e->times[i] = (int64_t)(first + i) * 1000;
    }
}

static const struct kernels *best(void)
{
    const char *reason;
    return kernels_pick(NULL, &reason);
}

static double logloss(struct model *m, uint64_t events)
{
    static struct events e;
    static double logits[CALL];
    static uint8_t verdicts[CALL];
    static struct metrics metrics;
    const uint64_t *ids[FIELDS];
    const float *dense[DENSE];
    for (int f = 0; f < FIELDS; f++)
        ids[f] = e.ids[f];
    for (int d = 0; d < DENSE; d++)
        dense[d] = e.dense[d];
    struct model_input in = {
        .rows = CALL, .ids = ids, .dense = dense, .labels = e.labels, .event_time_us = e.times};
    struct model_output out = {.logits = logits, .verdicts = verdicts};
    metrics_init(&metrics, LOSS_LOGISTIC, 100000);
    for (uint64_t at = 0; at < events; at += CALL) {
        make(&e, at);
        model_learn(m, &in, &out);
        if (model_error(m) != NULL)
            must(false, model_error(m), "learning");
        metrics_add(&metrics, best(), logits, e.labels, CALL);
    }
    return metrics_values(&metrics, false).logloss;
}

static void test_learns_alike(size_t k, uint64_t events)
{
    struct gpu_error error;
    struct model_options o = options_of(k);
    struct model_device d = {
        .api = api, .gpu = gpu, .stream = stream, .memory_bytes = 512 << 20, .pinned_bytes = 16 << 20};
    struct model *cpu = model_new(&o, best());
    o.is_on_device = true;
    struct model *device = model_new(&o, best());
    must(model_attach(device, &d, &error), &error, "model_attach");
    double ours = logloss(cpu, events), theirs = logloss(device, events);
    bool is_good = fabs(ours - theirs) <= kinds[k].tolerance && ours < log(2.0);
    char text[160];
    snprintf(text, sizeof(text), "%s: logloss %.8f on the CPU, %.8f on the device after %llu events",
             kinds[k].name, ours, theirs, (unsigned long long)events);
    report(is_good, text);
    model_free(cpu);
    model_free(device);
}

int main(int argc, char **argv)
{
    bool is_reduced = argc > 1 && strcmp(argv[1], "--reduced") == 0;
    bool is_whole = argc > 1 && strcmp(argv[1], "--whole") == 0;
    if (argc > 2 || (argc == 2 && !is_reduced && !is_whole)) {
        fprintf(stderr, "usage: test_learns_alike [--reduced | --whole]\n");
        return 2;
    }
    if (!device_open())
        return 77;
    is_reduced |= !is_whole && is_host_model();
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++)
        test_learns_alike(k, is_reduced ? EVENTS_REDUCED : EVENTS);
    return device_close();
}
