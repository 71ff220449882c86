/* The time queue below its budget and in checkpoints.
 *
 * Database key: id, kind, bucket (8 bytes), key group (2), time, hash, sequence (8 each), all big-endian: a
 * lane reads a bucket's records of its groups in one range. A record stays in the database until a compaction
 * finds its time below the watermark of a barrier, so whatever checkpoint is restored finds it; a record that
 * is in a delta as well has the same identity and leaves once. */
#include "state/time_queue.h"

#include "core/buffer.h"

#include <stdlib.h>

enum {
    QUEUE_KEY_BYTES = 3 + 8 + 2 + 8 + 8 + 8,
    SPILL_FREE_SHARE = 8,
    SPILL_BATCH = 256 << 10, /* bytes */
    HEAP_KEPT = 256,         /* items */
    LOAD_SHARE = 4,          /* of the budget: what was read of the open bucket */
    PIECE_SHARE = 4,         /* of what is left of that */
    PIECE_MIN = 512,         /* bytes, but at least a record */
    PIECE_BLOCK_MAX = 64 << 10
};

enum queue_record_type { QUEUE_SEQUENCE, QUEUE_RECORD };

struct __attribute__((packed)) snapshot_head {
    uint8_t kind;
    uint8_t type;
    uint8_t spare[6];
    uint64_t sequence; /* QUEUE_SEQUENCE: the next one */
};

static void put_be(char *out, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        out[i] = (char)(value >> (8 * (bytes - 1 - i)));
}

static uint64_t get_be(const char *in, uint32_t bytes)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < bytes; i++)
        value = value << 8 | (unsigned char)in[i];
    return value;
}

/* Order of signed numbers as bytes. */
static uint64_t biased(int64_t value)
{
    return (uint64_t)value ^ UINT64_C(1) << 63;
}

static void bucket_key(const struct time_queue *queue, char *out, int64_t bucket, uint32_t group)
{
    put_be(out, queue->options.id, 2);
    out[2] = (char)queue->options.kind;
    put_be(out + 3, biased(bucket), 8);
    put_be(out + 11, group, 2);
}

/* --- Spilling --- */

static void record_key(const struct time_queue *queue, char *out, int64_t bucket, int64_t time_us,
                       uint64_t hash, uint64_t sequence)
{
    bucket_key(queue, out, bucket, key_group(hash));
    put_be(out + 13, biased(time_us), 8);
    put_be(out + 21, hash, 8);
    put_be(out + 29, sequence, 8);
}

static void put_record(struct time_queue *queue, int64_t bucket, const struct queue_record *record)
{
    char key[QUEUE_KEY_BYTES];
    record_key(queue, key, bucket, record->time_us, record->hash, record->sequence);
    struct stored_value head = {.epoch = (uint32_t)queue->epoch, .expire_us = record->time_us};
    const char *keys[1] = {key};
    size_t key_bytes = sizeof key;
    const char *parts[3] = {(const char *)&head, (const char *)&record->key, record->data};
    size_t lengths[3] = {sizeof head, sizeof record->key, record->length};
    rocksdb_writebatch_putv(queue->batch, 1, keys, &key_bytes, 3, parts, lengths);
}

static bool commit_records(struct time_queue *queue)
{
    if (rocksdb_writebatch_count(queue->batch) == 0 || store_commit(queue->options.store, queue->batch))
        return true;
    rocksdb_writebatch_clear(queue->batch);
    return false;
}

static bool spill_bucket(struct time_queue *queue, struct queue_bucket *bucket)
{
    while (bucket->first != NULL) {
        struct queue_block *block = bucket->first;
        for (uint32_t at = 0; at < block->length && !block->is_stored;) {
            const struct queue_record *record = (const struct queue_record *)(const void *)(block->data + at);
            put_record(queue, bucket->index, record);
            at += (uint32_t)queue_record_bytes(record->length);
        }
        bucket->is_stored = true;
        if (!commit_records(queue))
            return false;
        bucket->first = block->next;
        queue_block_drop(queue, block);
    }
    bucket->last = NULL;
    return true;
}

/* The open bucket leaves as a whole and is closed: it opens again, a piece of it, when it is asked for. Not
 * between two records that leave: those of them that are gone are told by gone_before. */
static void spill_open(struct time_queue *queue)
{
    if (queue->open.first == NULL || queue->popped_block != NULL)
        return;
    size_t bytes = 0;
    for (uint32_t i = 0; i < queue->heap_count; i++) {
        if (queue->heap[i].block->is_stored)
            continue;
        put_record(queue, queue->open.index, queue->heap[i].record);
        bytes += queue_record_bytes(queue->heap[i].record->length);
        if (bytes < SPILL_BATCH)
            continue;
        if (!commit_records(queue))
            return;
        bytes = 0;
    }
    if (!commit_records(queue))
        return;
    while (queue->open.first != NULL) {
        struct queue_block *block = queue->open.first;
        queue->open.first = block->next;
        queue_block_drop(queue, block);
    }
    queue->heap_count = 0;
    queue->open_until = queue->open.index;
    queue_bucket(queue, queue->open.index)->is_stored = true;
    queue->open = (struct queue_bucket){0};
}

/* Gives back what the heap needed for a bucket that is gone. */
static void shrink_heap(struct time_queue *queue)
{
    if (queue->heap_capacity <= MAX(4 * queue->heap_count, HEAP_KEPT))
        return;
    queue->heap_capacity = MAX(queue->heap_count, HEAP_KEPT);
    queue->heap = realloc(queue->heap, queue->heap_capacity * sizeof *queue->heap);
    leat_assert(queue->heap != NULL);
}

/* Buckets leave from the far end, the open one last. */
void queue_spill(struct time_queue *queue)
{
    size_t budget = queue->options.budget_bytes;
    bool has_directory = store_has_directory(queue->options.store);
    bool can_write = store_can_write(&queue->user);
    for (uint32_t i = queue->buckets_count;
         can_write && i-- > 0 && queue->bytes > budget - budget / SPILL_FREE_SHARE;)
        if (queue->buckets[i].first != NULL && !spill_bucket(queue, &queue->buckets[i]))
            break;
    if (can_write && queue->bytes > budget)
        spill_open(queue);
    shrink_heap(queue);
    queue->spill_bytes = MAX(budget, queue->bytes + budget / SPILL_FREE_SHARE);
    int64_t pressure =
        has_directory && !can_write && queue->bytes > budget ? (int64_t)(queue->bytes - budget) : 0;
    store_add_pressure(queue->options.store, pressure - queue->pressure);
    queue->pressure = pressure;
}

/* --- Reading the open bucket --- */

struct load {
    struct time_queue *queue;
    struct queue_bucket *bucket;
    size_t piece_bytes;
    uint32_t group; /* being read */
    size_t bytes;   /* of it */
    struct queue_cursor last;
};

static bool load_record(void *argument, struct str key, struct str value)
{
    struct load *load = argument;
    struct stored_value stored;
    struct queue_record head = {0};
    leat_assert(key.length == QUEUE_KEY_BYTES && value.length >= sizeof stored + sizeof head.key);
    uint32_t group = (uint32_t)get_be(key.data + 11, 2);
    if (group != load->group) {
        load->group = group;
        load->bytes = 0;
    }
    load->last.has_more = load->bytes >= load->piece_bytes;
    if (load->last.has_more)
        return false;
    head.time_us = (int64_t)(get_be(key.data + 13, 8) ^ UINT64_C(1) << 63);
    head.hash = get_be(key.data + 21, 8);
    head.sequence = get_be(key.data + 29, 8);
    memcpy(&head.key, value.data + sizeof stored, sizeof head.key);
    head.length = (uint32_t)(value.length - sizeof stored - sizeof head.key);
    if (head.time_us < load->queue->gone_before)
        return true;
    struct queue_block *block;
    queue_append(load->queue, load->bucket, &head, value.data + sizeof stored + sizeof head.key, true,
                 &block);
    load->bytes += queue_record_bytes(head.length);
    load->last = (struct queue_cursor){head.time_us, head.hash, head.sequence, false};
    return true;
}

/* Half of what may be read at all, for each key group: the other half is for the next pieces. */
static size_t piece_bytes(const struct time_queue *queue)
{
    size_t groups = queue->group_limit - queue->group_first;
    return MAX(queue->options.budget_bytes / LOAD_SHARE / 2 / MAX(groups, 1), PIECE_MIN);
}

void queue_load(struct time_queue *queue, struct queue_bucket *bucket)
{
    if (queue->cursors != NULL)
        memset(queue->cursors, 0, KEY_GROUPS * sizeof *queue->cursors);
    char first[13], limit[13];
    bucket_key(queue, limit, bucket->index, queue->group_limit);
    struct load load = {queue, bucket, piece_bytes(queue), KEY_GROUPS, 0, {0}};
    /* One range, but for what is beyond the piece of a group. The store keeps its error. */
    for (uint32_t group = queue->group_first; group < queue->group_limit; group = load.group + 1) {
        bucket_key(queue, first, bucket->index, group);
        if (!store_scan(queue->options.store, (struct str){first, sizeof first},
                        (struct str){limit, sizeof limit}, load_record, &load) ||
            !load.last.has_more)
            return;
        if (queue->cursors == NULL)
            queue->cursors = calloc(KEY_GROUPS, sizeof *queue->cursors);
        leat_assert(queue->cursors != NULL);
        queue->cursors[load.group] = load.last;
        load.last.has_more = false;
    }
}

/* One key group alone, where all records have one time, may take more and more of what the others leave. */
void queue_refill(struct time_queue *queue)
{
    uint32_t group = queue->refill;
    struct queue_cursor *cursor = &queue->cursors[group];
    queue->refill = KEY_GROUPS;
    size_t limit_bytes = queue->options.budget_bytes / LOAD_SHARE;
    size_t room = limit_bytes - MIN(queue->loaded_bytes, limit_bytes);
    size_t bytes = MAX(piece_bytes(queue), room / PIECE_SHARE);
    struct queue_bucket piece = {.index = queue->open.index,
                                 .block_bytes = (uint32_t)MIN(bytes, PIECE_BLOCK_MAX)};
    struct load load = {queue, &piece, bytes, group, 0, {0}};
    char first[QUEUE_KEY_BYTES + 1], limit[13];
    record_key(queue, first, piece.index, cursor->time_us, cursor->hash, cursor->sequence);
    first[QUEUE_KEY_BYTES] = 0; /* just beyond that record */
    bucket_key(queue, limit, piece.index, group + 1);
    bool is_good = store_scan(queue->options.store, (struct str){first, sizeof first},
                              (struct str){limit, sizeof limit}, load_record, &load);
    *cursor = load.last;
    cursor->has_more &= is_good;
    queue_enter(queue, &piece);
}

/* --- Checkpoints --- */

/* Blocks as they were at the barrier, kept alive by references. */
struct queue_snapshot {
    uint8_t kind;
    int64_t gone_before;
    uint32_t count, capacity;
    struct {
        struct queue_block *block;
        uint32_t from, to;
    } * parts;
};

static bool write_parts(void *argument, struct snapshot_writer *writer)
{
    struct queue_snapshot *snapshot = argument;
    struct byte_buffer buffer = {0};
    bool is_good = true;
    for (uint32_t i = 0; i < snapshot->count; i++)
        for (uint32_t at = snapshot->parts[i].from; is_good && at < snapshot->parts[i].to;) {
            const struct queue_record *record =
                (const struct queue_record *)(const void *)(snapshot->parts[i].block->data + at);
            at += (uint32_t)queue_record_bytes(record->length);
            if (record->time_us < snapshot->gone_before)
                continue;
            struct snapshot_head head = {.kind = snapshot->kind, .type = QUEUE_RECORD};
            buffer_clear(&buffer);
            buffer_append(&buffer, &head, sizeof head);
            buffer_append(&buffer, record, sizeof *record);
            buffer_append(&buffer, record->data, record->length);
            is_good = snapshot_put(writer, key_group(record->hash), buffer.data, buffer.length);
        }
    buffer_free(&buffer);
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
            snapshot->parts = realloc(snapshot->parts, snapshot->capacity * sizeof *snapshot->parts);
            leat_assert(snapshot->parts != NULL);
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
    struct snapshot_head head = {
        .kind = queue->options.kind, .type = QUEUE_SEQUENCE, .sequence = queue->sequence};
    if (!snapshot_put(writer, SNAPSHOT_GLOBAL, &head, sizeof head))
        return false;
    struct queue_snapshot *snapshot = calloc(1, sizeof *snapshot);
    leat_assert(snapshot != NULL);
    snapshot->kind = queue->options.kind;
    snapshot->gone_before = queue->gone_before;
    for (uint32_t i = 0; i < queue->buckets_count; i++)
        add_parts(snapshot, queue->buckets[i].first, snapshot_is_base(writer));
    add_parts(snapshot, queue->open.first, snapshot_is_base(writer));
    snapshot_defer(writer, write_parts, parts_done, snapshot);
    return true;
}

bool time_queue_restore(struct time_queue *queue, struct snapshot_reader *reader, struct str data,
                        int64_t watermark, struct diag_list *diags)
{
    struct snapshot_head head;
    struct queue_record record;
    if (data.length < sizeof head || (uint8_t)data.data[0] != queue->options.kind) {
        snapshot_corrupt(reader, diags, "a record of a time queue has no head");
        return false;
    }
    memcpy(&head, data.data, sizeof head);
    queue->gone_before = MAX(queue->gone_before, watermark);
    if (head.type == QUEUE_SEQUENCE) {
        queue->sequence = MAX(queue->sequence, head.sequence);
        return true;
    }
    if (data.length < sizeof head + sizeof record) {
        snapshot_corrupt(reader, diags, "a record of a time queue is too short");
        return false;
    }
    memcpy(&record, data.data + sizeof head, sizeof record);
    if (record.length != data.length - sizeof head - sizeof record) {
        snapshot_corrupt(reader, diags, "a record of a time queue has another length than it says");
        return false;
    }
    uint32_t lanes = snapshot_lanes(reader);
    if (record.time_us < watermark ||
        (lanes > 0 && key_lane(key_group(record.hash), lanes) != snapshot_lane(reader)))
        return true;
    struct queue_block *block;
    queue_append(queue, queue_bucket(queue, queue_bucket_index(queue, record.time_us)), &record,
                 data.data + sizeof head + sizeof record, false, &block);
    if (queue->bytes > queue->spill_bytes)
        queue_spill(queue);
    return true;
}

static bool first_key(void *argument, struct str key, struct str value)
{
    (void)value;
    memcpy(argument, key.data, MIN(key.length, QUEUE_KEY_BYTES));
    return false;
}

bool time_queue_restored(struct time_queue *queue, uint32_t lane, uint32_t lanes, int64_t watermark)
{
    queue->gone_before = MAX(queue->gone_before, watermark);
    keyed_groups(lane, lanes, &queue->group_first, &queue->group_limit);
    if (!store_has_database(queue->options.store) || queue->group_first == queue->group_limit)
        return true;
    /* One seek for each bucket that the database has. */
    int64_t bucket = watermark == TIME_MIN ? INT64_MIN : queue_bucket_index(queue, watermark);
    uint32_t group = queue->group_first;
    char limit[13];
    bucket_key(queue, limit, INT64_MAX, KEY_GROUPS);
    for (;;) {
        char first[13], found[QUEUE_KEY_BYTES] = {0};
        bucket_key(queue, first, bucket, group);
        if (!store_scan(queue->options.store, (struct str){first, sizeof first},
                        (struct str){limit, sizeof limit}, first_key, found))
            return false;
        if (memcmp(found, limit, 3) != 0)
            return true;
        bucket = (int64_t)(get_be(found + 3, 8) ^ UINT64_C(1) << 63);
        group = (uint32_t)get_be(found + 11, 2);
        if (group < queue->group_first) {
            group = queue->group_first;
            continue;
        }
        if (group < queue->group_limit)
            queue_bucket(queue, bucket)->is_stored = true;
        bucket++; /* a bucket's index is far below the limit: it is a time divided by a width */
        group = queue->group_first;
    }
}
