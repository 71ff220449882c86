/* The time queue in checkpoints: its records that are in memory. Those in the database are in the database's files. */
#include "state/time_queue.h"

#include "core/mem.h"
#include "state/by_group.h"

#include <stdlib.h>

enum {
    WINDOW_RECORDS =
        32 << 10, /* sorted together by key group: so many that most groups get a piece of their own */
    AHEAD = 16,   /* records are prefetched so far ahead */
    CACHE_LINE = 64
};

/* The blocks to write, as they were at the barrier: bytes from .. to of each; the snapshot holds a reference
 * to each block. */
struct queue_snapshot {
    uint8_t kind;
    bool has_groups; /* false: the queue has all */
    struct group_set groups;
    int64_t gone_before;
    uint32_t count, capacity;
    struct {
        struct queue_block *block;
        uint32_t from, to;
    } * parts;
};

/* Whether the queue had the record's key group at the barrier. */
static bool is_had(const struct queue_snapshot *snapshot, const struct queue_record *record)
{
    return !snapshot->has_groups ||
           group_set_has_stay(&snapshot->groups, key_group(record->hash), record->stay);
}

/* The writer's window: records that are written together, by key group. */
struct queue_window {
    struct by_group records; /* struct queue_record, in the snapshot's blocks */
    struct byte_buffer buffer;
};

/* Writes the window's records, and clears it. */
static bool put_window(const struct queue_snapshot *snapshot, struct queue_window *window,
                       struct snapshot_writer *writer)
{
    const struct queue_snapshot_head head = {.kind = snapshot->kind, .type = QUEUE_RECORD};
    bool is_good = true;
    by_group_sort(&window->records);
    for (uint32_t i = 0; is_good && i < window->records.count; i++) {
        const struct queue_record *record = window->records.records[i];
        const char *later = window->records.records[MIN(i + AHEAD, window->records.count - 1)];
        __builtin_prefetch(later);
        __builtin_prefetch(later + CACHE_LINE);
        buffer_clear(&window->buffer);
        buffer_append(&window->buffer, &head, sizeof(head));
        buffer_append(&window->buffer, record, sizeof(*record));
        buffer_append(&window->buffer, record->data, record->length);
        is_good = snapshot_put(writer, key_group(record->hash), window->buffer.data, window->buffer.length);
    }
    by_group_clear(&window->records);
    return is_good;
}

static bool write_parts(void *argument, struct snapshot_writer *writer)
{
    struct queue_snapshot *snapshot = argument;
    struct queue_window window = {0};
    bool is_good = true;
    for (uint32_t i = 0; i < snapshot->count; i++)
        for (uint32_t at = snapshot->parts[i].from; is_good && at < snapshot->parts[i].to;) {
            const struct queue_record *record =
                (const struct queue_record *)(const void *)(snapshot->parts[i].block->data + at);
            at += (uint32_t)queue_record_bytes(record->length);
            if (record->time_us < snapshot->gone_before || !is_had(snapshot, record))
                continue;
            by_group_add(&window.records, key_group(record->hash), record);
            if (window.records.count == WINDOW_RECORDS)
                is_good = put_window(snapshot, &window, writer);
        }
    is_good = is_good && put_window(snapshot, &window, writer);
    by_group_free(&window.records);
    buffer_free(&window.buffer);
    return is_good;
}

static void parts_done(void *argument, bool is_published)
{
    struct queue_snapshot *snapshot = argument;
    for (uint32_t i = 0; i < snapshot->count; i++) {
        if (is_published)
            __atomic_store_n(&snapshot->parts[i].block->clean, snapshot->parts[i].to, __ATOMIC_RELEASE);
        queue_block_release(snapshot->parts[i].block);
    }
    free(snapshot->parts);
    free(snapshot);
}

static void add_parts(struct queue_snapshot *snapshot, struct queue_block *block, bool is_base)
{
    for (; block != NULL; block = block->next) {
        uint32_t from = is_base ? 0 : __atomic_load_n(&block->clean, __ATOMIC_ACQUIRE);
        if (block->is_stored || from == block->length)
            continue;
        if (snapshot->count == snapshot->capacity) {
            snapshot->capacity = MAX(snapshot->capacity * 2, 64);
            snapshot->parts = mem_realloc(snapshot->parts, snapshot->capacity * sizeof(*snapshot->parts));
        }
        __atomic_add_fetch(&block->references, 1, __ATOMIC_RELAXED);
        snapshot->parts[snapshot->count].block = block;
        snapshot->parts[snapshot->count].from = from;
        snapshot->parts[snapshot->count++].to = block->length;
    }
}

bool time_queue_snapshot(struct time_queue *queue, struct snapshot_writer *writer)
{
    store_hold(&queue->user);
    queue->epoch = snapshot_epoch(writer) + 1;
    __atomic_store_n(&queue->user.barrier_watermark, queue->gone_before, __ATOMIC_RELEASE);
    struct queue_snapshot_head head = {
        .kind = queue->options.kind, .type = QUEUE_SEQUENCE, .sequence = queue->sequence};
    if (!snapshot_put(writer, SNAPSHOT_GLOBAL, &head, sizeof(head)))
        return false;
    struct queue_snapshot *snapshot = mem_calloc(1, sizeof(*snapshot));
    snapshot->kind = queue->options.kind;
    snapshot->gone_before = queue->gone_before;
    snapshot->has_groups = queue->options.groups != NULL;
    if (snapshot->has_groups)
        snapshot->groups = *queue->options.groups;
    for (uint32_t i = 0; i < queue->buckets_count; i++)
        add_parts(snapshot, queue->buckets[i].first, snapshot_is_base(writer));
    add_parts(snapshot, queue->open.first, snapshot_is_base(writer));
    snapshot_defer(writer, write_parts, parts_done, snapshot);
    return true;
}

bool time_queue_restore(struct time_queue *queue, struct snapshot_reader *reader, struct str data,
                        int64_t watermark, struct diag_list *diags)
{
    struct queue_snapshot_head head;
    struct queue_record record;
    if (data.length < sizeof(head) || (uint8_t)data.data[0] != queue->options.kind) {
        snapshot_corrupt(reader, diags, "a record of a time queue has no valid header");
        return false;
    }
    memcpy(&head, data.data, sizeof(head));
    queue->gone_before = MAX(queue->gone_before, watermark);
    if (head.type == QUEUE_SEQUENCE) {
        queue->sequence = MAX(queue->sequence, head.sequence);
        return true;
    }
    if (data.length < sizeof(head) + sizeof(record)) {
        snapshot_corrupt(reader, diags, "a record of a time queue is too short");
        return false;
    }
    memcpy(&record, data.data + sizeof(head), sizeof(record));
    if (record.length != data.length - sizeof(head) - sizeof(record)) {
        snapshot_corrupt(reader, diags, "a record of a time queue has another length than its header says");
        return false;
    }
    if (record.time_us < watermark || !queue_has(queue, &record))
        return true;
    struct queue_block *block;
    struct queue_bucket *bucket = queue_bucket(queue, queue_bucket_index(queue, record.time_us));
    queue_append(queue, bucket, &record, data.data + sizeof(head) + sizeof(record), false, &block);
    bucket->records++;
    if (queue->bytes > queue->spill_bytes)
        queue_spill(queue);
    return true;
}
