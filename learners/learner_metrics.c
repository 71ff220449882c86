/* The `metrics` output: evaluation over the whole run and the window, a row every metrics_every examples. */
#include "learners/learner.h"

#include <math.h>

/* Names and where their values are, whole and window; the first two columns are the time and the examples so
 * far. Null where a figure does not exist: those of probabilities with squared loss, all before the first
 * example. */
static const struct {
    const char *name;
    size_t offset;
    bool is_of_probabilities;
} values[] = {
    {"logloss", offsetof(struct metrics_values, logloss), true},
    {"auc", offsetof(struct metrics_values, auc), true},
    {"normalized_entropy", offsetof(struct metrics_values, normalized_entropy), true},
    {"calibration", offsetof(struct metrics_values, calibration), true},
    {"rmse", offsetof(struct metrics_values, rmse), false},
    {"mae", offsetof(struct metrics_values, mae), false},
    {"label_mean", offsetof(struct metrics_values, label_mean), false},
};
enum { FIRST_VALUE = 2 };

const struct schema *learner_metrics_schema(struct arena *arena)
{
    static const struct schema empty;
    struct schema *schema = schema_copy(arena, &empty, FIRST_VALUE + 2 * ARRAY_COUNT(values));
    schema_add(schema, STR("time"), type_of(TYPE_TIME));
    schema_add(schema, STR("examples"), type_of(TYPE_INT));
    for (size_t i = 0; i < 2 * ARRAY_COUNT(values); i++) {
        const char *name = values[i % ARRAY_COUNT(values)].name;
        bool is_window = i >= ARRAY_COUNT(values);
        schema_add(schema, str_from(is_window ? arena_printf(arena, "%s_window", name) : name),
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

/* The row's order is that of the time of the example it came after, behind all rows that sources read. */
static void emit_metrics(struct operator_context *context, const struct learner_config *c, int64_t time)
{
    const struct metrics *metrics = &c->state->metrics;
    struct metrics_values parts[2] = {metrics_values(metrics, false), metrics_values(metrics, true)};
    struct batch *batch = batch_new(context->pool, c->metrics_schema, 1);
    struct row_order *order = arena_new(&batch->arena, struct row_order);
    *order = (struct row_order){
        .place = context->place + 1, .partition = PARTITION_NONE, .time = time, .tie = parts[0].count};
    batch->orders = order;
    batch->partition = PARTITION_NONE;
    batch->event_time[0] = time;
    batch->columns[0].ints[0] = time;
    batch->columns[1].ints[0] = (int64_t)parts[0].count;
    for (size_t i = 0; i < 2 * ARRAY_COUNT(values); i++) {
        const struct metrics_values *part = &parts[i / ARRAY_COUNT(values)];
        size_t k = i % ARRAY_COUNT(values);
        double value = (double)NAN;
        if (part->count > 0 && (!values[k].is_of_probabilities || c->model.loss == LOSS_LOGISTIC))
            memcpy(&value, (const char *)part + values[k].offset, sizeof value);
        put(batch, (uint32_t)(FIRST_VALUE + i), value);
    }
    operator_emit(context, 1, batch);
}

void learner_metrics_add(struct operator_context *context, struct learner_config *c,
                         const struct model_input *in, const double *logits)
{
    struct learner_state *s = c->state;
    uint64_t every = (uint64_t)MAX(c->metrics_every, 1);
    for (uint32_t at = 0, end; at < in->rows; at = end) {
        end = (uint32_t)MIN(in->rows, at + every - s->seen % every);
        metrics_add(&s->metrics, s->kernels, logits + at, in->labels + at, end - at);
        s->seen += end - at;
        if (s->seen % every == 0)
            emit_metrics(context, c, in->event_time_us[end - 1]);
    }
}
