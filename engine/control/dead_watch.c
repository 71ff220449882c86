#include "control/dead_watch.h"

#include <inttypes.h>
#include <stdio.h>

/* A node is judged once JUDGED_MIN records have come since it was judged last, or JUDGED_MIN_ALL if all of
 * them are dead letters. "Nearly all" is nine of ten. */
enum { JUDGED_MIN = 100, JUDGED_MIN_ALL = 10 };

void dead_watch_begin(struct dead_watch *watch, const struct run_stats *stats)
{
    *watch = (struct dead_watch){0};
    for (uint32_t i = 0; i < stats->nodes_count; i++) {
        struct dead_watch_node *node = &watch->nodes[i];
        node->begin_in = node->seen_in = stats->nodes[i].counters.in;
        node->begin_dead = node->seen_dead = stats->nodes[i].counters.dead;
    }
}

static void describe(struct dead_watch_node *node, const struct run_node_stats *stats, uint64_t in,
                     uint64_t dead, const char *last)
{
    static const char hint[] = "; check that `format` and `schema` match its records";
    const struct plan_node *of = stats->node;
    const char *first = stats->dead_reason;
    snprintf(node->text, sizeof(node->text), "%s: %" PRIu64 " of%s %" PRIu64 " records are %s%s%.300s%s",
             of->label, dead, last, in, of->tag == PLAN_LEARNER ? "rejected" : "dead letters",
             first[0] == '\0' ? "" : "; for example ", first, of->tag == PLAN_SOURCE ? hint : "");
    node->is_bad = true;
}

static bool are_nearly_all(uint64_t in, uint64_t dead)
{
    return in > 0 && dead >= in - in / 10;
}

bool dead_watch_look(struct dead_watch *watch, const struct run_stats *stats, bool is_new[PLAN_NODES_MAX])
{
    bool has_new = false;
    for (uint32_t i = 0; i < stats->nodes_count; i++) {
        struct dead_watch_node *node = &watch->nodes[i];
        const struct counters *c = &stats->nodes[i].counters;
        /* The leader of several workers gets what earlier lives had counted from another worker, later. */
        uint64_t in = c->in - MAX(node->seen_in, stats->nodes[i].begin_in),
                 dead = c->dead - MAX(node->seen_dead, stats->nodes[i].begin_dead);
        bool is_enough = in >= JUDGED_MIN || (in >= JUDGED_MIN_ALL && dead >= in);
        is_new[i] = false;
        if (stats->nodes[i].node->tag == PLAN_SINK || !is_enough)
            continue;
        bool was_bad = node->is_bad;
        node->is_bad = false;
        if (are_nearly_all(in, MIN(dead, in)))
            describe(node, &stats->nodes[i], in, MIN(dead, in), " the last");
        has_new |= is_new[i] = node->is_bad && !was_bad;
        node->seen_in = c->in;
        node->seen_dead = c->dead;
    }
    return has_new;
}

void dead_watch_end(struct dead_watch *watch, const struct run_stats *stats)
{
    for (uint32_t i = 0; i < stats->nodes_count; i++) {
        struct dead_watch_node *node = &watch->nodes[i];
        const struct counters *c = &stats->nodes[i].counters;
        uint64_t in = c->in - MAX(node->begin_in, stats->nodes[i].begin_in),
                 dead = c->dead - MAX(node->begin_dead, stats->nodes[i].begin_dead);
        if (stats->nodes[i].node->tag != PLAN_SINK && are_nearly_all(in, dead))
            describe(node, &stats->nodes[i], in, dead, "");
    }
}
