#include "connectors/kafka/sender.h"

#include "core/hex.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"
#include "core/refused.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { PART_BYTES_MIN = 64 << 10, PART_BYTES_FIRST = 4 << 20, PART_BYTES_MAX = 16 << 20 };
/* Shards that fail together say it once in this time. */
enum { TOLD_TOGETHER_US = 5000000 };
enum { IDLE_US = 500000, BACKOFF_MIN_US = 100000, BACKOFF_MAX_US = 5000000, TOLD_EVERY_US = 30000000 };
/* How long the end of a run waits for brokers before it says so. */
enum { DRAIN_SAID_US = 2000000 };
/* How long a process that lost its producer waits for a new owner's life record in the progress topic. */
enum { FENCED_WAIT_US = 2000000 };
/* Time limits of the tries to get a producer, at a start and again: of the first try, and the most of a later one.
 * A try that ends makes way for a new producer, which asks brokers anew who leads: librdkafka waits for a broker
 * that is connected and does not answer. */
enum { RECONNECT_MIN_US = 5000000, RECONNECT_MAX_US = 60000000 };
/* Most failures in a row while brokers answer; most tries of a start beyond its deadline while brokers
 * answer. */
enum { STRANGE_TRIES = 20, LATE_TRIES = 3 };

/* --- Failing and telling --- */

static void fail(struct sender *sender, const char *format, ...) LEAT_PRINTF(2, 3);
static void fail(struct sender *sender, const char *format, ...)
{
    va_list arguments;
    pthread_mutex_lock(&sender->outbox->mutex);
    if (!atomic_load(&sender->has_failed)) {
        va_start(arguments, format);
        vsnprintf(sender->error, sizeof(sender->error), format, arguments);
        va_end(arguments);
        atomic_store(&sender->has_failed, true);
    }
    pthread_mutex_unlock(&sender->outbox->mutex);
}

/* Prints the first failure of a series, and then one every TOLD_EVERY_US: a broker can be away for long. */
static void tell(struct sender *sender)
{
    int64_t now = os_monotonic_us();
    if (sender->said_us != 0 && now - sender->said_us < TOLD_EVERY_US)
        return;
    sender->said_us = now;
    if (kafka_patience_is_said(sender->options.said_us, TOLD_TOGETHER_US))
        return;
    log_say(LOG_LEVEL_WARNING, "sink `%.*s`: %s; trying again", STR_ARGS(sender->options.sink), sender->why);
}

static void wait_a_while(struct sender *sender, int64_t *backoff_us)
{
    int64_t until = os_monotonic_us() + *backoff_us;
    while (!atomic_load(&sender->must_stop) && os_monotonic_us() < until) {
        struct timespec nap = {0, 50000000};
        nanosleep(&nap, NULL);
    }
    *backoff_us = MIN(*backoff_us * 2, (int64_t)BACKOFF_MAX_US);
}

static void note_out(struct sender *sender)
{
    const struct progress_part *last = progress_last(&sender->progress);
    pthread_mutex_lock(&sender->outbox->mutex);
    sender->has_out = last != NULL;
    if (last != NULL)
        sender->out = *last;
    pthread_mutex_unlock(&sender->outbox->mutex);
}

bool sender_out(struct sender *sender, struct progress_part *part)
{
    pthread_mutex_lock(&sender->outbox->mutex);
    bool has_out = sender->has_out;
    *part = sender->out;
    pthread_mutex_unlock(&sender->outbox->mutex);
    return has_out;
}

/* Sets `trouble` and the live view's state after a transaction, or after the producer's start. */
static void note_trouble(struct sender *sender, bool is_good)
{
    pthread_mutex_lock(&sender->outbox->mutex);
    snprintf(sender->trouble, sizeof(sender->trouble), "%s", is_good ? "" : sender->why);
    pthread_mutex_unlock(&sender->outbox->mutex);
    atomic_store(&sender->figures.state, is_good ? SENDER_IDLE : SENDER_WAITING);
}

void sender_report_trouble(struct sender *sender, struct report *report)
{
    pthread_mutex_lock(&sender->outbox->mutex);
    if (sender->trouble[0] != '\0')
        snprintf(report->error, sizeof(report->error), "%s", sender->trouble);
    pthread_mutex_unlock(&sender->outbox->mutex);
}

/* --- Connecting --- */

static struct admin_call call_of(struct sender *sender, int64_t patience_us)
{
    const struct sender_options *options = &sender->options;
    return (struct admin_call){.client = options->client,
                               .job = options->job,
                               .name = options->sink,
                               .deadline_us = os_monotonic_us() + patience_us,
                               .patience = sender->start,
                               .must_stop = &sender->must_stop};
}

static enum admin_answer read_progress(struct sender *sender, enum progress_reach reach, int64_t patience_us)
{
    struct admin_call call = call_of(sender, patience_us);
    enum admin_answer answer = admin_read_progress(&call, sender->options.progress_topic,
                                                   (int32_t)sender->options.shard, reach, &sender->progress);
    if (answer != ADMIN_GOOD)
        snprintf(sender->why, sizeof(sender->why), "%s", call.why);
    if (answer == ADMIN_GOOD && failpoint("kafka.read") != 0)
        return ADMIN_LATER;
    return answer;
}

static void make_names(struct sender *sender)
{
    const struct sender_options *options = &sender->options;
    char run[33];
    hex_text(options->run_id, sizeof(options->run_id), run);
    sender->progress_name = mem_printf("%.*s/%.*s", STR_ARGS(options->job), STR_ARGS(options->sink));
    /* Shard 0 has the id of runs without shards: a run of before goes on as one shard. */
    char shard[16] = "";
    if (options->shard > 0)
        snprintf(shard, sizeof(shard), ".%u", options->shard);
    sender->transactional_id =
        mem_printf("leat.%.*s.%.*s.%s%s", STR_ARGS(options->job), STR_ARGS(options->sink), run, shard);
}

static void make_life(struct sender *sender)
{
    char host[64] = "";
    if (getrandom(sender->life.id, sizeof(sender->life.id), 0) != (ssize_t)sizeof(sender->life.id)) {
        int64_t now = os_wall_us(), pid = getpid();
        memcpy(sender->life.id, &now, sizeof(now));
        memcpy(sender->life.id + sizeof(now), &pid, sizeof(pid));
    }
    gethostname(host, sizeof(host) - 1);
    snprintf(sender->life.holder, sizeof(sender->life.holder), "host %s, process %d", host, (int)getpid());
}

/* Makes a producer where there is none, then reads the progress topic, which nobody else can change any
 * more. */
static enum sent begin(struct sender *sender, enum progress_reach reach, int64_t patience_us)
{
    enum sent sent =
        sender->producer != NULL ? SENT_GOOD : transaction_producer(sender, os_monotonic_us() + patience_us);
    if (sent != SENT_GOOD)
        return sent;
    enum admin_answer answer = read_progress(sender, reach, patience_us);
    return answer == ADMIN_GOOD ? SENT_GOOD : answer == ADMIN_LATER ? SENT_UNKNOWN : SENT_REFUSED;
}

bool sender_look(const struct sender_options *options, uint64_t *next, uint64_t *ordered, char *error,
                 size_t room)
{
    struct kafka_patience patience =
        kafka_patience_begin(options->patience_us, options->stop, "sink", options->sink);
    patience.said_us = options->said_us;
    struct sender sender = {.options = *options, .start = &patience};
    make_names(&sender);
    progress_init(&sender.progress, options->run_id, str_from(sender.progress_name));
    bool is_good = read_progress(&sender, PROGRESS_STABLE, options->patience_us) == ADMIN_GOOD;
    const struct progress_part *last = progress_last(&sender.progress);
    *next = last == NULL ? 0 : last->next;
    *ordered = progress_orders_next(&sender.progress.orders);
    if (!is_good)
        snprintf(error, room, "%s", sender.why);
    progress_free(&sender.progress);
    free(sender.progress_name);
    free(sender.transactional_id);
    return is_good;
}

/* Whether a failed start tries again. Brokers that stood still for long first answer that they have ended the
 * transaction: the deadline has passed then, but brokers answer, so a few more tries are worthwhile. If they had
 * given the try a producer, and then stood still, one is. */
static bool goes_on(const struct sender *sender, struct kafka_patience *patience, unsigned *late_tries)
{
    bool is_late = os_monotonic_us() >= patience->deadline_us;
    unsigned most = sender->is_ended ? LATE_TRIES : sender->had_producer ? 1 : 0;
    if (kafka_patience_is_stopped(patience) || (is_late && ++*late_tries > most))
        return false;
    if (is_late)
        patience->deadline_us = os_monotonic_us() + RECONNECT_MIN_US;
    return true;
}

/* Makes the producer: the first step of a start. */
static enum sent fence(struct sender *sender)
{
    return transaction_producer(sender, sender->patience.deadline_us);
}

/* Reads the progress topic, and writes the life record: the second step of a start. */
static enum sent begin_life(struct sender *sender)
{
    const struct sender_options *options = &sender->options;
    enum sent sent = begin(sender, options->is_new_run ? PROGRESS_STABLE : PROGRESS_COMMITTED,
                           sender->patience.deadline_us - os_monotonic_us());
    if (sent != SENT_GOOD)
        return sent;
    sender->had_life = sender->progress.has_life;
    /* Write nothing into a progress topic that has lost the run's records. */
    if (!sender->had_life && options->is_resumed)
        return SENT_GOOD;
    return transaction_run(sender, NULL,
                           0); /* finds missing rights and unusable brokers before there are rows */
}

/* Tries a step of the start until it succeeds, or the patience ends. */
static bool try_long(struct sender *sender, enum sent (*step)(struct sender *sender))
{
    int64_t backoff_us = BACKOFF_MIN_US;
    unsigned late_tries = 0;
    bool is_good = false;
    sender->start = &sender->patience;
    sender->try_us = RECONNECT_MIN_US;
    for (;;) {
        sender->is_ended = false;
        sender->had_producer = sender->producer != NULL;
        enum sent sent = step(sender);
        is_good = sent == SENT_GOOD;
        if (is_good)
            break;
        transaction_producer_free(sender);
        if (sent == SENT_REFUSED || !goes_on(sender, &sender->patience, &late_tries)) {
            fail(sender, "%s", sender->why);
            break;
        }
        wait_a_while(sender, &backoff_us);
        sender->try_us = MIN(2 * sender->try_us, RECONNECT_MAX_US);
    }
    sender->start = NULL;
    return is_good;
}

bool sender_open(struct sender *sender)
{
    if (!try_long(sender, begin_life))
        return false;
    note_out(sender);
    note_trouble(sender, true);
    return true;
}

bool sender_fence(struct sender *sender, const struct sender_options *options, struct outbox *outbox)
{
    sender->patience = kafka_patience_begin(options->patience_us, options->stop, "sink", options->sink);
    sender->patience.said_us = options->said_us;
    sender->options = *options;
    sender->outbox = outbox;
    sender->part_bytes = PART_BYTES_FIRST;
    sender->batch_bytes =
        options->batch_bytes == 0 ? KAFKA_BATCH_BYTES : MIN(options->batch_bytes, KAFKA_BATCH_BYTES);
    make_names(sender);
    progress_init(&sender->progress, options->run_id, str_from(sender->progress_name));
    sender->progress.orders.keeps_data = options->keeps_order;
    make_life(sender);
    return try_long(sender, fence);
}

/* Whether one of the two topics was deleted, which producers treat as a temporary error. Asks several times,
 * because brokers that have just started may not know a topic yet. */
static bool has_lost_topic(struct sender *sender)
{
    enum { TIMES = 3, PATIENCE_US = 5000000 };
    const char *const topics[] = {sender->options.topic, sender->options.progress_topic};
    for (size_t i = 0; i < ARRAY_COUNT(topics); i++) {
        int64_t pause_us = 500000;
        uint32_t missing = 0;
        int32_t partitions;
        for (struct admin_call call = call_of(sender, PATIENCE_US);
             admin_partitions(&call, topics[i], &partitions, NULL) == ADMIN_MISSING;
             call = call_of(sender, PATIENCE_US)) {
            if (++missing == TIMES) {
                snprintf(sender->why, sizeof(sender->why),
                         "topic `%s` is gone: it was deleted while rows were sent to it", topics[i]);
                return true;
            }
            wait_a_while(sender, &pause_us);
            if (atomic_load(&sender->must_stop))
                return false;
        }
    }
    return false;
}

static bool is_own_life(const struct sender *sender)
{
    return sender->progress.has_life &&
           memcmp(sender->progress.life.id, sender->life.id, sizeof(sender->life.id)) == 0;
}

/* Whether another process has taken over the checkpoint directory; sets sender->why. */
static bool is_replaced(struct sender *sender)
{
    if (sender->options.check == NULL || sender->options.check(sender->options.engine) != ESTALE)
        return false;
    atomic_store(&sender->is_fenced, true);
    snprintf(sender->why, sizeof(sender->why),
             "another process has taken over the checkpoint directory: this process (%s) stops",
             sender->life.holder);
    return true;
}

/* After a transaction with unknown outcome: checks that this process still is the run's sender, makes a
 * producer, and marks in the outbox what the progress topic says is out. SENT_UNKNOWN: brokers cannot be used
 * yet. */
static enum sent reconnect(struct sender *sender, int64_t patience_us)
{
    if (is_replaced(sender))
        return SENT_REFUSED;
    /* PROGRESS_ALL: another process's life counts before it is committed; and a transaction of this process
     * may still be open. */
    enum admin_answer answer = read_progress(sender, PROGRESS_ALL, patience_us);
    if (answer != ADMIN_GOOD)
        return answer == ADMIN_LATER ? SENT_UNKNOWN : SENT_REFUSED;
    if (!is_own_life(sender)) {
        atomic_store(&sender->is_fenced, sender->progress.has_life);
        if (sender->progress.has_life)
            snprintf(sender->why, sizeof(sender->why),
                     "another leat (%s) sends for this run now: this process (%s) has been fenced, and stops",
                     sender->progress.life.holder, sender->life.holder);
        else
            snprintf(sender->why, sizeof(sender->why),
                     "progress topic `%s` was emptied: it is unknown which rows were sent",
                     sender->options.progress_topic);
        return SENT_REFUSED;
    }
    enum sent sent = begin(sender, PROGRESS_COMMITTED, patience_us);
    if (sent != SENT_GOOD) {
        transaction_producer_free(sender);
        return sent;
    }
    const char *why = !is_own_life(sender) ? "another process has written into the topic"
                                           : outbox_skip(sender->outbox, progress_last(&sender->progress));
    if (why == NULL)
        return SENT_GOOD;
    snprintf(sender->why, sizeof(sender->why), "progress topic `%s`: %s", sender->options.progress_topic,
             why);
    transaction_producer_free(sender);
    return SENT_REFUSED;
}

/* --- The thread --- */

/* Adapts the size of transactions so that they stay well inside the timeout. */
static void adapt(struct sender *sender, enum sent sent, int64_t took_us)
{
    if (sent != SENT_GOOD || took_us > sender->options.timeout_us / 4)
        sender->part_bytes = MAX(sender->part_bytes / 2, (uint64_t)PART_BYTES_MIN);
    else if (took_us < sender->options.timeout_us / 16)
        sender->part_bytes = MIN(sender->part_bytes * 2, (uint64_t)PART_BYTES_MAX);
}

/* Tries until there is a producer again. Returns false if the sender must end. */
static bool recover(struct sender *sender, unsigned *tries)
{
    /* Each try connects anew, which takes long on a slow or lossy network: the next try gets more time. */
    int64_t backoff_us = FENCED_WAIT_US, patience_us = RECONNECT_MIN_US;
    for (enum sent sent = SENT_UNKNOWN; sent != SENT_GOOD;
         patience_us = MIN(2 * patience_us, RECONNECT_MAX_US)) {
        if (!sender->is_smaller) {
            tell(sender);
            wait_a_while(sender, &backoff_us);
        }
        sender->is_smaller = false;
        if (atomic_load(&sender->must_stop))
            return false;
        sent = has_lost_topic(sender) ? SENT_REFUSED : reconnect(sender, patience_us);
        if (sent == SENT_REFUSED) {
            fail(sender, "%s", sender->why);
            return false;
        }
    }
    note_out(sender);
    note_trouble(sender, true);
    if (++*tries < STRANGE_TRIES)
        return true;
    fail(sender, "%u transactions in a row failed though brokers answer; the last: %s", *tries, sender->why);
    return false;
}

static bool send_some(struct sender *sender, unsigned *tries, int64_t *backoff_us)
{
    struct outbox_part parts[SENDER_PARTS_MAX];
    uint32_t count = outbox_take(sender->outbox, sender->part_bytes, parts, SENDER_PARTS_MAX);
    /* Where no rows come, the order log must not wait for them. */
    struct order_notes *order = sender->options.shard == 0 ? sender->options.order : NULL;
    bool has_order = count == 0 && order != NULL && order_notes_are_many(order);
    if (count == 0 && !has_order) {
        rd_kafka_poll(sender->producer, 0);
        outbox_wait(sender->outbox, IDLE_US);
        return true;
    }
    int64_t begin_us = os_monotonic_us();
    enum sent sent = is_replaced(sender) ? SENT_REFUSED : transaction_run(sender, parts, count);
    note_trouble(sender, sent == SENT_GOOD);
    adapt(sender, sent, os_monotonic_us() - begin_us);
    if (sent == SENT_GOOD) {
        atomic_fetch_add(&sender->figures.transactions, 1);
        note_out(sender);
        outbox_sent(sender->outbox, parts, count);
        *tries = 0;
        *backoff_us = BACKOFF_MIN_US;
        sender->said_us = 0;
        return true;
    }
    atomic_fetch_add(&sender->figures.aborted, 1);
    if (sent == SENT_REFUSED) {
        fail(sender, "%s", sender->why);
        return false;
    }
    if (sent == SENT_UNKNOWN)
        return recover(sender, tries);
    tell(sender);
    wait_a_while(sender, backoff_us);
    if (!has_lost_topic(sender))
        return true;
    fail(sender, "%s", sender->why);
    return false;
}

static void *sender_main(void *argument)
{
    struct sender *sender = argument;
    unsigned tries = 0;
    int64_t backoff_us = BACKOFF_MIN_US;
    while (!atomic_load(&sender->must_stop) && send_some(sender, &tries, &backoff_us))
        ;
    if (atomic_load(&sender->has_failed))
        outbox_fail(sender->outbox);
    return NULL;
}

void sender_start(struct sender *sender)
{
    refused_unless_begun(pthread_create(&sender->thread, NULL, sender_main, sender));
    sender->has_thread = true;
}

/* Copies why the last transaction failed; empty: it was committed. */
static void copy_trouble(struct sender *sender, char trouble[REPORT_ERROR_BYTES])
{
    pthread_mutex_lock(&sender->outbox->mutex);
    memcpy(trouble, sender->trouble, REPORT_ERROR_BYTES);
    pthread_mutex_unlock(&sender->outbox->mutex);
}

static void say_drain(struct sender *sender)
{
    char trouble[REPORT_ERROR_BYTES];
    struct outbox_figures left = outbox_figures(sender->outbox);
    copy_trouble(sender, trouble);
    log_say(LOG_LEVEL_WARNING,
            "sink `%.*s`: %" PRIu64
            " records are not delivered yet: waiting for brokers, %lld s (`patience`) at most%s%s",
            STR_ARGS(sender->options.sink), left.records,
            (long long)(sender->options.patience_us / US_PER_SECOND), trouble[0] == '\0' ? "" : "; ",
            trouble);
}

bool sender_drain(struct sender *sender)
{
    uint64_t seen = 0;
    char trouble[REPORT_ERROR_BYTES];
    int64_t moved_us = os_monotonic_us(), said_us = moved_us + DRAIN_SAID_US;
    while (!outbox_is_sent(sender->outbox) && !atomic_load(&sender->has_failed)) {
        uint64_t transactions = atomic_load(&sender->figures.transactions);
        if (transactions != seen)
            moved_us = os_monotonic_us();
        seen = transactions;
        if (os_monotonic_us() - moved_us > sender->options.patience_us)
            break;
        if (os_monotonic_us() > said_us) {
            say_drain(sender);
            said_us = os_monotonic_us() + TOLD_EVERY_US;
        }
        struct timespec nap = {0, 2000000};
        nanosleep(&nap, NULL);
    }
    copy_trouble(sender, trouble);
    if (!atomic_load(&sender->has_failed) && !outbox_is_sent(sender->outbox))
        fail(sender,
             "brokers did not take all rows within %lld s (`patience`); the remaining rows are in the "
             "checkpoint, and are sent when the job is started again%s%.250s",
             (long long)(sender->options.patience_us / US_PER_SECOND), trouble[0] == '\0' ? "" : "; ",
             trouble);
    return !atomic_load(&sender->has_failed);
}

void sender_close(struct sender *sender)
{
    if (sender->outbox == NULL)
        return;
    atomic_store(&sender->must_stop, true);
    pthread_mutex_lock(&sender->outbox->mutex);
    /* Purging ends the producer's waits for brokers at once. */
    if (sender->producer != NULL && sender->has_thread)
        rd_kafka_purge(sender->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    pthread_cond_broadcast(&sender->outbox->condition);
    pthread_mutex_unlock(&sender->outbox->mutex);
    if (sender->has_thread)
        pthread_join(sender->thread, NULL);
    sender->has_thread = false;
    transaction_producer_free(sender);
    progress_free(&sender->progress);
    free(sender->progress_name);
    free(sender->transactional_id);
    sender->progress_name = sender->transactional_id = NULL;
}
