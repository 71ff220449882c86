/* + - * / % and negation.
 *
 * Integer kernels compute all rows with wrap-around and collect in one word whether any row overflowed; only
 * then a second pass finds these rows. Rows that are null or not selected never fail. */
#include "operators/expr/loops.h"

#include <math.h>

/* fmod is exact, so every correct library gives the same bits. */
LOOP_BINARY(kernel_add_float, double, double, x + y)
LOOP_BINARY(kernel_subtract_float, double, double, x - y)
LOOP_BINARY(kernel_multiply_float, double, double, (x) * (y))
LOOP_BINARY(kernel_divide_float, double, double, x / y)
LOOP_BINARY(kernel_modulo_float, double, double, fmod(x, y))
LOOP_UNARY(kernel_negate_float, double, double, -x)
LOOP_UNARY(kernel_int_to_float, int64_t, double, (double)x)

typedef bool checked_int(int64_t x, int64_t y, int64_t *result);

static bool overflows_add(int64_t x, int64_t y, int64_t *result)
{
    return __builtin_add_overflow(x, y, result);
}

static bool overflows_subtract(int64_t x, int64_t y, int64_t *result)
{
    return __builtin_sub_overflow(x, y, result);
}

static bool overflows_multiply(int64_t x, int64_t y, int64_t *result)
{
    return __builtin_mul_overflow(x, y, result);
}

/* Marks the rows that overflow. */
static void find_overflows(struct expr_call *call, checked_int *overflows)
{
    const struct expr_vec *a = &call->args[0], *b = &call->args[1];
    for (uint32_t i = 0; i < call->rows.count; i++) {
        uint32_t row = rows_at(&call->rows, i);
        int64_t unused;
        if (!vec_is_valid(call->out, row) ||
            !overflows(a->column.ints[row & a->mask], b->column.ints[row & b->mask], &unused))
            continue;
        call->out->column.ints[row] = 0;
        call_fail(call, row);
    }
}

/* Sums or differences with wrap-around; the sign bit of the result says whether any row overflowed. */
#define LOOP_CHECKED(function, OPERATION, OVERFLOW)                                                          \
    EXPR_CLONES static uint64_t function(                                                                    \
        const uint64_t *restrict a, uint32_t a_mask, const uint64_t *restrict b, uint32_t b_mask,            \
        uint64_t *restrict out, const uint16_t *restrict sel, uint32_t count)                                \
    {                                                                                                        \
        uint64_t bad = 0;                                                                                    \
        if (sel != NULL) {                                                                                   \
            for (uint32_t i = 0; i < count; i++) {                                                           \
                uint64_t x = a[sel[i] & a_mask], y = b[sel[i] & b_mask], z = OPERATION;                      \
                out[sel[i]] = z;                                                                             \
                bad |= OVERFLOW;                                                                             \
            }                                                                                                \
        } else if (b_mask == 0) {                                                                            \
            uint64_t y = b[0];                                                                               \
            for (uint32_t i = 0; i < count; i++) {                                                           \
                uint64_t x = a[i], z = OPERATION;                                                            \
                out[i] = z;                                                                                  \
                bad |= OVERFLOW;                                                                             \
            }                                                                                                \
        } else {                                                                                             \
            for (uint32_t i = 0; i < count; i++) {                                                           \
                uint64_t x = a[i & a_mask], y = b[i], z = OPERATION;                                         \
                out[i] = z;                                                                                  \
                bad |= OVERFLOW;                                                                             \
            }                                                                                                \
        }                                                                                                    \
        return bad;                                                                                          \
    }

LOOP_CHECKED(loop_add, x + y, (x ^ z) & (y ^ z))
LOOP_CHECKED(loop_subtract, x - y, (x ^ y) & (x ^ z))

void kernel_add_int(struct expr_call *call)
{
    const struct expr_vec *a = &call->args[0], *b = &call->args[1];
    uint64_t bad = loop_add(a->column.data, a->mask, b->column.data, b->mask, call->out->column.data,
                            call->rows.sel, call->rows.count);
    if (bad >> 63 != 0)
        find_overflows(call, overflows_add);
}

void kernel_subtract_int(struct expr_call *call)
{
    const struct expr_vec *a = &call->args[0], *b = &call->args[1];
    uint64_t bad = loop_subtract(a->column.data, a->mask, b->column.data, b->mask, call->out->column.data,
                                 call->rows.sel, call->rows.count);
    if (bad >> 63 != 0)
        find_overflows(call, overflows_subtract);
}

void kernel_multiply_int(struct expr_call *call)
{
    const struct expr_vec *a = &call->args[0], *b = &call->args[1];
    int64_t *out = call->out->column.ints;
    bool bad = false;
    for (uint32_t i = 0; i < call->rows.count; i++) {
        uint32_t row = rows_at(&call->rows, i);
        bad |=
            __builtin_mul_overflow(a->column.ints[row & a->mask], b->column.ints[row & b->mask], &out[row]);
    }
    if (bad)
        find_overflows(call, overflows_multiply);
}

/* aux: the reason for an overflow, which only INT64_MIN / -1 causes. */
void kernel_divide_int(struct expr_call *call)
{
    const struct expr_vec *a = &call->args[0], *b = &call->args[1];
    int64_t *out = call->out->column.ints;
    for (uint32_t i = 0; i < call->rows.count; i++) {
        uint32_t row = rows_at(&call->rows, i);
        int64_t x = a->column.ints[row & a->mask], y = b->column.ints[row & b->mask];
        if (likely(y != 0 && (y != -1 || x != INT64_MIN))) {
            out[row] = x / y;
            continue;
        }
        out[row] = 0;
        if (vec_is_valid(call->out, row))
            call_fail_reason(call, row, y == 0 ? call->node->reason : call->node->aux);
    }
}

/* The result has the dividend's sign, as in C; x % -1 is 0 for every x. */
void kernel_modulo_int(struct expr_call *call)
{
    const struct expr_vec *a = &call->args[0], *b = &call->args[1];
    int64_t *out = call->out->column.ints;
    for (uint32_t i = 0; i < call->rows.count; i++) {
        uint32_t row = rows_at(&call->rows, i);
        int64_t x = a->column.ints[row & a->mask], y = b->column.ints[row & b->mask];
        out[row] = y == 0 || y == -1 ? 0 : x % y;
        if (unlikely(y == 0) && vec_is_valid(call->out, row))
            call_fail(call, row);
    }
}

/* -x, or |x|. INT64_MIN fails. */
static void each_int(struct expr_call *call, bool is_absolute)
{
    const int64_t *a = call->args[0].column.ints;
    int64_t *out = call->out->column.ints;
    for (uint32_t i = 0; i < call->rows.count; i++) {
        uint32_t row = rows_at(&call->rows, i);
        int64_t x = a[row];
        if (unlikely(x == INT64_MIN)) {
            out[row] = 0;
            if (vec_is_valid(call->out, row))
                call_fail(call, row);
        } else {
            out[row] = is_absolute && x >= 0 ? x : -x;
        }
    }
}

void kernel_negate_int(struct expr_call *call)
{
    each_int(call, false);
}

void kernel_abs_int(struct expr_call *call)
{
    each_int(call, true);
}
