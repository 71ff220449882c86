/* Panes of variable partials: a window's value is the merge that panes.h defines, for rows in any order; and
 * a row merges few pieces, however many panes there are. Of fixed partials: the same for windows of stored runs, and
 * of runs that are not stored. */
#include "operators/window/panes_entry.h"

#include "unit/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { PANES_MOST = 40000, HEAD_BYTES = 16 };

/* A partial that shows in which order and grouping it was merged: a hash, the number of rows, and bytes that
 * follow from the hash: aggregate.share for each row, aggregate.parameter at most. */
struct partial {
    uint64_t hash, rows;
};

static uint64_t merges; /* calls of combine whose target was not empty */

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t hash = (a * UINT64_C(0x9e3779b97f4a7c15)) ^ (b + UINT64_C(0x2545f4914f6cdd1d));
    return (hash ^ hash >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
}

static void add(struct partial *into, struct partial from)
{
    into->hash = into->rows == 0 ? from.hash : mix(into->hash, from.hash);
    into->rows += from.rows;
}

static size_t tail_of(const struct aggregate *aggregate, struct partial partial)
{
    uint64_t bytes = (uint64_t)aggregate->share * partial.rows;
    return (size_t)MIN(bytes, (uint64_t)aggregate->parameter);
}

static void put(const struct aggregate *aggregate, struct byte_buffer *out, struct partial partial)
{
    size_t tail = tail_of(aggregate, partial);
    buffer_clear(out);
    buffer_append(out, &partial, sizeof(partial));
    memset(buffer_reserve(out, tail), (int)(partial.hash & 127), tail);
    out->length += tail;
}

static struct partial get(const struct aggregate *aggregate, struct str bytes)
{
    struct partial partial = {0};
    if (bytes.length == 0)
        return partial;
    memcpy(&partial, bytes.data, sizeof(partial));
    assert_int_equal(bytes.length, HEAD_BYTES + tail_of(aggregate, partial));
    const char *tail = bytes.data + HEAD_BYTES;
    if (bytes.length > HEAD_BYTES &&
        (tail[0] != (char)(partial.hash & 127) || memcmp(tail, tail + 1, bytes.length - HEAD_BYTES - 1) != 0))
        fail_msg("the bytes of a partial are not its own");
    return partial;
}

static void absorb(const struct aggregate *aggregate, struct byte_buffer *partial,
                   const struct aggregate_row *row)
{
    struct partial value = get(aggregate, (struct str){partial->data, partial->length});
    add(&value, (struct partial){(uint64_t)row->argument->ints[row->row], 1});
    put(aggregate, partial, value);
}

static void combine(const struct aggregate *aggregate, struct byte_buffer *into, struct str from)
{
    struct partial value = get(aggregate, (struct str){into->data, into->length});
    merges += value.rows > 0;
    add(&value, get(aggregate, from));
    put(aggregate, into, value);
}

static uint32_t growth(const struct aggregate *aggregate, struct str partial, const struct aggregate_row *row)
{
    (void)row;
    struct partial value = get(aggregate, partial);
    value.rows++;
    return (uint32_t)(HEAD_BYTES + tail_of(aggregate, value) - partial.length);
}

static const struct aggregate_kind kind = {
    .name = "order", .absorb = absorb, .combine = combine, .growth = growth};

struct fixture {
    struct arena arena;
    struct diag_list diags;
    struct state_store *store;
    struct keyed_table *table;
    struct expr *argument; /* only tested for not being NULL */
    struct aggregate items[2];
    struct aggregates aggregates;
    struct panes panes;
    struct panes_sum sum;
    struct partial *model[2]; /* the partial of each pane, for both aggregates */
    uint64_t values;
};

/* bytes: of the longest partials of the two aggregates; row_bytes: bytes that each row adds. */
static void setup(struct fixture *f, uint64_t window_panes, const int64_t *bytes, uint32_t row_bytes)
{
    memset(f, 0, sizeof(*f));
    diag_list_init(&f->diags, &f->arena);
    f->store = state_store_open(NULL, 1 << 20, false, &f->diags);
    assert_non_null(f->store);
    f->table = keyed_table_new(
        &(struct keyed_options){.store = f->store, .id = 1, .kind = 1, .budget_bytes = 1 << 30});
    for (uint32_t k = 0; k < 2; k++) {
        f->items[k] = (struct aggregate){.kind = &kind,
                                         .argument = (struct expr *)(void *)&f->argument,
                                         .parameter = bytes[k],
                                         .share = row_bytes,
                                         .offset = k * (uint32_t)sizeof(struct reference)};
        f->model[k] = calloc(PANES_MOST, sizeof(*f->model[k]));
    }
    f->aggregates = (struct aggregates){
        .items = f->items, .count = 2, .variable = 2, .bytes = 2 * sizeof(struct reference)};
    panes_init(&f->panes, &f->aggregates, f->table, window_panes);
    panes_sum_init(&f->panes, &f->sum);
}

static void teardown(struct fixture *f)
{
    panes_sum_free(&f->panes, &f->sum);
    panes_free(&f->panes);
    keyed_table_free(f->table);
    state_store_close(f->store);
    free(f->model[0]);
    free(f->model[1]);
    arena_free(&f->arena);
}

static struct keyed_slot *begin(struct fixture *f)
{
    struct key key = {7, 1};
    uint64_t hash = key_hash(key);
    struct keyed_slot *slot;
    keyed_begin(f->table, &key, &hash, 1, &slot);
    return slot;
}

/* Adds a row to the pane, here and in the model. Returns false if the entry has no room for it. */
static bool update(struct fixture *f, struct keyed_slot *slot, int64_t pane, int64_t first_alive)
{
    int64_t values[2] = {(int64_t)++f->values, -(int64_t)f->values};
    struct column columns[2] = {{.tag = TYPE_INT, .ints = &values[0]}, {.tag = TYPE_INT, .ints = &values[1]}};
    struct panes_row row = {.pane = pane,
                            .first_alive = first_alive,
                            .expire_us = TIME_MAX,
                            .arguments = columns,
                            .prefix = STR("a prefix")};
    if (!panes_update(&f->panes, slot, &row))
        return false;
    for (uint32_t k = 0; k < 2; k++)
        add(&f->model[k][pane], (struct partial){(uint64_t)values[k], 1});
    return true;
}

/* The value of a block of 4^level panes, by the definition. */
static struct partial block_of(const struct partial *model, int64_t first, uint32_t level)
{
    struct partial value = {0};
    if (level == 0)
        return model[first];
    for (int64_t i = 0; i < 4; i++) {
        int64_t at = first + (i << (2 * (level - 1)));
        struct partial part = at < PANES_MOST ? block_of(model, at, level - 1) : value;
        if (at < PANES_MOST && part.rows > 0)
            add(&value, part);
    }
    return value;
}

/* The value of a window: merged from the largest blocks, each at a multiple of its size. */
static struct partial window_of(const struct partial *model, int64_t first, int64_t last, uint32_t levels)
{
    struct partial value = {0};
    while (first <= last) {
        uint32_t level = 0;
        while (level < levels && first % (INT64_C(4) << (2 * level)) == 0 &&
               first + (INT64_C(4) << (2 * level)) - 1 <= last)
            level++;
        struct partial block = block_of(model, first, level);
        if (block.rows > 0)
            add(&value, block);
        first += INT64_C(1) << (2 * level);
    }
    return value;
}

static void check_window(struct fixture *f, const struct keyed_slot *slot, int64_t first, int64_t last)
{
    panes_sum_clear(&f->panes, &f->sum);
    panes_read(&f->panes, slot, first, last, &f->sum);
    for (uint32_t k = 0; k < 2; k++) {
        const struct byte_buffer *got = &f->sum.variable[k];
        struct partial is = get(&f->items[k], (struct str){got->data, got->length});
        struct partial expected = window_of(f->model[k], first, last, f->panes.levels);
        if (is.hash != expected.hash || is.rows != expected.rows)
            fail_msg("panes %lld to %lld, aggregate %u: %llu rows, not %llu; or in another order",
                     (long long)first, (long long)last, k, (unsigned long long)is.rows,
                     (unsigned long long)expected.rows);
    }
}

/* Rows whose panes rise, with gaps, repeats and late rows; windows at any place and of any length. */
static void run(uint64_t seed, uint64_t window, const int64_t *bytes, uint32_t rows, int64_t panes_most)
{
    struct fixture f;
    struct test_random random = {seed};
    setup(&f, window, bytes, 8);
    int64_t newest = 0, alive = 0;
    uint32_t refused = 0;
    for (uint32_t i = 0; i < rows; i++) {
        struct keyed_slot *slot = begin(&f);
        if (random_chance(&random, 60))
            newest += random_chance(&random, 3) ? random_below(&random, 300) : random_below(&random, 3);
        if (newest >= panes_most)
            newest = panes_most - 1;
        int64_t dead = newest - (int64_t)window - random_below(&random, 20);
        alive = MAX(alive, dead);
        int64_t late = random_chance(&random, 20) ? random_below(&random, (uint32_t)window) : 0;
        refused += !update(&f, slot, MAX(newest - late, alive), alive);
        int64_t last = newest - (random_chance(&random, 50) ? random_below(&random, 50) : 0);
        int64_t first = last - random_below(&random, (uint32_t)window);
        if (last >= alive)
            check_window(&f, slot, MAX(first, alive), last);
        keyed_end(f.table);
    }
    assert_int_equal(refused, 0);
    teardown(&f);
}

static void test_against_definition(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        run(seed, 20, (int64_t[2]){100, 16}, 1000, PANES_MOST);
        run(seed, 33, (int64_t[2]){100, 4000}, 1000, PANES_MOST);
        run(seed, 700, (int64_t[2]){64, 300}, 2000, PANES_MOST);
        run(seed, 9000, (int64_t[2]){8, 128}, 500, PANES_MOST);
    }
}

/* Near an entry's size limit nodes are dropped, the lowest first, and results do not change; rows are refused
 * if the panes alone are too large. */
static void test_without_room(void **state)
{
    (void)state;
    enum { PANES = 1000, ROW_BYTES = 8192 };
    struct fixture f;
    setup(&f, PANES, (int64_t[2]){PANES_BYTES_MAX, 8}, ROW_BYTES);
    uint32_t refused = 0, most = 0, nodes = 0;
    int64_t pane = 0;
    for (; pane < PANES && refused == 0; pane++) {
        struct keyed_slot *slot = begin(&f);
        uint32_t bytes;
        refused += !update(&f, slot, pane, 0);
        char *data = keyed_read(slot, &bytes);
        assert_true(bytes <= PANES_ENTRY_MAX);
        nodes = head_of(data)->nodes;
        most = MAX(most, nodes);
        if (refused > 0)
            assert_true(head_of(data)->used_bytes > PANES_BYTES_MAX - (256 << 10));
        if (pane % 8 == 0 || refused > 0)
            check_window(&f, slot, pane / 3, pane);
        keyed_end(f.table);
    }
    print_message("nodes: %u at most, then %u\n", most, nodes);
    assert_int_equal(refused, 1);
    assert_true(most > nodes);
    /* Panes that are no longer needed free room again. */
    struct keyed_slot *slot = begin(&f);
    assert_true(update(&f, slot, pane, pane - 50));
    check_window(&f, slot, pane - 50, pane);
    keyed_end(f.table);
    teardown(&f);
}

/* A row of a long window merges a few pieces for each level of the tree: not all panes, nor the square root
 * of their number. */
static void test_merges_of_a_row(void **state)
{
    (void)state;
    static const int64_t windows[] = {1000, 10000, 30000};
    for (size_t w = 0; w < ARRAY_COUNT(windows); w++) {
        struct fixture f;
        setup(&f, (uint64_t)windows[w], (int64_t[2]){512, 16}, 8);
        uint64_t updates = 0, reads = 0, read_most = 0;
        for (int64_t pane = 0; pane < windows[w]; pane++) {
            struct keyed_slot *slot = begin(&f);
            merges = 0;
            assert_true(update(&f, slot, pane, 0));
            updates += merges;
            merges = 0;
            panes_sum_clear(&f.panes, &f.sum);
            panes_read(&f.panes, slot, MAX(pane - 777, 0) * (pane % 2), pane, &f.sum);
            reads += merges;
            read_most = MAX(read_most, merges);
            keyed_end(f.table);
        }
        uint32_t levels = f.panes.levels;
        print_message("%lld panes, %u levels: a row merges %.1f pieces, a window %.1f, %llu at most\n",
                      (long long)windows[w], levels, (double)updates / (double)windows[w],
                      (double)reads / (double)windows[w], (unsigned long long)read_most);
        /* The bounds are for two aggregates. Blocks of few small panes have no node: a piece
         * for each pane. */
        assert_true(updates <= 2 * 6 * (uint64_t)windows[w]);
        assert_true(read_most <= 2 * 6 * ((uint64_t)levels + 4));
        teardown(&f);
    }
}

/* --- Fixed partials --- */

/* The function x -> scale * x + shift. Chaining such functions is associative but depends on the order, so a window's
 * value shows that each of its panes was merged once, in its place. */
struct chained {
    uint64_t rows, scale, shift;
};

static void chain(char *into, const char *from)
{
    struct chained a, b;
    memcpy(&a, into, sizeof(a));
    memcpy(&b, from, sizeof(b));
    if (b.rows == 0)
        return;
    if (a.rows == 0)
        a = b;
    else
        a = (struct chained){a.rows + b.rows, a.scale * b.scale, a.shift * b.scale + b.shift};
    memcpy(into, &a, sizeof(a));
}

static void chain_row(char *partial, const struct column *argument, uint32_t row, int64_t time)
{
    uint64_t value = (uint64_t)(argument->ints[row] + time);
    struct chained one = {1, mix(value, 1) | 1, mix(value, 2)};
    chain(partial, (const char *)&one);
}

static const struct aggregate_kind chained_kind = {
    .name = "chained", .bytes = sizeof(struct chained), .update = chain_row, .merge = chain};

static void setup_fixed(struct fixture *f, uint64_t window, struct chained *model)
{
    memset(model, 0, PANES_MOST * sizeof(*model));
    setup(f, window, (int64_t[2]){8, 8}, 8);
    panes_sum_free(&f->panes, &f->sum);
    panes_free(&f->panes);
    f->items[0] = (struct aggregate){.kind = &chained_kind, .argument = (struct expr *)(void *)&f->argument};
    f->aggregates = (struct aggregates){.items = f->items, .count = 1, .bytes = sizeof(struct chained)};
    panes_init(&f->panes, &f->aggregates, f->table, window);
    panes_sum_init(&f->panes, &f->sum);
}

static void check_fixed(struct fixture *f, const struct keyed_slot *slot, const struct chained *model,
                        int64_t first, int64_t last)
{
    struct chained expected = {0};
    for (int64_t pane = first; pane <= last; pane++)
        chain((char *)&expected, (const char *)&model[pane]);
    panes_sum_clear(&f->panes, &f->sum);
    panes_read(&f->panes, slot, first, last, &f->sum);
    assert_memory_equal(f->sum.fixed, &expected, sizeof(expected));
}

/* Whether a run with panes is not stored, although a later one is. */
static bool has_unstored_run(const struct fixture *f, char *data)
{
    bool is_found = true;
    int64_t run = INT64_MAX;
    for (uint32_t i = head_of(data)->panes; i-- > 0;) {
        bool was_found = run < INT64_MAX && is_found;
        if (index_at(&f->panes, data, i) >> f->panes.shift == run)
            continue;
        run = index_at(&f->panes, data, i) >> f->panes.shift;
        (void)panes_find_run(&f->panes, data, run, &is_found);
        if (was_found && !is_found)
            return true;
    }
    return false;
}

/* A run is stored when a later pane comes; a late row whose run had no pane makes one that is never stored. */
static void test_fixed_runs(void **state)
{
    (void)state;
    static struct chained model[PANES_MOST];
    enum { WINDOW = 700, ROWS = 3000 };
    struct fixture f;
    struct test_random random = {7};
    setup_fixed(&f, WINDOW, model);
    assert_true(f.panes.shift > 1);
    uint32_t width = UINT32_C(1) << f.panes.shift, unstored = 0;
    int64_t newest = WINDOW;
    for (uint32_t i = 0; i < ROWS; i++) {
        struct keyed_slot *slot = begin(&f);
        newest += random_chance(&random, 20) ? random_below(&random, 3 * width) : 0;
        int64_t alive = newest - WINDOW, value = (int64_t)i;
        int64_t pane = newest - (random_chance(&random, 30) ? random_below(&random, WINDOW) : 0);
        struct column column = {.tag = TYPE_INT, .ints = &value};
        struct panes_row row = {
            .pane = pane, .first_alive = alive, .expire_us = TIME_MAX, .arguments = &column, .time = 3};
        assert_true(panes_update(&f.panes, slot, &row));
        chain_row((char *)&model[pane], &column, 0, 3);
        uint32_t bytes;
        char *data = keyed_read(slot, &bytes);
        unstored += has_unstored_run(&f, data);
        check_fixed(&f, slot, model, alive, newest);
        int64_t first = alive + random_below(&random, WINDOW);
        check_fixed(&f, slot, model, first, first + random_below(&random, (uint32_t)(newest - first) + 1));
        keyed_end(f.table);
    }
    print_message("a run that is not stored lay before one that is in %u of %u entries\n", unstored, ROWS);
    assert_true(unstored > ROWS / 10);
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_definition), cmocka_unit_test(test_without_room),
        cmocka_unit_test(test_merges_of_a_row), cmocka_unit_test(test_fixed_runs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
