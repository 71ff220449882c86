#include "operators/window/window_keys.h"

#include "core/mem.h"

#include <stdlib.h>

void window_keys_init(struct window_keys *keys, size_t budget_bytes)
{
    *keys = (struct window_keys){.from = INT64_MIN, .budget_bytes = budget_bytes};
}

static size_t run_bytes(const struct window_key_run *run)
{
    return run->capacity * sizeof(*run->items);
}

/* Drops the first `count` lists. */
static void drop_lists(struct window_keys *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        keys->bytes -= run_bytes(&keys->lists[i].carried) + run_bytes(&keys->lists[i].fresh);
        free(keys->lists[i].carried.items);
        free(keys->lists[i].fresh.items);
    }
    keys->count -= count;
    if (count > 0)
        memmove(keys->lists, keys->lists + count, keys->count * sizeof(*keys->lists));
}

void window_keys_free(struct window_keys *keys)
{
    drop_lists(keys, keys->count);
    free(keys->merged.items);
    free(keys->lists);
    *keys = (struct window_keys){0};
}

void window_keys_forget(struct window_keys *keys, int64_t from)
{
    drop_lists(keys, keys->count);
    keys->from = MAX(keys->from, from);
}

int window_key_compare(const struct window_key *a, const struct window_key *b)
{
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return memcmp(&a->key, &b->key, sizeof(a->key));
}

static int compare(const void *a, const void *b)
{
    return window_key_compare(a, b);
}

/* Finds or makes the window's list. Most often it is the last list, or a new one behind it. */
static struct window_key_list *list_of(struct window_keys *keys, int64_t window)
{
    uint32_t at = keys->count;
    while (at > 0 && keys->lists[at - 1].window > window)
        at--;
    if (at > 0 && keys->lists[at - 1].window == window)
        return &keys->lists[at - 1];
    if (keys->count == keys->capacity) {
        keys->capacity = MAX(keys->capacity * 2, 16);
        keys->lists = mem_realloc(keys->lists, keys->capacity * sizeof(*keys->lists));
    }
    memmove(&keys->lists[at + 1], &keys->lists[at], (keys->count - at) * sizeof(*keys->lists));
    keys->count++;
    keys->lists[at] = (struct window_key_list){
        .window = window, .carried = {.is_sorted = true}, .fresh = {.is_sorted = true}};
    return &keys->lists[at];
}

/* Makes room for `more` items; returns the number of bytes by which the run has grown. */
static size_t make_room(struct window_key_run *run, uint32_t more)
{
    if (run->count + more <= run->capacity)
        return 0;
    size_t before = run_bytes(run);
    run->capacity = MAX(MAX(run->capacity * 2, 64), run->count + more);
    run->items = mem_realloc(run->items, run_bytes(run));
    return run_bytes(run) - before;
}

bool window_keys_add(struct window_keys *keys, int64_t window, const struct window_key *key, bool is_carried)
{
    if (window < keys->from)
        return true;
    struct window_key_list *list = list_of(keys, window);
    struct window_key_run *run = is_carried ? &list->carried : &list->fresh;
    keys->bytes += make_room(run, 1);
    run->is_sorted =
        run->is_sorted && (run->count == 0 || window_key_compare(&run->items[run->count - 1], key) <= 0);
    run->items[run->count++] = *key;
    return keys->bytes <= keys->budget_bytes;
}

static void sort(struct window_key_run *run)
{
    if (!run->is_sorted)
        qsort(run->items, run->count, sizeof(*run->items), compare);
}

/* Merges both runs into `out`, each key once. */
static void merge(const struct window_key_run *a, const struct window_key_run *b, struct window_key_run *out)
{
    uint32_t i = 0, k = 0;
    out->count = 0;
    (void)make_room(out, a->count + b->count);
    while (i < a->count || k < b->count) {
        bool is_a = k == b->count || (i < a->count && window_key_compare(&a->items[i], &b->items[k]) <= 0);
        const struct window_key *next = is_a ? &a->items[i++] : &b->items[k++];
        if (out->count == 0 || window_key_compare(&out->items[out->count - 1], next) != 0)
            out->items[out->count++] = *next;
    }
}

uint32_t window_keys_take(struct window_keys *keys, int64_t window, struct window_key **items)
{
    uint32_t before = 0;
    while (before < keys->count && keys->lists[before].window < window)
        before++;
    drop_lists(keys, before);
    if (keys->count == 0 || keys->lists[0].window > window)
        return 0;
    struct window_key_list *list = &keys->lists[0];
    sort(&list->carried);
    sort(&list->fresh);
    merge(&list->carried, &list->fresh, &keys->merged);
    drop_lists(keys, 1);
    *items = keys->merged.items;
    return keys->merged.count;
}
