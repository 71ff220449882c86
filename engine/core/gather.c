/* batch_gather of core/batch.h: rows of several batches into one dense batch, a column at a time. */
#include "core/batch.h"

static void gather_texts(struct batch *out, struct column *to, struct batch *const *sources, uint32_t column,
                         const uint16_t *rows, uint32_t count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += sources[i]->columns[column].texts[rows[i]].length;
    leat_assert(bytes <= UINT32_MAX);
    char *heap = arena_alloc(&out->arena, bytes);
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct column *from = &sources[i]->columns[column];
        struct text_ref text = from->texts[rows[i]];
        if (text.length > 0)
            memcpy(heap + used, from->heap + text.offset, text.length);
        to->texts[i] = (struct text_ref){used, text.length};
        used += text.length;
    }
    to->heap = heap;
}

static void gather_column(struct batch *out, struct batch *const *sources, uint32_t column,
                          const uint16_t *rows, uint32_t count);

/* Values of lists: the elements of each row's list, one after the other. */
static void gather_child(struct batch *out, struct column *to, struct batch *const *sources, uint32_t column,
                         uint32_t child, const uint16_t *rows, uint32_t count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct column *from = &sources[i]->columns[column];
        if (from->children[child].tag == TYPE_TEXT || from->children[child].tag == TYPE_BYTES)
            for (uint32_t k = 0; k < from->lists[rows[i]].length; k++)
                bytes += from->children[child].texts[from->lists[rows[i]].offset + k].length;
    }
    char *heap = arena_alloc(&out->arena, bytes);
    size_t value = to->tag == TYPE_BOOL ? 1 : 8;
    to->data = arena_alloc(&out->arena, MAX(to->child_rows, 1) * value);
    uint32_t at = 0, used = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct column *list = &sources[i]->columns[column];
        const struct column *from = &list->children[child];
        struct list_ref ref = list->lists[rows[i]];
        for (uint32_t k = 0; k < ref.length; k++, at++) {
            if (!column_is_valid(from, ref.offset + k)) {
                if (to->valid == NULL)
                    to->valid = batch_valid_new(out, to->child_rows);
                bit_clear(to->valid, at);
            }
            memcpy((char *)to->data + at * value, (char *)from->data + (ref.offset + k) * value, value);
            if (to->tag == TYPE_TEXT || to->tag == TYPE_BYTES) {
                struct text_ref text = from->texts[ref.offset + k];
                if (text.length > 0)
                    memcpy(heap + used, from->heap + text.offset, text.length);
                to->texts[at] = (struct text_ref){used, text.length};
                used += text.length;
            }
        }
    }
    to->heap = heap;
}

static void gather_lists(struct batch *out, struct column *to, struct batch *const *sources, uint32_t column,
                         const uint16_t *rows, uint32_t count)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t length = sources[i]->columns[column].lists[rows[i]].length;
        to->lists[i] = (struct list_ref){total, length};
        total += length;
    }
    to->child_rows = total;
    for (uint32_t child = 0; child < to->children_count; child++) {
        leat_assert(to->children[child].tag !=
                    TYPE_LIST); /* schemas nest one list deep: checked by the plan */
        to->children[child].child_rows = total;
        struct column *target = &to->children[child];
        *target = (struct column){.tag = target->tag, .child_rows = total};
        gather_child(out, target, sources, column, child, rows, count);
    }
}

static void gather_column(struct batch *out, struct batch *const *sources, uint32_t column,
                          const uint16_t *rows, uint32_t count)
{
    struct column *to = &out->columns[column];
    for (uint32_t i = 0; i < count; i++)
        if (!column_is_valid(&sources[i]->columns[column], rows[i]))
            batch_set_null(out, to, i);
    switch (to->tag) {
    case TYPE_TEXT:
    case TYPE_BYTES: gather_texts(out, to, sources, column, rows, count); break;
    case TYPE_LIST: gather_lists(out, to, sources, column, rows, count); break;
    case TYPE_BOOL:
        for (uint32_t i = 0; i < count; i++)
            to->bools[i] = sources[i]->columns[column].bools[rows[i]];
        break;
    default:
        for (uint32_t i = 0; i < count; i++)
            to->ints[i] = sources[i]->columns[column].ints[rows[i]];
        break;
    }
}

struct batch *batch_gather(struct batch_pool *pool, const struct schema *schema, struct batch *const *sources,
                           const uint16_t *rows, uint32_t count)
{
    struct batch *out = batch_new(pool, schema, count);
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
    for (uint32_t column = 0; column < schema->count; column++)
        gather_column(out, sources, column, rows, count);
    return out;
}
