#include "core/order_log.h"

#include "core/mem.h"
#include "core/varint.h"

#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { MAGIC_BYTES = 8 };

static const char magic[MAGIC_BYTES + 1] = "leatord2";

/* --- Writing --- */

static void put_varint(struct byte_buffer *out, uint64_t value)
{
    char *at = buffer_reserve(out, VARINT_BYTES_MAX);
    out->length += (size_t)(varint_put(at, value) - at);
}

static void put_text(struct byte_buffer *out, struct str text)
{
    leat_assert(text.length <= ORDER_NAME_MAX);
    put_varint(out, text.length);
    buffer_append(out, text.data, text.length);
}

void order_put(struct byte_buffer *out, enum order_tag tag)
{
    *buffer_reserve(out, 1) = (char)tag;
    out->length++;
}

void order_put_of(struct byte_buffer *out, enum order_tag tag, uint32_t partition)
{
    order_put(out, tag);
    put_varint(out, partition);
}

void order_put_tick(struct byte_buffer *out, int64_t time)
{
    order_put(out, ORDER_TICK);
    put_varint(out, zigzag((uint64_t)time));
}

void order_put_load(struct byte_buffer *out, uint32_t level)
{
    order_put_of(out, ORDER_LOAD, level);
}

void order_put_partition(struct byte_buffer *out, enum order_tag tag, const struct order_partition *partition)
{
    order_put_of(out, tag, partition->id);
    put_text(out, partition->source);
    put_text(out, partition->name);
    put_varint(out, partition->records);
    put_varint(out, zigzag((uint64_t)partition->time));
    put_varint(out, partition->is);
    if (partition->is & ORDER_HAS_OFFSETS)
        put_varint(out, zigzag((uint64_t)partition->offset));
}

void order_put_slice(struct byte_buffer *out, const struct order_slice *slice)
{
    order_put_of(out, ORDER_SLICE, slice->partition);
    put_varint(out, slice->records);
    put_varint(out, zigzag((uint64_t)slice->time - (uint64_t)slice->time_before));
    if (slice->has_offset)
        put_varint(out,
                   zigzag((uint64_t)slice->offset + 1 - (uint64_t)slice->offset_before - slice->records));
}

static void digest_of(const char *data, size_t bytes, uint8_t digest[ORDER_DIGEST_BYTES])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, bytes));
    memcpy(digest, canonical.digest, ORDER_DIGEST_BYTES);
}

void order_seal(struct order_head *head, struct str partitions, struct str entries, struct str more,
                uint64_t slices, uint64_t records, struct byte_buffer *out)
{
    size_t begin = out->length;
    buffer_append(out, magic, MAGIC_BYTES);
    buffer_append(out, head, sizeof(*head));
    size_t body = out->length;
    buffer_append(out, partitions.data, partitions.length);
    buffer_append(out, entries.data, entries.length);
    buffer_append(out, more.data, more.length);
    order_put(out, ORDER_EPOCH);
    put_varint(out, slices);
    put_varint(out, records);
    head->bytes = out->length - body;
    leat_assert(head->bytes <= ORDER_SEGMENT_MAX);
    memcpy(out->data + begin + MAGIC_BYTES, head, sizeof(*head));
    uint8_t digest[ORDER_DIGEST_BYTES];
    digest_of(out->data + begin, out->length - begin, digest);
    buffer_append(out, digest, sizeof(digest));
}

_Static_assert(sizeof(struct order_head) + MAGIC_BYTES == ORDER_HEAD_BYTES, "the head is written as it is");

/* --- Reading --- */

const char *order_head_read(struct str text, struct order_head *head)
{
    if (text.length < ORDER_HEAD_BYTES)
        return "it ends within the head of a segment";
    if (memcmp(text.data, magic, MAGIC_BYTES - 1) != 0)
        return "it is not an order log";
    if (text.data[MAGIC_BYTES - 1] != magic[MAGIC_BYTES - 1])
        return "it is an order log of another version of leat";
    memcpy(head, text.data + MAGIC_BYTES, sizeof(*head));
    if (head->bytes > ORDER_SEGMENT_MAX || head->next < head->first)
        return "the head of a segment is invalid";
    return NULL;
}

bool order_open(struct order_reader *reader, struct str text)
{
    *reader = (struct order_reader){0};
    reader->why = order_head_read(text, &reader->head);
    if (reader->why != NULL)
        return false;
    uint64_t bytes = order_segment_bytes(&reader->head);
    if (text.length < bytes) {
        reader->why = "it ends within a segment";
        return false;
    }
    uint8_t digest[ORDER_DIGEST_BYTES];
    digest_of(text.data, bytes - ORDER_DIGEST_BYTES, digest);
    if (memcmp(digest, text.data + bytes - ORDER_DIGEST_BYTES, ORDER_DIGEST_BYTES) != 0) {
        reader->why = "the digest of a segment does not match its bytes";
        return false;
    }
    reader->begin = text.data;
    reader->at = text.data + ORDER_HEAD_BYTES;
    reader->end = reader->at + reader->head.bytes;
    reader->micro_batch = reader->head.first;
    return true;
}

void order_close(struct order_reader *reader)
{
    free(reader->places);
    reader->places = NULL;
}

static uint64_t take_varint(struct order_reader *reader)
{
    uint64_t value;
    const char *behind = varint_take(reader->at, reader->end, &value);
    if (behind == NULL) {
        reader->why = "an entry ends too early";
        return 0;
    }
    reader->at = behind;
    return value;
}

static struct str take_text(struct order_reader *reader)
{
    uint64_t length = take_varint(reader);
    if (reader->why == NULL && (length > ORDER_NAME_MAX || length > (uint64_t)(reader->end - reader->at)))
        reader->why = "a name is longer than its entry";
    if (reader->why != NULL)
        return (struct str){"", 0};
    struct str text = {reader->at, length};
    reader->at += length;
    return text;
}

static void take_partition(struct order_reader *reader, struct order_entry *entry)
{
    struct order_partition *added = &entry->added;
    uint64_t id = take_varint(reader);
    added->id = entry->partition = (uint32_t)MIN(id, UINT32_MAX);
    added->source = take_text(reader);
    added->name = take_text(reader);
    added->records = take_varint(reader);
    added->time = (int64_t)unzigzag(take_varint(reader));
    uint64_t is = take_varint(reader);
    added->is = (unsigned)(is & ORDER_IS_ALL);
    added->offset = added->is & ORDER_HAS_OFFSETS ? (int64_t)unzigzag(take_varint(reader)) : 0;
    if (reader->why == NULL && is > ORDER_IS_ALL)
        reader->why = "a partition has unknown flags";
    if (reader->why == NULL &&
        ((reader->has_begun && entry->tag == ORDER_PARTITION) || added->id != reader->partitions ||
         reader->partitions == ORDER_PARTITIONS_MAX))
        reader->why = "a partition is declared in a wrong place";
    if (reader->why != NULL)
        return;
    if ((reader->partitions & (reader->partitions - 1)) == 0) { /* the array is full at powers of two */
        reader->places =
            mem_realloc(reader->places, MAX(reader->partitions * 2, 1) * sizeof(*reader->places));
    }
    reader->places[reader->partitions++] =
        (struct order_place){added->time, added->offset, (added->is & ORDER_HAS_OFFSETS) != 0};
}

static void take_known_partition(struct order_reader *reader, struct order_entry *entry)
{
    uint64_t id = take_varint(reader);
    if (reader->why == NULL && id >= reader->partitions)
        reader->why = "an entry names a partition that the log does not have";
    entry->partition = (uint32_t)MIN(id, UINT32_MAX);
}

static void take_slice(struct order_reader *reader, struct order_entry *entry)
{
    take_known_partition(reader, entry);
    entry->records = take_varint(reader);
    uint64_t difference = unzigzag(take_varint(reader));
    struct order_place *place = reader->why == NULL ? &reader->places[entry->partition] : NULL;
    entry->has_offset = place != NULL && place->has_offsets;
    uint64_t gap = entry->has_offset ? unzigzag(take_varint(reader)) : 0;
    if (reader->why == NULL && (entry->records == 0 || entry->records > UINT32_MAX))
        reader->why = "a slice has an invalid number of records";
    if (reader->why != NULL)
        return;
    entry->time = place->time = (int64_t)((uint64_t)place->time + difference);
    if (entry->has_offset) {
        place->offset = (int64_t)((uint64_t)place->offset + entry->records + gap);
        entry->offset = (int64_t)((uint64_t)place->offset - 1);
    }
    reader->slices++;
    reader->records += entry->records;
}

static void take_load(struct order_reader *reader, struct order_entry *entry)
{
    uint64_t level = take_varint(reader);
    if (reader->why == NULL && level > ORDER_LOAD_MAX)
        reader->why = "a load is above the maximum";
    entry->load = (uint32_t)MIN(level, (uint64_t)ORDER_LOAD_MAX);
}

static void take_epoch(struct order_reader *reader, struct order_entry *entry)
{
    entry->slices = take_varint(reader);
    entry->records = take_varint(reader);
    reader->has_ended = true;
    if (reader->why == NULL && (entry->slices != reader->slices || entry->records != reader->records ||
                                reader->micro_batch != reader->head.next || reader->at != reader->end))
        reader->why = "the counts at a segment's end do not match its entries";
}

bool order_next(struct order_reader *reader, struct order_entry *entry)
{
    *entry = (struct order_entry){0};
    if (reader->why != NULL || reader->has_ended)
        return false;
    if (reader->at == reader->end) {
        reader->why = "a segment has no end entry";
        return false;
    }
    entry->tag = (enum order_tag)(uint8_t)*reader->at++;
    bool is_first = entry->tag == ORDER_PARTITION;
    switch (entry->tag) {
    case ORDER_PARTITION:
    case ORDER_ADDED: take_partition(reader, entry); break;
    case ORDER_SLICE: take_slice(reader, entry); break;
    case ORDER_ENDED:
    case ORDER_IDLE:
    case ORDER_CUT: take_known_partition(reader, entry); break;
    case ORDER_MICRO_BATCH:
    case ORDER_ENDED_ALL:
    case ORDER_LAST: break;
    case ORDER_TICK: entry->time = (int64_t)unzigzag(take_varint(reader)); break;
    case ORDER_LOAD: take_load(reader, entry); break;
    case ORDER_EPOCH: take_epoch(reader, entry); break;
    default:
        reader->why =
            (unsigned)entry->tag >= ORDER_LIVE_FIRST && (unsigned)entry->tag <= ORDER_LIVE_LAST
                ? "it has an entry of a live source, which this version of leat cannot execute again"
                : "it has an entry of an unknown type";
    }
    reader->has_begun |= !is_first;
    reader->micro_batch += entry->tag == ORDER_MICRO_BATCH || entry->tag == ORDER_CUT ||
                           entry->tag == ORDER_ENDED_ALL || entry->tag == ORDER_LAST;
    return reader->why == NULL;
}

const char *order_figures(struct str text, struct order_figures *figures)
{
    struct order_reader reader;
    struct order_entry entry;
    *figures = (struct order_figures){0};
    if (order_open(&reader, text))
        while (order_next(&reader, &entry))
            figures->entries++;
    figures->head = reader.head;
    figures->partitions = reader.partitions;
    figures->slices = reader.slices;
    figures->records = reader.records;
    figures->bytes = order_segment_bytes(&reader.head);
    order_close(&reader);
    return reader.why;
}
