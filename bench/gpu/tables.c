#include "tables.h"

#include <stdlib.h>

void tables_check(bool is_good, const struct gpu_error *error)
{
    if (is_good)
        return;
    fprintf(stderr, "bench: the device: %s\n", error->text);
    exit(1);
}

void tables_make(struct tables_bench *b, const struct tables_shape *shape)
{
    struct gpu_error error = {0};
    struct gpu_table_options each[BATCH_TABLES_MAX];
    for (uint32_t t = 0; t < shape->tables; t++)
        each[t] = (struct gpu_table_options){
            .rows_max = shape->rows, .seed = 11 + t, .init_seed = 5, .init_bound = 0.01F};
    struct gpu_tables_options options = {.tables = shape->tables,
                                         .table = each,
                                         .d = shape->d,
                                         .format = ROW_FP32,
                                         .optimizer = shape->optimizer,
                                         .batch_max = shape->batch_max,
                                         .memory_bytes = UINT64_MAX / 2};
    b->set = b->api->create(b->place->gpu, &options, &error);
    tables_check(b->set != NULL, &error);
    b->step = 0;
}

void tables_end(struct tables_bench *b)
{
    place_wait(b->place);
    b->api->destroy(b->set);
    b->set = NULL;
    place_release(b->place);
}

uint64_t tables_key(uint32_t table, uint64_t i)
{
    uint64_t key = num_mix(num_mix(table + 1) + i);
    return key + (key == 0);
}

struct gpu_batch tables_batch(struct tables_bench *b, uint32_t n, uint32_t epoch)
{
    uint32_t *numbers = host_room((n + 1) * sizeof(*numbers));
    for (uint32_t i = 0; i <= n; i++)
        numbers[i] = i;
    struct gpu_batch batch = {.count = place_upload(b->place, &n, sizeof(n)),
                              .tables = place_zeros(b->place, n * sizeof(uint32_t)),
                              .starts = place_upload(b->place, numbers, (n + 1) * sizeof(*numbers)),
                              .n = n,
                              .epoch = epoch};
    batch.order = batch.starts;
    free(numbers);
    return batch;
}

/* Copies to a block of the place that exists already. */
static void put(struct tables_bench *b, const void *to, const void *from, size_t bytes)
{
    place_download(b->place, (void *)(uintptr_t)to, from, bytes);
}

void tables_fill(struct tables_bench *b, uint32_t first, uint32_t tables, uint64_t n, uint32_t epoch)
{
    struct gpu_error error = {0};
    uint32_t most = b->sizes->n;
    struct gpu_batch batch = tables_batch(b, most, epoch);
    uint64_t *host = host_room(most * sizeof(*host)), count = 0;
    uint32_t *numbers = host_room(most * sizeof(*numbers));
    struct gpu_row_head *removed = place_pinned(b->place, most * sizeof(*removed));
    void **rows = place_zeros(b->place, most * sizeof(*rows));
    batch.keys = place_zeros(b->place, most * sizeof(*host));
    for (uint32_t t = first; t < first + tables; t++)
        for (uint64_t done = 0; done < n; done += batch.n) {
            batch.n = n - done < most ? (uint32_t)(n - done) : most;
            for (uint32_t i = 0; i < batch.n; i++) {
                host[i] = tables_key(t, done + i);
                numbers[i] = t;
            }
            put(b, batch.keys, host, batch.n * sizeof(*host));
            put(b, batch.tables, numbers, batch.n * sizeof(*numbers));
            put(b, batch.count, &batch.n, sizeof(batch.n));
            batch.step = ++b->step;
            b->api->resolve(b->set, b->place->stream, &batch, rows);
            /* empties the list of removed keys before it overflows */
            tables_check(b->api->take_removed(b->set, b->place->stream, removed, most, &count, &error),
                         &error);
        }
    place_wait(b->place);
    b->place->api->free_pinned(b->place->gpu, removed);
    free(host);
    free(numbers);
}

uint64_t *tables_present(struct tables_bench *b, uint64_t inserted, uint32_t n)
{
    struct place *place = b->place;
    uint64_t *candidates = host_room(n * sizeof(*candidates)), *kept = host_room(n * sizeof(*kept));
    void **rows = host_room(n * sizeof(*rows));
    uint64_t *keys_there = place_zeros(place, n * sizeof(*keys_there));
    void **rows_there = place_zeros(place, n * sizeof(*rows_there));
    uint32_t count = 0;
    /* A large prime as the stride visits each key once, unordered. */
    for (uint64_t i = 0; count < n && i < inserted; i += n) {
        for (uint32_t k = 0; k < n; k++)
            candidates[k] =
                tables_key(0, (uint64_t)((unsigned __int128)(i + k) * ((1ULL << 61) - 1) % inserted));
        put(b, keys_there, candidates, n * sizeof(*candidates));
        b->api->find(b->set, place->stream, keys_there, NULL, NULL, n, rows_there);
        place_download(place, rows, rows_there, n * sizeof(*rows));
        for (uint32_t k = 0; k < n && i + k < inserted && count < n; k++)
            if (rows[k] != NULL)
                kept[count++] = candidates[k];
    }
    if (count < n) {
        fprintf(stderr, "bench: %u keys that are in the table were wanted, and only %u of %llu are\n", n,
                count, (unsigned long long)inserted);
        exit(1);
    }
    put(b, keys_there, kept, n * sizeof(*kept));
    free(candidates), free(kept), free(rows);
    return keys_there;
}
