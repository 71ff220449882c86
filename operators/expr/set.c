/* Sets of constants, for `x in [...]`: an open-addressing hash table, at most half full. */
#include "operators/expr/node.h"

struct expr_set {
    struct column column; /* the values, `count` rows */
    uint32_t count, mask; /* mask: number of places - 1 */
    uint32_t *places;     /* row of the value + 1; 0: empty */
    bool has_null;
};

static bool values_equal(const struct column *a, uint32_t i, const struct column *b, uint32_t k)
{
    switch (a->tag) {
    case TYPE_TEXT:
    case TYPE_BYTES: return str_equal(column_text(a, i), column_text(b, k));
    case TYPE_BOOL: return (a->bools[i] != 0) == (b->bools[k] != 0);
    case TYPE_FLOAT: return a->floats[i] == b->floats[k];
    default: return a->ints[i] == b->ints[k];
    }
}

/* The place of a value, or the empty place for it. */
static uint32_t find_place(const struct expr_set *set, const struct column *column, uint32_t row)
{
    uint32_t place = (uint32_t)expr_hash_value(column, row) & set->mask;
    while (set->places[place] != 0 && !values_equal(&set->column, set->places[place] - 1, column, row))
        place = (place + 1) & set->mask;
    return place;
}

struct expr_set *expr_set_new(struct arena *arena, struct type type, struct expr_node *const *nodes,
                              uint32_t count)
{
    struct expr_set *set = arena_new(arena, struct expr_set);
    size_t bytes = 0, used = 0;
    uint32_t places = 8;
    while (places < 2 * count)
        places *= 2;
    for (uint32_t i = 0; i < count; i++)
        if (type.tag == TYPE_TEXT || type.tag == TYPE_BYTES)
            bytes += nodes[i]->constant->column.texts[0].length;
    char *heap = arena_alloc(arena, bytes);
    set->column = (struct column){.tag = type.tag, .data = arena_calloc(arena, count + 1, 8), .heap = heap};
    set->places = arena_array(arena, uint32_t, places);
    set->mask = places - 1;
    for (uint32_t i = 0; i < count; i++) {
        const struct column *value = &nodes[i]->constant->column;
        if (!column_is_valid(value, 0)) {
            set->has_null = true;
            continue;
        }
        uint32_t row = set->count;
        if (type.tag == TYPE_TEXT || type.tag == TYPE_BYTES) {
            struct str text = column_text(value, 0);
            if (text.length > 0)
                memcpy(heap + used, text.data, text.length);
            set->column.texts[row] = (struct text_ref){(uint32_t)used, (uint32_t)text.length};
            used += text.length;
        } else if (type.tag == TYPE_BOOL) {
            set->column.bools[row] = value->bools[0];
        } else {
            set->column.ints[row] = value->ints[0];
        }
        uint32_t place = find_place(set, &set->column, row);
        if (set->places[place] == 0)
            set->places[place] = ++set->count;
    }
    return set;
}

/* Null if the value is not found and the list has a null. */
void kernel_in_set(struct expr_call *call)
{
    const struct expr_set *set = call->node->aux;
    const struct expr_vec *a = &call->args[0];
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        bool is_found = set->places[find_place(set, &a->column, row & a->mask)] != 0;
        call->out->column.bools[row] = is_found;
        if (!is_found && set->has_null)
            call_null(call, row);
    }
}
