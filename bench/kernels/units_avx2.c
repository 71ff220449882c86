/* The limits of the machine with AVX2; CMakeLists.txt gives this file its compiler flags. */
#define KERNELS_LANES_AVX2
#define UNITS_MEASURE units_measure_avx2
#include "bench/kernels/units.inc.h"
