/* The keyed table: key groups that go to another instance, come from one, or come from another life's database. */
#include "state/table.h"

#include "core/moved.h"

#include <stdlib.h>

enum { RECORD_TARGET = 128 << 10, COMMIT_BYTES = 256 << 10 };

/* --- Giving --- */

/* Records of one group that are being made. */
struct giving {
    struct keyed_table *table;
    uint32_t group;
    struct byte_buffer *out, record;
};

static void end_record(struct giving *giving)
{
    if (giving->record.length > sizeof(struct record_head))
        moved_put(giving->out, giving->group, giving->record.data, giving->record.length);
    buffer_clear(&giving->record);
}

static void give_entry(struct giving *giving, struct key key, int64_t expire_us, struct str value)
{
    struct byte_buffer *record = &giving->record;
    if (record->length > RECORD_TARGET)
        end_record(giving);
    if (record->length == 0) {
        struct record_head head = {.kind = giving->table->options.kind};
        buffer_append(record, &head, sizeof(head));
    }
    struct record_entry entry = {key, expire_us, (uint32_t)value.length};
    buffer_append(record, &entry, sizeof(entry));
    if (value.length > 0)
        buffer_append(record, value.data, value.length);
}

static void give_stored(void *argument, struct key key, const struct stored_value *head, struct str value)
{
    struct giving *giving = argument;
    const struct keyed_slot *resident = keyed_find(giving->table, key, key_hash(key));
    bool is_newer_here = resident != NULL && (resident->bits & SLOT_FRESH) == 0;
    if (!is_newer_here && head->expire_us >= giving->table->watermark)
        give_entry(giving, key, head->expire_us, value);
}

/* Writes the group's live entries: all of them; or, where some were given before, those with that tag that have changed since. */
static bool give_group(struct giving *giving, uint64_t tag)
{
    struct keyed_table *table = giving->table;
    bool is_again = bit_get(table->leaving, giving->group);
    struct slot_walk walk = {.group = &table->groups[giving->group], .is_whole = !is_again};
    for (const struct slot_visit *visit; (visit = keyed_walk(&walk))->count > 0;)
        for (uint32_t i = 0; i < visit->count; i++) {
            struct keyed_slot *slot = visit->slots[i];
            struct str value;
            uint32_t bytes;
            if (!slot_is_live(slot, table->watermark) ||
                (is_again && (slot->bits & (SLOT_TAG | SLOT_GIVEN)) != tag))
                continue;
            value.data = keyed_read(slot, &bytes);
            value.length = bytes;
            give_entry(giving, slot->key, slot->expire_us, value);
            slot->bits |= SLOT_GIVEN;
        }
    bool is_good = is_again || !table->may_be_stored ||
                   keyed_visit_database(table, table->options.store, giving->group, give_stored, giving);
    end_record(giving);
    return is_good;
}

bool keyed_table_give_base(struct keyed_table *table, uint32_t group, struct byte_buffer *out)
{
    struct giving giving = {.table = table, .group = group, .out = out};
    pthread_mutex_lock(&table->mutex);
    leat_assert(!table->is_open && group_set_has(table->options.groups, group));
    bool is_good = give_group(&giving, table->tag);
    bit_set(table->leaving, group);
    pthread_mutex_unlock(&table->mutex);
    buffer_free(&giving.record);
    return is_good;
}

bool keyed_table_give(struct keyed_table *table, const struct group_set *leaving, struct byte_buffer *out)
{
    bool is_good = true;
    struct giving giving = {.table = table, .out = out};
    pthread_mutex_lock(&table->mutex);
    leat_assert(!table->is_open);
    for (uint32_t g = group_set_next(leaving, 0); g < KEY_GROUPS; g = group_set_next(leaving, g + 1)) {
        leat_assert(group_set_has(table->options.groups, g));
        giving.group = g;
        is_good &= give_group(&giving, table->snapshot.tag);
        keyed_forget(table, g);
        bit_clear(table->leaving, g);
        bit_set(table->void_rows, g);
    }
    pthread_mutex_unlock(&table->mutex);
    buffer_free(&giving.record);
    return is_good;
}

/* Deletes the rows of a group, of any stay. */
static void delete_group(const struct keyed_table *table, rocksdb_writebatch_t *batch, uint32_t group)
{
    struct store_group all = store_group(table->options.id, table->options.kind, group, 0);
    rocksdb_writebatch_delete_range(batch, all.first, all.bytes, all.limit, all.limit_bytes);
}

void keyed_delete_void(struct keyed_table *table)
{
    const struct keyed_options *options = &table->options;
    rocksdb_writebatch_t *batch = NULL;
    for (uint32_t g = 0; g < KEY_GROUPS; g++) {
        if (!bit_get(table->void_rows, g) || group_set_has(options->groups, g))
            continue;
        batch = batch == NULL ? store_batch_new() : batch;
        delete_group(table, batch, g);
    }
    memset(table->void_rows, 0, sizeof(table->void_rows));
    if (batch == NULL)
        return;
    /* In a store that instances share, the rows lie among those of the group's new instance: they stay there, and are void. */
    if (store_has_database(options->store) && !store_is_shared(options->store))
        (void)!store_commit(options->store, batch); /* the store keeps the error */
    rocksdb_writebatch_destroy(batch);
}

bool keyed_table_forget_groups(struct keyed_table *table, const struct group_set *groups)
{
    rocksdb_writebatch_t *batch = store_batch_new();
    for (uint32_t g = group_set_next(groups, 0); g < KEY_GROUPS; g = group_set_next(groups, g + 1))
        delete_group(table, batch, g);
    bool is_good = !store_has_database(table->options.store) || rocksdb_writebatch_count(batch) == 0 ||
                   store_commit(table->options.store, batch);
    rocksdb_writebatch_destroy(batch);
    return is_good;
}

/* --- Taking --- */

/* The tag of entries that are taken: they count as changed once their groups are the instance's own, so that the next checkpoint
 * has them, whatever the giver's last one had. Before the second barrier it is the tag that changes behind that barrier will
 * have. */
static uint64_t taken_tag(const struct keyed_table *table, bool is_own)
{
    return is_own ? table->tag : keyed_next_tag(table->tag, table->snapshot.tag);
}

static void take_entry(struct keyed_table *table, const struct record_entry *entry, const char *value,
                       uint64_t tag)
{
    uint64_t hash = key_hash(entry->key);
    if (entry->expire_us < table->watermark)
        return;
    struct keyed_slot *slot = keyed_find(table, entry->key, hash);
    if (slot == NULL)
        slot = keyed_insert(table, entry->key, hash);
    keyed_fill(table, slot, entry->expire_us, (struct str){value, entry->bytes});
    keyed_note_change(table, slot);
    slot->bits |= SLOT_UNSAVED | tag;
}

/* groups: of which the record may be. */
static bool take_record(struct keyed_table *table, const struct group_set *groups, struct str record,
                        bool is_own)
{
    struct record_entry entry;
    if (record.length < sizeof(struct record_head) || (uint8_t)record.data[0] != table->options.kind)
        return false;
    bool is_good = true;
    pthread_mutex_lock(&table->mutex);
    leat_assert(!table->is_open);
    for (size_t at = sizeof(struct record_head); is_good && at < record.length;) {
        is_good =
            keyed_next_entry(record, &at, &entry) && group_set_has(groups, key_group(key_hash(entry.key)));
        if (is_good && !is_own)
            bit_set(table->arriving, key_group(key_hash(entry.key)));
    }
    if (is_good)
        keyed_expect_entries(table, record);
    for (size_t at = sizeof(struct record_head); is_good && keyed_next_entry(record, &at, &entry);)
        take_entry(table, &entry, record.data + at - entry.bytes, taken_tag(table, is_own));
    if (keyed_bytes(table) > table->maintain_bytes)
        keyed_maintain(table);
    pthread_mutex_unlock(&table->mutex);
    return is_good;
}

bool keyed_table_take_base(struct keyed_table *table, const struct group_set *coming, struct str record)
{
    return take_record(table, coming, record, false);
}

void keyed_table_regroup(struct keyed_table *table)
{
    pthread_mutex_lock(&table->mutex);
    memset(table->arriving, 0, sizeof(table->arriving));
    pthread_mutex_unlock(&table->mutex);
}

bool keyed_table_take(struct keyed_table *table, struct str record)
{
    return take_record(table, table->options.groups, record, true);
}

/* --- Bytes by key group --- */

uint64_t keyed_stored_bytes(const struct keyed_table *table)
{
    char first[STORE_PREFIX_BYTES], limit[STORE_PREFIX_BYTES];
    store_prefix(first, table->options.id, table->options.kind, 0);
    store_prefix(limit, table->options.id, table->options.kind, KEY_GROUPS);
    return store_bytes(table->options.store, (struct str){first, sizeof(first)},
                       (struct str){limit, sizeof(limit)});
}

/* Entries in memory count with the table's mean value; rows of the database are spread evenly over the table's groups, as keys are. */
void keyed_table_weigh(struct keyed_table *table, uint64_t bytes[KEY_GROUPS])
{
    const struct keyed_options *options = &table->options;
    const struct group_set *groups = options->groups;
    uint64_t entries = 0, stored = 0;
    uint32_t sharers = store_is_shared(options->store) ? KEY_GROUPS : MAX(group_set_count(groups), 1);
    pthread_mutex_lock(&table->mutex);
    if (table->may_be_stored)
        stored = keyed_stored_bytes(table);
    for (uint32_t g = 0; g < KEY_GROUPS; g++)
        entries += table->groups[g].count;
    for (uint32_t g = group_set_next(groups, 0); g < KEY_GROUPS; g = group_set_next(groups, g + 1)) {
        uint64_t count = table->groups[g].count;
        bytes[g] += stored / sharers + count * sizeof(struct record_entry);
        if (count > 0)
            bytes[g] += (uint64_t)((double)table->slab.used_bytes * (double)count / (double)entries);
    }
    pthread_mutex_unlock(&table->mutex);
}

/* --- Rows of another life's database --- */

struct importing {
    struct keyed_table *table;
    rocksdb_writebatch_t *batch;
    size_t bytes;
    bool is_good;
};

static void import_row(void *argument, struct key key, const struct stored_value *head, struct str value)
{
    struct importing *importing = argument;
    char space[STORE_KEY_MAX];
    const char *keys[1] = {space}, *parts[2] = {(const char *)head, value.data};
    size_t key_bytes = keyed_key(importing->table, space, key, key_hash(key));
    size_t lengths[2] = {sizeof(*head), value.length};
    rocksdb_writebatch_putv(importing->batch, 1, keys, &key_bytes, 2, parts, lengths);
    importing->bytes += key_bytes + sizeof(*head) + value.length;
    if (importing->bytes < COMMIT_BYTES)
        return;
    importing->is_good &= store_commit(importing->table->options.store, importing->batch);
    importing->bytes = 0;
}

bool keyed_table_import(struct keyed_table *table, struct state_store *from)
{
    struct importing importing = {.table = table, .batch = store_batch_new(), .is_good = true};
    const struct group_set *groups = table->options.groups;
    for (uint32_t g = group_set_next(groups, 0); g < KEY_GROUPS; g = group_set_next(groups, g + 1))
        importing.is_good &= keyed_visit_database(table, from, g, import_row, &importing);
    if (importing.is_good && rocksdb_writebatch_count(importing.batch) > 0)
        importing.is_good = store_commit(table->options.store, importing.batch);
    rocksdb_writebatch_destroy(importing.batch);
    table->may_be_stored = store_has_database(table->options.store);
    table->next_unknown = table->may_be_stored ? 0 : KEY_GROUPS;
    return importing.is_good;
}
