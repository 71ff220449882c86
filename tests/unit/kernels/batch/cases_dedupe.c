/* dedupe: both methods, all kinds of ids, one table and many tables, some of them empty. */
#include "trial.h"

#include <stdlib.h>
#include <string.h>

struct dedupe_shape {
    uint32_t n, tables;
    enum ids kind;
    enum dedupe_method method;
    bool is_same;     /* all tables have the same ids */
    bool is_unlisted; /* order is NULL */
    uint32_t parts;   /* one table's ids are given in so many parts; 0: in one call */
};

/* Offsets of tables; about a third of the tables are empty, the last one never if n > 0. */
static void fill_tables(struct trial *t, uint32_t *offsets, uint32_t tables, uint32_t n)
{
    offsets[0] = 0;
    for (uint32_t i = 1; i < tables; i++)
        offsets[i] =
            trial_below(t, 3) == 0 ? offsets[i - 1] : offsets[i - 1] + (n - offsets[i - 1]) / (tables - i);
    offsets[tables] = n;
}

/* Checks `count`, `indices`, `unique_ids` and `unique_tables` against the rule of batch.h. */
static void check_plainly(struct trial *t, const uint64_t *ids, const uint32_t *offsets, uint32_t tables,
                          const struct batch_dedupe *out)
{
    uint32_t m = out->count[0], next = 0;
    for (uint32_t table = 0; table < tables; table++) {
        for (uint32_t p = offsets[table]; p < offsets[table + 1]; p++) {
            uint32_t u = out->indices[p];
            TRIAL_CHECK(t, (u == BATCH_NONE) == (ids[p] == 0));
            if (u == BATCH_NONE)
                continue;
            TRIAL_CHECK(t,
                        u < m && u <= next && out->unique_ids[u] == ids[p] && out->unique_tables[u] == table);
            next += u == next; /* indices rise in the order of first occurrences */
        }
    }
    TRIAL_CHECK(t, next == m);
    /* Each index has a different id; compares all pairs, so only where there are few. */
    for (uint32_t u = 1; u < m && m < 200; u++) {
        for (uint32_t v = 0; v < u; v++)
            TRIAL_CHECK(t, out->unique_ids[u] != out->unique_ids[v] ||
                               out->unique_tables[u] != out->unique_tables[v]);
    }
}

static void check_order(struct trial *t, const uint64_t *ids, const struct batch_dedupe *out)
{
    uint32_t at = 0, present = 0;
    TRIAL_CHECK(t, out->starts[0] == 0);
    for (uint32_t u = 0; u < out->count[0]; u++) {
        TRIAL_CHECK(t, out->starts[u] < out->starts[u + 1]);
        for (; at < out->starts[u + 1]; at++) {
            TRIAL_CHECK(t, out->indices[out->order[at]] == u);
            TRIAL_CHECK(t, at == out->starts[u] || out->order[at - 1] < out->order[at]);
        }
    }
    for (uint32_t p = 0; p < out->n; p++)
        present += ids[p] != 0;
    TRIAL_CHECK(t, at == present);
}

/* On a CPU: dedupes one table's ids in random parts, then makes order and starts with has_indices. */
static void dedupe_in_parts(struct trial *t, const struct batch_dedupe *all, uint32_t parts)
{
    trial_begin(t);
    struct batch_dedupe a = *all;
    a.scratch = NULL;
    trial_kernels(t)->dedupe(&a, trial_stream(t));
    a.scratch = trial_scratch(t, a.scratch_bytes);
    a.room = all->n, a.order = NULL;
    for (uint32_t i = 0, at = 0; i < parts; i++, at += a.n) {
        a.n = i + 1 < parts ? trial_below(t, all->n - at + 1) : all->n - at;
        uint32_t tables[] = {0, a.n};
        a.tables = tables;
        a.ids = all->ids + at, a.indices = all->indices + at;
        trial_kernels(t)->dedupe(&a, trial_stream(t));
        a.before = a.count[0];
    }
    void *scratch = a.scratch;
    a = *all;
    a.scratch = scratch, a.has_indices = true;
    trial_kernels(t)->dedupe(&a, trial_stream(t));
    trial_end(t);
}

static void build_dedupe(struct trial *t, const void *arg)
{
    const struct dedupe_shape *s = arg;
    size_t n = s->n;
    uint64_t *ids = trial_input(t, "ids", n * sizeof(*ids), sizeof(*ids));
    uint32_t *tables = trial_input(t, "tables", (s->tables + 1) * sizeof(*tables), sizeof(*tables));
    fill_tables(t, tables, s->tables, s->n);
    trial_ids(t, ids, n, s->kind);
    for (uint32_t i = 1; s->is_same && i < s->tables; i++) {
        for (uint32_t p = tables[i], from = 0; p < tables[i + 1]; p++, from++)
            ids[p] = from < p ? ids[from] : ids[p];
    }
    struct batch_dedupe host = {.n = s->n};
    host.count = trial_output(t, "count", sizeof(*host.count), sizeof(*host.count), same_bits);
    host.indices = trial_output(t, "indices", n * sizeof(*host.indices), sizeof(*host.indices), same_bits);
    host.unique_ids = trial_output(t, "unique_ids", n * sizeof(*ids), sizeof(*ids), same_bits);
    host.unique_tables = trial_output(t, "unique_tables", n * sizeof(*tables), sizeof(*tables), same_bits);
    if (!s->is_unlisted) {
        host.order = trial_output(t, "order", n * sizeof(*host.order), sizeof(*host.order), same_bits);
        host.starts =
            trial_output(t, "starts", (n + 1) * sizeof(*host.starts), sizeof(*host.starts), same_bits);
    }
    struct batch_dedupe a = {.ids = PLACE(t, ids),
                             .tables = PLACE(t, tables),
                             .tables_count = s->tables,
                             .n = s->n,
                             .method = s->method,
                             .count = PLACE(t, host.count),
                             .indices = PLACE(t, host.indices),
                             .unique_ids = PLACE(t, host.unique_ids),
                             .unique_tables = PLACE(t, host.unique_tables),
                             .order = s->is_unlisted ? NULL : PLACE(t, host.order),
                             .starts = s->is_unlisted ? NULL : PLACE(t, host.starts)};
    if (s->parts > 0)
        dedupe_in_parts(t, &a, s->parts);
    else
        TRIAL_CALL_SCRATCH(t, dedupe, &a);
    size_t m = host.count[0];
    if (m > n) {
        trial_fail(t, "%zu distinct ids of %zu", m, n);
        return;
    }
    trial_valid(t, host.unique_ids, m * sizeof(*ids));
    trial_valid(t, host.unique_tables, m * sizeof(*tables));
    if (trial_is_scalar(t))
        check_plainly(t, ids, tables, s->tables, &host);
    if (s->is_unlisted)
        return;
    trial_valid(t, host.order, host.starts[m] * sizeof(*host.order));
    trial_valid(t, host.starts, (m + 1) * sizeof(*host.starts));
    if (trial_is_scalar(t))
        check_order(t, ids, &host);
}

static void try_dedupe(struct suite *suite, struct dedupe_shape s)
{
    for (int method = 0; method < DEDUPE_METHODS; method++) {
        s.method = (enum dedupe_method)method;
        for (int listed = 1; listed >= suite_is_device(suite); listed--) {
            s.is_unlisted = listed == 0;
            suite_try(suite, build_dedupe, &s, "n %u, tables %u, ids %s%s, %s%s", s.n, s.tables,
                      ids_names[s.kind], s.is_same ? ", the same in all tables" : "",
                      method == DEDUPE_SORT ? "sort" : "hash", s.is_unlisted ? ", without order" : "");
        }
    }
    s.is_unlisted = false;
    for (s.parts = 1; s.parts < 5 && s.tables == 1 && !suite_is_device(suite); s.parts++)
        suite_try(suite, build_dedupe, &s, "n %u, ids %s, in %u parts", s.n, ids_names[s.kind], s.parts);
}

/* Scratch for n ids is enough for any fewer. */
static void build_scratch(struct trial *t, const void *arg)
{
    const uint32_t *n = arg;
    size_t before = 0;
    for (uint32_t i = 0; i < 20; i++) {
        struct batch_dedupe a = {.tables_count = 3, .n = *n * i, .method = (enum dedupe_method)(*n % 2)};
        trial_kernels(t)->dedupe(&a, trial_stream(t));
        TRIAL_CHECK(t, a.scratch_bytes >= before && a.scratch_bytes >= BATCH_SCRATCH_MIN);
        before = a.scratch_bytes;
    }
}

void suite_dedupe(struct suite *suite)
{
    for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++) {
        for (int kind = 0; kind < IDS_KINDS; kind++) {
            try_dedupe(suite, (struct dedupe_shape){.n = *n, .tables = 1, .kind = (enum ids)kind});
            try_dedupe(suite,
                       (struct dedupe_shape){
                           .n = *n, .tables = 3 + *n % 9, .kind = (enum ids)kind, .is_same = kind % 2 == 0});
        }
    }
    try_dedupe(suite, (struct dedupe_shape){
                          .n = 700, .tables = BATCH_TABLES_MAX, .kind = IDS_ZIPF, .is_same = true});
    for (uint32_t n = 1000; n < 1002; n++)
        suite_try(suite, build_scratch, &n, "scratch");
    try_dedupe(suite, (struct dedupe_shape){.n = suite_huge(suite), .tables = 10, .kind = IDS_ZIPF});
}
