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

#include <stdlib.h>

enum { AHEAD = 12, TILE = 32, RING = 2 * TILE, SHORT_ROW = TABLE_ROW_HEADER + 2 * sizeof(float) };

/*
 * What is made ready a tile of events ahead: hashes of keys; what weights are multiplied with, in the order
 * of linear_places, as if each key had a row.
 */
struct plain {
    uint64_t hashes[MODEL_FIELDS_MAX][RING];
    float *places[MODEL_FIELDS_MAX];
    float values[]; /* [RING][whole] */
};

bool linear_is_plain(const struct model *m)
{
    bool has_list = memchr(m->options.is_list, 1, m->options.fields) != NULL;
    return m->vector_floats == 0 && !m->options.linear_is_double && m->linear_states == 1 && !has_list &&
           m->options.clip_norm == 0.0F && !m->options.is_joint && m->options.batch == 1 &&
           m->options.hidden[0] == 0;
}

/* Lanes of the gathered arrays. */
static size_t whole_of(const struct model *m)
{
    return ((size_t)m->options.fields + m->options.dense + 1 + 15) / 16 * 16;
}

struct plain *linear_plain_new(const struct model *m)
{
    struct plain *p = calloc(1, sizeof *p + RING * whole_of(m) * sizeof(float));
    leat_assert(p);
    return p;
}

static void make_ready(const struct model *m, const struct call *c, struct plain *p, size_t whole,
                       uint32_t first)
{
    uint32_t count = MIN((uint32_t)TILE, c->in->rows - MIN(first, c->in->rows));
    float *values = p->values + first % RING * whole;
    for (uint32_t f = 0; f < m->options.fields; f++) {
        const struct table *t = &m->tables[f];
        const uint64_t *ids = c->in->ids[f] + first;
        uint64_t *hashes = p->hashes[f] + first % RING;
        for (uint32_t i = 0; i < count; i++)
            hashes[i] = table_hash(t, ids[i]);
    }
    for (uint32_t i = 0; i < count; i++, values += whole) {
        for (uint32_t f = 0; f < m->options.fields; f++)
            values[f] = 1.0F;
        for (uint32_t d = 0; d < m->options.dense; d++)
            values[m->options.fields + d] = c->in->dense[d][first + i];
        values[m->options.fields + m->options.dense] = 1.0F;
    }
}

static inline void ask(const struct model *m, const struct plain *p, uint32_t i)
{
    for (uint32_t f = 0; f < m->options.fields; f++)
        table_prefetch(&m->tables[f], p->hashes[f][i % RING], true, SHORT_ROW);
}

/* The weight of an event's key in a field; NULL if it has none. */
static inline float *find(struct model *m, const struct call *c, const struct plain *p, uint32_t f,
                          uint32_t i)
{
    struct table *t = &m->tables[f];
    uint64_t key = c->in->ids[f][i];
    if (unlikely(key == 0))
        return NULL;
    struct table_row *row =
        table_sight(t, key, p->hashes[f][i % RING], c->steps[i], c->learns[i], false, true, SHORT_ROW);
    if (unlikely(row == NULL))
        return NULL;
    if (c->learns[i])
        table_touch(t, row, c->seen[i], c->steps[i]);
    return table_payload(row);
}

static inline void find_all(struct model *m, const struct call *c, struct plain *p, float *values, uint32_t i)
{
    for (uint32_t f = 0; f < m->options.fields; f++) {
        float *place = find(m, c, p, f, i);
        if (unlikely(place == NULL)) {
            place = m->absent;
            values[f] = 0.0F;
        }
        p->places[f] = place;
    }
}

void linear_learn_plain(struct model *m, struct call *c)
{
    struct example *e = &m->examples[0];
    struct plain *p = m->plain;
    size_t fields = m->options.fields, whole = whole_of(m);
    float *w = e->weights;
    for (size_t i = 0; i < whole; i++)
        w[i] = 0.0F, w[whole + i] = 1.0F;
    linear_move_dense(m, w + fields, whole, true);
    make_ready(m, c, p, whole, 0);
    for (uint32_t i = 0; i < MIN((uint32_t)AHEAD, c->in->rows); i++)
        ask(m, p, i);
    for (uint32_t i = 0; i < c->in->rows; i++) {
        if (i % TILE == 0)
            make_ready(m, c, p, whole, i + TILE);
        if (i + AHEAD < c->in->rows)
            ask(m, p, i + AHEAD);
        float *values = p->values + i % RING * whole;
        model_example_label(m, e, c, i);
        find_all(m, c, p, values, i);
        e->logit = (double)m->k->pairs_dot(w, p->places, values, fields, whole) + (double)m->options.bias;
        model_example_judge(m, e);
        model_output(c, e, (int32_t)i);
        m->steps += e->learns;
        if (!e->learns || e->is_rejected)
            continue;
        struct opt_row row = {.w = w, .g = values, .scale = (float)e->slope_exact, .curvature = e->curvature};
        m->linear_step(&row, 1, whole, &m->options.linear.params);
        m->k->pairs_store(p->places, w, fields, whole);
    }
    linear_move_dense(m, w + fields, whole, false);
}
