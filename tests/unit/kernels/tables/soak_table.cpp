/*
 * Soak test of embedding tables: random sets, each with random batches, updates, evictions, expiry, growth,
 * moves to a cold tier and back, removals, checkpoints (rows and removals since the last one are applied to a
 * replica) and restarts from an export. After each step the device must hold the same as the plain map.
 *
 *   soak_table [--seconds N] [--seed N] [--first PIECE]
 *
 * A piece is one set with its steps and follows from the seed and the piece's number alone: --seed S --first
 * P repeats it.
 */
#include "cases.h"

#include <algorithm>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Seconds of a run in `./dev test`. TSan looks for races, which show early; the other builds look for rare
 * states, which take time. `--seconds` takes more. */
#ifdef __SANITIZE_THREAD__
static const double SECONDS = 10;
#else
static const double SECONDS = 60;
#endif

struct soak {
    random_numbers random;
    std::vector<gpu_table_options> options;
    gpu_tables_options set;
    std::unique_ptr<rig> r;
    /* The rows that the checkpoints so far add up to. */
    std::map<std::pair<uint32_t, uint64_t>, exported_row> replica;
    uint32_t clock = 1000, checkpointed = 0;
    uint64_t keys;
    size_t batch;
};

static void choose(soak *s, device *d)
{
    static const uint32_t dims[] = {4, 8, 16, 68};
    static const row_format formats[] = {ROW_FP32, ROW_FP32, ROW_BF16, ROW_FP16};
    const uint32_t scale = d->model_begin != NULL ? 1 : 16;
    s->set = {};
    s->set.d = dims[s->random.below(4)];
    s->set.format = formats[s->random.below(4)];
    s->set.optimizer = (opt_kind)s->random.below(OPT_KINDS);
    s->set.accumulator = 0.25F;
    s->batch = 20 + s->random.below(200 * scale);
    s->set.batch_max = (uint32_t)s->batch;
    s->keys = s->batch * (2 + s->random.below(20));
    const uint64_t n = 1 + s->random.below(4);
    /* Either tables start with room for a batch and memory is tight, or tables grow freely. */
    const bool is_tight = s->random.below(2) == 0;
    for (uint64_t t = 0; t < n; t++) {
        gpu_table_options o = {};
        o.rows_max = s->random.below(2) == 0 ? 0 : 1 + s->random.below(600 * scale);
        o.rows_start = o.rows_max == 0 && is_tight ? 2 * s->batch : 0;
        o.seed = s->random.next(), o.init_seed = s->random.next();
        o.init_bound = 0.1F;
        o.admit_after = (uint32_t)s->random.below(4);
        o.sketch_bytes = 4096U << s->random.below(3);
        s->options.push_back(o);
    }
    gpu_tables_plan plan = {};
    gpu_error error = {};
    s->set.tables = (uint32_t)n, s->set.table = s->options.data(), s->set.memory_bytes = UINT64_MAX;
    (void)d->api->tables->plan(&s->set, UINT64_MAX, &plan, &error);
    s->set.memory_bytes = plan.bytes_least + ((is_tight ? s->random.below(4) : 8) * scale << 20);
}

static std::vector<place> places_of(soak *s)
{
    std::vector<place> places;
    const uint64_t hot = 1 + s->random.below(s->keys), base = s->random.below(3) * s->keys / 2;
    for (size_t i = 1 + s->random.below(s->batch); i > 0; i--) {
        const uint64_t key = s->random.below(3) == 0 ? s->random.below(hot) : base + s->random.below(s->keys);
        places.push_back({(uint32_t)s->random.below(s->options.size()), key * 0x9e3779b9U,
                          s->clock - (uint32_t)s->random.below(40)});
    }
    s->clock += (uint32_t)s->random.below(10);
    return places;
}

/* Takes a checkpoint: rows and removals since the last one, applied to the replica, must give
 * the table's content. */
static void checkpoint(soak *s)
{
    rig *r = s->r.get();
    const std::vector<gpu_row_head> removed = r->take_removed();
    for (const gpu_row_head &head : removed)
        s->replica.erase({head.table, head.key});
    for (const exported_row &row : r->export_all(s->checkpointed, r->epoch))
        s->replica[{row.head.table, row.head.key}] = row;
    for (uint32_t t = 0; t < s->options.size(); t++) /* the cold tier writes its own rows */
        for (const auto &at : r->plain.tables[t].cold)
            s->replica[{t, at.first}] = r->exported(t, at.first, at.second);
    s->checkpointed = r->epoch++;
    size_t live = 0;
    for (uint32_t t = 0; t < s->options.size(); t++) {
        const plain_table &table = r->plain.tables[t];
        for (const auto *rows : {&table.rows, &table.cold}) {
            for (const auto &at : *rows) {
                if (!table.is_live(at.second))
                    continue;
                const auto found = s->replica.find({t, at.first});
                live++;
                if (found == s->replica.end() || !r->is_row(found->second, at.second))
                    r->fail("the checkpoint after step %u has key %llu of table %u %s", r->step,
                            (unsigned long long)at.first, t,
                            found == s->replica.end() ? "not at all" : "with another row");
            }
        }
    }
    size_t kept = 0;
    for (const auto &at : s->replica)
        kept += at.second.head.seen >= r->plain.tables[at.first.first].expired_before;
    if (r->is_good() && kept != live)
        r->fail("the checkpoint after step %u has %zu live rows, the table %zu", r->step, kept, live);
}

/* Replaces the set by a new one with the rows that the old one exports. Sketches are not exported. */
static void restart(soak *s, device *d)
{
    std::unique_ptr<rig> old = std::move(s->r);
    const std::vector<exported_row> rows = old->export_all(0, UINT32_MAX);
    s->r.reset(new rig(d, s->set, s->options));
    if (!old->is_good())
        s->r->fail("%s", old->failure.c_str());
    s->r->step = old->step, s->r->epoch = old->epoch, s->r->known = old->known;
    for (uint32_t t = 0; t < s->options.size(); t++) {
        s->r->plain.tables[t].cold = old->plain.tables[t].cold;
        s->r->expire(t, old->plain.tables[t].expired_before);
    }
    std::vector<std::pair<exported_row, plain_row>> all;
    for (const exported_row &row : rows)
        all.push_back({row, *old->plain.tables[row.head.table].find(row.head.key)});
    old.reset();
    s->r->import_all(all, 0);
    s->checkpointed = 0;
    s->replica.clear();
    s->r->take_removed();
}

static void one_step(soak *s, device *d)
{
    rig *r = s->r.get();
    const uint32_t t = (uint32_t)s->random.below(s->options.size());
    const uint64_t what = s->random.below(20);
    r->batch(places_of(s));
    if (what < 10)
        r->write_rows(&s->random, 1 + (uint32_t)s->random.below(4));
    else if (what < 12)
        r->expire(t, s->clock - 30 - (uint32_t)s->random.below(60));
    else if (what == 12)
        r->halve(t);
    else if (what < 15)
        r->move_cold(t, 1 + s->random.below(100));
    else if (what == 15)
        r->remove_some(&s->random, &s->replica);
    else if (what < 19)
        checkpoint(s);
    else
        restart(s, d);
    if (s->r->is_good())
        s->r->check();
}

/* Plays one piece. Returns the text of the failure, or an empty string. */
static std::string play(device *d, uint64_t seed, uint64_t piece, int steps)
{
    soak s;
    s.random.state = seed * 1000003 + piece;
    d->shuffle(s.random.next());
    choose(&s, d);
    s.r.reset(new rig(d, s.set, s.options));
    s.r->take_removed(); /* removals are recorded from now on */
    for (int i = 0; i < steps && s.r->is_good(); i++)
        one_step(&s, d);
    if (s.r->is_good())
        checkpoint(&s);
    return s.r->failure;
}

int main(int argc, char **argv)
{
    static const struct option names[] = {{"seconds", required_argument, NULL, 't'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"first", required_argument, NULL, 'f'},
                                          {NULL, 0, NULL, 0}};
    double seconds = SECONDS;
    uint64_t seed = 1, first = 0, piece;
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (c == 't')
            seconds = atof(optarg);
        else if (c == 's')
            seed = strtoull(optarg, NULL, 10);
        else if (c == 'f')
            first = strtoull(optarg, NULL, 10);
        else
            return 2;
    }
    device d;
    if (!d.open()) {
        printf("ok - soak of embedding tables # SKIP no device: %s\n", d.why.c_str());
        return 77;
    }
    timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    std::string failure;
    for (piece = first; failure.empty(); piece++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        const double passed =
            (double)(now.tv_sec - begin.tv_sec) + (double)(now.tv_nsec - begin.tv_nsec) * 1e-9;
        if (passed >= seconds && piece > first)
            break;
        failure = play(&d, seed, piece, d.model_begin != NULL ? 20 : 60);
        if (!failure.empty())
            printf("not ok - soak of embedding tables: %s (again: --seed %llu --first %llu)\n",
                   failure.c_str(), (unsigned long long)seed, (unsigned long long)piece);
    }
    if (failure.empty())
        printf("ok - soak of embedding tables, seed %llu: pieces %llu to %llu\n", (unsigned long long)seed,
               (unsigned long long)first, (unsigned long long)piece - 1);
    d.close();
    return !failure.empty();
}
