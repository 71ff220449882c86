/* Learning with 16-bit weights: linear regression by SGD, whose expected loss is known in closed form, by
 * batch_update on rows of each format. With stochastic rounding the loss follows that of fp32; rounded to
 * nearest, learning stalls where steps are below half a unit in the last place, which is why update rounds
 * stochastically. Prints TAP. */
#include "kernels/batch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 16, DIM = 8, BATCH_PLACES = 64, STEPS = 25000, ROW_BYTES = 32 };

struct learner {
    enum row_format format;
    uint64_t seed; /* 0: round to nearest */
    _Alignas(16) unsigned char rows[ROWS][ROW_BYTES];
};

static uint64_t random_state = 6;

/* Uniform in [0, 1). */
static float uniform(void)
{
    random_state += 0x9e3779b97f4a7c15U;
    return (float)(num_mix(random_state) >> 40) * 0x1p-24F;
}

/* Normal with mean 0 and variance 1, as a sum of twelve uniform numbers. */
static float normal(void)
{
    float sum = -6.0F;
    for (int i = 0; i < 12; i++)
        sum += uniform();
    return sum;
}

static float target(uint32_t row, uint32_t i)
{
    return (row + i) % 3 == 0 ? -0.4F : 0.4F;
}

static void weights_of(const struct batch_kernels *k, const struct learner *l, uint32_t row, float *w)
{
    if (l->format == ROW_FP32)
        memcpy(w, l->rows[row], DIM * sizeof(*w));
    else
        k->widen(&(struct batch_widen){(const uint16_t *)(const void *)l->rows[row], DIM, l->format, w},
                 NULL);
}

/* Learns one batch: BATCH_PLACES / ROWS occurrences of each row, in the order of the rows. */
static void step(const struct batch_kernels *k, struct learner *l, uint64_t number)
{
    static const uint32_t count = ROWS;
    float grads[BATCH_PLACES][DIM];
    uint32_t order[BATCH_PLACES], starts[ROWS + 1];
    uint64_t keys[ROWS];
    void *rows[ROWS];
    unsigned char scratch[BATCH_SCRATCH_MIN];
    for (uint32_t row = 0, place = 0; row < ROWS; row++) {
        float w[DIM], x[DIM];
        weights_of(k, l, row, w);
        starts[row] = place;
        rows[row] = l->rows[row];
        keys[row] = row + 1;
        for (; place < (row + 1) * (BATCH_PLACES / ROWS); place++) {
            float error = -normal();
            order[place] = place;
            for (uint32_t i = 0; i < DIM; i++) {
                x[i] = (uniform() - 0.5F) * 3.4641016F;
                error += (w[i] - target(row, i)) * x[i];
            }
            for (uint32_t i = 0; i < DIM; i++)
                grads[place][i] = error * x[i];
        }
        starts[row + 1] = place;
    }
    struct batch_update a = {.in = {&grads[0][0], NULL, NULL, order, starts, &count, BATCH_PLACES, DIM},
                             .rows = rows,
                             .keys = keys,
                             .format = l->format,
                             .kind = OPT_SGD,
                             .params = {.rate = 1e-4F, .step_max = 1.0F},
                             .seed = l->seed ? num_mix(l->seed + number) | 1 : 0,
                             .scratch = scratch};
    k->update(&a, NULL);
}

/* Learns STEPS batches and returns the expected loss: 1 for the noise, plus |w - target|^2,
 * averaged over rows. */
static double learn(const struct batch_kernels *k, enum row_format format, uint64_t seed)
{
    struct learner l = {.format = format, .seed = seed};
    random_state = 6;
    for (uint64_t number = 0; number < STEPS; number++)
        step(k, &l, number);
    double off = 0.0;
    for (uint32_t row = 0; row < ROWS; row++) {
        float w[DIM];
        weights_of(k, &l, row, w);
        for (uint32_t i = 0; i < DIM; i++)
            off += pow((double)w[i] - (double)target(row, i), 2.0);
    }
    return 1.0 + off / ROWS;
}

static int check(bool is_so, const char *what, double loss, double plain)
{
    printf("%sok - %s: loss %.4f, fp32 %.4f\n", is_so ? "" : "not ", what, loss, plain);
    return !is_so;
}

int main(void)
{
    const char *reason;
    const struct kernels *best = kernels_pick_env(&reason);
    const struct batch_kernels *k = NULL;
    for (int v = 0; v < KERNELS_VARIANTS; v++) {
        if (best && kernels_variant((enum kernels_variant)v) == best)
            k = batch_variant((enum kernels_variant)v);
    }
    if (!k) {
        printf("Bail out! %s\n", reason);
        return 1;
    }
    double plain = learn(k, ROW_FP32, 0), bf16 = learn(k, ROW_BF16, 1), fp16 = learn(k, ROW_FP16, 1);
    double nearest = learn(k, ROW_BF16, 0);
    int failed = check(plain < 1.01, "fp32 learns", plain, plain);
    failed += check(fabs(bf16 / plain - 1.0) < 0.01, "bf16 rounded stochastically follows", bf16, plain);
    failed += check(fabs(fp16 / plain - 1.0) < 0.01, "fp16 rounded stochastically follows", fp16, plain);
    failed += check(nearest > 1.05 * plain, "bf16 rounded to nearest stalls", nearest, plain);
    return failed != 0;
}
