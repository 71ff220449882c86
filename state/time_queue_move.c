/* The time queue: key groups that go to another instance, come from one, or come from another life's database. */
#include "state/time_queue.h"

#include "core/mem.h"
#include "core/moved.h"

#include <stdlib.h>

/* --- Giving --- */

struct giving {
    struct time_queue *queue;
    const struct group_set *leaving;
    struct byte_buffer *out, record;
    uint64_t count;
};

static void give_record(struct giving *giving, const struct queue_record *head, const char *data)
{
    uint32_t group = key_group(head->hash);
    if (head->time_us < giving->queue->gone_before || !group_set_has(giving->leaving, group) ||
        !queue_has(giving->queue, head))
        return;
    struct queue_snapshot_head kind = {.kind = giving->queue->options.kind, .type = QUEUE_RECORD};
    buffer_clear(&giving->record);
    buffer_append(&giving->record, &kind, sizeof(kind));
    buffer_append(&giving->record, head, sizeof(*head));
    buffer_append(&giving->record, data, head->length);
    moved_put(giving->out, group, giving->record.data, giving->record.length);
    giving->count++;
}

static void give_stored(void *argument, int64_t bucket, const struct queue_record *head, const char *data)
{
    (void)bucket;
    give_record(argument, head, data);
}

/* Gives what the bucket has in memory alone. */
static void give_bucket(struct giving *giving, struct queue_bucket *bucket)
{
    giving->count = 0;
    for (const struct queue_block *block = bucket->first; block != NULL; block = block->next)
        for (uint32_t at = 0; at < block->length && !block->is_stored;) {
            const struct queue_record *record = (const struct queue_record *)(const void *)(block->data + at);
            at += (uint32_t)queue_record_bytes(record->length);
            give_record(giving, record, record->data);
        }
    bucket->records -= MIN(bucket->records, giving->count);
}

bool time_queue_give(struct time_queue *queue, const struct group_set *leaving, struct byte_buffer *out)
{
    struct giving giving = {.queue = queue, .leaving = leaving, .out = out};
    struct queue_snapshot_head head = {
        .kind = queue->options.kind, .type = QUEUE_SEQUENCE, .sequence = queue->sequence};
    moved_put(out, SNAPSHOT_GLOBAL, &head, sizeof(head));
    for (uint32_t i = 0; i < queue->buckets_count; i++)
        give_bucket(&giving, &queue->buckets[i]);
    give_bucket(&giving, &queue->open);
    bool is_good = queue_visit_stored(queue, queue->options.store, give_stored, &giving);
    buffer_free(&giving.record);
    return is_good;
}

/* --- Taking --- */

bool time_queue_take(struct time_queue *queue, struct str data)
{
    struct queue_snapshot_head head;
    struct queue_record record;
    if (data.length < sizeof(head) || (uint8_t)data.data[0] != queue->options.kind)
        return false;
    memcpy(&head, data.data, sizeof(head));
    if (head.type == QUEUE_SEQUENCE) {
        queue->sequence = MAX(queue->sequence, head.sequence);
        return true;
    }
    if (data.length < sizeof(head) + sizeof(record))
        return false;
    memcpy(&record, data.data + sizeof(head), sizeof(record));
    uint32_t group = key_group(record.hash);
    if (record.length != data.length - sizeof(head) - sizeof(record) ||
        !group_set_has(queue->options.groups, group))
        return false;
    record.stay = group_set_stay(queue->options.groups, group);
    if (record.time_us >= queue->gone_before)
        queue_add(queue, &record, data.data + sizeof(head) + sizeof(record));
    return true;
}

/* --- Records of another life's database --- */

enum { IMPORT_BYTES = 1 << 20 };

struct importing {
    struct time_queue *queue;
    int64_t bucket;
    struct byte_buffer records; /* of the bucket; laid out as in a block */
    const struct queue_record **list;
    uint32_t capacity;
    bool is_good;
};

static void put_imported(struct importing *importing)
{
    uint32_t count = 0;
    for (size_t at = 0; at < importing->records.length; count++) {
        if (count == importing->capacity) {
            importing->capacity = MAX(64, 2 * importing->capacity);
            importing->list = mem_realloc(importing->list, importing->capacity * sizeof(*importing->list));
        }
        importing->list[count] = (const struct queue_record *)(const void *)(importing->records.data + at);
        at += queue_record_bytes(importing->list[count]->length);
    }
    if (count > 0)
        importing->is_good &= queue_put(importing->queue, importing->bucket, importing->list, count);
    buffer_clear(&importing->records);
}

static void import_record(void *argument, int64_t bucket, const struct queue_record *head, const char *data)
{
    struct importing *importing = argument;
    if (!queue_has(importing->queue, head))
        return;
    if (bucket != importing->bucket || importing->records.length > IMPORT_BYTES)
        put_imported(importing);
    importing->bucket = bucket;
    size_t bytes = queue_record_bytes(head->length), used = sizeof(*head) + head->length;
    char *at = buffer_reserve(&importing->records, bytes);
    memcpy(at, head, sizeof(*head));
    if (head->length > 0)
        memcpy(at + sizeof(*head), data, head->length);
    memset(at + used, 0, bytes - used);
    importing->records.length += bytes;
}

bool time_queue_import(struct time_queue *queue, struct state_store *from)
{
    struct importing importing = {.queue = queue, .is_good = true};
    bool is_good = queue_visit_stored(queue, from, import_record, &importing);
    put_imported(&importing);
    buffer_free(&importing.records);
    free(importing.list);
    return is_good && importing.is_good &&
           store_flush(queue->options.store); /* time_queue_restored counts by files */
}
