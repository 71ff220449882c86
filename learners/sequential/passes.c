/*
 * Passes over the histories, for inputs that end: each pass learns the window of every user once, each position but the
 * last being a target, in an order of users that chance gives for the pass. A pass ends with a step of what is left.
 * While events come, they only become part of the histories: so the window of a user is what the history has at the
 * end, at most the last `history` events.
 *
 * The list of users is made anew after a restore: users and chance are the same.
 */
#include "learners/sequential/internal.h"

#include "core/mem.h"
#include "kernels/num.h"

#include <stdlib.h>

static const uint64_t CHANCE_ORDER = UINT64_C(0x9a55), CHANCE_WINDOW = UINT64_C(0x9a56);

static bool add_user(void *argument, uint64_t key, uint64_t count)
{
    struct sequential_passes *p = argument;
    if (count < 2) /* it has no target */
        return true;
    if (p->count == p->room) {
        p->room = p->room == 0 ? 1024 : 2 * p->room;
        p->users = mem_realloc(p->users, p->room * sizeof(*p->users));
    }
    p->users[p->count++].key = key;
    return true;
}

static int by_place(const void *a, const void *b)
{
    const struct sequential_user *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* Puts the users in the order of the pass. */
static void order_users(struct sequential *s)
{
    struct sequential_passes *p = &s->passes;
    for (size_t i = 0; i < p->count; i++)
        p->users[i].place = num_chance(s->options.seed ^ CHANCE_ORDER, p->pass, p->users[i].key);
    qsort(p->users, p->count, sizeof(*p->users), by_place);
}

static void list_users(struct sequential *s)
{
    struct sequential_passes *p = &s->passes;
    p->count = 0;
    histories_walk(s->histories, add_user, p);
    p->is_listed = true;
    if (p->count == 0)
        p->pass = s->options.passes;
    p->at = MIN(p->at, p->count); /* of a checkpoint */
    order_users(s);
}

bool sequential_has_passes(const struct sequential *s)
{
    return s->passes.pass < s->options.passes;
}

double sequential_passes_share(const struct sequential *s)
{
    const struct sequential_passes *p = &s->passes;
    double of_pass = p->is_listed && p->count > 0 ? (double)p->at / (double)p->count : 0.0;
    return s->options.passes == 0 ? 1.0 : ((double)p->pass + of_pass) / (double)s->options.passes;
}

/* The windows of the next users become the step's. */
static void add_users(struct sequential *s)
{
    struct sequential_passes *p = &s->passes;
    uint32_t n = 0;
    for (; n < s->options.batch && p->at + n < p->count; n++)
        s->keys[n] = p->users[p->at + n].key;
    histories_find(s->histories, s->keys, n, (uint32_t)s->steps + 1, s->views);
    for (uint32_t i = 0; i < n; i++)
        sequential_add_older(s, &s->views[i], num_chance(s->options.seed ^ CHANCE_WINDOW, s->steps, i));
    p->at += n;
}

void sequential_learn_pass(struct sequential *s)
{
    struct sequential_passes *p = &s->passes;
    if (!p->is_listed)
        list_users(s);
    if (!sequential_has_passes(s)) /* there are no users */
        return;
    add_users(s);
    sequential_step(s);
    if (p->at < p->count)
        return;
    p->at = 0;
    p->pass++;
    if (sequential_has_passes(s))
        order_users(s);
}
