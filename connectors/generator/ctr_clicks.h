/* Clicks in the order of their time, made from impressions one after the other. One thread at a time. */
#ifndef LEAT_CONNECTORS_GENERATOR_CTR_CLICKS_H
#define LEAT_CONNECTORS_GENERATOR_CTR_CLICKS_H

#include "connectors/generator/ctr_world.h"

struct ctr_click {
    int64_t ts_ms;
    uint64_t imp_id;
    uint32_t user, item;
};

/* The click on an impression that is clicked. */
static inline struct ctr_click ctr_click_on(const struct ctr_event *event)
{
    return (struct ctr_click){event->click_ms, event->imp_id, event->field[CTR_USER], event->field[CTR_ITEM]};
}

/* Clicks that are to come, the earliest first: a binary heap. Holds what is clicked within an hour at most.
 */
struct ctr_click_heap {
    struct ctr_click *items;
    size_t count, capacity;
};

/* false: no memory. */
bool ctr_click_push(struct ctr_click_heap *heap, struct ctr_click click);
/* The earliest one with ts_ms <= until_ms; false where there is none. */
bool ctr_click_pop(struct ctr_click_heap *heap, int64_t until_ms, struct ctr_click *click);
void ctr_click_heap_free(struct ctr_click_heap *heap);

/* The clicks of impressions 0 to events - 1 as a stream. */
struct ctr_clicks {
    const struct ctr_world *world;
    struct ctr_maker *maker;
    uint64_t events, next; /* impressions in all; the first that was not made yet */
    uint64_t last;         /* 1 + the impression of the click given out last; 0: none yet */
    struct ctr_click_heap heap;
    struct ctr_truth truth;
    bool is_out_of_memory;
};

/* false: no memory. */
bool ctr_clicks_open(struct ctr_clicks *clicks, const struct ctr_world *world, uint64_t events);
void ctr_clicks_close(struct ctr_clicks *clicks);
/* false at the end, and where memory is out. */
bool ctr_clicks_next(struct ctr_clicks *clicks, struct ctr_click *click);
/* Goes on where another one stood with these values of `next` and `last`; false where none can have stood
 * there. Makes the impressions of the hour before again. The truth does not count them twice. */
bool ctr_clicks_seek(struct ctr_clicks *clicks, uint64_t next, uint64_t last);

#endif
