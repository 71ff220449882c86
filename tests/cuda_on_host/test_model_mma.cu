/* The model's product on tensor cores (kernels/cuda/mma.cuh): fragments are filled and read by the table of that header, and
 * the matrices compared with plain loops, bit for bit: a wrong row, column or half of a word shows, and so does another
 * order of the sums. Each warp has matrices of its own. */
#include "kernels/cuda/mma.cuh"
#include "tests/cuda_on_host/test_model.h"

enum { ROWS = 16, COLUMNS = 8, DEPTH = 16, WARPS = 2, CALLS = 3 };
enum { A_WORDS = ROWS * DEPTH / 2, B_WORDS = DEPTH * COLUMNS / 2, C_WORDS = ROWS * COLUMNS };

/* a: [row][two columns]; b: [two rows][column], a word each; c: [row][column], to which CALLS products are added. */
static __global__ void multiply(const uint32_t *a, const uint32_t *b, uint32_t *c)
{
    const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint32_t *of_a = a + warp * A_WORDS, *of_b = b + warp * B_WORDS;
    uint32_t *of_c = c + warp * C_WORDS;
    const mma_a x = {
        {of_a[g * 8 + t], of_a[(g + 8) * 8 + t], of_a[g * 8 + t + 4], of_a[(g + 8) * 8 + t + 4]}};
    const mma_b y = {{of_b[t * 8 + g], of_b[(t + 4) * 8 + g]}};
    v16 sums;
    for (uint32_t i = 0; i < 4; i++)
        sums.f[i] = __uint_as_float(of_c[(g + i / 2 * 8) * COLUMNS + 2 * t + i % 2]);
    for (int call = 0; call < CALLS; call++)
        mma_bf16(sums, x, y);
    for (uint32_t i = 0; i < 4; i++)
        of_c[(g + i / 2 * 8) * COLUMNS + 2 * t + i % 2] = __float_as_uint(sums.f[i]);
}

/* Numbers in bf16 of many sizes, so that the order of a sum shows. */
static uint32_t number(uint32_t i)
{
    const uint32_t x = mix(i + 1);
    return (x & 0x807fU) | (120U + (x >> 16 & 15U)) << 7;
}

static float half_of(const words &of, size_t word, size_t number)
{
    return __uint_as_float(of[word] >> 16 * number << 16);
}

static void test_products(cuda_model_output *output)
{
    words a(WARPS * A_WORDS), b(WARPS * B_WORDS), c(WARPS * C_WORDS);
    for (size_t i = 0; i < a.size(); i++)
        a[i] = number(2 * (uint32_t)i) | number(2 * (uint32_t)i + 1) << 16;
    for (size_t i = 0; i < b.size(); i++)
        b[i] = number(5000 + 2 * (uint32_t)i) | number(5001 + 2 * (uint32_t)i) << 16;
    for (size_t i = 0; i < c.size(); i++)
        c[i] = number(9000 + (uint32_t)i) << 16;
    words expected = c;
    for (size_t i = 0; i < expected.size(); i++) {
        const size_t warp = i / C_WORDS, row = i % C_WORDS / COLUMNS, column = i % COLUMNS;
        float sum = __uint_as_float(expected[i]);
        for (size_t k = 0; k < (size_t)CALLS * DEPTH; k++)
            sum = fmaf(half_of(a, warp * A_WORDS + row * 8 + k % DEPTH / 2, k % 2),
                       half_of(b, warp * B_WORDS + k % DEPTH / 2 * 8 + column, k % 2), sum);
        expected[i] = __float_as_uint(sum);
    }
    {
        const device_words on_a(a), on_b(b), on_c(c);
        LAUNCH(multiply, 1, WARPS * 32, 0, stream, on_a.at, on_b.at, on_c.at);
    }
    CHECK(c == expected);
    cuda_model_add(output, c.data(), c.size() * 4);
}

/* Sums of one product, rounded, are the first operand of the next: places stay. */
static void test_operands(cuda_model_output *output)
{
    const v16 left = {{1.0F, 1.00390625F, 3.0F, 4.0F}}, right = {{5.0F, 6.0F, -0.0F, 1.01171875F}};
    const mma_a a = mma_of(left, right);
    CHECK(a.words[0] == 0x3f803f80U); /* 1 + 2^-8: a tie goes to even */
    CHECK(a.words[1] == 0x40804040U);
    CHECK(a.words[2] == 0x40c040a0U);
    CHECK(a.words[3] == 0x3f828000U);
    cuda_model_add(output, a.words, sizeof(a.words));
}

int main(int argc, char **argv)
{
    return run_model_tests(
        argc, argv,
        {{"products are those of plain loops", test_products}, {"sums become operands", test_operands}});
}
