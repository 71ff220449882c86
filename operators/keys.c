#include "operators/keys.h"

struct row_keys keys_of(const struct batch *batch, const int *columns, uint32_t columns_count,
                        struct arena *arena)
{
    size_t count = MAX(batch->selected, 1);
    struct row_keys keys = {.keys = arena_alloc(arena, count * sizeof(*keys.keys)),
                            .hashes = arena_alloc(arena, count * sizeof(*keys.hashes)),
                            .has_null = arena_calloc(arena, count, sizeof(*keys.has_null))};
    key_encode(batch, columns, columns_count, keys.keys, keys.has_null);
    for (uint32_t i = 0; i < batch->selected; i++)
        keys.hashes[i] = key_hash(keys.keys[i]);
    return keys;
}

bool keys_bind(struct operator_bind *bind, uint32_t input, struct columns *by, int **indices)
{
    const struct schema *schema = bind->inputs[input].schema;
    /* A copy, as the same names may be resolved against several inputs. */
    struct columns refs = {arena_copy(bind->arena, by->items, MAX(by->count, 1) * sizeof(*by->items)),
                           by->count};
    if (!columns_resolve(&refs, schema, bind->arena, bind->diags))
        return false;
    *indices = arena_array(bind->arena, int, MAX(by->count, 1));
    bool is_good = true;
    for (uint32_t i = 0; i < by->count; i++) {
        (*indices)[i] = refs.items[i].index;
        const struct type *type = &schema->fields[refs.items[i].index].type;
        if (type->tag != TYPE_LIST)
            continue;
        diag_error(bind->diags, DIAG_TYPE_CLASH, refs.items[i].span, "`%.*s` is a %s, which cannot be a key",
                   STR_ARGS(refs.items[i].name), type_name(bind->arena, type));
        is_good = false;
    }
    bind->inputs[input].key_columns = *indices;
    bind->inputs[input].key_count = by->count;
    return is_good;
}

bool keys_bind_both(struct operator_bind *bind, struct columns *by, int **left, int **right)
{
    bool is_good = keys_bind(bind, 0, by, left);
    is_good &= keys_bind(bind, 1, by, right);
    for (uint32_t i = 0, count = is_good ? by->count : 0; i < count; i++) {
        const struct field *a = &bind->inputs[0].schema->fields[(*left)[i]];
        const struct field *b = &bind->inputs[1].schema->fields[(*right)[i]];
        if (type_equal(&a->type, &b->type))
            continue;
        diag_error(bind->diags, DIAG_TYPE_CLASH, by->items[i].span, "`%.*s` is a %s here and a %s in `%.*s`",
                   STR_ARGS(a->name), type_name(bind->arena, &a->type), type_name(bind->arena, &b->type),
                   STR_ARGS(bind->inputs[1].stream));
        is_good = false;
    }
    return is_good;
}

void keys_lineage(const struct operator_bind *bind, uint32_t input, struct lineage *lineage)
{
    const struct operator_input *in = &bind->inputs[input];
    for (uint32_t i = 0; i < in->key_count; i++)
        lineage_merge(lineage, &in->schema->fields[in->key_columns[i]].lineage);
}

const struct keyed_slot *keys_peek(struct operator_context *context, struct state_query *query,
                                   struct keyed_table *table, const int *columns, uint32_t columns_count)
{
    struct row_keys keys = keys_of(query->row, columns, columns_count, context->scratch);
    query->looked_for = arena_printf(context->scratch, "key group %u, hash %016llx",
                                     key_group(keys.hashes[0]), (unsigned long long)keys.hashes[0]);
    return keyed_peek(table, keys.keys[0], keys.hashes[0]);
}
