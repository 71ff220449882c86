/* Records -> a topic, each once, also when the process is killed and started again: what `leat produce` does.
 *
 * As the sink: records go out in transactions that note in a progress topic how far they came (sender.h).
 * Where a sink has its checkpoints, this has an input that gives the same records whenever it is read: a
 * process that is started again passes over those that are noted, and compares the last of them. */
#ifndef LEAT_CONNECTORS_KAFKA_PRODUCE_H
#define LEAT_CONNECTORS_KAFKA_PRODUCE_H

#include "connectors/kafka/client.h"
#include "connectors/kafka/recording.h"

#include <signal.h>

struct produced {
    uint64_t number; /* of the record in its input: rises; the same whenever it is read */
    int64_t time_ms; /* when it was made; <= 0: unknown */
    struct kafka_record record;
};

/* The bytes of a record stay until the next call. RECORDED_ERROR: a diagnostic was added. */
struct produce_input {
    void *self;
    bool may_be_cut; /* what was read before may be gone from its beginning: a topic */
    enum recorded_status (*next)(void *self, struct produced *record);
    void (*close)(void *self);
};

struct produce_figures {
    uint64_t there_before; /* records that were out already */
    uint64_t taken;        /* of the input by this process */
    uint64_t sent, sent_bytes, transactions;
    bool is_done; /* the input has ended, and all of it is out */
};

struct produce_options {
    const struct kafka_client *client;
    const char *topic, *progress_topic, *compression;
    struct str name;      /* in the progress topic, and of the transactions: one process at a time */
    uint8_t identity[16]; /* of the input: the same name with another one is refused */
    int32_t create;       /* partitions of a topic that is missing; 0: that is an error */
    int32_t partitions;   /* the topic must have as many; 0: any */
    bool keeps_times;
    int64_t patience_us; /* how long the start, and the end, wait for brokers */
    double rate;         /* records a second; 0: no limit */
    double speed;        /* 10: ten times as fast as they were made; 0: no limit */
    const volatile sig_atomic_t *stop;
    void (*show)(void *argument, const struct produce_figures *figures, bool is_last);
    void *argument;
};

/* Until the input ends, or *stop. False after a diagnostic. */
LEAT_CHECKED bool produce_run(const struct produce_options *options, struct produce_input *input,
                              struct produce_figures *figures, struct diag_list *diags);

#endif
