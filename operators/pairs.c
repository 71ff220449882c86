#include "operators/pairs.h"

#include "operators/keys.h"

bool pairs_split(struct operator_bind *bind, const struct assignments *on, struct columns *left,
                 struct columns *right)
{
    bool is_good = true;
    uint32_t count = MAX(on->count, 1);
    *left = (struct columns){arena_array(bind->arena, struct column_ref, count), on->count};
    *right = (struct columns){arena_array(bind->arena, struct column_ref, count), on->count};
    for (uint32_t i = 0; i < on->count; i++) {
        const struct assignment *pair = &on->items[i];
        left->items[i] = (struct column_ref){pair->name, pair->name_span, -1};
        if (pair->value->tag == AST_NAME) {
            right->items[i] = (struct column_ref){pair->value->text, pair->value->span, -1};
            continue;
        }
        struct diag *d = diag_error(bind->diags, DIAG_OPTION_TYPE, pair->value->span, "`on` takes columns");
        diag_hint(bind->diags, d,
                  "write `on %.*s = COLUMN`; compute other keys in a step `with` before this one",
                  STR_ARGS(pair->name));
        is_good = false;
    }
    return is_good;
}

static bool check_types(struct operator_bind *bind, const struct assignments *on, const int *left,
                        const int *right)
{
    bool is_good = true;
    for (uint32_t i = 0; i < on->count; i++) {
        const struct field *a = &bind->inputs[0].schema->fields[left[i]];
        const struct field *b = &bind->inputs[1].schema->fields[right[i]];
        if (type_equal(&a->type, &b->type))
            continue;
        struct diag *d = diag_error(bind->diags, DIAG_TYPE_CLASH, on->items[i].value->span,
                                    "`%.*s` is of type %s here, and `%.*s` of `%.*s` of type %s",
                                    STR_ARGS(a->name), type_name(bind->arena, &a->type), STR_ARGS(b->name),
                                    STR_ARGS(bind->inputs[1].stream), type_name(bind->arena, &b->type));
        diag_hint(bind->diags, d, "`cast` one of the two before this step");
        is_good = false;
    }
    return is_good;
}

bool pairs_bind(struct operator_bind *bind, const struct assignments *on, int **left, int **right)
{
    struct columns own, other;
    if (!pairs_split(bind, on, &own, &other))
        return false;
    bool is_good = keys_bind(bind, 0, &own, left);
    is_good &= keys_bind(bind, 1, &other, right);
    return is_good && check_types(bind, on, *left, *right);
}

void pairs_shape(const struct operator_bind *bind, const struct assignments *on, const int *left,
                 struct byte_buffer *out)
{
    for (uint32_t i = 0; i < on->count; i++)
        buffer_printf(out, "=on %.*s = %.*s: %s\n", STR_ARGS(on->items[i].name),
                      STR_ARGS(on->items[i].value->text),
                      type_name(bind->arena, &bind->inputs[0].schema->fields[left[i]].type));
}
