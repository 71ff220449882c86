/* The state of an operator, as a table beside its options: a row for each member of its struct that
 * checkpoints contain.
 *
 *     static const struct state_member fill_forward_state[] = {
 *         STATE_TALLY(struct fill_forward, tally, 't', fill_forward_figures),
 *         STATE_TABLE(struct fill_forward, table, 'k', NULL),
 *         STATES_END,
 *     };
 *
 * The engine makes these members, saves them in the order of the rows, restores, expires, reports and frees
 * them; the operator reads and changes them. An operator with rows may have callbacks of operator_kind, too;
 * the order of the two is fixed:
 *
 *     open          the members are made, then `open`
 *     on_watermark  `on_watermark`, then the watermark is set in the members
 *     report        the members' figures, then `report`
 *     close         `close`, then the members are freed
 *
 * State is saved and restored by the rows alone, or by `snapshot` and `restore` alone. A record begins with
 * its row's tag; a record of a tag that no row has, or of a member that this configuration of the operator
 * does not have, is a diagnostic.
 *
 * Kinds of members: state/members.h (keyed tables, time queues); operators/tally.h, hot_keys.h,
 * rows/held.h. */
#ifndef LEAT_CORE_OPERATOR_STATE_H
#define LEAT_CORE_OPERATOR_STATE_H

#include "core/operator.h"

/* What a row's member gets in one configuration of the operator. */
struct state_plan {
    bool is_absent;      /* the configuration has no such member: its pointer stays NULL */
    size_t memory_bytes; /* budget of a keyed table or time queue */
    int64_t bucket_us;   /* time queues: about the usual wait / 64, at least 1 */
    int64_t hold_us;     /* time queues: a record leaves when the watermark has passed its time + hold_us */
};

/* A row of the table. Its tag, the first byte of each of its records, differs from those of the other
 * rows. */
struct state_member {
    const struct state_kind *kind; /* NULL: the end of the table */
    size_t offset;                 /* of the member in the operator's struct */
    char tag;
    /* Called when the member is made and when it is restored, on the lane's copy of the struct; says the same
     * each time. NULL: the member is always there and gets all of the operator's memory. */
    struct state_plan (*plan)(const struct operator_context *context);
    const char *figure;   /* name of a figure in the report, as the kind says; may be NULL */
    size_t schema;        /* offset of a pointer to the rows' schema, where the kind keeps rows */
    const void *argument; /* more that the kind needs, as it says; may be NULL */
};

#define STATES_END                                                                                           \
    {                                                                                                        \
        .kind = NULL                                                                                         \
    }

/* Bytes of state of an instance: of each key group; and those of queues, of which it is known only that there are more of them for a group
 * with more rows. */
struct state_weight {
    uint64_t groups[KEY_GROUPS];
    uint64_t queued;
};

/* A kind of members. Each function but `open` gets the object: the member itself or, with is_pointer, what
 * the member points to; never NULL. `snapshot` and `restore` are never NULL; of the other functions, NULL:
 * nothing to do. One thread at a time calls them for an instance. */
struct state_kind {
    bool is_pointer;
    /* Makes the member, which is zeroed before; leaves its pointer NULL where the plan says is_absent. False:
     * the state store has failed. */
    bool (*open)(const struct state_member *row, const struct operator_context *context, void *member);
    /* Writes the object's records. False: the disk failed, and the checkpoint is abandoned. */
    bool (*snapshot)(const struct state_member *row, struct operator_context *context, void *object,
                     struct snapshot_writer *writer);
    /* Takes in a record with the row's tag. False after a diagnostic. */
    bool (*restore)(const struct state_member *row, struct operator_context *context, void *object,
                    struct snapshot_reader *reader, struct str record);
    /* Called after the last record. False: the restore has failed. */
    bool (*restored)(const struct state_member *row, struct operator_context *context, void *object);
    void (*set_watermark)(void *object, int64_t watermark);
    /* Moves of key groups between instances (core/placement.h), as records that begin with the row's tag. NULL: nothing in the
     * object belongs to key groups; of the two for bases: `give` gives all.
     *   - give_base: between two barriers, ahead of `give`: writes a part of what the object has of the groups now, in round 1;
     *     in each later round, of what has changed since the round before. *next is INT64_MIN at the first call of a round, and
     *     INT64_MAX when there is no more.
     *   - take_base: takes in such a record; the groups, `coming`, are still another instance's.
     *   - give: right after `snapshot` at the second barrier: writes all, or what has changed since the last round, and forgets
     *     it; then the groups leave context->groups.
     *   - regroup: context->groups has changed: all instances have given.
     *   - take: for each record of `give`, after regroup.
     *   - import: right after `open`: copies what a store of an earlier life has of context->groups.
     *   - forget_groups: right after `open`, where the object's store was taken over from an earlier life: deletes what it has of `groups`, which
     *     have gone to other workers.
     * False: the state store failed; of the two that take: the record is damaged. */
    bool (*give_base)(void *object, const struct group_set *leaving, uint32_t round, int64_t *next,
                      struct byte_buffer *out);
    bool (*take_base)(void *object, const struct group_set *coming, struct str record);
    bool (*give)(const struct state_member *row, struct operator_context *context, void *object,
                 const struct group_set *leaving, struct byte_buffer *out);
    void (*regroup)(void *object);
    bool (*take)(const struct state_member *row, struct operator_context *context, void *object,
                 struct str record);
    bool (*import)(void *object, struct state_store *from);
    /* Adds about how many bytes of state the object has of each key group of the instance. NULL: few. */
    void (*weigh)(void *object, struct state_weight *weight);
    bool (*forget_groups)(void *object, const struct group_set *groups);
    void (*report)(const struct state_member *row, void *object, struct report *report);
    void (*close)(void *object);
};

/* A record that the operator writes and reads itself: STATE_RECORD('e', &callbacks). */
struct state_record {
    /* Appends the record to `out`, which already has the record's tag. False: the checkpoint is abandoned. */
    bool (*write)(struct operator_context *context, struct byte_buffer *out);
    /* Takes in a record, tag included; every lane gets the records of all lanes. False after a diagnostic. */
    bool (*read)(struct operator_context *context, struct snapshot_reader *reader, struct str record);
    bool (*restored)(struct operator_context *context); /* after the last record; may be NULL */
    /* The record says something of keys' rows: it goes along when key groups move, and `read` takes it in, with a reader that
     * is NULL, while the instance is at work. */
    bool moves;
};
extern const struct state_kind state_record;
#define STATE_RECORD(tag_, callbacks)                                                                        \
    {                                                                                                        \
        .kind = &state_record, .tag = tag_, .argument = callbacks                                            \
    }

/* --- For the engine: an instance of an operator through its life --- */

/* Each of these functions serves the members and calls the kind's own callback, if there is one.
 * operator_open: false if that callback or a member's open has failed. */
bool operator_open(const struct operator_kind *kind, struct operator_context *context);
void operator_on_watermark(const struct operator_kind *kind, struct operator_context *context,
                           int64_t watermark);
/* Whether instances of the kind write into checkpoints. */
static inline bool operator_has_state(const struct operator_kind *kind)
{
    return kind->state != NULL || kind->snapshot != NULL;
}
/* False: the disk failed, and the checkpoint is abandoned. */
bool operator_snapshot(const struct operator_kind *kind, struct operator_context *context,
                       struct snapshot_writer *writer);
/* False after a diagnostic. */
bool operator_restore(const struct operator_kind *kind, struct operator_context *context,
                      struct snapshot_reader *reader);
void operator_report(const struct operator_kind *kind, struct operator_context *context,
                     struct report *report);
void operator_close(const struct operator_kind *kind, struct operator_context *context);

/* Moves of key groups: as state_kind says, for all members, or by the kind's own callbacks. operator_can_give: false: the
 * kind keeps keyed state, and has no such callback. */
bool operator_can_give(const struct operator_kind *kind);
/* Gives a part of a round of the base; `at` is zeroed at first in each round. at->is_done: there is no more. */
struct operator_base {
    uint32_t row;
    bool has_begun, is_done;
    int64_t next;
};
LEAT_CHECKED bool operator_give_base(const struct operator_kind *kind, struct operator_context *context,
                                     const struct group_set *leaving, uint32_t round,
                                     struct operator_base *at, struct byte_buffer *out);
LEAT_CHECKED bool operator_take_base(const struct operator_kind *kind, struct operator_context *context,
                                     const struct group_set *coming, struct str record);
LEAT_CHECKED bool operator_give(const struct operator_kind *kind, struct operator_context *context,
                                const struct group_set *leaving, struct byte_buffer *out);
void operator_regroup(const struct operator_kind *kind, struct operator_context *context);
/* given: what operator_give of another instance wrote. */
LEAT_CHECKED bool operator_take(const struct operator_kind *kind, struct operator_context *context,
                                struct str given);
void operator_weigh(const struct operator_kind *kind, struct operator_context *context,
                    struct state_weight *weight);
LEAT_CHECKED bool operator_import(const struct operator_kind *kind, struct operator_context *context,
                                  struct state_store *from);
LEAT_CHECKED bool operator_forget_groups(const struct operator_kind *kind, struct operator_context *context,
                                         const struct group_set *groups);

/* --- For kinds of members --- */

/* The row's plan; without row->plan: all of context->memory_bytes. */
struct state_plan state_plan_of(const struct state_member *row, const struct operator_context *context);

#endif
