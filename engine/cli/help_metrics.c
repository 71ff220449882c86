/* leat help metrics: what `leat run --control` and `leat serve` say under /metrics, from the tables that they write. */
#include "cli/help.h"
#include "control/metrics.h"
#include "serve/metrics_table.h"

enum { SECTION_METRICS_MAX = 256 };

static const struct metric_meaning *serve_meaning(uint32_t index)
{
    return index < SERVE_METRICS ? &serve_metrics[index] : NULL;
}

static const struct {
    const char *title;
    const struct metric_meaning *(*meaning)(uint32_t index); /* NULL behind the last */
} tables[] = {
    {"of `leat run --control`", metrics_meaning},
    {"of `leat serve`", serve_meaning},
    {"of both", metrics_common_meaning},
};

struct help_page help_metrics(struct help *help)
{
    struct help_page page = {
        .name = "metrics",
        .summary = "figures of a run and of a server for Prometheus",
        .intro =
            "`leat run JOB --control HOST:PORT` and `leat serve` give them under /metrics: in the text format, and "
            "as OpenMetrics to who asks for that. A series that is not known is left out. `node` is the node's "
            "name in checkpoints; of learners, `over` is the whole run or the last window of metrics."};
    for (size_t t = 0; t < ARRAY_COUNT(tables); t++) {
        struct help_fact *facts = arena_array(&help->arena, struct help_fact, SECTION_METRICS_MAX);
        const struct metric_meaning *meaning;
        uint32_t count = 0;
        for (; count < SECTION_METRICS_MAX && (meaning = tables[t].meaning(count)) != NULL; count++)
            facts[count] = (struct help_fact){meaning->name,
                                              arena_printf(&help->arena, "%s%s%s. %s", meaning->type,
                                                           meaning->labels[0] == '\0' ? "" : " by ",
                                                           meaning->labels, meaning->help),
                                              NULL};
        page.sections[page.count++] = (struct help_section){tables[t].title, facts, count};
    }
    return page;
}

void help_metrics_markdown(struct byte_buffer *out)
{
    for (size_t t = 0; t < ARRAY_COUNT(tables); t++) {
        buffer_printf(out, "%s## Metrics %s\n\n| metric | type | labels | what |\n|---|---|---|---|\n",
                      t == 0 ? "" : "\n", tables[t].title);
        const struct metric_meaning *meaning;
        for (uint32_t i = 0; (meaning = tables[t].meaning(i)) != NULL; i++)
            buffer_printf(out, "| `%s` | %s | %s | %s |\n", meaning->name, meaning->type, meaning->labels,
                          meaning->help);
    }
}
