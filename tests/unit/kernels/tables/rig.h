/*
 * A set of embedding tables on a device, and the plain map beside it: each operation is done to both, and
 * check compares them.
 */
#ifndef LEAT_TESTS_UNIT_KERNELS_TABLES_RIG_H
#define LEAT_TESTS_UNIT_KERNELS_TABLES_RIG_H

#include "plain_map.h"

#include <memory>
#include <stdio.h>
#include <stdlib.h>
#include <string>

/* The device of a test, opened once. api NULL: there is none, and `why` holds the reason. */
struct device {
    const gpu_api *api = NULL;
    gpu *on = NULL;
    gpu_stream *stream = NULL;
    std::string why;
    /* Resets the host's model of a GPU; NULL on a device. */
    void (*model_begin)(uint64_t seed, uint8_t poison) = NULL;

    bool open();
    void close();
    /* Gives the host's model another order of threads; call between tests. */
    void shuffle(uint64_t seed);
};

/* splitmix64. */
struct random_numbers {
    uint64_t state;

    uint64_t next()
    {
        uint64_t x = (state += 0x9e3779b97f4a7c15U);
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
        return x ^ (x >> 31);
    }
    uint64_t below(uint64_t n)
    {
        return next() % n;
    }
};

/* Device memory (`there`), and pinned memory (`here`) that it is copied to and from. */
template <typename type> struct mirror {
    device *of = NULL;
    type *there = NULL, *here = NULL;
    size_t room = 0;

    void need(device *d, size_t n);
    void push(size_t n);
    void pull(size_t n); /* asynchronous: wait before reading */
    void free();
};

template <typename type> void mirror<type>::need(device *d, size_t n)
{
    gpu_error error = {};
    if (n <= room && room > 0)
        return;
    free();
    of = d;
    room = n + n / 2 + 16;
    there = static_cast<type *>(d->api->alloc(d->on, room * sizeof(type), &error));
    here = static_cast<type *>(d->api->alloc_pinned(d->on, room * sizeof(type), &error));
    if (there == NULL || here == NULL) {
        printf("Bail out! %s\n", error.text);
        exit(1);
    }
}

template <typename type> void mirror<type>::push(size_t n)
{
    if (n > 0)
        of->api->copy(of->stream, there, here, n * sizeof(type));
}

template <typename type> void mirror<type>::pull(size_t n)
{
    if (n > 0)
        of->api->copy(of->stream, here, there, n * sizeof(type));
}

template <typename type> void mirror<type>::free()
{
    if (of != NULL) {
        of->api->free(of->on, there);
        of->api->free_pinned(of->on, here);
    }
    there = here = NULL;
    room = 0;
}

struct exported_row {
    gpu_row_head head;
    std::vector<float> payload; /* weights, then the state, then the extra floats */
};

class rig
{
  public:
    rig(device *d, gpu_tables_options options, std::vector<gpu_table_options> table_options);
    ~rig();
    bool is_good() const
    {
        return failure.empty();
    }
    void fail(const char *format, ...) __attribute__((format(printf, 2, 3)));

    /* Runs one batch, the next step, on both sides. Returns false if it failed. */
    bool batch(const std::vector<place> &places);
    bool expire(uint32_t table, uint32_t expired_before);
    bool halve(uint32_t table);
    /* Writes random weights and state to one in `share` of the last batch's rows, through their pointers. */
    bool write_rows(random_numbers *random, uint32_t share);
    /* Compares keys that the test has used (all of them; on the host's model some hundred) and some
     * that it has not: found or not, weights, the bytes of some rows, stats, and the headers and
     * payloads of all rows. */
    bool check();

    /* Live rows with epoch in (since, closing], by rising table and key; since 0: all. If the library does
     * not export, returns the plain map's rows. */
    std::vector<exported_row> export_all(uint32_t since, uint32_t closing);

    /* Move rows between the device and the plain map's `cold`. move_cold: up to n of the table's oldest rows
     * from the device. fetch_cold: the rows of a batch's keys back to the device. */
    bool move_cold(uint32_t table, uint64_t n);
    bool fetch_cold(const std::vector<distinct_key> &keys);
    /* Imports rows on both sides, as used by step `used_by`. */
    bool import_all(const std::vector<std::pair<exported_row, plain_row>> &all, uint32_t used_by);
    std::vector<gpu_row_head> take_removed();
    /* Removes random keys from both sides and from `replica`. */
    bool remove_some(random_numbers *random, std::map<std::pair<uint32_t, uint64_t>, exported_row> *replica);
    exported_row exported(uint32_t table, uint64_t key, const plain_row &row) const;
    bool is_row(const exported_row &got, const plain_row &row) const;
    size_t floats() const; /* of a payload */

    device *d;
    gpu_tables *tables = NULL;
    plain_set plain;
    bool grows = true; /* whether to call make_room before each batch */
    uint32_t step = 0, epoch = 1;
    std::string failure;
    /* The distinct keys of the last batch, and their rows' addresses on the device. */
    std::vector<distinct_key> last;
    std::vector<void *> last_rows;
    std::set<std::pair<uint32_t, uint64_t>> known;

    bool wait(const char *what);
    bool room_for(const std::vector<distinct_key> &keys);
    bool find_all(const std::vector<std::pair<uint32_t, uint64_t>> &keys, std::vector<void *> *rows);

  private:
    bool is_same(const unsigned char *got, const plain_row &row) const;
    bool mark(const gpu_batch &batch, const std::vector<distinct_key> &distinct);
    bool check_last();
    bool check_values(const std::vector<std::pair<uint32_t, uint64_t>> &keys);
    bool check_bytes(const std::vector<std::pair<uint32_t, uint64_t>> &keys);
    bool check_stats();
    bool check_heads();
    void upload(const std::vector<place> &places, const std::vector<distinct_key> &keys);

    std::vector<float> payload_of(const plain_row &row) const;

    mirror<uint64_t> keys;
    mirror<uint32_t> table_of, starts, order, seen, count;
    mirror<void *> rows, before;
    mirror<uint32_t> missing, missing_count;
    mirror<float> values;
    mirror<uint8_t> found;
    mirror<unsigned char> bytes;
    mirror<gpu_row_head> heads;
    mirror<float> payloads;
};

#endif
