/* Options of two towers, and their bind: expressions become columns of the inputs, options become those of the model,
 * and the outputs get their schemas. */
#include "learners/towers/learner.h"

#include "core/change.h"
#include "learners/items/index.h"
#include "learners/learner/optimizer_options.h"
#include "learners/losses/options.h"
#include "learners/losses/targets.h"
#include "learners/retrieval/columns.h"
#include "learners/retrieval/lists.h"
#include "learners/tables/shard.h"

static const struct option embedding_options[] = {
    OPTION_INT(struct towers_embedding, dim, "dim", 0, "32", "4", "256",
               "length of the row of an item, or of a value; a multiple of 4"),
    OPTION_FLOAT(struct towers_embedding, init, "init", 0, "0.05", "0.0", "10.0",
                 "rows begin uniform between minus `init` and `init`"),
    OPTION_KIND(struct towers_embedding, optimizer, "optimizer", 0, "adam { rate: 0.001 }", optimizer_kinds,
                "optimizer of the rows"),
    OPTION_INT(struct towers_embedding, items_max, "items_max", 0, "16777216", "1", "2147483647",
               "most items; an event of a further one is counted as `unnumbered`"),
    OPTION_DURATION(struct towers_embedding, expire_after_us, "expire_after", 0, "0s", "0s", NULL,
                    "an item or a value of a query that has not occurred for so long, by event time, is "
                    "forgotten; 0: never"),
    OPTIONS_END,
};

const struct option towers_refresh_option[] = {
    OPTION_INT(
        struct towers_config, refresh, "refresh", 0, "1024", "0", "1000000",
        "with each step so many items are encoded again for the index, in turn, besides the step's own"),
    OPTIONS_END,
};

const struct option towers_options_of[] = {
    OPTION_EXPRESSION(struct towers_config, item, "item", OPTION_REQUIRED,
                      "what the event is about, and what is predicted: an int or a text"),
    OPTION_EXPRESSION(struct towers_config, learn, "learn", 0,
                      "a bool: only rows where it is true teach; the others are predicted alone. All rows "
                      "teach without it"),
    OPTION_STREAM(struct towers_config, score, "score", 0,
                  "stream of rows without an item, for example requests: each gets a list when its turn "
                  "comes, and goes to NAME.scores. It has the columns that the query reads"),
    OPTION_BLOCK(struct towers_config, embedding, struct towers_embedding, "embedding", 0, embedding_options,
                 "rows of items and of values"),
    OPTION_INCLUDE(struct towers_config, ranks, ranks_options),
    OPTION_INT(struct towers_config, seed, "seed", 0, "1", "0", NULL, "seed of initial values and of chance"),
    OPTIONS_END,
};

/* --- Columns --- */

static const struct type *type_at(const struct operator_bind *bind, uint32_t input, int column)
{
    return &bind->inputs[input].schema->fields[column].type;
}

static bool has_few(struct operator_bind *bind, const struct expressions *list, const char *option,
                    uint32_t most)
{
    if (list->count <= most)
        return true;
    diag_error(bind->diags, DIAG_TOO_MANY, list->items[most]->span, "`%s` takes at most %u values, found %u",
               option, most, list->count);
    return false;
}

static bool bind_query(struct operator_bind *bind, struct towers_config *c)
{
    struct learner_columns *known = bind->learner;
    bool is_ok = true;
    for (uint32_t f = 0; f < c->query.count; f++) {
        const struct ast *ast = c->query.items[f];
        int column = c->query_columns[LEARNER_EXAMPLES][f] =
            choices_bind_id(bind, LEARNER_EXAMPLES, ast, true);
        known->features[known->count] = column;
        known->spans[known->count++] = ast->span;
        is_ok &= column >= 0;
        c->is_list[f] = column >= 0 && type_at(bind, LEARNER_EXAMPLES, column)->tag == TYPE_LIST;
    }
    return is_ok;
}

static bool bind_events(struct operator_bind *bind, struct towers_config *c)
{
    if (!bind_query(bind, c))
        return false;
    c->item_column = choices_bind_item(bind, c->item.ast);
    return choices_bind_learn(bind, c->learn.ast, &c->learn_column) && c->item_column >= 0;
}

static bool bind_score(struct operator_bind *bind, struct towers_config *c)
{
    struct learner_columns *known = bind->learner;
    uint32_t input = c->scored_input;
    bool is_ok = true;
    for (uint32_t f = 0; input > 0 && f < c->query.count; f++) {
        const struct ast *ast = c->query.items[f];
        int column = c->query_columns[input][f] = choices_bind_id(bind, input, ast, true);
        known->scored_span = c->score.span;
        known->scored[f] = column;
        if (column < 0)
            diag_label(bind->diags, &bind->diags->items[bind->diags->count - 1], c->score.span,
                       "the stream whose rows are scored");
        is_ok = column >= 0 &&
                choices_is_same_type(bind, input, column, c->query_columns[LEARNER_EXAMPLES][f], ast) &&
                is_ok;
    }
    return is_ok;
}

/* The catalogue's item, and the items' features, which the catalogue has or else the events. */
static bool bind_items(struct operator_bind *bind, struct towers_config *c)
{
    uint32_t input = c->features_input = c->items_input > 0 ? c->items_input : LEARNER_EXAMPLES;
    bool is_ok = true;
    if (c->items_input > 0) {
        c->catalogued_column = choices_bind_id(bind, input, c->item.ast, false);
        is_ok = c->catalogued_column >= 0 &&
                choices_is_same_type(bind, input, c->catalogued_column, c->item_column, c->item.ast);
    }
    for (uint32_t f = 0; f < c->features.count; f++) {
        int column = c->feature_columns[f] = choices_bind_id(bind, input, c->features.items[f], true);
        c->model.is_list[f] = column >= 0 && type_at(bind, input, column)->tag == TYPE_LIST;
        is_ok &= column >= 0;
    }
    if (!is_ok && c->items_input > 0)
        diag_label(bind->diags, &bind->diags->items[bind->diags->count - 1], c->items.span,
                   "the stream of items");
    return is_ok;
}

/* Rows that are changes make sense among items alone. */
static bool check_changes(struct operator_bind *bind, struct towers_config *c)
{
    c->op_column = -1;
    for (uint32_t i = 0; i < bind->inputs_count; i++) {
        int column = change_column(bind->inputs[i].schema);
        if (column < 0)
            continue;
        if (i == c->items_input && i > 0 && type_at(bind, i, column)->tag == TYPE_TEXT) {
            c->op_column = column;
            continue;
        }
        struct diag *d =
            diag_error(bind->diags, DIAG_ROWS_CHANGE, bind->span,
                       "`%.*s` has a column `_op`%s: its rows are changes of earlier ones",
                       STR_ARGS(bind->inputs[i].stream), i == c->items_input ? " that is no text" : "");
        diag_hint(bind->diags, d,
                  "only the stream of `items` may be one of changes; of others take the rows that count and "
                  "drop the column: | where _op = \"insert\" | drop _op");
        return false;
    }
    return true;
}

/* What `seen: dropped` leaves out: items in lists of the query. */
static bool bind_seen(struct operator_bind *bind, struct towers_config *c)
{
    const struct type *item = type_at(bind, LEARNER_EXAMPLES, c->item_column);
    bool has_any = false;
    for (uint32_t f = 0; f < c->query.count; f++) {
        const struct type *type = type_at(bind, LEARNER_EXAMPLES, c->query_columns[LEARNER_EXAMPLES][f]);
        c->is_seen[f] = type->tag == TYPE_LIST && type_equal(type->element, item);
        has_any |= c->is_seen[f];
    }
    if (has_any || c->history > 0 || c->ranks.seen != RANKS_SEEN_DROPPED)
        return true;
    diag_hint(
        bind->diags,
        diag_error(
            bind->diags, DIAG_BAD_LEARNER, bind->span,
            "`seen: dropped` leaves out the items in lists of the query, and there is no list of items"),
        "a list of the user's last items, of the type of `item`, is a feature of its own: "
        "`feature by user over 30d { recent: collect(item, 50) }`; or leave `seen` away");
    return false;
}

/* --- Options --- */

static bool set_layers(struct operator_bind *bind, struct towers_config *c)
{
    uint32_t widths[MODEL_LAYERS_MAX], n = c->towers.count;
    if (!learner_widths(bind, &c->towers, widths))
        return false;
    c->model.has_layers = n > 0;
    c->model.network = (struct tower_network){0};
    for (uint32_t i = 0; i + 1 < n; i++)
        c->model.network.hidden[i] = widths[i];
    c->model.network.width = n > 0 ? widths[n - 1] : 0;
    return true;
}

static bool set_model(struct operator_bind *bind, struct towers_config *c)
{
    const struct losses_options *losses = c->loss.config;
    c->model = (struct towers_options){.kernels = kernels_pick(NULL, &(const char *){NULL}),
                                       .query_fields = c->history > 0 ? 1 : c->query.count,
                                       .features = c->features.count,
                                       .dim = (uint32_t)c->embedding.dim,
                                       .list_max = (uint32_t)c->list_max,
                                       .normalize = c->normalize,
                                       .history = (uint32_t)c->history,
                                       .occurrences_min = (uint32_t)c->occurrences_min,
                                       .subsample = c->subsample,
                                       .is_listed = c->items.name.length > 0,
                                       .batch = (uint32_t)c->batch,
                                       .refresh = (uint32_t)c->refresh,
                                       .clip_norm = (float)c->clip_norm,
                                       .init = (float)c->embedding.init,
                                       .rows = optimizer_from(&c->embedding.optimizer),
                                       .dense = optimizer_from(&c->hidden_optimizer),
                                       .loss = losses_chosen(&c->loss),
                                       .losses = *losses,
                                       .items_max = (uint32_t)c->embedding.items_max,
                                       .expire_after_us = c->embedding.expire_after_us,
                                       .shards = table_shards_of(0, 0),
                                       .seed = (uint64_t)c->seed};
    return set_layers(bind, c);
}

enum { STEP_MIB_MAX = 8192 }; /* of the largest step: indices of its places and floats are 32 bits */

static bool check(struct operator_bind *bind, const struct towers_config *c)
{
    const struct towers_options *m = &c->model;
    uint32_t width = towers_width(m);
    char reason[LOSSES_REASON];
    const char *problem = NULL;
    struct targets_options targets = towers_targets(m);
    if (c->query.count == 0)
        problem = "a query needs something that is known of the event: `query: [...]` is empty";
    else if (m->dim % 4 != 0)
        problem = arena_printf(bind->arena, "`dim` must be a multiple of 4, found %u", m->dim);
    else if (width % 4 != 0 || width > INT8_DIMS_MAX)
        problem = arena_printf(bind->arena,
                               "the last width of `towers` must be a multiple of 4, at most %d, found %u",
                               INT8_DIMS_MAX, width);
    else if (m->loss->takes_all_items)
        problem =
            "`loss: softmax` compares with all items, each of which would go through its tower in every "
            "step: take `sampled_softmax { negatives: 64, in_batch: true }`, or another loss";
    else if (m->rows.kind == OPT_NEWTON || m->dense.kind == OPT_NEWTON)
        problem = "`newton` learns from single events: take `adam`, `adagrad`, `momentum` or `sgd`";
    else if (m->dense.kind == OPT_ADAGRAD_ROW || m->dense.kind == OPT_ADAGRAD_BLOCK)
        problem = "`hidden_optimizer` has no rows: take `adam`, `adagrad`, `momentum` or `sgd`";
    else if (!losses_check(m->loss, &m->losses, reason) || !targets_check(&targets, reason))
        problem = arena_strndup(bind->arena, reason, strlen(reason));
    else if (towers_step_bytes(m) >> 20 > STEP_MIB_MAX)
        problem = arena_printf(bind->arena,
                               "the items of the largest step would take %zu MiB, expected up to %d: lower "
                               "`batch`, the number of negatives, `list_max`, or widths",
                               towers_step_bytes(m) >> 20, STEP_MIB_MAX);
    if (problem != NULL)
        diag_error(bind->diags, DIAG_BAD_LEARNER, bind->span, "%s", problem);
    return problem == NULL;
}

/* --- Outputs --- */

static bool bind_outputs(struct operator_bind *bind, struct towers_config *c, const struct schema *const *own)
{
    c->top = choices_bind_output(bind, &c->ranks, c->item_column, LEARNER_EXAMPLES, own[LEARNER_EXAMPLES]);
    if (c->top != NULL && c->scored_input > 0)
        c->scores =
            choices_bind_output(bind, &c->ranks, c->item_column, c->scored_input, own[c->scored_input]);
    if (c->top == NULL || (c->scored_input > 0 && c->scores == NULL))
        return false;
    bind->outputs[LEARNER_PREDICTIONS] = c->top;
    bind->outputs[LEARNER_METRICS] = c->ranks.schema;
    bind->outputs[LEARNER_SCORES] = c->scores;
    bind->output_names[LEARNER_PREDICTIONS] = "top";
    bind->needs_memory = true;
    return true;
}

bool towers_bind(struct operator_bind *bind)
{
    struct towers_config *c = bind->config;
    const struct schema *own[LEARNER_INPUTS] = {0};
    c->scored_input = c->score.name.length > 0 ? LEARNER_SCORED : 0;
    c->items_input = c->items.name.length > 0 ? 1 + c->scored_input : 0;
    bind->learner->items_input = c->items_input;
    for (uint32_t i = 0; i < bind->inputs_count; i++)
        own[i] = bind->inputs[i].schema;
    if (!has_few(bind, &c->query, "query", TOWERS_QUERY_MAX) ||
        !has_few(bind, &c->features, "item_features", TOWERS_FEATURES_MAX) || !set_model(bind, c) ||
        !check_changes(bind, c) || !bind_events(bind, c) || !bind_score(bind, c) || !bind_items(bind, c) ||
        !ranks_bind(bind, &c->ranks) || !bind_seen(bind, c) || !check(bind, c) || !bind_outputs(bind, c, own))
        return false;
    for (uint32_t i = 0; i < bind->inputs_count; i++)
        c->schemas[i] = bind->inputs[i].schema;
    return true;
}
