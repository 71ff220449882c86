/*
 * The embedding table on the CPU: 64-bit key -> row of weights with optimizer state, count, last sighting.
 *
 * The logical rule (design, section 9), the same on every device:
 *   - rows are made by the n-th sighting of their key (sketch.h), from (table seed, key) alone;
 *   - a row goes only by expiry (last seen + expire_after <= watermark) or by `rows_max`: keys belong to
 *     rows_max / 128, rounded up, logical buckets by hash, whose shares differ by one at most and add up to
 *     rows_max; when one holds its share and a new key comes, its expired rows go, and if there are none, the
 *     row with the lowest count, then the one seen longest ago, then the lowest key; rows of the step being
 *     applied are spared;
 *   - all of it is decided in step order, a batch at once (table_resolve_batch). Equal are the map key -> row
 *     and the sorted export, nothing else.
 *
 * The physical layout is another one, because it is faster here. Literal buckets of 128 slots with digests
 * cost two lines for the digests and two more for key and row; an inline slot costs one. So: extendible
 * hashing, pages of 128 slots of 16 bytes {key, row number}, probed linearly from a home slot, split at 96,
 * so that growth never rehashes more than one page; the directory is small enough for the L2 cache. A logical
 * bucket is a range of hashes, that is, of neighbouring pages. Where a row lies is one of two layouts:
 *   - apart: in one reserved range of addresses that never moves: a row's pointer is valid until its row
 *     goes, and a row that goes in a call of table_resolve keeps its memory until the next call, so that
 *     earlier events of the same call can still be learned with it;
 *   - inline: the row is the slot itself: a look-up waits for one line instead of two, one after the other.
 *     Rows move when a page splits or another row goes: a pointer is valid until the next sighting that
 *     learns. For small payloads, and steps that look up, learn and forget event by event.
 *
 * One thread owns a table; table_snapshot_write runs on another (see there). Rows beyond a table's memory lie
 * in a cold store: table_cold.h.
 */
#ifndef LEARNERS_TABLE_H
#define LEARNERS_TABLE_H

#include "learners/sketch.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TABLE_PAGE_SLOTS = 128,
    TABLE_PAGE_SPLIT = 96,
    TABLE_BUCKET_ROWS = 128,
    TABLE_CHUNK_ROWS = 64, /* what a snapshot copies at a time */
    TABLE_ROW_HEADER = 24,
};

/* No step has it: steps count from 1, and their low bits pass it once in four billion. */
#define TABLE_STEP_NONE 0

/* The header of a row; the payload follows. */
struct table_row {
    uint64_t key;   /* 0: free */
    uint32_t count; /* sightings, saturating */
    uint32_t seen;  /* event time of the newest sighting, seconds */
    uint32_t epoch; /* checkpoint epoch of the last change */
    uint32_t step;  /* low bits of the last step that used the row; not stored */
};

/* Fills a new row's payload; must depend on key (and the job) alone. */
typedef void table_init_row(void *argument, uint64_t key, void *payload);

struct table_options {
    size_t payload_bytes;
    size_t align;            /* of rows: a multiple of 8; 64 for payloads of vectors */
    bool is_inline;          /* rows lie in the slots */
    uint32_t admit_after;    /* 0 and 1: at the first sighting */
    size_t sketch_bytes;     /* used if admit_after > 1 */
    int64_t expire_after_us; /* 0: never */
    uint64_t rows_max;       /* 0: no limit */
    uint64_t seed;
    table_init_row *init;
    void *init_argument;
};

/* What a page holds if rows lie apart; else it holds the rows. Both begin with the key. */
struct table_slot {
    uint64_t key; /* 0: empty */
    uint32_t row;
    uint32_t unused;
};

/* Memory that grows in place: reserved once, made usable piece by piece. */
struct table_range {
    unsigned char *base;
    size_t reserved, usable;
    bool is_far; /* not reserved: only what is usable is taken */
};

struct table_stats {
    uint64_t rows, inserted, evicted, expired,
        refused;      /* refused: admitted, but every row of its bucket was spared */
    uint64_t waiting; /* sightings of keys that are not admitted yet */
};

struct table_keys {
    uint64_t *items;
    size_t count, capacity;
};

struct table_snapshot;
struct table_cold;
struct table_batch;

struct table {
    struct table_options options;
    size_t stride;
    uint32_t *directory; /* 1 << depth page numbers, by the top bits of the hash */
    unsigned depth;
    size_t slot_bytes;
    unsigned char *slots; /* the base of `pages`, or of `rows` if they are inline */
    struct table_range pages, rows, page_depths, page_counts, chunk_epochs;
    uint32_t pages_count;
    uint32_t rows_used;  /* high-water mark of row numbers; inline: of slots, page by page */
    uint32_t *free_rows; /* stack of free row numbers */
    size_t free_count, free_capacity;
    uint32_t *limbo_rows; /* gone in this call: free from the next on */
    size_t limbo_count, limbo_capacity;
    uint16_t *bucket_counts; /* rows a logical bucket, if rows_max is set */
    uint64_t buckets;
    struct table_batch *batch; /* scratch of table_batch.c, not in table_bytes; NULL: none yet */
    struct sketch sketch;
    int64_t halved_at_us; /* watermark of the last halving, INT64_MIN: none yet */
    int64_t watermark_us;
    uint32_t expired_before;   /* rows with seen below this are gone, logically */
    uint32_t sweep_at;         /* next row number the expiry sweep looks at */
    uint32_t epoch;            /* the one now being written to */
    bool lists_removed;        /* there was a snapshot, or a restore: the next must know who went */
    struct table_keys removed; /* keys gone from memory since the last snapshot */
    struct table_cold *cold;   /* table_cold.c; NULL: rows stay in memory */
    struct table_snapshot *snapshot;
    struct table_stats stats;
    uint64_t changes; /* rows that came or went so far: as long as it stands, rows stay where they are */
};

void table_init(struct table *table, const struct table_options *options);
void table_free(struct table *table);

/* Advances event time: expiry and the sketch's halving follow it. Never goes back. Rows whose last use was in
 * `step_in_progress` stay (TABLE_STEP_NONE: there is none). */
void table_set_watermark(struct table *table, int64_t watermark_us, uint32_t step_in_progress);

/*
 * One sighting of each of n keys, in order: finds or makes their rows, marks them changed. out[i] = the row,
 * or NULL where key is 0 or not admitted (or refused). seen[i]: event time in seconds. steps[i]: number of
 * the step the sighting belongs to. If learns[i] is false the key is only looked up: no sighting, no new row.
 * learns may be NULL. Pointers of earlier calls stay valid unless their row went before this call; those of
 * an inline table until the next sighting that learns, be it of the same call.
 */
void table_resolve(struct table *table, const uint64_t *keys, const uint32_t *seen, const uint32_t *steps,
                   const uint8_t *learns, size_t n, struct table_row **out);

/*
 * table_resolve within a call that began with table_begin (table_inline.h). Without `touches`, headers of
 * rows that were there are left alone where they do not decide who goes (!table_is_eager): the caller has to
 * table_touch them. Then one thread may look rows up while another one learns with, and touches, those of
 * earlier look-ups.
 */
void table_look(struct table *table, const uint64_t *keys, const uint32_t *seen, const uint32_t *steps,
                const uint8_t *learns, size_t n, bool touches, struct table_row **out);

/* What a step of several events sees: n keys in record order, duplicates and absent ones (0) among them. */
struct table_sightings {
    const uint64_t *keys;
    const uint32_t *seen;   /* event time in seconds: the latest of a key's */
    const uint32_t *counts; /* sightings of each; NULL: one */
    /* Where a row of this table was when it was last looked up, NULL: none. It may have gone or moved since:
     * the key that lies there tells. NULL: nobody has looked. May be `out`. */
    struct table_row *const *rows;
    size_t n;
};

/*
 * All sightings of one step at once. The rule, the same on a GPU (gpu_table.h, resolve); a key's k sightings
 * count as one:
 *   1. A key that has a row: count += k, seen = the latest, step. A row that has expired, and was not used by
 *      this step, goes: it counts as not there.
 *   2. The other keys, if admit_after > 1: all are counted as sketch_add_batch says. Those whose estimate
 *      with the whole batch is below admit_after wait. So a key that reaches it with the batch counts for all
 *      of the batch, wherever in it that is.
 *   3. The rest get rows in the order of their first records: count = k, seen = the latest. Where a bucket is
 *      full, its expired rows go, all of them, or else a victim, one a new row, by the order above. No row of
 *      this step goes: none of the keys in the batch, those that come later in it included. If no victim is
 *      left the key is refused.
 * out[i] = the row of keys[i], NULL if it is 0, waits or was refused; is_known[i] (may be NULL): the key had
 * it before. `waiting` and `refused` count sightings. Pointers: as of table_resolve; those of an inline table
 * until the next sighting of another call.
 */
void table_resolve_batch(struct table *table, const struct table_sightings *in, uint32_t step,
                         struct table_row **out, uint8_t *is_known);

/* Looks a key up; no sighting. NULL if there is no row or it has expired; a cold one is not seen
 * (table_warm). */
struct table_row *table_find(const struct table *table, uint64_t key);

static inline float *table_payload(struct table_row *row)
{
    return (float *)(void *)((unsigned char *)row + TABLE_ROW_HEADER);
}

/* Live rows in memory by rising key: an array the caller frees, *count long. table_visit has cold ones too.
 */
struct table_row **table_sorted(const struct table *table, size_t *count);

/* Bytes this table occupies, reserved but untouched memory not counted. */
size_t table_bytes(const struct table *table);

/*
 * A row as it is stored: key, count, seen, epoch, payload; table_stored_bytes long.
 * table_restore_row puts one back (replacing what is there); table_restore_remove takes a key away.
 */
size_t table_stored_bytes(const struct table *table);
void table_restore_row(struct table *table, const void *stored);
void table_restore_remove(struct table *table, uint64_t key);
/* After the last of them: what is there belongs to checkpoint `epoch`; nothing is changed or removed since.
 */
void table_restored(struct table *table, uint32_t epoch);

/*
 * A snapshot of what changed after epoch `since` up to and with `closing` (since 0: everything), while the
 * owner goes on.
 *   - table_snapshot_begin: at the barrier, by the owner: constant time, apart from one byte per 64 rows;
 *   - table_snapshot_write: any thread, once: calls emit with some stored rows at a time; false: it failed;
 *   - table_snapshot_end: by the owner, when the checkpoint is published or abandoned.
 * A chunk of 64 rows is copied either by the writer or, before its first change, by the owner. *removed: keys
 * gone in the meantime (apply them before the rows); valid until table_snapshot_end.
 */
typedef chunks_emit table_emit;
struct table_snapshot *table_snapshot_begin(struct table *table, uint32_t since, uint32_t closing,
                                            const struct table_keys **removed);
bool table_snapshot_write(struct table_snapshot *snapshot, table_emit *emit, void *argument);
/* Likewise, after it: the sketch's changed counts, each item a struct sketch_block. */
bool table_snapshot_write_counts(struct table_snapshot *snapshot, table_emit *emit, void *argument);
void table_snapshot_end(struct table *table, bool is_published);

/* Within the module: makes sure that a chunk of rows was copied before it changes. */
void table_snapshot_protect(struct table *table, uint32_t row);

/* Within the module: used by table.c, table_batch.c, table_cold.c and table_evict.c. */
void table_batch_free(struct table *table);
struct table_row *table_insert(struct table *table, uint64_t key, uint64_t hash);
void table_remove(struct table *table, uint64_t key, uint64_t hash);
bool table_make_room(struct table *table, uint64_t hash, uint32_t step);
void table_sweep(struct table *table, uint32_t rows, uint32_t step_in_progress);

static inline struct table_row *table_row_at(const struct table *table, uint32_t number)
{
    return (struct table_row *)(void *)(table->rows.base + (size_t)number * table->stride);
}

static inline uint32_t table_row_number(const struct table *table, const struct table_row *row)
{
    return (uint32_t)((size_t)((const unsigned char *)row - table->rows.base) / table->stride);
}

/* A slot of a page: its key, and what lies behind it. */
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

/* Of keys with a hash: their logical bucket, and how many rows it may hold: at most TABLE_BUCKET_ROWS. */
static inline uint64_t table_bucket(const struct table *table, uint64_t hash)
{
    return (uint64_t)((__uint128_t)hash * table->buckets >> 64);
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
