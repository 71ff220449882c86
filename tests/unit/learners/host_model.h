/* Functions that only the host's model of a device has, not a device's library
 * (tests/cuda_on_host/testing.h). */
#ifndef LEAT_TESTS_UNIT_LEARNERS_HOST_MODEL_H
#define LEAT_TESTS_UNIT_LEARNERS_HOST_MODEL_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A symbol of the open library; NULL if that is a device's library. */
static inline void *host_model_symbol(const char *name)
{
    const char *path = getenv("LEAT_CUDA_LIBRARY");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    return library != NULL ? dlsym(library, name) : NULL;
}

/* Whether the open library is the host's model; call once a library is open. LEAT_CUDA_LIBRARY being set does
 * not tell: it may name a device's library. */
static inline bool is_host_model(void)
{
    static int answer = -1; /* cached: called for each float that is compared */
    if (answer < 0)
        answer = host_model_symbol("cuda_model_begin") != NULL;
    return answer > 0;
}

/* Whether tables get memory in pieces of 2 MiB, as on a device, and not of 64 KiB, as on the host's model
 * (LEAT_CUDA_GRANULE sets its size). Rows that fit into the mapped pieces stay on the device: where pieces
 * are wide, a test with few rows needs wide rows, too, for any to be moved down. */
static inline bool has_wide_pieces(void)
{
    size_t (*granule)(void) = NULL;
    void *symbol = host_model_symbol("cuda_model_granule");
    memcpy(&granule, &symbol, sizeof(granule));
    return granule == NULL || granule() > (size_t)64 << 10;
}

#endif
