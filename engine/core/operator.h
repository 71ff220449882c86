/* Operators: the descriptor that each file under operators/ ends with, and what its callbacks may call.
 *
 * Life: the option struct is bound from the job (core/option.h) into a master copy; `bind` checks it against
 * the input schemas and makes the output schema, once, with no side effect. For each lane the master is
 * copied byte by byte and `open` is called on the copy; from then on that copy, with all that it points to,
 * belongs to the lane's thread, except what `bind` made, which is shared and read-only. `close` is always
 * called, even after a failed `open` or without one, and tolerates zeroed state.
 *
 * Data: an operator reads batches that it does not own (batch_hold to keep one beyond the call) and gives
 * rows on with operator_emit. For each number it gets, in order: its input batches, then on_watermark. Rows
 * are late by context->watermark, which is the watermark of the number before, until on_watermark has
 * returned.
 *
 * Counting: the engine adds to counters.in (rows given to process, input 0 of process_merged included; other
 * inputs are counted by whoever reads them, in `in` and `absorbed`); operator_reject adds to `dead`; the
 * operator does the rest (passed, filtered, late, duplicate, absorbed, held, emitted). */
#ifndef LEAT_CORE_OPERATOR_H
#define LEAT_CORE_OPERATOR_H

#include "core/batch.h"
#include "core/buffer.h"
#include "core/counters.h"
#include "core/key.h"
#include "core/option.h"
#include "core/snapshot.h"

enum { OPERATOR_INPUTS_MAX = 64, OPERATOR_OUTPUTS_MAX = 8 };

/* What an output depends on; checked against promises of the plan. */
enum determinism {
    DETERMINISM_BY_ROW,          /* a row's output depends on that row alone: may run anywhere */
    DETERMINISM_BY_RECORD_ORDER, /* depends on the order of rows with the same key */
    DETERMINISM_BY_ALL_ROWS,     /* depends on the order of all rows: one instance only, unless bind gives
                                    key columns */
};

/* One input of an operator. */
struct operator_input {
    const struct schema *schema;
    struct str stream; /* its name in the job, for messages */
    struct span span;
    /* Filled by `bind`: rows with equal keys must come to one instance. none: any instance will do. */
    int *key_columns;
    uint32_t key_count;
};

struct registry;

struct operator_bind {
    void *config; /* the master copy of the option struct */
    struct arena *arena;
    struct diag_list *diags;
    struct span span; /* of the step, for messages */
    struct operator_input inputs[OPERATOR_INPUTS_MAX];
    uint32_t inputs_count;
    /* Filled by `bind`. outputs[0]: the stream itself; the others are side outputs, which streams and sinks
     * take as `NAME.late`; NULL: none. output_names: what stands behind the point; NULL: late. */
    const struct schema *outputs[OPERATOR_OUTPUTS_MAX];
    const char *output_names[OPERATOR_OUTPUTS_MAX];
    int64_t hold_us;    /* the output's watermark is the input's less this */
    bool is_timer_kind; /* may emit rows from on_watermark */
    bool sets_time;     /* gives rows an event time of their own, although the input may have none */
    /* Its rows and watermarks go by arrival (processing time): on_watermark and context->watermark are told
     * the clock of arrival (no row that is in order arrived before it; it goes on without records, too), rows
     * are to be taken by batch->arrival_time, which is there then, and the event times and watermarks of what
     * it emits are those. Refused where rows do not say when they arrived. */
    bool is_by_arrival;
    bool follows_load;   /* does what context->load says, which live runs decide and the order log keeps */
    bool needs_memory;   /* keeps keyed state or rows: takes a share of the job's `memory:` */
    bool needs_end;      /* gives its rows when the input has ended: refused where a source never does */
    uint32_t label_root; /* in: a lineage bit of its own, where the kind has makes_label */

    /* Learners only (core/learner.h). base_columns: columns of input 0 before add_column added any. */
    uint32_t base_columns;
    int (*add_column)(struct operator_bind *bind, const struct ast *expression);
    struct learner_columns *learner;

    /* Where a step reads a file of its own: the kinds that are known, and what binds their options. */
    const struct registry *registry;
    struct option_env *env;
};

struct cold_store;
struct team;

struct operator_context {
    void *config;   /* this lane's copy of the option struct */
    void *engine;   /* for operator_* functions */
    uint32_t place; /* the operator's place in the plan, from 0 */
    uint16_t id;    /* of its keyed state: the same at every start of the run, wherever its place is then */
    uint32_t lane, lanes;
    int64_t watermark; /* of the number before; TIME_MIN at first */
    uint64_t number;
    uint32_t load;               /* of the number, 0 .. ORDER_LOAD_MAX (bind: follows_load) */
    int64_t memory_bytes;        /* this instance's share of the budget, for keyed state and rows */
    const struct schema *output; /* outputs[0] of bind */
    struct batch_pool *pool;
    struct arena *scratch; /* reset after each call */
    struct counters counters;
    struct diag_list *diags; /* for open, restore */
    bool only_reads;         /* open: nothing will be processed, what is restored is looked at */
    bool compares;           /* open: a learner on a GPU is compared with one on the CPU (--compare) */
    bool is_from;            /* restore: what is restored is the state of another run (--from) */
    struct team *team;       /* other lanes that may help within process (core/team.h); NULL: none */
    struct state_store *state_store; /* where keyed state lives; NULL in an operator without needs_memory */
    /* Learners with needs_memory: where the rows of one of its tables go that do not fit (core/cold_store.h);
     * theirs to free. NULL: they stay in memory. */
    struct cold_store *(*cold_store)(struct operator_context *context, uint32_t table, size_t row_bytes);
};

/* Rows of several inputs in the one order of the number. Filled by the engine, read with merge_next. */
struct merge_row {
    struct batch *batch;
    uint32_t input; /* which of the operator's inputs */
    uint32_t row;   /* physical */
    uint32_t index; /* the row is the index-th selected one of its batch */
    bool is_last;   /* of its batch */
};
struct merge;
/* The next row by row_order; at equal order the lower input first. false at the end. */
bool merge_next(struct merge *merge, struct merge_row *row);
/* The batches of one input, in order, linked by `next`; for work ahead (hashing, prefetch). */
struct batch *merge_batches(struct merge *merge, uint32_t input);

/* Named figures of one operator, learner, source or sink. */
struct report_item {
    const char *name; /* static */
    double value;     /* NaN: not known */
    bool is_window;   /* over the last window instead of the whole run */
    const char *text; /* instead of the value; lives as long as the run; NULL: a value */
};
enum { REPORT_ITEMS_MAX = 320, REPORT_ERROR_BYTES = 400 };
struct report {
    uint32_t count;
    struct report_item items[REPORT_ITEMS_MAX];
    char error[REPORT_ERROR_BYTES]; /* what went wrong lately, and is not known to be over; empty: nothing */
};
void report_add(struct report *report, const char *name, double value, bool is_window);
void report_add_text(struct report *report, const char *name, const char *text);
/* NULL: there is none. */
const struct report_item *report_find(const struct report *report, const char *name);
/* Adds the item to the one of the same name, else as a new one: sums over lanes; of texts the one with the
 * larger value stays. */
void report_merge(struct report *report, const struct report_item *item);

/* What decides about one row, beside the operator's options and the row itself: for `leat trace`. */
enum { ROW_FACTS_MAX = 4 };
struct row_facts {
    uint32_t count;
    struct {
        const char *name; /* static */
        int64_t time;
    } items[ROW_FACTS_MAX];
};

static inline void row_facts_add_time(struct row_facts *facts, const char *name, int64_t time)
{
    leat_assert(facts->count < ROW_FACTS_MAX);
    facts->items[facts->count].name = name;
    facts->items[facts->count++].time = time;
}

struct memory_plan;
struct model_visitor;
struct describe;

/* Whose state `leat state get` asks for. */
struct state_query {
    const struct batch *row; /* one row of input 0, whose key columns are set; NULL: a learner's */
    const struct str *words; /* as they were given */
    uint32_t count;
    /* Set by `describe` where there is nothing: what was looked for; in the scratch arena. */
    const char *looked_for;
};

struct operator_kind {
    const char *name;
    const char *summary; /* one line, no full stop */
    const char *example; /* a line of a job, run by a test over the sample schema of tests/unit */
    const char *details; /* a paragraph for the help; may be NULL */
    const struct option *options;
    size_t size; /* of the option struct, which holds the state too */
    enum determinism determinism;
    /* Each output column that has the name of a column of input 0 holds that column's value: rows that were
     * partitioned by it still are. Not so where columns can be renamed, replaced or cast. */
    bool keeps_columns;
    bool uses_time;                  /* needs event time: refused on a source without `event_time:` */
    bool makes_label;                /* bind gets a label_root (attribute) */
    bool takes_changes;              /* knows what `_op` means (core/change.h); others refuse such an input,
                                        but for those that depend on a row alone */
    uint32_t inputs_min, inputs_max; /* 1, 1 for most; the first is the stream before the `|` */

    bool (*bind)(struct operator_bind *bind);
    bool (*open)(struct operator_context *context); /* NULL: nothing to do */
    /* One input: process. Several whose rows must be seen in order: process_merged, once a number. Several
     * whose order does not matter (union): process, with the input's index. */
    void (*process)(struct operator_context *context, uint32_t input, struct batch *batch);
    void (*process_merged)(struct operator_context *context, struct merge *merge);
    void (*on_watermark)(struct operator_context *context, int64_t watermark);
    /* Whether the next number has to wait for the writer of the last checkpoint; its lane does something else
     * meanwhile. Never for an operator: the writer waits for all of them. NULL: never. */
    bool (*is_held)(const struct operator_context *context);
    bool (*snapshot)(struct operator_context *context, struct snapshot_writer *writer);
    bool (*restore)(struct operator_context *context, struct snapshot_reader *reader);
    /* Figures for the live view and the summary (learners: logloss ...); on the lane's thread, between
     * numbers. */
    void (*report)(struct operator_context *context, struct report *report);
    /* What the state in a checkpoint stands on, after bind, a line each: `=WHAT: VALUE` must be the same in
     * the checkpoint and in the job that takes it, `?WHAT: VALUE` may come or go but not change, `~WHAT:
     * VALUE` may be another (core/shape.h). NULL, or where it writes nothing: the options as they are, and
     * the types of the columns that they name. restore gets whatever may differ. */
    void (*shape)(const struct operator_bind *bind, struct byte_buffer *out);
    bool keeps_figures_alone; /* what it snapshots are figures for people: a changed one begins anew */
    /* Writes what is stored for a key into `out` (core/describe.h); false: nothing is. Called after a restore
     * into lanes = KEY_GROUPS, lane = the key's group, or 1 lane for what is not keyed. NULL: there is
     * nothing to ask for. */
    bool (*describe)(struct operator_context *context, struct state_query *query, struct describe *out);
    /* Before a batch that holds this row alone is processed: what it is about to be judged by. NULL: nothing
     * but what the row and the options say. */
    void (*facts)(struct operator_context *context, uint32_t input, const struct batch *batch,
                  struct row_facts *facts);
    /* After bind, of the master copy: what open will take beside keyed state; nothing (count 0): little. Asks
     * this machine's devices. NULL: little. */
    void (*memory)(void *config, struct memory_plan *plan);
    /* Learners: shows the model (core/learner.h). NULL: nothing to show. */
    bool (*visit)(struct operator_context *context, struct model_visitor *visitor);
    /* Learners, after bind, of the master copy: which column of input 0 is the n-th feature that has a table
     * (false: there are no more), and the key that a value has in any table. NULL: no learner. */
    bool (*table)(const void *config, uint32_t number, int *column);
    uint64_t (*key)(const struct column *column, uint32_t row);
    void (*close)(struct operator_context *context);
};

/* Gives a batch on, to an output that bind made. Takes over the caller's reference. */
void operator_emit(struct operator_context *context, uint32_t output, struct batch *batch);

/* Sends one row of `batch` to dead letters with a reason ("integer overflow in `a * b`") and counts it. */
void operator_reject(struct operator_context *context, const struct batch *batch, uint32_t row,
                     const char *reason);

/* The input's schema with lineage kept, `extra` fields of room: where most binds begin. */
static inline struct schema *operator_extend(struct operator_bind *bind, uint32_t extra)
{
    return schema_copy(bind->arena, bind->inputs[0].schema, extra);
}

#endif
