/* Arbitrary records of a progress topic (connectors/kafka/progress.h). The input is a sequence of records,
 * each begun by a byte that says how it is made: from any bytes, or as a part, a tombstone, a life or a piece of the order
 * log with small numbers and a right checksum, so that parts touch each other. After each record the verdict and the
 * progress are those of a simple model. */
#include "connectors/kafka/progress.h"
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

enum {
    HEAD_BYTES = 40,
    PART_BYTES = 72,
    LAYOUT_BYTES = 16,
    LIFE_BYTES = 112,
    PIECE_BYTES = 32, /* before the bytes of a piece */
    CHECK_BYTES = 8,
    PARTS_MAX = 512
};

static const uint8_t run[16] = "the run";
static const struct str sink = STR("out");

static struct model {
    struct progress_part parts[PARTS_MAX];
    uint32_t count;
    bool has_life;
    uint8_t life[LIFE_BYTES];
    uint64_t others, foreign;
} model;

struct input {
    const uint8_t *at, *end;
};

static uint8_t take(struct input *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

static void take_bytes(struct input *input, struct byte_buffer *out, size_t count)
{
    count = MIN(count, (size_t)(input->end - input->at));
    buffer_append(out, input->at, count);
    input->at += count;
}

static uint64_t word(const char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

/* Bytes of a part's fields in that version. */
static size_t part_bytes(uint8_t version)
{
    return PART_BYTES + (version == 2 ? LAYOUT_BYTES : 0);
}

/* --- Records --- */

static void put_head(struct byte_buffer *key, char version, char kind, uint64_t first, uint64_t from)
{
    const uint16_t name_bytes = (uint16_t)sink.length;
    const char head[] = {'l', 'e', 'a', 't', version, kind};
    buffer_append(key, head, sizeof(head));
    buffer_append(key, &name_bytes, sizeof(name_bytes));
    buffer_append(key, run, sizeof(run));
    buffer_append(key, &first, sizeof(first));
    buffer_append(key, &from, sizeof(from));
    buffer_append(key, sink.data, sink.length);
}

static uint64_t check_of(const struct byte_buffer *key, const char *fields, size_t bytes)
{
    return XXH3_64bits_withSeed(fields, bytes, XXH3_64bits(key->data, key->length));
}

static void seal(const struct byte_buffer *key, struct byte_buffer *value)
{
    uint64_t check = check_of(key, value->data, value->length);
    buffer_append(value, &check, sizeof(check));
}

/* Changes one byte of the value, or its length, or nothing. */
static void harm(struct input *input, struct byte_buffer *value)
{
    size_t at = take(input);
    if (at < value->length)
        value->data[at] ^= (char)take(input);
    else if (at < value->length * 2)
        value->length = at - value->length;
}

static void make_part(struct input *input, struct byte_buffer *key, struct byte_buffer *value)
{
    struct progress_part part = {.epoch = take(input), .first = take(input), .from = take(input) % 8};
    part.next = part.first + take(input) % 4;
    part.to = part.from + take(input) % 4;
    part.total = part.to + take(input) % 3 - 1;
    memset(part.digest, take(input), sizeof(part.digest));
    uint8_t other = take(input); /* 1, 2: the key is that of another part */
    char version = (char)(1 + take(input) % 2);
    if (version == 2)
        part.layout = (struct layout){.since = part.first + take(input) % 4, .partitions = take(input) % 3};
    put_head(key, version, 'p', part.first + (other == 1), part.from + (other == 2));
    buffer_append(value, &part, part_bytes((uint8_t)version));
    seal(key, value);
}

static void make_life(struct input *input, struct byte_buffer *key, struct byte_buffer *value)
{
    put_head(key, 1, 'l', 0, 0);
    take_bytes(input, value, LIFE_BYTES);
    while (value->length < LIFE_BYTES)
        buffer_append(value, "x", 1);
    seal(key, value);
}

static void make_order(struct input *input, struct byte_buffer *key, struct byte_buffer *value)
{
    uint64_t first = take(input), piece = take(input) % 3, bytes = take(input);
    const uint64_t head[] = {take(input) % 3, take(input) % 3, first + take(input) % 4,
                             bytes + take(input) % 2};
    put_head(key, 1, 'o', first, piece);
    buffer_append(value, head, sizeof(head));
    take_bytes(input, value, bytes);
    seal(key, value);
}

/* Makes the next record; returns false if it is a tombstone. */
static bool make_record(struct input *input, struct byte_buffer *key, struct byte_buffer *value)
{
    uint8_t how = take(input);
    buffer_clear(key);
    buffer_clear(value);
    switch (how % 4) {
    case 0: make_part(input, key, value); break;
    case 1: (how & 8 ? make_order : make_life)(input, key, value); break;
    case 2: {
        uint64_t first = take(input);
        put_head(key, how & 8 ? 2 : 1, how & 16 ? 'o' : how & 4 ? 'l' : 'p', first, take(input) % 8);
        return false;
    }
    default:
        take_bytes(input, key, take(input));
        take_bytes(input, value, take(input));
        return (how & 4) == 0;
    }
    if ((how & 4) != 0)
        harm(input, value);
    return true;
}

/* --- The model --- */

static enum progress_read model_part(const struct byte_buffer *key, const struct byte_buffer *value,
                                     bool has_value)
{
    uint64_t first = word(key->data + 24), from = word(key->data + 32);
    uint32_t at = 0;
    while (at < model.count &&
           (model.parts[at].first < first || (model.parts[at].first == first && model.parts[at].from < from)))
        at++;
    bool is_there = at < model.count && model.parts[at].first == first && model.parts[at].from == from;
    if (!has_value) {
        for (uint32_t i = at; is_there && i + 1 < model.count; i++)
            model.parts[i] = model.parts[i + 1];
        model.count -= is_there;
        return PROGRESS_READ;
    }
    size_t bytes = part_bytes((uint8_t)key->data[4]);
    if (value->length != bytes + CHECK_BYTES ||
        word(value->data + bytes) != check_of(key, value->data, bytes))
        return PROGRESS_DAMAGED;
    const char *fields = value->data;
    uint64_t next = word(fields + 16), to = word(fields + 32), total = word(fields + 40);
    if (word(fields + 8) != first || word(fields + 24) != from || next <= first || to <= from || to > total)
        return PROGRESS_DAMAGED;
    struct layout layout = {0};
    memcpy(&layout, fields + PART_BYTES, bytes - PART_BYTES);
    if (bytes > PART_BYTES &&
        (layout.since >= next || layout.partitions == 0 || layout.partitions > INT32_MAX))
        return PROGRESS_DAMAGED;
    for (uint32_t i = model.count; !is_there && i > at; i--)
        model.parts[i] = model.parts[i - 1];
    model.count += !is_there;
    memcpy(&model.parts[at], fields, PART_BYTES);
    model.parts[at].layout = layout;
    return PROGRESS_READ;
}

static enum progress_read model_life(const struct byte_buffer *key, const struct byte_buffer *value,
                                     bool has_value)
{
    if (!has_value || value->length != LIFE_BYTES + CHECK_BYTES ||
        word(value->data + LIFE_BYTES) != check_of(key, value->data, LIFE_BYTES) ||
        strnlen(value->data + 16, PROGRESS_HOLDER_BYTES) == PROGRESS_HOLDER_BYTES)
        return PROGRESS_DAMAGED;
    model.has_life = true;
    memcpy(model.life, value->data, LIFE_BYTES);
    return PROGRESS_READ;
}

/* The verdict alone; check_orders says what holds of the segments. */
static enum progress_read model_order(const struct byte_buffer *key, const struct byte_buffer *value,
                                      bool has_value)
{
    uint64_t first = word(key->data + 24), piece = word(key->data + 32), pieces;
    if (!has_value)
        return PROGRESS_READ;
    if (value->length < CHECK_BYTES + PIECE_BYTES ||
        word(value->data + value->length - CHECK_BYTES) !=
            check_of(key, value->data, value->length - CHECK_BYTES))
        return PROGRESS_DAMAGED;
    uint64_t next = word(value->data + 16), bytes = word(value->data + 24),
             own = value->length - CHECK_BYTES - PIECE_BYTES;
    if (next <= first || bytes == 0 || bytes > (uint64_t)1 << 30)
        return PROGRESS_DAMAGED;
    pieces = (bytes - 1) / PROGRESS_ORDER_PIECE + 1;
    if (piece >= pieces)
        return PROGRESS_DAMAGED;
    uint64_t wanted =
        piece + 1 < pieces ? (uint64_t)PROGRESS_ORDER_PIECE : bytes - piece * PROGRESS_ORDER_PIECE;
    return own == wanted ? PROGRESS_READ : PROGRESS_DAMAGED;
}

static void check_orders(const struct progress_orders *orders)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < orders->count; i++) {
        const struct progress_order *order = &orders->items[i];
        must(i == 0 || orders->items[i - 1].first < order->first, "segments are in order, each once");
        must(order->got > 0 && order->got <= order->pieces && order->next > order->first,
             "a segment has its first piece");
        uint64_t sum = 0; /* the sanitizer sees whether all bytes are there */
        for (uint64_t k = 0; k < order->bytes && progress_order_is_whole(order); k++)
            sum += (uint8_t)order->data[k];
        must(sum <= order->bytes * UINT8_MAX, "a whole segment has all bytes");
        bytes += order->bytes;
    }
    must(bytes == orders->bytes, "bytes are counted");
}

static enum progress_read model_apply(const struct byte_buffer *key, const struct byte_buffer *value,
                                      bool has_value)
{
    if (key->length < HEAD_BYTES || memcmp(key->data, "leat", 4) != 0) {
        model.foreign++;
        return PROGRESS_IGNORED;
    }
    uint8_t version = (uint8_t)key->data[4], kind = (uint8_t)key->data[5];
    size_t name_bytes = (uint8_t)key->data[6] + 256u * (uint8_t)key->data[7];
    if (version > 2)
        return PROGRESS_NEWER;
    if (version == 0 || name_bytes != key->length - HEAD_BYTES || name_bytes > PROGRESS_NAME_MAX)
        return PROGRESS_DAMAGED;
    if (name_bytes != sink.length || memcmp(key->data + HEAD_BYTES, sink.data, sink.length) != 0)
        return PROGRESS_IGNORED;
    if (memcmp(key->data + 8, run, sizeof(run)) != 0) {
        model.others +=
            kind == 'p' && has_value && value->length == part_bytes(version) + CHECK_BYTES &&
            word(value->data + part_bytes(version)) == check_of(key, value->data, part_bytes(version));
        return PROGRESS_IGNORED;
    }
    return kind == 'p'   ? model_part(key, value, has_value)
           : kind == 'l' ? model_life(key, value, has_value)
           : kind == 'o' ? model_order(key, value, has_value)
                         : PROGRESS_NEWER;
}

static void compare(const struct progress *progress)
{
    must(progress->count == model.count, "as many parts");
    for (uint32_t i = 0; i < model.count; i++)
        must(memcmp(progress_at(progress, i), &model.parts[i], sizeof(model.parts[i])) == 0,
             "the same parts, in order");
    const struct progress_part *last = progress_last(progress);
    must((last == NULL) == (model.count == 0) &&
             (last == NULL || last == progress_at(progress, model.count - 1)),
         "the last is the last");
    must(progress->has_life == model.has_life &&
             (!model.has_life || memcmp(&progress->life, model.life, LIFE_BYTES) == 0),
         "the same life");
    must(progress->others == model.others && progress->foreign == model.foreign,
         "what is not ours is counted");
    check_orders(&progress->orders);
}

/* Each part must be written as it was read. */
static void write_again(const struct progress *progress)
{
    struct byte_buffer key = {0}, value = {0}, wanted = {0};
    for (uint32_t i = 0; i < progress->count; i++) {
        const struct progress_part *part = progress_at(progress, i);
        buffer_clear(&key);
        buffer_clear(&value);
        buffer_clear(&wanted);
        progress_put_part(progress, part, &key, &value);
        uint8_t version = part->layout.partitions > 0 ? 2 : 1;
        size_t bytes = part_bytes(version);
        put_head(&wanted, (char)version, 'p', part->first, part->from);
        must(key.length == wanted.length && memcmp(key.data, wanted.data, key.length) == 0, "the same key");
        must(value.length == bytes + CHECK_BYTES && memcmp(value.data, part, bytes) == 0 &&
                 word(value.data + bytes) == check_of(&key, value.data, bytes),
             "the same value");
    }
    buffer_free(&key);
    buffer_free(&value);
    buffer_free(&wanted);
}

/* A copy in malloc'd memory of exact size, for the sanitizer. */
static struct str copy(const struct byte_buffer *buffer)
{
    char *bytes = malloc(MAX(buffer->length, 1));
    must(bytes != NULL, "there is memory");
    if (buffer->length > 0)
        memcpy(bytes, buffer->data, buffer->length);
    return (struct str){bytes, buffer->length};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, data + size};
    struct byte_buffer key = {0}, value = {0};
    struct progress progress;
    progress_init(&progress, run, sink);
    progress.orders.keeps_data = true;
    model = (struct model){0};
    while (input.at < input.end && model.count < PARTS_MAX - 1) {
        bool has_value = make_record(&input, &key, &value);
        struct str key_copy = copy(&key), value_copy = copy(&value);
        enum progress_read read =
            progress_apply(&progress, key_copy, has_value ? value_copy : (struct str){NULL, 0});
        must(read == model_apply(&key, &value, has_value), "the same verdict");
        compare(&progress);
        free((char *)key_copy.data);
        free((char *)value_copy.data);
    }
    write_again(&progress);
    progress_clear(&progress);
    must(progress_last(&progress) == NULL && !progress.has_life, "nothing is left");
    progress_free(&progress);
    buffer_free(&key);
    buffer_free(&value);
    return 0;
}
