/* Shared by the cases of test_tables. */
#ifndef LEAT_TESTS_UNIT_KERNELS_TABLES_CASES_H
#define LEAT_TESTS_UNIT_KERNELS_TABLES_CASES_H

#include "rig.h"

extern bool is_reduced; /* small sizes: the host plays the GPU, or a sanitizer checks the program */

gpu_tables_options some_options(uint32_t dims);
gpu_table_options bounded(uint64_t rows_max);
gpu_table_options unbounded(uint64_t rows_start);
/* n occurrences of `keys` distinct keys in all tables, with event times from `seen` on. */
std::vector<place> some_places(random_numbers *random, size_t n, uint64_t keys, uint32_t tables,
                               uint32_t seen);

void cpu_tables(device *d, std::string *failure); /* cases_cpu.cpp */

#endif
