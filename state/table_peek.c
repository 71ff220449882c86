/* The keyed table: reading one entry without a trace. */
#include "state/table.h"

#include "core/mem.h"

#include <stdlib.h>

/* Copies the key's live entry of the database into table->peeked; false: there is none. */
static bool peek_stored(struct keyed_table *table, struct key key, uint64_t hash)
{
    char space[STORE_KEY_MAX];
    const char *keys[1] = {space};
    size_t length = keyed_key(table, space, key, hash);
    rocksdb_pinnableslice_t *value;
    struct stored_value head;
    struct str bytes;
    bool is_good = store_get(table->options.store, 1, keys, &length, &value); /* the store keeps the error */
    if (value == NULL)
        return false;
    bytes.data = rocksdb_pinnableslice_value(value, &bytes.length);
    leat_assert(!is_good || bytes.length >= sizeof(head));
    memcpy(&head, bytes.data, sizeof(head));
    bytes.data += sizeof(head);
    bytes.length -= sizeof(head);
    bool is_live = head.expire_us >= table->watermark;
    if (is_live) {
        table->peeked = (struct keyed_slot){.key = key, .expire_us = head.expire_us, .bits = SLOT_USED};
        if (bytes.length > 0) {
            uint32_t count = (uint32_t)bytes.length;
            char *block = mem_alloc(KEYED_VALUE_HEADER + bytes.length);
            memcpy(block, &count, sizeof(count));
            memcpy(block + KEYED_VALUE_HEADER, bytes.data, bytes.length);
            slot_set_block(&table->peeked, block);
        }
    }
    rocksdb_pinnableslice_destroy(value);
    return is_live;
}

const struct keyed_slot *keyed_peek(struct keyed_table *table, struct key key, uint64_t hash)
{
    leat_assert(!table->is_open);
    pthread_mutex_lock(&table->mutex); /* a checkpoint's writer takes copies of entries away */
    table->is_open = true;
    const struct keyed_slot *slot = keyed_find(table, key, hash);
    if (slot != NULL) /* what is in memory is the truth, also if it has expired */
        return slot_is_live(slot, table->watermark) ? slot : NULL;
    if (!table->may_be_stored || !keyed_is_perhaps_stored(table, hash))
        return NULL;
    return peek_stored(table, key, hash) ? &table->peeked : NULL;
}

void keyed_peek_end(struct keyed_table *table)
{
    leat_assert(table->is_open);
    free(slot_block(&table->peeked));
    table->peeked = (struct keyed_slot){0};
    table->is_open = false;
    pthread_mutex_unlock(&table->mutex);
}
