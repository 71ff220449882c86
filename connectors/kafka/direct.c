#include "connectors/kafka/direct.h"

#include "connectors/kafka/admin.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"
#include "core/refused.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { POLL_MS = 100, SLOT_BITS = 6, SILENT_US = 30000000 };
/* How long a checkpoint, and the end of a run, wait for brokers before they say so. */
enum { WAIT_SAID_US = 2000000 };
_Static_assert(DIRECT_SLOTS == 1 << SLOT_BITS, "a slot fits its bits");

static void nap(void)
{
    struct timespec moment = {0, 1000000};
    nanosleep(&moment, NULL);
}

static void fail(struct direct *direct, const char *what, const char *reason)
{
    char why[256];
    pthread_mutex_lock(&direct->mutex);
    if (!atomic_load(&direct->has_failed)) {
        size_t known = direct->errors == NULL ? 0 : kafka_errors_why(direct->errors, why, sizeof(why));
        snprintf(direct->error, sizeof(direct->error), "topic `%s`: %s%s%s%s", direct->options.topic, what,
                 reason, known > 0 ? "; " : "", known > 0 ? why : "");
        atomic_store(&direct->has_failed, true);
    }
    pthread_mutex_unlock(&direct->mutex);
    atomic_store(direct->options.is_full, false);
    if (direct->options.wake != NULL)
        direct->options.wake(direct->options.engine);
}

static void delivered(void *argument, const rd_kafka_message_t *message)
{
    struct direct *direct = argument;
    uint64_t tag = (uintptr_t)message->_private, bytes = tag >> SLOT_BITS;
    atomic_fetch_add_explicit(&direct->answers, 1, memory_order_relaxed);
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR && !atomic_load(&direct->must_stop)) {
        char what[96], why[256];
        bool is_batch = message->err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE &&
                        direct->options.batch_bytes == 0 && bytes < KAFKA_BATCH_BYTES;
        snprintf(what, sizeof(what), "partition %d: a record of %" PRIu64 " bytes: ", message->partition,
                 bytes);
        snprintf(
            why, sizeof(why), "%s%s", rd_kafka_err2str(message->err),
            !is_batch
                ? ""
                : " (the record, or its whole batch: brokers did not tell the topic's `max.message.bytes`, "
                  "to which `properties: { batch_size: BYTES }` limits batches)");
        fail(direct, what, why);
    }
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR)
        atomic_fetch_sub_explicit(&direct->waiting[tag & (DIRECT_SLOTS - 1)], 1, memory_order_release);
    uint64_t before = atomic_fetch_sub(&direct->held_bytes, bytes);
    if (before - bytes < direct->options.budget_bytes / 2 && atomic_load(direct->options.is_full)) {
        atomic_store(direct->options.is_full, false);
        if (direct->options.wake != NULL)
            direct->options.wake(direct->options.engine);
    }
}

static void take_statistics(void *argument, const char *json, size_t bytes)
{
    kafka_round_trip_statistics(&((struct direct *)argument)->round_trip, json, bytes);
}

static bool is_told_to_stop(const struct direct *direct)
{
    return direct->options.stop != NULL && *direct->options.stop != 0;
}

/* Prints what is waited for: every SILENT_US, and once more at the end of the run. */
static void say_waiting(struct direct *direct, bool is_end)
{
    int64_t now = os_monotonic_us();
    uint64_t records = 0;
    char why[256];
    if (now - atomic_load(&direct->said_us) < SILENT_US && (!is_end || atomic_load(&direct->has_said_end)))
        return;
    atomic_store(&direct->said_us, now);
    if (is_end)
        atomic_store(&direct->has_said_end, true);
    for (uint32_t i = 0; i < DIRECT_SLOTS; i++)
        records += atomic_load_explicit(&direct->waiting[i], memory_order_relaxed);
    if (kafka_errors_why(direct->errors, why, sizeof(why)) == 0)
        snprintf(why, sizeof(why), "no broker answers");
    if (is_end)
        log_say(LOG_LEVEL_WARNING,
                "sink `%.*s`: %" PRIu64
                " records are not delivered yet: waiting for brokers, %lld s (`patience`) at most; %s",
                STR_ARGS(direct->options.sink), records,
                (long long)(direct->options.patience_us / US_PER_SECOND), why);
    else
        log_say(LOG_LEVEL_WARNING,
                "sink `%.*s`: a checkpoint waits for brokers to acknowledge %" PRIu64 " records; %s",
                STR_ARGS(direct->options.sink), records, why);
}

static void *poll_main(void *argument)
{
    struct direct *direct = argument;
    int64_t heard_us = os_monotonic_us();
    uint64_t heard = 0;
    while (!atomic_load(&direct->must_stop)) {
        rd_kafka_poll(direct->producer, POLL_MS);
        uint64_t answers = atomic_load_explicit(&direct->answers, memory_order_relaxed);
        if (answers != heard || atomic_load(&direct->held_bytes) == 0)
            heard_us = os_monotonic_us();
        heard = answers;
        char why[256];
        if (os_monotonic_us() - heard_us < SILENT_US)
            continue;
        heard_us = os_monotonic_us();
        if (heard_us - atomic_load(&direct->said_us) < SILENT_US)
            continue;
        if (kafka_errors_why(direct->errors, why, sizeof(why)) == 0)
            snprintf(why, sizeof(why), "no broker answers");
        log_say(LOG_LEVEL_WARNING, "sink `%.*s`: %s; trying again", STR_ARGS(direct->options.sink), why);
    }
    return NULL;
}

bool direct_open(struct direct *direct, const struct direct_options *options)
{
    direct->options = *options;
    atomic_store(&direct->said_us, os_monotonic_us() - SILENT_US);
    pthread_mutex_init(&direct->mutex, NULL);
    char batch[32];
    bool is_small = options->batch_bytes > 0 && options->batch_bytes < KAFKA_BATCH_BYTES;
    snprintf(batch, sizeof(batch), "%" PRId64, options->batch_bytes);
    const struct kafka_property properties[] = {{"enable.idempotence", "true"},
                                                {"compression.codec", options->compression},
                                                {"partitioner", "murmur2_random"},
                                                {"linger.ms", options->linger_ms},
                                                /* no limit: brokers may be away */
                                                {"message.timeout.ms", "0"},
                                                {"message.max.bytes", "100000000"},
                                                {"queue.buffering.max.messages", "10000000"},
                                                {"queue.buffering.max.kbytes", "2000000"},
                                                KAFKA_STATISTICS,
                                                /* without a known limit the list ends here */
                                                {is_small ? "batch.size" : NULL, batch},
                                                {NULL, NULL}};
    const struct kafka_hooks hooks = {
        .argument = direct, .delivered = delivered, .statistics = take_statistics};
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    direct->producer = kafka_client_new(options->client, RD_KAFKA_PRODUCER, properties, &hooks, options->job,
                                        options->sink, &direct->errors, &diags);
    if (direct->producer == NULL)
        fail(direct, "", diags.count > 0 ? diags.items[0].message : "no Kafka client can be created");
    arena_free(&arena);
    if (direct->producer == NULL)
        return false;
    direct->topic = rd_kafka_topic_new(direct->producer, options->topic, NULL);
    if (direct->topic == NULL) {
        fail(direct, "", rd_kafka_err2str(rd_kafka_last_error()));
        return false;
    }
    refused_unless_begun(pthread_create(&direct->thread, NULL, poll_main, direct));
    direct->has_thread = true;
    return true;
}

bool direct_write(struct direct *direct, const struct kafka_record *record)
{
    uint64_t bytes = record->key.length + record->value.length + record->headers.length + 64;
    void *tag = (void *)(uintptr_t)(bytes << SLOT_BITS | direct->slot);
    atomic_fetch_add_explicit(&direct->waiting[direct->slot], 1, memory_order_relaxed);
    uint64_t held = atomic_fetch_add(&direct->held_bytes, bytes) + bytes;
    if (held >= direct->options.budget_bytes && !atomic_load(&direct->has_failed))
        atomic_store(direct->options.is_full, true);
    rd_kafka_resp_err_t error;
    int64_t deadline_us = 0;
    while (!atomic_load(&direct->has_failed)) {
        error = record_produce(direct->producer, direct->topic, record, RD_KAFKA_MSG_F_COPY, tag);
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
            atomic_fetch_add_explicit(&direct->records, 1, memory_order_relaxed);
            atomic_fetch_add_explicit(&direct->bytes, bytes - 64, memory_order_relaxed);
            return true;
        }
        /* The queue is full far beyond the budget, with rows that lanes held when the sources began to
         * wait. */
        if (deadline_us == 0)
            deadline_us = os_monotonic_us() + direct->options.patience_us;
        if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL || os_monotonic_us() >= deadline_us)
            fail(direct, "a record cannot be sent: ", rd_kafka_err2str(error));
        else
            nap();
    }
    return false;
}

/* --- Waiting for acknowledgements --- */

struct flush {
    struct direct *direct;
    uint32_t except; /* slot of records behind the barrier; DIRECT_SLOTS: none */
};

static bool is_acknowledged(struct direct *direct, uint32_t except)
{
    for (uint32_t i = 0; i < DIRECT_SLOTS; i++)
        if (i != except && atomic_load_explicit(&direct->waiting[i], memory_order_acquire) > 0)
            return false;
    return true;
}

/* Waits until all records but those in slot `except` are acknowledged. The time limit begins with the wait,
 * and once more with the end of the run. is_end: the run ends; becomes true when the user stops the run.
 * Returns false on a failure or at the time limit. */
static bool wait_for(struct direct *direct, uint32_t except, bool is_end)
{
    int64_t begin_us = os_monotonic_us();
    while (!is_acknowledged(direct, except)) {
        int64_t now = os_monotonic_us();
        is_end |= is_told_to_stop(direct);
        if (is_end && direct->end_us == 0)
            direct->end_us = now;
        if (atomic_load(&direct->has_failed) || atomic_load(&direct->must_stop) ||
            now - (is_end ? direct->end_us : begin_us) >= direct->options.patience_us)
            return false;
        if (now - begin_us >= WAIT_SAID_US)
            say_waiting(direct, is_end);
        nap();
    }
    return !atomic_load(&direct->has_failed);
}

static void describe_wait(const struct direct *direct, char *text, size_t room)
{
    snprintf(text, room, "brokers did not acknowledge all rows within %lld s (`patience`)",
             (long long)(direct->options.patience_us / US_PER_SECOND));
}

static bool write_flush(void *argument, struct snapshot_writer *writer)
{
    const struct flush *flush = argument;
    struct direct *direct = flush->direct;
    if (failpoint("kafka.flush") != 0)
        return false;
    if (wait_for(direct, flush->except, false))
        return true;
    char why[256], what[128];
    struct str sink = {direct->options.sink.data, MIN(direct->options.sink.length, 64)};
    describe_wait(direct, what, sizeof(what));
    size_t known = kafka_errors_why(direct->errors, why, sizeof(why));
    if (atomic_load(&direct->has_failed))
        snprintf(direct->refusal, sizeof(direct->refusal), "sink `%.*s`: %s", STR_ARGS(sink), direct->error);
    else
        snprintf(direct->refusal, sizeof(direct->refusal), "sink `%.*s`: %s%s%s", STR_ARGS(sink), what,
                 known > 0 ? "; " : "", known > 0 ? why : "");
    snapshot_refuse(writer, direct->refusal);
    return false;
}

static void flush_done(void *argument, bool is_published LEAT_UNUSED)
{
    free(argument);
}

void direct_snapshot(struct direct *direct, struct snapshot_writer *writer)
{
    struct flush *flush = mem_alloc(sizeof(*flush));
    uint32_t next = (direct->slot + 1) % DIRECT_SLOTS;
    /* If all slots are in use (that many checkpoints failed), wait for all records. */
    bool is_free = atomic_load(&direct->waiting[next]) == 0;
    *flush = (struct flush){direct, is_free ? next : DIRECT_SLOTS};
    direct->slot = is_free ? next : direct->slot;
    snapshot_defer(writer, write_flush, flush_done, flush);
}

bool direct_drain(struct direct *direct)
{
    char what[128];
    if (wait_for(direct, DIRECT_SLOTS, true))
        return true;
    describe_wait(direct, what, sizeof(what));
    if (!atomic_load(&direct->has_failed))
        fail(direct, "", what);
    return false;
}

void direct_report(struct direct *direct, struct report *report)
{
    uint64_t waiting = 0, held = atomic_load(&direct->held_bytes);
    for (uint32_t i = 0; i < DIRECT_SLOTS; i++)
        waiting += atomic_load_explicit(&direct->waiting[i], memory_order_relaxed);
    report_add(report, "records_waiting", (double)waiting, false);
    report_add(report, "bytes_waiting", (double)held, false);
    report_add(report, "outbox_share", (double)held / (double)direct->options.budget_bytes, false);
    report_add(report, "records_sent", (double)atomic_load(&direct->records), false);
    report_add(report, "bytes_sent", (double)atomic_load(&direct->bytes), false);
    kafka_round_trip_report(&direct->round_trip, report);
    kafka_errors_why(direct->errors, report->error, sizeof(report->error));
}

void direct_close(struct direct *direct)
{
    if (direct->options.topic == NULL)
        return;
    atomic_store(&direct->must_stop, true);
    if (direct->has_thread)
        pthread_join(direct->thread, NULL);
    direct->has_thread = false;
    if (direct->topic != NULL)
        rd_kafka_topic_destroy(direct->topic);
    direct->topic = NULL;
    if (direct->producer != NULL)
        rd_kafka_purge(direct->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    kafka_client_free(direct->producer, direct->errors);
    direct->producer = NULL;
    direct->errors = NULL;
    pthread_mutex_destroy(&direct->mutex);
    direct->options.topic = NULL;
}
