/*
 * Encoding by the cache of keys and values (learners/train/kv_cache.h), on one core:
 *   bench_kv_cache [--rows]
 * A line has the network, the number of heads, the history, the number of requests in a call, and whether calls ask
 * for the same users again or for others, of as many as have 128 MiB of keys and values (up to 2,048 users; with the
 * same one or few users these come from caches near the core). Then microseconds a request: of a full pass over the
 * window; of an encoding for which all rows but the last are kept, in fp32 and in bf16; and what share of the full
 * pass that is. Times are CPU seconds of the thread, the best of five rounds. --rows: the same for programs, without
 * the shares.
 */
#include "bench/kernels/units.h"

#include "core/base.h"
#include "core/mem.h"
#include "kernels/attention.h"
#include "learners/networks/networks.h"
#include "learners/train/kv_cache.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { DIM = 64, LAYERS = 2, BATCH_MAX = 64, POOL = 256 << 20, ROUNDS = 5 };
static const double round_s = 0.08; /* least time of a figure's repetitions, a round */

static struct train_device device;
static struct train_memory memory;
static struct net net;
static struct kv_request requests[BATCH_MAX];
static uint32_t seconds[1024];
static float out[BATCH_MAX * DIM];

static void fill_rows(void *argument, size_t request, uint32_t from, uint32_t to, float *rows, size_t stride)
{
    const float *vectors = argument;
    (void)request;
    for (uint32_t r = from; r < to; r++, rows += stride)
        memcpy(rows, vectors + (size_t)r * DIM, DIM * sizeof(*rows));
}

static void begin(bool is_hstu, uint32_t heads, uint32_t history)
{
    static struct sasrec_network sasrec;
    static struct hstu_network hstu;
    struct gpu_error error;
    sasrec = (struct sasrec_network){
        .layers = LAYERS, .heads = heads, .dim = DIM, .hidden = DIM, .is_causal = true};
    hstu = (struct hstu_network){.layers = LAYERS, .heads = heads, .dim = DIM};
    struct net_options o = {.network = is_hstu ? &network_hstu : &network_sasrec,
                            .own = is_hstu ? (const void *)&hstu : &sasrec,
                            .fields = 1,
                            .dim = DIM,
                            .optimizer = OPT_ADAGRAD,
                            .accumulator = 0.1F,
                            .window_max = history,
                            .seed = 7};
    const struct kernels *kernels = kernels_pick(NULL, &(const char *){NULL});
    device = (struct train_device){.kernels = batch_beside(kernels)};
    memory = (struct train_memory){.device = &device};
    net_shape(&net, &o, &device, MAX(history, 1024U), MAX(history, 1024U));
    net_take(&net, &memory);
    if (!train_memory_make(&memory, &error))
        abort();
    net_take(&net, &memory);
    if (!net_start(&net, kernels, &error))
        abort();
}

/* Users n of a call, the first of them `first`, with windows of `length` rows. */
static void ask(size_t n, uint64_t first, uint32_t length)
{
    for (size_t i = 0; i < n; i++)
        requests[i] = (struct kv_request){first + i + 1, 0, length, seconds};
}

/* Least microseconds a request. users: how many there are, n at a time; each has `length` - 1 rows before. */
static double measure(struct kv_cache *cache, float *vectors, size_t n, size_t users, uint32_t length)
{
    double least = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        size_t calls = 0;
        double start = units_now(), now = start;
        for (; now - start < round_s; calls++, now = units_now()) {
            ask(n, calls * n % users, length);
            kv_cache_encode(cache, &net, requests, n, fill_rows, vectors, out);
        }
        least = fmin(least, (now - start) / (double)(calls * n) * 1e6);
    }
    return least;
}

/* Microseconds with one new token, for as many users as the budget holds, up to 2,048, or for n users. */
static double measure_warm(float *vectors, size_t n, uint32_t length, bool is_bf16, bool is_near)
{
    struct kv_cache *cache = kv_cache_new(&(struct kv_cache_options){POOL, is_bf16}, &net);
    size_t users = 0;
    do { /* measured calls encode the last token again, which takes what a new one takes */
        ask(n, users, length);
        kv_cache_encode(cache, &net, requests, n, fill_rows, vectors, out);
        users += n;
    } while (!is_near && users < 2048 && kv_cache_count(cache).bytes < POOL / 2);
    double us = measure(cache, vectors, n, users, length);
    struct kv_cache_counts c = kv_cache_count(cache);
    if (c.evicted > 0 || c.rows_encoded != c.hits + (uint64_t)users * length)
        abort();
    kv_cache_free(cache);
    return us;
}

static void print_case(bool is_hstu, uint32_t heads, uint32_t history, size_t n, bool is_near, bool rows_only)
{
    float *vectors = mem_alloc((size_t)history * DIM * sizeof(*vectors));
    for (size_t i = 0; i < (size_t)history * DIM; i++)
        vectors[i] = (float)(((uint32_t)i * 2654435761U) >> 8) * 0x1p-24F - 0.5F;
    begin(is_hstu, heads, history);
    struct kv_cache *none = kv_cache_new(&(struct kv_cache_options){0, false}, &net);
    double full = measure(none, vectors, n, n, history);
    double fp32 = measure_warm(vectors, n, history, false, is_near);
    double bf16 = measure_warm(vectors, n, history, true, is_near);
    kv_cache_free(none);
    if (rows_only)
        printf("%s %u %u %zu %d %.6f %.6f %.6f\n", net.options.network->name, heads, history, n, is_near,
               full, fp32, bf16);
    else
        printf("  %-6s %u %5u %3zu %-5s %9.1f us %8.2f us 1/%-5.0f bf16 %8.2f us 1/%-5.0f\n",
               net.options.network->name, heads, history, n, is_near ? "same" : "other", full, fp32,
               full / fp32, bf16, full / bf16);
    train_memory_free(&memory);
    free(vectors);
}

int main(int argc, char **argv)
{
    bool rows_only = argc > 1 && strcmp(argv[1], "--rows") == 0;
    for (size_t i = 0; i < ARRAY_COUNT(seconds); i++)
        seconds[i] = (uint32_t)(i * 3600);
    for (int is_hstu = 0; is_hstu < 2; is_hstu++)
        for (uint32_t heads = 1; heads <= 2; heads++)
            for (uint32_t history = 200; history <= 1000; history += 800)
                for (int which = 0; which < 4; which++)
                    print_case(is_hstu, heads, history, which < 2 ? 1 : BATCH_MAX, which % 2 == 0, rows_only);
    return 0;
}
