/* Many sessions that close at one watermark and lie on disk: to look up each by its key would be a random
 * read. Instead the table is scanned in its own order, key group after key group; the sessions that close go
 * into a sorter, which returns them in the order in which timers would have. No entry changes: which sessions
 * are closed follows from the watermark. Timers below the watermark are dropped unread; a session that stays
 * open and had one of those gets another. */
#include "operators/window/window.h"
#include "state/sorter.h"

enum { TIMER_BYTES = 64, BUDGET_SHARE = 4, CLOSING_SHARE = 8 };

bool window_closing_is_worth(const struct window *window, int64_t watermark)
{
    uint64_t all, due;
    if (window->has_changes || !keyed_may_be_stored(window->table))
        return false;
    due = time_queue_count(window->timers, watermark, &all);
    return due > window->timers_bytes / BUDGET_SHARE / TIMER_BYTES && due >= all / CLOSING_SHARE;
}

struct closing {
    struct operator_context *context;
    struct window *window;
    int64_t watermark; /* the new one */
    struct sorter *sorter;
    struct byte_buffer entry;
};

/* Adds the session to the sorter, as an entry of its own. A record is the length (4 bytes), 4 unused bytes,
 * the entry, as keyed_read wants it. */
static void add_session(struct closing *closing, const struct keyed_slot *slot, uint32_t i, int64_t at)
{
    struct byte_buffer *entry = &closing->entry;
    uint32_t head[KEYED_VALUE_HEADER / sizeof(uint32_t)] = {0};
    buffer_clear(entry);
    buffer_append(entry, head, sizeof(head));
    panes_extract(&closing->window->panes, slot, i, entry);
    head[0] = (uint32_t)(entry->length - sizeof(head));
    memcpy(entry->data, head, sizeof(head));
    sorter_add(closing->sorter, &(struct sorted_record){.time_us = at,
                                                        .hash = key_hash(slot->key),
                                                        .key = slot->key,
                                                        .data = {entry->data, entry->length}});
}

static void visit(void *argument, const struct keyed_slot *slot)
{
    struct closing *closing = argument;
    struct window *window = closing->window;
    uint32_t count = panes_count(slot);
    bool is_unarmed = false;
    for (uint32_t i = window_sessions_closed(window, slot, closing->context->watermark); i < count; i++) {
        const struct window_facts *facts = window_facts_of(window, panes_partials(&window->panes, slot, i));
        int64_t at = window_session_closed_at(window, facts);
        if (at < closing->watermark)
            add_session(closing, slot, i, at);
        else
            is_unarmed |= facts->armed < closing->watermark;
    }
    if (is_unarmed)
        window_touch(window, &(struct window_key){key_hash(slot->key), slot->key}, 0);
}

/* Arms the keys that the visits of a group have noted. */
static void arm_touched(struct window *window, int64_t watermark)
{
    struct window_look *look = window->look;
    for (uint32_t i = 0, count; i < window->touches_count; i += count) {
        count = MIN(window->touches_count - i, BATCH_ROWS);
        for (uint32_t k = 0; k < count; k++) {
            look->keys[k] = window->touches[i + k].key.key;
            look->hashes[k] = window->touches[i + k].key.hash;
        }
        keyed_look(window->table, look->keys, look->hashes, count, look->slots);
        for (uint32_t k = 0; k < count; k++)
            window_sessions_arm(window, look->slots[k], watermark);
        keyed_end(window->table);
    }
    window->touches_count = 0;
}

void window_closing_give(struct operator_context *context, struct window *window, int64_t watermark)
{
    struct closing closing = {.context = context, .window = window, .watermark = watermark};
    struct sorted_record record;
    struct window_out out = {0};
    uint32_t first, limit;
    leat_assert(window->touches_count == 0);
    time_queue_discard(window->timers, watermark);
    closing.sorter = sorter_new(context->state_store, window->timers_bytes);
    keyed_groups(context->lane, context->lanes, &first, &limit);
    for (uint32_t group = first; group < limit; group++) {
        keyed_scan_group(window->table, group, visit, &closing);
        arm_touched(window, watermark);
    }
    while (sorter_next(closing.sorter, &record)) {
        struct keyed_slot slot = {.key = record.key, .bits = (uint64_t)(uintptr_t)record.data.data};
        window_session_give(context, window, &out, &slot, 0);
        if (out.full != NULL)
            window_out_end(context, &out);
    }
    window_out_end(context, &out);
    sorter_free(closing.sorter);
    buffer_free(&closing.entry);
}
