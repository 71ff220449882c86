/* A sink for tests of checkpoints of several workers: `watched` counts rows as `null` does, and tells what it was asked. */
#ifndef LEAT_TESTS_UNIT_RUN_WATCHED_H
#define LEAT_TESTS_UNIT_RUN_WATCHED_H

#include "core/connector.h"
#include "core/registry.h"

#include <stdatomic.h>

/* The built-in kinds, an operator, and `watched`; of a process, each call with the same operator. */
const struct registry *registry_watched(const struct operator_kind *kind);

struct watched {
    atomic_uint fails;  /* so many snapshots fail, of a worker that does not lead */
    atomic_uint failed; /* so many have */
    bool breaks;        /* no row can be written */
    size_t most_parts;  /* in all directories FOLDER/N, when one failed */
    uint32_t fences;    /* calls of `fence`, and what the last one was told: */
    bool knows_next;    /* what the run knows to be out: micro-batches before known_next */
    uint64_t known_next;
    uint8_t run_id[16];
};
/* Of this process; a test sets it before it makes runs. */
extern struct watched watched;

/* How many files there are whose paths match. */
size_t count_files(const char *pattern);

#endif
