#include "connectors/kafka/recording_feed.h"

#include "core/mem.h"

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
    struct kafka_mark check; /* the checkpoint's mark of its last record; offset -1: nothing to compare */
    bool is_failed;          /* a diagnostic was added: the feed reads no more */

    int64_t next;               /* offset of the first record behind the last batch */
    uint64_t records;           /* records of the partition before `next` */
    struct kafka_intake intake; /* the batch being filled */
};

struct recording_feed *recording_feed_new(const struct recording_partition *partition,
                                          const struct kafka_meta *meta, struct payload *payload,
                                          struct diag_list *diags, pthread_mutex_t *mutex)
{
    struct recording_feed *feed = mem_calloc(1, sizeof(*feed));
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
    kafka_intake_free(&feed->intake);
    free(feed);
}

struct source_position recording_feed_position(const struct recording_feed *feed)
{
    return (struct source_position){
        .a = batch_share_put(feed->intake.carried), .b = feed->next, .record = feed->records};
}

int64_t recording_feed_done_bytes(const struct recording_feed *feed)
{
    return recording_reader_done_bytes(feed->reader);
}

/* --- Marks and positions --- */

static bool fail_other(struct recording_feed *feed, const char *what)
{
    pthread_mutex_lock(feed->mutex);
    struct diag *d = diag_error(feed->diags, DIAG_NO_TOPIC, no_span,
                                "the recording of `%s` is not the recording that this job has read: %s",
                                feed->partition->name, what);
    diag_hint(feed->diags, d,
              "name the recording that the job was started with, or start the job anew with --fresh");
    pthread_mutex_unlock(feed->mutex);
    feed->is_failed = true;
    return false;
}

bool recording_feed_mark_check(struct recording_feed *feed, struct str mark)
{
    if (mark.length != sizeof(feed->check))
        return mark.length == 0 ||
               fail_other(feed, "the checkpoint's mark of the last record read is damaged");
    memcpy(&feed->check, mark.data, sizeof(feed->check));
    marks_add(&feed->marks, &feed->check);
    return true;
}

size_t recording_feed_mark(struct recording_feed *feed, const struct source_position *position,
                           char out[SOURCE_MARK_BYTES])
{
    return marks_before(&feed->marks, position->b, out);
}

/* Compares the record at the offset of the checkpoint's mark with that mark. Returns false after a
 * diagnostic. */
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
           fail_other(feed, "the last record before the checkpoint's position has changed");
}

bool recording_feed_seek(struct recording_feed *feed, const struct source_position *position)
{
    bool is_there = feed->check.offset >= feed->partition->first && feed->check.offset < position->b;
    feed->is_failed = (is_there && !check_before(feed)) || !recording_reader_seek(feed->reader, position->b);
    feed->check.offset = -1;
    feed->next = position->b;
    feed->records = position->record;
    kafka_intake_clear(&feed->intake);
    feed->intake.carried = batch_share_of(position);
    return !feed->is_failed;
}

/* --- Batches --- */

/* Moves the records of the intake into *raw. is_cut: the batch is complete; false: the recording ended in the
 * middle of the batch. */
static void make_batch(struct recording_feed *feed, struct raw_batch *raw, bool is_cut)
{
    const struct recording_partition *of = feed->partition;
    const struct kafka_begin begin = {of->name, of->topic, of->id, feed->next, feed->records};
    struct kafka_mark mark = kafka_intake_give(&feed->intake, &begin, is_cut, raw);
    marks_add(&feed->marks, &mark);
    feed->next = raw->next.b;
    feed->records = raw->next.record;
}

/* Adds a diagnostic: the record's schema cannot be had. */
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

/* Whether the record can be decoded: READY, or its schema is being fetched (LATER) or cannot be had (FAILED).
 * Records without a schema are READY. */
static enum payload_status schema_of(const struct recording_feed *feed, const struct recorded *record)
{
    struct str value = record->record.value;
    if (feed->payload == NULL || value.data == NULL || value.length > SOURCE_RECORD_BYTES_MAX)
        return PAYLOAD_READY;
    return payload_ready(feed->payload, value.data, value.length);
}

enum read_status recording_feed_read(struct recording_feed *feed, struct raw_batch *raw)
{
    struct recorded record;
    bool is_cut = true;
    if (feed->is_failed)
        return READ_ERROR;
    while (!kafka_intake_is_full(&feed->intake)) {
        enum recorded_status status = recording_reader_next(feed->reader, &record);
        if (status == RECORDED_ERROR)
            return READ_ERROR;
        is_cut = status != RECORDED_END;
        if (!is_cut)
            break;
        if (!kafka_intake_takes(&feed->intake, record.record.value.length)) {
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
        kafka_intake_add_recorded(&feed->intake, feed->meta, &record);
    }
    if (feed->intake.count > 0) {
        make_batch(feed, raw, is_cut);
        return READ_BATCH;
    }
    raw->next.b = feed->next = feed->partition->next;
    return READ_END;
}
