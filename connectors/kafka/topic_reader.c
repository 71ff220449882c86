#include "connectors/kafka/topic_reader.h"

#include "connectors/kafka/topics.h"

#include "core/mem.h"
#include "core/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLICE_MS = 100, AHEAD_MAX = 10000 };

struct topic_reader {
    int64_t patience_us;
    const volatile sig_atomic_t *stop;
    struct diag_list *diags;
    rd_kafka_t *client;
    struct kafka_errors *errors;
    rd_kafka_topic_t *topic;
    int32_t partition;
    bool is_reading;
    int64_t next; /* offset to read */
    rd_kafka_message_t *message;
    struct byte_buffer headers;
};

struct topic_reader *topic_reader_new(const struct kafka_client *client, int64_t patience_us,
                                      const volatile sig_atomic_t *stop, struct diag_list *diags)
{
    static const struct kafka_property fixed[] = {{"queued.max.messages.kbytes", "16384"}, {NULL, NULL}};
    struct topic_reader *reader = mem_calloc(1, sizeof(*reader));
    reader->patience_us = patience_us;
    reader->stop = stop;
    reader->diags = diags;
    reader->client = kafka_client_new(client, RD_KAFKA_CONSUMER, fixed, NULL, STR("leat"), STR("produce"),
                                      &reader->errors, diags);
    if (reader->client != NULL)
        return reader;
    free(reader);
    return NULL;
}

static void stop_reading(struct topic_reader *reader)
{
    if (reader->message != NULL)
        rd_kafka_message_destroy(reader->message);
    reader->message = NULL;
    if (reader->is_reading)
        rd_kafka_consume_stop(reader->topic, reader->partition);
    reader->is_reading = false;
    if (reader->topic != NULL)
        rd_kafka_topic_destroy(reader->topic);
    reader->topic = NULL;
}

void topic_reader_free(struct topic_reader *reader)
{
    if (reader == NULL)
        return;
    stop_reading(reader);
    kafka_client_free(reader->client, reader->errors);
    buffer_free(&reader->headers);
    free(reader);
}

uint32_t topic_reader_partitions(struct topic_reader *reader, struct str topic, struct arena *arena,
                                 struct kafka_range **ranges)
{
    static const struct kafka_start earliest = {.tag = KAFKA_EARLIEST};
    struct kafka_topics topics;
    uint32_t count = 0;
    struct texts names = {&topic, 1};
    struct kafka_patience patience =
        kafka_patience_begin(reader->patience_us, reader->stop, NULL, (struct str){"", 0});
    const struct rd_kafka_metadata *metadata =
        kafka_client_metadata(reader->client, reader->errors, NULL, &patience, reader->diags);
    if (metadata == NULL)
        return 0;
    kafka_topics_open(&topics, names, arena);
    struct kafka_place *places = kafka_topics_find(&topics, metadata, &count, arena, reader->diags);
    kafka_topics_close(&topics);
    rd_kafka_metadata_destroy(metadata);
    if (places == NULL)
        return 0;
    *ranges = arena_array(arena, struct kafka_range, count);
    return kafka_start_find(&earliest, reader->client, reader->errors, places, count, *ranges, &patience,
                            reader->diags)
               ? count
               : 0;
}

bool topic_reader_seek(struct topic_reader *reader, const char *topic, int32_t partition, int64_t offset)
{
    stop_reading(reader);
    reader->topic = rd_kafka_topic_new(reader->client, topic, NULL);
    reader->partition = partition;
    reader->next = offset;
    if (reader->topic != NULL && rd_kafka_consume_start(reader->topic, partition, offset) == 0) {
        reader->is_reading = true;
        return true;
    }
    kafka_errors_report(reader->errors, rd_kafka_last_error(), reader->diags, "read `%s/%d`", topic,
                        (int)partition);
    return false;
}

static void take(struct topic_reader *reader, struct recorded *record)
{
    rd_kafka_message_t *message = reader->message;
    rd_kafka_timestamp_type_t type;
    buffer_clear(&reader->headers);
    record_put_headers_of(message, &reader->headers);
    *record = (struct recorded){.offset = message->offset,
                                .time_ms = rd_kafka_message_timestamp(message, &type),
                                .record = {.key = {message->key, message->key_len},
                                           .value = {message->payload, message->len},
                                           .headers = {reader->headers.data, reader->headers.length},
                                           .partition = message->partition,
                                           .origin = {.partition = PARTITION_NONE}}};
    reader->next = message->offset + 1;
}

enum recorded_status topic_reader_next(struct topic_reader *reader, struct recorded *record)
{
    int64_t begin_us = os_monotonic_us();
    while (!*reader->stop) {
        if (reader->message != NULL)
            rd_kafka_message_destroy(reader->message);
        reader->message = rd_kafka_consume(reader->topic, reader->partition, SLICE_MS);
        rd_kafka_resp_err_t error =
            reader->message == NULL ? RD_KAFKA_RESP_ERR__TIMED_OUT : reader->message->err;
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
            take(reader, record);
            return RECORDED;
        }
        bool is_gone =
            error == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET || error == RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE;
        if (error == RD_KAFKA_RESP_ERR__PARTITION_EOF || is_gone)
            return RECORDED_END;
        if (os_monotonic_us() - begin_us < reader->patience_us && !kafka_errors_are_final(reader->errors))
            continue;
        kafka_errors_report(reader->errors, error, reader->diags, "read `%s/%d`",
                            rd_kafka_topic_name(reader->topic), (int)reader->partition);
        return RECORDED_ERROR;
    }
    return RECORDED_END;
}

enum recorded_status topic_reader_get(struct topic_reader *reader, const char *topic, int32_t partition,
                                      int64_t offset, struct recorded *record)
{
    bool is_ahead = reader->is_reading && reader->partition == partition &&
                    strcmp(rd_kafka_topic_name(reader->topic), topic) == 0 && offset >= reader->next &&
                    offset - reader->next < AHEAD_MAX;
    if (!is_ahead && !topic_reader_seek(reader, topic, partition, offset))
        return RECORDED_ERROR;
    enum recorded_status status;
    while ((status = topic_reader_next(reader, record)) == RECORDED && record->offset < offset)
        ;
    if (status == RECORDED && record->offset == offset)
        return RECORDED;
    stop_reading(reader); /* a later record that came instead would not come again */
    return status == RECORDED_ERROR ? RECORDED_ERROR : RECORDED_END;
}
