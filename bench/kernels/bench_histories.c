/*
 * Histories of users in memory, on one thread, by CPU time:
 *   bench_histories USERS MEAN HISTORY SIDES
 * Appends USERS * MEAN events, in calls of 128: users have rates by an exponential law, so that their counts are
 * geometric; items are by Zipf's law of a million; the events are spread over 90 days. Prints one JSON line: bytes of
 * the tables by user, by the entry kept, and of the process; nanoseconds of an event appended while the users grow and
 * of one more event and one look-up (that reads all entries) afterwards; of a draw; and of one line at a random place of
 * as much memory, prefetched in the same way, which is the limit of a miss.
 */
#include "bench/kernels/units.h"

#include "core/base.h"
#include "core/mem.h"
#include "kernels/num.h"
#include "learners/histories/histories.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CALL = 128, CALLS_AFTER = 8192, LINE = 64, DAYS = 90, ITEMS = 1000000, RATE_MAX = 8 };

struct events {
    uint64_t users, state, keys[CALL];
    uint32_t steps[CALL];
    struct history_entry entries[CALL];
};

static double draw_unit(struct events *e)
{
    return (double)(num_mix(e->state += UINT64_C(0x9e3779b97f4a7c15)) >> 11) * 0x1p-53;
}

/* A user, by its rate, which is exponential, cut at RATE_MAX times the mean. */
static uint64_t draw_user(struct events *e)
{
    for (;;) {
        uint64_t user = (uint64_t)(draw_unit(e) * (double)e->users);
        double rate = -log(((double)(num_mix(user + 1) >> 11) + 0.5) * 0x1p-53);
        if (draw_unit(e) * RATE_MAX < rate)
            return num_mix(user + 1) | 1;
    }
}

static void make_events(struct events *e, double part, uint32_t step, uint32_t sides)
{
    for (size_t i = 0; i < CALL; i++) {
        e->keys[i] = draw_user(e);
        e->steps[i] = step;
        struct history_entry entry = {.item.number = (uint32_t)exp(draw_unit(e) * log(ITEMS))};
        entry.seconds = 1790000000U + (uint32_t)(part * DAYS * 86400);
        for (uint32_t k = 0; k < sides; k++)
            entry.sides[k] = (uint32_t)(draw_unit(e) * 8);
        e->entries[i] = entry;
    }
}

static double resident_mib(void)
{
    unsigned long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu %lu", &all, &resident) != 2)
        resident = 0;
    if (file != NULL)
        fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static volatile uint64_t sink;

/* Seconds of a look-up that reads all entries; *entries: how many it read, in the mean. */
static double find_some(struct histories *h, struct events *e, double *entries)
{
    double sum = 0;
    uint64_t read = 0;
    for (uint32_t call = 0; call < CALLS_AFTER; call++) {
        struct history_view views[CALL];
        struct history_entry entry;
        for (size_t i = 0; i < CALL; i++)
            e->keys[i] = draw_user(e);
        double begin = units_now();
        histories_find(h, e->keys, CALL, 1, views);
        for (size_t i = 0; i < CALL; i++)
            while (history_next(&views[i], &entry))
                sink += entry.item.number, read++;
        sum += units_now() - begin;
    }
    *entries = (double)read / CALLS_AFTER / CALL;
    return sum / CALLS_AFTER / CALL;
}

static double append_some(struct histories *h, struct events *e, uint32_t step, uint32_t sides)
{
    double sum = 0;
    for (uint32_t call = 0; call < CALLS_AFTER; call++) {
        make_events(e, 1 + (double)call / CALLS_AFTER / DAYS, step + call, sides);
        double begin = units_now();
        histories_append(h, e->keys, e->steps, e->entries, CALL, NULL);
        sum += units_now() - begin;
    }
    return sum / CALLS_AFTER / CALL;
}

static double draw_some(const struct histories *h)
{
    enum { STEPS = 200, DRAWS = 512 };
    double begin = units_now();
    for (uint64_t step = 0; step < STEPS; step++) {
        struct histories_draw draw;
        uint64_t key;
        histories_draw_begin(&h, 1, &draw);
        for (uint64_t i = 0; i < DRAWS; i++)
            sink += histories_draw(&draw, 1, step, i, &key) ? key : 0;
    }
    return (units_now() - begin) / STEPS / DRAWS;
}

/* Seconds of one line at a random place of `bytes`, 64 of them prefetched before they are read. */
static double miss(size_t bytes)
{
    enum { TILE = 64, TILES = 100000 };
    size_t lines = bytes / LINE;
    unsigned char *memory = mem_aligned((size_t)2 << 20, (lines * LINE + (2 << 20) - 1) >> 21 << 21);
    memset(memory, 1, lines * LINE);
    double begin = units_now();
    for (uint64_t tile = 0; tile < TILES; tile++) {
        for (uint64_t i = 0; i < TILE; i++)
            prefetch_line(memory + num_mix(tile * TILE + i) % lines * LINE);
        for (uint64_t i = 0; i < TILE; i++)
            sink += memory[num_mix(tile * TILE + i) % lines * LINE];
    }
    double seconds = (units_now() - begin) / TILE / TILES;
    free(memory);
    return seconds;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: bench_histories USERS MEAN HISTORY SIDES\n");
        return 2;
    }
    uint64_t users = strtoull(argv[1], NULL, 10), calls = users * strtoull(argv[2], NULL, 10) / CALL;
    struct histories_options options = {.history = (uint32_t)strtoul(argv[3], NULL, 10),
                                        .sides = (uint32_t)strtoul(argv[4], NULL, 10),
                                        .seed = 1};
    if (users == 0 || calls == 0 || calls > 100000000 || options.history < 1 ||
        options.history > HISTORY_MAX || options.sides > HISTORY_SIDES_MAX) {
        fprintf(stderr, "bench_histories: expected users and mean above 0, history 1..4096, sides 0..4\n");
        return 2;
    }
    struct histories *h = histories_create(&options);
    struct events *e = mem_calloc(1, sizeof(*e));
    e->users = users;
    double grow = 0;
    for (uint64_t call = 0; call < calls; call++) {
        make_events(e, (double)call / (double)calls, 1 + (uint32_t)call, options.sides);
        double begin = units_now();
        histories_append(h, e->keys, e->steps, e->entries, CALL, NULL);
        grow += units_now() - begin;
    }
    struct histories_counts counts = histories_count(h);
    double mib = resident_mib(), entries, find = find_some(h, e, &entries);
    double more = append_some(h, e, 1 + (uint32_t)calls, options.sides), draw = draw_some(h);
    histories_free(h);
    printf("{\"users\": %llu, \"entries\": %llu, \"user_bytes\": %.1f, \"rss_mib\": %.0f, \"grow_ns\": %.1f, "
           "\"append_ns\": %.1f, \"find_ns\": %.1f, \"found_entries\": %.1f, \"draw_ns\": %.0f, "
           "\"miss_ns\": %.1f}\n",
           (unsigned long long)counts.users, (unsigned long long)counts.entries,
           (double)counts.bytes / (double)counts.users, mib, grow / (double)(calls * CALL) * 1e9, more * 1e9,
           find * 1e9, entries, draw * 1e9, miss(counts.bytes) * 1e9);
    free(e);
    return 0;
}
