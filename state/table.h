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
#define SLOT_REFERENCED (UINT64_C(1) << 49) /* since the hand came by */
#define SLOT_UNSAVED    (UINT64_C(1) << 50) /* differs from what the database holds */
#define SLOT_FRESH      (UINT64_C(1) << 51) /* stands for "there is no such entry" */
#define SLOT_TAG_SHIFT  52
#define SLOT_TAG        (UINT64_C(3) << SLOT_TAG_SHIFT) /* generation of the last change; 0: published */

enum { TABLE_VALUE_MAX = 12 << 20, TABLE_CAPACITY_MIN = 4 };

struct table_group {
    struct keyed_slot *slots;
    uint64_t *changed; /* a bit a slot, behind the slots: set where the slot has a tag, perhaps elsewhere */
    uint32_t capacity, count;
};

static inline size_t group_bytes(uint32_t capacity)
{
    return capacity * sizeof(struct keyed_slot) + BIT_WORDS((size_t)capacity) * sizeof(uint64_t);
}

/* The generation that a checkpoint is taking. Under the table's mutex, where nothing else is said. */
struct table_snapshot {
    bool is_active; /* not every group was visited yet */
    bool is_base;
    bool is_pending; /* neither published nor abandoned yet */
    uint64_t epoch;
    int64_t watermark;        /* at the barrier */
    uint64_t tag;             /* of its entries, shifted */
    uint32_t cursor;          /* groups before it were visited */
    struct byte_buffer saved; /* entries copied before they changed */
    struct byte_buffer chunk; /* framed records; the writer's alone while is_chunk_ready */
    bool is_last;             /* chunk is the last one */
    size_t chunk_bytes;       /* its memory when it was filled */
    atomic_bool is_chunk_ready;
    atomic_bool is_wanted; /* the writer waits for a chunk */
    sem_t served;
};

struct keyed_table {
    struct keyed_options options;
    struct store_user user;
    pthread_mutex_t mutex;
    bool is_open; /* a bracket is */
    struct table_group groups[KEY_GROUPS];
    struct pages pages;
    struct slab slab;
    size_t slot_bytes;
    uint64_t rebuilds; /* each moves slots */
    int64_t watermark;
    uint64_t epoch;         /* label of evictions: the epoch in progress */
    uint64_t tag;           /* of changes now, shifted; 1 to 3 */
    uint64_t previous_tag;  /* of the last checkpoint's entries; 0: none */
    bool previous_is_dirty; /* that one was abandoned: its entries count as changed */
    struct table_snapshot snapshot;
    uint32_t hand;                          /* the next group to sweep */
    size_t maintain_bytes;                  /* keyed_end sweeps above this */
    int64_t pressure;                       /* as told to the store */
    bool may_be_stored;                     /* the database may hold entries of this table */
    struct key_filter filter;               /* which ones, in the key groups below next_unknown */
    uint32_t next_unknown;                  /* KEY_GROUPS: all are known */
    uint32_t filter_asked, filter_rejected; /* keys, in this trial */
    uint32_t learn_limit;                   /* key groups from here on are another lane's */
    uint32_t learn_in;                      /* brackets until the next one is learnt */
    rocksdb_writebatch_t *evictions;
    struct keyed_slot **victims; /* of the group being swept */
    uint32_t victims_count, victims_capacity;
    struct keyed_stats stats;
    char (*key_space)[STORE_KEY_MAX]; /* of STORE_READ_MAX, for reads */
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

/* The slot of the key, or NULL. */
struct keyed_slot *keyed_find(struct keyed_table *table, struct key key, uint64_t hash);
/* Adds an empty entry for a key that is not there; may move the slots of its group. */
struct keyed_slot *keyed_insert(struct keyed_table *table, struct key key, uint64_t hash);
/* The entry changes in the generation in progress: to be called before its tag is set. */
static inline void keyed_note_change(struct keyed_table *table, const struct keyed_slot *slot)
{
    struct table_group *group = &table->groups[key_group(key_hash(slot->key))];
    bit_set(group->changed, (size_t)(slot - group->slots));
}
/* Gives the group another capacity, without the slots that are not SLOT_USED. */
void keyed_rebuild(struct keyed_table *table, struct table_group *group, uint32_t capacity);
uint32_t keyed_capacity_for(uint32_t count);
/* Sets the entry's value from bytes of the database or of a checkpoint. */
void keyed_fill(struct keyed_table *table, struct keyed_slot *slot, int64_t expire_us, struct str value);
size_t keyed_key(const struct keyed_table *table, char *out, struct key key, uint64_t hash);

/* Notes the keys that the database has of the next unknown key group: after a restore. */
void keyed_learn(struct keyed_table *table);

/* table_evict.c: brings the table back into its budget. */
void keyed_maintain(struct keyed_table *table);
/* Drops the group's expired entries. */
void keyed_drop_dead(struct keyed_table *table, uint32_t group);

/* table_snapshot.c */
/* Whether the checkpoint under way still needs the entry as it is. */
bool keyed_is_frozen(const struct keyed_table *table, const struct keyed_slot *slot, uint32_t group);
/* Before an entry changes or is reset. */
void keyed_save(struct keyed_table *table, const struct keyed_slot *slot);
/* A lane's turn to fill the writer's chunk, where it waits for one. */
void keyed_serve(struct keyed_table *table);

#endif
