/* inference.GRPCInferenceService and grpc.health.v1.Health, unary calls over HTTP/2. */
#include "serve/control.h"
#include "serve/infer_grpc.h"

/* --- Answers --- */

static void respond(struct net_exchange *exchange, enum grpc_status status, const char *text, struct str body)
{
    char code[12];
    struct arena arena = {0};
    snprintf(code, sizeof(code), "%d", status);
    struct net_field fields[] = {{STR("content-type"), STR("application/grpc")}};
    struct net_field trailers[] = {
        {STR("grpc-status"), str_from(code)},
        {STR("grpc-message"), text == NULL ? STR("") : str_from(grpc_message(text, &arena))}};
    struct net_response response = {.status = 200,
                                    .fields = fields,
                                    .fields_count = ARRAY_COUNT(fields),
                                    .body = body,
                                    .trailers = trailers,
                                    .trailers_count = text == NULL ? 1 : 2};
    net_respond(exchange, &response);
    arena_free(&arena);
}

/* The message is built behind five bytes for its frame. */
static void begin_message(struct server *server)
{
    buffer_clear(&server->out);
    grpc_frame(0, &server->out);
}

static void send_message(struct server *server, struct net_exchange *exchange)
{
    struct byte_buffer *out = &server->out;
    grpc_frame_close(0, out);
    respond(exchange, GRPC_OK, NULL, (struct str){out->data, out->length});
}

static enum grpc_status status_of(enum refusal refusal)
{
    switch (refusal) {
    case REFUSAL_BAD:
    case REFUSAL_REJECTED: return GRPC_INVALID_ARGUMENT;
    case REFUSAL_NOT_FOUND: return GRPC_NOT_FOUND;
    case REFUSAL_NOT_SUPPORTED: return GRPC_UNIMPLEMENTED;
    case REFUSAL_FORBIDDEN: return GRPC_FAILED_PRECONDITION;
    case REFUSAL_NOT_READY: return GRPC_UNAVAILABLE;
    case REFUSAL_TOO_LARGE:
    case REFUSAL_SHED: return GRPC_RESOURCE_EXHAUSTED;
    case REFUSAL_EXPIRED: return GRPC_DEADLINE_EXCEEDED;
    case REFUSAL_FAILED: return GRPC_INTERNAL;
    }
    return GRPC_INTERNAL;
}

static void refuse(struct server *server LEAT_UNUSED, struct net_exchange *exchange, enum refusal refusal,
                   const char *text)
{
    respond(exchange, status_of(refusal), text, (struct str){"", 0});
}

static bool answer(struct server *server, struct call *call, const struct infer_tensor *tensors,
                   uint32_t tensors_count, const struct infer_facts *facts)
{
    begin_message(server);
    infer_grpc_write(call->model->infer, &call->request, tensors, tensors_count, facts, &server->out);
    if (server->out.length > ANSWER_BYTES_MAX)
        return false;
    send_message(server, call->exchange);
    return true;
}

/* RepositoryModelLoadResponse and RepositoryModelUnloadResponse have no fields. */
static void done(struct server *server, struct net_exchange *exchange)
{
    begin_message(server);
    send_message(server, exchange);
}

static const struct wire grpc = {.answer = answer, .refuse = refuse, .done = done};

/* --- Methods --- */

static const char not_of_method[] = "the message is not one of this method";

/* What a method is given: the message's model and version, where it has them. */
struct method_call {
    struct net_exchange *exchange;
    struct str message, name, version;
    struct serve_model *model; /* NULL: none of that name and version */
    bool is_control;           /* it came to the control listener */
};

static void server_live(struct server *server, struct method_call *call)
{
    begin_message(server);
    grpc_write_live(true, &server->out);
    send_message(server, call->exchange);
}

static void server_ready(struct server *server, struct method_call *call)
{
    begin_message(server);
    grpc_write_live(server_is_ready(server), &server->out);
    send_message(server, call->exchange);
}

static void server_metadata(struct server *server, struct method_call *call)
{
    static const char *const extensions[] = {"statistics", "model_repository", NULL};
    begin_message(server);
    grpc_write_server(LEAT_VERSION, extensions, &server->out);
    send_message(server, call->exchange);
}

static void model_ready(struct server *server, struct method_call *call)
{
    begin_message(server);
    grpc_write_live(call->model != NULL && model_is_ready(call->model), &server->out);
    send_message(server, call->exchange);
}

static void model_metadata(struct server *server, struct method_call *call)
{
    begin_message(server);
    grpc_write_metadata(call->model->infer, call->model->name, &server->out);
    send_message(server, call->exchange);
}

/* Of one model, or of all. */
static void model_statistics(struct server *server, struct method_call *call)
{
    begin_message(server);
    for (uint32_t i = 0; i < server->models_count; i++)
        if (call->model == NULL || call->model == server->models[i]) {
            struct infer_statistics statistics = figures_statistics(&server->models[i]->figures);
            grpc_write_statistics(server->models[i]->name, &statistics, &server->out);
        }
    send_message(server, call->exchange);
}

static void repository_index(struct server *server, struct method_call *call)
{
    struct str *names = arena_array(&server->scratch, struct str, MAX(server->models_count, 1));
    const char **reasons = arena_array(&server->scratch, const char *, MAX(server->models_count, 1));
    uint32_t count = 0;
    bool only_ready;
    if (!grpc_read_index(call->message, &only_ready, &server->scratch)) {
        refuse(server, call->exchange, REFUSAL_BAD, not_of_method);
        return;
    }
    for (uint32_t i = 0; i < server->models_count; i++) {
        names[count] = server->models[i]->name;
        reasons[count] = control_reason(server->models[i]);
        if (!only_ready || reasons[count] == NULL)
            count++;
    }
    begin_message(server);
    grpc_write_index(names, reasons, count, &server->out);
    send_message(server, call->exchange);
}

static void repository_change(struct server *server, struct method_call *call, bool is_load)
{
    struct control_ask ask = {.wire = &grpc, .exchange = call->exchange, .is_load = is_load};
    struct grpc_change change;
    if (!call->is_control) {
        refuse(server, call->exchange, REFUSAL_FORBIDDEN, REFUSED_CONTROL);
        return;
    }
    if (!grpc_read_change(call->message, &change, &server->scratch)) {
        refuse(server, call->exchange, REFUSAL_BAD, not_of_method);
        return;
    }
    ask.model = change.model;
    if (change.repository.length > 0)
        ask.refused = STR("repository_name");
    for (uint32_t i = 0; i < change.parameters_count && ask.refused.data == NULL; i++)
        if (!control_takes(is_load, change.parameters[i]))
            ask.refused = change.parameters[i];
    control_ask(server, &ask);
}

static void repository_load(struct server *server, struct method_call *call)
{
    repository_change(server, call, true);
}

static void repository_unload(struct server *server, struct method_call *call)
{
    repository_change(server, call, false);
}

static void health_check(struct server *server, struct method_call *call)
{
    bool is_all = call->name.length == 0 || str_is(call->name, "inference.GRPCInferenceService");
    begin_message(server);
    grpc_write_health(is_all ? server_is_ready(server) : model_is_ready(call->model), &server->out);
    send_message(server, call->exchange);
}

static void model_infer(struct server *server, struct method_call *method)
{
    if (method->is_control) {
        refuse(server, method->exchange, REFUSAL_FORBIDDEN, REFUSED_SCORES);
        return;
    }
    struct call *call = call_new(server, &grpc, method->exchange);
    struct infer_problem problem = {0};
    struct str timeout = net_field(method->exchange, "grpc-timeout");
    int64_t timeout_us = timeout.data == NULL ? 0 : grpc_timeout_us(timeout);
    if (timeout_us < 0) {
        call_refuse(server, call, REFUSAL_BAD, "grpc-timeout is not a time");
    } else if (!infer_grpc_read(method->message, &call->request, &call->arena, &problem)) {
        call->model = server_model(server, call->request.model);
        call_refuse(server, call, call_refusal(problem.fault), problem.text);
    } else {
        int64_t *asked_us = &call->request.timeout_us;
        if (timeout_us > 0 && (*asked_us == 0 || timeout_us < *asked_us))
            *asked_us = timeout_us;
        call_submit(server, call);
    }
}

enum needs { NEEDS_NOTHING, NEEDS_NAME, NEEDS_MODEL, NEEDS_MODEL_OR_SERVER };

static const struct method {
    const char *path;
    void (*run)(struct server *server, struct method_call *call);
    enum needs needs;
} methods[] = {
    {"/inference.GRPCInferenceService/ModelInfer", model_infer, NEEDS_NOTHING},
    {"/inference.GRPCInferenceService/ServerLive", server_live, NEEDS_NOTHING},
    {"/inference.GRPCInferenceService/ServerReady", server_ready, NEEDS_NOTHING},
    {"/inference.GRPCInferenceService/ServerMetadata", server_metadata, NEEDS_NOTHING},
    {"/inference.GRPCInferenceService/ModelReady", model_ready, NEEDS_NAME},
    {"/inference.GRPCInferenceService/ModelMetadata", model_metadata, NEEDS_MODEL},
    {"/inference.GRPCInferenceService/ModelStatistics", model_statistics, NEEDS_MODEL_OR_SERVER},
    {"/inference.GRPCInferenceService/RepositoryIndex", repository_index, NEEDS_NOTHING},
    {"/inference.GRPCInferenceService/RepositoryModelLoad", repository_load, NEEDS_NOTHING},
    {"/inference.GRPCInferenceService/RepositoryModelUnload", repository_unload, NEEDS_NOTHING},
    {"/grpc.health.v1.Health/Check", health_check, NEEDS_MODEL_OR_SERVER},
};

static bool find_model(struct server *server, const struct method *method, struct method_call *call)
{
    if (method->needs == NEEDS_NOTHING)
        return true;
    if (!grpc_read_name(call->message, &call->name, &call->version, &server->scratch)) {
        respond(call->exchange, GRPC_INVALID_ARGUMENT, not_of_method, (struct str){"", 0});
        return false;
    }
    bool is_version = call->version.length == 0 || str_is(call->version, INFER_VERSION);
    call->model = is_version ? server_model(server, call->name) : NULL;
    bool is_server = method->needs == NEEDS_MODEL_OR_SERVER &&
                     (call->name.length == 0 || str_is(call->name, "inference.GRPCInferenceService"));
    if (call->model != NULL || method->needs == NEEDS_NAME || is_server)
        return true;
    server->unknown_models++;
    respond(call->exchange, GRPC_NOT_FOUND, "there is no such model or version", (struct str){"", 0});
    return false;
}

void grpc_serve(struct server *server, struct net_exchange *exchange, bool is_control)
{
    struct method_call call = {.exchange = exchange, .is_control = is_control};
    const struct method *method = NULL;
    int status;
    const char *why;
    for (size_t i = 0; i < ARRAY_COUNT(methods) && method == NULL; i++)
        if (str_is(exchange->path, methods[i].path))
            method = &methods[i];
    if (!exchange->is_http2 || !str_is(exchange->method, "POST")) {
        net_respond_text(exchange, 415, "gRPC needs HTTP/2 and POST\n");
    } else if (method == NULL) {
        respond(exchange, GRPC_UNIMPLEMENTED, "there is no such method", (struct str){"", 0});
    } else if (!grpc_unframe(exchange->body, &call.message, &status, &why)) {
        respond(exchange, (enum grpc_status)status, why, (struct str){"", 0});
    } else if (find_model(server, method, &call)) {
        method->run(server, &call);
    }
    arena_reset(&server->scratch);
}
