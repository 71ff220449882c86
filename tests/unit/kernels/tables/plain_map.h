/* What a set of embedding tables must hold, computed as plainly as possible: a std::map for each table, and
 * the rule of a batch as in gpu_table.h, step by step, without regard to speed. Shares nothing with the
 * kernels but the hash. */
#ifndef LEAT_TESTS_UNIT_KERNELS_TABLES_PLAIN_MAP_H
#define LEAT_TESTS_UNIT_KERNELS_TABLES_PLAIN_MAP_H

#include "kernels/gpu_table.h"

#include <map>
#include <set>
#include <vector>

struct plain_row {
    uint32_t count, seen, epoch, step;
    std::vector<unsigned char> bytes; /* weights in their format, then the state, then the extra floats */
};

/* One occurrence of a key in a batch. */
struct place {
    uint32_t table;
    uint64_t key;
    uint32_t seen;
};

/* A distinct key of a batch; distinct_keys returns these in the order of their first occurrences. */
struct distinct_key {
    uint32_t table;
    uint64_t key;
    uint32_t occurrences, seen; /* occurrences; the latest event time */
};
std::vector<distinct_key> distinct_keys(const std::vector<place> &batch);

struct plain_table {
    gpu_table_options options;
    /* Expired rows stay until their place is needed. */
    std::map<uint64_t, plain_row> rows;
    /* Rows that the test moved out of the device's memory; they still belong to the table. */
    std::map<uint64_t, plain_row> cold;
    /* If the table is bounded: the keys of each bucket. */
    std::vector<std::set<uint64_t>> buckets;
    std::vector<uint8_t> sketch;
    uint64_t sketch_width = 0;
    uint32_t expired_before = 0;
    uint64_t inserted = 0, evicted = 0, refused = 0, waiting = 0;

    bool is_live(const plain_row &row) const
    {
        return row.seen >= expired_before;
    }
    const plain_row *find(uint64_t key) const; /* live rows that are not in `cold` */
};

struct plain_set {
    gpu_tables_options options;
    std::vector<plain_table> tables;

    plain_set(const gpu_tables_options &set_options, const std::vector<gpu_table_options> &table_options);
    void resolve(const std::vector<place> &batch, uint32_t step, uint32_t epoch);
    void expire(uint32_t table, uint32_t expired_before);
    void halve_sketch(uint32_t table);
    /* Removes a row, also from `cold`; not counted as a removal. */
    void erase(uint32_t table, uint64_t key);
    /* Puts an imported row; in a bounded table there must be room. */
    void put(uint32_t table, uint64_t key, const plain_row &row);
    std::vector<float> weights(const plain_row &row) const;
    size_t state_bytes() const;
    size_t row_bytes_used() const; /* bytes of a row, without padding at the end */
    uint64_t rows_live(uint32_t table) const;

  private:
    void admit(const distinct_key &key, uint32_t step, uint32_t epoch);
    bool make_way(plain_table &table, uint64_t bucket, uint32_t step);
    plain_row new_row(const plain_table &table, const distinct_key &key, uint32_t step, uint32_t epoch) const;
};

#endif
