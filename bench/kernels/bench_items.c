/*
 * Searches of the exact index of items, on one thread, by CPU time:
 *   bench_items CATALOGUE TOP
 * CATALOGUE is made by bench/peers/faiss/flat.py: four 32-bit numbers (items, dims, queries, 0), the floats of
 * all items, the floats of all queries. Writes the numbers of each query's best K items to TOP, as 32-bit
 * numbers, and prints one JSON line: microseconds of a search for one query, and for 64 queries, by query; of
 * reading as many bytes as a scan does (the limit); of a rank by exact scores. Medians.
 */
#include "bench/kernels/units.h"

#include "learners/items/index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { K = 100, TURNS = 21, TURN_QUERIES = 64 };

struct catalogue {
    uint32_t items, dims, queries, unused;
    float *rows, *asked;
};

static void stop(const char *what, const char *path)
{
    fprintf(stderr, "bench_items: %s: %s\n", path, what);
    exit(1);
}

static void *room(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL)
        stop("no memory", "catalogue");
    return memory;
}

static struct catalogue read_catalogue(const char *path)
{
    struct catalogue c;
    uint32_t head[4];
    FILE *file = fopen(path, "rb");
    if (file == NULL || fread(head, sizeof(head), 1, file) != 1)
        stop("cannot be read", path);
    if (head[0] == 0 || head[0] > 10000000 || head[1] == 0 || head[1] > INT8_DIMS_MAX ||
        head[2] < TURN_QUERIES || head[2] > 100000)
        stop("not a catalogue: expected 1..10000000 items, 1..256 dims, 64..100000 queries", path);
    c = (struct catalogue){.items = head[0], .dims = head[1], .queries = head[2]};
    size_t rows = (size_t)c.items * c.dims, asked = (size_t)c.queries * c.dims;
    c.rows = room(rows * sizeof(float));
    c.asked = room(asked * sizeof(float));
    if (fread(c.rows, sizeof(float), rows, file) != rows ||
        fread(c.asked, sizeof(float), asked, file) != asked)
        stop("is cut off", path);
    fclose(file);
    return c;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *turns)
{
    qsort(turns, TURNS, sizeof(*turns), rising);
    return turns[TURNS / 2] * 1e6;
}

static volatile uint64_t sink;

/* Seconds to bring n 64-bit words from memory once, as searches do it, again and again: one word of each cache
 * line is read. */
static double read_once(const uint64_t *words, size_t n)
{
    enum { LINE = 8, LINES = 4, TIMES = 8 };
    double begin = units_now();
    for (int time = 0; time < TIMES; time++) {
        uint64_t sums[LINES] = {0};
        for (size_t i = 0; i + LINE * LINES <= n; i += LINE * LINES)
            for (size_t k = 0; k < LINES; k++)
                sums[k] += words[i + k * LINE];
        for (size_t k = 0; k < LINES; k++)
            sink += sums[k];
    }
    return (units_now() - begin) / TIMES;
}

/* Seconds of a search by query, `block` queries in a call, over TURN_QUERIES queries. */
static double search_once(const struct items_index *index, struct items_search *search,
                          const struct catalogue *c, size_t first, size_t block)
{
    static struct items_scored top[TURN_QUERIES * K];
    double begin = units_now();
    for (size_t q = 0; q < TURN_QUERIES; q += block)
        if (items_index_top(index, search, c->asked + (first + q) * c->dims, block, K, top) == SIZE_MAX)
            stop("a query is not finite", "catalogue");
    return (units_now() - begin) / TURN_QUERIES;
}

/* Seconds a query of a call with `count` of them. */
static double rank_once(const struct items_index *index, struct items_search *search,
                        const struct catalogue *c, size_t first, size_t count)
{
    struct items_ranked ranked[ITEMS_QUERIES_MAX];
    for (size_t i = 0; i < count; i++)
        ranked[i] = (struct items_ranked){.query = c->asked + (first + i) * c->dims, .number = (uint32_t)i};
    double begin = units_now();
    items_index_ranks(index, search, ranked, count);
    double seconds = units_now() - begin;
    for (size_t i = 0; i < count; i++) {
        if (!ranked[i].has_rank)
            stop("an item has no rank", "catalogue");
        sink += (uint64_t)ranked[i].rank;
    }
    return seconds / (double)count;
}

static void write_top(const struct items_index *index, struct items_search *search, const struct catalogue *c,
                      const char *path)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        stop("cannot be written", path);
    for (size_t q = 0; q < c->queries; q++) {
        struct items_scored top[K];
        if (items_index_top(index, search, c->asked + q * c->dims, 1, K, top) != K)
            stop("has fewer items than are asked for", "catalogue");
        for (size_t i = 0; i < K; i++)
            fwrite(&top[i].number, sizeof(top[i].number), 1, file);
    }
    if (fclose(file) != 0)
        stop("cannot be written", path);
}

int main(int argc, char **argv)
{
    const char *reason;
    const struct kernels *kernels = kernels_pick_env(&reason);
    if (argc != 3 || kernels == NULL)
        stop(kernels == NULL ? reason : "usage: bench_items CATALOGUE TOP", "arguments");
    struct catalogue c = read_catalogue(argv[1]);
    struct items_index_options options = {.kernels = kernels, .dims = c.dims, .numbers_max = c.items};
    struct items_index *index = items_index_create(&options);
    struct items_search *search = items_search_create();
    double begin = units_now();
    for (uint32_t i = 0; i < c.items; i++)
        if (!items_index_put(index, i, c.rows + (size_t)i * c.dims))
            stop("an item is not finite", argv[1]);
    double put = (units_now() - begin) / c.items;
    write_top(index, search, &c, argv[2]);
    double one[TURNS], block[TURNS], reads[TURNS], ranks[TURNS], rank_blocks[TURNS];
    size_t words = (size_t)c.items * (c.dims + sizeof(float)) / 8;
    uint64_t *memory = room(words * 8);
    memset(memory, 1, words * 8);
    for (size_t t = 0; t < TURNS; t++) {
        size_t first = t * TURN_QUERIES % (c.queries - TURN_QUERIES + 1);
        one[t] = search_once(index, search, &c, first, 1);
        block[t] = search_once(index, search, &c, first, TURN_QUERIES);
        reads[t] = read_once(memory, words);
        ranks[t] = rank_once(index, search, &c, t % c.queries, 1);
        rank_blocks[t] = rank_once(index, search, &c, first, TURN_QUERIES);
    }
    printf(
        "{\"variant\": \"%s\", \"one_us\": %.1f, \"block_us\": %.1f, \"limit_us\": %.1f, \"rank_us\": %.1f, "
        "\"rank_block_us\": %.1f, \"put_us\": %.3f}\n",
        kernels->name, median(one), median(block), median(reads), median(ranks), median(rank_blocks),
        put * 1e6);
    items_search_free(search);
    items_index_free(index);
    free(memory);
    free(c.rows);
    free(c.asked);
    return 0;
}
