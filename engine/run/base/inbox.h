/* Messages that wait for the lane that takes them: the first ones in memory, those behind them in a file. */
#ifndef LEAT_RUN_BASE_INBOX_H
#define LEAT_RUN_BASE_INBOX_H

#include "run/base/spill.h"

struct message {
    struct message *next;
    struct inbox *inbox;
    uint32_t from; /* the worker that has sent it; this one, too */
    size_t length;
    char bytes[];
};

struct inbox {
    pthread_mutex_t mutex; /* guards the members but the last two */
    struct message *first, **last;
    struct spill_file file;
    uint64_t spilled, at; /* messages in the file; where the next of them lies there */
    uint32_t share;       /* its messages take one part in so many of the waiting budget at most */
    _Atomic size_t bytes; /* of messages in memory, until message_free */
    _Atomic bool has_messages;
};

/* Any thread, but for inbox_init and inbox_free.
 *   - inbox_put: copies the message, unless a file fails, which stops the run.
 *   - inbox_take: the next message, the caller's, who gives it to message_free; NULL: there is none, or it cannot be read, and the run
 *     has failed. */
void inbox_init(struct inbox *inbox, uint32_t share);
void inbox_free(struct run *run, struct inbox *inbox);
void inbox_put(struct run *run, struct inbox *inbox, uint32_t from, struct str bytes);
struct message *inbox_take(struct run *run, struct inbox *inbox);
void message_free(struct run *run, struct message *message);

#endif
