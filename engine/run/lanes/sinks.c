/* Begins and finishes sinks, tells them of checkpoints, and reports their errors. */
#include "run/lanes/internal.h"

#include "run/base/barrier.h"

bool lanes_begin_sinks(struct run *run)
{
    bool is_good = true;
    for (uint32_t i = 0; i < run->sinks_count && run->trace == NULL && is_good; i++) {
        struct node_instance *node = run->lanes->sinks[i];
        const struct sink_kind *kind = node->node->sink_kind;
        is_good = kind->begin == NULL || kind->begin(&node->sink);
        if (!is_good)
            sink_say(node, "cannot begin");
    }
    return is_good;
}

void sink_say(struct node_instance *node, const char *what)
{
    struct diag_list *diags = node->stage->run->diags;
    struct diag *d = diag_error(diags, sink_error_code(&node->sink), node->node->path_span,
                                "sink `%.*s` %s: %s", STR_ARGS(node->node->name), what, node->sink.error);
    diag_hint(
        diags, d, "%s",
        node->sink.error_code == DIAG_TAKEN_OVER
            ? "only one process may go on with a run: the checkpoint directory was copied, or two machines "
              "share it over a file system without locks; stop one of the processes"
            : "the output written so far stays; correct the cause, then start the job again to resume");
}

void sink_failed(struct node_instance *node)
{
    struct run *run = node->stage->run;
    bool is_fenced = run_is_fenced(run);
    pthread_mutex_lock(&run->diags_mutex);
    if (!node->has_failed && !is_fenced) /* the sink's lane and the coordinator may both find the error */
        sink_say(node, "stopped");
    node->has_failed = true;
    pthread_mutex_unlock(&run->diags_mutex);
    run_fail(run);
}

void sink_tell_published(struct node_instance *node)
{
    uint64_t epoch = barrier_committed(node->stage->run);
    if (epoch == node->published_seen)
        return;
    node->published_seen = epoch;
    if (node->node->sink_kind->published != NULL && !node->node->sink_kind->published(&node->sink, epoch))
        sink_failed(node);
}

void lanes_committed(struct run *run, uint64_t epoch, struct str segment)
{
    for (uint32_t i = 0; i < run->sinks_count; i++) {
        struct node_instance *sink = run->lanes->sinks[i];
        const struct sink_kind *kind = sink->node->sink_kind;
        if (kind->committed != NULL && run_check(run) == 0 && !kind->committed(&sink->sink, epoch, segment))
            sink_failed(sink);
    }
}

bool lanes_finish_sinks(struct run *run)
{
    bool is_good = true;
    for (uint32_t i = 0; i < run->sinks_count; i++) {
        struct node_instance *node = run->lanes->sinks[i];
        const struct sink_kind *kind = node->node->sink_kind;
        bool is_node_good = true;
        uint64_t epoch = barrier_committed(run);
        if (epoch != node->published_seen && kind->published != NULL)
            is_node_good = kind->published(&node->sink, epoch);
        if (is_node_good && (sequencer_is_finished(run) || run->was_finished) && kind->finish != NULL)
            is_node_good = kind->finish(&node->sink);
        if (is_node_good && kind->drain != NULL)
            is_node_good = kind->drain(&node->sink);
        if (!is_node_good && !run_is_fenced(run))
            sink_say(node, "could not be finished");
        is_good &= is_node_good;
    }
    return is_good;
}
