/* The AVX-512 variant of the kernels; CMakeLists.txt gives this file its compiler flags. */
#define KERNELS_LANES_AVX512
#define VARIANT_TABLE kernels_table_avx512
#define BATCH_TABLE   batch_table_avx512
#define VARIANT_NAME  "avx512"
#include "kernels/variant.inc.h"
