/*
 * Histories: for each user, by the 64-bit hash of `by`, the last items that the user met.
 *
 * The rule, which holds wherever rows lie:
 *   - Entries have the order of the calls, which callers make in the order of records. Event times may fall
 *     from one entry to the next.
 *   - A user's window follows from the count of the user's events alone (history_window): when `history` entries
 *     are there and one more comes, the older half goes, of an odd number the greater half. Positions count from
 *     the window's start.
 *   - A user expires as rows of learners/tables do: newest event time + expire_after <= watermark. An event that
 *     comes later begins a new user, with count 1.
 *   - An entry names its item by number and generation (learners/items/numbers.h). An entry whose generation is
 *     no longer the item's reads as absent, but keeps its place: the reader compares.
 *   - Seconds of entries are event times since 1970 UTC. What 32 bits do not hold (before 1970, from 2106 on)
 *     becomes the nearest second that they hold (history_seconds).
 *
 * The layout. All is rows of learners/tables, with one seed, so that expiry, cold stores, snapshots, cuts and
 * shards are those of tables:
 *   - The index, one inline row of 32 bytes a user: the count, and the class. It stays in memory (43 to 85
 *     bytes a user with the free slots of its pages), because a cold user's class must be known, so that one
 *     store is asked and not each, and because draws come from all users. Expiry alone bounds the number of users.
 *   - One table for each size class: a user's entries as bytes, in the smallest class that holds them. Users do
 *     not return to smaller classes. These tables may have cold stores.
 *   - An entry is a varint each of: the number; the generation, unless it is 0; the seconds since the entry
 *     before; each side id. Mostly that is 5 bytes and 1 to 3 a side id, instead of 10 and 4: with fixed entries
 *     rows, not the index, would be most of the memory. So classes are by bytes, and entries are read in order.
 *
 * One thread owns histories. Several may draw from them, walk and count while nobody changes them.
 */
#ifndef LEAT_LEARNERS_HISTORIES_HISTORIES_H
#define LEAT_LEARNERS_HISTORIES_HISTORIES_H

#include "core/base.h"
#include "learners/items/numbers.h"
#include "learners/tables/table.h"

enum {
    HISTORY_MAX = 4096,    /* most entries of a window */
    HISTORY_SIDES_MAX = 4, /* most side ids of an entry */
    HISTORIES_FEW = 128,   /* as many users are drawn from without buckets (draw.c) */
};

struct histories_options {
    uint32_t history;        /* 1..HISTORY_MAX: entries of a full window */
    uint32_t sides;          /* 0..HISTORY_SIDES_MAX: side ids of each entry */
    int64_t expire_after_us; /* 0: never */
    uint32_t shards;         /* kernels/shards.h; 0: as 1 */
    uint64_t seed;
};

struct history_entry {
    struct items_ref item; /* number: at most ITEMS_NUMBERS_MAX */
    uint32_t seconds;
    uint32_t sides[HISTORY_SIDES_MAX]; /* the first options.sides count; the others are 0 */
};

/* The window of a user of `count` events: entries start..start + length - 1 of all the user's events, from 0. */
struct history_window {
    uint64_t start;
    uint32_t length;
};

/* history: 1..HISTORY_MAX. */
static inline struct history_window history_window(uint64_t count, uint32_t history)
{
    uint64_t drop = history - history / 2, over = count > history ? count - history : 0;
    uint64_t start = over / drop * drop + (over % drop > 0 ? drop : 0);
    return (struct history_window){start, (uint32_t)(count - start)};
}

/* The seconds of an event time in microseconds, within 32 bits. */
static inline uint32_t history_seconds(int64_t time_us)
{
    return time_us < 0 ? 0 : (uint32_t)MIN(time_us / US_PER_SECOND, (int64_t)UINT32_MAX);
}

/* A user's entries where they lie, for history_next. */
struct history_view {
    uint64_t count;  /* the user's events ever; 0: there is no such user */
    uint32_t length; /* entries of the window */
    uint32_t sides;
    uint32_t seconds;              /* of the entry read last */
    const unsigned char *at, *end; /* entries not read yet */
};

struct histories;

/* The caller frees the result with histories_free, which takes NULL. */
struct histories *histories_create(const struct histories_options *options);
void histories_free(struct histories *histories);

/*
 * The tables, for cold stores (learners/tables/cold.h: all but the first, the index), snapshots, cuts and
 * shards: whoever stores, gives or takes does it to each, in this order. Their number and order follow from
 * history and sides. Other calls than those are not for callers.
 */
size_t histories_tables(const struct histories *histories);
struct table *histories_table(struct histories *histories, size_t number);

/* After a restore of all tables (rows, table_restored, table_cold_restored), and then of the watermark
 * (histories_set_watermark): of a user who has expired, some rows may be gone. Before other calls. Returns NULL, or
 * why the rows cannot be used, as static text. */
const char *histories_check(struct histories *histories) LEAT_CHECKED;

/* With cold stores, between calls: moves rows of entries to them until all tables have at most about `bytes` of memory;
 * the index stays, so it is `bytes` at least / 8 beside the index (keep.c). step: the newest step begun. */
void histories_keep(struct histories *histories, size_t bytes, uint32_t step);
/* Users whose entries are in a cold store alone, expired ones included. */
uint64_t histories_cold(const struct histories *histories);

/* table_set_watermark for all tables. */
void histories_set_watermark(struct histories *histories, int64_t watermark_us, uint32_t step_in_progress);

/*
 * Views of n users; keys may be 0, which no user has. Cold rows are loaded, at `step`; between
 * histories_guests_begin and histories_guests_end they become guests instead, and nothing changes: for calls
 * that only read. A view is valid until the next call that appends, removes, sets the watermark, or moves rows to a
 * cold store, and no longer than until histories_guests_end.
 */
void histories_find(struct histories *histories, const uint64_t *keys, size_t n, uint32_t step,
                    struct history_view *views);
void histories_guests_begin(struct histories *histories);
void histories_guests_end(struct histories *histories);

/* Reads the next entry of a view, the oldest first; false: there is none. Bytes of a damaged row give wrong
 * entries or end early, no more. */
bool history_next(struct history_view *view, struct history_entry *entry);

/* Whether a user whose newest event was at this second has expired by the watermark: such a user is there no longer. */
bool histories_has_expired(const struct histories *histories, uint32_t seconds);

/* Appends n entries, in their order, to the histories of their keys (not 0); a key may come more than once. An
 * entry that comes so late that its user has expired at once is the only one of its life: the next begins another.
 * steps[i]: number of the step of entry i, not TABLE_STEP_NONE. before[i]: the user's count before entry i;
 * `before` may be NULL. */
void histories_append(struct histories *histories, const uint64_t *keys, const uint32_t *steps,
                      const struct history_entry *entries, size_t n, uint64_t *before);

/* Removes a user, also from a cold store; false: there is no such user. */
bool histories_remove(struct histories *histories, uint64_t key);

/* Writes a user's count and last items for people (`leat state get`), named by their numbers; false: there is no such
 * user. Changes nothing. */
struct describe;
bool histories_describe(struct histories *histories, const struct items_numbers *numbers, uint64_t key,
                        struct describe *out);

/* Visits all users by rising key; the visitor stops the walk by returning false. Takes 8 bytes of memory a user
 * and sorts them: for exports and reports, not for draws. Returns false if it was stopped. */
typedef bool histories_visitor(void *argument, uint64_t key, uint64_t count);
bool histories_walk(const struct histories *histories, histories_visitor *visit, void *argument);

/* Of users that have not expired; a look at each row of the index. */
struct histories_counts {
    uint64_t users, entries;
    size_t bytes; /* memory of all tables */
};
struct histories_counts histories_count(const struct histories *histories);

/*
 * Draws of users from all that are there, uniform, by chance from (seed, step, place) alone (draw.c). `parts`
 * are histories that have different shards of the same users, with the same options and watermark: the draws
 * are those of one with all shards. A prepared draw is valid until a user comes or goes or the watermark is set.
 * histories_draw: false if there are no users.
 */
struct histories_draw {
    const struct histories *const *parts;
    size_t count;
    uint64_t users; /* all users, if they are few: HISTORIES_FEW at most; else 0 */
    unsigned depth; /* a bucket is the users with the same first `depth` bits of their hashes */
};
void histories_draw_begin(const struct histories *const *parts, size_t count, struct histories_draw *draw);
bool histories_draw(const struct histories_draw *draw, uint64_t seed, uint64_t step, uint64_t place,
                    uint64_t *key) LEAT_CHECKED;

#endif
