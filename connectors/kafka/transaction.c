/* The sender's producer, and one transaction with it. */
#include "connectors/kafka/sender.h"

#include "core/log.h"
#include "core/os.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

enum {
    INIT_SLICE_MS = 1000,
    END_SLICE_MS = 500, /* a commit or an abort waits for brokers so long at a time */
    FULL_WAIT_MS = 100,
    MOST_WAIT_MS = 100,
    FLUSH_SLICE_MS = 100,
    ABORT_US = 5000000, /* of a transaction that brokers have refused */
    MOST_IDLE_TIMES = 5,
    FLIGHT_BYTES = 4 << 20,
    SMALLER = 8,            /* batches that brokers refuse as too large become smaller by this factor */
    LINGER_MS_MAX = 900000, /* librdkafka's maximum */
};

/* Head of a progress record or tombstone in the notes of a transaction; key and value follow it. */
struct note {
    uint32_t key_bytes, value_bytes; /* value_bytes 0: a tombstone */
};

/* --- What an error means --- */

enum judgement { TRY_AGAIN, MUST_ABORT, GIVE_UP, REFUSED };

/* Whether brokers have ended the transaction: it took too long, or there is a newer producer. Such an answer
 * shows that brokers are available. */
static bool is_ended_by_brokers(rd_kafka_resp_err_t code)
{
    return code == RD_KAFKA_RESP_ERR__FENCED || code == RD_KAFKA_RESP_ERR_PRODUCER_FENCED ||
           code == RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH || code == RD_KAFKA_RESP_ERR_INVALID_TXN_STATE;
}

/* Classifies an error, in this order: fatal, abortable, retriable; any other error is fatal. Sets
 * sender->why. Frees the error. */
static enum judgement judge(struct sender *sender, const char *what, rd_kafka_error_t *error)
{
    char reason[256];
    rd_kafka_resp_err_t code = rd_kafka_error_code(error);
    enum judgement judgement = rd_kafka_error_is_fatal(error)             ? GIVE_UP
                               : rd_kafka_error_txn_requires_abort(error) ? MUST_ABORT
                               : rd_kafka_error_is_retriable(error)       ? TRY_AGAIN
                                                                          : GIVE_UP;
    if (admin_is_refusal(code) && judgement != TRY_AGAIN)
        judgement = REFUSED;
    if (kafka_errors_why(sender->errors, reason, sizeof(reason)) == 0)
        reason[0] = '\0';
    sender->is_ended = is_ended_by_brokers(code);
    if (sender->is_ended)
        snprintf(
            sender->why, sizeof(sender->why),
            "%s: brokers have ended the transaction: it took longer than `transaction_timeout`, for example "
            "while brokers paused, or another process sends for this sink%s%.200s",
            what, reason[0] != '\0' ? "; " : "", reason);
    else
        snprintf(sender->why, sizeof(sender->why), "%s: %s%s%s", what, rd_kafka_error_string(error),
                 reason[0] != '\0' ? "; " : "", reason);
    rd_kafka_error_destroy(error);
    return judgement;
}

static bool is_too_large(rd_kafka_resp_err_t error)
{
    return error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE || error == RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE;
}

static void delivered(void *argument, const rd_kafka_message_t *message)
{
    struct sender *sender = argument;
    uint64_t index = (uintptr_t)message->_private;
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR || message->err == RD_KAFKA_RESP_ERR__PURGE_QUEUE ||
        message->err == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT)
        return;
    sender->refused_count += is_too_large(message->err);
    if (sender->refused != RD_KAFKA_RESP_ERR_NO_ERROR && index > sender->refused_index)
        return;
    sender->refused = message->err;
    sender->refused_index = index;
    sender->refused_bytes = (int64_t)(message->key_len + message->len);
    sender->refused_partition = message->partition;
}

static void take_statistics(void *argument, const char *json, size_t bytes)
{
    struct sender *sender = argument;
    json_t *root = json_loadb(json, bytes, 0, NULL);
    kafka_round_trip_take(&sender->figures.round_trip, root);
    int32_t partitions = kafka_statistics_partitions(root, sender->options.topic);
    if (partitions > 0)
        atomic_store(&sender->figures.partitions, partitions);
    json_decref(root);
}

/* --- Waiting --- */

/* Whether to wait no longer: the sender must stop, or the start's patience ends. */
static bool is_over(struct sender *sender, int64_t deadline_us)
{
    return atomic_load(&sender->must_stop) || os_monotonic_us() >= deadline_us ||
           (sender->start != NULL && !kafka_patience_lasts(sender->start, sender->errors));
}

/* When to wait no longer for an answer of brokers; a start makes another try, with a new producer. */
static int64_t wait_limit(const struct sender *sender, int64_t limit_us)
{
    return sender->start == NULL ? limit_us : MIN(limit_us, time_add(os_monotonic_us(), sender->try_us));
}

/* --- Producers --- */

/* Whether brokers refused a batch of several records as too large, as after the topic's limit was lowered; the
 * next producer then makes smaller batches. A record that was alone in its batch is too large itself: the only
 * one that was refused, or one that fills a batch. */
static bool make_smaller(struct sender *sender)
{
    bool is_alone = sender->refused_count == 1 || MAX(sender->refused_bytes, 1) >= sender->batch_bytes;
    if (!is_too_large(sender->refused) || is_alone)
        return false;
    if (!sender->has_said_smaller)
        log_say(LOG_LEVEL_WARNING,
                "sink `%.*s`: topic `%s` refuses batches of this size: smaller batches are tried",
                STR_ARGS(sender->options.sink), sender->options.topic);
    sender->has_said_smaller = true;
    sender->batch_bytes = MAX(sender->batch_bytes / SMALLER, 1);
    sender->is_smaller = true;
    return true;
}

enum sent transaction_producer(struct sender *sender, int64_t deadline_us)
{
    const struct sender_options *options = &sender->options;
    char timeout[32], linger[32], batch[32];
    snprintf(batch, sizeof(batch), "%" PRId64, sender->batch_bytes);
    snprintf(timeout, sizeof(timeout), "%" PRId64, options->timeout_us / 1000);
    snprintf(linger, sizeof(linger), "%" PRId64, MIN(options->timeout_us / 2000, LINGER_MS_MAX));
    /* Of a sink's shards, one watches the topic's partitions and the time that brokers take to answer. */
    const struct kafka_property watches = KAFKA_STATISTICS, none = {NULL, NULL};
    const struct kafka_property properties[] = {
        {"transactional.id", sender->transactional_id},
        /* A large linger: the commit's flush sends partial batches anyway. A partial batch that is older than
         * linger.ms and has to wait makes librdkafka's thread for its broker spin. */
        {"linger.ms", linger},
        {"transaction.timeout.ms", timeout},
        {"compression.codec", options->compression},
        {"partitioner", "murmur2_random"},
        {"message.max.bytes", "100000000"},
        {"batch.size", batch},
        {"queue.buffering.max.messages", "1000000"},
        /* The topics exist when a transaction begins. */
        {"topic.metadata.propagation.max.ms", "5000"},
        options->shard == 0 ? watches : none,
        none};
    const struct kafka_hooks hooks = {
        .argument = sender, .delivered = delivered, .statistics = take_statistics};
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    rd_kafka_t *producer = kafka_client_new(options->client, RD_KAFKA_PRODUCER, properties, &hooks,
                                            options->job, options->sink, &sender->errors, &diags);
    if (producer == NULL)
        snprintf(sender->why, sizeof(sender->why), "%s",
                 diags.count > 0 ? diags.items[0].message : "no Kafka client can be created");
    arena_free(&arena);
    if (producer == NULL)
        return SENT_REFUSED;
    pthread_mutex_lock(&sender->outbox->mutex);
    sender->producer = producer;
    pthread_mutex_unlock(&sender->outbox->mutex);
    atomic_fetch_add(&sender->figures.producers, 1);
    kafka_patience_waits_for(sender->start, "the coordinator of transactional id `%s`",
                             sender->transactional_id);
    deadline_us = wait_limit(sender, deadline_us);
    for (;;) {
        rd_kafka_error_t *error = rd_kafka_init_transactions(producer, INIT_SLICE_MS);
        if (error == NULL)
            break;
        enum judgement judgement = judge(sender, "the producer of transactions cannot begin", error);
        if (judgement == REFUSED || kafka_errors_are_final(sender->errors))
            return SENT_REFUSED;
        if (judgement != TRY_AGAIN || is_over(sender, deadline_us))
            return SENT_UNKNOWN;
    }
    sender->had_producer = true;
    sender->topic = rd_kafka_topic_new(producer, options->topic, NULL);
    sender->progress_topic = rd_kafka_topic_new(producer, options->progress_topic, NULL);
    if (sender->topic == NULL || sender->progress_topic == NULL) {
        snprintf(sender->why, sizeof(sender->why), "`%s` or `%s` cannot be a topic: %s", options->topic,
                 options->progress_topic, rd_kafka_err2str(rd_kafka_last_error()));
        return SENT_REFUSED;
    }
    return failpoint("kafka.init") == 0 ? SENT_GOOD : SENT_UNKNOWN;
}

void transaction_producer_free(struct sender *sender)
{
    pthread_mutex_lock(&sender->outbox->mutex);
    rd_kafka_t *producer = sender->producer;
    sender->producer = NULL;
    pthread_mutex_unlock(&sender->outbox->mutex);
    if (sender->topic != NULL)
        rd_kafka_topic_destroy(sender->topic);
    if (sender->progress_topic != NULL)
        rd_kafka_topic_destroy(sender->progress_topic);
    sender->topic = sender->progress_topic = NULL;
    if (producer != NULL)
        rd_kafka_purge(producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    kafka_client_free(producer, sender->errors);
    sender->errors = NULL;
}

/* --- Records --- */

/* Whether to try again, after waiting for room in the producer's queue. */
static bool waits_for_room(struct sender *sender, rd_kafka_resp_err_t error, int64_t deadline_us)
{
    if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL || sender->refused != RD_KAFKA_RESP_ERR_NO_ERROR ||
        is_over(sender, deadline_us))
        return false;
    rd_kafka_poll(sender->producer, FULL_WAIT_MS);
    return true;
}

/* Notes that the producer did not take record `index`. If brokers have refused an earlier record of the
 * transaction, that refusal is the cause, and is returned in place of `error`. */
static rd_kafka_resp_err_t not_produced(struct sender *sender, rd_kafka_resp_err_t error, uint64_t index,
                                        int32_t partition)
{
    rd_kafka_poll(sender->producer, 0);
    if (sender->refused == RD_KAFKA_RESP_ERR_NO_ERROR) {
        sender->refused = error;
        sender->refused_count = 1;
        sender->refused_index = index;
        sender->refused_partition = partition;
    }
    return sender->refused;
}

/* Produces the records of all parts without copying: they stay in the outbox until the transaction ends. */
static rd_kafka_resp_err_t produce_parts(struct sender *sender, const struct outbox_part *parts,
                                         uint32_t count, int64_t deadline_us)
{
    uint64_t index = 0, bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct chunk_cursor cursor = parts[i].begin;
        for (uint64_t k = parts[i].from; k < parts[i].to; k++) {
            struct kafka_record record = chunk_next(&cursor);
            rd_kafka_resp_err_t error;
            index++;
            bytes += record.key.length + record.value.length;
            do
                error = record_produce(sender->producer, sender->topic, &record, 0, (void *)(uintptr_t)index);
            while (waits_for_room(sender, error, deadline_us));
            if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
                return not_produced(sender, error, index, record.partition);
            if ((index & 1023) == 0)
                rd_kafka_poll(sender->producer, 0);
            if (sender->refused != RD_KAFKA_RESP_ERR_NO_ERROR)
                return sender->refused;
        }
        if (failpoint("kafka.produce") != 0)
            return RD_KAFKA_RESP_ERR__FAIL;
    }
    sender->flight = (int)MIN(FLIGHT_BYTES / (bytes / MAX(index, 1) + 1), INT_MAX);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static void add_note(struct byte_buffer *notes, const struct byte_buffer *key,
                     const struct byte_buffer *value)
{
    struct note note = {(uint32_t)key->length, (uint32_t)value->length};
    buffer_append(notes, &note, sizeof(note));
    buffer_append(notes, key->data, key->length);
    buffer_append(notes, value->data, value->length);
}

/* Adds tombstones of old segments of the order log, and then the new segments: one that is executed again has the key of the old
 * one. */
static void add_orders(const struct sender *sender, struct order_note **orders, uint32_t count,
                       struct byte_buffer *notes)
{
    const struct progress_orders *noted = &sender->progress.orders;
    struct byte_buffer key = {0}, value = {0};
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += orders[i]->bytes;
    uint32_t needless =
        progress_orders_void(noted, order_notes_stored_next(sender->options.order, noted), count, bytes);
    for (uint32_t i = 0; i < needless; i++) {
        for (uint32_t piece = 0; piece < noted->items[i].pieces; piece++) {
            buffer_clear(&key);
            progress_put_order(&sender->progress, &noted->items[i], piece, (struct str){"", 0}, &key, NULL);
            add_note(notes, &key, &value);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        struct progress_order order = {.life = sender->options.order->life,
                                       .epoch = orders[i]->epoch,
                                       .first = orders[i]->first,
                                       .next = orders[i]->next};
        for (uint32_t piece = 0; piece < progress_order_pieces(orders[i]->bytes); piece++) {
            buffer_clear(&key);
            buffer_clear(&value);
            progress_put_order(&sender->progress, &order, piece,
                               (struct str){orders[i]->data, orders[i]->bytes}, &key, &value);
            add_note(notes, &key, &value);
        }
    }
    buffer_free(&key);
    buffer_free(&value);
}

/* Makes the records for the progress topic: parts (count 0: the life), and tombstones of old parts. */
static void make_notes(const struct sender *sender, const struct outbox_part *parts, uint32_t count,
                       struct byte_buffer *notes)
{
    const struct progress *progress = &sender->progress;
    struct byte_buffer key = {0}, value = {0};
    if (count == 0) {
        progress_put_life(progress, &sender->life, &key, &value);
        add_note(notes, &key, &value);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct progress_part part = outbox_part_progress(&parts[i]);
        buffer_clear(&key);
        buffer_clear(&value);
        progress_put_part(progress, &part, &key, &value);
        add_note(notes, &key, &value);
    }
    buffer_clear(&value);
    for (uint32_t i = 0; i + PROGRESS_KEPT < progress->count + count && i < progress->count; i++) {
        buffer_clear(&key);
        progress_put_key(progress, progress_at(progress, i), &key);
        add_note(notes, &key, &value);
    }
    buffer_free(&key);
    buffer_free(&value);
}

static bool next_note(const struct byte_buffer *notes, size_t *at, struct str *key, struct str *value)
{
    struct note note;
    if (*at == notes->length)
        return false;
    memcpy(&note, notes->data + *at, sizeof(note));
    const char *bytes = notes->data + *at + sizeof(note);
    *key = (struct str){bytes, note.key_bytes};
    *value = (struct str){note.value_bytes == 0 ? NULL : bytes + note.key_bytes, note.value_bytes};
    *at += sizeof(note) + note.key_bytes + note.value_bytes;
    return true;
}

static rd_kafka_resp_err_t produce_notes(struct sender *sender, const struct byte_buffer *notes,
                                         int64_t deadline_us)
{
    struct str key, value;
    size_t at = 0;
    while (next_note(notes, &at, &key, &value)) {
        rd_kafka_resp_err_t error;
        do
            error =
                rd_kafka_produce(sender->progress_topic, (int32_t)sender->options.shard, 0,
                                 (void *)(uintptr_t)value.data, value.length, key.data, key.length, NULL) == 0
                    ? RD_KAFKA_RESP_ERR_NO_ERROR
                    : rd_kafka_last_error();
        while (waits_for_room(sender, error, deadline_us));
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
            return not_produced(sender, error, 0, -1);
    }
    return failpoint("kafka.progress") == 0 ? RD_KAFKA_RESP_ERR_NO_ERROR : RD_KAFKA_RESP_ERR__FAIL;
}

/* --- The transaction --- */

/* Sets sender->why: which record brokers refused, and why. */
static void say_refused(struct sender *sender, const struct outbox_part *parts, uint32_t count)
{
    uint64_t index = 0;
    const char *reason = rd_kafka_err2str(sender->refused);
    if (sender->refused_index == 0) {
        snprintf(sender->why, sizeof(sender->why), "progress topic `%s`: %s", sender->options.progress_topic,
                 reason);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct chunk_cursor cursor = parts[i].begin;
        for (uint64_t k = parts[i].from; k < parts[i].to; k++) {
            struct kafka_record record = chunk_next(&cursor);
            if (++index < sender->refused_index)
                continue;
            char place[64] = "", origin[96] = "";
            if (sender->refused_partition >= 0)
                snprintf(place, sizeof(place), ", partition %d", sender->refused_partition);
            if (record.origin.partition != PARTITION_NONE)
                snprintf(origin, sizeof(origin), ", computed from record %" PRIu64 " of input partition %u",
                         record.origin.record, record.origin.partition);
            snprintf(sender->why, sizeof(sender->why), "topic `%s`%s: a record of %zu bytes%s: %s",
                     sender->options.topic, place,
                     record.key.length + record.value.length + record.headers.length, origin, reason);
            return;
        }
    }
}

/* Adds both topics to sender->why, because brokers do not say which topic they refused. */
static void say_topics(struct sender *sender)
{
    char reason[sizeof(sender->why)];
    memcpy(reason, sender->why, sizeof(reason));
    snprintf(sender->why, sizeof(sender->why), "topic `%s`, or progress topic `%s`: %.200s",
             sender->options.topic, sender->options.progress_topic, reason);
}

/* Aborts the transaction, in slices: a broker that does not answer may not keep a process that ends. Whether it is aborted; if not, sets
 * sender->why. */
static bool abort_transaction(struct sender *sender, int64_t limit_us)
{
    int64_t deadline_us = time_add(os_monotonic_us(), limit_us);
    enum judgement judgement = TRY_AGAIN;
    while (judgement == TRY_AGAIN && !is_over(sender, deadline_us)) {
        rd_kafka_error_t *error = rd_kafka_abort_transaction(sender->producer, END_SLICE_MS);
        if (error == NULL)
            return true;
        judgement = judge(sender, "a transaction cannot be aborted", error);
    }
    return false;
}

/* Ends a failed transaction, by an abort if possible. Returns SENT_UNKNOWN if the sender needs a new
 * producer, which finds out whether the transaction's records are out; else none of them are. The new producer of
 * a start aborts what the last one left. */
static enum sent end_badly(struct sender *sender, const struct outbox_part *parts, uint32_t count,
                           enum judgement judgement)
{
    bool is_refused = judgement == REFUSED || admin_is_refusal(sender->refused);
    if ((judgement == GIVE_UP || sender->start != NULL) && !is_refused)
        return SENT_UNKNOWN;
    if (make_smaller(sender))
        return SENT_UNKNOWN;
    if (sender->refused != RD_KAFKA_RESP_ERR_NO_ERROR)
        say_refused(sender, parts, count);
    else if (is_refused)
        say_topics(sender);
    char why[sizeof(sender->why)];
    memcpy(why, sender->why, sizeof(why));
    if (is_refused) /* send nothing more: records in flight may wait long for the refused one */
        rd_kafka_purge(sender->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    bool is_aborted = abort_transaction(sender, is_refused ? ABORT_US : sender->options.timeout_us);
    if (is_refused) {
        memcpy(sender->why, why, sizeof(why));
        return SENT_REFUSED;
    }
    return is_aborted ? SENT_AGAIN : SENT_UNKNOWN;
}

/* Waits until at most `flight` records are left in the producer's queue. A commit flushes, and while more
 * records are left than may be in flight, librdkafka's thread for their broker spins. The remaining records,
 * partial batches among them, are sent by flush(). */
static void wait_for_most(struct sender *sender, int64_t deadline_us)
{
    int before = INT_MAX, left = rd_kafka_outq_len(sender->producer);
    for (unsigned idle = 0; left > sender->flight && idle < MOST_IDLE_TIMES &&
                            sender->refused == RD_KAFKA_RESP_ERR_NO_ERROR && !is_over(sender, deadline_us);) {
        idle = left < before ? 0 : idle + 1;
        before = left;
        rd_kafka_poll(sender->producer, MOST_WAIT_MS);
        left = rd_kafka_outq_len(sender->producer);
    }
}

/* Flushes the remaining records in slices. A commit alone would wait for all of them, or for the
 * transaction's timeout, even if a broker has already refused a record or the process ends. */
static bool flush(struct sender *sender, int64_t deadline_us)
{
    while (rd_kafka_outq_len(sender->producer) > 0 && sender->refused == RD_KAFKA_RESP_ERR_NO_ERROR) {
        if (is_over(sender, deadline_us)) {
            if (sender->start != NULL)
                snprintf(sender->why, sizeof(sender->why),
                         "progress topic `%s`, partition %u: brokers did not take the record of the start",
                         sender->options.progress_topic, sender->options.shard);
            else
                snprintf(sender->why, sizeof(sender->why),
                         "topic `%s`: brokers did not take all records of a transaction",
                         sender->options.topic);
            return false;
        }
        rd_kafka_flush(sender->producer, FLUSH_SLICE_MS);
    }
    return sender->refused == RD_KAFKA_RESP_ERR_NO_ERROR;
}

static enum sent commit(struct sender *sender, const struct outbox_part *parts, uint32_t count,
                        int64_t deadline_us)
{
    for (;;) {
        rd_kafka_error_t *error = rd_kafka_commit_transaction(sender->producer, END_SLICE_MS);
        if (error == NULL)
            return SENT_GOOD;
        enum judgement judgement = judge(sender, "a transaction cannot be committed", error);
        if (judgement != TRY_AGAIN)
            return end_badly(sender, parts, count, judgement);
        if (is_over(sender, deadline_us))
            return SENT_UNKNOWN;
    }
}

static enum sent send_all(struct sender *sender, const struct outbox_part *parts, uint32_t count,
                          const struct byte_buffer *notes)
{
    int64_t deadline_us = wait_limit(sender, os_monotonic_us() + sender->options.timeout_us);
    kafka_patience_waits_for(sender->start, "the leader of `%s`, partition %u, to take a record",
                             sender->options.progress_topic, sender->options.shard);
    atomic_store(&sender->figures.state, SENDER_OPEN);
    rd_kafka_error_t *begun = rd_kafka_begin_transaction(sender->producer);
    if (begun != NULL)
        return judge(sender, "a transaction cannot begin", begun) == REFUSED ? SENT_REFUSED : SENT_UNKNOWN;
    rd_kafka_resp_err_t error =
        failpoint("kafka.begin") == 0 ? RD_KAFKA_RESP_ERR_NO_ERROR : RD_KAFKA_RESP_ERR__FAIL;
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
        error = produce_parts(sender, parts, count, deadline_us);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
        error = produce_notes(sender, notes, deadline_us);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR && failpoint("kafka.commit.before") != 0)
        error = RD_KAFKA_RESP_ERR__FAIL;
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        snprintf(sender->why, sizeof(sender->why), "topic `%s`: %s", sender->options.topic,
                 rd_kafka_err2str(error));
        return end_badly(sender, parts, count, error == RD_KAFKA_RESP_ERR__FATAL ? GIVE_UP : MUST_ABORT);
    }
    wait_for_most(sender, deadline_us);
    atomic_store(&sender->figures.state, SENDER_COMMITTING);
    if (!flush(sender, deadline_us))
        return end_badly(sender, parts, count, MUST_ABORT);
    enum sent sent =
        commit(sender, parts, count, wait_limit(sender, deadline_us + sender->options.timeout_us));
    if (sent != SENT_GOOD || failpoint("kafka.commit.after") == 0)
        return sent;
    snprintf(sender->why, sizeof(sender->why), "the answer to a commit was lost");
    return SENT_UNKNOWN;
}

enum sent transaction_run(struct sender *sender, const struct outbox_part *parts, uint32_t count)
{
    struct byte_buffer notes = {0};
    struct str key, value;
    size_t at = 0;
    sender->refused = RD_KAFKA_RESP_ERR_NO_ERROR;
    sender->refused_count = 0;
    sender->why[0] = '\0';
    uint32_t orders_count = 0;
    struct order_note **orders = NULL;
    if (sender->options.order != NULL) {
        orders = order_notes_take(sender->options.order,
                                  count == 0 ? UINT64_MAX : parts[count - 1].epoch->epoch, &orders_count);
        add_orders(sender, orders, orders_count, &notes);
    }
    make_notes(sender, parts, count, &notes);
    enum sent sent = send_all(sender, parts, count, &notes);
    while (sent == SENT_GOOD && next_note(&notes, &at, &key, &value))
        leat_assert(progress_apply(&sender->progress, key, value) == PROGRESS_READ);
    /* Records in flight point into the notes and the outbox. */
    if (sent == SENT_UNKNOWN || sent == SENT_REFUSED)
        transaction_producer_free(sender);
    buffer_free(&notes);
    if (sender->options.order != NULL)
        order_notes_release(sender->options.order, orders, orders_count, sent == SENT_GOOD);
    return sent;
}
