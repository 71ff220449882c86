/* sample: a share of the rows, chosen by hash. */
#include "operators/expr/compute.h"

struct sample {
    double rate;
    struct columns by;
    int64_t seed;
};

static const struct option sample_options[] = {
    OPTION_FLOAT(struct sample, rate, "rate", OPTION_REQUIRED | OPTION_POSITIONAL, NULL, "0", "1",
                 "the share of the rows to keep"),
    OPTION_COLUMNS(struct sample, by, "by", 0,
                   "rows with equal values in these columns are kept or dropped together; without `by`, each "
                   "row by itself"),
    OPTION_INT(struct sample, seed, "seed", 0, "0", "0", NULL, "another seed chooses other rows"),
    OPTIONS_END,
};

static bool sample_bind(struct operator_bind *bind)
{
    struct sample *sample = bind->config;
    const struct schema *input = bind->inputs[0].schema;
    if (!columns_resolve(&sample->by, input, bind->arena, bind->diags))
        return false;
    struct schema *output = operator_extend(bind, 0);
    for (uint32_t i = 0; i < sample->by.count; i++) {
        const struct field *field = &input->fields[sample->by.items[i].index];
        if (field->type.tag >= TYPE_LIST) {
            diag_error(bind->diags, DIAG_TYPE_CLASH, sample->by.items[i].span,
                       "`sample` cannot choose rows by a list");
            return false;
        }
        lineage_merge(&output->rows_lineage, &field->lineage);
    }
    bind->outputs[0] = output;
    return true;
}

/* Hashes the row's place in the job's order, which identifies the row and is the same at any number of
 * lanes. */
static uint64_t order_hash(uint64_t hash, const struct batch *batch, uint32_t row)
{
    struct row_order order = batch_order(batch, row);
    hash = expr_hash_combine(hash, (uint64_t)order.place << 32 | order.partition);
    hash = expr_hash_combine(hash, (uint64_t)order.time);
    return expr_hash_combine(expr_hash_combine(hash, order.tie), order.sub);
}

static bool is_kept(const struct sample *sample, const struct batch *batch, uint32_t row)
{
    uint64_t hash = (uint64_t)sample->seed;
    for (uint32_t i = 0; i < sample->by.count; i++)
        hash = expr_hash_combine(hash, expr_hash_value(&batch->columns[sample->by.items[i].index], row));
    if (sample->by.count == 0)
        hash = order_hash(hash, batch, row);
    return (double)(hash >> 11) * 0x1p-53 < sample->rate;
}

static void sample_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    const struct sample *sample = context->config;
    struct batch *out = batch_derive(batch, context->output);
    uint16_t *sel = arena_alloc(&out->arena, (batch->selected + 1) * sizeof(*sel));
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        sel[count] = (uint16_t)row;
        count += is_kept(sample, batch, row);
    }
    out->sel = sel;
    out->selected = count;
    context->counters.passed += count;
    context->counters.filtered += batch->selected - count;
    operator_emit(context, 0, out);
}

const struct operator_kind operator_sample = {
    .name = "sample",
    .summary = "keeps a share of the rows, chosen by hash",
    .example = "events | sample 0.1 by user_id",
    .details = "The choice depends on the values of `by` and on `seed` alone (without `by`: on the row's "
               "place in the job's order), so every run and every number of workers keeps the same rows.",
    .options = sample_options,
    .size = sizeof(struct sample),
    .determinism = DETERMINISM_BY_ROW,
    .keeps_columns = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = sample_bind,
    .process = sample_process,
    .read = operator_pass,
    .reading = READING_PASS,
};
