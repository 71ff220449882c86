/* leat help metrics: what `leat run --control` says under /metrics, from the table of control/metrics.c. */
#include "cli/help.h"
#include "control/metrics.h"

enum { METRICS_MAX = 512 };

struct help_page help_metrics(struct help *help)
{
    struct help_page page = {
        .name = "metrics",
        .summary = "figures of a run for Prometheus",
        .intro = "`leat run JOB --control HOST:PORT` gives them under /metrics, in the text format. A "
                 "series that is not known is left out. `node` is the node's name in checkpoints; of "
                 "learners, `over` is the whole run or the last window of metrics."};
    struct help_fact *facts = arena_array(&help->arena, struct help_fact, METRICS_MAX);
    struct metrics_meaning meaning;
    uint32_t count = 0;
    for (; count < METRICS_MAX && metrics_meaning(count, &meaning); count++)
        facts[count] = (struct help_fact){meaning.name,
                                          arena_printf(&help->arena, "%s%s%s. %s", meaning.type,
                                                       meaning.labels[0] == '\0' ? "" : " by ",
                                                       meaning.labels, meaning.help),
                                          NULL};
    page.sections[page.count++] = (struct help_section){"metrics", facts, count};
    return page;
}
