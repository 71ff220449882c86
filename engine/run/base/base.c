#include "run/base/base.h"

#include "state/state.h"

#include <stdarg.h>
#include <stdio.h>

void base_init(struct run *run)
{
    pthread_mutex_init(&run->diags_mutex, NULL);
    pthread_mutex_init(&run->idle_mutex, NULL);
    pthread_cond_init(&run->idle_condition, NULL);
    run->pool = batch_pool_new();
    run->waiting_budget = (size_t)(run->plan->config.memory_bytes / 8);
    if (run->options.peers != NULL)
        run->waiting_budget -= (size_t)(run->plan->config.memory_bytes / RUN_LINKS_PART);
    batch_pool_set_budget(run->pool, (size_t)(run->plan->config.memory_bytes / 8));
    run->sources = arena_array(&run->arena, struct source, MAX(run->plan->sources_count, 1));
}

void base_free(struct run *run)
{
    batch_pool_free(run->pool);
    buffer_free(&run->notes);
    pthread_mutex_destroy(&run->diags_mutex);
    pthread_mutex_destroy(&run->idle_mutex);
    pthread_cond_destroy(&run->idle_condition);
    arena_free(&run->arena);
}

void run_wake(struct run *run)
{
    atomic_fetch_add(&run->progress, 1);
    if (atomic_load(&run->idle_sleepers) == 0)
        return;
    pthread_mutex_lock(&run->idle_mutex); /* who sleeps has looked at `progress` before, or waits by now */
    pthread_mutex_unlock(&run->idle_mutex);
    pthread_cond_broadcast(
        &run->idle_condition); /* without the mutex, for which those that wake would wait at once */
}

void run_fail(struct run *run)
{
    atomic_store(&run->has_failed, true);
    run_wake(run);
}

void run_note(struct run *run, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    buffer_printf(&run->notes, "%s\n", line);
}

int64_t base_input_watermark(const struct plan *plan, const struct plan_node *node, const int64_t *after)
{
    int64_t watermark = TIME_MAX;
    for (uint32_t i = 0; i < node->inputs_count; i++)
        if (node->inputs[i].node < plan->nodes_count)
            watermark = MIN(watermark, after[node->inputs[i].node]);
    /* Where the inputs have ended, so has the time of arrival, which says so itself only when all nodes are done. */
    return node->is_by_arrival && watermark < TIME_MAX ? after[plan->nodes_count] : watermark;
}

/* TIME_MAX lets all rows out, held ones too. */
static int64_t behind(const struct plan_node *node, int64_t watermark)
{
    return watermark == TIME_MAX ? TIME_MAX : time_add(watermark, -node->hold_us);
}

void base_watermarks(const struct plan *plan, const int64_t *sources, int64_t *after)
{
    after[plan->nodes_count] = sources[plan->sources_count];
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        const struct plan_node *node = &plan->nodes[i];
        int64_t watermark =
            node->tag == PLAN_SOURCE ? sources[node->source_index] : base_input_watermark(plan, node, after);
        after[i] = behind(node, watermark);
    }
}

void base_watermarks_ended(const struct plan *plan, const bool *is_done, int64_t *after)
{
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        const struct plan_node *node = &plan->nodes[i];
        if (node->tag == PLAN_SOURCE)
            after[i] = TIME_MAX;
        else if (!node->goes_on || is_done[i])
            after[i] = behind(node, base_input_watermark(plan, node, after));
    }
}

struct cold_store *base_cold_store(struct operator_context *context, uint32_t table, size_t row_bytes)
{
    return cold_store_new(context->state_store, context->id, table, row_bytes);
}

int64_t base_memory_share(const struct plan *plan, int64_t bytes)
{
    uint32_t nodes = 0;
    for (uint32_t i = 0; i < plan->nodes_count; i++)
        nodes += plan->nodes[i].needs_memory;
    return bytes / MAX(nodes, 1);
}

struct run_dead_example *dead_example_room(struct run_dead_example *examples, uint32_t *count,
                                           const struct row_order *order)
{
    uint32_t at = *count;
    while (at > 0 && row_order_compare(order, &examples[at - 1].order) < 0)
        at--;
    if (at == RUN_DEAD_EXAMPLES)
        return NULL;
    *count = MIN(*count + 1, (uint32_t)RUN_DEAD_EXAMPLES);
    memmove(&examples[at + 1], &examples[at], (*count - 1 - at) * sizeof(*examples));
    examples[at].order = *order;
    return &examples[at];
}
