#include "cli/cluster_places.h"

#include "cli/cluster_request.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

_Static_assert((int)RUN_WORKERS_MAX < (int)UINT8_MAX, "a worker's number fits a byte, and one value is free");
enum { NOWHERE = UINT8_MAX };

/* Work of a stage whose time is not known: a learner's, that of an operator with state, and of all else. */
enum { WORK_LEARNER = 16, WORK_STATE = 4, WORK_LEAST = 1 };

/* While workers come and go, a stage stays where that costs at most so much of a worker's mean work. */
#define STAYS_FOR 1.1

static bool is_single(const struct plan *plan, uint64_t stage)
{
    return stage < plan->stages_count && plan->stages[stage].tag == STAGE_SINGLE;
}

uint32_t cluster_places_stage(const struct plan *plan, const char *part)
{
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        const struct plan_node *node = &plan->nodes[i];
        bool is_named = strcmp(node->part, part) == 0 || (node->tag == PLAN_SINK && str_is(node->name, part));
        if (is_named && is_single(plan, node->stage))
            return node->stage;
    }
    return PLAN_STAGES_MAX;
}

void cluster_places_list(const struct plan *plan, char *text, size_t bytes)
{
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        const struct plan_node *node = &plan->nodes[i];
        if (!is_single(plan, node->stage))
            continue;
        int length = snprintf(text + at, bytes - at, "%s%s", at > 0 ? ", " : "", node->part);
        if ((size_t)length >= bytes - at) {
            snprintf(text + MIN(at, bytes - 6), 6, ", ...");
            return;
        }
        at += (size_t)length;
    }
}

/* --- Choosing --- */

struct choice {
    const struct plan *plan;
    const struct rendezvous_round *last, *next;
    double work[PLAN_STAGES_MAX], of_worker[RUN_WORKERS_MAX], mean;
    uint8_t homes[PLAN_STAGES_MAX]; /* NOWHERE: not yet */
};

static void weigh(struct choice *choice, const uint64_t ns[PLAN_STAGES_MAX])
{
    const struct plan *plan = choice->plan;
    double total = 0;
    for (uint32_t i = 0; i < plan->stages_count; i++)
        total += choice->work[i] = is_single(plan, i) ? (double)ns[i] : 0;
    for (uint32_t i = 0; i < plan->nodes_count && total <= 0; i++) {
        const struct plan_node *node = &plan->nodes[i];
        double work = node->tag == PLAN_LEARNER ? WORK_LEARNER : node->has_state ? WORK_STATE : WORK_LEAST;
        if (is_single(plan, node->stage))
            choice->work[node->stage] += work;
    }
    for (uint32_t i = 0; i < plan->stages_count; i++)
        choice->mean += choice->work[i] / choice->next->count;
}

static void put(struct choice *choice, uint32_t stage, uint32_t worker)
{
    choice->homes[stage] = (uint8_t)worker;
    choice->of_worker[worker] += choice->work[stage];
}

/* Where the worker `number` of the last round is in the next one; its count: it has gone. With as many workers numbers stay, also where a
 * process has come back. */
static uint32_t find_again(const struct choice *choice, uint32_t number)
{
    const struct rendezvous_round *last = choice->last, *next = choice->next;
    return last->count == next->count ? number : rendezvous_number(next, last->workers[number].lease);
}

static void put_asked(struct choice *choice, const json_t *asked)
{
    const char *part;
    json_t *address;
    json_object_foreach((json_t *)(uintptr_t)asked, part, address)
    {
        uint32_t stage = cluster_places_stage(choice->plan, part);
        uint32_t worker = json_is_string(address)
                              ? rendezvous_number_at(choice->next, str_from(json_string_value(address)))
                              : choice->next->count;
        if (stage < PLAN_STAGES_MAX && worker < choice->next->count && choice->homes[stage] == NOWHERE)
            put(choice, stage, worker);
    }
}

/* The stage with the most work of those that are nowhere; PLAN_STAGES_MAX: all are somewhere. */
static uint32_t busiest_left(const struct choice *choice)
{
    uint32_t busiest = PLAN_STAGES_MAX;
    for (uint32_t i = 0; i < choice->plan->stages_count; i++)
        if (is_single(choice->plan, i) && choice->homes[i] == NOWHERE &&
            (busiest == PLAN_STAGES_MAX || choice->work[i] > choice->work[busiest]))
            busiest = i;
    return busiest;
}

static void put_others(struct choice *choice, const uint8_t before[PLAN_STAGES_MAX])
{
    uint32_t count = choice->next->count;
    bool all_stay = choice->last->count == count;
    for (uint32_t stage; (stage = busiest_left(choice)) < PLAN_STAGES_MAX;) {
        uint32_t stays = before[stage] == NOWHERE ? count : find_again(choice, before[stage]), least = 0;
        for (uint32_t i = 1; i < count; i++)
            if (choice->of_worker[i] < choice->of_worker[least])
                least = i;
        bool may_stay =
            stays < count &&
            (all_stay || choice->of_worker[stays] + choice->work[stage] <=
                             fmax(STAYS_FOR * choice->mean, choice->of_worker[least] + choice->work[stage]));
        put(choice, stage, may_stay ? stays : least);
    }
}

static json_t *parts_of(const struct plan *plan, uint32_t stage)
{
    json_t *parts = json_array();
    for (uint32_t i = 0; i < plan->nodes_count; i++)
        if (plan->nodes[i].stage == stage)
            json_array_append_new(parts, json_string(plan->nodes[i].part));
    return parts;
}

/* A plan has PLAN_NODES_MAX parts and PLAN_STAGES_MAX stages, whose names come from a job file, and an address for each: all of them are
 * below RENDEZVOUS_PLACES_BYTES_MAX. */
static char *finish(json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    leat_assert(text != NULL && strlen(text) <= RENDEZVOUS_PLACES_BYTES_MAX);
    json_decref(json);
    return text;
}

static json_t *load(struct str text)
{
    json_t *json = text.length == 0 ? NULL : json_loadb(text.data, text.length, JSON_REJECT_DUPLICATES, NULL);
    return json != NULL ? json : json_object();
}

/* To which worker each stage was asked to go, by the name of its first part: of the plan's stages alone, so that there is no more than
 * one for each. json: of a round. */
static json_t *asked_of(const struct plan *plan, const json_t *json)
{
    json_t *known = json_object();
    for (uint32_t i = 0; i < plan->stages_count; i++) {
        const char *part = plan->nodes[plan->stages[i].nodes[0]].part;
        json_t *address = json_object_get(json_object_get(json, "asked"), part);
        if (is_single(plan, i) && json_is_string(address) &&
            json_string_length(address) < CLUSTER_REQUEST_ADDRESS_BYTES)
            json_object_set(known, part, address);
    }
    return known;
}

char *cluster_places_choose(const struct plan *plan, const struct rendezvous_round *last,
                            const struct rendezvous_round *next, const uint64_t ns[PLAN_STAGES_MAX])
{
    struct choice choice = {.plan = plan, .last = last, .next = next};
    uint8_t before[PLAN_STAGES_MAX];
    json_t *json = load(last->next_places.length > 0 ? last->next_places : last->places),
           *stages = json_array();
    json_t *asked = asked_of(plan, json);
    memset(choice.homes, NOWHERE, sizeof(choice.homes));
    weigh(&choice, ns);
    put_asked(&choice, asked);
    if (!cluster_places_read(plan, last->places, last->count, before))
        memset(before, NOWHERE, sizeof(before));
    put_others(&choice, before);
    for (uint32_t i = 0; i < plan->stages_count; i++)
        if (is_single(plan, i))
            json_array_append_new(stages, json_pack("{s:i, s:i, s:o}", "stage", (int)i, "worker",
                                                    (int)choice.homes[i], "parts", parts_of(plan, i)));
    json_decref(json);
    return finish(json_pack("{s:o, s:o}", "stages", stages, "asked", asked));
}

char *cluster_places_ask(const struct plan *plan, struct str places, uint32_t stage, const char *address)
{
    json_t *json = load(places), *asked = asked_of(plan, json);
    json_object_set_new(asked, plan->nodes[plan->stages[stage].nodes[0]].part, json_string(address));
    json_decref(json);
    return finish(json_pack("{s:o}", "asked", asked));
}

/* --- Reading --- */

static bool read_entry(const json_t *entry, uint32_t workers, uint64_t *stage, uint32_t *worker)
{
    const json_t *of = json_object_get(entry, "stage"), *at = json_object_get(entry, "worker");
    *stage = (uint64_t)json_integer_value(of);
    *worker = (uint32_t)json_integer_value(at);
    return json_is_integer(of) && json_is_integer(at) && json_integer_value(at) >= 0 &&
           json_integer_value(at) < workers;
}

bool cluster_places_read(const struct plan *plan, struct str text, uint32_t workers,
                         uint8_t homes[PLAN_STAGES_MAX])
{
    json_t *json = load(text);
    const json_t *stages = json_object_get(json, "stages");
    uint64_t seen = 0, stage;
    uint32_t worker;
    bool ok = json_is_array(stages);
    _Static_assert((int)PLAN_STAGES_MAX <= 64, "a bit each");
    memset(homes, 0, PLAN_STAGES_MAX);
    for (size_t i = 0; ok && i < json_array_size(stages); i++) {
        ok = read_entry(json_array_get(stages, i), workers, &stage, &worker) && is_single(plan, stage) &&
             (seen >> stage & 1) == 0;
        if (!ok)
            break;
        homes[stage] = (uint8_t)worker;
        seen |= UINT64_C(1) << stage;
    }
    for (uint32_t i = 0; i < plan->stages_count; i++)
        ok &= is_single(plan, i) == (seen >> i & 1);
    json_decref(json);
    return ok;
}

static bool has_part(const json_t *parts, const char *part)
{
    bool has = false;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const char *text = json_string_value(json_array_get(parts, i));
        has |= text != NULL &&
               (strcmp(text, part) == 0 || (strncmp(text, "sink/", 5) == 0 && strcmp(text + 5, part) == 0));
    }
    return has;
}

uint32_t cluster_places_worker(struct str text, const char *part, uint32_t workers)
{
    json_t *json = load(text);
    const json_t *stages = json_object_get(json, "stages");
    uint32_t found = workers, worker;
    uint64_t stage;
    for (size_t i = 0; i < json_array_size(stages); i++) {
        const json_t *entry = json_array_get(stages, i);
        if (read_entry(entry, workers, &stage, &worker) && has_part(json_object_get(entry, "parts"), part))
            found = worker;
    }
    json_decref(json);
    return found;
}

void cluster_places_show(struct str text, uint32_t workers,
                         void (*show)(void *user, const char *parts, uint32_t worker), void *user)
{
    json_t *json = load(text);
    const json_t *stages = json_object_get(json, "stages");
    uint32_t worker;
    uint64_t stage;
    for (size_t i = 0; i < json_array_size(stages); i++) {
        const json_t *entry = json_array_get(stages, i), *parts = json_object_get(entry, "parts");
        char line[400] = "";
        size_t at = 0;
        for (size_t k = 0; k < json_array_size(parts) && at < sizeof(line); k++) {
            const char *part = json_string_value(json_array_get(parts, k));
            at += (size_t)snprintf(line + at, sizeof(line) - at, "%s%s", k > 0 ? ", " : "",
                                   part == NULL ? "?" : part);
        }
        if (read_entry(entry, workers, &stage, &worker))
            show(user, line, worker);
    }
    json_decref(json);
}
