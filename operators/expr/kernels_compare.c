/* Comparisons, `not`, `is null`. */
#include "operators/expr/loops.h"

LOOP_BINARY(kernel_equal_int, int64_t, uint8_t, x == y)
LOOP_BINARY(kernel_not_equal_int, int64_t, uint8_t, x != y)
LOOP_BINARY(kernel_less_int, int64_t, uint8_t, x < y)
LOOP_BINARY(kernel_less_equal_int, int64_t, uint8_t, x <= y)
LOOP_BINARY(kernel_equal_float, double, uint8_t, x == y)
LOOP_BINARY(kernel_not_equal_float, double, uint8_t, x != y)
LOOP_BINARY(kernel_less_float, double, uint8_t, x < y)
LOOP_BINARY(kernel_less_equal_float, double, uint8_t, x <= y)
LOOP_BINARY(kernel_equal_bool, uint8_t, uint8_t, x == y)
LOOP_BINARY(kernel_not_equal_bool, uint8_t, uint8_t, x != y)
LOOP_BINARY(kernel_less_bool, uint8_t, uint8_t, x < y)
LOOP_BINARY(kernel_less_equal_bool, uint8_t, uint8_t, x <= y)
LOOP_UNARY(kernel_not, uint8_t, uint8_t, x == 0)

static void texts_equal(struct expr_call *call, bool is_negated)
{
    uint8_t *out = call->out->column.bools;
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        out[row] = str_equal(vec_text(&call->args[0], row), vec_text(&call->args[1], row)) != is_negated;
    }
}

void kernel_equal_text(struct expr_call *call)
{
    texts_equal(call, false);
}

void kernel_not_equal_text(struct expr_call *call)
{
    texts_equal(call, true);
}

static void texts_less(struct expr_call *call, int below)
{
    uint8_t *out = call->out->column.bools;
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        out[row] = str_compare(vec_text(&call->args[0], row), vec_text(&call->args[1], row)) < below;
    }
}

void kernel_less_text(struct expr_call *call)
{
    texts_less(call, 0);
}

void kernel_less_equal_text(struct expr_call *call)
{
    texts_less(call, 1);
}

static void nulls(struct expr_call *call, bool is_null)
{
    const struct expr_vec *a = &call->args[0];
    uint8_t *out = call->out->column.bools;
    for (uint32_t i = 0; i < call->rows.count; i++) {
        uint32_t row = rows_at(&call->rows, i);
        out[row] = vec_is_valid(a, row) != is_null;
    }
}

void kernel_is_null(struct expr_call *call)
{
    nulls(call, true);
}

void kernel_is_not_null(struct expr_call *call)
{
    nulls(call, false);
}
