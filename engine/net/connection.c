/* A connection: bytes between a socket and a protocol, with or without TLS between them.
 *
 * A protocol is called with `depth` raised; what it has written is sent when the outermost call has returned, and a
 * connection that it aborted is destroyed then. Answers from outside a call put the connection on the loop's dirty
 * list, which is settled once a turn. A connection that has sent all and is to be closed lingers: it ends its own
 * direction and drops what comes, so that an answer is not lost with bytes that the client is still sending. */
#include "net/connection_state.h"

#include "core/mem.h"

#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static void settle(struct net_connection *connection);

/* --- Closing --- */

static void count(struct net_connection *connection, size_t now)
{
    int64_t more = (int64_t)now - (int64_t)connection->counted;
    if (more == 0)
        return;
    connection->counted = now;
    connection->loop->unsent += (uint64_t)more;
    loop_count(connection->loop, more);
}

void connection_close_protocol(struct net_connection *connection)
{
    void *self = connection->self;
    connection->self = NULL;
    if (self == NULL)
        return;
    connection->depth++;
    connection->protocol->close(self);
    connection->depth--;
    connection->protocol = NULL;
}

static void unlink_dirty(struct net_connection *connection)
{
    if (!connection->is_dirty)
        return;
    struct net_connection **at = &connection->loop->dirty;
    while (*at != connection)
        at = &(*at)->next_dirty;
    *at = connection->next_dirty;
    connection->is_dirty = false;
}

static void closed(uv_handle_t *handle)
{
    struct net_connection *connection = (struct net_connection *)handle;
    tls_close(connection->tls);
    loop_give_buffer(connection->loop, &connection->out);
    loop_give_buffer(connection->loop, &connection->sending);
    free(connection);
}

static void destroy(struct net_connection *connection)
{
    if (connection->is_closed)
        return;
    struct net_loop *loop = connection->loop;
    connection->is_closed = true;
    connection_close_protocol(connection);
    unlink_dirty(connection);
    park_forget(connection);
    deadline_clear(&connection->wait);
    deadline_clear(&connection->stall);
    count(connection, 0);
    loop->lingering -= connection->is_lingering;
    if (connection->before != NULL)
        connection->before->next = connection->next;
    else
        loop->connections = connection->next;
    if (connection->next != NULL)
        connection->next->before = connection->before;
    loop->counters.connections_now--;
    connection->listener->connections_now--;
    uv_close((uv_handle_t *)&connection->tcp, closed);
}

void connection_abort(struct net_connection *connection, int status)
{
    if (connection->is_aborted || connection->is_closed)
        return;
    connection->is_aborted = true;
    if (status >= 0)
        loop_refused(connection->loop, connection->listener, status);
    if (connection->depth == 0)
        destroy(connection);
}

/* All has been sent. */
static void linger(struct net_connection *connection)
{
    connection_close_protocol(connection);
    int fd = -1;
    if (connection->is_eof || uv_fileno((uv_handle_t *)&connection->tcp, &fd) != 0 ||
        shutdown(fd, SHUT_WR) != 0) {
        destroy(connection);
        return;
    }
    connection->is_lingering = true;
    connection->loop->lingering++;
    connection_pause(connection, false);
    deadline_set(&connection->loop->deadlines, &connection->listener->linger, &connection->wait);
}

/* --- Sending --- */

static void written(uv_write_t *write, int status)
{
    struct net_connection *connection = write->data;
    if (connection->is_closed)
        return;
    connection->is_writing = false;
    connection->was_writing = true;
    deadline_clear(&connection->stall);
    if (status < 0) {
        connection_abort(connection, -1);
        return;
    }
    loop_give_buffer(connection->loop, &connection->sending);
    settle(connection);
}

/* Bytes that the client has not taken: also those that the kernel holds for it. */
static size_t untaken(struct net_connection *connection)
{
    int fd = -1, kernel = 0;
    if (uv_fileno((uv_handle_t *)&connection->tcp, &fd) != 0 || ioctl(fd, SIOCOUTQ, &kernel) != 0)
        kernel = 0;
    return uv_stream_get_write_queue_size(connection_stream(connection)) + (size_t)kernel;
}

/* Sets the deadline in which the client takes WRITE_BYTES_LEAST of what is untaken now, or all of it. */
static void expect_taking(struct net_connection *connection)
{
    connection->stalled_at = untaken(connection);
    connection->taken_at = connection->given - connection->stalled_at;
    deadline_set(&connection->loop->deadlines, &connection->listener->write, &connection->stall);
}

static void send_rest(struct net_connection *connection, size_t sent)
{
    struct net_loop *loop = connection->loop;
    uv_buf_t rest =
        uv_buf_init(connection->sending.data + sent, (unsigned)(connection->sending.length - sent));
    connection->write.data = connection;
    if (uv_write(&connection->write, connection_stream(connection), &rest, 1, written) != 0) {
        connection_abort(connection, -1);
        return;
    }
    loop->counters.bytes_out += rest.len;
    connection->given += rest.len;
    connection->is_writing = true;
    expect_taking(connection);
}

/* Sends what is in `out`, if nothing is being sent. */
void connection_send(struct net_connection *connection)
{
    struct byte_buffer *from = &connection->out;
    if (connection->tls != NULL) {
        loop_take_buffer(connection->loop, &connection->sending);
        struct str plain = {connection->out.data, connection->out.length};
        if (!tls_write(connection->tls, plain, &connection->sending)) {
            connection_abort(connection, -1);
            return;
        }
        loop_give_buffer(connection->loop, &connection->out);
        from = &connection->sending;
    }
    if (from->length == 0) {
        loop_give_buffer(connection->loop, from);
        return;
    }
    uv_buf_t all = uv_buf_init(from->data, (unsigned)from->length);
    int sent = uv_try_write(connection_stream(connection), &all, 1);
    if (sent < 0 && sent != UV_EAGAIN) {
        connection_abort(connection, -1);
        return;
    }
    sent = MAX(sent, 0);
    connection->loop->counters.bytes_out += (uint64_t)sent;
    connection->given += (uint64_t)sent;
    if ((size_t)sent == from->length) {
        loop_give_buffer(connection->loop, from);
        return;
    }
    if (from == &connection->out) {
        connection->sending = connection->out;
        connection->out = (struct byte_buffer){0};
    }
    send_rest(connection, (size_t)sent);
}

/* A connection that has nothing to send and is to be closed. */
static void end(struct net_connection *connection)
{
    if (connection->tls != NULL && !connection->is_ended) {
        connection->is_ended = true;
        tls_end(connection->tls);
        connection_send(connection);
        if (connection->is_writing)
            return;
    }
    if (connection->is_aborted)
        destroy(connection);
    else if (!connection->is_lingering)
        linger(connection);
}

static void settle(struct net_connection *connection)
{
    if (connection->depth > 0 || connection->is_closed)
        return;
    while (!connection->is_aborted && !connection->is_writing &&
           (connection->out.length > 0 || connection->was_writing)) {
        connection->was_writing = false;
        connection->depth++;
        connection_send(connection);
        if (!connection->is_aborted && !connection->is_writing && connection->self != NULL)
            connection->protocol->drained(connection->self);
        connection->depth--;
    }
    if (connection->is_aborted) {
        destroy(connection);
        return;
    }
    count(connection, connection->out.length + (connection->is_writing ? connection->sending.length : 0));
    if (connection->streams > 0 && connection->stall.next == NULL && untaken(connection) > 0)
        expect_taking(connection);
    if (connection->is_finishing && !connection->is_writing)
        end(connection);
}

void connection_leave(struct net_connection *connection)
{
    if (--connection->depth > 0)
        return;
    settle(connection);
    net_exchanges_recycle(connection->loop);
}

void connection_mark(struct net_connection *connection)
{
    if (connection->is_dirty || connection->is_closed)
        return;
    connection->is_dirty = true;
    connection->next_dirty = connection->loop->dirty;
    connection->loop->dirty = connection;
}

/* --- Deadlines --- */

static struct net_connection *waiting(struct deadline *deadline)
{
    return (struct net_connection *)(void *)((char *)deadline - offsetof(struct net_connection, wait));
}

static void wait_passed(struct deadline *deadline)
{
    struct net_connection *connection = waiting(deadline);
    if (connection->self == NULL) {
        connection_abort(connection, connection->first_count > 0 || connection->tls != NULL ? 0 : -1);
        return;
    }
    connection->depth++;
    connection->protocol->expired(connection->self);
    connection_leave(connection);
}

static void linger_passed(struct deadline *deadline)
{
    connection_abort(waiting(deadline), -1);
}

static void write_passed(struct deadline *deadline)
{
    struct net_connection *connection =
        (struct net_connection *)(void *)((char *)deadline - offsetof(struct net_connection, stall));
    size_t left = untaken(connection), least = MIN(connection->stalled_at, (size_t)WRITE_BYTES_LEAST);
    if (connection->given - left - connection->taken_at < least)
        connection_abort(connection, 0);
    else if (left > 0)
        expect_taking(connection);
}

void connections_deadlines(struct net_listener *listener)
{
    struct deadlines *deadlines = &listener->loop->deadlines;
    const struct net_listen *listen = &listener->listen;
    deadlines_add(deadlines, &listener->head, listen->head_ms, wait_passed);
    deadlines_add(deadlines, &listener->body, listen->body_ms, wait_passed);
    deadlines_add(deadlines, &listener->idle, listen->idle_ms, wait_passed);
    deadlines_add(deadlines, &listener->window, listen->write_ms, wait_passed);
    deadlines_add(deadlines, &listener->linger, LINGER_MS, linger_passed);
    deadlines_add(deadlines, &listener->write, listen->write_ms, write_passed);
}

/* --- From the loop and its listeners --- */

static void free_refused(uv_handle_t *handle)
{
    free(handle);
}

void connection_accept(struct net_listener *listener)
{
    struct net_loop *loop = listener->loop;
    struct net_connection *connection = mem_calloc(1, sizeof(*connection));
    uv_tcp_init(&loop->uv, &connection->tcp);
    connection->loop = loop;
    connection->listener = listener;
    loop->counters.connections++;
    bool is_accepted = uv_accept((uv_stream_t *)&listener->tcp, connection_stream(connection)) == 0;
    if (!is_accepted || listener->connections_now >= listener->listen.connections_max) {
        loop->counters.connections_refused++;
        loop_refused(loop, listener, 0);
        uv_close((uv_handle_t *)&connection->tcp, free_refused);
        return;
    }
    loop->counters.connections_now++;
    listener->connections_now++;
    connection->next = loop->connections;
    if (connection->next != NULL)
        connection->next->before = connection;
    loop->connections = connection;
    uv_tcp_nodelay(&connection->tcp, 1);
    if (listener->tls != NULL)
        connection->tls = tls_open(listener->tls);
    connection_expect(connection, connection->tls != NULL ? WAIT_HEAD : WAIT_IDLE);
    connection_read(connection);
}

void connection_settle(struct net_connection *connection)
{
    unlink_dirty(connection);
    if (connection->tls != NULL && !connection->is_paused && connection->self != NULL) {
        connection_go_on(connection);
    } else {
        settle(connection);
    }
}

void connection_stop(struct net_connection *connection)
{
    if (connection->self == NULL) {
        if (!connection->is_finishing)
            connection_abort(connection, -1);
        return;
    }
    connection->depth++;
    connection->protocol->stop(connection->self);
    connection_leave(connection);
}

struct net_connection *connection_next(const struct net_connection *connection)
{
    return connection->next;
}

int64_t connection_waits_since(const struct net_connection *connection)
{
    return connection->parked_us;
}

struct net_loop *connection_loop(const struct net_connection *connection)
{
    return connection->loop;
}

const struct net_listener *connection_listener(const struct net_connection *connection)
{
    return connection->listener;
}

void connection_respond(struct exchange *exchange, const struct net_response *response)
{
    struct net_connection *connection = exchange->connection;
    leat_assert(connection->self != NULL);
    connection->depth++;
    connection->protocol->respond(connection->self, exchange, response);
    if (--connection->depth == 0)
        connection_mark(connection);
}

/* A call of the protocol about a stream is over. What is unsent counts at once: many streams may be sent to before their
 * connections are settled. */
static void leave_stream(struct net_connection *connection)
{
    count(connection, connection->out.length + (connection->is_writing ? connection->sending.length : 0));
    if (--connection->depth == 0)
        connection_mark(connection);
}

bool connection_begin_stream(struct exchange *exchange, const struct net_response *response)
{
    struct net_connection *connection = exchange->connection;
    connection->depth++;
    bool is_begun = connection->protocol->begin_stream(connection->self, exchange, response);
    leave_stream(connection);
    return is_begun;
}

bool connection_send_stream(struct exchange *exchange, struct str part)
{
    struct net_connection *connection = exchange->connection;
    connection->depth++;
    bool is_sent = connection->protocol->send_stream(connection->self, exchange, part);
    leave_stream(connection);
    return is_sent;
}

void connection_end_stream(struct exchange *exchange)
{
    struct net_connection *connection = exchange->connection;
    connection->depth++;
    connection->protocol->end_stream(connection->self, exchange);
    leave_stream(connection);
}

/* --- From protocols --- */

void connection_streams(struct net_connection *connection, int more)
{
    connection->streams += (uint32_t)more;
    if (connection->streams == 0 && !connection->is_writing)
        deadline_clear(&connection->stall);
}

struct byte_buffer *connection_out(struct net_connection *connection)
{
    loop_take_buffer(connection->loop, &connection->out);
    return &connection->out;
}

size_t connection_pending(const struct net_connection *connection)
{
    return connection->out.length +
           (connection->is_writing ? uv_stream_get_write_queue_size((const uv_stream_t *)&connection->tcp)
                                   : 0);
}

void connection_flush(struct net_connection *connection)
{
    if (connection->depth == 0)
        connection_mark(connection);
}

void connection_finish(struct net_connection *connection)
{
    connection->is_finishing = true;
    connection_flush(connection);
}

void connection_pause(struct net_connection *connection, bool is_paused)
{
    if (connection->is_paused == is_paused || connection->is_closed || connection->is_eof)
        return;
    connection->is_paused = is_paused;
    if (is_paused) {
        uv_read_stop(connection_stream(connection));
    } else {
        connection_read(connection);
        if (connection->tls != NULL)
            connection_mark(connection);
    }
}

const struct net_listen *connection_listen(const struct net_connection *connection)
{
    return &connection->listener->listen;
}

struct str connection_date(const struct net_connection *connection)
{
    return (struct str){loop_date(connection->loop), DATE_BYTES};
}

void connection_refused(struct net_connection *connection)
{
    loop_refused(connection->loop, connection->listener, 0);
}

void connection_count(struct net_connection *connection, int64_t bytes)
{
    loop_count(connection->loop, bytes);
}

void connection_take_buffer(struct net_connection *connection, struct byte_buffer *buffer)
{
    loop_take_buffer(connection->loop, buffer);
}

void connection_give_buffer(struct net_connection *connection, struct byte_buffer *buffer)
{
    loop_give_buffer(connection->loop, buffer);
}

void connection_expect(struct net_connection *connection, enum net_wait wait)
{
    struct net_listener *listener = connection->listener;
    if (wait == WAIT_SERVICE) {
        deadline_clear(&connection->wait);
        return;
    }
    struct deadline_queue *queue = wait == WAIT_HEAD     ? &listener->head
                                   : wait == WAIT_BODY   ? &listener->body
                                   : wait == WAIT_WINDOW ? &listener->window
                                                         : &listener->idle;
    deadline_set(&connection->loop->deadlines, queue, &connection->wait);
}
