/* A model whose rows are found and made by another thread while it learns, and of which a third thread takes
 * a snapshot: the same bits as with one thread. Cuts note what both threads change. Run under ThreadSanitizer as well. */
#include "events.h"
#include "learners/tables/cut.h"
#include "team_helper.h"

#include "core/base.h"
#include "core/buffer.h"
#include "core/team.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { HALF = 3000 };

static struct events events;
static double logits[EVENTS_MAX], other_logits[EVENTS_MAX];
static uint8_t verdicts[EVENTS_MAX];

static const struct kernels *best(void)
{
    const char *reason;
    return kernels_pick(NULL, &reason);
}

struct writer {
    struct model *copy;
    struct table_snapshot *snapshots[EVENT_FIELDS];
    uint32_t field;
    bool is_good;
    struct byte_buffer cuts[EVENT_FIELDS]; /* of the second half */
};

static bool restore_rows(void *argument, const void *rows, size_t count)
{
    struct writer *w = argument;
    struct table *t = model_table(w->copy, w->field);
    for (size_t i = 0; i < count; i++)
        table_restore_row(t, (const unsigned char *)rows + i * table_stored_bytes(t));
    return true;
}

static void *write_snapshots(void *argument)
{
    struct writer *w = argument;
    w->is_good = true;
    for (w->field = 0; w->field < EVENT_FIELDS; w->field++)
        w->is_good = w->is_good && table_snapshot_write(w->snapshots[w->field], restore_rows, w) &&
                     table_snapshot_write_counts(w->snapshots[w->field], events_restore_counts,
                                                 model_table(w->copy, w->field));
    return NULL;
}

/* Learns the second half of the events while another thread writes the state after the first
 * half into w->copy. */
static void learn_during_snapshot(struct model *m, struct writer *w)
{
    pthread_t thread;
    struct byte_buffer small = {0};
    model_save(m, &small);
    uint32_t epoch = model_table(m, 0)->epoch;
    for (uint32_t f = 0; f < EVENT_FIELDS; f++) {
        const struct table_keys *removed;
        w->snapshots[f] = table_snapshot_begin(model_table(m, f), 0, epoch, &removed);
        table_cut_note(model_table(m, f), true, epoch + 1);
    }
    assert_int_equal(pthread_create(&thread, NULL, write_snapshots, w), 0);
    events_learn(&events, m, HALF, EVENTS_MAX, 750, other_logits, verdicts);
    pthread_join(thread, NULL);
    assert_true(w->is_good);
    for (uint32_t f = 0; f < EVENT_FIELDS; f++) {
        table_cut(model_table(m, f), epoch + 2, &w->cuts[f]);
        table_snapshot_end(model_table(m, f), true);
        table_restored(model_table(w->copy, f), epoch);
    }
    assert_true(model_load(w->copy, small.data, small.length));
    buffer_free(&small);
}

/* The copy takes what the second half has changed. */
static void take_cuts(struct model *m, struct writer *w)
{
    struct byte_buffer rest = {0};
    for (uint32_t f = 0; f < EVENT_FIELDS; f++) {
        assert_true(
            table_take_cut(model_table(w->copy, f), w->cuts[f].data, w->cuts[f].length, TABLE_STEP_NONE));
        buffer_free(&w->cuts[f]);
    }
    model_save_reader(m, &rest);
    assert_true(model_load_reader(w->copy, rest.data, rest.length));
    buffer_free(&rest);
    assert_true(events_digest_of(m, EVENT_FIELDS, true) == events_digest_of(w->copy, EVENT_FIELDS, true));
}

static void same_with_help(const struct model_options *o)
{
    struct helper h = {.team = {.wake = wait_for_help}};
    h.team.engine = &h;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, help, &h), 0);
    struct model *alone = model_new(o, best()), *helped = model_new(o, best());
    struct writer w = {.copy = model_new(o, best())};
    model_set_team(helped, &h.team);
    events_learn(&events, alone, 0, HALF, 1000, logits, verdicts);
    events_learn(&events, helped, 0, HALF, 500, other_logits, verdicts);
    uint64_t half = events_digest(alone, EVENT_FIELDS);
    learn_during_snapshot(helped, &w);
    events_learn(&events, alone, HALF, EVENTS_MAX, 1000, logits, verdicts);
    assert_memory_equal(logits, other_logits, sizeof(logits));
    assert_true(events_digest(alone, EVENT_FIELDS) == events_digest(helped, EVENT_FIELDS));
    assert_true(half == events_digest(w.copy, EVENT_FIELDS));
    take_cuts(helped, &w);
    atomic_store(&h.is_over, true);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&h.pieces) >= EVENTS_MAX / 750);
    model_free(alone);
    model_free(helped);
    model_free(w.copy);
}

static void test_vectors(void **state)
{
    (void)state;
    struct model_options o = events_options(&interaction_ffm, 0);
    same_with_help(&o);
    o.embedding.kind = OPT_ADAGRAD_BLOCK;
    o.admit_after = 2;
    o.sketch_bytes = 4096;
    same_with_help(&o);
    o = events_options(&interaction_fm, 0);
    o.clip_norm = 0.5F;
    same_with_help(&o);
}

/* Rows are evicted by their headers, and their memory is reused, while the other thread looks up keys. */
static void test_rows_that_go(void **state)
{
    (void)state;
    struct model_options o = events_options(&interaction_ffm, 0);
    o.rows_max = 128;
    same_with_help(&o);
}

static void test_blocks(void **state)
{
    (void)state;
    struct model_options o = events_options(&interaction_ffm, 24);
    same_with_help(&o);
    o = events_options(&interaction_fm, 24);
    o.rows_max = 256;
    same_with_help(&o);
}

/* Steps of whole batches: rows and updates are divided by field, events by tile; gradients are summed in the
 * order of tiles, or by field for wide layers over vectors of whole lanes. */
static const struct {
    const struct interaction *interaction;
    const struct network *network;
    bool is_limited;
    enum row_format precision;
    uint32_t micro, dim, hidden;
} batch_kinds[] = {
    {NULL, NULL, true, ROW_FP32, 0, 8, 0},
    {&interaction_ffm, NULL, false, ROW_FP32, 0, 8, 0},
    {&interaction_fm, NULL, false, ROW_FP32, 0, 8, 0},
    {&interaction_fm, &network_deep, true, ROW_FP32, 0, 8, 24},
    {NULL, &network_cross, false, ROW_FP32, 0, 8, 24},
    {NULL, &network_dot, false, ROW_FP16, 0, 8, 24},
    {NULL, &network_experts, false, ROW_FP32, 0, 8, 24},
    {&interaction_fm, &network_deep, false, ROW_FP32, 300, 8, 24},
    {&interaction_fm, &network_deep, true, ROW_FP32, 0, 16, 40},
    {NULL, &network_cross, false, ROW_FP32, 0, 16, 40},
    {NULL, &network_cross, false, ROW_BF16, 0, 16, 40},
    {NULL, &network_experts, false, ROW_FP32, 0, 16, 40},
    {NULL, &network_attention, true, ROW_FP32, 0, 8, 0},
    {NULL, &network_attention, false, ROW_BF16, 300, 16, 0},
};

static struct model_options batch_options(size_t k)
{
    struct model_options o = events_options(batch_kinds[k].interaction, batch_kinds[k].hidden);
    o.dim = batch_kinds[k].dim;
    o.network = batch_kinds[k].network, o.linear_is_off = events_linear_is_off(batch_kinds[k].network);
    o.precision = batch_kinds[k].precision, o.micro = batch_kinds[k].micro;
    o.network_own = events_network(o.network);
    o.rows_max = batch_kinds[k].is_limited ? 600 : 0;
    o.admit_after = 2, o.sketch_bytes = 4096;
    o.batch = 600, o.slice = 128;
    return o;
}

static void test_batches(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_COUNT(batch_kinds); k++) {
        struct model_options o = batch_options(k);
        same_with_help(&o);
    }
}

/* A step's events come in one call or in several calls of any size; all events learn, or
 * negatives are sampled. */
static void test_calls(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 599, 250, 7, 336, 900, 31};
    for (size_t k = 0; k < 2 * ARRAY_COUNT(batch_kinds); k++) {
        struct model_options o = batch_options(k / 2);
        o.negatives_kept = k % 2 == 0 ? 1.0 : 0.5;
        struct model *whole = model_new(&o, best()), *parted = model_new(&o, best());
        events_learn(&events, whole, 0, HALF, o.batch, logits, verdicts);
        for (uint32_t at = 0, i = 0, size; at < HALF; at += size, i++) {
            size = MIN(sizes[i % ARRAY_COUNT(sizes)], HALF - at);
            events_learn(&events, parted, at, at + size, size, other_logits, verdicts);
        }
        assert_memory_equal(logits, other_logits, HALF * sizeof(*logits));
        assert_true(events_digest(whole, EVENT_FIELDS) == events_digest(parted, EVENT_FIELDS));
        model_free(whole);
        model_free(parted);
    }
}

static int setup(void **state)
{
    (void)state;
    events_make(&events);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors), cmocka_unit_test(test_rows_that_go), cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_batches), cmocka_unit_test(test_calls),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
