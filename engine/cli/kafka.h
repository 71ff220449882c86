/* What the commands that go to Kafka by themselves share: which cluster, Ctrl-C, and how far they are. */
#ifndef LEAT_CLI_KAFKA_H
#define LEAT_CLI_KAFKA_H

#include "cli/argp.h"
#include "cli/job.h"
#include "connectors/kafka/client.h"
#include "control/progress.h"

#include <signal.h>

enum {
    KEY_BROKERS = 1000,
    KEY_SOURCE,
    KEY_JOB_SET,
    KEY_PATIENCE,
    KEY_AS_JSON,
    KEY_PROGRESS_EVERY,
    KEY_NO_PROGRESS
};

/* Rows for a table of argp. */
#define CLUSTER_OPTIONS(group)                                                                               \
    {"brokers",                                                                                              \
     KEY_BROKERS,                                                                                            \
     "HOST:PORT",                                                                                            \
     0,                                                                                                      \
     "where to find the cluster, several by commas (default: $KAFKA_BROKERS, else localhost:9092)",          \
     group},                                                                                                 \
        {"source",                                                                                           \
         KEY_SOURCE,                                                                                         \
         "JOB:NAME",                                                                                         \
         0,                                                                                                  \
         "brokers, security and properties of the source or sink NAME of the job file JOB",                  \
         group},                                                                                             \
        {"set", KEY_JOB_SET, "NAME=VALUE", 0, "give a `param` of that job a value", group},                  \
    {                                                                                                        \
        "patience", KEY_PATIENCE, "TIME", 0, "how long to wait for brokers (default: " KAFKA_PATIENCE ")",   \
            group                                                                                            \
    }
#define PROGRESS_OPTIONS(group)                                                                              \
    {"json", KEY_AS_JSON, NULL, 0, "diagnostics and the summary as JSON", group},                            \
        {"progress", KEY_PROGRESS_EVERY, "TIME", 0, PROGRESS_HELP, group},                                   \
    {                                                                                                        \
        "quiet", KEY_NO_PROGRESS, NULL, 0, "no progress", group                                              \
    }

struct cluster {
    const char *brokers, *source;
    int64_t patience_us;
    bool is_quiet;
    struct progress progress;
    struct job_load load; /* its arena and diagnostics serve the whole command */
    struct kafka_client client;
    struct texts topics; /* of the job's source; else none */
};

void cluster_init(struct cluster *cluster);
/* For a parser of argp: whether the key was one of the rows above. */
bool cluster_parse(struct cluster *cluster, int key, char *argument, struct argp_state *state);
/* False after diagnostics. */
LEAT_CHECKED bool cluster_open(struct cluster *cluster, rd_kafka_type_t type);
/* Prints what is in the diagnostics. to_stdout: --json has not said anything there yet. */
void cluster_print_diags(struct cluster *cluster, bool to_stdout);
void cluster_free(struct cluster *cluster);

/* Ctrl-C and SIGTERM: the first raises the flag, the second ends the process. */
const volatile sig_atomic_t *stop_signals(void);

/* One line that is drawn in place on a terminal, else written now and then (control/progress.h). */
struct progress_line {
    bool is_quiet, is_drawn;
    struct progress progress;
};
/* state: what is said at once when it changes; "" for none. is_last: the line stays. */
void progress_line_show(struct progress_line *line, const char *text, const char *state, bool is_last);

#endif
