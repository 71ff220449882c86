#include "cli/run_control.h"

#include "cli/token.h"

#include <stdlib.h>

enum { CONTROL_CONNECTIONS_MAX = 256 };

/* A flag's text, else that of the job's `ui`; NULL: neither. */
static const char *or_of_job(const char *flag, struct str option, struct arena *arena)
{
    if (flag != NULL || option.length == 0)
        return flag;
    return arena_strndup(arena, option.data, option.length);
}

bool run_control_start(const struct run_control_flags *flags, const struct job_load *load, struct api **api,
                       struct diag_list *diags)
{
    *api = NULL;
    /* A replay of a job that runs here must not take its place. */
    bool is_replay = load->is_replay || load->replays.count > 0;
    const struct job_ui *ui = &load->plan->config.ui;
    struct arena *arena = load->plan->arena;
    struct str listens = is_replay ? (struct str){"", 0} : ui->listen;
    const char *address = or_of_job(flags->address, listens, arena);
    if (address == NULL && flags->has_ui)
        address = RUN_CONTROL_ADDRESS;
    if (address == NULL && (flags->token != NULL || flags->certificate != NULL)) {
        struct diag *d = diag_error(
            diags, DIAG_NO_COMMAND, (struct span){0},
            "--control-token-file and --control-certificate need --ui, --control or `ui` of the job");
        diag_hint(diags, d, "add --ui, which listens at " RUN_CONTROL_ADDRESS);
        return false;
    }
    if (address == NULL)
        return true;
    char *token = NULL;
    const char *option = flags->token != NULL ? "--control-token-file" : "`token_file` of `ui`";
    if (!token_read(option, or_of_job(flags->token, ui->token_file, arena), &token, diags))
        return false;
    bool has_own = flags->certificate != NULL; /* then both files are of the flags */
    struct net_listen listen = net_listen_defaults(str_from(address));
    listen.connections_max = CONTROL_CONNECTIONS_MAX;
    listen.certificate = or_of_job(flags->certificate, ui->certificate, arena);
    listen.key = has_own ? flags->key : or_of_job(NULL, ui->key, arena);
    listen.token = token;
    listen.flags = "control-";
    *api = api_start(load->plan, &listen, diags);
    free(token);
    return *api != NULL;
}
