/*
 * Learning on a GPU: reads the option `device`, finds and opens the GPU, and does the GPU's part of
 * checkpoints. A learner that only reads a checkpoint needs no GPU, because rows are stored in the same form
 * as from a CPU.
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
    OPTION_EXPRESSION(struct device_config, where, "device", OPTION_RUNTIME,
                      "where the learner runs: `cpu`; `cuda(0)`: a GPU by its number; `auto`: GPU 0 if "
                      "it is usable and the learner learns by batches, else the CPU"),
    OPTION_BYTES(struct device_config, memory, "device_memory", OPTION_RUNTIME, "0B", "0B", NULL,
                 "memory of the GPU for rows; an eighth of it is for rows that a checkpoint copies; "
                 "0B: two thirds of the free memory"),
    OPTION_BYTES(struct device_config, pinned, "pinned_memory", OPTION_RUNTIME, "64MiB", "1MiB", NULL,
                 "pinned memory of the host, for rows that do not fit into `device_memory`"),
    OPTIONS_END,
};

static bool read_device(const struct ast *ast, struct learner_config *c)
{
    c->device.kind = DEVICE_AUTO, c->device.number = 0;
    if (ast == NULL || (ast->tag == AST_NAME && str_equal(ast->text, STR("auto"))))
        return true;
    if (ast->tag == AST_NAME && str_equal(ast->text, STR("cpu"))) {
        c->device.kind = DEVICE_CPU;
        return true;
    }
    c->device.kind = DEVICE_CUDA;
    if (ast->tag == AST_NAME && str_equal(ast->text, STR("cuda")))
        return true;
    if (ast->tag != AST_CALL || !str_equal(ast->text, STR("cuda")) || ast->count != 1 ||
        ast->children[0]->tag != AST_INT || ast->children[0]->integer < 0 ||
        ast->children[0]->integer >= GPU_DEVICES_MAX)
        return false;
    c->device.number = (int)ast->children[0]->integer;
    return true;
}

bool learner_bind_device(struct operator_bind *bind, struct learner_config *c)
{
    if (!read_device(c->device.where.ast, c)) {
        struct diag *d = diag_error(bind->diags, DIAG_BAD_LEARNER, c->device.where.ast->span,
                                    "`device` must be `auto`, `cpu` or a GPU by its number, for "
                                    "example `cuda(0)`");
        diag_hint(bind->diags, d, "`leat help device` lists the devices of this machine");
        return false;
    }
    if (c->device.kind != DEVICE_CUDA || model_learns_by_batches(&c->model))
        return true;
    diag_error(bind->diags, DIAG_BAD_LEARNER, c->device.where.ast->span,
               "a GPU learns by batches: set the number of examples in a step, for example `batch: 4096`, or "
               "use `device: cpu`");
    return false;
}

static struct span device_span(const struct learner_config *c)
{
    return c->device.where.ast ? c->device.where.ast->span : (struct span){0, 0};
}

/* After GPU_NO_MEMORY a mere restart would fail again, so the hint says what to change. */
static const char *hint_of(const struct gpu_error *error)
{
    return error->failure == GPU_NO_MEMORY ? "change `device_memory`, `pinned_memory` or another option that "
                                             "the message names, and run the job again: it goes on from its "
                                             "last checkpoint"
                                           : "start the job again: it goes on from its last checkpoint "
                                             "(`leat run --supervise` starts it by itself)";
}

static bool refuse(struct operator_context *context, const struct learner_config *c,
                   const struct gpu_error *error)
{
    struct diag *d = diag_error(context->diags, DIAG_BAD_LEARNER, device_span(c),
                                "the learner cannot use its GPU: %s", error->text);
    diag_hint(context->diags, d,
              "`leat help device` shows the devices of this machine; with `device: cpu` the learner needs "
              "no GPU");
    return false;
}

/* Opens device `number` into s; false with `error` set. */
static bool open_device(struct learner_state *s, int number, struct gpu_error *error)
{
    *error = (struct gpu_error){.failure = GPU_OK};
    s->gpu_api = gpu_open_library(NULL, error);
    s->gpu = s->gpu_api != NULL ? s->gpu_api->open(number, error) : NULL;
    s->gpu_stream = s->gpu != NULL ? s->gpu_api->stream(s->gpu, error) : NULL;
    if (s->gpu_stream != NULL)
        return true;
    learner_close_device(s);
    return false;
}

bool learner_open_device(const struct learner_config *c, struct learner_state *s, struct gpu_error *error)
{
    return c->device.kind == DEVICE_CPU || !model_learns_by_batches(&c->model) ||
           open_device(s, c->device.number, error) || c->device.kind == DEVICE_AUTO;
}

bool learner_pick_device(struct operator_context *context)
{
    struct learner_config *c = context->config;
    struct gpu_error error;
    c->model.is_on_device = false;
    if (context->only_reads)
        return true;
    if (!learner_open_device(c, c->state, &error))
        return refuse(context, c, &error);
    c->model.is_on_device = c->state->gpu_api != NULL;
    if (c->model.is_on_device || !context->compares)
        return true;
    struct diag *d = diag_error(context->diags, DIAG_BAD_LEARNER, device_span(c),
                                "`--compare cpu` needs a learner on a GPU, but this learner runs on the CPU");
    diag_hint(context->diags, d,
              "with `device: cuda(0)` and a `batch` of more than 1 the learner runs on a GPU");
    return false;
}

uint64_t learner_device_free(const struct learner_state *s)
{
    return s->gpu_api->memory_free(s->gpu);
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
    struct model_device device = {.api = s->gpu_api,
                                  .gpu = s->gpu,
                                  .stream = s->gpu_stream,
                                  .memory_bytes = learner_device_memory(c, s),
                                  .pinned_bytes = (uint64_t)c->device.pinned,
                                  .stores = stores};
    s->attached_us = os_monotonic_us();
    if (!model_attach(s->model, &device, &error))
        return refuse(context, c, &error);
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
        context, DIAG_DEVICE_DIFFERS, device_span(c), model_compared(c->state->model)->text,
        "look for the cause of this first difference: a wrong kernel, or a sum whose terms cancel out; "
        "without `--compare` the job goes on from its last checkpoint");
    return false;
}

bool learner_check_device(struct operator_context *context)
{
    const struct learner_config *c = context->config;
    const struct gpu_error *error = c->state->gpu_api != NULL ? model_error(c->state->model) : NULL;
    if (error == NULL)
        return true;
    if (!c->state->has_failed)
        operator_fail(context, DIAG_DEVICE_FAILED, device_span(c), error->text, hint_of(error));
    c->state->has_failed = true;
    return false;
}

bool learner_restore_failed(struct operator_context *context)
{
    const struct learner_config *c = context->config;
    const struct gpu_error *error = c->state->gpu_api != NULL ? model_error(c->state->model) : NULL;
    if (error == NULL || error->failure == GPU_UNSUPPORTED)
        return false; /* GPU_UNSUPPORTED: the checkpoint's content cannot be of these tables */
    diag_hint(context->diags,
              diag_error(context->diags, DIAG_DEVICE_FAILED, device_span(c),
                         "the learner cannot be restored from the checkpoint: %s", error->text),
              "%s", hint_of(error));
    return true;
}

void learner_close_device(struct learner_state *s)
{
    if (s->gpu_api == NULL)
        return;
    if (s->gpu && s->gpu_stream)
        s->gpu_api->stream_free(s->gpu, s->gpu_stream);
    s->gpu_api->close(s->gpu);
    s->gpu_api = NULL, s->gpu = NULL, s->gpu_stream = NULL;
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
