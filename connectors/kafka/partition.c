#include "connectors/kafka/partition.h"

#include "core/os.h"

#include <stdio.h>
#include <stdlib.h>

enum { NUDGE_EVERY_US = 2000, ASK_MS = 2000 };

static const struct span no_span = {0, 0};

struct kafka_partition *kafka_partition_new(struct kafka_shared *shared, rd_kafka_topic_t *handle, int32_t id)
{
    struct kafka_partition *p = calloc(1, sizeof(*p));
    leat_assert(p != NULL);
    p->shared = shared;
    p->handle = handle;
    p->topic = rd_kafka_topic_name(handle);
    p->id = id;
    int length = asprintf(&p->name, "%s/%d", p->topic, (int)id);
    leat_assert(length > 0);
    p->pending = calloc(BATCH_ROWS, sizeof(rd_kafka_message_t *));
    leat_assert(p->pending != NULL);
    p->end = INT64_MAX;
    p->eof = p->check.offset = -1;
    p->time_us = INT64_MIN;
    p->log_end = -1;
    marks_init(&p->marks);
    return p;
}

/* No more is fetched; what lies in the queue is given back. */
static void stop(struct kafka_partition *p)
{
    if (p->queue == NULL)
        return;
    for (uint32_t i = 0; i < p->pending_count; i++)
        rd_kafka_message_destroy(p->pending[i]);
    p->pending_count = 0;
    rd_kafka_queue_cb_event_enable(p->queue, NULL, NULL);
    rd_kafka_consume_stop(p->handle, p->id);
    rd_kafka_queue_destroy(p->queue);
    p->queue = NULL;
}

void kafka_partition_free(struct kafka_partition *p)
{
    if (p == NULL)
        return;
    stop(p);
    marks_free(&p->marks);
    free(p->pending);
    free(p->name);
    free(p);
}

/* Behind lock_diags and a diagnostic. */
static bool fail(struct kafka_partition *p)
{
    p->is_failed = true;
    pthread_mutex_unlock(&p->shared->mutex);
    return false;
}

/* The source's diagnostics, until fail(). */
static struct diag_list *lock_diags(struct kafka_partition *p)
{
    pthread_mutex_lock(&p->shared->mutex);
    return p->shared->source->diags;
}

static bool fail_gone(struct kafka_partition *p, int64_t offset, int64_t low)
{
    char oldest[64] = "";
    struct diag_list *diags = lock_diags(p);
    if (low >= 0)
        snprintf(oldest, sizeof(oldest), ": the oldest is now %lld", (long long)low);
    struct diag *d =
        diag_error(diags, DIAG_E0612, no_span, "the records of `%s` from offset %lld on are gone%s", p->name,
                   (long long)offset, oldest);
    diag_hint(
        diags, d,
        "the topic's retention has deleted what this job had not read; start anew with --fresh (state and "
        "models begin empty, `start:` says where), and give the topic a longer retention");
    return fail(p);
}

static bool fail_other_topic(struct kafka_partition *p, const char *what)
{
    struct diag_list *diags = lock_diags(p);
    struct diag *d =
        diag_error(diags, DIAG_E0611, no_span, "`%s` is not what this job has read: %s", p->name, what);
    diag_hint(
        diags, d,
        "the topic was deleted and made again, or its end was cut off; if that is meant, start anew with "
        "--fresh (state and models begin empty)");
    return fail(p);
}

/* --- Where it goes on --- */

bool kafka_partition_seek(struct kafka_partition *p, const struct source_position *position)
{
    char what[160];
    leat_assert(p->queue == NULL);
    if (position->b < p->low)
        return fail_gone(p, position->b, p->low);
    if (position->b > p->high) {
        snprintf(what, sizeof(what), "it ends at offset %lld, and the checkpoint was taken at %lld",
                 (long long)p->high, (long long)position->b);
        return fail_other_topic(p, what);
    }
    if (p->check.offset >= position->b || p->check.offset < p->low)
        p->check.offset = -1; /* it has been deleted in its turn: nothing to compare */
    p->first = p->next = position->b;
    p->records = position->record;
    return true;
}

size_t kafka_partition_mark(struct kafka_partition *p, const struct source_position *position,
                            char out[SOURCE_MARK_BYTES])
{
    return marks_before(&p->marks, position->b, out);
}

/* The record itself is compared when reading begins there: see check_before. */
bool kafka_partition_mark_check(struct kafka_partition *p, struct str mark)
{
    if (mark.length != sizeof(p->check))
        return mark.length == 0 || fail_other_topic(p, "the checkpoint's mark of it is damaged");
    memcpy(&p->check, mark.data, sizeof(p->check));
    marks_add(&p->marks, &p->check);
    return true;
}

static struct kafka_mark mark_of_message(const rd_kafka_message_t *message)
{
    rd_kafka_timestamp_type_t type;
    return mark_of(message->offset, rd_kafka_message_timestamp(message, &type),
                   (struct str){message->payload, message->len});
}

/* A record before the place where reading begins: there to be compared. A compacted topic may have lost it.
 */
static bool check_before(struct kafka_partition *p, const rd_kafka_message_t *message)
{
    struct kafka_mark found = mark_of_message(message);
    bool is_it = found.offset == p->check.offset;
    bool is_same = found.time == p->check.time && found.digest == p->check.digest;
    char what[160];
    if (!is_it || is_same)
        return true;
    snprintf(what, sizeof(what),
             "at offset %lld, before the checkpoint, there is another record than there was",
             (long long)found.offset);
    return fail_other_topic(p, what);
}

/* --- What librdkafka tells --- */

static void on_event(rd_kafka_t *client LEAT_UNUSED, void *argument)
{
    const struct source *source = ((struct kafka_partition *)argument)->shared->source;
    if (source->wake != NULL)
        source->wake(source->engine);
}

static bool start(struct kafka_partition *p)
{
    int64_t offset = p->check.offset >= 0 ? p->check.offset : p->next;
    if (rd_kafka_consume_start(p->handle, p->id, offset) != 0) {
        kafka_errors_report(p->shared->errors, rd_kafka_last_error(), lock_diags(p), "read `%s`", p->name);
        return fail(p);
    }
    p->queue = rd_kafka_queue_get_partition(p->shared->client, p->topic, p->id);
    leat_assert(p->queue != NULL);
    rd_kafka_queue_cb_event_enable(p->queue, on_event, p);
    return true;
}

/* Not a record. Errors that pass by themselves (a broker that goes, a leader that moves) are librdkafka's to
 * mend; what it may not do is to go on somewhere else. */
static bool take_event(struct kafka_partition *p, const rd_kafka_message_t *message)
{
    int64_t low = -1, high = -1;
    switch ((int)message->err) {
    case RD_KAFKA_RESP_ERR__PARTITION_EOF: p->eof = message->offset; return true;
    case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
    case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
        if (rd_kafka_query_watermark_offsets(p->shared->client, p->topic, p->id, &low, &high, ASK_MS) !=
            RD_KAFKA_RESP_ERR_NO_ERROR)
            low = high = -1;
        return low > p->next || low < 0
                   ? fail_gone(p, p->next, low)
                   : fail_other_topic(p, "it ends before the place where reading goes on");
    case RD_KAFKA_RESP_ERR__BAD_MSG:
    case RD_KAFKA_RESP_ERR__BAD_COMPRESSION:
    case RD_KAFKA_RESP_ERR_INVALID_MSG: {
        struct diag_list *diags = lock_diags(p);
        struct diag *d =
            diag_error(diags, DIAG_E0612, no_span, "the records of `%s` at offset %lld are damaged", p->name,
                       (long long)message->offset);
        diag_cause(diags, d, "%s", rd_kafka_message_errstr(message));
        diag_hint(diags, d, "is a replica of the partition whole? Nothing after them was read");
        return fail(p);
    }
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED: {
        struct diag_list *diags = lock_diags(p);
        struct diag *d = diag_error(diags, DIAG_E0610, no_span, "cannot read `%s`: no right to", p->name);
        diag_hint(diags, d, "the user of `security` needs the rights Read and Describe on the topic");
        return fail(p);
    }
    default: return true;
    }
}

/* --- Reading --- */

static size_t payload_bytes(const rd_kafka_message_t *message)
{
    return MIN(message->len, SOURCE_RECORD_BYTES_MAX + 1);
}

/* How many records the rate allows now, at most `wanted`. */
static uint32_t take_allowance(struct kafka_shared *shared, uint32_t wanted)
{
    if (shared->rate == 0)
        return wanted;
    pthread_mutex_lock(&shared->mutex);
    int64_t now = os_monotonic_us();
    double most = MAX((double)shared->rate / 20, 1); /* of 50 ms: no bursts */
    double more = (double)(now - shared->rate_at_us) * (double)shared->rate / 1e6;
    shared->allowance = MIN(shared->allowance + more, most);
    shared->rate_at_us = now;
    uint32_t allowed = (uint32_t)MIN(shared->allowance, (double)wanted);
    shared->allowance -= allowed;
    pthread_mutex_unlock(&shared->mutex);
    if (allowed == 0)
        atomic_store(&shared->is_held, true);
    return allowed;
}

static void give_allowance_back(struct kafka_shared *shared, uint32_t unused)
{
    if (shared->rate == 0 || unused == 0)
        return;
    pthread_mutex_lock(&shared->mutex);
    shared->allowance += unused;
    pthread_mutex_unlock(&shared->mutex);
}

/* Keeps the records among what came, drops the rest; false after a diagnostic. */
static bool sort_out(struct kafka_partition *p, uint32_t got)
{
    rd_kafka_message_t **from = p->pending + p->pending_count;
    bool is_good = true;
    for (uint32_t i = 0; i < got; i++) {
        rd_kafka_message_t *message = from[i];
        bool is_kept = false;
        if (unlikely(message->err != RD_KAFKA_RESP_ERR_NO_ERROR)) {
            is_good = is_good && take_event(p, message);
        } else if (unlikely(message->offset < p->next)) {
            is_good = is_good && check_before(p, message);
        } else if (unlikely(message->offset >= p->end)) {
            p->eof = message->offset;
        } else {
            prefetch_line(message->payload);
            p->eof = -1;
            is_kept = true;
        }
        if (!is_kept || !is_good) {
            rd_kafka_message_destroy(message);
            continue;
        }
        p->pending_bytes += payload_bytes(message);
        p->pending[p->pending_count++] = message;
    }
    return is_good;
}

/* A queue that was as full as it may be and is half empty now: its broker's thread may be asleep. */
static void nudge(struct kafka_partition *p, uint32_t got)
{
    struct kafka_shared *shared = p->shared;
    size_t length = rd_kafka_queue_length(p->queue);
    p->queue_peak = MAX(p->queue_peak, length + got);
    if (length >= p->queue_peak / 2)
        return;
    size_t record_bytes = p->pending_count == 0 ? 0 : p->pending_bytes / p->pending_count;
    bool was_full = p->queue_peak >= (size_t)shared->queue_records / 8 * 7 ||
                    p->queue_peak * record_bytes >= (size_t)shared->queue_bytes / 8 * 7;
    int64_t now = os_monotonic_us();
    p->queue_peak = length;
    if (!was_full || now - atomic_load(&shared->nudged_us) < NUDGE_EVERY_US)
        return;
    atomic_store(&shared->nudged_us, now);
    kafka_client_nudge(shared->client, shared->options);
}

static bool take_messages(struct kafka_partition *p)
{
    uint32_t wanted = take_allowance(p->shared, BATCH_ROWS - p->pending_count);
    if (wanted == 0)
        return true;
    ssize_t got = rd_kafka_consume_batch_queue(p->queue, 0, p->pending + p->pending_count, wanted);
    uint32_t count = got < 0 ? 0 : (uint32_t)got;
    give_allowance_back(p->shared, wanted - count);
    bool is_good = sort_out(p, count);
    if (count > 0)
        nudge(p, count);
    return is_good;
}

/* How many of the pending records make a batch: as bytes allow, one at least. */
static uint32_t batch_count(const struct kafka_partition *p, uint32_t limit, size_t *bytes)
{
    uint32_t count = 0;
    for (*bytes = 0; count < limit; count++) {
        size_t record = payload_bytes(p->pending[count]);
        if (count > 0 && *bytes + record > SOURCE_BATCH_BYTES)
            break;
        *bytes += record;
    }
    return count;
}

static const rd_kafka_headers_t *headers_of(const struct kafka_meta *meta, const rd_kafka_message_t *message)
{
    rd_kafka_headers_t *headers = NULL;
    if (meta->headers_count == 0 || rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return NULL;
    return headers;
}

/* Key (0) or header (1 ...) of a record; NULL: there is none. */
static const void *text_of(const struct kafka_meta *meta, const rd_kafka_message_t *message,
                           const rd_kafka_headers_t *headers, uint32_t which, size_t *bytes)
{
    const void *data = NULL;
    if (which == 0) {
        *bytes = message->key_len;
        return message->key;
    }
    if (headers == NULL || rd_kafka_header_get_last(headers, meta->header_names[which - 1], &data, bytes) !=
                               RD_KAFKA_RESP_ERR_NO_ERROR)
        return NULL;
    return data;
}

/* Keys and headers, where the job has columns for them. */
static void copy_texts(struct kafka_partition *p, struct kafka_frame *frame, uint32_t count,
                       struct arena *arena)
{
    const struct kafka_meta *meta = p->shared->meta;
    if (meta->key.name.length == 0 && meta->headers_count == 0)
        return;
    uint32_t each = 1 + meta->headers_count;
    const void **data = arena_alloc(arena, (size_t)count * each * sizeof(*data));
    frame->texts = arena_alloc(arena, (size_t)count * each * sizeof(*frame->texts));
    for (uint32_t i = 0; i < count; i++) {
        const rd_kafka_headers_t *headers = headers_of(meta, p->pending[i]);
        for (uint32_t k = 0; k < each; k++) {
            size_t bytes = 0;
            data[i * each + k] = text_of(meta, p->pending[i], headers, k, &bytes);
            bool is_null = data[i * each + k] == NULL;
            frame->texts[i * each + k] =
                (struct text_ref){(uint32_t)frame->heap_bytes, is_null ? KAFKA_TEXT_NULL : (uint32_t)bytes};
            frame->heap_bytes += is_null ? 0 : bytes;
        }
    }
    char *heap = arena_alloc(arena, frame->heap_bytes + RAW_PADDING);
    frame->heap = heap;
    for (uint32_t i = 0; i < count * each; i++)
        if (frame->texts[i].length != KAFKA_TEXT_NULL && frame->texts[i].length > 0)
            memcpy(heap + frame->texts[i].offset, data[i], frame->texts[i].length);
}

static void keep_original(struct kafka_frame *frame, uint32_t row, uint32_t rows,
                          const rd_kafka_message_t *message, struct arena *arena)
{
    struct byte_buffer out = {0};
    record_put_headers_of(message, &out);
    kafka_frame_keep(frame, row, rows, (struct str){message->key, message->key_len},
                     (struct str){out.data, out.length}, arena);
    buffer_free(&out);
}

static void flag(struct kafka_frame *frame, uint32_t row, enum kafka_record_flag what, struct arena *arena)
{
    if (frame->flags == NULL)
        frame->flags = arena_calloc(arena, BATCH_ROWS, 1);
    frame->flags[row] = (uint8_t)what;
}

/* Of the first `limit` pending records, at most. */
static void make_batch(struct kafka_partition *p, struct raw_batch *raw, uint32_t limit)
{
    size_t bytes;
    uint32_t count = batch_count(p, limit, &bytes);
    struct arena *arena = &raw->arena;
    struct kafka_frame *frame = arena_new(arena, struct kafka_frame);
    *frame = (struct kafka_frame){.topic = p->topic,
                                  .partition = p->id,
                                  .times = arena_alloc(arena, count * sizeof(int64_t)),
                                  .offsets = arena_alloc(arena, count * sizeof(int64_t))};
    raw->records = arena_alloc(arena, count * sizeof(*raw->records));
    raw->data = arena_alloc(arena, bytes + count + RAW_PADDING);
    const rd_kafka_message_t *last = p->pending[count - 1];
    raw->next = (struct source_position){.b = last->offset + 1, .record = p->records + count};
    struct kafka_mark mark = mark_of_message(last);
    marks_add(&p->marks, &mark);
    copy_texts(p, frame, count, arena);
    char *at = raw->data;
    for (uint32_t i = 0; i < count; i++) {
        rd_kafka_message_t *message = p->pending[i];
        rd_kafka_timestamp_type_t type;
        int64_t time_ms = rd_kafka_message_timestamp(message, &type);
        size_t length = payload_bytes(message);
        frame->times[i] = time_ms <= 0 ? 0 : time_ms * 1000;
        frame->offsets[i] = message->offset;
        if (unlikely(message->payload == NULL))
            flag(frame, i, KAFKA_TOMBSTONE, arena);
        else
            memcpy(at, message->payload, length);
        if (unlikely(length > SOURCE_RECORD_BYTES_MAX))
            flag(frame, i, KAFKA_TOO_LONG, arena);
        if (p->shared->meta->keeps_originals)
            keep_original(frame, i, count, message, arena);
        raw->records[i] = (struct raw_record){(uint32_t)(at - raw->data), (uint32_t)length};
        at += length;
        *at++ = '\n';                      /* as between lines: ends whatever a decoder scans for */
        rd_kafka_message_destroy(message); /* while it is in the cache */
    }
    raw->data_bytes = (size_t)(at - raw->data);
    raw->count = count;
    raw->offsets = frame->offsets;
    raw->position = (struct source_position){.b = p->next, .record = p->records};
    raw->path = p->name;
    raw->first_line = raw->first_offset = -1;
    raw->header = (struct str){"", 0};
    raw->extra = frame;
    __atomic_store_n(&p->time_us, frame->times[count - 1], __ATOMIC_RELAXED);
    __atomic_store_n(&p->next, raw->next.b, __ATOMIC_RELAXED);
    p->records += count;
    p->pending_count -= count;
    p->pending_bytes -= bytes;
    memmove(p->pending, p->pending + count, p->pending_count * sizeof(*p->pending));
}

/* Live: whether all that the broker had when it last answered is read. EOF is told only by an answer without
 * records, which the broker holds back a while; its ends of the log come with each answer. */
static bool is_at_end(const struct kafka_partition *p)
{
    int64_t low = -1, high = -1;
    if (p->eof >= 0)
        return true;
    if (rd_kafka_get_watermark_offsets(p->shared->client, p->topic, p->id, &low, &high) !=
            RD_KAFKA_RESP_ERR_NO_ERROR ||
        high < 0)
        high = p->high;
    return p->next >= high;
}

/* Bounded: whether all records before the end are there. */
static bool has_ended(const struct kafka_partition *p)
{
    int64_t behind = p->pending_count == 0 ? p->next : p->pending[p->pending_count - 1]->offset + 1;
    return p->eof >= p->end || behind >= p->end;
}

static enum read_status nothing(struct kafka_partition *p)
{
    if (!p->shared->is_bounded) {
        bool is_quiet = is_at_end(p);
        atomic_store_explicit(&p->is_quiet, is_quiet, memory_order_relaxed);
        return is_quiet ? READ_QUIET : READ_LATER;
    }
    if (!has_ended(p))
        return READ_LATER;
    __atomic_store_n(&p->end, p->next, __ATOMIC_RELAXED);
    stop(p);
    return READ_END;
}

static enum read_status lost(struct kafka_partition *p)
{
    struct diag_list *diags = lock_diags(p);
    struct diag *d = diag_error(diags, DIAG_E0611, no_span,
                                "the topic `%s` is gone: it was deleted while it was read", p->topic);
    diag_hint(diags, d,
              "what was read of it is in the checkpoints; take the source out of the job, or start anew with "
              "--fresh "
              "when there is such a topic again");
    fail(p);
    return READ_ERROR;
}

/* How many of the first `count` pending records have schemas that are there; *status: of the next. */
static uint32_t ready_count(const struct kafka_partition *p, uint32_t count, enum payload_status *status)
{
    uint32_t ready = 0;
    *status = PAYLOAD_READY;
    for (; ready < count && p->shared->payload != NULL; ready++) {
        const rd_kafka_message_t *message = p->pending[ready];
        if (message->payload == NULL || message->len > SOURCE_RECORD_BYTES_MAX)
            continue;
        *status = payload_ready(p->shared->payload, message->payload, message->len);
        if (*status != PAYLOAD_READY)
            return ready;
    }
    return count;
}

static enum read_status fail_schema(struct kafka_partition *p, const rd_kafka_message_t *message)
{
    char place[512];
    snprintf(place, sizeof(place), "%s, offset %lld", p->name, (long long)message->offset);
    payload_report(p->shared->payload, message->payload, message->len, place, lock_diags(p));
    fail(p);
    return READ_ERROR;
}

enum read_status kafka_partition_read(struct kafka_partition *p, struct raw_batch *raw)
{
    size_t bytes;
    enum payload_status status;
    if (p->is_failed)
        return READ_ERROR;
    if (atomic_load_explicit(&p->is_lost, memory_order_relaxed))
        return lost(p);
    if (p->queue == NULL && p->next >= p->end)
        return READ_END;
    if (p->queue == NULL && !start(p))
        return READ_ERROR;
    if (!has_ended(p) && p->pending_count < BATCH_ROWS && !take_messages(p))
        return READ_ERROR;
    if (p->pending_count == 0)
        return nothing(p);
    /* A bounded source gives the same batches whenever it is read: only whole ones, cut by the records alone.
     */
    bool is_whole = p->pending_count == BATCH_ROWS || p->pending_bytes >= SOURCE_BATCH_BYTES || has_ended(p);
    if (p->shared->is_bounded && !is_whole)
        return READ_LATER;
    atomic_store_explicit(&p->is_quiet, false, memory_order_relaxed);
    uint32_t count = batch_count(p, p->pending_count, &bytes), ready = ready_count(p, count, &status);
    if (ready < count && (ready == 0 || p->shared->is_bounded))
        return status == PAYLOAD_FAILED ? fail_schema(p, p->pending[ready]) : READ_LATER;
    make_batch(p, raw, ready);
    return READ_BATCH;
}
