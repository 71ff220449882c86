/* The option `score`: rows without a label, in the one order of records, which the model predicts by what all rows
 * before them have taught it, and does not learn. They are the output `scores`. A row is predicted as a request of
 * `leat serve` would be: as if it came next. */
#include "learners/learner/internal.h"

#include "core/mem.h"

#include <math.h>

const struct option learner_score_options[] = {
    OPTION_STREAM(
        struct score_config, stream, "score", 0,
        "stream of rows without a label, for example requests: each is predicted when its turn comes, by "
        "what all rows before it have taught the model, is not learned, and goes to NAME.scores. It has "
        "the columns that the features read"),
    OPTIONS_END,
};

/* Finds the column of a feature among those of input 1, and notes it. feature: its number among bind->learner's. */
static bool bind_feature(struct operator_bind *bind, uint32_t feature, const struct ast *ast, int *column)
{
    struct learner_columns *known = bind->learner;
    *column = bind->add_column(bind, LEARNER_SCORED, ast);
    if (*column < 0) {
        diag_label(bind->diags, &bind->diags->items[bind->diags->count - 1], known->scored_span,
                   "the stream whose rows are scored");
        return false;
    }
    known->scored[feature] = *column;
    const struct type *learned =
        &bind->inputs[LEARNER_EXAMPLES].schema->fields[known->features[feature]].type;
    const struct type *scored = &bind->inputs[LEARNER_SCORED].schema->fields[*column].type;
    if (type_equal(learned, scored))
        return true;
    struct diag *d = diag_error(bind->diags, DIAG_TYPE_CLASH, ast->span,
                                "this feature is of type %s among the examples, and of type %s in `%.*s`",
                                type_name(bind->arena, learned), type_name(bind->arena, scored),
                                STR_ARGS(bind->inputs[LEARNER_SCORED].stream));
    diag_hint(bind->diags, d,
              "equal ids of different types are different ids: give the column the same type in both "
              "streams (`cast`)");
    return false;
}

bool learner_bind_score(struct operator_bind *bind, struct learner_config *c)
{
    if (bind->inputs_count <= LEARNER_SCORED)
        return true;
    const struct schema *own = bind->inputs[LEARNER_SCORED].schema;
    const struct expressions *lists[] = {&c->inputs.sparse, &c->inputs.wide, &c->inputs.dense};
    uint32_t feature = 0;
    bind->learner->scored_span = c->score.stream.span;
    bool is_ok = true;
    for (size_t list = 0; list < ARRAY_COUNT(lists); list++)
        for (uint32_t i = 0; i < lists[list]->count; i++, feature++) {
            uint32_t dense = feature - c->inputs.sparse_count; /* if it is one */
            int *column = feature < c->inputs.sparse_count ? &c->score.sparse_columns[feature]
                                                           : &c->score.dense_columns[dense];
            is_ok &= bind_feature(bind, feature, lists[list]->items[i], column);
        }
    if (!is_ok)
        return false;
    leat_assert(feature == bind->learner->count);
    c->score.own_columns = own->count;
    c->score.schema = learner_output_schema(bind, LEARNER_SCORED, own, bind->learner->scored);
    bind->outputs[LEARNER_SCORES] = c->score.schema;
    return true;
}

struct batch learner_scored_view(const struct learner_config *c, const struct batch *batch)
{
    struct learner_state *s = c->state;
    if (s->request == NULL)
        s->request = mem_calloc(c->inputs.schema->count, sizeof(*s->request));
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++)
        s->request[c->inputs.sparse_columns[f]] = batch->columns[c->score.sparse_columns[f]];
    for (uint32_t d = 0; d < c->inputs.dense_count; d++)
        s->request[c->inputs.dense_columns[d]] = batch->columns[c->score.dense_columns[d]];
    struct batch view = {.pool = NULL};
    /* not the members from `arena` on: other threads may change `references` meanwhile */
    memcpy(&view, batch, offsetof(struct batch, arena));
    view.columns = s->request;
    return view;
}

void learner_emit_scores(struct operator_context *context, const struct learner_config *c,
                         struct batch *batch)
{
    learner_emit(context, c, batch, LEARNER_SCORES, c->score.schema, c->score.own_columns);
}

void learner_score(struct operator_context *context, struct learner_config *c, struct batch *batch)
{
    struct learner_state *s = c->state;
    struct batch view = learner_scored_view(c, batch);
    struct model_input in;
    learner_columns_request(s->columns, c, &view, &in);
    model_predict(s->model, &in, s->logits);
    if (!learner_check_device(context))
        return;
    uint64_t rejected = 0;
    for (uint32_t i = 0; i < batch->selected; i++)
        rejected += isnan(s->logits[i]) ? 1 : 0;
    s->scored += batch->selected - rejected;
    s->rejected += rejected;
    context->counters.filtered += batch->selected - rejected;
    context->counters.dead += rejected;
    learner_emit_scores(context, c, batch);
}
