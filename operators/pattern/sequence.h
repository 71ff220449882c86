/* What `pattern` remembers of a key, and how a row changes that. The rules are in pattern.c. Times are
 * microseconds of event time. */
#ifndef LEAT_OPERATORS_PATTERN_SEQUENCE_H
#define LEAT_OPERATORS_PATTERN_SEQUENCE_H

#include "state/state.h"

enum {
    SEQUENCE_STEPS_MAX = 8,
    SEQUENCE_UNLESS = 1 << SEQUENCE_STEPS_MAX, /* bit of a row that fits `unless`; bit i: it fits step i */
    SEQUENCE_WAITING_MAX = 1024,               /* waiting matches of a key */
};

struct sequence {
    uint32_t steps;
    int64_t within_us;
    bool waits; /* matches wait for their deadlines (`unless`) */
};

/* A beginning: the times of the rows that fit its steps, and these rows' `keep` columns, in order. */
struct sequence_beginning {
    int64_t times[SEQUENCE_STEPS_MAX];
    struct str kept, more; /* more: columns of the newest row, if not in `kept` yet */
};

/* A match that waits: the event times of its first and last row. */
struct sequence_waiting {
    int64_t first, last;
    uint64_t id; /* rises with each match of the key */
};

struct sequence_head {
    uint64_t id;      /* of the newest match */
    uint32_t begun;   /* bit n: there is a beginning of n steps */
    uint32_t waiting; /* how many matches wait */
};

struct sequence_state {
    struct sequence_head head;
    const char *waiting;                              /* head.waiting structs, in the entry */
    uint32_t undone;                                  /* waiting match that a row undid; UINT32_MAX: none */
    bool has_added;                                   /* `added` is set */
    struct sequence_waiting added;                    /* a new match that is to wait */
    struct sequence_beginning of[SEQUENCE_STEPS_MAX]; /* of[n]: n steps long, 1 <= n < steps */
};

/* Reads the entry; `state` points into it. slot: NULL if there is no entry. */
void sequence_load(const struct sequence *sequence, const struct keyed_slot *slot,
                   struct sequence_state *state);
/* Writes the state to the entry, inside a bracket. watermark: of the micro-batch before; waiting matches
 * whose deadlines it has passed are out and are dropped. scratch: room to build the entry. */
void sequence_save(const struct sequence *sequence, struct keyed_table *table, struct keyed_slot *slot,
                   const struct sequence_state *state, int64_t watermark, struct byte_buffer *scratch);

/* Whether the match with that id still waits. slot: the key's entry, or NULL. */
bool sequence_waits(const struct sequence *sequence, const struct keyed_slot *slot, uint64_t id);

struct sequence_match {
    int64_t times[SEQUENCE_STEPS_MAX];
    struct str kept; /* `keep` columns of all steps but the last; points into the entry, as the state does */
    uint64_t id;
};

enum sequence_fate {
    SEQUENCE_UNUSED, /* the row changed nothing; the state need not be saved */
    SEQUENCE_TAKEN,  /* the row began or lengthened a beginning */
    SEQUENCE_UNDONE, /* the row undid a waiting match */
    SEQUENCE_MATCH,  /* the row fits the last step: `match` is set */
    SEQUENCE_FULL,   /* the row would complete a match, but too many wait; nothing changed */
};

/* Applies a row that fits a step or `unless` and is not late. fits: the row's bits. time: its event time.
 * kept: its `keep` columns, valid until the state is saved. */
enum sequence_fate sequence_take(const struct sequence *sequence, struct sequence_state *state,
                                 int64_t watermark, uint32_t fits, int64_t time, struct str kept,
                                 struct sequence_match *match);

struct describe;
/* Writes beginnings and waiting matches. names: of the steps. Returns false if there are none. */
bool sequence_describe(const struct sequence *sequence, const struct sequence_state *state, int64_t watermark,
                       const char *const *names, struct describe *out);

#endif
