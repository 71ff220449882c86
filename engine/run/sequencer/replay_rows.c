/* The records of a replay: whether those that are read are the ones that the order log says, what is said where they are not, and
 * cutting them. Of several workers, each looks at its own partitions, and the leader says what differs (peers_replay.c). */
#include "run/sequencer/internal.h"

#include "core/mem.h"

#include "run/order/order.h"

#include <stdio.h>
#include <stdlib.h>

enum { MESSAGE_BYTES = 512 };
enum rows_state { ROWS_THERE, ROWS_LATER, ROWS_NEVER, ROWS_TOO_MANY_BATCHES };

/* The decoded rows of a slice. If the slice and the partition have offsets: all rows up to the offset of the
 * slice's last record, even if the log says another number of rows; else the number of rows that the log
 * says. */
struct rows {
    uint64_t found;
    int64_t time, offset; /* order time and offset of the last row */
    bool are_by_offset, are_all;
};

static void take_rows(const struct partition *p, const struct piece *piece, uint32_t first,
                      const struct order_slice *slice, struct rows *rows)
{
    uint32_t all = piece->batch->rows - first, count = (uint32_t)MIN(slice->records - rows->found, all);
    const int64_t *offsets = p->has_offsets ? piece->raw.offsets + first : NULL;
    if (rows->are_by_offset)
        for (count = 0; count < all && offsets[count] <= slice->offset;)
            count++;
    rows->found += count;
    if (count > 0) {
        rows->time = MAX(rows->time, piece->batch->order_time[first + count - 1]);
        rows->offset = p->has_offsets ? offsets[count - 1] : 0;
    }
    rows->are_all = rows->are_by_offset ? count < all || (rows->found > 0 && rows->offset == slice->offset) ||
                                              rows->found > slice->records
                                        : rows->found == slice->records;
}

/* Whether the ring is full, every piece is decoded, and no lane reads the partition. */
static bool needs_room(const struct partition *p)
{
    for (uint64_t i = p->head; i < p->tail; i++)
        if (!atomic_load_explicit(&PIECE_AT(p, i)->is_ready, memory_order_acquire))
            return false;
    return p->tail - p->head >= p->ring && !p->is_reading;
}

static enum rows_state rows_ready(struct run *run, struct partition *p, const struct order_slice *slice,
                                  struct rows *rows)
{
    *rows = (struct rows){.are_by_offset = slice->has_offset && p->has_offsets};
    while (p->head < p->tail) {
        if (!partition_prepare(run, p))
            return ROWS_LATER;
        if (p->head_row < PIECE_AT(p, p->head)->batch->rows)
            break;
        partition_drop_head(p);
    }
    rows->time = p->order_max;
    for (uint64_t i = p->head; i < p->tail && !rows->are_all; i++) {
        struct piece *piece = PIECE_AT(p, i);
        if (!atomic_load_explicit(&piece->is_ready, memory_order_acquire))
            return ROWS_LATER;
        if (i == p->fixed && !watermark_fix(run, p, i))
            return needs_room(p) && !partition_widen(p) ? ROWS_TOO_MANY_BATCHES : ROWS_LATER;
        take_rows(p, piece, i == p->head ? p->head_row : 0, slice, rows);
    }
    if (rows->are_all || (rows->are_by_offset && p->reach > slice->offset))
        return ROWS_THERE;
    /* Live: rows that came in one batch when the log was written may come in many batches now. */
    if (p->tail - p->head >= p->ring)
        return p->is_reading || partition_widen(p) ? ROWS_LATER : ROWS_TOO_MANY_BATCHES;
    return p->is_ended && !p->is_reading ? ROWS_NEVER : ROWS_LATER;
}

/* --- What is said where they do not fit --- */

static void say_differs(struct run *run, uint64_t number, const struct order_slice *slice,
                        const struct replay_finding *finding)
{
    const struct partition *p = &run->sequencer->partitions[finding->partition];
    char offset[64] = "", found[128] = "more batches than are read ahead";
    if (finding->tag == FOUND_SHORTER)
        snprintf(found, sizeof(found), "%llu: the input is shorter", (unsigned long long)finding->found);
    else if (finding->tag == FOUND_OTHER && finding->are_by_offset)
        snprintf(found, sizeof(found), "%llu records up to %lld, offset %lld",
                 (unsigned long long)finding->found, (long long)finding->time, (long long)finding->offset);
    else if (finding->tag == FOUND_OTHER)
        snprintf(found, sizeof(found), "records up to %lld", (long long)finding->time);
    if (slice->has_offset)
        snprintf(offset, sizeof(offset), ", offset %lld", (long long)slice->offset);
    replay_log_refuse(
        run, DIAG_FILE_CHANGED,
        "micro-batch %llu takes %llu records of `%.*s` of source `%.*s`, from record %llu on, up to order "
        "time %lld%s; found: %s",
        (unsigned long long)number, (unsigned long long)slice->records,
        STR_ARGS(sequencer_partition_name(run, p)), STR_ARGS(run_source_node(run, p->source)->name),
        (unsigned long long)finding->records_before, (long long)slice->time, offset, found);
}

/* The slice's records are no longer all in the topic, or in the recording. */
static void say_lost(struct run *run, uint64_t number, const struct order_slice *slice,
                     const struct replay_finding *finding)
{
    const struct partition *p = &run->sequencer->partitions[finding->partition];
    char what[MESSAGE_BYTES], hint[MESSAGE_BYTES];
    snprintf(
        what, sizeof(what),
        "micro-batch %llu took %llu records of `%.*s` of source `%.*s`, offsets %lld to %lld, and %llu are "
        "there now: the others have been compacted away or deleted since, or the topic or recording is "
        "another one; the micro-batch cannot be executed again",
        (unsigned long long)number, (unsigned long long)slice->records,
        STR_ARGS(sequencer_partition_name(run, p)), STR_ARGS(run_source_node(run, p->source)->name),
        (long long)finding->offset_before, (long long)slice->offset, (unsigned long long)finding->found);
    if (run->trace != NULL)
        snprintf(
            hint, sizeof(hint),
            "the job cannot be executed again from here: trace a record that has a newer checkpoint before "
            "it, or use a recording that contains the missing records");
    else if (!replay_log_is_redo(run))
        snprintf(hint, sizeof(hint),
                 "give the run the recording that the order log was written for, made before the topic was "
                 "compacted; or compute the order of the records that are left with --order=none");
    else
        snprintf(
            hint, sizeof(hint),
            "name a recording that contains the missing records in the source's `backfill` and start again; "
            "or start a new run from the newest complete checkpoint, which writes all rows after it again: "
            "--from %s@%u-%llu with another checkpoint directory",
            run->path, run->resumed_generation, (unsigned long long)run->resumed_epoch);
    replay_log_refuse_so(run, DIAG_RECORDS_GONE, what, hint);
}

void replay_say(struct run *run, uint64_t number, const struct order_slice *slice,
                const struct replay_finding *finding)
{
    const struct partition *p = &run->sequencer->partitions[finding->partition];
    if (finding->tag == FOUND_MORE)
        replay_log_refuse(run, DIAG_FILE_CHANGED,
                          "`%.*s` of source `%.*s` ends in the log after %llu records, and has more records",
                          STR_ARGS(sequencer_partition_name(run, p)),
                          STR_ARGS(run_source_node(run, p->source)->name),
                          (unsigned long long)finding->records_before);
    else if (finding->tag == FOUND_LOST)
        say_lost(run, number, slice, finding);
    else
        say_differs(run, number, slice, finding);
}

/* --- Whether they fit --- */

static enum replay_fit differs(const struct partition *p, enum replay_found tag, const struct rows *rows,
                               struct replay_finding *finding)
{
    *finding = (struct replay_finding){.tag = tag,
                                       .partition = p->id,
                                       .found = rows->found,
                                       .time = rows->time,
                                       .offset = rows->offset,
                                       .are_by_offset = rows->are_by_offset,
                                       .records_before = p->records,
                                       .offset_before = p->offset};
    return REPLAY_DIFFERS;
}

enum replay_fit replay_fit_slice(struct run *run, const struct order_slice *slice,
                                 struct replay_finding *finding)
{
    struct partition *p = &run->sequencer->partitions[slice->partition];
    struct rows rows;
    switch (rows_ready(run, p, slice, &rows)) {
    case ROWS_LATER: return REPLAY_FITS_LATER;
    case ROWS_NEVER: return differs(p, FOUND_SHORTER, &rows, finding);
    case ROWS_TOO_MANY_BATCHES: return differs(p, FOUND_TOO_MANY_BATCHES, &rows, finding);
    default:
        if (rows.found == slice->records && rows.time == slice->time &&
            (!rows.are_by_offset || rows.offset == slice->offset))
            return REPLAY_FITS;
        return differs(p, rows.found < slice->records ? FOUND_LOST : FOUND_OTHER, &rows, finding);
    }
}

/* After a fallback this is not checked: records that came to a growing file after the checkpoint are sequenced after the log's
 * records. */
enum replay_fit replay_fit_end(struct run *run, struct partition *p, struct replay_finding *finding)
{
    struct rows rows;
    if (replay_log_is_redo(run))
        return REPLAY_FITS;
    switch (rows_ready(run, p, &(struct order_slice){.records = 1}, &rows)) {
    case ROWS_THERE: return differs(p, FOUND_MORE, &rows, finding);
    case ROWS_NEVER: return REPLAY_FITS;
    default: return REPLAY_FITS_LATER;
    }
}

/* --- Cutting --- */

static struct slice *add_slice(struct slot *slot)
{
    if (slot->slices_count == slot->slices_room) { /* a slice of several batches takes several places */
        slot->slices_room = MAX(slot->slices_room * 2, 8);
        slot->slices = mem_realloc(slot->slices, slot->slices_room * sizeof(*slot->slices));
    }
    return &slot->slices[slot->slices_count++];
}

void replay_cut(struct run *run, const struct number *number)
{
    struct sequencer *s = run->sequencer;
    struct slot *slot = number->slot;
    for (uint32_t i = 0; i < number->slices_count; i++) {
        struct partition *p = &s->partitions[number->slices[i].partition];
        for (uint64_t left = number->slices[i].records; left > 0;) {
            bool is_ready = partition_prepare(run, p);
            leat_assert(is_ready);
            uint32_t rows = PIECE_AT(p, p->head)->batch->rows;
            uint32_t count = (uint32_t)MIN(left, rows - p->head_row);
            if (count > 0)
                partition_cut(run, p, p->head_row + count, add_slice(slot));
            left -= count;
            if (left > 0)
                partition_drop_head(p);
        }
        p->since_cut = MIN(p->since_cut, s->cut_records - 1); /* a log may have other cuts */
    }
}
