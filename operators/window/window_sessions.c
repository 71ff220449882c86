/* Sessions: a group's sessions are panes of its entry. A pane's index is the session's first time; its facts
 * hold the last time. A row that is no further than the gap from a session joins it, and may join two: the
 * earlier session then takes in the later.
 *
 * Timers. `armed` is the time of a session's timer. If it is below the watermark, the session has another
 * timer between the watermark and the time at which the session is closed. When a timer comes, the session
 * gives its row or, if it has grown, gets another timer. So rows that only lengthen a session cost no timer.
 * Rows are emitted in the order (time at which the session is closed, hash, key).
 *
 * A closed session stays in its entry: that it is closed follows from the watermark, so a session that lies
 * on disk is read when it closes, and not written again. The entry expires with its last session; if it lives
 * on, its next row drops the closed sessions. Where many sessions close at once and lie on disk, the table is
 * scanned in its own order instead: `struct closing`.
 *
 * Where results change, a timer comes at the session's end, and another when it is closed. Keys that got rows
 * in the micro-batch, and with `every` all keys, are compared with the rows given of them (window_shown.c).
 * In this case closed sessions are removed from their entries. */
#include "operators/window/window.h"
#include "state/sorter.h"

#include <stdlib.h>

enum { GIVEN_MAX = 16, DUES_OF_TIMER = 2, TIMER_BYTES = 64, BUDGET_SHARE = 4, CLOSING_SHARE = 8 };

/* --- Rows in --- */

static struct window_facts *facts_at(const struct window *window, const struct keyed_slot *slot, uint32_t i)
{
    return window_facts_of(window, panes_partials(&window->panes, slot, i));
}

uint32_t window_sessions_closed(const struct window *window, const struct keyed_slot *slot, int64_t watermark)
{
    uint32_t i = 0, count = panes_count(slot);
    while (i < count && window_session_closed_at(window, facts_at(window, slot, i)) < watermark)
        i++;
    return i;
}

/* Finds the sessions that a row of event time `time` joins: *count panes, the first of which is returned.
 * open: the index of the first session that is not closed. */
static uint32_t find_joined(const struct window *window, const struct keyed_slot *slot, uint32_t open,
                            int64_t time, uint32_t *count)
{
    int64_t gap = window->shape.size_us;
    uint32_t end = panes_below(&window->panes, slot, time_add(time_add(time, gap), 1)), first;
    end = MAX(end, open);
    first = end;
    while (first > open && time_add(facts_at(window, slot, first - 1)->last_time, gap) >= time)
        first--;
    *count = end - first;
    leat_assert(*count <= 2);
    return first;
}

/* Drops the first `closed` sessions of an entry. */
static void drop_closed(struct window *window, struct keyed_slot *slot, uint32_t closed)
{
    int64_t first = closed == panes_count(slot) ? INT64_MAX : panes_index(&window->panes, slot, closed);
    panes_drop(&window->panes, slot, first);
}

/* The next time, not before `time`, at which the session needs a timer: its end if it gives a row then, else
 * when it is closed. */
static int64_t next_time(const struct window *window, const struct window_facts *facts, int64_t time)
{
    int64_t end = MIN(window_session_end(window, facts), TIME_MAX - 1);
    return window_gives_at_end(window) && end >= time ? end : window_session_closed_at(window, facts);
}

/* Sets the session's timer. The entry must have been marked as changed. */
static void arm(struct window *window, struct key key, uint64_t hash, struct window_facts *facts, int64_t at)
{
    facts->armed = at;
    time_queue_push(window->timers, at, key, hash, (struct str){"", 0});
}

enum window_taken window_sessions_add(struct operator_context *context, struct window *window,
                                      struct keyed_slot *slot, uint64_t hash, struct panes_row *update)
{
    struct window_facts alone = {.last_time = update->time};
    int64_t closed_at = window_session_closed_at(window, &alone), start;
    uint32_t closed = window_sessions_closed(window, slot, context->watermark);
    uint32_t joined, i = find_joined(window, slot, closed, update->time, &joined);
    if (joined == 0 && closed_at < context->watermark)
        return WINDOW_LATE;
    if (closed > 0)
        drop_closed(window, slot, closed);
    i -= closed;
    if (joined == 2 && !panes_join(&window->panes, slot, i, update))
        return WINDOW_FULL;
    start = joined == 0 ? update->time : panes_index(&window->panes, slot, i);
    update->pane = start;
    update->expire_us = closed_at;
    if (!panes_update(&window->panes, slot, update))
        return WINDOW_FULL;
    i = panes_below(&window->panes, slot, start);
    if (update->time < start)
        panes_move(&window->panes, slot, i, update->time);
    struct window_facts *facts = facts_at(window, slot, i);
    int64_t next = next_time(window, facts, context->watermark);
    if (joined == 0 || facts->armed > next)
        arm(window, slot->key, hash, facts, next);
    if (window->has_changes)
        window_touch(window, &(struct window_key){hash, slot->key}, 0);
    return WINDOW_TAKEN;
}

/* --- Rows out --- */

/* A session whose timer has come. */
struct due {
    int64_t time; /* event time of the timer, microseconds */
    uint64_t hash;
    struct keyed_slot *slot;
    uint32_t record; /* index in timers.records */
    int64_t start;
};

static int compare_due(const void *a, const void *b)
{
    const struct due *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    int order = memcmp(&x->slot->key, &y->slot->key, sizeof(x->slot->key));
    return order != 0 ? order : x->start < y->start ? -1 : x->start > y->start;
}

static void give_session(struct operator_context *context, struct window *window, struct window_out *out,
                         const struct keyed_slot *slot, uint32_t i)
{
    const struct window_facts *facts = facts_at(window, slot, i);
    int64_t start = panes_index(&window->panes, slot, i), end = window_session_end(window, facts);
    struct window_row row = {.prefix = panes_prefix(slot),
                             .start = facts->first_time,
                             .end = end,
                             .time = time_add(end, -1),
                             .order = {.place = (uint16_t)(1 + context->place),
                                       .time = window_session_closed_at(window, facts),
                                       .tie = key_hash(slot->key)}};
    panes_sum_clear(&window->panes, &window->sum);
    panes_read(&window->panes, slot, start, start, &window->sum);
    window_out_add(context, window, out, &row);
}

/* Sets dues[] to the open sessions that the timer is for: the session that closes at the timer's time, and
 * the session whose `armed` is that time. Returns the number of these sessions, at most two: sessions of a
 * key are further apart than the gap, so no two can end, or close, at one time; but with `final` all sessions
 * close together, and the first stands for all. */
static uint32_t find_due(const struct operator_context *context, const struct window *window,
                         struct keyed_slot *slot, const struct time_record *record, struct due *dues)
{
    uint32_t count = slot == NULL ? 0 : panes_count(slot), found = 0;
    for (uint32_t i = count == 0 ? 0 : window_sessions_closed(window, slot, context->watermark); i < count;
         i++) {
        const struct window_facts *facts = facts_at(window, slot, i);
        int64_t at = next_time(window, facts, record->time_us);
        bool is_armed = facts->armed == record->time_us && at >= record->time_us;
        if (!is_armed && (window->has_changes || at != record->time_us))
            continue;
        if (window->mode == EMIT_FINAL && found > 0)
            break;
        leat_assert(found < DUES_OF_TIMER);
        dues[found++] = (struct due){
            .time = at, .hash = record->hash, .slot = slot, .start = panes_index(&window->panes, slot, i)};
    }
    return found;
}

/* Adds the row of the session that is due; with `final` also the rows of all sessions behind it. */
static void take_closed(struct operator_context *context, struct window *window, struct window_out *out,
                        const struct due *due)
{
    uint32_t i = panes_below(&window->panes, due->slot, due->start), count = panes_count(due->slot);
    do {
        give_session(context, window, out, due->slot, i);
    } while (window->mode == EMIT_FINAL && ++i < count);
}

/* Gives the session another timer, at due->time. */
static void arm_again(struct window *window, const struct due *due)
{
    uint32_t i = panes_below(&window->panes, due->slot, due->start);
    panes_move(&window->panes, due->slot, i, due->start); /* marks the entry as changed */
    arm(window, due->slot->key, due->hash, facts_at(window, due->slot, i), due->time);
}

static void arm_sessions(struct window *window, struct keyed_slot *slot, int64_t watermark)
{
    for (uint32_t i = 0; i < panes_count(slot); i++) {
        int64_t at = window_session_closed_at(window, facts_at(window, slot, i));
        if (at >= watermark && facts_at(window, slot, i)->armed < watermark)
            arm_again(window, &(struct due){.time = at,
                                            .hash = key_hash(slot->key),
                                            .slot = slot,
                                            .start = panes_index(&window->panes, slot, i)});
    }
}

/* Handles a due session of a window whose results change: emits the differences, then arms the session
 * again, or removes it if it is closed. watermark: the new one. */
static void take_changed(struct operator_context *context, struct window *window, struct window_out *out,
                         const struct due *due, struct keyed_slot *shown, int64_t watermark)
{
    uint32_t i = panes_below(&window->panes, due->slot, due->start);
    int64_t closed_at = window_session_closed_at(window, facts_at(window, due->slot, i));
    if (window_gives_at_end(window))
        window_shown_compare(context, window, out, due->slot, shown, watermark, due->time);
    if (closed_at >= watermark) {
        struct due later = *due;
        later.time = closed_at;
        arm_again(window, &later);
        return;
    }
    panes_remove(&window->panes, due->slot, i);
    window_shown_forget(window, due->slot, shown);
}

/* Up to BATCH_ROWS timers that are handled together, and the sessions that are due. */
struct timers {
    struct time_record records[BATCH_ROWS];
    struct due dues[DUES_OF_TIMER * BATCH_ROWS];
    uint32_t count, due_count;
    /* Keys whose sessions gave their rows at the time and hash of `last`: their other timers are ignored. */
    struct due last;
    struct key given[GIVEN_MAX];
    uint32_t given_count;
};

static bool was_given(const struct timers *timers, const struct time_record *record)
{
    for (uint32_t i = 0; i < timers->given_count; i++)
        if (timers->last.time == record->time_us && timers->last.hash == record->hash &&
            key_equal(timers->given[i], record->key))
            return true;
    return false;
}

/* Finds the sessions that are due, in order, each once. The slots are in a bracket. */
static void find_dues(const struct operator_context *context, struct window *window, struct timers *timers)
{
    struct due *dues = timers->dues;
    uint32_t count = 0;
    for (uint32_t i = 0; i < timers->count; i++) {
        const struct time_record *record = &timers->records[i];
        if (was_given(timers, record))
            continue;
        uint32_t found = find_due(context, window, window->look->slots[i], record, &dues[count]);
        for (; found > 0; found--)
            dues[count++].record = i;
    }
    if (count > 1)
        qsort(dues, count, sizeof(*dues), compare_due);
    timers->due_count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || compare_due(&dues[i - 1], &dues[i]) != 0)
            dues[timers->due_count++] = dues[i];
}

/* Whether the session's row may be emitted now: all timers before its time and hash have been popped.
 * Notes keys at exactly that time and hash in `given`; if `given` is full, the session must get another
 * timer. */
static bool is_its_turn(struct timers *timers, const struct due *due)
{
    const struct due *last = &timers->last;
    if (due->time != last->time || due->hash != last->hash)
        return due->time < last->time || (due->time == last->time && due->hash < last->hash);
    if (timers->given_count == GIVEN_MAX)
        return false;
    timers->given[timers->given_count++] = due->slot->key;
    return true;
}

/* Handles timers that were popped together. A session gets another timer if its time is not below the
 * watermark, because the session has grown, or if timers before that time may not have been popped yet. If
 * fewer than BATCH_ROWS timers were popped, there are no more below the watermark. */
static void take_timers(struct operator_context *context, struct window *window, struct timers *timers,
                        int64_t watermark)
{
    struct window_look *look = window->look;
    struct window_out out = {0};
    for (uint32_t i = 0; i < timers->count; i++) {
        look->keys[i] = timers->records[i].key;
        look->hashes[i] = timers->records[i].hash;
    }
    keyed_look(window->table, look->keys, look->hashes, timers->count, look->slots);
    if (window->has_changes)
        keyed_begin(window->shown, look->keys, look->hashes, timers->count, look->shown);
    find_dues(context, window, timers);
    const struct time_record *end = &timers->records[timers->count - 1];
    struct due last = {.time = watermark}; /* sessions whose turn it is are before this */
    if (timers->count == BATCH_ROWS)
        last = (struct due){.time = end->time_us, .hash = end->hash};
    if (last.time != timers->last.time || last.hash != timers->last.hash)
        timers->given_count = 0;
    timers->last = last;
    for (uint32_t i = 0; i < timers->due_count; i++) {
        struct due *due = &timers->dues[i];
        if (!is_its_turn(timers, due))
            arm_again(window, due);
        else if (window->has_changes)
            take_changed(context, window, &out, due, look->shown[due->record], watermark);
        else
            take_closed(context, window, &out, due);
    }
    if (window->has_changes)
        keyed_end(window->shown);
    keyed_end(window->table);
    window_out_end(context, &out);
}

static void take_all_timers(struct operator_context *context, struct window *window, int64_t watermark)
{
    struct timers *timers = arena_alloc(context->scratch, sizeof(*timers));
    timers->last = (struct due){.time = TIME_MIN};
    timers->given_count = 0;
    do {
        timers->count = 0;
        while (timers->count < BATCH_ROWS &&
               time_queue_pop(window->timers, watermark, &timers->records[timers->count]))
            timers->count++;
        if (timers->count > 0)
            take_timers(context, window, timers, watermark);
    } while (timers->count == BATCH_ROWS);
}

/* --- Many sessions that close at once --- */

/* Whether the sessions that close are found by a scan. If many sessions close at one watermark and lie on
 * disk, to look up each by its key would be a random read. A scan goes through the table in its own order
 * instead, key group after key group; the sessions that close go into a sorter, which returns them in the
 * order in which timers would have. No entry changes: which sessions are closed follows from the watermark.
 * Timers below the watermark are dropped unread; a session that stays open and had such a timer gets
 * another. */
static bool is_scan_worth(const struct window *window, int64_t watermark)
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
    int64_t watermark; /* the new watermark; context->watermark is the one before */
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

/* Sets new timers for the keys noted while a key group was visited. */
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
            arm_sessions(window, look->slots[k], watermark);
        keyed_end(window->table);
    }
    window->touches_count = 0;
}

static void give_by_scan(struct operator_context *context, struct window *window, int64_t watermark)
{
    struct closing closing = {.context = context, .window = window, .watermark = watermark};
    struct sorted_record record;
    struct window_out out = {0};
    leat_assert(window->touches_count == 0);
    time_queue_discard(window->timers, watermark);
    closing.sorter = sorter_new(context->state_store, window->timers_bytes);
    const struct group_set *groups = context->groups;
    for (uint32_t group = group_set_next(groups, 0); group < KEY_GROUPS;
         group = group_set_next(groups, group + 1)) {
        keyed_scan_group(window->table, group, visit, &closing);
        arm_touched(window, watermark);
    }
    while (sorter_next(closing.sorter, &record)) {
        struct keyed_slot slot = {.key = record.key, .bits = (uint64_t)(uintptr_t)record.data.data};
        give_session(context, window, &out, &slot, 0);
        if (out.full.count > 0)
            window_out_end(context, &out);
    }
    window_out_end(context, &out);
    sorter_free(closing.sorter);
    buffer_free(&closing.entry);
}

/* --- Changes --- */

/* Compares the sessions of up to BATCH_ROWS keys with the rows emitted for them, and emits the changes.
 * copies: the keys' entries; NULL: the entries are looked up. */
static void compare_keys(struct operator_context *context, struct window *window,
                         const struct window_key *items, const struct keyed_slot *copies, uint32_t count,
                         int64_t ended_before, int64_t time)
{
    struct window_look *look = window->look;
    struct window_out out = {0};
    for (uint32_t i = 0; i < count; i++) {
        look->keys[i] = items[i].key;
        look->hashes[i] = items[i].hash;
    }
    if (copies == NULL)
        keyed_look(window->table, look->keys, look->hashes, count, look->slots);
    keyed_begin(window->shown, look->keys, look->hashes, count, look->shown);
    for (uint32_t i = 0; i < count; i++) {
        const struct keyed_slot *slot = copies == NULL ? look->slots[i] : &copies[i];
        if (slot != NULL)
            window_shown_compare(context, window, &out, slot, look->shown[i], ended_before, time);
    }
    keyed_end(window->shown);
    if (copies == NULL)
        keyed_end(window->table);
    window_out_end(context, &out);
}

/* Emits the changes of the keys that got rows in this micro-batch. */
static void give_changes(struct operator_context *context, struct window *window)
{
    struct window_key items[BATCH_ROWS];
    int64_t ended_before = window_gives_at_end(window) ? context->watermark : TIME_MAX;
    uint32_t count = 0;
    window_sort_touches(window);
    for (uint32_t i = 0; i < window->touches_count; i++) {
        const struct window_touch *touch = &window->touches[i];
        if (i > 0 && window_key_compare(&touch[-1].key, &touch->key) == 0)
            continue;
        if (count == BATCH_ROWS) {
            compare_keys(context, window, items, NULL, count, ended_before, TIME_MIN);
            count = 0;
        }
        items[count++] = touch->key;
    }
    if (count > 0)
        compare_keys(context, window, items, NULL, count, ended_before, TIME_MIN);
}

/* Visits a key group's entries: copies those that have sessions. */
static void copy_any(void *argument, const struct keyed_slot *slot)
{
    if (panes_count(slot) > 0)
        window_copy_entry(argument, slot);
}

/* `every` fires: emits the changes of all keys, key group by key group. */
static void give_early(struct operator_context *context, struct window *window)
{
    struct window_key items[BATCH_ROWS];
    struct keyed_slot *copies = arena_alloc(context->scratch, BATCH_ROWS * sizeof(*copies));
    const struct group_set *groups = context->groups;
    for (uint32_t group = group_set_next(groups, 0); group < KEY_GROUPS;
         group = group_set_next(groups, group + 1)) {
        window_copy_group(window, group, copy_any, window);
        for (uint32_t i = 0, count; i < window->copies_count; i += count) {
            count = MIN(window->copies_count - i, BATCH_ROWS);
            for (uint32_t k = 0; k < count; k++) {
                items[k] = window->copy_list[i + k].key;
                copies[k] = window_copy_slot(window, &window->copy_list[i + k]);
            }
            compare_keys(context, window, items, copies, count, TIME_MAX, TIME_MAX);
        }
    }
}

void window_sessions_advance(struct operator_context *context, struct window *window, int64_t watermark)
{
    if (window->touches_count > 0)
        give_changes(context, window);
    if (is_scan_worth(window, watermark))
        give_by_scan(context, window, watermark);
    else
        take_all_timers(context, window, watermark);
    if (window_fires(window, context->watermark, watermark))
        give_early(context, window);
}
