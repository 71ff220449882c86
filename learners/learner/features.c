/*
 * A learner whose job has changed: the shape of its state, and which table belongs to which feature.
 *
 * A table's number stays with its feature, by name: rows are made from (number, key), cold rows are stored
 * under the number, and the sketch's hashes depend on it. A new feature gets a number never used before. Each
 * checkpoint has the list of features ('F', checkpoint.c). A restore makes the model anew if the numbers
 * differ from 0, 1, 2 ..., and maps the checkpoint's rows and weights to this job's features.
 */
#include "learners/learner/internal.h"
#include "learners/networks/networks.h"

#include <stdlib.h>

enum { NAME_MAX_BYTES = 1 << 16 };

static struct str field_name(const struct learner_config *c, uint32_t field)
{
    return c->input_schema->fields[c->sparse_columns[field]].name;
}

static struct str dense_name(const struct learner_config *c, uint32_t dense)
{
    return c->input_schema->fields[c->dense_columns[dense]].name;
}

/* --- The shape of the state --- */

/* Appends the beginning of a line, `?WHAT NAME`. A colon ends the name, which may be any expression; so
 * colons and line ends in it become semicolons. */
static void put_what(struct byte_buffer *out, const char *what, struct str name)
{
    buffer_printf(out, "?%s ", what);
    for (size_t i = 0; i < name.length; i++) {
        char c = name.data[i];
        buffer_append(out, c == ':' || c == '\n' ? ";" : &c, 1);
    }
}

static const char *optimizer_name(const struct kind_ref *ref)
{
    return ref->config == NULL ? "none" : optimizer_kinds[ref->choice].name;
}

/* Appends the layers of a network that learns by batches alone: a restore takes them only if all are the
 * same. */
static void put_network(const struct learner_config *c, struct byte_buffer *out)
{
    const struct model_options *o = &c->model;
    buffer_printf(out, "=dense layers: %s\n", optimizer_name(&c->head));
    networks_put_widths(out, "hidden", o->hidden);
    if (o->network->put_shape != NULL)
        o->network->put_shape(o->network_own, o->labels, out);
}

static void put_layers(const struct learner_config *c, struct byte_buffer *out)
{
    if (network_needs_batches(c->model.network)) {
        put_network(c, out);
        return;
    }
    if (c->hidden.count == 0) {
        buffer_printf(out, "=dense layers: none\n");
        return;
    }
    buffer_printf(out, "=dense layers: %s, %lld examples a step\n~hidden: ", optimizer_name(&c->head),
                  (long long)c->hidden_batch);
    for (uint32_t i = 0; i < c->hidden.count; i++)
        buffer_printf(out, "%s%lld", i > 0 ? ", " : "", (long long)c->hidden.items[i]);
    buffer_printf(out, "\n");
}

/* Appends the features with vectors, in their order, if a vector has a part for each other feature (FFM) or
 * if pairs have weights or are chosen. */
static void put_pairs(const struct learner_config *c, struct byte_buffer *out)
{
    bool has_weights = c->pairs.items != NULL || c->model.pairs.params.rate > 0.0F;
    const struct interaction *interaction = c->model.interaction;
    bool is_field_aware = interaction != NULL && interaction->is_field_aware;
    if (c->vectors_count < 2 || (!has_weights && !is_field_aware))
        return;
    buffer_printf(out, "=pairs of: ");
    for (uint32_t f = 0; f < c->vectors_count; f++)
        buffer_printf(out, "%s%.*s", f > 0 ? ", " : "", STR_ARGS(field_name(c, f)));
    buffer_printf(out, "; weighed by %s%s\n", has_weights ? optimizer_name(&c->pair_weights) : "none",
                  c->pairs.items != NULL ? "; not all" : "");
    uint32_t pair = 0;
    for (uint32_t f = 0; f < c->vectors_count; f++)
        for (uint32_t g = f + 1; g < c->vectors_count; g++, pair++)
            if (c->pairs.items != NULL && c->model.pair_is_off[pair] == 0)
                buffer_printf(out, "=pair %u and %u: on\n", f + 1, g + 1);
}

/* Omitted with the default, so that a shape without this option stays the same. */
static void put_lists(const struct learner_config *c, struct byte_buffer *out)
{
    bool has_lists = memchr(c->model.is_list, 1, c->sparse_count) != NULL;
    if (has_lists && c->list_max != MODEL_LIST_DEFAULT)
        buffer_printf(out, "~list_max: %lld\n", (long long)c->list_max);
}

/* Omitted with the defaults, so that a shape without these options stays the same. */
static void put_precision(const struct learner_config *c, struct byte_buffer *out)
{
    if (c->precision != PRECISION_FP32)
        buffer_printf(out, "=precision: %s\n", learner_precision_name(c->precision));
    if (c->accumulate > 1)
        buffer_printf(out, "=accumulate: %lld\n", (long long)c->accumulate);
}

void learner_shape(const struct operator_bind *bind, struct byte_buffer *out)
{
    const struct learner_config *c = bind->config;
    const struct embedding_config *e = &c->embedding;
    buffer_printf(out, "=loss: %s\n=batch: %lld\n", c->loss == LOSS_LOGISTIC ? "logistic" : "squared",
                  (long long)c->batch);
    buffer_printf(out, "=weights: %s\n", optimizer_name(&c->linear));
    buffer_printf(out, "=embedding: dim %lld, %s, admit_after %lld, sketch %lld, rows_max %lld\n",
                  (long long)e->dim, optimizer_name(&e->optimizer), (long long)e->admit_after,
                  (long long)(e->admit_after > 1 ? e->sketch_bytes : 0), (long long)e->rows_max);
    if (c->model.is_centered)
        buffer_printf(out, "=bias: the mean of the labels\n");
    put_lists(c, out);
    put_layers(c, out);
    put_precision(c, out);
    put_pairs(c, out);
    for (uint32_t f = 0; f < c->sparse_count; f++) {
        put_what(out, f < c->vectors_count ? "feature" : "wide feature", field_name(c, f));
        buffer_printf(out, ": %s\n",
                      type_name(bind->arena, &c->input_schema->fields[c->sparse_columns[f]].type));
    }
    for (uint32_t d = 0; d < c->dense_count; d++) {
        /* "number": a dense feature, as checkpoints say */
        put_what(out, "number", dense_name(c, d));
        buffer_printf(out, ": float\n");
    }
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
    struct list_head head = {c->sparse_count, c->vectors_count, c->dense_count, s->tables_next, {0}};
    memcpy(head.hidden, c->model.hidden, sizeof(head.hidden));
    buffer_append(out, &head, sizeof(head));
    for (uint32_t f = 0; f < c->sparse_count; f++)
        put_name(out, s->tables[f], field_name(c, f));
    for (uint32_t d = 0; d < c->dense_count; d++)
        put_name(out, 0, dense_name(c, d));
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
    for (uint32_t f = 0; f < c->sparse_count; f++)
        if ((f < c->vectors_count) == has_vector && str_equal(field_name(c, f), name))
            return (int16_t)f;
    return -1;
}

static int16_t find_dense(const struct learner_config *c, struct str name)
{
    for (uint32_t d = 0; d < c->dense_count; d++)
        if (str_equal(dense_name(c, d), name))
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
    for (uint32_t f = 0; f < c->sparse_count; f++)
        if (tables[f] == UINT16_MAX)
            tables[f] = (uint16_t)head.next_table++;
    s->tables_next = head.next_table;
    if (memcmp(tables, s->tables, c->sparse_count * sizeof(*tables)) != 0) {
        memcpy(s->tables, tables, sizeof(tables));
        if (!learner_make_model(context))
            return false;
    }
    return list.length == 0;
}
