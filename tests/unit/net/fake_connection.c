#include "fake_connection.h"

#include "core/mem.h"
#include "core/os.h"

#include <stdio.h>
#include <stdlib.h>

int64_t fake_now_us = US_PER_SECOND;

int64_t __wrap_os_monotonic_us(void); /* NOLINT: the name that the linker's --wrap asks for */

int64_t __wrap_os_monotonic_us(void)
{
    return fake_now_us;
}

void fake_open(struct net_connection *connection)
{
    *connection = (struct net_connection){.listen = {.body_bytes_max = 1000,
                                                     .head_ms = 5000,
                                                     .body_ms = 10000,
                                                     .idle_ms = 60000,
                                                     .write_ms = 10000},
                                          .deadline_us = INT64_MAX};
    connection->self = http2_protocol.open(connection);
}

void fake_close(struct net_connection *connection)
{
    http2_protocol.close(connection->self);
    connection->self = NULL;
    buffer_free(&connection->out);
}

void fake_pass_ms(struct net_connection *connection, int64_t ms)
{
    int64_t end = fake_now_us + ms * 1000;
    while (connection->deadline_us <= end && !connection->is_finished && !connection->is_aborted) {
        fake_now_us = MAX(fake_now_us, connection->deadline_us);
        connection->deadline_us = INT64_MAX;
        http2_protocol.expired(connection->self);
    }
    fake_now_us = end;
}

/* --- Connections --- */

struct byte_buffer *connection_out(struct net_connection *connection)
{
    return &connection->out;
}

size_t connection_pending(const struct net_connection *connection)
{
    return connection->out.length + connection->unsent;
}

void connection_flush(struct net_connection *connection)
{
    connection->flushes++;
}

void connection_finish(struct net_connection *connection)
{
    connection->is_finished = true;
}

void connection_abort(struct net_connection *connection, int status)
{
    connection->refused += status >= 0;
    connection->is_aborted = true;
}

void connection_pause(struct net_connection *connection, bool is_paused)
{
    connection->is_paused = is_paused;
}

const struct net_listen *connection_listen(const struct net_connection *connection)
{
    return &connection->listen;
}

void connection_expect(struct net_connection *connection, enum net_wait wait)
{
    const struct net_listen *listen = &connection->listen;
    const uint32_t ms[] = {listen->head_ms, listen->body_ms, listen->idle_ms, listen->write_ms};
    leat_assert(wait != WAIT_SERVICE);
    connection->deadline_us = fake_now_us + (int64_t)ms[wait] * 1000;
}

struct str connection_date(const struct net_connection *connection)
{
    (void)connection;
    return STR("Thu, 26 Nov 2026 16:51:13 GMT");
}

void connection_count(struct net_connection *connection, int64_t bytes)
{
    connection->held += bytes;
    leat_assert(connection->held >= 0);
}

void connection_streams(struct net_connection *connection, int more)
{
    connection->streams += more;
    leat_assert(connection->streams >= 0);
}

/* What stream.c does; these tests begin no stream. */
void net_exchange_end_stream(struct exchange *exchange)
{
    leat_assert(exchange == NULL);
}

void connection_take_buffer(struct net_connection *connection, struct byte_buffer *buffer)
{
    (void)connection;
    leat_assert(buffer->length == 0);
}

void connection_give_buffer(struct net_connection *connection, struct byte_buffer *buffer)
{
    (void)connection;
    buffer_free(buffer);
}

void connection_refused(struct net_connection *connection)
{
    connection->refused++;
}

/* --- Exchanges --- */

struct exchange *net_exchange_new(struct net_connection *connection)
{
    struct exchange *exchange = mem_calloc(1, sizeof(*exchange));
    exchange->connection = connection;
    exchange->public.fields = mem_calloc(NET_FIELDS_MAX, sizeof(struct net_field));
    exchange->public.user = connection;
    connection->exchanges++;
    return exchange;
}

void net_exchange_free(struct exchange *exchange)
{
    struct net_connection *connection = exchange->public.user;
    connection->exchanges--;
    for (uint32_t i = 0; i < exchange->public.fields_count; i++) {
        free((char *)(uintptr_t)exchange->public.fields[i].name.data);
        free((char *)(uintptr_t)exchange->public.fields[i].value.data);
    }
    free(exchange->public.fields);
    free((char *)(uintptr_t)exchange->public.method.data);
    free((char *)(uintptr_t)exchange->public.path.data);
    buffer_free(&exchange->body);
    free(exchange);
}

/* The service, if it has seen the exchange, answers later. */
void net_exchange_orphan(struct exchange *exchange)
{
    struct net_connection *connection = exchange->public.user;
    connection->orphaned++;
    exchange->public.is_gone = true;
    exchange->connection = NULL;
    if (!exchange->is_served)
        net_exchange_free(exchange);
}

static struct str copy(struct str text)
{
    return (struct str){mem_str(text), text.length};
}

bool net_exchange_add_field(struct exchange *exchange, struct str name, struct str value)
{
    if (exchange->public.fields_count == NET_FIELDS_MAX)
        return false;
    exchange->public.fields[exchange->public.fields_count++] = (struct net_field){copy(name), copy(value)};
    return true;
}

bool net_exchange_set_target(struct exchange *exchange, struct str method, struct str target)
{
    exchange->public.method = copy(method);
    exchange->public.path = copy(target);
    return target.length <= NET_PATH_BYTES_MAX;
}

static void respond(struct exchange *exchange, const struct net_response *response)
{
    leat_assert(!exchange->is_answered);
    exchange->is_answered = true;
    if (exchange->connection == NULL)
        net_exchange_free(exchange);
    else
        http2_protocol.respond(exchange->connection->self, exchange, response);
}

void net_exchange_refuse(struct exchange *exchange, int status, const char *text)
{
    exchange->connection->refused++;
    exchange->connection->refusal = status;
    respond(exchange, &(struct net_response){.status = status, .body = str_from(text)});
}

void net_exchange_begin(struct exchange *exchange, int64_t content_length)
{
    struct net_connection *connection = exchange->connection;
    leat_assert(exchange->authority.length > 0);
    exchange->is_begun = true;
    connection->content_length = content_length;
    snprintf(connection->authority, sizeof(connection->authority), "%.*s", STR_ARGS(exchange->authority));
    if (content_length > connection->listen.body_bytes_max)
        net_exchange_refuse(exchange, 413, "the body is too long\n");
    else if (str_is(exchange->public.method, "CONNECT"))
        net_exchange_refuse(exchange, 405, "expected another method");
    else if (connection->service == FAKE_REFUSES)
        net_exchange_refuse(exchange, 401, "a token is required\n");
    else
        connection->begun++;
}

bool net_exchange_body(struct exchange *exchange, const char *bytes, size_t count)
{
    buffer_append(&exchange->body, bytes, count);
    if (exchange->body.length <= exchange->connection->listen.body_bytes_max)
        return true;
    net_exchange_refuse(exchange, 413, "the body is too long\n");
    return false;
}

void net_exchange_serve(struct exchange *exchange)
{
    struct net_connection *connection = exchange->connection;
    exchange->is_served = true;
    if (connection->service == FAKE_WAITS) {
        leat_assert(connection->served_count < FAKE_SERVED_MAX);
        connection->served[connection->served_count++] = exchange;
        return;
    }
    static const struct net_field type = {{"content-type", 12}, {"text/plain", 10}};
    respond(exchange, &(struct net_response){.status = 200,
                                             .fields = &type,
                                             .fields_count = 1,
                                             .body = {exchange->body.data, exchange->body.length},
                                             .trailers = connection->trailers,
                                             .trailers_count = connection->trailers_count});
}

void fake_answer(struct exchange *exchange, int status, struct str body)
{
    respond(exchange, &(struct net_response){.status = status, .body = body});
}
