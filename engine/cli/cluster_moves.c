#include "cli/cluster_moves.h"

#include "cli/cluster_places.h"
#include "core/mem.h"
#include "core/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

bool cluster_moves_begin(struct cluster_moves *moves, const struct rendezvous_round *round)
{
    moves->is_busy = false;
    return cluster_places_read(moves->plan, round->places, round->count, moves->homes);
}

char *cluster_moves_place(const struct cluster_moves *moves, const struct rendezvous_round *last,
                          const struct rendezvous_round *next)
{
    return cluster_places_choose(moves->plan, last, next, moves->ns);
}

static void tell(struct cluster_moves *moves)
{
    char *text = cluster_answer_write(&moves->said);
    worker_answer(moves->worker, text);
    free(text);
}

static void refuse(struct cluster_moves *moves, const char *hint, const char *format, ...) LEAT_PRINTF(3, 4);
static void refuse(struct cluster_moves *moves, const char *hint, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(moves->said.what, sizeof(moves->said.what), format, arguments);
    va_end(arguments);
    if (!utf8_is_valid(
            str_from(moves->said.what))) /* a name was cut within a character, and records are UTF-8 */
        for (char *c = moves->said.what; *c != '\0'; c++)
            *c = (unsigned char)*c < 0x80 ? *c : '?';
    snprintf(moves->said.hint, sizeof(moves->said.hint), "%s", hint);
    moves->said.state = CLUSTER_ANSWER_REFUSED;
}

/* Number of the worker of that address; round->count: refused. */
static uint32_t find_worker(struct cluster_moves *moves, const struct rendezvous_round *round,
                            const char *address)
{
    uint32_t number = rendezvous_number_at(round, str_from(address));
    if (number == round->count)
        refuse(moves, "`leat cluster status` shows the workers",
               "expected a worker that takes part, found `%.200s`", address);
    return number;
}

static void move_groups(struct cluster_moves *moves, struct run *run, const struct rendezvous_round *round,
                        const struct cluster_request *request)
{
    struct run_moves_asked asked = {.balances = request->kind == CLUSTER_REQUEST_BALANCE};
    const char *why;
    if (!asked.balances) {
        asked.worker = find_worker(moves, round, request->address);
        if (asked.worker == round->count)
            return;
        if (!group_set_parse(str_from(request->groups), &asked.groups)) {
            refuse(moves, "key groups are numbers from 0 to 719: 0-71, 90",
                   "expected a list of key groups, found `%.200s`", request->groups);
            return;
        }
    }
    moves->is_busy = run_ask_moves(run, &asked, &why);
    if (!moves->is_busy)
        refuse(
            moves,
            "start all workers with --balance=asked, or without --balance, and a job whose operators can give keys away",
            "key groups cannot move in this job: %s", why);
}

static void move_stage(struct cluster_moves *moves, const struct rendezvous_round *round,
                       const struct cluster_request *request)
{
    const struct plan *plan = moves->plan;
    uint32_t worker = find_worker(moves, round, request->address);
    uint32_t stage = cluster_places_stage(plan, request->part);
    char list[500];
    if (worker == round->count)
        return;
    if (stage == PLAN_STAGES_MAX) {
        cluster_places_list(plan, list, sizeof(list));
        refuse(moves,
               "what is keyed moves as key groups: `leat cluster move etcd://.../NAME GROUPS --to=WORKER`",
               "expected a part of the job that has one instance (%s), found `%.200s`",
               list[0] == '\0' ? "it has none" : list, request->part);
        return;
    }
    char *places = cluster_places_ask(plan, round->places, stage, request->address);
    if (moves->homes[stage] == worker)
        moves->said.state = CLUSTER_ANSWER_DONE;
    else
        worker_place(moves->worker, places);
    free(places);
}

/* Begins what was asked for. */
static void take(struct cluster_moves *moves, struct run *run, const struct rendezvous_round *round,
                 struct str text)
{
    struct cluster_request *request = mem_alloc(sizeof(*request));
    if (!cluster_request_read(text, request) || request->incarnation != round->incarnation) {
        free(request); /* who asked sees that nobody answers */
        return;
    }
    moves->is_busy = false;
    moves->said = (struct cluster_answer){
        .nonce = request->nonce, .state = CLUSTER_ANSWER_WORKS, .moves = {.before = 1, .after = 1}};
    if (request->kind == CLUSTER_REQUEST_PART)
        move_stage(moves, round, request);
    else
        move_groups(moves, run, round, request);
    tell(moves);
    free(request);
}

void cluster_moves_look(struct cluster_moves *moves, struct run *run, const struct rendezvous_round *round)
{
    char text[COORDINATION_TEXT_BYTES_MAX + 1];
    struct run_moves now;
    if (round->self != round->leader)
        return;
    int64_t revision = worker_request(moves->worker, text);
    if (revision > moves->seen) {
        moves->seen = revision;
        take(moves, run, round, str_from(text));
    }
    if (!moves->is_busy)
        return;
    run_look_at_moves(run, &now);
    bool is_done = now.state == RUN_MOVES_DONE;
    if (!is_done && now.changes == moves->said.moves.changes)
        return;
    moves->said.moves = now;
    moves->said.state = is_done ? CLUSTER_ANSWER_DONE : CLUSTER_ANSWER_WORKS;
    moves->is_busy = !is_done;
    tell(moves);
}

void cluster_moves_end(struct cluster_moves *moves, struct run *run, const struct rendezvous_round *round)
{
    uint64_t ns[PLAN_STAGES_MAX] = {0}, total = 0;
    if (round->self == round->leader)
        run_stage_times(run, ns);
    for (uint32_t i = 0; i < moves->plan->stages_count; i++)
        total += moves->plan->stages[i].tag == STAGE_SINGLE ? ns[i] : 0;
    if (total > 0)
        memcpy(moves->ns, ns, sizeof(moves->ns));
}
