#include "learners/train/graph.h"

/* Work is recorded when it comes for the third time: work that changes in each step (Adam's
 * corrections, lists of any length) never comes that often, and the first run may still allocate (plans
 * of matrix products). */
enum { TIMES_TO_RECORD = 3 };

/* The digest's slot, else the slot that was used longest ago. */
static uint32_t find(struct train_graphs *g, uint64_t arguments)
{
    uint32_t oldest = 0;
    for (uint32_t i = 0; i < TRAIN_GRAPHS; i++) {
        if (g->kept[i].arguments == arguments)
            return i;
        if (g->kept[i].last_at < g->kept[oldest].last_at)
            oldest = i;
    }
    return oldest;
}

static bool clear(struct train_graphs *g, const struct train_device *device, uint32_t at, uint64_t arguments,
                  struct gpu_error *error)
{
    bool is_good = true;
    if (g->kept[at].graph) { /* the graph may still be running */
        is_good = train_wait(device, error);
        device->api->graph_free(device->gpu, g->kept[at].graph);
    }
    g->kept[at].graph = NULL;
    g->kept[at].arguments = arguments;
    g->kept[at].times = 0;
    return is_good;
}

bool train_graph_run(struct train_graphs *g, const struct train_device *device, uint64_t arguments,
                     void (*work)(void *of), void *of, struct gpu_error *error)
{
    if (device->api == NULL) {
        work(of);
        return true;
    }
    uint32_t at = find(g, arguments);
    if (g->kept[at].arguments != arguments && !clear(g, device, at, arguments, error))
        return false;
    g->kept[at].last_at = ++g->runs;
    g->kept[at].times++;
    if (g->kept[at].graph == NULL && g->kept[at].times >= TIMES_TO_RECORD) {
        if (!device->api->graph_begin(device->stream, error))
            return false;
        work(of);
        g->kept[at].graph = device->api->graph_end(device->stream, error);
        if (g->kept[at].graph == NULL)
            return false;
    }
    if (g->kept[at].graph == NULL) {
        work(of);
        return true;
    }
    device->api->graph_launch(device->stream, g->kept[at].graph);
    g->launched++;
    return true;
}

void train_graphs_free(struct train_graphs *g, const struct train_device *device)
{
    struct gpu_error error;
    for (uint32_t i = 0; i < TRAIN_GRAPHS; i++)
        (void)clear(g, device, i, 0, &error);
}
