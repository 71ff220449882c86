/* Dead letters: sends the bad rows of a stage instance, micro-batch by micro-batch, to the sink that takes
 * them. */
#include "run/lanes/internal.h"

#include "core/mem.h"
#include "core/utf8.h"

#include <stdio.h>
#include <stdlib.h>

/* Texts are UTF-8 everywhere, but bad records need not be: replaces each byte above 0x7f of a text that is
 * not UTF-8. */
static void mend_utf8(char *text, size_t length)
{
    if (utf8_is_valid((struct str){text, length}))
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

static void describe(struct stage_instance *stage, const struct row_origin *origin, struct str reason,
                     const char *step, char *text, size_t room)
{
    struct partition_place place;
    (void)sequencer_place(stage->run, origin->partition, &place);
    snprintf(text, room, "%s: record %llu: %s%s%.*s", place.name, (unsigned long long)origin->record, step,
             step[0] == '\0' ? "" : ": ", STR_ARGS(reason));
    mend_utf8(text, strlen(text));
}

static void keep_example(struct node_instance *node, const struct row_origin *origin,
                         const struct row_order *order, struct str reason)
{
    struct stage_instance *stage = node->stage;
    struct run_dead_example *example = dead_example_room(stage->examples, &stage->examples_count, order);
    if (example != NULL)
        describe(stage, origin, reason, node->node->label, example->text, sizeof(example->text));
}

/* Keeps the reason of the node's first dead letter, for run_stats while the run goes on. */
static void keep_first(struct node_instance *node, const struct row_origin *origin, struct str reason)
{
    if (likely(atomic_load_explicit(&node->has_dead, memory_order_relaxed)))
        return;
    describe(node->stage, origin, reason, "", node->dead_reason, sizeof(node->dead_reason));
    atomic_store(&node->has_dead, true);
}

/* Copies a text, mended to UTF-8; where it is not UTF-8, the original goes to `bytes`, too. */
static void keep(struct stage_instance *stage, struct str *text, struct str *bytes)
{
    if (text->data == NULL)
        return;
    if (!utf8_is_valid(*text))
        *bytes = arena_str(&stage->dead_arena, *text);
    *text = mended(&stage->dead_arena, *text);
}

void dead_add(struct node_instance *node, const struct row_origin *origin, const struct row_order *order,
              const struct dead_letter *letter, const struct batch *batch, uint32_t batch_row)
{
    struct stage_instance *stage = node->stage;
    node->context.counters.dead++;
    if (unlikely(stage->run->trace != NULL))
        trace_dead(node, origin, letter);
    keep_example(node, origin, order, letter->reason);
    keep_first(node, origin, letter->reason);
    if (dead_kept_has_turn(node))
        dead_kept_add(node, origin, letter, batch, batch_row);
    if (stage->dead_exchange == NULL)
        return;
    if (stage->dead_count == stage->dead_capacity) {
        stage->dead_capacity = MAX(64, stage->dead_capacity * 2);
        stage->dead = mem_realloc(stage->dead, stage->dead_capacity * sizeof(*stage->dead));
    }
    struct dead_row row = {.origin = *origin, .order = *order, .node = node->node, .letter = *letter};
    row.letter.reason = mended(&stage->dead_arena, letter->reason);
    keep(stage, &row.letter.raw, &row.raw_bytes);
    keep(stage, &row.letter.key, &row.key_bytes);
    if (letter->headers.data != NULL)
        row.letter.headers = arena_str(&stage->dead_arena, letter->headers);
    stage->dead[stage->dead_count++] = row;
}

void operator_reject(struct operator_context *context, const struct batch *batch, uint32_t row,
                     const char *reason)
{
    if (unlikely(context->reader != NULL)) {
        context->reader->reject(context, batch, row, reason);
        return;
    }
    struct row_origin origin = batch_origin(batch, row);
    struct row_order order = batch_order(batch, row);
    struct dead_letter letter = {.reason = str_from(reason), .time_us = dead_time(batch, row)};
    dead_add(context->engine, &origin, &order, &letter, batch, row);
}

/* By the row's order, then by the place of the node that rejected it. */
static int compare_dead(const void *a, const void *b)
{
    const struct dead_row *x = a, *y = b;
    int order = row_order_compare(&x->order, &y->order);
    if (order != 0)
        return order;
    return x->node->place < y->node->place ? -1 : x->node->place > y->node->place;
}

/* The texts of a batch under construction. */
struct heap {
    struct batch *batch;
    char *data;
    size_t used, room;
};

/* Appends a text to the heap; a text whose data is NULL becomes null. */
static void set_text(struct heap *heap, uint32_t column, uint32_t row, struct str text)
{
    struct column *to = &heap->batch->columns[column];
    leat_assert(heap->used + text.length <= heap->room);
    to->heap = heap->data;
    to->texts[row] = (struct text_ref){(uint32_t)heap->used, (uint32_t)text.length};
    if (text.length > 0)
        memcpy(heap->data + heap->used, text.data, text.length);
    heap->used += text.length;
    if (text.data == NULL)
        batch_set_null(heap->batch, to, row);
}

static void set_int(struct heap *heap, uint32_t column, uint32_t row, int64_t value, bool is_there)
{
    struct column *to = &heap->batch->columns[column];
    to->ints[row] = is_there ? value : 0;
    if (!is_there)
        batch_set_null(heap->batch, to, row);
}

/* Where a dead row was read. */
struct dead_place {
    const struct plan_node *source;
    const char *name, *topic; /* topic NULL: the source has no topics */
    int32_t number;
};

static struct dead_place place_of(struct run *run, const struct dead_row *row)
{
    struct partition_place partition;
    bool is_known = sequencer_place(run, row->origin.partition, &partition);
    struct dead_place place = {.source = partition.node, .name = partition.name};
    if (is_known && partition.node->source_kind->partition_topic != NULL)
        place.topic =
            partition.node->source_kind->partition_topic(partition.source, partition.local, &place.number);
    return place;
}

static void fill_row(struct run *run, struct heap *heap, uint32_t i, const struct dead_row *row)
{
    struct dead_place place = place_of(run, row);
    const struct dead_letter *letter = &row->letter;
    bool has_topic = place.topic != NULL;
    set_text(heap, DEAD_JOB, i, run->plan->name);
    set_text(heap, DEAD_SOURCE, i, place.source == NULL ? STR("") : place.source->name);
    set_text(heap, DEAD_PLACE, i, str_from(place.name));
    mend_utf8(heap->data + heap->used - strlen(place.name), strlen(place.name));
    set_text(heap, DEAD_TOPIC, i, has_topic ? str_from(place.topic) : (struct str){NULL, 0});
    set_int(heap, DEAD_PARTITION, i, place.number, has_topic);
    set_int(heap, DEAD_OFFSET, i, (int64_t)row->origin.record, has_topic);
    set_int(heap, DEAD_TIME, i, letter->time_us, letter->time_us != 0);
    set_int(heap, DEAD_RECORD, i, (int64_t)row->origin.record, true);
    set_text(heap, DEAD_STEP, i, str_from(row->node->label));
    set_text(heap, DEAD_REASON, i, letter->reason);
    set_text(heap, DEAD_KEY, i, letter->key);
    set_text(heap, DEAD_KEY_BYTES, i, row->key_bytes);
    set_text(heap, DEAD_HEADERS, i, letter->headers);
    set_text(heap, DEAD_RAW, i, letter->raw);
    set_text(heap, DEAD_RAW_BYTES, i, row->raw_bytes);
    heap->batch->event_time[i] = 0;
}

static size_t text_bytes(struct run *run, const struct dead_row *row)
{
    struct dead_place place = place_of(run, row);
    const struct dead_letter *letter = &row->letter;
    return run->plan->name.length + (place.source == NULL ? 0 : place.source->name.length) +
           strlen(place.name) + (place.topic == NULL ? 0 : strlen(place.topic)) + strlen(row->node->label) +
           letter->reason.length + letter->key.length + row->key_bytes.length + letter->headers.length +
           letter->raw.length + row->raw_bytes.length;
}

static void push_rows(struct stage_instance *stage, const struct dead_row *rows, uint32_t count)
{
    struct run *run = stage->run;
    struct batch *batch = batch_new(run->pool, &plan_dead_schema, count);
    struct row_origin *origins = arena_alloc(&batch->arena, count * sizeof(*origins));
    struct row_order *orders = arena_alloc(&batch->arena, count * sizeof(*orders));
    struct heap heap = {.batch = batch};
    for (uint32_t i = 0; i < count; i++)
        heap.room += text_bytes(run, &rows[i]);
    heap.data = arena_alloc(&batch->arena, heap.room);
    for (uint32_t i = 0; i < count; i++) {
        fill_row(run, &heap, i, &rows[i]);
        origins[i] = rows[i].origin;
        orders[i] = rows[i].order;
    }
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
