/* A new directory for a test, below $TMPDIR or /tmp. */
#ifndef LEAT_TESTS_UNIT_SUPPORT_TEMPORARY_H
#define LEAT_TESTS_UNIT_SUPPORT_TEMPORARY_H

#include "core/os.h"

#include <stdlib.h>
#include <unistd.h>

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

/* Set-up and teardown of tests that work in such a directory; *state is its path. */
static inline int temporary_enter(void **state)
{
    *state = malloc(TEMPORARY_PATH_BYTES);
    leat_assert(*state != NULL);
    temporary_make(*state);
    return chdir(*state);
}

static inline int temporary_leave(void **state)
{
    int status = chdir("/");
    temporary_remove(*state);
    free(*state);
    return status;
}

#endif
