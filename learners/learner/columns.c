/* From a batch's columns to a model's input, for the selected rows: ids are hashed, numbers become floats. */
#define XXH_INLINE_ALL
#include "learners/learner/internal.h"

#include "core/mem.h"

#include "kernels/num.h"

#include <math.h>
#include <stdlib.h>
#include <xxhash.h>

static const uint64_t NULL_ID = UINT64_C(0x6e756c6c6e756c6c);

struct learner_columns_scratch {
    uint64_t *ids[MODEL_FIELDS_MAX];
    size_t ids_capacity[MODEL_FIELDS_MAX];
    uint32_t *offsets[MODEL_FIELDS_MAX];
    float *dense[MODEL_DENSE_MAX];
    float labels[LEARNER_LABELS_MAX][BATCH_ROWS], weights[BATCH_ROWS];
    const float *more_labels[LEARNER_LABELS_MAX]; /* [labels] columns of labels; the model reads [1] and on */
    int64_t times[BATCH_ROWS];
    uint64_t identity[BATCH_ROWS];
    const struct learner_config *config; /* for read_ahead; set by each call, as is `batch` */
    const struct batch *batch;
};

static void *memory(size_t bytes)
{
    void *p = mem_alloc(MAX(bytes, 1));
    return p;
}

struct learner_columns_scratch *learner_columns_new(const struct learner_config *c)
{
    struct learner_columns_scratch *s = memory(sizeof(*s));
    memset(s, 0, sizeof(*s));
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++) {
        s->ids_capacity[f] = BATCH_ROWS;
        s->ids[f] = memory(BATCH_ROWS * sizeof(uint64_t));
        s->offsets[f] = c->model.is_list[f] ? memory((BATCH_ROWS + 1) * sizeof(uint32_t)) : NULL;
    }
    for (uint32_t d = 0; d < c->inputs.dense_count; d++)
        s->dense[d] = memory(BATCH_ROWS * sizeof(float));
    return s;
}

void learner_columns_free(struct learner_columns_scratch *s)
{
    if (!s)
        return;
    for (size_t f = 0; f < MODEL_FIELDS_MAX; f++) {
        free(s->ids[f]);
        free(s->offsets[f]);
    }
    for (size_t d = 0; d < MODEL_DENSE_MAX; d++)
        free(s->dense[d]);
    free(s);
}

/* The id of a value: never 0, which means absent. Equal values of equal type have equal ids
 * on every machine. */
static uint64_t id_of(const struct column *column, uint32_t row)
{
    if (!column_is_valid(column, row))
        return NULL_ID;
    uint64_t hash;
    switch (column->tag) {
    case TYPE_BOOL: hash = num_mix(column->bools[row] + UINT64_C(0xb001)); break;
    case TYPE_FLOAT: {
        double value = column->floats[row] == 0.0 ? 0.0 : column->floats[row];
        if (isnan(value))
            return NULL_ID;
        memcpy(&hash, &value, sizeof(hash));
        hash = num_mix(hash + UINT64_C(0xf10a7));
        break;
    }
    case TYPE_TEXT:
    case TYPE_BYTES: {
        struct str text = column_text(column, row);
        hash = XXH3_64bits(text.data, text.length);
        break;
    }
    default: hash = num_mix((uint64_t)column->ints[row] + UINT64_C(0x9e3779b97f4a7c15)); break;
    }
    return hash == 0 ? 1 : hash;
}

uint64_t learner_id(const struct column *column, uint32_t row)
{
    return id_of(column, row);
}

static void read_ids(struct learner_columns_scratch *s, uint32_t f, const struct batch *batch,
                     const struct column *column, uint32_t begin, uint32_t end)
{
    uint64_t *ids = s->ids[f];
    bool has_all = column->valid == NULL; /* then ids are computed as by id_of, but without its branches */
    if (has_all && column->tag == TYPE_INT) {
        for (uint32_t i = begin; i < end; i++) {
            uint64_t hash =
                num_mix((uint64_t)column->ints[batch_row(batch, i)] + UINT64_C(0x9e3779b97f4a7c15));
            ids[i] = hash == 0 ? 1 : hash;
        }
    } else if (has_all && column->tag == TYPE_TEXT) {
        for (uint32_t i = begin; i < end; i++) {
            struct str text = column_text(column, batch_row(batch, i));
            uint64_t hash = XXH3_64bits(text.data, text.length);
            ids[i] = hash == 0 ? 1 : hash;
        }
    } else {
        for (uint32_t i = begin; i < end; i++)
            ids[i] = id_of(column, batch_row(batch, i));
    }
}

/* The callback model_input.read_ids; runs on any thread. */
static void read_ahead(void *argument, uint32_t begin, uint32_t end)
{
    struct learner_columns_scratch *s = argument;
    for (uint32_t f = 0; f < s->config->inputs.sparse_count; f++)
        read_ids(s, f, s->batch, &s->batch->columns[s->config->inputs.sparse_columns[f]], begin, end);
}

static uint32_t length_of(const struct column *lists, uint32_t row)
{
    return column_is_valid(lists, row) ? lists->lists[row].length : 0;
}

static void read_list(struct learner_columns_scratch *s, const struct learner_config *c, uint32_t f,
                      const struct batch *batch, const struct column *column)
{
    uint32_t most = model_field_ids(&c->model, f);
    size_t total = 0;
    for (uint32_t i = 0; i < batch->selected; i++)
        total += MIN(length_of(column, batch_row(batch, i)), most);
    if (s->ids_capacity[f] < total) {
        free(s->ids[f]);
        s->ids[f] = memory(total * sizeof(uint64_t));
        s->ids_capacity[f] = total;
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        s->offsets[f][i] = at;
        if (!column_is_valid(column, row))
            continue;
        struct list_ref list = column->lists[row];
        for (uint32_t k = 0; k < MIN(list.length, most); k++)
            s->ids[f][at++] = id_of(&column->children[0], list.offset + k);
    }
    s->offsets[f][batch->selected] = at;
}

/* null_value: replaces nulls. */
static void read_numbers(float *out, const struct batch *batch, const struct column *column, float null_value)
{
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        if (!column_is_valid(column, row))
            out[i] = null_value;
        else if (column->tag == TYPE_FLOAT)
            out[i] = (float)column->floats[row];
        else if (column->tag == TYPE_BOOL)
            out[i] = (float)column->bools[row];
        else
            out[i] = (float)column->ints[row];
    }
}

/* A hash of the event's content, so that replays with other partition numbers sample the same events. */
static void read_identity(struct learner_columns_scratch *s, const struct learner_config *c, uint32_t rows)
{
    for (uint32_t i = 0; i < rows; i++)
        s->identity[i] = num_mix((uint64_t)s->times[i] ^ (uint64_t)c->seed << 32);
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++) {
        for (uint32_t i = 0; i < rows && !c->model.is_list[f]; i++)
            s->identity[i] = num_mix(s->identity[i] * 31 + s->ids[f][i]);
    }
}

/* Counts a batch's lists of which not all ids are read. */
static void count_cut(const struct learner_config *c, const struct batch *batch)
{
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++) {
        const struct column *column = &batch->columns[c->inputs.sparse_columns[f]];
        uint32_t most = model_field_ids(&c->model, f);
        for (uint32_t i = 0; i < batch->selected && c->model.is_list[f]; i++) {
            uint32_t length = length_of(column, batch_row(batch, i));
            c->state->lists_cut[f] += length > most;
            c->state->ids_cut[f] += length - MIN(length, most);
        }
    }
}

/* is_ahead: the model asks for the ids itself. */
static void read_features(struct learner_columns_scratch *s, const struct learner_config *c,
                          const struct batch *batch, bool is_ahead, struct model_input *in)
{
    s->config = c;
    s->batch = batch;
    for (uint32_t f = 0; f < c->inputs.sparse_count && !is_ahead; f++) {
        const struct column *column = &batch->columns[c->inputs.sparse_columns[f]];
        if (c->model.is_list[f])
            read_list(s, c, f, batch, column);
        else
            read_ids(s, f, batch, column, 0, batch->selected);
    }
    for (uint32_t d = 0; d < c->inputs.dense_count; d++)
        read_numbers(s->dense[d], batch, &batch->columns[c->inputs.dense_columns[d]], 0.0F);
    for (uint32_t i = 0; i < batch->selected; i++)
        s->times[i] = batch->event_time[batch_row(batch, i)];
    *in = (struct model_input){
        .rows = batch->selected,
        .ids = (const uint64_t *const *)s->ids,
        .offsets = (const uint32_t *const *)s->offsets,
        .dense = (const float *const *)s->dense,
        .event_time_us = s->times,
        .read_ids = is_ahead ? read_ahead : NULL,
        .read_argument = s,
    };
}

void learner_columns_request(struct learner_columns_scratch *s, const struct learner_config *c,
                             const struct batch *batch, struct model_input *in)
{
    read_features(s, c, batch, false, in);
}

void learner_columns_read(struct learner_columns_scratch *s, const struct learner_config *c,
                          const struct batch *batch, struct model_input *in)
{
    bool is_sampled = c->model.negatives_kept < 1.0;
    read_features(s, c, batch, !is_sampled && model_reads_ahead(c->state->model), in);
    count_cut(c, batch);
    for (uint32_t l = 0; l < c->inputs.labels_count; l++) {
        read_numbers(s->labels[l], batch, &batch->columns[c->inputs.label_columns[l]], (float)NAN);
        s->more_labels[l] = s->labels[l];
    }
    if (c->inputs.weight_column >= 0)
        read_numbers(s->weights, batch, &batch->columns[c->inputs.weight_column], 1.0F);
    if (is_sampled)
        read_identity(s, c, batch->selected);
    in->labels = s->labels[0];
    in->more_labels = s->more_labels + 1;
    in->weights = c->inputs.weight_column >= 0 ? s->weights : NULL;
    in->identity = is_sampled ? s->identity : NULL;
}
