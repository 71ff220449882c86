/*
 * Learning with weights of sixteen bits: linear regression by SGD, whose expected loss is known in closed
 * form, with updates of batch.h on rows of each format. Rounded stochastically it follows fp32; to nearest it
 * stalls where steps are below half a unit in the last place: why update rounds as it does. Prints TAP.
 */
#include "kernels/batch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 16, DIM = 8, BATCH_PLACES = 64, STEPS = 25000, ROW_BYTES = 32 };

struct learner {
    enum row_format format;
    uint64_t seed; /* 0: to nearest */
    _Alignas(16) unsigned char rows[ROWS][ROW_BYTES];
};

static uint64_t random_state = 6;

/* In [0, 1). */
static float uniform(void)
{
    random_state += 0x9e3779b97f4a7c15U;
    return (float)(num_mix(random_state) >> 40) * 0x1p-24F;
}

/* Mean 0, variance 1; a sum of twelve. */
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
        memcpy(w, l->rows[row], DIM * sizeof *w);
    else
        k->widen(&(struct batch_widen){(const uint16_t *)(const void *)l->rows[row], DIM, l->format, w},
                 NULL);
}

/* One batch: places in the order of their rows, as many of each. */
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

/* The expected loss after learning: the noise's 1, and |w - target|^2, of the mean row. */
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
