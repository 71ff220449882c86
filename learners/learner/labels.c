/* The labels that a learner predicts, one or several (MMoE): their columns, names and figures. */
#include "learners/learner/learner.h"

#include <ctype.h>

const struct learner_figure learner_figures[LEARNER_FIGURES] = {
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
    uint32_t number = c->labels_count;
    c->label_columns[number] = learner_bind_column(bind, ast, true);
    bind->learner->labels[number] = c->label_columns[number];
    bind->learner->label_spans[number] = ast->span;
    bind->learner->labels_count = ++c->labels_count;
    return c->label_columns[number] >= 0;
}

bool learner_bind_labels(struct operator_bind *bind, struct learner_config *c)
{
    c->labels_count = 0;
    if (c->label.ast != NULL)
        return bind_label(bind, c, c->label.ast);
    if (c->labels.count == 0 || c->labels.count > LEARNER_LABELS_MAX) {
        diag_error(bind->diags, DIAG_E0503, bind->span, "`labels` names 1 to %d labels", LEARNER_LABELS_MAX);
        return false;
    }
    bool is_ok = true;
    for (uint32_t i = 0; i < c->labels.count; i++)
        is_ok = bind_label(bind, c, c->labels.items[i]) && is_ok;
    return is_ok;
}

/* A label's name: that of its column, or the label's number, from 1, if it is an expression. */
static const char *name_of(struct operator_bind *bind, const struct learner_config *c, uint32_t label)
{
    struct str name = bind->inputs[0].schema->fields[c->label_columns[label]].name;
    bool is_plain = name.length > 0;
    for (size_t i = 0; i < name.length; i++)
        is_plain = is_plain && (isalnum((unsigned char)name.data[i]) || name.data[i] == '_');
    if (!is_plain)
        return arena_printf(bind->arena, "%u", label + 1);
    return arena_printf(bind->arena, "%.*s", STR_ARGS(name));
}

void learner_name_labels(struct operator_bind *bind, struct learner_config *c)
{
    struct learner_label *labels = arena_calloc(bind->arena, c->labels_count, sizeof(*labels));
    for (uint32_t l = 0; l < c->labels_count; l++) {
        const char *name = name_of(bind, c, l);
        bool is_one = c->labels_count == 1;
        labels[l].name = name;
        labels[l].prediction = is_one ? "prediction" : arena_printf(bind->arena, "prediction_%s", name);
        for (size_t i = 0; i < ARRAY_COUNT(labels[l].report); i++) {
            const char *figure = i == 0 ? "examples" : learner_figures[i - 1].name;
            labels[l].report[i] = is_one ? figure : arena_printf(bind->arena, "%s.%s", name, figure);
        }
    }
    c->label_names = labels;
}

static void report_values(struct report *report, const struct learner_config *c,
                          const struct learner_label *label, const struct metrics_values *v, bool is_window)
{
    report_add(report, label->report[0], (double)v->count, is_window);
    for (size_t i = 0; i < LEARNER_FIGURES && v->count > 0; i++) {
        double value;
        memcpy(&value, (const char *)v + learner_figures[i].offset, sizeof(value));
        if (!learner_figures[i].is_of_probabilities || c->model.loss == LOSS_LOGISTIC)
            report_add(report, label->report[i + 1], value, is_window);
    }
}

void learner_report_labels(const struct learner_config *c, struct report *report)
{
    for (int is_window = 0; is_window < 2; is_window++) {
        for (uint32_t l = 0; l < c->labels_count; l++) {
            struct metrics_values v = metrics_values(&c->state->metrics[l], is_window);
            report_values(report, c, &c->label_names[l], &v, is_window);
        }
    }
}
