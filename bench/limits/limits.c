/*
 * Limits of the machine, on one core, for rows that keep state. Prints one JSON line.
 *
 *     limits touch BYTES
 *         seconds of wall time to get and touch BYTES of new memory
 *     limits memory BYTES COUNT
 *         random read-modify-writes of a cache line in BYTES, prefetched
 *     limits chase BYTES COUNT
 *         random reads of a cache line in BYTES, each waiting for the one before
 *     limits rocksdb FOLDER KEYS MEMORY COUNT
 *         get and put of a value of 48 bytes in RocksDB alone, 1,024 uniform keys at a time by one multi-get
 *         and one write batch, with MEMORY bytes of block cache and write buffers
 *
 * All results but the first are per second of CPU time of the whole process.
 */
#include "core/base.h"

#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { LINE = 64, AHEAD = 32, BATCH = 1024, VALUE_BYTES = 48, KEY_BYTES = 16 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

static int memory(size_t bytes, uint64_t count)
{
    size_t lines = bytes / LINE;
    char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED || lines == 0)
        return 1;
    (void)madvise(data, bytes, MADV_HUGEPAGE);
    memset(data, 1, bytes);
    double begin = now();
    for (uint64_t i = 0; i < count; i++) {
        __builtin_prefetch(data + mix(i + AHEAD) % lines * LINE, 1);
        uint64_t *word = (uint64_t *)(void *)(data + mix(i) % lines * LINE);
        *word += i;
    }
    printf("{\"per_s\": %.0f}\n", (double)count / (now() - begin));
    munmap(data, bytes);
    return 0;
}

static int chase(size_t bytes, uint64_t count)
{
    size_t lines = bytes / LINE;
    char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED || lines < 2)
        return 1;
    (void)madvise(data, bytes, MADV_HUGEPAGE);
    /* One cycle through all lines (Sattolo 1986). */
    for (size_t i = 0; i < lines; i++)
        *(uint64_t *)(void *)(data + i * LINE) = i;
    for (size_t i = lines - 1; i > 0; i--) {
        uint64_t *a = (uint64_t *)(void *)(data + i * LINE);
        uint64_t *b = (uint64_t *)(void *)(data + mix(i) % i * LINE), other = *b;
        *b = *a;
        *a = other;
    }
    uint64_t at = 0;
    double begin = now();
    for (uint64_t i = 0; i < count; i++)
        at = *(const uint64_t *)(const void *)(data + at * LINE);
    printf("{\"per_s\": %.0f, \"at\": %llu}\n", (double)count / (now() - begin), (unsigned long long)at);
    munmap(data, bytes);
    return 0;
}

/* Seconds of wall time to map `bytes` and write to each page. */
static int touch(size_t bytes)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return 1;
    (void)madvise(data, bytes, MADV_HUGEPAGE);
    for (size_t at = 0; at < bytes; at += 4096)
        data[at] = 1;
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("{\"seconds\": %.3f}\n",
           (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9);
    munmap(data, bytes);
    return 0;
}

static void check(char *error)
{
    if (error != NULL) {
        fprintf(stderr, "limits: %s\n", error);
        exit(1);
    }
}

struct database {
    rocksdb_t *db;
    rocksdb_column_family_handle_t *family;
    rocksdb_readoptions_t *read;
    rocksdb_writeoptions_t *write;
};

static struct database open_database(const char *folder, size_t memory_bytes)
{
    char *error = NULL;
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_block_cache(table, rocksdb_cache_create_lru(memory_bytes / 2));
    rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(10));
    rocksdb_options_set_block_based_table_factory(options, table);
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_error_if_exists(options, 1);
    rocksdb_options_set_write_buffer_size(options, memory_bytes / 4);
    rocksdb_options_set_max_write_buffer_number(options, 2);
    rocksdb_options_set_compression(options, rocksdb_lz4_compression);
    rocksdb_options_increase_parallelism(options, 2);
    const char *const names[] = {"default"};
    const rocksdb_options_t *const family_options[] = {options};
    struct database d = {.read = rocksdb_readoptions_create(), .write = rocksdb_writeoptions_create()};
    d.db = rocksdb_open_column_families(options, folder, 1, names, family_options, &d.family, &error);
    check(error);
    rocksdb_writeoptions_disable_WAL(d.write, 1);
    return d;
}

struct batch_keys {
    char bytes[BATCH][KEY_BYTES];
    const char *pointers[BATCH];
    size_t sizes[BATCH];
};

/* Makes keys that are hashes, as leat's are. */
static void make_keys(struct batch_keys *keys, uint64_t first, uint64_t count)
{
    for (uint64_t i = 0; i < BATCH; i++) {
        uint64_t key = mix(mix(first + i) % count), second = key ^ 0x5bd1e995;
        memcpy(keys->bytes[i], &key, sizeof(key));
        memcpy(keys->bytes[i] + sizeof(key), &second, sizeof(second));
        keys->pointers[i] = keys->bytes[i];
        keys->sizes[i] = KEY_BYTES;
    }
}

static int rocks(const char *folder, uint64_t keys_count, size_t memory_bytes, uint64_t count)
{
    struct database d = open_database(folder, memory_bytes);
    static struct batch_keys keys;
    static rocksdb_pinnableslice_t *values[BATCH];
    static char *errors[BATCH];
    uint64_t found = 0;
    char *error = NULL;
    double begin = now();
    for (uint64_t at = 0; at < count; at += BATCH) {
        make_keys(&keys, at, keys_count);
        rocksdb_batched_multi_get_cf(d.db, d.read, d.family, BATCH, keys.pointers, keys.sizes, values, errors,
                                     0);
        rocksdb_writebatch_t *writes = rocksdb_writebatch_create();
        for (uint32_t i = 0; i < BATCH; i++) {
            char value[VALUE_BYTES] = {0};
            size_t bytes = 0;
            check(errors[i]);
            const char *old = values[i] == NULL ? NULL : rocksdb_pinnableslice_value(values[i], &bytes);
            if (old != NULL)
                memcpy(value, old, MIN(bytes, sizeof(value))), found++;
            value[0]++;
            rocksdb_writebatch_put(writes, keys.pointers[i], KEY_BYTES, value, sizeof(value));
            if (values[i] != NULL)
                rocksdb_pinnableslice_destroy(values[i]);
        }
        rocksdb_write(d.db, d.write, writes, &error);
        check(error);
        rocksdb_writebatch_destroy(writes);
    }
    printf("{\"per_s\": %.0f, \"found\": %llu}\n", (double)count / (now() - begin),
           (unsigned long long)found);
    rocksdb_column_family_handle_destroy(d.family);
    rocksdb_close(d.db);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "memory") == 0)
        return memory(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
    if (argc == 4 && strcmp(argv[1], "chase") == 0)
        return chase(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
    if (argc == 6 && strcmp(argv[1], "rocksdb") == 0)
        return rocks(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10),
                     strtoull(argv[5], NULL, 10));
    if (argc == 3 && strcmp(argv[1], "touch") == 0)
        return touch(strtoull(argv[2], NULL, 10));
    fprintf(stderr, "usage: limits touch BYTES | limits memory BYTES COUNT | limits chase BYTES COUNT | "
                    "limits rocksdb FOLDER KEYS "
                    "MEMORY COUNT\n");
    return 2;
}
