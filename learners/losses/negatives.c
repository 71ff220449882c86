#include "learners/losses/negatives.h"

#include "core/mem.h"
#include "kernels/num.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "states are little-endian, and copied as they lie");

/* The high half of hash * count: uniform below count, up to count / 2^64. */
static uint32_t below(uint64_t hash, uint32_t count)
{
    uint64_t low = (hash & UINT32_MAX) * count >> 32;
    return (uint32_t)(((hash >> 32) * count + low) >> 32);
}

/* The k with log(k + 1) <= u log(n + 1) < log(k + 2), for u uniform in [0, 1); rounding may leave the bounds. */
static uint32_t log_uniform(uint64_t hash, uint32_t count)
{
    double u = (double)(hash >> 11) * 0x1p-53;
    double k = floor(num_exp(u * num_log((double)count + 1.0))) - 1.0;
    if (k < 0.0)
        return 0;
    return k < (double)count ? (uint32_t)k : count - 1;
}

uint32_t negatives_place(const struct negatives *n, uint64_t identity, uint64_t draw)
{
    leat_assert(n->count > 0);
    uint64_t hash = num_chance(n->seed, identity, draw);
    return n->draw == NEGATIVES_UNIFORM ? below(hash, n->count) : log_uniform(hash, n->count);
}

double negatives_log_q(const struct negatives *n, uint32_t place, uint32_t draws)
{
    leat_assert(draws > 0 && place < n->count);
    double expected = (double)draws / (double)n->count;
    if (n->draw == NEGATIVES_LOG_UNIFORM) {
        double share = num_log1p_unit(1.0 / ((double)place + 1.0)) / num_log((double)n->count + 1.0);
        expected = (double)draws * share;
    }
    return num_log(expected);
}

void negatives_draw(const struct negatives *n, uint64_t identity, uint32_t draws, uint32_t *numbers,
                    double *log_q)
{
    for (uint32_t i = 0; i < draws; i++) {
        uint32_t place = negatives_place(n, identity, i);
        numbers[i] = n->live != NULL ? n->live[place] : place;
        if (log_q != NULL)
            log_q[i] = negatives_log_q(n, place, draws);
    }
}

void frequencies_init(struct frequencies *f, double rate, double initial)
{
    leat_assert(rate > 0.0 && rate <= 1.0 && initial >= 1.0 && isfinite(initial));
    *f = (struct frequencies){.rate = rate, .initial = initial};
}

void frequencies_free(struct frequencies *f)
{
    free(f->last);
    free(f->intervals);
    *f = (struct frequencies){0};
}

/* Makes room for numbers below count. */
static void reserve(struct frequencies *f, uint32_t count)
{
    if (count <= f->count)
        return;
    if (count > f->capacity) {
        uint32_t capacity = f->capacity > UINT32_MAX / 2 ? UINT32_MAX : 2 * f->capacity;
        f->capacity = capacity > count ? capacity : count;
        f->last = mem_realloc(f->last, f->capacity * sizeof(*f->last));
        f->intervals = mem_realloc(f->intervals, f->capacity * sizeof(*f->intervals));
    }
    for (uint32_t i = f->count; i < count; i++)
        f->last[i] = 0, f->intervals[i] = f->initial;
    f->count = count;
}

void frequencies_add(struct frequencies *f, uint32_t number, uint64_t time)
{
    leat_assert(number < UINT32_MAX && time < UINT64_MAX);
    reserve(f, number + 1);
    uint64_t last = f->last[number];
    if (last == time + 1)
        return;
    if (last > 0) {
        leat_assert(time + 1 > last);
        double interval = (1.0 - f->rate) * f->intervals[number] + f->rate * (double)(time + 1 - last);
        f->intervals[number] = interval > 1.0 ? interval : 1.0; /* rounding must not lead below 1 */
    }
    f->last[number] = time + 1;
}

void frequencies_forget(struct frequencies *f, uint32_t number)
{
    if (number < f->count)
        f->last[number] = 0, f->intervals[number] = f->initial;
}

double frequencies_log_q(const struct frequencies *f, uint32_t number, uint32_t draws)
{
    leat_assert(draws > 0);
    double interval = number < f->count ? f->intervals[number] : f->initial;
    return num_log((double)draws / interval);
}

double negatives_in_batch(const struct negatives_batch *batch, const struct frequencies *f, uint32_t target,
                          const float **rows, uint32_t *numbers, double *log_q)
{
    leat_assert(batch->targets > 1 && target < batch->targets);
    uint32_t others = batch->targets - 1;
    for (uint32_t i = 0; i < others; i++) {
        uint32_t other = i < target ? i : i + 1;
        rows[i] = batch->rows[other];
        numbers[i] = batch->positives[other];
        log_q[i] = frequencies_log_q(f, numbers[i], others);
    }
    return frequencies_log_q(f, batch->positives[target], others);
}

void frequencies_save(const struct frequencies *f, struct byte_buffer *out)
{
    for (uint32_t i = 0; i < f->count; i++) {
        buffer_append(out, &f->last[i], sizeof(f->last[i]));
        buffer_append(out, &f->intervals[i], sizeof(f->intervals[i]));
    }
}

bool frequencies_restore(struct frequencies *f, const void *bytes, size_t length, uint32_t numbers_max,
                         uint64_t time, char reason[FREQUENCIES_REASON])
{
    enum { ENTRY = 16 };
    const char *from = bytes;
    size_t count = length / ENTRY;
    if (length % ENTRY != 0 || count > numbers_max) {
        snprintf(reason, FREQUENCIES_REASON,
                 "item frequencies: expected 16 bytes for each of up to %" PRIu32 " items, found %zu bytes",
                 numbers_max, length);
        return false;
    }
    for (int pass = 0; pass < 2; pass++) { /* checks all, then takes all */
        for (size_t i = 0; i < count; i++) {
            uint64_t last;
            double interval;
            memcpy(&last, from + i * ENTRY, sizeof(last));
            memcpy(&interval, from + i * ENTRY + sizeof(last), sizeof(interval));
            bool is_good = interval >= 1.0 && isfinite(interval) && (last == 0 || last - 1 <= time);
            if (pass == 0 && !is_good) {
                snprintf(reason, FREQUENCIES_REASON,
                         "item frequencies: expected an interval of 1 or more and a time up to %" PRIu64
                         " for item %zu, found %g and %" PRIu64,
                         time, i, interval, last - 1);
                return false;
            }
            if (pass == 1)
                f->last[i] = last, f->intervals[i] = interval;
        }
        f->count = pass == 0 ? 0 : f->count;
        if (pass == 0)
            reserve(f, (uint32_t)count);
    }
    return true;
}
