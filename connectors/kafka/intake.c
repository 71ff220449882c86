#include "connectors/kafka/intake.h"

#include "connectors/kafka/record.h"

enum { DATA_BYTES_FIRST = 16 << 10 };

static void begin(struct kafka_intake *intake, const struct kafka_meta *meta)
{
    struct arena *arena = &intake->arena;
    bool has_texts = meta->key.name.length > 0 || meta->headers_count > 0;
    struct kafka_frame *frame = intake->frame = arena_new(arena, struct kafka_frame);
    frame->times = arena_alloc(arena, BATCH_ROWS * sizeof(*frame->times));
    frame->offsets = arena_alloc(arena, BATCH_ROWS * sizeof(*frame->offsets));
    if (has_texts)
        frame->texts = arena_alloc(arena, BATCH_ROWS * (1 + meta->headers_count) * sizeof(*frame->texts));
    intake->records = arena_alloc(arena, BATCH_ROWS * sizeof(*intake->records));
    intake->room = MAX(intake->usual, (size_t)DATA_BYTES_FIRST);
    intake->data = arena_alloc(arena, intake->room + RAW_PADDING);
}

static void grow(struct kafka_intake *intake, size_t bytes)
{
    intake->room = MAX(2 * intake->room, intake->used + bytes);
    char *data = arena_alloc(&intake->arena, intake->room + RAW_PADDING);
    memcpy(data, intake->data, intake->used);
    intake->data = data;
}

static void flag(struct kafka_intake *intake, uint8_t what)
{
    if (what == 0)
        return;
    if (intake->frame->flags == NULL)
        intake->frame->flags = arena_calloc(&intake->arena, BATCH_ROWS, 1);
    intake->frame->flags[intake->count] = what;
}

/* Appends payload, time and offset of a record. A newline follows the payload, so that decoders that scan for
 * a line end stop there. payload NULL: it has none. */
static inline void add(struct kafka_intake *intake, const struct kafka_meta *meta, const void *payload,
                       size_t length, int64_t time_us, int64_t offset)
{
    size_t bytes = kafka_payload_bytes(length);
    if (unlikely(intake->frame == NULL))
        begin(intake, meta);
    if (unlikely(intake->room - intake->used < bytes + 1))
        grow(intake, bytes + 1);
    char *at = intake->data + intake->used;
    intake->records[intake->count] = (struct raw_record){(uint32_t)intake->used, (uint32_t)bytes};
    if (bytes > 0)
        memcpy(at, payload, bytes);
    at[bytes] = '\n';
    intake->frame->times[intake->count] = time_us;
    intake->frame->offsets[intake->count] = offset;
    intake->used += bytes + 1;
    intake->payload_bytes += bytes;
    if (unlikely(payload == NULL))
        flag(intake, KAFKA_TOMBSTONE);
    if (unlikely(bytes > SOURCE_RECORD_BYTES_MAX))
        flag(intake, KAFKA_TOO_LONG);
}

/* Adds the key (which 0) or a header (which 1 ...) of the record being added; data NULL: it has none. */
static void add_text(struct kafka_intake *intake, const struct kafka_meta *meta, uint32_t which,
                     struct str text)
{
    struct text_ref *ref = &intake->frame->texts[intake->count * (1 + meta->headers_count) + which];
    bool is_null = text.data == NULL;
    *ref =
        (struct text_ref){(uint32_t)intake->heap.length, is_null ? KAFKA_TEXT_NULL : (uint32_t)text.length};
    buffer_append(&intake->heap, text.data, is_null ? 0 : text.length);
}

/* Keeps key and all headers of the record being added; headers: as in record.h. */
static void keep_original(struct kafka_intake *intake, struct str key, struct str headers)
{
    kafka_frame_keep(intake->frame, intake->count, BATCH_ROWS, key, headers, &intake->arena);
}

/* --- Live --- */

static struct str find_header(rd_kafka_headers_t *headers, const char *name)
{
    const void *data = NULL;
    size_t bytes = 0;
    if (headers == NULL ||
        rd_kafka_header_get_last(headers, name, &data, &bytes) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return (struct str){NULL, 0};
    return (struct str){data, bytes};
}

static void add_texts(struct kafka_intake *intake, const struct kafka_meta *meta,
                      const rd_kafka_message_t *message)
{
    rd_kafka_headers_t *headers = NULL;
    add_text(intake, meta, 0, (struct str){message->key, message->key_len});
    if (meta->headers_count > 0 && rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR)
        headers = NULL;
    for (uint32_t i = 0; i < meta->headers_count; i++)
        add_text(intake, meta, 1 + i, find_header(headers, meta->header_names[i]));
}

void kafka_intake_add(struct kafka_intake *intake, const struct kafka_meta *meta,
                      const rd_kafka_message_t *message)
{
    add(intake, meta, message->payload, message->len, kafka_time_ms(message) * 1000, message->offset);
    if (intake->frame->texts != NULL)
        add_texts(intake, meta, message);
    if (meta->keeps_originals) {
        struct byte_buffer *headers = &intake->headers;
        buffer_clear(headers);
        record_put_headers_of(message, headers);
        keep_original(intake, (struct str){message->key, message->key_len},
                      (struct str){headers->data, headers->length});
    }
    intake->count++;
}

/* --- Recorded --- */

/* Of several headers with one name the last counts, as live. */
static void add_recorded_texts(struct kafka_intake *intake, const struct kafka_meta *meta,
                               const struct kafka_record *record)
{
    struct str found[KAFKA_HEADERS_MAX] = {{NULL, 0}}, rest = record->headers, name, value;
    while (meta->headers_count > 0 && record_take_header(&rest, &name, &value))
        for (uint32_t i = 0; i < meta->headers_count; i++)
            if (str_is(name, meta->header_names[i]))
                found[i] = value;
    add_text(intake, meta, 0, record->key);
    for (uint32_t i = 0; i < meta->headers_count; i++)
        add_text(intake, meta, 1 + i, found[i]);
}

void kafka_intake_add_recorded(struct kafka_intake *intake, const struct kafka_meta *meta,
                               const struct recorded *recorded)
{
    const struct kafka_record *record = &recorded->record;
    add(intake, meta, record->value.data, record->value.length, MAX(recorded->time_ms, 0) * 1000,
        recorded->offset);
    if (intake->frame->texts != NULL)
        add_recorded_texts(intake, meta, record);
    if (meta->keeps_originals)
        keep_original(intake, record->key, record->headers);
    intake->count++;
}

/* --- Batches --- */

void kafka_intake_move(struct kafka_intake *intake, const struct kafka_meta *meta,
                       const struct kafka_intake *from, uint32_t row)
{
    const struct kafka_frame *frame = from->frame;
    uint32_t each = 1 + meta->headers_count;
    add(intake, meta, from->data + from->records[row].offset, from->records[row].length, frame->times[row],
        frame->offsets[row]);
    flag(intake, frame->flags == NULL ? 0 : frame->flags[row]);
    for (uint32_t i = 0; frame->texts != NULL && i < each; i++) {
        struct text_ref ref = frame->texts[row * each + i];
        bool is_null = ref.length == KAFKA_TEXT_NULL;
        add_text(intake, meta, i,
                 is_null ? (struct str){NULL, 0} : (struct str){from->heap.data + ref.offset, ref.length});
    }
    if (frame->keys != NULL)
        keep_original(intake, frame->keys[row], frame->headers[row]);
    intake->count++;
}

void kafka_intake_clear(struct kafka_intake *intake)
{
    arena_reset(&intake->arena);
    buffer_clear(&intake->heap);
    intake->count = 0;
    intake->payload_bytes = intake->used = intake->room = 0;
    intake->frame = NULL;
}

static void give_bytes(struct kafka_intake *intake, struct raw_batch *raw)
{
    struct kafka_frame *frame = intake->frame;
    frame->heap_bytes = intake->heap.length;
    if (frame->texts != NULL) {
        char *heap = arena_alloc(&intake->arena, frame->heap_bytes + RAW_PADDING);
        if (frame->heap_bytes > 0)
            memcpy(heap, intake->heap.data, frame->heap_bytes);
        frame->heap = heap;
    }
    raw->data = intake->data;
    raw->data_bytes = intake->used;
    raw->records = intake->records;
    raw->count = intake->count;
    raw->extra = frame;
    raw->offsets = frame->offsets;
    intake->usual = MIN(intake->used + intake->used / 8, 2 * (size_t)SOURCE_BATCH_BYTES);
    struct arena given = intake->arena;
    intake->arena = raw->arena; /* the engine has reset it */
    raw->arena = given;
}

struct kafka_mark kafka_intake_give(struct kafka_intake *intake, const struct kafka_begin *begin, bool is_cut,
                                    struct raw_batch *raw)
{
    uint32_t count = intake->count;
    leat_assert(count > 0);
    const struct raw_record *last = &intake->records[count - 1];
    struct kafka_frame *frame = intake->frame;
    struct batch_share carried = intake->carried;
    intake->carried =
        is_cut ? (struct batch_share){0}
               : (struct batch_share){carried.records + count, carried.bytes + intake->payload_bytes};
    frame->topic = begin->topic;
    frame->partition = begin->partition;
    struct kafka_mark mark = mark_of(frame->offsets[count - 1], frame->times[count - 1] / 1000,
                                     (struct str){intake->data + last->offset, last->length});
    raw->position =
        (struct source_position){.a = batch_share_put(carried), .b = begin->next, .record = begin->records};
    raw->next = (struct source_position){
        .a = batch_share_put(intake->carried), .b = mark.offset + 1, .record = begin->records + count};
    raw->path = begin->name;
    raw->first_line = raw->first_offset = -1;
    raw->header = (struct str){"", 0};
    give_bytes(intake, raw);
    kafka_intake_clear(intake);
    return mark;
}

void kafka_intake_free(struct kafka_intake *intake)
{
    arena_free(&intake->arena);
    buffer_free(&intake->heap);
    buffer_free(&intake->headers);
    *intake = (struct kafka_intake){0};
}
