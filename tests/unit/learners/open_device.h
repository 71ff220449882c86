/* The device of a plain program of tests, which prints TAP lines: opened once, and used by all its functions. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_OPEN_DEVICE_H
#define LEAT_TESTS_UNIT_LEARNERS_OPEN_DEVICE_H

#include "host_model.h"

#include "kernels/gpu.h"

#include <stdio.h>

static const struct gpu_api *api;
static struct gpu *gpu;
static struct gpu_stream *stream;
static int reports, failures;

static inline void report(bool is_good, const char *what)
{
    printf("%sok - %s\n", is_good ? "" : "not ", what);
    fflush(stdout);
    reports++;
    failures += !is_good;
}

/* Ends the program if a call failed. */
static inline void must(bool is_good, const struct gpu_error *error, const char *what)
{
    if (is_good)
        return;
    printf("Bail out! %s: %s\n", what, error != NULL ? error->text : "?");
    exit(1);
}

/* Opens the first device; false, after a line that says why: there is none, and the program ends with 77. */
static inline bool device_open(void)
{
    struct gpu_error error = {.failure = GPU_OK};
    api = gpu_open_library(NULL, &error);
    gpu = api != NULL ? api->open(0, &error) : NULL;
    stream = gpu != NULL ? api->stream(gpu, &error) : NULL;
    if (stream == NULL)
        printf("1..0 # SKIP %s\n", error.text);
    return stream != NULL;
}

/* Prints the number of tests; returns the program's exit status. */
static inline int device_close(void)
{
    api->stream_free(gpu, stream);
    api->close(gpu);
    printf("1..%d\n", reports);
    return failures > 0;
}

#endif
