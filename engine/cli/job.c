#include "cli/job.h"

#include "cli/argp.h"
#include "cli/commands.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"
#include "net/net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ARGUMENTS_MAX = 1024 };

bool job_pair_add(struct job_pairs *pairs, const char *text)
{
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text || pairs->count == JOB_PAIRS_MAX)
        return false;
    pairs->names[pairs->count] = (struct str){text, (size_t)(equals - text)};
    pairs->values[pairs->count++] = str_from(equals + 1);
    return true;
}

/* Whether a word is HOST:PORT, and not the path of a job. */
static bool is_address(const char *word)
{
    const char *colon = strrchr(word, ':');
    return colon != NULL && colon[1] != '\0' && strspn(colon + 1, "0123456789") == strlen(colon + 1);
}

char **job_join_values(int *argc, char **argv)
{
    static char *joined[ARGUMENTS_MAX + 1];
    int count = 0;
    for (int i = 0; i < *argc && count < ARGUMENTS_MAX; i++) {
        const char *next = argv[i + 1] == NULL || argv[i + 1][0] == '-' ? "" : argv[i + 1];
        bool has_value = (strcmp(argv[i], "--replay") == 0 && strchr(next, '=') != NULL) ||
                         (strcmp(argv[i], "--ui") == 0 && is_address(next));
        joined[count] = has_value ? mem_printf("%s=%s", argv[i], next) : argv[i];
        i += has_value;
        count++;
    }
    *argc = count;
    return joined;
}

static struct plan_replace *replaces(struct job_load *load, const struct job_pairs *pairs)
{
    struct plan_replace *items = arena_array(&load->arena, struct plan_replace, pairs->count);
    for (uint32_t i = 0; i < pairs->count; i++)
        items[i] = (struct plan_replace){pairs->names[i], pairs->values[i]};
    return items;
}

/* Reports names in --replay or --sink that the job does not have. */
static void check_names(struct job_load *load, const struct job_pairs *pairs, const char *flag,
                        bool is_source)
{
    const struct job_file *job = load->job;
    uint32_t known = is_source ? job->sources_count : job->sinks_count;
    for (uint32_t i = 0; i < pairs->count; i++) {
        bool is_found = false;
        for (uint32_t k = 0; k < known; k++)
            is_found |=
                str_equal(pairs->names[i], is_source ? job->sources[k].name.text : job->sinks[k].name.text);
        if (is_found)
            continue;
        struct diag *d =
            diag_error(&load->diags, DIAG_NO_COMMAND, (struct span){0}, "%s: the job has no %s `%.*s`", flag,
                       is_source ? "source" : "sink", STR_ARGS(pairs->names[i]));
        const char *all = "";
        for (uint32_t k = 0; k < known; k++) {
            struct str name = is_source ? job->sources[k].name.text : job->sinks[k].name.text;
            all = arena_printf(&load->arena, "%s%s%.*s", all, k > 0 ? ", " : "", STR_ARGS(name));
        }
        diag_hint(&load->diags, d, known > 0 ? "it has: %s" : "it has none%s", all);
    }
}

int job_read_text(const char *path, struct diag_list *diags, char **data, size_t *bytes)
{
    int error = os_read_file(path, LANG_SOURCE_BYTES_MAX, data, bytes);
    if (error == 0)
        return 0;
    struct diag *d;
    if (error == EFBIG) {
        d = diag_error(diags, DIAG_TOO_DEEP, (struct span){0},
                       "the job file `%s` has %lld bytes; at most %d are allowed", path,
                       (long long)MAX(os_file_bytes(path), LANG_SOURCE_BYTES_MAX + 1), LANG_SOURCE_BYTES_MAX);
        diag_hint(diags, d,
                  "check that the path is that of a job file; divide a generated job into several jobs");
    } else {
        d = diag_error(diags, DIAG_FILE_UNREADABLE, (struct span){0}, "the job file `%s` cannot be read",
                       path);
        diag_errno(diags, d, error);
        diag_hint(diags, d, "give the path of a job file, for example `leat run jobs/ctr.leat`");
    }
    return error;
}

static bool read_job(struct job_load *load)
{
    char *data;
    size_t bytes;
    int error = job_read_text(load->path, &load->diags, &data, &bytes);
    if (error != 0)
        return false;
    load->source = (struct diag_source){load->path, arena_str(&load->arena, (struct str){data, bytes})};
    free(data);
    return true;
}

/* Claims what is read before the plan exists: the job file and its libraries (read_secret adds files
 * read by file("...")). */
static struct claims *claim_job(struct job_load *load)
{
    struct claims *claims = claims_new(&load->arena);
    claims_add(claims, CLAIM_READS, claims_literal(&load->arena, str_from(load->path)), load->path,
               "the job itself", (struct span){0});
    for (uint32_t i = 0; i < load->job->uses_count; i++)
        claims_add_input(claims, load->job->uses[i].path, "`use`", load->job->uses[i].span);
    return claims;
}

/* Reads a file(...) value like the default hook, and claims the file as an input. */
static int read_secret(void *argument, const char *path, size_t max_bytes, char **data, size_t *bytes)
{
    claims_add_input(argument, str_from(path), "file(...)", (struct span){0});
    return os_read_file(path, max_bytes, data, bytes);
}

/* What `ui` of the job says is good: an address, and both files of TLS or none. */
static void check_ui(struct job_load *load)
{
    const struct job_ui *ui = &load->plan->config.ui;
    struct span span = load->job->job_span;
    for (uint32_t i = 0; i < load->job->job_entries_count; i++)
        if (str_is(load->job->job_entries[i].name, "ui"))
            span = load->job->job_entries[i].value->span;
    if (ui->listen.length > 0)
        (void)!net_address_check(ui->listen, span, &load->diags);
    if ((ui->certificate.length > 0) == (ui->key.length > 0))
        return;
    struct diag *d =
        diag_error(&load->diags, DIAG_OPTIONS_CLASH, span, "`ui` has only one of `certificate` and `key`");
    diag_hint(&load->diags, d, "TLS needs both: the certificate chain, and its private key");
}

bool job_load(struct job_load *load)
{
    diag_list_init(&load->diags, &load->arena);
    if (!read_job(load))
        return false;
    load->job = lang_parse(&load->arena, &load->diags, &builtin_registry, load->source.text);
    struct lang_setting *items = arena_array(&load->arena, struct lang_setting, load->settings.count);
    for (uint32_t i = 0; i < load->settings.count; i++)
        items[i] = (struct lang_setting){load->settings.names[i], load->settings.values[i]};
    struct claims *claims = claim_job(load);
    struct lang_settings settings = {
        .items = items, .count = load->settings.count, .read_file = read_secret, .argument = claims};
    bool is_expanded = lang_expand(load->job, &load->arena, &load->diags, &settings);
    check_names(load, &load->replays, "--replay", true);
    check_names(load, &load->sinks, "--sink", false);
    struct plan_options options = {
        .registry = &builtin_registry,
        .replays = replaces(load, &load->replays),
        .replays_count = load->replays.count,
        .sinks = replaces(load, &load->sinks),
        .sinks_count = load->sinks.count,
        .is_replay = load->is_replay,
        .claims = claims,
    };
    load->plan = plan_make(load->job, &options, &load->arena, &load->diags);
    if (load->plan != NULL)
        check_ui(load);
    lang_label_expansions(load->job, &load->diags);
    return is_expanded && load->plan != NULL && load->diags.errors == 0;
}

const struct plan_serve *job_serve(struct job_load *load, const char *name)
{
    const struct plan *plan = load->plan;
    struct diag_list *diags = &load->diags;
    const char *all = "";
    for (uint32_t i = 0; i < plan->serves_count; i++) {
        if (name == NULL ? plan->serves_count == 1 : str_is(plan->serves[i].name, name))
            return &plan->serves[i];
        all = arena_printf(&load->arena, "%s%s%.*s", all, i > 0 ? ", " : "", STR_ARGS(plan->serves[i].name));
    }
    struct diag *d =
        plan->serves_count == 0
            ? diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "the job serves nothing")
        : name == NULL
            ? diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "the job has several `serve`")
            : diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "the job has no `serve %s`", name);
    if (plan->serves_count == 0)
        diag_hint(diags, d, "add `serve NAME { from: MODEL.predictions, request: SOURCE }` to the job");
    else
        diag_hint(diags, d, "name one with --serve: %s", all);
    return NULL;
}

void job_log_form(const char *argument, struct argp_state *state)
{
    if (strcmp(argument, "json") != 0 && strcmp(argument, "text") != 0)
        argp_error(state, "--log takes `json` or `text`, not `%s`", argument);
    log_set_form(strcmp(argument, "json") == 0 ? LOG_FORM_JSON : LOG_FORM_TEXT);
}

void job_print_diags(struct job_load *load)
{
    if (load->diags.count == 0)
        return;
    const struct diag_source *source = load->source.path == NULL ? NULL : &load->source;
    if (load->is_json)
        diag_print_json(stdout, &load->diags, source);
    else
        log_diags(&load->diags, source, isatty(STDERR_FILENO) != 0);
}

void job_free(struct job_load *load)
{
    arena_free(&load->arena);
}
