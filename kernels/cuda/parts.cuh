/*
 * The functions that the .cu files of this folder give to the device library: the CUDA version of a BATCH
 * kernel is cuda_NAME, a function of gpu_table_api is tables_NAME. parts.cu puts them into two tables, so a
 * missing function does not link.
 */
#ifndef LEAT_KERNELS_CUDA_PARTS_CUH
#define LEAT_KERNELS_CUDA_PARTS_CUH

#include "kernels/gpu_table.h"

#define BATCH(name, args, tolerance, bytes, flops) void cuda_##name(struct args *a, void *stream);
#include "kernels/kernels.def"

bool tables_plan(const gpu_tables_options *options, uint64_t free_bytes, gpu_tables_plan *plan,
                 gpu_error *error);
gpu_tables *tables_create(gpu *gpu, const gpu_tables_options *options, gpu_error *error);
void tables_destroy(gpu_tables *tables);
void tables_find(gpu_tables *tables, gpu_stream *stream, const uint64_t *keys, const uint32_t *table,
                 const uint32_t *count, uint32_t n, void **rows);
void tables_find_values(gpu_tables *tables, gpu_stream *stream, const uint64_t *keys, const uint32_t *table,
                        const uint32_t *count, uint32_t n, float *out, uint8_t *found);
void tables_resolve(gpu_tables *tables, gpu_stream *stream, const gpu_batch *batch, void **rows);
void tables_refresh(gpu_tables *tables, gpu_stream *stream, const gpu_batch *batch);
void tables_expire(gpu_tables *tables, gpu_stream *stream, uint32_t table, uint32_t expired_before);
void tables_halve_sketch(gpu_tables *tables, gpu_stream *stream, uint32_t table, uint32_t epoch);
void tables_export_sketch(gpu_tables *tables, gpu_stream *stream, uint32_t table, uint32_t since,
                          uint32_t closing, uint64_t first, uint32_t room, gpu_sketch_block *blocks,
                          uint32_t *count);
void tables_import_sketch(gpu_tables *tables, gpu_stream *stream, uint32_t table,
                          const gpu_sketch_block *blocks, uint32_t count);
bool tables_has_room(const gpu_tables *tables, const uint32_t *rows_new, uint32_t places);
bool tables_make_room(gpu_tables *tables, gpu_stream *stream, const uint32_t *rows_new, uint64_t *rows_cold,
                      gpu_error *error);
bool tables_select(gpu_tables *tables, gpu_stream *stream, uint32_t since, uint32_t closing, uint64_t *rows,
                   gpu_error *error);
void tables_export_rows(gpu_tables *tables, gpu_stream *stream, uint32_t room, gpu_row_head *heads,
                        float *payloads, uint32_t *count);
bool tables_take_removed(gpu_tables *tables, gpu_stream *stream, gpu_row_head *removed, uint64_t room,
                         uint64_t *count, gpu_error *error);
bool tables_import_rows(gpu_tables *tables, gpu_stream *stream, const gpu_row_head *heads,
                        const float *payloads, uint32_t count, const uint32_t *at, uint32_t step, bool keeps,
                        gpu_error *error);
void tables_remove(gpu_tables *tables, gpu_stream *stream, const uint64_t *keys, const uint32_t *table,
                   uint32_t count);
bool tables_take_oldest(gpu_tables *tables, gpu_stream *stream, uint32_t table, uint32_t step_spared,
                        uint32_t room, gpu_row_head *heads, float *payloads, const uint32_t *at,
                        uint32_t *count, gpu_error *error);
void tables_missing(gpu_tables *tables, gpu_stream *stream, const gpu_batch *batch, uint32_t *missing,
                    uint32_t *count);
bool tables_stats(gpu_tables *tables, gpu_stream *stream, uint32_t table, gpu_table_stats *stats,
                  gpu_error *error);

extern const batch_kernels cuda_kernels;
extern const gpu_table_api cuda_tables;

#endif
