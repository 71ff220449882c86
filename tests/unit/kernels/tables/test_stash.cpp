/* How many rows of a free table go to its stash: simulates make_room and insertion with keys alone, with the
 * same arithmetic (table_room.cuh) and the same addresses (table.cuh). For tables of many sizes, also between
 * doublings of their buckets, that still grow, or that have reached their memory limit and send their oldest
 * rows away. A plain program that prints TAP lines.
 *
 * test_stash [buckets rows_a_batch] */
#include "kernels/cuda/table_room.cuh"

#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

/* Rows are keys, numbered in the order of their arrival. */
struct simulated_table {
    gpu_table_view view = {};
    uint64_t buckets_most;
    std::vector<std::vector<uint64_t>> buckets;
    std::vector<uint64_t> stash;
    uint64_t first_key = 1, next_key = 1;
    uint64_t promised = 0; /* rows that may come before make_room is called again */
    size_t fullest = 0, asked = 0, batches = 0;

    simulated_table(uint64_t seed, uint64_t buckets_start, uint64_t buckets_end)
        : buckets_most(buckets_end), buckets(buckets_start)
    {
        view.seed = num_mix(seed);
        view.bucket_count = buckets_start;
    }
    uint64_t rows() const
    {
        return next_key - first_key;
    }
    void batch(uint64_t more);

  private:
    void make_room(uint64_t more);
    void send_away(uint64_t n);
    void split();
    void insert(uint64_t more);
    void empty_stash();
    size_t even_out(size_t most);
};

void simulated_table::split()
{
    const uint64_t from = table_split_from(buckets.size()), level = table_level(buckets.size());
    std::vector<uint64_t> stays, goes;
    for (uint64_t key : buckets[from]) {
        const uint64_t hash = table_hash_of(&view, key);
        const bool is_first = ((uint32_t)hash & (level - 1)) == from;
        const bool does_go = (((uint32_t)(is_first ? hash : hash >> 32)) & level) != 0;
        (does_go ? goes : stays).push_back(key);
    }
    buckets[from] = stays;
    buckets.push_back(goes);
    view.bucket_count++;
}

void simulated_table::send_away(uint64_t n)
{
    first_key += std::min(n, rows());
    auto is_old = [this](uint64_t key) { return key < first_key; };
    for (auto &bucket : buckets)
        bucket.erase(std::remove_if(bucket.begin(), bucket.end(), is_old), bucket.end());
    stash.erase(std::remove_if(stash.begin(), stash.end(), is_old), stash.end());
}

void simulated_table::empty_stash()
{
    std::vector<uint64_t> stays;
    for (uint64_t key : stash) {
        const uint64_t hash = table_hash_of(&view, key);
        auto &first = buckets[table_first(&view, hash)], &second = buckets[table_second(&view, hash)];
        if (first.size() < GPU_BUCKET_SLOTS)
            first.push_back(key);
        else if (second.size() < GPU_BUCKET_SLOTS)
            second.push_back(key);
        else
            stays.push_back(key);
    }
    stash = stays;
}

/* One round of table_even.cu. Returns how many rows were offered. */
size_t simulated_table::even_out(size_t most)
{
    struct offer {
        uint64_t to, from, key;
    };
    std::vector<offer> offers;
    for (uint64_t place = 0; place < buckets.size(); place++) {
        size_t gives = buckets[place].size() > most ? buckets[place].size() - most : 0;
        for (size_t i = 0; gives > 0 && i < buckets[place].size(); i++) {
            const uint64_t key = buckets[place][i], hash = table_hash_of(&view, key);
            const uint64_t first = table_first(&view, hash), second = table_second(&view, hash);
            const uint64_t other = place == second ? first : second;
            if (other == place || buckets[other].size() >= most)
                continue;
            offers.push_back({other, place, key});
            gives--;
        }
    }
    const size_t offered = offers.size();
    if (offered > ROOM_OFFERS)
        offers.resize(ROOM_OFFERS);
    std::stable_sort(offers.begin(), offers.end(),
                     [](const offer &a, const offer &b) { return a.to < b.to; });
    for (const offer &o : offers) {
        if (buckets[o.to].size() >= most)
            continue;
        buckets[o.to].push_back(o.key);
        buckets[o.from].erase(std::find(buckets[o.from].begin(), buckets[o.from].end(), o.key));
    }
    return offered;
}

void simulated_table::make_room(uint64_t more)
{
    const uint64_t wanted = std::min(buckets_most, room_buckets(rows(), more, buckets.size()));
    while (buckets.size() < wanted)
        split();
    const double over = ceil(room_rows_over(rows(), more, buckets.size()));
    if (over > 0)
        send_away((uint64_t)over + (uint64_t)over / 4);
    empty_stash();
    promised = std::max(more, room_rows_promised(rows(), more, buckets.size()));
    if (!room_is_tight(rows(), more, buckets.size()))
        return;
    const uint32_t most =
        room_rows_before(rows(), room_rows_ahead(rows(), more, buckets.size()), buckets.size());
    size_t offered = 1;
    for (int i = 0; i < ROOM_ROUNDS && offered > 0; i += offered <= ROOM_OFFERS)
        offered = even_out(most);
    empty_stash();
}

void simulated_table::insert(uint64_t more)
{
    std::vector<uint64_t> left;
    for (uint64_t i = 0; i < more; i++) {
        const uint64_t key = next_key++;
        auto &bucket = buckets[table_first(&view, table_hash_of(&view, key))];
        if (bucket.size() < GPU_BUCKET_SLOTS)
            bucket.push_back(key);
        else
            left.push_back(key);
    }
    for (uint64_t key : left) {
        auto &bucket = buckets[table_second(&view, table_hash_of(&view, key))];
        (bucket.size() < GPU_BUCKET_SLOTS ? bucket : stash).push_back(key);
    }
    fullest = std::max(fullest, stash.size());
}

void simulated_table::batch(uint64_t more)
{
    batches++;
    if (more > promised) {
        asked++;
        make_room(more);
    }
    insert(more);
    promised -= more;
}

/* Lets a table grow to `most` buckets, fill up and exchange rows. Returns the most rows that its
 * stash ever had. */
static size_t fullest_of(uint64_t seed, uint64_t most, uint64_t more, size_t *asked, size_t *batches)
{
    enum { BATCHES_TO_FILL = 12, EXCHANGES = 8 };
    simulated_table table(seed, 2, most);
    const uint64_t full = (uint64_t)(ROOM_LOAD_MOST * GPU_BUCKET_SLOTS * (double)most);
    for (int i = 0; i < BATCHES_TO_FILL; i++)
        table.batch(std::max(more, (full - std::min(full, table.rows())) / 4));
    for (int i = 0; i < EXCHANGES; i++)
        table.batch(more);
    *asked += table.asked;
    *batches += table.batches;
    return table.fullest;
}

/* Lets a table grow by small batches to `most` buckets and beyond. Returns the most rows that
 * its stash had. */
static size_t fullest_growing(uint64_t seed, uint64_t most, uint64_t batches, size_t *asked)
{
    simulated_table table(seed, 2, 2 * most);
    const uint64_t more = most * GPU_BUCKET_SLOTS / batches + 1;
    for (uint64_t i = 0; i < batches; i++)
        table.batch(more);
    *asked = table.asked;
    return table.fullest;
}

static bool grows(uint64_t most)
{
    enum { BATCHES = 600 };
    size_t asked = 0, fullest = fullest_growing(most, most, BATCHES, &asked);
    const bool is_fine = fullest <= GPU_STASH_BUCKETS * GPU_BUCKET_SLOTS / 4 && asked < BATCHES * 2 / 3;
    printf("%s - up to %llu buckets by small batches: %zu rows in the stash; room was made for %zu of %d\n",
           is_fine ? "ok" : "not ok", (unsigned long long)most, fullest, asked, BATCHES);
    return is_fine;
}

/* Tries batch sizes that are `shares` of the largest batch that the table takes at once,
 * with several seeds. */
static bool fits(uint64_t most, const std::vector<double> &shares, uint64_t seeds)
{
    size_t fullest = 0, asked = 0, batches = 0;
    for (double share : shares) {
        const double room =
            ROOM_LOAD_MOST * GPU_BUCKET_SLOTS * (double)most / (room_preference(most) * ROOM_NEW_ROWS_MORE);
        const uint64_t more = (uint64_t)(share * room) + 1;
        for (uint64_t seed = 1; seed <= seeds; seed++)
            fullest = std::max(fullest, fullest_of(seed, most, more, &asked, &batches));
    }
    const bool is_fine = fullest <= GPU_STASH_BUCKETS * GPU_BUCKET_SLOTS;
    printf("%s - %llu buckets: %zu of the stash's %d rows; room was made for %zu of %zu batches\n",
           is_fine ? "ok" : "not ok", (unsigned long long)most, fullest, GPU_STASH_BUCKETS * GPU_BUCKET_SLOTS,
           asked, batches);
    fflush(stdout);
    return is_fine;
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        size_t asked = 0, batches = 0;
        printf("%zu\n",
               fullest_of(1, strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10), &asked, &batches));
        return 0;
    }
    int failed = 0;
    for (uint64_t most : {16, 19, 22, 27, 31, 64, 91, 127, 512, 724, 1023})
        failed += !fits(most, {0.001, 0.01, 0.05, 0.1, 0.2, 0.4, 0.8}, 2);
    for (uint64_t most : {2896, 4096, 11585})
        failed += !fits(most, {0.01, 0.2}, 1);
    for (uint64_t most : {22, 64, 724, 1023})
        failed += !grows(most);
    return failed > 0;
}
