/* A directory of its own for a test, below $TMPDIR or /tmp. */
#ifndef LEAT_TESTS_SUPPORT_TEMPORARY_H
#define LEAT_TESTS_SUPPORT_TEMPORARY_H

#include "core/os.h"

#include <stdlib.h>

enum { TEMPORARY_PATH_BYTES = 256 };

static inline void temporary_make(char path[TEMPORARY_PATH_BYTES])
{
    const char *root = getenv("TMPDIR");
    snprintf(path, TEMPORARY_PATH_BYTES, "%s/leat-test-XXXXXX", root == NULL ? "/tmp" : root);
    leat_assert(mkdtemp(path) != NULL);
}

static inline void temporary_remove(const char *path)
{
    leat_assert(os_remove_tree(path) == 0);
}

#endif
