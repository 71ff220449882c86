#include "cluster/message.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static uint64_t digest_of(const struct message_head *head, const void *body, size_t bytes)
{
    size_t from = sizeof(head->digest);
    uint64_t seed = XXH3_64bits_withSeed((const char *)head + from, sizeof(*head) - from, head->session);
    return bytes == 0 ? seed : XXH3_64bits_withSeed(body, bytes, seed);
}

void message_seal(struct message_head *head, const void *body, size_t bytes)
{
    head->magic = MESSAGE_MAGIC;
    head->version = MESSAGE_VERSION;
    if (head->kind != MESSAGE_FRAME)
        head->length = (uint32_t)bytes;
    head->digest = digest_of(head, body, bytes);
}

bool message_fits(uint8_t kind, size_t bytes)
{
    switch (kind) {
    case MESSAGE_HELLO:
    case MESSAGE_CHALLENGE: return bytes == sizeof(struct message_hello);
    case MESSAGE_PROOF: return bytes == sizeof(struct message_proof);
    case MESSAGE_READY:
    case MESSAGE_STATUS: return bytes == sizeof(struct message_status);
    case MESSAGE_FRAME:
    case MESSAGE_PROBE: return bytes <= MESSAGE_BODY_MAX;
    default: return bytes == 0;
    }
}

/* A frame of no bytes is one piece; another has no piece of no bytes, which would never end. */
static bool is_piece(const struct message_head *head)
{
    if (head->length > MESSAGE_FRAME_MAX || head->offset > head->length)
        return false;
    if (head->offset == head->length && head->length != 0)
        return false;
    return head->sequence != 0;
}

enum message_refusal message_measure(const struct message_head *head, size_t *bytes)
{
    *bytes = 0;
    if (head->magic != MESSAGE_MAGIC)
        return REFUSED_DAMAGED;
    if (head->version != MESSAGE_VERSION)
        return REFUSED_VERSION;
    if (head->kind == 0 || head->kind >= MESSAGE_KINDS || head->from > MESSAGE_WORKER_MAX)
        return REFUSED_DAMAGED;
    if (head->kind == MESSAGE_FRAME) {
        if (!is_piece(head))
            return REFUSED_DAMAGED;
        *bytes = MIN((uint32_t)MESSAGE_BODY_MAX, head->length - head->offset);
        return REFUSED_NOT;
    }
    if (!message_fits(head->kind, head->length))
        return REFUSED_DAMAGED;
    *bytes = head->length;
    return REFUSED_NOT;
}

enum message_refusal message_open(const void *head_bytes, size_t head_length, const void *body, size_t bytes,
                                  struct message_head *head)
{
    *head = (struct message_head){0};
    if (head_length != sizeof(*head))
        return REFUSED_DAMAGED;
    memcpy(head, head_bytes, sizeof(*head));
    size_t measured;
    enum message_refusal refusal = message_measure(head, &measured);
    if (refusal != REFUSED_NOT)
        return refusal;
    return measured == bytes && head->digest == digest_of(head, body, bytes) ? REFUSED_NOT : REFUSED_DAMAGED;
}

const char *message_refusal_text(enum message_refusal refusal)
{
    static const char *const texts[REFUSED_COUNT] = {
        [REFUSED_NOT] = "nothing",
        [REFUSED_DAMAGED] = "a message that is damaged, or not one of leat's",
        [REFUSED_VERSION] = "a message of another version of leat",
        [REFUSED_OLDER] = "a message of an older incarnation of the job",
        [REFUSED_NEWER] = "a message of a newer incarnation of the job",
        [REFUSED_WORKER] = "a call for another worker: the address is not that worker's",
        [REFUSED_UNKNOWN] = "a worker that it does not know (yet)",
        [REFUSED_STRANGER] = "a stranger without the secret of this incarnation",
        [REFUSED_ORDER] = "a frame that does not follow the one before",
        [REFUSED_OVER_CREDIT] = "a frame beyond its credits",
    };
    return (unsigned)refusal < REFUSED_COUNT ? texts[refusal] : "something that this version does not know";
}
