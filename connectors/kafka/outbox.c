#include "connectors/kafka/outbox.h"

#include "core/mem.h"
#include "core/wait.h"

#include <stdlib.h>

enum { PIECE_BYTES = 4 << 20 };

/* --- The queue of epochs --- */

void outbox_room_init(struct outbox_room *room, uint64_t budget_bytes, _Atomic bool *is_full,
                      void (*wake)(void *engine), void *engine)
{
    *room = (struct outbox_room){
        .budget_bytes = budget_bytes, .is_full = is_full, .wake = wake, .engine = engine};
    pthread_mutex_init(&room->mutex, NULL);
}

void outbox_room_free(struct outbox_room *room)
{
    pthread_mutex_destroy(&room->mutex);
}

void outbox_init(struct outbox *outbox, struct outbox_room *room, uint8_t shard)
{
    *outbox = (struct outbox){.room = room, .shard = shard};
    pthread_mutex_init(&outbox->mutex, NULL);
    pthread_cond_init(&outbox->condition, NULL);
}

static void remove_first(struct outbox *outbox)
{
    struct outbox_epoch *epoch = outbox->closed;
    leat_assert(epoch->holds == 0);
    outbox->closed = epoch->following;
    if (outbox->closed == NULL)
        outbox->closed_last = NULL;
    chunks_free(epoch->chunks);
    free(epoch);
}

void outbox_clear(struct outbox *outbox)
{
    while (outbox->closed != NULL)
        remove_first(outbox);
    outbox->closed_bytes = outbox->held_records = 0;
}

void outbox_free(struct outbox *outbox)
{
    outbox_clear(outbox);
    chunks_free(outbox->open.chunks);
    pthread_cond_destroy(&outbox->condition);
    pthread_mutex_destroy(&outbox->mutex);
}

/* Call under the mutex. */
static void add_closed(struct outbox *outbox, struct outbox_epoch *epoch)
{
    if (outbox->closed_last == NULL)
        outbox->closed = epoch;
    else
        outbox->closed_last->following = epoch;
    outbox->closed_last = epoch;
    outbox->closed_bytes += epoch->bytes;
    outbox->held_records += epoch->records;
}

/* Call under the mutex. Removes the leading epochs that are out and that no snapshot reads. */
static void remove_out(struct outbox *outbox)
{
    while (outbox->closed != NULL && outbox->closed->is_out && outbox->closed->holds == 0)
        remove_first(outbox);
}

/* Call under the outbox's mutex. Tells the room how much the outbox holds, and sets or clears is_full. Returns
 * whether there is room again: then the caller wakes the engine after unlocking. */
static bool tell_room(struct outbox *outbox)
{
    struct outbox_room *room = outbox->room;
    uint64_t held = outbox->open_bytes + outbox->closed_bytes;
    pthread_mutex_lock(&room->mutex);
    room->used_bytes += held - outbox->counted_bytes; /* also where it is less: modulo 2^64 */
    outbox->counted_bytes = held;
    bool was_full = atomic_load_explicit(room->is_full, memory_order_relaxed), is_full = was_full;
    if (room->used_bytes >= room->budget_bytes)
        is_full = true;
    if (room->has_failed || room->used_bytes < room->budget_bytes / 2)
        is_full = false;
    if (is_full != was_full)
        atomic_store_explicit(room->is_full, is_full, memory_order_release);
    pthread_mutex_unlock(&room->mutex);
    return was_full && !is_full;
}

static void wake_engine(const struct outbox_room *room)
{
    if (room->wake != NULL)
        room->wake(room->engine);
}

void outbox_append(struct outbox *outbox, uint64_t micro_batch, uint64_t index,
                   const struct kafka_record *record)
{
    struct outbox_epoch *open = &outbox->open;
    if (open->records == 0) {
        open->first = micro_batch;
        open->base = index;
    }
    open->bytes += chunk_append(&open->chunks, &open->last, record);
    open->records++;
}

void outbox_account(struct outbox *outbox)
{
    if (outbox->open_bytes == outbox->open.bytes) /* both are written by the lane only */
        return;
    pthread_mutex_lock(&outbox->mutex);
    outbox->open_bytes = outbox->open.bytes;
    (void)tell_room(outbox);
    pthread_mutex_unlock(&outbox->mutex);
}

void outbox_close(struct outbox *outbox, uint64_t epoch, uint64_t next, struct layout layout)
{
    struct outbox_epoch *open = &outbox->open;
    pthread_mutex_lock(&outbox->mutex);
    if (open->records > 0) {
        leat_assert(open->first < next);
        struct outbox_epoch *closed = mem_alloc(sizeof(*closed));
        chunk_trim(&open->chunks, &open->last); /* thousands of small epochs may wait for brokers */
        *closed = *open;
        closed->epoch = epoch;
        closed->next = next;
        closed->layout = layout;
        closed->position = (struct chunk_cursor){closed->chunks, 0};
        add_closed(outbox, closed);
    }
    *open = (struct outbox_epoch){0};
    outbox->open_bytes = 0;
    pthread_mutex_unlock(&outbox->mutex);
}

void outbox_committed(struct outbox *outbox, uint64_t epoch)
{
    pthread_mutex_lock(&outbox->mutex);
    outbox->committed = MAX(outbox->committed, epoch);
    pthread_cond_broadcast(&outbox->condition);
    pthread_mutex_unlock(&outbox->mutex);
}

/* The first epoch that is not out. */
static struct outbox_epoch *first_held(struct outbox *outbox)
{
    struct outbox_epoch *epoch = outbox->closed;
    while (epoch != NULL && epoch->is_out)
        epoch = epoch->following;
    return epoch;
}

struct outbox_figures outbox_figures(struct outbox *outbox)
{
    pthread_mutex_lock(&outbox->mutex);
    struct outbox_figures figures = {.out_records = outbox->out_records,
                                     .out_bytes = outbox->out_bytes,
                                     .records = outbox->held_records,
                                     .bytes = outbox->open_bytes + outbox->closed_bytes};
    for (const struct outbox_epoch *epoch = outbox->closed; epoch != NULL; epoch = epoch->following)
        figures.epochs += !epoch->is_out;
    pthread_mutex_unlock(&outbox->mutex);
    return figures;
}

bool outbox_is_sent(struct outbox *outbox)
{
    pthread_mutex_lock(&outbox->mutex);
    const struct outbox_epoch *epoch = first_held(outbox);
    bool is_sent = epoch == NULL || epoch->epoch > outbox->committed;
    pthread_mutex_unlock(&outbox->mutex);
    return is_sent;
}

void outbox_fail(struct outbox *outbox)
{
    pthread_mutex_lock(&outbox->mutex);
    pthread_mutex_lock(&outbox->room->mutex);
    outbox->room->has_failed = true;
    pthread_mutex_unlock(&outbox->room->mutex);
    (void)tell_room(outbox);
    pthread_cond_broadcast(&outbox->condition);
    pthread_mutex_unlock(&outbox->mutex);
    wake_engine(outbox->room);
}

/* --- Snapshots --- */

struct held_record {
    uint8_t type, shard, unused[6];
    uint64_t first; /* `first` of the first epoch still held; UINT64_MAX: none */
};

struct epoch_record {
    uint8_t type, shard, unused[6];
    uint64_t epoch, first, next, base, records;
    struct layout layout; /* missing in checkpoints of format 9 */
};
enum { EPOCH_RECORD_BYTES_9 = offsetof(struct epoch_record, layout) };

struct chunk_record {
    uint8_t type, unused[3];
    uint32_t bytes, records, padding;
    /* followed by the chunk's first bytes; a chunk longer than a piece continues in records of type MORE */
};

struct held_epochs {
    struct outbox *outbox;
    struct outbox_epoch **epochs;
    uint32_t count;
};

static bool put_record(struct snapshot_writer *writer, const void *head, size_t head_bytes, const void *data,
                       size_t bytes)
{
    struct byte_buffer record = {0};
    buffer_reserve(&record, head_bytes + bytes);
    buffer_append(&record, head, head_bytes);
    buffer_append(&record, data, bytes);
    bool is_good = snapshot_put(writer, SNAPSHOT_GLOBAL, record.data, record.length);
    buffer_free(&record);
    return is_good;
}

static bool write_chunk(struct snapshot_writer *writer, const struct chunk *chunk)
{
    enum { ROOM = PIECE_BYTES - 64 };
    struct chunk_record head = {.type = OUTBOX_RECORD_CHUNK, .bytes = chunk->used, .records = chunk->records};
    uint32_t at = MIN(chunk->used, (uint32_t)ROOM);
    bool is_good = put_record(writer, &head, sizeof(head), chunk->data, at);
    const char more = OUTBOX_RECORD_MORE;
    while (is_good && at < chunk->used) {
        uint32_t bytes = MIN(chunk->used - at, (uint32_t)ROOM);
        is_good = put_record(writer, &more, 1, chunk->data + at, bytes);
        at += bytes;
    }
    return is_good;
}

static bool write_epochs(void *argument, struct snapshot_writer *writer)
{
    const struct held_epochs *held = argument;
    bool is_good = true;
    for (uint32_t i = 0; is_good && i < held->count; i++) {
        const struct outbox_epoch *epoch = held->epochs[i];
        struct epoch_record record = {.type = OUTBOX_RECORD_EPOCH,
                                      .shard = held->outbox->shard,
                                      .epoch = epoch->epoch,
                                      .first = epoch->first,
                                      .next = epoch->next,
                                      .base = epoch->base,
                                      .records = epoch->records,
                                      .layout = epoch->layout};
        is_good =
            failpoint("kafka.outbox") == 0 && snapshot_put(writer, SNAPSHOT_GLOBAL, &record, sizeof(record));
        for (const struct chunk *chunk = epoch->chunks; is_good && chunk != NULL; chunk = chunk->following)
            is_good = write_chunk(writer, chunk);
    }
    return is_good;
}

static void release_epochs(void *argument, bool is_published)
{
    struct held_epochs *held = argument;
    pthread_mutex_lock(&held->outbox->mutex);
    for (uint32_t i = 0; i < held->count; i++) {
        held->epochs[i]->holds--;
        held->epochs[i]->is_saved |= is_published;
    }
    remove_out(held->outbox);
    pthread_mutex_unlock(&held->outbox->mutex);
    free(held->epochs);
    free(held);
}

bool outbox_snapshot(struct outbox *outbox, struct snapshot_writer *writer)
{
    bool is_base = snapshot_is_base(writer);
    struct held_record record = {.type = OUTBOX_RECORD_HELD, .shard = outbox->shard, .first = UINT64_MAX};
    struct held_epochs *held = mem_calloc(1, sizeof(*held));
    held->outbox = outbox;
    pthread_mutex_lock(&outbox->mutex);
    struct outbox_epoch *first = first_held(outbox);
    uint32_t count = 0;
    for (struct outbox_epoch *epoch = first; epoch != NULL; epoch = epoch->following)
        count += is_base || !epoch->is_saved;
    held->epochs = mem_alloc(MAX(count, 1) * sizeof(*held->epochs));
    for (struct outbox_epoch *epoch = first; epoch != NULL; epoch = epoch->following)
        if (is_base || !epoch->is_saved) {
            epoch->holds++;
            held->epochs[held->count++] = epoch;
        }
    if (first != NULL)
        record.first = first->first;
    pthread_mutex_unlock(&outbox->mutex);
    bool is_good = is_base || snapshot_put(writer, SNAPSHOT_GLOBAL, &record, sizeof(record));
    if (held->count > 0) {
        snapshot_defer(writer, write_epochs, release_epochs, held);
    } else {
        free(held->epochs);
        free(held);
    }
    return is_good;
}

/* --- Restoring: one thread --- */

/* Removes the epochs before the first one that the delta still holds: they were out before the delta. */
static bool restore_held(struct outbox *outbox, struct str data)
{
    struct held_record record;
    if (data.length != sizeof(record))
        return false;
    memcpy(&record, data.data, sizeof(record));
    while (outbox->closed != NULL && outbox->closed->first < record.first) {
        outbox->held_records -= outbox->closed->records;
        remove_first(outbox);
    }
    return outbox->closed == NULL || outbox->closed->first == record.first;
}

static bool restore_epoch(struct outbox *outbox, struct str data)
{
    struct epoch_record record = {0};
    if (data.length != sizeof(record) && data.length != EPOCH_RECORD_BYTES_9)
        return false;
    memcpy(&record, data.data, data.length);
    if (record.layout.partitions > INT32_MAX || record.layout.since >= MAX(record.next, 1))
        return false;
    struct outbox_epoch *epoch = mem_calloc(1, sizeof(*epoch));
    *epoch = (struct outbox_epoch){.epoch = record.epoch,
                                   .first = record.first,
                                   .next = record.next,
                                   .base = record.base,
                                   .records = record.records,
                                   .layout = record.layout};
    add_closed(outbox, epoch);
    return true;
}

static bool restore_chunk(struct outbox_epoch *epoch, struct str data)
{
    struct chunk_record head;
    if (data.length < sizeof(head))
        return false;
    memcpy(&head, data.data, sizeof(head));
    size_t bytes = data.length - sizeof(head);
    if (head.bytes < bytes || head.bytes > CHUNK_BYTES_MAX)
        return false;
    struct chunk *chunk = chunk_add(&epoch->chunks, &epoch->last, head.bytes);
    memcpy(chunk->data, data.data + sizeof(head), bytes);
    chunk->used = (uint32_t)bytes;
    chunk->records = head.records;
    return true;
}

static bool restore_more(struct chunk *chunk, struct str data)
{
    size_t bytes = data.length - 1;
    if (chunk == NULL || chunk->capacity - chunk->used < bytes)
        return false;
    memcpy(chunk->data + chunk->used, data.data + 1, bytes);
    chunk->used += (uint32_t)bytes;
    return true;
}

bool outbox_restore(struct outbox *outbox, struct str record)
{
    if (record.length == 0)
        return false;
    if (record.data[0] == OUTBOX_RECORD_HELD)
        return restore_held(outbox, record);
    if (record.data[0] == OUTBOX_RECORD_EPOCH)
        return restore_epoch(outbox, record);
    if (outbox->closed_last == NULL)
        return false;
    if (record.data[0] == OUTBOX_RECORD_CHUNK)
        return restore_chunk(outbox->closed_last, record);
    return record.data[0] == OUTBOX_RECORD_MORE && restore_more(outbox->closed_last->last, record);
}

bool outbox_restored(struct outbox *outbox, bool is_committed)
{
    uint64_t next = 0;
    outbox->closed_bytes = 0;
    for (struct outbox_epoch *epoch = outbox->closed; epoch != NULL; epoch = epoch->following) {
        uint64_t records = 0;
        for (const struct chunk *chunk = epoch->chunks; chunk != NULL; chunk = chunk->following) {
            if (!chunk_is_whole(chunk))
                return false;
            records += chunk->records;
            epoch->bytes += chunk->used;
        }
        if (records == 0 || records != epoch->records || epoch->first < next || epoch->next <= epoch->first ||
            epoch->base > UINT64_MAX / 2)
            return false;
        next = epoch->next;
        epoch->position = (struct chunk_cursor){epoch->chunks, 0};
        outbox->closed_bytes += epoch->bytes;
        if (is_committed)
            outbox->committed = MAX(outbox->committed, epoch->epoch);
    }
    (void)tell_room(outbox);
    return true;
}

/* --- The sender --- */

/* Shortens the part to about `room` bytes, but at least one record. Needs no mutex: records of closed epochs
 * do not change. */
static void cut_part(struct outbox_part *part, uint64_t room)
{
    struct chunk_cursor cursor = part->begin;
    uint64_t bytes = 0, to = part->from;
    while (to < part->to && (to == part->from || bytes < room)) {
        const struct chunk *chunk = cursor.chunk;
        uint32_t before = cursor.offset;
        chunk_next(&cursor);
        bytes += cursor.chunk == chunk ? cursor.offset - before : cursor.offset;
        to++;
    }
    part->to = to;
    part->end = cursor;
    part->bytes = bytes;
}

uint32_t outbox_take(struct outbox *outbox, uint64_t bytes, struct outbox_part *parts, uint32_t room)
{
    uint32_t count = 0;
    uint64_t taken = 0;
    pthread_mutex_lock(&outbox->mutex);
    struct outbox_epoch *epoch = first_held(outbox);
    for (; epoch != NULL && epoch->epoch <= outbox->committed && count < room && taken < bytes;
         epoch = epoch->following) {
        parts[count++] = (struct outbox_part){.epoch = epoch,
                                              .begin = epoch->position,
                                              .from = epoch->sent_records,
                                              .to = epoch->records,
                                              .bytes = epoch->bytes - epoch->sent_bytes};
        taken += parts[count - 1].bytes;
    }
    pthread_mutex_unlock(&outbox->mutex);
    if (taken > bytes)
        cut_part(&parts[count - 1], bytes - MIN(bytes, taken - parts[count - 1].bytes));
    return count;
}

void outbox_wait(struct outbox *outbox, int64_t wait_us)
{
    struct timespec until = wait_until(wait_us);
    pthread_mutex_lock(&outbox->mutex);
    const struct outbox_epoch *epoch = first_held(outbox);
    if (epoch == NULL || epoch->epoch > outbox->committed)
        wait_on(&outbox->condition, &outbox->mutex, &until);
    pthread_mutex_unlock(&outbox->mutex);
}

/* Call under the mutex. */
static void set_out(struct outbox *outbox, struct outbox_epoch *epoch)
{
    epoch->is_out = true;
    outbox->closed_bytes -= epoch->bytes;
    outbox->held_records -= epoch->records;
}

/* Call under the mutex. Says that the part is out. */
static void move_on(struct outbox *outbox, const struct outbox_part *part)
{
    struct outbox_epoch *epoch = part->epoch;
    outbox->out_records += part->to - epoch->sent_records;
    outbox->out_bytes += part->bytes;
    epoch->sent_records = part->to;
    epoch->sent_bytes += part->bytes;
    epoch->position = part->end;
    if (epoch->sent_records == epoch->records)
        set_out(outbox, epoch);
}

/* Call under the mutex after set_out; unlocks it, and wakes those who wait for room. */
static void tell_out(struct outbox *outbox)
{
    remove_out(outbox);
    bool is_free = tell_room(outbox);
    pthread_cond_broadcast(&outbox->condition);
    pthread_mutex_unlock(&outbox->mutex);
    if (is_free)
        wake_engine(outbox->room);
}

void outbox_sent(struct outbox *outbox, const struct outbox_part *parts, uint32_t count)
{
    pthread_mutex_lock(&outbox->mutex);
    for (uint32_t i = 0; i < count; i++) {
        struct outbox_epoch *epoch = parts[i].epoch;
        leat_assert(epoch->sent_records == parts[i].from && parts[i].to <= epoch->records);
        move_on(outbox, &parts[i]);
    }
    tell_out(outbox);
}

/* Call under the mutex. Says that the epoch's records up to `last` are out; both begin with the same
 * micro-batch. Returns NULL, or why they do not fit. */
static const char *skip_epoch(struct outbox *outbox, struct outbox_epoch *epoch,
                              const struct progress_part *last)
{
    uint64_t sent = epoch->base + epoch->sent_records;
    if (last->to < sent)
        return "notes of rows that were sent are missing";
    if (last->to == epoch->base)
        return NULL;
    if (last->next != epoch->next || last->total != epoch->base + epoch->records)
        return "the rows noted as sent are not the rows of the checkpoint";
    struct outbox_part part = {
        .epoch = epoch, .begin = epoch->position, .from = epoch->sent_records, .to = last->to - epoch->base};
    cut_part(&part, UINT64_MAX);
    move_on(outbox, &part);
    return NULL;
}

const char *outbox_skip(struct outbox *outbox, const struct progress_part *last)
{
    const char *why = NULL;
    if (last == NULL)
        return NULL;
    pthread_mutex_lock(&outbox->mutex);
    struct outbox_epoch *epoch = first_held(outbox);
    for (; why == NULL && epoch != NULL && epoch->first < last->first; epoch = epoch->following)
        if (epoch->next <= last->first) {
            outbox->out_records += epoch->records - epoch->sent_records;
            outbox->out_bytes += epoch->bytes - epoch->sent_bytes;
            set_out(outbox, epoch);
        } else
            why = "its last note begins in the middle of an epoch's rows";
    if (why == NULL && epoch != NULL && epoch->first == last->first) {
        why = skip_epoch(outbox, epoch, last);
        epoch = epoch->following;
    }
    /* The records behind a partly sent epoch were made again, and may be cut into other epochs: then this
     * check does not apply. */
    if (why == NULL && epoch != NULL && epoch->first < last->next && epoch->first != last->first &&
        last->to == last->total)
        why = "its last note ends in the middle of an epoch's rows";
    tell_out(outbox);
    return why;
}

struct progress_part outbox_part_progress(const struct outbox_part *part)
{
    const struct outbox_epoch *epoch = part->epoch;
    struct progress_part progress = {.epoch = epoch->epoch,
                                     .first = epoch->first,
                                     .next = epoch->next,
                                     .from = epoch->base + part->from,
                                     .to = epoch->base + part->to,
                                     .total = epoch->base + epoch->records,
                                     .bytes = part->bytes,
                                     .layout = epoch->layout};
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    struct chunk_cursor cursor = part->begin;
    for (uint64_t i = part->from; i < part->to; i++) {
        struct kafka_record record = chunk_next(&cursor);
        record_digest(&state, &record);
    }
    record_digest_end(&state, progress.digest);
    return progress;
}
