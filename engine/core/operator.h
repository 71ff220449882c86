/* Operators: the descriptor that each file under operators/ ends with, and the functions its
 * callbacks may call.
 *
 * Life: the option struct is bound from the job (core/option.h) into a master copy; `bind` checks it against
 * the input schemas and makes the output schema, once, without side effects. For each lane the master is
 * copied byte by byte and `open` is called on the copy; from then on that copy, with all that it points to,
 * belongs to the lane's thread, except what `bind` made, which is shared and read-only. `close` is always
 * called, even after a failed `open` or without an `open`, and tolerates zeroed state.
 *
 * Data: an operator reads batches that it does not own (batch_hold keeps a batch beyond the call) and
 * passes rows on with operator_emit. For each micro-batch it gets, in order: the input batches, then
 * on_watermark. Until on_watermark returns, context->watermark is that of the previous micro-batch, and
 * decides which rows are late.
 *
 * End: once all inputs of the job have ended, a micro-batch without rows of sources tells it: on_watermark gets
 * TIME_MAX, after the rows that operators before this one emit at their own end. It is the last micro-batch of the
 * run, unless an operator has work left (operator_kind.wants_more). Then more micro-batches come, in each of which
 * on_watermark gets TIME_MAX, while context->watermark is TIME_MAX already; no more rows come.
 *
 * Counting: the engine adds to counters.in (rows given to process, and input 0 of process_merged; rows of
 * other inputs are counted by the operator that reads them, in `in` and `absorbed`); operator_reject adds to
 * `dead`; the operator itself counts passed, filtered, late, duplicate, absorbed, held and emitted. */
#ifndef LEAT_CORE_OPERATOR_H
#define LEAT_CORE_OPERATOR_H

#include "core/batch.h"
#include "core/buffer.h"
#include "core/counters.h"
#include "core/key.h"
#include "core/option.h"
#include "core/placement.h"
#include "core/snapshot.h"

enum { OPERATOR_INPUTS_MAX = 64, OPERATOR_OUTPUTS_MAX = 8 };

/* What an operator's output depends on; by it the plan decides on which lanes instances may run. */
enum determinism {
    DETERMINISM_BY_ROW,          /* a row's output depends on that row alone: may run on any lane */
    DETERMINISM_BY_RECORD_ORDER, /* depends on the order of rows with the same key */
    DETERMINISM_BY_ALL_ROWS,     /* depends on the order of all rows: one instance only, unless bind
                                    sets key columns */
};

/* One input of an operator. */
struct operator_input {
    const struct schema *schema;
    struct str stream; /* the stream's name in the job, for messages */
    struct span span;
    /* Filled by `bind`: rows with equal values in these columns go to one instance. key_count 0: any
     * instance will do. */
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
    /* Filled by `bind`. outputs[0]: the stream's own schema; the others are the schemas of side outputs,
     * which streams and sinks read as `NAME.late`; NULL: no such output. output_names: what stands after the
     * point; NULL: "late". */
    const struct schema *outputs[OPERATOR_OUTPUTS_MAX];
    const char *output_names[OPERATOR_OUTPUTS_MAX];
    /* The output's watermark is the input's watermark minus hold_us; INT64_MAX: rows come out at the input's
     * end. */
    int64_t hold_us;
    bool is_timer_kind; /* may emit rows from on_watermark */
    bool sets_time;     /* sets the rows' event time itself; the input may have none */
    /* The operator works by processing time. The watermark of on_watermark and context->watermark is then the
     * arrival clock: rows that come in order arrived at that time or later; the clock advances without
     * records, too. The operator judges rows by batch->arrival_time, which is never NULL then. Event times
     * and watermarks of the output are arrival times, too. Refused where the source's rows have no arrival
     * time. */
    bool is_by_arrival;
    bool follows_load; /* reads context->load, which a live run decides and the order log records */
    bool needs_memory; /* keeps keyed state or rows: gets a share of the job's `memory:` */
    /* Emits its rows when the input has ended, or has work left then (operator_kind.wants_more): refused where a
     * source never ends. */
    bool needs_end;
    uint32_t label_root; /* set before `bind`: a lineage root of its own, where the kind has makes_label */

    /* Learners only (core/learner.h). base_columns: number of columns of input 0 before add_column. */
    uint32_t base_columns;
    int (*add_column)(struct operator_bind *bind, uint32_t input, const struct ast *expression);
    struct learner_columns *learner;

    /* For steps that read a file of their own: the known kinds, and the environment for
     * binding their options. */
    const struct registry *registry;
    struct option_env *env;
};

struct cold_store;
struct team;
struct operator_context;
struct operator_history;

/* Takes what an operator emits and rejects while it answers requests (operator_kind.read). */
struct operator_reader {
    void (*emit)(struct operator_context *context, uint32_t output, struct batch *batch);
    void (*reject)(struct operator_context *context, const struct batch *batch, uint32_t row,
                   const char *reason);
};

struct operator_context {
    void *config;                         /* this lane's copy of the option struct */
    void *engine;                         /* for operator_* functions */
    const struct operator_reader *reader; /* set in a context for `read`; else NULL */
    /* Where `reader` is set: what operator_history answers (core/operator_history.h). */
    const struct operator_history *history;
    uint32_t place;       /* the operator's place in the plan, from 0 */
    uint16_t id;          /* id of the keyed state: stays the same at every start of the run, even
                       if `place` changes */
    uint32_t lane, lanes; /* index of the instance, and number of instances */
    /* The key groups whose rows and state are this instance's (core/placement.h); NULL: all. They may change between two
     * micro-batches. */
    const struct group_set *groups;
    int64_t watermark; /* of the previous micro-batch; TIME_MIN at first */
    uint64_t micro_batch;
    uint32_t load;               /* load level of the micro-batch, 0 .. ORDER_LOAD_MAX (bind: follows_load) */
    int64_t memory_bytes;        /* this instance's share of the budget, for keyed state and rows */
    const struct schema *output; /* outputs[0] of bind */
    uint32_t outputs_read;       /* bit i: an operator, a learner or a sink reads outputs[i] */
    struct batch_pool *pool;
    struct arena *scratch; /* reset after each call */
    struct counters counters;
    struct diag_list *diags; /* for open, restore */
    bool only_reads;         /* set for open: nothing will be processed, the restored state
                                is only inspected */
    bool compares;           /* set for open: a learner on a GPU is compared with one on
                                the CPU (--compare) */
    bool only_absorbs;       /* set for process, in a follower: rows become part of the state, and what
                                        they would read and emit is not needed */
    bool is_from;            /* set for restore: the state comes from another run (--from) */
    struct team *team;       /* idle lanes that may help within process (core/team.h); NULL: none */
    struct state_store *state_store; /* where keyed state lives; NULL in an operator without needs_memory */
    /* Learners with needs_memory: makes the cold store for the rows of one table that do not fit in memory
     * (core/cold_store.h); the learner frees it. NULL: all rows stay in memory. */
    struct cold_store *(*cold_store)(struct operator_context *context, uint32_t table, size_t row_bytes);
};

/* One row of an operator with several inputs, whose rows the engine merges by row_order. Filled by
 * merge_next. */
struct merge_row {
    struct batch *batch;
    uint32_t input; /* which of the operator's inputs */
    uint32_t row;   /* physical */
    uint32_t index; /* position among the batch's selected rows */
    bool is_last;   /* the last selected row of its batch */
};
struct merge;
/* The micro-batch's next row by row_order_compare_inputs; where two rows are equal in it, that of the lower input comes
 * first. false: no more rows. */
bool merge_next(struct merge *merge, struct merge_row *row);
/* The batches of one input in this micro-batch, in order, linked by `next`; NULL: none. The merge owns them.
 * For work ahead of merge_next (hashing, prefetching). */
struct batch *merge_batches(struct merge *merge, uint32_t input);

/* Named metrics of one operator, learner, source or sink. */
struct report_item {
    const char *name; /* static */
    double value;     /* NaN: not known */
    bool is_window;   /* the value is that of the learner's last window of metrics, not of the whole run */
    const char *text; /* shown instead of the value; lives as long as the run; NULL: the value is shown */
};
enum { REPORT_ITEMS_MAX = 320, REPORT_ERROR_BYTES = 400 };
struct report {
    uint32_t count;
    struct report_item items[REPORT_ITEMS_MAX];
    char error[REPORT_ERROR_BYTES]; /* a recent error that may persist; empty: none */
};
void report_add(struct report *report, const char *name, double value, bool is_window);
void report_add_text(struct report *report, const char *name, const char *text);
/* The item of that name, or NULL. */
const struct report_item *report_find(const struct report *report, const char *name);
/* Adds the item to the item of the same name and window, else appends it. Values are summed over lanes; of
 * items named `..._max`, and of items with a text, the one with the larger value stays. */
void report_merge(struct report *report, const struct report_item *item);

/* Times in an operator's state that decide what happens to a row; `leat trace` shows them. */
enum { ROW_FACTS_MAX = 4 };
struct row_facts {
    uint32_t count;
    struct {
        const char *name; /* static */
        int64_t time;     /* microseconds since 1970 */
    } items[ROW_FACTS_MAX];
};

static inline void row_facts_add_time(struct row_facts *facts, const char *name, int64_t time)
{
    leat_assert(facts->count < ROW_FACTS_MAX);
    facts->items[facts->count].name = name;
    facts->items[facts->count++].time = time;
}

/* What operator_kind.read goes by. */
enum operator_reading {
    READING_ROW,    /* the row alone; a learner: its model */
    READING_CHOICE, /* the row alone, which may be left out */
    READING_STATE,  /* the rows before it, or a file */
    READING_PASS,   /* nothing: every row passes, also one that `process` would leave out */
};

/* How many rows a row becomes. */
enum operator_fan {
    OPERATOR_FAN_NONE, /* one at most */
    OPERATOR_FAN_OUT,  /* several, each with the origin of that row (unnest) */
    OPERATOR_FAN_IN,   /* those that one row became are one again (nest) */
};

/* How a follower (`leat serve`) keeps an operator's state between checkpoints (run/delta). */
enum operator_following {
    FOLLOWING_NOTHING, /* the state stays as it is, or there is none */
    FOLLOWING_ROWS,    /* the state depends on the rows processed alone: the follower processes them, too */
    FOLLOWING_CUTS,    /* a learner: what it changed */
    FOLLOWING_NOT,     /* not at all: its answers are those of the last checkpoint */
};

struct memory_plan;
struct model_visitor;
struct state_member;
struct describe;

/* The key that `leat state get`, or a peek at a run (run/peek.h), asks for. */
struct state_query {
    const struct batch *row; /* one row of input 0 with the key columns set; NULL for a learner */
    const struct str *words; /* the key as the user typed it */
    uint32_t count;
    /* The instance is at work, between two micro-batches; false: it was restored to be described, and is closed then. */
    bool is_live;
    /* Set by `describe` where it cannot tell without changing what it reads, if is_live: why, and what to do instead;
     * static. It returns false then. */
    const char *refused;
    /* Set by `describe` if nothing is stored: the key as `describe` understood it, for the message; in the
     * scratch arena. NULL: the message does not name it. */
    const char *looked_for;
};

struct operator_kind {
    const char *name;
    const char *summary; /* one line, no full stop */
    const char *example; /* a line of a job; a test runs it over the sample schema of tests/unit */
    const char *details; /* a paragraph for the help; may be NULL */
    const struct option *options;
    size_t size; /* of the option struct, which holds the state, too */
    enum determinism determinism;
    /* Each output column named like a column of input 0 holds that column's value, so rows partitioned by the
     * column stay partitioned. false where columns can be renamed, replaced or cast. */
    bool keeps_columns;
    bool uses_time;                  /* needs event time: refused on a source without `event_time:` */
    bool makes_label;                /* bind gets a label_root (attribute) */
    bool takes_changes;              /* understands `_op` (core/change.h); without it, inputs that have `_op`
                                        are refused unless determinism is BY_ROW */
    uint32_t inputs_min, inputs_max; /* 1, 1 for most; the first input is the stream before the `|` */

    bool (*bind)(struct operator_bind *bind);
    bool (*open)(struct operator_context *context); /* NULL: nothing to do */
    /* Operators with one input have `process`. Operators that must see the rows of several inputs merged by
     * row_order have process_merged, called once per micro-batch; where that order does not matter (union),
     * they have `process`, which gets the input's index. */
    void (*process)(struct operator_context *context, uint32_t input, struct batch *batch);
    void (*process_merged)(struct operator_context *context, struct merge *merge);
    /* For requests (`leat score`): makes of rows of input 0 what `process` would make of them if they came
     * next, and changes nothing: no state, of figures in reports only state_lookups, _misses and _loaded. Emits and rejects as
     * `process` does. The context is a copy with counters and scratch of its own, whose `reader` takes what is
     * emitted. Where a row's output depends on that row alone, `read` is `process` itself. NULL: the step
     * cannot stand between a request and its answer. */
    void (*read)(struct operator_context *context, uint32_t input, struct batch *batch);
    enum operator_reading reading;
    /* Called after the last `read` of the requests that are answered together: emits what waited for further rows of
     * its request. NULL: nothing waits. */
    void (*read_end)(struct operator_context *context);
    enum operator_fan fan;
    /* How a follower keeps the state of an operator with READING_STATE (enum operator_following), after bind. absorbs:
     * the state depends on the rows processed alone; says whether rows of the input become part of it, and sets
     * columns[i] of the columns that this takes. is_steady: whether the state stays as it is between checkpoints. Both
     * NULL: FOLLOWING_NOT. */
    bool (*absorbs)(const void *config, uint32_t input, bool *columns);
    bool (*is_steady)(const void *config);
    void (*on_watermark)(struct operator_context *context, int64_t watermark);
    /* For operators with work left when their input has ended, as passes over what they have kept: whether the
     * operator wants another micro-batch. NULL, or `bind` has not set needs_end: never. Only of operators with one
     * instance (DETERMINISM_BY_ALL_ROWS, without key columns).
     *   - Asked after each micro-batch in which on_watermark got TIME_MAX, until the answer is false; also after a
     *     restore. The answer depends on the state alone, and changes nothing. Once false it stays false.
     *   - While it is true, another micro-batch without rows comes, in which on_watermark gets TIME_MAX again: there the
     *     operator does a bounded part of the work, and may emit rows. These micro-batches are like all others: with
     *     numbers in the order log, with checkpoints between them. How many there are depends on the answers alone,
     *     not on checkpoints, stops and restarts: one call of on_watermark is one part of the work.
     *   - The watermark of the operator's output stays where it was before the end until the micro-batch after the
     *     answer false: there the operators behind it get TIME_MAX, after its last row. So bind->hold_us says how far
     *     the rows' times may lie before the end: INT64_MAX, anywhere. The operator itself gets
     *     TIME_MAX once more in it, and in the micro-batches that other operators want: it does nothing then.
     *   - What it reports as `end_share_done` (0 to 1), people see as its progress.
     * On the lane's thread, between micro-batches; after a restore on the control thread, before lanes start. */
    bool (*wants_more)(const struct operator_context *context);
    /* Whether the next micro-batch must wait for the writer of the last checkpoint; the lane does other work
     * meanwhile. It must depend on the writer alone, not on another operator: the writer waits for all
     * operators. NULL: never waits. */
    bool (*is_held)(const struct operator_context *context);
    /* The members of the option struct that are in checkpoints (core/operator_state.h): the engine makes,
     * saves, restores, expires, reports and frees them. NULL: none; a kind whose records have another form
     * has snapshot and restore instead. */
    const struct state_member *state;
    /* false: the disk failed, and the checkpoint is abandoned. */
    bool (*snapshot)(struct operator_context *context, struct snapshot_writer *writer);
    /* false after a diagnostic. */
    bool (*restore)(struct operator_context *context, struct snapshot_reader *reader);
    /* Moves of key groups between instances, of a kind with snapshot and restore (core/operator_state.h has the rules). give:
     * writes the groups' state to `out` (core/moved.h), and forgets it; what the checkpoint needs of it was written in
     * `snapshot`. take: takes in one of these records. Both NULL: instances cannot give groups away. False: as in
     * state_kind. */
    bool (*give)(struct operator_context *context, const struct group_set *leaving, struct byte_buffer *out);
    bool (*take)(struct operator_context *context, struct str record);
    /* Metrics for the live view and the summary (learners: logloss ...), beside those of `state`; called on
     * the lane's thread, between micro-batches. */
    void (*report)(struct operator_context *context, struct report *report);
    /* After bind: writes the shape of the state, which says what the state depends on, line by line
     * (core/shape.h): `=WHAT: VALUE` must be equal in the checkpoint and the job that restores it, `?WHAT:
     * VALUE` may be added or removed but not changed, `~WHAT: VALUE` may change. NULL, or nothing written:
     * the options as they are and the types of the columns they name must be equal. restore must cope with
     * every difference that is allowed. */
    void (*shape)(const struct operator_bind *bind, struct byte_buffer *out);
    bool keeps_figures_alone; /* its snapshot has only metrics for people; if the operator changed, it
                                 starts without them */
    /* Writes the state stored for a key into `out` (core/describe.h); false: none is stored, or a diagnostic was added.
     * Called after a restore of the key's group alone, or of everything for state that is not keyed. If query->is_live, also on the lane's thread between two micro-batches of a run: then it changes nothing,
     * no state, mark or figure (keyed_peek), the context is a copy with diags, counters and scratch of its own, and a loop
     * over rows ends when describe_is_full. NULL: not supported. */
    bool (*describe)(struct operator_context *context, struct state_query *query, struct describe *out);
    /* For `leat trace`: called before a batch with this single row is processed; adds the times in the state
     * that the operator will judge the row by. NULL: only the row and the options count. */
    void (*facts)(struct operator_context *context, uint32_t input, const struct batch *batch,
                  struct row_facts *facts);
    /* After bind, on the master copy: the memory that open will allocate beside keyed state; count 0 or NULL:
     * little. May query this machine's devices. */
    void (*memory)(void *config, struct memory_plan *plan);
    /* Learners: visits the model (core/learner.h). NULL: nothing to visit. */
    bool (*visit)(struct operator_context *context, struct model_visitor *visitor);
    /*
     * Learners, for followers: copies in other processes that are restored from a checkpoint, answer requests and
     * never learn. Changes go to them as "cuts": bytes after which `read` of the follower gives, bit for bit, what
     * `read` of the learner gives at the moment of the cut. NULL: not a learner. On the lane's thread, between
     * micro-batches. A checkpoint may be in progress; whether it is published does not matter.
     *   - cut_note: from now on changes are noted (is_on), or no longer; what was noted is forgotten. After open
     *     and restore. The notes take memory until the next cut. false: this learner cannot have cuts: its GPU
     *     has no memory for them, or `cut` has returned false.
     *   - cut: appends to `out` what changed since the last cut, or since cut_note. Notes are on, and is_held is
     *     false. false: no more cuts in this run: its epochs (32 bits) run out after billions of them, or its GPU has
     *     failed; `out` is unchanged.
     *   - cut_bytes: about how many bytes a cut would have now. Notes are on.
     *   - take_cut: applies a cut to a follower: restored, with lanes 1, from a checkpoint that began after cut_note
     *     and no later than the cut. The follower takes all cuts since its checkpoint, in order, each at least once;
     *     it may begin with any earlier one since cut_note. false: the bytes, which may be damaged or hostile,
     *     are no such cut; then the follower cannot be used. From the first cut on it must not learn, get a
     *     watermark or be part of a checkpoint.
     */
    bool (*cut_note)(struct operator_context *context, bool is_on);
    bool (*cut)(struct operator_context *context, struct byte_buffer *out);
    size_t (*cut_bytes)(const struct operator_context *context);
    bool (*take_cut)(struct operator_context *context, struct str bytes);
    /* Learners, after bind, on the master copy: sets *column to the column of input 0 of the feature with the
     * table `number`, counted from 0; false: there are fewer tables. `key`: the table key of a row's value,
     * the same in every table. NULL: not a learner. */
    bool (*table)(const void *config, uint32_t number, int *column);
    uint64_t (*key)(const struct column *column, uint32_t row);
    void (*close)(struct operator_context *context);
};

/* Passes a batch on to the given output. Takes over the caller's reference. */
void operator_emit(struct operator_context *context, uint32_t output, struct batch *batch);

/* A `read` that lets all rows pass as they are: of steps that only leave rows out, or remember them. */
static inline void operator_pass(struct operator_context *context, uint32_t input LEAT_UNUSED,
                                 struct batch *batch)
{
    operator_emit(context, 0, batch_derive(batch, context->output));
}

/* Sends one row of `batch` to dead letters with a reason ("integer overflow in `a * b`") and counts it. */
void operator_reject(struct operator_context *context, const struct batch *batch, uint32_t row,
                     const char *reason);

/* A copy of the input schema, lineage included, with room for `extra` more fields: most binds
 * start with it. */
static inline struct schema *operator_extend(struct operator_bind *bind, uint32_t extra)
{
    return schema_copy(bind->arena, bind->inputs[0].schema, extra);
}
/* Whether the output may have `extra` columns more than input 0; false after a diagnostic. */
bool operator_has_room(struct operator_bind *bind, uint32_t extra);
/* Adds a column to `output`, a schema that `bind` makes with room for it (operator_extend); the caller sets
 * the column's lineage. NULL after a diagnostic: `output` has a column of that name (reported at `span`), or
 * there would be more than SCHEMA_FIELDS_MAX columns. */
struct field *operator_add_column(struct operator_bind *bind, struct schema *output, struct str name,
                                  struct type type, struct span span);
/* Like operator_add_column, for a column whose values come from rows that the operator chose: the column's
 * lineage begins as output->rows_lineage. */
struct field *operator_add_chosen(struct operator_bind *bind, struct schema *output, struct str name,
                                  struct type type, struct span span);

#endif
