/* The time queue below its budget.
 *
 * Records are sorted before they are written, and lie in the database many to a value, a pack: each value
 * costs the database, on its way through memory, files and compactions, as much as hundreds of bytes. Key of
 * a pack: id, kind, bucket (8 bytes), the key groups of the lane that wrote it (first, limit: 2 each), time,
 * hash, sequence (8 each) of its first record, the hash of its content (8), all big-endian. So the packs that
 * a lane wrote of a bucket are one range of keys, in the order of their first records, and a pack replaces
 * only a pack with the same content. A pack stays in the database until a compaction finds the time of its
 * last record below the watermark of a barrier, so any checkpoint that is restored finds it. A record that is
 * in a delta as well, or in two packs, has the same identity and leaves once. */
#include "state/time_queue.h"

#include "core/buffer.h"
#include "core/mem.h"

#include <stdlib.h>
#include <xxhash.h>

enum {
    STREAM_KEY_BYTES = 3 + 8 + 2 + 2,
    PACK_BYTES_MAX = 1024, /* unless one record is larger */
    PACK_SHARE = 64,       /* of the budget */
    SPILL_FREE_SHARE = 8,
    SPILL_BATCH = 256 << 10, /* bytes */
    SPILL_RECORDS = 8 << 10, /* sorted together */
    HEAP_KEPT = 256,         /* items */
    LOAD_SHARE = 4,          /* of the budget: for records read from the open bucket */
    PIECE_SHARE = 4,         /* of what is left of LOAD_SHARE */
    PIECE_MIN = 512,         /* bytes; but at least one record */
    PIECE_BLOCK_MAX = 64 << 10,
    VISIT_SHARE = 8,         /* of the budget: packs that are visited in a piece */
    VISIT_PIECE = 256 << 10, /* bytes; but no more than that */
    RECORD_STORED = 72       /* about the bytes of a record with a little data in the database */
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

/* Maps signed numbers to unsigned ones in the same order. */
static uint64_t biased(int64_t value)
{
    return (uint64_t)value ^ UINT64_C(1) << 63;
}

/* Writes the key at which the stream of these key groups begins. */
static void stream_key(const struct time_queue *queue, char *out, int64_t bucket, uint32_t first,
                       uint32_t limit)
{
    put_be(out, queue->options.id, 2);
    out[2] = (char)queue->options.kind;
    put_be(out + 3, biased(bucket), 8);
    put_be(out + 11, first, 2);
    put_be(out + 13, limit, 2);
}

/* --- Spilling --- */

static void put_position(char *out, int64_t time_us, uint64_t hash, uint64_t sequence)
{
    put_be(out, biased(time_us), 8);
    put_be(out + 8, hash, 8);
    put_be(out + 16, sequence, 8);
}

/* Puts queue->pack, records of a bucket laid out as in a block, into the batch, and clears the pack. stream: at which key the stream
 * begins that gets it. */
static void put_pack(struct time_queue *queue, const char stream[STREAM_KEY_BYTES],
                     const struct queue_record *last)
{
    const struct queue_record *first = (const struct queue_record *)(const void *)queue->pack.data;
    char key[QUEUE_KEY_BYTES];
    memcpy(key, stream, STREAM_KEY_BYTES);
    put_position(key + STREAM_KEY_BYTES, first->time_us, first->hash, first->sequence);
    put_be(key + QUEUE_KEY_BYTES - 8, XXH3_64bits(queue->pack.data, queue->pack.length), 8);
    struct stored_value head = {.epoch = (uint32_t)queue->epoch, .expire_us = last->time_us};
    const char *keys[1] = {key};
    size_t key_bytes = sizeof(key);
    const char *parts[2] = {(const char *)&head, queue->pack.data};
    size_t lengths[2] = {sizeof(head), queue->pack.length};
    rocksdb_writebatch_putv(queue->batch, 1, keys, &key_bytes, 2, parts, lengths);
    buffer_clear(&queue->pack);
}

static void pack_record(struct time_queue *queue, const struct queue_record *record)
{
    size_t bytes = queue_record_bytes(record->length), used = sizeof(*record) + record->length;
    char *at = buffer_reserve(&queue->pack, bytes);
    memcpy(at, record, used);
    memset(at + used, 0, bytes - used);
    queue->pack.length += bytes;
}

static bool commit_records(struct time_queue *queue)
{
    if (rocksdb_writebatch_count(queue->batch) == 0 || store_commit(queue->options.store, queue->batch))
        return true;
    rocksdb_writebatch_clear(queue->batch);
    return false;
}

static int by_position(const void *a, const void *b)
{
    const struct queue_record *x = *(const struct queue_record *const *)a;
    const struct queue_record *y = *(const struct queue_record *const *)b;
    if (x->time_us != y->time_us)
        return x->time_us < y->time_us ? -1 : 1;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

/* Sorts the first `count` records of queue->sorted and writes them in packs. False: the store failed. */
static bool put_sorted(struct time_queue *queue, int64_t bucket, uint32_t count)
{
    size_t bytes = 0, pack_bytes = MIN(queue->options.budget_bytes / PACK_SHARE, PACK_BYTES_MAX);
    char stream[STREAM_KEY_BYTES];
    stream_key(queue, stream, bucket, queue->group_first, queue->group_limit);
    if (count > 1)
        qsort(queue->sorted, count, sizeof(*queue->sorted), by_position);
    for (uint32_t i = 0; i < count; i++) {
        pack_record(queue, queue->sorted[i]);
        size_t next_bytes = i + 1 < count ? queue_record_bytes(queue->sorted[i + 1]->length) : pack_bytes;
        if (queue->pack.length + next_bytes <= pack_bytes)
            continue;
        bytes += queue->pack.length;
        put_pack(queue, stream, queue->sorted[i]);
        if (bytes < SPILL_BATCH)
            continue;
        if (!commit_records(queue))
            return false;
        bytes = 0;
    }
    return commit_records(queue);
}

static void reserve_sorted(struct time_queue *queue)
{
    if (queue->sorted == NULL)
        queue->sorted = mem_alloc(SPILL_RECORDS * sizeof(*queue->sorted));
}

static bool spill_bucket(struct time_queue *queue, struct queue_bucket *bucket)
{
    uint32_t count = 0;
    reserve_sorted(queue);
    bucket->is_stored = true;
    for (struct queue_block *block = bucket->first; block != NULL; block = block->next)
        for (uint32_t at = 0; at < block->length && !block->is_stored;) {
            const struct queue_record *record = (const struct queue_record *)(const void *)(block->data + at);
            at += (uint32_t)queue_record_bytes(record->length);
            if (!queue_has(queue, record))
                continue;
            queue->sorted[count++] = record;
            if (count < SPILL_RECORDS)
                continue;
            if (!put_sorted(queue, bucket->index, count))
                return false;
            count = 0;
        }
    if (!put_sorted(queue, bucket->index, count))
        return false;
    queue_drop_blocks(queue, bucket);
    return true;
}

/* Writes the whole open bucket to the database and closes it: it opens again, in pieces, when its records are
 * due. Does nothing while the caller of time_queue_pop still uses a record: popped records that are read back
 * are recognized by gone_before, which is set only when time_queue_pop finds no more records. */
static void spill_open(struct time_queue *queue)
{
    if (queue->open.first == NULL || queue->popped_block != NULL)
        return;
    uint32_t count = 0;
    reserve_sorted(queue);
    for (uint32_t i = 0; i < queue->heap_count; i++) {
        if (queue->heap[i].block->is_stored || !queue_has(queue, queue->heap[i].record))
            continue;
        queue->sorted[count++] = queue->heap[i].record;
        if (count < SPILL_RECORDS)
            continue;
        if (!put_sorted(queue, queue->open.index, count))
            return;
        count = 0;
    }
    if (!put_sorted(queue, queue->open.index, count))
        return;
    queue_drop_blocks(queue, &queue->open);
    queue->heap_count = queue->streams_count = 0;
    queue->open_until = queue->open.index;
    struct queue_bucket *closed = queue_bucket(queue, queue->open.index);
    closed->is_stored = true;
    closed->records = queue->open.records;
    queue->open = (struct queue_bucket){0};
}

/* Frees heap memory that only an earlier, larger bucket needed. */
static void shrink_heap(struct time_queue *queue)
{
    if (queue->heap_capacity <= MAX(4 * queue->heap_count, HEAP_KEPT))
        return;
    queue->heap_capacity = MAX(queue->heap_count, HEAP_KEPT);
    queue->heap = mem_realloc(queue->heap, queue->heap_capacity * sizeof(*queue->heap));
}

/* Buckets are written from the latest time backwards, the open bucket last. */
void queue_spill(struct time_queue *queue)
{
    size_t budget = queue->options.budget_bytes;
    bool has_directory = store_has_directory(queue->options.store);
    bool can_write = store_can_write(&queue->user) && queue->base_round == 0;
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
    struct queue_stream *stream;
    size_t piece_bytes, bytes;
};

static void load_record(struct load *load, const struct queue_record *head, const char *data)
{
    struct time_queue *queue = load->queue;
    struct queue_block *block;
    if (head->time_us < queue->gone_before || !queue_has(queue, head))
        return;
    queue_append(queue, load->bucket, head, data, true, &block);
    load->bytes += queue_record_bytes(head->length);
}

static bool load_pack(void *argument, struct str key, struct str value)
{
    struct load *load = argument;
    struct queue_stream *stream = load->stream;
    struct queue_record head;
    leat_assert(key.length == QUEUE_KEY_BYTES);
    stream->has_more = load->bytes >= load->piece_bytes;
    if (stream->has_more)
        return false;
    for (size_t at = sizeof(struct stored_value); at < value.length; at += queue_record_bytes(head.length)) {
        leat_assert(value.length - at >= sizeof(head));
        memcpy(&head, value.data + at, sizeof(head));
        leat_assert(value.length - at >= queue_record_bytes(head.length));
        load_record(load, &head, value.data + at + sizeof(head));
    }
    const char *position = key.data + STREAM_KEY_BYTES;
    memcpy(stream->position, position, QUEUE_POSITION_BYTES);
    stream->time_us = (int64_t)(get_be(position, 8) ^ UINT64_C(1) << 63);
    stream->hash = get_be(position + 8, 8);
    stream->sequence = get_be(position + 16, 8);
    return true;
}

/* Reads a piece of the stream, from the key `first` on, into the bucket. Where the database cannot be read,
 * the store keeps the error. */
static void load_piece(struct time_queue *queue, struct queue_bucket *bucket, struct queue_stream *stream,
                       struct str first, size_t piece_bytes)
{
    char limit[STREAM_KEY_BYTES];
    struct load load = {queue, bucket, stream, piece_bytes, 0};
    stream->has_more = false;
    stream_key(queue, limit, bucket->index, stream->first, stream->limit + 1);
    if (!store_scan(queue->options.store, first, (struct str){limit, sizeof(limit)}, load_pack, &load))
        stream->has_more = false;
}

static bool first_key(void *argument, struct str key, struct str value)
{
    (void)value;
    memcpy(argument, key.data, MIN(key.length, QUEUE_KEY_BYTES));
    return false;
}

struct visiting {
    queue_visit *visit;
    void *argument;
    struct queue_place *place;
    size_t bytes, piece_bytes;
};

static bool visit_pack(void *argument, struct str key, struct str value)
{
    struct visiting *visiting = argument;
    int64_t bucket = (int64_t)(get_be(key.data + 3, 8) ^ UINT64_C(1) << 63);
    struct queue_record head;
    leat_assert(key.length == QUEUE_KEY_BYTES);
    for (size_t at = sizeof(struct stored_value); at < value.length; at += queue_record_bytes(head.length)) {
        leat_assert(value.length - at >= sizeof(head));
        memcpy(&head, value.data + at, sizeof(head));
        leat_assert(value.length - at >= queue_record_bytes(head.length));
        visiting->visit(visiting->argument, bucket, &head, value.data + at + sizeof(head));
    }
    visiting->bytes += value.length;
    if (visiting->place == NULL || visiting->bytes < visiting->piece_bytes)
        return true;
    memcpy(visiting->place->key, key.data, key.length);
    visiting->place->key[key.length] = 0; /* the first key behind that pack's */
    visiting->place->length = key.length + 1;
    return false;
}

bool queue_visit_stored(struct time_queue *queue, struct state_store *store, int64_t first_bucket,
                        int64_t last_bucket, struct queue_place *place, queue_visit *visit, void *argument)
{
    char limit[STREAM_KEY_BYTES];
    struct queue_place first = {.length = STREAM_KEY_BYTES};
    struct visiting visiting = {.visit = visit,
                                .argument = argument,
                                .place = place,
                                .piece_bytes = MIN(queue->options.budget_bytes / VISIT_SHARE, VISIT_PIECE)};
    stream_key(queue, first.key, first_bucket, 0, 0);
    stream_key(queue, limit, last_bucket, UINT16_MAX, UINT16_MAX);
    if (place != NULL && place->length > 0)
        first = *place;
    if (place != NULL)
        place->length = 0;
    return store_scan(store, (struct str){first.key, first.length}, (struct str){limit, sizeof(limit)},
                      visit_pack, &visiting);
}

bool queue_put(struct time_queue *queue, int64_t bucket, const struct queue_record **records, uint32_t count)
{
    reserve_sorted(queue);
    for (uint32_t from = 0; from < count; from += SPILL_RECORDS) {
        uint32_t some = MIN(count - from, (uint32_t)SPILL_RECORDS);
        memcpy(queue->sorted, records + from, some * sizeof(*records));
        if (!put_sorted(queue, bucket, some))
            return false;
    }
    return true;
}

/* --- Key groups that have gone to other workers --- */

struct dropping {
    struct time_queue *queue;
    const struct group_set *groups;
    size_t bytes; /* of packs since the last commit */
    bool is_good;
};

/* Puts in the place of a pack that has records of the groups one without them. */
static bool drop_from_pack(void *argument, struct str key, struct str value)
{
    struct dropping *dropping = argument;
    struct time_queue *queue = dropping->queue;
    struct queue_record head, last = {0};
    bool has_some = false;
    leat_assert(key.length == QUEUE_KEY_BYTES);
    buffer_clear(&queue->pack);
    for (size_t at = sizeof(struct stored_value); at < value.length; at += queue_record_bytes(head.length)) {
        leat_assert(value.length - at >= sizeof(head));
        memcpy(&head, value.data + at, sizeof(head));
        leat_assert(value.length - at >= queue_record_bytes(head.length));
        bool is_dropped = group_set_has(dropping->groups, key_group(head.hash));
        has_some |= is_dropped;
        if (is_dropped)
            continue;
        buffer_append(&queue->pack, value.data + at, queue_record_bytes(head.length));
        last = head;
    }
    if (!has_some)
        return true;
    rocksdb_writebatch_delete(queue->batch, key.data, key.length);
    dropping->bytes += value.length;
    if (queue->pack.length > 0)
        put_pack(queue, key.data, &last);
    if (dropping->bytes < SPILL_BATCH)
        return true;
    dropping->bytes = 0;
    dropping->is_good = commit_records(queue);
    return dropping->is_good;
}

bool time_queue_forget_groups(struct time_queue *queue, const struct group_set *groups)
{
    char first[STREAM_KEY_BYTES], limit[STREAM_KEY_BYTES];
    struct dropping dropping = {.queue = queue, .groups = groups, .is_good = true};
    stream_key(queue, first, INT64_MIN, 0, 0);
    stream_key(queue, limit, INT64_MAX, UINT16_MAX, UINT16_MAX);
    bool is_good = store_scan(queue->options.store, (struct str){first, sizeof(first)},
                              (struct str){limit, sizeof(limit)}, drop_from_pack, &dropping);
    buffer_clear(&queue->pack);
    return commit_records(queue) && is_good && dropping.is_good;
}

/* Finds the streams of a bucket that may have records of this lane. */
static void find_streams(struct time_queue *queue, int64_t bucket)
{
    char limit[STREAM_KEY_BYTES];
    stream_key(queue, limit, bucket, queue->group_limit, 0);
    queue->streams_count = 0;
    for (uint32_t first = 0, end = 0;;) {
        char from[STREAM_KEY_BYTES], found[QUEUE_KEY_BYTES] = {0};
        stream_key(queue, from, bucket, first, end);
        if (!store_scan(queue->options.store, (struct str){from, sizeof(from)},
                        (struct str){limit, sizeof(limit)}, first_key, found) ||
            memcmp(found, from, 3) != 0)
            return;
        first = (uint32_t)get_be(found + 11, 2);
        end = (uint32_t)get_be(found + 13, 2);
        if (end > queue->group_first) {
            if (queue->streams_count == queue->streams_capacity) {
                queue->streams_capacity = MAX(queue->streams_capacity * 2, 4);
                queue->streams =
                    mem_realloc(queue->streams, queue->streams_capacity * sizeof(*queue->streams));
            }
            queue->streams[queue->streams_count++] = (struct queue_stream){.first = first, .limit = end};
        }
        end++;
    }
}

/* The bytes of one piece: half of what all streams together may read; the rest is for the next pieces. */
static size_t piece_bytes(const struct time_queue *queue)
{
    return MAX(queue->options.budget_bytes / LOAD_SHARE / 2 / queue->streams_count, PIECE_MIN);
}

void queue_load(struct time_queue *queue, struct queue_bucket *bucket)
{
    find_streams(queue, bucket->index);
    for (uint32_t i = 0; i < queue->streams_count; i++) {
        struct queue_stream *stream = &queue->streams[i];
        char first[STREAM_KEY_BYTES];
        stream_key(queue, first, bucket->index, stream->first, stream->limit);
        load_piece(queue, bucket, stream, (struct str){first, sizeof(first)}, piece_bytes(queue));
    }
}

void queue_refill(struct time_queue *queue, int64_t before)
{
    for (uint32_t i = 0; i < queue->streams_count; i++) {
        struct queue_stream *stream = &queue->streams[i];
        if (!queue_is_due(queue, stream, before))
            continue;
        size_t limit_bytes = queue->options.budget_bytes / LOAD_SHARE;
        size_t room = limit_bytes - MIN(queue->loaded_bytes, limit_bytes);
        size_t bytes = MAX(piece_bytes(queue), room / PIECE_SHARE);
        struct queue_bucket piece = {.index = queue->open.index,
                                     .block_bytes = (uint32_t)MIN(bytes, PIECE_BLOCK_MAX)};
        char first[QUEUE_KEY_BYTES + 1];
        stream_key(queue, first, piece.index, stream->first, stream->limit);
        memcpy(first + STREAM_KEY_BYTES, stream->position, QUEUE_POSITION_BYTES);
        first[QUEUE_KEY_BYTES] = 0; /* the first key behind that pack's */
        load_piece(queue, &piece, stream, (struct str){first, sizeof(first)}, bytes);
        queue_enter(queue, &piece);
    }
}

uint64_t time_queue_weight(const struct time_queue *queue)
{
    const struct time_queue_options *options = &queue->options;
    char first[STORE_PREFIX_BYTES], limit[STORE_PREFIX_BYTES];
    store_prefix(first, options->id, options->kind, 0);
    store_prefix(limit, options->id, (uint8_t)(options->kind + 1), 0);
    return queue->bytes + store_bytes(options->store, (struct str){first, sizeof(first)},
                                      (struct str){limit, sizeof(limit)});
}

/* --- After a restore --- */

/* About how many records of the queue's key groups the database has of a bucket. */
static uint64_t stored_records(struct time_queue *queue, int64_t bucket)
{
    char first[STREAM_KEY_BYTES], limit[STREAM_KEY_BYTES];
    stream_key(queue, first, bucket, 0, 0);
    stream_key(queue, limit, bucket, UINT16_MAX, UINT16_MAX);
    uint64_t bytes = store_bytes(queue->options.store, (struct str){first, sizeof(first)},
                                 (struct str){limit, sizeof(limit)});
    uint32_t groups =
        store_is_shared(queue->options.store) ? group_set_count(queue->options.groups) : KEY_GROUPS;
    return bytes / RECORD_STORED * groups / KEY_GROUPS;
}

bool time_queue_restored(struct time_queue *queue, int64_t watermark)
{
    queue->gone_before = MAX(queue->gone_before, watermark);
    if (!store_has_database(queue->options.store) || queue->group_first >= queue->group_limit)
        return true;
    /* One seek for each bucket that the database has. */
    int64_t index = watermark == TIME_MIN ? INT64_MIN : queue_bucket_index(queue, watermark);
    char limit[STREAM_KEY_BYTES];
    stream_key(queue, limit, INT64_MAX, UINT16_MAX, UINT16_MAX);
    for (;; index++) { /* a bucket's index is far below INT64_MAX: it is a time divided by a width */
        char first[STREAM_KEY_BYTES], found[QUEUE_KEY_BYTES] = {0};
        stream_key(queue, first, index, 0, 0);
        if (!store_scan(queue->options.store, (struct str){first, sizeof(first)},
                        (struct str){limit, sizeof(limit)}, first_key, found))
            return false;
        if (memcmp(found, limit, 3) != 0)
            return true;
        index = (int64_t)(get_be(found + 3, 8) ^ UINT64_C(1) << 63);
        struct queue_bucket *bucket = queue_bucket(queue, index);
        if (!bucket->is_stored)
            bucket->records += stored_records(queue, index);
        bucket->is_stored = true;
    }
}
