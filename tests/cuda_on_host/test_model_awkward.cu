/* Warps and barriers under divergence, against plain loops: collectives with exact masks while lanes leave,
 * incomplete warps, overlapping groups, barriers in loops, threads that return early. */
#include "tests/cuda_on_host/test_model.h"

#include <algorithm>

/* --- Lanes leave a loop one after another; the others use exact masks --- */
static __device__ unsigned lanes_here(void)
{
    unsigned first = threadIdx.x / 32 * 32, count = min(blockDim.x - first, 32U);
    return count == 32 ? WARP_ALL : (1U << count) - 1;
}

static __global__ void leave_one_by_one(uint32_t *out)
{
    uint32_t i = (uint32_t)cuda_thread(), x = mix(i + 1), sum = 0;
    unsigned active = lanes_here();
    for (uint32_t turn = 0;; turn++) {
        bool stays = x % 5 != 0 && turn < 20;
        active = __ballot_sync(active, stays);
        if (!stays)
            break;
        unsigned same = __match_any_sync(active, x % 3);
        sum += __reduce_add_sync(same, x) + __popc(same);
        unsigned odd = __ballot_sync(active, x & 1);
        if (x & 1) {
            sum ^= __shfl_sync(odd, x, __ffs((int)odd) - 1);
            for (uint32_t k = 0; k < turn % 3; k++)
                sum += (uint32_t)__any_sync(odd, x % 7 == k);
        } else {
            unsigned even = active & ~odd;
            sum ^= __reduce_max_sync(even, x);
            if (__popc(even) > 4)
                sum += (uint32_t)__all_sync(even, x % 4 == 0) << 8;
            __syncwarp(even);
        }
        x = mix(x + turn);
    }
    out[i] = sum ^ x;
}

/* One turn of the lanes that are left, in lockstep. */
static void stay_plainly(const words &x, const std::vector<bool> &here, uint32_t turn, words &sum)
{
    const size_t count = x.size();
    uint32_t first_odd = 0, largest = 0, evens = 0, all4 = 1, odd7[3] = {0, 0, 0};
    bool has_odd = false;
    for (size_t l = 0; l < count; l++) {
        if (here[l] && x[l] % 2 == 1) {
            first_odd = has_odd ? first_odd : x[l];
            has_odd = true;
            for (uint32_t k = 0; k < 3; k++)
                odd7[k] |= x[l] % 7 == k;
        } else if (here[l]) {
            largest = std::max(largest, x[l]);
            evens++;
            all4 &= x[l] % 4 == 0;
        }
    }
    for (size_t l = 0; l < count; l++) {
        for (size_t m = 0; m < count && here[l]; m++)
            sum[l] += here[m] && x[m] % 3 == x[l] % 3 ? x[m] + 1 : 0;
        if (here[l] && x[l] % 2 == 1) {
            sum[l] ^= first_odd;
            for (uint32_t k = 0; k < turn % 3; k++)
                sum[l] += odd7[k];
        } else if (here[l]) {
            sum[l] ^= largest;
            sum[l] += evens > 4 ? all4 << 8 : 0;
        }
    }
}

static void leave_plainly(words &out, uint32_t block)
{
    for (uint32_t begin = 0, count; begin < out.size(); begin += count) {
        count = std::min(32U, block - begin % block);
        words x(count), sum(count, 0);
        std::vector<bool> here(count, true);
        for (uint32_t l = 0; l < count; l++)
            x[l] = mix(begin + l + 1);
        for (uint32_t turn = 0; turn < 20; turn++) {
            for (uint32_t l = 0; l < count; l++)
                here[l] = here[l] && x[l] % 5 != 0;
            stay_plainly(x, here, turn, sum);
            for (uint32_t l = 0; l < count; l++)
                x[l] = here[l] ? mix(x[l] + turn) : x[l];
        }
        for (uint32_t l = 0; l < count; l++)
            out[begin + l] = sum[l] ^ x[l];
    }
}

static void try_leaving(cuda_model_output *output)
{
    for (uint32_t block : {1U, 31U, 33U, 64U, 1000U, 1024U}) {
        words out(5 * block), plain(5 * block);
        {
            device_words d(out);
            LAUNCH(leave_one_by_one, 5, block, 0, stream, d.at);
        }
        leave_plainly(plain, block);
        CHECK(out == plain);
        cuda_model_add(output, out.data(), out.size() * 4);
    }
}

/* --- Barriers in a loop that all threads leave at once --- */
static __global__ void sort_block(uint32_t *x)
{
    SHARED_DYNAMIC(uint32_t, keys);
    uint32_t i = threadIdx.x, n = blockDim.x;
    keys[i] = x[cuda_thread()];
    __syncthreads();
    for (uint32_t phase = 0, quiet = 0; quiet < 2; phase++) {
        bool swaps = i % 2 == phase % 2 && i + 1 < n && keys[i] > keys[i + 1];
        if (swaps) {
            uint32_t key = keys[i];
            keys[i] = keys[i + 1];
            keys[i + 1] = key;
        }
        quiet = __syncthreads_or(swaps) ? 0 : quiet + 1;
    }
    x[cuda_thread()] = keys[i];
}

static void try_sorting(cuda_model_output *output)
{
    for (uint32_t block : {1U, 2U, 33U, 100U}) {
        words x(3 * block);
        for (uint32_t i = 0; i < x.size(); i++)
            x[i] = mix(i) % 50;
        words plain = x;
        for (uint32_t b = 0; b < 3; b++)
            std::sort(plain.begin() + b * block, plain.begin() + (b + 1) * block);
        {
            device_words d(x);
            LAUNCH(sort_block, 3, block, 4 * block, stream, d.at);
        }
        CHECK(x == plain);
        cuda_model_add(output, x.data(), x.size() * 4);
    }
}

/* --- Parts of warps --- */
static __device__ void meet(unsigned lanes)
{
    __syncwarp(lanes);
}

/* Groups of lanes that share their lowest lane: one group synchronizes while another waits for that lane. */
static __global__ void lowest_lane_in_common(uint32_t *out)
{
    SHARED(uint32_t[32], x);
    uint32_t lane = threadIdx.x, sum = 0;
    x[lane] = lane + 1;
    __syncwarp();
    for (uint32_t turn = 0; turn < 5; turn++) {
        if (lane == 0) {
            for (uint32_t other = 1; other < 4; other++) {
                x[0] = 100 * turn + other;
                meet(1U | 1U << other);
                sum += x[other];
                meet(1U | 1U << other);
            }
        } else if (lane < 4) {
            x[lane] = 10 * turn + lane;
            meet(1U | 1U << lane);
            sum += x[0];
            meet(1U | 1U << lane);
        }
    }
    out[lane] = sum;
}

static __global__ void parts(uint32_t *out)
{
    uint32_t lane = threadIdx.x % 32, x = mix((uint32_t)cuda_thread()) % 5, found = 0;
    unsigned here = lanes_here(), mine = here & (lane % 3 == 0 ? 0x49249249U : ~0x49249249U);
    if (lane % 3 == 0) {
        found = __match_any_sync(mine, x);
        found ^= (uint32_t)__match_any_sync(mine, (unsigned long long)x << 40) << 1;
    } else {
        int is_same = 0;
        found = __match_any_sync(mine, x);
        found ^= __match_all_sync(mine, x / 5, &is_same) + (uint32_t)is_same;
    }
    uint32_t width = 1U << (lane / 8);
    if (here == WARP_ALL) {
        found += __shfl_sync(here, x, (int)(lane + 3), 8) * 3;
        found += __shfl_down_sync(here, x, 2, 4) * 5;
        found += __shfl_up_sync(here, x, 1, (int)width) * 7;
        found += __shfl_xor_sync(here, x, 5, 16) * 11;
    }
    out[cuda_thread()] = found;
}

static uint32_t part_plainly(const words &x, uint32_t begin, uint32_t count, uint32_t lane)
{
    uint32_t same = 0, mine = 0, found, first8 = lane / 8 * 8, width = 1U << (lane / 8);
    for (uint32_t m = 0; m < count; m++) {
        bool is_ours = (m % 3 == 0) == (lane % 3 == 0);
        mine |= (is_ours ? 1U : 0U) << m;
        same |= (is_ours && x[begin + m] == x[begin + lane] ? 1U : 0U) << m;
    }
    found = lane % 3 == 0 ? same ^ same << 1 : same ^ (mine + 1);
    if (count == 32) {
        const uint32_t *w = &x[begin];
        found += w[first8 + (lane + 3) % 8] * 3;
        found += w[lane % 4 < 2 ? lane + 2 : lane] * 5;
        found += w[lane % width >= 1 ? lane - 1 : lane] * 7;
        found += w[lane ^ 5] * 11;
    }
    return found;
}

static void try_parts(cuda_model_output *output)
{
    for (uint32_t block : {1U, 4U, 33U, 45U, 64U}) {
        words out(3 * block), x(3 * block);
        for (uint32_t i = 0; i < x.size(); i++)
            x[i] = mix(i) % 5;
        {
            device_words d(out);
            LAUNCH(parts, 3, block, 0, stream, d.at);
        }
        for (uint32_t i = 0; i < out.size(); i++) {
            uint32_t in_block = i % block, begin = i - in_block % 32,
                     count = std::min(32U, block - in_block / 32 * 32);
            if (out[i] != part_plainly(x, begin, count, in_block % 32)) {
                printf("# block %u thread %u\n", block, i);
                CHECK(false);
            }
        }
        cuda_model_add(output, out.data(), out.size() * 4);
    }
    words out(32);
    {
        device_words d(out);
        LAUNCH(lowest_lane_in_common, 1, 32, 0, stream, d.at);
    }
    for (uint32_t lane = 0; lane < 32; lane++) {
        uint32_t sum = 0;
        for (uint32_t turn = 0; turn < 5; turn++)
            sum += lane == 0 ? 30 * turn + 6 : lane < 4 ? 100 * turn + lane : 0;
        CHECK(out[lane] == sum);
    }
    cuda_model_add(output, out.data(), out.size() * 4);
}

/* --- Threads that return early, without others waiting for them --- */
static __global__ void some_return(uint32_t *out)
{
    if (threadIdx.x / 32 % 2 == 1)
        return;
    uint32_t x = mix(threadIdx.x);
    unsigned rest = __ballot_sync(WARP_ALL, x % 3 != 0);
    if (x % 3 == 0)
        return;
    for (int k = 0; k < 4; k++)
        x += __shfl_sync(rest, x, __ffs((int)rest) - 1);
    out[cuda_thread()] = x;
}

static void try_returning(cuda_model_output *output)
{
    words out(2 * 256, 7);
    {
        device_words d(out);
        LAUNCH(some_return, 2, 256, 0, stream, d.at);
    }
    for (uint32_t i = 0; i < out.size(); i++) {
        uint32_t t = i % 256, x = mix(t), leader = t / 32 * 32;
        while (mix(leader) % 3 == 0)
            leader++;
        uint32_t y = mix(leader);
        for (int k = 0; k < 4; k++)
            x += y, y += y;
        CHECK(out[i] == (t / 32 % 2 == 1 || mix(t) % 3 == 0 ? 7 : x));
    }
    cuda_model_add(output, out.data(), out.size() * 4);
}

int main(int argc, char **argv)
{
    return run_model_tests(
        argc, argv,
        {
            {"lanes leave a loop one by one, and those that stay speak with exact masks", try_leaving},
            {"barriers in a loop that all leave at once", try_sorting},
            {"parts of warps, lanes that do not exist, groups with a lane in common", try_parts},
            {"threads that return early", try_returning},
        });
}
