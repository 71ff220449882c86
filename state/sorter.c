/* The sorter: sorted runs on disk, merged.
 *
 * Records are collected until the budget is used up, then sorted and written as a run. Reading merges all
 * runs; each run is read through a piece of memory, an equal share of the budget. When there are so many runs
 * that the pieces would get too small, the smallest runs are first merged into one. A record larger than its
 * run's piece is read into memory of its own, when it is its turn. */
#include "state/sorter.h"

#include "core/buffer.h"
#include "core/mem.h"
#include "core/os.h"
#include "state/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    BUDGET_LEAST = 64 << 10,
    PIECE_LEAST = 8 << 10,
    RUNS_MOST = 256,
    UNITED_SHARE = 8, /* 1 / UNITED_SHARE of the runs are merged into one when there are too many */
    UNITED_LEAST = 4,
    WRITE_BYTES = 64 << 10
};

struct head {
    int64_t time_us;
    uint64_t hash;
    struct key key;
    uint64_t sequence;
    uint32_t length, spare;
};

struct item {
    int64_t time_us;
    uint64_t hash;
    size_t at; /* offset of the record's head in `records` */
};

/* A run: its bytes in the file from `at` to `end` are still to be merged; the first of these bytes are
 * already in `piece`, from `position` up to `length`. */
struct run {
    uint64_t at, end;
    char *piece;
    size_t position, length;
};

struct sorter {
    struct state_store *store;
    size_t budget_bytes;
    struct byte_buffer records, large;
    struct item *items;
    uint32_t count, capacity, next; /* next: index in `items`, where all records are in memory */
    uint64_t sequence;
    int fd; /* -1: no run was written */
    uint64_t file_bytes;
    struct run runs[RUNS_MOST];
    uint32_t runs_count, runs_most;
    /* Runs with records left; on top the run whose next record is first. */
    uint32_t heap[RUNS_MOST], heap_count;
    char *pieces;
    size_t piece_bytes;
    bool is_reading, is_started, has_failed;
};

struct sorter *sorter_new(struct state_store *store, size_t budget_bytes)
{
    struct sorter *sorter = mem_calloc(1, sizeof(*sorter));
    sorter->store = store;
    sorter->budget_bytes = MAX(budget_bytes, BUDGET_LEAST);
    sorter->runs_most = (uint32_t)MIN(sorter->budget_bytes / PIECE_LEAST, RUNS_MOST);
    sorter->fd = -1;
    return sorter;
}

void sorter_free(struct sorter *sorter)
{
    if (sorter == NULL)
        return;
    if (sorter->fd >= 0)
        close(sorter->fd);
    buffer_free(&sorter->records);
    buffer_free(&sorter->large);
    free(sorter->items);
    free(sorter->pieces);
    free(sorter);
}

size_t sorter_memory(const struct sorter *sorter)
{
    return sorter->records.capacity + sorter->large.capacity + sorter->capacity * sizeof(*sorter->items) +
           (sorter->pieces == NULL ? 0 : sorter->runs_count * sorter->piece_bytes);
}

uint64_t sorter_file_bytes(const struct sorter *sorter)
{
    return sorter->file_bytes;
}

static size_t padded(size_t length)
{
    return (length + 7) & ~(size_t)7;
}

static const struct head *head_at(const struct sorter *sorter, size_t at)
{
    return (const struct head *)(const void *)(sorter->records.data + at);
}

static int compare_heads(const struct head *a, const struct head *b)
{
    if (a->time_us != b->time_us)
        return a->time_us < b->time_us ? -1 : 1;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    int order = memcmp(&a->key, &b->key, sizeof(a->key));
    return order != 0 ? order : a->sequence < b->sequence ? -1 : a->sequence > b->sequence;
}

static int compare_items(const void *a, const void *b, void *argument)
{
    const struct item *x = a, *y = b;
    if (x->time_us != y->time_us)
        return x->time_us < y->time_us ? -1 : 1;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return compare_heads(head_at(argument, x->at), head_at(argument, y->at));
}

static void sort_items(struct sorter *sorter)
{
    if (sorter->count > 1)
        qsort_r(sorter->items, sorter->count, sizeof(*sorter->items), compare_items, sorter);
}

/* --- The file --- */

static void fail(struct sorter *sorter, int error)
{
    store_failed(sorter->store, "sorting state", error);
    sorter->has_failed = true;
}

static void write_piece(struct sorter *sorter, struct byte_buffer *piece)
{
    int error = os_pwrite_all(sorter->fd, piece->data, piece->length, sorter->file_bytes, "spill.write");
    if (error != 0)
        fail(sorter, error);
    sorter->file_bytes += piece->length;
    buffer_clear(piece);
}

static void put_record(struct sorter *sorter, struct byte_buffer *piece, const struct head *head,
                       const char *data)
{
    buffer_append(piece, head, sizeof(*head));
    buffer_append(piece, data, padded(head->length));
    if (piece->length >= WRITE_BYTES)
        write_piece(sorter, piece);
}

static struct run *add_run(struct sorter *sorter)
{
    struct run *run = &sorter->runs[sorter->runs_count++];
    *run = (struct run){.at = sorter->file_bytes};
    return run;
}

static void start_merge(struct sorter *sorter, uint32_t count);
static bool next_merged(struct sorter *sorter, struct head *head, const char **data);

static int compare_runs(const void *a, const void *b)
{
    const struct run *x = a, *y = b;
    uint64_t x_bytes = x->end - x->at, y_bytes = y->end - y->at;
    return (x_bytes > y_bytes) - (x_bytes < y_bytes);
}

/* Merges the smallest runs into one, to make room for more runs while few bytes are written again. */
static void unite_runs(struct sorter *sorter)
{
    struct byte_buffer piece = {0};
    struct head head;
    const char *data;
    uint64_t begin = sorter->file_bytes;
    uint32_t count = MAX(sorter->runs_count / UNITED_SHARE, UNITED_LEAST);
    buffer_free(&sorter->records); /* the merge needs the budget for its pieces */
    qsort(sorter->runs, sorter->runs_count, sizeof(*sorter->runs), compare_runs);
    start_merge(sorter, count);
    while (!sorter->has_failed && next_merged(sorter, &head, &data))
        put_record(sorter, &piece, &head, data);
    write_piece(sorter, &piece);
    buffer_free(&piece);
    free(sorter->pieces);
    sorter->pieces = NULL;
    sorter->is_started = false;
    sorter->runs[0] = (struct run){.at = begin, .end = sorter->file_bytes};
    sorter->runs_count -= count - 1;
    memmove(sorter->runs + 1, sorter->runs + count, (sorter->runs_count - 1) * sizeof(*sorter->runs));
}

static void write_run(struct sorter *sorter)
{
    if (sorter->fd < 0 && (sorter->fd = store_nameless_file(sorter->store)) < 0) {
        fail(sorter, errno);
        return;
    }
    struct byte_buffer piece = {0};
    leat_assert(sorter->count > 0);
    sort_items(sorter);
    struct run *run = add_run(sorter);
    for (uint32_t i = 0; i < sorter->count && !sorter->has_failed; i++) {
        const struct head *head = head_at(sorter, sorter->items[i].at);
        put_record(sorter, &piece, head, (const char *)(head + 1));
    }
    write_piece(sorter, &piece);
    buffer_free(&piece);
    run->end = sorter->file_bytes;
    sorter->count = 0;
    buffer_clear(&sorter->records);
    if (sorter->runs_count == sorter->runs_most)
        unite_runs(sorter);
}

/* --- Adding --- */

void sorter_add(struct sorter *sorter, const struct sorted_record *record)
{
    leat_assert(!sorter->is_reading && record->data.length <= UINT32_MAX / 2);
    struct head head = {.time_us = record->time_us,
                        .hash = record->hash,
                        .key = record->key,
                        .sequence = sorter->sequence++,
                        .length = (uint32_t)record->data.length};
    size_t bytes = sizeof(head) + padded(record->data.length);
    size_t used = sorter->records.length + sorter->count * sizeof(*sorter->items);
    if (sorter->has_failed)
        return;
    if (sorter->count > 0 && used + bytes > sorter->budget_bytes && store_has_directory(sorter->store))
        write_run(sorter);
    if (sorter->count == sorter->capacity) {
        sorter->capacity = MAX(sorter->capacity * 2, 256);
        sorter->items = mem_realloc(sorter->items, sorter->capacity * sizeof(*sorter->items));
    }
    sorter->items[sorter->count++] = (struct item){record->time_us, record->hash, sorter->records.length};
    char *at = buffer_reserve(&sorter->records, bytes);
    memcpy(at, &head, sizeof(head));
    memset(at + bytes - (bytes > sizeof(head) ? 8 : 0), 0, bytes > sizeof(head) ? 8 : 0);
    if (record->data.length > 0)
        memcpy(at + sizeof(head), record->data.data, record->data.length);
    sorter->records.length += bytes;
}

/* --- Merging --- */

/* Reads until at least `bytes` bytes of the run are in its piece, or as many as the piece can hold and the
 * run has. */
static void read_ahead(struct sorter *sorter, struct run *run, size_t bytes)
{
    size_t left = run->length - run->position, got;
    if (left >= bytes || run->end - run->at <= left)
        return;
    size_t wanted = (size_t)MIN(run->end - run->at, sorter->piece_bytes);
    int error = os_pread_all(sorter->fd, run->piece, wanted, run->at, &got);
    if (error != 0 || got != wanted)
        fail(sorter, error != 0 ? error : EIO);
    run->position = 0;
    run->length = wanted;
}

static struct head run_head(const struct run *run)
{
    struct head head;
    memcpy(&head, run->piece + run->position, sizeof(head));
    return head;
}

static bool comes_before(const struct sorter *sorter, uint32_t a, uint32_t b)
{
    struct head x = run_head(&sorter->runs[a]), y = run_head(&sorter->runs[b]);
    return compare_heads(&x, &y) < 0;
}

static void sift_down(struct sorter *sorter, uint32_t at)
{
    uint32_t *heap = sorter->heap, run = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < sorter->heap_count; at = child) {
        if (child + 1 < sorter->heap_count && comes_before(sorter, heap[child + 1], heap[child]))
            child++;
        if (!comes_before(sorter, heap[child], run))
            break;
        heap[at] = heap[child];
    }
    heap[at] = run;
}

/* Starts merging the first `count` runs. */
static void start_merge(struct sorter *sorter, uint32_t count)
{
    /* A piece holds at least a head, wherever the head begins: all lengths are multiples of eight. */
    sorter->piece_bytes = sorter->budget_bytes / count & ~(size_t)7;
    sorter->pieces = mem_alloc(sorter->piece_bytes * count);
    sorter->heap_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct run *run = &sorter->runs[i];
        run->piece = sorter->pieces + i * sorter->piece_bytes;
        run->position = run->length = 0;
        read_ahead(sorter, run, sizeof(struct head));
        sorter->heap[sorter->heap_count++] = i;
    }
    for (uint32_t at = sorter->heap_count / 2; at-- > 0;)
        sift_down(sorter, at);
    sorter->is_started = false;
}

/* Removes the first record of the run on top of the heap. */
static void leave_first(struct sorter *sorter)
{
    struct run *run = &sorter->runs[sorter->heap[0]];
    struct head head = run_head(run);
    size_t bytes = sizeof(head) + padded(head.length), left = run->length - run->position;
    run->at += bytes;
    run->position += MIN(bytes, left);
    read_ahead(sorter, run, sizeof(head));
    if (run->at == run->end)
        sorter->heap[0] = sorter->heap[--sorter->heap_count];
    if (sorter->heap_count > 0)
        sift_down(sorter, 0);
}

static bool next_merged(struct sorter *sorter, struct head *head, const char **data)
{
    if (sorter->is_started && sorter->heap_count > 0)
        leave_first(sorter);
    sorter->is_started = true;
    if (sorter->heap_count == 0 || sorter->has_failed)
        return false;
    struct run *run = &sorter->runs[sorter->heap[0]];
    *head = run_head(run);
    size_t bytes = sizeof(*head) + padded(head->length);
    read_ahead(sorter, run, bytes);
    *data = run->piece + run->position + sizeof(*head);
    if (run->length - run->position >= bytes)
        return !sorter->has_failed;
    size_t got;
    buffer_clear(&sorter->large);
    char *large = buffer_reserve(&sorter->large, bytes);
    int error = os_pread_all(sorter->fd, large, bytes, run->at, &got);
    if (error != 0 || got != bytes)
        fail(sorter, error != 0 ? error : EIO);
    *data = large + sizeof(*head);
    return !sorter->has_failed;
}

static void begin_reading(struct sorter *sorter)
{
    sorter->is_reading = true;
    if (sorter->fd < 0) {
        sort_items(sorter);
        return;
    }
    write_run(sorter);
    buffer_free(&sorter->records);
    free(sorter->items);
    sorter->items = NULL;
    sorter->capacity = 0;
    if (!sorter->has_failed)
        start_merge(sorter, sorter->runs_count);
}

bool sorter_next(struct sorter *sorter, struct sorted_record *record)
{
    struct head head;
    const char *data;
    if (!sorter->is_reading)
        begin_reading(sorter);
    if (sorter->has_failed)
        return false;
    if (sorter->fd < 0) {
        if (sorter->next == sorter->count)
            return false;
        head = *head_at(sorter, sorter->items[sorter->next].at);
        data = sorter->records.data + sorter->items[sorter->next++].at + sizeof(head);
    } else if (!next_merged(sorter, &head, &data)) {
        return false;
    }
    *record = (struct sorted_record){head.time_us, head.hash, head.key, {data, head.length}};
    return true;
}
