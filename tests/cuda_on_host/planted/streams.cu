/* The host, or another stream, reads before the work is done. */
#include "tests/cuda_on_host/planted/planted.h"

static __global__ void write_all(uint32_t *out, uint32_t value)
{
    out[cuda_thread()] = value;
}

static __global__ void add_all(uint32_t *out, const uint32_t *from)
{
    out[cuda_thread()] = from[cuda_thread()] + 1;
}

static void early_host(planted_run *run)
{
    LAUNCH(write_all, 4, 64, 0, run->stream, run->device, 5U);
    cudaMemcpyAsync(run->pinned, run->device, 1024, cudaMemcpyDeviceToHost, run->stream);
    if (!run->has_bug)
        cudaStreamSynchronize(run->stream);
    run->pinned[500] = run->pinned[0];
}

static void overwritten_source(planted_run *run)
{
    for (int i = 0; i < 4; i++)
        run->pinned[i] = 1;
    cudaMemcpyAsync(run->device, run->pinned, 16, cudaMemcpyHostToDevice, run->stream);
    if (!run->has_bug)
        cudaStreamSynchronize(run->stream);
    run->pinned[0] = 2;
}

static void missing_event(planted_run *run)
{
    cudaEvent_t written;
    cudaEventCreateWithFlags(&written, cudaEventDisableTiming);
    LAUNCH(write_all, 4, 64, 0, run->stream, run->device, 5U);
    cudaEventRecord(written, run->stream);
    if (!run->has_bug)
        cudaStreamWaitEvent(run->other, written);
    LAUNCH(add_all, 4, 64, 0, run->other, run->device + 512, run->device);
    cudaEventDestroy(written);
}

static void default_stream(planted_run *run)
{
    LAUNCH(write_all, 4, 64, 0, run->has_bug ? NULL : run->stream, run->device, 5U);
}

static void host_in_device_memory(planted_run *run)
{
    LAUNCH(write_all, 4, 64, 0, run->stream, run->device, 5U);
    cudaStreamSynchronize(run->stream);
    run->pinned[0] = run->has_bug ? run->device[0] : 5U;
}

static void pointer_to_the_stack(planted_run *run)
{
    uint32_t local[64];
    LAUNCH(write_all, 1, 64, 0, run->stream, run->has_bug ? local : run->device, 5U);
    cudaStreamSynchronize(run->stream);
}

const planted planted_streams[] = {
    {"host reads before the stream is there", early_host, PLANTED_DIFFERS, PLANTED_RACE},
    {"host overwrites what is still to be copied", overwritten_source, PLANTED_DIFFERS, PLANTED_RACE},
    {"stream that does not wait for the event of another", missing_event, PLANTED_DIFFERS, PLANTED_RACE},
    {"host reads device memory", host_in_device_memory, "use-after-poison", NULL},
    {"pointer to the stack of the host", pointer_to_the_stack, "neither device nor pinned memory",
     "neither device nor pinned"},
    {"the default stream", default_stream, "name a stream", "name a stream"},
    {NULL, NULL, NULL, NULL},
};
