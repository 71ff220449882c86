/* Requests and their answers, whatever protocol they came by. What is freed in a turn of the loop may still be
 * looked at by the protocol that is at work, and is used again after it. */
#include "core/mem.h"
#include "core/os.h"
#include "net/rules.h"

#include <stdlib.h>

static struct exchange *exchange_of(struct net_exchange *public)
{
    return (struct exchange *)public;
}

/* --- Memory --- */

static void count(struct exchange *exchange)
{
    size_t now = exchange->head.length + exchange->body.length;
    loop_count(exchange->loop, (int64_t)now - (int64_t)exchange->counted);
    exchange->counted = now;
}

struct exchange *net_exchange_new(struct net_connection *connection)
{
    struct net_loop *loop = connection_loop(connection);
    struct exchange *exchange = loop->spare;
    if (exchange != NULL) {
        loop->spare = exchange->next;
        loop->spare_count--;
        struct byte_buffer head = exchange->head, body = exchange->body;
        struct net_field *fields = exchange->public.fields;
        uint32_t capacity = exchange->fields_capacity;
        *exchange = (struct exchange){.head = head, .body = body, .fields_capacity = capacity};
        exchange->public.fields = fields;
    } else {
        exchange = mem_calloc(1, sizeof(*exchange));
    }
    exchange->loop = loop;
    exchange->connection = connection;
    exchange->listener = connection_listener(connection);
    exchange->next = loop->live;
    if (exchange->next != NULL)
        exchange->next->before = exchange;
    loop->live = exchange;
    return exchange;
}

void net_exchange_free(struct exchange *exchange)
{
    leat_assert(!exchange->is_freed);
    struct net_loop *loop = exchange->loop;
    exchange->is_freed = true;
    exchange->connection = NULL;
    buffer_clear(&exchange->head);
    buffer_clear(&exchange->body);
    count(exchange);
    if (exchange->before != NULL)
        exchange->before->next = exchange->next;
    else
        loop->live = exchange->next;
    if (exchange->next != NULL)
        exchange->next->before = exchange->before;
    exchange->next = loop->freed;
    loop->freed = exchange;
}

static void destroy(struct exchange *exchange)
{
    buffer_free(&exchange->head);
    buffer_free(&exchange->body);
    free(exchange->public.fields);
    free(exchange);
}

static void trim(struct byte_buffer *buffer)
{
    if (buffer->capacity > SPARE_BYTES_MAX)
        buffer_free(buffer);
}

void net_exchanges_recycle(struct net_loop *loop)
{
    for (struct exchange *exchange = loop->freed, *next; exchange != NULL; exchange = next) {
        next = exchange->next;
        if (loop->spare_count == SPARE_EXCHANGES_MAX) {
            destroy(exchange);
            continue;
        }
        trim(&exchange->head);
        trim(&exchange->body);
        exchange->next = loop->spare;
        loop->spare = exchange;
        loop->spare_count++;
    }
    loop->freed = NULL;
}

void net_exchanges_free(struct net_loop *loop)
{
    while (loop->live != NULL)
        net_exchange_free(loop->live);
    net_exchanges_recycle(loop);
    for (struct exchange *exchange = loop->spare, *next; exchange != NULL; exchange = next) {
        next = exchange->next;
        destroy(exchange);
    }
}

void net_exchange_orphan(struct exchange *exchange)
{
    exchange->connection = NULL;
    exchange->stream = NULL;
    exchange->public.is_gone = true;
    if (exchange->gone != NULL)
        exchange->gone(&exchange->public);
    if (exchange->gone != NULL || !exchange->is_served)
        net_exchange_free(exchange);
}

/* --- The head --- */

/* Until the head is whole its buffer may move: texts are offsets. */
static struct str offset_text(size_t offset, size_t length)
{
    return (struct str){(const char *)(uintptr_t)offset, length};
}

static void place(const struct exchange *exchange, struct str *text)
{
    text->data = exchange->head.data + (uintptr_t)text->data;
}

static struct str append(struct exchange *exchange, struct str text)
{
    size_t offset = exchange->head.length;
    buffer_append(&exchange->head, text.data, text.length);
    return offset_text(offset, text.length);
}

bool net_exchange_add_field(struct exchange *exchange, struct str name, struct str value)
{
    struct net_exchange *public = &exchange->public;
    if (exchange->head.length + name.length + value.length > NET_HEAD_BYTES_MAX ||
        public->fields_count == NET_FIELDS_MAX)
        return false;
    if (public->fields_count == exchange->fields_capacity) {
        exchange->fields_capacity = MIN(MAX(exchange->fields_capacity * 2, 16), NET_FIELDS_MAX);
        public->fields = mem_realloc(public->fields, exchange->fields_capacity * sizeof(*public->fields));
    }
    struct net_field *field = &public->fields[public->fields_count++];
    field->name = append(exchange, name);
    char *lower = exchange->head.data + (exchange->head.length - name.length);
    for (size_t i = 0; i < name.length; i++) {
        if (lower[i] >= 'A' && lower[i] <= 'Z')
            lower[i] = (char)(lower[i] | 0x20);
    }
    field->value = append(exchange, value);
    return true;
}

bool net_exchange_set_target(struct exchange *exchange, struct str method, struct str target)
{
    if (exchange->head.length + method.length + target.length > NET_HEAD_BYTES_MAX)
        return false;
    exchange->public.method = append(exchange, method);
    exchange->target = append(exchange, target);
    return true;
}

struct str net_field(const struct net_exchange *exchange, const char *name)
{
    for (uint32_t i = 0; i < exchange->fields_count; i++) {
        if (str_is(exchange->fields[i].name, name))
            return exchange->fields[i].value;
    }
    return (struct str){NULL, 0};
}

static void place_head(struct exchange *exchange)
{
    struct net_exchange *public = &exchange->public;
    buffer_reserve(&exchange->head, 1);
    place(exchange, &public->method);
    place(exchange, &exchange->target);
    for (uint32_t i = 0; i < public->fields_count; i++) {
        place(exchange, &public->fields[i].name);
        place(exchange, &public->fields[i].value);
    }
    if (exchange->authority.data == NULL)
        exchange->authority = net_field(public, "host");
    exchange->is_head_request = str_is(public->method, "HEAD");
    exchange->is_begun = true;
    count(exchange);
}

/* --- What the service sees --- */

void net_exchange_begin(struct exchange *exchange, int64_t content_length)
{
    struct net_loop *loop = exchange->loop;
    const struct net_listener *listener = exchange->listener;
    place_head(exchange);
    exchange->public.begun_us = os_monotonic_us();
    int64_t since_us = connection_waits_since(exchange->connection);
    exchange->public.waited_us = since_us == 0 ? 0 : exchange->public.begun_us - since_us;
    struct broken_rule broken = rules_check(exchange, content_length);
    if (broken.status != 0) {
        net_exchange_refuse(exchange, broken.status, broken.text);
        return;
    }
    if (exchange->public.is_http2)
        loop->counters.requests_http2++;
    else
        loop->counters.requests_http1++;
    if (listener->service->begin != NULL)
        listener->service->begin(listener->user, &exchange->public);
}

bool net_exchange_body(struct exchange *exchange, const char *bytes, size_t more)
{
    if (exchange->body.length + more > exchange->listener->listen.body_bytes_max) {
        net_exchange_refuse(exchange, 413, "the body is longer than this server allows");
        return false;
    }
    if (exchange->loop->counters.memory_now + more > exchange->loop->memory_max) {
        net_exchange_refuse(exchange, 503, "this server has no memory left for more requests; try again");
        return false;
    }
    buffer_append(&exchange->body, bytes, more);
    count(exchange);
    return true;
}

void net_exchange_serve(struct exchange *exchange)
{
    const struct net_listener *listener = exchange->listener;
    exchange->public.body = (struct str){exchange->body.data, exchange->body.length};
    exchange->is_served = true;
    exchange->loop->has_news = true;
    listener->service->serve(listener->user, &exchange->public);
}

/* --- Answers --- */

static bool is_clean(struct str text)
{
    for (size_t i = 0; i < text.length; i++) {
        if (text.data[i] == '\r' || text.data[i] == '\n' || text.data[i] == '\0')
            return false;
    }
    return true;
}

void net_fields_check(const struct net_field *fields, uint32_t fields_count)
{
    for (uint32_t i = 0; i < fields_count; i++) {
        leat_assert(fields[i].name.length > 0 && is_clean(fields[i].name));
        leat_assert(is_clean(fields[i].value));
    }
}

void net_respond(struct net_exchange *public, const struct net_response *response)
{
    struct exchange *exchange = exchange_of(public);
    leat_assert(!exchange->is_freed && !exchange->is_answered);
    leat_assert(response->status >= 200 && response->status <= 599);
    leat_assert(response->body.length <= NET_ANSWER_BYTES_MAX);
    net_fields_check(response->fields, response->fields_count);
    net_fields_check(response->trailers, response->trailers_count);
    exchange->is_answered = true;
    if (exchange->connection == NULL)
        net_exchange_free(exchange);
    else
        connection_respond(exchange, response);
}

static const struct net_field plain_text = {{"content-type", 12}, {"text/plain; charset=utf-8", 25}};

void net_respond_text(struct net_exchange *public, int status, const char *text)
{
    net_respond(public,
                &(struct net_response){
                    .status = status, .fields = &plain_text, .fields_count = 1, .body = str_from(text)});
}

/* A client of gRPC looks for a status of its own, in the only header block of a refusal. The codes are those of
 * https://grpc.github.io/grpc/core/md_doc_statuscodes.html. */
static const char *grpc_status_of(int status)
{
    switch (status) {
    case 401: return "16"; /* UNAUTHENTICATED */
    case 403:
    case 421: return "7"; /* PERMISSION_DENIED */
    case 413:
    case 431:
    case 429: return "8";  /* RESOURCE_EXHAUSTED */
    case 408: return "4";  /* DEADLINE_EXCEEDED */
    case 503: return "14"; /* UNAVAILABLE */
    default: return "13";  /* INTERNAL */
    }
}

bool net_is_grpc(const struct net_exchange *exchange)
{
    static const char type[] = "application/grpc";
    struct str value = net_field(exchange, "content-type");
    return value.length >= sizeof(type) - 1 && memcmp(value.data, type, sizeof(type) - 1) == 0;
}

static void refuse_grpc(struct exchange *exchange, int status, const char *text)
{
    /* The texts of net/ are of printable ASCII without `%`, as grpc-message needs them. */
    struct net_field fields[] = {{STR("content-type"), STR("application/grpc")}};
    struct net_field trailers[] = {{STR("grpc-status"), str_from(grpc_status_of(status))},
                                   {STR("grpc-message"), {text, strcspn(text, "\n")}}};
    struct net_response response = {.status = 200,
                                    .fields = fields,
                                    .fields_count = ARRAY_COUNT(fields),
                                    .trailers = trailers,
                                    .trailers_count = ARRAY_COUNT(trailers)};
    net_respond(&exchange->public, &response);
}

void net_exchange_refuse(struct exchange *exchange, int status, const char *text)
{
    if (exchange->public.is_http2 && net_is_grpc(&exchange->public)) {
        loop_refused(exchange->loop, exchange->listener, status);
        refuse_grpc(exchange, status, text);
        return;
    }
    struct net_field fields[2] = {plain_text};
    struct net_response response = {.status = status,
                                    .fields = fields,
                                    .fields_count = 2,
                                    .body = str_from(text),
                                    .must_close = status == 400 || status == 408 || status == 431};
    if (status == 401)
        fields[1] = (struct net_field){STR("www-authenticate"), STR("Bearer")};
    else if (status == 503)
        fields[1] = (struct net_field){STR("retry-after"), STR("1")};
    else if (status == 405)
        fields[1] = (struct net_field){STR("allow"), STR("GET, HEAD, POST, OPTIONS")};
    else
        response.fields_count = 1;
    loop_refused(exchange->loop, exchange->listener, status);
    net_respond(&exchange->public, &response);
}
