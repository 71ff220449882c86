/* Dense layers: their widths, optimizer and number format, and batches that are added up for one step. */
#include "learners/learner/internal.h"
#include "learners/networks/networks.h"

enum { STEP_EXAMPLES_MAX = 1 << 18 };

const char *const learner_precision_names[] = {"fp32", "bf16", "fp16", "auto"};

const struct option learner_layers_options[] = {
    OPTION_KIND(struct layers_config, optimizer, "hidden_optimizer", 0,
                "adagrad { rate: 0.05, accumulator: 0.1 }", optimizer_kinds,
                "optimizer of the dense layers; when they learn by batches: `sgd`, `momentum`, "
                "`adagrad`, `adam` or `ftrl`"),
    OPTION_ENUM(struct layers_config, precision, "precision", 0, "fp32", "fp32|bf16|fp16|auto",
                "number format in which dense layers multiply when they learn by batches; weights and sums "
                "are always fp32. fp32: no TF32; fp16: gradients are scaled; auto: bf16, if it makes the "
                "loss at most 0.1 % worse"),
    OPTION_INT(struct layers_config, trial, "precision_trial", 0, "100000", "1", NULL,
               "with `precision: auto`: how many examples are learned in both bf16 and fp32 before one "
               "of the two is kept"),
    OPTION_INT(struct layers_config, accumulate, "accumulate", 0, "1", "1", "1024",
               "batches whose gradients are added up for one step: n batches learn like one `batch` n "
               "times as large, in the memory of one batch"),
    OPTIONS_END,
};

const struct option learner_head_options[] = {
    OPTION_INCLUDE_ROWS(learner_layers_options),
    OPTION_INT(struct layers_config, block, "hidden_batch", 0, "16", "1", "16",
               "with `batch: 1`: examples in a step of the dense layers; weights of ids still change "
               "with each example, by gradients computed before that step"),
    OPTIONS_END,
};

bool learner_has_products(struct operator_bind *bind, const char *kind)
{
    const struct learner_config *c = bind->config;
    bool has = c->inputs.sparse.count + (c->inputs.dense.count > 0) >= 2;
    if (!has)
        diag_error(
            bind->diags, DIAG_BAD_LEARNER, bind->span,
            "the layers of `%s` read products of pairs of features: it needs two features in `sparse`, or "
            "one beside `dense`",
            kind);
    return has;
}

bool learner_widths(struct operator_bind *bind, const struct ints *from, uint32_t to[MODEL_LAYERS_MAX])
{
    if (from->count >= MODEL_LAYERS_MAX) {
        diag_error(bind->diags, DIAG_BAD_LEARNER, bind->span,
                   "at most five dense layers can follow each other: shorten `hidden`, `bottom` or `towers`");
        return false;
    }
    for (uint32_t i = 0; i < MODEL_LAYERS_MAX; i++)
        to[i] = i < from->count ? (uint32_t)from->items[i] : 0;
    return true;
}

bool learner_bind_layers(struct operator_bind *bind, struct learner_config *c)
{
    struct model_options *o = &c->model;
    const struct layers_config *l = c->layers;
    const char *problem = NULL;
    if (l == NULL)
        return true;
    bool has_layers = o->network != NULL || l->hidden.count > 0, is_more = l->accumulate > 1;
    o->is_tried = l->precision == PRECISION_AUTO;
    o->trial_examples = (uint64_t)l->trial;
    o->precision = o->is_tried ? ROW_BF16 : (enum row_format)l->precision;
    if (o->precision == ROW_FP32 && !is_more)
        return true;
    if (!has_layers)
        problem = "`precision` and `accumulate` need dense layers, which this learner does not have";
    else if (c->steps.batch <= 1)
        problem = "`precision` and `accumulate` need dense layers that learn by batches: set the number of "
                  "examples in a step, for example `batch: 512`";
    else if (is_more && c->steps.batch_min > 0)
        problem = "`accumulate` makes steps of one size: it needs `batch_min: 0`";
    else if (is_more && (c->steps.batch % 4 != 0 || c->steps.batch * l->accumulate > STEP_EXAMPLES_MAX))
        problem = "with `accumulate`, `batch` must be a multiple of 4, and `batch` times `accumulate` at "
                  "most 262,144";
    if (problem != NULL)
        diag_error(bind->diags, DIAG_BAD_LEARNER, bind->span, "%s", problem);
    if (is_more) {
        o->micro = (uint32_t)c->steps.batch;
        o->batch = (uint32_t)(c->steps.batch * l->accumulate);
    }
    return !problem;
}

/* Appends the layers of a network that learns by batches alone: a restore takes them only if all are the
 * same. */
static void put_network(const struct learner_config *c, struct byte_buffer *out)
{
    const struct model_options *o = &c->model;
    buffer_printf(out, "=dense layers: %s\n", optimizer_name(&c->layers->optimizer));
    networks_put_widths(out, "hidden", o->hidden);
    if (o->network->put_shape != NULL)
        o->network->put_shape(o->network_own, o->labels, out);
}

void learner_put_layers(const struct learner_config *c, struct byte_buffer *out)
{
    const struct layers_config *l = c->layers;
    if (network_needs_batches(c->model.network)) {
        put_network(c, out);
        return;
    }
    if (!learner_has_hidden(c)) {
        buffer_printf(out, "=dense layers: none\n");
        return;
    }
    buffer_printf(out, "=dense layers: %s, %lld examples a step\n~hidden: ", optimizer_name(&l->optimizer),
                  (long long)l->block);
    for (uint32_t i = 0; i < l->hidden.count; i++)
        buffer_printf(out, "%s%lld", i > 0 ? ", " : "", (long long)l->hidden.items[i]);
    buffer_printf(out, "\n");
}

void learner_put_precision(const struct learner_config *c, struct byte_buffer *out)
{
    const struct layers_config *l = c->layers;
    if (l == NULL)
        return;
    /* omitted with the defaults, so that a shape without these options stays the same */
    if (l->precision != PRECISION_FP32)
        buffer_printf(out, "=precision: %s\n", learner_precision_names[l->precision]);
    if (l->accumulate > 1)
        buffer_printf(out, "=accumulate: %lld\n", (long long)l->accumulate);
}
