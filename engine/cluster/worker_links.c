/* Messages between the workers of a round. A frame has many, each behind a word that says how long it is, and whether it goes on in the
 * next frame. Messages gather in a frame until worker_flush, or until it is full.
 *
 * Memory (worker_options.links_bytes): one half is for frames that were sent and have not come, the other one for frames that came and
 * were not taken; each link has the same share of both, its window, which is GATHER_BYTES at least. A frame needs credit for all of its bytes, and is never longer than
 * a window. While a run is attached, it takes a frame before the next one is read, whichever micro-batch it is of, so all of the window
 * is free again with what the link carries, and waits for nothing else. Before a run is attached, the frames lie here, and their senders
 * have no more than the window. Whom a link refuses keeps the message (worker_send). */
#include "cluster/worker_internal.h"
#include "core/log.h"
#include "core/mem.h"

#include <stdlib.h>

enum {
    HEAD = sizeof(uint32_t),
    GATHER_BYTES = 64 << 10, /* of a frame in which messages gather; the least window */
};
#define GOES_ON     (UINT32_C(1) << 31)
#define MESSAGE_MAX (UINT64_C(1) << 30)

/* --- What comes in: the links' thread --- */

/* Takes a message, or a part of one. */
static void take_part(struct worker_links *l, uint32_t from, struct str bytes, bool goes_on)
{
    struct byte_buffer *parts = &l->parts[from];
    if (goes_on || parts->length > 0)
        buffer_append(parts, bytes.data, bytes.length);
    if (goes_on)
        return;
    l->calls.receive(l->user, from, parts->length > 0 ? (struct str){parts->data, parts->length} : bytes);
    buffer_free(parts);
}

/* False: it is none that a worker sends. */
static bool take_all(struct worker_links *l, const struct link_frame *frame)
{
    uint32_t head, at = 0;
    do {
        if (frame->length - at < HEAD)
            return false;
        memcpy(&head, frame->bytes + at, HEAD);
        at += HEAD;
        uint32_t bytes = head & ~GOES_ON;
        if (bytes > frame->length - at || l->parts[frame->worker].length + bytes > MESSAGE_MAX)
            return false;
        take_part(l, frame->worker, (struct str){(const char *)frame->bytes + at, bytes},
                  (head & GOES_ON) != 0);
        at += bytes;
    } while (at < frame->length);
    return true;
}

/* What the frame has goes to the run. With the mutex locked. */
static void give(struct worker_links *l, const struct link_frame *frame)
{
    if (!take_all(l, frame))
        atomic_fetch_or(&l->gone, UINT64_C(1) << frame->worker);
}

/* Implements link_calls.take. */
static void take(void *user, struct link_frame *frame)
{
    struct worker *worker = user;
    struct worker_links *l = &worker->links;
    pthread_mutex_lock(&l->mutex);
    bool is_kept = !l->is_attached && l->keeps;
    if (is_kept) {
        frame->next = NULL;
        *l->last = frame;
        l->last = &frame->next;
    } else if (l->is_attached)
        give(l, frame);
    pthread_mutex_unlock(&l->mutex);
    if (is_kept)
        return;
    int64_t held = link_release(l->links, frame);
    leat_assert(held ==
                0); /* the window is free: who was refused for want of credit need not wait for the run */
}

static void is_up(void *user LEAT_UNUSED, uint32_t worker LEAT_UNUSED)
{
}

static void is_gone(void *user, uint32_t other, const char *reason)
{
    struct worker *worker = user;
    struct link_figures figures;
    if (!atomic_load(&worker->changes)) /* else its part may have ended, as it was to */
        log_say(LOG_LEVEL_WARNING, "worker %u has gone: %s", other, reason);
    if (link_figures(worker->links.links, other, &figures) && figures.is_unreached)
        atomic_fetch_or(&worker->links.unreached, UINT64_C(1) << other);
    atomic_fetch_or(&worker->links.gone, UINT64_C(1) << other);
}

/* Sends what waits, in its order, until the links refuse. With the mutex locked. */
static void send_waiting(struct worker *worker, uint32_t to)
{
    struct worker_unsent *unsent = &worker->links.unsent[to];
    enum link_sent sent = LINK_SENT;
    while (unsent->first != NULL && sent != LINK_NO_ROOM) {
        struct link_frame *frame = unsent->first, *next = frame->next;
        uint32_t bytes = frame->length;
        sent = link_send(worker->links.links, to, frame);
        if (sent == LINK_NO_LINK)
            link_frame_free(frame); /* the round is over there */
        if (sent == LINK_NO_ROOM)
            continue;
        unsent->first = next;
        unsent->bytes -= bytes;
    }
    if (unsent->first == NULL)
        unsent->last = &unsent->first;
}

/* Implements link_calls.has_room. */
static void has_room(void *user, uint32_t to)
{
    struct worker *worker = user;
    struct worker_links *l = &worker->links;
    pthread_mutex_lock(&l->unsent[to].mutex);
    send_waiting(worker, to);
    bool has_room = l->unsent[to].first == NULL;
    pthread_mutex_unlock(&l->unsent[to].mutex);
    pthread_mutex_lock(&l->mutex);
    if (has_room && l->is_attached)
        l->calls.has_room(l->user, to);
    pthread_mutex_unlock(&l->mutex);
}

static void drop_unsent(struct worker_unsent *unsent)
{
    pthread_mutex_lock(&unsent->mutex);
    for (struct link_frame *frame = unsent->first, *next; frame != NULL; frame = next) {
        next = frame->next;
        link_frame_free(frame);
    }
    unsent->first = NULL;
    unsent->last = &unsent->first;
    unsent->bytes = 0;
    link_frame_free(unsent->open);
    unsent->open = NULL;
    pthread_mutex_unlock(&unsent->mutex);
}

/* --- Beginning and end --- */

/* A worker may be silent for that long, towards etcd and the others. */
static int64_t lease_us(const struct worker *worker)
{
    uint32_t lease_s = worker->o.coordination.lease_s;
    return (lease_s == 0 ? COORDINATION_LEASE_S : lease_s) * US_PER_SECOND;
}

bool worker_links_begin(struct worker *worker, struct diag_list *diags)
{
    struct worker_links *l = &worker->links;
    l->half = worker->o.links_bytes / 2;
    const struct links_options options = {
        .listen = worker->o.listen,
        .retained_bytes = MAX(l->half, (int64_t)GATHER_BYTES * RENDEZVOUS_WORKERS_MAX), /* of all windows */
        .window_bytes = GATHER_BYTES,
        .silence_us = lease_us(worker),
        .calls = {.take = take, .is_up = is_up, .is_gone = is_gone, .has_room = has_room},
        .user = worker,
    };
    pthread_mutex_init(&l->mutex, NULL);
    for (uint32_t i = 0; i < RENDEZVOUS_WORKERS_MAX; i++) {
        pthread_mutex_init(&l->unsent[i].mutex, NULL);
        l->unsent[i].last = &l->unsent[i].first;
    }
    l->last = &l->first;
    l->links = links_new(&options, diags);
    return l->links != NULL;
}

/* Frames that no run has taken. With the mutex locked. */
static struct link_frame *take_kept(struct worker_links *l)
{
    struct link_frame *kept = l->first;
    l->first = NULL;
    l->last = &l->first;
    return kept;
}

static void drop_all(struct worker_links *l)
{
    for (struct link_frame *frame = take_kept(l), *next; frame != NULL; frame = next) {
        next = frame->next;
        link_frame_free(frame); /* its link is closed */
    }
    for (uint32_t i = 0; i < RENDEZVOUS_WORKERS_MAX; i++) {
        buffer_free(&l->parts[i]);
        drop_unsent(&l->unsent[i]);
    }
}

void worker_links_end(struct worker *worker)
{
    struct worker_links *l = &worker->links;
    if (l->links != NULL)
        links_free(l->links);
    drop_all(l);
    for (uint32_t i = 0; i < RENDEZVOUS_WORKERS_MAX; i++)
        pthread_mutex_destroy(&l->unsent[i].mutex);
    pthread_mutex_destroy(&l->mutex);
}

void worker_links_meet(struct worker *worker, const struct rendezvous_round *round, struct arena *arena)
{
    struct worker_links *l = &worker->links;
    l->window =
        (uint32_t)MIN(MAX(l->half / MAX(round->count - 1, 1), (int64_t)GATHER_BYTES), INT64_C(1) << 30);
    links_restart(l->links, round->self, round->incarnation,
                  (struct str){(const char *)round->secret, sizeof(round->secret)}, l->window);
    pthread_mutex_lock(&l->mutex); /* no frame of this round comes before link_to */
    drop_all(l);
    l->keeps = true;
    pthread_mutex_unlock(&l->mutex);
    atomic_store(&l->gone, 0);
    atomic_store(&l->unreached, 0);
    for (uint32_t i = 0; i < round->count; i++) {
        char address[LINK_ADDRESS_MAX + 1];
        snprintf(address, sizeof(address), "%.*s", STR_ARGS(round->workers[i].address));
        struct diag_list unreached;
        diag_list_init(&unreached, arena);
        if (i != round->self && !link_to(l->links, i, address, &unreached))
            is_gone(worker, i, unreached.items[0].message); /* as one that does not answer */
    }
}

void worker_links_say_over(struct worker *worker)
{
    struct worker_links *l = &worker->links;
    pthread_mutex_lock(&l->mutex);
    if (l->is_attached)
        l->calls.is_over(l->user);
    pthread_mutex_unlock(&l->mutex);
}

/* --- The round's work --- */

void worker_attach(struct worker *worker, const struct worker_calls *calls, void *user)
{
    struct worker_links *l = &worker->links;
    pthread_mutex_lock(&l->mutex);
    l->calls = *calls;
    l->user = user;
    for (struct link_frame *frame = take_kept(l), *next; frame != NULL; frame = next) {
        next = frame->next;
        give(l, frame);
        link_release(l->links, frame);
    }
    l->is_attached = true;
    l->keeps = false;
    for (uint32_t i = 0; i < worker->round.count;
         i++) /* what was refused before: nobody has heard of the room since */
        if (i != worker->round.self)
            calls->has_room(user, i);
    pthread_mutex_unlock(&l->mutex);
    pthread_mutex_lock(&worker->mutex);
    bool is_over = worker->state != WORKER_RUNS; /* before it was attached: nobody has told it */
    pthread_mutex_unlock(&worker->mutex);
    if (is_over)
        calls->is_over(user);
}

void worker_detach(struct worker *worker)
{
    pthread_mutex_lock(&worker->links.mutex);
    worker->links.is_attached = false;
    pthread_mutex_unlock(&worker->links.mutex);
}

/* What has gathered waits to be sent. A small frame is sent as a copy, which has no more memory than bytes. With the mutex locked. */
static void close_frame(struct worker_unsent *unsent)
{
    struct link_frame *frame = unsent->open;
    if (frame == NULL || frame->length == 0)
        return;
    if (frame->length >= unsent->room) {
        unsent->open = NULL;
    } else {
        unsent->room += frame->length;
        frame = link_frame_new(unsent->open->length);
        memcpy(frame->bytes, unsent->open->bytes, frame->length);
        unsent->open->length = 0;
    }
    frame->next = NULL;
    unsent->bytes += frame->length;
    *unsent->last = frame;
    unsent->last = &frame->next;
}

/* A frame with room for so many bytes. With the mutex locked. */
static struct link_frame *frame_for(struct worker_unsent *unsent, uint32_t bytes)
{
    if (unsent->open != NULL && bytes <= unsent->room)
        return unsent->open;
    close_frame(unsent);
    if (unsent->open != NULL && bytes <= unsent->room)
        return unsent->open;
    link_frame_free(unsent->open);
    unsent->room = MAX(bytes, (uint32_t)GATHER_BYTES);
    unsent->open = link_frame_new(unsent->room);
    unsent->open->length = 0;
    return unsent->open;
}

/* Adds a message to frames. With the mutex locked. */
static void put(const struct worker_links *l, struct worker_unsent *unsent, struct str message)
{
    size_t sent = 0;
    do {
        uint32_t most = MIN(LINK_FRAME_MAX, l->window) - HEAD;
        uint32_t bytes = (uint32_t)MIN(message.length - sent, (size_t)most);
        uint32_t head = bytes | (sent + bytes < message.length ? GOES_ON : 0);
        struct link_frame *frame = frame_for(unsent, HEAD + bytes);
        memcpy(frame->bytes + frame->length, &head, HEAD);
        memcpy(frame->bytes + frame->length + HEAD, message.data + sent, bytes);
        frame->length += HEAD + bytes;
        unsent->room -= HEAD + bytes;
        sent += bytes;
    } while (sent < message.length);
}

bool worker_send(struct worker *worker, uint32_t to, struct str message)
{
    struct worker_links *l = &worker->links;
    struct worker_unsent *unsent = &l->unsent[to];
    pthread_mutex_lock(&unsent->mutex);
    bool has_room = unsent->first == NULL; /* else the link has refused a frame, and says when it has room */
    if (has_room) {
        put(l, unsent, message);
        atomic_fetch_or(&l->open, UINT64_C(1) << to);
        send_waiting(worker, to);
    }
    pthread_mutex_unlock(&unsent->mutex);
    return has_room;
}

void worker_flush(struct worker *worker)
{
    struct worker_links *l = &worker->links;
    if (atomic_load(&l->open) == 0)
        return;
    for (uint64_t open = atomic_exchange(&l->open, 0); open != 0; open &= open - 1) {
        uint32_t to = (uint32_t)__builtin_ctzll(open);
        pthread_mutex_lock(&l->unsent[to].mutex);
        close_frame(&l->unsent[to]);
        send_waiting(worker, to);
        pthread_mutex_unlock(&l->unsent[to].mutex);
    }
}

/* Bytes of messages to and from that worker which lie here, outside of its link. */
static int64_t bytes_beside(struct worker_links *l, uint32_t other)
{
    struct worker_unsent *unsent = &l->unsent[other];
    pthread_mutex_lock(&unsent->mutex);
    size_t bytes = unsent->bytes + (unsent->open != NULL ? unsent->open->length : 0);
    pthread_mutex_unlock(&unsent->mutex);
    pthread_mutex_lock(&l->mutex);
    bytes += l->parts[other].length;
    pthread_mutex_unlock(&l->mutex);
    return (int64_t)bytes;
}

void worker_look_at_traffic(struct worker *worker, struct worker_traffic *traffic)
{
    struct links *links = worker->links.links;
    *traffic = (struct worker_traffic){.round_trip_us = -1};
    for (uint32_t i = 0; i < worker->round.count; i++) {
        struct link_figures figures;
        if (i == worker->round.self || !link_figures(links, i, &figures))
            continue;
        traffic->sent_bytes += figures.sent_bytes;
        traffic->sent_frames += figures.sent_frames;
        traffic->received_bytes += figures.received_bytes;
        traffic->waiting_bytes +=
            (uint64_t)(figures.retained_bytes + figures.held_bytes + bytes_beside(&worker->links, i));
        traffic->round_trip_us = MAX(traffic->round_trip_us, figures.round_trip_us);
        (void)link_ping(links, i);
    }
}
