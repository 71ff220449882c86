/* Where the time of lanes and nodes goes: two readings of the clock for each batch that a node is given, one for each
 * piece of work. A lane's thread counts its own time and that of the nodes it runs. */
#include "run/lanes/internal.h"

#include "core/os.h"

static void add(_Atomic uint64_t *to, uint64_t ns)
{
    atomic_store_explicit(to, atomic_load_explicit(to, memory_order_relaxed) + ns, memory_order_relaxed);
}

struct node_instance *time_switch(struct stage_instance *stage, struct node_instance *node)
{
    struct node_instance *before = stage->at_work;
    uint64_t now = os_monotonic_ns();
    if (before != NULL)
        add(&before->own_ns, now - stage->at_work_ns);
    stage->at_work = node;
    stage->at_work_ns = now;
    return before;
}

void time_spent(struct lane *lane, enum run_lane_time what)
{
    uint64_t now = os_monotonic_ns();
    add(&lane->times[what], now - lane->since_ns);
    lane->since_ns = now;
}

uint32_t lanes_count_instances(const struct run *run)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < run->lanes->stages_total; i++)
        count += run->lanes->stages[i]->stage->nodes_count;
    return count;
}

void lanes_times(const struct run *run, struct run_times *times)
{
    uint32_t at = 0;
    for (uint32_t lane = 0; lane < run->lanes_count; lane++)
        for (uint32_t t = 0; t < RUN_LANE_TIMES; t++)
            times->lanes[lane].ns[t] =
                atomic_load_explicit(&run->lanes->lanes[lane].times[t], memory_order_relaxed);
    for (uint32_t i = 0; i < run->lanes->stages_total; i++) {
        const struct stage_instance *stage = run->lanes->stages[i];
        for (uint32_t k = 0; k < stage->stage->nodes_count; k++)
            times->instances[at++] = (struct run_instance_time){
                .node = stage->nodes[k].node->place,
                .lane = stage->lane,
                .ns = atomic_load_explicit(&stage->nodes[k].own_ns, memory_order_relaxed)};
    }
}
