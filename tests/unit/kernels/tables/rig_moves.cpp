/* Moves of rows out of a set and back: cold tier, imports, removals. */
#include "rig.h"

#include <algorithm>
#include <string.h>

exported_row rig::exported(uint32_t t, uint64_t key, const plain_row &row) const
{
    return {{key, t, row.count, row.seen, row.epoch}, payload_of(row)};
}

bool rig::is_row(const exported_row &got, const plain_row &row) const
{
    std::vector<float> payload = payload_of(row);
    return got.head.count == row.count && got.head.seen == row.seen && got.head.epoch == row.epoch &&
           got.payload.size() == payload.size() &&
           memcmp(got.payload.data(), payload.data(), payload.size() * sizeof(float)) == 0;
}

/* The live rows that leave must be the first by (step, key) of those not used by the current step. */
bool rig::move_cold(uint32_t t, uint64_t n)
{
    plain_table &table = plain.tables[t];
    const size_t floats = this->floats();
    std::vector<std::pair<uint32_t, uint64_t>> oldest;
    gpu_error error = {};
    if (table.options.rows_max > 0 || !is_good())
        return is_good();
    for (const auto &at : table.rows)
        if (table.is_live(at.second) && at.second.step < step)
            oldest.push_back({at.second.step, at.first});
    std::sort(oldest.begin(), oldest.end());
    size_t live = 0;
    for (uint32_t taken = 1; n > 0 && taken > 0; n -= taken) {
        const uint32_t room = n < plain.options.batch_max ? (uint32_t)n : plain.options.batch_max;
        heads.need(d, room), payloads.need(d, room * floats);
        if (!d->api->tables->take_oldest(tables, d->stream, t, step, room, heads.here, payloads.here, NULL,
                                         &taken, &error)) {
            fail("take_oldest: %s", error.text);
            return false;
        }
        std::vector<uint64_t> gone;
        for (uint32_t i = 0; i < taken; i++) {
            const uint64_t key = heads.here[i].key;
            const plain_row *row = table.find(key);
            gone.push_back(key);
            if (row == NULL && heads.here[i].seen < table.expired_before)
                continue;
            exported_row got = {heads.here[i], std::vector<float>(payloads.here + i * floats,
                                                                  payloads.here + (i + 1) * floats)};
            if (row == NULL || !is_row(got, *row))
                fail("step %u: key %llu of table %u leaves with another row", step, (unsigned long long)key,
                     t);
            else
                live++;
        }
        for (uint64_t key : gone) {
            auto at = table.rows.find(key);
            if (at != table.rows.end() && table.is_live(at->second))
                table.cold[key] = at->second;
            table.rows.erase(key);
        }
    }
    for (size_t i = 0; i < live && i < oldest.size() && is_good(); i++)
        if (table.cold.count(oldest[i].second) == 0)
            fail("step %u: key %llu of table %u is older than what left", step,
                 (unsigned long long)oldest[i].second, t);
    return is_good();
}

bool rig::import_all(const std::vector<std::pair<exported_row, plain_row>> &all, uint32_t used_by)
{
    const size_t floats = this->floats();
    const size_t most = plain.options.batch_max;
    gpu_error error = {};
    for (size_t from = 0; from < all.size() && is_good(); from += most) {
        const size_t n = all.size() - from < most ? all.size() - from : most;
        std::vector<distinct_key> piece;
        for (size_t i = 0; i < n; i++)
            piece.push_back({all[from + i].first.head.table, all[from + i].first.head.key, 0, 0});
        if (!room_for(piece))
            return false;
        heads.need(d, n), payloads.need(d, n * floats);
        for (size_t i = 0; i < n; i++) {
            const exported_row &row = all[from + i].first;
            heads.here[i] = row.head;
            memcpy(payloads.here + i * floats, row.payload.data(), floats * sizeof(float));
            plain_row put = all[from + i].second;
            put.step = used_by;
            plain.put(row.head.table, row.head.key, put);
        }
        if (!d->api->tables->import_rows(tables, d->stream, heads.here, payloads.here, (uint32_t)n, NULL,
                                         used_by, false, &error))
            fail("import_rows: %s", error.text);
    }
    return is_good();
}

bool rig::fetch_cold(const std::vector<distinct_key> &wanted)
{
    std::vector<std::pair<exported_row, plain_row>> all;
    for (const distinct_key &key : wanted) {
        plain_table &table = plain.tables[key.table];
        auto at = table.cold.find(key.key);
        if (at == table.cold.end())
            continue;
        if (table.is_live(at->second))
            all.push_back({exported(key.table, key.key, at->second), at->second});
        table.cold.erase(at);
    }
    return import_all(all, step + 1);
}

std::vector<gpu_row_head> rig::take_removed()
{
    enum { ROOM = 1000 };
    std::vector<gpu_row_head> out;
    gpu_error error = {};
    uint64_t n = ROOM;
    heads.need(d, ROOM);
    while (n == ROOM && is_good()) {
        if (!d->api->tables->take_removed(tables, d->stream, heads.here, ROOM, &n, &error))
            fail("take_removed: %s", error.text);
        out.insert(out.end(), heads.here, heads.here + n);
    }
    return out;
}

bool rig::remove_some(random_numbers *random, std::map<std::pair<uint32_t, uint64_t>, exported_row> *replica)
{
    std::vector<std::pair<uint32_t, uint64_t>> gone;
    for (const auto &key : known)
        if (random->below(10) == 0 && gone.size() < plain.options.batch_max)
            gone.push_back(key);
    for (size_t i = 0, distinct = gone.size(); i < distinct; i += 3)
        gone.push_back(gone[i]);
    keys.need(d, gone.size()), table_of.need(d, gone.size());
    for (size_t i = 0; i < gone.size(); i++) {
        table_of.here[i] = gone[i].first;
        keys.here[i] = gone[i].second;
        plain.erase(gone[i].first, gone[i].second);
        replica->erase(gone[i]);
    }
    keys.push(gone.size()), table_of.push(gone.size());
    d->api->tables->remove(tables, d->stream, keys.there, table_of.there, (uint32_t)gone.size());
    return wait("remove");
}
