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

/* Compares `length` bytes. Texts of at most 16 bytes, which are the usual ones, are compared without a call:
 * their first and their last bytes, which may overlap. */
static inline bool has_same_bytes(const char *a, const char *b, size_t length)
{
    uint64_t a_first, a_last, b_first, b_last;
    uint32_t a_head, a_tail, b_head, b_tail;
    if (length > 16)
        return memcmp(a, b, length) == 0;
    if (length >= 8) {
        memcpy(&a_first, a, 8), memcpy(&a_last, a + length - 8, 8);
        memcpy(&b_first, b, 8), memcpy(&b_last, b + length - 8, 8);
        return ((a_first ^ b_first) | (a_last ^ b_last)) == 0;
    }
    if (length >= 4) {
        memcpy(&a_head, a, 4), memcpy(&a_tail, a + length - 4, 4);
        memcpy(&b_head, b, 4), memcpy(&b_tail, b + length - 4, 4);
        return ((a_head ^ b_head) | (a_tail ^ b_tail)) == 0;
    }
    return length == 0 || (a[0] == b[0] && a[length / 2] == b[length / 2] && a[length - 1] == b[length - 1]);
}

static void texts_equal(struct expr_call *call, bool is_negated)
{
    uint8_t *out = call->out->column.bools;
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        struct str a = vec_text(&call->args[0], row), b = vec_text(&call->args[1], row);
        out[row] = (a.length == b.length && has_same_bytes(a.data, b.data, a.length)) != is_negated;
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
