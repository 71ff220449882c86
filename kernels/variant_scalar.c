/* The scalar variant of the kernels; CMakeLists.txt gives this file its compiler flags. */
#define KERNELS_LANES_SCALAR
#define VARIANT_TABLE kernels_table_scalar
#define BATCH_TABLE   batch_table_scalar
#define VARIANT_NAME  "scalar"
#include "kernels/variant.inc.h"
