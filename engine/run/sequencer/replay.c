/* Replays an order log (order/order.h): its segments say how many records each micro-batch takes from each
 * partition. The sequencer waits for these records, compares counts, order times and offsets with the log,
 * and forms the micro-batch. A partition gets its id when the log names it, so ids are in the log's order;
 * ids break ties of order time. Behind the end of the log the sequencer computes the order as in a run
 * without replay; for live sources it cannot, and the run stops there. */
#include "run/sequencer/internal.h"

#include "core/mem.h"

#include "run/order/order.h"

#include <stdio.h>
#include <stdlib.h>

enum { MESSAGE_BYTES = 512 };
/* Results of find_partition that are no index. */
enum { INDEX_NONE = -1, INDEX_FAILED = -2 };

/* --- From the head of a segment to the next micro-batch --- */

/* A partition's state by the log's entries read so far: records taken, order time of the last one. */
struct logged {
    uint64_t records;
    int64_t time;
    bool has_ended, is_there;
};

static uint32_t find_source(const struct run *run, struct str name)
{
    uint32_t source = 0;
    while (source < run->plan->sources_count && !str_equal(run_source_node(run, source)->name, name))
        source++;
    return source;
}

/* Begins the partition at the offset at which the log began it. False after a diagnostic. */
static bool begin_partition(struct run *run, struct partition *p, const struct order_partition *added)
{
    const struct source_kind *kind = run_source_node(run, p->source)->source_kind;
    if (!(added->is & ORDER_HAS_OFFSETS) || !kind->has_offsets || added->records > 0)
        return true;
    p->resume = (struct source_position){.b = added->offset};
    p->offset = added->offset;
    return kind->seek(&run->sources[p->source], p->local, &p->resume);
}

/* Index in the run of a partition of the log, or INDEX_NONE, INDEX_FAILED. A partition of a source that can
 * gain partitions is found by its name, any other by `place`, its index within the source. A partition that
 * the run does not have yet is added. */
static int64_t find_partition(struct run *run, const struct order_partition *added, uint32_t source,
                              uint32_t place)
{
    const struct sequencer *s = run->sequencer;
    if (source == run->plan->sources_count)
        return INDEX_NONE;
    bool is_named = sequencer_is_named(run, source);
    uint32_t local = is_named ? sequencer_find_local(run, source, added->name) : place;
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if (s->partitions[i].source == source && s->partitions[i].local == local)
            return i;
    if (local >= run->sources[source].partitions_count || (run->is_resumed && !is_named))
        return INDEX_NONE;
    struct partition *p = sequencer_add_partition(run, source, local);
    if (p == NULL || !begin_partition(run, p, added))
        return INDEX_FAILED;
    log_added(run, p);
    return p->id;
}

/* Maps a partition of the log to one of the run. False after a diagnostic. */
static bool map_partition(struct run *run, const struct order_partition *added)
{
    struct replay_log *log = order_replay_log(run);
    struct replay *replay = &run->sequencer->replay;
    uint32_t source = find_source(run, added->source);
    uint32_t place = source < run->plan->sources_count ? replay->sources_places[source]++ : 0;
    int64_t index = find_partition(run, added, source, place);
    bool is_twice = false;
    for (uint32_t i = 0; i < added->id; i++)
        is_twice |= replay->map[i] == index;
    if (index == INDEX_FAILED) {
        run_fail(run);
        return false;
    }
    if (index == INDEX_NONE || is_twice) {
        replay_log_refuse(run, DIAG_FILE_CHANGED,
                          "it has `%.*s`, partition %u of source `%.*s`, which this job does not read",
                          STR_ARGS(added->name), place, STR_ARGS(added->source));
        return false;
    }
    struct partition *p = &run->sequencer->partitions[index];
    bool is_live = (added->is & ORDER_IS_LIVE) != 0;
    replay->map[added->id] = p->id;
    log->is_live |= is_live;
    p->has_own_order |= is_live; /* then order is by arrival */
    return true;
}

/* Reads the segment's entries before the micro-batch, and sums them up in `logged`, per partition of the run.
 * False after a diagnostic. */
static bool skip_to(struct run *run, uint64_t micro_batch, struct logged *logged)
{
    struct replay_log *log = order_replay_log(run);
    struct replay *replay = &run->sequencer->replay;
    struct order_reader *reader = &log->reader;
    struct order_entry entry;
    for (;;) {
        bool is_there =
            reader->micro_batch == micro_batch && (reader->has_begun || reader->at[0] != ORDER_PARTITION);
        if (is_there || reader->at == reader->end)
            return true;
        if (!order_next(reader, &entry)) {
            replay_log_refuse(run, DIAG_FILE_DAMAGED, "%s", reader->why);
            return false;
        }
        if (entry.tag == ORDER_LOAD) {
            replay->load = entry.load;
            continue;
        }
        bool is_named = entry.tag == ORDER_PARTITION || entry.tag == ORDER_ADDED;
        if (is_named && !map_partition(run, &entry.added))
            return false;
        struct logged *of = &logged[replay->map[entry.partition]];
        if (is_named)
            *of = (struct logged){entry.added.records, entry.added.time,
                                  (entry.added.is & ORDER_HAS_ENDED) != 0, true};
        of->records += entry.tag == ORDER_SLICE ? entry.records : 0;
        of->time = entry.tag == ORDER_SLICE ? entry.time : of->time;
        of->has_ended |= entry.tag == ORDER_ENDED;
    }
}

/* Whether the log has all partitions of the sources that cannot gain partitions; other sources may find
 * theirs later. False after a diagnostic. */
static bool has_all(struct run *run)
{
    for (uint32_t i = 0; i < run->plan->sources_count; i++) {
        uint32_t found = run->sequencer->replay.sources_places[i];
        const struct plan_node *node = run_source_node(run, i);
        if (sequencer_is_named(run, i) || found >= run->sources[i].partitions_count)
            continue;
        replay_log_refuse(run, DIAG_FILE_CHANGED, "it does not have `%s`, partition %u of source `%.*s`",
                          node->source_kind->partition_name == NULL
                              ? ""
                              : node->source_kind->partition_name(&run->sources[i], found),
                          found, STR_ARGS(node->name));
        return false;
    }
    return true;
}

/* Whether the run's positions before the micro-batch are those of the log; also takes over which partitions
 * have ended. False after a diagnostic. */
static bool fits_positions(struct run *run, const struct logged *logged, uint64_t micro_batch)
{
    struct sequencer *s = run->sequencer;
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        struct partition *p = &s->partitions[i];
        struct str source = run_source_node(run, p->source)->name;
        struct str name = sequencer_partition_name(run, p);
        if (!logged[i].is_there) {
            replay_log_refuse(run, DIAG_FILE_CHANGED,
                              "it does not have `%.*s`, partition %u of source `%.*s`", STR_ARGS(name),
                              p->local, STR_ARGS(source));
            return false;
        }
        if (logged[i].records != p->records || logged[i].time != p->order_max) {
            replay_log_refuse(
                run, DIAG_FILE_CHANGED,
                "before micro-batch %llu it has %llu records of `%.*s` of source `%.*s`, order time %lld, "
                "and "
                "the run has %llu, order time %lld",
                (unsigned long long)micro_batch, (unsigned long long)logged[i].records, STR_ARGS(name),
                STR_ARGS(source), (long long)logged[i].time, (unsigned long long)p->records,
                (long long)p->order_max);
            return false;
        }
        p->is_over = logged[i].has_ended;
    }
    return true;
}

static bool begin_segment(struct run *run, uint64_t micro_batch)
{
    struct replay *replay = &run->sequencer->replay;
    struct logged *logged = mem_calloc(MAX(run->sequencer->partitions_room, 1), sizeof(*logged));
    replay->load = ORDER_LOAD_MAX;
    memset(replay->map, 0, ORDER_PARTITIONS_MAX * sizeof(*replay->map));
    memset(replay->sources_places, 0, run->plan->sources_count * sizeof(*replay->sources_places));
    bool is_good =
        skip_to(run, micro_batch, logged) && has_all(run) && fits_positions(run, logged, micro_batch);
    free(logged);
    return is_good;
}

/* --- The next micro-batch --- */

static bool take_entries(struct run *run)
{
    struct replay_log *log = order_replay_log(run);
    struct replay *replay = &run->sequencer->replay;
    struct order_entry entry;
    replay->slices_count = 0;
    replay->tick = TIME_MIN;
    memset(replay->is_ended, 0, run->sequencer->partitions_room * sizeof(*replay->is_ended));
    memset(replay->is_idle, 0, run->sequencer->partitions_room * sizeof(*replay->is_idle));
    while (order_next(&log->reader, &entry)) {
        uint32_t partition = replay->map[entry.partition];
        switch (entry.tag) {
        case ORDER_ADDED:
            if (!map_partition(run, &entry.added))
                return false;
            break;
        case ORDER_IDLE: replay->is_idle[partition] = true; break;
        case ORDER_TICK: replay->tick = entry.time; break;
        case ORDER_LOAD: replay->load = entry.load; break;
        case ORDER_SLICE:
            for (uint32_t i = 0; i < replay->slices_count; i++)
                if (replay->slices[i].partition == partition) {
                    replay_log_refuse(run, DIAG_FILE_DAMAGED, "a micro-batch has two slices of a partition");
                    return false;
                }
            replay->slices[replay->slices_count++] = (struct order_slice){.partition = partition,
                                                                          .records = entry.records,
                                                                          .time = entry.time,
                                                                          .offset = entry.offset,
                                                                          .has_offset = entry.has_offset};
            break;
        case ORDER_ENDED: replay->is_ended[partition] = true; break;
        case ORDER_CUT: replay->cut = partition; /* fall through */
        case ORDER_MICRO_BATCH:
        case ORDER_ENDED_ALL:
        case ORDER_LAST: replay->tag = entry.tag; return true;
        default: replay_log_refuse(run, DIAG_FILE_DAMAGED, "an entry is in a wrong place"); return false;
        }
    }
    replay_log_refuse(run, DIAG_FILE_DAMAGED, "%s",
                      log->reader.why != NULL ? log->reader.why : "a micro-batch has no end");
    return false;
}

/* Reads the epoch entry, which must follow the last micro-batch of a segment. */
static bool ends_well(struct run *run)
{
    struct replay_log *log = order_replay_log(run);
    struct order_entry entry;
    if (order_next(&log->reader, &entry) && entry.tag == ORDER_EPOCH)
        return true;
    replay_log_refuse(run, DIAG_FILE_DAMAGED, "%s",
                      log->reader.why != NULL ? log->reader.why
                                              : "a segment continues after its last micro-batch");
    return false;
}

/* Opens the segment that has the next micro-batch, and reads all entries before it. Returns false if the log
 * has ended, or on an error. */
static bool turn_segment(struct run *run)
{
    struct replay_log *log = order_replay_log(run);
    bool is_whole = log->has_segment && log->reader.micro_batch >= log->reader.head.next;
    bool is_good = !is_whole || ends_well(run);
    log->has_segment = false;
    is_good = is_good && replay_log_find_segment(run, log->next);
    if (is_good && log->has_segment)
        return begin_segment(run, log->next);
    log->has_run_out = is_good && log->is_live && !replay_log_is_redo(run);
    run->sequencer->is_replaying = log->has_run_out;
    return false;
}

/* Reads the entries of the next micro-batch. Returns false as turn_segment does. */
static bool next_number(struct run *run)
{
    struct replay_log *log = order_replay_log(run);
    struct replay *replay = &run->sequencer->replay;
    if (replay->has_number)
        return true;
    if (log->has_run_out)
        return false;
    if ((!log->has_segment || log->reader.micro_batch >= log->until) && !turn_segment(run))
        return false;
    replay->has_number = take_entries(run);
    return replay->has_number;
}

bool replay_begin(struct run *run)
{
    struct sequencer *s = run->sequencer;
    uint32_t partitions = MAX(s->partitions_room, 1);
    s->is_replaying = replay_log_is_there(run) && !s->has_input_ended;
    if (!s->is_replaying)
        return true;
    s->replay = (struct replay){
        .map = arena_array(&run->arena, uint32_t, ORDER_PARTITIONS_MAX),
        .slices = arena_array(&run->arena, struct order_slice, partitions),
        .is_ended = arena_array(&run->arena, bool, partitions),
        .is_idle = arena_array(&run->arena, bool, partitions),
        .sources_places = arena_array(&run->arena, uint32_t, MAX(run->plan->sources_count, 1)),
    };
    if (!replay_log_list(run))
        return false;
    (void)turn_segment(run);
    return run->diags->errors == 0;
}

/* --- Whether the records that are read fit the log --- */

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

static void slice_differs(struct run *run, const struct partition *p, const struct order_slice *slice,
                          const char *found)
{
    char offset[64] = "";
    if (slice->has_offset)
        snprintf(offset, sizeof(offset), ", offset %lld", (long long)slice->offset);
    replay_log_refuse(
        run, DIAG_FILE_CHANGED,
        "micro-batch %llu takes %llu records of `%.*s` of source `%.*s`, from record %llu on, up to order "
        "time %lld%s; found: %s",
        (unsigned long long)order_replay_log(run)->next, (unsigned long long)slice->records,
        STR_ARGS(sequencer_partition_name(run, p)), STR_ARGS(run_source_node(run, p->source)->name),
        (unsigned long long)p->records, (long long)slice->time, offset, found);
}

/* Refuses a slice whose records are no longer all in the topic, or in the recording. */
static void slice_has_lost(struct run *run, const struct partition *p, const struct order_slice *slice,
                           const struct rows *rows)
{
    char what[MESSAGE_BYTES], hint[MESSAGE_BYTES];
    snprintf(
        what, sizeof(what),
        "micro-batch %llu took %llu records of `%.*s` of source `%.*s`, offsets %lld to %lld, and %llu are "
        "there now: the others have been compacted away or deleted since, or the topic or recording is "
        "another one; the micro-batch cannot be executed again",
        (unsigned long long)order_replay_log(run)->next, (unsigned long long)slice->records,
        STR_ARGS(sequencer_partition_name(run, p)), STR_ARGS(run_source_node(run, p->source)->name),
        (long long)p->offset, (long long)slice->offset, (unsigned long long)rows->found);
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

static bool slice_is_ready(struct run *run, const struct order_slice *slice)
{
    struct partition *p = &run->sequencer->partitions[slice->partition];
    struct rows rows;
    char text[128];
    switch (rows_ready(run, p, slice, &rows)) {
    case ROWS_LATER: return false;
    case ROWS_NEVER:
        snprintf(text, sizeof(text), "%llu: the input is shorter", (unsigned long long)rows.found);
        break;
    case ROWS_TOO_MANY_BATCHES: snprintf(text, sizeof(text), "more batches than are read ahead"); break;
    case ROWS_THERE:
        if (rows.found == slice->records && rows.time == slice->time &&
            (!rows.are_by_offset || rows.offset == slice->offset))
            return true;
        if (rows.found < slice->records) {
            slice_has_lost(run, p, slice, &rows);
            return false;
        }
        if (rows.are_by_offset)
            snprintf(text, sizeof(text), "%llu records up to %lld, offset %lld",
                     (unsigned long long)rows.found, (long long)rows.time, (long long)rows.offset);
        else
            snprintf(text, sizeof(text), "records up to %lld", (long long)rows.time);
    }
    slice_differs(run, p, slice, text);
    return false;
}

/* Whether the partition has ended as the log says. After a fallback this is not checked: records that came to
 * a growing file after the checkpoint are sequenced after the log's records. */
static bool end_is_ready(struct run *run, struct partition *p)
{
    struct rows rows;
    if (replay_log_is_redo(run))
        return true;
    enum rows_state state = rows_ready(run, p, &(struct order_slice){.records = 1}, &rows);
    if (state == ROWS_THERE)
        replay_log_refuse(run, DIAG_FILE_CHANGED,
                          "`%.*s` of source `%.*s` ends in the log after %llu records, and has more records",
                          STR_ARGS(sequencer_partition_name(run, p)),
                          STR_ARGS(run_source_node(run, p->source)->name), (unsigned long long)p->records);
    return state == ROWS_NEVER;
}

enum replay_state replay_ready(struct run *run)
{
    struct replay_log *log = order_replay_log(run);
    struct replay *replay = &run->sequencer->replay;
    struct sequencer *s = run->sequencer;
    if (run_has_failed(run))
        return REPLAY_WAIT;
    if (!next_number(run))
        return log->has_run_out ? REPLAY_OUT : REPLAY_WAIT;
    /* Which micro-batches come behind the end of all sources, operators say (ended.c), not the log. */
    bool is_last = replay->tag == ORDER_LAST || replay->tag == ORDER_ENDED_ALL;
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if ((replay->is_ended[i] || (is_last && !s->partitions[i].is_over)) &&
            !end_is_ready(run, &s->partitions[i]))
            return REPLAY_WAIT;
    for (uint32_t i = 0; i < replay->slices_count; i++)
        if (!slice_is_ready(run, &replay->slices[i]))
            return REPLAY_WAIT;
    return is_last ? REPLAY_LAST : REPLAY_NUMBER;
}

bool replay_is_beyond(const struct run *run)
{
    const struct replay *replay = &run->sequencer->replay;
    for (uint32_t i = 0; i < replay->slices_count; i++) {
        const struct partition *p = &run->sequencer->partitions[replay->slices[i].partition];
        if (PIECE_AT(p, p->head)->batch->order_time[p->head_row] < run->sequencer->until_us)
            return false;
    }
    return replay->slices_count > 0;
}

static struct slice *add_slice(struct slot *slot)
{
    if (slot->slices_count == slot->slices_room) { /* a slice of several batches takes several places */
        slot->slices_room = MAX(slot->slices_room * 2, 8);
        slot->slices = mem_realloc(slot->slices, slot->slices_room * sizeof(*slot->slices));
    }
    return &slot->slices[slot->slices_count++];
}

void replay_choose(struct run *run, struct number *number)
{
    struct replay *replay = &run->sequencer->replay;
    struct sequencer *s = run->sequencer;
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if (replay->is_ended[i]) {
            s->partitions[i].is_over = true;
            log_ended(run, &s->partitions[i]);
        }
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if (replay->is_idle[i]) {
            s->partitions[i].is_idle = true;
            log_idle(run, &s->partitions[i]);
        }
    number->rows = NUMBER_LOGGED;
    number->cut = replay->tag == ORDER_CUT ? replay->cut : NO_PARTITION;
    for (uint32_t i = 0; i < replay->slices_count; i++)
        number->bound = MAX(number->bound, replay->slices[i].time);
    number->tick = replay->tick;
    number->load = replay->load;
    replay->has_number = false;
    order_replay_log(run)->next++;
}

void replay_cut(struct run *run, struct slot *slot)
{
    struct sequencer *s = run->sequencer;
    for (uint32_t i = 0; i < s->replay.slices_count; i++) {
        struct partition *p = &s->partitions[s->replay.slices[i].partition];
        for (uint64_t left = s->replay.slices[i].records; left > 0;) {
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
