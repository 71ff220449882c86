/* Nodes that evaluate their parts only for the rows that need them: and, or, case, coalesce. */
#include "operators/expr/node.h"

/* --- and, or --- */

/* Three-valued logic in one byte: `and` is the minimum, `or` the maximum. */
enum { TRI_FALSE, TRI_NULL, TRI_TRUE };

static void to_tri(const struct expr_vec *vec, const struct expr_rows *rows, uint8_t *tri)
{
    for (uint32_t i = 0; i < rows->count; i++) {
        uint32_t row = rows_at(rows, i);
        bool is_valid = vec_is_valid(vec, row);
        tri[row] = !is_valid ? TRI_NULL : vec->column.bools[row & vec->mask] != 0 ? TRI_TRUE : TRI_FALSE;
    }
}

/* Makes a bool vector from TRI_ values. */
static void from_tri(struct expr_frame *frame, const struct expr_rows *rows, uint8_t *tri,
                     struct expr_vec *out)
{
    uint64_t *valid = NULL;
    for (uint32_t i = 0; i < rows->count; i++) {
        uint32_t row = rows_at(rows, i);
        if (tri[row] == TRI_NULL) {
            if (valid == NULL)
                valid = vec_own_valid(frame, out);
            bit_clear(valid, row);
        }
        tri[row] = tri[row] == TRI_TRUE;
    }
}

static bool is_plain(const struct expr_vec *vec)
{
    return vec->mask != 0 && vec->column.valid == NULL;
}

/* Combines two sides that have a byte for each of the `extent` rows, and no nulls. Values of unselected rows
 * are arbitrary. */
static void combine_plain(const uint8_t *a, const uint8_t *b, uint8_t *out, uint32_t extent, bool is_or)
{
    if (is_or)
        for (uint32_t i = 0; i < extent; i++)
            out[i] = a[i] | b[i];
    else
        for (uint32_t i = 0; i < extent; i++)
            out[i] = a[i] & b[i];
}

static void combine(struct expr_frame *frame, const struct expr_rows *rows, const struct expr_vec *left,
                    const struct expr_rows *right_rows, const struct expr_vec *right, bool is_or,
                    struct expr_vec *out)
{
    vec_allocate(frame, out, type_of(TYPE_BOOL));
    if (right_rows->count == rows->count && is_plain(left) && is_plain(right)) {
        combine_plain(left->column.bools, right->column.bools, out->column.bools, frame->extent, is_or);
        return;
    }
    uint8_t *tri = out->column.bools;
    uint8_t *other = frame_buffer(frame);
    to_tri(left, rows, tri);
    if (right_rows->count > 0)
        to_tri(right, right_rows, other);
    for (uint32_t i = 0; i < right_rows->count; i++) {
        uint32_t row = rows_at(right_rows, i);
        tri[row] = is_or ? MAX(tri[row], other[row]) : MIN(tri[row], other[row]);
    }
    from_tri(frame, rows, tri, out);
    struct expr_vec returned = {.column.data = other, .is_owned = true};
    vec_release(frame, &returned);
}

/* The rows whose result the left side does not decide. */
static struct expr_rows open_rows(struct expr_frame *frame, const struct expr_rows *rows,
                                  const struct expr_vec *left, bool is_or)
{
    uint16_t *sel = arena_alloc(frame->scratch, (rows->count + 1) * sizeof(*sel));
    uint32_t count = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        uint32_t row = rows_at(rows, i);
        bool is_true = left->column.bools[row & left->mask] != 0;
        sel[count] = (uint16_t)row;
        count += is_true != is_or || !vec_is_valid(left, row);
    }
    return count == rows->count ? *rows : (struct expr_rows){sel, count};
}

static void evaluate_logic(const struct expr_node *node, struct expr_frame *frame, struct expr_rows rows,
                           bool is_or, struct expr_vec *out)
{
    struct expr_vec left, right = {0};
    expr_run(node->args[0], frame, rows, &left);
    struct expr_rows right_rows = rows;
    if ((node->args[1]->flags & (EXPR_FAILS | EXPR_HEAVY)) != 0)
        right_rows = open_rows(frame, &rows, &left, is_or);
    if (right_rows.count > 0)
        expr_run(node->args[1], frame, right_rows, &right);
    combine(frame, &rows, &left, &right_rows, &right, is_or, out);
    vec_release(frame, &left);
    vec_release(frame, &right);
}

void expr_evaluate_and(const struct expr_node *node, struct expr_frame *frame, struct expr_rows rows,
                       struct expr_vec *out)
{
    evaluate_logic(node, frame, rows, false, out);
}

void expr_evaluate_or(const struct expr_node *node, struct expr_frame *frame, struct expr_rows rows,
                      struct expr_vec *out)
{
    evaluate_logic(node, frame, rows, true, out);
}

/* --- case, coalesce --- */

/* A result assembled from parts, each for some of the rows. */
struct merge {
    struct expr_call call;
    struct expr_writer writer;
    bool is_text;
};

static void merge_begin(struct merge *merge, const struct expr_node *node, struct expr_frame *frame,
                        struct expr_rows rows, struct expr_vec *out)
{
    merge->call = (struct expr_call){.node = node,
                                     .frame = frame,
                                     .rows = rows,
                                     .out = out,
                                     .heap = node->is_result ? frame->memory : frame->scratch};
    vec_allocate(frame, out, node->type);
    merge->is_text = node->type.tag == TYPE_TEXT || node->type.tag == TYPE_BYTES;
    if (merge->is_text)
        writer_init(&merge->writer, &merge->call, 256);
}

static void merge_texts(struct merge *merge, const struct expr_vec *value, struct expr_rows rows)
{
    struct text_ref *refs = merge->call.out->column.texts;
    for (uint32_t i = 0; i < rows.count; i++) {
        uint32_t row = rows_at(&rows, i);
        if (!vec_is_valid(value, row))
            continue;
        if (value->mask == 0 && i > 0) { /* all rows share the constant's bytes */
            refs[row] = refs[rows_at(&rows, 0)];
            continue;
        }
        struct str text = vec_text(value, row);
        writer_append(&merge->writer, text.data, text.length);
        writer_end(&merge->writer, row);
    }
}

static void merge_add(struct merge *merge, const struct expr_vec *value, struct expr_rows rows)
{
    struct column *out = &merge->call.out->column;
    if (value->column.valid != NULL)
        for (uint32_t i = 0; i < rows.count; i++)
            if (!vec_is_valid(value, rows_at(&rows, i)))
                call_null(&merge->call, rows_at(&rows, i));
    if (merge->is_text) {
        merge_texts(merge, value, rows);
    } else if (out->tag == TYPE_BOOL) {
        for (uint32_t i = 0; i < rows.count; i++)
            out->bools[rows_at(&rows, i)] = value->column.bools[rows_at(&rows, i) & value->mask];
    } else {
        for (uint32_t i = 0; i < rows.count; i++)
            out->ints[rows_at(&rows, i)] = value->column.ints[rows_at(&rows, i) & value->mask];
    }
}

static void merge_end(struct merge *merge)
{
    if (merge->is_text)
        writer_finish(&merge->writer);
}

/* Evaluates a node for the rows and adds its values to the result. */
static void merge_node(struct merge *merge, const struct expr_node *node, struct expr_rows rows)
{
    struct expr_vec value;
    if (rows.count == 0)
        return;
    expr_run(node, merge->call.frame, rows, &value);
    merge_add(merge, &value, rows);
    vec_release(merge->call.frame, &value);
}

/* Splits rows into those for which the condition is true (taken) and the others (rest). */
static void split(struct expr_frame *frame, const struct expr_vec *condition, struct expr_rows rows,
                  struct expr_rows *taken, struct expr_rows *rest)
{
    uint16_t *yes = arena_alloc(frame->scratch, (rows.count + 1) * sizeof(*yes));
    uint16_t *no = arena_alloc(frame->scratch, (rows.count + 1) * sizeof(*no));
    uint32_t yes_count = 0, no_count = 0;
    for (uint32_t i = 0; i < rows.count; i++) {
        uint16_t row = (uint16_t)rows_at(&rows, i);
        bool is_true = vec_is_valid(condition, row) && condition->column.bools[row & condition->mask] != 0;
        yes[yes_count] = row;
        no[no_count] = row;
        yes_count += is_true;
        no_count += !is_true;
    }
    *taken = yes_count == rows.count ? rows : (struct expr_rows){yes, yes_count};
    *rest = no_count == rows.count ? rows : (struct expr_rows){no, no_count};
}

void expr_evaluate_case(const struct expr_node *node, struct expr_frame *frame, struct expr_rows rows,
                        struct expr_vec *out)
{
    uint32_t branches = node->args_count / 2;
    struct merge merge;
    merge_begin(&merge, node, frame, rows, out);
    for (uint32_t i = 0; i < branches && rows.count > 0; i++) {
        struct expr_vec condition;
        struct expr_rows taken;
        expr_run(node->args[i], frame, rows, &condition);
        split(frame, &condition, rows, &taken, &rows);
        vec_release(frame, &condition);
        merge_node(&merge, node->args[branches + i], taken);
    }
    merge_node(&merge, node->args[2 * branches], rows);
    merge_end(&merge);
}

/* Returns the rows that are null; sets `valid` to the others. */
static struct expr_rows null_rows(struct expr_frame *frame, const struct expr_vec *value,
                                  struct expr_rows rows, struct expr_rows *valid)
{
    uint16_t *null = arena_alloc(frame->scratch, (rows.count + 1) * sizeof(*null));
    uint16_t *good = arena_alloc(frame->scratch, (rows.count + 1) * sizeof(*good));
    uint32_t null_count = 0, good_count = 0;
    for (uint32_t i = 0; i < rows.count; i++) {
        uint16_t row = (uint16_t)rows_at(&rows, i);
        bool is_valid = vec_is_valid(value, row);
        null[null_count] = good[good_count] = row;
        null_count += !is_valid;
        good_count += is_valid;
    }
    *valid = (struct expr_rows){good, good_count};
    return (struct expr_rows){null, null_count};
}

void expr_evaluate_coalesce(const struct expr_node *node, struct expr_frame *frame, struct expr_rows rows,
                            struct expr_vec *out)
{
    struct expr_vec value;
    expr_run(node->args[0], frame, rows, &value);
    if (value.column.valid == NULL && value.mask != 0 && !node->is_result) {
        *out = value;
        return;
    }
    struct merge merge;
    merge_begin(&merge, node, frame, rows, out);
    for (uint32_t i = 0; rows.count > 0; i++) {
        struct expr_rows good = rows, null = {NULL, 0};
        if (value.column.valid != NULL && i + 1 < node->args_count)
            null = null_rows(frame, &value, rows, &good);
        merge_add(&merge, &value, good);
        vec_release(frame, &value);
        if (null.count == 0 || i + 1 == node->args_count)
            break;
        rows = null;
        expr_run(node->args[i + 1], frame, rows, &value);
    }
    merge_end(&merge);
}
