/*
 * Memory that a model keeps to: users' entries beyond it lie in cold stores (learners/histories/keep.c). They get what
 * the rest leaves: the network, items, values and the step's arrays, which stay in memory, since each step or search
 * reads them.
 */
#include "learners/sequential/internal.h"

#include "learners/tables/cold.h"

enum { LEAST = 8 }; /* entries have at least this part of the memory */

void sequential_set_cold(struct sequential *s,
                         struct cold_store *(*make)(void *of, uint32_t number, size_t row_bytes), void *of)
{
    uint32_t first = 1 + s->options.sides + s->options.contexts; /* of the histories, in sequential_tables */
    for (uint32_t i = 1; i < histories_tables(s->histories); i++) { /* 0: the index */
        struct table *t = histories_table(s->histories, i);
        table_cold_init(t, make(of, first + i, table_stored_bytes(t)));
    }
}

/* Bytes of what stays in memory, without the histories' index. */
static size_t resident(const struct sequential *s)
{
    size_t token = sizeof(struct history_entry), row = s->options.dim * sizeof(float);
    size_t bytes = s->memory.size + catalogue_bytes(s->items);
    for (uint32_t k = 0; k < s->options.sides; k++)
        bytes += catalogue_bytes(s->sides[k]);
    for (uint32_t k = 0; k < s->options.contexts; k++)
        bytes += catalogue_bytes(s->contexts[k]);
    bytes += (s->call.tokens_room + s->pending.tokens_room) * token;
    bytes += s->token_gradients_room * sizeof(float) + s->step.room * 2 * row;
    return bytes + s->passes.room * sizeof(*s->passes.users);
}

void sequential_keep(struct sequential *s, size_t bytes)
{
    size_t others = resident(s);
    histories_keep(s->histories, MAX(bytes - MIN(others, bytes), bytes / LEAST), (uint32_t)s->steps + 1);
}
