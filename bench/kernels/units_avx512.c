/* The machine's limits with avx512; CMakeLists.txt gives this file its flags. */
#define KERNELS_LANES_AVX512
#define UNITS_MEASURE units_measure_avx512
#include "bench/kernels/units.inc.h"
