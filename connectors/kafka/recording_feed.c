#include "connectors/kafka/recording_feed.h"

#include <stdio.h>
#include <stdlib.h>

static const struct span no_span = {0, 0};

struct recording_feed {
    const struct recording_partition *partition;
    const struct kafka_meta *meta;
    struct payload *payload;
    struct diag_list *diags;
    pthread_mutex_t *mutex;
    struct recording_reader *reader;
    struct kafka_marks marks;
    struct kafka_mark check; /* the checkpoint's mark, until its record was compared; offset -1: none */
    bool is_failed;

    int64_t next;               /* offset where the open batch begins */
    uint64_t records;           /* records before the open batch */
    struct batch_share carried; /* the part of the open batch that was given before a resume */

    /* The open batch. */
    uint32_t count;
    struct byte_buffer data, heap, texts; /* texts: for each record 1 + headers_count struct text_ref */
    struct arena originals;               /* if meta->keeps_originals: keys and headers */
    struct str keys[BATCH_ROWS], headers[BATCH_ROWS];
    uint32_t lengths[BATCH_ROWS];
    int64_t offsets[BATCH_ROWS], times[BATCH_ROWS];
    uint8_t flags[BATCH_ROWS];
    bool has_flags;
    struct kafka_mark last;
};

struct recording_feed *recording_feed_new(const struct recording_partition *partition,
                                          const struct kafka_meta *meta, struct payload *payload,
                                          struct diag_list *diags, pthread_mutex_t *mutex)
{
    struct recording_feed *feed = calloc(1, sizeof(*feed));
    leat_assert(feed != NULL);
    feed->partition = partition;
    feed->meta = meta;
    feed->payload = payload;
    feed->diags = diags;
    feed->mutex = mutex;
    feed->reader = recording_reader_new(partition, diags, mutex);
    feed->check.offset = -1;
    feed->next = partition->first;
    marks_init(&feed->marks);
    return feed;
}

void recording_feed_free(struct recording_feed *feed)
{
    if (feed == NULL)
        return;
    recording_reader_free(feed->reader);
    marks_free(&feed->marks);
    buffer_free(&feed->data);
    buffer_free(&feed->heap);
    buffer_free(&feed->texts);
    arena_free(&feed->originals);
    free(feed);
}

struct source_position recording_feed_position(const struct recording_feed *feed)
{
    return (struct source_position){
        .a = batch_share_put(feed->carried), .b = feed->next, .record = feed->records};
}

int64_t recording_feed_done_bytes(const struct recording_feed *feed)
{
    return recording_reader_done_bytes(feed->reader);
}

/* --- Where it goes on --- */

static bool fail_other(struct recording_feed *feed, const char *what)
{
    pthread_mutex_lock(feed->mutex);
    struct diag *d =
        diag_error(feed->diags, DIAG_E0611, no_span,
                   "the recording of `%s` is not what this job has read: %s", feed->partition->name, what);
    diag_hint(feed->diags, d, "give it the recording that it was started with, or start anew with --fresh");
    pthread_mutex_unlock(feed->mutex);
    feed->is_failed = true;
    return false;
}

bool recording_feed_mark_check(struct recording_feed *feed, struct str mark)
{
    if (mark.length != sizeof(feed->check))
        return mark.length == 0 || fail_other(feed, "the checkpoint's mark of it is damaged");
    memcpy(&feed->check, mark.data, sizeof(feed->check));
    marks_add(&feed->marks, &feed->check);
    return true;
}

size_t recording_feed_mark(struct recording_feed *feed, const struct source_position *position,
                           char out[SOURCE_MARK_BYTES])
{
    return marks_before(&feed->marks, position->b, out);
}

/* Compares the record before the position with the checkpoint's mark. Returns false after a diagnostic. */
static bool check_before(struct recording_feed *feed)
{
    struct recorded record;
    const struct kafka_mark check = feed->check;
    if (!recording_reader_seek(feed->reader, check.offset))
        return false;
    enum recorded_status status = recording_reader_next(feed->reader, &record);
    if (status == RECORDED_ERROR)
        return false;
    struct kafka_mark found = status == RECORDED ? mark_of(record.offset, record.time_ms, record.record.value)
                                                 : (struct kafka_mark){0};
    return (status == RECORDED && mark_is(&found, &check)) ||
           fail_other(feed, "before the checkpoint there is another record than there was");
}

bool recording_feed_seek(struct recording_feed *feed, const struct source_position *position)
{
    bool is_there = feed->check.offset >= feed->partition->first && feed->check.offset < position->b;
    feed->is_failed = (is_there && !check_before(feed)) || !recording_reader_seek(feed->reader, position->b);
    feed->check.offset = -1;
    feed->next = position->b;
    feed->records = position->record;
    feed->carried = batch_share_of(position);
    return !feed->is_failed;
}

/* --- Batches --- */

static void put_text(struct recording_feed *feed, struct str text)
{
    struct text_ref ref = {(uint32_t)feed->heap.length,
                           text.data == NULL ? KAFKA_TEXT_NULL : (uint32_t)text.length};
    buffer_append(&feed->texts, &ref, sizeof(ref));
    buffer_append(&feed->heap, text.data, text.length);
}

/* Appends key and headers of a record. Of several headers with one name the last counts, as live. */
static void put_texts(struct recording_feed *feed, const struct kafka_record *record)
{
    const struct kafka_meta *meta = feed->meta;
    struct str found[KAFKA_HEADERS_MAX] = {{NULL, 0}}, rest = record->headers, name, value;
    if (meta->key.name.length == 0 && meta->headers_count == 0)
        return;
    while (meta->headers_count > 0 && record_take_header(&rest, &name, &value))
        for (uint32_t i = 0; i < meta->headers_count; i++)
            if (str_is(name, meta->header_names[i]))
                found[i] = value;
    put_text(feed, record->key);
    for (uint32_t i = 0; i < meta->headers_count; i++)
        put_text(feed, found[i]);
}

static void put_record(struct recording_feed *feed, const struct recorded *recorded)
{
    uint32_t row = feed->count++;
    struct str value = recorded->record.value;
    feed->offsets[row] = recorded->offset;
    feed->times[row] = recorded->time_ms <= 0 ? 0 : recorded->time_ms * 1000;
    feed->lengths[row] = (uint32_t)value.length;
    feed->flags[row] = value.data == NULL                       ? KAFKA_TOMBSTONE
                       : value.length > SOURCE_RECORD_BYTES_MAX ? KAFKA_TOO_LONG
                                                                : 0;
    feed->has_flags |= feed->flags[row] != 0;
    buffer_append(&feed->data, value.data, value.length);
    buffer_append(&feed->data, "\n", 1); /* as live: decoders that scan for a line end stop there */
    put_texts(feed, &recorded->record);
    if (feed->meta->keeps_originals) {
        struct str key = recorded->record.key;
        feed->keys[row] = key.data == NULL ? key : arena_str(&feed->originals, key);
        feed->headers[row] = arena_str(&feed->originals, recorded->record.headers);
    }
    feed->last = mark_of(recorded->offset, recorded->time_ms, value);
}

static void keep_originals(struct recording_feed *feed, struct kafka_frame *frame, struct arena *arena)
{
    for (uint32_t i = 0; i < feed->count; i++)
        kafka_frame_keep(frame, i, feed->count, feed->keys[i], feed->headers[i], arena);
    arena_reset(&feed->originals);
}

/* Makes a raw batch of the collected records and begins the next one. is_cut: the batch is complete; false:
 * the recording ended within it. */
static void make_batch(struct recording_feed *feed, struct raw_batch *raw, bool is_cut)
{
    struct arena *arena = &raw->arena;
    uint32_t count = feed->count;
    struct kafka_frame *frame = arena_new(arena, struct kafka_frame);
    *frame = (struct kafka_frame){.topic = feed->partition->topic,
                                  .partition = feed->partition->id,
                                  .times = arena_copy(arena, feed->times, count * sizeof(int64_t)),
                                  .offsets = arena_copy(arena, feed->offsets, count * sizeof(int64_t))};
    if (feed->has_flags)
        frame->flags = arena_copy(arena, feed->flags, count);
    if (feed->texts.length > 0) {
        char *heap = arena_alloc(arena, feed->heap.length + RAW_PADDING);
        if (feed->heap.length > 0)
            memcpy(heap, feed->heap.data, feed->heap.length);
        frame->texts = arena_copy(arena, feed->texts.data, feed->texts.length);
        frame->heap = heap;
        frame->heap_bytes = feed->heap.length;
    }
    raw->data = arena_alloc(arena, feed->data.length + RAW_PADDING);
    memcpy(raw->data, feed->data.data, feed->data.length);
    raw->data_bytes = feed->data.length;
    raw->records = arena_alloc(arena, count * sizeof(*raw->records));
    for (uint32_t i = 0, at = 0; i < count; at += feed->lengths[i++] + 1)
        raw->records[i] = (struct raw_record){at, feed->lengths[i]};
    raw->count = count;
    raw->position = recording_feed_position(feed);
    raw->next = (struct source_position){.b = feed->last.offset + 1, .record = feed->records + count};
    feed->carried = is_cut ? (struct batch_share){0}
                           : (struct batch_share){feed->carried.records + count,
                                                  feed->carried.bytes + feed->data.length - count};
    raw->next.a = batch_share_put(feed->carried);
    raw->path = feed->partition->name;
    raw->first_line = raw->first_offset = -1;
    raw->header = (struct str){"", 0};
    raw->extra = frame;
    raw->offsets = frame->offsets;
    if (feed->meta->keeps_originals)
        keep_originals(feed, frame, arena);
    marks_add(&feed->marks, &feed->last);
    feed->next = raw->next.b;
    feed->records += count;
    feed->count = 0;
    feed->has_flags = false;
    buffer_clear(&feed->data);
    buffer_clear(&feed->heap);
    buffer_clear(&feed->texts);
}

static enum read_status fail_schema(struct recording_feed *feed, const struct recorded *record)
{
    char place[512];
    snprintf(place, sizeof(place), "%s, offset %lld", feed->partition->name, (long long)record->offset);
    pthread_mutex_lock(feed->mutex);
    payload_report(feed->payload, record->record.value.data, record->record.value.length, place, feed->diags);
    pthread_mutex_unlock(feed->mutex);
    feed->is_failed = true;
    return READ_ERROR;
}

/* Whether the record's schema is available. */
static enum payload_status schema_of(const struct recording_feed *feed, const struct recorded *record)
{
    struct str value = record->record.value;
    if (feed->payload == NULL || value.data == NULL || value.length > SOURCE_RECORD_BYTES_MAX)
        return PAYLOAD_READY;
    return payload_ready(feed->payload, value.data, value.length);
}

/* Whether the record still belongs to the open batch. */
static bool fits(const struct recording_feed *feed, const struct recorded *record)
{
    size_t bytes = feed->data.length - feed->count + feed->carried.bytes;
    return feed->count + feed->carried.records == 0 ||
           bytes + record->record.value.length <= SOURCE_BATCH_BYTES;
}

enum read_status recording_feed_read(struct recording_feed *feed, struct raw_batch *raw)
{
    struct recorded record;
    bool is_cut = true;
    if (feed->is_failed)
        return READ_ERROR;
    while (feed->count + feed->carried.records < BATCH_ROWS) {
        enum recorded_status status = recording_reader_next(feed->reader, &record);
        if (status == RECORDED_ERROR)
            return READ_ERROR;
        is_cut = status != RECORDED_END;
        if (!is_cut)
            break;
        if (!fits(feed, &record) && feed->count == 0) /* the part given before was a whole batch */
            feed->carried = (struct batch_share){0};
        if (!fits(feed, &record)) {
            recording_reader_back(feed->reader);
            break;
        }
        enum payload_status schema = schema_of(feed, &record);
        if (schema == PAYLOAD_FAILED)
            return fail_schema(feed, &record);
        if (schema != PAYLOAD_READY) {
            recording_reader_back(feed->reader);
            return READ_LATER;
        }
        put_record(feed, &record);
    }
    if (feed->count > 0) {
        make_batch(feed, raw, is_cut);
        return READ_BATCH;
    }
    raw->next.b = feed->next = feed->partition->next;
    return READ_END;
}
