/*
 * Where a benchmark of batch kernels runs: a CPU variant with memory of the host, or a device of
 * leat_cuda.so. One thread. Whatever goes wrong ends the program with what it was.
 */
#ifndef BENCH_GPU_PLACE_H
#define BENCH_GPU_PLACE_H

#include "kernels/gpu_table.h"

#include <stdio.h>

enum { PLACE_BLOCKS_MAX = 256 };

enum place_size { SIZE_TINY, SIZE_CPU, SIZE_GPU, SIZES };

struct place {
    const char *name; /* of the variant */
    const struct batch_kernels *kernels;
    const struct gpu_api *api; /* NULL: the host */
    struct gpu *gpu;
    struct gpu_stream *stream;
    struct gpu_event *begin, *end;
    void *flush;          /* written between samples, so that each begins with a cold cache */
    enum place_size size; /* SIZE_TINY: calls are made, and nothing is timed */
    void *blocks[PLACE_BLOCKS_MAX];
    unsigned blocks_count;
};

/* false: the CPU does not support it, or there is no device (why is printed as a line). */
bool place_open_cpu(struct place *place, enum kernels_variant variant, bool is_tiny);
bool place_open_device(struct place *place, bool is_tiny);
void place_close(struct place *place);

/* Memory of the place, of zeros, until place_release; with what the host has at `from`; with floats
 * of either sign, or above 0 (rows: an optimizer's sums are). */
void *place_zeros(struct place *place, size_t bytes);
void *place_upload(struct place *place, const void *from, size_t bytes);
float *place_floats(struct place *place, size_t n);
float *place_rows(struct place *place, size_t n);
/* A dedupe by sorting of offsets[tables] ids, with room for its results and for the scratch of either method;
 * ids NULL: zeros. */
struct batch_dedupe place_dedupe(struct place *place, const uint64_t *ids, const uint32_t *offsets,
                                 uint32_t tables);
/* Of any optimizer: small steps. */
extern const struct opt_params place_params;
void place_download(struct place *place, void *to, const void *from, size_t bytes);
void place_release(struct place *place);
void place_wait(struct place *place);
void *place_pinned(struct place *place, size_t bytes); /* of a device; freed by free_pinned */

/* Of the host, until the program ends. */
void *host_room(size_t bytes);

/*
 * Milliseconds of one run, the median of some: by events on a device, by the thread's CPU time on a host.
 * `before`, untimed, comes before each (may be NULL). SIZE_TINY: both are called once, and the answer is NaN.
 */
double place_time_ms(struct place *place, void (*run)(struct place *, void *),
                     void (*before)(struct place *, void *), void *state);
/* Likewise, by the host's clock: from an idle device until `run` has come back and what it queued has ended.
 */
double place_wall_ms(struct place *place, void (*run)(struct place *, void *),
                     void (*before)(struct place *, void *), void *state);

/*
 * One line of results, a JSON object. ms NaN: it says "ms": null, and nothing that is made of it. bytes: what
 * moves at least; items: what is done, in `unit` (may be NULL).
 */
struct line {
    const char *group, *figure, *what, *variant;
    double ms, bytes, items;
    const char *unit;
};
void line_print(const struct line *line);
/* A line that says why there is no figure. */
void line_missing(const char *group, const char *figure, const char *variant, const char *why);

/* Bytes a second that copying reaches here, read and written: the limit beside which figures stand. */
void place_limits(struct place *place);

/* ids: n of them, distinct, or of Zipf's law over a range so large that about half are distinct. Never 0. */
enum ids { IDS_DISTINCT, IDS_ZIPF, IDS_KINDS };
extern const char *const ids_names[IDS_KINDS];
void ids_fill(uint64_t *ids, size_t n, enum ids kind, uint64_t seed);

#endif
