/* The format of dense layers' products, and how much of a step goes through the layers at a time. */
#include "learners/learner/learner.h"

enum { STEP_EXAMPLES_MAX = 1 << 18 };

static const char *const precision_names[] = {"fp32", "bf16", "fp16", "auto"};

bool learner_bind_precision(struct operator_bind *bind, struct learner_config *c)
{
    struct model_options *o = &c->model;
    const char *problem = NULL;
    bool has_layers = o->network > NETWORK_HIDDEN || c->hidden.count > 0, is_more = c->accumulate > 1;
    o->is_tried = c->precision == PRECISION_AUTO;
    o->trial_examples = (uint64_t)c->precision_trial;
    o->precision = o->is_tried ? ROW_BF16 : (enum row_format)c->precision;
    if (o->precision == ROW_FP32 && !is_more)
        return true;
    if (!has_layers)
        problem = "`precision` and `accumulate` are of dense layers, which this learner does not have";
    else if (c->batch <= 1)
        problem =
            "`precision` and `accumulate` are of dense layers that learn by batches: say how many examples "
            "a step has, `batch: 512`";
    else if (!model_can_attach(o))
        problem =
            "`ffm` with `hidden`, and dense layers that move by `adagrad_row` or `adagrad_block`, learn in "
            "fp32 and by whole steps alone: take another `hidden_optimizer`, or leave out `precision` and "
            "`accumulate`";
    else if (is_more && c->batch_min > 0)
        problem = "`accumulate` makes steps of one size: it needs `batch_min: 0`";
    else if (is_more && (c->batch % 4 != 0 || c->batch * c->accumulate > STEP_EXAMPLES_MAX))
        problem =
            "with `accumulate`, `batch` must be a multiple of 4, and both together make at most 262,144 "
            "examples a step";
    if (problem != NULL)
        diag_error(bind->diags, DIAG_E0901, bind->span, "%s", problem);
    if (is_more) {
        o->micro = (uint32_t)c->batch;
        o->batch = (uint32_t)(c->batch * c->accumulate);
    }
    return !problem;
}

/* Omitted with the defaults, so that a shape without these options stays the same. */
void learner_shape_precision(const struct learner_config *c, struct byte_buffer *out)
{
    if (c->precision != PRECISION_FP32)
        buffer_printf(out, "=precision: %s\n", precision_names[c->precision]);
    if (c->accumulate > 1)
        buffer_printf(out, "=accumulate: %lld\n", (long long)c->accumulate);
}

void learner_report_precision(const struct learner_config *c, struct report *report)
{
    if (c->precision == PRECISION_FP32)
        return;
    struct model_precision p = model_precision(c->state->model);
    report_add_text(report, "precision",
                    p.is_undecided ? "bf16, with fp32 beside it" : precision_names[p.now]);
    if (c->precision == PRECISION_FP16) {
        report_add(report, "slope_scale", (double)p.scale, false);
        report_add(report, "slope_scale_lowered", (double)p.lowered, false);
    }
    if (c->precision == PRECISION_AUTO) {
        report_add(report, "trial_examples", (double)p.trial_examples, false);
        report_add(report, "trial_loss_bf16", p.trial_loss_bf16, false);
        report_add(report, "trial_loss_fp32", p.trial_loss_fp32, false);
    }
}
