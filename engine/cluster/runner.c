/* The runner: the one thread that reads and writes. A turn takes what came, looks at connections, then at links, and writes; when
 * it had nothing to do the runner sleeps until a socket is ready, a caller wakes it, or something is due. */
#include "cluster/link_internal.h"
#include "core/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    EVENTS_MAX = 64,
    FLUSHES_MAX = 4, /* of a link, before the others have their turn */
    TELL_US = 5000,  /* for which a status waits for frames with which it can go along */
};

/* What a turn found. */
struct turn {
    int64_t now_us, due_us; /* due_us: when the next turn must begin at the latest */
    bool is_busy;
};

static void is_due(struct turn *turn, int64_t at_us)
{
    if (at_us <= turn->now_us)
        turn->is_busy = true;
    else
        turn->due_us = MIN(turn->due_us, at_us);
}

static void write_wake(struct links *links)
{
    uint64_t one = 1;
    ssize_t wrote = write(links->wake_fd, &one, sizeof(one));
    leat_assert(wrote == (ssize_t)sizeof(one));
}

void links_wake(struct links *links)
{
    if (links->is_asleep)
        write_wake(links);
    links->is_asleep = false;
    links->has_news = true;
}

void links_wake_and_unlock(struct links *links)
{
    bool is_asleep = links->is_asleep;
    links->is_asleep = false;
    links->has_news = true;
    pthread_mutex_unlock(&links->mutex);
    if (is_asleep)
        write_wake(links); /* without the mutex, for which the runner would wait at once */
}

void links_count(struct links *links, enum message_refusal refusal)
{
    struct links_figures *figures = &links->figures;
    uint64_t *const counters[REFUSED_COUNT] = {
        [REFUSED_DAMAGED] = &figures->damaged,         [REFUSED_VERSION] = &figures->other_version,
        [REFUSED_OLDER] = &figures->older_incarnation, [REFUSED_NEWER] = &figures->newer_incarnation,
        [REFUSED_WORKER] = &figures->other_worker,     [REFUSED_UNKNOWN] = &figures->unknown_worker,
        [REFUSED_STRANGER] = &figures->strangers,      [REFUSED_ORDER] = &figures->out_of_order,
        [REFUSED_OVER_CREDIT] = &figures->over_credit,
    };
    pthread_mutex_lock(&links->mutex);
    (*counters[refusal])++;
    pthread_mutex_unlock(&links->mutex);
}

/* --- Links that begin and end --- */

/* is_unreached: as link_figures has it. */
static void say_gone(struct link *link, const char *reason, bool is_unreached)
{
    struct links *links = link->links;
    pthread_mutex_lock(&links->mutex);
    bool is_news = link->state != LINK_GONE && !link->is_closing && !links->must_stop && !links->must_restart;
    link->state = LINK_GONE;
    link->figures.is_up = false;
    link->figures.is_unreached = is_unreached;
    pthread_mutex_unlock(&links->mutex);
    if (is_news)
        links->options.calls.is_gone(links->options.user, link->worker, reason);
}

static const char *advice_for(enum message_refusal refusal)
{
    switch (refusal) {
    case REFUSED_NOT: return "is that worker running, the address its own, the port open in firewalls?";
    case REFUSED_VERSION: return "start the same version of leat on all workers";
    case REFUSED_OLDER: return "this worker must take over the newer incarnation first";
    case REFUSED_WORKER:
        return "the address that this worker was told is another's: look where it comes from";
    case REFUSED_STRANGER: return "do both belong to the same cluster and name?";
    default: return "look at what the other worker says";
    }
}

/* Whether another attempt may end otherwise. */
static bool may_change(enum message_refusal refusal)
{
    return refusal == REFUSED_NOT || refusal == REFUSED_UNKNOWN || refusal == REFUSED_NEWER;
}

static void give_up(struct link *link, const char *address)
{
    char reason[LINK_REASON_MAX];
    snprintf(reason, sizeof(reason), "no link to worker %u at %s after %u attempts: %s; %s", link->worker,
             address, link->dials, link->failure, advice_for(link->refusal));
    say_gone(link, reason, true);
}

static void dial_failed(struct link *link, const struct connection *connection, int64_t now_us)
{
    char address[sizeof(link->address_text)];
    pthread_mutex_lock(&link->links->mutex);
    memcpy(address, link->address_text, sizeof(address));
    bool is_dialing = link->state == LINK_DIALING;
    pthread_mutex_unlock(&link->links->mutex);
    if (connection->refusal != REFUSED_NOT || link->refusal == REFUSED_NOT) { /* a refusal explains more */
        link->refusal = connection->refusal;
        snprintf(link->failure, sizeof(link->failure), "%s", connection->broken_by);
    }
    if (!is_dialing)
        return;
    if (!may_change(connection->refusal) || now_us >= link->give_up_us) {
        give_up(link, address);
        return;
    }
    link->dial_us = MIN(now_us + link->dial_rest_us, link->give_up_us);
    link->dial_rest_us = MIN(2 * link->dial_rest_us, DIAL_REST_MAX_US);
}

/* Who listens waits as long as the other side dials. */
static void wait_turn(struct link *link, const char *address, struct turn *turn)
{
    if (turn->now_us < link->give_up_us) {
        is_due(turn, link->give_up_us);
        return;
    }
    char reason[LINK_REASON_MAX];
    snprintf(reason, sizeof(reason), "worker %u (%s) did not call in time; %s", link->worker, address,
             advice_for(REFUSED_NOT));
    say_gone(link, reason, true);
}

static void dial_turn(struct link *link, struct turn *turn)
{
    struct links *links = link->links;
    char text[sizeof(link->address_text)];
    pthread_mutex_lock(&links->mutex);
    enum link_state state = link->state;
    bool is_first = link->is_called && (state == LINK_DIALING || state == LINK_WAITING);
    struct sockaddr_in address = link->address;
    memcpy(text, link->address_text, sizeof(text));
    link->is_called = false;
    pthread_mutex_unlock(&links->mutex);
    if (is_first) {
        int64_t patience_us = links->options.patience_us;
        link->dials = 0;
        link->refusal = REFUSED_NOT;
        link->dial_us = turn->now_us;
        link->give_up_us = turn->now_us + (patience_us > 0 ? patience_us : PATIENCE_US);
        link->dial_rest_us = DIAL_REST_US;
    }
    if (state == LINK_WAITING)
        wait_turn(link, text, turn);
    if (state != LINK_DIALING || link->dial_us == TIME_MAX) /* TIME_MAX: a connection is being made */
        return;
    if (turn->now_us < link->dial_us) {
        is_due(turn, link->dial_us);
        return;
    }
    link->dial_us = TIME_MAX;
    link->dials++;
    turn->is_busy = true;
    connection_dial(link, &address);
}

static bool has_connection(const struct links *links, const struct link *link)
{
    for (const struct connection *connection = links->connections; connection != NULL;
         connection = connection->next)
        if (connection->link == link)
            return true;
    return false;
}

/* Ends a link whose connections are all freed. */
static void link_end(struct link *link)
{
    struct links *links = link->links;
    while (link->frames != NULL) {
        struct link_frame *frame = link->frames;
        link->frames = frame->next;
        frame_drop(frame);
    }
    free(link->assembled);
    pthread_mutex_lock(&links->mutex);
    links->by_worker[link->worker] = NULL;
    links->figures.retained_bytes -= link->figures.retained_bytes;
    free(link);
    pthread_cond_broadcast(&links->changed);
    pthread_mutex_unlock(&links->mutex);
}

/* --- Sending --- */

/* The next piece of the link's frames; 0 bytes and NULL: none may leave now. */
static struct link_frame *next_piece(struct link *link, struct turn *turn, uint32_t *bytes)
{
    struct links *links = link->links;
    struct link_frame *frame = link->to_send;
    if (frame == NULL)
        return NULL;
    int64_t at_us = MAX(frame->due_us, link->free_us);
    if (link->offset == 0 && at_us > turn->now_us) {
        is_due(turn, at_us);
        return NULL;
    }
    *bytes = MIN((uint32_t)MESSAGE_BODY_MAX, frame->length - link->offset);
    int64_t rate = links->options.bytes_per_s;
    if (rate > 0)
        link->free_us = MAX(link->free_us, turn->now_us) + (int64_t)*bytes * US_PER_SECOND / rate;
    return frame;
}

/* The piece is in the outbox: goes on to the next one; with the mutex locked. */
static void step_on(struct link *link, struct link_frame *frame, uint32_t bytes)
{
    link->offset += bytes;
    if (link->offset < frame->length)
        return;
    link->offset = 0;
    link->sent = MAX(link->sent, frame->sequence);
    link->figures.sent_frames++;
    link->figures.sent_bytes += frame->length;
    if (frame->is_twice)
        frame->is_twice = false; /* a failpoint */
    else
        link->to_send = frame->next;
}

/* Puts a piece of a frame into the outbox; false: none may leave now. */
static bool put_piece(struct link *link, struct turn *turn)
{
    struct links *links = link->links;
    uint32_t bytes = 0;
    pthread_mutex_lock(&links->mutex);
    struct link_frame *frame = next_piece(link, turn, &bytes);
    pthread_mutex_unlock(&links->mutex);
    if (frame == NULL)
        return false;
    if (failpoint("link.piece") != 0) {
        connection_break(link->connection, "the failpoint link.piece broke it");
        return false;
    }
    connection_piece(link->connection, frame, link->offset, bytes);
    pthread_mutex_lock(&links->mutex);
    step_on(link, frame, bytes);
    pthread_mutex_unlock(&links->mutex);
    return true;
}

/* Likewise of a probe. */
static bool put_probe(struct link *link)
{
    struct links *links = link->links;
    pthread_mutex_lock(&links->mutex);
    uint32_t bytes = MIN(link->probe_left, (uint32_t)MESSAGE_BODY_MAX);
    uint32_t left = link->probe_left -= bytes;
    if (bytes != 0 && link->probe_began_us < 0)
        link->probe_began_us = os_monotonic_us();
    if (bytes != 0 && os_monotonic_us() - link->probe_began_us >= LINK_PROBE_US) { /* the rest is not sent */
        link->probe_size -= left;
        link->probe_left = left = 0;
    }
    pthread_mutex_unlock(&links->mutex);
    if (bytes != 0)
        connection_piece(link->connection, NULL, left, bytes);
    return bytes != 0;
}

/* Fills the outbox with pieces of frames and of a probe, in turn. true: it is full, and there may be more. */
static bool fill_outbox(struct link *link, struct turn *turn)
{
    const struct connection *connection = link->connection;
    while (connection->state == CONNECTION_UP && !connection_is_full(connection)) {
        bool is_put = put_piece(link, turn);
        if (connection->state == CONNECTION_UP)
            is_put |= put_probe(link);
        if (!is_put)
            return false;
    }
    return connection->state == CONNECTION_UP;
}

static void send_all(struct link *link, struct turn *turn)
{
    struct connection *connection = link->connection;
    for (int i = 0; i < FLUSHES_MAX; i++) {
        bool is_full = fill_outbox(link, turn);
        connection_write_out(connection);
        if (!is_full || connection->outbox != NULL || connection->state != CONNECTION_UP)
            return;
    }
    turn->is_busy = true;
}

/* Whether the other side is told now how far this one is: where it may be waiting, along with frames that leave anyway, or when it has
 * waited. With the mutex locked. */
static bool must_tell_now(struct link *link, struct turn *turn)
{
    if (!link->must_tell && !credits_must_tell(&link->receiver))
        return false;
    if (link->tell_us == 0)
        link->tell_us = turn->now_us + TELL_US;
    if (credits_is_urgent(&link->receiver) || link->to_send != NULL || turn->now_us >= link->tell_us)
        return true;
    is_due(turn, link->tell_us);
    return false;
}

/* One status and one ping at a time wait for a socket that takes nothing: more of them would say no more. */
static void send_controls(struct link *link, struct turn *turn)
{
    struct links *links = link->links;
    struct connection *connection = link->connection;
    pthread_mutex_lock(&links->mutex);
    bool must_tell = must_tell_now(link, turn);
    bool must_ping = link->must_ping && link->pinged_us == 0;
    link->must_ping = false;
    pthread_mutex_unlock(&links->mutex);
    if (must_ping) {
        link->pinged_us = os_monotonic_us();
        connection_tell(connection, MESSAGE_PING, (uint64_t)link->pinged_us, NULL, 0);
    }
    if (must_tell && connection->has_status)
        connection_write_out(connection); /* what it does not write brings an event when it can */
    if (must_tell && !connection->has_status) {
        struct message_status status = receive_own_status(link);
        connection_tell(connection, MESSAGE_STATUS, 0, &status, sizeof(status));
    }
}

/* --- Turns --- */

static void link_turn(struct link *link, struct turn *turn)
{
    struct links *links = link->links;
    pthread_mutex_lock(&links->mutex);
    bool is_closing = link->is_closing;
    bool has_room = link->is_wanting && !is_closing && link_passes(link, link->wanted_bytes);
    link->is_wanting = link->is_wanting && !has_room;
    pthread_mutex_unlock(&links->mutex);
    if (has_room)
        links->options.calls.has_room(links->options.user, link->worker);
    if (!is_closing) {
        dial_turn(link, turn);
        if (link->connection == NULL)
            return;
        send_controls(link, turn);
        send_all(link, turn);
        if (link->connection->state == CONNECTION_BROKEN)
            turn->is_busy = true; /* no event tells of its end: the next turn does */
        return;
    }
    for (struct connection *connection = links->connections; connection != NULL;
         connection = connection->next)
        if (connection->link == link)
            connection_break(connection, "the link was closed");
    turn->is_busy = true;
    if (!has_connection(links, link))
        link_end(link);
}

/* A connection broke: its link hears of it. */
static void end_connection(struct connection *connection, struct turn *turn)
{
    struct link *link = connection->link;
    if (link == NULL)
        return;
    if (link->connection == connection) {
        link->connection = NULL;
        char reason[LINK_REASON_MAX];
        snprintf(reason, sizeof(reason), "the connection to worker %u broke: %s", link->worker,
                 connection->broken_by);
        say_gone(link, reason, connection->is_silent);
    } else
        dial_failed(link, connection, turn->now_us);
}

/* Goes on accepting, a while after the system had no descriptor left. */
static void accept_turn(struct links *links, struct turn *turn)
{
    if (links->accept_rest_us == 0)
        return;
    if (turn->now_us < links->accept_rest_us) {
        is_due(turn, links->accept_rest_us);
        return;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &links->listen_fd};
    if (epoll_ctl(links->poll_fd, EPOLL_CTL_MOD, links->listen_fd, &event) == 0)
        links->accept_rest_us = 0;
}

static void connections_turn(struct links *links, struct turn *turn)
{
    for (struct connection *connection = links->connections, *next; connection != NULL; connection = next) {
        next = connection->next;
        if (connection->state != CONNECTION_UP && connection->state != CONNECTION_BROKEN) {
            if (turn->now_us >= connection->deadline_us)
                connection_break(connection, "no answer that leat knows");
            else
                is_due(turn, connection->deadline_us);
        }
        if (connection->state != CONNECTION_BROKEN)
            continue;
        end_connection(connection, turn);
        turn->is_busy = true;
        connection_free(connection);
    }
}

/* Whether the link has been dialed, or waited for, for long, and never came about. */
static bool is_long_coming(struct link *link, const struct turn *turn)
{
    struct links *links = link->links;
    int64_t patience_us = links->options.patience_us > 0 ? links->options.patience_us : PATIENCE_US;
    pthread_mutex_lock(&links->mutex);
    bool is_coming = (link->state == LINK_DIALING || link->state == LINK_WAITING) && !link->is_called;
    pthread_mutex_unlock(&links->mutex);
    return is_coming && links->options.silence_us > 0 &&
           turn->now_us - (link->give_up_us - patience_us) >= links->options.silence_us / 3 * 2;
}

/* links_end_silent. end: behind the highest number of a link. Connections that break here end in this turn. */
static void end_silent(struct links *links, uint32_t end, const struct turn *turn)
{
    for (struct connection *connection = links->connections; connection != NULL;
         connection = connection->next) {
        bool is_up = connection->state == CONNECTION_UP;
        connection->is_silent |= is_up && silence_is_long(connection);
        if (connection->is_silent)
            connection_break(connection, "it has not answered for a while");
    }
    for (uint32_t i = 0; i < end; i++) {
        pthread_mutex_lock(&links->mutex);
        struct link *link = links->by_worker[i];
        pthread_mutex_unlock(&links->mutex);
        if (link != NULL && is_long_coming(link, turn))
            say_gone(link, "no link came about yet", true);
    }
}

/* Closes all links and connections, for an end or for another incarnation. */
static void close_all(struct links *links)
{
    pthread_mutex_lock(&links->mutex);
    for (uint32_t i = 0; i < links->workers_end; i++)
        if (links->by_worker[i] != NULL)
            links->by_worker[i]->is_closing = true;
    pthread_mutex_unlock(&links->mutex);
    for (struct connection *connection = links->connections; connection != NULL;
         connection = connection->next)
        connection_break(connection, "all links were closed");
}

static bool is_empty(struct links *links)
{
    bool is_empty = links->connections == NULL;
    pthread_mutex_lock(&links->mutex);
    for (uint32_t i = 0; i < links->workers_end; i++)
        is_empty &= links->by_worker[i] == NULL;
    pthread_mutex_unlock(&links->mutex);
    return is_empty;
}

static void restart(struct links *links)
{
    pthread_mutex_lock(&links->mutex);
    links->options.self = links->next_self;
    links->options.window_bytes = links->next_window;
    links->incarnation = links->next_incarnation;
    links->secret_length = links->next_secret_length;
    memcpy(links->secret, links->next_secret, links->secret_length);
    links->must_restart = false;
    pthread_cond_broadcast(&links->changed);
    pthread_mutex_unlock(&links->mutex);
}

/* Looks at the descriptors, for up to timeout_ms (-1: until something happens). */
static void look(struct links *links, int timeout_ms)
{
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(links->poll_fd, events, EVENTS_MAX, timeout_ms);
    leat_assert(count >= 0 || errno == EINTR);
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr == &links->listen_fd)
            connection_take_caller(links);
        else if (events[i].data.ptr != &links->wake_fd)
            connection_event(events[i].data.ptr, events[i].events);
    }
}

/* true: the runner may end. */
static bool run_turn(struct links *links, struct turn *turn)
{
    turn->now_us = os_monotonic_us();
    pthread_mutex_lock(&links->mutex);
    links->has_news = false;
    bool must_stop = links->must_stop, must_restart = links->must_restart,
         must_end_silent = links->must_end_silent;
    uint32_t end = links->workers_end;
    pthread_mutex_unlock(&links->mutex);
    if (must_stop || must_restart)
        close_all(links);
    accept_turn(links, turn);
    if (must_end_silent)
        end_silent(links, end, turn);
    connections_turn(links, turn);
    if (must_end_silent) {
        pthread_mutex_lock(&links->mutex);
        links->must_end_silent = false;
        pthread_cond_broadcast(&links->changed);
        pthread_mutex_unlock(&links->mutex);
    }
    for (uint32_t i = 0; i < end; i++) {
        pthread_mutex_lock(&links->mutex);
        struct link *link = links->by_worker[i];
        pthread_mutex_unlock(&links->mutex);
        if (link != NULL)
            link_turn(link, turn);
    }
    if (!(must_stop || must_restart) || !is_empty(links))
        return false;
    if (must_restart)
        restart(links);
    return must_stop;
}

static void rest(struct links *links, const struct turn *turn)
{
    pthread_mutex_lock(&links->mutex);
    links->is_asleep = !links->has_news;
    bool may_sleep = links->is_asleep;
    pthread_mutex_unlock(&links->mutex);
    if (!may_sleep)
        return;
    int timeout_ms =
        turn->due_us == TIME_MAX ? -1 : (int)MIN((turn->due_us - turn->now_us) / 1000 + 1, INT32_MAX);
    look(links, timeout_ms);
    pthread_mutex_lock(&links->mutex);
    links->is_asleep = false;
    links->figures.wakes++;
    pthread_mutex_unlock(&links->mutex);
    uint64_t count;
    ssize_t got = read(links->wake_fd, &count, sizeof(count)); /* does not wait */
    (void)got;
}

void *links_run(void *argument)
{
    struct links *links = argument;
    for (;;) {
        struct turn turn = {.due_us = TIME_MAX};
        if (run_turn(links, &turn))
            return NULL;
        if (turn.is_busy)
            look(links, 0);
        else
            rest(links, &turn);
    }
}
