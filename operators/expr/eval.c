/* Runs programs: buffers, strict nodes, results. Lazy nodes are in eval_lazy.c. */
#include "operators/expr/node.h"

/* The rows 0 .. BATCH_ROWS - 1, generated at compile time. */
#define ROWS_4(n)   (n), (n) + 1, (n) + 2, (n) + 3
#define ROWS_16(n)  ROWS_4(n), ROWS_4((n) + 4), ROWS_4((n) + 8), ROWS_4((n) + 12)
#define ROWS_64(n)  ROWS_16(n), ROWS_16((n) + 16), ROWS_16((n) + 32), ROWS_16((n) + 48)
#define ROWS_256(n) ROWS_64(n), ROWS_64((n) + 64), ROWS_64((n) + 128), ROWS_64((n) + 192)
static const uint16_t iota[] = {ROWS_256(0), ROWS_256(256), ROWS_256(512), ROWS_256(768)};
_Static_assert(ARRAY_COUNT(iota) == BATCH_ROWS, "one for each row");

/* --- Vectors --- */

void *frame_buffer(struct expr_frame *frame)
{
    if (frame->buffers_count > 0)
        return frame->buffers[--frame->buffers_count];
    return arena_alloc(frame->scratch, EXPR_BUFFER_BYTES);
}

void vec_release(struct expr_frame *frame, struct expr_vec *vec)
{
    if (vec->is_owned && frame->buffers_count < ARRAY_COUNT(frame->buffers))
        frame->buffers[frame->buffers_count++] = vec->column.data;
    vec->is_owned = false;
}

void vec_allocate(struct expr_frame *frame, struct expr_vec *vec, struct type type)
{
    vec->column.tag = type.tag;
    vec->column.data = frame_buffer(frame);
    vec->column.heap = "";
    vec->is_owned = true;
    if (type.tag >= TYPE_TEXT && type.tag != TYPE_TIME)
        memset(vec->column.data, 0, (size_t)frame->extent * sizeof(struct text_ref));
}

uint64_t *vec_own_valid(struct expr_frame *frame, struct expr_vec *vec)
{
    if (vec->is_valid_owned)
        return vec->column.valid;
    uint64_t *valid = arena_alloc(frame->scratch, BATCH_VALID_WORDS * sizeof(uint64_t));
    if (vec->column.valid == NULL)
        memset(valid, 0xff, BATCH_VALID_WORDS * sizeof(uint64_t));
    else if (vec->mask == 0)
        memset(valid, bit_get(vec->column.valid, 0) ? 0xff : 0, BATCH_VALID_WORDS * sizeof(uint64_t));
    else
        memcpy(valid, vec->column.valid, BIT_WORDS((size_t)frame->extent) * sizeof(uint64_t));
    vec->column.valid = valid;
    vec->is_valid_owned = true;
    return valid;
}

void call_fail_reason(struct expr_call *call, uint32_t row, const char *reason)
{
    if ((call->node->flags & EXPR_TRY) != 0) {
        call_null(call, row);
        return;
    }
    struct expr_errors *errors = call->frame->errors;
    leat_assert(reason != NULL && row < BATCH_ROWS);
    if (bit_get(errors->rows, row))
        return;
    if (errors->reasons == NULL)
        errors->reasons = arena_array(call->frame->scratch, const char *, BATCH_ROWS);
    bit_set(errors->rows, row);
    errors->reasons[row] = reason;
    errors->count++;
}

void call_fail(struct expr_call *call, uint32_t row)
{
    call_fail_reason(call, row, call->node->reason);
}

void call_null(struct expr_call *call, uint32_t row)
{
    bit_clear(vec_own_valid(call->frame, call->out), row);
}

/* --- Nodes --- */

void expr_evaluate_constant(const struct expr_node *node, struct expr_frame *frame, struct expr_rows rows,
                            struct expr_vec *out)
{
    (void)frame;
    (void)rows;
    *out = *node->constant;
}

void expr_evaluate_column(const struct expr_node *node, struct expr_frame *frame, struct expr_rows rows,
                          struct expr_vec *out)
{
    (void)rows;
    out->column = frame->batch->columns[node->column];
}

void expr_evaluate_field(const struct expr_node *node, struct expr_frame *frame, struct expr_rows rows,
                         struct expr_vec *out)
{
    expr_run(node->args[0], frame, rows, out);
    leat_assert(node->field < out->column.children_count);
    out->column.children += node->field;
    out->column.children_count = 1;
}

/* Evaluates a constant expression that fails: fails every row. */
void expr_evaluate_failure(const struct expr_node *node, struct expr_frame *frame, struct expr_rows rows,
                           struct expr_vec *out)
{
    struct expr_call call = {.node = node, .frame = frame, .out = out};
    vec_allocate(frame, out, node->type);
    memset(out->column.data, 0, (size_t)frame->extent * 8);
    memset(vec_own_valid(frame, out), 0, BATCH_VALID_WORDS * sizeof(uint64_t));
    for (uint32_t i = 0; i < rows.count; i++)
        call_fail(&call, rows_at(&rows, i));
}

/* Sets out->valid to the rows where all arguments are valid. Returns false if an argument is a constant
 * null, and so no row is valid. */
static bool intersect_valid(struct expr_frame *frame, const struct expr_vec *args, uint32_t count,
                            struct expr_vec *out)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t *valid = args[i].column.valid;
        if (valid == NULL || valid == out->column.valid)
            continue;
        if (vec_is_null_constant(&args[i])) {
            memset(vec_own_valid(frame, out), 0, BATCH_VALID_WORDS * sizeof(uint64_t));
            return false;
        }
        if (out->column.valid == NULL) {
            out->column.valid = args[i].column.valid;
            continue;
        }
        uint64_t *both = vec_own_valid(frame, out);
        for (size_t w = 0; w < BIT_WORDS((size_t)frame->extent); w++)
            both[w] &= valid[w];
    }
    return true;
}

/* Lists the rows whose arguments are all valid. */
static void find_live(struct expr_call *call)
{
    const struct expr_rows *rows = &call->rows;
    const uint64_t *valid = call->out->column.valid;
    const uint16_t *all = rows->sel == NULL ? iota : rows->sel;
    if (valid == NULL) {
        call->live = all;
        call->live_count = rows->count;
        return;
    }
    uint16_t *live = arena_alloc(call->frame->scratch, rows->count * sizeof(*live) + sizeof(*live));
    uint32_t count = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        live[count] = all[i];
        count += bit_get(valid, all[i]);
    }
    call->live = live;
    call->live_count = count;
}

static void default_children(struct expr_call *call)
{
    const struct type *element = call->node->type.element;
    struct column *column = &call->out->column;
    leat_assert(element->tag < TYPE_LIST);
    column->children_count = 1;
    column->children = arena_new(call->heap, struct column);
    column->children->tag = element->tag;
    column->children->heap = "";
}

void expr_evaluate_strict(const struct expr_node *node, struct expr_frame *frame, struct expr_rows rows,
                          struct expr_vec *out)
{
    struct expr_vec args[MAX(node->args_count, 1)]; /* small frames: trees are up to EXPR_DEPTH_MAX high */
    leat_assert(rows.count > 0 && node->args_count <= EXPR_ARGS_MAX);
    for (uint32_t i = 0; i < node->args_count; i++)
        expr_run(node->args[i], frame, rows, &args[i]);
    vec_allocate(frame, out, node->type);
    struct expr_call call = {.node = node,
                             .frame = frame,
                             .rows = rows,
                             .args = args,
                             .out = out,
                             .heap = node->is_result ? frame->memory : frame->scratch};
    if (node->type.tag == TYPE_LIST)
        default_children(&call);
    bool has_rows = true;
    if ((node->flags & EXPR_OWN_NULLS) == 0)
        has_rows = intersect_valid(frame, args, node->args_count, out);
    if (has_rows) {
        if ((node->flags & EXPR_LIVE) != 0)
            find_live(&call);
        node->kernel(&call);
    }
    for (uint32_t i = 0; i < node->args_count; i++)
        vec_release(frame, &args[i]);
}

/* --- Results --- */

/* Zeroes the values under nulls, because kernels may read them (core/batch.h). */
static void zero_nulls(struct column *column, uint32_t extent)
{
    for (uint32_t w = 0; w < BIT_WORDS(extent); w++) {
        uint64_t nulls = ~column->valid[w];
        if (nulls == 0)
            continue;
        for (uint32_t row = w * 64; row < MIN(extent, w * 64 + 64); row++)
            if ((nulls >> (row & 63) & 1) != 0) {
                if (column->tag == TYPE_BOOL)
                    column->bools[row] = 0;
                else
                    column->ints[row] = 0;
            }
    }
}

static void fill_constant(const struct expr_vec *value, struct column *out, uint32_t extent)
{
    if (out->tag == TYPE_BOOL)
        memset(out->bools, value->column.bools[0], extent);
    else
        for (uint32_t i = 0; i < extent; i++)
            out->ints[i] = value->column.ints[0];
}

void expr_eval(const struct expr *expr, const struct batch *batch, struct arena *scratch,
               struct arena *memory, struct column *out, struct expr_errors *errors)
{
    struct expr_frame frame = {
        .batch = batch, .extent = batch->rows, .scratch = scratch, .memory = memory, .errors = errors};
    struct expr_rows rows = {batch->sel, batch->selected};
    struct expr_vec value;
    leat_assert(batch->rows <= BATCH_ROWS);
    if (expr->root->column >= 0) {
        *out = batch->columns[expr->root->column];
        return;
    }
    size_t bytes = (size_t)batch->rows * (expr->root->type.tag == TYPE_BOOL ? 1 : 8);
    if (batch->selected == 0) {
        *out =
            (struct column){.tag = expr->root->type.tag, .data = arena_calloc(memory, bytes, 1), .heap = ""};
        if (out->tag == TYPE_LIST) {
            out->children_count = 1;
            out->children = arena_new(memory, struct column);
            out->children->tag = expr->root->type.element->tag;
        }
        return;
    }
    expr_run(expr->root, &frame, rows, &value);
    *out = value.column;
    out->data = arena_alloc(memory, bytes);
    if (value.mask == 0)
        fill_constant(&value, out, batch->rows);
    else
        memcpy(out->data, value.column.data, bytes);
    if (value.column.valid != NULL) {
        out->valid = arena_copy(memory, vec_own_valid(&frame, &value), BATCH_VALID_WORDS * sizeof(uint64_t));
        zero_nulls(out, batch->rows);
    }
}

uint32_t expr_filter(const struct expr *expr, const struct batch *batch, struct arena *scratch, uint16_t *sel,
                     struct expr_errors *errors)
{
    struct expr_frame frame = {
        .batch = batch, .extent = batch->rows, .scratch = scratch, .memory = scratch, .errors = errors};
    struct expr_rows rows = {batch->sel, batch->selected};
    struct expr_vec value;
    if (rows.count == 0)
        return 0;
    leat_assert(expr->root->type.tag == TYPE_BOOL && batch->rows <= BATCH_ROWS);
    expr_run(expr->root, &frame, rows, &value);
    const uint16_t *all = rows.sel == NULL ? iota : rows.sel;
    const uint8_t *bools = value.column.bools;
    uint32_t count = 0;
    if (value.mask != 0 && value.column.valid == NULL && errors->count == 0) {
        for (uint32_t i = 0; i < rows.count; i++) {
            uint16_t row = all[i];
            sel[count] = row;
            count += bools[row];
        }
        return count;
    }
    for (uint32_t i = 0; i < rows.count; i++) {
        uint16_t row = all[i];
        bool is_true = vec_is_valid(&value, row) && bools[row & value.mask] != 0;
        if (is_true && !bit_get(errors->rows, row))
            sel[count++] = row;
    }
    return count;
}
