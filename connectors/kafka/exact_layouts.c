/* How many partitions the topic of a sink that delivers exactly once has. */
#include "connectors/kafka/exact.h"

#include "core/log.h"

#include <inttypes.h>

void exact_take_partitions(struct exact *exact, uint64_t next)
{
    const struct sender_options *options = &exact->options.sender;
    int32_t heard = atomic_load(&exact->shards[0].sender.figures.partitions);
    uint32_t partitions = (uint32_t)MAX(heard, exact->options.partitions);
    uint32_t before = layouts_last(&exact->layouts).partitions;
    if (partitions == before || next < exact->out_next)
        return;
    layouts_add(&exact->layouts, (struct layout){.since = next, .partitions = partitions});
    exact->micro_batch = UINT64_MAX;
    if (before > 0)
        log_say(LOG_LEVEL_WARNING,
                "sink `%.*s`: topic `%s` had %u partitions, and has %u now: from micro-batch %" PRIu64
                " on rows go to these, and keys to other partitions than before",
                STR_ARGS(options->sink), options->topic, before, partitions, next);
}

/* The notes of any shard say it for all. */
void exact_take_layouts(struct exact *exact)
{
    uint64_t since = layouts_last(&exact->layouts).since;
    for (uint32_t i = 0; i < exact->count; i++) {
        const struct progress *progress = &exact->shards[i].sender.progress;
        for (uint32_t k = 0; k < progress->count; k++) {
            const struct layout *layout = &progress_at(progress, k)->layout;
            if (layout->partitions > 0 && layout->since > since)
                layouts_add(&exact->layouts, *layout);
        }
    }
}

bool exact_has_partitions(struct exact *exact, uint64_t next)
{
    const struct sender_options *options = &exact->options.sender;
    uint32_t needed = layouts_last(&exact->layouts).partitions;
    uint64_t held = 0;
    for (uint32_t i = 0; i < exact->count; i++)
        held += outbox_figures(&exact->shards[i].outbox).records;
    if (needed <= (uint32_t)exact->options.partitions || (held == 0 && exact->out_next <= next))
        return true;
    struct diag *d =
        diag_error(exact->context->diags, DIAG_RESUME_OR_FRESH, (struct span){0, 0},
                   "sink `%.*s`: topic `%s` had %u partitions, and has %d now: rows that are not sent yet "
                   "belong to partitions that are gone",
                   STR_ARGS(options->sink), options->topic, needed, (int)exact->options.partitions);
    diag_hint(
        exact->context->diags, d,
        "give the topic %u partitions, and start again; or start anew with --fresh, which sends all rows again",
        needed);
    return false;
}
