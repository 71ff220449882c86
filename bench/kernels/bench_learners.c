/*
 * One progressive pass of a model over decoded columns (npz_to_columns.py), on one thread, by its CPU time,
 * or with a second, helping thread (helper=1), by wall time:
 *   bench_learners FILE key=value ...     events/s, logloss, AUC
 * Keys: model=linear|fm|ffm|mf|deepfm|dcnv2|dlrm|mmoe|afm dim= init= opt= rate= acc= l2= decay=, the same with
 * prefix l for the linear part (also lopt=ftrl64) and h for the head, hidden=128,64 bottom= crosses= experts=
 * attention= block= batch= slice= precision=fp32|bf16 bias= clip= cross=3-4,3-5 limit= chunk= dense=0|1. mmoe has a second
 * label; mf uses the first two fields only.
 */
#include "learners/learner/metrics.h"
#include "learners/model/model.h"
#include "learners/networks/networks.h"

#include "core/base.h"
#include "core/team.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CHUNK = 1024 };

struct columns_file {
    uint64_t events;
    uint32_t fields, dense;
    uint64_t *ids[MODEL_FIELDS_MAX];
    float *dense_columns[MODEL_DENSE_MAX];
    float *labels;
    int64_t *times;
    float *kept; /* a second label; NULL if the file has none */
};

static const char *option(char **args, const char *key, const char *fallback)
{
    size_t length = strlen(key);
    for (; *args; args++) { /* the last one counts */
        if (strncmp(*args, key, length) == 0 && (*args)[length] == '=')
            fallback = *args + length + 1;
    }
    return fallback;
}

static double real(char **args, const char *key, double fallback)
{
    const char *text = option(args, key, NULL);
    return text ? strtod(text, NULL) : fallback;
}

static void *read_column(FILE *file, size_t count, size_t size)
{
    void *p = malloc(count * size);
    if (p == NULL || fread(p, size, count, file) != count) {
        fprintf(stderr, "cannot read a column of %zu\n", count);
        exit(1);
    }
    return p;
}

static void load(struct columns_file *c, const char *path)
{
    FILE *file = fopen(path, "rb");
    uint64_t head[3];
    if (file == NULL || fread(head, sizeof(head), 1, file) != 1) {
        perror(path);
        exit(1);
    }
    c->events = head[0];
    c->fields = (uint32_t)head[1];
    c->dense = (uint32_t)head[2];
    for (uint32_t f = 0; f < c->fields; f++)
        c->ids[f] = read_column(file, c->events, 8);
    for (uint32_t d = 0; d < c->dense; d++)
        c->dense_columns[d] = read_column(file, c->events, 4);
    c->labels = read_column(file, c->events, 4);
    c->times = read_column(file, c->events, 8);
    int more = getc(file);
    if (more != EOF) {
        ungetc(more, file);
        c->kept = read_column(file, c->events, 4);
    }
    fclose(file);
}

/* text: "3-4,0-3". Adds a field for each pair: the hash of the two fields' ids. */
static void add_crosses(struct columns_file *c, const char *text)
{
    char *end;
    while (text && *text) {
        unsigned long a = strtoul(text, &end, 10), b = strtoul(end + 1, &end, 10);
        uint64_t *column = malloc(c->events * sizeof(*column));
        for (uint64_t i = 0; i < c->events; i++)
            column[i] = num_mix(c->ids[a][i] * 0x9e3779b97f4a7c15U + c->ids[b][i]) | 1;
        c->ids[c->fields++] = column;
        text = *end ? end + 1 : end;
    }
}

/* Adds a field for each dense column: its value in steps of 1 / bins. */
static void add_bins(struct columns_file *c, double bins)
{
    for (uint32_t d = 0; bins > 0.0 && d < c->dense; d++) {
        uint64_t *column = malloc(c->events * sizeof(*column));
        for (uint64_t i = 0; i < c->events; i++)
            column[i] = num_mix((uint64_t)(int64_t)((double)c->dense_columns[d][i] * bins + 1000.0)) | 1;
        c->ids[c->fields++] = column;
    }
}

static struct optimizer_options optimizer(char **args, const char *prefix, double rate, double acc)
{
    static const char *const names[OPT_KINDS] = {"sgd",           "momentum", "adagrad", "adagrad_row",
                                                 "adagrad_block", "adam",     "ftrl",    "newton"};
    struct optimizer_options o = {.kind = OPT_ADAGRAD};
    char key[32];
#define KEY(name) (snprintf(key, sizeof(key), "%s" name, prefix), key)
    const char *name = option(args, KEY("opt"), "adagrad");
    for (int i = 0; i < OPT_KINDS; i++) {
        if (strcmp(name, names[i]) == 0)
            o.kind = (enum opt_kind)i;
    }
    o.params = (struct opt_params){
        .rate = (float)real(args, KEY("rate"), rate),
        .l1 = (float)real(args, KEY("l1"), 0.0),
        .l2 = (float)real(args, KEY("l2"), 0.0),
        .epsilon = (float)real(args, KEY("eps"), 1e-6),
        .decay = (float)real(args, KEY("decay"), 1.0),
        .beta1 = (float)real(args, KEY("beta1"), 0.9),
        .beta2 = (float)real(args, KEY("beta2"), 0.999),
        .correction1 = 1.0F,
        .correction2 = 1.0F,
        .step_max = (float)real(args, KEY("step_max"), 1.0),
    };
    o.accumulator = (float)real(args, KEY("acc"), acc);
#undef KEY
    return o;
}

/* The networks of the learners' kinds; arguments may set other widths. */
struct shape {
    const char *name;
    const struct interaction *interaction;
    const struct network *network;
    uint32_t fields, labels; /* fields 0: all */
    const char *dim, *hidden, *bottom;
};
static const struct shape shapes[] = {
    {"linear", NULL, NULL, 0, 1, "0", "", ""},
    {"fm", &interaction_fm, NULL, 0, 1, "8", "", ""},
    {"ffm", &interaction_ffm, NULL, 0, 1, "8", "", ""},
    {"mf", &interaction_fm, NULL, 2, 1, "16", "", ""},
    {"deepfm", &interaction_fm, &network_deep, 0, 1, "16", "128,64", ""},
    {"dcnv2", NULL, &network_cross, 0, 1, "16", "128,64", ""},
    {"dlrm", NULL, &network_dot, 0, 1, "16", "128,64", "64"},
    {"mmoe", NULL, &network_experts, 0, 2, "16", "64", "32"},
    {"afm", NULL, &network_attention, 0, 1, "16", "", ""},
};

static const struct shape *shape_of(char **args)
{
    const char *name = option(args, "model", "linear");
    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++) {
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    }
    fprintf(stderr, "no model %s\n", name);
    exit(2);
}

static void widths(uint32_t *to, const char *text)
{
    for (size_t i = 0; *text && i < MODEL_LAYERS_MAX; i++) {
        char *end;
        to[i] = (uint32_t)strtoul(text, &end, 10);
        text = *end ? end + 1 : end;
    }
}

/* The network's own options; NULL: it has none. */
static const void *network_own(char **args, const struct shape *shape)
{
    static struct cross_network cross;
    static struct dot_network dot;
    static struct experts_network experts;
    static struct attention_network attention;
    cross.layers = (uint32_t)real(args, "crosses", 3.0);
    experts.experts = (uint32_t)real(args, "experts", 4.0);
    attention.width = (uint32_t)real(args, "attention", 16.0);
    widths(dot.bottom, option(args, "bottom", shape->bottom));
    widths(experts.towers, option(args, "bottom", shape->bottom));
    return shape->network == &network_cross       ? (const void *)&cross
           : shape->network == &network_dot       ? (const void *)&dot
           : shape->network == &network_experts   ? (const void *)&experts
           : shape->network == &network_attention ? (const void *)&attention
                                                  : NULL;
}

static struct model_options model_options(char **args, const struct columns_file *c)
{
    const struct shape *shape = shape_of(args);
    struct model_options o = {
        .interaction = shape->interaction,
        .network = shape->network,
        .linear_is_off = network_needs_batches(shape->network) && shape->network != &network_attention,
        .labels = shape->labels,
        .network_own = network_own(args, shape),
        .fields = shape->fields > 0 ? shape->fields : c->fields,
        .dense = shape->fields == 0 && real(args, "dense", 1.0) > 0.0 ? c->dense : 0,
        .init_bound = (float)real(args, "init", 0.1),
        .linear = optimizer(args, "l", 0.1, 1.0),
        .embedding = optimizer(args, "", 0.1, 1.0),
        .head = optimizer(args, "h", 0.05, 1.0),
        .linear_is_double = strcmp(option(args, "lopt", ""), "ftrl64") == 0,
        .ftrl = {real(args, "alpha", 0.1), real(args, "beta", 1.0), real(args, "ftrl1", 0.0),
                 real(args, "ftrl2", 0.0)},
        .block = (uint32_t)real(args, "block", 16.0),
        .batch = (uint32_t)real(args, "batch", 1.0),
        .slice = (uint32_t)real(args, "slice", MODEL_SLICE),
        .precision = strcmp(option(args, "precision", "fp32"), "bf16") == 0 ? ROW_BF16 : ROW_FP32,
        .bias = (float)real(args, "bias", 0.0),
        .clip_norm = (float)real(args, "clip", 0.0),
        .class_weights = {1.0F, 1.0F},
        .negatives_kept = real(args, "keep", 1.0),
        .is_joint = real(args, "joint", 0.0) > 0.0,
        .seed = (uint64_t)real(args, "seed", 1.0),
        .admit_after = (uint32_t)real(args, "admit", 0.0),
        .sketch_bytes = 1 << 22,
        .rows_max = (uint64_t)real(args, "rows_max", 0.0),
    };
    o.vectors = (uint32_t)real(args, "vectors", (double)o.fields);
    o.pairs = optimizer(args, "p", 0.0, 1.0);
    const char *mask = option(args, "mask", "");
    for (size_t i = 0; mask[i] && i < sizeof(o.pair_is_off); i++)
        o.pair_is_off[i] = mask[i] == '0';
    const char *laccs = option(args, "laccs", "");
    for (size_t f = 0; *laccs && f < MODEL_FIELDS_MAX; f++) {
        char *end;
        o.field_precision[f] = strtof(laccs, &end);
        laccs = *end ? end + 1 : end;
    }
    const char *inits = option(args, "inits", "");
    for (size_t f = 0; *inits && f < MODEL_FIELDS_MAX; f++) {
        char *end;
        o.field_init[f] = strtof(inits, &end);
        inits = *end ? end + 1 : end;
    }
    o.dim = (uint32_t)strtoul(option(args, "dim", shape->dim), NULL, 10);
    widths(o.hidden, option(args, "hidden", shape->hidden));
    if (model_learns_by_batches(&o) && model_clashes(&o) != 0) {
        fprintf(stderr, "%s: these arguments need batch=1\n", shape->name);
        exit(2);
    }
    return o;
}

/* A second thread that only helps. */
struct helper {
    struct team team;
    pthread_t thread;
    atomic_bool is_over;
};

static void *help(void *argument)
{
    struct helper *h = argument;
    for (unsigned round = 0; !atomic_load_explicit(&h->is_over, memory_order_relaxed); round++) {
        if (!team_help(&h->team))
            team_pause(round);
    }
    return NULL;
}

static void wake_nobody(void *engine)
{
    (void)engine;
}

static clockid_t time_of = CLOCK_THREAD_CPUTIME_ID;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(time_of, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint32_t replays;

/* Learns an earlier chunk again: an experiment, see README.md. */
static void replay(struct model *model, const struct columns_file *c, uint32_t chunk, uint64_t at)
{
    const uint64_t *ids[MODEL_FIELDS_MAX];
    const float *dense[MODEL_DENSE_MAX];
    static double logits[MODEL_LABELS_MAX * CHUNK];
    uint8_t verdicts[CHUNK];
    struct model_output out = {.logits = logits, .verdicts = verdicts};
    for (uint32_t f = 0; f < c->fields; f++)
        ids[f] = c->ids[f] + at;
    for (uint32_t d = 0; d < c->dense; d++)
        dense[d] = c->dense_columns[d] + at;
    struct model_input in = {
        .rows = chunk, .ids = ids, .dense = dense, .labels = c->labels + at, .event_time_us = c->times + at};
    model_learn(model, &in, &out);
}

static double pass(struct model *model, const struct kernels *kernels, struct metrics *metrics,
                   const struct columns_file *c, uint32_t chunk, uint64_t limit, FILE *predictions)
{
    static double logits[MODEL_LABELS_MAX * CHUNK];
    uint8_t verdicts[CHUNK];
    struct model_output out = {.logits = logits, .verdicts = verdicts};
    double begin = seconds();
    for (uint64_t at = 0; at < limit; at += chunk) {
        const uint64_t *ids[MODEL_FIELDS_MAX];
        const float *dense[MODEL_DENSE_MAX], *kept = c->kept != NULL ? c->kept + at : NULL;
        for (uint32_t f = 0; f < c->fields; f++)
            ids[f] = c->ids[f] + at;
        for (uint32_t d = 0; d < c->dense; d++)
            dense[d] = c->dense_columns[d] + at;
        struct model_input in = {
            .rows = (uint32_t)MIN((uint64_t)chunk, limit - at),
            .ids = ids,
            .dense = dense,
            .labels = c->labels + at,
            .more_labels = &kept,
            .event_time_us = c->times + at,
        };
        model_learn(model, &in, &out);
        metrics_add(&metrics[0], kernels, logits, in.labels, in.rows);
        if (metrics[1].slice_events > 0)
            metrics_add(&metrics[1], kernels, logits + MODEL_ROWS_MAX, kept, in.rows);
        if (predictions != NULL)
            fwrite(logits, sizeof(*logits), in.rows, predictions);
        for (uint32_t r = 0; r < replays && at > 0; r++)
            replay(model, c, chunk, num_mix(at * 8 + r) % (at / chunk) * chunk);
    }
    return seconds() - begin;
}

int main(int argc, char **argv)
{
    static struct columns_file c;
    static struct metrics metrics[2];
    if (argc < 2) {
        fprintf(stderr, "usage: bench_learners FILE [key=value ...]\n");
        return 2;
    }
    const char *reason;
    const struct kernels *kernels = kernels_pick_env(&reason);
    if (kernels == NULL) {
        fprintf(stderr, "LEAT_KERNELS: %s\n", reason);
        return 2;
    }
    load(&c, argv[1]);
    replays = (uint32_t)real(argv, "replay", 0.0);
    add_bins(&c, real(argv, "bins", 0.0));
    add_crosses(&c, option(argv, "cross", NULL));
    uint64_t limit = MIN(c.events, (uint64_t)real(argv, "limit", 1e18));
    metrics_init(&metrics[0], LOSS_LOGISTIC, limit / 5);
    struct model_options options = model_options(argv, &c);
    if (options.labels > 1 && c.kept == NULL) {
        fprintf(stderr, "%s has one label\n", argv[1]);
        return 2;
    }
    if (options.labels > 1)
        metrics_init(&metrics[1], LOSS_LOGISTIC, limit / 5);
    struct model *model = model_new(&options, kernels);
    struct helper helper = {.team = {.wake = wake_nobody}};
    bool is_helped = real(argv, "helper", 0.0) > 0.0;
    if (is_helped) {
        time_of = CLOCK_MONOTONIC;
        model_set_team(model, &helper.team);
        leat_assert(pthread_create(&helper.thread, NULL, help, &helper) == 0);
    }
    const char *path = option(argv, "out", NULL);
    FILE *predictions = path != NULL ? fopen(path, "wb") : NULL;
    for (double again = real(argv, "warm", 0.0); again > 0.0; again--)
        (void)pass(model, kernels, metrics, &c, CHUNK, limit, NULL);
    double s = pass(model, kernels, metrics, &c, (uint32_t)real(argv, "chunk", CHUNK), limit, predictions);
    struct metrics_values v = metrics_values(&metrics[0], false), w = metrics_values(&metrics[0], true);
    uint64_t bytes = 0, rows = 0;
    for (uint32_t f = 0; f < options.fields; f++) {
        bytes += table_bytes(model_table(model, f));
        rows += model_table(model, f)->stats.rows;
    }
    printf("%8.0f k/s  logloss %.5f  auc %.4f  last 20%% %.5f  calibration %.3f  rows %llu  %llu MB  [%s]\n",
           (double)limit / s / 1e3, v.logloss, v.auc, w.logloss, v.calibration, (unsigned long long)rows,
           (unsigned long long)(bytes >> 20), kernels->name);
    if (options.labels > 1)
        printf("second label: logloss %.5f\n", metrics_values(&metrics[1], false).logloss);
    const float *pairs = model_pair_weights(model);
    for (uint32_t f = 0, i = 0; pairs && option(argv, "show", NULL) && f < options.vectors; f++) {
        for (uint32_t g = f + 1; g < options.vectors; g++, i++)
            printf("pair %u %u %.4f\n", f, g, (double)pairs[i]);
    }
    if (predictions != NULL)
        fclose(predictions);
    atomic_store(&helper.is_over, true);
    if (is_helped)
        pthread_join(helper.thread, NULL);
    model_free(model);
    return 0;
}
