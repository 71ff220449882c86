#include "serve/control.h"

#include "core/mem.h"
#include "core/os.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

enum {
    SAID_BYTES_MAX = 4600,
    GRACE_MS = 5000,
    FOLLOW_MS = 5,
    TURN_NS = 400 * 1000,
    TURN_ROWS_LEAST = 64,
    STRETCH_MAX = 2,
    PASSES_IN_DEADLINE = 4, /* in two or three, a request is noticed, read and answered */
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void server_say(struct server *server, const char *line)
{
    char text[SAID_BYTES_MAX];
    snprintf(text, sizeof(text), "leat: %s", line);
    server->options.say(server->options.user, text);
}

/* --- Models --- */

struct serve_model *server_model(const struct server *server, struct str name)
{
    for (uint32_t i = 0; i < server->models_count; i++)
        if (str_equal(server->models[i]->name, name))
            return server->models[i];
    return NULL;
}

int64_t model_staleness_ms(const struct serve_model *model)
{
    const struct serve_job *job = model->job;
    return job->loaded == NULL ? -1 : MAX(os_wall_us() - job->seen_us, 0) / 1000;
}

static bool is_stale(const struct serve_model *model)
{
    int64_t most_us = model->serve->serving.max_staleness_us;
    return most_us > 0 && model_staleness_ms(model) > most_us / 1000;
}

bool model_is_ready(const struct serve_model *model)
{
    return model->state == MODEL_SERVED && model->job->loaded != NULL && !model->job->is_broken &&
           !is_stale(model);
}

bool server_is_ready(const struct server *server)
{
    for (uint32_t i = 0; i < server->models_count; i++)
        if (server->models[i]->state == MODEL_SERVED && !model_is_ready(server->models[i]))
            return false;
    return true;
}

struct way *model_way(const struct serve_model *model)
{
    return model->job->loaded->ways[model->place];
}

/* --- Batches --- */

/* Moves an estimate of a cost towards what it was now. One measure counts for no more than four times the estimate: the
 * process may have been stopped meanwhile. */
static void follow(double *estimate_ns, double now_ns)
{
    if (*estimate_ns == 0.0)
        *estimate_ns = now_ns;
    *estimate_ns += (MIN(now_ns, *estimate_ns * 4.0) - *estimate_ns) * 0.05;
}

/* Takes the first call out of the queue. */
static struct call *unqueue(struct serve_model *model)
{
    struct call *call = model->first;
    model->first = call->next;
    if (model->first == NULL)
        model->last = &model->first;
    model->waiting_rows -= call->rows - call->begun;
    model->waiting_calls--;
    return call;
}

static void answer(struct server *server, struct call *call)
{
    struct serve_model *model = call->model;
    struct infer_facts facts = {.cut = model->job->cut,
                                .features = model->job->features,
                                .staleness_ms = model_staleness_ms(model),
                                .counts = infer_answer_counts(call->answer)};
    const struct infer_counts *counts = &facts.counts;
    struct figures *figures = &model->figures;
    if (counts->failed == call->rows) {
        figures->rows_failed += counts->failed;
        call_refuse(server, call, REFUSAL_REJECTED, infer_answer_reason(call->answer));
        return;
    }
    int64_t begun_ns = now_ns(), begun_us = call->exchange->begun_us;
    const struct infer_tensor *tensors;
    uint32_t count = infer_answer_tensors(call->answer, &tensors);
    if (!call->wire->answer(server, call, tensors, count, &facts)) {
        call_refuse(server, call, REFUSAL_TOO_LARGE,
                    arena_printf(&call->arena,
                                 "the answer has more than %d MiB: ask for fewer rows or outputs",
                                 ANSWER_BYTES_MAX >> 20));
        return;
    }
    figures->rows_answered += counts->answered;
    figures->rows_late += counts->late;
    figures->rows_filtered += counts->filtered;
    figures->rows_failed += counts->failed;
    call->phase_ns[PHASE_WRITE] = now_ns() - begun_ns;
    follow(&model->call_ns, (double)call->phase_ns[PHASE_WRITE]);
    call_settle(server, call, counts->answered > 0 ? OUTCOME_ANSWERED : OUTCOME_FILTERED, begun_us);
}

/* Rows of a call in a batch. */
struct part {
    struct call *call;
    uint32_t first, count, at;
};

struct work {
    struct part parts[BATCH_ROWS];
    uint32_t parts_count, rows;
};

/* Rows of a batch at most: those of about TURN_NS, for what comes meanwhile waits for so long, also to be refused. */
static uint32_t batch_most(const struct serve_model *model)
{
    double rows = model->row_ns > 0.0 ? TURN_NS / model->row_ns : BATCH_ROWS;
    return (uint32_t)MIN(MAX(rows, (double)TURN_ROWS_LEAST), (double)BATCH_ROWS);
}

/* Takes rows from the head of the queue. Only the last call may have rows left, and it stays at the head. only_begun: of a
 * call whose rows are computed in part. */
static void gather(struct server *server, struct serve_model *model, struct work *work, bool only_begun)
{
    int64_t now_us = os_monotonic_us();
    uint32_t most = batch_most(model);
    work->parts_count = work->rows = 0;
    while (model->first != NULL && work->rows < most) {
        struct call *call = model->first;
        if (call->begun == 0 && only_begun)
            return;
        if (call->begun == 0 && (call->exchange->is_gone || now_us > call->deadline_us)) {
            call_refuse(server, unqueue(model), REFUSAL_EXPIRED, "the request waited beyond its deadline");
            continue;
        }
        if (call->begun == 0)
            call->phase_ns[PHASE_QUEUE] = (now_us - call->queued_us) * 1000;
        uint32_t count = MIN(call->rows - call->begun, most - work->rows);
        work->parts[work->parts_count++] =
            (struct part){.call = call, .first = call->begun, .count = count, .at = work->rows};
        work->rows += count;
        if (call->begun + count < call->rows) {
            call->begun += count;
            model->waiting_rows -= count;
            return;
        }
        unqueue(model);
        call->begun = call->rows;
    }
}

static bool compute(struct server *server, struct serve_model *model, struct work *work)
{
    struct way *way = model_way(model);
    int64_t begun_ns = now_ns();
    struct batch *batch = infer_batch(model->infer, way_pool(way), work->rows);
    for (uint32_t i = 0; i < work->parts_count; i++) {
        const struct part *part = &work->parts[i];
        infer_fill(model->infer, &part->call->request, part->call->now_us, part->first, part->count, batch,
                   part->at);
    }
    const struct way_result *results = way_run(way, batch);
    bool is_well = way_is_well(way);
    for (uint32_t i = 0; i < work->parts_count && is_well; i++) {
        const struct part *part = &work->parts[i];
        infer_answer_add(part->call->answer, batch, results, part->at, part->count, way_watermark(way));
        if (part->call->is_logged)
            log_add(server, part->call, part->first, results, part->at, part->count);
    }
    batch_release(batch);
    int64_t spent_ns = now_ns() - begun_ns;
    for (uint32_t i = 0; i < work->parts_count; i++)
        work->parts[i].call->phase_ns[PHASE_COMPUTE] += spent_ns;
    follow(&model->row_ns, (double)spent_ns / (double)work->rows);
    model->figures.batches++;
    return is_well;
}

/* Computes one batch of the model; only_begun: of a call that is computed in part. */
static void run_batch(struct server *server, struct serve_model *model, bool only_begun)
{
    struct work work;
    gather(server, model, &work, only_begun);
    if (work.rows == 0)
        return;
    bool is_well = compute(server, model, &work);
    if (!is_well && !model->job->is_broken) {
        model->job->is_broken = true;
        loader_broken(model->job->loader, model->job->loaded);
    }
    for (uint32_t i = 0; i < work.parts_count; i++) {
        struct call *call = work.parts[i].call;
        if (!is_well) {
            if (model->first == call)
                unqueue(model);
            call_refuse(server, call, REFUSAL_FAILED, "the model's state cannot be read");
        } else if (model->first != call) {
            answer(server, call);
        }
    }
}

/* --- Checkpoints --- */

/* A call whose rows are computed in part is finished with the checkpoint that it began with. No other is begun: the queue
 * would be computed to its end in one turn, and everybody else would wait. */
static void finish_begun(struct server *server, const struct serve_job *job)
{
    for (uint32_t i = 0; i < server->models_count; i++) {
        struct serve_model *model = server->models[i];
        while (model->job == job && model->first != NULL && model->first->begun > 0)
            run_batch(server, model, true);
    }
}

static void take_checkpoint(struct server *server, struct serve_job *job, struct loaded *loaded)
{
    char line[160];
    if (job->was_live && !job->is_broken) { /* what was published since is newer */
        loader_decline(job->loader, loaded);
        return;
    }
    finish_begun(server, job);
    struct loaded *before = job->loaded;
    bool is_first = job->loaded == NULL;
    job->loaded = loaded;
    job->is_broken = false;
    job->why[0] = '\0';
    live_begin(job);
    snprintf(line, sizeof(line), "job %.*s answers from checkpoint %s", STR_ARGS(job->plan->name), job->cut);
    loader_give_back(job->loader, before);
    if (server->options.is_quiet && !is_first)
        return;
    server_say(server, line);
    for (uint32_t i = 0; i < loaded->ways_count; i++)
        if (way_has_ended(loaded->ways[i])) {
            server_say(server,
                       "at this checkpoint the input had ended: all windows are closed, and features over "
                       "time are empty");
            break;
        }
}

static void say_waiting(struct server *server, const struct serve_job *job)
{
    char line[4400];
    snprintf(line, sizeof(line),
             "job %.*s has no checkpoint in %s yet; requests are answered 503 until it has",
             STR_ARGS(job->plan->name), job->directory);
    server_say(server, line);
}

/* Whether a model of the job is loaded, or was to be from the start on. */
static bool is_served(const struct server *server, const struct serve_job *job)
{
    for (uint32_t i = 0; i < server->models_count; i++)
        if (server->models[i]->job == job && server->models[i]->state == MODEL_SERVED)
            return true;
    return false;
}

/* Says what the loader complains of, and keeps it for those who load; returns whether it does. */
static bool say_complaints(struct server *server, struct serve_job *job)
{
    struct byte_buffer *out = &server->out;
    buffer_clear(out);
    if (!loader_complaints(job->loader, out))
        return false;
    out->data[--out->length] = '\0'; /* the last newline */
    server->options.say(server->options.user, out->data);
    size_t length = MIN(out->length, sizeof(job->why) - 1);
    while (length < out->length && length > 0 && (out->data[length] & 0xC0) == 0x80)
        length--; /* within a character */
    memcpy(job->why, out->data, length);
    job->why[length] = '\0';
    return true;
}

static void look_at_loaders(struct server *server)
{
    bool has_failed = false;
    for (struct serve_job *job = server->jobs; job != NULL; job = job->next) {
        bool has_looked = loader_has_looked(job->loader); /* before what it found is taken */
        struct loaded *loaded = loader_take(job->loader);
        if (loaded != NULL)
            take_checkpoint(server, job, loaded);
        if (!job->has_looked && has_looked) {
            job->has_looked = true;
            if (job->loaded == NULL && is_served(server, job))
                say_waiting(server, job);
        }
        has_failed |= say_complaints(server, job) && job->id.generation != 0 && is_served(server, job);
    }
    /* The only checkpoint that was asked for cannot be had. */
    if (has_failed) {
        server->has_failed = true;
        net_loop_stop(server->loop);
    }
}

/* Says why lines of the model's log were lost since it was last asked. */
static void say_lost(struct server *server, const struct serve_model *model)
{
    char failure[LINE_LOG_FAILURE_BYTES], line[LINE_LOG_FAILURE_BYTES + 256];
    if (model->log == NULL || !served_failure(model->log, failure))
        return;
    snprintf(line, sizeof(line), "the log of model %.*s: %" PRIu64 " lines are lost so far: %s",
             (int)MIN(model->name.length, 100), model->name.data, served_counts(model->log).lost, failure);
    server_say(server, line);
}

/* Once a second at most. */
static void look_at_logs(struct server *server)
{
    int64_t now_us = os_monotonic_us();
    if (now_us - server->logs_seen_us < US_PER_SECOND)
        return;
    server->logs_seen_us = now_us;
    for (uint32_t i = 0; i < server->models_count; i++)
        say_lost(server, server->models[i]);
}

/* Brings jobs that run up to what they published; returns whether there is more. */
static bool follow_jobs(struct server *server)
{
    bool is_more = false;
    for (struct serve_job *job = server->jobs; job != NULL; job = job->next) {
        if (job->is_resting)
            continue;
        if (job->follow != NULL)
            finish_begun(server, job);
        is_more |= live_step(server, job);
    }
    return is_more;
}

static void turn(void *user)
{
    struct server *server = user;
    bool is_left = false;
    look_at_loaders(server);
    is_left |= follow_jobs(server);
    look_at_logs(server);
    int64_t begun_ns = now_ns();
    for (uint32_t i = 0; i < server->models_count; i++) {
        struct serve_model *model = server->models[i];
        if (model->first != NULL)
            run_batch(server, model, false);
        is_left |= model->first != NULL;
    }
    int64_t ended_ns = now_ns();
    if (server->left_ns != 0)
        follow(&server->stretch,
               MIN((double)(ended_ns - server->left_ns) / (double)(ended_ns - begun_ns + 1), STRETCH_MAX));
    server->left_ns = is_left ? ended_ns : 0;
    control_step(server);
    if (is_left)
        net_loop_wake(server->loop);
}

/* Has `turn` called: by loaders, and every FOLLOW_MS. */
static void wake(void *user)
{
    struct server *server = user;
    net_loop_wake(server->loop);
}

/* --- The server --- */

static void serve(void *user, struct net_exchange *exchange)
{
    if (net_is_grpc(exchange))
        grpc_serve(user, exchange, false);
    else
        http_serve(user, exchange, false);
}

static void control(void *user, struct net_exchange *exchange)
{
    if (net_is_grpc(exchange))
        grpc_serve(user, exchange, true);
    else
        http_serve(user, exchange, true);
}

static const struct net_service service = {.serve = serve}, control_service = {.serve = control};

struct server *server_new(const struct server_options *options)
{
    struct server *server = mem_calloc(1, sizeof(*server));
    server->options = *options;
    server->stretch = 1.0;
    server->loop = net_loop_new(options->memory_bytes, turn, server);
    return server;
}

bool server_add(struct server *server, const struct plan *plan, const char *directory,
                struct checkpoint_id id, struct diag_list *diags)
{
    struct serve_job *job = arena_new(&server->arena, struct serve_job);
    struct serve_job **last = &server->jobs;
    while (*last != NULL)
        last = &(*last)->next;
    *job = (struct serve_job){
        .plan = plan, .directory = directory, .id = id, .is_resting = server->options.is_unloaded};
    *last = job;
    server->models = mem_realloc(server->models, (server->models_count + plan->serves_count + 1) *
                                                     sizeof(struct serve_model *));
    for (uint32_t i = 0; i < plan->serves_count; i++) {
        const struct plan_serve *one = &plan->serves[i];
        if (server_model(server, one->name) != NULL) {
            struct diag *d = diag_error(diags, DIAG_NO_COMMAND, (struct span){0},
                                        "two jobs have a `serve %.*s`", STR_ARGS(one->name));
            diag_hint(diags, d, "give one of them another name: it is the model's name for clients");
            return false;
        }
        struct serve_model *model = arena_new(&server->arena, struct serve_model);
        *model = (struct serve_model){.name = one->name,
                                      .job = job,
                                      .plan = plan,
                                      .serve = one,
                                      .place = i,
                                      .infer = infer_model_new(plan, one),
                                      .state = server->options.is_unloaded ? MODEL_UNLOADED : MODEL_SERVED};
        model->last = &model->first;
        server->models[server->models_count++] = model;
    }
    return true;
}

/* Listens, and says where. */
static bool listen_at(struct server *server, const struct net_listen *listen, const struct net_service *what,
                      const char *said, struct diag_list *diags)
{
    uint16_t port = net_loop_listen(server->loop, listen, what, server, diags);
    if (port == 0)
        return false;
    size_t host = listen->address.length;
    while (host > 0 && listen->address.data[host - 1] != ':')
        host--;
    char line[320];
    snprintf(line, sizeof(line), "%s %s://%.*s:%u", said, listen->certificate == NULL ? "http" : "https",
             (int)host - 1, listen->address.data, port);
    server_say(server, line);
    return true;
}

/* Listens at the model's address, unless a model before it has the same. */
static bool listen_for(struct server *server, uint32_t place, struct diag_list *diags)
{
    struct net_listen listen = server->options.listen;
    bool is_common = listen.address.length > 0;
    if (is_common && place > 0)
        return true;
    if (!is_common)
        listen.address = server->models[place]->serve->serving.listen;
    for (uint32_t i = 0; i < place; i++)
        if (str_equal(server->models[i]->serve->serving.listen, listen.address))
            return true;
    for (uint32_t i = 0; i < server->models_count; i++) {
        const struct plan_serving *serving = &server->models[i]->serve->serving;
        if (is_common || str_equal(serving->listen, listen.address))
            listen.body_bytes_max = MAX(listen.body_bytes_max, (uint32_t)serving->body_bytes);
    }
    return listen_at(server, &listen, &service, "listening on", diags);
}

static bool open_log(struct serve_model *model, struct diag_list *diags)
{
    const struct plan_serve_log *log = &model->serve->serving.log;
    if (log->path.length == 0 && log->kind == NULL)
        return true;
    struct served_options options = {.path = log->path,
                                     .rotate_bytes = log->rotate_bytes,
                                     .keep = log->keep,
                                     .kind = log->kind,
                                     .config = log->config,
                                     .job = model->plan->name,
                                     .name = model->name};
    model->log_rows = answer_json_new(model->plan, model->serve, NULL, diags);
    model->log = model->log_rows == NULL ? NULL : served_open(&options, diags);
    return model->log != NULL;
}

/* All logs at a time, so that those whose brokers are away share one wait. */
static void close_logs(struct server *server)
{
    for (uint32_t i = 0; i < server->models_count; i++)
        served_end(server->models[i]->log);
    for (uint32_t i = 0; i < server->models_count; i++) {
        served_finish(server->models[i]->log);
        say_lost(server, server->models[i]);
        served_close(server->models[i]->log);
    }
}

bool server_listen(struct server *server, struct diag_list *diags)
{
    int64_t deadline_us = INT64_MAX; /* the shortest */
    server->options.listen.body_bytes_max = 0;
    for (uint32_t i = 0; i < server->models_count; i++) {
        deadline_us = MIN(deadline_us, server->models[i]->serve->serving.deadline_us);
        if (!open_log(server->models[i], diags))
            return false;
    }
    net_loop_park(server->loop, deadline_us / PASSES_IN_DEADLINE);
    for (uint32_t i = 0; i < server->models_count; i++)
        if (!listen_for(server, i, diags))
            return false;
    if (server->options.control.address.length > 0 &&
        !listen_at(server, &server->options.control, &control_service, "models are loaded and unloaded at",
                   diags))
        return false;
    for (struct serve_job *job = server->jobs; job != NULL; job = job->next)
        job->loader = loader_start(job->plan, job->directory, job->id, job->is_resting,
                                   server->options.look_every_ms, wake, server);
    for (uint32_t i = 0; i < server->models_count; i++)
        if (plan_not_followed(server->models[i]->plan) == NULL) {
            net_loop_every(server->loop, FOLLOW_MS, wake, server);
            break;
        }
    return true;
}

bool server_run(struct server *server)
{
    if (server->options.status != NULL)
        net_loop_every(server->loop, 1000, server_tell_status, server);
    net_loop_run(server->loop, GRACE_MS);
    if (server->options.status != NULL)
        server_tell_status(server);
    return !server->has_failed;
}

void server_stop(struct server *server)
{
    net_loop_stop(server->loop);
}

void server_free(struct server *server)
{
    if (server == NULL)
        return;
    control_end(server);
    for (struct serve_job *job = server->jobs; job != NULL; job = job->next) {
        live_end(job);
        loader_stop(job->loader);
    }
    for (uint32_t i = 0; i < server->models_count; i++) {
        while (server->models[i]->first != NULL)
            call_refuse(server, unqueue(server->models[i]), REFUSAL_NOT_READY, "the server stops");
        infer_model_free(server->models[i]->infer);
        answer_json_free(server->models[i]->log_rows);
    }
    close_logs(server);
    net_loop_free(server->loop);
    for (struct call *call = server->spare, *next; call != NULL; call = next) {
        next = call->next;
        arena_free(&call->arena);
        free(call);
    }
    free(server->models);
    buffer_free(&server->out);
    arena_free(&server->scratch);
    arena_free(&server->arena);
    free(server);
}
