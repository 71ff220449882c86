#include "operators/window/all_time.h"

#include "operators/keys.h"

/* When closed panes are merged: at least this many (fewer where a partial is variable, since merging it for
 * every reader costs more), and at least 1 / FOLD_SHARE of the entry's panes. */
enum { FOLD_AT_LEAST = 8, FOLD_VARIABLE_AT_LEAST = 2, FOLD_SHARE = 4 };
/* Readers of entries with more panes use the prefix cache. */
enum { PREFIX_ABOVE = 4 };

bool all_time_check(const struct operator_bind *bind, const struct aggregates *aggregates)
{
    bool is_good = true;
    for (uint32_t i = 0; i < aggregates->count; i++) {
        const struct aggregate *aggregate = &aggregates->items[i];
        if (aggregate->kind != &aggregate_distinct_exact)
            continue;
        diag_hint(
            bind->diags,
            diag_error(bind->diags, DIAG_OPTIONS_CLASH, aggregate->span,
                       "`distinct_exact` over `forever` would keep each value that a group ever had"),
            "`distinct(x)` needs 4 KiB a group and is off by 1.6 %%; or give the window an end: `over 30d`");
        is_good = false;
    }
    return is_good;
}

void all_time_open(struct all_time *all, const struct aggregates *aggregates, int64_t every_us,
                   const struct group_set *groups)
{
    all->every_us = every_us;
    all->groups = groups;
    panes_init(&all->panes, aggregates, all->table, 1);
    panes_sum_init(&all->panes, &all->sum);
    for (uint32_t i = 0; i < ALL_TIME_PREFIXES; i++)
        panes_sum_init(&all->panes, &all->prefixes[i].sum);
}

void all_time_close(struct all_time *all)
{
    if (all->table == NULL)
        return;
    for (uint32_t i = 0; i < ALL_TIME_PREFIXES; i++)
        panes_sum_free(&all->panes, &all->prefixes[i].sum);
    panes_sum_free(&all->panes, &all->sum);
    panes_free(&all->panes);
}

/* Index of the last closed slice; INT64_MIN: none. */
static int64_t last_closed(const struct all_time *all, int64_t watermark)
{
    return watermark == TIME_MIN ? INT64_MIN : pane_of(watermark, all->every_us) - 1;
}

/* Number of panes with an index up to and including `index`. */
static uint32_t count_to(const struct all_time *all, const struct keyed_slot *slot, int64_t index)
{
    return index == INT64_MIN ? 0 : panes_below(&all->panes, slot, index + 1);
}

static struct all_time_prefix *prefix_of(struct all_time *all, struct key key)
{
    return &all->prefixes[key_hash(key) % ALL_TIME_PREFIXES];
}

bool all_time_update(struct all_time *all, struct keyed_slot *slot, int64_t watermark,
                     const struct column *arguments, const struct batch *batch, uint32_t row)
{
    int64_t time = batch->event_time[row], closed = last_closed(all, watermark);
    struct panes_row update = {.pane = pane_of(time, all->every_us),
                               .first_alive = INT64_MIN,
                               .expire_us = TIME_MAX,
                               .arguments = arguments,
                               .row = row,
                               .time = time};
    uint32_t count = count_to(all, slot, closed);
    uint32_t least = all->panes.aggregates->variable > 0 ? FOLD_VARIABLE_AT_LEAST : FOLD_AT_LEAST;
    /* Where the merged pane would be too large, the panes stay apart; readers get the same values. */
    bool is_folded = count >= least && (count - 1) * FOLD_SHARE >= panes_count(slot) &&
                     panes_fold(&all->panes, slot, count);
    if (is_folded)
        count = 1;
    if (update.pane <= closed && count > 0) {
        uint32_t before = count_to(all, slot, update.pane);
        update.pane = panes_index(&all->panes, slot, before > 0 ? before - 1 : 0);
    }
    struct all_time_prefix *prefix = prefix_of(all, slot->key);
    if ((is_folded || update.pane <= prefix->last) && key_equal(prefix->key, slot->key))
        prefix->is_there = false;
    return panes_update(&all->panes, slot, &update);
}

static void copy_sum(const struct panes *panes, struct panes_sum *to, const struct panes_sum *from)
{
    memcpy(to->fixed, from->fixed, panes->aggregates->bytes);
    for (uint32_t k = 0; k < panes->aggregates->count && panes->aggregates->variable > 0; k++) {
        buffer_clear(&to->variable[k]);
        buffer_append(&to->variable[k], from->variable[k].data, from->variable[k].length);
    }
}

/* Sets all->sum to the merged panes with an index below `end`, and the group's prefix to the same. */
static void read_below(struct all_time *all, const struct keyed_slot *slot, int64_t end)
{
    struct all_time_prefix *prefix = prefix_of(all, slot->key);
    uint32_t stay = group_set_stay(all->groups, key_group(key_hash(slot->key)));
    if (!prefix->is_there || !key_equal(prefix->key, slot->key) || prefix->stay != stay ||
        prefix->last >= end) {
        panes_sum_clear(&all->panes, &prefix->sum);
        panes_read(&all->panes, slot, INT64_MIN, end - 1, &prefix->sum);
    } else if (prefix->last < end - 1) {
        panes_read(&all->panes, slot, prefix->last + 1, end - 1, &prefix->sum);
    }
    prefix->is_there = true;
    prefix->key = slot->key;
    prefix->stay = stay;
    prefix->last = end - 1;
    copy_sum(&all->panes, &all->sum, &prefix->sum);
}

void all_time_read(struct all_time *all, const struct keyed_slot *slot, int64_t watermark, int64_t time,
                   struct column_builder *const *builders, uint32_t row)
{
    int64_t last = MAX(pane_of(time, all->every_us), last_closed(all, watermark));
    if (panes_count(slot) > PREFIX_ABOVE && last > INT64_MIN + 1) {
        read_below(all, slot, last);
        panes_read(&all->panes, slot, last, last, &all->sum);
    } else {
        panes_sum_clear(&all->panes, &all->sum);
        panes_read(&all->panes, slot, INT64_MIN, last, &all->sum);
    }
    panes_finish(&all->panes, &all->sum, time, builders, row);
}

void all_time_forget(struct all_time *all)
{
    for (size_t i = 0; i < ALL_TIME_PREFIXES; i++)
        all->prefixes[i].is_there = false;
}

struct edges {
    const struct all_time *all;
    int64_t closed;
};

static void pane_edges(const void *argument, int64_t pane, char *partials, int64_t *start, int64_t *end)
{
    (void)partials;
    const struct edges *edges = argument;
    *end = pane_end(pane, edges->all->every_us, 0);
    *start = pane <= edges->closed ? TIME_MIN : *end - edges->all->every_us;
}

void all_time_describe(struct all_time *all, const struct keyed_slot *slot, struct operator_context *context,
                       struct describe *out)
{
    struct edges edges = {all, last_closed(all, context->watermark)};
    panes_describe(&all->panes, &all->sum, slot, 0, pane_edges, &edges, context, out);
}
