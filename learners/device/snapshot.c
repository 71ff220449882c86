/* Writing a snapshot of a device_table; snapshot.h explains the way of its pieces. */
#include "learners/device/snapshot.h"

#include "core/mem.h"
#include "learners/device/internal.h"

#include <stdlib.h>

enum {
    PIECE_BYTES_MOST = 8 << 20,
    PIECE_ROWS_LEAST = 64,
    PIECES_WANTED = 8, /* a small staging has smaller pieces, so that copies and gathering overlap */
    ALIGNMENT = 256,
    STORED_ROWS = 1024, /* rows emitted at a time */
};

/* --- Memory --- */

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t bytes_of_rows(const struct device_table *t, size_t rows)
{
    return aligned(rows * sizeof(struct gpu_row_head)) + rows * t->floats * sizeof(float);
}

static void plan_pieces(struct device_snapshot *s, uint64_t bytes)
{
    const struct device_table *t = s->of;
    size_t row = sizeof(struct gpu_row_head) + t->floats * sizeof(float);
    size_t wanted = (size_t)MIN(bytes / PIECES_WANTED, (uint64_t)PIECE_BYTES_MOST);
    s->piece_rows = (uint32_t)MAX(wanted / row, (size_t)PIECE_ROWS_LEAST);
    s->payloads_at = aligned(s->piece_rows * sizeof(struct gpu_row_head));
    s->piece_bytes = aligned(MAX(bytes_of_rows(t, s->piece_rows), sizeof(struct gpu_sketch_block)));
    s->piece_blocks = (uint32_t)(s->piece_bytes / sizeof(struct gpu_sketch_block));
    s->pieces_count = (uint32_t)MIN(MAX(bytes / s->piece_bytes, 2U), (uint64_t)UINT32_MAX);
}

bool device_snapshot_init(struct device_snapshot *s, struct device_table *of, uint64_t bytes,
                          struct gpu_error *error)
{
    struct device_table *t = of;
    const struct gpu_api *api = t->api;
    s->of = of;
    plan_pieces(s, bytes);
    s->pieces = mem_calloc(s->pieces_count, sizeof(*s->pieces));
    if ((s->copies = api->stream(t->gpu, error)) == NULL ||
        (s->staging = api->alloc(t->gpu, s->pieces_count * s->piece_bytes, error)) == NULL ||
        (s->pool_rows = api->alloc_pinned(t->gpu, s->piece_bytes, error)) == NULL ||
        (s->count = api->alloc(t->gpu, sizeof(*s->count), error)) == NULL)
        return false;
    for (size_t i = 0; i < ARRAY_COUNT(s->landings); i++)
        if ((s->landings[i].memory = api->alloc_pinned(t->gpu, s->piece_bytes, error)) == NULL ||
            (s->landings[i].copied = api->event(t->gpu, error)) == NULL)
            return false;
    for (uint32_t i = 0; i < s->pieces_count; i++) {
        struct device_piece *p = &s->pieces[i];
        p->memory = s->staging + i * s->piece_bytes;
        p->blocks = mem_calloc(t->options.tables, sizeof(*p->blocks));
        if ((p->gathered = api->event(t->gpu, error)) == NULL)
            return false;
    }
    return true;
}

void device_snapshot_free(struct device_snapshot *s)
{
    struct device_table *t = s->of;
    if (t == NULL)
        return;
    t->api->stream_free(t->gpu, s->copies);
    t->api->free(t->gpu, s->staging);
    t->api->free_pinned(t->gpu, s->pool_rows);
    t->api->free(t->gpu, s->count);
    for (size_t i = 0; i < ARRAY_COUNT(s->landings); i++) {
        t->api->free_pinned(t->gpu, s->landings[i].memory);
        t->api->event_free(t->gpu, s->landings[i].copied);
    }
    for (uint32_t i = 0; i < s->pieces_count && s->pieces != NULL; i++) {
        t->api->event_free(t->gpu, s->pieces[i].gathered);
        free(s->pieces[i].blocks);
    }
    free(s->pieces);
}

/* --- Into staging --- */

static struct gpu_row_head *heads_of(unsigned char *piece)
{
    return (struct gpu_row_head *)(void *)piece;
}

static float *payloads_of(const struct device_snapshot *s, unsigned char *piece)
{
    return (float *)(void *)(piece + s->payloads_at);
}

static void gather_rows(struct device_snapshot *s, struct device_piece *p)
{
    struct device_table *t = s->of;
    p->rows = (uint32_t)MIN(s->rows_left, (uint64_t)s->piece_rows);
    s->rows_left -= p->rows;
    t->api->tables->export_rows(t->tables, t->stream, p->rows, heads_of(p->memory), payloads_of(s, p->memory),
                                s->count);
}

/* Whether the snapshot contains the row of a pool slot. */
static bool is_meant(const struct device_snapshot *s, uint32_t slot)
{
    const struct device_table *t = s->of;
    const struct gpu_row_head *head = &t->pool.heads[slot];
    return head->key != 0 && !t->pool.is_busy[slot] && !device_table_is_expired(t, head) &&
           (s->since == 0 || (head->epoch > s->since && head->epoch <= s->closing));
}

/* Rows of pinned memory go through staging as well, where they do not change. */
static bool gather_pool(struct device_snapshot *s, struct device_piece *p, struct gpu_error *error)
{
    struct device_table *t = s->of;
    struct gpu_row_head *heads = heads_of(s->pool_rows);
    float *payloads = payloads_of(s, s->pool_rows);
    for (; s->slot < t->pool.room && p->rows < s->piece_rows; s->slot++) {
        if (!is_meant(s, s->slot))
            continue;
        heads[p->rows] = t->pool.heads[s->slot];
        memcpy(payloads + p->rows * t->floats, device_pool_payload(&t->pool, s->slot),
               t->floats * sizeof(*payloads));
        p->rows++;
    }
    t->api->copy(t->stream, heads_of(p->memory), heads, p->rows * sizeof(*heads));
    t->api->copy(t->stream, payloads_of(s, p->memory), payloads, p->rows * t->floats * sizeof(*payloads));
    return p->rows == 0 || t->api->wait(t->stream, error);
}

/* Waits for each table, since the place of the next table's blocks depends on the count of this table's. */
static bool gather_blocks(struct device_snapshot *s, struct device_piece *p, struct gpu_error *error)
{
    struct device_table *t = s->of;
    struct gpu_sketch_block *blocks = (struct gpu_sketch_block *)(void *)p->memory;
    uint32_t used = 0;
    while (s->table < t->options.tables && used < s->piece_blocks) {
        uint64_t all = gpu_sketch_blocks(&t->options.table[s->table]);
        uint32_t n = (uint32_t)MIN(all - s->block, (uint64_t)(s->piece_blocks - used));
        if (n > 0) {
            t->api->tables->export_sketch(t->tables, t->stream, s->table, s->since, s->closing, s->block, n,
                                          blocks + used, t->blocks_count);
            if (!t->api->wait(t->stream, error))
                return false;
            p->blocks[s->table] += *t->blocks_count;
            used += *t->blocks_count;
            s->block += n;
        }
        if (s->block == all) {
            s->table++;
            s->block = 0;
        }
    }
    return true;
}

static bool has_more(const struct device_snapshot *s)
{
    return s->rows_left > 0 || s->slot < s->of->pool.room || s->table < s->of->options.tables;
}

static bool gather_piece(struct device_snapshot *s, struct gpu_error *error)
{
    struct device_table *t = s->of;
    struct device_piece *p = &s->pieces[s->gathered % s->pieces_count];
    uint64_t blocks = 0;
    p->rows = 0;
    memset(p->blocks, 0, t->options.tables * sizeof(*p->blocks));
    if (s->rows_left > 0)
        gather_rows(s, p);
    else if (s->slot < t->pool.room) {
        if (!gather_pool(s, p, error))
            return false;
    } else if (!gather_blocks(s, p, error))
        return false;
    for (uint32_t i = 0; i < t->options.tables; i++)
        blocks += p->blocks[i];
    if (p->rows == 0 && blocks == 0)
        return true;
    t->api->record(p->gathered, t->stream);
    s->gathered++;
    return true;
}

/* Gathers as much as staging has room for; the tables stay held if more is left. */
static bool gather(struct device_snapshot *s, struct gpu_error *error)
{
    bool is_good = true;
    while (is_good && has_more(s) && s->gathered - s->left < s->pieces_count)
        is_good = gather_piece(s, error);
    atomic_store_explicit(&s->is_held, is_good && has_more(s), memory_order_release);
    return is_good;
}

/* Tells the stores that their present rows belong to the checkpoint; expired rows may leave them. */
static void tell_stores(struct device_table *t)
{
    for (uint32_t i = 0; i < t->options.tables; i++)
        if (t->stores[i] != NULL)
            t->stores[i]->barrier(t->stores[i]->self, (int64_t)t->expired_before[i] * US_PER_SECOND);
}

bool device_snapshot_select(struct device_snapshot *s, uint32_t since, uint32_t closing,
                            struct gpu_error *error)
{
    struct device_table *t = s->of;
    s->since = since;
    s->closing = closing;
    s->gathered = s->left = s->block = s->rows_left = 0;
    s->table = 0;
    s->slot = device_pool_rows(&t->pool) > 0 ? 0 : t->pool.room;
    return t->api->tables->select(t->tables, t->stream, since, closing, &s->rows_left, error) &&
           gather(s, error);
}

bool device_table_snapshot_begin(struct device_table *t, uint32_t since, uint32_t closing,
                                 struct gpu_error *error)
{
    leat_assert(!t->is_in_snapshot);
    bool is_good = device_take_removed(t, error);
    t->is_in_snapshot = true;
    tell_stores(t);
    is_good = is_good && device_snapshot_select(&t->snapshot, since, closing, error);
    t->stats.held += device_table_is_held(t);
    return is_good;
}

bool device_table_is_held(const struct device_table *t)
{
    return atomic_load_explicit(&t->snapshot.is_held, memory_order_acquire);
}

/* --- Out of staging --- */

static void queue_copy(struct device_snapshot *s, uint64_t number)
{
    struct device_table *t = s->of;
    const struct device_piece *p = &s->pieces[number % s->pieces_count];
    struct device_landing *to = &s->landings[number % 2];
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < t->options.tables; i++)
        blocks += p->blocks[i];
    t->api->wait_event(s->copies, p->gathered);
    if (p->rows > 0) {
        t->api->copy(s->copies, to->memory, p->memory, p->rows * sizeof(struct gpu_row_head));
        t->api->copy(s->copies, to->memory + s->payloads_at, p->memory + s->payloads_at,
                     p->rows * t->floats * sizeof(float));
    } else {
        t->api->copy(s->copies, to->memory, p->memory, blocks * sizeof(struct gpu_sketch_block));
    }
    t->api->record(to->copied, s->copies);
}

struct writer {
    struct device_snapshot *s;
    device_table_emit *rows, *counts;
    void *argument;
    unsigned char *stored; /* [STORED_ROWS] rows of one table */
    uint32_t *blocks;      /* [tables] of the piece being emitted */
};

static bool emit_rows(const struct writer *w, unsigned char *piece, uint32_t rows)
{
    const struct device_table *t = w->s->of;
    const struct gpu_row_head *heads = heads_of(piece);
    const float *payloads = payloads_of(w->s, piece);
    size_t count = 0;
    for (uint32_t i = 0; i < rows; i++) {
        device_pack(t, &heads[i], payloads + i * t->floats, w->stored + count++ * t->stored_bytes);
        bool is_last = i + 1 == rows || heads[i + 1].table != heads[i].table || count == STORED_ROWS;
        if (!is_last)
            continue;
        if (!w->rows(w->argument, heads[i].table, w->stored, count))
            return false;
        count = 0;
    }
    return true;
}

static bool emit_blocks(const struct writer *w, const unsigned char *piece)
{
    for (uint32_t i = 0; i < w->s->of->options.tables; i++) {
        if (w->blocks[i] > 0 && !w->counts(w->argument, i, piece, w->blocks[i]))
            return false;
        piece += w->blocks[i] * sizeof(struct gpu_sketch_block);
    }
    return true;
}

/* Copies run one piece ahead of emitting; as soon as a piece is copied, its staging memory is
 * gathered into again. */
static bool write_pieces(const struct writer *w, struct gpu_error *error)
{
    struct device_snapshot *s = w->s;
    struct device_table *t = s->of;
    uint64_t queued = 0;
    for (uint64_t at = 0; at < s->gathered; at++) {
        for (; queued < s->gathered && queued < at + ARRAY_COUNT(s->landings); queued++)
            queue_copy(s, queued);
        struct device_landing *landing = &s->landings[at % 2];
        const struct device_piece *p = &s->pieces[at % s->pieces_count];
        uint32_t rows = p->rows;
        memcpy(w->blocks, p->blocks, t->options.tables * sizeof(*w->blocks));
        if (!t->api->wait_for(landing->copied, error))
            return false;
        s->left = at + 1;
        if (atomic_load_explicit(&s->is_held, memory_order_acquire) && !gather(s, error))
            return false;
        if (!(rows > 0 ? emit_rows(w, landing->memory, rows) : emit_blocks(w, landing->memory))) {
            *error = (struct gpu_error){.failure = GPU_OK};
            return false;
        }
    }
    return true;
}

bool device_snapshot_write(struct device_snapshot *s, device_table_emit *rows, device_table_emit *counts,
                           void *argument, struct gpu_error *error)
{
    struct device_table *t = s->of;
    struct writer w = {.s = s, .rows = rows, .counts = counts, .argument = argument};
    w.stored = mem_alloc(STORED_ROWS * t->stored_bytes);
    w.blocks = mem_calloc(t->options.tables, sizeof(*w.blocks));
    struct gpu_error ignored;
    bool is_good = write_pieces(&w, error);
    if (!is_good) /* a queued copy may still read staging, which belongs to the next snapshot */
        (void)t->api->wait(s->copies, &ignored);
    atomic_store_explicit(&s->is_held, false, memory_order_release);
    free(w.stored);
    free(w.blocks);
    return is_good;
}

bool device_table_snapshot_write(struct device_table *t, device_table_emit *rows, device_table_emit *counts,
                                 void *argument, struct gpu_error *error)
{
    return device_snapshot_write(&t->snapshot, rows, counts, argument, error);
}
