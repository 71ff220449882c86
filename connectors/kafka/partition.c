#include "connectors/kafka/backfill.h"
#include "connectors/kafka/start.h"

#include "core/mem.h"
#include "core/os.h"

#include <stdio.h>
#include <stdlib.h>

enum { NUDGES = 3, ASK_MS = 2000 };

static const struct span no_span = {0, 0};

struct kafka_partition *kafka_partition_new(struct kafka_shared *shared, rd_kafka_topic_t *handle, int32_t id)
{
    struct kafka_partition *p = mem_calloc(1, sizeof(*p));
    p->shared = shared;
    p->handle = handle;
    p->topic = rd_kafka_topic_name(handle);
    p->id = id;
    p->name = mem_printf("%s/%d", p->topic, (int)id);
    p->end = INT64_MAX;
    p->eof = p->check.offset = -1;
    p->time_us = p->newest_us = INT64_MIN;
    p->log_end = p->asked_end = -1;
    marks_init(&p->marks);
    return p;
}

/* Stops fetching, and drops the records in the queue and the intakes. */
static void stop(struct kafka_partition *p)
{
    if (p->queue == NULL)
        return;
    kafka_intake_clear(&p->intake);
    kafka_intake_clear(&p->beyond);
    rd_kafka_queue_cb_event_enable(p->queue, NULL, NULL);
    rd_kafka_consume_stop(p->handle, p->id);
    rd_kafka_queue_destroy(p->queue);
    p->queue = NULL;
    p->must_start_again = false;
}

void kafka_partition_free(struct kafka_partition *p)
{
    if (p == NULL)
        return;
    stop(p);
    kafka_backfill_free(p);
    kafka_intake_free(&p->intake);
    kafka_intake_free(&p->beyond);
    marks_free(&p->marks);
    free(p->name);
    free(p);
}

/* Marks the partition as failed; call after lock_diags and a diagnostic. Returns false. */
static bool fail(struct kafka_partition *p)
{
    p->is_failed = true;
    pthread_mutex_unlock(&p->shared->mutex);
    return false;
}

/* Locks the source's diagnostics until fail(). */
static struct diag_list *lock_diags(struct kafka_partition *p)
{
    pthread_mutex_lock(&p->shared->mutex);
    return p->shared->source->diags;
}

/* Reports that records from `offset` on were lost unread. low: the oldest offset left; -1: unknown. */
static bool fail_gone(struct kafka_partition *p, int64_t offset, int64_t low)
{
    struct diag_list *diags = lock_diags(p);
    struct diag *d = low < 0
                         ? diag_error(diags, DIAG_RECORDS_GONE, no_span,
                                      "`%s` has lost records that this job has not read, from offset %lld on",
                                      p->name, (long long)offset)
                         : kafka_say_gone(diags, p->name, "this job has not read", offset, low);
    diag_hint(
        diags, d,
        "retention has deleted these records; if a recording has them, name the recording in the source's "
        "`backfill` and start again: the job continues there. To continue without these records: --from with "
        "another checkpoint directory and --drop-state %.*s, which keeps state and models and begins the "
        "source where `start:` says; or --fresh. And give the topic a longer retention",
        STR_ARGS(p->shared->source->name));
    return fail(p);
}

static bool fail_other_topic(struct kafka_partition *p, const char *what)
{
    struct diag_list *diags = lock_diags(p);
    struct diag *d = diag_error(diags, DIAG_NO_TOPIC, no_span,
                                "`%s` is not the partition that this job has read: %s", p->name, what);
    diag_hint(
        diags, d,
        "the topic was deleted and created again, or its end was cut off; if this is intended, start anew "
        "with --fresh (state and models begin empty)");
    return fail(p);
}

/* --- Positions and marks --- */

static void go_on_at(struct kafka_partition *p, const struct source_position *position)
{
    __atomic_store_n(&p->next, position->b, __ATOMIC_RELAXED);
    __atomic_store_n(&p->records, position->record, __ATOMIC_RELAXED);
    p->intake.carried = p->shared->is_bounded ? batch_share_of(position) : (struct batch_share){0};
}

bool kafka_partition_seek(struct kafka_partition *p, const struct source_position *position)
{
    char what[160];
    bool is_good = true;
    leat_assert(p->queue == NULL);
    if (p->history != NULL && kafka_backfill_seek(p, position, &is_good)) {
        go_on_at(p, position);
        return is_good;
    }
    if (position->b < p->low)
        return fail_gone(p, position->b, p->low);
    if (position->b > p->high) {
        snprintf(what, sizeof(what),
                 "the partition ends at offset %lld, and the checkpoint was taken at offset %lld",
                 (long long)p->high, (long long)position->b);
        return fail_other_topic(p, what);
    }
    if (p->check.offset >= p->high)
        return fail_other_topic(p, "the partition ends before a record that this job has read");
    if (p->check.offset < p->low)
        p->check.offset = -1; /* the record of the mark was deleted, too: nothing to compare */
    go_on_at(p, position);
    return true;
}

size_t kafka_partition_mark(struct kafka_partition *p, const struct source_position *position,
                            char out[SOURCE_MARK_BYTES])
{
    size_t bytes = marks_before(&p->marks, position->b, out);
    /* No mark lies before the first batch, which a resume reads again: take the mark of its last record. */
    return bytes > 0 || p->history != NULL ? bytes : marks_first(&p->marks, out);
}

/* Keeps the checkpoint's mark; check_before compares it with its record when reading begins. */
bool kafka_partition_mark_check(struct kafka_partition *p, struct str mark)
{
    if (mark.length != sizeof(p->check))
        return mark.length == 0 || fail_other_topic(p, "the checkpoint's mark of the partition is damaged");
    memcpy(&p->check, mark.data, sizeof(p->check));
    marks_add(&p->marks, &p->check);
    return true;
}

/* Compares a record before the next offset with the checkpoint's mark. In a compacted topic the record may be
 * missing. Returns false after a diagnostic. */
static bool check_before(struct kafka_partition *p, const rd_kafka_message_t *message)
{
    struct kafka_mark found =
        mark_of(message->offset, kafka_time_ms(message), (struct str){message->payload, message->len});
    bool is_it = found.offset == p->check.offset;
    bool is_same = found.time == p->check.time && found.digest == p->check.digest;
    char what[160];
    if (!is_it || is_same)
        return true;
    snprintf(what, sizeof(what), "the record at offset %lld differs from the record read before",
             (long long)found.offset);
    return fail_other_topic(p, what);
}

/* --- Events of librdkafka --- */

static void on_event(rd_kafka_t *client LEAT_UNUSED, void *argument)
{
    const struct source *source = ((struct kafka_partition *)argument)->shared->source;
    if (source->wake != NULL)
        source->wake(source->engine);
}

bool kafka_partition_start(struct kafka_partition *p, int64_t offset)
{
    if (rd_kafka_consume_start(p->handle, p->id, offset) != 0) {
        kafka_errors_report(p->shared->errors, rd_kafka_last_error(), lock_diags(p), "read `%s`", p->name);
        return fail(p);
    }
    p->queue = rd_kafka_queue_get_partition(p->shared->client, p->topic, p->id);
    leat_assert(p->queue != NULL);
    rd_kafka_queue_cb_event_enable(p->queue, on_event, p);
    return true;
}

/* Judges an error. librdkafka recovers from temporary ones by itself (a broker goes, a leader moves), but
 * must not continue at another offset. Returns false after a diagnostic. */
static bool take_event(struct kafka_partition *p)
{
    int64_t low = -1, high = -1;
    rd_kafka_resp_err_t code = p->event.code;
    p->event.code = RD_KAFKA_RESP_ERR_NO_ERROR;
    switch ((int)code) {
    case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
    case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
        if (rd_kafka_query_watermark_offsets(p->shared->client, p->topic, p->id, &low, &high, ASK_MS) !=
            RD_KAFKA_RESP_ERR_NO_ERROR)
            low = high = -1;
        if (low <= p->next && p->check.offset >= 0 && p->check.offset < low) {
            /* The record of the checkpoint's mark was deleted meanwhile. */
            p->check.offset = -1;
            p->must_start_again = true;
            return true;
        }
        return low > p->next || low < 0
                   ? fail_gone(p, p->next, low)
                   : fail_other_topic(p, "the partition ends before the offset where reading continues");
    case RD_KAFKA_RESP_ERR__BAD_MSG:
    case RD_KAFKA_RESP_ERR__BAD_COMPRESSION:
    case RD_KAFKA_RESP_ERR_INVALID_MSG: {
        struct diag_list *diags = lock_diags(p);
        struct diag *d =
            diag_error(diags, DIAG_RECORDS_GONE, no_span, "the records of `%s` at offset %lld are damaged",
                       p->name, (long long)p->event.offset);
        diag_cause(diags, d, "%s", p->event.text);
        diag_hint(diags, d,
                  "check whether a replica of the partition is undamaged; no records after the damaged "
                  "ones were read");
        return fail(p);
    }
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED: {
        struct diag_list *diags = lock_diags(p);
        struct diag *d =
            diag_error(diags, DIAG_KAFKA_FAILED, no_span, "cannot read `%s`: not authorized", p->name);
        diag_hint(diags, d, "the user of `security` needs the rights Read and Describe on the topic");
        return fail(p);
    }
    default: return true;
    }
}

/* --- Reading --- */

/* Keeps an error until librdkafka's callback has returned, when take_event judges it. */
static void keep_event(struct kafka_partition *p, const rd_kafka_message_t *message)
{
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        p->eof = message->offset;
        return;
    }
    p->event.code = message->err;
    p->event.offset = message->offset;
    snprintf(p->event.text, sizeof(p->event.text), "%s", rd_kafka_message_errstr(message));
    rd_kafka_yield(p->shared->client);
}

/* librdkafka's callback for one record, which is valid only during the call. A record that the batch has no
 * room for goes to `beyond`. */
static void take(rd_kafka_message_t *message, void *argument)
{
    struct kafka_partition *p = argument;
    if (unlikely(message->err != RD_KAFKA_RESP_ERR_NO_ERROR)) {
        keep_event(p, message);
    } else if (unlikely(message->offset < p->next)) {
        if (!check_before(p, message))
            rd_kafka_yield(p->shared->client);
    } else if (unlikely(message->offset >= p->end)) {
        p->eof = message->offset;
    } else if (unlikely(message->offset == p->check.offset) && !check_before(p, message)) {
        rd_kafka_yield(p->shared->client);
    } else {
        bool is_beyond = !kafka_intake_takes(&p->intake, message->len);
        kafka_intake_add(is_beyond ? &p->beyond : &p->intake, p->shared->meta, message);
        p->eof = -1;
        p->wanted--;
        if (is_beyond || p->wanted == 0)
            rd_kafka_yield(p->shared->client);
    }
}

/* Whether the current batch can take no more records. */
static bool is_full(const struct kafka_partition *p)
{
    return p->beyond.count > 0 || kafka_intake_is_full(&p->intake);
}

/* When a queue is full, librdkafka's thread for its broker sleeps for up to a second, however much is taken
 * meanwhile. Wakes that thread when the queue is no longer full, and, because the bytes in the queue are an
 * estimate, again when it is half empty and when it is empty. got: records taken in this read. */
static void nudge(struct kafka_partition *p, uint32_t got)
{
    struct kafka_shared *shared = p->shared;
    size_t length = rd_kafka_queue_length(p->queue), full = (size_t)shared->queue_records;
    if (p->intake.payload_bytes > 0)
        full = MIN(full, (size_t)shared->queue_bytes * p->intake.count / p->intake.payload_bytes);
    full -= full / 8;
    if (length + got >= full)
        p->nudges = NUDGES;
    if (p->nudges == 0 || length >= (p->nudges == NUDGES ? full : p->nudges == 2 ? full / 2 : 1))
        return;
    p->nudges--;
    kafka_client_nudge(shared->client, shared->options);
}

static bool take_messages(struct kafka_partition *p)
{
    uint32_t wanted = kafka_rate_ask(p->shared, BATCH_ROWS - p->intake.count - p->intake.carried.records);
    if (wanted == 0)
        return true;
    p->wanted = wanted;
    rd_kafka_consume_callback_queue(p->queue, 0, take, p);
    kafka_rate_give_back(p->shared, p->wanted);
    if (p->wanted < wanted)
        nudge(p, wanted - p->wanted);
    return !p->is_failed && (p->event.code == RD_KAFKA_RESP_ERR_NO_ERROR || take_event(p));
}

/* Moves the first `count` records of the intake to `first`; the others stay in intake and `beyond`. */
static void split(struct kafka_partition *p, uint32_t count, struct kafka_intake *first)
{
    const struct kafka_meta *meta = p->shared->meta;
    *first = p->intake;
    struct kafka_intake beyond = p->beyond;
    p->intake = p->beyond = (struct kafka_intake){.usual = first->usual};
    for (uint32_t i = count; i < first->count; i++)
        kafka_intake_move(&p->intake, meta, first, i);
    for (uint32_t i = 0; i < beyond.count; i++)
        kafka_intake_move(kafka_intake_takes(&p->intake, beyond.records[i].length) ? &p->intake : &p->beyond,
                          meta, &beyond, i);
    first->count = count;
    first->used = first->records[count - 1].offset + first->records[count - 1].length + 1;
    kafka_intake_free(&beyond);
}

/* Makes a batch of the first `count` records of the intake. */
static void make_batch(struct kafka_partition *p, struct raw_batch *raw, uint32_t count)
{
    struct kafka_intake first, *intake = &p->intake;
    const struct kafka_begin begin = {p->name, p->topic, p->id, p->next, p->records};
    bool is_cut = !p->shared->is_bounded || is_full(p);
    if (count < intake->count)
        split(p, count, intake = &first);
    struct kafka_mark mark = kafka_intake_give(intake, &begin, is_cut, raw);
    marks_add(&p->marks, &mark);
    const struct kafka_frame *frame = raw->extra;
    __atomic_store_n(&p->time_us, frame->times[count - 1], __ATOMIC_RELAXED);
    kafka_partition_pass(p, raw);
    if (intake == &first) {
        kafka_intake_free(intake);
    } else if (p->beyond.count > 0) {
        struct kafka_intake empty = p->intake;
        p->intake = p->beyond;
        p->intake.usual = empty.usual;
        p->beyond = empty;
    }
}

/* Live: whether all records were read that the broker had when it last answered. librdkafka reports EOF only
 * after an answer without records, which the broker holds back for a while; but each answer names the end of
 * the log. */
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

/* Bounded: whether all records before the end were taken. */
static bool has_ended(const struct kafka_partition *p)
{
    const struct kafka_intake *last = p->beyond.count > 0 ? &p->beyond : &p->intake;
    int64_t behind = last->count == 0 ? p->next : last->frame->offsets[last->count - 1] + 1;
    return p->eof >= p->end || behind >= p->end;
}

/* Sets the position to `end`: no records are left before it. */
static void reach(struct kafka_partition *p, int64_t end, struct raw_batch *raw)
{
    __atomic_store_n(&p->next, MAX(p->next, end), __ATOMIC_RELAXED);
    atomic_store_explicit(&p->is_quiet, true, memory_order_relaxed);
    raw->next.b = p->next;
}

static enum read_status nothing(struct kafka_partition *p, struct raw_batch *raw)
{
    bool is_bounded = p->shared->is_bounded;
    if (!(is_bounded ? has_ended(p) : is_at_end(p))) {
        atomic_store_explicit(&p->is_quiet, false, memory_order_relaxed);
        return READ_LATER;
    }
    reach(p, is_bounded ? p->end : p->eof, raw);
    if (!is_bounded)
        return READ_QUIET;
    stop(p);
    return READ_END;
}

void kafka_partition_open(struct kafka_partition *p, int64_t committed, int64_t end)
{
    bool is_open = committed >= 0 && end > committed;
    bool is_same = __atomic_load_n(&p->open_end, __ATOMIC_RELAXED) > 0 &&
                   __atomic_load_n(&p->open_first, __ATOMIC_RELAXED) == committed;
    if (is_open && !is_same)
        __atomic_store_n(&p->open_since_us, os_monotonic_us(), __ATOMIC_RELAXED);
    __atomic_store_n(&p->open_first, committed, __ATOMIC_RELAXED);
    __atomic_store_n(&p->open_end, is_open ? end : 0, __ATOMIC_RELAXED);
}

void kafka_partition_pass(struct kafka_partition *p, const struct raw_batch *raw)
{
    int64_t offsets = raw->next.b - __atomic_load_n(&p->next, __ATOMIC_RELAXED);
    if (offsets > (int64_t)raw->count)
        atomic_store_explicit(&p->has_gaps, true, memory_order_relaxed);
    __atomic_store_n(&p->next, raw->next.b, __ATOMIC_RELAXED);
    __atomic_store_n(&p->records, raw->next.record, __ATOMIC_RELAXED);
}

static enum read_status lost(struct kafka_partition *p)
{
    struct diag_list *diags = lock_diags(p);
    struct diag *d = diag_error(diags, DIAG_NO_TOPIC, no_span,
                                "the topic `%s` is gone: it was deleted while it was read", p->topic);
    diag_hint(
        diags, d,
        "the records read from the topic are in the checkpoints; remove the source from the job, or start "
        "anew with --fresh when the topic exists again");
    fail(p);
    return READ_ERROR;
}

/* Count of the intake's leading records whose schemas are available. *status: of the first record whose
 * schema is not; PAYLOAD_READY: all are. */
static uint32_t ready_count(const struct kafka_partition *p, enum payload_status *status)
{
    const struct kafka_intake *intake = &p->intake;
    uint32_t ready = 0;
    *status = PAYLOAD_READY;
    for (; ready < intake->count && p->shared->payload != NULL; ready++) {
        if (intake->frame->flags != NULL && intake->frame->flags[ready] != 0)
            continue;
        const struct raw_record *record = &intake->records[ready];
        *status = payload_ready(p->shared->payload, intake->data + record->offset, record->length);
        if (*status != PAYLOAD_READY)
            return ready;
    }
    return intake->count;
}

static enum read_status fail_schema(struct kafka_partition *p, uint32_t row)
{
    char place[512];
    const struct kafka_intake *intake = &p->intake;
    const struct raw_record *record = &intake->records[row];
    snprintf(place, sizeof(place), "%s, offset %lld", p->name, (long long)intake->frame->offsets[row]);
    payload_report(p->shared->payload, intake->data + record->offset, record->length, place, lock_diags(p));
    fail(p);
    return READ_ERROR;
}

/* Whether the process or the brokers stood still for so long that the topic may have been deleted and made
 * again, with as many records. Then stops fetching, which the next read begins again at the last record read,
 * to compare that record with its mark. */
static bool has_paused(struct kafka_partition *p)
{
    struct kafka_shared *shared = p->shared;
    int64_t alive_us = atomic_load(&shared->alive_us);
    uint64_t pauses = atomic_load(&shared->pauses);
    bool is_pause = os_monotonic_us() - alive_us >= KAFKA_PAUSE_US && p->paused_us != alive_us;
    if (shared->is_bounded || p->queue == NULL || (!is_pause && p->pauses == pauses))
        return false;
    p->pauses = pauses;
    char mark[SOURCE_MARK_BYTES];
    p->paused_us = alive_us;
    p->check.offset = -1;
    if (marks_before(&p->marks, p->next, mark) == sizeof(p->check))
        memcpy(&p->check, mark, sizeof(p->check));
    stop(p);
    p->eof = -1;
    return true;
}

enum read_status kafka_partition_read(struct kafka_partition *p, struct raw_batch *raw)
{
    enum payload_status status;
    if (p->is_failed)
        return READ_ERROR;
    if (atomic_load_explicit(&p->is_lost, memory_order_relaxed))
        return lost(p);
    enum read_status recorded = p->history == NULL ? READ_END : kafka_backfill_read(p, raw);
    if (recorded != READ_END)
        return recorded;
    if (p->queue == NULL && p->next >= p->end) {
        reach(p, p->end, raw);
        return READ_END;
    }
    if (has_paused(p))
        return READ_LATER;
    int64_t offset = p->check.offset >= 0 ? MIN(p->check.offset, p->next) : p->next;
    if (p->queue == NULL && !kafka_partition_start(p, offset))
        return READ_ERROR;
    if (!has_ended(p) && !is_full(p) && !take_messages(p))
        return READ_ERROR;
    if (p->must_start_again) {
        stop(p);
        return READ_LATER;
    }
    if (p->intake.count == 0)
        return nothing(p, raw);
    /* A bounded source gives only whole batches, cut by the records alone: the same at each reading. */
    if (p->shared->is_bounded && !is_full(p) && !has_ended(p))
        return READ_LATER;
    atomic_store_explicit(&p->is_quiet, false, memory_order_relaxed);
    uint32_t ready = ready_count(p, &status);
    if (ready < p->intake.count && (ready == 0 || p->shared->is_bounded))
        return status == PAYLOAD_FAILED ? fail_schema(p, ready) : READ_LATER;
    make_batch(p, raw, ready);
    return READ_BATCH;
}
