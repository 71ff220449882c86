/*
 * Finding users and appending to their histories; histories.h tells the rule and the layout.
 *
 * An event needs a line of the index, a line of the class's pages, the row's header and the end of its bytes, each
 * of which tells where the next one is. So keys come in tiles of 64: each stage prefetches a line for all keys of the
 * tile before the next stage reads it (look_ahead), and then each key is looked up again, in order, from the cache.
 * No result depends on the stages: an entry may find that one before it has moved the user.
 */
#include "learners/histories/internal.h"

#include "core/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
    TILE = 64,
    LINE = 64,
    LINES_AHEAD = 4,       /* of a row, for reading; the rest is read one after the other */
    ENTRY_BYTES_USUAL = 6, /* with less room than this, the next class is prefetched too */
};

/* --- Classes --- */

static void init_user(void *argument, uint64_t key, void *payload)
{
    (void)argument, (void)key;
    memcpy(payload, &(struct user_state){.class = CLASS_NONE}, sizeof(struct user_state));
}

/* All bytes are zeroed, so that equal entries are equal rows. */
static void init_entries(void *argument, uint64_t key, void *payload)
{
    const struct size_class *class = argument;
    (void)key;
    memset(payload, 0, sizeof(struct user_entries) + class->capacity);
}

static void classes_init(struct histories *h, const struct table_options *shared)
{
    uint32_t most = (h->options.history * h->entry_max + 7) / 8 * 8, capacity = CLASS_BYTES_LEAST, last = 0;
    while (last < most) {
        leat_assert(h->classes_count < CLASSES_MAX);
        struct size_class *class = &h->classes[h->classes_count++];
        class->capacity = last = MIN(capacity, MAX(most, (uint32_t)CLASS_BYTES_LEAST));
        bool is_power = (capacity & (capacity - 1)) == 0;
        capacity = is_power ? capacity + capacity / 2 : capacity / 3 * 4;
        struct table_options options = *shared;
        options.payload_bytes = sizeof(struct user_entries) + class->capacity;
        options.init = init_entries;
        options.init_argument = class;
        table_init(&class->table, &options);
    }
}

struct histories *histories_create(const struct histories_options *options)
{
    leat_assert(options->history >= 1 && options->history <= HISTORY_MAX);
    leat_assert(options->sides <= HISTORY_SIDES_MAX);
    struct histories *h = mem_calloc(1, sizeof(*h));
    h->options = *options;
    h->drop = options->history - options->history / 2;
    h->entry_max = ENTRY_BYTES_MAX - (HISTORY_SIDES_MAX - options->sides) * VARINT_MAX;
    struct table_options shared = {.align = 8,
                                   .expire_after_us = options->expire_after_us,
                                   .shards = options->shards,
                                   .seed = options->seed};
    struct table_options index = shared;
    index.payload_bytes = sizeof(struct user_state);
    index.is_inline = true;
    index.init = init_user;
    table_init(&h->index, &index);
    leat_assert(h->index.stride == INDEX_STRIDE);
    classes_init(h, &shared);
    return h;
}

void histories_free(struct histories *h)
{
    if (h == NULL)
        return;
    table_free(&h->index);
    for (uint32_t i = 0; i < h->classes_count; i++) {
        table_free(&h->classes[i].table);
        free(h->classes[i].wanted.items);
        free(h->classes[i].left.items);
    }
    free(h);
}

size_t histories_tables(const struct histories *h)
{
    return 1 + h->classes_count;
}

struct table *histories_table(struct histories *h, size_t number)
{
    leat_assert(number <= h->classes_count);
    return number == 0 ? &h->index : &h->classes[number - 1].table;
}

void histories_set_watermark(struct histories *h, int64_t watermark_us, uint32_t step_in_progress)
{
    for (size_t i = 0; i < histories_tables(h); i++)
        table_set_watermark(histories_table(h, i), watermark_us, step_in_progress);
}

void histories_guests_begin(struct histories *h)
{
    for (uint32_t i = 0; i < h->classes_count; i++)
        table_guests_begin(&h->classes[i].table);
}

void histories_guests_end(struct histories *h)
{
    for (uint32_t i = 0; i < h->classes_count; i++)
        table_guests_end(&h->classes[i].table);
}

/* The class of a user's row, NULL: none. Bytes of a damaged row may say anything (histories_check). */
static struct size_class *class_of(struct histories *h, const struct user_state *user)
{
    return user->class < h->classes_count ? &h->classes[user->class] : NULL;
}

static struct table_row *row_in_memory(const struct table *t, uint64_t key, uint64_t hash)
{
    const uint64_t *slot = table_probe(t, key, hash, false, sizeof(struct table_slot));
    return slot != NULL ? table_row_at(t, ((const struct table_slot *)(const void *)slot)->row) : NULL;
}

/* --- Batches --- */

static void warm_classes(struct histories *h, uint32_t step)
{
    for (uint32_t i = 0; i < h->classes_count; i++) {
        struct size_class *class = &h->classes[i];
        if (class->wanted.count > 0)
            table_warm(&class->table, class->wanted.items, class->wanted.count, step);
        class->wanted.count = 0;
    }
}

/* Puts the hashes of up to TILE keys into `hashes`, loads cold rows, and prefetches what the keys need; reads: their
 * entries from the first on, else where an entry is appended. */
static void look_ahead(struct histories *h, const uint64_t *keys, size_t n, uint32_t step, bool reads,
                       uint64_t *hashes)
{
    struct size_class *classes[TILE], *classes_end = h->classes + h->classes_count;
    const struct table_row *rows[TILE];
    for (size_t i = 0; i < n; i++) {
        hashes[i] = table_hash(&h->index, keys[i]);
        table_prefetch(&h->index, hashes[i], true, INDEX_STRIDE);
    }
    for (size_t i = 0; i < n; i++) {
        struct table_row *user = keys[i] != 0 ? user_find(&h->index, keys[i], hashes[i]) : NULL;
        classes[i] = user != NULL ? class_of(h, user_state_of(user)) : NULL;
        if (classes[i] == NULL && !reads) /* mostly a new user */
            table_prefetch(&h->classes[0].table, hashes[i], false, sizeof(struct table_slot));
        if (classes[i] == NULL)
            continue;
        table_prefetch(&classes[i]->table, hashes[i], false, sizeof(struct table_slot));
        if (classes[i]->table.cold != NULL)
            table_keys_add(&classes[i]->wanted, keys[i]);
    }
    warm_classes(h, step);
    for (size_t i = 0; i < n; i++) {
        rows[i] = classes[i] != NULL ? row_in_memory(&classes[i]->table, keys[i], hashes[i]) : NULL;
        if (rows[i] != NULL)
            prefetch_line(rows[i]);
    }
    for (size_t i = 0; i < n; i++) {
        if (rows[i] == NULL)
            continue;
        const unsigned char *row = (const unsigned char *)rows[i];
        const struct user_entries *entries = (const void *)(row + TABLE_ROW_HEADER);
        size_t end = TABLE_ROW_HEADER + sizeof(*entries) + MIN(entries->used, classes[i]->capacity);
        if (!reads)
            prefetch_line(row + end);
        if (!reads && entries->used + ENTRY_BYTES_USUAL > classes[i]->capacity &&
            classes[i] + 1 < classes_end)
            table_prefetch(&classes[i][1].table, hashes[i], false, sizeof(struct table_slot));
        for (size_t at = LINE; at < MIN(end, (size_t)LINES_AHEAD * LINE) && reads; at += LINE)
            prefetch_line(row + at);
    }
}

static struct history_view view_of(struct histories *h, uint64_t key, uint64_t hash)
{
    struct table_row *user = key != 0 ? user_find(&h->index, key, hash) : NULL;
    struct history_view view = {.sides = h->options.sides};
    if (user == NULL || table_is_expired(&h->index, user))
        return view;
    view.count = user_count(user);
    struct size_class *class = class_of(h, user_state_of(user));
    struct table_row *row = class != NULL ? row_in_memory(&class->table, key, hash) : NULL;
    if (row == NULL && class != NULL)
        row = table_guest(&class->table, key);
    if (row == NULL) /* a cold store that has failed, which stops the job */
        return view;
    const struct user_entries *entries = user_entries_of(row);
    view.length = history_window(view.count, h->options.history).length;
    view.at = entries->bytes;
    view.end = entries->bytes + MIN(entries->used, class->capacity);
    return view;
}

void histories_find(struct histories *h, const uint64_t *keys, size_t n, uint32_t step,
                    struct history_view *views)
{
    uint64_t hashes[TILE];
    for (size_t at = 0; at < n; at += TILE) {
        size_t count = MIN(n - at, (size_t)TILE);
        look_ahead(h, keys + at, count, step, true, hashes);
        for (size_t i = 0; i < count; i++)
            views[at + i] = view_of(h, keys[at + i], hashes[i]);
    }
}

/* --- Appending --- */

/* What stays of a user's bytes when an entry comes. Where older entries go, the first one that stays is written
 * anew, because it had the seconds since the entry before. */
struct kept {
    const unsigned char *rest;
    size_t first_bytes, rest_bytes;
    unsigned char first[ENTRY_BYTES_MAX];
};

static void keep_newer(const struct histories *h, struct kept *kept)
{
    struct history_view view = {
        .sides = h->options.sides, .at = kept->rest, .end = kept->rest + kept->rest_bytes};
    struct history_entry entry;
    bool is_good = true;
    for (uint32_t i = 0; i < h->drop && is_good; i++)
        is_good = history_next(&view, &entry);
    if (is_good && history_next(&view, &entry))
        kept->first_bytes = entry_write(&entry, 0, h->options.sides, kept->first);
    kept->rest = view.at;
    kept->rest_bytes = (size_t)(view.end - view.at);
}

/* A user leaves a class: no copy of the row may stay in the cold store, where nobody could tell it from a row
 * that is not in memory. */
static void leave_class(struct size_class *class, uint64_t key, uint64_t hash)
{
    const struct table_cold *cold = class->table.cold;
    table_remove(&class->table, key, hash);
    class->has_copies |= cold != NULL && (cold->rows > 0 || cold->evicted > 0 || cold->loaded > 0);
    if (class->has_copies)
        table_keys_add(&class->left, key);
}

static void remove_copies(struct histories *h)
{
    for (uint32_t i = 0; i < h->classes_count; i++) {
        struct table_keys *left = &h->classes[i].left;
        struct cold_store *store = left->count > 0 ? h->classes[i].table.cold->store : NULL;
        if (store != NULL)
            (void)store->remove(store->self, left->items, left->count); /* the store keeps its own error */
        left->count = 0;
    }
}

static struct table_row *class_row(struct size_class *class, uint64_t key, uint64_t hash, uint32_t step)
{
    return table_find_or_admit(&class->table, key, hash, step, true, false, class->table.stride);
}

/* Writes what is kept and an entry's bytes to a row; `kept` may lie in it. */
static void fill_row(struct user_entries *to, const struct kept *kept, const unsigned char *entry,
                     size_t entry_bytes)
{
    size_t at = kept->first_bytes, used = at + kept->rest_bytes + entry_bytes;
    if (kept->rest_bytes > 0 && kept->rest != to->bytes + at)
        memmove(to->bytes + at, kept->rest, kept->rest_bytes);
    memcpy(to->bytes, kept->first, kept->first_bytes);
    memcpy(to->bytes + at + kept->rest_bytes, entry, entry_bytes);
    if (used < to->used)
        memset(to->bytes + used, 0, to->used - used);
    to->used = (uint32_t)used;
}

/* Appends an entry to the bytes of a user, who has a row in the index; returns the user's class. */
static uint8_t put_entry(struct histories *h, struct table_row *user, uint64_t hash,
                         const struct history_entry *entry)
{
    struct size_class *from = class_of(h, user_state_of(user)), *to = from;
    const struct size_class *last = &h->classes[h->classes_count - 1];
    struct kept kept = {.first_bytes = 0};
    uint32_t previous = 0;
    if (from != NULL) {
        struct table_row *row = class_row(from, user->key, hash, user->step);
        struct user_entries *old = user_entries_of(row);
        table_touch(&from->table, row, user->seen, user->step, 1); /* before its bytes change */
        old->used = MIN(old->used, from->capacity);
        kept.rest = old->bytes;
        kept.rest_bytes = old->used;
        if (history_window(user_count(user), h->options.history).length == h->options.history)
            keep_newer(h, &kept);
        if (kept.first_bytes + kept.rest_bytes + h->entry_max > last->capacity)
            kept.first_bytes = kept.rest_bytes = 0; /* a damaged row: more bytes than a window has */
        if (kept.first_bytes + kept.rest_bytes > 0)
            previous = old->seconds;
    }
    unsigned char bytes[ENTRY_BYTES_MAX];
    size_t entry_bytes = entry_write(entry, previous, h->options.sides, bytes);
    size_t needed = kept.first_bytes + kept.rest_bytes + entry_bytes;
    while (to == NULL || needed > to->capacity)
        to = to == NULL ? h->classes : to + 1;
    struct table_row *row = class_row(to, user->key, hash, user->step);
    if (to != from)
        table_touch(&to->table, row, user->seen, user->step, 1);
    fill_row(user_entries_of(row), &kept, bytes, entry_bytes);
    user_entries_of(row)->seconds = entry->seconds;
    if (from != NULL && to != from)
        leave_class(from, user->key, hash);
    return (uint8_t)(to - h->classes);
}

bool histories_has_expired(const struct histories *h, uint32_t seconds)
{
    return seconds < h->index.expired_before;
}

/* The user's row in the index; a user who has expired begins anew, whatever step the row was used in. */
static struct table_row *user_of_entry(struct histories *h, uint64_t key, uint64_t hash, uint32_t step)
{
    struct table_row *user = h->index.expired_before > 0 ? user_find(&h->index, key, hash) : NULL;
    if (user != NULL && table_is_expired(&h->index, user)) {
        table_remove(&h->index, key, hash);
        h->index.stats.expired++;
    }
    return table_find_or_admit(&h->index, key, hash, step, true, true, INDEX_STRIDE);
}

void histories_append(struct histories *h, const uint64_t *keys, const uint32_t *steps,
                      const struct history_entry *entries, size_t n, uint64_t *before)
{
    uint64_t hashes[TILE];
    for (size_t i = 0; i < histories_tables(h); i++)
        table_begin(histories_table(h, i));
    for (size_t at = 0; at < n; at += TILE) {
        size_t count = MIN(n - at, (size_t)TILE);
        look_ahead(h, keys + at, count, steps[at], false, hashes);
        for (size_t i = 0; i < count; i++) {
            const struct history_entry *entry = &entries[at + i];
            uint32_t step = steps[at + i];
            leat_assert(keys[at + i] != 0);
            struct table_row *user = user_of_entry(h, keys[at + i], hashes[i], step);
            table_touch(&h->index, user, entry->seconds, step, 0);
            if (before != NULL)
                before[at + i] = user_count(user);
            user_state_of(user)->class = put_entry(h, user, hashes[i], entry);
            user_state_of(user)->count_high += ++user->count == 0;
        }
    }
    remove_copies(h);
}

bool histories_remove(struct histories *h, uint64_t key)
{
    uint64_t hash = table_hash(&h->index, key);
    struct table_row *user = key != 0 ? user_find(&h->index, key, hash) : NULL;
    if (user == NULL || table_is_expired(&h->index, user))
        return false;
    struct size_class *class = class_of(h, user_state_of(user));
    if (class != NULL) {
        table_warm(&class->table, &key, 1, TABLE_STEP_NONE);
        if (row_in_memory(&class->table, key, hash) != NULL)
            leave_class(class, key, hash);
    }
    table_remove(&h->index, key, hash);
    remove_copies(h);
    return true;
}

/* --- All users --- */

const char *histories_check(struct histories *h)
{
    for (uint32_t c = 0; c < h->classes_count; c++) {
        struct size_class *class = &h->classes[c];
        class->has_copies = class->table.cold != NULL;
        for (uint32_t i = 0; i < class->table.rows_used; i++) {
            struct table_row *row = table_row_at(&class->table, i);
            if (row->key != 0 && user_entries_of(row)->used > class->capacity)
                return "a user has more bytes of entries than its row";
        }
    }
    for (uint32_t i = 0; i < h->index.rows_used; i++) {
        struct table_row *user = table_row_at(&h->index, i);
        if (user->key == 0 || table_is_expired(&h->index, user))
            continue;
        struct size_class *class = class_of(h, user_state_of(user));
        if (class == NULL || user_count(user) == 0)
            return "a user has no size class, or no events";
        if (class->table.cold == NULL &&
            row_in_memory(&class->table, user->key, table_hash(&h->index, user->key)) == NULL)
            return "a user has no row of entries";
    }
    return NULL;
}

struct walk {
    histories_visitor *visit;
    void *argument;
};

static bool visit_user(void *argument, struct table_row *user)
{
    struct walk *walk = argument;
    return walk->visit(walk->argument, user->key, user_count(user));
}

bool histories_walk(const struct histories *h, histories_visitor *visit, void *argument)
{
    struct walk walk = {visit, argument};
    return table_visit(&h->index, visit_user, &walk);
}

struct histories_counts histories_count(const struct histories *h)
{
    struct histories_counts counts = {.bytes = table_bytes(&h->index)};
    for (uint32_t i = 0; i < h->classes_count; i++)
        counts.bytes += table_bytes(&h->classes[i].table);
    for (uint32_t i = 0; i < h->index.rows_used; i++) {
        struct table_row *user = table_row_at(&h->index, i);
        if (user->key == 0 || table_is_expired(&h->index, user))
            continue;
        counts.users++;
        counts.entries += history_window(user_count(user), h->options.history).length;
    }
    return counts;
}
