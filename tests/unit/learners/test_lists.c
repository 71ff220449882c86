/*
 * The columns `rank` and `top`: as formats write them, over selected rows, with items that have left; lists that
 * take more than one batch; and what bind refuses.
 */
#include "learners/retrieval/lists.h"

#include "core/buffer.h"
#include "formats/formats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { EMITTED_MAX = 32 };
static struct batch *emitted[EMITTED_MAX];
static uint32_t emissions;

void operator_emit(struct operator_context *context, uint32_t output, struct batch *batch)
{
    (void)context;
    assert_true(output == 2 && emissions < EMITTED_MAX);
    emitted[emissions++] = batch;
}

void operator_reject(struct operator_context *context, const struct batch *batch, uint32_t row,
                     const char *reason)
{
    (void)context, (void)batch, (void)row, (void)reason;
    fail();
}

/* An input of the columns id and item, a schema with lists of `most` items, and numbers of items. */
struct rig {
    struct arena arena;
    struct diag_list diags;
    struct operator_context context;
    struct operator_bind bind;
    struct schema *input;
    const struct schema *schema;
    struct items_numbers *numbers;
};

static void rig_open(struct rig *g, enum type_tag item, uint32_t most)
{
    static const struct schema empty;
    static const struct lineage model = {.words = {[1] = 8}};
    *g = (struct rig){.context = {.pool = batch_pool_new()}, .numbers = items_numbers_create(100000)};
    emissions = 0;
    arena_init(&g->arena, 1 << 16);
    diag_list_init(&g->diags, &g->arena);
    g->input = schema_copy(&g->arena, &empty, 4);
    schema_add(g->input, STR("id"), type_of(TYPE_INT));
    schema_add(g->input, STR("item"), type_of(item))->lineage.words[0] = 4;
    g->bind = (struct operator_bind){.arena = &g->arena, .diags = &g->diags, .inputs_count = 1};
    g->bind.inputs[0].schema = g->input;
    struct schema *schema = operator_extend(&g->bind, 2);
    if (lists_bind(&g->bind, schema, &g->input->fields[1], most, &model, (struct span){0}))
        g->schema = schema;
    assert_true((g->schema != NULL) == (g->diags.errors == 0));
}

static void rig_close(struct rig *g)
{
    while (emissions > 0)
        batch_release(emitted[--emissions]);
    items_numbers_free(g->numbers);
    batch_pool_free(g->context.pool);
    arena_free(&g->arena);
}

static uint32_t add_item(struct rig *g, uint64_t key, struct str text)
{
    struct items_value value = {.key = key, .is_text = text.data != NULL, .text = text};
    value.integer = value.is_text ? 0 : -(int64_t)key;
    struct items_ref ref;
    assert_int_equal(items_numbers_add(g->numbers, &value, &ref), ITEMS_NEW);
    return ref.number;
}

static struct batch *input_batch(struct rig *g, uint32_t rows)
{
    struct batch *batch = batch_new(g->context.pool, g->input, rows);
    bool is_text = g->input->fields[1].type.tag == TYPE_TEXT;
    batch->columns[1].heap = "abcdefgh";
    for (uint32_t i = 0; i < rows; i++) {
        batch->columns[0].ints[i] = i;
        batch->event_time[i] = 0;
        if (is_text)
            batch->columns[1].texts[i] = (struct text_ref){i % 8, 1};
        else
            batch->columns[1].ints[i] = 100 + i;
    }
    return batch;
}

static void encode(const struct format_kind *format, const struct batch *batch, struct byte_buffer *out)
{
    void *encoder = format->encoder_new(batch->schema, NULL);
    if (format->encode_header != NULL)
        format->encode_header(encoder, out);
    format->encode(encoder, batch, 0, batch->selected, out);
    if (format->encode_end != NULL)
        format->encode_end(encoder, out);
    format->encoder_free(encoder);
}

static void assert_json(const char *expected)
{
    struct byte_buffer out = {0};
    assert_int_equal(emissions, 1);
    encode(&format_json, emitted[0], &out);
    buffer_append(&out, "", 1);
    assert_string_equal(out.data, expected);
    buffer_free(&out);
}

/* Numbers 0 .. 3; 1 has left, and 3 has an empty text. */
static void add_few(struct rig *g, bool is_text)
{
    static const char *const texts[] = {"shoe", "gone", "h\xc3\xa4t", ""};
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(add_item(g, i + 1, is_text ? str_from(texts[i]) : (struct str){0}), i);
    assert_true(items_numbers_remove(g->numbers, 2, &(struct items_ref){0}));
}

static const double ranks[] = {2.5, (double)NAN, (double)INFINITY, 1.0};
static const struct items_scored tops[][3] = {
    {{0, 1.5F}, {2, 0.25F}, {3, -1.0F}}, {{2, 9.0F}}, {{1, 4.0F}, {0, 3.0F}}, {{0, 0.0F}}};
static const uint32_t counts[] = {3, UINT32_MAX, 2, 0};
static const struct lists_rows few = {ranks, tops[0], counts, 3};

static void test_texts(void **state)
{
    (void)state;
    struct rig g;
    rig_open(&g, TYPE_TEXT, 3);
    add_few(&g, true);
    struct batch *batch = input_batch(&g, 4);
    lists_emit(&g.context, 2, g.schema, batch, &few, g.numbers);
    batch_release(batch);
    assert_json("{\"id\":0,\"item\":\"a\",\"rank\":2.5,\"top\":[{\"item\":\"shoe\",\"score\":1.5},"
                "{\"item\":\"h\xc3\xa4t\",\"score\":0.25},{\"item\":\"\",\"score\":-1}]}\n"
                "{\"id\":1,\"item\":\"b\",\"rank\":null,\"top\":null}\n"
                "{\"id\":2,\"item\":\"c\",\"rank\":null,\"top\":[{\"item\":null,\"score\":4},"
                "{\"item\":\"shoe\",\"score\":3}]}\n"
                "{\"id\":3,\"item\":\"d\",\"rank\":1,\"top\":[]}\n");
    const struct column *rank = &emitted[0]->columns[2];
    assert_true(column_is_valid(rank, 2) && isinf(rank->floats[2]) && !column_is_valid(rank, 1));
    struct byte_buffer out = {0};
    encode(&format_msgpack, emitted[0], &out);
    assert_true(memmem(out.data, out.length, "\xa4item\xa4shoe\xa5score\xcb", 17) != NULL);
    buffer_clear(&out);
    encode(&format_batches, emitted[0], &out);
    assert_true(out.length > 100);
    buffer_free(&out);
    const struct field *fields = &g.schema->fields[2];
    assert_true(fields[0].lineage.words[0] == 4 && fields[0].lineage.words[1] == 8);
    assert_true(fields[1].lineage.words[0] == 0 && fields[1].lineage.words[1] == 8);
    assert_int_equal(fields[1].type.length_max, 3);
    rig_close(&g);
}

/* Of selected rows; numbers as items. */
static void test_selected(void **state)
{
    (void)state;
    static const uint16_t sel[] = {1, 4, 5, 7};
    struct rig g;
    rig_open(&g, TYPE_INT, 3);
    add_few(&g, false);
    struct batch *batch = input_batch(&g, 9);
    batch->sel = sel;
    batch->selected = 4;
    lists_emit(&g.context, 2, g.schema, batch, &few, g.numbers);
    assert_json("{\"id\":1,\"item\":101,\"rank\":2.5,\"top\":[{\"item\":-1,\"score\":1.5},"
                "{\"item\":-3,\"score\":0.25},{\"item\":-4,\"score\":-1}]}\n"
                "{\"id\":4,\"item\":104,\"rank\":null,\"top\":null}\n"
                "{\"id\":5,\"item\":105,\"rank\":null,\"top\":[{\"item\":null,\"score\":4},"
                "{\"item\":-1,\"score\":3}]}\n"
                "{\"id\":7,\"item\":107,\"rank\":1,\"top\":[]}\n");
    batch_release(emitted[--emissions]);
    lists_emit(&g.context, 2, g.schema, batch, &(struct lists_rows){.most = 3}, g.numbers);
    assert_json("{\"id\":1,\"item\":101,\"rank\":null,\"top\":null}\n{\"id\":4,\"item\":104,\"rank\":null,"
                "\"top\":null}\n{\"id\":5,\"item\":105,\"rank\":null,\"top\":null}\n{\"id\":7,\"item\":107,"
                "\"rank\":null,\"top\":null}\n");
    batch_release(batch);
    rig_close(&g);
}

/* Texts of `long_bytes` in lists of `most`, of all rows but every third. Batches keep within their bytes, and have each
 * selected row once, in order. */
static void check_long(uint32_t rows, uint32_t most, size_t long_bytes, uint32_t expected)
{
    struct rig g;
    rig_open(&g, TYPE_TEXT, most);
    char *text = calloc(1, long_bytes);
    for (uint32_t i = 0; i < most; i++) {
        memset(text, 'a' + (int)(i % 26), long_bytes);
        add_item(&g, i + 1, (struct str){text, long_bytes - i % 2 * (long_bytes / 2)});
    }
    free(text);
    uint16_t sel[BATCH_ROWS];
    uint32_t selected = 0, seen = 0;
    for (uint32_t i = 0; i < rows; i++)
        if (i % 3 != 2)
            sel[selected++] = (uint16_t)i;
    struct items_scored *top = calloc((size_t)selected * most, sizeof(*top));
    double *of = calloc(selected, sizeof(*of));
    uint32_t *lengths = calloc(selected, sizeof(*lengths));
    for (uint32_t i = 0; i < selected; i++) {
        of[i] = i + 1.0, lengths[i] = most - i % 3;
        for (uint32_t k = 0; k < lengths[i]; k++)
            top[i * most + k] = (struct items_scored){(i + 2 * k) % most, (float)k};
    }
    struct batch *batch = input_batch(&g, rows);
    batch->sel = sel, batch->selected = selected;
    lists_emit(&g.context, 2, g.schema, batch, &(struct lists_rows){of, top, lengths, most}, g.numbers);
    assert_int_equal(emissions, expected);
    for (uint32_t e = 0; e < emissions; e++) {
        const struct column *lists = &emitted[e]->columns[3], *item = &lists->children[0];
        size_t bytes = 0, items = 0;
        for (uint32_t i = 0; i < emitted[e]->selected; i++, seen++) {
            uint32_t row = batch_row(emitted[e], i);
            assert_true(row == sel[seen] && emitted[e]->columns[0].ints[row] == row);
            assert_true(emitted[e]->columns[2].floats[row] == seen + 1.0);
            assert_int_equal(lists->lists[row].length, lengths[seen]);
            for (uint32_t k = 0; k < lengths[seen]; k++) {
                struct str value = column_text(item, lists->lists[row].offset + k);
                uint32_t number = (seen + 2 * k) % most;
                assert_int_equal(value.length, long_bytes - number % 2 * (long_bytes / 2));
                assert_true(value.data[0] == 'a' + (char)(number % 26) &&
                            value.data[value.length - 1] == value.data[0]);
                bytes += value.length + 16;
            }
            items += lengths[seen];
        }
        assert_int_equal(lists->child_rows, items);
        assert_true(bytes <= LISTS_BATCH_BYTES || emitted[e]->selected == 1);
    }
    assert_int_equal(seen, selected);
    batch_release(batch);
    free(top), free(of), free(lengths);
    rig_close(&g);
}

static void test_long(void **state)
{
    (void)state;
    check_long(600, 100, 1000, 2);         /* 400 rows of 100 KB or 50 KB */
    check_long(6, 300, ITEMS_TEXT_MAX, 4); /* a row has more than a batch */
    check_long(1024, 4, 8, 1);
}

/* An item whose value is not of the column's type has no name there: after a restore with another job. */
static void test_other_type(void **state)
{
    (void)state;
    static const struct items_scored top[] = {{0, 2.0F}, {1, 1.0F}};
    for (int is_text = 0; is_text < 2; is_text++) {
        struct rig g;
        rig_open(&g, is_text ? TYPE_TEXT : TYPE_INT, 2);
        (void)add_item(&g, 1, STR("shoe"));
        (void)add_item(&g, 2, (struct str){0});
        struct batch *batch = input_batch(&g, 1);
        lists_emit(&g.context, 2, g.schema, batch, &(struct lists_rows){NULL, top, (uint32_t[]){2}, 2},
                   g.numbers);
        const struct column *item = &emitted[0]->columns[3].children[0];
        assert_true(column_is_valid(item, 0) == is_text && column_is_valid(item, 1) == !is_text);
        batch_release(batch);
        rig_close(&g);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct lineage none;
    struct rig g;
    rig_open(&g, TYPE_FLOAT, 3);
    assert_null(g.schema);
    rig_close(&g);
    for (int i = 0; i < 2; i++) {
        rig_open(&g, TYPE_INT, 3);
        schema_add(g.input, i == 0 ? STR("rank") : STR("top"), type_of(TYPE_INT));
        assert_false(lists_bind(&g.bind, operator_extend(&g.bind, 2), &g.input->fields[1], 3, &none,
                                (struct span){0}));
        assert_int_equal(g.diags.errors, 1);
        rig_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),      cmocka_unit_test(test_selected), cmocka_unit_test(test_long),
        cmocka_unit_test(test_other_type), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
