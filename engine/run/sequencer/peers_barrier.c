/* Barriers over several workers. The leader attaches one to the micro-batch that it chooses; owners say with their cuts where
 * their partitions stand; when the micro-batch is formed, each worker's stages pass the barrier as in a run that is alone. */
#include "run/sequencer/peers_internal.h"

#include "run/base/barrier.h"
#include "run/base/placements.h"
#include "run/base/positions.h"

void put_barrier(const struct number *number, struct byte_buffer *out)
{
    words_put(out, number->barrier);
}

bool take_barrier(const struct run *run, struct number *number, struct words *message)
{
    number->barrier = words_take(message);
    return !message->is_short && (number->barrier == 0 || run->barrier != NULL);
}

void put_positions(struct run *run, const struct number *number, struct byte_buffer *out)
{
    struct sequencer *s = run->sequencer;
    for (uint32_t i = 0; number->barrier != 0 && i < s->partitions_count; i++) {
        if (s->partitions[i].owner != peers_self(run))
            continue;
        size_t begin = out->length;
        words_put(out, 0);
        sequencer_save_partition(run, &s->partitions[i], out);
        uint64_t bytes = out->length - begin - sizeof(bytes);
        memcpy(out->data + begin, &bytes, sizeof(bytes));
    }
}

/* Whether the bytes are one saved partition of that source, and nothing else. */
static bool is_position(struct str bytes, uint32_t source)
{
    struct words words = {.left = bytes};
    struct saved_partition saved = saved_take_partition(&words);
    return !words.is_short && words.left.length == 0 && saved.source == source;
}

bool lead_take_positions(struct run *run, uint32_t from, const struct number *number, struct words *message)
{
    struct sequencer *s = run->sequencer;
    for (uint32_t i = 0; number->barrier != 0 && i < s->partitions_count; i++) {
        struct partition *p = &s->partitions[i];
        if (p->owner != from)
            continue;
        struct str bytes = words_take_text(message);
        if (message->is_short || !is_position(bytes, p->source))
            return false;
        struct byte_buffer *position = &s->peers->partitions[i].position;
        buffer_clear(position);
        buffer_append(position, bytes.data, bytes.length);
    }
    return true;
}

void peers_put_position(const struct run *run, const struct partition *p, struct byte_buffer *out)
{
    const struct byte_buffer *position = &run->sequencer->peers->partitions[p->id].position;
    buffer_append(out, position->data, position->length);
}

void put_formed_barrier(const struct run *run, const struct slot *slot, struct byte_buffer *out)
{
    words_put(out, slot->barrier);
    if (slot->barrier != 0)
        placements_put(run, slot->announced, slot->next, out);
}

bool take_formed_barrier(struct run *run, struct slot *slot, struct words *message)
{
    slot->barrier = words_take(message);
    slot->next = slot->announced = NULL;
    if (message->is_short || slot->barrier == 0)
        return !message->is_short;
    run->sequencer->last_barrier = slot->micro_batch + 1;
    return run->barrier != NULL && placements_follow(run, message, &slot->announced, &slot->next) &&
           (!slot->is_end || (slot->announced == NULL && slot->next == NULL)) &&
           barrier_follow(run, slot->barrier, slot->is_end);
}
