/* The two tables of functions of the device library (parts.cuh). */
#include "kernels/cuda/parts.cuh"

const batch_kernels cuda_kernels = {
    "cuda",
#define BATCH(name, args, tolerance, bytes, flops) cuda_##name,
#include "kernels/kernels.def"
};

const gpu_table_api cuda_tables = {
    tables_plan,          tables_create,      tables_destroy,   tables_find,         tables_find_values,
    tables_resolve,       tables_refresh,     tables_expire,    tables_halve_sketch, tables_export_sketch,
    tables_import_sketch, tables_has_room,    tables_make_room, tables_select,       tables_export_rows,
    tables_take_removed,  tables_import_rows, tables_remove,    tables_take_oldest,  tables_missing,
    tables_stats,
};
