#include "connectors/kafka/chunk.h"

#include "core/mem.h"

#include <stdlib.h>

enum { LENGTH_NULL = UINT32_MAX };

/* Layout of a record in a chunk: this head, key, value, headers, padded to a multiple of CHUNK_ALIGNMENT. */
struct record_head {
    uint32_t key_bytes, value_bytes, headers_bytes;
    int32_t partition;
    uint64_t origin_record;
    int64_t time_ms;
    uint32_t origin_partition, unused;
};

static uint64_t payload_bytes(const struct record_head *head)
{
    return (head->key_bytes == LENGTH_NULL ? 0 : (uint64_t)head->key_bytes) +
           (head->value_bytes == LENGTH_NULL ? 0 : (uint64_t)head->value_bytes) + head->headers_bytes;
}

static uint64_t record_bytes(const struct record_head *head)
{
    return (sizeof(*head) + payload_bytes(head) + CHUNK_ALIGNMENT - 1) / CHUNK_ALIGNMENT * CHUNK_ALIGNMENT;
}

static uint32_t length_of(struct str text)
{
    leat_assert(text.length < CHUNK_BYTES_MAX / 4);
    return text.data == NULL ? LENGTH_NULL : (uint32_t)text.length;
}

struct chunk *chunk_add(struct chunk **first, struct chunk **last, uint32_t capacity)
{
    struct chunk *chunk = mem_alloc(sizeof(*chunk) + capacity);
    *chunk = (struct chunk){.capacity = capacity};
    if (*last == NULL)
        *first = chunk;
    else
        (*last)->following = chunk;
    *last = chunk;
    return chunk;
}

static char *put_bytes(char *to, struct str bytes)
{
    if (bytes.length > 0)
        memcpy(to, bytes.data, bytes.length);
    return to + bytes.length;
}

uint32_t chunk_append(struct chunk **first, struct chunk **last, const struct kafka_record *record)
{
    struct record_head head = {.key_bytes = length_of(record->key),
                               .value_bytes = length_of(record->value),
                               .headers_bytes = (uint32_t)record->headers.length,
                               .partition = record->partition,
                               .time_ms = record->time_ms,
                               .origin_record = record->origin.record,
                               .origin_partition = record->origin.partition};
    uint32_t bytes = (uint32_t)record_bytes(&head);
    struct chunk *chunk = *last;
    if (chunk == NULL || chunk->capacity - chunk->used < bytes)
        chunk = chunk_add(first, last, MAX(bytes, (uint32_t)CHUNK_BYTES));
    char *to = chunk->data + chunk->used;
    memcpy(to, &head, sizeof(head));
    to = put_bytes(put_bytes(put_bytes(to + sizeof(head), record->key), record->value), record->headers);
    memset(to, 0, (size_t)(chunk->data + chunk->used + bytes - to));
    chunk->used += bytes;
    chunk->records++;
    return bytes;
}

void chunk_trim(struct chunk **first, struct chunk **last)
{
    struct chunk *only = *first;
    if (only == NULL || only != *last || only->used > only->capacity / 2)
        return;
    only = mem_realloc(only, sizeof(*only) + only->used);
    only->capacity = only->used;
    *first = *last = only;
}

struct kafka_record chunk_next(struct chunk_cursor *cursor)
{
    while (cursor->offset == cursor->chunk->used) {
        leat_assert(cursor->chunk->following != NULL);
        *cursor = (struct chunk_cursor){cursor->chunk->following, 0};
    }
    struct record_head head;
    const char *at = cursor->chunk->data + cursor->offset;
    memcpy(&head, at, sizeof(head));
    cursor->offset += (uint32_t)record_bytes(&head);
    struct kafka_record record = {.partition = head.partition,
                                  .time_ms = head.time_ms,
                                  .origin = {head.origin_partition, head.origin_record}};
    at += sizeof(head);
    if (head.key_bytes != LENGTH_NULL) {
        record.key = (struct str){at, head.key_bytes};
        at += head.key_bytes;
    }
    if (head.value_bytes != LENGTH_NULL) {
        record.value = (struct str){at, head.value_bytes};
        at += head.value_bytes;
    }
    record.headers = (struct str){at, head.headers_bytes};
    return record;
}

bool chunk_is_whole(const struct chunk *chunk)
{
    uint32_t at = 0, records = 0;
    if (chunk->used != chunk->capacity)
        return false;
    for (; at < chunk->used; records++) {
        struct record_head head;
        if (chunk->used - at < sizeof(head))
            return false;
        memcpy(&head, chunk->data + at, sizeof(head));
        if (record_bytes(&head) > chunk->used - at)
            return false;
        at += (uint32_t)record_bytes(&head);
    }
    return records == chunk->records;
}

void chunks_free(struct chunk *first)
{
    for (struct chunk *chunk = first, *following; chunk != NULL; chunk = following) {
        following = chunk->following;
        free(chunk);
    }
}
