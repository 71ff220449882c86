/* params_update: every optimizer that it supports, compared bit for bit with opt_<kind> of kernels.h on one
 * row; a gradient that is not finite must have the effect of a gradient of 0. */
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[OPT_KINDS] = {
    [OPT_SGD] = "sgd",   [OPT_MOMENTUM] = "momentum", [OPT_ADAGRAD] = "adagrad",
    [OPT_ADAM] = "adam", [OPT_FTRL] = "ftrl",
};

struct shape {
    uint32_t n;
    enum opt_kind kind;
    bool has_scale, is_limited; /* is_limited: l1, l2 and a small step_max */
    float scale;
    enum fill fill;
};

static struct opt_params params_of(const struct shape *s)
{
    struct opt_params p = {.rate = 0.05F,
                           .epsilon = 1e-6F,
                           .decay = 0.99F,
                           .beta1 = 0.9F,
                           .beta2 = 0.999F,
                           .correction1 = 1.5F,
                           .correction2 = 3.0F,
                           .step_max = 1.0F};
    if (s->is_limited) {
        p.l1 = 0.01F;
        p.l2 = 0.02F;
        p.step_max = 0.03F;
    }
    return p;
}

/* Makes one row's step with opt_<kind>, with gradients that are not finite replaced by 0, and compares. */
static void check_row(struct trial *t, const struct shape *s, const float *g, float *w, float *state,
                      const float *w_after, const float *state_after)
{
    size_t states = opt_state_floats(s->kind, s->n);
    float *grads = malloc(s->n * sizeof(*grads) + 1);
    struct opt_params p = params_of(s);
    for (uint32_t i = 0; i < s->n; i++) {
        float product = s->has_scale ? g[i] * s->scale : g[i];
        grads[i] = isfinite(product) ? product : 0.0F;
    }
    struct opt_row row = {.w = w, .state = state, .g = grads, .scale = 1.0F};
    opt_pick(kernels_variant(KERNELS_SCALAR), s->kind)(&row, 1, s->n, &p);
    TRIAL_CHECK(t, same_floats(w, w_after, s->n * sizeof(*w)));
    TRIAL_CHECK(t, same_floats(state, state_after, states * sizeof(*state)));
    free(grads);
}

static void build(struct trial *t, const void *arg)
{
    const struct shape *s = arg;
    size_t states = opt_state_floats(s->kind, s->n);
    float *w = trial_changed(t, "w", s->n * sizeof(*w), TRIAL_MATRIX, same_floats);
    float *state = trial_changed(t, "state", states * sizeof(*state), TRIAL_MATRIX, same_floats);
    float *g = trial_input(t, "g", s->n * sizeof(*g), TRIAL_MATRIX);
    float *scale = trial_input(t, "scale", sizeof(*scale), sizeof(*scale));
    *scale = s->scale;
    trial_floats(t, w, s->n, FILL_PLAIN);
    trial_floats(t, state, states, FILL_POSITIVE);
    trial_floats(t, g, s->n, s->fill);
    float *w_before = malloc(s->n * sizeof(*w) + 1), *state_before = malloc(states * sizeof(*state) + 1);
    memcpy(w_before, w, s->n * sizeof(*w));
    memcpy(state_before, state, states * sizeof(*state));
    struct batch_params_update a = {.w = PLACE(t, w),
                                    .state = PLACE(t, state),
                                    .g = PLACE(t, g),
                                    .n = s->n,
                                    .kind = s->kind,
                                    .params = params_of(s),
                                    .scale = s->has_scale ? PLACE(t, scale) : NULL};
    TRIAL_CALL(t, params_update, &a);
    if (trial_is_scalar(t))
        check_row(t, s, g, w_before, state_before, w, state);
    free(w_before);
    free(state_before);
}

static void try_shape(struct suite *suite, struct shape s)
{
    if (suite_is_device(suite))
        s.n = s.n / 4 * 4;
    suite_try(suite, build, &s, "%s, n %u%s%s%s", kind_names[s.kind], s.n, s.has_scale ? ", scaled" : "",
              s.is_limited ? ", limited" : "", s.fill == FILL_SPECIAL ? ", special" : "");
}

void suite_params_update(struct suite *suite)
{
    static const float scales[] = {0.5F, 1e-3F, 0x1p127F, INFINITY, NAN, 0.0F};
    for (int k = 0; k < OPT_KINDS; k++) {
        uint32_t i = 0;
        if (kind_names[k] == NULL)
            continue;
        for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++, i++) {
            struct shape s = {*n,        (enum opt_kind)k, i % 2 != 0, i / 2 % 2 != 0, scales[i / 2 % 2],
                              FILL_PLAIN};
            try_shape(suite, s);
            s.fill = FILL_SPECIAL;
            s.is_limited = !s.is_limited;
            try_shape(suite, s);
        }
        for (i = 0; i < sizeof(scales) / sizeof(*scales); i++)
            try_shape(suite, (struct shape){16 + 4 * i, (enum opt_kind)k, true, i % 2 != 0, scales[i],
                                            i % 3 == 0 ? FILL_SPECIAL : FILL_PLAIN});
    }
    try_shape(suite, (struct shape){suite_huge(suite), OPT_ADAM, false, true, 1.0F, FILL_SPECIAL});
}
