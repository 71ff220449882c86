/* Converts to bytes, and back, a model's state outside the tables. Rows and sketches of tables are stored by
 * tables/snapshot.c and device/snapshot.c. */
#include "learners/model/internal.h"
#include "learners/tables/inline.h"
#include "learners/train/train.h"

#include "core/base.h"
#include "core/buffer.h"
#include "core/mem.h"

#include <math.h>
#include <stdlib.h>

enum { STATE_MAGIC = 0x6c6d7331, READER_MAGIC = 0x6c6d7231 };

struct state_head {
    uint32_t magic, pending;
    uint64_t steps;
    int64_t watermark_us, unused;
};

struct state_example {
    uint32_t entries, seen;
    float label, weight;
};

/* Saved after the dense layers if their products are in fp16. */
struct state_scale {
    float scale;
    uint32_t good;
    uint64_t lowered;
};

/* Saved after the layers with `precision: auto`; while the trial runs, its fp32 layers follow. */
struct state_trial {
    uint64_t examples;
    double bf16, fp32;
    uint8_t is_over, keeps_bf16, unused[6];
};

struct state_table {
    int64_t halved_at_us, watermark_us;
    uint32_t expired_before, unused;
    uint64_t sketch_bytes;
};

/* --- Saving --- */

static void save_example(const struct model *m, const struct example *e, struct byte_buffer *out)
{
    struct state_example s = {e->entries, e->seen, e->label, e->weight};
    buffer_append(out, &s, sizeof(s));
    /* A key that had no row when its event came is saved as absent: the event must not see a row that was
     * made later. */
    for (uint32_t i = 0; m->train == NULL && i < e->entries; i++)
        if (e->rows[i] == NULL)
            e->keys[i] = 0;
    buffer_append(out, e->keys, e->entries * sizeof(*e->keys));
    buffer_append(out, e->fields, e->entries * sizeof(*e->fields));
    buffer_append(out, e->scales, e->entries * sizeof(*e->scales));
    if (m->options.dense > 0)
        buffer_append(out, e->dense, m->options.dense * sizeof(*e->dense));
    if (m->options.labels > 1)
        buffer_append(out, e->more_labels, (m->options.labels - 1) * sizeof(*e->more_labels));
}

/* Floats of a saved layer of n outputs and d inputs: weights, biases, and the optimizer's state for all of them. */
static size_t layer_floats(const struct model *m, enum model_layers_of of, size_t n, size_t d)
{
    size_t weights = n * d + n, each = opt_state_floats(m->options.head.kind, weights);
    return weights + (of == MODEL_LAYERS_WEIGHTS ? 0 : each);
}

static void save_layer(struct model *m, enum model_layers_of of, size_t layer, struct byte_buffer *out)
{
    size_t n, d;
    model_layer_shape(m, layer, &n, &d);
    size_t bytes = layer_floats(m, of, n, d) * sizeof(float);
    float *floats = mem_alloc(bytes);
    model_layer_get(m, of, layer, floats);
    buffer_append(out, floats, bytes);
    free(floats);
}

static void save_precision(struct model *m, bool is_reader, struct byte_buffer *out)
{
    if (m->options.precision == ROW_FP16) {
        const struct train_scale *s = &m->train->scale;
        struct state_scale scale = {s->scale, s->good, s->lowered};
        buffer_append(out, &scale, sizeof(scale));
    }
    if (!m->options.is_tried)
        return;
    const struct trial_score *s = &m->train->trial->score;
    struct state_trial trial = {s->examples, s->bf16, s->fp32, s->is_over, s->keeps_bf16, {0}};
    buffer_append(out, &trial, sizeof(trial));
    for (size_t l = 0; l < model_layers(m) && !s->is_over && !is_reader; l++)
        save_layer(m, MODEL_LAYERS_TRIAL, l, out);
}

static void save(struct model *m, bool is_reader, struct byte_buffer *out)
{
    if (m->train != NULL)
        model_train_read(m);
    uint32_t pending = is_reader && m->train != NULL ? 0 : m->pending;
    struct state_head head = {is_reader ? READER_MAGIC : STATE_MAGIC, pending, m->steps, m->watermark_us, 0};
    buffer_append(out, &head, sizeof(head));
    buffer_append(out, m->dense_weights, (m->options.dense + 1) * (size_t)LINEAR_BYTES);
    if (m->has_pairs) {
        size_t count = interaction_pairs(m);
        buffer_append(out, m->pair_weights,
                      (count + opt_state_floats(m->options.pairs.kind, count)) * sizeof(float));
    }
    for (size_t l = 0; l < model_layers(m); l++)
        save_layer(m, is_reader ? MODEL_LAYERS_WEIGHTS : MODEL_LAYERS_OWN, l, out);
    save_precision(m, is_reader, out);
    for (uint32_t f = 0; f < m->options.fields; f++) {
        const struct table *t = &m->tables[f];
        struct state_table s = {t->halved_at_us, t->watermark_us, t->expired_before, 0,
                                sketch_blocks(&t->sketch) * SKETCH_BLOCK};
        if (m->device_rows != NULL)
            model_device_times(m, f, &s.halved_at_us, &s.watermark_us, &s.expired_before);
        buffer_append(out, &s, sizeof(s));
    }
    for (uint32_t i = 0; i < pending; i++) {
        if (m->train != NULL)
            model_train_get(m, i, &m->examples[0]);
        save_example(m, &m->examples[m->train ? 0 : i], out);
    }
}

void model_save(struct model *m, struct byte_buffer *out)
{
    save(m, false, out);
}

void model_save_reader(struct model *m, struct byte_buffer *out)
{
    struct model_mean mean = m->mean;
    save(m, true, out);
    buffer_append(out, &mean, sizeof(mean));
}

/* --- Loading --- */

struct model_saved model_saved_as(const struct model *m)
{
    struct model_saved saved = {
        .fields = m->options.fields, .vectors = m->options.vectors, .dense = m->options.dense};
    memcpy(saved.hidden, m->options.hidden, sizeof(saved.hidden));
    for (uint32_t f = 0; f < saved.fields; f++)
        saved.field_of[f] = (int16_t)f;
    for (uint32_t d = 0; d < saved.dense; d++)
        saved.dense_of[d] = (int16_t)d;
    return saved;
}

struct reading {
    const unsigned char *at;
    size_t left;
    bool is_bad;
    bool is_reader; /* the bytes are those of model_save_reader */
};

/* The next `bytes` bytes, or NULL. */
static const void *next_bytes(struct reading *r, size_t bytes)
{
    if (r->is_bad || r->left < bytes) {
        r->is_bad = true;
        return NULL;
    }
    const void *data = r->at;
    r->at += bytes;
    r->left -= bytes;
    return data;
}

static void load_bytes(struct reading *r, void *data, size_t bytes)
{
    const void *from = next_bytes(r, bytes);
    if (from != NULL && bytes > 0)
        memcpy(data, from, bytes);
}

static void load_dense(struct reading *r, struct model *m, const struct model_saved *saved)
{
    for (uint32_t d = 0; d <= saved->dense; d++) {
        float weight[LINEAR_FLOATS] = {0};
        int own = d == saved->dense ? (int)m->options.dense : saved->dense_of[d]; /* the bias is the last */
        load_bytes(r, weight, LINEAR_BYTES);
        if (own >= 0 && !r->is_bad)
            memcpy(m->dense_weights + (size_t)own * LINEAR_FLOATS, weight, LINEAR_BYTES);
    }
}

static size_t layers_of(const uint32_t hidden[MODEL_LAYERS_MAX])
{
    size_t count = 0;
    while (count < MODEL_LAYERS_MAX && hidden[count] > 0)
        count++;
    return count == 0 ? 0 : count + 1;
}

/* Whether the first dense layer has the inputs that the saved one had. */
static bool has_same_inputs(const struct model *m, const struct model_saved *saved)
{
    bool is_same = saved->vectors == m->options.vectors && saved->dense == m->options.dense;
    for (uint32_t f = 0; is_same && f < saved->vectors; f++)
        is_same = saved->field_of[f] == (int)f;
    for (uint32_t d = 0; is_same && d < saved->dense; d++)
        is_same = saved->dense_of[d] == (int)d;
    return is_same;
}

static void load_layer(struct reading *r, struct model *m, enum model_layers_of of, size_t layer, size_t n,
                       size_t d, bool is_same)
{
    const void *data = next_bytes(r, layer_floats(m, of, n, d) * sizeof(float));
    size_t own_n = 0, own_d = 0;
    if (layer < model_layers(m))
        model_layer_shape(m, layer, &own_n, &own_d);
    if (data == NULL || !is_same || own_n != n || own_d != d)
        return;
    float *floats = mem_alloc(layer_floats(m, of, n, d) * sizeof(*floats)); /* malloc aligns the floats */
    memcpy(floats, data, layer_floats(m, of, n, d) * sizeof(*floats));
    model_layer_put(m, of, layer, floats);
    free(floats);
}

static void load_layers(struct reading *r, struct model *m, enum model_layers_of of,
                        const struct model_saved *saved)
{
    if (network_needs_batches(m->options.network)) {
        /* these networks are saved with this model's shape only */
        for (size_t l = 0; l < model_layers(m) && !r->is_bad; l++) {
            size_t own_n, own_d;
            model_layer_shape(m, l, &own_n, &own_d);
            load_layer(r, m, of, l, own_n, own_d, true);
        }
        return;
    }
    size_t count = layers_of(saved->hidden), d = interaction_inputs(m, saved->vectors) + saved->dense;
    for (size_t l = 0; l < count && !r->is_bad; l++) {
        size_t outputs = l + 1 < count ? saved->hidden[l] : 1;
        load_layer(r, m, of, l, outputs, d, l > 0 || has_same_inputs(m, saved));
        d = outputs;
    }
}

static void load_precision(struct reading *r, struct model *m, const struct model_saved *saved)
{
    if (m->options.precision == ROW_FP16) {
        struct state_scale s = {0};
        load_bytes(r, &s, sizeof(s));
        r->is_bad = r->is_bad || !scale_set(m->train, (struct train_scale){s.scale, s.good, s.lowered});
    }
    if (m->options.is_tried) {
        struct state_trial s = {0};
        load_bytes(r, &s, sizeof(s));
        struct trial_score score = {s.examples, s.bf16, s.fp32, s.is_over != 0, s.keeps_bf16 != 0};
        r->is_bad = r->is_bad || !trial_set(m->train, score);
        if (!r->is_bad && !score.is_over && !r->is_reader)
            load_layers(r, m, MODEL_LAYERS_TRIAL, saved);
    }
}

static void load_table(struct reading *r, struct model *m, int16_t field)
{
    struct state_table s = {0};
    load_bytes(r, &s, sizeof(s));
    if (field < 0 || r->is_bad)
        return;
    struct table *t = &m->tables[field];
    if (s.sketch_bytes != sketch_blocks(&t->sketch) * SKETCH_BLOCK) {
        r->is_bad = true;
        return;
    }
    if (m->device_rows) {
        model_device_set_times(m, (uint32_t)field, s.halved_at_us, s.watermark_us, s.expired_before);
        return;
    }
    t->halved_at_us = s.halved_at_us, t->watermark_us = s.watermark_us, t->expired_before = s.expired_before;
}

/* Inserts an entry; entries are in the order of fields. */
static void add_entry(struct example *e, uint64_t key, uint16_t field, float scale)
{
    uint32_t at = e->entries++;
    for (; at > 0 && e->fields[at - 1] > field; at--) {
        e->keys[at] = e->keys[at - 1];
        e->fields[at] = e->fields[at - 1];
        e->scales[at] = e->scales[at - 1];
    }
    e->keys[at] = key, e->fields[at] = field, e->scales[at] = scale;
}

/* Adds entries for features that the checkpoint does not have: absent keys. List fields need no entry. */
static void add_absent(const struct model *m, const struct model_saved *saved, struct example *e)
{
    for (uint32_t f = 0; f < m->options.fields; f++) {
        bool was_there = m->options.is_list[f];
        for (uint32_t k = 0; k < saved->fields; k++)
            was_there |= saved->field_of[k] == (int)f;
        if (!was_there)
            add_entry(e, 0, (uint16_t)f, 1.0F);
    }
}

/* Adds an entry, unless the event has list_max entries of its list field already (list_max may have been
 * larger when the event was saved). counts: [fields] entries so far. False: the field is no list and has an
 * entry already. */
static bool take_entry(const struct model *m, struct example *e, uint32_t *counts, uint64_t key,
                       uint16_t field, float scale)
{
    uint32_t most = model_field_ids(&m->options, field);
    if (counts[field]++ >= most)
        return m->options.is_list[field];
    add_entry(e, key, field, scale);
    return true;
}

/* Sets the scales of lists of which take_entry left out ids: the mean is over the ids kept. */
static void scale_lists(const struct model *m, struct example *e, const uint32_t *counts)
{
    for (uint32_t i = 0; i < e->entries; i++) {
        uint32_t most = model_field_ids(&m->options, e->fields[i]);
        if (counts[e->fields[i]] > most)
            e->scales[i] = 1.0F / (float)most;
    }
}

static void load_example(struct reading *r, struct model *m, const struct model_saved *saved,
                         struct example *e)
{
    struct state_example s = {0};
    load_bytes(r, &s, sizeof(s));
    size_t count = r->is_bad ? 0 : s.entries;
    r->is_bad |= count > (size_t)saved->fields * MODEL_LIST_MAX;
    const unsigned char *keys = next_bytes(r, count * sizeof(*e->keys));
    const unsigned char *fields = next_bytes(r, count * sizeof(*e->fields));
    const unsigned char *scales = next_bytes(r, count * sizeof(*e->scales));
    const unsigned char *dense = next_bytes(r, saved->dense * sizeof(*e->dense));
    if (m->options.labels > 1)
        load_bytes(r, e->more_labels, (m->options.labels - 1) * sizeof(*e->more_labels));
    if (r->is_bad)
        return;
    uint32_t counts[MODEL_FIELDS_MAX] = {0};
    e->entries = 0;
    e->seen = s.seen, e->label = s.label, e->weight = s.weight;
    for (size_t i = 0; i < count; i++) {
        uint64_t key;
        uint16_t field;
        float scale;
        memcpy(&key, keys + i * sizeof(key), sizeof(key));
        memcpy(&field, fields + i * sizeof(field), sizeof(field));
        memcpy(&scale, scales + i * sizeof(scale), sizeof(scale));
        r->is_bad |= field >= saved->fields;
        if (!r->is_bad && saved->field_of[field] >= 0)
            r->is_bad = !take_entry(m, e, counts, key, (uint16_t)saved->field_of[field], scale);
        if (r->is_bad)
            return;
    }
    scale_lists(m, e, counts);
    for (uint32_t d = 0; d < saved->dense; d++)
        if (saved->dense_of[d] >= 0)
            memcpy(&e->dense[saved->dense_of[d]], dense + d * sizeof(float), sizeof(float));
    add_absent(m, saved, e);
    e->learns = true;
    e->is_rejected = false;
}

static void load_model(struct reading *r, struct model *m, const struct model_saved *saved)
{
    struct state_head head = {0};
    load_bytes(r, &head, sizeof(head));
    uint32_t magic = r->is_reader ? READER_MAGIC : STATE_MAGIC;
    uint32_t pending_max = m->train == NULL ? m->options.block : r->is_reader ? 0 : m->options.batch;
    if (r->is_bad || head.magic != magic || head.pending > pending_max) {
        r->is_bad = true;
        return;
    }
    m->pending = head.pending, m->steps = head.steps;
    if (m->train != NULL) {
        m->train->batch.n = 0;
        m->train->is_forward = m->train->has_indices = false;
    }
    m->watermark_us = head.watermark_us;
    load_dense(r, m, saved);
    if (m->has_pairs) {
        size_t count = interaction_pairs(m);
        load_bytes(r, m->pair_weights,
                   (count + opt_state_floats(m->options.pairs.kind, count)) * sizeof(float));
    }
    load_layers(r, m, r->is_reader ? MODEL_LAYERS_WEIGHTS : MODEL_LAYERS_OWN, saved);
    load_precision(r, m, saved);
    for (uint32_t f = 0; f < saved->fields; f++)
        load_table(r, m, saved->field_of[f]);
    for (uint32_t i = 0; i < m->pending && !r->is_bad; i++) {
        load_example(r, m, saved, &m->examples[m->train ? 0 : i]);
        if (m->train && !r->is_bad)
            r->is_bad = !model_train_put(m, &m->examples[0]);
    }
    if (m->train)
        model_train_write(m);
}

/* The row of a key, even an expired one: rows of a block in progress are spared from expiry. */
static struct table_row *pending_row(struct table *t, uint64_t key)
{
    const uint64_t *slot = key == 0 ? NULL : table_slot_of(t, key, table_hash(t, key));
    return slot == NULL ? NULL : table_slot_row(t, slot);
}

bool model_load(struct model *m, const void *data, size_t bytes)
{
    struct model_saved same = model_saved_as(m);
    return model_load_saved(m, &same, data, bytes);
}

/* Finds the rows of a block in progress, and predicts its events. */
static void resume_block(struct model *m)
{
    for (uint32_t x = 0; x < m->pending; x++) {
        struct example *e = &m->examples[x];
        for (uint32_t i = 0; i < e->entries; i++) {
            e->rows[i] = pending_row(&m->tables[e->fields[i]], e->keys[i]);
            if (e->rows[i] != NULL)
                e->rows[i]->step = (uint32_t)m->steps + 1; /* spared until the block's step is made */
        }
        model_example_forward(m, e);
    }
}

bool model_load_saved(struct model *m, const struct model_saved *saved, const void *data, size_t bytes)
{
    struct reading r = {.at = data, .left = bytes};
    load_model(&r, m, saved);
    if (r.is_bad || r.left != 0)
        return false;
    if (m->train == NULL) /* else a batch's step resolves the rows */
        resume_block(m);
    return true;
}

bool model_load_reader(struct model *m, const void *data, size_t bytes)
{
    struct model_saved same = model_saved_as(m);
    struct reading r = {.at = data, .left = bytes, .is_reader = true};
    load_model(&r, m, &same);
    load_bytes(&r, &m->mean, sizeof(m->mean));
    if (r.is_bad || r.left != 0 || !isfinite(m->mean.labels) || !(m->mean.weights >= 0.0) ||
        !isfinite(m->mean.weights))
        return false;
    if (m->train == NULL)
        resume_block(m);
    return true;
}
