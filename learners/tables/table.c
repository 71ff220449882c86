/* Finding, making and removing rows; table.h explains the layout. */
#include "learners/tables/cold.h"
#include "learners/tables/cut.h"
#include "learners/tables/inline.h"

#include "core/base.h"
#include "core/mem.h"
#include "core/refused.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    RANGE_STEP = 64 << 10,
    HUGE_PAGE = 2 << 20,
    /* small tables take small pages: zeroing huge pages would cost more than they save */
    HUGE_FROM = 2 * HUGE_PAGE,
    POPULATE_FROM = 2 * RANGE_STEP,
    DEPTH_MAX = 32,
    LOOK_AHEAD = 24, /* keys between a slot's prefetch and its probe */
    TOUCH_BEHIND = 16,
    TILE = 512, /* keys whose hashes are kept between the stages */
};
static const size_t ROWS_RESERVED = UINT32_MAX;
#ifdef __SANITIZE_ADDRESS__
static const size_t RANGE_BYTES_MAX = (size_t)1 << 28; /* ASan writes an eighth of the reserved range */
#elif defined(__SANITIZE_THREAD__)
static const size_t RANGE_BYTES_MAX = (size_t)1
                                      << 30; /* so that the fifty ranges of a sequence model find a place */
#else
static const size_t RANGE_BYTES_MAX = (size_t)1 << 38;
#endif
static const size_t RANGE_BYTES_MIN = (size_t)1 << 30;
/* Addresses of the ranges that are not reserved (is_far), one range after the other: far from the addresses
 * that the system hands out. */
static const uintptr_t FAR_BEGIN = (uintptr_t)1 << 45, FAR_END = (uintptr_t)5 << 44;

static void range_reserve(struct table_range *range, size_t bytes)
{
    void *base;
    /* Address space is scarce under sanitizers: try with half as much. */
    while ((base = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                        0)) == MAP_FAILED &&
           bytes > RANGE_BYTES_MIN)
        bytes /= 2;
    if (base == MAP_FAILED)
        refused_memory(bytes);
    size_t skew = (size_t)(-(uintptr_t)base & (HUGE_PAGE - 1)); /* huge pages must be aligned */
    if (skew > 0)
        munmap(base, skew);
    munmap((unsigned char *)base + skew + bytes, HUGE_PAGE - skew);
    *range = (struct table_range){.base = (unsigned char *)base + skew, .reserved = bytes};
}

/* Under a limit on address space (ulimit -v) reserved addresses count as taken memory. There a range maps
 * addresses as it grows, at a place that no other mapping uses. */
static void range_begin_far(struct table_range *range, size_t bytes)
{
    static _Atomic uintptr_t next = FAR_BEGIN;
    for (uintptr_t at; (at = atomic_fetch_add(&next, bytes + HUGE_PAGE)) + bytes <= FAR_END;) {
        /* One page shows whether the place is free. */
        void *base =
            mmap((void *)at, RANGE_STEP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (base == MAP_FAILED && errno != EEXIST)
            break;
        if (base != MAP_FAILED)
            munmap(base, RANGE_STEP);
        if (base == (void *)at) {
            *range = (struct table_range){.base = base, .reserved = bytes, .is_far = true};
            return;
        }
    }
    refused_memory(RANGE_STEP);
}

static void range_init(struct table_range *range, size_t bytes)
{
    size_t left = refused_space_left();
    bytes = MIN(bytes, RANGE_BYTES_MAX);
    bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (left == SIZE_MAX)
        range_reserve(range, bytes);
    else
        range_begin_far(range, MIN(bytes, (left / HUGE_PAGE + 1) * HUGE_PAGE));
}

static void range_free(struct table_range *range)
{
    if (range->base != NULL && (!range->is_far || range->usable > 0))
        munmap(range->base, range->is_far ? range->usable : range->reserved);
    *range = (struct table_range){0};
}

static bool range_extend(struct table_range *range, size_t target)
{
    unsigned char *from = range->base + range->usable;
    if (!range->is_far)
        return mprotect(from, target - range->usable, PROT_READ | PROT_WRITE) == 0;
    return mmap(from, target - range->usable, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == from;
}

/* Makes the first `bytes` of the range usable (zeroed); grows by at least an eighth, so that
 * calls stay rare. */
static void range_need(struct table_range *range, size_t bytes)
{
    if (likely(bytes <= range->usable))
        return;
    size_t target = MAX(bytes, range->usable + range->usable / 8);
    size_t step = target >= HUGE_FROM ? HUGE_PAGE : RANGE_STEP;
    target = MIN((target + step - 1) / step * step, range->reserved);
    if (bytes > target || !range_extend(range, target))
        refused_memory(target - range->usable);
    if (target >= HUGE_FROM) {
        size_t from = MAX(range->usable / HUGE_PAGE * HUGE_PAGE, (size_t)HUGE_FROM - HUGE_PAGE);
        (void)madvise(range->base + from, target - from, MADV_HUGEPAGE);
        /* Small pages are populated at once, not one by one at their first touch. Old versions of Linux
         * refuse this, which does no harm. */
    } else if (target >= POPULATE_FROM)
        (void)madvise(range->base + range->usable, target - range->usable, MADV_POPULATE_WRITE);
    range->usable = target;
}

static uint8_t *page_depth(const struct table *t, uint32_t page)
{
    return t->page_depths.base + page;
}

static uint8_t *page_count(const struct table *t, uint32_t page)
{
    return t->page_counts.base + page;
}

static uint32_t chunk_epoch(const struct table *t, size_t chunk)
{
    return ((uint32_t *)(void *)t->chunk_epochs.base)[chunk];
}

/* Atomic: a thread that looks rows up may make a row in a chunk where the learning thread
 * touches another row. */
static void set_chunk_epoch(struct table *t, size_t chunk, uint32_t epoch)
{
    atomic_store_explicit((_Atomic uint32_t *)(void *)t->chunk_epochs.base + chunk, epoch,
                          memory_order_relaxed);
}

static uint32_t page_new(struct table *t, unsigned depth)
{
    uint32_t page = t->pages_count++;
    size_t slots = (size_t)t->pages_count * TABLE_PAGE_SLOTS;
    range_need(t->options.is_inline ? &t->rows : &t->pages, slots * t->slot_bytes);
    if (t->options.is_inline) {
        leat_assert(slots < ROWS_RESERVED);
        t->rows_used = (uint32_t)slots;
        range_need(&t->chunk_epochs, slots / TABLE_CHUNK_ROWS * sizeof(uint32_t));
    }
    range_need(&t->page_depths, t->pages_count);
    range_need(&t->page_counts, t->pages_count);
    *page_depth(t, page) = (uint8_t)depth;
    return page;
}

void table_init(struct table *t, const struct table_options *options)
{
    leat_assert(options->align > 0 && options->align % 8 == 0 && options->init != NULL);
    *t =
        (struct table){.options = *options, .halved_at_us = INT64_MIN, .watermark_us = INT64_MIN, .epoch = 1};
    t->stride =
        (TABLE_ROW_HEADER + options->payload_bytes + options->align - 1) / options->align * options->align;
    range_init(&t->rows, ROWS_RESERVED * t->stride);
    if (!options->is_inline)
        range_init(&t->pages, ROWS_RESERVED * sizeof(struct table_slot) * 4);
    t->slot_bytes = options->is_inline ? t->stride : sizeof(struct table_slot);
    t->slots = options->is_inline ? t->rows.base : t->pages.base;
    range_init(&t->page_depths, ROWS_RESERVED / 32);
    range_init(&t->page_counts, ROWS_RESERVED / 32);
    range_init(&t->chunk_epochs, ROWS_RESERVED / TABLE_CHUNK_ROWS * sizeof(uint32_t));
    t->depth = 1;
    t->directory = mem_alloc(2 * sizeof(*t->directory));
    t->directory[0] = t->directory[1] = page_new(t, 0);
    if (options->rows_max > 0) {
        t->buckets = (options->rows_max + TABLE_BUCKET_ROWS - 1) / TABLE_BUCKET_ROWS;
        t->bucket_counts = mem_calloc(t->buckets, sizeof(*t->bucket_counts));
    }
    if (options->admit_after > 1)
        sketch_init(&t->sketch, options->sketch_bytes, MAX(options->shards, 1U), t->buckets);
}

void table_free(struct table *t)
{
    if (t->snapshot)
        table_snapshot_end(t, false);
    range_free(&t->rows);
    range_free(&t->pages);
    range_free(&t->page_depths);
    range_free(&t->page_counts);
    range_free(&t->chunk_epochs);
    sketch_free(&t->sketch);
    free(t->directory);
    free(t->free_rows);
    free(t->limbo_rows);
    free(t->bucket_counts);
    free(t->removed.items);
    table_cut_note(t, false, 0);
    table_cold_free(t);
    table_batch_free(t);
    table_possible_free(t);
    *t = (struct table){0};
}

struct table_row *table_find(const struct table *t, uint64_t key)
{
    const uint64_t *slot = key ? table_slot_of(t, key, table_hash(t, key)) : NULL;
    struct table_row *row = slot != NULL ? table_slot_row(t, slot) : NULL;
    return row != NULL && !table_is_expired(t, row) ? row : NULL;
}

/* The first free slot of a key's probe sequence, counted as taken. */
static uint64_t *take_slot(struct table *t, uint32_t page, uint64_t hash)
{
    size_t i = table_home(t->options.is_inline, hash);
    while (*table_slot_at(t, page, i) != 0)
        i = (i + 1) % TABLE_PAGE_SLOTS;
    (*page_count(t, page))++;
    return table_slot_at(t, page, i);
}

/*
 * Call before rows of page `from` move, within it or to page `to`: the snapshot's writer must have copied
 * them at their old places, and the chunks they move to must carry the newest epoch of the chunks they leave.
 */
static void rows_may_move(struct table *t, uint32_t from, uint32_t to)
{
    if (!t->options.is_inline)
        return;
    enum { CHUNKS = TABLE_PAGE_SLOTS / TABLE_CHUNK_ROWS };
    uint32_t newest = 0;
    for (uint32_t i = 0; i < CHUNKS; i++) {
        if (t->snapshot != NULL)
            table_snapshot_protect(t, from * TABLE_PAGE_SLOTS + i * TABLE_CHUNK_ROWS);
        newest = MAX(newest, chunk_epoch(t, (size_t)from * CHUNKS + i));
    }
    for (uint32_t i = 0; i < CHUNKS; i++) {
        set_chunk_epoch(t, (size_t)from * CHUNKS + i, newest);
        set_chunk_epoch(t, (size_t)to * CHUNKS + i, newest);
    }
}

static void directory_double(struct table *t)
{
    leat_assert(t->depth < DEPTH_MAX);
    size_t size = (size_t)1 << t->depth;
    uint32_t *bigger = mem_alloc(2 * size * sizeof(*bigger));
    for (size_t i = 0; i < size; i++)
        bigger[2 * i] = bigger[2 * i + 1] = t->directory[i];
    free(t->directory);
    t->directory = bigger;
    t->depth++;
}

/* Splits the page of `hash` in two, by the next bit of its keys' hashes. */
static void page_split(struct table *t, uint64_t hash)
{
    uint32_t low = table_page_of(t, hash);
    unsigned depth = *page_depth(t, low) + 1U;
    if (depth > t->depth)
        directory_double(t);
    uint32_t high = page_new(t, depth);
    *page_depth(t, low) = (uint8_t)depth;
    size_t span = (size_t)1 << (t->depth - depth);
    size_t first = (size_t)(hash >> (64 - t->depth)) / (2 * span) * (2 * span) + span;
    for (size_t i = 0; i < span; i++)
        t->directory[first + i] = high;
    rows_may_move(t, low, high);
    *page_count(t, low) = 0;
    size_t start = 0;
    while (*table_slot_at(t, low, start) != 0)
        start++;
    /* Reinsert slots starting after a free one, so that every earlier slot of a probe sequence
     * is already final. */
    for (size_t k = 1; k < TABLE_PAGE_SLOTS; k++) {
        uint64_t *slot = table_slot_at(t, low, (start + k) % TABLE_PAGE_SLOTS), key = *slot;
        if (key == 0)
            continue;
        uint64_t h = table_hash(t, key);
        *slot = 0;
        uint64_t *to = take_slot(t, h >> (64 - depth) & 1 ? high : low, h);
        memcpy(to + 1, slot + 1, t->slot_bytes - sizeof(key));
        *to = key;
    }
}

static void push_number(uint32_t **items, size_t *count, size_t *capacity, uint32_t number)
{
    if (*count == *capacity) {
        *capacity = MAX(2 * *capacity, 256);
        *items = mem_realloc(*items, *capacity * sizeof(**items));
    }
    (*items)[(*count)++] = number;
}

static uint32_t row_new(struct table *t)
{
    if (t->free_count > 0)
        return t->free_rows[--t->free_count];
    leat_assert(t->rows_used < UINT32_MAX - 1);
    uint32_t number = t->rows_used++;
    range_need(&t->rows, (size_t)t->rows_used * t->stride);
    range_need(&t->chunk_epochs, ((size_t)number / TABLE_CHUNK_ROWS + 1) * sizeof(uint32_t));
    return number;
}

static void mark_changed(struct table *t, struct table_row *row)
{
    uint32_t number = table_row_number(t, row);
    if (t->snapshot)
        table_snapshot_protect(t, number);
    row->epoch = t->epoch;
    set_chunk_epoch(t, number / TABLE_CHUNK_ROWS, t->epoch);
}

/* Notes a changed row for the next cut. */
static void note(const struct table *t, struct table_keys *list, uint64_t key, const struct table_row *row)
{
    table_keys_add(list, t->options.is_inline ? key : table_row_number(t, row));
}

void table_mark_changed(struct table *t, struct table_row *row)
{
    if (t->cut != NULL && row->epoch <= t->cut->since)
        note(t, &t->cut->changed, row->key, row);
    mark_changed(t, row);
}

bool table_make_slot(struct table *t, uint64_t hash, unsigned depth_max)
{
    uint32_t page;
    while (*page_count(t, page = table_page_of(t, hash)) >= TABLE_PAGE_SPLIT) {
        if (*page_depth(t, page) >= depth_max)
            return false;
        page_split(t, hash);
    }
    return true;
}

struct table_row *table_add_row(struct table *t, uint64_t key, uint64_t hash)
{
    (void)table_make_slot(t, hash, UINT_MAX);
    uint64_t *slot = take_slot(t, table_page_of(t, hash), hash);
    if (!t->options.is_inline)
        *(struct table_slot *)(void *)slot = (struct table_slot){.key = key, .row = row_new(t)};
    struct table_row *row = table_slot_row(t, slot);
    mark_changed(t, row);
    if (t->cut != NULL)
        note(t, &t->cut->added, key, row);
    *row = (struct table_row){.key = key, .epoch = t->epoch};
    if (t->bucket_counts)
        t->bucket_counts[table_bucket(t, hash)]++;
    t->stats.rows++;
    t->changes++;
    return row;
}

struct table_row *table_insert(struct table *t, uint64_t key, uint64_t hash)
{
    struct table_row *row = table_add_row(t, key, hash);
    t->options.init(t->options.init_argument, key, table_payload(row));
    t->stats.inserted++;
    return row;
}

/* Frees a slot and closes the gap in its probe sequence (Knuth, algorithm R), within the page. */
static void erase_slot(struct table *t, uint64_t *slot, uint64_t hash)
{
    uint32_t page = table_page_of(t, hash);
    bool is_inline = t->options.is_inline;
    size_t gap = (size_t)((unsigned char *)slot - (unsigned char *)table_slot_at(t, page, 0)) / t->slot_bytes;
    rows_may_move(t, page, page);
    *slot = 0;
    (*page_count(t, page))--;
    for (size_t i = (gap + 1) % TABLE_PAGE_SLOTS;; i = (i + 1) % TABLE_PAGE_SLOTS) {
        uint64_t *next = table_slot_at(t, page, i);
        if (*next == 0)
            return;
        size_t home = table_home(is_inline, table_hash(t, *next));
        size_t from_home = (i - home) % TABLE_PAGE_SLOTS;
        size_t from_gap = (i - gap) % TABLE_PAGE_SLOTS;
        if (from_home < from_gap)
            continue;
        memcpy(table_slot_at(t, page, gap), next, t->slot_bytes);
        *next = 0;
        gap = i;
    }
}

void table_keys_add(struct table_keys *keys, uint64_t key)
{
    if (keys->count == keys->capacity) {
        keys->capacity = MAX(2 * keys->capacity, 256);
        keys->items = mem_realloc(keys->items, keys->capacity * sizeof(*keys->items));
    }
    keys->items[keys->count++] = key;
}

void table_remove(struct table *t, uint64_t key, uint64_t hash)
{
    uint64_t *slot = table_slot_of(t, key, hash);
    leat_assert(slot);
    struct table_row *row = table_slot_row(t, slot);
    mark_changed(t, row);
    erase_slot(t, slot, hash);
    if (!t->options.is_inline) {
        row->key = 0;
        push_number(&t->limbo_rows, &t->limbo_count, &t->limbo_capacity, table_row_number(t, row));
    }
    if (t->lists_removed)
        table_keys_add(&t->removed, key);
    if (t->cut != NULL && !t->cut->is_moving)
        table_keys_add(&t->cut->removed, key);
    if (t->bucket_counts)
        t->bucket_counts[table_bucket(t, hash)]--;
    t->stats.rows--;
    t->changes++;
}

/* An occurrence of a key without a row: makes the row if the key is admitted, else returns NULL. */
static struct table_row *admit(struct table *t, uint64_t key, uint64_t hash, uint32_t step)
{
    if (t->options.admit_after > 1) {
        if (sketch_add(&t->sketch, hash) < MIN(t->options.admit_after, (uint32_t)SKETCH_COUNT_MAX)) {
            t->stats.waiting++;
            return NULL;
        }
    }
    if (t->bucket_counts != NULL && !table_make_room(t, hash, step)) {
        t->stats.refused++;
        return NULL;
    }
    return table_insert(t, key, hash);
}

/* The slow part of table_find_or_admit: removes an expired row that it meets; its key then counts as new. */
struct table_row *table_find_or_admit_slow(struct table *t, uint64_t key, uint64_t hash, uint32_t step,
                                           bool learns)
{
    if (!learns)
        return table_guest(t, key);
    if (t->expired_before > 0 && table_slot_of(t, key, hash) != NULL) {
        table_remove(t, key, hash);
        t->stats.expired++;
    }
    return admit(t, key, hash, step);
}

/*
 * Three stages, so that nothing waits for a cache miss: the slot's line is prefetched LOOK_AHEAD keys ahead;
 * the row's line when its number is known; the header is written TOUCH_BEHIND keys later. Tables whose
 * headers decide which rows are removed (rows_max, expiry) write them at once and pay for the miss.
 * is_possible: keys that are only looked up get possible rows.
 */
static void resolve_tile(struct table *t, const uint64_t *keys, const uint32_t *seen, const uint32_t *steps,
                         const uint8_t *learns, size_t n, struct table_row **out, bool touches,
                         bool is_possible)
{
    uint64_t hashes[TILE];
    bool is_eager = table_is_eager(t), is_inline = t->options.is_inline;
    size_t behind = touches && !is_eager && !is_inline ? TOUCH_BEHIND : 0;
    touches |= is_eager;
    for (size_t i = 0; i < n; i++)
        hashes[i] = table_hash(t, keys[i]);
    for (size_t i = 0; i < MIN(n, (size_t)LOOK_AHEAD); i++)
        table_prefetch(t, hashes[i], is_inline, t->slot_bytes);
    for (size_t i = 0; i < n + behind; i++) {
        if (i + LOOK_AHEAD < n)
            table_prefetch(t, hashes[i + LOOK_AHEAD], is_inline, t->slot_bytes);
        if (i < n) {
            bool is_learned = learns == NULL || learns[i];
            out[i] = likely(keys[i] != 0) ? table_find_or_admit(t, keys[i], hashes[i], steps[i], is_learned,
                                                                is_inline, t->stride)
                                          : NULL;
            if (unlikely(out[i] == NULL) && !is_learned && is_possible && !is_inline)
                table_possible_rows(t, keys + i, 1, steps[i], out + i);
            if (touches)
                prefetch_line(out[i]);
        }
        if (i < behind || !touches)
            continue;
        size_t late = i - behind;
        if (likely(out[late] != NULL && (learns == NULL || learns[late]))) {
            table_touch(t, out[late], seen[late], steps[late], 1);
        }
    }
}

void table_begin(struct table *t)
{
    for (size_t i = 0; i < t->limbo_count; i++)
        push_number(&t->free_rows, &t->free_count, &t->free_capacity, t->limbo_rows[i]);
    t->limbo_count = 0;
}

void table_look(struct table *t, const uint64_t *keys, const uint32_t *seen, const uint32_t *steps,
                const uint8_t *learns, size_t n, bool touches, struct table_row **out)
{
    table_warm(t, keys, n, n > 0 ? steps[0] : 0);
    for (size_t at = 0; at < n; at += TILE)
        resolve_tile(t, keys + at, seen + at, steps + at, learns != NULL ? learns + at : NULL,
                     MIN(n - at, (size_t)TILE), out + at, touches, true);
}

void table_look_list(struct table *t, const uint64_t *keys, size_t n, uint32_t seen, uint32_t step,
                     bool learns, struct table_row **out)
{
    size_t missing = 0;
    leat_assert(!t->options.is_inline);
    for (size_t i = 0; i < n; i++) {
        const uint64_t *slot = keys[i] != 0 ? table_slot_of(t, keys[i], table_hash(t, keys[i])) : NULL;
        out[i] = slot != NULL ? table_slot_row(t, slot) : keys[i] != 0 ? table_guest(t, keys[i]) : NULL;
        if (out[i] != NULL && table_is_expired(t, out[i]) && out[i]->step != step)
            out[i] = NULL;
        missing += out[i] == NULL && keys[i] != 0;
        if (out[i] != NULL && learns)
            table_touch(t, out[i], seen, step, 1);
    }
    if (missing > 0 && !learns)
        table_possible_rows(t, keys, n, step, out);
    for (size_t i = 0; i < n && missing > 0 && learns; i++) {
        if (out[i] != NULL || keys[i] == 0)
            continue;
        out[i] = table_find_or_admit(t, keys[i], table_hash(t, keys[i]), step, true, false, t->stride);
        if (out[i] != NULL)
            table_touch(t, out[i], seen, step, 1);
    }
}

void table_resolve(struct table *t, const uint64_t *keys, const uint32_t *seen, const uint32_t *steps,
                   const uint8_t *learns, size_t n, struct table_row **out)
{
    table_warm(t, keys, n, n > 0 ? steps[0] : 0);
    table_begin(t);
    for (size_t at = 0; at < n; at += TILE)
        resolve_tile(t, keys + at, seen + at, steps + at, learns != NULL ? learns + at : NULL,
                     MIN(n - at, (size_t)TILE), out + at, true, false);
}

size_t table_stored_bytes(const struct table *t)
{
    return offsetof(struct table_row, step) + t->options.payload_bytes;
}

void table_store_row(const struct table *t, struct table_row *row, unsigned char *stored)
{
    size_t header = offsetof(struct table_row, step);
    memcpy(stored, row, header);
    memcpy(stored + header, table_payload(row), t->options.payload_bytes);
}

void table_load_row(const struct table *t, struct table_row *row, const unsigned char *stored)
{
    size_t header = offsetof(struct table_row, step);
    memcpy(row, stored, header);
    memcpy(table_payload(row), stored + header, t->options.payload_bytes);
}

void table_restore_row(struct table *t, const void *stored)
{
    uint64_t key;
    memcpy(&key, stored, sizeof(key));
    uint64_t hash = table_hash(t, key);
    const uint64_t *slot = table_slot_of(t, key, hash);
    table_load_row(t, slot ? table_slot_row(t, slot) : table_add_row(t, key, hash), stored);
}

void table_restore_remove(struct table *t, uint64_t key)
{
    if (table_slot_of(t, key, table_hash(t, key)) != NULL)
        table_remove(t, key, table_hash(t, key));
}

void table_restored(struct table *t, uint32_t epoch)
{
    t->epoch = epoch + 1;
    t->sketch.epoch = epoch + 1;
    t->removed.count = 0;
    t->lists_removed = t->was_published = true;
}

size_t table_bytes(const struct table *t)
{
    size_t page_bytes = t->options.is_inline ? 0 : TABLE_PAGE_SLOTS * sizeof(struct table_slot);
    return (size_t)t->rows_used * t->stride + (size_t)t->pages_count * (page_bytes + 2) +
           ((size_t)4 << t->depth) + sketch_bytes(&t->sketch) + t->buckets * sizeof(*t->bucket_counts);
}
