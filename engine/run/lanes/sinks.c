/* Begins and finishes sinks, tells them of checkpoints, and reports their errors. */
#include "run/lanes/internal.h"

#include "core/order_log.h"
#include "core/os.h"
#include "run/base/barrier.h"
#include "state/checkpoint.h"

#include <stdlib.h>

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

void lanes_stored(struct run *run, uint64_t epoch)
{
    for (uint32_t i = 0; i < run->sinks_count; i++) {
        struct node_instance *sink = run->lanes->sinks[i];
        if (sink->node->sink_kind->stored != NULL)
            sink->node->sink_kind->stored(&sink->sink, epoch);
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

void sink_each_segment(void *engine, uint64_t since, void (*take)(void *argument, struct str segment),
                       void *argument)
{
    struct run *run = engine;
    struct arena arena = {0};
    struct diag_list said; /* a damaged segment is said where the run itself needs it */
    struct run_id id;
    const char **paths;
    uint32_t count;
    uint64_t oldest;
    diag_list_init(&said, &arena);
    checkpoint_order_paths(run->dir, since, &arena, &paths, &count, &oldest, &id, &said);
    if (since == 0 && oldest != UINT64_MAX)
        checkpoint_order_paths(run->dir, oldest, &arena, &paths, &count, &oldest, &id, &said);
    for (uint32_t i = 0; i < count; i++) {
        char *text = NULL;
        size_t bytes = 0;
        struct order_head head;
        bool is_good = os_read_file(paths[i], ORDER_SEGMENT_MAX, &text, &bytes) == 0 &&
                       order_head_read((struct str){text, bytes}, &head) == NULL;
        if (is_good && head.next <= sequencer_first(run))
            take(argument, (struct str){text, bytes});
        free(text);
    }
    arena_free(&arena);
}
