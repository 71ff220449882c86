/*
 * A learner whose job has changed: the shape of its state, and which table belongs to which feature.
 *
 * A table's number stays with its feature, by name: rows are made from (number, key), cold rows are stored
 * under the number, and the sketch's hashes depend on it. A new feature gets a number never used before. Each
 * checkpoint has the list of features ('F', checkpoint.c). A restore makes the model anew if the numbers
 * differ from 0, 1, 2 ..., and maps the checkpoint's rows and weights to this job's features.
 */
#include "learners/learner/internal.h"

#include <stdlib.h>

enum { NAME_MAX_BYTES = 1 << 16 };

void learner_shape(const struct operator_bind *bind, struct byte_buffer *out)
{
    const struct learner_config *c = bind->config;
    buffer_printf(out, "=loss: %s\n=batch: %lld\n", c->loss == LOSS_LOGISTIC ? "logistic" : "squared",
                  (long long)c->steps.batch);
    buffer_printf(out, "=weights: %s\n", optimizer_name(&c->linear));
    learner_put_embedding(&c->embedding, out);
    if (c->model.is_centered)
        buffer_printf(out, "=bias: the mean of the labels\n");
    learner_put_lists(c, out);
    learner_put_layers(c, out);
    learner_put_precision(c, out);
    learner_put_pairs(c, out);
    learner_put_features(c, bind->arena, out);
}

/* --- The list in a checkpoint --- */

struct list_head {
    uint32_t fields, vectors, dense, next_table;
    uint32_t hidden[MODEL_LAYERS_MAX];
};

static void put_name(struct byte_buffer *out, uint32_t number, struct str name)
{
    uint32_t words[2] = {number, (uint32_t)name.length};
    buffer_append(out, words, sizeof(words));
    buffer_append(out, name.data, name.length);
}

void learner_features_save(const struct learner_config *c, struct byte_buffer *out)
{
    const struct learner_state *s = c->state;
    struct list_head head = {
        c->inputs.sparse_count, c->inputs.vectors_count, c->inputs.dense_count, s->tables_next, {0}};
    memcpy(head.hidden, c->model.hidden, sizeof(head.hidden));
    buffer_append(out, &head, sizeof(head));
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++)
        put_name(out, s->tables[f], learner_field_name(c, f));
    for (uint32_t d = 0; d < c->inputs.dense_count; d++)
        put_name(out, 0, learner_dense_name(c, d));
}

/* Reads the next number and name; false if the list has none. */
static bool take_name(struct str *left, uint32_t *number, struct str *name)
{
    uint32_t words[2];
    if (left->length < sizeof(words))
        return false;
    memcpy(words, left->data, sizeof(words));
    if (words[1] > NAME_MAX_BYTES || words[1] > left->length - sizeof(words))
        return false;
    *number = words[0];
    *name = (struct str){left->data + sizeof(words), words[1]};
    *left = (struct str){name->data + words[1], left->length - sizeof(words) - words[1]};
    return true;
}

/* Returns the field of the job's feature that has this name and has, or has not, vectors; -1: there is
 * none. */
static int16_t find_field(const struct learner_config *c, struct str name, bool has_vector)
{
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++)
        if ((f < c->inputs.vectors_count) == has_vector && str_equal(learner_field_name(c, f), name))
            return (int16_t)f;
    return -1;
}

static int16_t find_dense(const struct learner_config *c, struct str name)
{
    for (uint32_t d = 0; d < c->inputs.dense_count; d++)
        if (str_equal(learner_dense_name(c, d), name))
            return (int16_t)d;
    return -1;
}

bool learner_features_load(struct operator_context *context, struct str list)
{
    struct learner_config *c = context->config;
    struct learner_state *s = c->state;
    struct list_head head;
    if (list.length < sizeof(head))
        return false;
    memcpy(&head, list.data, sizeof(head));
    list = (struct str){list.data + sizeof(head), list.length - sizeof(head)};
    if (head.fields > MODEL_FIELDS_MAX || head.dense > MODEL_DENSE_MAX || head.vectors > head.fields ||
        head.next_table >= UINT16_MAX - MODEL_FIELDS_MAX)
        return false;
    bool has_vectors = c->model.interaction != NULL || network_needs_batches(c->model.network);
    struct model_saved *saved = &s->saved;
    *saved = (struct model_saved){
        .fields = head.fields, .vectors = has_vectors ? head.vectors : 0, .dense = head.dense};
    memcpy(saved->hidden, head.hidden, sizeof(saved->hidden));
    uint16_t tables[MODEL_FIELDS_MAX];
    memset(tables, 0xff, sizeof(tables));
    uint32_t number;
    struct str name;
    for (uint32_t f = 0; f < head.fields; f++) {
        if (!take_name(&list, &number, &name) || number >= head.next_table)
            return false;
        saved->field_of[f] = find_field(c, name, f < head.vectors);
        if (saved->field_of[f] >= 0)
            tables[saved->field_of[f]] = (uint16_t)number;
    }
    for (uint32_t d = 0; d < head.dense; d++) {
        if (!take_name(&list, &number, &name))
            return false;
        saved->dense_of[d] = find_dense(c, name);
    }
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++)
        if (tables[f] == UINT16_MAX)
            tables[f] = (uint16_t)head.next_table++;
    s->tables_next = head.next_table;
    if (memcmp(tables, s->tables, c->inputs.sparse_count * sizeof(*tables)) != 0) {
        memcpy(s->tables, tables, sizeof(tables));
        if (!learner_make_model(context))
            return false;
    }
    return list.length == 0;
}
