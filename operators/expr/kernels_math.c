/* Functions of numbers. */
#include "operators/expr/exact_math.h"
#include "operators/expr/loops.h"

#include <math.h>

LOOP_UNARY(kernel_copy_int, int64_t, int64_t, x)
LOOP_UNARY(kernel_copy_float, double, double, x)
LOOP_UNARY(kernel_copy_bool, uint8_t, uint8_t, x)
LOOP_UNARY(kernel_abs_float, double, double, fabs(x))
LOOP_UNARY(kernel_sign_int, int64_t, int64_t, (x > 0) - (x < 0))
LOOP_UNARY(kernel_sign_float, double, double, x > 0 ? 1.0 : x < 0 ? -1.0 : x)
LOOP_UNARY(kernel_floor, double, double, floor(x))
LOOP_UNARY(kernel_ceil, double, double, ceil(x))
LOOP_UNARY(kernel_round, double, double, round(x))
LOOP_UNARY(kernel_sqrt, double, double, sqrt(x))
LOOP_UNARY(kernel_is_nan, double, uint8_t, x != x)
LOOP_UNARY(kernel_is_finite, double, uint8_t, x - x == 0)

/* The loop calls the exact functions, which are compiled once: contraction is off in exact_math.c, and a
 * clone for another CPU would gain nothing. */
#define LOOP_EXACT(kernel, function)                                                                         \
    void kernel(struct expr_call *call)                                                                      \
    {                                                                                                        \
        const double *a = call->args[0].column.floats;                                                       \
        for (uint32_t i = 0; i < call->rows.count; i++) {                                                    \
            uint32_t row = rows_at(&call->rows, i);                                                          \
            call->out->column.floats[row] = function(a[row]);                                                \
        }                                                                                                    \
    }

LOOP_EXACT(kernel_exp, exact_exp)
LOOP_EXACT(kernel_log, exact_log)
LOOP_EXACT(kernel_log1p, exact_log1p)
LOOP_EXACT(kernel_log2, exact_log2)
LOOP_EXACT(kernel_log10, exact_log10)

void kernel_pow(struct expr_call *call)
{
    const struct expr_vec *a = &call->args[0], *b = &call->args[1];
    for (uint32_t i = 0; i < call->rows.count; i++) {
        uint32_t row = rows_at(&call->rows, i);
        call->out->column.floats[row] =
            exact_pow(a->column.floats[row & a->mask], b->column.floats[row & b->mask]);
    }
}

/* least and greatest, of two or more arguments. Among floats a NaN wins. */
static void extreme_ints(struct expr_call *call, bool is_greatest)
{
    int64_t *out = call->out->column.ints;
    for (uint32_t i = 0; i < call->rows.count; i++) {
        uint32_t row = rows_at(&call->rows, i);
        int64_t best = call->args[0].column.ints[row & call->args[0].mask];
        for (uint32_t k = 1; k < call->node->args_count; k++) {
            int64_t x = call->args[k].column.ints[row & call->args[k].mask];
            best = (is_greatest ? x > best : x < best) ? x : best;
        }
        out[row] = best;
    }
}

static void extreme_floats(struct expr_call *call, bool is_greatest)
{
    double *out = call->out->column.floats;
    for (uint32_t i = 0; i < call->rows.count; i++) {
        uint32_t row = rows_at(&call->rows, i);
        double best = call->args[0].column.floats[row & call->args[0].mask];
        for (uint32_t k = 1; k < call->node->args_count; k++) {
            double x = call->args[k].column.floats[row & call->args[k].mask];
            if (x != x || (is_greatest ? x > best : x < best))
                best = x;
        }
        out[row] = best;
    }
}

static void extreme_texts(struct expr_call *call, bool is_greatest)
{
    struct expr_writer writer;
    writer_init(&writer, call, (size_t)call->live_count * 16);
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        struct str best = vec_text(&call->args[0], row);
        for (uint32_t k = 1; k < call->node->args_count; k++) {
            struct str x = vec_text(&call->args[k], row);
            int order = str_compare(x, best);
            if (is_greatest ? order > 0 : order < 0)
                best = x;
        }
        writer_append(&writer, best.data, best.length);
        writer_end(&writer, row);
    }
    writer_finish(&writer);
}

void kernel_least_int(struct expr_call *call)
{
    extreme_ints(call, false);
}

void kernel_greatest_int(struct expr_call *call)
{
    extreme_ints(call, true);
}

void kernel_least_float(struct expr_call *call)
{
    extreme_floats(call, false);
}

void kernel_greatest_float(struct expr_call *call)
{
    extreme_floats(call, true);
}

void kernel_least_text(struct expr_call *call)
{
    extreme_texts(call, false);
}

void kernel_greatest_text(struct expr_call *call)
{
    extreme_texts(call, true);
}

/* If the bounds cross, the upper one wins. NaN stays NaN. */
void kernel_clamp_int(struct expr_call *call)
{
    const struct expr_vec *a = &call->args[0], *low = &call->args[1], *high = &call->args[2];
    for (uint32_t i = 0; i < call->rows.count; i++) {
        uint32_t row = rows_at(&call->rows, i);
        int64_t x = MAX(a->column.ints[row & a->mask], low->column.ints[row & low->mask]);
        call->out->column.ints[row] = MIN(x, high->column.ints[row & high->mask]);
    }
}

void kernel_clamp_float(struct expr_call *call)
{
    const struct expr_vec *a = &call->args[0], *low = &call->args[1], *high = &call->args[2];
    for (uint32_t i = 0; i < call->rows.count; i++) {
        uint32_t row = rows_at(&call->rows, i);
        double x = a->column.floats[row & a->mask];
        double least = low->column.floats[row & low->mask], most = high->column.floats[row & high->mask];
        x = x < least ? least : x;
        call->out->column.floats[row] = x > most ? most : x;
    }
}
