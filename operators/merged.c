#include "operators/merged.h"

void merged_run(struct operator_context *context, struct merge *merge, merged_prepare *prepare,
                merged_process *process)
{
    struct merged_rows *merged = arena_alloc(context->scratch, sizeof(*merged));
    struct {
        const struct batch *batch;
        struct prepared *prepared;
        struct row_keys keys;
    } inputs[2] = {0}, *of;
    merged->count = 0;
    for (bool has_more = true; has_more;) {
        uint32_t at = merged->count;
        struct merge_row *row = &merged->rows[at];
        has_more = merge_next(merge, row);
        if (has_more) {
            of = &inputs[row->input];
            if (of->batch != row->batch) {
                of->batch = row->batch;
                of->prepared = prepare(context, row->batch, row->input, &of->keys);
            }
            merged->prepared[at] = of->prepared;
            merged->keys[at] = of->keys.keys[row->index];
            merged->hashes[at] = of->keys.hashes[row->index];
            merged->has_null[at] = of->keys.has_null[row->index];
            merged->count++;
        }
        if (merged->count == BATCH_ROWS || (!has_more && merged->count > 0)) {
            process(context, merged);
            merged->count = 0;
        }
    }
}
