/* Functions of lists. The elements of a list are the rows ref.offset .. ref.offset + ref.length - 1 of
 * list.children[0]. */
#include "operators/expr/node.h"

static struct list_ref list_at(const struct expr_vec *vec, uint32_t row)
{
    return vec->column.lists[row & vec->mask];
}

/* [a, b, ...] of texts: sets the items' texts, as many in each row's list as there are arguments. */
static void make_texts(struct expr_call *call, struct column *items)
{
    size_t bytes = 0;
    uint32_t count = call->node->args_count;
    for (uint32_t i = 0; i < call->rows.count; i++)
        for (uint32_t k = 0; k < count; k++)
            if (vec_is_valid(&call->args[k], rows_at(&call->rows, i)))
                bytes += vec_text(&call->args[k], rows_at(&call->rows, i)).length;
    char *heap = arena_alloc(call->heap, bytes);
    uint32_t used = 0;
    for (uint32_t i = 0; i < call->rows.count; i++)
        for (uint32_t k = 0; k < count; k++) {
            uint32_t row = rows_at(&call->rows, i);
            if (!vec_is_valid(&call->args[k], row))
                continue;
            struct str text = vec_text(&call->args[k], row);
            if (text.length > 0)
                memcpy(heap + used, text.data, text.length);
            items->texts[i * count + k] = (struct text_ref){used, (uint32_t)text.length};
            used += (uint32_t)text.length;
        }
    items->heap = heap;
}

void kernel_list_make(struct expr_call *call)
{
    uint32_t count = call->node->args_count;
    struct column *out = &call->out->column, *items = &out->children[0];
    uint32_t total = call->rows.count * count;
    *items = (struct column){.tag = call->node->type.element->tag, .heap = "", .child_rows = total};
    bool is_text = items->tag == TYPE_TEXT || items->tag == TYPE_BYTES;
    items->data = arena_calloc(call->heap, total, items->tag == TYPE_BOOL ? 1 : 8);
    out->child_rows = total;
    for (uint32_t i = 0; i < call->rows.count; i++) {
        uint32_t row = rows_at(&call->rows, i);
        out->lists[row] = (struct list_ref){i * count, count};
        for (uint32_t k = 0; k < count; k++) {
            const struct expr_vec *arg = &call->args[k];
            uint32_t at = i * count + k;
            if (!vec_is_valid(arg, row)) {
                if (items->valid == NULL) {
                    items->valid = arena_alloc(call->heap, BIT_WORDS((size_t)total) * sizeof(uint64_t));
                    memset(items->valid, 0xff, BIT_WORDS((size_t)total) * sizeof(uint64_t));
                }
                bit_clear(items->valid, at);
            } else if (items->tag == TYPE_BOOL) {
                items->bools[at] = arg->column.bools[row & arg->mask];
            } else if (!is_text) {
                items->ints[at] = arg->column.ints[row & arg->mask];
            }
        }
    }
    if (is_text)
        make_texts(call, items);
}

void kernel_list_length(struct expr_call *call)
{
    for (uint32_t i = 0; i < call->live_count; i++)
        call->out->column.ints[call->live[i]] = list_at(&call->args[0], call->live[i]).length;
}

/* --- Elements --- */

static bool element_type(struct expr_compiler *c, struct expr_node *node, struct type *type)
{
    *type = *node->args[0]->type.element;
    if (type->tag < TYPE_LIST)
        return true;
    struct diag *d =
        diag_error(c->diags, DIAG_BAD_ARGUMENTS, node->args[0]->ast->span,
                   "`%.*s` needs a list of values, but this is a list of records", STR_ARGS(node->ast->text));
    diag_hint(c->diags, d, "take a field of them first, as in %s.name, or `unnest` the list",
              expr_text(c->arena, node->args[0]->ast));
    return false;
}

static const int64_t first_index = 0, last_index = -1;

/* aux: the index, for calls without an index argument. */
bool prepare_element(struct expr_compiler *c, struct expr_node *node)
{
    node->aux = &first_index;
    return element_type(c, node, &node->type);
}

bool prepare_last(struct expr_compiler *c, struct expr_node *node)
{
    node->aux = &last_index;
    return element_type(c, node, &node->type);
}

void kernel_list_get(struct expr_call *call)
{
    struct column *out = &call->out->column;
    bool has_index = call->node->args_count == 2;
    const struct expr_vec *a = &call->args[0];
    const struct column *items = a->column.children;
    out->heap = items->heap == NULL ? "" : items->heap;
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        struct list_ref ref = list_at(a, row);
        int64_t index = *(const int64_t *)call->node->aux;
        if (has_index)
            index = call->args[1].column.ints[row & call->args[1].mask];
        if (index < 0)
            index += ref.length;
        bool is_there = index >= 0 && index < (int64_t)ref.length;
        if (!is_there || !column_is_valid(items, ref.offset + (uint32_t)index))
            call_null(call, row);
        else if (out->tag == TYPE_BOOL)
            out->bools[row] = items->bools[ref.offset + (uint32_t)index];
        else
            out->ints[row] = items->ints[ref.offset + (uint32_t)index];
    }
}

/* contains(list, x): types must agree; an int may be searched among floats. */
bool prepare_contains(struct expr_compiler *c, struct expr_node *node)
{
    struct type element;
    if (!element_type(c, node, &element))
        return false;
    struct expr_node *x = expr_convert(c, node->args[1], element);
    if (x == NULL) {
        diag_error(c->diags, DIAG_TYPE_CLASH, node->args[1]->ast->span,
                   "the list has items of type %s, but this is %s", expr_type_name(c, &element),
                   expr_type_name(c, &node->args[1]->type));
        return false;
    }
    node->args[1] = x;
    return true;
}

static bool element_equals(const struct column *items, uint32_t at, const struct expr_vec *x, uint32_t row)
{
    switch (items->tag) {
    case TYPE_TEXT:
    case TYPE_BYTES: return str_equal(column_text(items, at), vec_text(x, row));
    case TYPE_BOOL: return items->bools[at] == x->column.bools[row & x->mask];
    case TYPE_FLOAT: return items->floats[at] == x->column.floats[row & x->mask];
    default: return items->ints[at] == x->column.ints[row & x->mask];
    }
}

/* Null if x is not found and the list has a null. */
void kernel_contains_list(struct expr_call *call)
{
    const struct expr_vec *a = &call->args[0];
    const struct column *items = a->column.children;
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        struct list_ref ref = list_at(a, row);
        bool is_found = false, has_null = false;
        for (uint32_t k = 0; k < ref.length && !is_found; k++) {
            bool is_valid = column_is_valid(items, ref.offset + k);
            has_null |= !is_valid;
            is_found = is_valid && element_equals(items, ref.offset + k, &call->args[1], row);
        }
        call->out->column.bools[row] = is_found;
        if (!is_found && has_null)
            call_null(call, row);
    }
}

void kernel_list_join(struct expr_call *call)
{
    struct expr_writer writer;
    const struct expr_vec *a = &call->args[0];
    const struct column *items = a->column.children;
    writer_init(&writer, call, (size_t)call->live_count * 32);
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        struct list_ref ref = list_at(a, row);
        struct str separator = vec_text(&call->args[1], row);
        bool is_first = true;
        for (uint32_t k = 0; k < ref.length; k++) {
            if (!column_is_valid(items, ref.offset + k))
                continue;
            struct str text = column_text(items, ref.offset + k);
            if (!is_first)
                writer_append(&writer, separator.data, separator.length);
            writer_append(&writer, text.data, text.length);
            is_first = false;
        }
        writer_end(&writer, row);
    }
    writer_finish(&writer);
}

/* --- Folds: from left to right, without nulls --- */

void kernel_list_sum_int(struct expr_call *call)
{
    const struct column *items = call->args[0].column.children;
    for (uint32_t i = 0; i < call->live_count; i++) {
        struct list_ref ref = list_at(&call->args[0], call->live[i]);
        int64_t sum = 0;
        bool overflows = false;
        for (uint32_t k = ref.offset; k < ref.offset + ref.length; k++)
            if (column_is_valid(items, k))
                overflows |= __builtin_add_overflow(sum, items->ints[k], &sum);
        call->out->column.ints[call->live[i]] = sum;
        if (overflows)
            call_fail(call, call->live[i]);
    }
}

static double sum_floats(const struct column *items, struct list_ref ref, uint32_t *count)
{
    double sum = 0;
    *count = 0;
    for (uint32_t k = ref.offset; k < ref.offset + ref.length; k++) {
        if (!column_is_valid(items, k))
            continue;
        sum += items->tag == TYPE_INT ? (double)items->ints[k] : items->floats[k];
        ++*count;
    }
    return sum;
}

void kernel_list_sum_float(struct expr_call *call)
{
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t count, row = call->live[i];
        call->out->column.floats[row] =
            sum_floats(call->args[0].column.children, list_at(&call->args[0], row), &count);
    }
}

void kernel_list_mean(struct expr_call *call)
{
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t count, row = call->live[i];
        double sum = sum_floats(call->args[0].column.children, list_at(&call->args[0], row), &count);
        call->out->column.floats[row] = count == 0 ? 0 : sum / count;
        if (count == 0)
            call_null(call, row);
    }
}

/* Smallest or largest elements. Among floats a NaN wins. */
static void extremes(struct expr_call *call, bool is_max)
{
    const struct column *items = call->args[0].column.children;
    bool is_int = items->tag == TYPE_INT;
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i], best = UINT32_MAX;
        struct list_ref ref = list_at(&call->args[0], row);
        for (uint32_t k = ref.offset; k < ref.offset + ref.length; k++) {
            if (!column_is_valid(items, k))
                continue;
            if (best == UINT32_MAX)
                best = k;
            else if (is_int
                         ? (is_max ? items->ints[k] > items->ints[best] : items->ints[k] < items->ints[best])
                         : items->floats[k] != items->floats[k] ||
                               (is_max ? items->floats[k] > items->floats[best]
                                       : items->floats[k] < items->floats[best]))
                best = k;
        }
        if (best == UINT32_MAX)
            call_null(call, row);
        else
            call->out->column.ints[row] = items->ints[best]; /* floats have 8 bytes, too */
    }
}

void kernel_list_min(struct expr_call *call)
{
    extremes(call, false);
}

void kernel_list_max(struct expr_call *call)
{
    extremes(call, true);
}
