/* cmocka, after the headers that it needs. */
#ifndef LEAT_TESTS_UNIT_CORE_CMOCKA_ALL_H
#define LEAT_TESTS_UNIT_CORE_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
