/* `serve NAME { from: STREAM, request: SOURCE }`: the way of a request's row from the columns of a source to
 * its answer, a row of a stream. The way leads through the first inputs of the nodes, and through the input `score` of a
 * learner whose `scores` are read: what other inputs brought is in the nodes' state.
 *
 * A request is a row whose label nobody knows yet, and it reads what is known when it comes. So the plan
 * refuses (E0508) a way where this cannot give what training saw:
 *   - a step that cannot answer (operator_kind.read), or whose rows are changes of earlier rows;
 *   - a step that reads state behind one that holds rows back: training reads at the deadline, a request now;
 *   - rows that exist because of the label. */
#include "core/change.h"
#include "core/learner.h"
#include "plan/build.h"

struct serve_options {
    struct name_ref from, request;
    struct plan_serving serving;
};

static const struct option serve_rows[] = {
    OPTION_STREAM(struct serve_options, from, "from", OPTION_REQUIRED,
                  "the stream whose rows are the answers: a stream, or NAME.predictions of a learner"),
    OPTION_STREAM(struct serve_options, request, "request", OPTION_REQUIRED,
                  "the source whose columns a request gives"),
    OPTION_TEXT(struct serve_options, serving.listen, "listen", 0, "\"127.0.0.1:8000\"",
                "where `leat serve` listens, HOST:PORT; port 0: any free one"),
    OPTION_DURATION(struct serve_options, serving.deadline_us, "deadline", 0, "100ms", "1ms", "1h",
                    "a request that waits longer is answered 504, and one that would wait longer 503"),
    OPTION_INT(struct serve_options, serving.queue_rows, "queue", 0, "65536", "1024", "16777216",
               "rows that may wait at most; requests beyond are answered 503"),
    OPTION_BYTES(struct serve_options, serving.body_bytes, "body", 0, "256KiB", "1KiB", "64MiB",
                 "bytes of a request at most"),
    OPTION_DURATION(
        struct serve_options, serving.max_staleness_us, "max_staleness", 0, "0s", "0s", "365d",
        "requests are refused while what answers is older: the checkpoint, or what the running job published last; "
        "0s: never"),
    OPTION_DURATION(
        struct serve_options, serving.publish_us, "publish", 0, "20ms", "1ms", "1h",
        "how often a running job publishes what its learner changed, for `leat serve` beside it; less "
        "often where that would take more than 2 % of the learner's time"),
    OPTIONS_END,
};

const struct option *plan_serve_options(const struct registry *registry, struct arena *arena)
{
    const struct option table[] = {
        OPTION_INCLUDE_ROWS(serve_rows),
        OPTION_BLOCK(struct serve_options, serving.log, struct plan_serve_log, "log", 0,
                     build_log_options(registry, arena),
                     "logs each answered row with its features, for `leat skew`: at most once, and what "
                     "cannot be written in time is lost and counted"),
        OPTIONS_END,
    };
    return arena_copy(arena, table, sizeof(table));
}

/* One way while it is built. */
struct way {
    struct plan_build *b;
    struct plan_serve *serve;
    struct span span;      /* of the declaration's name, for messages */
    struct lineage labels; /* of the learners on the way, and of the answers that the label joins add */
    /* Source columns that a step uses: to compute a column, or to decide which rows there are. */
    struct lineage used;
    /* What decides, in training alone, which rows are left out by steps that let requests pass. */
    struct lineage passed;
};

static struct diag *refuse(struct way *way, const struct plan_node *node, const char *text)
{
    struct diag *d = diag_error(way->b->diags, DIAG_NOT_SERVED, node->span, "%s", text);
    diag_label(way->b->diags, d, way->span,
               "the step lies between the request and the answer of this `serve`");
    return d;
}

static const struct schema *schema_into(const struct way *way, uint32_t step)
{
    const struct plan_node *node = &way->b->plan->nodes[way->serve->steps[step]];
    return build_schema(way->b, node->inputs[way->serve->inputs[step]]);
}

static const struct schema *schema_out(const struct way *way, uint32_t step)
{
    return way->b->plan->nodes[way->serve->steps[step]].outputs[way->serve->outputs[step]];
}

/* The input whose rows are those of the output. */
static uint32_t input_of(const struct plan *plan, struct plan_edge edge)
{
    return plan->nodes[edge.node].tag == PLAN_LEARNER && edge.output == LEARNER_SCORES ? LEARNER_SCORED : 0;
}

static struct plan_edge edge_before(const struct plan *plan, struct plan_edge edge)
{
    return plan->nodes[edge.node].inputs[input_of(plan, edge)];
}

/* Lists the nodes from `from` back to a source. False after a diagnostic: the source is not the request's. */
static bool list_steps(struct way *way, struct plan_edge from)
{
    struct plan_serve *serve = way->serve;
    struct plan *plan = way->b->plan;
    struct plan_edge edge = from;
    uint32_t count = 0;
    for (; plan->nodes[edge.node].tag != PLAN_SOURCE; edge = edge_before(plan, edge))
        count++;
    if (edge.node != serve->request) {
        struct diag *d = diag_error(
            way->b->diags, DIAG_NOT_SERVED, way->span, "the answers come from source `%.*s`, not from `%.*s`",
            STR_ARGS(plan->nodes[edge.node].name), STR_ARGS(plan->nodes[serve->request].name));
        diag_hint(way->b->diags, d, "`request` is the source at the beginning of the stream `from`: `%.*s`",
                  STR_ARGS(plan->nodes[edge.node].name));
        return false;
    }
    if (count == 0) {
        struct diag *d = diag_error(way->b->diags, DIAG_NOT_SERVED, way->span,
                                    "no step lies between the request and the answer: `from` is the source");
        diag_hint(way->b->diags, d, "serve a stream with steps, or MODEL.predictions of a learner");
        return false;
    }
    serve->steps_count = count;
    serve->steps = arena_array(way->b->arena, uint32_t, count);
    serve->inputs = arena_array(way->b->arena, uint32_t, count);
    serve->outputs = arena_array(way->b->arena, uint32_t, count);
    for (edge = from; count-- > 0; edge = edge_before(plan, edge)) {
        serve->steps[count] = edge.node;
        serve->inputs[count] = input_of(plan, edge);
        serve->outputs[count] = edge.output;
    }
    return true;
}

/* Whether the step adds the column, or gives it another value, rather than handing it on. */
static bool is_added(const struct schema *input, const struct field *field)
{
    int index = schema_find(input, field->name);
    return index < 0 || !type_equal(&input->fields[index].type, &field->type) ||
           memcmp(&input->fields[index].lineage, &field->lineage, sizeof(field->lineage)) != 0;
}

static struct lineage without(const struct lineage *all, const struct lineage *left_out)
{
    struct lineage rest;
    for (size_t i = 0; i < LINEAGE_WORDS; i++)
        rest.words[i] = all->words[i] & ~left_out->words[i];
    return rest;
}

/* Adds the labels that become known at the node. */
static void note_labels(struct way *way, uint32_t step)
{
    const struct plan_node *node = &way->b->plan->nodes[way->serve->steps[step]];
    const struct schema *input = schema_into(way, step), *out = schema_out(way, step);
    lineage_merge(&way->labels, &node->labels);
    for (uint32_t i = 0; node->operator_kind->makes_label && i < out->count; i++)
        if (is_added(input, &out->fields[i]))
            lineage_merge(&way->labels, &out->fields[i].lineage);
}

/* What decides which rows the step leaves out. A schema does not tell whether a condition uses a column by which
 * an earlier step let rows pass (way->passed), so a step with a condition counts as if it does. */
static struct lineage rows_of(const struct way *way, uint32_t step)
{
    const struct operator_kind *kind = way->b->plan->nodes[way->serve->steps[step]].operator_kind;
    struct lineage rows =
        without(&schema_out(way, step)->rows_lineage, &schema_into(way, step)->rows_lineage);
    if (kind->reading == READING_CHOICE)
        lineage_merge(&rows, &way->passed);
    return rows;
}

/* Adds what the step computes its columns from, and what decides which rows it leaves out. A step that lets
 * all requests pass uses nothing. False after a diagnostic: the label decides which rows there are. */
static bool note_used(struct way *way, uint32_t step)
{
    const struct plan_node *node = &way->b->plan->nodes[way->serve->steps[step]];
    const struct schema *input = schema_into(way, step), *out = schema_out(way, step);
    struct lineage rows = rows_of(way, step);
    if (node->operator_kind->reading == READING_PASS) {
        lineage_merge(&way->passed, &rows);
        return true;
    }
    if (lineage_intersects(&rows, &way->labels)) {
        struct diag *d = refuse(
            way, node,
            arena_printf(way->b->arena, "which rows pass `%s` depends on the label, which no request has",
                         node->operator_kind->name));
        diag_hint(
            way->b->diags, d,
            "choose the rows to learn from by other columns, or by the learner's `weight`; if the label "
            "derives from columns that a request has, list them in the learner's `known_early`");
        return false;
    }
    lineage_merge(&way->used, &rows);
    for (uint32_t i = 0; i < out->count; i++) {
        struct lineage values = without(&out->fields[i].lineage, &out->fields[i].rows_only);
        /* E0502: a model does not read its own label, so what derives from it judges the prediction (`rank`): a
         * request has no such column, and needs nothing for it */
        bool judges = node->tag == PLAN_LEARNER && lineage_intersects(&values, &node->labels);
        if (!is_added(input, &out->fields[i]) || judges)
            continue;
        lineage_merge(&way->used, &values);
        if (node->tag != PLAN_LEARNER || !lineage_intersects(&values, &way->labels))
            continue;
        struct diag *d = refuse(way, node, "the model predicts from a label, which no request has");
        diag_hint(way->b->diags, d, "leave out the features that derive from a label on the way");
        return false;
    }
    return true;
}

/* A request has one answer: what a step makes several rows of, another one must put together. */
static bool check_fan(struct way *way)
{
    const struct plan_node *open[OPERATOR_OUTPUTS_MAX]; /* more deeply no list lies in a row */
    uint32_t depth = 0;
    for (uint32_t i = 0; i < way->serve->steps_count; i++) {
        const struct plan_node *node = &way->b->plan->nodes[way->serve->steps[i]];
        if (node->operator_kind->fan == OPERATOR_FAN_OUT && depth < ARRAY_COUNT(open))
            open[depth++] = node;
        else if (node->operator_kind->fan == OPERATOR_FAN_IN && depth > 0)
            depth--;
    }
    if (depth == 0)
        return true;
    struct diag *d =
        refuse(way, open[depth - 1],
               arena_printf(way->b->arena, "`%s` makes several rows of a request, which has one answer",
                            open[depth - 1]->operator_kind->name));
    diag_hint(way->b->diags, d,
              "put them together behind it, `| nest a, b as list`; or serve a stream before this step");
    return false;
}

static bool check_step(struct way *way, uint32_t step, const struct plan_node **holds)
{
    const struct plan_node *node = &way->b->plan->nodes[way->serve->steps[step]];
    const struct operator_kind *kind = node->operator_kind;
    const char *why =
        kind->read == NULL                          ? "it needs other rows, or makes several rows of one"
        : node->hold_us == INT64_MAX                ? "its rows come when the input ends"
        : change_column(schema_out(way, step)) >= 0 ? "its rows change earlier rows"
        : way->serve->outputs[step] != 0 && way->serve->inputs[step] == 0 && kind->read != kind->process
            ? "this output has no rows of requests"
            : NULL;
    if (why != NULL) {
        struct diag *d = refuse(
            way, node, arena_printf(way->b->arena, "`%s` cannot answer a request: %s", kind->name, why));
        diag_hint(way->b->diags, d,
                  "serve a stream before this step, or move the step behind the stream that is served");
        return false;
    }
    if (kind->reading == READING_STATE && *holds != NULL) {
        struct diag *d =
            refuse(way, node,
                   arena_printf(way->b->arena, "`%s` reads its state behind `%s`, which holds rows back",
                                kind->name, (*holds)->operator_kind->name));
        diag_label(way->b->diags, d, (*holds)->span, "training reads when this step lets a row go");
        diag_hint(way->b->diags, d, "put `%s` before `%s`: then both read what is known when the row comes",
                  kind->name, (*holds)->operator_kind->name);
        return false;
    }
    if (node->hold_us > 0)
        *holds = node;
    return true;
}

/* Sets which columns a request gives and which columns an answer has. */
static void set_columns(struct way *way)
{
    struct plan_serve *serve = way->serve;
    const struct schema *source = way->b->plan->nodes[serve->request].outputs[0];
    const struct schema *answer = schema_out(way, serve->steps_count - 1);
    struct lineage needed = without(&way->used, &way->labels);
    serve->is_needed = arena_array(way->b->arena, bool, source->count);
    for (uint32_t i = 0; i < source->count; i++)
        serve->is_needed[i] = lineage_intersects(&source->fields[i].lineage, &needed);
    serve->is_hidden = arena_array(way->b->arena, bool, answer->count);
    for (uint32_t i = 0; i < answer->count; i++)
        serve->is_hidden[i] = lineage_intersects(&answer->fields[i].lineage, &way->labels);
}

static bool resolve(struct plan_build *b, const struct name_ref *name, struct plan_edge *edge)
{
    struct stream_ref ref = build_stream_ref(name->name, name->span);
    if (!build_resolve(b, &ref, edge))
        return false;
    if (edge->node != PLAN_NODE_DEAD && b->plan->nodes[edge->node].outputs[edge->output] != NULL)
        return true;
    diag_error(b->diags, DIAG_NO_STREAM, name->span, "`%.*s` cannot be served", STR_ARGS(name->name));
    return false;
}

bool build_serve(struct plan_build *b, const struct serve_decl *decl)
{
    struct serve_options options = {0};
    struct plan_edge from, request;
    const struct option *table = plan_serve_options(b->options->registry, b->arena);
    if (!option_bind(table, "`serve`", decl->name.span, decl->entries, decl->count, &options, &b->env))
        return false;
    bool is_good = build_log(b, decl, &options.serving.log);
    is_good &= resolve(b, &options.from, &from);
    is_good &= resolve(b, &options.request, &request);
    if (is_good && b->plan->nodes[request.node].tag != PLAN_SOURCE) {
        diag_error(b->diags, DIAG_NOT_SERVED, options.request.span, "`%.*s` is not a source",
                   STR_ARGS(options.request.name));
        is_good = false;
    }
    if (is_good && b->plan->config.checkpoint.directory.length == 0) {
        struct diag *d = diag_error(b->diags, DIAG_NOT_SERVED, decl->name.span,
                                    "the job takes no checkpoints, and scores are read from one");
        diag_hint(b->diags, d, "add `checkpoint: { dir: \"state/NAME\" }` to the job block");
        is_good = false;
    }
    if (!is_good)
        return false;
    struct plan_serve *serve = &b->plan->serves[b->plan->serves_count++];
    *serve = (struct plan_serve){.name = decl->name.text,
                                 .span = decl->name.span,
                                 .request = request.node,
                                 .serving = options.serving};
    struct way way = {.b = b, .serve = serve, .span = decl->name.span};
    if (!list_steps(&way, from))
        return false;
    const struct plan_node *holds = NULL;
    for (uint32_t i = 0; i < serve->steps_count; i++) {
        is_good &= check_step(&way, i, &holds);
        note_labels(&way, i);
    }
    for (uint32_t i = 0; i < serve->steps_count && is_good; i++) /* a learner behind may name the label */
        is_good = note_used(&way, i);
    if (!is_good || !check_fan(&way))
        return false;
    set_columns(&way);
    return true;
}
