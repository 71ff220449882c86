/* Changes of session rows: what was emitted for each session, so that it can be updated or deleted later.
 *
 * An output row of a session is identified by its group and the session's start. When the start changes,
 * or the session joins another one, the emitted row is deleted, and a delete carries the values that the
 * row had. So window->shown keeps, for each key, a list of the rows emitted for its sessions, by rising
 * start, with their encoded values. */
#include "operators/window/window.h"

/* A row that was emitted for a session. In the list its encoded values follow, padded to 8 bytes. */
struct given {
    int64_t start, end, time;
    int64_t tick; /* window->tick when the row was emitted */
    uint32_t bytes, spare;
};

static size_t given_bytes(uint32_t bytes)
{
    return sizeof(struct given) + ((bytes + 7) & ~7U);
}

static const struct given *given_at(struct str list, size_t at)
{
    return at == list.length ? NULL : (const struct given *)(const void *)(list.data + at);
}

static void keep(struct byte_buffer *list, const struct given *given, const char *values)
{
    static const char zeros[8];
    buffer_append(list, given, sizeof(*given));
    buffer_append(list, values, given->bytes);
    buffer_append(list, zeros, given_bytes(given->bytes) - sizeof(*given) - given->bytes);
}

/* Adds the session's present row to `out`, and appends the row with its values to the list. */
static void give(struct operator_context *context, struct window *window, struct window_out *out,
                 const struct keyed_slot *sessions, int64_t start, struct window_row *row,
                 struct byte_buffer *list)
{
    struct byte_buffer *values = &window->prefix;
    panes_sum_clear(&window->panes, &window->sum);
    panes_read(&window->panes, sessions, start, start, &window->sum);
    buffer_clear(values);
    row->keep = values;
    row->values.length = 0;
    window_out_add(context, window, out, row);
    row->order.sub++;
    struct given given = {row->start, row->end, row->time, window->tick, (uint32_t)values->length, 0};
    keep(list, &given, values->data);
}

/* Adds to `out` a delete of the row that was emitted before. */
static void take_back(struct operator_context *context, struct window *window, struct window_out *out,
                      const struct given *given, struct window_row *row)
{
    row->start = given->start;
    row->end = given->end;
    row->time = given->time;
    row->change = CHANGE_DELETE;
    row->keep = NULL;
    row->values = (struct str){(const char *)(given + 1), given->bytes};
    window_out_add(context, window, out, row);
    row->order.sub++;
}

/* Stores the list as the key's entry in window->shown, unless the entry is the same. */
static void replace(struct window *window, struct keyed_slot *shown, const struct byte_buffer *list,
                    int64_t expire_us)
{
    uint32_t bytes;
    const char *before = keyed_read(shown, &bytes);
    bool is_same = bytes == list->length && (bytes == 0 || memcmp(before, list->data, bytes) == 0);
    /* A longer expiry is written, too: the session has grown. */
    if (is_same && (bytes == 0 || shown->expire_us >= expire_us))
        return;
    char *data = keyed_write(window->shown, shown, (uint32_t)list->length, expire_us);
    if (list->length > 0)
        memcpy(data, list->data, list->length);
}

void window_shown_compare(struct operator_context *context, struct window *window, struct window_out *out,
                          const struct keyed_slot *sessions, struct keyed_slot *shown, int64_t ended_before,
                          int64_t time)
{
    uint32_t bytes, count = panes_count(sessions);
    struct str before;
    before.data = keyed_read(shown, &bytes);
    before.length = bytes;
    size_t at = 0;
    int64_t expire_us = TIME_MIN;
    struct byte_buffer *list = &window->given;
    buffer_clear(list);
    struct window_row row = {
        .prefix = panes_prefix(sessions),
        .order = {.place = (uint16_t)(1 + context->place), .time = time, .tie = key_hash(shown->key)}};
    for (uint32_t i = 0; i <= count; i++) {
        int64_t start = i < count ? panes_index(&window->panes, sessions, i) : TIME_MAX;
        const struct given *given = given_at(before, at);
        for (; given != NULL && given->start < start; given = given_at(before, at)) {
            take_back(context, window, out, given, &row);
            at += given_bytes(given->bytes);
        }
        if (i == count)
            break;
        const struct window_facts *facts =
            window_facts_of(window, panes_partials(&window->panes, sessions, i));
        expire_us = MAX(expire_us, window_session_closed_at(window, facts));
        bool was_given = given != NULL && given->start == start;
        row.start = start;
        row.end = window_session_end(window, facts);
        row.time = row.end - 1;
        row.change = was_given ? CHANGE_UPDATE : CHANGE_INSERT;
        if (row.end < ended_before && (!was_given || facts->last_tick > given->tick))
            give(context, window, out, sessions, start, &row, list);
        else if (was_given)
            keep(list, given, (const char *)(given + 1));
        if (was_given)
            at += given_bytes(given->bytes);
    }
    replace(window, shown, list, expire_us);
}

void window_shown_forget(struct window *window, const struct keyed_slot *sessions, struct keyed_slot *shown)
{
    uint32_t bytes, count = panes_count(sessions), i = 0;
    struct str before;
    before.data = keyed_read(shown, &bytes);
    before.length = bytes;
    struct byte_buffer *list = &window->given;
    const struct given *given;
    buffer_clear(list);
    for (size_t at = 0; (given = given_at(before, at)) != NULL; at += given_bytes(given->bytes)) {
        while (i < count && panes_index(&window->panes, sessions, i) < given->start)
            i++;
        if (i < count && panes_index(&window->panes, sessions, i) == given->start)
            keep(list, given, (const char *)(given + 1));
    }
    replace(window, shown, list, TIME_MIN);
}
