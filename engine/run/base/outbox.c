#include "run/base/outbox.h"

#include "core/mem.h"
#include "run/base/inbox.h"
#include "run/base/peers.h"

#include <stdlib.h>

enum { OUTBOXES_SHARE = 4 }; /* of the waiting budget, of all outboxes together */

struct peer_outbox {
    struct run *run;
    pthread_mutex_t mutex; /* held while a message goes into `waiting`, or out of it to the link */
    struct inbox waiting;
    struct message *refused; /* the first of all, which `waiting` no longer has; NULL: none */
    /* Set before a message waits, and cleared when all that waited are sent: what is sent meanwhile waits behind them. */
    atomic_bool has_messages;
};

void outboxes_init(struct run *run)
{
    uint32_t others = peers_count(run) - 1;
    if (others == 0)
        return;
    run->peer_outboxes = mem_calloc(peers_count(run), sizeof(*run->peer_outboxes));
    for (uint32_t i = 0; i < peers_count(run); i++) {
        run->peer_outboxes[i].run = run;
        pthread_mutex_init(&run->peer_outboxes[i].mutex, NULL);
        inbox_init(&run->peer_outboxes[i].waiting, OUTBOXES_SHARE * others);
    }
}

void outboxes_free(struct run *run)
{
    for (uint32_t i = 0; run->peer_outboxes != NULL && i < peers_count(run); i++) {
        struct peer_outbox *outbox = &run->peer_outboxes[i];
        if (outbox->refused != NULL)
            message_free(run, outbox->refused);
        inbox_free(run, &outbox->waiting);
        pthread_mutex_destroy(&outbox->mutex);
    }
    free(run->peer_outboxes);
}

static bool is_sent(const struct run *run, uint32_t worker, struct str message)
{
    return run->options.peers->send(run->options.peers->engine, worker, message);
}

/* The link refused before the mutex was held: room may have come, and been told, in between. */
static void let_wait(const struct run *run, uint32_t worker, struct str message)
{
    struct peer_outbox *outbox = &run->peer_outboxes[worker];
    pthread_mutex_lock(&outbox->mutex);
    if (atomic_load(&outbox->has_messages) || !is_sent(run, worker, message)) {
        atomic_store(&outbox->has_messages, true);
        inbox_put(outbox->run, &outbox->waiting, peers_self(run), message);
    }
    pthread_mutex_unlock(&outbox->mutex);
}

void outbox_post(const struct run *run, uint32_t worker, struct str message)
{
    if (unlikely(atomic_load(&run->peer_outboxes[worker].has_messages)) || !is_sent(run, worker, message))
        let_wait(run, worker, message);
}

/* Sends the first message; false: there is none, or no room. */
static bool drain_one(struct run *run, uint32_t worker)
{
    struct peer_outbox *outbox = &run->peer_outboxes[worker];
    struct message *message = outbox->refused != NULL ? outbox->refused : inbox_take(run, &outbox->waiting);
    outbox->refused = message;
    if (message == NULL) {
        atomic_store(&outbox->has_messages,
                     run_has_failed(run)); /* then some may be lost: none may follow them */
        return false;
    }
    if (!is_sent(run, worker, (struct str){message->bytes, message->length}))
        return false;
    outbox->refused = NULL;
    message_free(run, message);
    return true;
}

void outbox_drain(struct run *run, uint32_t worker)
{
    struct peer_outbox *outbox = &run->peer_outboxes[worker];
    bool is_moved = true;
    while (is_moved) {
        /* For one message: a lane may be waiting to add its own; or have been refused, and not have added it yet. */
        pthread_mutex_lock(&outbox->mutex);
        is_moved = drain_one(run, worker);
        pthread_mutex_unlock(&outbox->mutex);
    }
}
