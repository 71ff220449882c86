/* All kinds that a program knows: the built-in ones (cli/builtin.c, from the registry.def files) and, later,
 * those of shared libraries. Lists end with NULL. Parsers, plans, help and docs find kinds through this
 * alone. */
#ifndef LEAT_CORE_REGISTRY_H
#define LEAT_CORE_REGISTRY_H

#include "core/connector.h"
#include "core/operator.h"

/* A function of the expression language, as the help shows it; operators/expr has the table behind it. */
struct function_help {
    const char *name, *signature, *summary, *example;
    bool is_aggregate;
};

struct registry {
    const struct operator_kind *const *operators;
    const struct operator_kind *const *learners;
    const struct source_kind *const *sources;
    const struct sink_kind *const *sinks;
    const struct format_kind *const *formats;
    const struct function_help *functions; /* ends with name NULL */
};

/* NULL where there is none of that name. */
const struct operator_kind *registry_operator(const struct registry *registry, struct str name);
const struct operator_kind *registry_learner(const struct registry *registry, struct str name);
const struct source_kind *registry_source(const struct registry *registry, struct str name);
const struct sink_kind *registry_sink(const struct registry *registry, struct str name);
const struct format_kind *registry_format(const struct registry *registry, struct str name);

#endif
