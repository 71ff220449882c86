/* The flags of `leat run --cluster`. */
#include "cli/argp.h"
#include "cli/run_cluster.h"
#include "cluster/coordination.h"

/* Reads "L:M", or "N" for N:N. False: it is none. */
static bool read_nodes(const char *text, struct run_cluster_flags *flags)
{
    int64_t least, most;
    const char *colon = strchr(text, ':');
    struct str first = colon == NULL ? str_from(text) : (struct str){text, (size_t)(colon - text)};
    if (!literal_int(first, &least) || !literal_int(colon == NULL ? first : str_from(colon + 1), &most) ||
        least < 1 || most < least || most > RUN_WORKERS_MAX)
        return false;
    flags->least = (uint32_t)least;
    flags->most = (uint32_t)most;
    return true;
}

int run_cluster_parse(int key, char *argument, struct run_cluster_flags *flags, struct argp_state *state)
{
    int64_t time_us;
    switch (key) {
    case RUN_CLUSTER_CLUSTER: flags->cluster = argument; return 0;
    case RUN_CLUSTER_NODES:
        if (!read_nodes(argument, flags))
            argp_error(state, "--nodes takes LEAST:MOST from 1 to %d, like 2:8, not `%s`", RUN_WORKERS_MAX,
                       argument);
        return 0;
    case RUN_CLUSTER_NODES_WAIT:
        if (!literal_duration(str_from(argument), &flags->wait_us) || flags->wait_us < 0)
            argp_error(state, "--nodes-wait takes a time like 30s, not `%s`", argument);
        return 0;
    case RUN_CLUSTER_LISTEN: flags->listen = argument; return 0;
    case RUN_CLUSTER_ADVERTISE: flags->advertise = argument; return 0;
    case RUN_CLUSTER_LEASE:
        if (!literal_duration(str_from(argument), &time_us) || time_us < 2 * US_PER_SECOND ||
            time_us > COORDINATION_LEASE_S_MAX * US_PER_SECOND)
            argp_error(state, "--lease takes a time from 2s to 1h, not `%s`", argument);
        flags->lease_s = (uint32_t)(time_us / US_PER_SECOND);
        return 0;
    case RUN_CLUSTER_GROW:
        if (strcmp(argument, "auto") != 0 && strcmp(argument, "asked") != 0)
            argp_error(state, "--grow takes auto or asked, not `%s`", argument);
        flags->grows_when_asked = strcmp(argument, "asked") == 0;
        return 0;
    case RUN_CLUSTER_DRAIN:
        if (!literal_duration(str_from(argument), &flags->drain_us) || flags->drain_us < 0)
            argp_error(state, "--drain-within takes a time like 25s, not `%s`", argument);
        return 0;
    case RUN_CLUSTER_STANDBY: flags->is_standby = true; return 0;
    case RUN_CLUSTER_ETCD_AUTHORITY: flags->authority = argument; return 0;
    case RUN_CLUSTER_ETCD_CERTIFICATE: flags->certificate = argument; return 0;
    case RUN_CLUSTER_ETCD_KEY: flags->key = argument; return 0;
    case RUN_CLUSTER_ETCD_USER: flags->user = argument; return 0;
    case RUN_CLUSTER_ETCD_PASSWORD: flags->password_file = argument; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

void run_cluster_check(const struct run_cluster_flags *flags, struct argp_state *state)
{
    const struct {
        bool is_given;
        const char *flag;
    } others[] = {{flags->least > 0, "nodes"},
                  {flags->listen != NULL, "listen"},
                  {flags->advertise != NULL, "advertise"},
                  {flags->lease_s > 0, "lease"},
                  {flags->wait_us != RUN_CLUSTER_WAIT_US, "nodes-wait"},
                  {flags->grows_when_asked, "grow"},
                  {flags->drain_us != RUN_CLUSTER_DRAIN_US, "drain-within"},
                  {flags->is_standby, "standby"},
                  {flags->authority != NULL, "etcd-authority"},
                  {flags->certificate != NULL, "etcd-certificate"},
                  {flags->key != NULL, "etcd-key"},
                  {flags->user != NULL, "etcd-user"},
                  {flags->password_file != NULL, "etcd-password-file"}};
    for (size_t i = 0; i < ARRAY_COUNT(others) && flags->cluster == NULL; i++)
        if (others[i].is_given)
            argp_error(state, "--%s needs --cluster", others[i].flag);
    if (flags->cluster != NULL && (flags->least == 0 || flags->listen == NULL))
        argp_error(state,
                   "--cluster needs --nodes and --listen, for example --nodes=2:8 --listen=10.0.0.7:7400");
    run_cluster_check_etcd(flags, state);
}

void run_cluster_check_etcd(const struct run_cluster_flags *flags, struct argp_state *state)
{
    if ((flags->user == NULL) != (flags->password_file == NULL))
        argp_error(state, "--etcd-user and --etcd-password-file go together");
    if ((flags->certificate == NULL) != (flags->key == NULL))
        argp_error(state, "--etcd-certificate and --etcd-key go together");
}
