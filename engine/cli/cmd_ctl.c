/* leat ctl checkpoint|stop JOB: tells a run that has a control API what to do, and waits until it is done. */
#include "cli/argp.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "control/api_key.h"
#include "control/summary.h"
#include "core/os.h"
#include "net/fetch.h"

#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum { KEY_SET = 256, KEY_AUTHORITY, KEY_NO_WAIT, STALL_S = 10, BODY_MAX = 64 << 20, LOOK_MS = 100 };

enum task { TASK_NONE, TASK_CHECKPOINT, TASK_STOP };

struct ctl_arguments {
    struct job_load load;
    enum task task;
    const char *authority;
    bool waits_not;
};

static const struct argp_option options_table[] = {
    {"set", KEY_SET, "NAME=VALUE", 0, "as given to the run", 0},
    {"authority", KEY_AUTHORITY, "FILE", 0,
     "the run's certificate must be signed by this one (PEM; default: it is the run's own certificate)", 0},
    {"no-wait", KEY_NO_WAIT, NULL, 0, "do not wait until it is done", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct ctl_arguments *a = state->input;
    switch (key) {
    case KEY_SET:
        if (!job_pair_add(&a->load.settings, argument))
            argp_error(state, "--set takes NAME=VALUE, not `%s`", argument);
        return 0;
    case KEY_AUTHORITY: a->authority = argument; return 0;
    case KEY_NO_WAIT: a->waits_not = true; return 0;
    case ARGP_KEY_ARG:
        if (a->task == TASK_NONE && strcmp(argument, "checkpoint") == 0)
            a->task = TASK_CHECKPOINT;
        else if (a->task == TASK_NONE && strcmp(argument, "stop") == 0)
            a->task = TASK_STOP;
        else if (a->task == TASK_NONE)
            argp_error(state, "a run can be told `checkpoint` or `stop`, not `%s`", argument);
        else if (a->load.path == NULL)
            a->load.path = argument;
        else
            argp_error(state, "give one job only");
        return 0;
    case ARGP_KEY_END:
        if (a->load.path == NULL)
            argp_error(state, "tell which job what to do, for example `leat ctl stop jobs/ctr.leat`");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static volatile sig_atomic_t has_interrupt;

static void on_interrupt(int number LEAT_UNUSED)
{
    has_interrupt = 1;
}

static void rest(void)
{
    struct timespec time = {0, LOOK_MS * 1000000L};
    nanosleep(&time, NULL);
}

/* The epoch of the newest checkpoint that the run has published; -1: no answer. */
static int64_t newest_epoch(struct fetch *fetch, struct byte_buffer *body)
{
    if (fetch_get(fetch, "/api/v1/figures", STALL_S, BODY_MAX, body) != 200)
        return -1;
    json_t *figures = json_loadb(body->data, body->length, 0, NULL);
    const json_t *epoch = json_object_get(figures, "checkpoint_epoch");
    int64_t found = json_is_integer(epoch) ? (int64_t)json_integer_value(epoch) : -1;
    json_decref(figures);
    return found;
}

/* Waits until the run has published a checkpoint after `before`. False: it has ended, or Ctrl-C. */
static bool wait_for_checkpoint(struct fetch *fetch, int64_t before, struct byte_buffer *body)
{
    int64_t now = before;
    while (now >= 0 && now <= before && !has_interrupt) {
        rest();
        now = newest_epoch(fetch, body);
    }
    if (now > before)
        printf("checkpoint %" PRId64 " is written\n", now);
    return now > before;
}

static void wait_for_end(struct fetch *fetch, struct byte_buffer *body)
{
    int64_t begun_us = os_monotonic_us();
    char time[32];
    while (!has_interrupt && fetch_get(fetch, "/healthz", STALL_S, BODY_MAX, body) != 0)
        rest();
    if (!has_interrupt)
        printf("the run has stopped, after %s\n", format_duration(os_monotonic_us() - begun_us, time));
}

static bool tell(const struct ctl_arguments *a, struct fetch *fetch, struct diag_list *diags)
{
    struct byte_buffer body = {0};
    bool is_stop = a->task == TASK_STOP, is_good = true;
    int64_t before = is_stop ? 0 : newest_epoch(fetch, &body);
    int status = fetch_post(fetch, is_stop ? "/api/v1/stop" : "/api/v1/checkpoint", STALL_S, BODY_MAX, &body);
    if (status == 0) {
        struct diag *d = diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "the run does not answer: %s",
                                    fetch_why(fetch));
        diag_hint(diags, d, "if it was killed, there is nothing to stop: run the job again, and it goes on");
    } else if (status != 202) {
        while (body.length > 0 && (unsigned char)body.data[body.length - 1] <= ' ')
            body.length--;
        diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "the run refuses (%d): %.*s", status,
                   (int)MIN(body.length, (size_t)400), body.data);
    }
    is_good = status == 202;
    if (is_good && a->waits_not)
        printf("%.*s", (int)body.length, body.data);
    else if (is_good && is_stop)
        wait_for_end(fetch, &body);
    else if (is_good && !wait_for_checkpoint(fetch, before, &body) && !has_interrupt) {
        diag_error(diags, DIAG_NO_COMMAND, (struct span){0},
                   "the run ended before the checkpoint was written");
        is_good = false;
    }
    buffer_free(&body);
    return is_good;
}

static bool run_ctl(struct ctl_arguments *a)
{
    struct job_load *load = &a->load;
    struct str directory = load->plan->config.checkpoint.directory;
    struct api_key key = {0};
    if (directory.length == 0) {
        struct diag *d = diag_error(&load->diags, DIAG_NO_COMMAND, (struct span){0},
                                    "the job has no `checkpoint`, beside which a run says where it is");
        diag_hint(&load->diags, d, "a run without checkpoints is stopped with Ctrl-C");
        return false;
    }
    if (!api_key_read(directory, &key, &load->diags))
        return false;
    struct fetch_options options = {.address = str_from(key.address),
                                    .authority = a->authority != NULL ? a->authority : key.certificate,
                                    .token = key.token};
    struct fetch *fetch = fetch_new(&options, &load->diags);
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    bool is_good = fetch != NULL && tell(a, fetch, &load->diags);
    fetch_free(fetch);
    api_key_free(&key);
    return is_good;
}

int cmd_ctl(int argc, char **argv)
{
    static const struct argp argp = {
        options_table,
        parse,
        "checkpoint|stop JOB",
        "Tells a run of the job what to do: take a checkpoint now, or take a last one and stop.\vThe run must have been "
        "started with --control, on this machine or where its checkpoint directory is shared; the file CONTROL there says "
        "where it listens, and has the token, so that only who may read that file can tell it anything. Waits until it is "
        "done; Ctrl-C ends the waiting alone. `leat checkpoint save` copies the newest checkpoint to a savepoint.",
        0,
        0,
        0};
    struct ctl_arguments arguments = {0};
    argp_command(&argp, argc, argv, &arguments);
    int status = EXIT_BAD_JOB;
    if (job_load(&arguments.load))
        status = !run_ctl(&arguments) ? EXIT_FAILED : has_interrupt ? EXIT_INTERRUPTED : EXIT_GOOD;
    job_print_diags(&arguments.load);
    job_free(&arguments.load);
    return status;
}
