/* Dense indices that grow from call to call (learners/train/step.c): a model that keeps a batch's indices
 * over several calls learns the same as a model that dedupes each call and each batch anew, whatever rows
 * change between calls. */
#include "learners/model/internal.h"
#include "learners/tables/inline.h"
#include "learners/train/train.h"

#include "core/base.h"
#include "events.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { BATCH = 100, LEARNED = 2000, EXPIRES_S = 30, REJECTED = 650 };

static struct events events;
static double ours[EVENTS_MAX], theirs[EVENTS_MAX];
static uint8_t verdicts[EVENTS_MAX];

static const struct {
    const char *name;
    const struct interaction *interaction;
    uint32_t hidden, admit_after;
    bool is_limited;
} kinds[] = {
    {"linear", NULL, 0, 1, false},
    {"linear, admitted late, rows_max", NULL, 0, 2, true},
    {"fm", &interaction_fm, 0, 1, false},
    {"deepfm, by ids", &interaction_fm, 40, 1, false},
};

static struct model *new_model(size_t k, bool keeps_indices)
{
    struct model_options o = events_options(kinds[k].interaction, kinds[k].hidden);
    o.network = kinds[k].hidden > 0 ? &network_deep : NULL;
    o.vectors = kinds[k].interaction == NULL ? 0 : EVENT_FIELDS;
    o.dim = 16, o.batch = BATCH;
    o.admit_after = kinds[k].admit_after, o.sketch_bytes = 4096;
    o.rows_max = kinds[k].is_limited ? 100 : 0;
    o.expire_after_us = EXPIRES_S * US_PER_SECOND;
    const char *reason;
    struct model *m = model_new(&o, kernels_pick(NULL, &reason));
    assert_true(m->train->keeps_indices);
    m->train->keeps_indices = keeps_indices;
    return m;
}

/* Between some calls: moves the watermark, removes a row, or lets rows expire without a sweep. */
static void disturb(struct model *m, uint32_t number, uint32_t end)
{
    struct table *t = model_table(m, 1);
    uint64_t key = events.ids[1][end - 1];
    uint32_t second = (uint32_t)(events.times[end - 1] / US_PER_SECOND);
    if (number % 7 == 1)
        model_set_watermark(m, events.times[end - 1]);
    if (number % 7 == 3 && table_find(t, key) != NULL)
        table_remove(t, key, table_hash(t, key));
    if (number % 7 == 5 && second > EXPIRES_S)
        t->expired_before = MAX(t->expired_before, second - EXPIRES_S / 2);
}

/* Learns in calls of `calls` events. Returns after how many calls the dense indices of several
 * calls were kept. */
static uint32_t learn(struct model *m, uint32_t calls, double *logits)
{
    uint32_t together = 0, number = 0;
    for (uint32_t at = 0, end; at < LEARNED; at = end, number++) {
        end = MIN(at + calls, (uint32_t)LEARNED);
        events_learn(&events, m, at, end, calls, logits, verdicts);
        together += m->train->has_indices && train_pending(m->train) > calls;
        disturb(m, number, end);
    }
    return together;
}

static void test_calls(void **state)
{
    (void)state;
    static const uint32_t calls[] = {7, 33, 60, 250};
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        for (size_t c = 0; c < ARRAY_COUNT(calls); c++) {
            struct model *on = new_model(k, true), *anew = new_model(k, false);
            uint32_t together = learn(on, calls[c], ours);
            assert_int_equal(learn(anew, calls[c], theirs), 0);
            print_message("%s, calls of %u: indices of several calls were kept %u times\n", kinds[k].name,
                          calls[c], together);
            assert_true(calls[c] > BATCH / 2 || together > 10);
            assert_memory_equal(ours, theirs, LEARNED * sizeof(*ours));
            assert_true(events_digest(on, EVENT_FIELDS) == events_digest(anew, EVENT_FIELDS));
            model_free(on);
            model_free(anew);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls)};
    events_make(&events);
    events.labels[REJECTED] = NAN; /* its batch is deduped anew */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
