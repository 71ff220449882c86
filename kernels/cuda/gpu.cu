/*
 * The device: opening, memory, streams, events, copies, and the sticky first failure.
 *
 * No ladder: there is no kernel here. Each function makes one call of the CUDA run time; the functions used
 * in a step (record, wait_event, copy, fill) do not wait for the device.
 */
#include "kernels/cuda/cublas.cuh"
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/parts.cuh"

#include <math.h>
#include <new>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool gpu_is_good(gpu *gpu, gpu_error *error)
{
    pthread_mutex_lock(&gpu->lock);
    gpu_error failed = gpu->failed;
    pthread_mutex_unlock(&gpu->lock);
    if (failed.failure == GPU_OK)
        return true;
    if (error != NULL)
        *error = failed;
    return false;
}

/* What the user can do about a failed device besides a restart. */
static const char *advice_of(cudaError_t status)
{
    switch (status) {
    case cudaErrorIllegalAddress:
        return "This is a bug of leat's kernels: please report it, with the output of compute-sanitizer for "
               "the run.";
    case cudaErrorECCUncorrectable:
        return "The device's memory is faulty: `nvidia-smi -q -d ECC,ROW_REMAPPER` counts the errors; if "
               "they come again, reset or replace the device.";
    case cudaErrorUnsupportedPtxVersion:
        return "The driver is older than the nvcc that built leat's library: install a later driver, or "
               "build with an nvcc of the CUDA that `nvidia-smi` shows.";
    default: return "`nvidia-smi` shows whether the device is still there, the kernel's log (Xid) its error.";
    }
}

bool gpu_note(gpu *gpu, cudaError_t status, const char *what)
{
    if (status == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    pthread_mutex_lock(&gpu->lock);
    if (gpu->failed.failure == GPU_OK)
        gpu_refuse(
            &gpu->failed, GPU_FAILED,
            "Device %d failed in %s: %s (%s). No data on it can be trusted any more: the process must end "
            "and start again from its last checkpoint. %s",
            gpu->device, what, cudaGetErrorString(status), cudaGetErrorName(status), advice_of(status));
    pthread_mutex_unlock(&gpu->lock);
    return false;
}

void gpu_fail(gpu *gpu, const char *format, ...)
{
    char text[sizeof(gpu->failed.text)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&gpu->lock);
    if (gpu->failed.failure == GPU_OK)
        gpu_refuse(&gpu->failed, GPU_FAILED, "%s", text);
    pthread_mutex_unlock(&gpu->lock);
}

bool gpu_launched(void *stream, const char *kernel)
{
    return gpu_note(static_cast<gpu_stream *>(stream)->gpu, cudaGetLastError(), kernel);
}

/* --- Opening --- */

static gpu *gpu_open(int device, gpu_error *error)
{
    int count = gpu_count(error);
    if (count < 0)
        return NULL;
    if (device < 0 || device >= count) {
        gpu_refuse(error, GPU_NO_DEVICE,
                   "Device %d was requested, but there %s %d, numbered from 0. `leat help device` lists the "
                   "devices; CUDA_VISIBLE_DEVICES may hide some.",
                   device, count == 1 ? "is" : "are", count);
        return NULL;
    }
    gpu_device described;
    if (!gpu_describe(device, &described)) {
        if (error != NULL)
            *error = described.why;
        return NULL;
    }
    gpu *opened = new (std::nothrow) gpu{};
    if (opened == NULL) {
        gpu_refuse(error, GPU_NO_MEMORY, "The host has no memory left.");
        return NULL;
    }
    opened->device = device;
    opened->multiprocessors = described.multiprocessors;
    pthread_mutex_init(&opened->lock, NULL);
    return opened;
}

/* Held while a thread records a graph or waits for a device. A wait during a recording would make both fail,
 * a sticky failure of the device. */
static pthread_mutex_t gpu_recording = PTHREAD_MUTEX_INITIALIZER;

void gpu_drain(gpu *gpu, const char *what)
{
    gpu_use(gpu);
    pthread_mutex_lock(&gpu_recording);
    cudaError_t status = cudaDeviceSynchronize();
    pthread_mutex_unlock(&gpu_recording);
    gpu_note(gpu, status, what);
}

static void gpu_close(gpu *gpu)
{
    if (gpu == NULL)
        return;
    gpu_drain(gpu, "close");
    pthread_mutex_lock(&gpu_recording); /* cuBLASLt waits for the device, too */
    cublas_close(gpu);
    pthread_mutex_unlock(&gpu_recording);
    pthread_mutex_destroy(&gpu->lock);
    delete gpu;
}

/* --- Memory --- */

/* Returns `memory`, or NULL with `error` set. Any failure but out of memory is a failure of the device. */
static void *allocated(gpu *gpu, void *memory, cudaError_t status, size_t bytes, const char *where,
                       gpu_error *error)
{
    if (status == cudaSuccess)
        return memory;
    if (status != cudaErrorMemoryAllocation) {
        gpu_note(gpu, status, "an allocation");
        gpu_is_good(gpu, error);
        return NULL;
    }
    (void)cudaGetLastError();
    size_t free_bytes = 0, all_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &all_bytes) != cudaSuccess)
        (void)cudaGetLastError();
    gpu_refuse(error, GPU_NO_MEMORY,
               "%zu MiB of %s cannot be allocated; device %d has %zu of %zu MiB free. Make tables or batches "
               "smaller, or end other processes that use the device.",
               (bytes + (1 << 20) - 1) >> 20, where, gpu->device, free_bytes >> 20, all_bytes >> 20);
    return NULL;
}

static void *gpu_alloc(gpu *gpu, size_t bytes, gpu_error *error)
{
    if (!gpu_is_good(gpu, error))
        return NULL;
    void *memory = NULL;
    gpu_use(gpu);
    cudaError_t status = cudaMalloc(&memory, bytes > 0 ? bytes : 1);
    return allocated(gpu, memory, status, bytes, "device memory", error);
}

static void gpu_free(gpu *gpu, void *memory)
{
    if (memory == NULL)
        return;
    gpu_use(gpu);
    gpu_note(gpu, cudaFree(memory), "free");
}

static void *gpu_alloc_pinned(gpu *gpu, size_t bytes, gpu_error *error)
{
    if (!gpu_is_good(gpu, error))
        return NULL;
    void *memory = NULL;
    gpu_use(gpu);
    cudaError_t status = cudaMallocHost(&memory, bytes > 0 ? bytes : 1);
    return allocated(gpu, memory, status, bytes, "pinned host memory", error);
}

static void gpu_free_pinned(gpu *gpu, void *memory)
{
    if (memory == NULL)
        return;
    gpu_use(gpu);
    gpu_note(gpu, cudaFreeHost(memory), "free_pinned");
}

static uint64_t gpu_memory_free(gpu *gpu)
{
    size_t free_bytes = 0, all_bytes = 0;
    gpu_use(gpu);
    gpu_note(gpu, cudaMemGetInfo(&free_bytes, &all_bytes), "memory_free");
    return free_bytes;
}

/* --- Streams and events --- */

static gpu_stream *stream_new(gpu *gpu, gpu_error *error)
{
    if (!gpu_is_good(gpu, error))
        return NULL;
    gpu_stream *made = new (std::nothrow) gpu_stream{gpu, NULL};
    if (made == NULL) {
        gpu_refuse(error, GPU_NO_MEMORY, "The host has no memory left.");
        return NULL;
    }
    gpu_use(gpu);
    if (!gpu_note(gpu, cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking),
                  "creating a stream")) {
        gpu_is_good(gpu, error);
        delete made;
        return NULL;
    }
    return made;
}

static void stream_free(gpu *gpu, gpu_stream *stream)
{
    if (stream == NULL)
        return;
    gpu_use(gpu);
    gpu_note(gpu, cudaStreamSynchronize(stream->stream), "destroying a stream");
    gpu_note(gpu, cudaStreamDestroy(stream->stream), "destroying a stream");
    delete stream;
}

static gpu_event *event_new(gpu *gpu, gpu_error *error)
{
    if (!gpu_is_good(gpu, error))
        return NULL;
    gpu_event *made = new (std::nothrow) gpu_event{gpu, NULL};
    if (made == NULL) {
        gpu_refuse(error, GPU_NO_MEMORY, "The host has no memory left.");
        return NULL;
    }
    gpu_use(gpu);
    if (!gpu_note(gpu, cudaEventCreate(&made->event), "creating an event")) {
        gpu_is_good(gpu, error);
        delete made;
        return NULL;
    }
    return made;
}

static void event_free(gpu *gpu, gpu_event *event)
{
    if (event == NULL)
        return;
    gpu_use(gpu);
    gpu_note(gpu, cudaEventDestroy(event->event), "destroying an event");
    delete event;
}

static void event_record(gpu_event *event, gpu_stream *stream)
{
    gpu_note(event->gpu, cudaEventRecord(event->event, gpu_cuda_stream(stream)), "record");
}

static void stream_wait_event(gpu_stream *stream, gpu_event *event)
{
    gpu_note(stream->gpu, cudaStreamWaitEvent(gpu_cuda_stream(stream), event->event, 0), "wait_event");
}

static bool stream_wait(gpu_stream *stream, gpu_error *error)
{
    gpu_note(stream->gpu, cudaStreamSynchronize(gpu_cuda_stream(stream)), "wait");
    return gpu_is_good(stream->gpu, error);
}

static bool event_wait(gpu_event *event, gpu_error *error)
{
    gpu_use(event->gpu);
    gpu_note(event->gpu, cudaEventSynchronize(event->event), "wait_for");
    return gpu_is_good(event->gpu, error);
}

static float event_elapsed_ms(gpu_event *from, gpu_event *to)
{
    float ms = 0.0F;
    gpu_use(from->gpu);
    if (cudaEventElapsedTime(&ms, from->event, to->event) == cudaSuccess)
        return ms;
    (void)cudaGetLastError(); /* not done yet: no failure of the device */
    return NAN;
}

/* --- Copies --- */

static void stream_copy(gpu_stream *stream, void *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        gpu_note(stream->gpu, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, gpu_cuda_stream(stream)),
                 "a copy");
}

static void stream_fill(gpu_stream *stream, void *to, uint8_t byte, size_t bytes)
{
    if (bytes > 0)
        gpu_note(stream->gpu, cudaMemsetAsync(to, byte, bytes, gpu_cuda_stream(stream)), "a fill");
}

/* --- Graphs --- */

struct gpu_graph {
    cudaGraphExec_t graph;
};

static bool graph_begin(gpu_stream *stream, gpu_error *error)
{
    /* thread-local: other threads' calls are not recorded, and may wait for their own streams */
    pthread_mutex_lock(&gpu_recording);
    if (gpu_note(stream->gpu,
                 cudaStreamBeginCapture(gpu_cuda_stream(stream), cudaStreamCaptureModeThreadLocal),
                 "recording a graph"))
        return true;
    pthread_mutex_unlock(&gpu_recording);
    return gpu_is_good(stream->gpu, error);
}

static gpu_graph *graph_end(gpu_stream *stream, gpu_error *error)
{
    cudaGraph_t recorded = NULL;
    cudaGraphExec_t graph = NULL;
    bool is_good =
        gpu_note(stream->gpu, cudaStreamEndCapture(gpu_cuda_stream(stream), &recorded), "recording a graph");
    pthread_mutex_unlock(&gpu_recording);
    is_good = is_good && gpu_note(stream->gpu, cudaGraphInstantiate(&graph, recorded, 0), "creating a graph");
    if (recorded != NULL)
        gpu_note(stream->gpu, cudaGraphDestroy(recorded), "creating a graph");
    gpu_graph *made = is_good ? new (std::nothrow) gpu_graph{graph} : NULL;
    if (made == NULL && gpu_is_good(stream->gpu, error))
        gpu_refuse(error, GPU_NO_MEMORY, "The host has no memory left.");
    return made;
}

static void graph_launch(gpu_stream *stream, gpu_graph *graph)
{
    gpu_note(stream->gpu, cudaGraphLaunch(graph->graph, gpu_cuda_stream(stream)), "a graph");
}

static void graph_free(gpu *gpu, gpu_graph *graph)
{
    if (graph == NULL)
        return;
    gpu_use(gpu);
    gpu_note(gpu, cudaGraphExecDestroy(graph->graph), "destroying a graph");
    delete graph;
}

/* The exported table of functions; kernels and table functions are declared in cuda/parts.cuh. */
static const gpu_api api = {
    GPU_API_VERSION, &cuda_kernels,    gpu_devices,  gpu_versions,     gpu_open,          gpu_close,
    gpu_memory_free, gpu_alloc,        gpu_free,     gpu_alloc_pinned, gpu_free_pinned,   stream_new,
    stream_free,     event_new,        event_free,   event_record,     stream_wait_event, stream_wait,
    event_wait,      event_elapsed_ms, stream_copy,  stream_fill,      &cuda_tables,      cublas_can,
    graph_begin,     graph_end,        graph_launch, graph_free,
};

extern "C" const gpu_api *leat_gpu_api(void)
{
    return &api;
}
