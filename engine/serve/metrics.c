/* GET /metrics: the figures of models and connections in the text format of Prometheus; and those of models for a view. */
#include "serve/control.h"

#include <inttypes.h>

static void put_net(const struct server *server, struct byte_buffer *out)
{
    struct net_counters net = net_loop_counters(server->loop);
    const struct {
        const char *name, *type, *help;
        uint64_t value;
    } rows[] = {
        {"leat_serve_unknown_models_total", "counter", "Requests that name no model of this server.",
         server->unknown_models},
        {"leat_net_connections_total", "counter", "Connections accepted.", net.connections},
        {"leat_net_connections_refused_total", "counter", "Connections beyond the limit.",
         net.connections_refused},
        {"leat_net_connections", "gauge", "Open connections.", net.connections_now},
        {"leat_net_connections_parked", "gauge", "Connections that wait unread under overload.",
         net.connections_parked},
        {"leat_net_requests_http1_total", "counter", "Requests over HTTP/1.1.", net.requests_http1},
        {"leat_net_requests_http2_total", "counter", "Requests over HTTP/2.", net.requests_http2},
        {"leat_net_refused_total", "counter", "Requests and connections that broke a rule or a limit.",
         net.refused},
        {"leat_net_received_bytes_total", "counter", "Bytes received.", net.bytes_in},
        {"leat_net_sent_bytes_total", "counter", "Bytes sent.", net.bytes_out},
        {"leat_net_memory_bytes", "gauge", "Bytes of requests and answers in work.", net.memory_now},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s %" PRIu64 "\n", rows[i].name, rows[i].help,
                      rows[i].name, rows[i].type, rows[i].name, rows[i].value);
}

/* Which models are loaded, and what became of requests to load and to unload. */
static void put_control(const struct server *server, struct byte_buffer *out)
{
    static const char *const outcomes[CONTROL_OUTCOMES] = {"loaded", "unloaded", "failed", "refused"};
    buffer_printf(
        out, "# HELP leat_serve_loaded 1: the model is loaded, or waits for its job's first checkpoint.\n"
             "# TYPE leat_serve_loaded gauge\n");
    for (uint32_t i = 0; i < server->models_count; i++)
        buffer_printf(out, "leat_serve_loaded{model=\"%.*s\"} %d\n", STR_ARGS(server->models[i]->name),
                      server->models[i]->state == MODEL_SERVED);
    buffer_printf(out,
                  "# HELP leat_serve_control_total Requests to load or to unload, by what became of them.\n"
                  "# TYPE leat_serve_control_total counter\n");
    for (uint32_t i = 0; i < server->models_count; i++)
        for (uint32_t k = 0; k < CONTROL_OUTCOMES; k++)
            buffer_printf(out, "leat_serve_control_total{model=\"%.*s\",outcome=\"%s\"} %" PRIu64 "\n",
                          STR_ARGS(server->models[i]->name), outcomes[k], server->models[i]->control[k]);
}

/* How far jobs are followed. */
static void put_followed(struct server *server, struct byte_buffer *out)
{
    static const char *const names[] = {"leat_follow_live", "leat_follow_features", "leat_follow_rows_total",
                                        "leat_follow_cuts_total", "leat_follow_bytes_total"};
    static const char *const helps[] = {"1: the job's changes are followed as they are published.",
                                        "Features have the rows of the micro-batches below this number.",
                                        "Rows applied to features since the last checkpoint was loaded.",
                                        "Cuts of models applied since the last checkpoint was loaded.",
                                        "Bytes applied since the last checkpoint was loaded."};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", names[i], helps[i], names[i],
                      i < 2 ? "gauge" : "counter");
        for (struct serve_job *job = server->jobs; job != NULL; job = job->next) {
            struct follow_figures figures = {0};
            if (job->follow != NULL)
                figures = follow_figures(job->follow);
            uint64_t values[] = {job->was_live, job->features, figures.rows, figures.cuts, figures.bytes};
            buffer_printf(out, "%s{job=\"%.*s\"} %" PRIu64 "\n", names[i], STR_ARGS(job->plan->name),
                          values[i]);
        }
    }
}

static struct served_counts counts_of(const struct serve_model *model)
{
    static const struct served_counts none;
    return model->log == NULL ? none : served_counts(model->log);
}

static void put_logs(const struct server *server, struct byte_buffer *out)
{
    static const char total[] = "leat_serve_log_lines_total", waiting[] = "leat_serve_log_lines_waiting";
    buffer_printf(
        out,
        "# HELP %s Lines of the log of what was served; lost ones were not written, or nobody said that they "
        "were.\n# TYPE %s counter\n",
        total, total);
    for (uint32_t i = 0; i < server->models_count; i++) {
        struct str name = server->models[i]->name;
        struct served_counts counts = counts_of(server->models[i]);
        buffer_printf(out, "%s{model=\"%.*s\",outcome=\"written\"} %" PRIu64 "\n", total, STR_ARGS(name),
                      counts.lines);
        buffer_printf(out, "%s{model=\"%.*s\",outcome=\"lost\"} %" PRIu64 "\n", total, STR_ARGS(name),
                      counts.lost);
    }
    buffer_printf(out, "# HELP %s Lines that are neither written nor lost yet.\n# TYPE %s gauge\n", waiting,
                  waiting);
    for (uint32_t i = 0; i < server->models_count; i++)
        buffer_printf(out, "%s{model=\"%.*s\"} %" PRIu64 "\n", waiting, STR_ARGS(server->models[i]->name),
                      counts_of(server->models[i]).waiting);
}

void server_write_metrics(struct server *server, struct byte_buffer *out)
{
    uint32_t count = server->models_count;
    struct str *names = arena_array(&server->scratch, struct str, MAX(count, 1));
    const struct figures **figures = arena_array(&server->scratch, const struct figures *, MAX(count, 1));
    for (uint32_t i = 0; i < count; i++) {
        names[i] = server->models[i]->name;
        figures[i] = &server->models[i]->figures;
    }
    figures_write(names, figures, count, out);
    buffer_printf(
        out, "# HELP leat_serve_staleness_seconds Age of what answers: of the checkpoint, or of what the job "
             "published since; -1: none yet.\n"
             "# TYPE leat_serve_staleness_seconds gauge\n");
    for (uint32_t i = 0; i < count; i++)
        buffer_printf(out, "leat_serve_staleness_seconds{model=\"%.*s\"} %.3f\n", STR_ARGS(names[i]),
                      (double)model_staleness_ms(server->models[i]) / 1e3);
    buffer_printf(out, "# HELP leat_serve_waiting_rows Rows in the queue.\n"
                       "# TYPE leat_serve_waiting_rows gauge\n");
    for (uint32_t i = 0; i < count; i++)
        buffer_printf(out, "leat_serve_waiting_rows{model=\"%.*s\"} %" PRIu64 "\n", STR_ARGS(names[i]),
                      server->models[i]->waiting_rows);
    arena_reset(&server->scratch);
    put_control(server, out);
    put_followed(server, out);
    put_logs(server, out);
    put_net(server, out);
    if (server->options.metrics != NULL)
        server->options.metrics(server->options.user, out);
}

/* Why the model takes no requests; NULL: it does. */
static const char *reason_of(const struct serve_model *model)
{
    if (model_is_ready(model) || model->state != MODEL_SERVED)
        return control_reason(model);
    return model->job->loaded == NULL ? "no checkpoint yet"
           : model->job->is_broken    ? "its state cannot be read"
                                      : "too old to answer";
}

void server_tell_status(void *user)
{
    struct server *server = user;
    struct server_status *models =
        arena_array(&server->scratch, struct server_status, MAX(server->models_count, 1));
    for (uint32_t i = 0; i < server->models_count; i++) {
        const struct serve_model *model = server->models[i];
        models[i] = (struct server_status){.name = model->name,
                                           .figures = &model->figures,
                                           .reason = reason_of(model),
                                           .doing = live_doing(model->job),
                                           .staleness_ms = model_staleness_ms(model),
                                           .waiting_rows = model->waiting_rows};
    }
    server->options.status(server->options.user, models, server->models_count);
    arena_reset(&server->scratch);
}
