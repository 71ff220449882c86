/*
 * The parts of a learner kind that is a sequence model: sasrec.c and hstu.c have an option table, made of
 * sequential_options_of and rows of their own; a function `bind`; and a descriptor, whose other callbacks SEQUENTIAL_KIND
 * sets. The kind's option struct begins with struct sequential_config.
 *
 * Inputs: 0 has the events. `score`, if given: rows without an item, which get a list of what comes next. `unlabelled`, if
 * given, behind it: events that are learned by what is hidden of them alone (masked.c), and not predicted.
 * outputs[0], `NAME.top`: an event's own columns, `rank` and `top` (learners/retrieval/lists.h). outputs[1]:
 * `NAME.metrics` (learners/retrieval/ranks.h). outputs[2], `NAME.scores`: likewise of the rows of `score`.
 *
 * Counters: in = learned + predicted + rejected + scored + unlabelled: rows that teach and those of `unlabelled` are
 * `absorbed`, those that do not and those of `score` `filtered`, those without a user or an item `dead`.
 */
#ifndef LEAT_LEARNERS_SEQUENTIAL_LEARNER_H
#define LEAT_LEARNERS_SEQUENTIAL_LEARNER_H

#include "core/learner.h"
#include "learners/learner/learner.h"
#include "learners/learner/where.h"
#include "learners/retrieval/ranks.h"
#include "learners/sequential/sequential.h"

struct sequential_embedding {
    int64_t dim, items_max, expire_after_us;
    double init;
    struct kind_ref optimizer;
};

/* `also: masked { share, weight }` */
struct sequential_masked {
    double share, weight;
};

struct sequential_state;

struct sequential_config {
    struct expression by, item, learn;
    struct expressions sides, contexts; /* `with`, `context` */
    struct name_ref score, unlabelled;
    int64_t history, layers, heads, batch, rehearse, passes, seed;
    struct sequential_embedding embedding;
    double dropout, attention_dropout, clip_norm;
    bool recompute;
    struct learner_where device;
    struct kind_ref loss, also, hidden_optimizer; /* also.config NULL: not given */
    struct ranks_config ranks;
    int64_t cache;
    int cache_format; /* enum row_format: ROW_FP32 or ROW_BF16 */
    /* The following members are set by bind. */
    struct sequential_options model;
    uint32_t scored_input, unlabelled_input; /* 0: there is none */
    uint32_t own_columns[LEARNER_INPUTS];    /* of the input, without those added for expressions */
    int by_columns[LEARNER_INPUTS], context_columns[LEARNER_INPUTS][SEQUENTIAL_CONTEXTS_MAX];
    int item_columns[LEARNER_INPUTS], side_columns[LEARNER_INPUTS][SEQUENTIAL_SIDES_MAX];
    int learn_column;                  /* -1: all rows teach */
    const struct schema *top, *scores; /* of the outputs; scores NULL: no stream is given */
    const struct schema *schema;       /* of input 0, with the columns added for expressions */
    struct sequential_state *state;
};

/* The options of all sequence models, for struct sequential_config. */
extern const struct option sequential_options_of[];

/* bind.c. Checks the options and the inputs, makes the outputs' schemas, and sets config->model. False after a
 * diagnostic. `own` outlives the job. */
bool sequential_bind(struct operator_bind *bind, const struct network *network, const void *own);

/* The callbacks of a kind, besides its bind (core/operator.h, core/learner.h). */
bool sequential_open(struct operator_context *context);
void sequential_process(struct operator_context *context, uint32_t input, struct batch *batch);
void sequential_answer(struct operator_context *context, uint32_t input, struct batch *batch);
bool sequential_wants_more(const struct operator_context *context);
void sequential_on_watermark(struct operator_context *context, int64_t watermark);
void sequential_shape(const struct operator_bind *bind, struct byte_buffer *out);
bool sequential_snapshot(struct operator_context *context, struct snapshot_writer *writer);
bool sequential_restore(struct operator_context *context, struct snapshot_reader *reader);
void sequential_report(struct operator_context *context, struct report *report);
bool sequential_visit(struct operator_context *context, struct model_visitor *visitor);
bool sequential_table(const void *config, uint32_t number, int *column);
void sequential_memory(void *config, struct memory_plan *plan);
bool sequential_describe(struct operator_context *context, struct state_query *query, struct describe *out);
bool sequential_cut_note(struct operator_context *context, bool is_on);
bool sequential_cut(struct operator_context *context, struct byte_buffer *out);
size_t sequential_cut_bytes(const struct operator_context *context);
bool sequential_take_cut(struct operator_context *context, struct str bytes);
void sequential_close(struct operator_context *context);

#define SEQUENTIAL_KIND(structure, rows, bind_)                                                              \
    .options = rows, .size = sizeof(structure), .determinism = DETERMINISM_BY_ALL_ROWS, .inputs_min = 1,     \
    .inputs_max = LEARNER_INPUTS, .bind = bind_, .open = sequential_open, .process = sequential_process,     \
    .read = sequential_answer, .wants_more = sequential_wants_more, .on_watermark = sequential_on_watermark, \
    .shape = sequential_shape, .snapshot = sequential_snapshot, .restore = sequential_restore,               \
    .report = sequential_report, .visit = sequential_visit, .table = sequential_table, .key = learner_id,    \
    .memory = sequential_memory, .describe = sequential_describe, .cut_note = sequential_cut_note,           \
    .cut = sequential_cut, .cut_bytes = sequential_cut_bytes, .take_cut = sequential_take_cut,               \
    .close = sequential_close

#endif
