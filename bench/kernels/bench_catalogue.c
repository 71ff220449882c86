/*
 * The items of a learner in memory, on one thread, by CPU time:
 *   bench_catalogue ITEMS DIM
 * Adds ITEMS items with rows of DIM floats and AdaGrad's state, then prints one JSON line: bytes by item;
 * nanoseconds of an occurrence of a new item, and of a known one (items uniform, and by Zipf's law);
 * nanoseconds of one line at a random place of as much memory, at most MISS_BYTES_MAX, each read before the
 * next one is asked for, which is the limit of a miss; milliseconds of putting CHANGED changed rows, and all
 * rows, into the index; of a look at all items when none has expired, and when half of them has; of the list
 * of all items after a removal. Medians of TURNS, but for the half that expires, which goes once.
 */
#include "bench/kernels/units.h"

#include "core/base.h"
#include "core/mem.h"
#include "kernels/num.h"
#include "learners/items/catalogue.h"
#include "learners/tables/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    TURNS = 9,
    OCCURRENCES = 1000000,
    CHANGED = 100000,
    LINE = 64,
    START_S = 1790000000,
    PRIME = 7919, /* changed rows are so many numbers apart, modulo all */
    MISS_BYTES_MAX = 512 << 20,
};
static const int64_t EXPIRE_S = 64 * 3600; /* points are an hour apart */

struct bench {
    struct catalogue *c;
    uint32_t items, step;
    uint64_t random;
    int64_t hours; /* of the watermark */
};

static volatile uint64_t sink;

static double draw_unit(struct bench *b)
{
    return (double)(num_mix(b->random += UINT64_C(0x9e3779b97f4a7c15)) >> 11) * 0x1p-53;
}

static uint64_t key_of(uint32_t item)
{
    return num_mix(item + 1) | 1;
}

static void occur(struct bench *b, uint32_t item, uint32_t seconds)
{
    struct items_value value = {.key = key_of(item), .integer = item};
    struct items_ref ref;
    if (catalogue_add(b->c, &value, seconds, b->step, &ref) > ITEMS_NEW) {
        fprintf(stderr, "bench_catalogue: an item was refused\n");
        exit(1);
    }
    sink += ref.number;
}

/* --- The figures, in seconds --- */

/* An occurrence of a known item. */
static double known(struct bench *b, bool is_zipf)
{
    static uint32_t items[OCCURRENCES];
    for (size_t i = 0; i < OCCURRENCES; i++) {
        double u = draw_unit(b), at = is_zipf ? exp(u * log(b->items)) - 1 : u * b->items;
        /* places of Zipf's law are spread over the numbers */
        items[i] = is_zipf ? (uint32_t)(num_mix((uint64_t)at) % b->items) : (uint32_t)at;
    }
    b->step++;
    double begin = units_now();
    for (size_t i = 0; i < OCCURRENCES; i++)
        occur(b, items[i], START_S + b->items);
    return (units_now() - begin) / OCCURRENCES;
}

static double known_uniform(struct bench *b)
{
    return known(b, false);
}

static double known_zipf(struct bench *b)
{
    return known(b, true);
}

/* A line at a random place; the next place depends on the one before. */
static double miss(struct bench *b)
{
    size_t lines = MIN(catalogue_bytes(b->c), (size_t)MISS_BYTES_MAX) / LINE, at = 0, huge = (size_t)2 << 20;
    unsigned char *memory = mem_aligned(huge, (lines * LINE + huge - 1) / huge * huge);
    memset(memory, 1, lines * LINE);
    double begin = units_now();
    for (uint64_t i = 0; i < OCCURRENCES; i++)
        at = num_mix(i + memory[at * LINE]) % lines;
    double seconds = (units_now() - begin) / OCCURRENCES;
    sink += at;
    free(memory);
    return seconds;
}

static double refresh_some(struct bench *b)
{
    catalogue_refresh(b->c);
    for (uint32_t i = 0; i < MIN((uint32_t)CHANGED, b->items); i++)
        catalogue_change(b->c, (uint32_t)((uint64_t)i * PRIME % b->items));
    double begin = units_now();
    catalogue_refresh(b->c);
    return units_now() - begin;
}

static double refresh_all(struct bench *b)
{
    catalogue_change_all(b->c);
    double begin = units_now();
    catalogue_refresh(b->c);
    return units_now() - begin;
}

static double pass_point(struct bench *b)
{
    double begin = units_now();
    b->hours++;
    catalogue_set_watermark(b->c, b->hours * US_PER_HOUR, TABLE_STEP_NONE);
    return units_now() - begin;
}

static double list_all(struct bench *b)
{
    uint32_t count, item = (uint32_t)(draw_unit(b) * b->items);
    (void)catalogue_remove(b->c, key_of(item));
    double begin = units_now();
    sink += catalogue_live(b->c, &count)[0];
    double seconds = units_now() - begin;
    occur(b, item, START_S + b->items);
    return seconds;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(struct bench *b, double (*figure)(struct bench *b))
{
    double turns[TURNS];
    for (size_t i = 0; i < TURNS; i++)
        turns[i] = figure(b);
    qsort(turns, TURNS, sizeof(*turns), rising);
    return turns[TURNS / 2];
}

static struct catalogue *create(uint32_t items, uint32_t dim, const struct kernels *kernels)
{
    struct catalogue_options options = {
        .kernels = kernels,
        .dim = dim,
        .optimizer = {.kind = OPT_ADAGRAD, .params = {.rate = 0.1F}, .accumulator = 0.1F},
        .init = 0.1F,
        .numbers_max = items,
        .expire_after_us = EXPIRE_S * US_PER_SECOND,
        .seed = 1};
    return catalogue_create(&options);
}

/* Seconds of the point at which half of the items expires: those of even numbers occur only now. */
static double expire_half(struct bench *b)
{
    b->hours = START_S / 3600 + 1;
    catalogue_set_watermark(b->c, b->hours * US_PER_HOUR, TABLE_STEP_NONE);
    for (uint32_t i = 0; i < b->items; i += 2)
        occur(b, i, START_S + (uint32_t)EXPIRE_S);
    b->hours += EXPIRE_S / 3600;
    return pass_point(b);
}

int main(int argc, char **argv)
{
    const char *reason;
    const struct kernels *kernels = kernels_pick_env(&reason);
    unsigned long items = argc == 3 ? strtoul(argv[1], NULL, 10) : 0;
    unsigned long dim = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    if (kernels == NULL || items == 0 || items > 10000000 || dim == 0 || dim % 4 != 0 ||
        dim > INT8_DIMS_MAX) {
        fprintf(stderr, "bench_catalogue: %s\n",
                kernels == NULL ? reason : "expected ITEMS 1..10000000, DIM a multiple of 4 up to 256");
        return 2;
    }
    struct bench b = {.items = (uint32_t)items, .step = 1, .hours = START_S / 3600 - EXPIRE_S / 3600};
    b.c = create(b.items, (uint32_t)dim, kernels);
    double begin = units_now();
    for (uint32_t i = 0; i < b.items; i++)
        occur(&b, i, START_S);
    double new = (units_now() - begin) / b.items;
    double uniform = median(&b, known_uniform), zipf = median(&b, known_zipf), line = median(&b, miss);
    double some = median(&b, refresh_some), all = median(&b, refresh_all), list = median(&b, list_all);
    double bytes = (double)catalogue_bytes(b.c) / b.items;
    catalogue_set_watermark(b.c, b.hours * US_PER_HOUR, TABLE_STEP_NONE);
    double none = median(&b, pass_point);
    catalogue_free(b.c);
    b.c = create(b.items, (uint32_t)dim, kernels);
    for (uint32_t i = 0; i < b.items; i++)
        occur(&b, i, START_S);
    catalogue_refresh(b.c);
    double half = expire_half(&b);
    uint32_t left;
    (void)catalogue_live(b.c, &left);
    printf("{\"variant\": \"%s\", \"items\": %u, \"dim\": %lu, \"item_bytes\": %.1f, \"new_ns\": %.1f, "
           "\"known_ns\": %.1f, \"known_zipf_ns\": %.1f, \"miss_ns\": %.1f, \"refresh_ms\": %.2f, "
           "\"refresh_all_ms\": %.2f, \"sweep_none_ms\": %.2f, \"sweep_half_ms\": %.2f, \"left\": %u, "
           "\"list_ms\": %.2f}\n",
           kernels->name, b.items, dim, bytes, new * 1e9, uniform * 1e9, zipf * 1e9, line * 1e9, some * 1e3,
           all * 1e3, none * 1e3, half * 1e3, left, list * 1e3);
    catalogue_free(b.c);
    return 0;
}
