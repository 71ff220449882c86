/* model_predict gives the bits that model_learn then reports, whether the event teaches or not: ids that are
 * new, wait for admission, expire or find their bucket full, lists with repeated and colliding ids. And it
 * changes nothing: a model that only learns, in larger calls, has the same predictions and weights. */
#include "events.h"
#include "learners/model/internal.h"

#include "core/base.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* PERIOD: events of a call, after which the watermark rises. */
enum { TOTAL = 100000, FIELDS = 4, LIST = 1, LIST_IDS = 6, PERIOD = 100, LABELS = 2 };
enum { PLAIN = 1, FTRL = 2, PAIRS = 4, CENTERED = 8, CLIPPED = 16, NEWTON = 32, BATCHES = 64 };

static const struct kind {
    const char *name;
    const struct interaction *interaction;
    const struct network *network;
    uint32_t hidden, batch;
    unsigned is;
} kinds[] = {
    {"linear", NULL, NULL, 0, 1, PLAIN},
    {"linear, lists", NULL, NULL, 0, 1, FTRL},
    {"fm", &interaction_fm, NULL, 0, 1, PLAIN},
    {"fm, lists", &interaction_fm, NULL, 0, 1, CLIPPED},
    {"fm, weights of pairs", &interaction_fm, NULL, 0, 1, PAIRS},
    {"fm, newton", &interaction_fm, NULL, 0, 1, NEWTON},
    {"mf", &interaction_fm, NULL, 0, 1, CENTERED},
    {"ffm", &interaction_ffm, NULL, 0, 1, 0},
    {"ffm, hidden", &interaction_ffm, NULL, 8, 1, 0},
    {"deepfm", &interaction_fm, NULL, 8, 1, 0},
    {"deepfm, batches", &interaction_fm, &network_deep, 8, 64, BATCHES},
    {"dcnv2, batches of 1", NULL, &network_cross, 8, 1, BATCHES},
    {"dlrm, batches", NULL, &network_dot, 8, 48, BATCHES},
    {"mmoe, batches", NULL, &network_experts, 8, 64, BATCHES},
    {"afm, batches", NULL, &network_attention, 8, 64, BATCHES},
};

static struct {
    uint64_t ids[FIELDS][TOTAL], list[TOTAL * LIST_IDS];
    uint32_t ends[TOTAL + 1];
    float dense[EVENT_DENSE][TOTAL], labels[TOTAL], more_labels[TOTAL], weights[TOTAL];
    int64_t times[TOTAL];
    uint64_t identity[TOTAL];
} all;
/* Logits by model_learn in calls of PERIOD events; by model_predict, event by event; and by model_learn after
 * it. */
static double learned[LABELS][TOTAL], predicted[LABELS][TOTAL], alone[LABELS][TOTAL];
static uint8_t verdicts[TOTAL];

/* One of `common` ids, or, three times of ten, one of `rare`. */
static uint64_t id_of(uint64_t random, uint64_t common, uint64_t rare)
{
    return 1 + (random % 10 < 7 ? random / 16 % common : common + random / 16 % rare);
}

static void make_events(void)
{
    for (uint64_t i = 0, n = 0; i < TOTAL; i++) {
        uint64_t random = num_mix(i + 1);
        all.ids[0][i] = id_of(num_mix(i * 8), 40, 300);
        all.ids[2][i] = id_of(num_mix(i * 8 + 2), 200, 1000000);
        all.ids[3][i] = random % 50 == 0 ? 0 : id_of(num_mix(i * 8 + 3), 20, 2000);
        all.ids[LIST][i] = id_of(num_mix(i * 8 + 1), 100, 5000);
        for (uint64_t k = 0; k < random / 64 % (LIST_IDS + 1); k++, n++)
            all.list[n] = k > 0 && num_mix(n) % 3 == 0 ? all.list[n - 1] : id_of(num_mix(~n), 300, 20000);
        all.ends[i + 1] = (uint32_t)n;
        all.dense[0][i] = (float)(random / 512 % 2048) / 1024.0F - 1.0F;
        all.dense[1][i] = (float)(num_mix(random) % 2048) / 1024.0F - 1.0F;
        all.labels[i] = random % 4096 == 5 ? NAN : (float)(num_mix(random + all.ids[0][i]) % 100 < 40);
        all.more_labels[i] = (float)(random / 4096 % 2);
        all.weights[i] = random % 97 == 0 ? 0.0F : 1.0F;
        all.times[i] = (int64_t)i * US_PER_SECOND;
        all.identity[i] = i;
    }
}

/* NORMAL: ids wait, rows are evicted. TIGHT: an event does not find room for all its new ids. WIDE: more rows
 * than one sweep looks at, so that look-ups meet expired rows. SHORT: rows of a block in progress expire, and
 * are met, in full tables, after its step. */
enum room { NORMAL, TIGHT, WIDE, SHORT };
static const struct {
    uint32_t admit_after, rows_max, expire_s, watermark_every, events;
} rooms[] = {{3, 150, 1500, PERIOD, TOTAL},
             {2, 4, 1500, PERIOD, TOTAL / 5},
             {1, 5000, 20000, 20 * PERIOD, TOTAL / 2},
             {1, 30, 5, PERIOD, TOTAL / 4}};

static struct model_options options_of(const struct kind *k, enum room room)
{
    struct model_options o = events_options(k->interaction, k->hidden);
    o.fields = FIELDS, o.vectors = k->interaction != NULL || k->network != NULL ? FIELDS : 0;
    o.network = k->network, o.network_own = events_network(k->network);
    o.linear_is_off = events_linear_is_off(k->network);
    o.labels = k->network == &network_experts ? LABELS : 1;
    o.is_list[LIST] = (k->is & PLAIN) == 0;
    o.list_max = LIST_IDS - 1;
    o.batch = k->batch;
    o.negatives_kept = 0.5;
    o.admit_after = rooms[room].admit_after, o.sketch_bytes = 4096, o.rows_max = rooms[room].rows_max;
    o.expire_after_us = rooms[room].expire_s * US_PER_SECOND;
    o.linear_is_double = (k->is & FTRL) != 0;
    o.ftrl = (struct ftrl64_params){.alpha = 0.1, .beta = 1.0, .l1 = 0.01, .l2 = 0.01};
    o.clip_norm = k->is & CLIPPED ? 0.5F : 0.0F;
    o.pairs = o.linear;
    o.pairs.params.rate = k->is & PAIRS ? 0.05F : 0.0F;
    if (k->is & NEWTON)
        o.linear.kind = o.embedding.kind = OPT_NEWTON, o.is_joint = true;
    if (k->is & CENTERED)
        o.loss = LOSS_SQUARED, o.is_centered = true, o.bias_start = 0.5F;
    return o;
}

/* Events begin..end of all, as a call's input. */
static void call(struct model *m, uint32_t begin, uint32_t end, bool teaches, double (*logits)[TOTAL])
{
    static double out[LABELS * MODEL_ROWS_MAX];
    const uint64_t *ids[FIELDS];
    const uint32_t *offsets[FIELDS] = {NULL};
    const float *dense[EVENT_DENSE], *more[] = {all.more_labels + begin};
    for (uint32_t f = 0; f < FIELDS; f++)
        ids[f] = all.ids[f] + begin;
    for (uint32_t d = 0; d < EVENT_DENSE; d++)
        dense[d] = all.dense[d] + begin;
    if (m->options.is_list[LIST])
        ids[LIST] = all.list, offsets[LIST] = all.ends + begin;
    struct model_input in = {.rows = end - begin,
                             .ids = ids,
                             .offsets = offsets,
                             .dense = dense,
                             .labels = all.labels + begin,
                             .more_labels = more,
                             .weights = all.weights + begin,
                             .event_time_us = all.times + begin,
                             .identity = all.identity + begin};
    if (teaches)
        model_learn(m, &in, &(struct model_output){.logits = out, .verdicts = verdicts + begin});
    else
        model_predict(m, &in, out);
    for (uint32_t l = 0; l < MAX(m->options.labels, 1U); l++)
        memcpy(logits[l] + begin, out + (size_t)l * MODEL_ROWS_MAX, (end - begin) * sizeof(**logits));
}

static void compare(const struct kind *k, const char *what, uint32_t events, double (*a)[TOTAL],
                    double (*b)[TOTAL])
{
    uint32_t labels = k->network == &network_experts ? LABELS : 1;
    for (uint32_t i = 0; i < events; i++) {
        for (uint32_t l = 0; l < labels && verdicts[i] != MODEL_REJECTED; l++)
            if (memcmp(&a[l][i], &b[l][i], sizeof(**a)) != 0)
                fail_msg("%s: %s: event %u, label %u, verdict %d: %.17g and %.17g", k->name, what, i, l,
                         verdicts[i], a[l][i], b[l][i]);
    }
}

/* That the events had every verdict, and that ids waited, expired and found no room. */
static void check_events(struct model *m, enum room room)
{
    size_t counts[MODEL_VERDICTS] = {0};
    struct table_stats sum = {0};
    for (uint32_t i = 0; i < rooms[room].events; i++)
        counts[verdicts[i]]++;
    for (size_t v = 0; v < MODEL_VERDICTS; v++)
        assert_true(counts[v] > 0);
    for (uint32_t f = 0; f < FIELDS; f++) {
        const struct table_stats *s = &model_table(m, f)->stats;
        sum.waiting += s->waiting, sum.evicted += s->evicted, sum.expired += s->expired;
        sum.refused += s->refused;
    }
    assert_true(room == WIDE || room == SHORT || sum.waiting > 1000);
    assert_true(room == SHORT || sum.evicted > 1000);
    assert_true(room == TIGHT || sum.expired > 1000);
    assert_true(room != TIGHT || sum.refused > 0 || !m->options.is_list[LIST]);
}

/* Predicts the events of the next period in one call, and then one by one, and compares. */
static void compare_together(struct model *m, uint32_t at)
{
    static double together[LABELS][TOTAL];
    call(m, at, at + PERIOD, false, together);
    for (uint32_t i = at; i < at + PERIOD; i++) {
        call(m, i, i + 1, false, predicted);
        assert_memory_equal(&together[0][i], &predicted[0][i], sizeof(**together));
    }
}

static void check(const struct kind *k, enum room room)
{
    struct model_options o = options_of(k, room);
    const struct kernels *kernels = kernels_pick(NULL, &(const char *){NULL});
    struct model *whole = model_new(&o, kernels), *single = model_new(&o, kernels);
    uint32_t events = rooms[room].events;
    for (uint32_t at = 0; at < events; at += PERIOD) {
        call(whole, at, at + PERIOD, true, learned);
        if (at % (10 * PERIOD) == 0)
            compare_together(single, at);
        for (uint32_t i = at; i < at + PERIOD; i++) {
            call(single, i, i + 1, false, predicted);
            call(single, i, i + 1, true, alone);
        }
        if (at % rooms[room].watermark_every == 0) {
            model_set_watermark(whole, all.times[at + PERIOD - 1]);
            model_set_watermark(single, all.times[at + PERIOD - 1]);
        }
    }
    compare(k, "learned in calls of 100 and of 1", events, learned, alone);
    compare(k, "predicted and learned", events, predicted, alone);
    assert_int_equal(events_digest(whole, FIELDS), events_digest(single, FIELDS));
    check_events(single, room);
    model_free(whole);
    model_free(single);
}

static void check_all(enum room room)
{
#ifdef __SANITIZE_ADDRESS__
    const size_t each = 3,
                 first = (size_t)room % each; /* a sanitizer takes four times as long: some kinds each */
#else
    const size_t each = 1, first = 0;
#endif
    for (size_t n = first; n < ARRAY_COUNT(kinds); n += each)
        check(&kinds[n], room);
}

static void test_predicted(void **state)
{
    (void)state;
    check_all(NORMAL);
}

static void test_predicted_without_room(void **state)
{
    (void)state;
    check_all(TIGHT);
}

static void test_predicted_beside_expired_rows(void **state)
{
    (void)state;
    check_all(WIDE);
}

static void test_predicted_after_rows_of_a_block_expired(void **state)
{
    (void)state;
    check_all(SHORT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_predicted),
                                       cmocka_unit_test(test_predicted_without_room),
                                       cmocka_unit_test(test_predicted_beside_expired_rows),
                                       cmocka_unit_test(test_predicted_after_rows_of_a_block_expired)};
    make_events();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
