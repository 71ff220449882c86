/* What a model shows of itself: memory, weights, a user's history, an item. */
#include "learners/sequential/internal.h"

#include "core/describe.h"
#include "core/learner.h"
#include "learners/stored/stored.h"
#include "learners/tables/inline.h"

struct sequential_memory_now sequential_memory_now(const struct sequential *s)
{
    struct histories_counts counts = histories_count(s->histories);
    return (struct sequential_memory_now){.items = items_numbers_counts(catalogue_numbers(s->items)).live,
                                          .unsearchable = catalogue_unsearchable(s->items),
                                          .unnumbered = s->unnumbered,
                                          .users = counts.users,
                                          .entries = counts.entries,
                                          .cold = histories_cold(s->histories),
                                          .history_bytes = counts.bytes,
                                          .items_bytes = catalogue_bytes(s->items)};
}

/* --- Weights --- */

static bool visit_rows(struct catalogue *catalogue, const char *name, uint32_t dim, struct model_visitor *v)
{
    return stored_visit_table(catalogue_table(catalogue), name, dim, v);
}

bool sequential_visit_weights(struct sequential *s, const char *const *names, struct model_visitor *v)
{
    bool goes_on = stored_visit_net(&s->net, "", v);
    if (goes_on && s->masks.row != NULL)
        goes_on = v->tensor(v->argument, "masked", s->masks.row, 1, s->options.dim);
    goes_on = goes_on && visit_rows(s->items, names[0], s->options.dim, v);
    for (uint32_t k = 0; k < s->options.sides && goes_on; k++)
        goes_on = visit_rows(s->sides[k], names[1 + k], s->options.dim, v);
    for (uint32_t k = 0; k < s->options.contexts && goes_on; k++)
        goes_on = visit_rows(s->contexts[k], names[1 + s->options.sides + k], s->options.dim, v);
    return goes_on;
}

/* --- A user, an item --- */

bool sequential_describe_user(struct sequential *s, uint64_t user, struct describe *out)
{
    return histories_describe(s->histories, catalogue_numbers(s->items), user, out);
}

bool sequential_describe_item(struct sequential *s, uint64_t key, struct describe *out)
{
    struct items_ref ref;
    if (!catalogue_find(s->items, key, &ref))
        return false;
    const struct table_row *row = table_find(catalogue_table(s->items), key);
    const float *floats = catalogue_rows(s->items)[ref.number];
    items_numbers_describe(catalogue_numbers(s->items), ref, "item", out);
    describe_int(out, "number", ref.number);
    describe_int(out, "occurrences", row->count);
    describe_time(out, "seen", (int64_t)row->seen * US_PER_SECOND);
    describe_list(out, "row");
    for (uint32_t c = 0; c < s->options.dim; c++)
        describe_float32(out, NULL, floats[c]);
    describe_close(out);
    return true;
}
