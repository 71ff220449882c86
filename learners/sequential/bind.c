/* Options of sequence models, and their bind: expressions become columns of the inputs, options become those of the
 * model, and the outputs get their schemas. */
#include "learners/sequential/learner.h"

#include "kernels/attention.h"
#include "learners/learner/optimizer_options.h"
#include "learners/losses/options.h"
#include "learners/losses/targets.h"
#include "learners/networks/networks.h"
#include "learners/retrieval/choices.h"
#include "learners/retrieval/columns.h"
#include "learners/tables/shard.h"

/* Initial weights of the layers have a standard deviation of 0.02, as in the programs of BERT4Rec (Sun et al. 2019,
 * section 4.4) and hstu, and so have, by `init`, those of the rows: wider layers hide at first what rows learn. */
#define INIT_DENSE 0.035F

static const struct option embedding_options[] = {
    OPTION_INT(struct sequential_embedding, dim, "dim", 0, "64", "16", "256",
               "numbers in the row of an item, a multiple of 16"),
    OPTION_FLOAT(struct sequential_embedding, init, "init", 0, "0.035", "0.0", "10.0",
                 "the numbers of a new row are drawn between minus `init` and `init`, all equally likely"),
    OPTION_KIND(struct sequential_embedding, optimizer, "optimizer", 0, "adam { rate: 0.001 }",
                optimizer_kinds, "how the rows of items are updated"),
    OPTION_INT(
        struct sequential_embedding, items_max, "items_max", 0, "16777216", "1", "2147483647",
        "most items that are known at a time. An event of one more is neither learned nor kept, and is "
        "counted as `unnumbered`"),
    OPTION_DURATION(
        struct sequential_embedding, expire_after_us, "expire_after", 0, "0s", "0s", NULL,
        "an item or a user that has not occurred for so long, by event time, is forgotten; 0: never"),
    OPTIONS_END,
};

static const struct option masked_options[] = {
    OPTION_FLOAT(struct sequential_masked, share, "share", 0, "0.2", "0.01", "0.9",
                 "share of the items of each learned window that are hidden, chosen by chance, at least one"),
    OPTION_FLOAT(struct sequential_masked, weight, "weight", 0, "0.2", "0.001", "1000.0",
                 "what the loss of hidden items counts beside that of next items, each the mean of a step"),
    OPTIONS_END,
};

static const struct kind_choice also_choices[] = {
    {"masked", masked_options, sizeof(struct sequential_masked),
     "each learned window once more, with some of its items hidden: they are predicted from both sides, by the same loss"},
    {0},
};

const struct option sequential_options_of[] = {
    OPTION_EXPRESSION(struct sequential_config, by, "by", OPTION_REQUIRED,
                      "whose events follow one another: the user"),
    OPTION_EXPRESSION(struct sequential_config, item, "item", OPTION_REQUIRED,
                      "what the event is about, and what is predicted: an int or a text"),
    OPTION_EXPRESSIONS(
        struct sequential_config, sides, "with", 0,
        "what is kept beside each item of a history, for example the action: up to 4 columns of few "
        "different values; up to 3 with `learn` or `unlabelled`"),
    OPTION_EXPRESSIONS(
        struct sequential_config, contexts, "context", 0,
        "what is known of an event before its item, for example the device: up to 4 columns of few "
        "different values. Nothing else of the event is read before it is predicted"),
    OPTION_EXPRESSION(struct sequential_config, learn, "learn", 0,
                      "a bool: only rows where it is true teach; the others are predicted and become part of "
                      "their users' histories. All rows teach without it"),
    OPTION_STREAM(
        struct sequential_config, score, "score", 0,
        "stream of rows without an item, for example requests: each gets the list of what comes next "
        "for its user (10 items without `top`), when its turn comes, and goes to NAME.scores. It has the columns that `by` and "
        "`context` read"),
    OPTION_STREAM(
        struct sequential_config, unlabelled, "unlabelled", 0,
        "stream of events of which nothing is to be predicted, for example views beside purchases: they become part of "
        "their users' histories, are neither ranked nor listed, and are learned by `also: masked` alone. It has the "
        "columns that `by`, `item` and `with` read"),
    OPTION_INT(struct sequential_config, history, "history", 0, "50", "1", "4096",
               "events that are remembered of each user; when one more comes, the older half goes"),
    OPTION_INT(struct sequential_config, layers, "layers", 0, "2", "1", "12",
               "layers of attention: more take longer, and see more of how events depend on each other"),
    OPTION_INT(
        struct sequential_config, heads, "heads", 0, "1", "1", "16",
        "heads of attention in each layer; `embedding.dim` / `heads` is a multiple of 16, at most 128"),
    OPTION_FLOAT(
        struct sequential_config, dropout, "dropout", 0, "0.1", "0.0", "0.9",
        "share of the values between layers that a step leaves out, by chance, so that it does not learn by heart"),
    OPTION_FLOAT(struct sequential_config, attention_dropout, "attention_dropout", 0, "0.1", "0.0", "0.9",
                 "likewise, of the weights of attention"),
    OPTION_ROW(
        BOOL, bool, struct sequential_config, recompute, "recompute",
        "values within a layer are not kept for a step's backward pass, but computed again: the same result, with "
        "less memory for `activations` (`leat explain`), and more time. For many layers",
        .flags = OPTION_RUNTIME, .default_text = "false"),
    LEARNER_WHERE_OPTION(struct sequential_config, device,
                         "GPU 0 if it is usable, else the CPU. Rows of items, "
                         "histories and losses are on the CPU in any case"),
    OPTION_BLOCK(struct sequential_config, embedding, struct sequential_embedding, "embedding", 0,
                 embedding_options,
                 "the rows of numbers that stand for items, and for values of `with` and `context`"),
    OPTION_KIND(struct sequential_config, hidden_optimizer, "hidden_optimizer", 0, "adam { rate: 0.001 }",
                optimizer_kinds, "how the weights of the layers are updated"),
    OPTION_FLOAT(struct sequential_config, clip_norm, "clip_norm", 0, "0.0", "0.0", NULL,
                 "a step's gradient by the weights of the layers is made at most so long; 0: no limit"),
    OPTION_KIND(struct sequential_config, loss, "loss", 0, "sampled_softmax { negatives: 256 }",
                losses_choices, "what is made small: how the item that came is compared with other items"),
    OPTION_KIND(struct sequential_config, also, "also", 0, NULL, also_choices,
                "what is learned beside the next item; without it nothing is"),
    OPTION_INT(struct sequential_config, batch, "batch", 0, "128", "1", "1023",
               "events that are learned together, in one step"),
    OPTION_INT(
        struct sequential_config, rehearse, "rehearse", 0, "0", "0", "64",
        "with each step, so many older histories for each of its events are learned again, of users "
        "drawn from all; each event of such a history but its first is a target. More learn better, and take longer"),
    OPTION_INT(
        struct sequential_config, passes, "passes", 0, "0", "0", "1000",
        "for inputs that end: events only become part of the histories, and when all have come, every user's "
        "history is learned so many times, each event but its first being a target; then the rows that `learn` "
        "leaves out, which have waited, are predicted. 0: each event is predicted and learned when it comes"),
    OPTION_INCLUDE(struct sequential_config, ranks, ranks_options),
    OPTION_BYTES(
        struct sequential_config, cache, "cache", OPTION_RUNTIME, "64MiB", "0B", NULL,
        "memory of `leat serve` and `leat score` for keys and values of users' last requests: what a user did "
        "since then is encoded alone; 0: nothing is kept"),
    OPTION_ENUM(
        struct sequential_config, cache_format, "cache_format", OPTION_RUNTIME, "fp32", "fp32|bf16",
        "how the cache keeps them: `bf16` takes half of the memory, and scores differ a little from those of "
        "training"),
    OPTION_INT(struct sequential_config, seed, "seed", 0, "1", "0", NULL,
               "another seed gives other initial rows, and other chance in learning"),
    OPTIONS_END,
};

/* --- Columns --- */

static bool add_feature(struct operator_bind *bind, int column, struct span span)
{
    struct learner_columns *known = bind->learner;
    known->features[known->count] = column;
    known->spans[known->count++] = span;
    return column >= 0;
}

static bool has_few(struct operator_bind *bind, const struct expressions *list, const char *option,
                    uint32_t most)
{
    if (list->count <= most)
        return true;
    struct diag *d = diag_error(bind->diags, DIAG_TOO_MANY, list->items[most]->span,
                                "`%s` takes at most %u columns, found %u", option, most, list->count);
    if (most < SEQUENTIAL_SIDES_MAX)
        diag_hint(bind->diags, d,
                  "with `learn` or `unlabelled`, one of the %d is taken by whether an event teaches",
                  SEQUENTIAL_SIDES_MAX);
    return false;
}

/* Whether histories tell which events teach what comes next. */
static bool has_marks(const struct sequential_config *c)
{
    return c->learn.ast != NULL || c->unlabelled.name.length > 0;
}

static bool bind_events(struct operator_bind *bind, struct sequential_config *c)
{
    uint32_t sides_max = SEQUENTIAL_SIDES_MAX - has_marks(c);
    if (!has_few(bind, &c->sides, "with", sides_max) ||
        !has_few(bind, &c->contexts, "context", SEQUENTIAL_CONTEXTS_MAX))
        return false;
    int *by = &c->by_columns[LEARNER_EXAMPLES];
    *by = choices_bind_id(bind, LEARNER_EXAMPLES, c->by.ast, false);
    bool is_ok = add_feature(bind, *by, c->by.ast->span);
    for (uint32_t i = 0; i < c->contexts.count; i++) {
        int *column = &c->context_columns[LEARNER_EXAMPLES][i];
        *column = choices_bind_id(bind, LEARNER_EXAMPLES, c->contexts.items[i], false);
        is_ok &= add_feature(bind, *column, c->contexts.items[i]->span);
    }
    for (uint32_t i = 0; i < c->sides.count; i++) {
        int *column = &c->side_columns[LEARNER_EXAMPLES][i];
        *column = choices_bind_id(bind, LEARNER_EXAMPLES, c->sides.items[i], false);
        is_ok &= *column >= 0;
    }
    int *item = &c->item_columns[LEARNER_EXAMPLES];
    *item = choices_bind_item(bind, c->item.ast);
    return choices_bind_learn(bind, c->learn.ast, &c->learn_column) && is_ok && *item >= 0;
}

/* The column of another input that stands for a column of the events; what: of the stream named at `span`. */
static bool bind_other(struct operator_bind *bind, uint32_t input, struct span span, const char *what,
                       int of_events, const struct ast *ast, int *column)
{
    *column = choices_bind_id(bind, input, ast, false);
    if (*column < 0) {
        diag_label(bind->diags, &bind->diags->items[bind->diags->count - 1], span, "%s", what);
        return false;
    }
    return choices_is_same_type(bind, input, *column, of_events, ast);
}

/* The column of `score` that stands for a feature of the events. */
static bool bind_scored(struct operator_bind *bind, uint32_t feature, const struct ast *ast, int *column)
{
    struct learner_columns *known = bind->learner;
    bool is_ok = bind_other(bind, LEARNER_SCORED, known->scored_span, "the stream whose rows are scored",
                            known->features[feature], ast, column);
    known->scored[feature] = *column;
    return is_ok;
}

static bool bind_score(struct operator_bind *bind, struct sequential_config *c)
{
    if (c->scored_input == 0)
        return true;
    bind->learner->scored_span = c->score.span;
    bool is_ok = bind_scored(bind, 0, c->by.ast, &c->by_columns[LEARNER_SCORED]);
    for (uint32_t i = 0; i < c->contexts.count; i++)
        is_ok &= bind_scored(bind, 1 + i, c->contexts.items[i], &c->context_columns[LEARNER_SCORED][i]);
    return is_ok;
}

static bool bind_unlabelled(struct operator_bind *bind, struct sequential_config *c)
{
    static const char what[] = "the stream of events without a label";
    uint32_t input = c->unlabelled_input;
    struct span span = c->unlabelled.span;
    if (input == 0)
        return true;
    if (c->also.config == NULL) {
        struct diag *d =
            diag_error(bind->diags, DIAG_BAD_LEARNER, span,
                       "events without a label teach by `also: masked` alone, which is not given");
        diag_hint(bind->diags, d,
                  "add `also: masked { share: 0.2, weight: 0.2 }`, or leave `unlabelled` out");
        return false;
    }
    bool is_ok = bind_other(bind, input, span, what, c->by_columns[LEARNER_EXAMPLES], c->by.ast,
                            &c->by_columns[input]);
    is_ok &= bind_other(bind, input, span, what, c->item_columns[LEARNER_EXAMPLES], c->item.ast,
                        &c->item_columns[input]);
    for (uint32_t i = 0; i < c->sides.count; i++)
        is_ok &= bind_other(bind, input, span, what, c->side_columns[LEARNER_EXAMPLES][i], c->sides.items[i],
                            &c->side_columns[input][i]);
    return is_ok;
}

/* --- Options --- */

static bool check(struct operator_bind *bind, const struct sequential_config *c)
{
    const struct sequential_options *m = &c->model;
    uint32_t each = m->dim / (uint32_t)c->heads;
    char reason[LOSSES_REASON];
    const char *problem = NULL;
    struct targets_options targets = sequential_targets(m);
    if (m->dim % c->heads != 0 || each % 16 != 0 || each > ATTENTION_DIM_MAX)
        problem = arena_printf(
            bind->arena,
            "`dim` / `heads` must be a multiple of 16, at most %d, found %u / %lld: choose another "
            "number of heads, or another `dim`",
            ATTENTION_DIM_MAX, m->dim, (long long)c->heads);
    else if (c->passes > 0 && c->rehearse > 0)
        problem =
            "`rehearse` goes with steps of events that come, and `passes` makes none: leave one of them out";
    else if (c->passes > 0 && c->score.name.length > 0)
        problem =
            "`score` predicts rows when they come, and with `passes` the model learns at the end of the input: "
            "leave one of them out; `leat score` predicts rows by a finished model";
    else if (m->rows.kind == OPT_NEWTON || m->dense.kind == OPT_NEWTON)
        problem = "`newton` learns from single events: take `adam`, `adagrad`, `momentum` or `sgd`";
    else if (m->dense.kind == OPT_ADAGRAD_ROW || m->dense.kind == OPT_ADAGRAD_BLOCK)
        problem = "`hidden_optimizer` has no rows: take `adam`, `adagrad`, `momentum` or `sgd`";
    else if (!losses_check(m->loss, &m->losses, reason) || !targets_check(&targets, reason))
        problem = arena_strndup(bind->arena, reason, strlen(reason));
    if (problem != NULL)
        diag_error(bind->diags, DIAG_BAD_LEARNER, bind->span, "%s", problem);
    return problem == NULL;
}

static void set_model(struct sequential_config *c, const struct network *network, const void *own)
{
    const struct losses_options *losses = c->loss.config;
    const struct sequential_masked *masked = c->also.config;
    c->model = (struct sequential_options){.kernels = kernels_pick(NULL, &(const char *){NULL}),
                                           .network = network,
                                           .network_own = own,
                                           .dim = (uint32_t)c->embedding.dim,
                                           .history = (uint32_t)c->history,
                                           .sides = c->sides.count,
                                           .contexts = c->contexts.count,
                                           .batch = (uint32_t)c->batch,
                                           .rehearse = (uint32_t)c->rehearse,
                                           .passes = (uint32_t)c->passes,
                                           .marks = has_marks(c),
                                           .recompute = c->recompute,
                                           .masked_share = masked != NULL ? masked->share : 0.0,
                                           .masked_weight = masked != NULL ? masked->weight : 0.0,
                                           .clip_norm = (float)c->clip_norm,
                                           .init = (float)c->embedding.init,
                                           .init_dense = INIT_DENSE,
                                           .rows = optimizer_from(&c->embedding.optimizer),
                                           .dense = optimizer_from(&c->hidden_optimizer),
                                           .loss = losses_chosen(&c->loss),
                                           .losses = *losses,
                                           .items_max = (uint32_t)c->embedding.items_max,
                                           .expire_after_us = c->embedding.expire_after_us,
                                           .shards = table_shards_of(0, 0),
                                           .seed = (uint64_t)c->seed};
}

bool sequential_bind(struct operator_bind *bind, const struct network *network, const void *own)
{
    struct sequential_config *c = bind->config;
    const struct schema *inputs[LEARNER_INPUTS] = {0};
    for (uint32_t i = 0; i < bind->inputs_count; i++) {
        inputs[i] = bind->inputs[i].schema;
        c->own_columns[i] = inputs[i]->count;
    }
    c->scored_input = c->score.name.length > 0 ? LEARNER_SCORED : 0;
    c->unlabelled_input = c->unlabelled.name.length > 0 ? 1 + c->scored_input : 0;
    bind->learner->unlabelled_input = c->unlabelled_input;
    set_model(c, network, own);
    if (!learner_where_bind(bind, &c->device) || !bind_events(bind, c) || !bind_score(bind, c) ||
        !bind_unlabelled(bind, c) || !ranks_bind(bind, &c->ranks) || !check(bind, c))
        return false;
    c->schema = bind->inputs[LEARNER_EXAMPLES].schema;
    int item = c->item_columns[LEARNER_EXAMPLES];
    c->top = choices_bind_output(bind, &c->ranks, item, LEARNER_EXAMPLES, inputs[LEARNER_EXAMPLES]);
    if (c->top != NULL && c->scored_input > 0)
        c->scores = choices_bind_output(bind, &c->ranks, item, LEARNER_SCORED, inputs[LEARNER_SCORED]);
    if (c->top == NULL || (c->scored_input > 0 && c->scores == NULL))
        return false;
    bind->outputs[LEARNER_PREDICTIONS] = c->top;
    bind->outputs[LEARNER_METRICS] = c->ranks.schema;
    bind->outputs[LEARNER_SCORES] = c->scores;
    bind->output_names[LEARNER_PREDICTIONS] = "top";
    bind->needs_memory = true;
    if (c->passes > 0) {
        bind->needs_end = bind->is_timer_kind = true;
        bind->hold_us = INT64_MAX;
    }
    return true;
}
