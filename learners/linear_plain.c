/*
 * Models of weights with one float of state, a key a field, an update per event: rows lie in the tables'
 * slots (table.h), and one loop looks up, predicts and learns. The arithmetic and its order are those of
 * linear_forward and linear_update; the dense weights stay in the gathered array from event to event.
 *
 * Learning is a chain of dependent arithmetic from event to event, and looking up waits for memory; so slots
 * are asked for AHEAD events before they are needed. Rows move when others come or go, so they are found only
 * when their event's turn has come: what an event meets is what the events before it left.
 */
#include "learners/model_internal.h"
#include "learners/table_inline.h"

#include "core/base.h"

#include <math.h>
#include <stdlib.h>

enum { AHEAD = 12, TILE = 32, RING = 2 * TILE, ROW_BYTES = TABLE_ROW_HEADER + 2 * sizeof(float) };

/* A key, and the slot that its probe sequence began with when its tile was made ready. */
struct wanted {
    const unsigned char *home;
    uint64_t key;
};

/* What is made ready up to a tile ahead, in a ring of events. */
struct plain {
    uint32_t fields;
    size_t whole;                        /* lanes of the gathered arrays */
    float *values;                       /* [RING][whole]: what weights are multiplied with */
    unsigned char nobody[2 * ROW_BYTES]; /* where absent keys are at home: two rows of other keys */
    float *places[MODEL_FIELDS_MAX];     /* of the event in work */
    struct wanted wanted[];              /* [RING][fields] */
};

bool linear_is_plain(const struct model *m)
{
    bool has_list = memchr(m->options.is_list, 1, m->options.fields) != NULL;
    return m->vector_floats == 0 && !m->options.linear_is_double && m->linear_states == 1 && !has_list &&
           m->options.clip_norm == 0.0F && !m->options.is_joint && m->options.batch == 1 &&
           m->options.hidden[0] == 0;
}

struct plain *linear_plain_new(const struct model *m)
{
    size_t fields = m->options.fields, used = fields + m->options.dense + 1, whole = (used + 15) / 16 * 16;
    struct plain *p = calloc(1, sizeof *p + RING * fields * sizeof *p->wanted);
    leat_assert(p);
    p->fields = m->options.fields;
    p->whole = whole;
    p->values = calloc(RING * whole, sizeof *p->values);
    leat_assert(p->values);
    for (size_t i = 0; i < RING * whole; i++)
        p->values[i] = i % whole < fields || i % whole == used - 1 ? 1.0F : 0.0F;
    memset(p->nobody, 0xff, sizeof p->nobody);
    return p;
}

void linear_plain_free(struct plain *p)
{
    if (p)
        free(p->values);
    free(p);
}

static void make_ready(const struct model *m, const struct call *c, struct plain *p, uint32_t first)
{
    uint32_t count = MIN((uint32_t)TILE, c->in->rows - MIN(first, c->in->rows));
    uint64_t hashes[TILE];
    for (uint32_t f = 0; f < p->fields && count > 0; f++) {
        const struct table *t = &m->tables[f];
        const uint64_t *ids = c->in->ids[f] + first;
        struct wanted *wanted = p->wanted + first % RING * p->fields + f;
        m->k->mix_keys(hashes, ids, t->options.seed, count);
        for (uint32_t i = 0; i < count; i++, wanted += p->fields) {
            wanted->home = ids[i] != 0
                               ? table_page(t, hashes[i], ROW_BYTES) + table_home(true, hashes[i]) * ROW_BYTES
                               : p->nobody;
            wanted->key = ids[i];
        }
    }
    float *values = p->values + first % RING * p->whole + p->fields;
    for (uint32_t i = 0; i < count; i++, values += p->whole) {
        for (uint32_t d = 0; d < m->options.dense; d++)
            values[d] = c->in->dense[d][first + i];
    }
}

static inline void ask(const struct plain *p, uint32_t i)
{
    const struct wanted *wanted = p->wanted + i % RING * p->fields;
    for (uint32_t f = 0; f < p->fields; f++)
        prefetch_line(wanted[f].home);
}

/* A key that is neither in its home nor beside it, if it ever was: pages may have split since. */
static struct table_row *find_far(struct model *m, const struct call *c, uint32_t f, uint64_t key, uint32_t i)
{
    struct table *t = &m->tables[f];
    return key == 0
               ? NULL
               : table_sight(t, key, table_hash(t, key), c->steps[i], c->learns[i], false, true, ROW_BYTES);
}

/* The weights of an event's keys; whether some have none. is_eager: headers decide who goes. */
static inline bool find(struct model *m, const struct call *c, struct plain *p, uint32_t i, bool is_eager)
{
    const struct wanted *wanted = p->wanted + i % RING * p->fields;
    float *values = p->values + i % RING * p->whole;
    uint32_t seen = c->seen[i], step = c->steps[i];
    bool learns = c->learns[i], has_absent = false;
    for (uint32_t f = 0; f < p->fields; f++) {
        const unsigned char *home = wanted[f].home;
        uint64_t key = wanted[f].key, beside;
        memcpy(&beside, home + ROW_BYTES, sizeof beside);
        home += beside == key ? ROW_BYTES : 0;
        struct table_row *row = (struct table_row *)(uintptr_t)home;
        if (unlikely(row->key != key) || (is_eager && table_is_expired(&m->tables[f], row)))
            row = find_far(m, c, f, key, i);
        if (unlikely(row == NULL)) {
            values[f] = 0.0F;
            p->places[f] = m->absent;
            has_absent = true;
            continue;
        }
        if (learns)
            table_touch(&m->tables[f], row, seen, step);
        p->places[f] = table_payload(row);
    }
    return has_absent;
}

/* Slope and curvature at the logit, into the step to make; false if the event is rejected. */
static inline bool judge_logit(const struct model *m, const struct call *c, uint32_t i, double logit,
                               struct opt_row *row)
{
    double label = (double)c->in->labels[i], p = logit;
    float weight = c->in->weights ? c->in->weights[i] : 1.0F;
    if (m->options.loss == LOSS_LOGISTIC) {
        p = m->k->sigmoid_one(logit);
        weight *= m->options.class_weights[label > 0.5];
    }
    double slope = (p - label) * (double)weight;
    double curvature = m->options.loss == LOSS_LOGISTIC ? p * (1.0 - p) : 1.0;
    row->scale = (float)slope;
    row->curvature = (float)(curvature * (double)weight);
    bool is_good = isfinite(logit) && isfinite(slope) && c->out->verdicts[i] != MODEL_REJECTED;
    c->out->logits[i] = is_good ? logit + c->correction : (double)NAN;
    if (!is_good)
        c->out->verdicts[i] = MODEL_REJECTED;
    return is_good;
}

static inline void learn(struct model *m, struct call *c, bool is_eager)
{
    struct plain *p = m->plain;
    size_t whole = p->whole;
    float *w = m->examples[0].weights;
    for (uint32_t i = 0; i < c->in->rows; i++) {
        if (i % TILE == 0)
            make_ready(m, c, p, i + TILE);
        if (i + AHEAD < c->in->rows)
            ask(p, i + AHEAD);
        bool has_absent = find(m, c, p, i, is_eager);
        struct opt_row row = {.w = w, .g = p->values + i % RING * whole};
        double logit =
            (double)m->k->pairs_dot(w, p->places, row.g, p->fields, whole) + (double)m->options.bias;
        bool is_good = judge_logit(m, c, i, logit, &row);
        m->steps += c->learns[i];
        if (is_good && c->learns[i]) {
            m->linear_step(&row, 1, whole, &m->options.linear.params);
            m->k->pairs_store(p->places, w, p->fields, whole);
        }
        for (uint32_t f = 0; f < p->fields && has_absent; f++)
            ((float *)row.g)[f] = 1.0F;
    }
}

void linear_learn_plain(struct model *m, struct call *c)
{
    struct plain *p = m->plain;
    float *w = m->examples[0].weights;
    for (size_t i = 0; i < p->whole; i++)
        w[i] = 0.0F, w[p->whole + i] = 1.0F;
    linear_move_dense(m, w + p->fields, p->whole, true);
    make_ready(m, c, p, 0);
    for (uint32_t i = 0; i < MIN((uint32_t)AHEAD, c->in->rows); i++)
        ask(p, i);
    if (p->fields > 0 && table_is_eager(&m->tables[0]))
        learn(m, c, true);
    else
        learn(m, c, false);
    linear_move_dense(m, w + p->fields, p->whole, false);
}
