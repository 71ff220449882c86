#include "plain_map.h"

#include "kernels/num.h"

#include <math.h>
#include <string.h>

static uint64_t hash_of(const plain_table &table, uint64_t key)
{
    return num_mix(key ^ table.options.seed);
}

/* --- 16-bit floats --- */

static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint32_t low = bits & 0xffff, high = bits >> 16;
    high += low > 0x8000 || (low == 0x8000 && (high & 1) != 0);
    return (uint16_t)high;
}

/* Rounds a finite number far from the largest to a multiple of the grid's step and assembles its bits. */
static uint16_t to_fp16(float x)
{
    int exponent;
    double size = fabs((double)x);
    if (size == 0.0)
        return signbit(x) ? 0x8000 : 0;
    frexp(size, &exponent);
    exponent = exponent - 1 < -14 ? -14 : exponent - 1;
    double grid = ldexp(1.0, exponent - 10), steps = nearbyint(size / grid);
    uint32_t bits = (uint32_t)steps; /* 2048 carries into the exponent, as intended */
    if (steps >= 1024)
        bits += (uint32_t)(exponent + 14) << 10;
    return (uint16_t)(bits | (signbit(x) ? 0x8000 : 0));
}

static float from_16(enum row_format format, uint16_t bits)
{
    if (format == ROW_BF16) {
        uint32_t wide = (uint32_t)bits << 16;
        float x;
        memcpy(&x, &wide, 4);
        return x;
    }
    int exponent = bits >> 10 & 31;
    double size = exponent == 0 ? ldexp(bits & 1023, -24) : ldexp((bits & 1023) + 1024, exponent - 25);
    return (float)((bits & 0x8000) != 0 ? -size : size);
}

/* --- Rows --- */

static float init_weight(uint64_t seed, uint32_t i, float bound)
{
    uint64_t x = num_mix(seed + (uint64_t)(i + 1) * 0x9e3779b97f4a7c15U);
    float unit = (float)(int32_t)(x >> 40) * 0x1p-23F - 1.0F;
    return unit * bound;
}

plain_row plain_set::new_row(const plain_table &table, const distinct_key &key, uint32_t step,
                             uint32_t epoch) const
{
    size_t weight_bytes = row_weight_bytes(options.format, options.d);
    plain_row row = {key.occurrences, key.seen, epoch, step, {}};
    row.bytes.assign(row_bytes_used(), 0);
    for (uint32_t i = 0; i < options.d; i++) {
        float w = init_weight(num_mix(key.key ^ table.options.init_seed), i, table.options.init_bound);
        uint16_t half = options.format == ROW_BF16 ? to_bf16(w) : to_fp16(w);
        if (options.format == ROW_FP32)
            memcpy(&row.bytes[4 * i], &w, 4);
        else
            memcpy(&row.bytes[2 * i], &half, 2);
    }
    float state = opt_state_init(options.optimizer, options.accumulator);
    for (size_t i = 0; i < state_bytes(); i += 4)
        memcpy(&row.bytes[weight_bytes + i], &state, 4);
    if (options.extra_floats > 0)
        memcpy(&row.bytes[row.bytes.size() - 16], options.extra, 16);
    return row;
}

std::vector<float> plain_set::weights(const plain_row &row) const
{
    std::vector<float> out(options.d);
    for (uint32_t i = 0; i < options.d; i++) {
        uint16_t half = 0;
        if (options.format == ROW_FP32) {
            memcpy(&out[i], &row.bytes[4 * i], 4);
        } else if (options.format == ROW_INT8) {
            float scale;
            memcpy(&scale, &row.bytes[0], 4);
            out[i] = scale * (float)(signed char)row.bytes[4 + i];
        } else {
            memcpy(&half, &row.bytes[2 * i], 2);
            out[i] = from_16(options.format, half);
        }
    }
    return out;
}

size_t plain_set::state_bytes() const
{
    return options.d == 0 ? 0 : 4 * opt_state_floats(options.optimizer, options.d);
}

size_t plain_set::row_bytes_used() const
{
    size_t used = row_weight_bytes(options.format, options.d) + state_bytes();
    return options.extra_floats == 0 ? used : (used + 15) / 16 * 16 + 16;
}

/* --- Tables --- */

plain_set::plain_set(const gpu_tables_options &set_options,
                     const std::vector<gpu_table_options> &table_options)
    : options(set_options)
{
    for (const gpu_table_options &o : table_options) {
        plain_table table;
        table.options = o;
        if (o.rows_max > 0)
            table.buckets.resize((o.rows_max + 127) / 128);
        if (o.admit_after > 1) {
            table.sketch_width = 1024;
            uint64_t shards = o.shards > 1 ? o.shards : 1;
            while (table.sketch_width * 2 * 4 * shards <= o.sketch_bytes)
                table.sketch_width *= 2;
            table.sketch.assign(4 * table.sketch_width * shards, 0);
        }
        tables.push_back(table);
    }
}

const plain_row *plain_table::find(uint64_t key) const
{
    auto at = rows.find(key);
    return at != rows.end() && is_live(at->second) ? &at->second : NULL;
}

uint64_t plain_set::rows_live(uint32_t t) const
{
    uint64_t live = 0;
    for (const auto &at : tables[t].rows)
        live += tables[t].is_live(at.second);
    return live;
}

static uint64_t bucket_of(const plain_table &table, uint64_t key)
{
    return (uint64_t)((unsigned __int128)hash_of(table, key) * table.buckets.size() >> 64);
}

void plain_set::erase(uint32_t t, uint64_t key)
{
    plain_table &table = tables[t];
    table.rows.erase(key);
    table.cold.erase(key);
    if (!table.buckets.empty())
        table.buckets[bucket_of(table, key)].erase(key);
}

void plain_set::put(uint32_t t, uint64_t key, const plain_row &row)
{
    tables[t].rows[key] = row;
    if (!tables[t].buckets.empty())
        tables[t].buckets[bucket_of(tables[t], key)].insert(key);
}

void plain_set::expire(uint32_t t, uint32_t expired_before)
{
    plain_table &table = tables[t];
    if (expired_before > table.expired_before)
        table.expired_before = expired_before;
}

void plain_set::halve_sketch(uint32_t t)
{
    for (uint8_t &cell : tables[t].sketch)
        cell /= 2;
}

/* --- A batch --- */

std::vector<distinct_key> distinct_keys(const std::vector<place> &batch)
{
    std::vector<distinct_key> keys;
    std::map<std::pair<uint32_t, uint64_t>, size_t> numbers;
    for (const place &p : batch) {
        if (p.key == 0)
            continue;
        auto made = numbers.insert({{p.table, p.key}, keys.size()});
        if (made.second)
            keys.push_back({p.table, p.key, 0, 0});
        distinct_key &key = keys[made.first->second];
        key.occurrences++;
        key.seen = p.seen > key.seen ? p.seen : key.seen;
    }
    return keys;
}

static std::vector<size_t> cells_of(const plain_table &table, uint64_t key)
{
    uint64_t hash = hash_of(table, key);
    uint32_t low = (uint32_t)hash, step = (uint32_t)(hash >> 32) | 1;
    std::vector<size_t> cells;
    uint64_t shards = table.options.shards > 1 ? table.options.shards : 1, parts = table.buckets.size();
    uint64_t part = parts > 0 ? (uint64_t)((unsigned __int128)hash * parts >> 64) : hash >> 32;
    uint64_t shard = part * shards / (parts > 0 ? parts : (uint64_t)1 << 32);
    for (uint32_t d = 0; d < 4; d++)
        cells.push_back((shard * 4 + d) * table.sketch_width + ((low + d * step) & (table.sketch_width - 1)));
    return cells;
}

static unsigned least_cell(const plain_table &table, const std::vector<uint8_t> &sketch, uint64_t key)
{
    unsigned least = 255;
    for (size_t cell : cells_of(table, key))
        least = sketch[cell] < least ? sketch[cell] : least;
    return least;
}

/* Removes a full bucket's expired rows, or else its victim. Returns false if every row is of this step. */
bool plain_set::make_way(plain_table &table, uint64_t bucket, uint32_t step)
{
    uint64_t room = table.options.rows_max / table.buckets.size() +
                    (bucket < table.options.rows_max % table.buckets.size());
    std::set<uint64_t> &keys = table.buckets[bucket];
    for (auto at = keys.begin(); keys.size() >= room && at != keys.end();) {
        const plain_row &row = table.rows[*at];
        if (!table.is_live(row) && row.step != step) {
            table.rows.erase(*at);
            at = keys.erase(at);
        } else {
            ++at;
        }
    }
    if (keys.size() < room)
        return true;
    const uint64_t *victim = NULL;
    for (const uint64_t &key : keys) { /* by rising key */
        const plain_row &row = table.rows[key];
        if (row.step == step)
            continue;
        if (victim != NULL) {
            const plain_row &other = table.rows[*victim];
            if (row.count > other.count || (row.count == other.count && row.seen >= other.seen))
                continue;
        }
        victim = &key;
    }
    if (victim == NULL)
        return false;
    uint64_t key = *victim;
    table.rows.erase(key);
    keys.erase(key);
    table.evicted++;
    return true;
}

void plain_set::admit(const distinct_key &key, uint32_t step, uint32_t epoch)
{
    plain_table &table = tables[key.table];
    if (!table.buckets.empty() && !make_way(table, bucket_of(table, key.key), step)) {
        table.refused += key.occurrences;
        return;
    }
    put(key.table, key.key, new_row(table, key, step, epoch));
    table.inserted++;
}

void plain_set::resolve(const std::vector<place> &batch, uint32_t step, uint32_t epoch)
{
    std::vector<distinct_key> missing;
    for (const distinct_key &key : distinct_keys(batch)) {
        plain_table &table = tables[key.table];
        auto at = table.rows.find(key.key);
        if (at != table.rows.end() && table.is_live(at->second)) {
            plain_row &row = at->second;
            uint64_t count = (uint64_t)row.count + key.occurrences;
            row.count = count > UINT32_MAX ? UINT32_MAX : (uint32_t)count;
            row.seen = key.seen > row.seen ? key.seen : row.seen;
            row.epoch = epoch;
            row.step = step;
            continue;
        }
        if (at != table.rows.end())
            erase(key.table, key.key);
        missing.push_back(key);
    }
    std::vector<std::vector<uint8_t>> before;
    for (const plain_table &table : tables)
        before.push_back(table.sketch);
    for (const distinct_key &key : missing) {
        plain_table &table = tables[key.table];
        if (table.options.admit_after <= 1)
            continue;
        uint64_t estimate = (uint64_t)least_cell(table, before[key.table], key.key) + key.occurrences;
        uint8_t cut = estimate > 255 ? 255 : (uint8_t)estimate;
        for (size_t cell : cells_of(table, key.key))
            table.sketch[cell] = table.sketch[cell] > cut ? table.sketch[cell] : cut;
    }
    for (const distinct_key &key : missing) {
        plain_table &table = tables[key.table];
        uint32_t wanted = table.options.admit_after > 255 ? 255 : table.options.admit_after;
        if (wanted > 1 && least_cell(table, table.sketch, key.key) < wanted)
            table.waiting += key.occurrences;
        else
            admit(key, step, epoch);
    }
}
