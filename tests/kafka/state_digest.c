/* state_digest DIR [SINCE]: prints a line for each operator with keyed state in the newest checkpoint, "op 3:
 * 50 entries HEX". The same entries give the same line, however they are distributed over lanes, bases and
 * deltas. It is not determined which expired entries are still there: those that expired before SINCE
 * (microseconds) are left out. */
#include "state/checkpoint.h"
#include "state/time_queue.h"

#include "core/key.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

enum { PLACES_MAX = 64, HEAD_BYTES = 8, QUEUE_HEAD_BYTES = 16, QUEUE_KIND = 'q' };

/* The head of an entry, as state/table_snapshot.c writes it. */
struct __attribute__((packed)) entry_head {
    struct key key;
    int64_t expire_us;
    uint32_t bytes;
};

struct entry {
    struct key key;
    uint8_t kind;
    int64_t expire_us;
    uint64_t turn; /* order in the checkpoint: of the entries of one key the last counts */
    XXH128_hash_t digest;
};

struct entries {
    struct entry *items;
    size_t count, room;
};

static int compare(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->key.low != b->key.low)
        return a->key.low < b->key.low ? -1 : 1;
    if (a->key.high != b->key.high)
        return a->key.high < b->key.high ? -1 : 1;
    return a->turn < b->turn ? -1 : a->turn > b->turn;
}

static void add(struct entries *entries, uint8_t kind, const struct entry_head *head, const char *value)
{
    if (entries->count == entries->room) {
        entries->room = MAX(2 * entries->room, 1024);
        entries->items = realloc(entries->items, entries->room * sizeof(*entries->items));
        leat_assert(entries->items != NULL);
    }
    uint64_t seed = XXH3_64bits_withSeed(head, sizeof(*head), kind);
    entries->items[entries->count] =
        (struct entry){.key = head->key,
                       .kind = kind,
                       .expire_us = head->expire_us,
                       .turn = entries->count,
                       .digest = XXH3_128bits_withSeed(value, head->bytes, seed)};
    entries->count++;
}

static void take_record(struct entries *entries, struct str record)
{
    struct entry_head head;
    for (size_t at = HEAD_BYTES; at < record.length; at += head.bytes) {
        leat_assert(record.length - at >= sizeof(head));
        memcpy(&head, record.data + at, sizeof(head));
        at += sizeof(head);
        leat_assert(record.length - at >= head.bytes);
        add(entries, (uint8_t)record.data[0], &head, record.data + at);
    }
}

/* Adds a record of a time queue. Its sequence number tells records apart, but is not in the digest, because
 * it depends on the lane. */
static void take_queued(struct entries *entries, struct str record)
{
    struct queue_record row;
    leat_assert(record.length >= QUEUE_HEAD_BYTES + sizeof(row));
    memcpy(&row, record.data + QUEUE_HEAD_BYTES, sizeof(row));
    leat_assert(record.length == QUEUE_HEAD_BYTES + sizeof(row) + row.length);
    struct entry_head head = {.key = row.key, .expire_us = row.time_us, .bytes = row.length};
    add(entries, (uint8_t)record.data[0], &head, record.data + QUEUE_HEAD_BYTES + sizeof(row));
    entries->items[entries->count - 1].key = (struct key){.low = row.hash, .high = row.sequence};
}

static bool print_place(struct checkpoint *checkpoint, unsigned place, int64_t since, struct diag_list *diags)
{
    struct entries entries = {0};
    struct str record;
    uint32_t group;
    char prefix[32];
    snprintf(prefix, sizeof(prefix), "op/%u/", place);
    struct snapshot_reader *reader = checkpoint_reader(checkpoint, prefix, NULL, diags);
    while (snapshot_get(reader, &group, &record))
        if (group != SNAPSHOT_GLOBAL && record.data[0] == QUEUE_KIND)
            take_queued(&entries, record);
        else if (group != SNAPSHOT_GLOBAL)
            take_record(&entries, record);
    bool is_good = checkpoint_reader_close(reader);
    uint64_t low = 0, high = 0, count = 0;
    if (entries.count > 0)
        qsort(entries.items, entries.count, sizeof(*entries.items), compare);
    for (size_t i = 0; i < entries.count; i++) {
        const struct entry *entry = &entries.items[i];
        if (i + 1 < entries.count && entry[1].kind == entry->kind && key_equal(entry[1].key, entry->key))
            continue;
        if (entry->expire_us < since)
            continue;
        low += entry->digest.low64;
        high += entry->digest.high64;
        count++;
    }
    if (count > 0)
        printf("op %u: %" PRIu64 " entries %016" PRIx64 "%016" PRIx64 "\n", place, count, high, low);
    free(entries.items);
    return is_good;
}

int main(int argc, char **argv)
{
    struct arena arena = {0};
    struct diag_list diags;
    struct checkpoint_list list = {0};
    struct checkpoint_dir_options options = {.path = argc >= 2 ? argv[1] : "", .read_only = true};
    int64_t since = argc == 3 ? strtoll(argv[2], NULL, 10) : INT64_MIN;
    diag_list_init(&diags, &arena);
    struct checkpoint_dir *dir = checkpoint_dir_open(&options, &diags);
    bool is_good = dir != NULL && checkpoint_list(dir, &arena, &list, &diags) && list.count > 0;
    struct checkpoint *checkpoint = is_good ? checkpoint_open(dir, list.items[0].id, &diags) : NULL;
    is_good = checkpoint != NULL;
    for (unsigned place = 0; is_good && place < PLACES_MAX; place++)
        is_good = print_place(checkpoint, place, since, &diags);
    for (unsigned i = 0; i < diags.count; i++)
        fprintf(stderr, "%s\n", diags.items[i].message);
    checkpoint_close(checkpoint);
    checkpoint_dir_close(dir);
    arena_free(&arena);
    return is_good ? 0 : 1;
}
