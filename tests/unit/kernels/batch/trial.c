#include "trial_internal.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* TSan looks for races alone and is slow: only every third case runs on the model of a GPU (the seed chooses
 * which third), and each once. */
#if defined(__SANITIZE_THREAD__)
enum { ONE_CASE_OF = 3, PASSES = 1 };
#else
enum { ONE_CASE_OF = 1, PASSES = 2 };
#endif

/* ASan has its own red zones, which also detect reads. */
#if defined(__SANITIZE_ADDRESS__)
enum { GUARD = 0 };
#else
enum { GUARD = 64 };
#endif
enum { GUARD_BYTE = 0xc3, ALIGN_MAX = 256, FAILURES_SHOWN = 20 };

/* The suite in progress: ASan calls __asan_on_error before its report, which then names the case. */
static const struct suite *suite_now;
void __asan_on_error(void);
void __asan_on_error(void)
{
    if (suite_now != NULL)
        printf("# %s, case %u (%s):\n", suite_now->kernel, suite_now->cases, suite_now->text);
    fflush(stdout);
}

static void stop(const char *what, const char *why)
{
    printf("Bail out! %s: %s\n", what, why);
    exit(1);
}

/* Memory of a target: of its device, or of the host. */
static unsigned char *target_alloc(const struct target *target, size_t bytes)
{
    void *memory = NULL;
    struct gpu_error error = {0};
    bytes = bytes ? bytes : 1;
    if (target->api != NULL)
        memory = target->api->alloc(target->gpu, bytes, &error);
    else if (posix_memalign(&memory, ALIGN_MAX, bytes) != 0)
        memory = NULL;
    if (!memory)
        stop("no memory for a buffer", target->api ? error.text : "of the host");
    return memory;
}

static void target_free(const struct target *target, void *memory)
{
    if (target->api)
        target->api->free(target->gpu, memory);
    else
        free(memory);
}

static void target_copy(const struct target *target, void *to, const void *from, size_t bytes)
{
    if (target->api)
        target->api->copy(target->stream, to, from, bytes);
    else
        memcpy(to, from, bytes);
}

static void target_wait(const struct target *target, const struct suite *suite)
{
    struct gpu_error error = {0};
    if (target->api && !target->api->wait(target->stream, &error)) {
        printf("# %s, %s, case %u: %s\n", suite->kernel, target->name, suite->cases, suite->text);
        stop("the device has failed", error.text);
    }
}

static struct buffer *add_buffer(struct trial *t, const char *name, enum role role, size_t bytes,
                                 size_t align, trial_same *same)
{
    if (t->buffers == BUFFERS_MAX)
        stop(name, "too many buffers; BUFFERS_MAX says how many there may be");
    struct buffer *b = &t->buffer[t->buffers++];
    if (align == TRIAL_MATRIX)
        align = t->target->api ? 16 : 4;
    size_t guard = t->target->has_guards ? (size_t)GUARD : 0;
    size_t offset = (guard + align - 1) / align * align + (t->is_shifted ? align % ALIGN_MAX : 0);
    *b = (struct buffer){.name = name,
                         .role = role,
                         .bytes = bytes,
                         .valid = bytes,
                         .offset = offset,
                         .total = offset + bytes + guard,
                         .same = same};
    b->block = malloc(b->total + 1);
    if (!b->block)
        stop(name, "no memory of the host");
    b->place_block = target_alloc(t->target, b->total);
    memset(b->block, GUARD_BYTE, b->total);
    memset(b->block + offset, role == ROLE_INPUT ? 0 : t->poison, bytes);
    return b;
}

void *trial_input(struct trial *t, const char *name, size_t bytes, size_t align)
{
    struct buffer *b = add_buffer(t, name, ROLE_INPUT, bytes, align, same_bits);
    return b->block + b->offset;
}

void *trial_output(struct trial *t, const char *name, size_t bytes, size_t align, trial_same *same)
{
    struct buffer *b = add_buffer(t, name, ROLE_OUTPUT, bytes, align, same);
    return b->block + b->offset;
}

void *trial_changed(struct trial *t, const char *name, size_t bytes, size_t align, trial_same *same)
{
    struct buffer *b = add_buffer(t, name, ROLE_CHANGED, bytes, align, same);
    return b->block + b->offset;
}

void *trial_scratch(struct trial *t, size_t bytes)
{
    struct buffer *b = add_buffer(t, "scratch", ROLE_SCRATCH, bytes, ALIGN_MAX, same_bits);
    target_copy(t->target, b->place_block, b->block, b->total);
    return b->place_block + b->offset;
}

static struct buffer *find_buffer(struct trial *t, const void *host)
{
    const unsigned char *at = host;
    for (unsigned i = 0; i < t->buffers; i++) {
        struct buffer *b = &t->buffer[i];
        if (at >= b->block + b->offset && at <= b->block + b->offset + b->bytes)
            return b;
    }
    stop(t->suite->kernel, "a case asks for the place of something that is in no buffer");
    return NULL;
}

void *trial_place(struct trial *t, const void *host)
{
    if (host == NULL)
        return NULL;
    struct buffer *b = find_buffer(t, host);
    return b->place_block + ((const unsigned char *)host - b->block);
}

void trial_valid(struct trial *t, const void *host, size_t bytes)
{
    struct buffer *b = find_buffer(t, host);
    b->valid = bytes < b->bytes ? bytes : b->bytes;
}

double *trial_bounds(struct trial *t, const void *host)
{
    struct buffer *b = find_buffer(t, host);
    if (t->target->api != NULL && !t->target->model_begin)
        b->bounds = calloc(b->bytes / sizeof(float) + 1, sizeof(*b->bounds));
    return b->bounds;
}

void trial_is_rows(struct trial *t, const struct trial_rows *rows)
{
    find_buffer(t, rows->host)->rows = *rows;
}

bool trial_is_scalar(const struct trial *t)
{
    return t->target == t->suite->scalar;
}

const struct batch_kernels *trial_kernels(const struct trial *t)
{
    return t->target->kernels;
}

void *trial_stream(const struct trial *t)
{
    return t->target->stream;
}

void trial_fail(struct trial *t, const char *text, ...)
{
    t->has_failed = true;
    static unsigned shown;
    if (shown++ >= FAILURES_SHOWN)
        return;
    printf("# %s, %s, case %u (%s): ", t->suite->kernel, t->target->name, t->suite->cases, t->suite->text);
    va_list list;
    va_start(list, text);
    vprintf(text, list);
    va_end(list);
    printf("\n");
}

void trial_begin(struct trial *t)
{
    for (unsigned i = 0; i < t->buffers; i++)
        target_copy(t->target, t->buffer[i].place_block, t->buffer[i].block, t->buffer[i].total);
}

/* Fails the trial at the first byte in [from, to) that differs from the host's copy. */
static void check_unchanged(struct trial *t, const struct buffer *b, const unsigned char *after, size_t from,
                            size_t to, const char *what)
{
    for (size_t i = from; i < to; i++) {
        if (after[i] != b->block[i]) {
            trial_fail(t, "%s of %s: byte %td of %zu was written", what, b->name, (ptrdiff_t)(i - b->offset),
                       b->bytes);
            return;
        }
    }
}

void trial_end(struct trial *t)
{
    target_wait(t->target, t->suite);
    for (unsigned i = 0; i < t->buffers; i++) {
        struct buffer *b = &t->buffer[i];
        unsigned char *after = malloc(b->total + 1);
        if (after == NULL)
            stop(b->name, "no memory of the host");
        target_copy(t->target, after, b->place_block, b->total);
        target_wait(t->target, t->suite);
        check_unchanged(t, b, after, 0, b->offset, "guard before");
        check_unchanged(t, b, after, b->offset + b->bytes, b->total, "guard behind");
        if (b->role == ROLE_INPUT)
            check_unchanged(t, b, after, b->offset, b->offset + b->bytes, "content");
        memcpy(b->block, after, b->total);
        free(after);
    }
}

bool same_bits(const void *x, const void *y, size_t bytes)
{
    return memcmp(x, y, bytes) == 0;
}

/* Compares numbers of `size` bytes; any two NaNs are equal. infinity: the bits of +infinity (a NaN is above,
 * without its sign). */
static inline bool same_numbers(const void *x, const void *y, size_t bytes, size_t size, uint64_t infinity)
{
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a number's bytes are the low ones of a word");
    uint64_t sign = 1ULL << (8 * size - 1);
    for (size_t i = 0; i < bytes; i += size) {
        uint64_t a = 0, b = 0;
        memcpy(&a, (const char *)x + i, size);
        memcpy(&b, (const char *)y + i, size);
        if (a != b && ((a & ~sign) <= infinity || (b & ~sign) <= infinity))
            return false;
    }
    return true;
}

bool same_floats(const void *x, const void *y, size_t bytes)
{
    return same_numbers(x, y, bytes, sizeof(float), 0x7f800000U);
}

bool same_doubles(const void *x, const void *y, size_t bytes)
{
    return same_numbers(x, y, bytes, sizeof(double), 0x7ff0000000000000U);
}

bool same_bf16(const void *x, const void *y, size_t bytes)
{
    return same_numbers(x, y, bytes, sizeof(uint16_t), 0x7f80);
}

bool same_fp16(const void *x, const void *y, size_t bytes)
{
    return same_numbers(x, y, bytes, sizeof(uint16_t), 0x7c00);
}

static bool same_row(const struct trial_rows *rows, const unsigned char *x, const unsigned char *y)
{
    size_t weights = row_weight_bytes(rows->format, rows->d), floats = rows->state_floats * sizeof(float);
    size_t end = weights + floats;
    if (!same_floats(x + weights, y + weights, floats) || !same_bits(x + end, y + end, rows->stride - end))
        return false;
    switch (rows->format) {
    case ROW_FP32: return same_floats(x, y, weights);
    case ROW_BF16: return same_bf16(x, y, weights);
    case ROW_FP16: return same_fp16(x, y, weights);
    case ROW_INT8:
        return same_floats(x, y, sizeof(float)) &&
               same_bits(x + sizeof(float), y + sizeof(float), weights - sizeof(float));
    case ROW_FORMATS: break;
    }
    return false;
}

/* Whether each float differs from the scalar variant's by no more than its bound. */
static bool is_within(const double *bounds, const unsigned char *x, const unsigned char *y, size_t bytes)
{
    float a, b;
    for (size_t i = 0; i < bytes / sizeof(a); i++) {
        memcpy(&a, x + i * sizeof(a), sizeof(a));
        memcpy(&b, y + i * sizeof(b), sizeof(b));
        bool is_near = fabs((double)a - (double)b) <= bounds[i] || !isfinite(bounds[i]);
        if (!is_near && !same_floats(&a, &b, sizeof(a)))
            return false;
    }
    return true;
}

/* Returns where two contents first differ, in steps of 8 bytes (rows: of a row), or `valid` if nowhere. */
static size_t first_difference(const struct buffer *b, const unsigned char *x, const unsigned char *y)
{
    if (b->rows.count > 0) {
        for (size_t u = 0; u < b->rows.count; u++) {
            if (!same_row(&b->rows, x + u * b->rows.stride, y + u * b->rows.stride))
                return u * b->rows.stride;
        }
        return b->valid;
    }
    if (b->bounds != NULL ? is_within(b->bounds, x, y, b->valid) : b->same(x, y, b->valid))
        return b->valid;
    size_t at = 0;
    while (at + 8 < b->valid &&
           (b->bounds != NULL ? is_within(b->bounds + at / sizeof(float), x + at, y + at, 8)
                              : b->same(x + at, y + at, 8)))
        at += 8;
    return at;
}

static void compare(const struct trial *truth, struct trial *t)
{
    for (unsigned i = 0; i < t->buffers && i < truth->buffers; i++) {
        struct buffer *b = &t->buffer[i];
        const struct buffer *a = &truth->buffer[i];
        if (b->role != ROLE_OUTPUT && b->role != ROLE_CHANGED)
            continue;
        if (a->valid != b->valid) {
            trial_fail(t, "%s has %zu bytes, scalar %zu", b->name, b->valid, a->valid);
            continue;
        }
        const unsigned char *x = a->block + a->offset, *y = b->block + b->offset;
        size_t at = first_difference(b, x, y);
        if (at == b->valid)
            continue;
        uint64_t want = 0, got = 0;
        memcpy(&want, x + at, b->valid - at < 8 ? b->valid - at : 8);
        memcpy(&got, y + at, b->valid - at < 8 ? b->valid - at : 8);
        trial_fail(t, "%s differs at byte %zu of %zu: %016llx, scalar %016llx", b->name, at, b->valid,
                   (unsigned long long)got, (unsigned long long)want);
    }
}

static void trial_free(struct trial *t)
{
    for (unsigned i = 0; i < t->buffers; i++) {
        free(t->buffer[i].block);
        free(t->buffer[i].bounds);
        target_free(t->target, t->buffer[i].place_block);
    }
    free(t);
}

static struct trial *trial_run(struct suite *suite, const struct target *target, trial_builder *build,
                               const void *shape, int pass)
{
    struct trial *t = calloc(1, sizeof(*t));
    if (t == NULL)
        stop(suite->kernel, "no memory of the host");
    t->suite = suite;
    t->target = target;
    t->random = num_mix(suite->seed ^ num_mix(suite->cases + 1)) | 1;
    t->poison = pass == 0 ? 0xa5 : 0x5a;
    t->is_shifted = pass != 0;
    if (target->model_begin)
        target->model_begin(t->random + (uint64_t)pass, t->poison);
    build(t, shape);
    return t;
}

/* Tries one shape with one target, PASSES times. Returns whether a check failed. */
static bool try_target(struct suite *suite, const struct target *target, const struct trial *truth,
                       trial_builder *build, const void *shape)
{
    bool has_failed = truth->has_failed;
    for (int pass = 0; pass < PASSES; pass++) {
        struct trial *t = trial_run(suite, target, build, shape, pass);
        compare(truth, t);
        has_failed |= t->has_failed;
        trial_free(t);
    }
    return has_failed;
}

void suite_try(struct suite *suite, trial_builder *build, const void *shape, const char *text, ...)
{
    char line[200];
    va_list list;
    va_start(list, text);
    vsnprintf(line, sizeof(line), text, list);
    va_end(list);
    suite->text = line;
    suite_now = suite;
    bool is_chosen = !suite->targets->model_begin || (suite->cases + suite->seed) % ONE_CASE_OF == 0;
    if (suite->only < 0 ? is_chosen : suite->only == (int)suite->cases) {
        struct trial *truth = trial_run(suite, suite->scalar, build, shape, 0);
        for (unsigned i = 0; i < suite->targets_count; i++)
            suite->failures[i] += try_target(suite, &suite->targets[i], truth, build, shape);
        trial_free(truth);
    }
    suite->cases++;
    suite->text = "";
    suite_now = NULL;
}

const uint32_t *suite_sizes(const struct suite *suite)
{
    static const uint32_t all[] = {0, 1, 2, 3, 15, 31, 33, 127, 129, 255, 1000, 4097, 20011, SIZES_END};
    static const uint32_t few[] = {0, 1, 3, 33, 129, 600, SIZES_END};
    return suite->is_small ? few : all;
}

uint32_t suite_huge(const struct suite *suite)
{
    return suite->is_small ? 5001 : (1 << 20) + 1;
}

bool suite_is_device(const struct suite *suite)
{
    return suite->targets->api != NULL;
}
