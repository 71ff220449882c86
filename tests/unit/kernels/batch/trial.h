/*
 * Differential tests of batch kernels (kernels/batch.h): every variant against the scalar one, bit for bit,
 * from the BATCH rows of kernels.def. A kernel's cases are one function suite_<kernel> in a file cases_*.c;
 * one that is missing does not link, and one that tries nothing fails.
 *
 * A suite calls suite_try for each shape that it wants to see, with a builder that fills the arguments of one
 * call and makes it. The builder is run several times for a shape, each time with the same random numbers:
 * with the scalar variant, and twice with each variant under test, whose outputs and scratch memory begin
 * with other rubbish each time. The trial it is given says whose memory is in use, and owns it:
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
 * What the case sees and fills is the host's copy of a buffer; PLACE gives the address that the kernel gets:
 * memory of the host or of a device, with guard zones on both sides (with ASan: red zones). After TRIAL_CALL
 * outputs lie in the host's copies, guards and inputs are checked, and outputs are compared with the scalar
 * variant's: NaNs may differ in payload and sign, nothing else may, but for floats with bounds.
 *
 * With the scalar variant a builder may also hold the outputs against something plainer (trial_is_scalar,
 * trial_fail): nobody else checks that one.
 */
#ifndef TESTS_UNIT_KERNELS_BATCH_TRIAL_H
#define TESTS_UNIT_KERNELS_BATCH_TRIAL_H

#include "kernels/gpu.h"

/* Whose kernels are called, and where their memory lies: the host's if api is NULL. */
struct target {
    const char *name; /* "avx2", "cuda" ... */
    const struct batch_kernels *kernels;
    const struct gpu_api *api;
    struct gpu *gpu;
    struct gpu_stream *stream;
    bool has_guards;
    /* Of a GPU that the host plays (tests/cuda_on_host/testing.h), else NULL. */
    void (*model_begin)(uint64_t seed, uint8_t poison);
};

struct suite; /* one kernel with all targets */
struct trial_rows;
struct trial; /* one call */

typedef void trial_builder(struct trial *t, const void *shape);

#define BATCH(name, args, tolerance, class, bytes, flops) void suite_##name(struct suite *suite);
#include "kernels/kernels.def"

/* Tries one shape; the text says which, in the words of the case. */
void suite_try(struct suite *suite, trial_builder *build, const void *shape, const char *text, ...)
    __attribute__((format(printf, 4, 5)));

/* Sizes that are to be tried, SIZES_END behind the last; fewer where they are to be small. */
#define SIZES_END UINT32_MAX
const uint32_t *suite_sizes(const struct suite *suite);
/* 1 M + 1, or what is affordable here: to be tried once a kernel. */
uint32_t suite_huge(const struct suite *suite);
/* Whether the variant under test is a GPU's, whose contract may ask for more of the arguments. */
bool suite_is_device(const struct suite *suite);

/*
 * Buffers of the call, `name` and the content of outputs are the trial's. align: what the contract asks for,
 * a power of two up to 64; TRIAL_MATRIX for rows and matrices of floats: 16 on a GPU, 4 on a CPU. One of the
 * two runs with a variant gives addresses that are aligned to more, the other such that are not.
 */
enum { TRIAL_MATRIX = 0 };
typedef bool trial_same(const void *x, const void *y, size_t bytes);
trial_same same_bits, same_floats, same_doubles, same_bf16, same_fp16;

void *trial_input(struct trial *t, const char *name, size_t bytes, size_t align);
void *trial_output(struct trial *t, const char *name, size_t bytes, size_t align, trial_same *same);
/* Filled by the case, changed by the kernel. */
void *trial_changed(struct trial *t, const char *name, size_t bytes, size_t align, trial_same *same);
void *trial_scratch(struct trial *t, size_t bytes);

/* The kernel's address of a byte of a host's copy. */
void *trial_place(struct trial *t, const void *host);
#define PLACE(t, host) ((__typeof__(host))trial_place((t), (host)))

/* Only the first `bytes` of an output are compared; to be said after the call. */
void trial_valid(struct trial *t, const void *host, size_t bytes);
/*
 * An output of floats that on a GPU may differ by a tolerance of kernels.def: a bound for each of them, 0 to
 * begin with, the trial's; no bound is read that is not finite, and its float may be anything. NULL where
 * bits have to be the same: on a CPU, and on one that plays a GPU.
 */
double *trial_bounds(struct trial *t, const void *host);
#define BATCH(name, args, tolerance, class, bytes, flops)                                                    \
    static inline double tolerance_##name(const struct args *a)                                              \
    {                                                                                                        \
        (void)a;                                                                                             \
        return tolerance;                                                                                    \
    }
#include "kernels/kernels.def"
/* An output whose content is rows: each is compared by its format. */
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
void trial_begin(struct trial *t); /* all places get what the host's copies hold */
void trial_end(struct trial *t);   /* the work is done, outputs are back, guards and inputs are checked */
#define TRIAL_CALL(t, kernel, args)                                                                          \
    do {                                                                                                     \
        trial_begin(t);                                                                                      \
        trial_kernels(t)->kernel((args), trial_stream(t));                                                   \
        trial_end(t);                                                                                        \
    } while (0)
/* For kernels with scratch memory, of which they get what they asked for. */
#define TRIAL_CALL_SCRATCH(t, kernel, args)                                                                  \
    do {                                                                                                     \
        trial_begin(t);                                                                                      \
        (args)->scratch = NULL;                                                                              \
        trial_kernels(t)->kernel((args), trial_stream(t));                                                   \
        (args)->scratch = trial_scratch(t, (args)->scratch_bytes);                                           \
        trial_kernels(t)->kernel((args), trial_stream(t));                                                   \
        trial_end(t);                                                                                        \
    } while (0)

/* Random content (fill.c). The next 64 bits; one below `bound`. */
uint64_t trial_random(struct trial *t);
uint32_t trial_below(struct trial *t, uint32_t bound);

/* PLAIN: in [-2, 2). SPECIAL: one in eight is NaN, infinite, -0, denormal or huge. POSITIVE: in [0.01, 4). */
enum fill { FILL_PLAIN, FILL_SPECIAL, FILL_POSITIVE };
void trial_floats(struct trial *t, float *x, size_t n, enum fill fill);

enum ids {
    IDS_DISTINCT,
    IDS_ONE,    /* all the same */
    IDS_ZIPF,   /* exponent 1, of n */
    IDS_ENDS,   /* 1, UINT64_MAX and their neighbours */
    IDS_ABSENT, /* half of them 0, the others of n / 8 */
    IDS_NONE,   /* all 0 */
    IDS_KINDS
};
extern const char *const ids_names[IDS_KINDS];
void trial_ids(struct trial *t, uint64_t *ids, size_t n, enum ids kind);

/*
 * Places by number as dedupe leaves them, for n places whose ids are of `kind`: inputs order[n], starts[n +
 * 1] and count[1], whose places in the kernel's memory are written to `segments` (grads, bag, scales: the
 * case's). Returns how many numbers there are; host_* may be NULL.
 */
uint32_t trial_segments(struct trial *t, uint32_t n, enum ids kind, struct batch_segments *segments,
                        const uint32_t **host_order, const uint32_t **host_starts);

/*
 * A table's worth of rows: `count` of d weights in `format` and `state_floats` floats of state (positive), a
 * stride apart that is larger than it must be; `is_changed` by the kernel or an input. Weights of `fill`.
 * trial_row: the kernel's address of row u.
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
