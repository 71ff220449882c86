/*
 * The throughput of a linear model with AdaGrad on one core, one update per event, from decoded columns: the
 * least code that predicts and learns. Prints one JSON line.
 *
 *     limit_linear FILE     FILE is made by bench/kernels/npz_to_columns.py
 *
 * exact: one table of {key, weight, sum} with linear probing, where no two keys share a weight, as in leat;
 * without growth, counts, times, epochs, metrics or output. hashed: 2^22 weights without keys. Slots are
 * prefetched AHEAD events before their use. Results are events per second of CPU time.
 */
#include "core/base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum {
    FIELDS_MAX = 64,
    DENSE_MAX = 15,
    AHEAD = 12,
    RING = 64,
    HASHED_BITS = 22,
    EXACT_BITS = 23,
    LANES = 96
};

struct slot {
    uint64_t key;
    float weight, sum;
};

struct columns {
    uint64_t events, fields, dense;
    uint64_t *ids[FIELDS_MAX];
    float *numbers[DENSE_MAX], *labels;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void *read_column(FILE *file, size_t count, size_t size)
{
    void *column = malloc(count * size);
    if (column == NULL || fread(column, size, count, file) != count) {
        fprintf(stderr, "limit_linear: the file is too short\n");
        exit(1);
    }
    return column;
}

static bool columns_read(struct columns *c, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fread(&c->events, sizeof(uint64_t), 3, file) != 3 || c->fields > FIELDS_MAX ||
        c->dense > DENSE_MAX)
        return false;
    for (uint64_t f = 0; f < c->fields; f++)
        c->ids[f] = read_column(file, c->events, sizeof(uint64_t));
    for (uint64_t d = 0; d < c->dense; d++)
        c->numbers[d] = read_column(file, c->events, sizeof(float));
    c->labels = read_column(file, c->events, sizeof(float));
    fclose(file);
    return true;
}

/* Prefetches the slots where event i's probes begin. Ids are hashes already, different in each field. */
static void ask(const struct columns *c, struct slot *slots, unsigned bits, struct slot **homes, uint64_t i)
{
    for (uint64_t f = 0; f < c->fields; f++) {
        homes[f] = slots + (c->ids[f][i] >> (64 - bits));
        __builtin_prefetch(homes[f], 1);
    }
}

static struct slot *find(struct slot *slots, struct slot *slot, uint64_t key)
{
    while (slot->key != key && slot->key != 0)
        slot = slot == slots + ((size_t)1 << EXACT_BITS) - 1 ? slots : slot + 1;
    slot->key = key;
    return slot;
}

/* One pass over the events. own: weights and AdaGrad sums of the dense columns and the bias. Returns the sum
 * of the logarithmic losses. */
static double pass(const struct columns *c, struct slot *slots, bool is_exact, struct slot own[DENSE_MAX + 1])
{
    static struct slot *homes[RING][FIELDS_MAX];
    unsigned bits = is_exact ? EXACT_BITS : HASHED_BITS;
    size_t used = c->fields + c->dense + 1, whole = (used + 15) / 16 * 16;
    float w[LANES] = {0}, sums[LANES] = {0}, values[LANES] = {0}, likelihood = 1.0F;
    double loss = 0.0;
    for (uint64_t i = 0; i < MIN((uint64_t)AHEAD, c->events); i++)
        ask(c, slots, bits, homes[i % RING], i);
    for (uint64_t i = 0; i < c->events; i++) {
        struct slot **places = homes[i % RING];
        if (i + AHEAD < c->events)
            ask(c, slots, bits, homes[(i + AHEAD) % RING], i + AHEAD);
        for (uint64_t f = 0; f < c->fields; f++) {
            places[f] = is_exact ? find(slots, places[f], c->ids[f][i]) : places[f];
            w[f] = places[f]->weight, sums[f] = places[f]->sum, values[f] = 1.0F;
        }
        for (uint64_t d = 0; d <= c->dense; d++)
            w[c->fields + d] = own[d].weight, sums[c->fields + d] = own[d].sum,
                          values[c->fields + d] = d < c->dense ? c->numbers[d][i] : 1.0F;
        float logit = 0.0F;
        for (size_t l = 0; l < whole; l++)
            logit += w[l] * values[l];
        float p = 1.0F / (1.0F + expf(-logit)), gradient = p - c->labels[i];
        for (size_t l = 0; l < whole; l++) {
            float g = gradient * values[l];
            sums[l] += g * g;
            w[l] -= 0.1F * g / sqrtf(1.0F + sums[l]);
        }
        for (uint64_t f = 0; f < c->fields; f++)
            places[f]->weight = w[f], places[f]->sum = sums[f];
        for (uint64_t d = 0; d <= c->dense; d++)
            own[d].weight = w[c->fields + d], own[d].sum = sums[c->fields + d];
        likelihood *= c->labels[i] > 0.5F ? p : 1.0F - p; /* one logarithm for sixteen events */
        if (i % 16 == 15)
            loss -= log((double)likelihood), likelihood = 1.0F;
    }
    return loss - log((double)likelihood);
}

static double measure(const struct columns *c, bool is_exact, double *loss)
{
    size_t bytes = sizeof(struct slot) << (is_exact ? EXACT_BITS : HASHED_BITS);
    struct slot *slots = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct slot own[DENSE_MAX + 1] = {0};
    leat_assert(slots != MAP_FAILED);
    (void)madvise(slots, bytes, MADV_HUGEPAGE);
    memset(slots, 0, bytes);
    double begin = now();
    *loss = pass(c, slots, is_exact, own) / (double)c->events;
    double seconds = now() - begin;
    munmap(slots, bytes);
    return (double)c->events / seconds;
}

int main(int argc, char **argv)
{
    static struct columns c;
    if (argc != 2 || !columns_read(&c, argv[1])) {
        fprintf(stderr, "usage: limit_linear FILE, made by bench/kernels/npz_to_columns.py\n");
        return 2;
    }
    double exact_loss, hashed_loss, exact = measure(&c, true, &exact_loss),
                                    hashed = measure(&c, false, &hashed_loss);
    printf("{\"exact_per_s\": %.0f, \"exact_logloss\": %.4f, \"hashed_per_s\": %.0f, \"hashed_logloss\": "
           "%.4f}\n",
           exact, exact_loss, hashed, hashed_loss);
    return 0;
}
