/* Batches: sharing and recycling, deriving and gathering, digests. A row's values follow from its id, so that
 * every row can be checked by itself, in whichever batch it is. */
#include "cmocka_all.h"
#include "core/batch.h"
#include "core/buffer.h"
#include "unit/support/random.h"

#include <stdio.h>

static struct field record_fields[] = {
    {.name = {"aid", 3}, .type = {.tag = TYPE_INT}},
    {.name = {"word", 4}, .type = {.tag = TYPE_TEXT}},
};
static const struct schema record = {.fields = record_fields, .count = 2};
static const struct type type_text = {.tag = TYPE_TEXT};
static const struct type type_record = {.tag = TYPE_RECORD, .fields = &record};
static const struct type type_texts = {.tag = TYPE_LIST, .element = &type_text};
static struct field fields[] = {
    {.name = {"id", 2}, .type = {.tag = TYPE_INT}},
    {.name = {"name", 4}, .type = {.tag = TYPE_TEXT}},
    {.name = {"ok", 2}, .type = {.tag = TYPE_BOOL}},
    {.name = {"events", 6}, .type = {.tag = TYPE_LIST, .element = &type_record}},
    {.name = {"nested", 6}, .type = {.tag = TYPE_LIST, .element = &type_texts}},
};
static const struct schema schema = {.fields = fields, .count = ARRAY_COUNT(fields)};

enum { ID, NAME, OK, EVENTS, NESTED, COLUMNS, ELEMENTS_MAX = 5, WORD_BYTES = 24 };

static uint32_t elements_of(int64_t id)
{
    return (uint32_t)(id * 7 % ELEMENTS_MAX);
}

static bool is_null(int64_t id, int column)
{
    return column != ID && (id + column) % 6 == 0;
}

/* --- Building --- */

/* Fills a text column with "id/k": k from 0 to elements_of(id) - 1 for each row of a list, else k = 0. */
static void fill_words(struct batch *batch, struct column *column, const int64_t *ids, uint32_t rows,
                       bool is_list)
{
    char *heap = arena_alloc(&batch->arena, (size_t)rows * ELEMENTS_MAX * WORD_BYTES + 1);
    column->texts = arena_array(&batch->arena, struct text_ref, (size_t)rows * ELEMENTS_MAX + 1);
    column->heap = heap;
    uint32_t used = 0, at = 0;
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t k = 0; k < (is_list ? elements_of(ids[row]) : 1); k++) {
            uint32_t length = (uint32_t)snprintf(heap + used, WORD_BYTES, "%lld/%u", (long long)ids[row], k);
            column->texts[at++] = (struct text_ref){used, length};
            used += length;
        }
}

static uint32_t fill_lists(struct column *column, const int64_t *ids, uint32_t rows)
{
    uint32_t total = 0;
    for (uint32_t row = 0; row < rows; row++) {
        column->lists[row] = (struct list_ref){total, elements_of(ids[row])};
        total += elements_of(ids[row]);
    }
    return column->child_rows = total;
}

/* Each element of `nested` is a list of one text. */
static void fill_nested(struct batch *batch, struct column *column, const int64_t *ids, uint32_t rows)
{
    uint32_t total = fill_lists(column, ids, rows);
    struct column *inner = &column->children[0];
    inner->lists = arena_array(&batch->arena, struct list_ref, MAX(total, 1));
    inner->children_count = 1;
    inner->children = arena_array(&batch->arena, struct column, 1);
    inner->children[0].tag = TYPE_TEXT;
    inner->child_rows = total;
    for (uint32_t i = 0; i < total; i++)
        inner->lists[i] = (struct list_ref){i, 1};
    fill_words(batch, &inner->children[0], ids, rows, true);
}

static struct batch *make_batch(struct batch_pool *pool, const int64_t *ids, uint32_t rows)
{
    struct batch *batch = batch_new(pool, &schema, rows);
    batch->partition = 3;
    batch->first_record = 1000;
    batch->order_time = arena_array(&batch->arena, int64_t, MAX(rows, 1));
    fill_words(batch, &batch->columns[NAME], ids, rows, false);
    fill_nested(batch, &batch->columns[NESTED], ids, rows);
    struct column *events = &batch->columns[EVENTS];
    uint32_t total = fill_lists(events, ids, rows);
    fill_words(batch, &events->children[1], ids, rows, true);
    events->children[0].ints = arena_array(&batch->arena, int64_t, MAX(total, 1));
    for (uint32_t row = 0; row < rows; row++) {
        batch->event_time[row] = batch->order_time[row] = ids[row] * 1000;
        batch->columns[ID].ints[row] = ids[row];
        batch->columns[OK].bools[row] = ids[row] % 2 == 0;
        for (uint32_t k = 0; k < elements_of(ids[row]); k++)
            events->children[0].ints[events->lists[row].offset + k] = ids[row] * 10 + k;
        for (int column = 0; column < COLUMNS; column++)
            if (is_null(ids[row], column))
                batch_set_null(batch, &batch->columns[column], row);
    }
    return batch;
}

/* --- Checking --- */

static void print_value(struct byte_buffer *out, const struct column *column, uint32_t row)
{
    if (!column_is_valid(column, row)) {
        buffer_printf(out, "null");
        return;
    }
    switch (column->tag) {
    case TYPE_BOOL: buffer_printf(out, "%d", column->bools[row]); break;
    case TYPE_TEXT: buffer_printf(out, "'%.*s'", STR_ARGS(column_text(column, row))); break;
    case TYPE_LIST:
        buffer_printf(out, "[");
        for (uint32_t k = 0; k < column->lists[row].length; k++)
            for (uint32_t child = 0; child < column->children_count; child++) {
                print_value(out, &column->children[child], column->lists[row].offset + k);
                buffer_printf(out, " ");
            }
        buffer_printf(out, "]");
        break;
    default: buffer_printf(out, "%lld", (long long)column->ints[row]); break;
    }
}

static void print_expected(struct byte_buffer *out, int64_t id, int column)
{
    if (is_null(id, column)) {
        buffer_printf(out, "null");
        return;
    }
    if (column == ID)
        buffer_printf(out, "%lld", (long long)id);
    else if (column == NAME)
        buffer_printf(out, "'%lld/0'", (long long)id);
    else if (column == OK)
        buffer_printf(out, "%d", id % 2 == 0);
    if (column < EVENTS)
        return;
    buffer_printf(out, "[");
    for (uint32_t k = 0; k < elements_of(id); k++)
        if (column == EVENTS)
            buffer_printf(out, "%lld '%lld/%u' ", (long long)(id * 10 + k), (long long)id, k);
        else
            buffer_printf(out, "['%lld/%u' ] ", (long long)id, k);
    buffer_printf(out, "]");
}

static void check_row(const struct batch *batch, uint32_t row, int64_t id)
{
    for (int column = 0; column < COLUMNS; column++) {
        struct byte_buffer said = {0}, expected = {0};
        print_value(&said, &batch->columns[column], row);
        print_expected(&expected, id, column);
        buffer_append(&said, "", 1);
        buffer_append(&expected, "", 1);
        assert_string_equal(said.data, expected.data);
        buffer_free(&said);
        buffer_free(&expected);
    }
    assert_int_equal(batch->event_time[row], id * 1000);
}

static struct batch *make_range(struct batch_pool *pool, int64_t first, uint32_t rows)
{
    int64_t ids[BATCH_ROWS];
    for (uint32_t i = 0; i < rows; i++)
        ids[i] = first + i;
    return make_batch(pool, ids, rows);
}

/* --- Tests --- */

static void test_derive_and_release(void **state)
{
    (void)state;
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = make_range(pool, 100, 50);
    static const uint16_t sel[] = {1, 4, 9};
    batch->sel = sel;
    batch->selected = 3;
    struct arena arena = {0};
    struct schema *wider = schema_copy(&arena, &schema, 1);
    schema_add(wider, STR("more"), type_of(TYPE_INT));
    struct batch *derived = batch_derive(batch, wider);
    assert_int_equal(batch_pool_alive(pool), 2);
    assert_int_equal(derived->selected, 3);
    batch_column_init(derived, &derived->columns[COLUMNS], type_of(TYPE_INT), derived->rows);
    derived->columns[COLUMNS].ints[4] = 77;
    struct batch *again = batch_derive(derived, &schema);
    size_t held = batch_held_bytes(batch), rows = derived->rows;
    assert_true(held >= rows * COLUMNS); /* a byte a value, at least */
    assert_true(batch_held_bytes(again) >= held + rows * sizeof(int64_t));
    (void)arena_alloc(&batch->arena, 100000); /* texts, as a decoder writes them */
    assert_in_range(batch_held_bytes(again), held + 100000 + rows * sizeof(int64_t), held + 200000);
    batch_hold(batch);
    batch_release(batch); /* the hold above */
    batch_release(batch); /* the first reference: the derived ones keep it alive */
    batch_release(derived);
    assert_int_equal(batch_pool_alive(pool), 3);
    check_row(again, batch_row(again, 1), 104);
    assert_int_equal(batch_origin(again, 4).record, 1004);
    assert_int_equal(batch_origin(again, 4).partition, 3);
    assert_int_equal(batch_order(again, 4).time, 104000);
    batch_release(again);
    assert_int_equal(batch_pool_alive(pool), 0);
    batch_release(NULL);
    arena_free(&arena);
    batch_pool_free(pool);
}

/* A recycled batch has nothing of its former life. */
static void test_recycling(void **state)
{
    (void)state;
    struct batch_pool *pool = batch_pool_new();
    for (int64_t first = 0; first < 200 * 31; first += 31) {
        struct batch *batch = make_range(pool, first, (uint32_t)(first / 31 % 90));
        assert_int_equal(batch->references, 1);
        assert_null(batch->sel);
        assert_null(batch->origins);
        assert_null(batch->parents[0]);
        assert_null(batch->next);
        for (uint32_t row = 0; row < batch->rows; row++)
            check_row(batch, row, first + row);
        batch_release(batch);
    }
    assert_int_equal(batch_pool_alive(pool), 0);
    batch_pool_free(pool);
}

/* Rows have the record numbers that batch_number gave them, with or without gaps. */
static void test_numbers(void **state)
{
    static const int64_t whole[] = {70, 71, 72}, holes[] = {70, 72, 90};
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = batch_new(pool, &schema, 3);
    batch->partition = 2;
    (void)state;
    batch_number(batch, 5, NULL);
    assert_int_equal(batch_origin(batch, 2).record, 7);
    batch_number(batch, 5, whole);
    assert_null(batch->origins);
    assert_int_equal(batch_origin(batch, 2).record, 72);
    batch_number(batch, 5, holes);
    for (uint32_t row = 0; row < 3; row++) {
        assert_int_equal(batch_origin(batch, row).record, holes[row]);
        assert_int_equal(batch_origin(batch, row).partition, 2);
    }
    batch_release(batch);
    batch_pool_free(pool);
}

static void test_set_null(void **state)
{
    (void)state;
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = batch_new(pool, &schema, BATCH_ROWS);
    struct column *column = &batch->columns[ID];
    assert_null(column->valid);
    batch_set_null(batch, column, 0);
    batch_set_null(batch, column, BATCH_ROWS - 1);
    for (uint32_t row = 0; row < BATCH_ROWS; row++)
        assert_int_equal(column_is_valid(column, row), row != 0 && row != BATCH_ROWS - 1);
    batch_release(batch);
    batch_pool_free(pool);
}

/* batch_gather takes any rows of several batches, in any order, also of gathered batches. */
static void test_gather(void **state)
{
    (void)state;
    struct batch_pool *pool = batch_pool_new();
    struct test_random random = {3};
    for (int round = 0; round < 60; round++) {
        struct batch *sources[4];
        for (int64_t s = 0; s < 4; s++)
            sources[s] = make_range(pool, s * 10000, 1 + random_below(&random, 300));
        uint32_t count = round == 0 ? 0 : 1 + random_below(&random, round % 5 == 0 ? BATCH_ROWS : 50);
        struct batch *from[BATCH_ROWS];
        uint16_t rows[BATCH_ROWS];
        int64_t ids[BATCH_ROWS];
        for (uint32_t i = 0; i < count; i++) {
            uint32_t s = random_below(&random, 4);
            from[i] = sources[s];
            rows[i] = (uint16_t)random_below(&random, sources[s]->rows);
            ids[i] = sources[s]->columns[ID].ints[rows[i]];
        }
        struct batch *out = batch_gather(pool, &schema, from, rows, count);
        for (int s = 0; s < 4; s++)
            batch_release(sources[s]);
        assert_int_equal(batch_pool_alive(pool), 1);
        assert_int_equal(out->rows, count);
        assert_int_equal(out->selected, count);
        for (uint32_t i = 0; i < count; i++) {
            check_row(out, i, ids[i]);
            assert_int_equal(batch_origin(out, i).record, 1000 + ids[i] % 10000);
            assert_int_equal(batch_order(out, i).time, ids[i] * 1000);
        }
        for (uint32_t i = 0; i < count; i++)
            from[i] = out, rows[i] = (uint16_t)(count - 1 - i);
        struct batch *back = batch_gather(pool, &schema, from, rows, count);
        for (uint32_t i = 0; i < count; i++)
            check_row(back, i, ids[count - 1 - i]);
        struct batch *derived = batch_derive(back, &schema);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(batch_origin(derived, i).record, 1000 + ids[count - 1 - i] % 10000);
        batch_release(out);
        batch_release(back);
        batch_release(derived);
    }
    batch_pool_free(pool);
}

/* Views of one batch, as lanes make them: each with some of the rows, and two columns of its own. */
static void make_views(struct batch *whole, const struct schema *wider, struct batch **views, uint32_t count,
                       const uint8_t *lane_of)
{
    for (uint32_t lane = 0; lane < count; lane++) {
        struct batch *view = views[lane] = batch_derive(whole, wider);
        uint16_t *sel = arena_alloc(&view->arena, whole->rows * sizeof(*sel));
        view->selected = 0;
        for (uint32_t row = 0; row < whole->rows; row++)
            if (lane_of[row] == lane)
                sel[view->selected++] = (uint16_t)row;
        view->sel = sel;
        struct column *number = &view->columns[COLUMNS], *word = &view->columns[COLUMNS + 1];
        batch_column_init(view, number, type_of(TYPE_INT), view->rows);
        batch_column_init(view, word, type_of(TYPE_TEXT), view->rows);
        char *heap = arena_alloc(&view->arena, (size_t)view->rows * WORD_BYTES + 1);
        word->heap = heap;
        for (uint32_t i = 0; i < view->selected; i++) {
            uint32_t row = sel[i];
            int length = snprintf(heap + (size_t)i * WORD_BYTES, WORD_BYTES, "%u of %u", row, lane);
            word->texts[row] = (struct text_ref){i * WORD_BYTES, (uint32_t)length};
            number->ints[row] = row * 10 + lane;
            if (row % 7 == 0)
                batch_set_null(view, number, row);
        }
    }
}

/* batch_unite gives the rows of all views in order, of view k from its from[k]-th selected row on; and NULL
 * where a row is in two views. */
static void check_unite(struct batch *const *views, uint32_t count, const struct batch *whole)
{
    uint32_t from[5] = {0}, expected = 0;
    for (uint32_t k = 0; k < count; k++) {
        from[k] = MIN(k, views[k]->selected);
        expected += views[k]->selected - from[k];
        assert_true(batch_are_same_rows(views[k], whole));
    }
    struct batch *out = batch_unite(views, from, count);
    assert_int_equal(out->selected, expected);
    assert_ptr_equal(out->columns[NAME].data, whole->columns[NAME].data);
    for (uint32_t k = 0; k < count; k++)
        for (uint32_t i = from[k]; i < views[k]->selected; i++) {
            uint32_t row = batch_row(views[k], i), at = 0;
            while (at < out->selected && batch_row(out, at) != row)
                at++;
            assert_true(at < out->selected && (at == 0 || batch_row(out, at - 1) < row));
            assert_int_equal(column_is_valid(&out->columns[COLUMNS], row), row % 7 != 0);
            assert_int_equal(out->columns[COLUMNS].ints[row], views[k]->columns[COLUMNS].ints[row]);
            struct str word = column_text(&views[k]->columns[COLUMNS + 1], row);
            assert_true(str_equal(column_text(&out->columns[COLUMNS + 1], row), word));
        }
    batch_release(out);
    if (views[0]->selected == 0)
        return;
    struct batch *twice[2] = {views[0], views[0]};
    assert_null(batch_unite(twice, (uint32_t[2]){0, 0}, 2));
}

/* batch_merge of views of one batch shares the batch's columns and copies those of the views. Where the rows
 * do not rise it works as batch_gather does, and gives the same values. */
static void test_merge_of_views(void **state)
{
    (void)state;
    struct batch_pool *pool = batch_pool_new();
    struct arena arena = {0};
    struct schema *wider = schema_copy(&arena, &schema, 2);
    schema_add(wider, STR("number"), type_of(TYPE_INT));
    schema_add(wider, STR("word"), type_of(TYPE_TEXT));
    struct test_random random = {8};
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t views_count = 1 + round % 5, count = 0, rows = 1 + random_below(&random, 500);
        bool is_rising = round % 3 != 0;
        struct batch *whole = make_range(pool, 20000, rows), *views[5], *sources[BATCH_ROWS];
        uint8_t lane_of[BATCH_ROWS];
        uint16_t picked[BATCH_ROWS];
        for (uint32_t row = 0; row < rows; row++)
            lane_of[row] = (uint8_t)random_below(&random, views_count);
        make_views(whole, wider, views, views_count, lane_of);
        for (uint32_t i = 0; i < rows; i++) {
            uint32_t row = is_rising ? i : rows - 1 - i;
            if (random_chance(&random, 20))
                continue;
            picked[count] = (uint16_t)row;
            sources[count++] = views[lane_of[row]];
        }
        check_unite(views, views_count, whole);
        struct batch *out = batch_merge(pool, wider, sources, picked, count);
        for (uint32_t lane = 0; lane < views_count; lane++)
            batch_release(views[lane]);
        if (is_rising && count > 0)
            assert_ptr_equal(out->columns[NAME].data, whole->columns[NAME].data);
        batch_release(whole);
        assert_int_equal(out->selected, count);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t row = batch_row(out, i);
            assert_true(i == 0 || row > batch_row(out, i - 1)); /* a selection rises */
            char expected[WORD_BYTES];
            snprintf(expected, sizeof(expected), "%u of %u", picked[i], lane_of[picked[i]]);
            check_row(out, row, 20000 + picked[i]);
            assert_int_equal(batch_origin(out, row).record, 1000 + picked[i]);
            assert_int_equal(column_is_valid(&out->columns[COLUMNS], row), picked[i] % 7 != 0);
            if (picked[i] % 7 != 0)
                assert_int_equal(out->columns[COLUMNS].ints[row], picked[i] * 10 + lane_of[picked[i]]);
            assert_true(str_equal(column_text(&out->columns[COLUMNS + 1], row), str_from(expected)));
        }
        batch_release(out);
        assert_int_equal(batch_pool_alive(pool), 0);
    }
    arena_free(&arena);
    batch_pool_free(pool);
}

/* batch_merge of rising rows from two batches, which are not views of one batch. */
static void test_merge_of_strangers(void **state)
{
    (void)state;
    struct batch_pool *pool = batch_pool_new();
    struct batch *two[2] = {make_range(pool, 0, 100), make_range(pool, 5000, 100)}, *sources[100];
    uint16_t rows[100];
    for (uint32_t i = 0; i < 100; i++)
        sources[i] = two[i % 2], rows[i] = (uint16_t)i;
    const struct schema no_lists = {.fields = fields, .count = EVENTS};
    struct batch *out = batch_merge(pool, &no_lists, sources, rows, 100);
    batch_release(two[0]);
    batch_release(two[1]);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t row = batch_row(out, i);
        int64_t id = i % 2 == 0 ? i : 5000 + i;
        assert_int_equal(out->columns[ID].ints[row], id);
        assert_int_equal(out->event_time[row], id * 1000);
    }
    batch_release(out);
    batch_pool_free(pool);
}

static void digest_range(struct batch_pool *pool, uint32_t total, struct test_random *random, char hex[33])
{
    struct batch_digest *digest = batch_digest_new();
    for (uint32_t at = 0; at < total;) {
        uint32_t rows = random == NULL ? MIN(total, BATCH_ROWS) : 1 + random_below(random, BATCH_ROWS);
        rows = MIN(rows, total - at);
        struct batch *batch = make_range(pool, at, rows);
        batch_digest_add(digest, batch);
        batch_release(batch);
        at += rows;
        if (random == NULL || !random_chance(random, 30))
            continue;
        struct byte_buffer saved = {0}; /* as in a checkpoint */
        batch_digest_save(digest, &saved);
        batch_digest_free(digest);
        digest = batch_digest_new();
        assert_true(batch_digest_load(digest, saved.data, saved.length));
        buffer_free(&saved);
    }
    batch_digest_hex(digest, hex);
    batch_digest_free(digest);
}

/* A digest does not depend on how rows are cut into batches, or on saving and loading in between; a missing
 * row changes it. */
static void test_digest(void **state)
{
    (void)state;
    struct batch_pool *pool = batch_pool_new();
    struct test_random random = {9};
    char expected[33], said[33], shorter[33];
    digest_range(pool, 20000, NULL, expected);
    assert_int_equal(strlen(expected), 32);
    for (int round = 0; round < 5; round++) {
        digest_range(pool, 20000, &random, said);
        assert_string_equal(said, expected);
    }
    digest_range(pool, 19999, NULL, shorter);
    assert_string_not_equal(shorter, expected);
    struct batch_digest *digest = batch_digest_new();
    assert_false(batch_digest_load(digest, "short", 5));
    batch_digest_free(digest);
    batch_pool_free(pool);
}

static void digest_one(const struct batch *batch, char hex[33])
{
    struct batch_digest *digest = batch_digest_new();
    batch_digest_add(digest, batch);
    batch_digest_hex(digest, hex);
    batch_digest_free(digest);
}

static void test_digest_sees_everything(void **state)
{
    (void)state;
    struct batch_pool *pool = batch_pool_new();
    char before[33], after[33];
    for (int change = 0; change < 6; change++) {
        struct batch *batch = make_range(pool, 1, 20);
        static const uint16_t sel[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
        batch->sel = sel;
        batch->selected = 10;
        digest_one(batch, before);
        switch (change) {
        case 0: batch->columns[ID].ints[9]++; break;
        case 1: batch_set_null(batch, &batch->columns[OK], 1); break;
        case 2: batch->columns[NESTED].lists[0].length--; break;
        case 3: batch->event_time[9]++; break;
        case 4: batch->selected--; break;
        case 5: batch->columns[ID].ints[10]++; break; /* not selected: does not count */
        }
        digest_one(batch, after);
        assert_int_equal(strcmp(before, after) == 0, change == 5);
        batch_release(batch);
    }
    batch_pool_free(pool);
}

/* A digest depends on which of two lists an element is in. */
static void test_digest_of_lists(void **state)
{
    (void)state;
    static const struct type type_int = {.tag = TYPE_INT};
    static struct field two[] = {{.name = {"a", 1}, .type = {.tag = TYPE_LIST, .element = &type_int}},
                                 {.name = {"b", 1}, .type = {.tag = TYPE_LIST, .element = &type_int}}};
    static const struct schema lists = {.fields = two, .count = 2};
    static int64_t values[] = {1, 2, 3};
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = batch_new(pool, &lists, 1);
    char first[33], second[33];
    batch->event_time[0] = 0;
    batch->columns[0].children[0].ints = batch->columns[1].children[0].ints = values;
    batch->columns[0].lists[0] = (struct list_ref){0, 1};
    batch->columns[1].lists[0] = (struct list_ref){1, 2};
    digest_one(batch, first);
    batch->columns[0].lists[0] = (struct list_ref){0, 2};
    batch->columns[1].lists[0] = (struct list_ref){2, 1};
    digest_one(batch, second);
    assert_string_not_equal(first, second);
    batch_release(batch);
    batch_pool_free(pool);
}

static void test_row_order(void **state)
{
    (void)state;
    const struct row_order rows[] = {
        {.place = 0, .time = 1, .partition = 9, .tie = 9},
        {.place = 0, .time = 2, .partition = 0, .tie = 5},
        {.place = 0, .time = 2, .partition = 1, .tie = 0},
        {.place = 0, .time = 2, .partition = 1, .tie = 3},
        {.place = 0, .time = 2, .partition = 1, .tie = 3, .sub = 1},
        {.place = 4, .time = -7},
    };
    for (size_t a = 0; a < ARRAY_COUNT(rows); a++)
        for (size_t b = 0; b < ARRAY_COUNT(rows); b++)
            assert_int_equal(row_order_compare(&rows[a], &rows[b]), a < b ? -1 : a > b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_derive_and_release),
        cmocka_unit_test(test_recycling),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_set_null),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_merge_of_views),
        cmocka_unit_test(test_merge_of_strangers),
        cmocka_unit_test(test_digest),
        cmocka_unit_test(test_digest_sees_everything),
        cmocka_unit_test(test_digest_of_lists),
        cmocka_unit_test(test_row_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
