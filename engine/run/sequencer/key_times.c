#include "run/sequencer/internal.h"

#include "core/mem.h"

#include <stdlib.h>

struct key_time {
    uint64_t hash;
    int64_t time;
};

static uint32_t place_of(const struct key_times *keys, uint64_t hash)
{
    uint32_t at = (uint32_t)(hash >> 32) & (keys->capacity - 1);
    while (keys->hashes[at] != 0 && keys->hashes[at] != hash)
        at = (at + 1) & (keys->capacity - 1);
    return at;
}

static void put(struct key_times *keys, struct key_time key)
{
    uint32_t at = place_of(keys, key.hash);
    leat_assert(keys->hashes[at] == 0);
    keys->hashes[at] = key.hash;
    keys->times[at] = key.time;
    keys->count++;
}

/* The oldest first; keys with the same time by hash. */
static int compare(const void *left, const void *right)
{
    const struct key_time *a = left, *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return a->hash < b->hash ? -1 : a->hash > b->hash;
}

static struct key_time *list(const struct key_times *keys)
{
    struct key_time *items = mem_alloc(MAX(keys->count, 1) * sizeof(*items));
    uint32_t count = 0;
    for (uint32_t i = 0; i < keys->capacity; i++)
        if (keys->hashes[i] != 0)
            items[count++] = (struct key_time){keys->hashes[i], keys->times[i]};
    leat_assert(count == keys->count);
    qsort(items, count, sizeof(*items), compare);
    return items;
}

static void rebuild(struct key_times *keys, uint32_t capacity, const struct key_time *items, uint32_t count)
{
    free(keys->hashes);
    free(keys->times);
    keys->hashes = mem_calloc(capacity, sizeof(*keys->hashes));
    keys->times = mem_calloc(capacity, sizeof(*keys->times));
    keys->capacity = capacity;
    keys->count = 0;
    for (uint32_t i = 0; i < count; i++)
        put(keys, items[i]);
}

/* Makes room for one more key, so that the table stays at most half full. */
static void make_room(struct key_times *keys, uint32_t keys_max)
{
    bool is_full = keys->count >= keys_max;
    if (!is_full && keys->count * 2 < keys->capacity)
        return;
    struct key_time *items = list(keys);
    uint32_t first = is_full ? keys->count - keys_max + MAX(keys_max / 8, 1) : 0;
    keys->forgotten += first;
    rebuild(keys, is_full ? keys->capacity : MAX(keys->capacity * 2, 2 * KEY_TIMES_MIN), items + first,
            keys->count - first);
    free(items);
}

void key_times_see(struct key_times *keys, uint32_t keys_max, uint64_t hash, int64_t time)
{
    leat_assert(hash != 0 && keys_max >= KEY_TIMES_MIN && keys_max <= KEY_TIMES_MAX);
    uint32_t at = keys->capacity == 0 ? 0 : place_of(keys, hash);
    if (keys->capacity > 0 && keys->hashes[at] == hash) {
        keys->times[at] = MAX(keys->times[at], time);
        return;
    }
    make_room(keys, keys_max);
    put(keys, (struct key_time){hash, time});
}

int64_t key_times_oldest(const struct key_times *keys, int64_t from)
{
    int64_t oldest = TIME_MAX;
    for (uint32_t i = 0; i < keys->capacity; i++)
        if (keys->hashes[i] != 0 && keys->times[i] >= from)
            oldest = MIN(oldest, keys->times[i]);
    return oldest;
}

void key_times_save(const struct key_times *keys, struct byte_buffer *out)
{
    struct key_time *items = list(keys);
    buffer_append(out, items, keys->count * sizeof(*items));
    free(items);
}

bool key_times_load(struct key_times *keys, struct str saved)
{
    uint32_t count = (uint32_t)(saved.length / sizeof(struct key_time));
    if (saved.length % sizeof(struct key_time) != 0 || count > KEY_TIMES_MAX)
        return false;
    if (count == 0)
        return true;
    uint32_t capacity = 2 * KEY_TIMES_MIN;
    while (capacity < 2 * count)
        capacity *= 2;
    rebuild(keys, capacity, NULL, 0);
    for (uint32_t i = 0; i < count; i++) {
        struct key_time item;
        memcpy(&item, saved.data + i * sizeof(item), sizeof(item));
        if (item.hash == 0 || keys->hashes[place_of(keys, item.hash)] != 0)
            return false;
        put(keys, item);
    }
    return true;
}

void key_times_free(struct key_times *keys)
{
    free(keys->hashes);
    free(keys->times);
    *keys = (struct key_times){0};
}
