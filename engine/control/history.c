#include "control/history_internal.h"

#include "core/mem.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

static const int64_t AWAY_MAX =
    INT64_C(10) * 366 * 24 * 3600; /* seconds between two lives that are believed */

const struct history_ring history_rings[HISTORY_RINGS] = {
    {"1h", 1, 3600}, {"12h", 10, 4320}, {"30d", 600, 4320}};

_Static_assert((3600 + 4320 + 4320) *
                       (sizeof(struct row) + HISTORY_COLUMNS_MAX * HISTORY_FIGURES * sizeof(float)) <=
                   (size_t)100 << 20,
               "the rings of 256 nodes have 100 MiB at most");

/* --- Rows --- */

struct row *history_row(const struct history *history, uint32_t ring, uint64_t index)
{
    return (struct row *)(history->rings[ring].rows + index % history_rings[ring].rows * history->row_bytes);
}

static struct row *newest_of(const struct history *history, uint32_t ring)
{
    uint64_t count = history->rings[ring].count;
    return count == 0 ? NULL : history_row(history, ring, count - 1);
}

uint64_t history_oldest(const struct history *history, uint32_t ring)
{
    uint64_t count = history->rings[ring].count;
    return count - MIN(count, history_rings[ring].rows);
}

uint64_t history_row_digest(const struct row *row, size_t row_bytes, uint32_t ring, uint64_t slot)
{
    return XXH3_64bits_withSeed(&row->tick, row_bytes - sizeof(row->digest), (uint64_t)ring << 32 | slot);
}

uint64_t history_rows_bytes(size_t row_bytes, uint32_t ring, uint64_t slot)
{
    for (uint32_t i = 0; i < ring; i++)
        slot += history_rings[i].rows;
    return slot * row_bytes;
}

struct row *history_row_begin(struct history *history, uint32_t ring)
{
    struct ring *r = &history->rings[ring];
    r->dirty = (int)(r->count % history_rings[ring].rows);
    return history_row(history, ring, r->count++);
}

void history_row_end(struct history *history, uint32_t ring, struct row *row)
{
    row->digest = history_row_digest(row, history->row_bytes, ring, (uint64_t)history->rings[ring].dirty);
}

/* --- Rolling up --- */

static uint32_t ticks_of(uint32_t ring) /* of the ring below, in one of this ring's */
{
    return history_rings[ring].seconds / history_rings[ring - 1].seconds;
}

static void gather(struct history *history, uint32_t ring, const struct row *row);

/* Makes the row of what was gathered. */
static void roll_up_end(struct history *history, uint32_t ring)
{
    struct roll_up *up = &history->ups[ring];
    size_t values = (size_t)history->columns_count * HISTORY_FIGURES;
    struct row *row = history_row_begin(history, ring);
    row->tick = up->tick;
    row->wall_us = up->wall_us;
    row->covers = 1;
    row->seconds = up->seconds;
    for (size_t i = 0; i < values; i++) {
        bool is_mean = history->columns[i / HISTORY_FIGURES].rolls[i % HISTORY_FIGURES] == HISTORY_MEAN;
        row->values[i] = up->known_for[i] == 0 ? NAN
                         : is_mean             ? (float)(up->sums[i] / up->known_for[i])
                                               : (float)up->sums[i];
    }
    history_row_end(history, ring, row);
    up->seconds = 0;
    memset(up->sums, 0, values * sizeof(*up->sums));
    memset(up->known_for, 0, values * sizeof(*up->known_for));
    if (ring + 1 < HISTORY_RINGS)
        gather(history, ring + 1, row);
}

/* Takes a row of the ring below into the row that this ring gets next. */
static void gather(struct history *history, uint32_t ring, const struct row *row)
{
    struct roll_up *up = &history->ups[ring];
    uint64_t tick = row->tick / ticks_of(ring);
    if (up->seconds > 0 && up->tick != tick)
        roll_up_end(history, ring);
    up->tick = tick;
    up->wall_us = row->wall_us;
    up->seconds += row->seconds;
    for (size_t i = 0; i < (size_t)history->columns_count * HISTORY_FIGURES; i++) {
        double value = (double)row->values[i];
        if (isnan(value))
            continue;
        switch (history->columns[i / HISTORY_FIGURES].rolls[i % HISTORY_FIGURES]) {
        case HISTORY_MEAN: up->sums[i] += value * row->seconds; break;
        case HISTORY_LAST: up->sums[i] = value; break;
        case HISTORY_MAX: up->sums[i] = up->known_for[i] == 0 ? value : MAX(up->sums[i], value); break;
        }
        up->known_for[i] += row->seconds;
    }
}

/* Gathers again what the last life had gathered: rows that are newer than the newest of the ring above. */
static void gather_again(struct history *history)
{
    for (uint32_t ring = HISTORY_RINGS - 1; ring > 0; ring--) {
        const struct row *newest = newest_of(history, ring);
        uint64_t done = newest == NULL ? 0 : newest->tick;
        bool has_any = newest != NULL;
        for (uint64_t i = history_oldest(history, ring - 1); i < history->rings[ring - 1].count; i++) {
            const struct row *row = history_row(history, ring - 1, i);
            if (!has_any || row->tick / ticks_of(ring) > done)
                gather(history, ring, row);
        }
    }
}

/* --- Opening and closing --- */

/* The tick at which this life begins: ticks go on, and leave a gap. */
static uint64_t begin_ticks(const struct history *history, int64_t wall_us)
{
    uint64_t last = 0;
    int64_t last_us = wall_us;
    for (uint32_t ring = 0; ring < HISTORY_RINGS; ring++) {
        const struct row *newest = newest_of(history, ring);
        uint64_t end = newest == NULL ? 0 : (newest->tick + 1) * history_rings[ring].seconds - 1;
        if (end > last) {
            last = end;
            last_us = newest->wall_us;
        }
    }
    if (last == 0)
        return 0;
    int64_t away = time_add(wall_us, -MAX(last_us, -TIME_MAX)) / US_PER_SECOND;
    return last + (uint64_t)MIN(MAX(away, 1), AWAY_MAX);
}

static bool take_memory(struct history *history)
{
    for (uint32_t ring = 0; ring < HISTORY_RINGS; ring++)
        history->bytes += history_rings[ring].rows * history->row_bytes;
    void *memory = mmap(NULL, history->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    history->memory = memory;
    for (uint32_t ring = 0; ring < HISTORY_RINGS; ring++) {
        size_t values = (size_t)history->columns_count * HISTORY_FIGURES;
        history->rings[ring] =
            (struct ring){.rows = history->memory + history_rows_bytes(history->row_bytes, ring, 0),
                          .dirty = HISTORY_NO_SLOT};
        history->ups[ring] = (struct roll_up){.sums = mem_calloc(values, sizeof(double)),
                                              .known_for = mem_calloc(values, sizeof(uint32_t))};
    }
    return true;
}

struct history *history_open(const char *directory, const struct history_column *columns, uint32_t count,
                             int64_t wall_us, struct byte_buffer *said)
{
    leat_assert(count > 0 && count <= HISTORY_COLUMNS_MAX);
    struct history *history = mem_calloc(1, sizeof(*history));
    pthread_mutex_init(&history->mutex, NULL);
    history->fd = -1;
    history->columns = mem_calloc(count, sizeof(*columns));
    memcpy(history->columns, columns, count * sizeof(*columns));
    history->columns_count = count;
    history->row_bytes = sizeof(struct row) + count * HISTORY_FIGURES * sizeof(float);
    if (!take_memory(history)) {
        buffer_printf(said, "the system has no memory for the run's history: there is none\n");
        history_close(history);
        return NULL;
    }
    if (directory != NULL) {
        history->path = mem_printf("%s/history", directory);
        history_file_load(history, said);
    }
    history->base = history->now_tick = begin_ticks(history, wall_us);
    gather_again(history);
    if (directory != NULL)
        history_file_begin(history, said);
    return history;
}

void history_close(struct history *history)
{
    if (history == NULL)
        return;
    if (history->fd >= 0)
        close(history->fd);
    if (history->memory != NULL)
        munmap(history->memory, history->bytes);
    for (uint32_t ring = 0; ring < HISTORY_RINGS; ring++) {
        free(history->ups[ring].sums);
        free(history->ups[ring].known_for);
    }
    pthread_mutex_destroy(&history->mutex);
    free(history->columns);
    free(history->path);
    free(history);
}

/* --- Adding and reading --- */

void history_add(struct history *history, uint64_t tick, uint32_t covers, int64_t wall_us,
                 const float *values, struct byte_buffer *said)
{
    leat_assert(covers > 0 && covers <= tick && history->base + tick > history->now_tick);
    pthread_mutex_lock(&history->mutex);
    history->now_tick = history->base + tick;
    struct row *row = history_row_begin(history, 0);
    row->tick = history->now_tick;
    row->wall_us = wall_us;
    row->covers = row->seconds = covers;
    memcpy(row->values, values, history->row_bytes - sizeof(*row));
    history_row_end(history, 0, row);
    gather(history, 1, row);
    pthread_mutex_unlock(&history->mutex);
    /* Rows that are there change no more but by this thread: the disk keeps no reader waiting. */
    history_file_write(history, said);
}

static bool is_asked(const struct history *history, const struct history_ask *ask, const struct row *row)
{
    const struct history_ring *ring = &history_rings[ask->ring];
    if (!ask->has_from && !ask->has_to)
        return row->tick + ring->rows > history->now_tick / ring->seconds;
    return (!ask->has_from || row->wall_us >= ask->from_us) && (!ask->has_to || row->wall_us < ask->to_us);
}

uint32_t history_read(struct history *history, const struct history_ask *ask, struct history_point *points)
{
    uint32_t count = 0;
    const struct row *before = NULL;
    leat_assert(ask->ring < HISTORY_RINGS && ask->column < history->columns_count);
    pthread_mutex_lock(&history->mutex);
    for (uint64_t i = history_oldest(history, ask->ring); i < history->rings[ask->ring].count; i++) {
        const struct row *row = history_row(history, ask->ring, i);
        if (!is_asked(history, ask, row))
            continue;
        if (before != NULL && row->tick - row->covers > before->tick) {
            struct history_point *gap = &points[count++];
            *gap = (struct history_point){
                before->tick + 1,
                time_add(before->wall_us, history_rings[ask->ring].seconds * US_PER_SECOND),
                true,
                {0}};
            for (uint32_t f = 0; f < HISTORY_FIGURES; f++)
                gap->values[f] = NAN;
        }
        points[count] = (struct history_point){row->tick, row->wall_us, false, {0}};
        memcpy(points[count++].values, row->values + ask->column * HISTORY_FIGURES, sizeof(points->values));
        before = row;
    }
    pthread_mutex_unlock(&history->mutex);
    return count;
}

bool history_is_on_disk(struct history *history)
{
    pthread_mutex_lock(&history->mutex);
    bool is_on_disk = history->is_on_disk;
    pthread_mutex_unlock(&history->mutex);
    return is_on_disk;
}
