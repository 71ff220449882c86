/* Shared by commands that use Kafka directly: flags that choose the cluster, handling of Ctrl-C, and
 * a progress line. */
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

/* Rows of an argp table for the cluster's flags. */
#define CLUSTER_OPTIONS(group)                                                                               \
    {"brokers",                                                                                              \
     KEY_BROKERS,                                                                                            \
     "HOST:PORT",                                                                                            \
     0,                                                                                                      \
     "brokers of the cluster, separated by commas (default: $KAFKA_BROKERS, else localhost:9092)",           \
     group},                                                                                                 \
        {"source",                                                                                           \
         KEY_SOURCE,                                                                                         \
         "JOB:NAME",                                                                                         \
         0,                                                                                                  \
         "take brokers, security and properties from the source or sink NAME of the job file JOB",           \
         group},                                                                                             \
        {"set", KEY_JOB_SET, "NAME=VALUE", 0, "set a `param` of the --source job", group},                   \
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
    const char *brokers, *source; /* values of --brokers and --source; NULL: not given */
    int64_t patience_us;
    bool is_quiet; /* --quiet */
    struct progress progress;
    struct job_load load; /* the job of --source; the whole command uses its arena and diagnostics */
    struct kafka_client client;
    struct texts topics; /* topics of the job's source given by --source; else empty */
};

void cluster_init(struct cluster *cluster);
/* For an argp parser: handles the keys of CLUSTER_OPTIONS and PROGRESS_OPTIONS. false: another key. */
bool cluster_parse(struct cluster *cluster, int key, char *argument, struct argp_state *state);
/* Fills cluster->client from the flags. false after diagnostics. */
LEAT_CHECKED bool cluster_open(struct cluster *cluster, rd_kafka_type_t type);
/* Prints the diagnostics. to_stdout: with --json they go to stdout; false: stdout already has
 * the JSON summary. */
void cluster_print_diags(struct cluster *cluster, bool to_stdout);
void cluster_free(struct cluster *cluster);

/* Handles Ctrl-C and SIGTERM: the first raises the returned flag, the second ends the process. */
const volatile sig_atomic_t *stop_signals(void);

/* A progress line: redrawn in place on a terminal, else printed from time to time (control/progress.h). */
struct progress_line {
    bool is_quiet, is_drawn;
    struct progress progress;
};
/* Shows `text`, unless is_quiet. state: as in progress_is_due. is_last: on a terminal, ends the line, so that
 * it stays; elsewhere prints nothing. */
void progress_line_show(struct progress_line *line, const char *text, const char *state, bool is_last);

#endif
