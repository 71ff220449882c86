/* Guests: copies of cold rows, by key, for the time of a call that only reads (cold.h). */
#include "learners/tables/cold.h"
#include "learners/tables/inline.h"

#include "core/base.h"
#include "core/mem.h"

#include <stdlib.h>

enum { GUESTS_LEAST = 256, BLOCK_ROWS = 64, ROW_ALIGN = 64 };

/* A block of BLOCK_ROWS rows, which follow it. */
struct guests_block {
    _Alignas(ROW_ALIGN) struct guests_block *next;
};
_Static_assert(sizeof(struct guests_block) % ROW_ALIGN == 0, "rows are aligned as in a table");

struct table_guests {
    struct table_row **slots; /* [mask + 1] open addressing; NULL: free */
    size_t mask, count;
    struct guests_block *blocks; /* the newest first */
};

static size_t place_of(const struct table_guests *g, uint64_t key)
{
    size_t i = (size_t)num_mix(key) & g->mask;
    while (g->slots[i] != NULL && g->slots[i]->key != key)
        i = (i + 1) & g->mask;
    return i;
}

static void slots_double(struct table_guests *g)
{
    struct table_row **old = g->slots;
    size_t size = old != NULL ? g->mask + 1 : 0;
    g->mask = MAX(2 * size, (size_t)GUESTS_LEAST) - 1;
    g->slots = mem_calloc(g->mask + 1, sizeof(struct table_row *));
    for (size_t i = 0; i < size; i++)
        if (old[i] != NULL)
            g->slots[place_of(g, old[i]->key)] = old[i];
    free(old);
}

static struct table_row *row_new(struct table_guests *g, size_t stride)
{
    size_t number = g->count++ % BLOCK_ROWS;
    if (number == 0) {
        struct guests_block *block = mem_aligned(ROW_ALIGN, sizeof(*block) + BLOCK_ROWS * stride);
        block->next = g->blocks;
        g->blocks = block;
    }
    return (struct table_row *)(void *)((unsigned char *)(g->blocks + 1) + number * stride);
}

void table_guests_add(struct table *t, const unsigned char *stored)
{
    uint64_t key;
    memcpy(&key, stored, sizeof(key));
    if (table_guest(t, key) != NULL)
        return;
    if (t->cold->guests == NULL)
        t->cold->guests = mem_calloc(1, sizeof(*t->cold->guests));
    struct table_guests *g = t->cold->guests;
    if (g->slots == NULL || 2 * g->count > g->mask)
        slots_double(g);
    struct table_row *row = row_new(g, t->stride);
    table_load_row(t, row, stored);
    row->step = TABLE_STEP_NONE;
    g->slots[place_of(g, key)] = row;
}

struct table_row *table_guest(const struct table *t, uint64_t key)
{
    const struct table_guests *g = t->cold != NULL ? t->cold->guests : NULL;
    return g != NULL && g->count > 0 ? g->slots[place_of(g, key)] : NULL;
}

void table_guests_begin(struct table *t)
{
    if (t->cold == NULL)
        return;
    t->cold->has_guests = true;
    t->cold->call++;
}

void table_guests_end(struct table *t)
{
    struct table_guests *g = t->cold != NULL ? t->cold->guests : NULL;
    if (t->cold != NULL)
        t->cold->has_guests = false;
    if (g == NULL || g->count == 0)
        return;
    for (struct guests_block *block = g->blocks, *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
    free(g->slots);
    *g = (struct table_guests){0};
    t->changes++; /* nobody may keep what look-ups found in this call (train/rows_cpu.c) */
}

void table_guests_free(struct table *t)
{
    table_guests_end(t);
    free(t->cold->guests);
    t->cold->guests = NULL;
}
