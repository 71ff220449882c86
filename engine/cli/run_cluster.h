/* `leat run --cluster`: the process is a worker of a job that runs on several machines. */
#ifndef LEAT_CLI_RUN_CLUSTER_H
#define LEAT_CLI_RUN_CLUSTER_H

#include "cli/job.h"
#include "cli/run_control.h"
#include "control/progress.h"
#include "run/run.h"

#define RUN_CLUSTER_WAIT_US  (INT64_C(30) * 1000000) /* --nodes-wait, where it is not given */
#define RUN_CLUSTER_DRAIN_US (INT64_C(25) * 1000000) /* --drain-within, where it is not given */

struct run_cluster_flags {
    const char *cluster;            /* "etcd://H1:2379,H2:2379/NAME"; NULL: the run is alone */
    uint32_t least, most;           /* --nodes; 0: not given */
    const char *listen, *advertise; /* NULL: not given */
    int64_t wait_us;                /* --nodes-wait */
    uint32_t lease_s;               /* 0: not given */
    bool grows_when_asked;          /* --grow=asked */
    int64_t drain_us;               /* --drain-within */
    bool is_standby;                /* --standby */
    const char *authority, *certificate, *key, *user, *password_file; /* --etcd-...; NULL: not given */
};

/* Keys of the flags in `leat run`'s table. */
enum run_cluster_key {
    RUN_CLUSTER_CLUSTER = 512,
    RUN_CLUSTER_NODES,
    RUN_CLUSTER_NODES_WAIT,
    RUN_CLUSTER_LISTEN,
    RUN_CLUSTER_ADVERTISE,
    RUN_CLUSTER_LEASE,
    RUN_CLUSTER_GROW,
    RUN_CLUSTER_DRAIN,
    RUN_CLUSTER_STANDBY,
    RUN_CLUSTER_ETCD_AUTHORITY,
    RUN_CLUSTER_ETCD_CERTIFICATE,
    RUN_CLUSTER_ETCD_KEY,
    RUN_CLUSTER_ETCD_USER,
    RUN_CLUSTER_ETCD_PASSWORD,
};

struct argp_state;
/* Takes a flag with its argument, which lives as long as the flags; a wrong one ends the process, as argp does. Returns 0, or
 * ARGP_ERR_UNKNOWN for another key. */
int run_cluster_parse(int key, char *argument, struct run_cluster_flags *flags, struct argp_state *state);
/* Whether the flags go together; else ends the process. check_etcd: of those for etcd alone. */
void run_cluster_check(const struct run_cluster_flags *flags, struct argp_state *state);
void run_cluster_check_etcd(const struct run_cluster_flags *flags, struct argp_state *state);

struct run_cluster_options {
    const struct run_cluster_flags *flags;
    struct job_load *load; /* loaded; gets the diagnostics */
    /* Of every life, without what the cluster sets: peers, head, take_over. lanes 0: the job's, else one per core; stop: signals to end so
     * far, not NULL. */
    const struct run_options *run;
    const struct run_control_flags *control; /* each round has a control API of its own */
    bool is_quiet;
    struct progress progress;
    volatile sig_atomic_t *has_begun; /* set when the first run begins */
};

/* Takes part until the job has ended everywhere, a signal comes, or this worker cannot go on. Returns the exit status. Control
 * thread. */
int run_cluster(const struct run_cluster_options *options);

#endif
