#include "tests/cuda_on_host/testing.h"

#include <stdlib.h>
#include <string>
#include <unistd.h>

#include "tests/cuda_on_host/machine.h"

model_run run;
static bool run_has_begun;

void cuda_model_begin(uint64_t seed, uint8_t poison)
{
    run_has_begun = true;
    run = model_run{};
    run.seed = seed;
    run.random.state = seed;
    run.poison = poison;
    run.devices = 1;
    run.capability = 90;
    run.driver = 13000;
    run.memory_bytes = (size_t)4 << 30;
    run.turns = 50000000;
    runtime_reset();
}

static uint64_t seed_of_environment(uint64_t otherwise)
{
    const char *seed = getenv("LEAT_CUDA_SEED");
    return seed != NULL && *seed != 0 ? strtoull(seed, NULL, 10) : otherwise;
}

/* Plants the failure that LEAT_CUDA_FAULT names, e.g. "700@120" (testing.h). */
static void plant_fault_of_environment(void)
{
    const char *text = getenv("LEAT_CUDA_FAULT"), *wrong = getenv("LEAT_CUDA_WRONG");
    run.products_to_wrong = wrong != NULL ? atoi(wrong) : 0;
    int error = 0, nth = 0, length = 0;
    if (text == NULL || *text == 0) {
        return;
    }
    if (sscanf(text, "%d@%d%n", &error, &nth, &length) != 2 || (text[length] != 0 && text[length] != ':')) {
        fprintf(stderr, "LEAT_CUDA_FAULT: `%s` is not ERROR@NTH or ERROR@NTH:PATH\n", text);
        abort();
    }
    if (text[length] == ':' && unlink(text + length + 1) != 0) {
        return;
    }
    if (error == cudaErrorMemoryAllocation) {
        cuda_model_fail_allocation(nth);
    } else {
        cuda_model_fail_launch(nth, error);
    }
}

/* LEAT_CUDA_MEMORY: the device's memory in bytes (testing.h). */
static void set_memory_of_environment(void)
{
    const char *text = getenv("LEAT_CUDA_MEMORY");
    if (text == NULL || *text == 0) {
        return;
    }
    char *end;
    cuda_model_set_memory(strtoull(text, &end, 10));
    if (*end != 0) {
        fprintf(stderr, "LEAT_CUDA_MEMORY: `%s` is not a number of bytes\n", text);
        abort();
    }
}

void run_begin_if_needed(void)
{
    if (!run_has_begun) {
        const char *poison = getenv("LEAT_CUDA_POISON");
        cuda_model_begin(seed_of_environment(1), poison != NULL && (*poison == 'b' || *poison == 'B')
                                                     ? CUDA_MODEL_POISON_B
                                                     : CUDA_MODEL_POISON_A);
        plant_fault_of_environment();
        set_memory_of_environment();
    }
}

uint64_t cuda_model_seed(void)
{
    run_begin_if_needed();
    return run.seed;
}

/* --- Runs that must agree --- */
struct cuda_model_output {
    std::string bytes;
};

void cuda_model_add(cuda_model_output *output, const void *bytes, size_t size)
{
    output->bytes.append(static_cast<const char *>(bytes), size);
}

bool cuda_model_runs_agree(const char *what, void (*body)(void *context, cuda_model_output *output),
                           void *context, int seeds)
{
    static const uint8_t poisons[] = {CUDA_MODEL_POISON_A, CUDA_MODEL_POISON_B};
    const uint64_t replay = seed_of_environment(0);
    cuda_model_output first, next;
    uint64_t first_seed = 0;
    for (int i = 0; i < (replay != 0 ? 2 : 2 * seeds); i++) {
        const uint64_t seed = replay != 0 && i > 0 ? replay : (uint64_t)i + 1;
        cuda_model_output *output = i == 0 ? &first : &next;
        output->bytes.clear();
        cuda_model_begin(seed, poisons[i % 2]);
        body(context, output);
        if (i == 0) {
            first_seed = seed;
        } else if (first.bytes != next.bytes) {
            const size_t shorter =
                first.bytes.size() < next.bytes.size() ? first.bytes.size() : next.bytes.size();
            size_t at = 0;
            while (at < shorter && first.bytes[at] == next.bytes[at]) {
                at++;
            }
            printf("# %s: the result depends on the order of threads or on memory that was not written: "
                   "seeds %llu "
                   "(poison %02x) and %llu (poison %02x) differ at byte %zu of %zu and %zu; again: "
                   "LEAT_CUDA_SEED=%llu\n",
                   what, (unsigned long long)first_seed, poisons[0], (unsigned long long)seed, poisons[i % 2],
                   at, first.bytes.size(), next.bytes.size(), (unsigned long long)seed);
            return false;
        }
    }
    return true;
}

/* --- Planted failures --- */
void cuda_model_fail_allocation(int nth)
{
    run_begin_if_needed();
    run.allocations_to_failure = nth;
}

void cuda_model_fail_launch(int nth, int error)
{
    run_begin_if_needed();
    run.launches_to_failure = nth;
    run.launch_error = (cudaError_t)error;
}

void cuda_model_wrong_product(int nth)
{
    run_begin_if_needed();
    run.products_to_wrong = nth;
}

void cuda_model_set_devices(int count)
{
    run_begin_if_needed();
    run.devices = count;
}

void cuda_model_set_capability(int capability)
{
    run_begin_if_needed();
    run.capability = capability;
}

void cuda_model_set_driver(int version)
{
    run_begin_if_needed();
    run.driver = version;
}

void cuda_model_set_cublas(bool is_there)
{
    run_begin_if_needed();
    run.has_no_cublas = !is_there;
}

void cuda_model_set_memory(size_t bytes)
{
    run_begin_if_needed();
    run.memory_bytes = bytes;
}

void cuda_model_set_turns(uint64_t turns)
{
    run_begin_if_needed();
    run.turns = turns;
}
