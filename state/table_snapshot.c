/* The keyed table in checkpoints: generations of changes, the pass over the groups, restoring.
 *
 * A snapshot record is a head, then entries of one key group. If a record and the database both have an
 * entry, the database's copy counts only if its epoch is higher. */
#include "state/table.h"

#include "core/wait.h"
#include "state/by_group.h"

#include <errno.h>
#include <stdlib.h>

enum {
    CHUNK_TARGET = 256 << 10,
    CHUNK_SLOTS = 64 << 10,
    RECORD_TARGET = 128 << 10,
    SERVE_WAIT_MS = 1,
    EXPECT_MIN = 32,
    EXPECT_TIMES = 64,
    RESTORED_MAX = 256,
    LOOK_BYTES = 2048 /* of a pass over the database, which take as long as one look-up */
};

/* Stands before each record in `saved` and in the chunk for the writer thread. */
struct frame {
    uint32_t group, bytes;
};

uint64_t keyed_next_tag(uint64_t tag, uint64_t previous)
{
    for (uint64_t candidate = 1; candidate <= 3; candidate++)
        if (candidate << SLOT_TAG_SHIFT != tag && candidate << SLOT_TAG_SHIFT != previous)
            return candidate << SLOT_TAG_SHIFT;
    return 0; /* not reached */
}

/* Whether the entry belongs to the generation that is being taken. */
static bool is_taken_up(const struct keyed_table *table, const struct keyed_slot *slot)
{
    const struct table_snapshot *snapshot = &table->snapshot;
    uint64_t tag = slot->bits & SLOT_TAG;
    if ((slot->bits & SLOT_FRESH) != 0 || tag == table->tag || slot->expire_us < snapshot->watermark)
        return false;
    return snapshot->is_base || tag == snapshot->tag ||
           (table->previous_is_dirty && tag != 0 && tag == table->previous_tag);
}

bool keyed_is_frozen(const struct keyed_table *table, const struct keyed_slot *slot, uint32_t group)
{
    return table->snapshot.is_active && group >= table->snapshot.cursor && !bit_get(table->arriving, group) &&
           is_taken_up(table, slot);
}

static void append_frame_head(struct byte_buffer *buffer, uint32_t group)
{
    struct frame frame = {.group = group};
    buffer_append(buffer, &frame, sizeof(frame));
}

static void append_record_head(const struct keyed_table *table, struct byte_buffer *buffer)
{
    struct record_head head = {.kind = table->options.kind, .epoch = (uint32_t)table->snapshot.epoch};
    buffer_append(buffer, &head, sizeof(head));
}

/* Sets the length of the frame that begins at offset `from` and ends at the end of the buffer. */
static void close_frame(struct byte_buffer *buffer, size_t from)
{
    struct frame frame;
    memcpy(&frame, buffer->data + from, sizeof(frame));
    frame.bytes = (uint32_t)(buffer->length - from - sizeof(frame));
    memcpy(buffer->data + from, &frame, sizeof(frame));
}

static void append_entry(struct byte_buffer *buffer, const struct keyed_slot *slot)
{
    struct record_entry entry = {.key = slot->key, .expire_us = slot->expire_us};
    uint32_t bytes;
    const void *value = keyed_read(slot, &bytes);
    entry.bytes = bytes;
    char *at = buffer_reserve(buffer, sizeof(entry) + bytes);
    memcpy(at, &entry, sizeof(entry));
    if (bytes > 0)
        memcpy(at + sizeof(entry), value, bytes);
    buffer->length += sizeof(entry) + bytes;
}

void keyed_save(struct keyed_table *table, const struct keyed_slot *slot)
{
    uint32_t group = key_group(key_hash(slot->key));
    if (!keyed_is_frozen(table, slot, group))
        return;
    struct byte_buffer *saved = &table->snapshot.saved;
    size_t from = saved->length;
    append_frame_head(saved, group);
    append_record_head(table, saved);
    append_entry(saved, slot);
    close_frame(saved, from);
    table->stats.saved_copies++;
}

/* --- The pass over the groups --- */

/* Fills `visit` with the next slots of the walk, prefetches them, and moves walk->next behind them. */
static void plan_visit(struct slot_walk *walk, struct slot_visit *visit)
{
    const struct table_group *group = walk->group;
    uint32_t *next = &walk->next;
    visit->count = 0;
    while (*next < group->capacity && visit->count < VISIT_SLOTS) {
        if (!walk->is_whole) {
            uint64_t word = group->changed[*next / 64] >> *next % 64;
            if (word == 0) {
                *next = (*next / 64 + 1) * 64;
                continue;
            }
            *next += (uint32_t)__builtin_ctzll(word);
        }
        struct keyed_slot *slot = &group->slots[(*next)++];
        __builtin_prefetch(slot, 1);
        visit->slots[visit->count++] = slot;
    }
    for (uint32_t i = 0; i < visit->count; i++)
        __builtin_prefetch(slot_block(visit->slots[i]));
}

const struct slot_visit *keyed_walk(struct slot_walk *walk)
{
    if (walk->turn == 0)
        plan_visit(walk, &walk->visits[0]);
    const struct slot_visit *visit = &walk->visits[walk->turn++ % 2];
    if (visit->count > 0)
        plan_visit(walk, &walk->visits[walk->turn % 2]);
    return visit;
}

/* If the entry has the last checkpoint's tag: clears the tag or, if that checkpoint was abandoned, replaces
 * the tag by that of the generation being taken. Other tags stay. */
static void retag(struct keyed_table *table, struct table_group *group, struct keyed_slot *slot)
{
    uint64_t tag = slot->bits & SLOT_TAG;
    if (tag != 0 && tag == table->previous_tag) {
        tag = table->previous_is_dirty ? table->snapshot.tag : 0;
        slot->bits = (slot->bits & ~SLOT_TAG) | tag;
    }
    if (tag == 0 || (slot->bits & SLOT_USED) == 0)
        bit_clear(group->changed, (size_t)(slot - group->slots));
}

/* Removes the group's entries from memory. Rows in the database stay, and are void with the end of the stay. */
static void free_entries(struct keyed_table *table, uint32_t index)
{
    struct table_group *group = &table->groups[index];
    for (uint32_t i = 0; i < group->capacity; i++)
        if (slot_block(&group->slots[i]) != NULL)
            slab_give(&table->slab, slot_block(&group->slots[i]));
    table->stats.resident -= group->count;
    keyed_free_group(table, group);
    bit_clear(table->gone, index);
}

/* Takes one group: appends its entries of the generation to `out` (NULL: nowhere) and retags all its entries.
 * Returns about how many slots were visited. */
static uint32_t take_group(struct keyed_table *table, uint32_t index, struct byte_buffer *out)
{
    struct table_group *group = &table->groups[index];
    if (unlikely(bit_get(table->arriving, index)))
        return 1; /* its giver's checkpoint has it */
    struct slot_walk walk = {.group = group, .is_whole = table->snapshot.is_base};
    uint32_t visited = 0;
    size_t from = SIZE_MAX;
    for (const struct slot_visit *visit; (visit = keyed_walk(&walk))->count > 0;) {
        visited += visit->count;
        for (uint32_t i = 0; i < visit->count; i++) {
            struct keyed_slot *slot = visit->slots[i];
            bool is_written = out != NULL && (slot->bits & SLOT_USED) != 0 && is_taken_up(table, slot);
            retag(table, group, slot);
            if (!is_written)
                continue;
            if (from != SIZE_MAX && out->length - from > RECORD_TARGET) {
                close_frame(out, from);
                from = SIZE_MAX;
            }
            if (from == SIZE_MAX) {
                from = out->length;
                append_frame_head(out, index);
                append_record_head(table, out);
            }
            append_entry(out, slot);
        }
    }
    if (from != SIZE_MAX)
        close_frame(out, from);
    visited += group->capacity / 64;
    if (unlikely(bit_get(table->gone, index)))
        free_entries(table, index);
    return visited;
}

void keyed_forget(struct keyed_table *table, uint32_t group)
{
    if (table->snapshot.is_active && group >= table->snapshot.cursor)
        bit_set(table->gone, group);
    else
        free_entries(table, group);
}

/* Fills the chunk. Under the mutex, while no chunk is ready. Saved entries go first, so that the memory of
 * these copies is freed early. */
static void fill_chunk(struct keyed_table *table)
{
    struct table_snapshot *snapshot = &table->snapshot;
    struct byte_buffer empty = snapshot->chunk;
    snapshot->chunk = snapshot->saved;
    snapshot->saved = empty;
    buffer_clear(&snapshot->saved);
    uint64_t slots = 0;
    while (snapshot->cursor < KEY_GROUPS && snapshot->chunk.length < CHUNK_TARGET && slots < CHUNK_SLOTS) {
        slots += take_group(table, snapshot->cursor, &snapshot->chunk);
        snapshot->cursor++;
    }
    snapshot->is_active = snapshot->cursor < KEY_GROUPS;
    snapshot->is_last = !snapshot->is_active;
    snapshot->chunk_bytes = snapshot->chunk.capacity;
    atomic_store(&snapshot->is_chunk_ready, true);
}

void keyed_serve(struct keyed_table *table)
{
    struct table_snapshot *snapshot = &table->snapshot;
    if (likely(!snapshot->is_active) || !atomic_load(&snapshot->is_wanted) ||
        atomic_load(&snapshot->is_chunk_ready))
        return;
    fill_chunk(table);
    sem_post(&snapshot->served);
}

/* Writer thread: waits until the next chunk is filled, by this thread or by the lane, whichever comes first:
 * a busy lane hardly ever lets go of the mutex. */
static void wait_for_chunk(struct keyed_table *table)
{
    struct table_snapshot *snapshot = &table->snapshot;
    atomic_store(&snapshot->is_wanted, true);
    while (!atomic_load(&snapshot->is_chunk_ready)) {
        if (pthread_mutex_trylock(&table->mutex) == 0) {
            if (!atomic_load(&snapshot->is_chunk_ready))
                fill_chunk(table);
            pthread_mutex_unlock(&table->mutex);
            break;
        }
        struct timespec until = wait_until(SERVE_WAIT_MS * 1000);
        while (sem_clockwait(&snapshot->served, CLOCK_MONOTONIC, &until) != 0 && errno == EINTR)
            ;
    }
    atomic_store(&snapshot->is_wanted, false);
}

/* Puts the records of a chunk, by key group: saved entries come in any order. */
static bool put_frames(struct snapshot_writer *writer, const struct byte_buffer *chunk,
                       struct by_group *sorted)
{
    struct frame frame;
    by_group_clear(sorted);
    for (size_t at = 0; at < chunk->length; at += sizeof(frame) + frame.bytes) {
        memcpy(&frame, chunk->data + at, sizeof(frame));
        by_group_add(sorted, frame.group, chunk->data + at);
    }
    by_group_sort(sorted);
    bool is_good = true;
    for (uint32_t i = 0; is_good && i < sorted->count; i++) {
        const char *at = sorted->records[i];
        memcpy(&frame, at, sizeof(frame));
        is_good = snapshot_put(writer, frame.group, at + sizeof(frame), frame.bytes);
    }
    return is_good;
}

static bool write_generation(void *argument, struct snapshot_writer *writer)
{
    struct keyed_table *table = argument;
    struct table_snapshot *snapshot = &table->snapshot;
    struct byte_buffer taken = {0};
    struct by_group sorted = {0};
    bool is_good = true, goes_on = true;
    while (is_good && goes_on) {
        wait_for_chunk(table);
        struct byte_buffer chunk = snapshot->chunk;
        snapshot->chunk = taken; /* its memory is reused */
        buffer_clear(&snapshot->chunk);
        taken = chunk;
        goes_on = !snapshot->is_last;
        atomic_store(&snapshot->is_chunk_ready, false);
        is_good = put_frames(writer, &taken, &sorted);
    }
    by_group_free(&sorted);
    buffer_free(&taken);
    return is_good;
}

/* The checkpoint was published or abandoned. If it was abandoned, some groups may not have been visited. */
static void generation_done(void *argument, bool is_published)
{
    struct keyed_table *table = argument;
    struct table_snapshot *snapshot = &table->snapshot;
    pthread_mutex_lock(&table->mutex);
    leat_assert(!is_published || !snapshot->is_active);
    for (; snapshot->cursor < KEY_GROUPS; snapshot->cursor++)
        (void)take_group(table, snapshot->cursor, NULL);
    snapshot->is_active = false;
    atomic_store(&snapshot->is_chunk_ready, false);
    snapshot->chunk_bytes = 0;
    table->previous_tag = snapshot->tag;
    table->previous_is_dirty = !is_published;
    buffer_free(&snapshot->saved);
    buffer_free(&snapshot->chunk);
    snapshot->is_pending = false;
    pthread_mutex_unlock(&table->mutex);
}

bool keyed_table_snapshot(struct keyed_table *table, struct snapshot_writer *writer)
{
    struct table_snapshot *snapshot = &table->snapshot;
    keyed_delete_void(table);
    store_hold(&table->user);
    pthread_mutex_lock(&table->mutex);
    leat_assert(!table->is_open && !snapshot->is_pending);
    snapshot->is_active = snapshot->is_pending = true;
    snapshot->is_base = snapshot_is_base(writer);
    snapshot->epoch = snapshot_epoch(writer);
    snapshot->watermark = table->watermark;
    snapshot->tag = table->tag;
    snapshot->cursor = 0;
    table->tag = keyed_next_tag(table->tag, table->previous_tag);
    table->epoch = snapshot->epoch + 1;
    __atomic_store_n(&table->user.barrier_watermark, table->watermark, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&table->mutex);
    snapshot_defer(writer, write_generation, generation_done, table);
    return true;
}

/* --- Restoring --- */

/* Once look-ups of single entries have cost as much as one pass over all stored keys, such passes add the keys of all groups up to
 * `group` to the filter, which saves most further ones: so a restore costs at most twice as much as the better of the two ways. */
static void learn_up_to(struct keyed_table *table, uint32_t group)
{
    if (table->next_unknown > group)
        return;
    if (table->restore_looks == 0)
        table->restore_looks = MAX(keyed_stored_bytes(table) / LOOK_BYTES, 1);
    while (table->restore_looked > table->restore_looks && table->next_unknown <= group)
        keyed_learn(table);
}

/* Entries of a record that are restored together: one read of the database serves those that are not in memory. */
struct restoring {
    struct record_entry entries[RESTORED_MAX];
    const char *values[RESTORED_MAX];
    uint64_t hashes[RESTORED_MAX];
    uint32_t count;
};

/* Removes the entries that the database holds with a higher epoch than the record's. */
static void leave_out_newer(struct keyed_table *table, struct restoring *r, uint32_t epoch)
{
    const char *keys[RESTORED_MAX];
    size_t lengths[RESTORED_MAX];
    rocksdb_pinnableslice_t *values[RESTORED_MAX];
    uint32_t asked[RESTORED_MAX], count = 0, kept = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        learn_up_to(table, key_group(r->hashes[i]));
        if (!keyed_is_perhaps_stored(table, r->hashes[i]) ||
            keyed_find(table, r->entries[i].key, r->hashes[i]) != NULL)
            continue;
        keys[count] = table->key_space[count];
        lengths[count] = keyed_key(table, table->key_space[count], r->entries[i].key, r->hashes[i]);
        asked[count++] = i;
    }
    table->restore_looked += count;
    bool is_good = count == 0 || store_get(table->options.store, count, keys, lengths, values);
    for (uint32_t i = 0; i < count; i++) {
        struct str data;
        struct stored_value head = {0};
        if (!is_good || values[i] == NULL)
            continue;
        data.data = rocksdb_pinnableslice_value(values[i], &data.length);
        if (data.length >= sizeof(head))
            memcpy(&head, data.data, sizeof(head));
        rocksdb_pinnableslice_destroy(values[i]);
        if (head.epoch > epoch)
            r->values[asked[i]] = NULL;
    }
    for (uint32_t i = 0; i < r->count; i++)
        if (r->values[i] != NULL) {
            r->entries[kept] = r->entries[i];
            r->hashes[kept] = r->hashes[i];
            r->values[kept++] = r->values[i];
        }
    r->count = kept;
}

static void restore_entries(struct keyed_table *table, struct restoring *r, uint32_t epoch)
{
    if (table->may_be_stored)
        leave_out_newer(table, r, epoch);
    for (uint32_t i = 0; i < r->count; i++) {
        const struct record_entry *entry = &r->entries[i];
        struct keyed_slot *slot = keyed_find(table, entry->key, r->hashes[i]);
        if (slot == NULL)
            slot = keyed_insert(table, entry->key, r->hashes[i]);
        keyed_fill(table, slot, entry->expire_us, (struct str){r->values[i], entry->bytes});
        slot->bits |= SLOT_UNSAVED;
    }
    r->count = 0;
}

bool keyed_next_entry(struct str record, size_t *at, struct record_entry *entry)
{
    if (record.length - *at < sizeof(*entry))
        return false;
    memcpy(entry, record.data + *at, sizeof(*entry));
    if (entry->bytes > TABLE_VALUE_MAX || entry->bytes > record.length - *at - sizeof(*entry))
        return false;
    *at += sizeof(*entry) + entry->bytes;
    return true;
}

/* A checkpoint has entries in the order of their home slots: if the group grew step by step, the entries would crowd in its first slots, and
 * each search would pass all of them. The number of new entries in this record and those behind it is estimated, as if
 * home slots lay everywhere as densely as between the first and the third quarter of this record. */
void keyed_expect_entries(struct keyed_table *table, struct str record)
{
    struct record_entry entry;
    uint32_t count = 0, missing = 0, group = 0, homes[2] = {0, 0};
    for (size_t at = sizeof(struct record_head); keyed_next_entry(record, &at, &entry); count++) {
        uint64_t hash = key_hash(entry.key);
        const struct keyed_slot *slot = keyed_find(table, entry.key, hash);
        group = key_group(hash);
        missing += slot == NULL;
        if (slot != NULL)
            prefetch_line(slot_block(slot));
    }
    struct table_group *g = &table->groups[group];
    if (missing < EXPECT_MIN || (uint64_t)(g->count + missing) * 4 <= (uint64_t)g->capacity * 3 ||
        (!group_set_has(table->options.groups, group) && !bit_get(table->arriving, group)))
        return;
    uint32_t first = count / 4, last = count - 1 - first, i = 0;
    for (size_t at = sizeof(struct record_head); i <= last && keyed_next_entry(record, &at, &entry); i++)
        if (i == first || i == last)
            homes[i == last] = (uint32_t)key_hash(entry.key);
    double behind = homes[1] <= homes[0] ? 0
                                         : (last - first) * (4294967296.0 - homes[0]) /
                                               (homes[1] - homes[0]) * missing / count;
    double all = MAX(behind + missing / 4, missing);
    all = MIN(g->count + all, (double)(g->count + missing) * EXPECT_TIMES);
    uint32_t capacity = keyed_capacity_for((uint32_t)MIN(all, UINT32_MAX / 4));
    if (capacity > g->capacity && keyed_bytes(table) + group_bytes(capacity) <= table->maintain_bytes)
        keyed_rebuild(table, g, capacity);
}

bool keyed_table_restore(struct keyed_table *table, struct snapshot_reader *reader, struct str record,
                         struct diag_list *diags)
{
    struct record_head head;
    if (record.length < sizeof(head) || (uint8_t)record.data[0] != table->options.kind) {
        snapshot_corrupt(reader, diags, "a record of keyed state has no valid header");
        return false;
    }
    memcpy(&head, record.data, sizeof(head));
    pthread_mutex_lock(&table->mutex);
    /* Parts of several workers come one behind the other, each from its base on: an entry that is evicted now must not count as newer
     * than what its part's later links say of it. */
    uint64_t newest = MAX(table->epoch, head.epoch);
    table->epoch = head.epoch;
    bool is_good = true;
    keyed_expect_entries(table, record);
    struct restoring r;
    r.count = 0;
    for (size_t at = sizeof(head); is_good && at < record.length;) {
        struct record_entry *entry = &r.entries[r.count];
        is_good = keyed_next_entry(record, &at, entry);
        uint64_t hash = is_good ? key_hash(entry->key) : 0;
        if (!is_good || !group_set_has(table->options.groups, key_group(hash)) ||
            entry->expire_us < table->watermark)
            continue;
        r.hashes[r.count] = hash;
        r.values[r.count++] = record.data + at - entry->bytes;
        if (r.count == RESTORED_MAX)
            restore_entries(table, &r, head.epoch);
    }
    restore_entries(table, &r, head.epoch);
    if (keyed_bytes(table) > table->maintain_bytes)
        keyed_maintain(table);
    table->epoch = newest;
    pthread_mutex_unlock(&table->mutex);
    if (!is_good)
        snapshot_corrupt(reader, diags, "an entry of keyed state is longer than its record");
    return is_good;
}
