/*
 * The labels that a learner predicts, one or several (MMoE): their columns, their names, and their
 * evaluation: figures in the report, rows of the output `metrics` (whole run and window, a row every
 * metrics_every examples).
 */
#include "learners/learner/internal.h"

#include <ctype.h>
#include <math.h>

static const struct figure {
    const char *name;
    size_t offset; /* in struct metrics_values */
    bool is_of_probabilities, is_in_rows;
} figures[LEARNER_FIGURES] = {
    {"logloss", offsetof(struct metrics_values, logloss), true, true},
    {"auc", offsetof(struct metrics_values, auc), true, true},
    {"auc_error", offsetof(struct metrics_values, auc_error), true, false},
    {"normalized_entropy", offsetof(struct metrics_values, normalized_entropy), true, true},
    {"calibration", offsetof(struct metrics_values, calibration), true, true},
    {"rmse", offsetof(struct metrics_values, rmse), false, true},
    {"mae", offsetof(struct metrics_values, mae), false, true},
    {"label_mean", offsetof(struct metrics_values, label_mean), false, true},
};

static bool bind_label(struct operator_bind *bind, struct learner_config *c, const struct ast *ast)
{
    uint32_t number = c->inputs.labels_count;
    c->inputs.label_columns[number] = learner_bind_column(bind, ast, true);
    bind->learner->labels[number] = c->inputs.label_columns[number];
    bind->learner->label_spans[number] = ast->span;
    bind->learner->labels_count = ++c->inputs.labels_count;
    return c->inputs.label_columns[number] >= 0;
}

bool learner_bind_labels(struct operator_bind *bind, struct learner_config *c)
{
    c->inputs.labels_count = 0;
    if (c->inputs.label.ast != NULL)
        return bind_label(bind, c, c->inputs.label.ast);
    if (c->inputs.labels.count == 0 || c->inputs.labels.count > LEARNER_LABELS_MAX) {
        diag_error(bind->diags, DIAG_TOO_MANY, bind->span, "`labels` takes 1 to %d labels",
                   LEARNER_LABELS_MAX);
        return false;
    }
    bool is_ok = true;
    for (uint32_t i = 0; i < c->inputs.labels.count; i++)
        is_ok = bind_label(bind, c, c->inputs.labels.items[i]) && is_ok;
    return is_ok;
}

/* A label's name: that of its column, or the label's number, from 1, if it is an expression. */
static const char *name_of(struct operator_bind *bind, const struct learner_config *c, uint32_t label)
{
    struct str name = bind->inputs[0].schema->fields[c->inputs.label_columns[label]].name;
    bool is_plain = name.length > 0;
    for (size_t i = 0; i < name.length; i++)
        is_plain = is_plain && (isalnum((unsigned char)name.data[i]) || name.data[i] == '_');
    if (!is_plain)
        return arena_printf(bind->arena, "%u", label + 1);
    return arena_printf(bind->arena, "%.*s", STR_ARGS(name));
}

void learner_name_labels(struct operator_bind *bind, struct learner_config *c)
{
    struct learner_label *labels = arena_calloc(bind->arena, c->inputs.labels_count, sizeof(*labels));
    for (uint32_t l = 0; l < c->inputs.labels_count; l++) {
        const char *name = name_of(bind, c, l);
        bool is_one = c->inputs.labels_count == 1;
        labels[l].name = name;
        labels[l].prediction = is_one ? "prediction" : arena_printf(bind->arena, "prediction_%s", name);
        for (size_t i = 0; i < ARRAY_COUNT(labels[l].report); i++) {
            const char *figure = i == 0 ? "examples" : figures[i - 1].name;
            labels[l].report[i] = is_one ? figure : arena_printf(bind->arena, "%s.%s", name, figure);
        }
    }
    c->inputs.label_names = labels;
}

static void report_values(struct report *report, const struct learner_config *c,
                          const struct learner_label *label, const struct metrics_values *v, bool is_window)
{
    report_add(report, label->report[0], (double)v->count, is_window);
    for (size_t i = 0; i < LEARNER_FIGURES && v->count > 0; i++) {
        double value;
        memcpy(&value, (const char *)v + figures[i].offset, sizeof(value));
        if (!figures[i].is_of_probabilities || c->model.loss == LOSS_LOGISTIC)
            report_add(report, label->report[i + 1], value, is_window);
    }
}

void learner_report_labels(const struct learner_config *c, struct report *report)
{
    for (int is_window = 0; is_window < 2; is_window++) {
        for (uint32_t l = 0; l < c->inputs.labels_count; l++) {
            struct metrics_values v = metrics_values(&c->state->metrics[l], is_window);
            report_values(report, c, &c->inputs.label_names[l], &v, is_window);
        }
    }
}

/* --- Rows of the output `metrics` --- */

/* Returns the index of the first figure's column. The columns are: time; examples so far; with several labels
 * the row's label; the figures of the whole run; those of the window. A figure is null where it does not
 * exist: figures of probabilities with squared loss, all figures before the first example. */
static uint32_t first_value(uint32_t labels)
{
    return labels > 1 ? 3 : 2;
}

const struct schema *learner_metrics_schema(struct arena *arena, uint32_t labels)
{
    static const struct schema empty;
    struct schema *schema = schema_copy(arena, &empty, first_value(labels) + 2 * LEARNER_FIGURES);
    schema_add(schema, STR("time"), type_of(TYPE_TIME));
    schema_add(schema, STR("examples"), type_of(TYPE_INT));
    if (labels > 1)
        schema_add(schema, STR("label"), type_of(TYPE_TEXT));
    for (size_t i = 0; i < 2 * LEARNER_FIGURES; i++) {
        const struct figure *figure = &figures[i % LEARNER_FIGURES];
        bool is_window = i >= LEARNER_FIGURES;
        if (figure->is_in_rows)
            schema_add(schema,
                       str_from(is_window ? arena_printf(arena, "%s_window", figure->name) : figure->name),
                       type_of(TYPE_FLOAT));
    }
    return schema;
}

static void put(struct batch *batch, uint32_t column, double value)
{
    batch->columns[column].floats[0] = isnan(value) ? 0.0 : value;
    if (isnan(value))
        batch_set_null(batch, &batch->columns[column], 0);
}

/* A name lives as long as the plan, so the column may point at it. */
static void put_label(struct column *column, const char *name)
{
    column->heap = name;
    column->texts[0] = (struct text_ref){0, (uint32_t)strlen(name)};
}

/* Emits a row of `metrics` for one label. `time`: event time of the example that the row follows. In the
 * order of its micro-batch the row comes after all rows that sources read (core/batch.h, struct
 * row_order). */
static void emit_metrics(struct operator_context *context, const struct learner_config *c, uint32_t label,
                         int64_t time)
{
    const struct metrics *metrics = &c->state->metrics[label];
    struct metrics_values parts[2] = {metrics_values(metrics, false), metrics_values(metrics, true)};
    struct batch *batch = batch_new(context->pool, c->evaluation.schema, 1);
    struct row_order *order = arena_new(&batch->arena, struct row_order);
    *order = (struct row_order){.place = (uint16_t)(context->place + 1),
                                .partition = PARTITION_NONE,
                                .time = time,
                                .tie = c->state->seen * c->inputs.labels_count + label};
    batch->orders = order;
    batch->partition = PARTITION_NONE;
    batch->event_time[0] = time;
    batch->columns[0].ints[0] = time;
    batch->columns[1].ints[0] = (int64_t)parts[0].count;
    if (c->inputs.labels_count > 1)
        put_label(&batch->columns[2], c->inputs.label_names[label].name);
    uint32_t column = first_value(c->inputs.labels_count);
    for (size_t i = 0; i < 2 * LEARNER_FIGURES; i++) {
        const struct metrics_values *part = &parts[i / LEARNER_FIGURES];
        const struct figure *figure = &figures[i % LEARNER_FIGURES];
        double value = (double)NAN;
        if (part->count > 0 && (!figure->is_of_probabilities || c->model.loss == LOSS_LOGISTIC))
            memcpy(&value, (const char *)part + figure->offset, sizeof(value));
        if (figure->is_in_rows)
            put(batch, column++, value);
    }
    operator_emit(context, 1, batch);
}

/* Returns the end of the piece that begins at `at` and has `wanted` examples with weight, or the end of the
 * call if there are fewer; *came: examples with weight in the piece. */
static uint32_t end_of(const struct model_input *in, uint32_t at, uint64_t wanted, uint32_t *came)
{
    uint32_t end = (uint32_t)MIN(in->rows, at + wanted);
    *came = end - at;
    if (in->weights == NULL)
        return end;
    *came = 0;
    for (end = at; end < in->rows && *came < wanted; end++)
        *came += learner_has_weight(in, end);
    return end;
}

static int64_t last_with_weight(const struct model_input *in, uint32_t at, uint32_t end)
{
    while (end - 1 > at && !learner_has_weight(in, end - 1))
        end--;
    return in->event_time_us[end - 1];
}

/* Scores examples at..end of one label; those without weight are left out, as are those
 * without a prediction. */
static void score(struct learner_state *s, const struct model_input *in, uint32_t label, uint32_t at,
                  uint32_t end, const double *logits)
{
    const float *labels = label == 0 ? in->labels : in->more_labels[label - 1];
    const double *own = logits + (size_t)label * BATCH_ROWS + at;
    if (in->weights != NULL) {
        for (uint32_t i = at; i < end; i++)
            s->weighed[i - at] = learner_has_weight(in, i) ? own[i - at] : (double)NAN;
        own = s->weighed;
    }
    metrics_add(&s->metrics[label], s->kernels, own, labels + at, end - at);
}

void learner_metrics_add(struct operator_context *context, struct learner_config *c,
                         const struct model_input *in, const double *logits)
{
    struct learner_state *s = c->state;
    uint64_t every = (uint64_t)MAX(c->evaluation.metrics_every, 1);
    for (uint32_t at = 0, end, came; at < in->rows; at = end) {
        end = end_of(in, at, every - s->seen % every, &came);
        for (uint32_t l = 0; l < c->inputs.labels_count; l++)
            score(s, in, l, at, end, logits);
        if (came == 0)
            continue; /* the row at the present value of `seen` was already emitted */
        s->seen += came;
        s->seen_last_us = last_with_weight(in, at, end);
        for (uint32_t l = 0; l < c->inputs.labels_count && s->seen % every == 0; l++)
            emit_metrics(context, c, l, s->seen_last_us);
    }
}

void learner_metrics_end(struct operator_context *context, struct learner_config *c)
{
    struct learner_state *s = c->state;
    bool is_due = s->seen % (uint64_t)MAX(c->evaluation.metrics_every, 1) != 0 && !s->has_ended;
    s->has_ended = true;
    for (uint32_t l = 0; l < c->inputs.labels_count && is_due && s->seen_last_us != TIME_MIN; l++)
        emit_metrics(context, c, l, s->seen_last_us);
}
