/* batch_gather of core/batch.h: rows of several batches into one dense batch, a column at a time. Values are
 * named by references, so that elements of lists, at any depth, are gathered by the same code as rows. */
#include "core/batch.h"

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
            /* Children of children have the shape of the first element's. */
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

struct batch *batch_gather(struct batch_pool *pool, const struct schema *schema, struct batch *const *sources,
                           const uint16_t *rows, uint32_t count)
{
    struct batch *out = batch_new(pool, schema, count);
    gather_rows(out, sources, rows, count);
    struct value_reference from[BATCH_ROWS];
    for (uint32_t column = 0; column < schema->count; column++) {
        for (uint32_t i = 0; i < count; i++)
            from[i] = (struct value_reference){&sources[i]->columns[column], rows[i]};
        gather_values(out, &out->columns[column], from, count);
    }
    return out;
}
