/* Partitions: the pieces that were read of each partition lie in a ring, and rows are cut off its head
 * piece for micro-batches. All under the sequencer's mutex. */
#include "run/sequencer/internal.h"

#include "core/mem.h"

#include <stdlib.h>

/* Makes the head piece ready to be cut: applies the partition's running maximum to its order times, and
 * skips rows that were sequenced before a resume. Returns false if the piece, or one that it needs behind
 * it, is not decoded yet. */
bool partition_prepare(struct run *run, struct partition *p)
{
    struct piece *piece = PIECE_AT(p, p->head);
    if (!atomic_load_explicit(&piece->is_ready, memory_order_acquire))
        return false;
    if (piece->is_fixed)
        return true;
    if (p->fixed == p->head && !watermark_fix(run, p, p->head))
        return false;
    struct batch *batch = piece->batch;
    /* live: one batch of the earlier life may come as several now. */
    p->head_row = MIN(p->skip_rows, batch->rows);
    p->skip_rows -= p->head_row;
    p->has_own_order |= piece->has_own_order;
    if (!p->has_offsets) {
        p->resume = piece->raw.position;
        p->resume_rows = p->head_row;
    }
    piece->is_fixed = true;
    return true;
}

void partition_drop_head(struct partition *p)
{
    struct piece *piece = PIECE_AT(p, p->head);
    batch_release(piece->batch);
    piece->batch = NULL;
    p->head++;
    p->head_row = 0;
}

bool partition_widen(struct partition *p)
{
    leat_assert(!p->is_reading);
    if (p->ring >= BATCH_ROWS)
        return false;
    struct partition wider = *p;
    wider.ring = 2 * p->ring;
    wider.pieces = mem_calloc(wider.ring, sizeof(*wider.pieces));
    for (uint64_t i = 0; i < p->ring; i++) /* empty pieces are copied too: their memory is used again */
        *PIECE_AT(&wider, p->head + i) = *PIECE_AT(p, p->head + i);
    free(p->pieces);
    *p = wider;
    return true;
}

/* Keeps the bytes of bad records for dead letters, because the raw batch is gone by then. */
static void keep_bad_rows(struct slice *slice, const struct piece *piece)
{
    struct arena *arena = &slice->batch->arena;
    uint32_t count = 0;
    for (uint32_t i = 0; i < piece->output.bad_count; i++)
        count += piece->output.bad[i].row >= slice->begin && piece->output.bad[i].row < slice->end;
    slice->bad_count = count;
    if (count == 0)
        return;
    struct bad_record *bad = arena_alloc(arena, count * sizeof(*bad));
    slice->bad_raw = arena_alloc(arena, count * sizeof(*slice->bad_raw));
    count = 0;
    for (uint32_t i = 0; i < piece->output.bad_count; i++) {
        struct bad_record record = piece->output.bad[i];
        if (record.row < slice->begin || record.row >= slice->end)
            continue;
        slice->bad_raw[count] = record.has_no_bytes
                                    ? (struct str){NULL, 0}
                                    : arena_str(arena, raw_record_text(&piece->raw, record.row));
        bad[count++] = record;
    }
    slice->bad = bad;
}

void partition_cut(struct run *run, struct partition *p, uint32_t end, struct slice *slice)
{
    struct piece *piece = PIECE_AT(p, p->head);
    struct batch *whole = piece->batch;
    *slice = (struct slice){.partition = p, .source = p->source, .begin = p->head_row, .end = end};
    if (p->head_row == 0 && end == whole->rows && piece->output.bad_count == 0) {
        batch_hold(whole);
        slice->batch = whole;
    } else {
        struct batch *view = batch_derive(whole, whole->schema);
        uint16_t *sel = arena_alloc(&view->arena, MAX(whole->selected, 1) * sizeof(*sel));
        view->selected = 0;
        for (uint32_t i = 0; i < whole->selected; i++) {
            uint32_t row = batch_row(whole, i);
            if (row >= p->head_row && row < end)
                sel[view->selected++] = (uint16_t)row;
        }
        view->sel = sel;
        slice->batch = view;
    }
    keep_bad_rows(slice, piece);
    watermark_take(run, p, piece, p->head_row, end);
    const struct batch *batch = slice->batch;
    for (uint32_t i = 0; i < batch->selected; i++)
        p->event_max = MAX(p->event_max, batch->event_time[batch_row(batch, i)]);
    p->has_event |= batch->selected > 0;
    p->is_idle = false;
    p->order_max = whole->order_time[end - 1];
    p->offset = piece->raw.offsets != NULL ? piece->raw.offsets[end - 1] + 1 : 0;
    p->records += end - p->head_row;
    p->since_cut += end - p->head_row;
    p->head_row = end;
    if (!p->has_offsets)
        p->resume_rows = end;
    else if (end == piece->raw.count)
        p->resume = piece->raw.next;
}

bool partition_is_whole(const struct partition *p, const struct piece *piece)
{
    uint32_t given = p->has_offsets ? batch_share_of(&piece->raw.position).records : 0;
    return given + piece->batch->rows == BATCH_ROWS;
}

/* Whether the partition has rows that are read and not yet sequenced. */
static bool has_rows_left(const struct partition *p)
{
    return p->tail - p->head > 1 || (p->tail > p->head && p->head_row < PIECE_AT(p, p->head)->raw.count);
}

bool partition_has_risen(const struct partition *p)
{
    return p->has_offsets && p->reach > p->saved && !has_rows_left(p);
}

struct source_position partition_position(const struct partition *p)
{
    struct source_position position = p->resume;
    const struct raw_batch *raw = p->head < p->tail ? &PIECE_AT(p, p->head)->raw : NULL;
    if (!p->has_offsets)
        return position;
    if (raw != NULL && p->head_row > 0 && p->head_row < raw->count) {
        struct batch_share share = batch_share_of(&raw->position);
        share.records += p->head_row;
        for (uint32_t row = 0; row < p->head_row && raw->records != NULL; row++)
            share.bytes += raw->records[row].length;
        position = (struct source_position){.a = batch_share_put(share),
                                            .b = raw->offsets[p->head_row],
                                            .record = raw->position.record + p->head_row};
    } else if (!has_rows_left(p)) {
        position.b = MAX(position.b, p->reach);
    }
    return position;
}
