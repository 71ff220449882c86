/* Where the control API of a run is: what `leat ctl` and `leat top` are told by a word. One thread. */
#ifndef LEAT_CLI_CONTROL_AT_H
#define LEAT_CLI_CONTROL_AT_H

#include "cli/job.h"
#include "net/fetch.h"

#define CONTROL_AT_AUTHORITY_HELP                                                                                      \
    "the run's certificate must be signed by this one (PEM); needed with https://, else the default is the run's own " \
    "certificate"
#define CONTROL_AT_TOKEN_HELP "with a URL: send the token in this file"

/* All zeros but for what the caller sets. */
struct control_at {
    /* A job's file, a checkpoint directory, or http://HOST:PORT and https://HOST:PORT. Of the first two the file CONTROL
     * says the rest. */
    const char *word;
    const char *authority;  /* PEM; NULL: as CONTROL says */
    const char *token_file; /* with a URL; NULL: no token is sent */
    struct job_load load;   /* its settings are the caller's; holds all diagnostics, also without a job */
    /* Set by control_at_find. */
    bool is_url;
    struct str directory; /* of the checkpoints, unless is_url */
};

/* Says what the word means, and loads the job if it is one. False after diagnostics; *is_bad_job: they are the job's. */
LEAT_CHECKED bool control_at_find(struct control_at *at, bool *is_bad_job);
/* After control_at_find, any number of times: a client of the run that is there now. NULL after a diagnostic. */
struct fetch *control_at_connect(const struct control_at *at, struct diag_list *diags);
/* Whether a control API of this leat gives no such status to `leat ctl` and `leat top`: something else listens there. */
bool control_at_is_other(int status);
#define CONTROL_AT_OTHER "what answers is no run of this leat: it answers with status %d"
void control_at_free(struct control_at *at);

#endif
