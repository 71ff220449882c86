/* Reads the records of a recorded partition, in order. */
#include "connectors/kafka/recording_form.h"

#include "connectors/file/input.h"

#include "core/mem.h"

#include <inttypes.h>
#include <stdlib.h>

enum { READ_BYTES = 1 << 18 };
/* Too small for Kafka's largest possible record (2 GiB), but above the limits that topics have. */
#define RECORD_BYTES_MAX ((size_t)512 << 20)

static const struct span no_span = {0, 0};

struct recording_reader {
    const struct recording_partition *partition;
    struct diag_list *diags;
    pthread_mutex_t *mutex;
    uint32_t span; /* index of the span being read */
    bool is_open;
    bool is_failed;
    int64_t next;     /* records below this offset are skipped */
    int64_t last;     /* offset of the last record of the open span; -1: none */
    uint64_t records; /* read of the open span so far */
    struct file_input input;
    struct byte_buffer bytes;
    size_t at;                      /* how many of `bytes` are consumed */
    bool has_ended;                 /* the input gives no more bytes */
    int64_t done_bytes, span_bytes; /* on disk: read so far (atomic); of the spans before the open one */
    struct arena scratch;
    struct recorded given; /* the last record returned */
    bool is_back;          /* return it once more */
};

struct recording_reader *recording_reader_new(const struct recording_partition *partition,
                                              struct diag_list *diags, pthread_mutex_t *mutex)
{
    struct recording_reader *reader = mem_calloc(1, sizeof(*reader));
    reader->partition = partition;
    reader->diags = diags;
    reader->mutex = mutex;
    reader->next = partition->first;
    return reader;
}

static void close_span(struct recording_reader *reader)
{
    if (reader->is_open)
        input_close(&reader->input);
    reader->is_open = false;
}

void recording_reader_free(struct recording_reader *reader)
{
    if (reader == NULL)
        return;
    close_span(reader);
    buffer_free(&reader->bytes);
    arena_free(&reader->scratch);
    free(reader);
}

int64_t recording_reader_done_bytes(const struct recording_reader *reader)
{
    return __atomic_load_n(&reader->done_bytes, __ATOMIC_RELAXED);
}

/* --- Errors --- */

static void lock(struct recording_reader *reader)
{
    if (reader->mutex != NULL)
        pthread_mutex_lock(reader->mutex);
}

static void unlock(struct recording_reader *reader)
{
    if (reader->mutex != NULL)
        pthread_mutex_unlock(reader->mutex);
}

static enum recorded_status fail(struct recording_reader *reader, enum diag_code code, const char *what,
                                 int error)
{
    const struct recording_span *span = &reader->partition->spans[reader->span];
    lock(reader);
    struct diag *d = reader->last >= 0
                         ? diag_error(reader->diags, code, no_span, "`%s`, behind offset %" PRId64 ": %s",
                                      span->path, reader->last, what)
                         : diag_error(reader->diags, code, no_span, "`%s`: %s", span->path, what);
    if (error != 0)
        diag_errno(reader->diags, d, error);
    diag_hint(
        reader->diags, d,
        "records that a recording lacks would be missing in every replay: copy the file again, or record "
        "the topic anew");
    unlock(reader);
    reader->is_failed = true;
    return RECORDED_ERROR;
}

/* --- Spans --- */

bool recording_reader_seek(struct recording_reader *reader, int64_t offset)
{
    const struct recording_partition *p = reader->partition;
    close_span(reader);
    reader->is_back = false;
    if (offset < p->first || offset > p->next) {
        lock(reader);
        struct diag *d =
            diag_error(reader->diags, DIAG_RECORDS_GONE, no_span,
                       "the recording of `%s` has no offset %" PRId64 ": it has %" PRId64 " to %" PRId64,
                       p->name, offset, p->first, p->next);
        diag_hint(reader->diags, d,
                  offset < p->first
                      ? "add a recording of the earlier offsets"
                      : "record the later offsets: `leat record` continues where a recording ends");
        unlock(reader);
        reader->is_failed = true;
        return false;
    }
    reader->span = 0;
    int64_t before = 0;
    while (reader->span < p->spans_count && p->spans[reader->span].next <= offset)
        before += p->spans[reader->span++].bytes;
    reader->span_bytes = before;
    __atomic_store_n(&reader->done_bytes, before, __ATOMIC_RELAXED);
    reader->next = offset;
    reader->is_failed = false;
    return true;
}

static bool open_span(struct recording_reader *reader)
{
    const struct recording_span *span = &reader->partition->spans[reader->span];
    reader->records = 0;
    reader->last = -1;
    reader->at = 0;
    reader->has_ended = false;
    buffer_clear(&reader->bytes);
    if (!input_open(&reader->input, span->path, span->bytes)) {
        fail(reader, reader->input.error, reader->input.reason, reader->input.error_number);
        input_close(&reader->input);
        return false;
    }
    reader->is_open = true;
    return true;
}

/* Closes a span that was read to its end, and checks its count of records with the manifest. */
static enum recorded_status end_span(struct recording_reader *reader)
{
    const struct recording_span *span = &reader->partition->spans[reader->span];
    if (reader->at < reader->bytes.length)
        return fail(reader, DIAG_FILE_DAMAGED, "the file ends within a record", 0);
    if (reader->records != span->records)
        return fail(reader, DIAG_FILE_DAMAGED, "the file does not have as many records as the manifest says",
                    0);
    close_span(reader);
    reader->next = MAX(reader->next, span->next);
    reader->span_bytes += span->bytes;
    __atomic_store_n(&reader->done_bytes, reader->span_bytes, __ATOMIC_RELAXED);
    reader->span++;
    return RECORDED;
}

/* Reads more bytes behind those not consumed; at the input's end sets has_ended. False after a diagnostic. */
static bool read_more(struct recording_reader *reader)
{
    size_t got = 0;
    struct byte_buffer *bytes = &reader->bytes;
    if (reader->at > 0)
        memmove(bytes->data, bytes->data + reader->at, bytes->length - reader->at);
    bytes->length -= reader->at;
    reader->at = 0;
    if (bytes->length > RECORD_BYTES_MAX) {
        fail(reader, DIAG_FILE_DAMAGED, "a record has no end", 0);
        return false;
    }
    size_t room = MAX((size_t)READ_BYTES, bytes->length);
    if (!input_read(&reader->input, buffer_reserve(bytes, room), room, &got)) {
        fail(reader, reader->input.error, reader->input.reason, reader->input.error_number);
        return false;
    }
    bytes->length += got;
    reader->has_ended = got == 0;
    __atomic_store_n(&reader->done_bytes, reader->span_bytes + reader->input.disk_offset, __ATOMIC_RELAXED);
    return true;
}

/* --- Records --- */

static bool is_msgpack(const struct recording_span *span)
{
    return strstr(span->file, ".msgpack") != NULL;
}

/* Parses the open span's next record. is_there: false if more bytes are needed. NULL, or what is wrong. */
static const char *take(struct recording_reader *reader, struct recorded *record, bool *is_there)
{
    const struct recording_span *span = &reader->partition->spans[reader->span];
    struct str left = {reader->bytes.data + reader->at, reader->bytes.length - reader->at};
    const char *why = NULL;
    *is_there = false;
    arena_reset(&reader->scratch);
    if (left.length == 0)
        return NULL;
    if (is_msgpack(span)) {
        size_t used;
        why = recorded_from_msgpack(left, &reader->scratch, record, &used);
        *is_there = why == NULL && used > 0;
        reader->at += used;
        return why;
    }
    const char *end = memchr(left.data, '\n', left.length);
    if (end == NULL)
        return NULL;
    left.length = (size_t)(end - left.data);
    why = recorded_from_json(left, &reader->scratch, record);
    *is_there = why == NULL;
    reader->at += left.length + 1;
    return why;
}

/* Reads the next record of the open span, whatever its offset. RECORDED_END: the span has no more. */
static enum recorded_status next_of_span(struct recording_reader *reader, struct recorded *record)
{
    const struct recording_span *span = &reader->partition->spans[reader->span];
    for (;;) {
        bool is_there;
        const char *why = take(reader, record, &is_there);
        if (why != NULL)
            return fail(reader, DIAG_FILE_DAMAGED, why, 0);
        if (!is_there && reader->has_ended)
            return RECORDED_END;
        if (!is_there && !read_more(reader))
            return RECORDED_ERROR;
        if (!is_there)
            continue;
        if (record->offset <= reader->last || record->offset < span->first || record->offset >= span->next)
            return fail(reader, DIAG_FILE_DAMAGED, "offsets do not rise, or are outside the span", 0);
        reader->last = record->offset;
        reader->records++;
        record->record.partition = reader->partition->id;
        return RECORDED;
    }
}

enum recorded_status recording_reader_next(struct recording_reader *reader, struct recorded *record)
{
    if (reader->is_back) {
        reader->is_back = false;
        *record = reader->given;
        return RECORDED;
    }
    while (!reader->is_failed && reader->span < reader->partition->spans_count) {
        if (!reader->is_open && !open_span(reader))
            return RECORDED_ERROR;
        enum recorded_status status = next_of_span(reader, record);
        if (status == RECORDED_END)
            status = end_span(reader);
        else if (status == RECORDED && record->offset >= reader->next) {
            reader->next = record->offset + 1;
            reader->given = *record;
            return RECORDED;
        }
        if (status == RECORDED_ERROR)
            return RECORDED_ERROR;
    }
    return reader->is_failed ? RECORDED_ERROR : RECORDED_END;
}

void recording_reader_back(struct recording_reader *reader)
{
    leat_assert(!reader->is_back);
    reader->is_back = true;
}
