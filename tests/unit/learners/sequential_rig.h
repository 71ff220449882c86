/* Models of learners/sequential for tests: options, random events of few users and items, calls of random sizes, and
 * checkpoints and cuts in memory. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_SEQUENTIAL_RIG_H
#define LEAT_TESTS_UNIT_LEARNERS_SEQUENTIAL_RIG_H

#include "learners/networks/networks.h"
#include "learners/sequential/internal.h"
#include "learners/stored/stored.h"
#include "memory_checkpoint.h"

#include "core/mem.h"
#include "kernels/num.h"
#include "unit/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { RIG_DIM = 16, RIG_USERS = 12, RIG_ITEMS = 40, RIG_VALUES = 5, RIG_BLOCK = 50 };

static struct sasrec_network rig_sasrec = {
    .layers = 1, .heads = 1, .dim = RIG_DIM, .hidden = RIG_DIM, .is_causal = true};
static struct hstu_network rig_hstu = {.layers = 1, .heads = 1, .dim = RIG_DIM};

/* A case: what differs from rig_options' usual model. */
struct rig_case {
    const char *name, *loss;
    bool is_hstu, has_marks;
    enum opt_kind rows, dense;
    uint32_t history, sides, contexts, batch, rehearse;
    int64_t negatives;
    float clip_norm, dropout;
    double masked_share; /* with has_marks, a fifth of the events have no label */
    int64_t expire_after_us;
    uint32_t items_max;
    uint32_t users;     /* with keys from 1 on, as fake_cold.h takes them; 0: RIG_USERS, with other keys */
    uint32_t pass_rows; /* tokens that go through the network together; 0: as usual */
};

static inline struct optimizer_options rig_optimizer(enum opt_kind kind)
{
    return (struct optimizer_options){.kind = kind,
                                      .params = {.rate = 0.002F,
                                                 .epsilon = 1e-3F,
                                                 .decay = 1.0F,
                                                 .beta1 = 0.9F,
                                                 .beta2 = 0.99F,
                                                 .step_max = 1.0F},
                                      .accumulator = 0.1F};
}

static inline struct sequential_options rig_options(const struct rig_case *of)
{
    rig_sasrec.dropout = rig_sasrec.attention_dropout = of->dropout;
    rig_hstu.dropout = rig_hstu.attention_dropout = of->dropout;
    return (struct sequential_options){
        .kernels = kernels_pick(NULL, &(const char *){NULL}),
        .network = of->is_hstu ? &network_hstu : &network_sasrec,
        .network_own = of->is_hstu ? (const void *)&rig_hstu : (const void *)&rig_sasrec,
        .dim = RIG_DIM,
        .history = of->history,
        .sides = of->sides,
        .contexts = of->contexts,
        .batch = of->batch,
        .rehearse = of->rehearse,
        .marks = of->has_marks,
        .masked_share = of->masked_share,
        .masked_weight = of->masked_share > 0.0 ? 0.5 : 0.0,
        .clip_norm = of->clip_norm,
        .init = 0.3F,
        .rows = rig_optimizer(of->rows),
        .dense = rig_optimizer(of->dense),
        .loss = losses_find(str_from(of->loss)),
        .losses = {.temperature = 1.0, .negatives = of->negatives, .correct = true},
        .items_max = of->items_max > 0 ? of->items_max : 1 << 20,
        .expire_after_us = of->expire_after_us,
        .shards = 1,
        .seed = 11};
}

/* --- Events --- */

static inline struct items_value rig_value(uint64_t space, uint32_t number)
{
    return (struct items_value){.key = num_mix(space * 1000 + number + 1), .integer = number};
}

/* Event number `number` of a stream: a function of it alone. Popular items come more often; an event in eight does not
 * teach; values are missing now and then. */
static inline struct sequential_event rig_event(const struct rig_case *of, uint64_t number)
{
    struct test_random random = {number * 7919 + 3};
    uint32_t user = random_below(&random, of->users > 0 ? of->users : RIG_USERS);
    struct sequential_event e = {.user = of->users > 0 ? 1 + user : num_mix(1 + user),
                                 .time_us = (int64_t)(1000 + number * 10) * US_PER_SECOND,
                                 .identity = num_mix(number + 77)};
    if (of->expire_after_us > 0 && random_chance(&random, 5)) /* it comes so late that its user has expired */
        e.time_us = MAX(e.time_us - 2 * of->expire_after_us, (int64_t)0);
    uint32_t most = 3 + (uint32_t)MIN(number / 4, (uint64_t)RIG_ITEMS - 3);
    e.item = rig_value(1, random_below(&random, 1 + random_below(&random, most)));
    e.teaches = !(of->has_marks && random_chance(&random, 12));
    for (uint32_t k = 0; k < of->sides; k++)
        if (!random_chance(&random, 10))
            e.sides[k] = rig_value(10 + k, random_below(&random, RIG_VALUES));
    for (uint32_t k = 0; k < of->contexts; k++)
        if (!random_chance(&random, 10))
            e.contexts[k] = rig_value(20 + k, random_below(&random, RIG_VALUES));
    e.is_unlabelled = e.teaches && of->has_marks && of->masked_share > 0.0 && random_chance(&random, 20);
    return e;
}

/* --- Calls --- */

/* Hashes of what was known of each event, and of the whole model's weights at the end. */
static inline uint64_t rig_hash(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static inline uint64_t rig_seen_hash(uint64_t hash, const struct sequential_seen *seen, uint32_t dim)
{
    uint32_t facts[] = {seen->length, seen->is_known, seen->query != NULL, seen->history_length};
    hash = rig_hash(hash, facts, sizeof(facts));
    if (seen->query != NULL)
        hash = rig_hash(hash, seen->query, dim * sizeof(float));
    return rig_hash(hash, seen->history, seen->history_length * sizeof(*seen->history));
}

/* Gives events from .. to - 1 in calls of up to `most` (0: as many as fit; UINT32_MAX: random sizes). Returns the hash of
 * what was known before each. */
static inline uint64_t rig_feed(struct sequential *s, const struct rig_case *of, uint64_t from, uint64_t to,
                                uint32_t most, uint64_t hash)
{
    static struct sequential_event events[SEQUENTIAL_CALL_MAX];
    static struct sequential_seen seen[SEQUENTIAL_CALL_MAX];
    static uint8_t wants[SEQUENTIAL_CALL_MAX];
    struct test_random random = {from + 5};
    memset(wants, 1, sizeof(wants));
    while (from < to) {
        uint32_t n = (uint32_t)MIN(to - from, (uint64_t)SEQUENTIAL_CALL_MAX);
        uint32_t size = most == UINT32_MAX ? 1 + random_below(&random, 12) : most;
        n = size > 0 ? MIN(n, size) : n;
        for (uint32_t i = 0; i < n; i++)
            events[i] = rig_event(of, from + i);
        n = sequential_piece(s, events, n);
        assert_true(n > 0);
        sequential_read(s, events, n, wants, seen);
        for (uint32_t i = 0; i < n; i++)
            hash = rig_seen_hash(hash, &seen[i], s->options.dim);
        sequential_take(s);
        from += n;
    }
    return hash;
}

/* The same in blocks of RIG_BLOCK events, as micro-batches are: behind each the watermark follows. */
static inline uint64_t rig_run(struct sequential *s, const struct rig_case *of, uint64_t from, uint64_t to,
                               uint32_t most, uint64_t hash)
{
    for (; from < to; from += RIG_BLOCK) {
        hash = rig_feed(s, of, from, from + RIG_BLOCK, most, hash);
        sequential_set_watermark(s, (int64_t)(1000 + (from + RIG_BLOCK) * 10) * US_PER_SECOND);
    }
    return hash;
}

static inline uint64_t rig_rows_hash(uint64_t hash, struct catalogue *c, bool with_state)
{
    uint32_t used = catalogue_used(c), dim = RIG_DIM;
    for (uint32_t i = 0; c != NULL && i < used; i++)
        if (catalogue_rows(c)[i] != NULL)
            hash = rig_hash(rig_hash(hash, &i, sizeof(i)), catalogue_rows(c)[i],
                            (with_state ? 3 : 1) * dim * sizeof(float));
    return hash;
}

/* All that a model has learned. with_state: the optimizer's state, too; the rows have one of two vectors (adam). */
static inline uint64_t rig_model_hash(struct sequential *s, bool with_state)
{
    uint64_t hash = 5;
    for (uint32_t p = 0; p < s->net.params_count; p++) {
        const struct net_params *of = &s->net.params[p];
        hash = rig_hash(hash, of->w, of->floats * sizeof(float));
        if (with_state)
            hash = rig_hash(hash, of->state, of->floats * sizeof(float));
    }
    with_state &= s->options.rows.kind == OPT_ADAM;
    hash = rig_rows_hash(hash, s->items, with_state);
    for (uint32_t k = 0; k < s->options.sides; k++)
        hash = rig_rows_hash(hash, s->sides[k], with_state);
    for (uint32_t k = 0; k < s->options.contexts; k++)
        hash = rig_rows_hash(hash, s->contexts[k], with_state);
    if (s->masks.row != NULL)
        hash = rig_hash(hash, s->masks.row, with_state ? s->masks.row_bytes : RIG_DIM * sizeof(float));
    struct sequential_counts counts = sequential_counts(s);
    struct histories_counts histories = histories_count(s->histories);
    uint64_t facts[] = {counts.steps,    counts.targets,    counts.rejected, counts.pending,
                        histories.users, histories.entries, counts.masked};
    hash = rig_hash(hash, facts, sizeof(facts));
    hash = rig_hash(hash, &counts.masked_loss, sizeof(counts.masked_loss));
    return rig_hash(hash, &counts.loss, sizeof(counts.loss));
}

/* --- Whole runs --- */

/* Everything at once: marks, values beside items, contexts, older windows, hidden items, events without a label, dropout,
 * users and items that expire. */
static const struct rig_case rig_all = {.name = "all",
                                        .loss = "sampled_softmax",
                                        .has_marks = true,
                                        .rows = OPT_ADAM,
                                        .dense = OPT_ADAM,
                                        .history = 9,
                                        .sides = 2,
                                        .contexts = 2,
                                        .batch = 7,
                                        .rehearse = 2,
                                        .negatives = 6,
                                        .clip_norm = 1.0F,
                                        .dropout = 0.2F,
                                        .masked_share = 0.3,
                                        .expire_after_us = 900 * US_PER_SECOND};

struct rig_result {
    uint64_t seen, model;
};

static inline struct rig_result rig_whole(const struct sequential_options *options, const struct rig_case *of,
                                          uint64_t events, uint32_t most, struct team *team)
{
    struct sequential *s = sequential_new(options);
    sequential_set_team(s, team);
    struct rig_result r = {.seen = rig_run(s, of, 0, events, most, 1)};
    r.model = rig_model_hash(s, true);
    assert_true(sequential_counts(s).steps > 3);
    sequential_free(s);
    return r;
}

static inline void rig_assert_same(struct rig_result a, struct rig_result b)
{
    assert_int_equal(a.seen, b.seen);
    assert_int_equal(a.model, b.model);
}

/* --- Checkpoints and cuts --- */

static inline void rig_store(struct stored *stored, struct sequential *s)
{
    struct table *tables[STORED_TABLES_MAX];
    struct stored_part parts[STORED_PARTS_MAX];
    uint32_t count = sequential_parts(s, parts);
    assert_true(count <= STORED_PARTS_MAX - 2);
    stored_init(stored, tables, sequential_tables(s, tables), parts, count);
}

/* A checkpoint of the model as it is now; the caller frees it with checkpoint_free. */
static inline struct snapshot_writer rig_save(struct stored *stored, uint64_t epoch, bool is_base)
{
    struct snapshot_writer w = {.epoch = epoch, .is_base = is_base};
    assert_true(stored_snapshot(stored, &w));
    finish(&w, true);
    stored_settle(stored, false);
    return w;
}

/* A new model of a base and, unless NULL, a delta. */
static inline struct sequential *rig_restored(const struct sequential_options *options, struct stored *stored,
                                              const struct snapshot_writer *base,
                                              const struct snapshot_writer *delta)
{
    struct sequential *s = sequential_new(options);
    struct snapshot_reader reader = {.parts = {base, delta}};
    struct operator_context context = {0};
    rig_store(stored, s);
    assert_true(stored_restore(stored, &context, &reader));
    assert_null(sequential_check(s));
    return s;
}

#endif
