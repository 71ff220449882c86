/* leat cluster status|grow|shrink|move|drain|rebalance|stop|rebuild etcd://.../NAME: the workers of a job on several machines, as etcd knows them. */
#include "cli/argp.h"
#include "cli/cluster_change.h"
#include "cli/cluster_move.h"
#include "cli/cluster_rebuild.h"
#include "cli/commands.h"
#include "core/option.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>

enum { KEY_JSON = 256, KEY_WITHIN, KEY_FROM, KEY_TO, WAIT_MS = 200 };
#define WITHIN_US (INT64_C(60) * 1000000) /* --within, where it is not given */

static const char *const verbs[] = {"status", "stop",    "grow", "shrink",
                                    "drain",  "rebuild", "move", "rebalance"};
enum verb { STATUS, STOP, GROW, SHRINK, DRAIN, REBUILD, MOVE, REBALANCE };
#define VERBS_TEXT "`status`, `grow`, `shrink`, `move`, `drain`, `rebalance`, `stop` or `rebuild`"

struct arguments {
    enum verb verb;
    struct run_cluster_flags flags;
    const char *from; /* rebuild */
    bool is_json;
    struct cluster_change change;
    struct cluster_move move;
    const char *names[RUN_WORKERS_MAX];
};

static const struct argp_option options_table[] = {
    {"json", KEY_JSON, NULL, 0, "status: as JSON", 0},
    {"from", KEY_FROM, "HEAD", 0,
     "rebuild: the newest head: the URL of the job's store, or the file DIR/cluster/heads/head-...", 0},
    {"to", KEY_TO, "WORKER", 0, "move: the worker to which it goes, by its number or address", 0},
    {"within", KEY_WITHIN, "TIME", 0,
     "grow, shrink, move, drain, rebalance: how long to wait for the change (default: 60s)", 0},
    {"etcd-authority", RUN_CLUSTER_ETCD_AUTHORITY, "FILE", 0,
     "TLS to etcd, whose certificates this authority (PEM) has signed", 1},
    {"etcd-certificate", RUN_CLUSTER_ETCD_CERTIFICATE, "FILE", 0, "this client's certificate for etcd (PEM)",
     1},
    {"etcd-key", RUN_CLUSTER_ETCD_KEY, "FILE", 0, "the certificate's private key (PEM)", 1},
    {"etcd-user", RUN_CLUSTER_ETCD_USER, "NAME", 0, "the user of etcd, with --etcd-password-file", 1},
    {"etcd-password-file", RUN_CLUSTER_ETCD_PASSWORD, "FILE", 0, "the user's password: the file's only word",
     1},
    {0},
};

static void take_verb(struct arguments *arguments, const char *argument, struct argp_state *state)
{
    size_t verb = 0;
    while (verb < ARRAY_COUNT(verbs) && strcmp(verbs[verb], argument) != 0)
        verb++;
    if (verb == ARRAY_COUNT(verbs))
        argp_error(state, "give " VERBS_TEXT ", not `%s`", argument);
    arguments->verb = (enum verb)verb;
}

/* An argument behind the cluster: a number of workers, or the name of one. */
static void take_more(struct arguments *arguments, const char *argument, struct argp_state *state)
{
    struct cluster_change *change = &arguments->change;
    bool is_number = (arguments->verb == GROW || arguments->verb == SHRINK) && state->arg_num == 2;
    if (is_number) {
        if (!literal_int(str_from(argument), &change->workers) || change->workers < 1 ||
            change->workers > RUN_WORKERS_MAX)
            argp_error(state, "%s takes a number of workers from 1 to %d, not `%s`", verbs[arguments->verb],
                       RUN_WORKERS_MAX, argument);
    } else if ((arguments->verb == SHRINK && change->names_count < RUN_WORKERS_MAX) ||
               (arguments->verb == DRAIN && change->names_count == 0)) {
        arguments->names[change->names_count++] = argument;
    } else if (arguments->verb == MOVE && arguments->move.what == NULL) {
        arguments->move.what = argument;
    } else {
        argp_error(state, "%s: one argument too many: `%s`", verbs[arguments->verb], argument);
    }
}

static void check(const struct arguments *arguments, struct argp_state *state)
{
    if (arguments->flags.cluster == NULL)
        argp_error(state, "give " VERBS_TEXT ", and the cluster: etcd://HOST:PORT,HOST:PORT/NAME");
    if (arguments->verb == SHRINK && arguments->change.workers == 0)
        argp_error(state, "shrink: give the number of workers that there are to be");
    if (arguments->verb == DRAIN && arguments->change.names_count == 0)
        argp_error(state, "drain: give the worker that is to leave, by its number or address");
    if (arguments->verb == MOVE && arguments->move.what == NULL)
        argp_error(state,
                   "move: give what is to move: key groups, like 0-71,90, or a part of the job with one "
                   "instance");
    if ((arguments->verb == MOVE) != (arguments->move.to != NULL))
        argp_error(state, "`move` needs --to=WORKER, and no other action takes it");
    if ((arguments->verb == REBUILD) != (arguments->from != NULL))
        argp_error(state, "`rebuild` needs --from=HEAD, and no other action takes it");
    run_cluster_check_etcd(&arguments->flags, state);
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case KEY_JSON: arguments->is_json = true; return 0;
    case KEY_FROM: arguments->from = argument; return 0;
    case KEY_TO: arguments->move.to = argument; return 0;
    case KEY_WITHIN:
        if (!literal_duration(str_from(argument), &arguments->change.within_us) ||
            arguments->change.within_us < 0)
            argp_error(state, "--within takes a time like 60s, not `%s`", argument);
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num == 0)
            take_verb(arguments, argument, state);
        else if (state->arg_num == 1)
            arguments->flags.cluster = argument;
        else
            take_more(arguments, argument, state);
        return 0;
    case ARGP_KEY_END: check(arguments, state); return 0;
    default: return run_cluster_parse(key, argument, &arguments->flags, state);
    }
}

static volatile sig_atomic_t must_leave;

static void on_signal(int number LEAT_UNUSED)
{
    must_leave = 1;
}

/* Asks, and waits until nobody is there. */
static bool stop(struct coordination *coordination, struct cluster_found *found, struct diag_list *diags)
{
    uint32_t said = UINT32_MAX;
    if (found->view.members_count > 0 && coordination_ask_stop(coordination, diags) != ETCD_DONE)
        return false;
    while (found->view.members_count > 0 && !must_leave) {
        if (found->view.members_count != said)
            fprintf(stderr, "%u workers are to stop, behind a checkpoint\n", found->view.members_count);
        said = found->view.members_count;
        nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL);
        if (!cluster_found_look(coordination, found, diags))
            return false;
    }
    if (must_leave)
        printf("the workers were asked to stop; not waiting for that\n");
    else if (found->view.head.revision != 0)
        printf("no worker runs; the job goes on from the head %.*s\n", STR_ARGS(found->view.head.manifest));
    else
        printf("no worker runs; there is no head yet\n");
    return true;
}

static bool rebuild(struct coordination *coordination, const struct arguments *arguments,
                    struct diag_list *diags)
{
    struct coordination_address address;
    return coordination_parse(str_from(arguments->flags.cluster), &address, diags) &&
           cluster_rebuild(coordination, address.name, arguments->from, diags);
}

/* Does what the verb says. False after a diagnostic. */
static bool act(struct arguments *arguments, struct coordination *coordination, struct cluster_found *found,
                struct diag_list *diags)
{
    if (arguments->verb == REBUILD) /* there is no record to look at */
        return rebuild(coordination, arguments, diags);
    if (!cluster_found_look(coordination, found, diags))
        return false;
    switch (arguments->verb) {
    case STATUS: (arguments->is_json ? cluster_found_print_json : cluster_found_print)(found); return true;
    case STOP: return stop(coordination, found, diags);
    case MOVE:
    case REBALANCE:
        arguments->move.within_us = arguments->change.within_us;
        arguments->move.must_leave = &must_leave;
        return cluster_move(coordination, &arguments->move, found, diags);
    case GROW: arguments->change.kind = CLUSTER_GROW; break;
    case SHRINK: arguments->change.kind = CLUSTER_SHRINK; break;
    default: arguments->change.kind = CLUSTER_DRAIN; break;
    }
    return cluster_change(coordination, &arguments->change, found, diags);
}

int cmd_cluster(int argc, char **argv)
{
    static const struct argp argp = {
        options_table,
        parse,
        "status etcd://HOST:PORT,HOST:PORT/NAME\ngrow etcd://.../NAME [N]\nshrink etcd://.../NAME N [WORKER...]\n"
        "move etcd://.../NAME GROUPS|PART --to=WORKER\ndrain etcd://.../NAME WORKER\nrebalance etcd://.../NAME\nstop etcd://.../NAME\nrebuild etcd://.../NAME --from=HEAD",
        "The workers of a job on several machines (`leat run --cluster`). `status` shows them. `grow` takes in workers that wait, as "
        "many as may take part, or until there are N. `shrink` goes on with N workers; the named ones, and those with the highest "
        "numbers, wait from then on. `drain` lets one worker leave, and its process ends; a WORKER is its number or address, as "
        "`status` shows them. All three happen at a checkpoint with which the job goes on, so that nothing is executed again. "
        "`rebalance` moves key groups while the job runs, so that all lanes have about as much work; `move` moves those that are "
        "given, like 0-71,90, to a worker, likewise, or a part of the job that has one instance, like a learner or a sink, at a "
        "checkpoint as above. "
        "`stop` ends all workers, behind a last checkpoint, from which the job goes on when they are started again. Where etcd's "
        "data was lost, `rebuild` writes its record anew, from the newest head.\v"
        "Status: 0 done; 1 etcd does not answer, there is no such cluster, or the change cannot be made or was not made in time; 2 a "
        "flag or argument is wrong.",
        0,
        0,
        0};
    struct arguments arguments = {.change = {.within_us = WITHIN_US, .must_leave = &must_leave}};
    struct arena arena = {0};
    struct diag_list diags;
    struct cluster_found found = {.has_round = false};
    arguments.change.names = arguments.names;
    argp_command(&argp, argc, argv, &arguments);
    const struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    diag_list_init(&diags, &arena);
    struct coordination *coordination = cluster_found_open(&arguments.flags, &diags);
    bool is_good = coordination != NULL && act(&arguments, coordination, &found, &diags);
    diag_print(stderr, &diags, NULL, false);
    coordination_close(coordination);
    arena_free(&found.arena);
    arena_free(&arena);
    return is_good ? EXIT_GOOD : EXIT_FAILED;
}
