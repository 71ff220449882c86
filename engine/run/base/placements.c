#include "run/base/placements.h"

#include "core/operator_state.h"
#include "core/os.h"
#include "run/base/loads.h"
#include "run/base/peers.h"
#include "state/checkpoint.h"

/* Parts of a checkpoint: the stays of groups; the instances that have them, with the number of instances before; and by stage the worker that
 * has it, of several. */
static const char part_name[] = "placement", instances_name[] = "instances", homes_name[] = "homes";

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

/* Sets the instances that the checkpoint had, and what group was where; leaves them as they are where it does not say. False after a
 * diagnostic. */
static bool load_instances(struct run *run, struct checkpoint *from, struct placement *before)
{
    uint32_t group;
    struct str data;
    struct snapshot_reader *reader = checkpoint_reader(from, instances_name, NULL, run->diags);
    while (snapshot_get(reader, &group, &data)) {
        struct words words = {.left = data};
        uint64_t instances = words_take(&words);
        bool is_good = words.left.length == sizeof(before->instance) && instances <= PLACEMENT_INSTANCES_MAX;
        for (uint32_t g = 0; is_good && g < KEY_GROUPS; g++)
            is_good = (uint8_t)words.left.data[g] < instances;
        if (!is_good) {
            snapshot_corrupt(reader, run->diags, "the instances of key groups cannot be");
            continue;
        }
        before->instances = (uint32_t)instances;
        memcpy(before->instance, words.left.data, sizeof(before->instance));
    }
    return checkpoint_reader_close(reader);
}

/* Sets run->homes_before, where the checkpoint says it, of a job with as many stages. False after a diagnostic. */
static bool load_homes(struct run *run, struct checkpoint *from)
{
    uint32_t group, count = run->plan->stages_count;
    struct str data;
    struct snapshot_reader *reader = checkpoint_reader(from, homes_name, NULL, run->diags);
    while (snapshot_get(reader, &group, &data)) {
        struct words words = {.left = data};
        uint32_t *homes = arena_alloc(&run->arena, count * sizeof(*homes));
        if (data.length != count * sizeof(uint64_t))
            continue;
        for (uint32_t stage = 0; stage < count; stage++) {
            uint64_t home = words_take(&words);
            homes[stage] = (uint32_t)MIN(home, UINT32_MAX);
        }
        run->homes_before = homes;
    }
    return checkpoint_reader_close(reader);
}

/* Whether all operators of keyed stages can give key groups away; else a note says which one cannot. */
static bool all_can_give(struct run *run)
{
    for (uint32_t i = 0; i < run->plan->nodes_count; i++) {
        const struct plan_node *node = &run->plan->nodes[i];
        if (!loads_is_keyed(run, node->stage) || node->operator_kind == NULL ||
            operator_can_give(node->operator_kind))
            continue;
        run_note(run, "key groups do not move by load: `%s` has state, and no function that gives it away",
                 node->operator_kind->name);
        return false;
    }
    return true;
}

bool placements_first(struct run *run, struct checkpoint *from, struct placement *before,
                      struct placement *first)
{
    uint32_t instances = peers_instances(run);
    *before = (struct placement){0};
    if (from != NULL && !load_instances(run, from, before))
        return false;
    if (test_placement() != 0)
        placement_scatter(first, instances, test_placement());
    else if (before->instances > 0)
        placement_keep(first, before, instances);
    else
        placement_ranges(first, instances);
    return from == NULL || placements_load_stays(from, first, run->diags);
}

bool placements_begin(struct run *run)
{
    if (run->options.balances && peers_instances(run) > 1 && run->barrier != NULL && run->trace == NULL &&
        run->options.move_seed == 0 && all_can_give(run))
        loads_init(run);
    for (uint32_t stage = 1; stage < run->plan->stages_count && peers_instances(run) > 1; stage++)
        run->placement_instances +=
            run->plan->stages[stage].tag == STAGE_SINGLE ? 0 : run->stage_instances[stage];
    struct checkpoint *from = run->is_resumed ? run->resumed : NULL;
    return (from == NULL || load_homes(run, from)) &&
           placements_first(run, from, &run->placement_before, &run->placements[0]);
}

bool placements_left(const struct run *run, struct group_set *left)
{
    const struct placement *before = &run->placement_before, *now = placements_now(run);
    *left = (struct group_set){0};
    for (uint32_t g = 0; g < KEY_GROUPS && before->instances > 0; g++)
        if (peers_has_instance(run, before->instance[g]) && !peers_has_instance(run, now->instance[g]))
            bit_set(left->words, g);
    return group_set_next(left, 0) < KEY_GROUPS;
}

const struct placement *placements_now(const struct run *run)
{
    return &run->placements[run->placement_version % 2];
}

bool placements_may_change(const struct run *run)
{
    return (run->options.move_seed != 0 || run->loads != NULL) && peers_instances(run) > 1;
}

/* --- Rounds --- */

bool placements_have_taken(const struct run *run, uint64_t rounds)
{
    return atomic_load(&run->placement_taken) >= rounds * run->placement_instances;
}

/* Whether the instances of all workers have taken so many rounds. */
static bool all_have_taken(const struct run *run, uint64_t rounds)
{
    bool have_all = placements_have_taken(run, rounds);
    for (uint32_t worker = 0; worker < peers_count(run); worker++)
        have_all &= worker == peers_self(run) || atomic_load(&run->placement_taken_by[worker]) >= rounds;
    return have_all;
}

static void begin_round(struct run *run)
{
    struct byte_buffer message = {0};
    uint64_t rounds = atomic_fetch_add(&run->placement_rounds, 1) + 1;
    if (peers_count(run) > 1) {
        peers_begin(&message, PEER_ROUND);
        words_put(&message, rounds);
        peers_send_all(run, &message);
        buffer_free(&message);
    }
    run_wake(run);
}

bool placements_prepare(struct run *run)
{
    uint64_t rounds = placements_rounds(run);
    if (!run->placement_is_announced || run->placement_instances == 0)
        return true;
    if (!all_have_taken(run, rounds))
        return false;
    if (rounds % PLACEMENT_ROUNDS == 0)
        return true;
    begin_round(run);
    return false;
}

uint64_t placements_rounds(const struct run *run)
{
    return atomic_load(&run->placement_rounds);
}

void placements_taken(struct run *run)
{
    struct byte_buffer message = {0};
    uint64_t taken = atomic_fetch_add(&run->placement_taken, 1) + 1;
    if (!peers_is_leader(run) && taken % run->placement_instances == 0) {
        peers_begin(&message, PEER_TAKEN);
        words_put(&message, taken / run->placement_instances);
        peers_send(run, run->options.peers->leader, &message);
        buffer_free(&message);
    }
    run_wake(run);
}

bool placements_take_taken(struct run *run, uint32_t worker, struct words *message)
{
    uint64_t rounds = words_take(message);
    _Atomic uint64_t *taken = &run->placement_taken_by[worker];
    if (!peers_is_whole(message) || !peers_is_leader(run) || run->placement_instances == 0 ||
        rounds != atomic_load(taken) + 1 || rounds > placements_rounds(run))
        return false;
    atomic_store(taken, rounds);
    run_wake(run);
    return true;
}

bool placements_take_round(struct run *run, struct words *message)
{
    uint64_t rounds = words_take(message);
    if (!peers_is_whole(message) || rounds != placements_rounds(run) + 1 || rounds % PLACEMENT_ROUNDS == 1 ||
        !placements_have_taken(run, rounds - 1))
        return false;
    atomic_store(&run->placement_rounds, rounds);
    run_wake(run);
    return true;
}

/* --- Changes --- */

/* The placement that may come, as the one of now. */
static struct placement *begin_next(struct run *run)
{
    struct placement *next = &run->placements[(run->placement_version + 1) % 2];
    *next = *placements_now(run);
    next->version++;
    return next;
}

/* The first round begins when an instance hears of the change. */
static const struct placement *announce(struct run *run, const struct placement *next)
{
    run->placement_is_announced = true;
    atomic_fetch_add(&run->placement_rounds, 1);
    return next;
}

static const struct placement *change(struct run *run)
{
    run->placement_is_announced = false;
    run->placement_version++;
    return placements_now(run);
}

/* Moves groups by chance. */
static void draw(struct placement *next, uint64_t seed)
{
    for (uint32_t group = 0; group < KEY_GROUPS; group++) {
        uint64_t number = key_hash((struct key){seed, KEY_GROUPS + group});
        if (number % MOVED_IN == 0)
            placement_move(next, group, (uint32_t)(number / MOVED_IN % next->instances));
    }
}

void placements_turn(struct run *run, uint64_t micro_batch, const struct placement **announced,
                     const struct placement **next)
{
    *announced = *next = NULL;
    if (!placements_may_change(run))
        return;
    if (run->placement_is_announced) {
        *next = change(run);
        return;
    }
    struct placement *drawn = begin_next(run);
    if (run->options.move_seed != 0)
        draw(drawn, run->options.move_seed + micro_batch);
    if (run->options.move_seed != 0 || loads_decide(run, drawn))
        *announced = announce(run, drawn);
}

/* What PEER_FORMED says of the placement. */
enum turn { TURN_NONE, TURN_ANNOUNCED, TURN_CHANGED };

void placements_put(const struct run *run, const struct placement *announced, const struct placement *next,
                    struct byte_buffer *out)
{
    const struct placement *now = placements_now(run);
    words_put(out, announced != NULL ? TURN_ANNOUNCED : next != NULL ? TURN_CHANGED : TURN_NONE);
    if (announced == NULL)
        return;
    uint64_t count = 0;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        count += announced->instance[group] != now->instance[group];
    words_put(out, count);
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        if (announced->instance[group] != now->instance[group]) {
            words_put(out, group);
            words_put(out, announced->instance[group]);
        }
}

/* Takes in which groups go where, in the order of the groups. */
static bool take_moves(struct placement *next, struct words *message)
{
    uint64_t count = words_take(message), least = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t group = words_take(message), instance = words_take(message);
        if (message->is_short || group < least || group >= KEY_GROUPS || instance >= next->instances ||
            instance == next->instance[group])
            return false;
        placement_move(next, (uint32_t)group, (uint32_t)instance);
        least = group + 1;
    }
    return !message->is_short;
}

bool placements_follow(struct run *run, struct words *message, const struct placement **announced,
                       const struct placement **next)
{
    uint64_t turn = words_take(message);
    *announced = *next = NULL;
    if (message->is_short || turn > TURN_CHANGED)
        return false;
    if (turn == TURN_NONE)
        return true;
    bool is_announced = turn == TURN_ANNOUNCED;
    if (!placements_may_change(run) || is_announced == run->placement_is_announced)
        return false;
    uint64_t rounds = placements_rounds(run);
    if (is_announced) {
        struct placement *placement = begin_next(run);
        *announced = announce(run, placement);
        return take_moves(placement, message);
    }
    if (run->placement_instances > 0 &&
        (rounds % PLACEMENT_ROUNDS != 0 || !placements_have_taken(run, rounds)))
        return false;
    *next = change(run);
    return true;
}

uint32_t placements_home(const struct run *run, const struct placement *placement, uint32_t place)
{
    uint64_t number = run->options.move_seed + placement->version + place;
    return placement->version == 0 || run->options.move_seed == 0 ? 0 : (uint32_t)(number % run->lanes_count);
}

bool placements_move_whole(const struct run *run, const struct plan_node *node)
{
    return run->plan->stages[node->stage].tag == STAGE_SINGLE && node->operator_kind != NULL &&
           node->has_state && !node->operator_kind->keeps_figures_alone;
}

bool placements_want_base(const struct run *run)
{
    bool has_some = false;
    for (uint32_t i = 0;
         i < run->plan->nodes_count && run->placement_is_announced && run->options.move_seed != 0; i++)
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
    struct byte_buffer instances = {0}, homes = {0};
    bool have_moved = placements_have_moved(now);
    if (!have_moved && run->options.peers == NULL)
        return true;
    words_put(&instances, now->instances);
    buffer_append(&instances, now->instance, sizeof(now->instance));
    bool is_good = (!have_moved || snapshot_put(checkpoint_part(writer, part_name), SNAPSHOT_GLOBAL,
                                                now->stays, sizeof(now->stays))) &&
                   snapshot_put(checkpoint_part(writer, instances_name), SNAPSHOT_GLOBAL, instances.data,
                                instances.length);
    for (uint32_t stage = 0; stage < run->plan->stages_count; stage++)
        words_put(&homes, peers_home(run, stage));
    is_good = is_good &&
              snapshot_put(checkpoint_part(writer, homes_name), SNAPSHOT_GLOBAL, homes.data, homes.length);
    buffer_free(&homes);
    buffer_free(&instances);
    return is_good;
}
