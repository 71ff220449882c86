#include "cluster/credits.h"

uint64_t credits_room(const struct credits_sender *sender)
{
    return sender->granted - sender->charged;
}

void credits_charge(struct credits_sender *sender, uint64_t bytes)
{
    leat_assert(bytes <= credits_room(sender));
    sender->charged += bytes;
}

bool credits_hear(struct credits_sender *sender, uint64_t granted)
{
    if (granted < sender->granted || granted - sender->charged > CREDITS_WINDOW_MAX)
        return false;
    sender->granted = granted;
    return true;
}

bool credits_is_allowed(const struct credits_receiver *receiver, uint64_t bytes)
{
    return bytes <= receiver->told - receiver->received;
}

void credits_receive(struct credits_receiver *receiver, uint64_t bytes)
{
    leat_assert(credits_is_allowed(receiver, bytes));
    receiver->received += bytes;
}

void credits_release(struct credits_receiver *receiver, uint64_t bytes)
{
    leat_assert(bytes <= receiver->received - receiver->released);
    receiver->released += bytes;
}

uint64_t credits_grant(const struct credits_receiver *receiver)
{
    return receiver->released + receiver->window;
}

bool credits_is_urgent(const struct credits_receiver *receiver)
{
    uint64_t news = credits_grant(receiver) - receiver->told;
    return news > 0 && news >= receiver->window / 8;
}

bool credits_must_tell(const struct credits_receiver *receiver)
{
    bool is_free = receiver->released == receiver->received && credits_grant(receiver) > receiver->told;
    return is_free || credits_is_urgent(receiver);
}

void credits_told(struct credits_receiver *receiver)
{
    receiver->told = credits_grant(receiver);
}
