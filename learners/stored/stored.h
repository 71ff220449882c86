/*
 * What checkpoints and cuts have of a learner that consists of tables (learners/tables) and of small parts: dense
 * weights, evaluation, numbers of items. One writer and one reader for all such kinds; snapshots, deltas and cuts as
 * core/snapshot.h and core/operator.h have them.
 *
 * A checkpoint's records, all global (of no key group), each with a struct record_head (tables/records.h):
 *   'H' the epoch that the checkpoint closes, the numbers of tables and parts
 *   'T' table, all rows, in memory and cold; of each table with a cold store
 *   'Q' a piece of a part, at most 8 MiB: its name, then bytes; `field` is 1 in the part's last piece. All parts, in
 *       their order
 *   'D', 'R', 'C' table, shard, removed keys, rows, counts (tables/records.h); by the checkpoint's thread, while the
 *       owner goes on
 * The records before 'D' are written at the barrier. A restore applies base, then deltas. Of a journal it takes the bytes
 * of each; of another part the last bytes count.
 *
 * A cut: a head, then a section of each table (tables/cut.h), then one of each part that predictions depend on. It ends an
 * epoch, as a checkpoint does.
 *
 * The tables' owner makes all calls.
 */
#ifndef LEAT_LEARNERS_STORED_STORED_H
#define LEAT_LEARNERS_STORED_STORED_H

#include "core/buffer.h"
#include "core/operator.h"
#include "learners/tables/table.h"

enum {
    STORED_TABLES_MAX = 64,
    STORED_PARTS_MAX = 16,
    STORED_NAME_BYTES = 16, /* of a part's name, with the NUL at its end */
};

/* State outside of tables. All functions are called by the owner. */
struct stored_part {
    const char *name; /* static; 1 to 15 bytes, of no other part */
    void *of;
    /* Appends the state; of a journal only what changed in epochs since + 1 .. now (since 0: all). */
    void (*save)(void *of, uint32_t since, struct byte_buffer *out);
    /* Takes what `save` appended: replaces the state; a journal's bytes are added to what was loaded before, those saved
     * with since 0 replace it. A restore calls it for a journal at each of its records, for another part once, when the
     * tables have their rows. Returns NULL, or why the bytes, which may be any, are refused, as static text. */
    const char *(*load)(void *of, const void *data, size_t bytes);
    bool is_journal;
    bool is_for_readers; /* predictions depend on it: cuts have it, too */
    /* The same for cuts, each of them where it differs; NULL: save, load. A follower's state may be later than the first
     * cuts that it takes, so that load_reader of a journal has to take changes that are older than the state. */
    void (*save_reader)(void *of, uint32_t since, struct byte_buffer *out);
    const char *(*load_reader)(void *of, const void *data, size_t bytes);
    /* Changes from now on belong to this epoch, which never falls. NULL: the part need not know. */
    void (*set_epoch)(void *of, uint32_t epoch);
};

struct stored_snapshot;
struct stored {
    struct table *tables[STORED_TABLES_MAX]; /* not owned */
    struct stored_part parts[STORED_PARTS_MAX];
    uint32_t tables_count, parts_count;
    uint32_t epoch;                   /* that changes now belong to; 1 at first */
    uint32_t published;               /* the epoch that the last published checkpoint closed; 0: none yet */
    uint32_t noted;                   /* the epoch that the last cut closed, or stored_cut_note */
    bool notes_changes;               /* for cuts */
    size_t cut_parts_bytes;           /* of the parts in the last cut */
    struct stored_snapshot *snapshot; /* in progress; NULL: none */
};

/* Before the first change of the tables and parts, which must outlive `stored`; the lists are copied. The number, order
 * and options of tables and the names of parts must follow from the job alone. Nothing needs to be freed but a snapshot
 * in progress: stored_settle(stored, true). */
void stored_init(struct stored *stored, struct table *const *tables, uint32_t tables_count,
                 const struct stored_part *parts, uint32_t parts_count);

/* operator_kind.snapshot: at the barrier. Writes the parts, begins the tables' snapshots, and hands over the job that
 * writes their rows. False: the disk failed, and the checkpoint is abandoned. */
LEAT_CHECKED bool stored_snapshot(struct stored *stored, struct snapshot_writer *writer);
/* Ends the snapshot in progress if its outcome is known. is_closing: the engine closes the learner, so the outcome is known
 * for certain. Call it before each micro-batch, and before the tables are freed. */
void stored_settle(struct stored *stored, bool is_closing);
/* operator_kind.restore, into fresh tables and parts. False after a diagnostic: the records, which may be damaged or
 * hostile, are not of these tables and parts; then they can only be freed. */
LEAT_CHECKED bool stored_restore(struct stored *stored, struct operator_context *context,
                                 struct snapshot_reader *reader);

/* operator_kind.cut_note, cut, cut_bytes, take_cut. `out` is unchanged where stored_cut returns false. step: rows used by
 * that step are not removed by expiry (table_take_cut). */
LEAT_CHECKED bool stored_cut_note(struct stored *stored, bool is_on);
LEAT_CHECKED bool stored_cut(struct stored *stored, struct byte_buffer *out);
size_t stored_cut_bytes(const struct stored *stored);
LEAT_CHECKED bool stored_take_cut(struct stored *stored, struct str bytes, uint32_t step);

/* numbers.c: the numbers of items as a part: a journal, for readers. */
struct items_numbers;
struct stored_part stored_numbers(const char *name, struct items_numbers *numbers);

/* weights.c: the weights of a network as a part, with the optimizer's state, and for readers without. Of a network on a
 * GPU, which has to have net->error, its first failure is noted there: ask behind each call that saves or loads. */
struct net;
struct stored_part stored_weights(const char *name, struct net *net);
/* Shows a visitor (core/learner.h) the same weights, whose names begin with `prefix`; the rows of a table, whose payloads
 * begin with `dim` floats. False: the visitor stopped. */
struct model_visitor;
bool stored_visit_net(const struct net *net, const char *prefix, struct model_visitor *visitor);
bool stored_visit_table(const struct table *table, const char *name, uint32_t dim,
                        struct model_visitor *visitor);

#endif
