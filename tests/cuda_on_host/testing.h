/*
 * What tests say to the model (C and C++).
 *
 * A run is decided by its seed and its poison. LEAT_CUDA_SEED and LEAT_CUDA_POISON in the environment give
 * those of a process that calls none of this; every report of the model tells the seed to replay it with.
 */
#ifndef CUDA_ON_HOST_TESTING_H
#define CUDA_ON_HOST_TESTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What memory is filled with before it is written: two bytes that differ in each bit. */
enum { CUDA_MODEL_POISON_A = 0xa5, CUDA_MODEL_POISON_B = 0x5a };

/* From now on: this order and this poison; planted failures and errors are gone. No stream may have work. */
void cuda_model_begin(uint64_t seed, uint8_t poison);
uint64_t cuda_model_seed(void);

/*
 * Runs body(context, output) with several seeds and both poisons. What body adds to output (cuda_model_add)
 * must be the same bytes each time; prints what differs, with the seeds. LEAT_CUDA_SEED set: that seed alone,
 * against the first.
 */
struct cuda_model_output;
void cuda_model_add(struct cuda_model_output *output, const void *bytes, size_t size);
bool cuda_model_runs_agree(const char *what, void (*body)(void *context, struct cuda_model_output *output),
                           void *context, int seeds);

/* How often the host has waited for the device since the process began: for a stream, an event or all of it;
 * a copy to pageable memory and a free wait, too. */
uint64_t cuda_model_waits(void);

/* What memory in reserved addresses comes in multiples of: 64 KiB, or what LEAT_CUDA_GRANULE says, a power of
 * two of bytes. */
size_t cuda_model_granule(void);

/* --- failures to plant, until the next cuda_model_begin --------------------------------------------------
 *
 * LEAT_CUDA_FAULT=ERROR@NTH plants one in a process that calls none of this: with 2 (out of memory) the nth
 * allocation from its start fails, with another of CUDA's numbers the nth launch. ERROR@NTH:PATH: once, by
 * whoever begins while there is a file PATH, which is removed then. LEAT_CUDA_WRONG=NTH:
 * cuda_model_wrong_product.
 */
void cuda_model_fail_allocation(int nth);        /* the n-th allocation from now, from 1 */
void cuda_model_fail_launch(int nth, int error); /* the n-th launch from now ends with error: sticky */
void cuda_model_wrong_product(int nth); /* the first value of the n-th product from now is 0.01 too large */
void cuda_model_set_devices(int count); /* 1 */
void cuda_model_set_capability(int capability); /* 90 */
void cuda_model_set_driver(int version);        /* 13000; 0: there is none */
void cuda_model_set_cublas(bool is_there);      /* whether cuBLASLt can be opened: it can */
void cuda_model_set_memory(size_t bytes);       /* of the device */

/* After how many turns in which no thread ended the kernel is taken for one that waits in vain. */
void cuda_model_set_turns(uint64_t turns);

#ifdef __cplusplus
}
#endif
#endif
