#include "control/api_internal.h"
#include "control/json_text.h"

#include "core/mem.h"

#include <inttypes.h>
#include <stdlib.h>

enum state { FREE, ASKED, AWAITED, COPIED, DONE };

struct savepoint {
    pthread_mutex_t mutex;
    pthread_cond_t condition; /* the state is no longer COPIED */
    enum state state;
    bool has_ended;                        /* the run has */
    struct net_exchange *exchange;         /* the API's thread touches it */
    char name[RUN_SAVEPOINT_NAME_MAX + 1]; /* "": the checkpoint's own */
    uint64_t epoch;  /* from AWAITED on: the savepoint has that checkpoint or a later one */
    struct run *run; /* from AWAITED on */
    struct net_loop *loop;
    pthread_t thread; /* from COPIED on, if has_thread */
    bool has_thread;
    /* When DONE: the answer; a text, or with 200 JSON. */
    int status;
    struct byte_buffer answer;
};

struct savepoint *savepoint_new(void)
{
    struct savepoint *s = mem_calloc(1, sizeof(*s));
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->condition, NULL);
    return s;
}

void savepoint_free(struct savepoint *s)
{
    if (s == NULL)
        return;
    if (s->has_thread)
        pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->condition);
    pthread_mutex_destroy(&s->mutex);
    buffer_free(&s->answer);
    free(s);
}

/* --- The API's thread --- */

/* The name in `name=NAME`; false: the query is another. */
static bool parse_query(struct str query, struct str *name)
{
    static const char begin[] = "name=";
    *name = (struct str){NULL, 0};
    if (query.length == 0)
        return true;
    if (query.length < strlen(begin) || memcmp(query.data, begin, strlen(begin)) != 0)
        return false;
    *name = (struct str){query.data + strlen(begin), query.length - strlen(begin)};
    return run_savepoint_name_is_good(*name);
}

/* Why the request cannot be taken now: a status, and a text; 0: it is. Called with the mutex held. */
static int take(struct api *api, struct str name, struct net_exchange *exchange, const char **why)
{
    struct savepoint *s = api->savepoint;
    *why = "the run has ended\n";
    if (s->has_ended)
        return 503;
    *why = "a savepoint is being written: ask again when it is done\n";
    if (s->state != FREE)
        return 429;
    snprintf(s->name, sizeof(s->name), "%.*s", STR_ARGS(name));
    s->exchange = exchange;
    s->loop = api->loop;
    s->state = ASKED;
    return 0;
}

void savepoint_serve(struct api *api, struct net_exchange *exchange)
{
    struct str name;
    const char *why;
    if (!api_may_act(api, exchange))
        return;
    if (!parse_query(exchange->query, &name)) {
        net_respond_text(
            exchange, 400,
            "expected no query, or `name=` and 1 to 64 of a-z, 0-9, `_` and `-`: a savepoint has a name, and no "
            "path\n");
        return;
    }
    pthread_mutex_lock(&api->savepoint->mutex);
    int status = take(api, name, exchange, &why);
    pthread_mutex_unlock(&api->savepoint->mutex);
    if (status != 0)
        net_respond_text(exchange, status, why);
}

void savepoint_turn(struct api *api)
{
    struct savepoint *s = api->savepoint;
    pthread_mutex_lock(&s->mutex);
    bool is_done = s->state == DONE;
    if (is_done && s->has_thread)
        pthread_join(s->thread, NULL); /* it has nothing left to do */
    if (is_done) {
        s->has_thread = false;
        if (s->status == 200)
            api_answer(s->exchange, 200, STR("application/json"), &s->answer);
        else {
            buffer_append(&s->answer, "\n", 2); /* with its NUL */
            net_respond_text(s->exchange, s->status, s->answer.data);
        }
        s->exchange = NULL;
        s->state = FREE;
    }
    pthread_mutex_unlock(&s->mutex);
}

/* --- The thread that copies --- */

static void put_saved(const struct run_savepoint *saved, struct byte_buffer *out)
{
    char id[48];
    snprintf(id, sizeof(id), "%u-%" PRIu64, saved->generation, saved->epoch);
    json_t *json = json_pack("{s:o, s:s, s:I}", "savepoint", json_any_text(str_from(saved->path)),
                             "checkpoint", id, "bytes", (json_int_t)saved->bytes);
    char *text = json_dumps(json, 0);
    leat_assert(text != NULL);
    buffer_printf(out, "%s\n", text);
    free(text);
    json_decref(json);
}

static void put_diags(const struct diag_list *diags, struct byte_buffer *out)
{
    for (unsigned i = 0; i < diags->count; i++) {
        const struct diag *d = &diags->items[i];
        buffer_printf(out, "%s%s: %s%s%s%s%s%s%s", i == 0 ? "" : "\n", diag_code_name(d->code), d->message,
                      d->path != NULL ? ": " : "", d->path != NULL ? d->path : "",
                      d->cause != NULL ? ": " : "", d->cause != NULL ? d->cause : "",
                      d->hint != NULL ? "; " : "", d->hint != NULL ? d->hint : "");
    }
}

/* Called with the mutex held. */
static void finish(struct savepoint *s, int status)
{
    s->status = status;
    s->state = DONE;
    pthread_cond_broadcast(&s->condition);
    net_loop_wake(s->loop);
}

static void *copy_main(void *argument)
{
    struct savepoint *s = argument;
    struct arena arena = {0};
    struct diag_list diags;
    struct run_savepoint saved;
    diag_list_init(&diags, &arena);
    bool is_good = run_save(s->run, s->epoch, s->name, &saved, &diags);
    buffer_clear(&s->answer);
    if (is_good)
        put_saved(&saved, &s->answer);
    else
        put_diags(&diags, &s->answer);
    free(saved.path);
    arena_free(&arena);
    pthread_mutex_lock(&s->mutex);
    finish(s, is_good ? 200 : 503);
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* --- The control thread --- */

/* Called with the mutex held. */
static void refuse(struct savepoint *s, int status, const char *why, const char *detail)
{
    buffer_clear(&s->answer);
    buffer_printf(&s->answer, "%s%s", why, detail);
    finish(s, status);
}

/* Asks for the checkpoint until it is there. Called with the mutex held. */
static void await(struct savepoint *s, struct run *run, const struct run_checkpoint_turn *turn)
{
    if (turn->published >= s->epoch) {
        s->state = COPIED;
        s->has_thread = pthread_create(&s->thread, NULL, copy_main, s) == 0;
        if (!s->has_thread)
            refuse(s, 503, "the system has no thread for the copy", "");
    } else if (turn->has_failed)
        refuse(s, 503, "no checkpoint can be written: ", turn->why);
    else
        run_checkpoint(run);
}

void savepoint_tend(struct api *api, struct run *run)
{
    struct savepoint *s = api->savepoint;
    struct run_checkpoint_turn turn;
    pthread_mutex_lock(&s->mutex);
    if (s->state == ASKED && s->name[0] != '\0' && run_has_savepoint(run, s->name))
        refuse(s, 409, "there is a savepoint of that name already: ", s->name);
    else if (s->state == ASKED && !run_checkpoint_turn(run, &turn))
        refuse(s, 503, "the run takes no checkpoints", "");
    else if (s->state == ASKED) {
        s->epoch = turn.next;
        s->run = run;
        s->state = AWAITED;
    }
    if (s->state == AWAITED && run_checkpoint_turn(run, &turn))
        await(s, run, &turn);
    pthread_mutex_unlock(&s->mutex);
}

void savepoint_end(struct api *api)
{
    struct savepoint *s = api->savepoint;
    pthread_mutex_lock(&s->mutex);
    s->has_ended = true;
    while (s->state == COPIED)
        pthread_cond_wait(&s->condition, &s->mutex);
    if (s->state == ASKED || s->state == AWAITED)
        refuse(s, 503, "the run has ended, before the savepoint was written", "");
    pthread_mutex_unlock(&s->mutex);
}
