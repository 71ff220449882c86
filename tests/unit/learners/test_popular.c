/* Draws of items by how often they occur, to the power of 0.75: their distribution, known shares, items that are forgotten,
 * and equal draws after a restore. */
#include "kernels/num.h"
#include "learners/losses/popular.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ITEMS = 1000, TIMES = 400000, DRAWS = 200000, SPREAD = 3 };

/* Item i occurs with chance proportional to 1 / (i + 1); its number is SPREAD * i. */
static void add_zipf(struct popularity *p, uint64_t times, uint64_t seed)
{
    static double sums[ITEMS];
    for (uint32_t i = 0; i < ITEMS; i++)
        sums[i] = (i > 0 ? sums[i - 1] : 0.0) + 1.0 / (i + 1.0);
    for (uint64_t time = 0; time < times; time++) {
        double u = (double)(num_mix(seed + time) >> 11) * 0x1p-53 * sums[ITEMS - 1];
        uint32_t low = 0, high = ITEMS - 1;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            if (sums[middle] < u)
                low = middle + 1;
            else
                high = middle;
        }
        popularity_add(p, SPREAD * low, time, ITEMS);
    }
}

/* The weight of an item, from the header's formula. */
static double weight_of(const struct popularity *p, uint32_t number)
{
    double share = popularity_share(p, number);
    return share > 0.0 ? fmax(1.0, floor(0x1p32 * pow(share, 0.75))) : 0.0;
}

static void check_draws(const struct popularity *p)
{
    static uint32_t counts[SPREAD * ITEMS];
    double total = 0.0, sum = 0.0;
    uint32_t items = 0;
    memset(counts, 0, sizeof(counts));
    for (uint32_t k = 0; k < DRAWS / 50; k++) {
        uint32_t drawn[50];
        popularity_draws(p, 3, k, 50, drawn);
        for (uint32_t i = 0; i < 50; i++) {
            assert_true(drawn[i] < SPREAD * ITEMS);
            counts[drawn[i]]++;
        }
    }
    for (uint32_t i = 0; i < SPREAD * ITEMS; i++)
        total += weight_of(p, i);
    assert_true(fabs(total - (double)p->total) <= SPREAD * ITEMS); /* a rounding each */
    for (uint32_t i = 0; i < SPREAD * ITEMS; i++) {
        double expected = DRAWS * weight_of(p, i) / total;
        assert_true(expected > 0.0 || counts[i] == 0);
        if (expected > 5.0)
            sum += (counts[i] - expected) * (counts[i] - expected) / expected, items++;
    }
    assert_true(items > ITEMS / 3);
    assert_true(fabs(sum - items) < 5.0 * sqrt(2.0 * items)); /* as chi-square has it */
}

static void test_distribution(void **state)
{
    (void)state;
    struct popularity p;
    popularity_init(&p);
    assert_true(p.total == 0);
    add_zipf(&p, TIMES, 1);
    check_draws(&p);
    double harmonic = 0.0, ratio = 0.0;
    for (uint32_t i = 0; i < ITEMS; i++)
        harmonic += 1.0 / (i + 1.0);
    for (uint32_t i = 0; i < 100;
         i++) /* items that have occurred hundreds of times: shares are near the true ones */
        ratio += popularity_share(&p, SPREAD * i) * harmonic * (i + 1.0) / 100.0;
    assert_true(fabs(ratio - 1.0) < 0.15);
    for (uint32_t i = 0; i < ITEMS; i += 2)
        popularity_forget(&p, SPREAD * i);
    popularity_forget(&p, UINT32_MAX - 1); /* a number that was never there */
    assert_true(popularity_share(&p, 0) == 0.0);
    check_draws(&p);
    popularity_free(&p);
}

static void test_saved(void **state)
{
    (void)state;
    enum { BEFORE = 5000 };
    struct popularity p, restored;
    struct byte_buffer bytes = {0};
    char reason[FREQUENCIES_REASON];
    popularity_init(&p);
    popularity_init(&restored);
    add_zipf(&p, BEFORE, 2);
    popularity_forget(&p, 0);
    popularity_save(&p, &bytes);
    add_zipf(&restored, 100, 9); /* goes */
    assert_true(popularity_restore(&restored, bytes.data, bytes.length, SPREAD * ITEMS, BEFORE, reason));
    assert_true(restored.total == p.total);
    for (uint64_t k = 0; k < 2000; k++) {
        popularity_add(&p, (uint32_t)(k % 40), BEFORE + k, ITEMS);
        popularity_add(&restored, (uint32_t)(k % 40), BEFORE + k, ITEMS);
        assert_int_equal(popularity_draw(&p, num_mix(k)), popularity_draw(&restored, num_mix(k)));
    }
    uint64_t total = restored.total;
    assert_false(popularity_restore(&restored, bytes.data, bytes.length - 1, SPREAD * ITEMS, BEFORE, reason));
    assert_false(popularity_restore(&restored, bytes.data, bytes.length, SPREAD * ITEMS, 3, reason));
    assert_true(restored.total == total);
    buffer_free(&bytes);
    popularity_free(&p);
    popularity_free(&restored);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_distribution), cmocka_unit_test(test_saved)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
