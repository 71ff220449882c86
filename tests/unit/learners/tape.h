/* Numbers in double with derivatives, for plain models in tests: a number is made of earlier ones, and go_back finds the
 * derivatives of one number by all before it (Griewank and Walther 2008, Evaluating Derivatives, section 3.2). */
#ifndef LEAT_TESTS_UNIT_LEARNERS_TAPE_H
#define LEAT_TESTS_UNIT_LEARNERS_TAPE_H

#include "core/mem.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

struct edge {
    uint32_t of;
    double slope;
};
struct number {
    double value, slope;
    size_t edges; /* behind its last edge */
};
static struct {
    struct number *numbers;
    struct edge *edges;
    size_t count, room, edges_count, edges_room;
} tape;

static inline void tape_clear(void)
{
    tape.count = tape.edges_count = 0;
}

static inline void tape_free(void)
{
    free(tape.numbers);
    free(tape.edges);
}

static inline uint32_t number(double value)
{
    if (tape.count == tape.room) {
        tape.room = tape.room * 2 + 1024;
        tape.numbers = mem_realloc(tape.numbers, tape.room * sizeof(*tape.numbers));
    }
    tape.numbers[tape.count] = (struct number){value, 0.0, tape.edges_count};
    return (uint32_t)tape.count++;
}

/* The number made last has this derivative by an earlier one. */
static inline void by(uint32_t of, double slope)
{
    if (tape.edges_count == tape.edges_room) {
        tape.edges_room = tape.edges_room * 2 + 1024;
        tape.edges = mem_realloc(tape.edges, tape.edges_room * sizeof(*tape.edges));
    }
    tape.edges[tape.edges_count++] = (struct edge){of, slope};
    tape.numbers[tape.count - 1].edges = tape.edges_count;
}

static inline double value(uint32_t a)
{
    return tape.numbers[a].value;
}

static inline uint32_t function(uint32_t a, double result, double slope)
{
    uint32_t n = number(result);
    by(a, slope);
    return n;
}

static inline uint32_t sum_of(uint32_t a, uint32_t b, double times) /* a + times b */
{
    uint32_t n = number(value(a) + times * value(b));
    by(a, 1.0), by(b, times);
    return n;
}

static inline uint32_t product(uint32_t a, uint32_t b)
{
    uint32_t n = number(value(a) * value(b));
    by(a, value(b)), by(b, value(a));
    return n;
}

static inline uint32_t dot(const uint32_t *a, const uint32_t *b, size_t count)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++)
        sum += value(a[i]) * value(b[i]);
    uint32_t n = number(sum);
    for (size_t i = 0; i < count; i++)
        by(a[i], value(b[i])), by(b[i], value(a[i]));
    return n;
}

static inline uint32_t exponential(uint32_t a)
{
    return function(a, exp(value(a)), exp(value(a)));
}

static inline uint32_t silu(uint32_t a)
{
    double x = value(a), s = 1.0 / (1.0 + exp(-x));
    return function(a, x * s, s * (1.0 + x * (1.0 - s)));
}

static inline uint32_t log_1_plus_exp(uint32_t a)
{
    double x = value(a);
    return function(a, x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x)), 1.0 / (1.0 + exp(-x)));
}

static inline void go_back(uint32_t from)
{
    tape.numbers[from].slope = 1.0;
    for (uint32_t i = from + 1; i-- > 0;)
        for (size_t e = i > 0 ? tape.numbers[i - 1].edges : 0; e < tape.numbers[i].edges; e++)
            tape.numbers[tape.edges[e].of].slope += tape.edges[e].slope * tape.numbers[i].slope;
}

#endif
