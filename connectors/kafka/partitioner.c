#include "connectors/kafka/partitioner.h"

void layouts_add(struct layouts *layouts, struct layout layout)
{
    uint32_t at = layouts->count;
    while (at > 0 && layouts->items[at - 1].since >= layout.since)
        at--;
    if (at < layouts->count && layouts->items[at].since == layout.since) {
        layouts->items[at] = layout;
        return;
    }
    if (layouts->count == LAYOUTS_MAX) {
        if (at == 0)
            return;
        memmove(layouts->items, layouts->items + 1, (LAYOUTS_MAX - 1) * sizeof(layout));
        layouts->count--;
        at--;
    }
    memmove(layouts->items + at + 1, layouts->items + at, (layouts->count - at) * sizeof(layout));
    layouts->items[at] = layout;
    layouts->count++;
}

struct layout layouts_at(const struct layouts *layouts, uint64_t micro_batch)
{
    for (uint32_t i = layouts->count; i > 0; i--)
        if (layouts->items[i - 1].since <= micro_batch)
            return layouts->items[i - 1];
    return (struct layout){0};
}

struct layout layouts_last(const struct layouts *layouts)
{
    return layouts->count == 0 ? (struct layout){0} : layouts->items[layouts->count - 1];
}

uint32_t partitioner_hash(struct str key)
{
    const uint32_t seed = 0x9747b28c, m = 0x5bd1e995;
    uint32_t hash = seed ^ (uint32_t)key.length;
    size_t at = 0;
    for (; at + 4 <= key.length; at += 4) {
        uint32_t k;
        memcpy(&k, key.data + at, sizeof(k));
        k *= m;
        k ^= k >> 24;
        hash = (hash * m) ^ (k * m);
    }
    uint32_t rest = 0;
    for (size_t i = key.length; i > at; i--)
        rest = rest << 8 | (uint8_t)key.data[i - 1];
    if (at < key.length)
        hash = (hash ^ rest) * m;
    hash ^= hash >> 13;
    hash *= m;
    return hash ^ hash >> 15;
}

int32_t partitioner_choose(const struct kafka_record *record, uint64_t micro_batch, uint32_t partitions)
{
    if (record->partition >= 0 || partitions == 0)
        return record->partition;
    uint64_t number = record->key.data == NULL ? micro_batch : partitioner_hash(record->key) & INT32_MAX;
    return (int32_t)(number % partitions);
}
