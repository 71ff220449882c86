/*
 * Promises about bits of the networks of sequence models: a token's output depends on the earlier tokens of its
 * window alone; outputs and gradients do not depend on tiles and threads; slices are summed by their tree; and how
 * windows are divided into chunks and tiles.
 */
#include "sequence_rig.h"
#include "team_helper.h"

#include "core/buffer.h"
#include "core/team.h"

#include <math.h>
#include <pthread.h>

enum { DIM = 32, LAYERS = 2, WINDOW_MAX = 600 };

static const struct sasrec_network sasrec = {.layers = LAYERS,
                                             .heads = 2,
                                             .dim = DIM,
                                             .hidden = DIM,
                                             .is_causal = true,
                                             .dropout = 0.2F,
                                             .attention_dropout = 0.1F};
static const struct sasrec_network both_ways = {.layers = LAYERS, .heads = 2, .dim = DIM, .hidden = DIM};
static const struct hstu_network hstu = {
    .layers = LAYERS, .heads = 1, .dim = DIM, .dropout = 0.2F, .attention_dropout = 0.1F};

static struct net_options options_of(unsigned kind)
{
    return kind == 0   ? rig_options(&network_sasrec, &sasrec, DIM, WINDOW_MAX)
           : kind == 1 ? rig_options(&network_hstu, &hstu, DIM, WINDOW_MAX)
                       : rig_options(&network_sasrec, &both_ways, DIM, WINDOW_MAX);
}

static struct rig first, second; /* too large for the stack */

static void begin(struct rig *t, const struct net_options *o, const uint32_t *lengths, uint32_t count)
{
    rig_begin(t, o, RIG_ROWS_MAX, false);
    rig_stir(t);
    rig_windows(t, lengths, count, 0);
}

static bool are_equal(const struct rig *a, uint32_t row_a, const struct rig *b, uint32_t row_b, uint32_t rows)
{
    const struct net_matrix *x = a->net.output, *y = b->net.output;
    return memcmp(x->values + (size_t)row_a * x->stride, y->values + (size_t)row_b * y->stride,
                  (size_t)rows * x->stride * sizeof(float)) == 0;
}

/* --- What a token depends on --- */

enum { LONG = 2, CUT = 333 };
static const uint32_t lengths[] = {5, 0, 600, 1, 130};

/* Changes all inputs from row `from` up to `to`. */
static void change(struct rig *t, uint32_t from, uint32_t to)
{
    for (size_t i = (size_t)from * t->net.input->stride; i < (size_t)to * t->net.input->stride; i++)
        t->net.input->values[i] += 0.5F;
    for (uint32_t r = from; r < to; r++)
        t->seconds[r] += 1000;
}

static void test_later_tokens(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 3; kind++) {
        struct net_options o = options_of(kind);
        begin(&first, &o, lengths, ARRAY_COUNT(lengths));
        begin(&second, &o, lengths, ARRAY_COUNT(lengths));
        uint32_t from = second.offsets[LONG], to = second.offsets[LONG + 1];
        net_forward(&first.net, first.rows);
        change(&second, from + CUT, to);
        net_forward(&second.net, second.rows);
        assert_true(are_equal(&first, from, &second, from, CUT) == (kind < 2));
        for (uint32_t r = from + CUT; r < to; r++)
            assert_false(are_equal(&first, r, &second, r, 1));
        assert_true(are_equal(&first, 0, &second, 0, from)); /* other windows */
        assert_true(are_equal(&first, to, &second, to, first.rows - to));
        rig_end(&first);
        rig_end(&second);
    }
}

/* A window has the same outputs in a pass of its own, and the beginning of a causal one without its end. */
static void test_alone(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 3; kind++) {
        struct net_options o = options_of(kind);
        begin(&first, &o, lengths, ARRAY_COUNT(lengths));
        net_forward(&first.net, first.rows);
        for (uint32_t w = 0; w < ARRAY_COUNT(lengths); w++) {
            begin(&second, &o, &lengths[w], 1);
            rig_windows(&second, &lengths[w], 1, w);
            net_forward(&second.net, second.rows);
            assert_true(are_equal(&first, first.offsets[w], &second, 0, lengths[w]));
            uint32_t some = lengths[w] / 2;
            rig_windows(&second, &some, 1, w);
            net_forward(&second.net, second.rows);
            assert_true(kind == 2 || are_equal(&first, first.offsets[w], &second, 0, some));
            rig_end(&second);
        }
        rig_end(&first);
    }
}

/* Dropout follows the step's chance and the window's identity; a prediction drops nothing. */
static void test_chance(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 2; kind++) {
        struct net_options o = options_of(kind);
        struct sasrec_network no_sasrec = sasrec;
        struct hstu_network no_hstu = hstu;
        no_sasrec.dropout = no_sasrec.attention_dropout = no_hstu.dropout = no_hstu.attention_dropout = 0.0F;
        begin(&first, &o, lengths, ARRAY_COUNT(lengths));
        begin(&second, &o, lengths, ARRAY_COUNT(lengths));
        net_forward(&first.net, first.rows);
        second.net.windows.chance++;
        net_forward(&second.net, second.rows);
        assert_false(are_equal(&first, 0, &second, 0, 1));
        second.net.windows.chance--;
        second.identities[LONG]++;
        net_forward(&second.net, second.rows);
        assert_true(are_equal(&first, 0, &second, 0, second.offsets[LONG]));
        assert_false(are_equal(&first, second.offsets[LONG], &second, second.offsets[LONG], 1));
        rig_end(&second);
        first.net.windows.drops = false;
        net_forward(&first.net, first.rows);
        o.own = kind == 0 ? (const void *)&no_sasrec : &no_hstu;
        begin(&second, &o, lengths, ARRAY_COUNT(lengths));
        net_forward(&second.net, second.rows);
        assert_true(are_equal(&first, 0, &second, 0, first.rows));
        rig_end(&first);
        rig_end(&second);
    }
}

/* --- Tiles and threads --- */

/* Random lengths, most of them short, of at most `rows_max` rows together; returns how many. */
static uint32_t random_lengths(uint32_t of[RIG_WINDOWS_MAX], uint32_t rows_max, uint64_t seed)
{
    uint32_t count = 0;
    for (uint32_t rows = 0; count < RIG_WINDOWS_MAX; rows += of[count++]) {
        uint64_t draw = num_mix(seed * 1000 + count);
        of[count] = draw % 40 == 0 ? (uint32_t)(draw >> 32) % (WINDOW_MAX + 1) : (uint32_t)(draw >> 32) % 20;
        if (rows + of[count] > rows_max)
            break;
    }
    return count;
}

static void check_same(const char *name, const struct rig *a, const struct rig *b)
{
    if (!are_equal(a, 0, b, 0, a->rows))
        fail_msg("%s: outputs differ", name);
    for (uint32_t p = 0; p < a->net.params_count; p++) {
        const struct net_params *x = &a->net.params[p], *y = &b->net.params[p];
        if (memcmp(x->gradient, y->gradient, x->floats * sizeof(float)) != 0)
            fail_msg("%s: the gradients of parameter %u differ", name, p);
    }
    const struct net_matrix *in = a->net.input;
    if (memcmp(in->gradients, b->net.input->gradients, (size_t)a->rows * in->stride * sizeof(float)) != 0)
        fail_msg("%s: the gradients of the input differ", name);
}

static void test_threads(void **state)
{
    (void)state;
    static uint32_t some[RIG_WINDOWS_MAX];
    struct helper h = {.team = {.wake = wait_for_help}};
    h.team.engine = &h;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, help, &h), 0);
    for (unsigned i = 0; i < 6; i++) { /* tiles of TILE_ALONE, TILE_SHARED and BATCH_CHUNK rows */
        struct net_options o = options_of(i % 3);
        uint32_t count = random_lengths(some, i < 3 ? 4000 : 800, 5 + i);
        some[count / 2] = i < 3 ? WINDOW_MAX : 200; /* more than a tile */
        char name[40];
        snprintf(name, sizeof(name), "kind %u, %u windows", i % 3, count);
        begin(&first, &o, some, count);
        rig_begin(&second, &o, RIG_ROWS_MAX, true);
        rig_stir(&second);
        rig_windows(&second, some, count, 0);
        second.net.team = &h.team;
        first.net.slices = second.net.slices = batch_slices_of(count, BATCH_SLICE_UNIT);
        rig_run(&first);
        unsigned before = atomic_load(&h.pieces);
        rig_run(&second);
        assert_true(atomic_load(&h.pieces) >= before + 2);
        assert_true(first.rows > (i < 3 ? 1024 : 256));
        check_same(name, &first, &second);
        rig_end(&first);
        rig_end(&second);
    }
    atomic_store(&h.is_over, true);
    pthread_join(thread, NULL);
}

/* --- Slices --- */

enum { SLICES = 2, HALF = 128 };

/* Runs the windows of one slice of `first`, with the same gradients by the output, in `second`. */
static void run_slice(const uint32_t *some, uint32_t slice)
{
    struct net_matrix *out = second.net.output;
    rig_windows(&second, some + slice * HALF, HALF, slice * HALF);
    net_begin(&second.net);
    net_forward(&second.net, second.rows);
    for (uint32_t r = 0; r < second.rows; r++)
        for (uint32_t c = 0; c < DIM; c++)
            out->gradients[r * DIM + c] = rig_slope(&first, first.offsets[slice * HALF] + r, c);
    out->has_gradients = true;
    net_backward(&second.net, second.rows);
}

static void check_sums(const char *name, unsigned number, float *const *sums)
{
    for (uint32_t p = 0; p < first.net.params_count; p++)
        for (size_t f = 0; f < first.net.params[p].floats; f++)
            if (first.net.params[p].gradient[f] != sums[p][f])
                fail_msg("case %u, parameter %u, float %zu: %.9g, %s %.9g", number, p, f,
                         (double)first.net.params[p].gradient[f], name, (double)sums[p][f]);
}

/* The gradients of a step of two slices are the sums of those of two steps of one, and those of two passes that are
 * one slice each, also if a slice has empty windows alone. Steps do not see the sums of the step before. */
static void test_slices(void **state)
{
    (void)state;
    static uint32_t some[SLICES * HALF];
    static float *sums[NET_LAYERS_MAX];
    for (unsigned i = 0; i < 4; i++) {
        struct net_options o = options_of(i % 2);
        for (uint32_t w = 0; w < ARRAY_COUNT(some); w++)
            some[w] = i >= 2 && w >= HALF ? 0 : (uint32_t)(num_mix(i + w) % 13);
        begin(&first, &o, some, ARRAY_COUNT(some));
        begin(&second, &o, some, HALF);
        first.net.slices = batch_slices_of(ARRAY_COUNT(some), HALF);
        assert_int_equal(first.net.slices.count, SLICES);
        rig_run(&first);
        rig_run(&first);
        for (uint32_t slice = 0; slice < SLICES; slice++) {
            run_slice(some, slice);
            for (uint32_t p = 0; p < second.net.params_count; p++) {
                const struct net_params *of = &second.net.params[p];
                if (slice == 0)
                    sums[p] = calloc(of->floats, sizeof(float));
                for (size_t f = 0; f < of->floats; f++)
                    sums[p][f] = slice == 0 ? of->gradient[f] : sums[p][f] + of->gradient[f];
            }
        }
        check_sums("the sum of its slices'", i, sums);
        second.net.slices = first.net.slices;
        for (uint32_t slice = 0; slice < SLICES; slice++) {
            second.net.event = slice * HALF;
            run_slice(some, slice);
        }
        for (uint32_t p = 0; p < second.net.params_count; p++)
            memcpy(sums[p], second.net.params[p].gradient, second.net.params[p].floats * sizeof(float));
        check_sums("by two passes", i, sums);
        for (uint32_t p = 0; p < second.net.params_count; p++)
            free(sums[p]);
        rig_end(&first);
        rig_end(&second);
    }
}

/* --- Chunks and tiles --- */

/* The chunks of the tile in progress, whose first window is `window`: whole windows of at most BATCH_CHUNK rows or
 * one, of one slice each, as many windows as fit. Returns the window behind the tile. */
static uint32_t check_chunks(const struct net *net, uint32_t window, uint32_t rows)
{
    const uint32_t *offsets = net->windows.offsets, begin = window;
    uint32_t half = net->slices.count > 1 ? net->slices.borders[1] : UINT32_MAX;
    for (uint32_t i = 0; i < net_chunks(net); i++) {
        struct net_chunk c = net_chunk(net, i);
        assert_true(c.window == window && c.end > window);
        assert_int_equal(c.from, offsets[window] - offsets[begin]);
        assert_int_equal(c.n, offsets[c.end] - offsets[window]);
        assert_true(c.n <= BATCH_CHUNK || c.end == window + 1);
        assert_true(c.end <= half || window >= half);
        if (c.end < net->windows.count && c.end != half)
            assert_true(offsets[c.end + 1] - offsets[window] > BATCH_CHUNK);
        window = c.end;
    }
    assert_int_equal(offsets[window] - offsets[begin], rows);
    return window;
}

static void test_divided(void **state)
{
    (void)state;
    static uint32_t some[RIG_WINDOWS_MAX];
    for (unsigned i = 0; i < 200; i++) {
        static const uint32_t tiles_rows[] = {128, 256, 512};
        struct net_options o = options_of(0);
        uint32_t count = random_lengths(some, 8000, 100 + i), tile = tiles_rows[i % 3], window = 0, row = 0;
        if (i == 0) {
            begin(&first, &o, some, count);
        } else {
            rig_windows(&first, some, count, 0);
        }
        struct net *net = &first.net;
        net->slices = batch_slices_of(count, i % 2 * 160);
        uint32_t tiles = windows_divide(net, first.rows, tile, true);
        for (net->tile = 0; net->tile < tiles; net->tile++) {
            uint32_t from, rows = windows_begin(net, net->tile, &from);
            assert_int_equal(from, row);
            assert_int_equal(net->window, window);
            assert_true(rows <= tile || (net_chunks(net) == 1 && rows <= WINDOW_MAX));
            window = check_chunks(net, window, rows);
            row += rows;
        }
        assert_int_equal(window, count);
        assert_int_equal(row, first.rows);
    }
    rig_end(&first);
}

/* --- Rejected windows --- */

/* Gradients do not depend on what a rejected window has in any matrix. */
static void test_rejected(void **state)
{
    (void)state;
    static uint8_t is_rejected[RIG_ROWS_MAX];
    struct rig *rigs[] = {&first, &second};
    for (unsigned kind = 0; kind < 2; kind++) {
        struct net_options o = options_of(kind);
        for (int is_strange = 0; is_strange < 2; is_strange++) {
            struct rig *t = rigs[is_strange];
            begin(t, &o, lengths, ARRAY_COUNT(lengths));
            struct net_matrix *in = t->net.input, *out = t->net.output;
            for (uint32_t r = t->offsets[LONG]; r < t->offsets[LONG + 1]; r++)
                for (uint32_t c = 0; c < DIM && is_strange; c++)
                    in->values[r * DIM + c] = c % 2 ? NAN : INFINITY;
            net_begin(&t->net);
            net_forward(&t->net, t->rows);
            for (uint32_t r = 0; r < t->rows; r++) {
                is_rejected[r] = r >= t->offsets[LONG] && r < t->offsets[LONG + 1];
                for (uint32_t c = 0; c < DIM; c++)
                    out->gradients[r * DIM + c] = is_rejected[r] ? 0.0F : rig_slope(t, r, c);
            }
            out->has_gradients = true;
            net_mask(&t->net, t->rows, is_rejected);
            net_backward(&t->net, t->rows);
        }
        for (uint32_t p = 0; p < first.net.params_count; p++)
            for (size_t f = 0; f < first.net.params[p].floats; f++)
                assert_true(isfinite(second.net.params[p].gradient[f]));
        check_same("rejected", &first, &second);
        rig_end(&first);
        rig_end(&second);
    }
}

/* --- Parameters --- */

/* Gains begin with 1, biases with 0; a net that loads what another saved has the same outputs and next steps; steps
 * lower the objective. */
static void test_saved(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 2; kind++) {
        struct net_options o = options_of(kind);
        struct gpu_error error;
        rig_begin(&first, &o, RIG_ROWS_MAX, false);
        const struct net_params *norm = &first.net.params[1]; /* behind the positions */
        for (uint32_t c = 0; c < DIM; c++)
            assert_true(norm->w[c] == 1.0F && norm->w[norm->stride + c] == 0.0F);
        rig_windows(&first, lengths, ARRAY_COUNT(lengths), 0);
        rig_run(&first);
        net_update(&first.net);
        begin(&second, &o, lengths, ARRAY_COUNT(lengths));
        for (uint32_t p = 0; p < first.net.params_count; p++) {
            float *floats = calloc(net_saved_floats(&first.net, p), sizeof(*floats));
            assert_true(net_save(&first.net, p, floats, &error) && net_load(&second.net, p, floats, &error));
            free(floats);
        }
        double sums[2] = {0.0, 0.0};
        for (int step = 0; step < 2; step++) {
            rig_run(&first);
            rig_run(&second);
            check_same("saved", &first, &second);
            for (uint32_t r = 0; r < first.rows; r++)
                for (uint32_t c = 0; c < DIM; c++)
                    sums[step] += (double)(first.net.output->values[r * DIM + c] * rig_slope(&first, r, c));
            net_update(&first.net);
            net_update(&second.net);
        }
        assert_true(sums[1] < sums[0]);
        rig_end(&first);
        rig_end(&second);
    }
}

/* The shape of a state tells networks with other parameters apart, and no others. */
static void test_shape(void **state)
{
    (void)state;
    struct sasrec_network own[] = {sasrec, sasrec, sasrec, sasrec, sasrec, sasrec, sasrec};
    own[1].dropout = 0.5F;
    own[2].layers++, own[3].heads++, own[4].dim++, own[5].hidden++, own[6].is_causal = false;
    struct byte_buffer texts[ARRAY_COUNT(own)] = {{0}};
    for (size_t i = 0; i < ARRAY_COUNT(own); i++) {
        network_sasrec.put_shape(&own[i], 0, &texts[i]);
        assert_true(texts[i].length > 0 && texts[i].data[texts[i].length - 1] == '\n');
        bool is_same =
            texts[i].length == texts[0].length && memcmp(texts[i].data, texts[0].data, texts[0].length) == 0;
        assert_true(is_same == (i < 2));
    }
    struct byte_buffer text = {0};
    network_hstu.put_shape(&hstu, 0, &text);
    buffer_printf(&text, "%c", 0);
    assert_string_equal(text.data, "=sequence: layers: 2, heads: 1, dim: 32, hidden: 0, causal: 1\n");
    buffer_free(&text);
    for (size_t i = 0; i < ARRAY_COUNT(own); i++)
        buffer_free(&texts[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_later_tokens), cmocka_unit_test(test_alone),  cmocka_unit_test(test_chance),
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_slices), cmocka_unit_test(test_divided),
        cmocka_unit_test(test_rejected),     cmocka_unit_test(test_saved),  cmocka_unit_test(test_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
