/* Rows of ids to vectors and back: tables, the mean of rows, layers, length 1. */
#include "learners/towers/tower.h"

#include "core/mem.h"
#include "kernels/num.h"

#include <math.h>
#include <stdlib.h>

/* --- Making --- */

static void init_row(void *argument, uint64_t key, void *payload)
{
    const struct tower *t = argument;
    const struct tower_options *o = &t->options;
    size_t floats = opt_state_floats(o->rows.kind, o->dim);
    float start = opt_state_init(o->rows.kind, o->rows.accumulator);
    memset(payload, 0, row_bytes(ROW_FP32, o->dim, floats));
    o->kernels->init_uniform(payload, num_mix(o->seed ^ key), o->init, o->dim);
    float *state = (float *)(void *)((unsigned char *)payload + row_weight_bytes(ROW_FP32, o->dim));
    for (size_t i = 0; i < floats; i++)
        state[i] = start;
}

static void shape_net(struct tower *t)
{
    const struct tower_options *o = &t->options;
    struct net_options network = {.network = o->has_layers ? &network_tower : NULL,
                                  .own = &o->network,
                                  .fields = o->fields,
                                  .dim = o->dim,
                                  .optimizer = o->dense.kind,
                                  .params = o->dense.params,
                                  .accumulator = o->dense.accumulator,
                                  .clip_norm = o->clip_norm,
                                  .seed = num_mix(o->seed ^ 0x70e5)};
    t->width = o->has_layers ? o->network.width : o->dim;
    t->device = (struct train_device){.kernels = batch_beside(o->kernels)};
    t->memory.device = &t->device;
    net_shape(&t->net, &network, &t->device, TOWER_PASS, TOWER_PASS);
    t->net.second = o->has_layers ? net_second(&t->net) : NULL;
    net_take(&t->net, &t->memory);
    t->stride = t->net.input->stride;
}

void tower_plan(const struct tower_options *options, struct tower_plan *plan)
{
    struct tower *t = mem_calloc(1, sizeof(*t));
    t->options = *options;
    shape_net(t);
    *plan = (struct tower_plan){.activations = t->memory.parts[TRAIN_ACTIVATIONS],
                                .parameters = t->memory.parts[TRAIN_PARAMETERS],
                                .scratch = t->memory.parts[TRAIN_SCRATCH]};
    free(t->net.second);
    free(t);
}

static void make_table(struct tower *t, uint32_t field)
{
    const struct tower_options *o = &t->options;
    size_t floats = opt_state_floats(o->rows.kind, o->dim);
    struct table_options table = {.payload_bytes = row_bytes(ROW_FP32, o->dim, floats),
                                  .read_first = row_weight_bytes(ROW_FP32, o->dim),
                                  .align = 64,
                                  .expire_after_us = o->expire_after_us,
                                  .rows_max = o->expire_after_us > 0 || o->is_bounded ? 0 : TOWER_ROWS_MAX,
                                  .shards = o->shards,
                                  .seed = num_mix(o->seed + 1 + field),
                                  .init = init_row,
                                  .init_argument = t};
    table_init(&t->tables[field], &table);
}

void tower_init(struct tower *t, const struct tower_options *options)
{
    struct gpu_error error;
    t->options = *options;
    t->pass = TOWER_PASS;
    leat_assert(options->fields > 0 && options->fields <= TOWER_FIELDS_MAX && options->dim % 4 == 0);
    shape_net(t);
    bool is_good = train_memory_make(&t->memory, &error);
    leat_assert(is_good); /* on a CPU, memory that lacks ends the process */
    net_take(&t->net, &t->memory);
    is_good = net_start(&t->net, options->kernels, &error);
    leat_assert(is_good);
    for (uint32_t f = tower_first_table(t); f < options->fields; f++)
        make_table(t, f);
}

void tower_free(struct tower *t)
{
    for (uint32_t f = tower_first_table(t); f < t->options.fields; f++)
        table_free(&t->tables[f]);
    free(t->net.second);
    train_memory_free(&t->memory);
    free(t->offsets), free(t->ids), free(t->bag), free(t->event), free(t->indices), free(t->order);
    free(t->scales), free(t->starts), free(t->seen), free(t->counts), free(t->of_tables), free(t->unique);
    free(t->found), free(t->known), free(t->rows), free(t->at), free(t->gradients), free(t->scratch);
}

/* --- Ids --- */

static void rows_room(struct tower *t, uint32_t n)
{
    size_t offsets = (size_t)t->options.fields * n + 1, floats = (size_t)n * t->stride;
    if (t->offsets_room < offsets) {
        t->offsets_room = MAX(offsets, 2 * t->offsets_room);
        t->offsets = mem_realloc(t->offsets, t->offsets_room * sizeof(*t->offsets));
        t->at = mem_realloc(t->at, t->offsets_room * sizeof(*t->at));
    }
    if (t->gradients_room < floats) {
        t->gradients_room = MAX(floats, 2 * t->gradients_room);
        t->gradients = mem_realloc(t->gradients, t->gradients_room * sizeof(*t->gradients));
    }
}

static void places_room(struct tower *t, size_t places)
{
    if (places <= t->places_room)
        return;
    leat_assert(places < UINT32_C(1) << 31);
    t->places_room = MAX(places, 2 * t->places_room);
    size_t room = t->places_room + 1;
#define GROW(array) t->array = mem_realloc(t->array, room * sizeof(*t->array))
    GROW(ids);
    GROW(bag);
    GROW(event);
    GROW(indices);
    GROW(order);
    GROW(scales);
    GROW(starts);
    GROW(seen);
    GROW(counts);
    GROW(of_tables);
    GROW(unique);
    GROW(found);
    GROW(known);
    GROW(rows);
#undef GROW
}

void tower_bags(struct tower *t, uint32_t n, const struct tower_source *source)
{
    rows_room(t, n);
    t->n = n, t->places = 0, t->offsets[0] = 0;
    for (uint32_t row = 0; row < n; row++)
        t->at[row] = source->seen(source->of, row);
    for (uint32_t f = 0, at = 0; f < t->options.fields; f++) {
        for (uint32_t row = 0; row < n; row++) {
            uint32_t count;
            const uint64_t *ids = source->ids(source->of, row, f, &count);
            places_room(t, (size_t)t->places + count);
            for (uint32_t k = 0; k < count; k++) {
                uint32_t place = t->places++;
                t->ids[place] = ids[k];
                t->bag[place] = (uint32_t)(((size_t)row * t->stride + f * t->options.dim) / 4);
                t->event[place] = row;
                t->scales[place] = 1.0F / (float)count;
            }
            t->offsets[++at] = t->places;
        }
    }
}

static uint32_t field_begin(const struct tower *t, uint32_t field)
{
    return t->offsets[(size_t)field * t->n];
}

static float *item_row(const struct tower *t, uint64_t id)
{
    float *const *rows = catalogue_rows(t->options.items);
    leat_assert(id > 0 && id <= catalogue_used(t->options.items));
    return rows[id - 1];
}

void tower_look(struct tower *t)
{
    t->is_resolved = false;
    for (uint32_t f = 0; f < t->options.fields; f++) {
        bool is_item = f < tower_first_table(t);
        for (uint32_t p = field_begin(t, f); p < field_begin(t, f + 1); p++) {
            struct table_row *row = is_item ? NULL : table_find(&t->tables[f], t->ids[p]);
            t->rows[p] = is_item ? item_row(t, t->ids[p]) : row != NULL ? table_payload(row) : NULL;
        }
    }
}

static void *scratch_of(struct tower *t, size_t bytes)
{
    if (bytes > t->scratch_bytes) {
        free(t->scratch);
        t->scratch_bytes = (bytes + 63) / 64 * 64;
        t->scratch = mem_aligned(64, t->scratch_bytes);
    }
    return t->scratch;
}

static void find_distinct(struct tower *t)
{
    uint32_t tables[TOWER_FIELDS_MAX + 1];
    for (uint32_t f = 0; f <= t->options.fields; f++)
        tables[f] = field_begin(t, f);
    struct batch_dedupe d = {.ids = t->ids,
                             .tables = tables,
                             .tables_count = t->options.fields,
                             .n = t->places,
                             .method = DEDUPE_HASH,
                             .count = &t->count,
                             .indices = t->indices,
                             .unique_ids = t->unique,
                             .unique_tables = t->of_tables,
                             .order = t->order,
                             .starts = t->starts};
    t->device.kernels->dedupe(&d, NULL);
    d.scratch = scratch_of(t, d.scratch_bytes), d.scratch_bytes = t->scratch_bytes;
    t->device.kernels->dedupe(&d, NULL);
}

/* The rows of distinct ids first .. end - 1, of one field. */
static void resolve_field(struct tower *t, uint32_t field, uint32_t first, uint32_t end, uint32_t step)
{
    for (uint32_t u = first; u < end; u++) {
        t->counts[u] = t->starts[u + 1] - t->starts[u];
        t->seen[u] = 0;
        for (uint32_t i = t->starts[u]; i < t->starts[u + 1]; i++)
            t->seen[u] = MAX(t->seen[u], t->at[t->event[t->order[i]]]);
    }
    struct table_occurrences in = {
        .keys = t->unique + first, .seen = t->seen + first, .counts = t->counts + first, .n = end - first};
    table_resolve_batch(&t->tables[field], &in, step, t->found + first, t->known + first);
    for (uint32_t u = first; u < end; u++)
        t->rows[u] = t->found[u] != NULL ? table_payload(t->found[u]) : NULL;
}

void tower_resolve(struct tower *t, uint32_t step)
{
    t->is_resolved = true;
    t->count = 0;
    if (t->places == 0)
        return;
    find_distinct(t);
    for (uint32_t u = 0, end; u < t->count; u = end) {
        uint32_t field = t->of_tables[u];
        for (end = u; end < t->count && t->of_tables[end] == field; end++)
            if (field < tower_first_table(t))
                t->rows[end] = item_row(t, t->unique[end]);
        if (field >= tower_first_table(t))
            resolve_field(t, field, u, end, step);
    }
}

/* --- Forward --- */

static void pool(struct tower *t, uint32_t from, uint32_t n)
{
    const struct tower_options *o = &t->options;
    for (uint32_t f = 0; f < o->fields; f++) {
        struct batch_gather_pool a = {.rows = (const void *const *)t->rows,
                                      .indices = t->is_resolved ? t->indices : NULL,
                                      .offsets = t->offsets + (size_t)f * t->n + from,
                                      .bags = n,
                                      .d = o->dim,
                                      .fields = 1,
                                      .stride = t->stride,
                                      .format = ROW_FP32,
                                      .is_mean = true,
                                      .out = t->net.input->values + (size_t)f * o->dim};
        t->device.kernels->gather_pool(&a, NULL);
    }
}

/* out = the sum of the fields' vectors */
static void add_fields(const struct tower *t, uint32_t row, float *out)
{
    const float *in = t->net.input->values + (size_t)row * t->stride;
    uint32_t dim = t->options.dim;
    memcpy(out, in, dim * sizeof(*out));
    for (uint32_t f = 1; f < t->options.fields; f++)
        for (uint32_t c = 0; c < dim; c++)
            out[c] += in[f * dim + c];
}

static double dot_of(const float *a, const float *b, uint32_t n)
{
    double sum = 0.0;
    for (uint32_t c = 0; c < n; c++)
        sum += (double)a[c] * (double)b[c];
    return sum;
}

float tower_normalize(float *x, uint32_t n)
{
    double length = sqrt(dot_of(x, x, n));
    float factor = length > 0.0 ? (float)(1.0 / length) : 0.0F;
    for (uint32_t c = 0; c < n; c++)
        x[c] *= factor;
    return factor;
}

static bool is_finite(const float *x, size_t n)
{
    bool is_good = true;
    for (size_t i = 0; i < n; i++)
        is_good &= isfinite(x[i]) != 0;
    return is_good;
}

void tower_encode(struct tower *t, uint32_t from, uint32_t n, float *out)
{
    const struct net_matrix *vectors = t->net.output;
    leat_assert(n <= t->pass && from + n <= t->n);
    t->has_rejected = false;
    pool(t, from, n);
    if (t->options.has_layers)
        net_forward(&t->net, n);
    for (uint32_t row = 0; row < n; row++) {
        float *to = out + (size_t)row * t->width;
        if (t->options.has_layers)
            memcpy(to, vectors->values + (size_t)row * vectors->stride, t->width * sizeof(*to));
        else
            add_fields(t, row, to);
        /* relu makes 0 of a NaN, so the input counts, too */
        const float *in = t->net.input->values + (size_t)row * t->stride;
        t->is_rejected[row] = !is_finite(in, t->stride) || !is_finite(to, t->width);
        t->has_rejected |= t->is_rejected[row];
        t->norms[row] = t->options.normalize ? tower_normalize(to, t->width) : 1.0F;
        if (t->is_rejected[row])
            to[0] = NAN; /* the loss rejects targets that need it */
    }
}

/* --- Backward --- */

/* Of y = x / |x|: dx = (dy - y (y . dy)) / |x|. */
static void vector_gradient(const struct tower *t, uint32_t row, const float *y, const float *dy, float *dx)
{
    double along = t->options.normalize ? dot_of(y, dy, t->width) : 0.0;
    if (t->is_rejected[row]) {
        memset(dx, 0, t->width * sizeof(*dx));
        return;
    }
    for (uint32_t c = 0; c < t->width; c++)
        dx[c] = (float)(((double)dy[c] - (double)y[c] * along) * (double)t->norms[row]);
}

void tower_back(struct tower *t, uint32_t from, uint32_t n, const float *vectors, const float *gradients)
{
    float *into = t->gradients + (size_t)from * t->stride;
    uint32_t width = t->width, dim = t->options.dim;
    if (!t->options.has_layers) {
        for (uint32_t row = 0; row < n; row++) {
            float *dx = into + (size_t)row * t->stride;
            vector_gradient(t, row, vectors + (size_t)row * width, gradients + (size_t)row * width, dx);
            for (uint32_t f = 1; f < t->options.fields; f++)
                memcpy(dx + f * dim, dx, dim * sizeof(*dx));
        }
        return;
    }
    struct net *net = &t->net;
    float *own = net->input->gradients;
    for (uint32_t row = 0; row < n; row++)
        vector_gradient(t, row, vectors + (size_t)row * width, gradients + (size_t)row * width,
                        net->output->gradients + (size_t)row * net->output->stride);
    if (t->has_rejected) /* 0 * NaN in a sum would reach the weights of all */
        net_mask(net, n, t->is_rejected);
    net_begin(net);
    net->slices = batch_slices_of(t->n, 0);
    net->event = from;
    net->input->gradients = into;
    net_backward(net, n);
    net->input->gradients = own;
    net->event = 0;
}

/* --- The step --- */

/* Leaves out the rows of ids that teach nothing, and marks those of items. */
static void choose_rows(struct tower *t, const uint8_t *taught)
{
    for (uint32_t u = 0; u < t->count; u++) {
        bool is_taught = false;
        for (uint32_t i = t->starts[u]; i < t->starts[u + 1] && !is_taught; i++)
            is_taught = taught[t->event[t->order[i]]] != 0;
        if (!is_taught)
            t->rows[u] = NULL;
        else if (t->of_tables[u] < tower_first_table(t))
            catalogue_change(t->options.items, (uint32_t)t->unique[u] - 1);
    }
}

static void update_rows(struct tower *t, const struct optimizer_options *optimizer)
{
    uint32_t refused = 0;
    struct batch_update a = {.in = {.grads = t->gradients,
                                    .bag = t->bag,
                                    .scales = t->scales,
                                    .order = t->order,
                                    .starts = t->starts,
                                    .count = &t->count,
                                    .n = t->places,
                                    .d = t->options.dim,
                                    .unit = 4},
                             .rows = t->rows,
                             .format = ROW_FP32,
                             .kind = optimizer->kind,
                             .params = optimizer->params,
                             .rejected = &refused};
    t->device.kernels->update(&a, NULL);
    a.scratch = scratch_of(t, a.scratch_bytes), a.scratch_bytes = t->scratch_bytes;
    t->device.kernels->update(&a, NULL);
    t->rows_refused += refused;
}

void tower_update(struct tower *t, const uint8_t *taught, const struct optimizer_options *rows,
                  const struct optimizer_options *dense)
{
    leat_assert(t->is_resolved);
    if (t->count > 0) {
        choose_rows(t, taught);
        update_rows(t, rows);
    }
    if (!t->options.has_layers)
        return;
    t->net.options.params = dense->params;
    net_update(&t->net);
}
