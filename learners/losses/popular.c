#include "learners/losses/popular.h"

#include "core/mem.h"
#include "kernels/num.h"

#include <stdlib.h>

enum { FAN = 16, FAN_BITS = 4, CAPACITY_LEAST = 256 };

/* Ten occurrences tell how often an item occurs. */
static const double RATE = 0.1, INITIAL = 1000.0, POWER = 0.75;

void popularity_init(struct popularity *p)
{
    *p = (struct popularity){0};
    frequencies_init(&p->frequencies, RATE, INITIAL);
}

void popularity_free(struct popularity *p)
{
    frequencies_free(&p->frequencies);
    for (uint32_t l = 0; l < p->levels; l++)
        free(p->sums[l]);
    *p = (struct popularity){0};
}

static uint64_t weight_of(double interval)
{
    uint64_t weight = (uint64_t)(num_exp(-POWER * num_log(interval)) * 0x1p32);
    return MAX(weight, UINT64_C(1));
}

/* Makes room for numbers below count: the weights are kept, the sums above them made anew. */
static void reserve(struct popularity *p, uint32_t count)
{
    if (count <= p->capacity)
        return;
    size_t before = p->capacity, room = MAX(before, (size_t)CAPACITY_LEAST);
    while (room < count)
        room *= 2;
    leat_assert(room < UINT32_MAX);
    p->capacity = (uint32_t)room;
    p->sums[0] = mem_realloc(p->sums[0], room * sizeof(uint64_t));
    memset(p->sums[0] + before, 0, (room - before) * sizeof(uint64_t));
    uint32_t l = 1;
    for (; room > FAN; l++, room = (room + FAN - 1) / FAN) {
        size_t above = (room + FAN - 1) / FAN;
        p->sums[l] = mem_realloc(p->sums[l], above * sizeof(uint64_t));
        memset(p->sums[l], 0, above * sizeof(uint64_t));
        for (size_t i = 0; i < room; i++)
            p->sums[l][i / FAN] += p->sums[l - 1][i];
    }
    p->levels = l;
}

static void set_weight(struct popularity *p, uint32_t number, uint64_t weight)
{
    uint64_t change = weight - p->sums[0][number]; /* modulo 2^64, and so are the sums */
    for (uint32_t l = 0; l < p->levels; l++)
        p->sums[l][number >> (FAN_BITS * l)] += change;
    p->total += change;
}

void popularity_add(struct popularity *p, uint32_t number, uint64_t time, uint32_t items)
{
    struct frequencies *f = &p->frequencies;
    bool is_first = number >= f->count || f->last[number] == 0;
    frequencies_add(f, number, time);
    if (is_first)
        f->intervals[number] = MAX(INITIAL, (double)items);
    reserve(p, number + 1);
    set_weight(p, number, weight_of(f->intervals[number]));
}

void popularity_forget(struct popularity *p, uint32_t number)
{
    frequencies_forget(&p->frequencies, number);
    if (number < p->capacity)
        set_weight(p, number, 0);
}

double popularity_share(const struct popularity *p, uint32_t number)
{
    const struct frequencies *f = &p->frequencies;
    return number < f->count && f->last[number] > 0 ? 1.0 / f->intervals[number] : 0.0;
}

/* The high half of hash * total: uniform below total, up to total / 2^64. */
static uint64_t below(uint64_t hash, uint64_t total)
{
    uint64_t high = hash >> 32, low = hash & UINT32_MAX, t_high = total >> 32, t_low = total & UINT32_MAX;
    uint64_t middle = high * t_low + (low * t_low >> 32), other = low * t_high + (middle & UINT32_MAX);
    return high * t_high + (middle >> 32) + (other >> 32);
}

uint32_t popularity_draw(const struct popularity *p, uint64_t hash)
{
    leat_assert(p->total > 0);
    uint64_t left = below(hash, p->total);
    size_t at = 0;
    for (uint32_t l = p->levels; l-- > 0;) {
        const uint64_t *sums = p->sums[l];
        for (at *= FAN; left >= sums[at]; at++)
            left -= sums[at];
    }
    return (uint32_t)at;
}

void popularity_draws(const struct popularity *p, uint64_t seed, uint64_t identity, uint32_t draws,
                      uint32_t *numbers)
{
    for (uint32_t i = 0; i < draws; i++)
        numbers[i] = popularity_draw(p, num_chance(seed, identity, i));
}

void popularity_save(const struct popularity *p, struct byte_buffer *out)
{
    frequencies_save(&p->frequencies, out);
}

bool popularity_restore(struct popularity *p, const void *bytes, size_t length, uint32_t numbers_max,
                        uint64_t time, char reason[FREQUENCIES_REASON])
{
    struct popularity restored;
    popularity_init(&restored);
    struct frequencies *f = &restored.frequencies;
    if (!frequencies_restore(f, bytes, length, numbers_max, time, reason)) {
        popularity_free(&restored);
        return false;
    }
    reserve(&restored, f->count);
    for (uint32_t number = 0; number < f->count; number++)
        if (f->last[number] > 0)
            set_weight(&restored, number, weight_of(f->intervals[number]));
    popularity_free(p);
    *p = restored;
    return true;
}
