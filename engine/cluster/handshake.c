/* How a connection begins (message.h): HELLO, CHALLENGE, PROOF, READY. Until a side has seen the other's proof it keeps nothing
 * of it but a nonce. All of it runs on the runner. */
#include "cluster/link_internal.h"
#include "core/os.h"

static struct str secret_of(const struct links *links)
{
    return (struct str){links->secret, links->secret_length};
}

static void say(struct connection *connection, enum message_kind kind, uint64_t sequence, const void *body,
                size_t bytes)
{
    connection_tell(connection, kind, sequence, body, bytes);
    connection_write_out(connection);
}

void handshake_begin(struct connection *connection)
{
    struct links *links = connection->links;
    struct proof_case *proven = &connection->proven;
    proven->incarnation = links->incarnation;
    proven->dialer = links->options.self;
    proven->listener = connection->link->worker;
    proof_nonce(proven->dialer_nonce);
    struct message_hello hello = {.to = proven->listener};
    memcpy(hello.nonce, proven->dialer_nonce, PROOF_NONCE);
    say(connection, MESSAGE_HELLO, 0, &hello, sizeof(hello));
}

void handshake_refuse(struct connection *connection, enum message_refusal refusal)
{
    links_count(connection->links, refusal);
    if (connection->state == CONNECTION_BROKEN)
        return;
    say(connection, MESSAGE_REFUSED, refusal, NULL, 0);
    if (connection->state == CONNECTION_UP)
        connection_break(connection, "it sent %s", message_refusal_text(refusal));
    if (connection->state == CONNECTION_BROKEN)
        return;
    connection->state = CONNECTION_REFUSED;
    connection->deadline_us = os_monotonic_us() + REFUSED_US;
}

static struct link *link_of(struct links *links, uint32_t worker)
{
    pthread_mutex_lock(&links->mutex);
    struct link *link = links->by_worker[worker];
    if (link != NULL && link->is_closing)
        link = NULL;
    pthread_mutex_unlock(&links->mutex);
    return link;
}

static void take_hello(struct connection *connection, const struct message_head *head,
                       const struct message_hello *hello)
{
    struct links *links = connection->links;
    uint32_t self = links->options.self;
    if (hello->to != self) {
        handshake_refuse(connection, REFUSED_WORKER);
        return;
    }
    if (head->from >= self || link_of(links, head->from) == NULL) {
        handshake_refuse(connection, REFUSED_UNKNOWN);
        return;
    }
    struct proof_case *proven = &connection->proven;
    proven->incarnation = links->incarnation;
    proven->dialer = head->from;
    proven->listener = self;
    memcpy(proven->dialer_nonce, hello->nonce, PROOF_NONCE);
    proof_nonce(proven->listener_nonce);
    struct message_hello challenge = {.to = head->from};
    memcpy(challenge.nonce, proven->listener_nonce, PROOF_NONCE);
    proof_make(secret_of(links), PROOF_LISTENER, proven, challenge.proof);
    connection->state = CONNECTION_ASKED;
    say(connection, MESSAGE_CHALLENGE, 0, &challenge, sizeof(challenge));
}

static void take_challenge(struct connection *connection, const struct message_head *head,
                           const struct message_hello *challenge)
{
    struct links *links = connection->links;
    struct proof_case *proven = &connection->proven;
    memcpy(proven->listener_nonce, challenge->nonce, PROOF_NONCE);
    if (head->from != proven->listener ||
        !proof_is_right(secret_of(links), PROOF_LISTENER, proven, challenge->proof)) {
        links_count(links, REFUSED_STRANGER);
        connection->refusal = REFUSED_STRANGER;
        connection_break(connection, "who listens there does not know the secret of this incarnation");
        return;
    }
    connection->session = proof_session(secret_of(links), proven);
    struct message_proof proof = {.sequence = connection->link->received};
    proof_make(secret_of(links), PROOF_DIALER, proven, proof.proof);
    connection->state = CONNECTION_ANSWERED;
    say(connection, MESSAGE_PROOF, 0, &proof, sizeof(proof));
}

/* Both have proven themselves; the other side has all frames up to `sequence`, and tells its status, if it is not NULL. */
static void go_up(struct connection *connection, uint64_t sequence, const struct message_status *status)
{
    struct links *links = connection->links;
    struct link *link = connection->link;
    if (connection->state == CONNECTION_BROKEN || !receive_resume(connection, link, sequence))
        return;
    if (status != NULL && !receive_status(link, status)) {
        handshake_refuse(connection, REFUSED_ORDER);
        return;
    }
    link->must_tell = true;
    links->options.calls.is_up(links->options.user, link->worker);
}

static void take_proof(struct connection *connection, const struct message_head *head,
                       const struct message_proof *proof)
{
    struct links *links = connection->links;
    const struct proof_case *proven = &connection->proven;
    uint64_t session = proof_session(secret_of(links), proven);
    if (head->from != proven->dialer || head->session != session ||
        !proof_is_right(secret_of(links), PROOF_DIALER, proven, proof->proof)) {
        handshake_refuse(connection, REFUSED_STRANGER);
        return;
    }
    struct link *link = link_of(links, head->from);
    if (link == NULL) {
        handshake_refuse(connection, REFUSED_UNKNOWN);
        return;
    }
    connection->session = session;
    connection->link = link;
    struct message_status status = receive_own_status(link);
    say(connection, MESSAGE_READY, 0, &status, sizeof(status));
    go_up(connection, proof->sequence, NULL);
}

static void take_ready(struct connection *connection, const struct message_head *head,
                       const struct message_status *status)
{
    if (head->from != connection->link->worker || head->session != connection->session)
        handshake_refuse(connection, REFUSED_STRANGER);
    else
        go_up(connection, status->sequence, status);
}

void handshake_take(struct connection *connection, const struct message_head *head, const void *body)
{
    const struct links *links = connection->links;
    enum connection_state state = connection->state;
    if (head->kind == MESSAGE_REFUSED) {
        uint64_t refusal = MIN(head->sequence, (uint64_t)REFUSED_COUNT);
        connection->refusal = (enum message_refusal)refusal;
        connection_break(connection, "worker %u refused %s", head->from,
                         message_refusal_text(connection->refusal));
    } else if (head->incarnation != links->incarnation)
        handshake_refuse(connection, head->incarnation < links->incarnation ? REFUSED_OLDER : REFUSED_NEWER);
    else if (state == CONNECTION_CALLED && head->kind == MESSAGE_HELLO)
        take_hello(connection, head, body);
    else if (state == CONNECTION_DIALED && head->kind == MESSAGE_CHALLENGE)
        take_challenge(connection, head, body);
    else if (state == CONNECTION_ASKED && head->kind == MESSAGE_PROOF)
        take_proof(connection, head, body);
    else if (state == CONNECTION_ANSWERED && head->kind == MESSAGE_READY)
        take_ready(connection, head, body);
    else if (state != CONNECTION_REFUSED)
        handshake_refuse(connection, REFUSED_STRANGER);
}
