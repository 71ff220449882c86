#include "connectors/kafka/recorder.h"

#include "connectors/kafka/marks.h"
#include "connectors/kafka/recording_write.h"
#include "connectors/kafka/topics.h"

#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    POLL_MS = 50,
    TAKE = 1024,
    SHOW_EVERY_US = 100000,
    LOOK_EVERY_US = 5000000,
    MISSING_US = 1000000,
    SAY_WHY_US = 3000000,
    ASK_MS = 2000,
    LOOK_PATIENCE_US = 15000000,
    MISSING_TIMES = 3,
    QUEUE_BYTES = 64 << 20, /* limit of what is fetched ahead, all partitions together */
};

static const struct span no_span = {0, 0};

struct topic {
    const char *name;
    rd_kafka_topic_t *handle;
    struct partition **partitions; /* index: partition number */
    int32_t count;
    uint32_t missing; /* consecutive looks at which the topic was missing */
};

/* A partition being recorded, with its current span. */
struct partition {
    struct topic *topic;
    int32_t id;
    char name[300];
    int64_t next, end; /* offsets: the next to record, and where recording ends; end INT64_MAX: open */
    struct kafka_mark check, last;
    struct recording_writer writer;
    bool is_done;
};

struct recorder {
    const struct recorder_options *options;
    struct diag_list *diags;
    struct arena arena;
    struct recording recording;
    struct kafka_topics topics;
    int lock_fd;
    rd_kafka_t *client;
    struct kafka_errors *errors;
    rd_kafka_queue_t *queue;
    struct topic **known;
    uint32_t known_count;
    struct partition **partitions;
    uint32_t partitions_count, done_count;
    struct recorder_figures *figures;
    struct recording_packer packer;
    struct kafka_patience patience; /* of the start */
    int64_t taken_us;               /* when records or events last came */
    char waits[256];
    bool has_changed; /* the manifest must be written */
    bool is_missing;  /* a topic was missing at the last look */
};

/* --- Errors --- */

static bool fail_write(struct recorder *r, const char *path, int error)
{
    struct diag *d =
        diag_error(r->diags, error == ENOSPC || error == EDQUOT ? DIAG_DISK_FULL : DIAG_OUTPUT_FAILED,
                   no_span, "`%s` cannot be written", path);
    diag_errno(r->diags, d, error);
    diag_hint(
        r->diags, d,
        "the complete spans are in the recording; `leat record` with the same --to continues behind them");
    return false;
}

static bool fail_gone(struct recorder *r, const struct partition *p, int64_t low)
{
    struct diag *d = kafka_say_gone(r->diags, p->name, "are not recorded", p->next, low);
    diag_hint(
        r->diags, d,
        "a recording cannot have holes: record into another directory, from the oldest record that the topic "
        "still has; and give the topic a longer retention");
    return false;
}

static bool fail_other(struct recorder *r, const struct partition *p, const char *what)
{
    struct diag *d = diag_error(r->diags, DIAG_NO_TOPIC, no_span,
                                "`%s` is not the partition that was recorded in `%s`: %s", p->name,
                                r->options->directory, what);
    diag_hint(
        r->diags, d,
        "the topic was deleted and created again, or its end was cut off: record it into another directory");
    return false;
}

/* --- The directory --- */

/* Replaces the manifest, which makes complete spans part of the recording. */
static bool save(struct recorder *r)
{
    const char *log = r->recording.order_log;
    if (log != NULL) /* its path within the directory */
        log += strlen(r->options->directory) + 1;
    int error = recording_save(&r->recording, r->options->directory, log);
    r->has_changed = false;
    return error == 0 || fail_write(r, r->options->directory, error);
}

/* --- Partitions --- */

static struct topic *find_topic(struct recorder *r, const char *name)
{
    for (uint32_t i = 0; i < r->known_count; i++)
        if (strcmp(r->known[i]->name, name) == 0)
            return r->known[i];
    struct topic *topic = arena_new(&r->arena, struct topic);
    topic->name = arena_strdup(&r->arena, name);
    rd_kafka_topic_conf_t *conf = rd_kafka_topic_conf_new();
    rd_kafka_topic_conf_set_opaque(conf, topic);
    topic->handle = rd_kafka_topic_new(r->client, name, conf);
    leat_assert(topic->handle != NULL);
    if ((r->known_count & (r->known_count + 1)) == 0) {
        r->known = mem_realloc(r->known, (2 * (size_t)r->known_count + 2) * sizeof(struct topic *));
    }
    r->known[r->known_count++] = topic;
    r->figures->topics = r->known_count;
    recording_sweep(&r->recording, r->options->directory, name);
    return topic;
}

static struct partition *new_partition(struct recorder *r, struct topic *topic, int32_t id)
{
    if (topic->count <= id) {
        topic->partitions = mem_realloc(topic->partitions, ((size_t)id + 1) * sizeof(struct partition *));
        while (topic->count <= id)
            topic->partitions[topic->count++] = NULL;
    }
    struct partition *p = mem_calloc(1, sizeof(*p));
    r->partitions = mem_realloc(r->partitions, (r->partitions_count + 1) * sizeof(struct partition *));
    topic->partitions[id] = r->partitions[r->partitions_count++] = p;
    r->figures->partitions = r->partitions_count;
    *p = (struct partition){.topic = topic, .id = id, .end = INT64_MAX, .check = {.offset = -1}};
    p->last.offset = -1;
    snprintf(p->name, sizeof(p->name), "%s/%d", topic->name, (int)id);
    p->writer = (struct recording_writer){.directory = r->options->directory,
                                          .topic = topic->name,
                                          .id = id,
                                          .format = r->options->format,
                                          .packer = &r->packer,
                                          .fd = -1};
    return p;
}

/* Adds a partition. Reading begins with the recording's last record, to compare it, if the topic still has
 * it; else at the recording's end. Returns false after a diagnostic. */
static bool add_partition(struct recorder *r, const struct kafka_place *place,
                          const struct kafka_range *range)
{
    char what[160];
    struct partition *p = new_partition(r, find_topic(r, place->topic), place->id);
    struct recording_partition *recorded = recording_add(&r->recording, p->topic->name, p->id, &r->arena);
    bool is_new = recorded->first < 0;
    if (is_new)
        recorded->first = recorded->next = range->first;
    r->has_changed |= is_new;
    p->next = recorded->next;
    if (p->next < range->low)
        return fail_gone(r, p, range->low);
    if (p->next > range->high) {
        snprintf(what, sizeof(what),
                 "the partition ends at offset %" PRId64 ", and the recording at offset %" PRId64,
                 range->high, p->next);
        return fail_other(r, p, what);
    }
    if (r->options->until_latest)
        p->end = range->high;
    if (recorded->mark.offset >= range->low && recorded->mark.offset < p->next)
        p->check = recorded->mark;
    if (p->next >= p->end) {
        p->is_done = true;
        r->done_count++;
        return true;
    }
    int64_t from = p->check.offset >= 0 ? p->check.offset : p->next;
    if (rd_kafka_consume_start_queue(p->topic->handle, p->id, from, r->queue) == 0)
        return true;
    kafka_errors_report(r->errors, rd_kafka_last_error(), r->diags, "read `%s`", p->name);
    return false;
}

static bool check_topics(struct recorder *r, const struct kafka_place *places, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(places[i].topic, "manifest.json") == 0)
            return recording_refuse(
                r->options->directory, DIAG_OUTPUT_FAILED,
                "a topic called `manifest.json` cannot be recorded",
                "leave this topic out: name the topics, or a pattern that does not match it", r->diags);
    return true;
}

/* Adds all matching partitions that are not known yet. is_first: they begin where the user says; partitions
 * found later are new and begin at their first offset. */
static bool add_partitions(struct recorder *r, const struct rd_kafka_metadata *metadata, bool is_first,
                           struct diag_list *diags)
{
    static const struct kafka_start earliest = {.tag = KAFKA_EARLIEST};
    struct arena arena = {0};
    uint32_t count = 0, fresh = 0;
    struct kafka_place *places = kafka_topics_find(&r->topics, metadata, &count, &arena, diags);
    bool is_good = places != NULL && check_topics(r, places, count);
    for (uint32_t i = 0; is_good && !is_first && i < count; i++) {
        const struct topic *topic = NULL;
        for (uint32_t k = 0; k < r->known_count && topic == NULL; k++)
            topic = strcmp(r->known[k]->name, places[i].topic) == 0 ? r->known[k] : NULL;
        if (topic == NULL || places[i].id >= topic->count || topic->partitions[places[i].id] == NULL)
            places[fresh++] = places[i];
    }
    count = is_first ? count : fresh;
    if (is_good && count > 0) {
        struct kafka_range *ranges = arena_array(&arena, struct kafka_range, count);
        struct kafka_patience later = kafka_patience_silent(LOOK_PATIENCE_US);
        is_good = kafka_start_find(is_first ? &r->options->from : &earliest, r->client, r->errors, places,
                                   count, ranges, is_first ? &r->patience : &later, diags);
        for (uint32_t i = 0; is_good && i < count; i++)
            is_good = add_partition(r, &places[i], &ranges[i]);
    }
    arena_free(&arena);
    return is_good;
}

static rd_kafka_t *connect_client(struct recorder *r, uint32_t partitions)
{
    char kilobytes[24];
    snprintf(kilobytes, sizeof(kilobytes), "%u", MAX(QUEUE_BYTES / 1024 / MAX(partitions, 1), 256));
    const struct kafka_property fixed[] = {
        {"queued.min.messages", "100000"}, {"queued.max.messages.kbytes", kilobytes}, {NULL, NULL}};
    return kafka_client_new(r->options->client, RD_KAFKA_CONSUMER, fixed, NULL, STR("leat"), STR("record"),
                            &r->errors, r->diags);
}

static bool open_topics(struct recorder *r)
{
    kafka_topics_open(&r->topics, r->options->topics, &r->arena);
    r->patience = kafka_patience_begin(r->options->patience_us, r->options->stop, NULL, (struct str){"", 0});
    r->client = connect_client(r, 1);
    const struct rd_kafka_metadata *metadata =
        r->client == NULL ? NULL : kafka_client_metadata(r->client, r->errors, NULL, &r->patience, r->diags);
    if (metadata == NULL)
        return false;
    /* How much each partition may fetch ahead is a setting of the client and depends on their number. */
    uint32_t count = 0;
    if (kafka_topics_find(&r->topics, metadata, &count, &r->arena, r->diags) != NULL && count > 1) {
        kafka_client_free(r->client, r->errors);
        r->client = connect_client(r, count);
    }
    if (count == 0 || r->client == NULL) {
        rd_kafka_metadata_destroy(metadata);
        return false;
    }
    r->queue = rd_kafka_queue_new(r->client);
    for (uint32_t i = 0; i < r->recording.partitions_count; i++)
        r->figures->before += r->recording.partitions[i].records;
    bool is_good = add_partitions(r, metadata, true, r->diags);
    rd_kafka_metadata_destroy(metadata);
    return is_good && save(r);
}

/* Looks for new topics and partitions, and for deleted topics. Returns false after a diagnostic. Temporary
 * failures are ignored: there is another look later. */
static bool look_again(struct recorder *r)
{
    const struct rd_kafka_metadata *metadata = NULL;
    if (rd_kafka_metadata(r->client, 1, NULL, &metadata, ASK_MS) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return true;
    struct arena arena = {0};
    struct diag_list unheard;
    diag_list_init(&unheard, &arena);
    r->is_missing = false;
    uint32_t errors = r->diags->errors;
    if (!r->options->until_latest)
        add_partitions(r, metadata, false, &unheard); /* failures may be temporary */
    arena_free(&arena);
    for (uint32_t i = 0; i < r->known_count; i++) {
        bool is_there = false;
        for (int k = 0; k < metadata->topic_cnt; k++)
            is_there |= strcmp(metadata->topics[k].topic, r->known[i]->name) == 0 &&
                        metadata->topics[k].err == RD_KAFKA_RESP_ERR_NO_ERROR;
        r->known[i]->missing = is_there ? 0 : r->known[i]->missing + 1;
        r->is_missing |= !is_there;
        if (r->known[i]->missing == MISSING_TIMES) {
            struct diag *d =
                diag_error(r->diags, DIAG_NO_TOPIC, no_span,
                           "the topic `%s` is gone: it was deleted while it was read", r->known[i]->name);
            diag_hint(r->diags, d, "the records read from the topic are in the recording");
        }
    }
    rd_kafka_metadata_destroy(metadata);
    return r->diags->errors == errors;
}

/* --- Records --- */

/* Gives up the current span: the recording ends before it. Returns false. */
static bool abandon_span(struct recorder *r, struct partition *p, int error)
{
    fail_write(r, p->writer.path, error);
    recording_writer_close(&p->writer);
    p->next = recording_add(&r->recording, p->topic->name, p->id, &r->arena)->next;
    return false;
}

static bool finish_span(struct recorder *r, struct partition *p)
{
    struct recording_span span;
    if (!p->writer.is_open)
        return true;
    int error = recording_writer_finish(&p->writer, p->next, &span, &r->arena);
    if (error != 0)
        return abandon_span(r, p, error);
    struct recording_partition *recorded = recording_add(&r->recording, p->topic->name, p->id, &r->arena);
    recording_add_span(recorded, &span, &r->arena);
    recorded->next = span.next;
    recorded->records += span.records;
    recorded->mark = p->last;
    r->figures->spans++;
    r->figures->bytes += span.bytes;
    r->has_changed = true;
    return true;
}

static bool finish_partition(struct recorder *r, struct partition *p)
{
    if (p->is_done)
        return true;
    p->is_done = true;
    r->done_count++;
    rd_kafka_consume_stop(p->topic->handle, p->id);
    return finish_span(r, p);
}

static bool is_full(const struct recorder *r, const struct recording_writer *w)
{
    return w->is_open && ((int64_t)w->span.records >= r->options->span_records ||
                          w->raw_bytes + (int64_t)w->raw.length >= r->options->span_bytes);
}

static bool take_record(struct recorder *r, struct partition *p, const rd_kafka_message_t *message,
                        struct byte_buffer *headers)
{
    rd_kafka_timestamp_type_t type;
    struct recorded record = {
        .offset = message->offset,
        .time_ms = rd_kafka_message_timestamp(message, &type),
        .record = {.key = {message->key, message->key_len}, .value = {message->payload, message->len}}};
    struct kafka_mark mark = mark_of(record.offset, record.time_ms, record.record.value);
    if (message->offset < p->next) /* read again only to be compared */
        return message->offset != p->check.offset || mark_is(&mark, &p->check) ||
               fail_other(r, p, "the topic's last recorded record differs from the recording");
    if (message->offset >= p->end ||
        (r->options->until_us != TIME_MAX && record.time_ms >= r->options->until_us / 1000)) {
        p->next = MIN(p->end, message->offset); /* no record lies between */
        return finish_partition(r, p);
    }
    buffer_clear(headers);
    record_put_headers_of(message, headers);
    record.record.headers = (struct str){headers->data, headers->length};
    int error = recording_writer_put(&p->writer, p->next, &record);
    if (error != 0)
        return abandon_span(r, p, error);
    p->next = message->offset + 1;
    p->last = mark;
    r->figures->records++;
    if (is_full(r, &p->writer) && !finish_span(r, p))
        return false;
    return p->next < p->end || finish_partition(r, p);
}

/* Extends the recording to the end of the log if only markers of transactions follow its last record: they
 * may be deleted like records. */
static void reach(struct recorder *r, struct partition *p)
{
    struct recording_partition *recorded = recording_add(&r->recording, p->topic->name, p->id, &r->arena);
    if (p->writer.is_open || recorded->next >= p->next)
        return;
    recorded->next = p->next;
    r->has_changed = true;
}

/* Handles an event that is no record: the end of the log, or an error. Returns false after a diagnostic. */
static bool take_event(struct recorder *r, struct partition *p, const rd_kafka_message_t *message)
{
    int64_t low = -1, high = -1;
    switch ((int)message->err) {
    case RD_KAFKA_RESP_ERR__PARTITION_EOF:
        p->next = MAX(p->next, message->offset);
        reach(r, p);
        return (p->next < p->end &&
                (r->options->until_us == TIME_MAX || os_wall_us() < r->options->until_us)) ||
               finish_partition(r, p);
    case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
    case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
        if (rd_kafka_query_watermark_offsets(r->client, p->topic->name, p->id, &low, &high, ASK_MS) !=
            RD_KAFKA_RESP_ERR_NO_ERROR)
            low = -1;
        return low > p->next
                   ? fail_gone(r, p, low)
                   : fail_other(r, p, "the partition ends before the offset where the recording continues");
    case RD_KAFKA_RESP_ERR__BAD_MSG:
    case RD_KAFKA_RESP_ERR__BAD_COMPRESSION:
    case RD_KAFKA_RESP_ERR_INVALID_MSG:
        diag_cause(r->diags,
                   diag_error(r->diags, DIAG_RECORDS_GONE, no_span,
                              "the records of `%s` at offset %" PRId64 " are damaged", p->name,
                              message->offset),
                   "%s", rd_kafka_message_errstr(message));
        return false;
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
        diag_hint(
            r->diags,
            diag_error(r->diags, DIAG_KAFKA_FAILED, no_span, "cannot read `%s`: not authorized", p->name),
            "the user of `security` needs the rights Read and Describe on the topic");
        return false;
    default: return true; /* temporary, or the next look at the topics finds the cause */
    }
}

static bool take(struct recorder *r, rd_kafka_message_t **messages, struct byte_buffer *headers)
{
    ssize_t got = rd_kafka_consume_batch_queue(r->queue, POLL_MS, messages, TAKE);
    bool is_good = true;
    if (got > 0)
        r->taken_us = os_monotonic_us();
    for (ssize_t i = 0; i < got; i++) {
        struct topic *topic = rd_kafka_topic_opaque(messages[i]->rkt);
        struct partition *p = topic->partitions[messages[i]->partition];
        if (is_good && !p->is_done)
            is_good = messages[i]->err == RD_KAFKA_RESP_ERR_NO_ERROR ? take_record(r, p, messages[i], headers)
                                                                     : take_event(r, p, messages[i]);
        rd_kafka_message_destroy(messages[i]);
    }
    return is_good;
}

/* --- The run --- */

static void show(struct recorder *r, bool is_last)
{
    int64_t lag = 0;
    for (uint32_t i = 0; i < r->partitions_count; i++) {
        const struct partition *p = r->partitions[i];
        int64_t low = -1, high = -1;
        if (p->is_done || rd_kafka_get_watermark_offsets(r->client, p->topic->name, p->id, &low, &high) !=
                              RD_KAFKA_RESP_ERR_NO_ERROR)
            continue;
        int64_t end = MIN(p->end, high);
        lag += end > p->next ? end - p->next : 0;
    }
    r->figures->lag = lag;
    bool is_waiting = !is_last && os_monotonic_us() - r->taken_us > SAY_WHY_US &&
                      kafka_errors_why(r->errors, r->waits, sizeof(r->waits)) > 0;
    r->figures->waits = is_waiting ? r->waits : NULL;
    if (r->options->show != NULL)
        r->options->show(r->options->argument, r->figures, is_last);
}

static bool end_old_spans(struct recorder *r, int64_t now_us)
{
    for (uint32_t i = 0; i < r->partitions_count; i++) {
        const struct recording_writer *w = &r->partitions[i]->writer;
        if (w->is_open && now_us - w->begin_us >= r->options->span_us && !finish_span(r, r->partitions[i]))
            return false;
    }
    return true;
}

static bool record_all(struct recorder *r)
{
    rd_kafka_message_t *messages[TAKE];
    struct byte_buffer headers = {0};
    int64_t shown_us = os_monotonic_us(), looked_us = shown_us;
    r->taken_us = shown_us;
    bool is_good = true;
    while (is_good && r->done_count < r->partitions_count && !*r->options->stop) {
        is_good = take(r, messages, &headers);
        int64_t now = os_monotonic_us();
        if (is_good && now - shown_us >= SHOW_EVERY_US) {
            rd_kafka_poll(r->client, 0);
            is_good = end_old_spans(r, now);
            show(r, false);
            shown_us = now;
        }
        if (is_good && now - looked_us >= (r->is_missing ? MISSING_US : LOOK_EVERY_US)) {
            is_good = look_again(r);
            looked_us = os_monotonic_us();
        }
        if (is_good && r->has_changed)
            is_good = save(r);
    }
    buffer_free(&headers);
    return is_good;
}

/* Completes all open spans and makes them part of the recording, also after an error. */
static bool end_all(struct recorder *r)
{
    bool is_good = true;
    for (uint32_t i = 0; i < r->partitions_count; i++) {
        struct partition *p = r->partitions[i];
        is_good = finish_span(r, p) && is_good;
        reach(r, p);
    }
    return (!r->has_changed || save(r)) && is_good;
}

static void close_all(struct recorder *r)
{
    for (uint32_t i = 0; i < r->partitions_count; i++) {
        struct partition *p = r->partitions[i];
        if (!p->is_done)
            rd_kafka_consume_stop(p->topic->handle, p->id);
        recording_writer_close(&p->writer);
        free(p);
    }
    if (r->queue != NULL)
        rd_kafka_queue_destroy(r->queue);
    for (uint32_t i = 0; i < r->known_count; i++) {
        rd_kafka_topic_destroy(r->known[i]->handle);
        free(r->known[i]->partitions);
    }
    kafka_client_free(r->client, r->errors);
    kafka_topics_close(&r->topics);
    if (r->lock_fd >= 0)
        close(r->lock_fd);
    recording_packer_free(&r->packer);
    free(r->known);
    free(r->partitions);
    arena_free(&r->arena);
}

bool recorder_run(const struct recorder_options *options, struct recorder_figures *figures,
                  struct diag_list *diags)
{
    struct recorder r = {.options = options, .diags = diags, .lock_fd = -1, .figures = figures};
    *figures = (struct recorder_figures){.lag = -1};
    bool is_good =
        recording_begin(options->directory, &r.recording, &r.lock_fd, &r.arena, diags) && open_topics(&r);
    if (is_good) {
        is_good = record_all(&r);
        is_good = end_all(&r) && is_good;
        show(&r, true);
    }
    figures->waits = NULL;
    close_all(&r);
    return is_good;
}
