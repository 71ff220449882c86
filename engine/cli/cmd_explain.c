/* leat explain JOB: the physical plan as text, as Graphviz dot, as SVG. */
#include "cli/argp.h"
#include "cli/commands.h"
#include "cli/job.h"

#include <stdio.h>

enum { KEY_SET = 256, KEY_DOT, KEY_SVG };

struct explain_arguments {
    struct job_load load;
    int form;
};

static const struct argp_option options_table[] = {
    {"set", KEY_SET, "NAME=VALUE", 0, "give a `param` of the job a value", 0},
    {"dot", KEY_DOT, NULL, 0, "as Graphviz text", 0},
    {"svg", KEY_SVG, NULL, 0, "as a picture: `leat explain --svg JOB > plan.svg`", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct explain_arguments *arguments = state->input;
    switch (key) {
    case KEY_SET:
        if (!job_pair_add(&arguments->load.settings, argument))
            argp_error(state, "--set wants NAME=VALUE, not `%s`", argument);
        return 0;
    case KEY_DOT:
    case KEY_SVG: arguments->form = key; return 0;
    case ARGP_KEY_ARG:
        if (arguments->load.path != NULL)
            argp_error(state, "one job at a time");
        arguments->load.path = argument;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "which job?"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_explain(int argc, char **argv)
{
    static const struct argp argp = {options_table,
                                     parse,
                                     "JOB",
                                     "Shows how a job will run: its stages, and the exchanges between them.",
                                     0,
                                     0,
                                     0};
    struct explain_arguments arguments = {0};
    argp_command(&argp, argc, argv, &arguments);
    bool is_good = job_load(&arguments.load);
    job_print_diags(&arguments.load);
    if (is_good) {
        struct byte_buffer out = {0};
        if (arguments.form == KEY_DOT)
            plan_dot(arguments.load.plan, &out);
        else if (arguments.form == KEY_SVG)
            plan_svg(arguments.load.plan, &out);
        else
            plan_explain(arguments.load.plan, &out);
        fwrite(out.data, 1, out.length, stdout);
        buffer_free(&out);
    }
    job_free(&arguments.load);
    return is_good ? EXIT_GOOD : EXIT_BAD_JOB;
}
