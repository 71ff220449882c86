/* Messages that come in: who may send them, frames put together, status, pings, probes. All of it runs on the runner. */
#include "cluster/link_internal.h"
#include "core/mem.h"
#include "core/os.h"

#include <stdlib.h>

/* --- The other side's status --- */

/* Drops frames that the other side has; with the mutex locked. false: it cannot have them, for they were not sent. */
static bool forget(struct link *link, uint64_t sequence)
{
    struct links *links = link->links;
    if (sequence > link->sent)
        return false;
    while (link->frames != NULL && link->frames->sequence <= sequence) {
        struct link_frame *frame = link->frames;
        if (link->to_send == frame) {
            link->to_send = frame->next;
            link->offset = 0;
        }
        link->frames = frame->next;
        if (link->frames == NULL)
            link->frames_end = &link->frames;
        link->figures.retained_bytes -= frame->length;
        links->figures.retained_bytes -= frame->length;
        frame_drop(frame);
    }
    return true;
}

bool receive_status(struct link *link, const struct message_status *status)
{
    struct links *links = link->links;
    pthread_mutex_lock(&links->mutex);
    bool is_good = forget(link, status->sequence) && credits_hear(&link->sender, status->granted);
    pthread_mutex_unlock(&links->mutex);
    return is_good;
}

struct message_status receive_own_status(struct link *link)
{
    struct links *links = link->links;
    pthread_mutex_lock(&links->mutex);
    credits_told(&link->receiver);
    link->tell_us = 0;
    struct message_status status = {link->received, link->receiver.told};
    pthread_mutex_unlock(&links->mutex);
    link->must_tell = false;
    return status;
}

bool receive_resume(struct connection *connection, struct link *link, uint64_t sequence)
{
    struct links *links = link->links;
    if (link->connection != NULL && link->connection != connection)
        connection_break(link->connection, "the other side has made a new connection");
    pthread_mutex_lock(&links->mutex);
    bool is_good = forget(link, sequence) && (link->frames == NULL || link->frames->sequence == sequence + 1);
    if (is_good) {
        link->state = LINK_UP;
        link->figures.is_up = true;
        link->to_send = link->frames;
        link->probe_began_us = 0;
        link->probe_left = 0;
        link->is_called = false;
    }
    pthread_mutex_unlock(&links->mutex);
    if (!is_good) {
        connection_break(connection, "it has other frames than were sent: is it of another run?");
        return false;
    }
    free(link->assembled);
    link->assembled = NULL;
    link->offset = 0;
    link->pinged_us = 0;
    link->connection = connection;
    connection->state = CONNECTION_UP;
    silence_watch(connection);
    links->strangers--;
    return true;
}

/* --- Frames --- */

/* Begins a frame; false: it is beyond the credits. */
static bool begin_frame(struct link *link, const struct message_head *head)
{
    struct links *links = link->links;
    pthread_mutex_lock(&links->mutex);
    bool is_allowed = credits_is_allowed(&link->receiver, head->length);
    pthread_mutex_unlock(&links->mutex);
    if (!is_allowed)
        return false;
    link->assembled = link_frame_new(head->length);
    link->assembled->sequence = head->sequence;
    link->assembled->worker = link->worker;
    link->assembled->life = link->life;
    link->assembled_bytes = 0;
    return true;
}

static void end_frame(struct link *link)
{
    struct links *links = link->links;
    struct link_frame *frame = link->assembled;
    link->assembled = NULL;
    link->received = frame->sequence;
    link->must_tell = true;
    pthread_mutex_lock(&links->mutex);
    credits_receive(&link->receiver, frame->length);
    link->figures.received_frames++;
    link->figures.received_bytes += frame->length;
    link->figures.held_bytes += frame->length;
    pthread_mutex_unlock(&links->mutex);
    links->options.calls.take(links->options.user, frame);
}

/* A piece that is there already: of a frame that was sent once more, as after a broken connection. */
static void drop_double(struct link *link, const struct message_head *head)
{
    if (head->offset != 0)
        return;
    pthread_mutex_lock(&link->links->mutex);
    link->figures.doubled_frames++;
    pthread_mutex_unlock(&link->links->mutex);
    link->must_tell = true;
}

static enum message_refusal take_piece(struct link *link, const struct message_head *head, const void *body,
                                       size_t bytes)
{
    if (head->sequence <= link->received) {
        drop_double(link, head);
        return REFUSED_NOT;
    }
    if (head->sequence != link->received + 1)
        return REFUSED_ORDER;
    if (link->assembled == NULL && head->offset == 0 && !begin_frame(link, head))
        return REFUSED_OVER_CREDIT;
    struct link_frame *frame = link->assembled;
    if (frame == NULL || head->offset != link->assembled_bytes || head->length != frame->length)
        return REFUSED_ORDER;
    if (bytes != 0)
        memcpy(frame->bytes + head->offset, body, bytes);
    link->assembled_bytes += (uint32_t)bytes;
    if (link->assembled_bytes == frame->length)
        end_frame(link);
    return REFUSED_NOT;
}

/* --- The others --- */

static void take_pong(struct link *link, uint64_t sent_us)
{
    if (link->pinged_us == 0 || (uint64_t)link->pinged_us != sent_us)
        return;
    pthread_mutex_lock(&link->links->mutex);
    link->figures.round_trip_us = os_monotonic_us() - link->pinged_us;
    pthread_mutex_unlock(&link->links->mutex);
    link->pinged_us = 0;
}

static void take_probed(struct link *link)
{
    pthread_mutex_lock(&link->links->mutex);
    if (link->probe_began_us != 0 && link->probe_left == 0) {
        int64_t took_us = MAX(os_monotonic_us() - link->probe_began_us, 1);
        link->figures.probe_bytes_per_s = (int64_t)link->probe_size * US_PER_SECOND / took_us;
        link->probe_began_us = 0;
    }
    pthread_mutex_unlock(&link->links->mutex);
}

static enum message_refusal take_message(struct connection *connection, const struct message_head *head,
                                         const void *body, size_t bytes)
{
    struct link *link = connection->link;
    struct message_status status;
    switch (head->kind) {
    case MESSAGE_FRAME: return take_piece(link, head, body, bytes);
    case MESSAGE_STATUS:
        memcpy(&status, body, sizeof(status));
        return receive_status(link, &status) ? REFUSED_NOT : REFUSED_ORDER;
    case MESSAGE_PING: connection_tell(connection, MESSAGE_PONG, head->sequence, NULL, 0); return REFUSED_NOT;
    case MESSAGE_PONG: take_pong(link, head->sequence); return REFUSED_NOT;
    case MESSAGE_PROBE:
        if (head->sequence == 0)
            connection_tell(connection, MESSAGE_PROBED, 0, NULL, 0);
        return REFUSED_NOT;
    case MESSAGE_PROBED: take_probed(link); return REFUSED_NOT;
    case MESSAGE_REFUSED:
        connection_break(
            connection, "it refused %s",
            message_refusal_text((enum message_refusal)MIN(head->sequence, (uint64_t)REFUSED_COUNT)));
        return REFUSED_NOT;
    default: return REFUSED_ORDER;
    }
}

enum message_refusal receive_message(struct connection *connection, const struct message_head *head,
                                     const void *body, size_t bytes)
{
    const struct links *links = connection->links;
    if (head->incarnation != links->incarnation)
        return head->incarnation < links->incarnation ? REFUSED_OLDER : REFUSED_NEWER;
    if (head->session != connection->session || head->from != connection->link->worker)
        return REFUSED_STRANGER;
    return take_message(connection, head, body, bytes);
}
