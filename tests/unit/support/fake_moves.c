#include "fake_engine.h"

#include "core/moved.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

void fake_announce(struct fake_engine *engine, const struct placement *next)
{
    assert_true(engine->lanes_count > 1 && !engine->is_announced);
    engine->next = *next;
    engine->is_announced = true;
    engine->round = 0;
}

static struct group_set leaving_for(const struct fake_engine *engine, uint32_t from, uint32_t to)
{
    struct group_set leaving = {0};
    for (uint32_t group = 0; group < KEY_GROUPS && from != to; group++)
        if (engine->next.instance[group] == to && group_set_has(&engine->groups[from], group))
            bit_set(leaving.words, group);
    return leaving;
}

void fake_bases(struct fake_engine *engine)
{
    engine->round++;
    for (uint32_t from = 0; from < engine->lanes_count; from++)
        for (uint32_t to = 0; to < engine->lanes_count; to++) {
            struct group_set leaving = leaving_for(engine, from, to), coming;
            struct operator_base at = {0};
            struct byte_buffer given = {0};
            placement_groups(&engine->next, to, &coming);
            while (!at.is_done && group_set_count(&leaving) > 0)
                assert_true(operator_give_base(engine->kind, &engine->lanes[from], &leaving, engine->round,
                                               &at, &given));
            struct str rest = {given.data, given.length}, record;
            for (uint32_t group; moved_next(&rest, &group, &record);)
                assert_true(operator_take_base(engine->kind, &engine->lanes[to], &coming, record));
            assert_int_equal(rest.length, 0);
            buffer_free(&given);
        }
}

void fake_change(struct fake_engine *engine)
{
    struct byte_buffer given[FAKE_LANES_MAX] = {0};
    assert_true(engine->is_announced && engine->round == FAKE_ROUNDS);
    for (uint32_t from = 0; from < engine->lanes_count; from++)
        for (uint32_t to = 0; to < engine->lanes_count; to++) {
            struct group_set leaving = leaving_for(engine, from, to);
            if (group_set_count(&leaving) > 0)
                assert_true(operator_give(engine->kind, &engine->lanes[from], &leaving, &given[to]));
        }
    engine->placement = engine->next;
    engine->is_announced = false;
    for (uint32_t lane = 0; lane < engine->lanes_count; lane++) {
        placement_groups(&engine->placement, lane, &engine->groups[lane]);
        operator_regroup(engine->kind, &engine->lanes[lane]);
        assert_true(operator_take(engine->kind, &engine->lanes[lane],
                                  (struct str){given[lane].data, given[lane].length}));
        buffer_free(&given[lane]);
    }
}

void fake_move_all(struct fake_engine *engine, uint32_t lane)
{
    struct placement next = engine->placement;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        placement_move(&next, group, lane);
    fake_barrier(engine);
    fake_announce(engine, &next);
    while (engine->round < FAKE_ROUNDS)
        fake_bases(engine);
    fake_barrier(engine);
    fake_change(engine);
}
