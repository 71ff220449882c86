/* batch_gather and batch_merge of core/batch.h: rows of several batches into one, a column at a time.
 *
 * Mostly rows come from at most FEW batches: then each column is copied directly, with one byte per row that
 * says which batch the row comes from. Otherwise, and for lists, each value to copy is named by its column
 * and row (struct value_reference), so that elements of lists, at any depth, are gathered by the same code as
 * rows. */
#include "core/batch.h"

enum { FEW = 16 };

/* The source batches, if there are at most FEW; of_row[i]: index in `batches` of the batch of row i. */
struct few_sources {
    struct batch *batches[FEW];
    uint32_t count;
    uint8_t of_row[BATCH_ROWS];
};

struct value_reference {
    const struct column *column;
    uint32_t row;
};

static void gather_values(struct batch *out, struct column *to, const struct value_reference *from,
                          uint32_t count);

static void gather_texts(struct batch *out, struct column *to, const struct value_reference *from,
                         uint32_t count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += from[i].column->texts[from[i].row].length;
    leat_assert(bytes <= UINT32_MAX);
    char *heap = arena_alloc(&out->arena, bytes);
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct text_ref text = from[i].column->texts[from[i].row];
        if (text.length > 0)
            memcpy(heap + used, from[i].column->heap + text.offset, text.length);
        to->texts[i] = (struct text_ref){used, text.length};
        used += text.length;
    }
    to->heap = heap;
}

static void gather_lists(struct batch *out, struct column *to, const struct value_reference *from,
                         uint32_t count)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t length = from[i].column->lists[from[i].row].length;
        to->lists[i] = (struct list_ref){total, length};
        total += length;
    }
    to->child_rows = total;
    struct value_reference *elements = arena_alloc(&out->arena, MAX(total, 1) * sizeof(*elements));
    for (uint32_t child = 0; child < to->children_count; child++) {
        uint32_t at = 0;
        for (uint32_t i = 0; i < count; i++) {
            struct list_ref list = from[i].column->lists[from[i].row];
            for (uint32_t k = 0; k < list.length; k++)
                elements[at++] = (struct value_reference){&from[i].column->children[child], list.offset + k};
        }
        struct column *target = &to->children[child];
        target->data = arena_alloc(&out->arena, MAX(total, 1) * sizeof(int64_t));
        target->child_rows = 0;
        if (target->tag == TYPE_LIST && total > 0) {
            /* The children of a child column have the same types for all elements: take those of the
             * first. */
            const struct column *shape = elements[0].column;
            target->children_count = shape->children_count;
            target->children = arena_array(&out->arena, struct column, shape->children_count);
            for (uint32_t k = 0; k < shape->children_count; k++)
                target->children[k].tag = shape->children[k].tag;
        }
        gather_values(out, target, elements, total);
    }
}

static void gather_values(struct batch *out, struct column *to, const struct value_reference *from,
                          uint32_t count)
{
    to->valid = NULL;
    for (uint32_t i = 0; i < count; i++)
        if (!column_is_valid(from[i].column, from[i].row)) {
            if (to->valid == NULL)
                to->valid = batch_valid_new(out, count);
            bit_clear(to->valid, i);
        }
    switch (to->tag) {
    case TYPE_TEXT:
    case TYPE_BYTES: gather_texts(out, to, from, count); break;
    case TYPE_LIST: gather_lists(out, to, from, count); break;
    case TYPE_BOOL:
        for (uint32_t i = 0; i < count; i++)
            to->bools[i] = from[i].column->bools[from[i].row];
        break;
    default:
        for (uint32_t i = 0; i < count; i++)
            to->ints[i] = from[i].column->ints[from[i].row];
        break;
    }
}

static void gather_rows(struct batch *out, struct batch *const *sources, const uint16_t *rows, uint32_t count)
{
    struct row_origin *origins = arena_alloc(&out->arena, MAX(count, 1) * sizeof(*origins));
    struct row_order *orders = arena_alloc(&out->arena, MAX(count, 1) * sizeof(*orders));
    bool has_arrival = count > 0;
    for (uint32_t i = 0; i < count; i++)
        has_arrival &= sources[i]->arrival_time != NULL;
    if (has_arrival)
        out->arrival_time = arena_alloc(&out->arena, count * sizeof(int64_t));
    for (uint32_t i = 0; i < count; i++) {
        out->event_time[i] = sources[i]->event_time[rows[i]];
        origins[i] = batch_origin(sources[i], rows[i]);
        orders[i] = batch_order(sources[i], rows[i]);
        if (has_arrival)
            out->arrival_time[i] = sources[i]->arrival_time[rows[i]];
    }
    out->origins = origins;
    out->orders = orders;
}

static bool find_few(struct few_sources *few, struct batch *const *sources, uint32_t count)
{
    uint32_t last = 0;
    few->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (few->count == 0 || few->batches[last] != sources[i])
            for (last = 0; last < few->count && few->batches[last] != sources[i];)
                last++;
        if (last == few->count) {
            if (few->count == FEW)
                return false;
            few->batches[few->count++] = sources[i];
        }
        few->of_row[i] = (uint8_t)last;
    }
    return true;
}

/* How a column's values are copied: value targets[i] of the new column is value
 * rows[i] of from[of_row[i]]. */
struct few_values {
    const struct column *from[FEW];
    const uint8_t *of_row;
    const uint16_t *rows, *targets;
    uint32_t count;
};

static void copy_nulls(struct batch *out, struct column *to, const struct few_values *v)
{
    for (uint32_t i = 0; i < v->count; i++)
        if (!column_is_valid(v->from[v->of_row[i]], v->rows[i])) {
            if (to->valid == NULL)
                to->valid = batch_valid_new(out, out->rows);
            bit_clear(to->valid, v->targets[i]);
        }
}

static void copy_texts(struct batch *out, struct column *to, const struct few_values *v)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < v->count; i++)
        bytes += v->from[v->of_row[i]]->texts[v->rows[i]].length;
    leat_assert(bytes <= UINT32_MAX);
    char *heap = arena_alloc(&out->arena, bytes);
    uint32_t used = 0;
    for (uint32_t i = 0; i < v->count; i++) {
        const struct column *from = v->from[v->of_row[i]];
        struct text_ref text = from->texts[v->rows[i]];
        if (text.length > 0)
            memcpy(heap + used, from->heap + text.offset, text.length);
        to->texts[v->targets[i]] = (struct text_ref){used, text.length};
        used += text.length;
    }
    to->heap = heap;
}

/* Copies one column that is not a list. */
static void copy_few(struct batch *out, uint32_t column, const struct few_sources *few, const uint16_t *rows,
                     const uint16_t *targets, uint32_t count)
{
    struct column *to = &out->columns[column];
    struct few_values v = {.of_row = few->of_row, .rows = rows, .targets = targets, .count = count};
    bool has_nulls = false;
    for (uint32_t k = 0; k < few->count; k++) {
        v.from[k] = &few->batches[k]->columns[column];
        has_nulls |= v.from[k]->valid != NULL;
    }
    to->valid = NULL;
    if (has_nulls)
        copy_nulls(out, to, &v);
    if (to->tag == TYPE_TEXT || to->tag == TYPE_BYTES)
        copy_texts(out, to, &v);
    else if (to->tag == TYPE_BOOL)
        for (uint32_t i = 0; i < count; i++)
            to->bools[targets[i]] = v.from[few->of_row[i]]->bools[rows[i]];
    else
        for (uint32_t i = 0; i < count; i++)
            to->ints[targets[i]] = v.from[few->of_row[i]]->ints[rows[i]];
}

struct batch *batch_gather(struct batch_pool *pool, const struct schema *schema, struct batch *const *sources,
                           const uint16_t *rows, uint32_t count)
{
    struct batch *out = batch_new(pool, schema, count);
    struct few_sources few;
    bool is_few = find_few(&few, sources, count);
    uint16_t dense[BATCH_ROWS];
    for (uint32_t i = 0; i < count; i++)
        dense[i] = (uint16_t)i;
    gather_rows(out, sources, rows, count);
    struct value_reference from[BATCH_ROWS];
    for (uint32_t column = 0; column < schema->count; column++) {
        if (is_few && out->columns[column].tag != TYPE_LIST) {
            copy_few(out, column, &few, rows, dense, count);
            continue;
        }
        for (uint32_t i = 0; i < count; i++)
            from[i] = (struct value_reference){&sources[i]->columns[column], rows[i]};
        gather_values(out, &out->columns[column], from, count);
    }
    return out;
}

/* --- Views of the same rows --- */

bool batch_are_same_rows(const struct batch *a, const struct batch *b)
{
    return a->event_time == b->event_time && a->rows == b->rows && a->origins == b->origins &&
           a->orders == b->orders && a->order_time == b->order_time && a->partition == b->partition &&
           a->first_record == b->first_record && a->arrival_time == b->arrival_time;
}

static bool is_shared(const struct few_sources *few, uint32_t index)
{
    const struct column *first = &few->batches[0]->columns[index];
    for (uint32_t k = 1; k < few->count; k++) {
        const struct column *other = &few->batches[k]->columns[index];
        if (other->data != first->data || other->valid != first->valid || other->heap != first->heap ||
            other->children != first->children)
            return false;
    }
    return true;
}

/* A view cannot copy lists row by row: all sources must share their list columns. */
static bool lists_are_shared(const struct few_sources *few, const struct schema *schema)
{
    for (uint32_t c = 0; c < schema->count; c++)
        if (schema->fields[c].type.tag == TYPE_LIST && !is_shared(few, c))
            return false;
    return true;
}

/* The rows as a view of the common batch: only columns that differ between the sources are copied. */
static struct batch *view_of(const struct few_sources *few, const struct schema *schema, const uint16_t *rows,
                             uint32_t count)
{
    struct batch *out = batch_derive(few->batches[0], schema);
    out->sel = arena_copy(&out->arena, rows, count * sizeof(*rows));
    out->selected = count;
    for (uint32_t c = 0; c < schema->count; c++) {
        if (is_shared(few, c))
            continue;
        batch_column_init(out, &out->columns[c], schema->fields[c].type, out->rows);
        copy_few(out, c, few, rows, rows, count);
    }
    return out;
}

struct batch *batch_merge(struct batch_pool *pool, const struct schema *schema, struct batch *const *sources,
                          const uint16_t *rows, uint32_t count)
{
    struct few_sources few;
    bool is_view = count > 0 && find_few(&few, sources, count);
    for (uint32_t k = 1; is_view && k < few.count; k++)
        is_view = batch_are_same_rows(few.batches[0], few.batches[k]);
    for (uint32_t i = 1; is_view && i < count; i++)
        is_view = rows[i] > rows[i - 1];
    if (!is_view || !lists_are_shared(&few, schema))
        return batch_gather(pool, schema, sources, rows, count);
    return view_of(&few, schema, rows, count);
}

struct batch *batch_unite(struct batch *const *views, const uint32_t *from, uint32_t count)
{
    leat_assert(count > 0);
    struct few_sources few = {.count = count};
    if (count > FEW)
        return NULL;
    memcpy(few.batches, views, count * sizeof(*views));
    if (!lists_are_shared(&few, views[0]->schema))
        return NULL;
    uint64_t is_taken[BATCH_VALID_WORDS] = {0};
    uint8_t view_of_row[BATCH_ROWS];
    uint32_t total = 0;
    for (uint32_t k = 0; k < count; k++)
        for (uint32_t i = from[k]; i < views[k]->selected; i++, total++) {
            uint32_t row = batch_row(views[k], i);
            bit_set(is_taken, row);
            view_of_row[row] = (uint8_t)k;
        }
    uint16_t rows[BATCH_ROWS];
    uint32_t taken = 0;
    for (uint32_t word = 0; word < BATCH_VALID_WORDS; word++)
        for (uint64_t bits = is_taken[word]; bits != 0; bits &= bits - 1) {
            uint32_t row = word * 64 + (uint32_t)__builtin_ctzll(bits);
            few.of_row[taken] = view_of_row[row];
            rows[taken++] = (uint16_t)row;
        }
    return taken == total ? view_of(&few, views[0]->schema, rows, taken) : NULL;
}
