#include "cli/cluster_move.h"

#include "cli/cluster_change.h"
#include "cli/cluster_places.h"
#include "cli/cluster_request.h"
#include "core/os.h"
#include "core/placement_balance.h"
#include "core/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

enum { WAIT_MS = 100 };

/* What goes on. */
struct asked {
    const struct cluster_move *move;
    struct cluster_request request;
    char *text;                   /* of the request; malloc'd */
    struct cluster_answer answer; /* the newest one to it */
    bool is_answered;
    int64_t begun_us;
    uint32_t said; /* changes of which it was said that they go on, and one more; 0: nothing was said */
};

static const char again[] = "look at `leat cluster status`, and ask again";

/* A part that is on its way moves when the round ends, and the leader has taken that up, or will: nothing else is asked before, for the
 * record has room for one request. False after a diagnostic. */
static bool can_begin(const struct cluster_found *found, struct diag_list *diags)
{
    struct cluster_request last;
    struct cluster_answer answer;
    const struct cluster_view *view = &found->view;
    if (!cluster_change_can_begin(found, diags))
        return false;
    if (!cluster_request_read(view->request.text, &last) || last.kind != CLUSTER_REQUEST_PART ||
        last.incarnation != view->incarnation)
        return true;
    bool is_answered = cluster_answer_read(view->answer.text, &answer) && answer.nonce == last.nonce &&
                       answer.state != CLUSTER_ANSWER_WORKS;
    return is_answered ||
           cluster_change_refuse(
               diags,
               "wait until it is there (`leat cluster status`), then ask again; both at once would be neither",
               "`%s` was asked to move to %s, and has not begun to", last.part, last.address);
}

static bool plan(const struct cluster_move *move, const struct cluster_found *found,
                 struct cluster_request *request, struct diag_list *diags)
{
    struct group_set groups;
    if (!can_begin(found, diags))
        return false;
    *request =
        (struct cluster_request){.kind = CLUSTER_REQUEST_BALANCE, .incarnation = found->view.incarnation};
    if (getrandom(&request->nonce, sizeof(request->nonce), 0) != (ssize_t)sizeof(request->nonce))
        request->nonce = (uint64_t)os_wall_us();
    request->nonce &= INT64_MAX;
    if (move->what == NULL)
        return true;
    const struct cluster_member *member = cluster_change_find(found, move->to, diags);
    if (member == NULL)
        return false;
    if (cluster_found_number(found, member->lease) < 0)
        return cluster_change_refuse(diags, "take it in first: `leat cluster grow`",
                                     "expected a worker that takes part, and `%.200s` waits", move->to);
    bool are_groups = move->what[0] >= '0' && move->what[0] <= '9';
    request->kind = are_groups ? CLUSTER_REQUEST_GROUPS : CLUSTER_REQUEST_PART;
    snprintf(request->address, sizeof(request->address), "%.*s", STR_ARGS(member->address));
    if ((are_groups && (strlen(move->what) >= sizeof(request->groups) ||
                        !group_set_parse(str_from(move->what), &groups))) ||
        (!are_groups &&
         (strlen(move->what) >= sizeof(request->part) || !utf8_is_valid(str_from(move->what)))))
        return cluster_change_refuse(
            diags, "key groups are numbers from 0 to 719, each at most once: 0-71,90",
            "expected key groups, or the name of a part of the job, found `%.200s`", move->what);
    snprintf(are_groups ? request->groups : request->part,
             are_groups ? sizeof(request->groups) : sizeof(request->part), "%s", move->what);
    return true;
}

/* Whether the part is where it was to go, in a round behind the one in which that was asked. */
static bool is_placed(const struct asked *asked, const struct cluster_found *found)
{
    const struct rendezvous_round *round = found->round;
    if (!found->has_round || round->changes)
        return false;
    uint32_t worker = cluster_places_worker(round->places, asked->request.part, round->count);
    return worker < round->count && str_is(round->workers[worker].address, asked->request.address);
}

static bool is_done(const struct asked *asked, const struct cluster_found *found)
{
    if (asked->is_answered && asked->answer.state == CLUSTER_ANSWER_DONE)
        return true;
    return asked->request.kind == CLUSTER_REQUEST_PART &&
           found->view.incarnation > asked->request.incarnation && is_placed(asked, found);
}

/* Takes the answer in. False after a diagnostic: nothing will come of the request. */
static bool goes_on(struct asked *asked, const struct cluster_found *found, struct diag_list *diags)
{
    struct cluster_answer answer;
    const struct cluster_view *view = &found->view;
    if (cluster_answer_read(view->answer.text, &answer) && answer.nonce == asked->request.nonce) {
        asked->answer = answer;
        asked->is_answered = true;
    }
    if (asked->is_answered && asked->answer.state == CLUSTER_ANSWER_REFUSED)
        return cluster_change_refuse(diags, asked->answer.hint, "%s", asked->answer.what);
    if (is_done(asked, found))
        return true;
    if (!str_is(view->request.text, asked->text))
        return cluster_change_refuse(diags, again, "somebody else has asked for another move since");
    bool is_part = asked->request.kind == CLUSTER_REQUEST_PART;
    bool has_begun_anew = found->has_round && view->incarnation > asked->request.incarnation;
    if (found->has_ended || (has_begun_anew && !(is_part && found->round->changes)))
        return cluster_change_refuse(diags, again,
                                     found->has_ended ? "the job has ended before it was done"
                                                      : "the workers have begun again before it was done");
    return true;
}

static void say(struct asked *asked, const struct cluster_found *found)
{
    const struct run_moves *moves = &asked->answer.moves;
    uint32_t stage = found->has_round && found->round->changes ? UINT32_MAX
                     : asked->is_answered                      ? moves->changes + 2
                                                               : 1;
    if (asked->said == stage)
        return;
    asked->said = stage;
    if (stage == UINT32_MAX)
        fprintf(stderr, "incarnation %" PRIu64 " ends at a checkpoint\n", found->view.incarnation);
    else if (!asked->is_answered)
        fprintf(stderr, "asked; the leader has not answered yet\n");
    else if (moves->changes == 0)
        fprintf(stderr, "the leader begins with the next checkpoint\n");
    else
        fprintf(stderr, "change %u: %u key groups so far, with about %.1f MiB of state\n", moves->changes,
                moves->groups, (double)moves->bytes / (1 << 20));
}

static void tell_balance(const struct run_moves *moves, double seconds)
{
    if (moves->groups > 0)
        printf(
            "moved %u key groups, with about %.1f MiB of state, in %u changes and %.1f s: the busiest lane had %.2f times the "
            "mean load, and has %.2f\n",
            moves->groups, (double)moves->bytes / (1 << 20), moves->changes, seconds, moves->before,
            moves->after);
    else if (moves->before <= BALANCE_BEGINS)
        printf("nothing to mend: the busiest lane has %.2f times the mean load\n", moves->before);
    else
        printf(
            "the busiest lane has %.2f times the mean load, and no move mends that: the leader's log names keys that are too "
            "hot\n",
            moves->before);
}

static void tell(const struct asked *asked, const struct cluster_found *found)
{
    const struct run_moves *moves = &asked->answer.moves;
    double seconds = (double)(os_monotonic_us() - asked->begun_us) / 1e6;
    if (asked->request.kind == CLUSTER_REQUEST_BALANCE)
        tell_balance(moves, seconds);
    else if (asked->request.kind == CLUSTER_REQUEST_GROUPS && moves->groups == 0)
        printf("the key groups are there already\n");
    else if (asked->request.kind == CLUSTER_REQUEST_GROUPS)
        printf("moved %u key groups, with about %.1f MiB of state, in %u changes and %.1f s\n", moves->groups,
               (double)moves->bytes / (1 << 20), moves->changes, seconds);
    else if (asked->is_answered && asked->answer.state == CLUSTER_ANSWER_DONE)
        printf("%s is there already\n", asked->request.part);
    else
        printf("incarnation %" PRIu64 ": %s is at %s, after %.1f s\n", found->view.incarnation,
               asked->request.part, asked->request.address, seconds);
}

static bool await(struct coordination *coordination, struct asked *asked, struct cluster_found *found,
                  struct diag_list *diags)
{
    const struct cluster_move *move = asked->move;
    do {
        if (!cluster_found_look(coordination, found, diags) || !goes_on(asked, found, diags))
            return false;
        if (is_done(asked, found)) {
            tell(asked, found);
            return true;
        }
        if (os_monotonic_us() - asked->begun_us >= move->within_us)
            return cluster_change_refuse(
                diags, "the workers go on with it all the same; a longer --within waits longer",
                !asked->is_answered ? "the leader has not answered within %.0f s"
                : asked->answer.moves.changes == 0 && asked->request.kind == CLUSTER_REQUEST_BALANCE
                    ? "too few rows have come within %.0f s to measure the load of the lanes"
                    : "it was asked for, and is not done within %.0f s",
                (double)move->within_us / 1e6);
        say(asked, found);
        nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL);
    } while (*move->must_leave == 0);
    printf("the leader was asked; not waiting for that\n");
    return true;
}

bool cluster_move(struct coordination *coordination, const struct cluster_move *move,
                  struct cluster_found *found, struct diag_list *diags)
{
    struct asked asked = {.move = move, .begun_us = os_monotonic_us()};
    if (!plan(move, found, &asked.request, diags))
        return false;
    asked.text = cluster_request_write(&asked.request);
    bool is_good = coordination_ask(coordination, str_from(asked.text), found->view.request.revision,
                                    diags) == ETCD_DONE &&
                   await(coordination, &asked, found, diags);
    free(asked.text);
    return is_good;
}
