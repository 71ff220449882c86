/*
 * Finds the rows of a call's events ahead of the event that learns, a tile of events at a time. Hashing,
 * probing and making new rows (and clearing their memory pages, which Linux does) are work that an idle lane
 * can take over (core/team.h). Tiles are resolved in order, by one thread at a time: the thread that has set
 * `is_busy` alone may look up keys. Meanwhile the learning thread reads and writes rows of finished
 * tiles, and their headers: a look-up does not write the header of an existing row, unless headers decide
 * which rows are removed.
 */
#include "learners/model/internal.h"
#include "learners/tables/cold.h"
#include "learners/tables/inline.h"

#include "core/base.h"
#include "core/mem.h"
#include "core/team.h"

#include <stdlib.h>

enum { TILE = 64, HELP_ROUNDS = 202 };

static void need(void **memory, size_t *capacity, size_t count, size_t size)
{
    if (*capacity >= count)
        return;
    free(*memory);
    *memory = mem_alloc(count * size);
    *capacity = count;
}

/* Makes room for all rows that a call resolves, so that the arrays do not move during the call. */
static void make_room(struct model *m, const struct call *c)
{
    for (uint32_t f = 0; f < m->options.fields; f++) {
        const uint32_t *offsets = m->options.is_list[f] ? c->in->offsets[f] : NULL;
        size_t ids = offsets ? offsets[c->in->rows] - offsets[0] : 0;
        need((void **)&m->resolved[f], &m->resolved_capacity[f], MAX(ids, (size_t)MODEL_ROWS_MAX),
             sizeof(void *));
        table_begin(&m->tables[f]);
    }
}

enum { LISTS_AHEAD = 4 };

static void prefetch_list(const struct table *t, const uint64_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        table_prefetch(t, table_hash(t, ids[i]), false, t->slot_bytes);
}

/* Looks the ids of each event's list up; the slots of a later list are prefetched. */
static void resolve_lists(struct model *m, const struct call *c, uint32_t f, uint32_t begin, uint32_t end)
{
    struct table *t = &m->tables[f];
    const uint32_t *offsets = c->in->offsets[f];
    const uint64_t *ids = c->in->ids[f];
    table_warm(t, ids + offsets[begin], offsets[end] - offsets[begin], c->steps[begin]);
    for (uint32_t i = begin; i < end; i++) {
        uint32_t count = MIN(offsets[i + 1] - offsets[i], model_field_ids(&m->options, f));
        if (i + LISTS_AHEAD < end)
            prefetch_list(t, ids + offsets[i + LISTS_AHEAD],
                          offsets[i + LISTS_AHEAD + 1] - offsets[i + LISTS_AHEAD]);
        table_look_list(t, ids + offsets[i], count, c->seen[i], c->steps[i], c->learns[i],
                        m->resolved[f] + (offsets[i] - offsets[0]));
    }
}

static void resolve(struct model *m, struct call *c, uint32_t begin, uint32_t end, bool touches)
{
    if (c->in->read_ids != NULL)
        c->in->read_ids(c->in->read_argument, begin, end);
    for (uint32_t f = 0; f < m->options.fields; f++) {
        if (m->options.is_list[f])
            resolve_lists(m, c, f, begin, end);
        else
            table_look(&m->tables[f], c->in->ids[f] + begin, c->seen + begin, c->steps + begin,
                       c->all_learn ? NULL : c->learns + begin, end - begin, touches, m->resolved[f] + begin);
    }
}

void lookahead_resolve(struct model *m, struct call *c)
{
    make_room(m, c);
    resolve(m, c, 0, c->in->rows, true);
}

/* Resolves the next tile; false if there is none or another thread is resolving it. */
static bool next_tile(struct model *m)
{
    struct rows_ahead *a = &m->ahead;
    if (atomic_load_explicit(&a->is_busy, memory_order_relaxed) ||
        atomic_exchange_explicit(&a->is_busy, true, memory_order_acquire))
        return false;
    uint32_t begin = atomic_load_explicit(&a->done, memory_order_relaxed), rows = a->call->in->rows;
    uint32_t end = MIN(begin + TILE, rows);
    if (begin < rows) {
        resolve(m, a->call, begin, end, false);
        atomic_store_explicit(&a->done, end, memory_order_release);
    }
    atomic_store_explicit(&a->is_busy, false, memory_order_release);
    return begin < rows;
}

/* The task of the team (core/team.h), on an idle lane: resolves a tile. If the owner is resolving a tile
 * itself, waits for about as long as one tile takes. Returns false when no tile is left. */
static bool help_tile(void *argument)
{
    struct model *m = argument;
    for (unsigned i = 0; i < HELP_ROUNDS; i++) {
        if (next_tile(m))
            return true;
        if (atomic_load_explicit(&m->ahead.done, memory_order_relaxed) >= m->ahead.call->in->rows)
            return false;
        team_pause(i);
    }
    return true;
}

bool model_reads_ahead(const struct model *m)
{
    return !model_learns_by_batches(&m->options) && !linear_is_plain(m) &&
           memchr(m->options.is_list, 1, m->options.fields) == NULL;
}

void lookahead_begin(struct model *m, struct call *c)
{
    make_room(m, c);
    m->ahead.call = c;
    m->ahead.prefetched = 0;
    atomic_store_explicit(&m->ahead.done, 0, memory_order_relaxed);
    if (m->team != NULL && c->in->rows > TILE)
        team_open(m->team, help_tile, m);
}

void lookahead_need(struct model *m, uint32_t event)
{
    unsigned round = 0;
    while (unlikely(atomic_load_explicit(&m->ahead.done, memory_order_acquire) <= event)) {
        if (!next_tile(m))
            team_pause(round++);
    }
}

void lookahead_end(struct model *m)
{
    if (m->team != NULL)
        team_close(m->team);
    m->ahead.call = NULL;
}
