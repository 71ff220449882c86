/* Inside state/: the database that tables, queues and cold stores share.
 *
 * Database keys are id (2 bytes, big-endian), kind (1), key group (2, big-endian), then what each kind
 * defines: of tables the group's stay (4, big-endian) where it is not 0, and the key. Values begin with struct stored_value, which the compaction filter reads. */
#ifndef LEAT_STATE_STORE_H
#define LEAT_STATE_STORE_H

#include "state/state.h"

#include <rocksdb/c.h>

enum {
    STORE_PREFIX_BYTES = 5,
    STORE_STAY_BYTES = 4,
    STORE_KEY_MAX = 48,
    STORE_RANGE_MAX = 8,
    STORE_READ_MAX = BATCH_ROWS
};

/* The head of each value, unaligned. */
struct __attribute__((packed)) stored_value {
    uint32_t epoch;
    int64_t expire_us;
};

/* A table, queue or cold store that uses the database. The store knows all users, for the watermark below
 * which their values may be dropped. */
struct store_user {
    struct state_store *store;
    uint16_t id;
    uint8_t kind;
    bool has_table; /* the user is one table of several: `table` is in the place of the key group */
    uint32_t table;
    int64_t barrier_watermark; /* at the last barrier; in a temporary store, the current one; atomic */
    uint64_t held_at;          /* the store's `releases` at the user's last store_hold; UINT64_MAX: none */
    struct store_user *next;
};

void store_add_user(struct store_user *user);
void store_remove_user(struct store_user *user);

/* Whether entries may be written to the database now: there is a directory, no hold, and no failure. */
bool store_can_write(const struct store_user *user);
/* Whether memory can be freed by evictions at all: there is a directory. */
bool store_has_directory(const struct state_store *store);
/* Whether there is a database to read from. */
bool store_has_database(const struct state_store *store);
/* Whether instances of one operator share the store; at first: yes. */
bool store_is_shared(const struct state_store *store);
void store_set_shared(struct state_store *store, bool is_shared);
/* Makes the store fail with the message "what: error text". error: an errno. Any thread. */
void store_failed(struct state_store *store, const char *what, int error);
/* Opens an unlinked file beside the database, of a store with a directory. A descriptor, or -1 and errno. */
int store_nameless_file(const struct state_store *store);
/* At the user's barrier: the user writes nothing until the next state_store_checkpoint or
 * state_store_release. */
void store_hold(struct store_user *user);
/* The user reads no value any more that expires before the watermark. */
void store_note_watermark(struct store_user *user, int64_t watermark);
/* Adds to the bytes that wait for the database; bytes may be negative. */
void store_add_pressure(struct state_store *store, int64_t bytes);

/* Writes the first STORE_PREFIX_BYTES of a database key to `out` and returns their number. group: the key
 * group, or the table of a user with has_table. */
size_t store_prefix(char *out, uint16_t id, uint8_t kind, uint32_t group);

/* The database keys of a key group in one stay (core/placement.h): those from `first` up to `limit` that begin with the
 * `bytes` bytes of `first` and are as long as the user's keys are. A stay of 0 has no place in keys, so others of the group
 * may lie between them: they are longer. */
struct store_group {
    char first[STORE_PREFIX_BYTES + STORE_STAY_BYTES], limit[STORE_PREFIX_BYTES + STORE_STAY_BYTES];
    size_t bytes, limit_bytes;
};
struct store_group store_group(uint16_t id, uint8_t kind, uint32_t group, uint32_t stay);

/* A batch collects puts; store_commit writes them in one call and clears the batch, and creates the database
 * if there is none. False: the store failed. */
rocksdb_writebatch_t *store_batch_new(void);
LEAT_CHECKED bool store_commit(struct state_store *store, rocksdb_writebatch_t *batch);

/* Reads up to STORE_READ_MAX keys in one call. values[i] is NULL where the key is missing; the caller
 * destroys the others. False: the store failed. */
LEAT_CHECKED bool store_get(struct state_store *store, uint32_t count, const char *const *keys,
                            const size_t *key_bytes, rocksdb_pinnableslice_t **values);

/* Visits the pairs with first <= key < limit in order, until `visit` returns false. Returns false if the
 * store failed. */
typedef bool store_visit(void *argument, struct str key, struct str value);
LEAT_CHECKED bool store_scan(struct state_store *store, struct str first, struct str limit,
                             store_visit *visit, void *argument);
/* Visits the pairs of several ranges, first <= key < limit in each, in the order of what follows the first
 * `bytes` bytes of their keys. */
struct store_range {
    char first[STORE_RANGE_MAX], limit[STORE_RANGE_MAX];
    size_t bytes; /* of both; the same in all ranges */
};
LEAT_CHECKED bool store_scan_ranges(struct state_store *store, const struct store_range *ranges,
                                    uint32_t count, store_visit *visit, void *argument);
/* Writes what is in the database's memory to files, so that store_bytes counts it. False: the store failed. */
LEAT_CHECKED bool store_flush(struct state_store *store);
/* store_groups.c. Makes the database in the directory `path`, which nobody has open and whose table files need not be there, forget
 * those table files that have rows of keyed tables alone, all of them of key groups outside of `groups`. Files of level 0, which
 * were flushed and not merged yet, stay. *names: the table files that it still has ("000012.sst"), in the arena. Returns NULL, or
 * the text of an error, malloc'd. */
char *store_forget_groups(const char *path, const struct group_set *groups, struct arena *arena,
                          const char ***names, uint32_t *count);
/* About how many bytes the pairs with first <= key < limit have; recent writes are not counted. */
uint64_t store_bytes(struct state_store *store, struct str first, struct str limit);

#endif
