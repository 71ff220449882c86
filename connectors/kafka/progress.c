#include "connectors/kafka/progress.h"

#include "core/mem.h"

#include <stdlib.h>
#include <xxhash.h>

/* Version 2: parts with a layout. All other records are of version 1. */
enum {
    VERSION_FIRST = 1,
    VERSION_LAYOUT = 2,
    KIND_LIFE = 'l',
    KIND_PART = 'p',
    KIND_ORDER = 'o',
    CHECK_BYTES = 8
};

struct key_head {
    char magic[4];
    uint8_t version, kind;
    uint16_t name_bytes;
    uint8_t run[16];
    uint64_t first, from;
};
_Static_assert(sizeof(struct key_head) == 40, "without padding");
_Static_assert(sizeof(struct progress_part) == 88 && offsetof(struct progress_part, layout) == 72,
               "without padding");
_Static_assert(sizeof(struct progress_life) == 112, "without padding");

void progress_init(struct progress *progress, const uint8_t run[16], struct str name)
{
    leat_assert(name.length <= PROGRESS_NAME_MAX);
    *progress = (struct progress){.name = name};
    memcpy(progress->run, run, 16);
}

void progress_clear(struct progress *progress)
{
    progress->begin = progress->count = 0;
    progress->has_life = false;
    progress->others = progress->foreign = 0;
    progress_orders_clear(&progress->orders);
}

void progress_free(struct progress *progress)
{
    free(progress->parts);
    progress_orders_clear(&progress->orders);
    *progress = (struct progress){0};
}

static int compare_place(const struct progress_part *part, uint64_t first, uint64_t from)
{
    if (part->first != first)
        return part->first < first ? -1 : 1;
    return part->from < from ? -1 : part->from > from;
}

/* Index of the part with that first and from, or where it would be inserted: 0 .. count. */
static uint32_t find_part(const struct progress *progress, uint64_t first, uint64_t from)
{
    uint32_t low = 0, high = progress->count;
    /* New parts usually belong at the end. */
    if (high > 0 && compare_place(progress_at(progress, high - 1), first, from) < 0)
        return high;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (compare_place(progress_at(progress, middle), first, from) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_at(const struct progress *progress, uint32_t index, uint64_t first, uint64_t from)
{
    return index < progress->count && compare_place(progress_at(progress, index), first, from) == 0;
}

static void remove_part(struct progress *progress, uint64_t first, uint64_t from)
{
    uint32_t at = find_part(progress, first, from);
    if (!is_at(progress, at, first, from))
        return;
    struct progress_part *parts = progress->parts + progress->begin;
    if (at == 0) /* nearly always: the oldest part */
        progress->begin++;
    else
        memmove(parts + at, parts + at + 1, (progress->count - at - 1) * sizeof(*parts));
    progress->count--;
}

static bool add_part(struct progress *progress, const struct progress_part *part)
{
    uint32_t at = find_part(progress, part->first, part->from);
    if (is_at(progress, at, part->first, part->from)) {
        progress->parts[progress->begin + at] = *part;
        return true;
    }
    if (progress->count == PROGRESS_PARTS_MAX)
        return false;
    if (progress->begin > 0 && progress->begin + progress->count == progress->capacity) {
        memmove(progress->parts, progress->parts + progress->begin,
                progress->count * sizeof(*progress->parts));
        progress->begin = 0;
    }
    /* The capacity is at least twice the count, so that the cost of moving parts is amortized. */
    if (2 * (progress->count + 1) > progress->capacity) {
        progress->capacity = MAX(64, 4 * (progress->count + 1));
        progress->parts = mem_realloc(progress->parts, progress->capacity * sizeof(*progress->parts));
    }
    struct progress_part *parts = progress->parts + progress->begin;
    memmove(parts + at + 1, parts + at, (progress->count - at) * sizeof(*parts));
    parts[at] = *part;
    progress->count++;
    return true;
}

static uint64_t check_of(struct str key, struct str fields)
{
    return XXH3_64bits_withSeed(fields.data, fields.length, XXH3_64bits(key.data, key.length));
}

static size_t part_bytes(uint8_t version)
{
    return version == VERSION_LAYOUT ? sizeof(struct progress_part) : offsetof(struct progress_part, layout);
}

static uint8_t part_version(const struct progress_part *part)
{
    return part->layout.partitions > 0 ? VERSION_LAYOUT : VERSION_FIRST;
}

/* Copies the value's fields. Returns false if the length or the digest is wrong. */
static bool take_fields(struct str key, struct str value, void *fields, size_t bytes)
{
    uint64_t check;
    if (value.length != bytes + CHECK_BYTES)
        return false;
    memcpy(&check, value.data + bytes, sizeof(check));
    memcpy(fields, value.data, bytes);
    return check == check_of(key, (struct str){value.data, bytes});
}

static enum progress_read apply_part(struct progress *progress, const struct key_head *head, struct str key,
                                     struct str value)
{
    struct progress_part part = {0};
    if (value.data == NULL) {
        remove_part(progress, head->first, head->from);
        return PROGRESS_READ;
    }
    if (!take_fields(key, value, &part, part_bytes(head->version)) || part.first != head->first ||
        part.from != head->from || part.next <= part.first || part.to <= part.from || part.to > part.total ||
        part_version(&part) != head->version || part.layout.partitions > INT32_MAX ||
        part.layout.since >= part.next)
        return PROGRESS_DAMAGED;
    return add_part(progress, &part) ? PROGRESS_READ : PROGRESS_DAMAGED;
}

static enum progress_read apply_life(struct progress *progress, struct str key, struct str value)
{
    struct progress_life life;
    if (value.data == NULL || !take_fields(key, value, &life, sizeof(life)) ||
        memchr(life.holder, '\0', sizeof(life.holder)) == NULL)
        return PROGRESS_DAMAGED;
    progress->life = life;
    progress->has_life = true;
    return PROGRESS_READ;
}

static enum progress_read apply_order(struct progress *progress, const struct key_head *head, struct str key,
                                      struct str value)
{
    uint64_t check;
    if (value.data != NULL) {
        if (value.length < sizeof(check))
            return PROGRESS_DAMAGED;
        value.length -= sizeof(check);
        memcpy(&check, value.data + value.length, sizeof(check));
        if (check != check_of(key, value))
            return PROGRESS_DAMAGED;
    }
    return progress_orders_apply(&progress->orders, head->first, head->from, value) ? PROGRESS_READ
                                                                                    : PROGRESS_DAMAGED;
}

/* Counts a part that another run sent. Damaged records of other runs are ignored. */
static void note_other(struct progress *progress, const struct key_head *head, struct str key,
                       struct str value)
{
    struct progress_part part;
    if (head->kind != KIND_PART || value.data == NULL ||
        !take_fields(key, value, &part, part_bytes(head->version)))
        return;
    progress->others++;
    progress->other.epoch = part.epoch;
    memcpy(progress->other.run, head->run, sizeof(head->run));
}

enum progress_read progress_apply(struct progress *progress, struct str key, struct str value)
{
    struct key_head head;
    if (key.length < sizeof(head) || memcmp(key.data, "leat", 4) != 0) {
        progress->foreign++;
        return PROGRESS_IGNORED;
    }
    memcpy(&head, key.data, sizeof(head));
    if (head.version > VERSION_LAYOUT)
        return PROGRESS_NEWER;
    struct str name = {key.data + sizeof(head), key.length - sizeof(head)};
    if (head.version == 0 || head.name_bytes != name.length || head.name_bytes > PROGRESS_NAME_MAX)
        return PROGRESS_DAMAGED;
    if (!str_equal(name, progress->name))
        return PROGRESS_IGNORED;
    if (memcmp(head.run, progress->run, sizeof(head.run)) != 0) {
        note_other(progress, &head, key, value);
        return PROGRESS_IGNORED;
    }
    return head.kind == KIND_PART    ? apply_part(progress, &head, key, value)
           : head.kind == KIND_LIFE  ? apply_life(progress, key, value)
           : head.kind == KIND_ORDER ? apply_order(progress, &head, key, value)
                                     : PROGRESS_NEWER;
}

const struct progress_part *progress_last(const struct progress *progress)
{
    return progress->count == 0 ? NULL : progress_at(progress, progress->count - 1);
}

static void put_key(const struct progress *progress, uint8_t version, uint8_t kind, uint64_t first,
                    uint64_t from, struct byte_buffer *key)
{
    struct key_head head = {.magic = {'l', 'e', 'a', 't'},
                            .version = version,
                            .kind = kind,
                            .name_bytes = (uint16_t)progress->name.length,
                            .first = first,
                            .from = from};
    memcpy(head.run, progress->run, sizeof(head.run));
    buffer_append(key, &head, sizeof(head));
    buffer_append(key, progress->name.data, progress->name.length);
}

static void put_value(struct str key, const void *fields, size_t bytes, struct byte_buffer *value)
{
    uint64_t check = check_of(key, (struct str){fields, bytes});
    buffer_append(value, fields, bytes);
    buffer_append(value, &check, sizeof(check));
}

void progress_put_key(const struct progress *progress, const struct progress_part *part,
                      struct byte_buffer *key)
{
    put_key(progress, part_version(part), KIND_PART, part->first, part->from, key);
}

void progress_put_part(const struct progress *progress, const struct progress_part *part,
                       struct byte_buffer *key, struct byte_buffer *value)
{
    size_t begin = key->length;
    leat_assert(part->first < part->next && part->from < part->to && part->to <= part->total);
    progress_put_key(progress, part, key);
    put_value((struct str){key->data + begin, key->length - begin}, part, part_bytes(part_version(part)),
              value);
}

void progress_put_life(const struct progress *progress, const struct progress_life *life,
                       struct byte_buffer *key, struct byte_buffer *value)
{
    size_t begin = key->length;
    put_key(progress, VERSION_FIRST, KIND_LIFE, 0, 0, key);
    put_value((struct str){key->data + begin, key->length - begin}, life, sizeof(*life), value);
}

void progress_put_order(const struct progress *progress, const struct progress_order *order, uint32_t piece,
                        struct str segment, struct byte_buffer *key, struct byte_buffer *value)
{
    size_t begin = key->length, at = value == NULL ? 0 : value->length;
    put_key(progress, VERSION_FIRST, KIND_ORDER, order->first, piece, key);
    if (value == NULL)
        return;
    progress_order_put(order, piece, segment, value);
    uint64_t check = check_of((struct str){key->data + begin, key->length - begin},
                              (struct str){value->data + at, value->length - at});
    buffer_append(value, &check, sizeof(check));
}
