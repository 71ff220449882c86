/*
 * Models with vectors whose fields have one id each: the same arithmetic in the same order as linear_forward,
 * the interaction and their updates, but without the code for lists, pair weights and dense layers, and
 * with the dense weights kept in the gathered array from event to event.
 */
#include "learners/model/internal.h"

#include "core/base.h"
#include "learners/tables/inline.h"

bool vectors_are_plain(const struct model *m)
{
    bool has_list = memchr(m->options.is_list, 1, m->options.fields) != NULL;
    return m->vector_floats > 0 && !m->options.linear_is_double && m->linear_states == 1 && !has_list &&
           !m->has_pairs && m->options.clip_norm == 0.0F && !m->options.is_joint && m->options.batch == 1 &&
           m->head.layers == 0;
}

static inline void gather(struct model *m, struct example *e, const struct call *c, uint32_t i, size_t whole)
{
    float *w = e->weights;
    for (uint32_t d = 0; d < m->options.dense; d++)
        e->values[m->options.fields + d] = c->in->dense[d][i];
    for (uint32_t f = 0; f < m->options.fields; f++) {
        struct table_row *row = m->resolved[f][i];
        float *place = m->absent;
        const float *vector = m->zero;
        if (likely(row != NULL)) {
            if (unlikely(row == &table_possible))
                row = model_possible_row(m, e, f, f, c->in->ids[f][i]);
            place = table_payload(row);
            vector = model_vector(m, row);
            lookahead_touch(m, c, f, i);
        }
        e->places[f] = place;
        e->values[f] = row ? 1.0F : 0.0F;
        w[f] = place[0];
        w[whole + f] = place[1];
        if (f < m->options.vectors)
            e->vectors[f] = vector;
    }
}

/*
 * Prefetching the rows of later events. A core can wait for a limited number of lines at once, and a prefetch
 * stalls where the address translation of its page is missing, too. So the first lines of an event's rows are
 * prefetched a few fields at a time (prefetch_first), and the other lines later, the n-th line of all rows
 * together (prefetch_lines). The prefetches are spread over several points of the loop: PARTS points, and one
 * after each STEP_ROWS rows of the step.
 */
enum { PARTS = 4, STEP_ROWS = 4 };

static inline void prefetch_lines(const struct model *m, const struct call *c, uint32_t i, uint32_t part)
{
    size_t lines = m->tables[0].stride / LINE_BYTES - 1, parts = PARTS + m->blocks / STEP_ROWS;
    size_t from = 1 + lines * part / parts, to = 1 + lines * (part + 1) / parts;
    if (i + LOOKAHEAD_PREFETCH >= c->in->rows || from == to)
        return;
    for (uint32_t f = 0; f < m->options.vectors; f++) {
        const unsigned char *row = (const unsigned char *)m->resolved[f][i + LOOKAHEAD_PREFETCH];
        for (size_t line = from; row != NULL && line < to; line++)
            prefetch_line(row + line * LINE_BYTES);
    }
}

static inline void prefetch_first(const struct model *m, const struct call *c, uint32_t i, uint32_t first,
                                  uint32_t end)
{
    uint32_t later = i + LOOKAHEAD_PREFETCH + 1;
    if (later >= c->in->rows)
        return;
    for (uint32_t f = first; f < end; f++) {
        if (m->resolved[f][later] != NULL)
            prefetch_line(m->resolved[f][later]);
    }
}

static inline void learn_linear(struct model *m, struct example *e, size_t whole)
{
    float *w = e->weights;
    struct opt_row linear = {.w = w,
                             .state = w + whole,
                             .g = e->values,
                             .scale = (float)e->gradient_exact,
                             .curvature = e->curvature};
    m->linear_step(&linear, 1, whole, &m->options.linear.params);
    for (uint32_t f = 0; f < m->options.fields; f++) {
        float *place = e->places[f];
        place[0] = w[f];
        place[1] = w[whole + f];
    }
}

static inline void learn_vectors(struct model *m, const struct example *e, const struct call *c, uint32_t i)
{
    const float *gradients = interaction_gradient(m, e, 0);
    for (uint32_t first = 0; first < m->options.vectors; first += STEP_ROWS) {
        uint32_t end = MIN(first + STEP_ROWS, m->options.vectors);
        size_t count = 0;
        for (uint32_t f = first; f < end; f++) {
            struct table_row *row = m->resolved[f][i];
            if (row == NULL)
                continue;
            m->opt_rows[count++] = (struct opt_row){.w = model_vector(m, row),
                                                    .state = model_vector_state(m, row),
                                                    .g = gradients + (size_t)f * m->vector_floats,
                                                    .scale = e->gradient,
                                                    .curvature = e->curvature};
        }
        prefetch_first(m, c, i, first, end);
        m->embedding_step(m->opt_rows, count, m->vector_floats, &m->options.embedding.params);
        prefetch_lines(m, c, i, PARTS + first / STEP_ROWS);
    }
    prefetch_first(m, c, i, m->options.vectors, m->options.fields);
}

void vectors_learn_plain(struct model *m, struct call *c)
{
    struct example *e = &m->examples[0];
    size_t used = m->options.dense + 1 + m->options.fields, whole = (used + 15) / 16 * 16;
    float *w = e->weights;
    for (size_t i = used; i < whole; i++)
        w[i] = e->values[i] = 0.0F, w[whole + i] = 1.0F;
    for (uint32_t f = m->options.vectors; f < m->blocks; f++)
        e->vectors[f] = m->zero;
    e->values[m->options.fields + m->options.dense] = 1.0F;
    linear_move_dense(m, w + m->options.fields, whole, true);
    lookahead_begin(m, c);
    for (uint32_t i = 0; i < c->in->rows; i++) {
        lookahead_need(m, MIN(i + LOOKAHEAD_PREFETCH + 1, c->in->rows - 1));
        prefetch_lines(m, c, i, 0);
        model_example_label(m, e, c, i);
        gather(m, e, c, i, whole);
        e->logit = (double)m->k->dot(w, e->values, whole) + (double)m->options.bias;
        prefetch_lines(m, c, i, 1);
        e->interaction = m->options.interaction->forward(m, e);
        e->logit += (double)e->interaction;
        prefetch_lines(m, c, i, 2);
        model_example_judge(m, e);
        model_output(c, e, (int32_t)i);
        if (!e->learns)
            continue;
        model_step_begin(m);
        m->steps++;
        if (e->is_rejected)
            continue;
        learn_linear(m, e, whole);
        prefetch_lines(m, c, i, 3);
        learn_vectors(m, e, c, i);
    }
    lookahead_end(m);
    linear_move_dense(m, w + m->options.fields, whole, false);
}
