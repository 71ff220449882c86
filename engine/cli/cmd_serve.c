/* leat serve JOB...: answers requests over HTTP and gRPC, from the newest checkpoints. */
#include "cli/argp.h"
#include "cli/checkpoint_job.h"
#include "cli/commands.h"
#include "cli/job.h"

#include "core/mem.h"
#include "core/os.h"
#include "serve/server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    KEY_SET = 256,
    KEY_LISTEN,
    KEY_CHECKPOINT,
    KEY_CERTIFICATE,
    KEY_KEY,
    KEY_CLIENTS,
    KEY_TOKEN,
    KEY_LOOK,
    KEY_SLOW,
    KEY_QUIET,
    TOKEN_BYTES_MAX = 4096,
    LOOK_MS_MIN = 10,
    MS_MAX = 3600 * 1000,
};
#define MEMORY_BYTES (UINT64_C(256) << 20)

struct serve_arguments {
    struct job_load jobs[SERVE_JOBS_MAX];
    uint32_t jobs_count;
    struct job_pairs settings;
    const char *listen, *checkpoint, *certificate, *key, *clients, *token_file;
    uint32_t look_every_ms, slow_ms;
    bool is_quiet;
    char *token;
};

static const struct argp_option options_table[] = {
    {"set", KEY_SET, "NAME=VALUE", 0, "as given to the run", 0},
    {"listen", KEY_LISTEN, "HOST:PORT", 0, "instead of the addresses of the jobs; port 0: any free one", 0},
    {"checkpoint", KEY_CHECKPOINT, "NAME", 0,
     "stay with this checkpoint, as `leat checkpoint list` prints its name (default: follow the newest)", 0},
    {"look-every", KEY_LOOK, "MS", 0, "milliseconds between looks for a newer checkpoint (default: 500)", 0},
    {"slow", KEY_SLOW, "MS", 0,
     "requests that take longer are printed, with the time of each phase; 0: none (default: 1000)", 0},
    {"quiet", KEY_QUIET, NULL, 0, "take newer checkpoints without a word", 0},
    {"certificate", KEY_CERTIFICATE, "FILE", 0, "TLS with this certificate chain (PEM); needs --key", 0},
    {"key", KEY_KEY, "FILE", 0, "the certificate's private key (PEM)", 0},
    {"clients", KEY_CLIENTS, "FILE", 0, "clients need a certificate that one of these signed (PEM)", 0},
    {"token-file", KEY_TOKEN, "FILE", 0,
     "clients must send `Authorization: Bearer TOKEN` with the token in this file", 0},
    {0},
};

static uint32_t milliseconds(struct argp_state *state, const char *name, const char *text, long least)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || end == text || value < least || value > MS_MAX)
        argp_error(state, "%s takes milliseconds, from %ld to an hour, not `%s`", name, least, text);
    return (uint32_t)value;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct serve_arguments *a = state->input;
    switch (key) {
    case KEY_SET:
        if (!job_pair_add(&a->settings, argument))
            argp_error(state, "--set takes NAME=VALUE, not `%s`", argument);
        return 0;
    case KEY_LISTEN: a->listen = argument; return 0;
    case KEY_CHECKPOINT: a->checkpoint = argument; return 0;
    case KEY_CERTIFICATE: a->certificate = argument; return 0;
    case KEY_KEY: a->key = argument; return 0;
    case KEY_CLIENTS: a->clients = argument; return 0;
    case KEY_TOKEN: a->token_file = argument; return 0;
    case KEY_LOOK: a->look_every_ms = milliseconds(state, "--look-every", argument, LOOK_MS_MIN); return 0;
    case KEY_QUIET: a->is_quiet = true; return 0;
    case KEY_SLOW: a->slow_ms = milliseconds(state, "--slow", argument, 0); return 0;
    case ARGP_KEY_ARG:
        if (a->jobs_count == SERVE_JOBS_MAX)
            argp_error(state, "at most %d jobs", SERVE_JOBS_MAX);
        a->jobs[a->jobs_count++].path = argument;
        return 0;
    case ARGP_KEY_END:
        if (a->jobs_count == 0)
            argp_error(state, "give a job, for example `leat serve jobs/ctr.leat`");
        if (a->checkpoint != NULL && a->jobs_count > 1)
            argp_error(state, "--checkpoint goes with one job");
        if ((a->certificate == NULL) != (a->key == NULL) || (a->clients != NULL && a->certificate == NULL))
            argp_error(state, "--certificate and --key go together, and --clients needs both");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* The file's first line, without white space around it. */
static bool read_token(struct serve_arguments *a, struct diag_list *diags)
{
    size_t bytes;
    if (a->token_file == NULL)
        return true;
    int error = os_read_file(a->token_file, TOKEN_BYTES_MAX, &a->token, &bytes);
    if (error != 0) {
        diag_errno(diags,
                   diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "--token-file: `%s` cannot be read",
                              a->token_file),
                   error);
        return false;
    }
    while (bytes > 0 && (unsigned char)a->token[bytes - 1] <= ' ')
        bytes--;
    a->token[bytes] = '\0';
    for (size_t i = 0; i < bytes; i++)
        if (a->token[i] <= ' ' || a->token[i] > '~')
            bytes = 0;
    if (bytes > 0)
        return true;
    struct diag *d = diag_error(diags, DIAG_NO_COMMAND, (struct span){0},
                                "--token-file: `%s` holds no token, or several words", a->token_file);
    diag_hint(diags, d, "a token is one word of printable ASCII; make one with `openssl rand -hex 32`");
    return false;
}

static void say(void *user LEAT_UNUSED, const char *line)
{
    fprintf(stderr, "%s\n", line);
}

static struct server *running;

static void on_signal(int number LEAT_UNUSED)
{
    server_stop(running);
}

static bool add_job(struct serve_arguments *a, struct server *server, struct job_load *load)
{
    struct plan *plan = load->plan;
    struct str directory = plan->config.checkpoint.directory;
    struct checkpoint_id id = {0};
    if (plan->serves_count == 0) {
        struct diag *d = diag_error(&load->diags, DIAG_NO_COMMAND, (struct span){0},
                                    "the job `%s` serves nothing", load->path);
        diag_hint(&load->diags, d,
                  "add `serve NAME { from: MODEL.predictions, request: SOURCE }` to the job");
        return false;
    }
    const char *path = arena_strndup(&load->arena, directory.data, directory.length);
    if (a->checkpoint != NULL && !checkpoint_named(a->checkpoint, path, &id, &load->diags))
        return false;
    return server_add(server, plan, path, id, &load->diags);
}

/* Diagnostics that belong to no job go to those of the last one. */
static bool serve(struct serve_arguments *a)
{
    struct diag_list *diags = &a->jobs[a->jobs_count - 1].diags;
    struct server_options options = {
        .listen = net_listen_defaults(a->listen == NULL ? (struct str){"", 0} : str_from(a->listen)),
        .look_every_ms = a->look_every_ms,
        .memory_bytes = MEMORY_BYTES,
        .is_quiet = a->is_quiet,
        .slow_us = (int64_t)a->slow_ms * 1000,
        .say = say};
    if (!read_token(a, diags))
        return false;
    options.listen.certificate = a->certificate;
    options.listen.key = a->key;
    options.listen.client_authority = a->clients;
    options.listen.token = a->token;
    struct server *server = server_new(&options);
    bool is_good = true;
    for (uint32_t i = 0; i < a->jobs_count && is_good; i++)
        is_good = add_job(a, server, &a->jobs[i]);
    if (is_good && server_listen(server, diags)) {
        running = server;
        struct sigaction action = {.sa_handler = on_signal};
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        is_good = server_run(server);
        action.sa_handler = SIG_IGN;
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
    } else {
        is_good = false;
    }
    server_free(server);
    return is_good;
}

int cmd_serve(int argc, char **argv)
{
    static const struct argp argp = {
        options_table,
        parse,
        "JOB...",
        "Answers requests over HTTP and gRPC with the features and the models of the jobs' newest "
        "checkpoints.\vEach `serve` of a job is a model of the Open Inference Protocol v2: POST "
        "/v2/models/NAME/infer with a tensor for each column. `leat explain --serve JOB` shows the columns, GET "
        "/openapi.json describes all calls, and GET /metrics has the figures. A newer checkpoint is opened "
        "beside the one that answers, and takes its place between two batches. A job that runs on this machine is "
        "followed between its checkpoints: scores have what it learned within some hundredths of a second. "
        "Ctrl-C answers what has been asked, and ends.",
        0,
        0,
        0};
    struct serve_arguments *a = mem_calloc(1, sizeof(*a));
    a->look_every_ms = 500;
    a->slow_ms = 1000;
    argp_command(&argp, argc, argv, a);
    int status = EXIT_GOOD;
    for (uint32_t i = 0; i < a->jobs_count && status == EXIT_GOOD; i++) {
        a->jobs[i].settings = a->settings;
        if (!job_load(&a->jobs[i]))
            status = EXIT_BAD_JOB;
    }
    if (status == EXIT_GOOD && !serve(a))
        status = EXIT_FAILED;
    for (uint32_t i = 0; i < a->jobs_count; i++) {
        job_print_diags(&a->jobs[i]);
        job_free(&a->jobs[i]);
    }
    free(a->token);
    free(a);
    return status;
}
