#include "run/base/placements.h"

#include "core/os.h"
#include "run/base/peers.h"
#include "state/checkpoint.h"

static const char part_name[] = "placement";

/* With run_options.move_seed: one in MOVED_IN key groups is given to an instance by chance, at every second barrier. */
enum { MOVED_IN = 5 };

bool placements_load_stays(struct checkpoint *from, struct placement *placement, struct diag_list *diags)
{
    uint32_t group;
    struct str data;
    struct snapshot_reader *reader = checkpoint_reader(from, part_name, NULL, diags);
    while (snapshot_get(reader, &group, &data))
        if (data.length == sizeof(placement->stays))
            memcpy(placement->stays, data.data, sizeof(placement->stays));
        else
            snapshot_corrupt(reader, diags, "the stays of key groups have a wrong length");
    return checkpoint_reader_close(reader);
}

bool placements_begin(struct run *run)
{
    struct placement *first = &run->placements[0];
    if (test_placement() != 0)
        placement_scatter(first, peers_instances(run), test_placement());
    else
        placement_ranges(first, peers_instances(run));
    for (uint32_t stage = 1; stage < run->plan->stages_count && run->lanes_count > 1; stage++)
        run->placement_instances +=
            run->plan->stages[stage].tag == STAGE_SINGLE ? 0 : run->stage_instances[stage];
    return !run->is_resumed || placements_load_stays(run->resumed, first, run->diags);
}

const struct placement *placements_now(const struct run *run)
{
    return &run->placements[run->placement_version % 2];
}

bool placements_prepare(struct run *run)
{
    uint64_t rounds = (uint64_t)run->placement_version * PLACEMENT_ROUNDS;
    if (!run->placement_is_announced || run->placement_instances == 0)
        return true;
    rounds += placements_round(run);
    if (atomic_load(&run->placement_taken) < rounds * run->placement_instances)
        return false;
    if (placements_round(run) == PLACEMENT_ROUNDS)
        return true;
    atomic_fetch_add(&run->placement_round, 1);
    run_wake(run);
    return false;
}

uint32_t placements_round(const struct run *run)
{
    return atomic_load(&run->placement_round);
}

void placements_taken(struct run *run)
{
    atomic_fetch_add(&run->placement_taken, 1);
    run_wake(run);
}

static const struct placement *announce(struct run *run, uint64_t micro_batch)
{
    struct placement *next = &run->placements[(run->placement_version + 1) % 2];
    *next = *placements_now(run);
    next->version++;
    for (uint32_t group = 0; group < KEY_GROUPS; group++) {
        uint64_t draw = key_hash((struct key){run->options.move_seed + micro_batch, KEY_GROUPS + group});
        if (draw % MOVED_IN == 0)
            placement_move(next, group, (uint32_t)(draw / MOVED_IN % run->lanes_count));
    }
    return next;
}

void placements_turn(struct run *run, uint64_t micro_batch, const struct placement **announced,
                     const struct placement **next)
{
    *announced = *next = NULL;
    if (run->options.move_seed == 0 || run->lanes_count == 1)
        return;
    if (run->placement_is_announced) {
        run->placement_version++;
        *next = placements_now(run);
    } else {
        *announced = announce(run, micro_batch);
        atomic_store(&run->placement_round, 1);
    }
    run->placement_is_announced = !run->placement_is_announced;
}

uint32_t placements_home(const struct run *run, const struct placement *placement, uint32_t place)
{
    uint64_t number = run->options.move_seed + placement->version + place;
    return placement->version == 0 ? 0 : (uint32_t)(number % run->lanes_count);
}

bool placements_move_whole(const struct run *run, const struct plan_node *node)
{
    return run->plan->stages[node->stage].tag == STAGE_SINGLE && node->operator_kind != NULL &&
           node->has_state && !node->operator_kind->keeps_figures_alone;
}

bool placements_want_base(const struct run *run)
{
    bool has_some = false;
    for (uint32_t i = 0; i < run->plan->nodes_count && run->placement_is_announced; i++)
        has_some |= placements_move_whole(run, &run->plan->nodes[i]);
    return has_some;
}

bool placements_have_moved(const struct placement *placement)
{
    bool has_moved = false;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        has_moved |= placement->stays[group] > 0;
    return has_moved;
}

bool placements_save(struct run *run, struct checkpoint_writer *writer)
{
    const struct placement *now = placements_now(run);
    return !placements_have_moved(now) ||
           snapshot_put(checkpoint_part(writer, part_name), SNAPSHOT_GLOBAL, now->stays, sizeof(now->stays));
}
