/* Replays an order log (order/order.h): its segments say how many records each micro-batch takes from each
 * partition. The sequencer waits for these records, compares counts, order times and offsets with the log,
 * and forms the micro-batch. A partition gets its id when the log names it, so ids are in the log's order;
 * ids break ties of order time. Behind the end of the log the sequencer computes the order as in a run
 * without replay; for live sources it cannot, and the run stops there. */
#include "run/sequencer/internal.h"

#include "core/mem.h"

#include "run/base/peers.h"
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
    struct sequencer *s = run->sequencer;
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
    s->replay.taken[p->id] = (struct replay_taken){p->records, p->order_max};
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

/* Whether the rows that were chosen before the micro-batch are those of the log; also takes over which partitions
 * have ended: of several workers, as the leader's next choice (replay_choose). False after a diagnostic. */
static bool fits_positions(struct run *run, const struct logged *logged, uint64_t micro_batch)
{
    struct sequencer *s = run->sequencer;
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        struct partition *p = &s->partitions[i];
        const struct replay_taken *taken = &s->replay.taken[i];
        struct str source = run_source_node(run, p->source)->name;
        struct str name = sequencer_partition_name(run, p);
        if (!logged[i].is_there) {
            replay_log_refuse(run, DIAG_FILE_CHANGED,
                              "it does not have `%.*s`, partition %u of source `%.*s`", STR_ARGS(name),
                              p->local, STR_ARGS(source));
            return false;
        }
        if (logged[i].records != taken->records || logged[i].time != taken->time) {
            replay_log_refuse(
                run, DIAG_FILE_CHANGED,
                "before micro-batch %llu it has %llu records of `%.*s` of source `%.*s`, order time %lld, "
                "and "
                "the run has %llu, order time %lld",
                (unsigned long long)micro_batch, (unsigned long long)logged[i].records, STR_ARGS(name),
                STR_ARGS(source), (long long)logged[i].time, (unsigned long long)taken->records,
                (long long)taken->time);
            return false;
        }
        s->replay.has_ended[i] = logged[i].has_ended;
        if (s->peers == NULL)
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

/* Whether a micro-batch begins below --until, only the owners of its partitions see. */
bool replay_begin(struct run *run)
{
    struct sequencer *s = run->sequencer;
    uint32_t partitions = MAX(s->partitions_room, 1);
    s->is_replaying = replay_log_is_there(run) && !s->has_input_ended;
    s->logged_next = order_replay_log(run)->next;
    sequencer_peers_begin(run);
    if (!s->is_replaying || !peers_is_leader(run)) /* the leader says what the log has */
        return true;
    if (s->peers != NULL && s->until_us != TIME_MAX)
        return peers_refuse(run, "an order log to replay, and --until");
    s->replay = (struct replay){
        .map = arena_array(&run->arena, uint32_t, ORDER_PARTITIONS_MAX),
        .slices = arena_array(&run->arena, struct order_slice, partitions),
        .is_ended = arena_array(&run->arena, bool, partitions),
        .is_idle = arena_array(&run->arena, bool, partitions),
        .has_ended = arena_calloc(&run->arena, partitions, sizeof(bool)),
        .taken = arena_array(&run->arena, struct replay_taken, partitions),
        .sources_places = arena_array(&run->arena, uint32_t, MAX(run->plan->sources_count, 1)),
    };
    for (uint32_t i = 0; i < s->partitions_count; i++)
        s->replay.taken[i] = (struct replay_taken){s->partitions[i].records, s->partitions[i].order_max};
    if (!replay_log_list(run))
        return false;
    (void)turn_segment(run);
    for (uint32_t i = 0; i < s->partitions_count; i++)
        s->partitions[i].is_over = s->replay.has_ended[i];
    return run->diags->errors == 0;
}

/* --- What the next micro-batch holds --- */

/* Whether the records of the micro-batch are there, and are those of the log; also false after an error. */
static bool fits(struct run *run, bool is_last)
{
    const struct replay *replay = &run->sequencer->replay;
    struct sequencer *s = run->sequencer;
    struct replay_finding finding;
    uint64_t number = order_replay_log(run)->next;
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if (replay->is_ended[i] || (is_last && !s->partitions[i].is_over)) {
            enum replay_fit fit = replay_fit_end(run, &s->partitions[i], &finding);
            if (fit == REPLAY_DIFFERS)
                replay_say(run, number, NULL, &finding);
            if (fit != REPLAY_FITS)
                return false;
        }
    for (uint32_t i = 0; i < replay->slices_count; i++) {
        enum replay_fit fit = replay_fit_slice(run, &replay->slices[i], &finding);
        if (fit == REPLAY_DIFFERS)
            replay_say(run, number, &replay->slices[i], &finding);
        if (fit != REPLAY_FITS)
            return false;
    }
    return true;
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
    if (likely(s->peers == NULL) && !fits(run, is_last))
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

static void end_partition(struct run *run, struct partition *p)
{
    if (unlikely(run->sequencer->peers != NULL)) {
        peers_note_over(run, p);
        return;
    }
    p->is_over = true;
    log_ended(run, p);
}

static void idle_partition(struct run *run, struct partition *p)
{
    if (unlikely(run->sequencer->peers != NULL)) {
        (void)peers_note_idle(run, p);
        return;
    }
    p->is_idle = true;
    log_idle(run, p);
}

void replay_choose(struct run *run, struct number *number)
{
    struct replay *replay = &run->sequencer->replay;
    struct sequencer *s = run->sequencer;
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if (replay->is_ended[i])
            end_partition(run, &s->partitions[i]);
        else if (unlikely(s->peers != NULL) && replay->has_ended[i])
            peers_note_was_over(run, &s->partitions[i]);
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if (replay->is_idle[i])
            idle_partition(run, &s->partitions[i]);
    number->rows = NUMBER_LOGGED;
    number->cut = replay->tag == ORDER_CUT ? replay->cut : NO_PARTITION;
    for (uint32_t i = 0; i < replay->slices_count; i++) {
        const struct order_slice *slice = &replay->slices[i];
        number->bound = MAX(number->bound, slice->time);
        replay->taken[slice->partition].records += slice->records;
        replay->taken[slice->partition].time = slice->time;
    }
    number->tick = replay->tick;
    number->load = replay->load;
    number->slices = replay->slices;
    number->slices_count = replay->slices_count;
    number->ends_all = replay->tag == ORDER_LAST || replay->tag == ORDER_ENDED_ALL;
    replay->has_number = false;
    number->logged = order_replay_log(run)->next++;
}
