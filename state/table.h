/* Inside state/: what the files of the keyed table share. See state.h for how it works. */
#ifndef LEAT_STATE_TABLE_H
#define LEAT_STATE_TABLE_H

#include "core/buffer.h"
#include "state/filter.h"
#include "state/pages.h"
#include "state/slab.h"
#include "state/store.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

/* Upper bits of keyed_slot.bits. */
#define SLOT_POINTER    ((UINT64_C(1) << KEYED_POINTER_BITS) - 1)
#define SLOT_USED       (UINT64_C(1) << 48)
#define SLOT_REFERENCED (UINT64_C(1) << 49) /* used since the last sweep */
#define SLOT_UNSAVED    (UINT64_C(1) << 50) /* differs from the copy in the database */
#define SLOT_FRESH      (UINT64_C(1) << 51) /* an empty entry, new or expired: readers treat it as absent */
#define SLOT_TAG_SHIFT  52
#define SLOT_GIVEN      (UINT64_C(1) << 54) /* has not changed since it was given to another instance */
/* Generation of the last change; 0: the change is published. */
#define SLOT_TAG (UINT64_C(3) << SLOT_TAG_SHIFT)

enum { TABLE_VALUE_MAX = 12 << 20, TABLE_CAPACITY_MIN = 4 };

struct table_group {
    struct keyed_slot *slots;
    /* One bit for each slot, stored behind the slots: set if the slot has a tag, sometimes also if not. */
    uint64_t *changed;
    uint32_t capacity, count;
};

static inline size_t group_bytes(uint32_t capacity)
{
    return capacity * sizeof(struct keyed_slot) + BIT_WORDS((size_t)capacity) * sizeof(uint64_t);
}

/* The generation of changes that the checkpoint under way takes. Guarded by the table's mutex unless a member
 * says otherwise. */
struct table_snapshot {
    bool is_active; /* not every group was visited yet */
    bool is_base;
    bool is_pending; /* the checkpoint is neither published nor abandoned yet */
    uint64_t epoch;
    int64_t watermark;        /* at the barrier */
    uint64_t tag;             /* the tag of the generation's entries, shifted */
    uint32_t cursor;          /* groups before this one were visited */
    struct byte_buffer saved; /* frames of entries that were copied before they changed */
    struct byte_buffer chunk; /* frames of records; the writer thread's alone while is_chunk_ready */
    bool is_last;             /* `chunk` is the last one */
    size_t chunk_bytes;       /* capacity of `chunk` when it was filled */
    atomic_bool is_chunk_ready;
    atomic_bool is_wanted; /* the writer thread waits for a chunk */
    sem_t served;
};

struct keyed_table {
    struct keyed_options options;
    struct store_user user;
    pthread_mutex_t mutex;
    bool is_open; /* a bracket is open */
    struct table_group groups[KEY_GROUPS];
    struct pages pages;
    struct slab slab;
    size_t slot_bytes;
    uint64_t rebuilds; /* counts keyed_rebuild calls, each of which moves slots */
    int64_t watermark;
    uint64_t epoch;         /* the epoch in progress; evicted entries carry it */
    uint64_t tag;           /* for changes from now on, shifted; 1 to 3 */
    uint64_t previous_tag;  /* tag of the last checkpoint's entries; 0: none */
    bool previous_is_dirty; /* the last checkpoint was abandoned: its entries count as changed */
    struct table_snapshot snapshot;
    uint32_t hand;            /* the next group to sweep */
    size_t maintain_bytes;    /* keyed_end sweeps above this */
    int64_t pressure;         /* bytes that were reported to the store as waiting */
    bool may_be_stored;       /* the database may hold entries of this table */
    struct key_filter filter; /* keys that the database may hold, of the key groups below next_unknown */
    /* The first key group whose stored keys are not in the filter; KEY_GROUPS: all are. */
    uint32_t next_unknown;
    uint32_t filter_asked, filter_rejected; /* keys since weigh_filter last decided about the filter */
    uint32_t learn_in;                      /* brackets until the next group is learned */
    /* Of a restore: entries that were looked up in the database, and how many before it is read through instead; 0: not
     * reckoned yet. */
    uint64_t restore_looked, restore_looks;
    /* Moves of key groups. leaving: given as a base, so changes stay in memory until the rest is given; gone: given away, and kept
     * until the checkpoint under way has visited it; arriving: taken as a base, not the instance's own yet; void: given away since
     * the last barrier, so that its rows are still in the database. */
    uint64_t leaving[BIT_WORDS(KEY_GROUPS)], gone[BIT_WORDS(KEY_GROUPS)], arriving[BIT_WORDS(KEY_GROUPS)],
        void_rows[BIT_WORDS(KEY_GROUPS)];
    rocksdb_writebatch_t *evictions;
    struct keyed_slot **victims; /* of the group being swept */
    uint32_t victims_count, victims_capacity;
    struct keyed_stats stats;
    struct keyed_slot peeked;         /* table_peek.c: a copy from the database, whose value is of the heap */
    char (*key_space)[STORE_KEY_MAX]; /* STORE_READ_MAX database keys, for reads */
};

static inline uint32_t slot_home(uint64_t hash, uint32_t capacity)
{
    return (uint32_t)((uint64_t)(uint32_t)hash * capacity >> 32);
}

static inline char *slot_block(const struct keyed_slot *slot)
{
    return (char *)(uintptr_t)(slot->bits & SLOT_POINTER);
}

static inline void slot_set_block(struct keyed_slot *slot, char *block)
{
    slot->bits = (slot->bits & ~SLOT_POINTER) | (uint64_t)(uintptr_t)block;
}

static inline bool slot_is_live(const struct keyed_slot *slot, int64_t watermark)
{
    return (slot->bits & (SLOT_USED | SLOT_FRESH)) == SLOT_USED && slot->expire_us >= watermark;
}

static inline size_t keyed_bytes(const struct keyed_table *table)
{
    return table->slot_bytes + table->slab.used_bytes + table->filter.bytes + table->snapshot.saved.capacity +
           table->snapshot.chunk_bytes;
}

/* Whether the database may hold an entry of a key with that hash; asked where it may hold entries at all. */
static inline bool keyed_is_perhaps_stored(const struct keyed_table *table, uint64_t hash)
{
    return key_group(hash) >= table->next_unknown || filter_has(&table->filter, hash);
}

/* The slot of the key, or NULL. */
struct keyed_slot *keyed_find(struct keyed_table *table, struct key key, uint64_t hash);
/* Adds an empty entry for a key that is not there; may move the slots of its group. */
struct keyed_slot *keyed_insert(struct keyed_table *table, struct key key, uint64_t hash);
/* Notes that an entry changes in the generation in progress. Call it before the entry's tag is set. */
static inline void keyed_note_change(struct keyed_table *table, const struct keyed_slot *slot)
{
    struct table_group *group = &table->groups[key_group(key_hash(slot->key))];
    bit_set(group->changed, (size_t)(slot - group->slots));
}
/* Moves the group's slots into an array of another capacity, leaving out slots without SLOT_USED. */
void keyed_rebuild(struct keyed_table *table, struct table_group *group, uint32_t capacity);
/* Frees the group's slots, whose values were given back; the group is empty then. */
void keyed_free_group(struct keyed_table *table, struct table_group *group);
/* The capacity of a group, in slots, when it is rebuilt with `count` entries. */
uint32_t keyed_capacity_for(uint32_t count);
/* Sets the entry's value to a copy of `value`, which comes from the database, a checkpoint or another table. */
void keyed_fill(struct keyed_table *table, struct keyed_slot *slot, int64_t expire_us, struct str value);
/* Writes the entry's database key to `out`, which has room for STORE_KEY_MAX bytes. Returns its length. */
size_t keyed_key(const struct keyed_table *table, char *out, struct key key, uint64_t hash);

/* Visits what a store, the table's own or another, has of a group in its present stay, in the order of the keys. False: the
 * store failed. */
typedef void keyed_visit_stored(void *argument, struct key key, const struct stored_value *head,
                                struct str value);
LEAT_CHECKED bool keyed_visit_database(const struct keyed_table *table, struct state_store *store,
                                       uint32_t group, keyed_visit_stored *visit, void *argument);

/* About how many bytes the database has of the table; recent writes are not counted. */
uint64_t keyed_stored_bytes(const struct keyed_table *table);

/* After a restore: reads the stored keys of the next unknown key group into the filter. */
void keyed_learn(struct keyed_table *table);

/* table_evict.c: brings the table back below its budget. */
void keyed_maintain(struct keyed_table *table);
/* Drops the group's expired entries, and outside a bracket the entries that were never written; leaves room
 * for `more` new entries. */
void keyed_drop_dead(struct keyed_table *table, uint32_t group, uint32_t more);

/* table_snapshot.c */
/* The tag of the generation after the one with `tag`; previous: of the one before that. */
uint64_t keyed_next_tag(uint64_t tag, uint64_t previous);

enum { VISIT_SLOTS = 32 };

/* Slots of a group that are visited together, while the values of the next visit are prefetched. */
struct slot_visit {
    uint32_t count;
    struct keyed_slot *slots[VISIT_SLOTS];
};

/* A walk over a group's slots: over all, with is_whole, else over those whose `changed` bit is set. The other members are
 * zero at first. */
struct slot_walk {
    const struct table_group *group;
    bool is_whole;
    uint32_t next, turn;
    struct slot_visit visits[2];
};

/* The next slots, used ones and others; count 0: there are no more. Valid until the next call. Do not call it once slots of the
 * group have moved. */
const struct slot_visit *keyed_walk(struct slot_walk *walk);
/* Whether the checkpoint under way still needs the entry as it is now. */
bool keyed_is_frozen(const struct keyed_table *table, const struct keyed_slot *slot, uint32_t group);
/* Copies an entry that the checkpoint under way needs. Call it before the entry changes or is reset. */
void keyed_save(struct keyed_table *table, const struct keyed_slot *slot);
/* On the lane: if the writer thread waits for a chunk, fills it. */
void keyed_serve(struct keyed_table *table);
/* table_move.c: deletes the rows of groups that were given away with the last barrier: its checkpoint has them, this one does not
 * need them, and none of the groups is back yet. Call at a barrier, before the database is held. */
void keyed_delete_void(struct keyed_table *table);
/* Forgets a group that was given away: at once, or when the checkpoint under way has visited it. */
void keyed_forget(struct keyed_table *table, uint32_t group);

/* The form of a snapshot record: a head, then entries, each before the bytes of its value. */
struct __attribute__((packed)) record_head {
    uint8_t kind;
    uint8_t spare[3];
    uint32_t epoch;
};

struct __attribute__((packed)) record_entry {
    struct key key;
    int64_t expire_us;
    uint32_t bytes;
};

/* Reads the entry at offset *at of a record, and moves *at behind its value; false where no whole entry is left. */
bool keyed_next_entry(struct str record, size_t *at, struct record_entry *entry);
/* Makes room in the record's group for those of its entries that are new, before the first is inserted; prefetches the values of
 * the others. */
void keyed_expect_entries(struct keyed_table *table, struct str record);

#endif
