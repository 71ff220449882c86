/*
 * Sets of embedding tables: how much memory a set needs, create and destroy, and the views of tables.
 *
 * No ladder: the kernels here set a few words. create allocates everything once: the arrays for a batch, so
 * that a step allocates nothing, and the address ranges in which tables grow.
 */
#include "kernels/cuda/table_moves.cuh"

#include "kernels/cuda/sort.cuh"

#include <new>
#include <stdlib.h>
#include <string.h>

static const uint32_t REMOVED_ROOM_LEAST = 1 << 16, SCRATCH_ROOM_LEAST = 1 << 12;
static const uint64_t BUCKETS_LEAST = 2;
static const uint64_t ROWS_MAX_MOST = (uint64_t)1 << 37; /* indices of buckets have 32 bits */
static const uint64_t ADDRESSES_LEAST = (uint64_t)1 << 20;

/* --- Plan --- */

/* Bytes of a table's admission sketch: its cells, and an epoch for each block of cells. */
static uint64_t sketch_bytes(const gpu_table_options *options)
{
    return gpu_sketch_blocks(options) * (GPU_SKETCH_BLOCK + sizeof(uint32_t));
}

static uint64_t buckets_of(uint64_t rows)
{
    return (rows + GPU_BUCKET_SLOTS - 1) / GPU_BUCKET_SLOTS;
}

/* Buckets that a table starts with, without its stash: rows_start at a load of 0.95. */
static uint64_t buckets_at_start(const gpu_table_options *options)
{
    if (options->rows_max > 0)
        return buckets_of(options->rows_max);
    uint64_t buckets = buckets_of(options->rows_start + options->rows_start / 19);
    return buckets > BUCKETS_LEAST ? buckets : BUCKETS_LEAST;
}

static uint32_t removed_room(uint32_t batch_max)
{
    return batch_max > REMOVED_ROOM_LEAST / 8 ? 8 * batch_max : REMOVED_ROOM_LEAST;
}

/* Elements of the scratch arrays; at least the size of a piece of an import. */
static uint32_t scratch_room(uint32_t batch_max)
{
    return batch_max > SCRATCH_ROOM_LEAST ? batch_max : SCRATCH_ROOM_LEAST;
}

/* Bytes of a batch's arrays: all that scratch_init allocates, the list of removals, and table_moves. */
static uint64_t batch_bytes(uint32_t batch_max)
{
    size_t sort = 0;
    uint32_t room = scratch_room(batch_max);
    sort_pairs_32(NULL, &sort, NULL, NULL, NULL, NULL, room, 32, NULL);
    return (uint64_t)room * (sizeof(uint64_t) + 9 * sizeof(uint32_t)) + sort +
           (batch_max > 0 ? (uint64_t)removed_room(batch_max) * sizeof(gpu_removed) : 0) +
           moves_bytes(BATCH_TABLES_MAX, room);
}

/* Bytes of everything except buckets and rows. */
static uint64_t fixed_bytes(const gpu_tables_options *o)
{
    uint64_t bytes = batch_bytes(o->batch_max);
    for (uint32_t t = 0; t < o->tables; t++)
        bytes += sketch_bytes(&o->table[t]);
    return bytes;
}

static bool check_table(const gpu_table_options *t, uint32_t number, gpu_error *error)
{
    if (t->rows_max > ROWS_MAX_MOST || t->rows_start > ROWS_MAX_MOST)
        return gpu_refuse(error, GPU_UNSUPPORTED,
                          "Table %u is to have %llu rows, but a table in a GPU's memory has at most "
                          "2^37 rows.",
                          number,
                          (unsigned long long)(t->rows_max > t->rows_start ? t->rows_max : t->rows_start));
    if (t->sketch_bytes > (uint64_t)1 << 40)
        return gpu_refuse(error, GPU_UNSUPPORTED,
                          "Table %u is to have %llu bytes for its sketch of occurrences, but a sketch has at "
                          "most 2^40 bytes.",
                          number, (unsigned long long)t->sketch_bytes);
    return true;
}

static bool check_options(const gpu_tables_options *o, gpu_error *error)
{
    if (o->extra_floats != 0 && o->extra_floats != 4)
        return gpu_refuse(error, GPU_UNSUPPORTED,
                          "Rows have 0 or 4 extra floats on a GPU; %u were requested.", o->extra_floats);
    if ((o->d == 0 && o->extra_floats == 0) || o->d % 4 != 0 || o->d > BATCH_DIM_MAX)
        return gpu_refuse(error, GPU_UNSUPPORTED,
                          "A GPU has no kernel for rows of %u weights: the number must be a multiple of 4, "
                          "at most %d. Choose another `dim`, or `device: cpu`.",
                          o->d, BATCH_DIM_MAX);
    if ((unsigned)o->format >= ROW_FORMATS)
        return gpu_refuse(error, GPU_UNSUPPORTED,
                          "%u is not a format of rows: the formats are fp32, bf16, fp16 and int8.",
                          (unsigned)o->format);
    if ((unsigned)o->optimizer >= OPT_KINDS)
        return gpu_refuse(error, GPU_UNSUPPORTED, "%u is not an optimizer.", (unsigned)o->optimizer);
    if (o->format == ROW_INT8 && (o->optimizer != OPT_SGD || o->batch_max > 0))
        return gpu_refuse(error, GPU_UNSUPPORTED,
                          "Rows of int8 cannot learn: they need an optimizer without state (sgd), and "
                          "batch_max 0. Learn in fp32, bf16 or fp16, and quantize for serving.");
    if (o->tables == 0 || o->tables > BATCH_TABLES_MAX)
        return gpu_refuse(error, GPU_UNSUPPORTED, "A set has 1 to %d tables; %u were requested.",
                          BATCH_TABLES_MAX, o->tables);
    if (o->batch_max > (uint32_t)1 << 28)
        return gpu_refuse(error, GPU_UNSUPPORTED, "A batch has at most 2^28 places; %u were requested.",
                          o->batch_max);
    for (uint32_t t = 0; t < o->tables; t++)
        if (!check_table(&o->table[t], t, error))
            return false;
    return true;
}

static uint32_t stride_of(const gpu_tables_options *o)
{
    return (uint32_t)(gpu_extra_at(o) + o->extra_floats * sizeof(float));
}

bool tables_plan(const gpu_tables_options *o, uint64_t free_bytes, gpu_tables_plan *plan, gpu_error *error)
{
    *plan = {};
    if (!check_options(o, error))
        return false;
    const uint64_t bucket_bytes = sizeof(gpu_bucket) + (uint64_t)GPU_BUCKET_SLOTS * stride_of(o);
    uint64_t fixed = fixed_bytes(o), buckets = 0, rows_bounded = 0;
    bool grows = false;
    for (uint32_t t = 0; t < o->tables; t++) {
        const gpu_table_options *table = &o->table[t];
        bool is_free = table->rows_max == 0;
        fixed += is_free ? GPU_STASH_BUCKETS * bucket_bytes : 0;
        buckets += buckets_at_start(table);
        rows_bounded += table->rows_max;
        grows |= is_free;
    }
    plan->bytes_least = fixed + buckets * bucket_bytes;
    uint64_t room = o->memory_bytes < free_bytes ? o->memory_bytes : free_bytes;
    if (plan->bytes_least > room)
        return gpu_refuse(error, GPU_NO_MEMORY,
                          "The embedding tables need at least %llu MiB of device memory (%llu bytes a row, "
                          "%llu rows); they may take %llu MiB, and %llu MiB are free. Make `rows_max`, `dim` "
                          "or `batch` smaller, or `device_memory` larger.",
                          (unsigned long long)(plan->bytes_least >> 20) + 1,
                          (unsigned long long)(bucket_bytes / GPU_BUCKET_SLOTS),
                          (unsigned long long)(buckets * GPU_BUCKET_SLOTS),
                          (unsigned long long)(o->memory_bytes >> 20),
                          (unsigned long long)(free_bytes >> 20));
    plan->bytes_most = grows ? room : plan->bytes_least;
    uint64_t more = (plan->bytes_most - plan->bytes_least) / bucket_bytes;
    plan->rows_most = grows ? (buckets + more) * GPU_BUCKET_SLOTS : rows_bounded;
    return true;
}

/* --- Views: tables as kernels see them --- */

/* One thread: a set has at most 256 tables. */
static __global__ void set_view(gpu_table_view *views, uint32_t tables, uint32_t t, gpu_table_view view)
{
    if (cuda_thread() != 0)
        return;
    views[t] = view;
    uint32_t before = 0;
    for (uint32_t i = 0; i < tables; i++) {
        views[i].buckets_before = before;
        before += (uint32_t)views[i].bucket_count;
    }
}

void tables_set_view(gpu_tables *tables, gpu_stream *stream, uint32_t t)
{
    LAUNCH(set_view, 1, 1, 0, gpu_cuda_stream(stream), tables->views, tables->options.tables, t,
           tables->tables[t].view);
    gpu_launched(stream, "tables: set_view");
}

uint64_t tables_buckets(const gpu_tables *tables)
{
    uint64_t sum = 0;
    for (uint32_t t = 0; t < tables->options.tables; t++)
        sum += tables->tables[t].view.bucket_count;
    return sum;
}

bool tables_need_buckets(gpu_tables *tables, gpu_stream *stream, uint32_t t, uint64_t buckets,
                         gpu_error *error)
{
    gpu_table *table = &tables->tables[t];
    uint64_t all = table->view.stash_buckets + buckets;
    size_t before = table->buckets.usable / sizeof(gpu_bucket) * sizeof(gpu_bucket);
    if (!range_need(tables->gpu, &table->rows, all * GPU_BUCKET_SLOTS * tables->stride, error) ||
        !range_need(tables->gpu, &table->buckets, all * sizeof(gpu_bucket), error))
        return false;
    return gpu_note(tables->gpu,
                    cudaMemsetAsync(table->buckets.base + before, 0, table->buckets.usable - before,
                                    gpu_cuda_stream(stream)),
                    "tables: memory of new buckets");
}

/* --- Create and destroy --- */

/* Allocates device memory, zeroed in stream order. */
template <typename type>
static bool make(gpu_tables *tables, gpu_stream *stream, type **memory, size_t count, gpu_error *error)
{
    size_t bytes = (count > 0 ? count : 1) * sizeof(type);
    *memory = static_cast<type *>(leat_gpu_api()->alloc(tables->gpu, bytes, error));
    return *memory != NULL &&
           gpu_note(tables->gpu, cudaMemsetAsync(*memory, 0, bytes, gpu_cuda_stream(stream)),
                    "tables: filling memory");
}

static __global__ void count_up(uint32_t *out, uint32_t n)
{
    size_t i = cuda_thread();
    if (i < n)
        out[i] = (uint32_t)i;
}

static bool scratch_init(gpu_tables *tables, gpu_stream *stream, gpu_error *error)
{
    table_scratch *s = &tables->scratch;
    uint32_t n = s->room = scratch_room(tables->options.batch_max);
    if (!make(tables, stream, &s->counters, TABLE_COUNTERS, error))
        return false;
    sort_pairs_32(NULL, &s->sort_bytes, NULL, NULL, NULL, NULL, n, 32, NULL);
    unsigned char *sort = NULL;
    if (!make(tables, stream, &s->seen, n, error) || !make(tables, stream, &s->waiting, n, error) ||
        !make(tables, stream, &s->gone, n, error) || !make(tables, stream, &s->buckets, n, error) ||
        !make(tables, stream, &s->buckets_sorted, n, error) || !make(tables, stream, &s->seconds, n, error) ||
        !make(tables, stream, &s->order_sorted, n, error) || !make(tables, stream, &s->iota, n, error) ||
        !make(tables, stream, &s->lists[0], n, error) || !make(tables, stream, &s->lists[1], n, error) ||
        !make(tables, stream, &sort, s->sort_bytes, error))
        return false;
    s->sort = sort;
    LAUNCH(count_up, cuda_blocks(n, 256), 256, 0, gpu_cuda_stream(stream), s->iota, n);
    return gpu_launched(stream, "tables: count_up");
}

static bool table_init(gpu_tables *tables, gpu_stream *stream, uint32_t t, const gpu_tables_plan *plan,
                       gpu_error *error)
{
    gpu_table *table = &tables->tables[t];
    const gpu_table_options *o = &table->options;
    bool is_bounded = o->rows_max > 0;
    uint64_t buckets = buckets_at_start(o);
    table->buckets_most = buckets;
    if (!is_bounded) {
        uint64_t more = (plan->bytes_most - plan->bytes_least) / tables_bucket_bytes(tables);
        table->buckets_most +=
            more > ADDRESSES_LEAST / GPU_BUCKET_SLOTS ? more : ADDRESSES_LEAST / GPU_BUCKET_SLOTS;
        const uint64_t limit = ((uint64_t)1 << 32) / GPU_BUCKET_SLOTS - GPU_STASH_BUCKETS - 1;
        if (table->buckets_most > limit) /* table_even.cu stores the index of a slot in 32 bits */
            table->buckets_most = limit;
    }
    uint32_t stash = is_bounded ? 0 : GPU_STASH_BUCKETS;
    uint64_t most = stash + table->buckets_most;
    if (!range_init(tables->gpu, &table->buckets, most * sizeof(gpu_bucket), error) ||
        !range_init(tables->gpu, &table->rows, most * GPU_BUCKET_SLOTS * tables->stride, error))
        return false;
    table->rows_left = is_bounded ? UINT64_MAX : 0;
    table->view = {};
    table->view.sketch_width = gpu_sketch_width(o);
    if (o->admit_after > 1 &&
        (!make(tables, stream, &table->view.sketch, gpu_sketch_blocks(o) * GPU_SKETCH_BLOCK, error) ||
         !make(tables, stream, &table->view.sketch_epochs, gpu_sketch_blocks(o), error)))
        return false;
    table->view.buckets = reinterpret_cast<gpu_bucket *>(table->buckets.base);
    table->view.rows = table->rows.base;
    table->view.bucket_count = buckets;
    table->view.stash_buckets = stash;
    table->view.shards = gpu_shards(o);
    table->view.seed = o->seed;
    table->view.init_seed = o->init_seed;
    table->view.init_bound = o->init_bound;
    memcpy(table->view.extra, tables->options.extra, sizeof(table->view.extra));
    table->view.bucket_rows = (uint32_t)(o->rows_max / buckets);
    table->view.bucket_rows_more = (uint32_t)(o->rows_max % buckets);
    table->view.is_bounded = is_bounded;
    table->view.admit_after = o->admit_after < 255 ? o->admit_after : 255;
    if (!tables_need_buckets(tables, stream, t, buckets, error))
        return false;
    tables_set_view(tables, stream, t);
    return true;
}

static bool tables_init(gpu_tables *tables, gpu_stream *stream, const gpu_tables_plan *plan, gpu_error *error)
{
    uint32_t n = tables->options.tables;
    bool has_batches = tables->options.batch_max > 0;
    tables->removed_room = has_batches ? removed_room(tables->options.batch_max) : 0;
    tables->pinned =
        static_cast<unsigned char *>(leat_gpu_api()->alloc_pinned(tables->gpu, PINNED_BYTES, error));
    if (tables->pinned == NULL || !make(tables, stream, &tables->views, n, error) ||
        !make(tables, stream, &tables->counts, n, error) || !make(tables, stream, &tables->flags, 1, error) ||
        !make(tables, stream, &tables->removed, tables->removed_room, error) ||
        !scratch_init(tables, stream, error))
        return false;
    for (uint32_t t = 0; t < n; t++)
        if (!table_init(tables, stream, t, plan, error))
            return false;
    return moves_need(tables, error) && tables_wait(tables, stream, error);
}

gpu_tables *tables_create(gpu *gpu, const gpu_tables_options *options, gpu_error *error)
{
    gpu_use(gpu);
    size_t free_bytes = 0, all_bytes = 0;
    gpu_tables_plan plan;
    if (!gpu_note(gpu, cudaMemGetInfo(&free_bytes, &all_bytes), "tables: free memory")) {
        gpu_is_good(gpu, error);
        return NULL;
    }
    if (!tables_plan(options, free_bytes, &plan, error))
        return NULL;
    gpu_tables *tables = new (std::nothrow) gpu_tables{};
    gpu_table *list = new (std::nothrow) gpu_table[options->tables]{};
    if (tables == NULL || list == NULL) {
        gpu_refuse(error, GPU_NO_MEMORY, "The host has no memory left.");
        delete tables;
        delete[] list;
        return NULL;
    }
    tables->gpu = gpu;
    tables->options = *options;
    tables->options.table = NULL;
    tables->tables = list;
    for (uint32_t t = 0; t < options->tables; t++)
        list[t].options = options->table[t];
    tables->weight_bytes = (uint32_t)row_weight_bytes(options->format, options->d);
    tables->state_floats = (uint32_t)gpu_state_floats(options);
    tables->extra_at = (uint32_t)gpu_extra_at(options);
    tables->stride = stride_of(options);
    tables->fixed_bytes = fixed_bytes(options);
    tables->state_init = opt_state_init(options->optimizer, options->accumulator);
    gpu_stream *stream = leat_gpu_api()->stream(gpu, error);
    bool is_made = stream != NULL && tables_init(tables, stream, &plan, error);
    if (stream != NULL)
        leat_gpu_api()->stream_free(gpu, stream);
    if (is_made)
        return tables;
    tables_destroy(tables);
    gpu_is_good(gpu, error);
    return NULL;
}

void tables_destroy(gpu_tables *tables)
{
    if (tables == NULL)
        return;
    gpu *gpu = tables->gpu;
    gpu_drain(gpu, "tables: destroy");
    for (uint32_t t = 0; t < tables->options.tables; t++) {
        range_free(gpu, &tables->tables[t].buckets);
        range_free(gpu, &tables->tables[t].rows);
        leat_gpu_api()->free(gpu, tables->tables[t].view.sketch);
        leat_gpu_api()->free(gpu, tables->tables[t].view.sketch_epochs);
    }
    moves_free(tables);
    table_scratch *s = &tables->scratch;
    void *const scratch[] = {s->seen,           s->waiting,      s->gone, s->buckets,
                             s->buckets_sorted, s->order_sorted, s->iota, s->lists[0],
                             s->lists[1],       s->counters,     s->sort, s->seconds};
    for (void *memory : scratch)
        leat_gpu_api()->free(gpu, memory);
    leat_gpu_api()->free(gpu, tables->views);
    leat_gpu_api()->free(gpu, tables->counts);
    leat_gpu_api()->free(gpu, tables->flags);
    leat_gpu_api()->free(gpu, tables->removed);
    leat_gpu_api()->free_pinned(gpu, tables->pinned);
    leat_gpu_api()->free_pinned(gpu, tables->removed_host);
    free(tables->gone);
    delete[] tables->tables;
    delete tables;
}
