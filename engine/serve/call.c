#include "serve/control.h"

#include "core/mem.h"
#include "core/os.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

enum { SPARE_CALLS_MAX = 256, SPARE_ARENA_BYTES_MAX = 256 << 10 };

/* The trace id of a W3C `traceparent`, as far as it looks like one: version, 32 and 16 hex digits, flags. */
static struct str trace_of(const struct net_exchange *exchange)
{
    static const char shape[] = "xx-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx";
    struct str text = net_field(exchange, "traceparent");
    bool is_good = text.data != NULL && text.length == sizeof(shape) - 1;
    for (size_t i = 0; is_good && i < text.length; i++)
        is_good = shape[i] == '-' ? text.data[i] == '-' : isxdigit((unsigned char)text.data[i]) != 0;
    return is_good ? text : (struct str){"", 0};
}

struct call *call_new(struct server *server, const struct wire *wire, struct net_exchange *exchange)
{
    struct call *call = server->spare;
    if (call == NULL) {
        call = mem_calloc(1, sizeof(*call));
        arena_init(&call->arena, 16 << 10);
    } else {
        server->spare = call->next;
        server->spare_count--;
        struct arena arena = call->arena;
        *call = (struct call){.arena = arena};
    }
    call->wire = wire;
    call->exchange = exchange;
    call->now_us = os_wall_us();
    call->come_us = os_monotonic_us() - exchange->waited_us;
    struct str trace = trace_of(exchange);
    memcpy(call->trace, trace.data, trace.length);
    exchange->user = call;
    return call;
}

static void free_call(struct server *server, struct call *call)
{
    server->waiting_bytes -= call->bytes;
    if (server->spare_count == SPARE_CALLS_MAX || arena_kept_bytes(&call->arena) > SPARE_ARENA_BYTES_MAX) {
        arena_free(&call->arena);
        free(call);
        return;
    }
    arena_reset(&call->arena);
    call->next = server->spare;
    server->spare = call;
    server->spare_count++;
}

/* Says which phase a slow request spent its time in; at most one a second, with the number of those left out. */
static void say_slow(struct server *server, const struct call *call)
{
    int64_t now_us = os_monotonic_us();
    if (now_us - server->slow_said_us < US_PER_SECOND) {
        server->slow_unsaid++;
        return;
    }
    const int64_t *ns = call->phase_ns;
    char line[320], more[48] = "";
    if (server->slow_unsaid > 0)
        snprintf(more, sizeof(more), "; %" PRIu64 " more since the last line", server->slow_unsaid);
    snprintf(
        line, sizeof(line),
        "slow request: model %.*s, %u rows, %.1f ms: read %.1f, queue %.1f, compute %.1f, write %.1f%s%.*s%s",
        STR_ARGS(call->model->name), call->rows, (double)ns[PHASE_ALL] / 1e6, (double)ns[PHASE_READ] / 1e6,
        (double)ns[PHASE_QUEUE] / 1e6, (double)ns[PHASE_COMPUTE] / 1e6, (double)ns[PHASE_WRITE] / 1e6,
        call->trace[0] == '\0' ? "" : ", trace ", (int)sizeof(call->trace) - 1, call->trace, more);
    server_say(server, line);
    server->slow_said_us = now_us;
    server->slow_unsaid = 0;
}

void call_settle(struct server *server, struct call *call, enum outcome outcome, int64_t begun_us)
{
    if (call->model == NULL) {
        server->unknown_models++;
    } else {
        struct figures *figures = &call->model->figures;
        figures->requests++;
        figures->outcomes[outcome]++;
        call->phase_ns[PHASE_ALL] = (os_monotonic_us() - begun_us) * 1000;
        for (uint32_t i = 0; i < PHASES && outcome <= OUTCOME_FILTERED; i++) {
            histogram_add(&figures->phases[i], call->phase_ns[i]);
            figures->phase_ns[i] += (uint64_t)call->phase_ns[i];
        }
        if (outcome <= OUTCOME_FILTERED)
            figures->last_ms = call->now_us / 1000;
        if (server->options.slow_us > 0 && call->phase_ns[PHASE_ALL] > server->options.slow_us * 1000)
            say_slow(server, call);
    }
    free_call(server, call);
}

static enum outcome outcome_of(enum refusal refusal)
{
    switch (refusal) {
    case REFUSAL_SHED: return OUTCOME_SHED;
    case REFUSAL_EXPIRED: return OUTCOME_EXPIRED;
    case REFUSAL_REJECTED:
    case REFUSAL_FAILED: return OUTCOME_FAILED;
    default: return OUTCOME_REFUSED;
    }
}

void call_refuse(struct server *server, struct call *call, enum refusal refusal, const char *text)
{
    int64_t begun_us = call->exchange->begun_us;
    call->wire->refuse(server, call->exchange, refusal, text);
    call_settle(server, call, outcome_of(refusal), begun_us);
}

enum refusal call_refusal(enum infer_fault fault)
{
    switch (fault) {
    case INFER_NO_MODEL: return REFUSAL_NOT_FOUND;
    case INFER_TOO_LARGE: return REFUSAL_TOO_LARGE;
    case INFER_NOT_SUPPORTED: return REFUSAL_NOT_SUPPORTED;
    case INFER_GOOD:
    case INFER_BAD_REQUEST: break;
    }
    return REFUSAL_BAD;
}

/* Whether rows that wait already would make the call's answer come beyond its deadline, by what rows and calls cost lately.
 * Where nothing waits the call is computed, whatever it may cost: how else would the estimates get better. */
static bool is_too_much(const struct server *server, const struct call *call)
{
    const struct serve_model *model = call->model;
    double backlog_ns = 0.0;
    for (uint32_t i = 0; i < server->models_count; i++) {
        const struct serve_model *other = server->models[i];
        backlog_ns +=
            (double)other->waiting_rows * other->row_ns + (double)other->waiting_calls * other->call_ns;
    }
    double left_ns = (double)(call->deadline_us - os_monotonic_us()) * 1e3;
    double own_ns = model->call_rows * model->row_ns + model->call_ns;
    return model->waiting_rows >= (uint64_t)model->serve->serving.queue_rows ||
           (backlog_ns > 0.0 && backlog_ns * server->stretch + own_ns > left_ns);
}

static bool find_model(struct server *server, struct call *call)
{
    struct infer_request *request = &call->request;
    call->model = server_model(server, request->model);
    if (call->model == NULL) {
        call_refuse(server, call, REFUSAL_NOT_FOUND,
                    arena_printf(&call->arena, "there is no model `%.*s`", STR_ARGS(request->model)));
        return false;
    }
    if (request->version.length > 0 && !str_is(request->version, INFER_VERSION)) {
        call_refuse(server, call, REFUSAL_NOT_FOUND,
                    arena_printf(&call->arena,
                                 "model `%.*s` has no version `%.*s`; there is one, `" INFER_VERSION "`",
                                 STR_ARGS(request->model), STR_ARGS(request->version)));
        return false;
    }
    if (model_is_ready(call->model))
        return true;
    call_refuse(
        server, call, REFUSAL_NOT_READY,
        call->model->state != MODEL_SERVED
            ? arena_printf(&call->arena, "model `%.*s` is %s", STR_ARGS(request->model),
                           control_reason(call->model))
        : call->model->job->is_broken
            ? arena_printf(&call->arena, "the state of model `%.*s` cannot be read", STR_ARGS(request->model))
        : call->model->job->loaded == NULL
            ? arena_printf(&call->arena, "model `%.*s` has no checkpoint yet", STR_ARGS(request->model))
            : arena_printf(&call->arena,
                           "the checkpoint of model `%.*s` is %" PRId64
                           " s old, which is more than `max_staleness`",
                           STR_ARGS(request->model), model_staleness_ms(call->model) / 1000));
    return false;
}

/* Sets the deadline; refuses the call if it would wait beyond that. */
static bool is_shed(struct server *server, struct call *call)
{
    int64_t patience_us = call->model->serve->serving.deadline_us;
    if (call->request.timeout_us > 0)
        patience_us = MIN(patience_us, call->request.timeout_us);
    call->deadline_us = call->come_us + patience_us;
    bool has_expired = call->exchange->waited_us > patience_us, is_shed = is_too_much(server, call);
    if (has_expired)
        call_refuse(server, call, REFUSAL_EXPIRED, "the request waited beyond its deadline");
    else if (is_shed)
        call_refuse(server, call, REFUSAL_SHED, "too many requests are waiting");
    return has_expired || is_shed;
}

bool call_shed_unread(struct server *server, struct call *call)
{
    return call->model != NULL && model_is_ready(call->model) && is_shed(server, call);
}

void call_submit(struct server *server, struct call *call)
{
    if (!find_model(server, call) || is_shed(server, call))
        return;
    struct serve_model *model = call->model;
    struct infer_problem problem = {0};
    const struct source_common *common = model->plan->nodes[model->serve->request].common;
    int64_t newest_us = time_add(way_watermark(model_way(model)), common->max_delay_us);
    if (!infer_check(model->infer, &call->request, call->now_us, newest_us, &call->rows, &call->arena,
                     &problem)) {
        call_refuse(server, call, call_refusal(problem.fault), problem.text);
        return;
    }
    call->answer = infer_answer_new(model->infer, &call->request, call->rows, &call->arena);
    call->bytes = arena_kept_bytes(&call->arena);
    server->waiting_bytes += call->bytes;
    if (server->waiting_bytes > server->options.memory_bytes) {
        call_refuse(server, call, REFUSAL_SHED, "the waiting requests take too much memory");
        return;
    }
    call->is_logged = log_wants(model);
    model->calls++;
    model->call_rows += ((double)call->rows - model->call_rows) * 0.05;
    call->queued_us = os_monotonic_us();
    call->phase_ns[PHASE_READ] = (call->queued_us - call->exchange->begun_us) * 1000;
    call->next = NULL;
    *model->last = call;
    model->last = &call->next;
    model->waiting_rows += call->rows;
    model->waiting_calls++;
}
