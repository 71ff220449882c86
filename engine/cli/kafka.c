#include "cli/kafka.h"

#include "cli/commands.h"
#include "connectors/kafka/sink.h"
#include "connectors/kafka/source.h"
#include "core/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLUMNS_MAX = 512 };

/* --- The cluster --- */

void cluster_init(struct cluster *cluster)
{
    *cluster = (struct cluster){0};
    bool is_good = literal_duration(STR(KAFKA_PATIENCE), &cluster->patience_us);
    leat_assert(is_good);
    diag_list_init(&cluster->load.diags, &cluster->load.arena);
}

bool cluster_parse(struct cluster *cluster, int key, char *argument, struct argp_state *state)
{
    switch (key) {
    case KEY_BROKERS: cluster->brokers = argument; return true;
    case KEY_SOURCE: cluster->source = argument; return true;
    case KEY_JOB_SET:
        if (!job_pair_add(&cluster->load.settings, argument))
            argp_error(state, "--set takes NAME=VALUE, not `%s`", argument);
        return true;
    case KEY_PATIENCE:
        if (!literal_duration(str_from(argument), &cluster->patience_us) ||
            cluster->patience_us < US_PER_SECOND)
            argp_error(state, "--patience takes a duration like 5m, at least 1s, not `%s`", argument);
        return true;
    case KEY_AS_JSON: cluster->load.is_json = true; return true;
    case KEY_PROGRESS_EVERY:
        if (!progress_parse(&cluster->progress, argument))
            argp_error(state, PROGRESS_WANTS, argument);
        return true;
    case KEY_NO_PROGRESS: cluster->is_quiet = true; return true;
    default: return false;
    }
}

static bool refuse_node(struct cluster *cluster, const char *name, bool is_other)
{
    struct job_load *load = &cluster->load;
    const char *all = "";
    for (uint32_t i = 0; i < load->plan->nodes_count; i++) {
        const struct plan_node *node = &load->plan->nodes[i];
        if (node->source_kind == &source_kafka || node->sink_kind == &sink_kafka)
            all =
                arena_printf(&load->arena, "%s%s%.*s", all, all[0] == '\0' ? "" : ", ", STR_ARGS(node->name));
    }
    struct diag *d = is_other ? diag_error(&load->diags, DIAG_NO_COMMAND, (struct span){0, 0},
                                           "--source: `%s` of the job is not of kind kafka", name)
                              : diag_error(&load->diags, DIAG_NO_COMMAND, (struct span){0, 0},
                                           "--source: the job has no source or sink `%s`", name);
    diag_hint(&load->diags, d, "sources and sinks of kind kafka in the job: %s",
              all[0] == '\0' ? "none" : all);
    return false;
}

static bool open_by_job(struct cluster *cluster)
{
    struct job_load *load = &cluster->load;
    const char *colon = strrchr(cluster->source, ':');
    if (colon == NULL || colon == cluster->source || colon[1] == '\0') {
        struct diag *d = diag_error(&load->diags, DIAG_NO_COMMAND, (struct span){0, 0},
                                    "--source takes JOB:NAME, not `%s`", cluster->source);
        diag_hint(&load->diags, d, "for example `--source jobs/ctr_live.leat:impressions`");
        return false;
    }
    load->path = arena_strndup(&load->arena, cluster->source, (size_t)(colon - cluster->source));
    if (!job_load(load))
        return false;
    bool is_other = false;
    for (uint32_t i = 0; i < load->plan->nodes_count; i++) {
        const struct plan_node *node = &load->plan->nodes[i];
        bool is_named =
            str_is(node->name, colon + 1) && (node->source_kind != NULL || node->sink_kind != NULL);
        if (is_named && node->source_kind == &source_kafka) {
            cluster->client = *kafka_source_client(node->config);
            cluster->topics = kafka_source_topics(node->config);
            return true;
        }
        if (is_named && node->sink_kind == &sink_kafka) {
            cluster->client = *kafka_sink_client(node->config);
            return true;
        }
        is_other |= is_named;
    }
    return refuse_node(cluster, colon + 1, is_other);
}

bool cluster_open(struct cluster *cluster, rd_kafka_type_t type)
{
    struct job_load *load = &cluster->load;
    if (cluster->source != NULL && !open_by_job(cluster))
        return false;
    const char *brokers = cluster->brokers, *named = getenv("KAFKA_BROKERS");
    if (brokers == NULL && cluster->source == NULL)
        brokers = named != NULL && named[0] != '\0' ? named : "localhost:9092";
    if (brokers != NULL)
        cluster->client.brokers = str_from(brokers);
    return kafka_client_check(&cluster->client, type, (struct span){0, 0}, &load->diags);
}

void cluster_print_diags(struct cluster *cluster, bool to_stdout)
{
    bool is_json = cluster->load.is_json;
    cluster->load.is_json = is_json && to_stdout;
    job_print_diags(&cluster->load);
    cluster->load.is_json = is_json;
}

void cluster_free(struct cluster *cluster)
{
    job_free(&cluster->load);
}

/* --- Ctrl-C --- */

static volatile sig_atomic_t stops;

static void on_signal(int number LEAT_UNUSED)
{
    if (++stops >= 2)
        _exit(EXIT_INTERRUPTED);
}

const volatile sig_atomic_t *stop_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    return &stops;
}

/* --- Progress --- */

void progress_line_show(struct progress_line *line, const char *text, const char *state, bool is_last)
{
    struct winsize size = {0};
    if (line->is_quiet)
        return;
    if (isatty(STDERR_FILENO) == 0) {
        if (!is_last && progress_is_due(&line->progress, os_monotonic_us(), state))
            fprintf(stderr, "leat: %.*s\n", COLUMNS_MAX, text);
        return;
    }
    int columns =
        ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : COLUMNS_MAX;
    fprintf(stderr, "\r\033[K%.*s%s", columns, text, is_last ? "\n" : "");
    line->is_drawn = true;
}
