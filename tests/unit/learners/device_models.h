/* Models on a device and on the CPU that learn the same events; saves, loads and compares them: shared by
 * test_device_model.c, test_device_cold.c and test_device_feed.c. On the host's model of a device all results
 * are equal bit for bit; on a device matrix products sum in another order, and numbers differ by 1e-5, or by
 * a step of 16 bits. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_DEVICE_MODELS_H
#define LEAT_TESTS_UNIT_LEARNERS_DEVICE_MODELS_H

#include "events.h"
#include "open_device.h"

#include "core/base.h"
#include "core/buffer.h"
#include "kernels/gpu.h"
#include "learners/device/table.h"
#include "learners/model/internal.h"
#include "learners/train/train.h"

#include <math.h>
#include <stdio.h>

enum { LEARNED = 1500, CUT = 777 };

static struct events events;

static inline const struct kernels *best(void)
{
    const char *reason;
    return kernels_pick(NULL, &reason);
}

static inline struct model *device_model(const struct model_options *options)
{
    struct model_options o = *options;
    struct gpu_error error;
    o.is_on_device = true;
    struct model *m = model_new(&o, best());
    struct model_device d = {
        .api = api, .gpu = gpu, .stream = stream, .memory_bytes = 256 << 20, .pinned_bytes = 4 << 20};
    must(model_attach(m, &d, &error), &error, "model_attach");
    return m;
}

/* --- What a model has --- */

struct saved_table {
    struct byte_buffer rows, counts;
};
struct saved {
    struct saved_table tables[EVENT_FIELDS];
    struct byte_buffer small;
};

static inline bool keep(void *argument, const void *items, size_t bytes)
{
    buffer_append(argument, items, bytes);
    return true;
}

struct keeping {
    struct byte_buffer *to;
    size_t item_bytes;
};

static inline bool keep_items(void *argument, const void *items, size_t count)
{
    struct keeping *k = argument;
    return keep(k->to, items, count * k->item_bytes);
}

static inline void save_cpu(struct model *m, struct saved *s)
{
    for (uint32_t f = 0; f < EVENT_FIELDS; f++) {
        struct table *t = model_table(m, f);
        const struct table_keys *removed;
        struct table_snapshot *snapshot = table_snapshot_begin(t, 0, t->epoch, &removed);
        struct keeping rows = {&s->tables[f].rows, table_stored_bytes(t)};
        struct keeping counts = {&s->tables[f].counts, sizeof(struct sketch_block)};
        must(table_snapshot_write(snapshot, keep_items, &rows), NULL, "rows");
        must(table_snapshot_write_counts(snapshot, keep_items, &counts), NULL, "counts");
        table_snapshot_end(t, false);
    }
}

struct device_keeping {
    struct model *model;
    struct saved *saved;
    uint32_t first;
    size_t row_bytes;
};

static inline bool keep_device_rows(void *argument, uint32_t table, const void *stored, size_t count)
{
    struct device_keeping *k = argument;
    return keep(&k->saved->tables[k->first + table].rows, stored, count * k->row_bytes);
}

static inline bool keep_device_counts(void *argument, uint32_t table, const void *blocks, size_t count)
{
    struct device_keeping *k = argument;
    return keep(&k->saved->tables[k->first + table].counts, blocks, count * sizeof(struct sketch_block));
}

static inline void save_device(struct model *m, struct saved *s)
{
    struct gpu_error error;
    for (uint32_t f = 0; f < EVENT_FIELDS; f++) {
        uint32_t number;
        struct device_table *t = model_device_table(m, f, &number);
        struct device_keeping k = {m, s, f, device_table_stored_bytes(t)};
        if (number != 0)
            continue;
        must(device_table_snapshot_begin(t, 0, m->train->epoch, &error), &error, "a snapshot");
        must(device_table_snapshot_write(t, keep_device_rows, keep_device_counts, &k, &error), &error,
             "its rows and counts");
        device_table_snapshot_end(t, false);
    }
}

static inline void save(struct model *m, struct saved *s)
{
    memset(s, 0, sizeof(*s));
    if (m->device_rows != NULL)
        save_device(m, s);
    else
        save_cpu(m, s);
    model_save(m, &s->small);
}

static inline void saved_free(struct saved *s)
{
    for (uint32_t f = 0; f < EVENT_FIELDS; f++) {
        buffer_free(&s->tables[f].rows);
        buffer_free(&s->tables[f].counts);
    }
    buffer_free(&s->small);
}

static inline void load(struct model *m, const struct saved *s)
{
    struct gpu_error error;
    for (uint32_t f = 0; f < EVENT_FIELDS; f++) {
        const struct saved_table *from = &s->tables[f];
        struct table *t = model_table(m, f);
        size_t bytes = table_stored_bytes(t), blocks = from->counts.length / sizeof(struct sketch_block);
        const struct sketch_block *counts = (const void *)from->counts.data;
        if (m->device_rows != NULL) {
            uint32_t number;
            struct device_table *d = model_device_table(m, f, &number);
            must(device_table_restore(d, number, from->rows.data, from->rows.length / bytes, &error), &error,
                 "rows");
            must(blocks == 0 || device_table_restore_counts(d, number, counts, blocks, &error), &error,
                 "counts");
            must(number + 1 <
                         (f < m->options.vectors ? m->options.vectors : EVENT_FIELDS - m->options.vectors) ||
                     device_table_restored(d, &error),
                 &error, "restored");
            continue;
        }
        for (size_t at = 0; at < from->rows.length; at += bytes)
            table_restore_row(t, from->rows.data + at);
        for (size_t b = 0; b < blocks; b++)
            must(sketch_restore(&t->sketch, &counts[b]), NULL, "a block");
        table_restored(t, 1);
    }
    must(model_load(m, s->small.data, s->small.length), NULL, "model_load");
}

/* --- Comparing --- */

static inline bool is_exact(void)
{
    return is_host_model();
}

static double tolerance = 1e-5;

static inline bool is_near(double a, double b)
{
    if (is_exact())
        return memcmp(&a, &b, sizeof(a)) == 0;
    return (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * (1.0 + fabs(b));
}

static size_t item_of;

static inline int by_key(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof(x)), memcpy(&y, b, sizeof(y));
    return (x > y) - (x < y);
}

/* Compares rows sorted by key: headers must be equal except for the epoch, floats near. */
static inline bool same_rows(struct byte_buffer *a, struct byte_buffer *b, size_t bytes)
{
    if (a->length != b->length || a->length == 0)
        return false;
    item_of = bytes;
    qsort(a->data, a->length / bytes, bytes, by_key);
    qsort(b->data, b->length / bytes, bytes, by_key);
    for (size_t at = 0; at < a->length; at += bytes) {
        if (memcmp(a->data + at, b->data + at, 16) != 0)
            return false;
        for (size_t i = offsetof(struct table_row, step); i + sizeof(float) <= bytes; i += sizeof(float)) {
            float x, y;
            memcpy(&x, a->data + at + i, sizeof(x)), memcpy(&y, b->data + at + i, sizeof(y));
            if (is_exact() ? memcmp(&x, &y, sizeof(x)) != 0 : !is_near((double)x, (double)y))
                return false;
        }
    }
    return true;
}

static inline bool same_models(struct model *a, struct model *b)
{
    struct saved x, y;
    save(a, &x);
    save(b, &y);
    bool is_same = x.small.length == y.small.length;
    if (is_same && is_exact())
        is_same = memcmp(x.small.data, y.small.data, x.small.length) == 0;
    for (uint32_t f = 0; f < EVENT_FIELDS && is_same; f++) {
        is_same = same_rows(&x.tables[f].rows, &y.tables[f].rows, table_stored_bytes(model_table(a, f)));
        is_same = is_same && x.tables[f].counts.length == y.tables[f].counts.length &&
                  (x.tables[f].counts.length == 0 ||
                   memcmp(x.tables[f].counts.data, y.tables[f].counts.data, x.tables[f].counts.length) == 0);
    }
    saved_free(&x);
    saved_free(&y);
    return is_same;
}

static inline float float_at(const struct byte_buffer *of, size_t at)
{
    float x;
    memcpy(&x, of->data + at, sizeof(x));
    return x;
}

/* |a - b| <= 1e-5 (|b| + rms), the rms over `count` floats that lie `stride` bytes apart. */
static inline bool is_column_within(const struct byte_buffer *a, const struct byte_buffer *b, size_t first,
                                    size_t stride, size_t count)
{
    double squares = 0.0;
    for (size_t i = 0; i < count; i++)
        squares += (double)float_at(b, first + i * stride) * (double)float_at(b, first + i * stride);
    double rms = sqrt(squares / (double)MAX(count, (size_t)1));
    for (size_t i = 0; i < count; i++) {
        size_t at = first + i * stride;
        double x = (double)float_at(a, at), y = (double)float_at(b, at);
        /* Equal bits, also where the float is a half of a double. */
        bool is_same = memcmp(a->data + at, b->data + at, sizeof(float)) == 0;
        if (!is_same && !(fabs(x - y) <= 1e-5 * (fabs(y) + rms)))
            return false;
    }
    return true;
}

static inline bool layers_are_within(struct model *a, struct model *b)
{
    bool is_good = true;
    for (size_t l = 0; l < model_layers(a) && is_good; l++) {
        struct byte_buffer x = {0}, y = {0};
        size_t bytes = model_layer_floats(a, l) * sizeof(float);
        model_layer_get(a, MODEL_LAYERS_OWN, l, (float *)(void *)buffer_reserve(&x, bytes));
        model_layer_get(b, MODEL_LAYERS_OWN, l, (float *)(void *)buffer_reserve(&y, bytes));
        is_good = is_column_within(&x, &y, 0, sizeof(float), bytes / sizeof(float));
        buffer_free(&x);
        buffer_free(&y);
    }
    return is_good;
}

/* Whether two models are as near as one step from the same state must leave them: the same rows, and each
 * column of their floats within the bound of is_column_within. */
static inline bool is_in_step(struct model *a, struct model *b)
{
    struct saved x, y;
    save(a, &x);
    save(b, &y);
    bool is_good = layers_are_within(a, b);
    for (uint32_t f = 0; f < EVENT_FIELDS && is_good; f++) {
        struct byte_buffer *rows = &x.tables[f].rows, *others = &y.tables[f].rows;
        size_t bytes = table_stored_bytes(model_table(a, f)), head = offsetof(struct table_row, step);
        is_good = rows->length == others->length;
        qsort(rows->data, rows->length / bytes, bytes, by_key);
        qsort(others->data, others->length / bytes, bytes, by_key);
        for (size_t at = 0; at < rows->length && is_good; at += bytes)
            is_good = memcmp(rows->data + at, others->data + at, 16) == 0;
        for (size_t i = head; i + sizeof(float) <= bytes && is_good; i += sizeof(float))
            is_good = is_column_within(rows, others, i, bytes, rows->length / bytes);
    }
    saved_free(&x);
    saved_free(&y);
    return is_good;
}

/* --- The kinds --- */

static const struct {
    const char *name;
    const struct interaction *interaction;
    const struct network *network;
    uint32_t vectors, hidden, batch, admit_after;
    enum opt_kind embedding;
    bool is_double, is_limited;
    enum row_format precision;
    uint32_t micro, trial;
} kinds[] = {
    {"linear", NULL, NULL, 0, 0, 64, 1, OPT_ADAGRAD, false, false, ROW_FP32, 0, 0},
    {"linear, FTRL in double, rows_max", NULL, NULL, 0, 0, 50, 2, OPT_ADAGRAD, true, true, ROW_FP32, 0, 0},
    {"fm", &interaction_fm, NULL, 3, 0, 64, 2, OPT_ADAGRAD_ROW, false, false, ROW_FP32, 0, 0},
    {"fm and a wide field", &interaction_fm, NULL, 2, 0, 37, 1, OPT_ADAM, false, false, ROW_FP32, 0, 0},
    {"ffm", &interaction_ffm, NULL, 3, 0, 64, 1, OPT_ADAGRAD_BLOCK, false, true, ROW_FP32, 0, 0},
    {"deepfm", &interaction_fm, &network_deep, 3, 12, 64, 2, OPT_ADAGRAD, false, false, ROW_FP32, 0, 0},
    {"dcnv2", NULL, &network_cross, 3, 12, 64, 1, OPT_ADAGRAD, false, false, ROW_FP32, 0, 0},
    {"dlrm", NULL, &network_dot, 3, 12, 64, 1, OPT_SGD, false, false, ROW_FP32, 0, 0},
    {"mmoe", NULL, &network_experts, 3, 12, 64, 1, OPT_ADAGRAD, false, false, ROW_FP32, 0, 0},
    {"afm", NULL, &network_attention, 3, 0, 64, 2, OPT_ADAGRAD, false, false, ROW_FP32, 0, 0},
    {"afm of fp16 and a wide field", NULL, &network_attention, 2, 0, 64, 1, OPT_ADAGRAD, true, false,
     ROW_FP16, 0, 0},
    {"deepfm of bf16", &interaction_fm, &network_deep, 2, 12, 64, 2, OPT_ADAGRAD, false, false, ROW_BF16, 0,
     0},
    {"dcnv2 of fp16", NULL, &network_cross, 3, 12, 64, 1, OPT_ADAGRAD, false, false, ROW_FP16, 0, 0},
    {"deepfm by pieces", &interaction_fm, &network_deep, 2, 12, 64, 2, OPT_ADAGRAD, false, false, ROW_FP32,
     16, 0},
    {"dlrm of fp16 by pieces", NULL, &network_dot, 3, 12, 64, 1, OPT_ADAGRAD, false, false, ROW_FP16, 32, 0},
    {"fm by slices", &interaction_fm, NULL, 3, 0, 600, 1, OPT_ADAGRAD, false, false, ROW_FP32, 0, 0},
    {"dcnv2 by slices", NULL, &network_cross, 3, 12, 300, 2, OPT_ADAGRAD, false, false, ROW_FP32, 0, 0},
    {"deepfm on trial", &interaction_fm, &network_deep, 2, 12, 64, 2, OPT_ADAGRAD, false, false, ROW_BF16, 0,
     1000},
};

static inline struct model_options options_of(size_t k)
{
    struct model_options o = events_options(kinds[k].interaction, kinds[k].hidden);
    o.network = kinds[k].network, o.linear_is_off = events_linear_is_off(kinds[k].network);
    o.vectors = kinds[k].vectors;
    o.batch = kinds[k].batch, o.slice = BATCH_SLICE_UNIT;
    o.precision = kinds[k].precision, o.micro = kinds[k].micro;
    o.is_tried = kinds[k].trial > 0, o.trial_examples = kinds[k].trial;
    o.embedding.kind = kinds[k].embedding;
    o.embedding.params.beta1 = o.embedding.params.beta2 = 0.9F;
    o.embedding.params.epsilon = 1.0F;
    o.linear_is_double = kinds[k].is_double;
    o.ftrl = (struct ftrl64_params){0.15, 1.0, 0.05, 0.3};
    o.network_own = events_network(o.network);
    o.labels = kinds[k].network == &network_experts ? 2 : 0;
    o.admit_after = kinds[k].admit_after, o.sketch_bytes = 4096;
    o.rows_max = kinds[k].is_limited ? 260 : 0;
    o.expire_after_us = 900 * US_PER_SECOND;
    return o;
}

/* Learns events begin..end in calls of 250 events, with a watermark after each. */
static inline void learn(struct model *m, uint32_t begin, uint32_t end, double *logits)
{
    static uint8_t verdicts[EVENTS_MAX];
    for (uint32_t at = begin; at < end; at = MIN(at + 250, end)) {
        events_learn(&events, m, at, MIN(at + 250, end), 250, logits, verdicts);
        model_set_watermark(m, events.times[MIN(at + 250, end) - 1]);
        if (model_error(m) != NULL)
            must(false, model_error(m), "learning");
    }
}

static inline bool same_logits(const double *a, const double *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!is_near(a[i], b[i]))
            return false;
    return true;
}

static inline bool models_open(void)
{
    events_make(&events);
    return device_open();
}

#endif
