/* The keyed table's budget: sweeps over key groups, which remove cold entries from memory. */
#include "state/table.h"

#include "core/mem.h"

#include <stdlib.h>

/* A sweep goes on until this share of the budget is free again: 1 / FREE_SHARE. */
enum { FREE_SHARE = 64 };

static void put_entry(struct keyed_table *table, const struct keyed_slot *slot)
{
    char key[STORE_KEY_MAX];
    size_t key_bytes = keyed_key(table, key, slot->key, key_hash(slot->key));
    filter_add(&table->filter, key_hash(slot->key), slot->expire_us);
    struct stored_value head = {.epoch = (uint32_t)table->epoch, .expire_us = slot->expire_us};
    uint32_t bytes;
    const char *value = keyed_read(slot, &bytes);
    const char *keys[1] = {key};
    const char *parts[2] = {(const char *)&head, value == NULL ? "" : value};
    size_t lengths[2] = {sizeof(head), bytes};
    rocksdb_writebatch_putv(table->evictions, 1, keys, &key_bytes, 2, parts, lengths);
    table->stats.evicted++;
}

/* Whether the entry leaves memory in this sweep. If it differs from the database's copy, it becomes a victim,
 * which is written to the database. *is_waiting: set if the entry can leave only later. */
static bool leaves(struct keyed_table *table, struct keyed_slot *slot, uint32_t group, bool can_write,
                   bool *is_waiting)
{
    bool is_dead = (slot->bits & SLOT_FRESH) != 0 || slot->expire_us < table->watermark;
    if ((slot->bits & SLOT_REFERENCED) != 0) {
        slot->bits &= ~SLOT_REFERENCED;
        if (!is_dead || (slot->bits & SLOT_FRESH) != 0)
            return false;
    }
    if (keyed_is_frozen(table, slot, group)) {
        *is_waiting = true;
        return false;
    }
    if (is_dead || (slot->bits & SLOT_UNSAVED) == 0)
        return true;
    if (!can_write || unlikely(bit_get(table->leaving, group) && (slot->bits & SLOT_TAG) == table->tag)) {
        *is_waiting = true;
        return false;
    }
    table->victims[table->victims_count++] = slot;
    return true;
}

static int by_stored_key(const void *a, const void *b)
{
    const struct keyed_slot *x = *(struct keyed_slot *const *)a, *y = *(struct keyed_slot *const *)b;
    return memcmp(&x->key, &y->key, sizeof(x->key));
}

/* Puts the victims into the batch in the order of their database keys: RocksDB inserts a key faster if it
 * follows the key before. */
static void put_victims(struct keyed_table *table)
{
    if (table->victims_count > 1)
        qsort(table->victims, table->victims_count, sizeof(*table->victims), by_stored_key);
    for (uint32_t i = 0; i < table->victims_count; i++)
        put_entry(table, table->victims[i]);
    table->victims_count = 0;
}

static void sweep_group(struct keyed_table *table, uint32_t index, bool can_write, bool *is_waiting)
{
    struct table_group *group = &table->groups[index];
    if (group->count > table->victims_capacity) {
        table->victims_capacity = group->count + group->count / 4;
        table->victims = mem_realloc(table->victims, table->victims_capacity * sizeof(*table->victims));
    }
    uint32_t left = 0;
    for (uint32_t i = 0; i < group->capacity; i++) {
        struct keyed_slot *slot = &group->slots[i];
        if ((slot->bits & SLOT_USED) == 0 || !leaves(table, slot, index, can_write, is_waiting))
            continue;
        slot->bits &= ~SLOT_USED;
        left++;
    }
    if (left == 0)
        return;
    put_victims(table);
    for (uint32_t i = 0; i < group->capacity; i++) {
        struct keyed_slot *slot = &group->slots[i];
        if ((slot->bits & SLOT_USED) == 0 && slot_block(slot) != NULL)
            slab_give(&table->slab, slot_block(slot));
    }
    table->stats.resident -= left;
    table->stats.dropped += left;
    keyed_rebuild(table, group, keyed_capacity_for(group->count - left));
}

void keyed_drop_dead(struct keyed_table *table, uint32_t index, uint32_t more)
{
    struct table_group *group = &table->groups[index];
    uint32_t left = 0;
    for (uint32_t i = 0; i < group->capacity; i++) {
        struct keyed_slot *slot = &group->slots[i];
        bool is_fresh = (slot->bits & SLOT_FRESH) != 0; /* also entries that keyed_begin found expired */
        bool is_dead = is_fresh ? !table->is_open : slot->expire_us < table->watermark;
        if ((slot->bits & SLOT_USED) == 0 || !is_dead || keyed_is_frozen(table, slot, index))
            continue;
        if (slot_block(slot) != NULL)
            slab_give(&table->slab, slot_block(slot));
        *slot = (struct keyed_slot){0};
        left++;
    }
    table->stats.resident -= left;
    table->stats.dropped += left;
    keyed_rebuild(table, group, keyed_capacity_for(group->count - left + more));
}

void keyed_maintain(struct keyed_table *table)
{
    size_t budget = table->options.budget_bytes;
    bool has_directory = store_has_directory(table->options.store);
    bool can_write = store_can_write(&table->user);
    bool is_waiting = false;
    /* Two rounds at most: the first may only clear the marks of recent use. */
    for (uint32_t swept = 0; swept < 2 * KEY_GROUPS && keyed_bytes(table) > budget - budget / FREE_SHARE;
         swept++) {
        uint32_t group = table->hand++ % KEY_GROUPS;
        if (table->groups[group].count == 0)
            continue;
        if (unlikely(bit_get(table->arriving, group) || bit_get(table->gone, group))) {
            is_waiting = true;
            continue;
        }
        sweep_group(table, group, can_write, &is_waiting);
    }
    if (rocksdb_writebatch_count(table->evictions) > 0) {
        table->may_be_stored = true;
        if (!store_commit(table->options.store, table->evictions))
            rocksdb_writebatch_clear(table->evictions); /* the store keeps the error; the engine stops */
    }
    size_t bytes = keyed_bytes(table);
    /* Entries that cannot leave now are not swept again before some more memory is used. */
    table->maintain_bytes = MAX(budget, bytes + budget / FREE_SHARE);
    int64_t pressure = has_directory && is_waiting && bytes > budget ? (int64_t)(bytes - budget) : 0;
    store_add_pressure(table->options.store, pressure - table->pressure);
    table->pressure = pressure;
}
