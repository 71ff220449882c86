/* Launches of all shapes, against plain loops: 100,000 blocks, three dimensions, a chain through all blocks,
 * all of the shared memory, atomics in it, launches that a device refuses, streams and events. */
#include "tests/cuda_on_host/test_model.h"

#include <algorithm>
#include <numeric>
#include <thread>

/* --- 100,000 blocks, three dimensions, a chain through all blocks in the order of their tickets --- */
static __global__ void many_blocks(uint32_t *out)
{
    out[blockIdx.x] = mix(blockIdx.x) + gridDim.x;
}

static __global__ void in_space(uint32_t *out, uint32_t *count)
{
    size_t block = blockIdx.x + (size_t)gridDim.x * (blockIdx.y + (size_t)gridDim.y * blockIdx.z);
    size_t thread = threadIdx.x + (size_t)blockDim.x * (threadIdx.y + (size_t)blockDim.y * threadIdx.z);
    size_t i = block * blockDim.x * blockDim.y * blockDim.z + thread;
    out[i] = (uint32_t)(block * 1000 + thread);
    unsigned lanes = __ballot_sync(WARP_ALL, 1);
    if (thread % 32 == 0)
        atomicAdd(count, __popc(lanes));
}

/* Inclusive prefix sums of x: blocks take tickets, and each waits for the block with the ticket before. */
static __global__ void chain(const uint32_t *x, uint32_t *sums, uint32_t *ticket, uint32_t *state)
{
    SHARED(uint32_t[2], block);
    if (threadIdx.x == 0)
        block[0] = atomicAdd(ticket, 1);
    __syncthreads();
    uint32_t at = block[0] * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, sum = x[at];
    for (uint32_t by = 1; by < 32; by *= 2) {
        uint32_t before = __shfl_up_sync(WARP_ALL, sum, by);
        sum += lane >= by ? before : 0;
    }
    if (threadIdx.x == 31) {
        uint32_t before = 0;
        if (block[0] > 0) {
            while ((before = atomicAdd(state + block[0] - 1, 0)) == 0)
                __nanosleep(100);
        }
        __threadfence();
        atomicExch(state + block[0], sum + (before ? before : 1));
        block[1] = before ? before - 1 : 0;
    }
    __syncthreads();
    sums[at] = sum + block[1];
}

static void try_grids(cuda_model_output *output)
{
    words out(100000), plain(100000);
    for (uint32_t b = 0; b < 100000; b++)
        plain[b] = mix(b) + 100000;
    {
        device_words d(out);
        LAUNCH(many_blocks, 100000, 1, 0, stream, d.at);
    }
    CHECK(out == plain);
    words space(4 * 3 * 2 * 64), count(1, 0);
    {
        device_words d(space), c(count);
        LAUNCH(in_space, dim3(4, 3, 2), dim3(8, 4, 2), 0, stream, d.at, c.at);
    }
    for (uint32_t i = 0; i < space.size(); i++)
        CHECK(space[i] == i / 64 * 1000 + i % 64);
    CHECK(count[0] == space.size());
    words x(32 * 300), sums(x.size()), ticket(1, 0), state(300, 0), expected(x.size());
    for (uint32_t i = 0; i < x.size(); i++)
        x[i] = mix(i) % 100;
    std::partial_sum(x.begin(), x.end(), expected.begin());
    {
        device_words dx(x), ds(sums), dt(ticket), dstate(state);
        LAUNCH(chain, 300, 32, 0, stream, dx.at, ds.at, dt.at, dstate.at);
    }
    CHECK(sums == expected);
    cuda_model_add(output, out.data(), out.size() * 4);
    cuda_model_add(output, sums.data(), sums.size() * 4);
}

/* --- All of the shared memory, and atomics in it --- */
static __global__ void reverse_all(uint32_t *out, uint32_t n)
{
    SHARED_DYNAMIC(uint32_t, all);
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        all[i] = mix(i + blockIdx.x);
    __syncthreads();
    uint32_t sum = 0;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        sum = sum * 31 + all[n - 1 - i];
    out[cuda_thread()] = sum;
}

static __global__ void count_in_shared(const uint32_t *x, uint32_t n, uint32_t *bins, uint32_t *ends)
{
    SHARED(uint32_t[64], count);
    SHARED(uint32_t, least);
    SHARED(uint64_t, most);
    if (threadIdx.x < 64)
        count[threadIdx.x] = 0;
    if (threadIdx.x == blockDim.x - 1)
        least = UINT32_MAX, most = 0;
    __syncthreads();
    for (uint32_t i = (uint32_t)cuda_thread(); i < n; i += blockDim.x * gridDim.x) {
        atomicAdd(&count[x[i] % 64], 1);
        atomicMin(&least, x[i]);
        uint64_t key = (uint64_t)x[i] << 32 | i;
        unsigned long long *at = (unsigned long long *)&most, old = atomicAdd(at, 0), seen;
        while (old < key && (seen = atomicCAS(at, old, key)) != old)
            old = seen;
    }
    __syncthreads();
    if (threadIdx.x < 64)
        atomicAdd(&bins[threadIdx.x], count[threadIdx.x]);
    if (threadIdx.x == 0) {
        atomicMin(&ends[0], least);
        atomicMax(&ends[1], (uint32_t)(most >> 32));
    }
}

static void try_shared(cuda_model_output *output)
{
    enum { ALL = 227 << 10, N = 5000 };
    words out(2 * 1024), plain(2 * 1024, 0);
    CHECK(cudaFuncSetAttribute(reverse_all, cudaFuncAttributeMaxDynamicSharedMemorySize, ALL) == cudaSuccess);
    {
        device_words d(out);
        LAUNCH(reverse_all, 2, 1024, ALL, stream, d.at, ALL / 4);
    }
    for (uint32_t t = 0; t < 2 * 1024; t++) {
        for (uint32_t i = t % 1024; i < ALL / 4; i += 1024)
            plain[t] = plain[t] * 31 + mix(ALL / 4 - 1 - i + t / 1024);
    }
    CHECK(out == plain);
    words x(N), bins(64, 0), ends = {UINT32_MAX, 0}, counted(64, 0);
    for (uint32_t i = 0; i < N; i++)
        x[i] = mix(i) % 10000 + 7, counted[x[i] % 64]++;
    {
        device_words dx(x), db(bins), de(ends);
        LAUNCH(count_in_shared, 3, 1000, 0, stream, dx.at, N, db.at, de.at);
    }
    CHECK(bins == counted);
    CHECK(ends[0] == *std::min_element(x.begin(), x.end()) &&
          ends[1] == *std::max_element(x.begin(), x.end()));
    cuda_model_add(output, out.data(), out.size() * 4);
    cuda_model_add(output, bins.data(), bins.size() * 4);
}

/* --- Streams of several host threads --- */
static __global__ void add(uint32_t *x, const uint32_t *y)
{
    x[cuda_thread()] += y[cuda_thread()];
}

static void try_refused(cuda_model_output *)
{
    LAUNCH(many_blocks, 0, 1, 0, stream, (uint32_t *)NULL);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    LAUNCH(many_blocks, 1, 1025, 0, stream, (uint32_t *)NULL);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    LAUNCH(many_blocks, dim3(1, 65536), 1, 0, stream, (uint32_t *)NULL);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    CHECK(cudaGetLastError() == cudaSuccess);
    LAUNCH(add, 1, 1, (48 << 10) + 1, stream, (uint32_t *)NULL, (uint32_t *)NULL);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK(cudaFuncSetAttribute(add, cudaFuncAttributeMaxDynamicSharedMemorySize, (227 << 10) + 1) ==
          cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaSuccess);
}

/* Doubles the words of x twelve times, in a stream of its own. */
static void double_often(words *x)
{
    cudaStream_t own;
    uint32_t *at;
    CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaMalloc((void **)&at, x->size() * 4) == cudaSuccess);
    for (int turn = 0; turn < 4; turn++) {
        CHECK(cudaMemcpyAsync(at, x->data(), x->size() * 4, cudaMemcpyDefault, own) == cudaSuccess);
        for (int k = 0; k < 3; k++)
            LAUNCH(add, 3, (unsigned)x->size() / 3, 0, own, at, at);
        CHECK(cudaMemcpyAsync(x->data(), at, x->size() * 4, cudaMemcpyDefault, own) == cudaSuccess);
        CHECK(cudaStreamSynchronize(own) == cudaSuccess);
    }
    CHECK(cudaFree(at) == cudaSuccess);
    CHECK(cudaStreamDestroy(own) == cudaSuccess);
}

static void try_host_threads(cuda_model_output *output)
{
    words x(3 * 40), y(3 * 64);
    std::iota(x.begin(), x.end(), 1);
    std::iota(y.begin(), y.end(), 7);
    std::thread other(double_often, &x);
    double_often(&y);
    other.join();
    for (uint32_t i = 0; i < x.size(); i++)
        CHECK(x[i] == (i + 1) << 12);
    for (uint32_t i = 0; i < y.size(); i++)
        CHECK(y[i] == (i + 7) << 12);
    cuda_model_add(output, x.data(), x.size() * 4);
}

/* Two streams alternate on the same words, ordered by events. */
static void try_events(cuda_model_output *output)
{
    cudaStream_t two[2];
    cudaEvent_t done[2];
    uint32_t *at[2];
    words x(64, 1);
    for (int i = 0; i < 2; i++) {
        CHECK(cudaStreamCreateWithFlags(&two[i], cudaStreamNonBlocking) == cudaSuccess);
        CHECK(cudaEventCreate(&done[i]) == cudaSuccess);
        CHECK(cudaMalloc((void **)&at[i], x.size() * 4) == cudaSuccess);
        CHECK(cudaMemcpyAsync(at[i], x.data(), x.size() * 4, cudaMemcpyDefault, two[0]) == cudaSuccess);
    }
    for (int turn = 0; turn < 20; turn++) { /* 1 1, 2 1, 2 3, 5 3, ...: Fibonacci */
        int i = turn % 2;
        LAUNCH(add, 2, 32, 0, two[i], at[i], at[1 - i]);
        CHECK(cudaEventRecord(done[i], two[i]) == cudaSuccess);
        CHECK(cudaStreamWaitEvent(two[1 - i], done[i]) == cudaSuccess);
    }
    CHECK(cudaMemcpyAsync(x.data(), at[1], x.size() * 4, cudaMemcpyDefault, two[1]) == cudaSuccess);
    CHECK(cudaStreamSynchronize(two[1]) == cudaSuccess);
    CHECK(x == words(64, 17711));
    cuda_model_add(output, x.data(), x.size() * 4);
    for (int i = 0; i < 2; i++) {
        CHECK(cudaStreamSynchronize(two[i]) == cudaSuccess);
        CHECK(cudaStreamDestroy(two[i]) == cudaSuccess);
        CHECK(cudaEventDestroy(done[i]) == cudaSuccess);
        CHECK(cudaFree(at[i]) == cudaSuccess);
    }
}

int main(int argc, char **argv)
{
    return run_model_tests(argc, argv,
                           {
                               {"100,000 blocks, three dimensions, a chain through all blocks", try_grids},
                               {"all of the shared memory; atomics in it", try_shared},
                               {"launches that a device refuses", try_refused},
                               {"streams of two host threads", try_host_threads},
                               {"two streams that take turns", try_events},
                           });
}
