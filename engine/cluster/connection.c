/* Connections: a TCP socket, an outbox of messages that are to be written, an inbox of what was read, and their end. A piece of a
 * frame is written out of the frame's own memory, which is pinned until then. All of it runs on the runner. */
#include "cluster/link_internal.h"
#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    INBOX_ROOM = (int)sizeof(struct message_head) + MESSAGE_BODY_MAX + SLACK_BYTES,
    READS_MAX = 4, /* of one connection, before the others have their turn */
};

_Static_assert(GREETING_ROOM >= sizeof(struct message_head) + sizeof(struct message_hello) &&
                   sizeof(struct message_hello) >= sizeof(struct message_proof) &&
                   sizeof(struct message_hello) >= sizeof(struct message_status),
               "greetings fit into the first inbox");

static const uint8_t zeros[MESSAGE_BODY_MAX]; /* of probes */

void frame_drop(struct link_frame *frame)
{
    frame->is_orphan = true;
    if (frame->pins == 0)
        free(frame);
}

/* --- Beginning and end --- */

/* Takes the oldest message out of the outbox. */
static void let_go(struct connection *connection)
{
    struct sending *sending = connection->outbox;
    struct link_frame *frame = sending->frame;
    connection->outbox = sending->next;
    if (connection->outbox == NULL)
        connection->outbox_end = &connection->outbox;
    connection->written = 0;
    if (sending->head.kind == MESSAGE_FRAME || sending->head.kind == MESSAGE_PROBE) {
        connection->pieces--;
        connection->piece_bytes -= sending->bytes;
    } else
        connection->controls--;
    if (sending->head.kind == MESSAGE_STATUS)
        connection->has_status = false;
    if (frame != NULL && --frame->pins == 0 && frame->is_orphan)
        free(frame);
    sending->next = connection->links->idle;
    connection->links->idle = sending;
}

/* The socket is shut down and leaves the epoll before it is closed: closing alone does neither while a child of fork has it. */
void connection_break(struct connection *connection, const char *format, ...)
{
    if (connection->state == CONNECTION_BROKEN)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(connection->broken_by, sizeof(connection->broken_by), format, arguments);
    va_end(arguments);
    if (connection->state != CONNECTION_UP)
        connection->links->strangers--;
    connection->state = CONNECTION_BROKEN;
    if (connection->fd >= 0) {
        (void)epoll_ctl(connection->links->poll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
        (void)shutdown(connection->fd, SHUT_RDWR); /* the other side hears of it */
        close(connection->fd);
    }
    connection->fd = -1;
    while (connection->outbox != NULL)
        let_go(connection);
}

static void count_connections(struct links *links, int change)
{
    pthread_mutex_lock(&links->mutex);
    links->figures.connections += (uint32_t)change;
    pthread_mutex_unlock(&links->mutex);
}

void connection_free(struct connection *connection)
{
    struct connection **at = &connection->links->connections;
    leat_assert(connection->state == CONNECTION_BROKEN);
    while (*at != connection)
        at = &(*at)->next;
    *at = connection->next;
    count_connections(connection->links, -1);
    free(connection->inbox);
    free(connection);
}

/* Sleeps on these events from now on. */
static bool watch(struct connection *connection, uint32_t events)
{
    int operation = connection->watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (connection->watched == events)
        return true;
    connection->watched = events;
    return epoll_ctl(connection->links->poll_fd, operation, connection->fd, &event) == 0;
}

/* What is no word of the other side is told of the way to it: ETIMEDOUT, EHOSTUNREACH, EINVAL of a route that leads nowhere. */
static void break_by(struct connection *connection, int error)
{
    connection->is_silent = error != ECONNRESET && error != EPIPE;
    connection_break(connection, "%s", strerror(error));
}

static struct connection *connection_new(struct links *links, int fd, enum connection_state state)
{
    struct connection *connection = mem_calloc(1, sizeof(*connection));
    int one = 1;
    connection->links = links;
    connection->fd = fd;
    connection->state = state;
    connection->deadline_us = os_monotonic_us() + HANDSHAKE_US;
    connection->outbox_end = &connection->outbox;
    connection->inbox_room = GREETING_ROOM;
    connection->inbox = mem_alloc(connection->inbox_room);
    connection->missing = sizeof(struct message_head);
    connection->next = links->connections;
    links->connections = connection;
    links->strangers++;
    count_connections(links, 1);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return connection;
}

static void reject(struct links *links, int fd)
{
    if (fd >= 0)
        close(fd);
    pthread_mutex_lock(&links->mutex);
    links->figures.rejected++;
    pthread_mutex_unlock(&links->mutex);
}

/* Where the system has no descriptor left, the caller waits in the socket's queue, which is always ready then: it is left alone
 * for a while. */
void connection_take_caller(struct links *links)
{
    int fd;
    while ((fd = accept4(links->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (links->strangers >= STRANGERS_MAX) {
            reject(links, fd);
            continue;
        }
        struct connection *connection = connection_new(links, fd, CONNECTION_CALLED);
        if (!watch(connection, EPOLLIN))
            connection_break(connection, "%s", strerror(errno));
    }
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
        return;
    struct epoll_event none = {.data.ptr = &links->listen_fd};
    reject(links, -1);
    if (epoll_ctl(links->poll_fd, EPOLL_CTL_MOD, links->listen_fd, &none) == 0)
        links->accept_rest_us = os_monotonic_us() + ACCEPT_REST_US;
}

void connection_dial(struct link *link, const struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error = fd < 0 ? errno : 0;
    struct connection *connection = connection_new(link->links, fd, CONNECTION_DIALING);
    connection->link = link;
    connection->deadline_us = MIN(connection->deadline_us, link->give_up_us + DIAL_REST_US);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 &&
        errno != EINPROGRESS)
        error = errno;
    if (error == 0 && !watch(connection, EPOLLOUT))
        error = errno;
    if (error != 0)
        connection_break(connection, "%s", strerror(error));
}

/* --- Sending --- */

static struct sending *post(struct connection *connection, enum message_kind kind, uint64_t sequence)
{
    struct links *links = connection->links;
    struct sending *sending = links->idle;
    if (sending == NULL)
        sending = mem_alloc(sizeof(*sending));
    else
        links->idle = sending->next;
    sending->next = NULL;
    sending->frame = NULL;
    sending->head = (struct message_head){.kind = (uint8_t)kind,
                                          .from = (uint16_t)links->options.self,
                                          .incarnation = links->incarnation,
                                          .session = connection->session,
                                          .sequence = sequence};
    *connection->outbox_end = sending;
    connection->outbox_end = &sending->next;
    return sending;
}

void connection_tell(struct connection *connection, enum message_kind kind, uint64_t sequence,
                     const void *body, size_t bytes)
{
    if (connection->state == CONNECTION_BROKEN)
        return;
    if (connection->controls == CONTROLS_MAX) {
        connection_break(connection, "it asks, and does not read the answers");
        return;
    }
    struct sending *sending = post(connection, kind, sequence);
    leat_assert(bytes <= sizeof(sending->own));
    if (bytes != 0)
        memcpy(sending->own, body, bytes);
    sending->body = sending->own;
    sending->bytes = (uint32_t)bytes;
    message_seal(&sending->head, sending->own, bytes);
    connection->controls++;
    connection->has_status |= kind == MESSAGE_STATUS;
}

void connection_piece(struct connection *connection, struct link_frame *frame, uint32_t offset,
                      uint32_t bytes)
{
    struct sending *sending = post(connection, frame != NULL ? MESSAGE_FRAME : MESSAGE_PROBE,
                                   frame != NULL ? frame->sequence : offset);
    sending->body = frame != NULL ? frame->bytes + offset : zeros;
    sending->bytes = bytes;
    if (frame != NULL) {
        sending->frame = frame;
        sending->head.length = frame->length;
        sending->head.offset = offset;
        frame->pins++;
    }
    message_seal(&sending->head, sending->body, bytes);
    connection->pieces++;
    connection->piece_bytes += bytes;
    if (frame != NULL && frame->is_damaged) { /* a failpoint */
        frame->is_damaged = false;
        sending->head.digest ^= 1;
    }
    if (frame != NULL && frame->is_cut && bytes > 1) { /* a failpoint: the other side gets half a piece */
        frame->is_cut = false;
        connection->piece_bytes -= bytes - bytes / 2;
        sending->bytes = bytes / 2;
        connection_write_out(connection);
        connection_break(connection, "the failpoint link.cut broke it");
    }
}

bool connection_is_full(const struct connection *connection)
{
    return connection->pieces >= PIECES_MAX || connection->piece_bytes >= OUTBOX_BYTES;
}

/* Names the oldest messages of the outbox, without what is written of them. Returns how many bytes they are. */
static size_t gather(const struct connection *connection, struct iovec *parts, size_t room, size_t *count)
{
    size_t bytes = 0, skipped = connection->written;
    *count = 0;
    for (struct sending *sending = connection->outbox; sending != NULL && *count + 2 <= room;
         sending = sending->next) {
        const struct iovec both[] = {{&sending->head, sizeof(sending->head)},
                                     {(void *)sending->body, sending->bytes}};
        for (size_t i = 0; i < ARRAY_COUNT(both); i++) {
            size_t gone = MIN(skipped, both[i].iov_len);
            skipped -= gone;
            if (gone == both[i].iov_len)
                continue;
            parts[*count] = (struct iovec){(uint8_t *)both[i].iov_base + gone, both[i].iov_len - gone};
            bytes += parts[(*count)++].iov_len;
        }
    }
    return bytes;
}

static void has_written(struct connection *connection, size_t bytes)
{
    bytes += connection->written;
    while (connection->outbox != NULL) {
        size_t size = sizeof(connection->outbox->head) + connection->outbox->bytes;
        if (bytes < size)
            break;
        bytes -= size;
        let_go(connection);
    }
    connection->written = bytes;
}

/* A write that fails because the other side hung up leaves the end to the reader, who finds what it said last. */
static void write_failed(struct connection *connection, int error)
{
    if (error == EPIPE || error == ECONNRESET)
        connection->is_deaf = true;
    else
        break_by(connection, error);
}

void connection_write_out(struct connection *connection)
{
    struct iovec parts[2 * PIECES_MAX];
    bool is_blocked = false;
    while (connection->outbox != NULL && !is_blocked && !connection->is_deaf) {
        struct msghdr message = {.msg_iov = parts};
        size_t all = gather(connection, parts, ARRAY_COUNT(parts), &message.msg_iovlen);
        ssize_t wrote = sendmsg(connection->fd, &message, MSG_NOSIGNAL);
        if (wrote >= 0) {
            has_written(connection, (size_t)wrote);
            is_blocked = (size_t)wrote < all;
        } else if (errno == EAGAIN)
            is_blocked = true;
        else if (errno != EINTR)
            write_failed(connection, errno);
    }
    if (connection->state != CONNECTION_BROKEN && !watch(connection, EPOLLIN | (is_blocked ? EPOLLOUT : 0)))
        connection_break(connection, "%s", strerror(errno));
}

/* --- Receiving --- */

/* Takes a whole message. */
static void take(struct connection *connection, const struct message_head *head, const void *body,
                 size_t bytes)
{
    enum message_refusal refusal = REFUSED_NOT;
    if (connection->state == CONNECTION_UP)
        refusal = receive_message(connection, head, body, bytes);
    else
        handshake_take(connection, head, body);
    if (refusal != REFUSED_NOT)
        handshake_refuse(connection, refusal);
}

/* Looks at the message at the beginning of these bytes. Returns how long it is, 0: it is not whole, or is refused. */
static size_t take_first(struct connection *connection, const uint8_t *bytes, size_t have)
{
    struct message_head head;
    size_t body_bytes = 0, whole = sizeof(head);
    enum message_refusal refusal = REFUSED_NOT;
    if (have >= sizeof(head)) {
        memcpy(&head, bytes, sizeof(head));
        refusal = message_measure(&head, &body_bytes);
        whole += body_bytes;
        if (whole > connection->inbox_room)
            refusal = REFUSED_STRANGER; /* a frame without a greeting */
    }
    if (refusal == REFUSED_NOT && have < whole) {
        connection->missing = whole - have;
        return 0;
    }
    if (refusal == REFUSED_NOT)
        refusal = message_open(bytes, sizeof(head), bytes + sizeof(head), body_bytes, &head);
    if (refusal == REFUSED_NOT) {
        take(connection, &head, bytes + sizeof(head), body_bytes);
        return whole;
    }
    handshake_refuse(connection, refusal);
    return 0;
}

/* Takes the whole messages of the inbox, and moves what follows them to its beginning. */
static void take_whole(struct connection *connection)
{
    size_t at = 0, length;
    enum connection_state before = connection->state;
    do {
        length = take_first(connection, connection->inbox + at, connection->inbox_bytes - at);
        at += length;
    } while (length != 0 && connection->state == before);
    connection->inbox_bytes = connection->state <= CONNECTION_UP ? connection->inbox_bytes - at : 0;
    memmove(connection->inbox, connection->inbox + at, connection->inbox_bytes);
}

/* Likewise; who has proven itself gets the inbox for frames before any of them is looked at. */
static void take_all(struct connection *connection)
{
    enum connection_state before;
    do {
        before = connection->state;
        take_whole(connection);
        if (connection->state == CONNECTION_UP && before != CONNECTION_UP) {
            connection->inbox_room = INBOX_ROOM;
            connection->inbox = mem_realloc(connection->inbox, connection->inbox_room);
        }
    } while (connection->state != before && connection->state <= CONNECTION_UP);
}

/* Reads what is missing of a message, and a little of what follows it: many small messages come in one call, and little of a
 * large one is moved. */
static void read_some(struct connection *connection)
{
    for (int i = 0; i < READS_MAX && connection->state < CONNECTION_BROKEN; i++) {
        size_t room =
            MIN(connection->inbox_room - connection->inbox_bytes, connection->missing + SLACK_BYTES);
        ssize_t got = recv(connection->fd, connection->inbox + connection->inbox_bytes, room, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got < 0) {
            break_by(connection, errno);
            return;
        }
        if (got == 0) {
            connection_break(connection, "the other side ended it");
            return;
        }
        connection->inbox_bytes += (size_t)got;
        if (connection->state == CONNECTION_REFUSED)
            connection->inbox_bytes = 0; /* it was told, and goes on */
        else if ((size_t)got >= connection->missing)
            take_all(connection);
        else
            connection->missing -= (size_t)got;
        if ((size_t)got < room)
            return; /* there is no more, or it is told again */
    }
}

static void is_dialed(struct connection *connection)
{
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    if (error != 0) {
        connection_break(connection, "%s", strerror(error));
        return;
    }
    connection->state = CONNECTION_DIALED;
    handshake_begin(connection);
}

void connection_event(struct connection *connection, uint32_t events)
{
    if (connection->state == CONNECTION_BROKEN)
        return;
    if (connection->state == CONNECTION_DIALING) {
        is_dialed(connection);
        return;
    }
    if ((events & ~(uint32_t)EPOLLOUT) != 0)
        read_some(connection);
    if ((events & EPOLLOUT) != 0 && connection->state != CONNECTION_BROKEN)
        connection_write_out(connection);
}
