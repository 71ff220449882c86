/* Moves of key groups between the objects of several lanes, keyed tables or time queues, for tests with random lives. */
#ifndef LEAT_TESTS_UNIT_STATE_MOVES_H
#define LEAT_TESTS_UNIT_STATE_MOVES_H

#include "core/moved.h"
#include "core/placement.h"
#include "unit/support/random.h"

enum { MOVES_LANES_MAX = 8 };

/* What the objects have for it; see state/state.h. */
struct move_calls {
    bool (*give_base)(void *object, const struct group_set *leaving, uint32_t round, int64_t *next,
                      struct byte_buffer *out);
    bool (*take_base)(void *object, const struct group_set *coming, struct str record);
    bool (*give)(void *object, const struct group_set *leaving, struct byte_buffer *out);
    void (*regroup)(void *object);
    bool (*take)(void *object, struct str record);
    void (*between)(void *test); /* rows now and then, between two pieces of a base */
};

struct moves {
    const struct move_calls *calls;
    void *test; /* for calls->between */
    void *objects[MOVES_LANES_MAX];
    uint32_t lanes;
    struct placement *placement; /* the test's, and the groups of each lane by it */
    struct group_set *groups;
    bool is_announced;
    uint32_t round; /* of the bases that were given last; 0: none */
    struct placement next;
    uint64_t bases, changes; /* bytes */
};

static inline struct group_set moves_leaving(const struct moves *m, uint32_t from, uint32_t to)
{
    struct group_set leaving = {0};
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        if (from != to && m->placement->instance[group] == from && m->next.instance[group] == to)
            bit_set(leaving.words, group);
    return leaving;
}

/* At a barrier, after the snapshots. */
static inline void moves_announce(struct moves *m, struct test_random *random)
{
    m->next = *m->placement;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        if (random_chance(random, 10))
            placement_move(&m->next, group, random_below(random, m->lanes));
    m->is_announced = true;
    m->round = 0;
}

static inline void moves_take(struct moves *m, uint32_t to, struct byte_buffer *bytes,
                              const struct group_set *coming)
{
    struct str rest = {bytes->data, bytes->length}, record;
    uint32_t group;
    while (moved_next(&rest, &group, &record))
        assert_true(coming == NULL ? m->calls->take(m->objects[to], record)
                                   : m->calls->take_base(m->objects[to], coming, record));
    assert_int_equal(rest.length, 0);
    buffer_free(bytes);
}

/* Between two barriers: gives and takes a round of the bases. */
static inline void moves_bases(struct moves *m)
{
    m->round++;
    for (uint32_t to = 0; to < m->lanes; to++) {
        struct byte_buffer bytes = {0};
        struct group_set coming;
        placement_groups(&m->next, to, &coming);
        for (uint32_t from = 0; from < m->lanes; from++) {
            struct group_set leaving = moves_leaving(m, from, to);
            for (int64_t next = INT64_MIN; next != INT64_MAX && group_set_count(&leaving) > 0;
                 m->calls->between(m->test))
                assert_true(m->calls->give_base(m->objects[from], &leaving, m->round, &next, &bytes));
        }
        m->bases += bytes.length;
        moves_take(m, to, &bytes, &coming);
    }
}

/* At the next barrier, after the snapshots. */
static inline void moves_finish(struct moves *m)
{
    struct byte_buffer moved[MOVES_LANES_MAX] = {0};
    for (uint32_t to = 0; to < m->lanes; to++)
        for (uint32_t from = 0; from < m->lanes; from++) {
            struct group_set leaving = moves_leaving(m, from, to);
            if (group_set_count(&leaving) > 0)
                assert_true(m->calls->give(m->objects[from], &leaving, &moved[to]));
        }
    *m->placement = m->next;
    for (uint32_t to = 0; to < m->lanes; to++) {
        placement_groups(m->placement, to, &m->groups[to]);
        m->calls->regroup(m->objects[to]);
        m->changes += moved[to].length;
        moves_take(m, to, &moved[to], NULL);
    }
    m->is_announced = false;
}

/* At a barrier, after the snapshots: what was announced at the one before is finished; else a change may be announced. */
static inline void moves_at_barrier(struct moves *m, struct test_random *random)
{
    if (m->is_announced)
        moves_finish(m);
    else
        moves_announce(m, random);
}

#endif
