/* leat run JOB: loads and runs a job, shows its progress, prints a summary. */
#include "cli/argp.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "cli/run_cluster.h"
#include "cli/run_control.h"
#include "cli/run_life.h"
#include "cli/serve_beside.h"
#include "cli/supervise.h"
#include "control/api.h"
#include "core/civil.h"
#include "core/learner.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"
#include "run/run.h"
#include "state/checkpoint.h"
#include "state/objects/objects.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    KEY_SET = 256,
    KEY_JSON,
    KEY_REPLAY,
    KEY_SINK,
    KEY_WORKERS,
    KEY_RESUME,
    KEY_FRESH,
    KEY_FROM,
    KEY_DROP_STATE,
    KEY_UNTIL,
    KEY_ORDER,
    KEY_RECORD_ORDER,
    KEY_TAKE_OVER,
    KEY_QUIET,
    KEY_SUPERVISE,
    KEY_SERVE,
    KEY_COMPARE,
    KEY_MOVE,
    KEY_BALANCE,
    KEY_PROGRESS,
    KEY_UI,
    KEY_CONTROL,
    KEY_CONTROL_TOKEN,
    KEY_CONTROL_CERTIFICATE,
    KEY_CONTROL_KEY,
    KEY_LOG,
};

enum { DROPS_MAX = 256 };

struct run_arguments {
    struct job_load load;
    struct run_options options;
    bool is_quiet, is_supervised, is_served;
    bool is_fresh, is_resume;
    struct progress progress;
    const char *drops[DROPS_MAX];
    bool is_unbalanced; /* --balance=no */
    struct run_control_flags control;
    struct api *api; /* NULL: none */
    struct run_cluster_flags cluster;
};

static const struct argp_option options_table[] = {
    {"set", KEY_SET, "NAME=VALUE", 0, "set a `param` of the job", 0},
    {"replay", KEY_REPLAY, "SOURCE=GLOB", OPTION_ARG_OPTIONAL,
     "read SOURCE from recorded files; sinks then only count rows, except those with --sink", 1},
    {"sink", KEY_SINK, "NAME=PATH", 0, "write sink NAME to a file", 1},
    {"workers", KEY_WORKERS, "N", 0, "number of lanes; the result does not depend on it", 2},
    {"balance", KEY_BALANCE, "yes|asked|no", 0,
     "let keys move between lanes, and with --cluster between workers, so that all have about as much work, in jobs with "
     "checkpoints; the result does not depend on it. With asked, of several workers, only when `leat cluster rebalance` or `move` "
     "asks. Without the flag: yes with --cluster, else no, because each lane gets a "
     "database of its own for it",
     2},
    {"resume", KEY_RESUME, NULL, 0, "resume from the newest checkpoint; fail if there is none", 3},
    {"fresh", KEY_FRESH, NULL, 0, "start anew, even if there are checkpoints", 3},
    {"from", KEY_FROM, "DIR", 0,
     "start a new run with the state of the newest checkpoint in DIR: a checkpoint directory, a savepoint, or the URL of "
     "an object store, s3://BUCKET/PREFIX or file:/DIR; DIR@3-17 for a certain checkpoint; or of several workers, by the file of their "
     "head. The job may have changed: state that does not match is listed",
     3},
    {"drop-state", KEY_DROP_STATE, "NAME", 0,
     "with --from: drop the state of this part of the job; may be given several times", 3},
    {"take-over", KEY_TAKE_OVER, NULL, 0,
     "start even if another process uses the checkpoint directory: that process can write nothing more "
     "there, and ends as soon as it notices",
     3},
    {"supervise", KEY_SUPERVISE, NULL, 0, "restart after a crash, from the newest checkpoint", 3},
    {"serve", KEY_SERVE, NULL, 0,
     "answer requests in a process beside the run (`leat serve`), which goes on if the run dies, and ends when "
     "the run ends in order; its messages go to DIR/serve.log, beside the checkpoints, and the live view shows what it does",
     3},
    {"until", KEY_UNTIL, "TIME", 0,
     "checkpoint and stop when all unread rows are at or after this time (event time, or arrival time where "
     "rows are merged by arrival); the batch in progress is finished",
     3},
    {"record-order", KEY_RECORD_ORDER, "PATH", 0,
     "write the order in which the sources' rows are merged to the file PATH, for --order; or into files of "
     "a directory, DIR/, for jobs that run for months",
     4},
    {"order", KEY_ORDER, "PATH", 0,
     "merge the sources' rows in the order of PATH: an order log that --record-order wrote, or a checkpoint "
     "directory, as far back as its order log reaches; the order log of a live job, with recordings of its "
     "topics, gives that job's output and models; `none`: compute the order, even if a recording has an "
     "order log",
     4},
    {"compare", KEY_COMPARE, "cpu", 0,
     "let learners on a GPU learn on the CPU as well, and end at the first step that differs: a logit, a "
     "dense weight or a value of a row, a on the GPU and b on the CPU, with |a - b| > 1e-5 (|b| + root mean "
     "square of its tensor). Slow, and the CPU needs memory for all rows",
     5},
    {"move", KEY_MOVE, "SEED", 0,
     "for tests of leat: let key groups move from lane to lane at checkpoints, and from worker to worker, by chance; the result does not depend on it",
     5},
    {"json", KEY_JSON, NULL, 0,
     "as JSON on stdout: the diagnostics of the job file, or the summary; what goes wrong in the run stays on stderr (as "
     "JSON: --log=json)",
     5},
    {"progress", KEY_PROGRESS, "TIME", 0, PROGRESS_HELP, 5},
    {"quiet", KEY_QUIET, NULL, 0, "no progress", 5},
    {"log", KEY_LOG, "FORM", 0, JOB_LOG_HELP, 5},
    {"ui", KEY_UI, "HOST:PORT", OPTION_ARG_OPTIONAL,
     "a page that shows the run, and the control API behind it: /metrics for Prometheus, /api/v1/figures, "
     "/api/v1/history and more (/api/v1/openapi.json), /healthz, /readyz; `leat ctl` tells it there what to do. "
     "Without HOST:PORT: that of `ui` of the job, or " RUN_CONTROL_ADDRESS "; port 0: any free one",
     6},
    {"control", KEY_CONTROL, "HOST:PORT", 0, "the same as --ui=HOST:PORT", 6},
    {"control-token-file", KEY_CONTROL_TOKEN, "FILE", 0,
     "clients of --ui must send `Authorization: Bearer TOKEN` with the token in this file; needed off loopback",
     6},
    {"control-certificate", KEY_CONTROL_CERTIFICATE, "FILE", 0,
     "TLS with this certificate chain (PEM); needed off loopback", 6},
    {"control-key", KEY_CONTROL_KEY, "FILE", 0, "the certificate's private key (PEM)", 6},
    {"cluster", RUN_CLUSTER_CLUSTER, "URL", 0,
     "be one of several workers that run the job together, each started with the same command on a machine of its own; "
     "they find each other in etcd, at etcd://HOST:PORT,HOST:PORT/NAME. Files, and the job's checkpoint directory, must be seen "
     "by all under the same paths. --from, --drop-state, --until, --order and --record-order must be given alike to all workers that "
     "are there at one time. Ctrl-C: this worker leaves at a checkpoint, and the others go on with that",
     7},
    {"nodes", RUN_CLUSTER_NODES, "LEAST:MOST", 0,
     "with --cluster: how many workers the job may have; it begins with MOST, or with LEAST after --nodes-wait",
     7},
    {"nodes-wait", RUN_CLUSTER_NODES_WAIT, "TIME", 0,
     "with --cluster: how long to wait for MOST workers (default: 30s)", 7},
    {"grow", RUN_CLUSTER_GROW, "auto|asked", 0,
     "with --cluster: a worker that comes later is taken in at a checkpoint by itself (auto, the default), or when `leat cluster "
     "grow` asks for that",
     7},
    {"drain-within", RUN_CLUSTER_DRAIN, "TIME", 0,
     "with --cluster: how long a worker that gets Ctrl-C or SIGTERM waits for a checkpoint at which it leaves (default: 25s)",
     7},
    {"standby", RUN_CLUSTER_STANDBY, NULL, 0,
     "with --cluster: wait, have the newest checkpoint of all workers ready on this machine's disk, and take the place of a worker that "
     "dies, at once. A standby is no worker more: the job neither begins nor grows with it",
     7},
    {"listen", RUN_CLUSTER_LISTEN, "HOST:PORT", 0,
     "with --cluster: where this worker takes the others' connections; HOST is an address of this machine, port 0 any free "
     "one. They are authenticated, and not encrypted: for a private network",
     7},
    {"advertise", RUN_CLUSTER_ADVERTISE, "HOST:PORT", 0,
     "with --cluster: the address under which the others reach this worker (default: that of --listen)", 7},
    {"lease", RUN_CLUSTER_LEASE, "TIME", 0,
     "with --cluster: how long a worker may be silent before the others go on without it (default: 3s)", 7},
    {"etcd-authority", RUN_CLUSTER_ETCD_AUTHORITY, "FILE", 0,
     "with --cluster: TLS to etcd, whose certificates this authority (PEM) has signed", 7},
    {"etcd-certificate", RUN_CLUSTER_ETCD_CERTIFICATE, "FILE", 0,
     "with --cluster: this client's certificate for etcd (PEM)", 7},
    {"etcd-key", RUN_CLUSTER_ETCD_KEY, "FILE", 0, "the certificate's private key (PEM)", 7},
    {"etcd-user", RUN_CLUSTER_ETCD_USER, "NAME", 0,
     "with --cluster: the user of etcd, with --etcd-password-file", 7},
    {"etcd-password-file", RUN_CLUSTER_ETCD_PASSWORD, "FILE", 0, "the user's password: the file's only word",
     7},
    {0},
};

/* The value of an option that takes a number from 1 to `most`. */
static uint64_t parse_number(const char *option, const char *argument, int64_t most, struct argp_state *state)
{
    int64_t number;
    if (!literal_int(str_from(argument), &number) || number < 1 || number > most)
        argp_error(state, "--%s takes a number from 1 to %lld, not `%s`", option, (long long)most, argument);
    return (uint64_t)number;
}

static error_t parse_balance(const char *argument, struct run_arguments *arguments, struct argp_state *state)
{
    arguments->options.moves_when_asked = strcmp(argument, "asked") == 0;
    arguments->options.balances = strcmp(argument, "yes") == 0;
    arguments->is_unbalanced = strcmp(argument, "no") == 0;
    if (!arguments->options.balances && !arguments->options.moves_when_asked && !arguments->is_unbalanced)
        argp_error(state, "--balance takes yes, asked or no, not `%s`", argument);
    return 0;
}

/* --cluster: what several workers cannot do. */
static void check_alone(const struct run_arguments *a, struct argp_state *state)
{
    const struct run_options *o = &a->options;
    const struct {
        bool is_given;
        const char *flag;
    } alone[] = {{a->is_resume, "resume"},
                 {a->is_fresh, "fresh"},
                 {o->take_over, "take-over"},
                 {o->compares, "compare"}};
    if (a->is_served && a->cluster.cluster != NULL)
        argp_error(
            state,
            "--serve is for a run that is alone: requests are answered from one checkpoint directory, and each worker has a "
            "part of the state; `leat model export DIR/cluster/heads/head-...` writes a model of a head");
    if (o->moves_when_asked && a->cluster.cluster == NULL)
        argp_error(state, "--balance=asked is for several workers: give it with --cluster");
    for (size_t i = 0; i < ARRAY_COUNT(alone) && a->cluster.cluster != NULL; i++)
        if (alone[i].is_given)
            argp_error(state, "--%s is for a run that is alone: give it without --cluster", alone[i].flag);
}

/* Arguments that exclude or need each other. */
static void check_together(const struct run_arguments *arguments, struct argp_state *state)
{
    if (arguments->is_fresh && arguments->is_resume)
        argp_error(state, "--fresh starts anew, --resume continues: give only one of them");
    if (arguments->options.from != NULL && (arguments->is_fresh || arguments->is_resume))
        argp_error(state, "--from starts from another run's checkpoint, %s: give only one of them",
                   arguments->is_fresh ? "--fresh from no checkpoint" : "--resume from the job's own");
    if (arguments->options.compares && arguments->is_supervised)
        argp_error(
            state,
            "--compare ends a run where devices differ, --supervise restarts it: give only one of them");
    if (arguments->is_served && (arguments->load.is_replay || arguments->load.replays.count > 0))
        argp_error(state, "--serve answers from the job's own checkpoints, which --replay does not write");
    if ((arguments->control.certificate == NULL) != (arguments->control.key == NULL))
        argp_error(state, "--control-certificate and --control-key go together");
    if (arguments->options.drops_count > 0 && arguments->options.from == NULL)
        argp_error(state, "--drop-state needs --from");
    check_alone(arguments, state);
    run_cluster_check(&arguments->cluster, state);
}

static void set_mode(struct run_arguments *arguments)
{
    struct run_options *options = &arguments->options;
    options->drops = arguments->drops;
    options->wall_ahead_us = os_wall_us() - os_monotonic_us();
    options->may_repeat = arguments->is_fresh || options->from != NULL;
    options->mode = options->from != NULL  ? RUN_FROM
                    : arguments->is_fresh  ? RUN_FRESH
                    : arguments->is_resume ? RUN_RESUME
                                           : RUN_AUTO;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct run_arguments *arguments = state->input;
    switch (key) {
    case KEY_SET:
        if (!job_pair_add(&arguments->load.settings, argument))
            argp_error(state, "--set takes NAME=VALUE, not `%s`", argument);
        return 0;
    case KEY_REPLAY:
        arguments->load.is_replay = true;
        if (argument != NULL && !job_pair_add(&arguments->load.replays, argument))
            argp_error(state, "--replay takes SOURCE=GLOB, not `%s`", argument);
        return 0;
    case KEY_SINK:
        if (!job_pair_add(&arguments->load.sinks, argument))
            argp_error(state, "--sink takes NAME=PATH, not `%s`", argument);
        return 0;
    case KEY_WORKERS:
        arguments->options.lanes = (uint32_t)parse_number("workers", argument, 256, state);
        return 0;
    case KEY_RESUME: arguments->is_resume = true; return 0;
    case KEY_FRESH: arguments->is_fresh = true; return 0;
    case KEY_FROM: arguments->options.from = argument; return 0;
    case KEY_DROP_STATE:
        if (arguments->options.drops_count == DROPS_MAX)
            argp_error(state, "--drop-state can be given at most %d times", DROPS_MAX);
        arguments->drops[arguments->options.drops_count++] = argument;
        return 0;
    case KEY_TAKE_OVER: arguments->options.take_over = true; return 0;
    case KEY_UNTIL:
        if (!civil_parse(str_from(argument), &arguments->options.until_us))
            argp_error(state, "--until takes a time like 2024-05-01T00:00:00Z, not `%s`", argument);
        return 0;
    case KEY_BALANCE: return parse_balance(argument, arguments, state);
    case KEY_MOVE: arguments->options.move_seed = parse_number("move", argument, INT32_MAX, state); return 0;
    case KEY_ORDER: arguments->options.order = argument; return 0;
    case KEY_RECORD_ORDER: arguments->options.record_order = argument; return 0;
    case KEY_JSON: arguments->load.is_json = true; return 0;
    case KEY_SUPERVISE: arguments->is_supervised = true; return 0;
    case KEY_SERVE: arguments->is_served = true; return 0;
    case KEY_COMPARE:
        arguments->options.compares = strcmp(argument, "cpu") == 0;
        if (!arguments->options.compares)
            argp_error(state, "--compare takes `cpu`, not `%s`", argument);
        return 0;
    case KEY_PROGRESS:
        if (!progress_parse(&arguments->progress, argument))
            argp_error(state, PROGRESS_WANTS, argument);
        return 0;
    case KEY_QUIET: arguments->is_quiet = true; return 0;
    case KEY_LOG: job_log_form(argument, state); return 0;
    case KEY_UI:
    case KEY_CONTROL:
        arguments->control.has_ui = true;
        arguments->control.address = argument != NULL ? argument : arguments->control.address;
        return 0;
    case KEY_CONTROL_TOKEN: arguments->control.token = argument; return 0;
    case KEY_CONTROL_CERTIFICATE: arguments->control.certificate = argument; return 0;
    case KEY_CONTROL_KEY: arguments->control.key = argument; return 0;
    case ARGP_KEY_ARG:
        if (arguments->load.path != NULL)
            argp_error(state, "give one job only");
        arguments->load.path = argument;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "which job? For example `leat run jobs/ctr.leat`"); return 0;
    case ARGP_KEY_END: check_together(arguments, state); return 0;
    default: return run_cluster_parse(key, argument, &arguments->cluster, state);
    }
}

static volatile sig_atomic_t interrupts;
static volatile sig_atomic_t has_begun;

static void on_signal(int number)
{
    static const char starting[] = "leat: stopping before the run has begun; a second Ctrl-C stops at once\n";
    (void)number;
    if (++interrupts >= 2)
        _exit(EXIT_INTERRUPTED);
    if (!has_begun)
        log_last(LOG_LEVEL_INFO, STR(starting));
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* Shows the run until it ends. Looks at it every 40 ms, which is smooth for the eye and costs nothing. */
static void watch(struct run *run, struct run_life *life, struct api *api)
{
    bool is_stopping = false;
    while (!run_has_ended(run)) {
        struct timespec rest = {0, 40 * 1000 * 1000};
        nanosleep(&rest, NULL);
        enum api_want want = api == NULL ? API_WANTS_NOTHING : api_wants(api);
        if ((interrupts > 0 || want == API_WANTS_STOP) && !is_stopping) {
            is_stopping = true;
            run_life_say(life, interrupts > 0
                                   ? "stopping after a checkpoint; a second Ctrl-C stops at once"
                                   : "stopping after a checkpoint, as the control API was asked to");
            run_stop(run);
        }
        if (want == API_WANTS_CHECKPOINT)
            run_checkpoint(run);
        run_life_look(life);
    }
}

/* Reports that --compare found no difference. A difference fails the run and is in the diagnostics. */
static void tell_compared(const struct run_stats *stats, bool is_good)
{
    bool has_any = false;
    for (uint32_t i = 0; i < stats->nodes_count && is_good; i++) {
        const struct run_node_stats *node = &stats->nodes[i];
        const struct report_item *steps = report_find(&node->report, LEARNER_COMPARED);
        if (steps == NULL)
            continue;
        has_any = true;
        log_say(LOG_LEVEL_INFO, "%.*s: no difference to the CPU in %.0f steps", STR_ARGS(node->node->name),
                steps->value);
    }
    if (is_good && !has_any)
        log_say(LOG_LEVEL_INFO, "--compare: the job has no learner");
}

/* Claims the files that command-line options read and write, in addition to those of the job. */
static void claim_options(const struct run_arguments *arguments)
{
    const struct run_options *options = &arguments->options;
    struct claims *claims = arguments->load.plan->claims;
    struct arena *arena = arguments->load.plan->arena;
    const struct span nowhere = {0};
    if (options->order != NULL && strcmp(options->order, "none") != 0)
        claims_add_input(claims, str_from(options->order), "--order", nowhere);
    if (options->from != NULL && !objects_is_url(str_from(options->from))) {
        struct checkpoint_id id;
        struct str from = {options->from, checkpoint_name_split(options->from, &id)};
        claims_add_input(claims, from, "--from", nowhere);
    }
    if (options->record_order == NULL)
        return;
    static const char *const below[] = {"/RUN", "/RUN.tmp",
                                        "/[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]-[0-9]*"};
    const char *path = options->record_order, *glob = claims_literal(arena, str_from(path));
    if (!order_is_directory(path))
        claims_add(claims, CLAIM_WRITES, glob, path, "--record-order", nowhere);
    for (size_t i = 0; i < ARRAY_COUNT(below) && order_is_directory(path); i++)
        claims_add(claims, CLAIM_WRITES, arena_printf(arena, "%s%s", glob, below[i]), path, "--record-order",
                   nowhere);
}

static int run_job(struct run_arguments *arguments)
{
    struct job_load *load = &arguments->load;
    claim_options(arguments);
    if (!claims_check(load->plan->claims, &load->diags))
        return EXIT_FAILED;
    if (!run_control_start(&arguments->control, load, &arguments->api, &load->diags))
        return EXIT_FAILED;
    arguments->options.looks_at_columns = arguments->api != NULL;
    struct run *run = run_new(load->plan, &arguments->options, &load->diags);
    if (run == NULL && interrupts > 0)
        return EXIT_INTERRUPTED;
    if (run == NULL)
        return diag_has_code(&load->diags, DIAG_TAKEN_OVER) ? EXIT_FENCED : EXIT_FAILED;
    struct run_life_options life_options = {.load = load,
                                            .api = arguments->api,
                                            .is_served = arguments->is_served,
                                            .is_quiet = arguments->is_quiet,
                                            .progress = arguments->progress};
    struct run_life *life = run_life_begin(&life_options, run);
    bool is_good = run_start(run);
    has_begun = 1;
    if (is_good)
        watch(run, life, arguments->api);
    is_good = run_life_wait(life, is_good);
    arguments->api = NULL;
    if (arguments->options.compares)
        tell_compared(run_life_stats(life), is_good);
    run_life_summarize(life, is_good);
    run_life_free(life);
    run_free(run);
    return is_good ? EXIT_GOOD : diag_has_code(&load->diags, DIAG_TAKEN_OVER) ? EXIT_FENCED : EXIT_FAILED;
}

static int run_worker(struct run_arguments *arguments)
{
    const struct run_cluster_options options = {.flags = &arguments->cluster,
                                                .load = &arguments->load,
                                                .run = &arguments->options,
                                                .control = &arguments->control,
                                                .is_quiet = arguments->is_quiet,
                                                .progress = arguments->progress,
                                                .has_begun = &has_begun};
    arguments->options.balances = !arguments->is_unbalanced;
    claim_options(arguments);
    return claims_check(arguments->load.plan->claims, &arguments->load.diags) ? run_cluster(&options)
                                                                              : EXIT_FAILED;
}

/* Ends the control API that run_job has begun, and left when it failed early. */
static int run_told(struct run_arguments *arguments)
{
    int status = run_job(arguments);
    api_stop(arguments->api);
    return status;
}

/* With --serve, a process answers requests beside the run. A run that failed leaves it, for the one that goes on. */
static int run_served(struct run_arguments *arguments)
{
    struct job_load *load = &arguments->load;
    bool is_new = false;
    if (!arguments->is_served)
        return run_told(arguments);
    if (!serve_beside_start(load, arguments->options.take_over, &is_new, &load->diags))
        return EXIT_FAILED;
    int status = run_told(arguments);
    if (status == EXIT_GOOD || (is_new && !has_begun))
        serve_beside_stop(load);
    else
        log_say(LOG_LEVEL_INFO,
                "scores are still served; `leat run --serve` goes on with them, and ends them");
    return status;
}

int cmd_run(int argc, char **argv)
{
    static const struct argp argp = {
        options_table,
        parse,
        "JOB",
        "Runs a job.\vCtrl-C once: checkpoint and stop; twice: stop at once. A job with a checkpoint "
        "directory resumes from its newest checkpoint. A job that has changed continues with --from and its "
        "own directory, or a savepoint (`leat checkpoint save`).\n\n"
        "Status: 0 the run finished, or stopped cleanly; 1 the run failed; 2 a flag or argument is wrong; 3 "
        "the job file is wrong; 4 another process has taken over the checkpoint directory (nothing is lost; "
        "--supervise does not restart the run); 71 the system refused memory or a thread; 130 stopped by a "
        "second Ctrl-C, or by a first one before the run had begun.",
        0,
        0,
        0};
    struct run_arguments arguments = {
        .options = {.until_us = TIME_MAX, .stop = &interrupts},
        .cluster = {.wait_us = RUN_CLUSTER_WAIT_US, .drain_us = RUN_CLUSTER_DRAIN_US}};
    argv = job_join_values(&argc, argv);
    argp_command(&argp, argc, argv, &arguments);
    set_mode(&arguments);
    if (arguments.is_supervised) {
        bool is_restart;
        int ended = supervise(&is_restart, &arguments.options.had_begun);
        if (ended >= 0)
            return ended;
        /* With --fresh only the first life starts anew; later lives resume from its checkpoints. */
        arguments.options.is_restart = is_restart;
        arguments.options.has_begun = supervise_begun;
        if (is_restart && arguments.options.mode != RUN_FROM)
            arguments.options.mode = RUN_AUTO;
        if (is_restart) /* another process that has the lock now has taken over from the earlier life */
            arguments.options.take_over = false;
    }
    catch_signals();
    int status = EXIT_BAD_JOB;
    bool is_good = job_load(&arguments.load);
    if (is_good)
        log_set_job(arguments.load.plan->name);
    else
        job_print_diags(&arguments.load);
    if (is_good) {
        status = arguments.cluster.cluster != NULL ? run_worker(&arguments) : run_served(&arguments);
        if (arguments.load.diags.count > 0 && status != EXIT_INTERRUPTED) {
            arguments.load.is_json = false; /* stdout has the summary */
            job_print_diags(&arguments.load);
        }
    }
    job_free(&arguments.load);
    return status;
}
