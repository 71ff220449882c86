/* Loops over rows, for kernels with one or two arguments of numbers: dense loops, which gcc vectorizes, if
 * every row is wanted; else loops over the selection. EXPRESSION is the result for a row, from its arguments
 * x (and y). A constant argument is kept in a register; two constants do not occur (they are folded). */
#ifndef LEAT_OPERATORS_EXPR_LOOPS_H
#define LEAT_OPERATORS_EXPR_LOOPS_H

#include "operators/expr/node.h"

/* 64-bit compares need AVX2: each loop is compiled with and without it, and the CPU decides at start. All
 * operations are exact, so the bits are equal. Sanitizers do not work with dispatch at load time. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&                \
    !defined(__clang__)
#define EXPR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define EXPR_CLONES
#endif

#define LOOP_UNARY(function, in_type, out_type, EXPRESSION)                                                  \
    EXPR_CLONES static void function##_loop(const in_type *restrict a, out_type *restrict out,               \
                                            const uint16_t *restrict sel, uint32_t count)                    \
    {                                                                                                        \
        if (sel == NULL)                                                                                     \
            for (uint32_t i = 0; i < count; i++) {                                                           \
                in_type x = a[i];                                                                            \
                out[i] = (out_type)(EXPRESSION);                                                             \
            }                                                                                                \
        else                                                                                                 \
            for (uint32_t i = 0; i < count; i++) {                                                           \
                in_type x = a[sel[i]];                                                                       \
                out[sel[i]] = (out_type)(EXPRESSION);                                                        \
            }                                                                                                \
    }                                                                                                        \
    void function(struct expr_call *call)                                                                    \
    {                                                                                                        \
        leat_assert(call->args[0].mask != 0 || call->rows.count == 1);                                       \
        function##_loop(call->args[0].column.data, call->out->column.data, call->rows.sel,                   \
                        call->rows.count);                                                                   \
    }

#define LOOP_BINARY(function, in_type, out_type, EXPRESSION)                                                 \
    EXPR_CLONES static void function##_loop(                                                                 \
        const in_type *restrict a, uint32_t a_mask, const in_type *restrict b, uint32_t b_mask,              \
        out_type *restrict out, const uint16_t *restrict sel, uint32_t count)                                \
    {                                                                                                        \
        if (sel != NULL) {                                                                                   \
            for (uint32_t i = 0; i < count; i++) {                                                           \
                in_type x = a[sel[i] & a_mask], y = b[sel[i] & b_mask];                                      \
                out[sel[i]] = (out_type)(EXPRESSION);                                                        \
            }                                                                                                \
        } else if (b_mask == 0) {                                                                            \
            in_type y = b[0];                                                                                \
            for (uint32_t i = 0; i < count; i++) {                                                           \
                in_type x = a[i];                                                                            \
                out[i] = (out_type)(EXPRESSION);                                                             \
            }                                                                                                \
        } else if (a_mask == 0) {                                                                            \
            in_type x = a[0];                                                                                \
            for (uint32_t i = 0; i < count; i++) {                                                           \
                in_type y = b[i];                                                                            \
                out[i] = (out_type)(EXPRESSION);                                                             \
            }                                                                                                \
        } else {                                                                                             \
            for (uint32_t i = 0; i < count; i++) {                                                           \
                in_type x = a[i], y = b[i];                                                                  \
                out[i] = (out_type)(EXPRESSION);                                                             \
            }                                                                                                \
        }                                                                                                    \
    }                                                                                                        \
    void function(struct expr_call *call)                                                                    \
    {                                                                                                        \
        const struct expr_vec *a = &call->args[0], *b = &call->args[1];                                      \
        leat_assert(a->column.data != NULL && b->column.data != NULL);                                       \
        function##_loop(a->column.data, a->mask, b->column.data, b->mask, call->out->column.data,            \
                        call->rows.sel, call->rows.count);                                                   \
    }

#endif
