/* What a model shows of itself: memory, weights, items, rows of ids. */
#include "core/describe.h"
#include "core/learner.h"
#include "learners/stored/stored.h"
#include "learners/towers/internal.h"

struct towers_memory_now towers_memory_now(const struct towers *t)
{
    uint64_t items = items_numbers_counts(catalogue_numbers(t->items)).live;
    struct towers_memory_now now = {.items = items,
                                    .unsearchable = items - items_index_live(catalogue_index(t->items)),
                                    .unnumbered = t->unnumbered,
                                    .rows_refused = t->query.rows_refused + t->item.rows_refused,
                                    .items_bytes = catalogue_bytes(t->items) + table_bytes(&t->about)};
    if (t->options.history > 0) {
        struct histories_counts counts = histories_count(t->histories);
        now.users = counts.users, now.history_bytes = counts.bytes, now.without_history = t->without_history;
    }
    for (uint32_t f = 0; f < t->options.query_fields; f++) {
        now.rows += t->query.tables[f].stats.rows;
        now.rows_bytes += table_bytes(&t->query.tables[f]);
    }
    for (uint32_t f = 1; f <= t->options.features; f++) {
        now.rows += t->item.tables[f].stats.rows;
        now.rows_bytes += table_bytes(&t->item.tables[f]);
    }
    return now;
}

bool towers_visit_weights(struct towers *t, const char *const *names, struct model_visitor *v)
{
    uint32_t dim = t->options.dim;
    bool goes_on = stored_visit_net(&t->query.net, "query.", v) &&
                   stored_visit_net(&t->item.net, "item.", v) &&
                   stored_visit_table(catalogue_table(t->items), *names++, dim, v);
    for (uint32_t f = 1; f <= t->options.features && goes_on; f++)
        goes_on = stored_visit_table(&t->item.tables[f], *names++, dim, v);
    for (uint32_t f = 0; f < t->options.query_fields && goes_on; f++)
        goes_on = stored_visit_table(&t->query.tables[f], *names++, dim, v);
    return goes_on;
}

static void describe_floats(const char *name, const float *floats, uint32_t count, struct describe *out)
{
    describe_list(out, name);
    for (uint32_t c = 0; c < count; c++)
        describe_float32(out, NULL, floats[c]);
    describe_close(out);
}

static void describe_row(struct table_row *row, uint32_t dim, struct describe *out)
{
    describe_int(out, "occurrences", row->count);
    describe_time(out, "seen", (int64_t)row->seen * US_PER_SECOND);
    describe_floats("row", table_payload(row), dim, out);
}

bool towers_describe_item(struct towers *t, uint64_t key, struct describe *out)
{
    struct items_ref ref;
    if (!catalogue_find(t->items, key, &ref))
        return false;
    items_numbers_describe(catalogue_numbers(t->items), ref, "item", out);
    describe_int(out, "number", ref.number);
    struct table_row *row = table_find(catalogue_table(t->items), key);
    struct table_row *own = t->options.history > 0 ? table_find(&t->query.tables[0], key) : NULL;
    if (t->options.history > 0) {
        describe_int(out, "occurrences", row->count);
        describe_time(out, "seen", (int64_t)row->seen * US_PER_SECOND);
        if (own != NULL)
            describe_floats("row", table_payload(own), t->options.dim, out);
    } else {
        describe_row(row, t->options.dim, out);
    }
    const struct towers_about *about = t->about_of[ref.number];
    if (about->is_encoded)
        describe_floats("encoded", towers_encoded(t, about), t->item.width, out);
    return true;
}

bool towers_describe_user(struct towers *t, uint64_t user, struct describe *out)
{
    return histories_describe(t->histories, catalogue_numbers(t->items), user, out);
}

bool towers_describe_id(struct towers *t, bool is_feature, uint32_t field, uint64_t id, struct describe *out)
{
    const struct table *table = is_feature ? &t->item.tables[1 + field] : &t->query.tables[field];
    struct table_row *row = table_find(table, id);
    if (row != NULL)
        describe_row(row, t->options.dim, out);
    return row != NULL;
}
