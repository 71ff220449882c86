/* Kept rows: the best rows of each group by an order, for `top_n` and `dedup keep last`. One thread.
 *
 * A group is an entry of a keyed table. Its value is one list per window, one after the other by rising
 * window number; where there is one window for all time, its number is 0. A list:
 *
 *     head | items, the worst row first | the rows' bytes
 *
 * An item has the words of the row's order key (ordering.h) and the place of the packed row (packed.h); the
 * texts of the order key lie behind the packed row. A row that is no better than the worst of a full list
 * costs a look at the list's first cache line. A row that enters takes the room of the rows that it pushes
 * out. Lists grow by half, up to what a full list is likely to need.
 *
 * Rows leave a list at its worst end only. So the changes of a micro-batch follow from the list before it and
 * the list after it: of the earlier rows the best ones are still there, and each new row has a sequence
 * number of at least the earlier list's `sequence`. */
#ifndef LEAT_OPERATORS_ROWS_KEPT_H
#define LEAT_OPERATORS_ROWS_KEPT_H

#include "core/change.h"
#include "operators/keys.h"
#include "operators/rows/ordering.h"
#include "operators/rows/packed.h"

struct kept_head {
    int64_t window;
    uint64_t noted;       /* 1 + the micro-batch that last changed the list; 0: none */
    uint32_t bytes;       /* of the whole list, a multiple of 8 */
    uint32_t used;        /* bytes of the packed rows, with the texts of their order keys */
    uint32_t count, room; /* items: used, and allocated */
    uint32_t sequence;    /* sequence number of the next row */
    uint32_t spare;
};

/* The second part of an item, behind the words of the order key. */
struct kept_place {
    uint32_t at, bytes; /* of the packed row: offset within the rows' bytes; length without key texts */
    uint32_t sequence;  /* sequence number of the row in its list */
    uint32_t nulls;     /* null bits of the order key (order_key.nulls) */
};

/* Set by the operator before kept_open. */
struct kept_options {
    const struct schema *input;
    const struct ordering *ordering;
    uint32_t limit;    /* the most rows of a list, without those that takes_ties adds */
    bool takes_ties;   /* also keeps rows equal to the last one of `limit` */
    bool last_wins;    /* of equal rows the later one is better */
    bool is_one;       /* with limit 1: a new row is emitted as an update of the old row */
    int rank_column;   /* output column; -1: none */
    int change_column; /* output column `_op`; -1: rows are not changes */
    bool ends_windows; /* emitted rows get their window's end - 1 us as event time */
};

/* Copies of one list: as it was before the current micro-batch, and as it is now. */
struct kept_copy {
    uint64_t hash;
    struct key key;
    int64_t window;
    size_t at;     /* offset in kept.lists of the list as it is now; SIZE_MAX: there is none */
    size_t before; /* offset in kept.befores of the list as it was before; SIZE_MAX: there was none */
};

struct kept_copies {
    struct kept_copy *items;
    uint32_t count, capacity;
};

struct kept {
    struct kept_options options;
    uint32_t item_bytes;
    struct keyed_table *table;
    struct held_layouts *layouts; /* the schemas that stored rows may have */
    struct byte_buffer packed;    /* the row being offered */
    /* changes: lists changed in this micro-batch, with options.change_column. copies: lists of the window
     * being emitted, of one key group at a time. */
    struct kept_copies changes, copies;
    struct byte_buffer befores, lists; /* copies of lists, aligned to 8 */
    struct packed_rows released;       /* the output batch being filled */
};

/* The table and the layouts of a struct kept, as members of an operator's state. options_member: the
 * operator's struct kept_options, whose `input` is NULL if the operator keeps no rows. */
#define STATE_KEPT(structure, member, options_member)                                                        \
    STATE_LAYOUTS(structure, member.layouts, 'L', options_member.input),                                     \
        STATE_TABLE(structure, member.table, 'k', NULL)
/* Call when kept->table and kept->layouts are set. Copies *options; options->input and options->ordering must
 * live as long as `kept`. */
void kept_open(struct kept *kept, const struct kept_options *options);
void kept_close(struct kept *kept); /* allowed on a zeroed struct */

struct kept_candidate {
    const struct batch *batch;
    uint32_t row; /* physical */
    uint64_t hash;
    uint64_t micro_batch;
    struct order_key key;
    int64_t window;
    int64_t first_alive; /* lists of windows before this one were emitted already: they are dropped */
    int64_t expire_us;   /* end of the list's window: the entry lives at least until then */
};

enum kept_answer {
    KEPT_OUT, /* the row is not among the best */
    KEPT_IN,
    KEPT_FULL, /* the row is among the best, but there is no room: a group has at most 8 MiB */
};

/* Offers a row to its list; with KEPT_IN the list has the row. slot: the group's entry of kept->table, inside
 * a bracket (state/state.h). */
enum kept_answer kept_offer(struct kept *kept, struct keyed_slot *slot, const struct kept_candidate *row);

/* The list of a window in a group's value, or NULL. */
const struct kept_head *kept_find(const struct keyed_slot *slot, int64_t window);
/* The next list of a group: the one after `list`, or the first where `list` is NULL. NULL at the end. */
const struct kept_head *kept_next(const struct keyed_slot *slot, const struct kept_head *list);
/* The i-th best row of a list, from 0: its order key, which points into the list; its packed bytes; its
 * struct kept_place. */
struct order_key kept_key(const struct kept *kept, const struct kept_head *list, uint32_t i);
struct str kept_bytes(const struct kept *kept, const struct kept_head *list, uint32_t i);
const struct kept_place *kept_place(const struct kept *kept, const struct kept_head *list, uint32_t i);

/* --- Rows out (kept_emit.c); not inside a bracket --- */

/* Emits all rows of a window, in the order (hash of the key, rank). end: end of the window, microseconds. */
void kept_emit_window(struct kept *kept, struct operator_context *context, int64_t window, int64_t end);
/* Emits the changes of the current micro-batch, in the same order, and forgets them. */
void kept_emit_changes(struct kept *kept, struct operator_context *context);

/* --- Shape, `leat state get` --- */

/* Lists the rows of a group, by window. slot: the group's entry, or NULL. windows: gives a window's start and
 * end, in microseconds; NULL: one window for all time. Returns whether the group has rows. */
struct kept_windows {
    const void *argument;
    int64_t (*start)(const void *argument, int64_t window);
    int64_t (*end)(const void *argument, int64_t window);
};
bool kept_describe(struct kept *kept, struct operator_context *context, const struct keyed_slot *slot,
                   const struct kept_windows *windows, struct describe *out);
/* Writes the lines for `operator_kind.shape`: what of the operator must stay the same for its kept rows. */
void kept_shape(const struct operator_bind *bind, const struct kept_options *options,
                struct byte_buffer *out);

#endif
