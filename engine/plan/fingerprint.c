/* The canonical text of options, and the job's fingerprint: xxh3-128 of everything that reaches state. */
#include "plan/build.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct str build_settings(struct plan_build *b, const struct option *table, const struct ast_entry *entries,
                          uint32_t count, bool for_fingerprint)
{
    struct byte_buffer text = {0};
    /* In the order of the table: the order in the job does not matter. */
    for (struct option_walk w = option_walk(table); option_next(&w);) {
        if (for_fingerprint && (w.row.flags & OPTION_RUNTIME) != 0)
            continue;
        const char *name = (w.row.flags & OPTION_POSITIONAL) != 0 ? ""
                           : (w.row.flags & OPTION_BODY) != 0     ? "{}"
                                                                  : w.row.name;
        for (uint32_t i = 0; i < count; i++) {
            if (!str_is(entries[i].name, name) || entries[i].value == NULL)
                continue;
            if (text.length > 0)
                buffer_append(&text, " ", 1);
            if (name[0] != '\0' && name[0] != '{')
                buffer_printf(&text, "%s: ", name);
            ast_print(&text, entries[i].value);
        }
    }
    struct str copy = arena_str(b->arena, (struct str){text.data == NULL ? "" : text.data, text.length});
    buffer_free(&text);
    return copy;
}

void build_fingerprint(struct plan_build *b)
{
    struct plan *plan = b->plan;
    struct byte_buffer text = {0};
    buffer_append(&text, b->options->registry->libraries.data, b->options->registry->libraries.length);
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        const struct plan_node *node = &plan->nodes[i];
        if (node->tag == PLAN_SINK)
            continue; /* where rows go does not reach state; sinks check their options themselves */
        const char *kind = node->tag == PLAN_SOURCE ? "source" : node->operator_kind->name;
        buffer_printf(&text, "%u %.*s %s %.*s <-", i, STR_ARGS(node->name), kind,
                      STR_ARGS(node->settings_text));
        for (uint32_t k = 0; k < node->inputs_count; k++)
            buffer_printf(&text, " %u.%u", node->inputs[k].node, node->inputs[k].output);
        for (uint32_t k = 0; k < node->outputs[0]->count; k++)
            buffer_printf(&text, " %.*s:%s", STR_ARGS(node->outputs[0]->fields[k].name),
                          type_name(b->arena, &node->outputs[0]->fields[k].type));
        buffer_append(&text, "\n", 1);
    }
    XXH128_hash_t hash = XXH3_128bits(text.data, text.length);
    buffer_free(&text);
    snprintf(plan->fingerprint, sizeof(plan->fingerprint), "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
}
