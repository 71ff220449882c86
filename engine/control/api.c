#include "control/api_internal.h"

#include "control/metrics.h"
#include "control/summary.h"

#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"

#include <stdlib.h>

enum { PUBLISH_US = 500 * 1000, GRACE_MS = 1000 };
static const uint64_t MEMORY_BYTES = 16 << 20;
static const size_t PEEK_POOL_BYTES = 16 << 20; /* of free rows of keys: more than a request's 100 */

/* --- Answers --- */

void api_answer(struct net_exchange *exchange, int status, struct str type, const struct byte_buffer *body)
{
    const struct net_field fields[] = {{STR("content-type"), type},
                                       {STR("cache-control"), STR("no-store")},
                                       {STR("x-content-type-options"), STR("nosniff")}};
    struct net_response response = {.status = status,
                                    .fields = fields,
                                    .fields_count = ARRAY_COUNT(fields),
                                    .body = {body->data, body->length}};
    net_respond(exchange, &response);
}

static void serve_health(struct api *api LEAT_UNUSED, struct net_exchange *exchange)
{
    net_respond_text(exchange, 200, "ok\n");
}

/* 503, and for what this process waits. */
static void say_waits(struct api *api, struct net_exchange *exchange)
{
    char text[sizeof(api->waits) + 64];
    pthread_mutex_lock(&api->mutex);
    if (api->waits[0] == '\0')
        snprintf(text, sizeof(text), "the run is being restored\n");
    else
        snprintf(text, sizeof(text), "there is no run yet; waiting: %s\n", api->waits);
    pthread_mutex_unlock(&api->mutex);
    net_respond_text(exchange, 503, text);
}

static void serve_ready(struct api *api, struct net_exchange *exchange)
{
    pthread_mutex_lock(&api->mutex);
    bool is_there = api->is_there;
    pthread_mutex_unlock(&api->mutex);
    if (is_there)
        net_respond_text(exchange, 200, "ok\n");
    else
        say_waits(api, exchange);
}

static void serve_metrics(struct api *api, struct net_exchange *exchange)
{
    struct byte_buffer out = {0};
    struct metrics_text text = {.out = &out, .is_openmetrics = metrics_wants_open(exchange)};
    metrics_common(&text, api->loop);
    pthread_mutex_lock(&api->mutex);
    struct metrics_source source = {api->plan, &api->stats, api->times, api->partitions};
    if (api->is_there)
        metrics_write(&source, &text);
    pthread_mutex_unlock(&api->mutex);
    metrics_end(&text);
    api_answer(exchange, 200, metrics_content_type(text.is_openmetrics), &out);
    buffer_free(&out);
}

bool api_put_figures(struct api *api, bool is_line, struct byte_buffer *out)
{
    pthread_mutex_lock(&api->mutex);
    bool is_there = api->is_there;
    struct summary summary = {.plan = api->plan,
                              .stats = &api->stats,
                              .watch = &api->watch,
                              .bottleneck = &api->recent,
                              .served = api->served,
                              .served_count = api->served_count,
                              .is_good = api->is_good,
                              .is_going_on = !atomic_load(&api->has_ended)};
    if (is_there && is_line)
        summary_put_line(&summary, os_wall_us() / 1000, out);
    else if (is_there)
        summary_put_json(&summary, out);
    pthread_mutex_unlock(&api->mutex);
    return is_there;
}

static void serve_figures(struct api *api, struct net_exchange *exchange)
{
    struct byte_buffer out = {0};
    if (api_put_figures(api, false, &out))
        api_answer(exchange, 200, STR("application/json"), &out);
    else
        say_waits(api, exchange);
    buffer_free(&out);
}

static void serve_history(struct api *api, struct net_exchange *exchange)
{
    history_serve(atomic_load(&api->history), api->plan, exchange);
}

bool api_may_act(struct api *api, struct net_exchange *exchange)
{
    if (!atomic_load(&api->can_act)) {
        net_respond_text(exchange, 403,
                         "the run cannot be told what to do: its job has no checkpoints, or it is "
                         "being restored\n");
        return false;
    }
    if (!net_sends_token(exchange, api->key.token)) {
        net_respond_text(exchange, 401,
                         "expected the field `authorization: Bearer TOKEN` with the token of the file "
                         "CONTROL, beside the checkpoints; `leat ctl` sends it\n");
        return false;
    }
    return true;
}

/* A call that acts on the run: the control thread does it. */
static void act(struct api *api, struct net_exchange *exchange, enum api_want want, const char *said)
{
    if (!api_may_act(api, exchange))
        return;
    int before = API_WANTS_NOTHING;
    while (before < (int)want && !atomic_compare_exchange_weak(&api->wanted, &before, (int)want))
        continue; /* a stop is not forgotten for a checkpoint */
    net_respond_text(exchange, 202, said);
}

static void serve_checkpoint(struct api *api, struct net_exchange *exchange)
{
    act(api, exchange, API_WANTS_CHECKPOINT, "a checkpoint is taken\n");
}

static void serve_stop(struct api *api, struct net_exchange *exchange)
{
    act(api, exchange, API_WANTS_STOP, "the run stops after a checkpoint\n");
}

static const struct api_parameter after_parameters[] = {
    {"after", "a number `n`: only what came behind it"},
    {0},
};
static const struct api_parameter state_parameters[] = {
    {"key", "a key, if the path has none; of several columns: a JSON array; up to 100 times"},
    {0},
};
static const struct api_parameter row_parameters[] = {
    {"field", "a feature of `sparse`"},
    {"value", "a value of it"},
    {0},
};
static const struct api_parameter savepoint_parameters[] = {
    {"name", "of the savepoint: 1 to 64 of a-z, 0-9, `_` and `-`; without it: that of the checkpoint"},
    {0},
};
static const struct api_parameter history_parameters[] = {
    {"node", "the node's `part`, as in the figures; without it: the run"},
    {"span", "1h, 12h or 30d; without it: 1h"},
    {"from", "Unix time in milliseconds: what the ring of that span has from then on"},
    {"to", "Unix time in milliseconds: what it has before"},
    {0},
};

const struct api_route api_routes[] = {
    {"GET", "/", api_page_serve, .summary = "the page", .statuses = "200 304", .type = "text/html"},
    {"GET", "/app.js", api_page_serve, .summary = "its program", .statuses = "200 304",
     .type = "text/javascript"},
    {"GET", "/app.css", api_page_serve, .summary = "its style", .statuses = "200 304", .type = "text/css"},
    {"GET", "/favicon.ico", api_icon_serve, .summary = "no icon", .statuses = "204"},
    {"GET", "/healthz", serve_health, .summary = "the process is there", .type = "text/plain"},
    {"GET", "/readyz", serve_ready, .summary = "the run has been restored", .type = "text/plain"},
    {"GET", "/metrics", serve_metrics, .summary = "figures for Prometheus", .type = "text/plain"},
    {"GET", "/api/v1/figures", serve_figures, .summary = "the run's figures now"},
    {"GET", "/api/v1/events", api_events_serve,
     .summary = "the figures once a second, and lines of the log, as server-sent events",
     .type = "text/event-stream"},
    {"GET", "/api/v1/plan", api_plan_serve, .summary = "the plan, with the places of its picture"},
    {"GET", "/api/v1/history", serve_history, .summary = "figures of the run or of a node over time",
     .parameters = history_parameters},
    {"GET", "/api/v1/log", api_log_serve, .summary = "the newest lines that the process said",
     .parameters = after_parameters},
    {"GET", "/api/v1/dead-letters", api_dead_letters_serve,
     .summary = "the newest rows that became dead letters", .parameters = after_parameters},
    {"GET", "/api/v1/checkpoints", api_checkpoints_serve,
     .summary = "the checkpoints there are, those that failed, and the position of the order log"},
    {"GET", "/api/v1/columns", api_columns_serve, .summary = "what the columns hold, by samples of the rows"},
    {"GET", "/api/v1/state/*", api_state_serve, .summary = "what a node stores for keys now",
     .parameters = state_parameters, .statuses = "200 429 501"},
    {"GET", "/api/v1/model/*", api_state_row_serve, .summary = "a learner's row for a value of a feature now",
     .parameters = row_parameters, .statuses = "200 429 501"},
    {"GET", "/api/v1/openapi.json", api_openapi_serve, .summary = "this document"},
    {"POST", "/api/v1/checkpoint", serve_checkpoint, .summary = "takes a checkpoint now", .statuses = "202",
     .type = "text/plain"},
    {"POST", "/api/v1/savepoint", savepoint_serve,
     .summary = "takes a checkpoint now, and answers when its copy in `savepoints` is whole",
     .parameters = savepoint_parameters, .statuses = "200 409 429"},
    {"POST", "/api/v1/stop", serve_stop, .summary = "takes a last checkpoint and stops the run",
     .statuses = "202", .type = "text/plain"},
};
const size_t api_routes_count = ARRAY_COUNT(api_routes);

/* route: a path, or what paths begin with and a `*`. */
static bool matches(struct str path, const char *route)
{
    size_t length = strlen(route);
    if (route[length - 1] != '*')
        return str_is(path, route);
    return path.length >= length - 1 && memcmp(path.data, route, length - 1) == 0;
}

static void refuse_path(struct net_exchange *exchange)
{
    struct byte_buffer out = {0};
    buffer_printf(&out, "there is no such path; there are:\n");
    for (size_t i = 0; i < api_routes_count; i++)
        buffer_printf(&out, "%s %s\n", api_routes[i].method, api_routes[i].path);
    buffer_append(&out, "", 1);
    net_respond_text(exchange, 404, out.data);
    buffer_free(&out);
}

static void refuse_method(const struct api_route *route, struct net_exchange *exchange)
{
    bool is_get = strcmp(route->method, "GET") == 0;
    const struct net_field fields[] = {{STR("content-type"), STR("text/plain; charset=utf-8")},
                                       {STR("allow"), is_get ? STR("GET, HEAD") : str_from(route->method)}};
    struct net_response response = {
        .status = 405,
        .fields = fields,
        .fields_count = ARRAY_COUNT(fields),
        .body =
            STR("figures are read with GET; a checkpoint, a savepoint and a stop are asked for with POST\n")};
    net_respond(exchange, &response);
}

/* HEAD is answered as GET is; the connection leaves the body out. */
static bool has_method(const struct api_route *route, struct str method)
{
    return str_is(method, route->method) || (str_is(method, "HEAD") && strcmp(route->method, "GET") == 0);
}

static void serve(void *user, struct net_exchange *exchange)
{
    const struct api_route *route = NULL;
    for (size_t i = 0; i < api_routes_count && route == NULL; i++)
        if (matches(exchange->path, api_routes[i].path))
            route = &api_routes[i];
    if (route == NULL)
        refuse_path(exchange);
    else if (!has_method(route, exchange->method))
        refuse_method(route, exchange);
    else
        route->serve(user, exchange);
}

static const struct net_service service = {.serve = serve};

/* --- The thread --- */

static void turn(void *user)
{
    struct api *api = user;
    api_state_turn(api);
    savepoint_turn(api);
    api_events_turn(api->events);
}

static void *run_loop(void *argument)
{
    struct api *api = argument;
    net_loop_run(api->loop, GRACE_MS);
    return NULL;
}

static void served_free(struct api *api)
{
    for (uint32_t i = 0; i < api->served_count; i++)
        free(api->served_names[i]);
    free(api->served_names);
    free(api->served);
    api->served_names = NULL;
    api->served = NULL;
    api->served_count = 0;
}

static void api_free(struct api *api)
{
    net_loop_free(api->loop);
    api_events_free(api->events);
    api_page_free(api->page);
    api_state_drop(api);
    pthread_mutex_destroy(&api->ready_mutex);
    batch_pool_free(api->peek_pool);
    savepoint_free(api->savepoint);
    partition_watch_free(api->partitions);
    history_watch_free(atomic_load(&api->history));
    pthread_mutex_destroy(&api->mutex);
    run_times_free(api->times);
    run_checkpoint_list_free(api->checkpoints);
    served_free(api);
    api_key_free(&api->key);
    free(api->folder);
    free(api);
}

/* Where this machine's programs find a listener of that host; for 0.0.0.0 and [::], of all addresses: on loopback. */
static char *address_here(struct str host, uint16_t port)
{
    if (str_is(host, "0.0.0.0"))
        host = STR("127.0.0.1");
    else if (str_is(host, "[::]"))
        host = STR("[::1]");
    return mem_printf("%.*s:%u", STR_ARGS(host), port);
}

struct api *api_start(const struct plan *plan, const struct net_listen *listen, struct diag_list *diags)
{
    struct api *api = mem_calloc(1, sizeof(*api));
    api->plan = plan;
    api->is_good = true;
    pthread_mutex_init(&api->mutex, NULL);
    pthread_mutex_init(&api->ready_mutex, NULL);
    api->loop = net_loop_new(MEMORY_BYTES, turn, api);
    api->page = api_page_new();
    api->events = api_events_new(api);
    api->savepoint = savepoint_new();
    api->peek_pool = batch_pool_new();
    batch_pool_set_budget(api->peek_pool, PEEK_POOL_BYTES);
    api->partitions = partition_watch_new();
    struct net_listen both = *listen;
    both.open_paths = api_page_paths;
    uint16_t port = 0;
    if (!api_token_make(api->key.token))
        diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "the system has no random bytes");
    else {
        both.second_token = listen->token == NULL ? NULL : api->key.token;
        port = net_loop_listen(api->loop, &both, &service, api, diags);
    }
    if (port != 0 && pthread_create(&api->thread, NULL, run_loop, api) != 0) {
        diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "the system has no thread for the control API");
        port = 0;
    }
    if (port == 0) {
        api_free(api);
        return NULL;
    }
    size_t host = listen->address.length;
    while (host > 0 && listen->address.data[host - 1] != ':')
        host--;
    api->key.address = address_here((struct str){listen->address.data, host - 1}, port);
    api->key.certificate = listen->certificate == NULL ? NULL : mem_strdup(listen->certificate);
    const char *scheme = listen->certificate == NULL ? "http" : "https";
    log_say(LOG_LEVEL_INFO, "the run's page at %s://%s/", scheme, api->key.address);
    log_say(LOG_LEVEL_INFO, "figures at %s://%.*s:%u/api/v1/figures and /metrics", scheme, (int)host - 1,
            listen->address.data, port);
    return api;
}

void api_waits(struct api *api, const char *text)
{
    pthread_mutex_lock(&api->mutex);
    snprintf(api->waits, sizeof(api->waits), "%s", text);
    pthread_mutex_unlock(&api->mutex);
}

void api_begin(struct api *api, struct run *run)
{
    api_waits(api, "");
    atomic_store(&api->run, run);
    api->folder = mem_strdup(run_folder(run));
    struct str directory = str_from(api->folder);
    leat_assert(atomic_load(&api->history) == NULL);
    atomic_store(&api->history, history_watch_new(api->plan, api->folder));
    int error = directory.length == 0 ? 0 : api_key_write(directory, &api->key);
    if (error != 0)
        log_say(LOG_LEVEL_WARNING, "`leat ctl` cannot find this run: %.*s/CONTROL cannot be written: %s",
                STR_ARGS(directory), strerror(error));
    atomic_store(&api->can_act, directory.length > 0 && error == 0);
}

enum api_want api_wants(struct api *api)
{
    return (enum api_want)atomic_exchange(&api->wanted, API_WANTS_NOTHING);
}

void api_tend(struct api *api, struct run *run)
{
    savepoint_tend(api, run);
}

void api_served(struct api *api, const struct summary_served *served, uint32_t count)
{
    pthread_mutex_lock(&api->mutex);
    served_free(api);
    api->served = mem_calloc(count, sizeof(*served));
    api->served_names = mem_calloc(count, sizeof(*api->served_names));
    api->served_count = count;
    for (uint32_t i = 0; i < count; i++) {
        api->served[i] = served[i];
        api->served[i].name = api->served_names[i] = mem_strdup(served[i].name);
    }
    pthread_mutex_unlock(&api->mutex);
}

/* The figures; with the mutex. */
static void take(struct api *api, const struct run_stats *stats, const struct dead_watch *watch,
                 const struct bottleneck_found *found)
{
    api->stats = *stats;
    /* held_by points into stats */
    if (stats->held_by != NULL)
        api->stats.held_by = &api->stats.nodes[stats->held_by - stats->nodes];
    api->watch = *watch;
    api->recent = found != NULL ? *found : (struct bottleneck_found){.node = -1};
    api->is_there = true;
}

void api_publish(struct api *api, struct run *run, const struct run_stats *stats,
                 const struct dead_watch *watch, const struct bottleneck_found *recent)
{
    int64_t now = os_monotonic_us();
    struct history_watch *history = atomic_load(&api->history);
    if (history != NULL)
        history_watch_look(history, stats, recent);
    if (api->is_there && now - api->published_us < PUBLISH_US) /* the control thread alone sets is_there */
        return;
    api->published_us = now;
    pthread_mutex_lock(&api->mutex);
    if (api->times == NULL)
        api->times = run_times_new(run);
    run_times(run, api->times);
    partition_watch_look(api->partitions, run);
    take(api, stats, watch, recent);
    pthread_mutex_unlock(&api->mutex);
}

void api_end(struct api *api, const struct run_stats *stats, const struct dead_watch *watch,
             const struct bottleneck_found *whole, bool is_good)
{
    pthread_mutex_lock(&api->mutex);
    take(api, stats, watch, whole);
    api->is_good = is_good;
    atomic_store(&api->has_ended, true);
    pthread_mutex_unlock(&api->mutex);
    net_loop_wake(api->loop);
}

void api_stop(struct api *api)
{
    if (api == NULL)
        return;
    savepoint_end(api);
    net_loop_stop(api->loop);
    pthread_join(api->thread, NULL);
    if (atomic_load(&api->can_act))
        api_key_remove(str_from(api->folder), &api->key);
    api_free(api);
}
