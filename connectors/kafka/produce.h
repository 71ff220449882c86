/* `leat produce`: sends records to a topic, each once, even if the process is killed and started again.
 *
 * As in the sink, records are sent in transactions that note in a progress topic how far they came
 * (sender.h). Instead of checkpoints there is an input that gives the same records whenever it is read: a
 * process that is started again skips the records that are noted, and compares the last part of them with its
 * note. */
#ifndef LEAT_CONNECTORS_KAFKA_PRODUCE_H
#define LEAT_CONNECTORS_KAFKA_PRODUCE_H

#include "connectors/kafka/client.h"
#include "connectors/kafka/recording.h"

#include <signal.h>

struct produced {
    uint64_t number; /* of the record in its input: rises; the same whenever the input is read */
    int64_t time_ms; /* when the record was made; <= 0: unknown */
    struct kafka_record record;
};

/* An input. `next` returns the next record, whose bytes are valid until the next call. RECORDED_ERROR: a
 * diagnostic was added. */
struct produce_input {
    void *self;
    bool may_be_cut; /* records may be missing that an earlier process read: the input is a topic */
    enum recorded_status (*next)(void *self, struct produced *record);
    void (*close)(void *self);
};

struct produce_figures {
    uint64_t there_before; /* records that were already out */
    uint64_t taken;        /* records that this process took from the input */
    uint64_t sent, sent_bytes, transactions;
    bool is_done; /* the input has ended, and all its records are out */
};

struct produce_options {
    const struct kafka_client *client;
    const char *topic, *progress_topic, *compression;
    struct str
        name; /* names the progress records and the transactions; only one process at a time may use it */
    uint8_t identity[16]; /* of the input: another input under the same name is refused */
    int32_t create;       /* partitions for a missing topic; 0: a missing topic is an error */
    int32_t partitions;   /* least number of partitions of the topic; 0: any */
    bool keeps_times;     /* records keep their times; else they get the time of sending */
    int64_t patience_us;  /* how long the start, and the end, wait for brokers */
    double rate;          /* records per second; 0: no limit */
    double speed;         /* 10: ten times as fast as they were made; 0: no limit */
    const volatile sig_atomic_t *stop;
    /* Called regularly, and at the end, by the thread of produce_run; may be NULL. */
    void (*show)(void *argument, const struct produce_figures *figures, bool is_last);
    void *argument;
};

/* Sends until the input ends, or *stop is set. Returns false after a diagnostic. */
LEAT_CHECKED bool produce_run(const struct produce_options *options, struct produce_input *input,
                              struct produce_figures *figures, struct diag_list *diags);

#endif
