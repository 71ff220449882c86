/* The CPU's embedding table (learners/tables/table.h) behind functions that C++ tests can call. */
#ifndef LEAT_TESTS_UNIT_KERNELS_TABLES_CPU_TABLE_H
#define LEAT_TESTS_UNIT_KERNELS_TABLES_CPU_TABLE_H

#include "kernels/gpu_table.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cpu_table;

/* Rows have d weights and `state_floats` floats of state, which begin at state_init. */
struct cpu_table *cpu_table_new(const struct gpu_table_options *options, uint32_t d, uint32_t state_floats,
                                float state_init);
void cpu_table_free(struct cpu_table *table);
/* Distinct keys, each with its latest event time and its number of occurrences. */
void cpu_table_batch(struct cpu_table *table, const uint64_t *keys, const uint32_t *seen,
                     const uint32_t *counts, size_t n, uint32_t step);
void cpu_table_expire(struct cpu_table *table, uint32_t expired_before);
float *cpu_table_find(struct cpu_table *table, uint64_t key); /* returns the payload, or NULL */
/* Writes the row that is i-th by rising key; false: there are no more. i = 0 sorts the table's rows anew. */
bool cpu_table_row(struct cpu_table *table, size_t i, struct gpu_row_head *head, const float **payload);

#ifdef __cplusplus
}
#endif
#endif
