/* leat ctl checkpoint|savepoint|stop JOB: tells a run that has a control API what to do, and waits until it is done. */
#include "cli/argp.h"
#include "cli/commands.h"
#include "cli/control_at.h"
#include "control/picture.h"
#include "control/summary.h"
#include "core/mem.h"
#include "core/os.h"
#include "run/run.h"

#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum {
    KEY_SET = 256,
    KEY_AUTHORITY,
    KEY_TOKEN_FILE,
    KEY_NO_WAIT,
    STALL_S = 10,
    COPY_STALL_S = 24 * 3600, /* a savepoint is answered when all of it is written */
    BODY_MAX = 64 << 20,
    LOOK_MS = 100
};

enum task { TASK_NONE, TASK_CHECKPOINT, TASK_SAVEPOINT, TASK_STOP };

struct ctl_arguments {
    struct control_at at;
    enum task task;
    const char *name; /* of the savepoint; NULL: the checkpoint's */
    bool waits_not;
};

static const struct argp_option options_table[] = {
    {"set", KEY_SET, "NAME=VALUE", 0, "with JOB: as given to the run", 0},
    {"authority", KEY_AUTHORITY, "FILE", 0, CONTROL_AT_AUTHORITY_HELP, 0},
    {"token-file", KEY_TOKEN_FILE, "FILE", 0, CONTROL_AT_TOKEN_HELP ": the third line of the file CONTROL",
     0},
    {"no-wait", KEY_NO_WAIT, NULL, 0, "do not wait until the checkpoint is written, or the run has stopped",
     0},
    {0},
};

static void parse_word(struct ctl_arguments *a, const char *argument, struct argp_state *state)
{
    static const char *const tasks[] = {
        [TASK_CHECKPOINT] = "checkpoint", [TASK_SAVEPOINT] = "savepoint", [TASK_STOP] = "stop"};
    if (a->task == TASK_NONE) {
        for (size_t i = TASK_CHECKPOINT; i < ARRAY_COUNT(tasks); i++)
            if (strcmp(argument, tasks[i]) == 0)
                a->task = (enum task)i;
        if (a->task == TASK_NONE)
            argp_error(state, "a run can be told `checkpoint`, `savepoint` or `stop`, not `%s`", argument);
    } else if (a->at.word == NULL)
        a->at.word = argument;
    else if (a->task != TASK_SAVEPOINT || a->name != NULL)
        argp_error(state, "give one job only");
    else if (!run_savepoint_name_is_good(str_from(argument)))
        argp_error(state, "a savepoint's name is 1 to %d of a-z, 0-9, `_` and `-`, not `%s`",
                   RUN_SAVEPOINT_NAME_MAX, argument);
    else
        a->name = argument;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct ctl_arguments *a = state->input;
    switch (key) {
    case KEY_SET:
        if (!job_pair_add(&a->at.load.settings, argument))
            argp_error(state, "--set takes NAME=VALUE, not `%s`", argument);
        return 0;
    case KEY_AUTHORITY: a->at.authority = argument; return 0;
    case KEY_TOKEN_FILE: a->at.token_file = argument; return 0;
    case KEY_NO_WAIT: a->waits_not = true; return 0;
    case ARGP_KEY_ARG: parse_word(a, argument, state); return 0;
    case ARGP_KEY_END:
        if (a->waits_not && a->task == TASK_SAVEPOINT)
            argp_error(state,
                       "--no-wait goes with checkpoint and stop: a savepoint is answered when it is written");
        if (a->at.word == NULL)
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

/* Says why the run does not do what it is told; false. */
static bool refused(const struct ctl_arguments *a, struct fetch *fetch, int status, struct byte_buffer *body,
                    struct diag_list *diags)
{
    if (status == 0) {
        struct diag *d = diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "the run does not answer: %s",
                                    fetch_why(fetch));
        diag_hint(diags, d, "if it was killed, there is nothing to stop: run the job again, and it goes on");
    } else if (status == 401 && a->at.is_url) {
        struct diag *d = diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "the run refuses (401): %s",
                                    a->at.token_file == NULL ? "it wants a token"
                                                             : "--token-file has another token than the run");
        diag_hint(
            diags, d,
            "name the run by its job or its checkpoint directory: the file CONTROL there has the token; or give "
            "--token-file with a file that has the third line of CONTROL alone");
    } else if (control_at_is_other(status)) {
        struct diag *d = diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, CONTROL_AT_OTHER, status);
        diag_hint(
            diags, d,
            "a run is told at the address that it was started with: `leat run JOB --control HOST:PORT`");
    } else {
        while (body->length > 0 && (unsigned char)body->data[body->length - 1] <= ' ')
            body->length--;
        diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "the run refuses (%d): %.*s", status,
                   (int)MIN(body->length, (size_t)1000), body->data);
    }
    return false;
}

/* Prints a line that has texts of the answer, none of which may act on the terminal. */
static void print_line(struct byte_buffer *line)
{
    while (line->length > 0 && (unsigned char)line->data[line->length - 1] <= ' ')
        line->length--;
    picture_clean(line, 0);
    printf("%.*s\n", (int)line->length, line->data);
}

/* Prints what the answer says of the savepoint. False after a diagnostic: what answers is no run. */
static bool print_saved(const struct byte_buffer *body, struct diag_list *diags)
{
    struct byte_buffer line = {0};
    char bytes[32];
    json_t *json = json_loadb(body->data, body->length, 0, NULL);
    const char *path = json_string_value(json_object_get(json, "savepoint")),
               *id = json_string_value(json_object_get(json, "checkpoint"));
    const json_t *count = json_object_get(json, "bytes");
    bool is_good = path != NULL && id != NULL && json_is_integer(count) && json_integer_value(count) >= 0;
    if (is_good) {
        buffer_printf(&line, "savepoint %s: checkpoint %s, %s, every byte checked", path, id,
                      format_bytes((double)json_integer_value(count), bytes));
        print_line(&line);
    } else {
        struct diag *d =
            diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "what answers is no run of this leat");
        diag_cause(diags, d, "an object with `savepoint`, `checkpoint` and `bytes` is expected");
        diag_hint(diags, d,
                  "see whether there is a savepoint in the folder `savepoints` of the run's checkpoints");
    }
    json_decref(json);
    buffer_free(&line);
    return is_good;
}

static bool tell_to_save(const struct ctl_arguments *a, struct fetch *fetch, struct diag_list *diags)
{
    struct byte_buffer body = {0};
    char *target =
        mem_printf("/api/v1/savepoint%s%s", a->name == NULL ? "" : "?name=", a->name == NULL ? "" : a->name);
    int status = fetch_post(fetch, target, COPY_STALL_S, BODY_MAX, &body);
    bool is_good = status == 200 ? print_saved(&body, diags) : refused(a, fetch, status, &body, diags);
    free(target);
    buffer_free(&body);
    return is_good;
}

static bool tell(const struct ctl_arguments *a, struct fetch *fetch, struct diag_list *diags)
{
    struct byte_buffer body = {0};
    bool is_stop = a->task == TASK_STOP;
    int64_t before = is_stop ? 0 : newest_epoch(fetch, &body);
    int status = fetch_post(fetch, is_stop ? "/api/v1/stop" : "/api/v1/checkpoint", STALL_S, BODY_MAX, &body);
    bool is_good = status == 202 || refused(a, fetch, status, &body, diags);
    if (is_good && a->waits_not)
        print_line(&body);
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
    struct diag_list *diags = &a->at.load.diags;
    struct fetch *fetch = control_at_connect(&a->at, diags);
    bool is_good = false;
    if (fetch != NULL &&
        a->task == TASK_SAVEPOINT) /* Ctrl-C ends this process; the savepoint is still written */
        is_good = tell_to_save(a, fetch, diags);
    else if (fetch != NULL) {
        struct sigaction action = {.sa_handler = on_interrupt};
        sigaction(SIGINT, &action, NULL);
        is_good = tell(a, fetch, diags);
    }
    fetch_free(fetch);
    return is_good;
}

int cmd_ctl(int argc, char **argv)
{
    static const struct argp argp = {
        options_table,
        parse,
        "checkpoint JOB|DIR|URL\nsavepoint JOB|DIR|URL [NAME]\nstop JOB|DIR|URL",
        "Tells a run of the job what to do: take a checkpoint now; take one and copy it to a savepoint; or take a last one "
        "and stop.\vThe run must have been started with --control, on this machine or where its checkpoint directory is "
        "shared; the file CONTROL there says where it listens, and has the token, so that only who may read that file can "
        "tell it anything. Waits until it is done; Ctrl-C ends the waiting alone.\n\n"
        "A savepoint lies in the folder `savepoints` of the checkpoint directory DIR, by its NAME or that of its checkpoint, "
        "until it is removed by hand; `leat run JOB --from DIR/savepoints/NAME` starts a new run from it. "
        "`leat checkpoint save` copies a checkpoint to any place.",
        0,
        0,
        0};
    struct ctl_arguments arguments = {0};
    argp_command(&argp, argc, argv, &arguments);
    int status = EXIT_BAD_JOB;
    bool is_bad_job;
    if (control_at_find(&arguments.at, &is_bad_job))
        status = !run_ctl(&arguments) ? EXIT_FAILED : has_interrupt ? EXIT_INTERRUPTED : EXIT_GOOD;
    else if (!is_bad_job)
        status = EXIT_FAILED;
    job_print_diags(&arguments.at.load);
    control_at_free(&arguments.at);
    return status;
}
