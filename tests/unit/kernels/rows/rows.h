/*
 * Rows that are put into a set of embedding tables, moved and taken out again, beside a std::map of them.
 * Rows are made by the test and imported; resolve is not called.
 */
#ifndef LEAT_TESTS_UNIT_KERNELS_ROWS_ROWS_H
#define LEAT_TESTS_UNIT_KERNELS_ROWS_ROWS_H

#include "kernels/gpu_table.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

struct row {
    uint32_t count, seen, epoch, step;
    std::vector<float> payload;
};
typedef std::pair<uint32_t, uint64_t> table_key;
typedef std::map<table_key, row> row_map;

struct random_numbers {
    uint64_t state;

    uint64_t next();
    uint64_t below(uint64_t n)
    {
        return next() % n;
    }
};

struct device {
    const gpu_api *api = NULL;
    gpu *on = NULL;
    gpu_stream *stream = NULL;
    void (*model_begin)(uint64_t seed, uint8_t poison) = NULL; /* of the model of a GPU; NULL on a device */
    void (*model_fail_allocation)(int nth) = NULL;

    bool open(gpu_error *error);
    void close();
};

/* A device's set of tables, and the rows that it should hold. Keeps the text of the first failure. */
struct rig {
    device *d;
    gpu_tables_options options;
    std::vector<gpu_table_options> table_options;
    gpu_tables *tables = NULL;
    row_map rows;
    std::string failure;
    gpu_error error = {};
    /* Pinned and device memory for up to `room` rows. */
    uint32_t room;
    gpu_row_head *heads = NULL, *device_heads = NULL;
    float *payloads = NULL, *device_payloads = NULL;
    uint64_t *keys = NULL, *device_keys = NULL;
    uint32_t *of_table = NULL, *device_tables = NULL, *counts = NULL, *device_counts = NULL;
    void **places = NULL, **device_places = NULL;
    unsigned char *bytes = NULL;

    rig(device *on, uint32_t tables_count, uint32_t dim, row_format format, opt_kind optimizer,
        uint64_t memory_bytes, uint32_t rows_room, uint32_t extra_floats = 0);
    ~rig();
    void fail(const char *format, ...) __attribute__((format(printf, 2, 3)));
    bool is_good() const
    {
        return failure.empty();
    }
    size_t floats() const;
    /* A row with a random payload whose numbers the format holds exactly. */
    row made(random_numbers *random, uint32_t epoch) const;
    /* Imports rows from pinned or device memory and adds them to the map. keeps: as in import_rows
     * (gpu_table.h). Returns false if the import was refused. */
    bool import_rows(const row_map &some, uint32_t step, bool keeps, bool from_device);
    void remove(const std::vector<table_key> &some);
    /* Moves up to n of the oldest rows of a table from the set and the map to *taken. */
    void take_oldest(uint32_t table, uint32_t step_spared, uint32_t n, row_map *taken);
    std::vector<uint64_t> make_room(const std::vector<uint32_t> &rows_new);
    /* Returns the indices of keys that are missing; the other keys' rows are marked as used by `step`. */
    std::vector<uint32_t> missing(const std::vector<table_key> &some, uint32_t step);
    gpu_table_stats stats(uint32_t table);

    /* Compare with the map: the rows that select and export_rows give, `piece` rows at a time; each row
     * through the pointer that find gives. */
    void check_export(uint32_t since, uint32_t closing, uint32_t piece);
    void check_find();
    void check()
    {
        check_export(0, 0, room);
        check_find();
    }

  private:
    template <typename type> void make(type **memory, size_t count, bool is_pinned);
    void find_piece(const std::vector<table_key> &some);
    void compare_bytes(const table_key &key, const unsigned char *stored, const row &expected);
};

/* Print `ok - what` or `not ok - what` and count failures (rows.cpp). */
void report(const rig &r, const char *what);
void report(bool is_good, const char *what);
int report_end();

#endif
