/* Private to peers.c, peers_lead.c and peers_own.c. All under the sequencer's mutex. */
#ifndef LEAT_RUN_SEQUENCER_PEERS_INTERNAL_H
#define LEAT_RUN_SEQUENCER_PEERS_INTERNAL_H

#include "run/base/inbox.h"
#include "run/base/peers.h"
#include "run/sequencer/internal.h"

/* An end of a partition's rows, at which a micro-batch may end. */
struct known_end {
    int64_t time; /* order time of the last row */
    bool is_cut;
    int64_t before_until; /* order time of the last row below --until; TIME_MIN: none is */
};

/* What there is to a partition besides struct partition. */
struct peer_partition {
    /* The owner's: pieces below this one were offered, and of this one the rows below `row`. */
    uint64_t piece;
    uint32_t row, since_cut, skip_rows;
    bool has_begun;
    unsigned said; /* enum offer_state, as it was said last */
    /* Likewise, where the partition's source has `align:`: behind the rows that were offered, the newest event time of good rows, and
     * whether rows have an order of their own. */
    int64_t event;
    bool has_own_order;
    /* The leader's: what the partition offers and no micro-batch has taken: `count` ends from `first` on, in a ring. */
    struct known_end *ends;
    uint32_t first, count, room;
    unsigned state; /* enum offer_state, behind these ends */
    int64_t newest; /* order time of the newest end that was offered; TIME_MIN: none was */
    int64_t dry_us; /* with OFFERS_DRY: monotonic time since when */
    bool is_over;   /* a micro-batch says so to all */
    bool
        was_over; /* by the log that is replayed it was before this life: owners are told so, and no entry is written */
    bool is_idle; /* likewise, and it has offered no rows since */
    struct {
        int64_t time;
        bool is_whole;
    } taken; /* with --until: its rows up to this order time are taken, and where is_whole, those of that time */
    int64_t cut_time, cut_offset; /* of the newest slice that its owner has cut */
    struct next_event next;       /* once the micro-batch that was chosen last is cut */
    struct byte_buffer
        position; /* the leader's: what the owner said of the last micro-batch with a barrier */
};

enum { ENDS_MAX = PIECES_MAX * BATCH_ROWS /* ends that are offered at once: of all rows read ahead */ };

/* What comes behind the rows that were offered. */
enum offer_state {
    OFFERS_ENDED = 1,
    OFFERS_DRY = 2,
    OFFERS_QUIET = 4, /* dry, and all records were read */
    OFFERS_RISEN =
        8, /* with any of them: partition_has_risen, so that a barrier without rows has something to save */
};

/* Partitions that are over with a micro-batch; become idle with it; give it no rows, because they have none and are not waited for,
 * or because `align:` holds them back. */
enum list { LIST_OVER, LIST_IDLE, LIST_WITHOUT, LISTS };
struct ids {
    uint32_t *items, count, room;
};
void ids_add(struct ids *ids, uint32_t id);

/* The leader's: a micro-batch that is chosen, and not yet formed. */
struct chosen {
    struct number number;
    struct cut cut;     /* what owners have said */
    uint32_t cuts_left; /* owners that have not */
    struct ids over, idle, without;
    struct order_slice *slices; /* in a replay, of all owners */
    uint32_t slices_count, slices_room;
};

/* What messages say is bounded in number (offers of the rows that are read ahead; numbers, cuts and formed micro-batches, of which SLOTS
 * are under way), but not in bytes, and changes of an offer's state are not bounded at all. So they get one part in so many of the
 * waiting budget at most. */
enum { INBOX_SHARE = 8 };

struct sequencer_peers {
    struct inbox inbox; /* messages that wait for a lane which forms micro-batches */
    struct peer_partition *partitions;
    struct byte_buffer out;
    _Atomic unsigned holds
        [RUN_WORKERS_MAX]; /* what each worker has said that holds, a set of enum hold; own_holds: this worker */
    unsigned own_holds;
    uint64_t own_next; /* the next micro-batch that the leader will tell */
    struct cut own;    /* what the last cut of this worker's rows showed */
    /* PEER_NUMBER, PEER_PARTITION and PEER_COMPUTE that wait for rows of this worker, at most TOLD_MAX. */
    struct message *told, **told_last;
    uint32_t told_count;
    uint32_t
        *said_found; /* per source: how many of its partitions this worker has found, as it was said last */
    struct ids lists[LISTS]; /* of the number that is taken */
    struct order_slice *own_slices;
    uint32_t own_slices_room;
    bool offers;       /* this worker offers what its partitions have; not while a log is replayed */
    bool has_differed; /* it has said that records differ from the log */
    /* The leader's. */
    uint64_t next; /* micro-batches below this number were chosen */
    bool has_chosen_end;
    bool is_by_log;           /* it chooses by a log, and has not said that this has ended */
    uint32_t told_partitions; /* partitions below this id are known to all owners */
    uint32_t *found;          /* by worker, and by source: how many of its partitions that worker has found */
    uint64_t cuts_next[RUN_WORKERS_MAX]; /* by owner: the next micro-batch that it will have cut */
    struct chosen chosen[SLOTS];
};

static inline struct chosen *chosen_at(struct sequencer_peers *peers, uint64_t micro_batch)
{
    return &peers->chosen[micro_batch & (SLOTS - 1)];
}

/* Sends peers->out, also where the worker is this one. */
void peers_send_to(struct run *run, uint32_t worker);

/* What becomes of a message of the leader. */
enum told { TOLD_TAKEN, TOLD_LATER /* it waits for rows */, TOLD_BAD /* the job cannot have it */ };
enum { TOLD_MAX = 4 * SLOTS + PARTITIONS_MAX };

/* peers_barrier.c: what messages say of a barrier; those that take return false where the message cannot be
 * one of this job.
 *   - put_barrier: whether the micro-batch that was chosen has one; take_barrier: takes that in.
 *   - put_positions: where this worker's partitions stand behind the micro-batch that was cut; lead_take_positions: the leader takes
 *     that in, from their owner.
 *   - put_formed_barrier: which barrier the slot's micro-batch has, now that it is formed, and which change of the placement comes
 *     with it; take_formed_barrier takes that in. */
void put_barrier(const struct number *number, struct byte_buffer *out);
bool take_barrier(const struct run *run, struct number *number, struct words *message);
void put_positions(struct run *run, const struct number *number, struct byte_buffer *out);
bool lead_take_positions(struct run *run, uint32_t from, const struct number *number, struct words *message);
void put_formed_barrier(const struct run *run, const struct slot *slot, struct byte_buffer *out);
bool take_formed_barrier(struct run *run, struct slot *slot, struct words *message);

/* peers_own.c: every worker, of its partitions. own_take_number: takes PEER_NUMBER. */
void own_offer(struct run *run);
enum told own_take_number(struct run *run, struct words *message);

/* peers_found.c. own_find: asks the sources for new partitions, and tells the leader; lead_take_found: takes that; false: it cannot
 * be. */
void own_find(struct run *run);
bool lead_take_found(struct run *run, uint32_t from, struct words *message);

/* peers_replay.c: a replay. Every worker: takes PEER_PARTITION and PEER_COMPUTE; takes the slices of a number; whether they, and
 * what ends with it, are the log's: where they are not, the leader is told so, once. */
enum told own_take_partition(struct run *run, struct words *message);
enum told own_take_compute(struct run *run, struct words *message);
bool own_take_slices(struct run *run, struct number *number, struct words *message);
enum told own_fit(struct run *run, const struct number *number);
/* The leader: tells partitions that the log has named, or that were found, and that the log has ended (false: it has not, or that was told); notes the
 * slices of the number that was chosen; appends those of a worker to PEER_NUMBER; takes them from PEER_CUT, and PEER_DIFFERS. */
void lead_tell_partitions(struct run *run);
bool lead_tell_compute(struct run *run);
void lead_note_slices(struct run *run, struct chosen *chosen);
void lead_put_slices(const struct run *run, const struct chosen *chosen, uint32_t worker,
                     struct byte_buffer *out);
bool lead_is_logged(const struct run *run, const struct chosen *chosen, uint32_t from, uint64_t index,
                    const struct cut_slice *slice);
bool lead_take_differs(struct run *run, uint32_t from, struct words *message);

/* peers_lead.c: the leader. lead_take_...: take PEER_OFFERS and PEER_CUT of a worker; false: it is none. lead_choose: chooses the
 * next micro-batch, and tells all owners; lead_finish: finishes the next one, if all owners have cut it, and tells all others;
 * false: not possible now. */
bool lead_take_offers(struct run *run, uint32_t from, struct words *message);
bool lead_take_cut(struct run *run, uint32_t from, struct words *message);
bool lead_choose(struct run *run);
bool lead_finish(struct run *run);

/* peers_hold.c. peers_say_holds: says to all others what holds here, if that has changed, and at a worker that does not lead, notes
 * why its lanes wait. peers_take_holds: takes PEER_HOLD; false: it is none. Transport's thread. */
void peers_say_holds(struct run *run);
bool peers_take_holds(struct run *run, uint32_t from, struct words *message);

/* peers_ended.c. lead_take_answer: takes PEER_ANSWER; false: nobody asked for it. Transport's thread. lead_put_done: appends to
 * PEER_FORMED which operators are done; own_take_done takes that, once slot->is_end and is_final are set; false: it cannot be. */
bool lead_take_answer(struct run *run, uint32_t from, struct words *message);
void lead_put_done(const struct run *run, const struct slot *slot, struct byte_buffer *out);
bool own_take_done(struct run *run, struct slot *slot, struct words *message);

#endif
