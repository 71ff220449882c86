/* The weights of dense layers as a part: all of their state for checkpoints, the weights alone for readers. And the same
 * weights, and rows of tables, for `leat model`. */
#include "learners/stored/stored.h"

#include "core/learner.h"
#include "core/mem.h"
#include "learners/tables/inline.h"
#include "learners/train/net.h"

#include <stdio.h>
#include <stdlib.h>

/* A CPU does not fail. Of a GPU the failure is noted for the net's owner, who asks; what was saved or loaded is nothing
 * then. */
static void note(const struct net *net, bool is_good, const struct gpu_error *error)
{
    if (is_good)
        return;
    leat_assert(net->error != NULL);
    if (net->error->failure == GPU_OK)
        *net->error = *error;
}

/* --- A part --- */

static void put_weights(const struct net *net, bool with_state, struct byte_buffer *out)
{
    for (uint32_t p = 0; p < net->params_count; p++) {
        const struct net_params *of = &net->params[p];
        size_t count = with_state ? net_saved_floats(net, p) : (size_t)of->n * of->d + of->n;
        float *floats = mem_calloc(count, sizeof(*floats));
        struct gpu_error error;
        note(net, (with_state ? net_save : net_save_weights)(net, p, floats, &error), &error);
        buffer_append(out, floats, count * sizeof(*floats));
        free(floats);
    }
}

static const char *take_weights(struct net *net, bool with_state, const char *data, size_t bytes)
{
    for (uint32_t p = 0; p < net->params_count; p++) {
        const struct net_params *of = &net->params[p];
        size_t count = with_state ? net_saved_floats(net, p) : (size_t)of->n * of->d + of->n;
        struct gpu_error error;
        if (bytes < count * sizeof(float))
            return "there are fewer weights than the network has";
        float *floats = mem_alloc(count * sizeof(*floats));
        memcpy(floats, data, count * sizeof(*floats));
        note(net, (with_state ? net_load : net_load_weights)(net, p, floats, &error), &error);
        free(floats);
        data += count * sizeof(float), bytes -= count * sizeof(float);
    }
    return bytes == 0 ? NULL : "there are more weights than the network has";
}

static void save_weights(void *of, uint32_t since, struct byte_buffer *out)
{
    (void)since;
    put_weights(of, true, out);
}

static const char *load_weights(void *of, const void *data, size_t bytes)
{
    return take_weights(of, true, data, bytes);
}

static void save_reader(void *of, uint32_t since, struct byte_buffer *out)
{
    (void)since;
    put_weights(of, false, out);
}

static const char *load_reader(void *of, const void *data, size_t bytes)
{
    return take_weights(of, false, data, bytes);
}

struct stored_part stored_weights(const char *name, struct net *net)
{
    return (struct stored_part){.name = name,
                                .of = net,
                                .save = save_weights,
                                .load = load_weights,
                                .is_for_readers = true,
                                .save_reader = save_reader,
                                .load_reader = load_reader};
}

/* --- For people --- */

bool stored_visit_net(const struct net *net, const char *prefix, struct model_visitor *v)
{
    bool goes_on = true;
    for (uint32_t i = 0; i < net->layers_count && goes_on; i++) {
        const struct net_layer *l = &net->layers[i];
        const struct net_params *p = l->params;
        char name[64];
        if (p == NULL)
            continue;
        float *floats = mem_calloc((size_t)p->n * p->d + p->n, sizeof(*floats));
        struct gpu_error error;
        note(net, net_save_weights(net, (uint32_t)(p - net->params), floats, &error), &error);
        snprintf(name, sizeof(name), "%slayer%u.%s", prefix, i, l->kind->name);
        goes_on = v->tensor(v->argument, name, floats, p->n, p->d);
        if (goes_on && l->kind == &net_dense && !l->has_no_bias) {
            snprintf(name, sizeof(name), "%slayer%u.%s.bias", prefix, i, l->kind->name);
            goes_on = v->tensor(v->argument, name, floats + (size_t)p->n * p->d, 1, p->n);
        }
        free(floats);
    }
    return goes_on;
}

bool stored_visit_table(const struct table *table, const char *name, uint32_t dim, struct model_visitor *v)
{
    size_t count;
    struct table_row **rows = table_sorted(table, &count);
    bool goes_on = v->table(v->argument, name, dim, count);
    for (size_t i = 0; i < count && goes_on; i++)
        goes_on = v->row(v->argument, rows[i]->key, table_payload(rows[i]), rows[i]->count,
                         (int64_t)rows[i]->seen * US_PER_SECOND);
    free(rows);
    return goes_on;
}
