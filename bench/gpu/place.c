#include "place.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SAMPLES = 9,
    CPU_SAMPLES = 5,
    FLUSH_BYTES = 256 << 20,
    TINY_FLUSH_BYTES = 1 << 10,
    PATTERN_FLOATS = 1 << 22
};

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "bench: %s: %s\n", what, why);
    exit(1);
}

void *host_room(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (memory == NULL)
        stop("memory of the host", "there is none left");
    memset(memory, 0, bytes);
    return memory;
}

bool place_open_cpu(struct place *place, enum kernels_variant variant, bool is_tiny)
{
    *place = (struct place){.name = kernels_variant_name(variant),
                            .kernels = batch_variant(variant),
                            .size = is_tiny ? SIZE_TINY : SIZE_CPU};
    return place->kernels != NULL;
}

bool place_open_device(struct place *place, bool is_tiny)
{
    struct gpu_error error = {0};
    *place = (struct place){.name = "cuda", .size = is_tiny ? SIZE_TINY : SIZE_GPU};
    place->api = gpu_open_library(NULL, &error);
    if (place->api != NULL)
        place->gpu = place->api->open(0, &error);
    if (place->gpu == NULL) {
        line_missing("device", "cuda(0)", "cuda", error.text);
        return false;
    }
    place->kernels = place->api->kernels;
    place->stream = place->api->stream(place->gpu, &error);
    place->begin = place->api->event(place->gpu, &error);
    place->end = place->api->event(place->gpu, &error);
    place->flush = place->api->alloc(place->gpu, is_tiny ? TINY_FLUSH_BYTES : FLUSH_BYTES, &error);
    if (place->stream == NULL || place->begin == NULL || place->end == NULL || place->flush == NULL)
        stop("the device", error.text);
    return true;
}

void place_close(struct place *place)
{
    place_release(place);
    if (place->api == NULL)
        return;
    place->api->free(place->gpu, place->flush);
    place->api->event_free(place->gpu, place->begin);
    place->api->event_free(place->gpu, place->end);
    place->api->stream_free(place->gpu, place->stream);
    place->api->close(place->gpu);
}

/* --- Memory --- */

static void *room(struct place *place, size_t bytes)
{
    struct gpu_error error = {0};
    if (place->blocks_count == PLACE_BLOCKS_MAX)
        stop("PLACE_BLOCKS_MAX", "more blocks than that are asked for");
    void *memory = place->api != NULL ? place->api->alloc(place->gpu, bytes, &error) : host_room(bytes);
    if (memory == NULL)
        stop("memory of the device", error.text);
    place->blocks[place->blocks_count++] = memory;
    return memory;
}

static void copy(struct place *place, void *to, const void *from, size_t bytes)
{
    if (place->api == NULL) {
        memcpy(to, from, bytes);
        return;
    }
    place->api->copy(place->stream, to, from, bytes);
    place_wait(place);
}

void *place_zeros(struct place *place, size_t bytes)
{
    void *memory = room(place, bytes);
    if (place->api != NULL)
        place->api->fill(place->stream, memory, 0, bytes);
    return memory;
}

void *place_upload(struct place *place, const void *from, size_t bytes)
{
    void *memory = room(place, bytes);
    copy(place, memory, from, bytes);
    return memory;
}

/* n floats, uniform in [least, least + 1): a repeated pattern. */
static float *pattern_from(struct place *place, size_t n, float least)
{
    float *pattern = host_room(PATTERN_FLOATS * sizeof(*pattern));
    for (size_t i = 0; i < PATTERN_FLOATS; i++)
        pattern[i] = (float)(num_mix(i) >> 40) * 0x1p-24F + least;
    float *memory = room(place, n * sizeof(*memory));
    for (size_t i = 0; i < n; i += PATTERN_FLOATS)
        copy(place, memory + i, pattern, (n - i < PATTERN_FLOATS ? n - i : PATTERN_FLOATS) * sizeof(*memory));
    free(pattern);
    return memory;
}

struct batch_dedupe place_dedupe(struct place *place, const uint64_t *ids, const uint32_t *offsets,
                                 uint32_t tables)
{
    uint32_t n = offsets[tables];
    struct batch_dedupe a = {.ids = ids != NULL ? place_upload(place, ids, n * sizeof(*ids))
                                                : place_zeros(place, n * sizeof(*ids)),
                             .tables = place_upload(place, offsets, (tables + 1) * sizeof(*offsets)),
                             .tables_count = tables,
                             .n = n,
                             .method = DEDUPE_SORT,
                             .count = place_zeros(place, sizeof(uint32_t)),
                             .indices = place_zeros(place, n * sizeof(uint32_t)),
                             .unique_ids = place_zeros(place, n * sizeof(uint64_t)),
                             .unique_tables = place_zeros(place, n * sizeof(uint32_t)),
                             .order = place_zeros(place, n * sizeof(uint32_t)),
                             .starts = place_zeros(place, (n + 1) * sizeof(uint32_t))};
    size_t least = 0;
    for (int method = 0; method < DEDUPE_METHODS; method++) {
        a.method = (enum dedupe_method)method;
        place->kernels->dedupe(&a, place->stream);
        least = a.scratch_bytes > least ? a.scratch_bytes : least;
    }
    a.method = DEDUPE_SORT;
    a.scratch_bytes = least;
    a.scratch = place_zeros(place, least);
    return a;
}

const struct opt_params place_params = {.rate = 1e-6F,
                                        .epsilon = 1e-3F,
                                        .decay = 1.0F,
                                        .beta1 = 0.9F,
                                        .beta2 = 0.99F,
                                        .correction1 = 1.0F,
                                        .correction2 = 1.0F,
                                        .step_max = 1.0F};

float *place_floats(struct place *place, size_t n)
{
    return pattern_from(place, n, -0.5F);
}

float *place_rows(struct place *place, size_t n)
{
    return pattern_from(place, n, 0.5F);
}

void place_download(struct place *place, void *to, const void *from, size_t bytes)
{
    copy(place, to, from, bytes);
}

void place_release(struct place *place)
{
    if (place->api != NULL)
        place_wait(place);
    while (place->blocks_count > 0) {
        void *memory = place->blocks[--place->blocks_count];
        if (place->api != NULL)
            place->api->free(place->gpu, memory);
        else
            free(memory);
    }
}

void *place_pinned(struct place *place, size_t bytes)
{
    struct gpu_error error = {0};
    void *memory = place->api->alloc_pinned(place->gpu, bytes, &error);
    if (memory == NULL)
        stop("pinned memory", error.text);
    return memory;
}

void place_wait(struct place *place)
{
    struct gpu_error error = {0};
    if (place->api != NULL && !place->api->wait(place->stream, &error))
        stop("the device", error.text);
}

/* --- Time --- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static double sample_ms(struct place *place, void (*run)(struct place *, void *), void *state)
{
    struct gpu_error error = {0};
    if (place->api == NULL) {
        double begin = cpu_ms();
        run(place, state);
        return cpu_ms() - begin;
    }
    const struct gpu_api *api = place->api;
    api->fill(place->stream, place->flush, 1, place->size == SIZE_TINY ? TINY_FLUSH_BYTES : FLUSH_BYTES);
    api->record(place->begin, place->stream);
    run(place, state);
    api->record(place->end, place->stream);
    if (!api->wait_for(place->end, &error))
        stop("the device", error.text);
    return (double)api->elapsed_ms(place->begin, place->end);
}

static double wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static double wall_sample_ms(struct place *place, void (*run)(struct place *, void *), void *state)
{
    place_wait(place);
    double begin = wall_ms();
    run(place, state);
    place_wait(place);
    return wall_ms() - begin;
}

static double median_ms(struct place *place,
                        double (*sample)(struct place *, void (*)(struct place *, void *), void *),
                        void (*run)(struct place *, void *), void (*before)(struct place *, void *),
                        void *state)
{
    double ms[SAMPLES];
    unsigned samples = place->api != NULL ? SAMPLES : CPU_SAMPLES;
    for (unsigned s = 0; s <= samples; s++) { /* the first sample is a warm-up */
        if (before != NULL)
            before(place, state);
        double one = sample(place, run, state);
        if (place->size == SIZE_TINY)
            return NAN;
        if (s > 0)
            ms[s - 1] = one;
    }
    qsort(ms, samples, sizeof(*ms), by_size);
    return ms[samples / 2];
}

double place_time_ms(struct place *place, void (*run)(struct place *, void *),
                     void (*before)(struct place *, void *), void *state)
{
    return median_ms(place, sample_ms, run, before, state);
}

double place_wall_ms(struct place *place, void (*run)(struct place *, void *),
                     void (*before)(struct place *, void *), void *state)
{
    return median_ms(place, wall_sample_ms, run, before, state);
}

/* --- Lines --- */

static void put_text(const char *name, const char *text)
{
    printf("\"%s\": \"", name);
    for (; *text != '\0'; text++)
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text >= ' ')
            putchar(*text);
    printf("\"");
}

void line_print(const struct line *l)
{
    printf("{"), put_text("group", l->group), printf(", "), put_text("figure", l->figure), printf(", ");
    put_text("what", l->what), printf(", "), put_text("variant", l->variant);
    if (isnan(l->ms)) {
        printf(", \"ms\": null}\n");
    } else {
        printf(", \"ms\": %.5g", l->ms);
        if (l->bytes > 0)
            printf(", \"gbs\": %.5g", l->bytes / l->ms * 1e-6);
        if (l->unit != NULL)
            printf(", \"rate\": %.5g, \"unit\": \"G %s/s\"", l->items / l->ms * 1e-6, l->unit);
        printf("}\n");
    }
    fflush(stdout);
}

void line_missing(const char *group, const char *figure, const char *variant, const char *why)
{
    printf("{"), put_text("group", group), printf(", "), put_text("figure", figure), printf(", ");
    put_text("variant", variant), printf(", "), put_text("missing", why), printf("}\n");
    fflush(stdout);
}

/* --- Limits --- */

struct copying {
    void *to;
    const void *from;
    size_t bytes;
};

static void run_copy(struct place *place, void *state)
{
    const struct copying *c = state;
    if (place->api != NULL)
        place->api->copy(place->stream, c->to, c->from, c->bytes);
    else
        memcpy(c->to, c->from, c->bytes);
}

static void limit(struct place *place, const char *figure, void *to, const void *from, size_t bytes,
                  double moved)
{
    struct copying c = {to, from, bytes};
    line_print(&(struct line){.group = "limits",
                              .figure = figure,
                              .what = figure,
                              .variant = place->name,
                              .ms = place_time_ms(place, run_copy, NULL, &c),
                              .bytes = moved});
}

void place_limits(struct place *place)
{
    static const size_t sizes[SIZES] = {1 << 12, (size_t)256 << 20, (size_t)2 << 30};
    size_t bytes = sizes[place->size];
    void *a = place_zeros(place, bytes), *b = place_zeros(place, bytes);
    limit(place, "copy", a, b, bytes, 2.0 * (double)bytes);
    if (place->api != NULL) {
        size_t piece = bytes / 4;
        void *host = place_pinned(place, piece);
        limit(place, "to pinned memory", host, a, piece, (double)piece);
        limit(place, "from pinned memory", a, host, piece, (double)piece);
        place_wait(place);
        place->api->free_pinned(place->gpu, host);
    }
    place_release(place);
}

/* --- Ids --- */

const char *const ids_names[IDS_KINDS] = {"all distinct", "Zipf, half distinct"};

/* Zipf's law of exponent 1, by the inverse of the distribution of 1 / x on [1, range]; of 105,000 draws with
 * range = 150 n half are distinct. */
void ids_fill(uint64_t *ids, size_t n, enum ids kind, uint64_t seed)
{
    const double logarithm = log(150.0 * (double)n);
    for (size_t i = 0; i < n; i++) {
        double share = (double)(num_mix(seed ^ num_mix(i)) >> 11) * 0x1p-53;
        uint64_t rank = kind == IDS_DISTINCT ? i : (uint64_t)exp(share * logarithm);
        ids[i] = num_mix(seed + rank);
        ids[i] += ids[i] == 0;
    }
}
