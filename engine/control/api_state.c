/* /api/v1/state and /api/v1/model: what a node stores for keys now (run/peek.h). A request becomes a peek; the lanes that
 * answer it put it into `ready` and wake the API's thread, which answers the exchange. */
#include "control/api_internal.h"

#include "control/state_query.h"
#include "core/mem.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

/* An exchange that waits for a peek. */
struct state_asked {
    struct api *api;
    struct net_exchange *exchange;
    struct state_question question;
    struct run_peek *peek;
    struct state_asked *next;
};

static void asked_free(struct state_asked *asked)
{
    run_peek_free(asked->peek);
    state_question_free(&asked->question);
    free(asked);
}

/* --- Answers --- */

static void put_json(struct byte_buffer *out, json_t *json)
{
    char *text = json == NULL ? NULL : json_dumps(json, JSON_ENCODE_ANY);
    buffer_printf(out, "%s", text == NULL ? "null" : text);
    free(text);
    json_decref(json);
}

static void put_text(struct byte_buffer *out, struct str text)
{
    put_json(out, json_stringn(text.data, text.length));
}

static void put_columns(struct byte_buffer *out, const struct plan_node *node)
{
    const struct operator_input *input = &node->bound[0];
    if (node->tag == PLAN_LEARNER) {
        buffer_printf(out, "[\"field\", \"value\"]");
        return;
    }
    buffer_printf(out, "[");
    for (uint32_t i = 0; i < input->key_count; i++) {
        buffer_printf(out, i > 0 ? ", " : "");
        put_text(out, input->schema->fields[input->key_columns[i]].name);
    }
    buffer_printf(out, "]");
}

static void put_state(struct byte_buffer *out, const struct run_peek_key *key)
{
    size_t length = key->state.length;
    if (key->is_found)
        buffer_append(out, key->state.data,
                      length > 0 && key->state.data[length - 1] == '\n' ? length - 1 : length);
    else
        buffer_printf(out, "null");
}

static void put_row(struct byte_buffer *out, const struct run_peek *peek)
{
    const struct run_peek_key *key = &peek->keys[0];
    buffer_printf(out, "{\"learner\": ");
    put_text(out, str_from(peek->node->part));
    buffer_printf(out, ", \"field\": ");
    put_text(out, key->words[0]);
    buffer_printf(out, ", \"value\": ");
    put_text(out, key->words[1]);
    buffer_printf(out, ", \"micro_batch\": %" PRIu64 ", \"row\": ", key->micro_batch);
    put_state(out, key);
    buffer_printf(out, "}\n");
}

static void put_keys(struct byte_buffer *out, const struct state_question *question,
                     const struct run_peek *peek)
{
    uint64_t lowest = UINT64_MAX;
    for (uint32_t i = 0; i < peek->count; i++)
        lowest = MIN(lowest, peek->keys[i].micro_batch);
    buffer_printf(out, "{\"state\": ");
    put_text(out, str_from(peek->node->part));
    buffer_printf(out, ", \"columns\": ");
    put_columns(out, peek->node);
    buffer_printf(out, ", \"micro_batch\": %" PRIu64 ",\n \"keys\": [", lowest);
    for (uint32_t i = 0; i < peek->count; i++) {
        buffer_printf(out, "%s{\"key\": ", i > 0 ? ",\n  " : "");
        put_json(out, json_incref(question->keys[i].words));
        buffer_printf(out, ", \"micro_batch\": %" PRIu64 ", \"state\": ", peek->keys[i].micro_batch);
        put_state(out, &peek->keys[i]);
        buffer_printf(out, "}");
    }
    buffer_printf(out, "]}\n");
}

static void refuse(struct net_exchange *exchange, int status, const char *text)
{
    const struct net_field fields[] = {{STR("content-type"), STR("text/plain; charset=utf-8")},
                                       {STR("cache-control"), STR("no-store")},
                                       {STR("x-content-type-options"), STR("nosniff")},
                                       {STR("retry-after"), STR("1")}};
    net_respond(exchange, &(struct net_response){.status = status,
                                                 .fields = fields,
                                                 .fields_count = status == 429 || status == 503 ? 4 : 3,
                                                 .body = str_from(text)});
}

static void answer(struct state_asked *asked)
{
    struct net_exchange *exchange = asked->exchange;
    const struct run_peek *peek = asked->peek;
    struct byte_buffer out = {0};
    switch (peek->end) {
    case RUN_PEEK_DONE:
        if (asked->question.is_row)
            put_row(&out, peek);
        else
            put_keys(&out, &asked->question, peek);
        api_answer(exchange, 200, STR("application/json"), &out);
        break;
    case RUN_PEEK_WRONG:
    case RUN_PEEK_REFUSED:
        buffer_printf(&out, "%s\n", peek->why);
        refuse(exchange, peek->end == RUN_PEEK_WRONG ? 400 : 501, out.data);
        break;
    case RUN_PEEK_BUSY:
        refuse(exchange, 429,
               "too many keys are asked for: a lane gives 1 % of its time, and 64 requests wait at most\n");
        break;
    case RUN_PEEK_OVER:
    case RUN_PEEK_WAITS:
        refuse(exchange, 503, "the run has ended, or has not begun: there is no state to read\n");
        break;
    }
    buffer_free(&out);
}

/* --- Asking --- */

/* Called on a lane's thread. */
static void is_done(struct run_peek *peek)
{
    struct state_asked *asked = peek->user;
    struct api *api = asked->api;
    pthread_mutex_lock(&api->ready_mutex);
    asked->next = api->ready;
    api->ready = asked;
    pthread_mutex_unlock(&api->ready_mutex);
    net_loop_wake(api->loop);
}

static struct state_asked *take_ready(struct api *api)
{
    pthread_mutex_lock(&api->ready_mutex);
    struct state_asked *ready = api->ready;
    api->ready = NULL;
    pthread_mutex_unlock(&api->ready_mutex);
    return ready;
}

void api_state_turn(struct api *api)
{
    for (struct state_asked *asked = take_ready(api), *next; asked != NULL; asked = next) {
        next = asked->next;
        answer(asked);
        asked_free(asked);
    }
}

void api_state_drop(struct api *api)
{
    for (struct state_asked *asked = take_ready(api), *next; asked != NULL; asked = next) {
        next = asked->next;
        asked_free(asked);
    }
}

/* Fills in the peek with the keys of the question; false: it has refused the exchange. */
static bool add_keys(struct state_asked *asked)
{
    struct arena arena = {0};
    bool is_good = true;
    for (uint32_t i = 0; i < asked->question.count && is_good; i++) {
        uint32_t count;
        struct str *words = state_question_words(&asked->question, i, &arena, &count);
        is_good = run_peek_add(asked->peek, words, count);
    }
    arena_free(&arena);
    if (!is_good)
        answer(asked);
    return is_good;
}

static void ask(struct api *api, struct net_exchange *exchange, bool is_row)
{
    struct run *run = atomic_load(&api->run);
    struct state_asked *asked = mem_calloc(1, sizeof(*asked));
    struct byte_buffer wrong = {0};
    asked->api = api;
    asked->exchange = exchange;
    int status =
        state_question_parse(api->plan, exchange->path, exchange->query, is_row, &asked->question, &wrong);
    if (status == 200 && run == NULL) {
        status = 503;
        buffer_printf(&wrong, "the run is being restored: ask again\n");
    }
    bool is_asked = false;
    if (status == 200) {
        asked->peek = run_peek_new(asked->question.node, api->peek_pool, is_done, asked);
        is_asked = add_keys(asked) && run_peek_ask(run, asked->peek) == RUN_PEEK_WAITS;
        if (!is_asked && asked->peek->end != RUN_PEEK_WRONG)
            answer(asked);
    } else {
        refuse(exchange, status, wrong.data);
    }
    if (!is_asked)
        asked_free(asked);
    buffer_free(&wrong);
}

void api_state_serve(struct api *api, struct net_exchange *exchange)
{
    ask(api, exchange, false);
}

void api_state_row_serve(struct api *api, struct net_exchange *exchange)
{
    ask(api, exchange, true);
}
