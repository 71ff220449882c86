/*
 * Models of users' next items (learners/sequential) whose network is on a device (or the host's model of one), beside the
 * same ones on the CPU: what they ask of the network, what they learn in tens of steps, windows of one event and of a full
 * history, passes that are full, and weights that move from one to the other. On the host's model of a device the
 * queries of the first step have the CPU's bits; later ones differ by rounding, as gradients are summed in another order.
 * A plain program that prints TAP lines.
 */
#include "open_device.h"

#include "core/base.h"
#include "core/buffer.h"
#include "kernels/num.h"
#include "learners/networks/networks.h"
#include "learners/sequential/internal.h"
#include "learners/stored/stored.h"

#include <math.h>
#include <stdlib.h>

/* A sanitizer slows the host's model of a device down by far: it sees few steps, and no copies of the models. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_SMALL = 1, STEPS = 2, STEPS_FEW = 2 };
#else
enum { IS_SMALL = 0, STEPS = 50, STEPS_FEW = 8 };
#endif
enum { DIM = 16, USERS = 9, ITEMS = 30, VALUES = 4, CALL = 40 };
static const double APART_MAX = 1e-4;

static const struct sasrec_network sasrec = {.layers = 2,
                                             .heads = 1,
                                             .dim = DIM,
                                             .hidden = DIM,
                                             .is_causal = true,
                                             .dropout = 0.2F,
                                             .attention_dropout = 0.1F};
static const struct hstu_network hstu = {
    .layers = 2, .heads = 1, .dim = DIM, .dropout = 0.2F, .attention_dropout = 0.1F};

/* full: as many tokens go through the network together as two full histories have. is_long: many steps, in which passes
 * have several chunks; else there are copies of the models, too. */
static const struct trial {
    const char *name;
    bool is_hstu, has_masked, recompute, full, is_long;
    uint32_t history, batch, rehearse;
} trials[] = {{"sasrec, hidden items", false, true, false, false, true, 12, 8, 1},
              {"hstu, hidden items, computed again", true, true, true, false, true, 12, 8, 1},
              {"sasrec, full passes", false, false, false, true, false, 8, 6, 2},
              {"hstu, windows of one event", true, false, false, false, false, 1, 6, 0}};

static struct train_device device;

static struct optimizer_options adam(void)
{
    return (struct optimizer_options){.kind = OPT_ADAM,
                                      .params = {.rate = 0.002F,
                                                 .epsilon = 1e-3F,
                                                 .decay = 1.0F,
                                                 .beta1 = 0.9F,
                                                 .beta2 = 0.99F,
                                                 .step_max = 1.0F}};
}

static struct sequential *model_of(const struct trial *t, bool is_on_device)
{
    struct sequential_options o = {.kernels = kernels_pick(NULL, &(const char *){NULL}),
                                   .device = is_on_device ? &device : NULL,
                                   .network = t->is_hstu ? &network_hstu : &network_sasrec,
                                   .network_own = t->is_hstu ? (const void *)&hstu : (const void *)&sasrec,
                                   .dim = DIM,
                                   .history = t->history,
                                   .sides = 1,
                                   .contexts = 1,
                                   .batch = t->batch,
                                   .rehearse = t->rehearse,
                                   .recompute = t->recompute,
                                   .masked_share = t->has_masked ? 0.3 : 0.0,
                                   .masked_weight = t->has_masked ? 0.5 : 0.0,
                                   .clip_norm = 1.0F,
                                   .init = 0.3F,
                                   .rows = adam(),
                                   .dense = adam(),
                                   .loss = losses_find(STR("sampled_softmax")),
                                   .losses = {.temperature = 1.0, .negatives = 6, .correct = true},
                                   .items_max = 1 << 20,
                                   .shards = 1,
                                   .seed = 11};
    struct sequential *s = sequential_new(&o);
    must(sequential_error(s) == NULL, sequential_error(s), "sequential_new");
    if (t->full)
        s->pass_rows = 2 * t->history;
    return s;
}

static struct items_value value_of(uint64_t space, uint64_t number)
{
    return (struct items_value){.key = num_mix(space * 1000 + number + 1), .integer = (int64_t)number};
}

static struct sequential_event event_of(uint64_t number)
{
    uint64_t draw = num_mix(number * 7919 + 3);
    return (struct sequential_event){.user = num_mix(1 + draw % USERS),
                                     .item = value_of(1, (draw >> 20) % (1 + (draw >> 40) % ITEMS)),
                                     .sides = {value_of(2, (draw >> 8) % VALUES)},
                                     .contexts = {value_of(3, (draw >> 12) % VALUES)},
                                     .time_us = (int64_t)(1000 + number * 10) * US_PER_SECOND,
                                     .identity = num_mix(number + 77),
                                     .teaches = true};
}

static double apart(const float *a, const float *b, size_t n)
{
    double most = 0.0;
    for (size_t i = 0; i < n; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        most = difference <= most ? most : isnan(difference) ? HUGE_VAL : difference;
    }
    return most;
}

/* Gives both models the events from .. to - 1, in the same calls. Returns how far their queries are apart. */
static double give(struct sequential *a, struct sequential *b, uint64_t from, uint64_t to)
{
    static struct sequential_event events[CALL];
    static struct sequential_seen of_a[CALL], of_b[CALL];
    uint8_t wants[CALL];
    double most = 0.0;
    memset(wants, 1, sizeof(wants));
    while (from < to) {
        uint32_t n = (uint32_t)MIN(to - from, (uint64_t)CALL);
        for (uint32_t i = 0; i < n; i++)
            events[i] = event_of(from + i);
        n = sequential_piece(a, events, n);
        sequential_read(a, events, n, wants, of_a);
        sequential_read(b, events, n, wants, of_b);
        for (uint32_t i = 0; i < n; i++) {
            must((of_a[i].query == NULL) == (of_b[i].query == NULL), NULL, "one has a query alone");
            if (of_a[i].query != NULL)
                most = fmax(most, apart(of_a[i].query, of_b[i].query, DIM));
        }
        sequential_take(a);
        sequential_take(b);
        from += n;
    }
    must(sequential_error(a) == NULL, sequential_error(a), "learning");
    must(sequential_error(b) == NULL, sequential_error(b), "learning");
    return most;
}

/* The saved weights, with the optimizer's state. */
static struct byte_buffer weights_of(struct sequential *s)
{
    struct stored_part parts[STORED_PARTS_MAX];
    struct byte_buffer bytes = {0};
    (void)sequential_parts(s, parts);
    parts[0].save(parts[0].of, 0, &bytes);
    return bytes;
}

static void load_weights(struct sequential *s, const struct byte_buffer *bytes)
{
    struct stored_part parts[STORED_PARTS_MAX];
    (void)sequential_parts(s, parts);
    must(parts[0].load(parts[0].of, bytes->data, bytes->length) == NULL, NULL, "loading weights");
    must(sequential_error(s) == NULL, sequential_error(s), "loading weights");
}

static double bytes_apart(const struct byte_buffer *x, const struct byte_buffer *y)
{
    must(x->length == y->length, NULL, "other weights");
    return apart((const float *)(const void *)x->data, (const float *)(const void *)y->data,
                 x->length / sizeof(float));
}

static double weights_apart(struct sequential *a, struct sequential *b)
{
    struct byte_buffer x = weights_of(a), y = weights_of(b);
    double most = bytes_apart(&x, &y);
    buffer_free(&x), buffer_free(&y);
    return most;
}

static double items_apart(const struct sequential *a, const struct sequential *b)
{
    double most = 0.0;
    must(catalogue_used(a->items) == catalogue_used(b->items), NULL, "other items");
    for (uint32_t i = 0; i < catalogue_used(a->items); i++)
        most = fmax(most, apart(catalogue_rows(a->items)[i], catalogue_rows(b->items)[i], DIM));
    return most;
}

static void check(double found, double most, const struct trial *t, const char *what)
{
    char line[160];
    (void)snprintf(line, sizeof(line), "%s: %s (%.1e)", t->name, what, found);
    report(found <= most, line);
}

static uint64_t events_of(const struct trial *t, uint64_t steps)
{
    return t->batch * steps + t->batch / 2 + USERS;
}

/* The device beside the CPU. */
static void test_learns(const struct trial *t)
{
    struct sequential *cpu = model_of(t, false), *on_device = model_of(t, true);
    struct byte_buffer begun = weights_of(on_device);
    uint64_t steps = t->is_long ? STEPS : STEPS_FEW;
    double first = give(cpu, on_device, 0, t->batch);
    double later = give(cpu, on_device, t->batch, events_of(t, steps));
    struct sequential_counts counts = sequential_counts(cpu);
    must(counts.steps >= steps && counts.targets == sequential_counts(on_device).targets, NULL,
         "other steps");
    check(first, is_host_model() ? 0.0 : APART_MAX, t, "queries of the first step");
    check(later, APART_MAX, t, "queries");
    check(weights_apart(cpu, on_device), APART_MAX, t, "weights and their optimizer's state");
    check(items_apart(cpu, on_device), APART_MAX, t, "rows of items");
    struct byte_buffer weights = weights_of(on_device);
    must(bytes_apart(&begun, &weights) > 1e-3, NULL, "the weights have not moved");
    load_weights(cpu, &weights);
    check(weights_apart(cpu, on_device), 0.0, t, "a CPU has the weights that the device has saved");
    buffer_free(&begun), buffer_free(&weights);
    sequential_free(cpu), sequential_free(on_device);
}

/* The device beside itself: it repeats its bits, and goes on with weights that a CPU has saved. */
static void test_repeats(const struct trial *t)
{
    struct sequential *a = model_of(t, true), *b = model_of(t, true), *cpu = model_of(t, false);
    uint64_t events = events_of(t, STEPS_FEW);
    double queries = give(a, b, 0, events);
    check(fmax(queries, fmax(weights_apart(a, b), items_apart(a, b))), 0.0, t, "a replay has the same bits");
    struct byte_buffer down = weights_of(a), up;
    load_weights(cpu, &down);
    up = weights_of(cpu);
    load_weights(b, &up);
    check(fmax(give(a, b, events, events + 3 * t->batch), weights_apart(a, b)), 0.0, t,
          "it goes on with its weights by way of a CPU as if nothing had happened");
    buffer_free(&down), buffer_free(&up);
    sequential_free(a), sequential_free(b), sequential_free(cpu);
}

/* A row that is too large makes outputs that are not finite: the window is rejected on both, and nothing else is. */
static void test_rejects(const struct trial *t)
{
    struct sequential *cpu = model_of(t, false), *on_device = model_of(t, true), *both[] = {cpu, on_device};
    (void)give(cpu, on_device, 0, (uint64_t)3 * t->batch);
    for (int i = 0; i < 2; i++)
        catalogue_rows(both[i]->items)[0][0] = 3e38F;
    (void)give(cpu, on_device, (uint64_t)3 * t->batch, (uint64_t)6 * t->batch);
    uint64_t rejected = sequential_counts(cpu).rejected;
    must(rejected > 0, NULL, "nothing was rejected");
    check(fabs((double)rejected - (double)sequential_counts(on_device).rejected), 0.0, t,
          "the same windows are rejected");
    check(weights_apart(cpu, on_device), APART_MAX, t, "and the weights learn from the others");
    sequential_free(cpu), sequential_free(on_device);
}

int main(void)
{
    if (!device_open())
        return 77;
    device = (struct train_device){.kernels = api->kernels, .api = api, .gpu = gpu, .stream = stream};
    for (size_t i = 0; i < ARRAY_COUNT(trials); i++) {
        if (IS_SMALL && i % 2 == 0) /* what takes hstu's way is enough */
            continue;
        test_learns(&trials[i]);
        if (!trials[i].is_long && !IS_SMALL)
            test_repeats(&trials[i]);
    }
    test_rejects(&trials[2]);
    if (!IS_SMALL)
        test_rejects(&trials[1]);
    return device_close();
}
