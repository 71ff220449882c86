/*
 * A faster loop for the simplest models (linear_is_plain): only linear weights, one float of optimizer state
 * for each, one key a field, one step for each event. The rows of such tables lie in the slots of the hash
 * table (table.h). One loop looks an event's rows up, predicts and learns. Its arithmetic, in the same order,
 * is that of linear_forward and linear_update. The dense weights stay in the gathered array for the whole
 * call.
 *
 * Each event's arithmetic needs the result of the event before, and look-ups wait for memory. So the slots of
 * an event are prefetched AHEAD events before its turn. The rows are looked up only at its turn, because a
 * row may move when another row is added or removed: an event sees the table as the events before it left it.
 */
#include "learners/model/internal.h"
#include "learners/tables/inline.h"

#include "core/base.h"
#include "core/mem.h"

#include <math.h>
#include <stdlib.h>

enum { AHEAD = 12, TILE = 32, RING = 2 * TILE, ROW_BYTES = TABLE_ROW_HEADER + 2 * sizeof(float) };

/* A key to look up, and its home slot: where the key's probe sequence began when make_ready computed it. */
struct wanted {
    const unsigned char *home;
    uint64_t key;
};

/* Keys and inputs of RING events: those of the current tile and the next one. Owned by the model. */
struct plain {
    uint32_t fields;
    size_t whole;                        /* weights of an event, rounded up to a multiple of 16 */
    float *values;                       /* [RING][whole] the input that each weight is multiplied with */
    unsigned char nobody[2 * ROW_BYTES]; /* home slot of key 0 and the slot behind it */
    float spare[2];                      /* weight and state behind the last field, for kernels */
    float *places[MODEL_FIELDS_MAX];     /* weights of the current event, each followed by its state */
    uint32_t epoch;                      /* the current epoch of all tables */
    struct wanted wanted[];              /* [RING][fields] */
};

bool linear_is_plain(const struct model *m)
{
    bool has_list = memchr(m->options.is_list, 1, m->options.fields) != NULL;
    return m->vector_floats == 0 && !m->options.linear_is_double && m->linear_states == 1 && !has_list &&
           m->options.clip_norm == 0.0F && !m->options.is_joint && m->options.batch == 1 &&
           m->options.hidden[0] == 0 && !m->options.has_fake_negatives;
}

struct plain *linear_plain_new(const struct model *m)
{
    size_t fields = m->options.fields, used = fields + m->options.dense + 1, whole = (used + 15) / 16 * 16;
    struct plain *p = mem_calloc(1, sizeof(*p) + RING * fields * sizeof(*p->wanted));
    p->fields = m->options.fields;
    p->whole = whole;
    p->values = mem_calloc(RING * whole, sizeof(*p->values));
    for (size_t i = 0; i < RING * whole; i++)
        p->values[i] = i % whole < fields || i % whole == used - 1 ? 1.0F : 0.0F;
    memset(p->nobody, 0xff, sizeof(p->nobody));
    for (size_t f = fields; f < MODEL_FIELDS_MAX; f++)
        p->places[f] = p->spare;
    return p;
}

void linear_plain_free(struct plain *p)
{
    if (p)
        free(p->values);
    free(p);
}

/* Writes the keys, home slots and dense inputs of the TILE events from `first` on, or as many as the call
 * has, into the ring. */
static void make_ready(const struct model *m, const struct call *c, struct plain *p, uint32_t first)
{
    uint32_t count = MIN((uint32_t)TILE, c->in->rows - MIN(first, c->in->rows)), fields = p->fields;
    uint64_t hashes[TILE];
    for (uint32_t f = 0; f < fields && count > 0; f++) {
        const struct table *t = &m->tables[f];
        const uint64_t *ids = c->in->ids[f] + first;
        struct wanted *wanted = p->wanted + first % RING * fields + f;
        m->k->mix_keys(hashes, ids, t->options.seed, count);
        struct table_place place = table_place_of(t);
        for (uint32_t i = 0; i < count; i++, wanted += fields) {
            const unsigned char *home = table_place_home(&place, hashes[i], ROW_BYTES);
            *wanted = (struct wanted){.home = ids[i] != 0 ? home : p->nobody, .key = ids[i]};
        }
    }
    float *values = p->values + first % RING * p->whole + p->fields;
    for (uint32_t i = 0; i < count; i++, values += p->whole) {
        for (uint32_t d = 0; d < m->options.dense; d++)
            values[d] = c->in->dense[d][first + i];
    }
}

/* Prefetches the home slots of event i. Behind the last event of the call, the ring holds addresses of
 * earlier events or NULL; prefetching these does no harm. */
static inline void ask(const struct plain *p, uint32_t i)
{
    const struct wanted *wanted = p->wanted + i % RING * p->fields;
    for (uint32_t f = 0; f < p->fields; f++)
        prefetch_line(wanted[f].home);
}

/* Returns the row of event i's key in field f, for a key that find_near did not find or whose row has
 * expired. Computes the hash again, as pages of the table may have split since the home slot was computed.
 * Adds a row if the event learns and the key is admitted. NULL: the key is 0 or has no row. */
static struct table_row *find_far(struct model *m, const struct call *c, uint32_t f, uint64_t key, uint32_t i)
{
    struct table *t = &m->tables[f];
    return key == 0
               ? NULL
               : table_find_or_admit(t, key, table_hash(t, key), c->steps[i], c->learns[i], true, ROW_BYTES);
}

/* Returns the row of a key if it lies in the key's home slot or in the next slot; else NULL. */
static inline struct table_row *find_near(const struct wanted *wanted)
{
    const unsigned char *home = wanted->home;
    uint64_t beside;
    memcpy(&beside, home + ROW_BYTES, sizeof(beside));
    home += beside == wanted->key ? ROW_BYTES : 0;
    struct table_row *row = (struct table_row *)(uintptr_t)home;
    return likely(row->key == wanted->key) ? row : NULL;
}

/* For a key of event i in field f that has no row: sets the event's input to 0, and returns a weight that
 * stands for the missing one. learn() sets the input to 1 again. */
static inline float *without(const struct model *m, struct plain *p, uint32_t f, uint32_t i)
{
    p->values[i % RING * p->whole + f] = 0.0F;
    return m->absent;
}

/* Sets p->places to the weights of event i's keys, and counts the occurrences in the rows' headers if the
 * event learns. Returns whether a key has no row. For tables whose row headers decide which rows are
 * removed (table_is_eager), and for events that do not learn. */
static bool find_slowly(struct model *m, const struct call *c, struct plain *p, uint32_t i)
{
    const struct wanted *wanted = p->wanted + i % RING * p->fields;
    bool has_absent = false;
    ask(p, i + AHEAD);
    for (uint32_t f = 0; f < p->fields; f++) {
        struct table *t = &m->tables[f];
        struct table_row *row = find_near(&wanted[f]);
        if (row == NULL || table_is_expired(t, row))
            row = find_far(m, c, f, wanted[f].key, i);
        if (row != NULL && c->learns[i])
            table_touch(t, row, c->seen[i], c->steps[i], 1);
        has_absent |= row == NULL;
        p->places[f] = row != NULL ? table_payload(row) : without(m, p, f, i);
    }
    return has_absent;
}

/*
 * As find_slowly, for an event that learns, in tables whose row headers decide nothing. The first loop finds
 * the keys in their home slot or the next one, and prefetches a slot of a later event for each. Its
 * iterations do not depend on each other, so the CPU fetches several rows at once. The second loop finds or
 * adds the other rows. Adding a row moves only rows of the same table, in which the event has no other key.
 */
static inline bool find(struct model *m, const struct call *c, struct plain *p, uint32_t i)
{
    const struct wanted *wanted = p->wanted + i % RING * p->fields;
    const struct wanted *ahead = p->wanted + (i + AHEAD) % RING * p->fields;
    uint32_t seen = c->seen[i], step = c->steps[i], fields = p->fields, epoch = p->epoch;
    uint64_t others = 0;
    bool has_absent = false;
    for (uint32_t f = 0; f < fields; f++) {
        prefetch_line(ahead[f].home);
        struct table_row *row = find_near(&wanted[f]);
        if (unlikely(row == NULL || row->epoch != epoch)) {
            others |= UINT64_C(1) << f;
            continue;
        }
        table_touch_again(row, seen, step, 1);
        p->places[f] = table_payload(row);
    }
    for (; others != 0; others &= others - 1) {
        uint32_t f = (uint32_t)__builtin_ctzll(others);
        struct table_row *row = find_near(&wanted[f]);
        row = row == NULL ? find_far(m, c, f, wanted[f].key, i) : row;
        if (row != NULL)
            table_touch(&m->tables[f], row, seen, step, 1);
        has_absent |= row == NULL;
        p->places[f] = row != NULL ? table_payload(row) : without(m, p, f, i);
    }
    return has_absent;
}

/* Predicts and learns one event as the kernel pairs_adagrad does, in separate calls, for all other
 * optimizers. Returns the logit; NaN if the logit or its gradient is not finite, and then changes no
 * weight. */
static double step(struct model *m, const struct plain *p, const float *values, const struct pairs_event *e)
{
    float *w = m->examples[0].weights;
    double logit = (double)m->k->pairs_dot(w, p->places, values, p->fields, p->whole) + e->bias;
    double guess = e->is_logistic ? m->k->sigmoid_one(logit) : logit;
    double gradient = (guess - (double)e->label) * (double)e->weight;
    double curvature = e->is_logistic ? guess * (1.0 - guess) : 1.0;
    struct opt_row row = {.w = w,
                          .state = w + p->whole,
                          .g = values,
                          .scale = (float)gradient,
                          .curvature = (float)(curvature * (double)e->weight)};
    if (!isfinite(logit) || !isfinite(gradient))
        return (double)NAN;
    if (e->learns) {
        m->linear_step(&row, 1, p->whole, &m->options.linear.params);
        m->k->pairs_store(p->places, w, p->fields, p->whole);
    }
    return logit;
}

static inline struct pairs_event event_at(const struct model *m, const struct call *c, uint32_t i)
{
    bool is_logistic = m->options.loss == LOSS_LOGISTIC;
    float weight = c->in->weights ? c->in->weights[i] : 1.0F;
    return (struct pairs_event){
        .bias = (double)m->options.bias,
        .label = c->in->labels[i],
        .weight = is_logistic ? weight * m->options.class_weights[c->in->labels[i] > 0.5F] : weight,
        .is_logistic = is_logistic,
        .learns = c->learns[i] && c->out->verdicts[i] != MODEL_REJECTED,
    };
}

static inline void learn(struct model *m, struct call *c, bool is_eager)
{
    struct plain *p = m->plain;
    float *w = m->examples[0].weights;
    bool is_adagrad = m->options.linear.kind == OPT_ADAGRAD;
    for (uint32_t i = 0; i < c->in->rows; i++) {
        if (i % TILE == 0)
            make_ready(m, c, p, i + TILE);
        bool has_absent = is_eager || !c->learns[i] ? find_slowly(m, c, p, i) : find(m, c, p, i);
        float *values = p->values + i % RING * p->whole;
        struct pairs_event e = event_at(m, c, i);
        double logit = is_adagrad ? m->k->pairs_adagrad(w, p->places, values, p->fields, p->whole, &e,
                                                        &m->options.linear.params)
                                  : step(m, p, values, &e);
        if (isnan(logit) || c->out->verdicts[i] == MODEL_REJECTED)
            logit = (double)NAN, c->out->verdicts[i] = MODEL_REJECTED;
        c->out->logits[i] = logit + c->correction;
        m->steps += c->learns[i];
        for (uint32_t f = 0; f < p->fields && has_absent; f++)
            values[f] = 1.0F;
    }
}

/* Returns the epoch of the tables: all tables begin their epochs together, at checkpoints. */
static uint32_t epoch_of_all(const struct model *m)
{
    for (uint32_t f = 1; f < m->options.fields; f++)
        leat_assert(m->tables[f].epoch == m->tables[0].epoch);
    return m->options.fields > 0 ? m->tables[0].epoch : 0;
}

void linear_learn_plain(struct model *m, struct call *c)
{
    struct plain *p = m->plain;
    float *w = m->examples[0].weights;
    for (size_t i = 0; i < p->whole; i++)
        w[i] = 0.0F, w[p->whole + i] = 1.0F;
    linear_move_dense(m, w + p->fields, p->whole, true);
    p->epoch = epoch_of_all(m);
    make_ready(m, c, p, 0);
    for (uint32_t i = 0; i < AHEAD; i++)
        ask(p, i);
    if (p->fields > 0 && table_is_eager(&m->tables[0]))
        learn(m, c, true);
    else
        learn(m, c, false);
    linear_move_dense(m, w + p->fields, p->whole, false);
}
