/* The keyed table: brackets, look-ups, changes. */
#include "state/table.h"

#include "core/mem.h"
#include "core/os.h"

#include <stdlib.h>

enum {
    PREFETCH_AHEAD = 12,
    PAGED_BYTES = 16 << 10,
    LINE_BYTES = 64,
    FIRST_TAG = 1,
    LEARN_EVERY = 16,
    FILTER_TRIAL = 1 << 16,
    FILTER_WORTH = 8,
    SCAN_DEAD_MIN = 16
};

/* A slot never straddles two cache lines. Large arrays get pages of their own; small ones are malloc'd. */
static struct keyed_slot *slots_new(struct keyed_table *table, uint32_t capacity)
{
    size_t bytes = group_bytes(capacity);
    if (bytes >= PAGED_BYTES)
        return pages_take(&table->pages, bytes, true);
    void *slots = NULL;
    leat_assert(posix_memalign(&slots, LINE_BYTES, bytes) == 0);
    memset(slots, 0, bytes);
    return slots;
}

static void slots_free(struct keyed_table *table, struct keyed_slot *slots, uint32_t capacity)
{
    size_t bytes = group_bytes(capacity);
    if (bytes >= PAGED_BYTES)
        pages_give(&table->pages, slots, bytes);
    else
        free(slots);
}

struct keyed_table *keyed_table_new(const struct keyed_options *options)
{
    struct keyed_table *table = mem_calloc(1, sizeof(*table));
    table->options = *options;
    table->user = (struct store_user){.store = options->store, .id = options->id, .kind = options->kind};
    table->slab.pages = &table->pages;
    store_add_user(&table->user);
    pthread_mutex_init(&table->mutex, NULL);
    sem_init(&table->snapshot.served, 0, 0);
    table->watermark = TIME_MIN;
    table->tag = (uint64_t)FIRST_TAG << SLOT_TAG_SHIFT;
    table->maintain_bytes = options->budget_bytes;
    table->may_be_stored = store_has_database(options->store);
    table->next_unknown = table->may_be_stored ? 0 : KEY_GROUPS;
    filter_init(&table->filter, options->budget_bytes);
    table->evictions = store_batch_new();
    table->key_space = mem_alloc(STORE_READ_MAX * sizeof(table->key_space[0]));
    return table;
}

void keyed_table_free(struct keyed_table *table)
{
    if (table == NULL)
        return;
    leat_assert(!table->is_open && !table->snapshot.is_pending);
    store_add_pressure(table->options.store, -table->pressure);
    store_remove_user(&table->user);
    for (uint32_t group = 0; group < KEY_GROUPS; group++) {
        struct table_group *g = &table->groups[group];
        for (uint32_t i = 0; i < g->capacity && table->slab.alone > 0; i++) {
            char *block = slot_block(&g->slots[i]);
            if (block != NULL)
                slab_give(&table->slab, block);
        }
        slots_free(table, g->slots, g->capacity);
    }
    slab_free(&table->slab);
    pages_free(&table->pages);
    filter_free(&table->filter);
    buffer_free(&table->snapshot.saved);
    buffer_free(&table->snapshot.chunk);
    rocksdb_writebatch_destroy(table->evictions);
    sem_destroy(&table->snapshot.served);
    pthread_mutex_destroy(&table->mutex);
    free(table->key_space);
    free(table->victims);
    free(table);
}

/* --- Slots --- */

uint32_t keyed_capacity_for(uint32_t count)
{
    /* Room for about a fifth more entries, until the group is three quarters full. */
    uint32_t capacity = count + count / 2 + count / 8;
    return MAX(capacity, TABLE_CAPACITY_MIN);
}

struct keyed_slot *keyed_find(struct keyed_table *table, struct key key, uint64_t hash)
{
    struct table_group *group = &table->groups[key_group(hash)];
    if (group->capacity == 0)
        return NULL;
    for (uint32_t i = slot_home(hash, group->capacity);;) {
        struct keyed_slot *slot = &group->slots[i];
        if ((slot->bits & SLOT_USED) == 0)
            return NULL;
        if (key_equal(slot->key, key))
            return slot;
        if (++i == group->capacity)
            i = 0;
    }
}

static struct keyed_slot *first_unused(const struct table_group *group, uint64_t hash)
{
    uint32_t i = slot_home(hash, group->capacity);
    while ((group->slots[i].bits & SLOT_USED) != 0)
        if (++i == group->capacity)
            i = 0;
    return &group->slots[i];
}

void keyed_rebuild(struct keyed_table *table, struct table_group *group, uint32_t capacity)
{
    struct table_group old = *group;
    *group = (struct table_group){.slots = slots_new(table, capacity), .capacity = capacity};
    group->changed = (uint64_t *)(void *)(group->slots + capacity);
    for (uint32_t i = 0; i < old.capacity; i++) {
        if ((old.slots[i].bits & SLOT_USED) == 0)
            continue;
        struct keyed_slot *slot = first_unused(group, key_hash(old.slots[i].key));
        *slot = old.slots[i];
        if ((slot->bits & SLOT_TAG) != 0)
            bit_set(group->changed, (size_t)(slot - group->slots));
        group->count++;
    }
    leat_assert(group->count < capacity);
    table->rebuilds++;
    table->slot_bytes += group_bytes(capacity);
    table->slot_bytes -= group_bytes(old.capacity);
    if (old.slots != NULL)
        slots_free(table, old.slots, old.capacity);
}

void keyed_free_group(struct keyed_table *table, struct table_group *group)
{
    if (group->slots == NULL)
        return;
    table->rebuilds++;
    table->slot_bytes -= group_bytes(group->capacity);
    slots_free(table, group->slots, group->capacity);
    *group = (struct table_group){0};
}

struct keyed_slot *keyed_insert(struct keyed_table *table, struct key key, uint64_t hash)
{
    struct table_group *group = &table->groups[key_group(hash)];
    /* Drop expired entries before the group grows: where entries expire soon, it then hardly grows. */
    if ((uint64_t)(group->count + 1) * 4 > (uint64_t)group->capacity * 3)
        keyed_drop_dead(table, key_group(hash), 1);
    struct keyed_slot *slot = first_unused(group, hash);
    group->count++;
    table->stats.resident++;
    *slot = (struct keyed_slot){
        .key = key, .expire_us = TIME_MIN, .bits = SLOT_USED | SLOT_FRESH | SLOT_REFERENCED};
    return slot;
}

void keyed_fill(struct keyed_table *table, struct keyed_slot *slot, int64_t expire_us, struct str value)
{
    char *block = slot_block(slot);
    if (block != NULL && slab_bytes(block) != value.length) {
        slab_give(&table->slab, block);
        block = NULL;
    }
    if (block == NULL && value.length > 0)
        block = slab_take(&table->slab, (uint32_t)value.length);
    if (block != NULL)
        memcpy(block + KEYED_VALUE_HEADER, value.data, value.length);
    slot->bits = SLOT_USED | SLOT_REFERENCED;
    slot_set_block(slot, block);
    slot->expire_us = expire_us;
}

size_t keyed_key(const struct keyed_table *table, char *out, struct key key, uint64_t hash)
{
    uint32_t group = key_group(hash), stay = group_set_stay(table->options.groups, group);
    size_t length = store_prefix(out, table->options.id, table->options.kind, group);
    for (int shift = 24; stay > 0 && shift >= 0; shift -= 8)
        out[length++] = (char)(stay >> shift);
    memcpy(out + length, &key, sizeof(key));
    return length + sizeof(key);
}

/* --- What the database has of a group --- */

struct stored_scan {
    size_t key_at; /* offset of the key in a database key */
    keyed_visit_stored *visit;
    void *argument;
};

static bool visit_stored(void *argument, struct str key, struct str value)
{
    const struct stored_scan *scan = argument;
    struct stored_value head;
    struct key stored;
    if (key.length != scan->key_at + sizeof(stored))
        return true; /* of another stay */
    leat_assert(value.length >= sizeof(head));
    memcpy(&stored, key.data + scan->key_at, sizeof(stored));
    memcpy(&head, value.data, sizeof(head));
    scan->visit(scan->argument, stored, &head,
                (struct str){value.data + sizeof(head), value.length - sizeof(head)});
    return true;
}

bool keyed_visit_database(const struct keyed_table *table, struct state_store *store, uint32_t group,
                          keyed_visit_stored *visit, void *argument)
{
    struct store_group range = store_group(table->options.id, table->options.kind, group,
                                           group_set_stay(table->options.groups, group));
    struct stored_scan scan = {range.bytes, visit, argument};
    return store_scan(store, (struct str){range.first, range.bytes},
                      (struct str){range.limit, range.limit_bytes}, visit_stored, &scan);
}

/* --- Brackets --- */

/* Empties an expired entry, so that it reads as one that was never written. */
static void reset_expired(struct keyed_table *table, struct keyed_slot *slot)
{
    if (table->snapshot.is_active)
        keyed_save(table, slot);
    char *block = slot_block(slot);
    if (block != NULL)
        slab_give(&table->slab, block);
    slot->bits = SLOT_USED | SLOT_FRESH | SLOT_REFERENCED;
    slot->expire_us = TIME_MIN;
}

/* Reads from the database the given entries, which are new and fresh. */
static void load_missing(struct keyed_table *table, struct keyed_slot **missing, uint32_t count)
{
    const char *keys[STORE_READ_MAX];
    size_t lengths[STORE_READ_MAX];
    rocksdb_pinnableslice_t *values[STORE_READ_MAX];
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = table->key_space[i];
        lengths[i] = keyed_key(table, table->key_space[i], missing[i]->key, key_hash(missing[i]->key));
    }
    table->stats.misses += count;
    uint64_t loaded_before = table->stats.loaded;
    bool is_good = store_get(table->options.store, count, keys, lengths, values);
    for (uint32_t i = 0; i < count; i++) {
        if (values[i] == NULL)
            continue;
        struct str value;
        value.data = rocksdb_pinnableslice_value(values[i], &value.length);
        struct stored_value head;
        leat_assert(!is_good || value.length >= sizeof(head));
        memcpy(&head, value.data, sizeof(head));
        if (head.expire_us >= table->watermark) {
            value.data += sizeof(head);
            value.length -= sizeof(head);
            keyed_fill(table, missing[i], head.expire_us, value);
            /* The entry was changed and evicted after the barrier: tag it, so that the base being taken
             * leaves it out. */
            if (table->snapshot.is_active && head.epoch > table->snapshot.epoch) {
                keyed_note_change(table, missing[i]);
                missing[i]->bits |= table->tag;
            }
            table->stats.loaded++;
        }
        rocksdb_pinnableslice_destroy(values[i]);
    }
    if (table->stats.loaded > loaded_before)
        (void)failpoint("state.load"); /* for tests: entries were read back; a failure here is ignored */
}

/* Gives the filter up if it rejects hardly any key, because most keys looked up are in the database. */
static void weigh_filter(struct keyed_table *table, uint32_t asked, uint32_t rejected)
{
    table->filter_asked += asked;
    table->filter_rejected += rejected;
    if (table->filter_asked < FILTER_TRIAL || table->filter.is_full || table->next_unknown < KEY_GROUPS)
        return;
    if (table->filter_rejected < table->filter_asked / FILTER_WORTH)
        filter_give_up(&table->filter);
    table->filter_asked = table->filter_rejected = 0;
}

/* Makes entries for the rows without one, and loads those that the database has. Inserting may move slots:
 * then all rows look their slots up again. */
static void insert_missing(struct keyed_table *table, const struct key *keys, const uint64_t *hashes,
                           uint32_t count, struct keyed_slot **slots, uint16_t *missing,
                           uint32_t missing_count)
{
    uint64_t rebuilds = table->rebuilds;
    uint32_t fresh_count = 0;
    for (uint32_t i = 0; i < missing_count; i++) {
        uint32_t row = missing[i];
        struct keyed_slot *slot = keyed_find(table, keys[row], hashes[row]);
        if (slot == NULL) {
            slot = keyed_insert(table, keys[row], hashes[row]);
            missing[fresh_count++] = (uint16_t)row; /* fresh_count <= i */
        }
        slots[row] = slot;
    }
    if (table->rebuilds != rebuilds)
        for (uint32_t i = 0; i < count; i++)
            slots[i] = keyed_find(table, keys[i], hashes[i]);
    if (!table->may_be_stored)
        return;
    struct keyed_slot *fresh[STORE_READ_MAX];
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < MIN(fresh_count, PREFETCH_AHEAD); i++)
        filter_prefetch(&table->filter, hashes[missing[i]]);
    for (uint32_t i = 0; i < fresh_count; i++) {
        if (i + PREFETCH_AHEAD < fresh_count)
            filter_prefetch(&table->filter, hashes[missing[i + PREFETCH_AHEAD]]);
        if (keyed_is_perhaps_stored(table, hashes[missing[i]]))
            fresh[wanted++] = slots[missing[i]];
    }
    weigh_filter(table, fresh_count, fresh_count - wanted);
    if (wanted > 0)
        load_missing(table, fresh, wanted);
}

static inline void prefetch_home(const struct keyed_table *table, uint64_t hash)
{
    const struct table_group *group = &table->groups[key_group(hash)];
    uintptr_t slots =
        (uintptr_t)group->slots; /* NULL, where the group has no entries: as a number, it may be added to */
    prefetch_line((const void *)(slots + slot_home(hash, group->capacity) * sizeof(*group->slots)));
}

/* Removes from `missing` the rows whose keys are certainly not in the database: nothing is read for them.
 * Returns how many rows are left. */
static uint32_t leave_out_absent(struct keyed_table *table, const uint64_t *hashes, uint16_t *missing,
                                 uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count && table->may_be_stored; i++)
        if (keyed_is_perhaps_stored(table, hashes[missing[i]]))
            missing[kept++] = missing[i];
    if (table->may_be_stored)
        weigh_filter(table, count - kept, count - kept);
    return kept;
}

static void open_bracket(struct keyed_table *table, const struct key *keys, const uint64_t *hashes,
                         uint32_t count, struct keyed_slot **slots, bool makes_entries)
{
    leat_assert(count <= BATCH_ROWS && !table->is_open);
    pthread_mutex_lock(&table->mutex);
    table->is_open = true;
    table->stats.lookups += count;
    keyed_serve(table);
    uint16_t missing[BATCH_ROWS];
    uint32_t missing_count = 0;
    for (uint32_t i = 0; i < MIN(count, PREFETCH_AHEAD); i++)
        prefetch_home(table, hashes[i]);
    for (uint32_t i = 0; i < count; i++) {
        if (i + PREFETCH_AHEAD < count)
            prefetch_home(table, hashes[i + PREFETCH_AHEAD]);
        struct keyed_slot *slot = keyed_find(table, keys[i], hashes[i]);
        slots[i] = slot;
        if (slot == NULL) {
            missing[missing_count++] = (uint16_t)i;
            continue;
        }
        if (unlikely(slot->expire_us < table->watermark && (slot->bits & SLOT_FRESH) == 0))
            reset_expired(table, slot);
        slot->bits |= SLOT_REFERENCED;
        prefetch_line(slot_block(slot));
    }
    if (!makes_entries)
        missing_count = leave_out_absent(table, hashes, missing, missing_count);
    if (missing_count > 0)
        insert_missing(table, keys, hashes, count, slots, missing, missing_count);
}

void keyed_begin(struct keyed_table *table, const struct key *keys, const uint64_t *hashes, uint32_t count,
                 struct keyed_slot **slots)
{
    open_bracket(table, keys, hashes, count, slots, true);
}

void keyed_look(struct keyed_table *table, const struct key *keys, const uint64_t *hashes, uint32_t count,
                struct keyed_slot **slots)
{
    open_bracket(table, keys, hashes, count, slots, false);
}

void keyed_end(struct keyed_table *table)
{
    leat_assert(table->is_open);
    if (table->next_unknown < KEY_GROUPS && table->learn_in-- == 0)
        keyed_learn(table);
    if (keyed_bytes(table) > table->maintain_bytes)
        keyed_maintain(table);
    table->is_open = false;
    pthread_mutex_unlock(&table->mutex);
}

void *keyed_write(struct keyed_table *table, struct keyed_slot *slot, uint32_t bytes, int64_t expire_us)
{
    leat_assert(table->is_open && bytes <= TABLE_VALUE_MAX);
    if (unlikely(table->snapshot.is_active))
        keyed_save(table, slot);
    if ((slot->bits & SLOT_TAG) != table->tag)
        keyed_note_change(table, slot);
    char *block = slot_block(slot);
    uint32_t old_bytes = block == NULL ? 0 : slab_bytes(block);
    if (bytes != old_bytes) {
        if (bytes == 0) {
            slab_give(&table->slab, block);
            block = NULL;
        } else {
            block = block == NULL ? slab_take(&table->slab, bytes) : slab_resize(&table->slab, block, bytes);
            if (bytes > old_bytes)
                memset(block + KEYED_VALUE_HEADER + old_bytes, 0, bytes - old_bytes);
        }
    }
    slot->bits = SLOT_USED | SLOT_REFERENCED | SLOT_UNSAVED | table->tag | (uint64_t)(uintptr_t)block;
    slot->expire_us = MAX(slot->expire_us, expire_us);
    return block == NULL ? NULL : block + KEYED_VALUE_HEADER;
}

void keyed_set_watermark(struct keyed_table *table, int64_t watermark)
{
    leat_assert(!table->is_open);
    table->watermark = MAX(table->watermark, watermark);
    store_note_watermark(&table->user, table->watermark);
    if (table->filter.count > 0)
        filter_expire(&table->filter, table->watermark);
}

int64_t keyed_watermark(const struct keyed_table *table)
{
    return table->watermark;
}

static void learn_stored(void *argument, struct key key, const struct stored_value *head, struct str value)
{
    (void)value;
    struct keyed_table *table = argument;
    if (head->expire_us >= table->watermark)
        filter_add(&table->filter, key_hash(key), head->expire_us);
}

void keyed_learn(struct keyed_table *table)
{
    uint32_t group = group_set_next(table->options.groups, table->next_unknown);
    table->next_unknown = group_set_next(table->options.groups, group + 1);
    if (group == KEY_GROUPS)
        return;
    table->learn_in = LEARN_EVERY;
    if (!keyed_visit_database(table, table->options.store, group, learn_stored, table))
        filter_give_up(&table->filter); /* the store keeps the error */
}

/* --- Scans --- */

struct scan {
    struct keyed_table *table;
    keyed_visit *visit;
    void *argument;
};

static void scan_stored(void *argument, struct key key, const struct stored_value *head, struct str value)
{
    struct scan *scan = argument;
    struct keyed_slot slot = {.key = key, .bits = SLOT_USED};
    const struct keyed_slot *resident = keyed_find(scan->table, key, key_hash(key));
    if (head->expire_us < scan->table->watermark || (resident != NULL && (resident->bits & SLOT_FRESH) == 0))
        return;
    keyed_fill(scan->table, &slot, head->expire_us, value);
    scan->visit(scan->argument, &slot);
    if (slot_block(&slot) != NULL)
        slab_give(&scan->table->slab, slot_block(&slot));
}

void keyed_scan_group(struct keyed_table *table, uint32_t group, keyed_visit *visit, void *argument)
{
    leat_assert(!table->is_open && group < KEY_GROUPS);
    pthread_mutex_lock(&table->mutex);
    keyed_serve(table);
    uint32_t live = 0;
    for (uint32_t i = 0; i < table->groups[group].capacity; i++)
        if (slot_is_live(&table->groups[group].slots[i], table->watermark)) {
            visit(argument, &table->groups[group].slots[i]);
            live++;
        }
    if (table->may_be_stored) {
        struct scan scan = {table, visit, argument};
        bool is_good = keyed_visit_database(table, table->options.store, group, scan_stored, &scan);
        (void)is_good; /* the store keeps the error */
    }
    /* A scan also passes dead entries: drop them where they are more than about half of the group. */
    if (table->groups[group].count > 2 * live + SCAN_DEAD_MIN)
        keyed_drop_dead(table, group, 0);
    pthread_mutex_unlock(&table->mutex);
}

bool keyed_may_be_stored(const struct keyed_table *table)
{
    return table->may_be_stored;
}

void keyed_table_stats(struct keyed_table *table, struct keyed_stats *stats)
{
    leat_assert(!table->is_open);
    pthread_mutex_lock(&table->mutex); /* a checkpoint's writer may take copies of entries away */
    *stats = table->stats;
    stats->memory_bytes = keyed_bytes(table);
    pthread_mutex_unlock(&table->mutex);
}
