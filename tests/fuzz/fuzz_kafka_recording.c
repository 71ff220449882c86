/* Arbitrary records of recordings (connectors/kafka/recording_form.h). The first byte says which form the
 * other bytes have: a line of JSON, or msgpack. A record that can be read, and one with the input's bytes as
 * payload, key and header, are written in both forms and must be read back unchanged. */
#include "connectors/kafka/json_walk.h"
#include "connectors/kafka/recording_form.h"
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>

static bool is_same(struct str a, struct str b)
{
    return (a.data == NULL) == (b.data == NULL) && str_equal(a, b);
}

static void check_same(const struct recorded *a, const struct recorded *b)
{
    must(a->offset == b->offset && a->time_ms == b->time_ms, "offset and time come back");
    must(is_same(a->record.key, b->record.key), "the key comes back");
    must(is_same(a->record.value, b->record.value), "the payload comes back");
    must(str_equal(a->record.headers, b->record.headers), "headers come back");
}

/* A copy in the arena, so that AddressSanitizer sees a read beyond its end. */
static struct str alone(struct arena *arena, const struct byte_buffer *buffer)
{
    return arena_str(arena, (struct str){buffer->data, buffer->length});
}

static void check_forms(const struct recorded *record, struct arena *arena)
{
    struct byte_buffer out = {0};
    struct recorded again;
    size_t used;
    recorded_put_json(record, &out);
    must(out.length > 0 && memchr(out.data, '\n', out.length) == out.data + out.length - 1,
         "a record is one line");
    struct str line = alone(arena, &out);
    line.length--;
    must(json_walk_value(line.data, line.data + line.length) == line.data + line.length,
         "a line is one JSON value");
    must(recorded_from_json(line, arena, &again) == NULL, "what is written as JSON can be read");
    check_same(record, &again);
    buffer_clear(&out);
    recorded_put_msgpack(record, &out);
    struct str packed = alone(arena, &out);
    must(recorded_from_msgpack(packed, arena, &again, &used) == NULL && used == packed.length,
         "what is written as msgpack can be read");
    check_same(record, &again);
    packed.length--;
    must(recorded_from_msgpack(packed, arena, &again, &used) == NULL && used == 0,
         "half a record wants more");
    buffer_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {0};
    struct recorded record;
    struct byte_buffer headers = {0};
    if (size == 0)
        return 0;
    struct str text = arena_str(&arena, (struct str){(const char *)data + 1, size - 1});
    size_t used = 0;
    if (data[0] & 1 ? recorded_from_msgpack(text, &arena, &record, &used) == NULL && used > 0
                    : recorded_from_json(text, &arena, &record) == NULL)
        check_forms(&record, &arena);
    struct str half = {text.data, text.length / 2};
    record_put_header(&headers, half, text);
    record =
        (struct recorded){.offset = data[0],
                          .time_ms = (int64_t)size - 5,
                          .record = {.key = half, .value = text, .headers = {headers.data, headers.length}}};
    check_forms(&record, &arena);
    buffer_free(&headers);
    arena_free(&arena);
    return 0;
}
