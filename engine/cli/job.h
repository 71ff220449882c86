/* Loads a job file from disk into a plan and prints its errors. Shared by `run`, `check`,
 * `explain` and others. */
#ifndef LEAT_CLI_JOB_H
#define LEAT_CLI_JOB_H

#include "plan/plan.h"

enum { JOB_PAIRS_MAX = 64 };

/* The NAME=VALUE arguments of one flag. */
struct job_pairs {
    struct str names[JOB_PAIRS_MAX], values[JOB_PAIRS_MAX];
    uint32_t count;
};

struct job_load {
    /* Set by the caller. */
    const char *path;
    struct job_pairs settings, replays, sinks; /* of --set, --replay and --sink */
    /* --replay: sinks without --sink write nothing, and checkpoints go to a directory of their own. */
    bool is_replay;
    bool is_json; /* diagnostics as JSON */
    /* Set by job_load; freed by job_free. */
    struct arena arena;
    struct diag_list diags;
    struct diag_source source;
    struct job_file *job;
    struct plan *plan;
};

/* Splits "NAME=VALUE" and adds the pair, which points into `text`. false: `=` or the name is missing, or
 * there are JOB_PAIRS_MAX pairs already. */
bool job_pair_add(struct job_pairs *pairs, const char *text);
/* Returns the arguments with `--replay SOURCE=GLOB` joined to `--replay=SOURCE=GLOB`, and `--ui HOST:PORT` likewise: argp
 * requires the `=` for optional values, but people write a space. Updates *argc. The array is static; call once. */
char **job_join_values(int *argc, char **argv);
/* Reads a job file's text into malloc'd memory. Returns 0, or an errno after a diagnostic. */
int job_read_text(const char *path, struct diag_list *diags, char **data, size_t *bytes);
/* Reads, parses, expands and plans the job. false: load->diags has errors. Prints nothing. Call job_free even
 * after an error. */
bool job_load(struct job_load *load);
/* The `serve` of that name; NULL: the job's only one. NULL after a diagnostic. */
const struct plan_serve *job_serve(struct job_load *load, const char *name);
/* The option --log of commands that go on for long: the form of what they say on stderr. */
#define JOB_LOG_HELP                                                                                                 \
    "`json`: each line on stderr as an object with time, level, job, text, and how often it was said; no live view " \
    "(default: text)"
struct argp_state;
void job_log_form(const char *argument, struct argp_state *state);

/* Prints all diagnostics, warnings included: as text to stderr, or with is_json as JSON to stdout. */
void job_print_diags(struct job_load *load);
void job_free(struct job_load *load);

#endif
