/* What others see of ranks: the options, the rows of `NAME.metrics`, and the figures in the report. */
#include "learners/retrieval/internal.h"

#include "learners/items/index.h"

#include <math.h>

_Static_assert(ITEMS_TOP_MAX == 4096, "the largest k in ranks_options");
_Static_assert(RANKS_ALL_ITEMS == 100000 && RANKS_SHARE_PERCENT == 1, "the help of rank_share");

const struct option ranks_options[] = {
    OPTION_INTS(struct ranks_config, at, "metrics_at", 0, "[10]", "1", "4096",
                "lengths k of a list for hr@k, ndcg@k, mrr@k and coverage@k: at most 4, rising"),
    OPTION_FLOAT(
        struct ranks_config, share, "rank_share", 0, "0.0", "0.0", "1.0",
        "share of the events that are ranked among all items, chosen by a hash of the record; the figures are "
        "of these events; 0: all, as long as there are at most 100,000 items, else 0.01"),
    OPTION_COLUMN(
        struct ranks_config, by, "metrics_by", 0,
        "rows of `metrics` for each value of this column, too; the first 64 values that come have rows "
        "of their own, the rest together"),
    OPTION_INT(struct ranks_config, window, "window", 0, "100000", "16", "1000000000",
               "number of newest ranked events in the sliding evaluation"),
    OPTION_INT(struct ranks_config, metrics_every, "metrics_every", 0, "100000", "1", NULL,
               "ranked events between two rows of `metrics`; one more row comes when the input has ended"),
    OPTION_ENUM(
        struct ranks_config, seen, "seen", 0, "kept", "kept|dropped",
        "`dropped`: items of the user's history, or in lists of the query, are left out of ranks and lists"),
    OPTION_INT(
        struct ranks_config, top, "top", 0, "0", "0", "4096",
        "number of items in the lists of `NAME.top`, which are made where something reads them; 0: no lists"),
    OPTIONS_END,
};

/* --- Names and schema --- */

static const char *const figure_names[RANKS_FIGURES] = {"hr", "ndcg", "mrr", "coverage"};
enum { COLUMN_TIME, COLUMN_EXAMPLES, COLUMN_MISSES, COLUMNS_FIXED, COLUMN_SCOPE = COLUMNS_FIXED, COLUMN_BY };

static uint32_t first_figure(const struct ranks_config *c)
{
    return ranks_has_by(c) ? COLUMN_BY + 1 : COLUMNS_FIXED;
}

static const struct ranks_names *make_names(struct arena *arena, const struct ints *at)
{
    struct ranks_names *names = arena_new(arena, struct ranks_names);
    for (uint32_t k = 0; k < at->count; k++)
        for (uint32_t f = 0; f < RANKS_FIGURES; f++) {
            const char *name = arena_printf(arena, "%s_%lld", figure_names[f], (long long)at->items[k]);
            names->of[0][k][f] = name;
            names->of[1][k][f] = arena_printf(arena, "%s_window", name);
        }
    return names;
}

static bool check_at(struct operator_bind *bind, const struct ranks_config *c)
{
    bool is_good = c->at.count >= 1 && c->at.count <= RANKS_AT_MAX;
    for (uint32_t k = 1; k < c->at.count; k++)
        is_good = is_good && c->at.items[k] > c->at.items[k - 1];
    if (!is_good) {
        struct diag *d =
            diag_error(bind->diags, DIAG_BAD_LEARNER, bind->span,
                       "`metrics_at` takes 1 to %d numbers, each larger than the one before", RANKS_AT_MAX);
        diag_hint(bind->diags, d, "for example `metrics_at: [1, 10, 100]`");
    }
    return is_good;
}

static bool resolve_by(struct operator_bind *bind, struct ranks_config *c)
{
    const struct schema *input = bind->inputs[0].schema;
    if (!ranks_has_by(c))
        return true;
    if (!column_resolve(&c->by, input, bind->arena, bind->diags))
        return false;
    c->by_type = input->fields[c->by.index].type;
    switch (c->by_type.tag) {
    case TYPE_BOOL:
    case TYPE_INT:
    case TYPE_TIME:
    case TYPE_TEXT: return true;
    default: break;
    }
    struct diag *d =
        diag_error(bind->diags, DIAG_TYPE_CLASH, c->by.span,
                   "`metrics_by` takes a column of type text, int, bool or time, and `%.*s` is of type %s",
                   STR_ARGS(c->by.name), type_name(bind->arena, &c->by_type));
    diag_hint(bind->diags, d, "name another column, or make one with few values before the learner");
    return false;
}

/* Whether the column metrics_by has a name of its own in `NAME.metrics`. */
static bool check_name(struct operator_bind *bind, const struct ranks_config *c)
{
    for (uint32_t i = 0; i < c->schema->count; i++) {
        if (i == COLUMN_BY || !str_equal(c->schema->fields[i].name, c->by.name))
            continue;
        struct diag *d = diag_error(bind->diags, DIAG_COLUMN_TAKEN, c->by.span,
                                    "`metrics` has a column `%.*s` of its own, beside that of `metrics_by`",
                                    STR_ARGS(c->by.name));
        diag_hint(bind->diags, d, "rename the column before the learner");
        return false;
    }
    return true;
}

bool ranks_bind(struct operator_bind *bind, struct ranks_config *c)
{
    static const struct schema empty;
    if (!check_at(bind, c) || !resolve_by(bind, c))
        return false;
    c->names = make_names(bind->arena, &c->at);
    struct schema *schema =
        schema_copy(bind->arena, &empty, first_figure(c) + 2 * RANKS_FIGURES * c->at.count);
    schema_add(schema, STR("time"), type_of(TYPE_TIME));
    schema_add(schema, STR("examples"), type_of(TYPE_INT));
    schema_add(schema, STR("misses"), type_of(TYPE_INT));
    if (ranks_has_by(c)) {
        schema_add(schema, STR("scope"), type_of(TYPE_TEXT));
        struct field *by = schema_add(schema, c->by.name, c->by_type);
        by->lineage = bind->inputs[0].schema->fields[c->by.index].lineage;
    }
    for (uint32_t is_window = 0; is_window < 2; is_window++)
        for (uint32_t k = 0; k < c->at.count; k++)
            for (uint32_t f = 0; f < RANKS_FIGURES; f++)
                schema_add(schema, str_from(c->names->of[is_window][k][f]), type_of(TYPE_FLOAT));
    c->schema = schema;
    return !ranks_has_by(c) || check_name(bind, c);
}

/* The figures of one k, in the order of figure_names. */
static void figures_at(const struct ranks_figures *f, uint32_t k, double values[RANKS_FIGURES])
{
    values[0] = f->hr[k], values[1] = f->ndcg[k], values[2] = f->mrr[k], values[3] = f->coverage[k];
}

/* --- Report --- */

void ranks_report(const struct ranks *r, struct report *report, size_t items)
{
    for (int is_window = 0; is_window < 2; is_window++) {
        struct ranks_figures figures = ranks_figures(r, is_window, items);
        report_add(report, "examples", (double)figures.examples, is_window);
        report_add(report, "misses", (double)figures.misses, is_window);
        for (uint32_t k = 0; k < r->config.at.count; k++) {
            double values[RANKS_FIGURES];
            figures_at(&figures, k, values);
            for (uint32_t f = 0; f < RANKS_FIGURES; f++)
                if (!isnan(values[f]))
                    report_add(report, r->config.names->of[0][k][f], values[f], is_window);
        }
    }
}

/* --- Rows of `NAME.metrics` --- */

static void put(struct batch *batch, uint32_t column, uint32_t row, double value)
{
    batch->columns[column].floats[row] = isnan(value) ? 0.0 : value;
    if (isnan(value))
        batch_set_null(batch, &batch->columns[column], row);
}

/* `scope` and the value of metrics_by. heap: of the texts of this column, with room; *used: its bytes so far. */
static void put_scope(const struct ranks *r, uint32_t scope, struct batch *batch, uint32_t row, char *heap,
                      uint32_t *used)
{
    static const char words[] = "allvalueothers";
    static const struct text_ref all = {0, 3}, value = {3, 5}, others = {8, 6};
    batch->columns[COLUMN_SCOPE].heap = words;
    batch->columns[COLUMN_SCOPE].texts[row] = scope == 0 ? all : scope == RANKS_OTHERS ? others : value;
    bool is_value = scope != 0 && scope != RANKS_OTHERS;
    const struct ranks_kept *kept = is_value ? &r->kept[scope - 1] : NULL;
    struct column *by = &batch->columns[COLUMN_BY];
    if (by->tag == TYPE_TEXT) {
        by->heap = heap;
        by->texts[row] = (struct text_ref){*used, is_value ? kept->text_bytes : 0};
        if (by->texts[row].length > 0)
            memcpy(heap + *used, kept->text, kept->text_bytes);
        *used += by->texts[row].length;
    } else if (by->tag == TYPE_BOOL) {
        by->bools[row] = is_value && kept->integer != 0;
    } else {
        by->ints[row] = is_value ? kept->integer : 0;
    }
    if (!is_value || kept->is_null)
        batch_set_null(batch, by, row);
}

static void put_row(const struct ranks *r, uint32_t scope, struct batch *batch, uint32_t row, size_t items)
{
    uint32_t column = first_figure(&r->config);
    for (int is_window = 0; is_window < 2; is_window++) {
        struct ranks_figures figures = ranks_figures_of(r, scope, is_window, items);
        if (!is_window) {
            batch->columns[COLUMN_TIME].ints[row] = batch->event_time[row] = r->last_us;
            batch->columns[COLUMN_EXAMPLES].ints[row] = (int64_t)figures.examples;
            batch->columns[COLUMN_MISSES].ints[row] = (int64_t)figures.misses;
        }
        for (uint32_t k = 0; k < r->config.at.count; k++) {
            double values[RANKS_FIGURES];
            figures_at(&figures, k, values);
            for (uint32_t f = 0; f < RANKS_FIGURES; f++)
                put(batch, column++, row, values[f]);
        }
    }
}

void ranks_emit(struct ranks *r, struct operator_context *context, uint32_t output, size_t items)
{
    bool has_by = r->kept != NULL;
    bool has_others = has_by && ranks_examples(&r->scopes[RANKS_OTHERS]) > 0;
    uint32_t rows = 1 + r->values + has_others, used = 0;
    struct batch *batch = batch_new(context->pool, r->config.schema, rows);
    struct row_order *orders = arena_array(&batch->arena, struct row_order, rows);
    char *heap = arena_alloc(&batch->arena, (size_t)r->values * RANKS_TEXT_MAX);
    for (uint32_t row = 0; row < rows; row++) {
        uint32_t scope = row <= r->values ? row : RANKS_OTHERS;
        orders[row] = (struct row_order){.place = (uint16_t)(context->place + 1),
                                         .partition = PARTITION_NONE,
                                         .time = r->last_us,
                                         .tie = ranks_examples(&r->scopes[0]),
                                         .sub = row};
        if (has_by)
            put_scope(r, scope, batch, row, heap, &used);
        put_row(r, scope, batch, row, items);
    }
    batch->orders = orders;
    batch->partition = PARTITION_NONE;
    r->emitted = ranks_examples(&r->scopes[0]);
    operator_emit(context, output, batch);
}

void ranks_end(struct ranks *r, struct operator_context *context, uint32_t output, size_t items)
{
    if (ranks_examples(&r->scopes[0]) != r->emitted)
        ranks_emit(r, context, output, items);
}
