/* Floats as text: the shortest digits, as the C++ library gives them, which read back as the same float. */
#include "formats/text_simd.h"
#include "formats/text_write.h"

#include "unit/support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check(double value)
{
    char text[TEXT_WRITE_MAX + 1], reference[TEXT_WRITE_MAX];
    size_t length = (size_t)(text_write_float(text, value) - text);
    size_t expected = text_from_double(value, reference);
    assert_true(length <= TEXT_WRITE_MAX);
    bool is_few = fabs(value) < 1e-5 && nearbyint(value * 1e6) / 1e6 == value; /* 0.000001, not 1e-06 */
    if (!is_few && (length != expected || memcmp(text, reference, length) != 0))
        fail_msg("%.17g is written %.*s, not %.*s", value, (int)length, text, (int)expected, reference);
    double back;
    assert_true(text_to_double(text, length, &back) && memcmp(&back, &value, sizeof(value)) == 0);
}

static void check_around(double value)
{
    for (int i = -2; i <= 2; i++) {
        double near = value;
        for (int k = 0; k < abs(i); k++)
            near = nextafter(near, i < 0 ? 0.0 : INFINITY);
        check(near);
        check(-near);
    }
}

static void test_floats(void **state)
{
    (void)state;
    struct test_random random = {11};
    check(0.0);
    check(-0.0);
    for (int power = -1070; power < 1023; power++)
        check_around(ldexp(1.0, power));
    for (int power = -20; power <= 22; power++)
        for (int digit = 1; digit < 10; digit++)
            check_around(digit * pow(10.0, power));
    for (int i = 0; i < 400000; i++) {
        uint64_t drawn = random_next(&random);
        double part = (double)(drawn >> 11) * 0x1p-53;
        check(part);                                                    /* a probability */
        check(-part * pow(10.0, (double)(drawn % 24) - 7.0));           /* around the limits of each form */
        check(nearbyint(part * 1e8) / pow(10.0, (double)(drawn % 13))); /* few digits */
        check((double)(int64_t)(drawn >> 13));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_floats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
