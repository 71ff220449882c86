/* Tables for bench_tables.c, bench_step.c and bench_tiers.c: made, filled, and keys that have rows. */
#ifndef LEAT_BENCH_GPU_TABLES_H
#define LEAT_BENCH_GPU_TABLES_H

#include "place.h"

struct tables_sizes {
    uint64_t rows; /* find, resolve: of one table */
    uint32_t n, d; /* n: keys an operation */
    uint32_t step_tables, step_n, step_d;
    uint64_t step_rows; /* of each table */
    uint64_t export_rows;
    uint32_t export_d, export_room;
};

struct tables_bench {
    struct place *place;
    const struct gpu_table_api *api;
    const struct tables_sizes *sizes;
    struct gpu_tables *set;
    uint32_t step;
};

/* Bounded tables of `rows` rows each. */
struct tables_shape {
    uint32_t tables;
    uint64_t rows;
    uint32_t d;
    enum opt_kind optimizer;
    uint32_t batch_max;
};

/* Ends the program with the text of `error` if !is_good. */
void tables_check(bool is_good, const struct gpu_error *error);

void tables_make(struct tables_bench *b, const struct tables_shape *shape);
/* Destroys the set and releases the place's memory. */
void tables_end(struct tables_bench *b);

/* The i-th key that tables_fill gives to a table; never 0. */
uint64_t tables_key(uint32_t table, uint64_t i);
/* Gives rows to keys 0 up to n of `tables` tables, from table `first` on; keys that have rows occur again. */
void tables_fill(struct tables_bench *b, uint32_t first, uint32_t tables, uint64_t n, uint32_t epoch);
/* A batch of n distinct keys of table 0, without the keys themselves. */
struct gpu_batch tables_batch(struct tables_bench *b, uint32_t n, uint32_t epoch);
/* n distinct keys with rows, unordered, in device memory: of the first `inserted` keys of table 0. */
uint64_t *tables_present(struct tables_bench *b, uint64_t inserted, uint32_t n);

/* bench_tiers.c: steps over tables whose rows lie in the GPU's memory and in the cold tier. */
void bench_tiers(struct tables_bench *b);
/* bench_step.c: forward and backward of several tables in one launch. */
void bench_step(struct tables_bench *b);

#endif
