/* Requests: each event is encoded as if it came next, and nothing changes. With a cache of keys and values
 * (learners/train/kv_cache.h) the tokens that a user's last request had do not go through the network again; queries have
 * the same bits. */
#include "learners/sequential/internal.h"

#include "core/mem.h"
#include "learners/train/kv_cache.h"

#include <stdlib.h>

/* The requests of a call that want a query. */
struct sequential_asked {
    struct kv_request requests[SEQUENTIAL_CALL_MAX];
    uint32_t events[SEQUENTIAL_CALL_MAX]; /* their numbers in the call */
    uint32_t count;
    uint32_t *seconds; /* of the call's tokens */
    size_t seconds_room;
    float *queries; /* [SEQUENTIAL_CALL_MAX][dim] */
};

void sequential_set_cache(struct sequential *s, size_t budget_bytes, bool is_bf16)
{
    leat_assert(s->options.device == NULL);
    kv_cache_free(s->cache);
    s->cache =
        kv_cache_new(&(struct kv_cache_options){.budget_bytes = budget_bytes, .is_bf16 = is_bf16}, &s->net);
    if (s->asked != NULL)
        return;
    s->asked = mem_calloc(1, sizeof(*s->asked));
    s->asked->queries = mem_alloc((size_t)SEQUENTIAL_CALL_MAX * s->options.dim * sizeof(float));
}

void sequential_cache_clear(struct sequential *s)
{
    if (s->cache != NULL)
        kv_cache_clear(s->cache);
}

void sequential_cache_free(struct sequential *s)
{
    kv_cache_free(s->cache);
    if (s->asked != NULL) {
        free(s->asked->seconds);
        free(s->asked->queries);
    }
    free(s->asked);
}

static void list_requests(struct sequential *s, uint32_t n, const uint8_t *wants)
{
    struct sequential_asked *a = s->asked;
    a->count = 0;
    if (a->seconds_room < s->call.tokens_count) {
        a->seconds_room = s->call.tokens_room;
        a->seconds = mem_realloc(a->seconds, a->seconds_room * sizeof(*a->seconds));
    }
    for (size_t i = 0; i < s->call.tokens_count; i++)
        a->seconds[i] = s->call.tokens[i].seconds;
    for (uint32_t i = 0; i < n; i++) {
        const struct sequential_window *window = &s->call.items[i];
        if (!wants[i] || window->length == 0)
            continue;
        a->requests[a->count] =
            (struct kv_request){.key = s->events[i].user,
                                .start = history_window(s->events[i].count, s->options.history).start,
                                .length = window->length,
                                .seconds = a->seconds + window->first};
        a->events[a->count++] = i;
    }
}

static void fill(void *argument, size_t request, uint32_t from, uint32_t to, float *rows, size_t stride)
{
    const struct sequential *s = argument;
    const struct sequential_window *window = &s->call.items[s->asked->events[request]];
    const struct history_entry *tokens = s->call.tokens + window->first;
    for (uint32_t i = from; i < to; i++)
        sequential_put_token(s, &tokens[i], rows + (size_t)(i - from) * stride);
}

static void encode(struct sequential *s, uint32_t n, const uint8_t *wants, struct sequential_seen *seen)
{
    struct sequential_asked *a = s->asked;
    list_requests(s, n, wants);
    kv_cache_encode(s->cache, &s->net, a->requests, a->count, fill, s, a->queries);
    for (uint32_t i = 0; i < a->count; i++) {
        float *query = a->queries + (size_t)i * s->options.dim;
        sequential_add_contexts(s, &s->call.items[a->events[i]], query);
        seen[a->events[i]].query = query;
    }
}

void sequential_ask(struct sequential *s, const struct sequential_event *events, uint32_t n,
                    const uint8_t *wants, struct sequential_seen *seen)
{
    histories_guests_begin(s->histories);
    sequential_windows_read(s, events, n, false, seen);
    if (s->cache != NULL)
        encode(s, n, wants, seen);
    else
        sequential_give_queries(s, n, wants, seen);
    histories_guests_end(s->histories);
}
