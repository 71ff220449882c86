/* Messages between the workers of a round: one frame or more each, whose first byte says whether the message goes on in the next one.
 *
 * All frames have the number 1, which is never finished: once a link was up, no frame is held back for want of credit. What is on its
 * way is bounded by micro-batches instead: no worker has more than SLOTS of them in work (run/base/base.h). */
#include "cluster/worker_internal.h"
#include "core/log.h"
#include "core/mem.h"

#include <stdlib.h>

enum { LAST, GOES_ON };
#define MESSAGE_MAX  (UINT64_C(1) << 30)
#define BUDGET_BYTES (INT64_C(64) << 20) /* of links; number 1 passes above it, too */

/* --- What comes in: the links' thread --- */

static void keep(struct worker_links *l, uint32_t from, struct str bytes)
{
    struct worker_message *message = mem_calloc(1, sizeof(*message));
    message->from = from;
    buffer_append(&message->bytes, bytes.data, bytes.length);
    *l->last = message;
    l->last = &message->next;
}

static void deliver(struct worker_links *l, uint32_t from, struct str bytes)
{
    if (l->is_attached)
        l->calls.receive(l->user, from, bytes);
    else if (l->keeps)
        keep(l, from, bytes);
}

/* False: it is none that a worker sends. */
static bool take_part(struct worker_links *l, const struct link_frame *frame)
{
    struct byte_buffer *parts = &l->parts[frame->worker];
    struct str bytes = {(const char *)frame->bytes + 1, frame->length - 1};
    if (frame->length == 0 || parts->length + bytes.length > MESSAGE_MAX)
        return false;
    bool goes_on = frame->bytes[0] == GOES_ON;
    if (goes_on || parts->length > 0)
        buffer_append(parts, bytes.data, bytes.length);
    if (parts->length > 0)
        bytes = (struct str){parts->data, parts->length};
    if (!goes_on) {
        deliver(l, frame->worker, bytes);
        buffer_clear(parts);
    }
    return true;
}

/* Implements link_calls.take. */
static void take(void *user, struct link_frame *frame)
{
    struct worker *worker = user;
    struct worker_links *l = &worker->links;
    pthread_mutex_lock(&l->mutex);
    if (!take_part(l, frame))
        atomic_fetch_or(&l->gone, UINT64_C(1) << frame->worker);
    pthread_mutex_unlock(&l->mutex);
    link_release(l->links, frame);
}

static void is_up(void *user LEAT_UNUSED, uint32_t worker LEAT_UNUSED)
{
}

static void is_gone(void *user, uint32_t other, const char *reason)
{
    struct worker *worker = user;
    log_say(LOG_LEVEL_WARNING, "worker %u has gone: %s", other, reason);
    atomic_fetch_or(&worker->links.gone, UINT64_C(1) << other);
}

/* Sends what waits, in its order, until the links refuse. With the mutex locked. */
static void send_waiting(struct worker *worker, uint32_t to)
{
    struct worker_unsent *unsent = &worker->links.unsent[to];
    enum link_sent sent = LINK_SENT;
    while (unsent->first != NULL && sent != LINK_NO_ROOM) {
        struct link_frame *frame = unsent->first, *next = frame->next;
        sent = link_send(worker->links.links, to, frame);
        if (sent == LINK_NO_LINK)
            link_frame_free(frame); /* the round is over there */
        if (sent != LINK_NO_ROOM)
            unsent->first = next;
    }
    if (unsent->first == NULL)
        unsent->last = &unsent->first;
}

/* Implements link_calls.has_room. */
static void has_room(void *user, uint32_t to)
{
    struct worker *worker = user;
    pthread_mutex_lock(&worker->links.unsent[to].mutex);
    send_waiting(worker, to);
    pthread_mutex_unlock(&worker->links.unsent[to].mutex);
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
    pthread_mutex_unlock(&unsent->mutex);
}

/* --- Beginning and end --- */

bool worker_links_begin(struct worker *worker, struct diag_list *diags)
{
    struct worker_links *l = &worker->links;
    const struct links_options options = {
        .listen = worker->o.listen,
        .retained_bytes = BUDGET_BYTES,
        .window_bytes = BUDGET_BYTES,
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

static void forget_messages(struct worker_links *l)
{
    for (struct worker_message *message = l->first, *next; message != NULL; message = next) {
        next = message->next;
        buffer_free(&message->bytes);
        free(message);
    }
    l->first = NULL;
    l->last = &l->first;
}

static void drop_all(struct worker_links *l)
{
    forget_messages(l);
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
    links_restart(l->links, round->self, round->incarnation,
                  (struct str){(const char *)round->secret, sizeof(round->secret)});
    pthread_mutex_lock(&l->mutex); /* no frame of this round comes before link_to */
    drop_all(l);
    l->keeps = true;
    pthread_mutex_unlock(&l->mutex);
    atomic_store(&l->gone, 0);
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
    for (const struct worker_message *message = l->first; message != NULL; message = message->next)
        calls->receive(user, message->from, (struct str){message->bytes.data, message->bytes.length});
    forget_messages(l);
    l->is_attached = true;
    l->keeps = false;
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

void worker_send(struct worker *worker, uint32_t to, struct str message)
{
    size_t sent = 0;
    struct worker_unsent *unsent = &worker->links.unsent[to];
    pthread_mutex_lock(&unsent->mutex);
    do {
        size_t bytes = MIN(message.length - sent, (size_t)LINK_FRAME_MAX - 1);
        struct link_frame *frame = link_frame_new((uint32_t)bytes + 1);
        frame->first = frame->last = 1;
        frame->bytes[0] = sent + bytes < message.length ? GOES_ON : LAST;
        memcpy(frame->bytes + 1, message.data + sent, bytes);
        sent += bytes;
        frame->next = NULL;
        *unsent->last = frame;
        unsent->last = &frame->next;
    } while (sent < message.length);
    send_waiting(worker, to);
    pthread_mutex_unlock(&unsent->mutex);
}
