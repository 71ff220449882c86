/* The plan as text. One block per stage: where its rows come from, then its steps, each with its options,
 * the columns that it adds or leaves out, the state it keeps in memory, and how far its watermark stays
 * behind. */
#include "plan/explain.h"

#include "core/memory_plan.h"

enum { LINE_COLUMNS = 100, NAME_COLUMNS_MAX = 20, DETAIL_INDENT = 8 };

static uint32_t columns_of(const char *text)
{
    return text_columns(str_from(text));
}

static void put_wrapped(struct byte_buffer *out, uint32_t at, uint32_t indent, const char *text)
{
    buffer_wrap(out, at, indent, LINE_COLUMNS, str_from(text));
    buffer_append(out, "\n", 1);
}

static void put_detail(struct byte_buffer *out, const char *what, const char *text)
{
    if (text == NULL || text[0] == '\0')
        return;
    buffer_printf(out, "%*s%s ", DETAIL_INDENT, "", what);
    uint32_t at = DETAIL_INDENT + columns_of(what) + 1;
    put_wrapped(out, at, at, text);
}

static void put_columns(struct byte_buffer *out, const struct plan_node *node, struct arena *arena)
{
    if (node->tag == PLAN_SOURCE) {
        put_detail(out, "columns", explain_added(node, arena, true));
        return;
    }
    put_detail(out, "+", explain_added(node, arena, true));
    put_detail(out, "-", explain_dropped(node, arena));
}

/* The memory that the step allocates when it opens, besides its state. */
static void put_taken(struct byte_buffer *out, const struct plan_node *node, struct arena *arena)
{
    struct memory_plan plan = {.count = 0};
    if (node->operator_kind == NULL || node->operator_kind->memory == NULL)
        return;
    node->operator_kind->memory(node->config, &plan);
    if (plan.count == 0)
        return;
    const char *text = arena_printf(arena, "%s, %s", plan.where, memory_plan_text(&plan, false, arena));
    if (memory_plan_bytes(&plan, true) > 0)
        text = arena_printf(arena, "%s; on the host, %s", text, memory_plan_text(&plan, true, arena));
    put_detail(out, "takes:", text);
}

static void put_node(struct byte_buffer *out, const struct plan *plan, const struct plan_node *node,
                     uint32_t name_columns, struct arena *arena)
{
    const char *name = arena_strndup(arena, node->name.data, node->name.length);
    const char *kind = explain_kind(node, arena);
    uint32_t used = columns_of(name);
    buffer_printf(out, "  %s%*s  %s", name, used < name_columns ? (int)(name_columns - used) : 0, "", kind);
    const char *settings = explain_settings(node, arena);
    uint32_t indent = 2 + MAX(used, name_columns) + 2 + columns_of(kind) + 2;
    if (settings[0] == '\0') {
        buffer_append(out, "\n", 1);
    } else {
        buffer_append(out, "  ", 2);
        put_wrapped(out, indent, MIN(indent, 40), settings);
    }
    put_detail(out, "from", explain_inputs(plan, node, arena));
    put_columns(out, node, arena);
    if (node->needs_memory)
        put_detail(out, "memory:", "keeps state");
    put_taken(out, node, arena);
    if (node->hold_us == INT64_MAX)
        put_detail(out, "watermark:", "holds rows back until the input ends");
    else if (node->hold_us > 0)
        put_detail(out, "watermark:",
                   arena_printf(arena, "holds rows back for %s; in all %s behind the newest event",
                                explain_duration(node->hold_us, arena),
                                explain_duration(explain_behind_us(plan, node), arena)));
}

static void put_stage(struct byte_buffer *out, const struct plan *plan, uint32_t index, uint32_t name_columns,
                      struct arena *arena)
{
    const struct plan_stage *stage = &plan->stages[index];
    buffer_printf(out, "\nstage %u, %s: %s\n", index, explain_stage(plan, index, arena),
                  explain_instances(plan, index));
    bool has_dead = false;
    for (uint32_t i = 0; i < plan->exchanges_count; i++) {
        const struct plan_exchange *x = &plan->exchanges[i];
        if (x->to_stage != index)
            continue;
        if (explain_is_dead(x)) {
            has_dead = true;
            continue;
        }
        buffer_printf(out, "  <- stage %u: %s, %s\n", x->from_stage, explain_edge(plan, x->from, arena),
                      explain_exchange(plan, x, arena));
    }
    if (has_dead)
        buffer_printf(out, "  <- every stage: dead_letters, to one lane\n");
    for (uint32_t i = 0; i < stage->nodes_count; i++)
        put_node(out, plan, &plan->nodes[stage->nodes[i]], name_columns, arena);
}

static void put_memory(struct byte_buffer *out, const struct plan *plan, struct arena *arena)
{
    const char *names = NULL;
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        const struct plan_node *node = &plan->nodes[i];
        if (!node->needs_memory)
            continue;
        const char *name = arena_printf(arena, "%.*s %s (stage %u)", STR_ARGS(node->name),
                                        node->operator_kind->name, node->stage);
        names = names == NULL ? name : arena_printf(arena, "%s, %s", names, name);
    }
    const char *bytes = explain_bytes(plan->config.memory_bytes, arena);
    buffer_printf(out, "  memory      ");
    put_wrapped(
        out, 14, 14,
        names == NULL
            ? arena_printf(arena, "%s for queues and caches; no step keeps state", bytes)
            : arena_printf(arena, "%s; equal shares, each split among its instances, for: %s", bytes, names));
}

static void put_head(struct byte_buffer *out, const struct plan *plan, struct arena *arena)
{
    uint32_t counts[4] = {0};
    for (uint32_t i = 0; i < plan->nodes_count; i++)
        counts[plan->nodes[i].tag]++;
    buffer_printf(out, "job %.*s: %s, %s, %s, %s in %s\n", STR_ARGS(plan->name),
                  explain_count(counts[PLAN_SOURCE], "source", arena),
                  explain_count(counts[PLAN_OPERATOR], "step", arena),
                  explain_count(counts[PLAN_LEARNER], "learner", arena),
                  explain_count(counts[PLAN_SINK], "sink", arena),
                  explain_count(plan->stages_count, "stage", arena));
    const struct job_config *config = &plan->config;
    if (config->workers > 0)
        buffer_printf(out, "  workers     %lld\n", (long long)config->workers);
    else
        buffer_printf(out, "  workers     one per core\n");
    put_memory(out, plan, arena);
    const struct job_checkpoint *checkpoint = &config->checkpoint;
    if (checkpoint->directory.length > 0)
        buffer_printf(out, "  checkpoint  every %s into %.*s\n",
                      explain_duration(checkpoint->every_us, arena), STR_ARGS(checkpoint->directory));
    else
        buffer_printf(out, "  checkpoint  none: a stopped run starts anew\n");
    buffer_printf(out, "  fingerprint %s\n", plan->fingerprint);
}

void plan_explain(const struct plan *plan, struct byte_buffer *out)
{
    struct arena arena = {0};
    put_head(out, plan, &arena);
    uint32_t name_columns = 0;
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        struct str name = plan->nodes[i].name;
        name_columns = MAX(name_columns, text_columns(name));
    }
    for (uint32_t i = 0; i < plan->stages_count; i++)
        put_stage(out, plan, i, MIN(name_columns, NAME_COLUMNS_MAX), &arena);
    arena_free(&arena);
}
