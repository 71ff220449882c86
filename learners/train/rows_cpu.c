#include "learners/train/rows_cpu.h"
#include "learners/train/step.h"

#include "core/base.h"

#include <stdlib.h>

void rows_cpu_init(struct rows_cpu *rows, struct table *tables, size_t vector_at, size_t places_max)
{
    *rows = (struct rows_cpu){.tables = tables, .vector_at = vector_at};
    memset(rows->seen_least, 0xff, sizeof rows->seen_least);
    rows->found = calloc(places_max + 1, sizeof *rows->found);
    rows->steps = calloc(places_max + 1, sizeof *rows->steps);
    rows->none = calloc(places_max + 1, 1);
    rows->is_known = calloc(places_max + 1, 1);
    leat_assert(rows->found && rows->steps && rows->none && rows->is_known);
}

size_t rows_cpu_bytes(size_t places_max)
{
    const struct rows_cpu *rows = NULL;
    return (places_max + 1) *
           (sizeof *rows->found + sizeof *rows->steps + sizeof *rows->none + sizeof *rows->is_known);
}

void rows_cpu_free(struct rows_cpu *rows)
{
    free(rows->found);
    free(rows->steps);
    free(rows->none);
    free(rows->is_known);
    *rows = (struct rows_cpu){0};
}

static void *row_of(const struct rows_cpu *rows, const struct train_group *g, struct table_row *row)
{
    return row ? (unsigned char *)table_payload(row) + (g->has_vectors ? rows->vector_at : 0) : NULL;
}

/* Places of a batch or a call that are looked up: each field has a table of its own. */
struct looked {
    struct rows_cpu *rows;
    struct train *t;
    struct train_group *g;
    const struct train_input *in;
    const uint32_t *tables; /* where each field's places begin, of the group's */
    size_t first;
};

static struct looked look_up(struct rows_cpu *rows, struct train *t, struct train_group *g,
                             const struct train_input *in)
{
    return (struct looked){
        rows, t, g, in, in->host.tables + train_input_tables(in, g->first), train_input_first(in, g->first)};
}

/* Field by field, whoever does it; a store of cold rows is one for all. */
static void each_field(struct looked *w, share_piece *field)
{
    bool is_shared = train_shares(w->t, w->in->n);
    for (uint32_t f = 0; f < w->g->fields; f++)
        is_shared &= w->rows->tables[w->g->first + f].cold == NULL;
    share_run(is_shared ? w->t->net.team : NULL, w->g->fields, field, w);
}

static void resolve_field(void *of, uint32_t f, unsigned who)
{
    (void)who;
    const struct looked *w = of;
    uint32_t from = w->tables[f], n = w->tables[f + 1] - from;
    size_t at = w->first + from;
    table_resolve_batch(&w->rows->tables[w->g->first + f], w->in->host.ids + at, w->in->host.seen + at, n,
                        (uint32_t)w->t->steps + 1, w->rows->found + from, w->rows->is_known + from);
}

/* All places are sighted, field by field and in the order of events; a number's row is that of its first. */
static bool rows_resolve(void *of, struct train *t, struct train_group *g, struct gpu_error *error)
{
    (void)error;
    struct rows_cpu *rows = of;
    struct looked w = look_up(rows, t, g, &t->batch);
    each_field(&w, resolve_field);
    g->has_lost = false;
    for (uint32_t f = g->first; f < g->first + g->fields; f++) {
        g->has_lost |= rows->seen_least[f] < rows->tables[f].expired_before;
        rows->seen_least[f] = UINT32_MAX;
    }
    for (uint32_t u = 0; u < g->count[0]; u++) {
        uint32_t place = g->order[g->starts[u]];
        g->rows[u] = row_of(rows, g, rows->found[place]);
        g->known[u] = rows->is_known[place] ? g->rows[u] : NULL;
    }
    return true;
}

static void find_field(void *of, uint32_t f, unsigned who)
{
    (void)who;
    const struct looked *w = of;
    struct rows_cpu *rows = w->rows;
    uint32_t from = w->tables[f], to = w->tables[f + 1];
    size_t at = w->first + from;
    for (uint32_t p = from; p < to; p++)
        rows->steps[p] = (uint32_t)w->t->steps + 1;
    table_resolve(&rows->tables[w->g->first + f], w->in->host.ids + at, w->in->host.seen + at,
                  rows->steps + from, rows->none, to - from, rows->found + from);
    uint32_t *least = &rows->seen_least[w->g->first + f];
    for (uint32_t p = from; p < to; p++) {
        struct table_row *row = rows->found[p];
        w->g->found[p] = row_of(rows, w->g, row);
        *least = row ? MIN(*least, row->seen) : *least;
    }
}

static bool rows_find(void *of, struct train *t, struct train_group *g, const struct train_input *in,
                      struct gpu_error *error)
{
    (void)error;
    struct looked w = look_up(of, t, g, in);
    each_field(&w, find_field);
    return true;
}

struct train_rows rows_cpu_of(struct rows_cpu *rows)
{
    return (struct train_rows){.of = rows,
                               .linear_at = -(int32_t)rows->vector_at,
                               .format = ROW_FP32,
                               .resolve = rows_resolve,
                               .find = rows_find};
}
