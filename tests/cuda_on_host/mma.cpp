/* Products on tensor cores (kernels/cuda/mma.cuh): lanes leave the places of their fragments, and the last one that comes
 * multiplies for all. */
#include "tests/cuda_on_host/machine.h"

enum { ROWS = 16, COLUMNS = 8, DEPTH = 16 };

/* A lane's part of the call; c is read and written. */
struct model_fragments {
    const uint32_t *a, *b;
    float *c;
};

static float bf16_at(uint32_t word, unsigned number)
{
    return model_bits<float>(word >> 16 * number << 16);
}

void model_mma(float *c, const uint32_t *a, const uint32_t *b, model_site here)
{
    const model_fragments own = {a, b, c};
    model_warp(MODEL_MMA, ~0U, (uint64_t)(uintptr_t)&own, 0, LANES, here);
}

/* Element by element as PTX numbers them: of a lane, a has eight, b four, c four. */
void mma_multiply(const model_thread *lanes)
{
    float a[ROWS][DEPTH], b[DEPTH][COLUMNS];
    for (unsigned lane = 0; lane < LANES; lane++) {
        const model_fragments *from = (const model_fragments *)(uintptr_t)lanes[lane].value;
        const unsigned group = lane / 4, in_group = lane % 4;
        for (unsigned i = 0; i < 8; i++) {
            const unsigned row = group + (i / 2 % 2) * 8, column = in_group * 2 + i % 2 + i / 4 * 8;
            a[row][column] = bf16_at(from->a[i / 2], i % 2);
        }
        for (unsigned i = 0; i < 4; i++)
            b[in_group * 2 + i % 2 + i / 2 * 8][group] = bf16_at(from->b[i / 2], i % 2);
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        const model_fragments *to = (const model_fragments *)(uintptr_t)lanes[lane].value;
        for (unsigned i = 0; i < 4; i++) {
            const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            float sum = to->c[i];
            for (unsigned k = 0; k < DEPTH; k++)
                sum = fmaf(a[row][k], b[k][column], sum);
            to->c[i] = sum;
        }
    }
}
