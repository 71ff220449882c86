/* Clicks in time order, made from impressions one after the other. One thread at a time. */
#ifndef LEAT_CONNECTORS_GENERATOR_CTR_CLICKS_H
#define LEAT_CONNECTORS_GENERATOR_CTR_CLICKS_H

#include "connectors/generator/ctr_world.h"

struct ctr_click {
    int64_t ts_ms;
    uint64_t imp_id;
    uint32_t user, item;
};

/* The click on a clicked impression. */
static inline struct ctr_click ctr_click_on(const struct ctr_event *event)
{
    return (struct ctr_click){event->click_ms, event->imp_id, event->field[CTR_USER], event->field[CTR_ITEM]};
}

/* Clicks still to come, the earliest first: a binary heap. Holds the clicks of an hour at most. */
struct ctr_click_heap {
    struct ctr_click *items;
    size_t count, capacity;
};

/* Returns false if there is no memory. */
bool ctr_click_push(struct ctr_click_heap *heap, struct ctr_click click);
/* Takes the earliest click with ts_ms <= until_ms. Returns false if there is none. */
bool ctr_click_pop(struct ctr_click_heap *heap, int64_t until_ms, struct ctr_click *click);
void ctr_click_heap_free(struct ctr_click_heap *heap);

/* A stream of the clicks on impressions 0 to events - 1. */
struct ctr_clicks {
    const struct ctr_world *world;
    struct ctr_maker *maker;
    uint64_t events, next; /* count of impressions; the first one not made yet */
    uint64_t last;         /* 1 + imp_id of the last click returned; 0: none yet */
    struct ctr_click_heap heap;
    struct ctr_truth truth;
    bool is_out_of_memory;
};

/* Returns false if there is no memory. */
bool ctr_clicks_open(struct ctr_clicks *clicks, const struct ctr_world *world, uint64_t events);
void ctr_clicks_close(struct ctr_clicks *clicks);
/* Makes the next click. Returns false at the end, or if there is no memory. */
bool ctr_clicks_next(struct ctr_clicks *clicks, struct ctr_click *click);
/* Continues at the position of another stream that had these values of `next` and `last`. Makes the
 * impressions of the hour before that position again, without adding them to the truth. Returns false if no
 * stream can have had these values. */
bool ctr_clicks_seek(struct ctr_clicks *clicks, uint64_t next, uint64_t last);

#endif
