/* Waiting for what must come. */
#ifndef LEAT_TESTS_UNIT_SUPPORT_PATIENCE_H
#define LEAT_TESTS_UNIT_SUPPORT_PATIENCE_H

#include "core/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

/* Only what hangs takes that long: a minute is plenty where nothing else runs, and a loaded machine is up to
 * eight times slower (LEAT_TEST_LOAD in cmake/leat_tests.cmake). */
#define PATIENCE_US (8 * US_PER_MINUTE)

/* Between two looks at a condition: `for (int64_t since = 0; !is_there(); wait_more(&since)) {}`. Fails the
 * test when PATIENCE_US have passed since the first call. */
static inline void wait_more(int64_t *since)
{
    if (*since == 0)
        *since = os_monotonic_us();
    if (os_monotonic_us() - *since > PATIENCE_US)
        fail_msg("it does not come");
    usleep(1000);
}

#endif
