#include "rig.h"

#include "tests/unit/learners/host_model.h"

#include <algorithm>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- The device --- */

bool device::open()
{
    gpu_error error = {};
    api = gpu_open_library(NULL, &error);
    on = api != NULL ? api->open(0, &error) : NULL;
    stream = on != NULL ? api->stream(on, &error) : NULL;
    void *symbol = host_model_symbol("cuda_model_begin");
    if (symbol != NULL)
        memcpy(&model_begin, &symbol, sizeof(model_begin));
    why = error.text;
    return stream != NULL;
}

void device::close()
{
    api->stream_free(on, stream);
    api->close(on);
}

void device::shuffle(uint64_t seed)
{
    if (model_begin != NULL)
        model_begin(seed, seed % 2 == 0 ? 0xa5 : 0x5a);
}

/* --- The rig --- */

static gpu_tables_options with(gpu_tables_options options, const std::vector<gpu_table_options> &tables)
{
    options.tables = (uint32_t)tables.size();
    options.table = tables.data();
    return options;
}

rig::rig(device *on, gpu_tables_options options, std::vector<gpu_table_options> table_options)
    : d(on), plain(with(options, table_options), table_options)
{
    gpu_error error = {};
    gpu_tables_options o = with(options, table_options);
    tables = d->api->tables->create(d->on, &o, &error);
    if (tables == NULL)
        fail("create: %s", error.text);
}

rig::~rig()
{
    d->api->tables->destroy(tables);
    keys.free();
    table_of.free();
    starts.free();
    order.free();
    seen.free();
    count.free();
    rows.free();
    before.free();
    missing.free();
    missing_count.free();
    values.free();
    found.free();
    bytes.free();
    heads.free();
    payloads.free();
}

void rig::fail(const char *format, ...)
{
    char text[512];
    va_list arguments;
    if (!failure.empty())
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    failure = text;
}

bool rig::wait(const char *what)
{
    gpu_error error = {};
    if (!d->api->wait(d->stream, &error))
        fail("%s: %s", what, error.text);
    return is_good();
}

/* Uploads a batch: the distinct keys, and their occurrences with event times, grouped by key. */
void rig::upload(const std::vector<place> &places, const std::vector<distinct_key> &distinct)
{
    size_t n = places.size();
    keys.need(d, n), table_of.need(d, n), starts.need(d, n + 1), order.need(d, n), seen.need(d, n);
    count.need(d, 1), rows.need(d, n), before.need(d, n);
    std::map<std::pair<uint32_t, uint64_t>, uint32_t> numbers;
    uint32_t at = 0;
    for (size_t u = 0; u < distinct.size(); u++) {
        keys.here[u] = distinct[u].key;
        table_of.here[u] = distinct[u].table;
        starts.here[u] = at;
        at += distinct[u].occurrences;
        numbers[{distinct[u].table, distinct[u].key}] = (uint32_t)u;
    }
    starts.here[distinct.size()] = at;
    std::vector<uint32_t> next(starts.here, starts.here + distinct.size());
    for (size_t p = 0; p < n; p++) {
        seen.here[p] = places[p].seen;
        if (places[p].key != 0)
            order.here[next[numbers[{places[p].table, places[p].key}]]++] = (uint32_t)p;
    }
    count.here[0] = (uint32_t)distinct.size();
    keys.push(distinct.size()), table_of.push(distinct.size()), starts.push(distinct.size() + 1);
    order.push(at), seen.push(n), count.push(1);
}

/* Makes room for the keys of a batch that are not in the tables yet. May move rows to the cold tier. */
bool rig::room_for(const std::vector<distinct_key> &distinct)
{
    gpu_error error = {};
    std::vector<uint32_t> rows_new(plain.tables.size());
    std::vector<uint64_t> rows_cold(plain.tables.size());
    if (!grows)
        return true;
    for (const distinct_key &key : distinct)
        rows_new[key.table] +=
            plain.tables[key.table].options.rows_max == 0 && plain.tables[key.table].find(key.key) == NULL;
    const uint32_t places = plain.options.batch_max;
    if (step % 5 != 0 && d->api->tables->has_room(tables, rows_new.data(), places))
        return true;
    if (!d->api->tables->make_room(tables, d->stream, rows_new.data(), rows_cold.data(), &error))
        fail("make_room: %s", error.text);
    bool is_again = false;
    for (uint32_t t = 0; t < rows_cold.size(); t++) {
        is_again |= rows_cold[t] > 0;
        if (rows_cold[t] > 0)
            move_cold(t, rows_cold[t]);
    }
    if (is_again && !d->api->tables->make_room(tables, d->stream, rows_new.data(), rows_cold.data(), &error))
        fail("make_room: %s", error.text);
    for (uint64_t cold : rows_cold)
        if (cold > 0)
            fail("make_room: still %llu rows have to go", (unsigned long long)cold);
    return is_good();
}

/* Calls missing, which also marks the rows that are already there as used, so that make_room does not move
 * them to the cold tier. */
bool rig::mark(const gpu_batch &batch, const std::vector<distinct_key> &distinct)
{
    missing.need(d, batch.n), missing_count.need(d, 1);
    d->api->tables->missing(tables, d->stream, &batch, missing.there, missing_count.there);
    missing.pull(batch.n), missing_count.pull(1);
    if (!wait("missing"))
        return false;
    std::set<uint32_t> lacking(missing.here, missing.here + missing_count.here[0]);
    for (uint32_t u = 0; u < distinct.size(); u++) {
        plain_table &table = plain.tables[distinct[u].table];
        const bool is_there = table.find(distinct[u].key) != NULL;
        if (is_there == (lacking.count(u) != 0) &&
            (is_there || known.count({distinct[u].table, distinct[u].key}) == 0))
            fail("step %u: key %llu of table %u is %s, and missing says otherwise", batch.step,
                 (unsigned long long)distinct[u].key, distinct[u].table, is_there ? "there" : "not there");
        if (is_there && table.options.rows_max == 0)
            table.rows[distinct[u].key].step = batch.step;
    }
    return is_good();
}

bool rig::batch(const std::vector<place> &places)
{
    std::vector<distinct_key> distinct = distinct_keys(places);
    if (!is_good())
        return false;
    upload(places, distinct);
    gpu_batch on_device = {count.there,
                           keys.there,
                           table_of.there,
                           starts.there,
                           order.there,
                           seen.there,
                           (uint32_t)places.size(),
                           step + 1,
                           epoch,
                           NULL,
                           before.there};
    if (!mark(on_device, distinct) || !fetch_cold(distinct) || !room_for(distinct))
        return false;
    step++;
    d->api->tables->resolve(tables, d->stream, &on_device, rows.there);
    rows.pull(distinct.size()), before.pull(distinct.size());
    if (!wait("resolve"))
        return false;
    for (size_t u = 0; u < distinct.size(); u++) {
        const bool was_there = plain.tables[distinct[u].table].find(distinct[u].key) != NULL;
        if (before.here[u] != (was_there ? rows.here[u] : NULL))
            fail("step %u: key %llu of table %u: its row before the batch was not given as %s", step,
                 (unsigned long long)distinct[u].key, distinct[u].table, was_there ? "that of now" : "none");
    }
    plain.resolve(places, step, epoch);
    last = distinct;
    last_rows.assign(rows.here, rows.here + distinct.size());
    for (const distinct_key &key : distinct)
        known.insert({key.table, key.key});
    return check_last();
}

/* Checks that the last batch gave each key of the plain map a row, and no two keys the same row. */
bool rig::check_last()
{
    std::set<void *> all;
    for (size_t u = 0; u < last.size() && is_good(); u++) {
        const plain_table &table = plain.tables[last[u].table];
        bool has_row = table.rows.count(last[u].key) != 0;
        if (has_row != (last_rows[u] != NULL))
            fail("step %u: key %llu of table %u, the %zuth: a row is %s, and was %s", step,
                 (unsigned long long)last[u].key, last[u].table, u, has_row ? "expected" : "not expected",
                 last_rows[u] != NULL ? "given" : "not given");
        if (last_rows[u] != NULL && !all.insert(last_rows[u]).second)
            fail("step %u: two keys were given one row", step);
    }
    return is_good();
}

bool rig::expire(uint32_t table, uint32_t expired_before)
{
    if (!is_good())
        return false;
    d->api->tables->expire(tables, d->stream, table, expired_before);
    plain.expire(table, expired_before);
    return wait("expire");
}

bool rig::halve(uint32_t table)
{
    if (!is_good())
        return false;
    d->api->tables->halve_sketch(tables, d->stream, table, epoch);
    plain.halve_sketch(table);
    return wait("halve_sketch");
}

bool rig::write_rows(random_numbers *random, uint32_t share)
{
    size_t size = plain.row_bytes_used();
    bytes.need(d, size * last.size());
    for (size_t u = 0; u < last.size() && is_good(); u++) {
        if (last_rows[u] == NULL || random->below(share) != 0)
            continue;
        plain_row &row = plain.tables[last[u].table].rows[last[u].key];
        for (size_t i = 0; i < size; i += 2) { /* bits of small finite numbers in every format */
            uint16_t bits = (uint16_t)(random->next() & 0x3fff);
            memcpy(&row.bytes[i], &bits, 2);
        }
        memcpy(bytes.here + u * size, row.bytes.data(), size);
        d->api->copy(d->stream, last_rows[u], bytes.here + u * size, size);
    }
    return wait("writing rows");
}

/* --- Comparing --- */

bool rig::find_all(const std::vector<std::pair<uint32_t, uint64_t>> &wanted, std::vector<void *> *out)
{
    size_t n = wanted.size();
    keys.need(d, n), table_of.need(d, n), rows.need(d, n), count.need(d, 1);
    for (size_t i = 0; i < n; i++) {
        keys.here[i] = wanted[i].second;
        table_of.here[i] = wanted[i].first;
    }
    count.here[0] = (uint32_t)n;
    keys.push(n), table_of.push(n), count.push(1);
    d->api->tables->find(tables, d->stream, keys.there, table_of.there, count.there, (uint32_t)rows.room,
                         rows.there);
    rows.pull(n);
    if (!wait("find"))
        return false;
    out->assign(rows.here, rows.here + n);
    return true;
}

bool rig::check_values(const std::vector<std::pair<uint32_t, uint64_t>> &wanted)
{
    size_t n = wanted.size(), dims = plain.options.d;
    keys.need(d, n), table_of.need(d, n), values.need(d, n * dims), found.need(d, n);
    for (size_t i = 0; i < n; i++) {
        keys.here[i] = wanted[i].second;
        table_of.here[i] = wanted[i].first;
    }
    keys.push(n), table_of.push(n);
    d->api->tables->find_values(tables, d->stream, keys.there, table_of.there, NULL, (uint32_t)n,
                                values.there, found.there);
    values.pull(n * dims), found.pull(n);
    if (!wait("find_values"))
        return false;
    for (size_t i = 0; i < n && is_good(); i++) {
        const plain_row *row = plain.tables[wanted[i].first].find(wanted[i].second);
        std::vector<float> weights = row != NULL ? plain.weights(*row) : std::vector<float>(dims, 0.0F);
        if (found.here[i] != (row != NULL))
            fail("step %u: key %llu of table %u is %s, and was %s", step,
                 (unsigned long long)wanted[i].second, wanted[i].first, row != NULL ? "there" : "not there",
                 found.here[i] ? "found" : "not found");
        else if (dims > 0 && memcmp(values.here + i * dims, weights.data(), 4 * dims) != 0)
            fail("step %u: key %llu of table %u has other weights: %g, and not %g", step,
                 (unsigned long long)wanted[i].second, wanted[i].first, (double)values.here[i * dims],
                 (double)weights[0]);
    }
    return is_good();
}

/* Compares weights, state and extra floats; the padding between these is not compared. */
bool rig::is_same(const unsigned char *got, const plain_row &row) const
{
    size_t weights = plain.options.d * (plain.options.format == ROW_FP32 ? 4 : 2);
    size_t state = row_weight_bytes(plain.options.format, plain.options.d);
    size_t extra = plain.options.extra_floats * sizeof(float), extra_at = row.bytes.size() - extra;
    return memcmp(got, row.bytes.data(), weights) == 0 &&
           memcmp(got + state, row.bytes.data() + state, plain.state_bytes()) == 0 &&
           memcmp(got + extra_at, row.bytes.data() + extra_at, extra) == 0;
}

/* Checks the results of find, and the bytes of some rows. */
bool rig::check_bytes(const std::vector<std::pair<uint32_t, uint64_t>> &wanted)
{
    enum { SOME = 64 };
    size_t size = plain.row_bytes_used(), every = wanted.size() / SOME + 1, copied = 0;
    std::vector<void *> found_rows;
    if (!find_all(wanted, &found_rows))
        return false;
    bytes.need(d, size * SOME);
    for (size_t i = 0; i < wanted.size(); i++) {
        const plain_row *row = plain.tables[wanted[i].first].find(wanted[i].second);
        if ((row != NULL) != (found_rows[i] != NULL))
            fail("step %u: find of key %llu of table %u", step, (unsigned long long)wanted[i].second,
                 wanted[i].first);
        else if (row != NULL && i % every == 0)
            d->api->copy(d->stream, bytes.here + copied++ * size, found_rows[i], size);
    }
    if (!wait("reading rows"))
        return false;
    copied = 0;
    for (size_t i = 0; i < wanted.size(); i += every) {
        const plain_row *row = plain.tables[wanted[i].first].find(wanted[i].second);
        if (row != NULL && !is_same(bytes.here + copied++ * size, *row))
            fail("step %u: key %llu of table %u has another row", step, (unsigned long long)wanted[i].second,
                 wanted[i].first);
    }
    return is_good();
}

bool rig::check_stats()
{
    for (uint32_t t = 0; t < plain.tables.size() && is_good(); t++) {
        const plain_table &table = plain.tables[t];
        gpu_table_stats stats = {};
        gpu_error error = {};
        if (!d->api->tables->stats(tables, d->stream, t, &stats, &error)) {
            fail("stats: %s", error.text);
            return false;
        }
        if (stats.inserted != table.inserted || stats.evicted != table.evicted ||
            stats.refused != table.refused || stats.waiting != table.waiting)
            fail("step %u, table %u: inserted %llu, evicted %llu, refused %llu, waiting %llu; expected %llu, "
                 "%llu, %llu, %llu",
                 step, t, (unsigned long long)stats.inserted, (unsigned long long)stats.evicted,
                 (unsigned long long)stats.refused, (unsigned long long)stats.waiting,
                 (unsigned long long)table.inserted, (unsigned long long)table.evicted,
                 (unsigned long long)table.refused, (unsigned long long)table.waiting);
        if (stats.rows < plain.rows_live(t) ||
            (table.options.rows_max > 0 && stats.rows > table.options.rows_max))
            fail("step %u, table %u: %llu rows, of which %llu are live", step, t,
                 (unsigned long long)stats.rows, (unsigned long long)plain.rows_live(t));
    }
    return is_good();
}

size_t rig::floats() const
{
    return plain.options.d + plain.state_bytes() / sizeof(float) + plain.options.extra_floats;
}

std::vector<float> rig::payload_of(const plain_row &row) const
{
    size_t weight_bytes = row_weight_bytes(plain.options.format, plain.options.d);
    std::vector<float> payload = plain.weights(row);
    size_t state = plain.state_bytes() / sizeof(float), extra = plain.options.extra_floats;
    payload.resize(floats());
    if (state > 0)
        memcpy(payload.data() + plain.options.d, row.bytes.data() + weight_bytes, state * sizeof(float));
    if (extra > 0)
        memcpy(payload.data() + plain.options.d + state, row.bytes.data() + row.bytes.size() - 16, 16);
    return payload;
}

static bool comes_before(const exported_row &a, const exported_row &b)
{
    return a.head.table != b.head.table ? a.head.table < b.head.table : a.head.key < b.head.key;
}

std::vector<exported_row> rig::export_all(uint32_t since, uint32_t closing)
{
    const gpu_table_api *api = d->api->tables;
    const size_t floats = this->floats();
    std::vector<exported_row> out;
    uint64_t all = 0, done = 0;
    gpu_error error = {};
    if (api->select == NULL || api->export_rows == NULL) {
        for (uint32_t t = 0; t < plain.tables.size(); t++)
            for (const auto &at : plain.tables[t].rows)
                if (plain.tables[t].is_live(at.second))
                    out.push_back({{at.first, t, at.second.count, at.second.seen, at.second.epoch},
                                   payload_of(at.second)});
        return out;
    }
    if (!api->select(tables, d->stream, since, closing, &all, &error))
        fail("select: %s", error.text);
    const uint32_t room = (uint32_t)(all / 2 + 1);
    heads.need(d, room), payloads.need(d, room * floats), count.need(d, 1);
    for (; done < all && is_good(); done += count.here[0]) {
        api->export_rows(tables, d->stream, room, heads.there, payloads.there, count.there);
        heads.pull(room), payloads.pull(room * floats), count.pull(1);
        if (!wait("export_rows") || count.here[0] == 0)
            break;
        for (uint32_t i = 0; i < count.here[0]; i++)
            if (heads.here[i].seen >= plain.tables[heads.here[i].table].expired_before)
                out.push_back({heads.here[i], std::vector<float>(payloads.here + i * floats,
                                                                 payloads.here + (i + 1) * floats)});
    }
    if (is_good() && done != all)
        fail("step %u: %llu rows were selected, and %llu exported", step, (unsigned long long)all,
             (unsigned long long)done);
    std::sort(out.begin(), out.end(), comes_before);
    return out;
}

/* Compares headers, weights, states and extra floats of all exported rows. */
bool rig::check_heads()
{
    std::vector<exported_row> rows_there = export_all(0, UINT32_MAX);
    size_t i = 0;
    for (uint32_t t = 0; t < plain.tables.size(); t++) {
        for (const auto &at : plain.tables[t].rows) {
            const plain_row &row = at.second;
            if (!plain.tables[t].is_live(row) || !is_good())
                continue;
            const exported_row none = {}, &got = i < rows_there.size() ? rows_there[i] : none;
            i++;
            if (got.head.table != t || got.head.key != at.first || got.head.count != row.count ||
                got.head.seen != row.seen || got.head.epoch != row.epoch)
                fail("step %u: exported is key %llu of table %u with count %u, seen %u, epoch %u; expected "
                     "%llu "
                     "of %u, %u, %u, %u",
                     step, (unsigned long long)got.head.key, got.head.table, got.head.count, got.head.seen,
                     got.head.epoch, (unsigned long long)at.first, t, row.count, row.seen, row.epoch);
            else if (memcmp(got.payload.data(), payload_of(row).data(), got.payload.size() * sizeof(float)) !=
                     0)
                fail("step %u: key %llu of table %u is exported with other floats", step,
                     (unsigned long long)at.first, t);
        }
    }
    if (is_good() && i != rows_there.size())
        fail("step %u: %zu live rows were exported, %zu are there", step, rows_there.size(), i);
    return is_good();
}

bool rig::check()
{
    enum { ON_MODEL = 500 };
    std::vector<std::pair<uint32_t, uint64_t>> wanted;
    random_numbers random = {step};
    const size_t every = d->model_begin != NULL ? known.size() / ON_MODEL + 1 : 1;
    for (const auto &key : known)
        if (random.below(every) == 0)
            wanted.push_back(key);
    for (int i = 0; i < 32; i++) /* very unlikely to be known */
        wanted.push_back({(uint32_t)random.below(plain.tables.size()), random.next()});
    return is_good() && check_values(wanted) && check_bytes(wanted) && check_stats() && check_heads();
}
