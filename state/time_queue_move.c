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
    uint64_t from, until; /* of the records' sequences */
    uint64_t count;
};

static void give_record(struct giving *giving, const struct queue_record *head, const char *data)
{
    uint32_t group = key_group(head->hash);
    if (head->time_us < giving->queue->gone_before || head->sequence < giving->from ||
        head->sequence >= giving->until || !group_set_has(giving->leaving, group) ||
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
static void give_memory(struct giving *giving, const struct queue_bucket *bucket)
{
    for (const struct queue_block *block = bucket->first; block != NULL; block = block->next)
        for (uint32_t at = 0; at < block->length && !block->is_stored && block->newest >= giving->from;) {
            const struct queue_record *record = (const struct queue_record *)(const void *)(block->data + at);
            at += (uint32_t)queue_record_bytes(record->length);
            give_record(giving, record, record->data);
        }
}

static bool give_database(struct giving *giving, int64_t first, int64_t last, struct queue_place *place)
{
    return queue_visit_stored(giving->queue, giving->queue->options.store, first, last, place, give_stored,
                              giving);
}

/* The first bucket that may have records. */
static int64_t first_bucket(const struct time_queue *queue)
{
    return queue->gone_before == TIME_MIN ? INT64_MIN : queue_bucket_index(queue, queue->gone_before);
}

/* Begins a round, of which the first has all records. */
static void begin_round(struct time_queue *queue, uint32_t round)
{
    queue->base_from = round == 1 ? 0 : queue->base_until;
    queue->base_until = queue->sequence;
    queue->base_round = round;
}

/* Gives what the first bucket from *next on has in memory, and in the first round a piece of what the database has from *next up to
 * that bucket. Later records are in memory: nothing is spilled. */
static bool give_piece(struct giving *giving, int64_t *next)
{
    struct time_queue *queue = giving->queue;
    struct queue_place *place = &queue->base_place;
    uint32_t i = 0;
    while (i < queue->buckets_count && queue->buckets[i].index < *next)
        i++; /* those before are new, or were opened since: time_queue_give gives what they have in memory */
    int64_t last = i < queue->buckets_count ? queue->buckets[i].index : INT64_MAX;
    if (i < queue->buckets_count && (place->length == 0 || queue->base_bucket != last))
        give_memory(giving, &queue->buckets[i]);
    queue->base_bucket = last;
    bool is_good = queue->base_round > 1 || give_database(giving, *next, last, place);
    if (place->length == 0)
        *next = last == INT64_MAX ? INT64_MAX : last + 1;
    return is_good;
}

bool time_queue_give_base(struct time_queue *queue, const struct group_set *leaving, uint32_t round,
                          int64_t *next, struct byte_buffer *out)
{
    bool is_good = true;
    if (round != queue->base_round)
        begin_round(queue, round);
    struct giving giving = {
        .queue = queue, .leaving = leaving, .out = out, .from = queue->base_from, .until = queue->base_until};
    if (*next == INT64_MIN) {
        queue->base_open = queue->open_until;
        queue->base_place.length = 0;
        give_memory(&giving, &queue->open);
        *next = MAX(first_bucket(queue), INT64_MIN + 1);
    } else {
        is_good = give_piece(&giving, next);
        if (*next == INT64_MAX && queue->base_open != queue->open_until)
            give_memory(&giving, &queue->open); /* it may have opened before its turn came */
    }
    buffer_free(&giving.record);
    return is_good;
}

bool time_queue_give(struct time_queue *queue, const struct group_set *leaving, struct byte_buffer *out)
{
    struct giving giving = {.queue = queue, .leaving = leaving, .out = out, .until = UINT64_MAX};
    struct queue_snapshot_head head = {
        .kind = queue->options.kind, .type = QUEUE_SEQUENCE, .sequence = queue->sequence};
    moved_put(out, SNAPSHOT_GLOBAL, &head, sizeof(head));
    giving.from = queue->base_until;
    for (uint32_t i = 0; i < queue->buckets_count; i++)
        give_memory(&giving, &queue->buckets[i]);
    give_memory(&giving, &queue->open);
    bool is_good = queue->base_round > 0 || give_database(&giving, first_bucket(queue), INT64_MAX, NULL);
    buffer_free(&giving.record);
    return is_good;
}

/* --- Taking --- */

/* Checks a record's form, and copies it to *record with its data in *bytes. */
static bool read_record(const struct time_queue *queue, const struct group_set *groups, struct str data,
                        struct queue_record *record, const char **bytes)
{
    size_t head = sizeof(struct queue_snapshot_head);
    if (data.length < head + sizeof(*record) || (uint8_t)data.data[0] != queue->options.kind)
        return false;
    memcpy(record, data.data + head, sizeof(*record));
    uint32_t group = key_group(record->hash);
    *bytes = data.data + head + sizeof(*record);
    record->stay = group_set_stay(groups, group);
    return record->length == data.length - head - sizeof(*record) && group_set_has(groups, group);
}

/* A queue without a store, which keeps all in memory. */
static struct time_queue *arrived_new(const struct time_queue_options *options)
{
    struct time_queue *arrived = mem_calloc(1, sizeof(*arrived));
    arrived->options.bucket_us = options->bucket_us;
    arrived->open_until = INT64_MIN;
    arrived->spill_bytes = SIZE_MAX;
    return arrived;
}

bool time_queue_take_base(struct time_queue *queue, const struct group_set *coming, struct str data)
{
    struct queue_record record;
    const char *bytes;
    if (!read_record(queue, coming, data, &record, &bytes))
        return false;
    if (queue->arrived == NULL)
        queue->arrived = arrived_new(&queue->options);
    queue_add(queue->arrived, &record, bytes);
    return true;
}

/* Appends the blocks of an arrived bucket to the queue's own of that time. Those that may have records that have left, or that
 * belong into the heap, are taken record by record. */
static void merge_bucket(struct time_queue *queue, struct queue_bucket *from)
{
    if (from->index < queue->open_until || from->index <= first_bucket(queue)) {
        for (const struct queue_block *block = from->first; block != NULL; block = block->next)
            for (uint32_t at = 0; at < block->length;) {
                const struct queue_record *record =
                    (const struct queue_record *)(const void *)(block->data + at);
                at += (uint32_t)queue_record_bytes(record->length);
                if (record->time_us >= queue->gone_before)
                    queue_add(queue, record, record->data);
            }
        queue_drop_blocks(queue->arrived, from);
        return;
    }
    struct queue_bucket *to = queue_bucket(queue, from->index);
    for (const struct queue_block *block = from->first; block != NULL; block = block->next)
        queue->bytes += sizeof(*block) + block->capacity;
    from->first->previous = to->last;
    *(to->last == NULL ? &to->first : &to->last->next) = from->first;
    to->last = from->last;
    to->records += from->records;
    from->first = from->last = NULL;
}

void time_queue_regroup(struct time_queue *queue)
{
    struct time_queue *arrived = queue->arrived;
    queue_set_range(queue);
    queue->base_round = 0;
    queue->base_until = 0;
    if (arrived == NULL)
        return;
    for (uint32_t i = 0; i < arrived->buckets_count; i++)
        merge_bucket(queue, &arrived->buckets[i]);
    time_queue_free(arrived);
    queue->arrived = NULL;
    if (queue->bytes > queue->spill_bytes)
        queue_spill(queue);
}

bool time_queue_take(struct time_queue *queue, struct str data)
{
    struct queue_snapshot_head head;
    struct queue_record record;
    const char *bytes;
    if (data.length < sizeof(head) || (uint8_t)data.data[0] != queue->options.kind)
        return false;
    memcpy(&head, data.data, sizeof(head));
    if (head.type == QUEUE_SEQUENCE) {
        queue->sequence = MAX(queue->sequence, head.sequence);
        return true;
    }
    if (!read_record(queue, queue->options.groups, data, &record, &bytes))
        return false;
    if (record.time_us >= queue->gone_before)
        queue_add(queue, &record, bytes);
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
    bool is_good = queue_visit_stored(queue, from, INT64_MIN, INT64_MAX, NULL, import_record, &importing);
    put_imported(&importing);
    buffer_free(&importing.records);
    free(importing.list);
    return is_good && importing.is_good &&
           store_flush(queue->options.store); /* time_queue_restored counts by files */
}
