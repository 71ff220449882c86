/* Events for the learners' tests: follow from a counter alone; ids and a dense feature partly
 * explain the labels. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_EVENTS_H
#define LEAT_TESTS_UNIT_LEARNERS_EVENTS_H

#include "learners/model/model.h"
#include "learners/networks/networks.h"

#include "kernels/num.h"

#include <stdlib.h>
#include <string.h>

enum { EVENTS_MAX = 6000, EVENT_FIELDS = 3, EVENT_DENSE = 2 };

struct events {
    uint64_t ids[EVENT_FIELDS][EVENTS_MAX];
    float dense[EVENT_DENSE][EVENTS_MAX];
    /* more_labels: the second label of models that have two. */
    float labels[EVENTS_MAX], more_labels[EVENTS_MAX];
    int64_t times[EVENTS_MAX];
    uint64_t identity[EVENTS_MAX];
};

/* The same events as in ftrl_reference.py. */
static inline void events_make(struct events *e)
{
    for (uint64_t i = 0; i < EVENTS_MAX; i++) {
        for (uint64_t f = 0; f < EVENT_FIELDS; f++)
            e->ids[f][i] = 1 + num_mix(i * 8 + f) % (5 + 300 * f);
        for (uint64_t d = 0; d < EVENT_DENSE; d++)
            e->dense[d][i] = (float)(num_mix(i * 8 + 4 + d) % 2048) / 1024.0F - 1.0F;
        double rate = 20.0 + 8.0 * (double)(e->ids[0][i] % 5) + 10.0 * (double)e->dense[0][i];
        e->labels[i] = (double)(num_mix(i * 8 + 7) % 100) < rate ? 1.0F : 0.0F;
        e->more_labels[i] = e->ids[1][i] % 4 == 0 ? 1.0F : e->labels[i];
        e->times[i] = (int64_t)i * 1000000;
        e->identity[i] = i;
    }
}

/* Learns events begin..end in calls of `chunk` events; writes their logits and verdicts at
 * the events' places. */
static inline void events_learn(const struct events *e, struct model *model, uint32_t begin, uint32_t end,
                                uint32_t chunk, double *logits, uint8_t *verdicts)
{
    for (uint32_t at = begin; at < end; at += chunk) {
        const uint64_t *ids[EVENT_FIELDS];
        const float *dense[EVENT_DENSE], *more[] = {e->more_labels + at};
        for (int f = 0; f < EVENT_FIELDS; f++)
            ids[f] = e->ids[f] + at;
        for (int d = 0; d < EVENT_DENSE; d++)
            dense[d] = e->dense[d] + at;
        struct model_input in = {.rows = end - at < chunk ? end - at : chunk,
                                 .ids = ids,
                                 .dense = dense,
                                 .labels = e->labels + at,
                                 .more_labels = more,
                                 .event_time_us = e->times + at,
                                 .identity = e->identity + at};
        struct model_output out = {.logits = logits + at, .verdicts = verdicts + at};
        model_learn(model, &in, &out);
    }
}

/* Small options of a network's own; NULL: the network has none. */
static inline const void *events_network(const struct network *network)
{
    static const struct cross_network cross = {.layers = 2};
    static const struct dot_network dot = {.bottom = {6}};
    static const struct experts_network experts = {.experts = 3, .towers = {6}};
    static const struct attention_network attention = {.width = 8};
    return network == &network_cross       ? (const void *)&cross
           : network == &network_dot       ? (const void *)&dot
           : network == &network_experts   ? (const void *)&experts
           : network == &network_attention ? (const void *)&attention
                                           : NULL;
}

/* Whether models of the network have no linear weights. NULL: false. */
static inline bool events_linear_is_off(const struct network *network)
{
    return network_needs_batches(network) && network != &network_attention;
}

static inline struct model_options events_options(const struct interaction *interaction, uint32_t hidden)
{
    struct optimizer_options adagrad = {
        .kind = OPT_ADAGRAD,
        .params = {.rate = 0.1F, .decay = 1.0F, .step_max = 1.0F},
        .accumulator = 1.0F,
    };
    return (struct model_options){.interaction = interaction,
                                  .fields = EVENT_FIELDS,
                                  .vectors = EVENT_FIELDS,
                                  .dense = EVENT_DENSE,
                                  .dim = 8,
                                  .init_bound = 0.2F,
                                  .linear = adagrad,
                                  .embedding = adagrad,
                                  .head = adagrad,
                                  .hidden = {hidden},
                                  .block = hidden ? 16 : 1,
                                  .batch = 1,
                                  .class_weights = {1.0F, 1.0F},
                                  .negatives_kept = 1.0,
                                  .seed = 5};
}

/* Restores blocks of a sketch; argument: the table. Returns false if a block is refused. */
static inline bool events_restore_counts(void *argument, const void *items, size_t count)
{
    struct table *t = argument;
    const struct sketch_block *blocks = items;
    for (size_t i = 0; i < count; i++)
        if (!sketch_restore(&t->sketch, &blocks[i]))
            return false;
    return true;
}

/* A digest of all rows sorted by key, of the sketches and of the dense weights: equal models
 * have equal digests. */
static inline uint64_t events_mix(uint64_t digest, const void *bytes, size_t count)
{
    const uint32_t *words = bytes;
    for (size_t w = 0; w < count / 4; w++)
        digest = num_mix(digest ^ words[w]);
    return digest;
}

/* only_read: of payloads what predictions read, which cuts have. */
static inline uint64_t events_digest_of(struct model *model, uint32_t fields, bool only_read)
{
    uint64_t digest = 0;
    for (uint32_t f = 0; f < fields; f++) {
        const struct table *t = model_table(model, f);
        size_t count;
        struct table_row **rows = table_sorted(t, &count);
        for (size_t i = 0; i < count; i++) {
            const char *payload = (const char *)table_payload(rows[i]);
            digest = num_mix(digest ^ rows[i]->key) + rows[i]->count * 31 + rows[i]->seen;
            digest =
                events_mix(digest, payload, only_read ? t->options.read_first : t->options.payload_bytes);
            digest = events_mix(digest, payload + t->options.read_at, only_read ? t->options.read_bytes : 0);
        }
        free(rows);
        for (size_t i = 0; t->sketch.counts != NULL && i < sketch_blocks(&t->sketch) * SKETCH_BLOCK; i++)
            digest = digest * 31 + t->sketch.counts[i];
    }
    size_t count;
    const float *dense = model_dense_weights(model, &count);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &dense[i], sizeof(bits));
        digest = num_mix(digest ^ bits);
    }
    return digest;
}

static inline uint64_t events_digest(struct model *model, uint32_t fields)
{
    return events_digest_of(model, fields, false);
}

#endif
