/* The kernels compiled for avx512; CMakeLists.txt gives this file its flags. */
#define KERNELS_LANES_AVX512
#define VARIANT_TABLE kernels_table_avx512
#define BATCH_TABLE   batch_table_avx512
#define VARIANT_NAME  "avx512"
#include "kernels/variant.inc.h"
