/* Private to run/sequencer. */
#ifndef LEAT_RUN_SEQUENCER_INTERNAL_H
#define LEAT_RUN_SEQUENCER_INTERNAL_H

#include "core/order_log.h"
#include "run/base/words.h"
#include "run/sequencer/sequencer.h"

enum { PIECES_MAX = 32 /* raw batches read ahead per partition */ };

/* The newest event time of each key of a partition, for a watermark that follows the slowest key.
 *
 * It holds a bounded number of keys, as 64-bit hashes (two keys with the same hash count as one, with the
 * newer of their times). When a new key does not fit, the slowest eighth of the keys is forgotten. Which keys
 * are kept depends only on the rows seen, not on the layout of the table. Under the sequencer's mutex. */
enum { KEY_TIMES_MIN = 16, KEY_TIMES_MAX = 65536 };

struct key_times {
    uint64_t *hashes; /* 0: a free place */
    int64_t *times;
    uint32_t capacity, count;
    uint64_t forgotten; /* keys forgotten, over the life of the process */
};

/* A raw batch of a partition, and its decoded rows. */
struct piece {
    struct raw_batch raw;
    struct batch *batch; /* decoded rows; one reference is the ring's */
    struct decode_output output;
    atomic_bool is_ready;
    bool is_fixed;      /* order times include the running maximum of earlier pieces */
    bool has_own_order; /* order times are arrival or recorded times, not event times */
    /* For the source's watermark (watermark.c), indexed by physical row; in the batch's arena. */
    uint64_t *key_hashes; /* hash of the row's key; 0: null key. NULL: strategy is not per_key */
    uint64_t *marks;      /* bit set: the row is a punctuation; NULL: no row is */
};

/* What a partition offers to the next micro-batch. */
struct offer {
    enum offer_tag {
        OFFER_WAIT, /* rows must be read or decoded first */
        OFFER_ROWS,
        OFFER_NONE, /* live: it has no rows now, and is not waited for */
        OFFER_OVER, /* it has no rows any more */
    } tag;
    /* With OFFER_ROWS: order time of the last row that the micro-batch may have; whether watermarks may advance behind that one;
     * index behind it in the head piece; and whether the partition's next row is below --until. */
    int64_t end_time;
    bool is_cut, is_before_until;
    int64_t
        dry_us; /* without OFFER_ROWS: monotonic time since when reads find no records; 0: they find some */
    int64_t
        quiet_us; /* with OFFER_NONE: monotonic time since when all its records were read; 0: there are more to come */
    uint32_t end;
};

/* What `align:` compares of a partition. */
struct next_event {
    bool is_aligned; /* the partition has a next row, and its rows may wait for those of others */
    int64_t time;    /* the newest event time of its good rows up to this one; TIME_MIN: none was good */
};

#define NO_PARTITION UINT32_MAX

/* What a micro-batch holds, as it was chosen before any row is cut off. */
struct number {
    uint64_t micro_batch;
    struct slot *slot;     /* its own */
    bool is_end, is_final; /* as of the slot */
    bool has_work;         /* it comes behind the end of all sources, for operators that have work left */
    enum {
        NUMBER_EMPTY,
        NUMBER_UP_TO, /* rows with order times up to `bound`, and of that time the rows of partitions up to `last` */
        NUMBER_LOGGED, /* the slices of the order log that is replayed */
    } rows;
    int64_t bound;   /* with NUMBER_LOGGED, of its slices */
    int64_t highest; /* of all bounds so far */
    uint32_t last;   /* id of the partition whose offer ends with it */
    uint32_t
        cut; /* id of the partition at whose cut it ends, so that watermarks advance; NO_PARTITION: none */
    int64_t tick; /* time to which the arrival clock advances; TIME_MIN: no tick */
    /* With NUMBER_LOGGED: load as of the slot; the slices (of this worker's partitions), by partition of the run, which are another's;
     * the micro-batch's number in the log; whether all partitions end with it. */
    uint32_t load;
    const struct order_slice *slices;
    uint32_t slices_count;
    uint64_t logged;
    bool ends_all;
    bool follows_load; /* the load follows from its rows */
    uint64_t barrier;  /* epoch of the checkpoint behind it; 0: none */
};

/* What the partitions of a source contribute to its watermark. */
struct watermark_part {
    bool has_say;         /* a partition that is not idle counts: */
    int64_t lowest;       /* the lowest watermark of these, */
    uint32_t holder;      /* and the partition that has it, by id; NO_PARTITION: none */
    int64_t highest_idle; /* of idle partitions; TIME_MIN: none of them counts */
    int64_t newest;       /* the newest event time; TIME_MIN: none yet */
};

/* What only cutting the rows of a micro-batch shows. */
struct cut {
    struct cut_slice {
        uint32_t partition;
        uint64_t records;
        int64_t time;   /* order time of the last one */
        int64_t offset; /* behind the last one; 0 where the partition has no offsets */
    } * slices;         /* in the order of partitions */
    uint32_t slices_count, slices_room;
    uint32_t rows;
    int64_t arrival; /* newest arrival time so far, where an arrival clock is needed; TIME_MIN: none */
    struct watermark_part *parts; /* per source, behind its rows; only where watermarks advance */
};

struct partition {
    uint32_t id;     /* unique over all sources; breaks ties of order time */
    uint32_t source; /* index in plan->sources */
    uint32_t local;  /* index of the partition within its source */
    uint32_t owner;  /* the worker that reads it */
    uint64_t
        since; /* micro-batches below this number know nothing of it: the leader chooses ahead of what it cuts */
    struct piece *pieces;
    uint32_t ring;       /* size of `pieces`: small, so that they stay in the CPU caches */
    uint64_t head, tail; /* pieces [head, tail) are in the ring */
    uint32_t head_row;   /* rows of the head piece that are already in micro-batches */
    bool is_reading, is_ended;
    bool is_over;       /* all rows are in micro-batches */
    bool is_live;       /* every end of a raw batch is a cut: the batch holds the records arrived */
    bool has_offsets;   /* the source kind counts by offsets (source_kind.has_offsets) */
    bool is_quiet;      /* live: the last read answered READ_QUIET, all records were read */
    bool is_idle;       /* live: left out of the watermark until its next row */
    uint64_t dry_at;    /* sequencer.wakes before the last read, which found no records; 0: it found some */
    int64_t dry_us;     /* monotonic time since when reads find no records; 0: the last read found some */
    bool has_own_order; /* a sequenced piece had piece.has_own_order */
    uint32_t since_cut; /* records sequenced since the last cut */
    int64_t order_max;  /* order time of the last sequenced row */
    /* With has_offsets: next offset after the last sequenced record, or where the partition began. */
    int64_t offset;
    struct {
        uint64_t records;
        int64_t order, offset; /* as order_max and offset */
        bool is_over;
    } logged; /* as the order log has it, where one is written; of several workers, the leader's says it of all partitions */
    int64_t event_max;   /* newest event time of the good rows sequenced */
    bool has_event;      /* event_max is known */
    int64_t arrival_max; /* newest arrival time sequenced, where an arrival clock is needed; TIME_MIN: none */
    int64_t marked;      /* event time of the newest punctuation; TIME_MIN: none so far */
    struct key_times keys; /* newest event time by key, for the per_key watermark */
    struct offer offer;    /* as of the last attempt to form a micro-batch */
    bool is_held_back;     /* by `align:`: gives no rows to the next micro-batch */
    /* Pieces [head, fixed) have final order times; the running maxima at the end of piece `fixed` - 1. */
    uint64_t fixed;
    int64_t order_fixed, event_fixed;
    bool has_event_fixed;
    /* Where a resume begins when the head has no rows left: see partition_position. For kinds without
     * offsets it always begins here: at this raw batch, without its first `resume_rows` rows. */
    struct source_position resume;
    uint32_t resume_rows;
    uint32_t skip_rows; /* rows still to be skipped of the first batches after a resume */
    /* With has_offsets: all records before this offset were read, as of the last read that found no more;
     * gaps between offsets count as read. */
    int64_t reach;
    int64_t saved;    /* with has_offsets: next offset in the positions that were saved last */
    uint64_t records; /* records sequenced, over all lives of the run */
};

#define PIECE_AT(partition, index) (&(partition)->pieces[(index) % (partition)->ring])

/* The partition that holds a source's watermark back. */
struct watermark_holder {
    uint32_t partition; /* by id; NO_PARTITION: no single one (merged by event time) */
    int64_t newest;     /* the source's newest event time; TIME_MIN: none yet */
};

/* The next micro-batch of the order log that is replayed. */
struct replay {
    uint32_t *map;              /* index of a partition in the log -> index in the run */
    bool has_number;            /* the entries of this micro-batch were read */
    enum order_tag tag;         /* how it ends: ORDER_MICRO_BATCH, ORDER_CUT, ORDER_ENDED_ALL or ORDER_LAST */
    uint32_t cut;               /* with ORDER_CUT: index in the run of the partition at whose cut it ends */
    struct order_slice *slices; /* slice.partition: index in the run */
    uint32_t slices_count;
    bool *is_ended, *is_idle; /* per partition of the run */
    bool *has_ended; /* likewise: before the segment, or the micro-batch with which the replay began in it */
    /* Likewise: what the micro-batches chosen so far hold of it. Several workers cut rows behind the choice. */
    struct replay_taken {
        uint64_t records;
        int64_t time; /* order time of the last one */
    } * taken;
    int64_t tick;             /* new time of the arrival clock; TIME_MIN: no tick */
    uint32_t load;            /* as slot.load */
    uint32_t *sources_places; /* per source: how many of its partitions the segment has named so far */
};

/* The wall clock that ticks of the arrival clock go by (arrival_clock.c); microseconds. */
struct arrival_clock {
    int64_t trusted_us; /* this clock, less the monotonic clock */
    int64_t wall_us;    /* at the last look: the wall clock, less the monotonic clock */
    int64_t looked_us;  /* at the last look: the monotonic clock; before the first one, at the beginning */
    int64_t behind_since_us; /* with is_behind: the monotonic clock when the wall clock was seen ahead */
    bool is_behind, has_said, has_looked;
};

struct sequencer {
    /* Guards the partitions, and all members that change while lanes run and are not atomic; but not the
     * slots, nor a piece while a lane reads and decodes it. */
    pthread_mutex_t mutex;
    struct partition *partitions;
    uint32_t partitions_count;
    uint32_t pieces_ahead; /* size of a new partition's ring */
    /* Watermark per source; then the arrival clock, before which no later row in order arrived; in us. */
    int64_t *source_watermarks;
    int64_t order_highest; /* highest order time sequenced; TIME_MIN: none */
    struct cut cut;        /* of the micro-batch that is being formed */
    struct arrival_clock arrival_clock;
    struct watermark_holder *holders; /* per source */
    struct slot slots[SLOTS];
    _Atomic uint64_t formed;  /* micro-batches below this number exist */
    _Atomic uint64_t claimed; /* micro-batches below this number were taken for stage 0 */
    atomic_int held;          /* sequencer_held */
    uint64_t first;           /* number of the first micro-batch of this life */
    bool has_ended;           /* the last micro-batch was formed */
    bool is_finished;         /* the last micro-batch was final: all sources have ended */
    /* ended.c: a micro-batch behind the end of all sources was formed; by node of the plan: whether it is done, and
     * whether it wants more as far as is known. Lanes read is_done and write wants_more only while a micro-batch
     * behind the end is in work, and is_done changes only when there is none. */
    bool has_input_ended;
    bool *is_done;
    atomic_bool *wants_more; /* of several workers, the leader's has the answers of all */
    bool is_replaying;       /* the order log says what the next micro-batch holds */
    struct replay replay;
    uint64_t logged_next; /* in the log that is replayed: behind the last micro-batch that was formed by it */
    int64_t until_us;     /* --until, an order time; TIME_MAX: none */
    bool is_at_until;     /* the last micro-batch is empty: sources that end have no more rows below it */
    uint32_t cut_records; /* records of a partition between two cuts: BATCH_ROWS, except in tests */
    atomic_bool stop_requested;
    /* Live sources. */
    bool is_live;             /* at least one source is live */
    _Atomic uint64_t wakes;   /* starts at 1; raised when a source may have records again */
    uint64_t discovered_at;   /* value of `wakes` when sources were last asked for new partitions */
    uint32_t *known;          /* per source: local partitions below this are in `partitions` */
    uint32_t partitions_room; /* size of `partitions`, which never moves */
    uint64_t last_barrier;    /* number after the micro-batch with the last barrier */
    bool
        has_risen; /* since positions were saved, a partition's position rose without records; alone: lead_has_risen */
    uint32_t load; /* 0 .. ORDER_LOAD_MAX, about log2 of the examples per step: see live_follow_load */
    uint64_t records_before;       /* records sequenced by earlier lives */
    int64_t bytes_before;          /* source_progress.bytes_done of all sources when this life began */
    int64_t disk_looked_us;        /* when the free disk space was last asked for */
    bool disk_is_low;              /* the sources pause */
    struct sequencer_peers *peers; /* peers.c; NULL: the run is alone */
};

/* partitions.c */
/* local: the partition's index within its source. NULL after a diagnostic: there are too many. */
struct partition *sequencer_add_partition(struct run *run, uint32_t source, uint32_t local);
/* Whether the source's partitions are known by their names, not by their places: then more can be added. */
bool sequencer_is_named(const struct run *run, uint32_t source);
/* Index within its source of the partition of that name; UINT32_MAX: there is none. */
uint32_t sequencer_find_local(struct run *run, uint32_t source, struct str name);
struct str sequencer_partition_name(struct run *run, const struct partition *p);
/* Appends the positions at which a resume goes on behind the micro-batch that is being formed. */
void sequencer_save(struct run *run, bool is_finished, struct byte_buffer *out);
/* The same of one partition of this worker, behind the micro-batch that was cut last. */
void sequencer_save_partition(struct run *run, struct partition *p, struct byte_buffer *out);

/* form.c */
/* Forms one micro-batch; false: not possible now. */
bool form_one(struct run *run);
/* Its steps. form_choose: decides what the next micro-batch is; false: it cannot be formed now. form_cut: cuts off its rows of
 * this worker's partitions, and says what they show. form_finish: fills its slot, with what the rows of all workers show. */
bool form_choose(struct run *run, uint64_t micro_batch, struct number *number);
void form_cut(struct run *run, const struct number *number, struct cut *cut);
void form_finish(struct run *run, const struct number *number, const struct cut *cut);
/* Whether this worker's stages have run the earlier micro-batch of the slot; and those of all workers. */
bool form_slot_is_free(const struct run *run, uint64_t micro_batch);
bool form_has_slot(const struct run *run, uint64_t micro_batch);
/* Stages may run the slot's micro-batch: its members are filled in. */
void form_slot(struct run *run, struct slot *slot);
/* Makes the offer of a partition of this worker. */
void offer_own(struct run *run, struct partition *p);
/* Index behind the last row, from `row` on, that a micro-batch may take from the piece: its end, or the partition's next cut.
 * since_cut: records before `row` since the last cut. *is_cut: whether watermarks may advance there. */
uint32_t offer_end(const struct sequencer *s, const struct partition *p, const struct piece *piece,
                   uint32_t row, uint32_t since_cut, bool *is_cut);

/* peers.c: the same over several workers */
void sequencer_peers_init(struct run *run);
void sequencer_peers_free(struct run *run);
/* Call once positions are restored, and once it is known whether a log is replayed, before it names partitions. */
void sequencer_peers_begin(struct run *run);
/* The leader: appends the position of a partition, as its owner said it of the micro-batch with the barrier. */
void peers_put_position(const struct run *run, const struct partition *p, struct byte_buffer *out);
/* Does what messages ask for, and what this worker's partitions allow; returns whether a micro-batch was formed. */
bool peers_form(struct run *run);
/* The leader: makes the offer of a partition, as far as its owner has said. next_event_known: likewise, what alignment compares.
 * peers_note_idle: the partition is idle from the micro-batch on that is being chosen; false: it was already. */
void offer_known(struct run *run, struct partition *p);
struct next_event next_event_known(const struct run *run, const struct partition *p);
bool peers_note_idle(struct run *run, const struct partition *p);
/* The leader: whether a partition's position has risen without records, as far as its owner has said. */
bool lead_has_risen(const struct run *run);
/* The leader: the partition is over with the micro-batch that is being chosen. peers_note_was_over: it was before this life, by the
 * log that is replayed; if no micro-batch has told owners so, that one does. */
void peers_note_over(struct run *run, const struct partition *p);
void peers_note_was_over(struct run *run, const struct partition *p);

/* peers_hold.c: what holds at the other workers, as far as they have said; 0 in a run that is alone. */
unsigned peers_holds(const struct run *run);
/* peers_found.c, of the leader. peers_found: up to how many of the source's partitions all workers have found; peers_may_add: whether
 * none is new, or no micro-batch is open. */
uint32_t peers_found(const struct run *run, uint32_t source);
bool peers_may_add(const struct run *run);

/* peers_ended.c: an operator of this worker has answered; says so to the leader. Any lane. */
void peers_answer(struct run *run, const struct plan_node *node, bool wants_more);

/* partition.c */
/* Makes the head piece ready to be cut. Returns false if pieces that this needs are not decoded yet. */
bool partition_prepare(struct run *run, struct partition *p);
/* Releases the head piece, all of whose rows are in micro-batches. */
void partition_drop_head(struct partition *p);
/* Doubles the read-ahead ring, for a micro-batch of many small batches; false once it holds BATCH_ROWS
 * pieces, enough even if each has one record. Call only when all pieces are decoded and no lane reads the
 * partition. */
bool partition_widen(struct partition *p);
/* Cuts the head piece's rows [head_row, end) off, into *slice, which owns its batch. */
void partition_cut(struct run *run, struct partition *p, uint32_t end, struct slice *slice);
/* Whether the piece is a batch of BATCH_ROWS records, or after a resume the rest of such a batch. */
bool partition_is_whole(const struct partition *p, const struct piece *piece);
/* The position at which a resume goes on. For kinds without offsets it skips `resume_rows` rows there. */
struct source_position partition_position(const struct partition *p);
/* Whether all records that were read are sequenced, and the position is behind the one saved last. Only with
 * offsets. */
bool partition_has_risen(const struct partition *p);

/* watermark.c */
void watermark_init(struct run *run);
void watermark_free(struct run *run);
/* For a piece just decoded: rejects rows too far ahead of their arrival, and finds key hashes and
 * punctuations. Any lane. */
void watermark_decoded(struct run *run, struct decoding *decoding, const struct partition *p,
                       struct piece *piece);
/* Rejects rows that jump ahead of earlier rows, and applies the partition's running maxima; pieces come in
 * their order. Returns false if a piece behind this one must be decoded first. */
bool watermark_fix(struct run *run, struct partition *p, uint64_t piece);
/* Call when the rows [first, end) of the piece go into a micro-batch: adds them to what the partition
 * contributes to watermarks. */
void watermark_take(struct run *run, struct partition *p, const struct piece *piece, uint32_t first,
                    uint32_t end);
static inline bool watermark_is_mark(const struct piece *piece, uint32_t row)
{
    return piece->marks != NULL && bit_get(piece->marks, row);
}
/* Index behind the next punctuation at or after `row`; `end` if there is none in [row, end). */
uint32_t watermark_next_mark(const struct piece *piece, uint32_t row, uint32_t end);
/* Sets which partitions give no rows to the next micro-batch (`align:`); all offers are made, and none of them is OFFER_WAIT. */
void watermark_align(struct run *run);
/* Whether the partition's rows may wait for those of others, where they have an order of their own. */
bool watermark_may_align(const struct run *run, const struct partition *p);
/* The newest event time of the batch's good rows [first, end), and of earlier ones, whose newest one is `newest`. */
int64_t watermark_newest(const struct batch *batch, uint32_t first, uint32_t end, int64_t newest);
/* Sets cut->arrival and cut->parts from the partitions, behind the micro-batch. */
void watermark_contribute(const struct run *run, const struct number *number, struct cut *cut);
/* Advances the watermarks of all sources and the arrival clock. */
void watermark_advance(struct run *run, const struct cut *cut);

/* key_times.c */
/* Takes in an event time, in microseconds, of the key with this hash, which is not 0. keys_max: bound of the
 * number of keys. */
void key_times_see(struct key_times *keys, uint32_t keys_max, uint64_t hash, int64_t time);
/* The oldest of the times at or after `from`; TIME_MAX: there is none. */
int64_t key_times_oldest(const struct key_times *keys, int64_t from);
/* key_times_save: appends the table, for a checkpoint. key_times_load: reads it back; false if the bytes are
 * damaged. */
void key_times_save(const struct key_times *keys, struct byte_buffer *out);
bool key_times_load(struct key_times *keys, struct str saved);
void key_times_free(struct key_times *keys);

/* arrival_clock.c. Times in microseconds; now: the monotonic clock. */
enum arrival_news {
    ARRIVAL_NO_NEWS,
    ARRIVAL_CATCHES_UP, /* begins to catch up with a wall clock that was set forward */
    ARRIVAL_STANDS,     /* the wall clock has come to lie behind the arrival clock */
};
/* Begins with the wall clock as it is; when the process begins. */
void arrival_clock_begin(struct arrival_clock *clock, int64_t now, int64_t wall);
/* Call it in lulls, often: returns the time to go by. arrived: the arrival clock, TIME_MIN if it has none.
 * *news: what to say, each once. */
int64_t arrival_clock_look(struct arrival_clock *clock, int64_t now, int64_t wall, int64_t arrived,
                           enum arrival_news *news);

/* live.c */
/* live_tick: time to which the arrival clock may advance in a lull; TIME_MIN: no tick is due.
 * live_set_clock advances the clock and logs the tick. */
int64_t live_tick(struct run *run);
void live_set_clock(struct run *run, int64_t time);
/* Decides the load after a micro-batch of so many rows; a changed load goes into the order log. */
void live_follow_load(struct run *run, uint32_t rows);
void live_set_load(struct run *run, uint32_t load);
/* Takes in the status of a read. wakes: sequencer.wakes before the read. Returns whether the next micro-batch
 * may be possible now. */
bool live_was_read(struct partition *p, enum read_status status, uint64_t wakes);
/* Whether the partition may have something to read: it was not dry, or its source called wake since. */
bool live_may_read(const struct run *run, const struct partition *p);
/* Asks the sources for new partitions. false after a diagnostic. */
bool live_ask_sources(struct run *run);
/* Adds partitions that the sources have found. false: after a diagnostic, or because micro-batches must be formed first. */
bool live_discover(struct run *run);
/* Whether micro-batches are formed without rows of this partition, which has none ready. is_quiet: all its records were read;
 * dry_us: monotonic time since when there are none; 0: there are some. */
bool live_goes_without(struct run *run, const struct partition *p, bool is_quiet, int64_t dry_us);
/* Whether a stop does not wait for rows of a partition of a source that ends. dry_us: as of its offer. */
bool live_is_silent(int64_t dry_us);
/* Whether a partition has become idle, by its offer. */
bool live_becomes_idle(struct run *run, const struct partition *p);

/* hold.c: what holds the sources back. Of several workers, each has sinks, state and a disk of its own, and the sources wait while any
 * worker holds (peers_hold.c). */
enum hold {
    HOLD_STATE =
        1, /* evictions that wait for the checkpoint in work hold memory beyond the budget: until it is through */
    HOLD_ORDER = 2,   /* the order log has not reached the disk */
    HOLD_SINKS = 4,   /* a sink is full (sink_context.is_full) */
    HOLD_SENDERS = 8, /* with HOLD_SINKS: a full sink sends its rows only when a checkpoint has them */
    HOLD_DISK =
        16, /* the disk of the checkpoints has less than `min_free` left, so that no write of the database fills it */
    HOLD_STORE = 32,                        /* more checkpoints wait for the store than `behind` */
    HOLD_AT_STOP = HOLD_STATE | HOLD_ORDER, /* that hold back the last micro-batch of a stop, too */
    HOLD_ALL = 63
};
/* What holds here, a set of enum hold. is_stop: only what does so at a stop. */
unsigned hold_own(struct run *run, bool is_stop);
/* Why no micro-batch is formed, where one of `holds` holds: the first one in the order of enum hold. RUN_LANE_WAITS: none does. */
enum run_lane_time hold_cause(unsigned holds);
/* Notes why no micro-batch can be formed; returns false. */
static inline bool hold_because(struct run *run, enum run_lane_time why)
{
    atomic_store_explicit(&run->sequencer->held, (int)why, memory_order_relaxed);
    return false;
}
/* With HOLD_SINKS: whether a micro-batch may be formed to carry the barrier after which full sinks send. */
bool hold_may_form(struct run *run, uint64_t micro_batch, unsigned holds);

/* ended.c: micro-batches behind the end of all sources */
void ended_init(struct run *run);
/* Whether the micro-batch before this one has been run by all stages, or is of an earlier life; ended_is_run_here: by this
 * worker's. */
bool ended_is_through(const struct run *run, uint64_t micro_batch);
bool ended_is_run_here(const struct run *run, uint64_t micro_batch);
/* Takes in what the operators answered; returns whether one of them is not done. Where no micro-batch behind the end
 * was formed yet: whether an operator may have work left then. */
bool ended_has_work(struct run *run);
/* Appends to a checkpoint's positions which operators are done; reads it back. false: the bytes are too short. */
void ended_save(const struct run *run, struct byte_buffer *out);
bool ended_restore(struct run *run, struct words *saved);

/* replay.c */
/* Once positions are restored: finds the first segment, and in a run that begins anew adds the partitions
 * that it names. false after a diagnostic. */
bool replay_begin(struct run *run);
enum replay_state { REPLAY_WAIT, REPLAY_NUMBER, REPLAY_LAST, REPLAY_OUT };
/* Whether the log's next micro-batch can be formed. REPLAY_NUMBER: yes. REPLAY_LAST: yes, and all sources end
 * with it. REPLAY_OUT: the log has ended, and the order behind it cannot be computed. REPLAY_WAIT: not yet;
 * also after an error, and at the end of a log behind which the order is computed (sequencer.is_replaying is
 * then false). */
enum replay_state replay_ready(struct run *run);
/* Whether the next micro-batch begins at or after --until. */
bool replay_is_beyond(const struct run *run);
/* After REPLAY_NUMBER or REPLAY_LAST: what the log's next micro-batch holds. */
void replay_choose(struct run *run, struct number *number);
/* replay_rows.c */
/* How records differ from the log. */
struct replay_finding {
    enum replay_found {
        FOUND_SHORTER,          /* the partition ends within the slice */
        FOUND_TOO_MANY_BATCHES, /* more than can be read ahead have its records */
        FOUND_LOST,             /* records of the slice are gone */
        FOUND_OTHER,            /* other records are there */
        FOUND_MORE,             /* records are there, where the partition ends in the log */
        FOUND_TAGS
    } tag;
    uint32_t partition;
    /* Records found for the slice, order time and offset of the last one; whether the slice was looked for by its offset; the
     * partition's records and next offset before it. */
    uint64_t found;
    int64_t time, offset;
    bool are_by_offset;
    uint64_t records_before;
    int64_t offset_before;
};
/* Whether the rows of a slice are read, and are those of the log; whether a partition has ended, as the log says. *finding: set with
 * REPLAY_DIFFERS. REPLAY_FITS_LATER: not known yet. */
enum replay_fit { REPLAY_FITS, REPLAY_FITS_LATER, REPLAY_DIFFERS };
enum replay_fit replay_fit_slice(struct run *run, const struct order_slice *slice,
                                 struct replay_finding *finding);
enum replay_fit replay_fit_end(struct run *run, struct partition *p, struct replay_finding *finding);
/* Fails the run, and says what differs. number: of the micro-batch, in the log. slice: NULL with FOUND_MORE. */
void replay_say(struct run *run, uint64_t number, const struct order_slice *slice,
                const struct replay_finding *finding);
/* Cuts the number's slices, which fit. */
void replay_cut(struct run *run, const struct number *number);

/* log.c: entries of the order log that is written */
/* What the log that is written begins with: what the partition has done so far. */
void log_known(struct partition *p);
/* Begins a new piece of the log, with an entry for each partition. */
void log_begin(struct run *run);
void log_micro_batch(struct run *run, const struct number *number, const struct cut *cut);
void log_ended(struct run *run, struct partition *p);
void log_idle(struct run *run, const struct partition *p);
void log_added(struct run *run, struct partition *p);
/* At a barrier, after log_micro_batch: seals the open piece and begins a new one. */
void log_seal(struct run *run);
/* Call after each micro-batch. Asks for a checkpoint if the open piece is long; without checkpoints, writes
 * it to the file of --record-order. false: the write failed, and the run has failed. */
bool log_keep_up(struct run *run);

#endif
