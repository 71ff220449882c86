/* All kinds that a program knows: the built-in ones (cli/builtin.c, from the registry.def files) and
 * those of shared libraries that the job uses. Lists end with NULL. Parsers, plans, help and docs find
 * kinds only here. */
#ifndef LEAT_CORE_REGISTRY_H
#define LEAT_CORE_REGISTRY_H

#include "core/connector.h"
#include "core/line_log.h"
#include "core/operator.h"

/* A function of the expression language as the help shows it; its implementation is in operators/expr. */
struct function_help {
    const char *name, *signature, *summary, *example;
    bool is_aggregate;
};

/* Conditions of the expression language, for folders that must not include operators/expr. */
struct condition_kind {
    /* Compiles a condition for rows of the schema; NULL after diagnostics. The tree, the schema and the arena
     * must outlive the result. what: names the condition in messages. */
    const void *(*compile)(const struct ast *ast, const char *what, const struct schema *schema,
                           struct arena *arena, struct diag_list *diags);
    /* Writes the selected rows for which the condition is true, rising, to `sel` (room for batch->selected)
     * and returns their number. fail: called for each row whose evaluation failed. Any thread, each with its
     * own scratch arena. */
    uint32_t (*filter)(const void *condition, const struct batch *batch, struct arena *scratch, uint16_t *sel,
                       void (*fail)(void *argument, uint32_t row, const char *reason), void *argument);
};

struct registry {
    const struct operator_kind *const *operators;
    const struct operator_kind *const *learners;
    const struct source_kind *const *sources;
    const struct sink_kind *const *sinks;
    const struct format_kind *const *formats;
    const struct function_help *functions; /* ends with name NULL */
    const struct condition_kind *conditions;
    const struct line_log_kind *line_log; /* what a `serve` can log to, beside files; NULL: nothing */
    /* `use "lib.so"`: returns the registry extended by the library's kinds; NULL after a diagnostic. The
     * pointer is NULL where the program loads no libraries. */
    const struct registry *(*use)(const struct registry *registry, struct str path, struct span span,
                                  struct arena *arena, struct diag_list *diags);
    struct str libraries; /* the libraries in use, one per line: name and digest */
    uint32_t user_functions, user_operators;
};

/* The kind of that name, or NULL. */
const struct operator_kind *registry_operator(const struct registry *registry, struct str name);
const struct operator_kind *registry_learner(const struct registry *registry, struct str name);
const struct source_kind *registry_source(const struct registry *registry, struct str name);
const struct sink_kind *registry_sink(const struct registry *registry, struct str name);
const struct format_kind *registry_format(const struct registry *registry, struct str name);

#endif
