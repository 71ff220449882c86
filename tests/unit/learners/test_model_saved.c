/* A model that continues with other features and dense layers: what is kept must be in the right place, bit
 * for bit. */
#include "events.h"

#include "core/base.h"
#include "core/buffer.h"
#include "learners/model/internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct events events, turned;
static double logits[EVENTS_MAX];
static uint8_t verdicts[EVENTS_MAX];

static const struct kernels *best(void)
{
    const char *reason;
    return kernels_pick(NULL, &reason);
}

static bool restore_rows(void *argument, const void *rows, size_t count)
{
    struct table *t = argument;
    for (size_t i = 0; i < count; i++)
        table_restore_row(t, (const unsigned char *)rows + i * table_stored_bytes(t));
    return true;
}

static void move_table(struct model *from, uint32_t f, struct model *to, uint32_t g)
{
    const struct table_keys *removed;
    uint32_t epoch = model_table(from, f)->epoch;
    struct table_snapshot *snapshot = table_snapshot_begin(model_table(from, f), 0, epoch, &removed);
    assert_true(table_snapshot_write(snapshot, restore_rows, model_table(to, g)));
    table_snapshot_end(model_table(from, f), true);
    table_restored(model_table(to, g), epoch);
}

/* The old fields 0, 1 and 2 become 2, none and 0; the new field 1 has no past. The old dense input 1 is gone,
 * the old 0 becomes 1, and the new 0 has no past. */
static const uint16_t tables[EVENT_FIELDS] = {2, 3, 0};

static struct model_saved changed(const struct model *from)
{
    struct model_saved saved = model_saved_as(from);
    saved.field_of[0] = 2, saved.field_of[1] = -1, saved.field_of[2] = 0;
    saved.dense_of[0] = 1, saved.dense_of[1] = -1;
    return saved;
}

static void turn_events(void)
{
    turned = events;
    memcpy(turned.ids[0], events.ids[2], sizeof(turned.ids[0]));
    memcpy(turned.ids[2], events.ids[0], sizeof(turned.ids[2]));
    memcpy(turned.dense[1], events.dense[0], sizeof(turned.dense[1]));
}

static void assert_same_row(struct model *from, uint32_t f, struct model *to, uint32_t g, uint64_t key)
{
    struct table_row *was = table_find(model_table(from, f), key), *is = table_find(model_table(to, g), key);
    assert_true(was != NULL && is != NULL && was->count == is->count && was->seen == is->seen);
    assert_memory_equal(table_payload(was), table_payload(is), model_table(from, f)->options.payload_bytes);
}

static void test_features_come_and_go(void **state)
{
    (void)state;
    static const struct {
        uint32_t hidden, batch, block;
    } shapes[] = {{0, 1, 1}, {8, 1, 16}, {8, 37, 1}};
    for (size_t s = 0; s < ARRAY_COUNT(shapes); s++) {
        struct model_options o = events_options(&interaction_fm, shapes[s].hidden);
        o.batch = shapes[s].batch, o.block = shapes[s].block;
        struct model *from = model_new(&o, best());
        events_learn(&events, from, 0, 3003, 300, logits, verdicts); /* in the middle of a block or batch */
        struct byte_buffer small = {0};
        model_save(from, &small);
        struct model_saved saved = changed(from);
        o.tables = tables;
        struct model *to = model_new(&o, best()), *fresh = model_new(&o, best());
        move_table(from, 0, to, 2);
        move_table(from, 2, to, 0);
        assert_false(model_load_saved(to, &saved, small.data, small.length - 1));
        assert_true(model_load_saved(to, &saved, small.data, small.length));
        assert_int_equal(to->pending, from->pending);
        for (uint32_t i = 0; i < 50; i++) {
            assert_same_row(from, 0, to, 2, events.ids[0][i]);
            assert_same_row(from, 2, to, 0, events.ids[2][i]);
            assert_null(table_find(model_table(to, 1), events.ids[1][i]));
        }
        assert_memory_equal(to->dense_weights + LINEAR_FLOATS, from->dense_weights, LINEAR_BYTES);
        assert_memory_equal(to->dense_weights, fresh->dense_weights, LINEAR_BYTES);
        assert_memory_equal(to->dense_weights + 2 * LINEAR_FLOATS, from->dense_weights + 2 * LINEAR_FLOATS,
                            LINEAR_BYTES);
        for (size_t l = 0; l < to->head.layers; l++) {
            const struct head_layer *stands = l == 0 ? &fresh->head.items[l] : &from->head.items[l];
            assert_memory_equal(to->head.items[l].weights, stands->weights,
                                head_layer_floats(&to->head, l) * sizeof(float));
        }
        events_learn(&turned, to, 3003, EVENTS_MAX, 300, logits, verdicts);
        for (uint32_t i = 3003; i < EVENTS_MAX; i++)
            assert_true(isfinite(logits[i]));
        buffer_free(&small);
        model_free(from);
        model_free(to);
        model_free(fresh);
    }
}

/* Layers with the same shape are kept, others are made anew; all saved bytes are consumed. */
static void test_hidden_changes(void **state)
{
    (void)state;
    static const uint32_t widths[][3] = {{8, 6, 0}, {8, 4, 0}, {8, 0, 0}, {8, 6, 4}, {4, 6, 0}};
    struct model_options o = events_options(&interaction_fm, 8);
    o.block = 16;
    o.hidden[1] = 6;
    struct model *from = model_new(&o, best());
    events_learn(&events, from, 0, 3003, 300, logits, verdicts);
    struct byte_buffer small = {0};
    model_save(from, &small);
    struct model_saved saved = model_saved_as(from);
    for (size_t w = 0; w < ARRAY_COUNT(widths); w++) {
        memcpy(o.hidden, widths[w], sizeof(widths[w]));
        struct model *to = model_new(&o, best()), *fresh = model_new(&o, best());
        assert_true(model_load_saved(to, &saved, small.data, small.length));
        for (size_t l = 0; l < to->head.layers; l++) {
            const struct head_layer *now = &to->head.items[l];
            bool stays =
                l < from->head.layers && from->head.items[l].n == now->n && from->head.items[l].d == now->d;
            const struct head_layer *stands = stays ? &from->head.items[l] : &fresh->head.items[l];
            assert_memory_equal(now->weights, stands->weights,
                                head_layer_floats(&to->head, l) * sizeof(float));
        }
        assert_memory_equal(to->dense_weights, from->dense_weights, LINEAR_BYTES * (EVENT_DENSE + 1));
        events_learn(&events, to, 3003, 3200, 100, logits, verdicts);
        model_free(to);
        model_free(fresh);
    }
    buffer_free(&small);
    model_free(from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_features_come_and_go),
        cmocka_unit_test(test_hidden_changes),
    };
    events_make(&events);
    turn_events();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
