/* What a connection receives: which protocol it speaks, TLS, its end. */
#include "net/connection_state.h"

#include "core/os.h"

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
_Static_assert(sizeof(preface) - 1 == PREFACE_BYTES, "the preface of HTTP/2");

static void open_protocol(struct net_connection *connection, const struct net_protocol *protocol)
{
    connection->is_known = true;
    connection->protocol = protocol;
    connection->self = protocol->open(connection);
}

static void give(struct net_connection *connection, const char *bytes, size_t count)
{
    if (count > 0 && connection->self != NULL && !connection->is_aborted)
        connection->protocol->receive(connection->self, bytes, count);
}

/* Decides by the first bytes what the connection speaks; as long as they may become either, they wait. */
static void detect(struct net_connection *connection, const char *bytes, size_t count)
{
    size_t had = connection->first_count, take = MIN(count, PREFACE_BYTES - had);
    if (memcmp(preface + had, bytes, take) != 0) {
        open_protocol(connection, &http1_protocol);
        give(connection, connection->first, had);
        give(connection, bytes, count);
        return;
    }
    memcpy(connection->first + had, bytes, take);
    connection->first_count = (uint8_t)(had + take);
    if (connection->first_count == PREFACE_BYTES) {
        open_protocol(connection, &http2_protocol);
        give(connection, connection->first, PREFACE_BYTES);
        give(connection, bytes + take, count - take);
    } else if (had == 0) {
        connection_expect(connection, WAIT_HEAD);
    }
}

static void receive_plain(struct net_connection *connection, const char *bytes, size_t count)
{
    if (connection->is_known)
        give(connection, bytes, count);
    else
        detect(connection, bytes, count);
}

/* The client has ended its direction. Answers that were made are still sent; it waits for no others. */
static void ended(struct net_connection *connection)
{
    if (connection->is_lingering || connection_pending(connection) == 0) {
        connection_abort(connection, -1);
        return;
    }
    uv_read_stop(connection_stream(connection));
    deadline_clear(&connection->wait);
    connection->is_paused = connection->is_eof = connection->is_finishing = true;
    connection_close_protocol(connection);
    connection_mark(connection);
}

static void receive_tls(struct net_connection *connection, const char *bytes, size_t count)
{
    struct tls *tls = connection->tls;
    if (count > 0)
        tls_put(tls, bytes, count);
    enum tls_state state = tls_handshake(tls);
    if (state == TLS_DONE && !connection->is_known) {
        connection_expect(connection, WAIT_IDLE);
        open_protocol(connection, tls_is_http2(tls) ? &http2_protocol : &http1_protocol);
    }
    while (state == TLS_DONE && !connection->is_paused && !connection->is_aborted &&
           !connection->is_finishing) {
        size_t got = 0;
        state = tls_read(tls, connection->loop->plain, READ_BYTES, &got);
        receive_plain(connection, connection->loop->plain, got);
    }
    /* Bytes of TLS itself are sent now: answers of a handshake, alerts. Those of the protocol are sent by
     * settling, which tells it when all has gone. */
    if (!connection->is_writing && !connection->is_aborted && connection->out.length == 0)
        connection_send(connection);
    if (state == TLS_ENDED)
        ended(connection);
    else if (state == TLS_FAILED)
        connection_abort(connection, connection->is_known ? -1 : 0);
}

static void lend_bytes(uv_handle_t *handle, size_t suggested, uv_buf_t *bytes)
{
    (void)suggested;
    struct net_connection *connection = (struct net_connection *)handle;
    struct net_loop *loop = connection->loop;
    if (loop->pass_us == 0)
        loop->pass_us = os_monotonic_us();
    if (loop->is_late && !connection->is_lingering)
        *bytes = uv_buf_init(NULL, 0); /* nothing is read, and `received` gets UV_ENOBUFS */
    else
        *bytes = uv_buf_init(loop->bytes, READ_BYTES);
}

static void received(uv_stream_t *stream, ssize_t count, const uv_buf_t *bytes)
{
    struct net_connection *connection = (struct net_connection *)stream;
    connection->loop->has_news = true;
    if (count == 0 || connection->is_closed)
        return;
    if (count == UV_ENOBUFS) {
        park(connection);
        return;
    }
    if (count < 0) {
        if (count == UV_EOF)
            ended(connection);
        else
            connection_abort(connection, -1);
        return;
    }
    connection->loop->counters.bytes_in += (uint64_t)count;
    if (connection->is_lingering)
        return;
    connection->depth++;
    if (connection->tls != NULL)
        receive_tls(connection, bytes->base, (size_t)count);
    else
        receive_plain(connection, bytes->base, (size_t)count);
    struct net_loop *loop = connection->loop;
    connection->parked_us = 0;
    connection_leave(connection);
    loop_settle_early(loop);
}

void connection_read(struct net_connection *connection)
{
    if (!connection->is_parked)
        uv_read_start(connection_stream(connection), lend_bytes, received);
}

void connection_go_on(struct net_connection *connection)
{
    connection->depth++;
    receive_tls(connection, NULL, 0);
    connection_leave(connection);
}
