/*
 * Steps as graphs (gpu.h): on a GPU, queueing the kernels of a step of few events takes longer than they do.
 * Work that comes with the same arguments as before is recorded, and queued by one call from then on. On a
 * CPU work is simply done.
 */
#ifndef LEARNERS_TRAIN_GRAPH_H
#define LEARNERS_TRAIN_GRAPH_H

#include "learners/train/memory.h"

enum { TRAIN_GRAPHS = 24 };

struct train_graphs {
    struct {
        uint64_t arguments; /* digest of what the work depends on; 0: free */
        uint64_t times, last_at;
        struct gpu_graph *graph; /* NULL: it came once or was not recorded yet */
    } kept[TRAIN_GRAPHS];
    uint64_t runs, launched;
};

/*
 * Does work(of), whose kernels, sizes, addresses and values follow from `arguments`, a digest that is not 0:
 * the same digest must mean the same work. It neither waits nor allocates. false: error.
 */
bool train_graph_run(struct train_graphs *graphs, const struct train_device *device, uint64_t arguments,
                     void (*work)(void *of), void *of, struct gpu_error *error);
/* Waits for the stream. */
void train_graphs_free(struct train_graphs *graphs, const struct train_device *device);

#endif
