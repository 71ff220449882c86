/* Answers that go on: the exchange of a stream stays until the service ends it or the client is gone. What a client has
 * not taken is bounded twice: a part is left out above NET_STREAM_UNSENT_MAX or without memory in the loop, and a client
 * that takes nothing within write_ms is closed (connection.c, http2.c). */
#include "net/rules.h"

static struct exchange *exchange_of(struct net_exchange *public)
{
    return (struct exchange *)public;
}

bool net_stream_begin(struct net_exchange *public, const struct net_response *response,
                      void (*gone)(struct net_exchange *exchange))
{
    struct exchange *exchange = exchange_of(public);
    leat_assert(!exchange->is_freed && !exchange->is_answered && exchange->is_served);
    leat_assert(response->body.length == 0 && response->trailers_count == 0 && gone != NULL);
    leat_assert(response->status >= 200 && response->status <= 599);
    leat_assert(response->status != 204 && response->status != 304);
    net_fields_check(response->fields, response->fields_count);
    exchange->is_answered = true;
    if (exchange->connection == NULL) {
        net_exchange_free(exchange);
        return false;
    }
    if (!connection_begin_stream(exchange, response))
        return false;
    if (exchange->connection == NULL) { /* it was reset while its head was sent */
        net_exchange_free(exchange);
        return false;
    }
    exchange->gone = gone;
    return true;
}

bool net_stream_send(struct net_exchange *public, struct str part)
{
    struct exchange *exchange = exchange_of(public);
    struct net_loop *loop = exchange->loop;
    leat_assert(!exchange->is_freed && exchange->gone != NULL && exchange->connection != NULL);
    if (part.length == 0)
        return true; /* in HTTP/1.1 an empty chunk would be the end */
    if (loop->counters.memory_now + part.length > loop->memory_max)
        return false;
    return connection_send_stream(exchange, part);
}

void net_stream_end(struct net_exchange *public)
{
    struct exchange *exchange = exchange_of(public);
    leat_assert(!exchange->is_freed && exchange->gone != NULL && exchange->connection != NULL);
    exchange->gone = NULL;
    connection_end_stream(exchange);
}

void net_exchange_end_stream(struct exchange *exchange)
{
    void (*gone)(struct net_exchange *) = exchange->gone;
    exchange->public.is_gone = true;
    exchange->gone = NULL;
    gone(&exchange->public);
    connection_end_stream(exchange);
}
