/* Makes nodes of the syntax tree and limits its height. */
#include "lang/internal.h"

struct span span_join(struct span a, struct span b)
{
    return (struct span){MIN(a.begin, b.begin), MAX(a.end, b.end)};
}

void *lang_grow(struct arena *arena, void *items, uint32_t count, size_t size)
{
    enum { FIRST = 4 };
    if (count != 0 && (count < FIRST || (count & (count - 1)) != 0))
        return items;
    size_t room = count == 0 ? FIRST : (size_t)count * 2;
    char *grown = arena_calloc(arena, room, size);
    if (count > 0)
        memcpy(grown, items, count * size);
    return grown;
}

struct ast *lang_node(struct arena *arena, enum ast_tag tag, struct span span)
{
    struct ast *node = arena_new(arena, struct ast);
    node->tag = tag;
    node->span = node->text_span = span;
    node->height = 1;
    return node;
}

static struct ast *checked_height(struct diag_list *diags, struct ast *node, uint32_t below)
{
    if (below < AST_HEIGHT_MAX) {
        node->height = MAX(node->height, below + 1);
        return node;
    }
    struct diag *d =
        diag_error(diags, DIAG_TOO_DEEP, node->span, "an expression of more than %d levels", AST_HEIGHT_MAX);
    diag_hint(diags, d, "compute parts of the expression as columns with `with`");
    return NULL;
}

struct ast *lang_node_children(struct arena *arena, struct diag_list *diags, struct ast *node,
                               struct ast *const *children, uint32_t count)
{
    uint32_t below = 0;
    for (uint32_t i = 0; i < count; i++) {
        leat_assert(children[i] != NULL);
        below = MAX(below, children[i]->height);
    }
    node->children = arena_copy(arena, children, count * sizeof(struct ast *));
    node->count = count;
    return checked_height(diags, node, below);
}

struct ast *lang_node_entries(struct diag_list *diags, struct ast *node, struct ast_entry *entries,
                              uint32_t count)
{
    uint32_t below = 0;
    for (uint32_t i = 0; i < count; i++) {
        leat_assert(entries[i].value != NULL);
        below = MAX(below, entries[i].value->height);
    }
    node->entries = entries;
    node->entries_count = count;
    return checked_height(diags, node, below);
}

uint32_t lang_node_count(const struct ast *ast, uint32_t limit)
{
    uint32_t count = 1;
    for (uint32_t i = 0; i < ast->count && count < limit; i++)
        count += lang_node_count(ast->children[i], limit - count);
    for (uint32_t i = 0; i < ast->entries_count && count < limit; i++)
        count += lang_node_count(ast->entries[i].value, limit - count);
    return count;
}
