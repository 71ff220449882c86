/* leat explain JOB: the physical plan as text, as Graphviz dot, as SVG; its times; where columns come from. */
#include "cli/argp.h"
#include "cli/commands.h"
#include "cli/job.h"

#include <stdio.h>

enum { KEY_SET = 256, KEY_DOT, KEY_SVG, KEY_TIME, KEY_LINEAGE, KEY_SERVE, KEY_INPUTS };

struct explain_arguments {
    struct job_load load;
    int form; /* KEY_DOT, KEY_SVG; 0: text */
    bool is_time, is_lineage, is_serve, is_inputs;
};

static const struct argp_option options_table[] = {
    {"set", KEY_SET, "NAME=VALUE", 0, "set a `param` of the job", 0},
    {"dot", KEY_DOT, NULL, 0, "as Graphviz text", 0},
    {"svg", KEY_SVG, NULL, 0, "as an SVG picture: `leat explain --svg JOB > plan.svg`", 0},
    {"time", KEY_TIME, NULL, 0,
     "how far each watermark stays behind the newest event, and what holds it back: as text, or as a picture "
     "with --svg",
     0},
    {"lineage", KEY_LINEAGE, NULL, 0,
     "from which source columns and labels each column of each stream derives", 0},
    {"inputs", KEY_INPUTS, NULL, 0,
     "what the job reads besides its records, with digests: libraries, tables, schemas, and values of env() and "
     "file() that are no secrets",
     0},
    {"serve", KEY_SERVE, NULL, 0, "the way of a request to its score, and the columns of both", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct explain_arguments *arguments = state->input;
    bool is_picture = arguments->form != 0 || arguments->is_time;
    switch (key) {
    case KEY_SET:
        if (!job_pair_add(&arguments->load.settings, argument))
            argp_error(state, "--set takes NAME=VALUE, not `%s`", argument);
        return 0;
    case KEY_DOT:
    case KEY_SVG: arguments->form = key; return 0;
    case KEY_TIME: arguments->is_time = true; return 0;
    case KEY_LINEAGE: arguments->is_lineage = true; return 0;
    case KEY_SERVE: arguments->is_serve = true; return 0;
    case KEY_INPUTS: arguments->is_inputs = true; return 0;
    case ARGP_KEY_END:
        if (arguments->is_time && arguments->form == KEY_DOT)
            argp_error(state, "--time prints text, or a picture with --svg");
        if (arguments->is_lineage + arguments->is_serve + arguments->is_inputs > !is_picture)
            argp_error(state, "--lineage, --serve and --inputs print text, and go with no other form");
        return 0;
    case ARGP_KEY_ARG:
        if (arguments->load.path != NULL)
            argp_error(state, "give one job only");
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
        static void (*const forms[2][2])(const struct plan *, struct byte_buffer *) = {
            {plan_explain, plan_svg}, {plan_explain_time, plan_time_svg}};
        if (arguments.is_lineage)
            plan_explain_lineage(arguments.load.plan, &out);
        else if (arguments.is_inputs)
            plan_explain_inputs(arguments.load.plan, &out);
        else if (arguments.is_serve)
            plan_explain_serve(arguments.load.plan, &out);
        else if (arguments.form == KEY_DOT)
            plan_dot(arguments.load.plan, &out);
        else
            forms[arguments.is_time][arguments.form == KEY_SVG](arguments.load.plan, &out);
        fwrite(out.data, 1, out.length, stdout);
        buffer_free(&out);
    }
    job_free(&arguments.load);
    return is_good ? EXIT_GOOD : EXIT_BAD_JOB;
}
