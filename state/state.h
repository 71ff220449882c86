/* Keyed state: hash tables in memory, with RocksDB below them for what does not fit (docs/design.md, section
 * 7).
 *
 * How a table works. Entries lie in one open-addressing array per key group, 32 bytes a slot; an entry's
 * value, if it has one, is a block of a slab. A batch names its keys first (keyed_begin): their slots are
 * prefetched, and the misses are read from the database in one call; then each row has a pointer to its slot.
 * When the table is beyond its budget, keyed_end sweeps the key groups in turn, like the hand of a clock: an
 * entry that was used since the last sweep stays, any other leaves memory, and is written to the database if
 * it differs from the copy there. Which entries are in memory never changes a result.
 *
 * Expiry. Each entry has an expiry time, which may only rise. An entry with expire_us < watermark is dead:
 * readers find no entry, and it is dropped by the next sweep, by a compaction of the database and by a
 * restore. There is no other removal, so an old copy of an entry, in a delta or in the database, can never
 * come back to life.
 *
 * Checkpoints. An entry carries a tag that says in which generation it changed last. At the barrier
 * (keyed_table_snapshot) the table only takes the next tag. The key groups are then visited one after the
 * other, under the table's lock, by the writer thread; or by the lane, which holds that lock from keyed_begin
 * to keyed_end, if the writer thread waits. An entry of a group that was not visited yet is copied aside
 * before it changes, and may not leave memory. When a checkpoint is abandoned, entries with its tag count as
 * changed for the next checkpoint. Entries that were evicted before the barrier are in the database, whose
 * own checkpoint (state_store_checkpoint) holds them with the epoch of their eviction: on restore the higher
 * epoch wins, the delta on a tie. From its barrier to state_store_checkpoint no table writes to the database.
 *
 * Threads: a table or queue belongs to its lane; functions for other threads say so. */
#ifndef LEAT_STATE_STATE_H
#define LEAT_STATE_STATE_H

#include "core/buffer.h"
#include "core/cold_store.h"
#include "core/placement.h"
#include "core/snapshot.h"

struct state_store;

/* Opens the store, one per process. directory: of the database, which is created at the first eviction (files
 * already in it are removed); NULL: everything stays in memory, and budgets cannot be kept. is_restored: the
 * directory holds the database of a checkpoint (checkpoint_restore_database), which is opened now.
 * memory_bytes: for the database alone (block cache and write buffers); an eighth to a quarter of the job's
 * memory serves well; 0, of a restored one: it is only read, and merges none of its files. Returns NULL after E0801. Control thread. */
struct state_store *state_store_open(const char *directory, size_t memory_bytes, bool is_restored,
                                     struct diag_list *diags);
/* Says that no checkpoint will be taken of the store: expired values are then dropped as the watermark
 * advances, not at barriers. Right after opening; control thread. */
void state_store_set_temporary(struct state_store *store);
void state_store_close(struct state_store *store);
/* An operator goes to another instance, which has another store. state_store_spare_unknown: call for that store before the
 * operator is opened: until the next state_store_checkpoint, which knows it, compactions drop no rows because they have no
 * owner. store_import_tables: copies what `from` has of the tables of
 * learners that use the store; right after they were opened. state_store_drop: deletes all rows of the id, whose operator was
 * closed; checkpoints that were taken keep them. Where these fail, the store keeps the error. state_store_written: bytes written
 * to the store so far, by any thread. */
void state_store_spare_unknown(struct state_store *store);
void store_import_tables(struct state_store *store, struct state_store *from);
void state_store_drop(struct state_store *store, uint16_t id);
uint64_t state_store_written(const struct state_store *store);
/* Why the store failed, or NULL; the text belongs to the store. A failed store gives wrong answers: the
 * engine stops before it publishes anything. Any thread. */
const char *state_store_error(struct state_store *store);
/* Bytes by which tables and queues are above their budgets because entries cannot leave memory while a
 * checkpoint is under way. When there are many, the engine holds back new micro-batches. Any thread. */
size_t state_store_pressure(struct state_store *store);

/* Called after every lane has passed the barrier: makes a hard-linked copy of the database in `path`, which
 * must not exist. *has_database: whether there is a database; else nothing is copied. Allows evictions again,
 * also where the copy fails: false after E0708. Writer thread. */
LEAT_CHECKED bool state_store_checkpoint(struct state_store *store, const char *path, bool *has_database,
                                         struct diag_list *diags);
/* Allows evictions again where the checkpoint is abandoned before state_store_checkpoint; also after every
 * lane has passed the barrier. Any thread. */
void state_store_release(struct state_store *store);

/* --- Tables --- */

/* An entry of a table. Read key and expire_us directly, all else through the functions. */
struct keyed_slot {
    struct key key;
    int64_t expire_us; /* TIME_MIN in an entry that was never written */
    uint64_t bits;     /* address of the value, flags, tag */
};

struct keyed_options {
    struct state_store *store;
    uint16_t id; /* of the state within the job: the same at every start (operator_context.id) */
    /* Tells states of the same id apart; the first byte of the table's snapshot records. */
    uint8_t kind;
    size_t budget_bytes; /* bounds all memory of the table */
    /* The key groups of the table's instance; NULL: all. The set outlives the table. */
    const struct group_set *groups;
};

struct keyed_table;
struct keyed_table *keyed_table_new(const struct keyed_options *options);
void keyed_table_free(struct keyed_table *table); /* NULL is allowed */

/* Opens a bracket: slots[i] is the entry of keys[i], valid until keyed_end. Entries that are missing are
 * made, empty and with expire_us = TIME_MIN. count <= BATCH_ROWS; keys may repeat. hashes: key_hash of each
 * key. No other bracket of this table may be open, and no rows may be emitted inside one. */
void keyed_begin(struct keyed_table *table, const struct key *keys, const uint64_t *hashes, uint32_t count,
                 struct keyed_slot **slots);
/* The same for rows that only read: where the table has no entry, slots[i] is NULL or an empty entry. */
void keyed_look(struct keyed_table *table, const struct key *keys, const uint64_t *hashes, uint32_t count,
                struct keyed_slot **slots);
/* Closes the bracket and brings the table back below its budget. */
void keyed_end(struct keyed_table *table);

/* Reads the entry of one key and changes nothing: no entry is made, loaded or marked as used, and nothing is counted,
 * so the table goes on as it would have without the peek (RocksDB's own cache of blocks aside). Returns the live
 * entry, in memory or a copy of one that is in the database alone, valid until keyed_peek_end; NULL: there is none,
 * or it has expired. No bracket of this table may be open. Call keyed_peek_end in any case; until then only
 * keyed_read may be called for the entry. */
const struct keyed_slot *keyed_peek(struct keyed_table *table, struct key key, uint64_t hash);
void keyed_peek_end(struct keyed_table *table);

enum { KEYED_POINTER_BITS = 48, KEYED_VALUE_HEADER = 8 };

/* Returns the value, aligned to 8 bytes, with its length in *bytes; NULL and 0 where there is none. */
static inline void *keyed_read(const struct keyed_slot *slot, uint32_t *bytes)
{
    char *block = (char *)(uintptr_t)(slot->bits & ((UINT64_C(1) << KEYED_POINTER_BITS) - 1));
    if (block == NULL) {
        *bytes = 0;
        return NULL;
    }
    memcpy(bytes, block, sizeof(*bytes));
    return block + KEYED_VALUE_HEADER;
}

/* Marks the entry as changed and returns its value to write to, resized to `bytes` (new bytes are zero), at
 * most TABLE_VALUE_MAX (state/table.h); NULL if `bytes` is 0: the entry has no value. slot->expire_us becomes
 * the later of itself and expire_us. Inside a bracket. */
void *keyed_write(struct keyed_table *table, struct keyed_slot *slot, uint32_t bytes, int64_t expire_us);

/* Entries with expire_us < watermark are dead from now on. Not inside a bracket. */
void keyed_set_watermark(struct keyed_table *table, int64_t watermark);
int64_t keyed_watermark(const struct keyed_table *table); /* TIME_MIN at first */

/* Visits every live entry of one key group, in memory and in the database, in no order. Key groups rise with
 * key_hash: a caller that visits group after group and sorts the entries of each visits all keys by their
 * hash in little memory. Not inside a bracket; `visit` may call keyed_read only. */
typedef void keyed_visit(void *argument, const struct keyed_slot *slot);
void keyed_scan_group(struct keyed_table *table, uint32_t group, keyed_visit *visit, void *argument);

/* Whether some entries may be in the database alone. */
bool keyed_may_be_stored(const struct keyed_table *table);

/* resident: entries in memory now. The others count since keyed_table_new. lookups: keys of brackets; misses:
 * keys looked up in the database, loaded: live entries found there; evicted: entries written to the database;
 * dropped: entries removed from memory; saved_copies: entries copied aside for a checkpoint. */
struct keyed_stats {
    uint64_t resident, lookups, misses, loaded, evicted, dropped, saved_copies;
    size_t memory_bytes;
};
/* The thread that opens the table's brackets, outside of them. */
void keyed_table_stats(struct keyed_table *table, struct keyed_stats *stats);

/* At the barrier: starts a new generation of changes and hands the old one to the writer thread. The table
 * must outlive the end of the checkpoint (snapshot_done). */
bool keyed_table_snapshot(struct keyed_table *table, struct snapshot_writer *writer);
/* Restores a snapshot record whose first byte is the table's kind. Call keyed_set_watermark first. False
 * after E0702: the record is damaged. */
bool keyed_table_restore(struct keyed_table *table, struct snapshot_reader *reader, struct str record,
                         struct diag_list *diags);

/* Moves of key groups (core/placement.h), as records (core/moved.h) from table to table.
 * keyed_table_give: right after keyed_table_snapshot: writes all live entries of the groups, which are this table's, and forgets
 * them. The checkpoint still gets its part of them. The owner then takes the groups out of keyed_options.groups.
 * keyed_table_give_base: ahead of that, since the barrier before: writes all that the table has of a group now, or what has changed
 * since it was called before; keyed_table_give then writes only what has changed since the last call. False: the store failed.
 * keyed_table_take_base: takes in a record of the base, of the groups `coming`; until keyed_table_regroup nobody sees the
 * entries, checkpoints neither.
 * keyed_table_regroup: call when keyed_options.groups has changed: entries of groups that are the table's now count as changed.
 * keyed_table_take: after that, for each record of keyed_table_give; both tables have the same watermark. False: the bytes are no
 * such record.
 * keyed_table_import: copies what a store of an earlier life has of this table's groups into the table's store; right after
 * keyed_table_new. keyed_table_forget_groups: deletes what the table's own store, taken over from an earlier life, has of groups that are at
 * other workers now; right after keyed_table_new. False: a store failed. */
LEAT_CHECKED bool keyed_table_give(struct keyed_table *table, const struct group_set *leaving,
                                   struct byte_buffer *out);
LEAT_CHECKED bool keyed_table_give_base(struct keyed_table *table, uint32_t group, struct byte_buffer *out);
LEAT_CHECKED bool keyed_table_take_base(struct keyed_table *table, const struct group_set *coming,
                                        struct str record);
void keyed_table_regroup(struct keyed_table *table);
LEAT_CHECKED bool keyed_table_take(struct keyed_table *table, struct str record);
LEAT_CHECKED bool keyed_table_import(struct keyed_table *table, struct state_store *from);
/* Adds about how many bytes the table has of each of its key groups, in memory and in the database. Not in a bracket. */
void keyed_table_weigh(struct keyed_table *table, uint64_t bytes[KEY_GROUPS]);
LEAT_CHECKED bool keyed_table_forget_groups(struct keyed_table *table, const struct group_set *groups);

/* --- Time queues --- */

/* Records that wait for event time: timers, and rows that a join holds back. A record is immutable; it leaves
 * when the watermark has passed its time, in the order (time, hash, order of pushing), which is the same at
 * any number of lanes. Buckets of time far ahead go to the database when the queue is beyond its budget, and
 * come back in pieces: a bucket may have any number of records, even of one time. */

struct time_record {
    int64_t time_us;
    uint64_t hash;     /* of the key: decides the key group */
    uint64_t sequence; /* order of pushing */
    struct key key;
    struct str data;
};

struct time_queue_options {
    struct state_store *store;
    uint16_t id;
    uint8_t kind;
    size_t budget_bytes;
    int64_t bucket_us;              /* > 0; about the usual wait / 64 */
    const struct group_set *groups; /* as in keyed_options */
};

struct time_queue;
struct time_queue *time_queue_new(const struct time_queue_options *options);
void time_queue_free(struct time_queue *queue); /* NULL is allowed */
/* Adds a record and copies its data, at most 8 MiB. time_us: not below the `before` of an earlier pop or
 * discard. */
void time_queue_push(struct time_queue *queue, int64_t time_us, struct key key, uint64_t hash,
                     struct str data);
/* Returns the first record with time_us < before, or false where there is none. The record's data is valid
 * until the next call. */
bool time_queue_pop(struct time_queue *queue, int64_t before, struct time_record *record);
/* About how many records have time_us < before; *all: how many there are. Whole buckets are counted, and
 * after a restore their records are estimated. */
uint64_t time_queue_count(const struct time_queue *queue, int64_t before, uint64_t *all);
/* Drops all records with time_us < before, as if they had been popped, but at little cost. */
void time_queue_discard(struct time_queue *queue, int64_t before);
size_t time_queue_bytes(const struct time_queue *queue); /* of memory */
/* About how many bytes of records there are, in memory and in the database. */
uint64_t time_queue_weight(const struct time_queue *queue);
/* At the barrier: hands the queue's records to the writer thread. */
bool time_queue_snapshot(struct time_queue *queue, struct snapshot_writer *writer);
/* Restores a snapshot record. watermark: records with an earlier time have left already. False after E0702:
 * the record is damaged. */
bool time_queue_restore(struct time_queue *queue, struct snapshot_reader *reader, struct str record,
                        int64_t watermark, struct diag_list *diags);
/* Called after the last record: counts the records that the database holds for the queue's key groups. False: the store
 * failed. */
bool time_queue_restored(struct time_queue *queue, int64_t watermark);

/* Moves of key groups, as those of tables. The records of groups that are no longer in time_queue_options.groups, or are
 * there in a later stay, are void. time_queue_give_base gives a part of the base of all groups in `leaving` at each call: *next is
 * INT64_MIN at first, and INT64_MAX when there is no more. round: 1 for all records, and one more for those that came since the round
 * before began. From the first call to time_queue_regroup nothing is spilled. */
LEAT_CHECKED bool time_queue_give_base(struct time_queue *queue, const struct group_set *leaving,
                                       uint32_t round, int64_t *next, struct byte_buffer *out);
LEAT_CHECKED bool time_queue_take_base(struct time_queue *queue, const struct group_set *coming,
                                       struct str record);
LEAT_CHECKED bool time_queue_give(struct time_queue *queue, const struct group_set *leaving,
                                  struct byte_buffer *out);
void time_queue_regroup(struct time_queue *queue);
LEAT_CHECKED bool time_queue_take(struct time_queue *queue, struct str record);
LEAT_CHECKED bool time_queue_import(struct time_queue *queue, struct state_store *from);
LEAT_CHECKED bool time_queue_forget_groups(struct time_queue *queue, const struct group_set *groups);

/* --- Cold rows of learners --- */

/* Makes the store behind core/cold_store.h; the owner frees it by its `free`. id: of the learner's state, as
 * in keyed_options; table: which of that learner's tables. The store keeps no epoch: a learner that wants one
 * puts it into its rows. From the barrier to state_store_checkpoint, rows that are put wait in memory. */
struct cold_store *cold_store_new(struct state_store *store, uint16_t id, uint32_t table, size_t row_bytes);

#endif
