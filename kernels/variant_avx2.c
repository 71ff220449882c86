/* The AVX2 variant of the kernels; CMakeLists.txt gives this file its compiler flags. */
#define KERNELS_LANES_AVX2
#define VARIANT_TABLE kernels_table_avx2
#define BATCH_TABLE   batch_table_avx2
#define VARIANT_NAME  "avx2"
#include "kernels/variant.inc.h"
