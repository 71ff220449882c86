/* The words of `leat explain`; see explain.h. */
#include "plan/explain.h"

const char *explain_kind(const struct plan_node *node, struct arena *arena)
{
    switch (node->tag) {
    case PLAN_SOURCE: return arena_printf(arena, "source %s", node->source_kind->name);
    case PLAN_LEARNER: return arena_printf(arena, "learner %s", node->operator_kind->name);
    case PLAN_SINK: return arena_printf(arena, "sink %s", node->sink_kind->name);
    case PLAN_OPERATOR: break;
    }
    return node->operator_kind->name;
}

static const char *literal_text(struct arena *arena, enum ast_tag tag, int64_t value)
{
    struct ast literal = {.tag = tag, .integer = value};
    return ast_text(arena, &literal);
}

/* "1h 5s": as a literal, or as the two largest units that are not 0. */
const char *explain_duration(int64_t microseconds, struct arena *arena)
{
    if (microseconds == INT64_MAX)
        return "ever";
    static const int64_t units[] = {US_PER_DAY, US_PER_HOUR, US_PER_MINUTE, US_PER_SECOND, 1000, 1};
    const char *text = NULL;
    int64_t rest = microseconds;
    for (size_t i = 0, parts = 0; i < ARRAY_COUNT(units) && parts < 2; i++) {
        int64_t part = rest / units[i] * units[i];
        if (part == 0)
            continue;
        const char *literal = literal_text(arena, AST_DURATION, part);
        text = text == NULL ? literal : arena_printf(arena, "%s %s", text, literal);
        rest -= part;
        parts++;
    }
    return text == NULL ? "0s" : text;
}

const char *explain_bytes(int64_t bytes, struct arena *arena)
{
    return literal_text(arena, AST_SIZE, bytes);
}

const char *explain_count(uint32_t count, const char *noun, struct arena *arena)
{
    return arena_printf(arena, "%u %s%s", count, noun, count == 1 ? "" : "s");
}

/* The step's options. `with a = 1` is printed as `with [a = 1]`: takes off the brackets. */
static const char *step_settings(const struct plan_node *node, struct arena *arena)
{
    struct str text = node->settings_text;
    bool is_list = text.length > 1 && text.data[0] == '[' && text.data[text.length - 1] == ']' &&
                   memchr(text.data + 1, '[', text.length - 1) == NULL;
    return is_list ? arena_strndup(arena, text.data + 1, text.length - 2)
                   : arena_strndup(arena, text.data, text.length);
}

const char *explain_settings(const struct plan_node *node, struct arena *arena)
{
    if (node->tag != PLAN_SOURCE)
        return step_settings(node, arena);
    const struct source_common *common = node->common;
    if (common->event_time.name.length == 0)
        return "no event time";
    const char *text = arena_printf(arena, "event time %.*s", STR_ARGS(common->event_time.name));
    if (common->max_delay_us > 0)
        text = arena_printf(arena, "%s, up to %s late", text, explain_duration(common->max_delay_us, arena));
    if (common->idle_after_us > 0)
        text = arena_printf(arena, "%s, idle after %s", text, explain_duration(common->idle_after_us, arena));
    return text;
}

bool explain_is_dead(const struct plan_exchange *exchange)
{
    return exchange->from.output == PLAN_OUTPUT_DEAD;
}

static const char *key_names(const struct plan *plan, const struct plan_exchange *exchange,
                             struct arena *arena)
{
    const struct operator_input *input = &plan->nodes[exchange->to_node].bound[exchange->to_input];
    const char *text = "";
    for (uint32_t i = 0; i < exchange->key_count; i++)
        text = arena_printf(arena, "%s%s%.*s", text, i > 0 ? ", " : "",
                            STR_ARGS(input->schema->fields[exchange->key_columns[i]].name));
    return text;
}

const char *explain_exchange(const struct plan *plan, const struct plan_exchange *exchange,
                             struct arena *arena)
{
    switch (exchange->mode) {
    case EXCHANGE_HASH: return arena_printf(arena, "by %s", key_names(plan, exchange, arena));
    case EXCHANGE_SINGLE: return "to one lane";
    case EXCHANGE_FORWARD: break;
    }
    return "lane by lane";
}

const char *explain_stage(const struct plan *plan, uint32_t stage, struct arena *arena)
{
    if (plan->stages[stage].tag == STAGE_SOURCES)
        return "sources";
    if (plan->stages[stage].tag == STAGE_SINGLE)
        return "one lane";
    for (uint32_t i = 0; i < plan->exchanges_count; i++)
        if (plan->exchanges[i].to_stage == stage && plan->exchanges[i].mode == EXCHANGE_HASH)
            return explain_exchange(plan, &plan->exchanges[i], arena);
    return "lane by lane";
}

const char *explain_instances(const struct plan *plan, uint32_t stage)
{
    switch (plan->stages[stage].tag) {
    case STAGE_SOURCES: return "any lane takes the next rows";
    case STAGE_KEYED: return "one instance per lane";
    case STAGE_SINGLE: break;
    }
    return "all rows, in order";
}

const char *explain_edge(const struct plan *plan, struct plan_edge edge, struct arena *arena)
{
    if (edge.output == PLAN_OUTPUT_DEAD)
        return "dead_letters";
    const struct plan_node *node = &plan->nodes[edge.node];
    const char *name = arena_strndup(arena, node->name.data, node->name.length);
    const char *output = node->output_names[edge.output];
    return output == NULL ? name : arena_printf(arena, "%s.%s", name, output);
}

const char *explain_inputs(const struct plan *plan, const struct plan_node *node, struct arena *arena)
{
    if (node->tag == PLAN_SOURCE)
        return NULL;
    const struct plan_stage *stage = &plan->stages[node->stage];
    uint32_t above = UINT32_MAX; /* the node in the line above this one */
    for (uint32_t i = 1; i < stage->nodes_count; i++)
        if (stage->nodes[i] == node->place)
            above = stage->nodes[i - 1];
    const char *text = NULL;
    for (uint32_t i = 0; i < node->inputs_count; i++) {
        struct plan_edge edge = node->inputs[i];
        bool is_dead = edge.output == PLAN_OUTPUT_DEAD;
        if (!is_dead && plan->nodes[edge.node].stage != node->stage)
            continue; /* an exchange, which is shown as one */
        if (i == 0 && edge.node == above && edge.output == 0 && plan->nodes[above].tag != PLAN_SOURCE)
            continue;
        const char *name = explain_edge(plan, edge, arena);
        text = text == NULL ? name : arena_printf(arena, "%s, %s", text, name);
    }
    return text;
}

/* Whether `other` lacks the field, or has it with another type. */
static bool is_new(const struct field *field, const struct schema *other)
{
    int index = schema_find(other, field->name);
    return index < 0 || !type_equal(&field->type, &other->fields[index].type);
}

const char *explain_added(const struct plan_node *node, struct arena *arena, bool with_types)
{
    const struct schema *output = node->outputs[0];
    if (output == NULL)
        return NULL;
    const char *text = NULL;
    for (uint32_t i = 0; i < output->count; i++) {
        const struct field *field = &output->fields[i];
        if (node->tag != PLAN_SOURCE && !is_new(field, node->bound[0].schema))
            continue;
        const char *name = arena_printf(arena, "%.*s%s%s", STR_ARGS(field->name), with_types ? ": " : "",
                                        with_types ? type_name(arena, &field->type) : "");
        text = text == NULL ? name : arena_printf(arena, "%s, %s", text, name);
    }
    return text;
}

const char *explain_dropped(const struct plan_node *node, struct arena *arena)
{
    /* A learner's input has columns that were made only for its expressions. */
    if (node->tag != PLAN_OPERATOR)
        return NULL;
    const struct schema *input = node->bound[0].schema;
    const char *text = NULL;
    for (uint32_t i = 0; i < input->count; i++) {
        if (schema_find(node->outputs[0], input->fields[i].name) >= 0)
            continue;
        text = arena_printf(arena, "%s%s%.*s", text == NULL ? "" : text, text == NULL ? "" : ", ",
                            STR_ARGS(input->fields[i].name));
    }
    return text;
}

int64_t explain_behind_us(const struct plan *plan, const struct plan_node *node)
{
    if (node->tag == PLAN_SOURCE)
        return node->common->max_delay_us;
    /* Nodes are in topological order: all up to this one are computed in one pass. */
    int64_t behind[PLAN_NODES_MAX] = {0};
    for (uint32_t i = 0; i <= node->place; i++) {
        const struct plan_node *n = &plan->nodes[i];
        behind[i] = n->tag == PLAN_SOURCE ? n->common->max_delay_us : 0;
        for (uint32_t k = 0; k < n->inputs_count; k++)
            if (n->inputs[k].output != PLAN_OUTPUT_DEAD)
                behind[i] = MAX(behind[i], behind[n->inputs[k].node]);
        behind[i] = time_add(behind[i], n->hold_us);
    }
    return behind[node->place];
}

/* --- Pictures --- */

const char *explain_shortened(const char *text, uint32_t columns_max, struct arena *arena)
{
    if (text_columns(str_from(text)) <= columns_max)
        return text;
    size_t end = 0;
    for (uint32_t columns = 0; columns < columns_max; columns++)
        for (end++; ((unsigned char)text[end] & 0xC0) == 0x80; end++)
            continue;
    return arena_printf(arena, "%.*s\xE2\x80\xA6", (int)end, text);
}

void explain_put_xml(struct byte_buffer *out, const char *text)
{
    for (; *text != '\0'; text++)
        if (*text == '&')
            buffer_printf(out, "&amp;");
        else if (*text == '<')
            buffer_printf(out, "&lt;");
        else if (*text == '>')
            buffer_printf(out, "&gt;");
        else
            buffer_append(out, (unsigned char)*text < 0x20 ? " " : text, 1);
}

void explain_put_svg(struct byte_buffer *out, double width, double height, const char *title,
                     const char *style)
{
    buffer_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
                  "height=\"%.0f\" role=\"img\">\n<title>",
                  width, height, width, height);
    explain_put_xml(out, title);
    buffer_printf(out, "</title>\n%s<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n", style);
}
