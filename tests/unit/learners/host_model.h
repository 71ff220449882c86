/* What the host's model of a device has beside a device's own library (tests/cuda_on_host/testing.h). */
#ifndef TESTS_LEARNERS_HOST_MODEL_H
#define TESTS_LEARNERS_HOST_MODEL_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Of the library that is open; NULL: that is a device's. */
static inline void *host_model_symbol(const char *name)
{
    const char *path = getenv("LEAT_CUDA_LIBRARY");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    return library != NULL ? dlsym(library, name) : NULL;
}

/* Once a library is open. Not by LEAT_CUDA_LIBRARY being set: it may name a device's. */
static inline bool is_host_model(void)
{
    static int answer = -1; /* it is asked for each float that is compared */
    if (answer < 0)
        answer = host_model_symbol("cuda_model_begin") != NULL;
    return answer > 0;
}

/*
 * Whether tables get memory by pieces of 2 MiB, as they do on a device; the host's model has 64 KiB, if
 * nobody asks it for more (LEAT_CUDA_GRANULE). Whatever fits into what is mapped stays there: where pieces
 * are wide, rows have to be wide as well for a test of few of them to see any go down.
 */
static inline bool has_wide_pieces(void)
{
    size_t (*granule)(void) = NULL;
    void *symbol = host_model_symbol("cuda_model_granule");
    memcpy(&granule, &symbol, sizeof granule);
    return granule == NULL || granule() > (size_t)64 << 10;
}

#endif
