/* The limits of the machine with AVX-512; CMakeLists.txt gives this file its compiler flags. */
#define KERNELS_LANES_AVX512
#define UNITS_MEASURE units_measure_avx512
#include "bench/kernels/units.inc.h"
