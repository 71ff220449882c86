#include "connectors/generator/ctr_clicks.h"
#include "core/refused.h"

#include <stdlib.h>

static bool is_before(const struct ctr_click *a, const struct ctr_click *b)
{
    return a->ts_ms != b->ts_ms ? a->ts_ms < b->ts_ms : a->imp_id < b->imp_id;
}

bool ctr_click_push(struct ctr_click_heap *heap, struct ctr_click click)
{
    if (heap->count == heap->capacity) {
        size_t capacity = MAX(2 * heap->capacity, 1024);
        struct ctr_click *items = refused_ask_again(heap->items, capacity * sizeof(*items));
        if (items == NULL)
            return false;
        heap->items = items;
        heap->capacity = capacity;
    }
    size_t i = heap->count++;
    for (; i > 0 && is_before(&click, &heap->items[(i - 1) / 2]); i = (i - 1) / 2)
        heap->items[i] = heap->items[(i - 1) / 2];
    heap->items[i] = click;
    return true;
}

bool ctr_click_pop(struct ctr_click_heap *heap, int64_t until_ms, struct ctr_click *click)
{
    if (heap->count == 0 || heap->items[0].ts_ms > until_ms)
        return false;
    *click = heap->items[0];
    struct ctr_click moved = heap->items[--heap->count];
    size_t i = 0;
    for (size_t child = 1; child < heap->count; child = 2 * i + 1) {
        if (child + 1 < heap->count && is_before(&heap->items[child + 1], &heap->items[child]))
            child++;
        if (!is_before(&heap->items[child], &moved))
            break;
        heap->items[i] = heap->items[child];
        i = child;
    }
    heap->items[i] = moved;
    return true;
}

void ctr_click_heap_free(struct ctr_click_heap *heap)
{
    free(heap->items);
    *heap = (struct ctr_click_heap){0};
}

bool ctr_clicks_open(struct ctr_clicks *clicks, const struct ctr_world *world, uint64_t events)
{
    clicks->world = world;
    clicks->events = events;
    clicks->maker = ctr_maker_new(world);
    return clicks->maker != NULL;
}

void ctr_clicks_close(struct ctr_clicks *clicks)
{
    ctr_maker_free(clicks->maker);
    clicks->maker = NULL;
    ctr_click_heap_free(&clicks->heap);
}

bool ctr_clicks_next(struct ctr_clicks *clicks, struct ctr_click *click)
{
    for (;;) {
        bool is_whole = clicks->next == clicks->events;
        int64_t until_ms = is_whole            ? INT64_MAX
                           : clicks->next == 0 ? INT64_MIN
                                               : ctr_floor_ms(clicks->world, clicks->next - 1);
        if (ctr_click_pop(&clicks->heap, until_ms, click)) {
            clicks->last = click->imp_id + 1;
            return true;
        }
        if (is_whole)
            return false;
        struct ctr_event event;
        ctr_make(clicks->maker, clicks->next++, &event, &clicks->truth);
        if (event.is_clicked && !ctr_click_push(&clicks->heap, ctr_click_on(&event))) {
            clicks->is_out_of_memory = true;
            return false;
        }
    }
}

bool ctr_clicks_seek(struct ctr_clicks *clicks, uint64_t next, uint64_t last)
{
    clicks->heap.count = 0;
    clicks->next = next;
    clicks->last = last;
    if (next > clicks->events || last > next)
        return false;
    struct ctr_click after = {.ts_ms = INT64_MIN};
    struct ctr_event event;
    if (last > 0) {
        ctr_make(clicks->maker, last - 1, &event, NULL);
        if (!event.is_clicked ||
            (next < clicks->events && event.click_ms > ctr_floor_ms(clicks->world, next - 1)))
            return false;
        after = ctr_click_on(&event);
    }
    /* Begin with the earliest impression that may be clicked after the click `after`. */
    int64_t from_ms =
        last == 0 ? 0 : after.ts_ms - CTR_START_MS - CTR_DELAY_MAX_MS - CTR_JITTER_US / 1000 - 1;
    int64_t first = from_ms <= 0 ? 0 : from_ms * 1000 / ctr_world_gap_us(clicks->world) - 1;
    for (uint64_t number = first < 0 ? 0 : (uint64_t)first; number < next; number++) {
        ctr_make(clicks->maker, number, &event, NULL);
        struct ctr_click click = ctr_click_on(&event);
        if (event.is_clicked && is_before(&after, &click) && !ctr_click_push(&clicks->heap, click)) {
            clicks->is_out_of_memory = true;
            return false;
        }
    }
    return true;
}
