/*
 * kernels/cuda/cuda.cuh includes this file in place of the CUDA headers when device code is compiled as host
 * C++ (-DCUDA_ON_HOST): CUDA's own names, as far as our kernels use them. How to test with it: README.md and
 * testing.h.
 *
 *   types.h       float4, dim3, ...; bf16 and fp16
 *   arithmetic.h  bits, words of four bytes, conversions, named roundings
 *   threads.h     threadIdx, barriers, warp collectives, atomics, shared memory, LAUNCH
 *   runtime.h     memory, streams, events, devices
 *   driver.h      memory in reserved addresses
 *   cublas.h      products of matrices
 */
#ifndef LEAT_TESTS_CUDA_ON_HOST_MODEL_H
#define LEAT_TESTS_CUDA_ON_HOST_MODEL_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define __host__
#define __device__
#define __global__
/* If all of it were inlined, instrumented code would take minutes to compile (update.cu). */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define __forceinline__ inline
#else
#define __forceinline__ inline __attribute__((always_inline))
#endif
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __align__(n) alignas(n)
#define __launch_bounds__(...)

#include "tests/cuda_on_host/types.h"

#include "tests/cuda_on_host/arithmetic.h"
#include "tests/cuda_on_host/cublas.h"
#include "tests/cuda_on_host/driver.h"
#include "tests/cuda_on_host/runtime.h"
#include "tests/cuda_on_host/threads.h"

#endif
