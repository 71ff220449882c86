/* layer_norm and layer_norm_gradient: rows around whole vectors, forward, backward and both, in place; parts of any
 * size. The scalar variant is compared with the kernel by row, and with plain sums. */
#include "windows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum mode { FORWARD, BACKWARD, BOTH, FORWARD_IN_PLACE, BACKWARD_IN_PLACE, MODES };
static const char *const mode_names[] = {"forward", "backward", "both", "forward in place",
                                         "backward in place"};

struct norm_shape {
    uint32_t n, d;
    enum mode mode;
    enum fill fill;
    uint32_t parts; /* of the gradient; 0: chunks */
};

static float *input(struct trial *t, const char *name, size_t floats, enum fill fill)
{
    float *x = trial_input(t, name, floats * sizeof(*x), TRIAL_MATRIX);
    trial_floats(t, x, floats, fill);
    return x;
}

/* What the pass may change: x or the gradients in place, else an output of its own. */
static float *result(struct trial *t, const char *name, size_t floats, const float *start)
{
    size_t bytes = floats * sizeof(float);
    if (start == NULL)
        return trial_output(t, name, bytes, TRIAL_MATRIX, same_floats);
    return memcpy(trial_changed(t, name, bytes, TRIAL_MATRIX, same_floats), start, bytes);
}

static void build_layer_norm(struct trial *t, const void *arg)
{
    const struct norm_shape *s = arg;
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    size_t floats = (size_t)s->n * s->d, n = s->n, d = s->d;
    bool goes = s->mode != BACKWARD && s->mode != BACKWARD_IN_PLACE, returns = s->mode % 3 != FORWARD;
    bool is_in_place = s->mode >= FORWARD_IN_PLACE;
    float *x = input(t, "x", floats, s->fill), *gain = input(t, "gain", d, FILL_PLAIN);
    float *bias = input(t, "bias", d, FILL_PLAIN), *dout = input(t, "out_gradients", floats, s->fill);
    float *stats = result(t, "stats", 2 * n, NULL), *out = NULL, *grads = NULL;
    float *want = malloc((2 * floats + 2 * n) * sizeof(*want) + 1), *want_grads = want + floats;
    float *want_stats = want_grads + floats;
    k->layer_norm_forward(want, want_stats, x, gain, bias, 1e-6F, n, d);
    k->layer_norm_backward(want_grads, dout, x, want_stats, gain, n, d);
    if (goes)
        out = result(t, "out", floats, is_in_place ? x : NULL);
    else
        memcpy(stats, want_stats, 2 * n * sizeof(*stats));
    if (returns)
        grads = result(t, "grads", floats, is_in_place ? dout : NULL);
    struct batch_layer_norm a = {.x = PLACE(t, goes && is_in_place ? out : x),
                                 .n = s->n,
                                 .d = s->d,
                                 .gain = PLACE(t, gain),
                                 .bias = PLACE(t, bias),
                                 .epsilon = 1e-6F,
                                 .out = PLACE(t, out),
                                 .stats = PLACE(t, stats),
                                 .out_gradients = returns ? PLACE(t, is_in_place ? grads : dout) : NULL,
                                 .grads = PLACE(t, grads)};
    TRIAL_CALL(t, layer_norm, &a);
    if (trial_is_scalar(t)) {
        TRIAL_CHECK(t, same_floats(want_stats, stats, 2 * n * sizeof(*stats)));
        TRIAL_CHECK(t, out == NULL || same_floats(want, out, floats * sizeof(*out)));
        TRIAL_CHECK(t, grads == NULL || same_floats(want_grads, grads, floats * sizeof(*grads)));
    }
    free(want);
}

void suite_layer_norm(struct suite *suite)
{
    static const uint32_t dims[] = {4, 8, 12, 16, 20, 48, 64, 68, 128, 200, 512};
    for (uint32_t i = 0; i < sizeof(dims) / sizeof(*dims) * MODES; i++) {
        struct norm_shape s = {.d = dims[i / MODES], .mode = (enum mode)(i % MODES)};
        for (const uint32_t *n = suite_sizes(suite); *n < 300; n++) {
            s.n = *n;
            s.fill = (i + *n) % 4 == 3 ? FILL_SPECIAL : FILL_PLAIN;
            suite_try(suite, build_layer_norm, &s, "%u rows of %u, %s%s", s.n, s.d, mode_names[s.mode],
                      s.fill == FILL_SPECIAL ? ", special" : "");
        }
    }
    struct norm_shape huge = {suite_huge(suite) / 8, 8, BOTH, FILL_PLAIN, 0};
    suite_try(suite, build_layer_norm, &huge, "%u rows", huge.n);
}

static void build_gradient(struct trial *t, const void *arg)
{
    const struct norm_shape *s = arg;
    size_t floats = (size_t)s->n * s->d, d = s->d;
    uint32_t parts = s->parts > 0 ? s->parts : (s->n + BATCH_CHUNK - 1) / BATCH_CHUNK;
    float *x = input(t, "x", floats, s->fill), *dout = input(t, "out_gradients", floats, s->fill);
    float *stats = input(t, "stats", (size_t)2 * s->n, s->fill);
    uint32_t *borders = s->parts > 0 ? trial_parts(t, s->n, s->parts) : NULL;
    float *sums = result(t, "sums", parts * 2 * d, NULL), *total = result(t, "total", 2 * d, NULL);
    struct batch_layer_norm_gradient a = {.x = PLACE(t, x),
                                          .stats = PLACE(t, stats),
                                          .out_gradients = PLACE(t, dout),
                                          .n = s->n,
                                          .d = s->d,
                                          .parts = PLACE(t, borders),
                                          .parts_count = s->parts,
                                          .sums = PLACE(t, sums),
                                          .total = PLACE(t, total)};
    TRIAL_CALL(t, layer_norm_gradient, &a);
    for (size_t c = 0; c < d && trial_is_scalar(t); c++) {
        float gains = 0.0F, biases = 0.0F;
        for (uint32_t p = 0; p < parts; p++) {
            size_t from = borders ? borders[p] : p * (size_t)BATCH_CHUNK;
            size_t end = borders ? borders[p + 1] : from + BATCH_CHUNK < s->n ? from + BATCH_CHUNK : s->n;
            float gain = 0.0F, bias = 0.0F;
            for (size_t r = from; r < end; r++) {
                gain = fmaf(dout[r * d + c], (x[r * d + c] - stats[2 * r]) * stats[2 * r + 1], gain);
                bias += dout[r * d + c];
            }
            TRIAL_CHECK(t, same_floats(&gain, &sums[p * 2 * d + c], sizeof(gain)));
            TRIAL_CHECK(t, same_floats(&bias, &sums[(p * 2 + 1) * d + c], sizeof(bias)));
            gains = p == 0 ? gain : gains + gain, biases = p == 0 ? bias : biases + bias;
        }
        TRIAL_CHECK(t, same_floats(&gains, &total[c], sizeof(gains)));
        TRIAL_CHECK(t, same_floats(&biases, &total[d + c], sizeof(biases)));
    }
}

void suite_layer_norm_gradient(struct suite *suite)
{
    static const uint32_t dims[] = {4, 12, 16, 64, 68, 128, 256}, parts[] = {0, 1, 5, 17};
    for (uint32_t i = 0; i < sizeof(dims) / sizeof(*dims) * 4; i++) {
        struct norm_shape s = {.d = dims[i / 4], .parts = parts[i % 4]};
        for (const uint32_t *n = suite_sizes(suite); *n < 1200; n++) {
            s.n = *n;
            s.fill = (i + *n) % 5 == 3 ? FILL_SPECIAL : FILL_PLAIN;
            suite_try(suite, build_gradient, &s, "%u rows of %u, %u parts%s", s.n, s.d, s.parts,
                      s.fill == FILL_SPECIAL ? ", special" : "");
        }
    }
}
