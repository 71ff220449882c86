/* Keyed state: hash tables in memory, with RocksDB below them for what does not fit (design, section 7).
 *
 * How a table works. Entries lie in one open-addressing array per key group, 32 bytes a slot; a value beyond
 * the expiry time is a block of a slab. A batch names its keys first (keyed_begin): their slots are
 * prefetched, and the misses are read from the database in one call; then each row has a pointer. When the
 * table is beyond its budget, keyed_end sweeps key groups in turn, like a clock's hand: an entry that was
 * used since the hand came by stays, any other leaves, and is written to the database if it differs from what
 * is there. What is resident never changes a result.
 *
 * Expiry. Each entry has a time, which may only rise, beyond which it is dead: an entry with expire_us <
 * watermark is absent for its reader, is dropped by the next sweep, by a compaction in the database and by a
 * restore. There is no other removal, so an old copy of an entry, in a delta or in the database, can never
 * come back to life.
 *
 * Checkpoints. An entry carries a tag that says in which generation it changed last. At the barrier
 * (keyed_table_snapshot) the table only takes the next tag; the writer thread then goes over the key groups,
 * one after the other, under the table's lock, which a lane holds from keyed_begin to keyed_end (an entry of
 * a group that was not visited yet is copied aside before it changes, and may not leave). When a checkpoint
 * is abandoned, entries of its tag count as changed for the next one. Entries that were evicted before the
 * barrier are in the database, whose own checkpoint (state_store_checkpoint) holds them with the epoch of
 * their eviction: on restore the higher epoch wins, the delta on a tie. Between its barrier and that call no
 * table writes to the database.
 *
 * Threads: a table or queue belongs to its lane; what is safe elsewhere says so. */
#ifndef LEAT_STATE_STATE_H
#define LEAT_STATE_STATE_H

#include "core/cold_store.h"
#include "core/key.h"
#include "core/snapshot.h"

struct state_store;

/* One per process. directory: of the database, which is created at the first eviction (what is there is
 * removed), or NULL: purely in memory, budgets cannot be kept by eviction. is_restored: the directory holds
 * the database of a checkpoint (checkpoint_restore_database), which is opened now. memory_bytes: for the
 * database alone (block cache and write buffers); an eighth to a quarter of the job's memory serves well.
 * NULL + E0801. Control thread. */
struct state_store *state_store_open(const char *directory, size_t memory_bytes, bool is_restored,
                                     struct diag_list *diags);
/* No checkpoint will be taken of it: what has expired is dropped as the watermark goes on. At once after
 * opening; control thread. */
void state_store_set_temporary(struct state_store *store);
void state_store_close(struct state_store *store);
/* Why the store failed (RocksDB's text), or NULL. A failed store gives wrong answers from then on: the engine
 * stops before it publishes anything. Any thread. */
const char *state_store_error(struct state_store *store);
/* Bytes of entries that wait for the database because a checkpoint is under way: when this is large the
 * engine holds back new numbers. Any thread. */
size_t state_store_pressure(struct state_store *store);

/* After every lane has passed the barrier: a hard-linked copy of the database in `path` (must not exist), or
 * nothing if there is no database (*has_database). Lets evictions go on; also where it fails: false + E0708.
 * Writer thread. */
LEAT_CHECKED bool state_store_checkpoint(struct state_store *store, const char *path, bool *has_database,
                                         struct diag_list *diags);
/* Instead of it, when the checkpoint is abandoned before; also after every lane has passed the barrier. Any
 * thread. */
void state_store_release(struct state_store *store);

/* --- Tables --- */

/* Read key and expire_us; everything else through the functions. */
struct keyed_slot {
    struct key key;
    int64_t expire_us; /* TIME_MIN in an entry that was never written */
    uint64_t bits;     /* address of the value, flags, tag */
};

struct keyed_options {
    struct state_store *store;
    uint16_t id;         /* of the state within the job: same at every start (operator_context.id) */
    uint8_t kind;        /* apart from other state of the same id: the first byte of its snapshot records */
    size_t budget_bytes; /* everything the table keeps in memory */
};

struct keyed_table;
struct keyed_table *keyed_table_new(const struct keyed_options *options);
void keyed_table_free(struct keyed_table *table); /* NULL is allowed */

/* Opens a bracket: slots[i] is the entry of keys[i], made (empty, expire_us = TIME_MIN) where there was none;
 * valid until keyed_end. count <= BATCH_ROWS; keys may repeat. hashes: key_hash of each. No other bracket of
 * this table may be open, and no rows may be emitted inside one. */
void keyed_begin(struct keyed_table *table, const struct key *keys, const uint64_t *hashes, uint32_t count,
                 struct keyed_slot **slots);
/* The same for rows that only read: slots[i] is NULL where there is no entry (it may also be an empty one).
 */
void keyed_look(struct keyed_table *table, const struct key *keys, const uint64_t *hashes, uint32_t count,
                struct keyed_slot **slots);
/* Closes it and keeps the budget. */
void keyed_end(struct keyed_table *table);

enum { KEYED_POINTER_BITS = 48, KEYED_VALUE_HEADER = 8 };

/* The value, aligned to 8 bytes, or NULL (*bytes = 0). */
static inline void *keyed_read(const struct keyed_slot *slot, uint32_t *bytes)
{
    char *block = (char *)(uintptr_t)(slot->bits & ((UINT64_C(1) << KEYED_POINTER_BITS) - 1));
    if (block == NULL) {
        *bytes = 0;
        return NULL;
    }
    memcpy(bytes, block, sizeof *bytes);
    return block + KEYED_VALUE_HEADER;
}

/* The value to write to, resized to `bytes` (new bytes zeroed; 0: no value) and marked as changed; expire_us
 * rises to expire_us if that is later. NULL where bytes is 0. */
void *keyed_write(struct keyed_table *table, struct keyed_slot *slot, uint32_t bytes, int64_t expire_us);

/* Entries with expire_us < watermark are dead from now on. Not inside a bracket. */
void keyed_set_watermark(struct keyed_table *table, int64_t watermark);

/* Visits every live entry of one key group in memory and in the database, in no order. Key groups rise with
 * key_hash, so that going over the groups and sorting what each gives visits all keys by their hash in little
 * memory. Not inside a bracket; visit may call keyed_read only. */
typedef void keyed_visit(void *argument, const struct keyed_slot *slot);
void keyed_scan_group(struct keyed_table *table, uint32_t group, keyed_visit *visit, void *argument);
/* The key groups of a lane are first <= group < limit. */
void keyed_groups(uint32_t lane, uint32_t lanes, uint32_t *first, uint32_t *limit);

/* Whether entries may lie in the database alone. */
bool keyed_may_be_stored(const struct keyed_table *table);

struct keyed_stats {
    uint64_t resident, lookups, misses, loaded, evicted, dropped, saved_copies;
    size_t memory_bytes;
};
void keyed_table_stats(const struct keyed_table *table, struct keyed_stats *stats);

/* At the barrier: starts a new generation and hands the old one to the writer thread. The table must outlive
 * the checkpoint's end (snapshot_done). */
bool keyed_table_snapshot(struct keyed_table *table, struct snapshot_writer *writer);
/* Takes in a record whose first byte is the table's kind. watermark: set it before. */
bool keyed_table_restore(struct keyed_table *table, struct snapshot_reader *reader, struct str record,
                         struct diag_list *diags);

/* --- Time queues
 * --------------------------------------------------------------------------------------------- Records that
 * wait for event time: timers, and rows that a join holds back. A record is immutable; it leaves when the
 * watermark has passed its time, in the order (time, hash, order of pushing), which is the same at any number
 * of lanes. Buckets of time far ahead go to the database when the queue is beyond its budget, and come back
 * in pieces: a bucket may have any number of records, of one time too. */

struct time_record {
    int64_t time_us;
    uint64_t hash; /* of the key: decides the key group */
    uint64_t sequence;
    struct key key;
    struct str data;
};

struct time_queue_options {
    struct state_store *store;
    uint16_t id;
    uint8_t kind;
    size_t budget_bytes;
    int64_t bucket_us; /* > 0; the usual wait / 64 or so */
};

struct time_queue;
struct time_queue *time_queue_new(const struct time_queue_options *options);
void time_queue_free(struct time_queue *queue);
/* time_us: not below what was popped already. */
void time_queue_push(struct time_queue *queue, int64_t time_us, struct key key, uint64_t hash,
                     struct str data);
/* The first record with time_us < before, or false. Its data is valid until the next call. */
bool time_queue_pop(struct time_queue *queue, int64_t before, struct time_record *record);
/* How many records there are with time_us < before, and in all; about: of whole buckets, and an estimate
 * after a restore. */
uint64_t time_queue_count(const struct time_queue *queue, int64_t before, uint64_t *all);
/* Forgets all records with time_us < before, as if they had been popped; at little cost. */
void time_queue_discard(struct time_queue *queue, int64_t before);
size_t time_queue_bytes(const struct time_queue *queue);
bool time_queue_snapshot(struct time_queue *queue, struct snapshot_writer *writer);
/* watermark: records before it have left already. */
bool time_queue_restore(struct time_queue *queue, struct snapshot_reader *reader, struct str record,
                        int64_t watermark, struct diag_list *diags);
/* After the last record: counts what the database holds. */
bool time_queue_restored(struct time_queue *queue, uint32_t lane, uint32_t lanes, int64_t watermark);

/* --- Cold rows of learners
 * ------------------------------------------------------------------------------------- The store behind
 * core/cold_store.h. id: as above; table: which of that learner's. Rows carry their own epoch, if the learner
 * wants one; while a checkpoint holds the database they wait in memory. */
struct cold_store *cold_store_new(struct state_store *store, uint16_t id, uint32_t table, size_t row_bytes);

#endif
