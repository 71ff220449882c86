/* The time queue: pushing and popping. */
#include "state/time_queue.h"

#include "core/mem.h"

#include <stdlib.h>

enum { BLOCK_FIRST = 4 << 10, BLOCK_MAX = 256 << 10 };

struct time_queue *time_queue_new(const struct time_queue_options *options)
{
    leat_assert(options->bucket_us > 0);
    struct time_queue *queue = mem_calloc(1, sizeof(*queue));
    queue->options = *options;
    queue->user = (struct store_user){.store = options->store, .id = options->id, .kind = options->kind};
    store_add_user(&queue->user);
    queue->open_until = INT64_MIN;
    queue->gone_before = TIME_MIN;
    queue->spill_bytes = options->budget_bytes;
    queue->batch = store_batch_new();
    queue_set_range(queue);
    return queue;
}

void queue_set_range(struct time_queue *queue)
{
    queue->group_first = group_set_next(queue->options.groups, 0);
    queue->group_limit = group_set_limit(queue->options.groups);
}

void queue_block_release(struct queue_block *block)
{
    if (__atomic_sub_fetch(&block->references, 1, __ATOMIC_ACQ_REL) == 0)
        free(block);
}

void queue_block_drop(struct time_queue *queue, struct queue_bucket *bucket, struct queue_block *block)
{
    size_t bytes = sizeof(*block) + block->capacity;
    *(block->previous == NULL ? &bucket->first : &block->previous->next) = block->next;
    *(block->next == NULL ? &bucket->last : &block->next->previous) = block->previous;
    queue->bytes -= bytes;
    queue->loaded_bytes -= block->is_stored ? bytes : 0;
    queue_block_release(block);
}

void queue_drop_blocks(struct time_queue *queue, struct queue_bucket *bucket)
{
    while (bucket->first != NULL)
        queue_block_drop(queue, bucket, bucket->first);
}

static void release_blocks(struct queue_block *block)
{
    while (block != NULL) {
        struct queue_block *next = block->next;
        queue_block_release(block);
        block = next;
    }
}

void time_queue_free(struct time_queue *queue)
{
    if (queue == NULL)
        return;
    if (queue->options.store != NULL)
        store_add_pressure(queue->options.store, -queue->pressure);
    store_remove_user(&queue->user);
    for (uint32_t i = 0; i < queue->buckets_count; i++)
        release_blocks(queue->buckets[i].first);
    release_blocks(queue->open.first);
    rocksdb_writebatch_destroy(queue->batch);
    buffer_free(&queue->pack);
    time_queue_free(queue->arrived);
    free(queue->buckets_room);
    free(queue->heap);
    free(queue->streams);
    free(queue->sorted);
    free(queue);
}

size_t time_queue_bytes(const struct time_queue *queue)
{
    return queue->bytes + queue->heap_capacity * sizeof(struct queue_item) +
           queue->buckets_capacity * sizeof(struct queue_bucket) +
           queue->streams_capacity * sizeof(struct queue_stream) +
           (queue->arrived == NULL ? 0 : time_queue_bytes(queue->arrived));
}

int64_t queue_bucket_index(const struct time_queue *queue, int64_t time_us)
{
    int64_t width = queue->options.bucket_us;
    return time_us / width - (time_us % width < 0);
}

/* Makes room for one more bucket behind the others. */
static void reserve_bucket(struct time_queue *queue)
{
    size_t opened = (size_t)(queue->buckets - queue->buckets_room);
    if (opened + queue->buckets_count < queue->buckets_capacity)
        return;
    if (opened < queue->buckets_capacity / 2 || opened == 0) {
        queue->buckets_capacity = MAX(queue->buckets_capacity * 2, 64);
        queue->buckets_room =
            mem_realloc(queue->buckets_room, queue->buckets_capacity * sizeof(*queue->buckets_room));
    }
    if (opened > 0)
        memmove(queue->buckets_room, queue->buckets_room + opened,
                queue->buckets_count * sizeof(*queue->buckets_room));
    queue->buckets = queue->buckets_room;
}

struct queue_bucket *queue_bucket(struct time_queue *queue, int64_t index)
{
    uint32_t low = 0, high = queue->buckets_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (queue->buckets[middle].index < index)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < queue->buckets_count && queue->buckets[low].index == index)
        return &queue->buckets[low];
    reserve_bucket(queue);
    memmove(&queue->buckets[low + 1], &queue->buckets[low],
            (queue->buckets_count - low) * sizeof(*queue->buckets));
    queue->buckets_count++;
    queue->buckets[low] = (struct queue_bucket){.index = index};
    return &queue->buckets[low];
}

static struct queue_block *new_block(struct time_queue *queue, struct queue_bucket *bucket, size_t bytes,
                                     bool is_stored)
{
    size_t first = bucket->block_bytes == 0 ? BLOCK_FIRST : bucket->block_bytes;
    size_t capacity = bucket->last == NULL ? first : MIN(bucket->last->capacity * 2, BLOCK_MAX);
    capacity = MAX(capacity, bytes);
    leat_assert(capacity <= UINT32_MAX);
    struct queue_block *block = mem_alloc(sizeof(*block) + capacity);
    *block = (struct queue_block){
        .previous = bucket->last, .references = 1, .capacity = (uint32_t)capacity, .is_stored = is_stored};
    if (bucket->last == NULL)
        bucket->first = block;
    else
        bucket->last->next = block;
    bucket->last = block;
    queue->bytes += sizeof(*block) + capacity;
    queue->loaded_bytes += is_stored ? sizeof(*block) + capacity : 0;
    return block;
}

struct queue_record *queue_append(struct time_queue *queue, struct queue_bucket *bucket,
                                  const struct queue_record *head, const char *data, bool is_stored,
                                  struct queue_block **where)
{
    size_t bytes = queue_record_bytes(head->length);
    struct queue_block *block = bucket->last;
    if (block == NULL || block->is_stored != is_stored || block->capacity - block->length < bytes)
        block = new_block(queue, bucket, bytes, is_stored);
    struct queue_record *record = (struct queue_record *)(void *)(block->data + block->length);
    *record = *head;
    if (head->length > 0)
        memcpy(record->data, data, head->length);
    block->length += (uint32_t)bytes;
    block->newest = MAX(block->newest, head->sequence);
    *where = block;
    return record;
}

/* --- The heap of the open bucket --- */

static bool is_before(const struct queue_item *a, const struct queue_item *b)
{
    if (a->time_us != b->time_us)
        return a->time_us < b->time_us;
    if (a->hash != b->hash)
        return a->hash < b->hash;
    return a->record->sequence < b->record->sequence;
}

static void sift_down(struct time_queue *queue, uint32_t at, struct queue_item item)
{
    struct queue_item *heap = queue->heap;
    for (uint32_t child; (child = 2 * at + 1) < queue->heap_count; at = child) {
        if (child + 1 < queue->heap_count && is_before(&heap[child + 1], &heap[child]))
            child++;
        if (!is_before(&heap[child], &item))
            break;
        heap[at] = heap[child];
    }
    heap[at] = item;
}

static void heap_reserve(struct time_queue *queue, uint32_t count)
{
    if (count <= queue->heap_capacity)
        return;
    queue->heap_capacity = MAX(count, queue->heap_capacity * 2);
    queue->heap = mem_realloc(queue->heap, queue->heap_capacity * sizeof(*queue->heap));
}

static void heap_push(struct time_queue *queue, struct queue_item item)
{
    heap_reserve(queue, queue->heap_count + 1);
    struct queue_item *heap = queue->heap;
    uint32_t at = queue->heap_count++;
    for (; at > 0 && is_before(&item, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = item;
}

static struct queue_item heap_pop(struct time_queue *queue)
{
    struct queue_item top = queue->heap[0];
    queue->heap_count--;
    if (queue->heap_count > 0)
        sift_down(queue, 0, queue->heap[queue->heap_count]);
    return top;
}

void queue_enter(struct time_queue *queue, const struct queue_bucket *bucket)
{
    bool was_empty = queue->heap_count == 0;
    for (struct queue_block *block = bucket->first; block != NULL; block = block->next) {
        for (uint32_t at = 0; at < block->length;) {
            struct queue_record *record = (struct queue_record *)(void *)(block->data + at);
            struct queue_item item = {record->time_us, record->hash, record, block};
            block->alive++;
            at += (uint32_t)queue_record_bytes(record->length);
            if (!was_empty) {
                heap_push(queue, item);
                continue;
            }
            heap_reserve(queue, queue->heap_count + 1);
            queue->heap[queue->heap_count++] = item;
        }
    }
    for (uint32_t at = queue->heap_count / 2; was_empty && at-- > 0;)
        sift_down(queue, at, queue->heap[at]);
    if (bucket->first == NULL)
        return;
    bucket->last->next = queue->open.first;
    *(queue->open.first == NULL ? &queue->open.last : &queue->open.first->previous) = bucket->last;
    queue->open.first = bucket->first;
}

/* Opens the first bucket. The bucket that was open has no records left: the heap had all of them. */
static void open_bucket(struct time_queue *queue)
{
    struct queue_bucket bucket = queue->buckets[0];
    queue->streams_count = 0;
    if (bucket.is_stored)
        queue_load(queue, &bucket);
    queue->buckets_count--;
    queue->buckets++;
    queue->open_until = bucket.index + 1;
    queue->open.index = bucket.index;
    queue->open.records = bucket.records;
    queue_enter(queue, &bucket);
}

/* Counts a record of the block as gone; the block is freed with its last one. */
static void leave_block(struct time_queue *queue, struct queue_block *block)
{
    if (--block->alive == 0)
        queue_block_drop(queue, &queue->open, block);
}

static bool is_record(const struct queue_record *record, int64_t time_us, uint64_t hash, uint64_t sequence)
{
    return record->time_us == time_us && record->hash == hash && record->sequence == sequence;
}

static bool has_due_stream(const struct time_queue *queue, int64_t before)
{
    for (uint32_t i = 0; i < queue->streams_count; i++)
        if (queue_is_due(queue, &queue->streams[i], before))
            return true;
    return false;
}

static void release_popped(struct time_queue *queue)
{
    if (queue->popped_block != NULL)
        leave_block(queue, queue->popped_block);
    queue->popped_block = NULL;
}

bool time_queue_pop(struct time_queue *queue, int64_t before, struct time_record *record)
{
    release_popped(queue);
    for (;;) {
        while (has_due_stream(queue, before))
            queue_refill(queue, before);
        if (queue->heap_count > 0 && queue->heap[0].time_us < before) {
            struct queue_item item = heap_pop(queue);
            struct queue_record *top = item.record;
            bool is_copy =
                queue->has_last && is_record(top, queue->last_time, queue->last_hash, queue->last_sequence);
            queue->open.records -= queue->open.records > 0;
            if (is_copy || !queue_has(queue, top)) {
                leave_block(queue, item.block);
                continue;
            }
            queue->has_last = true;
            queue->last_time = top->time_us;
            queue->last_hash = top->hash;
            queue->last_sequence = top->sequence;
            queue->popped_block = item.block;
            *record = (struct time_record){
                top->time_us, top->hash, top->sequence, top->key, {top->data, top->length}};
            return true;
        }
        if (queue->buckets_count > 0 && queue->buckets[0].index <= queue_bucket_index(queue, before)) {
            open_bucket(queue);
            continue;
        }
        queue->gone_before = MAX(queue->gone_before, before);
        store_note_watermark(&queue->user, queue->gone_before);
        return false;
    }
}

void time_queue_push(struct time_queue *queue, int64_t time_us, struct key key, uint64_t hash,
                     struct str data)
{
    leat_assert(data.length <= (8 << 20));
    struct queue_record head = {.time_us = time_us,
                                .hash = hash,
                                .sequence = queue->sequence++,
                                .key = key,
                                .length = (uint32_t)data.length,
                                .stay = group_set_stay(queue->options.groups, key_group(hash))};
    queue_add(queue, &head, data.data);
}

void queue_add(struct time_queue *queue, const struct queue_record *head, const char *data)
{
    int64_t index = queue_bucket_index(queue, head->time_us);
    bool is_open = index < queue->open_until;
    struct queue_bucket *bucket = is_open ? &queue->open : queue_bucket(queue, index);
    struct queue_block *block;
    struct queue_record *record = queue_append(queue, bucket, head, data, false, &block);
    bucket->records++;
    if (is_open) {
        block->alive++;
        heap_push(queue, (struct queue_item){head->time_us, head->hash, record, block});
    }
    if (queue->bytes > queue->spill_bytes)
        queue_spill(queue);
}

uint64_t time_queue_count(const struct time_queue *queue, int64_t before, uint64_t *all)
{
    int64_t last = queue_bucket_index(queue, before);
    uint64_t count = queue->open_until <= last + 1 ? queue->open.records : 0;
    *all = queue->open.records;
    for (uint32_t i = 0; i < queue->buckets_count; i++) {
        *all += queue->buckets[i].records;
        count += queue->buckets[i].index <= last ? queue->buckets[i].records : 0;
    }
    return count;
}

/* Buckets that end before `before` are dropped unread; the records of the bucket with `before` are popped. */
void time_queue_discard(struct time_queue *queue, int64_t before)
{
    int64_t limit = before == TIME_MAX ? INT64_MAX : queue_bucket_index(queue, before);
    struct time_record record;
    release_popped(queue);
    if (queue->open_until <= limit) {
        queue_drop_blocks(queue, &queue->open);
        queue->heap_count = queue->streams_count = 0;
        queue->open.records = 0;
    }
    while (queue->buckets_count > 0 && queue->buckets[0].index < limit) {
        queue_drop_blocks(queue, &queue->buckets[0]);
        queue->buckets++;
        queue->buckets_count--;
    }
    while (time_queue_pop(queue, before, &record))
        ;
}
