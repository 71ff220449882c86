/* Binding of `feature`: checks the windows, and names a column for each aggregate and window. */
#include "operators/window/feature.h"

static bool check_windows(struct operator_bind *bind, struct feature *feature)
{
    if (feature->over.count > FEATURE_WINDOWS_MAX) {
        diag_error(bind->diags, DIAG_TOO_MANY, feature->over.spans[FEATURE_WINDOWS_MAX],
                   "`over` takes at most %d windows", FEATURE_WINDOWS_MAX);
        return false;
    }
    bool is_good = true;
    for (uint32_t i = 0; i < feature->over.count; i++) {
        int64_t over = feature->over.items[i];
        bool is_ending = over != INT64_MAX;
        feature->window_panes[i] = over / feature->every_us;
        feature->ending += is_ending;
        feature->longest_us = MAX(feature->longest_us, is_ending ? over : 0);
        uint32_t at = i;
        for (; at > 0 && feature->over.items[feature->by_length[at - 1]] > over; at--)
            feature->by_length[at] = feature->by_length[at - 1];
        feature->by_length[at] = i;
        if (!is_ending || (over % feature->every_us == 0 && feature->window_panes[i] <= FEATURE_PANES_MAX))
            continue;
        struct diag *diag =
            diag_error(bind->diags, DIAG_OPTIONS_CLASH, feature->over.spans[i],
                       over % feature->every_us != 0 ? "the window is not a multiple of `every`"
                                                     : "the window is longer than %d times `every`",
                       FEATURE_PANES_MAX);
        diag_hint(bind->diags, diag,
                  "choose an `every` that divides each window into at most %d whole slices",
                  FEATURE_PANES_MAX);
        is_good = false;
    }
    if (feature->from.name.length > 0 && feature->including != 0) {
        diag_error(bind->diags, DIAG_OPTIONS_CLASH, feature->from.span,
                   "`including self` has no meaning with `from`: only rows of the other stream "
                   "are aggregated");
        is_good = false;
    }
    return is_good;
}

/* Resolves the key columns. With `from`, both streams must have the key columns, with equal types. */
static bool bind_keys(struct operator_bind *bind, struct feature *feature)
{
    return bind->inputs_count == 1
               ? keys_bind(bind, 0, &feature->by, &feature->keys)
               : keys_bind_both(bind, &feature->by, &feature->keys, &feature->update_keys);
}

/* Returns the suffix of a window's columns, written as in the job ("24h", not "1d"): of the units that
 * divide the duration, the largest one with which the text is as long as the duration's text in the job;
 * if there is none, the largest unit. */
static const char *suffix_of(struct arena *arena, const struct feature *feature, uint32_t window)
{
    static const struct {
        const char *name;
        int64_t us;
    } units[] = {{"d", US_PER_DAY},    {"h", US_PER_HOUR}, {"m", US_PER_MINUTE},
                 {"s", US_PER_SECOND}, {"ms", 1000},       {"us", 1}};
    int64_t over = feature->over.items[window];
    if (over == INT64_MAX)
        return "forever";
    struct span span = feature->over.spans[window];
    const char *largest = NULL;
    for (size_t i = 0; i < ARRAY_COUNT(units); i++) {
        if (over % units[i].us != 0)
            continue;
        const char *text = arena_printf(arena, "%lld%s", (long long)(over / units[i].us), units[i].name);
        if (strlen(text) == span.end - span.begin)
            return text;
        if (largest == NULL)
            largest = text;
    }
    return largest;
}

static bool add_columns(struct operator_bind *bind, struct feature *feature)
{
    uint32_t windows = feature->over.count, count = feature->aggregates.count * windows;
    if (!operator_has_room(bind, count))
        return false;
    struct schema *output = operator_extend(bind, count);
    /* Lineage: the aggregates of a row depend on that row only by its key columns, unless the aggregated
     * rows may include the row itself (`including self`) or a copy of it (schema.repeats). */
    const struct schema *updates = bind->inputs[bind->inputs_count - 1].schema;
    bool sees_itself = feature->including != 0 || updates->repeats;
    struct lineage group = {0};
    keys_lineage(bind, 0, &group);
    bool is_good = true;
    for (uint32_t i = 0; i < feature->aggregates.count; i++)
        for (uint32_t w = 0; w < windows; w++) {
            struct aggregate *aggregate = &feature->aggregates.items[i];
            struct str name = aggregate->name;
            if (windows > 1)
                name = str_from(
                    arena_printf(bind->arena, "%.*s_%s", STR_ARGS(name), suffix_of(bind->arena, feature, w)));
            struct field *field = operator_add_column(bind, output, name, aggregate->result, aggregate->span);
            is_good &= field != NULL;
            if (field == NULL)
                continue;
            field->lineage = group;
            if (sees_itself) {
                lineage_merge(&field->lineage, &aggregate->lineage);
                lineage_merge(&field->lineage, &updates->rows_lineage);
            }
        }
    bind->outputs[0] = output;
    return is_good;
}

bool feature_bind(struct operator_bind *bind)
{
    struct feature *feature = bind->config;
    uint32_t updates = bind->inputs_count - 1;
    bool is_good = check_windows(bind, feature);
    is_good &= bind_keys(bind, feature);
    is_good &=
        aggregates_bind(bind, &feature->values, bind->inputs[updates].schema, true, &feature->aggregates);
    bind->needs_memory = true;
    return is_good && (!has_all_time(feature) || all_time_check(bind, &feature->aggregates)) &&
           add_columns(bind, feature);
}
