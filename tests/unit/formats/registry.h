/* registry.py as a process of its own, for tests. */
#ifndef LEAT_TESTS_FORMATS_REGISTRY_H
#define LEAT_TESTS_FORMATS_REGISTRY_H

#include <stdio.h>
#include <sys/types.h>

struct registry {
    pid_t pid;
    FILE *out;
    int in;
    char url[64];
};

/* what: as registry.py describes it. */
void registry_open(struct registry *registry, const char *what);
/* Ends it; what it was asked, a path a line. */
void registry_close(struct registry *registry, char *asked, size_t room);

#endif
