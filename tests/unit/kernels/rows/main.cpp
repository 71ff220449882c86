/* Import, export, find, removal and moves of rows of embedding tables, compared with a std::map; on a device
 * or on the host's model. */
#include "rows.h"

#include "tests/unit/learners/host_model.h"

#include <algorithm>
#include <stdio.h>
#include <string.h>

enum { MIB = 1 << 20 };

static row_map some_rows(const rig &r, random_numbers *random, uint32_t n, uint32_t epoch)
{
    row_map some;
    while (some.size() < n)
        some[{(uint32_t)random->below(r.options.tables), random->next() | 1}] = r.made(random, epoch);
    return some;
}

/* Tables grow from two buckets to hundreds; after each step all rows are found and can be exported. */
static void test_growth(device *d, bool is_small)
{
    random_numbers random = {1};
    rig r(d, 2, 4, ROW_FP32, OPT_SGD, 64 * MIB, 1024);
    uint64_t before = r.stats(0).buckets;
    for (uint32_t step = 1; step <= (is_small ? 4U : 9U) && r.is_good(); step++) {
        if (!r.import_rows(some_rows(r, &random, 300 + step, step), step, false, step % 2 == 0))
            r.fail("import: %s", r.error.text);
        if (step % 3 == 0)
            r.make_room({step * 100, 0});
        r.check();
    }
    gpu_table_stats now = r.stats(0);
    if (before > 2 || (double)now.rows > 0.95 * 128 * (double)now.buckets)
        r.fail("%llu buckets became %llu, for %llu rows", (unsigned long long)before,
               (unsigned long long)now.buckets, (unsigned long long)now.rows);
    r.make_room({is_small ? 3000U : 200000U, 10});
    r.check();
    gpu_table_stats grown = r.stats(0);
    if (!is_small && grown.buckets < 200000 / 128)
        r.fail("%llu buckets for 200000 rows", (unsigned long long)grown.buckets);
    report(r, "a table grows from two buckets, its rows stay where they are found");
}

static void test_import_over(device *d)
{
    random_numbers random = {2};
    rig r(d, 3, 8, ROW_FP32, OPT_ADAM, 64 * MIB, 700);
    row_map first = some_rows(r, &random, 500, 1), second, third;
    r.import_rows({}, 1, false, false);
    r.check();
    r.import_rows(first, 1, false, true);
    for (const auto &item : first) {
        if (random.below(2) == 0)
            second[item.first] = r.made(&random, 2);
        if (random.below(2) == 0)
            third[item.first] = r.made(&random, 3);
    }
    row_map fresh = some_rows(r, &random, 100, 2);
    second.insert(fresh.begin(), fresh.end());
    r.import_rows(second, 2, false, false);
    r.check();
    fresh = some_rows(r, &random, 100, 3);
    third.insert(fresh.begin(), fresh.end());
    r.import_rows(third, 3, true, true);
    r.check();
    report(r, "rows come in place of what is there, or leave that as it is");
}

static void test_dirty(device *d)
{
    random_numbers random = {3};
    rig r(d, 2, 4, ROW_FP32, OPT_ADAGRAD_ROW, 64 * MIB, 600);
    r.check_export(0, 0, 7);
    r.check_export(1, 9, 7);
    for (uint32_t epoch = 1; epoch <= 5; epoch++)
        r.import_rows(some_rows(r, &random, 40 * epoch, epoch), epoch, false, false);
    for (uint32_t piece : {1U, 63U, 128U, 600U}) {
        r.check_export(0, 0, piece);
        r.check_export(2, 4, piece);
        r.check_export(5, 9, piece); /* no row */
        r.check_export(4, 5, piece);
    }
    r.check();
    report(r, "select and export give what changed between two epochs: nothing, some, all; in pieces");
}

static void test_formats(device *d)
{
    static const struct {
        row_format format;
        opt_kind optimizer;
        uint32_t dim;
        const char *name;
        uint32_t extra;
    } kinds[] = {{ROW_FP32, OPT_ADAM, 64, "fp32", 0},
                 {ROW_BF16, OPT_ADAGRAD, 12, "bf16", 0},
                 {ROW_FP16, OPT_ADAGRAD_ROW, 4, "fp16", 0},
                 {ROW_FP16, OPT_FTRL, 132, "fp16, 132 wide", 0},
                 {ROW_FP32, OPT_ADAGRAD_BLOCK, 512, "512", 0},
                 {ROW_INT8, OPT_SGD, 20, "int8", 0},
                 {ROW_FP32, OPT_ADAM, 64, "fp32 and extra floats", 4},
                 {ROW_FP16, OPT_ADAGRAD_ROW, 4, "fp16 and extra floats", 4},
                 {ROW_INT8, OPT_SGD, 20, "int8 and extra floats", 4},
                 {ROW_FP32, OPT_FTRL, 0, "extra floats alone", 4}};
    for (const auto &kind : kinds) {
        random_numbers random = {4};
        rig r(d, 2, kind.dim, kind.format, kind.optimizer, 256 * MIB, 300, kind.extra);
        row_map taken;
        if (!r.import_rows(some_rows(r, &random, 300, 1), 5, false, true))
            r.fail("import: %s", r.error.text);
        r.check();
        r.take_oldest(1, 9, 70, &taken);
        r.check();
        r.import_rows(taken, 6, false, false);
        r.check();
        std::string what = std::string("rows leave and come back bit for bit: ") + kind.name;
        report(r, what.c_str());
    }
}

static void test_remove(device *d)
{
    random_numbers random = {5};
    rig r(d, 2, 4, ROW_FP32, OPT_SGD, 64 * MIB, 800);
    r.import_rows(some_rows(r, &random, 700, 1), 1, false, false);
    for (int round = 0; round < 3; round++) {
        std::vector<table_key> some;
        for (const auto &item : r.rows)
            if (random.below(3) == 0)
                some.push_back(item.first);
        some.push_back({0, 12345678}); /* no such key */
        r.remove(some);
        r.check();
        r.import_rows(some_rows(r, &random, 100, 2), 2, false, true);
        r.check();
    }
    gpu_row_head removed[4];
    uint64_t count = 9;
    if (!d->api->tables->take_removed(r.tables, d->stream, removed, 4, &count, &r.error) || count != 0)
        r.fail("take_removed lists %llu keys that were taken away", (unsigned long long)count);
    report(r, "keys are taken away, and their slots serve others");
}

static void test_missing(device *d)
{
    random_numbers random = {6};
    rig r(d, 3, 4, ROW_FP32, OPT_SGD, 64 * MIB, 512);
    std::vector<table_key> asked;
    std::vector<uint32_t> expected;
    row_map there = some_rows(r, &random, 200, 1), taken;
    r.import_rows(there, 3, false, false);
    for (const auto &item : there)
        if (random.below(2) == 0)
            asked.push_back(item.first);
    for (int i = 0; i < 60; i++)
        asked.push_back({(uint32_t)random.below(3), random.next() | 1});
    for (size_t i = asked.size() - 1; i > 0; i--)
        std::swap(asked[i], asked[random.below(i + 1)]);
    for (uint32_t i = 0; i < asked.size(); i++)
        if (r.rows.count(asked[i]) == 0)
            expected.push_back(i);
    if (r.missing(asked, 7) != expected)
        r.fail("other keys are missing than should be");
    if (!r.missing({}, 7).empty())
        r.fail("of no keys, some are missing");
    for (uint32_t t = 0; t < 3; t++)
        r.take_oldest(t, 7, 500, &taken); /* moves all rows but the marked ones */
    r.check();
    if (!r.missing({asked.begin(), asked.begin() + 5}, 4).empty() == (expected.empty() || expected[0] >= 5))
        r.fail("after rows went, others are missing");
    r.take_oldest(0, 7, 500, &taken);
    if (!taken.empty())
        r.fail("an earlier step took a row's mark away");
    report(r, "missing lists keys without a row in order, and spares the others");
}

/* take_oldest: many rows of one step, steps near 2^32, rows imported with step 0 (as from the cold tier). */
static void test_oldest(device *d)
{
    for (uint32_t base : {1U, UINT32_MAX - 3}) {
        random_numbers random = {7};
        rig r(d, 2, 4, ROW_FP32, OPT_SGD, 64 * MIB, 512);
        row_map taken;
        for (uint32_t i = 0; i < 3; i++) /* the steps base, base + 1, base + 2 */
            r.import_rows(some_rows(r, &random, 150, 1), base + i, false, false);
        r.import_rows(some_rows(r, &random, 20, 1), 0, false, false);
        for (uint32_t n : {1U, 2U, 7U, 60U, 0U, 40U, 500U}) {
            r.take_oldest(0, base + 2, n, &taken);
            r.check();
        }
        r.take_oldest(1, base, 500, &taken); /* only the rows of step 0 */
        r.check();
        report(r, base == 1 ? "take_oldest: the lowest (step, key), none that are spared"
                            : "take_oldest: likewise when steps come near 2^32");
    }
}

static void test_memory(device *d, bool is_small)
{
    random_numbers random = {8};
    /* The memory should allow about 32 buckets more, and each piece of memory must hold few of them: where
     * pieces are large, rows are wider, too. */
    const bool is_wide = has_wide_pieces();
    const uint32_t dim = is_wide ? 512 : 64;
    const uint64_t more = (is_wide ? 27 : 3) * MIB;
    rig r(d, 1, dim, ROW_FP32, OPT_ADAM, 0, 600);
    gpu_tables_plan plan = {};
    if (r.tables != NULL)
        r.fail("a set was made in no memory at all");
    report(r.failure.find("need") != std::string::npos, "no memory: refused, with what is needed");
    gpu_tables_options o = r.options;
    o.table = r.table_options.data();
    o.memory_bytes = (uint64_t)1 << 40;
    d->api->tables->plan(&o, o.memory_bytes, &plan, &r.error);
    rig small(d, 1, dim, ROW_FP32, OPT_ADAM, plan.bytes_least + more, 600);
    row_map taken;
    uint32_t refused = 0, step = 1;
    double fullest = 0;
    for (; step < (is_small ? 9U : 14U) && small.is_good(); step++) {
        row_map some = some_rows(small, &random, 500, 1);
        if (!small.import_rows(some, step, false, true)) {
            refused++;
            if (strstr(small.error.text, "do not fit") == NULL)
                small.fail("refused with: %s", small.error.text);
            small.check();
            std::vector<uint64_t> cold = small.make_room({500});
            if (cold[0] == 0 || cold[0] > 1000)
                small.fail("%llu rows have to go", (unsigned long long)cold[0]);
            small.take_oldest(0, step, (uint32_t)std::min<uint64_t>(cold[0], 600), &taken);
            if (!small.import_rows(some, step, false, true))
                small.fail("after rows went: %s", small.error.text);
        }
        small.check();
        gpu_table_stats now = small.stats(0);
        fullest = std::max(fullest, (double)now.rows / (128.0 * (double)now.buckets));
        if (now.bytes > small.options.memory_bytes)
            small.fail("%llu bytes are taken", (unsigned long long)now.bytes);
    }
    printf("# fullest: %.3f of the slots; %u imports refused\n", fullest, refused);
    if (refused == 0 || fullest < 0.85 || fullest > 0.95)
        small.fail("refused %u times, fullest %.3f", refused, fullest);
    report(small, "memory_bytes is kept: rows are sent to the cold tier instead, and none is lost");
}

/* The device itself has no more memory: the table keeps its rows and goes on. */
static void test_allocation(device *d)
{
    if (d->model_fail_allocation == NULL) {
        printf("ok - a table that cannot grow keeps its rows # SKIP not on the host's model\n");
        return;
    }
    random_numbers random = {9};
    rig r(d, 1, 64, ROW_FP32, OPT_ADAM, 64 * MIB, 1024);
    r.import_rows(some_rows(r, &random, 100, 1), 1, false, false);
    for (int nth = 1; nth <= 3; nth++) {
        d->model_fail_allocation(nth);
        std::vector<uint64_t> cold = r.make_room({(uint32_t)nth * 2000});
        d->model_fail_allocation(0);
        r.check();
        if (nth == 1 && r.is_good() && cold[0] == 0 && r.stats(0).buckets < 17)
            r.fail("nothing is said of rows that have to go");
    }
    report(r, "a table that cannot grow keeps its rows, and says how many have to go");
}

int main(int count, char **arguments)
{
    bool is_small = count > 1 && strcmp(arguments[1], "--reduced") == 0;
#ifdef __SANITIZE_THREAD__ /* races show in few buckets as well as in hundreds */
    is_small = true;
#endif
    device d;
    gpu_error error = {};
    if (!d.open(&error)) {
        printf("# %s\n", error.text);
        return 77;
    }
    test_growth(&d, is_small);
    test_import_over(&d);
    test_dirty(&d);
    test_formats(&d);
    test_remove(&d);
    test_missing(&d);
    test_oldest(&d);
    test_memory(&d, is_small);
    test_allocation(&d);
    d.close();
    return report_end();
}
