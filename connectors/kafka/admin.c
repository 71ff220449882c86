#include "connectors/kafka/admin.h"

#include "core/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLICE_MS = 500, REQUEST_MS = 5000, KNOWN_US = 10000000 };

bool admin_is_refusal(rd_kafka_resp_err_t error)
{
    switch (error) {
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_INVALID_RECORD:
    case RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP:
    case RD_KAFKA_RESP_ERR_INVALID_MSG:
    case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
    case RD_KAFKA_RESP_ERR_POLICY_VIOLATION:
    case RD_KAFKA_RESP_ERR_INVALID_PARTITIONS:
    case RD_KAFKA_RESP_ERR_INVALID_REPLICATION_FACTOR:
    case RD_KAFKA_RESP_ERR_INVALID_CONFIG:
    case RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT:
    case RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE:
    case RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION:
    case RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT:
    case RD_KAFKA_RESP_ERR__AUTHENTICATION: return true;
    default: return false;
    }
}

static bool is_over(const struct admin_call *call, struct kafka_errors *errors)
{
    return kafka_errors_are_final(errors) || atomic_load(call->must_stop) ||
           os_monotonic_us() >= call->deadline_us ||
           (call->patience != NULL && !kafka_patience_lasts(call->patience, errors));
}

/* Sets call->why to the reason that librdkafka logged, or else to the text of the error code. */
static enum admin_answer fail(struct admin_call *call, struct kafka_errors *errors, const char *what,
                              const char *topic, rd_kafka_resp_err_t error)
{
    char reason[256];
    if (kafka_errors_why(errors, reason, sizeof(reason)) == 0)
        snprintf(reason, sizeof(reason), "%s", rd_kafka_err2str(error));
    snprintf(call->why, sizeof(call->why), "%s `%s`: %s", what, topic, reason);
    return admin_is_refusal(error) || kafka_errors_are_final(errors) ? ADMIN_REFUSED : ADMIN_LATER;
}

/* As fail, of one partition of a progress topic. */
static enum admin_answer fail_at(struct admin_call *call, struct kafka_errors *errors, const char *topic,
                                 int32_t partition, rd_kafka_resp_err_t error)
{
    char reason[256];
    enum admin_answer answer = fail(call, errors, "progress topic", topic, error);
    if (kafka_errors_why(errors, reason, sizeof(reason)) == 0)
        snprintf(reason, sizeof(reason), "%s",
                 error == RD_KAFKA_RESP_ERR__TIMED_OUT ? "its leader does not answer"
                                                       : rd_kafka_err2str(error));
    snprintf(call->why, sizeof(call->why), "progress topic `%s`, partition %d: %s", topic, (int)partition,
             reason);
    return answer;
}

static rd_kafka_t *new_client(struct admin_call *call, rd_kafka_type_t type,
                              const struct kafka_property *properties, struct kafka_errors **errors)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    rd_kafka_t *client =
        kafka_client_new(call->client, type, properties, NULL, call->job, call->name, errors, &diags);
    if (client == NULL)
        snprintf(call->why, sizeof(call->why), "%s%s%s",
                 diags.count == 0 ? "no Kafka client can be created" : diags.items[0].message,
                 diags.count == 0 || diags.items[0].cause == NULL ? "" : ": ",
                 diags.count == 0 || diags.items[0].cause == NULL ? "" : diags.items[0].cause);
    arena_free(&arena);
    return client;
}

static rd_kafka_t *new_reader(struct admin_call *call, const char *isolation, struct kafka_errors **errors)
{
    const struct kafka_property properties[] = {
        {"isolation.level", isolation}, {"queued.max.messages.kbytes", "4096"}, {NULL, NULL}};
    return new_client(call, RD_KAFKA_CONSUMER, properties, errors);
}

/* Asks once for the metadata of a topic. */
static rd_kafka_resp_err_t ask_partitions(rd_kafka_t *client, const char *topic, int32_t *partitions)
{
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_topic_t *handle = rd_kafka_topic_new(client, topic, NULL);
    if (handle == NULL)
        return rd_kafka_last_error();
    rd_kafka_resp_err_t error = rd_kafka_metadata(client, 0, handle, &metadata, SLICE_MS * 4);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR && metadata->topic_cnt == 1) {
        error = metadata->topics[0].err;
        *partitions = metadata->topics[0].partition_cnt;
    }
    if (metadata != NULL)
        rd_kafka_metadata_destroy(metadata);
    rd_kafka_topic_destroy(handle);
    return error;
}

/* The value of a topic's `max.message.bytes` in the answer of brokers; 0: not in it. */
static int64_t largest_batch(rd_kafka_event_t *event)
{
    size_t count = 0, entries = 0;
    const rd_kafka_DescribeConfigs_result_t *result = rd_kafka_event_DescribeConfigs_result(event);
    const rd_kafka_ConfigResource_t **resources = rd_kafka_DescribeConfigs_result_resources(result, &count);
    const rd_kafka_ConfigEntry_t **configs =
        count == 1 ? rd_kafka_ConfigResource_configs(resources[0], &entries) : NULL;
    for (size_t i = 0; i < entries; i++) {
        const char *value = rd_kafka_ConfigEntry_value(configs[i]);
        if (value != NULL && strcmp(rd_kafka_ConfigEntry_name(configs[i]), "max.message.bytes") == 0)
            return MAX(strtoll(value, NULL, 10), 0);
    }
    return 0;
}

/* Waits for the answer to an admin request, whose timeout is an event, too. Returns NULL if the call is over. */
static rd_kafka_event_t *wait_event(struct admin_call *call, struct kafka_errors *errors,
                                    rd_kafka_queue_t *queue)
{
    rd_kafka_event_t *event;
    do
        event = rd_kafka_queue_poll(queue, SLICE_MS);
    while (event == NULL && !is_over(call, errors));
    return event;
}

static rd_kafka_AdminOptions_t *new_options(rd_kafka_t *client, rd_kafka_admin_op_t kind)
{
    char error_text[200];
    rd_kafka_AdminOptions_t *options = rd_kafka_AdminOptions_new(client, kind);
    rd_kafka_AdminOptions_set_request_timeout(options, REQUEST_MS, error_text, sizeof(error_text));
    if (kind != RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS) /* how long brokers may take */
        rd_kafka_AdminOptions_set_operation_timeout(options, REQUEST_MS, error_text, sizeof(error_text));
    return options;
}

/* Asks once for the topic's `max.message.bytes`; 0: brokers did not tell. */
static int64_t ask_batch_bytes(struct admin_call *call, rd_kafka_t *client, struct kafka_errors *errors,
                               const char *topic)
{
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_AdminOptions_t *options = new_options(client, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS);
    rd_kafka_ConfigResource_t *resource = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic);
    rd_kafka_DescribeConfigs(client, &resource, 1, options, queue);
    rd_kafka_event_t *event = wait_event(call, errors, queue);
    int64_t bytes =
        event != NULL && rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR_NO_ERROR ? largest_batch(event) : 0;
    if (event != NULL)
        rd_kafka_event_destroy(event);
    rd_kafka_ConfigResource_destroy(resource);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_queue_destroy(queue);
    return bytes;
}

enum admin_answer admin_partitions(struct admin_call *call, const char *topic, int32_t *partitions,
                                   int64_t *batch_bytes)
{
    struct kafka_errors *errors = NULL;
    rd_kafka_t *client = new_reader(call, "read_committed", &errors);
    if (client == NULL)
        return ADMIN_REFUSED;
    rd_kafka_resp_err_t error;
    bool is_settled;
    kafka_patience_waits_for(call->patience, "what topic `%s` is", topic);
    do {
        *partitions = 0;
        error = ask_partitions(client, topic, partitions);
        is_settled = (error == RD_KAFKA_RESP_ERR_NO_ERROR && *partitions > 0) || admin_is_refusal(error);
        rd_kafka_poll(client, is_settled ? 0 : 100);
    } while (!is_settled && !is_over(call, errors));
    enum admin_answer answer = ADMIN_GOOD;
    if (error == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || error == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC)
        answer = ADMIN_MISSING;
    else if (error != RD_KAFKA_RESP_ERR_NO_ERROR || *partitions == 0)
        answer = fail(call, errors, "topic", topic, error);
    if (batch_bytes != NULL)
        *batch_bytes = answer == ADMIN_GOOD ? ask_batch_bytes(call, client, errors, topic) : 0;
    kafka_client_free(client, errors);
    return answer;
}

/* --- Making and changing topics --- */

/* What the brokers' controller is asked for; one of the two is set. */
struct change {
    rd_kafka_NewTopic_t *topic;
    rd_kafka_NewPartitions_t *partitions;
    const char *trying, *failed; /* "creating topic", "be created" */
};

/* What the controller said of the one topic. why: its own words, or empty. */
static rd_kafka_resp_err_t changed(const struct change *change, rd_kafka_event_t *event, char *why,
                                   size_t room)
{
    size_t count = 0;
    if (event == NULL)
        return RD_KAFKA_RESP_ERR__TIMED_OUT;
    if (rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return rd_kafka_event_error(event);
    const rd_kafka_topic_result_t **results =
        change->topic != NULL
            ? rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &count)
            : rd_kafka_CreatePartitions_result_topics(rd_kafka_event_CreatePartitions_result(event), &count);
    if (count != 1)
        return RD_KAFKA_RESP_ERR__BAD_MSG;
    if (rd_kafka_topic_result_error_string(results[0]) != NULL)
        snprintf(why, room, "%s", rd_kafka_topic_result_error_string(results[0]));
    rd_kafka_resp_err_t error = rd_kafka_topic_result_error(results[0]);
    return error == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS ? RD_KAFKA_RESP_ERR_NO_ERROR : error;
}

static rd_kafka_resp_err_t ask_change(struct admin_call *call, rd_kafka_t *client,
                                      struct kafka_errors *errors, struct change *change, char *why,
                                      size_t room)
{
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_AdminOptions_t *options = new_options(
        client, change->topic != NULL ? RD_KAFKA_ADMIN_OP_CREATETOPICS : RD_KAFKA_ADMIN_OP_CREATEPARTITIONS);
    if (change->topic != NULL)
        rd_kafka_CreateTopics(client, &change->topic, 1, options, queue);
    else
        rd_kafka_CreatePartitions(client, &change->partitions, 1, options, queue);
    rd_kafka_event_t *event = wait_event(call, errors, queue);
    why[0] = '\0';
    rd_kafka_resp_err_t error = changed(change, event, why, room);
    if (event != NULL)
        rd_kafka_event_destroy(event);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_queue_destroy(queue);
    return error;
}

static enum admin_answer cannot(struct admin_call *call, const char *topic, const struct change *change,
                                const char *reason)
{
    snprintf(call->why, sizeof(call->why), "topic `%s` cannot %s: %s", topic, change->failed, reason);
    return ADMIN_REFUSED;
}

/* Asks until the change is made or refused, or the call is over. */
static enum admin_answer make_change(struct admin_call *call, const char *topic, struct change *change)
{
    const struct kafka_property none[] = {{NULL, NULL}};
    char reason[256];
    enum admin_answer answer;
    bool is_settled;
    kafka_patience_waits_for(call->patience, "the controller: %s `%s`", change->trying, topic);
    do { /* a client keeps asking the controller it knows, even one that is gone: each try has a new client */
        struct kafka_errors *errors = NULL;
        rd_kafka_t *client = new_client(call, RD_KAFKA_PRODUCER, none, &errors);
        if (client == NULL)
            return ADMIN_REFUSED;
        rd_kafka_resp_err_t error = ask_change(call, client, errors, change, reason, sizeof(reason));
        answer = error == RD_KAFKA_RESP_ERR_NO_ERROR ? ADMIN_GOOD
                                                     : fail(call, errors, change->trying, topic, error);
        if (answer == ADMIN_REFUSED && reason[0] != '\0')
            (void)cannot(call, topic, change, reason);
        is_settled = answer != ADMIN_LATER || is_over(call, errors);
        if (!is_settled)
            rd_kafka_poll(client, SLICE_MS);
        kafka_client_free(client, errors);
    } while (!is_settled);
    return answer;
}

enum admin_answer admin_create(struct admin_call *call, const char *topic, int32_t partitions,
                               int32_t replication, const struct admin_config *config)
{
    char reason[256];
    struct change change = {.topic =
                                rd_kafka_NewTopic_new(topic, partitions, replication, reason, sizeof(reason)),
                            .trying = "creating topic",
                            .failed = "be created"};
    if (change.topic == NULL)
        return cannot(call, topic, &change, reason);
    for (; config != NULL && config->name != NULL; config++)
        rd_kafka_NewTopic_set_config(change.topic, config->name, config->value);
    enum admin_answer answer = make_change(call, topic, &change);
    rd_kafka_NewTopic_destroy(change.topic);
    return answer;
}

enum admin_answer admin_create_progress(struct admin_call *call, const char *topic, int32_t partitions)
{
    /* Small segments and frequent compaction keep the topic short, which each start reads to its end. */
    static const struct admin_config config[] = {{"cleanup.policy", "compact"},
                                                 {"retention.ms", "-1"},
                                                 {"retention.bytes", "-1"},
                                                 {"segment.bytes", "16777216"},
                                                 {"segment.ms", "3600000"},
                                                 {"min.cleanable.dirty.ratio", "0.1"},
                                                 {NULL, NULL}};
    return admin_create(call, topic, partitions, -1, config);
}

/* A try whose answer was lost may have added them, so that the next is refused: then the topic is looked at. */
enum admin_answer admin_add_partitions(struct admin_call *call, const char *topic, int32_t partitions)
{
    char reason[256];
    struct change change = {.partitions =
                                rd_kafka_NewPartitions_new(topic, (size_t)partitions, reason, sizeof(reason)),
                            .trying = "adding partitions to topic",
                            .failed = "get partitions"};
    if (change.partitions == NULL)
        return cannot(call, topic, &change, reason);
    enum admin_answer answer = make_change(call, topic, &change);
    rd_kafka_NewPartitions_destroy(change.partitions);
    int32_t has = 0;
    char why[sizeof(call->why)];
    memcpy(why, call->why, sizeof(why));
    if (answer == ADMIN_REFUSED && admin_partitions(call, topic, &has, NULL) == ADMIN_GOOD &&
        has >= partitions)
        return ADMIN_GOOD;
    memcpy(call->why, why, sizeof(why));
    return answer;
}

/* --- Reading a progress topic --- */

static bool is_unknown(rd_kafka_resp_err_t error)
{
    return error == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || error == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC ||
           error == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
}

/* Asks again who leads the partition. Returns the error that was `error`: librdkafka calls a partition unknown that
 * has no leader at the moment. */
static rd_kafka_resp_err_t ask_leader(rd_kafka_t *client, const char *topic, int32_t partition,
                                      rd_kafka_resp_err_t error)
{
    int32_t partitions = 0;
    rd_kafka_resp_err_t asked = ask_partitions(client, topic, &partitions);
    if (error != RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION)
        return error;
    if (asked != RD_KAFKA_RESP_ERR_NO_ERROR)
        return asked;
    return partition < partitions ? RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE : error;
}

static void wait_for_leader(struct admin_call *call, const char *topic, int32_t partition)
{
    kafka_patience_waits_for(call->patience, "the leader of `%s`, partition %d", topic, (int)partition);
}

/* Finds the offsets of the partition's first record and behind its last one, committed or not; PROGRESS_STABLE:
 * *end is where the first open transaction begins, if there is one. */
static enum admin_answer find_ends(struct admin_call *call, const char *topic, int32_t partition,
                                   enum progress_reach reach, int64_t *begin, int64_t *end)
{
    struct kafka_errors *errors = NULL;
    rd_kafka_t *client =
        new_reader(call, reach == PROGRESS_STABLE ? "read_committed" : "read_uncommitted", &errors);
    if (client == NULL)
        return ADMIN_REFUSED;
    int64_t made_until_us = os_monotonic_us() + KNOWN_US;
    wait_for_leader(call, topic, partition);
    rd_kafka_resp_err_t error;
    bool is_new;
    do {
        error = kafka_client_ends(client, topic, partition, begin, end, SLICE_MS * 2);
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
            rd_kafka_poll(client, 100);
            error = ask_leader(client, topic, partition, error);
        }
        /* Brokers may need a moment to know a topic that has just been made. */
        is_new = is_unknown(error) && os_monotonic_us() < made_until_us;
    } while (error != RD_KAFKA_RESP_ERR_NO_ERROR && (is_new || !admin_is_refusal(error)) &&
             !is_over(call, errors));
    enum admin_answer answer =
        error == RD_KAFKA_RESP_ERR_NO_ERROR ? ADMIN_GOOD : fail_at(call, errors, topic, partition, error);
    kafka_client_free(client, errors);
    return answer;
}

static enum admin_answer apply(struct admin_call *call, const char *topic, struct progress *progress,
                               const rd_kafka_message_t *message)
{
    struct str key = {message->key == NULL ? "" : message->key, message->key_len};
    struct str value = {message->payload, message->len};
    uint64_t others = progress->others;
    enum progress_read read = progress_apply(progress, key, value);
    if (progress->others > others)
        progress->other.time_ms = rd_kafka_message_timestamp(message, NULL);
    if (read == PROGRESS_DAMAGED)
        snprintf(call->why, sizeof(call->why),
                 "the record at offset %" PRId64 " of progress topic `%s` is damaged", message->offset,
                 topic);
    else if (read == PROGRESS_NEWER)
        snprintf(call->why, sizeof(call->why),
                 "the record at offset %" PRId64 " of progress topic `%s` was written by a newer leat",
                 message->offset, topic);
    return read == PROGRESS_DAMAGED || read == PROGRESS_NEWER ? ADMIN_REFUSED : ADMIN_GOOD;
}

/* Reads from `at` up to `end`. A reader of committed records gets no further than the first open transaction; if
 * `end` lies behind that transaction, it may have records of this run, so the call waits for its end. */
static enum admin_answer read_to(struct admin_call *call, const char *topic, int32_t partition, int64_t at,
                                 int64_t end, struct progress *progress, rd_kafka_t *client,
                                 rd_kafka_topic_t *handle, struct kafka_errors *errors)
{
    bool has_answer = false;
    while (at < end) {
        rd_kafka_message_t *message = rd_kafka_consume(handle, partition, SLICE_MS);
        enum admin_answer answer = ADMIN_GOOD;
        rd_kafka_poll(client, 0);
        if (message != NULL && message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            answer = apply(call, topic, progress, message);
            at = message->offset + 1;
        } else if (message != NULL && message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            at = message->offset;
            if (at < end && !has_answer)
                kafka_patience_waits_for(call->patience,
                                         "the end of a transaction that is open in `%s`, partition %d", topic,
                                         (int)partition);
            has_answer = true;
        } else if (message != NULL) {
            answer = fail_at(call, errors, topic, partition, message->err);
        } else { /* a leader that does not answer may have been replaced */
            kafka_client_ask_leaders(client, topic);
        }
        if (message != NULL)
            rd_kafka_message_destroy(message);
        if (answer == ADMIN_REFUSED)
            return answer;
        if (at < end && is_over(call, errors)) {
            if (answer == ADMIN_GOOD && has_answer)
                snprintf(call->why, sizeof(call->why),
                         "progress topic `%s`, partition %d cannot be read beyond offset %" PRId64
                         " of %" PRId64 ": a transaction of another producer is open there",
                         topic, (int)partition, at, end);
            else if (answer == ADMIN_GOOD)
                (void)fail_at(call, errors, topic, partition, RD_KAFKA_RESP_ERR__TIMED_OUT);
            return ADMIN_LATER;
        }
    }
    return ADMIN_GOOD;
}

enum admin_answer admin_read_progress(struct admin_call *call, const char *topic, int32_t partition,
                                      enum progress_reach reach, struct progress *progress)
{
    int64_t begin, end;
    progress_clear(progress);
    enum admin_answer answer = find_ends(call, topic, partition, reach, &begin, &end);
    if (answer != ADMIN_GOOD || begin >= end)
        return answer;
    struct kafka_errors *errors = NULL;
    rd_kafka_t *client =
        new_reader(call, reach == PROGRESS_ALL ? "read_uncommitted" : "read_committed", &errors);
    if (client == NULL)
        return ADMIN_REFUSED;
    rd_kafka_topic_t *handle = rd_kafka_topic_new(client, topic, NULL);
    /* From an offset and not from "the beginning", which librdkafka would ask one leader for, and wait. */
    if (handle == NULL || rd_kafka_consume_start(handle, partition, begin) != 0) {
        answer = fail(call, errors, "progress topic", topic, rd_kafka_last_error());
    } else {
        answer = read_to(call, topic, partition, begin, end, progress, client, handle, errors);
        rd_kafka_consume_stop(handle, partition);
    }
    if (handle != NULL)
        rd_kafka_topic_destroy(handle);
    kafka_client_free(client, errors);
    return answer;
}
