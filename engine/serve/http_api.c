/* The Open Inference Protocol v2 over HTTP, with Triton's statistics and model repository:
 *
 *     GET  /v2   /v2/health/live   /v2/health/ready
 *     GET  /v2/models/NAME[/versions/V]   .../ready   .../stats      GET /v2/models/stats
 *     POST /v2/models/NAME[/versions/V]/infer                                at the listeners of scores alone
 *     POST /v2/repository/index
 *     POST /v2/repository/models/NAME/load   .../unload                      at the control listener alone
 *     GET  /metrics   /openapi.json */
#include "serve/control.h"

#include "core/os.h"
#include "formats/json_escape.h"

#include <inttypes.h>

enum { SEGMENTS_MAX = 8 };

static const char no_such_call[] = "there is no such call; /openapi.json lists them";

/* A path in its segments. */
struct route {
    struct str segments[SEGMENTS_MAX];
    uint32_t count;
};

static bool is_get(const struct net_exchange *exchange)
{
    return str_is(exchange->method, "GET") || str_is(exchange->method, "HEAD");
}

static bool split(struct str path, struct route *route)
{
    route->count = 0;
    for (size_t at = 1; at < path.length;) {
        const char *end = memchr(path.data + at, '/', path.length - at);
        size_t length = end == NULL ? path.length - at : (size_t)(end - (path.data + at));
        if (route->count == SEGMENTS_MAX)
            return false;
        route->segments[route->count++] = (struct str){path.data + at, length};
        at += length + 1;
    }
    return true;
}

static bool is_segment(const struct route *route, uint32_t i, const char *text)
{
    return i < route->count && str_is(route->segments[i], text);
}

/* --- Answers --- */

static void respond(struct net_exchange *exchange, int status, const char *type, const struct net_field *more,
                    struct str body)
{
    struct net_field fields[2] = {{STR("content-type"), str_from(type)}};
    uint32_t count = 1;
    if (more != NULL)
        fields[count++] = *more;
    struct net_response response = {.status = status, .fields = fields, .fields_count = count, .body = body};
    net_respond(exchange, &response);
}

static void respond_json(struct server *server, struct net_exchange *exchange, int status)
{
    respond(exchange, status, "application/json", NULL, (struct str){server->out.data, server->out.length});
}

static int status_of(enum refusal refusal)
{
    switch (refusal) {
    case REFUSAL_BAD: return 400;
    case REFUSAL_NOT_FOUND: return 404;
    case REFUSAL_TOO_LARGE: return 413;
    case REFUSAL_NOT_SUPPORTED: return 501;
    case REFUSAL_FORBIDDEN: return 403;
    case REFUSAL_NOT_READY:
    case REFUSAL_SHED: return 503;
    case REFUSAL_REJECTED: return 422;
    case REFUSAL_EXPIRED: return 504;
    case REFUSAL_FAILED: return 500;
    }
    return 500;
}

static void refuse(struct server *server, struct net_exchange *exchange, enum refusal refusal,
                   const char *text)
{
    struct net_field retry = {STR("retry-after"), STR("1")};
    bool may_retry = refusal == REFUSAL_SHED || refusal == REFUSAL_NOT_READY;
    buffer_clear(&server->out);
    infer_json_error(text, &server->out);
    respond(exchange, status_of(refusal), "application/json", may_retry ? &retry : NULL,
            (struct str){server->out.data, server->out.length});
}

static bool answer(struct server *server, struct call *call, const struct infer_tensor *tensors,
                   uint32_t tensors_count, const struct infer_facts *facts)
{
    char length[24];
    struct net_field field = {STR("inference-header-content-length"), {0}};
    buffer_clear(&server->out);
    size_t json =
        infer_json_write(call->model->infer, &call->request, tensors, tensors_count, facts, &server->out);
    if (server->out.length > ANSWER_BYTES_MAX)
        return false;
    bool has_binary = json < server->out.length;
    if (has_binary) {
        snprintf(length, sizeof(length), "%zu", json);
        field.value = str_from(length);
    }
    respond(call->exchange, 200, has_binary ? "application/octet-stream" : "application/json",
            has_binary ? &field : NULL, (struct str){server->out.data, server->out.length});
    return true;
}

static void done(struct server *server LEAT_UNUSED, struct net_exchange *exchange)
{
    respond(exchange, 200, "application/json", NULL, (struct str){"", 0});
}

static const struct wire http = {.answer = answer, .refuse = refuse, .done = done};

/* --- Inference --- */

/* Length of the JSON part of the body; SIZE_MAX: the header field says something else than a length. */
static size_t json_bytes_of(const struct net_exchange *exchange)
{
    struct str text = net_field(exchange, "inference-header-content-length");
    if (text.data == NULL)
        return exchange->body.length;
    size_t bytes = 0;
    for (size_t i = 0; i < text.length; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || bytes > exchange->body.length)
            return SIZE_MAX;
        bytes = bytes * 10 + (size_t)(text.data[i] - '0');
    }
    return text.length > 0 && bytes <= exchange->body.length ? bytes : SIZE_MAX;
}

static void infer(struct server *server, struct net_exchange *exchange, struct str model, struct str version)
{
    struct call *call = call_new(server, &http, exchange);
    struct infer_problem problem = {0};
    size_t json_bytes = json_bytes_of(exchange);
    struct str encoding = net_field(exchange, "content-encoding");
    call->model = server_model(server, model);
    if (call_shed_unread(server, call))
        return;
    if (encoding.data != NULL && !str_is(encoding, "identity")) {
        call_refuse(server, call, REFUSAL_NOT_SUPPORTED, "compressed requests are not supported");
    } else if (json_bytes == SIZE_MAX) {
        call_refuse(server, call, REFUSAL_BAD,
                    "Inference-Header-Content-Length is not a length within the body");
    } else if (!infer_json_read(exchange->body, json_bytes, &call->request, &call->arena, &problem)) {
        call_refuse(server, call, call_refusal(problem.fault), problem.text);
    } else {
        call->request.model = model;
        call->request.version = version;
        call_submit(server, call);
    }
}

/* --- Metadata --- */

static void put_text(struct byte_buffer *out, const char *name, struct str value)
{
    buffer_printf(out, "\"%s\":", name);
    json_quote(out, value);
}

static void put_columns(struct byte_buffer *out, const char *name, const struct infer_column *columns,
                        uint32_t count)
{
    buffer_printf(out, ",\"%s\":[", name);
    for (uint32_t i = 0; i < count; i++) {
        buffer_printf(out, "%s{", i == 0 ? "" : ",");
        put_text(out, "name", columns[i].name);
        buffer_printf(out, ",\"datatype\":\"%s\",\"shape\":[-1]}", infer_type_name(columns[i].type));
        if (columns[i].is_list)
            buffer_printf(out, ",{\"name\":\"%.*s.lengths\",\"datatype\":\"INT64\",\"shape\":[-1]}",
                          STR_ARGS(columns[i].name));
    }
    buffer_printf(out, "]");
}

static void put_metadata(const struct serve_model *model, struct byte_buffer *out)
{
    const struct infer_column *columns;
    buffer_printf(out, "{");
    put_text(out, "name", model->name);
    buffer_printf(out, ",\"versions\":[\"" INFER_VERSION "\"],\"platform\":\"leat\"");
    uint32_t count = infer_inputs(model->infer, &columns);
    put_columns(out, "inputs", columns, count);
    count = infer_outputs(model->infer, &columns);
    put_columns(out, "outputs", columns, count);
    buffer_printf(out, "}");
}

static void put_duration(struct byte_buffer *out, const char *name, uint64_t count, uint64_t ns)
{
    buffer_printf(out, "\"%s\":{\"count\":%" PRIu64 ",\"ns\":%" PRIu64 "}", name, count, ns);
}

static void put_statistics(const struct serve_model *model, struct byte_buffer *out)
{
    struct infer_statistics s = figures_statistics(&model->figures);
    buffer_printf(out, "{");
    put_text(out, "name", model->name);
    buffer_printf(out,
                  ",\"version\":\"" INFER_VERSION "\",\"last_inference\":%" PRId64
                  ",\"inference_count\":%" PRIu64 ",\"execution_count\":%" PRIu64 ",\"inference_stats\":{",
                  s.last_ms, s.inferences, s.executions);
    put_duration(out, "success", s.successes, s.success_ns);
    buffer_printf(out, ",");
    put_duration(out, "fail", s.failures, s.fail_ns);
    buffer_printf(out, ",");
    put_duration(out, "queue", s.successes, s.queue_ns);
    buffer_printf(out, ",");
    put_duration(out, "compute_input", s.successes, s.input_ns);
    buffer_printf(out, ",");
    put_duration(out, "compute_infer", s.successes, s.compute_ns);
    buffer_printf(out, ",");
    put_duration(out, "compute_output", s.successes, s.output_ns);
    buffer_printf(out, "},\"batch_stats\":[]}");
}

static void statistics(struct server *server, struct net_exchange *exchange, const struct serve_model *only)
{
    struct byte_buffer *out = &server->out;
    buffer_printf(out, "{\"model_stats\":[");
    bool is_first = true;
    for (uint32_t i = 0; i < server->models_count; i++) {
        if (only != NULL && only != server->models[i])
            continue;
        buffer_printf(out, "%s", is_first ? "" : ",");
        put_statistics(server->models[i], out);
        is_first = false;
    }
    buffer_printf(out, "]}");
    respond_json(server, exchange, 200);
}

/* --- The repository of models --- */

static void repository_index(struct server *server, struct net_exchange *exchange)
{
    struct byte_buffer *out = &server->out;
    bool only_ready, is_first = true;
    const char *wrong = control_read_index(exchange->body, &only_ready, &server->scratch);
    if (wrong != NULL) {
        refuse(server, exchange, REFUSAL_BAD, wrong);
        return;
    }
    buffer_printf(out, "[");
    for (uint32_t i = 0; i < server->models_count; i++) {
        const char *reason = control_reason(server->models[i]);
        if (only_ready && reason != NULL)
            continue;
        buffer_printf(out, "%s{", is_first ? "" : ",");
        is_first = false;
        put_text(out, "name", server->models[i]->name);
        buffer_printf(out, ",\"version\":\"" INFER_VERSION "\",\"state\":\"%s\",\"reason\":\"%s\"}",
                      reason == NULL ? "READY" : "UNAVAILABLE", reason == NULL ? "" : reason);
    }
    buffer_printf(out, "]");
    respond_json(server, exchange, 200);
}

/* /v2/repository/models/NAME/load, .../unload */
static void change(struct server *server, struct net_exchange *exchange, const struct route *route,
                   bool is_control)
{
    struct control_ask ask = {.wire = &http, .exchange = exchange, .is_load = is_segment(route, 4, "load")};
    const char *wrong;
    if (route->count != 5 || (!ask.is_load && !is_segment(route, 4, "unload"))) {
        refuse(server, exchange, REFUSAL_NOT_FOUND, no_such_call);
    } else if (!is_control) {
        refuse(server, exchange, REFUSAL_FORBIDDEN, REFUSED_CONTROL);
    } else if (!str_is(exchange->method, "POST")) {
        infer_json_error("load and unload take POST", &server->out);
        respond_json(server, exchange, 405);
    } else if ((wrong = control_read_json(exchange->body, &ask, &server->scratch)) != NULL) {
        refuse(server, exchange, REFUSAL_BAD, wrong);
    } else {
        ask.model = route->segments[3];
        control_ask(server, &ask);
    }
}

/* --- Routes --- */

static void health(struct net_exchange *exchange, bool is_good)
{
    net_respond_text(exchange, is_good ? 200 : 503, is_good ? "" : "not ready\n");
}

/* /v2/models/... */
static void model_route(struct server *server, struct net_exchange *exchange, const struct route *route,
                        bool is_control)
{
    if (is_segment(route, 2, "stats") && route->count == 3 && is_get(exchange)) {
        statistics(server, exchange, NULL);
        return;
    }
    bool has_version = is_segment(route, 3, "versions") && route->count > 4;
    struct str name = route->count > 2 ? route->segments[2] : STR("");
    struct str version = has_version ? route->segments[4] : STR("");
    uint32_t at = has_version ? 5 : 3;
    bool is_post = str_is(exchange->method, "POST"), is_last = route->count == at + 1;
    if (is_last && is_segment(route, at, "infer") && is_post && is_control) {
        refuse(server, exchange, REFUSAL_FORBIDDEN, REFUSED_SCORES);
        return;
    }
    if (is_last && is_segment(route, at, "infer") && is_post) {
        infer(server, exchange, name, version);
        return;
    }
    const struct serve_model *model = server_model(server, name);
    if (model == NULL || (has_version && !str_is(version, INFER_VERSION))) {
        server->unknown_models++;
        refuse(server, exchange, REFUSAL_NOT_FOUND, "there is no such model or version");
    } else if (is_last && is_segment(route, at, "infer")) {
        buffer_clear(&server->out);
        infer_json_error("infer takes POST", &server->out);
        respond_json(server, exchange, 405);
    } else if (is_last && is_segment(route, at, "ready") && is_get(exchange)) {
        health(exchange, model_is_ready(model));
    } else if (is_last && is_segment(route, at, "stats") && is_get(exchange)) {
        statistics(server, exchange, model);
    } else if (route->count == at && is_get(exchange)) {
        put_metadata(model, &server->out);
        respond_json(server, exchange, 200);
    } else {
        refuse(server, exchange, REFUSAL_NOT_FOUND, no_such_call);
    }
}

static void metrics(struct server *server, struct net_exchange *exchange)
{
    struct metrics_text text = {.out = &server->out, .is_openmetrics = metrics_wants_open(exchange)};
    server_write_metrics(server, &text);
    respond(exchange, 200, metrics_content_type(text.is_openmetrics).data, NULL,
            (struct str){server->out.data, server->out.length});
}

static void find_route(struct server *server, struct net_exchange *exchange, bool is_control)
{
    struct route route;
    if (!split(exchange->path, &route) || route.count == 0) {
        refuse(server, exchange, REFUSAL_NOT_FOUND, no_such_call);
    } else if (is_segment(&route, 0, "metrics") && route.count == 1 && is_get(exchange)) {
        metrics(server, exchange);
    } else if (is_segment(&route, 0, "openapi.json") && route.count == 1 && is_get(exchange)) {
        openapi_write(server, is_control, &server->out);
        respond_json(server, exchange, 200);
    } else if (!is_segment(&route, 0, "v2")) {
        refuse(server, exchange, REFUSAL_NOT_FOUND, no_such_call);
    } else if (route.count == 1 && is_get(exchange)) {
        buffer_printf(&server->out,
                      "{\"name\":\"leat\",\"version\":\"%s\",\"extensions\":[\"binary_tensor_data\","
                      "\"statistics\",\"model_repository\"]}",
                      LEAT_VERSION);
        respond_json(server, exchange, 200);
    } else if (is_segment(&route, 1, "health") && is_segment(&route, 2, "live") && route.count == 3) {
        health(exchange, true);
    } else if (is_segment(&route, 1, "health") && is_segment(&route, 2, "ready") && route.count == 3) {
        health(exchange, server_is_ready(server));
    } else if (is_segment(&route, 1, "models") && route.count > 2) {
        model_route(server, exchange, &route, is_control);
    } else if (is_segment(&route, 1, "repository") && is_segment(&route, 2, "index") && route.count == 3) {
        repository_index(server, exchange);
    } else if (is_segment(&route, 1, "repository") && is_segment(&route, 2, "models")) {
        change(server, exchange, &route, is_control);
    } else {
        refuse(server, exchange, REFUSAL_NOT_FOUND, no_such_call);
    }
}

void http_serve(struct server *server, struct net_exchange *exchange, bool is_control)
{
    buffer_clear(&server->out);
    find_route(server, exchange, is_control);
    arena_reset(&server->scratch);
}
