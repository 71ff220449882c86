/*
 * The parts of a learner kind that has two towers: two_tower.c, mf_rank.c and item2vec.c have an option table, made of
 * towers_options_of and rows of their own; a function `bind`; and a descriptor, whose other callbacks TOWERS_KIND sets.
 * The kind's option struct begins with struct towers_config.
 *
 * Inputs: 0 has the events. `score`, if given: rows without an item, which get a list. `items`, if given, behind it: the
 * catalogue; a row adds an item or replaces its features, and one whose `_op` is "delete" removes it.
 * outputs[0], `NAME.top`: an event's own columns, `rank` and `top` (learners/retrieval/lists.h). outputs[1]:
 * `NAME.metrics` (learners/retrieval/ranks.h). outputs[2], `NAME.scores`: likewise of the rows of `score`.
 *
 * Counters: in = learned + predicted + rejected + scored + catalogued. Rows that teach are `absorbed`; those that do not,
 * those of `score` and of `items` `filtered`; events and rows of `items` without an item, events without a user where the
 * kind has users, and rows whose `_op` is no change, `dead`.
 */
#ifndef LEAT_LEARNERS_TOWERS_LEARNER_H
#define LEAT_LEARNERS_TOWERS_LEARNER_H

#include "core/learner.h"
#include "learners/learner/learner.h"
#include "learners/retrieval/ranks.h"
#include "learners/towers/towers.h"

struct towers_embedding {
    int64_t dim, items_max, expire_after_us;
    double init;
    struct kind_ref optimizer;
};

struct towers_state;

struct towers_config {
    /* The kind's own options give these; features and items of kinds without them stay empty. */
    struct expressions query,
        features; /* with `history`, query has the user, and perhaps the item asked about */
    struct ints towers;
    struct name_ref items;
    bool normalize;
    int64_t list_max;
    int64_t history; /* item2vec; 0: another kind */
    int64_t occurrences_min;
    double subsample;
    /* towers_options_of */
    struct expression item, learn;
    struct name_ref score;
    int64_t batch, refresh, seed;
    struct towers_embedding embedding;
    double clip_norm;
    struct kind_ref loss, hidden_optimizer;
    struct ranks_config ranks;
    /* The following members are set by bind. */
    struct towers_options model;
    uint32_t scored_input, items_input; /* 0: there is none */
    int query_columns[LEARNER_INPUTS][TOWERS_QUERY_MAX];
    bool is_seen[TOWERS_QUERY_MAX]; /* a list of items: what `seen: dropped` leaves out */
    bool is_list[TOWERS_QUERY_MAX];
    int item_column, learn_column;    /* of events; learn_column -1: all rows teach */
    int catalogued_column, op_column; /* of `items`: the item, and `_op`; op_column -1: rows are no changes */
    uint32_t features_input;          /* that has the features' columns */
    int feature_columns[TOWERS_FEATURES_MAX];
    const struct schema *top, *scores;            /* of the outputs; scores NULL: no stream is given */
    const struct schema *schemas[LEARNER_INPUTS]; /* of the inputs, with the columns added for expressions */
    struct towers_state *state;
};

/* The options that all kinds of two towers have, for struct towers_config: `score`, then the others. `items` has to be
 * behind them in a kind's table, so that its stream is the last input. */
extern const struct option towers_options_of[];
/* `refresh`, of the kinds whose items' vectors follow from more than a row. */
extern const struct option towers_refresh_option[];

/* bind.c. Checks the options and the inputs, makes the outputs' schemas, and sets config->model. False after a
 * diagnostic. */
bool towers_bind(struct operator_bind *bind);

/* The callbacks of a kind, besides its bind (core/operator.h, core/learner.h). */
bool towers_open(struct operator_context *context);
void towers_process(struct operator_context *context, uint32_t input, struct batch *batch);
void towers_answer(struct operator_context *context, uint32_t input, struct batch *batch);
void towers_on_watermark(struct operator_context *context, int64_t watermark);
void towers_shape(const struct operator_bind *bind, struct byte_buffer *out);
bool towers_snapshot(struct operator_context *context, struct snapshot_writer *writer);
bool towers_restore(struct operator_context *context, struct snapshot_reader *reader);
void towers_report(struct operator_context *context, struct report *report);
bool towers_visit(struct operator_context *context, struct model_visitor *visitor);
bool towers_table(const void *config, uint32_t number, int *column);
void towers_memory(void *config, struct memory_plan *plan);
bool towers_describe(struct operator_context *context, struct state_query *query, struct describe *out);
bool towers_cut_note(struct operator_context *context, bool is_on);
bool towers_cut(struct operator_context *context, struct byte_buffer *out);
size_t towers_cut_bytes(const struct operator_context *context);
bool towers_take_cut(struct operator_context *context, struct str bytes);
void towers_close(struct operator_context *context);

#define TOWERS_KIND(structure, rows, bind_)                                                                  \
    .options = rows, .size = sizeof(structure), .determinism = DETERMINISM_BY_ALL_ROWS, .inputs_min = 1,     \
    .inputs_max = LEARNER_INPUTS, .takes_changes = true, .bind = bind_, .open = towers_open,                 \
    .process = towers_process, .read = towers_answer, .on_watermark = towers_on_watermark,                   \
    .shape = towers_shape, .snapshot = towers_snapshot, .restore = towers_restore, .report = towers_report,  \
    .visit = towers_visit, .table = towers_table, .key = learner_id, .memory = towers_memory,                \
    .describe = towers_describe, .cut_note = towers_cut_note, .cut = towers_cut,                             \
    .cut_bytes = towers_cut_bytes, .take_cut = towers_take_cut, .close = towers_close

#endif
