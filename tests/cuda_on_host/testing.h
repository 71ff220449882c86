/* The functions by which tests control the model (C and C++).
 *
 * A run follows from its seed and its poison. A process that calls no function of this file takes them from
 * LEAT_CUDA_SEED and LEAT_CUDA_POISON in its environment; every report of the model names the seed that
 * repeats it. */
#ifndef LEAT_TESTS_CUDA_ON_HOST_TESTING_H
#define LEAT_TESTS_CUDA_ON_HOST_TESTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory is filled with one of these before it is written: two bytes that differ in each bit. */
enum { CUDA_MODEL_POISON_A = 0xa5, CUDA_MODEL_POISON_B = 0x5a };

/* Begins a run with this seed and poison, without planted failures and errors. No stream may have work. */
void cuda_model_begin(uint64_t seed, uint8_t poison);
uint64_t cuda_model_seed(void);

/*
 * Runs body(context, output) with several seeds and both poisons. The bytes that body adds to output
 * (cuda_model_add) must be the same each time; otherwise prints the difference with the seeds and returns
 * false. If LEAT_CUDA_SEED is set, only that seed is compared with the first.
 */
struct cuda_model_output;
void cuda_model_add(struct cuda_model_output *output, const void *bytes, size_t size);
bool cuda_model_runs_agree(const char *what, void (*body)(void *context, struct cuda_model_output *output),
                           void *context, int seeds);

/* The number of waits of the host for the device since the process began: for a stream, an event or the whole
 * device; a copy to pageable memory and a free wait, too. */
uint64_t cuda_model_waits(void);

/* The granularity of memory in reserved addresses, in bytes: 64 KiB, or LEAT_CUDA_GRANULE, a power of two. */
size_t cuda_model_granule(void);

/* --- Failures to plant, until the next cuda_model_begin --- */
/* LEAT_CUDA_FAULT=ERROR@NTH plants a failure in a process that calls none of these functions: with ERROR 2
 * (out of memory) the nth allocation from its start fails, with another of CUDA's error numbers the nth
 * launch. ERROR@NTH:PATH: only in the first process that begins while there is a file PATH, which it removes.
 * LEAT_CUDA_WRONG=NTH: as cuda_model_wrong_product. */
void cuda_model_fail_allocation(int nth);        /* the nth allocation from now fails, counted from 1 */
void cuda_model_fail_launch(int nth, int error); /* the nth launch from now fails; the error is sticky */
void cuda_model_wrong_product(int nth); /* the first value of the nth product from now is 0.01 too large */
void cuda_model_set_devices(int count); /* at first 1 */
void cuda_model_set_capability(int capability); /* at first 90 */
void cuda_model_set_driver(int version);        /* at first 13000; 0: there is no driver */
void cuda_model_set_cublas(bool is_there);      /* whether cuBLASLt can be opened; at first it can */
/* The device's memory; in a process that does not call it, LEAT_CUDA_MEMORY=BYTES does. */
void cuda_model_set_memory(size_t bytes);

/* The number of turns without the end of a thread after which a kernel is reported as waiting in vain. */
void cuda_model_set_turns(uint64_t turns);

#ifdef __cplusplus
}
#endif
#endif
