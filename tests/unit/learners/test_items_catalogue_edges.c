/* The items of a learner at the edges: values, watermarks, an index of other rows, bad restores. */
#include "catalogue_rig.h"

#include "core/buffer.h"
#include "learners/tables/cut.h"

#include <math.h>

static void test_values(void **state)
{
    (void)state;
    struct catalogue_options options = catalogue_rig_options();
    options.numbers_max = 2;
    struct catalogue *c = catalogue_create(&options);
    struct items_ref ref = {9, 9};
    struct items_value found, value = {.key = 5, .is_text = true, .text = STR("shoe")};
    char *text = calloc(1, ITEMS_TEXT_MAX + 1);
    assert_non_null(text);
    assert_int_equal(catalogue_add(c, &value, 100, 1, &ref), ITEMS_NEW);
    value.text = STR("hat"); /* another value with the same key */
    assert_int_equal(catalogue_add(c, &value, 90, 2, &ref), ITEMS_FOUND);
    assert_true(items_numbers_value(catalogue_numbers(c), ref, &found));
    assert_true(str_is(found.text, "shoe"));
    const struct table_row *row = table_find(catalogue_table(c), 5);
    assert_true(row->count == 2 && row->seen == 100 && row->step == 2);
    value = (struct items_value){.key = 6, .is_text = true, .text = {text, ITEMS_TEXT_MAX + 1}};
    assert_int_equal(catalogue_add(c, &value, 100, 3, &ref), ITEMS_TEXT_LONG);
    assert_int_equal(add(c, 7, 100, 3, &ref), ITEMS_NEW);
    assert_int_equal(add(c, 8, 100, 3, &ref), ITEMS_FULL);
    assert_int_equal(catalogue_used(c), 2);
    assert_int_equal(catalogue_table(c)->stats.rows, 2);
    assert_null(table_find(catalogue_table(c), 6));
    assert_null(table_find(catalogue_table(c), 8));
    assert_false(catalogue_remove(c, 8));
    assert_false(catalogue_is_live(c, (struct items_ref){2, 0}));
    uint32_t count;
    assert_int_equal(catalogue_live(c, &count)[1], 1);
    assert_int_equal(count, 2);
    assert_true(catalogue_bytes(c) > 2 * (size_t)DIM * sizeof(float));
    free(text);
    catalogue_free(c);
    catalogue_free(NULL);
}

/* The end of input expires nothing, and the first watermark passes no point. */
static void test_watermarks(void **state)
{
    (void)state;
    struct catalogue *c = catalogue_rig();
    struct items_ref ref;
    const int64_t interval = EXPIRE_S / 64 * US_PER_SECOND, point = START_S / 100 * 100 * US_PER_SECOND;
    assert_int_equal(add(c, 1, START_S - 3 * EXPIRE_S, 1, &ref), ITEMS_NEW);
    catalogue_set_watermark(c, INT64_MIN + 1, 0);
    catalogue_set_watermark(c, INT64_MIN + 2 * interval, 0);
    catalogue_set_watermark(c, -US_PER_DAY, 0);
    catalogue_set_watermark(c, -US_PER_SECOND, 0);
    catalogue_set_watermark(c, 0, 0);
    assert_true(catalogue_find(c, 1, &ref));
    catalogue_set_watermark(c, point, 1);
    assert_true(catalogue_find(c, 1, &ref)); /* spared */
    catalogue_set_watermark(c, point + interval - 1, 0);
    assert_true(catalogue_find(c, 1, &ref)); /* no point was passed */
    catalogue_set_watermark(c, point + interval, 2);
    assert_false(catalogue_find(c, 1, &ref));
    assert_int_equal(catalogue_table(c)->stats.expired, 1);
    assert_int_equal(add(c, 2, (uint32_t)(point / US_PER_SECOND) - EXPIRE_S, 2, &ref), ITEMS_NEW);
    catalogue_set_watermark(c, point + interval / 2, 0); /* older than the last one */
    catalogue_set_watermark(c, TIME_MAX, 0);
    assert_true(catalogue_find(c, 2, &ref));
    catalogue_free(c);

    c = catalogue_rig();
    assert_int_equal(add(c, 1, START_S - 3 * EXPIRE_S, 1, &ref), ITEMS_NEW);
    catalogue_set_watermark(c, point, 0);
    assert_true(catalogue_find(c, 1, &ref));
    catalogue_free(c);
}

/* Many items, and a refresh that puts the marked rows alone: a row written without a mark shows it. */
static void test_refresh(void **state)
{
    (void)state;
    enum { MANY = 5000 };
    struct catalogue_options options = catalogue_rig_options();
    options.numbers_max = MANY;
    struct catalogue *c = catalogue_create(&options);
    struct items_index *index = catalogue_index(c);
    struct items_ref ref;
    uint32_t count;
    for (uint64_t key = 1; key <= MANY; key++) {
        assert_int_equal(add(c, key, 100, 1, &ref), ITEMS_NEW);
        assert_int_equal(ref.number, key - 1);
        if (key % 1000 == 0)
            catalogue_refresh(c);
    }
    assert_int_equal(add(c, MANY + 1, 100, 1, &ref), ITEMS_FULL);
    assert_int_equal(items_index_live(index), MANY);
    assert_int_equal(catalogue_live(c, &count)[MANY - 1], MANY - 1);
    assert_int_equal(count, MANY);
    float *const *rows = catalogue_rows(c);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_memory_equal(items_index_row(index, i), rows[i], DIM * sizeof(float));
        rows[i][0] = 2.0F;
    }
    catalogue_change(c, 4097);
    catalogue_refresh(c);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(items_index_row(index, i)[0] == 2.0F, i == 4097);
    catalogue_change(c, 5);
    catalogue_change_all(c);
    catalogue_refresh(c);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_true(items_index_row(index, i)[0] == 2.0F);
        rows[i][0] = 3.0F;
    }
    catalogue_refresh(c);
    assert_true(items_index_row(index, 4097)[0] == 2.0F);
    catalogue_change(c, 4097);
    catalogue_refresh(c);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(items_index_row(index, i)[0] == 3.0F, i == 4097);
    catalogue_free(c);
}

/* Rows of the index that others put: they go with their items, and nobody else puts any. */
static void test_towers(void **state)
{
    (void)state;
    struct catalogue_options options = catalogue_rig_options();
    options.index_dims = 4;
    options.dim = BATCH_DIM_MAX; /* more than an index can have */
    struct catalogue *c = catalogue_create(&options);
    struct items_search *search = items_search_create();
    struct items_scored top[4];
    struct items_ref ref;
    const float tower[2][4] = {{1, 0, 0, 0}, {2, 0, 0, 0}};
    for (uint64_t key = 1; key <= 3; key++)
        assert_int_equal(add(c, key, 100, 1, &ref), ITEMS_NEW);
    catalogue_change_all(c);
    catalogue_change(c, 2);
    assert_int_equal(catalogue_top(c, search, tower[0], 1, 4, top), 0);
    assert_int_equal(catalogue_unsearchable(c), 3);
    assert_true(items_index_put(catalogue_index(c), 0, tower[0]));
    assert_true(items_index_put(catalogue_index(c), 1, tower[1]));
    assert_int_equal(catalogue_top(c, search, tower[0], 1, 4, top), 2);
    assert_int_equal(catalogue_unsearchable(c), 1);
    assert_int_equal(top[0].number, 1);
    assert_true(catalogue_remove(c, 2));
    assert_int_equal(catalogue_top(c, search, tower[0], 1, 4, top), 1);
    assert_int_equal(add(c, 4, 100, 2, &ref), ITEMS_NEW); /* takes number 1, with no row in the index */
    assert_true(ref.number == 1 && ref.generation == 1);
    assert_int_equal(catalogue_top(c, search, tower[0], 1, 4, top), 1);
    assert_int_equal(top[0].number, 0);
    items_search_free(search);
    catalogue_free(c);
}

static bool emit_rows(void *argument, const void *rows, size_t count)
{
    return table_restore_items(argument, TABLE_ITEM_ROW, rows, count);
}

static void take_numbers(struct catalogue *to, struct catalogue *from)
{
    struct byte_buffer numbers = {0};
    items_numbers_save(catalogue_numbers(from), 0, &numbers);
    assert_null(items_numbers_load(catalogue_numbers(to), numbers.data, numbers.length));
    assert_null(catalogue_check(to));
    buffer_free(&numbers);
}

static void assert_same_answers(struct catalogue *a, struct catalogue *b, size_t items)
{
    struct items_search *search = items_search_create();
    struct items_scored of_a[4], of_b[4];
    const float query[DIM] = {1, 2, 3, 4};
    assert_int_equal(catalogue_top(a, search, query, 1, 4, of_a), items);
    assert_int_equal(catalogue_top(b, search, query, 1, 4, of_b), items);
    assert_memory_equal(of_a, of_b, items * sizeof(*of_a));
    items_search_free(search);
}

/* A follower takes a checkpoint and then a cut: a row that changed, an item that went, one that came. */
static void test_cut(void **state)
{
    (void)state;
    struct catalogue *c = catalogue_rig(), *follower = catalogue_rig();
    struct table *from = catalogue_table(c), *to = catalogue_table(follower);
    const struct table_keys *removed;
    struct byte_buffer cut = {0};
    struct items_ref ref;
    for (uint64_t key = 1; key <= 3; key++)
        assert_int_equal(add(c, key, 100, 1, &ref), ITEMS_NEW);
    table_cut_note(from, true, from->epoch);
    struct table_snapshot *snapshot = table_snapshot_begin(from, 0, from->epoch, &removed);
    assert_true(table_snapshot_write(snapshot, emit_rows, to));
    table_snapshot_end(from, true);
    table_restored(to, from->epoch - 1);
    take_numbers(follower, c);
    assert_same_answers(c, follower, 3);
    catalogue_change(c, 2);
    catalogue_rows(c)[2][0] = 7.0F;
    assert_true(catalogue_remove(c, 1));
    assert_int_equal(add(c, 4, 200, 2, &ref), ITEMS_NEW);
    table_cut(from, from->epoch, &cut);
    assert_true(table_take_cut(to, cut.data, cut.length, TABLE_STEP_NONE));
    take_numbers(follower, c);
    assert_same_answers(c, follower, 3);
    assert_true(catalogue_rows(follower)[2][0] == 7.0F);
    assert_false(catalogue_find(follower, 1, &ref));
    buffer_free(&cut);
    catalogue_free(c);
    catalogue_free(follower);
}

/* Rows and numbers that do not belong together. */
static void test_bad_restores(void **state)
{
    (void)state;
    struct catalogue *c = catalogue_rig(), *other = catalogue_rig();
    struct items_search *search = items_search_create();
    struct items_scored top[4];
    struct items_ref ref;
    float query[DIM] = {1};
    for (uint64_t key = 1; key <= 3; key++)
        assert_int_equal(add(c, key, 100, 1, &ref), ITEMS_NEW);
    assert_int_equal(catalogue_top(c, search, query, 1, 4, top), 3);
    assert_null(catalogue_check(c));
    assert_int_equal(items_index_live(catalogue_index(c)), 0);
    assert_int_equal(catalogue_top(c, search, query, 1, 4, top), 3);
    struct byte_buffer numbers = {0};
    items_numbers_save(catalogue_numbers(c), 0, &numbers);
    assert_null(items_numbers_load(catalogue_numbers(other), numbers.data, numbers.length));
    assert_string_equal(catalogue_check(other), "an item has no row in the items' table");
    table_restore_remove(catalogue_table(c), 2);
    assert_string_equal(catalogue_check(c), "an item has no row in the items' table");
    assert_true(items_numbers_remove(catalogue_numbers(c), 1, &ref));
    assert_string_equal(catalogue_check(c), "a row of the items' table belongs to no item");
    buffer_free(&numbers);
    items_search_free(search);
    catalogue_free(c);
    catalogue_free(other);
}

/* A row is what batch_update takes: its floats, then the state. */
static void test_update(void **state)
{
    (void)state;
    struct catalogue *c = catalogue_rig();
    struct items_ref ref;
    assert_int_equal(add(c, 1, 100, 1, &ref), ITEMS_NEW);
    float *row = catalogue_rows(c)[0], before[DIM], gradient[DIM];
    memcpy(before, row, sizeof(before));
    for (size_t i = 0; i < DIM; i++)
        gradient[i] = (float)i * 0.5F;
    void *rows[1] = {row};
    const uint32_t order[1] = {0}, starts[2] = {0, 1}, count[1] = {1};
    struct batch_update update = {
        .in = {.grads = gradient, .order = order, .starts = starts, .count = count, .n = 1, .d = DIM},
        .rows = rows,
        .format = ROW_FP32,
        .kind = OPT_ADAGRAD,
        .params = {.rate = 0.1F, .decay = 1.0F, .step_max = INFINITY}};
    const struct batch_kernels *kernels = batch_beside(best());
    kernels->update(&update, NULL);
    void *scratch = aligned_alloc(64, (update.scratch_bytes + 63) / 64 * 64);
    update.scratch = scratch;
    kernels->update(&update, NULL);
    for (size_t i = 0; i < DIM; i++) {
        float sum = 0.25F + gradient[i] * gradient[i];
        assert_true(row[DIM + i] == sum);
        assert_float_equal(row[i], before[i] - 0.1F * gradient[i] / sqrtf(sum), 1e-6);
    }
    free(scratch);
    catalogue_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),       cmocka_unit_test(test_watermarks),
                                       cmocka_unit_test(test_refresh),      cmocka_unit_test(test_towers),
                                       cmocka_unit_test(test_bad_restores), cmocka_unit_test(test_update),
                                       cmocka_unit_test(test_cut)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
