/* leat check JOB: reports all errors of a job at once; opens nothing. */
#include "cli/argp.h"
#include "cli/commands.h"
#include "cli/job.h"

#include <stdio.h>

enum { KEY_SET = 256, KEY_JSON };

static const struct argp_option options_table[] = {
    {"set", KEY_SET, "NAME=VALUE", 0, "set a `param` of the job", 0},
    {"json", KEY_JSON, NULL, 0, "print diagnostics as JSON", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct job_load *load = state->input;
    switch (key) {
    case KEY_SET:
        if (!job_pair_add(&load->settings, argument))
            argp_error(state, "--set takes NAME=VALUE, not `%s`", argument);
        return 0;
    case KEY_JSON: load->is_json = true; return 0;
    case ARGP_KEY_ARG:
        if (load->path != NULL)
            argp_error(state, "give one job only");
        load->path = argument;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "which job?"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_check(int argc, char **argv)
{
    static const struct argp argp = {options_table,
                                     parse,
                                     "JOB",
                                     "Finds every error of a job at once, before anything is opened.",
                                     0,
                                     0,
                                     0};
    struct job_load load = {0};
    argp_command(&argp, argc, argv, &load);
    bool is_good = job_load(&load);
    job_print_diags(&load);
    if (is_good && !load.is_json)
        printf("%s: good; sources: %u, steps: %u, stages: %u\n", load.path, load.plan->sources_count,
               load.plan->nodes_count - load.plan->sources_count, load.plan->stages_count);
    else if (is_good && load.diags.count == 0)
        printf("[]\n");
    job_free(&load);
    return is_good ? EXIT_GOOD : EXIT_BAD_JOB;
}
