/*
 * Learning on a GPU: opens the GPU that the option `device` asks for (where.h), and does the GPU's part of checkpoints. A
 * learner that only reads a checkpoint needs no GPU, because rows are stored in the same form as from a CPU.
 */
#include "learners/learner/internal.h"
#include "learners/tables/cold.h"

#include "core/mem.h"
#include "core/operator_history.h"
#include "core/os.h"
#include "kernels/gpu.h"
#include "learners/device/table.h"

#include <stdlib.h>

const struct option learner_device_options[] = {
    LEARNER_WHERE_OPTION(struct device_config, where,
                         "GPU 0 if it is usable and the learner learns by batches, else the CPU"),
    OPTION_BYTES(struct device_config, memory, "device_memory", OPTION_RUNTIME, "0B", "0B", NULL,
                 "memory of the GPU for rows; an eighth of it is for rows that a checkpoint copies; "
                 "0B: two thirds of the free memory"),
    OPTION_BYTES(struct device_config, pinned, "pinned_memory", OPTION_RUNTIME, "64MiB", "1MiB", NULL,
                 "pinned memory of the host, for rows that do not fit into `device_memory`"),
    OPTIONS_END,
};

/* What may be changed where there is too little memory. */
static const char CHANGE[] = "`device_memory`, `pinned_memory` or another option that the message names";

bool learner_bind_device(struct operator_bind *bind, struct learner_config *c)
{
    if (!learner_where_bind(bind, &c->device.where))
        return false;
    if (c->device.where.kind != DEVICE_CUDA || model_learns_by_batches(&c->model))
        return true;
    diag_error(bind->diags, DIAG_BAD_LEARNER, learner_where_span(&c->device.where),
               "a GPU learns by batches: set the number of examples in a step, for example `batch: 4096`, or "
               "use `device: cpu`");
    return false;
}

bool learner_open_device(const struct learner_config *c, struct learner_state *s, struct gpu_error *error)
{
    return c->device.where.kind == DEVICE_CPU || !model_learns_by_batches(&c->model) ||
           learner_gpu_open(&s->device, c->device.where.number, error) || c->device.where.kind == DEVICE_AUTO;
}

bool learner_pick_device(struct operator_context *context)
{
    struct learner_config *c = context->config;
    struct gpu_error error;
    c->model.is_on_device = false;
    if (context->only_reads)
        return true;
    if (!learner_open_device(c, c->state, &error))
        return learner_where_refuse(context, &c->device.where, &error);
    c->model.is_on_device = c->state->device.api != NULL;
    if (c->model.is_on_device || !context->compares)
        return true;
    struct diag *d = diag_error(context->diags, DIAG_BAD_LEARNER, learner_where_span(&c->device.where),
                                "`--compare cpu` needs a learner on a GPU, but this learner runs on the CPU");
    diag_hint(context->diags, d,
              "with `device: cuda(0)` and a `batch` of more than 1 the learner runs on a GPU");
    return false;
}

uint64_t learner_device_free(const struct learner_state *s)
{
    return s->device.api->memory_free(s->device.gpu);
}

uint64_t learner_device_memory(const struct learner_config *c, const struct learner_state *s)
{
    return c->device.memory > 0 ? (uint64_t)c->device.memory : learner_device_free(s) / 3 * 2;
}

bool learner_attach(struct operator_context *context)
{
    struct learner_config *c = context->config;
    struct learner_state *s = c->state;
    struct gpu_error error;
    struct cold_store *stores[MODEL_FIELDS_MAX] = {NULL};
    for (uint32_t f = 0; f < c->inputs.sparse_count && learner_has_cold(context); f++) {
        const struct table *table = model_table(s->model, f);
        stores[f] = context->cold_store(context, s->tables[f], table_stored_bytes(table));
        table_cold_bind(table, stores[f]);
    }
    struct model_device device = {.api = s->device.api,
                                  .gpu = s->device.gpu,
                                  .stream = s->device.stream,
                                  .memory_bytes = learner_device_memory(c, s),
                                  .pinned_bytes = (uint64_t)c->device.pinned,
                                  .stores = stores};
    s->attached_us = os_monotonic_us();
    if (!model_attach(s->model, &device, &error))
        return learner_where_refuse(context, &c->device.where, &error);
    if (context->compares)
        model_compare_begin(s->model);
    return true;
}

bool learner_check_compared(struct operator_context *context)
{
    const struct learner_config *c = context->config;
    if (model_shadow(c->state->model) == NULL || !model_compared(c->state->model)->is_found)
        return true;
    operator_fail(
        context, DIAG_DEVICE_DIFFERS, learner_where_span(&c->device.where),
        model_compared(c->state->model)->text,
        "look for the cause of this first difference: a wrong kernel, or a sum whose terms cancel out; "
        "without `--compare` the job goes on from its last checkpoint");
    return false;
}

bool learner_check_device(struct operator_context *context)
{
    const struct learner_config *c = context->config;
    const struct gpu_error *error = c->state->device.api != NULL ? model_error(c->state->model) : NULL;
    if (error == NULL)
        return true;
    if (!c->state->has_failed)
        learner_where_failed(context, &c->device.where, error, CHANGE);
    c->state->has_failed = true;
    return false;
}

bool learner_restore_failed(struct operator_context *context)
{
    const struct learner_config *c = context->config;
    const struct gpu_error *error = c->state->device.api != NULL ? model_error(c->state->model) : NULL;
    if (error == NULL || error->failure == GPU_UNSUPPORTED)
        return false; /* GPU_UNSUPPORTED: the checkpoint's content cannot be of these tables */
    learner_where_unrestored(context, &c->device.where, error, CHANGE);
    return true;
}

/* --- Checkpoints --- */

void learner_device_begin(struct learner_state *s, uint32_t fields, uint32_t since, uint32_t epoch)
{
    bool is_good = true;
    for (uint32_t f = 0; f < fields && is_good; f++) {
        uint32_t table;
        struct device_table *t = model_device_table(s->model, f, &table);
        if (table == 0)
            is_good = device_table_snapshot_begin(t, since, epoch, model_error_place(s->model));
    }
    model_device_set_epoch(s->model, epoch + 1);
}

struct cold_store *learner_device_store(const struct learner_state *s, uint32_t field)
{
    uint32_t table;
    const struct device_table *t = model_device_table(s->model, field, &table);
    return device_table_store(t, table);
}

uint64_t learner_device_cold(const struct learner_state *s, uint32_t field, uint64_t *loaded)
{
    uint32_t table;
    const struct device_table *t = model_device_table(s->model, field, &table);
    *loaded += table == 0 ? device_table_stats(t).loaded : 0;
    return device_table_below(t, table).cold;
}

bool learner_device_has_cold(const struct learner_state *s, uint32_t field)
{
    uint32_t table;
    const struct device_table *t = model_device_table(s->model, field, &table);
    return device_table_below(t, table).cold > 0;
}

uint64_t learner_device_total(const struct learner_state *s, uint32_t field)
{
    uint64_t bytes;
    return model_device_stats(s->model, field, &bytes).rows;
}

bool learner_device_is_held(const struct learner_state *s, uint32_t fields)
{
    bool is_held = false;
    for (uint32_t f = 0; f < fields; f++) {
        uint32_t table;
        const struct device_table *t = model_device_table(s->model, f, &table);
        is_held |= table == 0 && (device_table_is_held(t) || device_table_is_pressed(t));
    }
    return is_held;
}

uint64_t learner_device_held(const struct learner_state *s, uint32_t fields)
{
    uint64_t held = 0;
    for (uint32_t f = 0; f < fields; f++) {
        uint32_t table;
        const struct device_table *t = model_device_table(s->model, f, &table);
        held += table == 0 ? device_table_stats(t).held : 0;
    }
    return held;
}

void learner_device_settle(struct learner_state *s, uint32_t fields, bool is_published)
{
    for (uint32_t f = 0; f < fields; f++) {
        uint32_t table;
        struct device_table *t = model_device_table(s->model, f, &table);
        if (table == 0)
            device_table_snapshot_end(t, is_published);
    }
}

bool learner_device_restore(struct learner_state *s, uint32_t field, uint8_t kind, const void *items,
                            size_t count)
{
    uint32_t table;
    struct device_table *t = model_device_table(s->model, field, &table);
    struct gpu_error *error = model_error_place(s->model);
    if (count == 0)
        return true;
    if (kind == 'R')
        return device_table_restore(t, table, items, count, error);
    size_t bytes = count * (kind == 'C' ? sizeof(struct sketch_block) : sizeof(uint64_t));
    void *aligned = mem_alloc(bytes); /* records may be unaligned in a checkpoint */
    memcpy(aligned, items, bytes);
    bool is_good = kind == 'C' ? device_table_restore_counts(t, table, aligned, count, error)
                               : device_table_restore_remove(t, table, aligned, count, error);
    free(aligned);
    return is_good;
}

bool learner_device_restored(struct learner_state *s, uint32_t fields, uint32_t epoch)
{
    struct gpu_error *error = model_error_place(s->model);
    for (uint32_t f = 0; f < fields; f++) {
        uint32_t table;
        struct device_table *t = model_device_table(s->model, f, &table);
        if (table == 0 && !device_table_restored(t, error))
            return false;
        if (s->totals[f] > 0 && !device_table_restored_cold(t, table, s->totals[f], error))
            return false;
    }
    model_device_set_epoch(s->model, epoch + 1);
    return true;
}

/* --- Cuts --- */

bool learner_device_cut_note(struct learner_state *s, uint32_t fields, bool is_on)
{
    struct gpu_error error; /* not the model's: without cuts it learns on */
    bool is_good = true;
    for (uint32_t f = 0; f < fields; f++) {
        uint32_t table;
        struct device_table *t = model_device_table(s->model, f, &table);
        if (table == 0)
            is_good = device_table_cut_note(t, is_on && is_good, s->epoch, &error) && is_good;
    }
    if (!is_good)
        return learner_device_cut_note(s, fields, false) && false;
    if (is_on)
        model_device_set_epoch(s->model, s->epoch + 1);
    return true;
}

bool learner_device_cut(struct learner_state *s, uint32_t fields)
{
    for (uint32_t f = 0; f < fields; f++) {
        uint32_t table;
        struct device_table *t = model_device_table(s->model, f, &table);
        if (table == 0 && !device_table_cut(t, s->epoch, model_error_place(s->model)))
            return false;
    }
    model_device_set_epoch(s->model, s->epoch + 1);
    return true;
}

void learner_device_cut_write(const struct learner_state *s, uint32_t field, struct byte_buffer *out)
{
    uint32_t table;
    struct device_table *t = model_device_table(s->model, field, &table);
    device_table_cut_write(t, table, model_table(s->model, field), out);
}
