/* Runs registry.py, a small Schema Registry, as a child process. */
#ifndef LEAT_TESTS_UNIT_FORMATS_REGISTRY_H
#define LEAT_TESTS_UNIT_FORMATS_REGISTRY_H

#include <stdio.h>
#include <sys/types.h>

struct registry {
    pid_t pid;
    FILE *out;
    int in;
    char url[64];
};

/* Starts it. what: the argument that registry.py describes: schemas and faults, as JSON. */
void registry_open(struct registry *registry, const char *what);
/* Ends it. asked: gets the paths of the requests, a line each, at most room - 1 bytes. */
void registry_close(struct registry *registry, char *asked, size_t room);

#endif
