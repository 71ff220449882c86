/*
 * Where a benchmark of batch kernels runs: a CPU variant with host memory, or a device of leat_cuda.so. One
 * thread. Every error ends the program with its text.
 */
#ifndef LEAT_BENCH_GPU_PLACE_H
#define LEAT_BENCH_GPU_PLACE_H

#include "kernels/gpu_table.h"

#include <stdio.h>

enum { PLACE_BLOCKS_MAX = 256 };

enum place_size { SIZE_TINY, SIZE_CPU, SIZE_GPU, SIZES };

struct place {
    const char *name; /* of the variant */
    const struct batch_kernels *kernels;
    const struct gpu_api *api; /* NULL: a CPU variant */
    struct gpu *gpu;
    struct gpu_stream *stream;
    struct gpu_event *begin, *end;
    void *flush;          /* written between samples, so that each begins with a cold cache */
    enum place_size size; /* SIZE_TINY: calls are made, but nothing is timed */
    void *blocks[PLACE_BLOCKS_MAX];
    unsigned blocks_count;
};

/* false: the CPU does not support the variant, or there is no device (the reason is printed as a line). */
bool place_open_cpu(struct place *place, enum kernels_variant variant, bool is_tiny);
bool place_open_device(struct place *place, bool is_tiny);
void place_close(struct place *place);

/* Memory of the place, valid until place_release: zeros; a copy of host memory `from`; floats of either sign;
 * floats above 0 (as an optimizer's sums must be). */
void *place_zeros(struct place *place, size_t bytes);
void *place_upload(struct place *place, const void *from, size_t bytes);
float *place_floats(struct place *place, size_t n);
float *place_rows(struct place *place, size_t n);
/* A dedupe by sorting of offsets[tables] ids, with memory for its results and scratch for either method; ids
 * NULL: zeros. */
struct batch_dedupe place_dedupe(struct place *place, const uint64_t *ids, const uint32_t *offsets,
                                 uint32_t tables);
/* For any optimizer: small steps. */
extern const struct opt_params place_params;
void place_download(struct place *place, void *to, const void *from, size_t bytes);
void place_release(struct place *place);
void place_wait(struct place *place);
void *place_pinned(struct place *place, size_t bytes); /* device place only; freed by gpu_api.free_pinned */

/* Zeroed host memory, valid until the program ends or free(). */
void *host_room(size_t bytes);

/*
 * Milliseconds of one run, the median of several: by events on a device, by the thread's CPU time on a host.
 * `before`, untimed, is called before each run (may be NULL). SIZE_TINY: both are called once, and the result
 * is NaN.
 */
double place_time_ms(struct place *place, void (*run)(struct place *, void *),
                     void (*before)(struct place *, void *), void *state);
/* The same by the host's clock: from an idle device until `run` has returned and its queued work is done. */
double place_wall_ms(struct place *place, void (*run)(struct place *, void *),
                     void (*before)(struct place *, void *), void *state);

/*
 * One line of results, a JSON object. ms NaN: the line has "ms": null, and no values computed from it. bytes:
 * bytes that have to move at the least; items: the amount of work, in `unit` (may be NULL).
 */
struct line {
    const char *group, *figure, *what, *variant;
    double ms, bytes, items;
    const char *unit;
};
void line_print(const struct line *line);
/* A line with the reason why there is no figure. */
void line_missing(const char *group, const char *figure, const char *variant, const char *why);

/* Prints the bytes a second of copies here, read and written: the limit that figures are compared with. */
void place_limits(struct place *place);

/* n ids: distinct, or by Zipf's law over a range so large that about half are distinct. Never 0. */
enum ids { IDS_DISTINCT, IDS_ZIPF, IDS_KINDS };
extern const char *const ids_names[IDS_KINDS];
void ids_fill(uint64_t *ids, size_t n, enum ids kind, uint64_t seed);

#endif
