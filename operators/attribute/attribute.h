/* Inside operators/: shared by the files of `attribute`. attribute.c: options, open, checkpoints and close.
 * attribute_answers.c keeps the answers, attribute_wait.c holds rows until their deadline, attribute_early.c
 * emits rows before it. */
#ifndef LEAT_OPERATORS_ATTRIBUTE_ATTRIBUTE_H
#define LEAT_OPERATORS_ATTRIBUTE_ATTRIBUTE_H

#include "operators/hot_keys.h"
#include "operators/keys.h"
#include "operators/ready.h"
#include "operators/rows/held.h"
#include "operators/rows/versions.h"
#include "operators/tally.h"

enum attribute_take { ATTRIBUTE_ANY, ATTRIBUTE_FIRST, ATTRIBUTE_LAST, ATTRIBUTE_ALL };
enum attribute_emit { ATTRIBUTE_AT_DEADLINE, ATTRIBUTE_AT_ONCE, ATTRIBUTE_FAKE_NEGATIVE };
/* Indices into tally.values. Each counts what a key had no room for. ANSWERS_DROPPED: dropped answers.
 * ROWS_DROPPED: with fake_negative, rows that will not be emitted a second time. ROWS_LEFT_OUT: with at_once,
 * rows that wait for their deadline even if an answer comes. */
enum { ATTRIBUTE_ANSWERS_DROPPED, ATTRIBUTE_ROWS_DROPPED, ATTRIBUTE_ROWS_LEFT_OUT };

struct attribute {
    struct name_ref stream;
    struct columns on;
    int64_t within_us;
    struct name_ref label;
    int take, emit;
    struct assignments values;
    /* Made by bind. */
    int *keys, *answer_keys;
    const struct schema *input;
    struct version_columns columns;
    bool keeps_rows; /* the table keeps versions of answer rows, not just event times */
    /* Of the lane. */
    struct keyed_table *table;   /* key -> rising event times of the answers, or versions of the answers */
    struct keyed_table *waiting; /* with an early `emit`: key -> rows without an answer so far, as versions */
    struct time_queue *queue;    /* waiting rows by deadline */
    struct held_layouts *layouts;
    struct byte_buffer packed, encoded, popped;
    struct held_rows released;
    struct row_order last_due, last_given; /* last orders in this micro-batch; last_given: with `take all` */
    struct tally tally;
    struct hot_keys *hot;
    struct early *early; /* of the micro-batch in progress (attribute_early.c) */
};

/* --- attribute_answers.c --- */

/* Stores the answers of a batch of input 1, where the order of the two inputs does not matter. */
void attribute_take_answers(struct operator_context *context, struct attribute *attribute,
                            const struct batch *batch);
/* Stores one answer. slot: the entry of its key, inside a bracket; time: its event time, microseconds;
 * values: its encoded columns. Returns false if the last deadline that the answer can meet is behind the
 * watermark: the answer is then counted in late_updates and not stored. */
bool attribute_take_answer(struct operator_context *context, struct attribute *attribute,
                           struct keyed_slot *slot, int64_t time, struct str values);
/* For keys that keep only event times: whether an answer is in [from, from + within]. slot: may be NULL, in
 * this and the next two functions. */
bool attribute_is_answered(const struct attribute *attribute, const struct keyed_slot *slot, int64_t from);
/* A cache: where the last search of each slot ended within one bracket (keyed_begin to keyed_end). Rows of a
 * key search by rising time, so the next search starts at that end, however many answers the key has. The
 * cache never changes a result. */
enum { ATTRIBUTE_FINGERS = 128 };
struct attribute_fingers {
    struct {
        const struct keyed_slot *slot;
        const struct version *at;
    } items[ATTRIBUTE_FINGERS];
};
/* For keys that keep versions: the first and the last version in [from, from + within], or NULL. fingers:
 * zeroed when the bracket began, and the entries are not written to in that bracket; NULL: the search starts
 * at the newest version. */
const struct version *attribute_first(const struct attribute *attribute, struct attribute_fingers *fingers,
                                      const struct keyed_slot *slot, int64_t from);
const struct version *attribute_last(const struct attribute *attribute, struct attribute_fingers *fingers,
                                     const struct keyed_slot *slot, int64_t from);

/* --- attribute_wait.c --- */

/* Holds the rows of a batch of input 0 until their deadline; emits late ones to `late`. */
void attribute_hold(struct operator_context *context, struct attribute *attribute, struct batch *batch);
/* Emits the rows whose deadline is before the watermark, with their labels. */
void attribute_release(struct operator_context *context, struct attribute *attribute, int64_t watermark);

/* --- attribute_early.c --- */

/* Processes a micro-batch: the rows and answers of both inputs, in order. */
void attribute_early(struct operator_context *context, struct attribute *attribute, struct merge *merge);
/* at_once: emits the rows that still wait and whose deadline is before the watermark. */
void attribute_early_release(struct operator_context *context, struct attribute *attribute,
                             int64_t watermark);

#endif
