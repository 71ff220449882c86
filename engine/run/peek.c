#include "run/peek.h"

#include "core/mem.h"
#include "run/inspect.h"
#include "run/lanes/lanes.h"

#include <stdlib.h>

bool run_peek_can(const struct plan_node *node)
{
    return node->operator_kind != NULL && node->operator_kind->describe != NULL;
}

struct run_peek *run_peek_new(const struct plan_node *node, struct batch_pool *pool,
                              void (*done)(struct run_peek *peek), void *user)
{
    leat_assert(run_peek_can(node));
    struct run_peek *peek = mem_calloc(1, sizeof(*peek));
    peek->node = node;
    peek->done = done;
    peek->user = user;
    peek->why = "";
    peek->pool = pool;
    return peek;
}

void run_peek_free(struct run_peek *peek)
{
    if (peek == NULL)
        return;
    leat_assert(peek->end != RUN_PEEK_WAITS);
    for (uint32_t i = 0; i < peek->count; i++) {
        batch_release(peek->keys[i].row);
        buffer_free(&peek->keys[i].state);
    }
    arena_free(&peek->arena);
    free(peek);
}

bool run_peek_add(struct run_peek *peek, const struct str *words, uint32_t count)
{
    leat_assert(peek->count < RUN_PEEK_KEYS_MAX);
    struct run_peek_key *key = &peek->keys[peek->count++];
    struct str *copies = arena_array(&peek->arena, struct str, MAX(count, 1));
    for (uint32_t i = 0; i < count; i++)
        copies[i] = words[i].data == NULL ? words[i] : arena_str(&peek->arena, words[i]);
    *key = (struct run_peek_key){.words = copies, .count = count, .peek = peek};
    if (peek->node->tag == PLAN_LEARNER)
        return true;
    struct diag_list diags;
    struct key bytes;
    diag_list_init(&diags, &peek->arena);
    key->row = batch_new(peek->pool, peek->node->bound[0].schema, 1);
    if (state_key_parse(peek->node, copies, count, key->row, &bytes, &peek->arena, &diags)) {
        key->hash = key_hash(bytes);
        return true;
    }
    peek->end = RUN_PEEK_WRONG;
    peek->why = arena_printf(&peek->arena, "%s: %s", diags.items[0].message, diags.items[0].hint);
    return false;
}

enum run_peek_end run_peek_ask(struct run *run, struct run_peek *peek)
{
    leat_assert(peek->count > 0);
    return lanes_peek(run, peek);
}
