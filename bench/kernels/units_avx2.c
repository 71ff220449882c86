/* The machine's limits with avx2; CMakeLists.txt gives this file its flags. */
#define KERNELS_LANES_AVX2
#define UNITS_MEASURE units_measure_avx2
#include "bench/kernels/units.inc.h"
