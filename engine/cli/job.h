/* From a job file on disk to a plan, with every error printed. What `run`, `check` and `explain` share. */
#ifndef LEAT_CLI_JOB_H
#define LEAT_CLI_JOB_H

#include "plan/plan.h"

enum { JOB_PAIRS_MAX = 64 };

/* NAME=VALUE arguments of one flag. */
struct job_pairs {
    struct str names[JOB_PAIRS_MAX], values[JOB_PAIRS_MAX];
    uint32_t count;
};

struct job_load {
    /* In. */
    const char *path;
    struct job_pairs settings, replays, sinks;
    bool is_replay;
    bool is_json; /* diagnostics as JSON */
    /* Out. */
    struct arena arena;
    struct diag_list diags;
    struct diag_source source;
    struct job_file *job;
    struct plan *plan;
};

/* Splits "NAME=VALUE"; false where there is no `=` or too many were given. */
bool job_pair_add(struct job_pairs *pairs, const char *text);
/* Arguments with `--replay SOURCE=GLOB` joined by `=`: argp wants that where an argument may be left out,
 * people write a space. */
char **job_join_replays(int *argc, char **argv);
/* A job file's text, malloc'd; 0, or errno after a diagnostic. */
int job_read_text(const char *path, struct diag_list *diags, char **data, size_t *bytes);
/* Reads, parses, expands and plans. false: diags->errors > 0. Nothing is printed. */
bool job_load(struct job_load *load);
/* Prints what is in diags (warnings too) to stderr. */
void job_print_diags(struct job_load *load);
void job_free(struct job_load *load);

#endif
