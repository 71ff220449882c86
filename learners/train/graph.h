/*
 * Steps as graphs (gpu.h): on a GPU, queueing the kernels of a step of few events takes longer than running
 * them. Work that comes again with the same arguments is recorded, and queued by one call from then on. On a
 * CPU the work is simply done.
 */
#ifndef LEAT_LEARNERS_TRAIN_GRAPH_H
#define LEAT_LEARNERS_TRAIN_GRAPH_H

#include "learners/train/memory.h"

enum { TRAIN_GRAPHS = 24 };

struct train_graphs {
    struct {
        uint64_t arguments;      /* digest of the arguments that the work depends on; 0: free */
        uint64_t times, last_at; /* number of runs with these arguments; `runs` at the last of them */
        struct gpu_graph *graph; /* NULL: not recorded yet */
    } kept[TRAIN_GRAPHS];
    uint64_t runs, launched; /* calls of train_graph_run on a GPU so far; those that launched a graph */
};

/*
 * Does work(of). `arguments`: a digest, not 0, of all kernels, sizes, addresses and values that the work
 * uses: the same digest must mean the same work. The work must neither wait nor allocate. False: error.
 */
bool train_graph_run(struct train_graphs *graphs, const struct train_device *device, uint64_t arguments,
                     void (*work)(void *of), void *of, struct gpu_error *error);
/* Waits for the stream. */
void train_graphs_free(struct train_graphs *graphs, const struct train_device *device);

#endif
