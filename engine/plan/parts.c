/* The nodes of a plan in checkpoints: names that stay the same, and what the state of each node depends
 * on. */
#include "plan/build.h"

#include "core/operator_state.h"

#include <ctype.h>
#include <stdio.h>

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Whether the text mentions the name as a word of its own, not as a name that the text gives (`n:
 * count()`). */
static bool mentions(struct str text, struct str name)
{
    for (size_t at = 0; name.length > 0 && at + name.length <= text.length; at++) {
        size_t end = at + name.length;
        bool is_end = end == text.length || (!is_word(text.data[end]) && text.data[end] != ':');
        if ((at == 0 || !is_word(text.data[at - 1])) && is_end &&
            memcmp(text.data + at, name.data, name.length) == 0)
            return true;
    }
    return false;
}

/* The default shape: the options, and the columns that they mention, with their types. The lines of the
 * columns are optional (`?`): when a checkpoint is resumed by a changed job, both jobs have bound, so both
 * have every column that the options need. */
static void default_shape(struct plan_build *b, const struct plan_node *node,
                          const struct operator_bind *bind, struct byte_buffer *out)
{
    buffer_printf(out, "=%s: %.*s\n", node->operator_kind->name, STR_ARGS(node->settings_text));
    for (uint32_t i = 0; i < bind->inputs_count; i++) {
        const struct schema *schema = bind->inputs[i].schema;
        for (uint32_t k = 0; k < schema->count; k++)
            if (mentions(node->settings_text, schema->fields[k].name))
                buffer_printf(out, "?column %.*s%s%.*s: %s\n",
                              i == 0 ? 0 : (int)bind->inputs[i].stream.length, bind->inputs[i].stream.data,
                              i == 0 ? "" : ".", STR_ARGS(schema->fields[k].name),
                              type_name(b->arena, &schema->fields[k].type));
    }
}

void build_shape(struct plan_build *b, struct plan_node *node, const struct operator_bind *bind)
{
    node->has_state = operator_has_state(node->operator_kind);
    if (!node->has_state)
        return;
    struct byte_buffer text = {0};
    if (node->operator_kind->shape != NULL) {
        buffer_printf(&text, "=kind: %s\n", node->operator_kind->name);
        size_t head = text.length;
        node->operator_kind->shape(bind, &text);
        text.length = text.length == head ? 0 : text.length;
    }
    if (text.length == 0)
        default_shape(b, node, bind, &text);
    node->shape = arena_str(b->arena, (struct str){text.data, text.length});
    buffer_free(&text);
}

static const char *kind_of(const struct plan_node *node)
{
    return node->tag == PLAN_SOURCE ? node->source_kind->name
           : node->tag == PLAN_SINK ? node->sink_kind->name
                                    : node->operator_kind->name;
}

void build_sink_shape(struct plan_build *b, struct plan_node *node, const struct sink_bind *bind)
{
    struct byte_buffer text = {0};
    node->has_state = node->sink_kind->snapshot != NULL;
    buffer_printf(&text, "=kind: %s\n", node->sink_kind->name);
    if (node->sink_kind->shape != NULL)
        node->sink_kind->shape(bind, &text);
    node->shape = arena_str(b->arena, (struct str){text.data, text.length});
    buffer_free(&text);
}

/* How many operators of its kind come before the node in its stream. */
static uint32_t before(const struct plan *plan, const struct plan_node *node)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->place; i++) {
        const struct plan_node *other = &plan->nodes[i];
        count += other->tag == PLAN_OPERATOR && str_equal(other->name, node->name) &&
                 other->operator_kind == node->operator_kind;
    }
    return count;
}

void build_parts(struct plan_build *b)
{
    struct plan *plan = b->plan;
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        struct plan_node *node = &plan->nodes[i];
        uint32_t number = node->tag == PLAN_OPERATOR ? before(plan, node) + 1 : 1;
        if (node->tag == PLAN_OPERATOR && number > 1)
            node->part = arena_printf(b->arena, "%.*s/%s.%u", STR_ARGS(node->name), kind_of(node), number);
        else if (node->tag == PLAN_OPERATOR)
            node->part = arena_printf(b->arena, "%.*s/%s", STR_ARGS(node->name), kind_of(node));
        else
            node->part =
                arena_printf(b->arena, "%s%.*s", node->tag == PLAN_SINK ? "sink/" : "", STR_ARGS(node->name));
        if (node->tag == PLAN_SOURCE) {
            node->has_state = true; /* its state is the positions of its partitions */
            node->shape = str_from(arena_printf(b->arena, "=kind: %s\n", kind_of(node)));
        }
    }
}
