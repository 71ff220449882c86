/*
 * The embedding table on the CPU: 64-bit key -> row of weights with optimizer state, count and the event time
 * of the last occurrence.
 *
 * The logical rule (docs/design.md, section 9), the same on every device:
 *   - A row is made by the n-th occurrence of its key (sketch.h); its weights depend on (table seed, key)
 *     alone.
 *   - A row is removed only by expiry (last seen + expire_after <= watermark) or by `rows_max`. For
 *     `rows_max` a key's hash assigns it to one of rows_max / 128 (rounded up) logical buckets; their shares
 *     differ by one at most and add up to rows_max. When a new key comes to a bucket that holds its share,
 *     the bucket's expired rows are removed; if there are none, one victim: the row with the lowest count,
 *     then the one seen longest ago, then the lowest key. Rows of the step being applied are spared.
 *   - All of this is decided in step order, a batch at once (table_resolve_batch). Equal on all devices are
 *     the map key -> row and the sorted export, nothing else.
 *
 * The physical layout differs from the logical one, because that is faster on a CPU. Literal buckets of 128
 * slots with digests cost two cache lines for the digests and two more for key and row; an inline slot costs
 * one. So the table uses extendible hashing: pages of 128 slots of 16 bytes {key, row number}, probed
 * linearly from a home slot, split at 96 rows, so that growth never rehashes more than one page; the
 * directory is small enough for the L2 cache. A logical bucket is a range of hashes, that is, of neighbouring
 * pages. Rows have one of two layouts:
 *   - apart: in one reserved range of addresses that never moves. A row's pointer is valid until the row is
 *     removed, and a row removed in a call of table_resolve keeps its memory until the next call, so that
 *     earlier events of the same call can still be learned with it.
 *   - inline: the row is the slot itself, so that a look-up waits for one line instead of two, one after the
 *     other. Rows move when a page splits or another row is removed: a pointer is valid until the next
 *     occurrence that learns. For small payloads, and loops that keep no pointer from one event to the next.
 *
 * One thread owns a table; table_snapshot_write runs on another (see there). Rows beyond a table's memory lie
 * in a cold store: cold.h.
 */
#ifndef LEAT_LEARNERS_TABLES_TABLE_H
#define LEAT_LEARNERS_TABLES_TABLE_H

#include "learners/tables/sketch.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TABLE_PAGE_SLOTS = 128,
    TABLE_PAGE_SPLIT = 96,
    TABLE_BUCKET_ROWS = 128,
    TABLE_CHUNK_ROWS = 64, /* rows in a chunk, the unit that a snapshot copies */
    TABLE_ROW_HEADER = 24,
};

/* The `step` of no step: steps count from 1, and their low 32 bits are 0 once in four billion steps. */
#define TABLE_STEP_NONE 0

/* The header of a row; the payload follows. */
struct table_row {
    uint64_t key;   /* 0: the row is free */
    uint32_t count; /* occurrences of the key, saturating */
    uint32_t seen;  /* event time of the newest occurrence, seconds */
    uint32_t epoch; /* epoch of the last change: epochs end at checkpoints and cuts */
    uint32_t step;  /* low bits of the last step that used the row; not stored */
};

/* Fills a new row's payload. It must depend on the key (and the job) alone. */
typedef void table_init_row(void *argument, uint64_t key, void *payload);

struct table_options {
    size_t payload_bytes;
    /* Of a payload, predictions read its first read_first bytes and the read_bytes from read_at on; the rest is for
     * learning alone, and is no part of cuts (cut.h). All 0: they read all of it. */
    size_t read_first, read_at, read_bytes;
    size_t align;            /* of rows, in bytes: a multiple of 8; 64 for payloads with vectors */
    bool is_inline;          /* rows lie in the slots */
    uint32_t admit_after;    /* the key's n-th occurrence makes its row; 0 and 1: the first */
    size_t sketch_bytes;     /* used if admit_after > 1 */
    int64_t expire_after_us; /* 0: never */
    uint64_t rows_max;       /* most rows of the table; 0: no limit */
    uint32_t shards;         /* kernels/shards.h; 0: as 1 */
    uint64_t seed;
    table_init_row *init;
    void *init_argument;
};

/* A slot of a page whose rows lie apart; with inline rows the slot is the row. Both begin with the key. */
struct table_slot {
    uint64_t key; /* 0: empty */
    uint32_t row;
    uint32_t unused;
};

/* Memory that grows in place: addresses are reserved once, memory is made usable piece by piece. */
struct table_range {
    unsigned char *base;
    size_t reserved, usable;
    bool is_far; /* no addresses are reserved: only the usable part is mapped */
};

struct table_stats {
    uint64_t rows, inserted, evicted, expired,
        refused;      /* occurrences of admitted keys whose bucket had only spared rows */
    uint64_t waiting; /* occurrences of keys that were not admitted yet */
};

struct table_keys {
    uint64_t *items;
    size_t count, capacity;
};
void table_keys_add(struct table_keys *keys, uint64_t key);

struct byte_buffer;
struct table_snapshot;
struct table_cold;
struct table_cut;
struct table_batch;
struct table_possible;

struct table {
    struct table_options options;
    size_t stride;
    uint32_t *directory; /* [1 << depth] page numbers, indexed by the top `depth` bits of the hash */
    unsigned depth;
    size_t slot_bytes;
    unsigned char *slots; /* base of `pages`, or of `rows` if rows are inline */
    struct table_range pages, rows, page_depths, page_counts, chunk_epochs;
    uint32_t pages_count;
    uint32_t rows_used;  /* rows ever numbered (high-water mark); inline: slots of all pages */
    uint32_t *free_rows; /* stack of free row numbers */
    size_t free_count, free_capacity;
    uint32_t *limbo_rows; /* rows removed in this call: free from the next call on */
    size_t limbo_count, limbo_capacity;
    uint16_t *bucket_counts; /* [buckets] rows in each logical bucket; NULL without rows_max */
    uint64_t buckets;
    struct table_batch *batch;       /* scratch of batch.c, not counted by table_bytes; NULL: none yet */
    struct table_possible *possible; /* likewise, of possible.c */
    struct sketch sketch;
    int64_t halved_at_us; /* watermark of the sketch's last halving; INT64_MIN: none yet */
    int64_t watermark_us;
    uint32_t expired_before; /* seconds: a row whose `seen` is below this has expired */
    uint32_t sweep_at;       /* next row number the expiry sweep looks at */
    uint32_t epoch;          /* epoch that changes now belong to */
    /* after a snapshot or a restore: removed keys are listed for the next snapshot */
    bool lists_removed;
    bool was_published;        /* the last snapshot that ended, or the one that the table was restored from */
    struct table_keys removed; /* keys gone from memory since the last snapshot */
    struct table_cold *cold;   /* cold.c; NULL: rows stay in memory */
    struct table_snapshot *snapshot;
    struct table_cut *cut; /* cut.h; NULL: changes are not noted */
    struct table_stats stats;
    uint64_t changes; /* rows inserted or removed so far: while it does not change, no row moves */
};

void table_init(struct table *table, const struct table_options *options);
void table_free(struct table *table);

/* Advances event time, which expiry and the sketch's halving follow; an older watermark is ignored. Rows
 * whose last use was in `step_in_progress` are not removed (TABLE_STEP_NONE: no step is in progress). */
void table_set_watermark(struct table *table, int64_t watermark_us, uint32_t step_in_progress);

/* The arithmetic of event time, which is the same on a GPU (device/table.c). expire_after_us > 0.
 * table_expiry: rows with `seen` below the result have expired at a watermark; 0: none have. The end of input
 * (TIME_MAX) expires nothing, and halves nothing.
 * table_halvings: how often a sketch is to be halved at a watermark: once for each expire_after_us, at most
 * eight times, after which all counts are 0. *halved_at_us: watermark of the last halving; INT64_MIN: none
 * yet. */
uint32_t table_expiry(int64_t watermark_us, int64_t expire_after_us);
unsigned table_halvings(int64_t *halved_at_us, int64_t watermark_us, int64_t expire_after_us);

/*
 * One occurrence of each of n keys, in order: finds or makes their rows and marks them as changed. out[i]:
 * the row, or NULL where the key is 0, not admitted or refused. seen[i]: event time in seconds. steps[i]:
 * number of the step that the occurrence belongs to. If learns[i] is false the key is only looked up: no
 * occurrence, no new row; learns NULL: all are occurrences. Pointers of earlier calls stay valid unless their
 * row was removed before this call; those of an inline table until the next occurrence that learns, even one
 * of the same call.
 */
void table_resolve(struct table *table, const uint64_t *keys, const uint32_t *seen, const uint32_t *steps,
                   const uint8_t *learns, size_t n, struct table_row **out);

/* Stands for the row that an occurrence of a key would make (possible.c). table_make_possible makes the row,
 * at an address aligned as the table's rows, with room for one. */
extern struct table_row table_possible;
void table_make_possible(const struct table *table, uint64_t key, struct table_row *row);

/* Begins a call: memory of rows that were removed before it may be used again. */
void table_begin(struct table *table);
/*
 * The rows of n events with one key each, within a call that began with table_begin. As table_resolve, but
 * where learns[i] is false, out[i] is the row that an occurrence would have: if the key has none and an
 * occurrence would make one, table_possible (not in an inline table). touches false: headers of existing rows
 * are not written unless they decide which rows are removed (table_is_eager); the caller has to table_touch
 * the rows. Then one thread may look rows up while another learns with, and touches, rows of earlier
 * look-ups.
 */
void table_look(struct table *table, const uint64_t *keys, const uint32_t *seen, const uint32_t *steps,
                const uint8_t *learns, size_t n, bool touches, struct table_row **out);
/*
 * Likewise the rows of one event with n keys, which occur in their order. Rows that the event names are not
 * removed to make room for its new keys. Headers of existing rows are written. Cold rows must be loaded
 * (table_warm), and rows lie apart.
 */
void table_look_list(struct table *table, const uint64_t *keys, size_t n, uint32_t seen, uint32_t step,
                     bool learns, struct table_row **out);

/* The occurrences of a step of several events: n distinct keys, none of them 0, in the order of their first
 * records. */
struct table_occurrences {
    const uint64_t *keys;
    const uint32_t *seen;   /* event time of the key's latest occurrence, seconds */
    const uint32_t *counts; /* occurrences of the key */
    /* Where the key's row was when it was last looked up, NULL: nowhere. The row may have been removed or
     * moved since: compare the key at that place. rows NULL: nobody has looked the keys up. May be `out`. */
    struct table_row *const *rows;
    size_t n;
};

/*
 * All occurrences of one step at once. The rule, the same on a GPU (gpu_table.h, resolve), for a key of k
 * occurrences:
 *   1. For a key that has a row: count += k, seen = the latest, step. A row that has expired and was not used
 *      by this step is removed, and its key counts as one without a row.
 *   2. The other keys, if admit_after > 1, are all counted by the rule of sketch_add_batch. Keys whose
 *      estimate with the whole batch is below admit_after wait. So a key that reaches admit_after within the
 *      batch is admitted for all of the batch, also for its earlier occurrences.
 *   3. The rest get rows in the order of their first records: count = k, seen = the latest. In a full bucket
 *      all expired rows are removed, or else one victim for each new row, by the order given above. No row of
 *      this step is removed: no row of a key in the batch, later keys included. If no victim is left the key
 *      is refused.
 *
 * out[i]: the row of keys[i], NULL if the key waits or was refused. is_known[i]: the key had its row before.
 * `waiting` and `refused` count occurrences. Pointers are valid as after table_resolve; those of an inline
 * table until the next occurrence of another call.
 */
void table_resolve_batch(struct table *table, const struct table_occurrences *in, uint32_t step,
                         struct table_row **out, uint8_t *is_known);

/* Looks a key up without an occurrence. NULL if it has no row in memory or the row has expired; rows in the
 * cold store are not found (table_warm loads them). */
struct table_row *table_find(const struct table *table, uint64_t key);

static inline float *table_payload(struct table_row *row)
{
    return (float *)(void *)((unsigned char *)row + TABLE_ROW_HEADER);
}

/* Live rows in memory, sorted by rising key: an array of *count rows that the caller frees. table_visit
 * includes cold rows. */
struct table_row **table_sorted(const struct table *table, size_t *count);

/* Bytes that the table occupies; memory that is reserved but untouched does not count. */
size_t table_bytes(const struct table *table);

/*
 * A stored row is key, count, seen, epoch, payload: table_stored_bytes long. table_store_row makes one;
 * table_load_row fills a row by one, except `step`. table_restore_row puts one back into the table (replacing
 * the key's row); table_restore_remove removes a key's row.
 */
size_t table_stored_bytes(const struct table *table);
void table_store_row(const struct table *table, struct table_row *row, unsigned char *stored);
void table_load_row(const struct table *table, struct table_row *row, const unsigned char *stored);
void table_restore_row(struct table *table, const void *stored);
void table_restore_remove(struct table *table, uint64_t key);
/*
 * Restores `count` items, unaligned, of one kind: stored rows, keys whose rows are removed, or blocks of the sketch
 * (struct sketch_block), cells of it (cell * 256 + count). table_item_bytes: bytes of an item. False: an item cannot be of this table; earlier items
 * are restored. The bytes may come from a damaged file: memory is bounded by their length.
 */
enum table_item { TABLE_ITEM_ROW, TABLE_ITEM_REMOVED, TABLE_ITEM_BLOCK, TABLE_ITEM_CELL };
size_t table_item_bytes(const struct table *table, enum table_item kind);
bool table_restore_items(struct table *table, enum table_item kind, const void *items, size_t count);
/* After the last restored row: the table's content belongs to `epoch`, which a checkpoint closed, with no change
 * or removal since. */
void table_restored(struct table *table, uint32_t epoch);

/*
 * A snapshot of the rows that changed in the epochs since + 1 .. closing (since 0: of all rows), while the
 * owner goes on.
 *   - table_snapshot_begin: at the barrier, by the owner; constant time, apart from one byte per 64 rows.
 *     *removed: keys removed since the last snapshot (a restore applies them before the rows), valid until
 *     table_snapshot_end.
 *   - table_snapshot_write: any thread, once: calls emit with some stored rows at a time. Returns false if
 *     emit failed.
 *   - table_snapshot_end: by the owner, when the checkpoint is published or abandoned.
 *
 * A chunk of 64 rows is copied either by the writer or, before its first change, by the owner.
 */
typedef chunks_emit table_emit;
struct table_snapshot *table_snapshot_begin(struct table *table, uint32_t since, uint32_t closing,
                                            const struct table_keys **removed);
bool table_snapshot_write(struct table_snapshot *snapshot, table_emit *emit, void *argument);
/* Likewise, after table_snapshot_write: the sketch's changed counts, each item a struct sketch_block. */
bool table_snapshot_write_counts(struct table_snapshot *snapshot, table_emit *emit, void *argument);
void table_snapshot_end(struct table *table, bool is_published);

/* Within the module: makes sure that the row's chunk was copied before the row changes. */
void table_snapshot_protect(struct table *table, uint32_t row);

/* Within the module, for shard.c. table_keys_give moves the keys of a shard from a list to the end of `out`;
 * table_snapshot_give_removed likewise those keys that the next snapshot has to list if the open one is
 * abandoned. Both return how many. table_snapshot_take_removed adds such a key, also where the table's own
 * snapshot of that barrier has ended. */
uint64_t table_keys_give(const struct table *table, struct table_keys *keys, uint32_t shard,
                         struct byte_buffer *out);
uint64_t table_snapshot_give_removed(struct table *table, uint32_t shard, struct byte_buffer *out);
void table_snapshot_take_removed(struct table *table, uint64_t key);

/* Within the module: used by table.c, batch.c, cold.c, evict.c, possible.c and shard.c. */
void table_batch_free(struct table *table);
struct table_row *table_insert(struct table *table, uint64_t key, uint64_t hash);
void table_remove(struct table *table, uint64_t key, uint64_t hash);
bool table_make_room(struct table *table, uint64_t hash, uint32_t step);
/* The rows of a logical bucket that a step may remove: the number of expired ones and of others. */
struct table_removable {
    uint32_t expired, others;
};
struct table_removable table_removable(const struct table *table, uint64_t bucket, uint32_t step);
/* possible.c: for each of an event's n keys with out[i] NULL, in order: the possible row of an occurrence at
 * `step`, or NULL. */
void table_possible_rows(struct table *table, const uint64_t *keys, size_t n, uint32_t step,
                         struct table_row **out);
void table_possible_free(struct table *table);
void table_sweep(struct table *table, uint32_t rows, uint32_t step_in_progress);

static inline struct table_row *table_row_at(const struct table *table, uint32_t number)
{
    return (struct table_row *)(void *)(table->rows.base + (size_t)number * table->stride);
}

static inline uint32_t table_row_number(const struct table *table, const struct table_row *row)
{
    return (uint32_t)((size_t)((const unsigned char *)row - table->rows.base) / table->stride);
}

/* The place of a slot in a page: its key, and behind it the row number or the row. */
static inline uint64_t *table_slot_at(const struct table *table, uint32_t page, size_t slot)
{
    size_t at = (size_t)page * TABLE_PAGE_SLOTS + slot;
    return (uint64_t *)(void *)(table->slots + at * table->slot_bytes);
}

static inline struct table_row *table_slot_row(const struct table *table, const uint64_t *slot)
{
    return table->options.is_inline
               ? (struct table_row *)(void *)slot
               : table_row_at(table, ((const struct table_slot *)(const void *)slot)->row);
}

/* The logical bucket of a hash, and how many rows the bucket may hold: at most TABLE_BUCKET_ROWS. */
static inline uint64_t table_bucket(const struct table *table, uint64_t hash)
{
    return shard_scaled(hash, table->buckets);
}

static inline uint32_t table_bucket_rows(const struct table *table, uint64_t bucket)
{
    uint64_t rows = table->options.rows_max;
    return (uint32_t)(rows / table->buckets + (bucket < rows % table->buckets));
}

static inline bool table_is_expired(const struct table *table, const struct table_row *row)
{
    return row->seen < table->expired_before;
}

#endif
