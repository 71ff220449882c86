/* Moves of key groups between the instances of keyed stages.
 *
 * A change of the placement takes two barriers (run/base/placements.h). After the first one, each instance gives a base of the groups
 * that will leave it: bytes for each instance that gets some, and for each of its nodes. When all instances of the stage have, each one
 * takes what has come for it. Both go piece by piece, between micro-batches. When the second barrier is due, the same is done twice
 * more with what has changed meanwhile: the second of these rounds has only what changed during the first. At the second barrier,
 * after its snapshot, an instance gives what has changed since the last round, and forgets these groups. An instance runs its first
 * micro-batch by the new placement when all of the stage have given, and begins by taking these changes. No instance sees another
 * one's state in any other way. */
#include "run/lanes/internal.h"

#include "core/mem.h"
#include "core/moved.h"
#include "core/operator_state.h"
#include "core/os.h"
#include "run/base/placements.h"

#include <stdlib.h>

enum {
    PIECE_BYTES = 256 << 10, /* of a base that are given or taken between two micro-batches, about */
    CALL_BYTES =
        16 << 10 /* a call to give counts as that many at least: it may look at much and give little */
};

struct stage_move {
    /* By [instance that gets it][node]: the base, and the changes at even and at odd versions. */
    struct byte_buffer *base, *given[2];
    const struct placement *next; /* announced, and the groups have not moved yet; NULL: none */
    uint32_t round;               /* of the bases for `next` */
    /* Of the round: what to give next, of the groups `leaving` to instance `to`; what to take next, of instance `from`. */
    bool has_given, has_taken;
    uint32_t to, to_node, from, from_node;
    struct group_set leaving, coming;
    struct operator_base at;
    struct str rest;
};

static bool is_keyed(const struct stage_instance *stage)
{
    return stage->index > 0 && stage->stage->tag != STAGE_SINGLE;
}

/* --- Making --- */

static bool can_move(struct run *run, const struct stage_instance *stage)
{
    bool is_good = true;
    for (uint32_t k = 0; k < stage->stage->nodes_count; k++) {
        const struct plan_node *node = stage->nodes[k].node;
        if (node->operator_kind == NULL || operator_can_give(node->operator_kind))
            continue;
        struct diag *d =
            diag_error(run->diags, DIAG_OPTIONS_CLASH, node->path_span,
                       "key groups cannot move: `%s` has state, and no function that gives it away",
                       node->operator_kind->name);
        diag_hint(run->diags, d, "run the job without --move");
        is_good = false;
    }
    return is_good;
}

static uint32_t buffers_count(const struct stage_instance *stage)
{
    return stage->run->stage_instances[stage->index] * stage->stage->nodes_count;
}

bool moves_init(struct run *run)
{
    bool is_good = true;
    for (uint32_t i = 0; i < run->lanes->stages_total && run->options.move_seed != 0; i++) {
        struct stage_instance *stage = run->lanes->stages[i];
        if (!is_keyed(stage))
            continue;
        is_good &= stage->instance > 0 || can_move(run, stage);
        stage->move = arena_new(&run->arena, struct stage_move);
        stage->move->base = mem_calloc(buffers_count(stage), sizeof(*stage->move->base));
        for (uint32_t k = 0; k < ARRAY_COUNT(stage->move->given); k++)
            stage->move->given[k] = mem_calloc(buffers_count(stage), sizeof(*stage->move->given[k]));
    }
    return is_good;
}

static void free_buffers(struct byte_buffer *buffers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        buffer_free(&buffers[i]);
}

void moves_free(struct run *run)
{
    for (uint32_t i = 0; i < run->lanes->stages_total; i++) {
        struct stage_instance *stage = run->lanes->stages[i];
        if (stage->move == NULL)
            continue;
        struct byte_buffer *all[] = {stage->move->base, stage->move->given[0], stage->move->given[1]};
        for (uint32_t k = 0; k < ARRAY_COUNT(all); k++) {
            free_buffers(all[k], buffers_count(stage));
            free(all[k]);
        }
    }
}

/* An operator's state store failed, or a library's function; run_wait says why. */
static void fail(struct stage_instance *stage)
{
    run_fail(stage->run);
}

/* Of the groups that the stage has: those that go to the instance `to`. */
static struct group_set groups_for(const struct stage_instance *stage, const struct placement *next,
                                   uint32_t to)
{
    struct group_set leaving = {0};
    for (uint32_t group = 0; group < KEY_GROUPS && to != stage->instance; group++)
        if (next->instance[group] == to && group_set_has(&stage->groups, group))
            bit_set(leaving.words, group);
    return leaving;
}

/* Whether all instances of the stage have counted the event that often in this life. */
static bool have_all(const _Atomic uint64_t *calls, const struct stage_instance *stage, uint64_t times)
{
    return atomic_load(calls) >= times * stage->run->stage_instances[stage->index];
}

/* --- Bases --- */

/* Bytes of the round before were taken by all. */
static void begin_round(struct stage_instance *stage, const struct placement *next, uint32_t round)
{
    struct stage_move *move = stage->move;
    free_buffers(move->base, buffers_count(stage));
    *move = (struct stage_move){
        .base = move->base, .given = {move->given[0], move->given[1]}, .next = next, .round = round};
    move->leaving = groups_for(stage, next, 0);
    placement_groups(next, stage->instance, &move->coming);
}

void stage_announce(struct stage_instance *stage, const struct placement *next)
{
    struct stage_move *move = stage->move;
    if (move == NULL)
        return;
    failpoint("move.announce");
    begin_round(stage, next, 1);
}

/* Gives a piece of the round; true: there is no more. */
static bool give_piece(struct stage_instance *stage)
{
    struct stage_move *move = stage->move;
    uint32_t nodes = stage->stage->nodes_count;
    for (size_t bytes = 0; bytes < PIECE_BYTES && move->to < move->next->instances;) {
        struct node_instance *node = &stage->nodes[move->to_node];
        bool is_moved = node->node->operator_kind != NULL && group_set_count(&move->leaving) > 0;
        struct byte_buffer *out = &move->base[move->to * nodes + move->to_node];
        size_t before = out->length;
        if (is_moved && !operator_give_base(node->node->operator_kind, &node->context, &move->leaving,
                                            move->round, &move->at, out))
            fail(stage);
        bytes += MAX(out->length - before, CALL_BYTES);
        atomic_fetch_add(&stage->run->lanes->moved_bytes, out->length - before);
        if (is_moved && !move->at.is_done && !run_has_failed(stage->run))
            continue;
        move->at = (struct operator_base){0};
        move->to_node = (move->to_node + 1) % nodes;
        if (move->to_node > 0)
            continue;
        move->to++;
        move->leaving = groups_for(stage, move->next, move->to);
    }
    return move->to == move->next->instances;
}

/* Begins to take the next buffer that has anything; false: there is none. */
static bool next_base(struct stage_instance *stage)
{
    struct stage_move *move = stage->move;
    uint32_t nodes = stage->stage->nodes_count;
    for (; move->rest.length == 0 && move->from < move->next->instances; move->from_node++) {
        if (move->from_node == nodes) {
            move->from_node = UINT32_MAX; /* 0 after the loop's step */
            move->from++;
            continue;
        }
        const struct stage_instance *giver = lanes_instance(stage->run, stage->index, move->from);
        const struct byte_buffer *base = &giver->move->base[stage->instance * nodes + move->from_node];
        move->rest = (struct str){base->data, base->length};
    }
    return move->rest.length > 0;
}

/* Takes a piece of the round; true: there is no more. */
static bool take_piece(struct stage_instance *stage)
{
    struct stage_move *move = stage->move;
    for (size_t bytes = 0; bytes < PIECE_BYTES && next_base(stage);) {
        uint32_t group;
        struct str record = {NULL, 0};
        struct node_instance *node = &stage->nodes[move->from_node - 1];
        if (!moved_next(&move->rest, &group, &record) ||
            !operator_take_base(node->node->operator_kind, &node->context, &move->coming, record)) {
            fail(stage);
            return true;
        }
        bytes += record.length;
    }
    return move->rest.length == 0 && !next_base(stage);
}

static bool has_moved_piece(struct stage_instance *stage)
{
    struct stage_move *move = stage->move;
    struct run *run = stage->run;
    if (move == NULL || move->next == NULL)
        return false;
    if (move->has_taken) {
        if (placements_round(run) == move->round)
            return false;
        begin_round(stage, move->next, move->round + 1);
    }
    if (!move->has_given) {
        failpoint("move.base");
        move->has_given = give_piece(stage);
        if (move->has_given) {
            atomic_fetch_add(&run->lanes->bases[stage->index], 1);
            run_wake(run);
        }
        return true;
    }
    uint64_t rounds = (uint64_t)(move->next->version - 1) * PLACEMENT_ROUNDS + move->round;
    if (!have_all(&run->lanes->bases[stage->index], stage, rounds))
        return false;
    failpoint("move.take_base");
    move->has_taken = take_piece(stage);
    if (move->has_taken)
        placements_taken(run);
    return true;
}

bool moves_work(struct lane *lane)
{
    bool has_worked = false;
    for (uint32_t i = 0; i < lane->instances_count; i++) {
        int64_t begin = os_monotonic_us();
        if (!has_moved_piece(lane->instances[i]))
            continue;
        note_move_stop(lane->run, begin);
        has_worked = true;
    }
    return has_worked;
}

/* --- Changes --- */

/* What the instance `from` gives at the change to that version to the instance `to`: a buffer for each node. */
static struct byte_buffer *changes(const struct stage_instance *from, uint32_t version, uint32_t to)
{
    return &from->move->given[version % 2][to * from->stage->nodes_count];
}

void note_move_stop(struct run *run, int64_t begin_us)
{
    int64_t took = os_monotonic_us() - begin_us, longest = atomic_load(&run->lanes->move_stop_us);
    while (took > longest && !atomic_compare_exchange_weak(&run->lanes->move_stop_us, &longest, took))
        ;
}

void stage_leave(struct stage_instance *stage, const struct placement *next)
{
    struct run *run = stage->run;
    int64_t begin = os_monotonic_us();
    if (stage->move == NULL)
        return;
    failpoint("move.give");
    stage->move->next = NULL;
    free_buffers(stage->move->base, buffers_count(stage));
    for (uint32_t to = 0; to < next->instances; to++) {
        struct group_set leaving = groups_for(stage, next, to);
        struct byte_buffer *out = changes(stage, next->version, to);
        uint32_t count = group_set_count(&leaving);
        for (uint32_t k = 0; k < stage->stage->nodes_count; k++) {
            struct node_instance *node = &stage->nodes[k];
            buffer_clear(&out[k]);
            if (count > 0 && node->node->operator_kind != NULL &&
                !operator_give(node->node->operator_kind, &node->context, &leaving, &out[k]))
                fail(stage);
            atomic_fetch_add(&run->lanes->moved_bytes, out[k].length);
            atomic_fetch_add(&run->lanes->moved_changes, out[k].length);
        }
        atomic_fetch_add(&run->lanes->moved_groups, count);
        for (uint32_t group = group_set_next(&leaving, 0); group < KEY_GROUPS;
             group = group_set_next(&leaving, group + 1))
            bit_clear(stage->groups.words, group);
    }
    failpoint("move.given");
    atomic_fetch_add(&run->lanes->gives[stage->index], 1);
    note_move_stop(run, begin);
    run_wake(run);
}

bool stage_is_placed(const struct stage_instance *stage, const struct placement *placement)
{
    return placement->version == stage->placement_version || stage->move == NULL ||
           have_all(&stage->run->lanes->gives[stage->index], stage, placement->version);
}

void stage_take(struct stage_instance *stage, const struct placement *placement)
{
    struct run *run = stage->run;
    int64_t begin = os_monotonic_us();
    stage->placement_version = placement->version;
    if (stage->move == NULL)
        return;
    failpoint("move.take");
    placement_groups(placement, stage->instance, &stage->groups);
    for (uint32_t k = 0; k < stage->stage->nodes_count; k++) {
        struct node_instance *node = &stage->nodes[k];
        if (node->node->operator_kind == NULL)
            continue;
        operator_regroup(node->node->operator_kind, &node->context);
        for (uint32_t from = 0; from < placement->instances; from++) {
            const struct stage_instance *giver = lanes_instance(run, stage->index, from);
            const struct byte_buffer *bytes = &changes(giver, placement->version, stage->instance)[k];
            if (from != stage->instance && bytes->length > 0 &&
                !operator_take(node->node->operator_kind, &node->context,
                               (struct str){bytes->data, bytes->length}))
                fail(stage);
        }
    }
    failpoint("move.taken");
    note_move_stop(run, begin);
}
