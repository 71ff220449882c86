/* While all lanes are busy, messages wait, and others go on to send. The messages of an inbox take a share of the waiting budget
 * (base/spill.h), which rows then do not get, and those beyond it go to a file, with all that come behind them until it is read: the
 * order of a sender's messages stays. */
#include "run/base/inbox.h"

#include "core/mem.h"
#include "run/base/peers.h"

#include <stdlib.h>

/* Before each message in the file. */
struct spilled_head {
    uint64_t from, length;
};

void inbox_init(struct inbox *inbox, uint32_t share)
{
    *inbox = (struct inbox){.share = share};
    pthread_mutex_init(&inbox->mutex, NULL);
    inbox->last = &inbox->first;
    spill_init(&inbox->file);
}

/* A message in memory: its bytes are counted. */
static struct message *message_new(struct run *run, struct inbox *inbox, uint32_t from, size_t length)
{
    struct message *message = mem_alloc(sizeof(*message) + length);
    *message = (struct message){.inbox = inbox, .from = from, .length = length};
    atomic_fetch_add(&inbox->bytes, length);
    atomic_fetch_add_explicit(&run->waiting_bytes, length, memory_order_relaxed);
    return message;
}

void message_free(struct run *run, struct message *message)
{
    atomic_fetch_sub(&message->inbox->bytes, message->length);
    spill_give_room(run, message->length);
    free(message);
}

void inbox_free(struct run *run, struct inbox *inbox)
{
    while (inbox->first != NULL) {
        struct message *message = inbox->first;
        inbox->first = message->next;
        message_free(run, message);
    }
    spill_free(&inbox->file);
    pthread_mutex_destroy(&inbox->mutex);
}

/* With the mutex held. */
static void put_into_file(struct run *run, struct inbox *inbox, uint32_t from, struct str bytes)
{
    struct spilled_head head = {from, bytes.length};
    struct byte_buffer both = {0};
    uint64_t offset;
    buffer_append(&both, &head, sizeof(head));
    buffer_append(&both, bytes.data, bytes.length);
    bool is_good = spill_write(run, &inbox->file, (struct str){both.data, both.length}, &offset);
    buffer_free(&both);
    if (!is_good)
        return;
    if (inbox->spilled == 0)
        inbox->at = offset;
    inbox->spilled++;
}

void inbox_put(struct run *run, struct inbox *inbox, uint32_t from, struct str bytes)
{
    pthread_mutex_lock(&inbox->mutex);
    if (inbox->spilled > 0 ||
        atomic_load(&inbox->bytes) + bytes.length > run->waiting_budget / inbox->share) {
        put_into_file(run, inbox, from, bytes);
    } else {
        struct message *message = message_new(run, inbox, from, bytes.length);
        memcpy(message->bytes, bytes.data, bytes.length);
        *inbox->last = message;
        inbox->last = &message->next;
    }
    atomic_store(&inbox->has_messages, true);
    pthread_mutex_unlock(&inbox->mutex);
}

/* The next message of the file. With the mutex held. NULL after an error, which stops the run. */
static struct message *take_from_file(struct run *run, struct inbox *inbox)
{
    struct spilled_head head;
    size_t got;
    bool is_read = spill_read(run, &inbox->file, inbox->at, sizeof(head), (char *)&head, &got);
    if (!is_read)
        return NULL;
    bool is_whole = got == sizeof(head) && head.from < peers_count(run) &&
                    head.length <= inbox->file.end - inbox->at - sizeof(head);
    struct message *message =
        is_whole ? message_new(run, inbox, (uint32_t)head.from, (size_t)head.length) : NULL;
    is_read = is_whole &&
              spill_read(run, &inbox->file, inbox->at + sizeof(head), message->length, message->bytes, &got);
    if (is_read && got == message->length) {
        inbox->at += sizeof(head) + message->length;
        inbox->spilled--;
        spill_forget(&inbox->file, inbox->at);
        spill_done(&inbox->file);
        return message;
    }
    if (!is_whole || is_read)
        spill_damaged(run, inbox->at, sizeof(head), "message");
    if (message != NULL)
        message_free(run, message);
    return NULL;
}

struct message *inbox_take(struct run *run, struct inbox *inbox)
{
    struct message *message = NULL;
    if (!atomic_load(&inbox->has_messages) || run_has_failed(run))
        return NULL;
    pthread_mutex_lock(&inbox->mutex);
    if (inbox->first != NULL) {
        message = inbox->first;
        inbox->first = message->next;
    } else if (inbox->spilled > 0) {
        message = take_from_file(run, inbox);
    }
    if (inbox->first == NULL)
        inbox->last = &inbox->first;
    if (inbox->first == NULL && inbox->spilled == 0)
        atomic_store(&inbox->has_messages, false);
    pthread_mutex_unlock(&inbox->mutex);
    return message;
}
