#include "connectors/kafka/record.h"

enum { LENGTH_NULL = UINT32_MAX };

struct header_head {
    uint32_t name_bytes, value_bytes;
};

void record_put_header(struct byte_buffer *headers, struct str name, struct str value)
{
    struct header_head head = {(uint32_t)name.length,
                               value.data == NULL ? LENGTH_NULL : (uint32_t)value.length};
    buffer_append(headers, &head, sizeof(head));
    buffer_append(headers, name.data, name.length);
    buffer_append(headers, value.data, value.length);
}

void record_put_headers_of(const rd_kafka_message_t *message, struct byte_buffer *headers)
{
    rd_kafka_headers_t *found = NULL;
    const char *name;
    const void *value;
    size_t bytes;
    if (rd_kafka_message_headers(message, &found) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return;
    for (size_t i = 0; rd_kafka_header_get_all(found, i, &name, &value, &bytes) == RD_KAFKA_RESP_ERR_NO_ERROR;
         i++)
        record_put_header(headers, str_from(name), (struct str){value, bytes});
}

static bool take(struct str *from, struct str *part, size_t bytes)
{
    if (from->length < bytes)
        return false;
    *part = (struct str){from->data, bytes};
    *from = (struct str){from->data + bytes, from->length - bytes};
    return true;
}

bool record_take_header(struct str *headers, struct str *name, struct str *value)
{
    struct str bytes;
    struct header_head head;
    if (headers->length == 0 || !take(headers, &bytes, sizeof(head)))
        return false;
    memcpy(&head, bytes.data, sizeof(head));
    *value = (struct str){NULL, 0};
    return take(headers, name, head.name_bytes) &&
           (head.value_bytes == LENGTH_NULL || take(headers, value, head.value_bytes));
}

void record_digest(XXH3_state_t *state, const struct kafka_record *record)
{
    struct {
        uint64_t key_bytes, value_bytes, headers_bytes;
        int64_t partition;
    } head = {record->key.data == NULL ? UINT64_MAX : record->key.length,
              record->value.data == NULL ? UINT64_MAX : record->value.length, record->headers.length,
              record->partition};
    XXH3_128bits_update(state, &head, sizeof(head));
    if (record->key.length > 0)
        XXH3_128bits_update(state, record->key.data, record->key.length);
    if (record->value.length > 0)
        XXH3_128bits_update(state, record->value.data, record->value.length);
    if (record->headers.length > 0)
        XXH3_128bits_update(state, record->headers.data, record->headers.length);
}

void record_digest_end(const XXH3_state_t *state, uint8_t digest[16])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    memcpy(digest, canonical.digest, 16);
}

static rd_kafka_headers_t *make_headers(struct str from)
{
    struct str name, value;
    rd_kafka_headers_t *headers = from.length == 0 ? NULL : rd_kafka_headers_new(8);
    while (record_take_header(&from, &name, &value))
        rd_kafka_header_add(headers, name.data, (ssize_t)name.length, value.data,
                            value.data == NULL ? -1 : (ssize_t)value.length);
    return headers;
}

static rd_kafka_resp_err_t produce_with_more(rd_kafka_t *producer, rd_kafka_topic_t *topic,
                                             const struct kafka_record *record, int flags, void *opaque)
{
    rd_kafka_vu_t values[8];
    size_t count = 0;
    rd_kafka_headers_t *headers = make_headers(record->headers);
    values[count++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_RKT, .u.rkt = topic};
    values[count++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_PARTITION, .u.i32 = record->partition};
    values[count++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = flags};
    values[count++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_VALUE,
                                      .u.mem = {(void *)(uintptr_t)record->value.data, record->value.length}};
    values[count++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_KEY,
                                      .u.mem = {(void *)(uintptr_t)record->key.data, record->key.length}};
    values[count++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = opaque};
    if (record->time_ms > 0)
        values[count++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_TIMESTAMP, .u.i64 = record->time_ms};
    if (headers != NULL)
        values[count++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = headers};
    rd_kafka_error_t *error = rd_kafka_produceva(producer, values, count);
    rd_kafka_resp_err_t code = error == NULL ? RD_KAFKA_RESP_ERR_NO_ERROR : rd_kafka_error_code(error);
    if (error != NULL) {
        rd_kafka_error_destroy(error);
        if (headers != NULL) /* else librdkafka owns them */
            rd_kafka_headers_destroy(headers);
    }
    return code;
}

rd_kafka_resp_err_t record_produce(rd_kafka_t *producer, rd_kafka_topic_t *topic,
                                   const struct kafka_record *record, int flags, void *opaque)
{
    if (record->headers.length > 0 || record->time_ms > 0)
        return produce_with_more(producer, topic, record, flags, opaque);
    if (rd_kafka_produce(topic, record->partition, flags, (void *)(uintptr_t)record->value.data,
                         record->value.length, record->key.data, record->key.length, opaque) == 0)
        return RD_KAFKA_RESP_ERR_NO_ERROR;
    return rd_kafka_last_error();
}
