/* Gives the same batches to a set on a device, to the plain map and to the CPU's tables, and compares the
 * sorted rows. */
#include "cases.h"
#include "cpu_table.h"

#include <string.h>

struct cpu_set {
    std::vector<cpu_table *> tables;
    uint32_t floats;

    cpu_set(const gpu_tables_options &o, const std::vector<gpu_table_options> &options)
    {
        uint32_t state = (uint32_t)opt_state_floats(o.optimizer, o.d);
        floats = o.d + state;
        for (const gpu_table_options &table : options)
            tables.push_back(cpu_table_new(&table, o.d, state, opt_state_init(o.optimizer, o.accumulator)));
    }
    ~cpu_set()
    {
        for (cpu_table *table : tables)
            cpu_table_free(table);
    }
    void batch(const std::vector<place> &places, uint32_t step)
    {
        for (uint32_t t = 0; t < tables.size(); t++) {
            std::vector<uint64_t> keys;
            std::vector<uint32_t> seen, counts;
            for (const distinct_key &key : distinct_keys(places)) {
                if (key.table == t) {
                    keys.push_back(key.key);
                    seen.push_back(key.seen);
                    counts.push_back(key.occurrences);
                }
            }
            cpu_table_batch(tables[t], keys.data(), seen.data(), counts.data(), keys.size(), step);
        }
    }
};

/* Copies the random rows that the rig wrote on the device to the CPU's tables. */
static void copy_rows(rig *r, cpu_set *cpu)
{
    for (const distinct_key &key : r->last) {
        const plain_row *row = r->plain.tables[key.table].find(key.key);
        float *payload = cpu_table_find(cpu->tables[key.table], key.key);
        if ((row != NULL) != (payload != NULL))
            r->fail("step %u: the CPU %s key %llu of table %u", r->step, payload != NULL ? "has" : "lacks",
                    (unsigned long long)key.key, key.table);
        else if (row != NULL)
            memcpy(payload, row->bytes.data(), cpu->floats * sizeof(float));
    }
}

static void compare(rig *r, cpu_set *cpu)
{
    std::vector<exported_row> rows = r->export_all(0, UINT32_MAX);
    size_t at = 0;
    for (uint32_t t = 0; t < cpu->tables.size() && r->is_good(); t++) {
        gpu_row_head head;
        const float *payload;
        for (size_t i = 0; cpu_table_row(cpu->tables[t], i, &head, &payload) && r->is_good(); i++, at++) {
            const exported_row *row = at < rows.size() ? &rows[at] : NULL;
            if (row == NULL || row->head.table != t || row->head.key != head.key ||
                row->head.count != head.count || row->head.seen != head.seen || row->head.epoch != head.epoch)
                r->fail(
                    "step %u: row %zu is key %llu of table %u (count %u, seen %u, epoch %u) on the CPU, and "
                    "key %llu of table %u (%u, %u, %u) on the device",
                    r->step, at, (unsigned long long)head.key, t, head.count, head.seen, head.epoch,
                    row != NULL ? (unsigned long long)row->head.key : 0, row != NULL ? row->head.table : 0,
                    row != NULL ? row->head.count : 0, row != NULL ? row->head.seen : 0,
                    row != NULL ? row->head.epoch : 0);
            else if (memcmp(row->payload.data(), payload, cpu->floats * sizeof(float)) != 0)
                r->fail("step %u: key %llu of table %u has other floats on the CPU", r->step,
                        (unsigned long long)head.key, t);
        }
    }
    if (r->is_good() && at != rows.size())
        r->fail("step %u: %zu rows on the device, %zu on the CPU", r->step, rows.size(), at);
}

void cpu_tables(device *d, std::string *failure)
{
    gpu_table_options admits = bounded(700), small = bounded(100), plain_table = unbounded(6000),
                      admits_free = unbounded(3000);
    admits.admit_after = 3, admits.sketch_bytes = 16384, admits.shards = 4;
    small.seed = 99;
    admits_free.admit_after = 2;
    std::vector<gpu_table_options> options = {admits, small, plain_table, admits_free, bounded(1500)};
    gpu_tables_options o = some_options(12);
    rig r(d, o, options);
    cpu_set cpu(o, options);
    random_numbers random = {77};
    const size_t n = is_reduced ? 500 : 3000;
    for (uint32_t i = 0; i < (is_reduced ? 8 : 20) && r.is_good(); i++) {
        std::vector<place> places = some_places(&random, n, n, 5, 100 * i);
        r.batch(places);
        cpu.batch(places, r.step);
        r.write_rows(&random, 2);
        copy_rows(&r, &cpu);
        compare(&r, &cpu);
        if (i % 3 == 1)
            for (uint32_t t = 0; t < 5; t++) {
                r.expire(t, 60 * i);
                cpu_table_expire(cpu.tables[t], 60 * i);
            }
    }
    r.check();
    *failure = r.failure;
}
