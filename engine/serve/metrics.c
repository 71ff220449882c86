/* GET /metrics: the figures of models and connections; and those of models for a view. */
#include "serve/control.h"
#include "serve/metrics_table.h"

/* Which models are loaded, and what became of requests to load and to unload. */
static void put_control(const struct server *server, struct metrics_text *text)
{
    static const char *const outcomes[CONTROL_OUTCOMES] = {"loaded", "unloaded", "failed", "refused"};
    metrics_head(text, &serve_metrics[METRIC_SERVE_LOADED]);
    for (uint32_t i = 0; i < server->models_count; i++) {
        serve_metric_begin(text, METRIC_SERVE_LOADED, server->models[i]->name);
        metrics_count(text, server->models[i]->state == MODEL_SERVED);
    }
    metrics_head(text, &serve_metrics[METRIC_SERVE_CONTROL]);
    for (uint32_t i = 0; i < server->models_count; i++)
        for (uint32_t k = 0; k < CONTROL_OUTCOMES; k++) {
            serve_metric_begin(text, METRIC_SERVE_CONTROL, server->models[i]->name);
            metrics_label(text, "outcome", str_from(outcomes[k]));
            metrics_count(text, server->models[i]->control[k]);
        }
}

/* How far jobs are followed. */
static void put_followed(struct server *server, struct metrics_text *text)
{
    for (enum serve_metric metric = METRIC_FOLLOW_LIVE; metric <= METRIC_FOLLOW_BYTES; metric++) {
        metrics_head(text, &serve_metrics[metric]);
        for (struct serve_job *job = server->jobs; job != NULL; job = job->next) {
            struct follow_figures figures = {0};
            if (job->follow != NULL)
                figures = follow_figures(job->follow);
            const uint64_t values[] = {job->was_live, job->features, job->past_rows + figures.rows,
                                       job->past_cuts + figures.cuts, job->past_bytes + figures.bytes};
            serve_metric_begin(text, metric, job->plan->name);
            metrics_count(text, values[metric - METRIC_FOLLOW_LIVE]);
        }
    }
}

static struct served_counts counts_of(const struct serve_model *model)
{
    static const struct served_counts none;
    return model->log == NULL ? none : served_counts(model->log);
}

static void put_logs(const struct server *server, struct metrics_text *text)
{
    metrics_head(text, &serve_metrics[METRIC_SERVE_LOG_LINES]);
    for (uint32_t i = 0; i < server->models_count; i++) {
        struct served_counts counts = counts_of(server->models[i]);
        serve_metric_begin(text, METRIC_SERVE_LOG_LINES, server->models[i]->name);
        metrics_label(text, "outcome", STR("written"));
        metrics_count(text, counts.lines);
        serve_metric_begin(text, METRIC_SERVE_LOG_LINES, server->models[i]->name);
        metrics_label(text, "outcome", STR("lost"));
        metrics_count(text, counts.lost);
    }
    metrics_head(text, &serve_metrics[METRIC_SERVE_LOG_WAITING]);
    for (uint32_t i = 0; i < server->models_count; i++) {
        serve_metric_begin(text, METRIC_SERVE_LOG_WAITING, server->models[i]->name);
        metrics_count(text, counts_of(server->models[i]).waiting);
    }
}

void server_write_metrics(struct server *server, struct metrics_text *text)
{
    uint32_t count = server->models_count;
    struct str *names = arena_array(&server->scratch, struct str, MAX(count, 1));
    const struct figures **figures = arena_array(&server->scratch, const struct figures *, MAX(count, 1));
    for (uint32_t i = 0; i < count; i++) {
        names[i] = server->models[i]->name;
        figures[i] = &server->models[i]->figures;
    }
    figures_write(names, figures, count, text);
    metrics_head(text, &serve_metrics[METRIC_SERVE_STALENESS]);
    for (uint32_t i = 0; i < count; i++) {
        int64_t staleness_ms = model_staleness_ms(server->models[i]);
        serve_metric_begin(text, METRIC_SERVE_STALENESS, names[i]);
        metrics_value(text, staleness_ms < 0 ? -1 : (double)staleness_ms / 1e3);
    }
    metrics_head(text, &serve_metrics[METRIC_SERVE_WAITING_ROWS]);
    for (uint32_t i = 0; i < count; i++) {
        serve_metric_begin(text, METRIC_SERVE_WAITING_ROWS, names[i]);
        metrics_count(text, server->models[i]->waiting_rows);
    }
    arena_reset(&server->scratch);
    put_control(server, text);
    put_followed(server, text);
    put_logs(server, text);
    metrics_single(text, &serve_metrics[METRIC_SERVE_UNKNOWN_MODELS], server->unknown_models);
    if (server->options.metrics != NULL)
        server->options.metrics(server->options.user, text);
    metrics_common(text, server->loop);
    metrics_end(text);
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
