/* Which worker of a round has which stage with one instance: learners, operators that are no keyed ones, sinks. The leader says so in the
 * round's record (rendezvous_round.places): what somebody has asked for (`leat cluster move`) stays so while that worker takes part;
 * the others stay where they are while there are as many workers, and else are spread so that each worker has about as much of such
 * work, the busiest first, by the time that they took in the round before, or by their kind while that is not known. */
#ifndef LEAT_CLI_CLUSTER_PLACES_H
#define LEAT_CLI_CLUSTER_PLACES_H

#include "cluster/rendezvous.h"
#include "plan/plan.h"

/* The leader's text for the next round; malloc'd. ns: by stage, the time that they took; all 0: not known. Any thread. */
char *cluster_places_choose(const struct plan *plan, const struct rendezvous_round *last,
                            const struct rendezvous_round *next, const uint64_t ns[PLAN_STAGES_MAX]);
/* The text for rendezvous_round.next_places: what that of the round was asked for, and that the stage, which has one instance, is to be
 * at the worker of that address; malloc'd. */
char *cluster_places_ask(const struct plan *plan, struct str places, uint32_t stage, const char *address);
/* By stage, the worker that has it, below `workers`; text: of a round. False: it is none for this plan. */
LEAT_CHECKED bool cluster_places_read(const struct plan *plan, struct str text, uint32_t workers,
                                      uint8_t homes[PLAN_STAGES_MAX]);

/* The stage with one instance of that part (plan_node.part), or of that sink; PLAN_STAGES_MAX: there is none. */
uint32_t cluster_places_stage(const struct plan *plan, const char *part);
/* Writes the parts that such stages have, as people read them; cut where there are many. */
void cluster_places_list(const struct plan *plan, char *text, size_t bytes);
/* For who has no plan: the worker that has the stage of that part; workers: of the round; `workers`: the text does not say so. */
uint32_t cluster_places_worker(struct str text, const char *part, uint32_t workers);
/* Calls `show` for each stage: the parts that it has, and its worker. */
void cluster_places_show(struct str text, uint32_t workers,
                         void (*show)(void *user, const char *parts, uint32_t worker), void *user);

#endif
