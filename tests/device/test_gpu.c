/* The device library's own functions (gpu.h) on the first device: refused arguments, memory, copies,
 * streams that wait for each other, and the first failure, which is sticky. Prints TAP; exit status 77 if
 * there is no device. */
#include "kernels/gpu.h"
#include "tests/unit/learners/host_model.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 100003, NO_DEVICE_STATUS = 77 };

static unsigned failed;

static void check(bool is_good, const char *what)
{
    printf("%s - %s\n", is_good ? "ok" : "not ok", what);
    failed += !is_good;
}

static void test_refusals(const struct gpu_api *api, struct gpu *gpu)
{
    struct gpu_error error = {0};
    struct gpu_device devices[GPU_DEVICES_MAX];
    int count = api->devices(devices, &error);
    check(count > 0 && devices[0].is_usable && devices[0].capability >= GPU_CAPABILITY_MIN &&
              devices[0].memory_free <= devices[0].memory_bytes && devices[0].name[0] != '\0',
          "devices are described");
    check(api->open(count, &error) == NULL && error.failure == GPU_NO_DEVICE &&
              strstr(error.text, "numbered from 0") != NULL,
          "a device that is not there");
    error = (struct gpu_error){0};
    check(api->open(-1, &error) == NULL && error.failure == GPU_NO_DEVICE, "device -1");
    check(api->open(-1, NULL) == NULL, "nobody asks why");
    error = (struct gpu_error){0};
    check(api->alloc(gpu, (size_t)1 << 50, &error) == NULL && error.failure == GPU_NO_MEMORY &&
              strstr(error.text, "1073741824 MiB of device memory") != NULL &&
              strstr(error.text, "MiB free") != NULL,
          "more memory than there is, and how much there is");
    void *none = api->alloc(gpu, 0, &error), *pinned = api->alloc_pinned(gpu, 0, &error);
    check(none != NULL && pinned != NULL, "no bytes are memory, and the device has not failed");
    api->free(gpu, none);
    api->free_pinned(gpu, pinned);
    api->free(gpu, NULL);
    api->free_pinned(gpu, NULL);
    api->close(NULL);
}

static void test_copies(const struct gpu_api *api, struct gpu *gpu)
{
    struct gpu_error error = {0};
    struct gpu_stream *stream = api->stream(gpu, &error);
    unsigned char *from = api->alloc_pinned(gpu, BYTES, &error), *to = api->alloc_pinned(gpu, BYTES, &error);
    unsigned char *a = api->alloc(gpu, BYTES, &error), *b = api->alloc(gpu, BYTES, &error);
    check(stream != NULL && from != NULL && to != NULL && a != NULL && b != NULL && (uintptr_t)a % 256 == 0 &&
              (uintptr_t)b % 256 == 0,
          "memory of both kinds");
    for (int i = 0; i < BYTES; i++)
        from[i] = (unsigned char)(i * 7 + i / 256);
    memset(to, 0, BYTES);
    api->copy(stream, a, from, BYTES);
    api->copy(stream, b, a, BYTES);
    api->fill(stream, b + 1000, 0xa5, 500);
    api->copy(stream, b, a, 0);
    api->fill(stream, b, 0, 0);
    api->copy(stream, to, b, BYTES);
    check(api->wait(stream, &error), "the stream is waited for");
    memset(from + 1000, 0xa5, 500);
    check(memcmp(from, to, BYTES) == 0, "what was copied there, over and back, with a piece filled");
    api->free_pinned(gpu, from);
    api->free_pinned(gpu, to);
    api->free(gpu, a);
    api->free(gpu, b);
    api->stream_free(gpu, stream);
    api->stream_free(gpu, NULL);
}

static void test_order(const struct gpu_api *api, struct gpu *gpu)
{
    enum { ROUNDS = 20 };
    struct gpu_error error = {0};
    struct gpu_stream *first = api->stream(gpu, &error), *second = api->stream(gpu, &error);
    struct gpu_event *begin = api->event(gpu, &error), *filled = api->event(gpu, &error),
                     *read = api->event(gpu, &error);
    unsigned char *memory = api->alloc(gpu, BYTES, &error),
                  *seen = api->alloc_pinned(gpu, ROUNDS * BYTES, &error);
    check(first != NULL && second != NULL && begin != NULL && filled != NULL && read != NULL &&
              memory != NULL && seen != NULL,
          "two streams and events");
    check(isnan(api->elapsed_ms(begin, filled)), "no time lies between events that were not recorded");
    api->record(begin, first);
    for (int i = 0; i < ROUNDS; i++) {
        api->fill(first, memory, (uint8_t)i, BYTES);
        api->record(filled, first);
        api->wait_event(second, filled);
        api->copy(second, seen + i * BYTES, memory, BYTES);
        api->record(read, second);
        api->wait_event(first, read);
    }
    bool is_right = api->wait_for(read, &error);
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < BYTES; k++)
            is_right &= seen[i * BYTES + k] == i;
    check(is_right, "each stream waits for the other's event");
    check(api->elapsed_ms(begin, read) >= 0.0F, "time between two events");
    api->event_free(gpu, begin);
    api->event_free(gpu, filled);
    api->event_free(gpu, read);
    api->event_free(gpu, NULL);
    api->stream_free(gpu, first);
    api->stream_free(gpu, second);
    api->free(gpu, memory);
    api->free_pinned(gpu, seen);
}

/* A recorded graph is not executed; each launch executes it with the current content of its addresses. */
static void test_graphs(const struct gpu_api *api, struct gpu *gpu)
{
    struct gpu_error error = {0};
    struct gpu_stream *stream = api->stream(gpu, &error);
    unsigned char *memory = api->alloc(gpu, BYTES, &error), *from = api->alloc_pinned(gpu, BYTES, &error),
                  *to = api->alloc_pinned(gpu, BYTES, &error);
    memset(from, 1, BYTES);
    memset(to, 0, BYTES);
    bool is_good = api->graph_begin(stream, &error);
    api->copy(stream, memory, from, BYTES);
    api->fill(stream, memory + 10, 9, 1);
    api->copy(stream, to, memory, BYTES);
    struct gpu_graph *graph = api->graph_end(stream, &error);
    is_good &= api->wait(stream, &error);
    check(is_good && graph != NULL && to[0] == 0, "what is recorded is not done");
    api->graph_launch(stream, graph);
    is_good = api->wait(stream, &error) && to[0] == 1 && to[10] == 9 && to[BYTES - 1] == 1;
    memset(from, 2, BYTES);
    api->graph_launch(stream, graph);
    api->fill(stream, memory, 5, BYTES);
    api->graph_launch(stream, graph);
    is_good &= api->wait(stream, &error) && to[0] == 2 && to[10] == 9 && to[BYTES - 1] == 2;
    check(is_good, "a graph is launched again and again");
    api->graph_free(gpu, graph);
    api->graph_free(gpu, NULL);
    api->stream_free(gpu, stream);
    api->free(gpu, memory);
    api->free_pinned(gpu, from);
    api->free_pinned(gpu, to);
}

/* After a failure nothing works; here a fill of a NULL address fails. */
static void test_first_failure(const struct gpu_api *api, struct gpu *gpu)
{
    struct gpu_error error = {0}, again = {0};
    struct gpu_stream *stream = api->stream(gpu, &error);
    unsigned char *memory = api->alloc(gpu, 16, &error);
    check(api->wait(stream, &error) && error.failure == GPU_OK, "no failure so far");
    api->fill(stream, NULL, 0, 16);
    check(!api->wait(stream, &error) && error.failure == GPU_FAILED &&
              strstr(error.text, "failed in a fill") != NULL && strstr(error.text, "last checkpoint") != NULL,
          "filling what is nowhere is told by the next wait, with what to do");
    check(!api->wait(stream, &again) && strcmp(again.text, error.text) == 0, "and by every other, as it was");
    again = (struct gpu_error){0};
    check(api->alloc(gpu, 16, &again) == NULL && strcmp(again.text, error.text) == 0,
          "there is no memory then");
    check(api->stream(gpu, &again) == NULL && api->event(gpu, &again) == NULL &&
              api->alloc_pinned(gpu, 16, NULL) == NULL,
          "nor streams nor events");
    api->free(gpu, memory);
    api->stream_free(gpu, stream);
}

enum { RECORDINGS = 20, RECORDING_US = 1000 };

/* Another learner's thread, with its own device. */
struct recorder {
    const struct gpu_api *api;
    bool is_good;
    atomic_bool is_done;
};

static void *record_often(void *argument)
{
    struct recorder *r = argument;
    const struct gpu_api *api = r->api;
    struct gpu_error error = {0};
    struct gpu *gpu = api->open(0, &error);
    struct gpu_stream *stream = api->stream(gpu, &error);
    void *memory = api->alloc(gpu, 64, &error);
    bool is_good = stream != NULL && memory != NULL;
    for (int i = 0; i < RECORDINGS && is_good; i++) {
        is_good = api->graph_begin(stream, &error);
        api->fill(stream, memory, 1, 64);
        usleep(RECORDING_US); /* about as long as recording the kernels of a step takes */
        struct gpu_graph *graph = api->graph_end(stream, &error);
        api->graph_launch(stream, graph);
        is_good = is_good && api->wait(stream, &error);
        api->graph_free(gpu, graph);
    }
    api->free(gpu, memory);
    api->stream_free(gpu, stream);
    api->close(gpu);
    r->is_good = is_good;
    atomic_store(&r->is_done, true);
    return NULL;
}

/* Closing waits for the device, which is not allowed while any thread records a graph on it. */
static void test_recording_and_closing(const struct gpu_api *api)
{
    pthread_t thread;
    struct recorder recorder = {.api = api};
    struct gpu_error error = {0};
    bool has_begun = pthread_create(&thread, NULL, record_often, &recorder) == 0, is_open = has_begun;
    while (is_open && !atomic_load(&recorder.is_done)) {
        struct gpu *gpu = api->open(0, &error);
        is_open = gpu != NULL;
        api->close(gpu);
    }
    if (has_begun)
        pthread_join(thread, NULL);
    check(is_open && recorder.is_good, "a learner ends while another one records graphs");
}

/* Products of matrices; on the host's model also without the library, which it can be told to lack. */
static void test_products(const struct gpu_api *api, struct gpu *gpu)
{
    struct gpu_error error = {0};
    void *symbol = host_model_symbol("cuda_model_set_cublas");
    void (*set_cublas)(bool is_there);
    bool can = api->can_matmul(gpu, &error);
    check(can ? error.failure == GPU_OK
              : error.failure == GPU_UNSUPPORTED && strstr(error.text, "LEAT_CUBLASLT") != NULL,
          "products of matrices, or what to install for them");
    if (symbol == NULL)
        return;
    memcpy(&set_cublas, &symbol, sizeof(set_cublas));
    check(can, "the model has them");
    set_cublas(false);
    check(!api->can_matmul(gpu, &error) && error.failure == GPU_UNSUPPORTED &&
              strstr(error.text, "LEAT_CUBLASLT") != NULL && !api->can_matmul(gpu, NULL),
          "a machine without cuBLASLt");
    struct batch_matmul a = {.m = 4, .n = 4, .k = 4};
    struct gpu *other = api->open(0, &error);
    struct gpu_stream *stream = api->stream(other, &error);
    api->kernels->matmul(&a, stream);
    void *memory = api->alloc(other, a.scratch_bytes + 3 * 64, &error);
    a.scratch = memory;
    a.a = (float *)memory + a.scratch_bytes / 4, a.b = a.a + 16,
    a.c = (float *)memory + a.scratch_bytes / 4 + 32;
    api->kernels->matmul(&a, stream);
    check(!api->wait(stream, &error) && error.failure == GPU_FAILED &&
              strstr(error.text, "LEAT_CUBLASLT") != NULL,
          "a product without it is a failure that says so");
    api->free(other, memory);
    api->stream_free(other, stream);
    api->close(other);
    set_cublas(true);
}

int main(void)
{
    struct gpu_error error = {0};
    const struct gpu_api *api = gpu_open_library(NULL, &error);
    struct gpu *gpu = api != NULL ? api->open(0, &error) : NULL;
    if (gpu == NULL) {
        printf("ok - cuda # SKIP no CUDA device: %s\n", error.text);
        return NO_DEVICE_STATUS;
    }
    int library = 0, driver = 0;
    api->versions(&library, &driver);
    check(api->version == GPU_API_VERSION && library >= 13000 && driver >= library / 1000 * 1000, "versions");
    check(gpu_open_library(getenv("LEAT_CUDA_LIBRARY"), &error) == api, "the library is opened once");
    test_refusals(api, gpu);
    test_copies(api, gpu);
    test_order(api, gpu);
    test_graphs(api, gpu);
    test_recording_and_closing(api);
    test_products(api, gpu);
    test_first_failure(api, gpu);
    api->close(gpu);
    gpu = api->open(0, &error);
    check(gpu != NULL, "a device that is opened anew knows nothing of it");
    api->close(gpu);
    return failed > 0;
}
