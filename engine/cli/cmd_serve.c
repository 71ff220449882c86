/* leat serve JOB...: answers requests over HTTP and gRPC, from the newest checkpoints. */
#include "cli/argp.h"
#include "cli/checkpoint_job.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "cli/serve_figures.h"
#include "cli/serve_view.h"
#include "cli/token.h"

#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"
#include "serve/link.h"
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
    KEY_CONTROL,
    KEY_CONTROL_TOKEN,
    KEY_UNLOADED,
    KEY_LOOK,
    KEY_SLOW,
    KEY_QUIET,
    KEY_LOG,
    KEY_FIGURES,
    KEY_LINK,
    KEY_LINK_DIRECTORY,
    KEY_LINK_AUTHORITY,
    KEY_LINK_CERTIFICATE,
    KEY_LINK_KEY,
    KEY_LINK_LISTEN,
    LOOK_MS_MIN = 10,
    MS_MAX = 3600 * 1000,
};
#define MEMORY_BYTES (UINT64_C(256) << 20)

struct serve_arguments {
    struct job_load jobs[SERVE_JOBS_MAX];
    uint32_t jobs_count;
    struct job_pairs settings;
    const char *listen, *checkpoint, *certificate, *key, *clients, *token_file, *control, *control_token_file;
    const char *link, *link_directory, *link_authority, *link_certificate, *link_key, *link_listen;
    struct link_job links[SERVE_JOBS_MAX]; /* of each job: what is offered, and mirrored with --link */
    struct link_mirror *mirrors[SERVE_JOBS_MAX];
    struct link_offer *offer; /* NULL: without --link-listen */
    struct serve_view *view;  /* NULL: standard error is no terminal, or --quiet */
    const char *figures_path;
    struct serve_figures *figures; /* NULL: without --figures */
    uint32_t look_every_ms, slow_ms;
    bool is_quiet, is_unloaded;
    char *token, *control_token;
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
    {"log", KEY_LOG, "FORM", 0, JOB_LOG_HELP, 0},
    {"figures", KEY_FIGURES, "FILE", 0,
     "write what each model does to FILE, anew each second; `leat run --serve` shows it in the run's live view",
     0},
    {"certificate", KEY_CERTIFICATE, "FILE", 0, "TLS with this certificate chain (PEM); needs --key", 0},
    {"key", KEY_KEY, "FILE", 0, "the certificate's private key (PEM)", 0},
    {"clients", KEY_CLIENTS, "FILE", 0, "clients need a certificate that one of these signed (PEM)", 0},
    {"token-file", KEY_TOKEN, "FILE", 0,
     "clients must send `Authorization: Bearer TOKEN` with the token in this file", 0},
    {"control", KEY_CONTROL, "HOST:PORT", 0,
     "where models are loaded and unloaded while the server answers; with the same rules off loopback", 0},
    {"control-token-file", KEY_CONTROL_TOKEN, "FILE", 0,
     "the token of the clients of --control (default: that of --token-file)", 0},
    {"unloaded", KEY_UNLOADED, NULL, 0, "begin with no model loaded; needs --control", 0},
    {NULL, 0, NULL, 0, "Serving on another machine than the job's:", 1},
    {"link-listen", KEY_LINK_LISTEN, "HOST:PORT", 0,
     "offer checkpoints and the log of changes to `leat serve --link`; off loopback needs --certificate, --key and "
     "--clients",
     1},
    {"link", KEY_LINK, "HOST:PORT", 0, "mirror what a server offers there, and serve from the mirror", 1},
    {"link-dir", KEY_LINK_DIRECTORY, "DIR", 0,
     "the mirror's directory (default: the job's checkpoint directory with `.link` behind its name)", 1},
    {"link-authority", KEY_LINK_AUTHORITY, "FILE", 0,
     "the offering server's certificate must be signed by this one (PEM)", 1},
    {"link-certificate", KEY_LINK_CERTIFICATE, "FILE", 0,
     "certificate that is shown to the offering server (PEM)", 1},
    {"link-key", KEY_LINK_KEY, "FILE", 0, "that certificate's private key (PEM)", 1},
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
    case KEY_CONTROL: a->control = argument; return 0;
    case KEY_CONTROL_TOKEN: a->control_token_file = argument; return 0;
    case KEY_UNLOADED: a->is_unloaded = true; return 0;
    case KEY_LOOK: a->look_every_ms = milliseconds(state, "--look-every", argument, LOOK_MS_MIN); return 0;
    case KEY_QUIET: a->is_quiet = true; return 0;
    case KEY_LOG: job_log_form(argument, state); return 0;
    case KEY_FIGURES: a->figures_path = argument; return 0;
    case KEY_LINK: a->link = argument; return 0;
    case KEY_LINK_DIRECTORY: a->link_directory = argument; return 0;
    case KEY_LINK_AUTHORITY: a->link_authority = argument; return 0;
    case KEY_LINK_CERTIFICATE: a->link_certificate = argument; return 0;
    case KEY_LINK_KEY: a->link_key = argument; return 0;
    case KEY_LINK_LISTEN: a->link_listen = argument; return 0;
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
        if (a->control == NULL && (a->control_token_file != NULL || a->is_unloaded))
            argp_error(state, "--control-token-file and --unloaded need --control");
        if ((a->link_certificate == NULL) != (a->link_key == NULL))
            argp_error(state, "--link-certificate and --link-key go together");
        if (a->link == NULL &&
            (a->link_directory != NULL || a->link_authority != NULL || a->link_certificate != NULL))
            argp_error(state,
                       "--link-dir, --link-authority, --link-certificate and --link-key go with --link");
        if (a->link != NULL && a->checkpoint != NULL)
            argp_error(state, "--link follows the newest checkpoint, and --checkpoint stays with one");
        if (a->link_directory != NULL && a->jobs_count > 1)
            argp_error(state, "--link-dir goes with one job");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* line: of the server, or diagnostics as they are printed. */
static void say(void *user, const char *line)
{
    struct serve_arguments *a = user;
    enum log_level level = strstr(line, "error[") != NULL     ? LOG_LEVEL_ERROR
                           : strstr(line, "warning[") != NULL ? LOG_LEVEL_WARNING
                                                              : LOG_LEVEL_INFO;
    log_put(level, str_from(line));
    serve_view_leave(a->view);
}

static void show(void *user, const struct server_status *models, uint32_t count)
{
    struct serve_arguments *a = user;
    int64_t now_us = os_monotonic_us();
    log_look();
    if (a->view != NULL)
        serve_view_draw(a->view, models, count, now_us);
    if (a->figures != NULL)
        serve_figures_put(a->figures, models, count, now_us);
}

static struct server *running;

static void on_signal(int number LEAT_UNUSED)
{
    server_stop(running);
}

/* From threads of their own. */
static void say_link(void *user, const char *line)
{
    struct serve_arguments *a = user;
    log_say(LOG_LEVEL_INFO, "%s", line);
    serve_view_leave(a->view);
}

static void write_link_metrics(void *user, struct metrics_text *text)
{
    struct serve_arguments *a = user;
    link_write_metrics(a->mirrors, a->links, a->jobs_count, a->offer, text);
}

/* With --link, the mirror takes the place of the job's directory. */
static bool start_mirror(struct serve_arguments *a, uint32_t place, struct job_load *load)
{
    struct link_job *link = &a->links[place];
    struct fetch_options from = {.address = str_from(a->link),
                                 .authority = a->link_authority,
                                 .certificate = a->link_certificate,
                                 .key = a->link_key};
    link->directory = a->link_directory != NULL ? a->link_directory
                                                : arena_printf(&load->arena, "%s.link", link->directory);
    a->mirrors[place] = link_mirror_start(&from, link, say_link, a, &load->diags);
    return a->mirrors[place] != NULL;
}

static bool add_job(struct serve_arguments *a, struct server *server, struct job_load *load)
{
    uint32_t place = (uint32_t)(load - a->jobs);
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
    a->links[place] = (struct link_job){.name = plan->name,
                                        .fingerprint = plan->fingerprint,
                                        .directory = path,
                                        .log_bytes = (uint64_t)plan->config.checkpoint.log_bytes,
                                        .can_be_followed = plan_not_followed(plan) == NULL};
    if (a->link != NULL && !start_mirror(a, place, load))
        return false;
    return server_add(server, plan, a->links[place].directory, id, &load->diags);
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
        .is_unloaded = a->is_unloaded,
        .say = say,
        .metrics = write_link_metrics,
        .status = show,
        .user = a};
    if (!token_read("--token-file", a->token_file, &a->token, diags) ||
        !token_read("--control-token-file", a->control_token_file, &a->control_token, diags))
        return false;
    options.listen.certificate = a->certificate;
    options.listen.key = a->key;
    options.listen.client_authority = a->clients;
    options.listen.token = a->token;
    options.control = options.listen;
    options.control.address = a->control == NULL ? (struct str){"", 0} : str_from(a->control);
    if (a->control_token != NULL)
        options.control.token = a->control_token;
    struct server *server = server_new(&options);
    struct sigaction action = {.sa_handler = on_signal};
    bool is_good = true;
    running = server; /* a Ctrl-C from now on ends it in order, also before it listens */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    for (uint32_t i = 0; i < a->jobs_count && is_good; i++)
        is_good = add_job(a, server, &a->jobs[i]);
    struct net_listen link_listen = options.listen;
    if (is_good && a->link_listen != NULL) {
        link_listen.address = str_from(a->link_listen);
        a->offer = link_offer_start(&link_listen, a->links, a->jobs_count, say_link, a, diags);
        is_good = a->offer != NULL;
    }
    is_good = is_good && server_listen(server, diags);
    if (is_good && a->figures_path != NULL)
        a->figures = serve_figures_start(a->figures_path, say_link, a);
    is_good = is_good && server_run(server);
    action.sa_handler = SIG_IGN;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    serve_figures_stop(a->figures);
    server_free(server);
    link_offer_stop(a->offer);
    for (uint32_t i = 0; i < a->jobs_count; i++)
        link_mirror_stop(a->mirrors[i]);
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
        "With --control, models are loaded and unloaded while the server answers: POST "
        "/v2/repository/models/NAME/load and /unload at that address. Ctrl-C answers what has been asked, and ends.",
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
    if (status == EXIT_GOOD && a->jobs_count == 1)
        log_set_job(a->jobs[0].plan->name);
    a->view = a->is_quiet || log_form() == LOG_FORM_JSON ? NULL : serve_view_new(stderr);
    if (status == EXIT_GOOD && !serve(a))
        status = EXIT_FAILED;
    for (uint32_t i = 0; i < a->jobs_count; i++) {
        job_print_diags(&a->jobs[i]);
        job_free(&a->jobs[i]);
    }
    serve_view_free(a->view);
    free(a->token);
    free(a->control_token);
    free(a);
    return status;
}
