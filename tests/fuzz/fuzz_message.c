/* Arbitrary bytes where a connection between workers reads messages: a head and a body, whose digest is set right for odd first
 * bytes, so that the fuzzer gets past it. What is taken is within its bounds, so that a piece lies within its frame and a body
 * is as long as the struct that is read from it; and it is the same once sealed again. */
#include "cluster/message.h"
#include "fuzz.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static void set_digest(struct message_head *head, struct str body)
{
    size_t from = sizeof(head->digest);
    uint64_t seed = XXH3_64bits_withSeed((const char *)head + from, sizeof(*head) - from, head->session);
    head->digest = body.length == 0 ? seed : XXH3_64bits_withSeed(body.data, body.length, seed);
}

/* The bodies as their structs have them, without message_fits. */
static bool body_fits(enum message_kind kind, size_t bytes)
{
    switch (kind) {
    case MESSAGE_HELLO:
    case MESSAGE_CHALLENGE: return bytes == 72;
    case MESSAGE_PROOF: return bytes == 40;
    case MESSAGE_READY:
    case MESSAGE_STATUS: return bytes == 16;
    case MESSAGE_PROBE: return true;
    default: return bytes == 0;
    }
}

static void check_taken(const struct message_head *head, struct str body)
{
    must(head->kind >= MESSAGE_HELLO && head->kind <= MESSAGE_PROBED && head->from < 1024,
         "the head is within bounds");
    must(body.length <= 128 << 10, "the body is not too long");
    if (head->kind == MESSAGE_FRAME) {
        must(head->length <= 16 << 20, "a frame has a bound");
        must((uint64_t)head->offset + body.length <= head->length, "a piece lies within its frame");
        must(body.length != 0 || head->length == 0, "pieces come to an end");
        must(head->sequence >= 1, "frames are counted from 1");
    } else {
        must(head->length == body.length, "the body is whole");
        must(body_fits(head->kind, body.length), "the body fits its kind");
    }
    struct message_head again = *head;
    message_seal(&again, body.data, body.length);
    must(memcmp(&again, head, sizeof(again)) == 0, "a message is the same once sealed again");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    bool is_sealed = fuzz_byte(&input) & 1;
    struct str head_bytes = fuzz_take(&input, sizeof(struct message_head));
    struct str body = fuzz_take(&input, SIZE_MAX);
    struct message_head head;
    if (is_sealed && head_bytes.length == sizeof(head)) {
        memcpy(&head, head_bytes.data, sizeof(head));
        set_digest(&head, body);
        memcpy((char *)head_bytes.data, &head, sizeof(head));
    }
    if (head_bytes.length == sizeof(head)) { /* what a reader does before the body is there */
        size_t bytes;
        memcpy(&head, head_bytes.data, sizeof(head));
        must(message_measure(&head, &bytes) == REFUSED_NOT || bytes == 0, "nothing follows what is refused");
        must(bytes <= 128 << 10, "no body is longer than an inbox has room");
    }
    if (message_open(head_bytes.data, head_bytes.length, body.data, body.length, &head) == REFUSED_NOT)
        check_taken(&head, body);
    free((char *)head_bytes.data);
    free((char *)body.data);
    return 0;
}
