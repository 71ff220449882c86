#include "core/registry.h"

#define FIND(function, kind, list)                                                                           \
    const struct kind *function(const struct registry *registry, struct str name)                           \
    {                                                                                                        \
        for (size_t i = 0; registry->list != NULL && registry->list[i] != NULL; i++)                         \
            if (str_is(name, registry->list[i]->name))                                                       \
                return registry->list[i];                                                                    \
        return NULL;                                                                                         \
    }

FIND(registry_operator, operator_kind, operators)
FIND(registry_learner, operator_kind, learners)
FIND(registry_source, source_kind, sources)
FIND(registry_sink, sink_kind, sinks)
FIND(registry_format, format_kind, formats)

void report_add(struct report *report, const char *name, double value, bool is_window)
{
    if (report->count < REPORT_ITEMS_MAX)
        report->items[report->count++] = (struct report_item){name, value, is_window};
}
