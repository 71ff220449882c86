/* Windows of time: which are open, and their rows when the watermark goes on. */
#include "operators/window/window.h"

#include "core/mem.h"

#include <stdlib.h>

enum { PREFETCH_AHEAD = 6 };

/* --- Open windows --- */

void *window_grow(void *items, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity)
        return items;
    *capacity = MAX(*capacity * 2, 16);
    items = mem_realloc(items, *capacity * size);
    return items;
}

void window_touch(struct window *window, const struct window_key *key, int64_t pane)
{
    window->touches = window_grow(window->touches, window->touches_count, &window->touches_capacity,
                                  sizeof(*window->touches));
    window->touches[window->touches_count++] = (struct window_touch){*key, pane};
}

void window_forget_lists(struct window *window)
{
    if (window->open.count > 0)
        window_keys_forget(&window->listed,
                           windows_of_pane(&window->shape, window->open.items[window->open.count - 1]).last +
                               1);
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

/* --- A pass over the keys of a window --- */

/* A pass over the keys of one window. */
struct pass {
    int64_t window;
    struct windows_range panes;
    int64_t start, end;
    bool is_changes; /* only keys with a row after since_tick */
    int64_t since_tick;
    bool carries;      /* this is the window's last pass: its keys move to the lists of later windows */
    int64_t next;      /* the next window */
    bool is_list_full; /* set when the budget of the key lists is used up */
    struct window_out out;
};

static struct pass pass_over(const struct window *window, int64_t index)
{
    return (struct pass){.window = index,
                         .panes = windows_panes(&window->shape, index),
                         .start = windows_start(&window->shape, index),
                         .end = windows_end(&window->shape, index),
                         .next = windows_next(&window->shape, index)};
}

/* --- One key --- */

/* Adds the key's output row for the window; with is_changes only if a row came after since_tick. */
static void emit(struct operator_context *context, struct window *window, struct pass *pass,
                 const struct keyed_slot *slot, uint64_t hash)
{
    panes_sum_clear(&window->panes, &window->sum);
    panes_read(&window->panes, slot, pass->panes.first, pass->panes.last, &window->sum);
    struct window_row row = {
        .prefix = panes_prefix(slot),
        .start = pass->start,
        .end = pass->end,
        .time = pass->end - 1,
        .order = {.place = (uint16_t)(1 + context->place), .time = pass->end, .tie = hash}};
    if (window->has_facts) {
        const struct window_facts *facts = window_facts_of(window, window->sum.fixed);
        if (!window->has_bounds)
            row.time = facts->last_time;
        if (pass->is_changes && facts->last_tick <= pass->since_tick)
            return;
        row.change =
            pass->is_changes && facts->first_tick <= pass->since_tick ? CHANGE_UPDATE : CHANGE_INSERT;
    }
    window_out_add(context, window, &pass->out, &row);
}

/* Whether the entry has a pane of the window. */
static bool has_window(const struct window *window, const struct pass *pass, const struct keyed_slot *slot)
{
    uint32_t i = panes_below(&window->panes, slot, pass->panes.first);
    return i < panes_count(slot) && panes_index(&window->panes, slot, i) <= pass->panes.last;
}

/* Adds the key to the list of the next window in which it has rows. */
static void carry(struct window *window, struct pass *pass, const struct keyed_slot *slot,
                  const struct window_key *key)
{
    uint32_t i = panes_below(&window->panes, slot, windows_panes(&window->shape, pass->next).first);
    if (i == panes_count(slot))
        return;
    int64_t first = windows_of_pane(&window->shape, panes_index(&window->panes, slot, i)).first;
    if (!window_keys_add(&window->listed, MAX(first, pass->next), key, true))
        pass->is_list_full = true;
}

/* --- Keys of a list --- */

/* Emits the rows of `count` keys, at most BATCH_ROWS. Each key must have rows in the window. */
static void pass_keys(struct operator_context *context, struct window *window, struct pass *pass,
                      const struct window_key *items, uint32_t count)
{
    struct window_look *look = window->look;
    for (uint32_t i = 0; i < count; i++) {
        look->keys[i] = items[i].key;
        look->hashes[i] = items[i].hash;
    }
    keyed_look(window->table, look->keys, look->hashes, count, look->slots);
    for (uint32_t i = 0; i < count; i++) {
        const struct keyed_slot *slot = look->slots[i];
        if (i + PREFETCH_AHEAD < count && look->slots[i + PREFETCH_AHEAD] != NULL)
            panes_prefetch(look->slots[i + PREFETCH_AHEAD]);
        if (slot == NULL)
            continue;
        leat_assert(has_window(window, pass, slot));
        emit(context, window, pass, slot, items[i].hash);
        if (pass->carries)
            carry(window, pass, slot, &items[i]);
    }
    keyed_end(window->table);
    window_out_end(context, &pass->out);
}

/* Leaves out keys whose groups have gone to another instance: the table may have their entries until a checkpoint under way is
 * written. */
static uint32_t keep_own(const struct operator_context *context, struct window_key *items, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (group_set_has(context->groups, key_group(items[i].hash)))
            items[kept++] = items[i];
    return kept;
}

static void pass_list(struct operator_context *context, struct window *window, struct pass *pass)
{
    struct window_key *items;
    uint32_t count = window_keys_take(&window->listed, pass->window, &items);
    count = keep_own(context, items, count);
    for (uint32_t i = 0; i < count; i += BATCH_ROWS)
        pass_keys(context, window, pass, items + i, MIN(count - i, BATCH_ROWS));
}

/* --- Keys by a scan --- */

void window_copy_entry(struct window *window, const struct keyed_slot *slot)
{
    window->copy_list = window_grow(window->copy_list, window->copies_count, &window->copies_capacity,
                                    sizeof(*window->copy_list));
    uint32_t bytes, head[2] = {0, 0};
    const char *data = keyed_read(slot, &bytes);
    head[0] = bytes;
    window->copy_list[window->copies_count++] =
        (struct window_copy){{key_hash(slot->key), slot->key}, window->copies.length};
    buffer_append(&window->copies, head, sizeof(head));
    buffer_append(&window->copies, data, bytes);
    buffer_reserve(&window->copies, 8);
    window->copies.length = (window->copies.length + 7) & ~(size_t)7;
}

struct visit {
    struct window *window;
    const struct pass *pass;
};

static void visit_entry(void *argument, const struct keyed_slot *slot)
{
    struct visit *visit = argument;
    if (has_window(visit->window, visit->pass, slot))
        window_copy_entry(visit->window, slot);
}

static int compare_copies(const void *a, const void *b)
{
    const struct window_copy *x = a, *y = b;
    return window_key_compare(&x->key, &y->key);
}

void window_copy_group(struct window *window, uint32_t group, keyed_visit *visit, void *argument)
{
    buffer_clear(&window->copies);
    window->copies_count = 0;
    keyed_scan_group(window->table, group, visit, argument);
    if (window->copies_count > 1)
        qsort(window->copy_list, window->copies_count, sizeof(*window->copy_list), compare_copies);
}

struct keyed_slot window_copy_slot(const struct window *window, const struct window_copy *copy)
{
    return (struct keyed_slot){.key = copy->key.key,
                               .bits = (uint64_t)(uintptr_t)(window->copies.data + copy->offset)};
}

static void pass_scan(struct operator_context *context, struct window *window, struct pass *pass)
{
    struct visit visit = {window, pass};
    const struct group_set *groups = context->groups;
    for (uint32_t group = group_set_next(groups, 0); group < KEY_GROUPS;
         group = group_set_next(groups, group + 1)) {
        window_copy_group(window, group, visit_entry, &visit);
        for (uint32_t i = 0; i < window->copies_count; i++) {
            const struct window_copy *copy = &window->copy_list[i];
            struct keyed_slot slot = window_copy_slot(window, copy);
            emit(context, window, pass, &slot, copy->key.hash);
            if (pass->out.full.count > 0)
                window_out_end(context, &pass->out);
            if (pass->carries)
                carry(window, pass, &slot, &copy->key);
        }
    }
    window_out_end(context, &pass->out);
}

/* --- Windows --- */

/* The first window from `from` on that may have rows of any key; false if there is none. */
static bool next_window(const struct window *window, int64_t from, int64_t *index)
{
    uint32_t low = 0, high = window->open.count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (windows_of_pane(&window->shape, window->open.items[middle]).last < from)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == window->open.count)
        return false;
    *index = MAX(windows_of_pane(&window->shape, window->open.items[low]).first, from);
    return true;
}

/* Emits the rows of windows that end or close. */
static void give_due(struct operator_context *context, struct window *window, int64_t watermark)
{
    int64_t from = window_first_due(window, context->watermark), index = 0;
    bool is_at_end = window_gives_at_end(window);
    while (next_window(window, from, &index)) {
        struct pass pass = pass_over(window, index);
        if ((is_at_end ? pass.end : window_closed_at(window, index)) > watermark)
            break;
        pass.carries = true;
        pass.is_changes = window->mode == EMIT_EVERY;
        pass.since_tick = window->fired_tick;
        if (index >= window->listed.from)
            pass_list(context, window, &pass);
        else
            pass_scan(context, window, &pass);
        if (pass.is_list_full)
            window_forget_lists(window);
        from = pass.next;
    }
}

/* Emits the changes since the last firing in windows that are not due. */
static void give_early(struct operator_context *context, struct window *window, int64_t watermark)
{
    int64_t from = window_first_due(window, watermark), index = 0;
    while (next_window(window, from, &index)) {
        struct pass pass = pass_over(window, index);
        pass.is_changes = true;
        pass.since_tick = window->fired_tick;
        pass_scan(context, window, &pass);
        from = pass.next;
    }
    window->fired_tick = window->tick;
}

static int compare_touches(const void *a, const void *b)
{
    const struct window_touch *x = a, *y = b;
    int order = window_key_compare(&x->key, &y->key);
    return order != 0 ? order : x->pane < y->pane ? -1 : x->pane > y->pane;
}

void window_sort_touches(struct window *window)
{
    if (window->touches_count > 1)
        qsort(window->touches, window->touches_count, sizeof(*window->touches), compare_touches);
}

/* The first window from `from` on that got a row in this micro-batch. */
static bool next_touched(const struct window *window, int64_t from, int64_t *index)
{
    bool is_there = false;
    for (uint32_t i = 0; i < window->touches_count; i++) {
        struct windows_range range = windows_of_pane(&window->shape, window->touches[i].pane);
        if (range.last < from)
            continue;
        int64_t first = MAX(range.first, from);
        *index = is_there ? MIN(*index, first) : first;
        is_there = true;
    }
    return is_there;
}

/* Emits the changed rows of the keys that got rows in this micro-batch, window by window. In the modes
 * EMIT_ON_END and EMIT_EVERY only for windows that have emitted their rows already. */
static void give_changes(struct operator_context *context, struct window *window)
{
    int64_t from = window_first_open(window, context->watermark), index = 0;
    int64_t limit = window_gives_at_end(window) ? window_first_due(window, context->watermark) : INT64_MAX;
    window_sort_touches(window);
    while (next_touched(window, from, &index) && index < limit) {
        struct pass pass = pass_over(window, index);
        struct window_key items[BATCH_ROWS];
        const struct window_key *before = NULL;
        uint32_t count = 0;
        pass.is_changes = true;
        pass.since_tick = window->tick - 1;
        for (uint32_t i = 0; i < window->touches_count; i++) {
            const struct window_touch *touch = &window->touches[i];
            if (touch->pane < pass.panes.first || touch->pane > pass.panes.last ||
                (before != NULL && window_key_compare(before, &touch->key) == 0))
                continue;
            before = &touch->key;
            if (count == BATCH_ROWS) {
                pass_keys(context, window, &pass, items, count);
                count = 0;
            }
            items[count++] = touch->key;
        }
        if (count > 0)
            pass_keys(context, window, &pass, items, count);
        from = pass.next;
    }
}

/* Removes from window->open the panes whose windows are all closed. */
static void retire(struct window *window, int64_t watermark)
{
    uint32_t closed = 0;
    while (closed < window->open.count &&
           window_closed_at(window, windows_of_pane(&window->shape, window->open.items[closed]).last) <=
               watermark)
        closed++;
    if (closed == 0)
        return;
    open_windows_drop(&window->open, closed);
    window->last_pane.is_known = false;
}

bool window_fires(const struct window *window, int64_t before, int64_t watermark)
{
    return window->mode == EMIT_EVERY && watermark != TIME_MIN && watermark != TIME_MAX &&
           (before == TIME_MIN || pane_of(before, window->every_us) != pane_of(watermark, window->every_us));
}

void window_advance(struct operator_context *context, struct window *window, int64_t watermark)
{
    if (window->touches_count > 0)
        give_changes(context, window);
    if (window->mode != EMIT_ON_CHANGE)
        give_due(context, window, watermark);
    if (window_fires(window, context->watermark, watermark))
        give_early(context, window, watermark);
    retire(window, watermark);
}
