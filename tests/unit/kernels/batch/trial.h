/*
 * Differential tests of batch kernels (kernels/batch.h): every variant in the BATCH rows of kernels.def
 * against the scalar variant, bit for bit. A kernel's cases are one function suite_<kernel> in a file
 * cases_*.c; a missing suite is a link error, and a suite that tries no case fails.
 *
 * A suite calls suite_try for each shape that it tests, with a builder that fills the arguments of one call
 * and makes it. The builder is run several times for a shape, each time with the same random numbers: with
 * the scalar variant, and twice with each variant under test, whose outputs and scratch memory are filled
 * with another pattern each time. The trial that the builder is given allocates the buffers and owns them:
 *
 *   static void build_widen(struct trial *t, const void *arg)
 *   {
 *       const struct widen_shape *shape = arg;
 *       uint16_t *x = trial_input(t, "x", shape->n * sizeof *x, sizeof *x);
 *       ... fill x ...
 *       float *out = trial_output(t, "out", shape->n * sizeof *out, sizeof *out, same_floats);
 *       struct batch_widen a = {.x = PLACE(t, x), .out = PLACE(t, out), .n = shape->n, .format = ...};
 *       TRIAL_CALL(t, widen, &a);
 *   }
 *
 * The case reads and fills the host's copy of a buffer; PLACE gives the address that the kernel gets: memory
 * of the host or of a device, with guard zones on both sides (with ASan: red zones). TRIAL_CALL copies the
 * outputs back to the host's copies and checks that guards and inputs are unchanged; after the builder,
 * outputs are compared with the scalar variant's. Only NaNs may differ in payload and sign, and floats with
 * bounds within these.
 *
 * With the scalar variant, which nothing else checks, a builder should also compare the outputs with a
 * simpler computation (trial_is_scalar, trial_fail).
 */
#ifndef LEAT_TESTS_UNIT_KERNELS_BATCH_TRIAL_H
#define LEAT_TESTS_UNIT_KERNELS_BATCH_TRIAL_H

#include "kernels/gpu.h"

/* The variant whose kernels are called, and the device whose memory they get; api NULL: the host's memory. */
struct target {
    const char *name; /* "avx2", "cuda" ... */
    const struct batch_kernels *kernels;
    const struct gpu_api *api;
    struct gpu *gpu;
    struct gpu_stream *stream;
    bool has_guards;
    /* Resets the model of a GPU (tests/cuda_on_host/testing.h); NULL on a real device and on a CPU. */
    void (*model_begin)(uint64_t seed, uint8_t poison);
};

struct suite; /* one kernel with all its targets */
struct trial_rows;
struct trial; /* one call */

typedef void trial_builder(struct trial *t, const void *shape);

#define BATCH(name, args, tolerance, bytes, flops) void suite_##name(struct suite *suite);
#include "kernels/kernels.def"

/* Tries one shape; `text` (a printf format) names the shape in reports. */
void suite_try(struct suite *suite, trial_builder *build, const void *shape, const char *text, ...)
    __attribute__((format(printf, 4, 5)));

/* Sizes to try, ended by SIZES_END; a shorter list where the suite must be small. */
#define SIZES_END UINT32_MAX
const uint32_t *suite_sizes(const struct suite *suite);
/* 1 M + 1, or 5001 where the suite must be small: to be tried once a kernel. */
uint32_t suite_huge(const struct suite *suite);
/* Whether the variant under test is a GPU's: its contract may demand more of the arguments. */
bool suite_is_device(const struct suite *suite);

/*
 * Buffers of the call; the trial owns them. Their content is zeros for inputs, a poison pattern for others.
 * align: the alignment that the kernel's contract demands, a power of two up to 64; TRIAL_MATRIX for rows and
 * matrices of floats: 16 on a GPU, 4 on a CPU. In one of the two runs with a variant, addresses may be
 * aligned to more; in the other they are aligned to `align` and no more.
 */
enum { TRIAL_MATRIX = 0 };
typedef bool trial_same(const void *x, const void *y, size_t bytes);
trial_same same_bits, same_floats, same_doubles, same_bf16, same_fp16;

void *trial_input(struct trial *t, const char *name, size_t bytes, size_t align);
void *trial_output(struct trial *t, const char *name, size_t bytes, size_t align, trial_same *same);
/* A buffer that the case fills and the kernel changes. */
void *trial_changed(struct trial *t, const char *name, size_t bytes, size_t align, trial_same *same);
void *trial_scratch(struct trial *t, size_t bytes);

/* The kernel's address of the byte `host` in a host's copy; NULL for NULL. */
void *trial_place(struct trial *t, const void *host);
#define PLACE(t, host) ((__typeof__(host))trial_place((t), (host)))

/* Compares only the first `bytes` of an output; call after TRIAL_CALL. */
void trial_valid(struct trial *t, const void *host, size_t bytes);
/*
 * An output of floats that on a GPU may differ by a tolerance of kernels.def: returns a bound for each float,
 * at first 0; the trial owns the array. A float whose bound is not finite may be anything. NULL where bits
 * have to be the same: on a CPU, and on the model of a GPU.
 */
double *trial_bounds(struct trial *t, const void *host);
#define BATCH(name, args, tolerance, bytes, flops)                                                           \
    static inline double tolerance_##name(const struct args *a)                                              \
    {                                                                                                        \
        (void)a;                                                                                             \
        return tolerance;                                                                                    \
    }
#include "kernels/kernels.def"
/* Declares an output to hold rows: each row is compared by its format. */
void trial_is_rows(struct trial *t, const struct trial_rows *rows);

bool trial_is_scalar(const struct trial *t);
void trial_fail(struct trial *t, const char *text, ...) __attribute__((format(printf, 2, 3)));
#define TRIAL_CHECK(t, condition)                                                                            \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            trial_fail(t, "line %d: not so: %s", __LINE__, #condition);                                      \
    } while (0)

const struct batch_kernels *trial_kernels(const struct trial *t);
void *trial_stream(const struct trial *t);
void trial_begin(struct trial *t); /* copies the host's copies to the kernel's memory */
void trial_end(struct trial *t);   /* waits, copies everything back, checks guards and inputs */
#define TRIAL_CALL(t, kernel, args)                                                                          \
    do {                                                                                                     \
        trial_begin(t);                                                                                      \
        trial_kernels(t)->kernel((args), trial_stream(t));                                                   \
        trial_end(t);                                                                                        \
    } while (0)
/* For kernels with scratch memory: the first call sets scratch_bytes, the second runs with as much. */
#define TRIAL_CALL_SCRATCH(t, kernel, args)                                                                  \
    do {                                                                                                     \
        trial_begin(t);                                                                                      \
        (args)->scratch = NULL;                                                                              \
        trial_kernels(t)->kernel((args), trial_stream(t));                                                   \
        (args)->scratch = trial_scratch(t, (args)->scratch_bytes);                                           \
        trial_kernels(t)->kernel((args), trial_stream(t));                                                   \
        trial_end(t);                                                                                        \
    } while (0)

/* Random content (fill.c): the next 64 random bits; a random number below `bound`. */
uint64_t trial_random(struct trial *t);
uint32_t trial_below(struct trial *t, uint32_t bound);

/* PLAIN: in [-2, 2). SPECIAL: one in eight is NaN, infinite, 0, -0, denormal or huge. POSITIVE:
 * in [0.01, 4). */

enum fill { FILL_PLAIN, FILL_SPECIAL, FILL_POSITIVE };
void trial_floats(struct trial *t, float *x, size_t n, enum fill fill);

enum ids {
    IDS_DISTINCT,
    IDS_ONE,    /* all ids are equal */
    IDS_ZIPF,   /* Zipf's law with exponent 1 over n ids */
    IDS_ENDS,   /* 1, UINT64_MAX, 2^63, 2^32 and their neighbours */
    IDS_ABSENT, /* half of them 0, the others from n / 8 ids */
    IDS_NONE,   /* all 0 */
    IDS_KINDS
};
extern const char *const ids_names[IDS_KINDS];
void trial_ids(struct trial *t, uint64_t *ids, size_t n, enum ids kind);

/*
 * Occurrences grouped by dense index, as dedupe leaves them, for n occurrences whose ids are of `kind`. Makes
 * the inputs order[n], starts[n + 1] and count[1] and writes their addresses for the kernel to `segments`
 * (grads, bag and scales are set by the case). Returns the number of distinct ids. host_order, host_starts:
 * get the host's copies; may be NULL.
 *
 * trial_slices: divides the segments by `count` slices; events have any number of places, some slices may have
 * none, or each event is a place of its own; returns the host's copy of the events.
 */
uint32_t trial_segments(struct trial *t, uint32_t n, enum ids kind, struct batch_segments *segments,
                        const uint32_t **host_order, const uint32_t **host_starts);
const uint32_t *trial_slices(struct trial *t, uint32_t count, struct batch_segments *segments);

/*
 * `count` rows of a table, each of d weights in `format` and `state_floats` positive floats of state; the
 * stride is 16 bytes larger than it must be. is_changed: the kernel changes the rows; else they are an input.
 * fill: of the weights. trial_row returns the kernel's address of row u.
 */
struct trial_rows {
    unsigned char *host;
    size_t stride;
    enum row_format format;
    uint32_t d, count;
    size_t state_floats;
};
struct trial_rows trial_rows(struct trial *t, enum row_format format, uint32_t d, size_t state_floats,
                             uint32_t count, enum fill fill, bool is_changed);
void *trial_row(struct trial *t, const struct trial_rows *rows, uint32_t u);

#endif
