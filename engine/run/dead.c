/* Dead letters: bad rows of a stage instance, number by number, to the sink that takes them. */
#include "lang/lang.h"
#include "run/internal.h"

#include <stdio.h>
#include <stdlib.h>

static const char *partition_name(struct run *run, uint32_t id, const struct plan_node **node)
{
    if (id >= run->sequencer.partitions_count) {
        *node = NULL;
        return "";
    }
    const struct partition *p = &run->sequencer.partitions[id];
    *node = &run->plan->nodes[run->plan->sources[p->source]];
    if ((*node)->source_kind->partition_name == NULL)
        return "";
    return (*node)->source_kind->partition_name(&run->sources[p->source], p->local);
}

/* Texts are UTF-8 everywhere; what bad records hold need not be. */
static void mend_utf8(char *text, size_t length)
{
    if (lang_is_utf8((struct str){text, length}))
        return;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] >= 0x80)
            text[i] = '?';
}

static struct str mended(struct arena *arena, struct str text)
{
    struct str copy = arena_str(arena, text);
    mend_utf8((char *)(uintptr_t)copy.data, copy.length);
    return copy;
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

static void keep_example(struct stage_instance *stage, const struct dead_row *row)
{
    struct run_dead_example *example =
        dead_example_room(stage->examples, &stage->examples_count, &row->order);
    if (example == NULL)
        return;
    const struct plan_node *source;
    const char *place = partition_name(stage->run, row->origin.partition, &source);
    snprintf(example->text, sizeof(example->text), "%s: record %llu: %s: %.*s", place,
             (unsigned long long)row->origin.record, row->node->label, STR_ARGS(row->reason));
    mend_utf8(example->text, strlen(example->text));
}

void dead_add(struct node_instance *node, const struct row_origin *origin, const struct row_order *order,
              struct str reason, struct str raw)
{
    struct stage_instance *stage = node->stage;
    node->context.counters.dead++;
    struct dead_row row = {*origin, *order, node->node, reason, raw, {0}};
    keep_example(stage, &row);
    if (stage->dead_exchange == NULL)
        return;
    if (stage->dead_count == stage->dead_capacity) {
        stage->dead_capacity = MAX(64, stage->dead_capacity * 2);
        stage->dead = realloc(stage->dead, stage->dead_capacity * sizeof(*stage->dead));
        leat_assert(stage->dead != NULL);
    }
    row.reason = mended(&stage->dead_arena, reason);
    if (raw.data != NULL) {
        row.raw = mended(&stage->dead_arena, raw);
        if (!lang_is_utf8(raw))
            row.raw_bytes = arena_str(&stage->dead_arena, raw);
    }
    stage->dead[stage->dead_count++] = row;
}

void operator_reject(struct operator_context *context, const struct batch *batch, uint32_t row,
                     const char *reason)
{
    struct row_origin origin = batch_origin(batch, row);
    struct row_order order = batch_order(batch, row);
    dead_add(context->engine, &origin, &order, str_from(reason), (struct str){0});
}

/* By the row's order, then by the step that rejected it. */
static int compare_dead(const void *a, const void *b)
{
    const struct dead_row *x = a, *y = b;
    int order = row_order_compare(&x->order, &y->order);
    if (order != 0)
        return order;
    return x->node->place < y->node->place ? -1 : x->node->place > y->node->place;
}

static void set_text(struct batch *batch, uint32_t column, uint32_t row, struct str text, char *heap,
                     uint32_t *used)
{
    batch->columns[column].heap = heap;
    batch->columns[column].texts[row] = (struct text_ref){*used, (uint32_t)text.length};
    if (text.length > 0)
        memcpy(heap + *used, text.data, text.length);
    *used += (uint32_t)text.length;
}

static void fill_row(struct run *run, struct batch *batch, uint32_t i, const struct dead_row *row, char *heap,
                     uint32_t *used)
{
    const struct plan_node *source;
    const char *place = partition_name(run, row->origin.partition, &source);
    set_text(batch, DEAD_SOURCE, i, source == NULL ? STR("") : source->name, heap, used);
    set_text(batch, DEAD_PLACE, i, str_from(place), heap, used);
    mend_utf8(heap + *used - strlen(place), strlen(place));
    batch->columns[DEAD_RECORD].ints[i] = (int64_t)row->origin.record;
    set_text(batch, DEAD_STEP, i, str_from(row->node->label), heap, used);
    set_text(batch, DEAD_REASON, i, row->reason, heap, used);
    set_text(batch, DEAD_RAW, i, row->raw, heap, used);
    set_text(batch, DEAD_RAW_BYTES, i, row->raw_bytes, heap, used);
    if (row->raw.data == NULL)
        batch_set_null(batch, &batch->columns[DEAD_RAW], i);
    if (row->raw_bytes.data == NULL)
        batch_set_null(batch, &batch->columns[DEAD_RAW_BYTES], i);
    batch->event_time[i] = 0;
}

static void push_rows(struct stage_instance *stage, const struct dead_row *rows, uint32_t count)
{
    struct run *run = stage->run;
    struct batch *batch = batch_new(run->pool, &plan_dead_schema, count);
    struct row_origin *origins = arena_alloc(&batch->arena, count * sizeof(*origins));
    struct row_order *orders = arena_alloc(&batch->arena, count * sizeof(*orders));
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct plan_node *source;
        bytes += strlen(partition_name(run, rows[i].origin.partition, &source)) + strlen(rows[i].node->label);
        bytes += rows[i].reason.length + rows[i].raw.length + rows[i].raw_bytes.length;
        bytes += (source == NULL ? 0 : source->name.length);
    }
    char *heap = arena_alloc(&batch->arena, bytes);
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        fill_row(run, batch, i, &rows[i], heap, &used);
        origins[i] = rows[i].origin;
        orders[i] = rows[i].order;
    }
    leat_assert(used == bytes);
    batch->origins = origins;
    batch->orders = orders;
    exchange_push(stage->dead_exchange, stage, batch);
    batch_release(batch);
}

void dead_flush(struct stage_instance *stage)
{
    if (stage->dead_count == 0)
        return;
    qsort(stage->dead, stage->dead_count, sizeof(*stage->dead), compare_dead);
    for (uint32_t begin = 0; begin < stage->dead_count; begin += BATCH_ROWS)
        push_rows(stage, stage->dead + begin, MIN((uint32_t)BATCH_ROWS, stage->dead_count - begin));
    stage->dead_count = 0;
    arena_reset(&stage->dead_arena);
}
