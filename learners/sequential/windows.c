/* Windows of tokens: what a user did before an event, from the histories and from the events of the same call. */
#include "learners/sequential/internal.h"

#include "core/mem.h"
#include "kernels/num.h"

#include <stdlib.h>

/* --- Windows in a row --- */

void windows_clear(struct sequential_windows *w)
{
    w->tokens_count = w->count = 0;
}

void windows_free(struct sequential_windows *w)
{
    free(w->tokens);
    free(w->items);
    *w = (struct sequential_windows){0};
}

struct sequential_window *windows_add(struct sequential_windows *w)
{
    if (w->count == w->room) {
        w->room = w->room == 0 ? 64 : 2 * w->room;
        w->items = mem_realloc(w->items, w->room * sizeof(*w->items));
    }
    struct sequential_window *window = &w->items[w->count++];
    *window = (struct sequential_window){.first = w->tokens_count};
    return window;
}

struct history_entry *windows_room(struct sequential_windows *w, size_t count)
{
    if (w->tokens_room - w->tokens_count < count) {
        w->tokens_room = MAX(2 * w->tokens_room, w->tokens_count + count);
        w->tokens = mem_realloc(w->tokens, w->tokens_room * sizeof(*w->tokens));
    }
    return w->tokens + w->tokens_count;
}

struct sequential_window *windows_decode(struct sequential_windows *w, struct history_view *view)
{
    struct sequential_window *window = windows_add(w);
    struct history_entry *at = windows_room(w, view->length);
    uint32_t most = view->length;
    while (window->length < most && history_next(view, at + window->length))
        window->length++;
    w->tokens_count += window->length;
    return window;
}

void windows_copy(struct sequential_windows *w, const struct sequential_window *window,
                  const struct history_entry *tokens)
{
    struct sequential_window *added = windows_add(w);
    size_t first = added->first;
    *added = *window;
    added->first = first;
    memcpy(windows_room(w, window->length), tokens, window->length * sizeof(*tokens));
    w->tokens_count += window->length;
}

/* --- The windows of a call --- */

/* The place of a user in the call's map: the user's, or an empty one, which becomes the user's. */
static uint32_t *last_of(struct sequential *s, uint64_t user)
{
    size_t mask = ARRAY_COUNT(s->users) - 1, at = num_mix(user) & mask;
    while (s->users[at].round == s->users_round && s->users[at].user != user)
        at = (at + 1) & mask;
    if (s->users[at].round != s->users_round) {
        s->users[at].round = s->users_round;
        s->users[at].user = user;
        s->users[at].last = 0;
    }
    return &s->users[at].last;
}

static void map_begin(struct sequential *s)
{
    if (++s->users_round == 0) { /* the rounds of four billion calls ago look like this one's */
        memset(s->users, 0, sizeof(s->users));
        s->users_round = 1;
    }
}

/* Finds each event's earlier one in the call, and the views of users' histories: views[i] of the first event of a
 * user. */
static void find_users(struct sequential *s, const struct sequential_event *events, uint32_t n)
{
    map_begin(s);
    for (uint32_t i = 0; i < n; i++) {
        leat_assert(events[i].user != 0);
        uint32_t *last = last_of(s, events[i].user);
        s->events[i] = (struct sequential_call_event){.user = events[i].user, .previous = *last};
        s->keys[i] = *last == 0 ? events[i].user : 0;
        *last = i + 1;
    }
    histories_find(s->histories, s->keys, n, (uint32_t)s->steps + 1, s->views);
}

/* The number, plus 1, of a value; 0: absent. */
static uint32_t number_of(const struct sequential *s, struct catalogue *catalogue,
                          const struct items_value *value, uint32_t seconds, bool adds)
{
    struct items_ref ref;
    if (value->key == 0)
        return 0;
    if (adds) {
        enum items_added added = catalogue_add(catalogue, value, seconds, (uint32_t)s->steps + 1, &ref);
        return added == ITEMS_FOUND || added == ITEMS_NEW ? ref.number + 1 : 0;
    }
    return catalogue_find(catalogue, value->key, &ref) ? ref.number + 1 : 0;
}

/* The window of an event whose user had another one earlier in the call: that event's window and the event itself. */
static void extend(struct sequential *s, uint32_t i)
{
    const struct sequential_call_event *before = &s->events[s->events[i].previous - 1];
    struct sequential_windows *w = &s->call;
    struct sequential_window *window = windows_add(w);
    struct sequential_window old = w->items[s->events[i].previous - 1];
    uint32_t history = s->options.history;
    s->events[i].count = before->count + before->is_appended;
    if (before->count == 0 && histories_has_expired(s->histories, before->entry.seconds))
        s->events[i].count = 0; /* the event before came so late that its user is gone again */
    if (s->events[i].count == 0)
        return;
    uint64_t dropped =
        history_window(s->events[i].count, history).start - history_window(before->count, history).start;
    struct history_entry *at = windows_room(w, (size_t)old.length + 1);
    for (uint32_t k = (uint32_t)MIN(dropped, old.length); k < old.length; k++)
        at[window->length++] = w->tokens[old.first + k];
    if (before->is_appended && dropped <= old.length)
        at[window->length++] = before->entry;
    w->tokens_count += window->length;
}

static enum sequential_mark mark_of(const struct sequential_event *e)
{
    if (!e->teaches)
        return MARK_TEACHES_NOT;
    return e->is_unlabelled ? MARK_UNLABELLED : MARK_TEACHES;
}

/* What the event adds to its user's history. */
static void read_entry(struct sequential *s, const struct sequential_event *e, bool changes, uint32_t i,
                       struct sequential_seen *seen)
{
    const struct sequential_options *o = &s->options;
    struct sequential_call_event *event = &s->events[i];
    uint32_t seconds = history_seconds(e->time_us);
    bool adds = changes && e->teaches;
    event->entry = (struct history_entry){.seconds = seconds};
    seen->is_known = e->item.key != 0 && catalogue_find(s->items, e->item.key, &event->entry.item);
    event->is_appended = seen->is_known && changes;
    if (adds && e->item.key != 0) {
        enum items_added added =
            catalogue_add(s->items, &e->item, seconds, (uint32_t)s->steps + 1, &event->entry.item);
        event->is_appended = added == ITEMS_FOUND || added == ITEMS_NEW;
        s->unnumbered += !event->is_appended;
    }
    event->teaches = adds && event->is_appended;
    event->is_unlabelled = e->is_unlabelled;
    seen->item = event->entry.item;
    for (uint32_t k = 0; k < o->sides && event->is_appended; k++)
        event->entry.sides[k] = number_of(s, s->sides[k], &e->sides[k], seconds, adds);
    if (o->marks)
        event->entry.sides[o->sides] = mark_of(e);
    struct sequential_window *window = &s->call.items[i];
    for (uint32_t k = 0; k < o->contexts;
         k++) { /* a new value is learned, but has no part in the prediction */
        window->contexts[k] = number_of(s, s->contexts[k], &e->contexts[k], seconds, false);
        event->contexts[k] = number_of(s, s->contexts[k], &e->contexts[k], seconds, adds);
    }
    window->identity = e->identity;
    window->target = event->entry.item;
}

/* Lists the numbers of each window's items that are still there. */
static void list_numbers(struct sequential *s, uint32_t n, struct sequential_seen *seen)
{
    if (s->history_room < s->call.tokens_count) {
        s->history_room = s->call.tokens_room;
        s->history_numbers = mem_realloc(s->history_numbers, s->history_room * sizeof(*s->history_numbers));
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct sequential_window *window = &s->call.items[i];
        uint32_t *numbers = s->history_numbers + window->first, count = 0;
        for (uint32_t k = 0; k < window->length; k++) {
            struct items_ref ref = s->call.tokens[window->first + k].item;
            if (catalogue_is_live(s->items, ref))
                numbers[count++] = ref.number;
        }
        seen[i].history = numbers, seen[i].history_length = count;
    }
}

void sequential_windows_read(struct sequential *s, const struct sequential_event *events, uint32_t n,
                             bool changes, struct sequential_seen *seen)
{
    leat_assert(n <= SEQUENTIAL_CALL_MAX);
    windows_clear(&s->call);
    find_users(s, events, n);
    for (uint32_t i = 0; i < n; i++) {
        seen[i] = (struct sequential_seen){0};
        if (s->events[i].previous > 0) {
            extend(s, i);
        } else {
            s->events[i].count = s->views[i].count;
            (void)windows_decode(&s->call, &s->views[i]);
        }
        read_entry(s, &events[i], changes, i, &seen[i]);
        seen[i].length = s->call.items[i].length;
    }
    list_numbers(s, n, seen);
}
