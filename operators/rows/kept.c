/* Lists of kept rows: which rows enter, at which place, and which ones leave. */
#include "operators/rows/kept.h"

#include "core/mem.h"

#include <stdlib.h>

enum { GROUP_BYTES_MAX = 8 << 20 };

_Static_assert(sizeof(struct kept_head) % 8 == 0 && sizeof(struct kept_place) % 8 == 0,
               "all is aligned to 8");

void kept_open(struct kept *kept, const struct kept_options *options)
{
    kept->options = *options;
    kept->item_bytes =
        options->ordering->count * (uint32_t)sizeof(uint64_t) + (uint32_t)sizeof(struct kept_place);
    packed_init(&kept->released, kept->layouts, options->input);
}

void kept_close(struct kept *kept)
{
    packed_free(&kept->released);
    buffer_free(&kept->packed);
    free(kept->changes.items);
    free(kept->copies.items);
    buffer_free(&kept->befores);
    buffer_free(&kept->lists);
}

/* --- Lists --- */

static size_t round_up(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

/* The i-th item, counted from the worst. */
static char *item_at(const struct kept *kept, const struct kept_head *list, uint32_t i)
{
    return (char *)(uintptr_t)(list + 1) + (size_t)i * kept->item_bytes;
}

static struct kept_place *place_of(const struct kept *kept, char *item)
{
    return (struct kept_place *)(void *)(item + kept->item_bytes - sizeof(struct kept_place));
}

static char *rows_of(const struct kept *kept, const struct kept_head *list)
{
    return item_at(kept, list, list->room);
}

static size_t space_of(const struct kept *kept, const struct kept_head *list)
{
    return list->bytes - sizeof(*list) - (size_t)list->room * kept->item_bytes;
}

/* Length of the key's texts that follow a row: stored as 4 bytes, then the texts. */
static uint32_t texts_bytes(const char *row_end)
{
    uint32_t bytes;
    memcpy(&bytes, row_end, sizeof(bytes));
    return bytes;
}

static size_t record_bytes(const struct kept *kept, size_t row_bytes, size_t key_texts)
{
    return row_bytes + (kept->options.ordering->has_texts ? round_up(sizeof(uint32_t) + key_texts) : 0);
}

static size_t stored_bytes(const struct kept *kept, const struct kept_head *list,
                           const struct kept_place *place)
{
    const char *end = rows_of(kept, list) + place->at + place->bytes;
    return record_bytes(kept, place->bytes, kept->options.ordering->has_texts ? texts_bytes(end) : 0);
}

static struct order_key key_at(const struct kept *kept, const struct kept_head *list, char *item)
{
    const struct kept_place *place = place_of(kept, item);
    struct order_key key = {.words = (const uint64_t *)(const void *)item, .nulls = place->nulls};
    if (kept->options.ordering->has_texts) {
        const char *end = rows_of(kept, list) + place->at + place->bytes;
        key.texts_bytes = texts_bytes(end);
        key.texts = end + sizeof(uint32_t);
    }
    return key;
}

struct order_key kept_key(const struct kept *kept, const struct kept_head *list, uint32_t i)
{
    return key_at(kept, list, item_at(kept, list, list->count - 1 - i));
}

const struct kept_place *kept_place(const struct kept *kept, const struct kept_head *list, uint32_t i)
{
    return place_of(kept, item_at(kept, list, list->count - 1 - i));
}

struct str kept_bytes(const struct kept *kept, const struct kept_head *list, uint32_t i)
{
    const struct kept_place *place = kept_place(kept, list, i);
    return (struct str){rows_of(kept, list) + place->at, place->bytes};
}

/* Offset of the window's list in a group's value, or where it would be inserted. */
static size_t seek(const char *value, size_t bytes, int64_t window, bool *is_there)
{
    size_t at = 0;
    *is_there = false;
    while (at < bytes) {
        const struct kept_head *list = (const struct kept_head *)(const void *)(value + at);
        leat_assert(list->bytes >= sizeof(*list) && list->bytes <= bytes - at);
        *is_there = list->window == window;
        if (list->window >= window)
            break;
        at += list->bytes;
    }
    return at;
}

const struct kept_head *kept_find(const struct keyed_slot *slot, int64_t window)
{
    uint32_t bytes;
    bool is_there;
    const char *value = keyed_read(slot, &bytes);
    size_t at = seek(value, bytes, window, &is_there);
    return is_there ? (const struct kept_head *)(const void *)(value + at) : NULL;
}

const struct kept_head *kept_next(const struct keyed_slot *slot, const struct kept_head *list)
{
    uint32_t bytes;
    const char *value = keyed_read(slot, &bytes);
    const char *next = list == NULL ? value : (const char *)list + list->bytes;
    return value == NULL || next == value + bytes ? NULL : (const struct kept_head *)(const void *)next;
}

/* --- Which rows enter --- */

/* Whether a new row with that key comes before the item's row. */
static bool is_before(const struct kept *kept, const struct order_key *key, const struct kept_head *list,
                      char *item)
{
    struct order_key other = key_at(kept, list, item);
    int order = ordering_compare(kept->options.ordering, key, &other);
    return order < 0 || (order == 0 && kept->options.last_wins);
}

static bool enters(const struct kept *kept, const struct kept_head *list, const struct order_key *key)
{
    if (list->count < kept->options.limit)
        return true;
    struct order_key worst = key_at(kept, list, item_at(kept, list, 0));
    int order = ordering_compare(kept->options.ordering, key, &worst);
    return order < 0 || (order == 0 && (kept->options.takes_ties || kept->options.last_wins));
}

/* The number of rows of the list that come behind a new row with that key. */
static uint32_t count_worse(const struct kept *kept, const struct kept_head *list,
                            const struct order_key *key)
{
    uint32_t low = 0, high = list->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (is_before(kept, key, list, item_at(kept, list, middle)))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How many rows leave when a row enters that comes before `worse` rows of the list. With ties, all rows equal
 * to the worst one leave together, as soon as `limit` rows, the new one included, are better than they. */
static uint32_t count_leaving(const struct kept *kept, const struct kept_head *list, uint32_t worse)
{
    uint32_t limit = kept->options.limit, equal = 1;
    if (worse == 0 || list->count < limit)
        return 0;
    if (!kept->options.takes_ties)
        return 1;
    struct order_key worst = key_at(kept, list, item_at(kept, list, 0));
    for (; equal < list->count; equal++) {
        struct order_key key = key_at(kept, list, item_at(kept, list, equal));
        if (ordering_compare(kept->options.ordering, &worst, &key) != 0)
            break;
    }
    return list->count + 1 - equal >= limit ? equal : 0;
}

/* --- Changes to a list --- */

/* Removes the `count` worst rows. */
static void drop_worst(const struct kept *kept, struct kept_head *list, uint32_t count)
{
    char *rows = rows_of(kept, list);
    for (uint32_t k = 0; k < count; k++) {
        const struct kept_place *gone = place_of(kept, item_at(kept, list, k));
        size_t bytes = stored_bytes(kept, list, gone), at = gone->at;
        memmove(rows + at, rows + at + bytes, list->used - at - bytes);
        list->used -= (uint32_t)bytes;
        for (uint32_t i = k + 1; i < list->count; i++) {
            struct kept_place *place = place_of(kept, item_at(kept, list, i));
            place->at -= place->at > at ? (uint32_t)bytes : 0;
        }
    }
    list->count -= count;
    memmove(item_at(kept, list, 0), item_at(kept, list, count), (size_t)list->count * kept->item_bytes);
}

/* Bytes to allocate for a list that needs `used` bytes for `count` rows: half as much again, but not more
 * than a full list of such rows takes. A list with one row, or a full one, gets just what it needs. */
static size_t with_slack(const struct kept *kept, size_t used, uint32_t count)
{
    uint32_t limit = kept->options.limit;
    if (count <= 1 || count >= limit)
        return used;
    return used + round_up(MIN(used / 2, used / count * (limit - count)));
}

static uint32_t room_for(const struct kept *kept, uint32_t count)
{
    uint32_t room = 1;
    while (room < count)
        room *= 2;
    return kept->options.takes_ties ? room : MIN(room, MAX(kept->options.limit, count));
}

/* A group's value while it is changed. */
struct change_of {
    struct keyed_slot *slot;
    char *value;
    uint32_t bytes; /* bytes of all lists */
    size_t at;      /* offset of the list being changed */
    int64_t expire_us;
};

static struct kept_head *list_of(const struct change_of *c)
{
    return (struct kept_head *)(void *)(c->value + c->at);
}

/* Gives the list at c->at room for `count` items and `used` bytes of rows; makes a missing list. */
static void make_room(struct kept *kept, struct change_of *c, bool is_there, int64_t window, uint32_t count,
                      size_t used)
{
    struct kept_head old = {.window = window};
    if (is_there)
        old = *list_of(c);
    uint32_t room = MAX(old.room, room_for(kept, count));
    size_t fixed = sizeof(old) + (size_t)room * kept->item_bytes;
    size_t least = MAX(fixed + used, old.bytes), wanted = fixed + with_slack(kept, used, count);
    size_t bytes = MAX(least, wanted);
    if (c->bytes - old.bytes + bytes > GROUP_BYTES_MAX)
        bytes = least;
    uint32_t rest = c->bytes - (uint32_t)c->at - old.bytes;
    c->bytes += (uint32_t)bytes - old.bytes;
    c->value = keyed_write(kept->table, c->slot, c->bytes, c->expire_us);
    memmove(c->value + c->at + bytes, c->value + c->at + old.bytes, rest);
    struct kept_head *list = list_of(c);
    if (!is_there)
        *list = old;
    char *rows = rows_of(kept, list);
    list->room = room;
    list->bytes = (uint32_t)bytes;
    memmove(rows_of(kept, list), rows, old.used);
}

static void put_row(struct kept *kept, struct kept_head *list, const struct kept_candidate *row,
                    uint32_t worse, size_t row_bytes)
{
    char *item = item_at(kept, list, worse);
    memmove(item + kept->item_bytes, item, (size_t)(list->count - worse) * kept->item_bytes);
    memcpy(item, row->key.words, kept->options.ordering->count * sizeof(*row->key.words));
    *place_of(kept, item) = (struct kept_place){.at = list->used,
                                                .bytes = (uint32_t)row_bytes,
                                                .sequence = list->sequence++,
                                                .nulls = (uint32_t)row->key.nulls};
    char *out = rows_of(kept, list) + list->used;
    memcpy(out, kept->packed.data, row_bytes);
    if (kept->options.ordering->has_texts) {
        char *texts = out + row_bytes;
        memcpy(texts, &row->key.texts_bytes, sizeof(row->key.texts_bytes));
        memcpy(texts + sizeof(row->key.texts_bytes), row->key.texts, row->key.texts_bytes);
    }
    list->used += (uint32_t)record_bytes(kept, row_bytes, row->key.texts_bytes);
    list->count++;
}

/* Drops the lists of windows before first_alive: they were emitted already. */
static void drop_closed(struct kept *kept, struct change_of *c, int64_t first_alive)
{
    bool is_there;
    size_t closed = seek(c->value, c->bytes, first_alive, &is_there);
    if (closed == 0)
        return;
    c->bytes -= (uint32_t)closed;
    memmove(c->value, c->value + closed, c->bytes);
    c->value = keyed_write(kept->table, c->slot, c->bytes, c->expire_us);
}

/* Copies a list before its first change in a micro-batch. list: NULL if there is none yet. */
static void note_change(struct kept *kept, const struct kept_candidate *row, struct key key,
                        const struct kept_head *list)
{
    struct kept_copies *changes = &kept->changes;
    if (list != NULL && list->noted == row->micro_batch + 1)
        return;
    if (changes->count == changes->capacity) {
        changes->capacity = MAX(changes->capacity * 2, 256);
        changes->items = mem_realloc(changes->items, changes->capacity * sizeof(*changes->items));
    }
    struct kept_copy *change = &changes->items[changes->count++];
    *change = (struct kept_copy){row->hash, key, row->window, SIZE_MAX, SIZE_MAX};
    if (list == NULL)
        return;
    change->before = kept->befores.length;
    buffer_append(&kept->befores, list, list->bytes);
}

/* Packs the row into kept->packed; returns the number of bytes, a multiple of 8. */
static size_t pack_row(struct kept *kept, const struct kept_candidate *row)
{
    static const char zeros[8];
    buffer_clear(&kept->packed);
    packed_put(&kept->packed, row->batch, row->row, kept->layouts->current);
    buffer_append(&kept->packed, zeros, round_up(kept->packed.length) - kept->packed.length);
    return kept->packed.length;
}

/* How a row changes the list that it enters. */
struct entry {
    size_t row_bytes, used; /* used: bytes of all rows afterwards */
    uint32_t worse, leaving, count;
    bool needs_room;
};

/* Computes *entry. Returns false if the group's value would have more than GROUP_BYTES_MAX. */
static bool measure_entry(const struct kept *kept, const struct change_of *c, bool is_there,
                          const struct kept_candidate *row, struct entry *entry)
{
    struct kept_head none = {0}, *list = is_there ? list_of(c) : &none;
    entry->used = list->used + record_bytes(kept, entry->row_bytes, row->key.texts_bytes);
    if (is_there) {
        entry->worse = count_worse(kept, list, &row->key);
        entry->leaving = count_leaving(kept, list, entry->worse);
        for (uint32_t i = 0; i < entry->leaving; i++)
            entry->used -= stored_bytes(kept, list, place_of(kept, item_at(kept, list, i)));
    }
    entry->count = list->count - entry->leaving + 1;
    entry->needs_room = !is_there || entry->count > list->room || entry->used > space_of(kept, list);
    size_t fixed = sizeof(*list) + (size_t)MAX(list->room, room_for(kept, entry->count)) * kept->item_bytes;
    return !entry->needs_room || c->bytes - list->bytes + fixed + entry->used <= GROUP_BYTES_MAX;
}

enum kept_answer kept_offer(struct kept *kept, struct keyed_slot *slot, const struct kept_candidate *row)
{
    struct change_of c = {.slot = slot, .expire_us = row->expire_us};
    bool is_there;
    c.value = keyed_read(slot, &c.bytes);
    c.at = seek(c.value, c.bytes, row->window, &is_there);
    if (is_there && !enters(kept, list_of(&c), &row->key))
        return KEPT_OUT;
    if (c.bytes > 0) {
        c.value = keyed_write(kept->table, slot, c.bytes, c.expire_us);
        drop_closed(kept, &c, row->first_alive);
        c.at = seek(c.value, c.bytes, row->window, &is_there);
    }
    struct entry entry = {.row_bytes = pack_row(kept, row)};
    if (!measure_entry(kept, &c, is_there, row, &entry))
        return KEPT_FULL;
    if (kept->options.change_column >= 0)
        note_change(kept, row, slot->key, is_there ? list_of(&c) : NULL);
    if (is_there)
        drop_worst(kept, list_of(&c), entry.leaving);
    if (entry.needs_room)
        make_room(kept, &c, is_there, row->window, entry.count, entry.used);
    struct kept_head *list = list_of(&c);
    list->noted = row->micro_batch + 1;
    put_row(kept, list, row, entry.worse - entry.leaving, entry.row_bytes);
    return KEPT_IN;
}
