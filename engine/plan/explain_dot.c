/* The plan as Graphviz text: a cluster for each stage, an edge for each call and exchange. */
#include "plan/explain.h"

enum { LABEL_BYTES_MAX = 80 };

/* Writes the text inside a dot string; cuts it at a character boundary. */
static void put_text(struct byte_buffer *out, const char *text, size_t bytes_max)
{
    size_t length = strlen(text), end = MIN(length, bytes_max);
    while (end < length && end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80)
        end--;
    for (size_t i = 0; i < end; i++) {
        if (text[i] == '"' || text[i] == '\\')
            buffer_append(out, "\\", 1);
        buffer_append(out, text[i] == '\n' ? " " : &text[i], 1);
    }
    if (end < length)
        buffer_printf(out, "...");
}

static void put_node(struct byte_buffer *out, const struct plan_node *node, struct arena *arena)
{
    buffer_printf(out, "    n%u [label=\"", node->place);
    put_text(out, arena_strndup(arena, node->name.data, node->name.length), LABEL_BYTES_MAX);
    buffer_printf(out, "\\n");
    put_text(out, explain_kind(node, arena), LABEL_BYTES_MAX);
    const char *settings = explain_settings(node, arena);
    if (settings[0] != '\0')
        buffer_printf(out, " ");
    put_text(out, settings, LABEL_BYTES_MAX);
    buffer_printf(out, "\"];\n");
}

static const struct plan_exchange *exchange_into(const struct plan *plan, uint32_t node, uint32_t input)
{
    for (uint32_t i = 0; i < plan->exchanges_count; i++)
        if (plan->exchanges[i].to_node == node && plan->exchanges[i].to_input == input)
            return &plan->exchanges[i];
    return NULL;
}

static void put_edges(struct byte_buffer *out, const struct plan *plan, struct arena *arena)
{
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        const struct plan_node *node = &plan->nodes[i];
        for (uint32_t k = 0; k < node->inputs_count; k++) {
            if (node->inputs[k].output == PLAN_OUTPUT_DEAD)
                continue;
            struct plan_edge edge = node->inputs[k];
            const struct plan_exchange *x = exchange_into(plan, i, k);
            bool is_side = plan->nodes[edge.node].tag == PLAN_OPERATOR && edge.output != 0;
            const char *mode = x == NULL ? "" : explain_exchange(plan, x, arena);
            const char *side = is_side ? explain_edge(plan, edge, arena) : "";
            buffer_printf(out, "  n%u -> n%u", edge.node, i);
            if (x != NULL || is_side) {
                buffer_printf(out, " [%slabel=\"", x != NULL ? "style=bold, " : "");
                put_text(out, arena_printf(arena, "%s%s%s", side, is_side && x != NULL ? ", " : "", mode),
                         LABEL_BYTES_MAX);
                buffer_printf(out, "\"]");
            }
            buffer_printf(out, ";\n");
        }
    }
}

void plan_dot(const struct plan *plan, struct byte_buffer *out)
{
    struct arena arena = {0};
    buffer_printf(out, "digraph \"");
    put_text(out, arena_strndup(&arena, plan->name.data, plan->name.length), LABEL_BYTES_MAX);
    buffer_printf(out, "\" {\n  node [shape=box, fontname=\"Helvetica\", fontsize=10];\n"
                       "  edge [fontname=\"Helvetica\", fontsize=10];\n");
    for (uint32_t i = 0; i < plan->stages_count; i++) {
        buffer_printf(out, "  subgraph cluster_%u {\n    fontname=\"Helvetica\"; label=\"stage %u, ", i, i);
        put_text(out, explain_stage(plan, i, &arena), LABEL_BYTES_MAX);
        buffer_printf(out, "\";\n");
        for (uint32_t k = 0; k < plan->stages[i].nodes_count; k++)
            put_node(out, &plan->nodes[plan->stages[i].nodes[k]], &arena);
        buffer_printf(out, "  }\n");
    }
    put_edges(out, plan, &arena);
    buffer_printf(out, "}\n");
    arena_free(&arena);
}
