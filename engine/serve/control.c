/* Models are loaded and unloaded while the server answers. A model is a `serve` of a job that the server was started with:
 *
 *     SERVED ----unload----> UNLOADING ---queue is empty---> UNLOADED
 *        ^                       |                            |   ^
 *        +-----------load--------+                          load  no checkpoint can be opened, or unload
 *        |                                                    v   |
 *        +-----------------the job has a checkpoint--------- LOADING
 *
 * Models of one job share its loader, its checkpoint and what follows the job. When all of them are UNLOADED, the job
 * rests: its loader closes the checkpoint in its own thread, of low priority, and looks for none. The first model to be
 * loaded again wakes it.
 *
 * Who asks waits in server->waits. control_step, behind the batches of each turn, brings models on and answers those whose
 * model is where they wanted it, or cannot get there. */
#include "serve/control.h"

#include "core/mem.h"
#include "serve/infer_model.h"

#include <stdlib.h>

enum { WAITS_MAX = 256 };

/* Who waits for a model. */
struct control_wait {
    const struct wire *wire;
    struct net_exchange *exchange;
    struct serve_model *model;
    bool is_load;
    struct control_wait *next;
};

/* --- What is asked --- */

bool control_takes(bool is_load, struct str parameter)
{
    return !is_load && str_is(parameter, "unload_dependents");
}

const char *control_reason(const struct serve_model *model)
{
    switch (model->state) {
    case MODEL_LOADING: return "loading";
    case MODEL_UNLOADING: return "unloading";
    case MODEL_UNLOADED: return "unloaded";
    case MODEL_SERVED: break;
    }
    return model_is_ready(model) ? NULL : MODEL_UNAVAILABLE;
}

/* Takes the wait out of the list, answers, and counts. why: NULL: the model is where it was wanted. */
static void settle(struct server *server, struct control_wait **link, enum refusal refusal, const char *why)
{
    struct control_wait *wait = *link;
    *link = wait->next;
    server->waits_count--;
    wait->model->control[why != NULL ? CONTROL_FAILED : wait->is_load ? CONTROL_LOADED : CONTROL_UNLOADED]++;
    if (why == NULL)
        wait->wire->done(server, wait->exchange);
    else
        wait->wire->refuse(server, wait->exchange, refusal, why);
    free(wait);
}

/* Answers all who wait for loading, or for unloading, of the model. */
static void settle_all(struct server *server, const struct serve_model *model, bool is_load, const char *why)
{
    for (struct control_wait **link = &server->waits; *link != NULL;)
        if ((*link)->model == model && (*link)->is_load == is_load)
            settle(server, link, REFUSAL_NOT_READY, why);
        else
            link = &(*link)->next;
}

static bool has_state(const struct serve_model *model)
{
    return model->job->loaded != NULL && !model->job->is_broken;
}

/* The job's loader begins again. */
static void wake_job(struct serve_job *job)
{
    if (!job->is_resting)
        return;
    job->is_resting = job->has_looked = false;
    job->why[0] = '\0';
    loader_resume(job->loader);
}

/* Closes what the job's models answered from; no call is left in their queues. */
static void rest_job(struct serve_job *job)
{
    live_end(job);
    loader_rest(job->loader, job->loaded);
    job->loaded = NULL;
    job->is_broken = job->has_looked = false;
    job->is_resting = true;
}

static void begin(struct server *server, struct serve_model *model, bool is_load)
{
    if (is_load && model->state == MODEL_UNLOADING) {
        settle_all(server, model, false, NULL); /* what came behind it holds */
        model->state = has_state(model) ? MODEL_SERVED : MODEL_LOADING;
    } else if (is_load && model->state == MODEL_UNLOADED) {
        model->state = MODEL_LOADING;
        wake_job(model->job);
    } else if (!is_load && (model->state == MODEL_LOADING || model->state == MODEL_SERVED)) {
        settle_all(server, model, true, "the model was unloaded while it was loading");
        model->state = MODEL_UNLOADING;
    }
}

void control_ask(struct server *server, const struct control_ask *ask)
{
    struct serve_model *model = server_model(server, ask->model);
    struct arena arena = {0};
    enum refusal refusal = REFUSAL_BAD;
    const char *why = NULL;
    if (model == NULL) {
        refusal = REFUSAL_NOT_FOUND;
        why = arena_printf(&arena,
                           "there is no model `%s`; the repository index names those of the server's jobs",
                           infer_shown(ask->model, &arena));
        server->unknown_models++;
    } else if (ask->refused.data != NULL) {
        refusal = REFUSAL_NOT_SUPPORTED;
        why = arena_printf(
            &arena,
            "`%s` is not taken: a model is what the job file says that the server was started with; "
            "leave it out",
            infer_shown(ask->refused, &arena));
    } else if (server->waits_count == WAITS_MAX) {
        refusal = REFUSAL_SHED;
        why = arena_printf(&arena, "%d requests to load or to unload wait already", WAITS_MAX);
    }
    if (why != NULL) {
        if (model != NULL)
            model->control[CONTROL_REFUSED]++;
        ask->wire->refuse(server, ask->exchange, refusal, why);
    } else {
        begin(server, model, ask->is_load);
        struct control_wait *wait = mem_calloc(1, sizeof(*wait));
        *wait = (struct control_wait){.wire = ask->wire,
                                      .exchange = ask->exchange,
                                      .model = model,
                                      .is_load = ask->is_load,
                                      .next = server->waits};
        server->waits = wait;
        server->waits_count++;
    }
    arena_free(&arena);
}

/* --- What becomes of it --- */

static void say(struct server *server, const struct serve_model *model, const char *what)
{
    char line[320];
    if (server->options.is_quiet)
        return;
    snprintf(line, sizeof(line), "model %.*s %s", STR_ARGS(model->name), what);
    server_say(server, line);
}

static void bring_on(struct server *server, struct serve_model *model)
{
    if (model->state == MODEL_UNLOADING && model->first == NULL) {
        model->state = MODEL_UNLOADED;
        say(server, model, "is unloaded");
    } else if (model->state == MODEL_LOADING && has_state(model)) {
        model->state = MODEL_SERVED;
        say(server, model, "is loaded");
    } else if (model->state == MODEL_LOADING && model->job->has_looked) {
        model->state = MODEL_UNLOADED;
        say(server, model, "cannot be loaded");
    }
}

/* Answers the wait if it is over; returns whether it was. */
static bool end_wait(struct server *server, struct control_wait **link)
{
    const struct serve_model *model = (*link)->model;
    const struct serve_job *job = model->job;
    if (!(*link)->is_load) {
        if (model->state != MODEL_UNLOADED)
            return false;
        settle(server, link, REFUSAL_FAILED, NULL);
    } else if (model->state == MODEL_SERVED && has_state(model)) {
        settle(server, link, REFUSAL_FAILED, NULL);
    } else if (job->why[0] != '\0' && job->has_looked) {
        settle(server, link, REFUSAL_FAILED, job->why);
    } else if (job->has_looked) {
        struct arena arena = {0};
        settle(
            server, link, REFUSAL_NOT_READY,
            arena_printf(&arena,
                         "job %.*s has no checkpoint in `%s` that is whole: run the job, then load the model",
                         STR_ARGS(job->plan->name), job->directory));
        arena_free(&arena);
    } else {
        return false;
    }
    return true;
}

void control_step(struct server *server)
{
    if (server->waits == NULL)
        return;
    for (uint32_t i = 0; i < server->models_count; i++)
        bring_on(server, server->models[i]);
    for (struct control_wait **link = &server->waits; *link != NULL;)
        if (!end_wait(server, link))
            link = &(*link)->next;
    for (struct serve_job *job = server->jobs; job != NULL; job = job->next) {
        bool is_used = job->is_resting;
        for (uint32_t i = 0; i < server->models_count; i++)
            is_used |= server->models[i]->job == job && server->models[i]->state != MODEL_UNLOADED;
        if (!is_used)
            rest_job(job);
    }
}

void control_end(struct server *server)
{
    while (server->waits != NULL)
        settle(server, &server->waits, REFUSAL_NOT_READY, "the server stops");
}
