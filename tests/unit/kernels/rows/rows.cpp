#include "rows.h"

#include "kernels/num.h"
#include "kernels/rounding.h"
#include "tests/unit/learners/host_model.h"

#include <algorithm>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- The device --- */

uint64_t random_numbers::next()
{
    return num_mix(state += 0x9e3779b97f4a7c15U);
}

bool device::open(gpu_error *error)
{
    api = gpu_open_library(NULL, error);
    on = api != NULL ? api->open(0, error) : NULL;
    stream = on != NULL ? api->stream(on, error) : NULL;
    void *begin = host_model_symbol("cuda_model_begin");
    void *fail = host_model_symbol("cuda_model_fail_allocation");
    memcpy(&model_begin, &begin, sizeof(begin));
    memcpy(&model_fail_allocation, &fail, sizeof(fail));
    return stream != NULL;
}

void device::close()
{
    api->stream_free(on, stream);
    api->close(on);
}

/* --- Reports --- */

static int failures, reports;

void report(bool is_good, const char *what)
{
    printf("%s - %s\n", is_good ? "ok" : "not ok", what);
    fflush(stdout);
    failures += !is_good;
    reports++;
}

void report(const rig &r, const char *what)
{
    if (!r.is_good())
        printf("# %s\n", r.failure.c_str());
    report(r.is_good(), what);
}

int report_end()
{
    printf("1..%d\n", reports);
    return failures > 0;
}

/* --- The rig --- */

template <typename type> void rig::make(type **memory, size_t count, bool is_pinned)
{
    size_t size = count * sizeof(type);
    void *made = is_pinned ? d->api->alloc_pinned(d->on, size, &error) : d->api->alloc(d->on, size, &error);
    *memory = static_cast<type *>(made);
    if (made == NULL) {
        printf("Bail out! %s\n", error.text);
        exit(1);
    }
}

rig::rig(device *on, uint32_t tables_count, uint32_t dim, row_format format, opt_kind optimizer,
         uint64_t memory_bytes, uint32_t rows_room, uint32_t extra_floats)
    : d(on), options(), table_options(tables_count), room(rows_room)
{
    options.tables = tables_count;
    options.table = table_options.data();
    options.d = dim;
    options.format = format;
    options.optimizer = optimizer;
    options.batch_max = format == ROW_INT8 ? 0 : room;
    options.memory_bytes = memory_bytes;
    options.extra_floats = extra_floats;
    for (uint32_t t = 0; t < tables_count; t++)
        table_options[t].seed = 77 + t;
    tables = d->api->tables->create(d->on, &options, &error);
    if (tables == NULL)
        fail("create: %s", error.text);
    make(&heads, room, true);
    make(&payloads, room * floats(), true);
    make(&keys, room, true);
    make(&of_table, room, true);
    make(&places, room, true);
    make(&counts, room + 2, true);
    make(&bytes, room * (floats() * sizeof(float) + 64), true);
    make(&device_heads, room, false);
    make(&device_payloads, room * floats(), false);
    make(&device_keys, room, false);
    make(&device_tables, room, false);
    make(&device_places, room, false);
    make(&device_counts, room + 2, false);
}

rig::~rig()
{
    d->api->tables->destroy(tables);
    void *pinned[] = {heads, payloads, keys, of_table, places, counts, bytes};
    void *on_device[] = {device_heads,  device_payloads, device_keys,
                         device_tables, device_places,   device_counts};
    for (void *memory : pinned)
        d->api->free_pinned(d->on, memory);
    for (void *memory : on_device)
        d->api->free(d->on, memory);
}

void rig::fail(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (failure.empty())
        failure = text;
}

size_t rig::floats() const
{
    return gpu_payload_floats(&options);
}

row rig::made(random_numbers *random, uint32_t epoch) const
{
    row r = {(uint32_t)random->next(), (uint32_t)random->below(1000), epoch, 0, {}};
    for (size_t i = 0; i < floats(); i++) {
        float x = (float)((int64_t)random->below(2001) - 1000) * 0.37F;
        if (i < options.d && options.format == ROW_BF16)
            x = float_of_bf16(bf16_of(float_bits(x), 0, true));
        if (i < options.d && options.format == ROW_FP16)
            x = float_of_fp16(fp16_of(float_bits(x), 0, true));
        if (i < options.d && options.format == ROW_INT8)
            /* int8: the weight 63.5 makes the row's scale exactly 0.5. */
            x = i == 0 ? 63.5F : (float)((int64_t)random->below(255) - 127) * 0.5F;
        r.payload.push_back(x);
    }
    return r;
}

/* --- Operations on the set --- */

bool rig::import_rows(const row_map &some, uint32_t step, bool keeps, bool from_device)
{
    uint32_t n = 0;
    for (const auto &item : some) {
        const row &r = item.second;
        heads[n] = {item.first.second, item.first.first, r.count, r.seen, r.epoch};
        std::copy(r.payload.begin(), r.payload.end(), payloads + n * floats());
        n++;
    }
    if (from_device) {
        d->api->copy(d->stream, device_heads, heads, n * sizeof(*heads));
        d->api->copy(d->stream, device_payloads, payloads, n * floats() * sizeof(float));
    }
    if (!d->api->tables->import_rows(tables, d->stream, from_device ? device_heads : heads,
                                     from_device ? device_payloads : payloads, n, NULL, step, keeps, &error))
        return false;
    for (const auto &item : some) {
        auto known = rows.find(item.first);
        if (known == rows.end() || !keeps)
            rows[item.first] = item.second, rows[item.first].step = step;
        else if ((int32_t)(step - known->second.step) > 0 && step != 0)
            known->second.step = step;
    }
    return true;
}

void rig::remove(const std::vector<table_key> &some)
{
    for (size_t i = 0; i < some.size(); i++) {
        keys[i] = some[i].second;
        of_table[i] = some[i].first;
        rows.erase(some[i]);
    }
    d->api->copy(d->stream, device_keys, keys, some.size() * sizeof(*keys));
    d->api->copy(d->stream, device_tables, of_table, some.size() * sizeof(*of_table));
    d->api->tables->remove(tables, d->stream, device_keys, device_tables, (uint32_t)some.size());
    if (!d->api->wait(d->stream, &error))
        fail("remove: %s", error.text);
}

static row row_of(const gpu_row_head &head, const float *payload, size_t floats)
{
    return {head.count, head.seen, head.epoch, 0, std::vector<float>(payload, payload + floats)};
}

static bool is_same(const row &a, const row &b)
{
    return a.count == b.count && a.seen == b.seen && a.epoch == b.epoch && a.payload == b.payload;
}

void rig::take_oldest(uint32_t table, uint32_t step_spared, uint32_t n, row_map *taken)
{
    uint32_t count = 0;
    taken->clear();
    if (!d->api->tables->take_oldest(tables, d->stream, table, step_spared, n, heads, payloads, NULL, &count,
                                     &error))
        return fail("take_oldest: %s", error.text);
    std::vector<std::pair<uint32_t, uint64_t>> expected; /* (step, key) of the rows that may go */
    for (const auto &item : rows)
        if (item.first.first == table && (item.second.step == 0 || item.second.step < step_spared))
            expected.push_back({item.second.step, item.first.second});
    std::sort(expected.begin(), expected.end());
    if (expected.size() > n)
        expected.resize(n);
    if (count != expected.size())
        return fail("take_oldest gave %u rows of %zu", count, expected.size());
    for (uint32_t i = 0; i < count; i++)
        (*taken)[{heads[i].table, heads[i].key}] = row_of(heads[i], payloads + i * floats(), floats());
    for (const auto &item : expected) {
        auto it = taken->find({table, item.second});
        if (it == taken->end())
            return fail("take_oldest left key %llu of step %u", (unsigned long long)item.second, item.first);
        if (!is_same(it->second, rows[it->first]))
            return fail("take_oldest: another row of key %llu", (unsigned long long)item.second);
        rows.erase(it->first);
    }
}

std::vector<uint64_t> rig::make_room(const std::vector<uint32_t> &rows_new)
{
    std::vector<uint64_t> cold(options.tables, 0);
    if (!d->api->tables->make_room(tables, d->stream, rows_new.data(), cold.data(), &error))
        fail("make_room: %s", error.text);
    return cold;
}

std::vector<uint32_t> rig::missing(const std::vector<table_key> &some, uint32_t step)
{
    uint32_t n = (uint32_t)some.size();
    for (uint32_t i = 0; i < n; i++) {
        keys[i] = some[i].second;
        of_table[i] = some[i].first;
    }
    counts[0] = n;
    d->api->copy(d->stream, device_keys, keys, n * sizeof(*keys));
    d->api->copy(d->stream, device_tables, of_table, n * sizeof(*of_table));
    d->api->copy(d->stream, device_counts + n, counts, sizeof(*counts));
    gpu_batch batch = {};
    batch.count = device_counts + n;
    batch.keys = device_keys;
    batch.tables = device_tables;
    batch.n = n;
    batch.step = step;
    d->api->tables->missing(tables, d->stream, &batch, device_counts, device_counts + n + 1);
    d->api->copy(d->stream, counts, device_counts, (n + 2) * sizeof(*counts));
    if (!d->api->wait(d->stream, &error))
        fail("missing: %s", error.text);
    for (const table_key &key : some) {
        auto known = rows.find(key);
        if (known != rows.end() && (known->second.step == 0 || known->second.step < step))
            known->second.step = step;
    }
    return std::vector<uint32_t>(counts, counts + counts[n + 1]);
}

gpu_table_stats rig::stats(uint32_t table)
{
    gpu_table_stats stats = {};
    if (!d->api->tables->stats(tables, d->stream, table, &stats, &error))
        fail("stats: %s", error.text);
    return stats;
}

/* --- Comparing --- */

void rig::check_export(uint32_t since, uint32_t closing, uint32_t piece)
{
    row_map expected, exported;
    uint64_t selected = 0, total = 0;
    for (const auto &item : rows)
        if (since == 0 || (item.second.epoch > since && item.second.epoch <= closing))
            expected.insert(item);
    if (!d->api->tables->select(tables, d->stream, since, closing, &selected, &error))
        return fail("select: %s", error.text);
    if (selected != expected.size())
        return fail("select found %llu rows of %zu", (unsigned long long)selected, expected.size());
    do {
        d->api->tables->export_rows(tables, d->stream, piece, heads, payloads, counts);
        if (!d->api->wait(d->stream, &error))
            return fail("export_rows: %s", error.text);
        for (uint32_t i = 0; i < counts[0]; i++)
            exported[{heads[i].table, heads[i].key}] = row_of(heads[i], payloads + i * floats(), floats());
        total += counts[0];
    } while (counts[0] == piece);
    if (total != selected || exported.size() != selected)
        return fail("exported %llu rows, %zu of them different, of %llu", (unsigned long long)total,
                    exported.size(), (unsigned long long)selected);
    for (const auto &item : expected) {
        auto it = exported.find(item.first);
        if (it == exported.end() || !is_same(it->second, item.second))
            return fail("key %llu of table %u is exported %s", (unsigned long long)item.first.second,
                        item.first.first, it == exported.end() ? "not at all" : "with another row");
    }
}

static size_t stride_of(const gpu_tables_options &options)
{
    return gpu_extra_at(&options) + options.extra_floats * sizeof(float);
}

/* Finds the keys' rows: fills places[]. */
void rig::find_piece(const std::vector<table_key> &some)
{
    for (size_t i = 0; i < some.size(); i++) {
        keys[i] = some[i].second;
        of_table[i] = some[i].first;
    }
    d->api->copy(d->stream, device_keys, keys, some.size() * sizeof(*keys));
    d->api->copy(d->stream, device_tables, of_table, some.size() * sizeof(*of_table));
    d->api->tables->find(tables, d->stream, device_keys, device_tables, NULL, (uint32_t)some.size(),
                         device_places);
    d->api->copy(d->stream, places, device_places, some.size() * sizeof(*places));
    size_t stride = stride_of(options);
    if (!d->api->wait(d->stream, &error))
        return fail("find: %s", error.text);
    for (size_t i = 0; i < some.size(); i++)
        if (places[i] != NULL)
            d->api->copy(d->stream, bytes + i * stride, places[i], stride);
    if (!d->api->wait(d->stream, &error))
        return fail("reading rows: %s", error.text);
}

void rig::compare_bytes(const table_key &key, const unsigned char *stored, const row &expected)
{
    size_t state = row_weight_bytes(options.format, options.d);
    size_t extra = floats() - options.extra_floats, extra_at = gpu_extra_at(&options);
    for (size_t i = 0; i < floats(); i++) {
        float x;
        uint16_t half;
        memcpy(&half, stored + 2 * (i < options.d ? i : 0), sizeof(half));
        if (i >= extra)
            memcpy(&x, stored + extra_at + 4 * (i - extra), sizeof(x));
        else if (i >= options.d)
            memcpy(&x, stored + state + 4 * (i - options.d), sizeof(x));
        else if (options.format == ROW_FP32)
            memcpy(&x, stored + 4 * i, sizeof(x));
        else if (options.format == ROW_INT8)
            memcpy(&x, stored, sizeof(x)), x *= (float)(int8_t)stored[4 + i];
        else
            x = options.format == ROW_BF16 ? float_of_bf16(half) : float_of_fp16(half);
        if (x != expected.payload[i])
            return fail("key %llu of table %u: float %zu is %g, expected %g", (unsigned long long)key.second,
                        key.first, i, (double)x, (double)expected.payload[i]);
    }
}

void rig::check_find()
{
    std::vector<table_key> some;
    size_t stride = stride_of(options);
    for (auto it = rows.begin(); it != rows.end() || !some.empty();) {
        while (it != rows.end() && some.size() + 2 <= room) {
            some.push_back(it->first);
            some.push_back({it->first.first, it->first.second ^ 0x5555000000000001U}); /* absent */
            ++it;
        }
        find_piece(some);
        for (size_t i = 0; i < some.size() && is_good(); i++) {
            auto known = rows.find(some[i]);
            if ((known != rows.end()) != (places[i] != NULL))
                fail("key %llu of table %u is %s", (unsigned long long)some[i].second, some[i].first,
                     places[i] != NULL ? "found and should not be" : "not found");
            else if (places[i] != NULL)
                compare_bytes(some[i], bytes + i * stride, known->second);
        }
        some.clear();
        if (!is_good())
            return;
    }
    for (uint32_t t = 0; t < options.tables; t++) {
        uint64_t expected = 0;
        for (const auto &item : rows)
            expected += item.first.first == t;
        if (stats(t).rows != expected)
            fail("table %u counts %llu rows, and has %llu", t, (unsigned long long)stats(t).rows,
                 (unsigned long long)expected);
    }
}
