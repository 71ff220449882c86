/* Keeps a model within its memory: one budget for all its tables, whose rows beyond it are
 * cold (tables/cold.h). */
#include "learners/tables/cold.h"
#include "learners/model/internal.h"

#include "core/base.h"

void model_set_cold(struct model *m, uint32_t field, struct cold_store *store)
{
    table_cold_init(&m->tables[field], store);
}

/*
 * Sketches stay in memory: rows have the rest of the budget, but at least a quarter of it. Tables grow freely
 * until rows take three quarters of their budget; then the memory each table has becomes its share, and the
 * last quarter is divided evenly, so that a small table can still grow a little.
 */
void model_keep_memory(struct model *m, int64_t bytes)
{
    if (m->options.fields == 0 || m->tables[0].cold == NULL)
        return;
    size_t budget = (size_t)MAX(bytes, 0), rows = 0, sketches = 0;
    bool is_shared = m->tables[0].cold->bytes_max > 0;
    for (uint32_t f = 0; f < m->options.fields && !is_shared; f++) {
        rows += table_row_bytes(&m->tables[f]);
        sketches += sketch_bytes(&m->tables[f].sketch);
    }
    budget = MAX(budget - MIN(sketches, budget), budget / 4);
    if (!is_shared && rows <= budget / 4 * 3)
        return;
    for (uint32_t f = 0; f < m->options.fields; f++) {
        struct table *t = &m->tables[f];
        if (!is_shared) {
            double part = MIN(1.0, (double)budget * 0.75 / (double)rows);
            size_t own = (size_t)((double)table_row_bytes(t) * part);
            table_share(t, MAX(own, budget / (4 * m->options.fields)) + 1);
        }
        table_keep(t, (uint32_t)m->steps + 1, m->pending > 0);
    }
}

void model_warm(struct model *m, const struct call *c)
{
    for (uint32_t f = 0; f < m->options.fields; f++)
        table_warm(&m->tables[f], c->in->ids[f], c->in->rows, c->steps[0]);
}
