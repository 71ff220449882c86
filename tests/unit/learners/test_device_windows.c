/*
 * Networks of sequence models on a device (or the host's model of one) beside the same ones on the CPU: forward and
 * backward passes over windows of any length, causal and both ways, a step of several passes, rejected windows, values
 * that are computed again, and the steps of the weights. On the host's model of a device outputs have the CPU's bits as
 * long as the weights have; gradients are summed in another order (learners/train/windows.h). A plain program that
 * prints TAP lines.
 */
#include "sequence_device.h"

/* A sanitizer slows the host's model of a device down by far: it sees small networks, the kinds that do most, and one
 * step; the release build all. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_SMALL = 1 };
#else
enum { IS_SMALL = 0 };
#endif
enum {
    DIM = IS_SMALL ? 16 : 32,
    HEADS = IS_SMALL ? 1 : 2,
    LAYERS = 2,
    WINDOW_MAX = 70,
    STEPS = IS_SMALL ? 1 : 2,
    KINDS = 5
};

static const struct sasrec_network sasrec = {.layers = LAYERS,
                                             .heads = HEADS,
                                             .dim = DIM,
                                             .hidden = 48,
                                             .is_causal = true,
                                             .dropout = 0.2F,
                                             .attention_dropout = 0.1F};
static const struct sasrec_network never_causal = {.layers = 1, .heads = 1, .dim = DIM, .hidden = DIM};
static const struct hstu_network hstu = {
    .layers = LAYERS, .heads = HEADS, .dim = DIM, .dropout = 0.2F, .attention_dropout = 0.1F};

static const struct {
    const char *name;
    const struct network *network;
    const void *own;
    bool recompute, both_ways, is_seen_small;
} kinds[KINDS] = {
    {"sasrec", &network_sasrec, &sasrec, false, false, false},
    {"sasrec, computed again, some passes both ways", &network_sasrec, &sasrec, true, true, true},
    {"sasrec that is not causal", &network_sasrec, &never_causal, false, false, false},
    {"hstu", &network_hstu, &hstu, false, false, false},
    {"hstu, computed again, some passes both ways", &network_hstu, &hstu, true, true, true},
};

static struct net_options options_of(unsigned kind)
{
    return (struct net_options){.network = kinds[kind].network,
                                .own = kinds[kind].own,
                                .fields = 1,
                                .dim = DIM,
                                .optimizer = OPT_ADAGRAD,
                                .params = {.rate = 0.05F, .decay = 1.0F, .step_max = 1.0F},
                                .accumulator = 0.1F,
                                .clip_norm = 5.0F,
                                .window_max = WINDOW_MAX,
                                .recompute = kinds[kind].recompute,
                                .both_ways = kinds[kind].both_ways,
                                .seed = 7};
}

/* The passes of a step: of tokens alone; of any windows, empty ones too, up to the memory's end; of the longest window. */
static const uint32_t ones[] = {1, 1, 1, 1, 1};
static const uint32_t any[] = {0, 5, WINDOW_MAX, 0, 65, 2, 33, 64, 1, 0};
static const uint32_t few[] = {0, 5, 33, 0, 64, 31, 1, 0};
static const uint32_t longest[] = {WINDOW_MAX};
static const struct {
    const uint32_t *lengths;
    uint32_t count, rejected;
} passes[] = {{ones, ARRAY_COUNT(ones), UINT32_MAX},
              {IS_SMALL ? few : any, IS_SMALL ? ARRAY_COUNT(few) : ARRAY_COUNT(any), 5},
              {longest, ARRAY_COUNT(longest), UINT32_MAX}};

static void check(double apart, double most, unsigned kind, const char *what)
{
    char line[160];
    (void)snprintf(line, sizeof(line), "%s: %s (%.1e)", kinds[kind].name, what, apart);
    report(apart <= most, line);
}

static void test_kind(unsigned kind)
{
    static struct side cpu, device;
    static struct side_windows w;
    struct net_options o = options_of(kind);
    double outputs = 0.0, first = 0.0, inputs = 0.0, gradients = 0.0;
    side_begin(&cpu, &o, false);
    side_begin(&device, &o, true);
    for (uint32_t step = 0, window = 0; step < STEPS; step++) {
        for (uint32_t i = 0, event = 0; i < ARRAY_COUNT(passes); event += passes[i++].count) {
            bool is_both_ways = kinds[kind].both_ways && (step + i) % 2;
            side_windows(&w, passes[i].lengths, passes[i].count, window);
            window += passes[i].count;
            side_pass(&cpu, &w, passes[i].rejected, is_both_ways, event);
            side_pass(&device, &w, passes[i].rejected, is_both_ways, event);
            size_t rows = w.offsets[w.count];
            double apart = side_apart(cpu.out, device.out, rows * cpu.net.output->stride);
            outputs = fmax(outputs, apart), first = fmax(first, step == 0 ? apart : 0.0);
            inputs =
                fmax(inputs, side_apart(cpu.in_gradients, device.in_gradients, rows * cpu.net.input->stride));
        }
        gradients = fmax(gradients, side_params_apart(&cpu, &device, false));
        net_update(&cpu.net);
        net_update(&device.net);
    }
    check(first, is_host_model() ? 0.0 : 1e-5, kind, "outputs of the first step");
    check(outputs, 1e-4, kind, "outputs");
    check(inputs, 1e-4, kind, "gradients by the input");
    check(gradients, 1e-4, kind, "gradients by the weights");
    check(side_params_apart(&cpu, &device, true), 1e-4, kind, "weights");
    side_end(&cpu);
    side_end(&device);
}

/* Of empty windows nothing is learned, and no gradient of the step before is left. */
static void test_empty(unsigned kind)
{
    static const uint32_t none[] = {0, 0};
    static struct side device;
    static struct side_windows w;
    struct net_options o = options_of(kind);
    double most = 0.0;
    side_begin(&device, &o, true);
    side_windows(&w, ones, ARRAY_COUNT(ones), 0);
    side_pass(&device, &w, UINT32_MAX, false, 0);
    side_windows(&w, none, ARRAY_COUNT(none), 0);
    side_pass(&device, &w, UINT32_MAX, false, 0);
    for (uint32_t p = 0; p < device.net.params_count; p++) {
        float *floats = side_floats(&device, p, false);
        for (size_t i = 0; i < device.net.params[p].floats; i++)
            most = fmax(most, fabs((double)floats[i]));
        free(floats);
    }
    check(most, 0.0, kind, "the gradients of empty windows are zeros");
    side_end(&device);
}

/* What the device saves is what a CPU loads, and the reverse. */
static void test_saved(unsigned kind)
{
    static struct side cpu, device, back;
    static struct side_windows w;
    struct net_options o = options_of(kind);
    struct gpu_error error;
    side_begin(&cpu, &o, false);
    side_begin(&device, &o, true);
    side_begin(&back, &o, true);
    side_windows(&w, any, ARRAY_COUNT(any), 0);
    side_pass(&device, &w, UINT32_MAX, false, 0);
    net_update(&device.net);
    for (uint32_t p = 0; p < cpu.net.params_count; p++) {
        float *floats = calloc(net_saved_floats(&cpu.net, p), sizeof(*floats));
        must(net_save(&device.net, p, floats, &error) && net_load(&cpu.net, p, floats, &error), &error,
             "to the CPU");
        must(net_save(&cpu.net, p, floats, &error) && net_load(&back.net, p, floats, &error), &error,
             "and back");
        free(floats);
    }
    check(side_params_apart(&cpu, &device, true), 0.0, kind,
          "a CPU has the weights that the device has saved");
    side_pass(&back, &w, UINT32_MAX, false, 0);
    side_pass(&device, &w, UINT32_MAX, false, 0);
    net_update(&back.net);
    net_update(&device.net);
    check(side_params_apart(&back, &device, true), 0.0, kind,
          "a device goes on with them, and repeats its bits");
    side_end(&cpu);
    side_end(&device);
    side_end(&back);
}

int main(void)
{
    if (!device_open())
        return 77;
    for (unsigned kind = 0; kind < KINDS; kind++)
        if (!IS_SMALL || kinds[kind].is_seen_small)
            test_kind(kind);
    for (unsigned kind = 0; kind < KINDS && !IS_SMALL; kind += 3)
        test_empty(kind), test_saved(kind);
    return device_close();
}
