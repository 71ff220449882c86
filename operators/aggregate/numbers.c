/* count, count_if, sum, mean, min, max, variance.
 *
 * Sums of ints are exact (96 bits); a sum outside the range of int reads as null. Sums of floats add in the
 * order of rows within a pane, and of panes within a window. Variance is the sample variance (n - 1), merged
 * by Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances"
 * (1979), equation 2.1. */
#include "operators/aggregate/aggregate.h"

struct count_partial {
    int64_t count;
};

/* A sum of up to 2^31 ints, high * 2^32 + low: the two halves are added without a carry between them. */
struct int_partial {
    int64_t low, high;
    int64_t count;
};

struct float_partial {
    double sum;
    int64_t count;
};

struct extreme_partial {
    union {
        int64_t integer;
        double real;
    };
    int64_t count;
};

struct variance_partial {
    int64_t count;
    double mean, squares; /* squares: sum of squared distances from the mean */
};

static void count_update(char *partial, const struct column *argument, uint32_t row, int64_t time)
{
    (void)argument, (void)row, (void)time;
    ((struct count_partial *)(void *)partial)->count++;
}

static void count_merge(char *into, const char *from)
{
    ((struct count_partial *)(void *)into)->count +=
        ((const struct count_partial *)(const void *)from)->count;
}

static void count_finish(const char *partial, int64_t time, struct column_builder *out, uint32_t row)
{
    (void)time;
    out->column->ints[row] = ((const struct count_partial *)(const void *)partial)->count;
}

static void count_if_update(char *partial, const struct column *argument, uint32_t row, int64_t time)
{
    (void)time;
    ((struct count_partial *)(void *)partial)->count += argument->bools[row];
}

/* --- sum, mean --- */

static __int128 int_sum(const struct int_partial *partial)
{
    return (__int128)partial->high * (INT64_C(1) << 32) + partial->low;
}

static void int_update(char *partial, const struct column *argument, uint32_t row, int64_t time)
{
    (void)time;
    struct int_partial *p = (struct int_partial *)(void *)partial;
    int64_t value = argument->ints[row];
    p->low += value & UINT32_MAX;
    p->high += value >> 32;
    p->count++;
}

static void int_merge(char *into, const char *from)
{
    struct int_partial *a = (struct int_partial *)(void *)into;
    const struct int_partial *b = (const struct int_partial *)(const void *)from;
    a->low += b->low;
    a->high += b->high;
    a->count += b->count;
}

static void sum_int_finish(const char *partial, int64_t time, struct column_builder *out, uint32_t row)
{
    (void)time;
    __int128 sum = int_sum((const struct int_partial *)(const void *)partial);
    if (sum < INT64_MIN || sum > INT64_MAX)
        builder_null(out, row);
    else
        out->column->ints[row] = (int64_t)sum;
}

static void mean_int_finish(const char *partial, int64_t time, struct column_builder *out, uint32_t row)
{
    (void)time;
    const struct int_partial *p = (const struct int_partial *)(const void *)partial;
    if (p->count == 0)
        builder_null(out, row);
    else
        out->column->floats[row] = (double)int_sum(p) / (double)p->count;
}

static void float_update(char *partial, const struct column *argument, uint32_t row, int64_t time)
{
    (void)time;
    struct float_partial *p = (struct float_partial *)(void *)partial;
    p->sum += argument->floats[row];
    p->count++;
}

static void float_merge(char *into, const char *from)
{
    struct float_partial *a = (struct float_partial *)(void *)into;
    const struct float_partial *b = (const struct float_partial *)(const void *)from;
    a->sum += b->sum;
    a->count += b->count;
}

static void sum_float_finish(const char *partial, int64_t time, struct column_builder *out, uint32_t row)
{
    (void)time;
    out->column->floats[row] = ((const struct float_partial *)(const void *)partial)->sum;
}

static void mean_float_finish(const char *partial, int64_t time, struct column_builder *out, uint32_t row)
{
    (void)time;
    const struct float_partial *p = (const struct float_partial *)(const void *)partial;
    if (p->count == 0)
        builder_null(out, row);
    else
        out->column->floats[row] = p->sum / (double)p->count;
}

/* --- min, max --- */

#define EXTREME(name, member, comparison, values)                                                            \
    static void name##_take(struct extreme_partial *p, struct extreme_partial q)                             \
    {                                                                                                        \
        if (p->count == 0 || q.member comparison p->member)                                                  \
            p->member = q.member;                                                                            \
        p->count += q.count;                                                                                 \
    }                                                                                                        \
    static void name##_update(char *partial, const struct column *argument, uint32_t row, int64_t time)      \
    {                                                                                                        \
        (void)time;                                                                                          \
        struct extreme_partial value = {.member = argument->values[row], .count = 1};                        \
        name##_take((struct extreme_partial *)(void *)partial, value);                                       \
    }                                                                                                        \
    static void name##_merge(char *into, const char *from)                                                   \
    {                                                                                                        \
        const struct extreme_partial *p = (const struct extreme_partial *)(const void *)from;                \
        if (p->count > 0)                                                                                    \
            name##_take((struct extreme_partial *)(void *)into, *p);                                         \
    }

EXTREME(min_int, integer, <, ints)
EXTREME(max_int, integer, >, ints)
EXTREME(min_float, real, <, floats)
EXTREME(max_float, real, >, floats)

static void extreme_finish(const char *partial, int64_t time, struct column_builder *out, uint32_t row)
{
    (void)time;
    const struct extreme_partial *p = (const struct extreme_partial *)(const void *)partial;
    if (p->count == 0)
        builder_null(out, row);
    else
        out->column->ints[row] = p->integer; /* for floats: the bits of the float */
}

/* --- variance --- */

static void variance_add(struct variance_partial *p, double value)
{
    p->count++;
    double distance = value - p->mean;
    p->mean += distance / (double)p->count;
    p->squares += distance * (value - p->mean);
}

static void variance_int_update(char *partial, const struct column *argument, uint32_t row, int64_t time)
{
    (void)time;
    variance_add((struct variance_partial *)(void *)partial, (double)argument->ints[row]);
}

static void variance_float_update(char *partial, const struct column *argument, uint32_t row, int64_t time)
{
    (void)time;
    variance_add((struct variance_partial *)(void *)partial, argument->floats[row]);
}

static void variance_merge(char *into, const char *from)
{
    struct variance_partial *a = (struct variance_partial *)(void *)into;
    const struct variance_partial *b = (const struct variance_partial *)(const void *)from;
    if (b->count == 0)
        return;
    if (a->count == 0) {
        *a = *b;
        return;
    }
    double count = (double)(a->count + b->count), distance = b->mean - a->mean;
    a->mean += distance * ((double)b->count / count);
    a->squares += b->squares + distance * distance * ((double)a->count * (double)b->count / count);
    a->count += b->count;
}

static void variance_finish(const char *partial, int64_t time, struct column_builder *out, uint32_t row)
{
    (void)time;
    const struct variance_partial *p = (const struct variance_partial *)(const void *)partial;
    if (p->count < 2)
        builder_null(out, row);
    else
        out->column->floats[row] = p->squares / (double)(p->count - 1);
}

#define NUMBERS(symbol, name_, argument_, result_, type, update_, merge_, finish_)                           \
    const struct aggregate_kind symbol = {.name = name_,                                                     \
                                          .argument = argument_,                                             \
                                          .result = result_,                                                 \
                                          .bytes = sizeof(struct type),                                      \
                                          .is_additive = merge_ == count_merge || merge_ == int_merge,       \
                                          .update = update_,                                                 \
                                          .merge = merge_,                                                   \
                                          .finish = finish_};

NUMBERS(aggregate_count, "count", AGGREGATE_NONE, TYPE_INT, count_partial, count_update, count_merge,
        count_finish)
NUMBERS(aggregate_count_values, "count", AGGREGATE_ANY, TYPE_INT, count_partial, count_update, count_merge,
        count_finish)
NUMBERS(aggregate_count_if, "count_if", TYPE_BOOL, TYPE_INT, count_partial, count_if_update, count_merge,
        count_finish)
NUMBERS(aggregate_sum_int, "sum", TYPE_INT, TYPE_INT, int_partial, int_update, int_merge, sum_int_finish)
NUMBERS(aggregate_sum_float, "sum", TYPE_FLOAT, TYPE_FLOAT, float_partial, float_update, float_merge,
        sum_float_finish)
NUMBERS(aggregate_mean_int, "mean", TYPE_INT, TYPE_FLOAT, int_partial, int_update, int_merge, mean_int_finish)
NUMBERS(aggregate_mean_float, "mean", TYPE_FLOAT, TYPE_FLOAT, float_partial, float_update, float_merge,
        mean_float_finish)
NUMBERS(aggregate_min_int, "min", TYPE_INT, AGGREGATE_ANY, extreme_partial, min_int_update, min_int_merge,
        extreme_finish)
NUMBERS(aggregate_min_float, "min", TYPE_FLOAT, AGGREGATE_ANY, extreme_partial, min_float_update,
        min_float_merge, extreme_finish)
NUMBERS(aggregate_min_time, "min", TYPE_TIME, AGGREGATE_ANY, extreme_partial, min_int_update, min_int_merge,
        extreme_finish)
NUMBERS(aggregate_max_int, "max", TYPE_INT, AGGREGATE_ANY, extreme_partial, max_int_update, max_int_merge,
        extreme_finish)
NUMBERS(aggregate_max_float, "max", TYPE_FLOAT, AGGREGATE_ANY, extreme_partial, max_float_update,
        max_float_merge, extreme_finish)
NUMBERS(aggregate_max_time, "max", TYPE_TIME, AGGREGATE_ANY, extreme_partial, max_int_update, max_int_merge,
        extreme_finish)
NUMBERS(aggregate_variance_int, "variance", TYPE_INT, TYPE_FLOAT, variance_partial, variance_int_update,
        variance_merge, variance_finish)
NUMBERS(aggregate_variance_float, "variance", TYPE_FLOAT, TYPE_FLOAT, variance_partial, variance_float_update,
        variance_merge, variance_finish)
