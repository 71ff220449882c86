/* What the workers of a job tell each other, in one thread and so always the same: recorded, and given to a worker that is alone,
 * changed or not. A worker does what it can after each message, before it gets the next one. */
#ifndef LEAT_TESTS_UNIT_RUN_TALK_H
#define LEAT_TESTS_UNIT_RUN_TALK_H

#include "core/buffer.h"
#include "run/run.h"

/* A message to the worker that is looked at. */
struct told {
    uint32_t from;
    struct byte_buffer bytes;
};

struct script {
    struct told *items;
    uint32_t count;
};

/* How the job is run: `self` is the worker that is looked at. */
struct talk_job {
    const struct registry *registry;
    const char *text;
    uint32_t workers, lanes, self, leader;
    const char *replays; /* path of the order log to replay; NULL: none */
    const char
        *order; /* path of the order log that the leader writes while the talk is recorded; NULL: none */
    int64_t until_us; /* 0: to its end */
    bool is_tight;    /* nothing may wait in memory: all that comes goes through files */
};

/* Runs the job to its end, which must be good, and notes what `self` was told. Sinks of the other workers are full for a while, until
 * all messages are taken. */
void talk_record(const struct talk_job *job, struct script *script);
void script_free(struct script *script);

enum talk_outcome {
    TALK_REFUSED, /* a message was not taken, or the worker stopped with an error */
    TALK_WAITS,   /* all were taken, and it waits for more */
    TALK_ENDED,   /* all were taken, and the job came to its end */
};
/* Gives a worker the messages, up to one that is refused. */
enum talk_outcome talk_give(const struct talk_job *job, const struct script *script);

#endif
