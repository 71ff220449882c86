/* Which databases of a head a worker opens. Where there are as many lanes, its databases are those of the part of its number, as they
 * are, but for rows of key groups that have gone to other workers, which are deleted; what it gets in addition it imports from the parts
 * that had it. Else all of its databases begin empty, and it imports its rows. Databases that have none of its rows are not opened. */
#include "run/checkpoints/internal.h"

#include "run/base/placements.h"
#include "state/state.h"

/* Whether the node's rows lie at the one instance of its stage. */
static bool is_of_one(const struct run *run, const struct plan_node *node)
{
    return node->needs_memory && part_is_single(run, node);
}

uint32_t head_home_before(const struct run *run, const struct run_head *head, uint32_t stage)
{
    bool is_known = run->homes_before != NULL && run->homes_before[stage] < head->count;
    return is_known ? run->homes_before[stage] : stage % head->count;
}

/* The instances of keyed stages that one of the head's databases, or one worker, has. */
struct instances {
    uint32_t first, limit;
};

static bool is_in(struct instances of, uint32_t instance)
{
    return instance >= of.first && instance < of.limit;
}

/* Whether each group of the part of this worker's number is on the same lane still, or at another worker. */
static bool goes_on(const struct run *run, const struct run_head *head)
{
    const struct placement *before = &run->placement_before, *now = placements_now(run);
    bool goes_on = peers_self(run) < head->count && before->instances == head->count * run->lanes_count;
    for (uint32_t g = 0; goes_on && g < KEY_GROUPS; g++)
        goes_on = !peers_has_instance(run, before->instance[g]) ||
                  !peers_has_instance(run, now->instance[g]) || now->instance[g] == before->instance[g];
    return goes_on;
}

/* Whether this worker begins with rows of that worker of the head, of those instances. */
static bool takes_rows(const struct run *run, const struct run_head *head, uint32_t worker,
                       struct instances of)
{
    const struct placement *before = &run->placement_before, *now = placements_now(run);
    bool takes = false;
    for (uint32_t g = 0; g < KEY_GROUPS && !takes; g++)
        takes = is_in(of, before->instance[g]) && peers_has_instance(run, now->instance[g]);
    for (uint32_t i = 0; i < run->plan->nodes_count && !takes; i++) {
        const struct plan_node *node = &run->plan->nodes[i];
        takes = is_of_one(run, node) && head_home_before(run, head, node->stage) == worker &&
                peers_home(run, node->stage) == peers_self(run);
    }
    return takes;
}

/* The joined checkpoint has the parts from the leader's on. */
static uint32_t place_of(const struct run_head *head, uint32_t worker)
{
    return 1 + (worker + head->count - head->leader) % head->count;
}

static void choose(const struct run *run, const struct run_head *head, struct head_databases *chosen)
{
    uint32_t lanes = run->placement_before.instances / head->count, number;
    chosen->own = goes_on(run, head) ? place_of(head, peers_self(run)) : 0;
    for (uint32_t worker = 0; worker < head->count; worker++) {
        uint32_t count = checkpoint_databases(run->resumed, place_of(head, worker), &number);
        bool is_own = chosen->own == place_of(head, worker);
        for (uint32_t i = 0; i < count && !is_own; i++) {
            uint32_t first = worker * lanes + (count == lanes ? i : 0);
            if (takes_rows(run, head, worker,
                           (struct instances){first, first + (count == lanes ? 1 : lanes)}))
                bit_set(chosen->needed, number + i);
        }
    }
}

void head_choose_databases(const struct run *run, struct head_databases *chosen)
{
    const struct checkpoints *c = run->checkpoints;
    const struct run_head *head = c == NULL ? NULL : c->head;
    uint8_t digest[CHECKPOINT_DIGEST_BYTES];
    *chosen = (struct head_databases){.is_known = false};
    if (head == NULL || run->options.peers == NULL)
        return;
    head_digest_placement(run, head, &run->placement_before, 0, digest);
    if (memcmp(c->placement, head->placement, sizeof(c->placement)) == 0) {
        chosen->is_known = true;
        chosen->own = place_of(head, peers_self(run));
    } else if (memcmp(digest, head->placement, sizeof(digest)) == 0 &&
               run->placement_before.instances % head->count == 0) {
        chosen->is_known = true;
        choose(run, head, chosen);
    }
}

void head_drop_left(struct run *run)
{
    const struct run_head *head = run->checkpoints == NULL ? NULL : run->checkpoints->head;
    uint32_t self = peers_self(run);
    if (run->stores.taken == 0 || head == NULL)
        return;
    for (uint32_t i = 0; i < run->plan->nodes_count; i++) {
        const struct plan_node *node = &run->plan->nodes[i];
        for (uint32_t k = 0; k < run->stores.taken && is_of_one(run, node); k++)
            if (head_home_before(run, head, node->stage) == self && peers_home(run, node->stage) != self)
                state_store_drop(run->stores.items[k], run->ids[i]);
    }
}
