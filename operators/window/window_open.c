/* Open panes, keys by window, and the panes that got rows in this micro-batch. */
#include "operators/window/window.h"

#include <stdlib.h>

void *window_grow(void *items, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity)
        return items;
    *capacity = MAX(*capacity * 2, 16);
    items = realloc(items, *capacity * size);
    leat_assert(items != NULL);
    return items;
}

void window_note_open(struct window *window, int64_t pane)
{
    uint32_t at = window->open_count;
    while (at > 0 && window->open[at - 1] > pane)
        at--;
    if (at > 0 && window->open[at - 1] == pane)
        return;
    window->open =
        window_grow(window->open, window->open_count, &window->open_capacity, sizeof(*window->open));
    memmove(&window->open[at + 1], &window->open[at], (window->open_count - at) * sizeof(*window->open));
    window->open[at] = pane;
    window->open_count++;
}

void window_touch(struct window *window, const struct window_key *key, int64_t pane)
{
    window->touches = window_grow(window->touches, window->touches_count, &window->touches_capacity,
                                  sizeof(*window->touches));
    window->touches[window->touches_count++] = (struct window_touch){*key, pane};
}

void window_forget_lists(struct window *window)
{
    if (window->open_count > 0)
        window_keys_forget(&window->listed,
                           windows_of_pane(&window->shape, window->open[window->open_count - 1]).last + 1);
}

void window_list_key(const struct operator_context *context, struct window *window,
                     const struct keyed_slot *slot, uint64_t hash)
{
    int64_t due = window_first_due(window, context->watermark);
    const struct window_pane *pane = &window->last_pane;
    int64_t first = MAX(pane->windows.first, due);
    if (pane->windows.last < due)
        return;
    uint32_t at = panes_below(&window->panes, slot, pane->pane), count = panes_count(slot);
    if (at > 0 && windows_of_pane(&window->shape, panes_index(&window->panes, slot, at - 1)).last >= due)
        return;
    if (at + 1 < count) {
        struct windows_range next =
            windows_of_pane(&window->shape, panes_index(&window->panes, slot, at + 1));
        if (MAX(next.first, due) == first)
            return;
    }
    struct window_key key = {hash, slot->key};
    if (!window_keys_add(&window->listed, first, &key, false))
        window_forget_lists(window);
}
