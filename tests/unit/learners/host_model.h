/* What the host's model of a device has beside a device's own library (tests/cuda_on_host/testing.h). */
#ifndef TESTS_LEARNERS_HOST_MODEL_H
#define TESTS_LEARNERS_HOST_MODEL_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>

/* Of the library that is open; NULL: that is a device's. */
static inline void *host_model_symbol(const char *name)
{
    const char *path = getenv("LEAT_CUDA_LIBRARY");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    return library != NULL ? dlsym(library, name) : NULL;
}

/* Not by LEAT_CUDA_LIBRARY being set: it may name a device's library. */
static inline bool is_host_model(void)
{
    return host_model_symbol("cuda_model_begin") != NULL;
}

#endif
