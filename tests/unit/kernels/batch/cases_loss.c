/*
 * loss: both losses, class weights, fake negatives, a second summand of the logit (`more`), gradients in a
 * column of a matrix, events that are already rejected; logits, labels and weights that are not finite. The
 * scalar variant is compared with the contract's formula, computed with sigmoid_one's prediction, and with an
 * example computed by hand.
 */
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct loss_shape {
    uint32_t n;
    enum fill fill;
    /* 1: squared, 2: fake negatives, 4: more, 8: weights, 16: class weights, 32: sums, 64: in place, 128:
     * stride between gradients, 256: `rejected` is NULL. */
    uint32_t bits;
    float spread; /* factor of the logits */
};

/* A call, and the host's copies of its buffers. */
struct loss_call {
    struct batch_loss args; /* holds the kernel's addresses */
    float *logits, *more, *labels, *weights, *sums, *gradients;
    uint8_t *is_rejected;
    uint32_t *rejected;
};

static float *input_floats(struct trial *t, const char *name, size_t n, enum fill fill)
{
    float *x = trial_input(t, name, n * sizeof(*x), sizeof(*x));
    trial_floats(t, x, n, fill);
    return x;
}

static void fill_inputs(struct trial *t, const struct loss_shape *s, struct loss_call *c)
{
    bool is_in_place = s->bits & 64;
    size_t bytes = s->n * sizeof(*c->logits);
    c->logits = is_in_place ? trial_changed(t, "logits", bytes, sizeof(*c->logits), same_floats)
                            : trial_input(t, "logits", bytes, sizeof(*c->logits));
    trial_floats(t, c->logits, s->n, s->fill);
    c->labels = input_floats(t, "labels", s->n, s->fill);
    for (uint32_t e = 0; e < s->n; e++) {
        c->logits[e] *= s->spread;
        if (isfinite(c->labels[e]) && !(s->bits & 1)) /* labels 0, 1 and, in every seventh event, 0.5 */
            c->labels[e] = e % 7 == 0 ? 0.5F : c->labels[e] > 0.0F;
    }
    c->more = s->bits & 4 ? input_floats(t, "more", 3 * (size_t)s->n, s->fill) : NULL;
    c->weights = s->bits & 8 ? input_floats(t, "weights", s->n, s->fill) : NULL;
    c->is_rejected = trial_changed(t, "is_rejected", s->n, 1, same_bits);
    for (uint32_t e = 0; e < s->n; e++)
        c->is_rejected[e] = trial_below(t, 6) == 0;
    c->rejected = trial_changed(t, "rejected", sizeof(*c->rejected), sizeof(*c->rejected), same_bits);
    *c->rejected = 5;
}

static void fill_loss(struct trial *t, const struct loss_shape *s, struct loss_call *c)
{
    size_t stride = s->bits & 128 ? 4 : 1;
    fill_inputs(t, s, c);
    if (s->bits & 64)
        c->sums = c->logits;
    else if (s->bits & 32)
        c->sums = trial_output(t, "sums", s->n * sizeof(*c->sums), sizeof(*c->sums), same_floats);
    c->gradients = trial_changed(t, "gradients", s->n * stride * sizeof(*c->gradients), sizeof(*c->gradients),
                                 same_floats);
    trial_floats(t, c->gradients, s->n * stride, FILL_PLAIN);
    c->args = (struct batch_loss){.logits = PLACE(t, c->logits),
                                  .more = PLACE(t, c->more),
                                  .more_stride = 3,
                                  .labels = PLACE(t, c->labels),
                                  .weights = PLACE(t, c->weights),
                                  .class_weights = {1.0F, 1.0F},
                                  .is_squared = s->bits & 1,
                                  .has_fake_negatives = (s->bits & 3) == 2,
                                  .scale = s->n % 2 ? 0.125F : 0.3F,
                                  .n = s->n,
                                  .sums = PLACE(t, c->sums),
                                  .gradients = PLACE(t, c->gradients),
                                  .gradients_stride = s->bits & 128 ? 4 : 0,
                                  .is_rejected = PLACE(t, c->is_rejected),
                                  .rejected = s->bits & 256 ? NULL : PLACE(t, c->rejected)};
    if (s->bits & 16)
        c->args.class_weights[0] = 0.7F, c->args.class_weights[1] = 3.1F;
}

/* An event's gradient by the formula of the contract. */
static float gradient_plainly(const struct loss_call *c, float logit, uint32_t e)
{
    const struct batch_loss *a = &c->args;
    double p = (double)logit, label = (double)c->labels[e], weight = 1.0;
    if (!a->is_squared)
        p = kernels_variant(KERNELS_SCALAR)->sigmoid_one(p);
    if (c->weights != NULL)
        weight = (double)c->weights[e];
    if (!a->is_squared)
        weight *= (double)a->class_weights[label > 0.5];
    if (a->has_fake_negatives)
        weight *= label > 0.5 ? 1.0 + p : (1.0 - p) * (1.0 + p);
    return (float)((p - label) * weight) * a->scale;
}

/* logits, verdicts: the content of c->logits and c->is_rejected before the call. */
static void check_loss(struct trial *t, const struct loss_shape *s, const struct loss_call *c,
                       const float *logits, const uint8_t *verdicts)
{
    size_t stride = s->bits & 128 ? 4 : 1;
    uint32_t rejected = 5;
    for (uint32_t e = 0; e < s->n; e++) {
        float logit = c->more ? logits[e] + c->more[3 * (size_t)e] : logits[e];
        float gradient = gradient_plainly(c, logit, e);
        bool is_rejected = verdicts[e] || !isfinite(logit) || !isfinite(gradient);
        float want = is_rejected ? 0.0F : gradient;
        rejected += is_rejected;
        TRIAL_CHECK(t, same_floats(&want, &c->gradients[e * stride], sizeof(want)));
        TRIAL_CHECK(t, c->is_rejected[e] == is_rejected);
        TRIAL_CHECK(t, c->sums == NULL || same_floats(&logit, &c->sums[e], sizeof(logit)));
    }
    TRIAL_CHECK(t, *c->rejected == (s->bits & 256 ? 5 : rejected));
}

static void build_loss(struct trial *t, const void *arg)
{
    const struct loss_shape *s = arg;
    struct loss_call c = {0};
    fill_loss(t, s, &c);
    size_t bytes = s->n * sizeof(*c.logits);
    float *logits = memcpy(malloc(bytes + 1), c.logits, bytes);
    uint8_t *verdicts = memcpy(malloc((size_t)s->n + 1), c.is_rejected, s->n);
    TRIAL_CALL(t, loss, &c.args);
    if (trial_is_scalar(t))
        check_loss(t, s, &c, logits, verdicts);
    free(logits);
    free(verdicts);
}

/* An example computed by hand: the prediction of logit 0 is 0.5. */
static void build_known(struct trial *t, const void *arg)
{
    static const float labels[4] = {0.0F, 1.0F, 1.0F, 0.0F}, expected[4] = {0.75F, -3.0F, 0.0F, 0.0F};
    (void)arg;
    float *logits = trial_input(t, "logits", 4 * sizeof(*logits), sizeof(*logits));
    float *label = trial_input(t, "labels", sizeof(labels), sizeof(*label));
    float *gradients = trial_output(t, "gradients", sizeof(expected), sizeof(*gradients), same_floats);
    uint8_t *is_rejected = trial_changed(t, "is_rejected", 4, 1, same_bits);
    memcpy(label, labels, sizeof(labels));
    memset(is_rejected, 0, 4);
    logits[2] = NAN;
    is_rejected[3] = 1;
    struct batch_loss a = {.logits = PLACE(t, logits),
                           .labels = PLACE(t, label),
                           .class_weights = {1.0F, 2.0F},
                           .has_fake_negatives = true,
                           .scale = 2.0F,
                           .n = 4,
                           .gradients = PLACE(t, gradients),
                           .is_rejected = PLACE(t, is_rejected)};
    TRIAL_CALL(t, loss, &a); /* 0.5 * 0.75 * 2, -0.5 * 2 * 1.5 * 2 */
    TRIAL_CHECK(t, memcmp(gradients, expected, sizeof(expected)) == 0);
    TRIAL_CHECK(t, memcmp(is_rejected, (uint8_t[4]){0, 0, 1, 1}, 4) == 0);
}

static void try_loss(struct suite *suite, struct loss_shape s)
{
    suite_try(suite, build_loss, &s, "n %u, bits %u, logits by %g%s", s.n, s.bits, (double)s.spread,
              s.fill == FILL_SPECIAL ? ", special" : "");
}

void suite_loss(struct suite *suite)
{
    static const float spreads[] = {1.0F, 20.0F, 400.0F, 1e-3F};
    uint32_t turn = 0;
    suite_try(suite, build_known, NULL, "by hand");
    for (uint32_t bits = 0; bits < 512; bits++)
        try_loss(suite, (struct loss_shape){61 + bits % 8, bits % 3 == 0 ? FILL_PLAIN : FILL_SPECIAL, bits,
                                            spreads[bits % 4]});
    for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++) {
        for (uint32_t i = 0; i < 8; i++, turn++)
            try_loss(suite, (struct loss_shape){*n, i % 2 ? FILL_SPECIAL : FILL_PLAIN, turn * 37 % 512,
                                                spreads[turn % 4]});
    }
    try_loss(suite, (struct loss_shape){suite_huge(suite), FILL_SPECIAL, 12, 20.0F});
}
