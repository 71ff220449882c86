/*
 * Networks that compute the values of their blocks again (learners/train/segments.c) beside the same ones that keep
 * them: equal bits of outputs, gradients and weights, whatever the number of layers and threads, with dropout, with
 * rejected windows and with events instead of windows; and the memory and time that it takes. (Whether the gradients
 * are right: test_sequence_layers.c; whole models: test_sequential_team.c.)
 */
#include "sequence_rig.h"
#include "team_helper.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

/* ThreadSanitizer looks at what has two threads, and nothing else. */
#ifdef __SANITIZE_THREAD__
enum { HAS_THREADS_ALONE = true };
#else
enum { HAS_THREADS_ALONE = false };
#endif

enum { DIM = 32, WINDOW_MAX = 600, WINDOWS = 60, LONG = 20, STEPS = 2, LAYERS_MANY = 8, ROWS = 2048 };

static struct sasrec_network sasrec = {
    .heads = 2, .dim = DIM, .hidden = 48, .is_causal = true, .dropout = 0.2F, .attention_dropout = 0.1F};
static struct hstu_network hstu = {.heads = 2, .dim = DIM, .dropout = 0.2F, .attention_dropout = 0.1F};

static struct rig keeps, repeats; /* too large for the stack */
static uint32_t some[RIG_WINDOWS_MAX];

static struct net_options options_of(unsigned kind, uint32_t layers, bool recompute)
{
    sasrec.layers = hstu.layers = layers;
    sasrec.is_causal = kind < 2;
    struct net_options o = kind == 1 ? rig_options(&network_hstu, &hstu, DIM, WINDOW_MAX)
                                     : rig_options(&network_sasrec, &sasrec, DIM, WINDOW_MAX);
    o.recompute = recompute;
    return o;
}

/* Windows of a few tokens, one longer than a tile, one empty. */
static void make_windows(void)
{
    for (uint32_t w = 0; w < WINDOWS; w++)
        some[w] = (uint32_t)(num_mix(w + 3) % 40);
    some[LONG] = WINDOW_MAX, some[LONG + 1] = 0;
}

static void begin_both(unsigned kind, uint32_t layers)
{
    make_windows();
    struct rig *rigs[] = {&keeps, &repeats};
    for (int i = 0; i < 2; i++) {
        struct net_options o = options_of(kind, layers, i == 1);
        rig_begin(rigs[i], &o, ROWS, true);
        rig_stir(rigs[i]);
        rig_windows(rigs[i], some, WINDOWS, 0);
    }
}

static void end_both(void)
{
    rig_end(&keeps);
    rig_end(&repeats);
}

static void check_same(const char *name)
{
    const struct net_matrix *out[] = {keeps.net.output, repeats.net.output};
    const struct net_matrix *in[] = {keeps.net.input, repeats.net.input};
    assert_memory_equal(out[0]->values, out[1]->values, (size_t)keeps.rows * out[0]->stride * sizeof(float));
    assert_memory_equal(in[0]->gradients, in[1]->gradients,
                        (size_t)keeps.rows * in[0]->stride * sizeof(float));
    for (uint32_t p = 0; p < keeps.net.params_count; p++) {
        const struct net_params *x = &keeps.net.params[p], *y = &repeats.net.params[p];
        if (memcmp(x->gradient, y->gradient, x->floats * sizeof(float)) != 0)
            fail_msg("%s: the gradients of parameter %u differ", name, p);
        if (memcmp(x->w, y->w, x->floats * sizeof(float)) != 0)
            fail_msg("%s: the weights of parameter %u differ", name, p);
    }
}

/* --- Bits --- */

static void run_steps(unsigned kind, uint32_t layers, struct team *team)
{
    char name[60];
    snprintf(name, sizeof(name), "kind %u, %u layers%s", kind, layers, team != NULL ? ", two threads" : "");
    begin_both(kind, layers);
    repeats.net.team = team;
    uint32_t repeated = 0;
    for (uint32_t i = 0; i < repeats.net.layers_count; i++)
        repeated += repeats.net.layers[i].is_repeated;
    /* not: the last dense layer, its dropout, its sum; and hstu's attention, whose output is kept */
    assert_int_equal(repeated, layers * (kind == 1 ? 6 : 7));
    for (uint64_t step = 0; step < STEPS; step++) {
        keeps.net.windows.chance = repeats.net.windows.chance = 99 + step;
        rig_run(&keeps);
        rig_run(&repeats);
        net_update(&keeps.net);
        net_update(&repeats.net);
        check_same(name);
    }
    end_both();
}

static void test_bits(void **state)
{
    (void)state;
    static struct helper h = {.team = {.wake = wait_for_help}};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    static const uint32_t layers[] = {2, 1}; /* a sanitizer is slow, and more layers run the same code */
#else
    static const uint32_t layers[] = {2, 1, LAYERS_MANY};
#endif
    pthread_t thread;
    h.team.engine = &h;
    assert_int_equal(pthread_create(&thread, NULL, help, &h), 0);
    for (unsigned kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i < (kind == 2 ? 2 : ARRAY_COUNT(layers)); i++) {
            if (!HAS_THREADS_ALONE)
                run_steps(kind, layers[i], NULL);
            unsigned before = atomic_load(&h.pieces);
            run_steps(kind, layers[i], &h.team);
            assert_true(atomic_load(&h.pieces) > before);
        }
    }
    atomic_store(&h.is_over, true);
    pthread_join(thread, NULL);
}

/* A window whose values are not finite gives nothing to any gradient, although its values are computed again. */
static void test_rejected(void **state)
{
    (void)state;
    static uint8_t is_rejected[RIG_ROWS_MAX];
    for (unsigned kind = 0; kind < 2; kind++) {
        begin_both(kind, 2);
        struct rig *rigs[] = {&keeps, &repeats};
        for (int i = 0; i < 2; i++) {
            struct rig *t = rigs[i];
            struct net_matrix *in = t->net.input, *out = t->net.output;
            for (uint32_t r = 0; r < t->rows; r++)
                is_rejected[r] = r >= t->offsets[LONG] && r < t->offsets[LONG + 1];
            for (size_t f = 0; f < (size_t)t->rows * DIM; f++)
                in->values[f] = !is_rejected[f / DIM] ? in->values[f] : f % 2 ? NAN : INFINITY;
            net_begin(&t->net);
            net_forward(&t->net, t->rows);
            for (uint32_t r = 0; r < t->rows; r++)
                for (uint32_t c = 0; c < DIM; c++)
                    out->gradients[(size_t)r * DIM + c] = is_rejected[r] ? 0.0F : rig_slope(t, r, c);
            out->has_gradients = true;
            net_mask(&t->net, t->rows, is_rejected);
            net_backward(&t->net, t->rows);
            for (uint32_t p = 0; p < t->net.params_count; p++)
                for (size_t f = 0; f < t->net.params[p].floats; f++)
                    assert_true(isfinite(t->net.params[p].gradient[f]));
        }
        check_same("rejected");
        for (int i = 0; i < 2; i++) { /* nothing is rejected in the next pass */
            rig_windows(rigs[i], some, WINDOWS, 0);
            rig_run(rigs[i]);
        }
        check_same("after a rejected window");
        end_both();
    }
}

/* Weights so large that nothing is finite, not even the values of a rejected window, which begins with zeros: all
 * gradients are 0, and 0 times what is computed again would not be. */
static void test_all_rejected(void **state)
{
    (void)state;
    static uint8_t is_rejected[RIG_ROWS_MAX];
    static struct helper h = {.team = {.wake = wait_for_help}};
    pthread_t thread;
    h.team.engine = &h;
    memset(is_rejected, 1, sizeof(is_rejected));
    assert_int_equal(pthread_create(&thread, NULL, help, &h), 0);
    for (unsigned i = 0; i < 4; i++) {
        begin_both(i % 2, 2);
        struct rig *rigs[] = {&keeps, &repeats};
        repeats.net.team = i < 2 ? NULL : &h.team;
        for (int k = 0; k < 2; k++) {
            struct net *net = &rigs[k]->net;
            const struct net_params *norm = &net->params[1]; /* behind the positions */
            for (uint32_t c = 0; c < DIM; c++)
                norm->w[norm->stride + c] = 3e38F;
            net_begin(net);
            net_forward(net, rigs[k]->rows);
            assert_true(isfinite(net->output->values[0]) == 0);
            memset(net->output->gradients, 0, (size_t)rigs[k]->rows * DIM * sizeof(float));
            net->output->has_gradients = true;
            net_mask(net, rigs[k]->rows, is_rejected);
            net_backward(net, rigs[k]->rows);
        }
        check_same("all rejected");
        for (uint32_t p = 0; p < repeats.net.params_count; p++)
            for (size_t f = 0; f < repeats.net.params[p].floats; f++)
                assert_true(repeats.net.params[p].gradient[f] == 0.0F);
        end_both();
    }
    atomic_store(&h.is_over, true);
    pthread_join(thread, NULL);
}

/* --- Other segments --- */

/* Segments that end with layers whose backward pass reads what they have written: attention, and a relu. */
static void ends_shape(struct net *net, const void *own)
{
    (void)own;
    struct net_matrix *x = net_add_input(net, 0), *qkv = net_add_matrix(net, 3 * DIM);
    struct net_matrix *mixed = net_add_matrix(net, DIM), *sum = net_add_matrix(net, DIM);
    struct net_matrix *relu = net_add_matrix(net, DIM), *dropped = net_add_matrix(net, DIM);
    relu->is_relu = true;
    net_begin_segment(net);
    net_add_dense(net, x, 0, DIM, qkv, 0, 3 * DIM, false);
    net_add_attention(net, qkv, 0, 2, mixed, true, true, 0.1F);
    net_add_sum(net, x, mixed, sum);
    net_end_segment(net);
    net_begin_segment(net);
    net_add_dense(net, sum, 0, DIM, relu, 0, DIM, true);
    net_add_dropout(net, relu, dropped, 0.2F);
    net_end_segment(net);
    net_add_dense(net, dropped, 0, DIM, net_add_output_columns(net, DIM), 0, DIM, false);
}

static void test_ends(void **state)
{
    (void)state;
    static const struct network network = {.name = "ends", .shape = ends_shape};
    struct rig *rigs[] = {&keeps, &repeats};
    make_windows();
    for (int i = 0; i < 2; i++) {
        struct net_options o = rig_options(&network, NULL, DIM, WINDOW_MAX);
        o.recompute = i == 1;
        rig_begin(rigs[i], &o, ROWS, false);
        rig_stir(rigs[i]);
        rig_windows(rigs[i], some, WINDOWS, 0);
        rig_run(rigs[i]);
    }
    check_same("ends");
    end_both();
}

enum { EVENTS = 700, WIDTH = 24 };

/* Events instead of windows: blocks of dense layers over events; a block's second layer adds to what the first has written, and a relu's output
 * is read by two layers. The matrix of 23 columns has padding, and is kept. */
static void events_shape(struct net *net, const void *own)
{
    (void)own;
    struct net_matrix *x = net_add_input(net, 0);
    for (int block = 0; block < 3; block++) {
        net_begin_segment(net);
        struct net_matrix *hidden = net_add_matrix(net, WIDTH), *sum = net_add_matrix(net, WIDTH);
        struct net_matrix *odd = net_add_matrix(net, WIDTH - 1), *out = net_add_matrix(net, WIDTH);
        hidden->is_relu = out->is_relu = true;
        net_add_dense(net, x, 0, x->columns, hidden, 0, WIDTH, true);
        net_add_dense(net, hidden, 0, WIDTH, sum, 0, WIDTH, false);
        net_add_dense(net, hidden, 0, WIDTH, sum, 0, WIDTH, false)->adds = true;
        net_add_dense(net, sum, 0, WIDTH, odd, 0, WIDTH - 1, false);
        net_add_dense(net, odd, 0, WIDTH - 1, out, 0, WIDTH, true);
        net_end_segment(net);
        x = out;
    }
    net_add_dense(net, x, 0, WIDTH, net_add_output(net), 0, 1, false);
}

static void test_events(void **state)
{
    (void)state;
    static const struct network network = {.name = "events", .shape = events_shape};
    struct rig *rigs[] = {&keeps, &repeats};
    for (int i = 0; i < 2; i++) {
        struct rig *t = rigs[i];
        struct net_options o = rig_options(&network, NULL, WIDTH, 0);
        o.labels = 1, o.recompute = i == 1;
        rig_begin(t, &o, EVENTS, false);
        rig_stir(t);
        for (uint32_t m = 0; m < t->net.matrices_count; m++)
            assert_true(t->net.matrices[m].columns != WIDTH - 1 || t->net.matrices[m].segment == 0);
        t->rows = EVENTS;
        for (size_t f = 0; f < (size_t)EVENTS * t->net.input->stride; f++)
            t->net.input->values[f] = f % t->net.input->stride < WIDTH ? rig_uniform(4, f) : 0.0F;
    }
    for (int step = 0; step < STEPS; step++) {
        rig_run(&keeps);
        rig_run(&repeats);
        net_update(&keeps.net);
        net_update(&repeats.net);
        check_same("events");
    }
    assert_true(repeats.memory.parts[TRAIN_ACTIVATIONS] < keeps.memory.parts[TRAIN_ACTIVATIONS]);
    end_both();
}

/* --- Memory and time --- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds_of(struct rig *t)
{
    double start = now();
    rig_run(t);
    net_update(&t->net);
    return now() - start;
}

/* Eight layers of 64 columns, of the passes that learners/sequential makes: memory is at most 35 % of what it is
 * without. The times are printed. */
static void test_cost(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    enum { TURNS = 2 };
#else
    enum { TURNS = 4 };
#endif
    enum { WIDE = 64, PASS = 4096, EACH = 64 };
    for (uint32_t w = 0; w < PASS / EACH; w++)
        some[w] = EACH;
    for (unsigned kind = 0; kind < 2; kind++) {
        struct sasrec_network own = sasrec;
        struct hstu_network other = hstu;
        own.layers = other.layers = LAYERS_MANY;
        own.dim = own.hidden = other.dim = WIDE;
        struct rig *rigs[] = {&keeps, &repeats};
        double least[2] = {INFINITY, INFINITY}, bytes[2];
        for (int i = 0; i < 2; i++) {
            struct net_options o = kind == 1 ? rig_options(&network_hstu, &other, WIDE, 200)
                                             : rig_options(&network_sasrec, &own, WIDE, 200);
            o.recompute = i == 1;
            rig_begin(rigs[i], &o, PASS, true);
            rig_windows(rigs[i], some, PASS / EACH, 0);
            bytes[i] = (double)rigs[i]->memory.parts[TRAIN_ACTIVATIONS];
        }
        for (int i = 0; i < TURNS; i++)
            least[i % 2] = fmin(least[i % 2], seconds_of(rigs[i % 2]));
        print_message("%s: activations %.1f of %.1f MB, %.0f %%; a pass %.1f ms and %.1f ms, %.2f times\n",
                      kind == 1 ? "hstu" : "sasrec", bytes[1] / 1e6, bytes[0] / 1e6,
                      100 * bytes[1] / bytes[0], 1e3 * least[1], 1e3 * least[0], least[1] / least[0]);
        assert_true(bytes[1] <= 0.35 * bytes[0]);
        end_both();
    }
}

int main(void)
{
    const struct CMUnitTest helped[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_all_rejected)};
    const struct CMUnitTest alone[] = {cmocka_unit_test(test_rejected), cmocka_unit_test(test_ends),
                                       cmocka_unit_test(test_events), cmocka_unit_test(test_cost)};
    int failed = cmocka_run_group_tests(helped, NULL, NULL);
    return HAS_THREADS_ALONE ? failed : failed + cmocka_run_group_tests(alone, NULL, NULL);
}
