/* A registry of kinds whose option tables have every shape that the parser must know: for the tests of lang
 * and the fuzz target. The kinds have no callbacks. */
#ifndef LEAT_TESTS_UNIT_LANG_KINDS_H
#define LEAT_TESTS_UNIT_LANG_KINDS_H

#include "core/registry.h"

extern const struct registry lang_test_registry;

#endif
