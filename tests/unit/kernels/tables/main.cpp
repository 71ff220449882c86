/*
 * Embedding tables on a device against the plain map: a case for each option and each corner case. A plain
 * program that prints TAP lines; without a device it is skipped.
 *
 *   test_tables [--reduced] [case]
 */
#include "cases.h"

#include <stdio.h>
#include <string.h>

bool is_reduced;

gpu_tables_options some_options(uint32_t dims)
{
    gpu_tables_options o = {};
    o.d = dims;
    o.format = ROW_FP32;
    o.optimizer = OPT_ADAGRAD;
    o.accumulator = 0.5F;
    o.batch_max = 4096;
    o.memory_bytes = (uint64_t)1 << 28;
    return o;
}

gpu_table_options bounded(uint64_t rows_max)
{
    gpu_table_options o = {};
    o.rows_max = rows_max;
    o.seed = 1234567;
    o.init_seed = 7654321;
    o.init_bound = 0.125F;
    return o;
}

gpu_table_options unbounded(uint64_t rows_start)
{
    gpu_table_options o = bounded(0);
    o.rows_start = rows_start;
    return o;
}

std::vector<place> some_places(random_numbers *random, size_t n, uint64_t keys, uint32_t tables,
                               uint32_t seen)
{
    std::vector<place> places;
    for (size_t i = 0; i < n; i++)
        places.push_back({(uint32_t)random->below(tables), 1 + random->below(keys) * 0x10001U,
                          seen + (uint32_t)random->below(50)});
    return places;
}

/* Runs batches of random keys (`keys` of them, which the tables can hold or not), and writes
 * rows in between. */
static void run_random(rig *r, uint64_t seed, int batches, size_t n, uint64_t keys)
{
    random_numbers random = {seed};
    uint32_t tables = (uint32_t)r->plain.tables.size();
    for (int i = 0; i < batches && r->is_good(); i++) {
        r->batch(some_places(&random, n, keys, tables, 1000 + (uint32_t)i * 10));
        r->write_rows(&random, 3);
        if (i % 3 == 2 || i + 1 == batches)
            r->check();
    }
}

/* --- Cases --- */

static void bounded_rows(device *d, std::string *failure)
{
    for (uint64_t rows_max : {1, 127, 128, 129, 1000}) {
        rig r(d, some_options(8), {bounded(rows_max)});
        run_random(&r, rows_max, is_reduced ? 4 : 8, 300, 1500);
        if (!r.is_good())
            *failure = "rows_max " + std::to_string(rows_max) + ": " + r.failure;
    }
}

static void free_rows(device *d, std::string *failure)
{
    rig r(d, some_options(8), {unbounded(6000)});
    run_random(&r, 5, is_reduced ? 5 : 10, 600, 1 << 20);
    *failure = r.failure;
}

static void dims_and_formats(device *d, std::string *failure)
{
    const uint32_t dims[] = {4, 12, 16, 64, 68, 128, 512};
    for (uint32_t dim : dims) {
        for (row_format format : {ROW_FP32, ROW_BF16, ROW_FP16}) {
            gpu_tables_options o = some_options(dim);
            o.format = format;
            o.optimizer = (opt_kind)((dim / 4 + (uint32_t)format) % OPT_KINDS);
            gpu_table_options tiny = bounded(150);
            tiny.init_bound = 1e-4F; /* fp16: below its normal numbers */
            rig r(d, o, {tiny, unbounded(700)});
            run_random(&r, dim + (uint32_t)format, 3, 100, 400);
            if (!r.is_good())
                *failure =
                    "dim " + std::to_string(dim) + ", format " + std::to_string(format) + ": " + r.failure;
        }
    }
}

/* Four floats behind each row's vector, and rows that have nothing else (dim 0). They are
 * bits: never rounded. */
static void extra_floats(device *d, std::string *failure)
{
    for (uint32_t dim : {0, 4, 12, 64, 512}) {
        for (row_format format : {ROW_FP32, ROW_BF16}) {
            gpu_tables_options o = some_options(dim);
            o.format = format;
            o.optimizer = dim == 12 ? OPT_ADAGRAD_ROW : dim == 64 ? OPT_SGD : OPT_ADAM;
            o.extra_floats = 4;
            const double two[2] = {1.0 / 3.0, -2.0e-308};
            memcpy(o.extra, two, sizeof(two));
            rig r(d, o, {bounded(150), unbounded(700), unbounded(128)});
            run_random(&r, dim + 50 + (uint32_t)format, is_reduced ? 3 : 5, 300, 1200);
            for (uint32_t t = 1; t < 3; t++)
                r.move_cold(t, 60);
            r.check();
            run_random(&r, dim + 60, 2, 300, 1200); /* the rows come back */
            if (!r.is_good())
                *failure =
                    "dim " + std::to_string(dim) + ", format " + std::to_string(format) + ": " + r.failure;
        }
    }
}

static void admission(device *d, std::string *failure)
{
    for (uint32_t after : {2, 3, 4, 255, 1000}) {
        gpu_table_options o = after == 4 ? unbounded(3000) : bounded(2000);
        o.admit_after = after;
        o.sketch_bytes = after == 2 ? 0 : 1 << 16;
        o.shards = after == 2 ? 0 : after == 255 ? 16 : 8;
        rig r(d, some_options(4), {o});
        random_numbers random = {after};
        for (int i = 0; i < (is_reduced ? 5 : 10) && r.is_good(); i++) {
            std::vector<place> places =
                some_places(&random, is_reduced ? 400 : 800, after < 10 ? 1000 : 4, 1, 7);
            r.batch(places);
            r.check();
            if (i % 4 == 3)
                r.halve(0);
        }
        if (!r.is_good())
            *failure = "admit_after " + std::to_string(after) + ": " + r.failure;
    }
}

/* Rows expire; some occur again, some do not; new rows may already be expired when they are made. */
static void expiry(device *d, std::string *failure)
{
    for (uint64_t rows_max : {0, 400, 5000}) {
        gpu_table_options o = rows_max > 0 ? bounded(rows_max) : unbounded(9000);
        o.admit_after = rows_max == 400 ? 2 : 1;
        rig r(d, some_options(4), {o});
        random_numbers random = {rows_max};
        for (uint32_t i = 0; i < (is_reduced ? 8 : 12) && r.is_good(); i++) {
            r.batch(some_places(&random, is_reduced ? 250 : 500, is_reduced ? 1000 : 3000, 1, 1000 + 20 * i));
            if (i % 2 == 1)
                r.expire(0, 1000 + 20 * i - (i % 3 == 0 ? 10 : 60));
            r.check();
        }
        if (!r.is_good())
            *failure = "rows_max " + std::to_string(rows_max) + ": " + r.failure;
    }
}

/* Expired rows of full buckets occur again and are not admitted: they are removed. Behind the free slots lie
 * keys in their second buckets and in the stash, which must still be found. expire alone would sweep a table
 * of this size at once, so the rows are already expired when they are made. */
static void expired_unadmitted(device *d, std::string *failure)
{
    enum { BUCKETS = 16, ROWS = BUCKETS * GPU_BUCKET_SLOTS * 19 / 20 };
    gpu_table_options o = unbounded(ROWS);
    o.admit_after = 2;
    o.sketch_bytes = 1 << 20;
    rig r(d, some_options(4), {o});
    r.grows = false;
    std::vector<place> all, expired, live;
    for (uint64_t key = 1; key <= ROWS; key++) {
        const place at = {0, key * 0x10001U, key % 3 == 0 ? 50U : 200U};
        all.push_back(at);
        all.push_back(at);
        (key % 3 == 0 ? expired : live).push_back(at);
    }
    r.expire(0, 100);
    r.batch(all);
    for (int i = 0; i < 2; i++)
        r.halve(0); /* two halvings: the sketch forgets two occurrences */
    r.batch(expired);
    if (r.is_good() && r.plain.tables[0].waiting == 0)
        r.fail("all were admitted");
    r.batch(live);
    r.check();
    *failure = r.failure;
}

/* All rows of a bucket are of this batch, so further keys are refused; then batches larger than the table. */
static void refused(device *d, std::string *failure)
{
    rig r(d, some_options(4), {bounded(200)});
    std::vector<place> places;
    for (uint64_t key = 1; key <= 1000; key++)
        places.push_back({0, key, 5});
    r.batch(places);
    r.check();
    r.batch(places);
    r.check();
    run_random(&r, 3, is_reduced ? 2 : 4, is_reduced ? 1500 : 3000, 100000);
    if (r.is_good() && r.plain.tables[0].refused == 0)
        r.fail("nothing was refused");
    *failure = r.failure;
}

static void one_key(device *d, std::string *failure)
{
    gpu_tables_options o = some_options(4);
    o.batch_max = is_reduced ? 20000 : 1000000;
    rig r(d, o, {bounded(10)});
    std::vector<place> places;
    random_numbers random = {9};
    for (uint32_t i = 0; i < o.batch_max; i++)
        places.push_back({0, 77, (uint32_t)random.below(1000000)});
    places.resize(places.size() - 300);
    for (uint64_t i = 0; i < 300; i++) /* a second key with many occurrences, but fewer */
        places.push_back({0, 78, (uint32_t)(i == 250 ? 2000000 : i)});
    r.batch(places);
    r.check();
    r.batch(places);
    r.check();
    const plain_row *row = r.plain.tables[0].find(77);
    if (r.is_good() && (row == NULL || row->count != 2 * (o.batch_max - 300)))
        r.fail("the plain map is wrong");
    *failure = r.failure;
}

static void ends_of_the_range(device *d, std::string *failure)
{
    rig r(d, some_options(4), {bounded(64), unbounded(64)});
    std::vector<place> places;
    for (uint64_t key : {(uint64_t)0, (uint64_t)1, (uint64_t)2, UINT64_MAX, UINT64_MAX - 1, (uint64_t)1 << 63,
                         (uint64_t)1 << 32, (uint64_t)UINT32_MAX, (uint64_t)0xff00ff00ff00ff00U})
        for (uint32_t t = 0; t < 2; t++)
            places.push_back({t, key, t == 0 ? UINT32_MAX : 0});
    r.batch(places);
    r.check();
    r.batch(places);
    r.check();
    *failure = r.failure;
}

/* Only keys of one bucket: far more than it holds. */
static void one_bucket(device *d, std::string *failure)
{
    gpu_table_options o = bounded(128 * 64);
    rig r(d, some_options(4), {o});
    std::vector<uint64_t> same;
    for (uint64_t key = 1; same.size() < 700; key++)
        if (num_mix(key ^ o.seed) >> 58 == 17)
            same.push_back(key);
    random_numbers random = {4};
    for (int i = 0; i < 8 && r.is_good(); i++) {
        std::vector<place> places;
        for (int j = 0; j < 150; j++)
            places.push_back({0, same[random.below(same.size())], (uint32_t)random.below(4)});
        r.batch(places);
        r.check();
    }
    *failure = r.failure;
}

static void loads(device *d, std::string *failure)
{
    for (uint64_t percent : {50, 95, 100}) {
        const uint64_t rows_max = is_reduced ? 512 : 8192;
        rig r(d, some_options(4), {bounded(rows_max)});
        uint64_t key = 1;
        for (uint64_t rows = 0; rows < rows_max * percent / 100 && r.is_good();) {
            std::vector<place> places;
            for (uint64_t i = 0; i < rows_max / 2; i++, key++)
                places.push_back({0, key, 1});
            r.batch(places);
            rows = r.plain.tables[0].rows.size();
        }
        r.check();
        run_random(&r, percent, 3, rows_max / 2, 3 * rows_max);
        if (!r.is_good())
            *failure = std::to_string(percent) + " percent: " + r.failure;
    }
}

/* Fills a free table at once to 0.95 of its initial room: second buckets and the stash are used. */
static void free_at_095(device *d, std::string *failure)
{
    gpu_tables_options o = some_options(4);
    o.batch_max = 8192;
    const uint64_t rows = 128 * (is_reduced ? 16 : 60) * 95 / 100;
    rig r(d, o, {unbounded(rows)});
    r.grows = false;
    std::vector<place> places;
    for (uint64_t key = 1; key <= rows; key++)
        places.push_back({0, key * 3, (uint32_t)key});
    r.batch(places);
    r.check();
    r.expire(0, (uint32_t)rows / 3);
    r.check();
    r.grows = true;
    run_random(&r, 8, 4, 300, 3000);
    *failure = r.failure;
}

/* Rows leave full buckets in each possible way: removed, to the cold tier, expired, or by a split. Behind the
 * free slots lie keys in their second buckets and in the stash, which must still be found. */
static void full_buckets(device *d, std::string *failure)
{
    enum { BUCKETS = 16, ROWS = BUCKETS * GPU_BUCKET_SLOTS * 19 / 20 };
    static const char *const ways[] = {"removed", "to the cold tier", "expired", "split"};
    for (size_t way = 0; way < sizeof(ways) / sizeof(*ways) && failure->empty(); way++) {
        rig r(d, some_options(4), {unbounded(ROWS)});
        random_numbers random = {way};
        std::vector<place> places;
        std::map<std::pair<uint32_t, uint64_t>, exported_row> replica;
        r.grows = false;
        for (uint64_t key = 1; key <= ROWS; key++)
            places.push_back({0, key * 0x10001U, 1 + (uint32_t)random.below(100)});
        r.batch(places);
        r.batch({places[0]}); /* makes the other rows older */
        for (int i = 0; way == 0 && i < 3; i++)
            r.remove_some(&random, &replica);
        if (way == 1)
            r.move_cold(0, ROWS / 3);
        if (way == 2)
            r.expire(0, 33);
        r.grows = way == 3;
        if (way == 3)
            r.batch(some_places(&random, 300, (uint64_t)1 << 40, 1, 100));
        r.check();
        if (!r.is_good())
            *failure = std::string(ways[way]) + ": " + r.failure;
    }
}

static void several_tables(device *d, std::string *failure)
{
    gpu_table_options admits = bounded(500), other = unbounded(8000), third = bounded(1),
                      last = unbounded(4000);
    admits.admit_after = 3;
    admits.sketch_bytes = 8192;
    other.seed = 5, other.init_seed = 6, other.init_bound = 1.0F;
    last.admit_after = 2;
    rig r(d, some_options(16), {admits, other, third, bounded(3000), last});
    random_numbers random = {12};
    for (uint32_t i = 0; i < (is_reduced ? 5 : 9) && r.is_good(); i++) {
        r.batch(some_places(&random, is_reduced ? 700 : 1500, is_reduced ? 600 : 1200, 5, 100 * i));
        r.write_rows(&random, 2);
        r.expire(i % 5, 40 * i);
        r.check();
    }
    *failure = r.failure;
}

/* Counts stay at UINT32_MAX. */
static void saturation(device *d, std::string *failure)
{
    rig r(d, some_options(4), {bounded(4)});
    r.batch({{0, 5, 1}, {0, 6, 1}, {0, 7, 1}});
    std::vector<std::pair<exported_row, plain_row>> rows;
    for (uint64_t key = 5; key <= 7 && r.is_good(); key++) {
        plain_row row = *r.plain.tables[0].find(key);
        row.count = UINT32_MAX - 7 + (uint32_t)key;
        rows.push_back({r.exported(0, key, row), row});
    }
    r.import_all(rows, 0);
    r.batch({{0, 5, 1}, {0, 6, 1}, {0, 5, 1}, {0, 7, 1}, {0, 5, 1}});
    r.check();
    if (r.is_good() && r.plain.tables[0].find(5)->count != UINT32_MAX)
        r.fail("the plain map is wrong");
    *failure = r.failure;
}

static void nothing(device *d, std::string *failure)
{
    rig r(d, some_options(4), {bounded(10), unbounded(10)});
    r.check();
    r.batch({});
    r.batch({{0, 0, 1}, {1, 0, 1}, {0, 0, 3}}); /* only absent ids */
    r.check();
    r.batch({{1, 9, 1}});
    r.check();
    *failure = r.failure;
}

static void plans(device *d, std::string *failure)
{
    struct {
        const char *what, *text;
        uint32_t dims;
        row_format format;
        uint64_t rows_max;
        uint32_t batch_max;
        gpu_failure expected;
        uint32_t extra;
    } cases[] = {
        {"dim 0", "0 weights", 0, ROW_FP32, 10, 10, GPU_UNSUPPORTED, 0},
        {"3 extra floats", "0 or 4 extra floats", 8, ROW_FP32, 10, 10, GPU_UNSUPPORTED, 3},
        {"a linear weight alone", "", 0, ROW_FP32, 10, 10, GPU_OK, 4},
        {"dim 6", "6 weights", 6, ROW_FP32, 10, 10, GPU_UNSUPPORTED, 0},
        {"dim 516", "516 weights", 516, ROW_FP32, 10, 10, GPU_UNSUPPORTED, 0},
        {"format 7", "7 is not a format", 8, (row_format)7, 10, 10, GPU_UNSUPPORTED, 0},
        {"int8 that learns", "int8 cannot learn", 8, ROW_INT8, 10, 10, GPU_UNSUPPORTED, 0},
        {"too large", "15500 MiB are free", 64, ROW_FP32, 1 << 30, 10, GPU_NO_MEMORY, 0},
        {"beyond all bounds", "2^37", 8, ROW_FP32, UINT64_MAX, 10, GPU_UNSUPPORTED, 0},
        {"fine", "", 8, ROW_FP32, 10, 10, GPU_OK, 0},
    };
    for (const auto &c : cases) {
        gpu_table_options table = bounded(c.rows_max);
        gpu_tables_options o = some_options(c.dims);
        o.format = c.format, o.batch_max = c.batch_max, o.tables = 1, o.table = &table;
        o.optimizer = OPT_SGD;
        o.extra_floats = c.extra;
        o.memory_bytes = UINT64_MAX;
        gpu_tables_plan plan;
        gpu_error error = {};
        bool is_fine = d->api->tables->plan(&o, (uint64_t)15500 << 20, &plan, &error);
        if (is_fine != (c.expected == GPU_OK) || error.failure != c.expected ||
            strstr(error.text, c.text) == NULL)
            *failure = std::string(c.what) + ": " + error.text;
        if (c.expected == GPU_NO_MEMORY && strstr(error.text, "need at least 287746") == NULL)
            *failure = std::string("how much is needed is not told: ") + error.text;
    }
    gpu_error error = {};
    gpu_table_options table = bounded((uint64_t)1 << 36);
    gpu_tables_options o = some_options(512);
    o.tables = 1, o.table = &table;
    if (d->api->tables->create(d->on, &o, &error) != NULL || error.failure != GPU_NO_MEMORY)
        *failure = "a table that is too large was made";
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(device *, std::string *);
    } cases[] = {{"plans", plans},
                 {"nothing", nothing},
                 {"bounded", bounded_rows},
                 {"free", free_rows},
                 {"admission", admission},
                 {"expiry", expiry},
                 {"expired, not admitted", expired_unadmitted},
                 {"refused", refused},
                 {"one key", one_key},
                 {"one bucket", one_bucket},
                 {"ends of the range", ends_of_the_range},
                 {"loads", loads},
                 {"free at 0.95", free_at_095},
                 {"full buckets", full_buckets},
                 {"several tables", several_tables},
                 {"saturation", saturation},
                 {"dims and formats", dims_and_formats},
                 {"extra floats", extra_floats},
                 {"the CPU's tables", cpu_tables}};
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--reduced") == 0)
            is_reduced = true;
        else
            only = argv[i];
    }
    device d;
    int failed = 0, number = 0;
    if (!d.open()) {
        printf("ok - embedding tables # SKIP no device: %s\n", d.why.c_str());
        return 77;
    }
    is_reduced |= d.model_begin != NULL;
    for (const auto &c : cases) {
        std::string failure;
        number++;
        if (only != NULL && strcmp(only, c.name) != 0)
            continue;
        d.shuffle((uint64_t)number);
        c.run(&d, &failure);
        printf("%s - %s%s%s\n", failure.empty() ? "ok" : "not ok", c.name, failure.empty() ? "" : ": ",
               failure.c_str());
        fflush(stdout);
        failed += !failure.empty();
    }
    d.close();
    return failed > 0;
}
