/* Moves of key groups between the instances of keyed stages.
 *
 * A change of the placement takes two barriers (run/base/placements.h). After the first one, each instance gives a base of the groups
 * that will leave it, and takes what comes to it: records, a piece at a time, between micro-batches (move_pieces.c). When the second
 * barrier is due, the same is done twice more with what has changed meanwhile: the second of these rounds has only what changed during
 * the first. At the second barrier, after its snapshot, an instance gives what has changed since the last round, and forgets these
 * groups. An instance runs its first micro-batch by the new placement when all of the stage have given, and begins by taking these
 * changes. No instance sees another one's state in any other way. */
#include "run/lanes/move.h"

#include "core/mem.h"
#include "core/os.h"
#include "run/base/peers.h"

#include <stdlib.h>

enum {
    CALL_BYTES =
        16 << 10,      /* a call to give counts as that many at least: it may look at much and give little */
    INBOXES_SHARE = 8, /* of the waiting budget, of all instances together */
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

static void init_stage(struct stage_instance *stage)
{
    struct run *run = stage->run;
    stage->move = arena_new(&run->arena, struct stage_move);
    for (enum given what = 0; what < GIVEN_TAGS; what++)
        inbox_init(&stage->move->inboxes[what], INBOXES_SHARE * GIVEN_TAGS * run->placement_instances);
}

bool moves_init(struct run *run)
{
    bool is_good = true;
    for (uint32_t i = 0; i < run->lanes->stages_total && placements_may_change(run); i++) {
        struct stage_instance *stage = run->lanes->stages[i];
        if (!is_keyed(stage))
            continue;
        is_good &= stage->local > 0 || can_move(run, stage);
        init_stage(stage);
        run->lanes->have_moves = true;
    }
    if (run->lanes->have_moves)
        run->lanes->given_by = mem_calloc((size_t)peers_count(run) * run->plan->stages_count * GIVEN_TAGS,
                                          sizeof(*run->lanes->given_by));
    return is_good;
}

void moves_free(struct run *run)
{
    for (uint32_t i = 0; i < run->lanes->stages_total; i++) {
        struct stage_move *move = run->lanes->stages[i]->move;
        if (move == NULL)
            continue;
        for (enum given what = 0; what < GIVEN_TAGS; what++)
            inbox_free(run, &move->inboxes[what]);
        buffer_free(&move->out);
        buffer_free(&move->message);
    }
    free(run->lanes->given_by);
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

/* --- Bases --- */

static void begin_round(struct stage_instance *stage, const struct placement *next, uint64_t number)
{
    struct stage_move *move = stage->move;
    move->next = next;
    move->number = number;
    move->has_given = move->has_taken = false;
    move->to = move->to_node = 0;
    move->at = (struct operator_base){0};
    move->leaving = groups_for(stage, next, 0);
}

void stage_announce(struct stage_instance *stage, const struct placement *next)
{
    struct stage_move *move = stage->move;
    struct run *run = stage->run;
    if (move == NULL)
        return;
    failpoint("move.announce");
    const struct placement *now = &run->placements[(next->version - 1) % 2];
    placement_groups(next, stage->instance, &move->coming);
    for (uint32_t group = 0; group < KEY_GROUPS; group++) {
        bool comes = next->instance[group] == stage->instance && now->instance[group] != stage->instance;
        move->giver[group] = (uint8_t)(comes ? now->instance[group] / run->lanes_count : (uint32_t)NO_GIVER);
    }
    begin_round(stage, next, (uint64_t)(next->version - 1) * PLACEMENT_ROUNDS + 1);
}

/* Gives a piece of the round; false: its takers have enough for now. */
static bool give_piece(struct stage_instance *stage)
{
    struct stage_move *move = stage->move;
    struct run *run = stage->run;
    size_t bytes = 0;
    while (bytes < PIECE_BYTES && move->to < move->next->instances) {
        struct node_instance *node = &stage->nodes[move->to_node];
        bool is_moved = node->node->operator_kind != NULL && group_set_count(&move->leaving) > 0;
        if (is_moved && !pieces_room(run, move->to))
            return bytes > 0;
        if (is_moved &&
            !operator_give_base(node->node->operator_kind, &node->context, &move->leaving,
                                (uint32_t)((move->number - 1) % PLACEMENT_ROUNDS) + 1, &move->at, &move->out))
            fail(stage);
        bytes += MAX(move->out.length, CALL_BYTES);
        atomic_fetch_add(&run->lanes->moved_bytes, move->out.length);
        if (is_moved && !move->at.is_done && !run_has_failed(run)) {
            if (bytes >= PIECE_BYTES)
                pieces_give(stage, GIVEN_BASE, move->number, move->to, move->to_node, &move->out);
            continue;
        }
        pieces_give(stage, GIVEN_BASE, move->number, move->to, move->to_node, &move->out);
        move->at = (struct operator_base){0};
        move->to_node = (move->to_node + 1) % stage->stage->nodes_count;
        if (move->to_node > 0)
            continue;
        move->to++;
        move->leaving = groups_for(stage, move->next, move->to);
    }
    move->has_given = move->to == move->next->instances;
    return true;
}

/* Takes a piece of the round; false: there is nothing to take now. */
static bool take_piece(struct stage_instance *stage)
{
    size_t taken = 0;
    for (size_t bytes; taken < PIECE_BYTES && pieces_take(stage, GIVEN_BASE, stage->move->number, &bytes);)
        taken += bytes;
    if (taken > 0)
        failpoint("move.take_base");
    return taken > 0;
}

static bool has_moved_piece(struct stage_instance *stage)
{
    struct stage_move *move = stage->move;
    struct run *run = stage->run;
    if (move == NULL || move->next == NULL)
        return false;
    if (move->has_taken) {
        if (placements_rounds(run) == move->number)
            return false;
        begin_round(stage, move->next, move->number + 1);
    }
    if (take_piece(stage))
        return true;
    if (!move->has_given) {
        failpoint("move.base");
        bool has_worked = give_piece(stage);
        if (move->has_given)
            pieces_given(stage, GIVEN_BASE);
        return has_worked;
    }
    if (!pieces_have_given(stage, GIVEN_BASE, move->number))
        return false;
    if (!take_piece(stage)) { /* nothing came before that was known */
        move->has_taken = true;
        placements_taken(run);
    }
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

void note_move_stop(struct run *run, int64_t begin_us)
{
    int64_t took = os_monotonic_us() - begin_us, longest = atomic_load(&run->lanes->move_stop_us);
    while (took > longest && !atomic_compare_exchange_weak(&run->lanes->move_stop_us, &longest, took))
        ;
}

void stage_leave(struct stage_instance *stage, const struct placement *next)
{
    struct run *run = stage->run;
    struct stage_move *move = stage->move;
    int64_t begin = os_monotonic_us();
    if (move == NULL)
        return;
    failpoint("move.give");
    move->next = NULL;
    for (uint32_t to = 0; to < next->instances; to++) {
        struct group_set leaving = groups_for(stage, next, to);
        uint32_t count = group_set_count(&leaving);
        for (uint32_t k = 0; k < stage->stage->nodes_count && count > 0; k++) {
            struct node_instance *node = &stage->nodes[k];
            if (node->node->operator_kind == NULL)
                continue;
            if (!operator_give(node->node->operator_kind, &node->context, &leaving, &move->out))
                fail(stage);
            atomic_fetch_add(&run->lanes->moved_bytes, move->out.length);
            atomic_fetch_add(&run->lanes->moved_changes, move->out.length);
            pieces_give(stage, GIVEN_CHANGES, next->version, to, k, &move->out);
        }
        atomic_fetch_add(&run->lanes->moved_groups, count);
        for (uint32_t group = group_set_next(&leaving, 0); group < KEY_GROUPS;
             group = group_set_next(&leaving, group + 1))
            bit_clear(stage->groups.words, group);
    }
    buffer_free(&move->out);
    buffer_free(&move->message);
    failpoint("move.given");
    pieces_given(stage, GIVEN_CHANGES);
    note_move_stop(run, begin);
}

bool stage_is_placed(const struct stage_instance *stage, const struct placement *placement)
{
    return placement->version == stage->placement_version || stage->move == NULL ||
           pieces_have_given(stage, GIVEN_CHANGES, placement->version);
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
    for (uint32_t k = 0; k < stage->stage->nodes_count; k++)
        if (stage->nodes[k].node->operator_kind != NULL)
            operator_regroup(stage->nodes[k].node->operator_kind, &stage->nodes[k].context);
    for (size_t bytes; pieces_take(stage, GIVEN_CHANGES, placement->version, &bytes);)
        ;
    failpoint("move.taken");
    note_move_stop(run, begin);
}
