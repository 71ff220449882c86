/* Windows of rows: a group's rows are numbered in the order of records; pane n holds the rows n * pane_rows
 * to (n + 1) * pane_rows - 1. Window k is full with row k * slide + size - 1, and is emitted in that row's
 * place. Panes that no later window needs are dropped; where those are all, the numbers begin anew.
 *
 * A group's window may never become full: the group is forgotten, and its numbers begin anew, when the
 * watermark is more than `expire_after` beyond its newest row. A row that is itself that far behind is
 * late. */
#include "operators/window/window.h"

enum window_taken window_count_add(struct operator_context *context, struct window *window,
                                   struct window_out *out, struct keyed_slot *slot, const struct batch *batch,
                                   struct panes_row *update)
{
    const struct windows *shape = &window->shape;
    update->expire_us = window_kept_until(window, update->time);
    if (update->expire_us < context->watermark)
        return WINDOW_LATE;
    uint32_t count = panes_count(slot);
    int64_t number = 0; /* position of this row among the group's rows */
    if (count > 0) {
        const struct window_facts *facts =
            window_facts_of(window, panes_partials(&window->panes, slot, count - 1));
        number = panes_index(&window->panes, slot, count - 1) * shape->pane_rows + facts->rows;
    }
    /* The first window that is not full yet. */
    int64_t open = number < shape->size_rows ? 0 : (number - shape->size_rows) / shape->slide_rows + 1;
    update->pane = number / shape->pane_rows;
    update->first_alive = open * (shape->slide_rows / shape->pane_rows);
    if (!panes_update(&window->panes, slot, update))
        return WINDOW_FULL;
    if (open * shape->slide_rows + shape->size_rows != number + 1)
        return WINDOW_TAKEN;
    panes_sum_clear(&window->panes, &window->sum);
    panes_read(&window->panes, slot, update->first_alive, update->pane, &window->sum);
    const struct window_facts *facts = window_facts_of(window, window->sum.fixed);
    struct window_row row = {.prefix = panes_prefix(slot),
                             .start = facts->first_time,
                             .end = time_add(facts->last_time, 1),
                             .time = facts->last_time,
                             .order = batch_order(batch, update->row)};
    window_out_add(context, window, out, &row);
    return WINDOW_TAKEN;
}
