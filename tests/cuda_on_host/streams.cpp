/* The run time's streams. A stream is a queue of work. Queued work is done by later calls: how much of
 * it, and of which stream, is chosen by the seed, but all work that a thread waits for is done before
 * its wait returns. */
#include <deque>
#include <map>
#include <memory>
#include <stdlib.h>
#include <thread>
#include <time.h>
#include <vector>

#include "tests/cuda_on_host/runtime_internal.h"
#include "tests/cuda_on_host/sanitizers.h"
#include "tests/cuda_on_host/testing.h"

struct event_state {
    uint64_t recorded, done; /* how often it was recorded; how many of these records the stream has reached */
    double at_ms;
    char sync;
};

struct CUevent_st {
    std::shared_ptr<event_state> state;
    bool has_time;
};

struct stream_work {
    std::function<void()> act;
    std::shared_ptr<event_state> wait_for; /* may begin when this event's `done` has reached wait_times */
    uint64_t wait_times;
    char sync;
};

/* The work of a graph, in its order. */
struct CUgraph_st {
    std::vector<std::function<void()>> acts;
};
struct CUgraphExec_st {
    std::vector<std::function<void()>> acts;
};

struct CUstream_st {
    std::deque<std::unique_ptr<stream_work>> queue;
    CUgraph_st *recorded; /* NULL: the stream does not record */
    std::thread::id recorder;
    void *tsan;
    char sync;
};

enum eagerness { WHEN_WAITED_FOR, AT_ONCE, SOMETIME };

static std::vector<CUstream_st *> streams;
static std::map<const void *, size_t> shared_allowed; /* by kernel */
static eagerness when;
static double now_ms;

void streams_begin(void)
{
    for (const CUstream_st *stream : streams) {
        if (!stream->queue.empty() && runtime_sticky == cudaSuccess) {
            model_report(NULL, "cuda_model_begin: a stream still has work that nobody waited for");
        }
    }
    when = (eagerness)random_below(&run.random, 3);
}

/* --- Doing what was queued --- */
static bool can_begin(const CUstream_st *stream)
{
    const stream_work *work = stream->queue.empty() ? NULL : stream->queue.front().get();
    return work != NULL && (work->wait_for == NULL || work->wait_for->done >= work->wait_times);
}

static void do_one(CUstream_st *stream)
{
    std::unique_ptr<stream_work> taken = std::move(stream->queue.front());
    stream->queue.pop_front();
    timespec now; /* on the stack before the switch: TSan would take it for memory that the device writes */
    clock_gettime(CLOCK_MONOTONIC, &now);
    now_ms = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
    /* The device's work does not belong to the host thread that does it. */
    const tsan_as device(stream->tsan);
    const std::unique_ptr<stream_work> work = std::move(taken);
    tsan_acquire(&work->sync);
    if (work->wait_for != NULL) {
        tsan_acquire(&work->wait_for->sync);
    }
    if (work->act && runtime_sticky == cudaSuccess) {
        memory_hide(false);
        work->act();
        memory_hide(true);
    }
    tsan_release(&stream->sync);
}

/* Does a piece of work of a stream that the seed chooses. Returns false if no stream's next
 * work can begin. */
static bool do_any(void)
{
    const size_t first = streams.empty() ? 0 : random_below(&run.random, (uint32_t)streams.size());
    for (size_t i = 0; i < streams.size(); i++) {
        CUstream_st *stream = streams[(first + i) % streams.size()];
        if (can_begin(stream)) {
            do_one(stream);
            return true;
        }
    }
    return false;
}

static void do_some(void)
{
    switch (when) {
    case WHEN_WAITED_FOR: break;
    case AT_ONCE:
        while (do_any()) {
        }
        break;
    case SOMETIME:
        while (random_below(&run.random, 2) == 0 && do_any()) {
        }
        break;
    }
}

static uint64_t waits;

extern "C" uint64_t cuda_model_waits(void)
{
    const std::lock_guard<std::recursive_mutex> guard(runtime_lock);
    return waits;
}

static void drain(CUstream_st *stream)
{
    if (stream->recorded != NULL) {
        model_report(NULL, "somebody waits for a stream that records a graph");
    }
    while (!stream->queue.empty()) {
        if (!do_any()) {
            model_report(NULL, "a stream waits for an event that never comes");
        }
    }
    tsan_acquire(&stream->sync);
}

/* Work that another thread records is not queued yet. A thread that records
 * (cudaStreamCaptureModeThreadLocal) must not call what waits for all streams; other threads may. */
void streams_drain_all(void)
{
    waits++;
    for (CUstream_st *stream : streams) {
        if (stream->recorded == NULL || stream->recorder == std::this_thread::get_id()) {
            drain(stream);
        }
    }
}

static void queue(CUstream_st *stream, std::function<void()> act,
                  std::shared_ptr<event_state> wait_for = nullptr)
{
    if (stream == NULL) {
        model_report(NULL, "work for the default stream: name a stream");
    }
    if (stream->recorded != NULL) {
        if (wait_for != nullptr || !act) {
            model_report(NULL, "a graph cannot have events here");
        }
        stream->recorded->acts.push_back(std::move(act));
        return;
    }
    std::unique_ptr<stream_work> work(new stream_work());
    work->act = std::move(act);
    work->wait_times = wait_for != nullptr ? wait_for->recorded : 0;
    work->wait_for = std::move(wait_for);
    tsan_release(&work->sync);
    stream->queue.push_back(std::move(work));
    do_some();
}

void streams_queue(CUstream_st *stream, std::function<void()> act)
{
    ENTER();
    if (runtime_sticky == cudaSuccess) {
        queue(stream, std::move(act));
    }
}

/* Not allowed for any thread while a stream of the device records. */
cudaError_t cudaDeviceSynchronize(void)
{
    ENTER_UNLESS_FAILED();
    waits++;
    for (CUstream_st *stream : streams) {
        drain(stream);
    }
    return runtime_sticky;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    ENTER_UNLESS_FAILED();
    const memory_kind target = memory_of(to), source = memory_of(from);
    const bool to_device = target == MEMORY_DEVICE, from_device = source == MEMORY_DEVICE;
    if (bytes == 0) {
        return cudaSuccess;
    }
    if (kind != cudaMemcpyDefault &&
        (to_device != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
         from_device != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice))) {
        return runtime_fail(cudaErrorInvalidValue);
    }
    if (source == MEMORY_PAGEABLE) { /* read at once, as CUDA may */
        auto staged = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
        queue(stream, [to, staged = std::move(staged)] { memcpy(to, staged->data(), staged->size()); });
    } else {
        queue(stream, [to, from, bytes] { memcpy(to, from, bytes); });
    }
    if (target == MEMORY_PAGEABLE) {
        waits++;
        drain(stream);
    }
    return runtime_sticky;
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream)
{
    ENTER_UNLESS_FAILED();
    if (bytes > 0 && memory_of(to) == MEMORY_PAGEABLE) {
        return runtime_fail(cudaErrorInvalidValue);
    }
    queue(stream, [to, byte, bytes] { memset(to, byte, bytes); });
    return runtime_sticky;
}

/* --- Streams and events --- */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    ENTER_UNLESS_FAILED();
    *stream = new CUstream_st();
#ifdef MODEL_TSAN
    (*stream)->tsan = __tsan_create_fiber(0);
#endif
    streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    ENTER();
    drain(stream);
    for (size_t i = 0; i < streams.size(); i++) {
        if (streams[i] == stream) {
            streams.erase(streams.begin() + (ptrdiff_t)i);
            break;
        }
    }
#ifdef MODEL_TSAN
    __tsan_destroy_fiber(stream->tsan);
#endif
    delete stream;
    return runtime_sticky;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ENTER_UNLESS_FAILED();
    waits++;
    drain(stream);
    return runtime_sticky;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    ENTER_UNLESS_FAILED();
    if (!stream->queue.empty() && random_below(&run.random, 2) == 0) {
        do_any();
    }
    if (!stream->queue.empty()) {
        return cudaErrorNotReady;
    }
    tsan_acquire(&stream->sync);
    return runtime_sticky;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    ENTER_UNLESS_FAILED();
    queue(stream, nullptr, event->state);
    return runtime_sticky;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    ENTER_UNLESS_FAILED();
    *event = new CUevent_st{std::make_shared<event_state>(), (flags & cudaEventDisableTiming) == 0};
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    ENTER();
    delete event;
    return runtime_sticky;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER_UNLESS_FAILED();
    if (stream->recorded != NULL) {
        model_report(NULL, "a graph cannot have events here");
    }
    const std::shared_ptr<event_state> state = event->state;
    const uint64_t times = ++state->recorded;
    queue(stream, [state, times] {
        state->at_ms = now_ms;
        state->done = times;
        tsan_release(&state->sync);
    });
    return runtime_sticky;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ENTER_UNLESS_FAILED();
    waits++;
    while (event->state->done < event->state->recorded && runtime_sticky == cudaSuccess && do_any()) {
    }
    tsan_acquire(&event->state->sync);
    return runtime_sticky;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ENTER_UNLESS_FAILED();
    if (event->state->done < event->state->recorded && random_below(&run.random, 2) == 0) {
        do_any();
    }
    if (event->state->done < event->state->recorded) {
        return cudaErrorNotReady;
    }
    tsan_acquire(&event->state->sync);
    return runtime_sticky;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    ENTER_UNLESS_FAILED();
    if (!from->has_time || !to->has_time || from->state->recorded == 0 || to->state->recorded == 0) {
        return runtime_fail(cudaErrorInvalidResourceHandle);
    }
    if (from->state->done < from->state->recorded || to->state->done < to->state->recorded) {
        return cudaErrorNotReady;
    }
    *milliseconds = (float)(to->state->at_ms - from->state->at_ms);
    return cudaSuccess;
}

/* --- Graphs --- */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    ENTER_UNLESS_FAILED();
    if (stream->recorded != NULL) {
        return runtime_fail(cudaErrorIllegalState);
    }
    stream->recorded = new CUgraph_st();
    stream->recorder = std::this_thread::get_id();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    ENTER();
    *graph = stream->recorded;
    stream->recorded = NULL;
    return *graph == NULL ? runtime_fail(cudaErrorIllegalState) : runtime_sticky;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long)
{
    ENTER_UNLESS_FAILED();
    *executable = new CUgraphExec_st{graph->acts};
    return cudaSuccess;
}

/* A graph's parts run in their order; parts that a device might run at the same time are not detected. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    ENTER_UNLESS_FAILED();
    for (const std::function<void()> &act : graph->acts) {
        queue(stream, act);
    }
    return runtime_sticky;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    ENTER();
    delete graph;
    return runtime_sticky;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    ENTER();
    delete graph;
    return runtime_sticky;
}

/* --- Kernels --- */
cudaError_t model_func_set_attribute(const void *kernel, cudaFuncAttribute attribute, int value)
{
    ENTER_UNLESS_FAILED();
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || value > SHARED_BYTES_OPTIN) {
            return runtime_fail(cudaErrorInvalidValue);
        }
        shared_allowed[kernel] = (size_t)value;
    }
    return cudaSuccess;
}

void model_check_pointer(const char *kernel, const void *address)
{
    const std::lock_guard<std::recursive_mutex> guard(runtime_lock);
    if (!memory_is_for_kernels(address)) {
        model_report(NULL, "kernel %s is given the pointer %p, which is neither device nor pinned memory",
                     kernel, address);
    }
}

static bool is_planted_launch(void)
{
    return run.launches_to_failure > 0 && --run.launches_to_failure == 0;
}

void model_queue_launch(const char *kernel, const void *address, dim3 grid, dim3 block, size_t shared_bytes,
                        cudaStream_t stream, std::function<void()> call)
{
    ENTER();
    const auto allowed = shared_allowed.find(address);
    const bool is_allowed_more = allowed != shared_allowed.end();
    const size_t shared_max = max(is_allowed_more ? allowed->second : 0, (size_t)SHARED_BYTES_MAX);
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (runtime_sticky != cudaSuccess) {
        return;
    }
    if (threads == 0 || threads > THREADS_MAX || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
        grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535 || block.z > 64) {
        runtime_fail(cudaErrorInvalidConfiguration);
        return;
    }
    if (shared_bytes > shared_max) {
        runtime_fail(cudaErrorInvalidValue);
        return;
    }
    const bool is_recorded =
        /* A recorded launch counts when its graph is launched. */
        stream != NULL && stream->recorded != NULL;
    const bool fails = !is_recorded && is_planted_launch();
    const uint64_t seed = random_next(&run.random);
    queue(stream, [=] {
        const size_t block_max = is_allowed_more ? SHARED_BYTES_OPTIN : SHARED_BYTES_MAX;
        model_launch_now now = {kernel, grid, block, shared_bytes, block_max, &call, {seed}};
        if (fails || (is_recorded && is_planted_launch())) {
            runtime_sticky = run.launch_error;
        } else {
            scheduler_run(&now);
        }
    });
}
